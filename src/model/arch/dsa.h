/* dsa.h -- latent attention over keys that an indexer chooses (DeepSeek Sparse Attention, 2025), as architectures share
 * it.
 *
 * An indexer has heads of its own, for which each position keeps one key; a row attends to the keys that score best
 * (ops.h, rg_choose_keys).  A layer may have none and take the choice of the layer before it, which therefore lives in
 * an activation to the step's end. */
#ifndef RG_MODEL_ARCH_DSA_H
#define RG_MODEL_ARCH_DSA_H

#include "model/arch/mla.h"

/* An architecture that has it begins its own settings with these. */
typedef struct dsa_settings {
    mla_settings mla;
    bool interleaved, index_interleaved; /* the rope's pairs, of the attention and of the indexer */
    int n_heads, head_dim, n_chosen;     /* of the indexer */
} dsa_settings;

/* Kinds of layer, and what is added to one that takes the choice of the layer before. */
enum { DSA_DENSE, DSA_EXPERTS, DSA_TAKES, DSA_KINDS = 4 };

#define KEYS_DSA(heads, index_interleave)                                                                              \
    { RG_OWN_AT(dsa_settings, interleaved), KEY_BOOL, "rope_interleave", NULL, 1 },                                    \
    { RG_OWN_AT(dsa_settings, index_interleaved), KEY_BOOL, "indexer_rope_interleave", NULL, index_interleave },       \
    { RG_OWN_AT(dsa_settings, n_heads), KEY_INT, "index_n_heads", NULL, heads },                                       \
    { RG_OWN_AT(dsa_settings, head_dim), KEY_INT, "index_head_dim", NULL, 128 },                                       \
    { RG_OWN_AT(dsa_settings, n_chosen), KEY_INT, "index_topk", NULL, 2048 }

/* Keys that say nothing beside others, or are of layers that only predict further tokens. */
#define DSA_HARMLESS                                                                                                   \
    "qk_head_dim", "head_dim", "aux_loss_alpha", "seq_aux", "ep_size",                                                 \
    "num_nextn_predict_layers", "index_share_for_mtp_iteration", "moe_router_dtype"

/* Everything but which layers take a choice: latent attention, the indexer, routing, ropes, kinds of layer by
 * "mlp_layer_types" or c->n_dense_layers. */
bool finish_dsa(rg_config *c, const rg_checkpoint *ckpt, rg_error *err);

extern const rg_weight_spec dsa_weights[];
extern const rg_weight_spec dsa_dense[], dsa_experts[], dsa_dense_takes[], dsa_experts_take[];
/* The latents, and an indexer's keys. */
void keep_indexed(const rg_config *c, int layer, rg_keep *out);
#define KINDS_DSA(block)                                                                                               \
    [DSA_DENSE] = { dsa_dense, keep_indexed, block }, [DSA_EXPERTS] = { dsa_experts, keep_indexed, block },            \
    [DSA_DENSE + DSA_TAKES] = { dsa_dense_takes, keep_latent, block },                                                 \
    [DSA_EXPERTS + DSA_TAKES] = { dsa_experts_take, keep_latent, block }

/* The places of the keys that each row attends to, [rows, index_topk], from its normed input h and its query of low
 * rank: as the layer's indexer chooses, or as in the layer before where it has none. */
rg_act *chosen_keys(rg_fwd *f, const rg_layer *l, const rg_act *h, const rg_act *q_a);
/* The embed hook. */
void embed_dsa(rg_fwd *f, const rg_layer *l, rg_act *x);

#endif
