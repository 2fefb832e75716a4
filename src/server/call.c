/* call.c -- see call.h: making a call and submitting it.  turn.c follows its answers. */
#include "server/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/api/hints.h"
#include "server/http/head.h"
#include "server/api/scorer.h"
#include "server/talk/force.h"

enum {
    MAX_PROMPTS = 2048,
    MAX_REQUEST_BYTES = 512 << 20, /* of ids and log-probabilities to come: a request is its own mailbox */
    MAX_CALL_TEXT = 1 << 30,
    NAMED_IDS = 128, /* of a prompt, that its name follows from */
    AT_ONCE = 64,    /* prompts of one call that the engine has: the others follow as these end */
};

/* An encoder generates nothing, nor does a model without a head. */
static bool check_purpose(const rg_served *s, const rg_shape *shape, rg_refusal *e)
{
    if (s->info.generates || shape->embeds)
        return true;
    return rg_refuse(e, 501, "unsupported_endpoint", NULL,
                     "This model %s: it makes embeddings (/v1/embeddings)%s, and generates no answers.",
                     s->info.is_encoder ? "is an encoder" : "has no head (lm_head)",
                     s->info.n_labels == 1 ? " and scores pairs of texts (/v1/rerank, /v1/score)" : "");
}

rg_call *rg_call_new(rg_served *s, rg_exchange *x, const rg_shape *shape, rg_refusal *e)
{
    rg_call *c = rg_zalloc(sizeof *c);

    if (!c)
        return rg_refuse_memory(e), NULL;
    c->served = s;
    c->shape = shape;
    c->family = rg_exchange_family(x);
    c->x = x;
    rg_exchange_keep(x);
    rg_buf_init(&c->out, MAX_CALL_TEXT);
    c->since_ns = rg_exchange_notes(x)->since_ns;
    c->created_s = rg_wall_s();
    snprintf(c->id, sizeof c->id, "%s%016llx%016llx", shape->id_prefix, (unsigned long long)rg_seed(),
             (unsigned long long)rg_seed());
    c->body = rg_read_object(x, e);
    if (!c->body || !rg_settings_lift(c->family, c->body, e) || (shape->adapt && !shape->adapt(c, e)) ||
        !rg_fields_read(&c->f, c->body, shape->api, e) || !rg_check_model(s, c->f.model, e) ||
        !check_purpose(s, shape, e)) {
        rg_call_free(c);
        return NULL;
    }
    c->adapter = rg_find_adapter(s, c->f.model);
    rg_count(s->metrics, RG_C_UNKNOWN, (double)c->f.n_unknown);
    return c;
}

void rg_choice_fini(rg_choice *ch)
{
    rg_buf_fini(&ch->text);
    rg_answer_fini(&ch->answer);
    rg_buf_fini(&ch->ids);
    rg_buf_fini(&ch->logprobs);
    rg_buf_fini(&ch->tops);
    rg_buf_fini(&ch->input);
}

void rg_call_drop_prompt(rg_call *c)
{
    rg_prompt *p = &c->prompts[--c->n_prompts];

    if (p->ours)
        rg_free(p->ids);
    else
        rg_ids_free(p->ids);
    rg_free(p->text);
}

void rg_call_free(rg_call *c)
{
    if (!c)
        return;
    for (int32_t i = 0; i < c->n_submitted; i++)
        rg_request_close(c->requests[i]);
    rg_scorer_release(c);
    rg_grammar_close(c->grammar);
    for (int32_t i = 0; c->choices && i < c->n_choices; i++)
        rg_choice_fini(&c->choices[i]);
    while (c->n_prompts)
        rg_call_drop_prompt(c);
    rg_free(c->requests);
    rg_free(c->choices);
    rg_free(c->prompts);
    rg_fields_fini(&c->f);
    rg_hints_fini(&c->hints);
    rg_constraint_fini(&c->calls);
    json_decref(c->tools);
    json_decref(c->kinds);
    json_decref(c->previous);
    json_decref(c->conversation);
    rg_free(c->items);
    json_decref(c->must);
    json_decref(c->body);
    rg_buf_fini(&c->out);
    rg_exchange_release(c->x);
    rg_free(c);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* Tokens that an answer may have, by the request. */
static int64_t tokens_asked(const rg_call *c)
{
    return c->f.max_completion_tokens != RG_NOT_GIVEN ? c->f.max_completion_tokens
           : c->f.max_tokens != RG_NOT_GIVEN          ? c->f.max_tokens
           : c->served->server->o.max_tokens          ? c->served->server->o.max_tokens
                                                      : INT32_MAX;
}

static bool check_prompt(const rg_call *c, const int32_t *ids, size_t n, rg_refusal *e)
{
    const rg_info *info = &c->served->info;
    const char *field = c->shape->input;
    bool answered = !c->shape->embeds && tokens_asked(c) > 0;

    if (!n)
        return rg_refuse_field(e, field, "The prompt is empty: it needs one token at least.");
    if (!answered && n > (size_t)info->max_seq_len)
        return rg_refuse(e, 400, "context_length_exceeded", field,
                         "The prompt is too large: it has %zu tokens, and the context holds %d.", n,
                         (int)info->max_seq_len);
    if (info->is_encoder && n > (size_t)info->max_whole_rows)
        return rg_refuse(e, 400, "context_length_exceeded", field,
                         "The prompt has %zu tokens, and one step of this server computes at most %d (--batch-rows).",
                         n, (int)info->max_whole_rows);
    if (answered && n >= (size_t)info->max_seq_len) {
        rg_refuse(e, 400, "context_length_exceeded", field,
                  "The prompt has %zu tokens and exceeds the available context size of %d, which must hold one more.",
                  n, (int)info->max_seq_len);
        e->n_prompt = (int64_t)n;
        e->n_ctx = info->max_seq_len;
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= info->vocab_size)
            return rg_refuse_field(e, field, "Token %zu of the prompt is not in the vocabulary of %d.", i,
                                   (int)info->vocab_size);
    return true;
}

/* ---- texts to be embedded or scored ---- */

/* Tokens of the longest text that this model takes here. */
static int32_t most_tokens(const rg_info *info)
{
    return info->is_encoder && info->max_whole_rows < info->max_embed_ids ? info->max_whole_rows : info->max_embed_ids;
}

/* True if the client says that nothing is to be cut off. */
static bool wants_whole(const rg_call *c)
{
    return json_is_false(json_object_get(c->body, "truncate")) && c->f.truncate_tokens == RG_NOT_GIVEN;
}

bool rg_call_text_options(const rg_call *c, rg_text_options *o, rg_refusal *e)
{
    const char *side = c->f.truncation_side ? c->f.truncation_side : c->f.truncation_direction;
    const int32_t most = most_tokens(&c->served->info);
    const int64_t asked = c->f.truncate_tokens;

    *o = (rg_text_options){ .flags = c->shape->scores   ? RG_ENCODE_PLAIN
                                     : c->f.add_special ? RG_ENCODE_DEFAULT
                                                        : RG_ENCODE_NO_SPECIAL,
                            .prompt = c->f.prompt_name,
                            .keep_end = side && (side[0] == 'l' || side[0] == 'L') };
    if (asked == 0)
        return rg_refuse_field(e, "truncate_prompt_tokens",
                               "'truncate_prompt_tokens' must be at least 1, or -1 for as "
                               "many tokens as the model takes.");
    if (asked != RG_NOT_GIVEN)
        o->max_ids = asked > 0 && asked < most ? (int32_t)asked : most;
    else if (c->f.truncate)
        o->max_ids = most;
    else if (wants_whole(c))
        o->max_ids = -1;
    return true;
}

/* As the checkpoint says, or the client. */
static bool add_text_to_embed(rg_call *c, const char *text, size_t n, rg_refusal *e)
{
    const int32_t most = c->served->info.max_embed_ids;
    rg_text_options o;
    rg_text_ids out;
    rg_error err = { 0 };

    if (!rg_call_text_options(c, &o, e))
        return false;
    if (!rg_encode_to_embed(c->served->engine, text, n, &o, &out, &err)) {
        if (err.code == RG_E_INPUT && c->f.prompt_name)
            return rg_refuse_field(e, "prompt_name", "'prompt_name' is not the name of a prompt of this model.");
        return rg_refuse_engine(c->served, e, &err), false;
    }
    if (wants_whole(c) && out.n > (size_t)most) {
        rg_ids_free(out.ids);
        return rg_refuse(e, 400, "context_length_exceeded", c->shape->input,
                         "The prompt has %zu tokens, and this model takes %d.", out.n, (int)most);
    }
    if (!rg_call_add_ids(c, out.ids, out.n, false, e))
        return false;
    c->prompts[c->n_prompts - 1].pool_from = out.pool_from;
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
        rg_prompt *p = c->n_prompts < MAX_PROMPTS ? rg_resize_array(c->prompts, (size_t)room, sizeof *p) : NULL;
        ok = p || (c->n_prompts < MAX_PROMPTS
                       ? rg_refuse_memory(e)
                       : rg_refuse_field(e, c->shape->input, "There are more than %d prompts.", MAX_PROMPTS));
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

    if (c->shape->embeds && !c->shape->scores)
        return add_text_to_embed(c, text, n, e);
    if (!rg_encode(c->served->engine, text, n, c->f.add_special ? RG_ENCODE_DEFAULT : RG_ENCODE_NO_SPECIAL, &ids,
                   &n_ids, &err))
        return rg_refuse_engine(c->served, e, &err), false;
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

bool rg_call_cut_ids(const rg_call *c, int32_t *ids, size_t *n, rg_refusal *e)
{
    rg_text_options o;

    if (!c->shape->embeds)
        return true;
    if (!rg_call_text_options(c, &o, e))
        return false;
    if (o.max_ids > 0)
        *n = rg_cut_ids(c->served->engine, ids, *n, &o);
    return true;
}

static bool add_list(rg_call *c, const json_t *list, rg_refusal *e)
{
    int32_t *ids;
    size_t n;

    if (!rg_ids_read(list, c->shape->input, &ids, &n, e) || !rg_call_cut_ids(c, ids, &n, e)) {
        rg_free(ids);
        return false;
    }
    if (!rg_call_add_ids(c, ids, n, true, e))
        return false;
    if (c->f.echo) {
        rg_prompt *p = &c->prompts[c->n_prompts - 1];
        char *text = rg_decode(c->served->engine, p->ids, p->n, false, &p->n_text, NULL);
        p->text = text ? rg_strndup(text, p->n_text) : NULL;
        rg_text_free(text);
        return p->text || rg_refuse_memory(e);
    }
    return true;
}

bool rg_call_read_prompts(rg_call *c, rg_refusal *e)
{
    const char *field = c->shape->input;
    const json_t *v = json_object_get(c->body, field), *first = json_array_get(v, 0);
    bool ok = true;

    if (json_is_string(v))
        return rg_call_add_text(c, json_string_value(v), json_string_length(v), e);
    if (json_is_number(first))
        return add_list(c, v, e);
    if (!json_is_string(first) && !json_is_array(first))
        return rg_refuse_field(e, field, "'%s' must be a string, strings, token ids or lists of token ids.", field);
    for (size_t i = 0; ok && i < json_array_size(v); i++) {
        const json_t *p = json_array_get(v, i);
        if (json_typeof(p) != json_typeof(first))
            return rg_refuse_field(e, field, "'%s' must not mix texts and token ids.", field);
        ok =
            json_is_string(p) ? rg_call_add_text(c, json_string_value(p), json_string_length(p), e) : add_list(c, p, e);
    }
    return ok;
}

/* A grammar of calls of these tools; name: of the field that asks for it, NULL: tool_choice; may: or text. */
static bool force(const rg_call *c, const rg_conversation *talk, const json_t *tools, const char *name, bool may,
                  rg_constraint *to, rg_refusal *e)
{
    const rg_talk_use *use = &c->served->use;
    rg_call_rules rules = { .talk = use->talk,
                            .form = use->form,
                            .tools = tools,
                            .kinds = talk->kinds,
                            .many = !talk->one_call,
                            .thinks = use->thinks && c->think >= 0,
                            .may = may,
                            .close_ends = use->close_ends,
                            .start = c->start_at,
                            .think = c->think,
                            .name = name };

    return rg_force_calls(&rules, to, e);
}

/* A custom tool has a grammar of its input. */
static bool has_grammars(const json_t *kinds)
{
    const char *name;
    json_t *kind;

    json_object_foreach((json_t *)(uintptr_t)kinds, name, kind) if (json_object_get(kind, "format")) return true;
    return false;
}

static const char *owner_of(const rg_served *s, rg_exchange *x)
{
    return rg_keys_owner(s->server->keys, rg_exchange_notes(x)->tenant);
}

/* Ids that a prompt may have, so that there is room for an answer: as long as was asked for, up to a quarter of the
 * context. */
static size_t room_for_prompt(const rg_call *c)
{
    int64_t all = c->served->info.max_seq_len, asked = tokens_asked(c);

    return (size_t)(all - (asked < all / 4 ? asked : all / 4 > 0 ? all / 4 : 1));
}

bool rg_call_read_chat(rg_call *c, rg_conversation_reader *read, rg_refusal *e)
{
    rg_conversation talk = { .served = c->served, .owner = owner_of(c->served, c->x), .id = c->id };
    rg_rendered r = { 0 };
    bool ok = read(c->body, &talk, e);

    if (ok && talk.may_cut)
        ok = rg_render_cut(c->served, &talk, room_for_prompt(c), &r, e);
    else if (ok)
        ok = rg_render(c->served, &talk, c->f.generation_prompt, &r, e);

    c->tools = json_incref(talk.tools);
    c->kinds = json_incref(talk.kinds);
    c->previous = json_incref(talk.previous);
    c->conversation = json_incref(talk.conversation);
    c->items = talk.items && (c->f.store || talk.conversation) ? rg_body_dump(talk.items) : NULL;
    c->start_at = r.start;
    c->think = r.think;
    rg_warn_of(c->x, &talk, &r);
    c->n_earlier = rg_conversation_n_calls(talk.all);
    c->f.parallel_tools = !talk.one_call;
    rg_text_free(r.text);
    ok = ok && rg_call_add_ids(c, r.ids, r.n, false, e);
    if (ok && talk.must) {
        c->must = json_incref(talk.must);
        ok = force(c, &talk, talk.must, NULL, false, &c->f.constraint, e);
        c->bound_by_calls = true;
    } else if (ok && talk.tools && c->f.constraint.name) {
        ok = force(c, &talk, talk.tools, "tools", false, &c->calls, e);
    } else if (ok && has_grammars(talk.kinds)) {
        ok = force(c, &talk, talk.tools, "tools", true, &c->f.constraint, e);
        c->bound_by_calls = c->bound_by_inputs = true;
    }
    rg_conversation_fini(&talk);
    return ok;
}

void rg_reply_rendered(rg_served *s, rg_exchange *x, rg_conversation_reader *read,
                       void (*write)(rg_buf *out, const rg_rendered *r))
{
    rg_refusal e = { 0 };
    rg_conversation talk = { .served = s, .owner = owner_of(s, x) };
    rg_rendered r = { 0 };
    json_t *body = rg_read_object(x, &e);
    const bool generate = !json_is_false(json_object_get(body, "add_generation_prompt"));
    rg_buf out;

    bool ok = body && read(body, &talk, &e) && rg_render(s, &talk, generate, &r, &e);
    if (ok) {
        rg_warn_of(x, &talk, &r);
        rg_buf_init(&out, MAX_CALL_TEXT);
        rg_out_open(&out, NULL, '{');
        write(&out, &r);
        rg_out_close(&out, '}');
        rg_reply_json(s, x, &out);
    } else {
        rg_reply_refusal(s, x, &e);
    }
    rg_rendered_fini(&r);
    rg_conversation_fini(&talk);
    json_decref(body);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* The bytes that log-probabilities of the prompts take in the answer. */
static int64_t score_bytes(const rg_call *c)
{
    int64_t n = 0;

    for (int32_t i = 0; i < c->n_prompts; i++)
        n += (int64_t)c->prompts[i].n;
    return c->f.n_prompt_tops < 0 ? 0 : n * (8 + 8 * (int64_t)c->f.n_prompt_tops);
}

static bool make_choices(rg_call *c, rg_refusal *e)
{
    int64_t n = c->n_prompts * c->f.n, each;

    if (n > c->served->server->o.max_choices && c->shape->embeds)
        return rg_refuse_field(e, c->shape->input, "There are %lld inputs, and %d are the most of one request.",
                               (long long)n, (int)c->served->server->o.max_choices);
    if (n > c->served->server->o.max_choices)
        return rg_refuse_field(e, "n", "%lld answers were asked for, and %d are the most of one request.", (long long)n,
                               (int)c->served->server->o.max_choices);
    if (c->f.best_of > c->f.n)
        n = c->n_prompts * c->f.best_of;
    each = 4 + (c->f.n_logprobs >= 0 ? 4 + 8 * (int64_t)c->f.n_logprobs : 0);
    if (score_bytes(c) > MAX_REQUEST_BYTES)
        return rg_refuse_field(e, c->shape->input, "The log-probabilities of these prompts are too many together.");
    if (n * each * c->max_tokens > MAX_REQUEST_BYTES - score_bytes(c))
        return rg_refuse_field(e, "max_tokens", "The answers asked for are too large together: lower n or max_tokens.");
    n = c->n_prompts * c->f.n;
    c->choices = rg_array((size_t)n, sizeof *c->choices);
    c->requests = rg_array((size_t)c->n_prompts, sizeof *c->requests);
    if (!c->choices || !c->requests)
        return rg_refuse_memory(e);
    c->n_choices = (int32_t)n;
    for (int32_t i = 0; i < c->n_choices; i++) {
        rg_choice *ch = &c->choices[i];
        ch->index = i;
        rg_buf_init(&ch->text, MAX_CALL_TEXT);
        rg_buf_init(&ch->ids, MAX_CALL_TEXT);
        rg_buf_init(&ch->logprobs, MAX_CALL_TEXT);
        rg_buf_init(&ch->tops, MAX_CALL_TEXT);
        rg_buf_init(&ch->input, MAX_CALL_TEXT);
        rg_answer_init(&ch->answer, c->served->use.talk, c->must ? c->must : c->tools, c->start_at, MAX_CALL_TEXT);
        ch->answer.marked = c->calls.name && !rg_talk_is_bare(&c->served->use);
        ch->answer.calls_only = c->must || ch->answer.marked;
        ch->answer.id_chars = c->served->info.call_id_chars;
        ch->answer.n_earlier = c->n_earlier;
    }
    return true;
}

/* X-Request-Timeout, within what the server allows. */
static bool read_timeout(rg_call *c, rg_refusal *e)
{
    const char *given = rg_exchange_header(c->x, "X-Request-Timeout");
    char *end = NULL;
    double most = c->served->server->o.request_timeout_s, v = given ? strtod(given, &end) : 0;

    if (given && (end == given || *end || !(v > 0) || v > 1e9))
        return rg_refuse_field(e, "X-Request-Timeout", "X-Request-Timeout must be a number of seconds above 0.");
    c->deadline_s = rg_exchange_notes(c->x)->background ? 0 : given && (most <= 0 || v < most) ? v : most;
    return true;
}

static int32_t limit_tokens(const rg_call *c)
{
    int64_t n = tokens_asked(c), room = 1;

    for (int32_t i = 0; i < c->n_prompts && !c->shape->embeds; i++) {
        int64_t left = c->served->info.max_seq_len - (int64_t)c->prompts[i].n;
        room = left > room ? left : room;
    }
    return (int32_t)(n < room ? n : room);
}

/* Ids that fields name are ids of the model. */
static bool check_ids(const rg_call *c, rg_refusal *e)
{
    const rg_fields *f = &c->f;
    int32_t n = c->served->info.vocab_size;

    for (int32_t i = 0; i < f->n_stop_ids; i++)
        if (f->stop_ids[i] >= n)
            return rg_refuse_field(e, "stop_token_ids", "'stop_token_ids' must hold ids below %d.", (int)n);
    for (int32_t i = 0; i < f->n_bias; i++)
        if (f->bias[i].id >= n)
            return rg_refuse_field(e, "logit_bias", "'logit_bias' must have ids below %d as its keys.", (int)n);
    return true;
}

/* The engine's own words name what is wrong. */
static bool refuse_grammar(rg_call *c, const rg_grammar_source *calls, const rg_error *err, rg_refusal *e)
{
    const char *name = c->f.constraint.name;
    rg_error why = { 0 };

    if (c->calls.name) { /* is it the tools' schemas? */
        rg_grammar *alone = rg_grammar_new(c->served->engine, calls, &why);
        rg_grammar_close(alone);
        if (!alone && why.code != RG_E_MEMORY)
            return rg_refuse_field(e, "tools", "'tools': %s.", why.text);
    }
    return err->code == RG_E_MEMORY ? rg_refuse_memory(e) : rg_refuse_field(e, name, "'%s': %s.", name, err->text);
}

/* What the answers must be, compiled: calls of tools or what the request says, where both may come, after the model's
 * reasoning. */
static bool compile(rg_call *c, rg_refusal *e)
{
    const rg_constraint *k = &c->f.constraint;
    const rg_talk_use *use = &c->served->use;
    bool chat = c->shape->is_chat;
    rg_constraint led = { 0 };
    rg_grammar_source calls = { .kind = c->calls.kind, .text = c->calls.text, .n = c->calls.n, .show_marks = chat };
    rg_error err = { 0 };

    if (!k->name)
        return true;
    if (chat && !c->bound_by_calls && !rg_force_lead(use->talk, c->start_at, c->think, use->thinks, k, &led, e))
        return false;
    rg_grammar_source source = { .kind = led.text ? led.kind : k->kind,
                                 .text = led.text ? led.text : k->text,
                                 .n = led.text ? led.n : k->n,
                                 .open_objects = k->open_objects,
                                 .other = c->calls.name ? &calls : NULL,
                                 .show_marks = chat };
    c->grammar = rg_grammar_new(c->served->engine, &source, &err);
    rg_constraint_fini(&led);
    if (!c->grammar && c->bound_by_inputs && (err.code == RG_E_UNSUPPORTED || err.code == RG_E_LIMIT)) {
        rg_exchange_set(c->x, "X-Ridge-Warning", "a custom tool's grammar is told to the model and not enforced");
        return true;
    }
    return c->grammar || refuse_grammar(c, &calls, &err, e);
}

/* What is left of the call's time; 0: it has no end. */
static double time_left(const rg_call *c)
{
    double left = c->deadline_s - rg_seconds(c->since_ns, rg_now_ns());

    return c->deadline_s <= 0 ? 0 : left > 1e-9 ? left : 1e-9;
}

static rg_request *submit(rg_call *c, int32_t i, rg_error *err)
{
    const rg_exchange_note *note = rg_exchange_notes(c->x);
    char tenant[RG_TENANT];
    rg_params p = { .prompt = c->prompts[i].ids,
                    .n_prompt = (int32_t)c->prompts[i].n,
                    .max_tokens = tokens_asked(c) < INT32_MAX ? c->max_tokens : INT32_MAX, /* as many as can be */
                    .n_samples = (int32_t)c->f.n,
                    .beam = rg_fields_beams(&c->f),
                    .search = c->f.search,
                    .scorer = rg_scorer_of(c, i),
                    .best_of = c->f.use_beams || c->f.best_of < c->f.n ? 0 : (int32_t)c->f.best_of,
                    .sampling = c->sampling,
                    .diffusion = rg_fields_diffusion(&c->f),
                    .stop = c->f.stop,
                    .n_stop = c->f.n_stop,
                    .stop_ids = c->f.stop_ids,
                    .n_stop_ids = c->f.n_stop_ids,
                    .grammar = c->grammar,
                    .show_marks = c->shape->is_chat,
                    .thinking = c->hints.thinking,
                    .predicted = c->hints.predicted,
                    .n_predicted = (int32_t)c->hints.n_predicted,
                    .adapter = c->adapter,
                    .tenant = rg_name_tenant(note->tenant, tenant),
                    .tenant_weight = rg_keys_weight(c->served->server->keys, note->tenant),
                    .cache_salt = c->f.cache_salt,
                    .uncached = !c->f.cache_prompt || c->f.skip_prefix,
                    .prompt_logprobs = c->f.n_prompt_tops >= 0,
                    .n_prompt_tops = c->f.n_prompt_tops > 0 ? c->f.n_prompt_tops : 0,
                    .priority = (int32_t)c->f.priority,
                    .background = note->background && !note->in_turn,
                    .deadline_s = time_left(c),
                    .embed = c->shape->embeds && !c->shape->scores ? RG_POOLING_MODEL : RG_POOLING_NONE,
                    .score = c->shape->scores,
                    .second = c->prompts[i].second,
                    .pool_from = c->prompts[i].pool_from };

    if (c->f.seed == RG_NOT_GIVEN)
        p.sampling.seed += (uint64_t)i; /* the same prompt twice is answered twice */
    return rg_submit(c->served->engine, &p, err);
}

bool rg_call_submit(rg_call *c, rg_refusal *e)
{
    rg_error err = { 0 };

    while (c->n_submitted < c->n_prompts && c->n_submitted - c->n_ended / c->f.n < AT_ONCE) {
        rg_request *r = submit(c, c->n_submitted, &err);

        if (!r && err.code == RG_E_BUSY && c->n_submitted)
            return true; /* its turn comes */
        if (!r)
            return rg_refuse_engine(c->served, e, &err), false;
        c->requests[c->n_submitted++] = r;
    }
    return true;
}

/* True, and refused, if values of the request found no memory while it was read. */
static bool lost_values(rg_refusal *e)
{
    return rg_json_lost() && !rg_refuse_memory(e);
}

/* X-Ridge-Prefix: a name for what the prompt begins with, so that a balancer that hashes it asks the replica that has
 * its state.  What the client sends stays, so that a conversation keeps the name of its first prompt; otherwise it
 * follows from the first ids (those that all conversations of a program share, if they are so many). */
static void name_prefix(rg_call *c)
{
    const char *given = rg_exchange_header(c->x, "X-Ridge-Prefix");
    size_t n = given ? strlen(given) : 0;
    uint64_t h = rg_hash(c->adapter ? c->adapter : "", c->adapter ? strlen(c->adapter) : 0, 0);
    char name[65];

    if (c->shape->embeds || !c->n_prompts)
        return;
    if (n && n < sizeof name && rg_is_token(given, n)) {
        snprintf(name, sizeof name, "%s", given);
    } else {
        const rg_prompt *p = &c->prompts[0];
        h = rg_hash(c->f.cache_salt, c->f.cache_salt ? strlen(c->f.cache_salt) : 0, h);
        h = rg_hash(p->ids, (p->n < NAMED_IDS ? p->n : NAMED_IDS) * sizeof *p->ids, h);
        snprintf(name, sizeof name, "%016llx", (unsigned long long)h);
    }
    rg_exchange_set(c->x, "X-Ridge-Prefix", name);
}

bool rg_call_start(rg_call *c, rg_refusal *e)
{
    const rg_exchange_note *note = rg_exchange_notes(c->x);

    c->max_tokens = limit_tokens(c);
    c->keeps_ids = c->shape->keeps_ids || c->f.return_token_ids;
    c->sampling = rg_fields_sampling(&c->f, &c->served->info.sampling);
    if (note->background && c->f.seed == RG_NOT_GIVEN)
        c->sampling.seed = note->seed;
    else if (c->served->fixed_seed && c->f.seed == RG_NOT_GIVEN)
        c->sampling.seed = c->served->sampling.seed;
    if (!read_timeout(c, e) || !rg_thinking_read(c, e) || !rg_prediction_read(c, e) || !rg_scorer_find(c, e) ||
        !check_ids(c, e) || !make_choices(c, e) || !compile(c, e) || lost_values(e) || !rg_call_submit(c, e))
        return false;
    name_prefix(c);
    rg_observe(c->served->metrics, RG_H_N, (double)c->f.n, 1);
    rg_observe(c->served->metrics, RG_H_MAX_TOKENS, (double)c->max_tokens, 1);
    if (c->f.stream) {
        if (c->shape->start)
            c->shape->start(c, &c->out);
        rg_exchange_set(c->x, "Cache-Control", "no-cache");
        rg_exchange_set(c->x, "X-Accel-Buffering", "no");
        rg_exchange_stream(c->x, c->family->stream_type);
        rg_exchange_write(c->x, c->out.data ? c->out.data : "", c->out.n);
        rg_buf_reset(&c->out);
        c->written_ns = rg_now_ns();
    }
    rg_pump_take(c->served, c);
    return true;
}

void rg_call_answer(rg_served *s, rg_exchange *x, const rg_shape *shape)
{
    rg_refusal e = { 0 };
    rg_call *c = rg_call_new(s, x, shape, &e);

    if (c && shape->read(c, &e) && rg_call_start(c, &e))
        return;
    rg_call_free(c);
    if (e.status)
        rg_reply_refusal(s, x, &e);
}
