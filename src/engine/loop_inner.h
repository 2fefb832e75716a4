/* loop_inner.h -- what the files of the engine loop share.
 *
 * loop.c makes the loop, runs its steps and ends them; loop_forward.c has the first half of a step, from which rows to
 * the ids that are drawn, loop_commit.c the second, what becomes of those ids; loop_calls.c, what other threads ask. */
#ifndef RG_ENGINE_LOOP_INNER_H
#define RG_ENGINE_LOOP_INNER_H

#include <pthread.h>

#include "engine/loop.h"
#include "engine/work/step.h"

enum { RG_LOOP_DEADLINE_MAX_S = 1 << 30 };

struct rg_loop {
    rg_runner *runner;
    rg_loop_options options;
    rg_states *states;
    rg_scheduler *scheduler;
    rg_admission admission; /* any thread may ask it */
    rg_sample_scratch *scratch;
    rg_speculation *speculation; /* NULL: no answer is drafted for */
    rg_step_time time;      /* learns under the lock; the engine's thread alone may read it without */

    rg_work_step step;
    rg_row_budget left;     /* what the plan leaves of the step's budget */
    int32_t (*budget)(void *arg);
    void *budget_arg;

    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake, stepped; /* stepped: a step was committed, or requests left */
    bool lock_made, wake_made, stepped_made;
    rg_request *inbox, **inbox_end; /* linked by next */
    int32_t n_inbox, n_waiting;     /* submitted and not admitted; waiting as of the last step */
    int64_t n_inbox_ids, n_waiting_ids; /* of their prompts */
    uint64_t last_id, n_commits;    /* n_commits: what rg_loop_wait counts */
    int n_watching;                 /* threads in rg_loop_wait */
    bool closing, started, check_wanted;
    rg_stats stats;
    pthread_t thread;
};

/* ---- a step: each on the engine's thread, in this order ---- */

/* Choose the spans of the step.  False: nothing to do. */
bool rg_loop_next(rg_loop *l);
/* Draft, and lay out the rows of all spans. */
void rg_loop_lay_out(rg_loop *l);
/* Compute the rows, and draw an id, or whatever is wanted, from each of those that have an output. */
void rg_loop_forward(rg_loop *l);
/* Keep the rows' state, give out the ids, and end what has ended. */
void rg_loop_commit(rg_loop *l);

#endif
