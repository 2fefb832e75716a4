/* test_ordered.c -- matrices whose columns have an order: the bits of the same panels without one, by inputs that are put
 * in that order beforehand; whatever the recipe, the operation, and the rows beside them. */
#include "world.h"

enum { ROWS = 37, COLS = 256, OUT = 70, STRIDE = 288, HEADS = 3, EXPERTS = 5, USED = 2, FFN = 128 };

static const rg_reader_sizes sizes = { .max_rows = 64, .max_cols = 1024, .max_experts = EXPERTS,
                                       .max_experts_used = USED };

typedef enum way { EXACT, INT8, LLM_INT8, WAYS } way;

/* A matrix twice: with orders of its columns, and its panels alone. */
typedef struct twice {
    rg_packed packed, bare;
    rg_weight w, plain;
    int32_t *order; /* [n_mats][cols] */
} twice;

static void shuffle(rg_rng *rng, int32_t *order, int n)
{
    for (int i = 0; i < n; i++)
        order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        const int k = (int)(rg_rng_unit(rng) * (float)i), v = order[i];

        order[i] = order[k];
        order[k] = v;
    }
}

/* number 0: in order; like: has the same orders, or NULL. */
static void make(twice *t, rg_rng *rng, rg_type type, const int shape[3], int number, const twice *like)
{
    const size_t cols = (size_t)shape[2];
    float *dense;
    rg_error err;

    *t = (twice){ .order = rg_array((size_t)shape[0] * cols, sizeof(int32_t)) };
    assert_non_null(t->order);
    t->plain = random_weight(rng, &t->bare, type, shape, &dense);
    rg_free(dense);
    t->w = t->plain;
    t->w.order = number;
    assert_ok((number ? rg_packed_init_ordered : rg_packed_init)(&t->packed, type, shape[0], shape[1], shape[2], &err), err);
    for (int m = 0; m < shape[0]; m++) {
        int32_t *order = t->order + (size_t)m * cols;

        for (int k = 0; k < shape[2]; k++)
            order[k] = k;
        if (number && like)
            memcpy(order, like->order + (size_t)m * cols, cols * sizeof *order);
        else if (number)
            shuffle(rng, order, shape[2]);
        memcpy(t->packed.data + (size_t)m * rg_packed_mat_bytes(&t->packed), rg_panel_at(&t->bare, m, 0),
               rg_packed_mat_bytes(&t->bare));
        if (number)
            rg_pack_order(&t->packed, m, order);
    }
    t->w.placed = &t->packed.placed;
    t->plain.placed = &t->bare.placed;
}

static void drop(twice *t)
{
    rg_packed_fini(&t->packed);
    rg_packed_fini(&t->bare);
    rg_free(t->order);
}

/* n rows of x, [n, cols], in the order of matrix mat, ld apart. */
static float *in_order(const twice *t, int mat, const float *x, int n, int ld)
{
    const int cols = (int)t->w.cols;
    float *y = rg_array((size_t)(n * cols), sizeof *y);

    assert_non_null(y);
    for (int r = 0; r < n; r++)
        for (int k = 0; k < cols; k++)
            y[r * cols + k] = x[r * ld + t->order[mat * cols + k]];
    return y;
}

typedef struct work {
    const float *x;
    int n, cols, n_w;
    const rg_weight *w[3];
    float *y[3];
    bool accumulate, gated, heads;
    int stride;
} work;

static void text(rg_fwd *f, void *arg)
{
    const work *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, j->cols), *y[3] = { 0 };
    const rg_weight *w[3] = { j->w[0], j->w[1], j->w[2] };

    for (int i = 0; i < j->n_w; i++) {
        y[i] = rg_act_rows(f, "y", j->n, (int)(w[i]->n_mats * w[i]->rows));
        rg_scale_by(f, y[i], 0);
    }
    if (j->heads)
        rg_linear_heads(f, y[0], x, w[0], j->stride);
    else if (j->gated)
        rg_gated(f, y[0], x, w[0], w[1], NULL, NULL, RG_SILU);
    else if (j->accumulate)
        rg_linear_add(f, y[0], x, w[0], NULL);
    else
        rg_linear3(f, y, x, w, NULL);
    for (int i = 0; i < (j->gated ? 1 : j->n_w); i++)
        act_out(f, y[i], j->y[i]);
}

static void run(world *u, const work *j)
{
    rg_span span = { .n_rows = j->n, .adapter = -1 };
    rg_batch b = { .n_rows = j->n, .n_spans = 1, .spans = &span };

    world_step(u, &b, text, (void *)(uintptr_t)j);
}

static void open_world(world *u, const rg_cpu *cpu, way recipe)
{
    world_init(u, cpu, 2, &sizes);
    u->exact = recipe == EXACT;
    u->llm_int8 = recipe == LLM_INT8;
}

/* Rows with some values beyond 6. */
static float *inputs(rg_rng *rng, int n, int cols)
{
    float *x = random_floats(rng, (size_t)(n * cols), 1);

    for (int i = 0; i < n * cols; i += 53)
        x[i] *= 20;
    return x;
}

static const rg_type types[] = { RG_ZP4_128, RG_ZP8, RG_ZP8_128, RG_ZP4 };

/* Matrices of one operation, of which the second has the order of the first, or one of its own, or none. */
static void linear_case(const rg_cpu *cpu, way recipe, int second)
{
    rg_rng rng = { .seed = test_seed + (uint64_t)(recipe * 3 + second) };
    float *x = inputs(&rng, ROWS, COLS), want[ROWS * OUT], one[3][OUT], *got[3];
    twice t[3];
    world u;

    open_world(&u, cpu, recipe);
    for (int i = 0; i < 3; i++) {
        const int number = (int[]){ 1, second, 1 }[i];
        make(&t[i], &rng, types[recipe], (int[]){ 1, OUT, COLS }, number, i && number == 1 ? &t[0] : NULL);
        got[i] = rg_array(ROWS * OUT, sizeof(float));
    }
    work all = { .x = x, .n = ROWS, .cols = COLS, .n_w = 3, .w = { &t[0].w, &t[1].w, &t[2].w },
                 .y = { got[0], got[1], got[2] } };
    run(&u, &all);
    for (int i = 0; i < 3; i++) {
        float *ordered = in_order(&t[i], 0, x, ROWS, COLS);
        run(&u, &(work){ .x = ordered, .n = ROWS, .cols = COLS, .n_w = 1, .w = { &t[i].plain }, .y = { want } });
        assert_memory_equal(got[i], want, sizeof want);
        rg_free(ordered);
    }
    for (int r = 0; r < ROWS; r += 5) {
        work single = all;
        single.x = x + r * COLS;
        single.n = 1;
        for (int i = 0; i < 3; i++)
            single.y[i] = one[i];
        run(&u, &single);
        for (int i = 0; i < 3; i++)
            assert_memory_equal(one[i], got[i] + r * OUT, sizeof one[i]);
    }
    all.n_w = 1;
    all.accumulate = true;
    memcpy(want, got[0], sizeof want);
    run(&u, &all); /* y is 0 before */
    assert_memory_equal(got[0], want, sizeof want);
    for (int i = 0; i < 3; i++) {
        drop(&t[i]);
        rg_free(got[i]);
    }
    rg_free(x);
    world_fini(&u);
}

static void products_read_the_order(void **state)
{
    (void)state;
    for (int i = 0; world_cpu(i); i++)
        for (int recipe = 0; recipe < WAYS; recipe++)
            for (int second = 0; second < 3; second++)
                linear_case(world_cpu(i), (enum way)recipe, second);
}

static void gated_case(way recipe, int second)
{
    rg_rng rng = { .seed = test_seed + (uint64_t)(recipe * 3 + second) };
    float *x = inputs(&rng, ROWS, COLS), want[2][ROWS * OUT], got[ROWS * OUT];
    twice t[2];
    world u;

    open_world(&u, world_cpu(0), recipe);
    make(&t[0], &rng, types[recipe], (int[]){ 1, OUT, COLS }, 1, NULL);
    make(&t[1], &rng, types[recipe], (int[]){ 1, OUT, COLS }, second, second == 1 ? &t[0] : NULL);
    run(&u, &(work){ .x = x, .n = ROWS, .cols = COLS, .n_w = 2, .w = { &t[0].w, &t[1].w }, .y = { got }, .gated = true });
    for (int i = 0; i < 2; i++) {
        float *ordered = in_order(&t[i], 0, x, ROWS, COLS);
        run(&u, &(work){ .x = ordered, .n = ROWS, .cols = COLS, .n_w = 1, .w = { &t[i].plain }, .y = { want[i] } });
        rg_free(ordered);
        drop(&t[i]);
    }
    for (int i = 0; i < ROWS * OUT; i++) {
        float y;

        rg_cpu_nth(0)->act_mul[RG_SILU](&y, &want[0][i], &want[1][i], 1);
        assert_memory_equal(&got[i], &y, sizeof y);
    }
    rg_free(x);
    world_fini(&u);
}

static void gated_reads_the_orders(void **state)
{
    (void)state;
    for (int recipe = 0; recipe < WAYS; recipe++)
        for (int second = 0; second < 3; second++)
            gated_case((enum way)recipe, second);
}

/* Heads that read columns of their own, also at no multiple of 32, and heads that read the same ones. */
static void heads_read_the_order(void **state)
{
    static const int strides[] = { STRIDE, STRIDE + 3, 0 };

    (void)state;
    for (int c = 0; c < WAYS * (int)RG_LEN(strides); c++) {
        const way recipe = (enum way)(c % WAYS);
        const int stride = strides[c / WAYS], cols = (HEADS - 1) * stride + COLS;
        rg_rng rng = { .seed = test_seed + (uint64_t)c };
        float *x = inputs(&rng, ROWS, cols), got[ROWS * HEADS * OUT], want[ROWS * HEADS * OUT];
        twice t;
        world u;

        open_world(&u, world_cpu(0), recipe);
        make(&t, &rng, types[recipe], (int[]){ HEADS, OUT, COLS }, 1, NULL);
        for (int m = 1; m < HEADS && !stride; m++) { /* parts of one tensor */
            memcpy(t.order + m * COLS, t.order, COLS * sizeof *t.order);
            rg_pack_order(&t.packed, m, t.order);
        }
        run(&u, &(work){ .x = x, .n = ROWS, .cols = cols, .n_w = 1, .w = { &t.w }, .y = { got }, .heads = true,
                         .stride = stride });
        float *side_by_side = rg_array(ROWS * HEADS * COLS, sizeof *side_by_side);
        for (int m = 0; m < (stride ? HEADS : 1); m++) {
            float *ordered = in_order(&t, m, x + m * stride, ROWS, cols);

            for (int r = 0; r < ROWS; r++)
                memcpy(side_by_side + (r * (stride ? HEADS : 1) + m) * COLS, ordered + r * COLS, COLS * sizeof *ordered);
            rg_free(ordered);
        }
        run(&u, &(work){ .x = side_by_side, .n = ROWS, .cols = stride ? HEADS * COLS : COLS, .n_w = 1, .w = { &t.plain },
                         .y = { want }, .heads = true, .stride = stride ? COLS : 0 });
        assert_memory_equal(got, want, sizeof want);
        rg_free(side_by_side);
        drop(&t);
        rg_free(x);
        world_fini(&u);
    }
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

typedef struct mixture {
    const float *x, *route; /* [n, COLS], [n, 2 * USED] */
    int n;
    const rg_weight *w[3];
    rg_routing routing;
    float *y;
} mixture;

static void moe_text(rg_fwd *f, void *arg)
{
    const mixture *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, COLS), *route = act_of(f, "route", j->route, j->n, 2 * USED);
    rg_act *y = rg_act_rows(f, "y", j->n, COLS);

    rg_moe(f, y, x, route, &j->routing,
           &(rg_experts){ .gate = j->w[0], .up = j->w[1], .down = j->w[2], .act = RG_SILU, .alone = true });
    act_out(f, y, j->y);
}

static void run_moe(world *u, const mixture *j)
{
    rg_span span = { .n_rows = j->n, .adapter = -1 };
    rg_batch b = { .n_rows = j->n, .n_spans = 1, .spans = &span };

    world_step(u, &b, moe_text, (void *)(uintptr_t)j);
}

/* What an expert makes of one row by the panels without orders. */
static void expert(world *u, twice t[3], int e, bool gate, const float *x, float *y)
{
    float made[2][FFN], h[FFN];

    for (int k = !gate; k < 3; k++) {
        float *ordered = in_order(&t[k], e, k < 2 ? x : h, 1, 0);
        rg_packed bare = t[k].bare;
        rg_weight w = t[k].plain;

        bare.placed.n_mats = w.n_mats = 1;
        bare.data += (size_t)e * rg_packed_mat_bytes(&t[k].bare);
        w.placed = &bare.placed;
        run(u, &(work){ .x = ordered, .n = 1, .cols = (int)w.cols, .n_w = 1, .w = { &w }, .y = { k < 2 ? made[k] : y } });
        rg_free(ordered);
        if (k == 1 && gate)
            rg_cpu_nth(0)->act_mul[RG_SILU](h, made[0], made[1], FFN);
        else if (k == 1)
            rg_cpu_nth(0)->act[RG_SILU](h, made[1], FFN);
    }
}

/* numbers: the orders of gate, up and down; gate -1: there is none. */
static void experts_case(way recipe, const int numbers[3], bool weigh_input)
{
    rg_rng rng = { .seed = test_seed + (uint64_t)recipe };
    const bool gate = numbers[0] >= 0;
    float *x = inputs(&rng, ROWS, COLS), route[ROWS * 2 * USED], *got = rg_array(ROWS * COLS, sizeof *got), one[COLS];
    twice t[3];
    world u;

    open_world(&u, world_cpu(0), recipe);
    for (int i = 0; i < 3; i++)
        make(&t[i], &rng, types[recipe], (int[]){ EXPERTS, i == 2 ? COLS : FFN, i == 2 ? FFN : COLS },
             numbers[i] < 0 ? 0 : numbers[i], i == 1 && gate && numbers[1] == numbers[0] ? &t[0] : NULL);
    for (int r = 0; r < ROWS; r++) {
        const int32_t id[USED] = { r % (EXPERTS - 1), EXPERTS - 1 };

        memcpy(route + r * 2 * USED, id, sizeof id);
        route[r * 2 * USED + 2] = 0.25f + 0.01f * (float)r;
        route[r * 2 * USED + 3] = 0.7f;
    }
    mixture j = { .x = x, .route = route, .n = ROWS, .w = { gate ? &t[0].w : NULL, &t[1].w, &t[2].w }, .y = got,
                  .routing = { .n_experts = EXPERTS, .n_used = USED, .weigh_input = weigh_input } };
    run_moe(&u, &j);
    for (int r = 0; r < ROWS; r += 4) {
        float want[COLS] = { 0 }, part[COLS], in[COLS];

        for (int k = 0; k < USED; k++) {
            const float by = route[r * 2 * USED + USED + k];
            int32_t id;

            memcpy(&id, route + r * 2 * USED + k, sizeof id);
            for (int i = 0; i < COLS; i++)
                in[i] = weigh_input ? x[r * COLS + i] * by : x[r * COLS + i];
            expert(&u, t, id, gate, in, part);
            for (int i = 0; i < COLS; i++)
                want[i] = fmaf(weigh_input ? 1.0f : by, part[i], want[i]);
        }
        assert_memory_equal(got + r * COLS, want, sizeof want);
        mixture single = j;
        single.x = x + r * COLS;
        single.route = route + r * 2 * USED;
        single.n = 1;
        single.y = one;
        run_moe(&u, &single);
        assert_memory_equal(got + r * COLS, one, sizeof one);
    }
    for (int i = 0; i < 3; i++)
        drop(&t[i]);
    rg_free(x);
    rg_free(got);
    world_fini(&u);
}

/* Each expert has orders of its own: gate's and up's alike, or not, or one of them none. */
static void experts_read_their_orders(void **state)
{
    static const int numbers[][3] = {
        { 1, 1, 2 }, { 1, 2, 3 }, { 0, 1, 0 }, { 1, 0, 2 }, { 0, 0, 1 }, { -1, 1, 2 }, { -1, 1, 0 },
    };

    (void)state;
    for (int recipe = 0; recipe < WAYS; recipe++)
        for (size_t i = 0; i < RG_LEN(numbers); i++)
            experts_case((enum way)recipe, numbers[i], i % 3 == 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_read_the_order),
        cmocka_unit_test(gated_reads_the_orders),
        cmocka_unit_test(heads_read_the_order),
        cmocka_unit_test(experts_read_their_orders),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
