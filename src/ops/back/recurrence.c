/* recurrence.c -- the backward of linear recurrences with a matrix state per head.
 *
 * The recurrence is S = diag(w) S' + a (b . S')^T + k u^T, y = scale q . S + skip v, u = beta v, or with the delta rule
 * beta (v - k . diag(w) S'), S' being the state of the row before.  From the back, G the gradient of S:
 *     G += scale q dy^T, dq = scale S dy, dv += skip dy;   dk = G u, du = G^T k;
 *     delta: dbeta = du . (v - k . D), dv += beta du, dk -= beta D du, G -= beta k du^T, D = diag(w) S';
 *     dr = G^T a, da = G r, db = S' dr, r = b . S';   dw_i = G_i . S'_i,  G = diag(w) G + b dr^T.
 *
 * States are kept at the borders of chunks of rows and made again within a chunk.  A part is one sequence by heads that
 * share no operand with others; sums over heads are in their order. */
#include <math.h>
#include <string.h>

#include "ops/back/inside.h"

enum { CHUNK = 32, OPERANDS = 7 }; /* q, k, v, decay, beta, a, b */
enum { Q, K, V, DECAY, BETA, A, B };

typedef struct recurring {
    const rg_back *b;
    int n_parts; /* of a sequence */
    int longest;
    size_t each;
    float *scratch;
    float *d_fixed, *d_skip; /* [spans][heads] */
} recurring;

/* One head of one sequence, and scratch. */
typedef struct head {
    const rg_back *b;
    const rg_span *span;
    int h, k_dim, v_dim;
    float *border;          /* [chunks][k_dim][v_dim]: the state before a chunk */
    float *state;           /* [CHUNK + 1][k_dim][v_dim]: of a chunk, that before it first */
    float *g;               /* [k_dim][v_dim] */
    float *u, *du, *r, *dr; /* [v_dim] */
    double d_fixed, d_skip;
} head;

static int heads_of(const rg_back *b, int i)
{
    const rg_linear_attention_params *p = b->op->recurrence;
    const int k_dim = p->k_dim;
    const int each[OPERANDS] = { k_dim, k_dim, p->v_dim, 0, 1, k_dim, k_dim };

    if (!b->in[i].at)
        return p->n_heads;
    if (i == DECAY)
        return b->in[i].cols == p->n_heads ? p->n_heads : b->in[i].cols / k_dim;
    return b->in[i].cols / each[i];
}

/* Where an operand's row of this head begins; NULL: there is none. */
static float *at(const head *v, const rg_mat *of, int i, int t)
{
    const rg_linear_attention_params *p = v->b->op->recurrence;

    if (!of[i].at)
        return NULL;
    const int m = heads_of(v->b, i), cols = of[i].cols / m;
    const int which = p->interleaved ? v->h % m : v->h / (p->n_heads / m);
    return rg_mat_row(&of[i], v->span->first_row + t) + which * cols;
}

static const float *value(const head *v, int i, int t)
{
    return at(v, v->b->in, i, t);
}

static float *gradient(const head *v, int i, int t)
{
    return at(v, v->b->d_in, i, t);
}

/* The decay of row i of the state. */
static float decay_of(const head *v, int t, int i)
{
    const rg_linear_attention_params *p = v->b->op->recurrence;
    const float *w = value(v, DECAY, t);

    if (!w)
        return p->fixed_decay ? v->b->w[0][v->h] : 1;
    return v->b->in[DECAY].cols == p->n_heads ? w[0] : w[i];
}

/* r = b . S (0 without b), u; from the state before. */
static void make_inputs(const head *v, int t, const float *s)
{
    const bool delta = v->b->op->recurrence->delta;
    const float *k = value(v, K, t), *x = value(v, V, t), *b = value(v, B, t), *beta = value(v, BETA, t);
    const float by = beta ? *beta : 1;

    memset(v->r, 0, (size_t)v->v_dim * sizeof *v->r);
    for (int i = 0; b && i < v->k_dim; i++)
        for (int c = 0; c < v->v_dim; c++)
            v->r[c] += b[i] * s[i * v->v_dim + c];
    for (int c = 0; c < v->v_dim; c++)
        v->u[c] = x[c];
    for (int i = 0; delta && i < v->k_dim; i++) {
        const float w = k[i] * decay_of(v, t, i);

        for (int c = 0; c < v->v_dim; c++)
            v->u[c] -= w * s[i * v->v_dim + c];
    }
    for (int c = 0; c < v->v_dim; c++)
        v->u[c] *= by;
}

static void step(const head *v, int t, const float *s, float *next)
{
    const float *k = value(v, K, t), *a = value(v, A, t);

    make_inputs(v, t, s);
    for (int i = 0; i < v->k_dim; i++) {
        const float w = decay_of(v, t, i), by_a = a ? a[i] : 0;
        const float *from = s + (size_t)i * (size_t)v->v_dim;
        float *to = next + (size_t)i * (size_t)v->v_dim;

        for (int c = 0; c < v->v_dim; c++)
            to[c] = w * from[c] + by_a * v->r[c] + k[i] * v->u[c];
    }
}

/* Row i of the state and of its gradient: what they give to the operands of k's side. */
static void back_side(head *v, int t, int i, const float *s, float *dk_sum)
{
    const rg_linear_attention_params *p = v->b->op->recurrence;
    const float *k = value(v, K, t), *b = value(v, B, t), *beta = value(v, BETA, t);
    const float w = decay_of(v, t, i), by = beta ? *beta : 1;
    float *g = v->g + (size_t)i * (size_t)v->v_dim, *dw = gradient(v, DECAY, t), *db = gradient(v, B, t);
    double d_decay = 0, d_b = 0, d_k = 0;

    for (int c = 0; p->delta && c < v->v_dim; c++) {
        d_k -= (double)by * (double)w * (double)s[c] * (double)v->du[c];
        g[c] -= by * k[i] * v->du[c];
    }
    for (int c = 0; c < v->v_dim; c++) {
        d_decay += (double)g[c] * (double)s[c];
        d_b += (double)s[c] * (double)v->dr[c];
        g[c] = w * g[c] + (b ? b[i] * v->dr[c] : 0);
    }
    *dk_sum = (float)d_k;
    if (dw)
        dw[v->b->in[DECAY].cols == p->n_heads ? 0 : i] += (float)d_decay;
    v->d_fixed += d_decay;
    if (db)
        db[i] += (float)d_b;
}

static void row_back(head *v, int t, const float *s, const float *next)
{
    const rg_linear_attention_params *p = v->b->op->recurrence;
    const float *q = value(v, Q, t), *k = value(v, K, t), *x = value(v, V, t), *a = value(v, A, t);
    const float *dy = rg_mat_row(&v->b->d_out[0], v->span->first_row + t) + v->h * v->v_dim;
    const float *beta = value(v, BETA, t), skip = p->skip ? v->b->w[1][v->h] : 0, by = beta ? *beta : 1;
    float *dq = gradient(v, Q, t), *dk = gradient(v, K, t), *dx = gradient(v, V, t), *da = gradient(v, A, t);
    double d_beta = 0;

    make_inputs(v, t, s);
    memset(v->du, 0, (size_t)v->v_dim * sizeof *v->du);
    memset(v->dr, 0, (size_t)v->v_dim * sizeof *v->dr);
    for (int i = 0; i < v->k_dim; i++) {
        const float *after = next + (size_t)i * (size_t)v->v_dim, by_q = p->scale * q[i];
        float *g = v->g + (size_t)i * (size_t)v->v_dim;
        double d_q = 0, d_k = 0, d_a = 0;

        for (int c = 0; c < v->v_dim; c++) {
            d_q += (double)after[c] * (double)dy[c];
            g[c] += by_q * dy[c];
            d_k += (double)g[c] * (double)v->u[c];
            d_a += (double)g[c] * (double)v->r[c];
            v->du[c] += k[i] * g[c];
            v->dr[c] += a ? a[i] * g[c] : 0;
        }
        dq[i] += (float)((double)p->scale * d_q);
        dk[i] += (float)d_k;
        if (da)
            da[i] += (float)d_a;
    }
    for (int c = 0; c < v->v_dim; c++) {
        v->d_skip += (double)dy[c] * (double)x[c];
        if (by != 0)
            d_beta += (double)v->du[c] * (double)v->u[c] / (double)by;
        dx[c] += skip * dy[c] + by * v->du[c];
    }
    if (beta && by == 0) { /* u / beta is not at hand */
        v->u[0] = 0;
        for (int c = 0; c < v->v_dim; c++) {
            double inside = (double)x[c];

            for (int i = 0; p->delta && i < v->k_dim; i++)
                inside -=
                    (double)k[i] * (double)decay_of(v, t, i) * (double)s[(size_t)i * (size_t)v->v_dim + (size_t)c];
            d_beta += (double)v->du[c] * inside;
        }
    }
    if (beta)
        gradient(v, BETA, t)[0] += (float)d_beta;
    for (int i = 0; i < v->k_dim; i++) {
        float d_k;

        back_side(v, t, i, s + (size_t)i * (size_t)v->v_dim, &d_k);
        dk[i] += d_k;
    }
}

static void back_head(head *v)
{
    const size_t cells = (size_t)v->k_dim * (size_t)v->v_dim;
    const int n = v->span->n_rows;

    memset(v->g, 0, cells * sizeof *v->g);
    memset(v->state, 0, cells * sizeof *v->state);
    for (int t = 0; t < n; t++) {
        float *s = v->state + (size_t)(t % 2) * cells, *next = v->state + (size_t)((t + 1) % 2) * cells;

        if (t % CHUNK == 0)
            memcpy(v->border + (size_t)(t / CHUNK) * cells, s, cells * sizeof *s);
        step(v, t, s, next);
    }
    for (int first = (n - 1) / CHUNK * CHUNK; first >= 0; first -= CHUNK) {
        const int here = rg_back_min(CHUNK, n - first);

        memcpy(v->state, v->border + (size_t)(first / CHUNK) * cells, cells * sizeof *v->state);
        for (int t = 0; t < here; t++)
            step(v, first + t, v->state + (size_t)t * cells, v->state + (size_t)(t + 1) * cells);
        for (int t = here - 1; t >= 0; t--)
            row_back(v, first + t, v->state + (size_t)t * cells, v->state + (size_t)(t + 1) * cells);
    }
}

static void recur_part(void *arg, int i, int thread)
{
    const recurring *a = arg;
    const rg_back *b = a->b;
    const rg_linear_attention_params *p = b->op->recurrence;
    const size_t cells = (size_t)p->k_dim * (size_t)p->v_dim;
    const int s = i / a->n_parts, part = i % a->n_parts, each = p->n_heads / a->n_parts;
    head v = { .b = b, .span = rg_back_span(b, s), .k_dim = p->k_dim, .v_dim = p->v_dim };

    v.border = a->scratch + (size_t)thread * a->each;
    v.state = v.border + (size_t)rg_ceil_div(a->longest, CHUNK) * cells;
    v.g = v.state + (CHUNK + 1) * cells;
    v.u = v.g + cells, v.du = v.u + p->v_dim, v.r = v.du + p->v_dim, v.dr = v.r + p->v_dim;
    for (int k = 0; k < each; k++) {
        v.h = p->interleaved ? k * a->n_parts + part : part * each + k;
        v.d_fixed = v.d_skip = 0;
        back_head(&v);
        a->d_fixed[s * p->n_heads + v.h] = (float)v.d_fixed;
        a->d_skip[s * p->n_heads + v.h] = (float)v.d_skip;
    }
}

static int gcd(int a, int b)
{
    return b ? gcd(b, a % b) : a;
}

void rg_back_linear_attention(const rg_back *b)
{
    const rg_linear_attention_params *p = b->op->recurrence;
    const size_t cells = (size_t)p->k_dim * (size_t)p->v_dim, all = (size_t)b->batch->n_spans * (size_t)p->n_heads;
    recurring a = { .b = b, .n_parts = p->n_heads };

    for (int i = 0; i < OPERANDS; i++)
        a.n_parts = gcd(a.n_parts, heads_of(b, i));
    for (int s = 0; s < b->batch->n_spans; s++)
        a.longest = b->batch->spans[s].n_rows > a.longest ? b->batch->spans[s].n_rows : a.longest;
    a.each = ((size_t)(rg_ceil_div(a.longest, CHUNK) + CHUNK + 2) * cells + 4 * (size_t)p->v_dim + 15) / 16 * 16;
    a.scratch = rg_back_room(b->lane, a.each * (size_t)b->lane->n_threads);
    a.d_fixed = rg_back_room(b->lane, all);
    a.d_skip = rg_back_room(b->lane, all);
    if (!a.scratch || !a.d_fixed || !a.d_skip)
        return;
    rg_back_each(b->lane, b->batch->n_spans * a.n_parts, recur_part, &a);
    if (b->dw[0])
        rg_back_fold(b->dw[0], a.d_fixed, b->batch->n_spans, p->n_heads);
    if (b->dw[1])
        rg_back_fold(b->dw[1], a.d_skip, b->batch->n_spans, p->n_heads);
}
