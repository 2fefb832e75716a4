/* draft.h -- what networks that draft share: refusals, and parts of their text.
 *
 * Such a network is a model of which each row reads features of its target beside a token.  What its checkpoint lacks,
 * the embedding or the head, is its target's. */
#ifndef RG_MODEL_ARCH_DRAFT_H
#define RG_MODEL_ARCH_DRAFT_H

#include "model/arch/parts.h"

/* The sizes of a network that continues its target's hidden states must be the target's, and what it borrows must be a
 * plain table and a plain matrix. */
bool require_target(const rg_config *c, const rg_checkpoint *ckpt, bool borrows_embedding, bool borrows_head,
                    rg_error *err);
/* True if the checkpoint has the weight of this name. */
bool has_weight(const rg_checkpoint *ckpt, const char *name);

/* What the authors' config.json says of a network of EAGLE, and of EAGLE-3. */
typedef struct rg_published_name {
    const char *architecture, *model_type;
} rg_published_name;
extern const rg_published_name rg_eagle_name, rg_eagle3_name;

/* y stays x: where there is no norm behind the layers. */
void norm_none(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x);
/* logits = the head of h, scaled and capped as the target's; or of the final norm of h. */
void part_head(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h);
void part_normed_head(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h);

#endif
