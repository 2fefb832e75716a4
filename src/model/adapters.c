/* adapters.c -- see adapters.h. */
#include "model/adapters.h"

#include <string.h>

#include "base/mem.h"
#include "model/adapter_file.h"
#include "model/weight_source.h"

/* One adapter while it is read. */
typedef struct reading {
    rg_adapters *out;
    rg_weight_set *weights;
    const rg_config *c;
    int number;
    rg_adapter_file file;
    rg_config *as; /* the config as of a checkpoint of the adapter's kind */
    const rg_tensor *first;
    bool *used;          /* [tensors] */
    const rg_placed **a; /* [tensors] A as it is, once placed: a tensor that holds several weights has one for all */
} reading;

/* ---- where rows and columns go ----------------------------------------------------------------------------------- */

/* For each row of a weight the row of B, and for each column that of A. */
typedef struct moves {
    int64_t *row;
    int64_t *column;
    bool columns_stay; /* column is not used */
} moves;

/* A load function that only moves rows and columns shows where from, if it is given their numbers: which of the two is
 * `of_rows`.  False: it does something else. */
static bool show_moves(const rg_weight_source *o, int64_t n_stored, bool of_rows, const rg_weight *w, float *src,
                       float *dst)
{
    const float most = (float)(of_rows ? n_stored : w->cols);

    for (int64_t i = 0; i < n_stored; i++)
        for (int64_t k = 0; k < w->cols; k++)
            src[i * w->cols + k] = (float)(of_rows ? i : k);
    o->load(o->c, src, dst, w->rows * w->cols);
    for (int64_t i = 0; i < w->rows; i++)
        for (int64_t k = 0; k < w->cols; k++) {
            const float v = dst[i * w->cols + k];

            if (v != (of_rows ? dst[i * w->cols] : dst[k]) || !(v >= 0 && v < most) || v != (float)(int64_t)v)
                return false;
        }
    return true;
}

/* Rows and columns of the tensor as a load function takes them. */
static bool find_loaded(const rg_weight_source *o, int64_t n_stored, const rg_weight *w, moves *m, rg_error *err)
{
    const int64_t exact = 1 << 24; /* whole numbers that f32 holds */
    uint64_t n;
    float *src = rg_mul((uint64_t)n_stored, (uint64_t)w->cols, &n) ? rg_array(n, sizeof *src) : NULL;
    float *dst = rg_array((size_t)(w->rows * w->cols), sizeof *dst); /* fits: the weight is there */
    bool ok = (src && dst) || rg_fail_memory(err, (size_t)w->rows * (size_t)w->cols * sizeof *dst);
    bool moved = ok && n_stored <= exact && w->cols <= exact && show_moves(o, n_stored, false, w, src, dst);

    for (int64_t k = 0; moved && k < w->cols; k++) {
        m->column[k] = (int64_t)dst[k];
        m->columns_stay = m->columns_stay && m->column[k] == k;
    }
    moved = moved && show_moves(o, n_stored, true, w, src, dst);
    for (int64_t i = 0; moved && i < w->rows; i++)
        m->row[i] = (int64_t)dst[i * w->cols];
    if (ok && !moved)
        ok = rg_fail(err, RG_E_UNSUPPORTED,
                     "an adapter of '%s' is not supported: the model's weight is computed from it", w->name);
    rg_free(src);
    rg_free(dst);
    return ok;
}

static bool find_moves(const reading *r, const rg_weight_source *o, int64_t n_stored, const rg_weight *w, moves *m,
                       rg_error *err)
{
    const bool turns = o->spec->paired && r->as->from_gguf != r->c->from_gguf;
    int64_t *own = turns ? rg_array((size_t)w->rows, sizeof *own) : NULL;

    m->columns_stay = true;
    if (turns && !own)
        return rg_fail_memory(err, (size_t)w->rows * sizeof *own);
    for (int64_t i = 0; i < w->rows; i++)
        m->row[i] = o->part ? rg_weight_source_row(o, i) : i;
    if (o->load && !find_loaded(o, n_stored, w, m, err)) {
        rg_free(own);
        return false;
    }
    if (turns)
        memcpy(own, m->row, (size_t)w->rows * sizeof *own);
    for (int64_t i = 0; turns && i < w->rows; i++) { /* row i of GGUF's is row `at` of Hugging Face's */
        const int64_t at = rg_paired_row(r->c, i);

        m->row[r->c->from_gguf ? i : at] = own[r->c->from_gguf ? at : i];
    }
    rg_free(own);
    return true;
}

/* Rows of the tensor that the weight, or the parts of it, are made from. */
static int64_t rows_stored(const rg_weight_source *o)
{
    if (!o->load || !o->spec->stored[0])
        return o->stored_rows;
    return o->spec->stored[0](o->c, o->layer);
}

/* ---- matrices ---------------------------------------------------------------------------------------------------- */

/* One row with its columns in the order of map (NULL: as they are). */
static bool read_row(const reading *r, const rg_tensor *t, int64_t row, const int64_t *map, uint8_t *to, rg_error *err)
{
    const size_t size = (size_t)rg_format_of(t->type)->block_bytes, n = (size_t)t->shape[1];
    uint8_t *as_is = to + (map ? n * size : 0); /* room for both, where there is a map */
    uint64_t bytes;

    if (!rg_row_bytes(t->type, t->shape[1], &bytes) ||
        !rg_tensor_read(r->file.ckpt, t, (uint64_t)row * bytes, as_is, bytes, err))
        return false;
    for (size_t k = 0; map && k < n; k++)
        memcpy(to + k * size, as_is + (size_t)map[k] * size, size);
    return true;
}

/* The first n rows of A or B in the order of rows, its columns in that of columns (NULL: as they are), placed; owned by
 * the adapters. */
static const rg_placed *place(reading *r, const rg_tensor *t, int64_t n, const int64_t *rows, const int64_t *columns,
                             rg_error *err)
{
    rg_adapters *out = r->out;
    const rg_backend *b = r->weights->backend;
    const rg_placing what = { .type = t->type, .n_mats = 1, .rows = n, .cols = t->shape[1] };
    uint64_t bytes;

    if (columns && rg_format_of(t->type)->block_len > 1)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: tensor '%s' is %s, whose columns cannot be put in the model's order",
                       rg_checkpoint_path(r->file.ckpt), t->name, rg_format_of(t->type)->name),
               NULL;
    rg_placed *p = b->weight_new(b, &what, err);
    if (!p)
        return NULL;
    out->placed[out->n_placed++] = p;
    if (!rg_row_bytes(t->type, t->shape[1], &bytes))
        return NULL;
    uint8_t *row = rg_array(2, bytes);
    bool ok = row || rg_fail_memory(err, bytes);
    for (int64_t i = 0; ok && i < n; i++) {
        ok = read_row(r, t, rows ? rows[i] : i, columns, row, err);
        if (ok)
            b->weight_put(p, 0, i, row);
    }
    rg_free(row);
    out->all[r->number].bytes += p->bytes;
    return ok ? p : NULL;
}

static bool check_shapes(const reading *r, const char *module, const rg_tensor *a, const rg_tensor *b, int64_t rows,
                         int64_t cols, rg_error *err)
{
    const char *path = rg_checkpoint_path(r->file.ckpt);
    char a_text[96], b_text[96];

    if (!a || !b)
        return rg_fail(err, RG_E_INPUT, "%s: '%s' has a matrix %s and no %s", path, module, a ? "A" : "B",
                       a ? "B" : "A");
    if (rg_format_of(a->type)->layout == RG_LAYOUT_NONE || rg_format_of(b->type)->layout == RG_LAYOUT_NONE)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: '%s' is of type %s, which is no type of weights", path, module,
                       rg_format_of(a->type)->name);
    if (a->shape[0] > RG_MAX_RANK)
        return rg_fail(err, RG_E_LIMIT, "%s: '%s' is of rank %lld: at most %d is supported", path, module,
                       (long long)a->shape[0], RG_MAX_RANK);
    if (a->n_dims == 2 && b->n_dims == 2 && a->shape[0] == b->shape[1] && a->shape[0] > 0 && a->shape[1] == cols &&
        b->shape[0] == rows)
        return true;
    return rg_fail(err, RG_E_INPUT, "%s: '%s' has A %s and B %s, which do not fit the model's matrix of %lld x %lld",
                   path, module, rg_shape_text(a->shape, a->n_dims, a_text), rg_shape_text(b->shape, b->n_dims, b_text),
                   (long long)rows, (long long)cols);
}

/* What weight i is to a product: where the head is the embedding, the head. */
static const rg_weight_spec *spec_of(const reading *r, int i)
{
    const rg_weight_spec *spec = r->weights->spec[i], *head = r->c->arch->weights;

    if (spec->role != W_EMBED_TOKENS || r->weights->layer[i] >= 0 || rg_weights_get(r->weights, W_LM_HEAD, -1))
        return spec;
    while (head->shape[0] && head->role != W_LM_HEAD)
        head++;
    return head->shape[0] ? head : spec;
}

/* True if a product with this weight adds deltas: the matrices of the layers, and the head. */
static bool takes_deltas(const rg_weight_spec *spec, int layer)
{
    return rg_spec_dims(spec) == 2 && !rg_spec_is_vector(spec) && !spec->derive &&
           (layer >= 0 || spec->role == W_LM_HEAD);
}

/* The delta of weight i by the module's matrices. */
static bool bind(reading *r, int i, const rg_weight_source *o, const char *module, const rg_tensor *a,
                 const rg_tensor *b, rg_error *err)
{
    rg_weight *w = &r->weights->all[i];
    rg_adapter *adapter = &r->out->all[r->number];
    rg_delta *d = &r->out->deltas[i * r->out->n + r->number];
    const int64_t n_stored = rows_stored(o);

    if (!takes_deltas(o->spec, o->layer))
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: an adapter of '%s' is not supported: %s",
                       rg_checkpoint_path(r->file.ckpt), module,
                       o->layer < 0 ? "it is no matrix of a layer" : "it is no plain matrix");
    if (!check_shapes(r, module, a, b, n_stored, w->cols, err) ||
        !rg_adapter_file_scale(&r->file, module, a->shape[0], &d->scale, err))
        return false;
    moves m = { rg_array((size_t)w->rows, sizeof *m.row), rg_array((size_t)w->cols, sizeof *m.column), true };
    bool ok = (m.row && m.column) || rg_fail_memory(err, (size_t)(w->rows + w->cols) * sizeof *m.row);
    ok = ok && (find_moves(r, o, n_stored, w, &m, err) || rg_fail_prefix(err, "%s", rg_checkpoint_path(r->file.ckpt)));
    if (ok && (d->a = m.columns_stay ? r->a[a - r->first] : NULL) == NULL)
        ok = (d->a = place(r, a, a->shape[0], NULL, m.columns_stay ? NULL : m.column, err));
    ok = ok && (d->b = place(r, b, w->rows, m.row, NULL, err));
    rg_free(m.row);
    rg_free(m.column);
    if (!ok)
        return false;
    r->a[a - r->first] = m.columns_stay ? d->a : NULL;
    w->deltas = &r->out->deltas[i * r->out->n];
    r->used[a - r->first] = r->used[b - r->first] = true;
    adapter->n_weights++;
    adapter->max_rank = adapter->max_rank > a->shape[0] ? adapter->max_rank : a->shape[0];
    return true;
}

/* ---- one adapter ------------------------------------------------------------------------------------------------- */

static bool bind_all(reading *r, rg_error *err)
{
    char name[RG_WEIGHT_NAME];
    const rg_tensor *a, *b;

    for (int i = 0; i < r->weights->n; i++) {
        const rg_weight_source o = rg_weight_source_of(spec_of(r, i), r->as, NULL, r->weights->layer[i]);

        for (int k = 0; !o.experts && rg_weight_source_name(&o, k, name); k++)
            if (rg_adapter_file_find(&r->file, name, &a, &b)) {
                if (!bind(r, i, &o, name, a, b, err))
                    return false;
                break;
            }
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(r->file.ckpt); i++)
        if (!r->used[i])
            return rg_adapter_file_blame(&r->file, &r->first[i], err), false;
    return r->out->all[r->number].n_weights ||
           rg_fail(err, RG_E_INPUT, "%s: the adapter has no matrices", rg_checkpoint_path(r->file.ckpt));
}

/* GGUF names the architecture that its adapters are for. */
static bool check_architecture(const reading *r, rg_error *err)
{
    const char *name = NULL, *own = r->c->arch->gguf_name;

    if (!r->file.is_gguf || rg_meta_string(r->file.ckpt, "general.architecture", &name, err) == 0)
        return true;
    return name && (!own || !strcmp(name, own) ||
                    rg_fail(err, RG_E_INPUT, "%s: an adapter for models of architecture '%.60s', and this one is '%s'",
                            rg_checkpoint_path(r->file.ckpt), name, own));
}

static bool read_one(rg_adapters *out, rg_weight_set *weights, const rg_config *c, int number, const char *path,
                     rg_error *err)
{
    reading r = { .out = out, .weights = weights, .c = c, .number = number };
    bool ok = rg_adapter_file_open(&r.file, path, err);
    size_t n = ok ? (size_t)rg_checkpoint_n_tensors(r.file.ckpt) : 0;
    rg_placed **more = NULL;
    size_t room;

    if (ok) {
        r.as = rg_alloc(sizeof *r.as);
        r.used = rg_array(n, sizeof *r.used);
        r.a = rg_array(n, sizeof *r.a);
        if (rg_head_and_items((size_t)out->n_placed, (size_t)weights->n, 2, &room)) /* A and B of each */
            more = rg_resize_array(out->placed, room, sizeof *more);
        out->placed = more ? more : out->placed;
        ok = (r.as && r.used && r.a && more) || rg_fail_memory(err, n * sizeof *r.a + sizeof *r.as);
    }
    if (ok) {
        r.first = rg_checkpoint_tensor(r.file.ckpt, 0);
        *r.as = *c;
        r.as->from_gguf = r.file.is_gguf;
        ok = check_architecture(&r, err) && bind_all(&r, err);
    }
    rg_free(r.as);
    rg_free(r.used);
    rg_free(r.a);
    rg_adapter_file_close(&r.file);
    return ok;
}

static bool check_name(const rg_adapters *a, const char *name, rg_error *err)
{
    if (!name || !*name)
        return rg_fail(err, RG_E_USAGE, "an adapter needs a name: NAME=PATH");
    return rg_adapters_find(a, name) < 0 || rg_fail(err, RG_E_USAGE, "two adapters are called '%.200s'", name);
}

bool rg_adapters_open(rg_adapters *a, rg_weight_set *weights, const rg_config *c, const rg_adapter_source *from, int n,
                      rg_error *err)
{
    size_t n_deltas;

    *a = (rg_adapters){ 0 };
    if (n > RG_MAX_ADAPTERS)
        return rg_fail(err, RG_E_LIMIT, "%d adapters: at most %d can be open", n, RG_MAX_ADAPTERS);
    a->all = rg_array((size_t)n, sizeof *a->all);
    a->deltas = rg_mul((size_t)weights->n, (size_t)n, &n_deltas) ? rg_array(n_deltas, sizeof *a->deltas) : NULL;
    if (!a->all || !a->deltas)
        return rg_fail_memory(err, (size_t)weights->n * (size_t)n * sizeof *a->deltas);
    for (int i = 0; i < n; i++)
        if (!check_name(a, from[i].name, err))
            return false;
        else if (!(a->all[a->n++].name = rg_strdup(from[i].name)))
            return rg_fail_memory(err, strlen(from[i].name) + 1);
    for (int i = 0; i < n; i++) {
        const rg_adapter *one = &a->all[i];

        if (!read_one(a, weights, c, i, from[i].path, err))
            return false;
        a->bytes += one->bytes;
        a->max_rank = one->max_rank > a->max_rank ? (int)one->max_rank : a->max_rank;
    }
    return true;
}

void rg_adapters_close(rg_adapters *a)
{
    for (int i = 0; i < a->n_placed; i++)
        rg_placed_free(a->placed[i]);
    for (int i = 0; i < a->n; i++)
        rg_free(a->all[i].name);
    rg_free(a->placed);
    rg_free(a->deltas);
    rg_free(a->all);
    *a = (rg_adapters){ 0 };
}

int rg_adapters_find(const rg_adapters *a, const char *name)
{
    for (int i = 0; i < a->n; i++)
        if (!strcmp(a->all[i].name, name))
            return i;
    return -1;
}
