/* nulls.c -- see nulls.h. */
#include "model/nulls.h"

#include <string.h>

/* Keys outside the tables for which null asks for nothing. */
static const char *const asks_for_nothing[] = {
    "embedding_size", "feature_map", "num_key_value_heads", "partial_rotary_factor", "position_embedding_type",
};

/* The same of members of a rope's settings. */
static const char *const of_ropes[] = {
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "long_mscale",
    "mscale",
    "mscale_all_dim",
    "original_max_position_embeddings",
    "short_mscale",
};

bool rg_config_is_null(const rg_checkpoint *ckpt, const char *key)
{
    return rg_meta_type_of(ckpt, key) == RG_META_NULL;
}

bool rg_null_is_zero(const rg_key *key)
{
    return key->kind == KEY_BOOL || key->fallback == 0 || key->null == NULL_IS_ZERO;
}

bool rg_null_refuse(const rg_checkpoint *ckpt, const char *key, rg_error *err)
{
    return rg_fail(err, RG_E_INPUT,
                   "%s: key '%s' is null, which has no meaning here: leave it out for its default, or "
                   "give a value",
                   rg_checkpoint_path(ckpt), key);
}

static bool is_in(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, list[i]))
            return true;
    return false;
}

bool rg_null_allowed(const rg_checkpoint *ckpt, const char *key, rg_error *err)
{
    const char *member = strrchr(key, '.');

    if (!rg_config_is_null(ckpt, key) || is_in(key, asks_for_nothing, RG_LEN(asks_for_nothing)) ||
        (!strncmp(key, "rope_", 5) && member && is_in(member + 1, of_ropes, RG_LEN(of_ropes))))
        return true;
    if (!strcmp(key, "rope_theta") && rg_meta_type_of(ckpt, "rope_parameters.rope_theta") > RG_META_NULL)
        return true; /* the other place counts */
    return rg_null_refuse(ckpt, key, err);
}

int rg_config_flag(const rg_checkpoint *ckpt, const char *key, bool *out, rg_error *err)
{
    int got = rg_meta_bool(ckpt, key, out, err);

    if (got || !rg_config_is_null(ckpt, key))
        return got;
    *out = false;
    return 1;
}

int rg_config_int(const rg_checkpoint *ckpt, const char *key, int64_t min, int64_t max, int64_t *out, rg_error *err)
{
    int got = rg_meta_int(ckpt, key, min, max, out, err);

    return got || rg_null_allowed(ckpt, key, err) ? got : -1;
}

int rg_config_float(const rg_checkpoint *ckpt, const char *key, double *out, rg_error *err)
{
    int got = rg_meta_float(ckpt, key, out, err);

    return got || rg_null_allowed(ckpt, key, err) ? got : -1;
}
