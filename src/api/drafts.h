/* drafts.h -- rg_options.draft: which drafter it is, and the model that it may need, opened beside the other.
 *
 * Opened in three calls, since parts of the engine need to know in between: choose, before the engine's own model is
 * opened, which must have room for drafts; load, once that model's vocabulary is known; open, with the engine's
 * threads and memory. */
#ifndef RG_API_DRAFTS_H
#define RG_API_DRAFTS_H

#include "engine/draft/draft.h"
#include "engine/verify.h"
#include "model/self.h"
#include "model/tap.h"
#include "text/tokenizer.h"

typedef struct rg_drafts {
    const rg_draft_kind *kind; /* NULL: none, as are all others */
    int32_t max_draft;         /* nodes of a draft; 0: there is no drafter */
    rg_verify verify;
    bool is_auto;              /* found without being asked for: what is wrong with it is no failure, and the engine
                                *   chooses in every step whether it is asked */
    char path[1024];           /* of its model, or what stood behind the kind; "": nothing */
    const rg_self_method *self; /* its model is the engine's own, less what this leaves out; NULL: it is not */
    int self_n;
    int block;                 /* of its model, which fills in blocks (engine/draft/blocks.c); 0: it does not */
    rg_model *model;
    rg_runner *runner;
    rg_tap *tap;               /* of the features that it reads; NULL: it reads none */
    rg_drafter *drafter;
    rg_drafter *fallback;      /* by suffixes, beside one that was found without being asked for; NULL: none */
    char name[64];             /* of all of them */
    rg_error why;              /* why there is none although one was found; RG_OK */
} rg_drafts;

/* False and *err: there is no such drafter. */
bool rg_drafts_choose(rg_drafts *d, const rg_options *o, const rg_checkpoint *target, rg_error *err);
/* Rows of drafts that the state of the engine's own model needs room for. */
int32_t rg_drafts_rows_kept(const rg_drafts *d);
typedef struct rg_drafts_target { /* that is drafted for, all borrowed */
    const rg_checkpoint *ckpt;
    const rg_model *model;
    const rg_tokenizer *tokenizer; /* NULL: it has none */
} rg_drafts_target;

/* Read the drafter's model, whose vocabulary must be that of the target.  A module of the target's own checkpoint is
 * read from the files that are open. */
bool rg_drafts_load(rg_drafts *d, const rg_options *o, const rg_drafts_target *target, int n_threads, rg_error *err);
/* The part of the memory for sequences' state that the drafter's model needs: it holds as many positions then. */
double rg_drafts_share(const rg_drafts *d, const rg_model *target);
/* Before the target's runner is made, with its options: where the drafter takes features from its steps. */
bool rg_drafts_tap(rg_drafts *d, rg_runner_options *target, rg_error *err);
/* base: the backend, recipe, pool, sizes and state_bytes of its runner; max_rows, max_logits are set here. */
bool rg_drafts_open(rg_drafts *d, const rg_runner_options *base, const rg_model *target, rg_error *err);
void rg_drafts_close(rg_drafts *d);

#endif
