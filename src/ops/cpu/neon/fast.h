/* fast.h -- the fast recipe: 16 rows of integer weights by m rows of int8 activations; and sketches.
 *
 * Included by plain.c and dotprod.c, which define TARGET, what the functions are compiled for, and add_dot: four int32
 * sums of four products of signed bytes each.  Those are exact: |sum| <= 32 * 128 * 128 < 2^20.  What the weights'
 * offset still owes is added before the sum becomes a float. */
#ifndef RG_OPS_CPU_NEON_FAST_H
#define RG_OPS_CPU_NEON_FAST_H

#include "ops/cpu/neon/neon.h"
#include "ops/cpu/sketch.h"

enum { TILE = 2 }; /* rows at once: 8 sums in flight, 8 results, 4 vectors of weights */

/* What the sum of a run (or half h of it) owes: integers of 8 bits stand there less 128, smaller ones as they are.
 * z: the zero points. */
TARGET ALWAYS_INLINE int32x4_t owed(rg_layout layout, float32x4_t z, const rg_xblock *x, int h)
{
    const int32_t sum = -(n_halves_of(layout) == 2 ? x->neg128h[h] / 128 : x->neg8 / 8);
    const int back = (factor_bits(layout) < 8 ? 0 : 128) - offset_of(layout);

    if (has_zero(layout))
        return vmulq_n_s32(vsubq_s32(vdupq_n_s32(back), vcvtq_s32_f32(z)), sum);
    return vdupq_n_s32(back * sum);
}

TARGET ALWAYS_INLINE int8x16_t four(const int8_t *x)
{
    int32_t v;

    __builtin_memcpy(&v, x, 4);
    return vreinterpretq_s8_s32(vdupq_n_s32(v));
}

/* n_rows rows of x, a constant, over the whole panel. */
TARGET ALWAYS_INLINE void rows(rg_layout layout, const uint8_t *panel, int n, const rg_xblock *x, size_t ldx,
                               int n_rows, float *y, size_t ldy)
{
    const int n_halves = n_halves_of(layout), n_groups = 8 / n_halves;
    const book t = load_book(layout, panel);
    float32x4_t acc[TILE][4];

    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < 4; p++)
            acc[r][p] = vdupq_n_f32(0.0f);
    for (int b = 0; b < n * n_halves; b++) {
        const int run = b / n_halves, h = b % n_halves;
        const uint8_t *q = run_q(layout, panel, run);
        int32x4_t sum[TILE][4];

        for (int r = 0; r < n_rows; r++)
            for (int p = 0; p < 4; p++)
                sum[r][p] = vdupq_n_s32(0);
#pragma GCC unroll 8
        for (int i = h * n_groups; i < (h + 1) * n_groups; i++)
            for (int p = 0; p < 4; p++) {
                const int8x16_t w = run_group(layout, &t, q, i, p);
                for (int r = 0; r < n_rows; r++)
                    sum[r][p] = add_dot(sum[r][p], w, four(x[(size_t)r * ldx + (size_t)run].q + 4 * i));
            }
        for (int p = 0; p < 4; p++) {
            const scales s = run_int8_scales(layout, panel, run, h, p);
            for (int r = 0; r < n_rows; r++) {
                const rg_xblock *xr = x + (size_t)r * ldx + run;
                const int32x4_t whole = vaddq_s32(sum[r][p], owed(layout, s.m, xr, h));
                acc[r][p] = vfmaq_f32(acc[r][p], vcvtq_f32_s32(whole), vmulq_n_f32(s.d, xr->d));
                if (has_minimum(layout))
                    acc[r][p] = vfmaq_f32(acc[r][p], s.m, vdupq_n_f32(n_halves == 2 ? xr->sh[h] : xr->s));
            }
        }
    }
    for (int r = 0; r < n_rows; r++)
        for (int p = 0; p < 4; p++)
            vst1q_f32(y + (size_t)r * ldy + 4 * p, acc[r][p]);
}

TARGET ALWAYS_INLINE void panel_rows(rg_layout layout, const rg_product *p)
{
    const rg_xblock *x = p->q;
    float *y = p->y;
    int m = p->m;

    for (; m >= TILE; m -= TILE, x += TILE * p->ldx, y += TILE * p->ldy)
        rows(layout, p->panel, p->cols / 32, x, p->ldx, TILE, y, p->ldy);
    if (m)
        rows(layout, p->panel, p->cols / 32, x, p->ldx, 1, y, p->ldy);
}

/* Four rows of one panel of a sketch. */
TARGET ALWAYS_INLINE void sketch_rows(const rg_sketch_product *p, const uint8_t *panel, int part, float *mid,
                                      float *off)
{
    const rg_sketch_head *head = (const void *)panel;
    const rg_sketch_scales *of_block = rg_sketch_scales_of(panel);
    const rg_sketch_codes *codes = rg_sketch_codes_of(panel, p->n_blocks);
    float32x4_t a = splat(0), o = a;

    for (int b = 0; b < p->n_blocks; b++) {
        const rg_xblock *x = &p->q[b];
        int32x4_t sum = vdupq_n_s32(x->neg8);

#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const uint8x16_t both = vld1q_u8(codes[b].q[g][4 * part]);
            const uint8x16_t first = vandq_u8(both, vdupq_n_u8(15)), second = vshrq_n_u8(both, 4);

            sum = add_dot(sum, vreinterpretq_s8_u8(first), four(x->q + 4 * g));
            sum = add_dot(sum, vreinterpretq_s8_u8(second), four(x->q + 16 + 4 * g));
        }
        a = fused(vcvtq_f32_s32(sum), load_u8(of_block[b].d + 4 * part) * splat(x->d), a);
        o = fused(load_u8(of_block[b].e + 4 * part), splat(p->norm[b]), o);
    }
    vst1q_f32(mid, a * vld1q_f32(head->d + 4 * part));
    vst1q_f32(off, o * vld1q_f32(head->e + 4 * part));
}

TARGET static void sketch(const rg_sketch_product *p)
{
    for (int i = 0; i < p->n_panels; i++)
        for (int part = 0; part < 4; part++)
            sketch_rows(p, p->panel + (size_t)i * p->panel_bytes, part, p->mid + 16 * i + 4 * part,
                        p->off + 16 * i + 4 * part);
}

#include "ops/cpu/fast_tmpl.h"

#endif
