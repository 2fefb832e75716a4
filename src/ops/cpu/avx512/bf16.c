/* bf16.c -- the recipe `pairs` of BF16 weights: 16 rows of them by m rows of bf16 activations, with vdpbf16ps.
 *
 * Four chains per output by pair modulo 4, each a vector over the panel's 16 rows, and TILE rows of x at once.  A few
 * rows read the panel where it lies, its columns shuffled two and two as they go by; many rows take a piece of it at a
 * time, shuffled into L1, while the chains of a batch of rows wait beside it and the next piece comes from memory. */
#include "ops/cpu/avx512/avx512.h"
#include "ops/cpu/avx512/init.h"

#include <string.h>

enum {
    TILE = 6,     /* rows: 24 chains and 4 pairs of columns of weights in 32 registers */
    BATCH = 24,   /* rows that share a piece: 6 KiB of chains */
    PIECE = 256,  /* columns: 8 KiB */
    AHEAD = 4096, /* bytes prefetched ahead of one row's stream: the hardware stops at each page */
    CHAINS = 12,  /* of the peak */
};

#include "ops/cpu/probe_tmpl.h"

typedef vec chains[4]; /* by pair modulo 4 */

/* n columns of weights, as they lie in the panel or shuffled already, into the chains of n_rows rows; meanwhile as many
 * bytes from soon on come near.  shuffled and n_rows are constants. */
ALWAYS_INLINE void add_columns(bool shuffled, const uint8_t *w, const uint8_t *soon, int n, const uint16_t *x,
                               size_t ldx, int n_rows, chains *c)
{
    const uint16_t *xr[TILE];
    chains s[TILE]; /* in registers: through c, every sum would be stored at once */

#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++) {
        xr[r] = x + (size_t)r * ldx;
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            s[r][i] = c[r][i];
    }
    for (; n > 0; n -= 8, w += 256, soon += 256) {
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            __asm__("" : "+r"(xr[r])); /* a pointer per row, not an index: the load stays one operation with its use */
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const __m512i wi = shuffled ? _mm512_load_si512(w + 64 * i) : load_pairs(w + 64 * i);
            _mm_prefetch((const char *)soon + 64 * i, _MM_HINT_T0);
#pragma GCC unroll 6
            for (int r = 0; r < n_rows; r++)
                s[r][i] = _mm512_dpbf16_ps(s[r][i], (__m512bh)wi, (__m512bh)two_of(xr[r] + 2 * i));
        }
#pragma GCC unroll 6
        for (int r = 0; r < n_rows; r++)
            xr[r] += 8;
    }
#pragma GCC unroll 6
    for (int r = 0; r < n_rows; r++)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            c[r][i] = s[r][i];
}

/* The same for m rows; what is needed soon comes with the first of them. */
ALWAYS_INLINE void add_rows(bool shuffled, const uint8_t *w, const uint8_t *soon, int n, const uint16_t *x, size_t ldx,
                            int m, chains *c)
{
    for (; m > 0; m -= TILE, x += TILE * ldx, c += TILE, soon = w) /* w is near already */
        switch (m) {
        case 1: add_columns(shuffled, w, soon, n, x, ldx, 1, c); break;
        case 2: add_columns(shuffled, w, soon, n, x, ldx, 2, c); break;
        case 3: add_columns(shuffled, w, soon, n, x, ldx, 3, c); break;
        case 4: add_columns(shuffled, w, soon, n, x, ldx, 4, c); break;
        case 5: add_columns(shuffled, w, soon, n, x, ldx, 5, c); break;
        default: add_columns(shuffled, w, soon, n, x, ldx, TILE, c);
        }
}

/* Up to BATCH rows of one panel. */
static void add_panel(const rg_product *p, chains *c)
{
    _Alignas(64) uint8_t room[PIECE * 32];

    if (p->m <= TILE) {
        add_rows(false, p->panel, p->panel + AHEAD, p->cols, p->h, p->ldx, p->m, c);
        return;
    }
    for (int k = 0; k < p->cols; k += PIECE) {
        const int n = p->cols - k < PIECE ? p->cols - k : PIECE;
        for (int i = 0; i < n / 2; i++)
            _mm512_store_si512(room + 64 * i, load_pairs(p->panel + 32 * (size_t)k + 64 * (size_t)i));
        add_rows(true, room, p->panel + 32 * (size_t)(k + n), n, p->h + k, p->ldx, p->m, c);
    }
}

static void pairs(const rg_product *p)
{
    const int rows = near_rows((size_t)p->cols * sizeof *p->h);
    chains c[BATCH];

    for (int row = 0; row < p->m; row += rows)
        for (int i = 0; i < p->n_panels; i++) {
            const rg_product near = part_of(p, i, row, rows);
            for (int from = 0; from < near.m; from += BATCH) {
                const rg_product q = part_of(&near, 0, from, BATCH);
                memset(c, 0, sizeof *c * (size_t)q.m);
                add_panel(&q, c);
                for (int r = 0; r < q.m; r++)
                    store_f32(q.y + (size_t)r * q.ldy, (c[r][0] + c[r][1]) + (c[r][2] + c[r][3]));
            }
        }
}

/* ---- peak -------------------------------------------------------------------------------------------------------- */

ALWAYS_INLINE vec product_bf16(vec sum)
{
    const __m512i half = _mm512_set1_epi16(0x3f00);

    __asm__ volatile("vdpbf16ps %1, %1, %0" : "+v"(sum) : "v"(half));
    return sum;
}

PEAK(bf16, sizeof(vec) / sizeof(uint16_t))

void rg_cpu_init_avx512_bf16(rg_cpu *k)
{
    k->isa = "avx512_bf16";
    k->product[RG_BF16_PAIRS][RG_LAYOUT_BF16] = pairs;
    k->fast[RG_LAYOUT_BF16] = RG_BF16_PAIRS;
    k->peak_bf16 = peak_bf16;
}
