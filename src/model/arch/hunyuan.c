/* hunyuan.c -- Hunyuan-Large and its kin (Tencent 2024): the Llama block; K/V that layers share; RMSNorm on every head
 * of q and k, behind the rotation; and, of the large ones, for each row one expert, weighted by its share in the
 * softmax of all, beside a shared one.
 *
 * What is shared is K before its norm, and each layer that reads it has a norm of its own.  So K is kept divided by its
 * root mean square, which is what all these norms have in common; by their weights, which a product may have on either
 * side, q is multiplied. */
#include <stdio.h>
#include <string.h>

#include "model/arch/hunyuan.h"
#include "model/arch/sights.h"

typedef struct settings {
    bool qk_norm;
} settings;

enum { DENSE, EXPERTS }; /* kinds of layer */
enum { W_QUERY_NORM = W_OWN, W_KEY_NORM };

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    if (p.k && l->w[W_Q_NORM])
        rg_rmsnorm_plain(f, p.k, p.k, l->c->head_dim, l->c->norm_eps);
    if (l->w[W_Q_NORM])
        rg_rmsnorm(f, p.q, p.q, l->w[W_Q_NORM], l->c->norm_eps);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static const rg_key keys[] = {
    KEYS_GQA(2048, 32, 0, 0), KEY_FFN(11008), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_experts", NULL, 1 },
    { offsetof(rg_config, n_shared_experts), KEY_INT, "num_shared_expert", NULL, 1 },
    { RG_OWN_AT(settings, qk_norm), KEY_BOOL, "use_qk_norm", NULL, 0 },
};

/* capacity_factor and the like are of training: where one expert is chosen, none drops rows. */
static const char *const harmless[] = {
    HUNYUAN_HARMLESS, "pad_id", "enable_lm_head_fp32", "enable_moe_fp32_combine", "capacity_factor", "moe_drop_tokens",
    "moe_random_routing_dropped_token", NULL,
};

/* A number that the published files have once, or for each layer. */
static bool read_number(const rg_checkpoint *ckpt, const char *key, int64_t *out, rg_error *err)
{
    const int32_t *list = NULL;
    size_t n = 0;

    if (rg_meta_type_of(ckpt, key) != RG_META_ARRAY)
        return rg_config_int(ckpt, key, 0, INT32_MAX, out, err) >= 0;
    if (rg_meta_ints(ckpt, key, &list, &n, err) < 0 || (n && !require_numbers(ckpt, key, list[0], err)))
        return false;
    *out = n ? list[0] : *out;
    return true;
}

static bool finish_experts(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    int64_t n_used = 1;
    bool shared = false;

    if (!read_number(ckpt, "moe_topk", &n_used, err) || rg_config_flag(ckpt, "use_mixed_mlp_moe", &shared, err) < 0)
        return false;
    if (c->routing.n_experts > 1 && n_used != 1)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: moe_topk is %lld, which is not supported (supported: 1)",
                       rg_checkpoint_path(ckpt), (long long)n_used);
    if (!shared)
        c->n_shared_experts = 0;
    if (c->routing.n_experts <= 1) {
        c->routing.n_experts = c->n_shared_experts = 0;
        return true;
    }
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = EXPERTS;
    c->routing.n_used = 1;
    c->routing.score = RG_SCORE_SOFTMAX;
    c->routing.scale = 1;
    c->moe_ffn_dim = c->ffn_dim;
    return finish_routing(c, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    return finish_heads(c, err) && finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && finish_hunyuan_base(c, ckpt, err) &&
           finish_kv_layers(c, ckpt, err) && finish_experts(c, ckpt, err) && require_silu(ckpt, err) &&
           require_false(ckpt, "mlp_bias", err) && require_number(ckpt, "moe_layer_num_skipped", 0, err) &&
           require_number(ckpt, "routed_scaling_factor", 1, err) && require_false(ckpt, "group_limited_greedy", err) &&
           require_choice(ckpt, "norm_type", (const char *const[]){ "rms", "hf_rms", "fused", NULL }, err);
}

static WHEN(when_qk_norm, RG_OWN(c, settings)->qk_norm)

/* What q is multiplied by: the weights of its norm and of the norm of k. */
bool derive_q_norm(const rg_config *c, int layer, const rg_weight *const w[], float *dst, rg_error *err)
{
    (void)layer, (void)err;
    for (int i = 0; i < c->head_dim; i++)
        dst[i] = w[W_QUERY_NORM]->vec[i] * w[W_KEY_NORM]->vec[i];
    return true;
}

bool derive_q_norm_back(const rg_config *c, int layer, const rg_weight *const w[], const float *d_dst,
                        float *const d_w[], rg_error *err)
{
    (void)layer, (void)err;
    for (int i = 0; i < c->head_dim; i++) {
        if (d_w[W_QUERY_NORM])
            d_w[W_QUERY_NORM][i] += d_dst[i] * w[W_KEY_NORM]->vec[i];
        if (d_w[W_KEY_NORM])
            d_w[W_KEY_NORM][i] += d_dst[i] * w[W_QUERY_NORM]->vec[i];
    }
    return true;
}

#define WEIGHTS_ATTENTION                                                                                              \
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES),                                                                       \
        { W_QUERY_NORM, "self_attn.query_layernorm", NULL, { HEAD_DIM }, .when = when_qk_norm },                       \
        { W_KEY_NORM, "self_attn.key_layernorm", NULL, { HEAD_DIM }, .when = when_qk_norm },                           \
    {                                                                                                                  \
        W_Q_NORM, "self_attn.qk_layernorm", NULL, { HEAD_DIM }, .when = when_qk_norm, .derive = derive_q_norm          \
    }

static const rg_weight_spec dense_weights[] = { WEIGHTS_ATTENTION, WEIGHTS_MLP, { 0 } };

static const rg_weight_spec expert_weights[] = {
    WEIGHTS_ATTENTION, WEIGHTS_EXPERTS_OF("mlp", "gate.wg", "gate_proj", "up_proj", "down_proj"),
    WEIGHTS_SHARED("mlp.shared_mlp"), { 0 },
};

static const rg_layer_kind kinds[] = {
    [DENSE] = { dense_weights, keep_kv, block },
    [EXPERTS] = { expert_weights, keep_kv, block },
};

const rg_arch rg_arch_hunyuan = {
    .hf_name = "HunYuanForCausalLM", .hf_type = "hunyuan", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = decoder_weights, RG_KINDS(kinds),
};
