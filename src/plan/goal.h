/* goal.h -- the plan read backwards: from what is wanted (latency, words a day, memory, budget) to the architectures,
 * formats, drafts, batches and machines that do it, cheapest first, with what binds each.
 *
 * Every candidate is a model that is declared and counted like any other.  A candidate's batch is the largest of 1, 2,
 * 3, 4, 6, 8, 12 ... 1,024 that keeps the latency, fits and is of use; then as many copies run as the words need.
 * Knows nothing of quality: whoever changes the architecture or the bits measures what that costs. */
#ifndef RG_PLAN_GOAL_H
#define RG_PLAN_GOAL_H

#include "plan/plan.h"

/* What is wanted; a member that is 0 is not asked for. */
typedef struct rg_plan_goal {
    double latency_s;              /* of a token of every sequence */
    double ttft_s;                 /* of a prompt of seq positions, alone */
    double tokens_s;               /* in all */
    double memory_bytes;           /* of one copy of the model with its sequences, on all its chips */
    double budget;                 /* chips, or, where machines have prices, money an hour */
    int64_t seq;                   /* positions of a sequence */
    double acceptance, draft_cost; /* of drafts, as rg_what_if_options */
} rg_plan_goal;

typedef struct rg_plan_offer {
    const rg_plan_machine *machine; /* one chip of it */
    char architecture[40];          /* "as it is", "8 K/V heads", ... */
    rg_type weights;
    const char *kv; /* name of the K/V type */
    int drafts;     /* guesses a step; 0: none */
    int chips;      /* that one copy is split over */
    int64_t batch, copies;
    double latency_s, ttft_s, throughput; /* throughput: tokens per second of one copy */
    rg_plan_memory memory;                /* of one copy */
    double cost;                          /* chips in all, or money an hour */
    int n_changes;                        /* that may change what is written: architecture, weights, K/V */
    const char *binds;  /* what keeps the batch from being larger: "latency", "memory", "demand" (one copy
                                     *   gives enough), "none" (larger ones are not tried) */
    rg_bound waits_for; /* what a step waits for */
    bool beaten;        /* by another one, in cost and changes */
} rg_plan_offer;

typedef struct rg_plan_offers {
    rg_plan_offer *all;                /* [n] cheapest first, then those with the fewest changes, then the quickest; of
                                        *   each machine only those that no other beats in cost and changes */
    int n, room;
    int n_tried, n_found;              /* candidates; those that do it */
    int too_slow, too_large, too_dear; /* candidates that were refused: by latency or first token; memory; budget */
} rg_plan_offers;

/* prices: money an hour of a chip of each machine, or NULL.  False and *err: the model cannot be counted.  The offers
 * are freed with rg_plan_offers_fini, also after false. */
bool rg_plan_offer_all(const rg_plan_subject *s, const rg_plan_machine *machines, int n_machines, const double *prices,
                       const rg_plan_goal *goal, rg_plan_offers *out, rg_error *err) RG_MUST_CHECK;
void rg_plan_offers_fini(rg_plan_offers *o);

/* "latency=50ms,ttft=1s,words=1e9,memory=80e9,budget=16" into a goal.  words are those of a day, at tokens_per_word
 * (default 4/3).  False and *err: names the word that is not known or is no number above 0. */
bool rg_plan_goal_read(const char *text, rg_plan_goal *goal, rg_error *err) RG_MUST_CHECK;

#endif
