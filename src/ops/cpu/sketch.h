/* sketch.h -- a coarse copy of the head: about 4.5 bits a weight, and for every 32 columns of a row how far they are
 * from the weights.
 *
 * From a sketch follow two numbers for each row of logits and each id, `mid` and `off`, so that the logit that the full
 * product gives lies within [mid - off, mid + off].  screen.c leaves out the ids whose mid + off is too low. */
#ifndef RG_OPS_CPU_SKETCH_H
#define RG_OPS_CPU_SKETCH_H

#include "ops/cpu/kernels.h"

/* A panel of 16 rows: its head; scales for every 32 columns; and, from a cache line on, codes for every 32 columns. */
typedef struct rg_sketch_head {
    float d[16], e[16];
} rg_sketch_head;

typedef struct rg_sketch_scales {
    uint8_t d[16], e[16]; /* of row i: its scale is d[i] * head.d[i]; its error is at most e[i] * head.e[i] */
} rg_sketch_scales;

typedef struct rg_sketch_codes {
    uint8_t q[4][16][4]; /* as in rg_step_q4; 8 is taken off */
} rg_sketch_codes;

static inline const rg_sketch_scales *rg_sketch_scales_of(const uint8_t *panel)
{
    return (const rg_sketch_scales *)(const void *)(panel + sizeof(rg_sketch_head));
}

static inline size_t rg_sketch_codes_at(int n_blocks)
{
    const size_t end = sizeof(rg_sketch_head) + (size_t)n_blocks * sizeof(rg_sketch_scales);

    return (end + RG_ALIGN - 1) / RG_ALIGN * RG_ALIGN; /* fits: end is that of a panel in memory */
}

static inline const rg_sketch_codes *rg_sketch_codes_of(const uint8_t *panel, int n_blocks)
{
    return (const rg_sketch_codes *)(const void *)(panel + rg_sketch_codes_at(n_blocks));
}

typedef struct rg_sketch {
    uint8_t *data; /* [n_panels] of panel_bytes, rg_region */
    size_t panel_bytes, bytes;
    int n_panels, n_blocks, cols;
    float *center;     /* [cols] about the mean of all rows, which is taken off each */
    double longest;    /* no |row| + |center| is longer */
    const float *bias; /* [rows], of the head; NULL: none.  Borrowed */
} rg_sketch;

/* Make a sketch of matrix 0 of w, on n_threads of its own: other models' steps run on the host's pool meanwhile.  NULL:
 * there is no memory. */
rg_sketch *rg_sketch_new(const rg_packed *w, int n_threads);
void rg_sketch_free(rg_sketch *s); /* NULL is fine */

/* True if a sketch can be made, and saves at least an eighth of all bytes of weights that a step reads. */
bool rg_sketch_pays(const rg_packed *w, size_t all_bytes);

/* What a row of x brings to every id. */
typedef struct rg_sketch_row {
    const rg_xblock *q;  /* [n_blocks] x rounded to int8 */
    float *norm;         /* [n_blocks] the length of each of these blocks, or a little more */
    double shift, slack; /* mid = sums * d + shift, off = sums * e + slack */
} rg_sketch_row;

/* Fill in norm, shift and slack for a row that the recipe's product rounds.  False: not all is finite and small enough
 * to be sure of, and all logits are to be computed. */
bool rg_sketch_read_row(const rg_sketch *s, rg_recipe recipe, const float *x, rg_sketch_row *row);

static inline const uint8_t *rg_sketch_panel(const rg_sketch *s, int i)
{
    return s->data + (size_t)i * s->panel_bytes;
}

#endif
