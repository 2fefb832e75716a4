/* test_held.c -- the server over an engine that the test holds before any step: clients that reset their connection in every
 * state there is, a full queue, deadlines, and an engine that is lost.  Linked so that the scheduler, and the server's wait
 * for the engine, are asked through here. */
#define _GNU_SOURCE 1
#include "server/held.h"

#include <sys/socket.h>

#define HEAD "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"

/* ---- the engine, held -------------------------------------------------------------------------------------------- */

static atomic_int n_looks; /* that the server's thread took at the engine */

bool __real_rg_engine_wait(rg_engine *e, uint64_t *seen, double timeout_s);
bool __wrap_rg_engine_wait(rg_engine *e, uint64_t *seen, double timeout_s);

bool __wrap_rg_engine_wait(rg_engine *e, uint64_t *seen, double timeout_s)
{
    atomic_fetch_add(&n_looks, 1);
    return __real_rg_engine_wait(e, seen, timeout_s);
}

static test_server t;

static void start(const rg_server_options *o, int max_seqs)
{
    let_go();
    rg_clock_set(NULL, NULL);
    test_server_start(&t, o, 1024, max_seqs);
}

static void stop(void)
{
    let_go();
    rg_clock_set(NULL, NULL);
    test_server_stop(&t);
}

static int open_request(const char *headers, const char *body)
{
    char all[2 * 8192];
    int fd = test_web_connect(t.port);
    int n = snprintf(all, sizeof all, HEAD "%sContent-Length: %zu\r\n\r\n%s", headers, strlen(body), body);

    assert_true((size_t)n < sizeof all && test_web_send(fd, all, (size_t)n));
    return fd;
}

static uint64_t n_steps(void)
{
    return rg_engine_stats(t.engine).n_steps;
}

static int n_waiting(void)
{
    return rg_engine_stats(t.engine).n_waiting;
}

static int n_running(void)
{
    return rg_engine_stats(t.engine).n_running;
}

/* The number after a name in the server's figures. */
static double figure(const char *name)
{
    test_reply r = test_web_ask(t.port, "GET", "/metrics", NULL, NULL);
    char *at = r.body;

    assert_int_equal(r.status, 200);
    while ((at = strstr(at, name)) && (at[strlen(name)] != '{' || at[-1] != '\n'))
        at++;
    assert_non_null(at);
    double v = atof(strchr(at, '}') + 1);
    test_reply_free(&r);
    return v;
}

/* ---- clients that reset their connection ------------------------------------------------------------------------- */

enum { RESET, CLOSE, HALF_CLOSE, N_WAYS };

static void leave(int fd, int how)
{
    const struct linger reset = { .l_onoff = 1 };

    if (how == RESET)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (how == HALF_CLOSE)
        shutdown(fd, SHUT_WR);
    close(fd);
}

static void read_until(int fd, const char *what, int times)
{
    static char got[1 << 16];
    size_t n = 0;
    int seen = 0;

    while (seen < times) {
        long k = test_web_some(fd, got + n, sizeof got - 1 - n, TEST_WATCHDOG_S);
        if (k <= 0)
            fail_msg("no '%s' in: %.300s", what, got);
        n += (size_t)k;
        got[n] = 0;
        seen = 0;
        for (const char *p = got; (p = strstr(p, what)); p++)
            seen++;
    }
}

static const char whole[] = HEAD "Content-Length: 62\r\n\r\n"
                            "{\"prompt\":\"a\",\"max_tokens\":6,\"ignore_eos\":true,\"stream\":false}";
static char long_prompt[8192]; /* of more rows than a step has */

#define STREAM "{\"prompt\":\"a\",\"max_tokens\":12,\"ignore_eos\":true,\"temperature\":0,\"stream\":true}"
#define NO_STREAM "{\"prompt\":\"a\",\"max_tokens\":12,\"ignore_eos\":true,\"temperature\":0}"

static void at_connect(int how)
{
    leave(test_web_connect(t.port), how);
}

static void send_part(int how, size_t n)
{
    int fd = test_web_connect(t.port);

    assert_true(test_web_send(fd, whole, n));
    test_nap(0.001);
    leave(fd, how);
}

static void in_headers(int how)
{
    send_part(how, 40);
}

static void after_headers(int how)
{
    send_part(how, (size_t)(strstr(whole, "\r\n\r\n") + 4 - whole));
}

static void in_body(int how)
{
    send_part(how, sizeof whole - 20);
}

static void after_body(int how)
{
    send_part(how, sizeof whole - 1);
}

/* Held, a client has gone and the server knows; then at most one step more is made for it. */
static void gone_while_held(int fd, int how)
{
    uint64_t before = n_steps();

    TEST_UNTIL(rg_server_in_flight(t.s)); /* it is submitted a moment before it is counted */
    leave(fd, how);
    TEST_UNTIL(!rg_server_in_flight(t.s));
    let_go();
    test_server_quiet(&t);
    if (n_steps() > before + 1)
        fail_msg("%d steps for one who has gone", (int)(n_steps() - before));
}

static void in_queue(int how)
{
    hold();
    int fd = open_request("", STREAM);
    TEST_UNTIL(n_waiting() == 1);
    gone_while_held(fd, how);
}

static void in_prefill(int how)
{
    static int n_times;
    uint64_t before = rg_engine_stats(t.engine).n_output;
    char body[sizeof long_prompt + 64];

    snprintf(body, sizeof body, "{\"cache_salt\":\"%d\",%s", n_times++, long_prompt); /* all of it is computed each time */
    hold();
    int fd = open_request("", body);
    TEST_UNTIL(n_waiting() == 1);
    atomic_store(&permits, 1);
    TEST_UNTIL(n_running() == 1);
    assert_int_equal(rg_engine_stats(t.engine).n_output, before);
    gone_while_held(fd, how);
}

static void at_first_token(int how)
{
    uint64_t before = n_steps();

    hold();
    int fd = open_request("", STREAM);
    TEST_UNTIL(n_waiting() == 1);
    atomic_store(&permits, 1);
    TEST_UNTIL(n_steps() == before + 1);
    gone_while_held(fd, how);
}

static void in_silence(int how)
{
    uint64_t before = n_steps();

    hold();
    int fd = open_request("", NO_STREAM);
    TEST_UNTIL(n_waiting() == 1);
    atomic_store(&permits, 4);
    TEST_UNTIL(n_steps() == before + 4);
    gone_while_held(fd, how);
}

static void in_mid_stream(int how)
{
    uint64_t before = n_steps();

    hold();
    int fd = open_request("", STREAM);
    TEST_UNTIL(n_waiting() == 1);
    atomic_store(&permits, 6);
    TEST_UNTIL(n_steps() == before + 6);
    read_until(fd, "\"text\":", 1);
    gone_while_held(fd, how);
}

static void before_last_token(int how)
{
    uint64_t before = n_steps();

    hold();
    int fd = open_request("", STREAM);
    TEST_UNTIL(n_waiting() == 1);
    atomic_store(&permits, 11);
    TEST_UNTIL(n_steps() == before + 11);
    gone_while_held(fd, how);
}

/* The connection is one that would have gone on. */
static void after_done(int how)
{
    int fd = open_request("", STREAM);

    read_until(fd, "data: [DONE]\n\n", 1);
    leave(fd, how);
}

static void in_second_request(int how)
{
    int fd = open_request("", STREAM);

    read_until(fd, "data: [DONE]\n\n", 1);
    read_until(fd, "0\r\n\r\n", 0);
    assert_true(test_web_send(fd, whole, sizeof whole - 9));
    leave(fd, how);
}

static void whenever_it_is_reset_all_comes_back(void **state)
{
    static void (*const states[])(int how) = { in_prefill, at_connect, in_headers, after_headers, in_body, after_body, in_queue,
                                               at_first_token, in_silence, in_mid_stream, before_last_token, after_done,
                                               in_second_request };
    rg_server_options o = test_server_options();
    size_t n = (size_t)sprintf(long_prompt, "\"max_tokens\":2,\"prompt\":[9");

    (void)state;
    for (int i = 1; i < 1000; i++)
        n += (size_t)sprintf(long_prompt + n, ",%d", 5 + i % 90);
    strcpy(long_prompt + n, "]}");
    for (size_t i = 0; i < RG_LEN(states); i++) {
        start(&o, 4);
        for (int k = 0; k < N_WAYS * (1 + test_scale(10) / 10); k++) {
            states[i](k % N_WAYS);
            test_server_quiet(&t);
            rg_engine_check(t.engine);
            assert_int_equal(rg_engine_stats(t.engine).state_used_bytes, 0);
        }
        TEST_UNTIL(figure("vllm:num_requests_running") + figure("vllm:num_requests_waiting") +
                       figure("vllm:kv_cache_usage_perc") == 0);
        json_decref(test_web_json(t.port, "/v1/completions", NO_STREAM, 200));
        stop();
    }
}

/* ---- too much ---------------------------------------------------------------------------------------------------- */

/* The status of the answer to these bytes, after which nothing more is sent. */
static int ask_status(const char *bytes, size_t n)
{
    int fd = test_web_connect(t.port);

    assert_true(test_web_send(fd, bytes, n));
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
    const char *after = test_reply_header(&r, "Retry-After");
    int status = r.status;

    if (status == 429 && (!after || atoi(after) < 1 || strspn(after, "0123456789") != strlen(after)))
        fail_msg("Retry-After: %s", after ? after : "none");
    test_reply_free(&r);
    close(fd);
    return status;
}

static void a_full_queue_refuses_at_the_headers(void **state)
{
    enum { N = 100, N_LARGE = 900000 };
    static const char early[] = HEAD "Content-Length: 100000\r\n\r\n";
    rg_server_options o = test_server_options();
    int fd[4];

    (void)state;
    o.max_waiting = 4;
    o.body_timeout_s = 0; /* an answer to a body that never comes was not waiting for it */
    start(&o, 2);
    hold();
    for (int i = 0; i < 4; i++) {
        fd[i] = open_request("", STREAM);
        TEST_UNTIL(n_waiting() == i + 1);
    }
    assert_int_equal(test_web_status(t.port, "/readyz", NULL), 503);
    assert_int_equal(test_web_status(t.port, "/livez", NULL), 200);
    for (int i = 0; i < N; i++)
        assert_int_equal(ask_status(whole, sizeof whole - 1), 429);
    assert_int_equal(figure("ridge_requests_rejected_total"), N);
    /* of a long body nothing is waited for */
    for (int i = 0; i < 10; i++)
        assert_int_equal(ask_status(early, strlen(early)), 429);
    /* who sends all of it before it reads is told as well, and not cut off: an answer is lost if its sender closes first */
    char *large = calloc(1, N_LARGE + 200);
    int n = sprintf(large, HEAD "Content-Length: %d\r\n\r\n", N_LARGE);
    for (int i = 0; i < 5; i++) {
        int s = test_web_connect(t.port);
        assert_true(test_web_send(s, large, (size_t)n));
        test_nap(0.02); /* it has been answered by now */
        assert_true(test_web_send(s, large + n, N_LARGE));
        test_reply r = test_web_read(s, TEST_WATCHDOG_S);
        assert_int_equal(r.status, 429);
        test_reply_free(&r);
        close(s);
    }
    free(large);
    let_go();
    for (int i = 0; i < 4; i++) { /* who was let in is served */
        read_until(fd[i], "data: [DONE]\n\n", 1);
        close(fd[i]);
    }
    test_server_quiet(&t);
    assert_int_equal(test_web_status(t.port, "/readyz", NULL), 200);
    stop();
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

static void who_waits_too_long_is_told(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    o.queue_timeout_s = 0.1;
    start(&o, 2);
    hold();
    int fd = open_request("", NO_STREAM), stream = open_request("", STREAM);
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
    assert_int_equal(r.status, 503);
    assert_true(atoi(test_reply_header(&r, "Retry-After")) >= 1);
    assert_non_null(strstr(r.body, "queue_timeout"));
    test_reply_free(&r);
    read_until(stream, "queue_timeout", 1); /* its headers are out: an error event */
    close(fd);
    close(stream);
    TEST_UNTIL(!rg_server_in_flight(t.s));
    let_go();
    test_server_quiet(&t);
    stop();
}

/* A request that runs, held, and has some tokens. */
static int open_and_run(const char *headers, const char *body)
{
    uint64_t before = n_steps();

    hold();
    int fd = open_request(headers, body);
    TEST_UNTIL(n_waiting() == 1);
    atomic_store(&permits, 3);
    TEST_UNTIL(n_steps() == before + 3);
    return fd;
}

static void check_ended_by_deadline(int fd)
{
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
    json_t *v = test_reply_json(&r);

    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.body, "\"stop_reason\":\"deadline\""));
    assert_in_range(json_integer_value(test_json_at(v, "usage.completion_tokens")), 3, 5);
    json_decref(v);
    test_reply_free(&r);
    close(fd);
}

static void a_deadline_ends_it_with_what_there_is(void **state)
{
    static const char body[] = "{\"prompt\":\"a\",\"max_tokens\":900,\"ignore_eos\":true}";
    rg_server_options o = test_server_options();

    (void)state;
    start(&o, 1);
    stop_clock(0);
    int fd = open_and_run("X-Request-Timeout: 10\r\n", body);
    int waits = open_request("X-Request-Timeout: 2\r\n", body); /* there is one sequence */
    TEST_UNTIL(n_waiting() == 1);
    pass(3);
    atomic_store(&permits, 1);
    test_reply r = test_web_read(waits, TEST_WATCHDOG_S);
    assert_int_equal(r.status, 504);
    test_reply_free(&r);
    close(waits);
    pass(8);
    let_go();
    check_ended_by_deadline(fd);
    stop();
    /* the server's own limit, which no client can raise */
    o.request_timeout_s = 5;
    start(&o, 1);
    stop_clock(0);
    fd = open_and_run("X-Request-Timeout: 1000\r\n", body);
    pass(6);
    let_go();
    check_ended_by_deadline(fd);
    stop();
}

/* No step ends any more: whoever is there is told, and nobody waits. */
static void check_lost(int whole_fd, int stream_fd)
{
    test_reply r;

    TEST_UNTIL(test_web_status(t.port, "/readyz", NULL) == 503);
    assert_true(rg_server_faulted(t.s));
    assert_int_equal(test_web_status(t.port, "/livez", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/health", NULL), 503);
    if (whole_fd >= 0) {
        r = test_web_read(whole_fd, TEST_WATCHDOG_S);
        assert_int_equal(r.status, 500);
        assert_non_null(strstr(r.body, "engine_fault"));
        test_reply_free(&r);
        close(whole_fd);
    }
    read_until(stream_fd, "engine_fault", 1);
    close(stream_fd);
    r = test_web_ask(t.port, "POST", "/v1/completions", NULL, NO_STREAM);
    assert_int_equal(r.status, 503);
    assert_non_null(strstr(r.body, "engine_fault"));
    assert_true(atoi(test_reply_header(&r, "Retry-After")) >= 1);
    test_reply_free(&r);
    TEST_UNTIL(!rg_server_in_flight(t.s));
    rg_server_drain(t.s);
    assert_true(rg_server_faulted(t.s)); /* which a signal does not mend */
}

/* The server looks at the engine again and again, and counts little time between two looks, until it is taken to be lost. */
static void pass_while_watched(double s)
{
    for (double passed = 0; passed < s && !rg_server_faulted(t.s); passed += 0.05) {
        pass(0.05);
        int n = atomic_load(&n_looks);
        TEST_UNTIL(atomic_load(&n_looks) >= n + 2 || rg_server_faulted(t.s)); /* one may have begun before */
    }
}

static void a_lost_engine_is_noticed(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    o.watchdog_s = 0.1;
    start(&o, 4);
    hold();
    int fd = open_request("", NO_STREAM), stream = open_request("", STREAM);
    check_lost(fd, stream); /* in its very first step */
    stop();
    /* steps of so long have been usual: ten times that is what it takes */
    o.watchdog_s = 1;
    start(&o, 4);
    stop_clock(0.3);
    stream = open_and_run("", STREAM);
    pass_while_watched(2);
    assert_int_equal(test_web_status(t.port, "/readyz", NULL), 200);
    pass_while_watched(2);
    check_lost(-1, stream);
    stop();
}

/* ---- streams without news ---------------------------------------------------------------------------------------- */

#define ASK "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":true,"

/* Each kind of stream, while no step is computed: its headers come at once, and then signs of life. */
static void no_stream_is_silent(void **state)
{
    static const struct {
        const char *path, *body, *sign, *end;
    } streams[] = {
        { "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}", "\n: ", "[DONE]" },
        { "/v1/chat/completions", "{" ASK "\"max_tokens\":2}", "\n: ", "[DONE]" },
        { "/v1/responses", "{\"input\":\"a\",\"max_output_tokens\":2,\"stream\":true}", "\n: ", "response.incomplete" },
        { "/v1/messages", "{" ASK "\"max_tokens\":2}", "event: ping\n", "message_stop" },
    };
    rg_server_options o = test_server_options();
    int fd[RG_LEN(streams)];

    (void)state;
    o.ping_s = 0.01;
    start(&o, 2); /* two of the four wait for a turn */
    hold();
    for (size_t i = 0; i < RG_LEN(streams); i++) {
        char all[1000];
        int n = snprintf(all, sizeof all, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                         streams[i].path, strlen(streams[i].body), streams[i].body);
        fd[i] = test_web_connect(t.port);
        assert_true(test_web_send(fd[i], all, (size_t)n));
        read_until(fd[i], "text/event-stream", 1);
    }
    for (size_t i = 0; i < RG_LEN(streams); i++)
        read_until(fd[i], streams[i].sign, 3);
    let_go();
    for (size_t i = 0; i < RG_LEN(streams); i++) {
        read_until(fd[i], streams[i].end, 1);
        close(fd[i]);
    }
    test_server_quiet(&t);
    stop();
}

/* A prompt of as many ids as two steps compute and more, as a member of a body. */
static const char *two_steps(void)
{
    static char body[8192];
    size_t n = (size_t)snprintf(body, sizeof body, "\"prompt\":[5");

    for (int i = 1; i < 900; i++)
        n += (size_t)snprintf(body + n, sizeof body - n, ",%d", 5 + i % 7);
    snprintf(body + n, sizeof body - n, "]");
    return body;
}

/* Progress is told after each step that computes a part of the prompt, up to all of it. */
static void progress_is_told(void **state)
{
    rg_server_options o = test_server_options();
    char body[9000];
    int n = 0, last = 0;

    (void)state;
    start(&o, 2);
    snprintf(body, sizeof body, "{%s,\"max_tokens\":1,\"stream\":true,\"return_progress\":true}", two_steps());
    test_reply r = test_web_ask(t.port, "POST", "/v1/completions", NULL, body);
    assert_int_equal(r.status, 200);
    for (const char *p = r.body; (p = strstr(p, "\"prompt_progress\":{\"total\":900,\"cache\":0,\"processed\":")); n++) {
        p += strlen("\"prompt_progress\":{\"total\":900,\"cache\":0,\"processed\":");
        assert_true(atoi(p) > last && atoi(p) <= 900);
        last = atoi(p);
    }
    assert_true(n >= 2);
    assert_true(last >= 899);
    test_reply_free(&r);
    stop();
}

/* A client that leaves in the middle of its prompt: what was computed is found by the next one. */
static void an_abandoned_prompt_stays_cached(void **state)
{
    rg_server_options o = test_server_options();
    rg_options eo = rg_options_default();
    rg_error err = { 0 };
    char body[9000];

    (void)state;
    eo.max_batch_rows = 256;
    eo.max_seq_len = 1024;
    eo.kv_bytes = (size_t)64 << 20;
    eo.n_threads = 1;
    rg_engine *engine = rg_open(RG_SOURCE_DIR "/models/tales-1m", &eo, &err);
    assert_ok(engine, err);
    let_go();
    test_server_start_with(&t, &o, engine);
    hold();
    snprintf(body, sizeof body, "{%s,\"max_tokens\":4,\"stream\":true}", two_steps());
    int fd = open_request("", body);
    read_until(fd, "text/event-stream", 1);
    atomic_store(&permits, 1);
    TEST_UNTIL(n_steps() == 1);
    close(fd);
    TEST_UNTIL(!rg_server_in_flight(t.s));
    let_go();
    test_server_quiet(&t);
    uint64_t computed = rg_engine_stats(t.engine).n_rows;
    assert_true(computed >= 256 && computed <= 512); /* the step that was held with it, at most */
    snprintf(body, sizeof body, "{%s,\"max_tokens\":4}", two_steps());
    json_t *v = test_web_json(t.port, "/v1/completions", body, 200);
    json_t *d = json_object_get(json_object_get(v, "usage"), "prompt_tokens_details");
    assert_int_equal(json_integer_value(json_object_get(d, "cached_tokens")), computed);
    json_decref(v);
    stop();
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whenever_it_is_reset_all_comes_back), cmocka_unit_test(a_full_queue_refuses_at_the_headers),
        cmocka_unit_test(who_waits_too_long_is_told),          cmocka_unit_test(a_deadline_ends_it_with_what_there_is),
        cmocka_unit_test(a_lost_engine_is_noticed),            cmocka_unit_test(no_stream_is_silent),
        cmocka_unit_test(progress_is_told),                    cmocka_unit_test(an_abandoned_prompt_stays_cached),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
