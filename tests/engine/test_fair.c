/* Tests of who is taken from the queue, and when: fairness, priority, deadlines, pace, and what is said about it. */
#include "engine/fake.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "engine/fair.h"
#include "engine/scheduler.h"

enum { MAX_LEN = 448, MANY = 400 };

/* Greedy, and no end but max_tokens. */
#define NEUTRAL { .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1, .ignore_eos = true }

static const mix roomy = { .name = "roomy", .global = true, .n_blocks = 60 };

/* ---- the queue by itself ------------------------------------------------------------------------------------------ */

static rg_request *request_of(const char *tenant, int32_t priority, int32_t n_prompt, int32_t max_tokens)
{
    int32_t prompt[MAX_LEN];
    rg_error err;
    rg_params p = { .prompt = prompt, .n_prompt = n_prompt, .max_tokens = max_tokens, .n_samples = 1,
                    .tenant = tenant, .priority = priority };
    rg_request *r;

    for (int32_t i = 0; i < n_prompt; i++)
        prompt[i] = i % VOCAB;
    p.sampling = (rg_sampling)NEUTRAL;
    r = rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, &err);
    assert_ok(r, err);
    return r;
}

/* Whatever mix of sizes tenants send, what each was given differs by no more than a quantum and the largest request. */
static void tenants_share_alike(void **state)
{
    static const char *const names[] = { "a", "b", "c" };
    rg_rng g = { .seed = test_seed };
    rg_fair *f = rg_fair_new(3 * MANY, NULL);
    rg_request *r;
    double given[3] = { 0 };
    int32_t left[3] = { MANY, MANY, MANY };
    uint64_t keys[3];

    (void)state;
    for (int i = 0; i < 3 * MANY; i++) {
        /* a asks for much at a time, b for little, c for anything */
        int t = i % 3, n = t == 0 ? 400 : t == 1 ? 10 : 1 + (int)rg_rng_below(&g, 400);

        r = request_of(names[t], 0, n, 40);
        r->id = (uint64_t)i + 1;
        keys[t] = r->who.tenant;
        rg_fair_add(f, r);
        rg_fair_check(f);
    }
    while ((r = rg_fair_first(f))) {
        int t = r->who.tenant == keys[0] ? 0 : r->who.tenant == keys[1] ? 1 : 2;

        assert_ptr_equal(rg_fair_first(f), r);
        rg_fair_take(f, r);
        rg_fair_check(f);
        given[t] += r->params.n_prompt + 2 * 40;
        left[t]--;
        rg_request_unref(r);
        for (int k = 0; k < 3 && left[0] && left[1] && left[2]; k++)
            assert_true(given[t] - given[k] <= 2 * (512 + 480));
    }
    assert_int_equal(left[0] + left[1] + left[2], 0);
    rg_fair_free(f);
}

/* Who asks for a thing now and then waits for nobody who asks for much; who always asks again has its turn like others. */
static void who_asks_for_little_goes_first(void **state)
{
    rg_fair *f = rg_fair_new(64, NULL);
    rg_request *r, *flood[40], *asked;
    int n_flood = 0, n_before = 0, before;
    uint64_t id = 0;

    (void)state;
    for (int i = 0; i < 40; i++) {
        flood[i] = request_of("flood", 0, 100, 40);
        flood[i]->id = ++id;
        rg_fair_add(f, flood[i]);
    }
    for (int i = 0; i < 4; i++) { /* now and then: nobody before it, and one after the other */
        for (int k = 0; k < 3; k++, n_flood++) {
            assert_ptr_equal(r = rg_fair_first(f), flood[n_flood]);
            rg_fair_take(f, r);
        }
        rg_request *two[2] = { request_of(i % 2 ? "a" : "b", 0, 30, 8), request_of(i % 2 ? "b" : "c", 0, 30, 8) };
        for (int k = 0; k < 2; k++) {
            two[k]->id = ++id;
            rg_fair_add(f, two[k]);
            rg_fair_check(f);
        }
        for (int k = 0; k < 2; k++) {
            assert_ptr_equal(rg_fair_first(f), two[k]);
            assert_true(rg_fair_is_ahead(f));
            rg_fair_take(f, two[k]);
            rg_fair_check(f);
            rg_request_unref(two[k]);
        }
        assert_ptr_equal(rg_fair_first(f), flood[n_flood]);
        assert_false(rg_fair_is_ahead(f));
    }
    for (int n = 0; n < 14; n++) { /* always, 180 rows each: soon one of the flood's goes between any two */
        asked = request_of("again", 0, 100, 40);
        asked->id = ++id;
        rg_fair_add(f, asked);
        for (before = 0; (r = rg_fair_first(f)) != asked; before++, n_flood++) {
            assert_ptr_equal(r, flood[n_flood]);
            rg_fair_take(f, r);
        }
        assert_true(n < 2 ? before == 0 : before <= 2);
        n_before += before;
        rg_fair_take(f, asked);
        rg_fair_check(f);
        rg_request_unref(asked);
    }
    assert_in_range(n_before, 14 - 512 / 180 - 1, 14);
    while ((r = rg_fair_first(f)))
        rg_fair_take(f, r);
    rg_fair_check(f);
    for (int i = 0; i < 40; i++)
        rg_request_unref(flood[i]);
    rg_fair_free(f);
}

/* Places are as many as requests; tenants who have none left give theirs up. */
static void tenants_come_and_go(void **state)
{
    rg_rng g = { .seed = test_seed };
    rg_fair *f = rg_fair_new(5, NULL);
    rg_request *waiting[5] = { 0 };
    char name[8];

    (void)state;
    for (uint64_t id = 1; id < 3000; id++) {
        uint32_t i = rg_rng_below(&g, 5);
        if (waiting[i]) {
            rg_request *r = rg_rng_below(&g, 4) ? rg_fair_first(f) : waiting[i];
            for (i = 0; waiting[i] != r; i++)
                assert_true(i < 4);
            if (r == rg_fair_first(f))
                rg_fair_take(f, r);
            else
                rg_fair_remove(f, r);
            rg_request_unref(r);
            waiting[i] = NULL;
        } else {
            snprintf(name, sizeof name, "t%u", rg_rng_below(&g, 9));
            waiting[i] = request_of(name, 0, 1 + (int)rg_rng_below(&g, 400), 40);
            waiting[i]->id = id;
            rg_fair_add(f, waiting[i]);
        }
        rg_fair_check(f);
    }
    for (rg_request *r; (r = rg_fair_first(f));) {
        rg_fair_take(f, r);
        rg_request_unref(r);
    }
    rg_fair_check(f);
    rg_fair_free(f);
}

static void priority_then_arrival(void **state)
{
    static const int32_t priorities[] = { 3, 0, 3, -2, 0 };
    static const uint64_t order[] = { 4, 2, 5, 1, 3 };
    rg_fair *f = rg_fair_new(8, NULL);
    rg_request *back = request_of("x", 9, 10, 10), *r;

    (void)state;
    for (uint64_t i = 0; i < RG_LEN(priorities); i++) {
        r = request_of("x", priorities[i], 10, 10);
        r->id = i + 1;
        rg_fair_add(f, r);
    }
    back->id = 100;
    atomic_store(&back->counts.admitted_ns, 1); /* it ran, and was preempted */
    rg_fair_add(f, back);
    assert_ptr_equal(rg_fair_first(f), back);
    rg_fair_remove(f, back);
    rg_request_unref(back);
    for (size_t i = 0; i < RG_LEN(order); i++) {
        r = rg_fair_first(f);
        assert_int_equal(r->id, order[i]);
        rg_fair_take(f, r);
        rg_request_unref(r);
    }
    assert_null(rg_fair_first(f));
    rg_fair_free(f);
}

/* ---- admission ---------------------------------------------------------------------------------------------------- */

/* Applicants with 10 ids each, one after the other, until one is refused: how many were admitted. */
static int come(rg_admission *a, uint64_t tenant)
{
    int n = 0;

    for (; n < 500 && rg_admission_has_room(a, tenant, false); n++)
        rg_admission_join(a, &(rg_applicant){ .tenant = tenant, .n_ids = 10, .state = 1 });
    return n;
}

static void leave(rg_admission *a, uint64_t tenant, int n)
{
    while (n--)
        rg_admission_leave(a, &(rg_applicant){ .tenant = tenant, .n_ids = 10, .state = 1 });
}

/* So many may wait as will begin in time; a tenant that fills the queue does not shut out another; all counts come back. */
static void admission_knows_how_many_may_wait(void **state)
{
    rg_admission a = { 0 };
    rg_applicant one = { .tenant = 11, .n_ids = 10, .state = 1 }, large = { .n_ids = 10, .state = RG_ADMISSION_ALL_STATE };
    int n_flood, n_other, n_third;

    (void)state;
    rg_admission_init(&a, &(rg_admission_limits){ .max_waiting = 100, .max_wait_s = 2 });
    for (n_other = 0; n_other < 100 && rg_admission_has_room(&a, 0, false); n_other++)
        rg_admission_join(&a, &large);
    assert_in_range(n_other, 2, 99); /* what they may come to need is bounded, whatever their prompts */
    while (n_other--)
        rg_admission_leave(&a, &large);
    n_flood = come(&a, 11);
    assert_int_equal(n_flood, 100); /* nobody knows how fast it goes */
    leave(&a, 11, n_flood);
    rg_admission_init(&a, &(rg_admission_limits){ .max_waiting = 100, .max_wait_s = 2, .first_ids_s = 100 });
    n_flood = come(&a, 11);
    assert_int_equal(n_flood, 20); /* 200 ids in 2 s */
    assert_true(rg_admission_wait_s(&a) > 1.99 && rg_admission_wait_s(&a) < 2.01 && rg_admission_fill(&a) > 0.99);
    rg_admission_note_step(&a, 10, false); /* nobody waited, so nothing was learnt */
    assert_true(rg_admission_wait_s(&a) < 2.01);
    for (int i = 0; i < 400; i++) { /* 10 in half a second, again and again */
        rg_admission_begin(&a, &one);
        rg_admission_note_step(&a, 0.5, true);
        rg_admission_join(&a, &one);
    }
    assert_false(rg_admission_has_room(&a, 11, false));
    assert_true(rg_admission_wait_s(&a) > 9.9 && rg_admission_wait_s(&a) < 10.1);
    leave(&a, 11, n_flood);
    n_flood = come(&a, 11);
    assert_in_range(n_flood, 4, 5); /* 20 ids a second, for 2 s */
    n_other = come(&a, 22);
    assert_int_equal(n_other, 2); /* its share of the 40 ids */
    n_third = come(&a, 33);
    assert_in_range(n_third, 1, 2);
    assert_false(rg_admission_has_room(&a, 11, false));
    assert_true(rg_admission_has_room(&a, 11, true)); /* the background has a queue of its own */
    leave(&a, 11, n_flood);
    leave(&a, 22, n_other);
    leave(&a, 33, n_third);
    assert_true(a.n == 0 && a.n_ids == 0 && a.state == 0 && a.n_tenants == 0 && rg_admission_has_room(&a, 11, false));
    rg_admission_init(&a, &(rg_admission_limits){ .max_waiting = 100, .first_ids_s = 1 });
    assert_int_equal(come(&a, 11), 100); /* no longest wait: the number alone counts, */
    assert_in_range(come(&a, 22), 50, 100); /* and who has less than an even share is admitted beyond it */
    assert_false(rg_admission_has_room(&a, 11, false));
}

/* ---- in the step loop -------------------------------------------------------------------------------------------- */

typedef struct world {
    fake *f;
    rg_loop *loop;
} world;

/* facts NULL: nobody knows what a step takes. */
static world open_world_with(const rg_loop_options *given, const rg_step_facts *facts)
{
    rg_loop_options o = *given;
    rg_error err;
    world w = { .f = fake_new(&roomy, &err) };

    assert_ok(w.f, err);
    o.max_rows = o.max_rows ? o.max_rows : MAX_ROWS;
    o.max_seq_len = MAX_LEN;
    o.max_waiting = o.max_waiting ? o.max_waiting : 100;
    o.max_seqs = o.max_seqs ? o.max_seqs : 4;
    if (facts)
        w.f->runner.facts = *facts;
    w.loop = rg_loop_new(&w.f->runner, &o, &err);
    assert_ok(w.loop, err);
    return w;
}

static world open_world(const rg_loop_options *given)
{
    return open_world_with(given, NULL);
}

static void close_world(world *w)
{
    rg_loop_free(w->loop);
    fake_free(w->f);
}

static void submit(const world *w, rg_request *r)
{
    rg_error err;

    assert_ok(rg_loop_submit(w->loop, r, &err), err);
}

static bool is_over(const rg_request *r)
{
    return atomic_load(&r->counts.n_ended) == r->params.n_samples;
}

/* In the background: behind everybody whenever they came, in order of arrival, and anywhere out of the queue again. */
static void the_background_goes_last(void **state)
{
    static const uint64_t order[] = { 2, 5, 1, 4, 6 };
    rg_fair *f = rg_fair_new(8, NULL);
    rg_request *all[7], *r;

    (void)state;
    for (uint64_t id = 1; id <= 6; id++) {
        r = all[id] = request_of(id == 3 ? "y" : "x", id == 4 ? -9 : 0, 10, 10);
        r->id = id;
        r->params.background = id != 2 && id != 5;
        rg_fair_add(f, r);
        rg_fair_check(f);
    }
    rg_fair_remove(f, all[3]);
    rg_fair_check(f);
    rg_request_unref(all[3]);
    for (size_t i = 0; i < RG_LEN(order); i++) {
        r = rg_fair_first(f);
        assert_int_equal(r->id, order[i]);
        rg_fair_take(f, r);
        rg_fair_check(f);
        rg_request_unref(r);
    }
    r = request_of("x", 0, 10, 10); /* the queue's end was put right */
    r->params.background = true;
    rg_fair_add(f, r);
    rg_fair_check(f);
    rg_fair_remove(f, r);
    assert_null(rg_fair_first(f));
    rg_request_unref(r);
    rg_fair_free(f);
}

static rg_request *in_background(rg_request *r)
{
    r->params.background = true;
    return r;
}

static bool holds_state(const rg_request *r)
{
    return r->samples[0].seq && r->samples[0].seq->n_blocks;
}

/* Those in the background have all sequences and all memory; who comes begins with the next step nevertheless, and is
 * never preempted while they hold anything; and they come back and end. */
static void the_background_gives_way(void **state)
{
    static const mix small = { .name = "small", .global = true, .n_blocks = 14 };
    rg_error err;

    (void)state;
    for (int k = 0; k < 4; k++) {
        int32_t max_seqs = k % 2 ? 3 : 8, n_back = 0;
        world w = { .f = fake_new(&small, &err) };
        rg_request *back[3], *front[2];

        assert_ok(w.f, err);
        w.loop = rg_loop_new(&w.f->runner, &(rg_loop_options){ .max_seqs = max_seqs, .max_rows = MAX_ROWS, .max_seq_len = MAX_LEN,
                                                            .max_waiting = 100,
                                                            .preempt = k < 2 ? RG_PREEMPT_SWAP : RG_PREEMPT_RECOMPUTE }, &err);
        assert_ok(w.loop, err);
        for (int i = 0; i < 3; i++)
            submit(&w, back[i] = in_background(request_of("x", 0, 60, 250)));
        for (int i = 0; i < 190; i++) /* 4 blocks each, of 14; with the next ones there is no more room */
            rg_loop_step(w.loop);
        for (int i = 0; i < 2; i++)
            submit(&w, front[i] = request_of(i ? "x" : "y", 0, 120, 200));
        rg_loop_step(w.loop);
        rg_loop_step(w.loop); /* 96 rows a step */
        for (int i = 0; i < 2; i++)
            assert_true(atomic_load(&front[i]->counts.admitted_ns) && holds_state(front[i]));
        while (!is_over(front[0]) || !is_over(front[1])) {
            rg_loop_step(w.loop);
            rg_loop_check(w.loop);
            assert_true(!atomic_load(&front[0]->counts.n_preempted) && !atomic_load(&front[1]->counts.n_preempted));
        }
        for (int i = 0; i < 3; i++)
            n_back += atomic_load(&back[i]->counts.n_preempted);
        assert_true(n_back > 0);
        while (rg_loop_step(w.loop))
            rg_loop_check(w.loop);
        for (int i = 0; i < 3; i++) {
            assert_true(is_over(back[i]));
            rg_request_unref(back[i]);
        }
        rg_request_unref(front[0]);
        rg_request_unref(front[1]);
        close_world(&w);
    }
}

/* One tenant has filled the queue; another's request is among the first to be taken nevertheless. */
static void a_flood_does_not_hold_up_others(void **state)
{
    world w = open_world(&(rg_loop_options){ .max_seqs = 2 });
    rg_request *flood[60], *other = request_of("other", 0, 20, 5);
    int n_before = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(flood); i++)
        submit(&w, flood[i] = request_of("flood", 0, 20, 5));
    for (int i = 0; i < 10; i++)
        rg_loop_step(w.loop);
    submit(&w, other);
    while (!is_over(other)) {
        rg_loop_step(w.loop);
        rg_loop_check(w.loop);
    }
    for (size_t i = 0; i < RG_LEN(flood); i++)
        n_before += is_over(flood[i]);
    assert_in_range(n_before, 1, 30);
    close_world(&w);
    for (size_t i = 0; i < RG_LEN(flood); i++)
        rg_request_unref(flood[i]);
    rg_request_unref(other);
}

static uint64_t clock_ns;

static uint64_t stopped_clock(void *arg)
{
    (void)arg;
    return clock_ns;
}

static void deadlines_end_requests(void **state)
{
    world w = open_world(&(rg_loop_options){ 0 });
    int32_t prompt[4] = { 1, 2, 3, 4 };
    rg_params p = { .prompt = prompt, .n_prompt = 4, .max_tokens = 400, .n_samples = 2, .deadline_s = 0.02,
                    .sampling = NEUTRAL };
    rg_error err;
    rg_request *r = rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, &err);
    rg_request *waits = request_of(NULL, 0, 4, 4);
    rg_token t;

    (void)state;
    clock_ns = 1000000000;
    rg_clock_set(stopped_clock, NULL);
    submit(&w, r);
    submit(&w, waits);
    rg_loop_step(w.loop);
    clock_ns += 19999999;
    rg_loop_step(w.loop);
    assert_false(is_over(r));
    clock_ns += 1;
    rg_loop_step(w.loop);
    rg_clock_set(NULL, NULL);
    rg_loop_check(w.loop);
    assert_true(is_over(r));
    while (rg_request_poll(r, &t) > 0)
        assert_true(t.id >= 0 || t.finish == RG_FINISH_DEADLINE);
    while (rg_loop_step(w.loop))
        ;
    assert_true(is_over(waits));
    close_world(&w);
    rg_request_unref(r);
    rg_request_unref(waits);
    p.deadline_s = -1;
    assert_null(rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, &err));
    p.deadline_s = NAN;
    assert_null(rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, &err));
}

/* ---- a machine whose time the test makes up ---- */

static void (*quick_step)(rg_runner *self, const rg_batch *batch, const rg_sink *sink);

/* Its steps take as long as 20 rows at least: reading the weights, a second; and a row takes 50 ms. */
static const rg_step_facts made_up_facts = { .weight_bytes = 1e9, .row_ops = 5e7 };
static const rg_step_roofs made_up_roofs = { 1e9, 1e9, 1e9 };

static double slower, slower_with_prompts; /* than at first: 1 */
static double last_step_s;

static void made_up_step(rg_runner *self, const rg_batch *batch, const rg_sink *sink)
{
    double roof_s = batch->n_rows > 20 ? batch->n_rows * 0.05 : 1;

    quick_step(self, batch, sink);
    last_step_s = roof_s / 0.6 * slower * (batch->n_rows > batch->n_spans ? slower_with_prompts : 1);
    clock_ns += (uint64_t)(last_step_s * 1e9);
}

static world open_made_up(const rg_loop_options *given)
{
    rg_loop_options o = *given;

    clock_ns = 1000000000;
    rg_clock_set(stopped_clock, NULL);
    slower = slower_with_prompts = 1;
    o.roofs = made_up_roofs;
    world w = open_world_with(&o, &made_up_facts);
    quick_step = w.f->runner.step;
    w.f->runner.step = made_up_step;
    return w;
}

static void close_made_up(world *w)
{
    rg_clock_set(NULL, NULL);
    close_world(w);
}

/* One step: its rows. */
static int step_rows(world *w)
{
    uint64_t before = rg_loop_stats(w->loop).n_rows;

    rg_loop_step(w->loop);
    rg_loop_check(w->loop);
    return (int)(rg_loop_stats(w->loop).n_rows - before);
}

/* A long prompt comes in small parts while another answer is written, so that its steps take about twice as long as
 * without, and in large ones when nobody is there. */
static void answers_keep_their_pace(void **state)
{
    world w = open_made_up(&(rg_loop_options){ .step_s = 4, .pace = 2 });
    rg_request *talks = request_of(NULL, 0, 4, 12), *comes = request_of(NULL, 0, 430, 1);
    double alone_s;
    int rows = 0;

    (void)state;
    submit(&w, talks);
    rg_loop_step(w.loop);
    rg_loop_step(w.loop);
    alone_s = last_step_s;
    submit(&w, comes);
    for (int i = 0; !is_over(talks); i++) {
        rows += step_rows(&w) - 1;
        assert_true(last_step_s <= 2.4 * alone_s && (i < 3 || last_step_s >= 1.7 * alone_s));
    }
    assert_in_range(rows, 300, 429);
    assert_in_range(step_rows(&w), 25, 96);
    while (rg_loop_step(w.loop))
        ;
    assert_true(is_over(comes));
    rg_stats s = rg_loop_stats(w.loop);
    assert_true(fabs(s.limit_s / s.busy_s - 0.6) < 1e-6);
    assert_true(s.bytes_read == s.n_steps * 1000000000 && s.ops == (double)s.n_rows * 5e7);
    close_made_up(&w);
    rg_request_unref(talks);
    rg_request_unref(comes);
}

/* A long prompt is in hand, 4 rows a step, the least; another tenant's, of three steps, is answered after three nevertheless, and a
 * short one of the same tenant is not. */
static void who_goes_ahead_waits_for_no_prompt(void **state)
{
    world w = open_made_up(&(rg_loop_options){ .step_s = 0.1 });
    rg_request *talks = request_of("flood", 0, 4, 60), *comes = request_of("flood", 0, 390, 4);
    rg_request *same = request_of("flood", 0, 3, 4), *other = request_of("other", 0, 10, 4);

    (void)state;
    submit(&w, talks);
    rg_loop_step(w.loop);
    submit(&w, comes);
    rg_loop_step(w.loop);
    submit(&w, same);
    rg_loop_step(w.loop);
    submit(&w, other);
    for (int i = 0; i < 3; i++)
        rg_loop_step(w.loop);
    rg_loop_check(w.loop);
    assert_true(atomic_load(&other->counts.first_ns) && !atomic_load(&same->counts.first_ns) &&
                !atomic_load(&comes->counts.first_ns));
    while (rg_loop_step(w.loop))
        rg_loop_check(w.loop);
    close_made_up(&w);
    rg_request_unref(talks);
    rg_request_unref(comes);
    rg_request_unref(same);
    rg_request_unref(other);
}

/* The pace of those who are answered is kept for one who comes, and for two; many are let in faster. */
static void many_are_let_in_together(void **state)
{
    world w = open_made_up(&(rg_loop_options){ .step_s = 500, .pace = 1.5, .max_seqs = 16 });
    rg_request *talks[2], *comes[9];

    (void)state;
    for (int i = 0; i < 2; i++)
        submit(&w, talks[i] = request_of(NULL, 0, 4, 50));
    rg_loop_step(w.loop);
    for (int i = 0; i < 9; i++) {
        comes[i] = request_of(NULL, 0, 300, 1);
        submit(&w, i == 8 ? in_background(comes[i]) : comes[i]);
        int rows = step_rows(&w); /* of 30 in 1.5 times as long as 20, and of 60 in three times */
        assert_in_range(rows, i < 2 ? 24 : 48, i < 2 ? 36 : 72);
    }
    while (rg_loop_step(w.loop))
        ;
    close_made_up(&w);
    for (int i = 0; i < 9; i++)
        rg_request_unref(comes[i]);
    rg_request_unref(talks[0]);
    rg_request_unref(talks[1]);
}

/* A prompt that two steps would take is computed in one where nobody is answered, and cut where somebody is. */
static void a_short_prompt_is_not_cut_in_two(void **state)
{
    const int n[] = { 4, 8, 9 };

    (void)state;
    for (int k = 0; k < 3; k++)
        for (int talking = 0; talking < 2; talking++) {
            world w = open_made_up(&(rg_loop_options){ .step_s = 0.1 }); /* which gives prompts the least: 4 rows */
            rg_request *talks = request_of(NULL, 0, 4, talking ? 60 : 1), *comes = request_of(NULL, 0, n[k], 1);

            submit(&w, talks);
            rg_loop_step(w.loop);
            submit(&w, comes);
            assert_int_equal(step_rows(&w) - talking, talking || n[k] > 8 ? 4 : n[k]);
            while (rg_loop_step(w.loop))
                ;
            assert_true(is_over(comes));
            close_made_up(&w);
            rg_request_unref(talks);
            rg_request_unref(comes);
        }
}

static void slow_step(rg_runner *self, const rg_batch *batch, const rg_sink *sink)
{
    quick_step(self, batch, sink);
    clock_ns += 200000000;
}

/* While only background requests wait, admission learns nothing of how long others would: it refuses none of them. */
static void the_background_keeps_nobody_out(void **state)
{
    world w = open_world(&(rg_loop_options){ .max_seqs = 2, .max_wait_s = 2, .max_waiting_ids = 100 });
    rg_request *back[5], *front[3];

    (void)state;
    clock_ns = 1000000000;
    rg_clock_set(stopped_clock, NULL);
    quick_step = w.f->runner.step;
    w.f->runner.step = slow_step;
    for (int i = 0; i < 5; i++)
        submit(&w, back[i] = in_background(request_of("x", 0, 60, 100)));
    for (int i = 0; i < 20; i++)
        rg_loop_step(w.loop);
    for (int i = 0; i < 3; i++)
        submit(&w, front[i] = request_of("x", 0, 30, 5));
    while (rg_loop_step(w.loop))
        ;
    rg_clock_set(NULL, NULL);
    close_world(&w);
    for (int i = 0; i < 5; i++)
        rg_request_unref(back[i]);
    for (int i = 0; i < 3; i++)
        rg_request_unref(front[i]);
}

/* Steps of prompts fill their time, on a machine that becomes twice as slow too. */
static void a_busy_machine_gets_shorter_steps(void **state)
{
    world w = open_made_up(&(rg_loop_options){ .step_s = 4, .max_waiting_ids = 0 });
    rg_request *r[8];

    (void)state;
    for (int i = 0; i < 8; i++)
        submit(&w, r[i] = request_of(NULL, 0, 400, 1));
    for (int i = 0; i < 50; i++) {
        uint64_t n_ended = rg_loop_stats(w.loop).n_output;

        slower = i < 16 ? 1 : 2;
        rg_loop_step(w.loop);
        if ((i == 14 || i > 34) && rg_loop_stats(w.loop).n_output == n_ended) /* a prompt's last rows may be more */
            assert_true(last_step_s > 3.2 && last_step_s < 4.4);
    }
    assert_false(is_over(r[7]));
    while (rg_loop_step(w.loop))
        ;
    assert_true(is_over(r[7]));
    close_made_up(&w);
    for (int i = 0; i < 8; i++)
        rg_request_unref(r[i]);
}

/* A burst on a slow machine: nobody is refused for how long the others will take, unless there is a longest wait. */
static void a_burst_is_refused_only_by_a_longest_wait(void **state)
{
    (void)state;
    for (int limited = 0; limited < 2; limited++) {
        world w = open_made_up(&(rg_loop_options){ .step_s = 4, .pace = 2, .max_wait_s = limited ? 20 : 0 });
        rg_request *r[48];
        int n_admitted = 0;
        rg_error err;

        for (int i = 0; i < 48; i++) {
            r[i] = request_of(NULL, 0, 150, 1);
            n_admitted += rg_loop_submit(w.loop, r[i], &err);
        }
        assert_in_range(n_admitted, limited ? 1 : 48, limited ? 10 : 48); /* 150 ids take 12 s */
        close_made_up(&w);
        for (int i = 0; i < 48; i++)
            rg_request_unref(r[i]);
    }
}

/* Where only steps with prompts take longer than was expected, prompts get less, until those who are answered have their
 * pace by the clock; and once steps take alike again, all that they had. */
static void the_pace_is_kept_by_the_clock(void **state)
{
    world w = open_made_up(&(rg_loop_options){ .step_s = 500, .pace = 2.5 });
    rg_request *talks = request_of(NULL, 0, 4, 400), *comes[8];
    double alone_s;

    (void)state;
    submit(&w, talks);
    for (int i = 0; i < 20; i++)
        rg_loop_step(w.loop);
    alone_s = last_step_s;
    for (int k = 0; k < 8; k++) {
        slower_with_prompts = k < 4 ? 1.5 : 1;
        submit(&w, comes[k] = request_of(NULL, 0, 400, 1));
        for (int i = 0; !is_over(comes[k]); i++) {
            rg_loop_step(w.loop);
            if (i > 2 && k % 4 == 3 && !is_over(comes[k])) /* its last step has what is left */
                assert_true(last_step_s < 2.7 * alone_s && last_step_s > 2 * alone_s);
        }
    }
    close_made_up(&w);
    rg_request_unref(talks);
    for (int k = 0; k < 8; k++)
        rg_request_unref(comes[k]);
}

static void static_batches_wait_for_each_other(void **state)
{
    world w = open_world(&(rg_loop_options){ .static_batching = true, .max_seqs = 3 });
    rg_request *r[6];

    (void)state;
    for (int i = 0; i < 6; i++)
        submit(&w, r[i] = request_of(NULL, 0, 30, 5 + 10 * (i % 3)));
    for (int first = 0; first < 6; first += 3) {
        while (!is_over(r[first]) || !is_over(r[first + 1]) || !is_over(r[first + 2])) {
            assert_true(rg_loop_step(w.loop));
            for (int i = first + 3; i < 6; i++)
                assert_int_equal(atomic_load(&r[i]->counts.admitted_ns), 0);
        }
    }
    close_world(&w);
    for (int i = 0; i < 6; i++)
        rg_request_unref(r[i]);
}

/* ---- prefixes and what is said of them --------------------------------------------------------------------------- */

static rg_usage run_alone(const world *w, const char *tenant, const char *salt, int32_t n)
{
    int32_t prompt[MAX_LEN];
    rg_error err;
    rg_params p = { .prompt = prompt, .n_prompt = n, .max_tokens = 1, .n_samples = 1, .tenant = tenant, .cache_salt = salt,
                    .sampling = NEUTRAL };
    rg_request *r;
    rg_usage u;

    for (int32_t i = 0; i < n; i++)
        prompt[i] = (i * 7 + 1) % VOCAB;
    r = rg_request_new(&p, &(rg_request_model){ VOCAB, MAX_LEN, DIM, NULL, NULL, 0 }, &err);
    assert_ok(r, err);
    submit(w, r);
    while (rg_loop_step(w->loop))
        ;
    u = rg_request_used(r);
    rg_request_unref(r);
    return u;
}

static void prefixes_stay_with_their_tenant(void **state)
{
    for (int share = 0; share < 2; share++) {
        world w = open_world(&(rg_loop_options){ .use_prefixes = true, .share_prefixes = share });

        (void)state;
        assert_int_equal(run_alone(&w, "a", NULL, 200).n_cached, 0);
        assert_int_equal(run_alone(&w, "a", NULL, 200).n_cached, 192);
        assert_int_equal(run_alone(&w, "b", NULL, 200).n_cached, share ? 192 : 0);
        assert_int_equal(run_alone(&w, "a", "salt", 200).n_cached, 0);
        assert_int_equal(run_alone(&w, "a", "salt", 200).n_cached, 192);
        assert_int_equal(run_alone(&w, "a", NULL, 200).uncached, RG_UNCACHED_NOTHING);
        assert_int_equal(run_alone(&w, "a", NULL, 300).uncached, RG_UNCACHED_NEW);
        close_world(&w);
    }
    world w = open_world(&(rg_loop_options){ 0 });
    assert_int_equal(run_alone(&w, "a", NULL, 200).uncached, RG_UNCACHED_OFF);
    close_world(&w);
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

typedef struct watcher {
    rg_loop *loop;
    atomic_bool stop;
    int n;
} watcher;

static void *watch(void *arg)
{
    watcher *w = arg;
    uint64_t seen = 0, last = 0;

    do {
        bool more = rg_loop_wait(w->loop, &seen, 0.05);

        assert_true(more ? seen > last : seen == last);
        w->n += more;
        last = seen;
    } while (!atomic_load(&w->stop));
    return NULL;
}

static void one_thread_watches_many(void **state)
{
    world w = open_world(&(rg_loop_options){ 0 });
    watcher watching = { .loop = w.loop };
    rg_request *r[8];
    rg_token token;
    rg_stats s;
    pthread_t t;
    rg_error err;

    (void)state;
    assert_int_equal(pthread_create(&t, NULL, watch, &watching), 0);
    rg_host *host = rg_host_new(1, 0, &err);
    assert_ok(host && rg_host_add(host, w.loop, &err), err);
    for (int i = 0; i < 8; i++)
        submit(&w, r[i] = request_of(NULL, 0, 50, 50));
    rg_loop_check_soon(w.loop);
    s = rg_loop_stats(w.loop);
    assert_in_range(s.n_running + s.n_waiting, 0, 8);
    assert_in_range(rg_loop_retry_after(w.loop), 1, 600);
    for (int i = 0; i < 8; i++) {
        while (rg_request_wait(r[i], &token) > 0)
            ;
        rg_request_unref(r[i]);
    }
    rg_loop_check_soon(w.loop);
    atomic_store(&watching.stop, true);
    pthread_join(t, NULL);
    assert_true(watching.n > 0);
    s = rg_loop_stats(w.loop);
    assert_true(s.n_running == 0 && s.n_waiting == 0 && s.state_used_bytes == 0 && s.state_bytes > 0);
    assert_int_equal(s.n_output, 8 * 50);
    assert_int_equal(s.n_prompt_rows, 8 * 50);
    close_world(&w);
    rg_host_free(host);
}

/* Prompt ids that wait are counted, whatever the number of requests. */
static void too_much_waiting_is_refused(void **state)
{
    world w = open_world(&(rg_loop_options){ .max_waiting_ids = 100 });
    rg_request *r[3];
    rg_error err;

    (void)state;
    for (int i = 0; i < 3; i++)
        r[i] = request_of(NULL, 0, 60, 5);
    submit(&w, r[0]);
    assert_false(rg_loop_submit(w.loop, r[1], &err));
    assert_int_equal(err.code, RG_E_BUSY);
    rg_loop_step(w.loop);
    submit(&w, r[2]);
    while (rg_loop_step(w.loop))
        ;
    close_world(&w);
    for (int i = 0; i < 3; i++)
        rg_request_unref(r[i]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tenants_share_alike),
        cmocka_unit_test(who_asks_for_little_goes_first),
        cmocka_unit_test(tenants_come_and_go),
        cmocka_unit_test(priority_then_arrival),
        cmocka_unit_test(admission_knows_how_many_may_wait),
        cmocka_unit_test(the_background_goes_last),
        cmocka_unit_test(the_background_gives_way),
        cmocka_unit_test(the_background_keeps_nobody_out),
        cmocka_unit_test(a_flood_does_not_hold_up_others),
        cmocka_unit_test(deadlines_end_requests),
        cmocka_unit_test(answers_keep_their_pace),
        cmocka_unit_test(who_goes_ahead_waits_for_no_prompt),
        cmocka_unit_test(many_are_let_in_together),
        cmocka_unit_test(a_short_prompt_is_not_cut_in_two),
        cmocka_unit_test(a_busy_machine_gets_shorter_steps),
        cmocka_unit_test(a_burst_is_refused_only_by_a_longest_wait),
        cmocka_unit_test(the_pace_is_kept_by_the_clock),
        cmocka_unit_test(static_batches_wait_for_each_other),
        cmocka_unit_test(prefixes_stay_with_their_tenant),
        cmocka_unit_test(one_thread_watches_many),
        cmocka_unit_test(too_much_waiting_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("fair", tests, NULL, NULL);
}
