/* fold.h -- blocks into the steps of the folded layouts, and out of them as codes; what lies where is in pack.h.  A
 * part of pack.c. */
#ifndef RG_OPS_CPU_FOLD_H
#define RG_OPS_CPU_FOLD_H

#include <string.h>

#include "quant/block.h"
#include "ops/cpu/pack.h"

/* The bit of a column of a run in its signs. */
static inline int sign_bit(int column)
{
    return column % 4 * 8 + 3 - column / 4 % 4 + column / 16 * 4;
}

/* Column 8i + 7, whose sign the others tell. */
static inline int told_bit(int i)
{
    return sign_bit(8 * i + 7);
}

static inline uint32_t put_signs(const rg_vectors *v, int run, int len)
{
    uint32_t signs = 0;

    for (int i = 0; i < 32; i++)
        signs |= (uint32_t)(v->high[(32 * run + i) / len] >> i % len & 1) << sign_bit(i);
    return signs;
}

static inline uint32_t put_scale(uint32_t signs, int scale)
{
    for (int i = 0; i < 4; i++) {
        const int bit = 24 + 2 * i;
        signs = (signs & ~(1u << bit)) | (uint32_t)(scale >> i & 1) << bit;
    }
    return signs;
}

static inline int get_scale(uint32_t signs)
{
    int scale = 0;

    for (int i = 0; i < 4; i++)
        scale |= (int)(signs >> (24 + 2 * i) & 1) << i;
    return scale;
}

/* The signs with those that the others tell. */
static inline uint32_t tell_signs(uint32_t signs)
{
    for (int i = 0; i < 4; i++) {
        uint32_t odd = 0;
        for (int k = 8 * i; k < 8 * i + 7; k++)
            odd ^= signs >> sign_bit(k) & 1;
        signs = (signs & ~(1u << told_bit(i))) | odd << told_bit(i);
    }
    return signs;
}

static inline void get_signs(uint32_t signs, int run, int len, rg_vectors *v)
{
    for (int i = 0; i < 32; i++)
        v->high[(32 * run + i) / len] |= (uint8_t)((signs >> sign_bit(i) & 1) << i % len);
}

/* ---- run by run -------------------------------------------------------------------------------------------------- */

static inline void put_g1_run(rg_step_g1 *to, int run, int row, const rg_vectors *v)
{
    int h = v->scale[run] << 12 | v->high[4 * run] << 15;

    for (int i = 0; i < 4; i++)
        h |= v->entry[4 * run + i] >> 8 << 3 * i;
    to->h[run][row] = (uint16_t)h;
}

static inline void get_g1_run(const rg_step_g1 *from, int run, int row, rg_vectors *v)
{
    const int h = from->h[run][row];

    v->scale[run] = h >> 12 & 7;
    for (int i = 0; i < 4; i++) {
        v->entry[4 * run + i] |= (uint16_t)((h >> 3 * i & 7) << 8);
        v->high[4 * run + i] = (uint8_t)(h >> 15);
    }
}

static inline void put_g1m_run(rg_step_g1m *to, int run, int row, const rg_vectors *v)
{
    const int at = 2 * run % 4;
    int h = 0;

    for (int i = 0; i < 4; i++)
        h |= (v->entry[4 * run + i] >> 8 | v->high[4 * run + i] << 3) << 4 * i;
    to->h[run][row] = (uint16_t)h;
    if (at == 0)
        to->s[run / 2][row] = (uint16_t)((v->d >> 4 * (run / 2) & 15) << 12);
    to->s[run / 2][row] |= (uint16_t)(v->scale[2 * run] << 3 * at | v->scale[2 * run + 1] << (3 * at + 3));
}

static inline void get_g1m_run(const rg_step_g1m *from, int run, int row, rg_vectors *v)
{
    const int h = from->h[run][row], s = from->s[run / 2][row], at = 2 * run % 4;

    v->d |= (uint16_t)(s >> 12 << 4 * (run / 2));
    v->scale[2 * run] = s >> 3 * at & 7;
    v->scale[2 * run + 1] = s >> (3 * at + 3) & 7;
    for (int i = 0; i < 4; i++) {
        v->entry[4 * run + i] |= (uint16_t)((h >> 4 * i & 7) << 8);
        v->high[4 * run + i] = h >> (4 * i + 3) & 1;
    }
}

/* Bits from the ninth on of the entries of a run, `bits` each. */
static inline int upper_bits(const rg_vectors *v, int run, int each, int bits)
{
    int h = 0;

    for (int i = 0; i < each; i++)
        h |= v->entry[each * run + i] >> 8 << bits * i;
    return h;
}

static inline void add_upper_bits(rg_vectors *v, int run, int each, int bits, int h)
{
    for (int i = 0; i < each; i++)
        v->entry[each * run + i] |= (uint16_t)((h >> bits * i & ((1 << bits) - 1)) << 8);
}

/* The layouts with signs; all lie as far as there as in g2, or in g3. */
static inline void put_signed_run(rg_layout layout, uint8_t *at, int run, int row, const rg_vectors *v)
{
    rg_step_g2 *g2 = (void *)at;
    rg_step_g2h *g2h = (void *)at;
    rg_step_g2s *g2s = (void *)at;
    rg_step_g3 *g3 = (void *)at;
    rg_step_g3s *g3s = (void *)at;
    const bool of_4 = layout == RG_LAYOUT_G3 || layout == RG_LAYOUT_G3S;
    uint32_t signs = put_signs(v, run, of_4 ? 4 : 8);

    switch (layout) {
    case RG_LAYOUT_G2:
    case RG_LAYOUT_G3:
        signs = put_scale(signs, v->scale[run]);
        break;
    case RG_LAYOUT_G2H:
        signs = put_scale(signs, v->scale[2 * run]);
        g2h->h[run][row] = (uint8_t)(upper_bits(v, run, 4, 1) | v->scale[2 * run + 1] << 4);
        break;
    case RG_LAYOUT_G2S:
        g2s->h[run][row] = (uint8_t)upper_bits(v, run, 4, 2);
        g2s->s[run][row] = (uint8_t)(v->scale[2 * run] | v->scale[2 * run + 1] << 4);
        break;
    default:
        g3s->h[run][row] = (uint8_t)upper_bits(v, run, 8, 1);
        g3s->s[run / 2][row] = (uint8_t)((run % 2 ? g3s->s[run / 2][row] : 0) | v->scale[run] << run % 2 * 4);
    }
    (of_4 ? g3->signs : g2->signs)[run][row] = signs;
}

static inline void get_signed_run(rg_layout layout, const uint8_t *at, int run, int row, rg_vectors *v)
{
    const rg_step_g2 *g2 = (const void *)at;
    const rg_step_g2h *g2h = (const void *)at;
    const rg_step_g2s *g2s = (const void *)at;
    const rg_step_g3 *g3 = (const void *)at;
    const rg_step_g3s *g3s = (const void *)at;
    const bool of_4 = layout == RG_LAYOUT_G3 || layout == RG_LAYOUT_G3S;
    const uint32_t signs = (of_4 ? g3->signs : g2->signs)[run][row];

    switch (layout) {
    case RG_LAYOUT_G2:
    case RG_LAYOUT_G3:
        v->scale[run] = get_scale(signs);
        break;
    case RG_LAYOUT_G2H:
        v->scale[2 * run] = get_scale(signs);
        v->scale[2 * run + 1] = g2h->h[run][row] >> 4;
        add_upper_bits(v, run, 4, 1, g2h->h[run][row]);
        break;
    case RG_LAYOUT_G2S:
        v->scale[2 * run] = g2s->s[run][row] & 15;
        v->scale[2 * run + 1] = g2s->s[run][row] >> 4;
        add_upper_bits(v, run, 4, 2, g2s->h[run][row]);
        break;
    default:
        v->scale[run] = g3s->s[run / 2][row] >> run % 2 * 4 & 15;
        add_upper_bits(v, run, 8, 1, g3s->h[run][row]);
    }
    get_signs(layout == RG_LAYOUT_G2S || layout == RG_LAYOUT_G3S ? signs : tell_signs(signs), run, of_4 ? 4 : 8, v);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* The lower bits of the entries, [each][16][4] of a run. */
static inline uint8_t (*entries_of(rg_layout layout, uint8_t *at))[RG_PANEL][4]
{
    return (void *)(layout == RG_LAYOUT_G1M ? ((rg_step_g1m *)(void *)at)->q[0] : ((rg_step_g1 *)(void *)at)->q[0]);
}

static inline int vectors_of_run(rg_layout layout)
{
    return layout == RG_LAYOUT_G3 || layout == RG_LAYOUT_G3S ? 8 : 4;
}

static inline void put_vectors(rg_layout layout, uint8_t *at, int row, const rg_vectors *v)
{
    uint8_t (*q)[RG_PANEL][4] = entries_of(layout, at);

    if (layout != RG_LAYOUT_G1M)
        ((rg_step_g1 *)(void *)at)->d[row] = v->d;
    for (int i = 0; i < 8 * vectors_of_run(layout); i++)
        q[i / 4][row][i % 4] = (uint8_t)v->entry[i];
    for (int run = 0; run < 8; run++)
        if (layout == RG_LAYOUT_G1)
            put_g1_run((void *)at, run, row, v);
        else if (layout == RG_LAYOUT_G1M)
            put_g1m_run((void *)at, run, row, v);
        else
            put_signed_run(layout, at, run, row, v);
}

static inline void get_vectors(rg_layout layout, const uint8_t *at, int row, rg_vectors *v)
{
    const uint8_t (*q)[RG_PANEL][4] = (const void *)entries_of(layout, (uint8_t *)(uintptr_t)at);

    *v = (rg_vectors){ .d = layout == RG_LAYOUT_G1M ? 0 : ((const rg_step_g1 *)(const void *)at)->d[row] };
    for (int i = 0; i < 8 * vectors_of_run(layout); i++)
        v->entry[i] = q[i / 4][row][i % 4];
    for (int run = 0; run < 8; run++)
        if (layout == RG_LAYOUT_G1)
            get_g1_run((const void *)at, run, row, v);
        else if (layout == RG_LAYOUT_G1M)
            get_g1m_run((const void *)at, run, row, v);
        else
            get_signed_run(layout, at, run, row, v);
}

/* Block of the layout's type into a row of a step. */
static inline void put_folded(rg_layout layout, uint8_t *step, int row, const uint8_t *block)
{
    rg_step_q1 *q1 = (void *)step;
    rg_vectors v;

    if (layout != RG_LAYOUT_Q1) {
        rg_vectors_load(rg_folded_type(layout), block, &v);
        put_vectors(layout, step, row, &v);
        return;
    }
    for (int i = 0; i < 13; i++)
        memcpy(q1->q[i][row], block + 4 * i, 4);
    q1->d[row] = load16(block + 52);
}

/* A row of a step as codes. */
static inline void get_folded(rg_layout layout, const uint8_t *step, int row, rg_ints *out)
{
    const rg_step_q1 *q1 = (const void *)step;
    uint8_t block[54];
    rg_vectors v;

    if (layout != RG_LAYOUT_Q1) {
        get_vectors(layout, step, row, &v);
        rg_vectors_ints(rg_folded_type(layout), &v, out);
        return;
    }
    for (int i = 0; i < 13; i++)
        memcpy(block + 4 * i, q1->q[i][row], 4);
    store16(block + 52, q1->d[row]);
    rg_format_of(RG_TQ1_0)->ints(block, out);
}

#endif
