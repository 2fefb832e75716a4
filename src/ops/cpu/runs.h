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
#define FILL_EXACT(name, layout) k->panel_exact[layout] = exact_##name;
#define FILL_FAST(name, layout)  k->panel_fast[layout] = fast_##name;

/* Does a layout pack 4 bits, and has it a minimum? */
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
