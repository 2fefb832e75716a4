/* serve.c -- `ridge serve`: the HTTP server and its page, until a signal.  The first one lets what runs finish, the
 * second one ends it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/engine.h"
#include "cli/sandbox.h"
#include "cli/sampling.h"
#include "cli/serve_models.h"
#include "server/server.h"

enum { MAX_KEYS = 256, MAX_FILE = 1 << 20, KEEP_ALIVE_S = 300 };

static volatile sig_atomic_t n_signals, opening;

typedef struct serve_options {
    cli_args args;
    cli_engine engine;
    rg_server_options s;
    cli_sampling sampling;
    const char *key_file, *tls_cert_file, *tls_key_file, *batching, *log_level, *log_format;
    const char *socket_mode;
    cli_strings keys, hosts, cors_origins, allowed_hosts, aliases;
    int32_t batch_rows, max_waiting_ids;
    float drain_s, request_s, queue_s, idle_s, header_s, body_s, write_s, ping_s, watchdog_s, step_ms, pace, max_wait_s;
    bool share_prefixes, no_prefix_cache, verbose, sandbox;
    const char *user;
    cli_served models;
    size_t memory;
    float keep_alive_s;
    rg_host *host; /* of several models; NULL: there is one */
    const char *key[MAX_KEYS];
    float weight[MAX_KEYS];
    char *key_text, *cert, *tls_key; /* owned */
} serve_options;

/* The second one is obeyed at once if there is nobody yet to obey the first, the third one in any case. */
static void on_signal(int number)
{
    n_signals++;
    if (n_signals > 2 || (n_signals > 1 && opening))
        _exit(128 + number);
}

static void catch_signals(void)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN }, count = { .sa_handler = on_signal };

    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGTERM, &count, NULL);
    sigaction(SIGINT, &count, NULL);
}

static void nap(double s)
{
    struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    nanosleep(&t, NULL);
}

/* Behind a key in its line there may be "weight=W", which is cut off. */
static bool read_weight(char *line, float *weight, const char *file, rg_error *err)
{
    char *at = strrchr(line, ' '), *tab = strrchr(line, '\t'), *end;

    at = tab > at ? tab : at;
    if (!at || strncmp(at + 1, "weight=", 7))
        return true;
    double w = strtod(at + 8, &end);
    if (*end || end == at + 8 || !(w >= RG_TENANT_WEIGHT_LEAST && w <= RG_TENANT_WEIGHT_MOST))
        return rg_fail(err, RG_E_INPUT, "%s: 'weight=%.40s' behind a key: want a number from %g to %g", file, at + 8,
                       RG_TENANT_WEIGHT_LEAST, RG_TENANT_WEIGHT_MOST);
    *weight = (float)w;
    while (at > line && (at[-1] == ' ' || at[-1] == '\t'))
        at--;
    *at = 0;
    return *line || rg_fail(err, RG_E_INPUT, "%s: a weight without a key", file);
}

/* One key per line; blank lines and lines that begin with # are none. */
static bool read_keys(serve_options *o, rg_error *err)
{
    size_t n;

    for (int i = 0; i < o->keys.n; i++)
        o->key[o->s.n_keys++] = o->keys.item[i];
    if (o->key_file) {
        o->key_text = rg_file_slurp(o->key_file, MAX_FILE, &n, err);
        if (!o->key_text)
            return false;
        for (char *line = o->key_text, *next; line; line = next) {
            next = strchr(line, '\n');
            if (next)
                *next++ = 0;
            line[strcspn(line, "\r")] = 0;
            if (!*line || *line == '#')
                continue;
            if (o->s.n_keys == MAX_KEYS)
                return rg_fail(err, RG_E_LIMIT, "%s: more than %d keys", o->key_file, MAX_KEYS);
            if (!read_weight(line, &o->weight[o->s.n_keys], o->key_file, err))
                return false;
            o->key[o->s.n_keys++] = line;
        }
        if (!o->s.n_keys)
            return rg_fail(err, RG_E_INPUT, "%s: no key in it, and nobody would be kept out", o->key_file);
    }
    o->s.keys = o->key;
    o->s.key_weights = o->weight;
    return true;
}

static bool read_files(serve_options *o, rg_error *err)
{
    size_t n;

    if (!o->tls_cert_file != !o->tls_key_file)
        return rg_fail(err, RG_E_USAGE, "--tls-cert and --tls-key go together");
    if (o->tls_cert_file) {
        o->cert = rg_file_slurp(o->tls_cert_file, MAX_FILE, &n, err);
        o->tls_key = o->cert ? rg_file_slurp(o->tls_key_file, MAX_FILE, &n, err) : NULL;
        if (!o->tls_key)
            return false;
        o->s.tls_cert = o->cert;
        o->s.tls_key = o->tls_key;
    }
    if (o->batching && strcmp(o->batching, "continuous") != 0 && strcmp(o->batching, "static") != 0)
        return rg_fail(err, RG_E_USAGE, "--batching '%.20s' is not one of continuous, static", o->batching);
    return read_keys(o, err);
}

/* The file's or folder's name; of what other programs keep, whose files are named by hashes, the name that was
 * given. */
static void name_model(serve_options *o, const rg_library_model *found)
{
    static char name[256];
    const bool named = found->place == RG_PLACE_PATH || found->place == RG_PLACE_MODELS;
    const char *path = named ? found->path : found->name, *from = path;
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/')
        n--;
    for (size_t i = 0; named && i < n; i++)
        if (path[i] == '/')
            from = path + i + 1;
    snprintf(name, sizeof name, "%.*s", (int)(path + n - from), from);
    if (!o->s.model)
        o->s.model = name;
}

/* Adapters are asked for by name, as the model is. */
static bool read_loras(serve_options *o, rg_error *err)
{
    if (!cli_loras_read(&o->engine.loras, err))
        return false;
    for (int i = 0; i < o->engine.loras.n; i++) {
        const char *name = o->engine.loras.item[i].name;

        if (!strcmp(name, o->s.model) || !strcmp(name, "default"))
            return rg_fail(err, RG_E_USAGE, "--lora: '%s' is what clients call the model itself", name);
    }
    return true;
}

typedef struct opening_for {
    rg_served *served;
    bool quiet;
} opening_for;

static void tell_progress(void *arg, const char *what, double done)
{
    const opening_for *o = arg;

    rg_served_loading(o->served, what, done);
    cli_progress(o->quiet ? arg : NULL, what, done);
}

/* What requests that do not say get: the flags', and the checkpoint's for what these leave out. */
static bool set_sampling(const serve_options *o, rg_served *s, const rg_engine *engine, rg_error *err)
{
    const bool fixed_seed = o->sampling.seed;
    rg_info info = rg_engine_info(engine);
    cli_sampling own = o->sampling;

    if (!cli_sampling_finish(&own, &info.sampling, err))
        return false;
    rg_served_sampling(s, &own.s, fixed_seed);
    return true;
}

static rg_engine *open_engine(serve_options *o, rg_served *s, const char *path, rg_error *err)
{
    opening_for progress = { s, o->args.common.quiet };
    rg_options e = cli_engine_options(&o->engine, &o->args.common);

    e.max_batch_rows = o->batch_rows;
    e.max_waiting = o->s.max_waiting;
    e.max_waiting_ids = o->max_waiting_ids;
    e.max_wait_s = (double)o->max_wait_s;
    e.step_s = (double)o->step_ms / 1e3;
    e.pace = (double)o->pace;
    e.share_prefixes = o->share_prefixes;
    e.no_prefix_cache = o->no_prefix_cache;
    e.static_batching = o->batching && !strcmp(o->batching, "static");
    e.progress = tell_progress;
    e.progress_arg = &progress;
    e.host = o->host;
    if (o->s.allow_updates && !strcmp(o->engine.draft, "auto"))
        e.draft = "suffix"; /* a model that drafts would go on with the old weights */
    rg_engine *engine = rg_open(path, &e, err);
    if (!engine)
        return NULL;
    cli_warn_unused(&o->args.common, path, rg_engine_info(engine).n_unused_tensors);
    cli_warn_notes(&o->args.common, path, rg_engine_info(engine).notes);
    if (rg_engine_chat_problem(engine))
        rg_log(RG_LOG_WARN, "%s: chat is refused, since %s", path, rg_engine_chat_problem(engine));
    if (set_sampling(o, s, engine, err))
        return engine;
    rg_close(engine);
    return NULL;
}

/* After the first signal: what runs may finish, new work is refused; then the rest is told that it is over. */
static void drain(rg_server *s, double most_s)
{
    uint64_t from = rg_now_ns();
    const double grace_s = 0.5; /* the listener goes on saying 503, and last bytes leave */

    rg_server_drain(s);
    while (n_signals < 2 && rg_seconds(from, rg_now_ns()) < most_s && rg_server_in_flight(s) > 0)
        nap(0.05);
    rg_server_abort(s);
    from = rg_now_ns();
    while (n_signals < 2 && rg_seconds(from, rg_now_ns()) < grace_s)
        nap(0.05);
}

static void greet_models(const serve_options *o, const rg_server *s)
{
    printf("ridge: listening on %s\n", rg_server_url(s));
    for (int32_t i = 0; i < o->models.n; i++)
        printf("  model     %s%s\n", o->models.names[i], i ? "" : "  (for requests that name none)");
    if (o->memory)
        printf("  memory    %.1f GB for all of them (--memory)\n", (double)o->memory / 1e9);
    printf("  Ctrl-C ends it\n");
}

/* Where it is, and what can be done there. */
static void greet(const serve_options *o, const rg_server *s, const rg_engine *engine)
{
    char curl[512]; /* what curl is told */
    const char *url = rg_server_url(s), *key = o->s.n_keys ? " -H 'Authorization: Bearer KEY'" : "";
    const rg_info info = rg_engine_info(engine);

    printf("ridge: listening on %s\n", url);
    if (!strncmp(url, "unix:", 5)) {
        snprintf(curl, sizeof curl, "--unix-socket %s http://localhost", url + 5);
        url = curl;
    } else if (!o->s.no_page) {
        printf("  the page  %s/\n", url);
    }
    if (rg_chat_has_template(engine))
        printf("  or        curl %s/v1/chat/completions%s -d '{\"messages\": [{\"role\": \"user\", "
               "\"content\": \"Tell me a story.\"}]}'\n", url, key);
    else
        printf("  or        curl %s/v1/completions%s -d '{\"prompt\": \"Once upon a time\", "
               "\"max_tokens\": 100}'\n", url, key);
    for (int i = 0; i < o->engine.loras.n; i++)
        printf("  adapter   \"model\": \"%s\"\n", o->engine.loras.item[i].name);
    if (!o->engine.kv_memory)
        printf("  memory    up to %.1f GB for what sequences remember, half of what is free (--kv-memory)\n",
               (double)info.state_bytes / 1e9);
    printf("  state     %llu bytes a position, %llu a sequence besides (%s K/V)\n",
           (unsigned long long)info.position_bytes, (unsigned long long)info.sequence_bytes, info.kv_type);
    if (info.attention_sparsity > 0)
        printf("  lossy     attention leaves out blocks of 64 keys whose weights are all below %g\n",
               info.attention_sparsity);
    printf("  Ctrl-C ends it\n");
}

/* Until a signal, and then what runs to its end. */
static void wait_for_signals(const serve_options *o, rg_server *s)
{
    opening = false;
    rg_log(RG_LOG_INFO, "serve: listening on %s", rg_server_url(s));
    cli_flush(NULL);
    while (!n_signals)
        nap(0.1);
    if (!o->args.common.quiet)
        printf("\nridge: ending; what runs may finish for %g s, a second signal stops it\n", (double)o->drain_s);
    cli_flush(NULL);
    drain(s, (double)o->drain_s);
}

static void close_server(rg_server *s)
{
    bool faulted = s && rg_server_faulted(s);

    opening = false;
    rg_server_close(s);
    if (faulted || n_signals > 1) { /* without waiting for a step that may never end */
        fflush(NULL);
        _exit(faulted ? EXIT_FAILED : EXIT_DONE);
    }
}

/* The folder of a socket, which is removed there in the end. */
static const char *folder_of_socket(const char *host, char folder[512])
{
    const char *slash = strrchr(host, '/');

    if (strncmp(host, "unix:", 5) != 0)
        return NULL;
    snprintf(folder, 512, "%.*s", slash ? (int)(slash - host - 5) : 1, slash ? host + 5 : ".");
    return folder;
}

/* What the options name and serving may still need: models that are opened again, folders that are written to. */
static void leave_places(const serve_options *o, const char *path, cli_places_left *p)
{
    static char sockets[8][512];
    const cli_engine *e = &o->engine;
    const char *draft = e->draft ? strchr(e->draft, ':') : NULL;

    cli_leave_place(p, path, false);
    cli_leave_place(p, o->models.folder, false);
    for (int i = 0; i < o->models.n; i++)
        cli_leave_place(p, o->models.paths[i], false);
    cli_leave_place(p, cli_models_dir, false);
    cli_leave_place(p, e->draft_path, false);
    cli_leave_place(p, draft ? draft + 1 : NULL, false);
    for (int i = 0; i < e->loras.n; i++)
        cli_leave_place(p, e->loras.item[i].path, false);
    cli_leave_place(p, e->chat_template, false);
    cli_leave_place(p, e->sparsity, false);
    cli_leave_place(p, e->pack_cache, true);
    cli_leave_place(p, e->prefix_cache, true);
    cli_leave_place(p, o->s.batch_dir, true);
    cli_leave_place(p, o->s.store_dir, true);
    cli_leave_place(p, cli_profile_folder, true);
    for (int i = 0; i < o->hosts.n && i < (int)RG_LEN(sockets); i++)
        cli_leave_place(p, folder_of_socket(o->hosts.item[i], sockets[i]), true);
}

/* Everything is open: keep what serving needs. */
static bool give_up_rights(const serve_options *o, const char *path, rg_error *err)
{
    static cli_places_left left;

    left.n = 0;
    leave_places(o, path, &left);
    return (!o->user || cli_user_settle(err)) && (!o->sandbox || cli_sandbox_enter(&left, err));
}

/* An option that ranks cannot do, or that says how the machine is used; NULL: there is none. */
static const char *rules_out_ranks(const serve_options *o, const char *path)
{
    static const char *const drafts[] = { "none", "auto", "ngram", "suffix", "lookahead", "jacobi" };
    const cli_engine *e = &o->engine;
    const cli_common *c = &o->args.common;
    bool draft = !e->draft;
    char file[4096];

    for (size_t i = 0; e->draft && i < RG_LEN(drafts); i++)
        draft |= !strcmp(e->draft, drafts[i]);
    snprintf(file, sizeof file, "%s/draft.json", path);
    draft = draft && ((e->draft && strcmp(e->draft, "auto")) || access(file, F_OK));
    return c->threads          ? "--threads"
           : c->numa_copies    ? "--numa-copies"
           : c->pin            ? "--pin"
           : e->pack_cache     ? "--pack-cache"
           : e->expert_memory  ? "--expert-memory"
           : e->sparsity       ? "--sparsity"
           : e->loras.n        ? "--lora"
           : !draft            ? "a network that drafts"
           : o->s.allow_updates ? "--allow-update-weights"
           : o->sandbox        ? "--sandbox"
           : o->user           ? "--user"
                               : NULL;
}

/* One rank for each NUMA node, unless --ranks says how many. */
static void choose_ranks(serve_options *o, const rg_library_model *found)
{
    cli_common *c = &o->args.common;
    const int n = c->ranks || cli_ranks() ? 1 : cli_ranks_best(found->bytes);
    const char *why_not = n > 1 ? rules_out_ranks(o, found->path) : NULL;

    if (n == 1)
        return;
    if (!why_not)
        c->ranks = n;
    if (c->quiet)
        return;
    if (why_not)
        fprintf(stderr, "[one process on %d NUMA nodes, because of %s]\n", n, why_not);
    else
        fprintf(stderr, "[%d ranks, one on each NUMA node, share the model; --ranks 1: one process]\n", n);
}

static bool serve(serve_options *o, const rg_library_model *found, rg_error *err)
{
    const char *path = found->path;

    choose_ranks(o, found);
    const bool may = cli_ranks_start(&o->args.common, err); /* before there are threads */
    rg_server *s = may ? rg_server_open(&o->s, err) : NULL; /* from here on it answers, if only that it is loading */
    rg_engine *engine = s ? open_engine(o, rg_server_first(s), path, err) : NULL;
    bool ok = engine && give_up_rights(o, path, err);

    if (ok) {
        rg_server_ready(s, engine);
        if (!o->args.common.quiet)
            greet(o, s, engine);
        wait_for_signals(o, s);
    }
    close_server(s);
    if (engine)
        rg_engine_check(engine); /* everything is back where it belongs */
    rg_close(engine);
    return ok;
}

static rg_engine *open_listed(void *arg, const char *path, rg_served *s, rg_error *err)
{
    return open_engine(arg, s, path, err);
}

/* Four fifths of what is free, so that a machine's other work has room. */
static size_t default_memory(void)
{
    return rg_memory_free() / 5 * 4;
}

static bool serve_several(serve_options *o, rg_error *err)
{
    const rg_server_models models = { .open = open_listed, .look = cli_served_look, .arg = o,
                                       .keep_alive_s = (double)o->keep_alive_s };

    o->memory = o->memory ? o->memory : default_memory();
    if (!cli_ranks_start(&o->args.common, err))
        return false;
    o->host = rg_host_open(&(rg_host_options){ .n_threads = o->args.common.threads, .memory_bytes = o->memory }, err);
    o->s.no_listener = true; /* until the models are known */
    rg_server *s = o->host ? rg_server_open(&o->s, err) : NULL;
    bool ok = s && rg_server_serve_models(s, &models, (const char *const *)o->models.names,
                                          (const char *const *)o->models.paths, o->models.n, err) &&
              rg_server_listen(s, err) &&
              give_up_rights(o, NULL, err);
    if (ok) {
        if (!o->args.common.quiet)
            greet_models(o, s);
        wait_for_signals(o, s);
    }
    close_server(s);
    rg_host_close(o->host);
    return ok;
}

extern const cli_command cli_serve;

static void take_times(serve_options *o)
{
    o->s.request_timeout_s = (double)o->request_s;
    o->s.queue_timeout_s = (double)o->queue_s;
    o->s.idle_timeout_s = (double)o->idle_s;
    o->s.header_timeout_s = (double)o->header_s;
    o->s.body_timeout_s = (double)o->body_s;
    o->s.write_timeout_s = (double)o->write_s;
    o->s.ping_s = (double)o->ping_s;
    o->s.watchdog_s = (double)o->watchdog_s;
}

/* Where it listens, and who may ask. */
static bool take_places(serve_options *o, rg_error *err)
{
    char *end = NULL;

    o->s.hosts = o->hosts.item;
    o->s.n_hosts = o->hosts.n;
    o->s.cors_origins = o->cors_origins.item;
    o->s.n_cors_origins = o->cors_origins.n;
    o->s.allowed_hosts = o->allowed_hosts.item;
    o->s.n_allowed_hosts = o->allowed_hosts.n;
    o->s.aliases = o->aliases.item;
    o->s.n_aliases = o->aliases.n;
    if (!o->socket_mode)
        return true;
    long mode = strspn(o->socket_mode, "01234567") == strlen(o->socket_mode) ? strtol(o->socket_mode, &end, 8) : -1;
    if (!*o->socket_mode || mode < 0 || mode > 0777)
        return rg_fail(err, RG_E_USAGE, "--socket-mode '%.20s' is not an octal number from 0 to 777", o->socket_mode);
    o->s.socket_mode = (int32_t)mode;
    return true;
}

static bool set_log(const serve_options *o, rg_error *err)
{
    static const struct {
        const char *name;
        rg_level level;
    } levels[] = { { "error", RG_LOG_ERROR }, { "warn", RG_LOG_WARN }, { "warning", RG_LOG_WARN },
                   { "info", RG_LOG_INFO }, { "debug", RG_LOG_DEBUG } };
    const char *format = o->log_format ? o->log_format : "text";
    bool json = !strcasecmp(format, "json"), found = !o->log_level;

    if (!json && strcasecmp(format, "text"))
        return rg_fail(err, RG_E_USAGE, "serve: --log-format '%.20s' is not one of text, json", format);
    if (o->verbose)
        rg_log_set_level(RG_LOG_INFO);
    for (size_t i = 0; !found && i < RG_LEN(levels); i++)
        if ((found = !strcasecmp(o->log_level, levels[i].name)))
            rg_log_set_level(levels[i].level);
    if (!found)
        return rg_fail(err, RG_E_USAGE, "serve: --log-level '%.20s' is not one of error, warn, info, debug",
                       o->log_level);
    rg_log_set_json(json);
    return true;
}

/* Only programs of this machine reach it. */
static bool is_local(const char *host)
{
    return !strncmp(host, "unix:", 5) || !strncmp(host, "127.", 4) || !strcmp(host, "::1") ||
           !strcmp(host, "localhost");
}

static void warn_of_strangers(const serve_options *o)
{
    for (int i = 0; !o->s.n_keys && i < o->hosts.n; i++)
        if (!is_local(o->hosts.item[i]))
            rg_log(RG_LOG_WARN,
                   "serve: --host %s without --api-key: everyone who reaches this machine can use the model",
                   o->hosts.item[i]);
}

/* The model that is named, or the shipped one, and its name; or all of a folder. */
static bool choose_models(serve_options *o, rg_library_model *found, rg_error *err)
{
    const char *named = o->args.n_positional ? o->args.positional[0] : NULL;

    if (!o->models.folder && (o->memory || o->keep_alive_s != KEEP_ALIVE_S))
        return rg_fail(err, RG_E_USAGE, "serve: --memory and --keep-alive are for --models");
    if (named || !o->models.folder) {
        if (!cli_find(named, found, err))
            return false;
        name_model(o, found);
    }
    if (!o->models.folder)
        return true;
    if (o->engine.loras.n || o->aliases.n)
        return rg_fail(err, RG_E_USAGE, "serve: --lora and --alias are for one model, not for --models");
    if (!cli_served_read(&o->models, named ? found->path : NULL, o->s.model, err))
        return false;
    o->s.model = o->models.names[0];
    return true;
}

static void free_texts(serve_options *o)
{
    cli_served_fini(&o->models);
    rg_free(o->key_text);
    rg_free(o->cert);
    rg_free(o->tls_key);
}

static int run(int argc, char **argv)
{
    static serve_options o = { .drain_s = 30, .request_s = 3600, .queue_s = 600, .idle_s = 120, .header_s = 15,
                               .body_s = 60, .write_s = 300, .ping_s = 5, .watchdog_s = 30, .step_ms = 250, .pace = 2,
                               .keep_alive_s = KEEP_ALIVE_S };
    o.s = rg_server_options_default();
    o.s.model = NULL;
    const cli_option options[] = {
        { "--host", CLI_STRINGS, &o.hosts, "ADDRESS", "where to listen, or unix:PATH (repeatable; only this machine)" },
        { "--port", CLI_INT, &o.s.port, "N", "0 picks one (default 8080)", 0, 65535 },
        { "--any-port", CLI_FLAG, &o.s.any_port, NULL, "another port if that one is taken" },
        { "--model-name", CLI_STRING, &o.s.model, "NAME", "what clients call the model (default: its file's name)" },
        { "--alias", CLI_STRINGS, &o.aliases, "NAME", "another name of the model (repeatable)" },
        { "--strict-model", CLI_FLAG, &o.s.strict_model, NULL, "requests that name another model are refused" },
        { "--models", CLI_STRING, &o.models.folder, "DIR",
          "every model of this folder, opened when it is asked for" },
        { "--keep-alive", CLI_FLOAT, &o.keep_alive_s, "S",
          "of --models: one that answers nothing is closed after so long (default 300; -1: never)", -1, 1e9 },
        { "--memory", CLI_BYTES, &o.memory, "BYTES", "of --models: for all of them (default: 4/5 of what is free)" },
        { "--api-key", CLI_STRINGS, &o.keys, "KEY", "only who knows a key may ask (repeatable)" },
        { "--api-key-file", CLI_STRING, &o.key_file, "FILE",
          "keys, one per line; \"weight=3\" behind one: three times the share of others" },
        { "--tls-cert", CLI_STRING, &o.tls_cert_file, "FILE", "HTTPS with this certificate (PEM)" },
        { "--tls-key", CLI_STRING, &o.tls_key_file, "FILE", "and its key" },
        { "--socket-mode", CLI_STRING, &o.socket_mode, "MODE", "permissions of unix:PATH, in octal (default 600)" },
        { "--cors-origin", CLI_STRINGS, &o.cors_origins, "ORIGIN", "web pages of it may ask (repeatable; *: all)" },
        { "--allowed-host", CLI_STRINGS, &o.allowed_hosts, "NAME", "answer to this Host too (repeatable)" },
        { "--allow-update-weights", CLI_FLAG, &o.s.allow_updates, NULL, "clients may replace the weights" },
        { "--metrics-open", CLI_FLAG, &o.s.metrics_open, NULL, "/metrics without a key" },
        { "--no-page", CLI_FLAG, &o.s.no_page, NULL, "no web page" },
        { "--no-slots", CLI_FLAG, &o.s.no_slots, NULL, "/slots, which tells how busy the server is, is refused" },
        CLI_ENGINE_OPTIONS(o.engine),
        CLI_CHAT_TEMPLATE_OPTION(o.engine.chat_template),
        { "--chat-template-kwargs", CLI_STRING, &o.s.template_kwargs, "JSON",
          "variables of the chat template, where a request does not set them" },
        { "--tool-format", CLI_STRING, &o.s.tool_format, "NAME",
          "how the model marks reasoning and calls (default: as its template does)" },
        CLI_LORA_OPTION(o.engine.loras, "a LoRA adapter, for requests whose model is NAME (repeatable)"),
        CLI_SAMPLING_OPTIONS(o.sampling),
        { "-n", CLI_INT, &o.s.max_tokens, "N", "tokens of an answer where a request does not say (default: no limit)",
          1, INT32_MAX },
        { "--batch-rows", CLI_INT, &o.batch_rows, "N", "rows of a step at most", 1, 65536 },
        { "--step-ms", CLI_FLOAT, &o.step_ms, "MS", "how long a step may take (default 250; 0: no limit)", 0, 60000 },
        { "--pace", CLI_FLOAT, &o.pace, "X", "and how many times one without prompts (default 2; 0: any)", 0, 1e6 },
        { "--batching", CLI_STRING, &o.batching, "HOW", "continuous or static (for comparing)" },
        { "--share-prefixes", CLI_FLAG, &o.share_prefixes, NULL, "cached prefixes are found by every key" },
        { "--no-prefix-cache", CLI_FLAG, &o.no_prefix_cache, NULL, "keep no prefixes" },
        { "--max-waiting", CLI_INT, &o.s.max_waiting, "N", "requests that wait; more: 429 (default 1024)", 1, 1 << 20 },
        { "--max-wait", CLI_FLOAT, &o.max_wait_s, "S", "requests that would wait longer: 429 (default: none)", 0, 1e9 },
        { "--max-waiting-tokens", CLI_INT, &o.max_waiting_ids, "N", "and their prompts' tokens", 1, INT32_MAX },
        { "--max-choices", CLI_INT, &o.s.max_choices, "N", "answers of one request (default 1024)", 1, 65536 },
        { "--max-body", CLI_BYTES, &o.s.max_body, "BYTES", "of a request (default 32M)" },
        { "--max-header", CLI_BYTES, &o.s.max_header, "BYTES", "memory of a connection (default 32K)" },
        { "--max-connections", CLI_INT, &o.s.max_connections, "N", "at once (default 4096)", 1, 1 << 20 },
        { "--http-threads", CLI_INT, &o.s.n_threads, "N", "threads that read requests (default 2)", 1, 64 },
        { "--request-timeout", CLI_FLOAT, &o.request_s, "S", "no request runs longer (default 3600)", 0, 1e9 },
        { "--queue-timeout", CLI_FLOAT, &o.queue_s, "S", "or waits longer for its turn (default 600)", 0, 1e9 },
        { "--drain-timeout", CLI_FLOAT, &o.drain_s, "S", "what runs may go on after SIGTERM (default 30)", 0, 1e9 },
        { "--idle-timeout", CLI_FLOAT, &o.idle_s, "S", "of a connection without a request (default 120)", 0, 1e9 },
        { "--header-timeout", CLI_FLOAT, &o.header_s, "S", "for a request's headers (default 15)", 0, 1e9 },
        { "--body-timeout", CLI_FLOAT, &o.body_s, "S", "for a request's body (default 60)", 0, 1e9 },
        { "--write-timeout", CLI_FLOAT, &o.write_s, "S", "for a client that takes nothing (default 300)", 0, 1e9 },
        { "--ping", CLI_FLOAT, &o.ping_s, "S", "write to silent streams so often (default 5; 0: never)", 0, 1e9 },
        { "--store", CLI_STRING, &o.s.store_dir, "DIR",
          "keep responses and conversations here (default: in memory, for an hour)" },
        { "--batch-dir", CLI_STRING, &o.s.batch_dir, "DIR", "keep files and batches here (default: there are none)" },
        { "--batch-lines", CLI_INT, &o.s.batch_lines, "N", "of batches, that run at once (default 8)", 1, 4096 },
        { "--max-batches", CLI_INT, &o.s.max_batches, "N", "of one key, that have not ended (default 64)", 1, 1 << 20 },
        { "--watchdog", CLI_FLOAT, &o.watchdog_s, "S", "a longer step is a fault (default 30; 0: none)", 0, 1e9 },
        { "--sandbox", CLI_FLAG, &o.sandbox, NULL,
          "once open, reach only files and folders that options name, and make only the system calls of serving" },
        { "--user", CLI_STRING, &o.user, "NAME", "started as root: become this user before anything is opened" },
        { "--verbose", CLI_FLAG, &o.verbose, NULL, "a line per request on standard error: --log-level info" },
        { "--log-level", CLI_STRING, &o.log_level, "LEVEL", "error, warn (default), info (requests, too) or debug" },
        { "--log-format", CLI_STRING, &o.log_format, "HOW", "text (default), or json: one object a line" },
        { NULL },
    };
    static rg_library_model found;
    rg_error err = { 0 };

    int status = cli_parse(&o.args, &cli_serve, options, argc, argv);
    if (status >= 0)
        return status;
    if (o.args.common.json)
        return cli_usage("serve has no --json: it answers over HTTP");
    take_times(&o);
    bool ok = set_log(&o, &err) && choose_models(&o, &found, &err) && take_places(&o, &err) &&
              read_files(&o, &err);
    if (ok) {
        warn_of_strangers(&o);
        ok = read_loras(&o, &err) && (!o.user || cli_user_become(o.user, &err));
    }
    if (ok) {
        opening = true;
        catch_signals();
        ok = o.models.folder ? serve_several(&o, &err) : serve(&o, &found, &err);
    }
    free_texts(&o);
    return ok ? EXIT_DONE : cli_fail(&err);
}

const cli_command cli_serve = {
    .name = "serve", .arguments = "[MODEL]", .summary = "the HTTP server and its web page", .run = run,
    .n_positional = 1,
    .notes = "docs/SERVE.md lists the endpoints.  Without MODEL the shipped story model is used.",
};
