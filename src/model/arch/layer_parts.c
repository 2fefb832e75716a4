/* layer_parts.c -- see layer_parts.h. */
#include "model/arch/layer_parts.h"

#include "model/arch/experts.h"

void norm_into(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x, int weight)
{
    if (!l->c->layer_norm)
        rg_rmsnorm(f, y, x, l->w[weight], l->c->norm_eps);
    else if (l->w[weight])
        rg_layernorm(f, y, x, l->w[weight], l->w[weight + 1], l->c->norm_eps);
    else
        rg_layernorm_plain(f, y, x, x->cols, l->c->norm_eps);
}

rg_act *normed(rg_fwd *f, const rg_layer *l, const rg_act *x, int weight)
{
    rg_act *h = rg_act_new(f, weight == W_FFN_NORM ? "ffn_norm" : "attn_norm", x->cols);

    norm_into(f, l, h, x, weight);
    return h;
}

rg_act *linear(rg_fwd *f, const char *name, const rg_act *a, const rg_weight *w, const rg_weight *b)
{
    rg_act *y = rg_act_new(f, name, (int)w->rows);

    rg_linear(f, y, a, w, b);
    return y;
}

void add_scaled(rg_fwd *f, rg_act *x, const rg_act *a, const rg_weight *w, const rg_weight *b, float s)
{
    if (s == 1.0f) {
        rg_linear_add(f, x, a, w, b);
        return;
    }
    rg_act *y = linear(f, "added", a, w, b);

    rg_scale_by(f, y, s);
    rg_add_to(f, x, y);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

qkv project(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    static const char *const names[] = { "q", "k", "v" };
    const rg_weight *w[3] = { l->w[W_Q_PROJ], l->w[W_K_PROJ], l->w[W_V_PROJ] };
    rg_act *y[3] = { NULL };

    for (int i = 0; i < 3; i++)
        y[i] = w[i] ? rg_act_new(f, names[i], (int)w[i]->rows) : NULL;
    rg_linear3(f, y, h, w, (const rg_weight *const[]){ l->w[W_Q_BIAS], l->w[W_K_BIAS], l->w[W_V_BIAS] });
    return (qkv){ y[0], y[1], y[2] };
}

void norm_heads(rg_fwd *f, const rg_layer *l, const qkv *p)
{
    if (p->k)
        rg_rmsnorm(f, p->k, p->k, l->w[W_K_NORM], l->c->norm_eps);
    rg_rmsnorm(f, p->q, p->q, l->w[W_Q_NORM], l->c->norm_eps);
}

void rotate(rg_fwd *f, const rg_layer *l, const qkv *p)
{
    if (p->k && l->rope)
        rg_rotate(f, p->k, l->rope, l->kv->k_dim, 0);
    if (l->rope)
        rg_rotate(f, p->q, l->rope, l->kv->k_dim, 0);
}

rg_attend_params attend_params(const rg_layer *l)
{
    return (rg_attend_params){ .n_heads = l->c->n_heads,
                               .scale = (float)l->c->attn_scale,
                               .cap = l->c->attn_softcap,
                               .sight = l->sight,
                               .sinks = l->w[W_SINKS] };
}

rg_act *attention_by(rg_fwd *f, const rg_layer *l, const qkv *p, const rg_attend_params *params)
{
    rg_act *a = rg_act_new(f, "attn", params->n_heads * l->kv->v_dim);

    if (p->k)
        rg_kv_store(f, l->kv, p->k, p->v);
    rg_attention(f, a, p->q, l->kv, params);
    return a;
}

rg_act *attention(rg_fwd *f, const rg_layer *l, const qkv *p)
{
    const rg_attend_params params = attend_params(l);

    return attention_by(f, l, p, &params);
}

void keep_kv(const rg_config *c, int layer, rg_keep *out)
{
    *out = (rg_keep){ .sight = rg_config_sight(c, layer), .shared_with = c->layer[layer].kv_layer };
    if (out->shared_with < 0)
        out->kv = (rg_kv){ .n_heads = c->n_kv_heads, .k_dim = c->head_dim, .v_dim = c->head_dim };
}

void keep_nothing(const rg_config *c, int layer, rg_keep *out)
{
    (void)c, (void)layer;
    *out = (rg_keep){ .shared_with = -1 };
}

/* ---- the second half --------------------------------------------------------------------------------------------- */

rg_act *mlp_of(rg_fwd *f, const char *name, const rg_act *h, const rg_weight *const w[2], const rg_weight *const b[2],
               rg_activation act)
{
    rg_act *g = rg_act_new(f, name, (int)w[1]->rows);

    if (w[0]) {
        rg_gated(f, g, h, w[0], w[1], b[0], b[1], act);
        return g;
    }
    rg_linear(f, g, h, w[1], b[1]);
    rg_activate(f, g, g, act);
    return g;
}

rg_act *mlp(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    return mlp_of(f, "ffn", h, (const rg_weight *const[]){ l->w[W_GATE_PROJ], l->w[W_UP_PROJ] },
                  (const rg_weight *const[]){ l->w[W_GATE_BIAS], l->w[W_UP_BIAS] }, l->c->act);
}

void mlp_or_experts(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *h)
{
    if (l->w[W_ROUTER])
        experts(f, l, x, h);
    else
        rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
}
