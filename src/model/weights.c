/* weights.c -- see weights.h.
 *
 * A weight is declared from its architecture's table and the config; where there is a checkpoint its types and bytes
 * come from there.  Binding goes tensor by tensor and row by row, so that only the placed weight and a few rows of its
 * source are in memory at once; a weight with a load function needs its whole source in f32. */
#include "model/weights.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "model/weight_source.h"
#include "model/random_weights.h"
#include "model/tied.h"

/* ---- declare ---- */

static void set_shape(rg_weight *w, const rg_weight_spec *spec, const rg_config *c, int layer)
{
    int n = rg_spec_dims(spec);

    w->n_mats = n == 3 ? spec->shape[0](c, layer) : 1;
    w->rows = n >= 2 ? spec->shape[n - 2](c, layer) : 1;
    w->cols = spec->shape[n - 1](c, layer);
    w->split = (rg_split)spec->split;
}

/* True if each side fits in an int and the whole can be counted in bytes. */
static bool check_size(const rg_weight *w)
{
    const int64_t side = 1 << 28, whole = (int64_t)1 << 48;

    return w->n_mats >= 1 && w->rows >= 1 && w->cols >= 1 && w->n_mats <= 4096 && w->rows <= side && w->cols <= side &&
           w->rows * w->cols <= whole / w->n_mats;
}

/* The format a weight is kept in: as stored, or, made by a load function from a quantized source, f32. */
static rg_type kept_type(const rg_tensor *t, const rg_weight_source *s)
{
    if (rg_spec_is_vector(s->spec))
        return RG_F32;
    bool plain = t->type == RG_F32 || t->type == RG_F16 || t->type == RG_BF16;
    return s->load && !plain ? RG_F32 : t->type;
}

static bool check_tensor(const rg_weight_source *s, const rg_tensor *t, rg_error *err)
{
    if (!rg_weight_source_check(s, t, err))
        return false;
    return rg_format_of(t->type)->layout != RG_LAYOUT_NONE ||
           rg_fail(err, RG_E_UNSUPPORTED, "%s: tensor '%s' is of type %s, which is no type of weights",
                   rg_checkpoint_path(s->ckpt), t->name, rg_format_of(t->type)->name);
}

/* Checks every tensor that a weight is made from; t is the first. */
static bool check_tensors(rg_weight_source *s, const rg_tensor *t, rg_error *err)
{
    char name[RG_WEIGHT_NAME];

    for (int e = 0; e < s->n_tensors; e++) {
        const rg_tensor *one = e ? rg_weight_source_find(s, e, name) : t;
        if (!one)
            return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing", rg_checkpoint_path(s->ckpt), name);
        if (!check_tensor(s, one, err))
            return false;
    }
    return true;
}

/* The tensor of matrix e of weight i, or the one of all its matrices; NULL: it is not packed as it is stored. */
static const rg_tensor *tensor_at(const rg_weight_set *set, int i, rg_weight_source *s, int64_t e)
{
    char name[RG_WEIGHT_NAME];

    const rg_tensor *t = rg_weight_source_find(s, (int)e, name); /* sets s->load by the name that is there */

    return s->load || rg_spec_is_vector(set->spec[i]) ? NULL : t;
}

/* True if the matrices of two weights have their columns in the same orders. */
static bool have_one_order(const rg_weight_set *set, int i, int k, const rg_config *c, const rg_checkpoint *ckpt)
{
    rg_weight_source a = rg_weight_source_of(set->spec[i], c, ckpt, set->layer[i]);
    rg_weight_source b = rg_weight_source_of(set->spec[k], c, ckpt, set->layer[k]);
    const rg_weight *w = &set->all[i];
    bool same = w->n_mats == set->all[k].n_mats && w->cols == set->all[k].cols && a.experts == b.experts;

    for (int64_t e = 0; same && e < a.n_tensors; e++) {
        const rg_tensor *t = tensor_at(set, i, &a, e), *u = tensor_at(set, k, &b, e);
        const int32_t *p = t ? t->order : NULL, *q = u ? u->order : NULL;

        same = p == q || (p && q && !memcmp(p, q, (size_t)w->cols * sizeof *p));
    }
    return same;
}

/* Number the order of columns of weight i: as that of another one in its layer, or anew. */
static void number_order(rg_weight_set *set, int i, const rg_config *c, const rg_checkpoint *ckpt)
{
    rg_weight_source s = rg_weight_source_of(set->spec[i], c, ckpt, set->layer[i]);
    rg_weight *w = &set->all[i];
    bool ordered = false;

    for (int64_t e = 0; !ordered && e < s.n_tensors; e++) {
        const rg_tensor *t = tensor_at(set, i, &s, e);
        ordered = t && t->order;
    }
    for (int k = i - 1; ordered && !w->order && k >= 0 && set->layer[k] == set->layer[i]; k--)
        if (set->all[k].order && have_one_order(set, i, k, c, ckpt))
            w->order = set->all[k].order;
    if (ordered && !w->order)
        w->order = ++set->n_orders;
}

/* Networks that embed texts are published without a head. */
static bool is_of_head(const rg_weight_spec *spec, const rg_config *c, int layer)
{
    return layer < 0 && !c->target && (spec->role == W_LM_HEAD || spec->role == W_LM_HEAD_BIAS);
}

static bool declare_one(rg_weight_set *set, const rg_weight_spec *spec, const rg_config *c, const rg_checkpoint *ckpt,
                        int layer, rg_type type, rg_error *err)
{
    int i = set->n;
    rg_weight *w = &set->all[i];
    char *name = set->names + (size_t)i * RG_WEIGHT_NAME;
    rg_weight_source s = rg_weight_source_of(spec, c, ckpt, layer);
    uint64_t row;

    if (!s.name)
        return true;
    const rg_tensor *t = rg_weight_source_find(&s, 0, name);
    if (ckpt && !t && spec->optional && (rg_checkpoint_n_tensors(ckpt) || !spec->made_new))
        return true;
    if (ckpt && rg_checkpoint_n_tensors(ckpt) && !t && is_of_head(spec, c, layer)) {
        set->headless = true;
        return true;
    }
    if (ckpt && rg_checkpoint_n_tensors(ckpt) && !t && !spec->derive)
        return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing", rg_checkpoint_path(ckpt), name);
    set_shape(w, spec, c, layer);
    w->name = name;
    if (!check_size(w))
        return rg_fail(err, RG_E_INPUT, "%s: weight '%s' of %lld x %lld x %lld values: out of range",
                       ckpt ? rg_checkpoint_path(ckpt) : "config", name, (long long)w->n_mats, (long long)w->rows,
                       (long long)w->cols);
    if (t && !check_tensors(&s, t, err))
        return false;
    w->type = t ? kept_type(t, &s) : rg_spec_is_vector(spec) ? RG_F32 : type;
    if (!rg_row_bytes(w->type, w->cols, &row))
        return rg_fail(err, RG_E_INPUT, "%s: rows of %lld values cannot be cut into blocks of %s", name,
                       (long long)w->cols, rg_format_of(w->type)->name);
    set->spec[i] = spec;
    set->layer[i] = layer;
    set->settled[i] = w->type;
    set->n++;
    if (t)
        number_order(set, i, c, ckpt);
    if (!spec->derive) {
        set->n_parameters += (uint64_t)(w->n_mats * w->rows * w->cols);
        set->stored_bytes += (uint64_t)(w->n_mats * w->rows) * row;
        set->stored_bytes += w->order ? (uint64_t)(w->n_mats * w->cols) * sizeof(int32_t) : 0;
    }
    return true;
}

static int count_specs(const rg_weight_spec *spec)
{
    int n = 0;

    while (spec[n].shape[0])
        n++;
    return n;
}

/* The weights of one table that exist in a layer (-1: outside). */
static bool declare_table(rg_weight_set *s, const rg_weight_spec *spec, const rg_config *c, const rg_checkpoint *ckpt,
                          int layer, rg_type type, rg_error *err)
{
    for (; spec->shape[0]; spec++)
        if ((!spec->when || spec->when(c, layer)) && !declare_one(s, spec, c, ckpt, layer, type, err))
            return false;
    return true;
}

bool rg_weights_declare(rg_weight_set *s, const rg_config *c, const rg_checkpoint *ckpt, rg_type type, rg_error *err)
{
    size_t room = (size_t)count_specs(c->arch->weights);

    for (int i = 0; i < c->n_layers; i++)
        room += (size_t)count_specs(rg_layer_kind_of(c, i)->weights);
    *s = (rg_weight_set){ .backend = rg_backend_nth(0) };
    s->all = rg_array(room, sizeof *s->all);
    s->spec = rg_array(room, sizeof *s->spec);
    s->layer = rg_array(room, sizeof *s->layer);
    s->placed = rg_array(room, sizeof *s->placed);
    s->settled = rg_array(room, sizeof *s->settled);
    s->names = rg_array(room, RG_WEIGHT_NAME);
    if (!s->all || !s->spec || !s->layer || !s->placed || !s->settled || !s->names)
        return rg_fail_memory(err, room * (sizeof *s->all + RG_WEIGHT_NAME));
    for (int i = -1; i < c->n_layers; i++) {
        const rg_weight_spec *spec = i < 0 ? c->arch->weights : rg_layer_kind_of(c, i)->weights;

        if (!declare_table(s, spec, c, ckpt, i, type, err))
            return false;
    }
    return true;
}

/* ---- bind ---- */

/* Rows of a source that are placed, all its matrices' rows being counted through; to: the first of them in p. */
typedef struct row_range {
    int64_t first, n, to;
} row_range;

void rg_weights_put_row(rg_placed *p, const rg_weight *w, int64_t at, const uint8_t *row)
{
    const rg_format *fmt = rg_format_of(p->type);
    const rg_weight_part *part = p->n_mats == w->n_mats && p->rows == w->rows && p->cols == w->cols ? NULL : w->part;
    int64_t mat = at / w->rows, r = at % w->rows;

    if (part && part->split == RG_CUT_MATS)
        mat -= part->first;
    else if (part && part->split == RG_CUT_ROWS)
        r -= part->first;
    else if (part)
        row += part->first / fmt->block_len * fmt->block_bytes;
    if (mat >= 0 && mat < p->n_mats && r >= 0 && r < p->rows)
        p->owner->weight_put(p, mat, r, row);
}

/* Put rows from values in f32, encoded again as p's type.  Exact, since that is the source's type or f32, but for F16
 * that is rounded. */
static bool put_values(rg_placed *p, const rg_weight *w, const float *values, row_range r, rg_error *err)
{
    const rg_format *fmt = rg_format_of(p->type);
    uint64_t bytes;
    void *row = rg_row_bytes(p->type, w->cols, &bytes) ? rg_alloc(bytes) : NULL;

    if (!row)
        return rg_fail_memory(err, (size_t)w->cols * 4);
    for (int64_t i = 0; i < r.n; i++) {
        fmt->encode(values + (r.first + i) * w->cols, w->cols / fmt->block_len, row);
        rg_weights_put_row(p, w, r.to + i, row);
    }
    rg_free(row);
    return true;
}

/* The order of columns of a matrix, if it is here. */
static void put_order(rg_placed *p, const rg_weight *w, int64_t mat, const int32_t *order)
{
    if (w->part && w->part->split == RG_CUT_MATS && p->n_mats != w->n_mats)
        mat -= w->part->first;
    if (mat >= 0 && mat < p->n_mats)
        p->owner->weight_order(p, mat, order);
}

/* True if none of m rows, from the one at `at` on, is this rank's. */
static bool is_elsewhere(const rg_weight *w, int64_t at, int64_t m)
{
    const rg_weight_part *part = w->part;
    const int64_t each = part && part->split == RG_CUT_MATS ? w->rows : 1;

    if (!part || part->split == RG_CUT_COLS || (part->split == RG_CUT_ROWS && w->n_mats > 1))
        return false;
    return at + m <= part->first * each || at >= (part->first + part->n) * each;
}

/* F16 becomes the nearest bf16, of two the even one.  In place, since both have 16 bits. */
static void round_values(uint16_t *x, size_t n)
{
    for (size_t k = 0; k < n; k++)
        x[k] = rg_f32_to_bf16(rg_f16_to_f32(x[k]));
}

/* Put rows of one tensor, a few megabytes at a time. */
static bool put_rows(rg_placed *p, const rg_weight_source *s, const rg_tensor *t, const rg_weight *w, row_range range,
                     rg_error *err)
{
    uint64_t bytes = 0;
    int64_t n = range.n, at_once;
    bool ordered = false;

    if (!rg_row_bytes(t->type, w->cols, &bytes) || !bytes)
        return rg_fail(err, RG_E_INPUT, "%s: rows of %lld values are no multiple of a block", t->name,
                       (long long)w->cols);
    at_once = (4 << 20) / (int64_t)bytes + 1;
    at_once = at_once < n ? at_once : n;
    uint8_t *buf = rg_alloc_tail(0, (size_t)at_once, bytes);
    if (!buf)
        return rg_fail_memory(err, (size_t)at_once * bytes);
    for (int64_t i = 0; i < n; i += at_once) {
        int64_t m = n - i < at_once ? n - i : at_once;
        if (is_elsewhere(w, range.to + i, m))
            continue;
        if (!rg_weight_source_rows(s, t, range.first + i, m, buf, err)) {
            rg_free(buf);
            return false;
        }
        if (p->type != w->type)
            round_values((uint16_t *)(void *)buf, (size_t)(m * w->cols));
        if (t->order && !ordered)
            for (int64_t mat = range.to / w->rows; mat <= (range.to + n - 1) / w->rows; mat++)
                put_order(p, w, mat, t->order);
        ordered = true;
        for (int64_t r = 0; r < m; r++)
            rg_weights_put_row(p, w, range.to + i + r, buf + (uint64_t)r * bytes);
    }
    rg_free(buf);
    return true;
}

/* The tensor of matrix e where there is one per matrix, which must be of the weight's type. */
static const rg_tensor *tensor_of(rg_weight_source *s, const rg_weight *w, int64_t e, rg_error *err)
{
    char name[RG_WEIGHT_NAME];
    const rg_tensor *t = rg_weight_source_find(s, (int)e, name);

    RG_ASSERT(t); /* it was declared */
    if (t->type != w->type)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: tensor '%s' is %s where its neighbours are %s",
                       rg_checkpoint_path(s->ckpt), t->name, rg_format_of(t->type)->name,
                       rg_format_of(w->type)->name), NULL;
    return t;
}

/* Put n matrices from mat on as the first ones of p. */
static bool put_mats(rg_placed *p, rg_weight_source *s, const rg_weight *w, int64_t mat, int64_t n, rg_error *err)
{
    const row_range range = { s->experts ? 0 : mat * w->rows, n * w->rows, 0 };

    if (s->load) {
        char name[RG_WEIGHT_NAME];
        float *values =
            rg_weight_source_values(s, rg_weight_source_find(s, 0, name), s->load, w->n_mats * w->rows * w->cols, err);
        bool ok = values && put_values(p, w, values, range, err);
        rg_free(values);
        return ok;
    }
    for (int64_t e = 0; e < (s->experts ? n : 1); e++) {
        const rg_tensor *t = tensor_of(s, w, mat + e, err);
        row_range one = s->experts ? (row_range){ 0, w->rows, e * w->rows } : range;
        if (!t || !put_rows(p, s, t, w, one, err))
            return false;
    }
    return true;
}

rg_placing rg_weights_placing(const rg_weight *w, rg_type type, int64_t n_mats)
{
    return (rg_placing){ .type = type, .n_mats = n_mats, .rows = w->rows, .cols = w->cols, .ordered = w->order,
                         .wide = w->wide };
}

rg_type rg_weights_placed_type(const rg_weight_set *set, int i)
{
    return set->placed[i] ? set->placed[i]->type : set->settled[i];
}

rg_type rg_weights_given_type(const rg_weight_set *set, int i)
{
    const rg_type type = set->all[i].type;

    return set->round16 && type == RG_F16 && !rg_spec_is_vector(set->spec[i]) ? RG_BF16 : type;
}

/* Weight i, or a part of it, which w is. */
static rg_placed *place(const rg_weight_set *set, int i, const rg_weight *w, int64_t n_mats, rg_error *err)
{
    const rg_placing what = rg_weights_placing(w, rg_weights_given_type(set, i), n_mats);

    return set->backend->weight_new(set->backend, &what, err);
}

/* Matrix mat of weight i alone, as it is given to the back end. */
static rg_placed *place_one_mat(const rg_weight_set *set, int i, rg_weight_source *s, int64_t mat,
                                rg_error *err)
{
    const rg_weight *w = &set->all[i];
    rg_placed *p = place(set, i, w, 1, err);

    if (!p || put_mats(p, s, w, mat, 1, err))
        return p;
    rg_placed_free(p);
    return NULL;
}

rg_placed *rg_weights_place_mat(const rg_weight_set *set, int i, int64_t mat, const rg_config *c,
                                const rg_checkpoint *ckpt, rg_error *err)
{
    rg_weight_source s = rg_weight_source_of(set->spec[i], c, ckpt, set->layer[i]);
    rg_placed *p = place_one_mat(set, i, &s, mat, err);

    if (p && rg_weights_placed_type(set, i) != p->type)
        p->owner->weight_end(p);
    return p;
}

/* Experts that stay in a file, all of which have one type: if it is BF16, they are placed twice, here to see it. */
static bool settle_type(rg_weight_set *set, int i, const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const rg_weight *w = &set->all[i];
    rg_weight_source s = rg_weight_source_of(set->spec[i], c, ckpt, set->layer[i]);
    const rg_type given = rg_weights_given_type(set, i);
    bool ok = true, fits = given == RG_F16;

    for (int64_t mat = 0; ok && fits && mat < w->n_mats; mat++) {
        rg_placed *one = place_one_mat(set, i, &s, mat, err);

        ok = one;
        if (ok)
            one->owner->weight_end(one);
        fits = ok && one->type == RG_BF16;
        rg_placed_free(one);
    }
    set->settled[i] = fits ? RG_BF16 : given;
    return ok;
}

bool rg_weights_is_apart(const rg_weight_set *set, int i)
{
    int role = set->spec[i]->role;

    return set->experts_apart && (role == W_GATE_EXPERTS || role == W_UP_EXPERTS || role == W_DOWN_EXPERTS);
}

static int64_t n_values(const rg_weight *w)
{
    return w->n_mats * w->rows * w->cols;
}

/* Refuse values that are not finite in columns that may be skipped: 0 times infinity would not be 0. */
static bool check_numbers(const rg_placed *p, const rg_weight *w, rg_error *err)
{
    float *row = rg_array((size_t)w->cols, sizeof *row);
    bool ok = row || rg_fail_memory(err, (size_t)w->cols * sizeof *row);

    for (int64_t r = 0; ok && r < w->rows; r++) {
        p->owner->weight_get(p, 0, r, row);
        for (int64_t k = 0; ok && k < w->cols; k++)
            ok = isfinite(row[k]) ||
                 rg_fail(err, RG_E_INPUT, "%s: a weight is not finite, so that no column can be skipped", w->name);
    }
    rg_free(row);
    return ok;
}

bool rg_weights_place_vector(rg_weight_set *s, int i, rg_error *err)
{
    rg_weight *w = &s->all[i];
    const rg_placing what = { .type = RG_F32, .n_mats = 1, .rows = 1, .cols = n_values(w), .vector = true };

    if (s->backend->reads_host)
        return true;
    if (!w->placed_vec)
        w->placed_vec = s->backend->weight_new(s->backend, &what, err);
    if (w->placed_vec)
        s->backend->weight_put((rg_placed *)(uintptr_t)w->placed_vec, 0, 0, w->vec); /* const: for those who read it */
    return w->placed_vec;
}

/* Weight i, or what this rank has of it, is what was placed. */
void rg_weights_set_placed(rg_weight_set *s, int i)
{
    if (s->all[i].part)
        s->parts[i].here.placed = s->placed[i];
    else
        s->all[i].placed = s->placed[i];
}

static bool bind_one(rg_weight_set *set, int i, const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    rg_weight *w = &set->all[i];
    rg_weight_source s = rg_weight_source_of(set->spec[i], c, ckpt, set->layer[i]);
    char name[RG_WEIGHT_NAME];
    const rg_tensor *t = rg_weight_source_find(&s, 0, name);

    if (!t) /* a checkpoint without weights */
        return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is missing", rg_checkpoint_path(ckpt), w->name);
    if (rg_spec_is_vector(set->spec[i])) {
        w->vec = rg_weight_source_vector(&s, n_values(w), err);
        return w->vec && rg_weights_place_vector(set, i, err);
    }
    const rg_weight *own = w->part ? &w->part->here : w;
    rg_placed *p = set->placed[i] = place(set, i, own, own->n_mats, err); /* freed with the set */
    if (!p || !put_mats(p, &s, w, 0, w->n_mats, err) || (w->wide && !check_numbers(p, w, err)))
        return false;
    p->owner->weight_end(p);
    rg_weights_set_placed(set, i);
    return true;
}

/* Work on the weights, shared out. */
typedef struct sharing {
    rg_weight_set *set;
    const rg_weight_work *work;
    rg_pool *pool;
    atomic_llong n_done;      /* values of the weights that are done */
    atomic_bool failed;
    struct {
        int weight;           /* that this thread failed at; -1: none */
        rg_error err;
    } *thread;
} sharing;

static void do_some(void *arg, int thread)
{
    sharing *b = arg;
    rg_weight_set *set = b->set;
    const rg_weight_work *work = b->work;

    /* The first weight of each thread is tried even after a failure: what is reported does not depend on speed. */
    for (int i; (i = rg_phase_take(b->pool, 0, set->n)) >= 0 && (i < work->n_threads || !atomic_load(&b->failed));) {
        if (!work->each(work->arg, i, &b->thread[thread].err)) {
            b->thread[thread].weight = i;
            atomic_store(&b->failed, true);
        }
        if (!set->spec[i]->derive)
            atomic_fetch_add(&b->n_done, n_values(&set->all[i]));
        if (thread == 0 && work->progress)
            work->progress(work->progress_arg, work->what,
                           (double)atomic_load(&b->n_done) / ((double)set->n_parameters + 1));
    }
}

/* Report the error of the first weight that failed: all weights before it were begun before it, and succeeded. */
static bool sharing_ended(const sharing *b, int n_threads, rg_error *err)
{
    int first = -1;

    for (int i = 0; i < n_threads; i++)
        if (b->thread[i].weight >= 0 && (first < 0 || b->thread[i].weight < b->thread[first].weight))
            first = i;
    if (first >= 0 && err)
        *err = b->thread[first].err;
    return first < 0;
}

bool rg_weights_each(rg_weight_set *s, const rg_weight_work *work, rg_error *err)
{
    sharing b = { .set = s, .work = work };
    int n_threads = work->n_threads;
    bool ok = false;

    b.pool = rg_pool_new(n_threads, err);
    if (!b.pool)
        return false;
    b.thread = rg_array((size_t)n_threads, sizeof *b.thread);
    if (b.thread) {
        for (int i = 0; i < n_threads; i++)
            b.thread[i].weight = -1;
        rg_pool_run(b.pool, n_threads, do_some, &b);
        ok = sharing_ended(&b, n_threads, err);
    } else {
        rg_fail_memory(err, (size_t)n_threads * sizeof *b.thread);
    }
    rg_free(b.thread);
    rg_pool_free(b.pool);
    if (ok && work->progress)
        work->progress(work->progress_arg, work->what, 1);
    return ok;
}

void rg_weights_count_bytes(rg_weight_set *s)
{
    s->bytes = s->paged ? s->backend->paging->count(s->paged).bytes : 0;
    for (int i = 0; i < s->n; i++)
        if (s->all[i].vec || s->placed[i])
            s->bytes += s->all[i].vec ? (uint64_t)n_values(&s->all[i]) * sizeof(float) : s->placed[i]->bytes;
}

typedef struct binding {
    rg_weight_set *set;
    const rg_config *c;
    const rg_checkpoint *ckpt;
} binding;

static bool derive_one(rg_weight_set *set, int i, const rg_config *c, rg_error *err)
{
    const rg_weight *of_layer[W_COUNT] = { 0 };
    rg_weight *w = &set->all[i];
    float *values = rg_array((size_t)n_values(w), sizeof *values);

    RG_ASSERT(rg_spec_is_vector(set->spec[i]));
    if (!values)
        return rg_fail_memory(err, (size_t)n_values(w) * sizeof *values);
    w->vec = values;
    for (int k = 0; k < set->n; k++)
        if (set->layer[k] == set->layer[i])
            of_layer[set->spec[k]->role] = &set->all[k];
    return set->spec[i]->derive(c, set->layer[i], of_layer, values, err) && rg_weights_place_vector(set, i, err);
}

/* Bind weight i.  The checkpoint's own weights come first, then the weights computed from them. */
static bool bind_each(void *arg, int i, rg_error *err)
{
    const binding *b = arg;

    if (b->set->spec[i]->derive)
        return true;
    if (rg_weights_is_apart(b->set, i))
        return settle_type(b->set, i, b->c, b->ckpt, err);
    return b->ckpt ? bind_one(b->set, i, b->c, b->ckpt, err) : rg_weights_random(b->set, i, b->c, err);
}

static bool derive_each(void *arg, int i, rg_error *err)
{
    const binding *b = arg;

    return !b->set->spec[i]->derive || derive_one(b->set, i, b->c, err);
}

bool rg_weights_bind(rg_weight_set *s, const rg_config *c, const rg_checkpoint *ckpt, int n_threads,
                     void (*progress)(void *arg, const char *what, double done), void *arg, rg_error *err)
{
    binding b = { s, c, ckpt };
    const rg_weight_work derive = { .each = derive_each, .arg = &b, .n_threads = n_threads };
    bool derived = false;

    for (int i = 0; i < s->n; i++)
        derived = derived || s->spec[i]->derive;
    if (!rg_weights_each(s, &(rg_weight_work){ bind_each, &b, n_threads, "packing weights", progress, arg }, err) ||
        (derived && !rg_weights_each(s, &derive, err)))
        return false;
    rg_weights_count_bytes(s);
    return true;
}

bool rg_weights_bind_layer(rg_weight_set *s, int layer, const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    binding b = { s, c, ckpt };

    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < s->n; i++)
            if (s->layer[i] == layer && !(pass ? derive_each(&b, i, err) : bind_each(&b, i, err)))
                return false;
    return true;
}

/* ---- what is left over ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && !strcmp(name + n - k, end);
}

/* Buffers that were saved beside the weights, and follow from the config. */
static bool is_ignored(const rg_config *c, const rg_tensor *t)
{
    bool yes = ends_with(t->name, ".rotary_emb.inv_freq");

    for (int i = 0; c->arch->ignored && c->arch->ignored[i]; i++)
        yes = yes || ends_with(t->name, c->arch->ignored[i]);
    return yes;
}

bool *rg_weights_used(const rg_weight_set *s, const rg_config *c, const rg_checkpoint *ckpt, int *n_unused,
                      rg_error *err)
{
    int n = rg_checkpoint_n_tensors(ckpt);
    const rg_tensor *first = rg_checkpoint_tensor(ckpt, 0);
    bool *used = rg_array((size_t)n, sizeof *used);
    char name[RG_WEIGHT_NAME];

    if (!used)
        return rg_fail_memory(err, (size_t)n), NULL;
    for (int i = 0; i < s->n; i++) {
        rg_weight_source o = rg_weight_source_of(s->spec[i], c, ckpt, s->layer[i]);
        for (int64_t e = 0; e < o.n_tensors; e++) {
            const rg_tensor *t = rg_weight_source_find(&o, (int)e, name);
            if (t)
                used[t - first] = true;
        }
    }
    *n_unused = 0;
    for (int i = 0; i < n; i++) {
        used[i] = used[i] || is_ignored(c, &first[i]) || rg_tensor_is_of_other_part(ckpt, &first[i]) ||
                  rg_tied_has_copy(c, ckpt, &first[i]);
        *n_unused += !used[i];
    }
    return used;
}

static void unbind_one(rg_weight_set *s, int i)
{
    rg_free((void *)(uintptr_t)s->all[i].vec);
    rg_placed_free((rg_placed *)(uintptr_t)s->all[i].placed_vec);
    rg_placed_free(s->placed[i]);
    s->placed[i] = NULL;
    s->all[i].placed_vec = NULL;
    s->settled[i] = s->all[i].type;
    s->all[i].vec = NULL;
    s->all[i].placed = NULL;
}

void rg_weights_replace(rg_weight_set *s, int i, rg_placed *with)
{
    rg_placed_free(s->placed[i]);
    s->all[i].placed = s->placed[i] = with;
    s->all[i].type = with->type;
}

void rg_weights_unbind(rg_weight_set *s)
{
    for (int i = 0; i < s->n; i++)
        unbind_one(s, i);
    if (s->paged)
        s->backend->paging->close(s->paged);
    s->paged = NULL;
}

void rg_weights_unbind_layer(rg_weight_set *s, int layer)
{
    for (int i = 0; i < s->n; i++)
        if (s->layer[i] == layer)
            unbind_one(s, i);
}

bool rg_weights_borrow(rg_weight_set *s, const rg_weight_set *of, rg_error *err)
{
    const size_t n = (size_t)of->n;

    *s = *of;
    s->is_borrowed = true;
    s->paged = NULL;
    s->bytes = 0;
    s->all = rg_array(n, sizeof *s->all);
    s->placed = rg_array(n, sizeof *s->placed);
    if (!s->all || !s->placed)
        return rg_fail_memory(err, n * sizeof *s->all);
    memcpy(s->all, of->all, n * sizeof *s->all);
    memset(s->placed, 0, n * sizeof *s->placed);
    return true;
}

void rg_weights_fini(rg_weight_set *s)
{
    for (int i = 0; i < s->n && s->is_borrowed && s->placed; i++)
        rg_placed_free(s->placed[i]);
    if (!s->is_borrowed) {
        rg_weights_unbind(s);
        rg_free(s->spec);
        rg_free(s->layer);
        rg_free(s->settled);
        rg_free(s->parts);
        rg_free(s->names);
    }
    rg_free(s->all);
    rg_free(s->placed);
    memset(s, 0, sizeof *s);
}

const rg_weight *rg_weights_get(const rg_weight_set *s, int role, int layer)
{
    for (int i = 0; i < s->n; i++)
        if (s->layer[i] == layer && s->spec[i]->role == role)
            return &s->all[i];
    return NULL;
}

const char *rg_weights_commonest_type(const rg_weight_set *s)
{
    uint64_t bytes[RG_TYPE_COUNT] = { 0 }, row;
    rg_type best = RG_F32;

    for (int i = 0; i < s->n; i++)
        if (rg_row_bytes(s->all[i].type, s->all[i].cols, &row))
            bytes[s->all[i].type] += row * (uint64_t)(s->all[i].n_mats * s->all[i].rows);
    for (int t = 0; t < RG_TYPE_COUNT; t++)
        if (bytes[t] > bytes[best])
            best = (rg_type)t;
    return rg_format_of(best)->name;
}
