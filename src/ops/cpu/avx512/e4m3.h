/* e4m3.h -- codes of e4m3 as bytes of bf16, where the processor looks up bytes in a table of 128.
 *
 * Each value of e4m3 is one of bf16: two lookups give its two bytes, whatever the code, NaN and subnormal numbers too.
 * Included by files that are compiled for VBMI. */
#ifndef RG_OPS_CPU_AVX512_E4M3_H
#define RG_OPS_CPU_AVX512_E4M3_H

#include "ops/cpu/avx512/avx512.h"
#include "quant/quant.h"

/* Bytes of the bf16 that a code without its sign stands for; set once, when the table of kernels is built. */
static uint8_t e4m3_low[128], e4m3_high[128];

static inline void make_e4m3(void)
{
    for (int code = 0; code < 128; code++) {
        const uint16_t bits = rg_f32_to_bf16(rg_e4m3_to_f32((uint8_t)code));

        e4m3_low[code] = (uint8_t)bits;
        e4m3_high[code] = (uint8_t)(bits >> 8);
    }
}

/* Both tables, in registers. */
typedef struct lookup {
    __m512i low[2], high[2];
} lookup;

ALWAYS_INLINE lookup load_e4m3_lookup(void)
{
    return (lookup){ { _mm512_loadu_si512(e4m3_low), _mm512_loadu_si512(e4m3_low + 64) },
                     { _mm512_loadu_si512(e4m3_high), _mm512_loadu_si512(e4m3_high + 64) } };
}

/* The low and the high bytes of 64 codes. */
ALWAYS_INLINE void look_up_codes(const lookup *t, __m512i code, __m512i *lows, __m512i *highs)
{
    *lows = _mm512_permutex2var_epi8(t->low[0], code, t->low[1]);
    *highs = _mm512_ternarylogic_epi32(_mm512_permutex2var_epi8(t->high[0], code, t->high[1]), code,
                                       _mm512_set1_epi8((char)0x80), 0xf8); /* with the code's sign */
}
ALWAYS_INLINE void look_up(const lookup *t, const uint8_t *q, __m512i *lows, __m512i *highs)
{
    look_up_codes(t, _mm512_loadu_si512(q), lows, highs);
}

#endif
