/* nemotron_h_moe.c -- Nemotron 3 (NVIDIA 2025): Nemotron-H with layers of experts, chosen by the sigmoid of their score
 * and a bias, beside a shared one; all of squared ReLU without a gate.
 *
 * In the larger models the routed experts work in a narrower latent space; their router and the shared one do not. */
#include "model/arch/nemotron_h.h"

typedef struct settings {
    ssd_settings ssd; /* first */
    int latent;       /* width of that space; 0: there is none */
} settings;

enum { W_LATENT_DOWN = W_SSD_END, W_LATENT_UP };

static SIZE(LATENT, RG_OWN(c, settings)->latent) static SIZE(EXPERT_IN, LATENT(c, layer) ? LATENT(c, layer) : c->dim)

    /* A layer is one of these four. */
    static void block_mamba(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *y = mamba2(f, l, normed(f, l, x, W_ATTN_NORM)); /* [rows, inner width] */

    rg_linear_add(f, x, y, l->w[W_SSD_OUT], l->w[W_SSD_OUT_BIAS]); /* x += out_proj y */
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const qkv p = project(
        f, l, normed(f, l, x, W_ATTN_NORM)); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */
}

static void block_mlp(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *g = mlp(f, l, normed(f, l, x, W_ATTN_NORM)); /* relu(up_proj h)^2: [rows, ffn_dim] */

    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

/* Experts of the norm of x, or of a latent of it that comes back behind them. */
static void block_experts(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);

    if (!l->w[W_LATENT_DOWN]) {
        experts(f, l, x, h);
        return;
    }
    rg_act *logits = linear(f, "router", h, l->w[W_ROUTER], NULL);   /* of h itself: [rows, n_experts] */
    rg_act *low = linear(f, "latent", h, l->w[W_LATENT_DOWN], NULL); /* [rows, moe_latent_size] */
    rg_act *route = rg_act_new(f, "route", 2 * l->c->routing.n_used), *y = rg_act_new(f, "experts", low->cols);

    rg_route(f, route, logits, &l->c->routing, l->w[W_CHOICE_BIAS], NULL);
    rg_moe(f, y, low, route, &l->c->routing,
           &(rg_experts){ .up = l->w[W_UP_EXPERTS], .down = l->w[W_DOWN_EXPERTS], .act = l->c->act, .alone = true });
    rg_linear_add(f, x, y, l->w[W_LATENT_UP], NULL);
    if (l->w[W_SHARED_UP])
        rg_linear_add(f, x, shared_experts(f, l, h), l->w[W_SHARED_DOWN], NULL);
}

static const rg_key keys[] = {
    KEYS_NEMOTRON_H, KEYS_EXPERTS("n_routed_experts", 8, 2, 7688), KEYS_NOAUX(1, 1, 1, 1),
    { offsetof(rg_config, shared_ffn_dim), KEY_INT, "moe_shared_expert_intermediate_size",
      "expert_shared_feed_forward_length", 7688 },
    { RG_OWN_AT(settings, latent), KEY_INT, "moe_latent_size", "moe_latent_size", 0 },
};

static const char *const harmless[] = { NEMOTRON_H_HARMLESS, "moe_shared_expert_overlap", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->routing.sum_eps = 1e-20f;
    if (c->n_shared_experts > 1)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: n_shared_experts is %d, which is not supported (supported: 0, 1)",
                       rg_checkpoint_path(ckpt), c->n_shared_experts);
    return finish_nemotron_h(c, ckpt, err) && finish_noaux(c, ckpt, err) && require_false(ckpt, "mlp_bias", err);
}

static WHEN(when_latent, LATENT(c, layer) > 0)

static const rg_weight_spec weights[] = { WEIGHTS_NEMOTRON_H, { 0 } };

static const rg_weight_spec expert_weights[] = {
    WEIGHT_NEMOTRON_H_NORM,
    { W_ROUTER, "mixer.gate", "ffn_gate_inp", { N_EXPERTS, DIM } },
    { W_UP_EXPERTS, "mixer.experts.*.up_proj", "ffn_up_exps", { N_EXPERTS, MOE_DIM, EXPERT_IN }, SPLIT_ROWS },
    { W_DOWN_EXPERTS, "mixer.experts.*.down_proj", "ffn_down_exps", { N_EXPERTS, EXPERT_IN, MOE_DIM }, SPLIT_COLS },
    { W_LATENT_DOWN, "mixer.fc1_latent_proj", "ffn_latent_down", { LATENT, DIM }, .when = when_latent },
    { W_LATENT_UP, "mixer.fc2_latent_proj", "ffn_latent_up", { DIM, LATENT }, .when = when_latent },
    WEIGHT_CHOICE_BIAS("mixer.gate.e_score_correction_bias"),
    { W_SHARED_UP, "mixer.shared_experts.up_proj", "ffn_up_shexp", { SHARED_DIM, DIM }, SPLIT_ROWS,
      .when = when_shared },
    { W_SHARED_DOWN, "mixer.shared_experts.down_proj", "ffn_down_shexp", { DIM, SHARED_DIM }, SPLIT_COLS,
      .when = when_shared },
    { 0 },
};

static const rg_layer_kind kinds[NEMOTRON_KINDS] = {
    [HYBRID_OTHER] = { nemotron_h_mamba, keep_ssd, block_mamba },
    [HYBRID_ATTENTION] = { nemotron_h_attention, keep_kv, block_attention },
    [NEMOTRON_MLP] = { nemotron_h_mlp, keep_nothing, block_mlp },
    [NEMOTRON_EXPERTS] = { expert_weights, keep_nothing, block_experts },
};

const rg_arch rg_arch_nemotron_h_moe = {
    .hf_name = "NemotronHForCausalLM", .hf_type = "nemotron_h", .gguf_name = "nemotron_h_moe",
    .claims_hf = nemotron_h_has_experts, .hf_prefix = "backbone.layers.", .layer_list = "layers_block_type",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = weights,
    RG_KINDS(kinds), .put_gguf = put_gguf_nemotron_h,
};
