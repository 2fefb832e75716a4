/* moe.c -- the choice of experts for each row, and their output.
 *
 * Rows are sorted by expert, so that an expert's panels are read once for all its rows; each (row, expert) result
 * stands apart until all are there, and a row then adds its own in the order of the experts' numbers, one fused
 * multiply-add each.  Many rows are taken in passes of RG_MOE_PAIRS results; a row never spans two. */
#include "ops/cpu/reader.h"

#include <math.h> /* isnan */
#include <string.h>

#include "ops/cpu/math.h"

/* ---- route ------------------------------------------------------------------------------------------------------- */

/* p = softmax of l, summed in rising order. */
static void softmax(float *p, const float *l, int n)
{
    float max = -__builtin_inff(), sum = 0.0f;

    for (int i = 0; i < n; i++)
        max = l[i] > max ? l[i] : max;
    for (int i = 0; i < n; i++) {
        p[i] = rg_expf(l[i] - max);
        sum += p[i];
    }
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

/* The best that is not taken (taken[i] != 0), ties to the lowest; always one, whatever the scores.  A NaN is better
 * than any number, so that it shows in the result. */
static int best(const float *score, const float *taken, int n)
{
    int at = -1;

    for (int i = 0; i < n; i++)
        if (taken[i] == 0.0f && (at < 0 || score[i] > score[at] || (isnan(score[i]) && !isnan(score[at]))))
            at = i;
    return at;
}

/* Mark as taken the experts of all groups but the best, a group counting as its best expert. */
static void limit_groups(const rg_routing *g, const float *score, float *taken)
{
    int size = g->n_experts / g->n_groups;

    for (int i = 0; i < g->n_experts; i++)
        taken[i] = -1.0f;
    for (int k = 0; k < g->n_groups_used; k++) {
        int pick = -1;
        float most = 0.0f;

        for (int group = 0; group < g->n_groups; group++) {
            float top = score[group * size];

            for (int i = 1; i < size; i++)
                top = score[group * size + i] > top ? score[group * size + i] : top;
            if (taken[group * size] < 0.0f && (pick < 0 || top > most)) {
                pick = group;
                most = top;
            }
        }
        for (int i = 0; i < size; i++)
            taken[pick * size + i] = 0.0f;
    }
}

static void route_row(const rg_routing *g, const float *logits, float *score, float *taken, float *out)
{
    float *weight = out + g->n_used, sum = 0.0f;
    int n = 0;

    memset(taken, 0, (size_t)g->n_experts * sizeof *taken);
    if (g->softmax_first)
        softmax(score, logits, g->n_experts);
    else
        memcpy(score, logits, (size_t)g->n_experts * sizeof *score);
    if (g->n_groups > 0)
        limit_groups(g, score, taken);
    for (int k = 0; k < g->n_used; k++)
        taken[best(score, taken, g->n_experts)] = 1.0f;
    for (int32_t i = 0; i < g->n_experts; i++) {
        if (taken[i] <= 0.0f)
            continue;
        memcpy(out + n, &i, sizeof i);
        weight[n++] = score[i];
    }
    if (!g->softmax_first)
        softmax(weight, weight, n);
    for (int k = 0; k < n; k++)
        sum += weight[k];
    for (int k = 0; k < n; k++)
        weight[k] = (g->softmax_first && g->renormalize ? weight[k] / sum : weight[k]) * g->scale;
}

void rg_cpu_route(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_routing *g = op->routing;
    float *score = rg_cpu_scratch(r, f);

    RG_ASSERT(g->n_experts <= r->sizes.max_experts && g->n_used <= r->sizes.max_experts_used);
    RG_ASSERT(g->n_groups == 0 || (g->n_groups_used > 0 && g->n_groups_used <= g->n_groups &&
                                   g->n_experts / g->n_groups * g->n_groups_used >= g->n_used));
    for (int row; (row = rg_chunk_next(f, op->out[0]->rows)) >= 0;)
        route_row(g, rg_act_row(f, op->in[0], row), score, score + g->n_experts, rg_act_row(f, op->out[0], row));
    rg_fwd_barrier(f);
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Rows [first, first + n_rows) of the batch, in one pass. */
typedef struct pass {
    rg_cpu_reader *r;
    rg_fwd *f;
    const rg_op *op;
    int first, n_rows, n_pairs;
    rg_recipe rounding[2], recipe[3]; /* of x and of what is between; of gate, up, down */
    size_t ldr;   /* blocks between slots */
} pass;

static int expert_of(const pass *p, int pair)
{
    int used = p->op->routing->n_used;
    int32_t e;

    memcpy(&e, rg_act_row(p->f, p->op->in[1], p->first + pair / used) + pair % used, sizeof e);
    return e;
}

/* One thread: the pairs sorted by expert, rows rising within each. */
static void sort_pairs(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;
    int n = p->op->routing->n_experts;

    memset(m->start, 0, ((size_t)n + 1) * sizeof *m->start);
    for (int i = 0; i < p->n_pairs; i++)
        m->start[expert_of(p, i) + 1]++;
    *m->n_active = 0;
    for (int e = 0; e < n; e++) {
        if (m->start[e + 1])
            m->active[(*m->n_active)++] = e;
        m->start[e + 1] += m->start[e];
    }
    for (int i = 0; i < p->n_pairs; i++) {
        int slot = m->start[expert_of(p, i)]++; /* now one past; moved back below */
        m->pair_of[slot] = i;
        m->slot_of[i] = slot;
    }
    for (int e = n; e > 0; e--)
        m->start[e] = m->start[e - 1];
    m->start[0] = 0;
}

static void gather_rows(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;
    const rg_act *x = p->op->in[0];
    rg_operand from = rg_operand_of(p->f, x);

    for (int slot; (slot = rg_chunk_next(p->f, p->n_pairs)) >= 0;) {
        size_t row = (size_t)(p->first + m->pair_of[slot] / p->op->routing->n_used);

        if (p->recipe[0] == RG_EXACT || p->recipe[1] == RG_EXACT)
            memcpy(m->x + (size_t)slot * m->ld, from.x + row * from.ldx, (size_t)x->cols * sizeof(float));
        if (p->rounding[0] != RG_EXACT)
            memcpy(m->xr + (size_t)slot * p->ldr, from.r + row * from.ldr, (size_t)(x->cols / 32) * sizeof *m->xr);
    }
    rg_fwd_barrier(p->f);
}

/* Panels of one expert by some of its slots. */
typedef struct block {
    int expert, panel, n_panels, slot, n_slots;
} block;

/* A chunk is a group of panels of one active expert; all of its rows, a block after the other. */
static void each_expert(const pass *p, int64_t rows, void (*compute)(const pass *p, block b))
{
    const rg_moe_scratch *moe = &p->r->moe;
    int n_panels = rg_ceil_div(rows, RG_PANEL), active = *moe->n_active;
    int group = rg_min(RG_TILE / RG_ROWS_MAX, rg_max(1, n_panels * active / (p->f->n_threads * 8)));
    int n_groups = rg_ceil_div(n_panels, group);

    for (int c; (c = rg_chunk_next(p->f, n_groups * active)) >= 0;) {
        int e = moe->active[c / n_groups], end = moe->start[e + 1];
        block b = { .expert = e, .panel = c % n_groups * group };

        b.n_panels = rg_min(group, n_panels - b.panel);
        for (b.slot = moe->start[e]; b.slot < end; b.slot += b.n_slots) {
            b.n_slots = rg_min(RG_ROWS_MAX, end - b.slot);
            compute(p, b);
        }
    }
    rg_fwd_barrier(p->f);
}

/* A block of matrix k of the experts, rows of the tile side by side. */
static void multiply(const pass *p, int k, block b, rg_operand x, float *tile)
{
    const rg_packed *w = p->op->w[k]->packed;

    rg_cpu_product(p->r->cpu, p->recipe[k], w, &x, b.slot,
                   (rg_product){ .panel = rg_panel_at(w, b.expert, b.panel), .n_panels = b.n_panels, .m = b.n_slots,
                                 .y = tile, .ldy = (size_t)(b.n_panels * RG_PANEL) });
}

/* What is there of a block of a matrix with so many rows, to slots of `to`. */
static void put(const pass *p, block b, int64_t rows, const float *tile, float *to)
{
    size_t ld = (size_t)(b.n_panels * RG_PANEL), at = (size_t)(b.panel * RG_PANEL);
    size_t n = ld < (size_t)rows - at ? ld : (size_t)rows - at;

    for (int i = 0; i < b.n_slots; i++)
        memcpy(to + (size_t)(b.slot + i) * p->r->moe.ld + at, tile + (size_t)i * ld, n * sizeof *to);
}

static void gate_up_block(const pass *p, block b)
{
    rg_moe_scratch *moe = &p->r->moe;
    float *tile[2] = { rg_cpu_scratch(p->r, p->f), rg_cpu_scratch(p->r, p->f) + RG_TILE * RG_PANEL };

    for (int k = 0; k < 2; k++)
        multiply(p, k, b, (rg_operand){ .x = moe->x, .ldx = moe->ld, .r = moe->xr, .ldr = p->ldr }, tile[k]);
    p->r->cpu->act_mul[p->op->act](tile[0], tile[0], tile[1], b.n_slots * b.n_panels * RG_PANEL);
    put(p, b, p->op->w[0]->rows, tile[0], moe->h);
}

static void down_block(const pass *p, block b)
{
    rg_moe_scratch *moe = &p->r->moe;
    float *tile = rg_cpu_scratch(p->r, p->f);

    multiply(p, 2, b, (rg_operand){ .x = moe->h, .ldx = moe->ld, .r = moe->hr, .ldr = p->ldr }, tile);
    put(p, b, p->op->w[2]->rows, tile, moe->y);
}

static void round_hidden(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;

    for (int slot; (slot = rg_chunk_next(p->f, p->n_pairs)) >= 0;)
        rg_cpu_round_row(p->r->cpu, p->rounding[1], m->h + (size_t)slot * m->ld, (int)p->op->w[2]->cols,
                         m->hr + (size_t)slot * p->ldr);
    rg_fwd_barrier(p->f);
}

static void add_experts(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;
    const rg_act *y = p->op->out[0];
    int used = p->op->routing->n_used;

    for (int i; (i = rg_chunk_next(p->f, p->n_rows)) >= 0;) {
        const float *weight = rg_act_row(p->f, p->op->in[1], p->first + i) + used;

        for (int k = 0; k < used; k++)
            p->r->cpu->axpy(rg_act_row(p->f, y, p->first + i), weight[k],
                            m->y + (size_t)m->slot_of[i * used + k] * m->ld, y->cols);
    }
    rg_fwd_barrier(p->f);
}

void rg_cpu_moe(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pass p = { .r = r, .f = f, .op = op };
    int used = op->routing->n_used, rows = op->in[0]->rows, per_pass = rg_max(1, RG_MOE_PAIRS / used);

    RG_ASSERT(op->routing->n_experts <= r->sizes.max_experts && used <= r->sizes.max_experts_used);
    RG_ASSERT(rows <= r->sizes.max_rows && op->in[0]->cols <= r->sizes.max_cols && op->w[0]->rows <= r->sizes.max_cols);
    RG_ASSERT(op->w[2]->rows <= r->sizes.max_cols);
    p.rounding[0] = rg_cpu_rounding(r, f, op->w, 2);
    p.rounding[1] = rg_cpu_rounding(r, f, op->w + 2, 1);
    for (int k = 0; k < 3; k++)
        p.recipe[k] = rg_cpu_recipe(r, op->w[k], p.rounding[k / 2]);
    p.ldr = r->moe.ld / 32;
    rg_cpu_round(r, f, op->in[0], p.rounding[0]);
    for (p.first = 0; p.first < rows; p.first += per_pass) {
        p.n_rows = rg_min(per_pass, rows - p.first);
        p.n_pairs = p.n_rows * used;
        if (rg_chunk_next(f, 1) == 0)
            sort_pairs(&p);
        rg_fwd_barrier(f);
        gather_rows(&p);
        each_expert(&p, op->w[0]->rows, gate_up_block);
        if (p.recipe[2] != RG_EXACT)
            round_hidden(&p);
        each_expert(&p, op->w[2]->rows, down_block);
        add_experts(&p);
    }
}
