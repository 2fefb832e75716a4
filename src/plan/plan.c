/* plan.c -- see plan.h. */
#include "plan/plan.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "plan/fill.h"

enum { MOST_BATCH = 1 << 20, MOST_SEQ = 1 << 24, MOST_KNEE = 1 << 15 };

/* The knee: a batch twice as large has a latency x times as long and so 2 / x times the throughput.  That is less than
 * 10 % per doubling of latency when x > 2^(1 / (1 + log2 1.1)), which is this number. */
static const double KNEE_RATIO = 1.8394;

const char *const rg_bound_names[] = { "weights", "kv", "compute" };

bool rg_plan_method_by_name(const char *name, rg_plan_method *method, rg_error *err)
{
    static const char *const names[] = { "counted", "closed-form", "general" };

    for (int i = 0; i < (int)RG_LEN(names); i++) {
        if (!strcmp(name, names[i])) {
            *method = (rg_plan_method)i;
            return true;
        }
    }
    return rg_fail(err, RG_E_USAGE, "method '%.40s' is not one of counted, closed-form, general", name);
}

/* ---- the textbook ------------------------------------------------------------------------------------------------ */

static bool is_textbook(const rg_config *c)
{
    return c->n_heads > 0 && c->n_kv_heads > 0 && c->head_dim > 0 && c->ffn_dim > 0 && !c->routing.n_experts;
}

bool rg_plan_textbook_params(const rg_config *c, double *params, rg_error *err)
{
    double d = c->dim, l = c->n_layers, h = c->head_dim;

    if (!is_textbook(c))
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "closed-form covers only dense decoders with K/V attention: use --method counted");
    *params = 2.0 * c->vocab_size * d + 3 * d * c->ffn_dim * l +
              (2 * d * c->n_heads * h + 2 * d * c->n_kv_heads * h) * l;
    return true;
}

double rg_plan_textbook_kv_values(const rg_config *c)
{
    return 2.0 * c->n_kv_heads * c->head_dim * c->n_layers;
}

/* Sizes of the two formulas: parameters and K/V bytes of a position. */
static bool textbook_sizes(const rg_plan_subject *s, double *params, double *kv_bytes, rg_error *err)
{
    if (!s->model) {
        *params = s->params;
        *kv_bytes = s->kv_bytes;
        return true;
    }
    if (s->method == RG_PLAN_CLOSED_FORM || is_textbook(&s->model->config)) {
        *kv_bytes = rg_plan_textbook_kv_values(&s->model->config) * s->kv_value_bytes;
        if (s->method == RG_PLAN_CLOSED_FORM)
            return rg_plan_textbook_params(&s->model->config, params, err);
    } else {
        *kv_bytes = (double)rg_state_bytes_per_position(&s->model->state);
    }
    *params = (double)s->model->weights.n_parameters;
    return true;
}

static bool closed_latency(const rg_plan_subject *s, const rg_plan_machine *m, double batch, double seq,
                           double *latency, rg_error *err)
{
    double params, kv;

    if (!textbook_sizes(s, &params, &kv, err))
        return false;
    *latency = (batch * seq * kv + params * s->weight_bytes) / m->m.roofs.read_bytes_s;
    return true;
}

/* The peak that the textbook divides by: bf16 if the machine has it. */
static double book_peak(const rg_plan_machine *m)
{
    return rg_roofs_peak(&m->m.roofs, RG_BF16, false);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void rg_plan_state_bytes(const rg_model *m, int64_t seq, double *kv, double *recurrent)
{
    *kv = *recurrent = 0;
    for (int g = 0; g < m->state.n_groups; g++) {
        const rg_group *group = &m->state.group[g];

        *(group->per == RG_PER_SEQUENCE ? recurrent : kv) +=
            (double)rg_group_blocks(group, seq) * (double)group->block_bytes;
    }
}

double rg_plan_row_arena(const rg_model *m, const rg_plan_machine *machine)
{
    rg_span span = { .n_rows = 1, .adapter = -1 };
    rg_batch batch = { .n_rows = 1, .n_spans = 1, .spans = &span, .n_logits = 1 };
    rg_cost cost;

    rg_cost_batch(m, &machine->m, &batch, false, &cost);
    return (double)cost.activation_bytes;
}

/* Fill the memory of batch sequences, whether they fit, and how many do. */
static void fill_memory(rg_plan_row *row, double state, double each_arena)
{
    rg_plan_memory *y = &row->memory;
    double batch = (double)row->batch, room = y->of - y->weights, most;

    y->kv *= batch;
    y->recurrent *= batch;
    most = state > 0 ? (room - y->activations) / state : 0;
    if (each_arena > 0) { /* many sequences have a larger arena than the prompt's */
        double limit = room / (state + each_arena);
        most = state > 0 && most < limit ? most : limit;
        y->activations = fmax(y->activations, batch * each_arena);
    }
    y->total = y->weights + y->kv + y->recurrent + y->activations;
    row->fits = y->total <= y->of;
    row->max_batch = most < 1 ? 0 : most > 1e15 ? (int64_t)1e15 : (int64_t)most;
}

/* ---- one latency ------------------------------------------------------------------------------------------------- */

static bool counted_step(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq, rg_cost *cost,
                         rg_error *err)
{
    rg_step_shape shape = rg_plan_step(s, batch, seq);

    return rg_cost_shape(s->model, &m->m, &shape, cost, NULL, NULL, err);
}

bool rg_plan_latency(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq, double *latency_s,
                     rg_error *err)
{
    double params, kv, b = (double)batch;
    rg_cost cost;

    switch (s->method) {
    case RG_PLAN_COUNTED:
        if (!counted_step(s, m, batch, seq, &cost, err))
            return false;
        *latency_s = cost.seconds;
        return true;
    case RG_PLAN_CLOSED_FORM: return closed_latency(s, m, b, (double)seq, latency_s, err);
    default: break;
    }
    if (!textbook_sizes(s, &params, &kv, err))
        return false;
    *latency_s = b * (double)seq * kv / m->m.roofs.read_bytes_s +
                 fmax(2 * b * params / book_peak(m), params * s->weight_bytes / m->m.roofs.read_bytes_s);
    return true;
}

/* The smallest batch from which doubling the batch nearly doubles the latency; 0: none. */
static bool find_knee(const rg_plan_subject *s, const rg_plan_machine *m, int64_t seq, int64_t *knee, rg_error *err)
{
    int64_t lo = 0, hi = 1;

    *knee = 0;
    for (;;) {
        int64_t at = lo ? lo + (hi - lo) / 2 : hi; /* doubling at first, then halving what is between */
        double one, two;

        if (!rg_plan_latency(s, m, at, seq, &one, err) || !rg_plan_latency(s, m, 2 * at, seq, &two, err))
            return false;
        bool past = two > KNEE_RATIO * one;
        if (!lo && !past) {
            if (at >= MOST_KNEE)
                return true;
            hi = 2 * at;
            continue;
        }
        if (!lo) {
            lo = at / 2; /* not past, or 0 */
            hi = at;
        } else if (past) {
            hi = at;
        } else {
            lo = at;
        }
        if (hi - lo <= 1 || !lo)
            break;
    }
    *knee = hi;
    return true;
}

/* ---- a row ------------------------------------------------------------------------------------------------------- */

rg_type rg_plan_usual_type(const rg_model *m)
{
    double values[RG_TYPE_COUNT] = { 0 };
    rg_type most = RG_F32;

    for (int i = 0; i < m->weights.n; i++) {
        const rg_weight *w = &m->weights.all[i];
        values[w->type] += (double)w->n_mats * (double)w->rows * (double)w->cols;
        most = values[w->type] > values[most] ? w->type : most;
    }
    return most;
}

static bool counted_row(const rg_plan_subject *s, rg_plan_row *row, rg_error *err)
{
    const rg_plan_machine *m = row->machine;
    double peak = rg_roofs_peak(&m->m.roofs, rg_plan_usual_type(s->model), s->exact);
    double bytes = (double)s->model->weights.stored_bytes / (double)s->model->weights.n_parameters;
    int chunk = m->chunk && m->chunk < row->seq ? m->chunk : (int)row->seq;
    rg_step_shape prompt = { .n_seqs = 1, .n_rows = (int)row->seq, .exact = s->exact };
    rg_cost step, prefill;

    if (!counted_step(s, m, row->batch, row->seq, &step, err))
        return false;
    rg_cost_prompt(s->model, &m->m, &prompt, chunk, &prefill);
    rg_plan_state_bytes(s->model, row->seq, &row->memory.kv, &row->memory.recurrent);
    row->memory.weights = (double)s->model->weights.stored_bytes;
    row->memory.activations = (double)prefill.activation_bytes;
    fill_memory(row, row->memory.kv + row->memory.recurrent, rg_plan_row_arena(s->model, m));
    row->latency_s = step.seconds;
    row->limit_s = step.limit_s;
    row->fixed_s = step.fixed_s;
    row->ttft_s = prefill.seconds;
    row->ops = step.count.ops;
    row->bytes = step.count.weight_bytes + step.count.state_bytes;
    row->bound_by = step.compute_s > step.weights_s && step.compute_s > step.state_s ? RG_BOUND_COMPUTE
                    : step.state_s > step.weights_s                                  ? RG_BOUND_KV
                                                                                     : RG_BOUND_WEIGHTS;
    row->critical_batch = peak * bytes / (2 * m->m.roofs.read_bytes_s);
    if (is_textbook(&s->model->config)) {
        rg_plan_subject textbook = *s;
        textbook.method = RG_PLAN_CLOSED_FORM;
        return closed_latency(&textbook, m, (double)row->batch, (double)row->seq, &row->closed_latency_s, err);
    }
    return true;
}

/* Fill in a row for a diffusion model: the evaluations of an answer. */
static bool filled_row(const rg_plan_subject *s, rg_plan_row *row, rg_error *err)
{
    const rg_plan_machine *m = row->machine;
    double peak = rg_roofs_peak(&m->m.roofs, rg_plan_usual_type(s->model), s->exact);
    double bytes = (double)s->model->weights.stored_bytes / (double)s->model->weights.n_parameters;
    rg_plan_fill f;

    if (!rg_plan_fill_answer(s, m, row->batch, row->seq, &s->filling, &f, err))
        return false;
    rg_plan_state_bytes(s->model, row->seq, &row->memory.kv, &row->memory.recurrent);
    row->memory.weights = (double)s->model->weights.stored_bytes;
    fill_memory(row, row->memory.kv + row->memory.recurrent, f.activation_bytes / (double)row->batch);
    row->latency_s = f.seconds / f.evaluations;
    row->limit_s = f.limit_s;
    row->fixed_s = f.fixed_s;
    row->ttft_s = f.first_s;
    row->throughput = f.throughput;
    row->ops = f.ops;
    row->bytes = f.bytes;
    row->bound_by = f.bound_by;
    row->evaluations = f.evaluations;
    row->rows = f.rows;
    row->per_evaluation = f.per_evaluation;
    row->critical_batch = peak * bytes / (2 * m->m.roofs.read_bytes_s) / f.rows;
    return true;
}

static bool textbook_row(const rg_plan_subject *s, rg_plan_row *row, rg_error *err)
{
    const rg_plan_machine *m = row->machine;
    double params, kv, batch = (double)row->batch, seq = (double)row->seq, peak = book_peak(m);

    if (!textbook_sizes(s, &params, &kv, err) || !rg_plan_latency(s, m, row->batch, row->seq, &row->latency_s, err))
        return false;
    double weights = params * s->weight_bytes, state = batch * seq * kv, compute = 2 * batch * params / peak;
    row->memory.weights = weights;
    row->memory.kv = seq * kv;
    fill_memory(row, seq * kv, 0);
    row->limit_s = row->latency_s;
    row->ops = 2 * batch * params;
    if (s->model && is_textbook(&s->model->config)) {
        const rg_config *c = &s->model->config;
        row->ops += 4.0 * batch * seq * c->n_heads * c->head_dim * c->n_layers;
    }
    row->bytes = weights + state;
    row->ttft_s = fmax(2 * seq * params / peak, weights / m->m.roofs.read_bytes_s);
    double weights_s = weights / m->m.roofs.read_bytes_s, state_s = state / m->m.roofs.read_bytes_s;
    bool computes = s->method == RG_PLAN_GENERAL ? compute > weights_s && compute > state_s : compute > row->latency_s;
    row->bound_by = computes ? RG_BOUND_COMPUTE : state_s > weights_s ? RG_BOUND_KV : RG_BOUND_WEIGHTS;
    row->critical_batch = peak * s->weight_bytes / (2 * m->m.roofs.read_bytes_s);
    return true;
}

static bool in_range(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq, rg_error *err)
{
    if (batch < 1 || batch > MOST_BATCH)
        return rg_fail(err, RG_E_USAGE, "batch %lld is out of range: 1 to %d", (long long)batch, MOST_BATCH);
    if (seq < 1 || seq > MOST_SEQ)
        return rg_fail(err, RG_E_USAGE, "a sequence of %lld positions is out of range: 1 to %d", (long long)seq,
                       MOST_SEQ);
    if (!(m->m.roofs.read_bytes_s > 0) || !(book_peak(m) > 0))
        return rg_fail(err, RG_E_INPUT, "machine %s: its bandwidth or its arithmetic could not be measured", m->name);
    if (!s->model && s->method != RG_PLAN_GENERAL)
        return rg_fail(err, RG_E_USAGE, "a size without a model needs the method general");
    return true;
}

bool rg_plan_point(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq, rg_plan_row *row,
                   rg_error *err)
{
    memset(row, 0, sizeof *row);
    row->machine = m;
    row->batch = batch;
    row->seq = seq;
    row->memory.of = m->memory_bytes;
    if (!in_range(s, m, batch, seq, err))
        return false;
    if (rg_plan_fills(s->model) && s->method != RG_PLAN_COUNTED)
        return rg_fail(err, RG_E_USAGE,
                       "a diffusion model is planned by its evaluations, which the textbook's methods "
                       "do not know: use --method counted");
    if (rg_plan_fills(s->model)        ? !filled_row(s, row, err)
        : s->method == RG_PLAN_COUNTED ? !counted_row(s, row, err)
                                       : !textbook_row(s, row, err))
        return false;
    if (row->throughput == 0)
        row->throughput = (double)batch / row->latency_s;
    row->intensity = row->bytes > 0 ? row->ops / row->bytes : 0;
    return find_knee(s, m, seq, &row->knee_batch, err);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

typedef struct listing {
    rg_plan_ops *out;
    const rg_plan_machine *m;
    bool prefill, exact;
} listing;

static void list_op(void *arg, const rg_counted *op, double seconds)
{
    listing *l = arg;
    rg_plan_ops *out = l->out;
    int i = 0;

    while (i < out->n && (out->op[i].prefill != l->prefill || strcmp(out->op[i].kind, rg_op_name(op->kind)) != 0 ||
                          strcmp(out->op[i].name, op->name) != 0))
        i++;
    if (i == RG_PLAN_MAX_OPS)
        return;
    rg_plan_op *o = &out->op[i];
    if (i == out->n) {
        *o = (rg_plan_op){ .name = op->name, .kind = rg_op_name(op->kind), .prefill = l->prefill };
        out->n++;
    }
    double bytes = op->count.weight_bytes + op->count.state_bytes;
    double peak = rg_roofs_peak(&l->m->m.roofs, op->w[0].type, l->exact);
    bool computes = op->count.ops / peak > bytes / l->m->m.roofs.read_bytes_s;
    o->count++;
    o->ops += op->count.ops;
    o->bytes += bytes;
    o->seconds += seconds;
    o->bound_by = computes                                          ? RG_BOUND_COMPUTE
                  : op->count.state_bytes > op->count.weight_bytes ? RG_BOUND_KV
                                                                   : RG_BOUND_WEIGHTS;
}

/* An operation of the textbook, from its work and its intensity. */
static void book_op(rg_plan_ops *out, const rg_plan_machine *m, const rg_plan_op *like, double ops, double intensity)
{
    rg_plan_op *o = &out->op[out->n++];
    double peak = book_peak(m);

    *o = *like;
    o->count = 1;
    o->ops = ops;
    o->bytes = intensity > 0 ? ops / intensity : 0;
    o->seconds = fmax(o->bytes / m->m.roofs.read_bytes_s, ops / peak);
    if (ops / peak > o->bytes / m->m.roofs.read_bytes_s)
        o->bound_by = RG_BOUND_COMPUTE;
}

static bool list_book(const rg_plan_subject *s, const rg_plan_machine *m, double batch, double seq, rg_plan_ops *out,
                      rg_error *err)
{
    const rg_config *c = s->model ? &s->model->config : NULL;
    bool attends = c && is_textbook(c);
    double params, kv;

    if (!textbook_sizes(s, &params, &kv, err))
        return false;
    for (int prefill = 0; prefill < 2; prefill++) {
        double t = prefill ? seq : 1, b = prefill ? 1 : batch;
        rg_plan_op matrices = { .name = "matrices", .kind = "linear", .prefill = prefill,
                                .bound_by = RG_BOUND_WEIGHTS };
        rg_plan_op attention = { .name = "attention", .kind = "attention", .prefill = prefill,
                                 .bound_by = RG_BOUND_KV };
        book_op(out, m, &matrices, 2 * params * b * t, b * t * 2 / s->weight_bytes);
        if (attends)
            book_op(out, m, &attention, 4 * b * t * seq * c->n_heads * c->head_dim * c->n_layers,
                    seq * t / (seq + t) * c->n_heads / c->n_kv_heads * 2 / s->kv_value_bytes);
    }
    return true;
}

bool rg_plan_list_ops(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq, rg_plan_ops *out,
                      rg_error *err)
{
    rg_step_shape shape;
    listing l = { .out = out, .m = m, .exact = s->exact };
    rg_cost cost;

    memset(out, 0, sizeof *out);
    if (!in_range(s, m, batch, seq, err))
        return false;
    if (s->method != RG_PLAN_COUNTED)
        return list_book(s, m, (double)batch, (double)seq, out, err);
    shape = rg_plan_step(s, batch, seq);
    if (!rg_cost_shape(s->model, &m->m, &shape, &cost, list_op, &l, err))
        return false;
    if (rg_plan_fills(s->model)) /* a prompt has no step of its own */
        return true;
    l.prefill = true;
    shape = (rg_step_shape){ .n_seqs = 1, .n_rows = (int)seq, .exact = s->exact };
    return rg_cost_shape(s->model, &m->m, &shape, &cost, list_op, &l, err);
}
