/* test_draft_choice.c -- the choice of drafts on machines that the test makes up: what steps take, what drafters take and
 * how often they are right is what the test says, and no choice may lose beside writing without drafts. */
#include "support/test.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "engine/draft_choice.h"
#include "machines.h"


enum { MAX_ANSWERS = 64, N_DRAFTERS = 2, CONTEXT = 300 };

/* What a made-up machine takes: short of its roofs by a factor, and by so many seconds for every row. */
typedef struct machine {
    const rg_step_facts *facts;
    double part, row_s;
} machine;

static double took_s(const machine *m, const rg_step_time *t, const rg_step_load *load)
{
    return (rg_step_limit_s(t, load) + m->facts->fixed_s) / m->part + load->n_rows * m->row_s;
}

typedef struct world {
    machine machine;
    double chance[N_DRAFTERS];   /* of a guess, if those before it stand */
    double offers[N_DRAFTERS];   /* how often a drafter has one */
    double level_s[N_DRAFTERS];  /* of a drafter, for each id of a path and call */
    int n_answers;
    uint64_t seed;
    double read_s;               /* that the first drafter needs to read a text */
    int32_t left;                /* ids that answers may still have */
    int n_slow;                  /* steps at the beginning that take ten times as long */
} world;

typedef struct life {
    rg_draft_choice choice;
    rg_step_time time;
    rg_draft_record records[MAX_ANSWERS][N_DRAFTERS];
    rg_draft_option options[N_DRAFTERS];
    rg_rng rng;
    double s, plain_s; /* seconds so far; and those of the same ids without drafts */
    int n_steps, n_drafted, n_tried; /* n_tried: in vain */
} life;

static void begin(life *l, const world *w)
{
    memset(l, 0, sizeof *l);
    rg_draft_choice_init(&l->choice);
    rg_step_time_init(&l->time, w->machine.facts, &roofs);
    l->rng.seed = w->seed;
    for (int j = 0; j < N_DRAFTERS; j++) {
        l->options[j] = (rg_draft_option){ .depth = j ? RG_CHOICE_DEPTH : 6 };
        for (int k = 0; k <= RG_CHOICE_DEPTH; k++)
            l->options[j].nodes[k] = k;
    }
}

static bool happens(life *l, double chance)
{
    return (double)rg_rng_below(&l->rng, 1 << 20) < chance * (1 << 20);
}

/* One step: the choice, what becomes of it, and what it took. */
static void step(life *l, const world *w)
{
    rg_draft_answer answers[MAX_ANSWERS];
    rg_step_load load = { 0 }, plain;
    int32_t deepest[N_DRAFTERS] = { 0 }, n_ids = w->n_answers;
    double s, plain_s;

    for (int i = 0; i < w->n_answers; i++) {
        answers[i] = (rg_draft_answer){ .start = CONTEXT, .max_depth = RG_CHOICE_DEPTH, .left = w->left,
                                        .read_s = { l->n_drafted ? 0 : w->read_s }, .records = l->records[i] };
        rg_step_load_add(&load, w->machine.facts, CONTEXT, 1, 1);
    }
    plain = load;
    for (int j = 0; j < N_DRAFTERS; j++)
        l->options[j].level_s = w->level_s[j];
    rg_draft_choose(&l->choice, &l->time, &load, l->options, N_DRAFTERS, answers, w->n_answers, 512);
    load = (rg_step_load){ 0 };
    for (int i = 0; i < w->n_answers; i++) {
        int32_t depth = 0, right = 0;

        for (int32_t k = 0; k < answers[i].n && !depth; k++) {
            int32_t j = answers[i].drafter[k];

            deepest[j] = answers[i].depth[k] > deepest[j] ? answers[i].depth[k] : deepest[j];
            if (!happens(l, w->offers[j]))
                continue;
            depth = answers[i].depth[k];
            while (right < depth && happens(l, w->chance[j]))
                right++;
            rg_draft_note(&l->choice, &l->records[i][j], j, depth, right);
        }
        n_ids += right;
        rg_step_load_add(&load, w->machine.facts, CONTEXT, 1 + depth, 1 + depth);
    }
    s = took_s(&w->machine, &l->time, &load) * (l->n_steps < w->n_slow ? 10 : 1);
    rg_step_time_learn(&l->time, &load, s);
    for (int j = 0; j < N_DRAFTERS; j++)
        s += deepest[j] * w->level_s[j];
    rg_draft_measure(&l->choice, w->n_answers, deepest[0] || deepest[1], s, n_ids);
    l->s += s;
    plain_s = took_s(&w->machine, &l->time, &plain) * n_ids / w->n_answers;
    l->plain_s += plain_s;
    l->n_steps++;
    l->n_drafted += deepest[0] || deepest[1];
    l->n_tried += l->choice.tried && s > plain_s; /* and lost */
}

static void run(life *l, const world *w, int n)
{
    for (int i = 0; i < n; i++)
        step(l, w);
}

static const machine machines[] = {
    { &dense, 0.4, 0 },      /* rows are free until arithmetic is the limit */
    { &dense, 0.7, 2e-2 },   /* every row costs a fifth of a step of one, which no roof says */
    { &dense, 0.2, 0.2 },    /* rows cost as much as on a machine without caches */
    { &experts, 0.5, 0 },    /* rows read more experts */
    { &experts, 0.5, 1e-3 },
};

/* At every size, on every machine, with drafters good and bad, for 400 steps: an answer of 100 ids loses
 * two hundredths at most to trying, one of 32 ids four, and nothing is lost in the long run. */
static void drafting_never_loses(void **state)
{
    static const double chances[] = { 0, 0.3, 0.6, 0.8, 0.95 };
    static const double levels[] = { 0, 5e-3, 5e-2 };
    int step_of = test_all() ? 1 : 20;
    double worst = 2, worst_early = 2;

    (void)state;
    for (size_t m = 0; m < RG_LEN(machines); m++)
        for (int n = 1; n <= MAX_ANSWERS; n += n < 4 ? 1 : step_of)
            for (size_t i = 0; i < RG_LEN(chances); i++)
                for (size_t k = 0; k < RG_LEN(levels); k++) {
                    world w = { .machine = machines[m], .chance = { chances[i], chances[(i + k) % RG_LEN(chances)] / 2 },
                                .offers = { 1, 0.4 }, .level_s = { levels[k], 1e-6 }, .n_answers = n, .seed = i + 7 };
                    life l;
                    double short_ratio, early, early_plain;

                    begin(&l, &w);
                    run(&l, &w, 32);
                    short_ratio = l.plain_s / l.s;
                    run(&l, &w, 68);
                    early = l.s;
                    early_plain = l.plain_s;
                    run(&l, &w, 300);
                    worst = fmin(worst, (l.plain_s - early_plain) / (l.s - early));
                    worst_early = fmin(worst_early, fmin(short_ratio, early_plain / early));
                    if (short_ratio < 0.96 || early > early_plain / 0.98 ||
                        l.s - early > 1.01 * (l.plain_s - early_plain))
                        fail_msg("machine %d, %d answers, chance %g, a level takes %g s: %.3f in 32 steps, %.3f in 100, then "
                                 "%.3f of the rate without drafts; %d of %d steps drafted, %d tried", (int)m, n,
                                 chances[i], levels[k], short_ratio, early_plain / early,
                                 (l.plain_s - early_plain) / (l.s - early), l.n_drafted, l.n_steps, l.n_tried);
                    assert_true(l.n_tried <= 1 + l.n_steps / RG_CHOICE_TRY);
                }
    print_message("at worst %.4f of the rate without drafts, in the first 100 steps %.4f\n", worst, worst_early);
}

/* Where rows are free and guesses good, it drafts; where rows cost, it is off. */
static void what_pays_is_used(void **state)
{
    world w = { .machine = machines[0], .chance = { 0.9, 0.2 }, .offers = { 1, 1 }, .level_s = { 1e-3, 1e-6 },
                .n_answers = 1, .seed = 3 };
    life l;

    (void)state;
    begin(&l, &w);
    run(&l, &w, 400);
    if (l.plain_s < 3.5 * l.s)
        fail_msg("only %.2f times as quick", l.plain_s / l.s);
    w.machine = machines[2];
    w.chance[0] = 0.2;
    begin(&l, &w);
    run(&l, &w, 400);
    assert_true(l.n_drafted < 20);
    w.machine = machines[0];
    w.chance[0] = 0.9;
    w.n_answers = 64; /* 64 rows are what arithmetic can do in the time */
    begin(&l, &w);
    run(&l, &w, 400);
    assert_true(l.plain_s > 0.99 * l.s);
}

/* Drafts become good, or bad, in the middle. */
static void changes_are_followed(void **state)
{
    world w = { .machine = machines[0], .chance = { 0.9, 0.9 }, .offers = { 1, 0.5 }, .level_s = { 1e-2, 1e-6 },
                .n_answers = 2, .seed = 4 };
    double s, plain_s;
    life l;

    (void)state;
    begin(&l, &w);
    run(&l, &w, 300);
    w.chance[0] = w.chance[1] = 0.02;
    s = l.s;
    plain_s = l.plain_s;
    run(&l, &w, 600);
    if (l.plain_s - plain_s < 0.98 * (l.s - s))
        fail_msg("%.3f of the rate without drafts after they became bad", (l.plain_s - plain_s) / (l.s - s));
    w.chance[0] = w.chance[1] = 0.95;
    run(&l, &w, 4000);
    s = l.s;
    plain_s = l.plain_s;
    run(&l, &w, 300);
    if (l.plain_s - plain_s < 2 * (l.s - s))
        fail_msg("only %.2f times as quick after they became good", (l.plain_s - plain_s) / (l.s - s));
}

/* A network that was never asked has to read the text first: it is asked once steps without drafts have earned a whole
 * step, so that an answer of 100 ids is not slowed down for it. */
static void a_new_network_waits(void **state)
{
    world w = { .machine = machines[0], .chance = { 0.9, 0.2 }, .offers = { 1, 0 }, .level_s = { 1e-3, 1e-6 }, .n_answers = 1,
                .seed = 3 };
    life l;

    (void)state;
    begin(&l, &w);
    l.options[0].is_new = true;
    l.options[1].depth = 0;
    run(&l, &w, 100);
    assert_int_equal(l.n_drafted, 0);
    run(&l, &w, 40);
    assert_true(l.n_drafted > 0);
}

/* Reading the text for a drafter is worth it where the answer may be long, and not where it is short. */
static void reading_a_text_is_weighed(void **state)
{
    world w = { .machine = machines[0], .chance = { 0.9, 0.2 }, .offers = { 1, 0 }, .level_s = { 1e-3, 1e-6 },
                .n_answers = 1, .seed = 3 };
    life l;

    (void)state;
    for (int longer = 0; longer < 2; longer++) {
        begin(&l, &w);
        l.options[1].depth = 0;
        w.left = 0;
        w.read_s = 0;
        run(&l, &w, 3); /* what a step takes is known now */
        w.read_s = 5 * l.s / 3;
        w.left = longer ? 600 : 400;
        run(&l, &w, 100);
        if ((l.n_drafted > 0) != longer)
            fail_msg("%d drafts for an answer that may have %d ids more", l.n_drafted, (int)w.left);
    }
}

/* Steps that were slow at the beginning, since caches were cold and threads asleep, make no later draft seem to pay. */
static void a_slow_start_is_no_measure(void **state)
{
    (void)state;
    for (size_t m = 0; m < RG_LEN(machines); m++)
        for (int n_slow = 8; n_slow <= 32; n_slow += 8)
            for (int tenths = 1; tenths < 8; tenths++) {
                world w = { .machine = machines[m], .chance = { 0.1 * tenths, 0.2 }, .offers = { 1, 0 },
                            .level_s = { 0.1, 1e-6 }, .n_answers = 1, .seed = 3, .n_slow = n_slow };
                life l;
                double s, plain_s;

                begin(&l, &w);
                run(&l, &w, n_slow);
                s = l.s;
                plain_s = l.plain_s;
                run(&l, &w, 400);
                if (l.plain_s - plain_s < 0.98 * (l.s - s))
                    fail_msg("machine %d, %d slow steps, chance 0.%d: %.3f of the rate without drafts", (int)m, n_slow,
                             tenths, (l.plain_s - plain_s) / (l.s - s));
            }
}

/* Where rows cost and no guess stands, a step works out one depth or two: what drafts may lose does not cover deeper
 * ones, and most steps have nothing to spend. */
static void choosing_is_little_work(void **state)
{
    world w = { .machine = machines[2], .chance = { 0.05, 0.05 }, .offers = { 1, 1 }, .level_s = { 1e-3, 1e-6 },
                .n_answers = 1, .seed = 5 };
    life l;

    (void)state;
    begin(&l, &w);
    run(&l, &w, 400);
    if (l.choice.n_plans > 2 * l.n_steps)
        fail_msg("%d plans in %d steps", (int)l.choice.n_plans, l.n_steps);
    assert_true(l.choice.n_plans > 0);
}

/* The chance of a guess is that of its drafter as long as little is known of the answer, and then its own. */
static void records_are_held_to_the_drafter(void **state)
{
    rg_draft_choice c;
    rg_draft_record bad = { { 0 }, { 0 } }, fresh = { { 0 }, { 0 } };

    (void)state;
    rg_draft_choice_init(&c);
    assert_true(fabs(rg_draft_chance(&c, &fresh, 0, 0) - 0.5) < 1e-9);
    for (int i = 0; i < 100; i++)
        rg_draft_note(&c, &bad, 0, 3, i % 10 == 0);
    assert_true(rg_draft_chance(&c, &bad, 0, 0) < 0.2 && rg_draft_chance(&c, &fresh, 0, 0) < 0.25);
    assert_true(fabs(rg_draft_chance(&c, &fresh, 1, 0) - 0.5) < 1e-9); /* another drafter */
    for (int i = 0; i < 30; i++)
        rg_draft_note(&c, &fresh, 0, 3, 3);
    assert_true(rg_draft_chance(&c, &fresh, 0, 0) > 0.8 && rg_draft_chance(&c, &bad, 0, 0) < 0.3);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafting_never_loses),
        cmocka_unit_test(what_pays_is_used),
        cmocka_unit_test(changes_are_followed),
        cmocka_unit_test(a_new_network_waits),
        cmocka_unit_test(reading_a_text_is_weighed),
        cmocka_unit_test(a_slow_start_is_no_measure),
        cmocka_unit_test(choosing_is_little_work),
        cmocka_unit_test(records_are_held_to_the_drafter),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
