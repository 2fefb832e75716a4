/* shares.h -- what each tenant holds of the engine while its requests are there, and who has more than its share.
 *
 * Shares are weighted max-min: a tenant that wants less than its share gets all it wants, and what it leaves is shared
 * by the others in proportion to their weights.  Three things are shared so: the sequences that run at once, the
 * memory for their state, and the rows of prompts.  (Rows of answers need no rule of their own beside the order in
 * which they are planned: one row for each sequence that runs.)
 *
 * One rule says who gives: a tenant takes a unit from another only if it then holds no more for its weight than the
 * other has left for its own.  So each transfer makes what tenants hold strictly more even, nothing can be taken back
 * by the same rule until somebody comes or leaves, and a newcomer causes no more transfers than the units that it
 * needs.  What a tenant that holds nothing takes first is compared without weights, so that no weight is so small that
 * nothing ever comes of it.
 *
 * Requests of the background have no share: they give way to everybody.  The engine thread's alone; only
 * rg_shares_reserve allocates. */
#ifndef RG_ENGINE_SHARES_H
#define RG_ENGINE_SHARES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

typedef struct rg_share { /* of one tenant */
    uint64_t tenant;
    double weight;          /* as its latest request says */
    int32_t n_requests;     /* that wait or run */
    int32_t n_seqs;         /* sequences that its samples hold, swapped out or not */
    /* As of the beginning of the step: */
    int32_t n_wanted;       /* sequences that its samples lack, of waiting and of running requests */
    int32_t n_ranked;       /* sequences that hold a state, as ranked */
    int32_t n_answers;      /* rows of answers that it would have */
    int64_t n_prompt;       /* rows that its prompts lack */
    bool had_prompts;       /*   and whether it had any in the step before */
    int64_t n_blocks;       /* of positions, that its running requests hold, a shared one as often as it is shared;
                             *   counted when memory is short, */
    bool was_asked;         /*   for somebody who was then asking the others one by one */
    bool is_blocked;        /* in this step a request of it found no room */
    /* Rows of prompts that it was given (of a host's shares, microseconds), for its weight: on the virtual clock of
     * start-time fair queueing (Goyal, Vin and Cheng, 1996). */
    double served;
    struct rg_share *above; /* the same tenant's among all members of a host; NULL: there is no host */
    struct rg_share *next;
} rg_share;

typedef struct rg_shares {
    struct rg_share_stock *stock; /* where they lie, `room` of them */
    int32_t room;
    rg_share *unused, *first;     /* first: those in use */
    int32_t n;
    double now;             /* the virtual clock of `served` */
    struct rg_shares *above; /* borrowed: a host's, which these are part of (host.h); NULL: of none */
} rg_shares;

/* Make room for so many tenants at once; s is all 0 at first.  False and *err: no memory. */
bool rg_shares_reserve(rg_shares *s, int32_t room, rg_error *err);
void rg_shares_fini(rg_shares *s);

/* A request of the tenant is there; it is gone. */
rg_share *rg_shares_join(rg_shares *s, uint64_t tenant, double weight);
void rg_shares_leave(rg_shares *s, rg_share *t);

/* True if t may take one of n_idle sequences: those who hold less for their weight, and want more, find theirs
 * nevertheless. */
bool rg_shares_may_take(const rg_shares *s, const rg_share *t, int32_t n_idle);
/* True if t, which has `own` units, may take n of the `given` ones of `theirs` that another tenant gives. */
bool rg_share_may_claim(const rg_share *t, int64_t own, int64_t n, const rg_share *other, int64_t theirs,
                        int64_t given);

/* The tenant other than t that holds most for its weight: of sequences, among those that t may claim one from; of
 * blocks, among those that were not asked yet.  NULL: there is none. */
rg_share *rg_shares_most_seqs(const rg_shares *s, const rg_share *t);
rg_share *rg_shares_most_blocks(const rg_shares *s, const rg_share *t);

/* Rows that answers leave to prompts in a step of `budget` rows: to each tenant what its prompts lack, as far as its
 * share of the rows goes. */
int32_t rg_shares_prompt_rows(const rg_shares *s, int32_t budget);

/* Prompts: t has some again; it is served next, and gets n rows. */
void rg_shares_begin(const rg_shares *s, rg_share *t);
void rg_shares_serve(rg_shares *s, rg_share *t, double n);

void rg_shares_check(const rg_shares *s);

#endif
