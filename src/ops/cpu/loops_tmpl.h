/* loops_tmpl.h -- the loops of ops/loops.h, over WIDTH lanes at a time.
 *
 * Included by the loops.c of every instruction set after its folder's header, which has `vec` and what is done with it;
 * ref's has vectors of one lane.  A sum over lanes is a tree and a sum over rows goes row by row, so that the bits are
 * the same for every width. */
#ifndef RG_OPS_CPU_LOOPS_TMPL_H
#define RG_OPS_CPU_LOOPS_TMPL_H

#include "ops/loops.h"
#include "ops/math.h"

enum { LANES = RG_LOOP_LANES };

/* ---- convolution ------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE void conv_piece(const rg_loop_conv *p, int at)
{
    for (int t = 0; t < p->n_rows; t++) {
        const float *w = p->w + at, *x = p->x + (size_t)t * LANES + at;
        vec z = load_f32(p->bias + at);

        for (int j = 0; j < p->taps; j++, w += LANES, x += LANES)
            z = fused(load_f32(w), load_f32(x), z);
        store_f32(p->z + (size_t)t * LANES + at, z);
    }
}

static void loops_conv(const rg_loop_conv *p)
{
    for (int at = 0; at < LANES; at += WIDTH)
        conv_piece(p, at);
}

ALWAYS_INLINE void conv_back_piece(const rg_loop_conv *p, int at)
{
    vec all = splat(0.0f);

    for (int j = 0; j < p->taps; j++) {
        const float *g = p->g + at, *x = p->x + (size_t)j * LANES + at;
        const vec w = load_f32(p->w + j * LANES + at);
        float *dx = p->dx + (size_t)j * LANES + at;
        vec sum = splat(0.0f);

        for (int t = 0; t < p->n_rows; t++, g += LANES, x += LANES, dx += LANES) {
            const vec d = load_f32(g);

            sum = fused(d, load_f32(x), sum);
            store_f32(dx, fused(d, w, load_f32(dx)));
        }
        store_f32(p->dw + j * LANES + at, sum);
    }
    for (int t = 0; t < p->n_rows; t++)
        all = all + load_f32(p->g + (size_t)t * LANES + at);
    store_f32(p->db + at, all);
}

static void loops_conv_back(const rg_loop_conv *p)
{
    for (int at = 0; at < LANES; at += WIDTH)
        conv_back_piece(p, at);
}

/* y = exp(y). */
ALWAYS_INLINE void exp_run(float *y, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = rg_expf(y[i]);
}

/* ---- Mamba's scan ------------------------------------------------------------------------------------------------ */

ALWAYS_INLINE void scan_piece(const rg_loop_scan *p, int t, int at)
{
    const size_t row = (size_t)t * LANES + (size_t)at, states = (size_t)p->n_states * LANES;
    const vec u = load_f32(p->dt + row) * load_f32(p->x + row);
    const float *b = p->bc + (size_t)t * p->ld, *decay = p->decay + (size_t)t * states + at;
    float *h = p->h + (size_t)t * states + at;

    for (int k = 0; k < p->n_states; k++, decay += LANES, h += LANES)
        store_f32(h, fused(load_f32(decay), load_f32(h - states), u * splat(b[k])));
}

static void loops_scan(const rg_loop_scan *p)
{
    for (int t = 0; t < p->n_rows; t++) {
        float *decay = p->decay + (size_t)t * (size_t)p->n_states * LANES;

        for (int at = 0; at < LANES; at += WIDTH) {
            const vec dt = load_f32(p->dt + (size_t)t * LANES + at);

            for (int k = 0; k < p->n_states; k++)
                store_f32(decay + k * LANES + at, dt * load_f32(p->a + k * LANES + at));
        }
        exp_run(decay, p->n_states * LANES);
        for (int at = 0; at < LANES; at += WIDTH)
            scan_piece(p, t, at);
    }
}

/* The sums over lanes of n rows of v, n <= LANES: halves are added until four are left.  v is overwritten. */
ALWAYS_INLINE void sum_lanes(float *v, int n, float *to)
{
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 8; i++)
            v[k * LANES + i] += v[k * LANES + 8 + i];
    for (int k = 0; k < n; k++)
        for (int i = 0; i < 4; i++)
            v[k * LANES + i] += v[k * LANES + 4 + i];
    for (int k = 0; k < n; k++)
        to[k] = (v[k * LANES] + v[k * LANES + 2]) + (v[k * LANES + 1] + v[k * LANES + 3]);
}

/* Sums over the states of a row. */
typedef struct scan_sums {
    vec y, s, ddt;
} scan_sums;

/* States [first, first + n) of row t; what is to be summed over lanes goes to db and dc, [n]. */
ALWAYS_INLINE void scan_back_piece(const rg_loop_scan *p, int t, int first, int n, int at, scan_sums *to, float *db,
                                   float *dc)
{
    const size_t row = (size_t)t * LANES + (size_t)at, states = (size_t)p->n_states * LANES;
    const size_t cell = (size_t)t * states + (size_t)(first * LANES + at);
    const float *decay = p->decay + cell, *h = p->h + cell, *a = p->a + first * LANES + at;
    const float *b = p->bc + (size_t)t * p->ld + first, *c = b + p->n_states;
    float *lambda = p->lambda + first * LANES + at, *da = p->da + first * LANES + at;
    const vec g = load_f32(p->g + row), dt = load_f32(p->dt + row), u = dt * load_f32(p->x + row);
    scan_sums s = *to;

    for (int k = 0; k < n; k++) {
        const int l = k * LANES;
        const vec state = load_f32(h + l), ck = splat(c[k]), grad = fused(ck, g, load_f32(lambda + l));
        const vec kept = grad * load_f32(decay + l), moved = kept * load_f32(h + l - states);

        s.y = fused(ck, state, s.y);
        s.s = fused(grad, splat(b[k]), s.s);
        s.ddt = fused(moved, load_f32(a + l), s.ddt);
        store_f32(dc + l + at, g * state);
        store_f32(db + l + at, grad * u);
        store_f32(da + l, fused(moved, dt, load_f32(da + l)));
        store_f32(lambda + l, kept);
    }
    *to = s;
}

/* The states of row t, by sixteens. */
ALWAYS_INLINE void scan_back_states(const rg_loop_scan *p, int t, scan_sums *s)
{
    float *dbc = p->dbc + (size_t)t * 2 * (size_t)p->n_states;

    for (int first = 0; first < p->n_states; first += LANES) {
        const int n = p->n_states - first < LANES ? p->n_states - first : LANES;
        _Alignas(64) float db[LANES * LANES], dc[LANES * LANES];

        for (int v = 0; v < LANES / WIDTH; v++)
            scan_back_piece(p, t, first, n, v * WIDTH, &s[v], db, dc);
        sum_lanes(db, n, dbc + first);
        sum_lanes(dc, n, dbc + p->n_states + first);
    }
}

static void loops_scan_back(const rg_loop_scan *p)
{
    for (int i = 0; i < p->n_states * LANES; i++)
        p->da[i] = 0;
    for (int i = 0; i < LANES; i++)
        p->dd[i] = 0;
    for (int t = p->n_rows - 1; t >= 0; t--) {
        scan_sums s[LANES / WIDTH];

        for (int v = 0; v < LANES / WIDTH; v++)
            s[v] = (scan_sums){ splat(0.0f), splat(0.0f), splat(0.0f) };
        scan_back_states(p, t, s);
        for (int v = 0; v < LANES / WIDTH; v++) {
            const size_t row = (size_t)t * LANES + (size_t)(v * WIDTH);
            const vec x = load_f32(p->x + row), g = load_f32(p->g + row), d = load_f32(p->d + v * WIDTH);

            store_f32(p->y + row, fused(d, x, s[v].y));
            store_f32(p->dx + row, fused(d, g, load_f32(p->dt + row) * s[v].s));
            store_f32(p->ddt + row, fused(s[v].s, x, s[v].ddt));
            store_f32(p->dd + v * WIDTH, fused(g, x, load_f32(p->dd + v * WIDTH)));
        }
    }
}

/* ---- recurrences with a matrix state ----------------------------------------------------------------------------- */

ALWAYS_INLINE float decay_of(const rg_loop_recur *p, int i)
{
    return p->decay[p->each ? i : 0];
}

/* Columns [c, c + WIDTH). */
ALWAYS_INLINE void recur_piece(const rg_loop_recur *p, int c)
{
    const float *s = p->before + c;
    float *to = p->after + c;
    const size_t n = (size_t)p->n;
    vec u = load_f32(p->x + c), r = splat(0.0f);

    for (int i = 0; p->b && i < p->n_rows; i++)
        r = fused(splat(p->b[i]), load_f32(s + (size_t)i * n), r);
    for (int i = 0; p->delta && i < p->n_rows; i++)
        u = fused(splat(-(p->k[i] * decay_of(p, i))), load_f32(s + (size_t)i * n), u);
    u = u * splat(p->beta);
    store_f32(p->u + c, u);
    if (p->a)
        store_f32(p->r + c, r);
    for (int i = 0; i < p->n_rows; i++) {
        vec new = fused(splat(decay_of(p, i)), load_f32(s + (size_t)i * n), splat(p->k[i]) * u);

        if (p->a)
            new = fused(splat(p->a[i]), r, new);
        store_f32(to + (size_t)i * n, new);
    }
}

static void loops_recur(const rg_loop_recur *p)
{
    for (int c = 0; c < p->n; c += WIDTH)
        recur_piece(p, c);
}

/* Products of a row of the state with a vector, still to be summed over LANES lanes; of sixteen rows. */
typedef struct recur_sums {
    _Alignas(64) float q[LANES * LANES], k[LANES * LANES], a[LANES * LANES];
} recur_sums;

/* What y gives to row i of G, and what this row gives to q, k and u, of the lanes from `at` on; the same of a and r. */
ALWAYS_INLINE void recur_back_first(const rg_loop_recur *p, int i, int at, bool has_a, float *sum_q, float *sum_k,
                                    float *sum_a)
{
    const size_t row = (size_t)i * (size_t)p->n;
    const vec by = splat(p->scale * p->q[i]), k = splat(p->k[i]), a = splat(has_a ? p->a[i] : 0.0f);
    vec q_sum = splat(0.0f), k_sum = splat(0.0f), a_sum = splat(0.0f);

    for (int c = at; c < p->n; c += LANES) {
        const vec dy = load_f32(p->dy + c), g = fused(by, dy, load_f32(p->g + row + c));

        store_f32(p->g + row + c, g);
        q_sum = fused(load_f32(p->after + row + c), dy, q_sum);
        k_sum = fused(g, load_f32(p->u + c), k_sum);
        store_f32(p->du + c, fused(g, k, load_f32(p->du + c)));
        if (has_a) {
            a_sum = fused(g, load_f32(p->r + c), a_sum);
            store_f32(p->dr + c, fused(g, a, load_f32(p->dr + c)));
        }
    }
    store_f32(sum_q + at, q_sum);
    store_f32(sum_k + at, k_sum);
    if (has_a)
        store_f32(sum_a + at, a_sum);
}

/* What du and dr give to row i of G, which becomes that of the state before, and what this state gives to k, the decay
 * and b. */
ALWAYS_INLINE void recur_back_second(const rg_loop_recur *p, int i, int at, float *sum_k, float *sum_d, float *sum_b)
{
    const size_t row = (size_t)i * (size_t)p->n;
    const vec by = splat(-(p->beta * p->k[i])), decay = splat(decay_of(p, i)), b = splat(p->b ? p->b[i] : 0.0f);
    vec k_sum = splat(0.0f), d_sum = splat(0.0f), b_sum = splat(0.0f);

    for (int c = at; c < p->n; c += LANES) {
        const vec s = load_f32(p->before + row + c);
        vec g = load_f32(p->g + row + c);

        if (p->delta) {
            const vec du = load_f32(p->du + c);

            k_sum = fused(s, du, k_sum);
            g = fused(by, du, g);
        }
        d_sum = fused(g, s, d_sum);
        g = g * decay;
        if (p->b) {
            const vec dr = load_f32(p->dr + c);

            b_sum = fused(s, dr, b_sum);
            g = fused(b, dr, g);
        }
        store_f32(p->g + row + c, g);
    }
    store_f32(sum_k + at, k_sum);
    store_f32(sum_d + at, d_sum);
    store_f32(sum_b + at, b_sum);
}

ALWAYS_INLINE void recur_back_rows(const rg_loop_recur *p, int first, int n, bool has_a)
{
    recur_sums sums;
    float of[LANES];

    for (int i = 0; i < n; i++)
        for (int at = 0; at < LANES; at += WIDTH)
            recur_back_first(p, first + i, at, has_a, sums.q + i * LANES, sums.k + i * LANES, sums.a + i * LANES);
    sum_lanes(sums.q, n, of);
    for (int i = 0; i < n; i++)
        p->dq[first + i] += p->scale * of[i];
    sum_lanes(sums.k, n, of);
    for (int i = 0; i < n; i++)
        p->dk[first + i] += of[i];
    if (!has_a)
        return;
    sum_lanes(sums.a, n, of);
    for (int i = 0; i < n; i++)
        p->da[first + i] += of[i];
}

ALWAYS_INLINE void recur_back_before(const rg_loop_recur *p, int first, int n)
{
    recur_sums sums;
    float of[LANES];

    for (int i = 0; i < n; i++)
        for (int at = 0; at < LANES; at += WIDTH)
            recur_back_second(p, first + i, at, sums.k + i * LANES, sums.q + i * LANES, sums.a + i * LANES);
    if (p->ddecay)
        sum_lanes(sums.q, n, p->ddecay + first);
    if (p->delta) {
        sum_lanes(sums.k, n, of);
        for (int i = 0; i < n; i++)
            p->dk[first + i] -= p->beta * decay_of(p, first + i) * of[i];
    }
    if (p->db) {
        sum_lanes(sums.a, n, of);
        for (int i = 0; i < n; i++)
            p->db[first + i] += of[i];
    }
}

static void loops_recur_back(const rg_loop_recur *p)
{
    for (int c = 0; c < p->n; c++)
        p->du[c] = p->dr[c] = 0;
    for (int i = 0; i < p->n_rows; i += LANES) {
        const int n = p->n_rows - i < LANES ? p->n_rows - i : LANES;

        if (p->a)
            recur_back_rows(p, i, n, true);
        else
            recur_back_rows(p, i, n, false);
    }
    for (int i = 0; i < p->n_rows; i += LANES)
        recur_back_before(p, i, p->n_rows - i < LANES ? p->n_rows - i : LANES);
}

static const rg_loops loops = {
    .conv = loops_conv,
    .conv_back = loops_conv_back,
    .scan = loops_scan,
    .scan_back = loops_scan_back,
    .recur = loops_recur,
    .recur_back = loops_recur_back,
};

#endif
