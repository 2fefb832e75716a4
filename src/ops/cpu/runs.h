/* runs.h -- where things lie in a panel, and lists of the layouts: what the kernels of every instruction set share.
 *
 * No vectors here; `layout` is a constant wherever these are called, so each call becomes an address. */
#ifndef RG_OPS_CPU_RUNS_H
#define RG_OPS_CPU_RUNS_H

#include "ops/cpu/kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* DO(name, layout) for each of them. */
#define FLOAT_LAYOUTS(DO) DO(f32, RG_LAYOUT_F32) DO(f16, RG_LAYOUT_F16) DO(bf16, RG_LAYOUT_BF16)
#define INTEGER_LAYOUTS(DO)                                                                                            \
    DO(q4, RG_LAYOUT_Q4)                                                                                               \
    DO(q8, RG_LAYOUT_Q8) DO(q4m, RG_LAYOUT_Q4M) DO(q8m, RG_LAYOUT_Q8M) DO(k4, RG_LAYOUT_K4) DO(k8, RG_LAYOUT_K8)

/* Functions named so into the table k. */
#define FILL_EXACT(name, layout) k->product[RG_EXACT][layout] = exact_##name;
#define FILL_FAST(name, layout)  k->product[RG_INT8][layout] = fast_##name;

/* Rows of x, a multiple of 8, that stay in a near cache while the panels of a product go by. */
enum { NEAR_BYTES = 384 * 1024 };
ALWAYS_INLINE int near_rows(size_t row_bytes)
{
    const size_t rows = NEAR_BYTES / row_bytes / 8 * 8;

    return rows > 8 ? (int)rows : 8;
}

/* The part of a product that is panel i by up to n rows from `row` on. */
ALWAYS_INLINE rg_product part_of(const rg_product *p, int i, int row, int n)
{
    rg_product q = *p;

    q.panel += (size_t)i * p->panel_bytes;
    q.n_panels = 1;
    q.m = p->m - row < n ? p->m - row : n;
    q.x += p->x ? (size_t)row * p->ldx : 0;
    q.q += p->q ? (size_t)row * p->ldx : 0;
    q.h += p->h ? (size_t)row * p->ldx : 0;
    q.y += (size_t)row * p->ldy + 16 * (size_t)i;
    return q;
}

/* True if a layout packs 4 bits; true if it has a minimum. */
ALWAYS_INLINE bool is_nibbles(rg_layout layout)
{
    return layout == RG_LAYOUT_Q4 || layout == RG_LAYOUT_Q4M || layout == RG_LAYOUT_K4;
}

ALWAYS_INLINE bool has_minimum(rg_layout layout)
{
    return layout != RG_LAYOUT_Q4 && layout != RG_LAYOUT_Q8;
}

/* Scales per run of 32 columns. */
ALWAYS_INLINE int n_halves_of(rg_layout layout)
{
    return layout == RG_LAYOUT_K8 ? 2 : 1;
}

/* What is taken from a packed value before it is scaled. */
ALWAYS_INLINE int offset_of(rg_layout layout)
{
    return layout == RG_LAYOUT_Q4 ? 8 : layout == RG_LAYOUT_Q8 || layout == RG_LAYOUT_K8 ? 128 : 0;
}

ALWAYS_INLINE bool is_float(rg_layout layout)
{
    return layout == RG_LAYOUT_F32 || layout == RG_LAYOUT_F16 || layout == RG_LAYOUT_BF16;
}

/* Bytes per column of a float layout. */
ALWAYS_INLINE size_t column_bytes(rg_layout layout)
{
    return layout == RG_LAYOUT_F32 ? 64 : 32;
}

/* The bytes of run b (32 columns) of a panel of any integer layout, [columns / 4][16][4]. */
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

#endif
