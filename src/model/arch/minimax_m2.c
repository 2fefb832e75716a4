/* minimax_m2.c -- MiniMax-M2 (2025): RMSNorm over the whole rows of q and k, a rope on part of each head, and experts
 * on every layer, chosen by the sigmoid of their score and a bias. */
#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p); /* RMSNorm of the whole rows of q and of k */
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    experts(f, l, x, h); /* chosen by sigmoid(router h) + bias */
}

typedef struct settings {
    int rotary_dim; /* 0: partial_rotary_factor says it */
} settings;

static const rg_key keys[] = {
    KEYS_GQA(196608, 48, 8, 128), KEY_FFN(1536), KEY_RMS_EPS(1e-6), KEY_TIED(0),
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "intermediate_size", "expert_feed_forward_length", 1536 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_local_experts", "expert_count", 256 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", 8 },
    { RG_OWN_AT(settings, rotary_dim), KEY_INT, "rotary_dim", NULL, 0 },
};

static const char *const harmless[] = { "use_mtp", "num_mtp_modules", "mtp_transformer_layers", "max_model_len", NULL };

/* Settings of the published files that only ever have one value. */
static bool require_settings(const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const sigmoid[] = { "sigmoid", NULL }, *const per_layer[] = { "per_layer", NULL };

    return require_silu(ckpt, err) && require_choice(ckpt, "scoring_func", sigmoid, err) &&
           require_true(ckpt, "use_routing_bias", err) && require_true(ckpt, "use_qk_norm", err) &&
           require_choice(ckpt, "qk_norm_type", per_layer, err) &&
           require_number(ckpt, "shared_intermediate_size", 0, err) &&
           require_numbers(ckpt, "attn_type_list", 1, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);
    rope_defaults rope = { .theta = 5e6, .part = 1, .pairs = GGUF_HALVES };

    c->routing.score = RG_SCORE_SIGMOID;
    c->routing.renormalize = true;
    c->routing.scale = 1;
    finish_optional(c, ckpt);
    if (!finish_heads(c, err) || !finish_routing(c, err) || !require_gating(c, ckpt, err) ||
        !require_settings(ckpt, err))
        return false;
    if (s->rotary_dim > c->head_dim)
        return rg_fail(err, RG_E_INPUT, "%s: rotary_dim %d is more than head_dim %d", rg_checkpoint_path(ckpt),
                       s->rotary_dim, c->head_dim);
    if (s->rotary_dim && s->rotary_dim < c->head_dim)
        rope.part = (s->rotary_dim + 0.5) / c->head_dim;
    s->rotary_dim = 0; /* one spelling of two */
    return finish_rope_as(c, ckpt, &rope, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_decoder(c, w, err) && put_gguf_gating(c, w, err);
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_QK_NORM(Q_DIM, KV_DIM),
    WEIGHTS_EXPERTS("block_sparse_moe", "w1", "w3", "w2"),
    WEIGHT_CHOICE_BIAS("block_sparse_moe.e_score_correction_bias"), { 0 },
};

const rg_arch rg_arch_minimax_m2 = {
    .hf_name = "MiniMaxM2ForCausalLM", .hf_type = "minimax_m2", .gguf_name = "minimax-m2", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = decoder_weights,
    RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
