/* deepseek2.c -- DeepSeek-V2 (2024): multi-head latent attention, and experts beside shared ones after the first
 * layers. */
#include <stdio.h>

#include "model/arch/mla.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *a = latent_attention(f, l, h); /* over latents of kv_lora_rank values: [rows, n_heads * v_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static const rg_key keys[] = {
    KEYS_MLA(2048, 32, 1536, 512, 64), KEY_FFN(11008), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),
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

enum { DENSE, EXPERTS }; /* kinds of layer */

static const char *const harmless[] = {
    "qk_head_dim", "head_dim", "aux_loss_alpha", "seq_aux", "ep_size", "n_shared_head", "rope_interleave", NULL,
};

/* GGUF of this name holds DeepSeek-V3 too, which scores experts otherwise and corrects the scores by a bias. */
static bool finish_gguf_routing(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];
    int64_t gating = 1;

    if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "expert_gating_func", key), 0, INT32_MAX, &gating, err) < 0 ||
        rg_meta_bool(ckpt, rg_gguf_key(ckpt, "expert_weights_norm", key), &c->routing.renormalize, err) < 0)
        return false;
    if (gating > 1)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "%s: expert_gating_func is %lld, which is not supported (supported: 1, softmax)",
                       rg_checkpoint_path(ckpt), (long long)gating);
    for (int i = 0; i < c->n_layers; i++) {
        snprintf(key, sizeof key, "blk.%d.exp_probs_b.bias", i);
        if (rg_checkpoint_find(ckpt, key))
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: the tensor '%s' corrects the scores of experts, which is not "
                           "supported", rg_checkpoint_path(ckpt), key);
    }
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const methods[] = { "greedy", "group_limited_greedy", NULL };
    static const char *const scores[] = { "softmax", NULL };
    int method = -1;
    bool normed = false;
    int64_t frequency = 1;

    if (!finish_mla(c, ckpt, err) || !rg_config_choice(ckpt, "topk_method", methods, &method, err) ||
        !require_choice(ckpt, "scoring_func", scores, err) ||
        rg_config_int(ckpt, "moe_layer_freq", 1, 1, &frequency, err) < 0 ||
        rg_config_flag(ckpt, "norm_topk_prob", &normed, err) < 0 ||
        !require_silu(ckpt, err))
        return false;
    if (c->from_gguf && !finish_gguf_routing(c, ckpt, err))
        return false;
    if (normed) /* weights of experts are not made to sum to one, whatever it says */
        c->not_followed[0] = "norm_topk_prob";
    if (c->mlp_bias)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: mlp_bias is true, which is not supported", rg_checkpoint_path(ckpt));
    if (!c->from_gguf && method != 1)
        c->routing.n_groups = c->routing.n_groups_used = 0;
    if (c->routing.n_groups <= 1)
        c->routing.n_groups = c->routing.n_groups_used = 0;
    c->routing.score = RG_SCORE_SOFTMAX;
    c->o_bias = c->attn_bias;
    if (c->from_gguf) {
        c->tie_embeddings = !rg_checkpoint_find(ckpt, "output.weight");
        c->attn_bias = rg_checkpoint_find(ckpt, "blk.0.attn_kv_a_mqa.bias");
        c->o_bias = rg_checkpoint_find(ckpt, "blk.0.attn_output.bias");
    }
    if (!finish_routing(c, err) || !finish_mla_rope(c, ckpt, true, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = i < c->n_dense_layers ? DENSE : EXPERTS;
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_mla(c, w, err) && put_gguf_int(c, w, "expert_gating_func", 1, err) && put_gguf_rope(c, w, err);
}

static const rg_weight_spec dense_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_MLP, { 0 } };

static const rg_weight_spec expert_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
    WEIGHTS_SHARED("mlp.shared_experts"), { 0 },
};

static const rg_layer_kind kinds[] = {
    [DENSE] = { dense_weights, keep_latent, block },
    [EXPERTS] = { expert_weights, keep_latent, block },
};

const rg_arch rg_arch_deepseek2 = {
    .hf_name = "DeepseekV2ForCausalLM", .hf_type = "deepseek_v2", .gguf_name = "deepseek2",
    .hf_prefix = "model.layers.", RG_KEYS(keys), .own_bytes = sizeof(mla_settings), .finish = finish,
    .harmless = harmless, .weights = decoder_weights, RG_KINDS(kinds), .put_gguf = put_gguf,
};
