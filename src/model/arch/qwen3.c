/* qwen3.c -- Qwen3 dense (2025): the Llama block with RMSNorm on every head of q and k. */
#include "model/arch/qwen.h"

static const rg_key keys[] = {
    KEYS_GQA(32768, 32, 32, 128), KEY_FFN(22016), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_qwen_windows(c, ckpt, 28, err) &&
           finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_DECODER, { 0 } };

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_QK_NORM(HEAD_DIM, HEAD_DIM), WEIGHTS_MLP, { 0 },
};

static const rg_layer_kind kinds[] = { { layer_weights, keep_kv, block_pre_norm } };

const rg_arch rg_arch_qwen3 = {
    .hf_name = "Qwen3ForCausalLM", .hf_type = "qwen3", .gguf_name = "qwen3", .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish,
    .weights = weights, .kinds = kinds, .n_kinds = RG_LEN(kinds), .put_gguf = put_gguf_qwen,
};
