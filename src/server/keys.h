/* keys.h -- API keys.  Comparing takes the same time for every input. */
#ifndef RG_SERVER_KEYS_H
#define RG_SERVER_KEYS_H

#include "base/error.h"

typedef struct rg_keys rg_keys;

enum { RG_OWNER_ROOM = 65 };

/* Copies the keys.  None: everybody may ask.  An empty key, or one over 512 bytes, is refused. */
rg_keys *rg_keys_new(const char *const *key, int32_t n, rg_error *err);
/* What the holders' requests count beside those of others (rg_params.tenant_weight), one for each key; NULL: all the
 * same. */
void rg_keys_weigh(rg_keys *k, const float *weights);
float rg_keys_weight(const rg_keys *k, int32_t i); /* of the i-th key, 0: none was given; i -1: the same */
/* What stands for the holder of the i-th key in a store that outlives the list of keys: the key's hash; "": i is -1. */
const char *rg_keys_owner(const rg_keys *k, int32_t i);
void rg_keys_free(rg_keys *k); /* NULL is fine */
int32_t rg_keys_count(const rg_keys *k);
/* The index of the key that equals given[0, n); -1: none. */
int32_t rg_keys_find(const rg_keys *k, const char *given, size_t n);

#endif
