/* draft.c -- see draft.h. */
#include "model/arch/draft.h"

#include <stdio.h>

const rg_published_name rg_eagle_name = { "LlamaForCausalLM", "llama" };
const rg_published_name rg_eagle3_name = { "LlamaForCausalLMEagle3", "llama" };

bool has_weight(const rg_checkpoint *ckpt, const char *name)
{
    char full[160];

    snprintf(full, sizeof full, "%s.weight", name);
    return rg_checkpoint_find(ckpt, full);
}

bool require_target(const rg_config *c, const rg_checkpoint *ckpt, bool borrows_embedding, bool borrows_head,
                    rg_error *err)
{
    const rg_config *t = c->target;
    int64_t width = t->dim, vocab = t->vocab_size;

    if (rg_config_int(ckpt, "hidden_size", 1, INT32_MAX, &width, err) < 0 ||
        rg_config_int(ckpt, "vocab_size", 1, INT32_MAX, &vocab, err) < 0)
        return false;
    if (width != t->dim)
        return rg_fail(err, RG_E_INPUT, "%s: a network of width %lld cannot draft for a model of width %d",
                       rg_checkpoint_path(ckpt), (long long)width, t->dim);
    if (vocab != t->vocab_size)
        return rg_fail(err, RG_E_INPUT, "%s: a vocabulary of %lld ids cannot draft for one of %d",
                       rg_checkpoint_path(ckpt), (long long)vocab, t->vocab_size);
    if ((borrows_embedding && t->arch->embed) || (borrows_head && t->arch->head))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: it has no %s of its own, and that of architecture %s is none that "
                       "another network can use", rg_checkpoint_path(ckpt), borrows_head && t->arch->head
                       ? "head" : "embedding", rg_config_name(t));
    return true;
}

void norm_none(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x)
{
    (void)l;
    if (y != x)
        rg_activate(f, y, x, RG_IDENTITY);
}

void part_head(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h)
{
    rg_linear(f, logits, h, l->w[W_LM_HEAD], l->w[W_LM_HEAD_BIAS]);
    if (l->c->logit_scale != 1.0f)
        rg_scale_by(f, logits, l->c->logit_scale);
    if (l->c->logit_softcap > 0)
        rg_softcap(f, logits, l->c->logit_softcap);
}

void part_normed_head(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h)
{
    rg_act *normed = rg_act_rows(f, "head_normed", h->rows, h->cols);

    rg_rmsnorm(f, normed, h, l->w[W_FINAL_NORM], l->c->norm_eps);
    part_head(f, l, logits, normed);
}
