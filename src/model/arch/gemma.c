/* gemma.c -- see gemma.h. */
#include "model/arch/gemma.h"

#include <math.h>
#include <string.h>

/* attn_scale = 1 / sqrt(query_pre_attn_scalar).  GGUF has no key for that scalar: in published files it is head_dim,
 * except in those of 27 billion parameters, where it is dim / n_heads; ours have the key "attention.scale". */
static bool finish_scale(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const char *size = NULL;
    double scalar = 256;

    if (c->from_gguf) {
        if (rg_meta_string(ckpt, "general.size_label", &size, err) < 0)
            return false;
        if (c->attn_scale == 0 && size && !strcmp(size, "27B") && c->n_heads)
            c->attn_scale = 1.0 / __builtin_sqrt((double)c->dim / c->n_heads);
        return true; /* finish_heads sets the rest */
    }
    if (rg_config_float(ckpt, "query_pre_attn_scalar", &scalar, err) < 0)
        return false;
    if (!(scalar > 0))
        return rg_fail(err, RG_E_INPUT, "%s: query_pre_attn_scalar %g is not positive", rg_checkpoint_path(ckpt),
                       scalar);
    c->attn_scale = 1.0 / __builtin_sqrt(scalar);
    return true;
}

bool finish_gemma(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const gelu[] = { "gelu_pytorch_tanh", NULL };

    c->act = RG_GELU_TANH;
    c->embed_scale = __builtin_sqrt((double)c->dim);
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_scale(c, ckpt, err) && finish_heads(c, err) &&
           require_choice(ckpt, "hidden_activation", gelu, err) && require_choice(ckpt, "hidden_act", gelu, err) &&
           (!c->from_gguf || require_value_length(c, ckpt, err));
}

const char *const gemma_ignored[] = {
    ".self_attn.k_proj.weight", ".self_attn.v_proj.weight", ".self_attn.k_norm.weight", ".self_attn.v_norm.weight",
    NULL,
};

bool finish_shared_kv(rg_config *c, int n, rg_error *err)
{
    int first = c->n_layers - n;

    if (n < 0 || first < 1)
        return rg_fail(err, RG_E_INPUT, "num_kv_shared_layers %d of %d layers: the first must have K/V of its own", n,
                       c->n_layers);
    for (int i = first; i < c->n_layers; i++) {
        int from = first - 1;

        while (from >= 0 && c->layer[from].window != c->layer[i].window)
            from--;
        if (from < 0)
            return rg_fail(err, RG_E_INPUT, "layer %d shares K/V, but no layer before layer %d is of its type", i,
                           first);
        c->layer[i].kv_layer = from;
    }
    return true;
}

void norm_values(rg_fwd *f, const rg_layer *l, qkv *p)
{
    const rg_act *from = p->v ? p->v : p->k;

    if (!p->k)
        return;
    if (!p->v)
        p->v = rg_act_new(f, "v", p->k->cols);
    rg_rmsnorm_plain(f, p->v, from, l->kv->v_dim, l->c->norm_eps);
}

static const char per_layer_name[] = "per_layer";

void embed_per_layer(rg_fwd *f, const rg_layer *l, const rg_act *x, const gemma_per_layer *p)
{
    const rg_config *c = l->c;
    rg_act *all = rg_act_new(f, per_layer_name, c->n_layers * p->dim);
    int mark = rg_act_mark(f);
    rg_act *rows = rg_act_new(f, "per_layer_embed", c->n_layers * p->dim);

    /* The projection is divided by sqrt(dim) before its norm, which is to say that eps is multiplied by dim. */
    rg_linear(f, all, x, l->w[W_PER_LAYER_PROJ], NULL);
    rg_rmsnorm(f, all, all, l->w[W_PER_LAYER_NORM], c->norm_eps * (float)c->dim);
    rg_embed_beside(f, rows, l->w[W_EMBED_PER_LAYER], sqrtf((float)p->dim));
    rg_add_to(f, all, rows);
    rg_scale_by(f, all, sqrtf(0.5f));
    rg_act_release(f, mark);
}

rg_act *per_layer_part(rg_fwd *f, const rg_layer *l, const rg_act *x, const gemma_per_layer *p)
{
    rg_act *mine = rg_act_view(f, "per_layer_input", rg_act_find(f, per_layer_name), l->index * p->dim, p->dim);
    rg_act *g = rg_act_new(f, "per_layer_gate", p->dim), *y = rg_act_new(f, "per_layer_out", l->c->dim);

    rg_linear(f, g, x, l->w[W_LAYER_GATE], NULL);
    rg_act_mul(f, g, g, mine, l->c->act);
    rg_linear(f, y, g, l->w[W_LAYER_PROJ], NULL);
    rg_rmsnorm(f, y, y, l->w[W_LAYER_NORM], l->c->norm_eps);
    return y;
}
