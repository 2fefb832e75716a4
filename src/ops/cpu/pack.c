/* pack.c -- rows into panels and back; what lies where is in pack.h. */
#include "ops/cpu/pack.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "quant/block.h"
#include "ops/cpu/fold.h"

_Static_assert(sizeof(rg_step_q1) == 16 * 54 && sizeof(rg_step_g1) == 16 * 50 && sizeof(rg_step_g1m) == 16 * 56 &&
                   sizeof(rg_step_g2) == 16 * 66 && sizeof(rg_step_g2h) == 16 * 74 && sizeof(rg_step_g2s) == 16 * 82 &&
                   sizeof(rg_step_g3) == 16 * 98 && sizeof(rg_step_g3s) == 16 * 110,
               "as many bytes as 16 blocks of the file");
_Static_assert(sizeof(rg_table) == 128 && sizeof(rg_table_factors) == 256, "whole cache lines");

/* each: bytes of a panel, or of a column of a wide layout; n: how many there are. */
static bool size_as(const rg_packed *p, rg_layout layout, bool wide, size_t *each, size_t *n)
{
    const size_t panels = (size_t)(p->placed.rows / RG_PANEL + (p->placed.rows % RG_PANEL != 0));
    const size_t head = rg_layout_head_bytes(layout);
    const size_t steps = wide ? panels : (size_t)(p->placed.cols / rg_layout_step(layout));

    if (!rg_mul(steps, rg_layout_step_bytes(layout), each) || !rg_add(*each, head + (size_t)RG_ALIGN - 1, each))
        return false;
    *each -= *each % RG_ALIGN;
    return rg_mul((size_t)p->placed.n_mats, wide ? (size_t)p->placed.cols : panels, n);
}

static bool shape_as(rg_packed *p, rg_layout layout, rg_error *err)
{
    const rg_placed *of = &p->placed;
    const rg_format *f = rg_format_of(of->type);
    const bool wide = layout != f->layout;
    size_t n, each, bytes;

    if (f->layout == RG_LAYOUT_NONE)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s is not a format of matrices", f->name);
    if (of->n_mats < 0 || of->rows < 0 || of->cols < 0 || of->cols % f->block_len)
        return rg_fail(err, RG_E_INPUT,
                       "%lld matrices of [%lld, %lld] cannot be packed from %s, whose blocks are of %d",
                       (long long)of->n_mats, (long long)of->rows, (long long)of->cols, f->name, f->block_len);
    if (!size_as(p, layout, wide, &each, &n) || !rg_mul(each, n, &bytes) || bytes > PTRDIFF_MAX ||
        of->rows > INT64_MAX - RG_PANEL)
        return rg_fail(err, RG_E_INPUT, "%lld matrices of [%lld, %lld] %s are more than memory can address",
                       (long long)of->n_mats, (long long)of->rows, (long long)of->cols, f->name);
    p->layout = layout;
    p->placed.is_folded = rg_layout_is_folded(layout);
    p->panel_bytes = wide ? rg_layout_step_bytes(layout) : each;
    p->column_bytes = wide ? each : 0;
    p->placed.bytes = bytes;
    return true;
}

bool rg_packed_shape(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err)
{
    *p = (rg_packed){ .placed = { .type = type, .rows = rows, .cols = cols, .n_mats = n_mats } };
    return shape_as(p, rg_format_of(type)->layout, err);
}

bool rg_packed_shape_ordered(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err)
{
    size_t one, all, bytes;

    if (!rg_packed_shape(p, type, n_mats, rows, cols, err))
        return false;
    if (!rg_mul((size_t)cols, sizeof(int32_t), &one) || !rg_add(one, (size_t)RG_ALIGN - 1, &one) ||
        !rg_mul(one, (size_t)n_mats, &all) || !rg_add(p->placed.bytes, all, &bytes) || bytes > PTRDIFF_MAX)
        return rg_fail(err, RG_E_INPUT, "%lld matrices of %lld ordered columns are more than memory can address",
                       (long long)n_mats, (long long)cols);
    p->order_bytes = one - one % RG_ALIGN;
    p->placed.bytes += p->order_bytes * (size_t)n_mats;
    return true;
}

/* Rows past the end are 0, not 0 / 0. */
static void clear_factors(uint8_t *panel)
{
    for (int i = 0; i < RG_PANEL; i++)
        ((rg_table_factors *)(void *)panel)->b[i] = 1.0f;
}

static int32_t *order_of(const rg_packed *p, int64_t mat)
{
    return (int32_t *)(void *)(p->data + (size_t)mat * rg_packed_mat_bytes(p) + rg_packed_panels_bytes(p));
}

/* Memory for what has been shaped. */
static bool allocate(rg_packed *p, rg_error *err)
{
    const size_t bytes = p->placed.bytes;

    RG_ASSERT(!p->order_bytes || p->layout != RG_LAYOUT_T4N);
    p->data = rg_shared_region_new(bytes);
    p->placed.bytes = p->data ? bytes : 0;
    if (p->layout == RG_LAYOUT_T4N)
        for (size_t at = 0; at < p->placed.bytes; at += p->panel_bytes)
            clear_factors(p->data + at);
    for (int64_t m = 0; p->data && p->order_bytes && m < p->placed.n_mats; m++)
        for (int64_t k = 0; k < p->placed.cols; k++)
            order_of(p, m)[k] = (int32_t)k;
    return p->data || rg_fail_memory(err, bytes);
}

bool rg_packed_init(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err)
{
    return rg_packed_shape(p, type, n_mats, rows, cols, err) && allocate(p, err);
}

bool rg_packed_init_ordered(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err)
{
    return rg_packed_shape_ordered(p, type, n_mats, rows, cols, err) && allocate(p, err);
}

bool rg_packed_init_wide(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err)
{
    const rg_layout layout = rg_format_of(type)->layout, wide = rg_layout_wide(layout);

    *p = (rg_packed){ .placed = { .type = type, .rows = rows, .cols = cols, .n_mats = n_mats } };
    return shape_as(p, wide == RG_LAYOUT_NONE ? layout : wide, err) && allocate(p, err);
}

void rg_packed_fini(rg_packed *p)
{
    rg_shared_region_free(p->data, p->placed.bytes);
    *p = (rg_packed){ 0 };
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* Bits [from, from + bits) of 32 codes of a row as a plane: group g of four columns is bytes [g][row][4]; with fewer
 * than 8 bits the later groups stand above the first ones. */
static inline void put_plane(int bits, int from, uint8_t (*to)[RG_PANEL][4], int row, const uint8_t *q)
{
    const int n = 4 * bits, mask = (1 << bits) - 1; /* n codes lie side by side */
    uint8_t bytes[32];

    for (int i = 0; i < n; i++) {
        uint8_t byte = 0;
        for (int k = 0; k < 8 / bits; k++)
            byte |= (uint8_t)((q[n * k + i] >> from & mask) << bits * k);
        bytes[i] = byte;
    }
    for (int g = 0; g < bits; g++)
        memcpy(to[g][row], bytes + 4 * g, 4);
}

static void put_codes(rg_layout layout, uint8_t *step, int row, const uint8_t *q)
{
    const int n_runs = rg_layout_step(layout) / 32, low = rg_layout_low_bits(layout), bits = rg_layout_bits(layout);
    uint8_t (*to)[RG_PANEL][4] = (void *)(step + rg_layout_codes_at(layout));

    for (int run = 0; run < n_runs; run++, q += 32, to += bits) {
        if (low == 2) /* constants, for the sake of speed */
            put_plane(2, 0, to, row, q);
        else if (low == 4)
            put_plane(4, 0, to, row, q);
        else
            put_plane(8, 0, to, row, q);
        if (bits - low == 1)
            put_plane(1, low, to + low, row, q);
        else if (bits - low == 2)
            put_plane(2, low, to + low, row, q);
    }
}

/* The reverse: q has 0 in those bits. */
static void get_plane(int bits, int to, const uint8_t (*from)[RG_PANEL][4], int row, uint8_t *q)
{
    const int n = 4 * bits, mask = (1 << bits) - 1;

    for (int i = 0; i < n; i++)
        for (int k = 0; k < 8 / bits; k++)
            q[n * k + i] |= (uint8_t)((from[i / 4][row][i % 4] >> bits * k & mask) << to);
}

static void get_codes(rg_layout layout, const uint8_t *step, int row, uint8_t *q)
{
    const int n_runs = rg_layout_step(layout) / 32, low = rg_layout_low_bits(layout), bits = rg_layout_bits(layout);
    const uint8_t (*from)[RG_PANEL][4] = (const void *)(step + rg_layout_codes_at(layout));

    memset(q, 0, (size_t)n_runs * 32);
    for (int run = 0; run < n_runs; run++, q += 32, from += bits) {
        if (low == 2) /* likewise */
            get_plane(2, 0, from, row, q);
        else if (low == 4)
            get_plane(4, 0, from, row, q);
        else
            get_plane(8, 0, from, row, q);
        if (bits - low == 1)
            get_plane(1, low, from + low, row, q);
        else if (bits - low == 2)
            get_plane(2, low, from + low, row, q);
    }
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

static void round_table(rg_table *t, float unit)
{
    t->unit = unit;
    for (int i = 0; i < 16; i++)
        t->byte[i] = (uint8_t)(128 + round_into(t->value[i] / unit, -128, 127));
}

/* How far the rounded values are off, as a sum of squares. */
static float table_error(const rg_table *t)
{
    float sum = 0.0f;

    for (int i = 0; i < 16; i++) {
        float off = t->unit * (float)(t->byte[i] - 128) - t->value[i];
        sum += off * off;
    }
    return sum;
}

/* The values as integers of 8 bits: themselves where they are, else with the unit whose rounding is off least, among
 * those that make the largest value 64 .. 127 (in quarters). */
static void put_table(rg_table *t, const float *value)
{
    float best = 1.0f, least;

    if (!memcmp(t->value, value, sizeof t->value) && t->unit > 0.0f)
        return;
    memcpy(t->value, value, sizeof t->value);
    round_table(t, 1.0f);
    least = table_error(t);
    for (int quarter = 4 * 64; quarter <= 4 * 127 && least > 0.0f; quarter++) {
        round_table(t, fabsf(extreme(value, 16)) / (0.25f * (float)quarter));
        if (table_error(t) < least) {
            least = table_error(t);
            best = t->unit;
        }
    }
    round_table(t, best);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* What stands at the head of the panel of this row. */
static void put_head(rg_layout layout, uint8_t *panel, int row, const rg_ints *ints)
{
    rg_table_factors *h = (void *)panel;

    if (rg_layout_head_bytes(layout))
        put_table(&h->table, ints->table);
    if (layout == RG_LAYOUT_T4N) {
        h->a[row] = ints->a;
        h->b[row] = ints->b;
    }
}

static void put_k3_scale(rg_step_k3 *k3, int i, int row, int code)
{
    uint8_t *low = &k3->low[i / 2][row], *high = &k3->high[i / 2 % 4][row];
    const int at = i % 2 * 4, at_high = i / 8 * 4 + i % 2 * 2;

    *low = (uint8_t)((*low & ~(15 << at)) | (code & 15) << at);
    *high = (uint8_t)((*high & ~(3 << at_high)) | code >> 4 << at_high);
}

/* Two levels of scale: d (and e) of 256 values, s (and t) of each run. */
static void put_two_levels(rg_layout layout, uint8_t *at, int row, const rg_ints *ints)
{
    rg_step_k4 *k4 = (void *)at;
    rg_step_k2 *k2 = (void *)at;
    rg_step_k3 *k3 = (void *)at;
    rg_step_k6 *k6 = (void *)at;

    k4->d[row] = ints->d; /* d lies alike in all of them, and e where there is one */
    for (int i = 0; i < 16; i++)
        switch (layout) {
        case RG_LAYOUT_K4:
        case RG_LAYOUT_K5:
            k4->s[i / 2][row] = ints->s[i / 2];
            k4->t[i / 2][row] = ints->t[i / 2];
            k4->e[row] = ints->e;
            break;
        case RG_LAYOUT_K2:
            k2->st[i][row] = (uint8_t)(ints->s[i] | ints->t[i] << 4);
            k2->e[row] = ints->e;
            break;
        case RG_LAYOUT_K3:
            put_k3_scale(k3, i, row, ints->s[i] + 32);
            break;
        default:
            k6->s[i][row] = ints->s[i];
        }
}

/* The same where d is f32, of codes of a table. */
static void put_two_levels_f32(rg_layout layout, uint8_t *at, int row, const rg_ints *ints)
{
    rg_step_tk4 *tk4 = (void *)at;
    rg_step_tk4h *tk4h = (void *)at;

    tk4->d[row] = ints->f;
    for (int i = 0; i < 16; i++)
        if (layout == RG_LAYOUT_TK4H)
            tk4h->s[i][row] = ints->s[i];
        else
            tk4->s[i / 2][row] = ints->s[i / 2];
}

/* Step i of a block. */
static void put_step(rg_layout layout, uint8_t *at, int row, const rg_ints *ints, int i)
{
    rg_step_q4m *q4m = (void *)at;
    rg_step_t4n *t4n = (void *)at;
    rg_step_z4 *z4 = (void *)at;
    rg_step_f8 *f8 = (void *)at;

    switch (layout) {
    case RG_LAYOUT_Q4M:
    case RG_LAYOUT_Q5M:
        q4m->m[row] = ints->e; /* m lies alike in both, */
        q4m->d[row] = ints->d;
        break;
    case RG_LAYOUT_Q4:
    case RG_LAYOUT_Q5:
    case RG_LAYOUT_Q8:
    case RG_LAYOUT_T4:
    case RG_LAYOUT_Q2:
        q4m->d[row] = ints->d; /* and d in all of these */
        break;
    case RG_LAYOUT_T4E:
        at[row] = ints->scales[i];
        break;
    case RG_LAYOUT_T4N:
        t4n->s[0][row] = ints->scales[2 * i];
        t4n->s[1][row] = ints->scales[2 * i + 1];
        break;
    case RG_LAYOUT_Z4:
    case RG_LAYOUT_Z4W:
    case RG_LAYOUT_Z8:
    case RG_LAYOUT_Z8W:
        z4->z[row] = ints->zero;
        z4->d[row] = ints->f;
        break;
    case RG_LAYOUT_T4F:
    case RG_LAYOUT_F8:
        z4->d[row] = ints->f;
        break;
    case RG_LAYOUT_TK4:
    case RG_LAYOUT_TK4H:
        put_two_levels_f32(layout, at, row, ints);
        break;
    default:
        put_two_levels(layout, at, row, ints);
    }
    if (layout == RG_LAYOUT_F8)
        for (int k = 0; k < 128; k++)
            f8->q[k][row] = ints->q[k];
    else
        put_codes(layout, at, row, ints->q + i * rg_layout_step(layout));
}

static uint8_t *panel_of_row(const rg_packed *p, int64_t mat, int64_t row)
{
    RG_ASSERT(mat >= 0 && mat < p->placed.n_mats && row >= 0 && row < p->placed.rows);
    return p->data + (rg_panel_at(p, mat, row / RG_PANEL) - p->data);
}

/* Bytes from one step of a panel to the next. */
static size_t steps_apart(const rg_packed *p)
{
    return p->column_bytes ? p->column_bytes : rg_layout_step_bytes(p->layout);
}

/* n values of 2 or 4 bytes, each in a step of its own. */
static void put_values(uint8_t *to, size_t step_bytes, const uint8_t *from, int64_t n, size_t each)
{
    if (each == 2) /* constants, for the sake of speed */
        for (int64_t i = 0; i < n; i++)
            memcpy(to + (size_t)i * step_bytes, from + i * 2, 2);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(to + (size_t)i * step_bytes, from + i * 4, 4);
}

/* A row of BF16 into its panel, or out of it as f32. */
static void put_bf16(const rg_packed *p, uint16_t *panel, int row, const uint16_t *from)
{
    const int64_t even = p->placed.cols & ~(int64_t)1;

    for (int64_t k = 0; k < even; k += 2)
        memcpy(panel + 16 * k + 2 * row, from + k, 2 * sizeof *from);
    if (even < p->placed.cols)
        panel[rg_bf16_at(p->placed.cols, even, row)] = from[even];
}

static void get_bf16(const rg_packed *p, const uint16_t *panel, int row, float *to)
{
    for (int64_t k = 0; k < p->placed.cols; k++)
        to[k] = rg_bf16_to_f32(panel[rg_bf16_at(p->placed.cols, k, row)]);
}

void rg_pack_row(rg_packed *p, int64_t mat, int64_t row, const void *src)
{
    const rg_format *f = rg_format_of(p->placed.type);
    size_t step_bytes = steps_apart(p), each = (size_t)f->block_bytes;
    uint8_t *panel = panel_of_row(p, mat, row), *to = panel + rg_layout_head_bytes(p->layout);
    int lane = (int)(row % RG_PANEL), n_steps = f->block_len / rg_layout_step(p->layout);
    const uint8_t *from = src;
    rg_ints ints;

    if (p->layout == RG_LAYOUT_BF16) {
        put_bf16(p, (uint16_t *)(void *)panel, lane, src);
        return;
    }
    if (!f->ints) {
        put_values(to + (size_t)lane * each, step_bytes, from, p->placed.cols, each);
        return;
    }
    for (int64_t left = p->placed.cols; left > 0; left -= f->block_len, from += each) {
        f->ints(from, &ints);
        if (left == p->placed.cols)
            put_head(p->layout, panel, lane, &ints);
        if (rg_layout_is_folded(p->layout))
            put_folded(p->layout, to, lane, from);
        else
            for (int i = 0; i < n_steps; i++)
                put_step(p->layout, to + (size_t)i * step_bytes, lane, &ints, i);
        to += (size_t)n_steps * step_bytes;
    }
}

/* A row of a step as codes of a table. */
static void unfold_row(rg_layout layout, const uint8_t *step, int row, uint8_t *to)
{
    rg_ints ints;

    get_folded(layout, step, row, &ints);
    put_step(rg_layout_unfolded(layout), to, row, &ints, 0);
}

void rg_unfold(rg_layout layout, const uint8_t *panel, int cols, uint8_t *to)
{
    const size_t head = rg_layout_head_bytes(layout), bytes = rg_layout_step_bytes(layout);

    memcpy(to, panel, head);
    for (int i = 0; i < cols / 256; i++)
        for (int row = 0; row < RG_PANEL; row++)
            unfold_row(layout, panel + head + (size_t)i * bytes, row,
                       to + head + (size_t)i * rg_layout_step_bytes(rg_layout_unfolded(layout)));
}

/* Value i of a row, whose code is q, in one step of a layout with a table. */
static float table_value(rg_layout layout, const uint8_t *panel, uint8_t *at, int row, int i, int q)
{
    const rg_table_factors *h = (const void *)panel;
    rg_step_q4 *t4 = (void *)at;
    rg_step_t4n *t4n = (void *)at;
    rg_step_tk4 *tk4 = (void *)at;
    rg_step_tk4h *tk4h = (void *)at;
    float v = h->table.value[q];

    if (layout == RG_LAYOUT_T4)
        return value_table(rg_f16_to_f32(t4->d[row]), v);
    if (layout == RG_LAYOUT_T4E)
        return value_table(rg_e8m0_half_to_f32(at[row]), v);
    if (layout == RG_LAYOUT_T4F)
        return value_table(tk4->d[row], v);
    if (layout == RG_LAYOUT_T4N)
        return value_table(scale_with_factors(t4n->s[i / 16][row], h->a[row], h->b[row]), v);
    return value_table_two_level(tk4->d[row], layout == RG_LAYOUT_TK4 ? tk4->s[i / 32][row] : tk4h->s[i / 16][row], v);
}

/* The same of a layout without one; d, and m or e, where they are f16. */
static float value_at(rg_layout layout, uint8_t *at, int row, int i, int q, const float d[2])
{
    rg_step_z4 *z4 = (void *)at;
    rg_step_k4 *k4 = (void *)at;
    rg_step_k2 *k2 = (void *)at;

    switch (layout) {
    case RG_LAYOUT_Q4:
        return value_scale(d[0], q, 8);
    case RG_LAYOUT_Q5:
        return value_scale(d[0], q, 16);
    case RG_LAYOUT_Q8:
        return value_scale(d[0], q, 128);
    case RG_LAYOUT_Q2:
        return value_scale(d[0], q, 1);
    case RG_LAYOUT_Q4M:
    case RG_LAYOUT_Q5M:
        return value_minimum(d[0], d[1], q);
    case RG_LAYOUT_K4:
    case RG_LAYOUT_K5:
        return value_two_level(d[0], k4->s[i / 32][row], d[1], k4->t[i / 32][row], q);
    case RG_LAYOUT_K2:
        return value_two_level(d[0], k2->st[i / 16][row] & 15, d[1], k2->st[i / 16][row] >> 4, q);
    case RG_LAYOUT_K3:
        return value_signed_two_level(d[0], rg_k3_scale((const rg_step_k3 *)(const void *)at, i / 16, row), q, 4);
    case RG_LAYOUT_K6:
        return value_signed_two_level(d[0], ((const rg_step_k6 *)(const void *)at)->s[i / 16][row], q, 32);
    default:
        return value_scale(z4->d[row], q, z4->z[row]);
    }
}

static void unpack_step(rg_layout layout, const uint8_t *panel, uint8_t *at, int row, float *y)
{
    const rg_step_f8 *f8 = (const void *)at;
    const rg_step_q4m *q4m = (const void *)at; /* d lies alike where it is f16, and so does what comes next */
    const float d[2] = { rg_f16_to_f32(q4m->d[row]), rg_f16_to_f32(q4m->m[row]) };
    uint8_t q[256], unfolded[sizeof(rg_step_tk4h)];

    if (rg_layout_is_folded(layout)) {
        unfold_row(layout, at, row, unfolded);
        unpack_step(rg_layout_unfolded(layout), panel, unfolded, row, y);
        return;
    }
    if (layout != RG_LAYOUT_F8)
        get_codes(layout, at, row, q);
    for (int i = 0; i < rg_layout_step(layout); i++)
        if (layout == RG_LAYOUT_F8)
            y[i] = value_table(f8->d[row], rg_e4m3_to_f32(f8->q[i][row]));
        else if (rg_layout_head_bytes(layout))
            y[i] = table_value(layout, panel, at, row, i, q[i]);
        else
            y[i] = value_at(layout, at, row, i, q[i], d);
}

void rg_pack_order(rg_packed *p, int64_t mat, const int32_t *order)
{
    RG_ASSERT(p->order_bytes && mat >= 0 && mat < p->placed.n_mats);
    memcpy(order_of(p, mat), order, (size_t)p->placed.cols * sizeof *order);
}

/* A row of codes whose columns have an order. */
static void unpack_ordered(const rg_packed *p, const int32_t *order, const uint8_t *panel, int lane, float *out)
{
    const int step = rg_layout_step(p->layout);
    uint8_t *from = p->data + (panel - p->data) + rg_layout_head_bytes(p->layout);
    float values[256];

    for (int64_t k = 0; k < p->placed.cols; k += step, from += rg_layout_step_bytes(p->layout)) {
        unpack_step(p->layout, panel, from, lane, values);
        for (int i = 0; i < step; i++)
            out[order[k + i]] = values[i];
    }
}

void rg_unpack_row(const rg_packed *p, int64_t mat, int64_t row, float *out)
{
    const rg_format *f = rg_format_of(p->placed.type);
    size_t step_bytes = steps_apart(p);
    uint8_t *panel = panel_of_row(p, mat, row), *from = panel + rg_layout_head_bytes(p->layout);
    int lane = (int)(row % RG_PANEL), step = rg_layout_step(p->layout);

    if (p->order_bytes) {
        RG_ASSERT(f->ints);
        unpack_ordered(p, order_of(p, mat), panel, lane, out);
        return;
    }

    if (p->layout == RG_LAYOUT_BF16) {
        get_bf16(p, (const uint16_t *)(const void *)panel, lane, out);
        return;
    }
    for (int64_t left = p->placed.cols; left > 0; left -= step, from += step_bytes, out += step)
        if (f->ints)
            unpack_step(p->layout, panel, from, lane, out);
        else
            f->decode(from + (size_t)lane * (size_t)f->block_bytes, 1, out);
}
