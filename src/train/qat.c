/* qat.c -- see qat.h. */
#include "train/qat_inside.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ops/back/inside.h"

enum { NAME = 640 };

typedef struct matrix {
    rg_master *master;
    int layer;
    int64_t rows, cols, groups;
    float *w, *dw;           /* behind the grid; NULL once codes are fixed */
    uint8_t *code;           /* [rows, cols] once they are */
    float *scale, *zero;     /* [rows, groups] */
    float *d_scale, *d_zero; /* NULL: nothing is learned */
    char name_scale[NAME], name_zero[NAME];
} matrix;

struct rg_qat {
    rg_grid grid;
    rg_masters *masters;
    double scale_rate;
    matrix *all;
    int n;
};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static int64_t width_of(const rg_qat *q, const matrix *m, int64_t group)
{
    const int64_t left = m->cols - group * q->grid.group;

    return left < q->grid.group ? left : q->grid.group;
}

static bool make_matrix(const rg_qat *q, matrix *m, rg_master *of, rg_error *err)
{
    const int64_t groups = (of->shape[1] + q->grid.group - 1) / q->grid.group;
    const bool learns = rg_grid_learns_scale(&q->grid);
    size_t n;

    *m = (matrix){ .master = of, .rows = of->shape[0], .cols = of->shape[1], .groups = groups };
    snprintf(m->name_scale, sizeof m->name_scale, "%.600s.scale", of->name);
    snprintf(m->name_zero, sizeof m->name_zero, "%.600s.zero", of->name);
    if (!rg_mul((size_t)m->rows, (size_t)groups, &n))
        return rg_fail_memory(err, SIZE_MAX);
    m->w = rg_array(of->n, sizeof *m->w);
    m->dw = rg_array(of->n, sizeof *m->dw);
    m->scale = rg_array(n, sizeof *m->scale);
    m->zero = rg_array(n, sizeof *m->zero);
    m->d_scale = learns ? rg_array(n, sizeof *m->d_scale) : NULL;
    m->d_zero = learns ? rg_array(n, sizeof *m->d_zero) : NULL;
    if (!m->w || !m->dw || !m->scale || !m->zero || (learns && (!m->d_scale || !m->d_zero)))
        return rg_fail_memory(err, of->n * 2 * sizeof *m->w);
    memcpy(m->w, of->w, of->n * sizeof *m->w);
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t g = 0; g < groups; g++) {
            const rg_grid_group begin =
                rg_grid_begin(&q->grid, m->w + r * m->cols + g * q->grid.group, width_of(q, m, g));
            m->scale[r * groups + g] = begin.scale;
            m->zero[r * groups + g] = begin.zero;
        }
    return true;
}

static void apply_matrix(const rg_qat *q, matrix *m)
{
    for (int64_t i = 0; i < m->rows * m->groups; i++) {
        const int64_t at = i / m->groups * m->cols + i % m->groups * q->grid.group, n = width_of(q, m, i % m->groups);
        rg_grid_group of = { m->scale[i], m->zero[i] };

        if (m->code) {
            for (int64_t k = 0; k < n; k++)
                m->master->w[at + k] = rg_grid_value(&q->grid, m->code[at + k], &of);
        } else {
            rg_grid_round(&q->grid, m->w + at, n, &of, m->master->w + at, NULL);
            m->scale[i] = of.scale;
        }
    }
}

rg_qat *rg_qat_new(rg_masters *m, const rg_grid *grid, double scale_rate, bool rest, rg_error *err)
{
    const int n = rg_masters_count(m);
    rg_qat *q = rg_zalloc(sizeof *q);
    bool ok = q || rg_fail_memory(err, sizeof *q);

    if (!ok)
        return NULL;
    *q = (rg_qat){ .masters = m, .grid = *grid, .scale_rate = scale_rate, .all = rg_array((size_t)n, sizeof *q->all) };
    ok = q->all || rg_fail_memory(err, (size_t)n * sizeof *q->all);
    for (int i = 0; ok && i < n; i++) {
        rg_master *a = rg_masters_at(m, i);

        const int layer = rg_masters_layer(m, i);

        a->frozen = layer < 0 && !rest;
        if (layer < 0)
            continue;
        ok = make_matrix(q, &q->all[q->n], a, err);
        q->all[q->n++].layer = layer;
    }
    if (ok && !q->n)
        ok = rg_fail(err, RG_E_UNSUPPORTED, "the model has no matrix in its layers that could lie on a grid");
    if (!ok) {
        rg_qat_free(q);
        return NULL;
    }
    for (int i = 0; i < q->n; i++)
        apply_matrix(q, &q->all[i]);
    return q;
}

void rg_qat_free(rg_qat *q)
{
    if (!q)
        return;
    for (int i = 0; q->all && i < q->n; i++) {
        const matrix *m = &q->all[i];

        rg_free(m->w);
        rg_free(m->dw);
        rg_free(m->code);
        rg_free(m->scale);
        rg_free(m->zero);
        rg_free(m->d_scale);
        rg_free(m->d_zero);
    }
    rg_free(q->all);
    rg_free(q);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static bool add_one(const rg_qat *q, rg_adamw *a, const char *name, const matrix *m, float *w, float *g, bool is_weight,
                    rg_error *err)
{
    const int64_t cols = is_weight ? m->cols : m->groups;
    const rg_adamw_tensor t = { .name = name,
                                .n_dims = 2,
                                .shape = { m->rows, cols },
                                .w = w,
                                .g = g,
                                .n = (size_t)(m->rows * cols),
                                .rate = is_weight ? 1 : q->scale_rate,
                                .keeps = !is_weight };

    return rg_adamw_add(a, &t, err);
}

static bool add_matrix(const rg_qat *q, rg_adamw *a, const matrix *m, rg_error *err)
{
    return (m->code || add_one(q, a, m->master->name, m, m->w, m->dw, true, err)) &&
           (!m->d_scale || add_one(q, a, m->name_scale, m, m->scale, m->d_scale, false, err)) &&
           (!m->d_zero || m->code || q->grid.kind != RG_GRID_AFFINE ||
            add_one(q, a, m->name_zero, m, m->zero, m->d_zero, false, err));
}

/* Of fixed codes: d s = sum of d value * (code - zero). */
static float scale_alone(const rg_qat *q, const uint8_t *code, int64_t n, rg_grid_group of, const float *d)
{
    double sum = 0;

    of.scale = 1;
    for (int64_t k = 0; k < n; k++)
        sum += (double)d[k] * (double)rg_grid_value(&q->grid, code[k], &of);
    return (float)sum;
}

static void pull_matrix(const rg_qat *q, const matrix *m)
{
    for (int64_t i = 0; i < m->rows * m->groups; i++) {
        const int64_t at = i / m->groups * m->cols + i % m->groups * q->grid.group, n = width_of(q, m, i % m->groups);
        const rg_grid_group of = { m->scale[i], m->zero[i] };
        rg_grid_group d = { 0 };

        if (m->code)
            d.scale = scale_alone(q, m->code + at, n, of, m->master->g + at);
        else
            rg_grid_back(&q->grid, m->w + at, n, &of, m->master->g + at, m->dw + at, &d);
        if (m->d_scale) {
            m->d_scale[i] = d.scale;
            m->d_zero[i] = d.zero;
        }
    }
}

typedef struct some {
    rg_qat *q;
    int layer;
} some;

static bool is_of(const matrix *m, int layer)
{
    return layer == RG_ALL_LAYERS || m->layer == layer;
}

static void pull_one(void *arg, int i, int thread)
{
    const some *a = arg;

    (void)thread;
    if (is_of(&a->q->all[i], a->layer))
        pull_matrix(a->q, &a->q->all[i]);
}

static void apply_one(void *arg, int i, int thread)
{
    const some *a = arg;

    (void)thread;
    if (is_of(&a->q->all[i], a->layer))
        apply_matrix(a->q, &a->q->all[i]);
}

void rg_qat_pull_layer(rg_qat *q, int layer, rg_back_lane *lane)
{
    rg_back_each(lane, q->n, pull_one, &(some){ q, layer });
}

void rg_qat_apply_layer(rg_qat *q, int layer, rg_back_lane *lane)
{
    rg_back_each(lane, q->n, apply_one, &(some){ q, layer });
}

void rg_qat_lift_layer(rg_qat *q, int layer)
{
    for (int i = 0; i < q->n; i++)
        if (is_of(&q->all[i], layer) && q->all[i].w)
            memcpy(q->all[i].master->w, q->all[i].w, q->all[i].master->n * sizeof(float));
}

bool rg_qat_add_layer(rg_qat *q, int layer, rg_adamw *a, rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && i < q->n; i++)
        ok = !is_of(&q->all[i], layer) || add_matrix(q, a, &q->all[i], err);
    return ok;
}

/* What is on the grid, and the other masters that are not frozen. */
static bool add_all(void *arg, rg_adamw *a, rg_error *err)
{
    const rg_qat *q = arg;
    bool ok = rg_qat_add_layer(arg, RG_ALL_LAYERS, a, err);

    for (int i = 0; ok && i < rg_masters_count(q->masters); i++) {
        const rg_master *m = rg_masters_at(q->masters, i);

        ok = m->frozen || rg_masters_layer(q->masters, i) >= 0 || rg_adamw_add_master(a, m, err);
    }
    return ok;
}

static void pull_all(void *arg, rg_back_lane *lane)
{
    rg_qat_pull_layer(arg, RG_ALL_LAYERS, lane);
}

static void apply_all(void *arg, rg_back_lane *lane)
{
    rg_qat_apply_layer(arg, RG_ALL_LAYERS, lane);
}

rg_stand_in rg_qat_stand_in(rg_qat *q)
{
    return (rg_stand_in){ q, add_all, pull_all, apply_all };
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

static void codes_of_row(const rg_qat *q, const matrix *m, int64_t row, uint8_t *code, float *scratch)
{
    for (int64_t g = 0; g < m->groups; g++) {
        const int64_t at = row * m->cols + g * q->grid.group;
        rg_grid_group of = { m->scale[row * m->groups + g], m->zero[row * m->groups + g] };

        rg_grid_round(&q->grid, m->w + at, width_of(q, m, g), &of, scratch, code + g * q->grid.group);
    }
}

static bool fix_matrix(rg_qat *q, matrix *m, rg_error *err)
{
    float *scratch = rg_array((size_t)m->cols, sizeof *scratch);

    if (m->code)
        return rg_free(scratch), true;
    m->code = rg_array(m->master->n, 1);
    if (!scratch || !m->code)
        return rg_free(scratch), rg_fail_memory(err, m->master->n);
    for (int64_t r = 0; r < m->rows; r++)
        codes_of_row(q, m, r, m->code + r * m->cols, scratch);
    rg_free(scratch);
    rg_free(m->w);
    rg_free(m->dw);
    m->w = m->dw = NULL;
    apply_matrix(q, m);
    return true;
}

bool rg_qat_fix_layer(rg_qat *q, int layer, rg_error *err)
{
    bool ok = true;

    for (int i = 0; ok && i < q->n; i++)
        ok = !is_of(&q->all[i], layer) || fix_matrix(q, &q->all[i], err);
    return ok;
}

bool rg_qat_each_fixed(const rg_qat *q, int layer, rg_qat_tensor_fn *each, void *arg, rg_error *err)
{
    char codes[NAME];
    bool ok = true;

    for (int i = 0; ok && i < q->n; i++) {
        const matrix *m = &q->all[i];
        const int64_t all[] = { m->rows, m->cols }, groups[] = { m->rows, m->groups };

        if (!is_of(m, layer) || !m->code)
            continue;
        snprintf(codes, sizeof codes, "%.600s.codes", m->master->name);
        ok = each(arg, codes, RG_U8, all, m->code, err) && each(arg, m->name_scale, RG_F32, groups, m->scale, err) &&
             each(arg, m->name_zero, RG_F32, groups, m->zero, err);
    }
    return ok;
}

void rg_qat_describe(const rg_qat *q, rg_buf *to)
{
    rg_buf_printf(to, "grid %d of %d bits, groups of %lld, scales %.17g", (int)q->grid.kind, q->grid.bits,
                  (long long)q->grid.group, q->scale_rate);
}

bool rg_qat_fix_codes(rg_qat *q, rg_error *err)
{
    return rg_qat_fix_layer(q, RG_ALL_LAYERS, err);
}

int rg_qat_count(const rg_qat *q)
{
    return q->n;
}

rg_qat_matrix rg_qat_at(const rg_qat *q, int i)
{
    const matrix *m = &q->all[i];

    return (rg_qat_matrix){ m->master->name, m->rows, m->cols, m->groups, m->scale, m->zero, m->code };
}

int rg_qat_find(const rg_qat *q, const char *name)
{
    for (int i = 0; i < q->n; i++)
        if (!strcmp(q->all[i].master->name, name))
            return i;
    return -1;
}
