/* weight_source.c -- see weight_source.h. */
#include "model/weight_source.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/expert_names.h"

int rg_spec_dims(const rg_weight_spec *spec)
{
    int n = 0;

    while (n < 3 && spec->shape[n])
        n++;
    return n;
}

bool rg_spec_is_vector(const rg_weight_spec *spec)
{
    return spec->table || rg_spec_dims(spec) == 1;
}

rg_weight_source rg_weight_source_of(const rg_weight_spec *spec, const rg_config *c, const rg_checkpoint *ckpt,
                                     int layer)
{
    rg_weight_source s = { spec, c, ckpt, layer, .name = c->from_gguf ? spec->gguf : spec->hf };

    int n = rg_spec_dims(spec);

    s.load = c->from_gguf ? spec->load_gguf : spec->load;
    s.part = spec->first_row && !s.load && !(c->from_gguf && spec->split_in_gguf);
    s.transposed = spec->transposed && !c->from_gguf;
    s.rows = s.stored_rows = n > 1 ? spec->shape[n - 2](c, layer) : spec->shape[0](c, layer);
    s.cols = n > 1 ? spec->shape[n - 1](c, layer) : 1;
    s.row_step = s.row_run = 1;
    if (s.part) {
        s.first_row = spec->first_row(c, layer);
        s.row_step = spec->row_step ? spec->row_step : 1;
        s.row_run = spec->row_run ? spec->row_run(c, layer) : 1;
        s.stored_rows = spec->stored[n > 2](c, layer);
    }
    s.experts = !c->from_gguf && s.name && strchr(s.name, '*');
    s.n_tensors = s.experts && n == 3 ? (int)spec->shape[0](c, layer) : 1;
    rg_expert_names_settle(&s);
    return s;
}

/* The layer's number in names; of what stands outside the layers, the first layer's. */
static int number_of(const rg_weight_source *s)
{
    return s->c->first_layer + (s->layer > 0 ? s->layer : 0);
}

/* A name without a prefix, the layer's number in place of '#'. */
static void whole_name(const char *name, int layer, char out[RG_WEIGHT_NAME])
{
    const char *hash = strchr(name, '#');

    if (hash)
        snprintf(out, RG_WEIGHT_NAME, "%.*s%d%s", (int)(hash - name), name, layer, hash + 1);
    else
        snprintf(out, RG_WEIGHT_NAME, "%s", name);
}

/* The tensor's name with its prefix, the expert's number in place of '*'. */
static void full_name(const rg_weight_source *s, const char *name, int expert, char out[RG_WEIGHT_NAME])
{
    char number[16] = "";
    const char *star = strchr(name, '*');
    int n = 0;

    if (name[0] == '/') {
        whole_name(name + 1, number_of(s), out);
        return;
    }
    if (s->layer >= 0)
        n = snprintf(out, RG_WEIGHT_NAME, "%s%d.", s->c->from_gguf ? "blk." : rg_arch_of_layers(s->c)->hf_prefix,
                     number_of(s));
    if (star && s->spec->letters)
        number[0] = s->spec->letters[expert];
    else if (star)
        snprintf(number, sizeof number, "%d", expert);
    snprintf(out + n, (size_t)(RG_WEIGHT_NAME - n), "%.*s%s%s", star ? (int)(star - name) : (int)strlen(name), name,
             number, star ? star + 1 : "");
}

static const rg_tensor *find(const rg_weight_source *s, const char *name, int expert, char out[RG_WEIGHT_NAME])
{
    char with[RG_WEIGHT_NAME + 8];

    full_name(s, name, expert, out);
    if (!s->ckpt)
        return NULL;
    snprintf(with, sizeof with, "%s.weight", out);
    const rg_tensor *t = rg_config_tensor(s->c, s->ckpt, with);
    return t ? t : rg_config_tensor(s->c, s->ckpt, out);
}

bool rg_weight_source_name(const rg_weight_source *s, int i, char out[RG_WEIGHT_NAME])
{
    const char *names[] = { s->name, s->c->from_gguf ? s->spec->gguf_else : s->spec->hf_else };

    for (size_t k = 0; k < RG_LEN(names); k++) {
        if (!names[k])
            continue;
        full_name(s, names[k], 0, out);
        if (i-- == 0)
            return true;
        const char *rest = s->c->from_gguf ? NULL : rg_config_rootless(s->c, out);
        if (!rest)
            continue;
        memmove(out, rest, strlen(rest) + 1);
        if (i-- == 0)
            return true;
    }
    return false;
}

/* Blocks run along the columns, so a matrix of them is [rows, columns] whatever its family does with plain weights. */
static bool is_turned(const rg_tensor *t)
{
    return t && (t->file == RG_FILE_COMPOSED || rg_format_of(t->type)->block_len > 1);
}

const rg_tensor *rg_weight_source_find(rg_weight_source *s, int expert, char out[RG_WEIGHT_NAME])
{
    if (s->other[0])
        return find(s, s->other, expert, out);

    const rg_tensor *t = s->name ? find(s, s->name, expert, out) : NULL;
    const char *instead = s->c->from_gguf ? s->spec->gguf_else : s->spec->hf_else;
    char other[RG_WEIGHT_NAME];

    s->transposed = s->transposed && !is_turned(t);

    if (s->spec->derive)
        return NULL;
    if (!t && instead && s->ckpt) {
        t = find(s, instead, expert, other);
        if (t) {
            s->name = instead;
            s->load = s->spec->load;
            memcpy(out, other, RG_WEIGHT_NAME);
        }
    }
    return t;
}

/* A tensor must have the values of [mats, rows, cols]; dimensions of one may be left out or put in (conv1d's [n, 1,
 * k]). */
static bool check_shape(const rg_weight_source *s, const rg_tensor *t, const int64_t *want, int n_want, rg_error *err)
{
    char have_text[96], want_text[96];
    int j = 0;
    bool same = true;

    for (int i = 0; i < t->n_dims; i++) {
        while (j < n_want && want[j] == 1 && t->shape[i] != 1)
            j++;
        if (t->shape[i] == 1 && (j >= n_want || want[j] != 1))
            continue;
        same = same && j < n_want && t->shape[i] == want[j];
        j++;
    }
    while (j < n_want && want[j] == 1)
        j++;
    if (same && j == n_want)
        return true;
    return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is %s where the config says %s", rg_checkpoint_path(s->ckpt),
                   t->name, rg_shape_text(t->shape, t->n_dims, have_text), rg_shape_text(want, n_want, want_text));
}

bool rg_weight_source_check(const rg_weight_source *s, const rg_tensor *t, rg_error *err)
{
    const rg_weight_spec *spec = s->spec;
    int64_t want[3];
    int n = 0;

    if (s->relaid) {
        const bool matrices = rg_spec_dims(spec) == 3;
        const int64_t stacked = s->experts ? 1 : spec->shape[0](s->c, s->layer);

        if (!s->experts)
            want[n++] = stacked;
        want[n++] = matrices ? s->stored_rows : s->stored_rows / stacked;
        if (matrices)
            want[n++] = s->cols;
    } else if (s->part || (s->load && spec->stored[0])) {
        for (; n < 3 && spec->stored[n]; n++)
            want[n] = spec->stored[n](s->c, s->layer);
    } else {
        for (int i = s->experts ? 1 : 0; i < rg_spec_dims(spec); i++)
            want[n++] = spec->shape[i](s->c, s->layer);
    }
    if (s->transposed && n > 1) {
        int64_t rows = want[n - 2];

        want[n - 2] = want[n - 1];
        want[n - 1] = rows;
    }
    return check_shape(s, t, want, n, err);
}

int64_t rg_paired_row(const rg_config *c, int64_t r)
{
    int64_t j = r % c->head_dim;

    return j < c->ropes[0].dim ? r - j + j % 2 * (c->ropes[0].dim / 2) + j / 2 : r;
}

int64_t rg_weight_source_row(const rg_weight_source *s, int64_t row)
{
    return s->first_row + row / s->row_run * s->row_run * s->row_step + row % s->row_run;
}

/* Rows [row, row + n) of one matrix, which stand in its columns. */
static bool read_columns(const rg_weight_source *s, const rg_tensor *t, int64_t mat, int64_t row, int64_t n,
                         uint8_t *to, rg_error *err)
{
    const int64_t cols = s->cols, at = rg_weight_source_row(s, row);
    const size_t size = (size_t)rg_format_of(t->type)->block_bytes;
    const size_t span = (size_t)(rg_weight_source_row(s, row + n - 1) - at + 1) * size;
    uint8_t *line = rg_alloc(span);
    bool ok = line || rg_fail_memory(err, span);

    for (int64_t k = 0; ok && k < cols; k++) {
        ok = rg_tensor_read(s->ckpt, t, (uint64_t)((mat * cols + k) * s->stored_rows + at) * size, line, span, err);
        for (int64_t r = 0; ok && r < n; r++)
            memcpy(to + (size_t)(r * cols + k) * size, line + (size_t)(rg_weight_source_row(s, row + r) - at) * size,
                   size);
    }
    rg_free(line);
    return ok;
}

bool rg_weight_source_rows(const rg_weight_source *s, const rg_tensor *t, int64_t first, int64_t n, uint8_t *to,
                           rg_error *err)
{
    uint64_t bytes;

    if (!rg_row_bytes(t->type, s->cols, &bytes))
        return rg_fail(err, RG_E_INPUT, "%s: rows of %lld values are no multiple of a block", t->name,
                       (long long)s->cols);
    for (int64_t m; n > 0; first += m, n -= m, to += (uint64_t)m * bytes) {
        int64_t mat = first / s->rows, row = first % s->rows, at = rg_weight_source_row(s, row);
        int64_t left = s->row_step > 1 ? s->row_run - row % s->row_run : s->rows - row; /* that lie together */
        uint64_t from = (uint64_t)(mat * s->stored_rows + at) * bytes;

        left = s->transposed ? s->rows - row : s->part ? left : n;
        m = left < n ? left : n;
        if (!(s->transposed ? read_columns(s, t, mat, row, m, to, err)
                            : rg_tensor_read(s->ckpt, t, from, to, (size_t)m * bytes, err)))
            return false;
    }
    return true;
}

/* A whole tensor in f32; the caller frees it. */
static float *read_f32(const rg_weight_source *s, const rg_tensor *t, rg_error *err)
{
    int64_t n = rg_tensor_count(t);
    void *raw = rg_alloc(t->bytes);
    float *out = rg_array((size_t)n, sizeof *out);

    if (!raw || !out) {
        rg_fail_memory(err, t->bytes + (size_t)n * sizeof *out);
        goto fail;
    }
    if (!rg_tensor_read(s->ckpt, t, 0, raw, t->bytes, err))
        goto fail;
    rg_tensor_decode(t, raw, rg_tensor_rows(t), out);
    rg_free(raw);
    return out;

fail:
    rg_free(raw);
    rg_free(out);
    return NULL;
}

float *rg_weight_source_values(const rg_weight_source *s, const rg_tensor *t, rg_load_fn *load, int64_t n,
                               rg_error *err)
{
    float *src = read_f32(s, t, err);

    RG_ASSERT(!s->transposed && (!s->part || s->experts || rg_spec_dims(s->spec) < 3));
    for (int64_t r = 0; src && s->part && r < s->rows; r++)
        memmove(src + r * s->cols, src + rg_weight_source_row(s, r) * s->cols, (size_t)s->cols * sizeof *src);
    if (!src || !load)
        return src;
    float *dst = rg_array((size_t)n, sizeof *dst);
    if (dst)
        load(s->c, src, dst, n);
    else
        rg_fail_memory(err, (size_t)n * sizeof *dst);
    rg_free(src);
    return dst;
}

float *rg_weight_source_vector(rg_weight_source *s, int64_t n, rg_error *err)
{
    const int64_t each = n / s->n_tensors;
    char name[RG_WEIGHT_NAME];

    if (s->n_tensors == 1)
        return rg_weight_source_values(s, rg_weight_source_find(s, 0, name), s->load, n, err);
    float *all = rg_array((size_t)n, sizeof *all);
    bool ok = all || rg_fail_memory(err, (size_t)n * sizeof *all);

    for (int e = 0; ok && e < s->n_tensors; e++) {
        float *one = rg_weight_source_values(s, rg_weight_source_find(s, e, name), s->load, each, err);

        ok = one;
        if (ok)
            memcpy(all + e * each, one, (size_t)each * sizeof *all);
        rg_free(one);
    }
    if (!ok)
        rg_free(all);
    return ok ? all : NULL;
}
