/* qat.c -- codes that training has made, in the forms of other methods' codes.  The training is train/qat.h's. */
#include "shrink/packing.h"

static bool settle(rg_shrink_options *o, rg_error *err)
{
    if (!o->given)
        return rg_fail(err, RG_E_USAGE, "qat: there are no trained codes");
    return rg_settle_codes(o, err);
}

static bool take_layer(rg_layer_work *l, rg_error *err)
{
    if (!rg_round_layer(l, err))
        return false;
    for (int i = 0; i < l->n; i++)
        l->o->given->fill(l->o->given->arg, l->m[i].name, &l->m[i].coded);
    return true;
}

const rg_shrink_method rg_shrink_qat = {
    .name = "qat",
    .summary = "codes, scales and zeros by training",
    .settle = settle,
    .layer = take_layer,
};
