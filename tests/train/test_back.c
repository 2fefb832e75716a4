/* The backward of single operations against finite differences along random directions of all that they read, of rows of
 * several texts packed into one step and of one text alone. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "ops/back/inside.h"
#include "train/tape.h"

enum { MAX_IN = 7, MAX_W = 6, ROWS = 13, MOST_ROWS = 300 };

typedef struct weight {
    rg_weight w;
    float *values, *grad, *direction;
    size_t n;
} weight;

/* A case: what it reads, and the operations. */
typedef struct trial {
    const char *name;
    int in[MAX_IN]; /* columns; 0: no more */
    struct {
        int mats, rows, cols;
        bool matrix;
        float base;
    } w[MAX_W]; /* values are base + 0.5 normal; cols 0: no more */
    int out;    /* columns */
    rg_act *(*text)(rg_fwd *f, rg_act *const in[], const rg_weight *const w[], int which);
    int which;
    int rows; /* 0: ROWS */
} trial;

typedef struct rig {
    const rg_backend *backend;
    rg_pool *pool;
    rg_back_lane back;
    rg_tape *tape;
    rg_lane *lane;
    rg_state_memory *state;
    const trial *t;
    rg_batch batch;
    weight w[MAX_W];
    int n_w, n_in;
    float *in[MAX_IN], *d_in[MAX_IN], *direction[MAX_IN];
    float *given;                             /* what weights_out is */
    rg_mat grad_in[MAX_IN], out, weights_out; /* weights_out: the loss is the sum of it times out */
} rig;

/* Of the state that cases use: K/V of 4 heads of 8, latents of 12, and one buffer of plenty. */
static const rg_kv kv = { .group = 0, .type = RG_F32, .n_heads = 2, .k_dim = 8, .v_dim = 8 };
static const rg_kv latent = { .group = 0, .type = RG_F32, .n_heads = 1, .k_dim = 12, .v_dim = 8, .latent = true };
enum { BLOCK_BYTES = 1 << 16 };

static int rows_of(const trial *t)
{
    return t->rows ? t->rows : ROWS;
}

static void find(void *arg, const rg_weight *w, const float **values, float **grad)
{
    rig *r = arg;

    for (int i = 0; i < r->n_w; i++)
        if (w == &r->w[i].w) {
            *values = r->w[i].values;
            *grad = r->w[i].grad;
        }
}

static void give_row(void *arg, int row, float *x)
{
    const rg_mat *m = arg;

    memcpy(x, rg_mat_row(m, row), (size_t)m->cols * sizeof *x);
}

static void take_row(void *arg, int row, const float *x)
{
    const rg_mat *m = arg;

    memcpy(rg_mat_row(m, row), x, (size_t)m->cols * sizeof *x);
}

static rg_outputs text(const void *arg, rg_fwd *f)
{
    rig *r = (rig *)(uintptr_t)arg;
    const rg_weight *w[MAX_W] = { NULL };
    const bool computes = rg_reader_computes(f);
    rg_act *in[MAX_IN] = { NULL };

    f->apart = true;
    for (int i = 0; i < r->n_in; i++) {
        rg_mat from = { r->in[i], (size_t)r->t->in[i], r->batch.n_rows, r->t->in[i] };

        in[i] = rg_act_rows(f, "in", r->batch.n_rows, r->t->in[i]);
        if (!computes)
            continue;
        rg_tape_carry(r->tape, f, in[i], &r->grad_in[i]);
        rg_act_put(f, in[i], give_row, &from);
    }
    for (int i = 0; i < r->n_w; i++)
        w[i] = &r->w[i].w;
    rg_act *out = r->t->text(f, in, w, r->t->which);
    if (computes) {
        rg_act_fetch(f, out, take_row, &r->out);
        if (f->thread == 0 && (out < in[0] || out > in[r->n_in - 1]))
            rg_tape_seed(r->tape, f, out, &r->weights_out);
    }
    return (rg_outputs){ 0 };
}

static double loss(rig *r, bool taped)
{
    double sum = 0;

    rg_tape_begin(r->tape, &r->batch);
    rg_tape_reset(r->tape, taped);
    r->backend->submit(r->lane, &(rg_step){ .text = text,
                                            .model = r,
                                            .batch = &r->batch,
                                            .reader = rg_tape_wrap(r->tape, r->lane->reader),
                                            .exact = true,
                                            .settled = true,
                                            .n_threads = r->back.n_threads,
                                            .state = r->state });
    r->backend->wait(r->lane);
    for (int i = 0; i < r->batch.n_rows; i++)
        for (int c = 0; c < r->t->out; c++)
            sum += (double)rg_mat_row(&r->out, i)[c] * (double)rg_mat_row(&r->weights_out, i)[c];
    return sum;
}

static void put_weight(rig *r, weight *w)
{
    for (int64_t i = 0; w->w.placed && i < w->w.n_mats * w->w.rows; i++)
        r->backend->weight_put((rg_placed *)(uintptr_t)w->w.placed, i / w->w.rows, i % w->w.rows,
                               w->values + i * w->w.cols);
}

static void move(rig *r, double by)
{
    for (int i = 0; i < r->n_in; i++)
        for (int k = 0; k < r->batch.n_rows * r->t->in[i]; k++)
            r->in[i][k] += (float)(by * (double)r->direction[i][k]);
    for (int i = 0; i < r->n_w; i++) {
        for (size_t k = 0; k < r->w[i].n; k++)
            r->w[i].values[k] += (float)(by * (double)r->w[i].direction[k]);
        put_weight(r, &r->w[i]);
    }
}

static float *normals(rg_rng *g, size_t n, float size, float base)
{
    float *x = rg_array(n, sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = base + size * rg_rng_normal(g);
    return x;
}

static void make_weights(rig *r, rg_rng *g)
{
    rg_error err = { 0 };

    for (r->n_w = 0; r->n_w < MAX_W && r->t->w[r->n_w].cols; r->n_w++) {
        weight *w = &r->w[r->n_w];
        const int mats = r->t->w[r->n_w].mats ? r->t->w[r->n_w].mats : 1, rows = r->t->w[r->n_w].rows;

        *w = (weight){
            .w = { .name = "w", .type = RG_F32, .n_mats = mats, .rows = rows ? rows : 1, .cols = r->t->w[r->n_w].cols }
        };
        w->n = (size_t)(w->w.n_mats * w->w.rows * w->w.cols);
        w->values = normals(g, w->n, r->t->w[r->n_w].base < 0 ? 0.1f : 0.5f, r->t->w[r->n_w].base);
        w->direction = normals(g, w->n, 1, 0);
        w->grad = normals(g, w->n, 0, 0);
        if (r->t->w[r->n_w].matrix) {
            const rg_placing what = { .type = RG_F32, .n_mats = mats, .rows = w->w.rows, .cols = w->w.cols };
            w->w.placed = r->backend->weight_new(r->backend, &what, &err);
            assert_ok(w->w.placed, err);
            put_weight(r, w);
        } else {
            w->w.vec = w->values;
        }
    }
}

/* Texts of 7, 1 and 5 rows in one step, or one of 13; of a longer trial the last text has what is left. */
static rg_batch make_batch(bool packed, int rows)
{
    const int cuts[2][4] = { { 0, 7, 8, rows }, { 0, rows, rows, rows } };
    static int32_t table[3] = { 0, 1, 2 }, index[MOST_ROWS], kv_end[MOST_ROWS], token[MOST_ROWS], pos[MOST_ROWS][4];
    static rg_span spans[3];
    const int n = packed ? 3 : 1, *cut = cuts[!packed];

    for (int s = 0; s < n; s++) {
        spans[s] = (rg_span){ .first_row = cut[s], .n_rows = cut[s + 1] - cut[s], .adapter = -1 };
        for (int k = 0; k < RG_MAX_GROUPS; k++)
            spans[s].tables[k] = &table[s];
        for (int i = cut[s]; i < cut[s + 1]; i++) {
            index[i] = pos[i][0] = i - cut[s];
            kv_end[i] = index[i] + 1;
        }
    }
    return (rg_batch){ .n_rows = rows,
                       .n_spans = n,
                       .spans = spans,
                       .token = token,
                       .index = index,
                       .pos = (const int32_t(*)[4])pos,
                       .kv_end = kv_end };
}

static void open_rig(rig *r, const trial *t, bool packed, const rg_backend *b, int n_threads)
{
    const int rows = rows_of(t);
    const size_t n_out = (size_t)(rows * t->out);
    rg_rng g = { .seed = test_seed };
    rg_error err = { 0 };
    size_t bytes = 0;

    *r = (rig){ .backend = b, .t = t, .batch = make_batch(packed, rows) };
    for (r->n_in = 0; r->n_in < MAX_IN && t->in[r->n_in]; r->n_in++) {
        const size_t n = (size_t)(rows * t->in[r->n_in]);

        r->in[r->n_in] = normals(&g, n, 1, 0);
        r->direction[r->n_in] = normals(&g, n, 1, 0);
        r->d_in[r->n_in] = normals(&g, n, 0, 0);
        r->grad_in[r->n_in] = (rg_mat){ r->d_in[r->n_in], (size_t)t->in[r->n_in], rows, t->in[r->n_in] };
    }
    make_weights(r, &g);
    r->out = (rg_mat){ normals(&g, n_out, 0, 0), (size_t)t->out, rows, t->out };
    r->weights_out = (rg_mat){ normals(&g, n_out, 1, 0), (size_t)t->out, rows, t->out };
    r->given = normals(&g, n_out, 0, 0);
    memcpy(r->given, r->weights_out.at, n_out * sizeof *r->given);
    r->pool = rg_pool_new(2, &err);
    assert_ok(r->pool, err);
    rg_back_lane_open(&r->back, b, r->pool, n_threads);
    r->tape = rg_tape_new(&r->back, find, r, NULL, &err);
    assert_ok(r->tape, err);
    r->state = b->state_new(
        b,
        &(rg_state_shape){
            .n_groups = 2, .block_bytes = { BLOCK_BYTES, BLOCK_BYTES }, .n_blocks = { 3, 3 }, .kv = &kv, .n_kv = 1 },
        &err);
    assert_ok(r->state, err);
    assert_ok(b->measure(b, &(rg_step){ .text = text, .model = r, .batch = &r->batch }, &bytes, &err), err);
    r->lane = b->open(b,
                      &(rg_lane_options){ .sizes = { .max_rows = rows,
                                                     .max_cols = 256,
                                                     .max_experts = 8,
                                                     .max_experts_used = 8,
                                                     .n_threads = 2,
                                                     .max_heads = 8,
                                                     .max_head_dim = 64,
                                                     .max_keys = 64 },
                                          .activation_bytes = bytes,
                                          .pool = r->pool },
                      &err);
    assert_ok(r->lane, err);
}

static void close_rig(rig *r)
{
    r->backend->close(r->lane);
    r->backend->state_free(r->state);
    rg_tape_free(r->tape);
    rg_back_lane_close(&r->back);
    rg_pool_free(r->pool);
    for (int i = 0; i < r->n_in; i++) {
        rg_free(r->in[i]);
        rg_free(r->d_in[i]);
        rg_free(r->direction[i]);
    }
    for (int i = 0; i < r->n_w; i++) {
        rg_placed_free((rg_placed *)(uintptr_t)r->w[i].w.placed);
        rg_free(r->w[i].values);
        rg_free(r->w[i].grad);
        rg_free(r->w[i].direction);
    }
    rg_free(r->out.at);
    rg_free(r->weights_out.at);
    rg_free(r->given);
}

/* What the gradient says of the direction; *size: the gradient's norm. */
static double slope_of(const rig *r, double *size)
{
    double slope = 0, squares = 0;

    for (int i = 0; i < r->n_in; i++)
        for (int k = 0; k < r->batch.n_rows * r->t->in[i]; k++) {
            slope += (double)r->d_in[i][k] * (double)r->direction[i][k];
            squares += (double)r->d_in[i][k] * (double)r->d_in[i][k];
        }
    for (int i = 0; i < r->n_w; i++)
        for (size_t k = 0; k < r->w[i].n; k++) {
            slope += (double)r->w[i].grad[k] * (double)r->w[i].direction[k];
            squares += (double)r->w[i].grad[k] * (double)r->w[i].grad[k];
        }
    *size = sqrt(squares);
    return slope;
}

static void try_one(const trial *t, bool packed)
{
    const double step = 1e-3;
    rg_error err = { 0 };
    double size;
    rig r;

    open_rig(&r, t, packed, rg_backend_find(test_isa ? test_isa : "auto", NULL), 2);
    loss(&r, true);
    assert_ok(rg_tape_walk(r.tape, NULL, NULL, &err), err);
    const double slope = slope_of(&r, &size);
    memcpy(r.weights_out.at, r.given, (size_t)(rows_of(t) * t->out) * sizeof *r.given); /* the walk has changed them */
    move(&r, step);
    const double up = loss(&r, false);
    move(&r, -2 * step);
    const double measured = (up - loss(&r, false)) / (2 * step);
    if (!(size > 0) || !(fabs(measured - slope) <= 5e-3 * size))
        fail_msg("%s (%d), %s: the gradient says %.6g, the operation %.6g", t->name, t->which,
                 packed ? "packed" : "alone", slope, measured);
    close_rig(&r);
}

/* ---- the operations: each makes an activation of its own, so that its gradient can be given ---------------------- */

#define TEXT(name) static rg_act *name(rg_fwd *f, rg_act *const in[], const rg_weight *const w[], int which)
#define NEW(cols)  rg_act_new(f, "out", cols)
#define UNUSED     (void)in, (void)w, (void)which

/* A copy, for operations that change their output in place. */
static rg_act *copy(rg_fwd *f, const rg_act *x)
{
    rg_act *y = rg_act_new(f, "out", x->cols);

    rg_activate(f, y, x, RG_IDENTITY);
    return y;
}

TEXT(norms)
{
    rg_act *y = NEW(in[0]->cols);

    UNUSED;
    switch (which) {
    case 0:
        rg_rmsnorm(f, y, in[0], w[0], 1e-5f);
        break;
    case 1:
        rg_rmsnorm_plain(f, y, in[0], 8, 1e-5f);
        break;
    case 2:
        rg_rmsnorm_runs(f, y, in[0], w[0], 8, 1e-5f);
        break;
    case 3:
        rg_layernorm(f, y, in[0], w[0], w[1], 1e-5f);
        break;
    case 4:
        rg_layernorm_plain(f, y, in[0], 8, 1e-5f);
        break;
    case 5:
        rg_layernorm_runs(f, y, in[0], w[0], w[1], 8, 1e-5f);
        break;
    case 6:
        rg_l2norm(f, y, in[0], 8, 1e-6f);
        break;
    case 7: /* in place */
        rg_activate(f, y, in[0], RG_IDENTITY);
        rg_rmsnorm(f, y, y, w[0], 1e-5f);
        break;
    default:
        rg_cut_gate(f, y, in[0], 0.3f);
    }
    return y;
}

TEXT(products)
{
    rg_act *y = NEW(24), *part[3];

    UNUSED;
    for (int i = 0, first = 0; i < 3; first += 4 + 4 * i++)
        part[i] = rg_act_view(f, "part", y, first, 4 + 4 * i);
    if (which == 0)
        rg_linear3(f, part, in[0], (const rg_weight *const[]){ w[0], w[1], w[2] },
                   (const rg_weight *const[]){ w[3], NULL, w[4] });
    else if (which == 1) {
        rg_activate(f, y, in[1], RG_TANH);
        rg_linear_add(f, y, in[0], w[0], w[1]);
    } else if (which == 2)
        rg_linear_heads(f, y, in[0], w[0], 4);
    else
        rg_gated(f, y, in[0], w[0], w[1], w[2], NULL, RG_SILU);
    return y;
}

TEXT(activations)
{
    rg_act *x = copy(f, in[0]), *y = NEW(in[0]->cols);

    UNUSED;
    if (which == RG_INVERSE)
        rg_activate(f, x, x, RG_EXP); /* away from 0 */
    rg_activate(f, y, x, (rg_activation)which);
    return y;
}

TEXT(gates)
{
    rg_act *y = NEW(in[0]->cols);

    UNUSED;
    rg_act_mul(f, y, in[0], in[1], (rg_activation)which);
    return y;
}

TEXT(in_place)
{
    static const float freqs[4] = { 1, 0.5f, 0.25f, 0.125f };
    static const rg_rope halves = { .n_variants = 1, .n_pairs = 4, .inv_freq = freqs, .factor = 1.1f },
                         pairs = { .n_variants = 1, .n_pairs = 3, .inv_freq = freqs, .factor = 1, .interleaved = true };
    rg_act *y = copy(f, in[0]);

    UNUSED;
    switch (which) {
    case 0:
        rg_mul_by(f, y, in[1]);
        break;
    case 1:
        rg_scale_by(f, y, 0.7f);
        break;
    case 2:
        rg_scale_columns(f, y, w[0]);
        break;
    case 3:
        rg_scale_by_position(f, y, 0.3f, 3, 1);
        break;
    case 4:
        rg_softcap(f, y, 1.5f);
        break;
    case 5:
        rg_rotate(f, y, &halves, 8, 0);
        break;
    case 6:
        rg_rotate(f, y, &pairs, 8, 2);
        break;
    case 7:
        rg_rotate_until(f, y, &halves, 8, 0, 3);
        break;
    case 8:
        rg_match_rms(f, y, in[1], 1e-5f);
        break;
    default:
        rg_add_to(f, y, in[1]);
    }
    return y;
}

TEXT(maps)
{
    rg_act *y = NEW(which ? 12 : 2 * rg_taylor_cols(4));

    UNUSED;
    if (which)
        rg_mix(f, y, in[0], in[1], 4);
    else
        rg_taylor(f, y, in[0], 4);
    return y;
}

TEXT(attention)
{
    static const rg_sight all = { 0 }, window = { .window = 3 };
    rg_act *y = NEW(32);

    UNUSED;
    rg_kv_store(f, &kv, in[1], in[2]);
    rg_attention(f, y, in[0], &kv,
                 &(rg_attend_params){ .n_heads = 4,
                                      .scale = 0.4f,
                                      .cap = which == 1 ? 1.3f : 0,
                                      .sight = which == 2 ? &window : &all,
                                      .sinks = which == 3 ? w[0] : NULL,
                                      .first_q = which == 4 ? in[3] : NULL,
                                      .n_first = which == 4 ? 2 : 0 });
    return y;
}

TEXT(latents)
{
    static const rg_sight all = { 0 };
    rg_act *y = NEW(24);

    UNUSED;
    rg_kv_store(f, &latent, in[2], in[3]);
    rg_mla_attention(f, y, in[0], in[1], &latent, &(rg_attend_params){ .n_heads = 3, .scale = 0.3f, .sight = &all });
    return y;
}

/* Logits to weights to experts. */
TEXT(experts)
{
    static const rg_routing ways[] = {
        { .n_experts = 5, .n_used = 2, .score = RG_SCORE_CHOSEN, .renormalize = true, .scale = 1 },
        { .n_experts = 5, .n_used = 2, .score = RG_SCORE_SOFTMAX, .scale = 1.5f },
        { .n_experts = 5, .n_used = 2, .score = RG_SCORE_SOFTMAX, .renormalize = true, .scale = 1 },
        { .n_experts = 5, .n_used = 3, .score = RG_SCORE_SIGMOID, .renormalize = true, .sum_eps = 1e-3f, .scale = 2 },
        { .n_experts = 5, .n_used = 2, .score = RG_SCORE_SIGMOID, .scale = 1, .weigh_input = true },
    };
    rg_act *y = NEW(6), *route = rg_act_new(f, "route", 2 * ways[which].n_used);

    UNUSED;
    rg_route(f, route, in[1], &ways[which], NULL, which == 2 ? w[5] : NULL);
    rg_activate(f, y, in[2], RG_TANH);
    rg_moe(f, y, in[0], route, &ways[which],
           &(rg_experts){ .gate = which % 2 ? NULL : w[0],
                          .up = w[1],
                          .down = w[2],
                          .b_up = w[3],
                          .b_down = w[4],
                          .act = which == 4 ? RG_SWIGLU_CLAMPED : RG_SILU });
    return y;
}

TEXT(convolutions)
{
    static rg_buffer tail;
    const int cols = in[0]->cols, results = (int)w[0]->rows;
    rg_act *y = NEW(results);

    UNUSED;
    tail = rg_conv_tail("tail", cols, (int)w[0]->cols);
    tail.group = 1;
    rg_conv(f, y, in[0], w[0], w[1], &tail, (rg_activation)which);
    return y;
}

TEXT(scans)
{
    static rg_buffer h;
    rg_act *y = NEW(20);

    UNUSED;
    h = rg_scan_state("h", 20, (int)w[0]->rows);
    h.group = 1;
    rg_scan(f, y, in[0], in[1], in[2], in[3], w[0], w[1], &h);
    return y;
}

TEXT(decays)
{
    rg_act *y = NEW(16), *decay = rg_act_view(f, "decay", y, 0, 8), *dt = rg_act_view(f, "dt", y, 8, 8);

    UNUSED;
    rg_decay(f, decay, dt, in[0],
             &(rg_decay_params){
                 .bias = w[0], .act = RG_SOFTPLUS, .min = which ? 0.3f : 0, .max = which ? 1.2f : 0, .rate = w[1] });
    return y;
}

/* q, k, v, decay, beta, a, b of 4 heads, 6 by what v has. */
TEXT(recurrences)
{
    static rg_buffer state;
    const int v_dim = in[2]->cols / 4;
    rg_act *y = NEW(in[2]->cols), *decay = rg_act_new(f, "decay", in[3]->cols), *beta = in[4],
           *k = rg_act_new(f, "k", in[1]->cols);
    const bool has_beta = which != 0, has_ab = which == 3;
    int logged = in[1]->cols + in[2]->cols + decay->cols + (has_beta ? beta->cols : 0);

    UNUSED;
    logged += has_ab ? in[5]->cols + in[6]->cols : 0;
    rg_activate(f, decay, in[3], RG_SIGMOID);
    rg_l2norm(f, k, in[1], 6, 1e-6f);
    state = rg_linear_attention_state("s", 4, 6, v_dim, logged);
    state.group = 1;
    rg_linear_attention(f, y,
                        &(rg_linear_attention_params){ .n_heads = 4,
                                                       .k_dim = 6,
                                                       .v_dim = v_dim,
                                                       .scale = 0.5f,
                                                       .interleaved = which == 2,
                                                       .delta = which == 2,
                                                       .q = in[0],
                                                       .k = k,
                                                       .v = in[2],
                                                       .decay = decay,
                                                       .beta = has_beta ? beta : NULL,
                                                       .a = has_ab ? in[5] : NULL,
                                                       .b = has_ab ? in[6] : NULL,
                                                       .skip = which == 1 ? w[0] : NULL },
                        &state);
    return y;
}

TEXT(spaces)
{
    static rg_buffer x;
    rg_act *y = NEW(10);

    UNUSED;
    x = rg_state_space_state("x", 10, 3);
    x.group = 1;
    rg_state_space(f, y, in[0], w[0], w[1], &x);
    return y;
}

TEXT(lrus)
{
    static rg_buffer h;
    rg_act *y = NEW(10);

    UNUSED;
    h = rg_lru_state("h", 10);
    h.group = 1;
    rg_lru(f, y, in[0], in[1], in[2], w[0], (const rg_weight *const[]){ w[1], w[2] }, &h);
    return y;
}

#define VECTOR(n)                                                                                                      \
    {                                                                                                                  \
        1, 1, n, false, 1                                                                                              \
    }
#define BIAS(n)                                                                                                        \
    {                                                                                                                  \
        1, 1, n, false, 0                                                                                              \
    }
#define TABLE(r, n)                                                                                                    \
    {                                                                                                                  \
        1, r, n, false, 0                                                                                              \
    }
#define MATRIX(r, n)                                                                                                   \
    {                                                                                                                  \
        1, r, n, true, 0                                                                                               \
    }
#define MATRICES(m, r, n)                                                                                              \
    {                                                                                                                  \
        m, r, n, true, 0                                                                                               \
    }
#define RATES(n)                                                                                                       \
    {                                                                                                                  \
        1, 1, n, false, -0.7f                                                                                          \
    }

static const trial trials[] = {
    { "rmsnorm", { 16 }, { VECTOR(16) }, 16, norms, 0 },
    { "rmsnorm of runs", { 16 }, { { 0 } }, 16, norms, 1 },
    { "rmsnorm, a weight for each run", { 16 }, { VECTOR(16) }, 16, norms, 2 },
    { "layernorm", { 16 }, { VECTOR(16), BIAS(16) }, 16, norms, 3 },
    { "layernorm of runs", { 16 }, { { 0 } }, 16, norms, 4 },
    { "layernorm, weights for each run", { 16 }, { VECTOR(16), BIAS(16) }, 16, norms, 5 },
    { "l2norm", { 16 }, { { 0 } }, 16, norms, 6 },
    { "rmsnorm in place", { 16 }, { VECTOR(16) }, 16, norms, 7 },
    { "cut_gate", { 16 }, { { 0 } }, 16, norms, 8 },
    { "linear, three", { 20 }, { MATRIX(4, 20), MATRIX(8, 20), MATRIX(12, 20), BIAS(4), BIAS(12) }, 24, products, 0 },
    { "linear, added", { 20, 24 }, { MATRIX(24, 20), BIAS(24) }, 24, products, 1 },
    { "linear_heads", { 12 }, { MATRICES(3, 8, 4) }, 24, products, 2 },
    { "gated", { 20 }, { MATRIX(24, 20), MATRIX(24, 20), BIAS(24) }, 24, products, 3 },
    { "mul", { 16, 4 }, { { 0 } }, 16, in_place, 0 },
    { "scale", { 16 }, { { 0 } }, 16, in_place, 1 },
    { "scale_columns", { 16 }, { VECTOR(8) }, 16, in_place, 2 },
    { "scale_by_position", { 16 }, { { 0 } }, 16, in_place, 3 },
    { "softcap", { 16 }, { { 0 } }, 16, in_place, 4 },
    { "rotate, halves", { 16 }, { { 0 } }, 16, in_place, 5 },
    { "rotate, pairs", { 16 }, { { 0 } }, 16, in_place, 6 },
    { "rotate, up to a position", { 16 }, { { 0 } }, 16, in_place, 7 },
    { "match_rms", { 16, 16 }, { { 0 } }, 16, in_place, 8 },
    { "add", { 16, 16 }, { { 0 } }, 16, in_place, 9 },
    { "taylor", { 8 }, { { 0 } }, 2 * (1 + 4 + 10), maps, 0 },
    { "mix", { 8, 6 }, { { 0 } }, 12, maps, 1 },
    { "attention", { 32, 16, 16 }, { { 0 } }, 32, attention, 0 },
    { "attention, capped", { 32, 16, 16 }, { { 0 } }, 32, attention, 1 },
    { "attention, a window", { 32, 16, 16 }, { { 0 } }, 32, attention, 2 },
    { "attention, sinks", { 32, 16, 16 }, { BIAS(4) }, 32, attention, 3 },
    { "attention, first keys", { 32, 16, 16, 32 }, { { 0 } }, 32, attention, 4 },
    { "mla_attention", { 24, 18, 8, 4 }, { { 0 } }, 24, latents, 0 },
#define EXPERTS MATRICES(5, 7, 8), MATRICES(5, 7, 8), MATRICES(5, 6, 7), TABLE(5, 7), TABLE(5, 6), VECTOR(5)
    { "experts, of the chosen", { 8, 5, 6 }, { EXPERTS }, 6, experts, 0 },
    { "experts, softmax of all", { 8, 5, 6 }, { EXPERTS }, 6, experts, 1 },
    { "experts, renormalised and scaled", { 8, 5, 6 }, { EXPERTS }, 6, experts, 2 },
    { "experts, sigmoid", { 8, 5, 6 }, { EXPERTS }, 6, experts, 3 },
    { "experts, weights on their input", { 8, 5, 6 }, { EXPERTS }, 6, experts, 4 },
    { "conv", { 12 }, { TABLE(12, 4), BIAS(12) }, 12, convolutions, RG_IDENTITY },
    { "conv, two results", { 12 }, { TABLE(24, 4), BIAS(24) }, 24, convolutions, RG_SILU },
    { "conv, GELU", { 20 }, { TABLE(20, 3), BIAS(20) }, 20, convolutions, RG_GELU },
    { "conv, without a bias, long", { 17 }, { TABLE(17, 4) }, 17, convolutions, RG_SILU, 300 },
    { "conv, three results, long", { 17 }, { TABLE(51, 2), BIAS(51) }, 51, convolutions, RG_TANH, 300 },
    { "scan", { 20, 20, 6, 20 }, { { 1, 3, 20, false, -0.7f }, VECTOR(20) }, 20, scans, 0 },
    { "scan, many states, long", { 20, 20, 80, 20 }, { { 1, 40, 20, false, -0.7f }, VECTOR(20) }, 20, scans, 0, 300 },
    { "decay", { 8 }, { BIAS(8), RATES(4) }, 16, decays, 0 },
    { "decay within bounds", { 8 }, { BIAS(8), RATES(4) }, 16, decays, 1 },
    { "linear_attention", { 24, 24, 20, 24, 4 }, { { 0 } }, 20, recurrences, 0 },
    { "linear_attention, shared keys and a skip", { 12, 12, 20, 4, 4 }, { BIAS(4) }, 20, recurrences, 1 },
    { "linear_attention, the delta rule", { 12, 12, 20, 4, 4 }, { { 0 } }, 20, recurrences, 2 },
    { "linear_attention, a and b", { 24, 24, 20, 24, 4, 24, 24 }, { { 0 } }, 20, recurrences, 3 },
    { "linear_attention, long", { 24, 24, 84, 4, 4 }, { { 0 } }, 84, recurrences, 0, 70 },
    { "linear_attention, the delta rule, long", { 24, 24, 84, 24, 4 }, { { 0 } }, 84, recurrences, 2, 70 },
    { "linear_attention, a and b, long", { 24, 24, 84, 24, 4, 24, 24 }, { { 0 } }, 84, recurrences, 3, 70 },
    { "state_space", { 10 }, { { 1, 18, 10, false, 0.1f }, VECTOR(10) }, 10, spaces, 0 },
    { "state_space, full", { 10 }, { { 1, 30, 10, false, 0.1f }, VECTOR(10) }, 10, spaces, 1 },
    { "lru", { 10, 10, 10 }, { RATES(10), BIAS(10), BIAS(10) }, 10, lrus, 0 },
};

static void agrees_with_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(trials); i++)
        for (int packed = 0; packed < 2; packed++)
            try_one(&trials[i], packed);
}

static void differentiates_every_activation(void **state)
{
    (void)state;
    for (int act = 0; act < RG_ACTIVATIONS; act++) {
        try_one(&(trial){ "activate", { 16 }, { { 0 } }, 16, activations, act }, true);
        if (act != RG_INVERSE)
            try_one(&(trial){ "act_mul", { 16, 16 }, { { 0 } }, 16, gates, act }, true);
    }
}

/* ---- the same bits ----------------------------------------------------------------------------------------------- */

/* The gradients of all that a trial reads, as one number; whatever else differs, they are these. */
static uint64_t hash_of(const rig *r, uint64_t h)
{
    for (int i = 0; i < r->n_in + r->n_w; i++) {
        const float *x = i < r->n_in ? r->d_in[i] : r->w[i - r->n_in].grad;
        const size_t n = i < r->n_in ? (size_t)(r->batch.n_rows * r->t->in[i]) : r->w[i - r->n_in].n;

        for (size_t k = 0; k < n; k++) {
            uint32_t bits;

            memcpy(&bits, &x[k], sizeof bits);
            h = (h ^ bits) * 0x100000001b3u;
        }
    }
    return h;
}

static uint64_t walked(const trial *t, bool packed, const rg_backend *b, int n_threads)
{
    rg_error err = { 0 };
    uint64_t h;
    rig r;

    open_rig(&r, t, packed, b, n_threads);
    loss(&r, true);
    assert_ok(rg_tape_walk(r.tape, NULL, NULL, &err), err);
    h = hash_of(&r, 1);
    close_rig(&r);
    return h;
}

/* What goes over the rows of a sequence. */
static bool is_recurrent(const trial *t)
{
    return t->text == convolutions || t->text == scans || t->text == decays || t->text == recurrences ||
           t->text == spaces || t->text == lrus;
}

static void has_the_same_bits_everywhere(void **state)
{
    const rg_backend *b;

    (void)state;
    for (size_t i = 0; i < RG_LEN(trials); i++)
        for (int packed = 0; is_recurrent(&trials[i]) && packed < 2; packed++) {
            const uint64_t want = walked(&trials[i], packed, rg_backend_nth(0), 1);

            for (int k = 0; (b = rg_backend_nth(k)); k++)
                for (int n_threads = 1; n_threads <= 2; n_threads++)
                    if (!b->by_name && walked(&trials[i], packed, b, n_threads) != want)
                        fail_msg("%s, %s: %s by %d threads has other bits than %s by one", trials[i].name,
                                 packed ? "packed" : "alone", b->name, n_threads, rg_backend_nth(0)->name);
        }
}

/* ---- products ------------------------------------------------------------------------------------------------------- */

/* One value of a product as it is defined: pieces of RG_GEMM_DEPTH, each of four chains, added in order. */
static float product_at(const rg_gemm *g, int i, int j)
{
    float y = g->add ? g->y[(size_t)i * g->ldy + (size_t)j] : 0.0f;

    for (int first = 0; first < g->k; first += RG_GEMM_DEPTH) {
        float c[4] = { 0 };

        for (int k = first; k < g->k && k < first + RG_GEMM_DEPTH; k++)
            c[k % 4] = fmaf(g->b[g->b_turned ? (size_t)j * g->ldb + (size_t)k : (size_t)k * g->ldb + (size_t)j],
                            g->a[g->a_turned ? (size_t)k * g->lda + (size_t)i : (size_t)i * g->lda + (size_t)k], c[k % 4]);
        const float sum = (c[0] + c[1]) + (c[2] + c[3]);
        y = first || g->add ? y + sum : sum;
    }
    return y;
}

static float *drawn(rg_rng *rng, size_t n)
{
    float *x = rg_array(n, sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = rg_rng_normal(rng);
    return x;
}

/* Operands as they lie, turned ones far apart among them, and panels that are not whole: by one thread, and by several. */
static void multiplies_matrices_as_they_lie(void **state)
{
    static const int shapes[][4] = {
        { 5, 32, 7, 0 }, { 100, 48, 33, 0 }, { 97, 24, 40, 1100 }, { 200, 160, 1030, 1040 }, { 12, 1, 3, 0 }
    };
    rg_rng rng = { .seed = test_seed };
    rg_error err = { 0 };
    rg_pool *pool = rg_pool_new(3, &err);
    rg_back_lane lane;

    (void)state;
    assert_ok(pool, err);
    rg_back_lane_open(&lane, rg_backend_find(test_isa ? test_isa : "auto", NULL), pool, 3);
    for (int i = 0; i < (int)RG_LEN(shapes) * 16; i++) {
        const int *d = shapes[i / 16], m = d[0], n = d[1], k = d[2];
        const size_t far = (size_t)d[3] + 200, more = 3;
        rg_gemm g = { .m = m, .n = n, .k = k, .a_turned = i & 1, .b_turned = i & 2, .add = i & 4,
                      .ldy = (size_t)n + more };

        g.lda = g.a_turned ? far : (size_t)k + more;
        g.ldb = (size_t)(g.b_turned ? k : n) + more;
        float *a = drawn(&rng, g.lda * (size_t)(g.a_turned ? k : m)), *b = drawn(&rng, g.ldb * (size_t)(g.b_turned ? n : k));
        float *y = drawn(&rng, g.ldy * (size_t)m), *want = drawn(&rng, g.ldy * (size_t)m);
        float *room = drawn(&rng, rg_gemm_room(m, n, k));

        g.a = a, g.b = b, g.y = y;
        memcpy(want, y, g.ldy * (size_t)m * sizeof *y);
        for (int r = 0; r < m; r++)
            for (int c = 0; c < n; c++)
                want[(size_t)r * g.ldy + (size_t)c] = product_at(&g, r, c);
        if (i & 8)
            rg_gemm_here(&lane, &g, room);
        else
            rg_gemm_run(&lane, &g);
        assert_memory_equal(y, want, g.ldy * (size_t)m * sizeof *y);
        rg_free(a), rg_free(b), rg_free(y), rg_free(want), rg_free(room);
    }
    rg_back_lane_close(&lane);
    rg_pool_free(pool);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_finite_differences),
        cmocka_unit_test(differentiates_every_activation),
        cmocka_unit_test(has_the_same_bits_everywhere),
        cmocka_unit_test(multiplies_matrices_as_they_lie),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
