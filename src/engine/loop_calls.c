/* loop_calls.c -- what other threads ask of the loop: to take a request, to wait, how it stands; and what tests ask. */
#include <math.h>
#include <time.h>

#include "base/clock.h"
#include "engine/host.h"
#include "engine/loop_inner.h"

enum { MAX_RETRY_S = 600 };

bool rg_loop_submit(rg_loop *l, rg_request *r, rg_error *err)
{
    const rg_work_room most = r->work->most(r);
    int64_t n_ids = r->params.n_prompt, most_ids = r->params.background ? 0 : l->options.max_waiting_ids;
    double state = rg_states_share(l->member.states, most.n_positions, most.forks);
    rg_work_place where = { .states = l->member.states, .max_seqs = l->options.max_seqs,
                            .max_rows = l->member.runner->max_rows };
    rg_applicant who;
    rg_host *host = NULL;
    bool ok = false;

    if (r->work->fits && !r->work->fits(r, &where, state, err))
        return false;
    if (most.n_positions > l->options.max_seq_len || state > 1)
        return rg_work_no_room(r, err);
    pthread_mutex_lock(&l->lock);
    if (l->closing) {
        rg_fail(err, RG_E_BUSY, "the engine is closing");
    } else if (!rg_admission_has_room(&l->admission, r->who.tenant, r->params.background)) {
        rg_fail(err, RG_E_BUSY, "%d requests are waiting already", (int)(l->n_inbox + l->n_waiting));
    } else if (most_ids && atomic_load(&l->admission.n) && atomic_load(&l->admission.n_ids) + n_ids > most_ids) {
        rg_fail(err, RG_E_BUSY, "%lld prompt ids are waiting already", (long long)atomic_load(&l->admission.n_ids));
    } else {
        rg_request_ref(r);
        r->turn.state_part = (int32_t)(RG_ADMISSION_ALL_STATE * state);
        who = rg_request_applicant(r);
        rg_admission_join(&l->admission, &who);
        r->id = ++l->last_id;
        r->loop = l;
        atomic_store(&r->counts.submitted_ns, rg_now_ns());
        if (r->params.deadline_s > 0)
            r->who.deadline_ns =
                r->counts.submitted_ns + (uint64_t)(fmin(r->params.deadline_s, RG_LOOP_DEADLINE_MAX_S) * 1e9);
        r->turn.next = NULL;
        *l->inbox_end = r;
        l->inbox_end = &r->turn.next;
        l->n_inbox++;
        l->n_inbox_ids += n_ids;
        host = l->host;
        ok = true;
    }
    pthread_mutex_unlock(&l->lock);
    if (host)
        rg_host_wake(host);
    return ok;
}

void rg_loop_return(rg_loop *l, rg_request *r)
{
    rg_host *host;

    if (!atomic_exchange(&r->is_held, false))
        return;
    pthread_mutex_lock(&l->lock);
    r->turn.next = l->returned;
    l->returned = r;
    host = l->host;
    pthread_mutex_unlock(&l->lock);
    if (host)
        rg_host_wake(host);
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
    timeout_s = fmin(fmax(timeout_s, 0), RG_LOOP_DEADLINE_MAX_S);
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
    rg_host *host;

    pthread_mutex_lock(&l->lock);
    host = l->closing ? NULL : l->host;
    l->check_wanted = host;
    pthread_mutex_unlock(&l->lock);
    if (!host) {
        rg_loop_check(l);
        return;
    }
    rg_host_wake(host);
    pthread_mutex_lock(&l->lock);
    while (l->check_wanted && !l->closing)
        pthread_cond_wait(&l->stepped, &l->lock);
    pthread_mutex_unlock(&l->lock);
}

bool rg_loop_change(rg_loop *l, void (*change)(void *arg), void *arg, rg_error *err)
{
    rg_host *host;
    bool made;

    pthread_mutex_lock(&l->lock);
    host = l->closing ? NULL : l->host;
    if (host) {
        l->change_arg = arg;
        l->change = change;
    }
    pthread_mutex_unlock(&l->lock);
    if (!host)
        return rg_fail(err, RG_E_BUSY, "the engine is closing");
    rg_host_wake(host);
    pthread_mutex_lock(&l->lock);
    while (l->change && (!l->closing || l->changing))
        pthread_cond_wait(&l->stepped, &l->lock);
    made = !l->change;
    l->change = NULL;
    pthread_mutex_unlock(&l->lock);
    return made || rg_fail(err, RG_E_BUSY, "the engine is closing");
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
    rg_states_check(l->member.states);
}

/* ---- tests ------------------------------------------------------------------------------------------------------ */

bool rg_loop_preempt(rg_loop *l, int i, rg_preempt how)
{
    return rg_scheduler_preempt(l->scheduler, rg_scheduler_running(l->scheduler, i), how);
}

void rg_loop_set_budget(rg_loop *l, int32_t (*budget)(void *arg), void *arg)
{
    l->budget = budget;
    l->budget_arg = arg;
}
