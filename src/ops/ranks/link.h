/* link.h -- ranks: processes that compute one model together, and how they exchange numbers.
 *
 * Every rank has a slot of memory that all can read.  An exchange goes: each rank fills its slot, says so, and waits
 * for those whose slots it reads.  There are two sets of slots, used in turn, so that one wait per exchange is enough:
 * a rank that fills a slot of this exchange knows that all have read the one before the last.  Who adds up slots goes
 * over them in the order of ranks, so every rank gets the same bits, however fast each of them is.
 *
 * Ranks of one host are processes around one shared segment; a wait spins for some microseconds and then sleeps on a
 * futex.  One more process, the keeper, starts them: it has one thread for ever, so that it can start others later.  If
 * a rank ends before its time, the keeper ends the others but rank 0, says so on stderr, and the link is lost: nothing
 * waits any more, and what exchanges give means nothing, until rank 0 wants a new group.  One thread of each rank uses
 * its link.  Knows no model. */
#ifndef RG_OPS_RANKS_LINK_H
#define RG_OPS_RANKS_LINK_H

#include "base/error.h"

enum {
    RG_MAX_RANKS = 64,
    RG_LINK_SLOT = 4 << 20, /* bytes of a slot */
};

typedef enum rg_link_way {
    RG_LINK_ALL,       /* every rank reads every slot */
    RG_LINK_FROM_ZERO, /* every rank reads rank 0's */
    RG_LINK_TO_ZERO,   /* rank 0 reads every slot */
} rg_link_way;

typedef struct rg_link rg_link;
struct rg_link {
    int rank, n, n_here; /* n_here: on this host */
    uint64_t delay_ns; /* that every exchange takes longer, as if ranks were so far apart: for tests and measuring; 0 */
    uint64_t n_exchanges, bytes; /* of steps: exchanges, and what this rank may have put into its slot for them */
};

/* Start n - 1 more processes.  Each calls follow(link of its rank, arg) and ends when that returns.  Returns
 * the link of rank 0, which is the calling process.  To be called while the process has one thread.  The processes end
 * with this one.  Where the machine has several NUMA nodes, each rank stays on one of them.  NULL and *err: n is out of
 * range, or the system has no more processes or memory. */
rg_link *rg_link_fork(int n, void (*follow)(rg_link *link, void *arg), void *arg, rg_error *err);
/* Rank 0: wait until the other processes have ended, which they do when follow returns.  NULL is fine. */
void rg_link_close(rg_link *l);
/* Rank 0, any thread: true if the link is lost, and stays so until rg_link_restart.  Where mpirun has started the ranks
 * never: it ends all of them with the first. */
bool rg_link_is_lost(const rg_link *l);
/* For rank 0, once a link is lost: start processes in the places of those that have ended, as rg_link_fork does.
 * False and *err: the system has no more processes or memory; the link stays lost. */
bool rg_link_restart(rg_link *l, rg_error *err) RG_MUST_CHECK;
/* For rank 0, where a lost link cannot be made whole again: end the process, with a message that says why. */
_Noreturn void rg_link_give_up(const rg_link *l, const char *why);
/* The process of a rank that rg_link_fork has started; 0: rank 0, or mpirun has started it. */
int rg_link_process(const rg_link *l, int rank);

/* The link of this process in a group that mpirun has started, ranks of any hosts.  NULL and *err: MPI is not built in,
 * or cannot be started.  host_ranks: so many ranks count as those of a host, wherever they are: for tests; 0: as it is.
 * rg_link_mpi_close: called by every rank, when all of them have done with it. */
rg_link *rg_link_mpi(int host_ranks, rg_error *err);
void rg_link_mpi_close(rg_link *l);

/* One rank of n without any others: it can be asked about, but exchanges nothing.  For counting. */
rg_link rg_link_alone(int rank, int n);

/* This rank's slot for the next exchange, RG_LINK_SLOT bytes; waits until it may be written. */
void *rg_link_slot(rg_link *l);
/* Exchange the first `bytes` bytes of all slots; every rank gives the same number. */
void rg_link_exchange(rg_link *l, rg_link_way way, size_t bytes);
/* The slot of a rank as of the last exchange, valid until this rank's next one. */
const void *rg_link_of(const rg_link *l, int rank);

/* The first of `units` equal parts that a rank of n has; its last is before the next rank's first.  Every rank has at
 * least one part where units >= n. */
static inline int64_t rg_rank_first(int64_t units, int rank, int n)
{
    return units * rank / n;
}

#endif
