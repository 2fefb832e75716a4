/* test_contract.c -- under load and at the edges: what is accepted ends, a flood shuts out nobody else, who leaves costs
 * nothing, and nobody waits for a slow reader.  What hangs on a certain step is in test_held.c. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#define LONG_STREAM "{\"prompt\":\"a\",\"max_tokens\":900,\"ignore_eos\":true,\"stream\":true}"
#define FLOOD(tokens) "{\"prompt\":\"a\",\"max_tokens\":" tokens ",\"ignore_eos\":true,\"n\":6}"

/* A streaming request on a connection of its own, whose answer nobody has read. */
static int open_slow_stream(int port, const char *body, int window)
{
    char all[2048];
    int fd = test_web_connect_slow(port, window);
    int n = snprintf(all, sizeof all, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                     strlen(body), body);

    assert_true(test_web_send(fd, all, (size_t)n));
    return fd;
}

static int open_stream(int port, const char *body)
{
    return open_slow_stream(port, body, 0);
}

static void wait_running(const test_server *t, int n)
{
    uint64_t from = rg_now_ns();

    while (rg_engine_stats(t->engine).n_running < n) {
        assert_true(rg_seconds(from, rg_now_ns()) < TEST_WATCHDOG_S);
        test_nap(0.001);
    }
}

/* ---- clients that leave ------------------------------------------------------------------------------------------ */

static void who_leaves_is_cancelled(void **state)
{
    rg_server_options o = test_server_options();
    const struct linger reset = { .l_onoff = 1 };
    test_server t;
    char some[4096];

    (void)state;
    test_server_start(&t, &o, 1024, 4);
    for (int i = 0; i < test_scale(60); i++) {
        uint64_t steps = rg_engine_stats(t.engine).n_steps;
        int fd = open_stream(t.port, i % 3 ? LONG_STREAM : "{\"prompt\":\"a\",\"max_tokens\":900,\"ignore_eos\":true}");
        if (i % 4 == 1)
            test_web_some(fd, some, sizeof some, TEST_WATCHDOG_S); /* in the middle of the answer */
        else if (i % 4 == 2)
            TEST_UNTIL(rg_engine_stats(t.engine).n_steps > steps);
        if (i % 2)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
    }
    test_server_quiet(&t);
    assert_true(rg_engine_stats(t.engine).n_output < 900u * (unsigned)test_scale(60) / 2); /* and did not run to the end */
    rg_engine_check(t.engine);
    /* one that waits in silence for its whole answer: nothing is written that could fail */
    uint64_t before = rg_engine_stats(t.engine).n_output;
    int fd = open_stream(t.port, "{\"prompt\":\"a\",\"max_tokens\":1000,\"ignore_eos\":true,\"n\":4}");
    TEST_UNTIL(rg_engine_stats(t.engine).n_output > before);
    close(fd);
    test_server_quiet(&t);
    assert_true(rg_engine_stats(t.engine).n_output - before < 2000);
    /* others are none the wiser */
    json_decref(test_web_json(t.port, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":5}", 200));
    test_server_stop(&t);
}

static void slow_readers_hold_up_nobody(void **state)
{
    enum { N_SLOW = TEST_SLOWER > 1 ? 4 : 12, N_IDLE = 150 };
    rg_server_options o = test_server_options();
    test_server t;
    int slow[N_SLOW], idle[N_IDLE];

    (void)state;
    test_server_start(&t, &o, 1024, 64);
    for (int i = 0; i < N_IDLE; i++)
        idle[i] = test_web_connect(t.port);
    for (int i = 0; i < N_SLOW; i++)
        slow[i] = open_slow_stream(t.port, LONG_STREAM, 4096);
    json_t *v = test_web_json(t.port, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":40,\"ignore_eos\":true}", 200);
    json_decref(v);
    test_server_quiet(&t); /* all are done, though nobody read */
    for (int i = 0; i < N_SLOW; i++) {
        test_reply r = test_web_read(slow[i], TEST_WATCHDOG_S);
        assert_int_equal(r.status, 200);
        char *last = strstr(r.body, "data: [DONE]\n\n");
        if (!last)
            fail_msg("%d: %zu bytes, the last: %s", i, r.n_body, r.body + (r.n_body > 300 ? r.n_body - 300 : 0));
        assert_int_equal(last[strlen("data: [DONE]\n\n")], 0);
        test_reply_free(&r);
        close(slow[i]);
    }
    for (int i = 0; i < N_IDLE; i++)
        close(idle[i]);
    test_server_stop(&t);
}

/* A client that takes nothing of a long stream for so long is closed in the middle of it; nobody else notices. */
static void who_reads_nothing_is_closed(void **state)
{
    rg_server_options o = test_server_options();
    size_t room = (size_t)64 << 20, n = 0;
    test_server t;
    char *all = malloc(room);
    long k;

    (void)state;
    assert_non_null(all);
    o.write_timeout_s = 1;
    test_server_start(&t, &o, 1024, 16);
    int fd = open_slow_stream(t.port, "{\"prompt\":\"a\",\"max_tokens\":900,\"ignore_eos\":true,\"stream\":true,\"n\":12,"
                                      "\"logprobs\":20}", 4096);
    wait_running(&t, 1);
    test_server_quiet(&t);
    size_t held = rg_mem_count().live_bytes;
    json_decref(test_web_json(t.port, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":5}", 200));
    for (int i = 0; i < 300 && rg_mem_count().live_bytes + (1 << 20) > held; i++)
        test_nap(0.02); /* until what waited for it is let go */
    while (n < room - 1 && (k = test_web_some(fd, all + n, room - 1 - n, TEST_WATCHDOG_S)) > 0)
        n += (size_t)k;
    all[n] = 0;
    if (!n || strstr(all, "[DONE]"))
        fail_msg("%zu bytes", n);
    close(fd);
    free(all);
    test_server_stop(&t);
}

/* ---- too much ---------------------------------------------------------------------------------------------------- */

/* A request with a key, on a connection of its own. */
static int open_for(int port, const char *key, const char *body)
{
    char all[2048];
    int fd = test_web_connect(port);
    int n = snprintf(all, sizeof all, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: %s\r\n"
                                      "Content-Length: %zu\r\n\r\n%s", key, strlen(body), body);

    assert_true(test_web_send(fd, all, (size_t)n));
    return fd;
}

/* One key has filled the queue and is refused; another is let in, and is not last. */
static void a_flood_shuts_out_nobody_else(void **state)
{
    enum { N = 12 };
    static const char *const keys[] = { "flood", "other" };
    const char *flood = TEST_SLOWER > 1 ? FLOOD("300") : FLOOD("900");
    rg_server_options o = test_server_options();
    test_server t;
    int fd[N];

    (void)state;
    o.keys = keys;
    o.n_keys = 2;
    o.max_waiting = 4;
    test_server_start(&t, &o, 1024, 2);
    fd[0] = open_for(t.port, "flood", flood);
    wait_running(&t, 1); /* from now on steps are seen, and so who waits */
    for (int i = 1; i < N; i++)
        fd[i] = open_for(t.port, "flood", flood);
    TEST_UNTIL(!rg_engine_has_room(t.engine, "key 0"));
    assert_true(rg_engine_has_room(t.engine, "key 1"));
    test_reply r = test_web_ask(t.port, "POST", "/v1/completions", "x-api-key: flood\r\n", "{\"prompt\":\"a\",\"max_tokens\":4}");
    assert_int_equal(r.status, 429);
    test_reply_free(&r);
    r = test_web_ask(t.port, "POST", "/v1/completions", "x-api-key: other\r\n", "{\"prompt\":\"a\",\"max_tokens\":4}");
    assert_int_equal(r.status, 200);
    test_reply_free(&r);
    for (int i = 0; i < N; i++)
        close(fd[i]);
    test_server_quiet(&t);
    rg_engine_check(t.engine);
    assert_true(rg_engine_has_room(t.engine, "key 0"));
    test_server_stop(&t);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static void keys_are_checked(void **state)
{
    static const char *const keys[] = { "first-key", "second-key-which-is-longer" };
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        { NULL, 401 }, { "Authorization: Bearer first-key\r\n", 200 }, { "authorization: bearer first-key\r\n", 200 },
        { "Authorization: Bearer second-key-which-is-longer\r\n", 200 }, { "x-api-key: first-key\r\n", 200 },
        { "Authorization: Bearer first-ke\r\n", 401 }, { "Authorization: Bearer first-keys\r\n", 401 },
        { "Authorization: Bearer \r\n", 401 }, { "Authorization: Basic first-key\r\n", 401 },
        { "Authorization: first-key\r\n", 401 }, { "x-api-key:\r\n", 401 }, { "X-Api-Key: FIRST-KEY\r\n", 401 },
    };
    static const char *const open[] = { "/health", "/livez", "/readyz", "/version", "/" };
    static const char *const closed[] = { "/v1/models", "/metrics", "/status", "/nothing", "/v1/models/x" };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    o.keys = keys;
    o.n_keys = 2;
    test_server_start(&t, &o, 64, 4);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        test_reply r = test_web_ask(t.port, "POST", "/v1/completions", cases[i].headers, "{\"prompt\":\"a\",\"max_tokens\":1}");
        if (r.status != cases[i].status)
            fail_msg("%s: %d, not %d", cases[i].headers ? cases[i].headers : "nothing", r.status, cases[i].status);
        test_reply_free(&r);
    }
    for (size_t i = 0; i < RG_LEN(open); i++)
        assert_int_equal(test_web_status(t.port, open[i], NULL), 200);
    for (size_t i = 0; i < RG_LEN(closed); i++)
        assert_int_equal(test_web_status(t.port, closed[i], NULL), 401);
    assert_int_equal(test_web_status(t.port, "/tokenize", "{}"), 401);
    test_server_stop(&t);
    o.metrics_open = true;
    test_server_start(&t, &o, 64, 4);
    assert_int_equal(test_web_status(t.port, "/metrics", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/status", NULL), 401);
    test_server_stop(&t);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void loading_and_draining_say_so(void **state)
{
    rg_server_options o = test_server_options();
    rg_error err = { 0 };
    test_server t = { .engine = test_engine_open(1024, 4, 16, "fast") };

    (void)state;
    t.s = rg_server_open(&o, &err);
    assert_ok(t.s, err);
    t.port = test_port(t.s);
    assert_int_equal(test_web_status(t.port, "/readyz", NULL), 503); /* loading */
    rg_served_loading(rg_server_first(t.s), "packing weights", 0.25);
    json_t *how_far = test_web_json(t.port, "/readyz", NULL, 503);
    assert_string_equal(json_string_value(json_object_get(how_far, "status")), "loading");
    assert_string_equal(json_string_value(json_object_get(how_far, "step")), "packing weights");
    assert_true(json_real_value(json_object_get(how_far, "progress")) == 0.25);
    json_decref(how_far);
    assert_int_equal(test_web_status(t.port, "/livez", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/v1/models", NULL), 503);
    test_reply r = test_web_ask(t.port, "POST", "/v1/completions", NULL, "{}");
    assert_int_equal(r.status, 503);
    assert_non_null(test_reply_header(&r, "Retry-After"));
    test_reply_free(&r);
    rg_server_ready(t.s, t.engine);
    assert_int_equal(test_web_status(t.port, "/readyz", NULL), 200);
    int fd = open_stream(t.port, LONG_STREAM), other = open_stream(t.port, LONG_STREAM);
    wait_running(&t, 2);
    rg_server_drain(t.s);
    assert_int_equal(test_web_status(t.port, "/readyz", NULL), 503);
    assert_int_equal(test_web_status(t.port, "/livez", NULL), 200);
    assert_int_equal(test_web_status(t.port, "/v1/completions", "{\"prompt\":\"a\"}"), 503);
    assert_int_equal(test_web_status(t.port, "/v1/models", NULL), 200);
    r = test_web_read(fd, TEST_WATCHDOG_S); /* what ran is finished */
    assert_non_null(strstr(r.body, "\"finish_reason\":\"length\""));
    assert_non_null(strstr(r.body, "data: [DONE]\n\n"));
    test_reply_free(&r);
    close(fd);
    close(other);
    test_server_quiet(&t);
    test_server_stop(&t);
}

static void aborting_ends_streams_with_an_error(void **state)
{
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    test_server_start(&t, &o, 1024, 4);
    int fd = open_stream(t.port, "{\"prompt\":\"a\",\"max_tokens\":1000,\"ignore_eos\":true,\"n\":4,\"stream\":true}");
    wait_running(&t, 1);
    rg_server_abort(t.s);
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
    if (!strstr(r.body, "shutting_down")) /* it was faster */
        assert_non_null(strstr(r.body, "\"finish_reason\":\"length\""));
    char *done = strstr(r.body, "data: [DONE]\n\n");
    assert_non_null(done);
    if (strstr(done + 8, "[DONE]"))
        fail_msg("twice: %s", done - 300);
    test_reply_free(&r);
    close(fd);
    test_server_stop(&t);
}

/* Closed in the middle of everything, nothing leaks: no memory, no socket. */
static void closing_leaves_nothing(void **state)
{
    rg_server_options o = test_server_options();
    rg_engine *engine = test_engine_open(1024, 4, 64, "fast");
    size_t live = rg_mem_count().n_live;
    rg_error err = { 0 };

    (void)state;
    for (int i = 0; i < test_scale(10); i++) {
        test_server t = { .engine = engine, .s = rg_server_open(&o, &err) };
        int fd[6];
        assert_ok(t.s, err);
        t.port = test_port(t.s);
        rg_server_ready(t.s, engine);
        for (int k = 0; k < 6; k++)
            fd[k] = open_stream(t.port, LONG_STREAM);
        if (i % 2)
            wait_running(&t, 2);
        rg_server_close(t.s);
        for (int k = 0; k < 6; k++)
            close(fd[k]);
    }
    TEST_UNTIL(!rg_engine_stats(engine).n_running && !rg_engine_stats(engine).n_waiting);
    rg_engine_check(engine);
    TEST_UNTIL(rg_mem_count().n_live <= live + 4); /* the prefix index may have grown a node or two */
    rg_close(engine);
}

/* How often the threads that serve were woken; how often one was told that no more files may be opened, and how often at
 * once after the time before, without a rest.  These functions stand in place of libc's for the server too. */
static atomic_uint n_woken, n_in_vain, n_restless;
static _Thread_local bool rested = true;

RG_API int epoll_wait(int epfd, struct epoll_event *events, int room, int timeout)
{
    int n = epoll_pwait(epfd, events, room, timeout, NULL);

    rested |= !n;
    atomic_fetch_add(&n_woken, 1);
    return n;
}

RG_API int poll(struct pollfd *p, nfds_t n_p, int timeout)
{
    struct timespec most = { timeout / 1000, timeout % 1000 * 1000000L };
    int n = ppoll(p, n_p, timeout < 0 ? NULL : &most, NULL);

    rested |= !n;
    return n;
}

/* What poll is in a program that is compiled with _FORTIFY_SOURCE. */
extern int __poll_chk(struct pollfd *p, nfds_t n_p, int timeout, size_t room);
RG_API int __poll_chk(struct pollfd *p, nfds_t n_p, int timeout, size_t room)
{
    assert_true(n_p * sizeof *p <= room);
    return poll(p, n_p, timeout);
}

RG_API int accept4(int fd, struct sockaddr *restrict address, socklen_t *restrict n, int flags)
{
    int taken = (int)syscall(SYS_accept4, fd, address, n, flags);

    if (taken < 0 && errno == EMFILE) {
        atomic_fetch_add(&n_restless, !rested);
        atomic_fetch_add(&n_in_vain, 1);
        rested = false;
        errno = EMFILE;
    }
    return taken;
}

static const char GET_HEALTH[] = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

static void ask(int fd)
{
    assert_true(test_web_send(fd, GET_HEALTH, strlen(GET_HEALTH)));
}

static void is_answered(int fd)
{
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);

    assert_int_equal(r.status, 200);
    test_reply_free(&r);
}

/* n are connected when no more files may be opened: they are served, who comes waits, nothing spins, and then all is as
 * before.  With n = 1 at least one thread that serves has no connection. */
static void run_out_of_files(int n)
{
    enum { MOST = 60, LATE = 4 };
    struct rlimit was, few;
    rg_server_options o = test_server_options();
    test_server t;
    int fd[MOST], late[LATE];

    test_server_start(&t, &o, 64, 4);
    getrlimit(RLIMIT_NOFILE, &was);
    for (int i = 0; i < n; i++) {
        fd[i] = test_web_connect(t.port);
        ask(fd[i]);
        is_answered(fd[i]); /* so it has been accepted */
    }
    for (int i = 0; i < LATE; i++)
        late[i] = socket(AF_INET, SOCK_STREAM, 0);
    int top = dup(0);
    close(top);
    few = (struct rlimit){ (rlim_t)top, was.rlim_max };
    setrlimit(RLIMIT_NOFILE, &few);
    unsigned in_vain = atomic_load(&n_in_vain), restless = atomic_load(&n_restless), woken = atomic_load(&n_woken);
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)t.port) };
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int i = 0; i < LATE; i++) {
        assert_int_equal(connect(late[i], (struct sockaddr *)&a, sizeof a), 0);
        ask(late[i]);
    }
    TEST_UNTIL(atomic_load(&n_in_vain) - in_vain > 2);
    woken = atomic_load(&n_woken) - woken;
    if (woken > 200 || atomic_load(&n_restless) != restless)
        fail_msg("%d connected: woken %u times, %u attempts of %u without a rest before", n, woken,
                 atomic_load(&n_restless) - restless, atomic_load(&n_in_vain) - in_vain);
    for (int i = 0; i < n; i++)
        ask(fd[i]);
    for (int i = 0; i < n; i++)
        is_answered(fd[i]);
    setrlimit(RLIMIT_NOFILE, &was);
    for (int i = 0; i < LATE; i++) { /* there is room again, though nobody has left */
        is_answered(late[i]);
        close(late[i]);
    }
    for (int i = 0; i < n; i++)
        close(fd[i]);
    test_server_stop(&t);
}

static void running_out_of_files_is_survived(void **state)
{
    (void)state;
    run_out_of_files(0);
    run_out_of_files(1);
    run_out_of_files(60);
}

/* As many are connected as may be: who comes waits, is not told off, and is served when one has left. */
static void a_full_house_lets_others_wait(void **state)
{
    enum { MOST = 3, LATE = 4 };
    rg_server_options o = test_server_options();
    test_server t;
    int fd[MOST + LATE];

    (void)state;
    o.max_connections = MOST;
    test_server_start(&t, &o, 64, 4);
    for (int i = 0; i < MOST + LATE; i++) {
        fd[i] = test_web_connect(t.port);
        ask(fd[i]);
        if (i < MOST)
            is_answered(fd[i]);
    }
    for (int i = 0; i < MOST; i++) {
        ask(fd[i]);
        is_answered(fd[i]);
    }
    for (int i = MOST; i < MOST + LATE; i++) {
        char c;
        assert_true(recv(fd[i], &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
        close(fd[i - MOST]);
        is_answered(fd[i]);
    }
    for (int i = LATE; i < MOST + LATE; i++)
        close(fd[i]);
    test_server_stop(&t);
}

/* For a while there is no memory for one who comes: it waits, and takes up no place. */
static atomic_int n_refused;

static bool refuse_all(void *arg, size_t bytes)
{
    (void)arg, (void)bytes;
    atomic_fetch_add(&n_refused, 1);
    return false;
}

static void without_memory_others_wait(void **state)
{
    enum { MOST = 3 };
    rg_server_options o = test_server_options();
    test_server t;
    int fd[MOST];

    (void)state;
    o.max_connections = MOST;
    test_server_start(&t, &o, 64, 4);
    for (int i = 0; i < 2; i++) {
        rg_mem_set_gate(refuse_all, NULL);
        int before = atomic_load(&n_refused);
        for (int k = 0; k < MOST; k++)
            fd[k] = test_web_connect(t.port);
        TEST_UNTIL(atomic_load(&n_refused) > before + 2);
        rg_mem_set_gate(NULL, NULL);
        for (int k = 0; k < MOST; k++) {
            ask(fd[k]);
            is_answered(fd[k]);
        }
        for (int k = 0; k < MOST; k++)
            close(fd[k]);
    }
    test_server_stop(&t);
}

typedef struct asker {
    int port;
    atomic_bool stop;
} asker;

static void *ask_until(void *arg)
{
    asker *k = arg;

    while (!atomic_load(&k->stop)) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)k->port) };
        static const char get[] = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
        char some[64];
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (!connect(fd, (struct sockaddr *)&a, sizeof a) && send(fd, get, strlen(get), MSG_NOSIGNAL) > 0)
            (void)!recv(fd, some, sizeof some, 0);
        close(fd);
    }
    return NULL;
}

/* The listener takes connections while the server is still being put together, and while it is taken apart. */
static void who_asks_early_is_told_so(void **state)
{
    rg_server_options o = test_server_options();
    rg_error err = { 0 };
    rg_server *s = rg_server_open(&o, &err);
    pthread_t thread;
    asker k = { .port = test_port(s) };

    (void)state;
    rg_server_close(s);
    o.port = k.port;
    assert_int_equal(pthread_create(&thread, NULL, ask_until, &k), 0);
    for (int i = 0; i < test_scale(100); i++) {
        s = rg_server_open(&o, &err);
        assert_ok(s, err);
        rg_server_close(s);
    }
    atomic_store(&k.stop, true);
    pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_leaves_is_cancelled),          cmocka_unit_test(slow_readers_hold_up_nobody),
        cmocka_unit_test(keys_are_checked),                 cmocka_unit_test(loading_and_draining_say_so),
        cmocka_unit_test(aborting_ends_streams_with_an_error), cmocka_unit_test(closing_leaves_nothing),
        cmocka_unit_test(running_out_of_files_is_survived), cmocka_unit_test(a_full_house_lets_others_wait),
        cmocka_unit_test(who_reads_nothing_is_closed),      cmocka_unit_test(without_memory_others_wait),
        cmocka_unit_test(a_flood_shuts_out_nobody_else),    cmocka_unit_test(who_asks_early_is_told_so),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
