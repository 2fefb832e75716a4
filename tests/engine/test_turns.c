/* test_turns.c -- whose turn it is, on members that the test makes up: tenants get what they weigh, whichever members
 * they use; of one tenant's members deadlines come first, and then all get the same time. */
#include "support/test.h"

#include <math.h>

#include "engine/shares.h"
#include "engine/turns.h"

enum { MEMBERS = 3, TENANTS = 2 };

/* Members whose steps take so long, and which tenants have requests on which. */
typedef struct world {
    double step_s[MEMBERS];
    double weight[TENANTS];
    bool uses[TENANTS][MEMBERS];
    rg_shares tenants;
    rg_share *share[TENANTS];
    rg_turn_claim claims[MEMBERS];
    double got_s[TENANTS], had_s[MEMBERS], worst_gap_s[MEMBERS], last_s[MEMBERS], now_s;
} world;

static void begin(world *w)
{
    rg_error err;

    assert_ok(rg_shares_reserve(&w->tenants, TENANTS, &err), err);
    for (int t = 0; t < TENANTS; t++)
        w->share[t] = rg_shares_join(&w->tenants, (uint64_t)t + 1, w->weight[t]);
    for (int m = 0; m < MEMBERS; m++)
        w->claims[m].deadline_ns = UINT64_MAX;
}

static void end(world *w)
{
    for (int t = 0; t < TENANTS; t++)
        rg_shares_leave(&w->tenants, w->share[t]);
    rg_shares_fini(&w->tenants);
}

static void claim(world *w, int m)
{
    rg_turn_claim *c = &w->claims[m];

    c->served = INFINITY;
    c->wants = false;
    for (int t = 0; t < TENANTS; t++)
        if (w->uses[t][m]) {
            c->wants = true;
            c->served = fmin(c->served, w->share[t]->served);
        }
}

/* A step of the member whose turn it is, in which its tenants have as many rows as they weigh: fairness within a member
 * is the scheduler's. */
static int step(world *w)
{
    rg_turn_claim *claims[MEMBERS];
    double weights = 0;

    for (int m = 0; m < MEMBERS; m++) {
        claim(w, m);
        claims[m] = &w->claims[m];
    }
    int m = rg_turns_next(claims, MEMBERS);
    if (m < 0)
        return m;
    for (int t = 0; t < TENANTS; t++)
        weights += w->uses[t][m] ? w->weight[t] : 0;
    for (int t = 0; t < TENANTS; t++)
        if (w->uses[t][m]) {
            double s = w->step_s[m] * w->weight[t] / weights;

            rg_shares_serve(&w->tenants, w->share[t], 1e6 * s);
            w->got_s[t] += s;
        }
    w->worst_gap_s[m] = fmax(w->worst_gap_s[m], w->now_s - w->last_s[m]);
    w->now_s += w->step_s[m];
    w->last_s[m] = w->now_s;
    w->had_s[m] += w->step_s[m];
    rg_turns_took(claims[m], w->step_s[m]);
    return m;
}

static void run(world *w, double upto_s)
{
    while (w->now_s < upto_s)
        assert_true(step(w) >= 0);
}

static void expect_near(double got, double want)
{
    if (fabs(got - want) > 0.02 * want)
        fail_msg("%.3f, not %.3f", got, want);
}

/* A tenant that asks two models gets no more than one that asks a third; steps of one take fifty times as long. */
static void tenants_get_what_they_weigh(void **state)
{
    (void)state;
    for (double weight = 1; weight <= 3; weight += 2) {
        world w = { .step_s = { 0.001, 0.05, 0.01 }, .weight = { 1, weight },
                    .uses = { { true, true, false }, { false, false, true } } };

        begin(&w);
        run(&w, 100);
        expect_near(w.got_s[1] / w.got_s[0], weight);
        expect_near(w.had_s[0], w.had_s[1]); /* the first tenant's two models */
        end(&w);
    }
}

/* A member with short steps waits for a step of each of the others at most. */
static void nobody_waits_long(void **state)
{
    world w = { .step_s = { 0.001, 0.05, 0.02 }, .weight = { 1, 1 },
                .uses = { { true, false, false }, { false, true, true } } };

    (void)state;
    begin(&w);
    run(&w, 50);
    if (w.worst_gap_s[0] > 0.07 + 1e-9)
        fail_msg("the first member waited %.3f s", w.worst_gap_s[0]);
    end(&w);
}

/* Time in which a member had nothing to do is not made up for. */
static void idle_time_is_gone(void **state)
{
    world w = { .step_s = { 0.01, 0.01, 0.01 }, .weight = { 1, 1 }, .uses = { { true, false, false } } };

    (void)state;
    begin(&w);
    run(&w, 10);
    double before = w.had_s[0];
    w.uses[0][1] = true;
    run(&w, 11);
    expect_near(w.had_s[0] - before, 0.5);
    end(&w);
}

static void deadlines_come_first(void **state)
{
    world w = { .step_s = { 0.01, 0.01, 0.01 }, .weight = { 1, 1 }, .uses = { { true, true, true } } };

    (void)state;
    begin(&w);
    w.claims[1].deadline_ns = 2000;
    w.claims[2].deadline_ns = 1000;
    for (int i = 0; i < 10; i++)
        assert_int_equal(step(&w), 2);
    w.uses[0][2] = false;
    assert_int_equal(step(&w), 1);
    w.uses[0][0] = w.uses[0][1] = false;
    assert_int_equal(step(&w), -1);
    end(&w);
}

/* Requests of the background alone: the others' come first, whatever those were served. */
static void the_background_is_last(void **state)
{
    rg_turn_claim front = { .wants = true, .served = 1e9, .deadline_ns = UINT64_MAX, .had_s = 100 },
                  back = { .wants = true, .served = INFINITY, .deadline_ns = 1 }, *claims[] = { &back, &front };

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(rg_turns_next(claims, 2), 1);
    front.wants = false;
    assert_int_equal(rg_turns_next(claims, 2), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenants_get_what_they_weigh),
        cmocka_unit_test(nobody_waits_long),
        cmocka_unit_test(idle_time_is_gone),
        cmocka_unit_test(deadlines_come_first),
        cmocka_unit_test(the_background_is_last),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
