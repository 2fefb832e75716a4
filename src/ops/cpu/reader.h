/* reader.h -- inside the reader that computes: its scratch, and how its operations share out work.
 *
 * Every thread of a step runs the same operations in the same order.  An operation is one or more phases; a phase is a
 * loop over rg_chunk_next and ends with rg_phase_done or rg_fwd_barrier.  Whether a phase exists depends only on the
 * batch, the shapes and the number of threads, which all threads see alike.  Nothing here allocates after
 * rg_cpu_reader_new. */
#ifndef RG_OPS_CPU_READER_H
#define RG_OPS_CPU_READER_H

#include <string.h>

#include "ops/cpu/fwd.h"
#include "ops/cpu/kernels.h"

enum {
    RG_ROWS_MAX = 256,      /* rows of a block of a product */
    RG_TILE = 4096,         /* panels times rows of such a block */
    RG_UNFOLDED = 8,        /* folded panels that are unfolded together */
    RG_ITEMS_MAX = 32,      /* (row, head) pairs that walk the keys together */
    RG_ITEM_GAP = 32,       /* floats between the sums of two, which so do not fall on one cache set */
    RG_SPLIT_ROWS = 8,      /* rows whose segments may be shared out among threads */
    RG_PARTIAL_BYTES = 64 << 20, /* of partial sums at most: attention over more segments is not shared out */
    RG_MOE_PAIRS = 512,     /* (row, expert) pairs computed in one go */
    RG_ROPES = 2,           /* ropes whose cosines are kept */
    RG_RECUR_ROWS = 32,     /* rows of a linear recurrence that go over a tile of a state together */
    RG_SCAN_VALUES = 16 * RG_MAX_STATE, /* states that a chunk of draft rows works on: 16 channels at least */
};

/* What the cosines of a row were computed for. */
typedef struct rg_rope_row {
    const rg_rope *rope; /* the first of its variants; NULL: nothing yet */
    int32_t variant, pos;
} rg_rope_row;

/* Rows of a mixture sorted by expert: a slot is a place in that order, a pair is row * n_used + k. */
typedef struct rg_moe_scratch {
    int32_t *start;  /* [max_experts + 1] first slot of each expert */
    int32_t *active; /* [max_experts] experts that have rows */
    int32_t *n_active;
    int32_t *from, *to; /* active[from, to) are computed together */
    int32_t *n_held;    /* of paged experts: active[from, n_held) are held */
    int32_t *fetched;   /* [fetched_room] pages held for operations to come (fetch.c) */
    int32_t *n_fetched;
    int fetched_room;
    const uint8_t **panels; /* [max_experts][3] of paged experts that are being computed; NULL */
    int32_t *pair_of;   /* [slot] */
    int32_t *slot_of;   /* [pair] */
    float *x, *h, *y;   /* [slot][max_cols] */
    rg_rounded *xr, *hr; /* [slot][rg_round_stride(max_cols)] */
    size_t ld;          /* floats between slots */
} rg_moe_scratch;

struct rg_cpu_reader {
    rg_reader reader; /* first: what is handed out */
    const rg_cpu *cpu;
    rg_reader_sizes sizes;
    uint8_t *region;
    size_t region_bytes;
    float *thread_scratch; /* n_threads times thread_floats */
    size_t thread_floats, room_at; /* the last of them, from room_at on, for RG_UNFOLDED panels */
    rg_rope_row *rope_rows; /* [RG_ROPES][max_rows] */
    float *rope_values;     /* [RG_ROPES][max_rows][max_head_dim]: cosines, then sines */
    float *partials;        /* of attention's segments */
    size_t n_partials;      /* room, at most RG_PARTIAL_BYTES */
    float *halves;          /* [2][half_floats]: sums over the columns that a row does not skip, of up to 3 matrices */
    size_t half_floats;
    float *low;             /* [max_rows][3][low_cols]: A x of up to three deltas */
    size_t low_cols;        /* max_rank, padded */
    rg_moe_scratch moe;
    struct rg_node_copies *copies; /* NULL: none */
    struct rg_screen *screen; /* of the head (screen.c); NULL: there is none */
};

typedef void rg_cpu_op(rg_cpu_reader *r, rg_fwd *f, const rg_op *op);

rg_cpu_op rg_cpu_embed_types, rg_cpu_mean_rows, rg_cpu_features;
rg_cpu_op rg_cpu_embed, rg_cpu_embed_positions, rg_cpu_gather, rg_cpu_linear, rg_cpu_linear_heads, rg_cpu_gated;
rg_cpu_op rg_cpu_adapt, rg_cpu_sparsify, rg_cpu_permute;
rg_cpu_op rg_cpu_add, rg_cpu_mul, rg_cpu_scale, rg_cpu_scale_by_position, rg_cpu_softcap;
rg_cpu_op rg_cpu_act_mul, rg_cpu_activate;
rg_cpu_op rg_cpu_scale_by_type, rg_cpu_keep_type, rg_cpu_soften;
rg_cpu_op rg_cpu_scale_columns, rg_cpu_match_rms, rg_cpu_cut_gate, rg_cpu_mix;
rg_cpu_op rg_cpu_rmsnorm, rg_cpu_l2norm, rg_cpu_layernorm, rg_cpu_decay;
rg_cpu_op rg_cpu_rotate, rg_cpu_kv_store, rg_cpu_attention, rg_cpu_rows_store, rg_cpu_choose_keys;
rg_cpu_op rg_cpu_route, rg_cpu_fetch, rg_cpu_moe, rg_cpu_conv, rg_cpu_scan, rg_cpu_linear_attention;
rg_cpu_op rg_cpu_state_space, rg_cpu_lru, rg_cpu_taylor;

/* Compute as much of the head's product as the batch's picks need.  False: nothing was done, and the whole product is
 * to be computed. */
bool rg_cpu_screen(rg_cpu_reader *r, rg_fwd *f, const rg_op *op, rg_recipe recipe);
void rg_cpu_screen_free(struct rg_screen *s); /* NULL is fine */

/* One thread: release the pages that were fetched for an operation with experts, which holds those that it needs. */
void rg_cpu_drop_fetched(rg_cpu_reader *r, const rg_op *op);

static inline float *rg_cpu_scratch(const rg_cpu_reader *r, const rg_fwd *f)
{
    return r->thread_scratch + (size_t)f->thread * r->thread_floats;
}

static inline uint8_t *rg_cpu_room(const rg_cpu_reader *r, const rg_fwd *f)
{
    return (uint8_t *)(rg_cpu_scratch(r, f) + r->room_at);
}

/* Bytes of the room for panels of a folded matrix. */
static inline size_t rg_cpu_room_bytes(int cols)
{
    return RG_UNFOLDED * (sizeof(rg_table) + (size_t)cols / 256 * sizeof(rg_step_tk4h));
}

static inline int rg_min(int a, int b)
{
    return a < b ? a : b;
}

static inline int rg_max(int a, int b)
{
    return a > b ? a : b;
}

/* The n columns of a row in this order (NULL: as they are). */
static inline void rg_permute(float *restrict to, const float *restrict x, const int32_t *order, int n)
{
    if (!order)
        memcpy(to, x, (size_t)n * sizeof *to);
    for (int k = 0; order && k < n; k++)
        to[k] = x[order[k]];
}

/* Rows of an input, as f32 and, where a recipe asks for it, rounded; ldr in blocks. */
typedef struct rg_operand {
    const float *x;
    const rg_rounded *r;
    size_t ldx, ldr;
    int n_blocks, first_block; /* of a row of the input, and that at r: of some of its columns the first, else 0 */
} rg_operand;

/* For LLM.int8(), behind the blocks of a row: where its outliers are, a word for each block, and their values in rising
 * order of columns, as many as there are blocks. */
typedef struct rg_outliers {
    uint32_t *bits;
    float *values;
} rg_outliers;

static inline rg_outliers rg_outliers_behind(const rg_rounded *row, int n_blocks)
{
    uint32_t *bits = (uint32_t *)(uintptr_t)(row + n_blocks);

    return (rg_outliers){ bits, (float *)(void *)(bits + n_blocks) };
}

/* Products of one input share its rounding.  For the first n of w it is that of the first that is fast in this step;
 * a matrix whose recipe is another (not so in any model that we know) is then multiplied exactly. */
rg_recipe rg_cpu_rounding(const rg_cpu_reader *r, const rg_fwd *f, const rg_weight *const *w, int n);
rg_recipe rg_cpu_recipe(const rg_cpu_reader *r, const rg_weight *w, rg_recipe rounding);

/* A phase (or none, if it has been done, or for RG_EXACT): round a's rows, in the place reserved for them. */
void rg_cpu_round(rg_cpu_reader *r, rg_fwd *f, const rg_act *a, rg_recipe rounding);
/* One row of it: whole blocks of 32 of n values. */
void rg_cpu_round_row(const rg_cpu *cpu, rg_recipe rounding, const float *x, int n, rg_rounded *to);
rg_operand rg_operand_of(const rg_fwd *f, const rg_act *a);

/* y += the outliers of x's rows from `first` on by the columns that they meet: what LLM.int8() adds to the product p of
 * these rows, which was computed. */
void rg_cpu_add_outliers(const rg_cpu *cpu, rg_layout layout, const rg_product *p, const rg_operand *x, int first);

/* A product of panels of w with rows of x from `first` on, rounded for the recipe unless it is exact.  p says which
 * panels, how many rows, and where to, and has room if w is folded (rg_cpu_room); the rest of it is filled in. */
void rg_cpu_product(const rg_cpu *cpu, rg_recipe recipe, const rg_packed *w, const rg_operand *x, int first,
                    rg_product p);

#endif
