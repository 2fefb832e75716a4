/* convert.c -- see convert.h.
 *
 * First a list of what the output will hold, one item per tensor: its name, type and shape, and where its values come
 * from.  Then, item by item, a few megabytes of rows at a time: read by the caller, decoded and encoded by all threads,
 * written by the caller.  Only a weight with a transform of its own needs its whole source in f32. */
#include "model/convert.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/pool.h"
#include "model/notes.h"
#include "model/weight_source.h"
#include "model/tied.h"
#include "model/weights.h"

enum {
    NAME_ROOM = 512 + 8,   /* of a tensor, and of the part that is put after it */
    CHUNK_VALUES = 1 << 21, /* read and encoded at once, unless a row is longer */
    TAKE_VALUES = 1 << 14,  /* taken by a thread at once, likewise */
    GGUF_TYPE_U32 = 4,
};

typedef struct item {
    char *name;
    rg_type type;
    int n_dims;
    int64_t shape[RG_MAX_DIMS];
    int64_t n_rows, n_cols;
    const rg_tensor *tensor; /* the first, where there is one per expert; NULL: rope factors */
    rg_weight_source source;        /* of a weight from a Hugging Face directory; spec NULL: the tensor as it is */
    rg_load_fn *load;
    bool paired;
    int variant;             /* of rope factors */
    bool coded;              /* its rows are asked for */
} item;

typedef struct convert {
    const rg_checkpoint *from;
    const rg_convert_options *o;
    rg_convert_report *report;
    rg_config config;
    rg_weight_set weights;
    rg_config module;      /* that predicts further tokens; config.n_modules 0: none, or GGUF has no form of it */
    rg_weight_set module_weights;
    item *items;
    int n_items;
    char *names; /* NAME_ROOM each; the report's */
    rg_ckpt_writer *w;
    rg_pool *pool;
    float **scratch; /* a row's values for each thread */
    uint64_t values_done;
} convert;

/* ---- types ---- */

/* For rows that its blocks do not divide: the type of 32-value blocks with about as many bits. */
static rg_type choose_type(rg_type wanted, int64_t cols)
{
    static const rg_type nearest[RG_TYPE_COUNT] = {
        [RG_Q2_K] = RG_Q4_0, [RG_Q3_K] = RG_Q4_0, [RG_Q4_K] = RG_Q4_1, [RG_Q5_K] = RG_Q5_0, [RG_Q6_K] = RG_Q8_0,
    };
    uint64_t bytes;

    if (rg_row_bytes(wanted, cols, &bytes))
        return wanted;
    if (rg_format_of(wanted)->block_len > 32 && rg_row_bytes(nearest[wanted], cols, &bytes))
        return nearest[wanted];
    return RG_F16;
}

static bool stays_f32(const rg_weight_spec *spec)
{
    return rg_spec_is_vector(spec) || spec->role == W_ROUTER || spec->role == W_SHARED_ROUTER;
}

/* ---- the list ---- */

static item *add_item(convert *v, const char *name, const rg_tensor *t)
{
    item *it = &v->items[v->n_items];

    it->name = v->names + (size_t)v->n_items++ * NAME_ROOM;
    snprintf(it->name, NAME_ROOM, "%s", name);
    it->tensor = t;
    return it;
}

static void set_shape(convert *v, item *it, int n_dims, const int64_t *shape)
{
    it->n_dims = n_dims;
    it->n_rows = it->n_cols = 1;
    for (int i = 0; i < n_dims; i++) {
        it->shape[i] = shape[i];
        if (i + 1 < n_dims)
            it->n_rows *= shape[i];
        else
            it->n_cols = shape[i];
    }
    v->report->n_values += (uint64_t)(it->n_rows * it->n_cols);
}

/* The type of a tensor that somebody else has coded. */
static bool is_coded(convert *v, item *it)
{
    const rg_convert_coded *c = v->o->coded;

    return it->coded = c && it->tensor && !it->load && c->type(c->arg, it->tensor, &it->type);
}

static void choose(convert *v, item *it)
{
    const bool is_head =
        !rg_checkpoint_find(v->from, "lm_head.weight") && !rg_checkpoint_find(v->from, "output.weight");
    const rg_type wanted = v->o->mixture ? rg_mixture_type(v->o->mixture, it->name, v->config.n_layers, is_head)
                                         : v->o->type;
    rg_convert_report *r = v->report;

    it->type = choose_type(wanted, it->n_cols);
    if (it->type != wanted)
        r->fallbacks[r->n_fallbacks++] = (rg_fallback){ it->name, it->type };
}

static bool make_room(convert *v, size_t n, rg_error *err)
{
    v->items = rg_array(n, sizeof *v->items);
    v->names = rg_array(n, NAME_ROOM);
    v->report->names = v->names;
    v->report->fallbacks = rg_array(n, sizeof *v->report->fallbacks);
    if (!v->items || !v->names || !v->report->fallbacks)
        return rg_fail_memory(err, n * (sizeof *v->items + NAME_ROOM));
    return true;
}

/* "blk.N." before the name of a layer's weight; one that begins with '/' is whole, with '#' for the number. */
static void name_in_gguf(const rg_weight_spec *spec, int first_layer, int layer, char name[NAME_ROOM])
{
    const size_t len = strlen(spec->gguf);
    const bool bias = len > 5 && !strcmp(spec->gguf + len - 5, ".bias");
    const char *end = bias || spec->bare ? "" : ".weight";
    const bool whole = spec->gguf[0] == '/';
    const char *hash = whole ? strchr(spec->gguf, '#') : NULL;

    if (hash)
        snprintf(name, NAME_ROOM, "%.*s%d%s%s", (int)(hash - spec->gguf - 1), spec->gguf + 1, first_layer, hash + 1,
                 end);
    else if (layer >= 0 && !whole)
        snprintf(name, NAME_ROOM, "blk.%d.%s%s", first_layer + layer, spec->gguf, end);
    else
        snprintf(name, NAME_ROOM, "%s%s", spec->gguf + whole, end);
}

/* One weight of a Hugging Face directory as GGUF has it.  A tensor that holds several weights is written as it is, when
 * the first of them comes. */
static bool plan_weight(convert *v, const rg_config *c, const rg_weight_spec *spec, int layer, rg_error *err)
{
    rg_weight_source s = rg_weight_source_of(spec, c, v->from, layer);
    char name[NAME_ROOM], found[RG_WEIGHT_NAME];
    const rg_tensor *t = rg_weight_source_find(&s, 0, found);
    rg_weight_spec separate = *spec;
    int64_t shape[RG_LEN(spec->gguf_shape)];
    int n = 0;

    if (spec->derive)
        return true;
    if (!t || !spec->gguf)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: GGUF has no name for the weight '%s'", rg_checkpoint_path(v->from),
                       found);
    if (!rg_weight_source_check(&s, t, err))
        return false;
    if (spec->first_row && spec->first_row(c, layer) > 0 && !spec->split_in_gguf && !s.relaid)
        return true;
    if (s.relaid && spec->gguf && !spec->split_in_gguf && spec->first_row)
        separate.gguf = spec->role == W_UP_EXPERTS ? "ffn_up_exps" : "ffn_gate_exps"; /* of gate and up in one */
    name_in_gguf(&separate, c->first_layer, layer, name);
    item *it = add_item(v, name, t);
    it->source = s;
    it->load = spec->to_gguf && !s.relaid ? spec->to_gguf : s.load;
    it->paired = spec->paired;
    if (spec->gguf_shape[0]) {
        for (; n < (int)RG_LEN(spec->gguf_shape) && spec->gguf_shape[n]; n++)
            shape[n] = spec->gguf_shape[n](c, layer);
    } else if (!s.relaid && (spec->to_gguf || (s.part && !spec->split_in_gguf))) {
        for (; n < 3 && spec->stored[n]; n++)
            shape[n] = spec->stored[n](c, layer);
        it->source.part = false;
        it->source.rows = it->source.stored_rows;
        it->source.row_step = it->source.row_run = 1;
    } else {
        for (; n < rg_spec_dims(spec); n++)
            shape[n] = spec->shape[n](c, layer);
    }
    set_shape(v, it, n, shape);
    if (is_coded(v, it))
        return true;
    if (stays_f32(spec) || n == 1)
        it->type = RG_F32;
    else
        choose(v, it);
    return true;
}

/* One tensor of factors, by the name that the architecture's table has for it. */
static bool plan_factors(convert *v, int role, int variant, rg_error *err)
{
    const rg_weight_spec *spec = v->config.arch->weights;
    int64_t n = v->config.ropes[0].dim / 2;
    char name[NAME_ROOM];

    while (spec->shape[0] && spec->role != role)
        spec++;
    if (!spec->shape[0])
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: GGUF has no rope of this type for this architecture",
                       rg_checkpoint_path(v->from));
    snprintf(name, sizeof name, "%s.weight", spec->gguf);
    item *it = add_item(v, name, NULL);
    it->type = RG_F32;
    it->variant = variant;
    set_shape(v, it, 1, &n);
    return true;
}

/* The scalings of rope that GGUF has as tensors of factors. */
static bool plan_rope_factors(convert *v, rg_error *err)
{
    const rg_config *c = &v->config;

    if (c->n_ropes && (c->ropes[0].type == RG_ROPE_LLAMA3 || c->ropes[0].type == RG_ROPE_PROPORTIONAL))
        return plan_factors(v, W_ROPE_FREQS, 0, err);
    if (c->n_ropes && c->ropes[0].type == RG_ROPE_LONG)
        return plan_factors(v, W_ROPE_LONG, 1, err) && plan_factors(v, W_ROPE_SHORT, 0, err);
    return true;
}

/* The module that predicts further tokens, if the checkpoint brings one and GGUF has a form of it. */
static bool declare_module(convert *v, rg_error *err)
{
    const rg_arch *mtp = v->config.arch->mtp;

    if (!mtp || !mtp->gguf_name || !rg_config_read_draft(&v->module, v->from, &v->config, true, NULL))
        return true;
    v->config.n_modules = 1;
    return rg_weights_declare(&v->module_weights, &v->module, v->from, RG_F32, err);
}

static bool count_left_out(convert *v, rg_error *err)
{
    const int n = rg_checkpoint_n_tensors(v->from);
    int *n_left = &v->report->n_left_out, unused;
    bool *used = rg_weights_used(&v->weights, &v->config, v->from, n_left, err), *more = NULL;

    if (used && v->config.n_modules)
        more = rg_weights_used(&v->module_weights, &v->module, v->from, &unused, err);
    for (int i = 0; more && i < n; i++)
        *n_left -= more[i] && !used[i];
    rg_free(used);
    rg_free(more);
    return used && (more || !v->config.n_modules);
}

static bool plan_hf_to_gguf(convert *v, rg_error *err)
{
    if (!v->config.arch->gguf_name)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: GGUF has no form of %s", rg_checkpoint_path(v->from),
                       rg_config_name(&v->config));
    if (!declare_module(v, err) ||
        !make_room(v, (size_t)v->weights.n + (size_t)v->module_weights.n + RG_ROPE_VARIANTS, err) ||
        !plan_rope_factors(v, err))
        return false;
    for (int i = 0; i < v->weights.n; i++)
        if (!plan_weight(v, &v->config, v->weights.spec[i], v->weights.layer[i], err))
            return false;
    for (int i = 0; i < v->module_weights.n; i++)
        if (!plan_weight(v, &v->module, v->module_weights.spec[i], v->module_weights.layer[i], err))
            return false;
    return count_left_out(v, err);
}

/* Tensors that no weight is made from stay as they are, but for a head that equals the embedding. */
static bool plan_gguf_to_gguf(convert *v, rg_error *err)
{
    int n = rg_checkpoint_n_tensors(v->from);
    rg_dict *weight_of = rg_dict_new((size_t)v->weights.n);
    char found[RG_WEIGHT_NAME];
    bool ok = weight_of && make_room(v, (size_t)n, err);

    if (!weight_of)
        rg_fail_memory(err, (size_t)v->weights.n);
    for (int i = 0; ok && i < v->weights.n; i++) {
        rg_weight_source s = rg_weight_source_of(v->weights.spec[i], &v->config, v->from, v->weights.layer[i]);
        const rg_tensor *t = rg_weight_source_find(&s, 0, found);
        ok = !t || rg_dict_put(weight_of, t->name, strlen(t->name), i) || rg_fail_memory(err, 64);
    }
    for (int i = 0; ok && i < n; i++) {
        const rg_tensor *t = rg_checkpoint_tensor(v->from, i);
        int which = rg_dict_get(weight_of, t->name, strlen(t->name));
        if (rg_tied_has_copy(&v->config, v->from, t))
            continue;
        item *it = add_item(v, t->name, t);
        set_shape(v, it, t->n_dims, t->shape);
        if (is_coded(v, it))
            continue;
        if (which < 0)
            it->type = t->type;
        else if (stays_f32(v->weights.spec[which]) || t->n_dims == 1)
            it->type = RG_F32;
        else
            choose(v, it);
    }
    rg_dict_free(weight_of);
    return ok;
}

/* Convert every tensor of a real type, whatever it is for; copy the others. */
static bool plan_hf_to_hf(convert *v, rg_error *err)
{
    int n = rg_checkpoint_n_tensors(v->from);

    if (!make_room(v, (size_t)n, err))
        return false;
    for (int i = 0; i < n; i++) {
        const rg_tensor *t = rg_checkpoint_tensor(v->from, i);
        item *it = add_item(v, t->name, t);
        const rg_format *f = rg_format_of(t->type);
        if (t->n_dims > 2 && f->block_len > 1)
            return rg_fail(err, RG_E_UNSUPPORTED,
                           "%s: tensor '%s' holds matrices of %s, which stand otherwise in plain weights: take --to "
                           "gguf",
                           rg_checkpoint_path(v->from), t->name, f->name);
        set_shape(v, it, t->n_dims, t->shape);
        it->type = f->layout != RG_LAYOUT_NONE ? v->o->type : t->type;
    }
    return true;
}

/* ---- rows ---- */

typedef struct encoding {
    rg_pool *pool;
    const rg_format *from, *to;
    const rg_tensor *ordered; /* that raw is rows of, if its columns have an order */
    const uint8_t *raw;
    uint8_t *out;
    uint64_t raw_bytes, out_bytes; /* of a row */
    int64_t n_rows, n_cols, at_once;
    float **scratch;
    rg_type type;            /* of `to` */
    const float *importance; /* [n_cols]; NULL: not known */
} encoding;

static void encode_rows(void *arg, int thread)
{
    encoding *e = arg;
    uint32_t phase = 0;

    for (int c; (c = rg_phase_take(e->pool, phase, rg_ceil_div(e->n_rows, e->at_once))) >= 0;) {
        const int64_t i = e->at_once * c;
        for (int64_t r = i; r < i + e->at_once && r < e->n_rows; r++) {
            const uint8_t *row = e->raw + (uint64_t)r * e->raw_bytes;

            if (e->ordered)
                rg_tensor_decode(e->ordered, row, 1, e->scratch[thread]);
            else
                e->from->decode(row, e->n_cols / e->from->block_len, e->scratch[thread]);
            rg_encode_weighted(e->type, e->scratch[thread], e->importance, e->n_cols / e->to->block_len,
                               e->out + (uint64_t)r * e->out_bytes);
        }
    }
    rg_phase_end(e->pool, &phase);
}

static bool read_rows(const convert *v, const item *it, const rg_tensor *t, int64_t first, int64_t n,
                      uint64_t row_bytes, uint8_t *raw, rg_error *err)
{
    if (it->source.part || it->source.transposed)
        return rg_weight_source_rows(&it->source, t, first, n, raw, err);
    if (!it->paired)
        return rg_tensor_read(v->from, t, (uint64_t)first * row_bytes, raw, (size_t)n * row_bytes, err);
    for (int64_t r = 0; r < n; r++)
        if (!rg_tensor_read(v->from, t, (uint64_t)rg_paired_row(&v->config, first + r) * row_bytes,
                            raw + (uint64_t)r * row_bytes, row_bytes, err))
            return false;
    return true;
}

static bool report_progress(convert *v, int64_t n_values, rg_error *err)
{
    v->values_done += (uint64_t)n_values;
    if (v->o->progress)
        v->o->progress(v->o->progress_arg, "converting", (double)v->values_done / (double)v->report->n_values);
    if (v->o->stop && v->o->stop())
        return rg_fail(err, RG_E_IO, "stopped before the end; nothing was written");
    return true;
}

/* ---- importance -------------------------------------------------------------------------------------------------- */

/* A tensor of f32 whole, to be freed; NULL without an error: there is none of that name. */
static float *read_importance(const convert *v, const char *name, size_t n_name, const char *end, int64_t *n,
                              rg_error *err)
{
    char whole[NAME_ROOM + 16];

    if (n_name > NAME_ROOM)
        return NULL;
    rg_put_text(whole, name, n_name);
    rg_put_text(whole + n_name, end, strlen(end));
    const rg_tensor *t = rg_checkpoint_find(v->o->importance, whole);
    if (!t)
        return NULL;
    *n = rg_tensor_count(t);
    float *to = t->type == RG_F32 ? rg_alloc(t->bytes) : NULL;
    if (t->type != RG_F32)
        rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is not of f32", rg_checkpoint_path(v->o->importance), whole);
    else if (!to)
        rg_fail_memory(err, t->bytes);
    else if (!rg_tensor_read(v->o->importance, t, 0, to, t->bytes, err))
        return rg_free(to), NULL;
    return to;
}

/* Means of |x|, squared: by the name of the source's tensor. */
static float *squared_means(const convert *v, const char *name, size_t n_name, int64_t *n, rg_error *err)
{
    float *to = read_importance(v, name, n_name, "", n, err);

    for (int64_t i = 0; to && i < *n; i++)
        to[i] *= to[i];
    return to;
}

/* Sums of squares over the number of rows: by the name of the tensor in GGUF. */
static float *mean_squares(const convert *v, const char *name, int64_t cols, int64_t *n, rg_error *err)
{
    int64_t n_counts = 0;
    float *to = read_importance(v, name, strlen(name), ".in_sum2", n, err);
    float *counts = to ? read_importance(v, name, strlen(name), ".counts", &n_counts, err) : NULL;

    for (int64_t i = 0; to && counts && i < *n; i++)
        to[i] /= counts[i / cols % n_counts] > 0 ? counts[i / cols % n_counts] : 1;
    rg_free(counts);
    return to;
}

/* The importance of an item's columns, of each of its matrices or of all alike, to be freed.  NULL without an error: it
 * is not known. */
static float *importance_of(convert *v, const item *it, const rg_tensor *t, int64_t *n_mats, rg_error *err)
{
    const size_t n_name = t ? strlen(t->name) : 0, cut = strlen(".weight");
    rg_error why = { 0 };
    int64_t n = 0;

    if (!v->o->importance || !t || it->n_dims < 2)
        return NULL;
    float *to = mean_squares(v, it->name, it->n_cols, &n, &why);
    if (!to && why.code == RG_OK && n_name > cut && !strcmp(t->name + n_name - cut, ".weight"))
        to = squared_means(v, t->name, n_name - cut, &n, &why);
    if (to && n % it->n_cols)
        rg_fail(&why, RG_E_INPUT, "%s: there are %lld values for '%s', whose rows have %lld",
                rg_checkpoint_path(v->o->importance), (long long)n, t->name, (long long)it->n_cols);
    for (int64_t i = 0; to && why.code == RG_OK && i < n; i++)
        if (!(to[i] >= 0) || to[i] > 1e30f)
            rg_fail(&why, RG_E_INPUT, "%s: an importance of '%s' is not a number from 0 on",
                    rg_checkpoint_path(v->o->importance), t->name);
    if (why.code != RG_OK) {
        rg_free(to);
        *err = why;
        return NULL;
    }
    *n_mats = n / it->n_cols;
    v->report->n_important += to != NULL;
    return to;
}

/* n_rows rows: of t from row 0, or, t NULL, of values. */
static bool write_rows(convert *v, const item *it, const rg_tensor *t, const float *values, int64_t n_rows,
                       rg_error *err)
{
    rg_type from = t ? t->type : RG_F32;
    int64_t at_once = CHUNK_VALUES / it->n_cols + 1;
    encoding e = { v->pool, rg_format_of(from), rg_format_of(it->type), .ordered = t && t->order ? t : NULL,
                   .n_cols = it->n_cols, .scratch = v->scratch, .at_once = TAKE_VALUES / it->n_cols + 1,
                   .type = it->type };
    uint8_t *raw = NULL, *out = NULL;
    int64_t n_mats = 1, mat_rows = n_rows;
    rg_error why = { 0 };
    float *importance = importance_of(v, it, t, &n_mats, &why);
    bool ok = true;

    if (why.code != RG_OK)
        return *err = why, false;
    if (importance && n_mats > 1 && n_rows % n_mats == 0) /* of stacked matrices: a chunk is of one of them */
        mat_rows = n_rows / n_mats;

    if (!rg_row_bytes(from, it->n_cols, &e.raw_bytes) || !rg_row_bytes(it->type, it->n_cols, &e.out_bytes))
        return rg_free(importance), rg_fail(err, RG_E_INPUT, "%s: rows of %lld values are no whole blocks", it->name,
                                            (long long)it->n_cols);
    at_once = at_once < n_rows ? at_once : n_rows;
    if (t)
        raw = rg_array((size_t)at_once, e.raw_bytes);
    if (from != it->type)
        out = rg_array((size_t)at_once, e.out_bytes);
    if ((t && !raw) || (from != it->type && !out))
        ok = rg_fail_memory(err, (size_t)at_once * (e.raw_bytes + e.out_bytes));
    for (int64_t i = 0; ok && i < n_rows; i += e.n_rows) {
        const int64_t left = mat_rows - i % mat_rows;
        e.n_rows = left < at_once ? left : at_once;
        e.importance = importance ? importance + i / mat_rows % n_mats * it->n_cols : NULL;
        ok = !t || read_rows(v, it, t, i, e.n_rows, e.raw_bytes, raw, err);
        e.raw = t ? raw : (const uint8_t *)(values + i * it->n_cols);
        e.out = out;
        if (ok && out)
            rg_pool_run(v->pool, rg_pool_threads(v->pool), encode_rows, &e);
        ok = ok && rg_ckpt_write(v->w, out ? out : e.raw, (size_t)e.n_rows * e.out_bytes, err) &&
             report_progress(v, e.n_rows * it->n_cols, err);
    }
    rg_free(importance);
    rg_free(raw);
    rg_free(out);
    return ok;
}

/* Rows that somebody else has coded, n of tensor t. */
static bool write_coded(convert *v, const item *it, const rg_tensor *t, int64_t n, rg_error *err)
{
    uint64_t bytes;
    uint8_t *row = rg_row_bytes(it->type, it->n_cols, &bytes) ? rg_alloc(bytes) : NULL;
    bool ok = row || rg_fail_memory(err, (size_t)it->n_cols * sizeof(float));

    for (int64_t r = 0; ok && r < n; r++) {
        int64_t from = it->paired ? rg_paired_row(&v->config, r) : r;
        if (it->source.part)
            from =
                r / it->source.rows * it->source.stored_rows + rg_weight_source_row(&it->source, r % it->source.rows);
        ok = v->o->coded->row(v->o->coded->arg, t, from, row, err) && rg_ckpt_write(v->w, row, bytes, err);
    }
    rg_free(row);
    return ok && report_progress(v, n * it->n_cols, err);
}

/* A weight that needs all its values at once: made by a function, or a vector whose elements are reordered. */
static bool write_values(convert *v, item *it, rg_error *err)
{
    int64_t n = it->n_rows * it->n_cols;
    float *values = it->source.n_tensors > 1 ? rg_weight_source_vector(&it->source, n, err)
                                             : rg_weight_source_values(&it->source, it->tensor, it->load, n, err);
    float *placed = values;
    bool ok = values;

    if (ok && it->paired) {
        placed = rg_array((size_t)n, sizeof *placed);
        ok = placed || rg_fail_memory(err, (size_t)n * sizeof *placed);
        for (int64_t i = 0; ok && i < n; i++)
            placed[i] = values[rg_paired_row(&v->config, i)];
    }
    ok = ok && write_rows(v, it, NULL, placed, it->n_rows, err);
    if (placed != values)
        rg_free(placed);
    rg_free(values);
    return ok;
}

static bool write_item(convert *v, item *it, rg_error *err)
{
    int64_t n_tensors = it->source.experts ? it->shape[0] : 1;
    const bool table = it->source.experts && rg_spec_is_vector(it->source.spec);
    char name[RG_WEIGHT_NAME];

    if (!it->tensor) {
        float *factors = rg_array((size_t)it->n_cols, sizeof *factors);
        if (!factors)
            return rg_fail_memory(err, (size_t)it->n_cols * sizeof *factors);
        rg_rope_factors(&v->config.ropes[0], it->variant, factors);
        bool ok = write_rows(v, it, NULL, factors, 1, err);
        rg_free(factors);
        return ok;
    }
    if (!it->coded && (it->load || table || ((it->paired || it->source.part) && it->n_dims == 1)))
        return write_values(v, it, err);
    for (int64_t e = 0; e < n_tensors; e++) {
        const rg_tensor *t = e ? rg_weight_source_find(&it->source, (int)e, name) : it->tensor;
        RG_ASSERT(t); /* the weight was declared */
        if (it->coded && !write_coded(v, it, t, it->n_rows / n_tensors, err))
            return false;
        if (it->coded)
            continue;
        if (!rg_format_of(t->type)->decode)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: tensor '%s' is no type of weights", rg_checkpoint_path(v->from),
                           t->name);
        if (!write_rows(v, it, t, NULL, it->n_rows / n_tensors, err))
            return false;
    }
    return true;
}

/* ---- the whole ---- */

static bool start_threads(convert *v, rg_error *err)
{
    int64_t longest = 1;

    for (int i = 0; i < v->n_items; i++)
        longest = v->items[i].n_cols > longest ? v->items[i].n_cols : longest;
    v->pool = rg_pool_new(v->o->n_threads, err);
    if (!v->pool)
        return false;
    v->scratch = rg_array((size_t)rg_pool_threads(v->pool), sizeof *v->scratch);
    if (!v->scratch)
        return rg_fail_memory(err, 64);
    for (int i = 0; i < rg_pool_threads(v->pool); i++) {
        v->scratch[i] = rg_array((size_t)longest, sizeof **v->scratch);
        if (!v->scratch[i])
            return rg_fail_memory(err, (size_t)longest * sizeof **v->scratch);
    }
    return true;
}

static bool put_keys(convert *v, rg_error *err)
{
    const rg_mixture *m = v->o->mixture;

    return rg_convert_keys(v->w, v->from, &v->config, m ? m->file_type : rg_convert_file_type(v->o->type), err);
}

static bool put_tokenizer(convert *v, rg_error *err)
{
    const rg_config *c = &v->config;
    int32_t bos = c->bos_id;
    int64_t pad = -1;

    if (rg_checkpoint_kind(v->from) == RG_CKPT_GGUF)
        return true; /* copied with the rest */
    if (v->o->vocabulary) {
        if (!v->o->vocabulary(v->w, v->from, c->vocab_size, &bos, v->report->warning, err))
            return false;
    } else if (!rg_ckpt_put_string(v->w, "tokenizer.ggml.model", "none", 4, err)) {
        return false;
    }
    if (rg_meta_type_of(v->from, "pad_token_id") == RG_META_INT &&
        rg_meta_int(v->from, "pad_token_id", -1, INT32_MAX, &pad, NULL) < 0)
        pad = -1;
    return (bos < 0 || rg_ckpt_put_int(v->w, "tokenizer.ggml.bos_token_id", GGUF_TYPE_U32, bos, err)) &&
           (pad < 0 || rg_ckpt_put_int(v->w, "tokenizer.ggml.padding_token_id", GGUF_TYPE_U32, pad, err));
}

/* Weights are plain now. */
static bool is_of_quantizer(const char *key)
{
    return !strcmp(key, "quantization_config") || !strcmp(key, "compression_config");
}

static bool put_hf_config(convert *v, rg_error *err)
{
    const char *key = rg_meta_type_of(v->from, "torch_dtype") != RG_META_NONE ? "torch_dtype" : "dtype";
    const char *name = v->o->type == RG_F32 ? "float32" : v->o->type == RG_F16 ? "float16" : "bfloat16";

    return rg_ckpt_put_all(v->w, v->from, is_of_quantizer, err) &&
           rg_ckpt_put_string(v->w, key, name, strlen(name), err);
}

static bool plan(convert *v, rg_error *err)
{
    bool gguf = rg_checkpoint_kind(v->from) == RG_CKPT_GGUF;

    if (!rg_checkpoint_n_tensors(v->from))
        return rg_fail(err, RG_E_INPUT, "%s: there are no weights", rg_checkpoint_path(v->from));
    /* What ridge would not run is not written anew either. */
    if (!rg_config_read(&v->config, v->from, err) || !rg_weights_declare(&v->weights, &v->config, v->from, RG_F32, err))
        return false;
    v->config.headless = v->weights.headless;
    if (v->o->to_hf)
        return plan_hf_to_hf(v, err);
    return gguf ? plan_gguf_to_gguf(v, err) : plan_hf_to_gguf(v, err);
}

static bool write_all(convert *v, const char *to, rg_error *err)
{
    uint64_t row;

    v->w = v->o->to_hf ? rg_hf_create(to, err) : rg_gguf_create(to, err);
    if (!v->w)
        return false;
    if (v->o->to_hf ? !put_hf_config(v, err)
                    : !put_keys(v, err) || !put_tokenizer(v, err))
        return false;
    for (int i = 0; i < v->n_items; i++) {
        const item *it = &v->items[i];
        if (!rg_ckpt_declare(v->w, it->name, it->type, it->n_dims, it->shape, err))
            return false;
        if (rg_row_bytes(it->type, it->n_cols, &row))
            v->report->bytes += row * (uint64_t)it->n_rows;
    }
    for (int i = 0; i < v->n_items; i++)
        if (!write_item(v, &v->items[i], err))
            return false;
    rg_ckpt_writer *w = v->w;
    v->w = NULL;
    return rg_ckpt_commit(w, err);
}

static bool check(const rg_checkpoint *from, const char *to, const rg_convert_options *o, rg_error *err)
{
    const rg_format *f = rg_format_of(o->type);
    char path[4096];

    if (f->layout == RG_LAYOUT_NONE || !f->encode)
        return rg_fail(err, RG_E_USAGE, "%s is no type of weights", f->name);
    if (!o->to_hf)
        return true;
    if (rg_checkpoint_kind(from) == RG_CKPT_GGUF)
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "%s: a GGUF file cannot become a Hugging Face directory; its other types are "
                       "reached with --to gguf",
                       rg_checkpoint_path(from));
    if (o->type != RG_F32 && o->type != RG_F16 && o->type != RG_BF16)
        return rg_fail(err, RG_E_USAGE, "a Hugging Face directory holds f32, f16 or bf16, not %s", f->name);
    if (rg_path_join(path, sizeof path, to, "model.safetensors.index.json") && rg_path_look(path) != RG_PATH_NONE)
        return rg_fail(err, RG_E_USAGE,
                       "%s: holds a checkpoint in several files, which would stay beside the new one; write "
                       "to another directory",
                       to);
    return true;
}

bool rg_convert(rg_convert_report *r, const rg_checkpoint *from, const char *to, const rg_convert_options *o,
                rg_error *err)
{
    convert *v = rg_zalloc(sizeof *v);
    bool ok;

    memset(r, 0, sizeof *r);
    if (!v)
        return rg_fail_memory(err, sizeof *v);
    *v = (convert){ .from = from, .o = o, .report = r };
    ok = check(from, to, o, err) && plan(v, err) && start_threads(v, err) && write_all(v, to, err);
    r->notes = ok ? rg_notes(&v->config, from, err) : NULL;
    ok = ok && r->notes;
    rg_ckpt_abort(v->w);
    for (int i = 0; v->scratch && i < rg_pool_threads(v->pool); i++)
        rg_free(v->scratch[i]);
    rg_free(v->scratch);
    rg_pool_free(v->pool);
    rg_weights_fini(&v->weights);
    rg_weights_fini(&v->module_weights);
    rg_free(v->items);
    rg_free(v);
    return ok;
}

void rg_convert_report_fini(rg_convert_report *r)
{
    rg_free(r->fallbacks);
    rg_free(r->names);
    rg_free(r->notes);
    memset(r, 0, sizeof *r);
}
