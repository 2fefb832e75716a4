/* test_elementwise.c -- norms, activations and products of rows through a real step, against their definitions in double;
 * in place or not, row by row or all at once. */
#include "world.h"

#include "ops/count/count.h"

enum { ROWS = 9 };

static const rg_reader_sizes sizes = { .max_rows = ROWS, .max_cols = 64, .max_heads = 1, .max_head_dim = 32, .max_keys = 64 };

typedef struct job {
    const float *x, *g; /* [n, cols], [n, g_cols] */
    int n, cols, g_cols, run;
    int row; /* of all rows, the one that `define` defines */
    const rg_weight *table;
    const rg_weight *w, *b;
    rg_activation act;
    bool in_place;
    void (*apply)(rg_fwd *f, const struct job *j, rg_act *y, const rg_act *x, const rg_act *g);
    float *y;
} job;

/* A vector of weights: none, one for each column of a run or of the row, or one for each run. */
typedef enum values_of { NONE, OF_RUN, OF_ROW, OF_RUNS } values_of;

/* An operation, and one row of what it gives. */
typedef struct operation {
    const char *name;
    void (*apply)(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g);
    void (*define)(const job *j, const float *x, const float *g, double *y);
    values_of weight, bias;
    bool only_in_place;
} operation;

static void text(rg_fwd *f, void *arg)
{
    const job *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *g = act_of(f, "g", j->g, j->n, j->g_cols);
    rg_act *y = j->in_place ? x : rg_act_new(f, "y", j->cols);

    j->apply(f, j, y, x, g);
    act_out(f, y, j->y);
}

/* Rows [first, first + n). */
static void run_rows(world *w, const job *all, int first, int n)
{
    rg_span span = { .n_rows = n };
    int32_t pos[ROWS][4];
    rg_batch b = { .n_rows = n, .n_spans = 1, .spans = &span, .pos = pos };
    job j = *all;

    for (int i = 0; i < n; i++)
        pos[i][0] = 7 * (first + i);
    j.x += (size_t)first * (size_t)j.cols;
    j.g += (size_t)first * (size_t)j.g_cols;
    j.y += (size_t)first * (size_t)j.cols;
    j.n = n;
    world_step(w, &b, text, &j);
}

/* ---- operations, and what they are ------------------------------------------------------------------------------- */

static void activate(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)g;
    rg_activate(f, y, x, j->act);
}

static void activate_is(const job *j, const float *x, const float *g, double *y)
{
    (void)g;
    for (int i = 0; i < j->cols; i++)
        y[i] = act_of_double(j->act, (double)x[i]);
}

/* The gate of an attention's output. */
static void gate(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    rg_act_mul(f, y, g, x, j->act);
}

static void gate_is(const job *j, const float *x, const float *g, double *y)
{
    for (int i = 0; i < j->cols; i++)
        y[i] = gated_double(j->act, (double)g[i], (double)x[i]);
}

static void mul(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)j;
    (void)x;
    rg_mul_by(f, y, g);
}

static void mul_is(const job *j, const float *x, const float *g, double *y)
{
    for (int i = 0; i < j->cols; i++)
        y[i] = (double)x[i] * (double)g[i / (j->cols / j->g_cols)];
}

static void scale(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)j;
    (void)x;
    (void)g;
    rg_scale_by(f, y, -0.3f);
}

static void scale_is(const job *j, const float *x, const float *g, double *y)
{
    (void)g;
    for (int i = 0; i < j->cols; i++)
        y[i] = (double)x[i] * (double)-0.3f;
}

static void scale_columns(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)x;
    (void)g;
    rg_scale_columns(f, y, j->w);
}

static void scale_columns_is(const job *j, const float *x, const float *g, double *y)
{
    (void)g;
    for (int i = 0; i < j->cols; i++)
        y[i] = (double)x[i] * (double)j->w->vec[i / (j->cols / (int)j->w->cols)];
}

/* Some rows are below the floor. */
static void match_rms(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)j;
    (void)x;
    rg_match_rms(f, y, g, 13.5f);
}

static void match_rms_is(const job *j, const float *x, const float *g, double *y)
{
    double sx = 0, sg = 0;

    for (int i = 0; i < j->cols; i++) {
        sx += (double)x[i] * (double)x[i] / j->cols;
        sg += (double)g[i] * (double)g[i] / j->cols;
    }
    for (int i = 0; i < j->cols; i++)
        y[i] = (double)x[i] * sqrt(sg) / sqrt(fmax(sx, 13.5));
}

static void cut_gate(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)j;
    (void)g;
    rg_cut_gate(f, y, x, 0.7f);
}

static void cut_gate_is(const job *j, const float *x, const float *g, double *y)
{
    double mean = 0, square = 0;

    (void)g;
    for (int i = 0; i < j->cols; i++)
        mean += (double)x[i] / j->cols;
    for (int i = 0; i < j->cols; i++)
        square += ((double)x[i] - mean) * ((double)x[i] - mean) / j->cols;
    for (int i = 0; i < j->cols; i++)
        y[i] = fmax((double)x[i] - mean - (double)0.7f * sqrt(square), 0);
}

/* Position 7 r of row r, offset 2, period 5. */
static void scale_by_position(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)j;
    (void)x;
    (void)g;
    rg_scale_by_position(f, y, 0.1f, 5, 2);
}

static void scale_by_position_is(const job *j, const float *x, const float *g, double *y)
{
    (void)g;
    for (int i = 0; i < j->cols; i++)
        y[i] = (double)x[i] * (1 + 0.1 * log(1 + floor((7 * j->row + 2) / 5.0)));
}

static void embed_positions(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)x;
    (void)g;
    rg_embed_positions(f, y, j->table, 2);
}

static void embed_positions_is(const job *j, const float *x, const float *g, double *y)
{
    (void)g;
    for (int i = 0; i < j->cols; i++)
        y[i] = (double)x[i] + (double)j->table->vec[(7 * j->row + 2) * j->cols + i];
}

static void rmsnorm(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)g;
    if (j->w)
        rg_rmsnorm(f, y, x, j->w, 1e-3f);
    else
        rg_rmsnorm_plain(f, y, x, j->run, 1e-3f);
}

static void layernorm(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)g;
    if (j->w)
        rg_layernorm(f, y, x, j->w, j->b, 1e-3f);
    else
        rg_layernorm_plain(f, y, x, j->run, 1e-3f);
}

static void rmsnorm_runs(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)g;
    rg_rmsnorm_runs(f, y, x, j->w, j->run, 1e-3f);
}

static void layernorm_runs(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)g;
    rg_layernorm_runs(f, y, x, j->w, j->b, j->run, 1e-3f);
}

static void l2norm(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    (void)g;
    rg_l2norm(f, y, x, j->run, 1e-3f);
}

static void l2norm_is(const job *j, const float *x, const float *g, double *y)
{
    (void)g;
    for (int first = 0; first < j->cols; first += j->run) {
        double square = 0;

        for (int i = 0; i < j->run; i++)
            square += (double)x[first + i] * (double)x[first + i];
        for (int i = 0; i < j->run; i++)
            y[first + i] = (double)x[first + i] / sqrt(square + 1e-3);
    }
}

/* A weight for each column if the weight is as wide as the row, else one for each place in a run. */
static double value_at(const rg_weight *w, int first, int i)
{
    return (double)w->vec[(first + i) % w->cols];
}

static void norm_is(const job *j, const float *x, bool centred, double *y)
{
    for (int first = 0; first < j->cols; first += j->run) {
        double mean = 0, square = 0;

        for (int i = 0; i < j->run; i++)
            mean += centred ? (double)x[first + i] / j->run : 0;
        for (int i = 0; i < j->run; i++)
            square += ((double)x[first + i] - mean) * ((double)x[first + i] - mean) / j->run;
        for (int i = 0; i < j->run; i++)
            y[first + i] = ((double)x[first + i] - mean) / sqrt(square + 1e-3) * (j->w ? value_at(j->w, first, i) : 1) +
                           (j->b ? value_at(j->b, first, i) : 0);
    }
}

static void rmsnorm_is(const job *j, const float *x, const float *g, double *y)
{
    (void)g;
    norm_is(j, x, false, y);
}

static void layernorm_is(const job *j, const float *x, const float *g, double *y)
{
    (void)g;
    norm_is(j, x, true, y);
}

/* Bounds that matter; without a rate per run, one for all. */
static rg_decay_params decay_params(const job *j)
{
    return (rg_decay_params){ .bias = j->b, .act = RG_SOFTPLUS, .min = 0.5f, .max = j->b ? 3.0f : 0.0f, .rate = j->w,
                              .fixed_rate = -0.4f };
}

static void decay(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    const rg_decay_params p = decay_params(j);

    (void)g;
    rg_decay(f, y, NULL, x, &p);
}

/* The product of both outputs. */
static void decay_and_dt(rg_fwd *f, const job *j, rg_act *y, const rg_act *x, const rg_act *g)
{
    const rg_decay_params p = decay_params(j);
    rg_act *dt = rg_act_new(f, "dt", j->cols), *out = rg_act_new(f, "decay", j->cols);

    (void)g;
    rg_decay(f, out, dt, x, &p);
    rg_act_mul(f, y, dt, out, RG_IDENTITY);
}

static void decay_is(const job *j, const float *x, const float *g, double *y)
{
    const rg_decay_params p = decay_params(j);

    (void)g;
    for (int i = 0; i < j->cols; i++) {
        double dt = act_of_double(p.act, (double)x[i] + (p.bias ? value_at(p.bias, 0, i) : 0));

        dt = p.max > 0 ? fmax((double)p.min, fmin(dt, (double)p.max)) : dt;
        y[i] = exp(dt * (double)(p.rate ? p.rate->vec[i / (j->cols / (int)p.rate->cols)] : p.fixed_rate)) *
               (j->apply == decay_and_dt ? dt : 1);
    }
}

static const operation operations[] = {
    { .name = "activate", .apply = activate, .define = activate_is },
    { .name = "gate", .apply = gate, .define = gate_is },
    { .name = "mul", .apply = mul, .define = mul_is, .only_in_place = true },
    { .name = "scale", .apply = scale, .define = scale_is, .only_in_place = true },
    { .name = "scale columns", .apply = scale_columns, .define = scale_columns_is, .weight = OF_RUNS, .only_in_place = true },
    { .name = "match rms", .apply = match_rms, .define = match_rms_is, .only_in_place = true },
    { .name = "cut gate", .apply = cut_gate, .define = cut_gate_is },
    { .name = "scale by position", .apply = scale_by_position, .define = scale_by_position_is, .only_in_place = true },
    { .name = "embed positions", .apply = embed_positions, .define = embed_positions_is, .only_in_place = true },
    { .name = "rmsnorm", .apply = rmsnorm, .define = rmsnorm_is, .weight = OF_RUN },
    { .name = "rmsnorm_plain", .apply = rmsnorm, .define = rmsnorm_is },
    { .name = "rmsnorm_runs", .apply = rmsnorm_runs, .define = rmsnorm_is, .weight = OF_ROW },
    { .name = "l2norm", .apply = l2norm, .define = l2norm_is },
    { .name = "layernorm", .apply = layernorm, .define = layernorm_is, .weight = OF_RUN },
    { .name = "layernorm and bias", .apply = layernorm, .define = layernorm_is, .weight = OF_RUN, .bias = OF_RUN },
    { .name = "layernorm_plain", .apply = layernorm, .define = layernorm_is },
    { .name = "layernorm_runs", .apply = layernorm_runs, .define = layernorm_is, .weight = OF_ROW, .bias = OF_ROW },
    { .name = "decay", .apply = decay, .define = decay_is, .weight = OF_RUNS, .bias = OF_ROW },
    { .name = "decay, one rate", .apply = decay, .define = decay_is },
    { .name = "decay and dt", .apply = decay_and_dt, .define = decay_is, .weight = OF_RUNS },
};

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* Columns, and how many runs or values of a gate they have: heads, a row, each column; rows longer than one piece. */
static const struct {
    int cols, n_runs;
} shapes[] = { { 96, 6 }, { 37, 1 }, { 40, 40 }, { 5000, 1 }, { 6000, 4 }, { 4500, 4500 } };

static void check_operation(world *u, const operation *o, int shape, rg_activation act, rg_rng *rng)
{
    const int cols = shapes[shape].cols, n_runs = shapes[shape].n_runs, run = cols / n_runs;
    const size_t n = (size_t)(ROWS * cols);
    const bool wide_gate = o->apply == gate || o->apply == match_rms;
    float *x = random_floats(rng, n, 2), *g = random_floats(rng, n, 2), *y = rg_array(n, sizeof *y);
    float *alone = rg_array(n, sizeof *alone), *w = random_floats(rng, (size_t)cols, 1);
    float *b = random_floats(rng, (size_t)cols, 1), *p = random_floats(rng, o->apply == embed_positions ? n * 7 : 1, 1);
    double *want = rg_array((size_t)cols, sizeof *want);
    const int values[] = { [OF_RUN] = run, [OF_ROW] = cols, [OF_RUNS] = n_runs };
    rg_weight weight = vector(w, values[o->weight]), bias = vector(b, values[o->bias]);
    rg_weight table = { .name = "positions", .n_mats = 1, .rows = 7 * ROWS, .cols = cols, .vec = p };
    job j = { .x = x, .g = g, .cols = cols, .g_cols = wide_gate ? cols : n_runs, .run = run, .act = act,
              .table = &table, .w = o->weight ? &weight : NULL, .b = o->bias ? &bias : NULL,
              .apply = o->apply, .y = y };

    for (size_t i = 0; i < n; i++)
        x[i] += 3.0f; /* a mean that matters */
    for (int in_place = o->only_in_place; in_place < 2; in_place++) {
        j.in_place = in_place;
        j.y = y;
        run_rows(u, &j, 0, ROWS);
        for (int r = 0; r < ROWS; r++) {
            j.row = r;
            o->define(&j, x + r * cols, g + r * j.g_cols, want);
            assert_near(y + r * cols, want, (size_t)cols, 2e-5);
        }
        j.y = alone;
        for (int r = 0; r < ROWS; r++)
            run_rows(u, &j, r, 1);
        assert_memory_equal(y, alone, n * sizeof *y);
    }
    rg_free(x);
    rg_free(g);
    rg_free(y);
    rg_free(alone);
    rg_free(w);
    rg_free(b);
    rg_free(p);
    rg_free(want);
}

static void operations_are_their_definitions(void **state)
{
    (void)state;
    for (int isa = 0; world_cpu(isa); isa++) {
        rg_rng rng = { .seed = test_seed };
        world u;

        world_init(&u, world_cpu(isa), 2, &sizes);
        for (size_t i = 0; i < RG_LEN(operations); i++)
            for (int shape = 0; shape < (int)RG_LEN(shapes); shape++) {
                const bool acts = operations[i].apply == activate || operations[i].apply == gate;

                for (rg_activation act = 0; act < (acts ? RG_ACTIVATIONS : 1); act++)
                    if (!acts || shape < 3 || (int)act % 3 == shape % 3 || test_all()) /* each on a long row too */
                        check_operation(&u, &operations[i], shape, act, &rng);
            }
        world_fini(&u);
    }
}

static void mix(rg_fwd *f, void *arg)
{
    const job *j = arg;
    const rg_act *x = act_of(f, "x", j->x, j->n, 4 * j->run), *m = act_of(f, "m", j->g, j->n, 12);
    rg_act *y = rg_act_new(f, "y", 3 * j->run);

    rg_mix(f, y, x, m, j->run);
    act_out(f, y, j->y);
}

/* Four runs into three, by a matrix for each row. */
static void runs_are_mixed(void **state)
{
    static const int runs[] = { 1, 17, 64 };
    rg_rng rng = { .seed = test_seed };

    (void)state;
    for (size_t k = 0; k < RG_LEN(runs); k++) {
        const int n = runs[k];
        rg_span span = { .n_rows = ROWS };
        float *x = random_floats(&rng, (size_t)(ROWS * 4 * n), 2), *m = random_floats(&rng, ROWS * 12, 2), y[ROWS * 3 * 64];
        double want[3 * 64];
        world u;

        world_init(&u, rg_cpu_nth(0), 2, &sizes);
        world_step(&u, &(rg_batch){ .n_rows = ROWS, .n_spans = 1, .spans = &span }, mix,
                   &(job){ .x = x, .g = m, .n = ROWS, .run = n, .y = y });
        for (int r = 0; r < ROWS; r++) {
            for (int i = 0; i < 3 * n; i++) {
                want[i] = 0;
                for (int j = 0; j < 4; j++)
                    want[i] += (double)m[r * 12 + i / n * 4 + j] * (double)x[(r * 4 + j) * n + i % n];
            }
            assert_near(y + r * 3 * n, want, (size_t)(3 * n), 2e-5);
        }
        world_fini(&u);
        rg_free(x);
        rg_free(m);
    }
}

static void map(rg_fwd *f, void *arg)
{
    const job *j = arg;
    rg_act *y = rg_act_new(f, "y", j->cols / j->run * rg_taylor_cols(j->run));

    rg_taylor(f, y, act_of(f, "x", j->x, j->n, j->cols), j->run);
    act_out(f, y, j->y);
}

/* phi(q) . phi(k) = 1 + s + s^2 / 2 of every two rows, run by run; the same bits on every instruction set. */
static void products_of_maps_are_a_series(void **state)
{
    enum { RUN = 17, RUNS = 3, COLS = RUN * RUNS, MAPPED = 1 + RUN + RUN * (RUN + 1) / 2 };
    static float y[ROWS * RUNS * MAPPED], first[ROWS * RUNS * MAPPED];
    rg_rng rng = { .seed = test_seed };
    rg_span span = { .n_rows = ROWS };
    float *x = random_floats(&rng, ROWS * COLS, 1);

    (void)state;
    for (int isa = 0; world_cpu(isa); isa++) {
        world u;

        world_init(&u, world_cpu(isa), 2, &sizes);
        world_step(&u, &(rg_batch){ .n_rows = ROWS, .n_spans = 1, .spans = &span }, map,
                   &(job){ .x = x, .n = ROWS, .cols = COLS, .run = RUN, .y = isa ? y : first });
        world_fini(&u);
        assert_true(!isa || !memcmp(y, first, sizeof y));
    }
    for (int r = 1; r < ROWS; r++)
        for (int h = 0; h < RUNS; h++) {
            double product = 0, s = 0;

            for (int i = 0; i < MAPPED; i++)
                product += (double)first[(r * RUNS + h) * MAPPED + i] * (double)first[h * MAPPED + i];
            for (int i = 0; i < RUN; i++)
                s += (double)x[r * COLS + h * RUN + i] * (double)x[h * RUN + i] / sqrt((double)RUN);
            assert_true(fabs(product - (1 + s + s * s / 2)) < 1e-5 * (1 + s * s));
        }
    rg_free(x);
}

static void types_and_means(rg_fwd *f, void *arg)
{
    const job *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *y = rg_act_rows(f, "y", 2, j->cols);

    rg_embed_types(f, x, j->table);
    act_out(f, x, j->y);
    rg_mean_rows(f, y, x);
    act_out(f, y, j->y + j->n * j->cols);
}

/* Two texts: three rows of one alone, then six of a pair whose second begins at position 4; means of the first text and
 * of two rows of the other. */
static void texts_have_types_and_means(void **state)
{
    enum { COLS = 80 };
    static const rg_rows runs[] = { { 0, 3 }, { 5, 2 } };
    static const int32_t index[] = { 0, 1, 2, 0, 1, 2, 3, 4, 5 };
    const rg_span spans[] = { { .n_rows = 3 }, { .first_row = 3, .n_rows = 6, .second = 4 } };
    rg_rng rng = { .seed = test_seed };
    float *x = random_floats(&rng, ROWS * COLS, 2), *w = random_floats(&rng, 2 * COLS, 2), y[(ROWS + 2) * COLS];

    (void)state;
    for (int n_types = 1; n_types <= 2; n_types++) {
        rg_weight table = { .name = "types", .n_mats = 1, .rows = n_types, .cols = COLS, .vec = w };
        world u;

        world_init(&u, rg_cpu_nth(0), 2, &sizes);
        world_step(&u, &(rg_batch){ .n_rows = ROWS, .n_spans = 2, .spans = spans, .index = index, .n_scores = 2, .scores = runs },
                   types_and_means, &(job){ .x = x, .n = ROWS, .cols = COLS, .table = &table, .y = y });
        for (int i = 0; i < ROWS * COLS; i++)
            assert_true(y[i] == x[i] + w[(i / COLS >= 7 && n_types > 1) * COLS + i % COLS]);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < COLS; i++) {
                double sum = 0;

                for (int r = 0; r < runs[k].n; r++)
                    sum += (double)y[(runs[k].first + r) * COLS + i];
                assert_true(y[(ROWS + k) * COLS + i] == (float)(sum / runs[k].n));
            }
        world_fini(&u);
    }
    rg_free(x);
    rg_free(w);
}

typedef struct typed {
    const job *j;
    const rg_weight *factors[2];
} typed;

static void scaled_and_kept(rg_fwd *f, void *arg)
{
    const typed *t = arg;
    const job *j = t->j;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols);

    rg_scale_by_type(f, x, t->factors[0], t->factors[1]);
    act_out(f, x, j->y);
    rg_keep_type(f, x, 1);
    act_out(f, x, j->y + j->n * j->cols);
}

/* The same two texts: rows of each type have a factor of their own, or are left alone. */
static void rows_are_scaled_and_kept_by_type(void **state)
{
    enum { COLS = 80 };
    static const int32_t index[] = { 0, 1, 2, 0, 1, 2, 3, 4, 5 };
    const rg_span spans[] = { { .n_rows = 3 }, { .first_row = 3, .n_rows = 6, .second = 4 } };
    static const float two = 2, third = 1 / 3.0f;
    const rg_weight factors[] = { vector(&two, 1), vector(&third, 1) };
    rg_rng rng = { .seed = test_seed };
    float *x = random_floats(&rng, ROWS * COLS, 2), y[2 * ROWS * COLS];
    world u;

    (void)state;
    x[0] = INFINITY; /* nothing of it is left where it is not kept */
    world_init(&u, rg_cpu_nth(0), 2, &sizes);
    world_step(&u, &(rg_batch){ .n_rows = ROWS, .n_spans = 2, .spans = spans, .index = index }, scaled_and_kept,
               &(typed){ &(job){ .x = x, .n = ROWS, .cols = COLS, .y = y }, { &factors[0], &factors[1] } });
    for (int i = 0; i < ROWS * COLS; i++) {
        const bool second = i / COLS >= 7;

        assert_true(y[i] == x[i] * (second ? third : two));
        assert_true(y[ROWS * COLS + i] == (second ? y[i] : 0));
    }
    world_fini(&u);
    rg_free(x);
}

static void softened(rg_fwd *f, void *arg)
{
    const job *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *y = rg_act_rows(f, "y", j->n, j->cols);

    rg_soften(f, y, x);
    act_out(f, y, j->y);
}

/* softmax(x / temperature) in double, each row with a temperature of its own; the same bits on every instruction set. */
static void rows_are_softened(void **state)
{
    enum { COLS = 333 };
    const rg_span span = { .n_rows = ROWS };
    rg_rng rng = { .seed = test_seed };
    float *x = random_floats(&rng, ROWS * COLS, 9), t[ROWS];
    static float y[ROWS * COLS], first[ROWS * COLS];

    (void)state;
    for (int r = 0; r < ROWS; r++)
        t[r] = 0.05f + 0.25f * (float)r;
    for (int isa = 0; world_cpu(isa); isa++) {
        world u;

        world_init(&u, world_cpu(isa), 2, &sizes);
        world_step(&u, &(rg_batch){ .n_rows = ROWS, .n_spans = 1, .spans = &span, .n_logits = ROWS, .temperatures = t }, softened,
                   &(job){ .x = x, .n = ROWS, .cols = COLS, .y = isa ? y : first });
        world_fini(&u);
        assert_true(!isa || !memcmp(y, first, sizeof y));
    }
    for (int r = 0; r < ROWS; r++) {
        double sum = 0, most = -INFINITY;

        for (int i = 0; i < COLS; i++)
            most = fmax(most, (double)x[r * COLS + i]);
        for (int i = 0; i < COLS; i++)
            sum += exp(((double)x[r * COLS + i] - most) / (double)t[r]);
        for (int i = 0; i < COLS; i++) {
            const double want = exp(((double)x[r * COLS + i] - most) / (double)t[r]) / sum;

            assert_true(fabs((double)first[r * COLS + i] - want) < 1e-7 + 2e-5 * want);
        }
    }
    rg_free(x);
}

/* A constant row far from 0: its variance is 0, which a sum of squares less a square of the mean would not be. */
static void layernorm_of_a_constant_is_its_bias(void **state)
{
    float x[ROWS * 48], y[ROWS * 48], ones[48], bias[48];
    const rg_weight w = vector(ones, 48), b = vector(bias, 48);
    job j = { .x = x, .g = x, .cols = 48, .g_cols = 48, .w = &w, .b = &b, .apply = layernorm, .y = y };
    world u;

    (void)state;
    for (int i = 0; i < ROWS * 48; i++)
        x[i] = 12345.0f;
    for (int i = 0; i < 48; i++) {
        ones[i] = 1.0f;
        bias[i] = (float)i;
    }
    world_init(&u, rg_cpu_nth(0), 1, &sizes);
    run_rows(&u, &j, 0, ROWS);
    for (int i = 0; i < ROWS * 48; i++)
        assert_true(y[i] == bias[i % 48]);
    world_fini(&u);
}

static void counted_text(rg_fwd *f, const rg_weight *w, const rg_weight *b, const rg_weight *row)
{
    rg_act *x = rg_act_new(f, "x", 60), *g = rg_act_new(f, "g", 5);

    rg_layernorm(f, x, x, w, b, 1e-5f);
    rg_layernorm(f, x, x, w, NULL, 1e-5f);
    rg_layernorm_plain(f, x, x, 12, 1e-5f);
    rg_rmsnorm(f, x, x, w, 1e-5f);
    rg_rmsnorm_plain(f, x, x, 12, 1e-5f);
    rg_rmsnorm_runs(f, x, x, row, 12, 1e-5f);
    rg_l2norm(f, x, x, 12, 1e-5f);
    rg_activate(f, g, g, RG_SIGMOID);
    rg_mul_by(f, x, g);
    rg_scale_by(f, x, 0.5f);
    rg_scale_by_position(f, x, 0.1f, 8192, 0);
    rg_scale_columns(f, x, w);
    rg_match_rms(f, x, x, 1e-5f);
    rg_cut_gate(f, x, x, 1.0f);
    rg_embed_positions(f, x, &(rg_weight){ .n_mats = 1, .rows = 9, .cols = 60 }, 2);
}

/* Bytes of weights and values made, by name. */
static void each_is_counted(void **state)
{
    static const struct {
        const char *name;
        int cols, weight_values;
    } want[] = { { "layernorm", 60, 24 }, { "layernorm", 60, 12 }, { "layernorm", 60, 0 }, { "rmsnorm", 60, 12 },
                 { "rmsnorm", 60, 0 },    { "rmsnorm", 60, 60 },   { "l2norm", 60, 0 },    { "activate", 5, 0 },
                 { "mul", 60, 0 },        { "scale", 60, 0 },       { "scale_by_position", 60, 0 },
                 { "scale_columns", 60, 12 }, { "match_rms", 60, 0 }, { "cut_gate", 60, 0 },
                 { "embed_positions", 60, 7 * 60 } };
    rg_span span = { .n_rows = 7 };
    rg_batch batch = { .n_rows = 7, .n_spans = 1, .spans = &span };
    rg_counted list[RG_LEN(want) + 1];
    const rg_weight w = { .name = "w", .n_mats = 1, .rows = 1, .cols = 12 }, b = w;
    const rg_weight row = { .name = "row", .n_mats = 1, .rows = 1, .cols = 60 };
    rg_counter counter;
    rg_fwd f;

    (void)state;
    rg_counter_init(&counter, list, (int)RG_LEN(list));
    rg_count_fwd(&f, &counter, &batch);
    counted_text(&f, &w, &b, &row);
    assert_int_equal(counter.n_ops, RG_LEN(want));
    for (size_t i = 0; i < RG_LEN(want); i++) {
        assert_string_equal(rg_op_name(list[i].kind), want[i].name);
        assert_true(list[i].cells == 7.0 * want[i].cols);
        assert_true(list[i].count.weight_bytes == 4.0 * want[i].weight_values);
        assert_true(list[i].count.ops == 0 && list[i].count.state_bytes == 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_their_definitions),
        cmocka_unit_test(runs_are_mixed),
        cmocka_unit_test(products_of_maps_are_a_series),
        cmocka_unit_test(texts_have_types_and_means),
        cmocka_unit_test(rows_are_scaled_and_kept_by_type),
        cmocka_unit_test(rows_are_softened),
        cmocka_unit_test(layernorm_of_a_constant_is_its_bias),
        cmocka_unit_test(each_is_counted),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("elementwise", tests, NULL, NULL);
}
