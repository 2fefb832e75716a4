/* speculation.h -- drafts in the step loop: which answers are drafted for, how deep, and what is kept of it.
 *
 * Between planning a step and laying out its rows, drafters are asked about the answers that have one row in the
 * step: the ones that draft_choice.h finds best, or all in turn.  Their trees are cut to what could be accepted at all
 * (grammar, end tokens, the length of the answer), to the rows that the step has left, and to the room that the
 * sequence finds without taking any from others.  A drafter that fails is dropped.  The engine thread's alone. */
#ifndef RG_ENGINE_SPECULATION_H
#define RG_ENGINE_SPECULATION_H

#include "engine/draft/draft.h"
#include "engine/draft_choice.h"
#include "engine/draw.h"
#include "engine/options.h"
#include "engine/scheduler.h"

/* What became of drafts so far. */
typedef struct rg_draft_counts {
    uint64_t n_drafts, n_nodes, n_accepted; /* trees, their ids (no probes), those accepted */
    uint64_t at[RG_MAX_DRAFT];              /* accepted ones by their place on the path */
    /* Seconds that steps without prompts took, counted once enough steps without drafts were timed; and the seconds
     * that the same ids would have taken at the pace of the steps without drafts. */
    double took_s, plain_s;
    bool paused;            /* the latest step was not drafted for, since drafts would lose */
} rg_draft_counts;

typedef struct rg_speculation rg_speculation;

/* states and scratch are borrowed, as are the drafters; options->drafter is not NULL.  facts: of the model.  Where
 * drafts are judged by chance, scratch has room for that (rg_sample_scratch_judge). */
rg_speculation *rg_speculation_new(const rg_loop_options *options, const rg_step_facts *facts, rg_states *states,
                                   rg_sample_scratch *scratch, rg_error *err);
void rg_speculation_free(rg_speculation *s); /* NULL is fine */

/* Begin drafts for the answers of plan[0, n), with which the step has so many rows and rows of logits left.  They are
 * complete when rg_speculation_step has no more to do. */
void rg_speculation_draft(rg_speculation *s, const rg_planned *plan, int n, const rg_row_budget *left);
/* Compute a step of the network of the drafter that is at work.  False: none is, or s is NULL. */
bool rg_speculation_step(rg_speculation *s);
bool rg_speculation_is_at_work(const rg_speculation *s);
/* The step, drafts included, had this load and took took_s seconds, without the time of the drafters. */
void rg_speculation_stepped(rg_speculation *s, const rg_step_load *load, double took_s);
/* The draft of plan[i], for which its sequence is grown; NULL: it has none.  Valid until the next
 * rg_speculation_draft. */
const rg_draft_tree *rg_speculation_of(const rg_speculation *s, int i);
/* True if the draft of plan[i], which has one, is of what its request predicts. */
bool rg_speculation_is_predicted(const rg_speculation *s, int i);
/* After the step, of every plan[i] that drew ids, with a draft or without: drawn[0, 1 + n) are the ids drawn after its
 * last id and after each of the draft's n nodes, and path[0, n_path) the nodes that were accepted. */
void rg_speculation_checked(rg_speculation *s, int i, const rg_drawn *drawn, const int32_t *path, int32_t n_path);
/* Where the features of the coming step's rows go; NULL: no drafter reads any, or s is NULL. */
rg_tap *rg_speculation_tap(const rg_speculation *s);
/* True if a drafter reads the features of the rows of p's answer. */
bool rg_speculation_reads(const rg_speculation *s, const rg_planned *p);
/* After a step, once its ids were taken: the answer of plan[i] goes on, and these rows of the step were its own.  Their
 * features are noted for the drafter that reads them. */
void rg_speculation_note_features(rg_speculation *s, const rg_planned *p, int i, const rg_span *span);
/* After that, once for each step: the drafter gets all that were noted.  It is through with them, and the requests may
 * go, when rg_speculation_step has no more to do. */
void rg_speculation_give_features(rg_speculation *s);
/* After all drafts of the step have been checked: what it took and what it gave is learnt. */
void rg_speculation_committed(rg_speculation *s);
/* Sample i of r has ended with all its ids. */
void rg_speculation_end(rg_speculation *s, const rg_request *r, int i);

const rg_draft_counts *rg_speculation_counts(const rg_speculation *s);

#endif
