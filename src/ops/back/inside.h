/* inside.h -- what the files of backward operations share: sums over rows in a fixed order, products, scratch. */
#ifndef RG_OPS_BACK_INSIDE_H
#define RG_OPS_BACK_INSIDE_H

#include "base/mem.h"
#include "ops/back/back.h"

enum { RG_BACK_ROWS = 64 }; /* rows that one part goes over, and that are summed together */

static inline int rg_back_min(int a, int b)
{
    return a < b ? a : b;
}

/* n floats to whole lines of 64 bytes. */
static inline size_t rg_back_whole(size_t n)
{
    return (n + 15) / 16 * 16; /* fits: so many values are in memory, or will be refused */
}

static inline int rg_back_blocks(int rows)
{
    return rg_ceil_div(rows, RG_BACK_ROWS);
}

/* n floats aligned to 64 bytes, not zeroed, until the scratch is given back to a mark.  NULL: no memory, and the lane
 * has failed. */
float *rg_back_room(rg_back_lane *l, size_t n);
static inline rg_back_mark rg_back_marked(const rg_back_lane *l)
{
    return (rg_back_mark){ l->piece, l->used };
}
static inline void rg_back_give(rg_back_lane *l, rg_back_mark m)
{
    l->piece = m.piece;
    l->used = m.used;
}
static inline float *rg_back_zeros(rg_back_lane *l, size_t n)
{
    float *p = rg_back_room(l, n);

    for (size_t i = 0; p && i < n; i++)
        p[i] = 0.0f;
    return p;
}

/* Call part(arg, first, n, block, thread) for blocks of RG_BACK_ROWS rows. */
typedef void rg_back_rows_fn(void *arg, int first, int n, int block, int thread);
void rg_back_each_rows(const rg_back_lane *l, int rows, rg_back_rows_fn *part, void *arg);

/* sum[c] += the sum over blocks of part[block][c], in their order. */
void rg_back_fold(float *sum, const float *part, int n_blocks, int n);
/* sum[c] += the sum over rows of x[r, c]. */
void rg_back_sum_rows(rg_back_lane *l, float *sum, const rg_mat *x);

/* y[i, j] = or += the sum over k of a(i, k) b(k, j); a is [m, k], or stored turned as [k, m]; b is [k, n], or stored
 * turned as [n, k].  Added in blocks of RG_GEMM_DEPTH of k, in order. */
typedef struct rg_gemm {
    int m, n, k;
    const float *a, *b;
    float *y;
    size_t lda, ldb, ldy;
    bool a_turned, b_turned, add;
} rg_gemm;

enum { RG_GEMM_DEPTH = 1024, RG_GEMM_ROWS = 96, RG_GEMM_PANELS = 8, RG_GEMM_MOST = 3 };

/* By all threads, in the lane's arithmetic.  Of several, neighbours with the same right operand share what is laid of
 * it, and all have the same y, of the same m and n, to which they are added in order, or different ones. */
void rg_gemm_run(rg_back_lane *l, const rg_gemm *g);
void rg_gemm_run_all(rg_back_lane *l, const rg_gemm *g, int n);
/* By the calling thread alone, in scratch of rg_gemm_room floats for the largest one. */
size_t rg_gemm_room(int m, int n, int k);
void rg_gemm_here(const rg_back_lane *l, const rg_gemm *g, float *scratch);

/* ---- reductions in RG_BACK_LANES lanes, lane i % RG_BACK_LANES, which are added in order: processors do them side by
 * side ---- */

enum { RG_BACK_LANES = 8 };

static inline double rg_back_fold_lanes(const double l[RG_BACK_LANES])
{
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

/* The sum of x[i], or of x[i] y[i], in double. */
static inline double rg_back_sum(const float *x, int n)
{
    double l[RG_BACK_LANES] = { 0 };
    int i = 0;

    for (; i + RG_BACK_LANES <= n; i += RG_BACK_LANES)
        for (int k = 0; k < RG_BACK_LANES; k++)
            l[k] += (double)x[i + k];
    for (; i < n; i++)
        l[i % RG_BACK_LANES] += (double)x[i];
    return rg_back_fold_lanes(l);
}

static inline double rg_back_dot(const float *x, const float *y, int n)
{
    double l[RG_BACK_LANES] = { 0 };
    int i = 0;

    for (; i + RG_BACK_LANES <= n; i += RG_BACK_LANES)
        for (int k = 0; k < RG_BACK_LANES; k++)
            l[k] += (double)x[i + k] * (double)y[i + k];
    for (; i < n; i++)
        l[i % RG_BACK_LANES] += (double)x[i] * (double)y[i];
    return rg_back_fold_lanes(l);
}

/* The largest of `most` and x[i]; NaN is passed over. */
static inline float rg_back_max(const float *x, int n, float most)
{
    float l[RG_BACK_LANES];
    int i = 0;

    for (int k = 0; k < RG_BACK_LANES; k++)
        l[k] = most;
    for (; i + RG_BACK_LANES <= n; i += RG_BACK_LANES)
        for (int k = 0; k < RG_BACK_LANES; k++)
            l[k] = x[i + k] > l[k] ? x[i + k] : l[k];
    for (; i < n; i++)
        l[0] = x[i] > l[0] ? x[i] : l[0];
    for (int k = 1; k < RG_BACK_LANES; k++)
        l[0] = l[k] > l[0] ? l[k] : l[0];
    return l[0];
}

/* The first row of span s, and rows. */
static inline const rg_span *rg_back_span(const rg_back *b, int s)
{
    return &b->batch->spans[s];
}

/* Rows of the longest sequence. */
static inline int rg_back_longest(const rg_back *b)
{
    int most = 0;

    for (int s = 0; s < b->batch->n_spans; s++)
        most = b->batch->spans[s].n_rows > most ? b->batch->spans[s].n_rows : most;
    return most;
}

extern rg_back_fn rg_back_embed, rg_back_embed_positions, rg_back_embed_types, rg_back_features, rg_back_gather,
    rg_back_mean_rows;
extern rg_back_fn rg_back_linear, rg_back_linear_heads;
extern rg_back_fn rg_back_add, rg_back_mul, rg_back_scale, rg_back_scale_columns, rg_back_scale_by_position;
extern rg_back_fn rg_back_softcap, rg_back_act_mul, rg_back_activate, rg_back_taylor, rg_back_rotate, rg_back_mix;
extern rg_back_fn rg_back_match_rms, rg_back_cut_gate;
extern rg_back_fn rg_back_rmsnorm, rg_back_layernorm, rg_back_l2norm;
extern rg_back_fn rg_back_kv_store, rg_back_attention, rg_back_mla_attention;
extern rg_back_fn rg_back_route, rg_back_moe;
extern rg_back_fn rg_back_conv, rg_back_decay, rg_back_scan, rg_back_linear_attention, rg_back_state_space, rg_back_lru;

/* The derivative of act at x, in double; and act itself. */
double rg_back_slope(rg_activation act, double x);
double rg_back_value(rg_activation act, double x);
/* d[i] = g[i] * act'(x[i]); scratch holds n floats.  By the back end's exponential where act needs one. */
void rg_back_slopes(const rg_backend *backend, rg_activation act, float *d, const float *g, const float *x, int n,
                    float *scratch);
/* n values of y = act(g) u, u clamped as the activation has it; g NULL: of y = act(u). */
void rg_back_hidden(const rg_backend *backend, rg_activation act, float *y, const float *g, const float *u, int n);
/* Its gradients from that of y; scratch: n floats. */
void rg_back_gated(const rg_backend *backend, rg_activation act, float *dg, float *du, const float *g, const float *u,
                   const float *dy, int n, float *scratch);

#endif
