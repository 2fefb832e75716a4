/* composed.c -- see composed.h: which tensors of a folder belong together, and what is made of them.
 *
 * Forms are told by the tensors' names and types; config.json adds what they do not show: whether GPTQ's zero points
 * are stored less one, and how many columns or rows share a scale where the number of scales leaves that open. */
#include "ckpt/composed.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/json.h"

enum { FLAT_STATE_CAP = 1 << 16 }; /* bytes of the JSON beside codes of bitsandbytes */

typedef struct finder {
    rg_checkpoint *c;
    const rg_tensor *raw; /* the tensors as they are stored, n of them */
    int n;
    bool *taken;  /* of raw: a part of a made tensor, or not needed */
    int *composed_at; /* of raw: the number of the made tensor that takes its place; -1 */
    int n_composed, composed_room;
    rg_composed_config config;
} finder;

/* A made tensor on its way: the part that has the codes, and the name that all parts begin with. */
typedef struct form {
    finder *f;
    const rg_tensor *codes;
    size_t n_base;
    rg_composed m;
    rg_error *err;
} form;

/* ---- parts ------------------------------------------------------------------------------------------------------- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);

    return n > n_end && !strcmp(name + n - n_end, end);
}

static const rg_tensor *beside(const form *o, const char *end)
{
    char name[RG_NAME_CAP + 64];

    rg_put_text(name, o->codes->name, o->n_base);
    rg_put_text(name + o->n_base, end, strlen(end));
    return rg_checkpoint_tensor(o->f->c, rg_dict_get(o->f->c->names, name, strlen(name)));
}

static bool wrong(const form *o, const rg_tensor *t, const char *want)
{
    char shape[96], name[80];

    return rg_fail(o->err, RG_E_INPUT, "%s: tensor '%s' is %s of %s, want %s", o->f->c->path,
                   rg_name_text(t->name, strlen(t->name), name), rg_shape_text(t->shape, t->n_dims, shape),
                   rg_format_of(t->type)->name, want);
}

static bool is_real(const rg_tensor *t)
{
    return t->type == RG_F32 || t->type == RG_F16 || t->type == RG_BF16;
}

/* A part that the made tensor has taken. */
static void take(form *o, const rg_tensor *t)
{
    o->f->taken[t - o->f->raw] = true;
}

/* The part of that name into *out, or *out stays empty; false: it must be there and is not. */
static bool part(form *o, const char *end, bool required, rg_tensor *out)
{
    const rg_tensor *t = beside(o, end);
    char name[80];

    if (!t)
        return !required || rg_fail(o->err, RG_E_INPUT, "%s: tensor '%s' has no '%s' beside it", o->f->c->path,
                                    rg_name_text(o->codes->name, strlen(o->codes->name), name), end);
    *out = *t;
    take(o, t);
    return true;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static int64_t ceil_div(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Columns under each of n_groups scales of a row. */
static bool set_group(form *o, const rg_tensor *scales, int64_t n_groups)
{
    rg_composed *m = &o->m;
    const int64_t said = o->f->config.group;

    m->n_groups = n_groups;
    if (n_groups == 1)
        m->group = m->cols;
    else if (said > 0 && ceil_div(m->cols, said) == n_groups)
        m->group = said;
    else if (n_groups > 0 && m->cols % n_groups == 0)
        m->group = m->cols / n_groups;
    else
        return wrong(o, scales, "a scale for each group of columns");
    return true;
}

/* Columns by group, each group's rising, if every group has as many as the others. */
static bool sort_columns(form *o)
{
    rg_composed *m = &o->m;
    int64_t *filled = rg_array((size_t)m->n_groups, sizeof *filled);
    int32_t *order = rg_arena_get(&o->f->c->arena, (size_t)m->cols * sizeof *order, o->err);
    bool alike = m->n_groups * m->group == m->cols;

    if (!filled || !order) {
        rg_free(filled);
        return order ? rg_fail_memory(o->err, (size_t)m->n_groups * sizeof *filled) : false;
    }
    for (int64_t k = 0; alike && k < m->cols; k++) {
        const int32_t g = m->group_of[k];

        alike = filled[g] < m->group;
        if (alike)
            order[g * m->group + filled[g]++] = (int32_t)k;
    }
    m->order = alike ? order : NULL;
    rg_free(filled);
    return true;
}

/* The group of each column from g_idx; NULL stays where they are simply in order. */
static bool read_order(form *o, const rg_tensor *t)
{
    rg_composed *m = &o->m;
    rg_arena *a = &o->f->c->arena;
    int32_t *group_of;
    bool in_order = true;
    char name[80];

    take(o, t);
    if (t->type != RG_I32 || t->n_dims != 1 || t->shape[0] != m->cols)
        return wrong(o, t, "an integer for each column");
    group_of = rg_arena_get(a, (size_t)m->cols * sizeof *group_of, o->err);
    if (!group_of || !rg_tensor_read(o->f->c, t, 0, group_of, (size_t)m->cols * sizeof *group_of, o->err))
        return false;
    for (int64_t k = 0; k < m->cols; k++) {
        if (group_of[k] < 0 || group_of[k] >= m->n_groups)
            return rg_fail(o->err, RG_E_INPUT, "%s: tensor '%s' puts column %lld into group %d of %lld", o->f->c->path,
                           rg_name_text(t->name, strlen(t->name), name), (long long)k, group_of[k],
                           (long long)m->n_groups);
        in_order = in_order && group_of[k] == k / m->group;
    }
    m->group_of = in_order ? NULL : group_of;
    return in_order || sort_columns(o);
}

/* True if no block of n columns, sorted by group, has columns of two groups. */
static bool fits(const rg_composed *m, int64_t n)
{
    return (!m->group_of || m->order) && m->cols % n == 0 && (m->group % n == 0 || m->group >= m->cols);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static bool add_composed(form *o)
{
    finder *f = o->f;
    rg_composed *m = &o->m;
    const int at = (int)(o->codes - f->raw);

    m->q = *o->codes;
    if (m->rows < 1 || m->cols < 1)
        return wrong(o, o->codes, "a matrix");
    if (f->n_composed == f->composed_room) {
        const int room = f->composed_room ? 2 * f->composed_room : 64;
        rg_composed *more = rg_resize_array(f->c->composed, (size_t)room, sizeof *more);
        if (!more)
            return rg_fail_memory(o->err, (size_t)room * sizeof *more);
        f->c->composed = more;
        f->composed_room = room;
    }
    take(o, o->codes);
    f->composed_at[at] = f->n_composed;
    f->c->composed[f->n_composed++] = *m;
    return true;
}

/* The tensor that the n-th made one is seen as. */
static bool result(finder *f, int at, rg_tensor *t, rg_error *err)
{
    const rg_composed *m = &f->c->composed[f->composed_at[at]];
    const char *name = f->raw[at].name;
    const bool bare = ends_with(name, "_blocks");
    const size_t n = bare ? strlen(name) - strlen("_blocks") : (size_t)(strrchr(name, '.') - name);
    const int64_t mats = bare ? f->raw[at].shape[0] : 0;
    char text[RG_NAME_CAP + 64];
    uint64_t row;

    rg_put_text(text, name, n);
    if (!bare)
        rg_put_text(text + n, ".weight", strlen(".weight"));
    *t = (rg_tensor){ .type = m->type, .n_dims = mats ? 3 : 2, .shape = { mats ? mats : m->rows, m->cols, 1, 1 },
                      .offset = (uint64_t)f->composed_at[at], .file = RG_FILE_COMPOSED };
    if (mats) {
        t->shape[1] = m->rows / mats;
        t->shape[2] = m->cols;
    }
    if (m->type == RG_NVFP4_2 ? m->cols % 32 : !fits(m, rg_format_of(m->type)->block_len))
        t->type = RG_F32;
    t->order = t->type == RG_F32 ? NULL : m->order;
    t->name = rg_arena_text(&f->c->arena, text, strlen(text), err);
    if (!t->name)
        return false;
    return (rg_row_bytes(t->type, m->cols, &row) && rg_mul(row, (uint64_t)m->rows, &t->bytes)) ||
           rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is too large", f->c->path, t->name);
}

/* ---- forms of integers ------------------------------------------------------------------------------------------- */

/* The format for integers of m's bits, groups and order; f32 takes the place of the narrow one in result(). */
static void set_int_type(rg_composed *m)
{
    const bool small = m->bits <= 4;

    if (fits(m, 128))
        m->type = small ? RG_ZP4_128 : RG_ZP8_128;
    else
        m->type = small ? RG_ZP4 : RG_ZP8;
}

static bool check_bits(form *o)
{
    const int b = o->m.bits;

    return b == 2 || b == 3 || b == 4 || b == 8 || wrong(o, o->codes, "codes of 2, 3, 4 or 8 bits");
}

/* GPTQ and AWQ: scales [groups, rows], zero points [groups, rows' bits / 32]. */
static bool find_down(form *o)
{
    const rg_tensor *order = beside(o, ".g_idx");
    rg_composed *m = &o->m;
    int64_t n_bits;

    if (!part(o, ".scales", true, &m->scale) || !part(o, ".qzeros", true, &m->zero))
        return false;
    if (o->codes->n_dims != 2 || m->scale.n_dims != 2 || !is_real(&m->scale) || m->scale.shape[1] < 1)
        return wrong(o, &m->scale, "real scales [groups, rows]");
    m->scales_down = true;
    m->rows = m->scale.shape[1];
    if (m->zero.n_dims != 2 || m->zero.type != RG_I32 || m->zero.shape[0] != m->scale.shape[0] ||
        m->zero.shape[1] * 32 % m->rows)
        return wrong(o, &m->zero, "words [groups, rows' bits / 32]");
    m->bits = (int)(m->zero.shape[1] * 32 / m->rows);
    if (!check_bits(o))
        return false;
    if (o->codes->shape[1] == m->rows) {
        m->codes = RG_CODES_DOWN;
        m->zero_plus = o->f->config.gptq_plus;
        n_bits = o->codes->shape[0] * 32; /* shapes multiply to at most 2^60 */
        if (n_bits % m->bits)
            return wrong(o, o->codes, "words [columns' bits / 32, rows]");
        m->cols = n_bits / m->bits;
    } else if (o->codes->shape[1] * 8 == m->rows && m->bits == 4) {
        m->codes = RG_CODES_AWQ;
        m->cols = o->codes->shape[0];
    } else {
        return wrong(o, o->codes, "words [columns' bits / 32, rows] or [columns, rows / 8]");
    }
    if (!set_group(o, &m->scale, m->scale.shape[0]) || (order && !read_order(o, order)))
        return false;
    set_int_type(m);
    return add_composed(o);
}

/* Scales [rows, groups], [rows] or one. */
static bool set_row_scales(form *o, const rg_tensor *t)
{
    rg_composed *m = &o->m;
    const int64_t n = rg_tensor_count(t);

    if (!is_real(t))
        return wrong(o, t, "real scales");
    if (n == 1) {
        m->block_rows = m->rows;
        return set_group(o, t, 1);
    }
    if (t->n_dims < 1 || t->n_dims > 2 || t->shape[0] != m->rows)
        return wrong(o, t, "scales for each row, or one");
    return set_group(o, t, t->n_dims == 2 ? t->shape[1] : 1);
}

/* compressed-tensors: words along the columns, both codes and zero points more by half of their range. */
static bool find_packed(form *o)
{
    const rg_tensor *order = beside(o, ".weight_g_idx");
    rg_tensor shape = { .name = NULL };
    rg_composed *m = &o->m;
    int64_t dims[2];

    if (!part(o, ".weight_scale", true, &m->scale) || !part(o, ".weight_shape", true, &shape) ||
        !part(o, ".weight_zero_point", false, &m->zero))
        return false;
    if (shape.type != RG_I64 || rg_tensor_count(&shape) != 2)
        return wrong(o, &shape, "two integers");
    if (!rg_tensor_read(o->f->c, &shape, 0, dims, sizeof dims, o->err))
        return false;
    if (o->codes->n_dims != 2 || o->codes->shape[0] != dims[0] || dims[1] < 1 || dims[1] > INT32_MAX)
        return wrong(o, o->codes, "words [rows, columns' bits / 32]");
    m->codes = RG_CODES_WORDS;
    m->rows = dims[0];
    m->cols = dims[1];
    for (m->bits = 8; m->bits > 1 && ceil_div(m->cols * m->bits, 32) != o->codes->shape[1];)
        m->bits--;
    m->zero_plus = m->zero.name ? 0 : 1 << (m->bits - 1);
    if (!check_bits(o) || !set_row_scales(o, &m->scale))
        return false;
    if (m->zero.name && (m->zero.type != RG_I32 || m->zero.n_dims != 2 || m->zero.shape[1] != m->n_groups ||
                         m->zero.shape[0] != ceil_div(m->rows * m->bits, 32)))
        return wrong(o, &m->zero, "words [rows' bits / 32, groups]");
    if (order && !read_order(o, order))
        return false;
    set_int_type(m);
    return add_composed(o);
}

/* Bytes as they are: compressed-tensors, and bitsandbytes' int8, whose scales are 127 times as large. */
static bool find_int8(form *o)
{
    rg_composed *m = &o->m;
    bool scb = beside(o, ".SCB") != NULL;

    if (!part(o, scb ? ".SCB" : ".weight_scale", true, &m->scale) ||
        !part(o, ".weight_zero_point", false, &m->zero))
        return false;
    if (o->codes->n_dims != 2)
        return wrong(o, o->codes, "a matrix");
    m->codes = RG_CODES_BYTES;
    m->bits = 8;
    m->rows = o->codes->shape[0];
    m->cols = o->codes->shape[1];
    m->b = scb ? 127.0f : 1.0f;
    m->zero_plus = 128;
    if (!set_row_scales(o, &m->scale))
        return false;
    if (m->zero.name && (m->zero.type != RG_I8 || rg_tensor_count(&m->zero) != rg_tensor_count(&m->scale)))
        return wrong(o, &m->zero, "a byte for each scale");
    set_int_type(m);
    return add_composed(o);
}

/* ---- forms of floats --------------------------------------------------------------------------------------------- */

/* One scale, one for each row, or one for each block of rows and columns. */
static bool find_fp8(form *o)
{
    const bool inverse = beside(o, ".weight_scale_inv") != NULL;
    const finder *f = o->f;
    rg_composed *m = &o->m;
    const rg_tensor *s = &m->scale;

    if (!part(o, inverse ? ".weight_scale_inv" : ".weight_scale", false, &m->scale))
        return false;
    if (o->codes->n_dims != 2)
        return wrong(o, o->codes, "a matrix");
    m->codes = RG_CODES_BYTES;
    m->type = RG_FP8;
    m->rows = o->codes->shape[0];
    m->cols = o->codes->shape[1];
    if (!s->name)
        m->group = m->cols;
    else if (!is_real(s))
        return wrong(o, s, "real scales");
    else if (rg_tensor_count(s) != 1 && (rg_tensor_count(s) != m->rows || s->shape[0] != m->rows)) {
        m->block_rows = f->config.block_rows > 0 ? f->config.block_rows : 128;
        m->group = f->config.block_cols > 0 ? f->config.block_cols : 128;
        m->n_groups = ceil_div(m->cols, m->group);
        if (s->n_dims != 2 || s->shape[0] != ceil_div(m->rows, m->block_rows) || s->shape[1] != m->n_groups)
            return wrong(o, s, "a scale for each block of rows and columns");
    } else if (!set_row_scales(o, s)) {
        return false;
    }
    return add_composed(o);
}

/* One real number. */
static bool read_one(form *o, const char *end, float *out)
{
    rg_tensor t = { .name = NULL };
    uint8_t raw[8];

    if (!part(o, end, true, &t))
        return false;
    if (!is_real(&t) || rg_tensor_count(&t) != 1)
        return wrong(o, &t, "one real number");
    if (!rg_tensor_read(o->f->c, &t, 0, raw, t.bytes, o->err))
        return false;
    rg_format_of(t.type)->decode(raw, 1, out);
    return true;
}

/* Pairs of e2m1, and a scale of 8 bits for each run of them. */
static bool find_pairs(form *o, rg_type type, int64_t run, rg_type scale_type)
{
    rg_composed *m = &o->m;

    if (!part(o, ".weight_scale", true, &m->scale))
        return false;
    if (o->codes->n_dims != 2 || o->codes->shape[1] % (run / 2))
        return wrong(o, o->codes, "bytes [rows, columns / 2]");
    m->codes = RG_CODES_PAIRS;
    m->type = type;
    m->rows = o->codes->shape[0];
    m->cols = o->codes->shape[1] * 2;
    m->group = run;
    m->n_groups = m->cols / run;
    if (m->scale.n_dims != 2 || m->scale.shape[0] != m->rows || m->scale.shape[1] != m->n_groups ||
        (m->scale.type != scale_type && !(type == RG_MXFP4 && m->scale.type == RG_F8_E8M0)))
        return wrong(o, &m->scale, "a scale of 8 bits for each run of columns");
    return add_composed(o);
}

static bool find_mxfp4(form *o)
{
    return find_pairs(o, RG_MXFP4, 32, RG_U8);
}

/* compressed-tensors divides by the tensor's scale. */
static bool find_nvfp4_divided(form *o)
{
    o->m.a = 0.5f;
    return read_one(o, ".weight_global_scale", &o->m.b) && find_pairs(o, RG_NVFP4_2, 16, RG_F8_E4M3);
}

/* ModelOpt multiplies by it. */
static bool find_nvfp4_multiplied(form *o)
{
    if (!read_one(o, ".weight_scale_2", &o->m.a))
        return false;
    o->m.a *= 0.5f;
    return find_pairs(o, RG_NVFP4_2, 16, RG_F8_E4M3);
}

/* gpt-oss: bytes [matrices, rows, runs, 16], scales [matrices, rows, runs]. */
static bool find_blocks(form *o)
{
    const rg_tensor *q = o->codes;
    rg_composed *m = &o->m;

    if (!part(o, "_scales", true, &m->scale))
        return false;
    if (q->n_dims != 4 || q->shape[3] != 16 || m->scale.n_dims != 3 || m->scale.type != RG_U8 ||
        memcmp(q->shape, m->scale.shape, 3 * sizeof *q->shape))
        return wrong(o, &m->scale, "a byte for each 16 bytes of codes");
    m->codes = RG_CODES_PAIRS;
    m->type = RG_MXFP4;
    m->rows = q->shape[0] * q->shape[1];
    m->cols = q->shape[2] * 32;
    m->group = 32;
    m->n_groups = q->shape[2];
    return add_composed(o);
}

/* ---- bitsandbytes' 4 bits ---------------------------------------------------------------------------------------- */

/* What the JSON beside the codes says. */
static bool read_state(form *o, const rg_tensor *t, json_t **state)
{
    char *text = NULL;
    bool ok = t->bytes <= FLAT_STATE_CAP || wrong(o, t, "a short JSON text");

    if (ok && !(text = rg_alloc_tail(1, (size_t)t->bytes, 1)))
        ok = rg_fail_memory(o->err, (size_t)t->bytes);
    ok = ok && rg_tensor_read(o->f->c, t, 0, text, (size_t)t->bytes, o->err);
    *state = ok ? rg_json_parse(t->name, text, (size_t)t->bytes, o->err) : NULL;
    rg_free(text);
    return *state;
}

static int64_t state_int(const json_t *state, const char *key)
{
    const json_t *v = json_object_get(state, key);

    return json_is_integer(v) ? json_integer_value(v) : 0;
}

/* A table of n real numbers, kept as long as the checkpoint. */
static const float *read_table(form *o, const char *end, size_t n)
{
    rg_tensor t = { .name = NULL };
    float *to;

    if (!part(o, end, true, &t))
        return NULL;
    if (t.type != RG_F32 || rg_tensor_count(&t) != (int64_t)n)
        return wrong(o, &t, "a table of f32 values"), NULL;
    to = rg_arena_get(&o->f->c->arena, n * sizeof *to, o->err);
    return to && rg_tensor_read(o->f->c, &t, 0, to, n * sizeof *to, o->err) ? to : NULL;
}

static bool read_shape(form *o, const rg_tensor *t, const json_t *state)
{
    const json_t *shape = json_object_get(state, "shape");
    rg_composed *m = &o->m;
    uint64_t n;

    m->rows = json_integer_value(json_array_get(shape, 0));
    m->cols = json_integer_value(json_array_get(shape, 1));
    m->flat = state_int(state, "blocksize");
    if (json_array_size(shape) != 2 || m->rows < 1 || m->cols < 1 || m->flat < 2 || m->flat % 2 || m->flat > 1 << 16 ||
        !rg_mul((uint64_t)m->rows, (uint64_t)m->cols, &n) || (n + 1) / 2 != (uint64_t)rg_tensor_count(o->codes) ||
        (n - 1) / (uint64_t)m->flat + 1 != (uint64_t)rg_tensor_count(&m->scale))
        return wrong(o, t, "JSON with a 'shape' and a 'blocksize' that fit the codes and their scales");
    m->group = m->flat % 32 == 0 && m->cols % 32 == 0 ? 32 : 1; /* whether rows are whole runs under one scale */
    return true;
}

/* Scales that are codes of a table, under scales of their own. */
static bool read_nested(form *o, const rg_tensor *t, const json_t *state)
{
    rg_composed *m = &o->m;
    const int64_t n = rg_tensor_count(&m->scale);

    if (m->scale.type == RG_F32)
        return true;
    m->nested_map = read_table(o, ".weight.nested_quant_map", 256);
    if (!m->nested_map || !part(o, ".weight.nested_absmax", true, &m->nested))
        return false;
    m->nested_flat = state_int(state, "nested_blocksize");
    m->nested_offset = (float)json_number_value(json_object_get(state, "nested_offset"));
    if (m->scale.type != RG_U8 || m->nested.type != RG_F32 || m->nested_flat < 1 || m->nested_flat > 1 << 16 ||
        (n - 1) / m->nested_flat + 1 != rg_tensor_count(&m->nested))
        return wrong(o, t, "JSON with a 'nested_blocksize' that fits the scales and theirs");
    return true;
}

static bool find_flat(form *o)
{
    const bool normal = beside(o, ".weight.quant_state.bitsandbytes__nf4") != NULL;
    const uint8_t zeros[64] = { 0 };
    rg_composed *m = &o->m;
    rg_tensor state = { .name = NULL };
    json_t *json = NULL;
    const float *table;
    rg_ints ints;
    bool ok;

    m->codes = RG_CODES_FLAT;
    m->type = normal ? RG_NF4 : RG_FP4;
    if (!part(o, ".weight.absmax", true, &m->scale) || !(table = read_table(o, ".weight.quant_map", 16)) ||
        !part(o, normal ? ".weight.quant_state.bitsandbytes__nf4" : ".weight.quant_state.bitsandbytes__fp4", true,
              &state))
        return false;
    rg_format_of(m->type)->ints(zeros, &ints);
    for (int i = 0; i < 16; i++)
        if (table[i] != ints.table[i])
            return wrong(o, &state, "a quant_map that is the usual one of its type");
    ok = read_state(o, &state, &json) && read_shape(o, &state, json) && read_nested(o, &state, json);
    json_decref(json);
    return ok && add_composed(o);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Forms are told by the end of the codes' name, their type, and a part beside them.  Where only_if is NULL the codes
 * are of that form, or of none that is known. */
static const struct {
    const char *end;
    rg_type type;
    const char *only_if;
    bool (*find)(form *o);
} forms[] = {
    { ".qweight", RG_I32, NULL, find_down },
    { ".weight_packed", RG_I32, NULL, find_packed },
    { ".weight_packed", RG_U8, ".weight_global_scale", find_nvfp4_divided },
    { ".weight_packed", RG_U8, NULL, find_mxfp4 },
    { "_blocks", RG_U8, NULL, find_blocks },
    { ".weight", RG_U8, ".weight_scale_2", find_nvfp4_multiplied },
    { ".weight", RG_U8, ".weight.absmax", find_flat },
    { ".weight", RG_I8, ".SCB", find_int8 },
    { ".weight", RG_I8, ".weight_scale", find_int8 },
    { ".weight", RG_F8_E4M3, NULL, find_fp8 },
};

/* Scales of activations, which are not rounded as the file's producer did it; and what says nothing more. */
static bool is_needless(const char *name)
{
    static const char *const ends[] = { ".input_scale", ".input_global_scale", ".input_zero_point", ".output_scale",
                                        ".k_scale",     ".v_scale",            ".q_scale",          ".prob_scale",
                                        ".weight_format" };

    for (size_t i = 0; i < RG_LEN(ends); i++)
        if (ends_with(name, ends[i]))
            return true;
    return false;
}

static bool find_one(finder *f, int i, rg_error *err)
{
    const rg_tensor *t = &f->raw[i];

    for (size_t k = 0; k < RG_LEN(forms); k++) {
        form o = { .f = f, .codes = t, .m = { .b = 1.0f, .block_rows = 1 }, .err = err };
        if (t->type != forms[k].type || !ends_with(t->name, forms[k].end))
            continue;
        o.n_base = strlen(t->name) - strlen(forms[k].end);
        if (!forms[k].only_if || beside(&o, forms[k].only_if))
            return forms[k].find(&o);
    }
    return true;
}

/* The list of tensors anew: made ones in the place of their codes, without what was taken. */
static bool replace(finder *f, rg_error *err)
{
    rg_checkpoint *c = f->c;
    bool ok = true;

    c->tensors = NULL;
    c->n_tensors = c->tensors_room = 0;
    rg_dict_free(c->names);
    c->names = rg_dict_new((size_t)f->n);
    if (!c->names)
        return rg_fail_memory(err, (size_t)f->n);
    for (int i = 0; ok && i < f->n; i++) {
        rg_tensor t = f->raw[i];
        if (f->composed_at[i] >= 0)
            ok = result(f, i, &t, err);
        else if (f->taken[i])
            continue;
        ok = ok && rg_ckpt_add_tensor(c, &t, err);
    }
    return ok;
}

const char *rg_composed_note(const rg_composed *m, const rg_tensor *t)
{
    if (t->order)
        return "columns sorted by group";
    if (t->type != RG_F32)
        return NULL;
    return m->group_of && !m->order ? "f32: its groups are of unequal numbers of columns"
                                    : "f32: its columns or their groups are no whole blocks";
}

bool rg_composed_find(rg_checkpoint *c, rg_error *err)
{
    const int n = c->n_tensors;
    rg_tensor *raw = c->tensors;
    finder f = { .c = c, .raw = raw, .n = n };
    bool ok = n == 0 || rg_composed_config_read(&f.config, c, err), changed = false;

    if (!ok || n == 0)
        return ok;
    f.taken = rg_array((size_t)n, sizeof *f.taken);
    f.composed_at = rg_array((size_t)n, sizeof *f.composed_at);
    if (!f.taken || !f.composed_at)
        ok = rg_fail_memory(err, (size_t)n * sizeof *f.composed_at);
    for (int i = 0; ok && i < n; i++)
        f.composed_at[i] = -1;
    for (int i = 0; ok && i < n; i++) {
        ok = find_one(&f, i, err);
        f.taken[i] = f.taken[i] || is_needless(raw[i].name);
    }
    for (int i = 0; ok && i < n; i++)
        changed = changed || f.taken[i];
    if (ok && changed) {
        ok = replace(&f, err);
        rg_free(raw);
    }
    rg_free(f.taken);
    rg_free(f.composed_at);
    return ok;
}
