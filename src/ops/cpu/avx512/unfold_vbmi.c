/* unfold_vbmi.c -- panels of vectors of a grid, where bytes are looked up in registers: vpermi2b finds 64 of them in a
 * table of 128, where a gather takes the entries of 16 rows one by one.
 *
 * An entry has at most 16 bits: two planes of bytes.  Of vectors of 4, codes 0 and 1 of each entry, and codes 2 and 3,
 * the second in the upper half.  Of vectors of 8, whose codes have 2 bits, the lower bits of all, and the upper ones:
 * eight such bytes, of the four vectors of a row, are a matrix of bits, and vgf2p8affineqb by the unit matrix turns it
 * about. */
#include "ops/cpu/avx512/unfold.h"

enum { MOST = 2048 };

typedef __m512i grid_planes[2][MOST / 64];
static grid_planes planes[RG_LAYOUT_COUNT]; /* set once, when the table of kernels is built */

static uint8_t plane_byte(rg_layout layout, uint32_t entry, int k)
{
    uint8_t byte = 0;

    if (of_4(layout))
        return (uint8_t)((entry >> 16 * k & 15) | (entry >> (16 * k + 8) & 15) << 4);
    for (int i = 0; i < 8; i++)
        byte |= (uint8_t)((entry >> (i % 4 * 8 + i / 4 * 4 + k) & 1) << i);
    return byte;
}

static void make_planes(rg_layout layout)
{
    const uint32_t *grid = rg_grid_of(rg_folded_type(layout));

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 256 << high_bits(layout); i++)
            ((uint8_t *)planes[layout][k])[i] = plane_byte(layout, grid[i], k);
}

/* Which of 64 entries have bits 7, 8 and so on set: their bytes, and the bits above those. */
typedef struct entries {
    __m512i low;
    __mmask64 bit[4];
} entries;

ALWAYS_INLINE __m512i find_256(const __m512i *p, const entries *e)
{
    return _mm512_mask_blend_epi8(e->bit[0], _mm512_permutex2var_epi8(p[0], e->low, p[1]),
                                  _mm512_permutex2var_epi8(p[2], e->low, p[3]));
}

ALWAYS_INLINE __m512i find_512(const __m512i *p, const entries *e)
{
    return _mm512_mask_blend_epi8(e->bit[1], find_256(p, e), find_256(p + 4, e));
}

ALWAYS_INLINE __m512i find_1024(const __m512i *p, const entries *e)
{
    return _mm512_mask_blend_epi8(e->bit[2], find_512(p, e), find_512(p + 8, e));
}

ALWAYS_INLINE __m512i find(rg_layout layout, const __m512i *plane, const entries *e)
{
    switch (high_bits(layout)) {
    case 0: return find_256(plane, e);
    case 1: return find_512(plane, e);
    case 2: return find_1024(plane, e);
    default: return _mm512_mask_blend_epi8(e->bit[3], find_1024(plane, e), find_1024(plane + 16, e));
    }
}

/* Four neighbours of each row: the first, or from the last to the first. */
ALWAYS_INLINE entries entries_of(rg_layout layout, const folded_run *r, int first)
{
    const __m512i reversed = _mm512_set4_epi32(0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203);
    entries e = { .low = (__m512i)r->low[first / 4] };
    uint64_t from = 0;

    if (!of_4(layout))
        e.low = _mm512_shuffle_epi8(e.low, reversed);
    e.bit[0] = _mm512_movepi8_mask(e.low);
    for (int i = 0; i < 8; i++) /* of two rows */
        from |= (uint64_t)(i / 4 * 32 + (of_4(layout) ? first + i % 4 : 3 - i % 4) * high_stride(layout)) << 8 * i;
    const __m512i high = _mm512_multishift_epi64_epi8(_mm512_set1_epi64((long long)from), (__m512i)r->high);
    for (int i = 0; i < high_bits(layout); i++)
        e.bit[1 + i] = _mm512_test_epi8_mask(high, _mm512_set1_epi8((char)(1 << i)));
    return e;
}

/* Four bytes of each row in each of four vectors, turned about: to[i] has byte i of v[0], v[1], v[2] and v[3]. */
ALWAYS_INLINE void turn_bytes(const __m512i v[4], words to[4])
{
    const __m512i low[2] = { _mm512_unpacklo_epi8(v[0], v[1]), _mm512_unpacklo_epi8(v[2], v[3]) };
    const __m512i high[2] = { _mm512_unpackhi_epi8(v[0], v[1]), _mm512_unpackhi_epi8(v[2], v[3]) };
    const __m512i row[4] = { _mm512_unpacklo_epi16(low[0], low[1]), _mm512_unpackhi_epi16(low[0], low[1]),
                             _mm512_unpacklo_epi16(high[0], high[1]), _mm512_unpackhi_epi16(high[0], high[1]) };
    const __m512i a = _mm512_unpacklo_epi32(row[0], row[1]), b = _mm512_unpackhi_epi32(row[0], row[1]);
    const __m512i c = _mm512_unpacklo_epi32(row[2], row[3]), d = _mm512_unpackhi_epi32(row[2], row[3]);

    to[0] = (words)_mm512_unpacklo_epi64(a, c);
    to[1] = (words)_mm512_unpackhi_epi64(a, c);
    to[2] = (words)_mm512_unpacklo_epi64(b, d);
    to[3] = (words)_mm512_unpackhi_epi64(b, d);
}

/* Groups of the codes of a run, without signs. */
ALWAYS_INLINE void groups_of_4(rg_layout layout, const __m512i *const plane[2], const folded_run *r, words group[4])
{
    const __m512i low = _mm512_set1_epi8(15);
    const entries below = entries_of(layout, r, 0), above = entries_of(layout, r, 4);
    __m512i code[4];

#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) { /* vectors 0 to 3 below, 4 to 7 above */
        const __m512i first = find(layout, plane[k], &below), second = find(layout, plane[k], &above);
        code[2 * k] = _mm512_ternarylogic_epi32(low, first, _mm512_slli_epi16(second, 4), 0xca);
        code[2 * k + 1] = _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(first, 4), second, 0xca);
    }
    turn_bytes(code, group);
}

ALWAYS_INLINE void groups_of_8(rg_layout layout, const __m512i *const plane[2], const folded_run *r, words group[4])
{
    const __m512i unit = _mm512_set1_epi64((long long)0x8040201008040201);
    const entries e = entries_of(layout, r, 0);
    const __m512i low = find(layout, plane[0], &e), high = find(layout, plane[1], &e);
    __m512i row[2] = { _mm512_unpacklo_epi8(high, low), _mm512_unpackhi_epi8(high, low) };

    /* Byte i of two words of each row: code i of the four vectors, the first one lowest. */
    for (int i = 0; i < 2; i++)
        row[i] = _mm512_gf2p8affine_epi64_epi8(unit, row[i], 0);
    const __m512 a = _mm512_castsi512_ps(row[0]), b = _mm512_castsi512_ps(row[1]);
    const words first = (words)_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
    const words second = (words)_mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));

    for (int i = 0; i < 2; i++) {
        group[2 * i] = first >> 2 * i & 0x33333333;
        group[2 * i + 1] = second >> 2 * i & 0x33333333;
    }
}

/* Planes that have room there are kept in registers. */
ALWAYS_INLINE void unfold_found(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    enum { KEPT = 8 };
    const size_t each = rg_layout_step_bytes(layout), share = each / 8;
    const bool large = 4 << high_bits(layout) > KEPT;
    __m512i kept[2][KEPT];
    const __m512i *const plane[2] = { large ? planes[layout][0] : kept[0], large ? planes[layout][1] : kept[1] };

#pragma GCC unroll 16
    for (int i = 0; i < 2 * KEPT; i++)
        kept[i / KEPT][i % KEPT] = planes[layout][i / KEPT][i % KEPT];
    __builtin_memcpy(to, panel, sizeof(rg_table));
    panel += sizeof(rg_table);
    to += sizeof(rg_table);
    for (int i = 0; i < cols / 256; i++, panel += each, to += rg_layout_step_bytes(rg_layout_unfolded(layout))) {
        put_d(layout, panel, 0, to);
#pragma GCC unroll 1
        for (int run = 0; run < 8; run++) {
            const folded_run r = load_folded(layout, panel, run, 0);
            words group[4];

            fetch_on(panel, share * (size_t)run, share);
            if (of_4(layout))
                groups_of_4(layout, plane, &r, group);
            else
                groups_of_8(layout, plane, &r, group);
            put_run(layout, &r, group, run, 0, to);
        }
    }
}

static void unfold_with_vbmi(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    switch (layout) {
    case RG_LAYOUT_G1: unfold_found(RG_LAYOUT_G1, panel, cols, to); break;
    case RG_LAYOUT_G1M: unfold_found(RG_LAYOUT_G1M, panel, cols, to); break;
    case RG_LAYOUT_G2: unfold_found(RG_LAYOUT_G2, panel, cols, to); break;
    case RG_LAYOUT_G2H: unfold_found(RG_LAYOUT_G2H, panel, cols, to); break;
    case RG_LAYOUT_G2S: unfold_found(RG_LAYOUT_G2S, panel, cols, to); break;
    case RG_LAYOUT_G3: unfold_found(RG_LAYOUT_G3, panel, cols, to); break;
    case RG_LAYOUT_G3S: unfold_found(RG_LAYOUT_G3S, panel, cols, to); break;
    default: unfold(layout, panel, cols, to);
    }
}

void rg_avx512_add_unfold_vbmi(rg_cpu *k)
{
    for (rg_layout layout = RG_LAYOUT_G1; layout <= RG_LAYOUT_G3S; layout++)
        make_planes(layout);
    k->unfold = unfold_with_vbmi;
}
