/* quant.c -- the table of formats.def, and half precision by integers so that every machine gives the same bits. */
#include "quant/quant.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "quant/bf16.h"
#include "quant/f16.h"
#include "quant/f32.h"
#include "quant/f64.h"
#include "quant/float8.h"
#include "quant/fp8.h"
#include "quant/i16.h"
#include "quant/i32.h"
#include "quant/i64.h"
#include "quant/i8.h"
#include "quant/iq1_m.h"
#include "quant/iq1_s.h"
#include "quant/iq2_s.h"
#include "quant/iq2_xs.h"
#include "quant/iq2_xxs.h"
#include "quant/iq3_s.h"
#include "quant/iq3_xxs.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/nf4.h"
#include "quant/nvfp4.h"
#include "quant/nvfp4_2.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/tq1_0.h"
#include "quant/tq2_0.h"
#include "quant/truth.h"
#include "quant/u16.h"
#include "quant/u32.h"
#include "quant/u64.h"
#include "quant/u8.h"
#include "quant/zero_point.h"

static const rg_format formats[RG_TYPE_COUNT] = {
#define FORMAT(NAME, file, text, gguf, st, len, bytes, packed)                                                         \
    [RG_##NAME] = { text, gguf, st, len, bytes, RG_LAYOUT_##packed, file##_decode, file##_encode, file##_ints },
#include "quant/formats.def"
#undef FORMAT
};

_Static_assert(sizeof(block_q4_0) == 18 && sizeof(block_q4_1) == 20 && sizeof(block_q5_0) == 22, "as published");
_Static_assert(sizeof(block_q5_1) == 24 && sizeof(block_q8_0) == 34 && sizeof(block_q2_k) == 84, "as published");
_Static_assert(sizeof(block_q3_k) == 110 && sizeof(block_q4_k) == 144 && sizeof(block_q5_k) == 176, "as published");
_Static_assert(sizeof(block_q6_k) == 210 && sizeof(block_iq4_nl) == 18 && sizeof(block_iq4_xs) == 136, "as published");
_Static_assert(sizeof(block_tq1_0) == 54 && sizeof(block_tq2_0) == 66, "as published");
_Static_assert(sizeof(block_iq1_s) == 50 && sizeof(block_iq1_m) == 56 && sizeof(block_iq2_xxs) == 66, "as published");
_Static_assert(sizeof(block_iq2_xs) == 74 && sizeof(block_iq2_s) == 82 && sizeof(block_iq3_xxs) == 98, "as published");
_Static_assert(sizeof(block_iq3_s) == 110, "as published");
_Static_assert(sizeof(block_mxfp4) == 17 && sizeof(block_nvfp4) == 36, "as published");

/* Quantizers that let values weigh differently; types that are not here have codes that do not depend on it. */
static void (*const weighted[RG_TYPE_COUNT])(const float *x, const float *by, int64_t n_blocks, void *blocks) = {
    [RG_Q4_0] = q4_0_weighted,       [RG_Q4_1] = q4_1_weighted,     [RG_Q5_0] = q5_0_weighted,
    [RG_Q5_1] = q5_1_weighted,       [RG_Q2_K] = q2_k_weighted,     [RG_Q3_K] = q3_k_weighted,
    [RG_Q4_K] = q4_k_weighted,       [RG_Q5_K] = q5_k_weighted,     [RG_Q6_K] = q6_k_weighted,
    [RG_IQ1_S] = iq1_s_weighted,     [RG_IQ1_M] = iq1_m_weighted,   [RG_IQ2_XXS] = iq2_xxs_weighted,
    [RG_IQ2_XS] = iq2_xs_weighted,   [RG_IQ2_S] = iq2_s_weighted,   [RG_IQ3_XXS] = iq3_xxs_weighted,
    [RG_IQ3_S] = iq3_s_weighted,     [RG_IQ4_NL] = iq4_nl_weighted, [RG_IQ4_XS] = iq4_xs_weighted,
};

void rg_encode_weighted(rg_type type, const float *x, const float *importance, int64_t n_blocks, void *blocks)
{
    if (importance && weighted[type])
        weighted[type](x, importance, n_blocks, blocks);
    else
        rg_format_of(type)->encode(x, n_blocks, blocks);
}

/* The types whose codes are vectors of a grid. */
typedef struct gridded {
    void (*load)(const void *block, rg_vectors *out);
    const vector_grid *grid;
} gridded;

static gridded gridded_of(rg_type type)
{
    switch (type) {
#define GRIDDED(NAME, file) case RG_##NAME: return (gridded){ file##_load, &file##_vectors };
    GRIDDED(IQ1_S, iq1_s)
    GRIDDED(IQ1_M, iq1_m)
    GRIDDED(IQ2_XXS, iq2_xxs)
    GRIDDED(IQ2_XS, iq2_xs)
    GRIDDED(IQ2_S, iq2_s)
    GRIDDED(IQ3_XXS, iq3_xxs)
#undef GRIDDED
    default:
        RG_ASSERT(type == RG_IQ3_S);
        return (gridded){ iq3_s_load, &iq3_s_vectors };
    }
}

void rg_vectors_load(rg_type type, const void *block, rg_vectors *out)
{
    gridded_of(type).load(block, out);
}

void rg_vectors_ints(rg_type type, const rg_vectors *v, rg_ints *out)
{
    vectors_ints(gridded_of(type).grid, v, out);
}

enum { MOST_ENTRIES = 2048 };

static pthread_once_t grids_once = PTHREAD_ONCE_INIT;
static uint32_t grids[RG_IQ3_S - RG_IQ1_S + 1][MOST_ENTRIES];

static void spread_grids(void)
{
    for (int type = RG_IQ1_S; type <= RG_IQ3_S; type++) {
        const vector_grid *g = gridded_of((rg_type)type).grid;

        for (int e = 0; e < g->n; e++)
            for (int i = 0; i < g->len; i++) {
                const uint32_t code = (uint32_t)(g->entry[e] >> i * g->bits & ((1 << g->bits) - 1));
                grids[type - RG_IQ1_S][e] |= code << (i % 4 * 8 + i / 4 * 4);
            }
    }
}

const uint32_t *rg_grid_of(rg_type type)
{
    RG_ASSERT(type >= RG_IQ1_S && type <= RG_IQ3_S);
    pthread_once(&grids_once, spread_grids);
    return grids[type - RG_IQ1_S];
}

const char *rg_layout_name(rg_layout layout)
{
    static const char *const names[RG_LAYOUT_COUNT] = {
        [RG_LAYOUT_NONE] = "none", [RG_LAYOUT_F32] = "f32", [RG_LAYOUT_F16] = "f16", [RG_LAYOUT_BF16] = "bf16",
        [RG_LAYOUT_Q4] = "q4", [RG_LAYOUT_Q8] = "q8", [RG_LAYOUT_Q4M] = "q4m", [RG_LAYOUT_Q5] = "q5",
        [RG_LAYOUT_Q5M] = "q5m", [RG_LAYOUT_K4] = "k4", [RG_LAYOUT_K5] = "k5", [RG_LAYOUT_K2] = "k2",
        [RG_LAYOUT_K3] = "k3", [RG_LAYOUT_K6] = "k6", [RG_LAYOUT_T4] = "t4", [RG_LAYOUT_T4E] = "t4e",
        [RG_LAYOUT_T4F] = "t4f", [RG_LAYOUT_T4N] = "t4n", [RG_LAYOUT_TK4] = "tk4", [RG_LAYOUT_TK4H] = "tk4h",
        [RG_LAYOUT_Z4] = "z4", [RG_LAYOUT_Z4W] = "z4w", [RG_LAYOUT_Z8] = "z8", [RG_LAYOUT_Z8W] = "z8w",
        [RG_LAYOUT_Q2] = "q2", [RG_LAYOUT_F8] = "f8", [RG_LAYOUT_F32W] = "f32w", [RG_LAYOUT_F16W] = "f16w",
        [RG_LAYOUT_BF16W] = "bf16w", [RG_LAYOUT_Q1] = "q1", [RG_LAYOUT_G1] = "g1", [RG_LAYOUT_G1M] = "g1m",
        [RG_LAYOUT_G2] = "g2", [RG_LAYOUT_G2H] = "g2h", [RG_LAYOUT_G2S] = "g2s", [RG_LAYOUT_G3] = "g3",
        [RG_LAYOUT_G3S] = "g3s",
    };

    return names[layout];
}

const rg_format *rg_format_of(rg_type type)
{
    RG_ASSERT((unsigned)type < RG_TYPE_COUNT);
    return &formats[type];
}

void rg_ints_put(rg_type type, const rg_ints *ints, void *block)
{
    switch (type) {
    case RG_MXFP4:
        mxfp4_put(ints, block);
        break;
    case RG_NVFP4_2:
        nvfp4_2_put(ints, block);
        break;
    case RG_FP8:
        fp8_put(ints, block);
        break;
    case RG_NF4:
    case RG_FP4:
        nf4_put(ints, block);
        break;
    default:
        RG_ASSERT(type == RG_ZP4 || type == RG_ZP4_128 || type == RG_ZP8 || type == RG_ZP8_128);
        zero_point_put(ints, type == RG_ZP4 || type == RG_ZP4_128, formats[type].block_len, block);
    }
}

bool rg_type_by_name(const char *name, rg_type *type)
{
    for (int i = 0; i < RG_TYPE_COUNT; i++)
        if (!strcasecmp(formats[i].name, name))
            return *type = (rg_type)i, true;
    return false;
}

bool rg_type_by_gguf(uint32_t id, rg_type *type)
{
    for (int i = 0; i < RG_TYPE_COUNT; i++)
        if (id != RG_NO_GGUF && formats[i].gguf_id == id)
            return *type = (rg_type)i, true;
    return false;
}

bool rg_type_by_safetensors(const char *name, rg_type *type)
{
    for (int i = 0; i < RG_TYPE_COUNT; i++)
        if (formats[i].safetensors && !strcmp(formats[i].safetensors, name))
            return *type = (rg_type)i, true;
    return false;
}

char *rg_type_names(bool gguf, char out[RG_TYPE_NAMES])
{
    int n = 0;

    out[0] = 0;
    for (int i = 0; i < RG_TYPE_COUNT && n < RG_TYPE_NAMES; i++) {
        const char *name = !gguf ? formats[i].safetensors : formats[i].gguf_id == RG_NO_GGUF ? NULL : formats[i].name;
        if (name)
            n += snprintf(out + n, (size_t)(RG_TYPE_NAMES - n), "%s%s", n ? ", " : "", name);
    }
    return out;
}

bool rg_row_bytes(rg_type type, int64_t n, uint64_t *bytes)
{
    const rg_format *f = rg_format_of(type);

    if (n < 0 || n % f->block_len)
        return false;
    return rg_mul((uint64_t)(n / f->block_len), (uint64_t)f->block_bytes, bytes);
}

static float float_of(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

float rg_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 0x3ff;

    if (exponent == 31)
        return float_of(sign | 0x7f800000u | mantissa << 13);
    if (exponent)
        return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    if (!mantissa)
        return float_of(sign);
    /* Subnormal: shift the leading one out, to bit 10; a shift by k lowers the exponent of 2^-14 by k. */
    int shift = __builtin_clz(mantissa) - 21;
    return float_of(sign | (uint32_t)(113 - shift) << 23 | (mantissa << shift & 0x3ff) << 13);
}

/* v >> shift to nearest, ties to even; 1 <= shift <= 31. */
static uint32_t shift_rounded(uint32_t v, int shift)
{
    uint32_t half = 1u << (shift - 1);

    return (v + half - 1 + (v >> shift & 1)) >> shift;
}

uint16_t rg_f32_to_f16(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;

    if (rest > 0x7f800000u) /* NaN: quiet, with the upper bits of its payload */
        return (uint16_t)(sign | 0x7e00 | (rest >> 13 & 0x3ff));
    if (rest >= 0x47800000u) /* 2^16 and above */
        return (uint16_t)(sign | 0x7c00);
    if (rest >= 0x38800000u) /* normal; a carry runs into the exponent, and up to infinity, as it should */
        return (uint16_t)(sign | (shift_rounded(rest, 13) - (112u << 10)));
    if (rest < 0x33000000u) /* below 2^-25: zero */
        return (uint16_t)sign;
    return (uint16_t)(sign | shift_rounded((rest & 0x7fffff) | 0x800000, 126 - (int)(rest >> 23)));
}

float rg_bf16_to_f32(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}

uint16_t rg_f32_to_bf16(float x)
{
    uint32_t bits = bits_of(x);

    if ((bits & 0x7fffffff) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_rounded(bits, 16);
}

float rg_e8m0_half_to_f32(uint8_t e)
{
    return float_of(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Eight bits of a float: sign, exponent, n_mantissa bits; bias: of the exponent. */
static float float8_to_f32(uint8_t v, int n_mantissa, int bias)
{
    int exponent = (v & 0x7f) >> n_mantissa, mantissa = v & ((1 << n_mantissa) - 1);
    float x = exponent ? ldexpf((float)(mantissa | 1 << n_mantissa), exponent - bias - n_mantissa)
                       : ldexpf((float)mantissa, 1 - bias - n_mantissa);

    return v & 0x80 ? -x : x;
}

float rg_e4m3_to_f32(uint8_t v)
{
    return (v & 0x7f) == 0x7f ? NAN : float8_to_f32(v, 3, 7);
}

float rg_e5m2_to_f32(uint8_t v)
{
    return rg_f16_to_f32((uint16_t)(v << 8));
}

uint8_t rg_f32_to_e4m3(float x)
{
    const uint8_t sign = (uint8_t)(bits_of(x) >> 31 << 7), most = 0x7e;
    const uint32_t bits = bits_of(x) & 0x7fffffff;
    const int exponent = (int)(bits >> 23) - 127 + 7;
    uint32_t code;

    if (isnan(x))
        return sign | 0x7f;
    if (exponent > 15)
        code = most;
    else if (exponent > 0) /* normal; a carry runs into the exponent, as it should */
        code = shift_rounded(bits, 20) - ((uint32_t)(127 - 7) << 3);
    else if (exponent < -3)
        code = 0; /* below half of the least code */
    else
        code = shift_rounded((bits & 0x7fffff) | 0x800000, 21 - exponent);
    return sign | (code > most ? most : (uint8_t)code);
}
