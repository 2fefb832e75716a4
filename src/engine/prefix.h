/* prefix.h -- which prefixes have state cached: a tree of 64-token nodes over all groups at once.
 *
 * A node stands for one block of tokens after one parent; its children are found by a hash of the tokens and confirmed
 * by comparing them, so a path from the root is the exact prefix.  The root of a path is chosen by a salt: whatever
 * else determines the state (adapter, caller's cache scope).  A node remembers, per group, the block that holds its
 * positions (K/V groups) or a snapshot of the state at its end (recurrent groups), or neither.  Nodes without blocks
 * and without children go.
 *
 * Where a sequence ended within a block, a leaf stands for these fewer tokens.  The last node of a path may share only
 * the beginning of its tokens: the state of the common positions is valid, so its block is copied (as in SGLang's radix
 * tree, Zheng et al., 2024).  With recurrent groups such a leaf is found only by all its tokens: a recurrent state is
 * valid at its own position only.  Not thread-safe: the engine thread calls it. */
#ifndef RG_ENGINE_PREFIX_H
#define RG_ENGINE_PREFIX_H

#include "engine/blocks.h"
#include "model/state.h"

typedef struct rg_prefix rg_prefix;
typedef struct rg_node rg_node; /* NULL stands for "not in the tree" */

/* The name of a block of ids in files: a hash of all that determines its state (durable.h). */
typedef struct rg_block_name {
    uint8_t hash[16];
} rg_block_name;

/* What files have of a node; restore.c fills it in, all 0 at first. */
typedef struct rg_node_files {
    rg_block_name name;
    uint32_t put_s; /* when its blocks were handed over, in seconds of rg_now_ns */
    uint16_t put;   /* bit g: the block of group g was handed over, or came from there */
    bool is_named;
} rg_node_files;

/* ---- which beginnings of a path a sequence can start from ---- */

/* A path of nodes so far, for each group: how many nodes in a row, the last one included, have its block; and whether a
 * node whose block would stay for good has none.  Begins as zeros. */
typedef struct rg_path_blocks {
    int32_t have[RG_MAX_GROUPS];
    bool lacks[RG_MAX_GROUPS];
} rg_path_blocks;

/* The path's next node, of number b; bit g of has: it has the block of group g. */
void rg_path_blocks_add(rg_path_blocks *f, const rg_state_spec *spec, int32_t b, uint32_t has);
/* True if a sequence may start after these n_nodes nodes.  Bit g of `has`: the last node holds the state of group g. */
bool rg_path_blocks_usable(const rg_path_blocks *f, const rg_state_spec *spec, int32_t n_nodes, uint32_t has);
/* True if a sequence that starts after n_nodes nodes needs the block of group g of node b. */
bool rg_path_needs(const rg_state_spec *spec, int g, int32_t b, int32_t n_nodes);

/* ---- the index ---- */

/* pools[g] are borrowed.  room: nodes at most (the oldest leaf makes way). */
rg_prefix *rg_prefix_new(const rg_state_spec *spec, rg_blocks *const pools[], int32_t room, rg_error *err);
void rg_prefix_free(rg_prefix *p);

/* The longest usable prefix of tokens[0, n), in positions, always < n: groups of positions have every block that
 * rows from there on see, recurrent groups a snapshot exactly there.  path, room for all blocks of n
 * positions or for all nodes, gets the nodes; where the prefix ends within a block, only the first positions of the
 * last one are meant.  *n_matched says how many tokens were known in full blocks.  Takes no references yet. */
int32_t rg_prefix_match(rg_prefix *p, const int32_t *tokens, int32_t n, uint64_t salt, rg_node **path,
                        int32_t *n_matched);
/* The node after parent (NULL: the salt's root) for these 64 tokens, made if need be; NULL: no room. */
rg_node *rg_prefix_extend(rg_prefix *p, rg_node *parent, uint64_t salt, const int32_t tokens[RG_BLOCK]);
/* A new leaf for the n < RG_BLOCK tokens with which a sequence ends; NULL: no room, or a child has them already. */
rg_node *rg_prefix_extend_part(rg_prefix *p, rg_node *parent, uint64_t salt, const int32_t *tokens, int32_t n);
/* Remember a held block at a node, unless the node has one.  False: it had. */
bool rg_prefix_publish(rg_prefix *p, rg_node *node, int group, int32_t block);
int32_t rg_prefix_block(const rg_prefix *p, const rg_node *node, int group); /* -1: none */
uint32_t rg_prefix_has(const rg_prefix *p, const rg_node *node);             /* bit g: it has the block of group g */
rg_node *rg_prefix_parent(const rg_node *node);                              /* NULL: it begins a path */
rg_node_files *rg_prefix_node_files(rg_node *node);
/* To be called when a pool evicts a block. */
void rg_prefix_forget(rg_prefix *p, int group, int32_t block);
/* Nodes on a live sequence's path are pinned so that their numbers stay valid. */
void rg_prefix_pin(rg_prefix *p, rg_node *node);
void rg_prefix_unpin(rg_prefix *p, rg_node *node);
void rg_prefix_clear(rg_prefix *p); /* forget everything that is not held */
void rg_prefix_check(const rg_prefix *p);

#endif
