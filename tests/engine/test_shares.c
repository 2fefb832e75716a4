/* test_shares.c -- tenants whose requests run share sequences, rows and memory: how soon a newcomer is answered beside many
 * answers of another tenant, what each gets who wants all, and that answers stay the same however often they give way. */
#define FAKE_MAX_ROWS 256
#define FAKE_MAX_LOGITS 130
#include "engine/fake.h"

#include <stdlib.h>

#include "base/rng.h"
#include "engine/shares.h"

enum { MAX_LEN = 512, ANSWERS = 96, LONGEST = 300 };

static const mix roomy = { .name = "roomy", .global = true, .n_blocks = 1200 };

typedef struct asked {
    const char *tenant;
    float weight;
    int32_t n_prompt, max_tokens, n_samples, n_beams;
    int32_t first; /* id of the prompt, which goes on from it */
} asked;

static int32_t id_of(const asked *a, int32_t i)
{
    return (a->first + i * i + 5 * i) % VOCAB;
}

static rg_request *submit(rg_loop *l, const asked *a)
{
    int32_t prompt[MAX_LEN];
    rg_params p = { .prompt = prompt, .n_prompt = a->n_prompt, .max_tokens = a->max_tokens, .tenant = a->tenant,
                    .tenant_weight = a->weight, .n_samples = a->n_samples ? a->n_samples : 1,
                    .beam = { .n_beams = a->n_beams, .length_penalty = 1 },
                    .sampling = { .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .ignore_eos = true } };
    rg_error err = { 0 };

    for (int32_t i = 0; i < a->n_prompt; i++)
        prompt[i] = id_of(a, i);
    rg_request *r = rg_request_new(&p, &(rg_request_model){ .vocab_size = VOCAB, .max_seq_len = MAX_LEN, .dim = DIM }, &err);
    assert_ok(r, err);
    assert_ok(rg_loop_submit(l, r, &err), err);
    return r;
}

/* Every id that was written is the likeliest one. */
static void check_ids(const mix *m, const rg_request *r, const asked *a)
{
    int32_t ids[MAX_LEN];

    for (int32_t i = 0; i < a->n_prompt; i++)
        ids[i] = id_of(a, i);
    for (int k = 0; k < r->n_branches && !a->n_beams; k++)
        for (int32_t i = 0; i < r->samples[k].n_output; i++) {
            float logits[VOCAB];
            int32_t best = 0;

            logits_of(plain_hash(m, ids, a->n_prompt + i), logits);
            for (int32_t id = 1; id < VOCAB; id++)
                best = logits[id] > logits[best] ? id : best;
            assert_int_equal(r->samples[k].ids[i], best);
            ids[a->n_prompt + i] = best;
        }
}

typedef struct world {
    const mix *m;
    fake *f;
    rg_loop *loop;
} world;

static world open_world(const mix *m, const rg_loop_options *given)
{
    rg_loop_options o = *given;
    rg_error err = { 0 };
    world w = { .m = m, .f = fake_new(m, &err) };

    assert_ok(w.f, err);
    o.max_rows = o.max_rows ? o.max_rows : MAX_ROWS;
    o.max_seq_len = MAX_LEN;
    o.max_waiting = 1000;
    o.max_seqs = o.max_seqs ? o.max_seqs : 64;
    w.loop = rg_loop_new(&w.f->runner, &o, &err);
    assert_ok(w.loop, err);
    return w;
}

static void close_world(world *w)
{
    rg_loop_free(w->loop);
    fake_free(w->f);
}

static void step(const world *w)
{
    rg_loop_step(w->loop);
    rg_loop_check(w->loop);
}

static bool is_over(const rg_request *r)
{
    return atomic_load(&r->counts.n_ended) == r->params.n_samples;
}

static int n_output(const rg_request *r)
{
    int n = 0;

    for (int k = 0; k < r->n_branches; k++)
        n += r->samples[k].n_output;
    return n;
}

static int n_preempted(const world *w)
{
    return (int)rg_loop_stats(w->loop).n_preempted;
}

/* ---- a newcomer -------------------------------------------------------------------------------------------------- */

/* How the answers come that fill the engine: in so many requests. */
typedef struct crowd {
    int32_t n_requests, n_samples, n_beams;
} crowd;

/* All sequences write answers of one tenant; five ids of another one come one a step from the first step on, whatever rows
 * a step has, and whether prefixes are kept. */
static void check_newcomer(const mix *m, const crowd *c, const rg_loop_options *o, int32_t n_prompt, int32_t n_first)
{
    world w = open_world(m, o);
    asked many = { .tenant = "many", .n_prompt = 7, .max_tokens = 200, .n_samples = c->n_samples, .n_beams = c->n_beams };
    asked few = { .tenant = "few", .n_prompt = n_prompt, .max_tokens = 5, .first = 9 };
    rg_request *all[ANSWERS], *r;

    for (int i = 0; i < c->n_requests; i++) {
        many.first = i;
        all[i] = submit(w.loop, &many);
    }
    for (int i = 0; i < 40; i++)
        step(&w);
    r = submit(w.loop, &few);
    for (int32_t n = 0; n < 5; n++) {
        for (int32_t k = 0; k < (n ? 1 : n_first); k++)
            step(&w);
        assert_int_equal(n_output(r), n + 1);
    }
    assert_true(is_over(r) && !atomic_load(&r->counts.n_preempted));
    check_ids(m, r, &few);
    rg_request_unref(r);
    while (rg_loop_step(w.loop))
        ;
    for (int i = 0; i < c->n_requests; i++) {
        many.first = i;
        assert_true(is_over(all[i]));
        check_ids(m, all[i], &many);
        rg_request_unref(all[i]);
    }
    assert_true(n_preempted(&w) <= 2 + 2 * c->n_beams);
    close_world(&w);
}

static void a_newcomer_waits_for_one_step(void **state)
{
    static const crowd crowds[] = { { ANSWERS, 1, 0 }, { 1, ANSWERS, 0 }, { 2, 48, 0 }, { 70, 1, 0 }, { 12, 1, 8 } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(crowds); i++)
        for (int prefixes = 0; prefixes < 2; prefixes++)
            for (int32_t rows = ANSWERS; rows <= MAX_ROWS; rows += MAX_ROWS - ANSWERS) {
                rg_loop_options o = { .max_seqs = ANSWERS, .max_rows = rows, .use_prefixes = prefixes,
                                      .preempt = prefixes ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE };

                check_newcomer(&roomy, &crowds[i], &o, 5, 1);
                check_newcomer(&roomy, &crowds[i], &o, 40, 1);
            }
}

/* The same where the other tenant's answers have all memory. */
static void a_newcomer_finds_memory(void **state)
{
    static const mix tight = { .name = "tight", .global = true, .n_blocks = 100 };
    static const crowd crowds[] = { { 90, 1, 0 }, { 30, 3, 0 } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(crowds); i++)
        for (int swap = 0; swap < 2; swap++) {
            rg_loop_options o = { .max_seqs = ANSWERS, .preempt = swap ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE };
            world w = open_world(&tight, &o);
            asked many = { .tenant = "many", .n_prompt = 3, .max_tokens = 130, .n_samples = crowds[i].n_samples };
            asked few = { .tenant = "few", .n_prompt = 70, .max_tokens = 70, .first = 9 };
            rg_request *all[ANSWERS], *r;

            for (int k = 0; k < crowds[i].n_requests; k++) {
                many.first = k;
                all[k] = submit(w.loop, &many);
            }
            for (int k = 0; k < 80; k++)
                step(&w);
            r = submit(w.loop, &few);
            for (int32_t n = 0; n < few.max_tokens; n++) {
                step(&w);
                assert_int_equal(n_output(r), n + 1);
            }
            assert_true(is_over(r) && !atomic_load(&r->counts.n_preempted));
            while (rg_loop_step(w.loop))
                rg_loop_check(w.loop);
            for (int k = 0; k < crowds[i].n_requests; k++) {
                many.first = k;
                assert_true(is_over(all[k]));
                check_ids(&tight, all[k], &many);
                rg_request_unref(all[k]);
            }
            check_ids(&tight, r, &few);
            rg_request_unref(r);
            close_world(&w);
        }
}

/* ---- those who want all ------------------------------------------------------------------------------------------ */

enum { GREEDY = 4 };

/* A tenant that asks again as soon as it can, so that so many requests are always there. */
typedef struct greedy {
    asked what;
    int32_t n_wanted; /* requests */
    int32_t shortest; /* ids of an answer, at least; what.max_tokens: at most */
    rg_request *r[128];
    asked was[128];
    int64_t n_given, n_prompt; /* ids, and those of prompts whose answers have begun */
    uint64_t n_ended;
    int32_t n_preempted;
} greedy;

static void ask_again(const world *w, greedy *g, rg_rng *rng)
{
    for (int i = 0; i < g->n_wanted; i++) {
        rg_request *r = g->r[i];

        if (r && is_over(r)) {
            check_ids(w->m, r, &g->was[i]);
            g->n_given += n_output(r);
            g->n_prompt += r->params.n_prompt;
            g->n_preempted += atomic_load(&r->counts.n_preempted);
            g->n_ended++;
            rg_request_unref(r);
            g->r[i] = NULL;
        }
        if (!g->r[i]) {
            g->was[i] = g->what;
            g->was[i].first = (int32_t)rg_rng_below(rng, VOCAB);
            g->was[i].max_tokens = g->shortest + (int32_t)rg_rng_below(rng, (uint32_t)(g->what.max_tokens - g->shortest + 1));
            g->r[i] = submit(w->loop, &g->was[i]);
        }
    }
}

static int64_t given(const greedy *g)
{
    int64_t n = g->n_given;

    for (int i = 0; i < g->n_wanted; i++)
        n += g->r[i] ? n_output(g->r[i]) : 0;
    return n;
}

static void close_greedy(greedy *g)
{
    for (int i = 0; i < g->n_wanted; i++)
        rg_request_unref(g->r[i]);
}

/* What each was given in so many steps, after it had come to rest; the first tenant is there before the others. */
static void run_greedy(const mix *m, const rg_loop_options *o, greedy *all, int n, int n_steps, int64_t *got)
{
    world w = open_world(m, o);
    rg_rng rng = { .seed = test_seed + 3 };

    for (int k = 0; k < 100; k++) {
        ask_again(&w, &all[0], &rng);
        step(&w);
    }
    for (int k = -100; k < n_steps; k++) {
        for (int t = 0; t < n; t++) {
            ask_again(&w, &all[t], &rng);
            if (!k)
                got[t] = -given(&all[t]);
        }
        step(&w);
    }
    for (int t = 0; t < n; t++)
        got[t] += given(&all[t]);
    close_world(&w);
    for (int t = 0; t < n; t++)
        close_greedy(&all[t]);
}

static void expect_share(const char *what, int64_t got, int64_t all, double want)
{
    double share = (double)got / (double)all;

    print_message("%s: %.3f of %d ids, expected %.3f\n", what, share, (int)all, want);
    assert_true(share > want * 0.95 && share < want * 1.05);
}

static void two_who_want_all_get_half(void **state)
{
    static const int32_t n_seqs[] = { 64, 7, 2 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(n_seqs); i++)
        for (int prefixes = 0; prefixes < 2; prefixes++) {
            greedy g[2] = { { .what = { .tenant = "a", .n_prompt = 12, .max_tokens = 60 }, .n_wanted = 100, .shortest = 20 },
                            { .what = { .tenant = "b", .n_prompt = 12, .max_tokens = 60 }, .n_wanted = 80, .shortest = 20 } };
            int64_t got[2];

            run_greedy(&roomy, &(rg_loop_options){ .max_seqs = n_seqs[i], .use_prefixes = prefixes }, g, 2, 1000, got);
            expect_share("half", got[0], got[0] + got[1], 0.5);
        }
}

/* By weight, and one who wants less than its share gets all that it wants. */
static void shares_are_by_weight(void **state)
{
    const asked what = { .n_prompt = 12, .max_tokens = 60 };
    greedy two[2] = { { .what = what, .n_wanted = 100, .shortest = 20 }, { .what = what, .n_wanted = 100, .shortest = 20 } };
    greedy three[3] = { two[0], two[1], { .what = { .n_prompt = 5, .max_tokens = 400, .weight = 0.01f }, .n_wanted = 1 } };
    int64_t got[3];

    (void)state;
    two[0].what.tenant = three[0].what.tenant = "a";
    two[1].what.tenant = three[1].what.tenant = "b";
    two[0].what.weight = 1;
    two[1].what.weight = 3;
    three[1].what.weight = 0.5f; /* beside one who gave none */
    three[2].what.tenant = "c";
    three[2].shortest = 400;
    run_greedy(&roomy, &(rg_loop_options){ .max_seqs = 64 }, two, 2, 1000, got);
    expect_share("three quarters", got[1], got[0] + got[1], 0.75);
    run_greedy(&roomy, &(rg_loop_options){ .max_seqs = 64 }, three, 3, 1000, got);
    expect_share("two thirds", got[0], got[0] + got[1], 2.0 / 3);
    assert_in_range(got[2], 990, 1000); /* a step each, but for prompts */
}

/* One tenant's answers are few and long, the other's many: what each holds of the memory differs by less than a request. */
static void memory_is_shared(void **state)
{
    static const mix tight = { .name = "tight", .global = true, .n_blocks = 80 };

    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        rg_loop_options o = { .max_seqs = 64, .preempt = swap ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE };
        world w = open_world(&tight, &o);
        greedy g[2] = { { .what = { .tenant = "a", .n_prompt = 300, .max_tokens = 200 }, .n_wanted = 12, .shortest = 100 },
                        { .what = { .tenant = "b", .n_prompt = 10, .max_tokens = 60 }, .n_wanted = 30, .shortest = 20 } };
        rg_rng rng = { .seed = test_seed };
        int64_t held[2] = { 0 };

        for (int k = 0; k < 1200; k++) {
            for (int t = 0; t < 2; t++)
                ask_again(&w, &g[t], &rng);
            step(&w);
            for (int t = 0; t < 2 && k >= 200; t++)
                for (int i = 0; i < g[t].n_wanted; i++)
                    held[t] += g[t].r[i]->samples[0].seq ? g[t].r[i]->samples[0].seq->n_blocks : 0;
        }
        print_message("blocks %.1f and %.1f, %d preempted\n", (double)held[0] / 1000, (double)held[1] / 1000, n_preempted(&w));
        assert_true(held[1] > 25 * 1000 && g[1].n_preempted == 0); /* all that it wants: 30 answers of 1 or 2 blocks */
        assert_true(held[0] > 20 * 1000 && g[0].n_ended > 5);
        close_greedy(&g[0]);
        close_greedy(&g[1]);
        close_world(&w);
    }
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

/* Of rows of prompts each gets half, whoever's are longer; and a prompt that comes now and then is computed at once. */
static void prompts_take_turns(void **state)
{
    greedy g[2] = { { .what = { .tenant = "a", .n_prompt = 480, .max_tokens = 1 }, .n_wanted = 20, .shortest = 1 },
                    { .what = { .tenant = "b", .n_prompt = 90, .max_tokens = 1 }, .n_wanted = 20, .shortest = 1 } };
    world w = open_world(&roomy, &(rg_loop_options){ .max_seqs = 32, .max_rows = 64 });
    rg_rng rng = { .seed = test_seed };
    int64_t before[2] = { 0 };

    (void)state;
    for (int k = 0; k < 1100; k++) {
        for (int t = 0; t < 2; t++)
            ask_again(&w, &g[t], &rng);
        step(&w);
        if (k == 100)
            before[0] = g[0].n_prompt, before[1] = g[1].n_prompt;
    }
    expect_share("rows of prompts", g[0].n_prompt - before[0], g[0].n_prompt - before[0] + g[1].n_prompt - before[1], 0.5);
    for (int i = 0; i < 10; i++) {
        asked now = { .tenant = i % 2 ? "c" : "d", .n_prompt = 50, .max_tokens = 1, .first = i };
        rg_request *r = submit(w.loop, &now);

        step(&w);
        assert_true(is_over(r));
        rg_request_unref(r);
        for (int k = 0; k < 20; k++) {
            ask_again(&w, &g[0], &rng);
            step(&w);
        }
    }
    close_greedy(&g[0]);
    close_greedy(&g[1]);
    close_world(&w);
}

/* ---- nobody gives and takes in turns ----------------------------------------------------------------------------- */

/* Once shares are even, nothing is taken any more: two tenants with long answers change hands once. */
static void even_shares_rest(void **state)
{
    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        world w = open_world(&roomy, &(rg_loop_options){ .max_seqs = 64, .preempt = swap ? RG_PREEMPT_SWAP : RG_PREEMPT_AUTO });
        asked what = { .n_prompt = 6, .max_tokens = LONGEST };
        rg_request *r[128];
        int n_running[2] = { 0 };

        for (int i = 0; i < 128; i++) {
            what.tenant = i < 64 ? "a" : "b";
            what.first = i;
            if (i == 64)
                for (int k = 0; k < 20; k++)
                    step(&w);
            r[i] = submit(w.loop, &what);
        }
        for (int k = 0; k < 200; k++)
            step(&w);
        assert_int_equal(n_preempted(&w), 32);
        for (int i = 0; i < 128; i++)
            n_running[i / 64] += r[i]->samples[0].seq != NULL;
        assert_true(n_running[0] == 32 && n_running[1] == 32);
        while (rg_loop_step(w.loop))
            ;
        for (int i = 0; i < 128; i++) {
            what.first = i;
            check_ids(&roomy, r[i], &what);
            assert_true(is_over(r[i]) && atomic_load(&r[i]->counts.n_preempted) <= 1);
            rg_request_unref(r[i]);
        }
        close_world(&w);
    }
}

/* Whoever comes, with beams, samples and any weights: everybody ends, and with the same ids. */
static void anybody_comes(void **state)
{
    static const mix mixes[] = {
        { .name = "tight", .global = true, .n_blocks = 40 },
        { .name = "recurrent", .global = true, .recurrent = true, .n_blocks = 60, .n_slots = 24 },
    };
    static const char *const names[] = { "a", "b", "c", "d" };

    (void)state;
    for (size_t m = 0; m < RG_LEN(mixes); m++)
        for (int turn = 0; turn < 4; turn++) {
            rg_rng g = { .seed = test_seed + (uint64_t)turn };
            world w = open_world(&mixes[m], &(rg_loop_options){ .max_seqs = 12, .max_rows = turn % 2 ? 20 : 0,
                                                               .use_prefixes = turn & 2,
                                                               .preempt = turn % 2 ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE });
            rg_request *r[60];
            asked what[60];

            for (int i = 0; i < 60; i++) {
                what[i] = (asked){ .tenant = names[rg_rng_below(&g, 4)], .weight = (float)rg_rng_below(&g, 4),
                                   .n_prompt = 1 + (int32_t)rg_rng_below(&g, rg_rng_below(&g, 4) ? 30 : 400),
                                   .max_tokens = 1 + (int32_t)rg_rng_below(&g, 90), .n_samples = 1,
                                   .first = (int32_t)rg_rng_below(&g, VOCAB) };
                if (!rg_rng_below(&g, 4))
                    what[i].n_samples = 1 + (int32_t)rg_rng_below(&g, 20);
                else if (!rg_rng_below(&g, 4))
                    what[i].n_beams = 2 + (int32_t)rg_rng_below(&g, 6);
                r[i] = submit(w.loop, &what[i]);
                for (int k = (int)rg_rng_below(&g, 30); k > 0; k--)
                    step(&w);
            }
            for (int k = 0; rg_loop_step(w.loop); k++)
                assert_true(k < 100000);
            for (int i = 0; i < 60; i++) {
                assert_true(is_over(r[i]));
                check_ids(&mixes[m], r[i], &what[i]);
                rg_request_unref(r[i]);
            }
            print_message("%s: %d preempted\n", mixes[m].name, n_preempted(&w));
            close_world(&w);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_newcomer_waits_for_one_step), cmocka_unit_test(a_newcomer_finds_memory),
        cmocka_unit_test(two_who_want_all_get_half),     cmocka_unit_test(shares_are_by_weight),
        cmocka_unit_test(memory_is_shared),              cmocka_unit_test(prompts_take_turns),
        cmocka_unit_test(even_shares_rest),              cmocka_unit_test(anybody_comes),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
