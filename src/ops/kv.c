/* kv.c -- see kv.h. */
#include "ops/kv.h"

#include <string.h>
#include <strings.h>

#include "ops/kv4.h"

/* Every type that K and V are kept as. */
static const struct {
    const char *name;
    rg_type type;
    size_t scale; /* bytes of a run's, where they are apart from the values */
} types[] = { { "f32", RG_F32, 0 },
              { "f16", RG_F16, 0 },
              { "bf16", RG_BF16, 0 },
              { "q8", RG_I8, sizeof(uint16_t) },
              { "q4", RG_Q4_1, 0 } };

static size_t scale_size(rg_type type)
{
    for (size_t i = 0; i < RG_LEN(types); i++)
        if (types[i].type == type)
            return types[i].scale;
    return 0;
}

/* Bytes of a value, or of a run where values have no bytes of their own. */
static size_t value_size(rg_type type)
{
    return (size_t)rg_format_of(type)->block_bytes;
}

const char *rg_kv_name(rg_type type)
{
    for (size_t i = 0; i < RG_LEN(types); i++)
        if (types[i].type == type)
            return types[i].name;
    return NULL;
}

bool rg_kv_type_by_name(const char *name, rg_type *type)
{
    /* what other engines call them */
    static const char *const others[][2] = { { "q8_0", "q8" },       { "q4_0", "q4" },     { "fp16", "f16" },
                                             { "bfloat16", "bf16" }, { "float16", "f16" }, { "float32", "f32" } };

    for (size_t i = 0; i < RG_LEN(others); i++)
        name = strcasecmp(others[i][0], name) ? name : others[i][1];
    for (size_t i = 0; i < RG_LEN(types); i++)
        if (!strcasecmp(types[i].name, name))
            return *type = types[i].type, true;
    return false;
}

double rg_kv_value_bytes(rg_type type)
{
    return (double)value_size(type) / (double)rg_format_of(type)->block_len + (double)scale_size(type) / RG_KV_RUN;
}

size_t rg_kv_bytes(const rg_kv *kv)
{
    int k = rg_kv_k_values(kv), v = rg_kv_v_values(kv);
    size_t values = (size_t)(k + v), runs = (size_t)(rg_kv_runs(k) + rg_kv_runs(v));

    if (rg_kv_has_open(kv)) {
        size_t n = kv->latent ? RG_BLOCK * runs : KV4_RUNS * (size_t)k + RG_BLOCK * (size_t)rg_kv_runs(v);
        return (size_t)kv->n_heads * n * KV4_BYTES;
    }
    return (size_t)kv->n_heads * RG_BLOCK * (values * value_size(kv->type) + runs * scale_size(kv->type));
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Find where the first of a position's k and v units are, in a part that is laid out as K and V are. */
static void find(const rg_kv *kv, int head, int position, size_t k, size_t v, size_t at[2])
{
    size_t h = (size_t)head, i = (size_t)position, n = (size_t)kv->n_heads;

    at[0] = kv->latent ? i * (k + v) : h * k * RG_BLOCK + i;
    at[1] = kv->latent ? at[0] + k : (n * k + h * v) * RG_BLOCK + i * v;
}

/* The place of a position in a closed part. */
static rg_kv_place closed_at(const rg_kv *kv, uint8_t *part, int head, int position)
{
    size_t h = (size_t)head, i = (size_t)position, n = (size_t)kv->n_heads;
    size_t k_runs = KV4_RUNS * (size_t)kv->k_dim, v_runs = (size_t)rg_kv_runs(rg_kv_v_values(kv));

    if (kv->latent) {
        size_t first = (size_t)rg_kv_runs(kv->v_dim);
        uint8_t *row = part + i * (first + v_runs) * KV4_BYTES;
        return (rg_kv_place){ .k = row, .v = row + first * KV4_BYTES };
    }
    return (rg_kv_place){ .k = part + h * k_runs * KV4_BYTES,
                          .v = part + (n * k_runs + (h * RG_BLOCK + i) * v_runs) * KV4_BYTES };
}

rg_kv_place rg_kv_at(const rg_kv *kv, uint8_t *part, int head, int position)
{
    int k = rg_kv_k_values(kv), v = rg_kv_v_values(kv);
    size_t size = value_size(kv->type), at[2];
    rg_kv_place p = { 0 };

    if (rg_kv_has_open(kv))
        return closed_at(kv, part, head, position);
    find(kv, head, position, (size_t)k, (size_t)v, at);
    p.k = part + at[0] * size;
    p.v = part + at[1] * size;
    if (scale_size(kv->type)) {
        uint16_t *scales = (uint16_t *)(void *)(part + (size_t)kv->n_heads * RG_BLOCK * (size_t)(k + v) * size);

        find(kv, head, position, (size_t)rg_kv_runs(k), (size_t)rg_kv_runs(v), at);
        p.k_scales = scales + at[0];
        p.v_scales = scales + at[1];
    }
    return p;
}

static void copy(void *to, const void *from, size_t n, size_t stride, size_t size)
{
    for (size_t i = 0; i < n; i++)
        memmove((uint8_t *)to + i * stride * size, (const uint8_t *)from + i * stride * size, size);
}

void rg_kv_copy(const rg_kv *kv, rg_kv_place from, rg_kv_place to)
{
    size_t k = (size_t)rg_kv_k_values(kv), v = (size_t)rg_kv_v_values(kv), stride = rg_kv_k_stride(kv);
    size_t size = value_size(kv->type);

    RG_ASSERT(!rg_kv_has_open(kv));
    copy(to.k, from.k, k, stride, size);
    copy(to.v, from.v, 1, 1, v * size);
    if (from.k_scales) {
        copy(to.k_scales, from.k_scales, (size_t)rg_kv_runs(rg_kv_k_values(kv)), stride, sizeof(uint16_t));
        copy(to.v_scales, from.v_scales, 1, 1, (size_t)rg_kv_runs(rg_kv_v_values(kv)) * sizeof(uint16_t));
    }
}

/* ---- q4 ---------------------------------------------------------------------------------------------------------- */

rg_kv rg_kv_open(const rg_kv *kv)
{
    rg_kv open = *kv;

    if (rg_kv_has_open(kv)) {
        open.type = RG_F32;
        open.group = kv->open_group;
        open.offset = kv->open_offset;
    }
    return open;
}

void rg_kv_close(const rg_kv *kv, const uint8_t *open, uint8_t *closed)
{
    for (int h = 0; h < kv->n_heads; h++)
        kv4_close(kv, h, open, closed);
}
