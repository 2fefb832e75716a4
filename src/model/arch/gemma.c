/* gemma.c -- see gemma.h. */
#include "model/arch/gemma.h"

#include <string.h>

/* attn_scale = 1 / sqrt(query_pre_attn_scalar).  GGUF has no key for that scalar: in published files it is head_dim,
 * except in those of 27 billion parameters, where it is dim / n_heads; ours have the key "attention.scale". */
static bool finish_scale(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const char *size = NULL;
    double scalar = 256;

    if (c->from_gguf) {
        if (rg_meta_string(ckpt, "general.size_label", &size, err) < 0)
            return false;
        if (c->attn_scale == 0 && size && !strcmp(size, "27B") && c->n_heads)
            c->attn_scale = 1.0 / __builtin_sqrt((double)c->dim / c->n_heads);
        return true; /* finish_heads sets the rest */
    }
    if (rg_meta_float(ckpt, "query_pre_attn_scalar", &scalar, err) < 0)
        return false;
    if (!(scalar > 0))
        return rg_fail(err, RG_E_INPUT, "%s: query_pre_attn_scalar %g is not positive", rg_checkpoint_path(ckpt),
                       scalar);
    c->attn_scale = 1.0 / __builtin_sqrt(scalar);
    return true;
}

bool finish_gemma(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const gelu[] = { "gelu_pytorch_tanh", NULL };

    c->act = RG_GELU_TANH;
    c->embed_scale = __builtin_sqrt((double)c->dim);
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_scale(c, ckpt, err) && finish_heads(c, err) &&
           require_false(ckpt, "use_bidirectional_attention", err) &&
           require_choice(ckpt, "hidden_activation", gelu, err) && require_choice(ckpt, "hidden_act", gelu, err) &&
           (!c->from_gguf || require_value_length(c, ckpt, err));
}
