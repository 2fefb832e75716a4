/* test_cuda_ops.c -- each operation by itself on a GPU, emulated (support/cuda/), has the bits of the definition: with columns that
 * are no multiple of anything, and values that are no numbers, too large, or too small to be normal. */
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "ops/backend.h"

enum { ROWS = 9, MAX_COLS = 1030, WEIGHTS = 4, MOST = 1 << 20, VOCAB = 40 };

/* One operation on one back end. */
typedef struct trial {
    const rg_backend *backend;
    void (*text)(rg_fwd *f, struct trial *t);
    rg_rng g;                    /* of inputs; the same for every back end */
    bool odd;                    /* inputs have values that are seldom */
    rg_weight w[WEIGHTS];
    int n, k;                    /* a variant of the operation */
    float *out;                  /* what came out, [n_out] */
    size_t n_out;
} trial;

/* ---- operands ----------------------------------------------------------------------------------------------------- */

static float value(trial *t)
{
    static const float seldom[] = { 0.0f, -0.0f, 1e-40f, -3e-39f, INFINITY, -INFINITY, NAN, 3e38f, -88.0f, 105.0f, 1e-7f };

    if (t->odd && rg_rng_below(&t->g, 7) == 0)
        return seldom[rg_rng_below(&t->g, (uint32_t)RG_LEN(seldom))];
    return 3.0f * rg_rng_normal(&t->g);
}

static void give(void *arg, int row, float *x)
{
    trial *t = ((void **)arg)[0];
    const rg_act *a = ((void **)arg)[1];
    (void)row;

    for (int k = 0; k < a->cols; k++)
        x[k] = value(t);
}

static rg_act *input(rg_fwd *f, trial *t, int cols)
{
    rg_act *a = rg_act_new(f, "x", cols);
    void *arg[2] = { t, a };

    rg_act_put(f, a, give, arg);
    return a;
}

static void take(void *arg, int row, const float *x)
{
    trial *t = ((void **)arg)[0];
    const rg_act *a = ((void **)arg)[1];

    memcpy(t->out + t->n_out + (size_t)row * (size_t)a->cols, x, (size_t)a->cols * sizeof *x);
}

static void output(rg_fwd *f, trial *t, const rg_act *a)
{
    void *arg[2] = { t, (void *)(uintptr_t)a };

    if (!rg_reader_computes(f))
        return;
    assert_true(t->n_out + (size_t)a->rows * (size_t)a->cols <= MOST);
    rg_act_fetch(f, a, take, arg);
    t->n_out += (size_t)a->rows * (size_t)a->cols;
}

/* The i-th weight: a vector of n numbers, or a matrix of f32. */
static const rg_weight *vector(trial *t, int i, int rows, int cols)
{
    rg_placing what = { .type = RG_F32, .n_mats = 1, .rows = 1, .cols = (int64_t)rows * cols, .vector = true };
    rg_weight *w = &t->w[i];
    rg_rng g = { test_seed, (uint64_t)i };
    rg_error err = { 0 };
    float *x;

    if (w->vec)
        return w;
    x = malloc((size_t)rows * (size_t)cols * sizeof *x);
    for (int k = 0; k < rows * cols; k++)
        x[k] = rg_rng_normal(&g);
    *w = (rg_weight){ .name = "w", .type = RG_F32, .n_mats = 1, .rows = rows, .cols = cols, .vec = x };
    if (!t->backend->reads_host) {
        w->placed_vec = t->backend->weight_new(t->backend, &what, &err);
        assert_ok(w->placed_vec, err);
        t->backend->weight_put((rg_placed *)(uintptr_t)w->placed_vec, 0, 0, x);
    }
    return w;
}

/* ---- a step ------------------------------------------------------------------------------------------------------- */

static rg_outputs run_text(const void *model, rg_fwd *f)
{
    trial *t = *(trial *const *)model;

    t->g = (rg_rng){ test_seed, 100 };
    t->text(f, t);
    return (rg_outputs){ 0 };
}

static void compute(trial *t)
{
    static int32_t token[ROWS], index[ROWS], kv_end[ROWS], pos[ROWS][4], logits[] = { 1, 4, 8 };
    static float features[ROWS * 24];
    rg_span spans[2] = { { .n_rows = 4, .second = 2, .adapter = -1 },
                         { .first_row = 4, .n_rows = ROWS - 4, .start = 3, .adapter = -1, .rope = 1 } };
    rg_batch b = { .n_rows = ROWS, .n_spans = 2, .spans = spans, .token = token, .index = index, .kv_end = kv_end,
                   .pos = (const int32_t(*)[4])pos, .n_logits = RG_LEN(logits), .logit_rows = logits, .features = features,
                   .feature_cols = 24 };
    rg_state_shape shape = { 0 };
    rg_error err = { 0 };
    rg_pool *pool = rg_pool_new(1, &err);
    rg_step s = { .text = run_text, .model = &t, .batch = &b, .exact = true, .settled = true, .n_threads = 1 };
    rg_lane_options o = { .sizes = { .max_rows = ROWS, .max_cols = MAX_COLS, .n_threads = 1, .max_experts = 64,
                                     .max_experts_used = 8, .max_heads = 8, .max_head_dim = 64, .max_keys = 64 },
                           .pool = pool };
    rg_lane *lane;

    assert_ok(pool, err);
    for (int i = 0; i < ROWS; i++) {
        token[i] = i * 7 % VOCAB;
        index[i] = i < 4 ? i : i - 1;
        kv_end[i] = index[i] + 1;
        pos[i][0] = index[i] * 1000 + i;
    }
    for (int i = 0; i < ROWS * 24; i++)
        features[i] = (float)i / 7.0f;
    t->out = malloc(MOST * sizeof *t->out);
    s.state = t->backend->state_new(t->backend, &shape, &err);
    assert_ok(s.state, err);
    assert_ok(t->backend->measure(t->backend, &s, &o.activation_bytes, &err), err);
    lane = t->backend->open(t->backend, &o, &err);
    assert_ok(lane, err);
    s.reader = lane->reader;
    t->backend->submit(lane, &s);
    t->backend->wait(lane);
    t->backend->close(lane);
    t->backend->state_free(s.state);
    rg_pool_free(pool);
    for (int i = 0; i < WEIGHTS; i++) {
        free((void *)(uintptr_t)t->w[i].vec);
        rg_placed_free((rg_placed *)(uintptr_t)t->w[i].placed_vec);
        t->w[i] = (rg_weight){ 0 };
    }
}

/* Of NaN the sign is the processor's own. */
static bool is_same(float a, float b)
{
    return (isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a);
}

static void same_bits(const char *what, void (*text)(rg_fwd *f, trial *t), int n, int k, bool odd)
{
    rg_error err = { 0 };
    trial ref = { .backend = rg_backend_find("ref", &err), .text = text, .odd = odd, .n = n, .k = k }, gpu = ref;

    assert_ok(ref.backend, err);
    gpu.backend = rg_backend_find("cuda", &err);
    assert_ok(gpu.backend, err);
    compute(&ref);
    compute(&gpu);
    assert_int_equal(ref.n_out, gpu.n_out);
    assert_true(ref.n_out > 0);
    for (size_t i = 0; i < ref.n_out; i++)
        if (!is_same(ref.out[i], gpu.out[i]))
            fail_msg("%s, %d, %d: value %zu is %a and not %a", what, n, k, i, (double)gpu.out[i], (double)ref.out[i]);
    free(ref.out);
    free(gpu.out);
}

/* With usual values and with seldom ones. */
static void both(const char *what, void (*text)(rg_fwd *f, trial *t), int n, int k)
{
    same_bits(what, text, n, k, false);
    same_bits(what, text, n, k, true);
}

/* ---- operations --------------------------------------------------------------------------------------------------- */

static void activate(rg_fwd *f, trial *t)
{
    rg_act *x = input(f, t, t->n), *y = rg_act_new(f, "y", t->n);

    rg_activate(f, y, x, (rg_activation)t->k);
    output(f, t, y);
    rg_act_mul(f, x, y, x, (rg_activation)t->k);
    output(f, t, x);
}

static void elementwise(rg_fwd *f, trial *t)
{
    rg_act *x = input(f, t, t->n), *y = input(f, t, t->n), *few = input(f, t, t->n / t->k);

    rg_add_to(f, y, x);
    output(f, t, y);
    rg_mul_by(f, y, x);
    rg_mul_by(f, y, few);
    output(f, t, y);
    rg_scale_by(f, y, 0.37f);
    rg_scale_columns(f, y, vector(t, 0, 1, t->n / t->k));
    output(f, t, y);
    rg_softcap(f, y, 5.5f);
    output(f, t, y);
}

static void norms(rg_fwd *f, trial *t)
{
    rg_act *x = input(f, t, t->n * t->k), *y = rg_act_new(f, "y", t->n * t->k), *z = input(f, t, t->n * t->k);
    const rg_weight *one = vector(t, 0, 1, t->n), *bias = vector(t, 1, 1, t->n), *all = vector(t, 2, 1, t->n * t->k),
                    *biases = vector(t, 3, 1, t->n * t->k);

    rg_rmsnorm(f, y, x, one, 1e-5f);
    output(f, t, y);
    rg_rmsnorm_plain(f, y, x, t->n, 1e-6f);
    output(f, t, y);
    rg_rmsnorm_runs(f, y, x, all, t->n, 1e-6f);
    output(f, t, y);
    rg_l2norm(f, y, x, t->n, 1e-6f);
    output(f, t, y);
    rg_layernorm(f, y, x, one, bias, 1e-5f);
    output(f, t, y);
    rg_layernorm(f, y, x, one, NULL, 1e-5f);
    output(f, t, y);
    rg_layernorm_plain(f, y, x, t->n, 1e-5f);
    output(f, t, y);
    rg_layernorm_runs(f, y, x, all, biases, t->n, 1e-5f);
    output(f, t, y);
    rg_match_rms(f, z, y, 1e-6f);
    output(f, t, z);
    rg_rmsnorm(f, x, x, one, 1e-5f);
    output(f, t, x);
}

static void of_the_batch(rg_fwd *f, trial *t)
{
    rg_act *y = input(f, t, 24), *x = rg_act_new(f, "features", 24), *few = rg_act_rows(f, "few", 3, 24);

    rg_embed_positions(f, y, vector(t, 0, 8000, 24), t->n);
    output(f, t, y);
    rg_embed_types(f, y, vector(t, 1, 2, 24));
    output(f, t, y);
    rg_embed_types(f, y, vector(t, 2, 1, 24));
    output(f, t, y);
    rg_scale_by_position(f, y, 0.1f, 100 * t->k, t->n);
    output(f, t, y);
    rg_read_features(f, x);
    output(f, t, x);
    rg_gather(f, few, y);
    output(f, t, few);
}

static void rotate(rg_fwd *f, trial *t)
{
    static float slow[2][12];
    static const rg_rope ropes[2] = { { .n_variants = 2, .n_pairs = 12, .inv_freq = slow[0], .factor = 1.0f },
                                      { .n_variants = 2, .n_pairs = 12, .inv_freq = slow[1], .factor = 1.25f } };
    static const rg_rope pairs = { .n_pairs = 12, .inv_freq = slow[0], .factor = 0.9f, .interleaved = true };
    rg_act *x = input(f, t, 3 * t->n);

    for (int i = 0; i < 12; i++) {
        slow[0][i] = powf(10000.0f, (float)-i / 12.0f);
        slow[1][i] = slow[0][i] / 4.0f;
    }
    rg_rotate(f, x, ropes, t->n, t->k);
    output(f, t, x);
    rg_rotate(f, x, &pairs, t->n, t->k);
    output(f, t, x);
    rg_rotate_until(f, x, &pairs, t->n, t->k, 2500);
    output(f, t, x);
}

/* Every score, with and without what changes the choice. */
static void route(rg_fwd *f, trial *t)
{
    static const rg_routing ways[] = {
        { .n_used = 2, .score = RG_SCORE_CHOSEN, .scale = 1.0f },
        { .n_used = 1, .score = RG_SCORE_SOFTMAX, .scale = 1.0f },
        { .n_used = 6, .score = RG_SCORE_SOFTMAX, .renormalize = true, .sum_eps = 1e-20f, .scale = 2.5f },
        { .n_used = 8, .score = RG_SCORE_SIGMOID, .renormalize = true, .scale = 1.0f },
        { .n_used = 4, .score = RG_SCORE_SIGMOID, .n_groups = 4, .n_groups_used = 2, .groups_by_two = true, .scale = 1.0f },
        { .n_used = 2, .score = RG_SCORE_SOFTMAX, .n_groups = 4, .n_groups_used = 1, .scale = 1.0f },
        { .n_used = 2, .score = RG_SCORE_SPARSEMIXER, .jitter = 0.01f, .scale = 1.0f },
    };
    static rg_routing way;
    rg_act *logits = input(f, t, t->n), *y;
    const rg_weight *bias = vector(t, 0, 1, t->n), *scale = vector(t, 1, 1, t->n);

    way = ways[t->k];
    way.n_experts = t->n;
    y = rg_act_new(f, "route", 2 * way.n_used);
    rg_route(f, y, logits, &way, NULL, NULL);
    output(f, t, y);
    if (way.score == RG_SCORE_SPARSEMIXER)
        return;
    rg_route(f, y, logits, &way, bias, scale);
    output(f, t, y);
}

static const int widths[] = { 1, 24, 257, 1024 };

static void activations(void **state)
{
    (void)state;
    for (int a = 0; a < RG_ACTIVATIONS; a++)
        for (size_t i = 0; i < RG_LEN(widths); i++)
            both("activation", activate, widths[i], a);
}

static void small_operations(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(widths); i++) {
        both("elementwise", elementwise, widths[i], widths[i]);
        both("elementwise", elementwise, widths[i], 1);
    }
    both("elementwise", elementwise, 96, 8);
}

static void norms_of_runs(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(widths); i++)
        both("norms", norms, widths[i], 1);
    both("norms", norms, 16, 5);
    both("norms", norms, 40, 7);
}

static void rows_of_the_batch(void **state)
{
    (void)state;
    both("batch", of_the_batch, 0, 1);
    both("batch", of_the_batch, 2, 3);
}

static void rotations(void **state)
{
    (void)state;
    same_bits("rotate", rotate, 24, 0, false);
    same_bits("rotate", rotate, 40, 8, false);
}

static void routes(void **state)
{
    (void)state;
    for (int way = 0; way < 7; way++) {
        same_bits("route", route, 8, way, false);
        same_bits("route", route, 64, way, false);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations),       cmocka_unit_test(small_operations), cmocka_unit_test(norms_of_runs),
        cmocka_unit_test(rows_of_the_batch), cmocka_unit_test(rotations),        cmocka_unit_test(routes),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("cuda operations", tests, NULL, NULL);
}
