/* gla.c -- GLA, gated linear attention (Yang et al. 2023), as flash-linear-attention has it: a decay for each element
 * of a key, sigmoid(gk)^(1/16), where gk comes through matrices of rank 16. */
#include "model/arch/fla.h"

enum { RANK_OF_DECAY = 16 };
static const float root = 16.0f;

enum { W_DECAY_A = W_FLA_END, W_DECAY_B, W_DECAY_BIAS };

static rg_act *decay(rg_fwd *f, const rg_layer *l, const rg_act *h); /* sigmoid(gk)^(1/16) */

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q, k [rows, heads * k_dim], v [rows, heads * v_dim] */

    rg_act *g = decay(f, l, h);                   /* of each element of a key: [rows, heads * k_dim] */
    rg_act *y = fla_attention(f, l, &p, g, NULL); /* S = diag(g) S + k v^T, y = q S */
    fla_norm_and_gate(f, l, y, h);                /* y = norm(y) * silu(g_proj h) */
    rg_linear_add(f, x, y, l->w[W_O_PROJ], NULL); /* x += o_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], NULL); /* x += down_proj mlp */
}

static rg_act *decay(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    rg_act *low = rg_act_new(f, "decay_low", RANK_OF_DECAY), *y = rg_act_new(f, "decay", (int)FLA_K(l->c, 0));

    rg_linear(f, low, h, l->w[W_DECAY_A], NULL);
    rg_linear(f, y, low, l->w[W_DECAY_B], l->w[W_DECAY_BIAS]);
    rg_decay(f, y, NULL, y, &(rg_decay_params){ .act = RG_SOFTPLUS, .fixed_rate = -1.0f / root });
    return y;
}

static SIZE(DECAY_RANK, RANK_OF_DECAY)

static const rg_key keys[] = { KEYS_FLA(4, 0.5, 1, 4) };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    if (rg_meta_type_of(ckpt, "clamp_min") != RG_META_NONE && rg_meta_type_of(ckpt, "clamp_min") != RG_META_NULL)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: clamp_min is set, which is not supported", rg_checkpoint_path(ckpt));
    rg_meta_understand(ckpt, "clamp_min");
    return finish_fla(c, ckpt, err) && require_false(ckpt, "use_gv", err);
}

/* gk is made with the other sign: log(sigmoid(gk)) = -softplus(-gk). */
static const rg_weight_spec weights[] = { WEIGHTS_FLA_OUTER, { 0 } };

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_FLA,
    { W_DECAY_A, "attn.gk_proj.0", NULL, { DECAY_RANK, DIM } },
    { W_DECAY_B, "attn.gk_proj.1", NULL, { FLA_K, DECAY_RANK }, SPLIT_ROWS, .load = load_negated },
    { W_DECAY_BIAS, "attn.gk_proj.1.bias", NULL, { FLA_K }, SPLIT_ROWS, .load = load_negated },
    { 0 },
};

static void keep(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    keep_fla(c, out, true);
}

const rg_arch rg_arch_gla = {
    .hf_name = "GLAForCausalLM", .hf_type = "gla", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(fla_settings), .finish = finish, .harmless = fla_harmless, .weights = weights,
    RG_KIND(layer_weights, keep, block),
};
