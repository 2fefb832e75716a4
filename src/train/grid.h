/* grid.h -- fake quantization: weights as the values that codes of a few bits stand for, and the gradient through the
 * rounding, straight through (Bengio et al. 2013).
 *
 * Columns of a row are taken in groups, each with a scale of its own.  Scales of the first three kinds follow from the
 * weights, as the formats make them, and have no gradient; those of the last two, and zeros, are trained. */
#ifndef RG_TRAIN_GRID_H
#define RG_TRAIN_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum rg_grid_kind {
    RG_GRID_Q4_0,   /* GGUF's: 16 codes, the largest value at an end */
    RG_GRID_Q8_0,   /* GGUF's */
    RG_GRID_INT,    /* codes -2^(b-1) .. 2^(b-1) - 1, scale max|w| / (2^(b-1) - 1) */
    RG_GRID_LSQ,    /* the same codes, the scale learned (Esser et al. 2019) */
    RG_GRID_AFFINE, /* codes 0 .. 2^b - 1, scale and zero learned (EfficientQAT, Chen et al. 2024) */
} rg_grid_kind;

typedef struct rg_grid {
    rg_grid_kind kind;
    int bits;      /* 2 .. 8 */
    int64_t group; /* columns */
    bool by_mean;  /* LSQ's scale begins as in its paper, from the mean; too coarse for small groups */
} rg_grid;

static inline bool rg_grid_learns_scale(const rg_grid *g)
{
    return g->kind == RG_GRID_LSQ || g->kind == RG_GRID_AFFINE;
}

/* One group of n weights: what is trained besides them. */
typedef struct rg_grid_group {
    float scale, zero; /* zero: 0 where the kind has none */
} rg_grid_group;

/* The scale and zero with which training begins: LSQ's from the largest value (or by_mean), affine ones from the
 * range. */
rg_grid_group rg_grid_begin(const rg_grid *g, const float *w, int64_t n);
/* value [n]: what codes stand for.  Of kinds without a learned scale, *of becomes the one that the format has.
 * code [n] (NULL: not wanted): 0 .. 2^bits - 1, and the value is (code - zero point) * scale; the zero point is
 * 2^(bits - 1), of affine kinds round(of->zero). */
void rg_grid_round(const rg_grid *g, const float *w, int64_t n, rg_grid_group *of, float *value, uint8_t *code);
/* From the gradient of the values: d_w [n] is set; *d_of is set, 0 where nothing is learned. */
void rg_grid_back(const rg_grid *g, const float *w, int64_t n, const rg_grid_group *of, const float *d_value,
                  float *d_w, rg_grid_group *d_of);
/* The value of a code. */
float rg_grid_value(const rg_grid *g, uint8_t code, const rg_grid_group *of);

#endif
