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
void rg_neon_init_probe(rg_cpu *k);        /* peak and bandwidth */

typedef float32x4_t vec;
typedef int8x16_t bytes;
enum { WIDTH = 4 };

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

/* Columns 4i .. 4i + 3 of one part of a run, from its bytes q, signed: nibbles as they are, bytes less 128. */
ALWAYS_INLINE int8x16_t run_group(rg_layout layout, const uint8_t *q, int i, int part)
{
    if (!is_nibbles(layout))
        return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(q + 64 * i + 16 * part), vdupq_n_u8(128)));
    if (i < 4)
        return vreinterpretq_s8_u8(vandq_u8(vld1q_u8(q + 64 * i + 16 * part), vdupq_n_u8(15)));
    return vreinterpretq_s8_u8(vshrq_n_u8(vld1q_u8(q + 64 * (i - 4) + 16 * part), 4));
}

/* Signed bytes leave little of the offset to take off. */
ALWAYS_INLINE float32x4_t weights(rg_layout layout, int8x16_t group, int k)
{
    /* run_group takes 128 off bytes. */
    const int back = layout == RG_LAYOUT_Q4 ? -8 : layout == RG_LAYOUT_Q8M ? 128 : 0;
    int32x4_t v = vshlq_s32(vreinterpretq_s32_s8(group), vdupq_n_s32(24 - 8 * k));

    return vcvtq_f32_s32(vaddq_s32(vshrq_n_s32(v, 24), vdupq_n_s32(back)));
}

#include "ops/cpu/panel_tmpl.h"

#endif
