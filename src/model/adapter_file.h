/* adapter_file.h -- a LoRA adapter as published: what its settings say, and the scale of each pair of matrices.
 *
 * Two kinds: a PEFT folder (adapter_config.json, adapter_model.safetensors), whose matrices are called by the modules
 * of a Hugging Face model; and GGUF (general.type "adapter"), whose matrices are called by its tensors.  What changes
 * more than a product's output by scale * B A is refused by name.  Knows no model. */
#ifndef RG_MODEL_ADAPTER_FILE_H
#define RG_MODEL_ADAPTER_FILE_H

#include "ckpt/checkpoint.h"

typedef struct rg_adapter_file {
    rg_checkpoint *ckpt;
    bool is_gguf;
    double rank, alpha; /* of modules that no pattern names; GGUF: rank 0, as the matrices have it */
    bool by_root;       /* scale = alpha / sqrt(rank) (rsLoRA, Kalajdzievski 2023), else alpha / rank */
    const char *of;     /* the model that it says it was trained for; NULL: it does not say */
} rg_adapter_file;

/* False and *err: it cannot be read, or is no adapter that is supported. */
bool rg_adapter_file_open(rg_adapter_file *f, const char *path, rg_error *err) RG_MUST_CHECK;
void rg_adapter_file_close(rg_adapter_file *f); /* half-opened too */

/* The matrices A and B of a module, called as the model's checkpoints call it, without ".weight".  False: it has
 * neither; true with one of them NULL: it has the other alone. */
bool rg_adapter_file_find(const rg_adapter_file *f, const char *module, const rg_tensor **a, const rg_tensor **b);
/* The scale of a module whose A has so many rows.  False and *err: that is not the rank that the settings say. */
bool rg_adapter_file_scale(const rg_adapter_file *f, const char *module, int64_t rank, float *scale, rg_error *err);
/* Say in *err why a tensor that belongs to no module of the model cannot be used. */
void rg_adapter_file_blame(const rg_adapter_file *f, const rg_tensor *t, rg_error *err);

#endif
