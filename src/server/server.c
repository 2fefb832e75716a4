/* server.c -- starting and ending the server, and checking requests by their headers. */
#include "server/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/batch/batches.h"
#include "server/core.h"
#include "server/json.h"
#include "server/models.h"
#include "server/origins.h"

const rg_route rg_routes[] = {
#define ROUTE(method, path, name, family, flags) { method, path, rg_api_##name, &rg_##family, flags },
#include "server/api/routes.def"
#undef ROUTE
};
const int rg_n_routes = RG_LEN(rg_routes);

rg_server_options rg_server_options_default(void)
{
    return (rg_server_options){ .port = 8080,
                                .socket_mode = 0600,
                                .model = "default",
                                .max_body = (size_t)32 << 20,
                                .max_header = 32 << 10,
                                .max_connections = 4096,
                                .n_threads = 2,
                                .max_waiting = 1024,
                                .max_choices = 1024,
                                .request_timeout_s = 3600,
                                .queue_timeout_s = 600,
                                .idle_timeout_s = 120,
                                .header_timeout_s = 15,
                                .body_timeout_s = 60,
                                .write_timeout_s = 300,
                                .ping_s = 5,
                                .watchdog_s = 30,
                                .batch_lines = 8,
                                .max_batches = 64 };
}

/* ---- admission --------------------------------------------------------------------------------------------------- */

enum { ALLOW_ROOM = 64 };

/* Add a method to a list with commas. */
static void add_method(char list[ALLOW_ROOM], const char *method)
{
    size_t n = strlen(list);

    if (!strstr(list, method))
        snprintf(list + n, ALLOW_ROOM - n, "%s%s", n ? ", " : "", method);
}

/* The route of this path, or -1; allowed: the methods that the path has, if it is there for others. */
static int find_route(const char *method, const char *path, char allowed[ALLOW_ROOM])
{
    bool head = !strcmp(method, "HEAD");

    allowed[0] = 0;
    for (int i = 0; i < rg_n_routes; i++) {
        const rg_route *r = &rg_routes[i];
        size_t n = strlen(r->path);
        if (r->flags & RG_ROUTE_PREFIX ? strncmp(path, r->path, n) != 0 || !path[n] : strcmp(path, r->path) != 0)
            continue;
        if (!strcmp(r->method, head ? "GET" : method))
            return i;
        add_method(allowed, r->method);
        if (!strcmp(r->method, "GET"))
            add_method(allowed, "HEAD");
    }
    return -1;
}

static bool check_fault(const rg_exchange *x, rg_refusal *e)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {
        { 400, "bad_request" },         { 408, "request_timeout" },      { 413, "body_too_large" },
        { 414, "uri_too_long" },        { 415, "unsupported_encoding" }, { 417, "unsupported_expectation" },
        { 431, "headers_too_large" },   { 501, "unsupported_encoding" }, { 503, "out_of_memory" },
        { 505, "unsupported_version" },
    };
    const rg_exchange_note *n = rg_exchange_notes((rg_exchange *)(uintptr_t)x);
    const char *code = codes[0].code;

    for (size_t i = 0; i < RG_LEN(codes); i++)
        if (codes[i].status == n->fault)
            code = codes[i].code;
    return !n->fault || rg_refuse(e, n->fault, code, NULL, "%s", n->why);
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

/* No key is asked for. */
static bool is_open(const rg_server *s, int route)
{
    return route >= 0 && (rg_routes[route].flags & RG_ROUTE_OPEN ||
                          (s->o.metrics_open && !strcmp(rg_routes[route].path, "/metrics")));
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

    const rg_served *first = s->first;
    rg_server_state state = (rg_server_state)atomic_load(&first->state);

    if (!(flags & (RG_ROUTE_WORK | RG_ROUTE_ENGINE)))
        return true;
    if (s->models && state != RG_DRAINING && state != RG_FAULTED)
        return true;                           /* the body says which model it needs, and it may wait for that */
    if (state == RG_LOADING || !first->engine) /* the server may end before it was ready */
        return unavailable(e, "loading", "The model is still being loaded.", 2);
    if (!(flags & RG_ROUTE_WORK))
        return true;
    if (state == RG_DRAINING)
        return unavailable(e, "shutting_down", "The server is shutting down.", 5);
    if (state == RG_FAULTED)
        return unavailable(e, "engine_fault", "The engine has stopped answering.", 30);
    if (!rg_engine_has_room(first->engine, rg_name_tenant(n->tenant, tenant))) {
        rg_error busy = { .code = RG_E_BUSY };
        rg_refuse_engine(s->first, e, &busy);
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

/* The headers are there: refuse what can be refused without the body. */
static void head(void *arg, rg_exchange *x)
{
    rg_server *s = arg;
    const char *method = rg_exchange_method(x);
    char allowed[ALLOW_ROOM];
    rg_exchange_note *n = rg_exchange_notes(x);
    rg_refusal e = { 0 };
    bool ok;

    rg_json_watch();
    set_headers(x);
    rg_origins_tell(s, x);
    n->route = find_route(method, rg_exchange_path(x), allowed);
    unsigned flags = n->route >= 0 ? rg_routes[n->route].flags : 0;
    ok = check_fault(x, &e) && rg_origins_check(s, x, &e);
    if (ok && !strcmp(method, "OPTIONS")) {
        rg_origins_preflight(s, x);
        return;
    }
    ok = ok && (is_open(s, n->route) || check_key(s, x, &e));
    if (ok && n->route < 0) {
        if (*allowed)
            rg_exchange_set(x, "Allow", allowed);
        ok = *allowed ? rg_refuse(&e, 405, "method_not_allowed", NULL, "This path does not have that method.")
                      : rg_refuse(&e, 404, "not_found", NULL, "There is nothing at this path.");
    }
    if (!ok || !check_state(s, n, flags, &e))
        rg_reply_refusal(s->first, x, &e);
}

static void handle(void *arg, rg_exchange *x)
{
    rg_server *s = arg;
    rg_refusal e = { 0 };

    rg_json_watch();
    if (!check_fault(x, &e)) /* of its body */
        rg_reply_refusal(s->first, x, &e);
    else
        rg_server_answer(s, x);
}

void rg_server_answer(rg_server *s, rg_exchange *x)
{
    const rg_route *r = &rg_routes[rg_exchange_notes(x)->route];

    if (s->models && r->flags & (RG_ROUTE_WORK | RG_ROUTE_ENGINE) && !(r->flags & RG_ROUTE_LIST))
        rg_models_answer(s->models, x);
    else
        rg_endpoint_answer(s->first, x);
}

void rg_endpoint_answer(rg_served *s, rg_exchange *x)
{
    rg_json_watch();
    rg_routes[rg_exchange_notes(x)->route].answer(s, x);
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

/* On failure the list has those that were copied. */
static bool copy_texts(const char *const **list, int32_t *n, rg_error *err)
{
    const char *const *from = *list;
    int32_t n_from = *n;
    const char **to = n_from ? rg_array((size_t)n_from, sizeof *to) : NULL;

    *list = to;
    *n = 0;
    if (n_from && !to)
        return rg_fail_memory(err, 0);
    for (; *n < n_from; ++*n)
        if (!(to[*n] = rg_strdup(from[*n])))
            return rg_fail_memory(err, 0);
    return true;
}

static void free_texts(const char *const *list, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        free_text(list[i]);
    rg_free((void *)(uintptr_t)list);
}

bool rg_server_listen(rg_server *s, rg_error *err)
{
    rg_http_options o = { .hosts = s->o.hosts,
                          .n_hosts = s->o.n_hosts,
                          .socket_mode = s->o.socket_mode,
                          .port = s->o.port,
                          .any_port = s->o.any_port,
                          .tls_cert = s->o.tls_cert,
                          .tls_key = s->o.tls_key,
                          .max_body = s->o.max_body,
                          .max_header = s->o.max_header,
                          .max_stream = (size_t)64 << 20,
                          .max_connections = s->o.max_connections,
                          .n_threads = s->o.n_threads,
                          .idle_s = s->o.idle_timeout_s,
                          .header_s = s->o.header_timeout_s,
                          .body_s = s->o.body_timeout_s,
                          .write_s = s->o.write_timeout_s,
                          .head = head,
                          .handle = handle,
                          .arg = s };

    s->http = rg_http_open(&o, err);
    return s->http != NULL;
}

static bool check_kwargs(const rg_server_options *o, rg_error *err)
{
    json_t *v = o->template_kwargs ? rg_json_load(o->template_kwargs, strlen(o->template_kwargs), 0, NULL) : NULL;
    bool ok = !o->template_kwargs || json_is_object(v);

    json_decref(v);
    return ok ||
           rg_fail(err, RG_E_USAGE, "--chat-template-kwargs '%.100s' is not an object in JSON", o->template_kwargs);
}

static bool check_tool_format(const rg_server_options *o, rg_error *err)
{
    char names[1500];
    size_t n = 0;

    if (!o->tool_format || rg_talk_named(o->tool_format))
        return true;
    for (const rg_talk *t = rg_talks; t->name && n < sizeof names; t++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", t->name);
    return rg_fail(err, RG_E_USAGE, "--tool-format '%.40s' is not one of %s", o->tool_format, names);
}

rg_server *rg_server_open(const rg_server_options *o, rg_error *err)
{
    rg_server *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->o = *o;
    s->o.keys = NULL;
    pthread_mutex_init(&s->background.lock, NULL);
    s->started_s = rg_wall_s();
    s->o.model = NULL; /* it is the first model's name */
    bool copied = copy_text(&s->o.tls_cert, err);
    copied = copy_text(&s->o.tls_key, err) && copied;
    copied = copy_texts(&s->o.aliases, &s->o.n_aliases, err) && copied;
    copied = copy_texts(&s->o.hosts, &s->o.n_hosts, err) && copied;
    copied = copy_texts(&s->o.cors_origins, &s->o.n_cors_origins, err) && copied;
    copied = copy_texts(&s->o.allowed_hosts, &s->o.n_allowed_hosts, err) && copied;
    copied = copy_text(&s->o.tool_format, err) && copied;
    copied = copy_text(&s->o.template_kwargs, err) && copied;
    copied = copy_text(&s->o.batch_dir, err) && copied;
    copied = copy_text(&s->o.store_dir, err) && copied;
    if (!copied || !check_tool_format(&s->o, err) || !check_kwargs(&s->o, err) || !rg_origins_valid(&s->o, err))
        goto fail;
    s->keys = rg_keys_new(o->keys, o->n_keys, err);
    if (s->keys)
        rg_keys_weigh(s->keys, o->key_weights);
    s->first = s->keys ? rg_served_new(s, o->model, err) : NULL;
    if (!s->first || (s->o.batch_dir && !rg_batches_open(s, err)))
        goto fail;
    s->kept =
        rg_kept_open(&(rg_kept_options){ .dir = s->o.store_dir, .max_bytes = (size_t)64 << 20, .lasts_s = 3600 }, err);
    if (!s->kept)
        goto fail;
    if ((!s->o.no_listener && !rg_server_listen(s, err)) || !rg_pump_start(s->first, err))
        goto fail;
    return s;

fail:
    rg_server_close(s);
    return NULL;
}

const char *rg_server_url(const rg_server *s)
{
    return rg_http_url(s->http);
}

rg_served *rg_server_first(rg_server *s)
{
    return s->first;
}

void rg_server_ready(rg_server *s, rg_engine *engine)
{
    rg_served_ready(s->first, engine);
}

bool rg_server_serve_models(rg_server *s, const rg_server_models *o, const char *const *names, const char *const *paths,
                            int32_t n, rg_error *err)
{
    const char *name = rg_strdup(names[0]);
    rg_models *m;

    if (!name)
        return rg_fail_memory(err, 0);
    free_text(s->first->name);
    s->first->name = name;
    m = rg_models_new(s, o, err);
    for (int32_t i = 0; i < n && m; i++)
        if (!rg_models_add(m, names[i], paths[i], err)) {
            rg_models_free(m);
            return false;
        }
    if (m)
        atomic_store(&s->models, m);
    return m && rg_models_start(m, err);
}

void rg_server_drain(rg_server *s)
{
    rg_served *each;

    for (int i = 0; (each = rg_server_nth(s, i)); i++) {
        int was = atomic_load(&each->state);

        while (was != RG_FAULTED && !atomic_compare_exchange_weak(&each->state, &was, RG_DRAINING))
            ;
        rg_gauge(each->metrics, RG_G_READY, 0);
    }
}

int rg_server_in_flight(const rg_server *s)
{
    return s->models ? rg_models_in_flight(s->models) : s->first->n_in_flight;
}

bool rg_server_takes_work(const rg_server *s)
{
    int state = atomic_load(&s->first->state);

    return state == RG_READY || (s->models && state == RG_LOADING);
}

int64_t rg_server_n_waiting(rg_server *s)
{
    rg_served *each;
    int64_t n = 0;

    for (int i = 0; (each = rg_server_nth(s, i)); i++)
        if (rg_served_hold(each)) {
            n += rg_engine_stats(each->engine).n_waiting;
            rg_served_release(each);
        }
    return n;
}

bool rg_server_faulted(const rg_server *s)
{
    const rg_served *each;
    bool is = false;

    for (int i = 0; (each = rg_server_nth((rg_server *)(uintptr_t)s, i)); i++)
        is |= each->state == RG_FAULTED;
    return is;
}

void rg_server_abort(rg_server *s)
{
    rg_served *each;

    rg_server_drain(s);
    for (int i = 0; (each = rg_server_nth(s, i)); i++)
        each->aborting = true;
}

/* How long slow clients may take to read their last events. */
static const double last_flush_s = 1;

void rg_server_close(rg_server *s)
{
    rg_served *each;

    if (!s)
        return;
    if (s->first)
        s->first->state = RG_DRAINING;
    rg_models_stop(s->models);
    for (int i = 0; (each = rg_server_nth(s, i)); i++)
        rg_pump_stop(each);
    if (s->http)
        rg_http_flush(s->http, last_flush_s);
    rg_batches_stop(s->batches);
    rg_http_close(s->http);
    for (int i = 0; (each = rg_server_nth(s, i)); i++)
        rg_served_drop(each);
    rg_models_free(s->models);
    rg_batches_free(s->batches);
    rg_kept_close(s->kept);
    rg_keys_free(s->keys);
    rg_served_free(s->first);
    free_text(s->o.tls_cert);
    free_text(s->o.tls_key);
    free_texts(s->o.aliases, s->o.n_aliases);
    free_texts(s->o.hosts, s->o.n_hosts);
    free_texts(s->o.cors_origins, s->o.n_cors_origins);
    free_texts(s->o.allowed_hosts, s->o.n_allowed_hosts);
    free_text(s->o.tool_format);
    free_text(s->o.template_kwargs);
    free_text(s->o.batch_dir);
    free_text(s->o.store_dir);
    pthread_mutex_destroy(&s->background.lock);
    rg_free(s);
}
