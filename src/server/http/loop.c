/* loop.c -- threads that serve connections.  Each sleeps in epoll until bytes come, room to send is there, another
 * thread has handed something over, or a client's time is over. */
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/http/inner.h"

enum { N_EVENTS = 64 };

/* ---- what other threads hand over -------------------------------------------------------------------------------- */

void rg_http_loop_give(rg_http *h, rg_conn *c)
{
    rg_http_loop *l = &h->loops[0];

    for (int32_t i = 1; i < h->o.n_threads; i++)
        if (atomic_load(&h->loops[i].n_conns) < atomic_load(&l->n_conns))
            l = &h->loops[i];
    atomic_fetch_add(&l->n_conns, 1);
    pthread_mutex_lock(&l->lock);
    c->next = l->fresh;
    l->fresh = c;
    pthread_mutex_unlock(&l->lock);
    eventfd_write(l->wake, 1);
}

void rg_http_loop_wake(rg_exchange *x)
{
    rg_http_loop *l = x->loop;

    pthread_mutex_lock(&l->lock);
    bool first = !l->woken, add = !x->woken;
    if (add) {
        x->woken = true;
        x->prev_woken = NULL;
        x->next_woken = l->woken;
        if (l->woken)
            l->woken->prev_woken = x;
        l->woken = x;
    }
    pthread_mutex_unlock(&l->lock);
    if (first && add)
        eventfd_write(l->wake, 1);
}

/* Under l->lock. */
static void unlink_woken(rg_http_loop *l, rg_exchange *x)
{
    if (x->next_woken)
        x->next_woken->prev_woken = x->prev_woken;
    *(x->prev_woken ? &x->prev_woken->next_woken : &l->woken) = x->next_woken;
    x->woken = false;
}

void rg_http_loop_forget(rg_exchange *x)
{
    pthread_mutex_lock(&x->loop->lock);
    if (x->woken)
        unlink_woken(x->loop, x);
    pthread_mutex_unlock(&x->loop->lock);
}

static void take_fresh(rg_http_loop *l)
{
    pthread_mutex_lock(&l->lock);
    rg_conn *c = l->fresh;
    l->fresh = NULL;
    pthread_mutex_unlock(&l->lock);
    for (rg_conn *next; c; c = next) {
        next = c->next;
        rg_conn_begin(c, l);
    }
}

/* An exchange in the list has its connection, since it leaves the list before its connection leaves it. */
static void take_woken(rg_http_loop *l)
{
    for (;;) {
        pthread_mutex_lock(&l->lock);
        rg_exchange *x = l->woken;
        if (x)
            unlink_woken(l, x);
        pthread_mutex_unlock(&l->lock);
        if (!x)
            return;
        rg_conn_woken(x->conn);
    }
}

static bool is_stopped(rg_http_loop *l)
{
    pthread_mutex_lock(&l->lock);
    bool stops = l->stops;
    pthread_mutex_unlock(&l->lock);
    return stops;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

bool rg_http_loop_watch(rg_http_loop *l, rg_conn *c, unsigned events)
{
    struct epoll_event e = { .events = events, .data.ptr = c };
    bool fresh = !c->watched;

    if (!fresh && c->events == events)
        return true;
    if (epoll_ctl(l->epoll, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, c->fd, &e))
        return false;
    c->watched = true;
    c->events = events;
    return true;
}

void rg_http_loop_expect(rg_http_loop *l, uint64_t at_ns)
{
    l->look_ns = at_ns < l->look_ns ? at_ns : l->look_ns;
}

static void look(rg_http_loop *l, uint64_t now)
{
    uint64_t next_ns = UINT64_MAX;

    l->look_ns = UINT64_MAX;
    for (rg_conn *c = l->conns, *next; c; c = next) {
        next = c->next;
        uint64_t due = rg_conn_look(c, now);
        next_ns = due < next_ns ? due : next_ns;
    }
    rg_http_loop_expect(l, next_ns);
}

/* Milliseconds until it must look at its connections' times; -1: for ever. */
static int until_look(const rg_http_loop *l)
{
    uint64_t now = rg_now_ns();

    if (l->look_ns == UINT64_MAX)
        return -1;
    if (l->look_ns <= now)
        return 0;
    uint64_t ms = (l->look_ns - now) / 1000000 + 1;
    return ms < 60000 ? (int)ms : 60000;
}

static void *run(void *arg)
{
    rg_http_loop *l = arg;
    struct epoll_event e[N_EVENTS];
    eventfd_t handed;

    while (!is_stopped(l)) {
        int n = epoll_wait(l->epoll, e, N_EVENTS, until_look(l));

        for (int i = 0; i < n; i++) /* each connection is there once, and only its own event can end it here */
            if (e[i].data.ptr)
                rg_conn_event(e[i].data.ptr, e[i].events);
            else
                eventfd_read(l->wake, &handed);
        take_fresh(l);
        take_woken(l);
        uint64_t now = rg_now_ns();
        if (now >= l->look_ns)
            look(l, now);
    }
    take_fresh(l);
    while (l->conns)
        rg_conn_end(l->conns);
    return NULL;
}

/* ---- starting and stopping --------------------------------------------------------------------------------------- */

static bool start(rg_http_loop *l, rg_error *err)
{
    struct epoll_event e = { .events = EPOLLIN };

    l->look_ns = UINT64_MAX;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (l->epoll < 0 || l->wake < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake, &e))
        return rg_fail(err, RG_E_IO, "cannot serve: %s", strerror(errno));
    l->scratch = rg_alloc(RG_SCRATCH);
    if (!l->scratch)
        return rg_fail_memory(err, RG_SCRATCH);
    l->runs = rg_thread_start(&l->thread, run, l);
    return l->runs || rg_fail(err, RG_E_IO, "cannot serve: there is no thread for it");
}

bool rg_http_loops_start(rg_http *h, rg_error *err)
{
    h->loops = rg_array((size_t)h->o.n_threads, sizeof *h->loops);
    if (!h->loops)
        return rg_fail_memory(err, (size_t)h->o.n_threads * sizeof *h->loops);
    for (int32_t i = 0; i < h->o.n_threads; i++) {
        h->loops[i] = (rg_http_loop){ .http = h, .epoll = -1, .wake = -1 };
        pthread_mutex_init(&h->loops[i].lock, NULL);
    }
    for (int32_t i = 0; i < h->o.n_threads; i++)
        if (!start(&h->loops[i], err))
            return false;
    return true;
}

void rg_http_loops_stop(rg_http *h)
{
    for (int32_t i = 0; h->loops && i < h->o.n_threads; i++) {
        rg_http_loop *l = &h->loops[i];
        pthread_mutex_lock(&l->lock);
        l->stops = true;
        pthread_mutex_unlock(&l->lock);
        if (l->runs) {
            eventfd_write(l->wake, 1);
            pthread_join(l->thread, NULL);
        }
        if (l->epoll >= 0)
            close(l->epoll);
        if (l->wake >= 0)
            close(l->wake);
        pthread_mutex_destroy(&l->lock);
        rg_free(l->scratch);
    }
    rg_free(h->loops);
    h->loops = NULL;
}
