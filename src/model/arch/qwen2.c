/* qwen2.c -- Qwen2 and Qwen2.5 (2024): the Llama block with biases on q, k and v. */
#include "model/arch/qwen.h"

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

static const rg_key keys[] = { KEYS_GQA(32768, 32, 32, 0), KEY_FFN(22016), KEY_RMS_EPS(1e-6), KEY_TIED(0) };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->attn_bias = true;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_qwen_windows(c, ckpt, 28, err) &&
           finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static const rg_weight_spec layer_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_MLP, { 0 } };
const rg_arch rg_arch_qwen2 = {
    .hf_name = "Qwen2ForCausalLM", .hf_type = "qwen2", .gguf_name = "qwen2", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .weights = decoder_weights, RG_KIND(layer_weights, keep_kv, block),
    .put_gguf = put_gguf_qwen,
};
