/* link.c -- ranks of one host: a shared segment, and processes made by fork.
 *
 * Counters only rise.  `arrived` of a rank is the number of exchanges whose slot it has filled, so it has read all
 * slots of the one before.  A sleeper raises `sleepers` and then reads the counter, which the kernel reads once more;
 * who raises the counter reads `sleepers` afterwards.  All of that is sequentially consistent, so one of them sees the
 * other. */
#define _GNU_SOURCE
#include "ops/ranks/link.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/thread.h"
#include "ops/ranks/inner.h"

enum {
    SPIN = 4000,              /* pauses before a sleep */
    CHECK_NS = 100 * 1000000, /* a sleeper looks after the others so often */
};

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* A rank is gone: rank 0 says so, and all end.  There is nothing to go on with: each has a part of every weight. */
static void end_all(rg_host_link *l, int rank, int status)
{
    char how[64] = "";

    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, " by signal %d", WTERMSIG(status));
    fprintf(stderr,
            "ridge: rank %d of %d (process %d) has ended%s: a model on ranks cannot go on without one of them; "
            "start ridge again\n",
            rank, l->base.n, (int)l->pid[rank], how);
    for (int r = 1; r < l->base.n; r++)
        if (r != rank && l->pid[r] > 0)
            kill(l->pid[r], SIGKILL);
    _exit(1);
}

/* Ranks of this host that ended: rank 0 looks at its children; the others end with it. */
static void check_ranks(rg_host_link *l)
{
    int status = 0;

    if (l->base.rank)
        return;
    for (int r = 1; r < l->base.n; r++)
        if (l->pid[r] > 0 && waitpid(l->pid[r], &status, WNOHANG) == l->pid[r])
            end_all(l, r, status);
}

static bool has_come(uint32_t now, uint32_t wanted)
{
    return (int32_t)(now - wanted) >= 0;
}

void rg_counter_wait(rg_host_link *l, rg_link_counter *c, uint32_t wanted)
{
    const struct timespec patience = { .tv_nsec = CHECK_NS };

    for (int i = 0; i < SPIN; i++) {
        if (has_come(atomic_load_explicit(&c->n, memory_order_acquire), wanted))
            return;
        rg_thread_pause();
    }
    atomic_fetch_add(&c->sleepers, 1);
    for (uint32_t now; !has_come(now = atomic_load(&c->n), wanted);)
        if (syscall(SYS_futex, &c->n, FUTEX_WAIT, now, &patience, NULL, 0) && errno == ETIMEDOUT)
            check_ranks(l);
    atomic_fetch_sub(&c->sleepers, 1);
}

void rg_counter_raise(rg_link_counter *c)
{
    atomic_fetch_add(&c->n, 1);
    if (atomic_load(&c->sleepers))
        syscall(SYS_futex, &c->n, FUTEX_WAKE, RG_MAX_RANKS, NULL, NULL, 0);
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

static uint8_t *slot_at(const rg_host_link *l, uint32_t exchange, int rank)
{
    const size_t at = (size_t)(exchange % 2) * (size_t)l->base.n + (size_t)rank;

    return l->slots + at * RG_LINK_SLOT;
}

void *rg_link_slot(rg_link *link)
{
    rg_host_link *l = (rg_host_link *)link;

    for (int r = 0; r < link->n; r++) /* all have read what this slot held: they have filled the other one */
        if (l->is_here[r] && l->n_done)
            rg_counter_wait(l, &l->segment->arrived[r], l->n_done);
    return slot_at(l, l->n_done, link->rank);
}

static void sleep_ns(uint64_t ns)
{
    struct timespec left = { .tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000) };

    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

void rg_link_exchange(rg_link *link, rg_link_way way, size_t bytes)
{
    rg_host_link *l = (rg_host_link *)link;
    const uint32_t wanted = l->n_done + 1;
    const bool reads = way == RG_LINK_ALL || (way == RG_LINK_TO_ZERO) == !link->rank;

    RG_ASSERT(bytes <= RG_LINK_SLOT);
    if (link->delay_ns)
        sleep_ns(link->delay_ns);
    rg_counter_raise(&l->segment->arrived[link->rank]);
    if (l->carry)
        l->carry(l, way, bytes);
    for (int r = 0; r < link->n && reads; r++)
        if (l->is_here[r] && (way != RG_LINK_FROM_ZERO || !r))
            rg_counter_wait(l, &l->segment->arrived[r], wanted);
    l->n_done = wanted;
}

const void *rg_link_of(const rg_link *link, int rank)
{
    const rg_host_link *l = (const rg_host_link *)link;

    return slot_at(l, l->n_done - 1, rank);
}

rg_link rg_link_alone(int rank, int n)
{
    return (rg_link){ .rank = rank, .n = n };
}

/* ---- processes --------------------------------------------------------------------------------------------------- */

static size_t segment_bytes(int n)
{
    return sizeof(rg_link_segment) + 2 * (size_t)n * RG_LINK_SLOT;
}

/* Pages that nobody writes take no memory. */
static bool map_segment(rg_host_link *l, rg_error *err)
{
    void *p =
        mmap(NULL, segment_bytes(l->base.n), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return rg_fail_memory(err, segment_bytes(l->base.n));
    l->segment = p;
    l->slots = (uint8_t *)p + sizeof(rg_link_segment);
    return true;
}

/* Another rank's process: what a person types at the terminal is for rank 0, with which it ends. */
_Noreturn static void be_rank(rg_host_link *l, int rank, pid_t parent, void (*follow)(rg_link *, void *), void *arg)
{
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before that */
        _exit(1);
    for (size_t i = 0; i < RG_LEN(ignored); i++)
        signal(ignored[i], SIG_IGN);
    l->base.rank = rank;
    rg_cores_share(rank, l->base.n);
    follow(&l->base, arg);
    _exit(0);
}

rg_link *rg_link_fork(int n, void (*follow)(rg_link *, void *), void *arg, rg_error *err)
{
    const pid_t parent = getpid();
    rg_host_link *l;

    if (n < 2 || n > RG_MAX_RANKS)
        return rg_fail(err, RG_E_USAGE, "%d ranks: want 2 to %d", n, RG_MAX_RANKS), NULL;
    l = rg_zalloc(sizeof *l);
    if (!l)
        return rg_fail_memory(err, sizeof *l), NULL;
    l->base.n = l->base.n_here = n;
    if (!map_segment(l, err)) {
        rg_free(l);
        return NULL;
    }
    memset(l->is_here, true, (size_t)n);
    fflush(NULL); /* what is buffered would come out of each process */
    for (int r = 1; r < n; r++) {
        const pid_t pid = fork();

        if (pid == 0)
            be_rank(l, r, parent, follow, arg);
        if (pid < 0) {
            rg_fail(err, RG_E_IO, "cannot start the process of rank %d of %d: %s", r, n, strerror(errno));
            for (int k = 1; k < r; k++)
                kill(l->pid[k], SIGKILL);
            rg_link_close(&l->base);
            return NULL;
        }
        l->pid[r] = pid;
    }
    rg_cores_share(0, n);
    return &l->base;
}

void rg_link_close(rg_link *link)
{
    rg_host_link *l = (rg_host_link *)link;

    if (!l)
        return;
    for (int r = 1; r < link->n; r++)
        while (l->pid[r] > 0 && waitpid(l->pid[r], NULL, 0) < 0 && errno == EINTR)
            ;
    munmap(l->segment, segment_bytes(link->n));
    rg_free(l);
}
