/* exchange.h -- the weights of a model exchanged for those of another one of the same shape, in place: who has the
 * model keeps it, with its state, its runner and its adapters. */
#ifndef RG_MODEL_EXCHANGE_H
#define RG_MODEL_EXCHANGE_H

#include "model/model.h"

/* True if b computes as a does but for the values of its weights: architecture, settings, ropes, and the name, shape
 * and type of every weight.  False and *err names the first thing that differs. */
bool rg_model_same_shape(const rg_model *a, const rg_model *b, rg_error *err);
/* Exchange the values of two models of the same shape, while no step is computed.  Cannot fail. */
void rg_model_exchange(rg_model *a, rg_model *b);

#endif
