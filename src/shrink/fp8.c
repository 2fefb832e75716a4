/* fp8.c -- weights in e4m3 with a scale per row, activations to be cast as well, a scale per token. */
#include "shrink/packing.h"

static bool settle(rg_shrink_options *o, rg_error *err)
{
    if (o->to_gguf)
        return rg_fail(err, RG_E_UNSUPPORTED, "fp8: GGUF has no type for it; take --to hf");
    o->coding = (rg_coding){ .kind = RG_CODE_F8, .bits = 8, .sym = true, .scale_type = RG_F32 };
    o->form = RG_FORM_F8;
    o->input_bits = 8;
    return true;
}

const rg_shrink_method rg_shrink_fp8 = {
    .name = "fp8",
    .summary = "e4m3 with a scale per row",
    .settle = settle,
    .layer = rg_round_layer,
};
