/* panels.c -- every recipe of every layout, in plain C: what a panel product means.
 *
 * A panel is decoded step by step; a row of x never meets another row. */
#include "ops/cpu/ref/init.h"

#include "ops/math.h"
#include "ops/cpu/runs.h"
#include "ops/cpu/sketch.h"

static float f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, magnitude = (uint32_t)(h & 0x7fff) << 13;

    if (magnitude >= 0x0f800000u)
        return rg_float_of(sign | magnitude | 0x7f800000u);
    return rg_float_of(sign | rg_bits_of(rg_float_of(magnitude) * 0x1p112f));
}

static float e8m0_half(uint8_t e)
{
    return rg_float_of(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* The bits of e4m3 are those of an f32 2^120 times smaller, with four more bits of exponent. */
static float e4m3(uint8_t v)
{
    const uint32_t sign = (uint32_t)(v & 0x80) << 24, rest = (uint32_t)(v & 0x7f) << 20;

    if ((v & 0x7f) == 0x7f)
        return rg_float_of(sign | 0x7fc00000u);
    return rg_float_of(sign | rg_bits_of(rg_float_of(rest) * 0x1p120f));
}

/* ---- exact ------------------------------------------------------------------------------------------------------- */

/* One step of a panel to f32: w[column][row]. */
typedef void decode_fn(const uint8_t *panel, const uint8_t *step, float (*w)[16]);

/* Column k of a run of 32 four-bit values: columns 0 .. 15 are the low nibbles. */
static int nibble(const uint8_t q[4][16][4], int k, int row)
{
    int byte = q[k % 16 / 4][row][k % 4];

    return k < 16 ? byte & 15 : byte >> 4;
}

static void decode_f32(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    (void)panel;
    __builtin_memcpy(w, step, sizeof *w);
}

static void decode_f16(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    (void)panel;
    const uint16_t *h = (const uint16_t *)(const void *)step;

    for (int i = 0; i < 16; i++)
        w[0][i] = f16(h[i]);
}

/* Decode a panel's part of one column, in a wide layout. */
static void decode_f32w(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    decode_f32(panel, step, w);
}

static void decode_f16w(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    decode_f16(panel, step, w);
}

static void decode_bf16w(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    (void)panel;
    const uint16_t *h = (const uint16_t *)(const void *)step;

    for (int i = 0; i < 16; i++)
        w[0][i] = rg_float_of((uint32_t)h[i] << 16);
}

static void decode_q4(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    (void)panel;
    const rg_step_q4 *p = (const void *)step;

    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)(nibble(p->q, k, i) - 8);
}

static void decode_q8(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    (void)panel;
    const rg_step_q8 *p = (const void *)step;

    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)(p->q[k / 4][i][k % 4] - 128);
}

static void decode_q4m(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    (void)panel;
    const rg_step_q4m *p = (const void *)step;

    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)nibble(p->q, k, i) + f16(p->m[i]);
}

/* A code of a row in a step of any integer layout is a plane of its lower bits and, where there are more, one of the
 * rest; in a plane of n bits 4 n of 32 columns lie side by side, the others above them. */
static int plane(const uint8_t (*q)[16][4], int bits, int k, int row)
{
    const int n = 4 * bits;

    return q[k % n / 4][row][k % 4] >> k / n * bits & ((1 << bits) - 1);
}

static int code(rg_layout layout, const uint8_t *step, int k, int row)
{
    const int bits = rg_layout_bits(layout), low = rg_layout_low_bits(layout);
    const uint8_t (*q)[16][4] = (const void *)(step + rg_layout_codes_at(layout) + (size_t)(64 * bits * (k / 32)));
    const int lower = plane(q, low, k % 32, row);

    return bits > low ? lower | plane(q + low, bits - low, k % 32, row) << low : lower;
}

/* What decodes column k of a row, in a layout with two levels of scale; offset: what is subtracted from a code. */
typedef struct two_levels {
    float scale, minimum;
    int offset;
} two_levels;

static two_levels two_levels_of(rg_layout layout, const uint8_t *step, int k, int row)
{
    const rg_step_k4 *k4 = (const void *)step; /* d and e lie alike in all that have them, s and t as in K5 */
    const rg_step_k2 *k2 = (const void *)step;
    const rg_step_k3 *k3 = (const void *)step;
    const rg_step_k6 *k6 = (const void *)step;
    const float d = f16(k4->d[row]);
    int st;

    switch (layout) {
    case RG_LAYOUT_K2:
        st = k2->st[k / 16][row];
        return (two_levels){ d * (float)(st & 15), f16(k2->e[row]) * (float)(st >> 4), 0 };
    case RG_LAYOUT_K3:
        return (two_levels){ .scale = d * (float)rg_k3_scale(k3, k / 16, row), .offset = 4 };
    case RG_LAYOUT_K6:
        return (two_levels){ .scale = d * (float)k6->s[k / 16][row], .offset = 32 };
    default:
        return (two_levels){ d * (float)k4->s[k / 32][row], f16(k4->e[row]) * (float)k4->t[k / 32][row], 0 };
    }
}

static void decode_two_levels(rg_layout layout, const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    (void)panel;
    for (int k = 0; k < 256; k++)
        for (int i = 0; i < 16; i++) {
            const two_levels l = two_levels_of(layout, step, k, i);
            const float scaled = l.scale * (float)(code(layout, step, k, i) - l.offset);

            w[k][i] = has_minimum(layout) ? scaled - l.minimum : scaled;
        }
}

static void decode_q5(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    const rg_step_q5 *p = (const void *)step;

    (void)panel;
    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)(code(RG_LAYOUT_Q5, step, k, i) - 16);
}

static void decode_q5m(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    const rg_step_q5m *p = (const void *)step;

    (void)panel;
    for (int k = 0; k < 32; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)code(RG_LAYOUT_Q5M, step, k, i) + f16(p->m[i]);
}

/* The scale of column k of a row in a step of a layout with a table. */
static float table_scale(rg_layout layout, const uint8_t *panel, const uint8_t *step, int k, int row)
{
    const rg_table_factors *head = (const void *)panel;
    const rg_step_q4 *t4 = (const void *)step;
    const rg_step_t4n *t4n = (const void *)step;
    const rg_step_tk4 *tk4 = (const void *)step;
    const rg_step_tk4h *tk4h = (const void *)step;

    switch (layout) {
    case RG_LAYOUT_T4: return f16(t4->d[row]);
    case RG_LAYOUT_T4E: return e8m0_half(step[row]);
    case RG_LAYOUT_T4F: return tk4->d[row]; /* the f32 scales come first in all of these */
    case RG_LAYOUT_T4N: return e4m3(t4n->s[k / 16][row]) * head->a[row] / head->b[row];
    case RG_LAYOUT_TK4: return tk4->d[row] * (float)tk4->s[k / 32][row];
    default: return tk4h->d[row] * (float)tk4h->s[k / 16][row];
    }
}

static void decode_table(rg_layout layout, const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    const rg_table *table = (const void *)panel;

    for (int k = 0; k < rg_layout_step(layout); k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = table_scale(layout, panel, step, k, i) * table->value[code(layout, step, k, i)];
}

static void decode_zero(rg_layout layout, const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    const rg_step_z4 *p = (const void *)step; /* d and z lie alike in all of them */

    (void)panel;
    for (int k = 0; k < rg_layout_step(layout); k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = p->d[i] * (float)(code(layout, step, k, i) - p->z[i]);
}

static void decode_q2(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    const rg_step_q2 *p = (const void *)step;

    (void)panel;
    for (int k = 0; k < 256; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = f16(p->d[i]) * (float)(code(RG_LAYOUT_Q2, step, k, i) - 1);
}

static void decode_f8(const uint8_t *panel, const uint8_t *step, float (*w)[16])
{
    const rg_step_f8 *p = (const void *)step;

    (void)panel;
    for (int k = 0; k < 128; k++)
        for (int i = 0; i < 16; i++)
            w[k][i] = p->d[i] * e4m3(p->q[k][i]);
}

#define DECODE(kind, name, layout)                                                                                     \
    static void decode_##name(const uint8_t *panel, const uint8_t *step, float (*w)[16])                               \
    {                                                                                                                  \
        decode_##kind(layout, panel, step, w);                                                                         \
    }
DECODE(two_levels, k2, RG_LAYOUT_K2)
DECODE(two_levels, k3, RG_LAYOUT_K3)
DECODE(two_levels, k4, RG_LAYOUT_K4)
DECODE(two_levels, k5, RG_LAYOUT_K5)
DECODE(two_levels, k6, RG_LAYOUT_K6)
DECODE(table, t4, RG_LAYOUT_T4)
DECODE(table, t4e, RG_LAYOUT_T4E)
DECODE(table, t4f, RG_LAYOUT_T4F)
DECODE(table, t4n, RG_LAYOUT_T4N)
DECODE(table, tk4, RG_LAYOUT_TK4)
DECODE(table, tk4h, RG_LAYOUT_TK4H)
DECODE(zero, z4, RG_LAYOUT_Z4)
DECODE(zero, z4w, RG_LAYOUT_Z4W)
DECODE(zero, z8, RG_LAYOUT_Z8)
DECODE(zero, z8w, RG_LAYOUT_Z8W)
#undef DECODE

/* One panel by one row of x. */
static void exact_row(rg_layout layout, decode_fn *decode, const rg_product *p)
{
    _Alignas(64) float w[256][16], c[4][16] = { 0 };
    const uint8_t *step = p->panel + rg_layout_head_bytes(layout);
    const size_t apart = is_wide_layout(layout) ? p->column_bytes : rg_layout_step_bytes(layout);

    for (int first = 0; first < p->cols; first += rg_layout_step(layout), step += apart) {
        decode(p->panel, step, w);
        for (int k = 0; k < rg_layout_step(layout); k++) {
            float *chain = c[(first + k) % 4];

            for (int i = 0; i < 16; i++)
                chain[i] = __builtin_fmaf(w[k][i], p->x[first + k], chain[i]);
        }
    }
    for (int i = 0; i < 16; i++)
        p->y[i] = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);
}

/* The same of BF16, whose columns lie two and two. */
static void exact_bf16_row(const uint16_t *panel, int cols, const float *x, float *y)
{
    for (int i = 0; i < 16; i++) {
        float c[4] = { 0 };

        for (int k = 0; k < cols; k++)
            c[k % 4] = __builtin_fmaf(rg_float_of((uint32_t)panel[rg_bf16_at(cols, k, i)] << 16), x[k], c[k % 4]);
        y[i] = (c[0] + c[1]) + (c[2] + c[3]);
    }
}

static void exact_bf16(const rg_product *p)
{
    for (int i = 0; i < p->n_panels; i++)
        for (int r = 0; r < p->m; r++) {
            const rg_product q = part_of(p, i, r, 1);
            exact_bf16_row((const uint16_t *)(const void *)q.panel, q.cols, q.x, q.y);
        }
}

static void exact(rg_layout layout, decode_fn *decode, const rg_product *p)
{
    for (int i = 0; i < p->n_panels; i++)
        for (int r = 0; r < p->m; r++) {
            const rg_product q = part_of(p, i, r, 1);
            exact_row(layout, decode, &q);
        }
}

#define EXACT(name, layout)                                                                                            \
    static void exact_##name(const rg_product *p)                                                                      \
    {                                                                                                                  \
        exact(layout, decode_##name, p);                                                                               \
    }
EXACT(f32, RG_LAYOUT_F32)
EXACT(f16, RG_LAYOUT_F16)
WIDE_LAYOUTS(EXACT)
FLOAT8_LAYOUTS(EXACT)
INTEGER_LAYOUTS(EXACT)
#undef EXACT

/* One panel by one row of x, whose values are `apart` floats apart. */
static void matrix_row(const float *panel, size_t column_floats, const float *x, size_t apart, int cols, float *y,
                       bool add)
{
    float c[4][16] = { 0 };

    for (int k = 0; k < cols; k++)
        for (int i = 0; i < 16; i++)
            c[k % 4][i] =
                __builtin_fmaf(panel[(size_t)k * column_floats + (size_t)i], x[(size_t)k * apart], c[k % 4][i]);
    for (int i = 0; i < 16; i++) {
        const float sum = (c[0][i] + c[1][i]) + (c[2][i] + c[3][i]);

        y[i] = add ? y[i] + sum : sum;
    }
}

static void matrices(const rg_host_product *p)
{
    for (int i = 0; i < p->n_panels; i++)
        for (size_t r = 0; r < (size_t)p->m; r++)
            matrix_row(p->panels + (size_t)i * p->panel_floats, p->column_floats, p->x + r * (p->turned ? 1 : p->ldx),
                       p->turned ? p->ldx : 1, p->cols, p->y + r * p->ldy + 16 * i, p->add);
}

/* ---- columns that are not 0 -------------------------------------------------------------------------------------- */

static void sparse_row(decode_fn *decode, const rg_product *p)
{
    float w[1][16], c[2][16] = { 0 };

    for (int k = 0; k < p->cols; k++) {
        if (p->x[k] == 0.0f || k % 4 / 2 != p->half)
            continue;
        decode(p->panel, p->panel + (size_t)k * p->column_bytes, w);
        for (int i = 0; i < 16; i++)
            c[k % 2][i] = __builtin_fmaf(w[0][i], p->x[k], c[k % 2][i]);
    }
    for (int i = 0; i < 16; i++)
        p->y[i] = c[0][i] + c[1][i];
}

#define SPARSE(name, layout)                                                                                           \
    static void sparse_##name(const rg_product *p)                                                                     \
    {                                                                                                                  \
        for (int i = 0; i < p->n_panels; i++) {                                                                        \
            const rg_product q = part_of(p, i, 0, 1);                                                                  \
            sparse_row(decode_##name, &q);                                              \
        }                                                                                                              \
    }
WIDE_LAYOUTS(SPARSE)
#undef SPARSE

/* ---- some columns ------------------------------------------------------------------------------------------------ */

/* A step is decoded once for the columns that it has. */
static void add_columns(rg_layout layout, decode_fn *decode, const rg_columns *c)
{
    _Alignas(64) float w[256][16];
    const int step_cols = rg_layout_step(layout);

    for (int p = 0; p < c->n_panels; p++) {
        const uint8_t *panel = c->panel + (size_t)p * c->panel_bytes, *first = panel + rg_layout_head_bytes(layout);

        for (int i = 0, decoded = -1; i < c->n; i++) {
            const int step = c->col[i] / step_cols;

            if (step != decoded)
                decode(panel, first + (size_t)step * rg_layout_step_bytes(layout), w);
            decoded = step;
            for (int r = 0; r < c->m; r++) {
                const float x = c->x[(size_t)r * c->ldx + (size_t)i];
                float *y = c->y + (size_t)r * c->ldy + 16 * p;

                for (int k = 0; x != 0.0f && k < 16; k++)
                    y[k] = __builtin_fmaf(w[c->col[i] % step_cols][k], x, y[k]);
            }
        }
        for (int r = 0; r < c->m; r++)
            for (int k = 0; k < 16; k++)
                c->y[(size_t)r * c->ldy + (size_t)(16 * p + k)] += 0.0f;
    }
}

#define COLUMNS(name, layout)                                                                                          \
    static void columns_##name(const rg_columns *c)                                                                    \
    {                                                                                                                  \
        add_columns(layout, decode_##name, c);                                                                         \
    }
INTEGER_LAYOUTS(COLUMNS)
#undef COLUMNS

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
static float step_q4(const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    (void)panel;
    const rg_step_q4 *p = (const void *)step;

    return __builtin_fmaf(sum_4(p->q, i, 8, x), f16(p->d[i]) * x->d, acc);
}

static float step_q8(const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    (void)panel;
    const rg_step_q8 *p = (const void *)step;

    return __builtin_fmaf(sum_8(p->q, 32, i, 128, x->q), f16(p->d[i]) * x->d, acc);
}

static float step_q4m(const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    (void)panel;
    const rg_step_q4m *p = (const void *)step;

    acc = __builtin_fmaf(sum_4(p->q, i, 0, x), f16(p->d[i]) * x->d, acc);
    return __builtin_fmaf(f16(p->m[i]), x->s, acc);
}

static int32_t sum_codes(rg_layout layout, const uint8_t *step, int first, int n, int row, int offset,
                         const rg_xblock *x)
{
    int32_t sum = 0;

    for (int k = first; k < first + n; k++)
        sum += (code(layout, step, k, row) - offset) * x[k / 32].q[k % 32];
    return sum;
}

static float step_q5(const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_q5 *p = (const void *)step;

    (void)panel;
    return __builtin_fmaf((float)sum_codes(RG_LAYOUT_Q5, step, 0, 32, i, 16, x), f16(p->d[i]) * x->d, acc);
}

static float step_q5m(const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_q5m *p = (const void *)step;

    (void)panel;
    acc = __builtin_fmaf((float)sum_codes(RG_LAYOUT_Q5M, step, 0, 32, i, 0, x), f16(p->d[i]) * x->d, acc);
    return __builtin_fmaf(f16(p->m[i]), x->s, acc);
}

/* A run is 32 columns, or 16. */
static float step_two_levels(rg_layout layout, const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i,
                             float acc)
{
    const int n_halves = n_halves_of(layout), run = 32 / n_halves;

    (void)panel;
    for (int k = 0; k < 256; k += run) {
        const two_levels l = two_levels_of(layout, step, k, i);
        const rg_xblock *block = x + k / 32;

        acc = __builtin_fmaf((float)sum_codes(layout, step, k, run, i, l.offset, x), l.scale * block->d, acc);
        if (has_minimum(layout))
            acc = __builtin_fmaf(-l.minimum, n_halves == 2 ? block->sh[k / 16 % 2] : block->s, acc);
    }
    return acc;
}

/* A run is 32 columns, or 16. */
static float step_table(rg_layout layout, const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i,
                         float acc)
{
    const rg_table *table = (const void *)panel;
    const int run = layout == RG_LAYOUT_T4N || layout == RG_LAYOUT_TK4H ? 16 : 32;

    for (int first = 0; first < rg_layout_step(layout); first += run) {
        const float scale = table_scale(layout, panel, step, first, i) * table->unit;
        int32_t sum = 0;

        for (int k = first; k < first + run; k++)
            sum += (table->byte[code(layout, step, k, i)] - 128) * x[k / 32].q[k % 32];
        acc = __builtin_fmaf((float)sum, scale * x[first / 32].d, acc);
    }
    return acc;
}

/* d and z lie alike in all of them. */
static float step_zero(rg_layout layout, const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i,
                        float acc)
{
    const rg_step_z4 *p = (const void *)step;

    (void)panel;
    for (int first = 0; first < rg_layout_step(layout); first += 32, x++) {
        int32_t sum = 0;

        for (int k = 0; k < 32; k++)
            sum += (code(layout, step, first + k, i) - p->z[i]) * x->q[k];
        acc = __builtin_fmaf((float)sum, p->d[i] * x->d, acc);
    }
    return acc;
}

static float step_q2(const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i, float acc)
{
    const rg_step_q2 *p = (const void *)step;

    (void)panel;
    for (int first = 0; first < 256; first += 32, x++) {
        int32_t sum = 0;

        for (int k = 0; k < 32; k++)
            sum += (code(RG_LAYOUT_Q2, step, first + k, i) - 1) * x->q[k];
        acc = __builtin_fmaf((float)sum, f16(p->d[i]) * x->d, acc);
    }
    return acc;
}

#define STEP(kind, name, layout)                                                                                       \
    static float step_##name(const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i, float acc)          \
    {                                                                                                                  \
        return step_##kind(layout, panel, step, x, i, acc);                                                            \
    }
STEP(two_levels, k2, RG_LAYOUT_K2)
STEP(two_levels, k3, RG_LAYOUT_K3)
STEP(two_levels, k4, RG_LAYOUT_K4)
STEP(two_levels, k5, RG_LAYOUT_K5)
STEP(two_levels, k6, RG_LAYOUT_K6)
STEP(table, t4, RG_LAYOUT_T4)
STEP(table, t4e, RG_LAYOUT_T4E)
STEP(table, t4f, RG_LAYOUT_T4F)
STEP(table, t4n, RG_LAYOUT_T4N)
STEP(table, tk4, RG_LAYOUT_TK4)
STEP(table, tk4h, RG_LAYOUT_TK4H)
STEP(zero, z4, RG_LAYOUT_Z4)
STEP(zero, z4w, RG_LAYOUT_Z4W)
STEP(zero, z8, RG_LAYOUT_Z8)
STEP(zero, z8w, RG_LAYOUT_Z8W)
#undef STEP

/* acc after one step of row i of a panel. */
typedef float step_fn(const uint8_t *panel, const uint8_t *step, const rg_xblock *x, int i, float acc);

static void fast(rg_layout layout, step_fn *add_step, const rg_product *p)
{
    const int step_cols = rg_layout_step(layout);

    for (int i = 0; i < p->n_panels; i++)
        for (int r = 0; r < p->m; r++) {
            const rg_product q = part_of(p, i, r, 1);

            for (int k = 0; k < 16; k++) {
                const uint8_t *step = q.panel + rg_layout_head_bytes(layout);
                float acc = 0.0f;

                for (int first = 0; first < p->cols; first += step_cols, step += rg_layout_step_bytes(layout))
                    acc = add_step(q.panel, step, q.q + first / 32, k, acc);
                q.y[k] = acc;
            }
        }
}

#define FAST(name, layout)                                                                                             \
    static void fast_##name(const rg_product *p)                                                                       \
    {                                                                                                                  \
        fast(layout, step_##name, p);                                                                                  \
    }
INTEGER_LAYOUTS(FAST)
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

/* Row i of a panel, w[pair of columns][16][2], by one row of x. */
static float bf16_pairs(const uint16_t *w, int i, int cols, const uint16_t *x)
{
    float c[4] = { 0 };

    for (int p = 0; p < cols / 2; p++) {
        const float odd = fma_flushed(at(w, 32 * p + 2 * i + 1), at(x, 2 * p + 1), c[p % 4]);
        c[p % 4] = fma_flushed(at(w, 32 * p + 2 * i), at(x, 2 * p), odd);
    }
    return (c[0] + c[1]) + (c[2] + c[3]);
}

static float bf16_tiles(const uint16_t *w, int i, int cols, const uint16_t *x)
{
    float y = 0.0f;

    for (int first = 0; first < cols; first += 32) {
        float even = 0.0f, odd = 0.0f;

        for (int k = first; k < first + 32; k += 2) {
            even = fma_flushed(at(w, 16 * k + 2 * i), at(x, k), even);
            odd = fma_flushed(at(w, 16 * k + 2 * i + 1), at(x, k + 1), odd);
        }
        y = add_flushed(y, add_flushed(even, odd));
    }
    return y;
}

/* Row i of a panel of floats of 8 bits: each step by itself, as bf16, which its values are. */
static float f8_row(float (*sum)(const uint16_t *w, int i, int cols, const uint16_t *x), const uint8_t *panel, int i,
                    int cols, const uint16_t *x)
{
    const rg_step_f8 *step = (const void *)panel;
    uint16_t w[128 * 16] = { 0 };
    float acc = 0.0f;

    for (int first = 0; first < cols; first += 128, step++, x += 128) {
        for (int k = 0; k < 128; k++)
            w[rg_bf16_at(128, k, i)] = rg_f32_to_bf16(e4m3(step->q[k][i]));
        acc = __builtin_fmaf(sum(w, i, 128, x), step->d[i], acc);
    }
    return acc;
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
    }                                                                                                                  \
    static void name##_f8(const rg_product *p)                                                                         \
    {                                                                                                                  \
        for (int i = 0; i < p->n_panels; i++)                                                                          \
            for (int r = 0; r < p->m; r++) {                                                                           \
                const rg_product q = part_of(p, i, r, 1);                                                              \
                for (int k = 0; k < 16; k++)                                                                           \
                    q.y[k] = f8_row(bf16_##name, q.panel, k, q.cols, q.h);                                             \
            }                                                                                                          \
    }
BF16(pairs)
BF16(tiles)
#undef BF16

/* Pairs of f32 weights, [column][16], rounded. */
static void rounded(const rg_product *p)
{
    for (int i = 0; i < p->n_panels; i++) {
        const rg_product q = part_of(p, i, 0, p->m);
        const float *w = (const float *)(const void *)q.panel;

        for (int r = 0; r < q.m; r++)
            for (int k = 0; k < 16; k++) {
                const uint16_t *x = q.h + (size_t)r * q.ldx;
                float c[4] = { 0 };

                for (int pair = 0; pair < q.cols / 2; pair++) {
                    const float a = rg_bf16_to_f32(rg_f32_to_bf16(flushed(w[32 * pair + k])));
                    const float b = rg_bf16_to_f32(rg_f32_to_bf16(flushed(w[32 * pair + 16 + k])));

                    c[pair % 4] = fma_flushed(a, at(x, 2 * pair), fma_flushed(b, at(x, 2 * pair + 1), c[pair % 4]));
                }
                q.y[(size_t)r * q.ldy + (size_t)k] = (c[0] + c[1]) + (c[2] + c[3]);
            }
    }
}

/* ---- sketches ---------------------------------------------------------------------------------------------------- */

static void sketch(const rg_sketch_product *p)
{
    for (int i = 0; i < p->n_panels * 16; i++) {
        const uint8_t *panel = p->panel + (size_t)(i / 16) * p->panel_bytes;
        const rg_sketch_head *head = (const void *)panel;
        const rg_sketch_scales *scales = rg_sketch_scales_of(panel);
        const rg_sketch_codes *codes = rg_sketch_codes_of(panel, p->n_blocks);
        const int row = i % 16;
        float a = 0.0f, o = 0.0f;

        for (int b = 0; b < p->n_blocks; b++) {
            int32_t sum = 0;

            for (int k = 0; k < 32; k++)
                sum += (nibble(codes[b].q, k, row) - 8) * p->q[b].q[k];
            a = __builtin_fmaf((float)sum, (float)scales[b].d[row] * p->q[b].d, a);
            o = __builtin_fmaf((float)scales[b].e[row], p->norm[b], o);
        }
        p->mid[i] = a * head->d[row];
        p->off[i] = o * head->e[row];
    }
}

#define FILL_RECIPE(name, layout) k->fast[layout] = RG_INT8;
#define FOLDED_RECIPE(layout) k->fast[layout] = RG_INT8;

void rg_cpu_panels_ref(rg_cpu *k)
{
    FLOAT_LAYOUTS(FILL_EXACT)
    FLOAT8_LAYOUTS(FILL_EXACT)
    INTEGER_LAYOUTS(FILL_EXACT)
    INTEGER_LAYOUTS(FILL_FAST)
    INTEGER_LAYOUTS(FILL_COLUMNS)
    WIDE_LAYOUTS(FILL_SPARSE)
    INTEGER_LAYOUTS(FILL_RECIPE)
    FOLDED_LAYOUTS(FOLDED_RECIPE)
    k->matrices = matrices;
    k->unfold = rg_unfold;
    k->sketch = sketch;
    k->product[RG_BF16_PAIRS][RG_LAYOUT_BF16] = pairs;
    k->product[RG_BF16_TILES][RG_LAYOUT_BF16] = tiles;
    k->product[RG_BF16_ROUNDED][RG_LAYOUT_F32] = rounded;
    k->product[RG_BF16_PAIRS][RG_LAYOUT_F8] = pairs_f8;
    k->product[RG_BF16_TILES][RG_LAYOUT_F8] = tiles_f8;
}
