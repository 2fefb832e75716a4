/* runs.h -- where things lie in a panel, and lists of the layouts: what the kernels of every instruction set share.
 *
 * No vectors here; `layout` is a constant wherever these are called, so each call becomes an address. */
#ifndef RG_OPS_CPU_RUNS_H
#define RG_OPS_CPU_RUNS_H

#include "ops/cpu/kernels.h"
#include "ops/cpu/pack.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* DO(name, layout) for each of them. */
#define FLOAT_LAYOUTS(DO)                                                                                              \
    DO(f32, RG_LAYOUT_F32) DO(f16, RG_LAYOUT_F16) DO(bf16, RG_LAYOUT_BF16) WIDE_LAYOUTS(DO)
#define WIDE_LAYOUTS(DO) DO(f32w, RG_LAYOUT_F32W) DO(f16w, RG_LAYOUT_F16W) DO(bf16w, RG_LAYOUT_BF16W)
#define FLOAT8_LAYOUTS(DO) DO(f8, RG_LAYOUT_F8)
#define INTEGER_LAYOUTS(DO)                                                                                            \
    DO(q4, RG_LAYOUT_Q4) DO(q8, RG_LAYOUT_Q8) DO(q4m, RG_LAYOUT_Q4M) DO(q5, RG_LAYOUT_Q5)                              \
    DO(q5m, RG_LAYOUT_Q5M) DO(k4, RG_LAYOUT_K4) DO(k5, RG_LAYOUT_K5) DO(k2, RG_LAYOUT_K2) DO(k3, RG_LAYOUT_K3)         \
    DO(k6, RG_LAYOUT_K6) DO(t4, RG_LAYOUT_T4) DO(t4e, RG_LAYOUT_T4E) DO(t4f, RG_LAYOUT_T4F)       \
    DO(t4n, RG_LAYOUT_T4N) DO(tk4, RG_LAYOUT_TK4) DO(tk4h, RG_LAYOUT_TK4H) DO(z4, RG_LAYOUT_Z4)                        \
    DO(z4w, RG_LAYOUT_Z4W) DO(z8, RG_LAYOUT_Z8) DO(z8w, RG_LAYOUT_Z8W) DO(q2, RG_LAYOUT_Q2)

#define FOLDED_LAYOUTS(DO)                                                                                             \
    DO(RG_LAYOUT_G1) DO(RG_LAYOUT_G1M) DO(RG_LAYOUT_G2) DO(RG_LAYOUT_G2H) DO(RG_LAYOUT_G2S) DO(RG_LAYOUT_G3)          \
    DO(RG_LAYOUT_G3S) DO(RG_LAYOUT_Q1)

/* Functions named so into the table k. */
#define FILL_EXACT(name, layout) k->product[RG_EXACT][layout] = exact_##name;
#define FILL_FAST(name, layout)  k->product[RG_INT8][layout] = fast_##name;
#define FILL_SPARSE(name, layout) k->sparse[layout] = sparse_##name;
#define FILL_COLUMNS(name, layout) k->add_columns[layout] = columns_##name;

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
    q.next = i + 1 < p->n_panels ? q.panel + p->panel_bytes : p->next;
    q.n_panels = 1;
    q.m = p->m - row < n ? p->m - row : n;
    if (p->x) /* one of them is there; C gives NULL + 0 no meaning */
        q.x += (size_t)row * p->ldx;
    if (p->q)
        q.q += (size_t)row * p->ldx;
    if (p->h)
        q.h += (size_t)row * p->ldx;
    q.y += (size_t)row * p->ldy + 16 * (size_t)i;
    return q;
}

/* Weights are codes of a table at the head of the panel. */
ALWAYS_INLINE bool has_table(rg_layout layout)
{
    return rg_layout_head_bytes(layout) > 0;
}

ALWAYS_INLINE bool has_zero(rg_layout layout)
{
    return layout == RG_LAYOUT_Z4 || layout == RG_LAYOUT_Z4W || layout == RG_LAYOUT_Z8 || layout == RG_LAYOUT_Z8W;
}

ALWAYS_INLINE bool has_minimum(rg_layout layout)
{
    return layout == RG_LAYOUT_Q4M || layout == RG_LAYOUT_Q5M || layout == RG_LAYOUT_K2 || layout == RG_LAYOUT_K4 ||
           layout == RG_LAYOUT_K5;
}

/* Bits of the integers that are multiplied: those of the table, where there is one. */
ALWAYS_INLINE int factor_bits(rg_layout layout)
{
    return has_table(layout) ? 8 : rg_layout_bits(layout);
}

/* Sums per run of 32 columns: one for each scale. */
ALWAYS_INLINE int n_halves_of(rg_layout layout)
{
    switch (layout) {
    case RG_LAYOUT_K2:
    case RG_LAYOUT_K3:
    case RG_LAYOUT_K6:
    case RG_LAYOUT_TK4H:
    case RG_LAYOUT_T4N: return 2;
    default: return 1;
    }
}

/* What is taken from the integer that is multiplied (that of the table, where there is one). */
ALWAYS_INLINE int offset_of(rg_layout layout)
{
    switch (layout) {
    case RG_LAYOUT_Q2: return 1;
    case RG_LAYOUT_K3: return 4;
    case RG_LAYOUT_Q4: return 8;
    case RG_LAYOUT_Q5: return 16;
    case RG_LAYOUT_K6: return 32;
    case RG_LAYOUT_Q8: return 128;
    default: return has_table(layout) ? 128 : 0;
    }
}

ALWAYS_INLINE bool is_wide_layout(rg_layout layout)
{
    return layout == RG_LAYOUT_F32W || layout == RG_LAYOUT_F16W || layout == RG_LAYOUT_BF16W;
}

ALWAYS_INLINE bool is_float(rg_layout layout)
{
    return layout == RG_LAYOUT_F32 || layout == RG_LAYOUT_F16 || layout == RG_LAYOUT_BF16 || is_wide_layout(layout);
}

/* Bytes per column of a float layout that are worth fetching ahead: those of a panel that lies in one piece. */
ALWAYS_INLINE size_t column_bytes(rg_layout layout)
{
    return is_wide_layout(layout) ? 0 : rg_layout_step_bytes(layout);
}

/* The step that holds run b (32 columns) of a panel, and the run's number in it. */
ALWAYS_INLINE const uint8_t *run_step(rg_layout layout, const uint8_t *panel, int b)
{
    const size_t n = (size_t)rg_layout_step(layout) / 32;

    return panel + rg_layout_head_bytes(layout) + (size_t)b / n * rg_layout_step_bytes(layout);
}

ALWAYS_INLINE int run_in_step(rg_layout layout, int b)
{
    return (int)((unsigned)b % (unsigned)(rg_layout_step(layout) / 32));
}

/* The bytes of run b of a panel of any integer layout, [groups of 4 columns side by side][16][4]. */
ALWAYS_INLINE const uint8_t *run_q(rg_layout layout, const uint8_t *panel, int b)
{
    return run_step(layout, panel, b) + rg_layout_codes_at(layout) +
           (size_t)(64 * rg_layout_bits(layout) * run_in_step(layout, b));
}

/* Bytes of a run with its share of the scales: how far apart runs are on average. */
ALWAYS_INLINE size_t run_bytes(rg_layout layout)
{
    return rg_layout_step_bytes(layout) * 32 / (size_t)rg_layout_step(layout);
}

/* Run b's share of the panel, so that all runs' shares are all of it: what is fetched ahead with each run.  (Fetching
 * the codes alone leaves the scales at the head of a step to be waited for.) */
ALWAYS_INLINE const uint8_t *run_share(rg_layout layout, const uint8_t *panel, int b)
{
    return panel + rg_layout_head_bytes(layout) + (size_t)b * run_bytes(layout);
}

#endif
