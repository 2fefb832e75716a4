/* Tests of the step loop over a fake model (fake.h): any error of paging, sharing, copying or replay changes what it
 * reads back and so its output, which is compared with the same model over plain arrays (alone.h). */
#include "engine/alone.h"

/* ---- many random steps ------------------------------------------------------------------------------------------- */

static rg_loop_options options_of(bool use_prefixes, rg_preempt preempt)
{
    return (rg_loop_options){ .max_seqs = 5,
                              .max_rows = MAX_ROWS,
                              .max_seq_len = MAX_LEN,
                              .max_waiting = 100,
                              .use_prefixes = use_prefixes,
                              .preempt = preempt };
}

/* How often those were preempted who are not in the background, and whether any of the background holds state. */
static int n_preempted_in_front(const live *lives, bool *background_holds)
{
    int n = 0;

    *background_holds = false;
    for (int i = 0; i < MAX_LIVE; i++) {
        const rg_request *r = lives[i].r;

        if (r && !r->params.background)
            n += atomic_load(&r->counts.n_preempted);
        for (int k = 0; r && r->params.background && k < r->params.n_samples; k++)
            *background_holds |= r->samples[k].seq && r->samples[k].seq->n_blocks;
    }
    return n;
}

static void run_random(const mix *m, bool use_prefixes, bool drafts, rg_preempt preempt, int n_steps, uint64_t seed)
{
    rg_rng g = { .seed = seed }, budgets = { .seed = seed + 1 }, clock = { .seed = seed + 2 };
    rg_loop_options options = options_of(use_prefixes, preempt);
    size_t n_before = rg_mem_count().n_live;
    live lives[MAX_LIVE] = { { 0 } };
    int n_done = 0;
    rg_error err;
    fake *f = fake_new(m, &err);
    rg_loop *loop;
    oracle o;

    assert_ok(f, err);
    oracle_init(&o, lives, seed);
    if (drafts) {
        options.drafter = &o.d;
        options.max_draft = FAKE_DRAFT;
    }
    options.share_prefixes = seed % 2;
    options.static_batching = seed % 5 == 4;
    if (seed % 3 == 2) {
        options.step_s = 4e-4;
        options.pace = 1.5;
        options.roofs = (rg_step_roofs){ 1e9, 1e9, 1e9 };
        f->runner.facts = (rg_step_facts){ .weight_bytes = 1e5, .row_bytes = 1e3, .row_ops = 1e4 };
        rg_clock_set(random_clock, &clock);
    }
    loop = rg_loop_new(&f->runner, &options, &err);
    assert_ok(loop, err);
    rg_loop_set_budget(loop, budget_random, &budgets);
    for (int step = 0;; step++) { /* until the last of them has ended */
        bool more = step < n_steps, any = false, holds;

        for (int i = 0; i < MAX_LIVE; i++) {
            if (!lives[i].r && more && !rg_rng_below(&g, 60))
                assert_ok(live_open(&lives[i], m, loop, &g, MAX_PROMPT, &err), err);
            if (lives[i].r && !rg_rng_below(&g, 900)) {
                lives[i].cancelled = true;
                atomic_store(&lives[i].r->cancelled, true);
            }
        }
        if (!rg_rng_below(&g, 25))
            rg_loop_preempt(loop, (int)rg_rng_below(&g, 4), rg_rng_below(&g, 2) ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE);
        int n_before_step = n_preempted_in_front(lives, &holds);
        rg_loop_step(loop);
        rg_loop_check(loop);
        assert_true(n_preempted_in_front(lives, &holds) == n_before_step || !holds);
        for (int i = 0; i < MAX_LIVE; i++) {
            if (lives[i].r && live_read(&lives[i])) {
                live_close(&lives[i]);
                n_done++;
            }
            any |= lives[i].r != NULL;
        }
        if (!more && !any)
            break;
        assert_true(step < 20 * n_steps);
    }
    rg_stats s = rg_loop_stats(loop);
    print_message("%s%s%s: %d requests, %d preempted, %d rows, %d from the cache, %d drafted, %d accepted\n", m->name,
                  use_prefixes ? ", prefixes" : "", drafts ? ", drafts" : "", n_done, (int)s.n_preempted, (int)s.n_rows,
                  (int)s.n_cached_rows, (int)s.n_draft_rows, (int)s.n_draft_accepted);
    assert_true(!drafts || (s.n_draft_accepted > 0 && s.n_draft_accepted <= s.n_draft_rows && o.n_ended > 0));
    assert_true(n_done > n_steps / 100);
    rg_clock_set(NULL, NULL);
    rg_loop_free(loop);
    fake_free(f);
    assert_int_equal(rg_mem_count().n_live, n_before);
}

static void output_is_that_of_the_request_alone(void **state)
{
    int n_steps = 1200;

    (void)state;
    for (size_t i = 0; i < RG_LEN(mixes); i++) {
        run_random(&mixes[i], true, false, RG_PREEMPT_RECOMPUTE, n_steps, test_seed + 100 * i);
        run_random(&mixes[i], true, false, RG_PREEMPT_SWAP, n_steps, test_seed + 100 * i + 1);
        run_random(&mixes[i], false, false, RG_PREEMPT_AUTO, n_steps, test_seed + 100 * i + 2);
        run_random(&mixes[i], true, true, RG_PREEMPT_AUTO, n_steps, test_seed + 100 * i + 3);
        run_random(&mixes[i], false, true, RG_PREEMPT_SWAP, n_steps, test_seed + 100 * i + 4);
    }
}

/* ---- refusals, failures, ends ------------------------------------------------------------------------------------ */

static rg_request *request_simple(int32_t n_prompt, int32_t max_tokens, rg_error *err)
{
    int32_t prompt[MAX_LEN];
    rg_params p = { .prompt = prompt, .n_prompt = n_prompt, .max_tokens = max_tokens, .n_samples = 2,
                    .prompt_logprobs = true, .n_prompt_tops = 2 };

    for (int32_t i = 0; i < n_prompt; i++)
        prompt[i] = i % VOCAB;
    p.sampling =
        (rg_sampling){ .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = 2, .ignore_eos = true };
    return rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, err);
}

static void what_can_never_fit_is_refused(void **state)
{
    mix small = { .name = "small", .global = true, .n_blocks = 2 };
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(&small, &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    rg_request *r = request_simple(100, 30, &err), *fits = request_simple(100, 29, &err);
    rg_token t;

    (void)state;
    assert_false(rg_loop_submit(loop, r, &err));
    assert_int_equal(err.code, RG_E_LIMIT);
    assert_ok(rg_loop_submit(loop, fits, &err), err);
    while (rg_loop_step(loop))
        rg_loop_check(loop);
    for (int i = 0; i < 60; i++)
        assert_int_equal(rg_request_poll(fits, &t), 1);
    assert_int_equal(rg_request_poll(fits, &t), -1);
    rg_request_unref(r);
    rg_request_unref(fits);
    rg_loop_free(loop);
    fake_free(f);
}

/* n requests of one mix, run to their end. */
static rg_stats run_to_end(const mix *m, rg_request **r, int n)
{
    rg_loop_options options = options_of(false, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(m, &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    rg_stats stats;

    assert_ok(loop, err);
    for (int i = 0; i < n; i++)
        assert_ok(rg_loop_submit(loop, r[i], &err), err);
    while (rg_loop_step(loop))
        rg_loop_check(loop);
    stats = rg_loop_stats(loop);
    rg_loop_free(loop);
    fake_free(f);
    return stats;
}

static void samples_share_their_prompt(void **state)
{
    rg_error err;
    rg_request *r = request_simple(200, 30, &err);

    (void)state;
    assert_ok(r, err);
    /* 199 positions once, the last one and 29 more for each of the two. */
    assert_int_equal(run_to_end(&mixes[1], &r, 1).n_rows, 199 + 2 * 30);
    rg_request_unref(r);
}

static void who_comes_first_is_served_first(void **state)
{
    rg_error err;
    rg_request *r[5];

    (void)state;
    for (int i = 0; i < 5; i++) {
        r[i] = request_simple(60, 200, &err);
        assert_ok(r[i], err);
    }
    assert_true(run_to_end(&mixes[0], r, 5).n_preempted > 0); /* each needs 10 blocks of 14 in the end */
    assert_int_equal(r[0]->counts.n_preempted, 0);
    for (int i = 1; i < 5; i++)
        assert_true(r[0]->counts.finished_ns <= r[i]->counts.finished_ns);
    for (int i = 0; i < 5; i++)
        rg_request_unref(r[i]);
}

static void a_full_queue_refuses(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(&mixes[0], &err);
    rg_loop *loop;
    rg_request *r[4];

    (void)state;
    options.max_waiting = 3;
    loop = rg_loop_new(&f->runner, &options, &err);
    for (int i = 0; i < 4; i++) {
        r[i] = request_simple(10, 10, &err);
        assert_int_equal(rg_loop_submit(loop, r[i], &err), i < 3);
    }
    assert_int_equal(err.code, RG_E_BUSY);
    rg_loop_free(loop); /* closing ends the three as cancelled */
    for (int i = 0; i < 4; i++) {
        rg_token t;

        for (int k = 0; k < 2 && i < 3; k++) {
            assert_int_equal(rg_request_poll(r[i], &t), 1);
            assert_int_equal(t.finish, RG_FINISH_CANCELLED);
        }
        assert_int_equal(rg_request_poll(r[i], &t), i < 3 ? -1 : 0);
        rg_request_unref(r[i]);
    }
    fake_free(f);
}

static bool fail_at(void *arg, size_t bytes)
{
    int *n = arg;

    (void)bytes;
    return (*n)-- != 0;
}

/* The N-th allocation fails, N = 0, 1, 2, ... until all goes well. */
static void every_allocation_may_fail(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_SWAP);
    size_t n_before = rg_mem_count().n_live;
    bool done = false;

    (void)state;
    for (int n = 0; !done && n < 500; n++) {
        int left = n;
        rg_error err = { 0 };
        fake *f;
        rg_loop *loop = NULL;
        rg_request *r = NULL;

        rg_mem_set_gate(fail_at, &left);
        f = fake_new(&mixes[RG_LEN(mixes) - 1], &err);
        if (f)
            loop = rg_loop_new(&f->runner, &options, &err);
        if (loop)
            r = request_simple(70, 20, &err);
        if (r) {
            done = rg_loop_submit(loop, r, &err);
            for (int i = 0; rg_loop_step(loop); i++) {
                rg_loop_preempt(loop, 0, RG_PREEMPT_SWAP);
                assert_true(i < 1000);
            }
            done = done && left >= 0;
        } else {
            assert_int_equal(err.code, RG_E_MEMORY);
        }
        rg_mem_set_gate(NULL, NULL);
        rg_request_unref(r);
        rg_loop_free(loop);
        if (f)
            fake_free(f);
        assert_int_equal(rg_mem_count().n_live, n_before);
    }
    assert_true(done);
}

/* In debug builds an allocation between forbid and permit asserts. */
static void a_step_allocates_nothing(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_RECOMPUTE);
    rg_error err;
    fake *f = fake_new(&mixes[RG_LEN(mixes) - 1], &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    uint64_t n_allocs;
    rg_request *r[6];

    (void)state;
    for (int i = 0; i < 6; i++) {
        r[i] = request_simple(60 + 31 * i, 100, &err);
        assert_ok(rg_loop_submit(loop, r[i], &err), err);
    }
    n_allocs = rg_mem_count().n_allocs;
    rg_mem_forbid();
    for (int i = 0; rg_loop_step(loop); i++)
        if (i % 20 == 19)
            rg_loop_preempt(loop, 1, RG_PREEMPT_RECOMPUTE);
    rg_mem_permit();
    assert_int_equal(rg_mem_count().n_allocs, n_allocs);
    assert_true(rg_loop_stats(loop).n_preempted > 0);
    for (int i = 0; i < 6; i++)
        rg_request_unref(r[i]);
    rg_loop_free(loop);
    fake_free(f);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct client {
    rg_loop *loop;
    const mix *mix;
    uint64_t seed;
} client;

static void *client_main(void *arg)
{
    client *cl = arg;
    rg_rng g = { .seed = cl->seed };

    for (int k = 0; k < 12; k++) {
        int32_t prompt[300], dim, n = 1 + (int32_t)rg_rng_below(&g, 150);
        rg_params p = {
            .prompt = prompt, .n_prompt = n, .max_tokens = 1 + (int32_t)rg_rng_below(&g, 40), .n_samples = 1
        };
        expected *want = rg_alloc(sizeof *want);
        bool cancels = !rg_rng_below(&g, 4);
        float embedding[DIM];
        int32_t seen = 0;
        scored *scores = NULL;
        rg_request *r;
        rg_token t;

        prompt_random(&g, prompt, n);
        p.prompt_logprobs = k % 2;
        p.n_prompt_tops = k % MAX_TOPS;
        p.prompt_logits = k % 4 == 1;
        p.sampling = sampling_random(&g);
        p.sampling.ignore_eos = true;
        if (k % 3 == 2) {
            p.embed = RG_POOLING_LAST + (rg_pooling)(k % 2);
            want->n = 0;
            expect_embedding(cl->mix, &p, p.prompt, embedding);
        } else {
            expect(cl->mix, &p, p.prompt, 0, p.max_tokens, want);
            scores = p.prompt_logprobs ? expect_scores(cl->mix, &p, p.prompt) : NULL;
        }
        r = rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, NULL);
        if (!r || !rg_loop_submit(cl->loop, r, NULL))
            return arg;
        for (int i = 0; scores && i < 20; i++) /* while they come */
            if (count_scores(r, scores) < 0)
                return arg;
        while (rg_request_wait(r, &t) > 0) {
            if (scores && count_scores(r, scores) != n)
                return arg;
            if (t.id >= 0 && (seen >= want->n || t.id != want->ids[seen++]))
                return arg;
            if (t.id < 0 && t.finish != RG_FINISH_CANCELLED && seen != want->n)
                return arg;
            if (p.embed && t.finish == RG_FINISH_STOP && memcmp(rg_embedding_result(r, &dim), embedding, sizeof embedding))
                return arg;
            if (cancels && seen == 3)
                atomic_store(&r->cancelled, true);
        }
        rg_request_unref(r);
        rg_free(want);
        rg_free(scores);
    }
    return NULL;
}

/* Clients of two models on one host, of which the first goes while the second has much to do. */
static void readers_on_other_threads(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    const mix *m[2] = { &mixes[RG_LEN(mixes) - 1], &mixes[1] };
    client clients[2][3];
    pthread_t ids[2][3];
    fake *f[2];
    rg_loop *loops[2];
    rg_request *long_one;
    rg_error err;
    rg_host *host = rg_host_new(1, 0, &err);

    (void)state;
    assert_ok(host, err);
    for (int k = 0; k < 2; k++) {
        f[k] = fake_new(m[k], &err);
        loops[k] = rg_loop_new(&f[k]->runner, &options, &err);
        f[k]->pool = rg_pool_new(FAKE_THREADS, &err);
        assert_ok(f[k]->pool && rg_host_add(host, loops[k], &err), err);
        for (int i = 0; i < 3; i++) {
            clients[k][i] = (client){ .loop = loops[k], .mix = m[k], .seed = test_seed + (uint64_t)(3 * k + i) };
            assert_int_equal(pthread_create(&ids[k][i], NULL, client_main, &clients[k][i]), 0);
        }
    }
    long_one = request_simple(100, 200, &err);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++) {
            void *failed;

            pthread_join(ids[k][i], &failed);
            assert_null(failed);
        }
        assert_true(rg_loop_stats(loops[k]).n_steps > 0);
        if (!k)
            assert_ok(rg_loop_submit(loops[1], long_one, &err), err);
        rg_loop_free(loops[k]);
        fake_free(f[k]);
    }
    rg_request_unref(long_one);
    rg_host_free(host);
}

/* A reader asleep wakes when the engine closes. */
static void *wait_for_end(void *arg)
{
    rg_token t;

    while (rg_request_wait(arg, &t) > 0)
        ;
    return NULL;
}

static void closing_ends_what_runs(void **state)
{
    rg_loop_options options = options_of(true, RG_PREEMPT_AUTO);
    rg_error err;
    fake *f = fake_new(&mixes[1], &err);
    rg_loop *loop = rg_loop_new(&f->runner, &options, &err);
    rg_request *r[8];
    pthread_t ids[8];

    (void)state;
    rg_host *host = rg_host_new(1, 0, &err);
    assert_ok(host && rg_host_add(host, loop, &err), err);
    for (int i = 0; i < 8; i++) {
        r[i] = request_simple(200, 200, &err);
        assert_ok(rg_loop_submit(loop, r[i], &err), err);
        assert_int_equal(pthread_create(&ids[i], NULL, wait_for_end, r[i]), 0);
    }
    rg_loop_free(loop);
    for (int i = 0; i < 8; i++) {
        pthread_join(ids[i], NULL);
        rg_request_unref(r[i]);
    }
    rg_host_free(host);
    fake_free(f);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_is_that_of_the_request_alone),
        cmocka_unit_test(what_can_never_fit_is_refused),
        cmocka_unit_test(samples_share_their_prompt),
        cmocka_unit_test(who_comes_first_is_served_first),
        cmocka_unit_test(a_full_queue_refuses),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_step_allocates_nothing),
        cmocka_unit_test(readers_on_other_threads),
        cmocka_unit_test(closing_ends_what_runs),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
