/* state.h -- what sequences remember, as the model declares it, and the memory it lies in.
 *
 * Layers are grouped by what they keep: global K/V, K/V of each window size, MLA latents, recurrent state.  One pool of
 * blocks per group, allocated once: a block holds RG_BLOCK positions of every layer of its group, or, of a recurrent
 * group, the whole state of one sequence (a slot).  Which block belongs to whom is the engine's business
 * (engine/sequence.h has the verbs); here are bytes.  Not thread-safe except for reading. */
#ifndef RG_MODEL_STATE_H
#define RG_MODEL_STATE_H

#include "ops/ops.h"

typedef enum rg_keep_kind { RG_KEEP_NOTHING, RG_KEEP_KV, RG_KEEP_LATENT, RG_KEEP_RECURRENT } rg_keep_kind;

/* What one layer keeps; said by its architecture. */
typedef struct rg_keep {
    rg_keep_kind kind;
    int n_heads, k_dim, v_dim, window;  /* K/V and latent; window 0: all */
    int d_inner, d_state, d_conv;       /* recurrent */
    int shared_with;                    /* this layer reads another's K/V (and keeps nothing); -1: its own */
} rg_keep;

typedef struct rg_group {
    rg_keep_kind kind;
    int window;
    size_t block_bytes;
    int n_layers;
} rg_group;

typedef struct rg_state_spec {
    int n_groups;
    rg_group group[RG_MAX_GROUPS];
    int n_layers;
    const rg_kv *kv;              /* [n_layers]; group -1 where a layer keeps none */
    const rg_recurrent *recurrent; /* [n_layers]; likewise */
} rg_state_spec;

/* Group n_layers layers' needs.  kv and recurrent are filled (room for n_layers) and borrowed by the spec.  False: more
 * than RG_MAX_GROUPS groups, or sizes overflow. */
bool rg_state_declare(rg_state_spec *spec, const rg_keep *keep, int n_layers, rg_type kv_type, rg_kv *kv,
                      rg_recurrent *recurrent, rg_error *err);

/* Bytes per position of the groups that grow (global ones), and per sequence of the others. */
uint64_t rg_state_bytes_per_position(const rg_state_spec *spec);
uint64_t rg_state_bytes_per_sequence(const rg_state_spec *spec);

typedef struct rg_store rg_store;

rg_store *rg_store_new(const rg_state_spec *spec, const int32_t n_blocks[], rg_error *err);
void rg_store_free(rg_store *s); /* NULL is fine */
const rg_group_memory *rg_store_groups(const rg_store *s);
int32_t rg_store_n_blocks(const rg_store *s, int group);

void rg_store_clear(rg_store *s, int group, int32_t block); /* zero: a recurrent slot at position 0 */
void rg_store_copy(rg_store *s, int group, int32_t from, int32_t to);
void rg_store_save(const rg_store *s, int group, int32_t block, void *to); /* block_bytes */
void rg_store_load(rg_store *s, int group, int32_t block, const void *from);
void rg_store_poison(rg_store *s, int group, int32_t block); /* debug builds: fill with a pattern that is NaN */
/* Move one position's K/V of all layers of a group: an accepted path of a draft tree into its place. */
void rg_store_move(rg_store *s, int group, int32_t from_block, int from, int32_t to_block, int to);

#endif
