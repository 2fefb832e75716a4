/* nulls.h -- what null means in config.json, which is not what a missing key means: a missing one has its default, null
 * is a value.
 *
 * What it means is said where the setting stands: a row of a table says it (config.h, rg_null), and of the keys that a
 * function reads by itself the lists of nulls.c.  Anywhere else null has no meaning and is refused by name.  GGUF has
 * no null. */
#ifndef RG_MODEL_NULLS_H
#define RG_MODEL_NULLS_H

#include "model/config.h"

bool rg_config_is_null(const rg_checkpoint *ckpt, const char *key);
/* True if null at a key of a table stands for 0. */
bool rg_null_is_zero(const rg_key *key);
/* True if the key is not null, or null asks for nothing there; else false and *err, which names it. */
bool rg_null_allowed(const rg_checkpoint *ckpt, const char *key, rg_error *err) RG_MUST_CHECK;
bool rg_null_refuse(const rg_checkpoint *ckpt, const char *key, rg_error *err); /* false */

/* What an architecture reads outside its table: as the readers of ckpt/checkpoint.h, but for null. */
int rg_config_flag(const rg_checkpoint *ckpt, const char *key, bool *out, rg_error *err);
int rg_config_int(const rg_checkpoint *ckpt, const char *key, int64_t min, int64_t max, int64_t *out, rg_error *err);
int rg_config_float(const rg_checkpoint *ckpt, const char *key, double *out, rg_error *err);

#endif
