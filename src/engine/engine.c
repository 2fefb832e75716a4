/* engine.c -- the step loop: admit, next, forward, sample, commit.
 *
 * One thread owns everything but the inbox, the published statistics and the flag that ends the loop, which stand under
 * one lock.  A step allocates nothing (swapping out apart): all arrays are made here, sized by the options. */
#include "engine/engine.h"

#include <math.h> /* NAN, INFINITY */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "engine/scheduler.h"

enum {
    MIN_PROMPT_ROWS = 16,      /* of prompts in a step, however many are being answered: nobody waits for ever */
    SWAP_FROM = 4 * RG_BLOCK,  /* positions; where the machine was not measured */
    MAX_DEADLINE_S = 1 << 30,
    MAX_RETRY_S = 600,
};

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
    pthread_cond_t wake, stepped; /* stepped: a step was committed, or requests left */
    bool lock_made, wake_made, stepped_made;
    rg_request *inbox, **inbox_end; /* linked by next */
    int32_t n_inbox, n_waiting;     /* submitted and not admitted; waiting as of the last step */
    int64_t n_inbox_ids, n_waiting_ids; /* of their prompts */
    uint64_t last_id, n_commits;    /* n_commits: what rg_core_wait counts */
    int n_watching;                 /* threads in rg_core_wait */
    bool closing, started, check_wanted;
    double ids_per_s;               /* of prompts taken from the queue, lately */
    uint64_t n_taken;               /* prompt ids taken as of the last look */
    uint64_t looked_ns;
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
    c->lock_made = !pthread_mutex_init(&c->lock, NULL);
    c->wake_made = !pthread_cond_init(&c->wake, NULL);
    c->stepped_made = make_monotonic(&c->stepped);
    if (!c->lock_made || !c->wake_made || !c->stepped_made) {
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

/* Rows of prompts that leave those who are being answered their pace. */
static int32_t prompt_rows(void *arg, int32_t n_decode, int64_t mean_start)
{
    rg_core *c = arg;
    int rows = c->runner->prompt_rows(c->runner, n_decode, mean_start, c->options.step_s);

    return rows > MIN_PROMPT_ROWS ? rows : MIN_PROMPT_ROWS;
}

/* Choose the spans and lay out their rows. */
static bool next(rg_core *c)
{
    int32_t most = c->options.max_rows, wanted = c->budget ? c->budget(c->budget_arg) : most, row = 0, n_draws = 0;
    rg_row_budget budget = { .rows = wanted < 1 ? 1 : wanted < most ? wanted : most, .arg = c };

    if (c->options.step_s > 0 && c->runner->prompt_rows)
        budget.prompt_rows = prompt_rows;
    c->n_plan = rg_scheduler_next(c->scheduler, &budget, c->plan);
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
    if (a->grammar)
        rg_grammar_mask(a->grammar, logits, c->runner->vocab_size, r->eos_ids, sampling->ignore_eos ? 0 : r->n_eos,
                        may_end);
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
    rg_predicted p = { 0 };

    if (c->runner->predict)
        c->runner->predict(c->runner, &c->batch, &p);
    c->runner->step(c->runner, &c->batch, sample, c);
    pthread_mutex_lock(&c->lock);
    c->stats.n_steps++;
    c->stats.n_rows += (uint64_t)c->batch.n_rows;
    c->stats.bytes_read += p.bytes;
    c->stats.ops += p.ops;
    c->stats.limit_s += p.limit_s;
    c->stats.n_output += (uint64_t)c->batch.n_logits;
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

/* How fast prompts leave the queue, over the last seconds. */
static void look_at_drain(rg_core *c, uint64_t now)
{
    uint64_t taken = rg_scheduler_n_prompt_rows(c->scheduler);
    double s = c->looked_ns ? rg_seconds(c->looked_ns, now) : 0, rate;

    if (c->looked_ns && s < 1)
        return;
    rate = s > 0 ? (double)(taken - c->n_taken) / s : 0;
    c->ids_per_s = c->ids_per_s > 0 ? c->ids_per_s + (rate - c->ids_per_s) / 4 : rate;
    c->n_taken = taken;
    c->looked_ns = now;
}

/* What others may see of a step. */
static void publish(rg_core *c, uint64_t start, bool stepped)
{
    const rg_scheduler *s = c->scheduler;
    uint64_t now = rg_now_ns();
    rg_stats *t = &c->stats;

    pthread_mutex_lock(&c->lock);
    c->n_waiting = rg_scheduler_n_waiting(s);
    c->n_waiting_ids = rg_scheduler_n_waiting_ids(s);
    t->n_preempted = rg_scheduler_n_preempted(s);
    t->n_cached_rows = rg_scheduler_n_cached(s);
    t->n_prompt_rows = rg_scheduler_n_prompt_rows(s);
    t->n_running = rg_scheduler_n_running(s);
    rg_states_bytes(c->states, &t->state_bytes, &t->state_used_bytes);
    if (stepped) {
        t->last_step_s = rg_seconds(start, now);
        t->busy_s += t->last_step_s;
    }
    look_at_drain(c, now);
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
    /* The last id drawn needs no state. */
    int32_t n_positions = r->params.n_prompt + r->params.max_tokens - 1;
    int64_t n_ids = r->params.n_prompt, most_ids = c->options.max_waiting_ids;
    bool ok = false;

    if (n_positions > c->options.max_seq_len || !rg_states_fits(c->states, n_positions))
        return rg_fail(err, RG_E_LIMIT, "%d prompt ids and %d to come need more state than the engine was opened with",
                       (int)r->params.n_prompt, (int)r->params.max_tokens);
    pthread_mutex_lock(&c->lock);
    if (c->closing) {
        rg_fail(err, RG_E_BUSY, "the engine is closing");
    } else if (c->n_inbox + c->n_waiting >= c->options.max_waiting) {
        rg_fail(err, RG_E_BUSY, "%d requests are waiting already", (int)c->options.max_waiting);
    } else if (most_ids && c->n_inbox + c->n_waiting > 0 && c->n_inbox_ids + c->n_waiting_ids + n_ids > most_ids) {
        rg_fail(err, RG_E_BUSY, "%lld prompt ids are waiting already", (long long)(c->n_inbox_ids + c->n_waiting_ids));
    } else {
        rg_request_ref(r);
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

int32_t rg_core_retry_after(rg_core *c)
{
    double s;

    pthread_mutex_lock(&c->lock);
    s = (double)(c->n_waiting_ids + c->n_inbox_ids) / (c->ids_per_s > 1 ? c->ids_per_s : 1);
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
