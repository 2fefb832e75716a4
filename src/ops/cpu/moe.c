/* moe.c -- the choice of experts for each row, and their output.
 *
 * Rows are sorted by expert, so that an expert's panels are read once for all its rows; each (row, expert) result
 * stands apart until all are there, and a row then adds its own in the order of the experts' numbers, one fused
 * multiply-add each (by 1 where the weights have multiplied the input).  Many rows are taken in passes of
 * RG_MOE_PAIRS results; a row never spans two. */
#include "ops/cpu/reader.h"

#include <math.h> /* isnan */
#include <string.h>

#include "ops/math.h"
#include "ops/cpu/paged.h"

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

/* What a group of so many experts counts as. */
static float worth(const rg_routing *g, const float *score, int size)
{
    float first = score[0], second = -__builtin_inff();

    for (int i = 1; i < size; i++) {
        float less = score[i] > first ? first : score[i];

        first = score[i] > first ? score[i] : first;
        second = less > second ? less : second;
    }
    return g->groups_by_two ? first + second : first;
}

/* Mark as taken the experts of all groups but the best. */
static void limit_groups(const rg_routing *g, const float *score, float *taken)
{
    int size = g->n_experts / g->n_groups;

    for (int i = 0; i < g->n_experts; i++)
        taken[i] = -1.0f;
    for (int k = 0; k < g->n_groups_used; k++) {
        int pick = -1;
        float most = 0.0f;

        for (int group = 0; group < g->n_groups; group++) {
            float top = worth(g, score + group * size, size);

            if (taken[group * size] < 0.0f && (pick < 0 || top > most)) {
                pick = group;
                most = top;
            }
        }
        for (int i = 0; i < size; i++)
            taken[pick * size + i] = 0.0f;
    }
}

/* The share of the best, among those that are not taken and are near enough to it. */
static float mixer_weight(const rg_routing *g, const float *logits, const float *taken, int at)
{
    float m = logits[at], sum = 0.0f;

    for (int i = 0; i < g->n_experts; i++) {
        float size = __builtin_fabsf(logits[i]), far = (m - logits[i]) / (size > m ? size : m);

        if (taken[i] == 0.0f && !(far > 2.0f * g->jitter))
            sum += rg_expf(logits[i] - m);
    }
    return 1.0f / sum;
}

static void make_scores(const rg_routing *g, const float *logits, float *score)
{
    switch (g->score) {
    case RG_SCORE_SOFTMAX: softmax(score, logits, g->n_experts); break;
    case RG_SCORE_SIGMOID:
        for (int i = 0; i < g->n_experts; i++)
            score[i] = rg_sigmoidf(logits[i]);
        break;
    default: memcpy(score, logits, (size_t)g->n_experts * sizeof *score);
    }
}

/* One row.  What experts are chosen by rises with their scores: where nothing is added to these it is the logits, which
 * differ where large ones have the same sigmoid. */
static void route_row(const rg_op *op, const float *logits, float *scratch, float *out)
{
    const rg_routing *g = op->routing;
    const int n = g->n_experts;
    const float *bias = op->b[0] ? op->b[0]->vec : NULL, *by = bias || g->groups_by_two ? scratch + n : logits;
    float *score = scratch, *sums = scratch + n, *taken = scratch + 2 * n, *weight = out + g->n_used, sum = g->sum_eps;
    int at = 0;

    make_scores(g, logits, score);
    for (int i = 0; i < n; i++) {
        sums[i] = score[i] + (bias ? bias[i] : 0.0f);
        taken[i] = 0.0f;
    }
    if (g->n_groups > 0)
        limit_groups(g, by, taken);
    for (int k = 0; k < g->n_used; k++) {
        int pick = best(by, taken, n);

        if (g->score == RG_SCORE_SPARSEMIXER)
            score[pick] = mixer_weight(g, logits, taken, pick);
        taken[pick] = 1.0f;
    }
    for (int32_t i = 0; i < n; i++) {
        if (taken[i] <= 0.0f)
            continue;
        memcpy(out + at, &i, sizeof i);
        weight[at++] = score[i];
    }
    if (g->score == RG_SCORE_CHOSEN)
        softmax(weight, weight, at);
    for (int k = 0; k < at; k++)
        sum += weight[k];
    for (int k = 0; k < at; k++) {
        int32_t expert;

        memcpy(&expert, out + k, sizeof expert);
        weight[k] = (g->renormalize ? weight[k] / sum : weight[k]) * g->scale;
        weight[k] = op->w[0] ? weight[k] * op->w[0]->vec[expert] : weight[k];
    }
}

void rg_cpu_route(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    const rg_routing *g = op->routing;
    float *scratch = rg_cpu_scratch(r, f);

    RG_ASSERT(g->n_experts <= r->sizes.max_experts && g->n_used <= r->sizes.max_experts_used);
    RG_ASSERT(g->n_groups == 0 || (g->n_groups_used > 0 && g->n_groups_used <= g->n_groups &&
                                   g->n_experts / g->n_groups * g->n_groups_used >= g->n_used));
    for (int row; (row = rg_chunk_next(f, op->out[0]->rows)) >= 0;)
        route_row(op, rg_act_row(f, op->in[0], row), scratch, rg_act_row(f, op->out[0], row));
    rg_fwd_barrier(f);
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Rows [first, first + n_rows) of the batch, in one pass. */
typedef struct pass {
    rg_cpu_reader *r;
    rg_fwd *f;
    const rg_op *op;
    int first, n_rows, n_pairs;
    int down;     /* which of the operation's matrices is down; those before it are gate and up, or up alone */
    rg_recipe rounding[2], recipe[3]; /* of x and of what is between; of the matrices */
    bool ordered; /* gate or up have an order of columns */
    size_t ldr;   /* blocks between slots */
} pass;

static int expert_of(const pass *p, int pair)
{
    int used = p->op->routing->n_used;
    int32_t e;

    memcpy(&e, rg_act_row(p->f, p->op->in[1], p->first + pair / used) + pair % used, sizeof e);
    return e;
}

/* False: the expert is another rank's. */
static bool is_own(const pass *p, int expert)
{
    const rg_routing *g = p->op->routing;

    return !g->n_here || (expert >= g->first_here && expert < g->first_here + g->n_here);
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
        if (m->start[e + 1] && is_own(p, e))
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
    *m->from = 0;
    *m->to = *m->n_active;
}

/* ---- experts that lie in a file ---------------------------------------------------------------------------------- */

static rg_paged *paged_of(const pass *p)
{
    return rg_packed_of(p->op->w[0]->placed)->paged;
}

static int page_of(const pass *p, int k, int expert)
{
    return rg_packed_of(p->op->w[k]->placed)->first_page + expert;
}

/* Hold the matrices of an expert, or none of them. */
static bool hold(const pass *p, int expert)
{
    const int uses = p->r->moe.start[expert + 1] - p->r->moe.start[expert];

    for (int k = 0; k <= p->down; k++)
        if (!rg_paged_ask(paged_of(p), page_of(p, k, expert), uses)) {
            while (k-- > 0)
                rg_paged_release(paged_of(p), page_of(p, k, expert));
            return false;
        }
    return true;
}

static void let_go(const pass *p, int expert)
{
    for (int k = 0; k <= p->down; k++) {
        p->r->moe.panels[3 * expert + k] = NULL;
        rg_paged_release(paged_of(p), page_of(p, k, expert));
    }
}

/* True if all of its matrices are in memory (has), or settled since they were asked for (is_ready). */
static bool each_is(const pass *p, int expert, bool (*what)(rg_paged *, int))
{
    for (int k = 0; k <= p->down; k++)
        if (!what(paged_of(p), page_of(p, k, expert)))
            return false;
    return true;
}

/* Its rows are lost: their other experts are computed, for whoever shares them, and the sum means nothing. */
static void fail_rows(const pass *p, int expert)
{
    rg_moe_scratch *m = &p->r->moe;

    RG_ASSERT(p->f->batch->failed);
    for (int slot = m->start[expert]; slot < m->start[expert + 1]; slot++) {
        p->f->batch->failed[p->first + m->pair_of[slot] / p->op->routing->n_used] = 1;
        memset(m->y + (size_t)slot * m->ld, 0, m->ld * sizeof *m->y);
    }
    for (int k = 0; k <= p->down; k++)
        m->panels[3 * expert + k] = NULL;
}

static void take(const pass *p, int expert)
{
    bool ok = true;

    for (int k = 0; k <= p->down; k++) {
        const uint8_t *panels = rg_paged_wait(paged_of(p), page_of(p, k, expert));
        p->r->moe.panels[3 * expert + k] = panels;
        ok = ok && panels;
    }
    if (!ok)
        fail_rows(p, expert);
}

static void hold_more(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;

    while (*m->n_held < *m->n_active && hold(p, m->active[*m->n_held]))
        ++*m->n_held;
}

/* One thread, before the first group: those that are in memory first; as many are asked for as there is room. */
static void ask_first(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;
    int n_there = 0;

    for (int i = 0; i < *m->n_active; i++) {
        int expert = m->active[i];

        for (int k = 0; k <= p->down; k++)
            m->panels[3 * expert + k] = NULL;
        if (each_is(p, expert, rg_paged_has)) {
            m->active[i] = m->active[n_there];
            m->active[n_there++] = expert;
        }
    }
    *m->to = *m->n_held = 0;
    hold_more(p);
    rg_cpu_drop_fetched(p->r, p->op);
    hold_more(p);
}

/* One thread: give the last group back and wait for the next one, at least one expert; from = n_active: there is
 * none. */
static void next_group(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;

    for (; *m->from < *m->to; ++*m->from)
        let_go(p, m->active[*m->from]);
    hold_more(p);
    if (*m->from == *m->n_active)
        return;
    RG_ASSERT(*m->n_held > *m->from); /* there is room for one expert */
    do
        take(p, m->active[(*m->to)++]);
    while (*m->to < *m->n_held && each_is(p, m->active[*m->to], rg_paged_is_ready));
}

/* True if it is computed now: it is in memory, or in the group, and this rank has it. */
static bool is_here(const pass *p, int expert)
{
    return is_own(p, expert) && (!paged_of(p) || p->r->moe.panels[3 * expert]);
}

/* The number of an expert among the matrices that are here. */
static int mat_of(const pass *p, int expert)
{
    return expert - p->op->routing->first_here;
}

/* ---- their products ---------------------------------------------------------------------------------------------- */

static float weight_of(const pass *p, int pair)
{
    int used = p->op->routing->n_used;

    return rg_act_row(p->f, p->op->in[1], p->first + pair / used)[used + pair % used];
}

/* The order of columns of matrix k of an expert, which is here; NULL: they are in order. */
static const int32_t *order_of(const pass *p, int k, int expert)
{
    const rg_packed *w = rg_packed_of(p->op->w[k]->placed);

    return rg_order_behind(w, w->paged ? p->r->moe.panels[3 * expert + k] : rg_panel_at(w, mat_of(p, expert), 0));
}

/* True if matrix k reads x otherwise than the one before it: its input then lies where outputs come to lie. */
static bool is_apart(const pass *p, int k)
{
    return k == 1 && p->down == 2 && p->op->w[0]->order != p->op->w[1]->order;
}

/* What matrix k reads.  The input of gate and up is done with when down's, if it has an order, is put there. */
static rg_operand input_of(const pass *p, int k)
{
    const rg_moe_scratch *m = &p->r->moe;
    rg_operand x = { .x = m->x, .ldx = m->ld, .r = m->xr, .ldr = p->ldr };

    if (k == p->down || is_apart(p, k)) {
        x.x = k < p->down ? m->y : p->op->w[k]->order ? m->x : m->h;
        x.r = m->hr;
    }
    return x;
}

/* The inputs of gate and up for the slots of experts that are here, each expert's in its own order. */
static void gather_ordered(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;
    const rg_act *x = p->op->in[0];

    for (int slot; (slot = rg_chunk_next(p->f, p->n_pairs)) >= 0;) {
        const int pair = m->pair_of[slot], e = expert_of(p, pair);
        const float *row = rg_act_row(p->f, x, p->first + pair / p->op->routing->n_used);

        for (int k = 0; k < p->down && is_here(p, e); k++) {
            float *to = (is_apart(p, k) ? m->y : m->x) + (size_t)slot * m->ld;
            rg_rounded *rounded = (is_apart(p, k) ? m->hr : m->xr) + (size_t)slot * p->ldr;

            if (k > 0 && !is_apart(p, k))
                continue;
            rg_permute(to, row, order_of(p, k, e), x->cols);
            if (p->op->routing->weigh_input)
                p->r->cpu->scale(to, to, weight_of(p, pair), x->cols);
            if (p->rounding[0] != RG_EXACT)
                rg_cpu_round_row(p->r->cpu, p->rounding[0], to, x->cols, rounded);
        }
    }
    rg_fwd_barrier(p->f);
}

/* The input of one slot, times its weight. */
static void gather_weighed(const pass *p, int slot, const float *x, int cols)
{
    rg_moe_scratch *m = &p->r->moe;
    float *to = m->x + (size_t)slot * m->ld;

    p->r->cpu->scale(to, x, weight_of(p, m->pair_of[slot]), cols);
    if (p->rounding[0] != RG_EXACT)
        rg_cpu_round_row(p->r->cpu, p->rounding[0], to, cols, m->xr + (size_t)slot * p->ldr);
}

static void gather_rows(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;
    const rg_act *x = p->op->in[0];
    rg_operand from = rg_operand_of(p->f, x);

    for (int slot; (slot = rg_chunk_next(p->f, p->n_pairs)) >= 0;) {
        size_t row = (size_t)(p->first + m->pair_of[slot] / p->op->routing->n_used);

        if (!is_own(p, expert_of(p, m->pair_of[slot])))
            continue;
        if (p->op->routing->weigh_input) {
            gather_weighed(p, slot, from.x + row * from.ldx, x->cols);
            continue;
        }
        if (p->recipe[0] == RG_EXACT || p->recipe[p->down - 1] == RG_EXACT || p->rounding[0] == RG_LLM_INT8)
            memcpy(m->x + (size_t)slot * m->ld, from.x + row * from.ldx, (size_t)x->cols * sizeof(float));
        if (p->rounding[0] != RG_EXACT)
            memcpy(m->xr + (size_t)slot * p->ldr, from.r + row * from.ldr, from.ldr * sizeof *m->xr);
    }
    rg_fwd_barrier(p->f);
}

/* Panels of one expert by some of its slots. */
typedef struct block {
    int expert, panel, n_panels, slot, n_slots;
} block;

/* A chunk is a group of panels of one expert of the group; all of its rows, a block after the other. */
static void each_expert(const pass *p, int64_t rows, void (*compute)(const pass *p, block b))
{
    const rg_moe_scratch *moe = &p->r->moe;
    int n_panels = rg_ceil_div(rows, RG_PANEL), active = *moe->to - *moe->from;
    int group = rg_min(RG_TILE / RG_ROWS_MAX, rg_max(1, n_panels * active / (p->f->n_threads * 8)));
    int n_groups = rg_ceil_div(n_panels, group);

    for (int c; (c = rg_chunk_next(p->f, n_groups * active)) >= 0;) {
        int e = moe->active[*moe->from + c / n_groups], end = moe->start[e + 1];
        block b = { .expert = e, .panel = c % n_groups * group };

        if (!is_here(p, e))
            continue;
        b.n_panels = rg_min(group, n_panels - b.panel);
        for (b.slot = moe->start[e]; b.slot < end; b.slot += b.n_slots) {
            b.n_slots = rg_min(RG_ROWS_MAX, end - b.slot);
            compute(p, b);
        }
    }
    rg_fwd_barrier(p->f);
}

/* A block of matrix k of the experts and its bias, rows of the tile side by side. */
static void multiply(const pass *p, int k, block b, rg_operand x, float *tile)
{
    const rg_packed *w = rg_packed_of(p->op->w[k]->placed);
    const uint8_t *panels = w->paged ? p->r->moe.panels[3 * b.expert + k] : rg_panel_at(w, mat_of(p, b.expert), 0);
    const int ld = b.n_panels * RG_PANEL, at = b.panel * RG_PANEL, n = rg_min(ld, (int)w->placed.rows - at);

    x.n_blocks = (int)w->placed.cols / 32;
    rg_cpu_product(p->r->cpu, p->recipe[k], w, &x, b.slot,
                   (rg_product){ .panel = panels + (size_t)b.panel * w->panel_bytes, .n_panels = b.n_panels,
                                 .m = b.n_slots, .y = tile, .ldy = (size_t)ld, .room = rg_cpu_room(p->r, p->f) });
    if (!p->op->b[k])
        return;
    const float *bias = p->op->b[k]->vec + b.expert * w->placed.rows + at;
    for (int i = 0; i < b.n_slots; i++)
        for (int j = 0; j < n; j++)
            tile[i * ld + j] += bias[j];
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
    const int n = b.n_slots * b.n_panels * RG_PANEL;

    for (int k = 0; k < p->down; k++)
        multiply(p, k, b, input_of(p, k), tile[k]);
    if (p->down == 2)
        p->r->cpu->act_mul[p->op->act](tile[0], tile[0], tile[1], n);
    else
        p->r->cpu->act[p->op->act](tile[0], tile[0], n);
    put(p, b, p->op->w[0]->rows, tile[0], moe->h);
}

static void down_block(const pass *p, block b)
{
    rg_moe_scratch *moe = &p->r->moe;
    float *tile = rg_cpu_scratch(p->r, p->f);

    multiply(p, p->down, b, input_of(p, p->down), tile);
    put(p, b, p->op->w[p->down]->rows, tile, moe->y);
}

/* What down reads: in its order, and rounded. */
static void prepare_hidden(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;
    const rg_weight *down = p->op->w[p->down];

    for (int slot; (slot = rg_chunk_next(p->f, p->n_pairs)) >= 0;) {
        const int e = expert_of(p, m->pair_of[slot]);
        float *h = m->h + (size_t)slot * m->ld, *ordered = m->x + (size_t)slot * m->ld;

        if (!is_here(p, e))
            continue;
        if (down->order)
            rg_permute(ordered, h, order_of(p, p->down, e), (int)down->cols);
        if (p->recipe[p->down] != RG_EXACT)
            rg_cpu_round_row(p->r->cpu, p->rounding[1], down->order ? ordered : h, (int)down->cols,
                             m->hr + (size_t)slot * p->ldr);
    }
    rg_fwd_barrier(p->f);
}

static void add_experts(const pass *p)
{
    rg_moe_scratch *m = &p->r->moe;
    const rg_act *y = p->op->out[0];
    int used = p->op->routing->n_used;

    for (int i; (i = rg_chunk_next(p->f, p->n_rows)) >= 0;) {
        float *to = rg_act_row(p->f, y, p->first + i);

        if (!p->op->accumulate)
            memset(to, 0, (size_t)y->cols * sizeof *to);
        for (int pair = i * used; pair < (i + 1) * used; pair++)
            if (is_own(p, expert_of(p, pair)))
                p->r->cpu->axpy(to, p->op->routing->weigh_input ? 1.0f : weight_of(p, pair),
                                m->y + (size_t)m->slot_of[pair] * m->ld, y->cols);
    }
    rg_fwd_barrier(p->f);
}

/* The products of the experts of a group with their slots. */
static void compute_group(const pass *p)
{
    if (p->ordered)
        gather_ordered(p);
    each_expert(p, p->op->w[0]->rows, gate_up_block);
    if (p->recipe[p->down] != RG_EXACT || p->op->w[p->down]->order)
        prepare_hidden(p);
    each_expert(p, p->op->w[p->down]->rows, down_block);
}

static void compute_paged(const pass *p)
{
    const rg_moe_scratch *m = &p->r->moe;

    for (;;) {
        if (rg_chunk_next(p->f, 1) == 0)
            next_group(p);
        rg_fwd_barrier(p->f);
        if (*m->from == *m->n_active)
            return;
        compute_group(p);
    }
}

void rg_cpu_moe(rg_cpu_reader *r, rg_fwd *f, const rg_op *op)
{
    pass p = { .r = r, .f = f, .op = op, .down = op->w[2] ? 2 : 1 };
    const rg_weight *down = op->w[p.down];
    int used = op->routing->n_used, rows = op->in[0]->rows, per_pass = rg_max(1, RG_MOE_PAIRS / used);

    RG_ASSERT(op->routing->n_experts <= r->sizes.max_experts && used <= r->sizes.max_experts_used);
    RG_ASSERT(rows <= r->sizes.max_rows && op->in[0]->cols <= r->sizes.max_cols && op->w[0]->rows <= r->sizes.max_cols);
    RG_ASSERT(down->rows <= r->sizes.max_cols);
    p.rounding[0] = rg_cpu_rounding(r, f, op->w, p.down);
    p.rounding[1] = rg_cpu_rounding(r, f, &down, 1);
    for (int k = 0; k <= p.down; k++)
        p.recipe[k] = rg_cpu_recipe(r, op->w[k], p.rounding[k == p.down]);
    p.ldr = rg_round_stride((int)r->moe.ld);
    p.ordered = op->w[0]->order || op->w[p.down - 1]->order;
    if (!op->routing->weigh_input && !p.ordered)
        rg_cpu_round(r, f, op->in[0], p.rounding[0]);
    for (p.first = 0; p.first < rows; p.first += per_pass) {
        p.n_rows = rg_min(per_pass, rows - p.first);
        p.n_pairs = p.n_rows * used;
        if (rg_chunk_next(f, 1) == 0) {
            sort_pairs(&p);
            if (paged_of(&p))
                ask_first(&p);
        }
        rg_fwd_barrier(f);
        if (!p.ordered)
            gather_rows(&p);
        if (paged_of(&p))
            compute_paged(&p);
        else
            compute_group(&p);
        add_experts(&p);
    }
}
