/* loop_inner.h -- what the files of the engine loop share.
 *
 * loop.c makes the loop, runs its steps and ends them; loop_forward.c has the first half of a turn, from which rows to
 * the ids that are drawn, loop_commit.c the second, what becomes of those ids; loop_calls.c, what other threads ask. */
#ifndef RG_ENGINE_LOOP_INNER_H
#define RG_ENGINE_LOOP_INNER_H

#include <pthread.h>

#include "engine/loop.h"
#include "engine/turns.h"
#include "engine/work/step.h"

enum { RG_LOOP_DEADLINE_MAX_S = 1 << 30 };

/* A turn computes a step of the model, and before and after it those of a network that drafts: so far it has come. */
typedef enum rg_loop_phase { RG_LOOP_BEGINS, RG_LOOP_DRAFTS, RG_LOOP_LEARNS } rg_loop_phase;

struct rg_loop {
    rg_member member;       /* the model */
    rg_loop_options options;
    rg_scheduler *scheduler;
    rg_admission admission; /* any thread may ask it */
    rg_speculation *speculation; /* NULL: no answer is drafted for */
    rg_step_time time;      /* learns under the lock; the engine's thread alone may read it without */
    struct rg_host *host;   /* whose thread gives it turns; NULL: whoever calls rg_loop_step does */
    rg_shares *tenants;     /* the host's; NULL without one */
    rg_turn_claim claim;    /* to the next turn */

    rg_work_step step;
    rg_loop_phase phase;
    double turn_s;          /* that its steps took so far, whatever others did between them */
    rg_row_budget left;     /* what the plan leaves of the step's budget */
    int32_t (*budget)(void *arg);
    void *budget_arg;

    /* Requests whose prefix may be in files (restore.h), by arrival: they join the queue when it is there. */
    rg_request *restoring, **restoring_end; /* linked by next */
    int32_t n_restoring;
    int64_t n_restoring_ids;

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t stepped; /* a step was committed, or requests left */
    bool lock_made, stepped_made;
    rg_request *inbox, **inbox_end; /* linked by next */
    rg_request *returned;           /* likewise: requests that were held, and go on */
    int32_t n_inbox, n_waiting;     /* submitted and not admitted; waiting as of the last step */
    int64_t n_inbox_ids, n_waiting_ids; /* of their prompts */
    uint64_t last_id, n_commits;    /* n_commits: what rg_loop_wait counts */
    int n_watching;                 /* threads in rg_loop_wait */
    bool closing, check_wanted;
    void (*change)(void *arg); /* to be called when no request is left; NULL: nothing.  Until then none joins */
    void *change_arg;
    bool changing; /* it is being called */
    rg_stats stats;
};

/* ---- for its host ---- */

/* Its turns come from this host, and its tenants are part of these. */
void rg_loop_join(rg_loop *l, struct rg_host *h, rg_shares *tenants);
/* All requests end as cancelled, and no more are taken.  The host has no more turns for it. */
void rg_loop_end(rg_loop *l);
/* Requests that were submitted join, and l->claim says what it wants; in_full: the whole of it. */
void rg_loop_claim(rg_loop *l, bool in_full);
/* rg_loop_check, if some thread wants it and no turn is on; and what rg_loop_change was given, once nothing runs. */
void rg_loop_check_wanted(rg_loop *l);

/* ---- a turn: each on the engine's thread, in this order ---- */

/* Choose the spans of the step, and begin their drafts.  False: nothing to do. */
bool rg_loop_next(rg_loop *l);
/* Lay out the rows of all spans, with their drafts. */
void rg_loop_lay_out(rg_loop *l);
/* Computes the rows of the step, and draws from each row with an output what its request wants.
 * False: the state of all sequences is lost, and what was drawn must not be used (rg_runner.keeps_state). */
bool rg_loop_forward(rg_loop *l);
/* Otherwise: as if the step had not been. */
void rg_loop_undo(rg_loop *l);
/* Keep the rows' state, and give out the ids. */
void rg_loop_commit(rg_loop *l);
/* Drafters have learnt from it: end what has ended. */
void rg_loop_end_turn(rg_loop *l);

#endif
