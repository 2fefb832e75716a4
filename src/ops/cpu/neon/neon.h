/* neon.h -- what the files of this folder share.
 *
 * Compiled for 64-bit Arm, where NEON is always there; what dotprod.c needs besides, cpu.c has found.  A panel's 16
 * rows are four vectors: part p holds rows 4p .. 4p + 3. */
#ifndef RG_OPS_CPU_NEON_H
#define RG_OPS_CPU_NEON_H

#include <arm_neon.h>

#include "ops/cpu/runs.h"

void rg_neon_init_exact(rg_cpu *k);        /* the exact recipe */
void rg_neon_init_fast_plain(rg_cpu *k);   /* the int8 recipe */
void rg_neon_init_fast_dotprod(rg_cpu *k); /* the int8 recipe, and its peak */
void rg_neon_init_unfold(rg_cpu *k);
void rg_neon_init_probe(rg_cpu *k);        /* peak and bandwidth */

typedef float32x4_t vec;
typedef uint8x16_t bytes;
enum { WIDTH = 4 };

/* x in every lane; a * b + c, rounded once. */
ALWAYS_INLINE float32x4_t splat(float x)
{
    return vdupq_n_f32(x);
}

/* The float at x in every lane. */
ALWAYS_INLINE float32x4_t splat_at(const void *x)
{
    return vld1q_dup_f32(x);
}

ALWAYS_INLINE float32x4_t fused(float32x4_t a, float32x4_t b, float32x4_t c)
{
    return vfmaq_f32(c, a, b);
}

ALWAYS_INLINE bool any_nan(float32x4_t v)
{
    return vminvq_u32(vceqq_f32(v, v)) == 0;
}

/* 4 values to f32: exact. */
ALWAYS_INLINE float32x4_t load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

ALWAYS_INLINE float32x4_t load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

ALWAYS_INLINE float32x4_t load_i8(const int8_t *p)
{
    int32_t v;

    __builtin_memcpy(&v, p, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(v))))));
}

ALWAYS_INLINE float32x4_t load_u8(const uint8_t *p)
{
    uint32_t v;

    __builtin_memcpy(&v, p, 4);
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(v))))));
}

/* Bits [from, from + n) of each byte. */
ALWAYS_INLINE float32x4_t load_bits(const uint8_t *p, int from, int n)
{
    uint32_t v;

    __builtin_memcpy(&v, p, 4);
    v = v >> from & 0x01010101u * ((1u << n) - 1);
    return vcvtq_f32_u32(vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(v))))));
}

/* 2^(e - 128); below 2^-126 it is subnormal: a shifted bit. */
ALWAYS_INLINE float32x4_t load_e8m0(const uint8_t *p)
{
    uint32_t four;

    __builtin_memcpy(&four, p, 4);
    const uint32x4_t e = vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)))));
    const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
    const uint32x4_t small = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));

    return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), small, normal));
}

/* 2^-8 of 4 floats of e4m3, but for NaN: their bits are those of an f16 2^8 times smaller, with two more bits of
 * exponent and seven more of mantissa. */
ALWAYS_INLINE float32x4_t load_e4m3_small(const uint8_t *p)
{
    int32_t four;

    __builtin_memcpy(&four, p, 4);
    const int16x4_t wide = vshl_n_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)))), 7);

    return vcvt_f32_f16(vreinterpret_f16_u16(vand_u16(vreinterpret_u16_s16(wide), vdup_n_u16(0xbfff))));
}

/* One of 64 floats of e4m3 is NaN. */
ALWAYS_INLINE bool any_e4m3_nan(const uint8_t *p)
{
    const uint8x16_t a = vandq_u8(vld1q_u8(p), vdupq_n_u8(0x7f)), b = vandq_u8(vld1q_u8(p + 16), vdupq_n_u8(0x7f));
    const uint8x16_t c = vandq_u8(vld1q_u8(p + 32), vdupq_n_u8(0x7f)), d = vandq_u8(vld1q_u8(p + 48), vdupq_n_u8(0x7f));

    return vmaxvq_u8(vmaxq_u8(vmaxq_u8(a, b), vmaxq_u8(c, d))) == 0x7f;
}

ALWAYS_INLINE float32x4_t load_e4m3(const uint8_t *p)
{
    const uint32x4_t is_nan = { (p[0] | 0x80) == 0xff ? ~0u : 0, (p[1] | 0x80) == 0xff ? ~0u : 0,
                                (p[2] | 0x80) == 0xff ? ~0u : 0, (p[3] | 0x80) == 0xff ? ~0u : 0 };

    return vbslq_f32(is_nan, vdupq_n_f32(__builtin_nanf("")), load_e4m3_small(p) * 256.0f);
}

/* Columns 4i .. 4i + 3 of one part of a run, from its bytes q; in a plane of fewer than 8 bits, later groups are the
 * upper bits of the first ones. */
ALWAYS_INLINE uint8x16_t run_codes(rg_layout layout, const uint8_t *q, int i, int part)
{
    const int bits = rg_layout_bits(layout), low = rg_layout_low_bits(layout), high = bits - low;
    uint8x16_t v = vld1q_u8(q + 64 * (i % low) + 16 * part), more;

    if (bits == 8)
        return v;
    v = vshlq_u8(v, vdupq_n_s8((int8_t)(-(i / low * low))));
    if (high) { /* what the mask chooses from v, the rest from the other plane */
        more = vld1q_u8(q + 64 * (low + i % high) + 16 * part);
        v = vbslq_u8(vdupq_n_u8((uint8_t)((1 << low) - 1)), v,
                     vshlq_u8(more, vdupq_n_s8((int8_t)(low - i / high * high))));
    }
    return vandq_u8(v, vdupq_n_u8((uint8_t)((1 << bits) - 1)));
}

/* Column k of a run in the lowest bits of every lane, the others 0. */
ALWAYS_INLINE uint8x16_t column_codes(rg_layout layout, const uint8_t *q, int k, int part)
{
    const int bits = rg_layout_bits(layout), low = rg_layout_low_bits(layout), high = bits - low, i = k / 4;
    uint32x4_t v = vreinterpretq_u32_u8(vld1q_u8(q + 64 * (i % low) + 16 * part)), more;

    v = vandq_u32(vshlq_u32(v, vdupq_n_s32(-(k % 4 * 8 + i / low * low))), vdupq_n_u32((1u << low) - 1));
    if (high) {
        more = vreinterpretq_u32_u8(vld1q_u8(q + 64 * (low + i % high) + 16 * part));
        more = vandq_u32(vshlq_u32(more, vdupq_n_s32(-(k % 4 * 8 + i / high * high))), vdupq_n_u32((1u << high) - 1));
        v = vorrq_u32(v, vshlq_u32(more, vdupq_n_s32(low)));
    }
    return vreinterpretq_u8_u32(v);
}

/* A panel's table: as it is, byte by byte, and as integers. */
typedef struct book {
    uint8x16x4_t value;
    uint8x16_t byte;
} book;

ALWAYS_INLINE book load_book(rg_layout layout, const uint8_t *panel)
{
    const rg_table *t = (const void *)panel;
    book r = { 0 };

    for (int i = 0; has_table(layout) && i < 4; i++)
        r.value.val[i] = vld1q_u8((const uint8_t *)(const void *)(t->value + 4 * i));
    if (has_table(layout))
        r.byte = vld1q_u8(t->byte);
    return r;
}

/* What is multiplied, signed: integers of 8 bits less 128, smaller ones as they are. */
ALWAYS_INLINE int8x16_t run_group(rg_layout layout, const book *t, const uint8_t *q, int i, int part)
{
    const uint8x16_t codes = run_codes(layout, q, i, part);

    if (factor_bits(layout) < 8)
        return vreinterpretq_s8_u8(codes);
    return vreinterpretq_s8_u8(veorq_u8(has_table(layout) ? vqtbl1q_u8(t->byte, codes) : codes, vdupq_n_u8(128)));
}

ALWAYS_INLINE float32x4_t weights(rg_layout layout, const book *t, uint8x16_t group, int k)
{
    const uint32x4_t v =
        vandq_u32(vshlq_u32(vreinterpretq_u32_u8(group), vdupq_n_s32(-8 * k)), vdupq_n_u32(255));

    if (has_table(layout)) { /* four bytes at 4 times the code */
        const uint32x4_t at = vmlaq_u32(vdupq_n_u32(0x03020100), v, vdupq_n_u32(0x04040404));
        return vreinterpretq_f32_u8(vqtbl4q_u8(t->value, vreinterpretq_u8_u32(at)));
    }
    return vcvtq_f32_s32(vsubq_s32(vreinterpretq_s32_u32(v), vdupq_n_s32(offset_of(layout))));
}

#include "ops/cpu/panel_tmpl.h"

#endif
