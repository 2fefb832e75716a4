/* test_outliers.c -- LLM.int8(): rows one at a time against bitsandbytes, and the same bits whatever their company. */
#include "world.h"

#include <stdio.h>

#include "ckpt/checkpoint.h"

static const char *const names[] = { "few", "many", "none", "one_row" };

/* A tensor of one of the files, as f32. */
static float *tensor(const rg_checkpoint *c, const char *name, const char *end, int *rows, int *cols)
{
    char whole[64];
    rg_error err = { 0 };

    snprintf(whole, sizeof whole, "%s.%s", name, end);
    const rg_tensor *t = rg_checkpoint_find(c, whole);
    if (!t)
        fail_msg("no %s", whole);
    const size_t n = (size_t)rg_tensor_count(t);
    void *raw = malloc(t->bytes + 1);
    float *to = malloc((n + 1) * sizeof *to);
    assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
    if (t->type == RG_I32 || t->type == RG_I8)
        for (size_t i = 0; i < n; i++)
            to[i] = (float)(t->type == RG_I8 ? ((int8_t *)raw)[i] : ((int32_t *)raw)[i]);
    else
        rg_format_of(t->type)->decode(raw, (int64_t)n, to);
    free(raw);
    *rows = n ? (int)rg_tensor_rows(t) : 0;
    *cols = n ? (int)rg_tensor_cols(t) : 0;
    return to;
}

/* One case of the golden: a matrix as the reader of checkpoints makes it, and what bitsandbytes computed. */
typedef struct golden {
    float *x, *q, *scale, *out, *outlier;
    int n, cols, rows, n_outliers;
    rg_packed packed;
    rg_weight w;
} golden;

static void read_golden(golden *g, const char *name)
{
    rg_error err = { 0 };
    rg_checkpoint *weights = rg_checkpoint_open(test_data("shrink/int8/cases.safetensors"), RG_CKPT_DEFAULT, &err);
    rg_checkpoint *rows = rg_checkpoint_open(test_data("shrink/int8/rows.safetensors"), RG_CKPT_DEFAULT, &err);
    int one, n;
    uint8_t block[37];

    assert_ok(weights && rows, err);
    float *codes = tensor(weights, name, "codes", &g->rows, &g->cols), *most = tensor(weights, name, "row_most", &one, &n);
    g->x = tensor(rows, name, "X", &g->n, &n);
    g->q = tensor(rows, name, "q", &g->n, &n);
    g->scale = tensor(rows, name, "row_scale", &one, &n);
    g->outlier = tensor(rows, name, "outliers", &one, &g->n_outliers);
    g->out = tensor(rows, name, "out", &g->n, &n);
    assert_ok(rg_packed_init(&g->packed, RG_ZP8, 1, g->rows, g->cols, &err), err);
    for (int i = 0; i < g->rows; i++) {
        uint8_t row[37 * 8];
        for (int k = 0; k < g->cols; k += 32) {
            const float d = most[i] / 127.0f;
            memcpy(block, &d, sizeof d);
            block[4] = 128;
            for (int j = 0; j < 32; j++)
                block[5 + j] = (uint8_t)((int)codes[i * g->cols + k + j] + 128);
            memcpy(row + k / 32 * 37, block, sizeof block);
        }
        rg_pack_row(&g->packed, 0, i, row);
    }
    g->w = (rg_weight){ .name = "w", .type = RG_ZP8, .n_mats = 1, .rows = g->rows, .cols = g->cols, .placed = &g->packed.placed };
    free(codes);
    free(most);
    rg_checkpoint_close(weights);
    rg_checkpoint_close(rows);
}

static void free_golden(golden *g)
{
    free(g->x);
    free(g->q);
    free(g->scale);
    free(g->out);
    free(g->outlier);
    rg_packed_fini(&g->packed);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct work {
    const float *x;
    int n, cols;
    const rg_weight *w;
    float *y;
} work;

static void text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *y = rg_act_rows(f, "y", j->n, (int)j->w->rows);

    rg_linear(f, y, x, j->w, NULL);
    act_out(f, y, j->y);
}

static void multiply(world *u, const rg_weight *w, const float *x, int n, float *y)
{
    rg_span span = { .n_rows = n, .adapter = -1 };
    rg_batch b = { .n_rows = n, .n_spans = 1, .spans = &span };

    world_step(u, &b, text, &(work){ x, n, (int)w->cols, w, y });
}

/* The definition in double: codes of values within the threshold, the others by dequantized weights. */
static void by_definition(const rg_weight *w, const float *x, double *y)
{
    float *row = malloc((size_t)w->cols * sizeof *row);
    float most = 0;

    for (int k = 0; k < w->cols; k++)
        most = fabsf(x[k]) < RG_OUTLIER ? fmaxf(most, fabsf(x[k])) : most;
    for (int i = 0; i < w->rows; i++) {
        y[i] = 0;
        rg_unpack_row(rg_packed_of(w->placed), 0, i, row);
        for (int k = 0; k < w->cols; k++) {
            const bool outlier = fabsf(x[k]) >= RG_OUTLIER;
            const double q = most > 0 && !outlier ? (double)rintf(x[k] * (127.0f / most)) * (double)(most / 127.0f) : 0;
            y[i] += (double)row[k] * (outlier ? (double)x[k] : q);
        }
    }
    free(row);
}

static int own_outliers(const golden *g, int r)
{
    int n = 0, known = 0;

    for (int k = 0; k < g->cols; k++)
        if (fabsf(g->x[r * g->cols + k]) >= RG_OUTLIER) {
            n++;
            for (int i = 0; i < g->n_outliers; i++)
                known += (int)g->outlier[i] == k;
        }
    assert_int_equal(n, known);
    return n;
}

/* Codes of a row, where its outliers are those of bitsandbytes' batch. */
static void check_codes(const rg_cpu *cpu, const golden *g, int r)
{
    rg_xblock q[8];
    uint32_t bits[8];

    cpu->quantize_row(g->x + r * g->cols, g->cols, q, bits);
    assert_true(fabsf(q[0].d * 127.0f - g->scale[r]) <= 1e-6f * g->scale[r]);
    for (int k = 0; k < g->cols; k++)
        assert_true(fabsf((float)q[k / 32].q[k % 32] - g->q[r * g->cols + k]) <= 0 && q[k / 32].d == q[0].d);
}

/* What bitsandbytes multiplies the sums by is 2e-5 too large. */
static void rows_are_those_of_bitsandbytes(void **state)
{
    int n_same = 0, n_rows = 0;

    (void)state;
    for (size_t c = 0; c < RG_LEN(names); c++) {
        golden g;
        double want[64];
        float got[64], *all;

        read_golden(&g, names[c]);
        all = malloc((size_t)(g.n * g.rows) * sizeof *all);
        for (int isa = 0; world_cpu(isa); isa++) {
            const rg_reader_sizes sizes = { .max_rows = 16, .max_cols = 96, .max_keys = 1, .max_heads = 1 };
            world u;

            world_init(&u, world_cpu(isa), 2, &sizes);
            u.llm_int8 = true;
            multiply(&u, &g.w, g.x, g.n, all);
            for (int r = 0; r < g.n; r++) {
                const bool same = own_outliers(&g, r) == g.n_outliers;
                float most = 0;

                multiply(&u, &g.w, g.x + r * g.cols, 1, got);
                assert_memory_equal(got, all + r * g.rows, (size_t)g.rows * sizeof *got);
                by_definition(&g.w, g.x + r * g.cols, want);
                for (int i = 0; i < g.rows; i++)
                    most = fmaxf(most, fabsf(g.out[r * g.rows + i]));
                for (int i = 0; i < g.rows; i++) {
                    assert_true(fabs((double)got[i] - want[i]) < 1e-6 * (double)most);
                    assert_true(!same || fabsf(got[i] - g.out[r * g.rows + i]) < 5e-5f * most);
                }
                if (same)
                    check_codes(world_cpu(isa), &g, r);
                n_same += same;
                n_rows++;
            }
            world_fini(&u);
        }
        free(all);
        free_golden(&g);
    }
    print_message("    %d of %d rows have the outliers of their batch\n", n_same, n_rows);
    assert_true(n_same >= 9 * n_rows / 37); /* all of `none`, and `one_row` */
}

/* ---- their company ----------------------------------------------------------------------------------------------- */

/* Rows with outliers of their own in more columns than are gathered at once, and more rows. */
static void a_row_does_not_depend_on_others(void **state)
{
    enum { N = 70, COLS = 1280, ROWS = 40 };
    static const rg_type types[] = { RG_Q8_0, RG_Q4_K, RG_ZP8_128, RG_IQ4_NL };
    static float y[N * ROWS], one[ROWS];
    const rg_reader_sizes sizes = { .max_rows = N, .max_cols = COLS, .max_keys = 1, .max_heads = 1 };

    (void)state;
    for (int isa = 0; world_cpu(isa); isa++)
        for (size_t t = 0; t < RG_LEN(types); t++) {
            rg_rng rng = { .seed = test_seed + t };
            rg_packed packed;
            float *dense, *x = random_floats(&rng, N * COLS, 1);
            rg_weight w = random_weight(&rng, &packed, types[t], (int[]){ 1, ROWS, COLS }, &dense);
            double want[ROWS];
            world u;

            for (int i = 0; i < N * COLS; i++)
                x[i] *= rg_rng_below(&rng, 64) ? 1.0f : 20.0f;
            world_init(&u, world_cpu(isa), 2, &sizes);
            u.llm_int8 = true;
            multiply(&u, &w, x, N, y);
            for (int r = 0; r < N; r += isa ? 1 : 9) {
                multiply(&u, &w, x + r * COLS, 1, one);
                assert_memory_equal(one, y + r * ROWS, sizeof one);
                by_definition(&w, x + r * COLS, want);
                if (types[t] != RG_IQ4_NL) /* a table, rounded */
                    assert_near(one, want, ROWS, 1e-4);
            }
            world_fini(&u);
            rg_packed_fini(&packed);
            rg_free(dense);
            rg_free(x);
        }
}

static void text_heads(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, 1, j->cols), *y = rg_act_rows(f, "y", 1, (int)(j->w->n_mats * j->w->rows));

    rg_linear_heads(f, y, x, j->w, (int)j->w->cols);
    act_out(f, y, j->y);
}

/* Heads read parts of one row, which has one scale, and more outliers than a few. */
static void heads_meet_their_own(void **state)
{
    enum { HEADS = 3, COLS = 64, ROWS = 20, ALL = HEADS * COLS };
    const rg_reader_sizes sizes = { .max_rows = 1, .max_cols = ALL, .max_keys = 1, .max_heads = 1 };
    const int most_of[] = { 1, 6, ALL }; /* outliers */
    rg_rng rng = { .seed = test_seed };
    rg_packed packed;
    float *dense, *x = random_floats(&rng, ALL, 1), y[HEADS * ROWS], most = 0;
    rg_weight w = random_weight(&rng, &packed, RG_Q8_0, (int[]){ HEADS, ROWS, COLS }, &dense);

    (void)state;
    for (size_t c = 0; c < RG_LEN(most_of); c++) {
        for (int i = 0; i < most_of[c]; i++)
            x[i * 89 % ALL] = 8.0f + (float)i;
        most = 0;
        for (int k = 0; k < ALL; k++)
            most = fabsf(x[k]) < RG_OUTLIER ? fmaxf(most, fabsf(x[k])) : most;
        for (int isa = 0; world_cpu(isa); isa++) {
            rg_span span = { .n_rows = 1, .adapter = -1 };
            rg_batch b = { .n_rows = 1, .n_spans = 1, .spans = &span };
            world u;

            world_init(&u, world_cpu(isa), 1, &sizes);
            u.llm_int8 = true;
            world_step(&u, &b, text_heads, &(work){ x, 1, ALL, &w, y });
            for (int i = 0; i < HEADS * ROWS; i++) {
                double want = 0, size = 0;
                for (int k = 0; k < COLS; k++) {
                    const float v = x[i / ROWS * COLS + k], unit = most / 127.0f;
                    const double rounded = fabsf(v) >= RG_OUTLIER ? v : most > 0 ? rintf(v / unit) * unit : 0;
                    want += (double)dense[i * COLS + k] * rounded;
                    size += fabs((double)dense[i * COLS + k] * rounded);
                }
                assert_true(fabs((double)y[i] - want) <= 1e-5 * size);
            }
            world_fini(&u);
        }
    }
    rg_packed_fini(&packed);
    rg_free(dense);
    rg_free(x);
}

/* A NaN shows; an infinity is an outlier. */
static void what_is_no_number_shows(void **state)
{
    static float x[2 * 64], y[2 * 16];
    const rg_reader_sizes sizes = { .max_rows = 2, .max_cols = 64, .max_keys = 1, .max_heads = 1 };
    rg_rng rng = { .seed = test_seed };
    rg_packed packed;
    float *dense;
    rg_weight w = random_weight(&rng, &packed, RG_Q8_0, (int[]){ 1, 16, 64 }, &dense);

    (void)state;
    for (int isa = 0; world_cpu(isa); isa++) {
        world u;

        for (int k = 0; k < 128; k++)
            x[k] = 0.01f * (float)(k % 64);
        x[5] = NAN;
        x[64 + 40] = INFINITY;
        world_init(&u, world_cpu(isa), 1, &sizes);
        u.llm_int8 = true;
        multiply(&u, &w, x, 2, y);
        for (int i = 0; i < 16; i++) {
            assert_true(isnan(y[i]));
            assert_true(dense[i * 64 + 40] == 0 || isinf(y[16 + i]));
        }
        world_fini(&u);
    }
    rg_packed_fini(&packed);
    rg_free(dense);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_those_of_bitsandbytes),
        cmocka_unit_test(a_row_does_not_depend_on_others),
        cmocka_unit_test(heads_meet_their_own),
        cmocka_unit_test(what_is_no_number_shows),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
