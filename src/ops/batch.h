/* batch.h -- the one shape of a step: spans of rows, flat.
 *
 * Prefill is a long span, decode a span of 1, verifying a draft a span of 1 + k, a chunked prefill a span cut short, a
 * diffusion block or an encoder a bidirectional span.  There is no phase flag.  It stands on this floor because
 * attention and scans walk spans; everything else sees one flat matrix of rows.  All arrays are borrowed for the
 * step. */
#ifndef RG_OPS_BATCH_H
#define RG_OPS_BATCH_H

#include "base/noise.h"
#include "quant/quant.h"

enum {
    RG_BLOCK = 64,      /* positions of a block of state, and of a chunk of a recurrence */
    RG_SEGMENT = 1024,  /* keys whose partial attention is merged as one */
    RG_MAX_DRAFT = 127, /* draft rows of a span */
    RG_MAX_GROUPS = 16, /* kinds of state in one model */
};

/* Rows [first_row, first_row + n_rows) are positions of one sequence, whose state holds `start` positions. */
typedef struct rg_span {
    int32_t first_row, n_rows;
    int32_t start;    /* index of its first row */
    int32_t n_draft;  /* its last rows that may yet be rolled back; recurrent state is not advanced by them */
    int32_t n_replay; /* draft rows of the last step that were accepted: a recurrence folds them in first */
    int32_t adapter;  /* -1: none */
    int32_t second;   /* of a pair of texts: the position where the second begins, whose rows are of token type 1; 0:
                       * all are of type 0 */
    int32_t rope;     /* which variant of each rope its rows use (ops.h); fixed at admission */
    /* Per state group, the sequence's block table: number of the block that holds positions [64 b, 64 b + 64), -1 where
     * released.  The table of a group that keeps state per sequence has one entry, the sequence's slot. */
    const int32_t *tables[RG_MAX_GROUPS];
} rg_span;

/* True if the slot holds no row yet: an operation that keeps state per sequence starts from zero then, whatever the
 * slot held before. */
static inline bool rg_span_is_fresh(const rg_span *s)
{
    return s->start == s->n_replay;
}

/* How far the rows of a model see: to the end of their block of so many positions.  RG_CAUSAL: to themselves.
 * RG_SEES_ALL: to the end of their sequence. */
enum { RG_SEES_ALL = 0, RG_CAUSAL = 1 };

/* The kv_end of the row at `index` of a sequence of n positions. */
static inline int32_t rg_kv_end(int32_t sees, int32_t index, int32_t n)
{
    int64_t end = sees ? ((int64_t)index / sees + 1) * sees : n;

    return end < n ? (int32_t)end : n;
}

/* Rows [first, first + n) of a step. */
typedef struct rg_rows {
    int32_t first, n;
} rg_rows;

/* What is drawn from a wanted row of logits.  A back end may leave out ids that cannot be drawn: their logit is
 * RG_LEFT_OUT then, and that of any id that can be drawn is what it would be if all were wanted. */
typedef struct rg_pick {
    int32_t k; /* the ids whose logits are among the k largest can be drawn, equal ones included; 0: any id can */
    /* Not 0, with k 1: so can those for which logit / temperature + noise is the largest, or may be so once it is
     * rounded. */
    float temperature;
    rg_noise_key key;
} rg_pick;

enum { RG_MOST_PICKED = 128 }; /* of k */
#define RG_LEFT_OUT (-1e30f)   /* finite, so that it is not taken for a fault */

typedef struct rg_batch {
    int32_t n_rows, n_spans;
    const rg_span *spans;      /* in row order, covering all rows */
    const int32_t *token;      /* [n_rows]; -1: the row is given */
    /* NULL: no row is given.  Else [n_rows], read where the token is -1: what stands in place of that row of the
     * embedding, as many numbers as the table has columns. */
    const float *const *given;
    /* [n_rows, feature_cols] what is read beside tokens: of its target, by a network that drafts; of an earlier
     * evaluation, by a model that conditions itself (rg_soften).  NULL: nothing. */
    const float *features;
    int32_t feature_cols;
    const int32_t *index;      /* [n_rows] place in the sequence */
    const int32_t (*pos)[4];   /* [n_rows] for rope; one component used by plain rope */
    const int32_t *kv_end; /* [n_rows] sees keys [.., kv_end): index + 1 if causal, its block's end if bidirectional */
    const int32_t *slot;   /* [n_rows] where its K/V is put; NULL: at index.  Differs for rows of a draft tree only */
    /* NULL, or [n_rows], each NULL or (for a row of a draft tree) the slots of its logical positions
     * [span start + n_rows - n_draft, index], itself last. */
    const int32_t *const *ancestors;
    int32_t n_logits;          /* rows whose logits are wanted, in row order */
    const int32_t *logit_rows;
    const float *temperatures; /* [n_logits], above 0: by which the model softens its own answers, to condition itself
                                * in a later step; NULL: that is not wanted */
    const rg_pick *picks;      /* [n_logits]; NULL: all logits of each row are wanted */
    int32_t n_hidden;          /* runs of rows whose hidden state after the final norm is wanted, in row order */
    const rg_rows *hidden;
    /* [n_rows], 0 before the step: not 0 after it for a row that could not be computed, since weights that it needs
     * could not be read.  NULL: all weights are in memory. */
    uint8_t *failed;
    int32_t n_scores;          /* runs of rows, in row order, each within a span: scores of the mean hidden state of
                                * each are wanted */
    const rg_rows *scores;
} rg_batch;

#endif
