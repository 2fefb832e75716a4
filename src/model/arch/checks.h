/* checks.h -- keys of config.json that an architecture takes with one value only.
 *
 * A key that is absent is fine; another value is refused by name.  What null means: nulls.h. */
#ifndef RG_MODEL_ARCH_CHECKS_H
#define RG_MODEL_ARCH_CHECKS_H

#include "model/config.h"

/* The value must be one of the names; NULL ends their list. */
bool require_choice(const rg_checkpoint *ckpt, const char *key, const char *const *names, rg_error *err);
bool require_silu(const rg_checkpoint *ckpt, rg_error *err); /* of "hidden_act" */
bool require_false(const rg_checkpoint *ckpt, const char *key, rg_error *err);
bool require_true(const rg_checkpoint *ckpt, const char *key, rg_error *err);
bool require_number(const rg_checkpoint *ckpt, const char *key, double want, rg_error *err);
bool require_numbers(const rg_checkpoint *ckpt, const char *key, int32_t want, rg_error *err); /* all of a list */
/* A list of n entries must have one for each layer. */
bool require_length(const rg_config *c, const rg_checkpoint *ckpt, const char *list, size_t n, rg_error *err);

#endif
