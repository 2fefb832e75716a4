/* reply.c -- answers to clients: errors in the shape of their API, documents, and the log and metrics of both. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/core.h"
#include "server/json.h"
#include "server/models.h"
#include "server/talk/past.h"

static const struct status_words {
    int status;
    const char *openai, *anthropic;
} status_words[] = {
    { 400, "invalid_request_error", "invalid_request_error" },
    { 401, "authentication_error", "authentication_error" },
    { 403, "permission_error", "permission_error" },
    { 404, "not_found_error", "not_found_error" },
    { 405, "invalid_request_error", "invalid_request_error" },
    { 408, "timeout_error", "timeout_error" },
    { 409, "invalid_request_error", "invalid_request_error" },
    { 413, "invalid_request_error", "request_too_large" },
    { 414, "invalid_request_error", "request_too_large" },
    { 415, "invalid_request_error", "invalid_request_error" },
    { 417, "invalid_request_error", "invalid_request_error" },
    { 421, "invalid_request_error", "invalid_request_error" },
    { 429, "rate_limit_error", "rate_limit_error" },
    { 431, "invalid_request_error", "request_too_large" },
    { 501, "invalid_request_error", "invalid_request_error" },
    { 503, "service_unavailable_error", "overloaded_error" },
    { 504, "timeout_error", "timeout_error" },
    { 505, "invalid_request_error", "invalid_request_error" },
};

int rg_error_status(int i)
{
    static const int others[] = { 500, 502, 507 }; /* whose type is the usual one */
    const int n = (int)RG_LEN(status_words);

    return i < n ? status_words[i].status : i - n < (int)RG_LEN(others) ? others[i - n] : 0;
}

void rg_refusal_write(rg_buf *b, const rg_exchange *x, const rg_refusal *e)
{
    const rg_family *f = rg_exchange_family(x);
    const char *type = f->anthropic_types ? "api_error" : "server_error";

    for (size_t i = 0; i < RG_LEN(status_words); i++)
        if (status_words[i].status == e->status)
            type = f->anthropic_types ? status_words[i].anthropic : status_words[i].openai;
    rg_out_open(b, NULL, '{');
    f->error(b, x, e, type);
    rg_out_close(b, '}');
}

void rg_note_answer(rg_served *s, rg_exchange *x, int status)
{
    const rg_exchange_note *n = rg_exchange_notes(x);
    double took = rg_seconds(n->since_ns, rg_now_ns());
    const char *path = n->route >= 0 ? rg_routes[n->route].path : "other";
    const char *method = n->route >= 0 ? rg_routes[n->route].method : "any";

    rg_count_http(rg_server_nth(s->server, 0)->metrics, n->route, path, method, status, took);
    const rg_log_field fields[] = { { .name = "request_id", .text = rg_exchange_id(x) },
                                    { .name = "method", .text = method },
                                    { .name = "path", .text = path },
                                    { .name = "status", .number = status },
                                    { .name = "ms", .number = 1e3 * took } };
    rg_log_with(RG_LOG_INFO, fields, RG_LEN(fields), "serve: %s %s %d %.1f ms", rg_exchange_id(x), path, status,
                1e3 * took);
}

void rg_reply_refusal(rg_served *s, rg_exchange *x, const rg_refusal *e)
{
    rg_refusal lost;
    rg_buf body;
    char seconds[16];

    if (e->status < 500 && rg_json_lost()) { /* whatever was found wrong may be what was left out */
        rg_refuse_memory(&lost);
        e = &lost;
    }
    rg_buf_init(&body, 1 << 16);
    rg_refusal_write(&body, x, e);
    if (e->retry_after_s > 0) {
        snprintf(seconds, sizeof seconds, "%d", e->retry_after_s);
        rg_exchange_set(x, "Retry-After", seconds);
    }
    if (e->status == 401)
        rg_exchange_set(x, "WWW-Authenticate", "Bearer");
    if (e->status == 429)
        rg_count(s->metrics, RG_C_REJECTED, 1);
    rg_note_answer(s, x, e->status);
    rg_exchange_reply(x, e->status, "application/json", &body);
}

void rg_reply_json(rg_served *s, rg_exchange *x, rg_buf *body)
{
    if (body->failed || rg_json_lost()) {
        rg_refusal e;
        rg_buf_fini(body);
        rg_refuse_memory(&e);
        rg_reply_refusal(s, x, &e);
        return;
    }
    rg_note_answer(s, x, 200);
    rg_exchange_reply(x, 200, "application/json", body);
}

void rg_reply_text(rg_served *s, rg_exchange *x, int status, const char *type, const char *text)
{
    rg_buf body;

    rg_buf_init(&body, (size_t)1 << 24);
    rg_buf_str(&body, text);
    rg_note_answer(s, x, status);
    rg_exchange_reply(x, status, type, &body);
}

json_t *rg_read_object(rg_exchange *x, rg_refusal *e)
{
    size_t n;
    const char *text = rg_exchange_body(x, &n);
    rg_error err = { 0 };
    json_t *v = rg_body_parse(text, n, &err);

    rg_exchange_drop_body(x);
    if (!v && err.code == RG_E_MEMORY)
        return rg_refuse_memory(e), NULL;
    if (!v)
        return rg_refuse(e, 400, "invalid_json", NULL, "%s", err.text), NULL;
    if (!json_is_object(v)) {
        json_decref(v);
        return rg_refuse(e, 400, "invalid_json", NULL, "The body must be a JSON object."), NULL;
    }
    return v;
}

/* Control characters become blanks, so that a text is one line of a log, and does nothing to a terminal. */
static void clean(char *s)
{
    for (unsigned char *p = (unsigned char *)s; *p; p++) {
        bool is_pair = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0; /* U+0080 to U+009F */
        if (is_pair)
            *p++ = ' ';
        if (is_pair || *p < ' ' || *p == 0x7f)
            *p = ' ';
    }
}

/* What the engine refuses of a request it says by name: its words help, and hold nothing but the request's values and
 * the limits of model and server. */
void rg_refuse_engine(rg_served *s, rg_refusal *e, const rg_error *err)
{
    rg_error said = *err;

    clean(said.text);
    switch (err->code) {
    case RG_E_BUSY:
        rg_refuse(e, 429, "queue_full", NULL, "Too many requests are waiting: try again later.");
        e->retry_after_s = rg_engine_retry_after(s->engine);
        e->retry_after_s = e->retry_after_s > 0 ? e->retry_after_s : 1;
        break;
    case RG_E_MEMORY:
        rg_refuse_memory(e);
        break;
    case RG_E_LIMIT:
        rg_refuse(e, 400, "context_length_exceeded", "prompt",
                  "The prompt and the answers asked for are more than this server has room for: %.300s.", said.text);
        break;
    case RG_E_UNSUPPORTED:
        rg_refuse(e, 400, "unsupported_value", NULL, "This model cannot do what the request asks for: %.300s.",
                  said.text);
        break;
    case RG_E_USAGE:
        rg_refuse(e, 503, "shutting_down", NULL, "The server is shutting down.");
        e->retry_after_s = 5;
        break;
    case RG_E_INPUT:
        rg_refuse(e, 400, "invalid_value", NULL, "The engine does not take these values: %.300s.", said.text);
        break;
    default:
        rg_refuse(e, 500, "internal_error", NULL, "The server failed; its log says why.");
    }
    rg_log(RG_LOG_INFO, "serve: refused: %s", said.text);
}

/* The name of a model, with Ollama's tag for the latest one or without. */
static bool is_name(const char *name, const char *given)
{
    size_t n = strlen(name);

    return !strncmp(name, given, n) && (!given[n] || !strcmp(given + n, ":latest"));
}

const char *rg_find_adapter(const rg_served *s, const char *name)
{
    const char *found = NULL;

    for (int32_t i = 0; name && !found && i < s->info.n_adapters; i++)
        if (is_name(rg_engine_adapter(s->engine, i), name))
            found = rg_engine_adapter(s->engine, i);
    return found;
}

/* The i-th name behind the first: of the other models, or of the adapters of the only one. */
static const char *nth_name(const rg_served *s, int i)
{
    const rg_served *other = s->server->models ? rg_models_nth(s->server->models, i + 1) : NULL;

    if (s->server->models)
        return other ? other->name : NULL;
    return i < s->info.n_adapters ? rg_engine_adapter(s->engine, i) : NULL;
}

bool rg_refuse_model(const rg_served *s, rg_refusal *e)
{
    char served[sizeof e->text - 80];
    const rg_served *first = s->server->models ? rg_models_nth(s->server->models, 0) : s;
    size_t n = (size_t)snprintf(served, sizeof served, "'%s'", first->name);
    const char *name;

    for (int i = 0; (name = nth_name(s, i)) && n < sizeof served; i++) {
        if (strlen(name) + sizeof ", '' ..." > sizeof served - n) {
            snprintf(served + n, sizeof served - n, " ...");
            break;
        }
        n += (size_t)snprintf(served + n, sizeof served - n, ", '%s'", name);
    }
    return rg_refuse(e, 404, "model_not_found", "model", "The model asked for is not served here. These are: %s.",
                     served);
}

bool rg_is_model(const rg_served *s, const char *name)
{
    bool is = is_name(s->name, name) || !strcmp(name, "default") || rg_find_adapter(s, name);

    for (int32_t i = 0; !is && s == s->server->first && i < s->server->o.n_aliases; i++)
        is = is_name(s->server->o.aliases[i], name);
    return is;
}

bool rg_check_model(const rg_served *s, const char *name, rg_refusal *e)
{
    bool alone = !s->info.n_adapters && !s->server->o.strict_model;

    return alone || !name || !*name || rg_is_model(s, name) || rg_refuse_model(s, e);
}

/* The message that is continued ends within its reasoning. */
static bool leaves_reasoning_open(const rg_served *s, const rg_conversation *talk, int *think)
{
    const json_t *messages = json_object_get(talk->all, "messages");
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    const char *text = json_string_value(json_object_get(last, "content"));

    return talk->continued && text && rg_talk_leaves_thought(s->use.talk, text, think);
}

/* Where the answer begins, and whether reasoning may come first. */
static void find_start(const rg_served *s, const rg_conversation *talk, rg_rendered *r)
{
    if (leaves_reasoning_open(s, talk, &r->think))
        r->start = RG_START_THINKING;
    else
        r->start = rg_talk_start_after(s->use.talk, r->text, &r->think);
    if (r->start != RG_START_THINKING &&
        (talk->continued || (!s->use.talk->heads && json_is_false(json_object_get(talk->all, "enable_thinking")))))
        r->think = -1;
}

/* The template's own words are what helps: which conversation it takes, or why it cannot be used at all. */
static void refuse_conversation(rg_served *s, rg_refusal *e, rg_error *err)
{
    const char *problem = rg_engine_chat_problem(s->engine);

    clean(err->text);
    if (problem && err->code == RG_E_UNSUPPORTED) {
        rg_refuse(e, 400, "unsupported_value", "messages", "Chat is not available with this model: %.500s.", err->text);
        rg_log(RG_LOG_INFO, "serve: refused: %s", err->text);
    } else if (err->code == RG_E_INPUT) {
        rg_refuse_field(e, "messages", "The model's chat template does not take this conversation: %.500s", err->text);
        rg_log(RG_LOG_INFO, "serve: refused: %s", err->text);
    } else {
        rg_refuse_engine(s, e, err);
    }
}

/* Variables of the template that the server sets where a conversation does not.  False: no memory. */
static bool set_variables(const rg_served *s, json_t *all)
{
    const char *text = s->server->o.template_kwargs;
    json_t *v = text ? rg_json_load(text, strlen(text), 0, NULL) : NULL;
    bool ok = !text || (v && json_object_update_missing(all, v) == 0);

    json_decref(v);
    return ok;
}

bool rg_render(rg_served *s, const rg_conversation *talk, bool generation_prompt, rg_rendered *r, rg_refusal *e)
{
    rg_chat_options o = { .no_generation_prompt = !generation_prompt, .continue_final = talk->continued };
    rg_error err = { 0 };

    *r = (rg_rendered){ 0 };
    if (!set_variables(s, talk->all) || !rg_talk_fit_past(&s->use, talk->all, &r->tools_told))
        return rg_refuse_memory(e);
    bool ok = rg_chat_encode(s->engine, rg_json_of(talk->all), &o, &r->ids, &r->n, &r->text, &err);
    if (!ok && err.code == RG_E_INPUT && rg_conversation_fold(talk->all)) { /* many take a system's words first alone */
        err = (rg_error){ 0 };
        ok = rg_chat_encode(s->engine, rg_json_of(talk->all), &o, &r->ids, &r->n, &r->text, &err);
    }
    if (!ok)
        refuse_conversation(s, e, &err);
    if (ok)
        find_start(s, talk, r);
    return ok;
}

void rg_warn_of(rg_exchange *x, const rg_conversation *talk, const rg_rendered *r)
{
    if (talk->warning[0])
        rg_exchange_set(x, "X-Ridge-Warning", talk->warning);
    if (r->tools_told)
        rg_exchange_set(x, "X-Ridge-Warning",
                        "the model's chat template knows no tools: a generic prompt describes them");
}

void rg_rendered_fini(rg_rendered *r)
{
    rg_ids_free(r->ids);
    rg_text_free(r->text);
    *r = (rg_rendered){ 0 };
}
