/* kv.h -- how K and V are kept: their types, and where everything of a position lies in a block.
 *
 * A layer's part of a block holds RG_BLOCK positions.  Each of these for all kv heads before the next begins:
 *
 *     K            [k_dim][RG_BLOCK]          keys side by side for scores,
 *     V            [RG_BLOCK][v_dim]          dimensions side by side for sums
 *     K's scales   [runs of k_dim][RG_BLOCK]  bf16, only of q8
 *     V's scales   [RG_BLOCK][runs of v_dim]
 *
 * Latent (MLA): rows [RG_BLOCK][k_dim], V being the first v_dim values of each, then the scales [RG_BLOCK][runs of
 * v_dim, runs of the rest].
 *
 * q8: values in 8 bits, and a scale for every run of 32 values of a position and head (the last may be shorter).  Of a
 * run whose largest magnitude is amax, d is amax / 127 rounded up to bf16, or 0 if that is below 2^-126; q = rint(x *
 * (1 / d)), ties to even, or 0 if d is 0.  A run with an inf or a NaN has q = 0 and d = NaN: so a broken value stays
 * visible.  The value is q * d, 7 bits by 8, hence exact in f32.  So q8 needs no recipe of its own: attention over it
 * is attention over f32 that holds these products, to the bit, wherever a kernel makes them.  1.0625 bytes a value;
 * none is off by more than d / 2, 1/253 of amax.
 *
 * q4: keys in 4 bits by channel, values by token (KIVI, Liu et al. 2024).  A row reads its own block as f32 and the
 * blocks before it in 4 bits, so what it reads depends on its place alone.  A layer has two parts in two groups:
 * *open*, laid out as of f32, of the block that rows to come will share; and *closed*, of all blocks, which is made of
 * the open part whenever a block's last position is stored:
 *
 *     K            [k_dim][2 runs of 32 positions]
 *     V            [RG_BLOCK][runs of v_dim]
 *     latent       [RG_BLOCK][runs of v_dim, runs of the rest], by token
 *
 * A run is a block of Q4_1 (quant/q4_1.h): 20 bytes for 32 values or, at a row's end, fewer.  Of its values lo is the
 * least, d = (the largest - lo) / 15; q = rint(min((x - lo) / d, 15)), ties to even, 0 if d is 0; d and lo are kept as
 * f16.  A run with an inf, a NaN or a value beyond f16 has lo = NaN.  The value is q * d + lo: the product is exact,
 * the sum is rounded once.  0.625 bytes a value. */
#ifndef RG_OPS_KV_H
#define RG_OPS_KV_H

#include "ops/batch.h"

/* Where one layer's K/V lies in a block of its group. */
typedef struct rg_kv {
    int group;
    size_t offset;
    rg_type type; /* of a value: F32, F16, BF16, I8, which is q8, or Q4_1, which is q4 */
    int n_heads, k_dim, v_dim;
    bool latent;  /* n_heads is 1 */
    int open_group; /* of q4: where the open part lies; group and offset are the closed part's */
    size_t open_offset;
    const struct rg_kv *here; /* what this rank keeps of it, heads from first_here on; NULL: all of it */
    int first_here;
} rg_kv;

enum { RG_KV_RUN = 32 }; /* values under one scale */

static inline int rg_kv_runs(int n)
{
    return (n + RG_KV_RUN - 1) / RG_KV_RUN;
}

/* Every name, for messages. */
#define RG_KV_NAMES "f32, f16, bf16, q8 or q4"
/* "q8"; NULL: not a type of K/V. */
const char *rg_kv_name(rg_type type);
bool rg_kv_type_by_name(const char *name, rg_type *type);
double rg_kv_value_bytes(rg_type type); /* of a value and its part of a scale */
size_t rg_kv_bytes(const rg_kv *kv);    /* of one block, one layer */

/* The first values and scales (NULL where the type has none) of one position and head.  K's are RG_BLOCK apart, V's
 * side by side.  Latent: k is the first v_dim values of the row, v the rest, both side by side. */
typedef struct rg_kv_place {
    uint8_t *k, *v;
    uint16_t *k_scales, *v_scales;
} rg_kv_place;

/* part: the layer's, in its block.  K of a closed part has no single positions: there it is that of position 0. */
rg_kv_place rg_kv_at(const rg_kv *kv, uint8_t *part, int head, int position);
/* They may be the same; of no closed part. */
void rg_kv_copy(const rg_kv *kv, rg_kv_place from, rg_kv_place to);

/* What is at k, and at v. */
static inline int rg_kv_k_values(const rg_kv *kv)
{
    return kv->latent ? kv->v_dim : kv->k_dim;
}

static inline int rg_kv_v_values(const rg_kv *kv)
{
    return kv->latent ? kv->k_dim - kv->v_dim : kv->v_dim;
}

/* ---- q4 ---- */

static inline bool rg_kv_has_open(const rg_kv *kv)
{
    return kv->type == RG_Q4_1;
}

/* The open part as K/V of its own, of f32; what has none: itself. */
rg_kv rg_kv_open(const rg_kv *kv);
/* Make the closed part of a whole block from its open part. */
void rg_kv_close(const rg_kv *kv, const uint8_t *open, uint8_t *closed);

/* From one value at k to the next. */
static inline size_t rg_kv_k_stride(const rg_kv *kv)
{
    return kv->latent ? 1 : RG_BLOCK;
}

#endif
