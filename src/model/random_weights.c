/* random_weights.c -- see random_weights.h. */
#include "model/random_weights.h"

#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "model/weight_source.h"

enum { DISTINCT_ROWS = 256 }; /* of a matrix; they are repeated, so that a large model takes seconds */

/* Values that the weight's tensor has, where load reads it. */
static size_t n_stored(const rg_weight_spec *spec, const rg_config *c, int layer, size_t n)
{
    size_t all = 1;

    for (int k = 0; k < 3 && spec->stored[k]; k++)
        all *= (size_t)spec->stored[k](c, layer);
    return spec->stored[0] ? all : n;
}

/* A vector or table, made by its load function from what a checkpoint would hold. */
static bool fill_vector(rg_weight *w, const rg_weight_spec *spec, const rg_config *c, int layer, rg_rng *rng,
                        rg_error *err)
{
    rg_load_fn *load = rg_weight_source_of(spec, c, NULL, layer).load;
    size_t n = (size_t)(w->n_mats * w->rows * w->cols), n_source = load ? n_stored(spec, c, layer, n) : n;
    float *source = rg_array(n_source, sizeof *source), *values = source;

    for (size_t k = 0; source && k < n_source; k++)
        source[k] = 0.4f + 0.2f * rg_rng_unit(rng);
    if (source && load) {
        values = rg_array(n, sizeof *values);
        if (values)
            load(c, source, values, (int64_t)n);
        rg_free(source);
    }
    w->vec = values;
    return values || rg_fail_memory(err, n * sizeof *values);
}

static bool fill_matrix(rg_placed *p, const rg_weight *w, float deviation, int64_t distinct, rg_rng *rng)
{
    const rg_format *f = rg_format_of(p->type);
    size_t row_bytes = (size_t)(w->cols / f->block_len * f->block_bytes);
    int64_t n_rows = w->n_mats * w->rows;
    float *x = rg_array((size_t)w->cols, sizeof *x);
    uint8_t *row = rg_alloc_tail(0, 1, row_bytes);

    for (int64_t r = 0; x && row && r < distinct && r < n_rows; r++) {
        for (int64_t k = 0; k < w->cols; k++)
            x[k] = deviation * rg_rng_normal(rng);
        f->encode(x, w->cols / f->block_len, row);
        for (int64_t to = r; to < n_rows; to += distinct)
            rg_weights_put_row(p, w, to, row);
    }
    bool ok = x && row;
    rg_free(x);
    rg_free(row);
    return ok;
}

bool rg_weights_random(rg_weight_set *s, int i, const rg_config *c, rg_error *err)
{
    rg_weight *w = &s->all[i];
    const rg_weight_spec *spec = s->spec[i];
    rg_rng rng = { .seed = (uint64_t)i + 1 };
    bool embeds = spec->role == W_EMBED_TOKENS;

    if (rg_spec_is_vector(spec))
        return fill_vector(w, spec, c, s->layer[i], &rng, err) && rg_weights_place_vector(s, i, err);
    if (!rg_format_of(w->type)->encode)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: random weights cannot be of type %s", w->name,
                       rg_format_of(w->type)->name);
    const rg_weight *own = w->part ? &w->part->here : w;
    const rg_placing what = rg_weights_placing(own, rg_weights_given_type(s, i), own->n_mats);
    s->placed[i] = s->backend->weight_new(s->backend, &what, err);
    if (!s->placed[i])
        return false;
    if (!fill_matrix(s->placed[i], w, embeds ? 4.0f : 1.0f / sqrtf((float)w->cols), embeds ? w->rows : DISTINCT_ROWS,
                     &rng))
        return rg_fail_memory(err, (size_t)w->cols * sizeof(float));
    rg_weights_set_placed(s, i);
    return true;
}
