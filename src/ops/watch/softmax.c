/* softmax.c -- see softmax.h. */
#include "ops/watch/softmax.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

const double rg_softmax_thresholds[RG_SOFTMAX_THRESHOLDS] = { 1e-4, 1e-3, 1e-2 };

/* The keys of one store, by place. */
typedef struct key_rows {
    const rg_kv *kv;
    float *rows; /* [n_places][cols] */
    int cols, n_places;
} key_rows;

struct rg_softmax_stats {
    rg_reader reader; /* first */
    int n_layers, every;
    rg_softmax_sums *sums; /* [n_layers][RG_SOFTMAX_PLACES] */
    key_rows *keys;        /* [n_layers]; those in use come first */
    double *scores;        /* [n_scores] of a row */
    int n_scores;
    bool failed;
    rg_copy q, second, k, v;
};

int rg_softmax_place(int i)
{
    return i ? 16 << (2 * i) : 0;
}

static int place_of(int position)
{
    int i = 0;

    while (i + 1 < RG_SOFTMAX_PLACES && position >= rg_softmax_place(i + 1))
        i++;
    return i;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

static key_rows *find(rg_softmax_stats *s, const rg_kv *kv)
{
    for (int i = 0; i < s->n_layers; i++)
        if (!s->keys[i].kv || s->keys[i].kv == kv) {
            s->keys[i].kv = kv;
            return &s->keys[i];
        }
    return NULL;
}

static bool reserve(rg_softmax_stats *s, key_rows *k, int n)
{
    const int room = n <= k->n_places ? k->n_places : n > 2 * k->n_places ? n : 2 * k->n_places;

    if (room == k->n_places)
        return true;
    /* fits: a row of an activation */
    float *rows = rg_resize_array(k->rows, (size_t)room, (size_t)k->cols * sizeof *rows);
    if (rows) {
        k->rows = rows;
        k->n_places = room;
    }
    double *scores = room > s->n_scores ? rg_resize_array(s->scores, (size_t)room, sizeof *scores) : s->scores;
    if (scores) {
        s->scores = scores;
        s->n_scores = room > s->n_scores ? room : s->n_scores;
    }
    return rows && scores;
}

/* k and v: of a latent the latter is the rotated part of the key. */
static bool keep(rg_softmax_stats *s, const rg_fwd *f, const rg_op *op, const float *k, const float *v)
{
    const rg_batch *b = f->batch;
    const int k_cols = op->in[0]->cols, v_cols = op->kv->latent ? op->in[1]->cols : 0;
    key_rows *to = find(s, op->kv);

    if (!to || !k || (v_cols && !v))
        return false;
    to->cols = k_cols + v_cols;
    for (int i = 0; i < b->n_rows; i++) {
        if (!reserve(s, to, b->index[i] + 1))
            return false;
        float *row = to->rows + (size_t)b->index[i] * (size_t)to->cols;
        memcpy(row, k + (size_t)i * (size_t)k_cols, (size_t)k_cols * sizeof *row);
        if (v_cols)
            memcpy(row + k_cols, v + (size_t)i * (size_t)v_cols, (size_t)v_cols * sizeof *row);
    }
    return true;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* A head of a row, and what it reads. */
typedef struct query {
    const rg_op *op;
    const float *q, *first_q, *rotated; /* first_q: of keys before n_first; rotated: of latents, behind q */
    int head, index, kv_end;
} query;

static double dot(const float *a, const float *b, int n)
{
    double sum[4] = { 0 };
    int d = 0;

    for (; d + 4 <= n; d += 4)
        for (int i = 0; i < 4; i++)
            sum[i] += (double)(a[d + i] * b[d + i]);
    for (; d < n; d++)
        sum[0] += (double)(a[d] * b[d]);
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static double score(const query *x, const key_rows *k, int j)
{
    const rg_kv *kv = x->op->kv;
    const rg_attend_params *p = x->op->attend;
    const float *row = k->rows + (size_t)j * (size_t)k->cols;
    double s;

    if (kv->latent)
        s = dot(x->q, row, kv->v_dim) + dot(x->rotated, row + kv->v_dim, kv->k_dim - kv->v_dim);
    else
        s = dot(j < p->n_first ? x->first_q : x->q,
                row + (size_t)(x->head / (p->n_heads / kv->n_heads)) * (size_t)kv->k_dim, kv->k_dim);
    s *= (double)p->scale;
    return p->cap > 0 ? (double)p->cap * tanh(s / (double)p->cap) : s;
}

/* What is known of a block of keys before the weights are: its largest score, and its share. */
typedef struct block_sum {
    double most, weight;
    int n_keys;
} block_sum;

static uint64_t seen_of(const query *x, int block)
{
    return rg_sight_bits(x->op->attend->sight, x->head, x->index, x->kv_end, block);
}

/* Largest score, sum and number of the keys of a block, whose weights are relative to `most` of the row. */
static block_sum sum_block(const rg_softmax_stats *s, const query *x, int block, double most)
{
    const uint64_t seen = seen_of(x, block);
    block_sum b = { .most = -INFINITY };

    for (int i = 0; i < RG_BLOCK; i++)
        if (seen >> i & 1) {
            const double score = s->scores[block * RG_BLOCK + i];
            b.most = fmax(b.most, score);
            b.weight += exp(score - most);
            b.n_keys++;
        }
    return b;
}

/* Which blocks are left out at a threshold: as ops/cpu/kernels.h has it. */
static void leave_out(const rg_softmax_stats *s, const query *x, double most, double sum, rg_softmax_sums *to)
{
    const int n_blocks = (x->kv_end + RG_BLOCK - 1) / RG_BLOCK, segment = RG_SEGMENT / RG_BLOCK;
    double running[RG_SOFTMAX_THRESHOLDS], first = -INFINITY;

    for (int b = 0; b < n_blocks; b++) {
        const block_sum k = sum_block(s, x, b, most);

        for (int t = 0; t < RG_SOFTMAX_THRESHOLDS && b % segment == 0; t++)
            running[t] = b ? first : -INFINITY;
        first = b ? first : k.most;
        to->blocks += k.n_keys > 0;
        for (int t = 0; t < RG_SOFTMAX_THRESHOLDS && k.n_keys; t++)
            if (k.most < running[t] + log(rg_softmax_thresholds[t])) {
                to->unread[t]++;
                to->lost[t] += k.weight / sum;
            } else
                running[t] = fmax(running[t], k.most);
    }
}

static void add_query(rg_softmax_stats *s, const query *x, const key_rows *k, rg_softmax_sums *to)
{
    const float *sinks = x->op->w[0] ? x->op->w[0]->vec : NULL;
    double most = sinks ? (double)sinks[x->head] : -INFINITY, sum = 0;

    for (int j = 0; j < x->kv_end; j++)
        if (seen_of(x, j / RG_BLOCK) >> (j % RG_BLOCK) & 1)
            most = fmax(most, s->scores[j] = score(x, k, j));
    sum = sinks ? exp((double)sinks[x->head] - most) : 0;
    for (int b = 0; b * RG_BLOCK < x->kv_end; b++)
        sum += sum_block(s, x, b, most).weight;
    for (int j = 0; j < x->kv_end; j++) {
        if (!(seen_of(x, j / RG_BLOCK) >> (j % RG_BLOCK) & 1))
            continue;
        const double weight = exp(s->scores[j] - most) / sum;
        to->keys++;
        for (int t = 0; t < RG_SOFTMAX_THRESHOLDS; t++)
            to->below[t] += weight < rg_softmax_thresholds[t];
    }
    to->rows++;
    leave_out(s, x, most, sum, to);
}

static bool look(rg_softmax_stats *s, const rg_fwd *f, const rg_op *op, const float *q, const float *second)
{
    const rg_attend_params *p = op->attend;
    const key_rows *k = find(s, op->kv);
    const int q_cols = op->in[0]->cols, second_cols = op->in[1] ? op->in[1]->cols : 0, per_head = q_cols / p->n_heads;

    if (f->layer < 0 || f->layer >= s->n_layers)
        return true;
    if (!k || !k->rows || !q || (op->in[1] && !second) || p->chosen || f->batch->ancestors)
        return false;
    for (int i = 0; i < f->batch->n_rows; i++) {
        const int index = f->batch->index[i];
        rg_softmax_sums *to = &s->sums[f->layer * RG_SOFTMAX_PLACES + place_of(index)];

        for (int h = 0; index % s->every == 0 && h < p->n_heads; h++) {
            const float *other = second ? second + (size_t)i * (size_t)second_cols : NULL;
            query x = { .op = op,
                        .head = h,
                        .index = index,
                        .kv_end = f->batch->kv_end[i],
                        .q = q + (size_t)i * (size_t)q_cols + (size_t)(h * per_head) };

            if (op->kv->latent) /* columns of a head, the rotated ones last */
                x.rotated = other + (h + 1) * (second_cols / p->n_heads) - (op->kv->k_dim - op->kv->v_dim);
            else
                x.first_q = other ? other + h * per_head : x.q;
            add_query(s, &x, k, to);
        }
    }
    return true;
}

static void run_softmax(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_softmax_stats *s = (rg_softmax_stats *)(uintptr_t)self; /* ours, and not const: the reader is its first member */
    const bool stores = op->kind == RG_OP_KV_STORE,
               attends = op->kind == RG_OP_ATTENTION || op->kind == RG_OP_MLA_ATTENTION;

    if (!f->guessing && rg_reader_computes(f) && (stores || attends)) { /* before it runs, which may overwrite q */
        const bool has_second = op->in[1] && (attends || op->kv->latent);
        const float *a = rg_copy_take(stores ? &s->k : &s->q, f, op->in[0]);
        const float *b = has_second ? rg_copy_take(stores ? &s->v : &s->second, f, op->in[1]) : NULL;

        if (f->thread == 0) {
            rg_mem_permit(); /* allocations are allowed: this is not a serving step */
            const bool ok = stores ? keep(s, f, op, a, b) : look(s, f, op, a, b);
            rg_mem_forbid();
            s->failed = s->failed || !ok;
        }
    }
    self->inner->run(self->inner, f, op);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

rg_softmax_stats *rg_softmax_stats_new(int n_layers, int every, rg_error *err)
{
    rg_softmax_stats *s = rg_zalloc(sizeof *s);

    if (s) {
        s->n_layers = n_layers;
        s->every = every;
        s->sums = rg_array((size_t)n_layers, RG_SOFTMAX_PLACES * sizeof *s->sums);
        s->keys = rg_array((size_t)n_layers, sizeof *s->keys);
    }
    if (!s || !s->sums || !s->keys) {
        rg_fail_memory(err, (size_t)n_layers * RG_SOFTMAX_PLACES * sizeof *s->sums);
        rg_softmax_stats_free(s);
        return NULL;
    }
    return s;
}

void rg_softmax_stats_free(rg_softmax_stats *s)
{
    if (!s)
        return;
    for (int i = 0; s->keys && i < s->n_layers; i++)
        rg_free(s->keys[i].rows);
    rg_free(s->keys);
    rg_free(s->sums);
    rg_free(s->scores);
    rg_copy_fini(&s->q);
    rg_copy_fini(&s->second);
    rg_copy_fini(&s->k);
    rg_copy_fini(&s->v);
    rg_free(s);
}

const rg_reader *rg_softmax_stats_wrap(rg_softmax_stats *s, const rg_reader *inner)
{
    s->reader = (rg_reader){ .run = run_softmax, .inner = inner };
    return &s->reader;
}

bool rg_softmax_stats_complete(const rg_softmax_stats *s)
{
    return !s->failed;
}

const rg_softmax_sums *rg_softmax_stats_at(const rg_softmax_stats *s, int layer, int place)
{
    return &s->sums[layer * RG_SOFTMAX_PLACES + place];
}
