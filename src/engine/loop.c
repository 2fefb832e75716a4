/* loop.c -- the engine loop: admit, next, lay out, forward, commit.
 *
 * One thread owns everything but the inbox, the published statistics and the flag that ends the loop, which stand under
 * one lock.  A step allocates nothing (swapping out apart): all arrays are made here, sized by the options. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/loop_inner.h"

/* ---- building ---------------------------------------------------------------------------------------------------- */

static bool make_arrays(rg_loop *l, rg_error *err)
{
    const rg_loop_options *o = &l->options;
    const size_t n = (size_t)o->max_seqs, logits = (size_t)l->runner->max_logits;
    rg_work_step *s = &l->step;

    s->states = l->states;
    s->scratch = l->scratch;
    s->verify = o->verify;
    s->plan = rg_array(n, sizeof *s->plan);
    s->drawn = rg_array(logits, sizeof *s->drawn);
    s->judged = o->verify == RG_VERIFY_TYPICAL ? rg_array(logits, sizeof *s->judged) : NULL;
    if (!s->plan || !s->drawn || (o->verify == RG_VERIFY_TYPICAL && !s->judged))
        return rg_fail_memory(err, n * sizeof *s->plan + logits * sizeof *s->drawn);
    if (!rg_step_batch_init(&s->rows, o->max_seqs, l->runner->max_rows, l->runner->max_logits,
                            o->drafter && !rg_states_keep_chains(l->states), err))
        return false;
    s->rows.sees = l->runner->sees;
    if (o->drafter && o->verify != RG_VERIFY_COUPLED && !rg_sample_scratch_judge(l->scratch, err))
        return false;
    if (o->drafter) {
        s->in_turn = rg_array(logits, sizeof *s->in_turn);
        s->mu = rg_array(logits, sizeof *s->mu);
        s->n_in_turn = rg_array(n, sizeof *s->n_in_turn);
        if (!s->in_turn || !s->mu || !s->n_in_turn)
            return rg_fail_memory(err, logits * sizeof *s->in_turn);
        l->speculation = rg_speculation_new(o, &l->runner->facts, l->states, l->scratch, err);
        s->speculation = l->speculation;
    }
    return !o->drafter || l->speculation;
}

static bool check_drafts(const rg_state_spec *spec, const rg_loop_options *o, rg_error *err)
{
    int32_t most = RG_MAX_DRAFT;

    if (!o->drafter)
        return true;
    for (int g = 0; g < spec->n_groups; g++)
        most = spec->group[g].per == RG_PER_SEQUENCE ? spec->max_draft : most;
    if (o->max_draft < 1 || o->max_draft > most)
        return rg_fail(err, RG_E_USAGE, "%d ids in a draft: the model was opened for 1 to %d", (int)o->max_draft,
                       (int)most);
    return true;
}

static bool check_options(const rg_runner *runner, const rg_loop_options *o, rg_error *err)
{
    if (o->max_seqs < 1 || o->max_rows < 1 || o->max_seq_len < 1 || o->max_waiting < 1)
        return rg_fail(err, RG_E_USAGE, "max_seqs, max_rows, max_seq_len and max_waiting must be 1 or more");
    if (o->max_rows > runner->max_rows)
        return rg_fail(err, RG_E_USAGE, "%d rows in a step: the model was opened for %d", (int)o->max_rows,
                       runner->max_rows);
    if (rg_loop_fixes_drafts(o) && (o->max_rows / (1 + o->max_draft) < o->max_seqs ||
                                    runner->max_logits / (1 + o->max_draft) < o->max_seqs))
        return rg_fail(err, RG_E_USAGE, "%d rows in a step, and the logits of %d: drafts of %d ids for %d sequences, "
                       "which are judged by chance, need more", (int)o->max_rows, runner->max_logits,
                       (int)o->max_draft, (int)o->max_seqs);
    if (o->max_seqs >= runner->max_logits)
        return rg_fail(err, RG_E_USAGE, "%d sequences: the model was opened for the logits of %d rows, not of one more",
                       (int)o->max_seqs, runner->max_logits);
    return check_drafts(runner->spec, o, err);
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
    l->stepped_made = rg_cond_init(&l->stepped);
    if (!l->lock_made || !l->wake_made || !l->stepped_made) {
        rg_fail_memory(err, 0);
        goto fail;
    }
    l->states = rg_states_new(runner->spec, runner->store, options->use_prefixes, err);
    if (!l->states)
        goto fail;
    l->scheduler = rg_scheduler_new(l->states, &l->admission, &l->time, &l->options, err);
    if (l->scheduler)
        l->scratch = rg_sample_scratch_new(runner->n_threads, runner->vocab_size, options->max_seq_len, err);
    if (!l->scratch || !make_arrays(l, err))
        goto fail;
    return l;

fail:
    rg_loop_free(l);
    return NULL;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

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
        next = r->turn.next;
        r->turn.next = NULL;
        rg_scheduler_add(l->scheduler, r);
    }
    return rg_scheduler_reap(l->scheduler, false) > 0;
}

static void publish_drafts(rg_stats *t, const rg_draft_counts *c)
{
    t->n_drafts = c->n_drafts;
    t->n_draft_rows = c->n_nodes;
    t->n_draft_accepted = c->n_accepted;
    memcpy(t->draft_accepted_at, c->at, sizeof t->draft_accepted_at);
    t->draft_s = c->took_s;
    t->undrafted_s = c->plain_s;
    t->draft_paused = c->paused;
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
    if (l->speculation)
        publish_drafts(t, rg_speculation_counts(l->speculation));
    if (stepped) {
        t->n_output += l->step.n_output;
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
    bool reaped = admit(l), planned = rg_loop_next(l);

    if (planned) {
        rg_loop_lay_out(l);
        rg_loop_forward(l);
        rg_loop_commit(l);
    }
    if (planned || reaped)
        publish(l, start, planned);
    return planned || reaped;
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
    if (!rg_thread_start(&l->thread, run, l))
        return rg_fail(err, RG_E_IO, "cannot start the engine's thread");
    l->started = true;
    return true;
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
    rg_speculation_free(l->speculation);
    rg_step_batch_fini(&l->step.rows);
    rg_free(l->step.plan);
    rg_free(l->step.drawn);
    rg_free(l->step.judged);
    rg_free(l->step.in_turn);
    rg_free(l->step.mu);
    rg_free(l->step.n_in_turn);
    if (l->stepped_made)
        pthread_cond_destroy(&l->stepped);
    if (l->wake_made)
        pthread_cond_destroy(&l->wake);
    if (l->lock_made)
        pthread_mutex_destroy(&l->lock);
    rg_free(l);
}
