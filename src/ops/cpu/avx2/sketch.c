/* sketch.c -- a row by panels of a sketch, with vpmaddubsw: a pair is at most 2 * 15 * 127, and eight pairs of a lane
 * at most 30480 < 32768, so that nothing saturates or wraps before it is widened. */
#include "ops/cpu/avx2/avx2.h"
#include "ops/cpu/sketch.h"

enum { AHEAD_BYTES = 2048 };

/* Eight rows of one panel. */
static void sketch_half(const rg_sketch_product *p, const uint8_t *panel, int part, float *mid, float *off)
{
    const rg_sketch_head *head = (const void *)panel;
    const rg_sketch_scales *of_block = rg_sketch_scales_of(panel);
    const rg_sketch_codes *codes = rg_sketch_codes_of(panel, p->n_blocks);
    const __m256i low = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
    __m256 a = _mm256_setzero_ps(), o = a;

    for (int b = 0; b < p->n_blocks; b++) {
        const rg_xblock *x = &p->q[b];
        __m256i sum = _mm256_setzero_si256();

#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const __m256i both = _mm256_loadu_si256((const __m256i *)(const void *)codes[b].q[g][8 * part]);
            int32_t first, second;

            __builtin_memcpy(&first, x->q + 4 * g, sizeof first);
            __builtin_memcpy(&second, x->q + 16 + 4 * g, sizeof second);
            _mm_prefetch((const char *)codes[b].q[g] + AHEAD_BYTES, _MM_HINT_T0);
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_and_si256(both, low), _mm256_set1_epi32(first)));
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(both, 4), low),
                                                             _mm256_set1_epi32(second)));
        }
        sum = _mm256_add_epi32(_mm256_madd_epi16(sum, one), _mm256_set1_epi32(x->neg8));
        a = fused(_mm256_cvtepi32_ps(sum), load_u8(of_block[b].d + 8 * part) * splat(x->d), a);
        o = fused(load_u8(of_block[b].e + 8 * part), splat(p->norm[b]), o);
    }
    _mm256_storeu_ps(mid + 8 * part, a * _mm256_loadu_ps(head->d + 8 * part));
    _mm256_storeu_ps(off + 8 * part, o * _mm256_loadu_ps(head->e + 8 * part));
}

static void sketch(const rg_sketch_product *p)
{
    for (int i = 0; i < 2 * p->n_panels; i++)
        sketch_half(p, p->panel + (size_t)(i / 2) * p->panel_bytes, i % 2, p->mid + 16 * (i / 2),
                    p->off + 16 * (i / 2));
}

void rg_avx2_init_sketch(rg_cpu *k)
{
    k->sketch = sketch;
    k->sketches = true;
}
