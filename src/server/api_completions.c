/* api_completions.c -- POST /v1/completions: prompts of text or ids, answered as text. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/call.h"

static void open_chunk(const rg_call *c, rg_buf *b)
{
    rg_out_open(b, NULL, '{');
    rg_out_text(b, "id", c->id);
    rg_out_text(b, "object", "text_completion");
    rg_out_int(b, "created", c->created_s);
    rg_out_text(b, "model", c->server->o.model);
    rg_out_open(b, "choices", '[');
}

/* ---- log-probabilities: tokens [from, to) ------------------------------------------------------------------------ */

static void write_top(rg_buf *b, const rg_call *c, const rg_choice *ch, const rg_logprob *l)
{
    const rg_top *top = rg_choice_tops(ch, l);
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

static void write_logprobs(rg_buf *b, rg_call *c, rg_choice *ch, size_t from, size_t to)
{
    if (c->f.n_logprobs < 0) {
        rg_out_null(b, "logprobs");
        return;
    }
    rg_out_open(b, "logprobs", '{');
    rg_out_open(b, "tokens", '[');
    for (size_t i = from; i < to; i++)
        rg_write_id(b, c, NULL, rg_choice_logprob(ch, i)->id);
    rg_out_close(b, ']');
    rg_out_open(b, "token_logprobs", '[');
    for (size_t i = from; i < to; i++)
        rg_out_real(b, NULL, (double)rg_choice_logprob(ch, i)->logprob);
    rg_out_close(b, ']');
    rg_out_open(b, "top_logprobs", '[');
    for (size_t i = from; i < to; i++)
        write_top(b, c, ch, rg_choice_logprob(ch, i));
    rg_out_close(b, ']');
    rg_out_open(b, "text_offset", '[');
    for (size_t i = from; i < to; i++) {
        size_t n = 0;
        char *s = rg_decode(c->server->engine, &rg_choice_logprob(ch, i)->id, 1, false, &n, NULL);
        rg_out_int(b, NULL, (int64_t)ch->text_offset);
        ch->text_offset += s ? count_characters(s, n) : 0;
        rg_text_free(s);
    }
    rg_out_close(b, ']');
    rg_out_close(b, '}');
}

/* ---- the shape --------------------------------------------------------------------------------------------------- */

static const rg_prompt *prompt_of(const rg_call *c, const rg_choice *ch)
{
    return &c->prompts[ch->index / c->f.n];
}

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

static void write_choice(rg_buf *b, rg_call *c, rg_choice *ch)
{
    size_t n = rg_choice_n_logprobs(ch);

    rg_out_open(b, NULL, '{');
    rg_out_int(b, "index", ch->index);
    write_text(b, c, ch);
    write_logprobs(b, c, ch, ch->sent_logprobs, n);
    ch->sent_logprobs = n;
    rg_out_text(b, "finish_reason", ch->finish == RG_RUNNING ? NULL : rg_finish_word(ch));
    rg_out_text(b, "stop_reason", ch->finish == RG_FINISH_DEADLINE ? "deadline" : NULL);
    rg_out_close(b, '}');
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    bool tokens = rg_choice_n_logprobs(ch) > ch->sent_logprobs;

    if (ch->text.n == ch->sent_text && ch->finish == RG_RUNNING && !tokens)
        return;
    rg_event_open(out, NULL);
    open_chunk(c, out);
    write_choice(out, c, ch);
    rg_out_close(out, ']');
    if (c->f.include_usage)
        rg_out_null(out, "usage");
    rg_out_close(out, '}');
    rg_event_close(out);
}

static void stop(rg_call *c, rg_buf *out)
{
    if (c->f.include_usage) {
        rg_event_open(out, NULL);
        open_chunk(c, out);
        rg_out_close(out, ']');
        rg_write_usage(out, c);
        rg_out_close(out, '}');
        rg_event_close(out);
    }
    rg_buf_str(out, "data: [DONE]\n\n");
}

static void fail(rg_call *c, const rg_refusal *e, rg_buf *out)
{
    rg_event_open(out, NULL);
    rg_refusal_write(out, c->x, e);
    rg_event_close(out);
    rg_buf_str(out, "data: [DONE]\n\n");
}

static void whole(rg_call *c, rg_buf *out)
{
    open_chunk(c, out);
    for (int32_t i = 0; i < c->n_choices; i++)
        write_choice(out, c, &c->choices[i]);
    rg_out_close(out, ']');
    rg_write_usage(out, c);
    rg_out_close(out, '}');
}

static const rg_shape shape = { .id_prefix = "cmpl-", .delta = delta, .stop = stop, .fail = fail, .whole = whole };

/* ---- the request ------------------------------------------------------------------------------------------------- */

static bool add_ids(rg_call *c, const json_t *list, rg_refusal *e)
{
    int32_t *ids;
    size_t n;

    if (!rg_ids_read(list, "prompt", &ids, &n, e)) {
        rg_free(ids);
        return false;
    }
    if (!rg_call_add_ids(c, ids, n, true, e))
        return false;
    if (c->f.echo) {
        rg_prompt *p = &c->prompts[c->n_prompts - 1];
        char *text = rg_decode(c->server->engine, p->ids, p->n, false, &p->n_text, NULL);
        p->text = text ? rg_strndup(text, p->n_text) : NULL;
        rg_text_free(text);
        return p->text || rg_refuse_memory(e);
    }
    return true;
}

/* A text, texts, ids, or lists of ids. */
static bool read_prompt(rg_call *c, const json_t *v, rg_refusal *e)
{
    const json_t *first = json_array_get(v, 0);
    bool ok = true;

    if (json_is_string(v))
        return rg_call_add_text(c, json_string_value(v), json_string_length(v), e);
    if (json_is_integer(first))
        return add_ids(c, v, e);
    if (!json_is_string(first) && !json_is_array(first))
        return rg_refuse_field(e, "prompt", "'prompt' must be a string, strings, token ids or lists of token ids.");
    for (size_t i = 0; ok && i < json_array_size(v); i++) {
        const json_t *p = json_array_get(v, i);
        if (json_typeof(p) != json_typeof(first))
            return rg_refuse_field(e, "prompt", "'prompt' must not mix texts and token ids.");
        ok = json_is_string(p) ? rg_call_add_text(c, json_string_value(p), json_string_length(p), e) : add_ids(c, p, e);
    }
    return ok;
}

void rg_api_completions(rg_server *s, rg_exchange *x)
{
    rg_refusal e = { 0 };
    rg_call *c = rg_call_new(s, x, &shape, RG_API_COMPLETIONS, &e);
    bool ok = c;

    if (ok && c->f.max_tokens == RG_NOT_GIVEN)
        c->f.max_tokens = 16; /* as this API has it */
    if (ok && c->f.echo && c->f.n_logprobs >= 0)
        ok = rg_refuse(&e, 400, "unsupported_value", "echo", "'echo' with 'logprobs' is not supported.");
    ok = ok && read_prompt(c, json_object_get(c->body, "prompt"), &e) && rg_call_start(c, &e);
    if (ok)
        return;
    rg_call_free(c);
    rg_reply_refusal(s, x, &e);
}
