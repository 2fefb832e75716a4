/* hash.h -- xxh64 and xxh3 (libxxhash), and a table from 64-bit keys to ints. */
#ifndef RG_BASE_HASH_H
#define RG_BASE_HASH_H

#include "base/error.h"

uint64_t rg_hash(const void *p, size_t n, uint64_t seed);  /* xxh3, for tables and prefixes */
uint64_t rg_xxh64(const void *p, size_t n, uint64_t seed); /* xxh64, for hashes that users see */

/* rg_hash in pieces, each piece's being the seed of the next: what is read piece by piece is hashed while it is in a
 * cache.  h = rg_hash(piece, n, h) from h = 0. */
enum { RG_HASH_PIECE = 1 << 20 };
uint64_t rg_hash_pieces(const void *p, size_t n);

/* Streaming xxh64. */
typedef struct rg_hasher rg_hasher;
rg_hasher *rg_hasher_new(void);
void rg_hasher_add(rg_hasher *h, const void *p, size_t n);
uint64_t rg_hasher_value(const rg_hasher *h);
void rg_hasher_free(rg_hasher *h);

/* Strings -> ints with a seed drawn once per process, so that no input can make it slow. The table keeps pointers to
 * the caller's keys (ptr, n), which must outlive it. */
typedef struct rg_dict rg_dict;
rg_dict *rg_dict_new(size_t n_expected);
void rg_dict_free(rg_dict *d);                                        /* NULL is fine */
bool rg_dict_put(rg_dict *d, const char *key, size_t n, int value);   /* false: no memory.  Replaces. */
int rg_dict_get(const rg_dict *d, const char *key, size_t n);         /* -1: none; values must be >= 0 */

#endif
