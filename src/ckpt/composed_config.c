/* composed_config.c -- what quantization_config says of tensors that are made of others, and does not show in them. */
#include <string.h>

#include "ckpt/composed.h"

/* The value of a key of any of the groups of compressed-tensors' configuration; the first that is there. */
static bool config_int(const rg_checkpoint *c, const char *const *keys, size_t n, int64_t *out, rg_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (rg_meta_type_of(c, keys[i]) == RG_META_INT)
            return rg_meta_int(c, keys[i], -1, INT32_MAX, out, err) >= 0;
    return true;
}

static bool known_method(const rg_checkpoint *c, const char *method, rg_error *err)
{
    static const char *const methods[] = { "gptq", "awq", "compressed-tensors", "fp8", "fbgemm_fp8", "bitsandbytes",
                                           "mxfp4", "modelopt" };

    for (size_t i = 0; i < RG_LEN(methods); i++)
        if (!strcmp(method, methods[i]))
            return true;
    return rg_fail(err, RG_E_UNSUPPORTED,
                   "%s: quantization_config.quant_method is '%.40s', which is not one of gptq, awq, "
                   "compressed-tensors, fp8, fbgemm_fp8, bitsandbytes, mxfp4, modelopt",
                   c->path, method);
}

/* Settings that change what the tensors mean; those that are missing have the first value of their list. */
static bool known_settings(rg_composed_config *out, const rg_checkpoint *c, const char *method, rg_error *err)
{
    static const struct {
        const char *key, *known[3];
    } settings[] = {
        { "quantization_config.checkpoint_format", { "gptq", "gptq_v2" } },
        { "quantization_config.version", { "gemm", "GEMM" } },
        { "quantization_config.fmt", { "e4m3" } },
        { "quantization_config.sparsity_config.format", { "dense" } },
    };

    for (size_t i = 0; i < RG_LEN(settings); i++) {
        const char *value;
        bool known = false;

        if (rg_meta_type_of(c, settings[i].key) != RG_META_STRING ||
            rg_meta_string(c, settings[i].key, &value, err) < 1)
            continue;
        for (size_t k = 0; k < RG_LEN(settings[i].known) && settings[i].known[k]; k++)
            known = known || !strcmp(value, settings[i].known[k]);
        if (!known)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is '%.40s', which is not supported for %s", c->path,
                           settings[i].key, value, method);
        if (!strcmp(value, "gptq_v2"))
            out->gptq_plus = 0;
    }
    return true;
}

bool rg_composed_config_read(rg_composed_config *out, const rg_checkpoint *c, rg_error *err)
{
    static const char *const groups[] = { "quantization_config.group_size",
                                          "quantization_config.config_groups.group_0.weights.group_size" };
    static const char *const rows[] = { "quantization_config.weight_block_size.0",
                                        "quantization_config.config_groups.group_0.weights.block_structure.0" };
    static const char *const cols[] = { "quantization_config.weight_block_size.1",
                                        "quantization_config.config_groups.group_0.weights.block_structure.1" };
    const char *method = "";

    *out = (rg_composed_config){ .gptq_plus = 1 };
    if (rg_meta_string(c, "quantization_config.quant_method", &method, err) < 0 ||
        (*method && !known_method(c, method, err)) || !known_settings(out, c, method, err))
        return false;
    return config_int(c, groups, RG_LEN(groups), &out->group, err) &&
           config_int(c, rows, RG_LEN(rows), &out->block_rows, err) &&
           config_int(c, cols, RG_LEN(cols), &out->block_cols, err);
}
