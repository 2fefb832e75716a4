/* kbit.c -- see kbit.h. */
#include "shrink/kbit.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "quant/lattice.h"

/* ---- tables ------------------------------------------------------------------------------------------------------ */

/* The x below which a normally distributed value is with probability p. */
static double normal_quantile(double p)
{
    double low = -16, high = 16;

    for (int i = 0; i < 200; i++) {
        double mid = (low + high) / 2;
        if (0.5 * erfc(-mid / sqrt(2)) < p)
            low = mid;
        else
            high = mid;
    }
    return (low + high) / 2;
}

/* Dettmers et al. 2023 (QLoRA): 2^(k-1) quantiles above zero, one less below it, and zero; the outermost stand half way
 * between those of tables of 2^k and 2^k - 1 values. */
static void make_quantiles(float *table, int bits)
{
    static const float nf4[16] = {
        -1.0f,           -0x1.647362p-1f, -0x1.0cd66p-1f,  -0x1.94654p-2f,
        -0x1.23449ap-2f, -0x1.7a6a7ep-3f, -0x1.74f0e2p-4f, 0.0f,
        0x1.45f5fep-4f,  0x1.4995c6p-3f,  0x1.f809bap-3f,  0x1.5a0674p-2f,
        0x1.c34970p-2f,  0x1.200f56p-1f,  0x1.722766p-1f,  1.0f,
    };
    const int n = 1 << bits, half = n / 2;
    const double last = 1 - (1.0 / (2 * n) + 1.0 / (2 * (n - 1))) / 2, most = normal_quantile(last);

    if (bits == 4) {
        memcpy(table, nf4, sizeof nf4);
        return;
    }
    for (int i = 0; i < half - 1; i++)
        table[i] = (float)(-normal_quantile(last + (0.5 - last) * i / (half - 1)) / most);
    table[half - 1] = 0;
    for (int i = 0; i < half; i++)
        table[n - 1 - i] = (float)(normal_quantile(last + (0.5 - last) * i / half) / most);
}

/* Value of a code of a sign, `exponent` bits and the rest, subnormals included, the greatest being 1. */
static void make_floats(float *table, int bits)
{
    const int exponent = bits < 3 ? 1 : bits < 5 ? 2 : 3, fraction = bits - 1 - exponent, half = 1 << (bits - 1);
    double most = 0;

    for (int i = 0; i < half; i++) {
        int e = i >> fraction, f = i & ((1 << fraction) - 1);
        double v = e ? ldexp(1.0 + ldexp(f, -fraction), e) : ldexp(f, 1 - fraction);
        most = v;
        table[i] = (float)v;
    }
    for (int i = 0; i < half; i++) {
        table[i] = (float)((double)table[i] / most);
        table[half + i] = -table[i];
    }
}

/* order: numbers of the values, rising; and the values in that order. */
static void sort_table(rg_coding *c, const float *by_code)
{
    const int n = 1 << c->bits;

    for (int i = 0; i < n; i++) {
        int at = i;
        for (; at > 0 && c->table[at - 1] > by_code[i]; at--) {
            c->table[at] = c->table[at - 1];
            c->order[at] = c->order[at - 1];
        }
        c->table[at] = by_code[i];
        c->order[at] = (uint8_t)i;
    }
}

bool rg_coding_init(rg_coding *c, rg_error *err)
{
    float by_code[256];

    if (c->bits < 2 || c->bits > 8)
        return rg_fail(err, RG_E_USAGE, "there are codes of 2 to 8 bits, not %d", c->bits);
    if (c->group < 0)
        return rg_fail(err, RG_E_USAGE, "a group of %lld columns", (long long)c->group);
    if (c->kind != RG_CODE_FLOAT && c->kind != RG_CODE_QUANTILE)
        return true;
    if (c->kind == RG_CODE_FLOAT)
        make_floats(by_code, c->bits);
    else
        make_quantiles(by_code, c->bits);
    sort_table(c, by_code);
    return true;
}

bool rg_code_kind_by_name(const char *name, rg_code_kind *kind)
{
    static const char *const names[] = { "int", "float", "quantile" };
    static const rg_code_kind kinds[] = { RG_CODE_INT, RG_CODE_FLOAT, RG_CODE_QUANTILE };

    for (size_t i = 0; i < RG_LEN(names); i++)
        if (!strcmp(name, names[i]))
            return *kind = kinds[i], true;
    return false;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

bool rg_coded_init(rg_coded *to, const rg_coding *c, int64_t rows, int64_t cols, rg_error *err)
{
    const int64_t group = c->group && c->group < cols ? c->group : cols;

    *to = (rg_coded){ .kind = c->kind,
                      .bits = c->bits,
                      .sym = c->sym,
                      .over = c->by_most ? 127.0f : 1.0f,
                      .rows = rows,
                      .cols = cols,
                      .group = group,
                      .block_rows = 1,
                      .n_groups = (cols + group - 1) / group };
    to->q = rg_array((size_t)rows, (size_t)cols);
    to->scale = rg_table_new(rows, to->n_groups, sizeof *to->scale);
    if (c->kind == RG_CODE_INT || c->kind == RG_CODE_MINIMUM)
        to->zero = rg_table_new(rows, to->n_groups, sizeof *to->zero);
    for (int i = 0; i < 1 << c->bits; i++)
        to->table[c->order[i]] = c->table[i];
    if (to->q && to->scale && (to->zero || c->kind > RG_CODE_MINIMUM))
        return true;
    rg_coded_fini(to);
    return rg_fail_memory(err, (size_t)rows * (size_t)cols);
}

void rg_coded_fini(rg_coded *c)
{
    rg_free(c->q);
    rg_free(c->scale);
    rg_free(c->zero);
    rg_free(c->group_of);
    *c = (rg_coded){ 0 };
}

static float rounded(rg_type type, float x)
{
    return type == RG_F16 ? rg_f16_to_f32(rg_f32_to_f16(x)) : type == RG_BF16 ? rg_bf16_to_f32(rg_f32_to_bf16(x)) : x;
}

static float larger(float a, float b)
{
    return a > b ? a : b;
}

void rg_choose_scale(const rg_coding *c, float least, float most, float *scale, float *zero)
{
    const float last = (float)((1 << c->bits) - 1), half = (float)(1 << (c->bits - 1));
    const bool is_int = c->kind == RG_CODE_INT;

    least = least < 0 ? least : 0;
    most = most > 0 ? most : 0;
    if ((is_int && c->sym) || c->kind > RG_CODE_MINIMUM) {
        most = larger(most, -least);
        least = -most;
    }
    if (least == 0 && most == 0) {
        least = -1;
        most = 1;
    }
    *zero = is_int && c->sym ? half : 0;
    if (c->kind == RG_CODE_F8)
        *scale = rounded(c->scale_type, most / 448.0f);
    else if (c->kind > RG_CODE_MINIMUM)
        *scale = rounded(c->scale_type, most);
    else if (c->by_most)
        *scale = most;
    else if (is_int && c->sym && c->narrow)
        *scale = rounded(c->scale_type, most / (half - 1));
    else
        *scale = rounded(c->scale_type, (most - least) / last);
    if (*scale == 0) /* too small for the type of scales */
        *scale = 1;
    if (c->kind == RG_CODE_MINIMUM)
        *zero = rounded(c->scale_type, least);
    else if (is_int && !c->sym)
        *zero = rintf(-least / *scale);
    if (is_int && !c->sym)
        *zero = *zero < last ? *zero : last;
}

static uint8_t nearest(const rg_coding *c, float x)
{
    int low = 0, high = (1 << c->bits) - 1; /* the first value of the table that is not below x is in [low, high] */

    while (low < high) {
        int mid = (low + high) / 2;
        if (c->table[mid] < x)
            low = mid + 1;
        else
            high = mid;
    }
    return c->order[low > 0 && x - c->table[low - 1] < c->table[low] - x ? low - 1 : low];
}

uint8_t rg_code_of(const rg_coding *c, float w, float scale, float zero)
{
    const float last = (float)((1 << c->bits) - 1);
    float q;

    if (c->kind == RG_CODE_F8)
        return rg_f32_to_e4m3(w / scale);
    if (c->kind > RG_CODE_MINIMUM)
        return nearest(c, w / scale);
    if (c->by_most)
        q = rintf(w * (127.0f / scale)) + zero;
    else
        q = c->kind == RG_CODE_MINIMUM ? rintf((w - zero) / scale) : rintf(w / scale) + zero;
    q = q < last ? q : last;
    return (uint8_t)(q > (float)(c->sym && c->narrow) ? q : (float)(c->sym && c->narrow));
}

float rg_code_value(const rg_coded *c, uint8_t q, float scale, float zero)
{
    scale /= c->over;
    switch (c->kind) {
    case RG_CODE_INT:
        return scale * ((float)q - zero);
    case RG_CODE_MINIMUM:
        return scale * (float)q + zero;
    case RG_CODE_F8:
        return scale * rg_e4m3_to_f32(q);
    default:
        return scale * c->table[q];
    }
}

void rg_coded_row(const rg_coded *c, int64_t r, float *to)
{
    const float *scale = c->scale + r / c->block_rows * c->n_groups;
    const float *zero = c->zero ? c->zero + r * c->n_groups : NULL;
    const uint8_t *q = c->q + r * c->cols;

    for (int64_t k = 0; k < c->cols; k++) {
        int64_t g = rg_group_of(c, k);
        to[k] = rg_code_value(c, q[k], scale[g], zero ? zero[g] : 0);
    }
}

/* The step of values that lie on the grid already: their scale. */
static void take_lattice(const rg_coding *c, const float *w, int64_t n, float *scale)
{
    const float step = c->kind == RG_CODE_INT && c->sym && !c->by_most && !c->narrow && n >= 16 && n <= INT32_MAX
                           ? rg_lattice_step(w, (int)n, 1 << (c->bits - 1))
                           : 0.0f;

    if (step > 0 && rounded(c->scale_type, step) > 0)
        *scale = rounded(c->scale_type, step);
}

void rg_round_row(rg_coded *to, const rg_coding *c, int64_t r, const float *w)
{
    for (int64_t g = 0; g < to->n_groups; g++) {
        const int64_t first = g * to->group, end = first + to->group < to->cols ? first + to->group : to->cols;
        float least = 0, most = 0, zero, *scale = &to->scale[r * to->n_groups + g];
        for (int64_t k = first; k < end; k++) {
            least = w[k] < least ? w[k] : least;
            most = w[k] > most ? w[k] : most;
        }
        rg_choose_scale(c, least, most, scale, &zero);
        take_lattice(c, w + first, end - first, scale);
        if (to->zero)
            to->zero[r * to->n_groups + g] = zero;
        for (int64_t k = first; k < end; k++)
            to->q[r * to->cols + k] = rg_code_of(c, w[k], *scale, zero);
    }
}

void rg_round_to_nearest(rg_coded *to, const rg_coding *c, const float *w)
{
    for (int64_t r = 0; r < to->rows; r++)
        rg_round_row(to, c, r, w + r * to->cols);
}
