/* test_rates.c -- measuring this machine's rates: they are there for what was asked, positive where something takes
 * time, and a failing allocation is an error that leaves nothing behind. */
#include <math.h>
#include <string.h>

#include "support/test.h"

#include "base/clock.h"
#include "base/mem.h"
#include "model/rates.h"

static void rates_are_measured(void **state)
{
    static rg_machine m;
    rg_rates_wanted wanted = { .experts = true, .recurrent = true };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_pool *pool = rg_pool_new(1, &err);

    (void)state;
    assert_ok(cpu && pool, err);
    rg_machine_measure(&m, cpu, pool, 1, 0);
    rg_pool_free(pool);
    assert_true(m.read_bytes_s > 0 && m.f32_ops_s > 0 && !m.rates.measured);
    wanted.linear[RG_BF16] = wanted.attention[RG_BF16] = wanted.latent[RG_BF16] = true;
    assert_ok(rg_rates_measure(&m, cpu, 1, &wanted, NULL, &err), err);
    const rg_rates *r = &m.rates;
    assert_true(r->measured && r->linear[RG_BF16].measured && !r->linear[RG_F32].measured);
    assert_true(m.share.memory > 0 && m.share.compute > 0);
    assert_true(r->attention[RG_BF16].measured && r->latent[RG_BF16].measured);
    for (int i = 0; i < RG_RATE_ROWS; i++)
        assert_true(r->linear[RG_BF16].near_s[i] > 0 && r->linear[RG_BF16].far_s[RG_FROM_CACHE][i] >= 0 &&
                    r->linear[RG_BF16].far_s[RG_FROM_MEMORY][i] >= 0);
    assert_true(r->linear[RG_BF16].near_s[RG_RATE_ROWS - 1] > 8 * r->linear[RG_BF16].near_s[0]);
    for (int i = 0; i < RG_RATE_QUERIES; i++)
        assert_true(r->attention[RG_BF16].pair_s[i] + r->attention[RG_BF16].width_s[i] > 0);
    for (int i = 0; i < RG_RATE_SETS; i++)
        assert_true(r->set_bytes_s[i] > 0);
    for (int i = 0; i < RG_RATE_PAUSES; i++)
        assert_true(r->taken[i] >= (i ? r->taken[i - 1] : 0) && r->taken[i] <= 1);
    for (int k = 0; k < RG_OP_COUNT; k++)
        assert_true(k == RG_OP_NOTE || (r->fixed_s[k] > 0 && r->few_s[k] >= 0 && r->many_s[k] >= 0));
    assert_true(r->many_s[RG_OP_SCAN] > 0 && r->many_s[RG_OP_CONV] > 0 && r->many_s[RG_OP_RMSNORM] > 0);
    const rg_attention_rate *a = &r->attention[RG_BF16];
    double near[RG_RATE_QUERIES]; /* of a pair with 128 columns */
    for (int i = 0; i < RG_RATE_QUERIES; i++)
        near[i] = a->pair_s[i] + 128 * a->width_s[i];
    assert_true(near[RG_RATE_QUERIES - 1] < near[0]); /* queries share what keys take */
    for (int i = 0; i < RG_RATE_QUERIES; i++)         /* and what a block takes is no part of what every row does */
        assert_true(a->item_s[i] < RG_BLOCK * near[i]);
}

/* Looks are of the roofs: against roofs twice as high, a machine gives half. */
static void a_pulse_is_taken(void **state)
{
    rg_machine m = { 0 };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_pool *pool = rg_pool_new(2, &err);
    rg_share usual[2];

    (void)state;
    assert_ok(cpu && pool, err);
    rg_machine_measure(&m, cpu, pool, 2, 0);
    for (int i = 0; i < 2; i++) {
        rg_pulse *p = rg_pulse_open(&m, cpu, 2, &err);
        assert_ok(p, err);
        assert_true(rg_pulse_usual(p).memory == 0 && rg_pulse_usual(p).compute == 0); /* not looked */
        for (int n = 0; n < 9; n++) {
            rg_share s = rg_pulse_look(p, pool, n < 5);
            assert_true((s.memory > 0) == (n < 5) && (s.cache > 0) == (n < 5) && s.compute > 0);
        }
        usual[i] = rg_pulse_usual(p);
        assert_true(rg_pulse_usual(p).compute == 0); /* it was asked */
        rg_pulse_close(p);
        m.read_bytes_s *= 100;
        m.cache_bytes_s *= 100;
        m.f32_ops_s *= 100;
    }
    /* A busy machine changes by less than ten times. */
    assert_true(usual[1].memory < usual[0].memory / 10 && usual[1].memory > usual[0].memory / 1000);
    assert_true(usual[1].compute < usual[0].compute / 10 && usual[1].compute > usual[0].compute / 1000);
    assert_true(usual[1].cache < usual[0].cache / 10 && usual[1].cache > usual[0].cache / 1000);
    rg_pool_free(pool);
}

static uint64_t clock_of_test(void *arg)
{
    return *(uint64_t *)arg;
}

static struct {
    uint64_t now_ns;
    int n_slow; /* calls from now on that take twice as long, as if two threads were in one core */
} core;

static double compute_in_core(double n)
{
    core.now_ns += (uint64_t)(core.n_slow-- > 0 ? 2 * n : n);
    return n;
}

/* Roofs are of what a machine gives for a while, not of its first moments: or of its last ones, if nothing holds. */
static void roofs_are_what_holds(void **state)
{
    static const struct {
        int n_slow;
        double f32_ops_s;
    } cases[] = { { 0, 2e9 }, { 2, 2e9 }, { 7, 2e9 }, { 1 << 20, 1e9 } };
    rg_error err = { 0 };
    const rg_cpu *found = rg_cpu_find("auto", &err);
    rg_pool *pool = rg_pool_new(1, &err);
    rg_machine m;

    (void)state;
    assert_ok(found && pool, err);
    rg_cpu cpu = *found;
    cpu.peak_f32 = compute_in_core;
    cpu.peak_int8 = cpu.peak_bf16 = NULL;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        core.n_slow = cases[i].n_slow;
        rg_clock_set(clock_of_test, &core.now_ns);
        rg_machine_measure(&m, &cpu, pool, 1, 1 << 20);
        rg_clock_set(NULL, NULL);
        assert_true(fabs(m.f32_ops_s / cases[i].f32_ops_s - 1) < 1e-6);
    }
    assert_true(rg_machine_holds(&(rg_share){ 0 }) && rg_machine_holds(&(rg_share){ .memory = 0.9, .compute = 1.1 }));
    assert_false(rg_machine_holds(&(rg_share){ .memory = 0.6, .compute = 1 }));
    assert_false(rg_machine_holds(&(rg_share){ .memory = 1, .compute = 2 }));
    rg_pool_free(pool);
}

static uint64_t told_ns, tick_ns;

/* Nothing takes longer or shorter than a tick. */
static uint64_t ticking_clock(void *arg)
{
    (void)arg;
    return told_ns += tick_ns;
}

static void compute_nothing(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    (void)self;
    (void)op;
    rg_fwd_barrier(f);
}

static rg_pool *stepping_pool;

static void a_step(void *arg, int thread)
{
    static const rg_op op = { .kind = RG_OP_ADD };
    const rg_reader *const *reader = arg;
    rg_fwd f = { .thread = thread, .n_threads = 1, .pool = stepping_pool };

    for (int i = 0; i < 16; i++)
        (*reader)->run(*reader, &f, &op);
}

/* Looks within a step and the one after it count as one: of a step that was slowed by half, and full speed after it,
 * what is given on the mean of the time. */
static void a_long_step_is_looked_at_within(void **state)
{
    static const rg_reader nothing = { .run = compute_nothing };
    rg_machine m = { .read_bytes_s = 1e10, .f32_ops_s = 1e10 };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);

    (void)state;
    stepping_pool = rg_pool_new(1, &err);
    assert_ok(cpu && stepping_pool, err);
    rg_pulse *p = rg_pulse_open(&m, cpu, 1, &err);
    assert_ok(p, err);
    const rg_reader *reader = rg_pulse_wrap(p, &nothing);
    rg_clock_set(ticking_clock, NULL);
    tick_ns = 1000000;
    rg_share alone = rg_pulse_look(p, stepping_pool, true), usual = rg_pulse_usual(p);
    assert_true(usual.memory == alone.memory && usual.compute == alone.compute && alone.memory > 0);
    rg_pool_run(stepping_pool, 1, a_step, &reader); /* short: the last look was not long ago */
    assert_true(rg_pulse_within_s(p) == 0);
    told_ns += 1000000000;
    tick_ns *= 2;
    rg_pool_run(stepping_pool, 1, a_step, &reader);
    assert_true(rg_pulse_within_s(p) > 0);
    tick_ns /= 2;
    assert_true(rg_pulse_usual(p).compute == 0); /* which looks at whole steps */
    rg_pulse_look(p, stepping_pool, true);
    rg_clock_set(NULL, NULL);
    usual = rg_pulse_usual(p);
    assert_true(fabs(usual.compute / alone.compute - 2 / 3.0) < 1e-6);
    assert_true(fabs(usual.memory / alone.memory - 2 / 3.0) < 1e-6);
    rg_pulse_close(p);
    rg_pool_free(stepping_pool);
}

/* A core that is shared is not quiet, even where the roofs are of a time when it was; waiting takes of the patience, and
 * what was seen meanwhile does not count. */
static void it_is_quiet_or_not(void **state)
{
    rg_machine m = { .read_bytes_s = 1e10, .f32_ops_s = 1e10 };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_pool *pool = rg_pool_new(1, &err);
    double patience_s = 0.01;

    (void)state;
    assert_ok(cpu && pool, err);
    rg_pulse *p = rg_pulse_open(&m, cpu, 1, &err);
    assert_ok(p, err);
    rg_clock_set(ticking_clock, NULL);
    tick_ns = 200000; /* as long as the arithmetic of a look takes at the roof */
    rg_share all = rg_pulse_look(p, pool, true);
    assert_true(fabs(all.compute - 1) < 0.1 && rg_pulse_quiet(p, &all));
    tick_ns *= 2;
    rg_share half = rg_pulse_wait(p, pool, false, &patience_s);
    assert_true(fabs(half.compute / all.compute - 0.5) < 1e-9 && !rg_pulse_quiet(p, &half));
    assert_true(patience_s <= 0);
    rg_share mean = rg_pulse_between(p), usual = rg_pulse_usual(p);
    assert_true(fabs(usual.compute / all.compute - 0.75) < 1e-9); /* of the two that count */
    assert_true(fabs(mean.compute / all.compute - 0.5) < 1e-9);   /* of what was since the wait */
    tick_ns /= 4;
    rg_share twice = rg_pulse_wait(p, pool, true, &patience_s);
    mean = rg_pulse_between(p);
    assert_true(fabs(twice.compute / all.compute - 2) < 1e-9 && rg_pulse_quiet(p, &twice));
    assert_true(fabs(mean.compute / all.compute - 2 / (1 / 0.5 + 1 / 2.0)) < 1e-9);
    assert_false(rg_pulse_quiet(p, &all)); /* the roof was half of what there is */
    rg_clock_set(NULL, NULL);
    rg_pulse_close(p);
    rg_pool_free(pool);
}

/* What is timed while a quarter of the roofs is given counts a quarter. */
static void rates_are_of_the_roofs(void **state)
{
    static rg_machine m;
    rg_rates_wanted wanted = { .linear[RG_BF16] = true };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_pool *pool = rg_pool_new(1, &err);
    double near[2], share[2];

    (void)state;
    assert_ok(cpu && pool, err);
    rg_machine_measure(&m, cpu, pool, 1, 0);
    rg_pool_free(pool);
    for (int i = 0; i < 2; i++) {
        assert_ok(rg_rates_measure(&m, cpu, 1, &wanted, NULL, &err), err);
        near[i] = m.rates.linear[RG_BF16].near_s[RG_RATE_ROWS - 1];
        share[i] = m.share.compute;
        m.read_bytes_s *= 4;
        m.f32_ops_s *= 4;
    }
    /* Shares and rates change alike, whatever else the machine does. */
    assert_true(share[1] < 0.6 * share[0] && near[1] < 0.6 * near[0]);
    double x = near[1] / share[1] / (near[0] / share[0]);
    assert_true(x > 0.2 && x < 5);
}

/* Of each time the median over the passes, of as many as are remembered. */
static void the_median_is_kept(void **state)
{
    static rg_seen seen;
    rg_shop w = { .seen = &seen };

    (void)state;
    for (int pass = 0; pass < 3; pass++) {
        static const double took[3][3] = { { 3, 5, 4 }, { 4, 6, 6 }, { 9, 2, 5 } };
        static const double want[3][3] = { { 3, 5, 4 }, { 3.5, 5.5, 5 }, { 4, 5, 5 } };
        w.n_timed = 0;
        for (int i = 0; i < 3; i++)
            assert_true(rg_shop_usual(&w, took[pass][i], true) == want[pass][i]);
        assert_int_equal(seen.n, 3);
    }
    for (int pass = 0; pass < RG_SHOP_PASSES; pass++) { /* what was long ago is forgotten */
        w.n_timed = 0;
        assert_true(rg_shop_usual(&w, 8, true) <= 8);
    }
    w.n_timed = 0;
    assert_true(rg_shop_usual(&w, 1, true) == 8);
    w.n_timed = seen.n = RG_SHOP_TIMED; /* what there is no room for is as it is */
    assert_true(rg_shop_usual(&w, 7, true) == 7 && seen.n == RG_SHOP_TIMED);
}

/* What was timed while it was not quiet counts until there is something better. */
static void quiet_times_are_kept(void **state)
{
    static rg_seen seen;
    rg_shop w = { .seen = &seen };
    const struct {
        double took, want;
        bool quiet;
    } pass[] = { { 9, 9, false }, { 7, 8, false }, { 3, 3, true }, { 9, 3, false }, { 5, 4, true } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(pass); i++) {
        w.n_timed = 0;
        assert_true(rg_shop_usual(&w, pass[i].took, pass[i].quiet) == pass[i].want);
    }
}

static struct {
    uint64_t now_ns;
    int n_turns;
    bool changed; /* a value of an activation, by what came between turns */
} played;

/* One thread, spread things gone through in turn, by a row each. */
static rg_shop *open_shop(rg_seen *seen, int spread)
{
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_shop *w = cpu ? rg_shop_open(cpu, 1, false, &err) : NULL;

    assert_ok(w, err);
    w->seen = seen;
    w->spread = spread;
    assert_ok(rg_shop_batch(w, 1, 0, false, &err), err);
    return w;
}

/* Takes a millisecond; every fifth time, a hundred. */
static void play(rg_fwd *f, rg_shop *w, int turn)
{
    rg_act *x = rg_act_new(f, "x", 64);
    float *v = rg_act_data(f, x);

    (void)w;
    (void)turn;
    for (int i = 0; i < 64; i++) {
        played.changed |= played.n_turns > 0 && v[i] != (float)(played.n_turns + i);
        v[i] = (float)(played.n_turns + 1 + i);
    }
    played.now_ns += ++played.n_turns % 5 ? 1000000 : 100000000;
}

/* What interrupts some turns is no part of what a turn takes, but of what many take; and activations are as the turn
 * before left them. */
static void a_turn_is_timed_undisturbed(void **state)
{
    static rg_seen seen;
    rg_shop *w = open_shop(&seen, 25);

    (void)state;
    memset(&played, 0, sizeof played);
    rg_clock_set(clock_of_test, &played.now_ns);
    double s = rg_shop_seconds(w, play);
    rg_clock_set(NULL, NULL);
    assert_true(fabs(s - 1e-3) < 1e-9);
    assert_true(played.n_turns > 25 && !played.changed);
    for (int i = 0; i < RG_RATE_WINDOWS; i++)
        assert_true(fabs(rg_shop_lost(w, i) - (5 * 100 + 20 * 1 - 25) / 25.0) < 1e-6);
    assert_true(w->lost[0].n == 0 && rg_shop_lost(w, 0) == 0); /* it was asked */
    rg_shop_close(w);
}

static struct {
    uint64_t now_ns;
    int n_turns, n_slow; /* turns while a core is shared */
} shared;

static uint64_t shared_clock(void *arg)
{
    (void)arg;
    return shared.now_ns += shared.n_turns < shared.n_slow ? 400000 : 200000;
}

/* A shared core slows this by a half, and a look by twice. */
static void play_shared(rg_fwd *f, rg_shop *w, int turn)
{
    (void)f;
    (void)w;
    (void)turn;
    shared.now_ns += shared.n_turns++ < shared.n_slow ? 1100000 : 800000;
}

/* Tries while a core is shared do not count if there are others. */
static void what_is_timed_is_quiet(void **state)
{
    static rg_seen seen;
    static const struct {
        int n_slow;
        double want;
    } cases[] = { { 0, 1 }, { 12, 1 }, { 1 << 20, 0.75 } };
    double first_s = 0;
    rg_machine m = { .read_bytes_s = 1e10, .f32_ops_s = 1e10 };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);
    rg_shop *w = open_shop(&seen, 5);

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        w->pulse = rg_pulse_open(&m, cpu, 1, &err);
        assert_ok(w->pulse, err);
        memset(&shared, 0, sizeof shared);
        shared.n_slow = cases[i].n_slow;
        w->n_timed = seen.n = 0;
        rg_clock_set(shared_clock, NULL);
        double s = rg_shop_seconds(w, play_shared);
        rg_clock_set(NULL, NULL);
        first_s = i ? first_s : s;
        assert_true(first_s > 0.9e-3 && first_s < 1.1e-3 && fabs(s / first_s - cases[i].want) < 1e-6);
        rg_pulse_close(w->pulse);
    }
    rg_shop_close(w);
}

static struct {
    uint64_t now_ns;
    uint32_t phase;
    int n_turns; /* of this run */
} kept;

/* Slow the first time that all are gone through, as others took what a cache had of them. */
static void play_kept(rg_fwd *f, rg_shop *w, int turn)
{
    (void)turn;
    kept.n_turns = f->phase > kept.phase ? kept.n_turns + 1 : 0;
    kept.phase = f->phase;
    kept.now_ns += kept.n_turns <= w->spread ? 10000 : 2000;
}

/* What lies in a cache is gone through again and again, as by a step after a step; what comes from memory is not. */
static void caches_are_gone_through_again(void **state)
{
    static rg_seen seen;
    rg_shop *w = open_shop(&seen, 8);

    (void)state;
    rg_clock_set(clock_of_test, &kept.now_ns);
    double cache = rg_shop_far_seconds(w, play_kept, RG_FROM_CACHE, 0, 0);
    double memory = rg_shop_far_seconds(w, play_kept, RG_FROM_MEMORY, 0, 0);
    rg_clock_set(NULL, NULL);
    assert_true(fabs(cache - 2e-6) < 1e-9 && fabs(memory - 1e-5) < 1e-9);
    rg_shop_close(w);
}

static void play_nothing(rg_fwd *f, rg_shop *w, int turn)
{
    (void)f;
    (void)w;
    (void)turn;
}

/* When half of the last cache's bandwidth is given, bytes take twice as long, from when they take longer than what is
 * near. */
static void a_cache_gives_half(void **state)
{
    static rg_seen seen;
    rg_machine m = { .read_bytes_s = 1e10, .f32_ops_s = 1e10, .cache_bytes_s = 2 * 32 * 1048576.0 / 2e-4 };
    rg_error err = { 0 };
    rg_shop *w = open_shop(&seen, 8);

    (void)state;
    w->pulse = rg_pulse_open(&m, rg_cpu_find("auto", &err), 1, &err);
    assert_ok(w->pulse, err);
    rg_clock_set(ticking_clock, NULL);
    tick_ns = 200000;
    double s = rg_shop_far_seconds(w, play_nothing, RG_FROM_CACHE, 1e-4, 0.8e-4);
    rg_clock_set(NULL, NULL);
    assert_true(fabs(s - 1.4e-4) < 1e-5);
    rg_pulse_close(w->pulse);
    rg_shop_close(w);
}

static bool allow_some(void *arg, size_t bytes)
{
    int *left = arg;

    (void)bytes;
    return (*left)-- > 0;
}

static void failures_leave_nothing(void **state)
{
    static rg_machine m = { .read_bytes_s = 1e10, .f32_ops_s = 1e10 };
    rg_rates_wanted wanted = { .linear[RG_BF16] = true };
    rg_error err = { 0 };
    const rg_cpu *cpu = rg_cpu_find("auto", &err);

    (void)state;
    for (int n = 0; n < 8; n++) { /* those before the first measurement */
        int left = n;
        rg_mem_stats before = rg_mem_count();
        rg_mem_set_gate(allow_some, &left);
        bool ok = rg_rates_measure(&m, cpu, 1, &wanted, NULL, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_false(ok);
        assert_false(m.rates.measured);
        assert_int_equal(err.code, RG_E_MEMORY);
        assert_int_equal(rg_mem_count().n_live, before.n_live);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(rates_are_measured), cmocka_unit_test(the_median_is_kept),
                                      cmocka_unit_test(a_pulse_is_taken), cmocka_unit_test(roofs_are_what_holds),
                                      cmocka_unit_test(a_long_step_is_looked_at_within),
                                      cmocka_unit_test(rates_are_of_the_roofs), cmocka_unit_test(it_is_quiet_or_not),
                                      cmocka_unit_test(quiet_times_are_kept), cmocka_unit_test(what_is_timed_is_quiet),
                                      cmocka_unit_test(a_turn_is_timed_undisturbed),
                                      cmocka_unit_test(caches_are_gone_through_again),
                                      cmocka_unit_test(a_cache_gives_half),
                                      cmocka_unit_test(failures_leave_nothing) };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
