/* weights.c -- see weights.h.
 *
 * A weight is declared from its architecture's table and the config; where there is a checkpoint its types and bytes come
 * from there.  Binding goes tensor by tensor and row by row, so that what is held at once is the packed weight and a few
 * rows of its source; only a weight with a load function needs its whole source in f32. */
#include "model/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { NAME_ROOM = 128 };

/* Where a weight's bytes come from. */
typedef struct source {
    const rg_weight_spec *spec;
    const rg_config *c;
    const rg_checkpoint *ckpt;
    int layer;
    bool experts; /* one tensor per matrix */
    rg_load_fn *load;
    const char *name;
} source;

static int shape_dims(const rg_weight_spec *spec)
{
    int n = 0;

    while (n < 3 && spec->shape[n] != SIZE_NONE)
        n++;
    return n;
}

static source source_of(const rg_weight_spec *spec, const rg_config *c, const rg_checkpoint *ckpt, int layer)
{
    source s = { spec, c, ckpt, layer, .name = c->from_gguf ? spec->gguf : spec->hf };

    s.load = c->from_gguf ? spec->load_gguf : spec->load;
    s.experts = !c->from_gguf && s.name && strchr(s.name, '*');
    return s;
}

/* The tensor's name with its prefix, the expert's number in place of '*'. */
static void full_name(const source *s, const char *name, int expert, char out[NAME_ROOM])
{
    char number[16] = "";
    const char *star = strchr(name, '*');
    int n = 0;

    if (s->layer >= 0)
        n = snprintf(out, NAME_ROOM, "%s%d.", s->c->from_gguf ? "blk." : s->c->arch->hf_prefix, s->layer);
    if (star)
        snprintf(number, sizeof number, "%d", expert);
    snprintf(out + n, (size_t)(NAME_ROOM - n), "%.*s%s%s", star ? (int)(star - name) : (int)strlen(name), name, number,
             star ? star + 1 : "");
}

static const rg_tensor *find(const source *s, const char *name, int expert, char out[NAME_ROOM])
{
    char with[NAME_ROOM + 8];

    full_name(s, name, expert, out);
    if (!s->ckpt)
        return NULL;
    snprintf(with, sizeof with, "%s.weight", out);
    const rg_tensor *t = rg_checkpoint_find(s->ckpt, with);
    return t ? t : rg_checkpoint_find(s->ckpt, out);
}

/* The source tensor of matrix 0, falling back on older names; what it is called for messages. */
static const rg_tensor *find_source(source *s, char out[NAME_ROOM])
{
    const rg_tensor *t = s->name ? find(s, s->name, 0, out) : NULL;
    char other[NAME_ROOM];

    if (!t && s->c->from_gguf && s->spec->gguf_else && s->ckpt) {
        t = find(s, s->spec->gguf_else, 0, other);
        if (t) {
            s->name = s->spec->gguf_else;
            s->load = s->spec->load;
            memcpy(out, other, NAME_ROOM);
        }
    }
    return t;
}

static bool is_vector(const rg_weight_spec *spec)
{
    return spec->table || shape_dims(spec) == 1;
}

/* ---- declare ---- */

static void set_shape(rg_weight *w, const rg_weight_spec *spec, const rg_config *c)
{
    int n = shape_dims(spec);

    w->n_mats = n == 3 ? rg_size_of(c, spec->shape[0]) : 1;
    w->rows = n >= 2 ? rg_size_of(c, spec->shape[n - 2]) : 1;
    w->cols = rg_size_of(c, spec->shape[n - 1]);
    w->split = spec->split;
}

/* The format a weight is kept in: as stored, or, made by a load function from a quantized source, f32. */
static rg_type kept_type(const rg_tensor *t, const source *s)
{
    if (is_vector(s->spec))
        return RG_F32;
    bool plain = t->type == RG_F32 || t->type == RG_F16 || t->type == RG_BF16;
    return s->load && !plain ? RG_F32 : t->type;
}

static bool declare_one(rg_weight_set *set, const rg_weight_spec *spec, const rg_config *c, const rg_checkpoint *ckpt, int layer,
                        rg_type type, rg_error *err)
{
    int i = set->n;
    rg_weight *w = &set->all[i];
    char *name = set->names + (size_t)i * NAME_ROOM;
    source s = source_of(spec, c, ckpt, layer);
    uint64_t row;

    if (!s.name)
        return true;
    const rg_tensor *t = find_source(&s, name);
    if (ckpt && rg_checkpoint_n_tensors(ckpt) && !t)
        return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing", rg_checkpoint_path(ckpt), name);
    set_shape(w, spec, c);
    w->name = name;
    w->type = t ? kept_type(t, &s) : is_vector(spec) ? RG_F32 : type;
    if (t && rg_format_of(t->type)->layout == RG_LAYOUT_NONE)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: tensor '%s' is of type %s, which is no type of weights",
                       rg_checkpoint_path(ckpt), name, rg_format_of(t->type)->name);
    if (!rg_row_bytes(w->type, w->cols, &row))
        return rg_fail(err, RG_E_INPUT, "%s: rows of %lld values cannot be cut into blocks of %s", name, (long long)w->cols,
                       rg_format_of(w->type)->name);
    set->n_parameters += (uint64_t)(w->n_mats * w->rows * w->cols);
    set->stored_bytes += (uint64_t)(w->n_mats * w->rows) * row;
    set->spec[i] = spec;
    set->layer[i] = layer;
    set->n++;
    return true;
}

static int count_specs(const rg_weight_spec *spec)
{
    int n = 0;

    while (spec[n].shape[0] != SIZE_NONE)
        n++;
    return n;
}

bool rg_weights_declare(rg_weight_set *s, const rg_config *c, const rg_checkpoint *ckpt, rg_type type, rg_error *err)
{
    int n_outer = count_specs(c->arch->weights), n_inner = count_specs(c->arch->layer_weights);
    size_t room = (size_t)n_outer + (size_t)n_inner * (size_t)c->n_layers;

    memset(s, 0, sizeof *s);
    s->all = rg_array(room, sizeof *s->all);
    s->spec = rg_array(room, sizeof *s->spec);
    s->layer = rg_array(room, sizeof *s->layer);
    s->packed = rg_array(room, sizeof *s->packed);
    s->names = rg_array(room, NAME_ROOM);
    if (!s->all || !s->spec || !s->layer || !s->packed || !s->names)
        return rg_fail_memory(err, room * (sizeof *s->all + NAME_ROOM));
    for (int i = 0; i < n_outer; i++) {
        const rg_weight_spec *spec = &c->arch->weights[i];
        if ((!spec->when || spec->when(c, -1)) && !declare_one(s, spec, c, ckpt, -1, type, err))
            return false;
    }
    for (int layer = 0; layer < c->n_layers; layer++) {
        for (int i = 0; i < n_inner; i++) {
            const rg_weight_spec *spec = &c->arch->layer_weights[i];
            if ((!spec->when || spec->when(c, layer)) && !declare_one(s, spec, c, ckpt, layer, type, err))
                return false;
        }
    }
    return true;
}

/* ---- bind ---- */

/* A tensor must have the values of [mats, rows, cols]; dimensions of one may be left out or put in (conv1d's [n, 1, k]). */
static bool check_shape(const source *s, const rg_tensor *t, const int64_t *want, int n_want, rg_error *err)
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
    return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is %s where the config says %s", rg_checkpoint_path(s->ckpt), t->name,
                   rg_shape_text(t->shape, t->n_dims, have_text), rg_shape_text(want, n_want, want_text));
}

static bool check_source(const source *s, const rg_tensor *t, const rg_weight *w, rg_error *err)
{
    int64_t want[3];
    int n = 0;

    if (s->load && s->spec->stored[0] != SIZE_NONE) {
        want[n++] = rg_size_of(s->c, s->spec->stored[0]);
        want[n++] = rg_size_of(s->c, s->spec->stored[1]);
    } else {
        if (shape_dims(s->spec) == 3 && !s->experts)
            want[n++] = w->n_mats;
        if (shape_dims(s->spec) >= 2)
            want[n++] = w->rows;
        want[n++] = w->cols;
    }
    return check_shape(s, t, want, n, err);
}

/* A whole tensor in f32; the caller frees it. */
static float *read_f32(const source *s, const rg_tensor *t, rg_error *err)
{
    const rg_format *fmt = rg_format_of(t->type);
    int64_t n = rg_tensor_count(t);
    void *raw = rg_alloc(t->bytes);
    float *out = rg_array((size_t)n, sizeof *out);

    if (!raw || !out) {
        rg_fail_memory(err, t->bytes + (size_t)n * sizeof *out);
        goto fail;
    }
    if (!rg_tensor_read(s->ckpt, t, 0, raw, t->bytes, err))
        goto fail;
    fmt->decode(raw, n / fmt->block_len, out);
    rg_free(raw);
    return out;

fail:
    rg_free(raw);
    rg_free(out);
    return NULL;
}

/* The spec's values in f32, through its load function. */
static float *load_f32(const source *s, const rg_tensor *t, int64_t n, rg_error *err)
{
    float *src = read_f32(s, t, err);

    if (!src || !s->load)
        return src;
    float *dst = rg_array((size_t)n, sizeof *dst);
    if (dst)
        s->load(s->c, src, dst, n);
    else
        rg_fail_memory(err, (size_t)n * sizeof *dst);
    rg_free(src);
    return dst;
}

/* Pack matrices from values in f32, encoded again as the weight's type: exact, as the type is the source's or f32. */
static bool pack_values(rg_packed *p, const rg_weight *w, const float *values, rg_error *err)
{
    const rg_format *fmt = rg_format_of(w->type);
    uint64_t bytes;
    void *row = rg_row_bytes(w->type, w->cols, &bytes) ? rg_alloc(bytes) : NULL;

    if (!row)
        return rg_fail_memory(err, (size_t)w->cols * 4);
    for (int64_t i = 0; i < w->n_mats * w->rows; i++) {
        fmt->encode(values + i * w->cols, w->cols / fmt->block_len, row);
        rg_pack_row(p, i / w->rows, i % w->rows, row);
    }
    rg_free(row);
    return true;
}

/* Pack rows of one tensor as matrices [mat0, mat0 + n_mats), a few megabytes at a time. */
static bool pack_rows(rg_packed *p, const source *s, const rg_tensor *t, const rg_weight *w, int64_t mat0, rg_error *err)
{
    uint64_t bytes = 0;
    int64_t n = rg_tensor_count(t) / w->cols, at_once;

    if (!rg_row_bytes(t->type, w->cols, &bytes) || !bytes)
        return rg_fail(err, RG_E_INPUT, "%s: rows of %lld values are no multiple of a block", t->name, (long long)w->cols);
    at_once = (4 << 20) / (int64_t)bytes + 1;
    at_once = at_once < n ? at_once : n;
    uint8_t *buf = rg_alloc((size_t)at_once * bytes);
    if (!buf)
        return rg_fail_memory(err, (size_t)at_once * bytes);
    for (int64_t i = 0; i < n; i += at_once) {
        int64_t m = n - i < at_once ? n - i : at_once;
        if (!rg_tensor_read(s->ckpt, t, (uint64_t)i * bytes, buf, (size_t)m * bytes, err)) {
            rg_free(buf);
            return false;
        }
        for (int64_t r = 0; r < m; r++)
            rg_pack_row(p, mat0 + (i + r) / w->rows, (i + r) % w->rows, buf + (uint64_t)r * bytes);
    }
    rg_free(buf);
    return true;
}

static bool bind_matrix(rg_packed *p, source *s, const rg_tensor *t, rg_weight *w, rg_error *err)
{
    char name[NAME_ROOM];

    if (!rg_packed_init(p, w->type, w->n_mats, w->rows, w->cols, err))
        return false;
    if (s->load) {
        float *values = load_f32(s, t, w->n_mats * w->rows * w->cols, err);
        bool ok = values && pack_values(p, w, values, err);
        rg_free(values);
        return ok;
    }
    for (int64_t e = 0; e < (s->experts ? w->n_mats : 1); e++) {
        const rg_tensor *one = e ? find(s, s->name, (int)e, name) : t;
        if (!one)
            return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing", rg_checkpoint_path(s->ckpt), name);
        if (one->type != w->type)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: tensor '%s' is %s where its neighbours are %s", rg_checkpoint_path(s->ckpt),
                           one->name, rg_format_of(one->type)->name, rg_format_of(w->type)->name);
        if (!check_source(s, one, w, err) || !pack_rows(p, s, one, w, e, err))
            return false;
    }
    w->packed = p;
    return true;
}

static bool bind_one(rg_weight_set *set, int i, const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    rg_weight *w = &set->all[i];
    source s = source_of(set->spec[i], c, ckpt, set->layer[i]);
    char name[NAME_ROOM];
    const rg_tensor *t = find_source(&s, name);

    if (!t)
        return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing", rg_checkpoint_path(ckpt), w->name);
    if (!check_source(&s, t, w, err))
        return false;
    if (is_vector(set->spec[i])) {
        w->vec = load_f32(&s, t, w->rows * w->cols, err);
        set->bytes += (uint64_t)(w->rows * w->cols) * sizeof(float);
        return w->vec;
    }
    if (!bind_matrix(&set->packed[i], &s, t, w, err))
        return false;
    w->packed = &set->packed[i];
    set->bytes += set->packed[i].bytes;
    return true;
}

bool rg_weights_bind(rg_weight_set *s, const rg_config *c, const rg_checkpoint *ckpt,
                     void (*progress)(void *arg, const char *what, double done), void *arg, rg_error *err)
{
    for (int i = 0; i < s->n; i++) {
        if (progress)
            progress(arg, "packing weights", (double)i / s->n);
        if (!bind_one(s, i, c, ckpt, err))
            return false;
    }
    if (progress)
        progress(arg, "packing weights", 1);
    return true;
}

void rg_weights_fini(rg_weight_set *s)
{
    for (int i = 0; i < s->n; i++) {
        rg_free((void *)(uintptr_t)s->all[i].vec);
        rg_packed_fini(&s->packed[i]);
    }
    rg_free(s->all);
    rg_free(s->spec);
    rg_free(s->layer);
    rg_free(s->packed);
    rg_free(s->names);
    memset(s, 0, sizeof *s);
}

const rg_weight *rg_weights_get(const rg_weight_set *s, rg_role role, int layer)
{
    for (int i = 0; i < s->n; i++)
        if (s->layer[i] == layer && s->spec[i]->role == role)
            return &s->all[i];
    return NULL;
}
