/* params.h -- what kernels are launched with: one struct each.
 *
 * The host fills a struct, the device reads it; pointers are addresses of the device's memory.  Activations are rows of
 * f32, `stride` floats apart.  Both sides include this file, so it knows nothing but plain types. */
#ifndef RG_OPS_CUDA_PARAMS_H
#define RG_OPS_CUDA_PARAMS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RGK_PANEL = 16,    /* rows of a matrix that are multiplied together */
    RGK_RUN = 32,      /* columns that a warp takes at once */
    RGK_SLAB = 256,    /* columns whose products are added up before the sum is added to those before */
    RGK_KEYS = 64,     /* positions of a block of state, RG_BLOCK */
    RGK_SEGMENT = 1024, /* keys whose partial attention is merged as one, RG_SEGMENT */
    RGK_MAX_HEAD = 256, /* of keys and values */
    RGK_ROW_QUERIES = 8, /* query heads of one kv head that a block of attention computes, of one row; */
    RGK_TILE_ROWS = 4,   /*   of several rows of one span; */
    RGK_QUERIES = 16,    /*   and then the queries of all of them */
    RGK_MAX_EXPERTS = 512,
    RGK_MAX_USED = 32,
    RGK_MOST_DYNAMIC = 98 * 1024, /* bytes of shared memory that a launch asks for: every GPU has so much for a block */
};

/* How a matrix lies in the device's memory: panels of 16 rows; of a panel, slabs of 256 columns; of a slab, runs of 32
 * columns in the order in which a warp multiplies them, then its scales.  Columns are filled up with zeros to whole
 * slabs.  In a run, lane 4 g + t has rows g and g + 8 (h = 0, 1), of each the columns 16 j + 4 t + i (j = 0, 1; i = 0
 * .. 3).  Scales: [group][g][h]. */
typedef enum rgk_layout {
    RGK_F32,  /* [column][row of the panel], no slabs: multiplied exactly */
    RGK_F16,  /* the same */
    RGK_BF16, /* run: [h][lane][j][i] */
    RGK_I8,   /* w = d (q - 128): run [lane][h][j][i] in bytes; d f16 per 32 */
    RGK_I4,   /* w = d (q - 8): two runs [lane][run][h] of 4 bytes, whose nibble 2 j + i / 2 + 4 (i % 2) is q; d f16 per
               * 32 */
    RGK_K4,   /* w = (d s) q - (e t): as I4; then [g][h] of d and e in f16, then s and t in bytes per 32 */
    RGK_G8,   /* w = d (q - 128): as I8; d f32 per 16 */
    RGK_G8M,  /* w = d (q - 128) - m: the same; after all d, m f32 per 16 */
    RGK_LAYOUTS
} rgk_layout;

typedef struct rgk_matrix {
    const uint8_t *at;
    int64_t mat_bytes, panel_bytes; /* from one matrix of a stack to the next, from one panel to the next */
    int32_t layout, rows, cols, n_slabs;
} rgk_matrix;

typedef struct rgk_rows {
    float *at;
    int64_t stride;
} rgk_rows;

/* What kernels read about all rows of the step. */
typedef struct rgk_batch {
    const int32_t *token, *index, *kv_end, *slot, *span, *pos, *rope, *second, *logit_row; /* [n_rows]; span: which;
                                                                                      * second: 1: of token type 1 */
    const int32_t *given;     /* [n_rows] which row of given_rows stands in place of the token's; -1: none */
    const float *given_rows;
    const float *features;    /* [n_rows, feature_cols] */
    const int32_t *tables;    /* numbers of blocks, of all spans and groups; */
    const int32_t *table;     /* [n_spans * n_groups] where such a table begins */
    const int32_t *tree_start; /* [n_spans] first position that a row reaches through its list */
    const int32_t *ancestors; /* slots of lists, one after the other; */
    const int32_t *ancestor;  /* [n_rows] where a row's list begins; -1: it has none */
    const int32_t *tile_row, *tile_rows; /* tiles of up to RGK_TILE_ROWS rows of one span: the first, and how many */
    int32_t n_rows, n_groups, feature_cols, n_tiles;
} rgk_batch;

/* K and V of a layer: how they lie in a block says ops/kv.h. */
typedef struct rgk_kv {
    uint8_t *blocks; /* of its group */
    int64_t block_bytes, offset;
    int32_t type;    /* rgk_kv_type */
    int32_t group, n_heads, k_dim, v_dim;
} rgk_kv;

typedef enum rgk_kv_type { RGK_KV_F32, RGK_KV_F16, RGK_KV_BF16, RGK_KV_Q8 } rgk_kv_type;

/* ---- rows -------------------------------------------------------------------------------------------------------- */

typedef struct rgk_embed_params { /* grid: rows */
    rgk_batch batch;
    rgk_matrix table;
    rgk_rows y;
    float scale;
    int32_t cols, first_token;
    bool reads_given;
} rgk_embed_params;

typedef struct rgk_gather_params { /* grid: rows of y */
    const int32_t *from; /* which row of x */
    rgk_rows y, x;
    int32_t cols;
} rgk_gather_params;

typedef enum rgk_elementwise_kind {
    RGK_ADD, RGK_MUL, RGK_SCALE, RGK_SCALE_COLUMNS, RGK_SCALE_BY_POSITION, RGK_ACT_MUL, RGK_ACTIVATE, RGK_SOFTCAP,
    RGK_SPARSIFY, RGK_ADD_POSITIONS, RGK_ADD_TYPES, RGK_FEATURES
} rgk_elementwise_kind;

typedef struct rgk_elementwise_params { /* grid: (rows, columns in runs of the threads) */
    rgk_batch batch;
    rgk_rows y, x, u;
    const float *w; /* a vector or table */
    int32_t kind, act, cols, n, table_rows;
    float a, b;
} rgk_elementwise_params;

typedef enum rgk_norm_kind { RGK_RMSNORM, RGK_LAYERNORM, RGK_L2NORM, RGK_MATCH_RMS } rgk_norm_kind;

typedef struct rgk_norm_params { /* grid: (rows, runs); dynamic: n floats, twice of MATCH_RMS */
    rgk_rows y, x;
    const float *w, *b; /* NULL: none; of one run or of all, w_cols values */
    int32_t kind, n, w_cols;
    float eps;
} rgk_norm_params;

typedef struct rgk_rotate_params { /* grid: rows */
    rgk_batch batch;
    rgk_rows x;
    const double *frequency; /* [n_variants][n_pairs], and behind those of each its factor: [n_pairs + 1] */
    int32_t cols, head_dim, first, n_pairs, n_variants, last;
    bool interleaved;
} rgk_rotate_params;

/* ---- attention --------------------------------------------------------------------------------------------------- */

typedef struct rgk_kv_store_params { /* grid: (rows, kv heads) */
    rgk_batch batch;
    rgk_kv kv;
    rgk_rows k, v;
} rgk_kv_store_params;

/* Dynamic memory of a block of attention, and what each query adds to it. */
enum { RGK_ATTEND_BYTES = 14 * 1024 };
static inline int rgk_query_bytes(int k_dim)
{
    return (k_dim + RGK_SEGMENT + 4) * 4;
}

/* grid: (tiles, kv heads * groups of query heads, segments); a tile is a row, or of several (rgk_batch), a group as
 * many heads as a block has queries for its rows */
typedef struct rgk_attend_params {
    rgk_batch batch;
    rgk_kv kv;
    rgk_rows q, y;
    float *partial; /* [row of the grid][head][segment] of m, l and o [v_dim]; NULL: one segment, finished at once */
    const float *sinks; /* [n_heads], or NULL */
    int32_t first, tile_rows; /* first tile of the grid; rows of a tile at most */
    int32_t n_heads, n_segments, window;
    float scale, cap;
    bool around;
} rgk_attend_params;

/* merge takes the same struct; grid: (tiles * tile_rows, heads) */

/* ---- products ---------------------------------------------------------------------------------------------------- */

enum { RGK_MATRICES = 3 };

/* x rounded to bf16, as products read it: of the columns of a run those that a lane reads lie side by side, [t][j][i];
 * and the sum of each 16 of them, in rising order.  grid: (rows, groups of 16 columns in runs of the threads) */
typedef struct rgk_round_params {
    rgk_rows x;
    uint16_t *to; /* [rows][slabs * 256] */
    float *sums;  /* [rows][slabs * 16] */
    int32_t cols, n_slabs;
} rgk_round_params;

/* Products of one to three matrices, or of stacked ones with the rows that chose each of them.
 *     y[k][row] = matrix[k] x[row] + bias[k], or +=
 * In a stack (`start` not NULL) matrix e has the slots [start[e], start[e + 1]); slot s reads row list[s] of x (list
 * NULL: row s) and writes row s of y; bias is [n_mats][rows]. */
typedef struct rgk_product_params {
    rgk_matrix matrix[RGK_MATRICES];
    rgk_rows y[RGK_MATRICES];
    const float *bias[RGK_MATRICES];
    rgk_rows x;           /* of the exact product */
    const uint16_t *h;    /* of the others (rgk_round_params) */
    const float *sums;
    const int32_t *start, *list;
    int32_t n_rows;       /* of x; of a stack: slots */
    int32_t n_matrices, n_slabs;
    int32_t slabs_at_once; /* whose sums fit into the dynamic memory */
    bool accumulate;
} rgk_product_params;

/* ---- mixtures ---------------------------------------------------------------------------------------------------- */

typedef struct rgk_route_params { /* grid: rows */
    rgk_rows route, logits;
    const float *bias, *expert_scale; /* [n_experts], or NULL */
    int32_t n_experts, n_used, score, n_groups, n_groups_used;
    float sum_eps, jitter, scale;
    bool renormalize, groups_by_two;
} rgk_route_params;

/* The pairs (row, expert) sorted by expert, rows rising within each.  One block. */
typedef struct rgk_sort_params {
    rgk_rows route;
    int32_t *start;   /* [n_experts + 1] */
    int32_t *row_of;  /* [pairs] the row of a slot */
    int32_t *slot_of; /* [pairs] the slot of a row's k-th expert */
    int32_t n_rows, n_used, n_experts;
} rgk_sort_params;

/* y = or += the sum over a row's experts of weight * h[slot].  grid: (rows, columns in runs of the threads) */
typedef struct rgk_combine_params {
    rgk_rows route, y, h;
    const int32_t *slot_of;
    int32_t n_used, cols;
    bool accumulate, weighed;
} rgk_combine_params;

/* Rows of x times the weight of the slot's pair, for experts whose input is weighed.  grid: slots */
typedef struct rgk_weigh_params {
    rgk_rows route, x, y;
    const int32_t *row_of, *slot_of;
    int32_t n_used, cols;
} rgk_weigh_params;

/* ---- draws ------------------------------------------------------------------------------------------------------- */

enum {
    RGK_DRAW_THREADS = 1024,
    RGK_MOST_PICKED = 128,                    /* RG_MOST_PICKED */
    RGK_FEW_DRAWN = 64, RGK_MOST_DRAWN = 256, /* candidates of a row, where of each the largest is picked, and else */
    RGK_WHOLE = -1,                           /* in place of their number: there are more, or none was looked for */
};

#define RGK_LEAST_DRAWN (-1e29f) /* logits that are picked are larger, so that RG_LEFT_OUT is less than any of them */

typedef struct rgk_pick { /* rg_pick */
    int32_t k;            /* 0: the row is not looked at */
    float temperature;
    uint32_t seed[2];     /* the lower half first */
    int32_t sample, draw, position;
} rgk_pick;

typedef struct rgk_drawn {
    int32_t id;
    float logit;
} rgk_drawn;

/* The ids of each row of logits that can be drawn, and maybe a few more.  grid: rows */
typedef struct rgk_draw_params {
    rgk_rows logits;
    const rgk_pick *picks; /* [rows] */
    rgk_drawn *to;         /* [rows][1 + room]: first their number, in `id` */
    int32_t n, room;       /* ids of a row */
} rgk_draw_params;

#endif
