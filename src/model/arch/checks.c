/* checks.c -- see checks.h. */
#include "model/arch/checks.h"

#include "model/nulls.h"

bool require_choice(const rg_checkpoint *ckpt, const char *key, const char *const *names, rg_error *err)
{
    int which;

    return rg_config_choice(ckpt, key, names, &which, err);
}

bool require_silu(const rg_checkpoint *ckpt, rg_error *err)
{
    return require_choice(ckpt, "hidden_act", (const char *const[]){ "silu", NULL }, err);
}

static bool require_bool(const rg_checkpoint *ckpt, const char *key, bool want, rg_error *err)
{
    bool is = want;

    if (rg_config_flag(ckpt, key, &is, err) < 0)
        return false;
    if (is != want)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is %s, which is not supported", rg_checkpoint_path(ckpt), key,
                       is ? "true" : "false");
    return true;
}

bool require_false(const rg_checkpoint *ckpt, const char *key, rg_error *err)
{
    return require_bool(ckpt, key, false, err);
}

bool require_true(const rg_checkpoint *ckpt, const char *key, rg_error *err)
{
    return require_bool(ckpt, key, true, err);
}

bool require_number(const rg_checkpoint *ckpt, const char *key, double want, rg_error *err)
{
    double is = want;

    if ((want == 0 ? rg_meta_float(ckpt, key, &is, err) : rg_config_float(ckpt, key, &is, err)) < 0) /* null is 0 */
        return false;
    return is == want || rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is %g, which is not supported (supported: %g)",
                                 rg_checkpoint_path(ckpt), key, is, want);
}

bool require_numbers(const rg_checkpoint *ckpt, const char *key, int32_t want, rg_error *err)
{
    const int32_t *is = NULL;
    size_t n = 0;

    if (rg_meta_ints(ckpt, key, &is, &n, err) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (is[i] != want)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s.%zu is %d, which is not supported (supported: %d)",
                           rg_checkpoint_path(ckpt), key, i, is[i], want);
    return true;
}

bool require_length(const rg_config *c, const rg_checkpoint *ckpt, const char *list, size_t n, rg_error *err)
{
    return n == (size_t)c->n_layers || rg_fail(err, RG_E_INPUT, "%s: %s has %zu entries for %d layers",
                                               rg_checkpoint_path(ckpt), list, n, c->n_layers);
}
