/* panel_tmpl.h -- a panel's weights as vectors: built once for each instruction set.
 *
 * Included at the end of a folder's own header, which has defined
 *     vec, WIDTH            a vector of WIDTH floats, which C's operators work on
 *     any_nan               true if one of a vector's values is NaN
 *     load_f16, load_bf16   WIDTH values made f32: exact
 *     load_i8, load_u8      the same of small integers
 *     load_bits             the same of some bits of each byte
 *     load_e8m0, load_e4m3  the same of powers of two (halved) and of floats of 8 bits
 *     load_e4m3_small       2^-8 of the latter, where there is none that any_e4m3_nan would find among 64
 *     bytes, run_codes      a vector of bytes; columns 4i .. 4i + 3 of one part of a run, from the run's bytes q
 *     column_codes          column k of one part of a run, in the lowest bits of every lane, the others 0
 *     book                  a table of codes in registers
 *     weights               column k of those four as floats: of the book, or the layout's offset taken off
 * A panel's 16 rows are PARTS vectors: part p holds rows WIDTH p and on. */
#ifndef RG_OPS_CPU_PANEL_TMPL_H
#define RG_OPS_CPU_PANEL_TMPL_H

enum { PARTS = 16 / WIDTH };

ALWAYS_INLINE vec load_f32(const float *p)
{
    vec v;

    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE void store_f32(float *p, vec v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

/* One part of column k of a panel of BF16, whose columns lie two and two. */
ALWAYS_INLINE vec one_of_two(const uint8_t *panel, size_t k, int part)
{
    typedef uint32_t words __attribute__((vector_size(sizeof(vec))));
    words v;

    __builtin_memcpy(&v, panel + 64 * (k / 2) + sizeof v * (size_t)part, sizeof v);
    return (vec)(k % 2 ? v & 0xffff0000 : v << 16);
}

/* One part of column k of a panel of a float layout, whose columns are `apart` bytes apart if it is wide; of BF16, if
 * it does not stand alone. */
ALWAYS_INLINE vec column(rg_layout layout, const uint8_t *panel, size_t apart, size_t k, int part)
{
    const size_t at = WIDTH * (size_t)part;

    if (layout == RG_LAYOUT_BF16)
        return one_of_two(panel, k, part);
    panel += k * (is_wide_layout(layout) ? apart : rg_layout_step_bytes(layout));
    if (layout == RG_LAYOUT_F32 || layout == RG_LAYOUT_F32W)
        return load_f32((const float *)(const void *)panel + at);
    if (layout == RG_LAYOUT_F16 || layout == RG_LAYOUT_F16W)
        return load_f16((const uint16_t *)(const void *)panel + at);
    return load_bf16((const uint16_t *)(const void *)panel + at);
}

/* One part of any column of a panel of n columns. */
ALWAYS_INLINE vec any_column(rg_layout layout, const uint8_t *panel, size_t apart, int n, int k, int part)
{
    if (layout == RG_LAYOUT_BF16 && (k | 1) >= n)
        return load_bf16((const uint16_t *)(const void *)panel + 16 * k + WIDTH * part);
    return column(layout, panel, apart, (size_t)k, part);
}

typedef struct scales {
    vec d, m;
} scales;

/* Scale of one part of half h of run b (h is 0 unless the layout has 16 columns to a scale); m: the minimum, or the
 * zero point, where there is one. */
ALWAYS_INLINE scales run_scales(rg_layout layout, const uint8_t *panel, int b, int h, int part)
{
    const uint8_t *step = run_step(layout, panel, b);
    const int at = WIDTH * part, run = run_in_step(layout, b);
    const rg_step_q4m *q4m = (const void *)step;
    const rg_step_k4 *k4 = (const void *)step;
    const rg_step_k2 *k2 = (const void *)step;
    const rg_step_k3 *k3 = (const void *)step;
    const rg_step_z4 *z4 = (const void *)step;
    scales r = { 0 };

    switch (layout) {
    case RG_LAYOUT_Q4M:
    case RG_LAYOUT_Q5M:
        r.m = load_f16(q4m->m + at); /* m lies alike in both, */
        r.d = load_f16(q4m->d + at);
        break;
    case RG_LAYOUT_Q4:
    case RG_LAYOUT_Q5:
    case RG_LAYOUT_Q8:
    case RG_LAYOUT_T4:
    case RG_LAYOUT_Q2:
        r.d = load_f16(q4m->d + at); /* and d in all of these */
        break;
    case RG_LAYOUT_K4:
    case RG_LAYOUT_K5: /* which lies alike */
        r.d = load_f16(k4->d + at) * load_i8(k4->s[run] + at);
        r.m = -(load_f16(k4->e + at) * load_u8(k4->t[run] + at));
        break;
    case RG_LAYOUT_K2:
        r.d = load_f16(k2->d + at) * load_bits(k2->st[2 * run + h] + at, 0, 4);
        r.m = -(load_f16(k2->e + at) * load_bits(k2->st[2 * run + h] + at, 4, 4));
        break;
    case RG_LAYOUT_K3: /* integers until they are multiplied by d */
        r.d = load_bits(k3->high[run % 4] + at, run / 4 * 4 + 2 * h, 2) * 16.0f - 32.0f;
        r.d = load_f16(k3->d + at) * (load_bits(k3->low[run] + at, 4 * h, 4) + r.d);
        break;
    case RG_LAYOUT_K6:
        r.d = load_f16(k3->d + at) * load_i8(((const rg_step_k6 *)(const void *)step)->s[2 * run + h] + at);
        break;
    case RG_LAYOUT_T4E:
        r.d = load_e8m0(step + at);
        break;
    case RG_LAYOUT_T4N:
        r.d = load_e4m3(((const rg_step_t4n *)(const void *)step)->s[h] + at);
        r.d = r.d * load_f32(((const rg_table_factors *)(const void *)panel)->a + at);
        r.d = r.d / load_f32(((const rg_table_factors *)(const void *)panel)->b + at);
        break;
    case RG_LAYOUT_TK4:
        r.d = load_f32(z4->d + at) * load_i8(((const rg_step_tk4 *)(const void *)step)->s[run] + at);
        break;
    case RG_LAYOUT_TK4H:
        r.d = load_f32(z4->d + at) * load_i8(((const rg_step_tk4h *)(const void *)step)->s[2 * run + h] + at);
        break;
    default:
        r.d = load_f32(z4->d + at); /* likewise: the f32 scales come first */
        if (has_zero(layout))
            r.m = load_u8(z4->z + at);
    }
    return r;
}

/* The same as the int8 recipe wants it: of a table that was rounded, the unit goes into the scale. */
ALWAYS_INLINE scales run_int8_scales(rg_layout layout, const uint8_t *panel, int b, int h, int part)
{
    scales r = run_scales(layout, panel, b, h, part);

    if (layout == RG_LAYOUT_T4F)
        r.d = r.d * ((const rg_table *)(const void *)panel)->unit;
    return r;
}

#endif
