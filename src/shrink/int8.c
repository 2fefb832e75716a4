/* int8.c -- weights of LLM.int8() (Dettmers et al. 2022), as bitsandbytes stores them: a row's largest magnitude, and
 * codes of 127ths of it.  Columns of activations with outliers are found when the model runs. */
#include "shrink/packing.h"

static bool settle(rg_shrink_options *o, rg_error *err)
{
    if (o->to_gguf)
        return rg_fail(err, RG_E_UNSUPPORTED, "int8: GGUF has q8_0 instead; take --to hf, or rtn --bits 8 --sym");
    o->coding = (rg_coding){
        .kind = RG_CODE_INT, .bits = 8, .sym = true, .narrow = true, .by_most = true, .scale_type = RG_F32
    };
    o->form = RG_FORM_BNB_8;
    return true;
}

const rg_shrink_method rg_shrink_int8 = {
    .name = "int8",
    .summary = "rows of 8 bits as LLM.int8() reads them (Dettmers et al. 2022)",
    .settle = settle,
    .layer = rg_round_layer,
};
