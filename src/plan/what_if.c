/* what_if.c -- see what_if.h. */
#include "plan/what_if.h"

#include "plan/fill.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { MOST_DRAFTS = 16 };

typedef struct trial {
    const rg_plan_subject *s;
    const rg_plan_machine *m;
    const rg_what_if_options *o;
    int64_t batch, seq;
    rg_type type;          /* that most of the weights have */
    rg_plan_row base;
    double step_s;         /* of the base; of a diffusion model, of one evaluation in the middle of an answer */
    rg_counted *ops;       /* of the base step, */
    rg_counted *changed;   /* and after a change */
    int n_ops, room;
    rg_what_if *out;
    rg_error *err;
} trial;

static rg_what_if_row *add(trial *b, const char *name, double memory, double latency, double throughput)
{
    RG_ASSERT(b->out->n < RG_WHAT_IF_ROWS);
    rg_what_if_row *l = &b->out->row[b->out->n++];

    snprintf(l->name, sizeof l->name, "%s", name);
    l->memory_bytes = memory;
    l->latency_s = latency;
    l->throughput = throughput;
    l->fits = memory <= b->m->memory_bytes;
    return l;
}

/* A row needs so much memory besides. */
/* Tokens per second where a step takes so long: of as many tokens as the base's step gives. */
static double throughput_of(const trial *b, double step_s)
{
    return b->base.throughput * b->step_s / step_s;
}

static void add_memory(const trial *b, rg_what_if_row *l, double bytes)
{
    l->memory_bytes += bytes;
    l->fits = l->memory_bytes <= b->m->memory_bytes;
}

static double bytes_per_value(rg_type type)
{
    return (double)rg_format_of(type)->block_bytes / rg_format_of(type)->block_len;
}

/* ---- changes that are another model ------------------------------------------------------------------------------ */

static double memory_of(const trial *b, const rg_model *m)
{
    double kv, recurrent;

    rg_plan_state_bytes(m, b->seq, &kv, &recurrent);
    return (double)m->weights.stored_bytes + (double)b->batch * (kv + recurrent) + b->base.memory.activations;
}

/* Declare a model of this config and type, and count it. */
static bool try_model(trial *b, const rg_config *c, rg_type type, const char *name, rg_what_if_row **l)
{
    rg_model_options o = { .kv_type = rg_kv_name(b->s->model->kv_type), .declared_type = type };
    rg_error why = { 0 };
    rg_model *m = rg_model_declare(c, &o, &why);
    rg_plan_subject s = *b->s;
    double latency = 0;

    *l = NULL;
    if (!m) {
        if (why.code != RG_E_MEMORY)
            return true; /* a format whose blocks do not divide this model's rows: left out */
        if (b->err)
            *b->err = why;
        return false;
    }
    s.model = m;
    bool ok = rg_plan_latency(&s, b->m, b->batch, b->seq, &latency, b->err);
    if (ok)
        *l = add(b, name, memory_of(b, m), latency, throughput_of(b, latency));
    rg_model_close(m);
    return ok;
}

static bool has_kv(const rg_config *c)
{
    return c->n_heads > 0 && c->n_kv_heads > 0;
}

static bool try_kv_heads(trial *b, rg_config *c)
{
    int was = c->n_kv_heads, tried[] = { was / 4, 1 };
    rg_what_if_row *l;
    char name[48];

    for (size_t i = 0; i < RG_LEN(tried); i++) {
        if (tried[i] < 1 || tried[i] >= was || c->n_heads % tried[i] || (i && tried[i] == tried[0]))
            continue;
        c->n_kv_heads = tried[i];
        snprintf(name, sizeof name, "kv heads %d -> %d (%s)", was, tried[i], tried[i] > 1 ? "GQA" : "MQA");
        if (!try_model(b, c, b->type, name, &l))
            return false;
        if (l)
            snprintf(l->formula, sizeof l->formula, "counted; K/V = 2 K H L values a position");
    }
    c->n_kv_heads = was;
    return true;
}

static bool try_windows(trial *b, rg_config *c)
{
    rg_config *windowed;
    rg_what_if_row *l = NULL;
    char name[48];

    if (c->window || c->n_layers < 6 || b->seq <= b->o->window)
        return true;
    windowed = rg_alloc(sizeof *windowed);
    if (!windowed)
        return rg_fail_memory(b->err, sizeof *windowed);
    *windowed = *c;
    windowed->window = b->o->window;
    for (int i = 0; i < c->n_layers; i++)
        windowed->layer[i].window = i % 6 == 5 ? 0 : b->o->window;
    snprintf(name, sizeof name, "windows of %d, 5 layers in 6", b->o->window);
    bool ok = try_model(b, windowed, b->type, name, &l);
    if (l)
        snprintf(l->formula, sizeof l->formula, "counted; K/V positions = S / 6 + 5 min(S, W) / 6 a layer");
    rg_free(windowed);
    return ok;
}

static bool try_formats(trial *b, const rg_config *c)
{
    static const struct {
        rg_type type;
        const char *name;
    } formats[] = { { RG_Q8_0, "int8 weights (q8_0)" }, { RG_Q4_0, "int4 weights (q4_0)" } };
    rg_what_if_row *l;

    for (size_t i = 0; i < RG_LEN(formats); i++) {
        if (b->type == formats[i].type)
            continue;
        if (!try_model(b, c, formats[i].type, formats[i].name, &l))
            return false;
        if (l)
            snprintf(l->formula, sizeof l->formula, "counted; %.3g bytes a weight",
                     bytes_per_value(formats[i].type));
    }
    return true;
}

static bool try_pruning(trial *b, rg_config *c)
{
    int was = c->n_layers, keep = (int)(was * b->o->keep + 0.5);
    rg_what_if_row *l;
    char name[48];

    if (keep < 1 || keep >= was)
        return true;
    c->n_layers = keep;
    snprintf(name, sizeof name, "pruned to %d of %d layers", keep, was);
    bool ok = try_model(b, c, b->type, name, &l);
    if (l)
        snprintf(l->formula, sizeof l->formula, "counted; depth pruning, then distillation");
    c->n_layers = was;
    return ok;
}

/* ---- changes of the counted operations --------------------------------------------------------------------------- */

/* Changes an operation; returns the change in the number of weight values. */
typedef double change_fn(const trial *b, rg_counted *op);

/* Weight i of an op gets this many values. */
static double resize(rg_counted *op, int i, double values)
{
    double more = values - op->w[i].values;
    rg_type type = op->w[i].values > 0 ? op->w[i].type : op->w[0].type;

    op->w[i] = (rg_counted_weight){ type, values };
    op->count.weight_bytes += more * bytes_per_value(type);
    op->count.ops += 2 * op->rows * more;
    return more;
}

static bool is_qkv(const rg_counted *op)
{
    return op->kind == RG_OP_LINEAR && op->w[2].values > 0;
}

/* MLA (DeepSeek-V2): a latent of 4 H and a rotated key of H / 2 for all heads; queries of 3 H / 2; absorbed, so that
 * heads share one key. */
static double to_mla(const trial *b, rg_counted *op)
{
    const rg_config *c = &b->s->model->config;
    double h = c->head_dim, latent = 4 * h, rotated = h / 2, was = 2.0 * c->n_kv_heads * h;
    double more = 0;

    if (is_qkv(op)) {
        more += resize(op, 0, op->w[0].values * 1.5);
        more += resize(op, 1, (double)c->dim * (latent + rotated));
        more += resize(op, 2, 2 * latent * h * c->n_heads); /* into the latent space and back */
    } else if (op->kind == RG_OP_KV_STORE || op->kind == RG_OP_ATTENTION) {
        op->count.state_bytes *= (latent + rotated) / was;
        op->latent = true;
    }
    if (op->kind == RG_OP_ATTENTION) {
        op->rows *= c->n_kv_heads;
        op->width = (int)(2 * latent + rotated);
        op->count.ops = 2 * op->cells * op->width;
    }
    return more;
}

/* CLA (Brandon 2024), s = 2: every second layer reads the K/V of the one before and makes none. */
static double to_cla(const trial *b, rg_counted *op)
{
    (void)b;
    if (op->layer % 2 == 0)
        return 0;
    if (op->kind == RG_OP_KV_STORE) {
        op->count.state_bytes = 0;
        op->cells = 0;
    }
    return is_qkv(op) ? resize(op, 1, 0) + resize(op, 2, 0) : 0;
}

/* A layer becomes a recurrence with a matrix of `rows` x `cols` per query head, in f32, read and written by each step;
 * ops operations on each of its values for every row. */
static void to_state(const trial *b, rg_counted *op, double rows, double cols, double ops)
{
    double cells = (double)b->batch * b->s->model->config.n_heads * rows * cols;

    if (op->kind == RG_OP_KV_STORE) {
        op->count.state_bytes = 0;
        op->cells = 0;
    } else if (op->kind == RG_OP_ATTENTION) {
        *op = (rg_counted){ .kind = RG_OP_LINEAR_ATTENTION, .layer = op->layer, .name = op->name, .rows = op->rows,
                            .cells = cells, .count = { .ops = ops * cells, .state_bytes = 8 * cells } };
    }
}

/* Lightning attention (MiniMax-01): S [H, H] per head with decay in seven layers of eight. */
static double to_linear(const trial *b, rg_counted *op)
{
    double h = b->s->model->config.head_dim;

    if (op->layer % 8 != 7)
        to_state(b, op, h, h, 5);
    return 0;
}

enum { SSD_STATE = 128 }; /* Mamba-2's usual d_state */

/* SSD (Mamba-2): S [d_state, H] per head in every layer; B and C, of all heads, in place of K. */
static double to_recurrent(const trial *b, rg_counted *op)
{
    const rg_config *c = &b->s->model->config;

    to_state(b, op, SSD_STATE, c->head_dim, 5);
    if (!is_qkv(op))
        return 0;
    return resize(op, 1, 2.0 * SSD_STATE * c->dim) + resize(op, 2, (double)c->n_heads * c->head_dim * c->dim);
}

static double share_of_type(const trial *b, rg_type type)
{
    return rg_kv_value_bytes(type) / rg_kv_value_bytes(b->s->model->kv_type);
}

static void to_kv_type(const trial *b, rg_counted *op, rg_type type)
{
    const bool of_kv = op->kind == RG_OP_KV_STORE || op->kind == RG_OP_ATTENTION || op->kind == RG_OP_MLA_ATTENTION;

    if (!of_kv && op->kind != RG_OP_ROWS_STORE && op->kind != RG_OP_CHOOSE_KEYS)
        return;
    op->count.state_bytes *= share_of_type(b, of_kv ? type : RG_I8);
    op->type = type;
}

static double to_q8_kv(const trial *b, rg_counted *op)
{
    to_kv_type(b, op, RG_I8);
    return 0;
}

static double to_q4_kv(const trial *b, rg_counted *op)
{
    to_kv_type(b, op, RG_Q4_1);
    return 0;
}

/* --attention-sparsity: a query reads all keys of its blocks, and V of those alone that it does not leave out. */
static double to_skipped(const trial *b, rg_counted *op)
{
    const double kept = 1 - b->o->skipped / 2;

    if (op->kind != RG_OP_ATTENTION || op->latent)
        return 0;
    op->count.state_bytes *= kept;
    op->count.ops *= kept;
    op->key_bytes *= kept;
    op->width = (int)(op->width * kept + 0.5);
    return 0;
}

static rg_what_if_row *try_change(trial *b, change_fn *change, double kv_share, const char *name)
{
    const rg_plan_memory *y = &b->base.memory;
    double values = 0;
    rg_cost cost;

    for (int i = 0; i < b->n_ops; i++) {
        b->changed[i] = b->ops[i];
        values += change(b, &b->changed[i]);
    }
    rg_cost_list(&b->m->m, b->changed, b->n_ops, b->s->exact, &cost);
    return add(b, name, y->total + values * bytes_per_value(b->type) - y->kv * (1 - kv_share), cost.seconds,
               (double)b->batch / cost.seconds);
}

/* State of a fixed size in place of K/V: the model's own heads, what they keep told in the formula. */
static void try_recurrences(trial *b)
{
    const rg_config *c = &b->s->model->config;
    double h = c->head_dim, values = (double)c->n_heads * h * h, layers = c->n_layers;
    double full = (double)(c->n_layers / 8), kept = (layers - full) * values * 4 * (double)b->batch;
    rg_what_if_row *l = try_change(b, to_linear, full / layers, "linear attention, 7 layers in 8");

    add_memory(b, l, kept);
    snprintf(l->formula, sizeof l->formula, "N H H values of f32 a layer, however long: %.3g MB a sequence",
             kept / (double)b->batch / 1e6);
    values = (double)c->n_heads * SSD_STATE * h;
    kept = layers * values * 4 * (double)b->batch;
    l = try_change(b, to_recurrent, 0, "recurrent state (SSD, all layers)");
    add_memory(b, l, kept);
    snprintf(l->formula, sizeof l->formula, "N H %d values of f32 a layer, however long: %.3g MB a sequence",
             SSD_STATE, kept / (double)b->batch / 1e6);
}

static void try_skipping(trial *b)
{
    char name[48];

    if (b->o->skipped <= 0)
        return;
    snprintf(name, sizeof name, "attention skips %.0f %% of its blocks", 100 * b->o->skipped);
    rg_what_if_row *l = try_change(b, to_skipped, 1, name);
    snprintf(l->formula, sizeof l->formula,
             "reads V of the others: K/V read x (1 - s / 2); s: study sparsity --softmax");
}

static void try_changes(trial *b)
{
    const rg_config *c = &b->s->model->config;
    double was = 2.0 * c->n_kv_heads;
    rg_what_if_row *l;

    if (b->base.memory.kv <= 0)
        return;
    if (has_kv(c)) {
        l = try_change(b, to_mla, 4.5 / was, "MLA (latent 4 H, rotated H / 2)");
        snprintf(l->formula, sizeof l->formula, "K/V = 4.5 H L values a position; absorbed");
        if (c->n_layers > 1) {
            double makers = (c->n_layers + 1) / 2;
            l = try_change(b, to_cla, makers / c->n_layers, "CLA 2: layers share K/V in pairs");
            snprintf(l->formula, sizeof l->formula, "K/V of every second layer, read by both");
        }
    }
    if (has_kv(c)) {
        try_recurrences(b);
        try_skipping(b);
    }
    if (b->s->model->kv_type != RG_I8 && b->s->model->kv_type != RG_Q4_1) {
        l = try_change(b, to_q8_kv, share_of_type(b, RG_I8), "q8 K/V");
        snprintf(l->formula, sizeof l->formula, "counted; a byte a value of K and V, a scale of 2 per 32");
    }
    if (b->s->model->kv_type != RG_Q4_1 && c->sees == RG_CAUSAL) {
        double own = RG_BLOCK * (double)rg_state_bytes_per_position(&b->s->model->state) * rg_kv_value_bytes(RG_F32) /
                     rg_kv_value_bytes(b->s->model->kv_type);
        l = try_change(b, to_q4_kv, share_of_type(b, RG_Q4_1), "q4 K/V");
        add_memory(b, l, own * (double)b->batch);
        snprintf(l->formula, sizeof l->formula,
                 "counted; half a byte a value, 4 bytes per 32; 64 positions as f32 besides");
    }
}

/* ---- changes of serving ------------------------------------------------------------------------------------------ */

double rg_speculation_tokens(double a, int g)
{
    double sum = 1, power = 1;

    for (int i = 0; i < g; i++) {
        power *= a;
        sum += power;
    }
    return sum;
}

/* A diffusion model's own levers: ids that an evaluation finishes, and approximate caches. */
static bool try_filling(trial *b)
{
    rg_plan_fill f[RG_PLAN_FILLS];
    const int n = rg_plan_fill_table(b->s, b->m, b->batch, b->seq, f, b->err);
    char name[48];

    for (int i = 0; i < n && b->out->n < RG_WHAT_IF_ROWS - 2; i++) {
        if (f[i].cache == b->s->filling.cache && f[i].per_evaluation == b->base.per_evaluation)
            continue;
        snprintf(name, sizeof name, "%.0f ids an evaluation, cache %s", f[i].per_evaluation,
                 rg_plan_cache_names[f[i].cache]);
        rg_what_if_row *l = add(b, name, b->base.memory.total, f[i].seconds / f[i].evaluations, f[i].throughput);
        snprintf(l->formula, sizeof l->formula, "%.0f evaluations of %.1f rows", f[i].evaluations, f[i].rows);
    }
    return n >= 0;
}

static bool try_speculation(trial *b)
{
    double best = 0, tokens = 1, a = b->o->acceptance;
    int at = 0;
    char name[48];

    for (int g = 1; g <= MOST_DRAFTS; g++) {
        rg_step_shape verify = { .n_seqs = (int)b->batch, .n_rows = 1 + g, .start = b->seq - 1, .exact = b->s->exact };
        rg_cost cost;

        if (!rg_cost_shape(b->s->model, &b->m->m, &verify, &cost, NULL, NULL, b->err))
            return false;
        double e = rg_speculation_tokens(a, g);
        double latency = (cost.seconds + g * b->o->draft_cost * b->base.latency_s) / e;
        if (!at || latency < best) {
            best = latency;
            tokens = e;
            at = g;
        }
    }
    snprintf(name, sizeof name, "speculation, %d drafts accepted %.0f %%", at, 100 * a);
    rg_what_if_row *l = add(b, name, b->base.memory.total, best, (double)b->batch / best);
    snprintf(l->formula, sizeof l->formula,
             "(T(1 + g) + g c T) / E, E = (1 - a^(g+1)) / (1 - a) = %.2f, c = %.2g, best g", tokens, b->o->draft_cost);
    return true;
}

/* A static batch waits for its longest answer. */
static void try_batching(trial *b)
{
    double sum = 0, longest = 0;

    for (int i = 0; i < b->o->n_lengths; i++) {
        sum += b->o->lengths[i];
        longest = b->o->lengths[i] > longest ? b->o->lengths[i] : longest;
    }
    if (b->o->n_lengths < 2 || longest <= 0)
        return;
    double used = sum / b->o->n_lengths / longest;
    rg_what_if_row *l = add(b, "static batching", b->base.memory.total, b->base.latency_s, b->base.throughput * used);
    snprintf(l->formula, sizeof l->formula, "B / T x mean / max of the lengths = %.2f; continuous: B / T", used);
}

static void try_chips(trial *b)
{
    const rg_plan_machine *m = b->m;
    const rg_config *c = &b->s->model->config;
    double t = b->base.latency_s, batch = (double)b->batch;
    int y = b->o->chips > 1 ? b->o->chips : 2;
    char name[48];

    snprintf(name, sizeof name, "%d replicas", y);
    rg_what_if_row *l = add(b, name, b->base.memory.total, t, y * b->base.throughput);
    snprintf(l->formula, sizeof l->formula, "latency T, throughput %d B / T; memory of each", y);
    if (m->link_bytes_s <= 0)
        return;
    /* Two all-reduces a layer, each 2 (Y - 1) / Y of the batch's rows in bf16 over the link. */
    double rows = b->base.rows > 0 ? batch * b->base.rows : batch;
    double moved = 2.0 * c->n_layers * 2 * (y - 1) / y * rows * c->dim * 2;
    double sharded = t / y + moved / m->link_bytes_s, beta = m->m.roofs.read_bytes_s / m->link_bytes_s;
    double width = c->ffn_dim > 0 ? c->ffn_dim : rg_config_value(c, "intermediate_size");
    snprintf(name, sizeof name, "tensor parallel over %d", y);
    l = add(b, name, b->base.memory.total / y, sharded, b->base.throughput * t / sharded);
    snprintf(l->formula, sizeof l->formula, "T / Y + 4 L all-reduced B D bytes; useful to Y < F / (B beta) = %.0f",
             width / (rows * beta));
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static void keep_op(void *arg, const rg_counted *op, double seconds)
{
    trial *b = arg;

    (void)seconds;
    if (b->n_ops < b->room)
        b->ops[b->n_ops++] = *op;
}

static rg_type usual_type(const rg_model *m)
{
    double values[RG_TYPE_COUNT] = { 0 };
    int best = 0;

    for (int i = 0; i < m->weights.n; i++) {
        const rg_weight *w = &m->weights.all[i];
        values[w->type] += (double)w->n_mats * (double)w->rows * (double)w->cols;
    }
    for (int t = 1; t < RG_TYPE_COUNT; t++)
        best = values[t] > values[best] ? t : best;
    return (rg_type)best;
}

static bool try_all(trial *b, rg_config *c)
{
    rg_what_if_row *l = add(b, "as it is", b->base.memory.total, b->base.latency_s, b->base.throughput);

    snprintf(l->formula, sizeof l->formula, "counted");
    if (has_kv(c) && (!try_kv_heads(b, c) || !try_windows(b, c)))
        return false;
    try_changes(b);
    if (!try_formats(b, c) || !try_pruning(b, c))
        return false;
    if (rg_plan_fills(b->s->model)) { /* nothing is drafted for it, and its answers all take as long */
        if (!try_filling(b))
            return false;
    } else {
        if (!try_speculation(b))
            return false;
        try_batching(b);
    }
    try_chips(b);
    return true;
}

bool rg_what_if_try(const rg_plan_subject *s, const rg_plan_machine *m, int64_t batch, int64_t seq,
                   const rg_what_if_options *o, rg_what_if *out, rg_error *err)
{
    trial b = { .s = s, .m = m, .o = o, .batch = batch, .seq = seq, .out = out, .err = err };
    rg_step_shape shape;
    rg_config *c = NULL;
    rg_cost cost;

    memset(out, 0, sizeof *out);
    if (!s->model || s->method != RG_PLAN_COUNTED)
        return rg_fail(err, RG_E_USAGE, "what-if needs a model and the method counted");
    if (!rg_plan_point(s, m, batch, seq, &b.base, err))
        return false;
    shape = rg_plan_step(s, batch, seq);
    if (!rg_cost_shape(s->model, &m->m, &shape, &cost, NULL, NULL, err))
        return false;
    b.step_s = cost.seconds;
    b.type = usual_type(s->model);
    b.room = cost.n_ops;
    b.ops = rg_array((size_t)b.room, 2 * sizeof *b.ops);
    b.changed = b.ops + b.room;
    c = rg_alloc(sizeof *c);
    bool ok = b.ops && c;
    if (!ok)
        rg_fail_memory(err, (size_t)b.room * 2 * sizeof *b.ops);
    ok = ok && rg_cost_shape(s->model, &m->m, &shape, &cost, keep_op, &b, err);
    if (ok) {
        *c = s->model->config;
        ok = try_all(&b, c);
    }
    rg_free(c);
    rg_free(b.ops);
    return ok;
}
