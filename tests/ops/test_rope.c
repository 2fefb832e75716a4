/* test_rope.c -- variants of a rope: every span of a batch is rotated by its own, and has the bits that it has alone. */
#include "world.h"

enum { HEAD_DIM = 24, HEADS = 2, COLS = HEADS * HEAD_DIM, PAIRS = 10, MAX_ROWS = 64, LAYERS = 3 };

static const rg_reader_sizes sizes = { .max_rows = MAX_ROWS, .max_cols = COLS, .max_heads = HEADS, .max_head_dim = HEAD_DIM,
                                    .max_keys = 64 };

/* Three variants, and a rope that has but one. */
static const float frequencies[4][PAIRS] = { { 1, 0.5f, 0.25f, 0.1f, 0.05f, 0.02f, 0.01f, 0.004f, 0.002f, 0.001f },
                                             { 0.9f, 0.4f, 0.2f, 0.08f, 0.03f, 0.01f, 0.005f, 0.001f, 5e-4f, 2e-4f },
                                             { 0.7f, 0.3f, 0.1f, 0.07f, 0.02f, 0.008f, 0.004f, 9e-4f, 4e-4f, 1e-4f },
                                             { 0.8f, 0.6f, 0.3f, 0.2f, 0.1f, 0.05f, 0.03f, 0.02f, 0.01f, 0.005f } };
static const rg_rope varied[3] = { { 3, PAIRS, frequencies[0], 1.0f, false, 0, 0, 0 },
                                   { 3, PAIRS, frequencies[1], 1.2f, false, 0, 0, 0 },
                                   { 3, PAIRS, frequencies[2], 0.9f, false, 0, 0, 0 } };
static const rg_rope single = { 1, PAIRS, frequencies[3], 1.0f, true, 0, 0, 0 };

typedef struct job {
    const float *x; /* [n, COLS] */
    int n;
    float *y;
} job;

/* Layers take turns between the two ropes. */
static void text(rg_fwd *f, void *arg)
{
    const job *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, COLS);

    for (int layer = 0; layer < LAYERS; layer++) {
        rg_rotate(f, x, varied, HEAD_DIM, 2);
        rg_rotate(f, x, &single, HEAD_DIM, 2);
    }
    act_out(f, x, j->y);
}

static void run_spans_by(world *w, const rg_span *spans, int n_spans, void (*by)(rg_fwd *f, void *arg), const job *j)
{
    int32_t pos[MAX_ROWS][4] = { 0 };
    rg_batch b = { .n_rows = j->n, .n_spans = n_spans, .spans = spans, .pos = (const int32_t(*)[4])pos };

    for (int s = 0; s < n_spans; s++)
        for (int i = 0; i < spans[s].n_rows; i++)
            pos[spans[s].first_row + i][0] = spans[s].start + i;
    world_step(w, &b, by, (void *)(uintptr_t)j);
}

static void run_spans(world *w, const rg_span *spans, int n_spans, const job *j)
{
    run_spans_by(w, spans, n_spans, text, j);
}

static void turn(double *head, const rg_rope *rope, int pos)
{
    for (int i = 0; i < PAIRS; i++) {
        double *a = head + 2 + (rope->interleaved ? 2 * i : i), *b = a + (rope->interleaved ? 1 : PAIRS), t = *a;
        double c = cos(pos * (double)rope->inv_freq[i]) * (double)rope->factor;
        double s = sin(pos * (double)rope->inv_freq[i]) * (double)rope->factor;

        *a = t * c - *b * s;
        *b = *b * c + t * s;
    }
}

static void check_row(const float *x, const float *y, int variant, int pos)
{
    double want[COLS];

    for (int i = 0; i < COLS; i++)
        want[i] = (double)x[i];
    for (int h = 0; h < HEADS; h++)
        for (int layer = 0; layer < LAYERS; layer++) {
            turn(want + h * HEAD_DIM, &varied[variant], pos);
            turn(want + h * HEAD_DIM, &single, pos);
        }
    assert_near(y, want, COLS, 2e-5);
}

/* Variants change from step to step for the same rows and positions, as when sequences come and go; 5 is beyond the last
 * variant, and means the last. */
static void spans_use_their_variants(void **state)
{
    static const int variants[][3] = { { 0, 1, 2 }, { 1, 1, 0 }, { 2, 0, 5 }, { 0, 0, 0 } };

    (void)state;
    for (int isa = 0; world_cpu(isa); isa++) {
        rg_rng rng = { .seed = test_seed };
        rg_span spans[3] = { { .n_rows = 7, .start = 100 }, { .first_row = 7, .n_rows = 1, .start = 5000 },
                             { .first_row = 8, .n_rows = 20 } };
        float *x = random_floats(&rng, 28 * COLS, 1), y[28 * COLS], alone[28 * COLS];
        world u, w;

        world_init(&u, world_cpu(isa), 2, &sizes);
        for (size_t step = 0; step < RG_LEN(variants); step++) {
            for (int s = 0; s < 3; s++)
                spans[s].rope = variants[step][s];
            run_spans(&u, spans, 3, &(job){ x, 28, y });
            for (int s = 0; s < 3; s++) {
                rg_span one = spans[s];
                const int first = one.first_row, variant = one.rope < 3 ? one.rope : 2;

                for (int i = 0; i < one.n_rows; i++)
                    check_row(x + (first + i) * COLS, y + (first + i) * COLS, variant, one.start + i);
                one.first_row = 0;
                world_init(&w, world_cpu(isa), 1, &sizes); /* which remembers nothing */
                run_spans(&w, &one, 1, &(job){ x + first * COLS, one.n_rows, alone });
                assert_memory_equal(alone, y + first * COLS, (size_t)(one.n_rows * COLS) * sizeof(float));
                world_fini(&w);
            }
        }
        rg_free(x);
        world_fini(&u);
    }
}

static void dynamic_text(rg_fwd *f, void *arg)
{
    static const rg_rope dynamic = { 1, PAIRS, frequencies[0], 1.0f, false, 64, 1e4, 2.5 };
    const job *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, COLS);

    rg_rotate(f, x, &dynamic, HEAD_DIM, 2);
    act_out(f, x, j->y);
}

/* Dynamic NTK: the base follows from how long a sequence may become; up to the original length the table counts. */
static void lengths_have_bases(void **state)
{
    rg_rng rng = { .seed = test_seed };
    rg_span spans[3] = { { .n_rows = 2, .start = 60, .rope = 1 }, { .first_row = 2, .n_rows = 2, .start = 10 },
                         { .first_row = 4, .n_rows = 2, .start = 3000, .rope = 3936 } };
    int32_t pos[6][4] = { { 60 }, { 61 }, { 10 }, { 11 }, { 3000 }, { 3001 } };
    rg_batch b = { .n_rows = 6, .n_spans = 3, .spans = spans, .pos = (const int32_t(*)[4])pos };
    float *x = random_floats(&rng, 6 * COLS, 1), y[6 * COLS];
    job j = { x, 6, y };
    world u;

    (void)state;
    world_init(&u, rg_cpu_nth(0), 2, &sizes);
    world_step(&u, &b, dynamic_text, &j);
    for (int r = 0; r < 6; r++) {
        const int variant = spans[r / 2].rope;
        const double length = 64 + variant, base = 1e4 * pow(2.5 * length / 64 - 1.5, 20.0 / 18);
        float table[PAIRS];
        rg_rope want = { 1, PAIRS, table, 1.0f, false, 0, 0, 0 };
        double row[COLS];

        for (int i = 0; i < PAIRS; i++)
            table[i] = variant ? (float)(1 / pow(base, 2.0 * i / 20)) : frequencies[0][i];
        for (int i = 0; i < COLS; i++)
            row[i] = (double)x[r * COLS + i];
        for (int h = 0; h < HEADS; h++)
            turn(row + h * HEAD_DIM, &want, pos[r][0]);
        assert_near(y + r * COLS, row, COLS, 1e-5);
    }
    rg_free(x);
    world_fini(&u);
}

static void until_text(rg_fwd *f, void *arg)
{
    const job *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, COLS);

    rg_rotate_until(f, x, &single, HEAD_DIM, 2, 13);
    rg_rotate(f, x, &single, HEAD_DIM, 2); /* the angles of one position are not taken for those of another */
    act_out(f, x, j->y);
}

/* Positions beyond the last one turn as that does. */
static void positions_may_end(void **state)
{
    rg_rng rng = { .seed = test_seed };
    rg_span span = { .n_rows = 20 };
    float *x = random_floats(&rng, 20 * COLS, 1), y[20 * COLS];

    (void)state;
    for (int isa = 0; world_cpu(isa); isa++)
        for (int start = 0; start < 4000; start += 1999) {
            world w;

            span.start = start;
            world_init(&w, world_cpu(isa), 2, &sizes);
            run_spans_by(&w, &span, 1, until_text, &(job){ x, 20, y });
            for (int r = 0; r < 20; r++) {
                double want[COLS];

                for (int i = 0; i < COLS; i++)
                    want[i] = (double)x[r * COLS + i];
                for (int h = 0; h < HEADS; h++) {
                    turn(want + h * HEAD_DIM, &single, start + r < 13 ? start + r : 13);
                    turn(want + h * HEAD_DIM, &single, start + r);
                }
                assert_near(y + r * COLS, want, COLS, 2e-5);
            }
            world_fini(&w);
        }
    rg_free(x);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_use_their_variants),
        cmocka_unit_test(lengths_have_bases),
        cmocka_unit_test(positions_may_end),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
