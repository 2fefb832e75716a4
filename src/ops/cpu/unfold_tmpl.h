/* unfold_tmpl.h -- a panel of a folded layout as one that kernels multiply: built once for each instruction set.
 *
 * Rows are lanes.  A run of a row gives the entries of its vectors, 4 or 8, which are looked up in the grid; the words
 * found hold codes of 4 bits, which take the places of TK4 by a shift, and so do signs (pack.h).  The first digit of
 * base 3 of a byte is how often its triple has 256; what is left of the triple has the next digits.  What comes next is
 * fetched, since one row of x reads a folded matrix once, from memory.
 *
 * Included behind panel_tmpl.h where these are defined:
 *     words                       a vector of WIDTH uint32_t, which C's operators work on
 *     load_octets, load_halves    WIDTH integers of 8 or 16 bits, made words
 *     store_octets                the lowest 8 bits of each word
 *     look                        lane by lane, table[at] */
#ifndef RG_OPS_CPU_UNFOLD_TMPL_H
#define RG_OPS_CPU_UNFOLD_TMPL_H

enum { UNFOLD_FAR = 8192, UNFOLD_NEAR = 1024 }; /* bytes ahead that are fetched to L2, and from there to L1 */

ALWAYS_INLINE words load_words(const void *p)
{
    words v;

    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

/* s = 2 scale + 1 of each lane, as bytes. */
ALWAYS_INLINE void put_scales(int8_t *to, words scale)
{
    store_octets((uint8_t *)to, scale + scale + 1);
}

/* Adds the eighth sign of each 8 columns, which the file leaves out: the number of negative ones is even. */
ALWAYS_INLINE words tell(words signs)
{
    const words known = signs & ~0x55000000u;
    words odd = known ^ known << 16;

    odd ^= odd << 8;
    odd ^= odd >> 1;
    return known | (odd & 0x55000000u);
}

/* What lies in the places of those: the lowest bit in bit 24, the next in bit 26, and so on. */
ALWAYS_INLINE words scale_of(words signs)
{
    words v = signs >> 24 & 0x55;

    v = (v | v >> 1) & 0x33;
    return (v | v >> 2) & 0x0f;
}

/* The fields of a run of one part, as they lie. */
typedef struct folded_run {
    words low[2], high;    /* of the entries: bytes, and the bits above them */
    words signs, scale[2]; /* signs, or which codes are moved down; by halves of a run */
} folded_run;

ALWAYS_INLINE bool of_4(rg_layout layout)
{
    return layout == RG_LAYOUT_G3 || layout == RG_LAYOUT_G3S;
}

/* Bits that an entry has above its byte, and how far those of the next entry are. */
ALWAYS_INLINE int high_bits(rg_layout layout)
{
    switch (layout) {
    case RG_LAYOUT_G1:
    case RG_LAYOUT_G1M: return 3;
    case RG_LAYOUT_G2S: return 2;
    case RG_LAYOUT_G2H:
    case RG_LAYOUT_G3S: return 1;
    default: return 0;
    }
}

ALWAYS_INLINE int high_stride(rg_layout layout)
{
    return layout == RG_LAYOUT_G1M ? 4 : high_bits(layout);
}

ALWAYS_INLINE void load_g1(folded_run *r, const rg_step_g1 *s, int run, int at)
{
    r->low[0] = load_words(s->q[run][at]);
    r->high = load_halves(s->h[run] + at);
    r->signs = -(r->high >> 15);
    r->scale[0] = r->high >> 12 & 7;
}

ALWAYS_INLINE void load_g1m(folded_run *r, const rg_step_g1m *s, int run, int at)
{
    const words h = load_halves(s->h[run] + at), both = load_halves(s->s[run / 2] + at) >> 6 * (run % 2);

    r->low[0] = load_words(s->q[run][at]);
    r->high = h;
    /* Vectors 0 to 3 have bits 2 and 3, 0 and 1, 6 and 7, 4 and 5 of each byte. */
    r->signs = (-(h >> 3 & 1) & 0x0c0c0c0c) | (-(h >> 7 & 1) & 0x03030303) | (-(h >> 11 & 1) & 0xc0c0c0c0) |
               (-(h >> 15) & 0x30303030);
    r->scale[0] = both & 7;
    r->scale[1] = both >> 3 & 7;
}

/* Vectors of 8 with signs; g2h and g2s begin as g2 does. */
ALWAYS_INLINE void load_g2(rg_layout layout, folded_run *r, const uint8_t *step, int run, int at)
{
    const rg_step_g2 *s = (const void *)step;
    const rg_step_g2h *g2h = (const void *)step;
    const rg_step_g2s *g2s = (const void *)step;

    r->low[0] = load_words(s->q[run][at]);
    r->signs = load_words(s->signs[run] + at);
    if (layout == RG_LAYOUT_G2H) {
        r->high = load_octets(g2h->h[run] + at);
        r->scale[1] = r->high >> 4;
    } else if (layout == RG_LAYOUT_G2S) {
        const words both = load_octets(g2s->s[run] + at);
        r->high = load_octets(g2s->h[run] + at);
        r->scale[0] = both & 15;
        r->scale[1] = both >> 4;
    }
}

/* Vectors of 4; g3s begins as g3 does. */
ALWAYS_INLINE void load_g3(rg_layout layout, folded_run *r, const uint8_t *step, int run, int at)
{
    const rg_step_g3 *s = (const void *)step;
    const rg_step_g3s *g3s = (const void *)step;

    for (int i = 0; i < 2; i++)
        r->low[i] = load_words(s->q[run][i][at]);
    r->signs = load_words(s->signs[run] + at);
    if (layout == RG_LAYOUT_G3S) {
        r->high = load_octets(g3s->h[run] + at);
        r->scale[0] = load_octets(g3s->s[run / 2] + at) >> run % 2 * 4 & 15;
    }
}

ALWAYS_INLINE folded_run load_folded(rg_layout layout, const uint8_t *step, int run, int at)
{
    folded_run r = { 0 };

    if (layout == RG_LAYOUT_G1)
        load_g1(&r, (const void *)step, run, at);
    else if (layout == RG_LAYOUT_G1M)
        load_g1m(&r, (const void *)step, run, at);
    else if (of_4(layout))
        load_g3(layout, &r, step, run, at);
    else
        load_g2(layout, &r, step, run, at);
    return r;
}

ALWAYS_INLINE words entry_of(rg_layout layout, const folded_run *r, int i)
{
    const words low = r->low[i / 4] >> i % 4 * 8 & 255, high = r->high >> i * high_stride(layout);

    return high_bits(layout) ? low | (high & ((1u << high_bits(layout)) - 1)) << 8 : low;
}

/* Group g of the codes of a run, without signs: columns 4g .. 4g + 3, above them 16 + 4g and so on. */
ALWAYS_INLINE words group_of(rg_layout layout, const words *found, int g)
{
    const uint32_t low = 0x0f0f0f0f;

    if (of_4(layout))
        return found[g] | found[4 + g] << 4;
    if (g % 2)
        return (found[g / 2] >> 4 & low) | (found[2 + g / 2] & ~low);
    return (found[g / 2] & low) | (found[2 + g / 2] & low) << 4;
}

/* Where the last sign of each 8 columns is told by the others, and a scale lies in its place. */
ALWAYS_INLINE bool is_told(rg_layout layout)
{
    return layout == RG_LAYOUT_G2 || layout == RG_LAYOUT_G2H || layout == RG_LAYOUT_G3;
}

/* Put a run of one part, the groups of its codes without signs, into the step at `to`. */
ALWAYS_INLINE void put_run(rg_layout layout, const folded_run *r, const words group[4], int run, int part, uint8_t *to)
{
    const rg_layout to_layout = rg_layout_unfolded(layout);
    const bool halves = to_layout == RG_LAYOUT_TK4H;
    uint8_t *codes = to + rg_layout_codes_at(to_layout) + 256 * run + sizeof(words) * (size_t)part;
    rg_step_tk4 *tk4 = (void *)to; /* scales lie there as in tk4h */
    words signs = r->signs;

    for (int g = 0; g < 4; g++, signs += signs) {
        const words v = group[g] | (signs & 0x88888888);
        __builtin_memcpy(codes + 64 * g, &v, sizeof v);
    }
    put_scales(tk4->s[(halves ? 2 : 1) * run] + WIDTH * part, r->scale[0]);
    if (halves)
        put_scales(tk4->s[2 * run + 1] + WIDTH * part, r->scale[1]);
}

ALWAYS_INLINE void unfold_run(rg_layout layout, const uint32_t *grid, const uint8_t *step, int run, int part,
                              uint8_t *to)
{
    folded_run r = load_folded(layout, step, run, WIDTH * part);
    words found[8], group[4];

    if (is_told(layout)) {
        r.scale[0] = scale_of(r.signs);
        r.signs = tell(r.signs);
    }
    for (int i = 0; i < (of_4(layout) ? 8 : 4); i++)
        found[i] = look(grid, entry_of(layout, &r, i));
    for (int g = 0; g < 4; g++)
        group[g] = group_of(layout, found, g);
    put_run(layout, &r, group, run, part, to);
}

/* d of a part of a step. */
ALWAYS_INLINE void put_d(rg_layout layout, const uint8_t *step, int part, uint8_t *to)
{
    const float unit = layout == RG_LAYOUT_G3S ? 1.0f : layout == RG_LAYOUT_G3 ? 0.25f : 0.125f;
    const rg_step_g1m *g1m = (const void *)step;
    const int at = WIDTH * part;
    uint16_t d[WIDTH];

    for (int i = 0; layout == RG_LAYOUT_G1M && i < WIDTH; i++)
        d[i] = (uint16_t)(g1m->s[0][at + i] >> 12 | g1m->s[1][at + i] >> 12 << 4 | g1m->s[2][at + i] >> 12 << 8 |
                          g1m->s[3][at + i] >> 12 << 12);
    store_f32(((rg_step_tk4 *)(void *)to)->d + at,
              load_f16(layout == RG_LAYOUT_G1M ? d : ((const rg_step_g1 *)(const void *)step)->d + at) * unit);
}

typedef uint8_t octets __attribute__((vector_size(sizeof(words))));
typedef int8_t signed_octets __attribute__((vector_size(sizeof(words))));

/* 1 at that bit of each byte that is more than limit, both less 128. */
ALWAYS_INLINE octets above(octets v, int limit, int bit)
{
    return (octets)(((signed_octets)v > (int8_t)(limit - 128)) & (int8_t)(1 << bit));
}

/* The even or the odd groups of all runs.  Bytes less 128 keep that form when they are tripled. */
ALWAYS_INLINE void unfold_digits_of(const rg_step_q1 *q1, int odd, int part, rg_step_q2 *q2)
{
    octets plane[8] = { 0 };

#pragma GCC unroll 13
    for (int j = 0; j < 13; j++) {
        octets v = (octets)(load_words(q1->q[j][WIDTH * part]) ^ 0x80808080);
#pragma GCC unroll 5
        for (int n = 0; n < 5; n++, v += v + v) {
            const int run = j < 8 ? n : j < 12 ? 5 + n / 2 : 7;
            const int group = j < 8 ? j : j < 12 ? n % 2 * 4 + j - 8 : 4 + n;
            if (group % 2 == odd && group < 8)
                plane[run] |= above(v, 85, group / 2 * 2) + above(v, 170, group / 2 * 2);
        }
    }
    for (int r = 0; r < 8; r++)
        __builtin_memcpy(q2->q[r][odd][WIDTH * part], &plane[r], sizeof(words));
}

ALWAYS_INLINE void unfold_digits(const uint8_t *step, int part, uint8_t *to)
{
    const rg_step_q1 *q1 = (const void *)step;
    rg_step_q2 *q2 = (void *)to;

    unfold_digits_of(q1, 0, part, q2);
    unfold_digits_of(q1, 1, part, q2);
    __builtin_memcpy(q2->d + WIDTH * part, q1->d + WIDTH * part, WIDTH * sizeof *q1->d);
}

/* An eighth of a step, of `each` bytes, is read: every line is fetched once. */
ALWAYS_INLINE void fetch_on(const uint8_t *step, size_t each, int eighth)
{
    for (size_t at = 64 * (size_t)eighth; at < each; at += 8 * 64) {
        __builtin_prefetch(step + at + UNFOLD_FAR, 0, 2);
        __builtin_prefetch(step + at + UNFOLD_NEAR, 0, 3);
    }
}

ALWAYS_INLINE void fetch_step(const uint8_t *step, size_t each)
{
    for (int eighth = 0; eighth < 8; eighth++)
        fetch_on(step, each, eighth);
}

ALWAYS_INLINE void unfold_vectors(rg_layout layout, const uint32_t *grid, const uint8_t *step, uint8_t *to)
{
    for (int part = 0; part < PARTS; part++)
        put_d(layout, step, part, to);
#pragma GCC unroll 1
    for (int run = 0; run < 8; run++) {
        fetch_on(step, rg_layout_step_bytes(layout), run);
        for (int part = 0; part < PARTS; part++)
            unfold_run(layout, grid, step, run, part, to);
    }
}

ALWAYS_INLINE void unfold_as(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    const uint32_t *grid = layout == RG_LAYOUT_Q1 ? NULL : rg_grid_of(rg_folded_type(layout));
    const size_t head = rg_layout_head_bytes(layout), each = rg_layout_step_bytes(layout);

    __builtin_memcpy(to, panel, head);
    panel += head;
    to += head;
    for (int i = 0; i < cols / 256; i++, panel += each, to += rg_layout_step_bytes(rg_layout_unfolded(layout))) {
        if (layout != RG_LAYOUT_Q1) {
            unfold_vectors(layout, grid, panel, to);
            continue;
        }
        fetch_step(panel, each);
        for (int part = 0; part < PARTS; part++)
            unfold_digits(panel, part, to);
    }
}

static inline void unfold(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    switch (layout) {
#define UNFOLD(which) case which: unfold_as(which, panel, cols, to); break;
    FOLDED_LAYOUTS(UNFOLD)
#undef UNFOLD
    default: RG_ASSERT(false);
    }
}

#endif
