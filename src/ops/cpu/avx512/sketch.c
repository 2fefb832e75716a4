/* sketch.c -- a row by panels of a sketch, with VNNI: as fast.c, whose proof that sums are exact holds here too. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/sketch.h"

enum { AHEAD_BYTES = 16384 };

/* One panel, whose steps come one after the other from memory. */
static void sketch_panel(const rg_sketch_product *p, const uint8_t *panel, float *mid, float *off)
{
    const rg_sketch_head *head = (const void *)panel;
    const rg_sketch_scales *of_block = rg_sketch_scales_of(panel);
    const rg_sketch_codes *codes = rg_sketch_codes_of(panel, p->n_blocks);
    const __m512i low = _mm512_set1_epi8(15), high = _mm512_set1_epi8((char)0xf0);
    __m512 a = _mm512_setzero_ps(), o = a;

    for (int b = 0; b < p->n_blocks; b++) {
        const rg_xblock *x = &p->q[b];
        __m512i sum = _mm512_set1_epi32(x->neg8), more = _mm512_setzero_si512();

#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            const __m512i both = _mm512_load_si512(codes[b].q[g]);
            int32_t first, second;

            __builtin_memcpy(&first, x->q + 4 * g, sizeof first);
            __builtin_memcpy(&second, x->q + 16 + 4 * g, sizeof second);
            fetch_ahead(codes[b].q[g], AHEAD_BYTES);
            sum = _mm512_dpbusd_epi32(sum, _mm512_and_si512(both, low), _mm512_set1_epi32(first));
            more = _mm512_dpbusd_epi32(more, _mm512_and_si512(both, high), _mm512_set1_epi32(second));
        }
        sum = _mm512_add_epi32(sum, _mm512_srai_epi32(more, 4)); /* the upper codes counted 16 times */
        a = fused(_mm512_cvtepi32_ps(sum), load_u8(of_block[b].d) * splat(x->d), a);
        o = fused(load_u8(of_block[b].e), splat(p->norm[b]), o);
    }
    _mm512_storeu_ps(mid, a * _mm512_loadu_ps(head->d));
    _mm512_storeu_ps(off, o * _mm512_loadu_ps(head->e));
}

static void sketch(const rg_sketch_product *p)
{
    for (int i = 0; i < p->n_panels; i++)
        sketch_panel(p, p->panel + (size_t)i * p->panel_bytes, p->mid + 16 * i, p->off + 16 * i);
}

void rg_avx512_init_sketch(rg_cpu *k)
{
    k->sketch = sketch;
    k->sketches = true;
}
