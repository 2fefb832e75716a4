/* rtn.c -- every value to the nearest code: what other methods are measured against, and the k-bit codes of Dettmers
 * and Zettlemoyer 2023. */
#include "shrink/rtn.h"

#include <string.h>

#include "base/mem.h"
#include "model/weight_source.h"
#include "shrink/packing.h"

/* Where such codes can lie. */
static bool settle_hf(rg_shrink_options *o, rg_error *err)
{
    rg_coding *c = &o->coding;

    (void)err;
    if (c->kind == RG_CODE_QUANTILE && c->bits == 4) {
        o->form = RG_FORM_NF4;
        c->group = c->group ? c->group : 64;
        c->scale_type = RG_F32;
    } else if (c->kind != RG_CODE_INT) {
        o->form = RG_FORM_PLAIN;
        c->scale_type = RG_F32;
    } else if (c->bits == 2 || c->bits == 3) {
        o->form = RG_FORM_GPTQ;
        c->scale_type = RG_F16;
    } else if (c->bits == 4 || c->bits == 8) {
        o->form = RG_FORM_PACKED;
        c->scale_type = RG_F16;
    } else {
        o->form = RG_FORM_BYTES;
        c->scale_type = RG_F32;
    }
    return true;
}

/* GGUF has blocks of 32 under f16 scales. */
bool rg_settle_gguf(rg_shrink_options *o, rg_error *err)
{
    rg_coding *c = &o->coding;
    rg_type type;

    if (c->kind != RG_CODE_INT) {
        o->form = RG_FORM_PLAIN;
        return true;
    }
    if (!c->sym)
        c->kind = RG_CODE_MINIMUM;
    c->scale_type = RG_F16;
    c->group = c->group ? c->group : 32;
    o->form = RG_FORM_PACKED;
    return rg_packing_gguf(c, &type) ||
           rg_fail(
               err, RG_E_UNSUPPORTED,
               "GGUF has no type for codes of %d bits%s in groups of %lld: there are 4 and 5 bits, and 8 with --sym, "
               "in groups of a multiple of 32",
               c->bits, c->sym ? " with --sym" : "", (long long)c->group);
}

bool rg_settle_codes(rg_shrink_options *o, rg_error *err)
{
    return o->to_gguf ? rg_settle_gguf(o, err) : settle_hf(o, err);
}

/* ---- a model in memory ------------------------------------------------------------------------------------------- */

bool rg_round_is_of(const rg_weight_set *set, int i)
{
    const int role = set->spec[i]->role;

    return set->layer[i] >= 0 && set->placed[i] && role != W_ROUTER && role != W_SHARED_ROUTER;
}

/* A weight that is rounded, row by row. */
typedef struct weight_work {
    rg_weight_set *set;
    int i;
    rg_placed *f32; /* what it becomes */
    float *row, *whole; /* a row, and the same as it was */
    bool *kept;         /* [cols] */
    rg_coded one;
} weight_work;

/* The columns of a matrix that stay.  How many bits that adds. */
static double choose_kept(const weight_work *x, const rg_coding *c, const rg_round_keep *keep, int64_t mat)
{
    const rg_weight *w = &x->set->all[x->i];

    memset(x->kept, 0, (size_t)w->cols * sizeof *x->kept);
    return keep ? (double)(w->rows * keep->choose(keep->arg, x->set, x->i, mat, x->kept)) * (16 - c->bits) : 0;
}

static double round_rows(weight_work *x, const rg_coding *c, const rg_round_keep *keep)
{
    const rg_weight *w = &x->set->all[x->i];
    double bits = (double)(w->n_mats * w->rows * w->cols) * c->bits;

    for (int64_t r = 0; r < w->n_mats * w->rows; r++) {
        if (r % w->rows == 0)
            bits += choose_kept(x, c, keep, r / w->rows);
        w->placed->owner->weight_get(w->placed, r / w->rows, r % w->rows, x->row);
        memcpy(x->whole, x->row, (size_t)w->cols * sizeof *x->row);
        rg_round_row(&x->one, c, 0, x->row);
        rg_coded_row(&x->one, 0, x->row);
        for (int64_t k = 0; k < w->cols; k++)
            if (x->kept[k])
                x->row[k] = rg_f16_to_f32(rg_f32_to_f16(x->whole[k]));
        x->f32->owner->weight_put(x->f32, r / w->rows, r % w->rows, x->row);
    }
    return bits +
           (double)(w->n_mats * w->rows) * (double)x->one.n_groups * (16 + (x->one.zero && !c->sym ? c->bits : 0));
}

static bool round_weight(rg_weight_set *set, int i, const rg_coding *c, const rg_round_keep *keep, double *bits,
                         rg_error *err)
{
    const rg_weight *w = &set->all[i];
    const rg_placing what = { .type = RG_F32, .n_mats = w->n_mats, .rows = w->rows, .cols = w->cols };
    weight_work x = { .set = set, .i = i, .row = rg_array((size_t)w->cols, sizeof *x.row),
                      .whole = rg_array((size_t)w->cols, sizeof *x.whole),
                      .kept = rg_array((size_t)w->cols, sizeof *x.kept) };
    bool ok = (x.row && x.whole && x.kept) || rg_fail_memory(err, (size_t)w->cols * 2 * sizeof *x.row);

    x.f32 = ok ? set->backend->weight_new(set->backend, &what, err) : NULL;
    ok = x.f32 && rg_coded_init(&x.one, c, 1, w->cols, err);
    if (ok) {
        *bits += round_rows(&x, c, keep);
        rg_weights_replace(set, i, x.f32);
    } else {
        rg_placed_free(x.f32);
    }
    rg_coded_fini(&x.one);
    rg_free(x.row);
    rg_free(x.whole);
    rg_free(x.kept);
    return ok;
}

static double stored_bits(const rg_weight *w)
{
    uint64_t row = 0;

    return rg_row_bytes(w->type, w->cols, &row) ? 8.0 * (double)row * (double)(w->n_mats * w->rows) : 0;
}

double rg_stored_bits(const rg_model *m)
{
    double bits = 0;

    for (int i = 0; i < m->weights.n; i++)
        bits += m->weights.spec[i]->derive ? 0 : stored_bits(&m->weights.all[i]);
    return bits;
}

bool rg_round_model(rg_model *m, const rg_coding *c, const rg_round_keep *keep, double *bits, rg_error *err)
{
    rg_weight_set *set = &m->weights;

    *bits = 0;
    for (int i = 0; i < set->n; i++)
        if (!rg_round_is_of(set, i))
            *bits += set->spec[i]->derive ? 0 : stored_bits(&set->all[i]);
        else if (!round_weight(set, i, c, keep, bits, err))
            return false;
    return true;
}

/* ---- a layer ----------------------------------------------------------------------------------------------------- */

typedef struct rounding {
    rg_layer_work *l;
} rounding;

static void round_some(void *arg, int thread)
{
    const rounding *r = arg;
    uint32_t phase = 0;

    (void)thread;
    for (int i; (i = rg_phase_take(r->l->pool, phase, r->l->n)) >= 0;)
        rg_round_to_nearest(&r->l->m[i].coded, &r->l->m[i].coding, r->l->m[i].w);
    rg_phase_end(r->l->pool, &phase);
}

bool rg_round_layer(rg_layer_work *l, rg_error *err)
{
    rounding r = { l };

    for (int i = 0; i < l->n; i++)
        if (!rg_coded_init(&l->m[i].coded, &l->m[i].coding, l->m[i].rows, l->m[i].cols, err))
            return false;
    rg_pool_run(l->pool, rg_pool_threads(l->pool), round_some, &r);
    return true;
}

const rg_shrink_method rg_shrink_rtn = {
    .name = "rtn",
    .summary = "every value to the nearest code; no calibration text",
    .settle = rg_settle_codes,
    .layer = rg_round_layer,
};
