/* packing.c -- see packing.h. */
#include "shrink/packing.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* ---- words of codes ---------------------------------------------------------------------------------------------- */

/* Put code i into a stream of bits in words that are `stride` apart. */
static void put_code(uint32_t *words, int64_t stride, int64_t i, int bits, uint32_t code)
{
    const int64_t bit = i * bits, word = bit / 32;
    const int at = (int)(bit % 32);

    words[word * stride] |= code << at;
    if (at + bits > 32)
        words[(word + 1) * stride] |= code >> (32 - at);
}

static int64_t words_of(int64_t n, int bits)
{
    return (n * bits + 31) / 32;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

typedef struct maker {
    const rg_coded *c;
    rg_code_part *parts;
    int n;
    bool failed;
} maker;

/* A new part; its data, zeroed, or NULL where no codes were given. */
static void *add(maker *m, const char *end, rg_type type, int n_dims, int64_t rows, int64_t cols)
{
    rg_code_part *p = &m->parts[m->n++];

    *p = (rg_code_part){ .end = end, .type = type, .n_dims = n_dims, .shape = { rows, cols } };
    p->bytes = (size_t)(rows * (n_dims > 1 ? cols : 1)) * (size_t)rg_format_of(type)->block_bytes;
    if (!m->c->q)
        return NULL;
    p->data = rg_zalloc(p->bytes);
    m->failed = m->failed || !p->data;
    return p->data;
}

static int64_t scale_rows(const rg_coded *c)
{
    return (c->rows + c->block_rows - 1) / c->block_rows;
}

/* Scales [rows, groups], or turned. */
static void add_scales(maker *m, const char *end, rg_type type, bool turned)
{
    const rg_coded *c = m->c;
    const int64_t rows = scale_rows(c);
    uint8_t *to = turned ? add(m, end, type, 2, c->n_groups, rows) : add(m, end, type, 2, rows, c->n_groups);
    const rg_format *f = rg_format_of(type);

    for (int64_t i = 0; to && i < rows * c->n_groups; i++) {
        int64_t r = i / c->n_groups, g = i % c->n_groups;
        f->encode(&c->scale[i], 1, to + (turned ? g * rows + r : i) * f->block_bytes);
    }
}

/* GPTQ: codes along the columns, zero points (less one in the first version, which symmetric ones are in). */
static void make_gptq(maker *m)
{
    const rg_coded *c = m->c;
    uint32_t *q = add(m, ".qweight", RG_I32, 2, words_of(c->cols, c->bits), c->rows);
    uint32_t *z = add(m, ".qzeros", RG_I32, 2, c->n_groups, words_of(c->rows, c->bits));
    int32_t *order;

    add_scales(m, ".scales", RG_F16, true);
    order = add(m, ".g_idx", RG_I32, 1, c->cols, 1);
    for (int64_t r = 0; q && r < c->rows; r++)
        for (int64_t k = 0; k < c->cols; k++)
            put_code(q + r, c->rows, k, c->bits, c->q[r * c->cols + k]);
    for (int64_t g = 0; z && g < c->n_groups; g++)
        for (int64_t r = 0; r < c->rows; r++)
            put_code(z + g * words_of(c->rows, c->bits), 1, r, c->bits,
                     (uint32_t)c->zero[r * c->n_groups + g] - (uint32_t)c->sym);
    for (int64_t k = 0; order && k < c->cols; k++)
        order[k] = (int32_t)rg_group_of(c, k);
}

/* AWQ: codes of eight rows in a word, in an order of their own. */
static void make_awq(maker *m)
{
    const rg_coded *c = m->c;
    const int64_t n = c->rows / 8;
    uint32_t *q = add(m, ".qweight", RG_I32, 2, c->cols, n), *z = add(m, ".qzeros", RG_I32, 2, c->n_groups, n);

    add_scales(m, ".scales", RG_F16, true);
    for (int64_t r = 0; q && z && r < c->rows; r++) {
        const int shift = (int)(r % 8 / 2 + r % 2 * 4) * 4;
        for (int64_t k = 0; k < c->cols; k++)
            q[k * n + r / 8] |= (uint32_t)c->q[r * c->cols + k] << shift;
        for (int64_t g = 0; g < c->n_groups; g++)
            z[g * n + r / 8] |= (uint32_t)c->zero[r * c->n_groups + g] << shift;
    }
}

static bool is_centred(const rg_coded *c)
{
    const int64_t n = c->rows * c->n_groups;

    for (int64_t i = 0; c->q && i < n; i++)
        if (c->zero[i] != (float)(1 << (c->bits - 1)))
            return false;
    return true;
}

/* compressed-tensors: words along the columns; zero points, where there are any, along the rows. */
static void make_packed(maker *m, bool sym)
{
    const rg_coded *c = m->c;
    const int64_t n = words_of(c->cols, c->bits);
    uint32_t *q = add(m, ".weight_packed", RG_I32, 2, c->rows, n);
    int64_t *shape;

    add_scales(m, ".weight_scale", RG_F16, false);
    shape = add(m, ".weight_shape", RG_I64, 1, 2, 1);
    uint32_t *z = sym ? NULL : add(m, ".weight_zero_point", RG_I32, 2, words_of(c->rows, c->bits), c->n_groups);
    int32_t *order = c->group_of ? add(m, ".weight_g_idx", RG_I32, 1, c->cols, 1) : NULL;
    if (shape) {
        shape[0] = c->rows;
        shape[1] = c->cols;
    }
    for (int64_t r = 0; q && r < c->rows; r++)
        for (int64_t k = 0; k < c->cols; k++)
            put_code(q + r * n, 1, k, c->bits, c->q[r * c->cols + k]);
    for (int64_t i = 0; z && i < c->rows * c->n_groups; i++)
        put_code(z + i % c->n_groups, c->n_groups, i / c->n_groups, c->bits, (uint32_t)c->zero[i]);
    if (order)
        memcpy(order, c->group_of, (size_t)c->cols * sizeof *order);
}

/* Signed bytes: codes of fewer bits are moved to the middle. */
static void make_bytes(maker *m, bool bnb, bool sym)
{
    const rg_coded *c = m->c;
    const int half = 1 << (c->bits - 1);
    int8_t *q = add(m, ".weight", RG_I8, 2, c->rows, c->cols), *z;
    float *scb;

    if (bnb) {
        scb = add(m, ".SCB", RG_F32, 1, c->rows, 1);
        for (int64_t r = 0; scb && r < c->rows; r++)
            scb[r] = c->scale[r];
        add(m, ".weight_format", RG_U8, 1, 1, 1); /* 0: by rows */
    } else {
        add_scales(m, ".weight_scale", RG_F32, false);
        z = sym ? NULL : add(m, ".weight_zero_point", RG_I8, 2, c->rows, c->n_groups);
        for (int64_t i = 0; z && i < c->rows * c->n_groups; i++)
            z[i] = (int8_t)((int)c->zero[i] - half);
    }
    for (int64_t i = 0; q && i < c->rows * c->cols; i++)
        q[i] = (int8_t)((int)c->q[i] - half);
}

static void make_f8(maker *m)
{
    const rg_coded *c = m->c;
    uint8_t *q = add(m, ".weight", RG_F8_E4M3, 2, c->rows, c->cols);

    if (q)
        memcpy(q, c->q, (size_t)(c->rows * c->cols));
    add_scales(m, ".weight_scale", RG_F32, false);
}

/* bitsandbytes: two codes in a byte, the first one high; scales of runs over all of the matrix; JSON as bytes. */
static void make_nf4(maker *m)
{
    const rg_coded *c = m->c;
    const int64_t n = c->rows * c->cols;
    rg_buf json;
    uint8_t *q = add(m, ".weight", RG_U8, 2, n / 2, 1), *state;
    float *scale = add(m, ".weight.absmax", RG_F32, 1, c->rows * c->n_groups, 1);
    float *map = add(m, ".weight.quant_map", RG_F32, 1, 16, 1);

    rg_buf_init(&json, 1 << 12);
    rg_buf_printf(&json,
                  "{\"quant_type\": \"nf4\", \"blocksize\": %lld, \"dtype\": \"float16\", \"shape\": [%lld, %lld]}",
                  (long long)c->group, (long long)c->rows, (long long)c->cols);
    state = add(m, ".weight.quant_state.bitsandbytes__nf4", RG_U8, 1, (int64_t)json.n, 1);
    m->failed = m->failed || json.failed;
    if (state)
        memcpy(state, json.data, json.n);
    for (int64_t i = 0; q && i < n; i++)
        q[i / 2] |= (uint8_t)(c->q[i] << (i % 2 ? 0 : 4));
    if (scale)
        memcpy(scale, c->scale, (size_t)(c->rows * c->n_groups) * sizeof *scale);
    if (map)
        memcpy(map, c->table, 16 * sizeof *map);
    rg_buf_fini(&json);
}

static void make_plain(maker *m)
{
    const rg_coded *c = m->c;
    float *to = add(m, ".weight", RG_F32, 2, c->rows, c->cols);

    for (int64_t r = 0; to && r < c->rows; r++)
        rg_coded_row(c, r, to + r * c->cols);
}

int rg_packing_parts(rg_packing form, const rg_coded *c, rg_code_part parts[RG_MAX_PARTS], rg_error *err)
{
    maker m = { c, parts, 0, false };
    const bool sym = c->sym;

    RG_ASSERT(!c->sym || !c->zero || is_centred(c));
    switch (form) {
    case RG_FORM_GPTQ:
        make_gptq(&m);
        break;
    case RG_FORM_AWQ:
        make_awq(&m);
        break;
    case RG_FORM_PACKED:
        make_packed(&m, sym);
        break;
    case RG_FORM_BYTES:
        make_bytes(&m, false, sym);
        break;
    case RG_FORM_BNB_8:
        make_bytes(&m, true, sym);
        break;
    case RG_FORM_F8:
        make_f8(&m);
        break;
    case RG_FORM_NF4:
        make_nf4(&m);
        break;
    case RG_FORM_PLAIN:
        make_plain(&m);
        break;
    }
    if (!m.failed)
        return m.n;
    for (int i = 0; i < m.n; i++)
        rg_free(parts[i].data);
    rg_fail_memory(err, (size_t)(c->rows * c->cols));
    return -1;
}

const char *rg_packing_refuses(rg_packing form, const rg_coding *c, int64_t rows, int64_t cols)
{
    const int64_t group = c->group && c->group < cols ? c->group : cols;

    switch (form) {
    case RG_FORM_GPTQ:
        return rows * c->bits % 32 || cols * c->bits % 32 ? "its codes do not fill words of 32 bits" : NULL;
    case RG_FORM_AWQ:
        return rows % 8 ? "its rows are no multiple of 8" : NULL;
    case RG_FORM_NF4:
        return cols % group || cols % 2 ? "runs under a scale do not divide its rows" : NULL;
    default:
        return NULL;
    }
}

/* ---- quantization_config ----------------------------------------------------------------------------------------- */

#define Q     "quantization_config."
#define GROUP Q "config_groups.group_0."

typedef struct config_writer {
    rg_ckpt_writer *w;
    rg_error *err;
    bool ok;
} config_writer;

static void put_int(config_writer *c, const char *key, int64_t v)
{
    c->ok = c->ok && rg_ckpt_put_int(c->w, key, 11, v, c->err);
}

static void put_bool(config_writer *c, const char *key, bool v)
{
    c->ok = c->ok && rg_ckpt_put_bool(c->w, key, v, c->err);
}

static void put_text(config_writer *c, const char *key, const char *v)
{
    c->ok = c->ok && rg_ckpt_put_string(c->w, key, v, strlen(v), c->err);
}

static void put_gptq_config(config_writer *c, const rg_shrink_options *o)
{
    put_text(c, Q "quant_method", "gptq");
    put_int(c, Q "bits", o->coding.bits);
    put_int(c, Q "group_size", o->coding.group ? o->coding.group : -1);
    put_bool(c, Q "desc_act", o->act_order);
    put_bool(c, Q "static_groups", o->static_groups);
    put_bool(c, Q "sym", o->coding.sym);
    put_bool(c, Q "true_sequential", false);
    c->ok = c->ok && rg_ckpt_put_float(c->w, Q "damp_percent", 0.01, c->err);
    /* The second version can store a zero point of 0. */
    put_text(c, Q "checkpoint_format", o->coding.sym ? "gptq" : "gptq_v2");
}

static void put_awq_config(config_writer *c, const rg_shrink_options *o)
{
    put_text(c, Q "quant_method", "awq");
    put_int(c, Q "bits", o->coding.bits);
    put_int(c, Q "group_size", o->coding.group ? o->coding.group : -1);
    put_bool(c, Q "zero_point", true);
    put_text(c, Q "version", "gemm");
}

static void put_bnb_config(config_writer *c, bool nf4)
{
    put_text(c, Q "quant_method", "bitsandbytes");
    put_bool(c, Q "load_in_8bit", !nf4);
    put_bool(c, Q "load_in_4bit", nf4);
    put_text(c, Q "bnb_4bit_quant_type", nf4 ? "nf4" : "fp4");
    put_text(c, Q "bnb_4bit_compute_dtype", "float16");
    put_text(c, Q "bnb_4bit_quant_storage", "uint8");
    put_bool(c, Q "bnb_4bit_use_double_quant", false);
    c->ok = c->ok && rg_ckpt_put_float(c->w, Q "llm_int8_threshold", 6.0, c->err);
}

/* What a row of numbers is like: bits, type, and which of them share a scale. */
static void put_numbers(config_writer *c, const char *what, int bits, bool is_float, bool sym, const char *strategy)
{
    char key[96];

#define KEY(name) (snprintf(key, sizeof key, GROUP "%s." name, what), key)
    put_int(c, KEY("num_bits"), bits);
    put_text(c, KEY("type"), is_float ? "float" : "int");
    put_bool(c, KEY("symmetric"), sym);
    put_text(c, KEY("strategy"), strategy);
    put_bool(c, KEY("dynamic"), !strcmp(what, "input_activations"));
#undef KEY
}

static void put_compressed_config(config_writer *c, const rg_shrink_options *o, const rg_string *kept, size_t n_kept)
{
    static const rg_string linear = { "Linear", 6 };
    const char *format = o->form == RG_FORM_PACKED ? "pack-quantized"
                         : o->form == RG_FORM_F8   ? "float-quantized"
                                                   : "int-quantized";
    const bool is_f8 = o->form == RG_FORM_F8;

    put_text(c, Q "quant_method", "compressed-tensors");
    put_text(c, Q "format", format);
    put_text(c, Q "quantization_status", "compressed");
    c->ok = c->ok && rg_ckpt_put_strings(c->w, Q "ignore", kept, n_kept, c->err) &&
            rg_ckpt_put_strings(c->w, GROUP "targets", &linear, 1, c->err);
    put_text(c, GROUP "format", format);
    put_numbers(c, "weights", o->form == RG_FORM_PACKED ? o->coding.bits : 8, is_f8, o->coding.sym,
                o->coding.group ? "group" : "channel");
    if (o->coding.group)
        put_int(c, GROUP "weights.group_size", o->coding.group);
    if (o->input_bits)
        put_numbers(c, "input_activations", o->input_bits, is_f8, true, "token");
}

bool rg_packing_config(const rg_shrink_options *o, rg_ckpt_writer *w, const rg_string *kept, size_t n_kept,
                       rg_error *err)
{
    config_writer c = { w, err, true };

    switch (o->form) {
    case RG_FORM_GPTQ:
        put_gptq_config(&c, o);
        break;
    case RG_FORM_AWQ:
        put_awq_config(&c, o);
        break;
    case RG_FORM_BNB_8:
        put_bnb_config(&c, false);
        break;
    case RG_FORM_NF4:
        put_bnb_config(&c, true);
        break;
    case RG_FORM_PLAIN:
        break;
    default:
        put_compressed_config(&c, o, kept, n_kept);
        break;
    }
    return c.ok;
}

/* ---- blocks of GGUF ---------------------------------------------------------------------------------------------- */

bool rg_packing_gguf(const rg_coding *c, rg_type *type)
{
    const bool sym = c->kind == RG_CODE_INT && c->sym, minimum = c->kind == RG_CODE_MINIMUM;

    if ((!sym && !minimum) || c->scale_type != RG_F16 || c->group % 32)
        return false;
    *type = c->bits == 4 ? (sym ? RG_Q4_0 : RG_Q4_1) : c->bits == 5 ? (sym ? RG_Q5_0 : RG_Q5_1) : RG_Q8_0;
    return c->bits == 4 || c->bits == 5 || (c->bits == 8 && sym);
}

/* 32 codes as nibbles and, of five bits, the fifths in front of them. */
static uint8_t *put_nibbles(const uint8_t *q, bool five, uint8_t *to)
{
    if (five) {
        uint32_t high = 0;
        for (int i = 0; i < 32; i++)
            high |= (uint32_t)(q[i] >> 4) << i;
        for (int i = 0; i < 4; i++)
            *to++ = (uint8_t)(high >> 8 * i);
    }
    for (int i = 0; i < 16; i++)
        *to++ = (uint8_t)((q[i] & 15) | (q[i + 16] & 15) << 4);
    return to;
}

static uint8_t *put_half(float x, uint8_t *to)
{
    const uint16_t h = rg_f32_to_f16(x);

    *to++ = (uint8_t)h;
    *to++ = (uint8_t)(h >> 8);
    return to;
}

void rg_packing_blocks(const rg_coded *c, rg_type type, int64_t r, uint8_t *to)
{
    const uint8_t *q = c->q + r * c->cols;

    for (int64_t k = 0; k < c->cols; k += 32) {
        const int64_t at = r * c->n_groups + rg_group_of(c, k);
        to = put_half(c->scale[at], to);
        if (type == RG_Q4_1 || type == RG_Q5_1)
            to = put_half(c->zero[at], to);
        if (type != RG_Q8_0)
            to = put_nibbles(q + k, type == RG_Q5_0 || type == RG_Q5_1, to);
        for (int i = 0; type == RG_Q8_0 && i < 32; i++)
            *to++ = (uint8_t)(q[k + i] - 128);
    }
}
