/* fast.c -- the fast recipe with vpmaddubsw: 16 rows of integer weights by m rows of int8 activations.
 *
 * vpmaddubsw multiplies unsigned by signed bytes and adds neighbours to int16, saturating; here it never saturates, nor
 * do the int16 sums wrap.  Of weights of up to 6 bits the signed side is x, within +-127, and a lane takes so few pairs
 * before it is widened that |sum| <= pairs * 2 * 127 * (the largest weight) < 32768: 8 pairs of 4 bits (30480), 4 of 5
 * bits (31496), 2 of 6 bits (32004).  Weights of 8 bits are taken as signed, 128 less: the unsigned side is |w| <= 128,
 * the signed one x or, where w < 0, the bits of x inverted, which is -x - 1; each pair, -2 * 128 * 128 at least and 2 *
 * 127 * 127 at most, is widened at once.  The sums of |w| that are then missing do not depend on x.  What an offset
 * still owes is added in int32.  All of it exact. */
#include "ops/cpu/avx2/avx2.h"

enum { FEW = 4, TILE = 4 }; /* 8 sums, weights, x and a product; results wait in L1 */
#define FEWS(DO, ...) DO(__VA_ARGS__, 1) DO(__VA_ARGS__, 2) DO(__VA_ARGS__, 3) DO(__VA_ARGS__, 4)
#define TILES(DO, ...) DO(__VA_ARGS__, 2) DO(__VA_ARGS__, 3) DO(__VA_ARGS__, 4)

#define BEGIN _mm256_setzero_si256()

ALWAYS_INLINE __m256 as_float(__m256i sum)
{
    return _mm256_cvtepi32_ps(sum);
}

/* An unpacked run: the unsigned sides of its products; for weights of 8 bits also -1 where they are below 0; and where
 * sums start. */
typedef struct factors {
    __m256i w[8][2], sign[8][2], start[2][2];
} factors;

/* Sums of one row over the groups of a run: [part], in int32 where weights are of 8 bits.  In int16 the second ones are
 * of those groups that the first have no room for. */
typedef struct sums {
    __m256i first[2], second[2];
} sums;

/* Weights of 8 bits. */
ALWAYS_INLINE bool is_wide(rg_layout layout)
{
    return factor_bits(layout) == 8;
}

/* Narrow codes in one plane: two tiles unpack them sooner than they are stored. */
ALWAYS_INLINE int many(rg_layout layout)
{
    const bool plain = rg_layout_bits(layout) == rg_layout_low_bits(layout) && !is_wide(layout);

    return plain && rg_layout_step(layout) == 32 ? 2 * FEW + 1 : FEW + 1;
}

ALWAYS_INLINE int taken(rg_layout layout)
{
    return is_wide(layout) ? 128 : 0;
}

/* Groups of four columns that an int16 sum has room for. */
ALWAYS_INLINE int groups_per_sum(rg_layout layout)
{
    const int bits = factor_bits(layout);

    return bits == 6 ? 2 : bits == 5 ? 4 : 8;
}

ALWAYS_INLINE book factor_book(rg_layout layout, const uint8_t *panel)
{
    book t = load_book(layout, panel);

    t.byte = _mm256_xor_si256(t.byte, _mm256_set1_epi8((char)128));
    return t;
}

ALWAYS_INLINE __m256i factor(rg_layout layout, const book *t, const uint8_t *q, int i, int part)
{
    const __m256i v = run_group(layout, t, q, i, part);

    return is_wide(layout) && !has_table(layout) ? _mm256_xor_si256(v, _mm256_set1_epi8((char)128)) : v;
}

/* The sum of |w| below 0: what add_wide lacks, -x - 1 having stood for -x. */
ALWAYS_INLINE __m256i add_lack(__m256i sum, __m256i w, __m256i sign)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_and_si256(w, sign), _mm256_set1_epi8(1));

    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

ALWAYS_INLINE void unpack_factors(rg_layout layout, factors *f, const book *t, const uint8_t *q)
{
    const int n_groups = 8 / n_halves_of(layout);

#pragma GCC unroll 2
    for (int part = 0; part < 2; part++)
#pragma GCC unroll 2
        for (int h = 0; h < n_halves_of(layout); h++) {
            __m256i sum = BEGIN;
#pragma GCC unroll 8
            for (int i = h * n_groups; i < (h + 1) * n_groups; i++) {
                const __m256i w = factor(layout, t, q, i, part), sign = _mm256_cmpgt_epi8(_mm256_setzero_si256(), w);

                f->w[i][part] = is_wide(layout) ? _mm256_abs_epi8(w) : w;
                if (!is_wide(layout))
                    continue;
                f->sign[i][part] = sign;
                sum = add_lack(sum, f->w[i][part], sign);
            }
            f->start[h][part] = sum;
        }
}

ALWAYS_INLINE __m256i begin(rg_layout layout, const factors *f, int h, int part)
{
    return is_wide(layout) ? f->start[h][part] : BEGIN;
}

/* Sums of int16 begin at 0. */
ALWAYS_INLINE void clear_sums(rg_layout layout, sums *s, int part, __m256i start)
{
    s->first[part] = is_wide(layout) ? start : _mm256_setzero_si256();
    s->second[part] = _mm256_setzero_si256();
}

/* By name, here and below, because gcc would make all products of a run first, and store them. */
ALWAYS_INLINE __m256i add_dot(__m256i sum, __m256i w, __m256i x)
{
    __m256i t;

    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(t) : "x"(w), "x"(x));
    return sum;
}

/* The same with weights of 8 bits, to int32; w: their |w|, sign: -1 where they are below 0. */
ALWAYS_INLINE __m256i add_wide(__m256i sum, __m256i w, __m256i sign, __m256i x)
{
    __m256i t;

    __asm__ volatile("vpxor %3, %4, %1\n\tvpmaddubsw %1, %2, %1\n\tvpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
                     : "+x"(sum), "=&x"(t)
                     : "x"(w), "x"(sign), "x"(x), "x"(_mm256_set1_epi16(1)));
    return sum;
}

/* The same of signed weights as they are: nothing is missing. */
ALWAYS_INLINE __m256i add_signed(__m256i sum, __m256i w, __m256i x)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));

    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

ALWAYS_INLINE void add_narrow(rg_layout layout, sums *s, int part, int n, __m256i w, __m256i x)
{
    if (n < groups_per_sum(layout))
        s->first[part] = add_dot(s->first[part], w, x);
    else
        s->second[part] = add_dot(s->second[part], w, x);
}

ALWAYS_INLINE void add_few(rg_layout layout, sums *s, int part, int n, __m256i w, __m256i x)
{
    if (is_wide(layout))
        s->first[part] = add_signed(s->first[part], w, x);
    else
        add_narrow(layout, s, part, n, w, x);
}

ALWAYS_INLINE void add_unpacked(rg_layout layout, sums *s, int part, int n, const factors *f, int i, __m256i x)
{
    if (is_wide(layout))
        s->first[part] = add_wide(s->first[part], f->w[i][part], f->sign[i][part], x);
    else
        add_narrow(layout, s, part, n, f->w[i][part], x);
}

ALWAYS_INLINE __m256i total(rg_layout layout, const sums *s, int part, __m256i start)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i sum;

    if (is_wide(layout))
        return s->first[part];
    sum = _mm256_madd_epi16(s->first[part], ones);
    if (8 / n_halves_of(layout) > groups_per_sum(layout))
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(s->second[part], ones));
    return _mm256_add_epi32(sum, start);
}

#include "ops/cpu/avx2/rows_tmpl.h"

void rg_avx2_init_fast(rg_cpu *k)
{
    fill_fast(k);
}
