/* count.c -- see count.h. */
#include "ops/count/count.h"

#include <math.h>
#include <string.h>

/* F16 may be kept as BF16. */
static rg_type packed_type(const rg_weight *w)
{
    return w->placed ? w->placed->type : w->type;
}

static double stored_bytes(const rg_weight *w)
{
    const rg_format *fmt = rg_format_of(w->type);

    return (double)w->rows * (double)w->cols / fmt->block_len * fmt->block_bytes +
           (w->order ? (double)w->cols * sizeof(int32_t) : 0);
}

static void add_weight(rg_counted *c, int i, const rg_weight *w, double mats, double rows)
{
    double values = mats * (double)w->rows * (double)w->cols;

    c->w[i] = (rg_counted_weight){ packed_type(w), values };
    c->count.ops += 2 * rows * values;
    c->count.weight_bytes += mats * stored_bytes(w);
}

static void count_linear(const rg_op *op, int n_rows, rg_counted *c)
{
    c->rows = n_rows;
    c->ins = (double)n_rows * op->in[0]->cols;
    if (op->kind != RG_OP_GATED)
        c->cells = 0;
    for (int i = 0; i < 3 && op->w[i]; i++) {
        const rg_weight *w = op->w[i];
        add_weight(c, i, w, (double)w->n_mats, n_rows);
        c->outs += (double)n_rows * (double)(w->n_mats * w->rows);
        if (op->kind != RG_OP_GATED && (op->accumulate || op->b[i]))
            c->cells += (double)n_rows * (double)(w->n_mats * w->rows);
    }
}

/* Both matrices of each adapter that some row has, by its rows. */
static void count_adapt(const rg_fwd *f, const rg_op *op, rg_counted *c)
{
    rg_adapted rows = { 0 };

    c->cells = 0;
    for (uint64_t seen = 0, bit; rg_adapted_next(f, &rows); seen |= bit) {
        bit = (uint64_t)1 << rows.adapter;
        for (int i = 0; i < 3 && op->w[i]; i++) {
            const rg_delta *d = &op->w[i]->deltas[rows.adapter];
            double values = d->a ? (double)d->a->rows * (double)(d->a->cols + d->b->rows) : 0;

            c->count.ops += 2 * rows.n * values;
            c->count.weight_bytes += d->a && !(seen & bit) ? (double)(d->a->bytes + d->b->bytes) : 0;
            c->cells += d->a ? (double)rows.n * (double)d->b->rows : 0;
        }
    }
}

/* Rows choose experts independently: E (1 - (1 - k / E)^n) of them are expected to be used, by n k rows in all. */
static void count_moe(const rg_op *op, int n_rows, rg_counted *c)
{
    double unused = 1, k = op->routing->n_used, e = op->routing->n_experts;

    for (int i = 0; i < n_rows && unused > 1e-18; i++)
        unused *= 1 - k / e;
    c->rows = n_rows * k / (e * (1 - unused));
    c->cells = 0;
    for (int i = 0; i < 3 && op->w[i]; i++) {
        add_weight(c, i, op->w[i], e * (1 - unused), c->rows);
        c->cells += n_rows * k * (double)op->w[i]->rows;
        c->ins += i == 0 || op->w[i]->cols != op->w[0]->cols ? n_rows * k * (double)op->w[i]->cols : 0;
        c->outs += n_rows * k * (double)op->w[i]->rows;
        c->count.weight_bytes += op->b[i] ? e * (1 - unused) * (double)op->w[i]->rows * sizeof(float) : 0;
    }
}

static double kv_row_bytes(const rg_kv *kv)
{
    return (double)rg_kv_bytes(kv) / RG_BLOCK;
}

/* What a span's rows see: pairs of query and key; keys from the first that any row sees to the last; and blocks of
 * keys, counted for each row by itself. */
typedef struct seen {
    double pairs, keys, blocks;
} seen;

/* The sum of floor(x / RG_BLOCK) over x from 0 up to, not including, n. */
static double sum_of_blocks(double n)
{
    double whole = (double)((int64_t)n / RG_BLOCK), rest = n - whole * RG_BLOCK;

    return RG_BLOCK * whole * (whole - 1) / 2 + rest * whole;
}

/* Rows of a pattern, one by one; the heads' mean. */
static seen pattern_sees(const rg_batch *b, const rg_span *s, const rg_attend_params *p)
{
    const rg_patterns *patterns = p->sight->patterns;
    int heads[RG_MAX_PATTERNS] = { 0 }, one_of[RG_MAX_PATTERNS] = { 0 };
    seen all = { 0 };

    for (int h = 0; h < p->n_heads; h++) {
        heads[patterns->of_head[h]]++;
        one_of[patterns->of_head[h]] = h;
    }
    for (int r = 0; r < s->n_rows; r++) {
        const int32_t i = b->index ? b->index[s->first_row + r] : s->start + r;
        double keys = 0;

        for (int k = 0; k < patterns->n_patterns; k++) {
            const rg_seen one = rg_sight_count(p->sight, one_of[k], i);

            all.pairs += heads[k] * one.keys / p->n_heads;
            all.blocks += heads[k] * one.blocks / p->n_heads;
            keys += heads[k] ? one.keys : 0;
        }
        all.keys = r == 0 ? keys : all.keys + 1;
    }
    all.keys = fmin(all.keys, (double)s->start + s->n_rows);
    return all;
}

/* Causal rows in closed form. */
static seen span_sees(const rg_batch *b, const rg_span *s, const rg_sight *sight)
{
    const int window = sight->window;
    double start = s->start, n = s->n_rows, end = start + n, low = window ? start - window + 1 : 0;
    int lowest = INT32_MAX, highest = 0;
    seen all = { 0 };

    if (!b->index) {
        /* Rows that see a full window, and rows that see all before them. */
        double whole = window && end > window ? (start + 1 >= window ? n : end - window) : 0, growing = n - whole;

        all.keys = end - (low > 0 ? low : 0);
        all.pairs = whole * window + growing * (start + 1) + growing * (growing - 1) / 2;
        /* A row's blocks: up to that of its own key, which is the last, from that of its first. */
        all.blocks = n + sum_of_blocks(end) - sum_of_blocks(start);
        if (window)
            all.blocks -= sum_of_blocks(low + n > 0 ? low + n : 0) - sum_of_blocks(low > 0 ? low : 0);
        return all;
    }
    for (int r = s->first_row; r < s->first_row + s->n_rows; r++) {
        int lo = window && b->index[r] - window + 1 > 0 ? b->index[r] - window + 1 : 0;
        int hi = rg_sight_end(sight, b->index[r], b->kv_end[r]);
        lowest = lo < lowest ? lo : lowest;
        highest = hi > highest ? hi : highest;
        all.pairs += hi - lo;
        all.blocks += (hi + RG_BLOCK - 1) / RG_BLOCK - lo / RG_BLOCK;
    }
    all.keys = highest - lowest;
    return all;
}

/* An indexer scores all keys of causal rows. */
static void count_choose(const rg_fwd *f, const rg_op *op, rg_counted *c)
{
    double pairs = 0, k_dim = op->buffer->values;

    for (int s = 0; s < f->batch->n_spans; s++) {
        const seen sees = span_sees(f->batch, &f->batch->spans[s], &rg_sight_all);

        pairs += sees.pairs;
        c->count.state_bytes += sees.keys * (double)op->buffer->bytes;
    }
    c->cells = pairs * op->n * k_dim;
    c->count.ops = pairs * op->n * (2 * k_dim + 3); /* relu, the weight, and the sum */
}

/* What rows read of n chosen keys each: as many as of a window of n, but of blocks anywhere. */
static seen chosen_of(const rg_batch *b, const rg_span *s, int n)
{
    seen few = span_sees(b, s, &(rg_sight){ .window = n }), all = span_sees(b, s, &rg_sight_all);

    few.blocks = fmin(all.blocks, few.pairs);
    return few;
}

static seen attention_sees(const rg_batch *b, const rg_span *s, const rg_attend_params *p)
{
    if (p->chosen)
        return chosen_of(b, s, p->chosen->cols);
    return p->sight->patterns ? pattern_sees(b, s, p) : span_sees(b, s, p->sight);
}

/* Bytes of keys that a span reads, of q4 those of its rows' own blocks as f32. */
static double keys_bytes(const rg_kv *kv, const rg_span *s, double keys)
{
    const rg_kv open = rg_kv_open(kv);
    const int64_t end = (int64_t)s->start + s->n_rows, low = end - (int64_t)keys;
    const int64_t own = s->start / RG_BLOCK * RG_BLOCK, last = (end - 1) / RG_BLOCK * RG_BLOCK;

    if (!rg_kv_has_open(kv))
        return kv_row_bytes(kv) * keys;
    return kv_row_bytes(kv) * (last > low ? (double)(last - low) : 0) +
           kv_row_bytes(&open) * (double)(end - (own > low ? own : low));
}

/* Bytes that storing n rows moves; of q4 their block is read once and written again when it is whole. */
static double store_bytes(const rg_kv *kv, int n)
{
    const rg_kv open = rg_kv_open(kv);

    return n * (rg_kv_has_open(kv) ? 2 * kv_row_bytes(&open) + kv_row_bytes(kv) : kv_row_bytes(kv));
}

/* A block's keys lie column by column, so that a span touches all columns of each block that it stores to. */
static double store_lines(const rg_batch *b, const rg_kv *kv)
{
    double blocks = 0;

    for (int s = 0; s < b->n_spans; s++)
        blocks += (b->spans[s].start + b->spans[s].n_rows - 1) / RG_BLOCK - b->spans[s].start / RG_BLOCK + 1;
    return kv->latent ? 0 : blocks * kv->n_heads * kv->k_dim;
}

static void count_attention(const rg_fwd *f, const rg_op *op, rg_counted *c)
{
    const rg_batch *b = f->batch;
    const rg_kv *kv = op->kv;
    double heads = kv->latent ? 1 : kv->n_heads, most = 0;
    seen sees = { 0 };
    int last = -1;

    for (int s = 0; s < b->n_spans; s++) {
        const rg_span *span = &b->spans[s];
        /* In a batch that decodes many spans are alike. */
        bool same = !b->index && last >= 0 && span->start == b->spans[last].start &&
                    span->n_rows == b->spans[last].n_rows;
        if (!same)
            sees = attention_sees(b, span, op->attend);
        last = s;
        c->cells += sees.pairs * op->attend->n_heads;
        c->whole += sees.blocks * RG_BLOCK * op->attend->n_heads;
        c->count.state_bytes += keys_bytes(kv, span, sees.keys);
        most = span->n_rows > most ? span->n_rows : most;
    }
    c->count.ops = 2.0 * (kv->k_dim + kv->v_dim) * c->cells;
    c->key_bytes = kv_row_bytes(kv);
    c->first_bytes = b->n_spans * RG_BLOCK * c->key_bytes;
    c->rows = most * op->attend->n_heads / heads;
    c->width = kv->k_dim + kv->v_dim;
    c->latent = kv->latent;
    c->type = kv->type;
    c->most_keys = op->attend->chosen ? op->attend->chosen->cols : rg_sight_most(op->attend->sight);
    if (op->w[0])
        c->count.weight_bytes = (double)op->attend->n_heads * sizeof(float);
}

/* Six operations per element of the state: dt A, its product with h, dt B x (two), C h and the sum. */
static void count_scan(const rg_fwd *f, const rg_op *op, rg_counted *c)
{
    c->cells = (double)f->batch->n_rows * (double)op->w[0]->rows * (double)op->w[0]->cols;
    c->count.ops = 6.0 * c->cells;
    c->count.weight_bytes = (double)(op->w[0]->rows * op->w[0]->cols + op->w[1]->cols) * sizeof(float);
    c->count.state_bytes = 2.0 * f->batch->n_spans * (double)op->buffer->bytes;
}

/* Per element of the states: its decay, what is added, and what is read; the delta rules read it once more, and the
 * general one changes it once more. */
static void count_linear_attention(const rg_fwd *f, const rg_op *op, rg_counted *c)
{
    const rg_linear_attention_params *p = op->recurrence;

    c->cells = (double)f->batch->n_rows * p->n_heads * p->k_dim * p->v_dim;
    c->count.ops = (p->a ? 9.0 : p->delta ? 7.0 : 5.0) * c->cells;
    c->count.state_bytes = 2.0 * f->batch->n_spans * (double)op->buffer->bytes;
}

/* Per mode: x with E and B (six and four), C x (four); q (four) and what it adds (four). */
static void count_state_space(const rg_fwd *f, const rg_op *op, rg_counted *c)
{
    bool full = op->w[0]->rows == (int64_t)op->n * RG_FULL_MODE_ROWS;

    c->cells = (double)f->batch->n_rows * op->n * (double)op->w[0]->cols;
    c->count.ops = (full ? 22.0 : 14.0) * c->cells;
    c->count.weight_bytes = (double)((op->w[0]->rows + 1) * op->w[0]->cols) * sizeof(float);
    c->count.state_bytes = 2.0 * f->batch->n_spans * (double)op->buffer->bytes;
}

/* Two gates, a, the root, and the sum. */
static void count_lru(const rg_fwd *f, const rg_op *op, rg_counted *c)
{
    c->cells = (double)f->batch->n_rows * op->in[0]->cols;
    c->count.ops = 12.0 * c->cells;
    c->count.weight_bytes = 3.0 * op->in[0]->cols * sizeof(float);
    c->count.state_bytes = 2.0 * f->batch->n_spans * (double)op->buffer->bytes;
}

static void count_conv(const rg_fwd *f, const rg_op *op, rg_counted *c)
{
    c->cells = (double)f->batch->n_rows * op->out[0]->cols;
    c->count.ops = 2.0 * c->cells * (double)op->w[0]->cols;
    c->count.weight_bytes = (double)(op->w[0]->rows * op->w[0]->cols) * sizeof(float);
    c->count.state_bytes = 2.0 * f->batch->n_spans * (double)op->buffer->bytes;
}

/* Angles are computed once a step for each rope. */
static double new_angles(rg_counter *counter, const rg_rope *rope, int n_rows)
{
    for (int i = 0; i < counter->n_ropes; i++)
        if (counter->rope[i] == rope)
            return 0;
    if (counter->n_ropes < RG_COUNTED_ROPES)
        counter->rope[counter->n_ropes++] = rope;
    return (double)n_rows * rope->n_pairs;
}

static rg_counted count_op(const rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0];
    int n_rows = y ? y->rows : f->batch->n_rows;
    rg_counted c = { .kind = op->kind, .layer = f->layer, .name = y ? y->name : "kv", .n_rows = n_rows,
                     .cells = y ? (double)y->rows * y->cols : 0 };

    switch (op->kind) {
    case RG_OP_EMBED: c.count.weight_bytes = n_rows * stored_bytes(op->w[0]) / (double)op->w[0]->rows; break;
    case RG_OP_EMBED_TYPES:
    case RG_OP_EMBED_POSITIONS: c.count.weight_bytes = c.cells * sizeof(float); break;
    case RG_OP_LINEAR:
    case RG_OP_LINEAR_HEADS:
    case RG_OP_GATED: count_linear(op, n_rows, &c); break;
    case RG_OP_ADAPT: count_adapt(f, op, &c); break;
    case RG_OP_MOE: count_moe(op, n_rows, &c); break;
    case RG_OP_ROUTE:
        c.count.weight_bytes = (double)op->routing->n_experts * ((op->w[0] != NULL) + (op->b[0] != NULL)) *
                               sizeof(float);
        break;
    case RG_OP_MIX: c.count.ops = 2.0 * c.cells * op->in[0]->cols / op->n; break;
    case RG_OP_SCALE_BY_TYPE: c.count.weight_bytes = 2 * sizeof(float); break;
    case RG_OP_SCALE_COLUMNS:
    case RG_OP_RMSNORM:
    case RG_OP_LAYERNORM:
        if (op->w[0])
            c.count.weight_bytes = (double)op->w[0]->cols * (1 + (op->b[0] != NULL)) * sizeof(float);
        break;
    case RG_OP_KV_STORE:
        c.count.state_bytes = store_bytes(op->kv, f->batch->n_rows);
        c.cells = (double)f->batch->n_rows * (op->in[0]->cols + op->in[1]->cols);
        c.lines = store_lines(f->batch, op->kv);
        c.latent = op->kv->latent;
        c.type = op->kv->type;
        break;
    case RG_OP_ROWS_STORE:
        c.count.state_bytes = (double)op->buffer->bytes * f->batch->n_rows;
        c.cells = (double)f->batch->n_rows * op->in[0]->cols;
        break;
    case RG_OP_CHOOSE_KEYS: count_choose(f, op, &c); break;
    case RG_OP_ATTENTION:
    case RG_OP_MLA_ATTENTION: c.cells = 0; count_attention(f, op, &c); break;
    case RG_OP_CONV: count_conv(f, op, &c); break;
    case RG_OP_SCAN: count_scan(f, op, &c); break;
    case RG_OP_LINEAR_ATTENTION: count_linear_attention(f, op, &c); break;
    case RG_OP_STATE_SPACE: count_state_space(f, op, &c); break;
    case RG_OP_LRU: count_lru(f, op, &c); break;
    default: break;
    }
    return c;
}

static void add(rg_count *to, const rg_count *c)
{
    to->ops += c->ops;
    to->weight_bytes += c->weight_bytes;
    to->state_bytes += c->state_bytes;
}

static void run(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_counter *counter = (rg_counter *)(uintptr_t)self; /* the reader is its first member */
    rg_counted c;

    if (op->kind == RG_OP_NOTE)
        return;
    c = count_op(f, op);
    if (op->kind == RG_OP_ROTATE)
        c.angles = new_angles(counter, op->rope, c.n_rows);
    add(&counter->total, &c.count);
    add(&counter->by_kind[op->kind], &c.count);
    if (counter->list && counter->n_ops < counter->list_room)
        counter->list[counter->n_ops] = c;
    if (counter->each)
        counter->each(counter->arg, &c);
    counter->n_ops++;
    f->n_known = f->n_acts;
}

void rg_counter_init(rg_counter *c, rg_counted *list, int list_room)
{
    memset(c, 0, sizeof *c);
    c->reader.run = run;
    c->list = list;
    c->list_room = list_room;
}

void rg_count_fwd(rg_fwd *f, rg_counter *c, const rg_batch *batch)
{
    memset(f, 0, sizeof *f);
    f->reader = &c->reader;
    f->batch = batch;
    f->n_threads = 1;
    f->layer = -1;
}
