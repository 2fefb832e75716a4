/* qat.h -- quantization-aware training: matrices of layers lie on a grid in every forward pass, and what is trained is
 * the weights behind it, and its scales and zeros where they are learned.
 *
 * All other masters (embeddings, head, norms, routers) are frozen.  Once codes are fixed, scales alone are trained. */
#ifndef RG_TRAIN_QAT_H
#define RG_TRAIN_QAT_H

#include "train/grid.h"
#include "train/objective.h"
#include "train/stand_in.h"

typedef struct rg_qat rg_qat;

/* Of the matrices that are multiplied as they are stored; masters go on the grid at once.  scale_rate: of scales and
 * zeros, as a share of the learning rate.  NULL and *err: there is no such matrix, or no memory. */
rg_qat *rg_qat_new(rg_masters *m, const rg_grid *grid, double scale_rate, bool rest, rg_error *err);
void rg_qat_free(rg_qat *q); /* NULL is fine */

rg_stand_in rg_qat_stand_in(rg_qat *q);
/* Codes and zeros stay what they are now; of learned scales, these alone are trained from then on. */
bool rg_qat_fix_codes(rg_qat *q, rg_error *err) RG_MUST_CHECK;

int rg_qat_count(const rg_qat *q);
/* A matrix that is on the grid. */
typedef struct rg_qat_matrix {
    const char *name;
    int64_t rows, cols, groups; /* groups: of a row */
    const float *scale, *zero;  /* [rows, groups] */
    const uint8_t *code;        /* [rows, cols]; NULL before codes are fixed */
} rg_qat_matrix;
rg_qat_matrix rg_qat_at(const rg_qat *q, int i);
int rg_qat_find(const rg_qat *q, const char *name); /* -1: none */

/* ---- a block at a time ---- */

/* EfficientQAT's first stage (Chen et al. 2024): each layer in turn, its input being what the layers before it give on
 * the grid, its target what it gave before, on inputs of before; mean squared error.  Moments of one layer are in
 * memory. */
typedef struct rg_qat_blocks {
    const rg_backend *backend;
    rg_pool *pool;
    int n_threads;
    const rg_texts *texts;             /* all of them; rows of a step are taken in turn */
    int rows, steps;                   /* of a step; of a layer */
    double rate, floor;                /* the learning rate of weights, and the share of it at the end, by a cosine */
    const rg_train_settings *settings; /* AdamW's */
    void (*told)(void *arg, int layer, int step, double loss); /* of every step, before its update; or NULL */
    void *told_arg;
    bool (*stop)(void); /* true: save, and give up; or NULL */
    /* A checkpoint, written behind every layer and after every `save` steps of one; NULL: none.  resume: go on from it,
     * if it is there, to the same bits; it is refused if other settings or texts made it. */
    const char *saved;
    int save;
    bool resume;
} rg_qat_blocks;
bool rg_qat_train_blocks(rg_qat *q, rg_masters *m, const rg_qat_blocks *b, rg_error *err) RG_MUST_CHECK;

#endif
