/* expert_names.h -- the ways in which checkpoints store experts: one by one or stacked, gate and up apart or in one
 * tensor, turned or not, under the names of any family.
 *
 * An architecture's table says one of them.  Where a checkpoint lacks that name, the others are tried, and the source
 * of the weight becomes what was found. */
#ifndef RG_MODEL_EXPERT_NAMES_H
#define RG_MODEL_EXPERT_NAMES_H

#include "model/weight_source.h"

/* For weights of experts, of their router and of shared experts, with a checkpoint: settle where the weight lies. */
void rg_expert_names_settle(rg_weight_source *s);

#endif
