/* qwen2.c -- Qwen2 and Qwen2.5 (2024): the Llama block with biases on q, k and v. */
#include "model/arch/qwen.h"

static const rg_key keys[] = { KEYS_GQA(32768, 32, 32, 0), KEY_FFN(22016), KEY_RMS_EPS(1e-6), KEY_TIED(0) };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->attn_bias = true;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_qwen_windows(c, ckpt, 28, err) &&
           finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_DECODER, { 0 } };
static const rg_weight_spec layer_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_MLP, { 0 } };
static const rg_layer_kind kinds[] = { { layer_weights, keep_kv, block_pre_norm } };

const rg_arch rg_arch_qwen2 = {
    .hf_name = "Qwen2ForCausalLM", .hf_type = "qwen2", .gguf_name = "qwen2", .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish,
    .weights = weights, .kinds = kinds, .n_kinds = RG_LEN(kinds), .put_gguf = put_gguf_qwen,
};
