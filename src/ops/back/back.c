/* back.c -- the table of backward operations; threads, scratch and sums in a fixed order. */
#include "ops/back/back.h"

#include <string.h>

#include "ops/back/inside.h"

#define IN RG_BACK_IN
enum { CHANGES = RG_BACK_IN_PLACE };

static const rg_back_kind kinds[RG_OP_COUNT] = {
    [RG_OP_EMBED] = { rg_back_embed, 0 },
    [RG_OP_EMBED_POSITIONS] = { rg_back_embed_positions, 0 },
    [RG_OP_EMBED_TYPES] = { rg_back_embed_types, 0 },
    [RG_OP_FEATURES] = { rg_back_features, 0 },
    [RG_OP_GATHER] = { rg_back_gather, 0 },
    [RG_OP_MEAN_ROWS] = { rg_back_mean_rows, 0 },
    [RG_OP_ADD] = { rg_back_add, 0 },
    [RG_OP_RMSNORM] = { rg_back_rmsnorm, IN(0) },
    [RG_OP_LAYERNORM] = { rg_back_layernorm, IN(0) },
    [RG_OP_L2NORM] = { rg_back_l2norm, IN(0) },
    [RG_OP_MATCH_RMS] = { rg_back_match_rms, IN(0) | RG_BACK_BEFORE | CHANGES },
    [RG_OP_CUT_GATE] = { rg_back_cut_gate, IN(0) },
    [RG_OP_MIX] = { rg_back_mix, IN(0) | IN(1) },
    [RG_OP_LINEAR] = { rg_back_linear, IN(0) | RG_BACK_WRITES },
    [RG_OP_LINEAR_HEADS] = { rg_back_linear_heads, IN(0) },
    [RG_OP_ACT_MUL] = { rg_back_act_mul, IN(0) | IN(1) | RG_BACK_WRITES },
    [RG_OP_ACTIVATE] = { rg_back_activate, IN(0) },
    [RG_OP_MUL] = { rg_back_mul, IN(0) | RG_BACK_BEFORE | CHANGES },
    [RG_OP_SCALE] = { rg_back_scale, CHANGES },
    [RG_OP_SCALE_COLUMNS] = { rg_back_scale_columns, RG_BACK_BEFORE | CHANGES },
    [RG_OP_SCALE_BY_POSITION] = { rg_back_scale_by_position, CHANGES },
    [RG_OP_TAYLOR] = { rg_back_taylor, IN(0) },
    [RG_OP_ROTATE] = { rg_back_rotate, CHANGES },
    [RG_OP_KV_STORE] = { rg_back_kv_store, IN(0) | IN(1) },
    [RG_OP_ATTENTION] = { rg_back_attention, IN(0) | IN(1) | RG_BACK_OUT },
    [RG_OP_MLA_ATTENTION] = { rg_back_mla_attention, IN(0) | IN(1) | RG_BACK_OUT },
    [RG_OP_ROWS_STORE] = { NULL, RG_BACK_NONE },
    [RG_OP_CHOOSE_KEYS] = { NULL, RG_BACK_NONE },
    [RG_OP_ROUTE] = { rg_back_route, IN(0) | RG_BACK_OUT },
    [RG_OP_FETCH] = { NULL, RG_BACK_NONE },
    [RG_OP_MOE] = { rg_back_moe, IN(0) | IN(1) },
    [RG_OP_CONV] = { rg_back_conv, IN(0) },
    [RG_OP_SCAN] = { rg_back_scan, IN(0) | IN(1) | IN(2) | IN(3) },
    [RG_OP_LINEAR_ATTENTION] = { rg_back_linear_attention, IN(0) | IN(1) | IN(2) | IN(3) | IN(4) | IN(5) | IN(6) },
    [RG_OP_DECAY] = { rg_back_decay, IN(0) },
    [RG_OP_STATE_SPACE] = { rg_back_state_space, IN(0) },
    [RG_OP_LRU] = { rg_back_lru, IN(0) | IN(1) | IN(2) },
    [RG_OP_SOFTCAP] = { rg_back_softcap, RG_BACK_BEFORE | CHANGES },
    [RG_OP_NOTE] = { NULL, RG_BACK_NONE },
};

const rg_back_kind *rg_back_of(rg_op_kind kind)
{
    return &kinds[kind];
}

bool rg_back_can(const rg_op *op, rg_error *err)
{
    const rg_back_kind *k = &kinds[op->kind];

    if (!k->run && !(k->needs & RG_BACK_NONE))
        return rg_fail(err, RG_E_UNSUPPORTED, "the operation '%s' cannot be differentiated yet", rg_op_name(op->kind));
    if (op->attend && (op->attend->chosen))
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "attention over keys that an indexer chooses cannot be differentiated yet");
    if (op->kind == RG_OP_ROUTE && op->routing->score == RG_SCORE_SPARSEMIXER)
        return rg_fail(err, RG_E_UNSUPPORTED, "routing by SparseMixer cannot be differentiated yet");
    return true;
}

/* ---- threads and scratch ----------------------------------------------------------------------------------------- */

void rg_back_lane_open(rg_back_lane *l, const rg_backend *backend, rg_pool *pool, int n_threads)
{
    *l = (rg_back_lane){ .backend = backend, .pool = pool, .n_threads = n_threads };
}

void rg_back_lane_close(rg_back_lane *l)
{
    for (int i = 0; i < RG_BACK_PIECES; i++)
        rg_free(l->room[i]);
    memset(l, 0, sizeof *l);
}

typedef struct each {
    const rg_back_lane *l;
    int n;
    void (*part)(void *arg, int i, int thread);
    void *arg;
} each;

static void run_each(void *arg, int thread)
{
    const each *e = arg;
    uint32_t phase = 0;

    for (int i; (i = rg_phase_take(e->l->pool, phase, e->n)) >= 0;)
        e->part(e->arg, i, thread);
    rg_phase_end(e->l->pool, &phase);
}

void rg_back_each(const rg_back_lane *l, int n, void (*part)(void *arg, int i, int thread), void *arg)
{
    each e = { l, n, part, arg };

    if (l->failed)
        return;
    if (n > 1 && l->n_threads > 1) {
        rg_pool_run(l->pool, l->n_threads, run_each, &e);
        return;
    }
    for (int i = 0; i < n; i++)
        part(arg, i, 0);
}

float *rg_back_room(rg_back_lane *l, size_t n)
{
    const size_t rounded = rg_back_whole(n), least = (size_t)1 << (18 + (l->piece < 12 ? l->piece : 12));

    if (l->failed)
        return NULL;
    while (rounded > l->room_floats[l->piece] - l->used) {
        if (l->used && l->piece + 1 < RG_BACK_PIECES) { /* it is in use */
            l->piece++;
            l->used = 0;
            continue;
        }
        rg_free(l->room[l->piece]);
        l->room_floats[l->piece] = l->used ? 0 : rounded > least ? rounded : least;
        l->room[l->piece] = rg_alloc_tail(0, l->room_floats[l->piece], sizeof(float));
        if (!l->room[l->piece] || l->used) {
            l->room_floats[l->piece] = 0;
            l->failed = true;
            return NULL;
        }
    }
    l->used += rounded;
    return l->room[l->piece] + l->used - rounded;
}

typedef struct by_rows {
    rg_back_rows_fn *part;
    void *arg;
    int rows;
} by_rows;

static void run_rows(void *arg, int i, int thread)
{
    const by_rows *r = arg;
    const int first = i * RG_BACK_ROWS;

    r->part(r->arg, first, rg_back_min(RG_BACK_ROWS, r->rows - first), i, thread);
}

void rg_back_each_rows(const rg_back_lane *l, int rows, rg_back_rows_fn *part, void *arg)
{
    rg_back_each(l, rg_back_blocks(rows), run_rows, &(by_rows){ part, arg, rows });
}

void rg_back_fold(float *sum, const float *part, int n_blocks, int n)
{
    for (int c = 0; c < n; c++) {
        double s = 0;

        for (int i = 0; i < n_blocks; i++)
            s += (double)part[(size_t)i * (size_t)n + (size_t)c];
        sum[c] += (float)s;
    }
}

typedef struct summing {
    const rg_mat *x;
    float *part;
} summing;

static void sum_block(void *arg, int first, int n, int block, int thread)
{
    const summing *s = arg;
    const int cols = s->x->cols;
    float *to = s->part + (size_t)block * (size_t)cols;

    (void)thread;
    memset(to, 0, (size_t)cols * sizeof *to);
    for (int r = first; r < first + n; r++) {
        const float *x = rg_mat_row(s->x, r);

        for (int c = 0; c < cols; c++)
            to[c] += x[c];
    }
}

void rg_back_sum_rows(rg_back_lane *l, float *sum, const rg_mat *x)
{
    const int n = rg_back_blocks(x->rows);
    summing s = { x, rg_back_room(l, (size_t)n * (size_t)x->cols) };

    if (!s.part)
        return;
    rg_back_each_rows(l, x->rows, sum_block, &s);
    rg_back_fold(sum, s.part, n, x->cols);
}
