/* mixture.h -- mixtures of k-types, by the names that GGUF files carry (Q4_K_M): most matrices have the base type,
 * those that matter more have more bits. */
#ifndef RG_MODEL_MIXTURE_H
#define RG_MODEL_MIXTURE_H

#include "quant/quant.h"

typedef struct rg_mixture {
    const char *name; /* "q4_k_m" */
    rg_type base;
    int file_type; /* its number in GGUF's general.file_type */
} rg_mixture;

/* In any case; NULL: no mixture has that name. */
const rg_mixture *rg_mixture_find(const char *name);

/* The type of a matrix by its name in GGUF ("blk.3.attn_v.weight"), of a model of n_layers; is_head: its embedding is
 * the head, too. */
rg_type rg_mixture_type(const rg_mixture *m, const char *name, int n_layers, bool is_head);

#endif
