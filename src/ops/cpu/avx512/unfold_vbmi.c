/* unfold_vbmi.c -- panels of G3 and G3S, whose grids are so small that they stay in registers: vpermi2b looks up 64
 * entries in 128 of them at once, where a gather takes the entries of 16 rows one by one.
 *
 * A grid is two planes of bytes: codes 0 and 1 of each entry, and codes 2 and 3, the second in the upper half. */
#include "ops/cpu/avx512/unfold.h"

enum { MOST = 512, PIECES = MOST / 64 };

typedef uint8_t grid_planes[2][MOST];
static _Alignas(64) grid_planes of_g3, of_g3s;

static void make_planes(grid_planes to, rg_type type, int n)
{
    const uint32_t *grid = rg_grid_of(type);

    for (int i = 0; i < n; i++)
        for (int k = 0; k < 2; k++) {
            const uint32_t codes = grid[i] >> 16 * k;
            to[k][i] = (uint8_t)((codes & 15) | (codes >> 8 & 15) << 4);
        }
}

/* Entries of a plane: 128 in each two of its n pieces; upper, ninth: which bytes have bits 7 and 8 of theirs set. */
ALWAYS_INLINE __m512i entries(const __m512i *plane, int n, __m512i at, __mmask64 ninth)
{
    const __mmask64 upper = _mm512_movepi8_mask(at);
    __m512i v[2] = { at, at };

#pragma GCC unroll 2
    for (int i = 0; i < n / 4; i++) {
        const __m512i *p = plane + 4 * i;
        v[i] = _mm512_mask_blend_epi8(upper, _mm512_permutex2var_epi8(p[0], at, p[1]),
                                      _mm512_permutex2var_epi8(p[2], at, p[3]));
    }
    return n == PIECES ? _mm512_mask_blend_epi8(ninth, v[0], v[1]) : v[0];
}

/* Four bytes of each row in each of four vectors, turned about: to[i] has byte i of v[0], v[1], v[2] and v[3]. */
ALWAYS_INLINE void turn_bytes(const __m512i v[4], __m512i to[4])
{
    const __m512i low[2] = { _mm512_unpacklo_epi8(v[0], v[1]), _mm512_unpacklo_epi8(v[2], v[3]) };
    const __m512i high[2] = { _mm512_unpackhi_epi8(v[0], v[1]), _mm512_unpackhi_epi8(v[2], v[3]) };
    const __m512i row[4] = { _mm512_unpacklo_epi16(low[0], low[1]), _mm512_unpackhi_epi16(low[0], low[1]),
                             _mm512_unpacklo_epi16(high[0], high[1]), _mm512_unpackhi_epi16(high[0], high[1]) };
    const __m512i a = _mm512_unpacklo_epi32(row[0], row[1]), b = _mm512_unpackhi_epi32(row[0], row[1]);
    const __m512i c = _mm512_unpacklo_epi32(row[2], row[3]), d = _mm512_unpackhi_epi32(row[2], row[3]);

    to[0] = _mm512_unpacklo_epi64(a, c);
    to[1] = _mm512_unpackhi_epi64(a, c);
    to[2] = _mm512_unpacklo_epi64(b, d);
    to[3] = _mm512_unpackhi_epi64(b, d);
}

/* Groups of the codes of a run, without signs; n: pieces of a plane. */
ALWAYS_INLINE void groups_of(const __m512i (*plane)[PIECES], int n, const uint8_t *step, int run, __m512i to[4])
{
    const rg_step_g3s *s = (const void *)step;
    const __m512i low = _mm512_set1_epi8(15);
    __mmask64 ninth[2] = { 0, 0 };
    __m512i pair[2][2], code[4];

    if (n == PIECES) { /* bit i of h in all four bytes of a row, of which each asks for its own */
        const __m512i h = (__m512i)(load_octets(s->h[run]) * 0x01010101);

        ninth[0] = _mm512_test_epi8_mask(h, _mm512_set1_epi32(0x08040201));
        ninth[1] = _mm512_test_epi8_mask(h, _mm512_set1_epi32((int)0x80402010));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m512i at = (__m512i)load_words(s->q[run][i]);
#pragma GCC unroll 2
        for (int k = 0; k < 2; k++)
            pair[k][i] = entries(plane[k], n, at, ninth[i]);
    }
#pragma GCC unroll 2
    for (int k = 0; k < 2; k++) { /* vectors 0 to 3 below, 4 to 7 above */
        code[2 * k] = _mm512_ternarylogic_epi32(low, pair[k][0], _mm512_slli_epi16(pair[k][1], 4), 0xca);
        code[2 * k + 1] = _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(pair[k][0], 4), pair[k][1], 0xca);
    }
    turn_bytes(code, to);
}

ALWAYS_INLINE void unfold_g3(rg_layout layout, const grid_planes from, int n, const uint8_t *panel, int cols,
                             uint8_t *to)
{
    const size_t each = rg_layout_step_bytes(layout), share = each / 8;
    __m512i plane[2][PIECES];

#pragma GCC unroll 16
    for (int i = 0; i < 2 * n; i++)
        plane[i / n][i % n] = _mm512_load_si512(from[i / n] + 64 * (i % n));
    __builtin_memcpy(to, panel, sizeof(rg_table));
    panel += sizeof(rg_table);
    to += sizeof(rg_table);
    for (int i = 0; i < cols / 256; i++, panel += each, to += sizeof(rg_step_tk4)) {
        rg_step_tk4 *tk4 = (void *)to;

        put_d(layout, panel, 0, to);
#pragma GCC unroll 1
        for (int run = 0; run < 8; run++) {
            const words signs = load_words(((const rg_step_g3 *)(const void *)panel)->signs[run]);
            const words all = layout == RG_LAYOUT_G3 ? tell(signs) : signs;
            __m512i group[4];

            fetch_on(panel, share * (size_t)run, share);
            groups_of(plane, n, panel, run, group);
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++)
                _mm512_storeu_si512(tk4->q[run][g], (__m512i)((words)group[g] | (all << g & 0x88888888)));
            if (layout == RG_LAYOUT_G3)
                put_scales(tk4->s[run], scale_of(signs));
            else
                put_scales(tk4->s[run],
                           load_octets(((const rg_step_g3s *)(const void *)panel)->s[run / 2]) >> run % 2 * 4 & 15);
        }
    }
}

static void unfold_with_vbmi(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    if (layout == RG_LAYOUT_G3)
        unfold_g3(RG_LAYOUT_G3, of_g3, 4, panel, cols, to);
    else if (layout == RG_LAYOUT_G3S)
        unfold_g3(RG_LAYOUT_G3S, of_g3s, PIECES, panel, cols, to);
    else
        unfold(layout, panel, cols, to);
}

void rg_avx512_add_unfold_vbmi(rg_cpu *k)
{
    make_planes(of_g3, RG_IQ3_XXS, 256);
    make_planes(of_g3s, RG_IQ3_S, MOST);
    k->unfold = unfold_with_vbmi;
}
