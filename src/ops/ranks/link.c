/* link.c -- ranks of one host: a shared segment, a keeper, and the processes that it forks.
 *
 * Counters only rise.  `arrived` of a rank is the number of exchanges whose slot it has filled, so it has read all
 * slots of the one before.  A sleeper raises `sleepers` and then reads the counter, which the kernel reads once more;
 * who raises the counter reads `sleepers` afterwards.  All of that is sequentially consistent, so one of them sees the
 * other. */
#define _GNU_SOURCE
#include "ops/ranks/link.h"

#include <errno.h>
#include <fcntl.h>
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

void rg_link_give_up(const rg_link *l, const char *why)
{
    fprintf(stderr, "ridge: the model that %d ranks share cannot go on: %s; start ridge again\n", l->n, why);
    _exit(1);
}

/* Rank 0 looks after the keeper, which looks after the other ranks, which end with it. */
static void check_keeper(const rg_host_link *l)
{
    char none;

    if (!l->base.rank && l->keeper > 0 && read(l->keeper_end, &none, 1) == 0)
        rg_link_give_up(&l->base, "the process that starts the other ranks has ended");
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
    for (uint32_t now; !has_come(now = atomic_load(&c->n), wanted) && !atomic_load(&l->segment->is_lost);)
        if (syscall(SYS_futex, &c->n, FUTEX_WAIT, now, &patience, NULL, 0) && errno == ETIMEDOUT)
            check_keeper(l);
    atomic_fetch_sub(&c->sleepers, 1);
}

static void wake(rg_link_counter *c)
{
    if (atomic_load(&c->sleepers))
        syscall(SYS_futex, &c->n, FUTEX_WAKE, RG_MAX_RANKS, NULL, NULL, 0);
}

void rg_counter_raise(rg_link_counter *c)
{
    atomic_fetch_add(&c->n, 1);
    wake(c);
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

/* The processes beside rank 0: what a person types at the terminal is for that one, with which they end. */
static void become_helper(pid_t parent)
{
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) /* it ended before that */
        _exit(1);
    for (size_t i = 0; i < RG_LEN(ignored); i++)
        signal(ignored[i], SIG_IGN);
}

_Noreturn static void be_rank(rg_host_link *l, int rank, pid_t parent, void (*follow)(rg_link *, void *), void *arg)
{
    become_helper(parent);
    close(l->keeper_end);
    l->base.rank = rank;
    rg_cores_share(rank, l->base.n);
    follow(&l->base, arg);
    _exit(0);
}

/* ---- the keeper -------------------------------------------------------------------------------------------------- */

/* False: the system has no more processes. */
static bool start_group(rg_host_link *l, void (*follow)(rg_link *, void *), void *arg)
{
    const pid_t keeper = getpid();

    for (int r = 1; r < l->base.n; r++) {
        const pid_t pid = fork();

        if (pid == 0)
            be_rank(l, r, keeper, follow, arg);
        if (pid < 0) {
            fprintf(stderr, "ridge: cannot start the process of rank %d of %d: %s\n", r, l->base.n, strerror(errno));
            return false;
        }
        atomic_store(&l->segment->pid[r], pid);
    }
    return true;
}

static void say_lost(const rg_host_link *l, pid_t pid, int status)
{
    char how[64] = "";
    int rank = 1;

    while (rank < l->base.n - 1 && atomic_load(&l->segment->pid[rank]) != pid)
        rank++;
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, " by signal %d", WTERMSIG(status));
    fprintf(stderr, "ridge: rank %d of %d (process %d) has ended%s; the other ranks cannot go on without it\n", rank,
            l->base.n, (int)pid, how);
}

/* Wait for the group's processes.  True: all of them have done what they were there for. */
static bool watch_group(const rg_host_link *l)
{
    pid_t pid;
    int status;

    while ((pid = waitpid(-1, &status, 0)) > 0 || errno == EINTR)
        if (pid > 0 && (!WIFEXITED(status) || WEXITSTATUS(status))) {
            say_lost(l, pid, status);
            return false;
        }
    return true;
}

/* None of them touches the segment after that. */
static void end_group(const rg_host_link *l)
{
    for (int r = 1; r < l->base.n; r++)
        if (atomic_load(&l->segment->pid[r]) > 0)
            kill(atomic_load(&l->segment->pid[r]), SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
        ;
    for (int r = 1; r < l->base.n; r++)
        atomic_store(&l->segment->pid[r], 0);
}

static void tell_lost(rg_link_segment *s)
{
    atomic_store(&s->is_lost, 1);
    for (int r = 0; r < RG_MAX_RANKS; r++)
        wake(&s->arrived[r]);
    wake(&s->started);
}

static void wait_wanted(rg_link_counter *wanted, uint32_t groups)
{
    atomic_fetch_add(&wanted->sleepers, 1);
    while (atomic_load(&wanted->n) != groups)
        syscall(SYS_futex, &wanted->n, FUTEX_WAIT, groups - 1, NULL, NULL, 0);
    atomic_fetch_sub(&wanted->sleepers, 1);
}

/* Start a group, and another one whenever one is lost and rank 0 wants it. */
_Noreturn static void keep(rg_host_link *l, pid_t parent, void (*follow)(rg_link *, void *), void *arg)
{
    become_helper(parent);
    for (uint32_t groups = 1;; groups++) {
        wait_wanted(&l->segment->wanted, groups);
        if (atomic_load(&l->segment->is_over))
            _exit(0);
        if (start_group(l, follow, arg)) {
            rg_counter_raise(&l->segment->started);
            if (watch_group(l))
                _exit(0);
        }
        end_group(l);
        tell_lost(l->segment);
    }
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

/* Have the keeper start a group, for which all counts begin again. */
static bool want_group(rg_host_link *l, rg_error *err)
{
    rg_link_segment *s = l->segment;
    const uint32_t started = atomic_load(&s->started.n);

    for (int r = 0; r < RG_MAX_RANKS; r++)
        atomic_store(&s->arrived[r].n, 0);
    l->n_done = 0;
    atomic_store(&s->is_lost, 0);
    rg_counter_raise(&s->wanted);
    rg_counter_wait(l, &s->started, started + 1);
    return atomic_load(&s->started.n) != started ||
           rg_fail(err, RG_E_IO, "the processes of %d ranks cannot be started", l->base.n);
}

bool rg_link_is_lost(const rg_link *link)
{
    return atomic_load(&((const rg_host_link *)link)->segment->is_lost);
}

bool rg_link_restart(rg_link *link, rg_error *err)
{
    RG_ASSERT(rg_link_is_lost(link));
    return want_group((rg_host_link *)link, err);
}

int rg_link_process(const rg_link *link, int rank)
{
    return atomic_load(&((const rg_host_link *)link)->segment->pid[rank]);
}

/* The pipe's other end is the keeper's alone. */
static bool fork_keeper(rg_host_link *l, void (*follow)(rg_link *, void *), void *arg, rg_error *err)
{
    const pid_t parent = getpid();
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return rg_fail(err, RG_E_IO, "cannot make a pipe: %s", strerror(errno));
    fflush(NULL); /* what is buffered would come out of each process */
    l->keeper = fork();
    if (l->keeper == 0) {
        close(ends[0]);
        l->keeper_end = ends[1];
        keep(l, parent, follow, arg);
    }
    close(ends[1]);
    l->keeper_end = ends[0];
    if (l->keeper > 0)
        return true;
    close(ends[0]);
    return rg_fail(err, RG_E_IO, "cannot start a process: %s", strerror(errno));
}

rg_link *rg_link_fork(int n, void (*follow)(rg_link *, void *), void *arg, rg_error *err)
{
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
    if (!fork_keeper(l, follow, arg, err) || !want_group(l, err)) {
        rg_link_close(&l->base);
        return NULL;
    }
    rg_cores_share(0, n);
    return &l->base;
}

static void end_keeper(rg_host_link *l)
{
    char none;

    atomic_store(&l->segment->is_over, 1);
    rg_counter_raise(&l->segment->wanted); /* for which it waits once the link is lost */
    (void)fcntl(l->keeper_end, F_SETFL, 0);
    while (read(l->keeper_end, &none, 1) < 0 && errno == EINTR)
        ;
    close(l->keeper_end);
    while (waitpid(l->keeper, NULL, 0) < 0 && errno == EINTR)
        ;
}

void rg_link_close(rg_link *link)
{
    rg_host_link *l = (rg_host_link *)link;

    if (!l)
        return;
    if (l->keeper > 0)
        end_keeper(l);
    munmap(l->segment, segment_bytes(link->n));
    rg_free(l);
}
