/* composed_rows.c -- see made.h: codes, scales and zero points of some rows, read from where they lie, as blocks. */
#include "ckpt/composed.h"

#include <string.h>

#include "base/mem.h"

/* Rows [first, first + n), unpacked. */
typedef struct rows {
    const rg_checkpoint *c;
    const rg_composed *m;
    int64_t first, n;
    int64_t first_scale; /* of RG_CODES_FLAT */
    const int32_t *order; /* in which codes are put into blocks; NULL: that of the columns */
    uint8_t *q;          /* [n][cols] */
    float *d;            /* [n][n_groups], or of RG_CODES_FLAT from first_scale on; */
    uint8_t *s;          /* the same as stored, where scales are bytes */
    uint8_t *z;          /* [n][n_groups]; NULL: m->zero_plus everywhere */
} rows;

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* Values [from, from + n) of a part, as stored; rg_free it. */
static void *read_part(const rg_checkpoint *c, const rg_tensor *t, int64_t from, int64_t n, rg_error *err)
{
    const uint64_t each = (uint64_t)rg_format_of(t->type)->block_bytes;
    void *to = rg_array((size_t)n, each);

    if (!to)
        return rg_fail_memory(err, (size_t)n * each), NULL;
    if (rg_file_read(c->files[t->file], t->offset + (uint64_t)from * each, to, (size_t)n * each, err))
        return to;
    rg_free(to);
    return NULL;
}

/* The same as f32. */
static float *read_floats(const rg_checkpoint *c, const rg_tensor *t, int64_t from, int64_t n, rg_error *err)
{
    void *raw = read_part(c, t, from, n, err);
    float *to = raw ? rg_array((size_t)n, sizeof *to) : NULL;

    if (to)
        rg_format_of(t->type)->decode(raw, n, to);
    else if (raw)
        rg_fail_memory(err, (size_t)n * sizeof *to);
    rg_free(raw);
    return to;
}

/* Columns [from, from + n) of a matrix of n_rows rows of n_cols values, side by side; rg_free it. */
static void *read_columns(const rg_checkpoint *c, const rg_tensor *t, int64_t n_rows, int64_t n_cols, int64_t from,
                          int64_t n, rg_error *err)
{
    const size_t each = (size_t)rg_format_of(t->type)->block_bytes * (size_t)n;
    uint8_t *to;
    bool ok = true;

    if (n == n_cols)
        return read_part(c, t, 0, n_rows * n_cols, err);
    to = rg_array((size_t)n_rows, each);
    if (!to)
        return rg_fail_memory(err, (size_t)n_rows * each), NULL;
    for (int64_t i = 0; ok && i < n_rows; i++)
        ok = rg_file_read(c->files[t->file], t->offset + (uint64_t)(i * n_cols + from) * (each / (size_t)n),
                          to + (size_t)i * each, each, err);
    if (ok)
        return to;
    rg_free(to);
    return NULL;
}

/* ---- codes ------------------------------------------------------------------------------------------------------- */

/* Code i of a stream of bits in words that are `stride` apart. */
static uint8_t code_at(const uint32_t *words, int64_t stride, int64_t i, int bits)
{
    const int64_t bit = i * bits, word = bit / 32;
    const int at = (int)(bit % 32);
    uint32_t v = words[word * stride] >> at;

    if (at + bits > 32)
        v |= words[(word + 1) * stride] << (32 - at);
    return (uint8_t)(v & ((1u << bits) - 1));
}

static bool load_down(rows *r, rg_error *err)
{
    enum { TILE = 16 }; /* rows whose words share cache lines */
    const rg_composed *m = r->m;
    uint32_t *words = read_columns(r->c, &m->q, m->cols * m->bits / 32, m->rows, r->first, r->n, err);

    for (int64_t from = 0; words && from < r->n; from += TILE)
        for (int64_t k = 0; k < m->cols; k += 32)
            for (int64_t i = from; i < r->n && i < from + TILE; i++)
                for (int64_t j = k; j < k + 32 && j < m->cols; j++)
                    r->q[i * m->cols + j] = code_at(words + i, r->n, j, m->bits);
    rg_free(words);
    return words;
}

/* The nibble of a word that row r of its eight is in. */
static int awq_shift(int64_t r)
{
    return (int)(r % 8 / 2 + r % 2 * 4) * 4;
}

static bool load_awq(rows *r, rg_error *err)
{
    const rg_composed *m = r->m;
    const int64_t base = r->first / 8, n = (r->first + r->n - 1) / 8 - base + 1;
    uint32_t *words = read_columns(r->c, &m->q, m->cols, m->rows / 8, base, n, err);

    for (int64_t i = 0; words && i < r->n; i++) {
        const uint32_t *from = words + ((r->first + i) / 8 - base);
        for (int64_t k = 0; k < m->cols; k++)
            r->q[i * m->cols + k] = from[k * n] >> awq_shift(r->first + i) & 15;
    }
    rg_free(words);
    return words;
}

static bool load_words(rows *r, rg_error *err)
{
    const rg_composed *m = r->m;
    const int64_t n = (m->cols * m->bits + 31) / 32;
    uint32_t *words = read_part(r->c, &m->q, r->first * n, r->n * n, err);

    for (int64_t i = 0; words && i < r->n; i++)
        for (int64_t k = 0; k < m->cols; k++)
            r->q[i * m->cols + k] = code_at(words + i * n, 1, k, m->bits);
    rg_free(words);
    return words;
}

static bool load_bytes(rows *r, rg_error *err)
{
    const rg_composed *m = r->m;
    const uint8_t flip = m->q.type == RG_I8 ? 128 : 0;
    uint8_t *bytes = read_part(r->c, &m->q, r->first * m->cols, r->n * m->cols, err);

    for (int64_t i = 0; bytes && i < r->n * m->cols; i++)
        r->q[i] = bytes[i] ^ flip;
    rg_free(bytes);
    return bytes;
}

/* Two codes in a byte; all rows together are a stream, since a row of PAIRS is whole bytes. */
static bool load_nibbles(rows *r, rg_error *err)
{
    const rg_composed *m = r->m;
    const int64_t begin = r->first * m->cols, end = begin + r->n * m->cols, base = begin / 2;
    const int first = m->codes == RG_CODES_PAIRS ? 0 : 4; /* bits that the first code of a byte is shifted by */
    uint8_t *bytes = read_part(r->c, &m->q, base, (end + 1) / 2 - base, err);

    for (int64_t i = begin; bytes && i < end; i++)
        r->q[i - begin] = bytes[i / 2 - base] >> (i % 2 ? 4 - first : first) & 15;
    rg_free(bytes);
    return bytes;
}

static bool load_codes(rows *r, rg_error *err)
{
    switch (r->m->codes) {
    case RG_CODES_DOWN: return load_down(r, err);
    case RG_CODES_AWQ: return load_awq(r, err);
    case RG_CODES_WORDS: return load_words(r, err);
    case RG_CODES_BYTES: return load_bytes(r, err);
    default: return load_nibbles(r, err);
    }
}

/* Columns of every row by group. */
static bool sort_codes(rows *r, rg_error *err)
{
    const size_t cols = (size_t)r->m->cols;
    uint8_t *row = rg_alloc(cols);

    for (int64_t i = 0; row && i < r->n; i++) {
        uint8_t *q = r->q + (size_t)i * cols;

        memcpy(row, q, cols);
        for (size_t k = 0; k < cols; k++)
            q[k] = row[r->order[k]];
    }
    rg_free(row);
    return row || rg_fail_memory(err, cols);
}

/* ---- scales and zero points -------------------------------------------------------------------------------------- */

/* Scales that are codes themselves. */
static bool load_nested(rows *r, int64_t n, rg_error *err)
{
    const rg_composed *m = r->m;
    const int64_t base = r->first_scale / m->nested_flat, last = (r->first_scale + n - 1) / m->nested_flat;
    uint8_t *codes = read_part(r->c, &m->scale, r->first_scale, n, err);
    float *most = codes ? read_floats(r->c, &m->nested, base, last - base + 1, err) : NULL;

    r->d = most ? rg_array((size_t)n, sizeof *r->d) : NULL;
    if (most && !r->d)
        rg_fail_memory(err, (size_t)n * sizeof *r->d);
    for (int64_t i = 0; r->d && i < n; i++) {
        float scale = m->nested_map[codes[i]] * most[(r->first_scale + i) / m->nested_flat - base];
        r->d[i] = scale + m->nested_offset;
    }
    rg_free(codes);
    rg_free(most);
    return r->d;
}

static bool load_flat_scales(rows *r, rg_error *err)
{
    const rg_composed *m = r->m;
    const int64_t last = ((r->first + r->n) * m->cols - 1) / m->flat;

    r->first_scale = r->first * m->cols / m->flat;
    if (m->nested.name)
        return load_nested(r, last - r->first_scale + 1, err);
    r->d = read_floats(r->c, &m->scale, r->first_scale, last - r->first_scale + 1, err);
    return r->d;
}

/* One scale per group, in rows or in blocks of rows, or [groups, rows]. */
static bool load_scales(rows *r, rg_error *err)
{
    const rg_composed *m = r->m;
    const int64_t base = r->first / m->block_rows, n = (r->first + r->n - 1) / m->block_rows - base + 1;
    const size_t n_scales = (size_t)r->n * (size_t)m->n_groups; /* at most the values of the rows */
    float *stored;
    uint8_t *raw;

    if (m->type == RG_MXFP4 || m->type == RG_NVFP4_2) {
        r->s = read_part(r->c, &m->scale, r->first * m->n_groups, r->n * m->n_groups, err);
        return r->s;
    }
    if (!m->scale.name)
        return true;
    r->d = rg_alloc_tail(0, n_scales, sizeof *r->d);
    if (!r->d)
        return rg_fail_memory(err, n_scales * sizeof *r->d);
    if (!m->scales_down) {
        stored = read_floats(r->c, &m->scale, base * m->n_groups, n * m->n_groups, err);
        for (int64_t i = 0; stored && i < r->n * m->n_groups; i++)
            r->d[i] = stored[((r->first + i / m->n_groups) / m->block_rows - base) * m->n_groups + i % m->n_groups];
        rg_free(stored);
        return stored;
    }
    raw = read_columns(r->c, &m->scale, m->n_groups, m->rows, r->first, r->n, err);
    for (int64_t i = 0; raw && i < r->n * m->n_groups; i++) {
        const rg_format *f = rg_format_of(m->scale.type);
        f->decode(raw + (i % m->n_groups * r->n + i / m->n_groups) * f->block_bytes, 1, &r->d[i]);
    }
    rg_free(raw);
    return raw;
}

/* Zero point `at` of the rows' [n][n_groups]. */
static int zero_at(const rows *r, const void *raw, int64_t at)
{
    const rg_composed *m = r->m;
    const int64_t row = r->first + at / m->n_groups, g = at % m->n_groups;
    const uint32_t *words = raw;

    switch (m->codes) {
    case RG_CODES_DOWN: return code_at(words + g * (m->rows * m->bits / 32), 1, row, m->bits);
    case RG_CODES_AWQ: return (int)(words[g * (m->rows / 8) + row / 8] >> awq_shift(row) & 15);
    case RG_CODES_WORDS: return code_at(words + g, m->n_groups, row, m->bits);
    default: return ((const int8_t *)raw)[m->block_rows > 1 ? 0 : row * m->n_groups + g];
    }
}

/* All of them are read: they are few. */
static bool load_zeros(rows *r, rg_error *err)
{
    const rg_composed *m = r->m;
    const size_t n_zeros = (size_t)r->n * (size_t)m->n_groups;
    void *raw = read_part(r->c, &m->zero, 0, rg_tensor_count(&m->zero), err);
    bool ok = raw;

    r->z = rg_alloc_tail(0, n_zeros, 1);
    if (raw && !r->z)
        ok = rg_fail_memory(err, n_zeros);
    for (int64_t i = 0; ok && i < r->n * m->n_groups; i++) {
        int z = zero_at(r, raw, i) + m->zero_plus;
        if (z < 0 || z > 255)
            ok = rg_fail(err, RG_E_INPUT, "%s: tensor '%s' has a zero point of %d, which is no byte", r->c->path,
                         m->zero.name, z);
        else
            r->z[i] = (uint8_t)z;
    }
    rg_free(raw);
    return ok;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Where the scale of column k of row i, or of place k where they are sorted, stands in d, s and z. */
static int64_t group_at(const rows *r, int64_t i, int64_t k)
{
    const rg_composed *m = r->m;

    if (m->codes == RG_CODES_FLAT)
        return ((r->first + i) * m->cols + k) / m->flat - r->first_scale;
    return i * m->n_groups + (m->group_of && !r->order ? m->group_of[k] : k / m->group);
}

/* The block of n values from column k of row i on, which have one scale (two in NVFP4_2). */
static void fill_ints(const rows *r, int64_t i, int64_t k, int n, rg_ints *ints)
{
    const rg_composed *m = r->m;
    const int64_t at = group_at(r, i, k);

    memcpy(ints->q, r->q + i * m->cols + k, (size_t)n);
    ints->zero = r->z ? r->z[at] : (uint8_t)m->zero_plus;
    ints->f = r->d ? r->d[at] / m->b : 1.0f;
    ints->a = m->a;
    ints->b = m->b;
    if (r->s)
        for (int half = 0; half < 2 && half * 16 < n; half++)
            ints->scales[half] = r->s[group_at(r, i, k + 16 * half)];
}

/* The blocks of a row; or, where the made tensor is f32, their values. */
static void put_row(const rows *r, const rg_tensor *t, int64_t i, uint8_t *to)
{
    const rg_composed *m = r->m;
    const rg_format *f = rg_format_of(m->type);
    uint8_t block[256];
    float values[256];
    rg_ints ints = { .table = NULL };
    int64_t run;

    for (int64_t k = 0; k < m->cols; k += run) {
        run = f->block_len < m->cols - k ? f->block_len : m->cols - k;
        if (m->group_of && !r->order)
            run = 1;
        while (t->type == RG_F32 && group_at(r, i, k + run - 1) != group_at(r, i, k))
            run--;
        fill_ints(r, i, k, (int)run, &ints);
        rg_ints_put(m->type, &ints, t->type == RG_F32 ? block : to);
        if (t->type == RG_F32) {
            f->decode(block, 1, values);
            memcpy(to, values, (size_t)run * sizeof *values);
            to += (size_t)run * sizeof *values;
        } else {
            to += f->block_bytes;
        }
    }
}

bool rg_composed_rows(const rg_checkpoint *c, const rg_tensor *t, int64_t first, int64_t n, uint8_t *to, rg_error *err)
{
    const rg_composed *m = &c->composed[t->offset];
    rows r = { .c = c, .m = m, .first = first, .n = n, .order = t->order };
    uint64_t row_bytes = t->bytes / (uint64_t)m->rows;
    bool ok;

    if (n == 0)
        return true;
    r.q = rg_array((size_t)n, (size_t)m->cols);
    if (!r.q)
        return rg_fail_memory(err, (size_t)n * (size_t)m->cols);
    ok = load_codes(&r, err) && (!r.order || sort_codes(&r, err)) &&
         (m->codes == RG_CODES_FLAT ? load_flat_scales(&r, err) : load_scales(&r, err)) &&
         (!m->zero.name || load_zeros(&r, err));
    for (int64_t i = 0; ok && i < n; i++)
        put_row(&r, t, i, to + (uint64_t)i * row_bytes);
    rg_free(r.q);
    rg_free(r.d);
    rg_free(r.s);
    rg_free(r.z);
    return ok;
}
