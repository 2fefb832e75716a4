/* deepseek2.c -- DeepSeek-V2 (2024): multi-head latent attention, and experts beside shared ones after the first
 * layers. */
#include "model/arch/parts.h"

static const rg_key keys[] = {
    KEYS_MLA(2048, 32, 512, 64),
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", 11008 },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6 },
    { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_word_embeddings", NULL, 0 },
    { offsetof(rg_config, attn_bias), KEY_BOOL, "attention_bias", NULL, 0 },
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
    { offsetof(rg_config, n_dense_layers), KEY_INT, "first_k_dense_replace", "leading_dense_block_count", 0 },
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", 1407 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "n_routed_experts", "expert_count", 64 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", RG_REQUIRED },
    { offsetof(rg_config, n_shared_experts), KEY_INT, "n_shared_experts", "expert_shared_count", 2 },
    { offsetof(rg_config, routing.scale), KEY_FLOAT, "routed_scaling_factor", "expert_weights_scale", 1 },
    { offsetof(rg_config, routing.n_groups), KEY_INT, "n_group", "expert_group_count", 0 },
    { offsetof(rg_config, routing.n_groups_used), KEY_INT, "topk_group", "expert_group_used_count", 0 },
};

/* transformers computes DeepSeek-V2 without renormalising, whatever norm_topk_prob says. */
static const char *const harmless[] = {
    "norm_topk_prob", "qk_head_dim", "head_dim", "num_key_value_heads", "aux_loss_alpha", "seq_aux", "ep_size",
    "n_shared_head", "rope_interleave", NULL,
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const methods[] = { "greedy", "group_limited_greedy", NULL };
    static const char *const scores[] = { "softmax", NULL };
    char key[128];
    int method = -1;
    int64_t frequency = 1, gating = 1;
    bool renormalize = false;

    if (!finish_mla(c, ckpt, 1536, err) || !rg_config_choice(ckpt, "topk_method", methods, &method, err) ||
        !require_choice(ckpt, "scoring_func", scores, err) ||
        rg_meta_int(ckpt, "moe_layer_freq", 1, 1, &frequency, err) < 0 ||
        !require_choice(ckpt, "hidden_act", (const char *const[]){ "silu", NULL }, err))
        return false;
    if (c->from_gguf && (rg_meta_int(ckpt, rg_gguf_key(ckpt, "expert_gating_func", key), 0, 1, &gating, err) < 0 ||
                         rg_meta_bool(ckpt, rg_gguf_key(ckpt, "expert_weights_norm", key), &renormalize, err) < 0))
        return false;
    if (c->mlp_bias)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: mlp_bias is true, which is not supported", rg_checkpoint_path(ckpt));
    if (!c->from_gguf && method != 1)
        c->routing.n_groups = c->routing.n_groups_used = 0;
    if (c->routing.n_groups <= 1)
        c->routing.n_groups = c->routing.n_groups_used = 0;
    c->routing.softmax_first = true;
    c->routing.renormalize = renormalize;
    c->o_bias = c->attn_bias;
    if (c->from_gguf) {
        c->tie_embeddings = !rg_checkpoint_find(ckpt, "output.weight");
        c->attn_bias = rg_checkpoint_find(ckpt, "blk.0.attn_kv_a_mqa.bias");
        c->o_bias = rg_checkpoint_find(ckpt, "blk.0.attn_output.bias");
    }
    if (!finish_routing(c, err))
        return false;
    c->rope.dim = c->rope_dim;
    c->rope.interleaved = true;
    if (!rg_config_rope(&c->rope, ckpt, NULL, 1e4, err))
        return false;
    double mscale = c->rope.type == RG_ROPE_YARN ? rg_yarn_mscale(c->rope.factor, c->rope.mscale_all_dim) : 1;
    c->attn_scale = mscale * mscale / __builtin_sqrt((double)(c->nope_dim + c->rope_dim));
    return true;
}

static bool when_dense(const rg_config *c, int layer)
{
    return layer < c->n_dense_layers;
}

static bool when_moe(const rg_config *c, int layer)
{
    return layer >= c->n_dense_layers;
}

static bool when_shared(const rg_config *c, int layer)
{
    return layer >= c->n_dense_layers && c->n_shared_experts > 0;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_mla(c, w, err) && put_gguf_int(c, w, "expert_gating_func", 1, err) && put_gguf_rope(c, w, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_DECODER, { 0 } };

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },
    WEIGHTS_MLA,
    { W_FFN_NORM, "post_attention_layernorm", "ffn_norm", { DIM } },
    { W_GATE_PROJ, "mlp.gate_proj", "ffn_gate", { FFN_DIM, DIM }, SPLIT_ROWS, .when = when_dense },
    { W_UP_PROJ, "mlp.up_proj", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS, .when = when_dense },
    { W_DOWN_PROJ, "mlp.down_proj", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS, .when = when_dense },
    { W_ROUTER, "mlp.gate", "ffn_gate_inp", { N_EXPERTS, DIM }, .when = when_moe },
    { W_GATE_EXPERTS, "mlp.experts.*.gate_proj", "ffn_gate_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,
      .when = when_moe },
    { W_UP_EXPERTS, "mlp.experts.*.up_proj", "ffn_up_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS, .when = when_moe },
    { W_DOWN_EXPERTS, "mlp.experts.*.down_proj", "ffn_down_exps", { N_EXPERTS, DIM, MOE_DIM }, SPLIT_COLS,
      .when = when_moe },
    { W_SHARED_GATE, "mlp.shared_experts.gate_proj", "ffn_gate_shexp", { SHARED_DIM, DIM }, SPLIT_ROWS,
      .when = when_shared },
    { W_SHARED_UP, "mlp.shared_experts.up_proj", "ffn_up_shexp", { SHARED_DIM, DIM }, SPLIT_ROWS, .when = when_shared },
    { W_SHARED_DOWN, "mlp.shared_experts.down_proj", "ffn_down_shexp", { DIM, SHARED_DIM }, SPLIT_COLS,
      .when = when_shared },
    { 0 },
};

static void block(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = rg_act_new(f, "attn_norm", l->c->dim);

    rg_rmsnorm(f, h, x, l->w[W_ATTN_NORM], l->c->norm_eps);
    rg_act *a = part_mla(f, l, h);
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);

    rg_act *g = rg_act_new(f, "ffn_norm", l->c->dim);
    rg_rmsnorm(f, g, x, l->w[W_FFN_NORM], l->c->norm_eps);
    if (l->w[W_ROUTER])
        part_experts(f, l, x, g);
    else
        part_mlp(f, l, x, g, true);
}

const rg_arch rg_arch_deepseek2 = {
    .hf_name = "DeepseekV2ForCausalLM", .hf_type = "deepseek_v2", .gguf_name = "deepseek2",
    .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish, .harmless = harmless,
    .weights = weights, .layer_weights = layer_weights, .keep = keep_latent, .block = block,
    .put_gguf = put_gguf,
};
