/* lora.h -- low-rank deltas of a model's matrices (LoRA, Hu et al. 2021), trained in place of the matrices.
 *
 * W = W0 + (alpha / rank) B A, A [rank, columns] random at first, B [rows, rank] 0.  The masters hold W, so that
 * model and gradients are those of an ordinary run; from the gradient G of W come B's, s G A^T, and A's, s B^T G.
 * Written as PEFT writes them. */
#ifndef RG_TRAIN_LORA_H
#define RG_TRAIN_LORA_H

#include "train/adamw.h"

typedef struct rg_lora rg_lora;

/* Deltas of the matrices of layers that are multiplied as they are stored; all other masters are frozen.  NULL and
 * *err: there is no such matrix, or no memory. */
rg_lora *rg_lora_new(rg_masters *m, int rank, double alpha, uint64_t seed, rg_error *err);
void rg_lora_free(rg_lora *l); /* NULL is fine */

bool rg_lora_add_to(rg_lora *l, rg_adamw *a, rg_error *err) RG_MUST_CHECK;
void rg_lora_pull(rg_lora *l, rg_back_lane *lane);  /* gradients of A and B, from those of masters */
void rg_lora_apply(rg_lora *l, rg_back_lane *lane); /* masters become what A and B say */
/* A folder with adapter_config.json and adapter_model.safetensors, for the model at `base`. */
bool rg_lora_write(const rg_lora *l, const char *dir, const char *base, rg_error *err) RG_MUST_CHECK;

#endif
