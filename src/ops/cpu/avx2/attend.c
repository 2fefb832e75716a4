/* attend.c -- attention over one block of 64 keys.
 *
 * Scores: 64 keys are eight vectors, K lies as [dim][64], so a dimension is one broadcast and eight multiply-adds.
 * Values: eight vectors of the output stay in registers while the keys go by.  exp and tanh are math.h's, vectorized by
 * the compiler. */
#include "ops/cpu/avx2/avx2.h"
#include "ops/cpu/softmax.h"
#include "ops/kv4.h"

enum {
    QUERIES = 1,
    OUT = 8,  /* vectors of the output at once */
    SUMS = 8, /* of latents */
};

#include "ops/cpu/latent_tmpl.h"

/* 8 values of q4 from the i-th on: i is a multiple of 8. */
ALWAYS_INLINE __m256 stored_q4(const uint8_t *p, size_t i)
{
    const uint8_t *run = p + i / RG_KV_RUN * KV4_BYTES;
    const size_t at = i % RG_KV_RUN;
    uint16_t h[2];
    __m256i q = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)(run + 4 + at % 16)));

    memcpy(h, run, sizeof h);
    q = at < 16 ? _mm256_and_si256(q, _mm256_set1_epi32(15)) : _mm256_srli_epi32(q, 4);
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(q), _mm256_set1_ps(_cvtsh_ss(h[0])), _mm256_set1_ps(_cvtsh_ss(h[1])));
}

/* 8 stored values from the i-th on; of q8 they have yet to be multiplied by their scales. */
ALWAYS_INLINE __m256 stored(const void *p, rg_type type, size_t i)
{
    if (type == RG_F32)
        return _mm256_loadu_ps((const float *)p + i);
    if (type == RG_I8)
        return load_i8((const int8_t *)p + i);
    if (type == RG_Q4_1)
        return stored_q4(p, i);
    return type == RG_F16 ? load_f16((const uint16_t *)p + i) : load_bf16((const uint16_t *)p + i);
}

ALWAYS_INLINE float stored_one(const void *p, rg_type type, size_t i)
{
    if (type == RG_F32)
        return ((const float *)p)[i];
    if (type == RG_I8)
        return ((const int8_t *)p)[i];
    if (type == RG_Q4_1)
        return kv4_value((const uint8_t *)p + i / RG_KV_RUN * KV4_BYTES, (int)(i % RG_KV_RUN));
    return type == RG_F16 ? _cvtsh_ss(((const uint16_t *)p)[i]) : rg_float_of((uint32_t)((const uint16_t *)p)[i] << 16);
}

ALWAYS_INLINE void scores(const rg_attend *a, rg_type type, const float *const *qs, int n, float (*p)[RG_BLOCK])
{
    _Alignas(64) float k_scale[RG_BLOCK] = { 0 }; /* of q8 */
    const float *query = qs[0];
    rg_coming coming = rg_coming_from(a, type, 0, RG_BLOCK);
    __m256 s[8];

    (void)n;
    for (int i = 0; i < 8; i++)
        s[i] = _mm256_setzero_ps();
    if (type == RG_I8)
        rg_fetch_next_scales(a);
    for (int d = 0; d < a->k_dim; d++) {
        const __m256 q = _mm256_set1_ps(query[d]);
        if (type == RG_I8 && d % RG_KV_RUN == 0)
            for (int i = 0; i < 8; i++)
                _mm256_store_ps(k_scale + 8 * i, load_bf16(a->k_scales + d / RG_KV_RUN * RG_BLOCK + 8 * i));
        rg_fetch_next(&coming);
#pragma GCC unroll 8
        for (int i = 0; i < 8; i++) {
            __m256 k = stored(a->k, type, (size_t)(d * RG_BLOCK + 8 * i));
            k = type == RG_I8 ? _mm256_mul_ps(k, _mm256_load_ps(k_scale + 8 * i)) : k;
            s[i] = _mm256_fmadd_ps(q, k, s[i]);
        }
    }
    for (int i = 0; i < 8; i++)
        _mm256_store_ps(p[0] + 8 * i, _mm256_mul_ps(s[i], _mm256_set1_ps(a->scale)));
}

ALWAYS_INLINE void latent_scores(const rg_attend *a, float (*p)[RG_BLOCK])
{
    _Alignas(64) float sum[RG_BLOCK][RG_PANEL];

    latent_sums(a, sum);
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < RG_BLOCK; j++)
            p[i][j] = sum[j][i];
}

/* The scale of key j and dimension d. */
ALWAYS_INLINE float v_scale(const rg_attend *a, int j, int d)
{
    return rg_float_of((uint32_t)a->v_scales[j * rg_kv_runs(a->v_dim) + d / RG_KV_RUN] << 16);
}

/* Dimensions [first, first + 8 n) of the output; n is a constant. */
ALWAYS_INLINE void some_values(const rg_attend *a, rg_type type, const float *p, float c, float *o, int first, int n)
{
    const size_t each = 8 * (size_t)n;
    rg_coming coming = rg_coming_from(a, type, (size_t)(a->k_dim + first) * RG_BLOCK / each, each);
    __m256 out[OUT];

#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        out[i] = _mm256_mul_ps(_mm256_loadu_ps(o + first + 8 * i), _mm256_set1_ps(c));
    RG_EACH_SEEN(j, a->seen) {
        const size_t row = (size_t)j * (size_t)a->v_stride + (size_t)first;
        const __m256 w = _mm256_set1_ps(p[j]);
        rg_fetch_next(&coming);
#pragma GCC unroll 8
        for (int i = 0; i < n; i++) { /* of more than one vector, the first begins a run */
            __m256 v = stored(a->v, type, row + (size_t)(8 * i));
            v = type == RG_I8 ? _mm256_mul_ps(v, _mm256_set1_ps(v_scale(a, j, first + i / 4 * RG_KV_RUN))) : v;
            out[i] = _mm256_fmadd_ps(w, v, out[i]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < n; i++)
        _mm256_storeu_ps(o + first + 8 * i, out[i]);
}

ALWAYS_INLINE void values(const rg_attend *a, rg_type type, int n, float (*ps)[RG_BLOCK], const float *cs,
                          rg_softmax *s)
{
    const float *p = ps[0], c = cs[0];
    float *o = s->o;
    int d = 0;

    (void)n;
    for (; d + 8 * OUT <= a->v_dim; d += 8 * OUT)
        some_values(a, type, p, c, o, d, OUT);
    for (; d + 8 <= a->v_dim; d += 8)
        some_values(a, type, p, c, o, d, 1);
    for (; d < a->v_dim; d++) {
        float out = o[d] * c;
        RG_EACH_SEEN(j, a->seen) {
            float v = stored_one(a->v, type, (size_t)j * (size_t)a->v_stride + (size_t)d);
            out = __builtin_fmaf(p[j], type == RG_I8 ? v * v_scale(a, j, d) : v, out);
        }
        o[d] = out;
    }
}

#include "ops/cpu/attend_tmpl.h"

void rg_avx2_attend(const rg_attend *a, rg_softmax *s)
{
    attend(a, s);
}
