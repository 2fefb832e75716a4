/* smoothquant.c -- see smoothquant.h.  Scales are folded into norms alone, as the authors do it. */
#include "shrink/smoothquant.h"

#include <math.h>

#include "base/mem.h"
#include "shrink/folds.h"
#include "shrink/packing.h"
#include "shrink/inputs.h"

void rg_smooth_scales(const float *act_max, const float *w_max, int64_t n, float alpha, float *to)
{
    for (int64_t k = 0; k < n; k++) {
        const double w = w_max[k] > 1e-5f ? (double)w_max[k] : 1e-5;
        const double s = pow((double)act_max[k], (double)alpha) / pow(w, 1 - (double)alpha);
        to[k] = s > 1e-5 ? (float)s : 1e-5f;
    }
}

static bool settle(rg_shrink_options *o, rg_error *err)
{
    rg_coding *c = &o->coding;

    if (o->to_gguf)
        return rg_fail(err, RG_E_UNSUPPORTED, "smoothquant: GGUF has no form of activations in 8 bits; take --to hf");
    *c = (rg_coding){ .kind = RG_CODE_INT, .bits = 8, .sym = true, .narrow = true, .scale_type = RG_F32 };
    o->form = RG_FORM_BYTES;
    o->input_bits = 8;
    return o->alpha >= 0 && o->alpha <= 1;
}

/* Largest magnitude of each column over all matrices that read the fold. */
static void columns_most(const rg_layer_work *l, const rg_fold *f, float *most)
{
    for (int i = 0; i < f->n_readers; i++)
        for (int64_t mat = 0; mat < f->reader[i]->n_mats; mat++) {
            const rg_matrix *m = rg_matrix_of(l, f->reader[i], mat);
            for (int64_t r = 0; r < m->rows; r++)
                for (int64_t k = 0; k < m->cols; k++)
                    most[k] = fabsf(m->w[r * m->cols + k]) > most[k] ? fabsf(m->w[r * m->cols + k]) : most[k];
        }
}

/* Largest magnitudes over all inputs that the fold's readers see: of experts, there are several. */
static bool channels_most(const rg_layer_work *l, const rg_fold *f, float *most)
{
    bool any = false;

    for (int i = 0; i < l->n_inputs; i++)
        for (int k = 0; k < f->n_readers; k++)
            for (int64_t c = 0; l->inputs[i].w[0] == f->reader[k] && c < l->inputs[i].cols; c++) {
                most[c] = l->inputs[i].abs_max[c] > most[c] ? l->inputs[i].abs_max[c] : most[c];
                any = true;
            }
    return any;
}

static bool smooth(rg_layer_work *l, const rg_fold *f, int nth, rg_error *err)
{
    const size_t n = (size_t)f->reader[0]->cols;
    float *most = rg_array(n, 3 * sizeof *most);

    (void)nth;
    if (!most)
        return rg_fail_memory(err, 3 * n * sizeof *most);
    columns_most(l, f, most + n);
    bool ok = true;
    if (channels_most(l, f, most)) {
        rg_smooth_scales(most, most + n, (int64_t)n, l->o->alpha, most + 2 * n);
        ok = rg_fold_in(l, f, most + 2 * n, err);
    }
    rg_free(most);
    return ok;
}

static bool layer(rg_layer_work *l, rg_error *err)
{
    return rg_folds_of_norms(l, smooth, err) && rg_round_layer(l, err);
}

const rg_shrink_method rg_shrink_smoothquant = {
    .name = "smoothquant",
    .summary = "outliers of activations moved into weights, 8 bits for both (Xiao et al. 2023)",
    .needs = RG_NEED_SPREAD,
    .settle = settle,
    .layer = layer,
};
