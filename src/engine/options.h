/* options.h -- what the step loop and its scheduler are opened with. */
#ifndef RG_ENGINE_OPTIONS_H
#define RG_ENGINE_OPTIONS_H

#include "engine/step_time.h"
#include "engine/verify.h"

typedef enum rg_preempt { RG_PREEMPT_AUTO, RG_PREEMPT_RECOMPUTE, RG_PREEMPT_SWAP } rg_preempt;

typedef struct rg_loop_options {
    int32_t max_seqs;        /* sequences that run at once */
    int32_t max_rows;        /* of one step; at most the runner's, which a prompt that is computed whole may have */
    int32_t max_seq_len;
    int32_t max_waiting;     /* requests in the queue; more are refused */
    int64_t max_waiting_ids; /* of their prompts; 0: no limit */
    double max_wait_s;       /* refuse requests that would wait longer; 0: no limit */
    bool use_prefixes, share_prefixes; /* share: between tenants */
    bool static_batching;    /* no request joins the running ones */
    rg_preempt preempt;      /* AUTO: copy the state out where that is quicker than computing it again */
    double step_s, pace;     /* as in rg_options */
    struct rg_durable *durable; /* files of cached prefixes (durable.h), borrowed; NULL: none */
    struct rg_drafter *drafter; /* of answers (draft/draft.h), borrowed; NULL: none */
    struct rg_drafter *fallback; /* asked where the other has no guess; NULL: none */
    bool adapt_drafts;       /* choose drafter and depth in every step (draft_choice.h); else all draft all they can */
    int32_t max_draft;       /* nodes of a draft at most; 1 .. RG_MAX_DRAFT if there is a drafter */
    rg_verify verify;        /* how drafts are judged */
    rg_step_roofs roofs;     /* this machine's; .bytes_s 0: not measured, and step_s and pace limit nothing */
} rg_loop_options;

/* What is judged by chance depends on the drafts, so that these must follow from the answer alone: rows and memory for
 * them are reserved, and they are never chosen by what is quickest. */
static inline bool rg_loop_fixes_drafts(const rg_loop_options *o)
{
    return o->drafter && o->verify != RG_VERIFY_COUPLED;
}

#endif
