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
    WEIGHTS_MLP,
    WEIGHTS_POST_NORMS,
    { 0 },
};

static const rg_layer_kind kinds[] = { { layer_weights, keep_kv, block_post_norms } };

const rg_arch rg_arch_olmo2 = {
    .hf_name = "Olmo2ForCausalLM", .hf_type = "olmo2", .gguf_name = "olmo2", .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish,
    .weights = weights, .kinds = kinds, .n_kinds = RG_LEN(kinds), .put_gguf = put_gguf_decoder,
};
