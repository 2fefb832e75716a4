/* mtp.c -- see mtp.h. */
#include "model/arch/mtp.h"

#include <stdio.h>

/* False and *err, but for a checkpoint without tensors, whose module is yet to be made. */
static bool missing(const rg_checkpoint *ckpt, const char *name, rg_error *err)
{
    return rg_checkpoint_n_tensors(ckpt) == 0 || /* a new one */
           rg_fail(err, RG_E_INPUT, "%s: it brings no module that predicts further tokens: there is no tensor '%s'; "
                   "`ridge train --mtp` makes one", rg_checkpoint_path(ckpt), name);
}

bool finish_nextn_module(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char name[64];

    snprintf(name, sizeof name, c->from_gguf ? "blk.%d.nextn.eh_proj.weight" : "model.layers.%d.eh_proj.weight",
             c->first_layer);
    return rg_checkpoint_find(ckpt, name) || missing(ckpt, name, err);
}

bool finish_qwen_mtp(rg_config *c, const rg_checkpoint *ckpt, int kind, rg_error *err)
{
    c->first_layer = 0;
    c->layer[0].kind = kind;
    c->layer[0].rope = 0;
    if (c->from_gguf)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: GGUF of this architecture has no form of the module that predicts "
                       "further tokens", rg_checkpoint_path(ckpt));
    return has_weight(ckpt, "mtp.fc") || missing(ckpt, "mtp.fc.weight", err);
}

/* ---- of any architecture ----------------------------------------------------------------------------------------- */

/* True if rows of a draft can be computed beside each other: the layer keeps K/V alone. */
static bool keeps_kv_alone(const rg_config *target, int layer)
{
    rg_keep keep = { 0 };

    rg_layer_kind_of(target, layer)->keep(target, layer, &keep);
    return keep.n_buffers == 0 && keep.kv.n_heads > 0;
}

static bool finish_module(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const rg_config *t = c->target;
    int like = t->n_layers - 1;

    while (like >= 0 && !keeps_kv_alone(t, like))
        like--;
    if (like < 0 || t->arch->is_encoder || t->sees != RG_CAUSAL || t->arch->width || t->arch->embed || t->arch->head)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: a model of architecture %s has no module that predicts further "
                       "tokens: %s", rg_checkpoint_path(ckpt), rg_config_name(t),
                       like < 0 ? "none of its layers keeps K and V, and nothing else"
                                : "its embedding, its head or its layers are none that another network can use");
    c->layer[0] = t->layer[like];
    return finish_nextn_module(c, ckpt, err);
}

static const rg_weight_spec module_weights[] = { WEIGHTS_NEXTN, { 0 } };

const rg_arch rg_arch_module = {
    .hf_name = "MTPModel", MTP_NEXTN, .finish = finish_module, .weights = module_weights,
};

/* ---- all of them ------------------------------------------------------------------------------------------------- */

void embed_mtp(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const rg_config *c = l->c;
    rg_act *both = rg_act_new(f, "both", 2 * c->dim);
    rg_act *e = rg_act_view(f, "embedding", both, 0, c->dim), *h = rg_act_view(f, "feature", both, c->dim, c->dim);

    rg_embed(f, e, l->w[W_EMBED_TOKENS], (float)c->embed_scale);
    rg_rmsnorm(f, e, e, l->w[W_TOKEN_NORM], c->norm_eps);
    rg_read_features(f, h);
    rg_rmsnorm(f, h, h, l->w[W_FEATURE_NORM], c->norm_eps);
    rg_linear(f, x, both, l->w[W_FC], NULL);
}
