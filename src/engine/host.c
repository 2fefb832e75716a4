/* host.c -- see host.h.
 *
 * The thread looks after guests between two steps: whoever wants to change what the host has (guest) waits until the
 * thread stands still there, does it, and lets the thread go on. */
#include "engine/host.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "engine/loop_inner.h"

struct rg_host {
    pthread_t thread;
    bool started;
    rg_pool *pool;
    uint64_t memory_bytes;  /* 0: no limit */
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake;    /* of the thread; */
    pthread_cond_t changed; /*   of guests: it stands still, or a guest has left */
    bool lock_made, wake_made, changed_made;
    bool closing, still;    /* still: the thread waits for guests to leave */
    int n_guests;
    uint64_t n_calls;       /* of rg_host_wake */
    uint64_t taken_bytes;   /* of memory_bytes */
    /* The thread's, and while it stands still the guest's. */
    rg_loop **loops;        /* [room] n_loops of them */
    rg_turn_claim **claims; /* [room] those of the loops */
    int n_loops, room;
    rg_shares tenants;      /* of all loops */
};

/* ---- turns ------------------------------------------------------------------------------------------------------- */

/* A step of whoever's turn it is.  False: nobody has anything to do. */
static bool step(rg_host *h)
{
    int next;

    for (int i = 0; i < h->n_loops; i++)
        rg_loop_claim(h->loops[i], h->n_loops > 1);
    next = rg_turns_next(h->claims, h->n_loops);
    if (next < 0)
        return false;
    uint64_t start = rg_now_ns();
    bool stepped = rg_loop_step(h->loops[next]);
    rg_turns_took(h->claims[next], rg_seconds(start, rg_now_ns()));
    return stepped;
}

/* Under the lock: let guests do what they want, and sleep while nothing is to be done.  *seen: calls so far. */
static void stand_still(rg_host *h, bool busy, uint64_t *seen)
{
    while (h->n_guests || (!busy && !h->closing && h->n_calls == *seen)) {
        h->still = h->n_guests > 0;
        if (h->still)
            pthread_cond_broadcast(&h->changed);
        pthread_cond_wait(&h->wake, &h->lock);
    }
    h->still = false;
    *seen = h->n_calls;
}

static void *run(void *arg)
{
    rg_host *h = arg;
    uint64_t seen = 0;
    bool busy = true, closing;

    for (;;) {
        pthread_mutex_lock(&h->lock);
        stand_still(h, busy, &seen);
        closing = h->closing;
        pthread_mutex_unlock(&h->lock);
        if (closing)
            return NULL;
        for (int i = 0; i < h->n_loops; i++)
            rg_loop_check_wanted(h->loops[i]);
        busy = step(h);
#ifdef RG_DEBUG
        for (int i = 0; i < h->n_loops && !busy; i++)
            rg_loop_check(h->loops[i]);
#endif
    }
}

void rg_host_wake(rg_host *h)
{
    pthread_mutex_lock(&h->lock);
    h->n_calls++;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
}

/* ---- its memory -------------------------------------------------------------------------------------------------- */

rg_pool *rg_host_pool(rg_host *h)
{
    return h->pool;
}

bool rg_host_take(rg_host *h, uint64_t bytes, const char *what, rg_error *err)
{
    uint64_t left;

    pthread_mutex_lock(&h->lock);
    left = h->memory_bytes - h->taken_bytes;
    bool ok = !h->memory_bytes || bytes <= left;
    h->taken_bytes += ok && h->memory_bytes ? bytes : 0;
    pthread_mutex_unlock(&h->lock);
    return ok || rg_fail(err, RG_E_LIMIT, "%s: %llu bytes of memory are needed, and of the %llu for all models %llu "
                         "are left", what, (unsigned long long)bytes, (unsigned long long)h->memory_bytes,
                         (unsigned long long)left);
}

void rg_host_give(rg_host *h, uint64_t bytes)
{
    pthread_mutex_lock(&h->lock);
    h->taken_bytes -= h->memory_bytes ? bytes : 0;
    pthread_mutex_unlock(&h->lock);
}

uint64_t rg_host_left(rg_host *h)
{
    uint64_t left;

    pthread_mutex_lock(&h->lock);
    left = h->memory_bytes ? h->memory_bytes - h->taken_bytes : UINT64_MAX;
    pthread_mutex_unlock(&h->lock);
    return left;
}

/* ---- guests ------------------------------------------------------------------------------------------------------ */

/* Returns with the lock held, once the thread stands still. */
static void enter(rg_host *h)
{
    pthread_mutex_lock(&h->lock);
    h->n_guests++;
    pthread_cond_signal(&h->wake);
    while (!h->still)
        pthread_cond_wait(&h->changed, &h->lock);
}

static void leave(rg_host *h)
{
    h->n_guests--;
    h->n_calls++;
    pthread_cond_signal(&h->wake);
    pthread_mutex_unlock(&h->lock);
}

/* For one loop more. */
static bool make_room(rg_host *h, const rg_loop *l, rg_error *err)
{
    const int n = h->n_loops + 1;
    int32_t tenants = rg_scheduler_most_tenants(l->scheduler);

    if (n > h->room) {
        rg_loop **loops = rg_array((size_t)n, sizeof(rg_loop *));
        rg_turn_claim **claims = rg_array((size_t)n, sizeof(rg_turn_claim *));

        if (!loops || !claims) {
            rg_free(loops);
            rg_free(claims);
            return rg_fail_memory(err, (size_t)n * 2 * sizeof(rg_loop *));
        }
        for (int i = 0; i < h->n_loops; i++) {
            loops[i] = h->loops[i];
            claims[i] = h->claims[i];
        }
        rg_free(h->loops);
        rg_free(h->claims);
        h->loops = loops;
        h->claims = claims;
        h->room = n;
    }
    for (int i = 0; i < h->n_loops; i++)
        tenants += rg_scheduler_most_tenants(h->loops[i]->scheduler);
    return rg_shares_reserve(&h->tenants, tenants, err);
}

bool rg_host_add(rg_host *h, rg_loop *l, rg_error *err)
{
    enter(h);
    bool ok = make_room(h, l, err);
    if (ok) {
        h->loops[h->n_loops] = l;
        h->claims[h->n_loops++] = &l->claim;
        rg_loop_join(l, h, &h->tenants);
    }
    leave(h);
    return ok;
}

void rg_host_remove(rg_host *h, rg_loop *l)
{
    int at = 0;

    enter(h);
    while (h->loops[at] != l)
        at++;
    rg_loop_end(l);
    h->loops[at] = h->loops[--h->n_loops];
    h->claims[at] = h->claims[h->n_loops];
    leave(h);
}

/* ---- the host ---------------------------------------------------------------------------------------------------- */

rg_host *rg_host_new(int n_threads, uint64_t memory_bytes, rg_error *err)
{
    rg_host *h = rg_zalloc(sizeof *h);

    if (!h)
        return rg_fail_memory(err, sizeof *h), NULL;
    h->memory_bytes = memory_bytes;
    h->lock_made = !pthread_mutex_init(&h->lock, NULL);
    h->wake_made = !pthread_cond_init(&h->wake, NULL);
    h->changed_made = !pthread_cond_init(&h->changed, NULL);
    if (!h->lock_made || !h->wake_made || !h->changed_made)
        rg_fail_memory(err, 0);
    else if ((h->pool = rg_pool_new(n_threads, err)) && !(h->started = rg_thread_start(&h->thread, run, h)))
        rg_fail(err, RG_E_IO, "cannot start the engine's thread");
    if (h->started)
        return h;
    rg_host_free(h);
    return NULL;
}

void rg_host_free(rg_host *h)
{
    if (!h)
        return;
    if (h->started) {
        pthread_mutex_lock(&h->lock);
        h->closing = true;
        pthread_cond_signal(&h->wake);
        pthread_mutex_unlock(&h->lock);
        pthread_join(h->thread, NULL);
    }
    RG_ASSERT(!h->n_loops);
    rg_free(h->loops);
    rg_free(h->claims);
    rg_shares_fini(&h->tenants);
    rg_pool_free(h->pool);
    if (h->changed_made)
        pthread_cond_destroy(&h->changed);
    if (h->wake_made)
        pthread_cond_destroy(&h->wake);
    if (h->lock_made)
        pthread_mutex_destroy(&h->lock);
    rg_free(h);
}
