/* sparsity.c -- see sparsity.h. */
#include "model/sparsity.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "ops/count/count.h"

enum { MOST_BYTES = 1 << 24 };

struct rg_sparsity {
    char name[80]; /* of the file, or what it was asked for by */
    json_t *json;  /* NULL: no thresholds */
    const json_t *thresholds;
};

rg_sparsity *rg_sparsity_parse(const char *name, const char *text, size_t n, rg_error *err)
{
    rg_sparsity *s = rg_zalloc(sizeof *s);
    json_error_t why;
    const char *key;
    json_t *value;

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    snprintf(s->name, sizeof s->name, "%.79s", name);
    s->json = rg_json_load(text, n, 0, &why);
    if (!s->json) {
        rg_json_fail(name, n, &why, RG_E_INPUT, err);
        goto fail;
    }
    s->thresholds = json_object_get(s->json, "thresholds");
    if (!json_is_object(s->thresholds)) {
        rg_fail(err, RG_E_INPUT, "%s: has no \"thresholds\" as `ridge shrink sparsity` writes them", name);
        goto fail;
    }
    json_object_foreach((json_t *)(uintptr_t)s->thresholds, key, value) {
        const double t = json_is_number(value) ? json_number_value(value) : -1;

        if (!(t >= 0 && t <= 3e38)) {
            rg_fail(err, RG_E_INPUT, "%s: the threshold of '%.100s' is no number from 0 on", name, key);
            goto fail;
        }
    }
    return s;

fail:
    rg_sparsity_free(s);
    return NULL;
}

rg_sparsity *rg_sparsity_read(const char *how, rg_error *err)
{
    size_t n;

    if (!strcmp(how, "zeros")) {
        rg_sparsity *s = rg_zalloc(sizeof *s);
        return s ? s : (rg_fail_memory(err, sizeof *s), NULL);
    }
    char *text = rg_file_slurp(how, MOST_BYTES, &n, err);
    rg_sparsity *s = text ? rg_sparsity_parse(how, text, n, err) : NULL;
    rg_free(text);
    return s;
}

void rg_sparsity_free(rg_sparsity *s)
{
    if (!s)
        return;
    json_decref(s->json);
    rg_free(s);
}

/* ---- activations that are zero by themselves ----------------------------------------------------------------------
 * */

/* A reader that notes which activations come from ReLU, and which plain matrices read which. */
typedef struct finder {
    rg_reader reader; /* first */
    const rg_weight_set *weights;
    bool of_relu[RG_MAX_ACTS];
    bool *plain, *sparse; /* [weights] it is a factor of a plain product; and reads what ReLU makes */
} finder;

static bool makes_zeros(const rg_op *op)
{
    const bool acts = op->kind == RG_OP_ACTIVATE || op->kind == RG_OP_ACT_MUL || op->kind == RG_OP_GATED;

    return acts && (op->act == RG_RELU || op->act == RG_RELU2);
}

static void look(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    finder *d = (finder *)(uintptr_t)self;
    const bool linear = op->kind == RG_OP_LINEAR || op->kind == RG_OP_GATED;
    const bool keeps = op->kind == RG_OP_MUL || op->kind == RG_OP_SCALE || op->kind == RG_OP_SCALE_COLUMNS;

    for (int i = 0; linear && i < 3 && op->w[i]; i++) {
        const ptrdiff_t at = op->w[i] - d->weights->all;

        if (at < 0 || at >= d->weights->n) /* of another model, whose head is borrowed */
            continue;
        d->plain[at] = true;
        d->sparse[at] = d->of_relu[op->in[0] - f->acts];
    }
    for (size_t i = 0; !keeps && i < RG_LEN(op->out); i++)
        if (op->out[i])
            d->of_relu[op->out[i] - f->acts] = makes_zeros(op);
}

/* By a step that computes nothing. */
static bool find(finder *d, const rg_model *m, rg_error *err)
{
    const int32_t zero = 0;
    const rg_span span = { .n_rows = 1, .adapter = -1 };
    const rg_batch batch = { .n_rows = 1, .n_spans = 1, .spans = &span, .logit_rows = &zero,
                             .n_logits = rg_config_has_logits(&m->config) };
    rg_fwd *f = rg_alloc(sizeof *f);
    rg_counter counter;

    if (!f)
        return rg_fail_memory(err, sizeof *f);
    rg_counter_init(&counter, NULL, 0);
    rg_count_fwd(f, &counter, &batch);
    f->reader = &d->reader;
    rg_model_forward(m, f);
    rg_free(f);
    return true;
}

/* ---- marks --------------------------------------------------------------------------------------------------------
 * */

static bool mark_one(const rg_sparsity *s, const finder *d, rg_weight_set *set, const char *name, double t,
                     rg_error *err)
{
    int found = -1;

    for (int i = 0; i < set->n && found < 0; i++)
        if (set->layer[i] >= 0 && !strcmp(set->all[i].name, name))
            found = i;
    if (found < 0)
        return rg_fail(err, RG_E_INPUT, "%s: '%.100s' is no matrix of this model's layers%s", s->name, name,
                       strchr(name, '[') ? ": thresholds of experts are not supported" : "");
    if (!d->plain[found])
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: a threshold of '%.100s' is not supported: no plain product has it",
                       s->name, name);
    set->all[found].threshold = (float)t;
    set->all[found].wide = true;
    return true;
}

bool rg_sparsity_mark(const rg_sparsity *s, rg_weight_set *weights, const rg_model *declared, rg_error *err)
{
    const size_t n = (size_t)weights->n;
    finder d = { .reader = { .run = look }, .weights = &declared->weights, .plain = rg_array(n, 2 * sizeof *d.plain) };
    const char *name;
    json_t *value;
    bool ok = d.plain || rg_fail_memory(err, 2 * n);

    d.sparse = d.plain + n;
    RG_ASSERT(declared->weights.n == weights->n);
    ok = ok && find(&d, declared, err);
    for (size_t i = 0; ok && i < n; i++)
        weights->all[i].wide = weights->layer[i] >= 0 && d.sparse[i];
    if (s->thresholds)
        json_object_foreach((json_t *)(uintptr_t)s->thresholds, name, value)
            ok = ok && mark_one(s, &d, weights, name, json_number_value(value), err);
    rg_free(d.plain);
    return ok;
}
