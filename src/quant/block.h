/* block.h -- what the format files share: little-endian fields, the value of a code, careful rounding.
 *
 * The value_* functions are the definition of a decoded weight: the formats' decode and the packed layouts' decode both
 * call them, one rounding per operation and never fused, and so agree to the bit.  Blocks are bytes, of any alignment.
 * Included by the files of this floor only. */
#ifndef RG_QUANT_BLOCK_H
#define RG_QUANT_BLOCK_H

#include <math.h>
#include <string.h>

#include "quant/quant.h"

static inline uint16_t load16(const uint8_t p[2])
{
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline void store16(uint8_t p[2], uint16_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
}

static inline uint32_t load32(const uint8_t p[4])
{
    return (uint32_t)load16(p) | (uint32_t)load16(p + 2) << 16;
}

static inline void store32(uint8_t p[4], uint32_t v)
{
    store16(p, (uint16_t)v);
    store16(p + 2, (uint16_t)(v >> 16));
}

static inline float loadf(const uint8_t p[4])
{
    uint32_t bits = load32(p);
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline void storef(uint8_t p[4], float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    store32(p, bits);
}

/* 32 codes of 4 bits: the low nibbles are codes 0 .. 15, the high ones the rest; and back. */
static inline void load_nibbles(const uint8_t p[16], uint8_t q[32])
{
    for (int i = 0; i < 16; i++) {
        q[i] = p[i] & 15;
        q[16 + i] = p[i] >> 4;
    }
}

static inline void store_nibbles(uint8_t p[16], const uint8_t q[32])
{
    for (int i = 0; i < 16; i++)
        p[i] = (uint8_t)(q[i] | q[16 + i] << 4);
}

/* Q4, Q5, Q8, Q2: offset 8, 16, 128 or 1; Z4, Z8: the zero point; the scale may be f32. */
static inline float value_scale(float d, int q, int offset)
{
    return d * (float)(q - offset);
}

/* Q4M, Q5M. */
static inline float value_minimum(float d, float m, int q)
{
    float scaled = d * (float)q;

    return scaled + m;
}

/* K2, K4, K5. */
static inline float value_two_level(float d, int s, float e, int t, int q)
{
    float scale = d * (float)s, minimum = e * (float)t, scaled = scale * (float)q;

    return scaled - minimum;
}

/* K3 (offset 4), K6 (offset 32). */
static inline float value_signed_two_level(float d, int s, int q, int offset)
{
    float scale = d * (float)s;

    return scale * (float)(q - offset);
}

/* The layouts with a table; TK4 and TK4H. */
static inline float value_table(float d, float v)
{
    return d * v;
}

static inline float value_table_two_level(float d, int s, float v)
{
    float scale = d * (float)s;

    return scale * v;
}

/* T4N: the scale of 16 values. */
static inline float scale_with_factors(uint8_t e4m3, float a, float b)
{
    float scale = rg_e4m3_to_f32(e4m3) * a;

    return scale / b;
}

/* 256 values from their integers, `run` of them under each scale. */
static inline void decode_two_level(const rg_ints *ints, int run, float *y)
{
    float d = rg_f16_to_f32(ints->d), e = rg_f16_to_f32(ints->e);

    for (int i = 0; i < 256; i++)
        y[i] = value_two_level(d, ints->s[i / run], e, ints->t[i / run], ints->q[i]);
}

/* The same of 16 under each scale, without minima. */
static inline void decode_signed_two_level(const rg_ints *ints, int offset, float *y)
{
    float d = rg_f16_to_f32(ints->d);

    for (int i = 0; i < 256; i++)
        y[i] = value_signed_two_level(d, ints->s[i / 16], ints->q[i], offset);
}

/* The same where they are codes of a table. */
static inline void decode_table_two_level(const rg_ints *ints, int run, float *y)
{
    for (int i = 0; i < 256; i++)
        y[i] = value_table_two_level(ints->f, ints->s[i / run], ints->table[ints->q[i]]);
}

/* Toward zero and into [low, high]; NaN gives low. */
static inline int truncate_into(double v, int low, int high)
{
    if (!(v > (double)low))
        return low;
    return v >= (double)high ? high : (int)v;
}

/* To nearest, ties away from zero, into [low, high]; NaN gives low. */
static inline int round_into(float v, int low, int high)
{
    if (!(v > (float)low))
        return low;
    if (v >= (float)high)
        return high;
    return v < 0.0f ? -(int)(0.5 - (double)v) : (int)((double)v + 0.5);
}

/* The value of largest magnitude, the first of them; its sign matters to the formats whose codes are not symmetric. */
static inline float extreme(const float *x, int n)
{
    float best = 0.0f, most = 0.0f;

    for (int i = 0; i < n; i++) {
        float a = fabsf(x[i]);
        if (a > most) {
            most = a;
            best = x[i];
        }
    }
    return best;
}

static inline void range(const float *x, int n, float *low, float *high)
{
    *low = *high = x[0];
    for (int i = 1; i < n; i++) {
        *low = x[i] < *low ? x[i] : *low;
        *high = x[i] > *high ? x[i] : *high;
    }
}

static inline float reciprocal(float d)
{
    return d == 0.0f ? 0.0f : 1.0f / d;
}

#endif
