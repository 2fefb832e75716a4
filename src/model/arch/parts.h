/* parts.h -- all that families share: rows of key tables and what follows from them, checks, GGUF's keys, rows of
 * weight tables, and the parts that blocks are written in.
 *
 * What some families share has headers of its own: mla.h (latent attention), mamba.h, ssd.h, hybrid.h (stacks of
 * several kinds of layer), encoder.h, draft.h and others. */
#ifndef RG_MODEL_ARCH_PARTS_H
#define RG_MODEL_ARCH_PARTS_H

#include "model/arch/layer_parts.h"
#include "model/arch/checks.h"
#include "model/arch/experts.h"
#include "model/arch/gguf.h"
#include "model/arch/keys.h"
#include "model/arch/weight_rows.h"

#endif
