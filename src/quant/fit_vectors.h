/* fit_vectors.h -- blocks of 256 values whose codes are vectors of a grid: the search for scales and vectors that lose
 * least.
 *
 * A value is f * s * table[code]: s an odd multiple for each run, f = d * unit for the block.  Of each run a handful of
 * scales is tried, each with the best vectors under it; then d is chosen so that the largest scale can be told, and
 * runs take the multiple near theirs that loses least; then d is fitted to what was chosen, and runs choose again.
 * Errors are weighted by importance. */
#ifndef RG_QUANT_FIT_VECTORS_H
#define RG_QUANT_FIT_VECTORS_H

#include "quant/block.h"

typedef enum vector_signs {
    SIGNS_FREE,    /* a sign for each value */
    SIGNS_EVEN,    /* the number of negative ones of eight is even */
    SHIFT_RUN,     /* none: values are of either sign, and those of a run are all moved up or all down */
    SHIFT_VECTOR,  /* the same for each vector */
} vector_signs;

typedef struct vector_grid {
    const uint16_t *entry;
    int n, len, bits;   /* entries; values of each, and bits of a value's code */
    const float *table; /* [16] as rg_ints has it: the values, and from 8 on negated or moved down */
    int n_codes;        /* different codes of a value */
    int run, max_scale; /* values under a scale; its code is in [0, max_scale], s = 2 code + 1 */
    vector_signs signs;
    float unit;
} vector_grid;

/* One run under one scale. */
typedef struct run_fit {
    float error, xv, vv; /* weighted sums; v: values without the scale */
    uint16_t entry[8];
    uint8_t high[8];
} run_fit;

/* The best vector for `len` values under a scale.  which: 0, or 8 for negated and moved values, by value. */
static inline float best_vector(const vector_grid *g, const float *x, const float *w, float scale, const uint8_t *which,
                                uint16_t *best)
{
    float cost[8][8], least = INFINITY;

    for (int i = 0; i < g->len; i++)
        for (int c = 0; c < g->n_codes; c++) {
            float miss = x[i] - scale * g->table[c | which[i]];
            cost[i][c] = w[i] * miss * miss;
        }
    for (int k = 0; k < g->n; k++) {
        const int mask = (1 << g->bits) - 1, e = g->entry[k];
        float sum = 0;
        for (int i = 0; i < g->len; i++)
            sum += cost[i][e >> i * g->bits & mask];
        if (sum < least) {
            least = sum;
            *best = (uint16_t)k;
        }
    }
    return isfinite(least) ? least : 0;
}

static inline void count_vector(const vector_grid *g, const float *x, const float *w, const uint8_t *which,
                                uint16_t best, run_fit *f)
{
    for (int i = 0; i < g->len; i++) {
        float v = g->table[(g->entry[best] >> i * g->bits & ((1 << g->bits) - 1)) | which[i]];
        f->xv += w[i] * x[i] * v;
        f->vv += w[i] * v * v;
    }
}

/* Signs of eight values: those of x, but for the cheapest where an even number is wanted. */
static inline int signs_of(const float *x, const float *w, bool even)
{
    int signs = 0, cheapest = 0;

    for (int i = 0; i < 8; i++) {
        signs |= (x[i] < 0) << i;
        cheapest = w[i] * x[i] * x[i] < w[cheapest] * x[cheapest] * x[cheapest] ? i : cheapest;
    }
    return even && __builtin_popcount((unsigned)signs) % 2 ? signs ^ 1 << cheapest : signs;
}

static inline void fit_signed_run(const vector_grid *g, const float *x, const float *w, float scale, run_fit *f)
{
    uint8_t which[8];

    *f = (run_fit){ 0 };
    for (int at = 0; at < g->run; at += 8) {
        const int signs = signs_of(x + at, w + at, g->signs == SIGNS_EVEN);
        for (int i = 0; i < 8; i++)
            which[i] = signs >> i & 1 ? 8 : 0;
        for (int k = at; k < at + 8; k += g->len) {
            const int v = k / g->len;
            f->error += best_vector(g, x + k, w + k, scale, which + (k - at), &f->entry[v]);
            f->high[v] = (uint8_t)(signs >> (k - at) & ((1 << g->len) - 1));
            count_vector(g, x + k, w + k, which + (k - at), f->entry[v], f);
        }
    }
}

static inline void fit_shifted_run(const vector_grid *g, const float *x, const float *w, float scale, run_fit *f)
{
    static const uint8_t ways[2][8] = { { 0 }, { 8, 8, 8, 8, 8, 8, 8, 8 } };
    run_fit way[2] = { { 0 }, { 0 } };

    *f = (run_fit){ 0 };
    for (int v = 0; v < g->run / 8; v++) {
        float error[2];
        for (int k = 0; k < 2; k++) {
            error[k] = best_vector(g, x + 8 * v, w + 8 * v, scale, ways[k], &way[k].entry[v]);
            way[k].error += error[k];
            way[k].high[v] = (uint8_t)k;
        }
        const int k = error[1] < error[0];
        f->error += error[k];
        f->entry[v] = way[k].entry[v];
        f->high[v] = (uint8_t)k;
    }
    if (g->signs == SHIFT_RUN)
        *f = way[way[1].error < way[0].error];
    for (int v = 0; v < g->run / 8; v++)
        count_vector(g, x + 8 * v, w + 8 * v, ways[f->high[v]], f->entry[v], f);
}

static inline void fit_run(const vector_grid *g, const float *x, const float *w, float scale, run_fit *f)
{
    if (g->signs == SIGNS_FREE || g->signs == SIGNS_EVEN)
        fit_signed_run(g, x, w, scale, f);
    else
        fit_shifted_run(g, x, w, scale, f);
}

/* The scale of a run by itself. */
static inline float fit_run_scale(const vector_grid *g, const float *x, const float *w)
{
    const bool shifted = g->signs == SHIFT_RUN || g->signs == SHIFT_VECTOR;
    const float most = fabsf(extreme(x, g->run)), end = shifted ? 8 : g->table[g->n_codes - 1];
    float best_scale = 0, best = -1;

    if (!(most > 1e-30f) || !isfinite(most))
        return 0;
    for (int trial = 0; trial < 12; trial++) {
        run_fit f;
        float scale = most / end * (shifted ? 0.3f + 0.07f * (float)trial : 0.6f + 0.07f * (float)trial);
        fit_run(g, x, w, scale, &f);
        if (f.vv > 0 && f.xv > 0 && f.xv * f.xv > best * f.vv) {
            best_scale = f.xv / f.vv;
            best = f.xv * best_scale;
        }
    }
    return best_scale;
}

/* Every run takes the multiple near `want` that loses least; the block's error. */
static inline float choose_multiples(const vector_grid *g, const float *x, const float *w, const float *want,
                                     rg_vectors *to, float *xv, float *vv)
{
    const float f = rg_f16_to_f32(to->d) * g->unit;
    const int each = g->run / g->len;
    float error = 0;

    *xv = *vv = 0;
    for (int r = 0; r < 256 / g->run; r++) {
        const int near = f > 0 ? round_into((want[r] / f - 1) / 2, 0, g->max_scale) : 0;
        run_fit best = { .error = INFINITY };
        for (int code = near - 1; code <= near + 1; code++) {
            run_fit one;
            if (code < 0 || code > g->max_scale)
                continue;
            fit_run(g, x + r * g->run, w + r * g->run, f * (float)(2 * code + 1), &one);
            if (one.error < best.error || best.error == INFINITY) {
                best = one;
                to->scale[r] = code;
            }
        }
        memcpy(to->entry + r * each, best.entry, (size_t)each * sizeof *best.entry);
        memcpy(to->high + r * each, best.high, (size_t)each);
        const float s = (float)(2 * to->scale[r] + 1);
        *xv += s * best.xv;
        *vv += s * s * best.vv;
        error += best.error;
    }
    return error;
}

/* True if all values of a block are of one size, which every grid has as its lowest vector. */
static inline bool are_alike(const float *x)
{
    for (int i = 1; i < 256; i++)
        if (fabsf(x[i]) != fabsf(x[0]))
            return false;
    return isfinite(x[0]);
}

/* weight: [256] importance; NULL: all alike. */
static inline void fit_vectors(const vector_grid *g, const float *x, const float *weight, rg_vectors *to)
{
    float w[256], want[16], most = 0, xv, vv;

    memset(to, 0, sizeof *to);
    for (int i = 0; i < 256; i++)
        w[i] = weight ? weight[i] : 1;
    const bool alike = are_alike(x) && (g->signs == SIGNS_FREE || g->signs == SIGNS_EVEN);
    for (int r = 0; r < 256 / g->run; r++) {
        want[r] = alike ? fabsf(x[0]) / g->table[0] : fit_run_scale(g, x + r * g->run, w + r * g->run);
        most = want[r] > most ? want[r] : most;
    }
    to->d = rg_f32_to_f16(most / (float)(2 * g->max_scale + 1) / g->unit);
    float error = choose_multiples(g, x, w, want, to, &xv, &vv);
    for (int turn = 0; turn < 2 && vv > 0 && xv > 0; turn++) {
        rg_vectors next = { .d = rg_f32_to_f16(xv / vv / g->unit) };
        if (!isfinite(rg_f16_to_f32(next.d)) || next.d == to->d)
            return;
        float e = choose_multiples(g, x, w, want, &next, &xv, &vv);
        if (!(e < error))
            return;
        error = e;
        *to = next;
    }
}

/* A block's codes and scales from its vectors. */
static inline void vectors_ints(const vector_grid *g, const rg_vectors *v, rg_ints *out)
{
    const bool shifted = g->signs == SHIFT_RUN || g->signs == SHIFT_VECTOR;

    out->table = g->table;
    out->f = rg_f16_to_f32(v->d) * g->unit;
    for (int r = 0; r < 256 / g->run; r++)
        out->s[r] = (int8_t)(2 * v->scale[r] + 1);
    for (int i = 0; i < 256; i++) {
        const int k = i / g->len, at = i % g->len, code = g->entry[v->entry[k]] >> at * g->bits & ((1 << g->bits) - 1);
        out->q[i] = (uint8_t)(code | (v->high[k] >> (shifted ? 0 : at) & 1) << 3);
    }
}

/* What formats.def wants of a format, from how a block's vectors are loaded and stored. */
#define VECTORS(name, ...)                                                                                             \
    static const vector_grid name##_vectors = { __VA_ARGS__ };                                                         \
    static void name##_ints(const void *block, rg_ints *out)                                                           \
    {                                                                                                                  \
        rg_vectors v;                                                                                                  \
        name##_load(block, &v);                                                                                        \
        vectors_ints(&name##_vectors, &v, out);                                                                        \
    }                                                                                                                  \
    static void name##_decode(const void *blocks, int64_t n_blocks, float *y)                                          \
    {                                                                                                                  \
        const block_##name *b = blocks;                                                                                \
        rg_ints ints;                                                                                                  \
        for (; n_blocks--; b++, y += 256) {                                                                            \
            name##_ints(b, &ints);                                                                                     \
            decode_table_two_level(&ints, name##_vectors.run, y);                                                      \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_weighted(const float *x, const float *weight, int64_t n_blocks, void *blocks)                   \
    {                                                                                                                  \
        block_##name *b = blocks;                                                                                      \
        rg_vectors fit;                                                                                                \
        for (; n_blocks--; b++, x += 256, weight = weight ? weight + 256 : NULL) {                                     \
            fit_vectors(&name##_vectors, x, weight, &fit);                                                             \
            memset(b, 0, sizeof *b);                                                                                   \
            name##_store(&fit, b);                                                                                     \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_encode(const float *x, int64_t n_blocks, void *blocks)                                          \
    {                                                                                                                  \
        name##_weighted(x, NULL, n_blocks, blocks);                                                                    \
    }

#endif
