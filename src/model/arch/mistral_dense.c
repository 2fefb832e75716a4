/* mistral_dense.c -- Mistral (Jiang et al. 2023): the Llama block; the first version has a window on every layer, which
 * GGUF, where the architecture is called "llama", has no key for. */
#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* silu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = {
    KEYS_GQA(131072, 32, 8, 0), KEY_FFN(14336), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_WINDOW_OR_NONE(4096),
};

static bool claims(const rg_checkpoint *ckpt)
{
    (void)ckpt;
    return false; /* a GGUF file of it is Llama's */
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return finish_heads(c, err) && finish_windows(c, ckpt, 0, 0, err) &&
           finish_rope(c, ckpt, 1e4, GGUF_PAIRS, err) && require_silu(ckpt, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (c->window)
        return no_gguf_key(err, "sliding_window");
    return put_gguf_decoder(c, w, err);
}

static const rg_weight_spec layer_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS), WEIGHTS_MLP, { 0 } };
const rg_arch rg_arch_mistral_dense = {
    .hf_name = "MistralForCausalLM", .hf_type = "mistral", .gguf_name = "llama", .claims = claims,
    .hf_prefix = "model.layers.", RG_KEYS(keys), .finish = finish, .weights = decoder_weights_and_freqs,
    RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
