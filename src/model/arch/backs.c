/* backs.c -- see backs.h. */
#include "model/arch/backs.h"

#include "model/arch/hunyuan.h"
#include "model/arch/rwkv7.h"
#include "model/arch/s4.h"

static const struct {
    rg_derive_fn *derive;
    rg_derive_back_fn *back;
} backs[] = { { s4_modes, s4_modes_back }, { derive_q_norm, derive_q_norm_back }, { derive_mix, derive_mix_back } };

rg_derive_back_fn *rg_derive_back_of(rg_derive_fn *derive)
{
    rg_derive_back_fn *back = NULL;

    for (size_t i = 0; i < RG_LEN(backs); i++)
        back = backs[i].derive == derive ? backs[i].back : back;
    return back;
}
