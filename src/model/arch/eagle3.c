/* eagle3.c -- EAGLE-3 (Li et al. 2025): one decoder layer whose attention reads [embedding; feature], both normed, and
 * whose residual is the feature.  A feature is fc of what enters three layers of the model; for rows of a draft it is
 * what the layer made of the row before.  It may have a vocabulary of its own, a part of the model's.
 *
 * The authors' names of tensors, and those of `speculators`, which adds two settings: norm_before_residual (the
 * residual is the normed feature) and norm_before_fc. */
#include <stdio.h>
#include <string.h>

#include "model/arch/draft.h"

typedef struct settings {
    bool norm_before_residual, norm_before_fc;
} settings;

enum { W_INPUT_NORM = W_OWN };

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim]: the feature */
{
    const int dim = l->c->dim;
    rg_act *both = rg_act_new(f, "both", 2 * dim); /* [norm(embedding); norm(x)] */
    rg_act *e = rg_act_view(f, "embed_norm", both, 0, dim), *g = rg_act_view(f, "feature_norm", both, dim, dim);
    norm_into(f, l, e, rg_act_find(f, "embedding"), W_TOKEN_NORM);
    norm_into(f, l, g, x, W_FEATURE_NORM);
    if (RG_OWN(l->c, settings)->norm_before_residual)
        rg_activate(f, x, g, RG_IDENTITY);

    const qkv p = project(f, l, both); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    rg_act *h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj mlp */
}

static const rg_key keys[] = {
    KEYS_GQA(2048, RG_REQUIRED, 0, 0), KEY_FFN(RG_REQUIRED), KEY_RMS_EPS(1e-6), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
    { RG_OWN_AT(settings, norm_before_residual), KEY_BOOL, "norm_before_residual", NULL, 0 },
    { RG_OWN_AT(settings, norm_before_fc), KEY_BOOL, "norm_before_fc", NULL, 0 },
};

static bool claims(const rg_checkpoint *ckpt)
{
    return has_weight(ckpt, "fc") &&
           (has_weight(ckpt, "midlayer.hidden_norm") || has_weight(ckpt, "layers.0.hidden_norm"));
}

/* The layers whose input it reads: as the config says, else the third, the middle one and the third from the last. */
static bool find_places(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const lists[] = { "eagle_aux_hidden_state_layer_ids",
                                         "eagle_config.eagle_aux_hidden_state_layer_ids" };
    const int n = c->target->n_layers, usual[] = { 2, n / 2, n - 3 };
    const int32_t *ids = NULL;
    size_t n_ids = 0;

    for (size_t i = 0; i < RG_LEN(lists) && !ids; i++)
        if (rg_meta_type_of(ckpt, lists[i]) == RG_META_ARRAY && rg_meta_ints(ckpt, lists[i], &ids, &n_ids, err) < 0)
            return false;
    if (n_ids > RG_MAX_PLACES || (!ids && n < 3))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: features of %d layers of a model that has %d are not supported",
                       rg_checkpoint_path(ckpt), ids ? (int)n_ids : 3, n);
    c->places.n = ids ? (int)n_ids : 3;
    for (int i = 0; i < c->places.n; i++) {
        int layer = ids ? ids[i] : usual[i], k = i;

        if (layer < 0 || layer >= n)
            return rg_fail(err, RG_E_INPUT, "%s: it reads the input of layer %d of a model of %d layers",
                           rg_checkpoint_path(ckpt), layer, n);
        for (; k > 0 && !ids && c->places.layer[k - 1] > layer; k--) /* rising, whatever the depth */
            c->places.layer[k] = c->places.layer[k - 1];
        c->places.layer[k] = layer;
    }
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const no[] = { "fc_norm", "norm_output", NULL };
    bool own_head = has_weight(ckpt, "lm_head");
    int64_t vocab = c->vocab_size;

    c->o_bias = c->attn_bias;
    for (int i = 0; no[i]; i++)
        if (!require_false(ckpt, no[i], err))
            return false;
    if (has_weight(ckpt, "layers.1.self_attn.q_proj"))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: EAGLE-3 networks of more than one layer are not supported",
                       rg_checkpoint_path(ckpt));
    if (!require_target(c, ckpt, !has_weight(ckpt, "embed_tokens"), !own_head, err) ||
        rg_config_int(ckpt, "draft_vocab_size", 1, INT32_MAX, &vocab, err) < 0)
        return false;
    if (vocab > c->vocab_size || (vocab < c->vocab_size && (!own_head || !rg_checkpoint_find(ckpt, "d2t"))))
        return rg_fail(err, RG_E_INPUT, "%s: draft_vocab_size is %lld where the model has %d ids%s",
                       rg_checkpoint_path(ckpt), (long long)vocab, c->vocab_size,
                       vocab > c->vocab_size ? "" : ", and the tensors lm_head and d2t are not both there");
    c->vocab_size = (int)vocab;
    return find_places(c, ckpt, err) && finish_heads(c, err) && finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) &&
           require_silu(ckpt, err);
}

static WHEN(when_norm_before_fc, RG_OWN(c, settings)->norm_before_fc)
static SIZE(PLACES_DIM, (int64_t)c->places.n * c->dim)
static SIZE(TARGET_VOCAB, c->target->vocab_size)

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "embed_tokens", NULL, { TARGET_VOCAB, DIM }, .optional = true },
    { W_INPUT_NORM, "input_norm", NULL, { PLACES_DIM }, .when = when_norm_before_fc },
    { W_FC, "fc", NULL, { DIM, PLACES_DIM } },
    { W_FINAL_NORM, "norm", NULL, { DIM } },
    { W_LM_HEAD, "lm_head", NULL, { VOCAB, DIM }, .optional = true },
    { 0 },
};

#define EITHER(name) "/midlayer." name, NULL
#define OR(name)     .hf_else = "/layers.0." name
static const rg_weight_spec layer_weights[] = {
    { W_TOKEN_NORM, EITHER("input_layernorm"), { DIM }, OR("input_layernorm") },
    { W_FEATURE_NORM, EITHER("hidden_norm"), { DIM }, OR("hidden_norm") },
    { W_Q_PROJ, EITHER("self_attn.q_proj"), { Q_DIM, DIM_2 }, OR("self_attn.q_proj") },
    { W_K_PROJ, EITHER("self_attn.k_proj"), { KV_DIM, DIM_2 }, OR("self_attn.k_proj") },
    { W_V_PROJ, EITHER("self_attn.v_proj"), { KV_DIM, DIM_2 }, OR("self_attn.v_proj") },
    { W_Q_BIAS, EITHER("self_attn.q_proj.bias"), { Q_DIM }, OR("self_attn.q_proj.bias"), .when = when_attn_bias },
    { W_K_BIAS, EITHER("self_attn.k_proj.bias"), { KV_DIM }, OR("self_attn.k_proj.bias"), .when = when_attn_bias },
    { W_V_BIAS, EITHER("self_attn.v_proj.bias"), { KV_DIM }, OR("self_attn.v_proj.bias"), .when = when_attn_bias },
    { W_O_PROJ, EITHER("self_attn.o_proj"), { DIM, Q_DIM }, OR("self_attn.o_proj") },
    { W_O_BIAS, EITHER("self_attn.o_proj.bias"), { DIM }, OR("self_attn.o_proj.bias"), .when = when_o_bias },
    { W_FFN_NORM, EITHER("post_attention_layernorm"), { DIM }, OR("post_attention_layernorm") },
    { W_GATE_PROJ, EITHER("mlp.gate_proj"), { FFN_DIM, DIM }, OR("mlp.gate_proj") },
    { W_UP_PROJ, EITHER("mlp.up_proj"), { FFN_DIM, DIM }, OR("mlp.up_proj") },
    { W_DOWN_PROJ, EITHER("mlp.down_proj"), { DIM, FFN_DIM }, OR("mlp.down_proj") },
    { W_GATE_BIAS, EITHER("mlp.gate_proj.bias"), { FFN_DIM }, OR("mlp.gate_proj.bias"), .when = when_mlp_bias },
    { W_UP_BIAS, EITHER("mlp.up_proj.bias"), { FFN_DIM }, OR("mlp.up_proj.bias"), .when = when_mlp_bias },
    { W_DOWN_BIAS, EITHER("mlp.down_proj.bias"), { DIM }, OR("mlp.down_proj.bias"), .when = when_mlp_bias },
    { 0 },
};

/* x = the feature.  A step's features are either all of the model's layers or all of this one. */
static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const rg_config *c = l->c;
    rg_act *e = rg_act_new(f, "embedding", c->dim), *all;

    rg_embed(f, e, l->w[W_EMBED_TOKENS], (float)c->embed_scale);
    if (f->batch->features && f->batch->feature_cols == c->dim) {
        rg_read_features(f, x);
        return;
    }
    all = rg_act_new(f, "features", c->places.n * c->dim);
    rg_read_features(f, all);
    if (l->w[W_INPUT_NORM])
        rg_rmsnorm(f, all, all, l->w[W_INPUT_NORM], c->norm_eps);
    rg_linear(f, x, all, l->w[W_FC], NULL);
}

const rg_arch rg_network_eagle3 = {
    .hf_name = "EAGLE-3", .claims = claims, .hf_prefix = "", RG_KEYS(keys), .own_bytes = sizeof(settings),
    .finish = finish, .weights = weights, RG_KIND(layer_weights, keep_kv, block), .target_ids = "d2t", .embed = embed,
    .norm = norm_none, .head = part_normed_head,
};
