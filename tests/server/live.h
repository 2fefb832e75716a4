/* live.h -- a server in this process, over the shipped model with a short context, for the tests of it. */
#ifndef RG_TEST_LIVE_H
#define RG_TEST_LIVE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/server.h"
#include "support/web.h"

/* A wait that takes longer has failed: nothing else about a test depends on the clock. */
enum { TEST_WATCHDOG_S = TEST_SLOWER > 1 ? 600 : 60 };

typedef struct test_server {
    rg_engine *engine;
    rg_server *s;
    int port;
} test_server;

/* Seconds of the real clock, also where a test has put another in its place. */
static inline double test_real_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Wait for it; in vain, the test fails. */
#define TEST_UNTIL(what)                                                                                               \
    do {                                                                                                               \
        double from_ = test_real_s();                                                                                  \
        while (!(what)) {                                                                                              \
            if (test_real_s() - from_ > TEST_WATCHDOG_S)                                                               \
                fail_msg("line %d: in vain: " #what, __LINE__);                                                        \
            test_nap(0.0005);                                                                                          \
        }                                                                                                              \
    } while (0)

static inline void test_nap(double s)
{
    struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

    nanosleep(&t, NULL);
}

static inline rg_engine *test_engine_open(int ctx, int max_seqs, int max_waiting, const char *recipe)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.recipe = recipe;
    o.max_seq_len = ctx;
    o.max_seqs = max_seqs;
    o.max_waiting = max_waiting;
    o.n_threads = 1;
    o.kv_bytes = (size_t)64 << 20;
    rg_engine *e = rg_open(RG_SOURCE_DIR "/models/tales-1m", &o, &err);
    assert_ok(e, err);
    return e;
}

static inline rg_server_options test_server_options(void)
{
    rg_server_options o = rg_server_options_default();

    o.port = 0;
    o.model = "tales";
    o.strict_model = true;
    return o;
}

static inline int test_port(const rg_server *s)
{
    return atoi(strrchr(rg_server_url(s), ':') + 1);
}

static inline void test_server_start_with(test_server *t, const rg_server_options *o, rg_engine *engine)
{
    rg_error err = { 0 };

    t->engine = engine;
    t->s = rg_server_open(o, &err);
    assert_ok(t->s, err);
    t->port = test_port(t->s);
    rg_server_ready(t->s, t->engine);
}

static inline void test_server_start(test_server *t, const rg_server_options *o, int ctx, int max_seqs)
{
    test_server_start_with(t, o, test_engine_open(ctx, max_seqs, o->max_waiting, "fast"));
}

static inline void test_server_stop(test_server *t)
{
    rg_server_close(t->s);
    rg_close(t->engine);
    *t = (test_server){ 0 };
}

/* A completion of three ids fails, whole and streamed, with this error code. */
static inline void test_completion_fails(int port, const char *code)
{
    static const char *const bodies[] = { "{\"prompt\":[1,2,3],\"max_tokens\":4}",
                                          "{\"prompt\":[1,2,3],\"max_tokens\":4,\"stream\":true}" };

    for (int stream = 0; stream < 2; stream++) {
        test_reply r = test_web_ask(port, "POST", "/v1/completions", NULL, bodies[stream]);

        assert_int_equal(r.status, stream ? 200 : 500);
        assert_non_null(strstr(r.body, code));
        assert_null(strstr(r.body, "\"finish_reason\":\"stop\""));
        test_reply_free(&r);
    }
}

/* Wait until nothing runs or waits. */
static inline void test_server_quiet(const test_server *t)
{
    double from = test_real_s();

    for (;;) {
        rg_stats s = rg_engine_stats(t->engine);
        if (!s.n_running && !s.n_waiting && !rg_server_in_flight(t->s))
            return;
        assert_true(test_real_s() - from < TEST_WATCHDOG_S);
        test_nap(0.002);
    }
}

#endif
