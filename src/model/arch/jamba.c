/* jamba.c -- Jamba (Lieber et al. 2024): Mamba layers with an attention layer in every period, which does not rotate
 * positions, and after each an MLP or routed experts; Mamba's dt, B and C are normed.
 *
 * config.json says by periods which layers are which; GGUF by numbers of K/V heads and by the tensors that are
 * there. */
#include "model/arch/hybrid.h"
#include "model/arch/mamba.h"

static void block_mamba(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = mamba1(f, l, h);                                /* [rows, d_inner] */
    rg_linear_add(f, x, y, l->w[W_OUT_PROJ], l->w[W_OUT_BIAS]); /* x += out_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h);  /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static const rg_key keys[] = {
    KEYS_HYBRID_GQA(262144, 32, 8, 0), KEY_FFN(14336), KEY_RMS_EPS(1e-6), KEY_TIED(0),
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_experts", "expert_count", 16 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", 2 },
    { RG_OWN_AT(mamba_settings, d_state), KEY_INT, "mamba_d_state", "ssm.state_size", 16 },
    { RG_OWN_AT(mamba_settings, d_conv), KEY_INT, "mamba_d_conv", "ssm.conv_kernel", 4 },
    { RG_OWN_AT(mamba_settings, d_inner), KEY_INT, NULL, "ssm.inner_size", 0 },
    { RG_OWN_AT(mamba_settings, conv_bias), KEY_BOOL, "mamba_conv_bias", NULL, 1 },
    { RG_OWN_AT(mamba_settings, proj_bias), KEY_BOOL, "mamba_proj_bias", NULL, 0 },
};

static const char *const harmless[] = {
    "use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep", "calc_logits_for_entire_prompt",
    NULL,
};

/* Attention in layers attn_offset + n attn_period, experts likewise; with one expert there is no choice, and an MLP. */
static bool finish_periods(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    struct periods {
        int attn, attn_offset, expert, expert_offset;
    } p;
    static const rg_key rows[] = {
        { offsetof(struct periods, attn), KEY_INT, "attn_layer_period", NULL, 8, .least = 1 },
        { offsetof(struct periods, attn_offset), KEY_INT, "attn_layer_offset", NULL, 4 },
        { offsetof(struct periods, expert), KEY_INT, "expert_layer_period", NULL, 2, .least = 1 },
        { offsetof(struct periods, expert_offset), KEY_INT, "expert_layer_offset", NULL, 1 },
    };

    if (!rg_config_keys(&p, ckpt, rows, RG_LEN(rows), err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        bool sparse = i % p.expert == p.expert_offset && c->routing.n_experts > 1;

        c->layer[i].kind = i % p.attn == p.attn_offset ? HYBRID_ATTENTION : HYBRID_OTHER;
        c->layer[i].kind += sparse ? HYBRID_EXPERTS : 0;
    }
    return true;
}

static bool finish_gguf(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    finish_optional(c, ckpt);
    if (!read_gguf_kv_heads(c, ckpt, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind += layer_has(ckpt, i, "ffn_gate_inp.weight") ? HYBRID_EXPERTS : 0;
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    bool sparse = false;

    if (!(c->from_gguf ? finish_gguf(c, ckpt, err) : finish_periods(c, ckpt, err)))
        return false;
    c->moe_ffn_dim = c->ffn_dim;
    c->routing.scale = 1;
    c->routing.score = RG_SCORE_SOFTMAX;
    for (int i = 0; i < c->n_layers; i++)
        sparse = sparse || c->layer[i].kind >= HYBRID_EXPERTS;
    return finish_heads(c, err) && (!sparse || finish_routing(c, err)) &&
           finish_mamba(c, ckpt, "mamba_expand", "mamba_dt_rank", err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_kv_heads(c, w, err) &&
           put_gguf_int(c, w, "ssm.time_step_rank", RG_OWN(c, mamba_settings)->dt_rank, err);
}

static const rg_weight_spec weights[] = {
    WEIGHTS_OUTER("model.embed_tokens", "model.final_layernorm", "lm_head"),
    { 0 },
};

#define NORMS                                                                                                          \
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },                                                          \
    { W_FFN_NORM, "pre_ff_layernorm", "ffn_norm", { DIM } }
#define MAMBA                                                                                                          \
    WEIGHTS_MAMBA("mamba."),                                                                                           \
    { W_DT_NORM, "mamba.dt_layernorm", "ssm_dt_norm", { DT_RANK } },                                                   \
    { W_B_NORM, "mamba.b_layernorm", "ssm_b_norm", { D_STATE } },                                                      \
    { W_C_NORM, "mamba.c_layernorm", "ssm_c_norm", { D_STATE } }
#define MLP WEIGHTS_MLP_OF("feed_forward", "gate_proj", "up_proj", "down_proj")
#define EXPERTS WEIGHTS_EXPERTS_OF("feed_forward", "router", "gate_proj", "up_proj", "down_proj")

static const rg_weight_spec mamba_mlp[] = { NORMS, MAMBA, MLP, { 0 } };
static const rg_weight_spec mamba_experts[] = { NORMS, MAMBA, EXPERTS, { 0 } };
static const rg_weight_spec attention_mlp[] = { NORMS, WEIGHTS_GQA(GGUF_HALVES), MLP, { 0 } };
static const rg_weight_spec attention_experts[] = { NORMS, WEIGHTS_GQA(GGUF_HALVES), EXPERTS, { 0 } };

static void keep_mamba(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    mamba_keep(c, out);
}

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { mamba_mlp, keep_mamba, block_mamba },
    [HYBRID_ATTENTION] = { attention_mlp, keep_kv, block_attention },
    [HYBRID_OTHER + HYBRID_EXPERTS] = { mamba_experts, keep_mamba, block_mamba },
    [HYBRID_ATTENTION + HYBRID_EXPERTS] = { attention_experts, keep_kv, block_attention },
};

const rg_arch rg_arch_jamba = {
    .hf_name = "JambaForCausalLM", .hf_type = "jamba", .gguf_name = "jamba", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(mamba_settings), .finish = finish, .harmless = harmless, .weights = weights,
    RG_KINDS(kinds), .put_gguf = put_gguf,
};
