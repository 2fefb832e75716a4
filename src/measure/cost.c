/* cost.c -- see cost.h. */
#include "measure/cost.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

/* ---- rates between the points where they were measured ----------------------------------------------------------- */

static double within_one(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

double rg_machine_bandwidth(const rg_machine *m, double working_set)
{
    return m->rates ? rg_rates_bandwidth(m->rates, working_set) : m->roofs.read_bytes_s;
}

/* Time grows with rows, also beyond the largest number that was measured. */
static double by_rows(const double *v, double rows)
{
    const double most = rg_rate_rows[RG_RATE_ROWS - 1];

    return rows > most ? v[RG_RATE_ROWS - 1] * rows / most : rg_rate_between(v, rg_rate_rows, RG_RATE_ROWS, rows);
}

/* ---- one operation ----------------------------------------------------------------------------------------------- */

/* Where a step's bytes come from: between a place and the next one. */
typedef struct source {
    double byte_s;
    int place;
    double beyond; /* 0: from that place; 1: from the next */
} source;

/* By the time for a byte of a working set of this size. */
static source source_of(const rg_machine *m, double working_set)
{
    source s = { .byte_s = 1 / rg_machine_bandwidth(m, working_set) };

    if (!m->rates)
        return s;
    for (s.place = RG_NEAR; s.place + 1 < RG_RATE_PLACES; s.place++) {
        double here_s = 1 / m->rates->set_bytes_s[rg_rate_place_set[s.place]];
        double next_s = 1 / m->rates->set_bytes_s[rg_rate_place_set[s.place + 1]];
        s.beyond = next_s > here_s ? within_one((s.byte_s - here_s) / (next_s - here_s)) : s.byte_s >= next_s;
        if (s.beyond < 1)
            return s;
    }
    s.place--;
    return s;
}

typedef struct price {
    double bytes_s, peak_s, limit_s; /* the roofline: its two sides, and the longer one */
    double fixed_s, seconds;         /* seconds: fixed_s included */
} price;

static double by_place(const double v[RG_RATE_PLACES], const source *from)
{
    return v[from->place] + from->beyond * (v[from->place + 1] - v[from->place]);
}

static double products_s(const rg_rates *r, const source *from, const rg_counted *op, bool exact)
{
    double s = 0, out_s = 0, in_s = 0;

    for (int i = 0; i < (int)RG_LEN(op->w) && op->w[i].values > 0; i++) {
        const rg_product_rate *p = &r->product[exact][rg_format_of(op->w[i].type)->layout];
        double here_s = by_rows(p->value_s[from->place], op->rows);
        double next_s = by_rows(p->value_s[from->place + 1], op->rows);
        s += op->w[i].values * (here_s + from->beyond * (next_s - here_s));
        out_s = fmax(out_s, rg_rate_between(p->out_s, rg_rate_outs, RG_RATE_OUTS, op->rows));
        in_s = fmax(in_s, p->in_s);
    }
    return s + op->outs * out_s + op->ins * in_s;
}

static double pair_s(const rg_counted *op, const double *pair, const double *column)
{
    return rg_rate_between(pair, rg_rate_queries, RG_RATE_QUERIES, op->rows) +
           op->width * rg_rate_between(column, rg_rate_queries, RG_RATE_QUERIES, op->rows);
}

/* Kernels go by whole blocks of keys; some of them are far. */
static double attention_s(const rg_rates *r, const source *from, const rg_counted *op)
{
    const rg_attention_rate *a = &r->attention[op->latent][op->type];
    const double far = from->place < RG_IN_CACHE ? 0 : from->beyond;

    const double first_s = by_place(r->first_byte_s, from);

    return op->whole * ((1 - far) * pair_s(op, a->pair_s, a->column_s) +
                        far * pair_s(op, a->far_pair_s, a->far_column_s)) + op->first_bytes * first_s;
}

static price price_of(const rg_machine *m, const source *from, const rg_counted *op, bool exact)
{
    const rg_rates *r = m->rates;
    price p = { .bytes_s = (op->count.weight_bytes + op->count.state_bytes) * from->byte_s,
                .peak_s = op->count.ops / rg_roofs_peak(&m->roofs, op->w[0].type, exact) };

    p.seconds = p.limit_s = fmax(p.bytes_s, p.peak_s);
    if (!r)
        return p;
    bool attends = op->kind == RG_OP_ATTENTION || op->kind == RG_OP_MLA_ATTENTION;
    double line_s = by_place(r->line_s, from);
    double values_s = op->cells * r->cell_s[op->kind] + op->lines * line_s + op->angles * r->angle_s;
    double arithmetic_s = attends ? attention_s(r, from, op) : products_s(r, from, op, exact) + values_s;
    p.fixed_s = (op->n_rows > 1 ? r->shared_s : r->fixed_s)[op->kind];
    p.seconds = p.fixed_s + fmax(p.bytes_s, arithmetic_s);
    return p;
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

typedef struct pricing {
    const rg_machine *m;
    source from;
    bool exact;
    rg_cost *out;
    rg_cost_each *each;
    void *arg;
} pricing;

static void add_op(void *arg, const rg_counted *op)
{
    pricing *s = arg;
    rg_cost *out = s->out;
    price p = price_of(s->m, &s->from, op, s->exact);

    out->seconds += p.seconds;
    out->fixed_s += p.fixed_s;
    out->limit_s += p.limit_s;
    if (p.peak_s > p.bytes_s)
        out->compute_s += p.limit_s;
    else if (op->count.weight_bytes > op->count.state_bytes)
        out->weights_s += p.limit_s;
    else
        out->state_s += p.limit_s;
    if (s->each)
        s->each(s->arg, op, p.seconds);
}

/* After counting: what is the same for every operation. */
static void begin(pricing *s)
{
    rg_cost *out = s->out;

    s->from = source_of(s->m, out->count.weight_bytes + out->count.state_bytes);
    out->seconds = out->fixed_s = s->m->rates ? s->m->rates->step_s : 0;
}

void rg_cost_list(const rg_machine *m, const rg_counted *ops, int n, bool exact, rg_cost *out)
{
    pricing s = { .m = m, .exact = exact, .out = out };

    *out = (rg_cost){ .n_ops = n };
    for (int i = 0; i < n; i++) {
        out->count.ops += ops[i].count.ops;
        out->count.weight_bytes += ops[i].count.weight_bytes;
        out->count.state_bytes += ops[i].count.state_bytes;
    }
    begin(&s);
    for (int i = 0; i < n; i++)
        add_op(&s, &ops[i]);
}

static rg_outputs text_of(const void *model, rg_fwd *f)
{
    return rg_model_forward(model, f);
}

static void forward(const rg_model *model, const rg_batch *batch, rg_counter *counter, rg_cost *out)
{
    rg_fwd f;

    const rg_backend *b = rg_backend_nth(0); /* all of this processor's keep activations alike */

    rg_count_fwd(&f, counter, batch);
    rg_model_forward(model, &f);
    (void)b->measure(b, &(rg_step){ .text = text_of, .model = model, .batch = batch }, &out->activation_bytes, NULL);
}

/* All operations are counted first, since the place that their bytes come from depends on the size of all together. */
static void cost_batch(const rg_model *model, const rg_batch *batch, pricing *s)
{
    rg_counter counter;

    *s->out = (rg_cost){ 0 };
    rg_counter_init(&counter, NULL, 0);
    forward(model, batch, &counter, s->out);
    s->out->count = counter.total;
    s->out->n_ops = counter.n_ops;
    begin(s);
    rg_counter_init(&counter, NULL, 0);
    counter.each = add_op;
    counter.arg = s;
    forward(model, batch, &counter, s->out);
}

void rg_cost_batch(const rg_model *model, const rg_machine *m, const rg_batch *batch, bool exact, rg_cost *out)
{
    cost_batch(model, batch, &(pricing){ .m = m, .exact = exact, .out = out });
}

/* Spans for counting only: rows are causal, and only their numbers are set.  Of a model with adapters they have the
 * first. */
static rg_batch batch_of(const rg_model *model, rg_span *spans, int n_spans)
{
    rg_batch b = { .n_spans = n_spans, .spans = spans, .n_logits = n_spans };

    for (int i = 0; i < n_spans; i++) {
        spans[i].first_row = b.n_rows;
        spans[i].adapter = model->adapters.n ? 0 : -1;
        b.n_rows += spans[i].n_rows;
    }
    return b;
}

/* True if the rows of a step are those of a canvas: only then there are positions behind them that they see. */
static bool is_canvas(const rg_model *model, const rg_step_shape *shape)
{
    return model->config.diffusion.canvas.length && shape->n_seq;
}

/* Where the rows of like sequences stand and how far they see, of a model whose rows see rows after them.  The
 * caller frees batch->index; false: no memory. */
static bool place_rows(const rg_model *model, const rg_step_shape *shape, rg_batch *b)
{
    const int64_t n_seq = shape->n_seq ? shape->n_seq : shape->start + shape->n_rows;
    int32_t *index = rg_array((size_t)b->n_rows, 2 * sizeof *index), *kv_end = index + b->n_rows;

    for (int32_t r = 0; index && r < b->n_rows; r++) {
        index[r] = (int32_t)shape->start + r % shape->n_rows;
        kv_end[r] = rg_kv_end(model->config.sees, index[r], (int32_t)n_seq);
        if (is_canvas(model, shape)) {
            index[r] = (int32_t)shape->start;
            kv_end[r] = (int32_t)n_seq;
        }
    }
    if (is_canvas(model, shape)) { /* nothing is read of these */
        b->features = b->temperatures = (const float *)(const void *)index;
        b->feature_cols = model->config.dim;
    }
    b->index = index;
    b->kv_end = kv_end;
    return index != NULL;
}

bool rg_cost_shape(const rg_model *model, const rg_machine *m, const rg_step_shape *shape, rg_cost *out,
                   rg_cost_each *each, void *arg, rg_error *err)
{
    rg_span one, *spans = &one;
    int32_t end, rows;

    if (shape->n_seqs < 1 || shape->n_rows < 1 || shape->start < 0 || shape->start > INT32_MAX / 2 ||
        !rg_mul(shape->n_seqs, shape->n_rows, &rows) || !rg_add((int32_t)shape->start, shape->n_rows, &end) ||
        rows > 1 << 24)
        return rg_fail(err, RG_E_USAGE, "a step of %d sequences of %d rows after %lld positions is out of range",
                       shape->n_seqs, shape->n_rows, (long long)shape->start);
    if (shape->n_seqs > 1)
        spans = rg_array((size_t)shape->n_seqs, sizeof *spans);
    if (!spans)
        return rg_fail_memory(err, (size_t)shape->n_seqs * sizeof *spans);
    for (int i = 0; i < shape->n_seqs; i++)
        spans[i] = (rg_span){ .n_rows = shape->n_rows, .start = (int32_t)shape->start };
    rg_batch batch = batch_of(model, spans, shape->n_seqs);
    batch.n_logits = shape->n_seqs * (shape->n_logits > 0 ? shape->n_logits : 1);
    bool ok = (model->config.sees == RG_CAUSAL && !is_canvas(model, shape)) || place_rows(model, shape, &batch);
    if (ok)
        cost_batch(model, &batch, &(pricing){ .m = m, .exact = shape->exact, .out = out, .each = each, .arg = arg });
    else
        rg_fail_memory(err, (size_t)rows * 2 * sizeof *batch.index);
    rg_free((void *)(uintptr_t)batch.index);
    if (shape->n_seqs > 1)
        rg_free(spans);
    return ok;
}

static void add_cost(rg_cost *to, const rg_cost *c)
{
    to->seconds += c->seconds;
    to->limit_s += c->limit_s;
    to->weights_s += c->weights_s;
    to->state_s += c->state_s;
    to->compute_s += c->compute_s;
    to->fixed_s += c->fixed_s;
    to->count.ops += c->count.ops;
    to->count.weight_bytes += c->count.weight_bytes;
    to->count.state_bytes += c->count.state_bytes;
    to->n_ops += c->n_ops;
    to->activation_bytes = c->activation_bytes > to->activation_bytes ? c->activation_bytes : to->activation_bytes;
}

void rg_cost_prompt(const rg_model *model, const rg_machine *m, const rg_step_shape *shape, int chunk, rg_cost *out)
{
    int64_t done = 0;

    memset(out, 0, sizeof *out);
    while (done < shape->n_rows) {
        int64_t n = shape->n_rows - done < chunk ? shape->n_rows - done : chunk;
        rg_span span = { .n_rows = (int32_t)n, .start = (int32_t)(shape->start + done) };
        rg_batch batch = batch_of(model, &span, 1);
        rg_cost step;

        rg_cost_batch(model, m, &batch, shape->exact, &step);
        add_cost(out, &step);
        done += n;
    }
}
