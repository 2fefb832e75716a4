/* state.h -- what sequences remember, as the model declares it, and the memory it lies in.
 *
 * A layer keeps K/V (or latents) per position, and any number of named buffers.  What is kept alike forms a group: per
 * position, where later rows see the same of it, or per sequence.  One pool of blocks per group, allocated once: a
 * block holds RG_BLOCK positions of everything in the group, or all that one sequence keeps (a slot).  The engine
 * decides which block belongs to which sequence (engine/sequence.h has the verbs); this file has the bytes.  Not
 * thread-safe except for reading. */
#ifndef RG_MODEL_STATE_H
#define RG_MODEL_STATE_H

#include "ops/backend.h"
#include "ops/sight.h"

enum {
    RG_MAX_BUFFERS = 8,         /* of one layer */
    RG_BLOCK_BOOKKEEPING = 512, /* bytes that the engine may spend on each block: lists, the prefix index */
};

/* What one layer keeps.  Its architecture sets n_heads, k_dim, v_dim and latent of kv, what rows see, and the first
 * members of each buffer (ops.h); rg_state_declare fills in the rest. */
typedef struct rg_keep {
    rg_kv kv;        /* n_heads 0: none; once declared, group -1 then */
    rg_sight sight;  /* what the layer's rows see of its K/V, or of those of the layer whose it reads */
    rg_kept kept;    /* what rows to come see of its K/V, in this layer and in those that read them */
    int n_buffers;
    rg_buffer buffer[RG_MAX_BUFFERS];
    int shared_with; /* the earlier layer whose K/V this one reads, having none of its own; -1: none */
} rg_keep;

typedef struct rg_group {
    rg_per per;
    rg_kept kept;       /* per position: those that rows to come see */
    size_t block_bytes;
} rg_group;

typedef struct rg_state_spec {
    int n_groups;
    rg_group group[RG_MAX_GROUPS];
    int n_layers;
    const rg_keep *keep; /* [n_layers] */
    /* Where ranks share the state: the part that this rank keeps, in the same groups.  A block of the whole state holds
     * the blocks of all ranks one after the other, all of the same size.  NULL: this process keeps all of it. */
    const struct rg_state_spec *here;
    int max_draft;       /* draft rows of a span that state per sequence has room for */
    int sees;            /* rows see the end of their block of so many positions (batch.h), so what is kept of a
                          *   position is final when its whole block is; 0: when the position is */
} rg_state_spec;

/* Assign a group and a place to everything that n_layers layers keep.  keep is filled in, and borrowed by the spec.
 * max_draft: at most RG_MAX_DRAFT; 0 if no drafter can come.  False: more than RG_MAX_GROUPS groups, sizes overflow, or
 * a layer shares K/V that does not exist. */
bool rg_state_declare(rg_state_spec *spec, rg_keep *keep, int n_layers, rg_type kv_type, int max_draft, rg_error *err);

/* Most blocks of a group that a sequence of n positions holds if its rows come one by one. */
int64_t rg_group_blocks(const rg_group *group, int64_t n);
static inline bool rg_group_grows(const rg_group *group)
{
    return group->per == RG_PER_POSITION && rg_kept_grows(&group->kept);
}

/* Bytes per position of the groups that grow, and per sequence, however long, of the others. */
uint64_t rg_state_bytes_per_position(const rg_state_spec *spec);
uint64_t rg_state_bytes_per_sequence(const rg_state_spec *spec);

typedef struct rg_store rg_store;

/* One change of a store, for the stores of other ranks. */
typedef enum rg_store_verb {
    RG_STORE_COPY, RG_STORE_SAVE, RG_STORE_LOAD, RG_STORE_FILL, RG_STORE_MOVE, RG_STORE_CLOSE
} rg_store_verb;

typedef struct rg_store_call {
    rg_store_verb verb;
    int32_t group, block, to_block, from, to; /* of fill, `to` is the byte */
    void *save;                     /* of the whole block */
    const void *load;
    const int32_t *const *tables;   /* of close */
} rg_store_call;

/* What is done to the store is told as well, before it is done here.  `tell` returns false once other ranks' part of
 * all that the store holds is gone. */
void rg_store_tell(rg_store *s, bool (*tell)(void *arg, const rg_store_call *c), void *arg);

/* A store of so many blocks per group, in the back end's memory. */
rg_store *rg_store_new(const rg_state_spec *spec, const int32_t n_blocks[], const rg_backend *backend, rg_error *err);
void rg_store_free(rg_store *s);                     /* NULL is fine */
rg_state_memory *rg_store_memory(const rg_store *s); /* what steps are given */
int32_t rg_store_n_blocks(const rg_store *s, int group);

void rg_store_copy(rg_store *s, int group, int32_t from, int32_t to);
/* To block_bytes of memory.  False: ranks have lost what it held (rg_store_tell). */
bool rg_store_save(const rg_store *s, int group, int32_t block, void *to) RG_MUST_CHECK;
void rg_store_load(rg_store *s, int group, int32_t block, const void *from);
void rg_store_fill(rg_store *s, int group, int32_t block, int byte);
void rg_store_poison(rg_store *s, int group, int32_t block); /* debug builds: fill with a pattern that is NaN */
/* Move all that a group keeps of one position: puts the accepted path of a draft tree in place. */
void rg_store_move(rg_store *s, int group, int32_t from_block, int from, int32_t to_block, int to);
/* After moves into a block that is whole now: make what is kept of it in closed form (kv.h) anew.  tables: per group,
 * as a span's. */
void rg_store_close_block(rg_store *s, const int32_t *const tables[RG_MAX_GROUPS], int32_t block);

#endif
