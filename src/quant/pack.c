/* pack.c -- rows into panels and back; what lies where is in pack.h. */
#include "quant/pack.h"

#include <string.h>

#include "base/mem.h"
#include "quant/block.h"

int rg_layout_step(rg_layout layout)
{
    static const int step[RG_LAYOUT_COUNT] = {
        [RG_LAYOUT_F32] = 1,  [RG_LAYOUT_F16] = 1,  [RG_LAYOUT_BF16] = 1, [RG_LAYOUT_Q4] = 32,  [RG_LAYOUT_Q8] = 32,
        [RG_LAYOUT_Q4M] = 32, [RG_LAYOUT_Q8M] = 32, [RG_LAYOUT_K4] = 256, [RG_LAYOUT_K8] = 256,
    };

    return step[layout];
}

size_t rg_layout_step_bytes(rg_layout layout)
{
    static const size_t bytes[RG_LAYOUT_COUNT] = {
        [RG_LAYOUT_F32] = 4 * RG_PANEL,        [RG_LAYOUT_F16] = 2 * RG_PANEL,
        [RG_LAYOUT_BF16] = 2 * RG_PANEL,       [RG_LAYOUT_Q4] = sizeof(rg_step_q4),
        [RG_LAYOUT_Q8] = sizeof(rg_step_q8),   [RG_LAYOUT_Q4M] = sizeof(rg_step_q4m),
        [RG_LAYOUT_Q8M] = sizeof(rg_step_q8m), [RG_LAYOUT_K4] = sizeof(rg_step_k4),
        [RG_LAYOUT_K8] = sizeof(rg_step_k8),
    };

    return bytes[layout];
}

bool rg_packed_shape(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err)
{
    const rg_format *f = rg_format_of(type);
    size_t panels, bytes;

    *p = (rg_packed){ .layout = f->layout, .type = type, .rows = rows, .cols = cols, .n_mats = n_mats };
    if (f->layout == RG_LAYOUT_NONE)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s is not a format of matrices", f->name);
    if (n_mats < 0 || rows < 0 || cols < 0 || cols % rg_layout_step(f->layout))
        return rg_fail(err, RG_E_INPUT,
                       "%lld matrices of [%lld, %lld] cannot be packed from %s, whose blocks are of %d",
                       (long long)n_mats, (long long)rows, (long long)cols, f->name, f->block_len);
    if (!rg_mul((size_t)(cols / rg_layout_step(f->layout)), rg_layout_step_bytes(f->layout), &p->panel_bytes) ||
        !rg_add(p->panel_bytes, (size_t)RG_ALIGN - 1, &p->panel_bytes) ||
        !rg_mul((size_t)n_mats, (size_t)(rows / RG_PANEL + (rows % RG_PANEL != 0)), &panels) ||
        !rg_mul(p->panel_bytes -= p->panel_bytes % RG_ALIGN, panels, &bytes) || bytes > PTRDIFF_MAX ||
        rows > INT64_MAX - RG_PANEL)
        return rg_fail(err, RG_E_INPUT, "%lld matrices of [%lld, %lld] %s are more than memory can address",
                       (long long)n_mats, (long long)rows, (long long)cols, f->name);
    p->bytes = bytes;
    return true;
}

bool rg_packed_init(rg_packed *p, rg_type type, int64_t n_mats, int64_t rows, int64_t cols, rg_error *err)
{
    size_t bytes;

    if (!rg_packed_shape(p, type, n_mats, rows, cols, err))
        return false;
    bytes = p->bytes;
    p->data = rg_region_new(bytes);
    p->bytes = p->data ? bytes : 0;
    return p->data || rg_fail_memory(err, bytes);
}

void rg_packed_fini(rg_packed *p)
{
    rg_region_free(p->data, p->bytes);
    *p = (rg_packed){ 0 };
}

static void put_nibbles(uint8_t q[4][16][4], int row, const uint8_t *from)
{
    for (int i = 0; i < 16; i++)
        q[i / 4][row][i % 4] = (uint8_t)(from[i] | from[16 + i] << 4);
}

static void put_bytes(uint8_t q[][16][4], int row, const uint8_t *from, int n)
{
    for (int i = 0; i < n; i++)
        q[i / 4][row][i % 4] = from[i];
}

/* Code i of a row: the reverse of the two above. */
static int nibble_at(uint8_t q[4][16][4], int row, int i)
{
    return q[i % 16 / 4][row][i % 4] >> i / 16 * 4 & 15;
}

static int byte_at(uint8_t q[][16][4], int row, int i)
{
    return q[i / 4][row][i % 4];
}

static void put_k4(rg_step_k4 *step, int row, const rg_ints *ints)
{
    step->d[row] = ints->d;
    step->e[row] = ints->e;
    for (int run = 0; run < 8; run++) {
        step->s[run][row] = ints->s[run];
        step->t[run][row] = ints->t[run];
        put_nibbles(step->q[run], row, ints->q + 32 * run);
    }
}

static void put_k8(rg_step_k8 *step, int row, const rg_ints *ints)
{
    step->d[row] = ints->d;
    step->e[row] = ints->e;
    for (int run = 0; run < 16; run++) {
        step->s[run][row] = ints->s[run];
        step->t[run][row] = ints->t[run];
        put_bytes(step->q[run], row, ints->q + 16 * run, 16);
    }
}

static void put_step(rg_layout layout, void *at, int row, const rg_ints *ints)
{
    rg_step_q4 *q4 = at;
    rg_step_q4m *q4m = at;
    rg_step_q8 *q8 = at;
    rg_step_q8m *q8m = at;

    switch (layout) {
    case RG_LAYOUT_Q4:
        q4->d[row] = ints->d;
        put_nibbles(q4->q, row, ints->q);
        break;
    case RG_LAYOUT_Q4M:
        q4m->d[row] = ints->d;
        q4m->m[row] = ints->e;
        put_nibbles(q4m->q, row, ints->q);
        break;
    case RG_LAYOUT_Q8:
        q8->d[row] = ints->d;
        put_bytes(q8->q, row, ints->q, 32);
        break;
    case RG_LAYOUT_Q8M:
        q8m->d[row] = ints->d;
        q8m->m[row] = ints->e;
        put_bytes(q8m->q, row, ints->q, 32);
        break;
    case RG_LAYOUT_K4:
        put_k4(at, row, ints);
        break;
    case RG_LAYOUT_K8:
        put_k8(at, row, ints);
        break;
    default:
        RG_ASSERT(!"an integer layout");
    }
}

static uint8_t *panel_of_row(const rg_packed *p, int64_t mat, int64_t row)
{
    RG_ASSERT(mat >= 0 && mat < p->n_mats && row >= 0 && row < p->rows);
    return p->data + (rg_panel_at(p, mat, row / RG_PANEL) - p->data);
}

void rg_pack_row(rg_packed *p, int64_t mat, int64_t row, const void *src)
{
    const rg_format *f = rg_format_of(p->type);
    size_t step_bytes = rg_layout_step_bytes(p->layout), each = (size_t)f->block_bytes;
    uint8_t *to = panel_of_row(p, mat, row);
    const uint8_t *from = src;
    int lane = (int)(row % RG_PANEL);
    rg_ints ints;

    for (int64_t left = p->cols; left > 0; left -= f->block_len, to += step_bytes, from += each) {
        if (f->ints) {
            f->ints(from, &ints);
            put_step(p->layout, to, lane, &ints);
        } else {
            memcpy(to + (size_t)lane * each, from, each);
        }
    }
}

/* One step of one row. */
static void unpack_step(rg_layout layout, uint8_t *at, int row, float *y)
{
    rg_step_q4 *q4 = (void *)at;
    rg_step_q4m *q4m = (void *)at;
    rg_step_q8 *q8 = (void *)at;
    rg_step_q8m *q8m = (void *)at;
    rg_step_k4 *k4 = (void *)at;
    rg_step_k8 *k8 = (void *)at;
    float d = rg_f16_to_f32(q4->d[row]); /* every integer step starts with d */
    float e = rg_f16_to_f32(layout == RG_LAYOUT_Q4 || layout == RG_LAYOUT_Q8 ? 0 : q4m->m[row]); /* and then m or e */

    for (int i = 0; i < rg_layout_step(layout); i++) {
        if (layout == RG_LAYOUT_Q4)
            y[i] = value_scale(d, nibble_at(q4->q, row, i), 8);
        else if (layout == RG_LAYOUT_Q8)
            y[i] = value_scale(d, byte_at(q8->q, row, i), 128);
        else if (layout == RG_LAYOUT_Q4M)
            y[i] = value_minimum(d, e, nibble_at(q4m->q, row, i));
        else if (layout == RG_LAYOUT_Q8M)
            y[i] = value_minimum(d, e, byte_at(q8m->q, row, i));
        else if (layout == RG_LAYOUT_K4)
            y[i] =
                value_two_level(d, k4->s[i / 32][row], e, k4->t[i / 32][row], nibble_at(k4->q[i / 32], row, i % 32), 0);
        else
            y[i] =
                value_two_level(d, k8->s[i / 16][row], e, k8->t[i / 16][row], byte_at(k8->q[i / 16], row, i % 16), 128);
    }
}

void rg_unpack_row(const rg_packed *p, int64_t mat, int64_t row, float *out)
{
    const rg_format *f = rg_format_of(p->type);
    size_t step_bytes = rg_layout_step_bytes(p->layout);
    uint8_t *from = panel_of_row(p, mat, row);
    int lane = (int)(row % RG_PANEL);

    for (int64_t left = p->cols; left > 0; left -= f->block_len, from += step_bytes, out += f->block_len) {
        if (f->ints)
            unpack_step(p->layout, from, lane, out);
        else
            f->decode(from + (size_t)lane * (size_t)f->block_bytes, 1, out);
    }
}
