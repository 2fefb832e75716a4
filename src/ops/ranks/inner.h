/* inner.h -- inside links: what ranks of one host share. */
#ifndef RG_OPS_RANKS_INNER_H
#define RG_OPS_RANKS_INNER_H

#include <stdatomic.h>
#include <sys/types.h>

#include "ops/ranks/link.h"

/* A number that only rises, and how many sleep until it does. */
typedef struct rg_link_counter {
    _Alignas(64) _Atomic uint32_t n;
    _Atomic uint32_t sleepers;
} rg_link_counter;

/* At the start of the shared memory; the slots [2][n] stand behind it. */
typedef struct rg_link_segment {
    rg_link_counter arrived[RG_MAX_RANKS]; /* exchanges whose slot the rank has filled */
    rg_link_counter carried;               /* exchanges whose slots of other hosts are here too */
    rg_link_counter wanted, started;       /* groups of other ranks that rank 0 wants, and that run or ran */
    _Atomic int is_over;                   /* no group will be wanted any more */
    _Atomic int is_lost;                   /* a rank of the latest group ended too soon, and all others with it */
    _Atomic int pid[RG_MAX_RANKS];         /* of the other ranks on this host */
} rg_link_segment;

typedef struct rg_host_link rg_host_link;
struct rg_host_link {
    rg_link base; /* first */
    rg_link_segment *segment;
    uint8_t *slots;
    uint32_t n_done;            /* exchanges of this rank */
    bool is_here[RG_MAX_RANKS]; /* on this host */
    pid_t keeper;               /* rank 0's child, which starts the other ranks; 0: mpirun has started them */
    int keeper_end;             /* a pipe that ends with the keeper: rank 0 may be forbidden to wait for processes */
    /* Where there are other hosts: bring their slots here, or wait until they are.  NULL: there are none. */
    void (*carry)(rg_host_link *l, rg_link_way way, size_t bytes);
    void *remote; /* carry's own */
};

void rg_counter_wait(rg_host_link *l, rg_link_counter *c, uint32_t wanted);
void rg_counter_raise(rg_link_counter *c);

#endif
