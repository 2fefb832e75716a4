/* blocks.h -- which blocks of one pool are held: reference counts, a free list, and an order of eviction.
 *
 * A block is free, held (references > 0), or cached: unreferenced but remembered by the prefix index, evicted oldest
 * first when the free list is empty.  Knows numbers only.  Not thread-safe: the engine thread calls it. */
#ifndef RG_ENGINE_BLOCKS_H
#define RG_ENGINE_BLOCKS_H

#include "base/error.h"

typedef struct rg_blocks rg_blocks;

/* evicted(arg, block): the prefix index must forget the block; called from take. */
rg_blocks *rg_blocks_new(int32_t n, void (*evicted)(void *arg, int32_t block), void *arg, rg_error *err);
void rg_blocks_free(rg_blocks *p);

int32_t rg_blocks_take(rg_blocks *p);               /* one block with one reference; -1: all are held */
void rg_blocks_hold(rg_blocks *p, int32_t block);   /* one more reference (of a held or a cached block) */
void rg_blocks_drop(rg_blocks *p, int32_t block);   /* one less; at 0 the block is free, or cached if remembered */
void rg_blocks_remember(rg_blocks *p, int32_t block, bool yes); /* the prefix index points at it, or no longer does */
int32_t rg_blocks_references(const rg_blocks *p, int32_t block);
bool rg_blocks_remembered(const rg_blocks *p, int32_t block);
int32_t rg_blocks_available(const rg_blocks *p);    /* free and cached */
int32_t rg_blocks_held(const rg_blocks *p);
void rg_blocks_check(const rg_blocks *p);           /* asserts that counts, lists and marks agree */

#endif
