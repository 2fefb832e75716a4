/* unfold_vbmi.c -- panels of folded layouts, looked up as bytes: vpermi2b finds 64 of them in a table of 128, where a
 * gather takes the entries of 16 rows one by one.
 *
 * An entry has at most 16 bits: two planes of bytes.  For vectors of 4 they are codes 0 and 1 of each entry, and codes
 * 2 and 3, the second in the upper half.  For vectors of 8, whose codes have 2 bits, they are the lower bits of all
 * codes, and the upper bits; eight of those bytes, from the four vectors of a row, are a matrix of bits, which
 * vgf2p8affineqb transposes.  For bytes of five digits they are the first four digits, and the last one.
 *
 * A plane has 4 to 32 pieces of 64 bytes.  Two vectors of entries are looked up at once, so that each piece is loaded
 * once for both: loads would take longer than lookups. */
#include "ops/cpu/avx512/unfold.h"

enum { MOST = 2048 };

typedef __m512i grid_planes[2][MOST / 64];
static grid_planes planes[RG_LAYOUT_G3S + 1 - RG_LAYOUT_Q1]; /* set once, when the table of kernels is built */

ALWAYS_INLINE __m512i *plane_of(rg_layout layout, int k)
{
    return planes[layout - RG_LAYOUT_Q1][k];
}

static uint8_t plane_byte(rg_layout layout, uint32_t entry, int k)
{
    uint8_t byte = 0;

    if (of_4(layout))
        return (uint8_t)((entry >> 16 * k & 15) | (entry >> (16 * k + 8) & 15) << 4);
    for (int i = 0; i < 8; i++)
        byte |= (uint8_t)((entry >> (i % 4 * 8 + i / 4 * 4 + k) & 1) << i);
    return byte;
}

static void make_digits(void)
{
    for (int i = 0; i < 256; i++) {
        int digits = 0;

        for (int n = 0, left = i; n < 5; n++, left = 3 * left & 255)
            digits |= 3 * left >> 8 << 2 * n;
        for (int k = 0; k < 2; k++)
            ((uint8_t *)plane_of(RG_LAYOUT_Q1, k))[i] = (uint8_t)(digits >> 8 * k);
    }
}

static void make_planes(rg_layout layout)
{
    const uint32_t *grid = rg_grid_of(rg_folded_type(layout));

    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 256 << high_bits(layout); i++)
            ((uint8_t *)plane_of(layout, k))[i] = plane_byte(layout, grid[i], k);
}

/* 64 entries: their bytes, and which have bits 7, 8 and so on set. */
typedef struct entries {
    __m512i low;
    __mmask64 bit[4];
} entries;

/* What a plane has for two of those. */
typedef struct found {
    __m512i v[2];
} found;

ALWAYS_INLINE found chosen(const entries *e, int bit, found not_set, found set)
{
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        set.v[i] = _mm512_mask_blend_epi8(e[i].bit[bit], not_set.v[i], set.v[i]);
    return set;
}

/* By name, so that the compiler does not load it anew for each vector. */
ALWAYS_INLINE __m512i load_piece(const __m512i *p)
{
    __m512i v;

    __asm__("vmovdqa64 %1, %0" : "=v"(v) : "m"(*p));
    return v;
}

ALWAYS_INLINE found find_128(const __m512i *p, const entries *e)
{
    const __m512i low = load_piece(p), high = load_piece(p + 1);

    return (found){ { _mm512_permutex2var_epi8(low, e[0].low, high), _mm512_permutex2var_epi8(low, e[1].low, high) } };
}

ALWAYS_INLINE found find_256(const __m512i *p, const entries *e)
{
    return chosen(e, 0, find_128(p, e), find_128(p + 2, e));
}

ALWAYS_INLINE found find_512(const __m512i *p, const entries *e)
{
    return chosen(e, 1, find_256(p, e), find_256(p + 4, e));
}

ALWAYS_INLINE found find_1024(const __m512i *p, const entries *e)
{
    return chosen(e, 2, find_512(p, e), find_512(p + 8, e));
}

ALWAYS_INLINE found find(rg_layout layout, const __m512i *plane, const entries *e)
{
    switch (high_bits(layout)) {
    case 0: return find_256(plane, e);
    case 1: return find_512(plane, e);
    case 2: return find_1024(plane, e);
    default: return chosen(e, 3, find_1024(plane, e), find_1024(plane + 16, e));
    }
}

ALWAYS_INLINE entries entries_of_bytes(__m512i low)
{
    return (entries){ .low = low, .bit[0] = _mm512_movepi8_mask(low) };
}

/* Four neighbours of each row: the first, or from the last to the first. */
ALWAYS_INLINE entries entries_of(rg_layout layout, const folded_run *r, int first)
{
    const __m512i reversed = _mm512_set4_epi32(0x0c0d0e0f, 0x08090a0b, 0x04050607, 0x00010203);
    const __m512i low = (__m512i)r->low[first / 4];
    entries e = entries_of_bytes(of_4(layout) ? low : _mm512_shuffle_epi8(low, reversed));
    uint64_t from = 0;

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

/* Groups of the codes of a run, without signs, from what both planes have for its vectors 0 to 3 and 4 to 7. */
ALWAYS_INLINE void groups_of_4(found one, found two, words group[4])
{
    const __m512i low = _mm512_set1_epi8(15);
    const __m512i code[4] = { /* vectors 0 to 3 below, 4 to 7 above */
        _mm512_ternarylogic_epi32(low, one.v[0], _mm512_slli_epi16(one.v[1], 4), 0xca),
        _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(one.v[0], 4), one.v[1], 0xca),
        _mm512_ternarylogic_epi32(low, two.v[0], _mm512_slli_epi16(two.v[1], 4), 0xca),
        _mm512_ternarylogic_epi32(low, _mm512_srli_epi16(two.v[0], 4), two.v[1], 0xca),
    };

    turn_bytes(code, group);
}

/* The same from the lower and the upper bits of vectors of 8, the last vector of each row first. */
ALWAYS_INLINE void groups_of_8(__m512i low, __m512i high, words group[4])
{
    const __m512i unit = _mm512_set1_epi64((long long)0x8040201008040201);
    /* Eight bytes a row: byte i has code i of its four vectors, the first one lowest. */
    const __m512i a = _mm512_gf2p8affine_epi64_epi8(unit, _mm512_unpacklo_epi8(high, low), 0);
    const __m512i b = _mm512_gf2p8affine_epi64_epi8(unit, _mm512_unpackhi_epi8(high, low), 0);
    const __m512 rows[2] = { _mm512_castsi512_ps(a), _mm512_castsi512_ps(b) };
    const words codes[2] = { (words)_mm512_castps_si512(_mm512_shuffle_ps(rows[0], rows[1], 0x88)),
                             (words)_mm512_castps_si512(_mm512_shuffle_ps(rows[0], rows[1], 0xdd)) };

    for (int g = 0; g < 4; g++)
        group[g] = codes[g % 2] >> g / 2 * 2 & 0x33333333;
}

/* As scale_of: bits 0, 2, 4 and 6 of the upper byte.  The row of a matrix that makes bit i is its byte 7 - i. */
ALWAYS_INLINE words told_scale(words signs)
{
    const __m512i even = _mm512_set1_epi64(0x0104104000000000);

    return (words)_mm512_gf2p8affine_epi64_epi8((__m512i)signs, even, 0) >> 24;
}

ALWAYS_INLINE folded_run load_told(rg_layout layout, const uint8_t *step, int run)
{
    folded_run r = load_folded(layout, step, run, 0);

    if (is_told(layout)) {
        r.scale[0] = told_scale(r.signs);
        r.signs = tell(r.signs);
    }
    fetch_on(step, rg_layout_step_bytes(layout), run);
    return r;
}

/* 64 vectors of 8 are one run; 64 vectors of 4 are half of one. */
ALWAYS_INLINE void unfold_two_runs(rg_layout layout, const uint8_t *step, int run, uint8_t *to)
{
    const folded_run r[2] = { load_told(layout, step, run), load_told(layout, step, run + 1) };
    const __m512i *const plane[2] = { plane_of(layout, 0), plane_of(layout, 1) };
    words group[4];

    if (of_4(layout)) {
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            const entries e[2] = { entries_of(layout, &r[i], 0), entries_of(layout, &r[i], 4) };
            groups_of_4(find(layout, plane[0], e), find(layout, plane[1], e), group);
            put_run(layout, &r[i], group, run + i, 0, to);
        }
    } else {
        const entries e[2] = { entries_of(layout, &r[0], 0), entries_of(layout, &r[1], 0) };
        const found low = find(layout, plane[0], e), high = find(layout, plane[1], e);
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            groups_of_8(low.v[i], high.v[i], group);
            put_run(layout, &r[i], group, run + i, 0, to);
        }
    }
}

/* Fields of two bits: to[i] has field i of a, b, c and d, that of a lowest. */
ALWAYS_INLINE void turn_fields(__m512i a, __m512i b, __m512i c, __m512i d, __m512i to[4])
{
    const __m512i four = _mm512_set1_epi8(0x0f), two = _mm512_set1_epi8(0x33);
    const __m512i ac[2] = { _mm512_ternarylogic_epi32(four, a, _mm512_slli_epi16(c, 4), 0xca),
                            _mm512_ternarylogic_epi32(four, _mm512_srli_epi16(a, 4), c, 0xca) };
    const __m512i bd[2] = { _mm512_ternarylogic_epi32(four, b, _mm512_slli_epi16(d, 4), 0xca),
                            _mm512_ternarylogic_epi32(four, _mm512_srli_epi16(b, 4), d, 0xca) };

#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        to[2 * i] = _mm512_ternarylogic_epi32(two, ac[i], _mm512_slli_epi16(bd[i], 2), 0xca);
        to[2 * i + 1] = _mm512_ternarylogic_epi32(two, _mm512_srli_epi16(ac[i], 2), bd[i], 0xca);
    }
}

/* The digits of groups i and k. */
ALWAYS_INLINE void find_digits(const rg_step_q1 *q1, int i, int k, found *first4, found *last)
{
    const entries e[2] = { entries_of_bytes((__m512i)load_words(q1->q[i])),
                           entries_of_bytes((__m512i)load_words(q1->q[k])) };

    *first4 = find_256(plane_of(RG_LAYOUT_Q1, 0), e);
    *last = find_256(plane_of(RG_LAYOUT_Q1, 1), e);
}

/* The even or the odd groups of all runs: their four groups are the fields of a byte. */
ALWAYS_INLINE void unfold_found_digits(const uint8_t *step, int odd, uint8_t *to_step)
{
    const rg_step_q1 *q1 = (const void *)step;
    rg_step_q2 *q2 = (void *)to_step;
    found first4[4], last[4];
    __m512i to[8], only[4];

    find_digits(q1, odd, 2 + odd, &first4[0], &last[0]);
    find_digits(q1, 4 + odd, 6 + odd, &first4[1], &last[1]);
    find_digits(q1, 8 + odd, 10 + odd, &first4[2], &last[2]);
    find_digits(q1, 12, 12, &first4[3], &last[3]);
    turn_fields(first4[0].v[0], first4[0].v[1], first4[1].v[0], first4[1].v[1], to);
    turn_fields(last[0].v[0], last[0].v[1], last[1].v[0], last[1].v[1], only);
    to[4] = only[0];
    /* From group 8 on digits 0 and 1 are of one run, 2 and 3 of the next.  Fields that a shift brings from other bytes
     * are in no vector that is used. */
    turn_fields(first4[2].v[0], first4[2].v[1], _mm512_srli_epi16(first4[2].v[0], 2),
                _mm512_srli_epi16(first4[2].v[1], 2), only);
    to[5] = only[0];
    to[6] = only[2];
    turn_fields(last[2].v[0], last[2].v[1], _mm512_srli_epi16(first4[3].v[0], 2 * (unsigned)odd),
                _mm512_srli_epi16(first4[3].v[0], 2 * (unsigned)odd + 4), only);
    to[7] = only[0];
#pragma GCC unroll 8
    for (int r = 0; r < 8; r++)
        _mm512_storeu_si512(q2->q[r][odd], to[r]);
}

ALWAYS_INLINE void unfold_step(rg_layout layout, const uint8_t *step, uint8_t *to)
{
    if (layout == RG_LAYOUT_Q1) {
        fetch_step(step, rg_layout_step_bytes(layout));
        __builtin_memcpy(((rg_step_q2 *)(void *)to)->d, ((const rg_step_q1 *)(const void *)step)->d, 32);
        unfold_found_digits(step, 0, to);
        unfold_found_digits(step, 1, to);
        return;
    }
    put_d(layout, step, 0, to);
#pragma GCC unroll 1
    for (int run = 0; run < 8; run += 2)
        unfold_two_runs(layout, step, run, to);
}

ALWAYS_INLINE void unfold_found(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    const size_t head = rg_layout_head_bytes(layout);

    __builtin_memcpy(to, panel, head);
    panel += head;
    to += head;
    for (int i = 0; i < cols / 256; i++) {
        unfold_step(layout, panel, to);
        panel += rg_layout_step_bytes(layout);
        to += rg_layout_step_bytes(rg_layout_unfolded(layout));
    }
}

static void unfold_with_vbmi(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    switch (layout) {
#define UNFOLD(which) case which: unfold_found(which, panel, cols, to); break;
    FOLDED_LAYOUTS(UNFOLD)
#undef UNFOLD
    default: RG_ASSERT(false);
    }
}

void rg_avx512_add_unfold_vbmi(rg_cpu *k)
{
    for (rg_layout layout = RG_LAYOUT_G1; layout <= RG_LAYOUT_G3S; layout++)
        make_planes(layout);
    make_digits();
    k->unfold = unfold_with_vbmi;
}
