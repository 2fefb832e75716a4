/* lfm2moe.c -- LFM2-MoE (Liquid AI, 2025): LFM2 with routed experts in all layers but the first ones; scores are
 * sigmoids, and a bias steers the choice alone. */
#include "model/arch/lfm2.h"

static void block_conv(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = short_conv(f, l, h); /* C * conv(B * u), [B C u] = in_proj h: [rows, dim] */
    rg_linear_add(f, x, y, l->w[W_CONV_OUT], l->w[W_CONV_OUT_BIAS]); /* x += out_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p); /* RMSNorm of each head of q and of k */
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

enum { GGUF_SIGMOID = 2 }; /* expert_gating_func */

static const rg_key keys[] = {
    KEYS_LFM2, KEY_FFN(7168),
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", 1792 },
    { offsetof(rg_config, n_dense_layers), KEY_INT, "num_dense_layers", "leading_dense_block_count", 2 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_experts", "expert_count", 32 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", 4 },
    { offsetof(rg_config, routing.renormalize), KEY_BOOL, "norm_topk_prob", NULL, 1 },
    { offsetof(rg_config, routing.scale), KEY_FLOAT, "routed_scaling_factor", NULL, 1 },
};

typedef struct settings {
    lfm2_settings lfm2; /* first */
    bool choice_bias;
} settings;

static WHEN(when_choice_bias, RG_OWN(c, settings)->choice_bias)

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    bool biased = true;
    int64_t gating = GGUF_SIGMOID;
    char key[128];

    c->routing.score = RG_SCORE_SIGMOID;
    c->routing.sum_eps = 1e-6f;
    if (!finish_lfm2(c, ckpt, err) || !finish_routing(c, err))
        return false;
    for (int i = c->n_dense_layers; i < c->n_layers; i++)
        c->layer[i].kind += HYBRID_EXPERTS;
    if (c->from_gguf) {
        biased = !rg_checkpoint_n_tensors(ckpt) || any_layer_has(c, ckpt, "exp_probs_b.bias");
        if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "expert_gating_func", key), GGUF_SIGMOID, GGUF_SIGMOID, &gating, err) <
            0)
            return false;
    } else if (rg_config_flag(ckpt, "use_expert_bias", &biased, err) < 0) {
        return false;
    }
    RG_OWN_EDIT(c, settings)->choice_bias = biased;
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (!c->routing.renormalize || c->routing.scale != 1.0f)
        return no_gguf_key(err, c->routing.renormalize ? "routed_scaling_factor" : "norm_topk_prob: false");
    return put_gguf_lfm2(c, w, err) && put_gguf_int(c, w, "expert_gating_func", GGUF_SIGMOID, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_LFM2, { 0 } };

#define MLP WEIGHTS_MLP_OF("feed_forward", "w1", "w3", "w2")
#define EXPERTS                                                                                                        \
    WEIGHTS_EXPERTS("feed_forward", "w1", "w3", "w2"),                                                                 \
    { W_CHOICE_BIAS, "feed_forward.expert_bias", "exp_probs_b.bias", { N_EXPERTS }, .when = when_choice_bias }

static const rg_weight_spec conv_mlp[] = { WEIGHTS_LFM2_NORMS, WEIGHTS_LFM2_CONV, MLP, { 0 } };
static const rg_weight_spec conv_experts[] = { WEIGHTS_LFM2_NORMS, WEIGHTS_LFM2_CONV, EXPERTS, { 0 } };
static const rg_weight_spec attention_mlp[] = { WEIGHTS_LFM2_NORMS, WEIGHTS_LFM2_ATTENTION, MLP, { 0 } };
static const rg_weight_spec attention_experts[] = { WEIGHTS_LFM2_NORMS, WEIGHTS_LFM2_ATTENTION, EXPERTS, { 0 } };

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { conv_mlp, keep_short_conv, block_conv },
    [HYBRID_ATTENTION] = { attention_mlp, keep_kv, block_attention },
    [HYBRID_OTHER + HYBRID_EXPERTS] = { conv_experts, keep_short_conv, block_conv },
    [HYBRID_ATTENTION + HYBRID_EXPERTS] = { attention_experts, keep_kv, block_attention },
};

const rg_arch rg_arch_lfm2moe = {
    .hf_name = "Lfm2MoeForCausalLM", .hf_type = "lfm2_moe", .gguf_name = "lfm2moe", .hf_prefix = "model.layers.",
    .layer_list = "layer_types", RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish,
    .harmless = lfm2_harmless, .weights = weights, RG_KINDS(kinds), .put_gguf = put_gguf,
};
