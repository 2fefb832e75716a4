/* scheduler_inner.h -- what the files of the scheduler share.
 *
 * scheduler.c has the lists of requests, and how requests end; scheduler_state.c, which samples hold a sequence, and
 * whom it is taken from (preemption); scheduler_shares.c, who gives
 * way to whom; scheduler_plan.c, which rows the next step computes, and who is let in. */
#ifndef RG_ENGINE_SCHEDULER_INNER_H
#define RG_ENGINE_SCHEDULER_INNER_H

#include "engine/fair.h"
#include "engine/scheduler.h"
#include "engine/shares.h"
#include "engine/work/work.h"

enum { RG_MOST_LOST = 2 }; /* times that ranks may end while they compute a request: it may be why they do */

enum { RG_LIST_NONE, RG_LIST_WAITING, RG_LIST_RUNNING }; /* rg_request.state */

/* Linked by next and prev of the requests. */
typedef struct rg_request_list {
    rg_request *head, *tail;
    int32_t n;
} rg_request_list;

typedef struct rg_planning { /* of a step */
    rg_planned *plan;
    int n;
    int32_t budget, prompts; /* rows that are left, and how many of them prompts may have */
    int32_t logits;          /* and of how many the logits may be wanted */
    bool left_out;           /* some answers found no row */
    rg_row_budget kept;      /* of these, what answers leave to prompts of tenants that have less than their share */
} rg_planning;

typedef struct rg_ranked { /* a sample that holds a state */
    rg_request *request;
    int sample;
    double at; /* how many of its tenant's stand up to it, itself included, for the tenant's weight */
} rg_ranked;

struct rg_scheduler {
    rg_states *states;        /* borrowed, */
    rg_admission *admission;  /*   likewise, */
    const rg_step_time *time; /*   likewise */
    rg_loop_options options;
    rg_request_list waiting, running; /* by rank */
    rg_fair *fair;                    /* the order of the waiting requests */
    rg_shares shares;                 /* what each tenant holds */
    rg_ranked *ranked;                /* [2 n_seqs] n_ranked of the foreground as the step began, and scratch */
    int32_t n_ranked;
    rg_planning *planning;            /* NULL between steps */
    uint64_t n_steps;
    rg_request *held_up;              /* in this step, the first that found no room; NULL: all did */
    bool forming;                     /* static batching: requests may still join the running ones */
    rg_seq **seqs;                    /* all of them */
    rg_seq **idle;                    /* stack of sequences that no sample has */
    int32_t n_seqs, n_idle;
    int32_t n_held;                   /* requests that have left until their readers return them */
    uint64_t n_swapped, n_recomputed; /* states of sequences that were given up and copied out, or dropped */
    uint64_t n_preempted, n_cached, n_prompt_rows; /* since the start, as scheduler.h counts them */
    int64_t n_waiting_ids;                         /* of the prompts of the waiting requests */
};

/* ---- lists (scheduler.c) ---- */

/* Put r, which is in no list, into one at its place by rank; take it out of the one it is in. */
void rg_scheduler_link(rg_scheduler *s, rg_request *r, int state);
void rg_scheduler_unlink(rg_scheduler *s, rg_request *r);

/* ---- samples ---- */

/* True if it has a state that can grow: it is neither without one nor swapped out. */
static inline bool rg_sample_is_active(const rg_sample *a)
{
    return rg_sample_is_live(a) && a->seq && !a->seq->swapped;
}

/* True if the next row of sample i draws an id. */
bool rg_sample_is_decoding(const rg_request *r, int i);

/* Sequences that it holds. */
static inline int32_t rg_sample_n_seqs(const rg_sample *a)
{
    return (a->seq != NULL) + (a->beside != NULL);
}

/* ---- their state (scheduler_state.c) ---- */

/* Give sample i of r a state that can grow: from swap, or from the longest cached prefix; of work whose samples hold it
 * together, to all.  must: do not wait for more room.  False: there is no sequence, or no room. */
bool rg_scheduler_activate(rg_scheduler *s, rg_request *r, int i, bool must);
/* Samples that have nothing yet fork from one whose prompt is computed, as far as there are sequences.  True: some
 * have. */
bool rg_scheduler_fork(rg_scheduler *s, rg_request *r);
/* True if the waiting request r forks one that is computing what both begin with. */
bool rg_scheduler_waits_to_fork(const rg_scheduler *s, const rg_request *r);
/* True if a background request holds state that the foreground request r may take. */
bool rg_scheduler_may_clear(const rg_scheduler *s, const rg_request *r);
/* Take the state of the last background request for r.  False: there is none. */
bool rg_scheduler_clear_background(rg_scheduler *s, const rg_request *r);
/* The state of an active sample goes: to plain memory, or it is dropped, to be computed again. */
void rg_scheduler_swap_or_drop(rg_scheduler *s, rg_request *r, int i, rg_preempt how);

/* ---- who gives way (scheduler_shares.c) ---- */

/* As a step begins, and again when samples have got a state since. */
void rg_scheduler_count(rg_scheduler *s);
void rg_scheduler_rank(rg_scheduler *s);
/* True if sample i of r is planned (scheduler_plan.c); take it out of the plan again, i -1: all samples. */
bool rg_scheduler_is_planned(const rg_scheduler *s, const rg_request *r, int i);
void rg_scheduler_unplan(rg_scheduler *s, const rg_request *r, int i);
/* True if there are sequences for the request to begin, or to go on with a sample: idle ones, which no tenant with less
 * will need, or those of a tenant with more. */
bool rg_scheduler_may_have_seqs(const rg_scheduler *s, const rg_request *r);
/* Make a sequence idle, for r.  False: there is none to take. */
bool rg_scheduler_claim_seq(rg_scheduler *s, const rg_request *r);
/* Tenants with more than r's give up memory, so that sample i of r may begin.  False: there is none. */
bool rg_scheduler_claim_state(rg_scheduler *s, rg_request *r, int i);
/* The same for another block of sample i of the running request r, by whoever comes behind it, if nobody has more.
 * False: there is none, or its samples hold state
 * together. */
bool rg_scheduler_make_room(rg_scheduler *s, rg_request *r, int i);
/* r found no room in this step: requests that would take what comes free wait too, but for tenants that hold no more.
 * */
void rg_scheduler_block(rg_scheduler *s, rg_request *r);
bool rg_scheduler_may_pass(const rg_scheduler *s, const rg_request *r);

#endif
