/* tensor.c -- counts and texts of a shape.  A tensor's count was checked against overflow when it was made. */
#include "quant/tensor.h"

#include <stdio.h>

int64_t rg_tensor_count(const rg_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

int64_t rg_tensor_cols(const rg_tensor *t)
{
    return t->n_dims ? t->shape[t->n_dims - 1] : 1;
}

int64_t rg_tensor_rows(const rg_tensor *t)
{
    int64_t n = 1;

    for (int i = 0; i + 1 < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

void rg_tensor_decode(const rg_tensor *t, const void *rows, int64_t n_rows, float *to)
{
    const rg_format *f = rg_format_of(t->type);
    const int64_t cols = rg_tensor_cols(t);
    const uint8_t *from = rows;
    float values[256]; /* of the longest blocks */

    if (!t->order) {
        f->decode(rows, n_rows * cols / f->block_len, to);
        return;
    }
    for (int64_t r = 0; r < n_rows; r++, to += cols)
        for (int64_t k = 0; k < cols; k += f->block_len, from += f->block_bytes) {
            f->decode(from, 1, values);
            for (int i = 0; i < f->block_len; i++)
                to[t->order[k + i]] = values[i];
        }
}

char *rg_shape_text(const int64_t *shape, int n_dims, char out[96])
{
    int n = snprintf(out, 96, "[");

    /* Four numbers of at most 20 characters, with separators, fit in 96. */
    for (int i = 0; i < n_dims && i < RG_MAX_DIMS; i++)
        n += snprintf(out + n, 96 - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(out + n, 96 - (size_t)n, "]");
    return out;
}
