/* engine.c -- the step loop: admit, next, forward, sample, commit.
 *
 * One thread owns everything but the inbox, the published statistics and the flag that ends the loop, which stand under
 * one lock.  A step allocates nothing (swapping out apart): all arrays are made here, sized by the options. */
#include "engine/engine.h"

#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/draw.h"
#include "engine/scheduler.h"

enum {
    MIN_PROMPT_ROWS = 4,      /* of prompts in a step, however many are being answered: nobody waits for ever */
    SWAP_FROM = 4 * RG_BLOCK,  /* positions; where the machine was not measured */
    MAX_DEADLINE_S = 1 << 30,
    MAX_RETRY_S = 600,
    SLOWNESS_PARTS = 8,        /* it is rounded to eighths, so that a budget holds for some steps */
};

/* Of the pace that is left to those who are answered, when steps with prompts take longer than was expected. */
static const double LEAST_PACE = 0.5;

struct rg_core {
    rg_runner *runner;
    rg_core_options options;
    rg_states *states;
    rg_scheduler *scheduler;
    rg_drawers *drawers;

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
    double slowness[2]; /* what steps take lately, of what was expected: without prompts (0: not known), and with */

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake, stepped; /* stepped: a step was committed, or requests left */
    bool lock_made, wake_made, stepped_made;
    rg_request *inbox, **inbox_end; /* linked by next */
    int32_t n_inbox, n_waiting;     /* submitted and not admitted; waiting as of the last step */
    int64_t n_inbox_ids, n_waiting_ids; /* of their prompts */
    uint64_t last_id, n_commits;    /* n_commits: what rg_core_wait counts */
    int n_watching;                 /* threads in rg_core_wait */
    bool closing, started, check_wanted;
    rg_stats stats;
    pthread_t thread;
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

static bool make_arrays(rg_core *c, rg_error *err)
{
    size_t n = (size_t)c->options.max_seqs, rows = (size_t)c->options.max_rows, logits = (size_t)c->runner->max_logits;

    c->plan = rg_array(n, sizeof *c->plan);
    c->spans = rg_array(n, sizeof *c->spans);
    c->pools = rg_array(n, sizeof *c->pools);
    c->drawn = rg_array(n, sizeof *c->drawn);
    c->hidden = rg_array(n, sizeof *c->hidden);
    c->rows_of = rg_array(logits, sizeof *c->rows_of);
    c->logit_rows = rg_array(logits, sizeof *c->logit_rows);
    c->token = rg_array(rows, sizeof *c->token);
    c->index = rg_array(rows, sizeof *c->index);
    c->kv_end = rg_array(rows, sizeof *c->kv_end);
    c->pos = rg_array(rows, sizeof *c->pos);
    if (!c->plan || !c->spans || !c->pools || !c->drawn || !c->hidden || !c->rows_of || !c->logit_rows || !c->token ||
        !c->index || !c->kv_end || !c->pos)
        return rg_fail_memory(err, n * sizeof *c->spans + rows * sizeof *c->pos);
    return true;
}

static bool check_options(const rg_runner *runner, const rg_core_options *o, rg_error *err)
{
    if (o->max_seqs < 1 || o->max_rows < 1 || o->max_seq_len < 1 || o->max_waiting < 1 || o->n_threads < 1)
        return rg_fail(err, RG_E_USAGE, "max_seqs, max_rows, max_seq_len, max_waiting and n_threads must be 1 or more");
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

/* Ids of prompts in a second: half of what the machine does when nobody is answered, or all of it, or between. */
static double expected_ids_s(const rg_core *c)
{
    const double s = 0.25, share = 0.75;

    return c->runner->prompt_rows ? share / s * c->runner->prompt_rows(c->runner, &(rg_step_aim){ .seconds = s }) : 0;
}

rg_core *rg_core_new(rg_runner *runner, const rg_core_options *options, rg_error *err)
{
    rg_core *c;

    if (!check_options(runner, options, err))
        return NULL;
    c = rg_zalloc(sizeof *c);
    if (!c)
        return rg_fail_memory(err, sizeof *c), NULL;
    c->runner = runner;
    c->options = *options;
    if (!c->options.swap_from)
        c->options.swap_from = SWAP_FROM;
    c->inbox_end = &c->inbox;
    c->slowness[1] = 1;
    c->lock_made = !pthread_mutex_init(&c->lock, NULL);
    c->wake_made = !pthread_cond_init(&c->wake, NULL);
    c->stepped_made = make_monotonic(&c->stepped);
    c->options.prompt_ids_s = expected_ids_s(c);
    if (!c->lock_made || !c->wake_made || !c->stepped_made) {
        rg_fail_memory(err, 0);
        goto fail;
    }
    c->states = rg_states_new(runner->spec, runner->store, options->use_prefixes, err);
    if (!c->states)
        goto fail;
    c->scheduler = rg_scheduler_new(c->states, &c->options, err);
    c->drawers = c->scheduler ? rg_drawers_new(options->n_threads, runner->vocab_size, err) : NULL;
    if (!c->drawers || !make_arrays(c, err))
        goto fail;
    return c;

fail:
    rg_core_free(c);
    return NULL;
}

/* ---- the five calls of a step ------------------------------------------------------------------------------------ */

/* What was submitted joins the queue; what was cancelled leaves it.  True: something left. */
static bool admit(rg_core *c)
{
    rg_request *r, *next;

    pthread_mutex_lock(&c->lock);
    r = c->inbox;
    c->inbox = NULL;
    c->inbox_end = &c->inbox;
    c->n_waiting += c->n_inbox;
    c->n_waiting_ids += c->n_inbox_ids;
    c->n_inbox = 0;
    c->n_inbox_ids = 0;
    pthread_mutex_unlock(&c->lock);
    for (; r; r = next) {
        next = r->next;
        r->next = NULL;
        rg_scheduler_add(c->scheduler, r);
    }
    return rg_scheduler_reap(c->scheduler, false) > 0;
}

static double in_parts(double slowness)
{
    return fmax(round(slowness * SLOWNESS_PARTS), 1) / SLOWNESS_PARTS;
}

/* Rows of prompts that keep a step short and leave those who are being answered their pace: others may want the machine
 * too, and what was measured of it may be off for few rows and right for many. */
static int32_t prompt_rows(void *arg, rg_step_aim *aim)
{
    rg_core *c = arg;
    int rows;

    aim->seconds = c->options.step_s / in_parts(c->slowness[1]);
    aim->pace *= c->options.pace;
    if (c->slowness[0] > 0 && c->slowness[0] < c->slowness[1])
        aim->pace *= fmax(in_parts(c->slowness[0] / c->slowness[1]), LEAST_PACE);
    rows = c->runner->prompt_rows(c->runner, aim);

    return rows > MIN_PROMPT_ROWS ? rows : MIN_PROMPT_ROWS;
}

static void want_logits(rg_core *c, int i, int32_t row)
{
    RG_ASSERT(c->batch.n_logits < c->runner->max_logits);
    c->rows_of[c->batch.n_logits] = i;
    c->logit_rows[c->batch.n_logits++] = row;
}

/* What is wanted of a span, whose rows are laid out: the logits of those that score ids of the prompt and of the one
 * that the next id is drawn from, or hidden states. */
static void want(rg_core *c, int i, int32_t start)
{
    const rg_planned *p = &c->plan[i];
    rg_batch *b = &c->batch;
    int32_t first = c->spans[i].first_row;
    rg_rows run;

    if (!rg_request_embeds(p->request)) {
        run = rg_request_rows_to_score(p->request, start, p->n_rows);
        rg_request_begin_scores(p->request, start, p->n_rows);
        for (int32_t k = 0; k < run.n; k++)
            want_logits(c, i, first + run.first + k);
        if (p->ends && rg_request_draws(p->request)) {
            want_logits(c, i, first + p->n_rows - 1);
            c->n_draws++;
        }
        return;
    }
    run = rg_request_rows_to_pool(p->request, start, p->n_rows);
    if (run.n) {
        c->pools[b->n_hidden] = i;
        c->hidden[b->n_hidden++] = (rg_rows){ first + run.first, run.n };
    }
}

/* Choose the spans and lay out their rows. */
static bool next(rg_core *c)
{
    int32_t most = c->options.max_rows, wanted = c->budget ? c->budget(c->budget_arg) : most, row = 0;
    rg_row_budget budget = { .rows = wanted < 1 ? 1 : wanted < most ? wanted : most, .logits = c->runner->max_logits,
                             .arg = c };

    if ((c->options.step_s > 0 || c->options.pace > 0) && c->runner->prompt_rows)
        budget.prompt_rows = prompt_rows;
    c->n_draws = 0;
    c->n_plan = rg_scheduler_next(c->scheduler, &budget, c->plan);
    c->batch = (rg_batch){ .n_spans = c->n_plan,
                           .spans = c->spans,
                           .token = c->token,
                           .index = c->index,
                           .pos = (const int32_t(*)[4])c->pos,
                           .kv_end = c->kv_end,
                           .logit_rows = c->logit_rows,
                           .hidden = c->hidden };
    for (int i = 0; i < c->n_plan; i++) {
        const rg_planned *p = &c->plan[i];
        const rg_seq *q = p->request->samples[p->sample].seq;
        const int32_t *tokens = rg_request_tokens(p->request, p->sample);

        rg_seq_span(c->states, q, p->n_rows, 0, &c->spans[i]);
        c->spans[i].first_row = row;
        for (int32_t k = q->length; k < q->length + p->n_rows; k++, row++) {
            c->token[row] = tokens[k];
            c->index[row] = k;
            c->kv_end[row] = k + 1;
            for (int d = 0; d < 4; d++)
                c->pos[row][d] = k;
        }
        want(c, i, q->length);
    }
    c->batch.n_rows = row;
    return c->n_plan > 0;
}

/* Called on any of the step's threads, as is pool.  The id after the row is one of the prompt, or is drawn. */
static void sample(void *arg, int i, float *logits)
{
    rg_core *c = arg;
    const rg_planned *p = &c->plan[c->rows_of[i]];
    int32_t next = c->index[c->logit_rows[i]] + 1;

    if (next < p->request->params.n_prompt)
        rg_draw_score(c->drawers, p->request, next, logits);
    else
        c->drawn[c->rows_of[i]] = rg_draw(c->drawers, p->request, p->sample, logits);
}

static void pool(void *arg, int i, const float *rows, size_t stride)
{
    rg_core *c = arg;
    const rg_rows *run = &c->hidden[i];

    rg_request_pool(c->plan[c->pools[i]].request, c->index[run->first], run->n, rows, stride);
}

/* A step took so long, and so long was expected.  The last seconds of such steps, with rows of prompts or without,
 * count; no single one counts for much.  While all have prompts, what is known of those without fades away. */
static void learn_slowness(rg_core *c, double took, double expected)
{
    const double memory_s = 2, fading_s = 30, most = 8;
    double *alone = &c->slowness[0], *with = &c->slowness[1], now = fmin(took / expected, most);

    if (expected <= 0)
        return;
    if (c->batch.n_rows == c->n_plan) {
        *alone += *alone > 0 ? (now - *alone) * took / (took + memory_s) : now;
        return;
    }
    *with += (now - *with) * took / (took + memory_s);
    if (*alone > 0)
        *alone += (*with - *alone) * took / (took + fading_s);
}

static void forward(rg_core *c)
{
    rg_predicted p = { 0 };
    uint64_t start;

    if (c->runner->predict)
        c->runner->predict(c->runner, &c->batch, &p);
    start = rg_now_ns();
    c->runner->step(c->runner, &c->batch, &(rg_sink){ .logits = sample, .hidden = pool, .arg = c });
    learn_slowness(c, rg_seconds(start, rg_now_ns()), p.seconds);
    pthread_mutex_lock(&c->lock);
    c->stats.n_steps++;
    c->stats.n_rows += (uint64_t)c->batch.n_rows;
    c->stats.bytes_read += p.bytes;
    c->stats.ops += p.ops;
    c->stats.limit_s += p.limit_s;
    c->stats.n_output += (uint64_t)c->n_draws;
    pthread_mutex_unlock(&c->lock);
}

/* Is this a place where a recurrent state is worth keeping? */
static bool wants_snapshot(const rg_core *c, const rg_request *r, int32_t committed)
{
    int32_t n = committed < r->params.n_prompt ? r->params.n_prompt : INT32_MAX;

    return committed < n && rg_states_next_stop(c->states, committed - 1, n) == committed;
}

/* A planned sample has all the state that it waited for: it has drawn an id, or its embedding is complete, or there was
 * nothing to do beyond the prompt.  True: it is through. */
static bool take_output(rg_core *c, int i)
{
    const rg_planned *p = &c->plan[i];
    rg_request *r = p->request;
    const rg_drawn *d = &c->drawn[i];

    if (rg_request_draws(r))
        return rg_request_append(r, p->sample, d->id, d->logprob, rg_next_tops(r, &r->samples[p->sample]));
    if (rg_request_embeds(r))
        rg_request_embedded(r);
    else
        rg_request_end(r, p->sample, RG_FINISH_LENGTH);
    return true;
}

static void commit(rg_core *c)
{
    for (int i = 0; i < c->n_plan; i++) {
        const rg_planned *p = &c->plan[i];
        rg_sample *a = &p->request->samples[p->sample];
        const int32_t *tokens = rg_request_tokens(p->request, p->sample);

        rg_seq_advance(c->states, a->seq, p->n_rows, 0, tokens);
        if (wants_snapshot(c, p->request, a->seq->committed))
            (void)rg_seq_snapshot(c->states, a->seq, tokens); /* no room: then there is none */
        rg_request_publish_scores(p->request);
        if (p->ends && take_output(c, i))
            rg_scheduler_drop(c->scheduler, p->request, p->sample);
    }
    c->n_plan = 0;
    rg_scheduler_reap(c->scheduler, false);
}

/* What others may see of a step. */
static void publish(rg_core *c, uint64_t start, bool stepped)
{
    rg_scheduler *s = c->scheduler;
    uint64_t now = rg_now_ns();
    rg_stats *t = &c->stats;

    pthread_mutex_lock(&c->lock);
    c->n_waiting = rg_scheduler_n_waiting(s);
    c->n_waiting_ids = rg_scheduler_n_waiting_ids(s);
    t->n_preempted = rg_scheduler_n_preempted(s);
    t->n_cached_rows = rg_scheduler_n_cached(s);
    t->n_prompt_rows = rg_scheduler_n_prompt_rows(s);
    t->n_running = rg_scheduler_n_running(s);
    rg_states_bytes(c->states, &t->state_bytes, &t->state_used_bytes, &t->state_live_bytes);
    if (stepped) {
        t->last_step_s = rg_seconds(start, now);
        t->busy_s += t->last_step_s;
    }
    rg_door_look(rg_scheduler_door(s), stepped ? t->last_step_s : 0, rg_scheduler_some_wait(s));
    c->n_commits++;
    if (c->n_watching)
        pthread_cond_broadcast(&c->stepped);
    pthread_mutex_unlock(&c->lock);
}

bool rg_core_step(rg_core *c)
{
    uint64_t start = rg_now_ns();
    bool reaped = admit(c), planned = next(c);

    if (planned) {
        forward(c);
        commit(c);
    }
    if (planned || reaped)
        publish(c, start, planned);
    return planned || reaped;
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

bool rg_core_submit(rg_core *c, rg_request *r, rg_error *err)
{
    rg_door *door = rg_scheduler_door(c->scheduler);
    int32_t n_positions = rg_request_positions(r);
    int64_t n_ids = r->params.n_prompt, most_ids = r->params.background ? 0 : c->options.max_waiting_ids;
    double state = rg_states_share(c->states, n_positions);
    rg_newcomer who;
    bool ok = false;

    if (n_positions > c->options.max_seq_len || state > 1)
        return rg_fail(err, RG_E_LIMIT, "%d prompt ids and %d to come need more state than the engine was opened with",
                       (int)r->params.n_prompt, (int)r->params.max_tokens);
    pthread_mutex_lock(&c->lock);
    if (c->closing) {
        rg_fail(err, RG_E_BUSY, "the engine is closing");
    } else if (!rg_door_has_room(door, r->tenant, r->params.background)) {
        rg_fail(err, RG_E_BUSY, "%d requests are waiting already", (int)(c->n_inbox + c->n_waiting));
    } else if (most_ids && atomic_load(&door->n) && atomic_load(&door->n_ids) + n_ids > most_ids) {
        rg_fail(err, RG_E_BUSY, "%lld prompt ids are waiting already", (long long)atomic_load(&door->n_ids));
    } else {
        rg_request_ref(r);
        r->state_part = (int32_t)(RG_DOOR_ALL_STATE * state);
        who = rg_scheduler_newcomer(r);
        rg_door_enter(door, &who);
        r->id = ++c->last_id;
        atomic_store(&r->submitted_ns, rg_now_ns());
        if (r->params.deadline_s > 0)
            r->deadline_ns = r->submitted_ns + (uint64_t)(fmin(r->params.deadline_s, MAX_DEADLINE_S) * 1e9);
        r->next = NULL;
        *c->inbox_end = r;
        c->inbox_end = &r->next;
        c->n_inbox++;
        c->n_inbox_ids += n_ids;
        pthread_cond_signal(&c->wake);
        ok = true;
    }
    pthread_mutex_unlock(&c->lock);
    return ok;
}

/* Under the lock, on the engine's thread: nothing moves. */
static void check_now(rg_core *c)
{
    rg_core_check(c);
    c->check_wanted = false;
    pthread_cond_broadcast(&c->stepped);
}

static void *loop(void *arg)
{
    rg_core *c = arg;
    bool busy = true;

    for (;;) {
        pthread_mutex_lock(&c->lock);
        while (!busy && !c->inbox && !c->closing && !c->check_wanted)
            pthread_cond_wait(&c->wake, &c->lock);
        if (c->check_wanted)
            check_now(c);
        if (c->closing) {
            pthread_mutex_unlock(&c->lock);
            return NULL;
        }
        pthread_mutex_unlock(&c->lock);
        busy = rg_core_step(c);
#ifdef RG_DEBUG
        if (!busy)
            rg_core_check(c);
#endif
    }
}

bool rg_core_start(rg_core *c, rg_error *err)
{
    RG_ASSERT(!c->started);
    if (pthread_create(&c->thread, NULL, loop, c))
        return rg_fail(err, RG_E_IO, "cannot start the engine's thread");
    c->started = true;
    return true;
}

/* A wait on `stepped` until a time; false: it is over. */
static bool wait_until(rg_core *c, const struct timespec *end)
{
    int rc;

    c->n_watching++;
    rc = pthread_cond_timedwait(&c->stepped, &c->lock, end);
    c->n_watching--;
    return !rc;
}

bool rg_core_wait(rg_core *c, uint64_t *seen, double timeout_s)
{
    struct timespec end;
    bool more;

    clock_gettime(CLOCK_MONOTONIC, &end);
    timeout_s = fmin(fmax(timeout_s, 0), MAX_DEADLINE_S);
    end.tv_sec += (time_t)timeout_s;
    end.tv_nsec += (long)((timeout_s - floor(timeout_s)) * 1e9);
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    pthread_mutex_lock(&c->lock);
    while (c->n_commits <= *seen && wait_until(c, &end))
        ;
    more = c->n_commits > *seen;
    *seen = c->n_commits;
    pthread_mutex_unlock(&c->lock);
    return more;
}

bool rg_core_has_room(const rg_core *c, const char *tenant)
{
    return rg_door_has_room(rg_scheduler_door(c->scheduler), rg_tenant_hash(tenant), false);
}

int32_t rg_core_retry_after(rg_core *c)
{
    double s;

    pthread_mutex_lock(&c->lock);
    s = rg_door_wait_s(rg_scheduler_door(c->scheduler));
    pthread_mutex_unlock(&c->lock);
    return (int32_t)fmin(fmax(ceil(s), 1), MAX_RETRY_S);
}

void rg_core_check_soon(rg_core *c)
{
    pthread_mutex_lock(&c->lock);
    c->check_wanted = c->started && !c->closing;
    if (!c->check_wanted)
        rg_core_check(c);
    pthread_cond_signal(&c->wake);
    while (c->check_wanted && !c->closing)
        pthread_cond_wait(&c->stepped, &c->lock);
    pthread_mutex_unlock(&c->lock);
}

static void stop(rg_core *c)
{
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->wake);
    pthread_cond_broadcast(&c->stepped);
    pthread_mutex_unlock(&c->lock);
    if (c->started)
        pthread_join(c->thread, NULL);
    if (c->scheduler) {
        (void)admit(c);
        rg_scheduler_reap(c->scheduler, true);
    }
}

void rg_core_free(rg_core *c)
{
    if (!c)
        return;
    if (c->lock_made && c->wake_made && c->stepped_made)
        stop(c);
    rg_scheduler_free(c->scheduler);
    rg_states_free(c->states);
    rg_drawers_free(c->drawers);
    rg_free(c->plan);
    rg_free(c->spans);
    rg_free(c->pools);
    rg_free(c->drawn);
    rg_free(c->hidden);
    rg_free(c->rows_of);
    rg_free(c->logit_rows);
    rg_free(c->token);
    rg_free(c->index);
    rg_free(c->kv_end);
    rg_free(c->pos);
    if (c->stepped_made)
        pthread_cond_destroy(&c->stepped);
    if (c->wake_made)
        pthread_cond_destroy(&c->wake);
    if (c->lock_made)
        pthread_mutex_destroy(&c->lock);
    rg_free(c);
}

rg_stats rg_core_stats(rg_core *c)
{
    rg_stats stats;

    pthread_mutex_lock(&c->lock);
    stats = c->stats;
    stats.n_waiting = c->n_waiting + c->n_inbox;
    stats.n_waiting_ids = c->n_waiting_ids + c->n_inbox_ids;
    stats.line_taken = rg_door_taken(rg_scheduler_door(c->scheduler));
    pthread_mutex_unlock(&c->lock);
    return stats;
}

void rg_core_check(const rg_core *c)
{
    rg_scheduler_check(c->scheduler);
    rg_states_check(c->states);
}

bool rg_core_preempt(rg_core *c, int i, rg_preempt how)
{
    return rg_scheduler_preempt(c->scheduler, rg_scheduler_running(c->scheduler, i), how);
}

void rg_core_set_budget(rg_core *c, int32_t (*budget)(void *arg), void *arg)
{
    c->budget = budget;
    c->budget_arg = arg;
}
