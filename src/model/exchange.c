/* exchange.c -- see exchange.h. */
#include "model/exchange.h"

#include <string.h>

static const size_t key_bytes[] = { [KEY_INT] = sizeof(int), [KEY_FLOAT] = sizeof(float),
                                    [KEY_DOUBLE] = sizeof(double), [KEY_BOOL] = sizeof(bool) };

static bool same_keys(const rg_config *a, const rg_config *b, const rg_key *keys, size_t n, rg_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp((const char *)a + keys[i].at, (const char *)b + keys[i].at, key_bytes[keys[i].kind]))
            return rg_fail(err, RG_E_INPUT, "the weights are for another model: its setting '%s' differs",
                           keys[i].hf ? keys[i].hf : keys[i].gguf);
    return true;
}

static bool same_config(const rg_config *a, const rg_config *b, rg_error *err)
{
    size_t n;
    const rg_key *common = rg_config_common_keys(&n);

    if (a->arch != b->arch)
        return rg_fail(err, RG_E_INPUT, "the weights are for another model: the architecture is %s, not %s",
                       rg_config_name(b), rg_config_name(a));
    return same_keys(a, b, common, n, err) && same_keys(a, b, a->arch->keys, a->arch->n_keys, err);
}

static bool same_ropes(const rg_model *a, const rg_model *b, rg_error *err)
{
    for (int i = 0; i < a->config.n_ropes; i++)
        for (int v = 0; v < a->ropes[i][0].n_variants; v++) {
            const rg_rope *x = &a->ropes[i][v], *y = &b->ropes[i][v];

            if (i >= b->config.n_ropes || x->n_variants != y->n_variants || x->n_pairs != y->n_pairs ||
                memcmp(&x->factor, &y->factor, sizeof x->factor) ||
                memcmp(x->inv_freq, y->inv_freq, (size_t)x->n_pairs * sizeof *x->inv_freq))
                return rg_fail(err, RG_E_INPUT, "the weights are for another model: its rotation of positions differs");
        }
    return true;
}

static bool same_weight(const rg_weight *a, const rg_weight *b, rg_error *err)
{
    if (strcmp(a->name, b->name))
        return rg_fail(err, RG_E_INPUT, "the weights are for another model: '%s' stands where '%s' is", b->name,
                       a->name);
    if (a->n_mats != b->n_mats || a->rows != b->rows || a->cols != b->cols)
        return rg_fail(err, RG_E_INPUT, "the weights are for another model: '%s' is [%lld, %lld, %lld], not "
                       "[%lld, %lld, %lld]", a->name, (long long)b->n_mats, (long long)b->rows, (long long)b->cols,
                       (long long)a->n_mats, (long long)a->rows, (long long)a->cols);
    if (a->type != b->type)
        return rg_fail(err, RG_E_INPUT, "the weights are of another type: '%s' is %s, not %s", a->name,
                       rg_format_of(b->type)->name, rg_format_of(a->type)->name);
    return (!a->order && !b->order) || rg_fail(err, RG_E_UNSUPPORTED, "'%s' has its columns in an order of its own: "
                                               "such weights cannot be exchanged", a->name);
}

bool rg_model_same_shape(const rg_model *a, const rg_model *b, rg_error *err)
{
    if (a->weights.paged || b->weights.paged)
        return rg_fail(err, RG_E_UNSUPPORTED, "experts are read from a file when they are needed: such weights cannot "
                       "be exchanged");
    if (!same_config(&a->config, &b->config, err) || !same_ropes(a, b, err))
        return false;
    if (a->weights.n != b->weights.n)
        return rg_fail(err, RG_E_INPUT, "the weights are for another model: there are %d of them, not %d", b->weights.n,
                       a->weights.n);
    for (int i = 0; i < a->weights.n; i++)
        if (!same_weight(&a->weights.all[i], &b->weights.all[i], err))
            return false;
    return true;
}

#define SWAP(type, x, y)  \
    do {                  \
        type kept_ = (x); \
        (x) = (y);        \
        (y) = kept_;      \
    } while (0)

void rg_model_exchange(rg_model *a, rg_model *b)
{
    for (int i = 0; i < a->weights.n; i++) {
        rg_weight *x = &a->weights.all[i], *y = &b->weights.all[i];

        SWAP(const rg_placed *, x->placed, y->placed);
        SWAP(const float *, x->vec, y->vec);
        SWAP(const rg_placed *, x->placed_vec, y->placed_vec);
        SWAP(rg_placed *, a->weights.placed[i], b->weights.placed[i]);
        if (a->weights.settled && b->weights.settled)
            SWAP(rg_type, a->weights.settled[i], b->weights.settled[i]);
    }
    SWAP(rg_dense, a->dense, b->dense);
}
