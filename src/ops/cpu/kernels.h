/* kernels.h -- the table of CPU kernels, and the recipes they keep.
 *
 * ref/ fills the table with scalar C, which is the definition; each instruction set overwrites what it does better.
 * Every entry gives the bits of its ref/ twin, whatever the number of rows.  fma(a, b, c) below is the fused operation,
 * rounded once; anything else rounds each operation.  tree16 reduces 16 lanes: l[i] += l[i + 8] for i < 8, then + 4,
 * + 2, + 1.
 *
 * Exact recipe, of every layout: weights decoded to f32 as the format defines, four chains c[0..3] = 0 per output;
 * column k in rising order: c[k % 4] = fma(w[k], x[k], c[k % 4]); y = (c[0] + c[1]) + (c[2] + c[3]).
 *
 * A folded layout (ops/cpu/pack.h) is unfolded, then multiplied: its products are those of TK4, TK4H or Q2, in every
 * recipe.
 *
 * The others round x as well, each in its own way, and want a multiple of 32 columns (else a product is computed
 * exactly).  The table says which of them is `fast` for a layout.
 *
 * Int8 recipe, of the integer layouts: x rounded to int8 in blocks of 32 (quantize); acc = 0; for each run of the
 * layout (32 columns, or 16 in K2, K3, K6, T4N and TK4H) in rising order, isum = the exact sum of
 * (q - offset) * xq, then
 *     Q4, Q5, Q8, Q2 acc = fma((float)isum, d * xd, acc)
 *     Q4M, Q5M       the same, then acc = fma(m, xs, acc)
 *     K4, K5         acc = fma((float)isum, (d * s) * xd, acc), then acc = fma(-(e * t), xs, acc)
 *     K2             the same per run of 16, xs being that half's
 *     K3, K6         the same per run of 16, without the second line
 *     Z4, Z8         as Q4, with isum of (q - z) * xq
 *     T4 and others  acc = fma((float)isum, (scale * unit) * xd, acc), with isum of (byte[q] - 128) * xq; scale: d,
 *                    d * s, or (s * a) / b; unit (pack.h) is 1 but in T4F, whose values are no integers and so are
 *                    rounded to 8 bits here, under one scale for all
 * d, m, e are f16 decoded, or f32; s, t integers made f32, s of T4N e4m3; xs = xd * (float)(sum of xq over the run).
 * offset: Q4 8, Q5 16, Q2 1, Q8 128, K3 4, K6 32, the others 0.
 *
 * LLM.int8() (Dettmers et al. 2022), of the integer layouts: the int8 recipe with x rounded under one scale for the row
 * (quantize_row), where values of magnitude RG_OUTLIER and more, a row's outliers, count as 0; then, column k of each
 * of them in rising order, acc = fma(w[k], x[k], acc), w decoded as in the exact recipe; then acc + 0.0f: a zero is +0.
 * The paper finds the outlier columns of a batch; here a row has its own, so that it does not depend on its company.
 *
 * Bf16 recipes, of the layouts BF16 and F8: x rounded to bf16 (to nearest even, as store does).  F16 and F32 have
 * none: their weights would have to be rounded too: another file (`quantize`), or --recipe round16, which does that as
 * F16 is placed (model/weights.h).  (F16 whose values bf16 holds all lies as BF16: ops/cpu/narrow.h.)  Below fma and +
 * take a subnormal operand for a zero of its sign, and give one for a result that is less than 2^-126 once rounded to
 * 24 bits (DAZ and FTZ of x86, whatever its control register says).  Two processor features add up differently:
 *     pairs (VDPBF16PS)  four chains c[0..3] = 0; columns 2p and 2p + 1, p rising:
 *                        c[p % 4] = fma(w[2p], x[2p], fma(w[2p + 1], x[2p + 1], c[p % 4]));
 *                        y = (c[0] + c[1]) + (c[2] + c[3]), this sum an ordinary one
 *     tiles (TDPBF16PS)  y = 0; for each 32 columns in rising order: even = odd = 0; their 16 pairs rising:
 *                        even = fma(w[2p], x[2p], even), odd = fma(w[2p + 1], x[2p + 1], odd); y = y + (even + odd)
 * For F32 the recipe `rounded` is `pairs` with weights rounded to bf16 like x, subnormal ones being zeros of their sign
 * before: products of a training step in bf16, whose weights stay in f32.
 * For F8 either recipe gives the sum of each 128 columns, with w decoded without its scale: acc = 0; in rising order
 * acc = fma(that sum, d, acc), an ordinary one; y = acc. */
#ifndef RG_OPS_CPU_KERNELS_H
#define RG_OPS_CPU_KERNELS_H

#include "ops/backend.h"
#include "ops/cpu/pack.h"

/* 32 activations rounded to int8: xq[k] = rint(x[k] * (127 / amax)), ties to even; d = amax / 127; all 0 if amax is 0.
 * amax, the largest |x[k]|, is NaN where any x[k] is, and so is d then.  Before rint v = v < 127 ? v : 127, then
 * v = v > -127 ? v : -127 (matters for inf, NaN and amax below 4e-37 only).
 * The rest is what kernels want ready: products of the sums of xq (whole, and each half). */
typedef struct rg_xblock {
    int8_t q[32];
    float d, s, sh[2];      /* s = d * (float)sum; sh[i] = d * (float)sum of half i */
    int32_t neg8, neg128;   /* -8 * sum, -128 * sum */
    int32_t neg128h[2];     /* -128 * sum of half i */
} rg_xblock;

/* 32 activations as a recipe that rounds wants them. */
typedef union rg_rounded {
    rg_xblock int8;
    uint16_t bf16[32];
} rg_rounded;

typedef enum rg_recipe {
    RG_EXACT, RG_INT8, RG_BF16_PAIRS, RG_BF16_TILES, RG_BF16_ROUNDED, RG_LLM_INT8, RG_RECIPE_COUNT
} rg_recipe;

enum { RG_COLUMN_PANELS = 192 }; /* panels that a kernel of sparse products goes over at once */

#define RG_OUTLIER 6.0f /* of LLM.int8(), the paper's */

/* Neighbouring panels of one matrix by rows of x: y[r * ldy + 16 * i + k] = row k of panel i . row r of x. */
typedef struct rg_product {
    const uint8_t *panel;
    size_t panel_bytes; /* from one panel to the next; */
    size_t column_bytes; /* of a wide layout, from one column to the next */
    int n_panels, cols, m; /* m rows of x */
    int half; /* of a sparse product: which */
    const float *x;     /* of the exact recipe, rows ldx floats apart; */
    const rg_xblock *q; /* of int8, rows ldx blocks apart; */
    const uint16_t *h;  /* of the bf16 ones, rows ldx values apart */
    size_t ldx;
    float *y;
    size_t ldy;
    const uint8_t *next; /* what this thread is likely to multiply afterwards, and may fetch; NULL: not known */
    uint8_t *room; /* where panels of a folded matrix are unfolded: no kernel's affair */
} rg_product;

/* Neighbouring panels of a sketch (sketch.h) by one row of x: mid and off of 16 ids each. */
typedef struct rg_sketch_product {
    const uint8_t *panel;
    size_t panel_bytes;
    int n_panels, n_blocks;
    const rg_xblock *q; /* [n_blocks] */
    const float *norm;  /* [n_blocks] */
    float *mid, *off;   /* [n_panels][16] */
} rg_sketch_product;

/* Rows of sums, ld_from floats apart, to where they belong: rows of n values, ld_to apart. */
typedef struct rg_put {
    float *to;
    const float *from, *bias; /* bias: NULL: none */
    size_t ld_to, ld_from;
    int n_rows, n;
    bool accumulate;
} rg_put;

/* Some columns of neighbouring panels by rows of x that have a value for each of them; 0: the row does not meet the
 * column.  Columns rise. */
typedef struct rg_columns {
    const uint8_t *panel;
    size_t panel_bytes;
    int n_panels, n, m;
    const int32_t *col; /* [n] */
    const float *x;     /* m rows of n, ldx floats apart */
    size_t ldx;
    float *y;
    size_t ldy;
} rg_columns;

/* Some keys of one block of 64, seen by n queries of one kv head. */
typedef struct rg_attend {
    const float *const *q; /* [n] of [k_dim] */
    const float *columns;  /* of latents instead: [k_dim][16], a query in each column, n <= 16; else NULL */
    int n;
    /* Of the block: K [k_dim][64], V [64][v_dim] (rows v_stride values apart, of q4 a multiple of RG_KV_RUN).  Of
     * latents, which are f32, f16 or bf16 here, K is rows whose first v_dim values are V. */
    const void *k, *v;
    const uint16_t *k_scales, *v_scales; /* of q8 (kv.h): [runs of k_dim][64], [64][runs of v_dim] */
    rg_type type;        /* of both */
    int k_dim, v_dim, v_stride;
    uint64_t seen;       /* bit j: key j is; not 0 */
    float scale, cap;
    float below; /* of attention sparsity: the logarithm of its threshold, less than 0; 0: nothing is left out */
    bool looks;  /* only raise each query's top to its largest seen score: V is not read */
    const void *k_next, *v_next; /* of the next block, to be prefetched; NULL: there is none */
    bool fetch_to_l1;            /* as in rg_cpu */
    const uint16_t *k_scales_next, *v_scales_next;
    size_t next_step; /* of latents: k_next and v_next are halves of the next block as it is kept, and scores fetch so
                       * many bytes with 16 keys and four dimensions; 0: there is none */
} rg_attend;

/* The first seen key, and the last one and one more. */
static inline int rg_seen_lo(uint64_t seen)
{
    return __builtin_ctzll(seen);
}

static inline int rg_seen_hi(uint64_t seen)
{
    return RG_BLOCK - __builtin_clzll(seen);
}

/* Neighbours among the seen keys, from key *j on: *j becomes the first of them, and returned is the last and one more;
 * 0: there are none. */
static inline int rg_seen_run(uint64_t seen, int *j)
{
    uint64_t rest = *j < RG_BLOCK ? seen >> *j : 0, unseen;

    if (!rest)
        return 0;
    *j += __builtin_ctzll(rest);
    unseen = ~(seen >> *j);
    return unseen ? *j + __builtin_ctzll(unseen) : RG_BLOCK;
}

/* For each seen key j in rising order. */
#define RG_EACH_SEEN(j, seen)                                                                                          \
    for (int j = 0, j##_end; (j##_end = rg_seen_run(seen, &j)) > 0;)                                                   \
        for (; j < j##_end; j++)

/* Bytes of RG_KV_RUN values, without their scale (of q8). */
static inline size_t rg_kv_run_bytes(rg_type type)
{
    return type == RG_Q4_1 ? 20 : RG_KV_RUN * (type == RG_F32 ? 4 : type == RG_I8 ? 1 : 2);
}

/* What a block fetches of the next one with its next step, and with that after it; `step` bytes each: as many as it
 * reads itself, since many requests at once would wait for each other.  K and V by turns, so that the processor's own
 * prefetching, which ends with every page, runs ahead in two of them. */
typedef struct rg_coming {
    const uint8_t *now, *then;
    size_t step;
    bool to_l1;
} rg_coming;

/* From a block's step on, an even number, if a step takes n values of its K or V.  If there is no next block, what it
 * has itself is fetched: cheaper than to ask with every step. */
static inline rg_coming rg_coming_from(const rg_attend *a, rg_type type, size_t step, size_t n)
{
    const size_t bytes = n * rg_kv_run_bytes(type) / RG_KV_RUN, at = step / 2 * bytes;

    return (rg_coming){ (const uint8_t *)(a->k_next ? a->k_next : a->k) + at,
                      (const uint8_t *)(a->v_next ? a->v_next : a->v) + at, bytes, a->fetch_to_l1 };
}

static inline void rg_fetch_next(rg_coming *c)
{
    const rg_coming x = *c;

    for (size_t i = 0; i < x.step && x.to_l1; i += 64)
        __builtin_prefetch(x.now + i, 0, 3);
    for (size_t i = 0; i < x.step && !x.to_l1; i += 64)
        __builtin_prefetch(x.now + i, 0, 2);
    *c = (rg_coming){ x.then, x.now + x.step, x.step, x.to_l1 };
}

/* Its scales. */
static inline void rg_fetch_next_scales(const rg_attend *a)
{
    for (int i = 0; a->k_next && i < rg_kv_runs(a->k_dim) * RG_BLOCK; i += 32)
        __builtin_prefetch(a->k_scales_next + i, 0, 2);
    for (int i = 0; a->v_next && i < rg_kv_runs(a->v_dim) * RG_BLOCK; i += 32)
        __builtin_prefetch(a->v_scales_next + i, 0, 2);
}

/* Keys that an indexer scores for one row. */
typedef struct rg_index {
    const float *q, *weights; /* [n_heads][k_dim], [n_heads] */
    int n_heads, k_dim;
    const float *const *keys; /* [n] of [k_dim] */
    int n;
} rg_index;

/* Running softmax of one query: m = -inf, l = 0, o = 0 at the start of a segment. */
typedef struct rg_softmax {
    float m, l;
    float *o; /* [v_dim] */
    float top; /* of attention sparsity: a score that the row is known to have besides, -inf: none; else not read */
} rg_softmax;

/* One row of a linear recurrence, of one head: q, k, decay, a, b [k_dim], v and y [columns of the head]. */
typedef struct rg_recurrence_row {
    const float *q, *k, *v, *decay;
    const float *a, *b; /* b NULL: nothing is removed; a NULL: the delta rule */
    float beta, skip;   /* skip 0: y is q . S alone */
    float *y;           /* NULL: only the state advances (replay); q is not read then */
} rg_recurrence_row;

/* Rows of one sequence over one tile of a head's state, s [k_dim][cols], which holds columns [first, first + cols) of
 * the head, cols <= RG_STATE_TILE. */
typedef struct rg_recurrence {
    float *s;
    int k_dim, first, cols, n_rows;
    float scale;
    const rg_recurrence_row *row;
} rg_recurrence;

/* State spaces of some channels: rows of x are ldx apart, rows of m ldm; for each mode m holds E, B, C and, of the full
 * form, R and F, as rg_state_space has them. */
typedef struct rg_modes {
    float *x; /* [2 * n_modes] */
    const float *m, *d;
    size_t ldx, ldm;
    int n_modes;
    bool full;
} rg_modes;

/* What one row of the RG-LRU is made of; a and b are written. */
typedef struct rg_lru_row {
    const float *x, *r, *i, *rate, *b_r, *b_i;
    bool first; /* position of a sequence */
    float *a, *b;
} rg_lru_row;

typedef struct rg_cpu {
    const char *isa;
    bool fetch_to_l1; /* K and V that come next are fetched to L1, not to L2, which some processors do much faster */

    /* By recipe and layout; NULL where the recipe is not for the layout, for folded layouts, and of RG_LLM_INT8, which
     * is the product of RG_INT8 and then add_columns. */
    void (*product[RG_RECIPE_COUNT][RG_LAYOUT_COUNT])(const rg_product *p);
    /* Of f32 in the host's memory, not rounded, by the exact recipe; to add, y = y + that. */
    void (*matrices)(const rg_host_product *p);
    /* Of the wide layouts, of one row of x (m 1), half of a product that leaves out the columns where x is 0, whose
     * weights are not read: y = c[2 * half] + c[2 * half + 1], the chains as in the exact recipe.  With weights that
     * are numbers, (half 0 + half 1) + 0.0f is the exact product + 0.0f. */
    void (*sparse[RG_LAYOUT_COUNT])(const rg_product *p);
    /* By layout: what `fast` is here.  RG_EXACT: nothing else. */
    rg_recipe fast[RG_LAYOUT_COUNT];
    /* As rg_unfold (ops/cpu/pack.h). */
    void (*unfold)(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to);
    /* Over the blocks b, rising, a = o = 0: a = fma((float)isum, (float)d * xd, a), isum = the exact sum of
     * (q - 8) * xq; o = fma((float)e, norm, o).  mid = a * head.d, off = o * head.e. */
    void (*sketch)(const rg_sketch_product *p);
    bool sketches; /* it goes as fast as memory: a sketch can pay */
    /* n: a multiple of 32. */
    void (*quantize)(const float *x, int n, rg_xblock *out);
    /* The same under one amax for all n values: the largest |x[k]| that is no outlier; an outlier's q is 0, and its
     * bit, of a word for each block, is set. */
    void (*quantize_row)(const float *x, int n, rg_xblock *out, uint32_t *outliers);
    /* Of the integer layouts, for y[r * ldy + 16 * p + k] = y: y = fma(w, x[r * ldx + i], y) for each i where that x is
     * not 0, rising, w being column col[i] of row k of panel p, as the exact recipe decodes it; then y = y + 0.0f. */
    void (*add_columns[RG_LAYOUT_COUNT])(const rg_columns *c);

    /* 16 lanes, lane k % 16 = fma(x[k], x[k], lane); r = 1 / sqrt(tree16 / n + eps); y = (x * r) * w.  Without w (NULL)
     * x * r. */
    void (*rmsnorm)(float *y, const float *x, const float *w, int n, float eps);
    /* The same lanes; r = 1 / sqrt(tree16 + eps); y = x * r. */
    void (*l2norm)(float *y, const float *x, int n, float eps);
    /* 16 lanes, lane k % 16 += x[k]; mean = tree16 / n; again 16 lanes, d = x[k] - mean, lane = fma(d, d, lane);
     * r = 1 / sqrt(tree16 / n + eps); y = fma(d * r, w, b).  Without b (NULL) (d * r) * w; without w, which goes only
     * without b, d * r. */
    void (*layernorm)(float *y, const float *x, const float *w, const float *b, int n, float eps);
    /* y = y * (sqrt(sx / n) / sqrt(v > floor ? v : floor)), v = sy / n; sx and sy are the sums of squares of x and y,
     * in lanes as rmsnorm's. */
    void (*match_rms)(float *y, const float *x, int n, float floor);
    /* y = relu(x - c), c = fma(sqrt(v), k, mean); mean and v, the mean of squares around it, as in layernorm. */
    void (*cut)(float *y, const float *x, int n, float k);
    void (*put)(const rg_put *p); /* v = from[i] + bias[i]; to[i] = v, or to[i] + v to accumulate */
    void (*add)(float *y, const float *x, int n);                 /* y += x */
    void (*mul)(float *y, const float *x, int n);                 /* y *= x */
    void (*scale)(float *y, const float *x, float a, int n);      /* y = x * a */
    void (*axpy)(float *y, float a, const float *x, int n);       /* y = fma(a, x, y) */
    void (*act[RG_ACTIVATIONS])(float *y, const float *x, int n); /* y = act(x) */
    /* y = act(g) * u; of RG_SWIGLU_CLAMPED g' sigmoid(1.702 g') * (u' + 1), g' = min(g, 7), u' = clamp(u, -7, 7). */
    void (*act_mul[RG_ACTIVATIONS])(float *y, const float *g, const float *u, int n);
    void (*softcap)(float *x, float cap, int n);
    /* One head: cos and sin [n_pairs]; a' = a c - b s, b' = b c + a s, as fma(a, c, -(b * s)), fma(b, c, a * s). */
    void (*rotate)(float *x, const float *cosine, const float *sine, int n_pairs, bool interleaved);

    /* One block, each query by itself, s[n].  s_j = scale * (chain over d: fma(q[d], k[d][j], .) from 0), capped if
     * cap > 0; with M = max(m, max s_j), c = exp(m - M) (0 if m is -inf), p_j = exp(s_j - M):  l = fma(l, c, tree16 of
     * lanes p[i] + p[16+i] + p[32+i] + p[48+i] left to right, unseen p being 0);  o[d] = o[d] * c, then for seen j
     * rising: fma(p_j, v[j][d], o[d]); m = M.  Unseen keys enter nothing.  In M scores that are NaN are passed
     * over, an m that is NaN stays, and where M would be -inf, so that no score is a number, it is NaN: then l and o
     * are.
     *
     * With `below` (attention sparsity) a query whose seen scores are all less than max(m, top) + below leaves m, l and
     * o as they are, and does not read V: in a softmax over scores up to that maximum each of these keys has a weight
     * below exp(below).  A score that is NaN is less than nothing. */
    void (*attend)(const rg_attend *a, rg_softmax *s);
    /* Later segment b into a: M = max; x = exp(a.m - M), y = exp(b.m - M); l = fma(a.l, x, b.l * y), o likewise.  A
     * side whose m is -inf is left out (the other is taken as it is). */
    void (*merge)(rg_softmax *a, const rg_softmax *b, int v_dim);

    /* score[j] = chain over h: fma(weights[h], relu(d), .) from 0, relu(d) 0 unless d > 0; d = tree16 of 16 lanes, lane
     * i % 16 = fma(q[h][i], keys[j][i], lane). */
    void (*index_scores)(float *score, const rg_index *x);

    /* One row of Mamba's recurrence over channels [0, n) of h and a, whose rows are ldh and lda apart: dt already
     * softplus-ed; for s in 0 .. d_state - 1: h[s] = fma(exp(dt * a[s]), h[s], (dt * B[s]) * x); acc = fma(C[s], h[s],
     * acc) from 0; y = fma(D, x, acc) * silu(z).  y NULL: only the state advances (replay). */
    void (*scan_row)(float *h, size_t ldh, const float *a, size_t lda, int d_state, int n, const float *x,
                     const float *dt, const float *b, const float *c, const float *d, const float *z, float *y);
    /* One row of n channels; chains go over the modes, rising, real part first.  X and Y are the parts of x:
     *     full: q = chain: fma(R1, Y, fma(R0, X, .)) from 0
     *     X' = fma(B0, u, fma(E0, X, -(E1 * Y))), Y' = fma(B1, u, fma(E0, Y, E1 * X)); full: then fma(F, q, .)
     *     y = fma(d, u, chain: fma(C1, Y', fma(C0, X', .)) from 0); y NULL: only the state advances (replay) */
    void (*modes_row)(const rg_modes *s, int n, const float *u, float *y);
    /* l = rate * sigmoid(r + b_r); a = exp(l); b = (sqrt(1 - exp(l + l)) * sigmoid(i + b_i)) * x; first: without the
     * root. */
    void (*lru_gates)(const rg_lru_row *g, int n);
    void (*lru_row)(float *h, const float *a, const float *b, int n); /* h = fma(a, h, b) */
    /* y[c] = chain over j: fma(w[j * n + c], in[j][c], .) from bias[c] (0 if NULL). */
    void (*conv_row)(float *y, const float *const *in, const float *w, const float *bias, int d_conv, int n);
    /* Rows one after the other, each column by itself (c of the tile is first + c of v and y); chains go over i from 0
     * to k_dim - 1.
     *     r = chain: fma(b[i], s[i][c], .) from 0, where there is b
     *     u = beta * (v[c] - r) with b and no a, else beta * v[c]
     *     s[i][c] = fma(k[i], u, t),  t = fma(a[i], r, decay[i] * s[i][c]) with a, else decay[i] * s[i][c]
     *     y[c] = scale * (chain: fma(q[i], s[i][c], .) from 0); with skip fma(skip, v[c], that) */
    void (*recur)(const rg_recurrence *p);

    /* n values of one position and head into the type of K/V and out of it: from one value to the next, and from one
     * scale (of q8) to the next, it is `stride`; load takes them side by side. */
    void (*store)(void *to, uint16_t *scales, rg_type type, size_t stride, const float *x, int n);
    void (*load)(float *y, const void *from, const uint16_t *scales, rg_type type, int n);
    /* For q4: make the closed part of a head's block from its open part. */
    void (*close)(const rg_kv *kv, int head, const uint8_t *open, uint8_t *closed);
    /* A block's K and V as f32: k [k_dim][64], v [64][v_dim]; worth it for so many queries. */
    void (*widen)(float *k, float *v, const rg_attend *a);
    int widen_from;

    /* For `ridge machine`: run about n multiply-adds (of f32, int8 or bf16) from registers, all lanes counted;
     * returns how many were done.  NULL: this instruction set has none of its own kind. */
    double (*peak_f32)(double n);
    double (*peak_int8)(double n);
    double (*peak_bf16)(double n);
    /* Read n bytes, as fast as it goes; returns a number that depends on all of them. */
    uint64_t (*stream)(const void *p, size_t n);
    const rg_loops *loops;
} rg_cpu;

/* The i-th instruction set that this machine has, best last; NULL past the end.  The 0-th is "ref". */
const rg_cpu *rg_cpu_nth(int i);

/* Limits of the recurrence that the reader computes: taps of its convolution, and states per channel; and of the keys
 * that an indexer chooses, and their size. */
enum { RG_MAX_CONV = 16, RG_MAX_STATE = 1024, RG_MAX_CHOSEN = 32768, RG_MAX_INDEX_DIM = 1024 };
/* False and *err: no kernel can compute this operation of a layer. */
bool rg_cpu_can(int layer, const rg_op *op, rg_error *err);

/* The reader that computes.  Its kernels and scratch; one per engine, shared by the threads of a step. */
typedef struct rg_cpu_reader rg_cpu_reader;
rg_cpu_reader *rg_cpu_reader_new(const rg_cpu *cpu, const rg_reader_sizes *sizes, rg_error *err);
/* Make the sketch of sizes->head, where that pays, or, if `always`, can be.  Without memory for it there is none. */
void rg_cpu_reader_sketch(rg_cpu_reader *r, bool always);
/* What was left out of logits so far: rows of them that were screened, panels of 16 ids that these have together, and
 * those that were computed. */
typedef struct rg_screen_counts {
    uint64_t n_rows, n_panels, n_computed;
} rg_screen_counts;
rg_screen_counts rg_cpu_screen_counts(const rg_cpu_reader *r);
void rg_cpu_reader_free(rg_cpu_reader *r);
const rg_reader *rg_cpu_reader_of(rg_cpu_reader *r);

#endif
