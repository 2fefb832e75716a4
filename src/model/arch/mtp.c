/* mtp.c -- see mtp.h. */
#include "model/arch/mtp.h"

#include <stdio.h>

static bool missing(const rg_checkpoint *ckpt, const char *name, rg_error *err)
{
    return rg_fail(err, RG_E_INPUT, "%s: it brings no module that predicts further tokens: there is no tensor '%s'",
                   rg_checkpoint_path(ckpt), name);
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
