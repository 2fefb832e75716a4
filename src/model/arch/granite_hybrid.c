/* granite_hybrid.c -- Granite 4 (IBM 2025): Mamba-2 in most layers, attention in the others, usually without positions;
 * after each an MLP, or routed experts beside it.  The multipliers are Granite 3's. */
#include "model/arch/ssd.h"

typedef struct settings {
    ssd_settings ssd; /* first */
    float attention, embedding, residual, logits;
} settings;

/* x += r times the experts of h and the shared one beside them, or its MLP. */
static void add_second_half(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *h, float r)
{
    if (!l->w[W_ROUTER]) {
        add_scaled(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], NULL, r);
        return;
    }
    routed_experts(f, l, x, h, linear(f, "router", h, l->w[W_ROUTER], NULL)); /* r is a factor of their weights */
    if (l->w[W_SHARED_UP])
        add_scaled(f, x, shared_experts(f, l, h), l->w[W_SHARED_DOWN], NULL, r);
}

static void block_mamba(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const float r = RG_OWN(l->c, settings)->residual;
    rg_act *y = mamba2(f, l, normed(f, l, x, W_ATTN_NORM)); /* [rows, inner width] */

    add_scaled(f, x, y, l->w[W_SSD_OUT], l->w[W_SSD_OUT_BIAS], r);
    add_second_half(f, l, x, normed(f, l, x, W_FFN_NORM), r);
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const float r = RG_OWN(l->c, settings)->residual;
    const qkv p = project(
        f, l, normed(f, l, x, W_ATTN_NORM)); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    add_scaled(f, x, attention(f, l, &p), l->w[W_O_PROJ], l->w[W_O_BIAS], r);
    add_second_half(f, l, x, normed(f, l, x, W_FFN_NORM), r);
}

static const rg_key keys[] = {
    KEYS_HYBRID_GQA(2048, 32, 0, 0), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),
    KEY_SSD_HEADS("mamba_n_heads", 128), KEY_SSD_STATE("mamba_d_state", 256), KEY_SSD_GROUPS("mamba_n_groups", 1),
    KEY_SSD_CONV("mamba_d_conv", 4), KEY_SSD_CONV_BIAS("mamba_conv_bias"), KEY_SSD_BIAS("mamba_proj_bias"),
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", 11008 },
    { offsetof(rg_config, shared_ffn_dim), KEY_INT, "shared_intermediate_size", "expert_shared_feed_forward_length",
      1024 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_local_experts", "expert_count", 8, .null = NULL_IS_ZERO,
      .zero_in_gguf = true },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", 2 },
    { RG_OWN_AT(settings, attention), KEY_FLOAT, "attention_multiplier", "attention.scale", 1 },
    { RG_OWN_AT(settings, embedding), KEY_FLOAT, "embedding_multiplier", "embedding_scale", 1 },
    { RG_OWN_AT(settings, residual), KEY_FLOAT, "residual_multiplier", "residual_scale", 1 },
    { RG_OWN_AT(settings, logits), KEY_FLOAT, "logits_scaling", "logit_scale", 1 },
};

static const char *const harmless[] = { SSD_HARMLESS, NULL };

/* Positions are rotated if config.json says "rope"; GGUF says so by a flag that it has for something else. */
static bool finish_positions(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const types[] = { "rope", "nope", NULL };
    int which = -1;
    bool flag = false;
    char key[128];

    if (!finish_rope(c, ckpt, 1e4, GGUF_PAIRS, err) ||
        (c->from_gguf ? rg_meta_bool(ckpt, rg_gguf_key(ckpt, "rope.scaling.finetuned", key), &flag, err) < 0
                      : !rg_config_choice(ckpt, "position_embedding_type", types, &which, err)))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].rope = which == 0 || flag ? 0 : -1;
    return true;
}

/* Experts in all layers or in none. */
static bool finish_second_halves(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->routing.score = RG_SCORE_CHOSEN;
    c->routing.scale = RG_OWN(c, settings)->residual;
    if (!c->routing.n_experts) {
        c->ffn_dim = c->from_gguf ? c->moe_ffn_dim : c->shared_ffn_dim;
        c->moe_ffn_dim = c->shared_ffn_dim = c->ffn_dim;
        return c->ffn_dim > 0 || rg_fail(err, RG_E_INPUT, "%s: the width of the MLP is 0", rg_checkpoint_path(ckpt));
    }
    c->n_shared_experts = c->shared_ffn_dim > 0;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind += HYBRID_EXPERTS;
    return finish_routing(c, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const kind_word words[] = {
        { "mamba", HYBRID_OTHER }, { "linear_attention", HYBRID_OTHER }, { "attention", HYBRID_ATTENTION },
        { "full_attention", HYBRID_ATTENTION }, { 0 },
    };
    static const ssd_width width = { "mamba_d_head", 0, NULL, "mamba_expand" };
    const settings *s = RG_OWN(c, settings);

    if (s->attention == 0 || s->logits == 0)
        return rg_fail(err, RG_E_INPUT, "%s: attention_multiplier %g, logits_scaling %g: neither may be 0",
                       rg_checkpoint_path(ckpt), (double)s->attention, (double)s->logits);
    c->attn_scale = (double)s->attention;
    c->embed_scale = (double)s->embedding;
    c->logit_scale = 1.0f / s->logits;
    finish_optional(c, ckpt);
    c->attn_bias = c->attn_bias || (c->from_gguf && any_layer_has(c, ckpt, "attn_q.bias"));
    c->o_bias = c->attn_bias;
    return (c->from_gguf ? read_gguf_kv_heads(c, ckpt, err) : read_kinds(c, ckpt, "layer_types", words, err) >= 0) &&
           finish_heads(c, err) && finish_positions(c, ckpt, err) && finish_second_halves(c, ckpt, err) &&
           finish_ssd(c, ckpt, &width, err) && require_silu(ckpt, err) &&
           require_choice(ckpt, "normalization_function", (const char *const[]){ "rmsnorm", NULL }, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_kv_heads(c, w, err) && put_gguf_rope(c, w, err) &&
           put_gguf_int(c, w, "rope.dimension_count", c->ropes[0].dim, err) &&
           put_gguf_bool(c, w, "rope.scaling.finetuned", c->layer[0].rope >= 0, err) && put_gguf_ssd(c, w, err);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static SIZE(SHARED_DIM_2, 2 * SHARED_DIM(c, layer))

/* gate above up in one tensor; beside experts under other roles and GGUF names. */
#define HALF(role, gguf_name, size, first, condition)                                                                  \
    { role, "shared_mlp.input_linear", gguf_name, { size, DIM }, SPLIT_ROWS, .stored = { size##_2, DIM },              \
      .first_row = first, .split_in_gguf = true, .when = condition }
#define MLP                                                                                                            \
    HALF(W_GATE_PROJ, "ffn_gate", FFN_DIM, ROW_0, NULL), HALF(W_UP_PROJ, "ffn_up", FFN_DIM, FFN_DIM, NULL),            \
    { W_DOWN_PROJ, "shared_mlp.output_linear", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS }
#define EXPERTS                                                                                                        \
    WEIGHTS_STACKED_EXPERTS("block_sparse_moe.router.layer", "block_sparse_moe.input_linear",                          \
                            "block_sparse_moe.output_linear"),                                                         \
    HALF(W_SHARED_GATE, "ffn_gate_shexp", SHARED_DIM, ROW_0, when_shared),                                             \
    HALF(W_SHARED_UP, "ffn_up_shexp", SHARED_DIM, SHARED_DIM, when_shared),                                            \
    { W_SHARED_DOWN, "shared_mlp.output_linear", "ffn_down_shexp", { DIM, SHARED_DIM }, SPLIT_COLS,                    \
      .when = when_shared }

static const rg_weight_spec mamba_mlp[] = { WEIGHTS_PRE_NORMS, WEIGHTS_SSD("mamba."), MLP, { 0 } };
static const rg_weight_spec mamba_experts[] = { WEIGHTS_PRE_NORMS, WEIGHTS_SSD("mamba."), EXPERTS, { 0 } };
static const rg_weight_spec attention_mlp[] = { WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS), MLP, { 0 } };
static const rg_weight_spec attention_experts[] = { WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS), EXPERTS, { 0 } };

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { mamba_mlp, keep_ssd, block_mamba },
    [HYBRID_ATTENTION] = { attention_mlp, keep_kv, block_attention },
    [HYBRID_OTHER + HYBRID_EXPERTS] = { mamba_experts, keep_ssd, block_mamba },
    [HYBRID_ATTENTION + HYBRID_EXPERTS] = { attention_experts, keep_kv, block_attention },
};

const rg_arch rg_arch_granite_hybrid = {
    .hf_name = "GraniteMoeHybridForCausalLM", .hf_type = "granitemoehybrid", .gguf_name = "granitehybrid",
    .hf_prefix = "model.layers.", .layer_list = "layer_types", RG_KEYS(keys), .own_bytes = sizeof(settings),
    .finish = finish, .harmless = harmless, .weights = decoder_weights_and_freqs, RG_KINDS(kinds), .put_gguf = put_gguf,
};
