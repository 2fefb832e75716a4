/* server.c -- starting and ending the server, and checking requests by their headers. */
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/batches.h"
#include "server/call.h"
#include "server/core.h"
#include "server/json.h"

const rg_route rg_routes[] = {
#define ROUTE(method, path, name, flags) { method, path, rg_api_##name, flags },
#include "server/routes.def"
#undef ROUTE
};
const int rg_n_routes = RG_LEN(rg_routes);

rg_server_options rg_server_options_default(void)
{
    return (rg_server_options){ .host = "127.0.0.1", .port = 8080, .model = "default", .max_body = (size_t)32 << 20,
                                .max_header = 32 << 10, .max_connections = 4096, .n_threads = 2, .max_waiting = 1024,
                                .max_choices = 1024, .request_timeout_s = 3600, .queue_timeout_s = 600,
                                .idle_timeout_s = 120, .header_timeout_s = 15, .body_timeout_s = 60,
                                .write_timeout_s = 300, .watchdog_s = 30, .batch_lines = 8, .max_batches = 64 };
}

/* ---- admission --------------------------------------------------------------------------------------------------- */

/* The route of this path, or -1; *allowed: the path is there, for another method. */
static int find_route(const char *method, const char *path, const char **allowed)
{
    bool head = !strcmp(method, "HEAD");

    *allowed = NULL;
    for (int i = 0; i < rg_n_routes; i++) {
        const rg_route *r = &rg_routes[i];
        size_t n = strlen(r->path);
        if (r->flags & RG_ROUTE_PREFIX ? strncmp(path, r->path, n) != 0 || !path[n] : strcmp(path, r->path) != 0)
            continue;
        if (!strcmp(r->method, head ? "GET" : method))
            return i;
        *allowed = r->method;
    }
    return -1;
}

static bool check_fault(const rg_exchange *x, rg_refusal *e)
{
    switch (rg_exchange_notes((rg_exchange *)(uintptr_t)x)->fault) {
    case 0:
        return true;
    case 413:
        return rg_refuse(e, 413, "body_too_large", NULL, "The body is larger than this server takes.");
    case 415:
        return rg_refuse(e, 415, "unsupported_encoding", NULL, "The body must not be compressed.");
    case 501:
        return rg_refuse(e, 501, "unsupported_encoding", NULL, "The only transfer encoding that is known is chunked.");
    case 505:
        return rg_refuse(e, 505, "unsupported_version", NULL, "The request must be HTTP/1.1 or HTTP/1.0.");
    default:
        return rg_refuse(e, 400, "bad_request", NULL, "The request's headers contradict each other.");
    }
}

static const char *const local_names[] = { "localhost", "127.0.0.1", "[::1]", "ip6-localhost" };

/* A server that only this machine reaches answers only to names of this machine.  Otherwise a web page could reach it
 * under another name. */
static bool check_host(const rg_server *s, const rg_exchange *x, rg_refusal *e)
{
    const char *host = rg_exchange_header(x, "Host");

    if (!host || !rg_exchange_local(x))
        return true;
    const char *colon = strrchr(host, ':'), *bracket = strchr(host, ']');
    size_t n = colon && (!bracket || colon > bracket) ? (size_t)(colon - host) : strlen(host);
    for (size_t i = 0; i < RG_LEN(local_names); i++)
        if (strlen(local_names[i]) == n && !strncasecmp(host, local_names[i], n))
            return true;
    if (!strncmp(host, "127.", 4) && strspn(host, "0123456789.") == n)
        return true;
    if (strlen(s->o.host) == n && !strncasecmp(host, s->o.host, n))
        return true;
    return rg_refuse(e, 421, "wrong_host", NULL, "This server does not answer to that Host.");
}

/* Pages of another origin may ask only if --cors-origin names it. */
static bool check_origin(const rg_server *s, rg_exchange *x, rg_refusal *e)
{
    const char *origin = rg_exchange_header(x, "Origin"), *host = rg_exchange_header(x, "Host");
    const char *cors = s->o.cors_origin, *bare = origin ? strstr(origin, "://") : NULL;

    rg_exchange_set(x, "Vary", "Origin");
    if (!origin)
        return true;
    if (cors && (!strcmp(cors, "*") || !strcmp(cors, origin))) {
        rg_exchange_set(x, "Access-Control-Allow-Origin", cors);
        rg_exchange_set(x, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
        return true;
    }
    if (bare && host && !strcasecmp(bare + 3, host))
        return true;
    return rg_refuse(e, 403, "origin_not_allowed", NULL, "Pages of that origin may not ask this server.");
}

static bool check_key(const rg_server *s, rg_exchange *x, rg_refusal *e)
{
    const char *bearer = rg_exchange_header(x, "Authorization"), *given = rg_exchange_header(x, "x-api-key");

    if (!rg_keys_count(s->keys))
        return true;
    if (bearer && !strncasecmp(bearer, "Bearer ", 7))
        given = bearer + 7;
    while (given && *given == ' ')
        given++;
    int32_t key = given ? rg_keys_find(s->keys, given, strlen(given)) : -1;
    rg_exchange_notes(x)->tenant = key;
    return key >= 0 || rg_refuse(e, 401, "invalid_api_key", NULL, "The API key is missing or not one of ours.");
}

const char *rg_name_tenant(int tenant, char *to)
{
    if (tenant < 0)
        return NULL;
    snprintf(to, RG_TENANT, "key %d", tenant);
    return to;
}

static bool unavailable(rg_refusal *e, const char *code, const char *text, int retry_after_s)
{
    rg_refuse(e, 503, code, NULL, "%s", text);
    e->retry_after_s = retry_after_s;
    return false;
}

/* True if work may begin now; asked before the body is read. */
static bool check_state(rg_server *s, const rg_exchange_note *n, unsigned flags, rg_refusal *e)
{
    char tenant[RG_TENANT];

    rg_server_state state = (rg_server_state)atomic_load(&s->state);

    if (!(flags & (RG_ROUTE_WORK | RG_ROUTE_ENGINE)))
        return true;
    if (state == RG_LOADING || !s->engine) /* the server may end before it was ready */
        return unavailable(e, "loading", "The model is still being loaded.", 2);
    if (!(flags & RG_ROUTE_WORK))
        return true;
    if (state == RG_DRAINING)
        return unavailable(e, "shutting_down", "The server is shutting down.", 5);
    if (state == RG_FAULTED)
        return unavailable(e, "engine_fault", "The engine has stopped answering.", 30);
    if (!rg_engine_has_room(s->engine, rg_name_tenant(n->tenant, tenant))) {
        rg_error busy = { .code = RG_E_BUSY };
        rg_refuse_engine(s, e, &busy);
        return false;
    }
    return true;
}

static void set_headers(rg_exchange *x)
{
    rg_exchange_set(x, "X-Request-Id", rg_exchange_id(x));
    rg_exchange_set(x, "X-Content-Type-Options", "nosniff");
    rg_exchange_set(x, "Referrer-Policy", "no-referrer");
    rg_exchange_set(x, "X-Frame-Options", "DENY");
}

static void answer_preflight(rg_server *s, rg_exchange *x)
{
    rg_exchange_set(x, "Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS");
    rg_exchange_set(x, "Access-Control-Allow-Headers",
                    "Authorization, Content-Type, X-Api-Key, X-Request-Id, X-Request-Timeout, Anthropic-Version");
    rg_exchange_set(x, "Access-Control-Max-Age", "600");
    rg_reply_text(s, x, 204, "", "");
}

/* The headers are there: refuse what can be refused without the body. */
static void head(void *arg, rg_exchange *x)
{
    rg_server *s = arg;
    const char *method = rg_exchange_method(x), *allowed;
    rg_exchange_note *n = rg_exchange_notes(x);
    rg_refusal e = { 0 };
    bool ok;

    set_headers(x);
    n->route = find_route(method, rg_exchange_path(x), &allowed);
    unsigned flags = n->route >= 0 ? rg_routes[n->route].flags : 0;
    ok = check_fault(x, &e) && check_host(s, x, &e) && check_origin(s, x, &e);
    if (ok && !strcmp(method, "OPTIONS")) {
        answer_preflight(s, x);
        return;
    }
    ok = ok && (flags & RG_ROUTE_OPEN || check_key(s, x, &e));
    if (ok && n->route < 0) {
        if (allowed)
            rg_exchange_set(x, "Allow", allowed);
        ok = allowed ? rg_refuse(&e, 405, "method_not_allowed", NULL, "This path does not have that method.")
                     : rg_refuse(&e, 404, "not_found", NULL, "There is nothing at this path.");
    }
    if (!ok || !check_state(s, n, flags, &e))
        rg_reply_refusal(s, x, &e);
}

static void handle(void *arg, rg_exchange *x)
{
    rg_refusal e = { 0 };

    if (!check_fault(x, &e)) /* the size of a chunked body is known late */
        rg_reply_refusal(arg, x, &e);
    else
        rg_routes[rg_exchange_notes(x)->route].answer(arg, x);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool copy_text(const char **to, rg_error *err)
{
    if (*to && !(*to = rg_strdup(*to)))
        return rg_fail_memory(err, 0);
    return true;
}

static void free_text(const char *s)
{
    rg_free((void *)(uintptr_t)s);
}

static bool listen_on(rg_server *s, rg_error *err)
{
    rg_http_options o = { .host = s->o.host, .port = s->o.port, .any_port = s->o.any_port,
                          .tls_cert = s->o.tls_cert, .tls_key = s->o.tls_key,
                          .max_body = s->o.max_body, .max_header = s->o.max_header, .max_stream = (size_t)64 << 20,
                          .max_connections = s->o.max_connections, .n_threads = s->o.n_threads,
                          .idle_s = s->o.idle_timeout_s, .header_s = s->o.header_timeout_s,
                          .body_s = s->o.body_timeout_s, .write_s = s->o.write_timeout_s, .head = head,
                          .handle = handle, .arg = s };
    bool bracket = strchr(s->o.host, ':') != NULL;

    s->http = rg_http_open(&o, err);
    if (!s->http)
        return false;
    snprintf(s->url, sizeof s->url, "http%s://%s%s%s:%d", s->o.tls_cert ? "s" : "", bracket ? "[" : "", s->o.host,
             bracket ? "]" : "", (int)rg_http_port(s->http));
    return true;
}

rg_server *rg_server_open(const rg_server_options *o, rg_error *err)
{
    rg_server *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->o = *o;
    s->o.keys = NULL;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->news, NULL);
    s->started_s = rg_wall_s();
    bool copied = copy_text(&s->o.host, err);
    copied = copy_text(&s->o.model, err) && copied;
    copied = copy_text(&s->o.tls_cert, err) && copied;
    copied = copy_text(&s->o.tls_key, err) && copied;
    copied = copy_text(&s->o.cors_origin, err) && copied;
    copied = copy_text(&s->o.batch_dir, err) && copied;
    if (!copied)
        goto fail;
    s->keys = rg_keys_new(o->keys, o->n_keys, err);
    s->metrics = s->keys ? rg_metrics_new(s->o.model, err) : NULL;
    if (!s->metrics || (s->o.batch_dir && !rg_batches_open(s, o->keys, o->n_keys, err)))
        goto fail;
    if (!listen_on(s, err) || !rg_pump_start(s, err))
        goto fail;
    return s;

fail:
    rg_server_close(s);
    return NULL;
}

const char *rg_server_url(const rg_server *s)
{
    return s->url;
}

/* Find the marks of tool calls that are special tokens. */
static void find_marks(rg_server *s, const rg_engine *engine)
{
    for (const rg_tool_mark *m = rg_tool_marks; m->open && s->n_marks + 2 <= RG_MAX_MARKS; m++)
        for (int i = 0; i < 2; i++) {
            const char *text = i ? m->close : m->open;
            int32_t *ids = NULL;
            size_t n = 0;
            if (text && rg_encode(engine, text, strlen(text), RG_ENCODE_NO_SPECIAL, &ids, &n, NULL) && n == 1)
                s->marks[s->n_marks++] = (rg_mark){ ids[0], text };
            rg_ids_free(ids);
        }
}

/* Forecasts for the page. */
static void make_forecasts(rg_server *s, const rg_engine *engine)
{
    static const int32_t batches[RG_MAX_FORECASTS] = { 1, 4, 16, 64 };

    s->forecast_at = s->info.max_seq_len / 2 < 1024 ? s->info.max_seq_len / 2 : 1024;
    for (int i = 0; i < RG_MAX_FORECASTS; i++) {
        s->forecast[s->n_forecasts].batch = batches[i];
        s->n_forecasts += rg_engine_forecast(engine, batches[i], s->forecast_at, &s->forecast[s->n_forecasts].f);
    }
}

void rg_server_loading(rg_server *s, const char *step, double done)
{
    atomic_store(&s->loaded, (int)(done * 1000));
    atomic_store(&s->loading, step);
}

void rg_server_ready(rg_server *s, rg_engine *engine)
{
    int loading = RG_LOADING;

    s->info = rg_engine_info(engine);
    find_marks(s, engine);
    rg_tool_form_find(&s->tool_form, engine);
    make_forecasts(s, engine);
    atomic_store(&s->engine, engine);
    atomic_compare_exchange_strong(&s->state, &loading, RG_READY); /* the state may be draining already */
    rg_gauge(s->metrics, RG_G_READY, 1);
}

void rg_server_drain(rg_server *s)
{
    int was = atomic_load(&s->state);

    while (was != RG_FAULTED && !atomic_compare_exchange_weak(&s->state, &was, RG_DRAINING))
        ;
    rg_gauge(s->metrics, RG_G_READY, 0);
}

int rg_server_in_flight(const rg_server *s)
{
    return s->n_in_flight;
}

bool rg_server_faulted(const rg_server *s)
{
    return s->state == RG_FAULTED;
}

void rg_server_abort(rg_server *s)
{
    rg_server_drain(s);
    s->aborting = true;
}

/* How long slow clients may take to read their last events. */
static const double last_flush_s = 1;

void rg_server_close(rg_server *s)
{
    if (!s)
        return;
    s->state = RG_DRAINING;
    rg_pump_stop(s);
    if (s->http)
        rg_http_flush(s->http, last_flush_s);
    rg_batches_stop(s->batches);
    rg_http_close(s->http);
    while (s->fresh) { /* handed over while the pump was stopping */
        rg_call *c = s->fresh;
        s->fresh = c->next;
        rg_call_free(c);
    }
    rg_batches_free(s->batches);
    rg_keys_free(s->keys);
    rg_metrics_free(s->metrics);
    free_text(s->o.host);
    free_text(s->o.model);
    free_text(s->o.tls_cert);
    free_text(s->o.tls_key);
    free_text(s->o.cors_origin);
    free_text(s->o.batch_dir);
    pthread_cond_destroy(&s->news);
    pthread_mutex_destroy(&s->lock);
    rg_free(s);
}
