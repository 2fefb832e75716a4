/* pool.c -- worker threads that sleep between runs and share a run's phases by an atomic counter and a barrier.
 *
 * Each worker has a word of its own to wait on, so that a run of n threads wakes n - 1 workers and no others.  Waiting
 * inside a run spins a bounded number of times and then sleeps: on a shared machine another thread of the run may have
 * lost its core, and may need the core of the thread that waits.  Waiting does not yield: a yield gives the whole time
 * slice to another process, so that on a busy machine every phase would cost a slice.
 *
 * The chunk counter.  A thread's first chunk of a phase is its own number, which costs nothing and is the same in every
 * step; the counter gives out those behind, while there are many several side by side, fewer and fewer of them ("guided
 * self-scheduling", Polychronopoulos and Kuck 1987): threads write to the counter seldom, walk rows in their order, and
 * still end together.  One counter serves all phases: a thread takes in phase p only before it
 * arrives at p's barrier, and the last to arrive zeroes the counter before it opens the gate; at that moment every
 * thread has arrived and none has left, so no thread takes a chunk.  The gate's release store and acquire loads order
 * the zero before the first take of phase p + 1.
 *
 * The barrier is a tree: threads arrive at a counter that FAN of them share, the last of those at one that FAN counters
 * share, and so on, so that no cache line is written by more than FAN threads.  Up to FAN threads it is one counter. */
#include "base/pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

enum {
    SPIN = 2000,     /* pauses before a sleep: tens of microseconds, a small phase's length */
    SPIN_IDLE = 500, /* before an idle worker sleeps: runs that follow at once find it awake */
    MAX_THREADS = 4096,
    FAN = 8,      /* threads that share a counter of the barrier */
    TURNS = 4,    /* a thread takes what would be its share if each took so many times more, */
    AT_ONCE = 32, /* or so many chunks */
};

/* Threads, or counters of the level below, that have arrived. */
typedef struct node {
    _Alignas(RG_ALIGN) _Atomic uint32_t arrived;
} node;

typedef struct worker {
    _Alignas(RG_ALIGN) _Atomic uint32_t go; /* runs asked of this worker so far */
    atomic_bool asleep;
    rg_pool *pool;
    int thread;
    pthread_t id;
    pthread_mutex_t lock;
    pthread_cond_t wake;
} worker;

struct rg_pool {
    int n_threads, n_workers; /* n_workers: started ones, n_threads - 1 once built */
    worker *workers;
    node *nodes; /* the barrier: for each level from the threads up, a node for each FAN below */
    /* The run: written by the caller before `go`, read by the workers after it. */
    void (*fn)(void *arg, int thread); /* NULL: end the thread */
    void *arg;
    int n_active;
    bool pin;
    atomic_bool running;

    _Alignas(RG_ALIGN) _Atomic uint32_t next;    /* chunks of the current phase given out by the counter */
    _Alignas(RG_ALIGN) _Atomic uint32_t gate;    /* phases ended */
    _Alignas(RG_ALIGN) _Atomic uint32_t left;    /* workers still in fn */
    _Alignas(RG_ALIGN) _Atomic uint32_t n_asleep; /* threads that sleep until gate or left changes */
};

/* Where the calling thread stands within a run. */
typedef struct standing {
    int thread;
    uint32_t phases; /* in which it took its first chunk: it does so in one phase after the other */
    int own, end;    /* chunks [own, end) of this phase, which it has taken and not yet begun */
} standing;

static _Thread_local standing self;
static _Thread_local bool is_pinned;

static void run_as(rg_pool *p, int thread)
{
    if (p->pin && !is_pinned) {
        rg_core_bind(thread, p->n_threads);
        is_pinned = true;
    }
    self = (standing){ .thread = thread };
    p->fn(p->arg, thread);
}

/* Sleep until *word, the pool's gate or left, is no longer `was`.  The sleeper raises n_asleep and then reads the word,
 * which the kernel reads once more; the thread that changes the word reads n_asleep afterwards.  All are sequentially
 * consistent, so at least one of the two sees the other. */
static void wait_while(rg_pool *p, _Atomic uint32_t *word, uint32_t was)
{
    for (int i = 0; i < SPIN; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != was)
            return;
        rg_thread_pause();
    }
    atomic_fetch_add(&p->n_asleep, 1);
    while (atomic_load(word) == was)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, was, NULL, NULL, 0);
    atomic_fetch_sub(&p->n_asleep, 1);
}

/* Wake the sleepers after *word was changed. */
static void wake_all(rg_pool *p, _Atomic uint32_t *word)
{
    if (atomic_load(&p->n_asleep))
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, MAX_THREADS, NULL, NULL, 0);
}

/* Sleep until w->go differs from `seen`.  The sleeper sets asleep and then reads go; the waker sets go and then reads
 * asleep.  All are sequentially consistent, so at least one of the two sees the other. */
static void wait_for_work(worker *w, uint32_t seen)
{
    for (int i = 0; i < SPIN_IDLE; i++) {
        if (atomic_load_explicit(&w->go, memory_order_acquire) != seen)
            return;
        rg_thread_pause();
    }
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->asleep, true);
    while (atomic_load(&w->go) == seen)
        pthread_cond_wait(&w->wake, &w->lock);
    atomic_store(&w->asleep, false);
    pthread_mutex_unlock(&w->lock);
}

static void start_worker(worker *w)
{
    atomic_fetch_add(&w->go, 1);
    if (!atomic_load(&w->asleep))
        return;
    pthread_mutex_lock(&w->lock);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

static void *worker_main(void *arg)
{
    worker *w = arg;
    rg_pool *p = w->pool;

    for (uint32_t seen = 0;; seen++) {
        wait_for_work(w, seen);
        if (!p->fn)
            return NULL;
        run_as(p, w->thread);
        atomic_fetch_sub(&p->left, 1);
        wake_all(p, &p->left);
    }
}

/* False: nothing of this worker is left. */
static bool worker_start(rg_pool *p, worker *w, int thread)
{
    w->pool = p;
    w->thread = thread;
    if (pthread_mutex_init(&w->lock, NULL))
        return false;
    if (pthread_cond_init(&w->wake, NULL)) {
        pthread_mutex_destroy(&w->lock);
        return false;
    }
    if (!rg_thread_start(&w->id, worker_main, w)) {
        pthread_cond_destroy(&w->wake);
        pthread_mutex_destroy(&w->lock);
        return false;
    }
    return true;
}

static int nodes_over(int n)
{
    return (n + FAN - 1) / FAN;
}

/* Nodes of all levels over n threads. */
static size_t count_nodes(int n)
{
    size_t all = 0;

    do {
        n = nodes_over(n);
        all += (size_t)n;
    } while (n > 1);
    return all;
}

rg_pool *rg_pool_new(int n_threads, rg_error *err)
{
    rg_pool *p;

    if (n_threads < 1 || n_threads > MAX_THREADS)
        return rg_fail(err, RG_E_USAGE, "%d threads: want 1 to %d", n_threads, MAX_THREADS), NULL;
    p = rg_zalloc(sizeof *p);
    if (!p)
        return rg_fail_memory(err, sizeof *p), NULL;
    p->n_threads = n_threads;
    p->workers = rg_array((size_t)n_threads, sizeof *p->workers);
    p->nodes = rg_array(count_nodes(n_threads), sizeof *p->nodes);
    if (!p->workers || !p->nodes) {
        rg_fail_memory(err, (size_t)n_threads * sizeof *p->workers);
        goto fail;
    }
    for (int i = 1; i < n_threads; i++) {
        if (!worker_start(p, &p->workers[i - 1], i)) {
            rg_fail(err, RG_E_IO, "cannot start thread %d of %d", i + 1, n_threads);
            goto fail;
        }
        p->n_workers++;
    }
    return p;

fail:
    rg_pool_free(p);
    return NULL;
}

void rg_pool_free(rg_pool *p)
{
    if (!p)
        return;
    p->fn = NULL;
    for (int i = 0; i < p->n_workers; i++)
        start_worker(&p->workers[i]);
    for (int i = 0; i < p->n_workers; i++) {
        pthread_join(p->workers[i].id, NULL);
        pthread_cond_destroy(&p->workers[i].wake);
        pthread_mutex_destroy(&p->workers[i].lock);
    }
    rg_free(p->nodes);
    rg_free(p->workers);
    rg_free(p);
}

int rg_pool_threads(const rg_pool *p)
{
    return p->n_threads;
}

void rg_pool_pin(rg_pool *p)
{
    p->pin = true;
}

void rg_pool_run(rg_pool *p, int n, void (*fn)(void *arg, int thread), void *arg)
{
    const standing before = self; /* the caller may be within a run of another pool */
    uint32_t left;

    RG_ASSERT(n >= 1 && n <= p->n_threads && fn);
    RG_ASSERT(!atomic_exchange(&p->running, true)); /* two runs would take each other's chunks */
    p->fn = fn;
    p->arg = arg;
    p->n_active = n;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->gate, 0, memory_order_relaxed);
    atomic_store_explicit(&p->left, (uint32_t)n - 1, memory_order_relaxed);
    for (int i = 1; i < n; i++)
        start_worker(&p->workers[i - 1]);
    run_as(p, 0);
    self = before;
    while ((left = atomic_load_explicit(&p->left, memory_order_acquire)) != 0)
        wait_while(p, &p->left, left);
    atomic_store(&p->running, false);
}

/* The next of n chunks behind the threads' first ones, or -1.  A thread that only learns that there are none writes
 * nothing, so that many threads can learn it at once. */
static int take_behind(rg_pool *p, int n)
{
    int left, some;

    if (self.own < self.end)
        return self.own++;
    if (n <= p->n_active)
        return -1;
    left = n - p->n_active - (int)atomic_load_explicit(&p->next, memory_order_relaxed);
    if (left <= 0)
        return -1;
    some = left / (p->n_active * TURNS);
    some = some < 1 ? 1 : some > AT_ONCE ? AT_ONCE : some;
    self.own = p->n_active + (int)atomic_fetch_add_explicit(&p->next, (uint32_t)some, memory_order_relaxed);
    self.end = self.own + some < n ? self.own + some : n;
    return self.own < self.end ? self.own++ : -1;
}

int rg_phase_take(rg_pool *p, uint32_t phase, int n)
{
#ifdef RG_DEBUG
    RG_ASSERT(atomic_load_explicit(&p->gate, memory_order_relaxed) == phase);
#endif
    if (self.phases <= phase) {
        self.phases = phase + 1;
        self.own = self.end = 0;
        return self.thread < n ? self.thread : -1;
    }
    return take_behind(p, n);
}

int rg_phase_likely(const rg_pool *p, int c)
{
    return self.own < self.end ? self.own : c + p->n_active;
}

/* When the last has arrived, all counters of the tree are 0 again. */
bool rg_phase_arrive(rg_pool *p)
{
    node *level = p->nodes;
    uint32_t i = (uint32_t)self.thread, n = (uint32_t)p->n_active;

    if (n == 1)
        return true;
    for (;;) {
        uint32_t at = i / FAN, below = n - at * FAN < FAN ? n - at * FAN : FAN;

        if (atomic_fetch_add_explicit(&level[at].arrived, 1, memory_order_acq_rel) + 1 < below)
            return false;
        atomic_store_explicit(&level[at].arrived, 0, memory_order_relaxed);
        n = (n + FAN - 1) / FAN;
        if (n == 1)
            return true;
        level += n;
        i = at;
    }
}

void rg_phase_open(rg_pool *p, uint32_t *phase)
{
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store(&p->gate, ++*phase);
    wake_all(p, &p->gate);
}

void rg_phase_wait(rg_pool *p, uint32_t *phase)
{
    wait_while(p, &p->gate, *phase);
    ++*phase;
}

void rg_phase_end(rg_pool *p, uint32_t *phase)
{
    if (rg_phase_arrive(p))
        rg_phase_open(p, phase);
    else
        rg_phase_wait(p, phase);
}
