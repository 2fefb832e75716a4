/* qwen35moe.c -- Qwen3.5 mixture of experts (2026): the layers of Qwen3.5 with routed experts and a shared one, which
 * has a gate, in place of the MLP. */
#include "model/arch/gated_delta.h"
#include "model/arch/mtp.h"

static void block_delta(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = gated_delta(f, l, h);                /* [rows, value heads * v_dim] */
    rg_linear_add(f, x, y, l->w[W_DELTA_OUT], NULL); /* x += out_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    experts(f, l, x, h);
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p);
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p), *gate = linear(f, "gate", h, l->w[W_ATTN_GATE], l->w[W_ATTN_GATE_BIAS]);
    rg_act_mul(f, a, gate, a, RG_SIGMOID);                  /* a *= sigmoid(gate h): [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    experts(f, l, x, h);
}

static const rg_key keys[] = { KEYS_GATED_DELTA(16, 2, 32768), KEYS_GATED_DELTA_EXPERTS(256, 8) };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return finish_gated_delta(c, ckpt, true, err) && finish_gated_delta_experts(c, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_gated_delta(c, w, err) && put_gguf_sections(c, w, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_GATED_DELTA_OUTER, { 0 } };

#define EXPERTS                                                                                                        \
    WEIGHTS_STACKED_EXPERTS("mlp.gate", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"),                          \
    WEIGHTS_GATED_DELTA_SHARED

static const rg_weight_spec delta_weights[] = { WEIGHTS_GATED_DELTA_NORMS, WEIGHTS_INTERLEAVED_DELTA, EXPERTS, { 0 } };
static const rg_weight_spec attention_weights[] = {
    WEIGHTS_GATED_DELTA_NORMS, WEIGHTS_GATED_ATTENTION, EXPERTS, { 0 },
};

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER + HYBRID_EXPERTS] = { delta_weights, keep_gated_delta, block_delta },
    [HYBRID_ATTENTION + HYBRID_EXPERTS] = { attention_weights, keep_kv, block_attention },
};

static const rg_weight_spec mtp_weights[] = { WEIGHTS_QWEN_MTP, { 0 } };

static bool finish_mtp(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return finish_qwen_mtp(c, ckpt, HYBRID_ATTENTION + HYBRID_EXPERTS, err);
}

static const rg_arch mtp = {
    .hf_name = "Qwen3_5MoeMTP", MTP_QWEN, .finish = finish_mtp, .weights = mtp_weights, RG_KINDS(kinds),
};

const rg_arch rg_arch_qwen35moe = {
    .hf_name = "Qwen3_5MoeForCausalLM", .hf_type = "qwen3_5_moe_text", .gguf_name = "qwen35moe",
    .hf_prefix = "model.layers.", RG_KEYS(keys), .own_bytes = sizeof(gated_delta_settings), .finish = finish,
    .harmless = gated_delta_harmless, .weights = weights, RG_KINDS(kinds), .put_gguf = put_gguf, .mtp = &mtp,
};
