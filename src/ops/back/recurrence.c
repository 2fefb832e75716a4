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

#include "ops/back/lanes.h"

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

/* One head of one sequence, and scratch.  Rows of the state are `room` floats: v_dim, filled up with zeros. */
typedef struct head {
    const rg_back *b;
    const rg_loops *loops;
    const rg_span *span;
    int h, k_dim, v_dim, room;
    float *border;  /* [chunks][k_dim][room]: the state before a chunk */
    float *state;   /* [CHUNK + 1][k_dim][room]: of a chunk, that before it first */
    float *g;       /* [k_dim][room] */
    float *u, *r;   /* [CHUNK][room] */
    float *x, *dy;  /* [room] */
    float *du, *dr; /* [room] */
    float *ddecay;  /* [k_dim] */
    double d_fixed, d_skip;
} head;

static size_t cells_of(const head *v)
{
    return (size_t)v->k_dim * (size_t)v->room;
}

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

/* One row: what the loops read, and what besides. */
typedef struct row {
    rg_loop_recur loop;
    const float *x, *dy;
    float *dx, *d_decay, *d_beta;
    float fixed, skip;
} row;

/* Row t, and its place in the chunk's states. */
static void look_at_row(const head *v, int t, row *w)
{
    const rg_linear_attention_params *p = v->b->op->recurrence;
    const float *beta = value(v, BETA, t), *decay = value(v, DECAY, t);
    const size_t in_chunk = (size_t)(t % CHUNK);

    *w = (row){ .x = value(v, V, t), .dy = rg_mat_row(&v->b->d_out[0], v->span->first_row + t) + v->h * v->v_dim,
                .dx = gradient(v, V, t), .d_decay = gradient(v, DECAY, t), .d_beta = gradient(v, BETA, t),
                .fixed = p->fixed_decay ? v->b->w[0][v->h] : 1, .skip = p->skip ? v->b->w[1][v->h] : 0 };
    memcpy(v->x, w->x, (size_t)v->v_dim * sizeof *v->x);
    memcpy(v->dy, w->dy, (size_t)v->v_dim * sizeof *v->dy);
    w->loop = (rg_loop_recur){ .n_rows = v->k_dim, .n = v->room, .delta = p->delta,
                               .each = decay && v->b->in[DECAY].cols != p->n_heads, .scale = p->scale,
                               .beta = beta ? *beta : 1, .q = value(v, Q, t), .k = value(v, K, t),
                               .decay = decay ? decay : &w->fixed, .a = value(v, A, t), .b = value(v, B, t), .x = v->x,
                               .dy = v->dy, .before = v->state + in_chunk * cells_of(v),
                               .after = v->state + (in_chunk + 1) * cells_of(v), .u = v->u + in_chunk * (size_t)v->room,
                               .r = v->r + in_chunk * (size_t)v->room, .g = v->g, .du = v->du, .dr = v->dr,
                               .dq = gradient(v, Q, t), .dk = gradient(v, K, t), .da = gradient(v, A, t),
                               .db = gradient(v, B, t),
                               .ddecay = w->d_decay || p->fixed_decay ? v->ddecay : NULL };
}

/* What u was made of, without beta, times du: where beta is 0, so that u does not have it. */
static double inside_times_du(const head *v, const rg_loop_recur *w)
{
    double sum = 0;

    for (int c = 0; c < v->v_dim; c++) {
        double inside = (double)w->x[c];

        for (int i = 0; w->delta && i < v->k_dim; i++)
            inside -= (double)w->k[i] * (double)w->decay[w->each ? i : 0] * (double)w->before[i * v->room + c];
        sum += (double)v->du[c] * inside;
    }
    return sum;
}

static void give_decay(head *v, const row *w)
{
    double sum = 0;

    for (int i = 0; w->loop.ddecay && i < v->k_dim; i++) {
        sum += (double)v->ddecay[i];
        if (w->d_decay && w->loop.each)
            w->d_decay[i] += v->ddecay[i];
    }
    v->d_fixed += sum;
    if (w->d_decay && !w->loop.each)
        w->d_decay[0] += (float)sum;
}

static void row_back(head *v, const row *w)
{
    const float beta = w->loop.beta;

    v->loops->recur_back(&w->loop);
    if (v->b->op->recurrence->skip)
        v->d_skip += rg_back_dot(w->dy, w->x, v->v_dim);
    if (w->d_beta)
        w->d_beta[0] += (float)(beta != 0 ? rg_back_dot(v->du, w->loop.u, v->v_dim) / (double)beta
                                          : inside_times_du(v, &w->loop));
    for (int c = 0; c < v->v_dim; c++)
        w->dx[c] += w->skip * w->dy[c] + beta * v->du[c];
    give_decay(v, w);
}

/* Rows of a chunk forward, from the state that stands at its border. */
static void go_over(const head *v, int first, int n)
{
    const size_t cells = cells_of(v);
    row w;

    memcpy(v->state, v->border + (size_t)(first / CHUNK) * cells, cells * sizeof *v->state);
    for (int t = 0; t < n; t++) {
        look_at_row(v, first + t, &w);
        v->loops->recur(&w.loop);
    }
}

static void back_head(head *v)
{
    const size_t cells = cells_of(v);
    const int n = v->span->n_rows, last = (n - 1) / CHUNK * CHUNK;
    row w;

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
            look_at_row(v, first + t, &w);
            row_back(v, &w);
        }
    }
}

/* Deal out a thread's scratch; base NULL: how much it is. */
static size_t deal_scratch(head *v, float *base, int longest)
{
    const size_t cells = cells_of(v), room = (size_t)v->room;
    rg_dealt d = { .base = base };

    v->border = rg_deal(&d, (size_t)rg_ceil_div(longest, CHUNK) * cells);
    v->state = rg_deal(&d, (CHUNK + 1) * cells);
    v->g = rg_deal(&d, cells);
    v->u = rg_deal(&d, CHUNK * room);
    v->r = rg_deal(&d, CHUNK * room);
    v->x = rg_deal(&d, room);
    v->dy = rg_deal(&d, room);
    v->du = rg_deal(&d, room);
    v->dr = rg_deal(&d, room);
    v->ddecay = rg_deal(&d, (size_t)v->k_dim);
    return d.used;
}

static head new_head(const rg_back *b)
{
    const rg_linear_attention_params *p = b->op->recurrence;

    return (head){ .b = b,
                   .loops = b->lane->backend->host_loops(b->lane->backend),
                   .k_dim = p->k_dim,
                   .v_dim = p->v_dim,
                   .room = rg_ceil_div(p->v_dim, RG_LOOP_LANES) * RG_LOOP_LANES };
}

static void recur_part(void *arg, int i, int thread)
{
    const recurring *a = arg;
    const rg_linear_attention_params *p = a->b->op->recurrence;
    const int s = i / a->n_parts, part = i % a->n_parts, each = p->n_heads / a->n_parts;
    head v = new_head(a->b);

    v.span = rg_back_span(a->b, s);
    deal_scratch(&v, a->scratch + (size_t)thread * a->each, a->longest);
    memset(v.x, 0, (size_t)v.room * sizeof *v.x);
    memset(v.dy, 0, (size_t)v.room * sizeof *v.dy);
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
    const size_t all = (size_t)b->batch->n_spans * (size_t)p->n_heads;
    recurring a = { .b = b, .n_parts = p->n_heads, .longest = rg_back_longest(b) };
    head v = new_head(b);

    for (int i = 0; i < OPERANDS; i++)
        a.n_parts = gcd(a.n_parts, heads_of(b, i));
    a.each = deal_scratch(&v, NULL, a.longest);
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
