/* neon.h -- what the files of this folder share.
 *
 * Compiled for 64-bit Arm, where NEON is always there; what dotprod.c needs besides, cpu.c has found.  A panel's 16 rows
 * are four vectors: part p holds rows 4p .. 4p + 3. */
#ifndef RG_OPS_CPU_NEON_H
#define RG_OPS_CPU_NEON_H

#include <arm_neon.h>

#include "ops/cpu/kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

void rg_neon_init_exact(rg_cpu *k);        /* panel_exact */
void rg_neon_init_fast_plain(rg_cpu *k);   /* panel_fast */
void rg_neon_init_fast_dotprod(rg_cpu *k); /* panel_fast, and the int8 peak */
void rg_neon_init_probe(rg_cpu *k);        /* peak and bandwidth */

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

/* Does a layout pack 4 bits, and has it a minimum? */
ALWAYS_INLINE bool is_nibbles(rg_layout layout)
{
    return layout == RG_LAYOUT_Q4 || layout == RG_LAYOUT_Q4M || layout == RG_LAYOUT_K4;
}

ALWAYS_INLINE bool has_minimum(rg_layout layout)
{
    return layout != RG_LAYOUT_Q4 && layout != RG_LAYOUT_Q8;
}

/* The bytes of run b (32 columns) of a panel of any integer layout; `layout` is a constant wherever this is called. */
ALWAYS_INLINE const uint8_t *run_q(rg_layout layout, const uint8_t *panel, int b)
{
    switch (layout) {
    case RG_LAYOUT_Q4: return ((const rg_step_q4 *)(const void *)panel)[b].q[0][0];
    case RG_LAYOUT_Q4M: return ((const rg_step_q4m *)(const void *)panel)[b].q[0][0];
    case RG_LAYOUT_Q8: return ((const rg_step_q8 *)(const void *)panel)[b].q[0][0];
    case RG_LAYOUT_Q8M: return ((const rg_step_q8m *)(const void *)panel)[b].q[0][0];
    case RG_LAYOUT_K4: return ((const rg_step_k4 *)(const void *)panel)[b / 8].q[b % 8][0][0];
    default: return ((const rg_step_k8 *)(const void *)panel)[b / 8].q[b % 8 * 2][0][0];
    }
}

typedef struct rg_scales {
    float32x4_t d, m;
} rg_scales;

/* Scale, and minimum where there is one, of one part of half h of run b (h is 0 unless the layout has 16 columns to a
 * scale). */
ALWAYS_INLINE rg_scales run_scales(rg_layout layout, const uint8_t *panel, int b, int h, int part)
{
    const int at = 4 * part;
    rg_scales r = { vdupq_n_f32(0.0f), vdupq_n_f32(0.0f) };

    if (layout == RG_LAYOUT_Q4) {
        r.d = load_f16(((const rg_step_q4 *)(const void *)panel)[b].d + at);
    } else if (layout == RG_LAYOUT_Q8) {
        r.d = load_f16(((const rg_step_q8 *)(const void *)panel)[b].d + at);
    } else if (layout == RG_LAYOUT_Q4M) {
        r.d = load_f16(((const rg_step_q4m *)(const void *)panel)[b].d + at);
        r.m = load_f16(((const rg_step_q4m *)(const void *)panel)[b].m + at);
    } else if (layout == RG_LAYOUT_Q8M) {
        r.d = load_f16(((const rg_step_q8m *)(const void *)panel)[b].d + at);
        r.m = load_f16(((const rg_step_q8m *)(const void *)panel)[b].m + at);
    } else if (layout == RG_LAYOUT_K4) {
        const rg_step_k4 *s = (const rg_step_k4 *)(const void *)panel + b / 8;
        r.d = vmulq_f32(load_f16(s->d + at), load_i8(s->s[b % 8] + at));
        r.m = vnegq_f32(vmulq_f32(load_f16(s->e + at), load_u8(s->t[b % 8] + at)));
    } else {
        const rg_step_k8 *s = (const rg_step_k8 *)(const void *)panel + b / 8;
        r.d = vmulq_f32(load_f16(s->d + at), load_i8(s->s[b % 8 * 2 + h] + at));
        r.m = vnegq_f32(vmulq_f32(load_f16(s->e + at), load_u8(s->t[b % 8 * 2 + h] + at)));
    }
    return r;
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

#endif
