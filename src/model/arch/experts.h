/* experts.h -- mixtures of experts, a part of blocks: routed ones, those that every row has, and those that lie in a
 * file and are read when a row needs them. */
#ifndef RG_MODEL_ARCH_EXPERTS_H
#define RG_MODEL_ARCH_EXPERTS_H

#include "model/arch.h"

/* x += the experts that the router chooses for each row of h, weighed, and the shared ones where the layer has them. */
void experts(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *h);

/* The routed ones alone, by the router's logits [rows, n_experts]. */
void routed_experts(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *h, const rg_act *logits);
/* The shared ones before their down_proj (W_SHARED_DOWN), [rows, shared width]; times the sigmoid of a value of each
 * row's own where there is W_SHARED_ROUTER. */
rg_act *shared_experts(rg_fwd *f, const rg_layer *l, const rg_act *h);

#endif
