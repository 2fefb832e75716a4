/* values.h -- tensors of golden files as numbers. */
#ifndef RG_TESTS_TRAIN_VALUES_H
#define RG_TESTS_TRAIN_VALUES_H

#include "base/mem.h"
#include "ckpt/checkpoint.h"
#include "support/test.h"

/* A tensor as f32; rg_free it. */
static inline float *values(const char *path, const char *name, size_t *n)
{
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open_tensors(path, &err);

    assert_ok(c, err);
    const rg_tensor *t = rg_checkpoint_find(c, name);
    if (!t)
        fail_msg("%s: no tensor %s", path, name);
    *n = (size_t)rg_tensor_count(t);
    uint8_t *raw = rg_alloc(t->bytes);
    float *out = rg_array(*n, sizeof *out);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    for (size_t i = 0; i < *n; i++)
        if (t->type == RG_F64)
            out[i] = (float)((const double *)(const void *)raw)[i];
        else if (t->type == RG_I32)
            out[i] = (float)((const int32_t *)(const void *)raw)[i];
    if (t->type != RG_F64 && t->type != RG_I32)
        rg_tensor_decode(t, raw, rg_tensor_rows(t), out);
    rg_free(raw);
    rg_checkpoint_close(c);
    return out;
}

#endif
