/* eagle.c -- EAGLE (Li et al. 2024): one decoder layer, without a norm in front of its attention, on fc [embedding;
 * feature].  A feature is what enters the model's head; what the layer makes is a guess of the next one. */
#include "model/arch/draft.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const qkv p = project(f, l, x); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    rg_act *h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* silu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = {
    KEYS_GQA(2048, RG_REQUIRED, 0, 0), KEY_FFN(RG_REQUIRED), KEY_RMS_EPS(1e-6), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
};

static bool claims(const rg_checkpoint *ckpt)
{
    return has_weight(ckpt, "fc") && has_weight(ckpt, "layers.0.self_attn.q_proj") &&
           !has_weight(ckpt, "layers.0.hidden_norm");
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = false;
    c->places = (rg_feature_places){ 1, { RG_HEAD_INPUT } };
    if (has_weight(ckpt, "layers.1.self_attn.q_proj"))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: EAGLE networks of more than one layer are not supported",
                       rg_checkpoint_path(ckpt));
    if (has_weight(ckpt, "layers.0.input_layernorm"))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: layers.0.input_layernorm: EAGLE's layer has no such norm",
                       rg_checkpoint_path(ckpt));
    return require_target(c, ckpt, !has_weight(ckpt, "embed_tokens"), !has_weight(ckpt, "lm_head"), err) &&
           finish_heads(c, err) && finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "embed_tokens", NULL, { VOCAB, DIM }, .optional = true },
    { W_FC, "fc", NULL, { DIM, DIM_2 } },
    { W_FC_BIAS, "fc.bias", NULL, { DIM }, .optional = true },
    { W_LM_HEAD, "lm_head", NULL, { VOCAB, DIM }, .optional = true },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_GQA(GGUF_HALVES),
    { W_FFN_NORM, "post_attention_layernorm", NULL, { DIM } },
    WEIGHTS_MLP, WEIGHTS_MLP_BIASES, { 0 },
};

static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const int dim = l->c->dim;
    rg_act *both = rg_act_new(f, "both", 2 * dim);
    rg_act *e = rg_act_view(f, "embedding", both, 0, dim), *h = rg_act_view(f, "feature", both, dim, dim);

    rg_embed(f, e, l->w[W_EMBED_TOKENS], (float)l->c->embed_scale);
    rg_read_features(f, h);
    rg_linear(f, x, both, l->w[W_FC], l->w[W_FC_BIAS]);
}

const rg_arch rg_network_eagle = {
    .hf_name = "EAGLE", .claims = claims, .hf_prefix = "layers.", RG_KEYS(keys), .finish = finish, .weights = weights,
    RG_KIND(layer_weights, keep_kv, block), .embed = embed, .norm = norm_none, .head = part_head,
};
