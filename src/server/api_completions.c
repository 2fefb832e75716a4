/* api_completions.c -- POST /v1/completions: prompts of text or ids, answered as text. */
#include <math.h> /* NAN */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/call.h"

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
    const rg_top *top = l->top;
    char *text[24] = { 0 }; /* a key may stand only once: ids that no text tells apart are left out */
    size_t len[24] = { 0 };
    int n = 0;
    bool chosen = false;

    rg_out_open(b, NULL, '{');
    for (int i = 0; i <= l->n_top && n < 24; i++) {
        int32_t id = i < l->n_top ? top[i].id : l->id;
        bool again = i == l->n_top && chosen;
        text[n] = again ? NULL : rg_decode(c->server->engine, &id, 1, false, &len[n], NULL);
        for (int k = 0; k < n; k++)
            again |= text[n] && len[k] == len[n] && !memcmp(text[k], text[n], len[n]);
        chosen |= id == l->id;
        if (text[n] && !again) {
            rg_out_real(b, text[n], (double)(i < l->n_top ? top[i].logprob : l->logprob));
            n++;
        } else {
            rg_text_free(text[n]);
            text[n] = NULL;
        }
    }
    for (int k = 0; k < n; k++)
        rg_text_free(text[k]);
    rg_out_close(b, '}');
}

static size_t count_characters(const char *s, size_t n)
{
    size_t count = 0;

    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xc0) != 0x80;
    return count;
}

/* Does a text begin with these ids?  *used: how much of it they are.  Special ones may not stand in it: the tokenizer
 * added them. */
static bool begins_with(const rg_call *c, const int32_t *ids, size_t n, const char *text, size_t n_text, size_t *used)
{
    bool same = false;

    *used = 0;
    for (int skip = 0; skip < 2 && !same; skip++) {
        char *s = rg_decode(c->server->engine, ids, n, skip, used, NULL);
        same = s && *used <= n_text && !memcmp(s, text, *used);
        rg_text_free(s);
    }
    return same;
}

/* Where the ids of a prompt begin in its text, in characters.  Those that make a character only together begin where it
 * does. */
static void write_prompt_offsets(rg_buf *b, const rg_call *c, const rg_prompt *p)
{
    enum { MAX_TOGETHER = 8 }; /* what is still not found then was spelt otherwise by the tokenizer */
    size_t at = 0, characters = 0, from = 0, used;

    for (size_t i = 0; i < p->n; i++) {
        rg_out_int(b, NULL, (int64_t)characters);
        bool found = begins_with(c, p->ids + from, i + 1 - from, p->text + at, p->n_text - at, &used);
        if (!found && i + 1 - from < MAX_TOGETHER)
            continue;
        used = used < p->n_text - at ? used : p->n_text - at;
        characters += count_characters(p->text + at, used);
        at += used;
        from = i + 1;
    }
}

static void write_offsets(rg_buf *b, const rg_call *c, rg_choice *ch, size_t from, size_t to)
{
    rg_prompt_logprob t;

    if (from < n_echoed(c, ch)) {
        write_prompt_offsets(b, c, prompt_of(c, ch));
        from = n_echoed(c, ch);
    }
    for (size_t i = from; i < to; i++) {
        size_t n = 0;
        token_at(c, ch, i, &t);
        char *s = rg_decode(c->server->engine, &t.id, 1, false, &n, NULL);
        rg_out_int(b, NULL, (int64_t)ch->text_offset);
        ch->text_offset += s ? count_characters(s, n) : 0;
        rg_text_free(s);
    }
}

/* Those that have not been sent; the prompt's go together. */
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
        ch->text_offset = p->text ? count_characters(p->text, p->n_text) : 0;
    }
    ch->started = true;
    ch->sent_text = ch->text.n;
}

static void choice(rg_call *c, rg_choice *ch, rg_buf *b)
{
    rg_out_open(b, NULL, '{');
    rg_out_int(b, "index", ch->index);
    write_text(b, c, ch);
    write_logprobs(b, c, ch);
    if (c->f.prompt_logprobs >= 0)
        rg_write_prompt_logprobs(b, c, (int32_t)(ch->index / c->f.n));
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

/* ---- the request ------------------------------------------------------------------------------------------------- */

static bool read_request(rg_call *c, rg_refusal *e)
{
    if (c->f.max_tokens == RG_NOT_GIVEN)
        c->f.max_tokens = 16; /* as this API has it */
    return rg_call_read_prompts(c, e);
}

static const rg_shape shape = {
    .api = RG_API_COMPLETIONS, .id_prefix = "cmpl-", .input = "prompt", .read = read_request,
    .object = "text_completion", .chunk = "text_completion", .choice = choice, .delta = delta,
    .stop = rg_chunks_stop, .fail = rg_chunks_fail, .whole = rg_choices_whole,
};

void rg_api_completions(rg_server *s, rg_exchange *x)
{
    rg_call_answer(s, x, &shape);
}
