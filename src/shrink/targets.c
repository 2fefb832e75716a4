/* targets.c -- see targets.h. */
#include "shrink/targets.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "shrink/packing.h"

const rg_tensor *rg_targets_tensor(const rg_targets *p, int weight, int64_t mat)
{
    rg_weight_source s = rg_weight_source_of(p->set->spec[weight], p->config, p->from, p->set->layer[weight]);
    char name[RG_WEIGHT_NAME];

    return rg_weight_source_find(&s, s.experts ? (int)mat : 0, name);
}

static void shape_of(const rg_weight_source *s, const rg_tensor *t, int64_t *rows, int64_t *cols)
{
    *rows = s->transposed ? rg_tensor_cols(t) : rg_tensor_rows(t);
    *cols = s->transposed ? rg_tensor_rows(t) : rg_tensor_cols(t);
}

void rg_targets_shape(const rg_targets *p, const rg_tensor *t, int64_t *rows, int64_t *cols)
{
    const int i = p->first[t - rg_checkpoint_tensor(p->from, 0)];
    const rg_weight_source s = rg_weight_source_of(p->set->spec[i], p->config, p->from, p->set->layer[i]);

    shape_of(&s, t, rows, cols);
}

/* NULL: the matrices of a weight can be coded; else why not. */
static const char *refuses(const rg_targets *p, int i)
{
    const rg_weight_spec *spec = p->set->spec[i];
    const rg_weight *w = &p->set->all[i];
    rg_weight_source s = rg_weight_source_of(spec, p->config, p->from, p->set->layer[i]);
    const rg_tensor *t = rg_targets_tensor(p, i, 0);
    int64_t rows, cols;
    uint64_t row;

    if (spec->role == W_ROUTER || spec->role == W_SHARED_ROUTER)
        return "it chooses experts";
    if (!t || s.load || (p->o->to_gguf && spec->to_gguf))
        return "it is stored in a form of its own";
    if (t->file == RG_FILE_COMPOSED)
        return "it is in codes already";
    if (p->o->to_gguf) {
        rg_type type;
        if (p->o->form == RG_FORM_PLAIN || !rg_packing_gguf(&p->o->coding, &type))
            return NULL;
        return rg_row_bytes(type, w->cols, &row) ? NULL : "blocks of 32 do not divide its rows";
    }
    if (t->n_dims != 2)
        return "its tensor holds several matrices";
    if (s.transposed && p->o->form == RG_FORM_PLAIN)
        return "its tensor stands the other way round";
    shape_of(&s, t, &rows, &cols);
    return rg_packing_refuses(p->o->form, &p->o->coding, rows, cols);
}

static void keep(rg_targets *p, int i, const char *why)
{
    p->codes[i] = false;
    p->n_kept += (int)p->set->all[i].n_mats;
    if (!p->kept[0])
        snprintf(p->kept, sizeof p->kept, "%.80s: %.70s", p->set->all[i].name, why);
}

/* Weights of each tensor. */
static bool link_tensors(rg_targets *p, rg_error *err)
{
    const int n = rg_checkpoint_n_tensors(p->from);
    const rg_tensor *all = rg_checkpoint_tensor(p->from, 0);

    p->first = rg_array((size_t)n, sizeof *p->first);
    p->next = rg_array((size_t)p->set->n, sizeof *p->next);
    if (!p->first || !p->next)
        return rg_fail_memory(err, (size_t)n * sizeof *p->first);
    for (int i = 0; i < n; i++)
        p->first[i] = -1;
    for (int i = p->set->n; i-- > 0;) {
        rg_weight_source s = rg_weight_source_of(p->set->spec[i], p->config, p->from, p->set->layer[i]);
        p->next[i] = -1;
        for (int64_t e = 0; e < s.n_tensors; e++) {
            const rg_tensor *t = rg_targets_tensor(p, i, e);
            if (!t)
                continue;
            if (p->first[t - all] != i) /* each expert has a tensor of its own */
                p->next[i] = p->first[t - all];
            p->first[t - all] = i;
        }
    }
    return true;
}

/* A tensor that holds several weights is coded if all its rows are. */
static void keep_parts(rg_targets *p)
{
    const rg_tensor *all = rg_checkpoint_tensor(p->from, 0);

    for (int i = 0; i < p->set->n; i++) {
        const rg_tensor *t = p->codes[i] ? rg_targets_tensor(p, i, 0) : NULL;
        int64_t rows = 0;
        if (!t)
            continue;
        for (int k = p->first[t - all]; k >= 0; k = p->next[k])
            rows += p->codes[k] ? p->set->all[k].rows : 0;
        rg_weight_source s = rg_weight_source_of(p->set->spec[i], p->config, p->from, p->set->layer[i]);
        if (rows != s.stored_rows)
            for (int k = p->first[t - all]; k >= 0; k = p->next[k])
                if (p->codes[k])
                    keep(p, k, "other rows of its tensor stay as they are");
    }
}

bool rg_targets_make(rg_targets *p, const rg_checkpoint *from, const rg_shrink_options *o, const rg_config *c,
                  const rg_weight_set *set, rg_error *err)
{
    bool any = false;

    *p = (rg_targets){ .from = from, .o = o, .config = c, .set = set };
    p->codes = rg_array((size_t)set->n, sizeof *p->codes);
    if (!p->codes)
        return rg_fail_memory(err, (size_t)set->n);
    if (!link_tensors(p, err))
        return false;
    for (int i = 0; i < set->n; i++) {
        const bool is_matrix = set->layer[i] >= 0 && !rg_spec_is_vector(set->spec[i]) && !set->spec[i]->derive;
        const char *why = is_matrix ? refuses(p, i) : NULL;
        p->codes[i] = is_matrix && !why;
        if (why)
            keep(p, i, why);
    }
    keep_parts(p);
    for (int i = 0; i < set->n; i++)
        any = any || p->codes[i];
    return any || rg_fail(err, RG_E_UNSUPPORTED, "%s: no matrix of its layers can be coded so%s%s",
                          rg_checkpoint_path(from), p->kept[0] ? ": " : "", p->kept);
}

void rg_targets_fini(rg_targets *p)
{
    rg_free(p->codes);
    rg_free(p->first);
    rg_free(p->next);
    *p = (rg_targets){ 0 };
}

rg_becomes rg_targets_becomes(const rg_targets *p, const rg_tensor *t, const bool *folded)
{
    const int i = p->first[t - rg_checkpoint_tensor(p->from, 0)];

    if (i < 0)
        return RG_STAYS;
    return folded[i] ? RG_VECTOR : !p->codes[i] ? RG_STAYS : p->o->form == RG_FORM_PLAIN ? RG_VALUES : RG_CODED;
}

/* ---- what was made, in the tensor's order ------------------------------------------------------------------------ */

typedef struct composing {
    const rg_targets *p;
    const rg_tensor *t;
    int64_t rows, cols;
    rg_coded *coded;
    float **values;
} composing;

/* Room for the whole tensor, as the first part of it is. */
static bool start(composing *c, const rg_coded *part, rg_error *err)
{
    const int64_t rows = c->rows, cols = c->cols;

    if (!part->q) {
        *c->values = rg_table_new(rows, cols, sizeof **c->values);
        return *c->values || rg_fail_memory(err, (size_t)(rows * cols) * sizeof **c->values);
    }
    rg_coded *to = c->coded;
    *to = *part;
    to->rows = rows;
    to->q = rg_array((size_t)rows, (size_t)cols);
    to->scale = rg_table_new(rows, part->n_groups, sizeof *to->scale);
    to->zero = part->zero ? rg_table_new(rows, part->n_groups, sizeof *to->zero) : NULL;
    to->group_of = part->group_of ? rg_array((size_t)cols, sizeof *to->group_of) : NULL;
    if (to->group_of)
        memcpy(to->group_of, part->group_of, (size_t)cols * sizeof *to->group_of);
    return (to->q && to->scale && (!part->zero || to->zero) && (!part->group_of || to->group_of)) ||
           rg_fail_memory(err, (size_t)(rows * cols));
}

/* Rows of one matrix to where they stand. */
static bool place(const composing *c, const rg_weight_source *s, int64_t mat, const rg_coded *part, const float *values,
                  rg_error *err)
{
    const int64_t cols = c->cols, n = part->n_groups;

    if (part->q && (part->block_rows != 1 || !c->coded->q || !part->group_of != !c->coded->group_of ||
                    (part->group_of && memcmp(part->group_of, c->coded->group_of, (size_t)cols * sizeof(int32_t)))))
        return rg_fail(err, RG_E_INPUT, "tensor '%s': its parts do not share an order of columns", c->t->name);
    for (int64_t r = 0; r < s->rows; r++) {
        const int64_t at = mat * s->stored_rows + rg_weight_source_row(s, r);
        if (values) {
            memcpy(*c->values + at * cols, values + r * cols, (size_t)cols * sizeof *values);
            continue;
        }
        memcpy(c->coded->q + at * cols, part->q + r * cols, (size_t)cols);
        memcpy(c->coded->scale + at * n, part->scale + r * n, (size_t)n * sizeof *part->scale);
        if (part->zero)
            memcpy(c->coded->zero + at * n, part->zero + r * n, (size_t)n * sizeof *part->zero);
    }
    return true;
}

/* The matrices of weight i that lie in the tensor. */
static bool compose(composing *c, rg_results *r, int i, rg_error *err)
{
    const rg_targets *p = c->p;
    rg_weight_source s = rg_weight_source_of(p->set->spec[i], p->config, p->from, p->set->layer[i]);

    for (int64_t m = 0; m < p->set->all[i].n_mats; m++) {
        rg_coded part;
        float *values;
        if (s.experts && rg_targets_tensor(p, i, m) != c->t)
            continue;
        int got = rg_results_get(r, &p->set->all[i], m, &part, &values, NULL, NULL, err);
        if (got == 0)
            return rg_fail(err, RG_E_INPUT, "tensor '%s': nothing was made of it", c->t->name);
        bool ok = got > 0 && (c->coded->q || *c->values || start(c, &part, err)) &&
                  place(c, &s, s.experts ? 0 : m, &part, values, err);
        rg_coded_fini(&part);
        rg_free(values);
        if (!ok)
            return false;
    }
    return true;
}

bool rg_targets_result(const rg_targets *p, rg_results *r, const rg_tensor *t, rg_becomes *what, rg_coded *coded,
                    float **values, rg_error *err)
{
    const int first = p->first[t - rg_checkpoint_tensor(p->from, 0)];
    composing c = { .p = p, .t = t, .coded = coded, .values = values };
    bool ok = true;

    *coded = (rg_coded){ 0 };
    *values = NULL;
    if (*what == RG_VECTOR) {
        *values = rg_results_vector(r, &p->set->all[first], err);
        return *values;
    }
    rg_targets_shape(p, t, &c.rows, &c.cols);
    for (int i = first; ok && i >= 0; i = p->next[i])
        ok = compose(&c, r, i, err);
    if (ok)
        *what = coded->q ? RG_CODED : RG_VALUES;
    else
        rg_coded_fini(coded);
    if (!ok)
        rg_free(*values);
    return ok;
}
