/* stage.c -- see stage.h. */
#include "shrink/stage.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ops/watch/copy.h"
#include "shrink/kbit.h"

enum { MAX_READS = 1 << 16 };

/* What one thread knows of the step. */
typedef struct thread_place {
    bool inside; /* layers have begun */
    bool met;    /* the weight of `until` was read */
    bool done;   /* nothing more of this step is wanted */
    bool shown;  /* since it was reached */
} thread_place;

/* What is alive between layers: an activation that was made outside them. */
typedef struct outer {
    int number, cols; /* of the activation */
    size_t at;        /* of its rows in what is kept of a sample, in floats */
} outer;

typedef struct entry {
    rg_read read;
    float *rows;
    int64_t room;
    /* Of an expert's last matrix: what its rows are made from, after the step. */
    int from; /* entry; -1: not so */
    const rg_weight *gate, *up, *b_gate, *b_up;
    rg_activation act;
} entry;

struct rg_stage {
    rg_reader reader; /* first */
    const rg_checkpoint *ckpt;
    rg_stage_options o;
    rg_model *model;
    rg_pool *pool;
    rg_runner *runner;
    int layer;      /* whose weights are here; -1: none's */
    rg_type *types; /* of all weights, as declared */
    int at;         /* rows stand before this layer */
    outer outer[RG_MAX_ACTS];
    int n_outer, hidden; /* hidden: which of them is the rows of the model's stream */
    size_t outer_floats; /* of all of them; 0: not known yet */
    int hidden_cols;
    float **rows;     /* [n_samples] of outer_floats, for at > 0 */
    rg_copy x, route; /* of the operation that is looked at */
    bool keeps_apart; /* samples have state of their own, since layers read the K/V of earlier ones */
    int32_t *ints;
    int32_t (*pos)[4];
    rg_span span;
    int32_t *tables;
    /* Of the step that runs: */
    const rg_pass *pass;
    int sample, first, end; /* layers [first, end) */
    thread_place *thread;
    float *taken;   /* where what is alive behind the last of them is put; NULL: nowhere */
    float *reached; /* rows of pass->until */
    bool learning;  /* of what is alive between layers */
    bool head;      /* what stands behind the layers is computed */
    entry *entries;
    int n_entries, entries_room;
    bool failed;  /* no memory */
    double *loss; /* [ctx] of rows */
};

/* ---- what matrices read ------------------------------------------------------------------------------------------ */

/* The entry of a matrix, with room for n more rows; NULL: no memory.  Allocates: a pass is no serving step. */
static entry *entry_for(rg_stage *s, const rg_weight *w, int64_t mat, int64_t cols, int64_t n)
{
    entry *e = NULL;

    for (int i = 0; i < s->n_entries && !e; i++)
        if (s->entries[i].read.w[0] == w && s->entries[i].read.mat == mat)
            e = &s->entries[i];
    if (!e && s->n_entries == s->entries_room) {
        int room = s->entries_room ? 2 * s->entries_room : 64;
        entry *more = rg_resize_array(s->entries, (size_t)room, sizeof *more);
        if (!more || room > MAX_READS)
            return s->failed = true, NULL;
        s->entries = more;
        s->entries_room = room;
    }
    if (!e) {
        e = &s->entries[s->n_entries++];
        *e = (entry){ .read = { .w = { w }, .n_w = 1, .mat = mat, .cols = cols }, .from = -1 };
    }
    if (e->read.n + n > e->room) {
        int64_t room = 2 * e->room + n;
        size_t values;
        float *more =
            rg_mul((size_t)room, (size_t)cols, &values) ? rg_resize_array(e->rows, values, sizeof *more) : NULL;
        if (!more)
            return s->failed = true, NULL;
        e->rows = more;
        e->room = room;
    }
    return e;
}

/* Rows of an activation, from column `first` on. */
static void see_rows(rg_stage *s, const rg_op *op, int n_w, int64_t mat, int64_t first)
{
    const rg_act *x = op->in[0];
    entry *e = entry_for(s, op->w[0], mat, op->w[0]->cols, x->rows);

    if (!e)
        return;
    for (int i = 1; i < n_w; i++)
        e->read.w[i] = op->w[i];
    e->read.n_w = n_w;
    e->read.takes_zeros = op->kind == RG_OP_LINEAR || op->kind == RG_OP_GATED;
    for (int r = 0; r < x->rows; r++)
        memcpy(e->rows + e->read.n++ * e->read.cols, s->x.rows + (size_t)r * (size_t)x->cols + first,
               (size_t)e->read.cols * sizeof(float));
}

/* Rows that meet each expert, and entries for the last matrices of those that any row meets. */
static void see_experts(rg_stage *s, const rg_op *op)
{
    const rg_act *x = op->in[0], *route = op->in[1];
    const int n_used = route->cols / 2, n_w = op->w[2] ? 3 : 2;
    const rg_weight *gate = n_w > 2 ? op->w[0] : NULL, *up = op->w[n_w - 2], *down = op->w[n_w - 1];

    for (int r = 0; r < x->rows; r++) {
        const float *row = s->x.rows + (size_t)r * (size_t)x->cols;
        const float *chosen = s->route.rows + (size_t)r * (size_t)route->cols;
        for (int k = 0; k < n_used; k++) {
            const float by = op->routing->weigh_input ? chosen[n_used + k] : 1.0f;
            int32_t expert;
            memcpy(&expert, chosen + k, sizeof expert);
            entry *e = entry_for(s, op->w[0], expert, up->cols, 1);
            if (!e)
                return;
            e->read.n_w = gate ? 2 : 1;
            e->read.w[1] = gate ? up : NULL;
            for (int64_t c = 0; c < up->cols; c++)
                e->rows[e->read.n * up->cols + c] = row[c] * by;
            e->read.n++;
        }
    }
    for (int64_t m = 0; m < up->n_mats; m++) {
        entry *in = entry_for(s, op->w[0], m, up->cols, 0);
        const int from = in ? (int)(in - s->entries) : -1;
        entry *e = in ? entry_for(s, down, m, down->cols, in->read.n) : NULL;
        if (!e)
            return;
        e->from = from;
        e->gate = gate;
        e->up = up;
        e->b_gate = gate ? op->b[0] : NULL;
        e->b_up = op->b[n_w - 2];
        e->act = op->act;
    }
}

/* What the operation reads has been copied. */
static void see(rg_stage *s, const rg_op *op)
{
    int n_w = 0;

    if (!s->x.rows || (op->kind == RG_OP_MOE && !s->route.rows)) {
        s->failed = true;
        return;
    }
    while (n_w < 3 && op->w[n_w])
        n_w++;
    rg_mem_permit();
    if (op->kind == RG_OP_MOE)
        see_experts(s, op);
    else if (op->kind == RG_OP_LINEAR_HEADS)
        for (int64_t m = 0; m < op->w[0]->n_mats; m++)
            see_rows(s, op, 1, m, m * op->n);
    else
        see_rows(s, op, n_w, 0, 0);
    rg_mem_forbid();
}

/* ---- experts' last matrices -------------------------------------------------------------------------------------- */

static double activated(rg_activation act, double g, double up)
{
    switch (act) {
    case RG_SILU:
        return g / (1 + exp(-g)) * up;
    case RG_GELU:
        return 0.5 * g * erfc(-g / sqrt(2)) * up;
    case RG_GELU_TANH:
        return 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g))) * up;
    case RG_RELU:
        return (g > 0 ? g : 0) * up;
    case RG_RELU2:
        return (g > 0 ? g * g : 0) * up;
    case RG_SIGMOID:
        return 1 / (1 + exp(-g)) * up;
    case RG_SWIGLU_CLAMPED:
        g = g < 7 ? g : 7;
        up = up < 7 ? up : 7;
        return g / (1 + exp(-1.702 * g)) * ((up > -7 ? up : -7) + 1);
    default:
        return g * up;
    }
}

static double product(const float *w, const float *x, int64_t n, const rg_weight *bias, int64_t at)
{
    double sum = bias ? (double)bias->vec[at] : 0;

    for (int64_t k = 0; k < n; k++)
        sum += (double)w[k] * (double)x[k];
    return sum;
}

/* Column j of what an expert's last matrix reads, for the rows that meet it. */
static void make_column(const rg_stage *s, entry *e, int64_t j, float *gate, float *up)
{
    const rg_read *in = &s->entries[e->from].read;
    const int64_t at = e->read.mat * e->up->rows + j;

    if (e->gate)
        e->gate->placed->owner->weight_get(e->gate->placed, e->read.mat, j, gate);
    e->up->placed->owner->weight_get(e->up->placed, e->read.mat, j, up);
    for (int64_t r = 0; r < in->n; r++) {
        const float *x = s->entries[e->from].rows + r * in->cols;
        double u = product(up, x, in->cols, e->b_up, at);
        double v = e->gate ? activated(e->act, product(gate, x, in->cols, e->b_gate, at), u) : activated(e->act, u, 1);
        e->rows[r * e->read.cols + j] = (float)v;
    }
}

typedef struct making {
    rg_stage *s;
    entry *e;
    float **scratch; /* per thread, [2 * columns] */
} making;

static void make_some(void *arg, int thread)
{
    const making *m = arg;
    uint32_t phase = 0;

    for (int j; (j = rg_phase_take(m->s->pool, phase, (int)m->e->read.cols)) >= 0;)
        make_column(m->s, m->e, j, m->scratch[thread], m->scratch[thread] + m->e->up->cols);
    rg_phase_end(m->s->pool, &phase);
}

static bool make_reads(rg_stage *s, rg_error *err)
{
    const int threads = rg_pool_threads(s->pool);
    bool ok = !s->failed || rg_fail_memory(err, 0);

    for (int i = 0; ok && i < s->n_entries; i++) {
        entry *e = &s->entries[i];
        if (e->from < 0)
            continue;
        making m = { s, e, rg_array((size_t)threads, sizeof *m.scratch) };
        ok = m.scratch;
        for (int t = 0; ok && t < threads; t++)
            ok = (m.scratch[t] = rg_array((size_t)e->up->cols, 2 * sizeof(float))) != NULL;
        ok = ok || rg_fail_memory(err, (size_t)e->up->cols * 8);
        e->read.n = s->entries[e->from].read.n;
        if (ok)
            rg_pool_run(s->pool, threads, make_some, &m);
        for (int t = 0; m.scratch && t < threads; t++)
            rg_free(m.scratch[t]);
        rg_free(m.scratch);
    }
    return ok;
}

/* ---- the reader -------------------------------------------------------------------------------------------------- */

static bool reads_matrices(const rg_op *op)
{
    return op->kind == RG_OP_LINEAR || op->kind == RG_OP_LINEAR_HEADS || op->kind == RG_OP_GATED ||
           op->kind == RG_OP_MOE;
}

static bool reads_weight(const rg_op *op, const rg_weight *w)
{
    return w && (op->w[0] == w || op->w[1] == w || op->w[2] == w);
}

static void measure_outer(rg_stage *s, const rg_fwd *f)
{
    for (int i = 0; i < f->n_acts; i++) {
        const rg_act *a = &f->acts[i];

        if (a->layer >= 0 || a->shown >= 0)
            continue;
        if (!strcmp(a->name, "hidden")) {
            s->hidden = s->n_outer;
            s->hidden_cols = a->cols;
        }
        s->outer[s->n_outer++] = (outer){ .number = i, .cols = a->cols, .at = s->outer_floats };
        s->outer_floats += (size_t)a->rows * (size_t)a->cols;
    }
}

/* Rows of an activation, side by side. */
typedef struct side_by_side {
    float *rows;
    size_t cols;
} side_by_side;

static void take_row(void *arg, int row, const float *x)
{
    const side_by_side *to = arg;

    memcpy(to->rows + (size_t)row * to->cols, x, to->cols * sizeof *x);
}

static void give_row(void *arg, int row, float *x)
{
    const side_by_side *from = arg;

    memcpy(x, from->rows + (size_t)row * from->cols, from->cols * sizeof *x);
}

/* By all threads: what is alive between layers goes to `kept`. */
static void take_outer(const rg_stage *s, rg_fwd *f, float *kept)
{
    for (int i = 0; i < s->n_outer; i++) {
        side_by_side to = { kept + s->outer[i].at, (size_t)s->outer[i].cols };

        rg_act_fetch(f, &f->acts[s->outer[i].number], take_row, &to);
    }
}

/* And comes from there. */
static void put_outer(const rg_stage *s, rg_fwd *f, float *kept)
{
    for (int i = 0; i < s->n_outer; i++) {
        side_by_side from = { kept + s->outer[i].at, (size_t)s->outer[i].cols };

        rg_act_put(f, &f->acts[s->outer[i].number], give_row, &from);
    }
}

static void begin_layer(rg_stage *s, rg_fwd *f)
{
    if (s->learning && f->layer == 0) {
        if (f->thread == 0)
            measure_outer(s, f);
        rg_fwd_meet(f);
    }
    if (f->layer == s->first && s->first > 0)
        put_outer(s, f, s->rows[s->sample]);
    if (f->layer == s->end && s->taken)
        take_outer(s, f, s->taken);
}

/* Before it runs: it may overwrite what it reads. */
static void look(rg_stage *s, rg_fwd *f, const rg_op *op)
{
    rg_copy_take(&s->x, f, op->in[0]);
    if (op->kind == RG_OP_MOE)
        rg_copy_take(&s->route, f, op->in[1]);
    if (f->thread == 0)
        see(s, op);
}

static void run_within(rg_stage *s, rg_fwd *f, const rg_op *op)
{
    thread_place *t = &s->thread[f->thread];
    const rg_act *out = op->out[0];

    if (s->pass && s->pass->skip)
        return;
    if (s->pass && s->pass->read && reads_matrices(op))
        look(s, f, op);
    s->reader.inner->run(s->reader.inner, f, op);
    if (!s->pass || !s->pass->until)
        return;
    t->met = t->met || reads_weight(op, s->pass->until);
    if (!t->met || !out || out - f->acts != s->outer[s->hidden].number)
        return;
    t->done = t->shown = true;
    rg_act_fetch(f, out, take_row, &(side_by_side){ s->reached, (size_t)out->cols });
}

static void run_op(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_stage *s = (rg_stage *)(uintptr_t)self;
    thread_place *t = &s->thread[f->thread];

    if (op->kind == RG_OP_NOTE && f->layer >= 0) {
        t->inside = true;
        begin_layer(s, f);
    } else if (f->layer < 0 && !t->inside) {
        if (s->first == 0)
            s->reader.inner->run(s->reader.inner, f, op);
    } else if (f->layer < 0) {
        if (!t->done && s->end == s->model->config.n_layers && !s->head) {
            if (s->taken)
                take_outer(s, f, s->taken);
            t->done = true;
        }
        if (s->head) {
            if (!t->done)
                put_outer(s, f, s->rows[s->sample]);
            t->done = true;
            s->reader.inner->run(s->reader.inner, f, op);
        }
    } else if (f->layer >= s->first && f->layer < s->end && !t->done) {
        run_within(s, f, op);
    }
}

static const rg_reader *wrap(void *arg, const rg_reader *inner)
{
    rg_stage *s = arg;

    s->reader = (rg_reader){ .run = run_op, .inner = inner };
    return &s->reader;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

static void take_loss(void *arg, int thread, int i, float *logits)
{
    rg_stage *s = arg;
    const int32_t *ids = s->o.ids + (size_t)s->sample * (size_t)s->o.ctx;
    const int vocab = s->runner->vocab_size;
    double most = -INFINITY, sum = 0;

    (void)thread;
    if (!s->head || i + 1 >= s->o.ctx)
        return;
    for (int k = 0; k < vocab; k++)
        most = (double)logits[k] > most ? (double)logits[k] : most;
    for (int k = 0; k < vocab; k++)
        sum += exp((double)logits[k] - most);
    s->loss[i] = most + log(sum) - (double)logits[ids[i + 1]];
}

/* Blocks of state for the sample's sequence: the same for all, or each its own. */
static void set_tables(rg_stage *s)
{
    const rg_state_spec *spec = &s->model->state;
    const int n = (s->o.ctx + RG_BLOCK - 1) / RG_BLOCK;

    for (int g = 0; g < spec->n_groups; g++) {
        const int each = spec->group[g].per == RG_PER_SEQUENCE ? 1 : n;
        int32_t *table = s->tables + (size_t)g * (size_t)n;
        for (int b = 0; b < each; b++)
            table[b] = (s->keeps_apart ? s->sample * each : 0) + b;
        s->span.tables[g] = table;
    }
}

static void step(rg_stage *s, int sample)
{
    rg_batch b = { .n_rows = s->o.ctx,
                   .n_spans = 1,
                   .spans = &s->span,
                   .index = s->ints,
                   .token = s->o.ids + (size_t)sample * (size_t)s->o.ctx,
                   .kv_end = s->ints + s->o.ctx,
                   .pos = (const int32_t(*)[4])s->pos,
                   .n_logits = s->head ? s->o.ctx : 1,
                   .logit_rows = s->ints };

    s->sample = sample;
    set_tables(s);
    memset(s->thread, 0, (size_t)s->o.n_threads * sizeof *s->thread);
    for (int i = 0; i < s->n_entries; i++)
        s->entries[i].read.n = 0;
    s->runner->step(s->runner, &b, &(rg_sink){ .logits = take_loss, .arg = s });
}

static bool check_finite(const rg_stage *s, int sample, rg_error *err)
{
    const float *x = s->taken + s->outer[s->hidden].at;

    for (int64_t i = 0; i < (int64_t)s->o.ctx * s->hidden_cols; i++)
        if (!isfinite(x[i]))
            return rg_fail(err, RG_E_INPUT, "%s: activations behind layer %d are not finite (calibration sample %d)",
                           rg_checkpoint_path(s->ckpt), s->layer, sample);
    return true;
}

static bool pass_sample(rg_stage *s, const rg_pass *p, int sample, rg_error *err)
{
    step(s, sample);
    if (p->read) {
        if (!make_reads(s, err))
            return false;
        rg_read *reads = rg_array((size_t)s->n_entries, sizeof *reads);
        if (!reads)
            return rg_fail_memory(err, (size_t)s->n_entries * sizeof *reads);
        for (int i = 0; i < s->n_entries; i++) {
            reads[i] = s->entries[i].read;
            reads[i].rows = s->entries[i].rows;
        }
        bool ok = p->read(p->arg, sample, reads, s->n_entries, err);
        rg_free(reads);
        if (!ok)
            return false;
    }
    if (p->reached && s->thread[0].shown)
        p->reached(p->arg, sample, s->reached, (int64_t)s->o.ctx * s->hidden_cols);
    return true;
}

/* Before layer 0 nothing is kept: what stands there is computed again, once so that its size is known. */
static bool learn_sizes(rg_stage *s, rg_error *err)
{
    if (s->outer_floats)
        return true;
    s->learning = true;
    s->pass = NULL;
    s->first = s->end = 0;
    s->taken = NULL;
    step(s, 0);
    s->learning = false;
    s->taken = rg_array(s->outer_floats, sizeof *s->taken);
    s->reached = rg_table_new(s->o.ctx, s->hidden_cols, sizeof *s->reached);
    return (s->taken && s->reached) || rg_fail_memory(err, s->outer_floats * sizeof(float));
}

/* What stands before layer 0 and what stands behind it, of one sample. */
static bool show_through(rg_stage *s, const rg_pass *p, int sample, rg_error *err)
{
    float *first = NULL, *before = s->at > 0 ? s->rows[sample] : NULL;
    const int64_t n = s->o.ctx;

    if (!before) { /* the embedding */
        float *after = s->taken;
        first = before = s->taken = rg_array(s->outer_floats, sizeof(float));
        if (!before)
            return s->taken = after, rg_fail_memory(err, s->outer_floats * sizeof(float));
        s->end = 0;
        s->pass = NULL;
        step(s, sample);
        s->taken = after;
        s->pass = p;
        s->end = s->layer + 1;
    }
    p->through(p->arg, sample, before + s->outer[s->hidden].at, s->taken + s->outer[s->hidden].at, n, s->hidden_cols);
    rg_free(first);
    return true;
}

bool rg_stage_pass(rg_stage *s, const rg_pass *p, rg_error *err)
{
    const int n = p->n_samples && p->n_samples < s->o.n_samples ? p->n_samples : s->o.n_samples;
    bool ok = learn_sizes(s, err);

    RG_ASSERT(s->layer == s->at);
    s->pass = p;
    s->first = s->layer;
    s->end = s->layer + 1;
    s->head = false;
    for (int i = 0; ok && i < n; i++) {
        ok = pass_sample(s, p, i, err) && (p->until || check_finite(s, i, err));
        ok = ok && (!p->through || show_through(s, p, i, err));
        if (ok && p->advance) {
            if (!s->rows[i])
                ok = (s->rows[i] = rg_array(s->outer_floats, sizeof(float))) != NULL ||
                     rg_fail_memory(err, s->outer_floats * sizeof(float));
            if (ok)
                memcpy(s->rows[i], s->taken, s->outer_floats * sizeof *s->taken);
        }
    }
    s->pass = NULL;
    if (ok && p->advance)
        s->at = s->layer + 1;
    return ok;
}

void rg_stage_restart(rg_stage *s)
{
    s->at = 0;
}

bool rg_stage_loss(rg_stage *s, double *loss, rg_error *err)
{
    const int n = s->o.ctx - 1;

    RG_ASSERT(s->o.logits && s->at == s->model->config.n_layers);
    (void)err;
    *loss = 0;
    s->head = true;
    s->first = s->end = s->at;
    for (int i = 0; i < s->o.n_samples; i++) {
        step(s, i);
        for (int r = 0; r < n; r++)
            *loss += s->loss[r] / ((double)n * s->o.n_samples);
    }
    s->head = false;
    return true;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* A matrix as f32, so that it can be read and written row by row. */
static bool unpack(rg_stage *s, int i, rg_error *err)
{
    rg_weight_set *set = &s->model->weights;
    const rg_weight *w = &set->all[i];
    const rg_backend *b = set->backend;
    const rg_placing what = { .type = RG_F32, .n_mats = w->n_mats, .rows = w->rows, .cols = w->cols };
    float *row = rg_array((size_t)w->cols, sizeof *row);
    rg_placed *f32 = row ? b->weight_new(b, &what, err) : NULL;

    if (!f32) {
        rg_free(row);
        return row ? false : rg_fail_memory(err, (size_t)w->cols * sizeof *row);
    }
    for (int64_t r = 0; r < w->n_mats * w->rows; r++) {
        b->weight_get(w->placed, r / w->rows, r % w->rows, row);
        b->weight_put(f32, r / w->rows, r % w->rows, row);
    }
    rg_free(row);
    rg_weights_replace(set, i, f32);
    return true;
}

static void leave(rg_stage *s)
{
    rg_weight_set *set = &s->model->weights;

    if (s->layer < 0)
        return;
    rg_weights_unbind_layer(set, s->layer);
    for (int i = 0; i < set->n; i++)
        set->all[i].type = s->types[i];
    for (int i = 0; i < s->n_entries; i++)
        rg_free(s->entries[i].rows);
    s->n_entries = 0;
    s->layer = -1;
}

bool rg_stage_enter(rg_stage *s, int layer, rg_error *err)
{
    rg_weight_set *set = &s->model->weights;

    leave(s);
    s->layer = layer;
    if (!rg_weights_bind_layer(set, layer, &s->model->config, s->ckpt, err))
        return false;
    for (int i = 0; i < set->n; i++)
        if (set->layer[i] == layer && set->all[i].placed && !unpack(s, i, err))
            return false;
    return true;
}

void rg_stage_get(const rg_stage *s, const rg_weight *w, int64_t mat, float *to)
{
    (void)s;
    for (int64_t r = 0; w->placed && r < w->rows; r++)
        w->placed->owner->weight_get(w->placed, mat, r, to + r * w->cols);
    if (w->vec)
        memcpy(to, w->vec, (size_t)w->cols * sizeof *to);
}

void rg_stage_put(rg_stage *s, const rg_weight *w, int64_t mat, const float *from)
{
    const rg_weight_set *set = &s->model->weights;

    for (int64_t r = 0; r < w->rows; r++)
        set->backend->weight_put(set->placed[w - set->all], mat, r, from + r * w->cols);
}

void rg_stage_put_vector(rg_stage *s, const rg_weight *w, const float *from)
{
    rg_weight_set *set = &s->model->weights;

    memcpy((void *)(uintptr_t)w->vec, from, (size_t)w->cols * sizeof *from);
    RG_ASSERT(rg_weights_place_vector(set, (int)(w - set->all), NULL));
}

void rg_stage_set_threshold(rg_stage *s, const rg_weight *w, float t)
{
    RG_ASSERT(s->o.thresholds);
    s->model->weights.all[w - s->model->weights.all].threshold = t;
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static bool open_runner(rg_stage *s, rg_error *err)
{
    const rg_config *c = &s->model->config;
    const uint64_t seqs = s->keeps_apart ? (uint64_t)s->o.n_samples : 1, len = (uint64_t)s->o.ctx + 2 * RG_BLOCK;
    rg_runner_options o = { .backend = s->o.backend,
                            .n_threads = s->o.n_threads,
                            .exact = true,
                            .max_rows = s->o.ctx,
                            .max_logits = s->o.logits ? s->o.ctx : 1,
                            .max_seqs = (int)seqs,
                            .max_seq_len = s->o.ctx,
                            .pool = s->pool,
                            .wrap = wrap,
                            .wrap_arg = s,
                            .state_bytes = (size_t)64 << 20 };

    if (c->n_positions && s->o.ctx > c->n_positions)
        return rg_fail(err, RG_E_INPUT, "samples of %d ids: the model has embeddings for %d positions", s->o.ctx,
                       c->n_positions);
    for (int g = 0; g < s->model->state.n_groups; g++) {
        uint64_t each = s->model->state.group[g].block_bytes + RG_BLOCK_BOOKKEEPING, blocks, bytes;
        if (!rg_mul(seqs, len / RG_BLOCK + 3, &blocks) || !rg_mul(each, 4 * blocks, &bytes) ||
            !rg_add(o.state_bytes, bytes, &o.state_bytes))
            return rg_fail(err, RG_E_LIMIT, "the state of %d samples of %d ids is too large", s->o.n_samples, s->o.ctx);
    }
    /* Room for the most operations: no two matrices share what is left of their input. */
    for (int i = 0; s->o.thresholds && i < s->model->weights.n; i++)
        s->model->weights.all[i].threshold = s->model->weights.layer[i] < 0 ? 0 : (float)(i + 1);
    s->runner = rg_model_runner_new(s->model, &o, err);
    for (int i = 0; i < s->model->weights.n; i++)
        s->model->weights.all[i].threshold = 0;
    if (!s->runner)
        return false;
    for (int g = 0; g < s->model->state.n_groups; g++)
        if (s->model->state.group[g].per == RG_PER_POSITION &&
            rg_store_n_blocks(s->runner->store, g) < (int64_t)seqs * ((s->o.ctx + RG_BLOCK - 1) / RG_BLOCK))
            return rg_fail(err, RG_E_LIMIT, "the state of samples of %d ids does not fit", s->o.ctx);
    return true;
}

static bool make_batch(rg_stage *s, rg_error *err)
{
    const size_t n = (size_t)s->o.ctx;

    s->ints = rg_array(n, 2 * sizeof *s->ints);
    s->pos = rg_array(n, sizeof *s->pos);
    s->tables = rg_table_new((s->o.ctx + RG_BLOCK) / RG_BLOCK, RG_MAX_GROUPS, sizeof *s->tables);
    s->thread = rg_array((size_t)s->o.n_threads, sizeof *s->thread);
    s->rows = rg_array((size_t)s->o.n_samples, sizeof *s->rows);
    s->types = rg_array((size_t)s->model->weights.n, sizeof *s->types);
    s->loss = rg_array(n, sizeof *s->loss);
    if (!s->ints || !s->pos || !s->tables || !s->thread || !s->rows || !s->types || !s->loss)
        return rg_fail_memory(err, n * 64);
    for (int i = 0; i < s->o.ctx; i++) {
        s->ints[i] = s->pos[i][0] = i;
        s->ints[s->o.ctx + i] = rg_kv_end(s->model->config.sees, i, s->o.ctx);
    }
    for (int i = 0; i < s->model->weights.n; i++)
        s->types[i] = s->model->weights.all[i].type;
    s->span = (rg_span){ .n_rows = s->o.ctx, .adapter = -1, .rope = rg_config_rope(&s->model->config, s->o.ctx) };
    return true;
}

rg_stage *rg_stage_open(const rg_checkpoint *ckpt, const rg_stage_options *o, rg_error *err)
{
    rg_stage *s = rg_zalloc(sizeof *s);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->o = *o;
    s->ckpt = ckpt;
    s->layer = -1;
    s->model = rg_model_open(ckpt, &(rg_model_options){ .kv_type = "f32", .layers_apart = true,
                                                   .backend = o->backend }, err);
    if (!s->model)
        goto fail;
    if (o->n_samples > 0 && !rg_config_has_logits(&s->model->config)) {
        rg_fail(err, RG_E_UNSUPPORTED, "%s: an encoder is not run on calibration text", rg_checkpoint_path(ckpt));
        goto fail;
    }
    for (int i = 0; i < s->model->config.n_layers; i++)
        s->keeps_apart = s->keeps_apart || s->model->keep[i].shared_with >= 0;
    s->pool = rg_pool_new(o->n_threads, err);
    if (s->pool && make_batch(s, err) && (!o->n_samples || open_runner(s, err)))
        return s;

fail:
    rg_stage_close(s);
    return NULL;
}

void rg_stage_close(rg_stage *s)
{
    if (!s)
        return;
    if (s->model && s->types)
        leave(s);
    for (int i = 0; s->rows && i < s->o.n_samples; i++)
        rg_free(s->rows[i]);
    rg_free(s->rows);
    rg_free(s->entries);
    rg_model_runner_free(s->runner);
    rg_pool_free(s->pool);
    rg_model_close(s->model);
    rg_free(s->ints);
    rg_free(s->pos);
    rg_free(s->tables);
    rg_copy_fini(&s->x);
    rg_copy_fini(&s->route);
    rg_free(s->thread);
    rg_free(s->types);
    rg_free(s->taken);
    rg_free(s->reached);
    rg_free(s->loss);
    rg_free(s);
}

const rg_model *rg_stage_model(const rg_stage *s)
{
    return s->model;
}

rg_pool *rg_stage_pool(const rg_stage *s)
{
    return s->pool;
}
