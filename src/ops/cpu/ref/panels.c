/* panels.c -- every recipe of every layout, in plain C: what a panel product means.
 *
 * A panel is decoded step by step; a row of x never meets another row. */
#include "ops/cpu/ref/init.h"

#include "ops/cpu/math.h"
#include "ops/cpu/runs.h"

static float f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;

    if (magnitude >= 0x0f800000u)
        return rg_float_of(sign | magnitude | 0x7f800000u);
    return rg_float_of(sign | rg_bits_of(rg_float_of(magnitude) * 0x1p112f));
}

/* ---- exact ------------------------------------------------------------------------------------------------------- */

/* One step of a panel to f32: w[column][row]. */
typedef void decode_fn(const uint8_t *step, float (*w)[16]);

/* Column k of a run of 32 four-bit values: columns 0 .. 15 are the low nibbles. */
static int nibble(const uint8_t q[4][16][4], int k, int row)
{
    int byte = q[k % 16 / 4][row][k % 4];

    return k < 16 ? byte & 15 : byte >> 4;
}

static void decode_f32(const uint8_t *step, float (*w)[16])
{
    __builtin_memcpy(w, step, sizeof *w);
}

static void decode_f16(const uint8_t *step, float (*w)[16])
{
    const uint16_t *h = (const uint16_t *)(const void *)step;

    for (int i = 0; i < 16; i++)
        w[0][i] = f16(h[i]);
}

static void decode_bf16(const uint8_t *step, float (*w)[16])
{
    const uint16_t *h = (const uint16_t *)(const void *)step;

    for (int i = 0; i < 16; i++)
        w[0][i] = rg_float_of((uint32_t)h[i] << 16);
}

static void decode_q4(const uint8_t *step, float (*w)[16])
{
    const rg_step_q4 *p = (const void *)step;

    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)(nibble(p->q, k, i) - 8);
}

static void decode_q8(const uint8_t *step, float (*w)[16])
{
    const rg_step_q8 *p = (const void *)step;

    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)(p->q[k / 4][i][k % 4] - 128);
}

static void decode_q4m(const uint8_t *step, float (*w)[16])
{
    const rg_step_q4m *p = (const void *)step;

    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)nibble(p->q, k, i) + f16(p->m[i]);
}

static void decode_q8m(const uint8_t *step, float (*w)[16])
{
    const rg_step_q8m *p = (const void *)step;

    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)p->q[k / 4][i][k % 4] + f16(p->m[i]);
}

static void decode_k4(const uint8_t *step, float (*w)[16])
{
    const rg_step_k4 *p = (const void *)step;

    for (int k = 0; k < 256; k++)
        for (int i = 0; i < 16; i++) {
            float scale = f16(p->d[i]) * (float)p->s[k / 32][i], minimum = f16(p->e[i]) * (float)p->t[k / 32][i];
            w[k][i] = scale * (float)nibble(p->q[k / 32], k % 32, i) - minimum;
        }
}

static void decode_k8(const uint8_t *step, float (*w)[16])
{
    const rg_step_k8 *p = (const void *)step;

    for (int k = 0; k < 256; k++)
        for (int i = 0; i < 16; i++) {
            float scale = f16(p->d[i]) * (float)p->s[k / 16][i], minimum = f16(p->e[i]) * (float)p->t[k / 16][i];
            w[k][i] = scale * (float)(p->q[k / 16][k % 16 / 4][i][k % 4] - 128) - minimum;
        }
}

typedef struct step_of {
    decode_fn *decode;
    int cols;
    size_t bytes;
} step_of;

/* One panel by one row of x. */
static void exact_row(const step_of *step, const uint8_t *panel, int cols, const float *x, float *y)
{
    _Alignas(64) float w[256][16], c[4][16] = { 0 };

    for (int first = 0; first < cols; first += step->cols) {
        step->decode(panel + (size_t)(first / step->cols) * step->bytes, w);
        for (int k = 0; k < step->cols; k++) {
            float *chain = c[(first + k) % 4];

            for (int i = 0; i < 16; i++)
                chain[i] = __builtin_fmaf(w[k][i], x[first + k], chain[i]);
        }
    }
    for (int i = 0; i < 16; i++)
        y[i] = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
}

static void exact(const step_of *step, const rg_product *p)
{
    for (int i = 0; i < p->n_panels; i++)
        for (int r = 0; r < p->m; r++) {
            const rg_product q = part_of(p, i, r, 1);
            exact_row(step, q.panel, q.cols, q.x, q.y);
        }
}

#define EXACT(name, n_cols, n_bytes)                                                                                   \
    static void exact_##name(const rg_product *p)                                                                      \
    {                                                                                                                  \
        static const step_of step = { decode_##name, n_cols, n_bytes };                                                \
        exact(&step, p);                                                                                               \
    }
EXACT(f32, 1, 64)
EXACT(f16, 1, 32)
EXACT(bf16, 1, 32)
EXACT(q4, 32, sizeof(rg_step_q4))
EXACT(q8, 32, sizeof(rg_step_q8))
EXACT(q4m, 32, sizeof(rg_step_q4m))
EXACT(q8m, 32, sizeof(rg_step_q8m))
EXACT(k4, 256, sizeof(rg_step_k4))
EXACT(k8, 256, sizeof(rg_step_k8))
#undef EXACT

/* ---- int8 -------------------------------------------------------------------------------------------------------- */

/* Exact integer sums of one row of a panel with a block of x.  |sum| <= 32 * 255 * 127 < 2^20. */
static float sum_4(const uint8_t q[4][16][4], int row, int offset, const rg_xblock *x)
{
    int32_t sum = 0;

    for (int k = 0; k < 32; k++)
        sum += (nibble(q, k, row) - offset) * x->q[k];
    return (float)sum;
}

static float sum_8(const uint8_t q[][16][4], int n, int row, int offset, const int8_t *x)
{
    int32_t sum = 0;

    for (int k = 0; k < n; k++)
        sum += (q[k / 4][row][k % 4] - offset) * x[k];
    return (float)sum;
}

/* acc after one step of row i of the panel; x: the step's blocks. */
static float step_q4(const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_q4 *p = (const void *)step;

    return __builtin_fmaf(sum_4(p->q, i, 8, x), f16(p->d[i]) * x->d, acc);
}

static float step_q8(const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_q8 *p = (const void *)step;

    return __builtin_fmaf(sum_8(p->q, 32, i, 128, x->q), f16(p->d[i]) * x->d, acc);
}

static float step_q4m(const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_q4m *p = (const void *)step;

    acc = __builtin_fmaf(sum_4(p->q, i, 0, x), f16(p->d[i]) * x->d, acc);
    return __builtin_fmaf(f16(p->m[i]), x->s, acc);
}

static float step_q8m(const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_q8m *p = (const void *)step;

    acc = __builtin_fmaf(sum_8(p->q, 32, i, 0, x->q), f16(p->d[i]) * x->d, acc);
    return __builtin_fmaf(f16(p->m[i]), x->s, acc);
}

static float step_k4(const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_k4 *p = (const void *)step;

    for (int run = 0; run < 8; run++) {
        float scale = f16(p->d[i]) * (float)p->s[run][i], minimum = f16(p->e[i]) * (float)p->t[run][i];

        acc = __builtin_fmaf(sum_4(p->q[run], i, 0, x + run), scale * x[run].d, acc);
        acc = __builtin_fmaf(-minimum, x[run].s, acc);
    }
    return acc;
}

static float step_k8(const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_k8 *p = (const void *)step;

    for (int run = 0; run < 16; run++) {
        float scale = f16(p->d[i]) * (float)p->s[run][i], minimum = f16(p->e[i]) * (float)p->t[run][i];
        const rg_xblock *block = x + run / 2;

        acc = __builtin_fmaf(sum_8(p->q[run], 16, i, 128, block->q + run % 2 * 16), scale * block->d, acc);
        acc = __builtin_fmaf(-minimum, block->sh[run % 2], acc);
    }
    return acc;
}

/* acc after one step of row i of a panel. */
typedef float step_fn(const uint8_t *step, const rg_xblock *x, int i, float acc);

static void fast(step_fn *step, size_t step_cols, size_t step_bytes, const rg_product *p)
{
    for (int i = 0; i < p->n_panels; i++)
        for (int r = 0; r < p->m; r++) {
            const rg_product q = part_of(p, i, r, 1);

            for (int k = 0; k < 16; k++) {
                float acc = 0.0f;
                for (size_t s = 0; s < (size_t)p->cols / step_cols; s++)
                    acc = step(q.panel + s * step_bytes, q.q + s * (step_cols / 32), k, acc);
                q.y[k] = acc;
            }
        }
}

#define FAST(name, n_cols, step_type)                                                                                  \
    static void fast_##name(const rg_product *p)                                                                       \
    {                                                                                                                  \
        fast(step_##name, n_cols, sizeof(step_type), p);                                                               \
    }
FAST(q4, 32, rg_step_q4)
FAST(q8, 32, rg_step_q8)
FAST(q4m, 32, rg_step_q4m)
FAST(q8m, 32, rg_step_q8m)
FAST(k4, 256, rg_step_k4)
FAST(k8, 256, rg_step_k8)
#undef FAST

/* ---- bf16 -------------------------------------------------------------------------------------------------------- */

/* Anything less than 2^-126 as a zero of its sign. */
static float flushed(float x)
{
    return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}

static float add_flushed(float a, float b)
{
    return flushed(flushed(a) + flushed(b)); /* a sum so small is exact */
}

/* A result may be so little less than 2^-126 that, with the coarse steps of subnormals, it rounds up to that; in 24
 * bits it may stay below.  2^24 times as large it shows.  (One factor of such a product is small.) */
static float fma_flushed(float a, float b, float c)
{
    const float by_a = __builtin_fabsf(a) < 1.0f ? 0x1p24f : 1.0f, by_b = 0x1p24f / by_a;
    float y;

    a = flushed(a);
    b = flushed(b);
    c = flushed(c);
    y = __builtin_fmaf(a, b, c);
    if (__builtin_fabsf(y) == 0x1p-126f) {
        const float large = __builtin_fmaf(a * by_a, b * by_b, c * 0x1p24f);
        return __builtin_fabsf(large) < 0x1p-102f ? __builtin_copysignf(0.0f, y) : y;
    }
    return flushed(y);
}

/* Value i of a row of bf16. */
static float at(const uint16_t *row, int i)
{
    return rg_float_of((uint32_t)row[i] << 16);
}

/* Row i of a panel, w[column][16], by one row of x. */
static float bf16_pairs(const uint16_t *w, int i, int cols, const uint16_t *x)
{
    float c[4] = { 0 };

    for (int p = 0; p < cols / 2; p++) {
        const float odd = fma_flushed(at(w, 16 * (2 * p + 1) + i), at(x, 2 * p + 1), c[p % 4]);
        c[p % 4] = fma_flushed(at(w, 16 * 2 * p + i), at(x, 2 * p), odd);
    }
    return (c[0] + c[1]) + (c[2] + c[3]);
}

static float bf16_tiles(const uint16_t *w, int i, int cols, const uint16_t *x)
{
    float y = 0.0f;

    for (int first = 0; first < cols; first += 32) {
        float even = 0.0f, odd = 0.0f;

        for (int k = first; k < first + 32; k += 2) {
            even = fma_flushed(at(w, 16 * k + i), at(x, k), even);
            odd = fma_flushed(at(w, 16 * (k + 1) + i), at(x, k + 1), odd);
        }
        y = add_flushed(y, add_flushed(even, odd));
    }
    return y;
}

#define BF16(name)                                                                                                     \
    static void name(const rg_product *p)                                                                              \
    {                                                                                                                  \
        for (int i = 0; i < p->n_panels; i++)                                                                          \
            for (int r = 0; r < p->m; r++) {                                                                           \
                const rg_product q = part_of(p, i, r, 1);                                                              \
                for (int k = 0; k < 16; k++)                                                                           \
                    q.y[k] = bf16_##name((const uint16_t *)(const void *)q.panel, k, q.cols, q.h);                     \
            }                                                                                                          \
    }
BF16(pairs)
BF16(tiles)
#undef BF16

void rg_cpu_panels_ref(rg_cpu *k)
{
    FLOAT_LAYOUTS(FILL_EXACT)
    INTEGER_LAYOUTS(FILL_EXACT)
    INTEGER_LAYOUTS(FILL_FAST)
    k->product[RG_BF16_PAIRS][RG_LAYOUT_BF16] = pairs;
    k->product[RG_BF16_TILES][RG_LAYOUT_BF16] = tiles;
    for (rg_layout layout = RG_LAYOUT_Q4; layout < RG_LAYOUT_COUNT; layout++)
        k->fast[layout] = RG_INT8;
}
