/* loop.c -- the engine loop: admit, next, forward, sample, commit.
 *
 * One thread owns everything but the inbox, the published statistics and the flag that ends the loop, which stand under
 * one lock.  A step allocates nothing (swapping out apart): all arrays are made here, sized by the options. */
#include "engine/loop.h"

#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/draw.h"
#include "engine/sampler.h"
#include "engine/scheduler.h"

enum {
    MAX_DEADLINE_S = 1 << 30,
    MAX_RETRY_S = 600,
};

struct rg_loop {
    rg_runner *runner;
    rg_loop_options options;
    rg_states *states;
    rg_scheduler *scheduler;
    rg_admission admission; /* any thread may ask it */
    rg_sample_scratch *scratch;
    rg_step_time time;      /* learns under the lock; the engine's thread alone may read it without */

    /* The step. */
    rg_planned *plan; /* [max_seqs], as are the arrays down to hidden */
    int n_plan;
    rg_span *spans;
    int32_t *pools;         /* plan entry of each wanted run of hidden rows */
    rg_drawn *drawn;        /* by plan entry */
    rg_rows *hidden;
    int32_t *rows_of, *logit_rows; /* [max_logits] of the rows whose logits are wanted, plan entry and row */
    int n_draws;            /* of them, those that an id is drawn from */
    int32_t *token, *index, *kv_end; /* [max_rows], as is pos */
    int32_t (*pos)[4];
    rg_batch batch;
    int32_t (*budget)(void *arg);
    void *budget_arg;

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake, stepped; /* stepped: a step was committed, or requests left */
    bool lock_made, wake_made, stepped_made;
    rg_request *inbox, **inbox_end; /* linked by next */
    int32_t n_inbox, n_waiting;     /* submitted and not admitted; waiting as of the last step */
    int64_t n_inbox_ids, n_waiting_ids; /* of their prompts */
    uint64_t last_id, n_commits;    /* n_commits: what rg_loop_wait counts */
    int n_watching;                 /* threads in rg_loop_wait */
    bool closing, started, check_wanted;
    rg_stats stats;
    pthread_t thread;
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

static bool make_arrays(rg_loop *l, rg_error *err)
{
    size_t n = (size_t)l->options.max_seqs, rows = (size_t)l->options.max_rows, logits = (size_t)l->runner->max_logits;

    l->plan = rg_array(n, sizeof *l->plan);
    l->spans = rg_array(n, sizeof *l->spans);
    l->pools = rg_array(n, sizeof *l->pools);
    l->drawn = rg_array(n, sizeof *l->drawn);
    l->hidden = rg_array(n, sizeof *l->hidden);
    l->rows_of = rg_array(logits, sizeof *l->rows_of);
    l->logit_rows = rg_array(logits, sizeof *l->logit_rows);
    l->token = rg_array(rows, sizeof *l->token);
    l->index = rg_array(rows, sizeof *l->index);
    l->kv_end = rg_array(rows, sizeof *l->kv_end);
    l->pos = rg_array(rows, sizeof *l->pos);
    if (!l->plan || !l->spans || !l->pools || !l->drawn || !l->hidden || !l->rows_of || !l->logit_rows || !l->token ||
        !l->index || !l->kv_end || !l->pos)
        return rg_fail_memory(err, n * sizeof *l->spans + rows * sizeof *l->pos);
    return true;
}

static bool check_options(const rg_runner *runner, const rg_loop_options *o, rg_error *err)
{
    if (o->max_seqs < 1 || o->max_rows < 1 || o->max_seq_len < 1 || o->max_waiting < 1)
        return rg_fail(err, RG_E_USAGE, "max_seqs, max_rows, max_seq_len and max_waiting must be 1 or more");
    if (runner->sees != RG_CAUSAL)
        return rg_fail(err, RG_E_UNSUPPORTED, "rows of this model see rows after them: it has no next id to draw");
    if (o->max_rows > runner->max_rows)
        return rg_fail(err, RG_E_USAGE, "%d rows in a step: the model was opened for %d", (int)o->max_rows,
                       runner->max_rows);
    if (o->max_seqs >= runner->max_logits)
        return rg_fail(err, RG_E_USAGE, "%d sequences: the model was opened for the logits of %d rows, not of one more",
                       (int)o->max_seqs, runner->max_logits);
    return true;
}

static bool make_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t a;
    bool ok = !pthread_condattr_init(&a);

    if (!ok)
        return false;
    ok = !pthread_condattr_setclock(&a, CLOCK_MONOTONIC) && !pthread_cond_init(cond, &a);
    pthread_condattr_destroy(&a);
    return ok;
}

/* Ids of prompts in a second, for admission: three quarters of what steps without answers do. */
static double expected_ids_s(const rg_loop *l)
{
    const double share = 0.75;
    rg_step_load full = { 0 };

    rg_step_load_add(&full, &l->time.facts, 0, l->options.max_rows, 1);
    double s = rg_step_time_predict(&l->time, &full);
    return s > 0 ? share * l->options.max_rows / s : 0;
}

rg_loop *rg_loop_new(rg_runner *runner, const rg_loop_options *options, rg_error *err)
{
    rg_loop *l;

    if (!check_options(runner, options, err))
        return NULL;
    l = rg_zalloc(sizeof *l);
    if (!l)
        return rg_fail_memory(err, sizeof *l), NULL;
    l->runner = runner;
    l->options = *options;
    l->inbox_end = &l->inbox;
    rg_step_time_init(&l->time, &runner->facts, &options->roofs);
    rg_admission_init(&l->admission, &(rg_admission_limits){ .max_waiting = options->max_waiting,
                                                             .max_wait_s = options->max_wait_s,
                                                             .first_ids_s = expected_ids_s(l) });
    l->lock_made = !pthread_mutex_init(&l->lock, NULL);
    l->wake_made = !pthread_cond_init(&l->wake, NULL);
    l->stepped_made = make_monotonic(&l->stepped);
    if (!l->lock_made || !l->wake_made || !l->stepped_made) {
        rg_fail_memory(err, 0);
        goto fail;
    }
    l->states = rg_states_new(runner->spec, runner->store, options->use_prefixes, err);
    if (!l->states)
        goto fail;
    l->scheduler = rg_scheduler_new(l->states, &l->admission, &l->time, &l->options, err);
    l->scratch = l->scheduler ? rg_sample_scratch_new(runner->n_threads, runner->vocab_size, err) : NULL;
    if (!l->scratch || !make_arrays(l, err))
        goto fail;
    return l;

fail:
    rg_loop_free(l);
    return NULL;
}

/* ---- the five calls of a step ------------------------------------------------------------------------------------ */

/* What was submitted joins the queue; what was cancelled leaves it.  True: something left. */
static bool admit(rg_loop *l)
{
    rg_request *r, *next;

    pthread_mutex_lock(&l->lock);
    r = l->inbox;
    l->inbox = NULL;
    l->inbox_end = &l->inbox;
    l->n_waiting += l->n_inbox;
    l->n_waiting_ids += l->n_inbox_ids;
    l->n_inbox = 0;
    l->n_inbox_ids = 0;
    pthread_mutex_unlock(&l->lock);
    for (; r; r = next) {
        next = r->next;
        r->next = NULL;
        rg_scheduler_add(l->scheduler, r);
    }
    return rg_scheduler_reap(l->scheduler, false) > 0;
}

static void want_logits(rg_loop *l, int i, int32_t row)
{
    RG_ASSERT(l->batch.n_logits < l->runner->max_logits);
    l->rows_of[l->batch.n_logits] = i;
    l->logit_rows[l->batch.n_logits++] = row;
}

/* What is wanted of a span, whose rows are laid out: the logits of those that score ids of the prompt and of the one
 * that the next id is drawn from, or hidden states. */
static void want(rg_loop *l, int i, int32_t start)
{
    const rg_planned *p = &l->plan[i];
    rg_batch *b = &l->batch;
    int32_t first = l->spans[i].first_row;
    rg_rows run;

    if (!rg_request_embeds(p->request)) {
        run = rg_request_rows_to_score(p->request, start, p->n_rows);
        rg_request_begin_scores(p->request, start, p->n_rows);
        for (int32_t k = 0; k < run.n; k++)
            want_logits(l, i, first + run.first + k);
        if (p->ends && rg_request_draws(p->request)) {
            want_logits(l, i, first + p->n_rows - 1);
            l->n_draws++;
        }
        return;
    }
    run = rg_request_rows_to_pool(p->request, start, p->n_rows);
    if (run.n) {
        l->pools[b->n_hidden] = i;
        l->hidden[b->n_hidden++] = (rg_rows){ first + run.first, run.n };
    }
}

/* Choose the spans and lay out their rows. */
static bool next(rg_loop *l)
{
    int32_t most = l->options.max_rows, wanted = l->budget ? l->budget(l->budget_arg) : most, row = 0;
    rg_row_budget budget = { .rows = wanted < 1 ? 1 : wanted < most ? wanted : most, .logits = l->runner->max_logits };

    l->n_draws = 0;
    l->n_plan = rg_scheduler_next(l->scheduler, &budget, l->plan);
    l->batch = (rg_batch){ .n_spans = l->n_plan,
                           .spans = l->spans,
                           .token = l->token,
                           .index = l->index,
                           .pos = (const int32_t(*)[4])l->pos,
                           .kv_end = l->kv_end,
                           .logit_rows = l->logit_rows,
                           .hidden = l->hidden };
    for (int i = 0; i < l->n_plan; i++) {
        const rg_planned *p = &l->plan[i];
        const rg_seq *q = p->request->samples[p->sample].seq;
        const int32_t *tokens = rg_request_tokens(p->request, p->sample);

        rg_seq_span(l->states, q, p->n_rows, 0, &l->spans[i]);
        l->spans[i].first_row = row;
        for (int32_t k = q->length; k < q->length + p->n_rows; k++, row++) {
            l->token[row] = tokens[k];
            l->index[row] = k;
            l->kv_end[row] = k + 1;
            for (int d = 0; d < 4; d++)
                l->pos[row][d] = k;
        }
        want(l, i, q->length);
    }
    l->batch.n_rows = row;
    return l->n_plan > 0;
}

/* Called on any of the step's threads, as is pool.  The id after the row is one of the prompt, or is drawn. */
static void sample(void *arg, int thread, int i, float *logits)
{
    rg_loop *l = arg;
    const rg_planned *p = &l->plan[l->rows_of[i]];
    rg_drawn *drawn = &l->drawn[l->rows_of[i]];
    int32_t next = l->index[l->logit_rows[i]] + 1;
    bool finite;

    if (next < p->request->params.n_prompt) {
        finite = rg_draw_score(l->scratch, thread, p->request, next, logits);
    } else {
        *drawn = rg_draw(l->scratch, thread, p->request, p->sample, logits);
        finite = drawn->id >= 0;
    }
    if (!finite)
        atomic_store(&p->request->not_finite, true);
}

static void pool(void *arg, int thread, int i, const float *rows, size_t stride)
{
    (void)thread;
    rg_loop *l = arg;
    const rg_rows *run = &l->hidden[i];

    rg_request_pool(l->plan[l->pools[i]].request, l->index[run->first], run->n, rows, stride);
}

/* What the batch reads and computes. */
static rg_step_load load_of(const rg_loop *l)
{
    rg_step_load load = { 0 };

    for (int i = 0; i < l->batch.n_spans; i++)
        rg_step_load_add(&load, &l->time.facts, l->spans[i].start, l->spans[i].n_rows, 0);
    load.n_logits = l->batch.n_logits;
    return load;
}

static void forward(rg_loop *l)
{
    rg_step_load load = load_of(l);
    uint64_t start = rg_now_ns();

    l->runner->step(l->runner, &l->batch, &(rg_sink){ .logits = sample, .hidden = pool, .arg = l });
    double took_s = rg_seconds(start, rg_now_ns());
    pthread_mutex_lock(&l->lock);
    rg_step_time_learn(&l->time, &load, took_s);
    l->stats.n_steps++;
    l->stats.n_rows += (uint64_t)l->batch.n_rows;
    l->stats.bytes_read += (uint64_t)rg_step_bytes(&l->time.facts, &load);
    l->stats.ops += rg_step_product_ops(&l->time.facts, &load) + load.key_ops;
    l->stats.limit_s += rg_step_limit_s(&l->time, &load);
    l->stats.n_output += (uint64_t)l->n_draws;
    pthread_mutex_unlock(&l->lock);
}

/* True if a snapshot of recurrent state should be kept here. */
static bool wants_snapshot(const rg_loop *l, const rg_request *r, int32_t committed)
{
    int32_t n = committed < r->params.n_prompt ? r->params.n_prompt : INT32_MAX;

    return committed < n && rg_states_next_stop(l->states, committed - 1, n) == committed;
}

/* A planned sample has all the state that it waited for: it has drawn an id, or its embedding is complete, or there was
 * nothing to do beyond the prompt.  True: it is through. */
static bool take_output(rg_loop *l, int i)
{
    const rg_planned *p = &l->plan[i];
    rg_request *r = p->request;
    const rg_drawn *d = &l->drawn[i];

    if (rg_request_draws(r))
        return rg_request_append(r, p->sample, d->id, d->logprob, rg_next_tops(r, &r->samples[p->sample]));
    if (rg_request_embeds(r))
        rg_request_embedded(r);
    else
        rg_request_end(r, p->sample, RG_FINISH_LENGTH);
    return true;
}

static void commit(rg_loop *l)
{
    for (int i = 0; i < l->n_plan; i++) {
        const rg_planned *p = &l->plan[i];
        rg_sample *a = &p->request->samples[p->sample];
        const int32_t *tokens = rg_request_tokens(p->request, p->sample);

        rg_seq_advance(l->states, a->seq, p->n_rows, 0, tokens);
        if (wants_snapshot(l, p->request, a->seq->committed))
            (void)rg_seq_snapshot(l->states, a->seq, tokens); /* without room no snapshot is kept */
        if (atomic_load(&p->request->not_finite))
            continue; /* it ends with all its samples below */
        rg_request_publish_scores(p->request);
        if (p->ends && take_output(l, i))
            rg_scheduler_drop(l->scheduler, p->request, p->sample);
    }
    l->n_plan = 0;
    rg_scheduler_reap(l->scheduler, false);
}

/* What others may see of a step. */
static void publish(rg_loop *l, uint64_t start, bool stepped)
{
    rg_scheduler *s = l->scheduler;
    uint64_t now = rg_now_ns();
    rg_stats *t = &l->stats;

    pthread_mutex_lock(&l->lock);
    l->n_waiting = rg_scheduler_n_waiting(s);
    l->n_waiting_ids = rg_scheduler_n_waiting_ids(s);
    t->n_preempted = rg_scheduler_n_preempted(s);
    t->n_cached_rows = rg_scheduler_n_cached(s);
    t->n_prompt_rows = rg_scheduler_n_prompt_rows(s);
    t->n_running = rg_scheduler_n_running(s);
    rg_states_bytes(l->states, &t->state_bytes, &t->state_used_bytes, &t->state_live_bytes);
    if (stepped) {
        t->last_step_s = rg_seconds(start, now);
        t->busy_s += t->last_step_s;
    }
    rg_admission_note_step(&l->admission, stepped ? t->last_step_s : 0, rg_scheduler_some_wait(s));
    l->n_commits++;
    if (l->n_watching)
        pthread_cond_broadcast(&l->stepped);
    pthread_mutex_unlock(&l->lock);
}

bool rg_loop_step(rg_loop *l)
{
    uint64_t start = rg_now_ns();
    bool reaped = admit(l), planned = next(l);

    if (planned) {
        forward(l);
        commit(l);
    }
    if (planned || reaped)
        publish(l, start, planned);
    return planned || reaped;
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

bool rg_loop_submit(rg_loop *l, rg_request *r, rg_error *err)
{
    int32_t n_positions = rg_request_positions(r);
    int64_t n_ids = r->params.n_prompt, most_ids = r->params.background ? 0 : l->options.max_waiting_ids;
    double state = rg_states_share(l->states, n_positions);
    rg_applicant who;
    bool ok = false;

    if (n_positions > l->options.max_seq_len || state > 1)
        return rg_fail(err, RG_E_LIMIT, "%d prompt ids and %d to come need more state than the engine was opened with",
                       (int)r->params.n_prompt, (int)r->params.max_tokens);
    pthread_mutex_lock(&l->lock);
    if (l->closing) {
        rg_fail(err, RG_E_BUSY, "the engine is closing");
    } else if (!rg_admission_has_room(&l->admission, r->tenant, r->params.background)) {
        rg_fail(err, RG_E_BUSY, "%d requests are waiting already", (int)(l->n_inbox + l->n_waiting));
    } else if (most_ids && atomic_load(&l->admission.n) && atomic_load(&l->admission.n_ids) + n_ids > most_ids) {
        rg_fail(err, RG_E_BUSY, "%lld prompt ids are waiting already", (long long)atomic_load(&l->admission.n_ids));
    } else {
        rg_request_ref(r);
        r->state_part = (int32_t)(RG_ADMISSION_ALL_STATE * state);
        who = rg_request_applicant(r);
        rg_admission_join(&l->admission, &who);
        r->id = ++l->last_id;
        atomic_store(&r->submitted_ns, rg_now_ns());
        if (r->params.deadline_s > 0)
            r->deadline_ns = r->submitted_ns + (uint64_t)(fmin(r->params.deadline_s, MAX_DEADLINE_S) * 1e9);
        r->next = NULL;
        *l->inbox_end = r;
        l->inbox_end = &r->next;
        l->n_inbox++;
        l->n_inbox_ids += n_ids;
        pthread_cond_signal(&l->wake);
        ok = true;
    }
    pthread_mutex_unlock(&l->lock);
    return ok;
}

/* Under the lock, on the engine's thread: nothing moves. */
static void check_now(rg_loop *l)
{
    rg_loop_check(l);
    l->check_wanted = false;
    pthread_cond_broadcast(&l->stepped);
}

static void *run(void *arg)
{
    rg_loop *l = arg;
    bool busy = true;

    for (;;) {
        pthread_mutex_lock(&l->lock);
        while (!busy && !l->inbox && !l->closing && !l->check_wanted)
            pthread_cond_wait(&l->wake, &l->lock);
        if (l->check_wanted)
            check_now(l);
        if (l->closing) {
            pthread_mutex_unlock(&l->lock);
            return NULL;
        }
        pthread_mutex_unlock(&l->lock);
        busy = rg_loop_step(l);
#ifdef RG_DEBUG
        if (!busy)
            rg_loop_check(l);
#endif
    }
}

bool rg_loop_start(rg_loop *l, rg_error *err)
{
    RG_ASSERT(!l->started);
    if (pthread_create(&l->thread, NULL, run, l))
        return rg_fail(err, RG_E_IO, "cannot start the engine's thread");
    l->started = true;
    return true;
}

/* A wait on `stepped` until a time; false: it is over. */
static bool wait_until(rg_loop *l, const struct timespec *end)
{
    int rc;

    l->n_watching++;
    rc = pthread_cond_timedwait(&l->stepped, &l->lock, end);
    l->n_watching--;
    return !rc;
}

bool rg_loop_wait(rg_loop *l, uint64_t *seen, double timeout_s)
{
    struct timespec end;
    bool more;

    clock_gettime(CLOCK_MONOTONIC, &end);
    timeout_s = fmin(fmax(timeout_s, 0), MAX_DEADLINE_S);
    end.tv_sec += (time_t)timeout_s;
    end.tv_nsec += (long)((timeout_s - floor(timeout_s)) * 1e9);
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&l->lock);
    while (l->n_commits <= *seen && wait_until(l, &end))
        ;
    more = l->n_commits > *seen;
    *seen = l->n_commits;
    pthread_mutex_unlock(&l->lock);
    return more;
}

bool rg_loop_has_room(const rg_loop *l, const char *tenant)
{
    return rg_admission_has_room(&l->admission, rg_tenant_hash(tenant), false);
}

int32_t rg_loop_retry_after(rg_loop *l)
{
    double s;

    pthread_mutex_lock(&l->lock);
    s = rg_admission_wait_s(&l->admission);
    pthread_mutex_unlock(&l->lock);
    return (int32_t)fmin(fmax(ceil(s), 1), MAX_RETRY_S);
}

void rg_loop_check_soon(rg_loop *l)
{
    pthread_mutex_lock(&l->lock);
    l->check_wanted = l->started && !l->closing;
    if (!l->check_wanted)
        rg_loop_check(l);
    pthread_cond_signal(&l->wake);
    while (l->check_wanted && !l->closing)
        pthread_cond_wait(&l->stepped, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

static void stop(rg_loop *l)
{
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_signal(&l->wake);
    pthread_cond_broadcast(&l->stepped);
    pthread_mutex_unlock(&l->lock);
    if (l->started)
        pthread_join(l->thread, NULL);
    if (l->scheduler) {
        (void)admit(l);
        rg_scheduler_reap(l->scheduler, true);
    }
}

void rg_loop_free(rg_loop *l)
{
    if (!l)
        return;
    if (l->lock_made && l->wake_made && l->stepped_made)
        stop(l);
    rg_scheduler_free(l->scheduler);
    rg_states_free(l->states);
    rg_sample_scratch_free(l->scratch);
    rg_free(l->plan);
    rg_free(l->spans);
    rg_free(l->pools);
    rg_free(l->drawn);
    rg_free(l->hidden);
    rg_free(l->rows_of);
    rg_free(l->logit_rows);
    rg_free(l->token);
    rg_free(l->index);
    rg_free(l->kv_end);
    rg_free(l->pos);
    if (l->stepped_made)
        pthread_cond_destroy(&l->stepped);
    if (l->wake_made)
        pthread_cond_destroy(&l->wake);
    if (l->lock_made)
        pthread_mutex_destroy(&l->lock);
    rg_free(l);
}

rg_stats rg_loop_stats(rg_loop *l)
{
    rg_stats stats;

    pthread_mutex_lock(&l->lock);
    stats = l->stats;
    stats.n_waiting = l->n_waiting + l->n_inbox;
    stats.n_waiting_ids = l->n_waiting_ids + l->n_inbox_ids;
    stats.queue_fill = rg_admission_fill(&l->admission);
    pthread_mutex_unlock(&l->lock);
    return stats;
}

rg_step_time rg_loop_step_time(rg_loop *l)
{
    rg_step_time t;

    pthread_mutex_lock(&l->lock);
    t = l->time;
    pthread_mutex_unlock(&l->lock);
    return t;
}

void rg_loop_check(const rg_loop *l)
{
    rg_scheduler_check(l->scheduler);
    rg_states_check(l->states);
}

bool rg_loop_preempt(rg_loop *l, int i, rg_preempt how)
{
    return rg_scheduler_preempt(l->scheduler, rg_scheduler_running(l->scheduler, i), how);
}

void rg_loop_set_budget(rg_loop *l, int32_t (*budget)(void *arg), void *arg)
{
    l->budget = budget;
    l->budget_arg = arg;
}
