/* scheduler.h -- which requests run in the next step, and with how many rows.
 *
 * Waiting requests are taken in an order that is fair between tenants (fair.h).  Of the running ones decode rows go
 * first (every sample that can draw gets its row), then prompts as far as the row budget goes: those of the tenant
 * that was given least, and of one tenant in order of arrival.  Prompts of models whose rows see rows after them
 * are computed whole: one waits for a step with room for all its rows.  Tenants share sequences, memory and rows
 * (shares.h): while all sequences run, or a pool is full, the tenant that holds the most for its weight gives up its
 * latest sample to one that holds less.  Where no tenant has more than its share, the latest sample gives way.  A
 * request that has lost all its samples waits again, and is taken before others.  Background requests get the rows
 * and the state that the others leave, and lose their state as soon as one of those needs it.  The engine thread's
 * alone. */
#ifndef RG_ENGINE_SCHEDULER_H
#define RG_ENGINE_SCHEDULER_H

#include "engine/admission.h"
#include "engine/options.h"
#include "engine/request.h"
#include "engine/restore.h"
#include "engine/shares.h"

typedef struct rg_row_budget { /* of one step: its rows, and of how many of them logits can be had */
    int32_t rows, logits;
} rg_row_budget;

typedef struct rg_planned { /* one span of the coming step */
    rg_request *request;
    int sample;
    int32_t n_rows;
    bool ends;    /* it is the last span before the sample's next id, or before whatever its work gives */
    bool beside;  /* its rows are those of the sample's second sequence */
    bool is_prompt;     /* the scheduler's: its rows are none of an answer that is being written, */
    rg_row_budget took; /*   and what it took of the step's, with what is reserved for a draft */
} rg_planned;

typedef struct rg_scheduler rg_scheduler;

/* All but options is borrowed.  The scheduler reports requests that begin or leave the queue to `admission`, and
 * predicts the length of a step by `time`, which the loop lets learn. */
rg_scheduler *rg_scheduler_new(rg_states *states, rg_admission *admission, const rg_step_time *time,
                               const rg_loop_options *options, rg_error *err);
void rg_scheduler_free(rg_scheduler *s);

void rg_scheduler_add(rg_scheduler *s, rg_request *r); /* it waits from now on, at its place by rank */

/* Before a request is added: bring back what files have of its prefix.  BEGUN: add it when rg_states_restored gives it
 * back. */
rg_restoring rg_scheduler_restore(rg_scheduler *s, rg_request *r);

/* Plan the step into plan (room for max_seqs) within rows >= 1, growing states; returns the number of spans, 0 only if
 * no request is there.  Prompts get fewer rows where options.step_s or pace demands it.  Memory for logits is there for
 * few rows, logits > max_seqs of them: each span gets one, and a prompt whose rows' logits are wanted is cut to most of
 * those that are left, however many rows it may have otherwise. */
int rg_scheduler_next(rg_scheduler *s, const rg_row_budget *budget, rg_planned *plan);
/* After sample i of r ended: give its state back. */
void rg_scheduler_drop(rg_scheduler *s, rg_request *r, int i);
/* End requests that were cancelled, whose deadline is over or that are not finite (all: every one), and remove those
 * that have ended; returns how many went. */
int rg_scheduler_reap(rg_scheduler *s, bool all);
/* Take the state of all samples of r and let it wait again.  False: r is NULL or does not run. */
bool rg_scheduler_preempt(rg_scheduler *s, rg_request *r, rg_preempt how);

/* The state of all running requests is gone: they wait again, and are computed anew; those that this has happened to
 * too often end. */
void rg_scheduler_lose(rg_scheduler *s);

int32_t rg_scheduler_n_waiting(const rg_scheduler *s);
bool rg_scheduler_some_wait(const rg_scheduler *s); /* some wait that are not of the background */
int32_t rg_scheduler_n_running(const rg_scheduler *s);
/* A request that waited for values of its reader (rg_work.is_held) has them, or is to end: it joins the queue again. */
void rg_scheduler_return(rg_scheduler *s, rg_request *r);
int32_t rg_scheduler_n_held(const rg_scheduler *s); /* requests that it has not given back yet */
int64_t rg_scheduler_n_waiting_ids(const rg_scheduler *s); /* of prompts */
uint64_t rg_scheduler_n_prompt_rows(const rg_scheduler *s); /* of admitted requests, found or computed */
rg_request *rg_scheduler_running(const rg_scheduler *s, int i); /* NULL past the end; by arrival, the background last */
uint64_t rg_scheduler_n_preempted(const rg_scheduler *s);
uint64_t rg_scheduler_n_swapped(const rg_scheduler *s);    /* states that were given up and copied out, */
uint64_t rg_scheduler_n_recomputed(const rg_scheduler *s); /*   and that were dropped */
uint64_t rg_scheduler_n_cached(const rg_scheduler *s); /* rows that the prefix index saved */
/* For a host (host.h), to whose shares its own belong from now on; it has no requests yet. */
int32_t rg_scheduler_most_tenants(const rg_scheduler *s);
void rg_scheduler_join(rg_scheduler *s, rg_shares *above);
/* What the tenant that was served least was served of the host; INFINITY: only background requests are there. */
double rg_scheduler_least_served(const rg_scheduler *s);
uint64_t rg_scheduler_first_deadline(const rg_scheduler *s); /* of all requests; UINT64_MAX: none has one */
void rg_scheduler_check(const rg_scheduler *s); /* asserts that lists, samples and sequences agree */

#endif
