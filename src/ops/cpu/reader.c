/* reader.c -- the reader that computes: which function each kind of operation is, and the scratch they share.
 *
 * The scratch is one region, sized from the largest step and carved once; most of it is never touched and so costs
 * nothing. */
#include "ops/cpu/reader.h"

#include "base/carver.h"
#include "base/mem.h"
#include "ops/cpu/node_copies.h"

static rg_cpu_op *const table[RG_OP_COUNT] = {
    [RG_OP_EMBED] = rg_cpu_embed,
    [RG_OP_EMBED_POSITIONS] = rg_cpu_embed_positions,
    [RG_OP_EMBED_TYPES] = rg_cpu_embed_types,
    [RG_OP_FEATURES] = rg_cpu_features,
    [RG_OP_MEAN_ROWS] = rg_cpu_mean_rows,
    [RG_OP_GATHER] = rg_cpu_gather,
    [RG_OP_ADD] = rg_cpu_add,
    [RG_OP_RMSNORM] = rg_cpu_rmsnorm,
    [RG_OP_MATCH_RMS] = rg_cpu_match_rms,
    [RG_OP_CUT_GATE] = rg_cpu_cut_gate,
    [RG_OP_MIX] = rg_cpu_mix,
    [RG_OP_SCALE_COLUMNS] = rg_cpu_scale_columns,
    [RG_OP_L2NORM] = rg_cpu_l2norm,
    [RG_OP_LAYERNORM] = rg_cpu_layernorm,
    [RG_OP_SPARSIFY] = rg_cpu_sparsify,
    [RG_OP_PERMUTE] = rg_cpu_permute,
    [RG_OP_LINEAR] = rg_cpu_linear,
    [RG_OP_LINEAR_HEADS] = rg_cpu_linear_heads,
    [RG_OP_GATED] = rg_cpu_gated,
    [RG_OP_ADAPT] = rg_cpu_adapt,
    [RG_OP_ACT_MUL] = rg_cpu_act_mul,
    [RG_OP_ACTIVATE] = rg_cpu_activate,
    [RG_OP_MUL] = rg_cpu_mul,
    [RG_OP_SCALE] = rg_cpu_scale,
    [RG_OP_SCALE_BY_POSITION] = rg_cpu_scale_by_position,
    [RG_OP_TAYLOR] = rg_cpu_taylor,
    [RG_OP_ROTATE] = rg_cpu_rotate,
    [RG_OP_KV_STORE] = rg_cpu_kv_store,
    [RG_OP_ATTENTION] = rg_cpu_attention,
    [RG_OP_MLA_ATTENTION] = rg_cpu_attention,
    [RG_OP_ROWS_STORE] = rg_cpu_rows_store,
    [RG_OP_CHOOSE_KEYS] = rg_cpu_choose_keys,
    [RG_OP_ROUTE] = rg_cpu_route,
    [RG_OP_FETCH] = rg_cpu_fetch,
    [RG_OP_MOE] = rg_cpu_moe,
    [RG_OP_CONV] = rg_cpu_conv,
    [RG_OP_SCAN] = rg_cpu_scan,
    [RG_OP_LINEAR_ATTENTION] = rg_cpu_linear_attention,
    [RG_OP_DECAY] = rg_cpu_decay,
    [RG_OP_STATE_SPACE] = rg_cpu_state_space,
    [RG_OP_LRU] = rg_cpu_lru,
    [RG_OP_SOFTCAP] = rg_cpu_softcap,
    [RG_OP_SCALE_BY_TYPE] = rg_cpu_scale_by_type,
    [RG_OP_KEEP_TYPE] = rg_cpu_keep_type,
    [RG_OP_SOFTEN] = rg_cpu_soften,
};

/* What an operation wrote must be rounded again, but for columns in another order, which it rounds as well. */
static void run(const rg_reader *self, rg_fwd *f, const rg_op *op)
{
    rg_cpu_reader *r = (rg_cpu_reader *)(uintptr_t)self; /* not const: it was made by rg_cpu_reader_new */
    rg_cpu_fwd *own = rg_cpu_fwd_of(f);

    RG_ASSERT(own->pool && own->arena && f->thread < r->sizes.n_threads);
    if (op->kind == RG_OP_NOTE)
        return;
    rg_cpu_place(own);
    table[op->kind](r, f, op);
    for (size_t i = 0; i < RG_LEN(op->out) && op->kind != RG_OP_PERMUTE; i++)
        if (op->out[i])
            rg_cpu_written(own, op->out[i]);
}

static void fetch(const rg_reader *self, rg_fwd *f, const rg_act *a, rg_take_row *take, void *arg)
{
    (void)self;
    rg_cpu_place(rg_cpu_fwd_of(f));
    for (int row; (row = rg_chunk_next(f, a->rows)) >= 0;)
        take(arg, row, rg_act_row(f, a, row));
    rg_fwd_barrier(f);
}

static void put(const rg_reader *self, rg_fwd *f, rg_act *a, rg_give_row *give, void *arg)
{
    (void)self;
    rg_cpu_place(rg_cpu_fwd_of(f));
    for (int row; (row = rg_chunk_next(f, a->rows)) >= 0;)
        give(arg, row, rg_act_row(f, a, row));
    rg_fwd_barrier(f);
    rg_cpu_written(rg_cpu_fwd_of(f), a);
}

static void meet(const rg_reader *self, rg_fwd *f)
{
    (void)self;
    rg_fwd_barrier(f);
}

/* ---- scratch ----------------------------------------------------------------------------------------------------- */

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t padded(int n)
{
    return ((size_t)n + 31) / 32 * 32; /* fits: n is an int */
}

/* The most that one operation asks of a thread's own scratch; attention: per item two sums, and a block's K and V; the
 * choice of keys: a heap, and a block of them; the scan: states and their coefficients, and dt; linear attention: a
 * tile, and per row decays and b. */
static size_t thread_floats(const rg_reader_sizes *s)
{
    size_t tile = 2 * RG_TILE * RG_PANEL;
    size_t attention = 2 * (RG_ITEMS_MAX + RG_BLOCK) * padded(s->max_head_dim) + RG_ITEMS_MAX * RG_ITEM_GAP;
    size_t scan = 2 * RG_SCAN_VALUES + 2 * RG_BLOCK, route = 3 * padded(s->max_experts);
    size_t most = tile > attention ? tile : attention;

    size_t choice = 2 * RG_MAX_CHOSEN + RG_BLOCK * RG_MAX_INDEX_DIM;
    size_t tile_rows = (RG_STATE_TILE + 2 * RG_RECUR_ROWS) * RG_MAX_STATE;

    most = most > scan ? most : scan;
    most = most > tile_rows ? most : tile_rows;
    most = most > choice ? most : choice;
    return most > route ? most : route;
}

static void carve_moe(rg_cpu_reader *r, rg_carver *c)
{
    const rg_reader_sizes *s = &r->sizes;
    rg_moe_scratch *m = &r->moe;
    size_t rows = (size_t)rg_max(1, RG_MOE_PAIRS / rg_max(1, s->max_experts_used));
    size_t pairs = (rows < (size_t)s->max_rows ? rows : (size_t)s->max_rows) * (size_t)s->max_experts_used;

    m->ld = padded(s->max_cols);
    m->start = rg_carve(c, (size_t)s->max_experts + 1, sizeof *m->start);
    m->active = rg_carve(c, (size_t)s->max_experts, sizeof *m->active);
    m->n_active = rg_carve(c, 1, sizeof *m->n_active);
    m->from = rg_carve(c, 1, sizeof *m->from);
    m->to = rg_carve(c, 1, sizeof *m->to);
    m->n_held = rg_carve(c, 1, sizeof *m->n_held);
    m->fetched_room = 6 * s->max_experts; /* of a layer that was guessed, and of the present one */
    m->fetched = rg_carve(c, (size_t)m->fetched_room, sizeof *m->fetched);
    m->n_fetched = rg_carve(c, 1, sizeof *m->n_fetched);
    m->panels = rg_carve(c, (size_t)s->max_experts, 3 * sizeof *m->panels);
    m->pair_of = rg_carve(c, pairs, sizeof *m->pair_of);
    m->slot_of = rg_carve(c, pairs, sizeof *m->slot_of);
    m->x = rg_carve(c, pairs, m->ld * sizeof *m->x);
    m->h = rg_carve(c, pairs, m->ld * sizeof *m->h);
    m->y = rg_carve(c, pairs, m->ld * sizeof *m->y);
    m->xr = rg_carve(c, pairs, rg_round_stride((int)m->ld) * sizeof *m->xr);
    m->hr = rg_carve(c, pairs, rg_round_stride((int)m->ld) * sizeof *m->hr);
}

static void carve_all(rg_cpu_reader *r, rg_carver *c)
{
    const rg_reader_sizes *s = &r->sizes;
    size_t head = padded(s->max_head_dim), segments = (size_t)s->max_keys / RG_SEGMENT + 1;

    r->room_at = thread_floats(s);
    r->thread_floats = r->room_at + rg_cpu_room_bytes(s->max_folded) / sizeof(float);
    r->thread_scratch = rg_carve(c, (size_t)s->n_threads, r->thread_floats * sizeof(float));
    r->rope_rows = rg_carve(c, RG_ROPES * (size_t)s->max_rows, sizeof *r->rope_rows);
    r->rope_values = rg_carve(c, RG_ROPES * (size_t)s->max_rows, head * sizeof(float));
    r->n_partials = RG_SPLIT_ROWS * (size_t)s->max_heads * segments;
    r->n_partials = min_size(r->n_partials, RG_PARTIAL_BYTES / ((head + RG_PANEL) * sizeof(float)));
    r->partials = rg_carve(c, r->n_partials, (head + RG_PANEL) * sizeof(float));
    r->half_floats = 3 * padded(s->max_cols);
    r->halves = rg_carve(c, 2, r->half_floats * sizeof *r->halves);
    r->low_cols = padded(s->max_rank);
    r->low = rg_carve(c, 3 * (size_t)s->max_rows, r->low_cols * sizeof(float));
    carve_moe(r, c);
}

rg_cpu_reader *rg_cpu_reader_new(const rg_cpu *cpu, const rg_reader_sizes *sizes, rg_error *err)
{
    rg_cpu_reader *r = rg_zalloc(sizeof *r);
    rg_carver c = { .align = RG_ALIGN };

    if (!r)
        return rg_fail_memory(err, sizeof *r), NULL;
    r->reader = (rg_reader){ .run = run, .fetch = fetch, .put = put, .meet = meet };
    r->cpu = cpu;
    r->sizes = *sizes;
    carve_all(r, &c);
    if (c.failed) {
        rg_fail_memory(err, SIZE_MAX);
        goto fail;
    }
    r->region = rg_region_new(c.used);
    c.base = (char *)r->region;
    if (!r->region) {
        rg_fail_memory(err, c.used);
        goto fail;
    }
    r->region_bytes = c.used;
    c.used = 0;
    carve_all(r, &c);
    if (sizes->n_nodes > 1) {
        r->copies = rg_node_copies_new(sizes->weights, sizes->n_weights, sizes->n_nodes, err);
        if (!r->copies)
            goto fail;
    }
    return r;

fail:
    rg_cpu_reader_free(r);
    return NULL;
}

void rg_cpu_reader_free(rg_cpu_reader *r)
{
    if (!r)
        return;
    rg_node_copies_free(r->copies);
    rg_cpu_screen_free(r->screen);
    if (r->region)
        rg_region_free(r->region, r->region_bytes);
    rg_free(r);
}

const rg_reader *rg_cpu_reader_of(rg_cpu_reader *r)
{
    return r->copies ? rg_node_copies_wrap(r->copies, &r->reader) : &r->reader;
}
