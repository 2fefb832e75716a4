/* retnet.c -- RetNet (Sun et al. 2023) as flash-linear-attention has it: linear attention with a fixed decay for each
 * head and rotated positions. */
#include <math.h>

#include "model/arch/fla.h"

enum { W_DECAY = W_FLA_END };

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q, k [rows, heads * k_dim], v [rows, heads * v_dim] */

    rg_rotate(f, p.q, l->rope, RG_OWN(l->c, fla_settings)->k_dim, 0);
    rg_rotate(f, p.k, l->rope, RG_OWN(l->c, fla_settings)->k_dim, 0);
    rg_act *y = fla_attention(f, l, &p, NULL, l->w[W_DECAY]); /* S = decay S + k v^T, y = q S */
    fla_norm_and_gate(f, l, y, h);                            /* y = norm(y) * silu(g_proj h) */
    rg_linear_add(f, x, y, l->w[W_O_PROJ], NULL);             /* x += o_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], NULL); /* x += down_proj mlp */
}

static const rg_key keys[] = { KEYS_FLA(8, 1, 2, 2) };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    if (!finish_fla(c, ckpt, err))
        return false;
    c->n_ropes = 1;
    c->ropes[0].dim = RG_OWN(c, fla_settings)->k_dim;
    return rg_rope_read(&c->ropes[0], ckpt, NULL, 1e4, err);
}

/* 1 - 2^(-5 - h) for head h. */
static bool derive_decay(const rg_config *c, int layer, const rg_weight *const w[], float *dst, rg_error *err)
{
    (void)layer;
    (void)w;
    (void)err;
    for (int h = 0; h < c->n_heads; h++)
        dst[h] = (float)(1 - exp2(-5.0 - h));
    return true;
}

static const rg_weight_spec weights[] = { WEIGHTS_FLA_OUTER, { 0 } };

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_FLA, { W_DECAY, "decay", NULL, { N_HEADS }, SPLIT_ROWS, .derive = derive_decay }, { 0 },
};

static void keep(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    keep_fla(c, out, false);
}

const rg_arch rg_arch_retnet = {
    .hf_name = "RetNetForCausalLM", .hf_type = "retnet", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(fla_settings), .finish = finish, .harmless = fla_harmless, .weights = weights,
    RG_KIND(layer_weights, keep, block),
};
