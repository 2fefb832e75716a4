/* deepseek3.c -- DeepSeek-V3 (2024): DeepSeek-V2 with experts chosen by the sigmoid of their score and a bias, in the
 * groups whose best two are best.  GGUF calls it "deepseek2" with another gating function. */
#include "model/arch/mla.h"
#include "model/arch/mtp.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *a = latent_attention(f, l, h); /* over latents of kv_lora_rank values: [rows, n_heads * v_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

typedef struct settings {
    mla_settings mla;
    bool interleaved;
} settings;

enum { DENSE, EXPERTS }; /* kinds of layer */

static const rg_key keys[] = {
    KEYS_MLA(4096, 128, 1536, 512, 64), KEY_FFN(18432), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),
    KEYS_EXPERTS("n_routed_experts", 256, 8, 2048), KEYS_NOAUX(1, 8, 4, 2.5),
    { offsetof(rg_config, n_dense_layers), KEY_INT, "first_k_dense_replace", "leading_dense_block_count", 3 },
    { RG_OWN_AT(settings, interleaved), KEY_BOOL, "rope_interleave", NULL, 1 },
};

static const char *const harmless[] = {
    "qk_head_dim", "head_dim", "aux_loss_alpha", "seq_aux", "ep_size", "num_nextn_predict_layers", NULL,
};

static bool claims(const rg_checkpoint *ckpt)
{
    int64_t gating = 0;

    return rg_meta_int(ckpt, "deepseek2.expert_gating_func", 0, INT32_MAX, &gating, NULL) == 1 && gating == 2;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const methods[] = { "noaux_tc", NULL }, *const scores[] = { "sigmoid", NULL };

    c->o_bias = c->attn_bias;
    if (c->from_gguf) {
        c->tie_embeddings = !rg_checkpoint_find(ckpt, "output.weight");
        c->attn_bias = rg_checkpoint_find(ckpt, "blk.0.attn_kv_a_mqa.bias");
        c->o_bias = rg_checkpoint_find(ckpt, "blk.0.attn_output.bias");
    }
    /* Older files have no key for groups: those of 256 experts are DeepSeek's own, the others have one group. */
    if (c->from_gguf && c->routing.n_experts != 256 &&
        rg_meta_type_of(ckpt, "deepseek2.expert_group_count") == RG_META_NONE)
        c->routing.n_groups = c->routing.n_groups_used = 1;
    if (!finish_nextn(c, ckpt, err) || !finish_mla(c, ckpt, err) ||
        !finish_mla_rope(c, ckpt, RG_OWN(c, settings)->interleaved, err) || !finish_noaux(c, ckpt, err) ||
        !require_choice(ckpt, "topk_method", methods, err) || !require_choice(ckpt, "scoring_func", scores, err) ||
        !require_number(ckpt, "moe_layer_freq", 1, err) || !require_silu(ckpt, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = i < c->n_dense_layers ? DENSE : EXPERTS;
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (!RG_OWN(c, settings)->interleaved)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for rope_interleave: false");
    if (c->n_modules && !put_gguf_int(c, w, "nextn_predict_layers", c->n_modules, err))
        return false;
    return put_gguf_mla(c, w, err) && put_gguf_gating(c, w, err) && put_gguf_rope(c, w, err);
}

static const rg_weight_spec dense_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_MLP, { 0 } };

static const rg_weight_spec expert_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"),
    WEIGHT_CHOICE_BIAS("mlp.gate.e_score_correction_bias"), WEIGHTS_SHARED("mlp.shared_experts"), { 0 },
};

static const rg_layer_kind kinds[] = {
    [DENSE] = { dense_weights, keep_latent, block },
    [EXPERTS] = { expert_weights, keep_latent, block },
};

static const rg_weight_spec mtp_weights[] = { WEIGHTS_NEXTN, { 0 } };

static bool finish_mtp(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->layer[0].kind = EXPERTS;
    return finish_nextn_module(c, ckpt, err);
}

static const rg_arch mtp = {
    .hf_name = "DeepSeekMTPModel", .gguf_name = "deepseek2", MTP_NEXTN, .finish = finish_mtp, .weights = mtp_weights,
    RG_KINDS(kinds),
};

const rg_arch rg_arch_deepseek3 = {
    .hf_name = "DeepseekV3ForCausalLM", .hf_type = "deepseek_v3", .gguf_name = "deepseek2", .claims = claims,
    .hf_prefix = "model.layers.", RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless,
    .weights = decoder_weights, RG_KINDS(kinds), .put_gguf = put_gguf, .mtp = &mtp,
};
