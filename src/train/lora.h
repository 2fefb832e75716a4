/* lora.h -- low-rank deltas of a model's matrices (LoRA, Hu et al. 2021), trained in place of the matrices.
 *
 * W = W0 + (alpha / rank) B A, A [rank, columns] random at first, B [rows, rank] 0.  The masters hold W, so that
 * model and gradients are those of an ordinary run; from the gradient G of W come B's, s G A^T, and A's, s B^T G.
 * Written as PEFT writes them. */
#ifndef RG_TRAIN_LORA_H
#define RG_TRAIN_LORA_H

#include "train/stand_in.h"

typedef struct rg_lora rg_lora;

/* Deltas of the matrices of layers that are multiplied as they are stored; all other masters are frozen.  NULL and
 * *err: there is no such matrix, or no memory. */
rg_lora *rg_lora_new(rg_masters *m, int rank, double alpha, uint64_t seed, rg_error *err);
void rg_lora_free(rg_lora *l); /* NULL is fine */

rg_stand_in rg_lora_stand_in(rg_lora *l);
/* A folder with adapter_config.json and adapter_model.safetensors, for the model at `base`. */
bool rg_lora_write(const rg_lora *l, const char *dir, const char *base, rg_error *err) RG_MUST_CHECK;

#endif
