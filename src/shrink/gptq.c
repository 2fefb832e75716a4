/* gptq.c -- see gptq.h.
 *
 * Rows are independent of each other once the factor of the inverse is known: threads take a few at a time, and go
 * through the columns in blocks of 128, so that a block's updates of later columns are made at once. */
#include "shrink/gptq.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "shrink/packing.h"
#include "shrink/linear.h"

enum { BLOCK = 128, AT_ONCE = 8 };

typedef struct gptq {
    rg_coded *to;
    const rg_coding *c;
    const float *w;
    const rg_gptq_options *o;
    int64_t cols;
    int32_t *order;   /* [cols] column that is the i-th */
    const bool *dead; /* [cols] by column: no row activates it */
    double *u;        /* [cols, cols] in that order */
    double **row;     /* per thread, [AT_ONCE][2 * cols]: values, and errors of a block */
    rg_pool *pool;
} gptq;

/* ---- scales ------------------------------------------------------------------------------------------------------ */

/* The scale of group g of row r, from n values. */
static void choose(const gptq *g, int64_t r, int64_t group, const double *v, int64_t n)
{
    const int64_t at = r * g->to->n_groups + group;
    double least = 0, most = 0;
    float zero;

    for (int64_t k = 0; k < n; k++) {
        least = v[k] < least ? v[k] : least;
        most = v[k] > most ? v[k] : most;
    }
    rg_choose_scale(g->c, (float)least, (float)most, &g->to->scale[at], &zero);
    if (g->to->zero)
        g->to->zero[at] = zero;
}

/* Scales of runs of columns, from the weights as they came.  scratch [cols]. */
static void choose_static(const gptq *g, int64_t r, double *scratch)
{
    for (int64_t i = 0; i < g->to->n_groups; i++) {
        const int64_t first = i * g->to->group;
        const int64_t n = first + g->to->group < g->cols ? g->to->group : g->cols - first;
        for (int64_t k = 0; k < n; k++) /* with one group, dead columns count: the range is found before they are cut */
            scratch[k] = g->dead[first + k] && g->to->n_groups > 1 ? 0 : (double)g->w[r * g->cols + first + k];
        choose(g, r, i, scratch, n);
    }
}

static bool is_static(const gptq *g)
{
    return g->o->static_groups || g->to->n_groups == 1;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Column i of the order, of row r: its code, and what is lost, over the diagonal. */
static double code_column(const gptq *g, int64_t r, int64_t i, double value)
{
    const int64_t col = g->order[i], group = rg_group_of(g->to, col), at = r * g->to->n_groups + group;
    const float scale = g->to->scale[at], zero = g->to->zero ? g->to->zero[at] : 0;
    const uint8_t q = rg_code_of(g->c, (float)value, scale, zero);

    g->to->q[r * g->cols + col] = q;
    return (value - (double)rg_code_value(g->to, q, scale, zero)) / g->u[i * g->cols + i];
}

/* Block [first, end) of one row: v is the row; e gets the errors.  Scales of groups that begin here come from what the
 * blocks before left of them. */
static void code_block(const gptq *g, int64_t r, int64_t first, int64_t end, double *v, double *e)
{
    double local[BLOCK];

    memcpy(local, v + first, (size_t)(end - first) * sizeof *v);
    for (int64_t i = first; i < end; i++) {
        const double *u = g->u + i * g->cols;
        if (!is_static(g) && i % g->to->group == 0)
            choose(g, r, i / g->to->group, v + i, i + g->to->group < g->cols ? g->to->group : g->cols - i);
        double lost = code_column(g, r, i, local[i - first]);
        for (int64_t k = i; k < end; k++)
            local[k - first] -= lost * u[k];
        e[i - first] = lost;
    }
}

static void code_rows(const gptq *g, int64_t from, int64_t to, double *scratch)
{
    const int64_t cols = g->cols;

    for (int64_t r = from; r < to; r++) {
        double *v = scratch + (r - from) * 2 * cols;
        if (is_static(g))
            choose_static(g, r, v);
        for (int64_t i = 0; i < cols; i++)
            v[i] = g->dead[g->order[i]] ? 0 : (double)g->w[r * cols + g->order[i]];
    }
    for (int64_t first = 0; first < cols; first += BLOCK) {
        const int64_t end = first + BLOCK < cols ? first + BLOCK : cols;
        for (int64_t r = from; r < to; r++) {
            double *v = scratch + (r - from) * 2 * cols;
            code_block(g, r, first, end, v, v + cols);
        }
        for (int64_t i = first; i < end; i++) {
            const double *u = g->u + i * cols;
            for (int64_t r = from; r < to; r++) {
                double *v = scratch + (r - from) * 2 * cols, by = v[cols + i - first];
                for (int64_t k = end; k < cols; k++)
                    v[k] -= by * u[k];
            }
        }
    }
}

static void code_some(void *arg, int thread)
{
    const gptq *g = arg;
    uint32_t phase = 0;

    for (int c; (c = rg_phase_take(g->pool, phase, rg_ceil_div(g->to->rows, AT_ONCE))) >= 0;) {
        const int64_t r = (int64_t)AT_ONCE * c;
        code_rows(g, r, r + AT_ONCE < g->to->rows ? r + AT_ONCE : g->to->rows, g->row[thread]);
    }
    rg_phase_end(g->pool, &phase);
}

/* ---- the factor -------------------------------------------------------------------------------------------------- */

typedef struct ranked {
    double by;
    int32_t col;
} ranked;

static int falling(const void *a, const void *b)
{
    const ranked *x = a, *y = b;

    return x->by > y->by ? -1 : x->by < y->by ? 1 : x->col < y->col ? -1 : 1;
}

static bool put_in_order(gptq *g, const double *gram, rg_error *err)
{
    ranked *of = rg_array((size_t)g->cols, sizeof *of);

    if (!of)
        return rg_fail_memory(err, (size_t)g->cols * sizeof *of);
    for (int64_t i = 0; i < g->cols; i++)
        of[i] = (ranked){ g->dead[i] ? 1 : gram[i * g->cols + i], (int32_t)i };
    if (g->o->act_order)
        qsort(of, (size_t)g->cols, sizeof *of, falling);
    for (int64_t i = 0; i < g->cols; i++)
        g->order[i] = of[i].col;
    rg_free(of);
    return true;
}

/* Groups are numbered in the order in which their columns are coded. */
static bool number_groups(gptq *g, rg_error *err)
{
    rg_coded *to = g->to;

    if (!g->o->act_order || g->o->static_groups || to->n_groups == 1)
        return true;
    to->group_of = rg_array((size_t)g->cols, sizeof *to->group_of);
    if (!to->group_of)
        return rg_fail_memory(err, (size_t)g->cols * sizeof *to->group_of);
    for (int64_t i = 0; i < g->cols; i++)
        to->group_of[g->order[i]] = (int32_t)(i / to->group);
    return true;
}

/* The factor of the inverse of gram, damped; more strongly where it would not exist. */
static bool factorise(gptq *g, const double *gram, double *damped, rg_error *err)
{
    const int64_t n = g->cols;
    double mean = 0, damp = g->o->damp > 0 ? g->o->damp : 0.01;

    for (int64_t i = 0; i < n; i++)
        mean += (g->dead[i] ? 1 : gram[i * n + i]) / (double)n;
    for (; damp <= 1e4; damp *= 10) {
        for (int64_t i = 0; i < n; i++) {
            for (int64_t j = 0; j < n; j++)
                g->u[i * n + j] = gram[g->order[i] * n + g->order[j]];
            if (g->dead[g->order[i]])
                g->u[i * n + i] = 1;
            g->u[i * n + i] += damp * mean;
        }
        if (rg_inverse_factor(g->u, n)) {
            if (damped)
                *damped = damp;
            return true;
        }
    }
    return rg_fail(err, RG_E_INPUT, "the second derivatives cannot be inverted: they are not finite");
}

bool rg_gptq(rg_coded *to, const rg_coding *c, const float *w, const double *gram, const rg_gptq_options *o,
             rg_pool *pool, double *damped, rg_error *err)
{
    const int64_t n = to->cols, threads = rg_pool_threads(pool);
    bool *dead = rg_array((size_t)n, sizeof *dead);
    gptq g = { to, c, w, o, n, .order = rg_array((size_t)n, sizeof *g.order), .dead = dead, .pool = pool };
    size_t n_u;
    bool ok;

    g.u = rg_mul((size_t)n, (size_t)n, &n_u) ? rg_array(n_u, sizeof *g.u) : NULL;
    g.row = rg_array((size_t)threads, sizeof *g.row);
    ok = dead && g.order && g.u && g.row;
    for (int i = 0; ok && i < threads; i++)
        ok = (g.row[i] = rg_table_new(n, 2 * AT_ONCE, sizeof **g.row)) != NULL;
    if (!ok)
        rg_fail_memory(err, (size_t)n * (size_t)n * sizeof *g.u);
    for (int64_t i = 0; ok && i < n; i++)
        dead[i] = gram[i * n + i] == 0;
    ok = ok && put_in_order(&g, gram, err) && number_groups(&g, err) && factorise(&g, gram, damped, err);
    if (ok)
        rg_pool_run(pool, (int)threads, code_some, &g);
    for (int i = 0; g.row && i < threads; i++)
        rg_free(g.row[i]);
    rg_free(g.row);
    rg_free(g.u);
    rg_free(g.order);
    rg_free(dead);
    return ok;
}

/* ---- as a method ------------------------------------------------------------------------------------------------- */

static bool settle(rg_shrink_options *o, rg_error *err)
{
    rg_coding *c = &o->coding;

    if (c->kind != RG_CODE_INT)
        return rg_fail(err, RG_E_USAGE, "gptq: codes are integers");
    if (o->to_gguf && o->act_order && !o->static_groups)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "gptq: GGUF has no order of columns, as --act-order needs unless --static-groups is given");
    if (o->to_gguf)
        return rg_settle_gguf(o, err);
    o->form = RG_FORM_GPTQ;
    c->scale_type = RG_F16;
    return c->bits == 2 || c->bits == 3 || c->bits == 4 || c->bits == 8 ||
           rg_fail(err, RG_E_UNSUPPORTED, "gptq: its files hold codes of 2, 3, 4 or 8 bits, not %d", c->bits);
}

/* A matrix that nothing activates has no second derivatives: its values go to the nearest codes. */
static bool layer(rg_layer_work *l, rg_error *err)
{
    const rg_gptq_options o = { .act_order = l->o->act_order, .static_groups = l->o->static_groups };
    double damped = 0;

    for (int i = 0; i < l->n; i++) {
        rg_matrix *m = &l->m[i];
        if (!rg_coded_init(&m->coded, &m->coding, m->rows, m->cols, err))
            return false;
        if (!m->x || !m->x->n_rows) {
            rg_round_to_nearest(&m->coded, &m->coding, m->w);
            snprintf(l->note, sizeof l->note, "%.70s: no row activates it; rounded to nearest", m->name);
        } else if (!rg_gptq(&m->coded, &m->coding, m->w, m->x->gram, &o, l->pool, &damped, err)) {
            return rg_fail_prefix(err, "%s", m->name);
        } else if (damped > 0.01) {
            snprintf(l->note, sizeof l->note, "%.70s: damped by %g of the mean, not 0.01", m->name, damped);
        }
    }
    return true;
}

const rg_shrink_method rg_shrink_gptq = {
    .name = "gptq",
    .summary = "columns one by one, later ones making up for what is lost (Frantar et al. 2023)",
    .needs = RG_NEED_GRAM,
    .follows = true,
    .settle = settle,
    .layer = layer,
};
