/* step_batch.h -- the rows of a step as a batch: one span for each planned sample, with the rows of its draft.
 *
 * All arrays are made at once, sized for the largest step.  Knows sequences and drafts, nothing of requests. */
#ifndef RG_ENGINE_STEP_BATCH_H
#define RG_ENGINE_STEP_BATCH_H

#include "engine/draft/draft.h"
#include "engine/work/fill.h"

/* What the logits of a wanted row are for. */
typedef struct rg_wanted {
    int32_t span;
    int32_t node; /* an id is drawn: after this node of the span's draft, or RG_AFTER_LAST; or RG_OF_PROMPT */
} rg_wanted;

enum {
    RG_AFTER_LAST = -1, /* after the last id that is no draft */
    RG_OF_PROMPT = -2,  /* the id after the row is one of the prompt, and gets its log-probability */
};

typedef struct rg_step_batch {
    rg_batch batch;
    int32_t max_rows, max_logits, max_seqs;
    int32_t sees;        /* how far rows see (rg_runner.sees); RG_CAUSAL at first */
    rg_span *spans;      /* [max_seqs] */
    rg_rows *hidden;     /* [max_seqs] */
    rg_rows *scores;     /* [max_seqs] */
    int32_t *hidden_of, *scores_of; /* [max_seqs] the span of each */
    int32_t *first_draw; /* [max_seqs] of each span, the wanted row after its last id; those of its draft follow */
    rg_wanted *wanted;   /* [max_logits] */
    int32_t *logit_rows; /* [max_logits] */
    rg_pick *picks;      /* [max_logits] */
    int32_t *token, *index, *kv_end, *slot; /* [max_rows], as is pos */
    int32_t (*pos)[4];
    uint8_t *failed;     /* [max_rows] */
    const float **given; /* [max_rows] */
    const int32_t **ancestors; /* [max_rows], or NULL: no draft is a tree; */
    int32_t *lists;            /*   the lists themselves, [max_logits][RG_MAX_DRAFT] */
    int32_t n_lists;
    int32_t canvas;      /* positions of a canvas; 0: the model has none, and then there is none of these: */
    float *temperatures; /* [max_logits] */
    float *soft;         /* [max_rows][soft_dim] features, of the first n_soft rows so far */
    int32_t soft_dim, n_soft;
} rg_step_batch;

/* trees: drafts may have branches. */
bool rg_step_batch_init(rg_step_batch *l, int32_t max_seqs, int32_t max_rows, int32_t max_logits, bool trees,
                        rg_error *err);
/* The model refines canvases of so many positions, and reads of its evaluations rows of dim numbers. */
bool rg_step_batch_refine(rg_step_batch *l, int32_t canvas, int32_t dim, rg_error *err);
void rg_step_batch_fini(rg_step_batch *l);

void rg_step_batch_begin(rg_step_batch *l);
/* One span more: rows [length, length + n_rows) of q, whose ids are tokens, and then its draft (NULL: none).  q has
 * been grown for both. */
void rg_step_batch_add(rg_step_batch *l, const rg_states *s, const rg_seq *q, const int32_t *tokens, int32_t n_rows,
                       const rg_draft_tree *draft);
/* One span more: nodes [from, d->n) of a draft of q, whose earlier nodes were computed in steps before, after the same
 * positions [0, length); q has been grown for all, and advances over none. */
void rg_step_batch_add_nodes(rg_step_batch *l, const rg_states *s, const rg_seq *q, const rg_draft_tree *d,
                             int32_t from);
/* One span more: an evaluation of an answer that is filled in, whose sequence is q: with or without the prompt; and the
 * logits of its masks, each wanted as of the node that is its position. */
void rg_step_batch_add_fill(rg_step_batch *l, const rg_states *s, const rg_fill *f, const rg_seq *q, bool without);
/* One span of n rows that begin with features, see themselves alone and keep nothing, and whose logits are all wanted;
 * of a step that has no other.  n 0: none. */
void rg_step_batch_add_apart(rg_step_batch *l, int32_t n);
/* Rows of the span added last that are given: those of the prompt's runs [n] which it has, of dim numbers each.  The
 * step reads them where they are. */
void rg_step_batch_give(rg_step_batch *l, const rg_given_rows *given, int32_t n, int32_t dim);
/* Wants of the span added last: logits for ids of the prompt, of n rows from `first` on (counted from the span's
 * first); those that ids are drawn from, after its last id and after each node of the draft; hidden states of a run of
 * rows. */
void rg_step_batch_want_prompt(rg_step_batch *l, int32_t first, int32_t n);
void rg_step_batch_want_draws(rg_step_batch *l, int32_t n_draft);
/* What is drawn from the logits after a node of the span that was added last; without this, any id may be. */
void rg_step_batch_pick(rg_step_batch *l, int32_t node, rg_pick pick);
/* The same for the last row alone. */
void rg_step_batch_want_last(rg_step_batch *l);
void rg_step_batch_want_hidden(rg_step_batch *l, rg_rows run);
/* Label scores by the model's head, of the mean of a run of rows. */
void rg_step_batch_want_label_scores(rg_step_batch *l, rg_rows run);
/* In the span added last, a pair's second text begins at this position; 0: there is none. */
void rg_step_batch_pair(rg_step_batch *l, int32_t second);

/* After the step: some rows of the i-th span could not be computed. */
bool rg_step_batch_failed(const rg_step_batch *l, int i);

#endif
