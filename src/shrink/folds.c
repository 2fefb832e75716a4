/* folds.c -- see folds.h.
 *
 * One step is traced without computing anything.  For every value that an operation of the layer writes, the trace has
 * the operation and those that read it before it is written again. */
#include "shrink/folds.h"

#include <string.h>

#include "base/mem.h"
#include "ops/count/count.h"

enum { MAX_VALUES = 512, MAX_READS = 12 };

typedef struct value {
    int number, first, cols; /* the activation whose memory it has, and its columns there */
    rg_op made_by;           /* its operands' places in what follows: */
    int which;               /* of its outputs */
    int in[3];               /* values that it was made from; -1: none of this layer */
    rg_op read_by[MAX_READS];
    int read_at[MAX_READS], n_reads; /* read_at: which operand of the reader */
    bool live;
} value;

typedef struct trace {
    rg_reader reader; /* first */
    int layer;
    value *v;
    int n;
    int stored_v; /* value that the layer's store of K/V took as V; -1: none */
    bool too_many;
} trace;

static int number_of(const rg_fwd *f, const rg_act *a)
{
    return a->shown >= 0 ? a->shown : (int)(a - f->acts);
}

static int value_of(const trace *t, const rg_fwd *f, const rg_act *a)
{
    for (int i = t->n; a && i-- > 0;)
        if (t->v[i].live && t->v[i].number == number_of(f, a) && t->v[i].first == a->first && t->v[i].cols == a->cols)
            return i;
    return -1;
}

static void add_value(trace *t, const rg_fwd *f, const rg_op *op, int which, const int in[3])
{
    const rg_act *a = op->out[which];

    for (int i = 0; i < t->n; i++)
        if (t->v[i].number == number_of(f, a) && t->v[i].first == a->first)
            t->v[i].live = false;
    if (t->n == MAX_VALUES) {
        t->too_many = true;
        return;
    }
    value *v = &t->v[t->n++];
    *v = (value){
        .number = number_of(f, a), .first = a->first, .cols = a->cols, .made_by = *op, .which = which, .live = true
    };
    memcpy(v->in, in, sizeof v->in);
}

static void run_trace(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    trace *t = (trace *)(uintptr_t)self;
    int in[3] = { -1, -1, -1 };

    if (f->layer == t->layer && op->kind != RG_OP_NOTE) {
        for (int i = 0; i < 7; i++) {
            int from = value_of(t, f, op->in[i]);
            if (i < 3)
                in[i] = from;
            if (from < 0)
                continue;
            value *v = &t->v[from];
            if (v->n_reads < MAX_READS) {
                v->read_by[v->n_reads] = *op;
                v->read_at[v->n_reads] = i;
            }
            v->n_reads++;
        }
        if (op->kind == RG_OP_KV_STORE)
            t->stored_v = t->stored_v == -1 ? in[1] : -2; /* more than one: not told apart */
        for (int i = 0; i < 3 && op->out[i]; i++)
            add_value(t, f, op, i, in);
    }
    self->inner->run(self->inner, f, op);
}

/* True if all that reads a value are columns of matrices; they become the fold's readers. */
static bool set_readers(const value *v, rg_fold *to)
{
    if (!v->n_reads || v->n_reads > MAX_READS)
        return false;
    for (int i = 0; i < v->n_reads; i++) {
        const rg_op *op = &v->read_by[i];
        int n = 0;
        if ((op->kind != RG_OP_LINEAR && op->kind != RG_OP_GATED && op->kind != RG_OP_MOE) || v->read_at[i] != 0)
            return false;
        while (n < 3 && op->w[n])
            n++;
        if (op->kind == RG_OP_MOE)
            n--; /* the last matrix reads something else */
        for (int k = 0; k < n; k++) {
            if (to->n_readers == RG_MAX_FOLD_READERS || op->w[k]->cols != v->cols)
                return false;
            to->reader[to->n_readers++] = op->w[k];
        }
    }
    return true;
}

/* A value that one matrix makes, plainly, and only one operation reads: the matrix. */
static bool is_of_matrix(const value *v, rg_fold *to)
{
    if (v->made_by.kind != RG_OP_LINEAR || v->made_by.accumulate || v->n_reads != 1)
        return false;
    to->before = v->made_by.w[v->which];
    to->bias = v->made_by.b[v->which];
    return to->before != NULL;
}

/* What the value's scale per channel can be divided out of. */
static bool set_before(const trace *t, const value *v, rg_fold *to)
{
    const rg_op *op = &v->made_by;

    switch (op->kind) {
    case RG_OP_RMSNORM:
    case RG_OP_LAYERNORM:
        to->before = op->w[0];
        to->bias = op->kind == RG_OP_LAYERNORM ? op->b[0] : NULL;
        return to->before && op->n == v->cols && to->before->cols == v->cols;
    case RG_OP_GATED:
        to->before = op->w[1];
        to->bias = op->b[1];
        return op->act != RG_SWIGLU_CLAMPED && to->before && to->before->rows == v->cols;
    case RG_OP_ACT_MUL:
        return op->act != RG_SWIGLU_CLAMPED && v->in[1] >= 0 && v->in[1] != v->in[0] &&
               is_of_matrix(&t->v[v->in[1]], to) && to->before->rows == v->cols;
    case RG_OP_ATTENTION: /* with as many heads of V as of queries: a head's output is a mean of its values */
        return t->stored_v >= 0 && is_of_matrix(&t->v[t->stored_v], to) && to->before->rows == v->cols;
    default:
        return false;
    }
}

static bool trace_layer(trace *t, const rg_model *m, rg_error *err)
{
    int32_t zero[4] = { 0 };
    rg_span span = { .n_rows = 1, .adapter = -1 };
    rg_batch batch = { .n_rows = 1,
                       .n_spans = 1,
                       .spans = &span,
                       .token = zero,
                       .index = zero,
                       .kv_end = zero,
                       .pos = (const int32_t(*)[4])zero,
                       .n_logits = rg_config_has_logits(&m->config),
                       .logit_rows = zero };
    rg_counter counter;
    rg_fwd *f = rg_alloc(sizeof *f);

    if (!f)
        return rg_fail_memory(err, sizeof *f);
    rg_counter_init(&counter, NULL, 0);
    rg_count_fwd(f, &counter, &batch);
    t->reader = (rg_reader){ .run = run_trace, .inner = &counter.reader };
    f->reader = &t->reader;
    rg_model_forward(m, f);
    rg_free(f);
    return true;
}

bool rg_folds_find(const rg_model *m, int layer, rg_fold to[RG_MAX_FOLDS], int *n, rg_error *err)
{
    trace t = { .layer = layer, .v = rg_array(MAX_VALUES, sizeof *t.v), .stored_v = -1 };
    bool ok = t.v ? trace_layer(&t, m, err) : rg_fail_memory(err, MAX_VALUES * sizeof *t.v);

    *n = 0;
    for (int i = 0; ok && !t.too_many && i < t.n && *n < RG_MAX_FOLDS; i++) {
        rg_fold fold = { 0 };
        if (set_readers(&t.v[i], &fold) && set_before(&t, &t.v[i], &fold))
            to[(*n)++] = fold;
    }
    rg_free(t.v);
    return ok;
}

/* ---- folding ----------------------------------------------------------------------------------------------------- */

rg_matrix *rg_matrix_of(const rg_layer_work *l, const rg_weight *w, int64_t mat)
{
    for (int i = 0; i < l->n; i++)
        if (l->m[i].weight == w && l->m[i].mat == mat)
            return &l->m[i];
    return NULL;
}

/* The new value of a vector, which begins as the old one. */
static float *folded_vector(rg_layer_work *l, const rg_weight *w, rg_error *err)
{
    for (int i = 0; i < l->n_folded; i++)
        if (l->folded[i].weight == w)
            return l->folded[i].values;
    float *values = rg_array((size_t)w->cols, sizeof *values);
    if (!values)
        return rg_fail_memory(err, (size_t)w->cols * sizeof *values), NULL;
    memcpy(values, w->vec, (size_t)w->cols * sizeof *values);
    l->folded[l->n_folded++] = (rg_folded){ w, values };
    return values;
}

bool rg_fold_in(rg_layer_work *l, const rg_fold *f, const float *s, rg_error *err)
{
    const rg_weight *vectors[2] = { f->before->vec ? f->before : NULL, f->bias };
    rg_matrix *before = f->before->vec ? NULL : rg_matrix_of(l, f->before, 0);

    for (int i = 0; i < 2; i++) {
        float *v = vectors[i] ? folded_vector(l, vectors[i], err) : NULL;
        if (vectors[i] && !v)
            return false;
        for (int64_t k = 0; v && k < vectors[i]->cols; k++)
            v[k] /= s[k];
    }
    for (int64_t r = 0; before && r < before->rows; r++)
        for (int64_t k = 0; k < before->cols; k++)
            before->w[r * before->cols + k] /= s[r];
    for (int i = 0; i < f->n_readers; i++)
        for (int64_t mat = 0; mat < f->reader[i]->n_mats; mat++) {
            rg_matrix *m = rg_matrix_of(l, f->reader[i], mat);
            for (int64_t r = 0; r < m->rows; r++)
                for (int64_t k = 0; k < m->cols; k++)
                    m->w[r * m->cols + k] *= s[k];
        }
    for (int i = 0; i < l->n_inputs; i++) /* what they read is divided from now on */
        for (int k = 0; k < f->n_readers; k++) {
            rg_input *x = l->inputs[i].w[0] == f->reader[k] ? &l->inputs[i] : NULL;
            for (int64_t r = 0; x && x->rows && r < x->n_kept; r++)
                for (int64_t c = 0; c < x->cols; c++)
                    x->rows[r * x->cols + c] /= s[c];
            for (int64_t r = 0; x && x->gram && r < x->cols; r++)
                for (int64_t c = 0; c < x->cols; c++)
                    x->gram[r * x->cols + c] /= (double)s[r] * (double)s[c];
        }
    return true;
}

bool rg_fold_is_possible(const rg_layer_work *l, const rg_fold *f)
{
    const rg_weight *vectors[2] = { f->before->vec ? f->before : NULL, f->bias };
    const rg_weight_set *set = &rg_stage_model(l->stage)->weights;

    for (int i = 0; i < 2; i++)
        if (vectors[i]) {
            const rg_weight_spec *spec = set->spec[vectors[i] - set->all];
            if (l->config->from_gguf ? spec->load_gguf != NULL : spec->load || spec->to_gguf || spec->first_row)
                return false;
            if (spec->derive || !vectors[i]->vec)
                return false;
        }
    if (!f->before->vec && !rg_matrix_of(l, f->before, 0))
        return false;
    for (int i = 0; i < f->n_readers; i++)
        if (!rg_matrix_of(l, f->reader[i], 0))
            return false;
    return true;
}

bool rg_folds_of_norms(rg_layer_work *l, bool (*move)(rg_layer_work *l, const rg_fold *f, int nth, rg_error *err),
                       rg_error *err)
{
    rg_fold folds[RG_MAX_FOLDS];
    int n;

    if (!rg_folds_find(rg_stage_model(l->stage), l->layer, folds, &n, err))
        return false;
    for (int i = 0; i < n; i++)
        if (folds[i].before->vec && rg_fold_is_possible(l, &folds[i]) && !move(l, &folds[i], i, err))
            return false;
    return true;
}
