/* loop.c -- the loop of a model that answers requests: admit, next, draft, lay out, forward, commit.
 *
 * One thread owns everything but the inbox, the published statistics and the flag that ends the loop, which stand under
 * one lock.  A step allocates nothing (swapping out apart): all arrays are made here, sized by the options. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/host.h"
#include "engine/loop_inner.h"

/* ---- building ---------------------------------------------------------------------------------------------------- */

static bool make_arrays(rg_loop *l, rg_error *err)
{
    const rg_loop_options *o = &l->options;
    const size_t n = (size_t)o->max_seqs, logits = (size_t)l->member.runner->max_logits;
    rg_work_step *s = &l->step;

    s->member = &l->member;
    s->verify = o->verify;
    s->plan = rg_array(n, sizeof *s->plan);
    s->drawn = rg_array(logits, sizeof *s->drawn);
    s->judged = o->verify == RG_VERIFY_TYPICAL ? rg_array(logits, sizeof *s->judged) : NULL;
    if (!s->plan || !s->drawn || (o->verify == RG_VERIFY_TYPICAL && !s->judged))
        return rg_fail_memory(err, n * sizeof *s->plan + logits * sizeof *s->drawn);
    if (o->drafter) {
        s->in_turn = rg_array(logits, sizeof *s->in_turn);
        s->mu = rg_array(logits, sizeof *s->mu);
        s->n_in_turn = rg_array(n, sizeof *s->n_in_turn);
        if (!s->in_turn || !s->mu || !s->n_in_turn)
            return rg_fail_memory(err, logits * sizeof *s->in_turn);
        l->speculation = rg_speculation_new(o, &l->member.runner->facts, l->member.states, l->member.scratch, err);
        s->speculation = l->speculation;
    }
    return !o->drafter || l->speculation;
}

static bool make_member(rg_loop *l, rg_runner *runner, rg_error *err)
{
    const rg_loop_options *o = &l->options;

    return rg_member_init(&l->member, runner, &(rg_member_options){ .max_seqs = o->max_seqs,
                                                                   .vocab_size = runner->vocab_size,
                                                                   .max_seq_len = o->max_seq_len,
                                                                   .use_prefixes = o->use_prefixes,
                                                                   .durable = o->durable,
                                                                   .trees = o->drafter,
                                                                   .judge = rg_loop_fixes_drafts(o) }, err);
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

/* Called by the thread that reads files of prefixes. */
static void has_arrived(void *arg)
{
    rg_loop *l = arg;
    rg_host *host;

    pthread_mutex_lock(&l->lock);
    host = l->host;
    pthread_mutex_unlock(&l->lock);
    if (host)
        rg_host_wake(host);
}

rg_loop *rg_loop_new(rg_runner *runner, const rg_loop_options *options, rg_error *err)
{
    rg_loop *l;

    if (!check_options(runner, options, err))
        return NULL;
    l = rg_zalloc(sizeof *l);
    if (!l)
        return rg_fail_memory(err, sizeof *l), NULL;
    l->options = *options;
    l->inbox_end = &l->inbox;
    l->restoring_end = &l->restoring;
    rg_step_time_init(&l->time, &runner->facts, &options->roofs);
    rg_admission_init(&l->admission, &(rg_admission_limits){ .max_waiting = options->max_waiting,
                                                             .max_wait_s = options->max_wait_s,
                                                             .first_ids_s = expected_ids_s(l) });
    l->lock_made = !pthread_mutex_init(&l->lock, NULL);
    l->stepped_made = rg_cond_init(&l->stepped);
    if (!l->lock_made || !l->stepped_made) {
        rg_fail_memory(err, 0);
        goto fail;
    }
    if (!make_member(l, runner, err))
        goto fail;
    runner->is_renewed = true; /* see recover */
    l->scheduler = rg_scheduler_new(l->member.states, &l->admission, &l->time, &l->options, err);
    if (!l->scheduler || !make_arrays(l, err))
        goto fail;
    if (options->durable)
        rg_durable_on_ready(options->durable, has_arrived, l);
    return l;

fail:
    rg_loop_free(l);
    return NULL;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* True if the request joins the queue now, whatever files have of its prefix. */
static bool joins(rg_loop *l, rg_request *r)
{
    rg_restoring now;

    if (l->closing || atomic_load_explicit(&r->cancelled, memory_order_relaxed)) {
        if (r->turn.is_restoring)
            rg_states_forsake(l->member.states, r);
        return true;
    }
    if (r->turn.is_restored || r->turn.is_restoring)
        return r->turn.is_restored;
    now = rg_scheduler_restore(l->scheduler, r);
    r->turn.is_restoring = now == RG_RESTORE_BEGUN;
    return now == RG_RESTORE_NOTHING;
}

/* Move into the queue the requests whose prefix has been read from files, and the requests whose prefix no file has. */
static void join_restored(rg_loop *l)
{
    rg_request **at = &l->restoring, *r;

    while ((r = rg_states_restored(l->member.states)))
        r->turn.is_restored = true;
    while ((r = *at)) {
        if (!joins(l, r)) {
            at = &r->turn.next;
            continue;
        }
        *at = r->turn.next;
        r->turn.next = NULL;
        l->n_restoring--;
        l->n_restoring_ids -= r->params.n_prompt;
        rg_scheduler_add(l->scheduler, r);
    }
    l->restoring_end = at;
}

/* Requests that were held go on. */
static void take_returned(rg_loop *l)
{
    rg_request *r, *next;

    pthread_mutex_lock(&l->lock);
    r = l->returned;
    l->returned = NULL;
    pthread_mutex_unlock(&l->lock);
    for (; r; r = next) {
        next = r->turn.next;
        r->turn.next = NULL;
        rg_scheduler_return(l->scheduler, r);
    }
}

/* Move submitted requests into the queue, or into the list of requests that wait for files. */
static void admit(rg_loop *l)
{
    rg_request *r, *next;

    take_returned(l);
    if (l->restoring)
        join_restored(l);
    pthread_mutex_lock(&l->lock);
    if (l->change && !l->closing) { /* they wait until it is made */
        pthread_mutex_unlock(&l->lock);
        return;
    }
    r = l->inbox;
    l->inbox = NULL;
    l->inbox_end = &l->inbox;
    l->n_waiting += l->n_inbox;
    l->n_waiting_ids += l->n_inbox_ids;
    l->n_inbox = 0;
    l->n_inbox_ids = 0;
    pthread_mutex_unlock(&l->lock);
    for (; r && !l->options.durable; r = next) {
        next = r->turn.next;
        r->turn.next = NULL;
        rg_scheduler_add(l->scheduler, r);
    }
    for (*l->restoring_end = r; r; r = r->turn.next) {
        l->restoring_end = &r->turn.next;
        l->n_restoring++;
        l->n_restoring_ids += r->params.n_prompt;
    }
    if (l->restoring)
        join_restored(l);
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

/* What others may see of a turn. */
static void publish(rg_loop *l, bool stepped)
{
    rg_scheduler *s = l->scheduler;
    rg_stats *t = &l->stats;

    pthread_mutex_lock(&l->lock);
    l->n_waiting = rg_scheduler_n_waiting(s) + l->n_restoring;
    l->n_waiting_ids = rg_scheduler_n_waiting_ids(s) + l->n_restoring_ids;
    t->n_preempted = rg_scheduler_n_preempted(s);
    t->n_swapped = rg_scheduler_n_swapped(s);
    t->n_recomputed = rg_scheduler_n_recomputed(s);
    t->n_cached_rows = rg_scheduler_n_cached(s);
    t->n_prompt_rows = rg_scheduler_n_prompt_rows(s);
    t->n_running = rg_scheduler_n_running(s);
    rg_states_bytes(l->member.states, &t->state_bytes, &t->state_used_bytes, &t->state_live_bytes);
    if (l->speculation)
        publish_drafts(t, rg_speculation_counts(l->speculation));
    if (stepped) {
        t->n_output += l->step.n_output;
        t->last_step_s = l->turn_s;
        t->busy_s += l->turn_s;
    }
    rg_admission_note_step(&l->admission, stepped ? l->turn_s : 0, rg_scheduler_some_wait(s));
    l->n_commits++;
    if (l->n_watching)
        pthread_cond_broadcast(&l->stepped);
    pthread_mutex_unlock(&l->lock);
}

/* The state of all sequences is gone with ranks that had parts of it.  What has been drawn stays: requests wait again,
 * and compute the same state anew, once there are ranks. */
static void recover(rg_loop *l)
{
    pthread_mutex_lock(&l->lock);
    l->stats.n_rank_losses++;
    l->stats.ranks_restart = true;
    pthread_mutex_unlock(&l->lock);
    rg_scheduler_lose(l->scheduler);
    for (rg_request *r = l->restoring; r; r = r->turn.next) {
        if (r->turn.is_restoring)
            rg_states_forsake(l->member.states, r);
        r->turn.is_restoring = false;
    }
    rg_states_forget(l->member.states);
    l->member.runner->renew_state(l->member.runner);
    pthread_mutex_lock(&l->lock);
    l->stats.ranks_restart = false;
    pthread_mutex_unlock(&l->lock);
}

/* Requests that end now leave, and a turn begins.  False: nothing is to be computed; *left: something left. */
static bool begin_turn(rg_loop *l, bool *left)
{
    const bool lost = rg_runner_lost_state(l->member.runner);

    if (lost)
        recover(l);
    admit(l);
    *left = rg_scheduler_reap(l->scheduler, false) > 0 || lost;
    l->turn_s = 0;
    if (!rg_loop_next(l))
        return false;
    l->phase = RG_LOOP_DRAFTS;
    return true;
}

static void note_time(rg_loop *l, uint64_t start)
{
    l->turn_s += rg_seconds(start, rg_now_ns());
}

bool rg_loop_step(rg_loop *l)
{
    uint64_t start = rg_now_ns();
    bool left;

    if (l->phase == RG_LOOP_BEGINS && !begin_turn(l, &left)) {
        if (left)
            publish(l, false);
        return left;
    }
    if (rg_speculation_step(l->speculation)) {
        note_time(l, start);
        return true;
    }
    if (l->phase == RG_LOOP_DRAFTS) {
        rg_loop_lay_out(l);
        if (rg_loop_forward(l))
            rg_loop_commit(l);
        else
            rg_loop_undo(l);
        l->phase = RG_LOOP_LEARNS;
    }
    note_time(l, start);
    if (rg_speculation_is_at_work(l->speculation))
        return true;
    rg_loop_end_turn(l);
    l->phase = RG_LOOP_BEGINS;
    publish(l, true);
    return true;
}

/* ---- its host ---------------------------------------------------------------------------------------------------- */

void rg_loop_join(rg_loop *l, rg_host *h, rg_shares *tenants)
{
    pthread_mutex_lock(&l->lock);
    l->host = h;
    pthread_mutex_unlock(&l->lock);
    l->tenants = tenants;
    rg_scheduler_join(l->scheduler, tenants);
}

void rg_loop_claim(rg_loop *l, bool in_full)
{
    const rg_scheduler *s = l->scheduler;
    rg_turn_claim *c = &l->claim;

    if (l->phase == RG_LOOP_BEGINS)
        admit(l);
    c->wants = l->phase != RG_LOOP_BEGINS || rg_scheduler_n_running(s) || rg_scheduler_n_waiting(s);
    if (!in_full || !c->wants)
        return;
    c->served = rg_scheduler_least_served(s);
    c->deadline_ns = rg_scheduler_first_deadline(s);
}

/* Change the weights.  No request runs, and new ones wait.  State that the old weights made is forgotten, so that no
 * prefix of it is found afterwards. */
static void make_change(rg_loop *l)
{
    l->change(l->change_arg);
    rg_states_forget(l->member.states);
    pthread_mutex_lock(&l->lock);
    l->change = NULL;
    l->changing = false;
    l->stats.n_updates++;
    pthread_cond_broadcast(&l->stepped);
    pthread_mutex_unlock(&l->lock);
}

void rg_loop_check_wanted(rg_loop *l)
{
    if (l->phase != RG_LOOP_BEGINS)
        return;
    pthread_mutex_lock(&l->lock);
    if (l->check_wanted) {
        rg_loop_check(l);
        l->check_wanted = false;
        pthread_cond_broadcast(&l->stepped);
    }
    bool change = l->change && !rg_scheduler_n_running(l->scheduler) && !rg_scheduler_n_waiting(l->scheduler) &&
                  !rg_scheduler_n_held(l->scheduler) && !l->restoring;
    l->changing = change;
    pthread_mutex_unlock(&l->lock);
    if (change)
        make_change(l);
}

void rg_loop_end(rg_loop *l)
{
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    l->host = NULL;
    pthread_cond_broadcast(&l->stepped);
    pthread_mutex_unlock(&l->lock);
    while (l->phase != RG_LOOP_BEGINS)
        rg_loop_step(l);
    if (!l->scheduler)
        return;
    admit(l);
    rg_scheduler_reap(l->scheduler, true);
}

void rg_loop_free(rg_loop *l)
{
    if (!l)
        return;
    if (l->options.durable)
        rg_durable_on_ready(l->options.durable, NULL, NULL);
    if (l->host)
        rg_host_remove(l->host, l);
    else if (l->lock_made && l->stepped_made)
        rg_loop_end(l);
    rg_scheduler_free(l->scheduler);
    rg_speculation_free(l->speculation);
    rg_member_fini(&l->member);
    rg_free(l->step.plan);
    rg_free(l->step.drawn);
    rg_free(l->step.judged);
    rg_free(l->step.in_turn);
    rg_free(l->step.mu);
    rg_free(l->step.n_in_turn);
    if (l->stepped_made)
        pthread_cond_destroy(&l->stepped);
    if (l->lock_made)
        pthread_mutex_destroy(&l->lock);
    rg_free(l);
}
