/* engine.c -- the step loop: admit, next, forward, sample, commit.
 *
 * One thread owns everything but the inbox, the published statistics and the flag that ends the loop, which stand under
 * one lock.  A step allocates nothing (swapping out apart): all arrays are made here, sized by the options. */
#include "engine/engine.h"

#include <math.h> /* NAN, INFINITY */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/scheduler.h"

typedef struct sampler_slot { /* taken by whichever of the step's threads has a row to sample */
    _Alignas(RG_ALIGN) atomic_bool busy;
    rg_sampler *sampler;
    float *raw; /* logits as they came, for log-probabilities */
} sampler_slot;

typedef struct drawn {
    int32_t id;
    float logprob;
} drawn;

struct rg_core {
    rg_runner *runner;
    rg_core_options options;
    rg_states *states;
    rg_scheduler *scheduler;
    sampler_slot *slots; /* [n_threads] */

    /* The step. */
    rg_planned *plan; /* [max_seqs], as are spans, draws, drawn and logit_rows */
    int n_plan;
    rg_span *spans;
    int32_t *draws;                               /* plan entry of each wanted row */
    drawn *drawn;                                 /* by plan entry */
    int32_t *logit_rows, *token, *index, *kv_end; /* the last three, and pos: [max_rows] */
    int32_t (*pos)[4];
    rg_batch batch;
    int32_t (*budget)(void *arg);
    void *budget_arg;

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool lock_made, wake_made;
    rg_request *inbox, **inbox_end; /* linked by next */
    int32_t n_inbox, n_waiting;     /* submitted and not admitted; waiting as of the last step */
    uint64_t last_id;
    bool closing, started;
    rg_stats stats;
    pthread_t thread;
};

/* ---- building ---------------------------------------------------------------------------------------------------- */

static bool make_slots(rg_core *c, rg_error *err)
{
    size_t n = (size_t)c->options.n_threads, vocab = (size_t)c->runner->vocab_size;

    c->slots = rg_array(n, sizeof *c->slots);
    if (!c->slots)
        return rg_fail_memory(err, n * sizeof *c->slots);
    for (size_t i = 0; i < n; i++) {
        c->slots[i].sampler = rg_sampler_new(c->runner->vocab_size, err);
        if (!c->slots[i].sampler)
            return false;
        c->slots[i].raw = rg_array(vocab, sizeof(float));
        if (!c->slots[i].raw)
            return rg_fail_memory(err, vocab * sizeof(float));
    }
    return true;
}

static bool make_arrays(rg_core *c, rg_error *err)
{
    size_t n = (size_t)c->options.max_seqs, rows = (size_t)c->options.max_rows;

    c->plan = rg_array(n, sizeof *c->plan);
    c->spans = rg_array(n, sizeof *c->spans);
    c->draws = rg_array(n, sizeof *c->draws);
    c->drawn = rg_array(n, sizeof *c->drawn);
    c->logit_rows = rg_array(n, sizeof *c->logit_rows);
    c->token = rg_array(rows, sizeof *c->token);
    c->index = rg_array(rows, sizeof *c->index);
    c->kv_end = rg_array(rows, sizeof *c->kv_end);
    c->pos = rg_array(rows, sizeof *c->pos);
    if (!c->plan || !c->spans || !c->draws || !c->drawn || !c->logit_rows || !c->token || !c->index || !c->kv_end ||
        !c->pos)
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
    return true;
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
    c->inbox_end = &c->inbox;
    c->lock_made = !pthread_mutex_init(&c->lock, NULL);
    c->wake_made = !pthread_cond_init(&c->wake, NULL);
    if (!c->lock_made || !c->wake_made) {
        rg_fail_memory(err, 0);
        goto fail;
    }
    c->states = rg_states_new(runner->spec, runner->store, options->use_prefixes, err);
    if (!c->states)
        goto fail;
    c->scheduler = rg_scheduler_new(c->states, options, err);
    if (!c->scheduler || !make_slots(c, err) || !make_arrays(c, err))
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
    c->n_inbox = 0;
    pthread_mutex_unlock(&c->lock);
    for (; r; r = next) {
        next = r->next;
        r->next = NULL;
        rg_scheduler_add(c->scheduler, r);
    }
    return rg_scheduler_reap(c->scheduler, false) > 0;
}

/* Choose the spans and lay out their rows. */
static bool next(rg_core *c)
{
    int32_t budget = c->options.max_rows, wanted = c->budget ? c->budget(c->budget_arg) : budget, row = 0, n_draws = 0;

    budget = wanted < 1 ? 1 : wanted < budget ? wanted : budget;
    c->n_plan = rg_scheduler_next(c->scheduler, budget, c->plan);
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
        if (p->draws) {
            c->draws[n_draws] = i;
            c->logit_rows[n_draws++] = row - 1;
        }
    }
    c->batch = (rg_batch){ .n_rows = row,
                           .n_spans = c->n_plan,
                           .spans = c->spans,
                           .token = c->token,
                           .index = c->index,
                           .pos = (const int32_t(*)[4])c->pos,
                           .kv_end = c->kv_end,
                           .n_logits = n_draws,
                           .logit_rows = c->logit_rows };
    return c->n_plan > 0;
}

static sampler_slot *take_slot(rg_core *c)
{
    for (;;)
        for (int i = 0; i < c->options.n_threads; i++)
            if (!atomic_exchange_explicit(&c->slots[i].busy, true, memory_order_acquire))
                return &c->slots[i];
}

/* Where the best ids beside the next output id of a sample go. */
static rg_top *next_tops(const rg_request *r, const rg_sample *a)
{
    int32_t k = r->params.sampling.n_logprobs;

    return k > 0 ? a->tops + (size_t)a->n_output * (size_t)k : NULL;
}

/* The id of one wanted row.  Called on any of the step's threads. */
static void sample(void *arg, int i, float *logits)
{
    rg_core *c = arg;
    const rg_planned *p = &c->plan[c->draws[i]];
    rg_request *r = p->request;
    const rg_sampling *sampling = &r->params.sampling;
    rg_sample *a = &r->samples[p->sample];
    rg_history history = { r->params.prompt, a->ids, r->params.n_prompt, a->n_output };
    rg_sample_key key = { .seed = sampling->seed, .sample = p->sample, .position = r->params.n_prompt + a->n_output };
    bool may_end = a->n_output >= sampling->min_tokens;
    drawn *d = &c->drawn[c->draws[i]];
    sampler_slot *slot = take_slot(c);

    if (sampling->n_logprobs >= 0)
        memcpy(slot->raw, logits, (size_t)c->runner->vocab_size * sizeof *logits);
    for (int32_t k = 0; k < r->params.n_stop_ids && !may_end; k++)
        logits[r->params.stop_ids[k]] = -INFINITY;
    rg_sample_rules(slot->sampler, logits, sampling, &history, r->eos_ids,
                    may_end || sampling->ignore_eos ? 0 : r->n_eos);
    d->id = rg_sample_draw(slot->sampler, logits, sampling, &key);
    d->logprob = NAN;
    if (sampling->n_logprobs >= 0)
        d->logprob = rg_logprobs(slot->sampler, slot->raw, d->id, sampling->n_logprobs, next_tops(r, a));
    atomic_store_explicit(&slot->busy, false, memory_order_release);
}

static void forward(rg_core *c)
{
    uint64_t bytes = 0;

    if (c->runner->predict)
        c->runner->predict(c->runner, &c->batch, &bytes);
    c->runner->step(c->runner, &c->batch, sample, c);
    pthread_mutex_lock(&c->lock);
    c->stats.n_steps++;
    c->stats.n_rows += (uint64_t)c->batch.n_rows;
    c->stats.bytes_read += bytes;
    pthread_mutex_unlock(&c->lock);
}

/* Is this a place where a recurrent state is worth keeping? */
static bool wants_snapshot(const rg_core *c, const rg_request *r, int32_t committed)
{
    int32_t n = committed < r->params.n_prompt ? r->params.n_prompt : INT32_MAX;

    return committed < n && rg_states_next_stop(c->states, committed - 1, n) == committed;
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
        if (!p->draws)
            continue;
        if (rg_request_append(p->request, p->sample, c->drawn[i].id, c->drawn[i].logprob, next_tops(p->request, a)))
            rg_scheduler_drop(c->scheduler, p->request, p->sample);
    }
    c->n_plan = 0;
    rg_scheduler_reap(c->scheduler, false);
}

bool rg_core_step(rg_core *c)
{
    uint64_t start = rg_now_ns();
    bool reaped = admit(c), planned = next(c);

    if (planned) {
        forward(c);
        commit(c);
    }
    pthread_mutex_lock(&c->lock);
    c->n_waiting = rg_scheduler_n_waiting(c->scheduler);
    c->stats.n_preempted = rg_scheduler_n_preempted(c->scheduler);
    c->stats.n_cached_rows = rg_scheduler_n_cached(c->scheduler);
    if (planned)
        c->stats.busy_s += rg_seconds(start, rg_now_ns());
    pthread_mutex_unlock(&c->lock);
    return planned || reaped;
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

bool rg_core_submit(rg_core *c, rg_request *r, rg_error *err)
{
    /* The last id drawn needs no state. */
    int32_t n_positions = r->params.n_prompt + r->params.max_tokens - 1;
    bool ok = false;

    if (n_positions > c->options.max_seq_len || !rg_states_fits(c->states, n_positions))
        return rg_fail(err, RG_E_LIMIT, "%d prompt ids and %d to come need more state than the engine was opened with",
                       (int)r->params.n_prompt, (int)r->params.max_tokens);
    pthread_mutex_lock(&c->lock);
    if (c->closing) {
        rg_fail(err, RG_E_USAGE, "the engine is closing");
    } else if (c->n_inbox + c->n_waiting >= c->options.max_waiting) {
        rg_fail(err, RG_E_LIMIT, "%d requests are waiting already", (int)c->options.max_waiting);
    } else {
        rg_request_ref(r);
        r->id = ++c->last_id;
        atomic_store(&r->submitted_ns, rg_now_ns());
        r->next = NULL;
        *c->inbox_end = r;
        c->inbox_end = &r->next;
        c->n_inbox++;
        pthread_cond_signal(&c->wake);
        ok = true;
    }
    pthread_mutex_unlock(&c->lock);
    return ok;
}

static void *loop(void *arg)
{
    rg_core *c = arg;
    bool busy = true;

    for (;;) {
        pthread_mutex_lock(&c->lock);
        while (!busy && !c->inbox && !c->closing)
            pthread_cond_wait(&c->wake, &c->lock);
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

static void stop(rg_core *c)
{
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->wake);
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
    if (c->lock_made && c->wake_made)
        stop(c);
    rg_scheduler_free(c->scheduler);
    rg_states_free(c->states);
    for (int i = 0; c->slots && i < c->options.n_threads; i++) {
        rg_sampler_free(c->slots[i].sampler);
        rg_free(c->slots[i].raw);
    }
    rg_free(c->slots);
    rg_free(c->plan);
    rg_free(c->spans);
    rg_free(c->draws);
    rg_free(c->drawn);
    rg_free(c->logit_rows);
    rg_free(c->token);
    rg_free(c->index);
    rg_free(c->kv_end);
    rg_free(c->pos);
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
