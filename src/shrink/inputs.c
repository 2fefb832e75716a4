/* inputs.c -- see inputs.h. */
#include "shrink/inputs.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "shrink/linear.h"

enum { MAX_COLS = 1 << 16 }; /* of a matrix whose inputs are multiplied with each other: the square takes 34 GB */

typedef struct collecting {
    rg_layer_work *l;
    unsigned needs;
    int room;
} collecting;

rg_input *rg_input_of(const rg_layer_work *l, const rg_weight *w, int64_t mat)
{
    for (int i = 0; i < l->n_inputs; i++)
        for (int k = 0; k < l->inputs[i].n_w; k++)
            if (l->inputs[i].w[k] == w && l->inputs[i].mat == mat)
                return &l->inputs[i];
    return NULL;
}

static bool add_input(collecting *c, const rg_read *read, rg_error *err)
{
    rg_layer_work *l = c->l;
    const size_t n = (size_t)read->cols;
    size_t square;

    if (l->n_inputs == c->room) {
        const int room = c->room ? 2 * c->room : 32;
        rg_input *more = rg_resize_array(l->inputs, (size_t)room, sizeof *more);
        if (!more)
            return rg_fail_memory(err, (size_t)room * sizeof *more);
        l->inputs = more;
        c->room = room;
    }
    rg_input *x = &l->inputs[l->n_inputs++];
    *x = (rg_input){ .n_w = read->n_w, .takes_zeros = read->takes_zeros, .mat = read->mat, .cols = read->cols };
    memcpy(x->w, read->w, sizeof x->w);
    if ((c->needs & RG_NEED_GRAM) && n > MAX_COLS)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: rows of %zu values; %s takes up to %d", read->w[0]->name, n,
                       l->o->method->name, MAX_COLS);
    if (c->needs & RG_NEED_GRAM)
        x->gram = rg_mul(n, n, &square) ? rg_array(square, sizeof *x->gram) : NULL;
    if (c->needs & RG_NEED_SPREAD) {
        x->abs_sum = rg_array(n, sizeof *x->abs_sum);
        x->abs_max = rg_array(n, sizeof *x->abs_max);
    }
    if (c->needs & RG_NEED_ROWS)
        x->rows = rg_table_new(2 * RG_KEPT_ROWS, read->cols, sizeof *x->rows);
    return (((c->needs & RG_NEED_GRAM) == 0 || x->gram) && ((c->needs & RG_NEED_SPREAD) == 0 || x->abs_max) &&
            ((c->needs & RG_NEED_SPREAD) == 0 || x->abs_sum) && ((c->needs & RG_NEED_ROWS) == 0 || x->rows)) ||
           rg_fail_memory(err, n * n * sizeof(double));
}

/* Every so many rows one is kept, so that all of the text has its part. */
static int64_t step_of(const rg_layer_work *l, const rg_input *x)
{
    int64_t n = (int64_t)l->o->n_samples * l->o->ctx;
    const rg_routing *routing = &l->config->routing;

    if (x->w[0]->n_mats > 1 && routing->n_experts > 0)
        n = n * routing->n_used / routing->n_experts;
    return n > RG_KEPT_ROWS ? n / RG_KEPT_ROWS : 1;
}

static bool add_rows(const collecting *c, rg_input *x, const rg_read *read, int sample, rg_error *err)
{
    const int64_t step = step_of(c->l, x), cols = x->cols;

    for (int64_t r = 0; r < read->n; r++) {
        const float *row = read->rows + r * cols;
        for (int64_t k = 0; k < cols; k++)
            if (!isfinite(row[k]))
                return rg_fail(err, RG_E_INPUT, "%s: what it reads is not finite (column %lld, calibration sample %d)",
                               x->w[0]->name, (long long)k, sample);
        for (int64_t k = 0; x->abs_sum && k < cols; k++) {
            x->abs_sum[k] += fabs((double)row[k]);
            x->abs_max[k] = fabsf(row[k]) > x->abs_max[k] ? fabsf(row[k]) : x->abs_max[k];
        }
        if (x->rows && (x->n_rows + r) % step == 0 && x->n_kept < 2 * RG_KEPT_ROWS)
            memcpy(x->rows + x->n_kept++ * cols, row, (size_t)cols * sizeof *row);
    }
    if (x->gram)
        rg_gram_add(x->gram, read->rows, read->n, cols, c->l->pool);
    x->n_rows += read->n;
    return true;
}

static bool take(void *arg, int sample, const rg_read *reads, int n, rg_error *err)
{
    collecting *c = arg;

    for (int i = 0; i < n; i++) {
        rg_input *x = rg_input_of(c->l, reads[i].w[0], reads[i].mat);
        if (!x && !add_input(c, &reads[i], err))
            return false;
        if (!x)
            x = &c->l->inputs[c->l->n_inputs - 1];
        if (!add_rows(c, x, &reads[i], sample, err))
            return false;
    }
    return true;
}

bool rg_inputs_collect(rg_layer_work *l, unsigned needs, rg_error *err)
{
    collecting c = { .l = l, .needs = needs };

    if (!rg_stage_pass(l->stage, &(rg_pass){ .arg = &c, .read = take }, err))
        return false;
    for (int i = 0; i < l->n_inputs; i++)
        if (l->inputs[i].gram)
            rg_gram_mirror(l->inputs[i].gram, l->inputs[i].cols);
    return true;
}

void rg_inputs_free(rg_layer_work *l)
{
    for (int i = 0; i < l->n_inputs; i++) {
        rg_free(l->inputs[i].gram);
        rg_free(l->inputs[i].abs_sum);
        rg_free(l->inputs[i].abs_max);
        rg_free(l->inputs[i].rows);
    }
    rg_free(l->inputs);
    l->inputs = NULL;
    l->n_inputs = 0;
}
