/* api_completions.c -- POST /v1/completions: prompts of text or ids, answered as text. */
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "server/call.h"

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

static void choice(rg_call *c, rg_choice *ch, rg_buf *b)
{
    size_t n = rg_choice_n_logprobs(ch);

    rg_out_open(b, NULL, '{');
    rg_out_int(b, "index", ch->index);
    write_text(b, c, ch);
    write_logprobs(b, c, ch, ch->sent_logprobs, n);
    ch->sent_logprobs = n;
    rg_write_finish(b, c, ch);
    rg_out_close(b, '}');
}

static void delta(rg_call *c, rg_choice *ch, rg_buf *out)
{
    bool tokens = rg_choice_n_logprobs(ch) > ch->sent_logprobs;

    if (ch->text.n == ch->sent_text && ch->finish == RG_RUNNING && !tokens)
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
    if (c->f.echo && c->f.n_logprobs >= 0)
        return rg_refuse(e, 400, "unsupported_value", "echo", "'echo' with 'logprobs' is not supported.");
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
