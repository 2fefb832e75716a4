/* glm4_moe.c -- GLM-4.5 (Zhipu 2025): the Llama block with biases on q, k and v, a rope on half of each head, perhaps
 * RMSNorm on heads, and experts after the first layers, chosen by the sigmoid of their score and a bias. */
#include "model/arch/mtp.h"

typedef struct settings {
    bool qk_norm;
} settings;

enum { DENSE, EXPERTS }; /* kinds of layer */

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    if (l->w[W_Q_NORM])
        norm_heads(f, l, &p); /* RMSNorm of each head of q and of k */
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static const rg_key keys[] = {
    KEYS_GQA(131072, 96, 8, 0), KEY_FFN(10944), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0),
    KEYS_EXPERTS("n_routed_experts", 128, 8, 1408), KEYS_NOAUX(1, 1, 1, 1),
    { offsetof(rg_config, n_dense_layers), KEY_INT, "first_k_dense_replace", "leading_dense_block_count", 1 },
    { RG_OWN_AT(settings, qk_norm), KEY_BOOL, "use_qk_norm", NULL, 0 },
};

static const char *const harmless[] = { "num_nextn_predict_layers", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    finish_optional(c, ckpt);
    if (c->from_gguf) {
        c->o_bias = false;
        RG_OWN_EDIT(c, settings)->qk_norm = rg_checkpoint_find(ckpt, "blk.0.attn_q_norm.weight");
    }
    if (!finish_nextn(c, ckpt, err) || !finish_heads(c, err) || !finish_noaux(c, ckpt, err) ||
        !finish_rope_as(c, ckpt, &(rope_defaults){ .theta = 1e4, .part = 0.5, .pairs = GGUF_HALVES }, err) ||
        !require_silu(ckpt, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = i < c->n_dense_layers ? DENSE : EXPERTS;
    return true;
}

static WHEN(when_qk_norm, RG_OWN(c, settings)->qk_norm)

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_decoder(c, w, err) && put_gguf_gating(c, w, err) &&
           put_gguf_int(c, w, "nextn_predict_layers", c->n_modules, err);
}

#define WEIGHTS_ATTENTION                                                                                              \
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },                                                          \
    { W_FFN_NORM, "post_attention_layernorm", "post_attention_norm", { DIM } },                                        \
    WEIGHTS_GQA(GGUF_HALVES),                                                                                          \
    { W_Q_NORM, "self_attn.q_norm", "attn_q_norm", { HEAD_DIM }, .when = when_qk_norm },                               \
    { W_K_NORM, "self_attn.k_norm", "attn_k_norm", { HEAD_DIM }, .when = when_qk_norm }

static const rg_weight_spec dense_weights[] = { WEIGHTS_ATTENTION, WEIGHTS_MLP, { 0 } };

static const rg_weight_spec expert_weights[] = {
    WEIGHTS_ATTENTION, WEIGHTS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
    WEIGHT_CHOICE_BIAS("mlp.gate.e_score_correction_bias"), WEIGHTS_SHARED("mlp.shared_experts"), { 0 },
};

static const rg_layer_kind kinds[] = {
    [DENSE] = { dense_weights, keep_kv, block },
    [EXPERTS] = { expert_weights, keep_kv, block },
};

static const rg_weight_spec mtp_weights[] = { WEIGHTS_NEXTN, { 0 } };

static bool finish_mtp(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->layer[0].kind = EXPERTS;
    return finish_nextn_module(c, ckpt, err);
}

static const rg_arch mtp = {
    .hf_name = "Glm4MoeMTPModel", .gguf_name = "glm4moe", MTP_NEXTN, .finish = finish_mtp, .weights = mtp_weights,
    RG_KINDS(kinds),
};

const rg_arch rg_arch_glm4_moe = {
    .hf_name = "Glm4MoeForCausalLM", .hf_type = "glm4_moe", .gguf_name = "glm4moe", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = decoder_weights,
    RG_KINDS(kinds), .put_gguf = put_gguf, .mtp = &mtp,
};
