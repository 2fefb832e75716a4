/* tied.c -- see tied.h. */
#include "model/tied.h"

#include <string.h>

#include "base/mem.h"
#include "model/arch.h"
#include "model/weight_source.h"

enum { COMPARED_BYTES = 1 << 20 }; /* at once */

/* The tensor of the weight of a role outside the layers; NULL: there is none. */
static const rg_tensor *tensor_of(const rg_config *c, const rg_checkpoint *ckpt, rg_role role)
{
    char name[RG_WEIGHT_NAME];

    for (const rg_weight_spec *spec = c->arch->weights; spec->shape[0]; spec++) {
        rg_weight_source o = rg_weight_source_of(spec, c, ckpt, -1);

        if (spec->role == (int)role)
            return rg_weight_source_find(&o, 0, name);
    }
    return NULL;
}

/* True if the rows of a and b are alike: their bytes, or, of different types, their values. */
static bool rows_equal(const rg_tensor *a, const rg_tensor *b, int64_t rows, void *const raw[2], float *const values[2])
{
    const size_t n = (size_t)(rows * a->shape[a->n_dims - 1]);

    if (a->type == b->type)
        return !memcmp(raw[0], raw[1], (size_t)(a->bytes / (uint64_t)rg_tensor_rows(a)) * (size_t)rows);
    rg_tensor_decode(a, raw[0], rows, values[0]);
    rg_tensor_decode(b, raw[1], rows, values[1]);
    return !memcmp(values[0], values[1], n * sizeof(float));
}

static bool compare_rows(const rg_checkpoint *ckpt, const rg_tensor *const t[2], void *const raw[2],
                         float *const values[2], bool *same, rg_error *err)
{
    const int64_t all = rg_tensor_rows(t[0]);
    const uint64_t row[2] = { t[0]->bytes / (uint64_t)all, t[1]->bytes / (uint64_t)all };
    const int64_t at_once = COMPARED_BYTES / (int64_t)(row[0] > row[1] ? row[0] : row[1]) + 1;

    for (int64_t i = 0, n; *same && i < all; i += n) {
        n = all - i < at_once ? all - i : at_once;
        for (int k = 0; k < 2; k++)
            if (!rg_tensor_read(ckpt, t[k], (uint64_t)i * row[k], raw[k], (size_t)((uint64_t)n * row[k]), err))
                return false;
        *same = rows_equal(t[0], t[1], n, raw, values);
    }
    return true;
}

static bool compare(const rg_checkpoint *ckpt, const rg_tensor *const t[2], bool *same, rg_error *err)
{
    void *raw[2] = { NULL, NULL };
    float *values[2] = { NULL, NULL };
    bool ok = true;

    *same = t[0]->n_dims == t[1]->n_dims && t[0]->n_dims > 0 &&
            !memcmp(t[0]->shape, t[1]->shape, (size_t)t[0]->n_dims * sizeof t[0]->shape[0]) && !t[0]->order &&
            !t[1]->order && rg_tensor_rows(t[0]) > 0 && t[0]->bytes && t[1]->bytes &&
            rg_format_of(t[0]->type)->layout != RG_LAYOUT_NONE && rg_format_of(t[1]->type)->layout != RG_LAYOUT_NONE;
    if (!*same)
        return true;
    for (int k = 0; k < 2 && ok; k++) {
        const uint64_t row = t[k]->bytes / (uint64_t)rg_tensor_rows(t[k]);
        const size_t rows = COMPARED_BYTES / (size_t)row + 1;
        size_t n_values;

        if (!rg_mul(rows, (size_t)t[k]->shape[t[k]->n_dims - 1], &n_values))
            n_values = SIZE_MAX; /* which rg_array refuses */
        raw[k] = rg_array(rows, (size_t)row);
        values[k] = rg_array(n_values, sizeof *values[k]);
        ok = (raw[k] && values[k]) || rg_fail_memory(err, COMPARED_BYTES);
    }
    ok = ok && compare_rows(ckpt, t, raw, values, same, err);
    for (int k = 0; k < 2; k++) {
        rg_free(raw[k]);
        rg_free(values[k]);
    }
    return ok;
}

bool rg_tied_settle(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const rg_tensor *t[2] = { tensor_of(c, ckpt, W_EMBED_TOKENS), tensor_of(c, ckpt, W_LM_HEAD) };
    bool same;

    if (!t[0] || !t[1] || !(c->tie_embeddings || c->from_gguf))
        return true;
    if (!compare(ckpt, t, &same, err))
        return false;
    c->head_differs = !c->from_gguf && !same;
    c->tie_embeddings = same;
    return true;
}

bool rg_tied_has_copy(const rg_config *c, const rg_checkpoint *ckpt, const rg_tensor *t)
{
    return c->tie_embeddings && t == tensor_of(c, ckpt, W_LM_HEAD);
}
