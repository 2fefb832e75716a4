/* test_models.c -- several models behind one server: each is opened when it is asked for, waits for memory that others
 * have, and is closed when nobody asks; whatever the others do, answers are those of each alone. */
#include "live.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "server/core.h"
#include "server/json.h"
#include "server/models.h"

enum { ASKERS = 6, ASKS = 4 };

static const char *const names[] = { "tales", "llama", "jamba", "bert", "dream" };
static const char *const folders[] = { "models/tales-1m", "tests/golden/llama", "tests/golden/jamba",
                                       "tests/golden/bert", "tests/golden/dream" };
static char path_text[RG_LEN(names)][600];
static const char *paths[RG_LEN(names)];

typedef struct world {
    rg_host *host;
    rg_server *s;
    int port;
    atomic_int n_opened;
    bool seen_early; /* models could be asked for before all were known */
    size_t kv_bytes;
} world;

static rg_engine *open_one(void *arg, const char *path, rg_served *s, rg_error *err)
{
    world *w = arg;
    rg_options o = rg_options_default();

    rg_served_loading(s, "opening", 0.5);
    atomic_fetch_add(&w->n_opened, 1);
    o.host = w->host;
    o.max_seqs = 8;
    o.kv_bytes = w->kv_bytes;
    return rg_open(path, &o, err);
}

/* Files of which only bert's tell something. */
static bool look(void *arg, const char *path, rg_model_facts *out)
{
    world *w = arg;

    w->seen_early |= rg_server_takes_work(w->s) || rg_served_hold(w->s->first);
    *out = (rg_model_facts){ .family = "bert", .weight_type = "f32", .n_parameters = 12345, .context = 77,
                             .vocab_size = 99, .abilities = { "embedding", "rerank" }, .n_abilities = 2 };
    return strstr(path, "/bert") != NULL;
}

static void start(world *w, uint64_t memory_bytes, size_t kv_bytes, double keep_alive_s)
{
    rg_server_options o = test_server_options();
    rg_error err = { 0 };

    *w = (world){ .kv_bytes = kv_bytes };
    w->host = rg_host_open(&(rg_host_options){ .n_threads = 2, .memory_bytes = memory_bytes }, &err);
    assert_ok(w->host, err);
    o.any_port = true;
    o.no_listener = true;
    w->s = rg_server_open(&o, &err);
    assert_ok(w->s, err);
    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(path_text[i], sizeof path_text[i], "%s/%s", RG_SOURCE_DIR, folders[i]);
        paths[i] = path_text[i];
    }
    assert_ok(rg_server_serve_models(w->s, &(rg_server_models){ open_one, look, w, keep_alive_s }, names, paths,
                                     RG_LEN(names), &err), err);
    assert_false(w->seen_early);
    assert_ok(rg_server_listen(w->s, &err), err);
    w->port = test_port(w->s);
}

static void stop(world *w)
{
    rg_server_close(w->s);
    rg_host_close(w->host);
}

/* What a model is asked, and how: the same every time. */
static test_reply ask(int port, int model, int what)
{
    char body[300];

    if (!strcmp(names[model], "bert")) {
        snprintf(body, sizeof body, "{\"model\":\"%s\",\"input\":[5,6,7,%d]}", names[model], 8 + what);
        return test_web_ask(port, "POST", "/v1/embeddings", NULL, body);
    }
    snprintf(body, sizeof body, "{\"prompt\":[5,6,7,%d],\"max_tokens\":12,\"temperature\":0.7,\"seed\":%d,"
             "\"model\":\"%s\"}", 8 + what, what, names[model]);
    return test_web_ask(port, "POST", "/v1/completions", NULL, body);
}

/* The answer without what differs from call to call. */
static char *essence(test_reply *r)
{
    const char *from = strstr(r->body, "\"choices\"") ? strstr(r->body, "\"choices\"") : strstr(r->body, "\"data\"");
    const char *end = from ? strstr(from, "\"usage\"") : NULL;

    if (r->status != 200 || !from)
        fail_msg("%d %s", r->status, r->body);
    char *s = strndup(from, end ? (size_t)(end - from) : strlen(from));
    test_reply_free(r);
    return s;
}

static char *alone[RG_LEN(names)][ASKS];

static void learn_answers(void)
{
    world w;

    start(&w, 0, (size_t)8 << 20, -1);
    for (size_t i = 0; i < RG_LEN(names); i++)
        for (int k = 0; k < ASKS; k++) {
            test_reply r = ask(w.port, (int)i, k);
            alone[i][k] = essence(&r);
        }
    assert_int_equal(atomic_load(&w.n_opened), RG_LEN(names)); /* each once */
    stop(&w);
}

typedef struct asker {
    pthread_t thread;
    world *w;
    int first, n_wrong;
} asker;

static void *ask_all(void *arg)
{
    asker *a = arg;

    for (int i = 0; i < (int)RG_LEN(names) * 2; i++) {
        int model = (a->first + i) % (int)RG_LEN(names), k = (a->first * 3 + i) % ASKS;
        test_reply r = ask(a->w->port, model, k);
        char *got = essence(&r);

        a->n_wrong += strcmp(got, alone[model][k]) != 0;
        free(got);
    }
    return NULL;
}

static void ask_from_many(world *w)
{
    asker askers[ASKERS];

    for (int i = 0; i < ASKERS; i++) {
        askers[i] = (asker){ .w = w, .first = i };
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask_all, &askers[i]), 0);
    }
    for (int i = 0; i < ASKERS; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].n_wrong, 0);
    }
}

static void models_answer_beside_each_other(void **state)
{
    world w;

    (void)state;
    learn_answers();
    start(&w, 0, (size_t)8 << 20, -1);
    ask_from_many(&w);
    assert_int_equal(atomic_load(&w.n_opened), RG_LEN(names));
    stop(&w);
}

/* Memory for two of them: they take turns, and everybody is answered. */
static void they_share_memory(void **state)
{
    world w;

    (void)state;
    start(&w, (uint64_t)40 << 20, (size_t)8 << 20, -1);
    ask_from_many(&w);
    assert_true(atomic_load(&w.n_opened) > (int)RG_LEN(names));
    stop(&w);
}

static void expect_loaded(int port, const char *name, bool loaded)
{
    char want[100];
    test_reply r = test_web_ask(port, "GET", "/v1/models", NULL, NULL);

    snprintf(want, sizeof want, "\"id\":\"%s\"", name);
    const char *at = strstr(r.body, want);
    assert_non_null(at);
    at = strstr(at, "\"loaded\":");
    assert_non_null(at);
    if (strncmp(at + 9, loaded ? "true" : "false", 4) != 0)
        fail_msg("%s: %s", name, r.body);
    test_reply_free(&r);
}

static bool is_loaded(int port, const char *name)
{
    char path[100];

    snprintf(path, sizeof path, "/v1/models/%s", name);
    test_reply r = test_web_ask(port, "GET", path, NULL, NULL);
    bool loaded = strstr(r.body, "\"loaded\":true");
    test_reply_free(&r);
    return loaded;
}

static void what_nobody_asks_for_is_closed(void **state)
{
    world w;

    (void)state;
    start(&w, 0, (size_t)8 << 20, 0.3);
    expect_loaded(w.port, "llama", false);
    test_reply r = ask(w.port, 1, 0);
    char *first = essence(&r);
    TEST_UNTIL(!is_loaded(w.port, "llama"));
    r = ask(w.port, 1, 0);
    char *again = essence(&r);
    assert_string_equal(first, again);
    assert_int_equal(atomic_load(&w.n_opened), 2);
    free(first);
    free(again);
    stop(&w);
}

/* Ollama's keep_alive: -1 keeps it, 0 closes it. */
static void clients_say_how_long(void **state)
{
    world w;

    (void)state;
    start(&w, 0, (size_t)8 << 20, 0.2);
    test_reply r = test_web_ask(w.port, "POST", "/api/generate", NULL,
                                "{\"model\":\"tales\",\"prompt\":\"Once\",\"options\":{\"num_predict\":3},"
                                "\"stream\":false,\"keep_alive\":-1}");
    assert_int_equal(r.status, 200);
    test_reply_free(&r);
    r = ask(w.port, 1, 0);
    test_reply_free(&r);
    TEST_UNTIL(!is_loaded(w.port, "llama"));
    assert_true(is_loaded(w.port, "tales"));
    r = test_web_ask(w.port, "GET", "/api/ps", NULL, NULL);
    assert_non_null(strstr(r.body, "\"tales:latest\""));
    assert_null(strstr(r.body, "\"llama:latest\""));
    test_reply_free(&r);
    r = test_web_ask(w.port, "GET", "/api/tags", NULL, NULL);
    for (size_t i = 0; i < RG_LEN(names); i++)
        assert_non_null(strstr(r.body, names[i]));
    test_reply_free(&r);
    r = test_web_ask(w.port, "POST", "/api/generate", NULL, "{\"model\":\"tales\",\"keep_alive\":0}");
    assert_int_equal(r.status, 200);
    test_reply_free(&r);
    TEST_UNTIL(!is_loaded(w.port, "tales"));
    stop(&w);
}

static json_t *get(int port, const char *path)
{
    test_reply r = test_web_ask(port, "GET", path, NULL, NULL);

    if (r.status != 200)
        fail_msg("GET %s: %d %s", path, r.status, r.body);
    json_t *v = test_reply_json(&r);
    test_reply_free(&r);
    return v;
}

static int64_t next_step(int port, const char *path)
{
    json_t *v = get(port, path);
    int64_t next = json_integer_value(json_object_get(v, "next"));

    json_decref(v);
    return next;
}

static bool has_plan(int port, const char *path, const char *want_state)
{
    json_t *v = get(port, path);
    bool has = json_object_get(v, "plan") != NULL;

    assert_string_equal(test_json_text(v, "state"), want_state);
    json_decref(v);
    return has;
}

/* /steps and /status are of the model that the query names; they open none, and keep none open. */
static void steps_and_status_are_of_one_model(void **state)
{
    world w;

    (void)state;
    start(&w, 0, (size_t)8 << 20, 0.3);
    assert_int_equal(next_step(w.port, "/steps?model=llama"), 0);
    assert_false(has_plan(w.port, "/status?model=llama", "closed"));
    assert_false(has_plan(w.port, "/status", "closed"));
    assert_int_equal(test_web_status(w.port, "/steps?model=nobody", NULL), 404);
    assert_int_equal(test_web_status(w.port, "/status?model=nobody", NULL), 404);
    assert_int_equal(atomic_load(&w.n_opened), 0);
    test_reply r = test_web_ask(w.port, "POST", "/v1/completions", "X-Request-Id: of-llama\r\n",
                                "{\"prompt\":[5,6,7],\"max_tokens\":6,\"ignore_eos\":true,\"model\":\"llama\"}");
    assert_int_equal(r.status, 200);
    test_reply_free(&r);
    TEST_UNTIL(next_step(w.port, "/steps?model=llama") == 6);
    assert_int_equal(next_step(w.port, "/steps"), 0); /* the first: tales */
    assert_int_equal(test_web_status(w.port, "/trace/of-llama", NULL), 200);
    TEST_UNTIL((next_step(w.port, "/steps?model=llama"), !is_loaded(w.port, "llama"))); /* asking keeps it not open */
    assert_false(has_plan(w.port, "/status?model=llama", "closed"));
    json_t *v = get(w.port, "/steps?model=llama"); /* they stay, and the limits are those of an open model */
    assert_int_equal(json_integer_value(json_object_get(v, "next")), 6);
    assert_string_equal(test_json_text(v, "model"), "llama");
    assert_float_equal(json_number_value(json_object_get(v, "bytes_per_s")), 0, 0);
    json_decref(v);
    v = get(w.port, "/status?model=llama");
    assert_float_equal(json_number_value(json_object_get(v, "state_used")), 0, 0); /* nothing is in memory */
    json_decref(v);
    r = ask(w.port, 1, 0);
    test_reply_free(&r);
    TEST_UNTIL(next_step(w.port, "/steps?model=llama") > 6); /* counted on */
    assert_int_equal(test_web_status(w.port, "/trace/of-llama", NULL), 200);
    stop(&w);
}

/* A pipe without room in place of standard error: whoever writes a line to the log waits. */
typedef struct stuck_log {
    int pipe[2], stderr_fd;
} stuck_log;

static void stick_log(stuck_log *l)
{
    static const char some[4096];

    assert_int_equal(pipe(l->pipe), 0);
    assert_int_equal(fcntl(l->pipe[1], F_SETFL, O_NONBLOCK), 0);
    while (write(l->pipe[1], some, sizeof some) > 0)
        ;
    assert_int_equal(fcntl(l->pipe[1], F_SETFL, 0), 0);
    l->stderr_fd = dup(STDERR_FILENO);
    assert_true(l->stderr_fd >= 0 && dup2(l->pipe[1], STDERR_FILENO) >= 0);
}

/* Whoever waits goes on. */
static void free_log(stuck_log *l)
{
    char some[4096];

    dup2(l->stderr_fd, STDERR_FILENO);
    close(l->stderr_fd);
    close(l->pipe[1]);
    while (read(l->pipe[0], some, sizeof some) > 0)
        ;
    close(l->pipe[0]);
}

static bool is_held(world *w, int model)
{
    rg_served *s = rg_server_nth(w->s, model);
    bool held = rg_served_hold(s);

    if (held)
        rg_served_release(s);
    return held;
}

/* Its engine is still there, and everything that tells of the model says that it is closed.  The thread that closes it
 * stands at the line that it writes before. */
static void what_is_being_closed_is_closed_for_all(void **state)
{
    double from = test_real_s();
    stuck_log l;
    world w;

    (void)state;
    start(&w, 0, (size_t)8 << 20, 0.2);
    test_reply r = ask(w.port, 1, 0);
    test_reply_free(&r);
    stick_log(&l);
    rg_log_set_level(RG_LOG_INFO);
    while (is_held(&w, 1) && test_real_s() - from < TEST_WATCHDOG_S)
        test_nap(0.0005);
    rg_log_set_level(RG_LOG_WARN);
    bool loaded = is_loaded(w.port, "llama");
    json_t *v = get(w.port, "/status?model=llama");
    bool has_engine = rg_server_nth(w.s, 1)->engine;
    free_log(&l);
    assert_true(has_engine && !loaded);
    assert_string_equal(test_json_text(v, "state"), "closed");
    assert_float_equal(json_number_value(json_object_get(v, "state_used")), 0, 0);
    assert_null(json_object_get(v, "plan"));
    json_decref(v);
    stop(&w);
}

/* What can be known of a model that is not open is told; once it is open, its own facts. */
static void files_tell_what_a_model_can_do(void **state)
{
    world w;

    (void)state;
    start(&w, 0, (size_t)8 << 20, -1);
    json_t *v = get(w.port, "/v1/models/bert");
    assert_string_equal(test_json_text(v, "capabilities.1"), "rerank");
    assert_int_equal(json_integer_value(test_json_at(v, "max_model_len")), 77);
    assert_int_equal(json_integer_value(test_json_at(v, "meta.n_params")), 12345);
    assert_true(json_is_false(test_json_at(v, "loaded")) && json_is_false(test_json_at(v, "meta.chat_template")));
    json_decref(v);
    v = get(w.port, "/v1/models/llama");
    assert_null(test_json_at(v, "capabilities"));
    assert_true(json_integer_value(test_json_at(v, "meta.size")) > 0);
    json_decref(v);
    v = get(w.port, "/api/tags");
    for (size_t i = 0; i < RG_LEN(names); i++) { /* in the order of the list */
        const json_t *one = json_array_get(test_json_at(v, "models"), i);
        assert_int_equal(test_json_at(one, "capabilities") != NULL, !strcmp(names[i], "bert"));
        assert_int_equal(test_json_at(one, "details.family") != NULL, !strcmp(names[i], "bert"));
    }
    json_decref(v);
    assert_int_equal(atomic_load(&w.n_opened), 0);
    test_reply r = ask(w.port, 3, 0);
    test_reply_free(&r);
    v = get(w.port, "/v1/models/bert");
    assert_true(json_is_true(test_json_at(v, "loaded")));
    assert_int_not_equal(json_integer_value(test_json_at(v, "meta.n_params")), 12345);
    json_decref(v);
    stop(&w);
}

static void what_cannot_be_is_refused(void **state)
{
    static const char *const bad[] = { "{\"model\":\"nobody\",\"prompt\":[1]}", "{\"model\":\"llam\",\"prompt\":[1]}" };
    world w;

    (void)state;
    start(&w, (uint64_t)1 << 20, (size_t)8 << 20, -1);
    for (size_t i = 0; i < RG_LEN(bad); i++) {
        test_reply r = test_web_ask(w.port, "POST", "/v1/completions", NULL, bad[i]);
        assert_int_equal(r.status, 404);
        assert_non_null(strstr(r.body, "'jamba'"));
        test_reply_free(&r);
    }
    test_reply r = ask(w.port, 1, 0); /* no memory for any model */
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "too little memory"));
    test_reply_free(&r);
    r = test_web_ask(w.port, "GET", "/metrics", NULL, NULL);
    assert_int_equal(r.status, 200);
    test_reply_free(&r);
    r = test_web_ask(w.port, "GET", "/health", NULL, NULL);
    assert_int_equal(r.status, 200);
    test_reply_free(&r);
    stop(&w);
}

static void the_body_names_the_model(void **state)
{
    static const struct {
        const char *body, *name;
    } cases[] = {
        { "{\"model\":\"a\"}", "a" },
        { " { \"x\" : {\"model\":\"b\"}, \"model\" : \"a\" }", "a" },
        { "{\"x\":\"\\\"model\\\":\\\"b\\\"\",\"model\":\"a\"}", "a" },
        { "{\"x\":[\"model\",\"b\"],\"model\":\"\\u00e4\\\"\"}", "\xc3\xa4\"" },
        { "{\"model\":7}", NULL },
        { "{\"model\"", NULL },
        { "{\"model\":\"a", NULL },
        { "{\"modeL\":\"a\"}", NULL },
        { "[{\"model\":\"a\"}]", NULL },
        { "{\"model\":\"aaaaaaaaaaaaaaaa\"}", NULL }, /* too long */
        { "", NULL },
    };
    char name[16];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        bool found = rg_json_member(cases[i].body, strlen(cases[i].body), "model", name, sizeof name);

        if (found != (cases[i].name != NULL) || (found && strcmp(name, cases[i].name) != 0))
            fail_msg("%s: %s", cases[i].body, found ? name : "none");
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_body_names_the_model),
        cmocka_unit_test(models_answer_beside_each_other),
        cmocka_unit_test(they_share_memory),
        cmocka_unit_test(what_nobody_asks_for_is_closed),
        cmocka_unit_test(clients_say_how_long),
        cmocka_unit_test(steps_and_status_are_of_one_model),
        cmocka_unit_test(what_is_being_closed_is_closed_for_all),
        cmocka_unit_test(files_tell_what_a_model_can_do),
        cmocka_unit_test(what_cannot_be_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
