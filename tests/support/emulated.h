/* emulated.h -- instructions that few processors have, for kernels that are compiled a second time with this in front of
 * them: vpdpbusd of 256 bits, on AVX2; vdpbf16ps, vpermi2b, vpmultishiftqb, vgf2p8affineqb and tiles, on AVX512 F, which
 * the rest of such a kernel needs anyway.
 *
 * What they do is measured (VDPBF16PS, TDPBF16PS: the order of the sums) or the manual's: bf16 operands are multiplied
 * and added with one rounding, subnormals are zeros on the way in and on the way out, whatever mxcsr says.  Here mxcsr
 * itself is told to do so, and not the arithmetic of ref/.  What the instruction refuses (a tile that is not configured,
 * sizes that do not fit) ends the program. */
#ifndef RG_TEST_EMULATED_H
#define RG_TEST_EMULATED_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EMULATED static inline __attribute__((unused))

/* sum + a . b, unsigned bytes by signed ones, four to a sum: even ones and odd ones as words. */
EMULATED __m256i emulated_dpbusd(__m256i sum, __m256i a, __m256i b)
{
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(255)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));

    return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}

#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32 emulated_dpbusd

#if defined(__AVX512F__)

/* c = a * b + c, flushing; one statement, so that nothing else is computed under that mxcsr. */
EMULATED __m512 emulated_fma(__m512 a, __m512 b, __m512 c)
{
    const unsigned now = _mm_getcsr(), flush = 0x9fc0; /* FTZ, DAZ, no exceptions */

    __asm__ volatile("vldmxcsr %3\n\tvfmadd231ps %2, %1, %0\n\tvldmxcsr %4" : "+v"(c) : "v"(a), "v"(b), "m"(flush), "m"(now));
    return c;
}

/* The lower (even) and the upper (odd) bf16 of every lane, as floats. */
EMULATED __m512 emulated_even(__m512i v)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}

EMULATED __m512 emulated_odd(__m512i v)
{
    return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xffff0000)));
}

EMULATED __m512 emulated_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b)
{
    const __m512i x = (__m512i)a, y = (__m512i)b;

    sum = emulated_fma(emulated_odd(x), emulated_odd(y), sum);
    return emulated_fma(emulated_even(x), emulated_even(y), sum);
}

/* To nearest even, subnormal values being zeros before: b, and a above it. */
EMULATED __m512bh emulated_cvtne2ps_pbh(__m512 a, __m512 b)
{
    float from[32];
    uint16_t to[32];
    __m512bh v;

    memcpy(from, &b, sizeof b);
    memcpy(from + 16, &a, sizeof a);
    for (int i = 0; i < 32; i++) {
        uint32_t bits;

        memcpy(&bits, from + i, sizeof bits);
        if ((bits & 0x7f800000u) == 0)
            bits &= 0x80000000u;
        bits = from[i] != from[i] ? bits | 0x400000u : bits + 0x7fff + (bits >> 16 & 1);
        to[i] = (uint16_t)(bits >> 16);
    }
    memcpy(&v, to, sizeof v);
    return v;
}

#undef _mm512_cvtne2ps_pbh
#define _mm512_cvtne2ps_pbh emulated_cvtne2ps_pbh
#undef _mm512_dpbf16_ps
#define _mm512_dpbf16_ps emulated_dpbf16_ps

/* Bytes of a, then of b, at the lower seven bits of each index. */
EMULATED __m512i emulated_permutex2var_epi8(__m512i a, __m512i index, __m512i b)
{
    uint8_t from[128], at[64], to[64];

    memcpy(from, &a, sizeof a);
    memcpy(from + 64, &b, sizeof b);
    memcpy(at, &index, sizeof index);
    for (int i = 0; i < 64; i++)
        to[i] = from[at[i] & 127];
    memcpy(&a, to, sizeof a);
    return a;
}

#undef _mm512_permutex2var_epi8
#define _mm512_permutex2var_epi8 emulated_permutex2var_epi8

#undef _mm512_permutexvar_epi8
#define _mm512_permutexvar_epi8(index, a) emulated_permutex2var_epi8(a, _mm512_and_si512(index, _mm512_set1_epi8(63)), a)

/* Of each byte of the control: the eight bits from there on of its 64, which go round. */
EMULATED __m512i emulated_multishift(__m512i control, __m512i v)
{
    uint8_t from[64], to[64] = { 0 };
    uint64_t words[8];

    memcpy(from, &control, sizeof control);
    memcpy(words, &v, sizeof v);
    for (int i = 0; i < 64; i++)
        for (int bit = 0; bit < 8; bit++)
            to[i] |= (uint8_t)((words[i / 8] >> ((from[i] + bit) & 63) & 1) << bit);
    memcpy(&v, to, sizeof v);
    return v;
}

/* Each byte of x times the matrix of its 64 bits, whose row for bit i is byte 7 - i; then bits are added. */
EMULATED __m512i emulated_affine(__m512i x, __m512i matrix, int added)
{
    uint8_t from[64], rows[64], to[64];

    memcpy(from, &x, sizeof x);
    memcpy(rows, &matrix, sizeof matrix);
    for (int k = 0; k < 64; k++) {
        to[k] = (uint8_t)added;
        for (int i = 0; i < 8; i++)
            to[k] ^= (uint8_t)(__builtin_parity(from[k] & rows[k / 8 * 8 + 7 - i]) << i);
    }
    memcpy(&x, to, sizeof x);
    return x;
}

#undef _mm512_multishift_epi64_epi8
#define _mm512_multishift_epi64_epi8 emulated_multishift

#undef _mm512_gf2p8affine_epi64_epi8
#define _mm512_gf2p8affine_epi64_epi8 emulated_affine

/* ---- tiles ---------------------------------------------------------------------------------------------------------- */

enum { EMULATED_TILES = 8 };

static _Thread_local struct {
    bool configured;
    int rows[EMULATED_TILES], bytes[EMULATED_TILES];
    _Alignas(64) uint8_t data[EMULATED_TILES][16][64];
} emulated;

EMULATED void emulated_check(bool right, const char *what)
{
    if (right)
        return;
    fprintf(stderr, "emulated tiles: %s\n", what);
    abort();
}

EMULATED void emulated_loadconfig(const void *from)
{
    const uint8_t *c = from;

    emulated_check(c[0] == 1 && c[1] == 0, "palette or first row");
    for (int i = 2; i < 64; i++)
        emulated_check(c[i] == 0 || (i >= 16 && i < 32) || (i >= 48 && i < 56), "a reserved byte is set");
    memset(&emulated, 0, sizeof emulated);
    for (int t = 0; t < EMULATED_TILES; t++) {
        emulated.bytes[t] = c[16 + 2 * t] | c[17 + 2 * t] << 8;
        emulated.rows[t] = c[48 + t];
        emulated_check(emulated.rows[t] <= 16 && emulated.bytes[t] <= 64 && !emulated.rows[t] == !emulated.bytes[t], "size");
    }
    emulated.configured = true;
}

EMULATED void emulated_release(void)
{
    memset(&emulated, 0, sizeof emulated);
}

EMULATED void emulated_usable(int t)
{
    emulated_check(emulated.configured && t >= 0 && t < EMULATED_TILES && emulated.rows[t], "a tile that is not configured");
}

EMULATED void emulated_zero(int t)
{
    emulated_usable(t);
    memset(emulated.data[t], 0, sizeof emulated.data[t]);
}

EMULATED void emulated_loadd(int t, const void *from, size_t stride)
{
    emulated_usable(t);
    memset(emulated.data[t], 0, sizeof emulated.data[t]);
    for (int r = 0; r < emulated.rows[t]; r++)
        memcpy(emulated.data[t][r], (const uint8_t *)from + (size_t)r * stride, (size_t)emulated.bytes[t]);
}

EMULATED void emulated_stored(int t, void *to, size_t stride)
{
    emulated_usable(t);
    for (int r = 0; r < emulated.rows[t]; r++)
        memcpy((uint8_t *)to + (size_t)r * stride, emulated.data[t][r], (size_t)emulated.bytes[t]);
}

EMULATED void emulated_fit(int c, int a, int b)
{
    emulated_usable(a);
    emulated_usable(b);
    emulated_usable(c);
    emulated_check(a != b && b != c && a != c, "a product of a tile with itself");
    emulated_check(emulated.rows[a] == emulated.rows[c] && emulated.bytes[b] == emulated.bytes[c] &&
                       emulated.bytes[a] == 4 * emulated.rows[b] && emulated.bytes[c] % 4 == 0,
                   "tiles that do not fit");
}

EMULATED int32_t *emulated_row(int t, int r)
{
    return (int32_t *)(void *)emulated.data[t][r];
}

/* c += a b; signed bytes, four of them to a sum. */
EMULATED void emulated_dpbssd(int c, int a, int b)
{
    emulated_fit(c, a, b);
    for (int m = 0; m < emulated.rows[c]; m++)
        for (int k = 0; k < emulated.rows[b]; k++)
            for (int n = 0; n < emulated.bytes[c] / 4; n++) {
                uint32_t sum = (uint32_t)emulated_row(c, m)[n];
                for (int i = 0; i < 4; i++)
                    sum += (uint32_t)((int8_t)emulated.data[a][m][4 * k + i] * (int8_t)emulated.data[b][k][4 * n + i]);
                memcpy(&emulated_row(c, m)[n], &sum, sizeof sum);
            }
}

/* c += a b, rows of at most 32 bf16: even products and odd ones apart, each from zero, then c + (even + odd).  Past a
 * tile's own columns its data is zero, and nobody looks at what comes of it. */
EMULATED void emulated_dpbf16ps(int c, int a, int b)
{
    const __m512 one = _mm512_set1_ps(1.0f);

    emulated_fit(c, a, b);
    for (int m = 0; m < emulated.rows[c]; m++) {
        __m512 even = _mm512_setzero_ps(), odd = even, sum = _mm512_load_ps(emulated.data[c][m]);

        for (int k = 0; k < emulated.rows[b]; k++) {
            const __m512i x = _mm512_set1_epi32(emulated_row(a, m)[k]), w = _mm512_load_si512(emulated.data[b][k]);
            even = emulated_fma(emulated_even(x), emulated_even(w), even);
            odd = emulated_fma(emulated_odd(x), emulated_odd(w), odd);
        }
        sum = emulated_fma(emulated_fma(even, one, odd), one, sum);
        _mm512_store_ps(emulated.data[c][m], sum);
    }
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stream_loadd
#undef _tile_stored
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#define _tile_loadconfig emulated_loadconfig
#define _tile_release    emulated_release
#define _tile_zero       emulated_zero
#define _tile_loadd      emulated_loadd
#define _tile_stream_loadd emulated_loadd
#define _tile_stored     emulated_stored
#define _tile_dpbssd     emulated_dpbssd
#define _tile_dpbf16ps   emulated_dpbf16ps

#endif

/* The kernels' own names, which the library has already. */
#define rg_cpu_init_avx_vnni       emulated_init_avx_vnni
#define rg_cpu_init_avx512_bf16    emulated_init_avx512_bf16
#define rg_cpu_add_avx512_pairs_f8 emulated_add_avx512_pairs_f8
#define rg_avx512_add_unfold_vbmi  emulated_add_avx512_unfold_vbmi
#define rg_cpu_init_amx            emulated_init_amx
#define rg_amx_init_bf16           emulated_amx_init_bf16
#define rg_amx_init_f8             emulated_amx_init_f8
#define rg_amx_init_int8           emulated_amx_init_int8

#endif
