/* weight_rows.c -- see weight_rows.h. */
#include "model/arch/weight_rows.h"

#include <math.h>
#include <string.h>

WHEN(when_untied, !c->tie_embeddings)
WHEN(when_attn_bias, c->attn_bias)
WHEN(when_own_kv, c->layer[layer].kv_layer < 0)
WHEN(when_own_kv_bias, c->attn_bias && when_own_kv(c, layer))
WHEN(when_o_bias, c->o_bias)
WHEN(when_mlp_bias, c->mlp_bias)
WHEN(when_rope_factors, c->rope_factors)
WHEN(when_shared, c->n_shared_experts > 0)

void load_plus_one(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[i] + 1.0f;
}

/* Take heads [first, first + count) from each K/V head's rows, which are those of its query heads, key and value. */
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

void load_negated(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        dst[i] = -src[i];
}

void load_flat(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

const rg_weight_spec decoder_weights[] = { WEIGHTS_DECODER, { 0 } };
const rg_weight_spec decoder_weights_and_freqs[] = { WEIGHTS_DECODER, WEIGHT_ROPE_FREQS, { 0 } };
