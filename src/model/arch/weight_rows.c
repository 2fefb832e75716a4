/* weight_rows.c -- see weight_rows.h. */
#include "model/arch/weight_rows.h"

#include <math.h>
#include <string.h>

bool when_untied(const rg_config *c, int layer)
{
    (void)layer;
    return !c->tie_embeddings;
}

bool when_attn_bias(const rg_config *c, int layer)
{
    (void)layer;
    return c->attn_bias;
}

bool when_own_kv(const rg_config *c, int layer)
{
    return c->layer[layer].kv_layer < 0;
}

bool when_own_kv_bias(const rg_config *c, int layer)
{
    return c->attn_bias && when_own_kv(c, layer);
}

bool when_o_bias(const rg_config *c, int layer)
{
    (void)layer;
    return c->o_bias;
}

bool when_mlp_bias(const rg_config *c, int layer)
{
    (void)layer;
    return c->mlp_bias;
}

bool when_rope_factors(const rg_config *c, int layer)
{
    (void)layer;
    return c->rope_factors;
}

bool when_shared(const rg_config *c, int layer)
{
    (void)layer;
    return c->n_shared_experts > 0;
}

void load_plus_one(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[i] + 1.0f;
}

/* Of each K/V head's rows (its query heads, key and value), `count` heads from the `first` on. */
static void rows_of_groups(const rg_config *c, const float *src, float *dst, int64_t n, const int64_t heads[2])
{
    int64_t first = heads[0], count = heads[1], all = c->n_heads / c->n_kv_heads + 2;
    int64_t head = n / (c->n_kv_heads * count); /* values of one head */

    for (int64_t g = 0; g < c->n_kv_heads; g++)
        memcpy(dst + g * count * head, src + (g * all + first) * head, (size_t)(count * head) * sizeof *dst);
}

void load_q_of_groups(const rg_config *c, const float *src, float *dst, int64_t n)
{
    rows_of_groups(c, src, dst, n, (const int64_t[]){ 0, c->n_heads / c->n_kv_heads });
}

void load_k_of_groups(const rg_config *c, const float *src, float *dst, int64_t n)
{
    rows_of_groups(c, src, dst, n, (const int64_t[]){ c->n_heads / c->n_kv_heads, 1 });
}

void load_v_of_groups(const rg_config *c, const float *src, float *dst, int64_t n)
{
    rows_of_groups(c, src, dst, n, (const int64_t[]){ c->n_heads / c->n_kv_heads + 1, 1 });
}

void groups_to_gguf(const rg_config *c, const float *src, float *dst, int64_t n)
{
    int64_t row = n / QKV_DIM(c, 0), of_q = Q_DIM(c, 0) * row, of_k = KV_DIM(c, 0) * row;

    load_q_of_groups(c, src, dst, of_q);
    load_k_of_groups(c, src, dst + of_q, of_k);
    load_v_of_groups(c, src, dst + of_q + of_k, of_k);
}

void load_minus_exp(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)-exp((double)src[i]);
}

void load_flat(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    memcpy(dst, src, (size_t)n * sizeof *dst);
}
