/* call.c -- see call.h: making a call and submitting it.  turn.c follows its answers. */
#include "server/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

enum {
    MAX_PROMPTS = 2048,
    MAX_REQUEST_BYTES = 512 << 20, /* of ids and log-probabilities to come: a request is its own mailbox */
    MAX_CALL_TEXT = 1 << 30,
};

rg_call *rg_call_new(rg_server *s, rg_exchange *x, const rg_shape *shape, unsigned api, rg_refusal *e)
{
    rg_call *c = rg_zalloc(sizeof *c);

    if (!c)
        return rg_refuse_memory(e), NULL;
    c->server = s;
    c->shape = shape;
    c->x = x;
    rg_exchange_keep(x);
    rg_buf_init(&c->out, MAX_CALL_TEXT);
    c->since_ns = rg_exchange_notes(x)->since_ns;
    c->created_s = rg_wall_s();
    snprintf(c->id, sizeof c->id, "%s%016llx%016llx", shape->id_prefix, (unsigned long long)rg_seed(),
             (unsigned long long)rg_seed());
    c->body = rg_read_object(x, e);
    if (!c->body || !rg_fields_read(&c->f, c->body, api, e) || !rg_check_model(s, c->f.model, e)) {
        rg_call_free(c);
        return NULL;
    }
    rg_count(s->metrics, RG_C_UNKNOWN, (double)c->f.n_unknown);
    return c;
}

static void free_choice(rg_choice *ch)
{
    rg_buf_fini(&ch->text);
    rg_answer_fini(&ch->answer);
    rg_buf_fini(&ch->logprobs);
    rg_buf_fini(&ch->tops);
}

void rg_call_free(rg_call *c)
{
    if (!c)
        return;
    for (int32_t i = 0; c->requests && i < c->n_prompts; i++)
        rg_request_close(c->requests[i]);
    for (int32_t i = 0; c->choices && i < c->n_choices; i++)
        free_choice(&c->choices[i]);
    for (int32_t i = 0; i < c->n_prompts; i++) {
        if (c->prompts[i].ours)
            rg_free(c->prompts[i].ids);
        else
            rg_ids_free(c->prompts[i].ids);
        rg_free(c->prompts[i].text);
    }
    rg_free(c->requests);
    rg_free(c->choices);
    rg_free(c->prompts);
    rg_fields_fini(&c->f);
    json_decref(c->tools);
    json_decref(c->body);
    rg_buf_fini(&c->out);
    rg_exchange_release(c->x);
    rg_free(c);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static bool check_prompt(const rg_call *c, const int32_t *ids, size_t n, rg_refusal *e)
{
    const rg_info *info = &c->server->info;

    if (!n)
        return rg_refuse_field(e, "prompt", "The prompt is empty: it needs one token at least.");
    if (n >= (size_t)info->max_seq_len)
        return rg_refuse(e, 400, "context_length_exceeded", "prompt",
                         "The prompt has %zu tokens, and the context of %d must hold one more.", n,
                         (int)info->max_seq_len);
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= info->vocab_size)
            return rg_refuse_field(e, "prompt", "Token %zu of the prompt is not in the vocabulary of %d.", i,
                                   (int)info->vocab_size);
    return true;
}

static void free_ids(int32_t *ids, bool ours)
{
    if (ours)
        rg_free(ids);
    else
        rg_ids_free(ids);
}

bool rg_call_add_ids(rg_call *c, int32_t *ids, size_t n, bool ours, rg_refusal *e)
{
    bool ok = check_prompt(c, ids, n, e);

    if (ok && c->n_prompts == c->prompts_room) {
        int32_t room = c->prompts_room ? 2 * c->prompts_room : 4;
        rg_prompt *p = c->n_prompts < MAX_PROMPTS ? rg_resize(c->prompts, (size_t)room * sizeof *p) : NULL;
        ok = p || (c->n_prompts < MAX_PROMPTS ? rg_refuse_memory(e)
                                              : rg_refuse_field(e, "prompt", "There are more than %d prompts.",
                                                                MAX_PROMPTS));
        if (p) {
            c->prompts = p;
            c->prompts_room = room;
        }
    }
    if (!ok) {
        free_ids(ids, ours);
        return false;
    }
    c->prompts[c->n_prompts++] = (rg_prompt){ .ids = ids, .n = n, .ours = ours };
    return true;
}

bool rg_call_add_text(rg_call *c, const char *text, size_t n, rg_refusal *e)
{
    rg_error err = { 0 };
    int32_t *ids = NULL;
    size_t n_ids = 0;

    if (!rg_encode(c->server->engine, text, n, c->f.add_special ? RG_ENCODE_DEFAULT : RG_ENCODE_NO_SPECIAL, &ids,
                   &n_ids, &err))
        return rg_refuse_engine(c->server, e, &err), false;
    if (!rg_call_add_ids(c, ids, n_ids, false, e))
        return false;
    if (c->f.echo) {
        rg_prompt *p = &c->prompts[c->n_prompts - 1];
        p->text = rg_strndup(text, n);
        p->n_text = n;
        return p->text || rg_refuse_memory(e);
    }
    return true;
}

/* The prompt ends within the model's reasoning if the template opened it. */
static bool ends_reasoning(const char *text)
{
    static const char mark[] = "<think>";
    size_t n = text ? strlen(text) : 0;

    while (n && (text[n - 1] == '\n' || text[n - 1] == ' '))
        n--;
    return n >= strlen(mark) && !memcmp(text + n - strlen(mark), mark, strlen(mark));
}

bool rg_call_add_chat(rg_call *c, const json_t *conversation, rg_refusal *e)
{
    rg_chat_options o = { .no_generation_prompt = !c->f.generation_prompt };
    char *json = rg_body_dump(conversation), *text = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    rg_error err = { 0 };

    if (!json)
        return rg_refuse_memory(e);
    bool ok = rg_chat_encode(c->server->engine, json, strlen(json), &o, &ids, &n, &text, &err);
    rg_free(json);
    if (!ok && err.code == RG_E_INPUT)
        return rg_refuse_field(e, "messages", "The model's chat template does not take this conversation.");
    if (!ok)
        return rg_refuse_engine(c->server, e, &err), false;
    c->reasoning_first = ends_reasoning(text);
    rg_text_free(text);
    return rg_call_add_ids(c, ids, n, false, e);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static bool make_choices(rg_call *c, rg_refusal *e)
{
    int64_t n = c->n_prompts * c->f.n, each;

    if (n > c->server->o.max_choices)
        return rg_refuse_field(e, "n", "%lld answers were asked for, and %d are the most of one request.", (long long)n,
                               (int)c->server->o.max_choices);
    each = 4 + (c->f.n_logprobs >= 0 ? 4 + 8 * (int64_t)c->f.n_logprobs : 0);
    if (n * each * c->max_tokens > MAX_REQUEST_BYTES)
        return rg_refuse_field(e, "max_tokens", "The answers asked for are too large together: lower n or max_tokens.");
    c->choices = rg_array((size_t)n, sizeof *c->choices);
    c->requests = rg_array((size_t)c->n_prompts, sizeof *c->requests);
    if (!c->choices || !c->requests)
        return rg_refuse_memory(e);
    c->n_choices = (int32_t)n;
    for (int32_t i = 0; i < c->n_choices; i++) {
        rg_choice *ch = &c->choices[i];
        ch->index = i;
        rg_buf_init(&ch->text, MAX_CALL_TEXT);
        rg_buf_init(&ch->logprobs, MAX_CALL_TEXT);
        rg_buf_init(&ch->tops, MAX_CALL_TEXT);
        rg_answer_init(&ch->answer, c->tools, c->reasoning_first, MAX_CALL_TEXT);
    }
    return true;
}

/* X-Request-Timeout, within what the server allows. */
static bool read_timeout(rg_call *c, rg_refusal *e)
{
    const char *given = rg_exchange_header(c->x, "X-Request-Timeout");
    char *end = NULL;
    double most = c->server->o.request_timeout_s, v = given ? strtod(given, &end) : 0;

    if (given && (end == given || *end || !(v > 0) || v > 1e9))
        return rg_refuse_field(e, "X-Request-Timeout", "X-Request-Timeout must be a number of seconds above 0.");
    c->deadline_s = given && (most <= 0 || v < most) ? v : most;
    return true;
}

static int32_t limit_tokens(const rg_call *c)
{
    int64_t n = c->f.max_completion_tokens != RG_NOT_GIVEN ? c->f.max_completion_tokens
                : c->f.max_tokens != RG_NOT_GIVEN          ? c->f.max_tokens
                                                           : INT32_MAX;
    int64_t room = 1;

    for (int32_t i = 0; i < c->n_prompts; i++) {
        int64_t left = c->server->info.max_seq_len - (int64_t)c->prompts[i].n;
        room = left > room ? left : room;
    }
    return (int32_t)(n < room ? n : room);
}

/* What the answers must be, compiled; *g NULL: anything.  ridge's own words about it name what is wrong. */
static bool compile(const rg_call *c, rg_grammar **g, rg_refusal *e)
{
    const rg_constraint *k = &c->f.constraint;
    rg_error err = { 0 };

    *g = k->name ? rg_grammar_new(c->server->engine, k->kind, k->text, k->n, &err) : NULL;
    if (*g || !k->name)
        return true;
    return err.code == RG_E_MEMORY ? rg_refuse_memory(e) : rg_refuse_field(e, k->name, "'%s': %s.", k->name, err.text);
}

static bool submit(rg_call *c, rg_grammar *grammar, rg_refusal *e)
{
    rg_sampling sampling = rg_fields_sampling(&c->f, &c->server->info.sampling);
    char tenant[24];
    rg_error err = { 0 };

    snprintf(tenant, sizeof tenant, "key %d", rg_exchange_notes(c->x)->tenant);
    for (int32_t i = 0; i < c->n_prompts; i++) {
        rg_params p = { .prompt = c->prompts[i].ids, .n_prompt = (int32_t)c->prompts[i].n, .max_tokens = c->max_tokens,
                        .n_samples = (int32_t)c->f.n, .sampling = sampling, .stop = c->f.stop, .n_stop = c->f.n_stop,
                        .stop_ids = c->f.stop_ids, .n_stop_ids = c->f.n_stop_ids, .grammar = grammar,
                        .tenant = rg_exchange_notes(c->x)->tenant >= 0 ? tenant : NULL, .cache_salt = c->f.cache_salt,
                        .priority = (int32_t)c->f.priority, .deadline_s = c->deadline_s };
        c->requests[i] = rg_submit(c->server->engine, &p, &err);
        if (!c->requests[i])
            return rg_refuse_engine(c->server, e, &err), false;
        sampling.seed += c->f.seed == RG_NOT_GIVEN; /* the same prompt twice is answered twice */
    }
    return true;
}

bool rg_call_start(rg_call *c, rg_refusal *e)
{
    rg_grammar *grammar;
    bool ok;

    c->max_tokens = limit_tokens(c);
    if (!read_timeout(c, e) || !make_choices(c, e) || !compile(c, &grammar, e))
        return false;
    ok = submit(c, grammar, e);
    rg_grammar_close(grammar); /* the requests refer to it */
    if (!ok)
        return false;
    rg_observe(c->server->metrics, RG_H_N, (double)c->f.n, 1);
    rg_observe(c->server->metrics, RG_H_MAX_TOKENS, (double)c->max_tokens, 1);
    if (c->f.stream) {
        if (c->shape->start)
            c->shape->start(c, &c->out);
        rg_exchange_set(c->x, "Cache-Control", "no-cache");
        rg_exchange_set(c->x, "X-Accel-Buffering", "no");
        rg_exchange_stream(c->x, "text/event-stream; charset=utf-8");
        rg_exchange_write(c->x, c->out.data ? c->out.data : "", c->out.n);
        rg_buf_reset(&c->out);
    }
    rg_pump_take(c->server, c);
    return true;
}
