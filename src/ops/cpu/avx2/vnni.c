/* vnni.c -- the fast recipe with AVX-VNNI, which processors without AVX-512 have.
 *
 * vpdpbusd multiplies unsigned by signed bytes and adds four products to an int32 exactly (it does not saturate): the
 * weights are the unsigned side as they are packed.  |sum| <= 32 * 255 * 128 + 128 * 32 * 128 < 2^21: exact. */
#include "ops/cpu/avx2/avx2.h"
#include "ops/cpu/avx2/init.h"

enum { FEW = 6, TILE = 6 }; /* 12 sums, weights and x; results wait in L1 */
#define FEWS(DO, ...)                                                                                                  \
    DO(__VA_ARGS__, 1) DO(__VA_ARGS__, 2) DO(__VA_ARGS__, 3) DO(__VA_ARGS__, 4) DO(__VA_ARGS__, 5) DO(__VA_ARGS__, 6)
#define TILES(DO, ...) DO(__VA_ARGS__, 3) DO(__VA_ARGS__, 4) DO(__VA_ARGS__, 5) DO(__VA_ARGS__, 6)

/* The bits of the float 1.5 * 2^23: an integer of less than 2^22 added to them gives those of 1.5 * 2^23 and that
 * integer, exactly, and a subtraction makes it a float.  (A conversion would take the units that multiply.) */
#define BEGIN _mm256_set1_epi32(0x4b400000)

ALWAYS_INLINE __m256 as_float(__m256i sum)
{
    return _mm256_sub_ps(_mm256_castsi256_ps(sum), _mm256_set1_ps(0x1.8p23f));
}

typedef struct factors {
    __m256i w[8][2];
} factors;

typedef struct sums {
    __m256i of[2];
} sums;

/* Codes in one plane, under scales of their own: two tiles unpack them sooner than they are stored. */
ALWAYS_INLINE int many(rg_layout layout)
{
    return rg_layout_bits(layout) == rg_layout_low_bits(layout) && rg_layout_step(layout) == 32 ? 2 * FEW + 1 : FEW + 1;
}

ALWAYS_INLINE int taken(rg_layout layout)
{
    (void)layout;
    return 0;
}

ALWAYS_INLINE book factor_book(rg_layout layout, const uint8_t *panel)
{
    return load_book(layout, panel);
}

ALWAYS_INLINE __m256i factor(rg_layout layout, const book *t, const uint8_t *q, int i, int part)
{
    return run_group(layout, t, q, i, part);
}

ALWAYS_INLINE void unpack_factors(rg_layout layout, factors *f, const book *t, const uint8_t *q)
{
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        for (int part = 0; part < 2; part++)
            f->w[i][part] = run_group(layout, t, q, i, part);
}

ALWAYS_INLINE __m256i begin(rg_layout layout, const factors *f, int h, int part)
{
    (void)layout, (void)f, (void)h, (void)part;
    return BEGIN;
}

ALWAYS_INLINE void clear_sums(rg_layout layout, sums *s, int part, __m256i start)
{
    (void)layout;
    s->of[part] = start;
}

/* In this order: the compiler would make other sums wait on the stack. */
ALWAYS_INLINE void add_few(rg_layout layout, sums *s, int part, int n, __m256i w, __m256i x)
{
    (void)layout, (void)n;
    s->of[part] = _mm256_dpbusd_avx_epi32(s->of[part], w, x);
    __asm__ volatile("" : "+x"(s->of[part]));
}

ALWAYS_INLINE void add_unpacked(rg_layout layout, sums *s, int part, int n, const factors *f, int i, __m256i x)
{
    add_few(layout, s, part, n, f->w[i][part], x);
}

ALWAYS_INLINE __m256i total(rg_layout layout, const sums *s, int part, __m256i more)
{
    (void)layout, (void)more;
    return s->of[part];
}

#include "ops/cpu/avx2/rows_tmpl.h"

enum { CHAINS = 12 }; /* two multipliers, latency 5 */

#include "ops/cpu/probe_tmpl.h"

ALWAYS_INLINE vec product_int8(vec sum)
{
    __m256i s = _mm256_castps_si256(sum);

    s = _mm256_dpbusd_avx_epi32(s, _mm256_set1_epi8(3), _mm256_set1_epi8(-5));
    __asm__ volatile("" : "+x"(s));
    return _mm256_castsi256_ps(s);
}

PEAK(int8, sizeof(vec))

void rg_cpu_init_avx_vnni(rg_cpu *k)
{
    k->isa = "avx_vnni";
    k->peak_int8 = peak_int8;
    fill_fast(k);
}
