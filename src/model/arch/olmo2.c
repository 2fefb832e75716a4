/* olmo2.c -- OLMo 2 (2024): no norm in front of attention and MLP but one behind each, before it is added; RMSNorm over
 * the whole rows of q and k. */
#include "model/arch/parts.h"

static const rg_key keys[] = {
    KEYS_GQA(2048, 32, 0, 0), KEY_FFN(11008), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0),
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_DECODER, { 0 } };

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_GQA(GGUF_HALVES),
    WEIGHTS_QK_NORM(Q_DIM, KV_DIM),
    { W_POST_ATTN_NORM, "post_attention_layernorm", "post_attention_norm", { DIM } },
    WEIGHTS_MLP,
    { W_POST_FFN_NORM, "post_feedforward_layernorm", "post_ffw_norm", { DIM } },
    { 0 },
};

static void block(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const rg_config *c = l->c;
    rg_act *y = rg_act_new(f, "attn_out", c->dim), *z = rg_act_new(f, "ffn_out", c->dim);
    rg_act *a = part_attention(f, l, x);

    rg_linear(f, y, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], c->norm_eps);
    rg_add_to(f, x, y);
    part_mlp(f, l, z, x, false);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], c->norm_eps);
    rg_add_to(f, x, z);
}

static const rg_layer_kind kinds[] = { { layer_weights, keep_kv, block } };

const rg_arch rg_arch_olmo2 = {
    .hf_name = "Olmo2ForCausalLM", .hf_type = "olmo2", .gguf_name = "olmo2", .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish,
    .weights = weights, .kinds = kinds, .n_kinds = RG_LEN(kinds), .put_gguf = put_gguf_decoder,
};
