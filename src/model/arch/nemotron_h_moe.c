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

static SIZE(LATENT, RG_OWN(c, settings)->latent)
static SIZE(EXPERT_IN, LATENT(c, layer) ? LATENT(c, layer) : c->dim)

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

static bool when_latent(const rg_config *c, int layer)
{
    return LATENT(c, layer) > 0;
}

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

static void block_experts(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const rg_config *c = l->c;

    if (!l->w[W_LATENT_DOWN]) {
        block_nemotron_mlp(f, l, x);
        return;
    }
    rg_act *h = nemotron_normed(f, l, x), *logits = rg_act_new(f, "router", c->routing.n_experts);
    rg_act *route = rg_act_new(f, "route", 2 * c->routing.n_used);
    rg_act *low = rg_act_new(f, "latent", (int)LATENT(c, 0)), *y = rg_act_new(f, "experts", (int)LATENT(c, 0));

    rg_linear(f, logits, h, l->w[W_ROUTER], NULL);
    rg_route(f, route, logits, &c->routing, l->w[W_CHOICE_BIAS], NULL);
    rg_linear(f, low, h, l->w[W_LATENT_DOWN], NULL);
    rg_moe(f, y, low, route, &c->routing,
           &(rg_experts){ .up = l->w[W_UP_EXPERTS], .down = l->w[W_DOWN_EXPERTS], .act = c->act, .alone = true });
    rg_linear_add(f, x, y, l->w[W_LATENT_UP], NULL);
    if (l->w[W_SHARED_UP])
        part_shared_experts(f, l, x, h);
}

static const rg_layer_kind kinds[NEMOTRON_KINDS] = {
    [HYBRID_OTHER] = { nemotron_h_mamba, keep_ssd, half_ssd },
    [HYBRID_ATTENTION] = { nemotron_h_attention, keep_kv, block_nemotron_attention },
    [NEMOTRON_MLP] = { nemotron_h_mlp, keep_nothing, block_nemotron_mlp },
    [NEMOTRON_EXPERTS] = { expert_weights, keep_nothing, block_experts },
};

const rg_arch rg_arch_nemotron_h_moe = {
    .hf_name = "NemotronHForCausalLM", .hf_type = "nemotron_h", .gguf_name = "nemotron_h_moe",
    .claims_hf = nemotron_h_has_experts, .hf_prefix = "backbone.layers.", .layer_list = "layers_block_type",
    .keys = keys, .n_keys = RG_LEN(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless,
    .weights = weights, .kinds = kinds, .n_kinds = RG_LEN(kinds), .put_gguf = put_gguf_nemotron_h,
};
