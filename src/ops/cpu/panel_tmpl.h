/* panel_tmpl.h -- a panel's weights as vectors: built once for each instruction set.
 *
 * Included at the end of a folder's own header, which has defined
 *     vec, WIDTH            a vector of WIDTH floats, which C's operators work on
 *     load_f16, load_bf16   WIDTH values made f32: exact
 *     load_i8, load_u8      the same of small integers
 *     bytes, run_group      a vector of bytes; columns 4i .. 4i + 3 of one part of a run, from the run's bytes q
 *     weights               column k of those four as floats, the layout's offset taken off
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

/* One part of column k of a panel of a float layout. */
ALWAYS_INLINE vec column(rg_layout layout, const uint8_t *panel, size_t k, int part)
{
    const size_t at = 16 * k + WIDTH * (size_t)part;

    if (layout == RG_LAYOUT_F32)
        return load_f32((const float *)(const void *)panel + at);
    if (layout == RG_LAYOUT_F16)
        return load_f16((const uint16_t *)(const void *)panel + at);
    return load_bf16((const uint16_t *)(const void *)panel + at);
}

typedef struct scales {
    vec d, m;
} scales;

/* Scale, and minimum where there is one, of one part of half h of run b (h is 0 unless the layout has 16 columns to a
 * scale). */
ALWAYS_INLINE scales run_scales(rg_layout layout, const uint8_t *panel, int b, int h, int part)
{
    const int at = WIDTH * part;
    scales r = { 0 };

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
        r.d = load_f16(s->d + at) * load_i8(s->s[b % 8] + at);
        r.m = -(load_f16(s->e + at) * load_u8(s->t[b % 8] + at));
    } else {
        const rg_step_k8 *s = (const rg_step_k8 *)(const void *)panel + b / 8;
        r.d = load_f16(s->d + at) * load_i8(s->s[b % 8 * 2 + h] + at);
        r.m = -(load_f16(s->e + at) * load_u8(s->t[b % 8 * 2 + h] + at));
    }
    return r;
}

#endif
