/* The reader that keeps time, around one that takes as long as it is told, by a clock of the test's own. */
#include "support/test.h"

#include <string.h>

#include "base/clock.h"
#include "base/quantile.h"
#include "ops/watch/timer.h"

static uint64_t now;

static uint64_t clock_of_test(void *arg)
{
    (void)arg;
    return now;
}

/* An operation takes op->n nanoseconds. */
static void take(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    (void)self;
    (void)f;
    now += (uint64_t)op->n;
}

static const rg_reader taker = { .run = take };

typedef struct one {
    const char *name;
    rg_op_kind kind;
    int rows, group, ns, cols;
} one;

/* n operations on every thread, one thread after the other by the same clock; the later the slower. */
static void run(const rg_reader *reader, int n_threads, const one *ops, int n)
{
    uint64_t begun = now;

    for (int k = 0; k < n_threads; k++) {
        rg_fwd f = { .reader = reader, .thread = k };
        now = begun;
        for (int i = 0; i < n; i++) {
            rg_act out = { .name = ops[i].name, .rows = ops[i].rows }, in = { .cols = ops[i].cols };
            rg_kv kv = { .group = ops[i].group };
            rg_op op = { .kind = ops[i].kind, .out = { ops[i].name ? &out : NULL },
                         .in = { ops[i].cols ? &in : NULL }, .kv = &kv, .n = ops[i].ns * (k + 1) };
            reader->run(reader, &f, &op);
            now += 3; /* between operations */
        }
    }
}

static void step(rg_timer *t, const rg_reader *reader, int n_threads, int part, const one *ops, int n)
{
    rg_timer_begin(t, part);
    run(reader, n_threads, ops, n);
    rg_timer_end(t);
}

static void near_ns(double seconds, double ns)
{
    if (seconds * 1e9 < ns - 1e-3 || seconds * 1e9 > ns + 1e-3)
        fail_msg("%.6f ns, wanted %.6f", seconds * 1e9, ns);
}

/* An operation takes from when its last thread begins it until its last thread returns. */
static void the_last_thread_counts(void **state)
{
    static const one ops[] = { { "hidden", RG_OP_EMBED, 4, 0, 100 },
                               { "q", RG_OP_LINEAR, 4, 0, 700 },
                               { "hidden", RG_OP_NOTE, 4, 0, 0 },
                               { "q", RG_OP_ROTATE, 4, 0, 30 },
                               { NULL, RG_OP_KV_STORE, 0, 1, 50 } };

    (void)state;
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        rg_error err;
        rg_timer *t = rg_timer_new(n_threads, &err);
        assert_ok(t, err);
        const rg_reader *reader = rg_timer_wrap(t, &taker);
        assert_true(rg_timer_seconds(t, "linear", "q") == 0);
        for (int i = 0; i < 3; i++) { /* the same again is no more */
            step(t, reader, n_threads, 0, ops, RG_LEN(ops));
            near_ns(rg_timer_seconds(t, "embed", "hidden"), 100 * n_threads);
            near_ns(rg_timer_seconds(t, "linear", "q"), 700 * n_threads);
            near_ns(rg_timer_seconds(t, "rotate", "q"), 30 * n_threads);
            near_ns(rg_timer_seconds(t, "kv_store", "kv"), 50 * n_threads);
        }
        step(t, reader, n_threads, 1, ops, 2); /* another part is */
        near_ns(rg_timer_seconds(t, "linear", "q"), 1400 * n_threads);
        near_ns(rg_timer_seconds(t, "rotate", "q"), 30 * n_threads);
        assert_true(rg_timer_seconds(t, "linear", "k") == 0);
        rg_timer_reset(t);
        assert_true(rg_timer_seconds(t, "linear", "q") == 0);
        step(t, reader, n_threads, 0, ops, 2);
        near_ns(rg_timer_seconds(t, "linear", "q"), 700 * n_threads);
        rg_timer_free(t);
    }
}

/* A third of every step is disturbed, each time elsewhere; layers of another sort, other numbers of rows, and
 * other widths of what goes in (as of a layer's two projections to the stream) are not taken together. */
static void of_the_like_the_median(void **state)
{
    rg_error err;
    rg_timer *t = rg_timer_new(1, &err);
    assert_ok(t, err);
    const rg_reader *reader = rg_timer_wrap(t, &taker);

    (void)state;
    for (int k = 0; k < 3; k++) {
        one ops[40];
        for (int i = 0; i < 40; i++) {
            bool odd = i / 4 % 2;
            ops[i] = i % 4 == 0   ? (one){ "q", RG_OP_LINEAR, 2, 0, 300 }
                     : i % 4 == 1 ? (one){ "attn", RG_OP_ATTENTION, 2, odd, odd ? 1000 : 60 }
                     : i % 4 == 2 ? (one){ "attn", RG_OP_ROTATE, 2, 0, 7 }
                                  : (one){ "q", RG_OP_LINEAR, 1, 0, odd ? 150 : 450, odd ? 64 : 192 };
        }
        for (int i = 0; i < 14; i++)
            ops[(13 * k + i) % 40].ns *= 2;
        step(t, reader, 1, 0, ops, 40);
    }
    near_ns(rg_timer_seconds(t, "linear", "q"), 10 * 300 + 5 * 150 + 5 * 450);
    near_ns(rg_timer_seconds(t, "attention", "attn"), 5 * 1060);
    near_ns(rg_timer_seconds(t, "rotate", "attn"), 10 * 7);
    rg_timer_free(t);
}

static void too_many_operations_are_no_time(void **state)
{
    static one ops[10000];
    rg_error err;
    rg_timer *t = rg_timer_new(1, &err);
    assert_ok(t, err);
    const rg_reader *reader = rg_timer_wrap(t, &taker);

    (void)state;
    for (size_t i = 0; i < RG_LEN(ops); i++)
        ops[i] = (one){ "q", RG_OP_LINEAR, 1, 0, 10 };
    step(t, reader, 1, 0, ops, 10000);
    assert_true(rg_timer_seconds(t, "linear", "q") == 0);
    rg_timer_reset(t);
    step(t, reader, 1, 0, ops, 5000);
    near_ns(rg_timer_seconds(t, "linear", "q"), 50000);
    step(t, reader, 1, 1 << 20, ops, 1); /* a part that it cannot count */
    assert_true(rg_timer_seconds(t, "linear", "q") == 0);
    rg_timer_free(t);
}

static void nothing_is_seen_between_steps(void **state)
{
    rg_error err;
    rg_timer *t = rg_timer_new(1, &err);
    assert_ok(t, err);
    const rg_reader *reader = rg_timer_wrap(t, &taker);
    static const one op = { "q", RG_OP_LINEAR, 1, 0, 10 };

    (void)state;
    run(reader, 1, &op, 1);
    step(t, reader, 1, 0, &op, 1);
    run(reader, 1, &op, 1);
    near_ns(rg_timer_seconds(t, "linear", "q"), 10);
    rg_timer_free(t);
}

static void quantiles(void **state)
{
    double v[] = { 5, 1, 3, 2, 4 }, two[] = { 7, 4 };

    (void)state;
    assert_true(rg_quantile(v, 5, 0) == 1 && rg_quantile(v, 5, 1) == 5 && rg_quantile(v, 5, 0.5) == 3);
    assert_true(rg_quantile(v, 5, 0.125) == 1.5);
    assert_true(rg_quantile(two, 2, 0.5) == 5.5 && rg_quantile(two, 1, 0.9) == 4);
}

static int start(void **state)
{
    (void)state;
    rg_clock_set(clock_of_test, NULL);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    rg_clock_set(NULL, NULL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_thread_counts),
        cmocka_unit_test(of_the_like_the_median),
        cmocka_unit_test(nothing_is_seen_between_steps),
        cmocka_unit_test(too_many_operations_are_no_time),
        cmocka_unit_test(quantiles),
    };

    return cmocka_run_group_tests(tests, start, stop);
}
