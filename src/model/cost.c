/* cost.c -- see cost.h. */
#include "model/cost.h"

#include <string.h>

#include "base/mem.h"

/* TURNS: a step's seconds depend on where its bytes come from, which depends on its seconds; found from below. */
enum { SPANS_AT_HAND = 256, MANY_ROWS = 512, STORE_SHARED = 32, TURNS = 8 };

/* Of what the last cache takes per byte, less comes from a nearer one. */
static const double NEARER = 0.8;

/* ---- rates as functions ------------------------------------------------------------------------------------------ */

const double rg_rate_sets[RG_RATE_SETS] = { 0x1p18, 0x1p19, 0x1p20, 0x2p20, 0x4p20, 0x8p20, 0xap20,
                                            0xcp20, 0xep20, 0x10p20, 0x12p20, 0x14p20, 0x18p20, 0x1cp20,
                                            0x20p20, 0x28p20, 0x30p20, 0x40p20, 0x80p20 };

double rg_machine_bandwidth_at(const rg_machine *m, double working_set)
{
    const double *rate = m->rates.set_bytes_s, *set = rg_rate_sets;
    int i = 0;

    if (!m->rates.measured)
        return m->read_bytes_s;
    while (i < RG_RATE_SETS - 1 && working_set > set[i + 1])
        i++;
    if (working_set <= set[i] || i == RG_RATE_SETS - 1)
        return rate[i];
    double x = (working_set - set[i]) / (set[i + 1] - set[i]); /* between this size and the next */
    return 1 / ((1 - x) / rate[i] + x / rate[i + 1]);
}

/* Seconds of a byte of one of the measured sets. */
static double byte_s(const rg_machine *m, int set)
{
    return 1 / m->rates.set_bytes_s[set];
}

static double within_one(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

const double rg_rate_pauses[RG_RATE_PAUSES] = { 0.25e-3, 0.5e-3, 1e-3, 2e-3, 4e-3 };

/* Of what was in a cache so long ago, the part that others have taken. */
static double taken(const rg_machine *m, double seconds)
{
    const double *at = rg_rate_pauses, *part = m->rates.taken;
    double before_s = 0, before = 0;

    for (int i = 0; i < RG_RATE_PAUSES; i++) {
        if (seconds < at[i])
            return before + (part[i] - before) * (seconds - before_s) / (at[i] - before_s);
        before_s = at[i];
        before = part[i];
    }
    return before;
}

/* The same of a set that was gone through in stream_s when its rate was measured, in which others took theirs too. */
static double gone_since(const rg_machine *m, double stream_s, double seconds)
{
    double left = 1 - taken(m, seconds), then = 1 - taken(m, stream_s < seconds ? stream_s : seconds);

    return then > 0 ? 1 - left / then : 0;
}

/* What takes less than half of memory's time per byte comes from a cache, and is not late. */
rg_sources rg_cost_sources(const rg_machine *m, double working_set, double seconds)
{
    rg_sources s = { 0 };

    if (!m->rates.measured)
        return s;
    double near = byte_s(m, RG_RATE_NEAR), cache = byte_s(m, RG_RATE_CACHE), far = byte_s(m, RG_RATE_FAR);
    double each = 1 / rg_machine_bandwidth_at(m, working_set), gone = gone_since(m, working_set * each, seconds);
    double memory = far > cache ? within_one((each - cache) / (far - cache)) : each > cache;
    double in_cache = memory > 0 ? 1 - memory : cache > near ? within_one((each - near) / (cache - near)) : 0;
    s.far[RG_FROM_CACHE] = in_cache * (1 - gone);
    s.far[RG_FROM_MEMORY] = memory + (1 - memory) * gone;
    each = near + s.far[RG_FROM_CACHE] * (cache - near) + s.far[RG_FROM_MEMORY] * (far - near);
    s.late = within_one(2 * each / far - 1);
    return s;
}

const int rg_rate_rows[RG_RATE_ROWS] = { 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 24, 32, 64, 128, 512 };

const double rg_rate_windows[RG_RATE_WINDOWS] = { 2e-3, 20e-3 };

/* What takes so long undisturbed, with the interruptions that it meets. */
static double interrupted(const rg_machine *m, double seconds)
{
    const double *at = rg_rate_windows, *lost = m->rates.lost;

    if (seconds <= at[0])
        return seconds * (1 + lost[0] * seconds / at[0]);
    double x = seconds < at[1] ? (seconds - at[0]) / (at[1] - at[0]) : 1;
    return seconds * (1 + lost[0] + x * (lost[1] - lost[0]));
}

/* A value measured at some numbers of rows, between them. */
static double by_rows(const double *v, double rows)
{
    int i = 0;

    while (i < RG_RATE_ROWS - 2 && rows > rg_rate_rows[i + 1])
        i++;
    double x = (rows - rg_rate_rows[i]) / (rg_rate_rows[i + 1] - rg_rate_rows[i]);
    return x < 0 ? v[0] : x > 1 ? v[i + 1] : v[i] + x * (v[i + 1] - v[i]);
}

/* The same where time grows with rows, beyond what was measured too. */
static double growing_by_rows(const double *v, double rows)
{
    const double most = rg_rate_rows[RG_RATE_ROWS - 1];

    return rows > most ? v[RG_RATE_ROWS - 1] * rows / most : by_rows(v, rows);
}

/* The same for the experts of a mixture that are used: rows choose by chance, and kernels do not like every number of
 * them alike, so the mean over the binomial distribution. */
static double mixed_seconds(const rg_linear_rate *r, const rg_counted *op)
{
    double p = op->share, n = op->n_rows, chance = 1, sum = 0, used = 0;

    if (n > MANY_ROWS || p >= 1)
        return growing_by_rows(r->near_s, op->rows);
    for (int i = 0; i < op->n_rows; i++)
        chance *= 1 - p;
    for (int x = 1; x <= op->n_rows; x++) { /* of x rows, from that of x - 1 */
        chance *= (n - x + 1) / x * p / (1 - p);
        sum += chance * growing_by_rows(r->near_s, x);
        used += chance;
    }
    return used > 0 ? sum / used : growing_by_rows(r->near_s, op->rows);
}

static double by_queries(const double *v, double queries)
{
    static const double at[RG_RATE_QUERIES] = { 1, 2, 4, 8, 32 };
    int i = 0;

    while (i < RG_RATE_QUERIES - 2 && queries > at[i + 1])
        i++;
    double x = (queries - at[i]) / (at[i + 1] - at[i]);
    return v[i] + within_one(x) * (v[i + 1] - v[i]);
}

/* ---- one operation ----------------------------------------------------------------------------------------------- */

typedef struct price {
    double near_s, fixed_s;
    double far_s[RG_SOURCES];      /* to be scaled by how many of the step's bytes come from there, */
    double late_s;                 /* and this by how many come at memory's pace: start late, wait for others */
    double bytes_s, ops_s;         /* the roofline's two sides */
} price;

/* (An operation without weights has the type 0, F32.) */
double rg_machine_peak(const rg_machine *m, rg_type weights, bool exact)
{
    const rg_layout layout = rg_format_of(weights)->layout;
    double peak = layout == RG_LAYOUT_BF16 ? m->bf16_ops_s : layout > RG_LAYOUT_BF16 ? m->int8_ops_s : 0;

    return peak > 0 && !exact ? peak : m->f32_ops_s;
}

static price roofline(const rg_machine *m, const rg_counted *op, bool exact)
{
    double peak = rg_machine_peak(m, op->w[0].type, exact);

    return (price){ .bytes_s = (op->count.weight_bytes + op->count.state_bytes) / m->read_bytes_s,
                    .ops_s = op->count.ops / peak };
}

static double limit_of(const price *p)
{
    return p->bytes_s > p->ops_s ? p->bytes_s : p->ops_s;
}

/* Parts go to threads whole: three parts take two threads as long as four would. */
static double imbalance(const rg_machine *m, double pieces)
{
    double n = m->rates.n_threads, whole;

    if (pieces < 1 || pieces > 64 * n)
        return 1;
    whole = (double)(int64_t)((pieces + n - 1) / n);
    return whole * n / pieces;
}

static void price_products(const rg_machine *m, const rg_counted *op, bool exact, price *p)
{
    double uneven = imbalance(m, op->pieces);

    for (int i = 0; i < 3 && op->w[i].values > 0; i++) {
        const rg_linear_rate *r = &m->rates.linear[op->w[i].type];
        if (!r->measured) { /* as the roofline has it */
            rg_counted one = *op;
            one.w[0] = op->w[i];
            one.count = (rg_count){ 2 * op->rows * op->w[i].values, op->count.weight_bytes / 3, 0 };
            price rough = roofline(m, &one, exact);
            p->near_s += limit_of(&rough);
            continue;
        }
        double each = op->share > 0 ? mixed_seconds(r, op) : growing_by_rows(r->near_s, op->rows);
        p->near_s += op->w[i].values * each * uneven;
        for (int k = 0; k < RG_SOURCES; k++)
            p->far_s[k] += op->w[i].values * by_rows(r->far_s[k], op->rows);
        p->far_s[RG_FROM_CACHE] += op->w[i].outputs * by_rows(r->far_row_s, op->rows);
        if (op->kind == RG_OP_MOE) /* what its experts' rows cost besides is in the rate of its cells */
            continue;
        p->near_s += op->rows * op->w[i].outputs * r->out_s;
        if (i) /* x is the same for all, and they are one stream */
            continue;
        p->near_s += op->rows * op->w[i].inputs * r->in_s;
        p->late_s += r->far_start_s; /* a few misses among hits start nothing */
    }
}

/* Of a type, or if it was not measured, of one that was: the arithmetic is alike. */
static const rg_attention_rate *kv_rate(const rg_attention_rate *all, rg_type type)
{
    for (int t = 0; t < RG_TYPE_COUNT && !all[type].measured; t++)
        if (all[t].measured)
            return &all[t];
    return &all[type];
}

static void price_attention(const rg_machine *m, const rg_counted *op, price *p)
{
    const rg_attention_rate *r = kv_rate(op->latent ? m->rates.latent : m->rates.attention, op->type);

    if (!r->measured) {
        p->near_s += limit_of(p);
        return;
    }
    double whole = op->cells > 0 ? op->whole / op->cells : 1; /* kernels go by whole blocks */
    p->near_s += (op->items * by_queries(r->item_s, op->rows) +
                  op->whole * (by_queries(r->pair_s, op->rows) + op->width * by_queries(r->width_s, op->rows))) *
                 imbalance(m, op->pieces);
    for (int k = 0; k < RG_SOURCES; k++)
        p->far_s[k] += op->count.state_bytes * whole * by_queries(r->far_s[k], op->rows) + op->streams * r->start_s[k];
}

/* What values take that are made one by one.  (To a store, rows are those of one sequence, side by side.) */
static double price_of_values(const rg_rates *r, const rg_counted *op)
{
    double rows = op->kind == RG_OP_KV_STORE ? op->rows : op->n_rows;
    double x = within_one((rows - RG_RATE_FEW) / (RG_RATE_MANY - RG_RATE_FEW));

    return op->n_rows * r->row_s[op->kind] +
           op->cells * (r->few_s[op->kind] + x * (r->many_s[op->kind] - r->few_s[op->kind]));
}

/* So many bytes that are read. */
static void price_read(const rg_machine *m, double bytes, price *p)
{
    p->far_s[RG_FROM_CACHE] += bytes * (byte_s(m, RG_RATE_CACHE) - byte_s(m, RG_RATE_NEAR));
    p->far_s[RG_FROM_MEMORY] += bytes * (byte_s(m, RG_RATE_FAR) - byte_s(m, RG_RATE_NEAR));
}

/* Positions side by side share a cache line. */
static void price_store(const rg_machine *m, const rg_counted *op, price *p)
{
    const rg_attention_rate *r = kv_rate(m->rates.attention, op->type);

    for (int k = 0; k < RG_SOURCES; k++)
        p->far_s[k] += op->cells * r->store_s[k] / (op->rows < STORE_SHARED ? op->rows : STORE_SHARED);
}

/* What sequences carry from row to row lies in short pieces, and is read and written. */
static void price_carried(const rg_machine *m, const rg_counted *op, price *p)
{
    p->near_s += op->count.state_bytes * m->rates.carry_near_s[op->kind];
    for (int k = 0; k < RG_SOURCES; k++)
        p->far_s[k] += op->count.state_bytes * m->rates.carry_far_s[k][op->kind];
    price_read(m, op->count.weight_bytes, p);
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

double rg_machine_comes_s(const rg_machine *m, rg_source from, double bytes)
{
    double bytes_s = from == RG_FROM_MEMORY ? m->read_bytes_s : m->cache_bytes_s;

    return bytes_s > 0 ? bytes / bytes_s : 0;
}

double rg_share_delay(const rg_share *s, rg_source from, double near_s, double bytes_s)
{
    double bytes = from == RG_FROM_MEMORY ? s->memory : s->cache, compute = s->compute > 0 ? s->compute : 1;

    return larger(bytes > 0 ? bytes_s / bytes : bytes_s, near_s / compute) - larger(bytes_s, near_s);
}

double rg_share_byte(const rg_machine *m, const rg_share *s, double byte_s)
{
    double memory = s->memory > 0 ? s->memory : 1, cache = s->cache > 0 ? s->cache : 1;
    double far_s = 1 / m->read_bytes_s, cache_s = m->cache_bytes_s > 0 ? 1 / m->cache_bytes_s : far_s;
    double far_now = far_s / memory, cache_now = cache_s / cache;

    if (byte_s < NEARER * cache_now)
        return byte_s;
    if (byte_s >= far_now)
        return byte_s * memory;
    if (byte_s <= cache_now)
        return byte_s * cache;
    return cache_s + (byte_s - cache_now) / (far_now - cache_now) * (far_s - cache_s);
}

/* What rates say is of a machine that gives all of its roofs. */
static void delay(const rg_machine *m, price *p)
{
    const rg_share *s = &m->share;
    double near_s = rg_share_delay(s, RG_FROM_MEMORY, p->near_s, 0);
    double memory_s = rg_share_delay(s, RG_FROM_MEMORY, p->near_s, p->bytes_s) - near_s;
    double cached_s = rg_machine_comes_s(m, RG_FROM_CACHE, p->bytes_s * m->read_bytes_s);
    double cache_s = rg_share_delay(s, RG_FROM_CACHE, p->near_s, cached_s) - near_s;

    p->fixed_s += rg_share_delay(s, RG_FROM_MEMORY, p->fixed_s, 0);
    p->far_s[RG_FROM_CACHE] = larger(p->far_s[RG_FROM_CACHE] + cache_s, 0);
    p->late_s += memory_s;
    p->near_s += near_s;
}

/* Of a machine that was measured. */
static price measured_price(const rg_machine *m, const rg_counted *op, bool exact)
{
    price p = roofline(m, op, exact);

    p.fixed_s = m->rates.fixed_s[op->kind];
    if (op->kind == RG_OP_ATTENTION || op->kind == RG_OP_MLA_ATTENTION) {
        price_attention(m, op, &p);
        return p;
    }
    p.near_s = price_of_values(&m->rates, op);
    if (op->w[0].values > 0)
        price_products(m, op, exact, &p);
    else if (op->kind == RG_OP_KV_STORE && !op->latent)
        price_store(m, op, &p);
    else if (op->kind == RG_OP_CONV || op->kind == RG_OP_SCAN)
        price_carried(m, op, &p);
    else /* short runs wait for memory and then compute: the two add up */
        price_read(m, op->count.weight_bytes + op->count.state_bytes, &p);
    return p;
}

static price price_of(const rg_machine *m, const rg_counted *op, bool exact)
{
    price p = m->rates.measured ? measured_price(m, op, exact) : roofline(m, op, exact);

    if (!m->rates.measured) {
        p.near_s = limit_of(&p);
        p.fixed_s = m->op_s;
        return p;
    }
    delay(m, &p);
    return p;
}

/* What comes on top of near_s and fixed_s. */
static double beyond_near(const price *p, const rg_sources *from)
{
    double s = p->late_s * from->late;

    for (int k = 0; k < RG_SOURCES; k++)
        s += p->far_s[k] * from->far[k];
    return s;
}

double rg_cost_op(const rg_machine *m, const rg_counted *op, const rg_sources *from, bool exact)
{
    price p = price_of(m, op, exact);

    return p.near_s + p.fixed_s + beyond_near(&p, from);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

typedef struct pricing {
    const rg_machine *m;
    bool exact;
    price sum;
    rg_cost *out;
} pricing;

static void add_op(void *arg, const rg_counted *op)
{
    pricing *s = arg;
    price p = price_of(s->m, op, s->exact);
    double limit = limit_of(&p);

    s->sum.near_s += p.near_s;
    s->sum.fixed_s += p.fixed_s;
    s->sum.late_s += p.late_s;
    for (int k = 0; k < RG_SOURCES; k++)
        s->sum.far_s[k] += p.far_s[k];
    s->out->limit_s += limit;
    if (p.ops_s > p.bytes_s)
        s->out->compute_s += limit;
    else if (op->count.weight_bytes > op->count.state_bytes)
        s->out->weights_s += limit;
    else
        s->out->state_s += limit;
}

/* All operations are there, and counted. */
static void add_up(pricing *s)
{
    rg_cost *out = s->out;
    double least = s->m->step_s + s->sum.fixed_s + s->sum.near_s;

    out->fixed_s = s->m->step_s + s->sum.fixed_s;
    out->seconds = least;
    for (int i = 0; i < TURNS; i++) {
        out->from = rg_cost_sources(s->m, out->count.weight_bytes + out->count.state_bytes, out->seconds);
        out->seconds = least + beyond_near(&s->sum, &out->from);
    }
    out->seconds = interrupted(s->m, out->seconds);
}

void rg_cost_list(const rg_machine *m, const rg_counted *ops, int n, bool exact, rg_cost *out)
{
    pricing s = { .m = m, .exact = exact, .out = out };

    *out = (rg_cost){ .n_ops = n };
    for (int i = 0; i < n; i++) {
        add_op(&s, &ops[i]);
        out->count.ops += ops[i].count.ops;
        out->count.weight_bytes += ops[i].count.weight_bytes;
        out->count.state_bytes += ops[i].count.state_bytes;
    }
    add_up(&s);
}

void rg_cost_batch(const rg_model *model, const rg_machine *m, const rg_batch *batch, bool exact, rg_cost *out)
{
    pricing s = { .m = m, .exact = exact, .out = out };
    rg_counter counter;
    rg_fwd f;

    memset(out, 0, sizeof *out);
    rg_counter_init(&counter, NULL, 0);
    counter.each = add_op;
    counter.arg = &s;
    rg_count_fwd(&f, &counter, batch);
    rg_model_forward(model, &f);
    out->count = counter.total;
    out->n_ops = counter.n_ops;
    out->activation_bytes = f.arena_peak;
    add_up(&s);
}

/* Spans that are only counted: rows are causal and know nothing but how many they are. */
static rg_batch batch_of(rg_span *spans, int n_spans)
{
    rg_batch b = { .n_spans = n_spans, .spans = spans, .n_logits = n_spans };

    for (int i = 0; i < n_spans; i++) {
        spans[i].first_row = b.n_rows;
        spans[i].adapter = -1;
        b.n_rows += spans[i].n_rows;
    }
    return b;
}

typedef struct shown {
    const rg_machine *m;
    const rg_sources *from;
    bool exact;
    rg_cost_each *each;
    void *arg;
} shown;

static void show_op(void *arg, const rg_counted *op)
{
    shown *s = arg;

    s->each(s->arg, op, rg_cost_op(s->m, op, s->from, s->exact));
}

static void show_ops(const rg_model *model, const rg_batch *batch, shown *s)
{
    rg_counter counter;
    rg_fwd f;

    rg_counter_init(&counter, NULL, 0);
    counter.each = show_op;
    counter.arg = s;
    rg_count_fwd(&f, &counter, batch);
    rg_model_forward(model, &f);
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
    rg_batch batch = batch_of(spans, shape->n_seqs);
    rg_cost_batch(model, m, &batch, shape->exact, out);
    if (each)
        show_ops(model, &batch, &(shown){ m, &out->from, shape->exact, each, arg });
    if (shape->n_seqs > 1)
        rg_free(spans);
    return true;
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
        rg_batch batch = batch_of(&span, 1);
        rg_cost step;

        rg_cost_batch(model, m, &batch, shape->exact, &step);
        add_cost(out, &step);
        done += n;
    }
}

/* ---- for the scheduler ------------------------------------------------------------------------------------------- */

double rg_cost_recompute_s(const rg_model *model, const rg_machine *m, int64_t n, int chunk, bool exact)
{
    rg_step_shape shape = { .n_seqs = 1, .n_rows = (int)n, .exact = exact };
    rg_cost cost;

    rg_cost_prompt(model, m, &shape, chunk, &cost);
    return cost.seconds;
}

/* Out and in again: read and written twice. */
double rg_cost_swap_s(const rg_model *model, const rg_machine *m, int64_t n)
{
    double bytes = 0;

    for (int g = 0; g < model->state.n_groups; g++) {
        const rg_group *group = &model->state.group[g];
        bytes += (double)rg_group_blocks(group, n) * (double)group->block_bytes;
    }
    double s = 4 * bytes / m->read_bytes_s;
    return s + rg_share_delay(&m->share, RG_FROM_MEMORY, 0, s);
}

int32_t rg_cost_swap_from(const rg_model *model, const rg_machine *m, int32_t max_len, int chunk, bool exact)
{
    for (int64_t n = 1; n <= max_len; n = n < RG_BLOCK ? RG_BLOCK : n * 2)
        if (rg_cost_swap_s(model, m, n) < rg_cost_recompute_s(model, m, n, chunk, exact))
            return (int32_t)n;
    return INT32_MAX;
}

/* Of a step with so many rows of a prompt (0: none) beside the answers. */
static double mixed_step_s(const rg_model *model, const rg_machine *m, const rg_step_aim *aim, int prompt_rows,
                           bool exact)
{
    rg_span spans[SPANS_AT_HAND];
    int n = aim->n_decode < SPANS_AT_HAND ? aim->n_decode : SPANS_AT_HAND - 1;
    rg_cost cost;

    for (int i = 0; i < n; i++)
        spans[i] = (rg_span){ .n_rows = 1, .start = (int32_t)aim->decode_at };
    if (prompt_rows)
        spans[n++] = (rg_span){ .n_rows = prompt_rows, .start = (int32_t)aim->prompt_at };
    rg_batch batch = batch_of(spans, n);
    rg_cost_batch(model, m, &batch, exact, &cost);
    return cost.seconds;
}

int rg_cost_budget(const rg_model *model, const rg_machine *m, const rg_step_aim *aim, int max_rows, bool exact)
{
    double most = aim->seconds, kept;
    int lo = 1, hi = max_rows;

    if (aim->pace > 0 && aim->n_decode > 0) {
        kept = aim->pace * mixed_step_s(model, m, aim, 0, exact);
        most = most > 0 && most < kept ? most : kept;
    }
    if (most <= 0)
        return max_rows;
    while (lo < hi) { /* the most that is within: seconds grow with rows */
        int rows = lo + (hi - lo + 1) / 2;

        if (mixed_step_s(model, m, aim, rows, exact) <= most)
            lo = rows;
        else
            hi = rows - 1;
    }
    return lo;
}

bool rg_cost_count(const rg_model *m, int n_seqs, int n_rows, int64_t start, rg_counter *counter, rg_error *err)
{
    rg_span *spans = rg_array((size_t)n_seqs, sizeof *spans);
    rg_fwd *f = rg_alloc(sizeof *f);
    bool ok = spans && f;

    if (!ok) {
        rg_fail_memory(err, (size_t)n_seqs * sizeof *spans);
    } else {
        for (int s = 0; s < n_seqs; s++)
            spans[s] = (rg_span){ .n_rows = n_rows, .start = (int32_t)start };
        rg_batch batch = batch_of(spans, n_seqs);
        rg_count_fwd(f, counter, &batch);
        rg_model_forward(m, f);
    }
    rg_free(spans);
    rg_free(f);
    return ok;
}
