/* test_ops.c -- products, experts and the small operations through a real step, against plain double arithmetic, and
 * against themselves row by row. */
#include "world.h"

enum { ROWS = 21, COLS = 256 };

static const rg_reader_sizes sizes = { .max_rows = 160,
                                    .max_cols = 320,
                                    .max_experts = 12,
                                    .max_experts_used = 4,
                                    .max_heads = 8,
                                    .max_head_dim = 64,
                                    .max_keys = 64 };

static const rg_type types[] = { RG_F32, RG_BF16, RG_Q4_0, RG_Q5_1, RG_Q4_K, RG_Q6_K, RG_FP8 };

static const rg_cpu *best_cpu(void)
{
    int i = 0;

    while (rg_cpu_nth(i + 1))
        i++;
    return rg_cpu_nth(i);
}

/* The reference with a bf16 recipe as what is fast, whether this machine has its instruction or not. */
static const rg_cpu *bf16_cpu(rg_recipe recipe)
{
    static rg_cpu k[RG_RECIPE_COUNT];

    k[recipe] = *rg_cpu_nth(0);
    k[recipe].fast[RG_LAYOUT_BF16] = recipe;
    return &k[recipe];
}

/* The machine's tables, and those after them. */
static const rg_cpu *cpu_nth(int i)
{
    for (int n = 0; n < i; n++)
        if (!world_cpu(n))
            return i - n < 2 ? bf16_cpu(RG_BF16_PAIRS + i - n) : NULL;
    return world_cpu(i) ? world_cpu(i) : bf16_cpu(RG_BF16_PAIRS);
}

/* What a text is given: an input of n rows, matrices, and where its outputs go. */
typedef struct work {
    const float *x, *x2;
    int n, cols;
    const rg_weight *w[3], *b[3], *bias, *scale;
    float *y[3];
    rg_activation act;
    bool alone;
    const rg_routing *routing;
    const rg_rope *rope;
} work;

/* Run a text over rows [first, first + n) of x as a batch of plain tokens. */
static void run_rows(world *w, work *job, int first, int n, void (*text)(rg_fwd *f, void *arg))
{
    static int32_t token[512], index[512], pos[512][4], logits[512];
    static const float *given[512];
    rg_span span = { .n_rows = n };
    rg_batch b = { .n_rows = n,
                   .n_spans = 1,
                   .spans = &span,
                   .token = token,
                   .index = index,
                   .kv_end = index,
                   .pos = (const int32_t(*)[4])pos,
                   .n_logits = n / 2,
                   .logit_rows = logits,
                   .given = job->x2 ? given : NULL };
    work part = *job;

    for (int i = 0; i < n; i++) {
        pos[i][0] = index[i] = first + i;
        token[i] = i % 3 == 1 && job->x2 ? -1 : (first + i) * 3 % 40;
        given[i] = token[i] < 0 ? job->x2 + (size_t)i * (size_t)job->cols : NULL;
        logits[i] = 2 * i + 1;
    }
    part.x = job->x + (size_t)first * (size_t)job->cols;
    part.n = n;
    world_step(w, &b, text, &part);
}

/* y[row] = w x + b in double for matrix m of a dense weight. */
static void product(const float *dense, int rows, int cols, const float *x, const float *bias, double *y)
{
    for (int i = 0; i < rows; i++) {
        y[i] = bias ? bias[i] : 0;
        for (int k = 0; k < cols; k++)
            y[i] += (double)dense[i * cols + k] * x[k];
    }
}


/* ---- linear ------------------------------------------------------------------------------------------------------ */

static void linear_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *y[3] = { NULL };
    int mark = rg_act_mark(f);
    size_t used = rg_cpu_fwd_of(f)->arena_used;

    for (int i = 0; i < 3; i++)
        y[i] = rg_act_new(f, "y", (int)j->w[i]->rows);
    rg_linear3(f, y, x, j->w, j->b);
    rg_linear_add(f, y[0], x, j->w[0], NULL);
    for (int i = 0; i < 3; i++)
        act_out(f, y[i], j->y[i]);
    rg_act_release(f, mark);
    rg_act_new(f, "next", 16); /* lies where the first of them lay */
    rg_cpu_place(rg_cpu_fwd_of(f));
    RG_ASSERT(rg_cpu_act_of(f, &f->acts[mark])->offset == used);
}

/* Every type on the machine's tables; on the two after them bf16, fast. */
static void linear_is_a_product(void **state)
{
    static const int rows[3] = { 40, 16, 7 };

    (void)state;
    for (int isa = 0; cpu_nth(isa); isa++)
        for (size_t t = world_cpu(isa) ? 0 : 2; t < (world_cpu(isa) ? RG_LEN(types) * 2 : 3); t++) {
            rg_rng rng = { .seed = test_seed + t };
            work j = { .cols = COLS };
            rg_weight w[3], b[3];
            rg_packed packed[3];
            float *dense[3], *bias = random_floats(&rng, 40, 1), *x = random_floats(&rng, ROWS * COLS, 1), *one[3];
            double want[40];
            world u;

            world_init(&u, cpu_nth(isa), 2, &sizes);
            u.exact = t % 2;
            j.x = x;
            for (int i = 0; i < 3; i++) { /* a mixture: the third matrix is always f32 */
                w[i] = random_weight(&rng, &packed[i], i < 2 ? types[t / 2] : RG_F32, (int[]){ 1, rows[i], COLS },
                                     &dense[i]);
                b[i] = vector(bias, rows[i]);
                j.w[i] = &w[i];
                j.b[i] = i == 1 ? NULL : &b[i];
                j.y[i] = rg_array((size_t)(ROWS * rows[i]), sizeof(float));
                one[i] = rg_array((size_t)(ROWS * rows[i]), sizeof(float));
            }
            run_rows(&u, &j, 0, ROWS, linear_text);
            for (int r = 0; r < ROWS; r++)
                for (int i = 0; i < 3; i++) {
                    product(dense[i], rows[i], COLS, x + r * COLS, NULL, want);
                    for (int k = 0; k < rows[i]; k++)
                        want[k] = want[k] * (i == 0 ? 2 : 1) + (i == 1 ? 0.0 : (double)bias[k]);
                    assert_near(j.y[i] + r * rows[i], want, (size_t)rows[i], u.exact ? 1e-5 : 0.06);
                }
            for (int i = 0; i < 3; i++) {
                float *y = j.y[i];
                j.y[i] = one[i];
                one[i] = y;
            }
            for (int r = 0; r < ROWS; r++) {
                float *y[3] = { j.y[0], j.y[1], j.y[2] };

                run_rows(&u, &j, r, 1, linear_text);
                for (int i = 0; i < 3; i++)
                    assert_memory_equal(y[i], one[i] + r * rows[i], (size_t)rows[i] * sizeof(float));
            }
            for (int i = 0; i < 3; i++) {
                rg_packed_fini(&packed[i]);
                rg_free(dense[i]);
                rg_free(j.y[i]);
                rg_free(one[i]);
            }
            rg_free(bias);
            rg_free(x);
            world_fini(&u);
        }
}

/* y0 = w x; x, seen through a view, doubles; y1 = w x again. */
static void rewritten_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *again = rg_act_view(f, "again", x, 0, j->cols);
    rg_act *y = rg_act_new(f, "y", (int)j->w[0]->rows);

    rg_linear(f, y, x, j->w[0], NULL);
    act_out(f, y, j->y[0]);
    rg_add_to(f, again, again);
    rg_linear(f, y, x, j->w[0], NULL);
    act_out(f, y, j->y[1]);
}

static void rewritten_is_rounded_anew(const rg_cpu *cpu, rg_type type)
{
    rg_rng rng = { .seed = test_seed };
    float *dense, *x = random_floats(&rng, ROWS * COLS, 1), y[2][ROWS * 16];
    rg_packed packed;
    rg_weight w = random_weight(&rng, &packed, type, (int[]){ 1, 16, COLS }, &dense);
    work j = { .x = x, .cols = COLS, .w = { &w }, .y = { y[0], y[1] } };
    world u;

    world_init(&u, cpu, 2, &sizes);
    run_rows(&u, &j, 0, ROWS, rewritten_text);
    for (int i = 0; i < ROWS * 16; i++)
        assert_true(y[1][i] == 2.0f * y[0][i]); /* a power of two scales every rounding with it */
    rg_packed_fini(&packed);
    rg_free(dense);
    rg_free(x);
    world_fini(&u);
}

static void what_is_written_is_rounded_anew(void **state)
{
    (void)state;
    rewritten_is_rounded_anew(rg_cpu_nth(0), RG_Q4_0);
    rewritten_is_rounded_anew(bf16_cpu(RG_BF16_PAIRS), RG_BF16);
}

/* Two products at once, and the second of them alone. */
static void shared_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *y[3] = { NULL }, *alone = rg_act_new(f, "alone", 16);

    y[0] = rg_act_new(f, "y0", 16);
    y[1] = rg_act_new(f, "y1", 16);
    rg_linear3(f, y, x, j->w, j->b);
    rg_linear(f, alone, x, j->w[1], NULL);
    act_out(f, y[0], j->y[0]);
    act_out(f, y[1], j->y[1]);
    act_out(f, alone, j->y[2]);
}

/* Of two recipes in one operation the first is taken, and the other's weights are multiplied exactly; between operations
 * x is rounded again as each wants it. */
static void products_share_a_rounding(void **state)
{
    static const rg_type type[] = { RG_BF16, RG_Q8_0 };
    const rg_cpu *cpu = bf16_cpu(RG_BF16_TILES);
    float *dense[2], y[3][ROWS * 16], *x;
    rg_rng rng = { .seed = test_seed };
    rg_packed packed[2];
    rg_weight w[2];
    world u;

    (void)state;
    x = random_floats(&rng, ROWS * COLS, 1);
    for (int i = 0; i < 2; i++)
        w[i] = random_weight(&rng, &packed[i], type[i], (int[]){ 1, 16, COLS }, &dense[i]);
    world_init(&u, cpu, 2, &sizes);
    for (int first = 0; first < 2; first++) { /* bf16 first, int8 first */
        work j = { .x = x, .cols = COLS, .w = { &w[first], &w[1 - first] }, .y = { y[0], y[1], y[2] } };

        run_rows(&u, &j, 0, ROWS, shared_text);
        for (int r = 0; r < ROWS; r++)
            for (int i = 0; i < 3; i++) {
                double want[16], furthest = 0;

                product(dense[i ? 1 - first : first], 16, COLS, x + r * COLS, NULL, want);
                for (int k = 0; k < 16; k++)
                    furthest = fmax(furthest, fabs(want[k] - (double)y[i][16 * r + k]));
                assert_true(i == 1 ? furthest < 1e-5 : furthest > 1e-4 && furthest < 0.06);
            }
    }
    for (int i = 0; i < 2; i++) {
        rg_packed_fini(&packed[i]);
        rg_free(dense[i]);
    }
    rg_free(x);
    world_fini(&u);
}

static void gated_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *y = rg_act_new(f, "y", (int)j->w[0]->rows);
    rg_act *wide = rg_act_new(f, "wide", 2 * (int)j->w[0]->rows), *g = rg_act_view(f, "g", wide, 0, y->cols);
    rg_act *u = rg_act_view(f, "u", wide, y->cols, y->cols), *z = rg_act_new(f, "z", y->cols);

    rg_gated(f, y, x, j->w[0], j->w[1], j->b[0], j->b[1], j->act);
    act_out(f, y, j->y[0]);
    rg_linear(f, u, x, j->w[1], j->b[1]); /* into views side by side: neither may spill into the other */
    rg_linear(f, g, x, j->w[0], j->b[0]);
    rg_act_mul(f, z, g, u, j->act);
    act_out(f, z, j->y[1]);
}

static void gated_equals_its_parts(void **state)
{
    enum { FFN = 41 };

    (void)state;
    for (size_t t = 0; t < RG_LEN(types) * 2; t++) {
        rg_rng rng = { .seed = test_seed + t };
        rg_packed packed[2];
        float *dense[2], *bias = random_floats(&rng, FFN, 1), *x = random_floats(&rng, ROWS * COLS, 1);
        rg_weight w[2], b = vector(bias, FFN);
        work j = { .x = x, .cols = COLS, .act = (rg_activation)((t + t / RG_ACTIVATIONS) % RG_ACTIVATIONS) };
        double gate[FFN], up[FFN];
        world u;

        if (j.act == RG_INVERSE) /* of a gate near 0 it is as large as its rounding */
            j.act = RG_SILU;
        world_init(&u, t % 4 < 2 ? best_cpu() : bf16_cpu(RG_BF16_TILES), 2, &sizes);
        u.exact = t % 2;
        for (int i = 0; i < 2; i++) {
            w[i] = random_weight(&rng, &packed[i], types[t / 2], (int[]){ 1, FFN, COLS }, &dense[i]);
            j.w[i] = &w[i];
            j.b[i] = i ? NULL : &b;
            j.y[i] = rg_array(ROWS * FFN, sizeof(float));
        }
        run_rows(&u, &j, 0, ROWS, gated_text);
        assert_memory_equal(j.y[0], j.y[1], ROWS * FFN * sizeof(float));
        for (int r = 0; r < ROWS; r++) {
            product(dense[0], FFN, COLS, x + r * COLS, bias, gate);
            product(dense[1], FFN, COLS, x + r * COLS, NULL, up);
            for (int k = 0; k < FFN; k++)
                gate[k] = gated_double(j.act, gate[k], up[k]);
            assert_near(j.y[0] + r * FFN, gate, FFN, u.exact ? 2e-5 : 0.2);
        }
        for (int i = 0; i < 2; i++) {
            rg_packed_fini(&packed[i]);
            rg_free(dense[i]);
            rg_free(j.y[i]);
        }
        rg_free(bias);
        rg_free(x);
        world_fini(&u);
    }
}

static void heads_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *y = rg_act_new(f, "y", (int)(j->w[0]->n_mats * j->w[0]->rows));

    rg_linear_heads(f, y, x, j->w[0], j->cols / 3);
    act_out(f, y, j->y[0]);
}

static void heads_are_products(void **state)
{
    enum { OUT = 19 };
    static const struct {
        rg_type type;
        int stride, cols;
    } cases[] = {
        { RG_F32, 37, 30 },
        { RG_Q8_0, 96, 64 },
        { RG_Q8_0, 70, 64 },
        { RG_BF16, 64, 64 },
        { RG_BF16, 70, 64 },
        { RG_BF16, 64, 40 },
    };

    (void)state;
    for (size_t c = 0; c < RG_LEN(cases) * 2; c++) {
        rg_rng rng = { .seed = test_seed + c };
        int cols = 3 * cases[c / 2].stride;
        float *dense, *x = random_floats(&rng, (size_t)(ROWS * cols), 1);
        rg_packed packed;
        rg_weight w = random_weight(&rng, &packed, cases[c / 2].type, (int[]){ 3, OUT, cases[c / 2].cols }, &dense);
        work j = { .x = x, .cols = cols, .w = { &w }, .y = { rg_array(ROWS * 3 * OUT, sizeof(float)) } };
        double want[OUT];
        world u;

        world_init(&u, bf16_cpu(RG_BF16_TILES), 2, &sizes);
        u.exact = c % 2;
        run_rows(&u, &j, 0, ROWS, heads_text);
        for (int r = 0; r < ROWS; r++)
            for (int h = 0; h < 3; h++) {
                product(dense + h * OUT * cases[c / 2].cols, OUT, cases[c / 2].cols, x + r * cols + h * cols / 3, NULL,
                        want);
                assert_near(j.y[0] + (r * 3 + h) * OUT, want, OUT, u.exact ? 1e-5 : 0.06);
            }
        rg_packed_fini(&packed);
        rg_free(dense);
        rg_free(x);
        rg_free(j.y[0]);
        world_fini(&u);
    }
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

static void route_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "logits", j->x, j->n, j->cols), *y = rg_act_new(f, "route", 2 * j->routing->n_used);

    rg_route(f, y, x, j->routing, j->bias, j->scale);
    act_out(f, y, j->y[0]);
}

/* A routing, and whether it has a bias and a scale per expert. */
typedef struct routing_case {
    rg_routing r;
    bool bias, scale;
} routing_case;

static const routing_case routings[] = {
    { { .n_experts = 8, .n_used = 2, .scale = 1.0f } },
    { { .n_experts = 12, .n_used = 4, .score = RG_SCORE_SOFTMAX, .scale = 2.5f }, .scale = true },
    { { .n_experts = 12, .n_used = 3, .score = RG_SCORE_SOFTMAX, .renormalize = true, .scale = 1.0f, .n_groups = 4,
        .n_groups_used = 2 } },
    { { .n_experts = 5, .n_used = 1, .score = RG_SCORE_SOFTMAX, .scale = 1.0f } },
    { { .n_experts = 12, .n_used = 4, .score = RG_SCORE_SIGMOID, .renormalize = true, .sum_eps = 0.01f, .scale = 1.5f,
        .n_groups = 3, .n_groups_used = 2, .groups_by_two = true }, .bias = true },
    { { .n_experts = 9, .n_used = 2, .score = RG_SCORE_SIGMOID, .scale = 1.0f, .weigh_input = true } },
    { { .n_experts = 8, .n_used = 3, .score = RG_SCORE_SPARSEMIXER, .jitter = 0.2f, .scale = 1.0f } },
};

static float biases[12] = { 0.3f, -0.2f, 0.05f, 0, -0.4f, 0.11f, 0.7f, -0.1f, 0.2f, 0.25f, -0.6f, 0.02f };
static float scales[12] = { 1, 2, 0.5f, -1, 3, 1, 1.5f, 0.25f, 1, 0.1f, 2, 1 };

/* True if a, in the place i, goes before b, in the place k. */
static bool goes_before(double a, int i, double b, int k)
{
    return a > b || (a == b && i < k);
}

/* What a group counts as: the best value in it, or the best two. */
static double worth_of(const rg_routing *g, const double *by, int group)
{
    int size = g->n_experts / g->n_groups;
    double first = -INFINITY, second = -INFINITY;

    for (const double *v = by + group * size; v < by + (group + 1) * size; v++) {
        second = fmax(second, fmin(first, *v));
        first = fmax(first, *v);
    }
    return g->groups_by_two ? first + second : first;
}

/* The weight of the expert at among those that are open. */
static double mixed(const rg_routing *g, const float *logits, const bool *open, int at)
{
    double sum = 0, m = (double)logits[at];

    for (int i = 0; i < g->n_experts; i++)
        if (open[i] && (m - (double)logits[i]) / fmax(fabs((double)logits[i]), m) <= 2 * (double)g->jitter)
            sum += exp((double)logits[i] - m);
    return 1 / sum;
}

/* Every expert's place among all, by counting those that go before it; the chosen in rising order. */
static void naive_route(const routing_case *c, const float *logits, int *id, double *weight)
{
    const rg_routing *g = &c->r;
    double p[16], by[16], sum = 0;
    bool open[16];
    int n = 0;

    for (int i = 0; i < g->n_experts; i++)
        sum += exp((double)logits[i]);
    for (int i = 0; i < g->n_experts; i++) {
        p[i] = g->score == RG_SCORE_SIGMOID ? 1 / (1 + exp(-(double)logits[i])) : exp((double)logits[i]) / sum;
        by[i] = p[i] + (c->bias ? (double)biases[i] : 0);
    }
    for (int i = 0; i < g->n_experts; i++) { /* open: fewer than n_groups_used groups are better than its own */
        int own = g->n_groups ? i / (g->n_experts / g->n_groups) : 0, better = 0;

        for (int group = 0; group < g->n_groups; group++)
            better += goes_before(worth_of(g, by, group), group, worth_of(g, by, own), own);
        open[i] = !g->n_groups || better < g->n_groups_used;
    }
    for (int place = 0; g->score == RG_SCORE_SPARSEMIXER && place < g->n_used; place++) {
        int best = -1;

        for (int i = 0; i < g->n_experts; i++)
            if (open[i] && (best < 0 || logits[i] > logits[best]))
                best = i;
        p[best] = mixed(g, logits, open, best);
        by[best] = 10 - place;
        open[best] = false;
    }
    for (int i = 0; i < g->n_experts; i++)
        open[i] = open[i] || g->score == RG_SCORE_SPARSEMIXER;
    sum = (double)g->sum_eps;
    for (int i = 0; i < g->n_experts; i++) {
        int better = 0;

        for (int k = 0; k < g->n_experts; k++)
            better += open[k] && goes_before(by[k], k, by[i], i);
        if (open[i] && better < g->n_used) {
            id[n] = i;
            sum += weight[n++] = p[i];
        }
    }
    for (int k = 0; k < n; k++)
        weight[k] *= (double)g->scale / (g->score == RG_SCORE_CHOSEN || g->renormalize ? sum : 1) *
                     (c->scale ? (double)scales[id[k]] : 1);
}

static void routes_are_the_best(void **state)
{
    (void)state;
    for (size_t c = 0; c < RG_LEN(routings); c++) {
        const rg_routing *g = &routings[c].r;
        rg_rng rng = { .seed = test_seed + c };
        float *x = random_floats(&rng, 100 * 12, 2), *y = rg_array(100 * 8, sizeof *y);
        rg_weight bias = vector(biases, g->n_experts), scale = vector(scales, g->n_experts);
        work j = { .x = x, .cols = g->n_experts, .routing = g, .y = { y },
                   .bias = routings[c].bias ? &bias : NULL, .scale = routings[c].scale ? &scale : NULL };
        world u;

        for (int i = 0; i < 40 * g->n_experts; i++)
            x[i] = floorf(x[i]); /* many ties */
        world_init(&u, rg_cpu_nth(0), 2, &sizes);
        run_rows(&u, &j, 0, 100, route_text);
        for (int r = 0; r < 100; r++) {
            double weight[4];
            int32_t got[4];
            int id[4];

            naive_route(&routings[c], x + r * g->n_experts, id, weight);
            memcpy(got, y + r * 2 * g->n_used, sizeof(int32_t) * (size_t)g->n_used);
            for (int k = 0; k < g->n_used; k++)
                assert_int_equal(got[k], id[k]);
            assert_near(y + r * 2 * g->n_used + g->n_used, weight, (size_t)g->n_used, 1e-5);
        }
        rg_free(x);
        rg_free(y);
        world_fini(&u);
    }
}

/* Where the best logits all have a sigmoid of one, the higher is still chosen. */
static void large_logits_differ(void **state)
{
    static const float x[3] = { 40, 60, 50 };
    static const rg_routing g = { .n_experts = 3, .n_used = 1, .score = RG_SCORE_SIGMOID, .scale = 1.0f };
    float y[2];
    work j = { .x = x, .cols = 3, .routing = &g, .y = { y } };
    int32_t got;
    world u;

    (void)state;
    world_init(&u, best_cpu(), 1, &sizes);
    run_rows(&u, &j, 0, 1, route_text);
    memcpy(&got, y, sizeof got);
    assert_int_equal(got, 1);
    assert_true(y[1] == 1.0f);
    world_fini(&u);
}

static void moe_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *route = rg_act_new(f, "route", 2 * j->routing->n_used);
    rg_act *logits = rg_act_view(f, "logits", x, 0, j->routing->n_experts), *y = act_of(f, "y", j->x, j->n, j->cols);

    rg_route(f, route, logits, j->routing, j->bias, j->scale);
    rg_moe(f, y, x, route, j->routing,
           &(rg_experts){ j->w[0], j->w[1], j->w[2], j->b[0], j->b[1], j->b[2], j->act, j->alone });
    act_out(f, y, j->y[0]);
}

enum { FFN = 256 };

/* What the experts add to a row: dense and bias are of gate, up and down; a gate may be missing. */
static void naive_experts(const routing_case *c, const work *j, float *const dense[3], const float *x, double *want)
{
    double weight[4], gate[FFN], up[FFN], out[COLS];
    float in[COLS], h[FFN];
    int id[4];

    naive_route(c, x, id, weight);
    for (int k = 0; k < COLS; k++)
        want[k] = j->alone ? 0 : (double)x[k];
    for (int e = 0; e < c->r.n_used; e++) {
        const float *b[3];

        for (int i = 0; i < 3; i++)
            b[i] = j->b[i] ? j->b[i]->vec + id[e] * (i == 2 ? COLS : FFN) : NULL;
        for (int k = 0; k < COLS; k++)
            in[k] = (float)((double)x[k] * (c->r.weigh_input ? weight[e] : 1));
        if (j->w[0])
            product(dense[0] + id[e] * FFN * COLS, FFN, COLS, in, b[0], gate);
        product(dense[1] + id[e] * FFN * COLS, FFN, COLS, in, b[1], up);
        for (int k = 0; k < FFN; k++)
            h[k] = (float)(j->w[0] ? gated_double(j->act, gate[k], up[k]) : act_of_double(j->act, up[k]));
        product(dense[2] + id[e] * FFN * COLS, COLS, FFN, h, b[2], out);
        for (int k = 0; k < COLS; k++)
            want[k] += (c->r.weigh_input ? 1 : weight[e]) * out[k];
    }
}

/* Experts of kind c: with biases, without a gate, with other activations, of other types. */
static void experts_case(size_t c)
{
    enum { N = 150 };
    const routing_case *route = &routings[c / 4 % RG_LEN(routings)];
    const rg_routing *g = &route->r;
    const int e = g->n_experts, n = c % 4 == 2 ? N : 30; /* more than one pass of 512 results in some */
    rg_type type = c / 4 == RG_LEN(routings) ? RG_BF16 : (rg_type[]){ RG_F32, RG_Q4_K, RG_Q8_0, RG_Q4_K }[c % 4];
    rg_rng rng = { .seed = test_seed + c };
    float *x = random_floats(&rng, N * COLS, 1), *dense[3], *y = rg_array(N * COLS, sizeof *y), one[COLS];
    float *bias = random_floats(&rng, (size_t)(e * COLS), 1);
    rg_weight w[3], b = vector(bias, e * COLS), by = vector(biases, e), scale = vector(scales, e);
    rg_packed packed[3];
    work j = { .x = x, .cols = COLS, .routing = g, .y = { y }, .w = { c % 7 == 3 ? NULL : &w[0], &w[1], &w[2] },
               .bias = route->bias ? &by : NULL, .scale = route->scale ? &scale : NULL,
               .alone = c % 5 == 1, .act = c % 7 == 3 ? RG_RELU2 : c % 3 == 1 ? RG_SWIGLU_CLAMPED : RG_SILU };
    world u;

    for (int i = 0; c % 3 && i < 3; i++)
        j.b[i] = j.w[i] ? &b : NULL;
    world_init(&u, type == RG_BF16 ? bf16_cpu(RG_BF16_PAIRS) : c % 8 < 4 ? best_cpu() : rg_cpu_nth(0), 2, &sizes);
    u.exact = c % 4 == 3;
    for (int i = 0; i < 3; i++) /* down of another type than gate and up in some */
        w[i] = random_weight(&rng, &packed[i], i == 2 && c % 4 == 1 ? RG_F32 : i == 2 && type == RG_BF16 ? RG_Q8_0 : type,
                             (int[]){ e, FFN, COLS }, &dense[i]);
    run_rows(&u, &j, 0, n, moe_text);
    for (int r = 0; r < n; r += 29) {
        double want[COLS];

        naive_experts(route, &j, dense, x + r * COLS, want);
        assert_near(y + r * COLS, want, COLS, type == RG_F32 || u.exact ? 2e-5 : 0.1);
    }
    j.y[0] = one;
    for (int r = 0; r < n; r += 7) {
        run_rows(&u, &j, r, 1, moe_text);
        assert_memory_equal(one, y + r * COLS, sizeof one);
    }
    for (int i = 0; i < 3; i++) {
        rg_packed_fini(&packed[i]);
        rg_free(dense[i]);
    }
    rg_free(bias);
    rg_free(x);
    rg_free(y);
    world_fini(&u);
}

static void experts_add_up(void **state)
{
    const size_t first = TEST_SLOWER > 1, step = TEST_SLOWER > 1 ? 3 : 1; /* of checked code each type and each routing */

    (void)state;
    for (size_t c = first; c < RG_LEN(routings) * 4 + 1; c += step) /* bf16 once */
        experts_case(c);
}

/* ---- small ones -------------------------------------------------------------------------------------------------- */

static void small_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    int cols = j->cols;
    rg_act *x = rg_act_new(f, "x", cols), *h = rg_act_new(f, "h", cols),
           *y = rg_act_rows(f, "y", f->batch->n_logits, cols);

    rg_embed(f, x, j->w[0], 2.0f);
    act_out(f, x, j->y[0]);
    rg_embed_beside(f, h, j->w[0], 2.0f);
    act_out(f, h, j->y[2]);
    rg_rmsnorm(f, h, x, j->w[1], 1e-6f);
    rg_rotate(f, h, j->rope, 32, 4);
    rg_rotate(f, h, j->rope + 1, 32, 4);
    rg_add_to(f, h, x);
    rg_softcap(f, h, 1.5f);
    rg_gather(f, y, h);
    act_out(f, y, j->y[1]);
}

static void embed_text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = rg_act_new(f, "x", j->cols);

    rg_embed(f, x, j->w[0], 1.0f);
    act_out(f, x, j->y[0]);
}

/* Nothing beside the table is read for an id that is in no vocabulary: such rows are those of id 0. */
static void ids_out_of_range_read_the_first_row(void **state)
{
    enum { DIM = 96, WORDS = 40 };
    static const int32_t ids[] = { -1, INT32_MIN, WORDS, INT32_MAX, 0 };
    enum { N = RG_LEN(ids) };
    rg_rng rng = { .seed = test_seed };
    rg_packed packed;
    float *dense, x[N * DIM];
    rg_weight w = random_weight(&rng, &packed, RG_Q8_0, (int[]){ 1, WORDS, DIM }, &dense);
    work j = { .cols = DIM, .w = { &w }, .y = { x } };
    int32_t index[N] = { 0 }, pos[N][4] = { { 0 } };
    rg_span span = { .n_rows = N };
    rg_batch b = { .n_rows = N,
                   .n_spans = 1,
                   .spans = &span,
                   .token = ids,
                   .index = index,
                   .kv_end = index,
                   .pos = (const int32_t(*)[4])pos };
    world u;

    (void)state;
    world_init(&u, rg_cpu_nth(0), 2, &sizes);
    world_step(&u, &b, embed_text, &j);
    for (int r = 0; r < N; r++)
        assert_memory_equal(x + r * DIM, dense, DIM * sizeof *x);
    world_fini(&u);
    rg_free(dense);
    rg_packed_fini(&packed);
}

/* One rotation of head h of a row, in double. */
static void turn(double *head, const rg_rope *rope, int pos)
{
    for (int i = 0; i < rope->n_pairs; i++) {
        double *a = head + 4 + (rope->interleaved ? 2 * i : i), *b = a + (rope->interleaved ? 1 : rope->n_pairs),
               t = *a;
        double c = cos(pos * (double)rope->inv_freq[i]) * (double)rope->factor;
        double s = sin(pos * (double)rope->inv_freq[i]) * (double)rope->factor;

        *a = t * c - *b * s;
        *b = *b * c + t * s;
    }
}

static void small_ones(void **state)
{
    enum { DIM = 96, N = 30 };
    static const float freq[2][9] = { { 1, 0.5f, 0.25f, 0.1f, 0.01f }, { 0.3f, 0.2f, 0.1f, 1, 1, 1, 0.7f, 1, 1 } };
    static const rg_rope ropes[2] = { { 1, 5, freq[0], 1.0f, true, 0, 0, 0 }, { 1, 9, freq[1], 1.25f, false, 0, 0, 0 } };
    rg_rng rng = { .seed = test_seed };
    rg_packed packed;
    float *dense, *norm = random_floats(&rng, 32, 1), *given = random_floats(&rng, N * DIM, 1), x[N * DIM],
                  beside[N * DIM], y[N / 2 * DIM];
    rg_weight w[2] = { random_weight(&rng, &packed, RG_Q8_0, (int[]){ 1, 40, DIM }, &dense), vector(norm, 32) };
    work j = { .x = given, .x2 = given, .cols = DIM, .w = { &w[0], &w[1] }, .y = { x, y, beside }, .rope = ropes };
    world u;

    (void)state;
    world_init(&u, rg_cpu_nth(0), 2, &sizes);
    run_rows(&u, &j, 3, N - 3, small_text); /* other places: the kept cosines must not be taken for these */
    run_rows(&u, &j, 0, N, small_text);
    for (int r = 0; r < N; r++) {
        double want[DIM], h[DIM];

        for (int k = 0; k < DIM; k++)
            want[k] = 2.0 * (double)dense[(r % 3 == 1 ? 0 : r * 3 % 40) * DIM + k];
        assert_near(beside + r * DIM, want, DIM, 0);
        for (int k = 0; k < DIM && r % 3 == 1; k++)
            want[k] = (double)given[r * DIM + k];
        assert_near(x + r * DIM, want, DIM, 0);
        for (int k = 0; k < DIM; k += 32) {
            double sum = 0;

            for (int i = 0; i < 32; i++)
                sum += want[k + i] * want[k + i];
            for (int i = 0; i < 32; i++)
                h[k + i] = want[k + i] / sqrt(sum / 32 + 1e-6) * norm[i];
            turn(h + k, &ropes[0], r);
            turn(h + k, &ropes[1], r);
        }
        for (int k = 0; k < DIM; k++)
            h[k] = 1.5 * tanh((h[k] + want[k]) / 1.5);
        if (r % 2)
            assert_near(y + r / 2 * DIM, h, DIM, 1e-5);
    }
    rg_packed_fini(&packed);
    rg_free(dense);
    rg_free(norm);
    rg_free(given);
    world_fini(&u);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_a_product),
        cmocka_unit_test(what_is_written_is_rounded_anew),
        cmocka_unit_test(products_share_a_rounding),
        cmocka_unit_test(gated_equals_its_parts),
        cmocka_unit_test(heads_are_products),
        cmocka_unit_test(routes_are_the_best),
        cmocka_unit_test(large_logits_differ),
        cmocka_unit_test(experts_add_up),
        cmocka_unit_test(small_ones),
        cmocka_unit_test(ids_out_of_range_read_the_first_row),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}
