/* outliers.c -- a copy of a model whose activations have outliers as those of large models do (Dettmers et al. 2022):
 * of every norm, a hundredth of the channels are 30 times as large, and are divided again by the matrices that read
 * them. The logits are the model's, but for rounding in f32; what rounds activations or weighs channels has something
 * to do. */
#include <math.h>

#include "base/mem.h"
#include "base/rng.h"
#include "shrink/folds.h"

#define FACTOR 30.0f
enum { ONE_IN = 100 }; /* channels */

static bool settle(rg_shrink_options *o, rg_error *err)
{
    if (o->to_gguf)
        return rg_fail(err, RG_E_UNSUPPORTED, "outliers: take --to hf, and `ridge quantize` afterwards");
    o->coding = (rg_coding){ .kind = RG_CODE_INT, .bits = 8, .sym = true, .scale_type = RG_F32 }; /* of nothing */
    o->form = RG_FORM_PLAIN;
    return true;
}

static bool enlarge(rg_layer_work *l, const rg_fold *f, int nth, rg_error *err)
{
    const int n = (int)f->reader[0]->cols;
    float *s = rg_array((size_t)n, sizeof *s);
    rg_rng g = { .seed = (uint64_t)l->layer << 8 | (uint64_t)nth };

    if (!s)
        return rg_fail_memory(err, (size_t)n * sizeof *s);
    for (int k = 0; k < n; k++)
        s[k] = 1.0f;
    for (int left = (n + ONE_IN - 1) / ONE_IN; left > 0;) {
        const uint32_t k = rg_rng_below(&g, (uint32_t)n);

        left -= s[k] == 1.0f;
        s[k] = 1.0f / FACTOR;
    }
    bool ok = rg_fold_in(l, f, s, err);
    rg_free(s);
    return ok;
}

static bool layer(rg_layer_work *l, rg_error *err)
{
    if (!rg_folds_of_norms(l, enlarge, err))
        return false;
    for (int i = 0; i < l->n; i++)
        l->m[i].plain = true;
    return true;
}

const rg_shrink_method rg_shrink_outliers = {
    .name = "outliers",
    .summary = "no smaller: channels of norms made large and divided again, to judge methods on",
    .settle = settle,
    .layer = layer,
};
