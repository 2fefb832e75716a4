/* completions.c -- POST /v1/completions: prompts of text or ids, answered as text. */
#include <math.h> /* NAN */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/call.h"
#include "server/api/fim.h"

static const rg_prompt *prompt_of(const rg_call *c, const rg_choice *ch)
{
    return &c->prompts[ch->index / c->f.n];
}

/* ---- log-probabilities of tokens: of an echo those of the prompt, then the answer's ------------------------------ */

static size_t n_echoed(const rg_call *c, const rg_choice *ch)
{
    return c->f.echo ? prompt_of(c, ch)->n : 0;
}

static size_t n_tokens(const rg_call *c, const rg_choice *ch)
{
    return c->f.n_logprobs < 0 ? 0 : n_echoed(c, ch) + rg_choice_n_logprobs(ch);
}

/* The i-th of them.  False: only its id is known, as of the first of a prompt. */
static bool token_at(const rg_call *c, const rg_choice *ch, size_t i, rg_prompt_logprob *t)
{
    size_t n = n_echoed(c, ch);

    if (i < n) {
        *t = (rg_prompt_logprob){ .id = prompt_of(c, ch)->ids[i] };
        if (!rg_request_prompt_logprob(c->requests[ch->index / c->f.n], (int32_t)i, t))
            return false;
        t->n_top = c->f.n_logprobs; /* there may be more, for prompt_logprobs */
        return true;
    }
    const rg_logprob *l = rg_choice_logprob(ch, i - n);
    *t = (rg_prompt_logprob){ .id = l->id, .logprob = l->logprob, .top = rg_choice_tops(ch, l), .n_top = l->n_top };
    return true;
}

static void write_top(rg_buf *b, const rg_call *c, const rg_prompt_logprob *l)
{
    enum { MOST = 24 };
    const rg_top *top = l->top;
    rg_buf text[MOST]; /* a key may stand only once: ids that no text tells apart are left out */
    int n = 0;
    bool chosen = false;

    rg_out_open(b, NULL, '{');
    for (int i = 0; i <= l->n_top && n < MOST; i++) {
        int32_t id = i < l->n_top ? top[i].id : l->id;
        bool again = i == l->n_top && chosen;
        size_t n_bytes;
        const char *bytes = rg_id_bytes(c->served->engine, id, false, &n_bytes);
        rg_buf_init(&text[n], 3 * n_bytes + 1);
        if (!rg_utf8_lossy(&text[n], bytes, n_bytes) || !rg_buf_add(&text[n], "", 1))
            again = b->failed = true; /* without memory there is no answer, rather than a part of one */
        for (int k = 0; k < n && !again; k++)
            again = text[k].n == text[n].n && !memcmp(text[k].data, text[n].data, text[n].n);
        chosen |= id == l->id;
        if (again) {
            rg_buf_fini(&text[n]);
            continue;
        }
        rg_out_real(b, text[n].data, (double)(i < l->n_top ? top[i].logprob : l->logprob));
        n++;
    }
    for (int k = 0; k < n; k++)
        rg_buf_fini(&text[k]);
    rg_out_close(b, '}');
}

static size_t count_characters(const char *s, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

/* ---- text_offset: where a token begins in the text, in characters ------------------------------------------------ */
/* A token that begins within a character gets the offset of that character. */

/* Where the bytes of a token stand in the text of the prompt from `at` on, *n of them there: the tokenizer may have put
 * a space in front, left something out, or changed a character, and then it is looked for a little further on. */
static size_t find_token(const char *text, size_t n_text, size_t at, const char *bytes, size_t *n)
{
    enum { AHEAD = 16 };

    if (*n && bytes[0] == ' ' && at < n_text && text[at] != ' ') {
        bytes++;
        --*n;
    }
    for (size_t k = 0; k <= AHEAD && *n <= n_text && at + k <= n_text - *n; k++)
        if (!memcmp(text + at + k, bytes, *n))
            return at + k;
    *n = *n < n_text - at ? *n : n_text - at;
    return at;
}

static void write_prompt_offsets(rg_buf *b, const rg_call *c, const rg_prompt *p)
{
    size_t at = 0, characters = 0, counted = 0; /* characters that begin in text[0, counted) */

    for (size_t i = 0; i < p->n; i++) {
        size_t n, from;
        const char *bytes = rg_id_bytes(c->served->engine, p->ids[i], true, &n);

        if (!n) { /* a special token may stand in the text, or not */
            bytes = rg_id_bytes(c->served->engine, p->ids[i], false, &n);
            n = n <= p->n_text - at && !memcmp(p->text + at, bytes, n) ? n : 0;
        }
        from = n ? find_token(p->text, p->n_text, at, bytes, &n) : at;
        characters += count_characters(p->text + counted, from - counted);
        counted = from;
        bool within = from < p->n_text && ((unsigned char)p->text[from] & 0xc0) == 0x80;
        rg_out_int(b, NULL, (int64_t)(characters - (within && characters)));
        at = from + n;
    }
}

/* Count n bytes more. */
static void add_bytes(rg_characters *c, const char *bytes, size_t n)
{
    char whole[3 * (sizeof c->part + 1)];

    for (size_t i = 0, used; i < n; i++) {
        c->part[c->n_part++] = bytes[i];
        c->n += count_characters(whole, rg_utf8_copy(c->part, c->n_part, false, whole, &used));
        memmove(c->part, c->part + used, c->n_part - used);
        c->n_part = (uint8_t)(c->n_part - used);
    }
}

static void write_offsets(rg_buf *b, const rg_call *c, rg_choice *ch, size_t from, size_t to)
{
    size_t n_prompt = n_echoed(c, ch);
    rg_prompt_logprob t;

    if (from < n_prompt) {
        write_prompt_offsets(b, c, prompt_of(c, ch));
        from = n_prompt;
    }
    for (size_t i = from; i < to; i++) {
        size_t n;
        token_at(c, ch, i, &t);
        const char *bytes = rg_id_bytes(c->served->engine, t.id, true, &n);

        if (i == n_prompt && n && bytes[0] == ' ' && ch->text.n && ch->text.data[0] != ' ')
            bytes++, n--; /* the text begins without the tokenizer's own space */
        if (n && ch->offset.n_part && ((unsigned char)bytes[0] & 0xc0) != 0x80) {
            ch->offset.n++; /* the character before never became whole, and shows as U+FFFD */
            ch->offset.n_part = 0;
        }
        rg_out_int(b, NULL, (int64_t)ch->offset.n);
        add_bytes(&ch->offset, bytes, n);
    }
}

/* Write the log-probabilities that were not sent yet.  Those of the prompt are sent together. */
static void write_logprobs(rg_buf *b, rg_call *c, rg_choice *ch)
{
    size_t from = ch->sent_logprobs, to = n_tokens(c, ch);
    rg_prompt_logprob t;

    if (c->f.n_logprobs < 0) {
        rg_out_null(b, "logprobs");
        return;
    }
    rg_out_open(b, "logprobs", '{');
    rg_out_open(b, "tokens", '[');
    for (size_t i = from; i < to; i++) {
        token_at(c, ch, i, &t);
        rg_write_id(b, c, NULL, t.id);
    }
    rg_out_close(b, ']');
    rg_out_open(b, "token_logprobs", '[');
    for (size_t i = from; i < to; i++)
        rg_out_real(b, NULL, token_at(c, ch, i, &t) ? (double)t.logprob : (double)NAN);
    rg_out_close(b, ']');
    rg_out_open(b, "top_logprobs", '[');
    for (size_t i = from; i < to; i++)
        if (token_at(c, ch, i, &t))
            write_top(b, c, &t);
        else
            rg_out_null(b, NULL);
    rg_out_close(b, ']');
    rg_out_open(b, "text_offset", '[');
    write_offsets(b, c, ch, from, to);
    rg_out_close(b, ']');
    rg_out_close(b, '}');
    ch->sent_logprobs = to;
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

/* The echo of the prompt goes before the first text. */
static void write_text(rg_buf *b, rg_call *c, rg_choice *ch)
{
    const rg_prompt *p = prompt_of(c, ch);
    rg_buf both;

    if (ch->started || !c->f.echo) {
        rg_out_string(b, "text", ch->text.data ? ch->text.data + ch->sent_text : "", ch->text.n - ch->sent_text);
    } else {
        rg_buf_init(&both, p->n_text + ch->text.n + 1);
        rg_buf_add(&both, p->text ? p->text : "", p->text ? p->n_text : 0);
        rg_buf_add(&both, ch->text.data ? ch->text.data : "", ch->text.n);
        rg_out_string(b, "text", both.data ? both.data : "", both.n);
        rg_buf_fini(&both);
        ch->offset.n = p->text ? count_characters(p->text, p->n_text) : 0;
    }
    ch->started = true;
    ch->sent_text = ch->text.n;
}

static void choice(rg_call *c, rg_choice *ch, rg_buf *b)
{
    const bool first = !ch->started;

    rg_out_open(b, NULL, '{');
    rg_out_int(b, "index", ch->index);
    write_text(b, c, ch);
    write_logprobs(b, c, ch);
    if (c->f.prompt_logprobs >= 0)
        rg_write_prompt_logprobs(b, c, (int32_t)(ch->index / c->f.n));
    if (first)
        rg_write_prompt_ids(b, c, (int32_t)(ch->index / c->f.n));
    rg_write_token_ids(b, c, ch);
    rg_write_finish(b, c, ch);
    rg_out_close(b, '}');
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    if (ch->text.n == ch->sent_text && ch->finish == RG_RUNNING && n_tokens(c, ch) == ch->sent_logprobs)
        return;
    rg_chunk_open(out, c);
    choice(c, ch, out);
    rg_chunk_close(out, c);
}

static void progress(rg_call *c, rg_buf *out)
{
    rg_chunk_open(out, c);
    rg_out_open(out, NULL, '{');
    rg_out_int(out, "index", 0);
    rg_out_text(out, "text", "");
    rg_out_null(out, "logprobs");
    rg_out_null(out, "finish_reason");
    rg_out_close(out, '}');
    rg_chunk_close_progress(out, c);
}

/* ---- the request ------------------------------------------------------------------------------------------------- */

/* What is to stand between prompt and suffix, by the marks of the model's family. */
static bool read_insert(rg_call *c, rg_refusal *e)
{
    const json_t *prompt = json_object_get(c->body, "prompt"), *suffix = json_object_get(c->body, "suffix");

    if (!json_is_string(suffix))
        return rg_refuse_field(e, "suffix", "'suffix' must be a string.");
    if (c->served->fim.prefix < 0)
        return rg_refuse(e, 400, "unsupported_value", "suffix",
                         "The model '%.200s' has no marks for a text that is "
                         "filled in: 'suffix' is not supported.",
                         c->served->name);
    if (!json_is_string(prompt))
        return rg_refuse_field(e, "prompt", "'prompt' must be one string where there is a 'suffix'.");
    if (c->f.echo)
        return rg_refuse(e, 400, "unsupported_value", "echo", "'echo' is not supported with 'suffix'.");
    const rg_fim_prompt text = { .prefix = json_string_value(prompt),
                                 .suffix = json_string_value(suffix),
                                 .start = "" };
    return rg_fim_take(c, &text, e);
}

static bool read_request(rg_call *c, rg_refusal *e)
{
    if (c->f.max_tokens == RG_NOT_GIVEN)
        c->f.max_tokens = 16; /* as this API has it */
    return json_object_get(c->body, "suffix") ? read_insert(c, e) : rg_call_read_prompts(c, e);
}

static const rg_shape shape = {
    .api = RG_API_COMPLETIONS,
    .id_prefix = "cmpl-",
    .input = "prompt",
    .read = read_request,
    .object = "text_completion",
    .chunk = "text_completion",
    .choice = choice,
    .delta = delta,
    .progress = progress,
    .stop = rg_chunks_stop,
    .fail = rg_chunks_fail,
    .whole = rg_choices_whole,
};

void rg_api_completions(rg_served *s, rg_exchange *x)
{
    rg_call_answer(s, x, &shape);
}
