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
    float *u, *r;           /* [CHUNK][v_dim] */
    float *du, *dr;         /* [v_dim] */
    double d_fixed, d_skip;
    double d_decay; /* of the row */
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

/* One row: what it reads and the gradients of that, looked up once.  NULL: there is none. */
typedef struct row {
    const float *q, *k, *x, *decay, *a, *b, *dy;
    float *dq, *dk, *dx, *d_decay, *d_beta, *da, *db;
    float beta, fixed, skip;
    bool each; /* a decay for each row of the state */
    float *u, *r;
} row;

static row row_of(const head *v, int t)
{
    const rg_linear_attention_params *p = v->b->op->recurrence;
    const float *beta = value(v, BETA, t);

    return (row){ .q = value(v, Q, t), .k = value(v, K, t), .x = value(v, V, t), .decay = value(v, DECAY, t),
                  .a = value(v, A, t), .b = value(v, B, t),
                  .dy = rg_mat_row(&v->b->d_out[0], v->span->first_row + t) + v->h * v->v_dim,
                  .dq = gradient(v, Q, t), .dk = gradient(v, K, t), .dx = gradient(v, V, t),
                  .d_decay = gradient(v, DECAY, t), .d_beta = gradient(v, BETA, t), .da = gradient(v, A, t),
                  .db = gradient(v, B, t), .beta = beta ? *beta : 1,
                  .fixed = p->fixed_decay ? v->b->w[0][v->h] : 1, .skip = p->skip ? v->b->w[1][v->h] : 0,
                  .each = v->b->in[DECAY].cols != p->n_heads, .u = v->u + t % CHUNK * v->v_dim,
                  .r = v->r + t % CHUNK * v->v_dim };
}

/* The decay of row i of the state. */
static inline float decay_of(const row *w, int i)
{
    return w->decay ? w->decay[w->each ? i : 0] : w->fixed;
}

/* y += by x. */
static inline void add_times(float *restrict y, const float *restrict x, float by, int n)
{
    for (int c = 0; c < n; c++)
        y[c] += by * x[c];
}

/* The sum of x y over a row of the state: in RG_BACK_LANES lanes, as rg_back_dot, but in f32, since it is short. */
static inline float dot(const float *x, const float *y, int n)
{
    float l[RG_BACK_LANES] = { 0 };
    int i = 0;

    for (; i + RG_BACK_LANES <= n; i += RG_BACK_LANES)
        for (int k = 0; k < RG_BACK_LANES; k++)
            l[k] += x[i + k] * y[i + k];
    for (; i < n; i++)
        l[i % RG_BACK_LANES] += x[i] * y[i];
    return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

/* r = b . S (0 without b), u; from the state before. */
static void make_inputs(const head *v, const row *w, const float *s)
{
    const bool delta = v->b->op->recurrence->delta;
    const int n = v->v_dim;

    if (w->b || w->a)
        memset(w->r, 0, (size_t)n * sizeof *w->r);
    for (int i = 0; w->b && i < v->k_dim; i++)
        add_times(w->r, s + i * n, w->b[i], n);
    memcpy(w->u, w->x, (size_t)n * sizeof *w->u);
    for (int i = 0; delta && i < v->k_dim; i++)
        add_times(w->u, s + i * n, -(w->k[i] * decay_of(w, i)), n);
    for (int c = 0; c < n; c++)
        w->u[c] *= w->beta;
}

static void step(const head *v, const row *w, const float *s, float *next)
{
    const int n = v->v_dim;

    make_inputs(v, w, s);
    for (int i = 0; i < v->k_dim; i++) {
        const float *restrict from = s + (size_t)i * (size_t)n, *restrict u = w->u;
        float *restrict to = next + (size_t)i * (size_t)n;
        const float decay = decay_of(w, i), k = w->k[i];

        for (int c = 0; c < n; c++)
            to[c] = decay * from[c] + k * u[c];
        if (w->a)
            add_times(to, w->r, w->a[i], n);
    }
}

/* Row i of the state and of its gradient: what they give to the operands of k's side. */
static void back_side(head *v, const row *w, int i, const float *s)
{
    const int n = v->v_dim;
    const float decay = decay_of(w, i), by_b = w->b ? w->b[i] : 0;
    float *restrict g = v->g + (size_t)i * (size_t)n;
    const float *restrict dr = v->dr;

    if (v->b->op->recurrence->delta) {
        w->dk[i] -= w->beta * decay * dot(s, v->du, n);
        add_times(g, v->du, -(w->beta * w->k[i]), n);
    }
    if (w->d_decay || v->b->op->recurrence->fixed_decay) {
        const float d = dot(g, s, n);

        v->d_fixed += (double)d;
        v->d_decay += (double)d;
        if (w->d_decay && w->each)
            w->d_decay[i] += d;
    }
    if (w->db)
        w->db[i] += dot(s, dr, n);
    if (w->b)
        for (int c = 0; c < n; c++)
            g[c] = decay * g[c] + by_b * dr[c];
    else
        for (int c = 0; c < n; c++)
            g[c] *= decay;
}

/* What u was made of, without beta, times du: where beta is 0, so that u does not have it. */
static double inside_times_du(const head *v, const row *w, const float *s)
{
    double sum = 0;

    for (int c = 0; c < v->v_dim; c++) {
        double inside = (double)w->x[c];

        for (int i = 0; v->b->op->recurrence->delta && i < v->k_dim; i++)
            inside -= (double)w->k[i] * (double)decay_of(w, i) * (double)s[(size_t)i * (size_t)v->v_dim + (size_t)c];
        sum += (double)v->du[c] * inside;
    }
    return sum;
}

static void row_back(head *v, const row *w, const float *s, const float *next)
{
    const rg_linear_attention_params *p = v->b->op->recurrence;
    const int n = v->v_dim;

    memset(v->du, 0, (size_t)n * sizeof *v->du);
    if (w->b || w->a)
        memset(v->dr, 0, (size_t)n * sizeof *v->dr);
    for (int i = 0; i < v->k_dim; i++) {
        float *g = v->g + (size_t)i * (size_t)n;

        w->dq[i] += p->scale * dot(next + (size_t)i * (size_t)n, w->dy, n);
        add_times(g, w->dy, p->scale * w->q[i], n);
        w->dk[i] += dot(g, w->u, n);
        add_times(v->du, g, w->k[i], n);
        if (!w->a)
            continue;
        w->da[i] += dot(g, w->r, n);
        add_times(v->dr, g, w->a[i], n);
    }
    if (p->skip)
        v->d_skip += (double)dot(w->dy, w->x, n);
    if (w->d_beta)
        w->d_beta[0] += w->beta != 0 ? dot(v->du, w->u, n) / w->beta : (float)inside_times_du(v, w, s);
    for (int c = 0; c < n; c++)
        w->dx[c] += w->skip * w->dy[c] + w->beta * v->du[c];
    v->d_decay = 0;
    for (int i = 0; i < v->k_dim; i++)
        back_side(v, w, i, s + (size_t)i * (size_t)n);
    if (w->d_decay && !w->each)
        w->d_decay[0] += (float)v->d_decay;
}

/* Rows of a chunk forward, from the state that stands at its border. */
static void go_over(const head *v, int first, int n)
{
    const size_t cells = (size_t)v->k_dim * (size_t)v->v_dim;

    memcpy(v->state, v->border + (size_t)(first / CHUNK) * cells, cells * sizeof *v->state);
    for (int t = 0; t < n; t++) {
        const row w = row_of(v, first + t);

        step(v, &w, v->state + (size_t)t * cells, v->state + (size_t)(t + 1) * cells);
    }
}

static void back_head(head *v)
{
    const size_t cells = (size_t)v->k_dim * (size_t)v->v_dim;
    const int n = v->span->n_rows, last = (n - 1) / CHUNK * CHUNK;

    memset(v->g, 0, cells * sizeof *v->g);
    memset(v->border, 0, cells * sizeof *v->border);
    for (int first = 0; first <= last; first += CHUNK) {
        go_over(v, first, rg_back_min(CHUNK, n - first));
        if (first < last)
            memcpy(v->border + (size_t)(first / CHUNK + 1) * cells, v->state + CHUNK * cells,
                   cells * sizeof *v->border);
    }
    for (int first = last; first >= 0; first -= CHUNK) {
        const int here = rg_back_min(CHUNK, n - first);

        if (first < last)
            go_over(v, first, here);
        for (int t = here - 1; t >= 0; t--) {
            const row w = row_of(v, first + t);

            row_back(v, &w, v->state + (size_t)t * cells, v->state + (size_t)(t + 1) * cells);
        }
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
    v.u = v.g + cells, v.r = v.u + CHUNK * p->v_dim, v.du = v.r + CHUNK * p->v_dim, v.dr = v.du + p->v_dim;
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
    a.each = rg_back_whole((size_t)(rg_ceil_div(a.longest, CHUNK) + CHUNK + 2) * cells +
                           2 * (CHUNK + 1) * (size_t)p->v_dim);
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
