/* Predictions that are learnt from steps, on machines that the test makes up: the time of a step is what the test says. */
#include "support/test.h"

#include <math.h>

#include "engine/step_time.h"
#include "machines.h"

static const rg_step_facts tiny = { /* its steps are all overhead */
    .weight_bytes = 1e5, .head_bytes = 1e4, .head_ops = 1e4, .row_bytes = 1e2, .row_ops = 1e5, .keys = { { 0, 1e2, 1e2 } },
    .n_keys = 1, .fixed_s = 2e-4,
};
static const rg_step_facts *const all_facts[] = { &dense, &experts, &tiny };

enum { MAX_ROWS = 512 };

static rg_step_load prompt_of(const rg_step_facts *f, int32_t n_rows)
{
    rg_step_load load = { 0 };

    rg_step_load_add(&load, f, 0, n_rows, 1);
    return load;
}

static rg_step_load answers_of(const rg_step_facts *f, int n, int64_t at)
{
    rg_step_load load = { 0 };

    for (int i = 0; i < n; i++)
        rg_step_load_add(&load, f, at, 1, 1);
    return load;
}

static void near(double got, double want, double part)
{
    if (!(fabs(got - want) <= part * fabs(want))) {
        print_error("%.9g is not %.9g within %g\n", got, want, part);
        fail();
    }
}

/* The longer of bytes and operations, and the fixed part. */
static void the_roof_is_the_longer_of_two(void **state)
{
    rg_step_time t;
    rg_step_load one = prompt_of(&dense, 1), many = prompt_of(&dense, 400);

    (void)state;
    rg_step_time_init(&t, &dense, &roofs);
    near(rg_step_limit_s(&t, &one), (1e9 + 1e7 + 1e4 + 1e5) / 1e10, 1e-12);
    near(rg_step_limit_s(&t, &many), (400 * 2e9 + 2e7) / 1e12 + 1e5 * 400 * 401 / 2 / 2e11, 1e-12);
    near(rg_step_time_predict(&t, &one), (rg_step_limit_s(&t, &one) + 1e-3) / 0.7, 1e-12); /* as long as nothing was seen */
    rg_step_time_init(&t, &dense, &(rg_step_roofs){ 0 });
    rg_step_time_learn(&t, &one, 1);
    assert_true(rg_step_limit_s(&t, &one) == 0 && rg_step_time_predict(&t, &one) == 0);
    assert_int_equal(rg_step_time_rows(&t, &one, 0, 1e-9, MAX_ROWS), MAX_ROWS);
}

/* What a made-up machine takes, which is what it is whatever has been learnt of it. */
typedef double machine_s(const rg_step_time *t, const rg_step_load *load);

static double plain(const rg_step_time *t, const rg_step_load *load)
{
    rg_step_time fresh;

    rg_step_time_init(&fresh, &t->facts, &roofs);
    return (rg_step_limit_s(&fresh, load) + t->facts.fixed_s) / 0.4;
}

static double half_as_fast(const rg_step_time *t, const rg_step_load *load)
{
    return 2 * plain(t, load);
}

static double from_cache(const rg_step_time *t, const rg_step_load *load) /* faster than what was taken for the limit */
{
    return 0.3 * plain(t, load);
}

static double much_overhead(const rg_step_time *t, const rg_step_load *load)
{
    return plain(t, load) + 5e-3;
}

/* Prompts of all sizes and answers, in turn. */
static void run_steps(rg_step_time *t, machine_s *machine, int n)
{
    for (int i = 0; i < n; i++) {
        rg_step_load load = i % 2 ? answers_of(&t->facts, 1 << i / 2 % 6, 200) : prompt_of(&t->facts, 1 << i / 2 % 10);
        rg_step_time_learn(t, &load, machine(t, &load));
    }
}

/* Whatever the machine gives, predictions come to it within some steps, for sizes that were seen. */
static void predictions_come_to_what_steps_take(void **state)
{
    machine_s *const machines[] = { plain, half_as_fast, from_cache, much_overhead };

    (void)state;
    for (size_t f = 0; f < RG_LEN(all_facts); f++)
        for (size_t m = 0; m < RG_LEN(machines); m++) {
            rg_step_time t;
            rg_step_time_init(&t, all_facts[f], &roofs);
            run_steps(&t, machines[m], 600);
            for (int rows = 1; rows <= MAX_ROWS; rows *= 2) {
                rg_step_load load = prompt_of(all_facts[f], rows);
                near(rg_step_time_predict(&t, &load), machines[m](&t, &load), 0.1);
            }
        }
}

/* A step that takes less than the machine's limit corrects the limit: reading, or arithmetic.  How many experts several
 * rows share is an estimate, and corrects nothing. */
static void a_limit_that_is_beaten_is_corrected(void **state)
{
    rg_step_time t;
    rg_step_load one = prompt_of(&dense, 1), many = prompt_of(&dense, 400), shared = prompt_of(&experts, 4);
    double limit_s, predicted_s;

    (void)state;
    rg_step_time_init(&t, &dense, &roofs);
    for (int i = 0; i < 50; i++)
        rg_step_time_learn(&t, &many, 3 * rg_step_limit_s(&t, &many));
    predicted_s = rg_step_time_predict(&t, &many);
    limit_s = rg_step_limit_s(&t, &one);
    rg_step_time_learn(&t, &one, 2 * limit_s);
    near(t.roofs.bytes_s, roofs.bytes_s, 1e-12);
    rg_step_time_learn(&t, &one, limit_s / 5);
    near(t.roofs.bytes_s, 5 * roofs.bytes_s, 1e-12);
    near(t.roofs.product_ops_s, roofs.product_ops_s, 1e-12);
    near(rg_step_limit_s(&t, &one), limit_s / 5, 1e-12);
    near(rg_step_time_predict(&t, &many), predicted_s, 1e-9); /* what was learnt of other steps stays */
    limit_s = rg_step_limit_s(&t, &many);
    rg_step_time_learn(&t, &many, limit_s / 2);
    near(t.roofs.product_ops_s, 2 * roofs.product_ops_s, 1e-12);
    near(t.roofs.key_ops_s, 2 * roofs.key_ops_s, 1e-12);
    rg_step_time_init(&t, &experts, &roofs);
    rg_step_time_learn(&t, &shared, rg_step_limit_s(&t, &shared) / 3);
    near(t.roofs.bytes_s, roofs.bytes_s, 1e-12);
}

/* After a machine gave half for 20 steps of one size, that is what is predicted of it; one slow step changes little. */
static void a_machine_that_slows_down_shows(void **state)
{
    rg_step_time t;
    rg_step_load load = answers_of(&dense, 4, 500);

    (void)state;
    rg_step_time_init(&t, &dense, &roofs);
    run_steps(&t, plain, 400);
    near(rg_step_time_predict(&t, &load), plain(&t, &load), 0.05);
    rg_step_time_learn(&t, &load, 100 * plain(&t, &load));
    near(rg_step_time_predict(&t, &load), plain(&t, &load), 0.1);
    for (int i = 0; i < 40; i++)
        rg_step_time_learn(&t, &load, half_as_fast(&t, &load));
    near(rg_step_time_predict(&t, &load), half_as_fast(&t, &load), 0.1);
    for (int i = 0; i < 40; i++)
        rg_step_time_learn(&t, &load, plain(&t, &load));
    near(rg_step_time_predict(&t, &load), plain(&t, &load), 0.1);
}

/* More rows are never predicted to take less time, though few sizes were seen. */
static void larger_steps_take_no_less(void **state)
{
    (void)state;
    for (size_t f = 0; f < RG_LEN(all_facts); f++)
        for (int seen = 0; seen < 10; seen++)
            for (int slow = 0; slow < 2; slow++) {
                rg_step_time t;
                rg_step_load load = prompt_of(all_facts[f], 1 << seen);
                double last = 0;

                rg_step_time_init(&t, all_facts[f], &roofs);
                for (int i = 0; i < 50; i++)
                    rg_step_time_learn(&t, &load, plain(&t, &load) * (slow ? 20 : 0.05));
                for (int rows = 1; rows <= MAX_ROWS; rows *= 2) {
                    load = prompt_of(all_facts[f], rows);
                    double s = rg_step_time_predict(&t, &load);
                    assert_true(s >= last * (1 - 1e-9));
                    last = s;
                }
            }
}

/* Sizes that never come follow those that do: a prompt may have as many rows as the machine can compute in time, though
 * none of so many was seen, or was seen long ago on a slower machine. */
static void sizes_that_never_come_follow(void **state)
{
    (void)state;
    for (size_t f = 0; f < RG_LEN(all_facts); f++)
        for (int before = 0; before < 2; before++) {
            rg_step_time t;
            rg_step_load few = answers_of(all_facts[f], 4, 200), many = prompt_of(all_facts[f], 64);

            rg_step_time_init(&t, all_facts[f], &roofs);
            for (int i = 0; i < 40 && before; i++)
                rg_step_time_learn(&t, &many, 50 * plain(&t, &many));
            for (int i = 0; i < 400; i++)
                rg_step_time_learn(&t, &few, plain(&t, &few));
            assert_true(rg_step_time_predict(&t, &many) < 1.3 * plain(&t, &many));
        }
}

/* The budget is kept and not wasted: that many rows are predicted to fit, and hardly more would. */
static void a_budget_is_the_inverse(void **state)
{
    (void)state;
    for (size_t f = 0; f < RG_LEN(all_facts); f++)
        for (int n_answers = 0; n_answers < 40; n_answers += 13)
            for (double pace = 1.01; pace < 100; pace *= 1.7) {
                rg_step_time t;
                rg_step_load load = answers_of(all_facts[f], n_answers, 300), one = answers_of(all_facts[f], 1, 300);

                rg_step_time_init(&t, all_facts[f], &roofs);
                run_steps(&t, much_overhead, 200);
                double most_s = pace * rg_step_time_predict(&t, n_answers ? &load : &one);
                int32_t rows = rg_step_time_rows(&t, &load, 700, most_s, MAX_ROWS), more = rows + 2 + rows / 16;
                rg_step_load fits = load, exceeds = load;
                assert_in_range(rows, 0, MAX_ROWS);
                rg_step_load_add(&fits, &t.facts, 700, rows, 1);
                rg_step_load_add(&exceeds, &t.facts, 700, more, 1);
                assert_true(!rows || rg_step_time_predict(&t, &fits) <= most_s * 1.03);
                assert_true(rows == MAX_ROWS || rg_step_time_predict(&t, &exceeds) > most_s);
            }
}

/* A long context takes rows from a budget, as its attention costs more. */
static void late_rows_cost_more(void **state)
{
    rg_step_time t;
    rg_step_load none = { 0 };

    (void)state;
    rg_step_time_init(&t, &dense, &roofs);
    int32_t early = rg_step_time_rows(&t, &none, 0, 5, 1 << 20), late = rg_step_time_rows(&t, &none, 20000, 5, 1 << 20);
    assert_true(late > 0 && late < early * 9 / 10);
}

/* Copying wins where little is kept of much work, and computing again where much is kept of little. */
static void the_quicker_way_back_is_taken(void **state)
{
    rg_step_facts heavy = dense, light = dense;
    const rg_group little = { .per = RG_PER_POSITION, .kept = { .all = true }, .block_bytes = 64 * 100000 },
                   much = { .per = RG_PER_POSITION, .kept = { .all = true }, .block_bytes = 64 * 1000000 };
    rg_step_time t;

    (void)state;
    heavy.kept[0] = little;
    light.kept[0] = much;
    heavy.n_kept = light.n_kept = 1;
    rg_step_time_init(&t, &heavy, &roofs);
    assert_true(rg_step_time_swap_is_quicker(&t, 1000, MAX_ROWS));
    light.row_ops = 1e6;
    light.weight_bytes = 1e6;
    light.head_bytes = 0;
    light.keys[0] = (rg_key_facts){ 0, 1e6, 1e3 };
    rg_step_time_init(&t, &light, &roofs);
    assert_false(rg_step_time_swap_is_quicker(&t, 1000, MAX_ROWS));
    rg_step_load load = prompt_of(&light, MAX_ROWS); /* until computing is seen to take long */
    for (int i = 0; i < 30; i++)
        rg_step_time_learn(&t, &load, 10);
    assert_true(rg_step_time_swap_is_quicker(&t, 1000, MAX_ROWS));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_roof_is_the_longer_of_two),
        cmocka_unit_test(predictions_come_to_what_steps_take),
        cmocka_unit_test(a_limit_that_is_beaten_is_corrected),
        cmocka_unit_test(a_machine_that_slows_down_shows),
        cmocka_unit_test(larger_steps_take_no_less),
        cmocka_unit_test(sizes_that_never_come_follow),
        cmocka_unit_test(a_budget_is_the_inverse),
        cmocka_unit_test(late_rows_cost_more),
        cmocka_unit_test(the_quicker_way_back_is_taken),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
