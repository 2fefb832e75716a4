/* unfold_tmpl.h -- a panel of a folded layout as one of codes of a table: built once for each instruction set.
 *
 * Rows are lanes.  A run of a row gives the entries of its vectors, 4 or 8, which are looked up in the grid; the words found
 * hold codes of 4 bits, which take the places of TK4 by a shift, and so do signs (pack.h).  What comes next is
 * fetched, since a step of one row reads a folded matrix once, from memory.
 *
 * Included behind panel_tmpl.h where `look` is defined: lane by lane, table[at]. */
#ifndef RG_OPS_CPU_UNFOLD_TMPL_H
#define RG_OPS_CPU_UNFOLD_TMPL_H

enum { UNFOLD_FAR = 4096, UNFOLD_NEAR = 1024 }; /* bytes ahead that are fetched to L2, and from there to L1 */

ALWAYS_INLINE words load_words(const void *p)
{
    words v;

    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

ALWAYS_INLINE words load_halves(const uint16_t *p)
{
    typedef uint16_t halves __attribute__((vector_size(2 * WIDTH)));
    halves v;

    __builtin_memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, words);
}

ALWAYS_INLINE words load_octets(const uint8_t *p)
{
    typedef uint8_t octets __attribute__((vector_size(WIDTH)));
    octets v;

    __builtin_memcpy(&v, p, sizeof v);
    return __builtin_convertvector(v, words);
}

/* s = 2 scale + 1 of each lane, as bytes. */
ALWAYS_INLINE void put_scales(int8_t *to, words scale)
{
    typedef uint8_t octets __attribute__((vector_size(WIDTH)));
    const octets v = __builtin_convertvector(2 * scale + 1, octets);

    __builtin_memcpy(to, &v, sizeof v);
}

/* Signs of which each 8 columns tell the last: their number is even. */
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

/* What the fields of a run of one part say. */
typedef struct folded_run {
    words entry[8], signs, scale[2]; /* signs, or which codes are moved down; by halves of a run */
} folded_run;

ALWAYS_INLINE void load_g1(folded_run *r, const rg_step_g1 *s, int run, int at)
{
    const words h = load_halves(s->h[run] + at), low = load_words(s->q[run][at]);

    for (int i = 0; i < 4; i++)
        r->entry[i] = (low >> 8 * i & 255) | (h >> 3 * i & 7) << 8;
    r->signs = -(h >> 15);
    r->scale[0] = h >> 12 & 7;
}

ALWAYS_INLINE void load_g1m(folded_run *r, const rg_step_g1m *s, int run, int at)
{
    const words h = load_halves(s->h[run] + at), low = load_words(s->q[run][at]);
    const words both = load_halves(s->s[run / 2] + at) >> 6 * (run % 2);

    for (int i = 0; i < 4; i++)
        r->entry[i] = (low >> 8 * i & 255) | (h >> 4 * i & 7) << 8;
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
    const words low = load_words(s->q[run][at]), signs = load_words(s->signs[run] + at);
    words h = low, both;

    if (layout == RG_LAYOUT_G2H)
        h = load_octets(g2h->h[run] + at);
    else if (layout == RG_LAYOUT_G2S)
        h = load_octets(g2s->h[run] + at);
    for (int i = 0; i < 4; i++) {
        r->entry[i] = low >> 8 * i & 255;
        if (layout == RG_LAYOUT_G2H)
            r->entry[i] |= (h >> i & 1) << 8;
        else if (layout == RG_LAYOUT_G2S)
            r->entry[i] |= (h >> 2 * i & 3) << 8;
    }
    if (layout == RG_LAYOUT_G2S) {
        both = load_octets(g2s->s[run] + at);
        r->signs = signs;
        r->scale[0] = both & 15;
        r->scale[1] = both >> 4;
    } else {
        r->signs = tell(signs);
        r->scale[0] = scale_of(signs);
        r->scale[1] = h >> 4;
    }
}

/* Vectors of 4; g3s begins as g3 does. */
ALWAYS_INLINE void load_g3(rg_layout layout, folded_run *r, const uint8_t *step, int run, int at)
{
    const rg_step_g3 *s = (const void *)step;
    const rg_step_g3s *g3s = (const void *)step;
    const words signs = load_words(s->signs[run] + at);

    for (int i = 0; i < 8; i++)
        r->entry[i] = load_words(s->q[run][i / 4][at]) >> i % 4 * 8 & 255;
    r->signs = layout == RG_LAYOUT_G3 ? tell(signs) : signs;
    if (layout == RG_LAYOUT_G3) {
        r->scale[0] = scale_of(signs);
        return;
    }
    const words h = load_octets(g3s->h[run] + at);

    for (int i = 0; i < 8; i++)
        r->entry[i] |= (h >> i & 1) << 8;
    r->scale[0] = load_octets(g3s->s[run / 2] + at) >> run % 2 * 4 & 15;
}

/* Group g of the codes of a run, without signs: columns 4g .. 4g + 3, above them 16 + 4g and so on. */
ALWAYS_INLINE words group_of(rg_layout layout, const words *found, int g)
{
    const uint32_t low = 0x0f0f0f0f;

    if (layout == RG_LAYOUT_G3 || layout == RG_LAYOUT_G3S)
        return found[g] | found[4 + g] << 4;
    if (g % 2)
        return (found[g / 2] >> 4 & low) | (found[2 + g / 2] & ~low);
    return (found[g / 2] & low) | (found[2 + g / 2] & low) << 4;
}

ALWAYS_INLINE void unfold_run(rg_layout layout, const uint32_t *grid, const uint8_t *step, int run, int part, uint8_t *to)
{
    const bool of_4 = layout == RG_LAYOUT_G3 || layout == RG_LAYOUT_G3S, halves = rg_layout_unfolded(layout) == RG_LAYOUT_TK4H;
    uint8_t *codes = to + rg_layout_codes_at(rg_layout_unfolded(layout)) + 256 * run + sizeof(words) * (size_t)part;
    const int at = WIDTH * part;
    folded_run r = { 0 };
    words found[8];

    if (layout == RG_LAYOUT_G1)
        load_g1(&r, (const void *)step, run, at);
    else if (layout == RG_LAYOUT_G1M)
        load_g1m(&r, (const void *)step, run, at);
    else if (of_4)
        load_g3(layout, &r, step, run, at);
    else
        load_g2(layout, &r, step, run, at);
    for (int i = 0; i < (of_4 ? 8 : 4); i++)
        found[i] = look(grid, r.entry[i]);
    for (int g = 0; g < 4; g++) {
        const words v = group_of(layout, found, g) | (r.signs << g & 0x88888888);
        __builtin_memcpy(codes + 64 * g, &v, sizeof v);
    }
    put_scales(((rg_step_tk4 *)(void *)to)->s[(halves ? 2 : 1) * run] + at, r.scale[0]);
    if (halves)
        put_scales(((rg_step_tk4 *)(void *)to)->s[2 * run + 1] + at, r.scale[1]);
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

ALWAYS_INLINE void unfold_as(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    const uint32_t *grid = rg_grid_of(rg_folded_type(layout));
    const size_t head = rg_layout_head_bytes(layout), each = rg_layout_step_bytes(layout);

    __builtin_memcpy(to, panel, head);
    panel += head;
    to += head;
    for (int i = 0; i < cols / 256; i++, panel += each, to += rg_layout_step_bytes(rg_layout_unfolded(layout))) {
        for (int part = 0; part < PARTS; part++)
            put_d(layout, panel, part, to);
#pragma GCC unroll 1
        for (int run = 0; run < 8; run++) {
            for (size_t line = each / 8 * (size_t)run; line < each / 8 * (size_t)(run + 1); line += 64) {
                __builtin_prefetch(panel + line + UNFOLD_FAR, 0, 2);
                __builtin_prefetch(panel + line + UNFOLD_NEAR, 0, 3);
            }
            for (int part = 0; part < PARTS; part++)
                unfold_run(layout, grid, panel, run, part, to);
        }
    }
}

static void unfold(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    switch (layout) {
#define UNFOLD(which) case which: unfold_as(which, panel, cols, to); break;
    FOLDED_LAYOUTS(UNFOLD)
#undef UNFOLD
    default: RG_ASSERT(false);
    }
}

#endif
