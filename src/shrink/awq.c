/* awq.c -- see awq.h.
 *
 * As the authors do it: all searches see activations and weights from before any folding; then all scales are folded,
 * the ranges of all matrices but those of queries and keys are cut, and values go to the nearest codes. */
#include "shrink/awq.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "shrink/packing.h"
#include "shrink/inputs.h"
#include "shrink/linear.h"

enum { MAX_GROUPS = 1 << 12, MAX_GROUP = 1 << 14 };

/* ---- the search for scales --------------------------------------------------------------------------------------- */

/* A power of the mean magnitude of each channel, such that the largest times the smallest is one. */
static void scales_of(const rg_input *x, double ratio, float *to)
{
    double least = INFINITY, most = 0;

    for (int64_t k = 0; k < x->cols; k++) {
        double v = pow(x->abs_sum[k] / (double)x->n_rows, ratio);
        v = v > 1e-4 ? v : 1e-4;
        least = v < least ? v : least;
        most = v > most ? v : most;
        to[k] = (float)v;
    }
    for (int64_t k = 0; k < x->cols; k++)
        to[k] = (float)((double)to[k] / sqrt(most * least));
}

/* to = round(w * s) / s, rounded to codes. */
static bool rounded(const rg_matrix *m, const float *s, float *to, rg_error *err)
{
    rg_coded coded;

    if (!rg_coded_init(&coded, &m->coding, m->rows, m->cols, err))
        return false;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t k = 0; k < m->cols; k++)
            to[r * m->cols + k] = m->w[r * m->cols + k] * s[k];
    rg_round_to_nearest(&coded, &m->coding, to);
    for (int64_t r = 0; r < m->rows; r++) {
        rg_coded_row(&coded, r, to + r * m->cols);
        for (int64_t k = 0; k < m->cols; k++)
            to[r * m->cols + k] /= s[k];
    }
    rg_coded_fini(&coded);
    return true;
}

typedef struct searching {
    rg_layer_work *l;
    const rg_fold *fold;
    float *want; /* [samples, rows of the stream]; NULL before its size is known */
    int64_t n_each;
    double loss;
    int n_reached;
    bool failed;
} searching;

static void keep_reached(void *arg, int sample, const float *rows, int64_t n)
{
    searching *s = arg;

    if (!s->want) {
        s->want = rg_table_new(RG_AWQ_SAMPLES, n, sizeof *s->want);
        s->n_each = n;
    }
    s->failed = s->failed || !s->want;
    if (s->want)
        memcpy(s->want + sample * n, rows, (size_t)n * sizeof *rows);
    s->n_reached++;
}

static void compare_reached(void *arg, int sample, const float *rows, int64_t n)
{
    searching *s = arg;
    const float *want = s->want + sample * n;
    double sum = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = (double)rows[i] - (double)want[i];
        sum += d * d;
    }
    s->loss += sum / (double)n / s->n_reached;
}

static bool pass(const searching *s, void (*reached)(void *arg, int sample, const float *rows, int64_t n),
                 rg_error *err)
{
    const rg_pass p = { .arg = (void *)(uintptr_t)s,
                        .n_samples = RG_AWQ_SAMPLES,
                        .reached = reached,
                        .until = s->fold->reader[s->fold->n_readers - 1] };

    return rg_stage_pass(s->l->stage, &p, err);
}

/* Put every reader's matrices in the place of the layer's: rounded under a scale, or (s NULL) as they are. */
static bool put_readers(const searching *s, const float *scale, rg_error *err)
{
    const rg_fold *f = s->fold;

    for (int i = 0; i < f->n_readers; i++)
        for (int64_t mat = 0; mat < f->reader[i]->n_mats; mat++) {
            const rg_matrix *m = rg_matrix_of(s->l, f->reader[i], mat);
            float *w = scale ? rg_table_new(m->rows, m->cols, sizeof *w) : m->w;
            if (!w)
                return rg_fail_memory(err, (size_t)(m->rows * m->cols) * sizeof *w);
            bool ok = !scale || rounded(m, scale, w, err);
            if (ok)
                rg_stage_put(s->l->stage, m->weight, mat, w);
            if (scale)
                rg_free(w);
            if (!ok)
                return false;
        }
    return true;
}

/* The mean square error of a matrix's own output. */
static bool own_loss(const rg_layer_work *l, const rg_matrix *m, const float *scale, double *loss, rg_error *err)
{
    float *w = rg_table_new(m->rows, m->cols, sizeof *w);
    double sum = 0;
    bool ok = w ? rounded(m, scale, w, err) : rg_fail_memory(err, (size_t)(m->rows * m->cols) * sizeof *w);

    for (int64_t i = 0; ok && i < m->rows * m->cols; i++)
        w[i] -= m->w[i];
    if (ok && !rg_quadratic(&sum, w, m->rows, m->x->gram, m->cols, l->pool))
        ok = rg_fail_memory(err, (size_t)m->rows * sizeof sum);
    *loss = sum / (double)m->x->n_rows / (double)m->rows;
    rg_free(w);
    return ok;
}

static bool try_ratio(searching *s, const rg_matrix *own, const float *scale, double *loss, rg_error *err)
{
    if (own)
        return own_loss(s->l, own, scale, loss, err);
    s->loss = 0;
    if (!put_readers(s, scale, err) || !pass(s, compare_reached, err))
        return false;
    *loss = s->loss;
    return true;
}

bool rg_awq_find_scale(rg_layer_work *l, const rg_fold *fold, rg_awq_search *to, rg_error *err)
{
    searching s = { .l = l, .fold = fold };
    const rg_input *x = rg_input_of(l, fold->reader[0], 0);
    const bool alone = fold->n_readers == 1 && fold->reader[0]->n_mats == 1;
    const rg_matrix *own = alone ? rg_matrix_of(l, fold->reader[0], 0) : NULL;
    float *scale = x ? rg_array((size_t)x->cols, sizeof *scale) : NULL;
    bool ok = !x || scale || rg_fail_memory(err, 64);

    *to = (rg_awq_search){ .best = -1 };
    if (ok && x && !own)
        ok = pass(&s, keep_reached, err) && (!s.failed || rg_fail_memory(err, 64));
    if (!ok || !x || !x->n_rows || (!own && !s.n_reached)) {
        rg_free(scale);
        rg_free(s.want);
        return ok;
    }
    for (int i = 0; ok && i < RG_AWQ_RATIOS; i++) {
        scales_of(x, (double)i / RG_AWQ_RATIOS, scale);
        ok = try_ratio(&s, own, scale, &to->loss[i], err);
        if (ok && (to->best < 0 || to->loss[i] < to->loss[to->best]))
            to->best = i;
    }
    ok = ok && (own || put_readers(&s, NULL, err));
    if (ok)
        scales_of(x, (double)to->best / RG_AWQ_RATIOS, scale);
    to->scale = scale;
    rg_free(s.want);
    return ok;
}

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

typedef struct multiplying {
    const rg_awq_seen *s;
    rg_pool *pool;
} multiplying;

/* The lower triangle of each group's products. */
static void multiply_some(void *arg, int thread)
{
    const multiplying *m = arg;
    const rg_awq_seen *s = m->s;
    uint32_t phase = 0;

    (void)thread;
    for (int64_t i; (i = rg_phase_take(m->pool, phase, (int)s->cols)) >= 0;) {
        double *to = s->gram + i * s->width;
        const int64_t first = i / s->width * s->width;

        for (int64_t r = 0; r < s->n; r++) {
            const float *x = s->x + r * s->cols;
            for (int64_t k = first; k <= i; k++)
                to[k - first] += (double)x[i] * (double)x[k];
        }
    }
    rg_phase_end(m->pool, &phase);
}

bool rg_awq_seen_init(rg_awq_seen *s, const rg_coding *c, const float *x, int64_t n, int64_t cols, rg_pool *pool,
                      rg_error *err)
{
    const multiplying m = { s, pool };

    *s = (rg_awq_seen){ .x = x, .n = n, .cols = cols, .width = c->group && c->group < cols ? c->group : cols };
    if (s->width > n)
        return true;
    s->gram = rg_table_new(cols, s->width, sizeof *s->gram);
    if (!s->gram)
        return rg_fail_memory(err, (size_t)cols * sizeof *s->gram);
    rg_pool_run(pool, rg_pool_threads(pool), multiply_some, (void *)(uintptr_t)&m);
    return true;
}

void rg_awq_seen_fini(rg_awq_seen *s)
{
    rg_free(s->gram);
    s->gram = NULL;
}

/* Mean square of what a group's codes lose of the products with x, from the group's first column on. */
static double cut_loss(const rg_awq_seen *s, const float *lost, int64_t first)
{
    double sum = 0;

    for (int64_t r = 0; !s->gram && r < s->n; r++) {
        float d = 0;
        for (int64_t k = 0; k < s->width; k++)
            d += lost[k] * s->x[r * s->cols + first + k];
        sum += (double)d * (double)d;
    }
    for (int64_t i = 0; s->gram && i < s->width; i++) {
        const double *row = s->gram + (first + i) * s->width;
        double below[4] = { 0 };
        int64_t k = 0;

        for (; k + 4 <= i; k += 4)
            for (int chain = 0; chain < 4; chain++)
                below[chain] += row[k + chain] * (double)lost[k + chain];
        for (; k < i; k++)
            below[0] += row[k] * (double)lost[k];
        const double d = (double)lost[i];
        sum += d * (2 * ((below[0] + below[1]) + (below[2] + below[3])) + row[i] * d);
    }
    return sum / (double)s->n;
}

void rg_awq_find_cuts(const rg_coding *c, const rg_awq_seen *s, const float *row, float *most)
{
    const int64_t width = s->width;
    const rg_coded as = { .kind = c->kind, .bits = c->bits, .over = 1 };

    for (int64_t g = 0; g * width < s->cols; g++) {
        const float *w = row + g * width;
        float lost[MAX_GROUP], all = 0;
        double best = INFINITY;
        for (int64_t k = 0; k < width; k++)
            all = fabsf(w[k]) > all ? fabsf(w[k]) : all;
        most[g] = all;
        for (int i = 0; i < RG_AWQ_CUTS; i++) {
            const float cut = all * (1 - (float)i / 20.0f);
            float low = 0, high = 0, scale, zero;
            for (int64_t k = 0; k < width; k++) {
                float v = w[k] < -cut ? -cut : w[k] > cut ? cut : w[k];
                low = v < low ? v : low;
                high = v > high ? v : high;
            }
            rg_choose_scale(c, low, high, &scale, &zero);
            for (int64_t k = 0; k < width; k++) {
                float v = w[k] < -cut ? -cut : w[k] > cut ? cut : w[k];
                lost[k] = rg_code_value(&as, rg_code_of(c, v, scale, zero), scale, zero) - w[k];
            }
            double loss = cut_loss(s, lost, g * width);
            if (loss < best) {
                best = loss;
                most[g] = cut;
            }
        }
    }
}

typedef struct cutting {
    rg_layer_work *l;
    rg_matrix *m;
    rg_awq_seen seen;
    float **row; /* per thread, [cols] */
} cutting;

/* The codes of what is left of each row; the matrix itself stays. */
static void cut_some(void *arg, int thread)
{
    const cutting *c = arg;
    rg_matrix *m = c->m;
    float most[MAX_GROUPS], *cut_row = c->row[thread];
    uint32_t phase = 0;

    for (int64_t r; (r = rg_phase_take(c->l->pool, phase, (int)m->rows)) >= 0;) {
        const float *row = m->w + r * m->cols;
        rg_awq_find_cuts(&m->coding, &c->seen, row, most);
        for (int64_t k = 0; k < m->cols; k++) {
            const float cut = most[k / m->coded.group];
            cut_row[k] = row[k] < -cut ? -cut : row[k] > cut ? cut : row[k];
        }
        rg_round_row(&m->coded, &m->coding, r, cut_row);
    }
    rg_phase_end(c->l->pool, &phase);
}

static bool cut_and_round(rg_layer_work *l, rg_matrix *m, rg_error *err)
{
    const int n = rg_pool_threads(l->pool);
    cutting c = { .l = l, .m = m, .row = rg_array((size_t)n, sizeof *c.row) };

    if (!rg_awq_seen_init(&c.seen, &m->coding, m->x->rows, m->x->n_kept, m->cols, l->pool, err)) {
        rg_free(c.row);
        return false;
    }
    bool ok = c.row;

    for (int i = 0; ok && i < n; i++)
        ok = (c.row[i] = rg_array((size_t)m->cols, sizeof **c.row)) != NULL;
    if (ok)
        rg_pool_run(l->pool, n, cut_some, &c);
    for (int i = 0; c.row && i < n; i++)
        rg_free(c.row[i]);
    rg_free(c.row);
    rg_awq_seen_fini(&c.seen);
    return ok || rg_fail_memory(err, (size_t)m->cols * sizeof(float));
}

/* ---- as a method ------------------------------------------------------------------------------------------------- */

static bool settle(rg_shrink_options *o, rg_error *err)
{
    rg_coding *c = &o->coding;

    if (c->kind != RG_CODE_INT || c->sym)
        return rg_fail(err, RG_E_USAGE, "awq: codes are integers with zero points");
    if (o->to_gguf)
        return rg_settle_gguf(o, err);
    o->form = c->bits == 4 ? RG_FORM_AWQ : RG_FORM_GPTQ;
    c->scale_type = RG_F16;
    return c->bits == 2 || c->bits == 3 || c->bits == 4 || c->bits == 8 ||
           rg_fail(err, RG_E_UNSUPPORTED, "awq: its files hold codes of 2, 3, 4 or 8 bits, not %d", c->bits);
}

static bool check_groups(const rg_layer_work *l, rg_error *err)
{
    for (int i = 0; i < l->n; i++) {
        const rg_matrix *m = &l->m[i];
        const int64_t group = m->coding.group && m->coding.group < m->cols ? m->coding.group : m->cols;
        if (m->cols % group || m->cols / group > MAX_GROUPS || group > MAX_GROUP)
            return rg_fail(err, RG_E_UNSUPPORTED, "tensor '%s': groups of %lld do not divide its %lld columns (awq)",
                           m->name, (long long)group, (long long)m->cols);
    }
    return true;
}

static bool is_of_queries(const rg_layer_work *l, const rg_weight *w)
{
    const rg_weight_set *set = &rg_stage_model(l->stage)->weights;
    const int role = set->spec[w - set->all]->role;

    return role == W_Q_PROJ || role == W_K_PROJ;
}

static bool scale_layer(rg_layer_work *l, rg_error *err)
{
    rg_fold folds[RG_MAX_FOLDS];
    rg_awq_search search[RG_MAX_FOLDS] = { 0 };
    int n;
    bool ok = rg_folds_find(rg_stage_model(l->stage), l->layer, folds, &n, err);

    for (int i = 0; ok && i < n; i++)
        if (rg_fold_is_possible(l, &folds[i]))
            ok = rg_awq_find_scale(l, &folds[i], &search[i], err);
    for (int i = 0; ok && i < n; i++)
        if (search[i].scale)
            ok = rg_fold_in(l, &folds[i], search[i].scale, err);
    for (int i = 0; i < RG_MAX_FOLDS; i++)
        rg_free(search[i].scale);
    return ok;
}

static bool layer(rg_layer_work *l, rg_error *err)
{
    if (!check_groups(l, err) || !scale_layer(l, err))
        return false;
    for (int i = 0; i < l->n; i++) {
        rg_matrix *m = &l->m[i];
        if (!rg_coded_init(&m->coded, &m->coding, m->rows, m->cols, err))
            return false;
        if (!m->x || !m->x->n_rows)
            snprintf(l->note, sizeof l->note, "%.70s: no row activates it; rounded to nearest", m->name);
        if (!m->x || !m->x->n_kept || is_of_queries(l, m->weight))
            rg_round_to_nearest(&m->coded, &m->coding, m->w);
        else if (!cut_and_round(l, m, err))
            return false;
    }
    return true;
}

const rg_shrink_method rg_shrink_awq = {
    .name = "awq",
    .summary = "channels scaled by their activations, then rounded to nearest (Lin et al. 2023)",
    .needs = RG_NEED_GRAM | RG_NEED_SPREAD | RG_NEED_ROWS,
    .settle = settle,
    .layer = layer,
};
