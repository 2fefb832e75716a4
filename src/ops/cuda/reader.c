/* reader.c -- every operation of the seam as launches of kernels.
 *
 * An operation fills the struct of its kernel from the record and says how many blocks there are.  Room that it needs
 * for itself lies above the activations (rg_cuda_take).  In a lane that measures nothing is launched: operations are
 * checked, and their room is found. */
#include <stdio.h>

#include "base/mem.h"
#include "ops/cuda/lane.h"
#include "ops/cuda/place.h"

enum {
    THREADS = 256, PRODUCT_THREADS = 256, EXACT_THREADS = 128, EXACT_ROWS = 8, FEW_BYTES = 80 * 1024,
    FEW_PANELS = 2, MANY_PANELS = 8, MANY_ROWS = 128, WIDE_PANELS = 16, MOST_FEW = 64, SIZES = 4,
    STAGE_BYTES = 4 * 128, /* of a row */
    PARTIAL_BYTES = 64 << 20, PAIRS = 4096, /* of rows and experts in a pass */
};

typedef bool compute_fn(rg_cuda_lane *l, rg_fwd *f, const rg_op *op);

static bool refuse(rg_cuda_lane *l, const rg_fwd *f, const char *what)
{
    if (f->layer < 0)
        return rg_fail(l->err, RG_E_UNSUPPORTED, "%s cannot be computed on a GPU yet", what);
    return rg_fail(l->err, RG_E_UNSUPPORTED, "layer %d: %s cannot be computed on a GPU yet", f->layer, what);
}

/* A vector on the device; NULL: there is none, or it is not bound yet. */
static const float *vector_of(const rg_cuda_lane *l, const rg_weight *w)
{
    return l->gpu && w ? (const float *)(const void *)rg_cuda_placed_of(w->placed_vec)->matrix.at : NULL;
}

static rgk_rows rows_of(const rg_cuda_lane *l, const rg_fwd *f, const rg_act *a)
{
    return a ? rg_cuda_rows_of(l, f, a) : (rgk_rows){ 0 };
}

static unsigned blocks(int64_t n, int64_t each)
{
    return (unsigned)((n + each - 1) / each);
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static bool known_type(rg_cuda_lane *l, const rg_fwd *f, const rg_weight *w)
{
    rgk_layout layout;
    char what[96];

    if (rg_cuda_layout_of(w->type, &layout))
        return true;
    snprintf(what, sizeof what, "weights of type %s", rg_format_of(w->type)->name);
    return refuse(l, f, what);
}

static rgk_matrix matrix_of(const rg_cuda_lane *l, const rg_weight *w)
{
    if (!l->gpu)
        return (rgk_matrix){ .cols = (int32_t)w->cols, .n_slabs = (int32_t)blocks(w->cols, RGK_SLAB) };
    rg_cuda_settle(w->placed);
    return rg_cuda_placed_of(w->placed)->matrix;
}

/* The rows that are given, one behind the other. */
static const float *send_given(rg_cuda_lane *l, const rg_batch *b, int cols)
{
    float *to = rg_cuda_take(l, (size_t)b->n_rows * (size_t)cols, sizeof *to);
    int n = 0;

    if (l->gpu && b->given)
        rg_cuda_begin(l); /* what uses this room before is done first */
    for (int i = 0; l->gpu && b->given && i < b->n_rows; i++)
        if (b->token[i] == -1)
            rg_cuda_upload(l->gpu, to + (size_t)n++ * (size_t)cols, b->given[i], (size_t)cols * sizeof *to);
    return to;
}

static bool embed(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0];
    rgk_embed_params p = { .y = rows_of(l, f, y), .scale = op->x, .cols = y->cols, .first_token = (int32_t)op->y,
                           .reads_given = op->n };

    if (!known_type(l, f, op->w[0]))
        return false;
    p.table = matrix_of(l, op->w[0]);
    p.batch = l->batch;
    if (op->n)
        p.batch.given_rows = send_given(l, f->batch, y->cols);
    rg_cuda_launch_on(l, RGK_KERNEL_embed, (unsigned)y->rows, 1, 1, THREADS, 0, &p);
    return true;
}

static bool gather(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0];
    rgk_gather_params p = { l->batch.logit_row, rows_of(l, f, y), rows_of(l, f, op->in[0]), y->cols };

    rg_cuda_launch_on(l, RGK_KERNEL_gather, (unsigned)y->rows, 1, 1, THREADS, 0, &p);
    return true;
}

/* Fills in what all have and launches. */
static bool elementwise(rg_cuda_lane *l, rg_fwd *f, const rg_op *op, rgk_elementwise_params p)
{
    const rg_act *y = op->out[0];

    p.batch = l->batch;
    p.y = rows_of(l, f, y);
    p.x = rows_of(l, f, op->in[0]);
    p.u = rows_of(l, f, op->in[1]);
    p.cols = y->cols;
    rg_cuda_launch_on(l, RGK_KERNEL_elementwise, (unsigned)y->rows, blocks(y->cols, THREADS), 1, THREADS, 0, &p);
    return true;
}

static bool add(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_ADD });
}

static bool mul(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_MUL, .n = op->n });
}

static bool scale(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_SCALE, .a = op->x });
}

static bool scale_columns(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_SCALE_COLUMNS, .n = op->n,
                                                           .w = vector_of(l, op->w[0]) });
}

static bool scale_by_position(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_SCALE_BY_POSITION, .n = op->n, .a = op->x,
                                                           .b = op->y });
}

static bool act_mul(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_ACT_MUL, .act = (int32_t)op->act });
}

static bool activate(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_ACTIVATE, .act = (int32_t)op->act });
}

static bool softcap(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_SOFTCAP, .a = op->x });
}

static bool sparsify(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_SPARSIFY, .a = op->x });
}

static bool embed_positions(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_ADD_POSITIONS, .n = op->n,
                                                           .w = vector_of(l, op->w[0]) });
}

static bool embed_types(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_ADD_TYPES, .w = vector_of(l, op->w[0]),
                                                           .table_rows = (int32_t)op->w[0]->rows });
}

static bool features(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return elementwise(l, f, op, (rgk_elementwise_params){ .kind = RGK_FEATURES });
}

static bool norm(rg_cuda_lane *l, rg_fwd *f, const rg_op *op, rgk_norm_kind kind)
{
    const rg_act *y = op->out[0];
    rgk_norm_params p = { .y = rows_of(l, f, y), .x = rows_of(l, f, op->in[0]), .w = vector_of(l, op->w[0]),
                          .b = vector_of(l, op->b[0]), .kind = kind, .n = op->n ? op->n : y->cols,
                          .w_cols = op->w[0] ? (int32_t)op->w[0]->cols : 1, .eps = op->x };
    const size_t bytes = (size_t)p.n * sizeof(float) * (kind == RGK_MATCH_RMS ? 2 : 1);

    if (bytes > RGK_MOST_DYNAMIC)
        return refuse(l, f, "a norm over so many columns");
    rg_cuda_launch_on(l, RGK_KERNEL_norm, (unsigned)y->rows, blocks(y->cols, p.n), 1,
                      p.n > 512 ? 1024 : 64, bytes, &p);
    return true;
}

static bool rmsnorm(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return norm(l, f, op, RGK_RMSNORM);
}

static bool layernorm(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return norm(l, f, op, RGK_LAYERNORM);
}

static bool l2norm(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return norm(l, f, op, RGK_L2NORM);
}

static bool match_rms(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    return norm(l, f, op, RGK_MATCH_RMS);
}

static bool rotate(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    const rg_rope *rope = op->rope;
    const rg_act *x = op->out[0];
    rgk_rotate_params p = { .x = rows_of(l, f, x), .cols = x->cols, .head_dim = op->n, .first = (int32_t)op->x,
                            .n_pairs = rope->n_pairs, .n_variants = rope->n_variants > 1 ? rope->n_variants : 1,
                            .last = op->y > 0 ? (int32_t)op->y : INT32_MAX,
                            .interleaved = rope->interleaved };

    if (rope->original)
        return refuse(l, f, "a rotation whose frequencies follow from the length of the sequence");
    p.batch = l->batch;
    p.frequency = rg_cuda_frequencies(l, rope);
    rg_cuda_launch_on(l, RGK_KERNEL_rotate, (unsigned)x->rows, 1, 1, THREADS, 0, &p);
    return true;
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

static bool kv_of(rg_cuda_lane *l, const rg_fwd *f, const rg_kv *kv, rgk_kv *out)
{
    const rgk_kv_type type = kv->type == RG_F32 ? RGK_KV_F32 : kv->type == RG_F16 ? RGK_KV_F16
                           : kv->type == RG_I8 ? RGK_KV_Q8 : RGK_KV_BF16;

    if (kv->latent)
        return refuse(l, f, "attention over latents (MLA)");
    if (rg_kv_has_open(kv))
        return refuse(l, f, "K/V in 4 bits");
    if (kv->k_dim > RGK_MAX_HEAD || kv->v_dim > RGK_MAX_HEAD)
        return refuse(l, f, "attention with heads of more than 256 columns");
    *out = (rgk_kv){ .offset = (int64_t)kv->offset, .type = type, .group = kv->group, .n_heads = kv->n_heads,
                     .k_dim = kv->k_dim, .v_dim = kv->v_dim };
    if (l->gpu) {
        out->blocks = l->groups[kv->group].data;
        out->block_bytes = (int64_t)l->groups[kv->group].block_bytes;
    }
    return true;
}

static bool kv_store(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    rgk_kv_store_params p = { .k = rows_of(l, f, op->in[0]), .v = rows_of(l, f, op->in[1]) };

    if (!kv_of(l, f, op->kv, &p.kv))
        return false;
    p.batch = l->batch;
    rg_cuda_launch_on(l, RGK_KERNEL_kv_store, (unsigned)f->batch->n_rows, (unsigned)op->kv->n_heads, 1, 64, 0, &p);
    return true;
}

/* Many rows go in tiles of a span's rows, which share what is read of a key; few by themselves, so that there are more
 * blocks. */
static void launch_attention(rg_cuda_lane *l, const rg_fwd *f, const rg_op *op, rgk_attend_params p)
{
    const int n_tiles = l->batch.n_tiles, rows = f->batch->n_rows, per_kv = p.n_heads / op->kv->n_heads;
    const bool tiled = n_tiles && 2 * n_tiles <= rows, split = p.partial;
    const int queries = tiled ? RGK_QUERIES : RGK_ROW_QUERIES, n = tiled ? n_tiles : rows;

    p.tile_rows = tiled ? RGK_TILE_ROWS : 1;
    const int most = queries / p.tile_rows, heads = per_kv < most ? per_kv : most;
    const size_t bytes = RGK_ATTEND_BYTES + (size_t)(heads * p.tile_rows * rgk_query_bytes(op->kv->k_dim));
    const size_t each = (size_t)(p.tile_rows * p.n_heads * p.n_segments * (op->kv->v_dim + 2)) * sizeof(float);
    const int at_once = split ? (int)(PARTIAL_BYTES / each) : n;
    RG_ASSERT(at_once || !n);
    for (p.first = 0; l->gpu && p.first < n; p.first += at_once) {
        const unsigned some = (unsigned)(n - p.first < at_once ? n - p.first : at_once);

        rg_cuda_launch_on(l, tiled ? RGK_KERNEL_attend_tile : RGK_KERNEL_attend, some,
                          (unsigned)op->kv->n_heads * blocks(per_kv, most), (unsigned)p.n_segments, THREADS, bytes, &p);
        if (split)
            rg_cuda_launch_on(l, RGK_KERNEL_merge, some * (unsigned)p.tile_rows, (unsigned)p.n_heads, 1,
                              op->kv->v_dim < THREADS ? (unsigned)op->kv->v_dim : THREADS, 0, &p);
    }
}

static bool attention(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    const rg_attend_params *a = op->attend;
    rgk_attend_params p = { .q = rows_of(l, f, op->in[0]), .y = rows_of(l, f, op->out[0]),
                            .sinks = vector_of(l, op->w[0]), .n_heads = a->n_heads, .n_segments = 1,
                            .window = a->sight->window, .around = a->sight->around, .scale = a->scale, .cap = a->cap };

    if (a->sight->patterns || a->first_q || a->chosen)
        return refuse(l, f, a->chosen ? "attention to keys that an indexer chooses" : "attention by patterns");
    if (!kv_of(l, f, op->kv, &p.kv))
        return false;
    float *partial = rg_cuda_take(l, PARTIAL_BYTES, 1);
    p.batch = l->batch;
    p.n_segments = l->n_segments > 1 ? l->n_segments : 1;
    p.partial = p.n_segments > 1 ? partial : NULL;
    launch_attention(l, f, op, p);
    return true;
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Matrices of one input. */
typedef struct product {
    const rg_weight *w[RGK_MATRICES], *b[RGK_MATRICES];
    rgk_rows y[RGK_MATRICES], x;
    int n, n_rows;   /* matrices; rows of x, of a stack slots */
    int x_rows;      /* rows that x has: of a stack with a list fewer than slots */
    const int32_t *start, *list;
    int most;        /* slots of one matrix at most */
    bool accumulate, exact;
} product;

/* The kernel of a layout for up to 8 rows; those for 16, 32 and 64, the wide one and that for many follow it. */
static rgk_kernel kernels_of(rgk_layout layout)
{
    static const rgk_kernel first[RGK_LAYOUTS] = {
        [RGK_BF16] = RGK_KERNEL_bf16_8, [RGK_I8] = RGK_KERNEL_i8_8, [RGK_I4] = RGK_KERNEL_i4_8,
        [RGK_K4] = RGK_KERNEL_k4_8, [RGK_G8] = RGK_KERNEL_g8_8, [RGK_G8M] = RGK_KERNEL_g8m_8,
    };

    return first[layout];
}

static bool is_exact(const product *p, int i)
{
    rgk_layout layout = RGK_F32;

    rg_cuda_layout_of(p->w[i]->type, &layout);
    return p->exact || layout == RGK_F32 || layout == RGK_F16;
}

/* Runs of so many panels that matrices have. */
static unsigned runs_of(const rgk_product_params *p, int panels)
{
    unsigned n = 0;

    for (int i = 0; i < p->n_matrices; i++)
        n += blocks(p->matrix[i].rows, RGK_PANEL * panels);
    return n;
}

/* Matrices of one layout, by kernels that share the rows of x in shared memory: those of 128 rows, or of 64. */
static void launch_many(rg_cuda_lane *l, const product *all, rgk_product_params *p, unsigned n_mats, bool wide)
{
    const int rows = wide ? MOST_FEW : MANY_ROWS, panels = wide ? WIDE_PANELS : MANY_PANELS;

    rg_cuda_launch_on(l, (rgk_kernel)((int)kernels_of((rgk_layout)p->matrix[0].layout) + (wide ? SIZES : SIZES + 1)),
                      runs_of(p, panels), n_mats, blocks(all->most, rows), PRODUCT_THREADS,
                      (size_t)(rows * STAGE_BYTES), p);
}

/* By how many rows kernels are chosen: 8 << size at once. */
static int size_for(const product *all)
{
    const int n_mats = all->start ? (int)all->w[0]->n_mats : 1;
    int size = 0;

    while (size < SIZES - 1 && (8 << size) * n_mats < all->n_rows)
        size++;
    return size;
}

/* Matrices of one layout. */
static void launch_product(rg_cuda_lane *l, const product *all, rgk_product_params p, bool exact)
{
    const unsigned n_mats = all->start ? (unsigned)all->w[0]->n_mats : 1;
    const int size = size_for(all);

    if (exact) {
        rg_cuda_launch_on(l, RGK_KERNEL_exact, runs_of(&p, 1), n_mats, blocks(all->most, EXACT_ROWS), EXACT_THREADS, 0,
                          &p);
        return;
    }
    if (all->n_rows > MOST_FEW * (int)n_mats ||
        (size == SIZES - 1 && (int)(runs_of(&p, WIDE_PANELS) * n_mats) >= l->gpu->n_processors / 2)) {
        launch_many(l, all, &p, n_mats, all->n_rows <= MOST_FEW * (int)n_mats);
        return;
    }
    const int panels = size < 2 ? 1 : FEW_PANELS, slab_bytes = panels * (8 << size) * RGK_PANEL * (int)sizeof(float);
    p.slabs_at_once = p.n_slabs < FEW_BYTES / slab_bytes ? p.n_slabs : FEW_BYTES / slab_bytes;
    rg_cuda_launch_on(l, (rgk_kernel)((int)kernels_of((rgk_layout)p.matrix[0].layout) + size), runs_of(&p, panels),
                      n_mats, blocks(all->most, 8 << size), PRODUCT_THREADS, (size_t)(p.slabs_at_once * slab_bytes),
                      &p);
}

static void round_rows(rg_cuda_lane *l, const product *all, rgk_product_params *p)
{
    const size_t slabs = (size_t)p->n_slabs, n = (size_t)all->x_rows;
    rgk_round_params r = { .x = all->x, .cols = (int32_t)all->w[0]->cols, .n_slabs = p->n_slabs };

    p->h = r.to = rg_cuda_take(l, n * slabs * RGK_SLAB, sizeof *r.to);
    p->sums = r.sums = rg_cuda_take(l, n * slabs * 16, sizeof *r.sums);
    rg_cuda_launch_on(l, RGK_KERNEL_round, (unsigned)all->x_rows, blocks((int64_t)slabs * 16, THREADS), 1, THREADS, 0,
                      &r);
}

/* All matrices; what lies above the activations is as it was before when this returns. */
static bool multiply(rg_cuda_lane *l, const rg_fwd *f, const product *all)
{
    const size_t used = l->used;
    rgk_product_params p = { .x = all->x, .start = all->start, .list = all->list, .n_rows = all->n_rows,
                             .n_slabs = (int32_t)blocks(all->w[0]->cols, RGK_SLAB), .accumulate = all->accumulate };
    bool exact = true;

    for (int i = 0; i < all->n; i++) {
        if (!known_type(l, f, all->w[i]))
            return false;
        if (all->w[i]->deltas)
            return refuse(l, f, "a weight that adapters change");
        exact = exact && is_exact(all, i);
    }
    if (!exact)
        round_rows(l, all, &p);
    for (int first = 0, i; l->gpu && first < all->n; first = i) {
        for (i = first; i < all->n && all->w[i]->type == all->w[first]->type; i++) {
            p.matrix[i - first] = matrix_of(l, all->w[i]);
            p.y[i - first] = all->y[i];
            p.bias[i - first] = vector_of(l, all->b[i]);
        }
        p.n_matrices = i - first;
        launch_product(l, all, p, is_exact(all, first));
    }
    l->used = used;
    return true;
}

static bool linear(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    product p = { .x = rows_of(l, f, op->in[0]), .n_rows = op->in[0]->rows, .x_rows = op->in[0]->rows,
                  .most = op->in[0]->rows, .accumulate = op->accumulate, .exact = f->exact };

    for (; p.n < RGK_MATRICES && op->w[p.n]; p.n++) {
        p.w[p.n] = op->w[p.n];
        p.b[p.n] = op->b[p.n];
        p.y[p.n] = rows_of(l, f, op->out[p.n]);
    }
    return multiply(l, f, &p);
}

/* Gate, then up beside it, then what joins them. */
static bool gated(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    const rg_act *y = op->out[0], *x = op->in[0];
    const size_t stride = ((size_t)y->cols + 15) / 16 * 16; /* fits: it is of an activation */
    rgk_rows up = { rg_cuda_take(l, (size_t)y->rows * stride, sizeof(float)), (int64_t)stride };
    product p = { .w = { op->w[0], op->w[1] }, .b = { op->b[0], op->b[1] }, .y = { rows_of(l, f, y), up },
                  .x = rows_of(l, f, x), .n = 2, .n_rows = x->rows, .x_rows = x->rows, .most = x->rows,
                  .exact = f->exact };
    rgk_elementwise_params e = { .y = p.y[0], .x = p.y[0], .u = up, .kind = RGK_ACT_MUL, .act = (int32_t)op->act,
                                 .cols = y->cols, .n = 1 };

    if (!multiply(l, f, &p))
        return false;
    rg_cuda_launch_on(l, RGK_KERNEL_elementwise, (unsigned)y->rows, blocks(y->cols, THREADS), 1, THREADS, 0, &e);
    return true;
}

/* ---- mixtures ---------------------------------------------------------------------------------------------------- */

static bool route(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    const rg_routing *g = op->routing;
    rgk_route_params p = { .route = rows_of(l, f, op->out[0]), .logits = rows_of(l, f, op->in[0]),
                           .bias = vector_of(l, op->b[0]), .expert_scale = vector_of(l, op->w[0]),
                           .n_experts = g->n_experts, .n_used = g->n_used, .score = (int32_t)g->score,
                           .n_groups = g->n_groups, .n_groups_used = g->n_groups_used, .sum_eps = g->sum_eps,
                           .jitter = g->jitter, .scale = g->scale, .renormalize = g->renormalize,
                           .groups_by_two = g->groups_by_two };

    if (g->n_experts > RGK_MAX_EXPERTS || g->n_used > RGK_MAX_USED)
        return refuse(l, f, "a mixture of so many experts");
    rg_cuda_launch_on(l, RGK_KERNEL_route, (unsigned)op->out[0]->rows, 1, 1, 64, 0, &p);
    return true;
}

/* Rows of a pass, and what it keeps for its pairs. */
typedef struct pass {
    const rg_op *op;
    rgk_rows x, y, route;
    int rows, pairs, down;
    int32_t *start, *row_of, *slot_of;
    rgk_rows gate, up, out, weighed;
} pass;

static rgk_rows take_rows(rg_cuda_lane *l, int rows, int64_t cols)
{
    const size_t stride = ((size_t)cols + 15) / 16 * 16; /* fits: it is of a weight */

    return (rgk_rows){ rg_cuda_take(l, (size_t)rows * stride, sizeof(float)), (int64_t)stride };
}

static bool experts(rg_cuda_lane *l, rg_fwd *f, pass *p)
{
    const rg_op *op = p->op;
    const rg_routing *g = op->routing;
    const rg_weight *down = op->w[p->down];
    const int ff = (int)op->w[0]->rows;
    const bool weighed = g->weigh_input;
    rgk_sort_params sort = { p->route, p->start, p->row_of, p->slot_of, p->rows, g->n_used, g->n_experts };
    rgk_weigh_params weigh = { p->route, p->x, p->weighed, p->row_of, p->slot_of, g->n_used, op->in[0]->cols };
    product in = { .w = { op->w[0], p->down > 1 ? op->w[1] : NULL }, .b = { op->b[0], p->down > 1 ? op->b[1] : NULL },
                   .y = { p->gate, p->up }, .x = weighed ? p->weighed : p->x, .n = p->down, .n_rows = p->pairs,
                   .x_rows = weighed ? p->pairs : p->rows, .start = p->start, .list = weighed ? NULL : p->row_of,
                   .most = p->rows, .exact = f->exact };
    product out = { .w = { down }, .b = { op->b[p->down] }, .y = { p->out }, .x = p->gate, .n = 1, .n_rows = p->pairs,
                    .x_rows = p->pairs, .start = p->start, .most = p->rows, .exact = f->exact };
    rgk_elementwise_params e = { .y = p->gate, .x = p->gate, .u = p->up,
                                 .kind = p->down > 1 ? RGK_ACT_MUL : RGK_ACTIVATE, .act = (int32_t)op->act,
                                 .cols = ff, .n = 1 };
    rgk_combine_params combine = { p->route, p->y, p->out, p->slot_of, g->n_used, op->out[0]->cols, op->accumulate,
                                   weighed };

    rg_cuda_launch_on(l, RGK_KERNEL_sort, 1, 1, 1, THREADS, 0, &sort);
    if (weighed)
        rg_cuda_launch_on(l, RGK_KERNEL_weigh, (unsigned)p->pairs, 1, 1, THREADS, 0, &weigh);
    if (!multiply(l, f, &in))
        return false;
    rg_cuda_launch_on(l, RGK_KERNEL_elementwise, (unsigned)p->pairs, blocks(ff, THREADS), 1, THREADS, 0, &e);
    if (!multiply(l, f, &out))
        return false;
    rg_cuda_launch_on(l, RGK_KERNEL_combine, (unsigned)p->rows, blocks(combine.cols, THREADS), 1, THREADS, 0, &combine);
    return true;
}

static rgk_rows rows_from(rgk_rows r, int first)
{
    r.at += first * r.stride;
    return r;
}

static bool moe(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    const rg_routing *g = op->routing;
    const int used = g->n_used, rows = op->in[0]->rows, most = PAIRS / used > 0 ? PAIRS / used : 1;
    const int per_pass = rows < most ? rows : most, pairs = per_pass * used;
    const size_t before = l->used;
    pass p = { .op = op, .down = op->w[2] ? 2 : 1 };
    bool ok = true;

    if (g->n_here)
        return refuse(l, f, "a part of a mixture's experts");
    p.start = rg_cuda_take(l, (size_t)g->n_experts + 1, sizeof *p.start);
    p.row_of = rg_cuda_take(l, (size_t)pairs, sizeof *p.row_of);
    p.slot_of = rg_cuda_take(l, (size_t)pairs, sizeof *p.slot_of);
    p.gate = take_rows(l, pairs, op->w[0]->rows);
    p.up = take_rows(l, pairs, op->w[0]->rows);
    p.out = take_rows(l, pairs, op->out[0]->cols);
    p.weighed = take_rows(l, g->weigh_input ? pairs : 0, op->in[0]->cols);
    for (int first = 0; ok && first < rows; first += per_pass) {
        p.rows = rows - first < per_pass ? rows - first : per_pass;
        p.pairs = p.rows * used;
        p.x = rows_from(rows_of(l, f, op->in[0]), first);
        p.y = rows_from(rows_of(l, f, op->out[0]), first);
        p.route = rows_from(rows_of(l, f, op->in[1]), first);
        ok = experts(l, f, &p);
    }
    l->used = before;
    return ok;
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

static compute_fn *const table[RG_OP_COUNT] = {
    [RG_OP_EMBED] = embed, [RG_OP_EMBED_POSITIONS] = embed_positions, [RG_OP_EMBED_TYPES] = embed_types,
    [RG_OP_FEATURES] = features, [RG_OP_GATHER] = gather, [RG_OP_ADD] = add, [RG_OP_RMSNORM] = rmsnorm,
    [RG_OP_LAYERNORM] = layernorm, [RG_OP_MATCH_RMS] = match_rms, [RG_OP_L2NORM] = l2norm,
    [RG_OP_SPARSIFY] = sparsify, [RG_OP_LINEAR] = linear, [RG_OP_GATED] = gated, [RG_OP_ACT_MUL] = act_mul,
    [RG_OP_ACTIVATE] = activate, [RG_OP_MUL] = mul, [RG_OP_SCALE] = scale, [RG_OP_SCALE_COLUMNS] = scale_columns,
    [RG_OP_SCALE_BY_POSITION] = scale_by_position, [RG_OP_ROTATE] = rotate, [RG_OP_KV_STORE] = kv_store,
    [RG_OP_ATTENTION] = attention, [RG_OP_ROUTE] = route, [RG_OP_MOE] = moe, [RG_OP_SOFTCAP] = softcap,
};

bool rg_cuda_compute(rg_cuda_lane *l, rg_fwd *f, const rg_op *op)
{
    char what[64];

    if (table[op->kind])
        return table[op->kind](l, f, op);
    snprintf(what, sizeof what, "the operation '%s'", rg_op_name(op->kind));
    return refuse(l, f, what);
}
