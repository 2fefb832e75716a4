/* fla.c -- see fla.h. */
#include "model/arch/fla.h"

#include <math.h>

#define own(c) RG_OWN(c, fla_settings)

SIZE(FLA_Q, (int64_t)c->n_heads * own(c)->k_dim)
SIZE(FLA_K, (int64_t)c->n_kv_heads * own(c)->k_dim)
SIZE(FLA_V, (int64_t)c->n_kv_heads * own(c)->v_dim)
SIZE(FLA_O, (int64_t)c->n_heads * own(c)->v_dim)
SIZE(FLA_HEAD_V, own(c)->v_dim)

const char *const fla_harmless[] = {
    "attn_mode", "fuse_cross_entropy", "fuse_linear_cross_entropy", "fuse_swiglu", "use_l2warp", "conv_size",
    "norm_first", NULL,
};

WHEN(when_fla_gate, own(c)->gated)
WHEN(when_fla_fused, own(c)->affine && own(c)->gated && own(c)->fused)
WHEN(when_fla_not_fused, own(c)->affine && !when_fla_fused(c, layer))

/* Columns of a head: a part of the width, in equal heads. */
static bool head_columns(const rg_config *c, const char *key, double expand, int *out, rg_error *err)
{
    double all = c->dim * expand;

    if (!(all >= 1 && all <= INT32_MAX / 4) || floor(all) != all || (int64_t)all % c->n_heads)
        return rg_fail(err, RG_E_INPUT, "%s %g of %d columns is not %d equal heads", key, expand, c->dim, c->n_heads);
    *out = (int)((int64_t)all / c->n_heads);
    return true;
}

bool finish_fla(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const acts[] = { "swish", "silu", NULL };
    static const char *const none[] = { NULL };
    fla_settings *s = RG_OWN_EDIT(c, fla_settings);

    if (c->n_heads < 1)
        return rg_fail(err, RG_E_INPUT, "%s: num_heads is %d", rg_checkpoint_path(ckpt), c->n_heads);
    c->n_kv_heads = c->n_kv_heads ? c->n_kv_heads : c->n_heads;
    if (c->n_heads % c->n_kv_heads)
        return rg_fail(err, RG_E_INPUT, "%s: %d heads cannot share %d heads of k and v evenly",
                       rg_checkpoint_path(ckpt), c->n_heads, c->n_kv_heads);
    if (rg_meta_type_of(ckpt, "attn") == RG_META_OBJECT)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: attn names layers of another kind, which is not supported",
                       rg_checkpoint_path(ckpt));
    rg_meta_understand(ckpt, "attn");
    if (!require_false(ckpt, "use_short_conv", err) || !require_choice(ckpt, "feature_map", none, err) ||
        !require_choice(ckpt, "hidden_act", acts, err) ||
        !head_columns(c, "expand_k", s->expand_k, &s->k_dim, err) ||
        !head_columns(c, "expand_v", s->expand_v, &s->v_dim, err))
        return false;
    if (!c->ffn_dim && s->hidden_ratio > 0 && s->hidden_ratio * c->dim < INT32_MAX / 4)
        c->ffn_dim = (int)(ceil(floor(s->hidden_ratio * c->dim * 2 / 3) / 256) * 256);
    return c->ffn_dim > 0 || rg_fail(err, RG_E_INPUT, "%s: hidden_ratio is %g", rg_checkpoint_path(ckpt),
                                     s->hidden_ratio);
}

void keep_fla(const rg_config *c, rg_keep *out, bool decay_per_element)
{
    const int k = (int)FLA_K(c, 0), logged = k + (int)FLA_V(c, 0) + (decay_per_element ? k : 0);

    *out = (rg_keep){ .n_buffers = 1,
                      .buffer = { rg_linear_attention_state("linear_state", c->n_heads, own(c)->k_dim, own(c)->v_dim,
                                                            logged) },
                      .shared_with = -1 };
}

rg_act *fla_attention(rg_fwd *f, const rg_layer *l, const qkv *p, const rg_act *decay, const rg_weight *fixed)
{
    const fla_settings *o = own(l->c);
    rg_act *y = rg_act_new(f, "linear_attn", (int)FLA_O(l->c, 0));

    rg_linear_attention(f, y,
                        &(rg_linear_attention_params){ .n_heads = l->c->n_heads,
                                                       .k_dim = o->k_dim,
                                                       .v_dim = o->v_dim,
                                                       .scale = 1.0f / sqrtf((float)o->k_dim),
                                                       .q = p->q,
                                                       .k = p->k,
                                                       .v = p->v,
                                                       .decay = decay,
                                                       .fixed_decay = fixed },
                        &l->buffer[0]);
    return y;
}

void fla_norm_and_gate(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *h)
{
    if (l->w[W_FLA_NORM])
        rg_rmsnorm(f, y, y, l->w[W_FLA_NORM], l->c->norm_eps);
    else
        rg_rmsnorm_plain(f, y, y, own(l->c)->v_dim, l->c->norm_eps);
    if (l->w[W_FLA_GATE])
        rg_act_mul(f, y, linear(f, "gate", h, l->w[W_FLA_GATE], NULL), y, RG_SILU);
}
