/* experts.c -- the backward of routers and experts.
 *
 * y = the sum over a row's experts e of g_e E_e(x): dg_e = dy . E_e(x), and E_e gets g_e dy.  Where the weights of the
 * chosen are a softmax over all logits, unchosen ones get a gradient too.  The choice and its bias have none. */
#include <math.h>
#include <string.h>

#include "ops/back/inside.h"

/* ---- the router -------------------------------------------------------------------------------------------------- */

/* Weights of the chosen are scale * f_k * score_k / (the sum of the chosen scores + eps, if renormalised), f_k the
 * expert's own factor.  *total is that sum, or 1. */
static void back_weights(const rg_back *b, const int32_t *chosen, const double *score, const float *d, double *d_score,
                         float *d_factor)
{
    const rg_routing *g = b->op->routing;
    double total = 1, dot = 0;

    if (g->renormalize && g->score != RG_SCORE_CHOSEN) {
        total = (double)g->sum_eps;
        for (int k = 0; k < g->n_used; k++)
            total += score[k];
    }
    for (int k = 0; k < g->n_used; k++) {
        const double factor = b->w[0] ? (double)b->w[0][chosen[k]] : 1, dw = (double)d[k] * (double)g->scale;

        if (d_factor)
            d_factor[chosen[k]] += (float)(dw * score[k] / total);
        d_score[k] = dw * factor / total;
        dot += d_score[k] * score[k] / total;
    }
    for (int k = 0; k < g->n_used && g->renormalize && g->score != RG_SCORE_CHOSEN; k++)
        d_score[k] -= dot;
}

/* p [n] = softmax of the n logits that pick names (NULL: all). */
static void softmax(const float *logits, const int32_t *pick, int n, double *p)
{
    double most = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++) {
        p[i] = (double)logits[pick ? pick[i] : i];
        most = p[i] > most ? p[i] : most;
    }
    for (int i = 0; i < n; i++)
        sum += p[i] = exp(p[i] - most);
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

void rg_back_probabilities(const rg_routing *g, const float *logits, double *p)
{
    double sum = 0;

    if (g->score != RG_SCORE_SIGMOID) {
        softmax(logits, NULL, g->n_experts, p);
        return;
    }
    for (int i = 0; i < g->n_experts; i++)
        sum += p[i] = rg_back_value(RG_SIGMOID, (double)logits[i]);
    for (int i = 0; i < g->n_experts; i++)
        p[i] /= sum;
}

/* p [n_experts] is scratch. */
static void balance_row(const rg_routing *g, const rg_back_balance *v, const float *logits, double *p, float *d_logits)
{
    double mean = 0;

    rg_back_probabilities(g, logits, p);
    for (int i = 0; i < g->n_experts; i++)
        mean += v->share[i] * p[i];
    for (int i = 0; i < g->n_experts; i++) {
        const double slope = g->score == RG_SCORE_SIGMOID ? 1 - rg_back_value(RG_SIGMOID, (double)logits[i]) : 1;

        d_logits[i] += (float)(v->by * p[i] * (v->share[i] - mean) * slope);
    }
}

static void route_row(const rg_back *b, int r, double *scratch, float *d_factor)
{
    const rg_routing *g = b->op->routing;
    const int n = g->score == RG_SCORE_CHOSEN ? g->n_used : g->n_experts;
    const float *logits = rg_mat_row(&b->in[0], r), *d = rg_mat_row(&b->d_out[0], r) + g->n_used;
    double *all = scratch, *score = all + g->n_experts, *d_score = score + g->n_used, dot = 0;
    float *d_logits = rg_mat_row(&b->d_in[0], r);
    int32_t *chosen = (int32_t *)(void *)(d_score + g->n_used);

    memcpy(chosen, rg_mat_row(&b->out[0], r), (size_t)g->n_used * sizeof *chosen);
    if (g->score == RG_SCORE_SIGMOID)
        for (int k = 0; k < g->n_used; k++)
            score[k] = rg_back_value(RG_SIGMOID, (double)logits[chosen[k]]);
    else
        softmax(logits, g->score == RG_SCORE_CHOSEN ? chosen : NULL, n, all);
    for (int k = 0; k < g->n_used && g->score != RG_SCORE_SIGMOID; k++)
        score[k] = all[g->score == RG_SCORE_CHOSEN ? k : chosen[k]];
    back_weights(b, chosen, score, d, d_score, d_factor);
    for (int k = 0; k < g->n_used; k++)
        dot += d_score[k] * score[k];
    for (int k = 0; k < g->n_used; k++) {
        const double by = g->score == RG_SCORE_SIGMOID ? 1 - score[k] : 1;
        d_logits[chosen[k]] += (float)(score[k] * d_score[k] * by);
    }
    for (int i = 0; i < n && g->score != RG_SCORE_SIGMOID; i++)
        d_logits[g->score == RG_SCORE_CHOSEN ? chosen[i] : i] -= (float)(all[i] * dot);
    if (b->lane->balance.by != 0)
        balance_row(g, &b->lane->balance, logits, all, d_logits);
}

typedef struct routing {
    const rg_back *b;
    size_t each;
    float *scratch, *part;
} routing;

static void route_rows(void *arg, int first, int n, int block, int thread)
{
    const routing *v = arg;
    float *part = v->part ? v->part + (size_t)block * (size_t)v->b->op->routing->n_experts : NULL;

    for (int r = first; r < first + n; r++)
        route_row(v->b, r, (double *)(void *)(v->scratch + (size_t)thread * v->each), part);
}

void rg_back_route(const rg_back *b)
{
    const rg_routing *g = b->op->routing;
    const int blocks = rg_back_blocks(b->in[0].rows);
    routing v = { .b = b, .each = rg_back_whole((size_t)(2 * g->n_experts + 6 * g->n_used)) };

    v.scratch = rg_back_room(b->lane, v.each * (size_t)b->lane->n_threads);
    if (b->dw[0])
        v.part = rg_back_zeros(b->lane, (size_t)blocks * (size_t)g->n_experts);
    if (!v.scratch || (b->dw[0] && !v.part))
        return;
    rg_back_each_rows(b->lane, b->in[0].rows, route_rows, &v);
    if (v.part)
        rg_back_fold(b->dw[0], v.part, blocks, g->n_experts);
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* The rows of one expert, side by side. */
typedef struct expert {
    const rg_back *b;
    int e, n;               /* which; rows */
    const int32_t *row, *k; /* [n] the row, and which of its choices the expert is */
    int n_in, hidden, n_out;
    bool gated;
    float *x, *gate, *up, *h, *y, *dy, *dh, *dgate, *dup, *dx;
} expert;

static float weight_of(const expert *v, int i)
{
    const int n_used = v->b->op->routing->n_used;

    return rg_mat_row(&v->b->in[1], v->row[i])[n_used + v->k[i]];
}

/* y [n, rows] = x w^T + bias, w being matrix e of the weights. */
static void forward(const expert *v, int which, const float *x, int n_in, float *y, int n_out)
{
    const rg_back *b = v->b;
    const float *bias = b->b[which] ? b->b[which] + (size_t)v->e * (size_t)n_out : NULL;

    rg_gemm_run(b->lane, &(rg_gemm){ .m = v->n,
                                     .n = n_out,
                                     .k = n_in,
                                     .a = x,
                                     .lda = (size_t)n_in,
                                     .b = b->w[which] + (size_t)v->e * (size_t)n_in * (size_t)n_out,
                                     .ldb = (size_t)n_in,
                                     .b_turned = true,
                                     .y = y,
                                     .ldy = (size_t)n_out });
    for (int i = 0; bias && i < v->n; i++)
        for (int c = 0; c < n_out; c++)
            y[(size_t)i * (size_t)n_out + (size_t)c] += bias[c];
}

/* dx (+)= w^T dy, and the gradients of w and its bias. */
static void backward(const expert *v, int which, const float *x, float *dx, int n_in, const float *dy, int n_out,
                     bool add)
{
    const rg_back *b = v->b;
    const size_t at = (size_t)v->e * (size_t)n_in * (size_t)n_out;
    const rg_mat d = { (float *)(uintptr_t)dy, (size_t)n_out, v->n, n_out };

    rg_gemm_run(b->lane, &(rg_gemm){ .m = v->n,
                                     .n = n_in,
                                     .k = n_out,
                                     .a = dy,
                                     .lda = (size_t)n_out,
                                     .b = b->w[which] + at,
                                     .ldb = (size_t)n_in,
                                     .y = dx,
                                     .ldy = (size_t)n_in,
                                     .add = add });
    if (b->dw[which])
        rg_gemm_run(b->lane, &(rg_gemm){ .m = n_out,
                                         .n = n_in,
                                         .k = v->n,
                                         .a = dy,
                                         .lda = (size_t)n_out,
                                         .a_turned = true,
                                         .b = x,
                                         .ldb = (size_t)n_in,
                                         .y = b->dw[which] + at,
                                         .ldy = (size_t)n_in,
                                         .add = true });
    if (b->db[which])
        rg_back_sum_rows(b->lane, b->db[which] + (size_t)v->e * (size_t)n_out, &d);
}

static void hidden_rows(void *arg, int first, int n, int block, int thread)
{
    const expert *v = arg;
    const size_t from = (size_t)first * (size_t)v->hidden;

    (void)block, (void)thread;
    rg_back_hidden(v->b->lane->backend, v->b->op->act, v->h + from, v->gated ? v->gate + from : NULL, v->up + from,
                   n * v->hidden);
}

/* v->h is not needed any more: it is scratch. */
static void back_hidden_rows(void *arg, int first, int n, int block, int thread)
{
    const expert *v = arg;
    const rg_backend *backend = v->b->lane->backend;
    const rg_activation act = v->b->op->act;
    const size_t from = (size_t)first * (size_t)v->hidden;
    const int all = n * v->hidden;

    (void)block, (void)thread;
    if (v->gated)
        rg_back_gated(backend, act, v->dgate + from, v->dup + from, v->gate + from, v->up + from, v->dh + from, all,
                      v->h + from);
    else
        rg_back_slopes(backend, act, v->dup + from, v->dh + from, v->up + from, all, v->h + from);
}

/* Row i's input, and the gradient of what the expert makes. */
static void take_rows(const expert *v)
{
    const bool weigh_input = v->b->op->routing->weigh_input;

    for (int i = 0; i < v->n; i++) {
        const float *x = rg_mat_row(&v->b->in[0], v->row[i]), *dy = rg_mat_row(&v->b->d_out[0], v->row[i]);
        const float by = weight_of(v, i);

        for (int c = 0; c < v->n_in; c++)
            v->x[(size_t)i * (size_t)v->n_in + (size_t)c] = weigh_input ? x[c] * by : x[c];
        for (int c = 0; c < v->n_out; c++)
            v->dy[(size_t)i * (size_t)v->n_out + (size_t)c] = weigh_input ? dy[c] : dy[c] * by;
    }
}

static void give_rows(const expert *v)
{
    const rg_routing *g = v->b->op->routing;

    for (int i = 0; i < v->n; i++) {
        const float *x = rg_mat_row(&v->b->in[0], v->row[i]), *dy = rg_mat_row(&v->b->d_out[0], v->row[i]);
        const float *dx = v->dx + (size_t)i * (size_t)v->n_in, *y = v->y + (size_t)i * (size_t)v->n_out;
        float *to = rg_mat_row(&v->b->d_in[0], v->row[i]), by = g->weigh_input ? weight_of(v, i) : 1;
        double d = 0;

        for (int c = 0; c < v->n_in; c++)
            to[c] += dx[c] * by;
        if (g->weigh_input)
            for (int c = 0; c < v->n_in; c++)
                d += (double)dx[c] * (double)x[c];
        else
            for (int c = 0; c < v->n_out; c++)
                d += (double)dy[c] * (double)y[c];
        rg_mat_row(&v->b->d_in[1], v->row[i])[g->n_used + v->k[i]] += (float)d;
    }
}

static void back_expert(expert *v)
{
    const int up = v->gated, down = up + 1;

    take_rows(v);
    if (v->gated)
        forward(v, 0, v->x, v->n_in, v->gate, v->hidden);
    forward(v, up, v->x, v->n_in, v->up, v->hidden);
    rg_back_each_rows(v->b->lane, v->n, hidden_rows, v);
    forward(v, down, v->h, v->hidden, v->y, v->n_out);
    backward(v, down, v->h, v->dh, v->hidden, v->dy, v->n_out, false);
    rg_back_each_rows(v->b->lane, v->n, back_hidden_rows, v);
    backward(v, up, v->x, v->dx, v->n_in, v->dup, v->hidden, false);
    if (v->gated)
        backward(v, 0, v->x, v->dx, v->n_in, v->dgate, v->hidden, true);
    give_rows(v);
}

static bool make_room(expert *v)
{
    rg_back_lane *l = v->b->lane;
    const size_t n = (size_t)v->n, h = (size_t)v->hidden;
    float **const of_hidden[] = { &v->gate, &v->up, &v->h, &v->dh, &v->dgate, &v->dup };

    for (size_t i = 0; i < RG_LEN(of_hidden); i++)
        *of_hidden[i] = rg_back_room(l, n * h);
    v->x = rg_back_room(l, n * (size_t)v->n_in);
    v->dx = rg_back_room(l, n * (size_t)v->n_in);
    v->y = rg_back_room(l, n * (size_t)v->n_out);
    v->dy = rg_back_room(l, n * (size_t)v->n_out);
    return !l->failed;
}

void rg_back_moe(const rg_back *b)
{
    const rg_op *op = b->op;
    const int n_used = op->routing->n_used, rows = b->in[0].rows;
    const bool gated = op->w[2];
    expert v = {
        .b = b, .gated = gated, .n_in = b->in[0].cols, .hidden = (int)op->w[gated]->rows, .n_out = b->d_out[0].cols
    };
    int32_t *row = (int32_t *)(void *)rg_back_room(b->lane, 2 * (size_t)rows), *k = row + rows;

    for (v.e = 0; row && v.e < op->routing->n_experts; v.e++) {
        const rg_back_mark mark = rg_back_marked(b->lane);

        v.n = 0;
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < n_used; i++) {
                int32_t e;

                memcpy(&e, rg_mat_row(&b->in[1], r) + i, sizeof e);
                if (e != v.e)
                    continue;
                row[v.n] = r;
                k[v.n++] = i;
            }
        v.row = row;
        v.k = k;
        if (v.n && make_room(&v))
            back_expert(&v);
        rg_back_give(b->lane, mark);
    }
}
