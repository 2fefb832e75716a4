/* test_recurrent.c -- convolution (two results of each channel) and scan of these: the formula, and the same bits however
 * cut, drafted and replayed. */
#include "world.h"

enum { INNER = 150, STATE = 5, CONV = 4, PLACES = 90 };

/* Random inputs by place: of the sequence, and of the wrong drafts that are tried at it. */
typedef struct inputs {
    float *x, *dt, *bc;
} inputs;

typedef struct setup {
    inputs right, wrong;
    float *a, *d, *w, *bias;
    rg_weight wa, wd, ww, wb;
    rg_buffer tail, h;
} setup;

typedef struct step {
    const setup *s;
    const inputs *from[PLACES]; /* per row */
    int place[PLACES];
    int n_rows;
    float *y;
} step;

static inputs random_inputs(rg_rng *rng)
{
    return (inputs){ random_floats(rng, PLACES * INNER, 1.0f), random_floats(rng, PLACES * INNER, 1.0f),
                     random_floats(rng, (size_t)PLACES * 2 * STATE, 1.0f) };
}

static void free_inputs(inputs *i)
{
    rg_free(i->x);
    rg_free(i->dt);
    rg_free(i->bc);
}

static void setup_init(setup *s, rg_rng *rng)
{
    s->right = random_inputs(rng);
    s->wrong = random_inputs(rng);
    s->a = random_floats(rng, STATE * INNER, 1.0f);
    for (int i = 0; i < STATE * INNER; i++)
        s->a[i] = -fabsf(s->a[i]);
    s->d = random_floats(rng, INNER, 1.0f);
    s->w = random_floats(rng, 2 * INNER * CONV, 0.5f);
    s->bias = random_floats(rng, 2 * INNER, 0.5f);
    s->wa = (rg_weight){ .name = "a", .type = RG_F32, .n_mats = 1, .rows = STATE, .cols = INNER, .vec = s->a };
    s->wd = vector(s->d, INNER);
    s->ww = (rg_weight){ .name = "taps", .type = RG_F32, .n_mats = 1, .rows = 2 * INNER, .cols = CONV, .vec = s->w };
    s->wb = vector(s->bias, 2 * INNER);
}

static void setup_fini(setup *s)
{
    free_inputs(&s->right);
    free_inputs(&s->wrong);
    rg_free(s->a);
    rg_free(s->d);
    rg_free(s->w);
    rg_free(s->bias);
}

static void place(rg_buffer *b, int max_draft, size_t *bytes)
{
    b->max_draft = max_draft;
    b->offset = *bytes;
    b->draft_offset = b->offset + b->bytes + 64;
    *bytes = (b->draft_offset + (size_t)max_draft * b->draft_bytes + 127) / 64 * 64;
}

static void world_for(world *w, setup *s, const rg_cpu *cpu, int n_threads, int max_draft)
{
    static const rg_reader_sizes sizes = { .max_rows = PLACES, .max_cols = 512, .max_heads = 1, .max_head_dim = 8 };
    size_t bytes = 64;

    world_init(w, cpu, n_threads, &sizes);
    s->tail = rg_conv_tail("tail", INNER, CONV);
    s->h = rg_scan_state("h", INNER, STATE);
    place(&s->tail, max_draft, &bytes);
    place(&s->h, max_draft, &bytes);
    w->groups[0] = (rg_group_memory){ .data = rg_alloc(3 * bytes), .block_bytes = bytes };
    memset(w->groups[0].data, 0xff, 3 * bytes); /* whatever a slot held before */
}

static void world_end(world *w)
{
    rg_free(w->groups[0].data);
    world_fini(w);
}

static rg_act *rows_of(rg_fwd *f, const step *t, size_t member, int cols)
{
    rg_act *a = rg_act_new(f, "in", cols);

    rg_cpu_place(rg_cpu_fwd_of(f));

    if (f->thread == 0)
        for (int i = 0; i < t->n_rows; i++) {
            float *from;
            memcpy(&from, (const char *)t->from[i] + member, sizeof from);
            memcpy(rg_act_row(f, a, i), from + t->place[i] * cols, (size_t)cols * sizeof(float));
        }
    rg_fwd_barrier(f);
    return a;
}

static void text(rg_fwd *f, void *arg)
{
    const step *t = arg;
    const setup *s = t->s;
    rg_act *x = rows_of(f, t, offsetof(inputs, x), INNER), *dt = rows_of(f, t, offsetof(inputs, dt), INNER);
    rg_act *bc = rows_of(f, t, offsetof(inputs, bc), 2 * STATE), *both = rg_act_new(f, "conv", 2 * INNER);
    rg_act *u = rg_act_view(f, "u", both, 0, INNER), *z = rg_act_view(f, "z", both, INNER, INNER);
    rg_act *y = rg_act_new(f, "y", INNER);

    rg_conv(f, both, x, &s->ww, &s->wb, &s->tail, RG_SILU);
    rg_scan(f, y, u, dt, bc, z, &s->wa, &s->wd, &s->h);
    act_out(f, y, t->y);
}

/* Two sequences at the same places: the second's outputs must equal the first's. */
static void run(world *w, step *t, const rg_span *like)
{
    const int n = t->n_rows;

    memcpy(t->place + n, t->place, (size_t)n * sizeof *t->place);
    memcpy(t->from + n, t->from, (size_t)n * sizeof *t->from);
    t->n_rows = 2 * n;
    world_step_twice(w, like, n, text, t);
    t->n_rows = n;
    assert_memory_equal(t->y, t->y + n * INNER, (size_t)(n * INNER) * sizeof(float));
}

/* The sequence row by row, no drafts. */
static void row_by_row(world *w, const setup *s, float *y)
{
    float *two = rg_array(2 * INNER, sizeof *two);

    for (int i = 0; i < PLACES; i++) {
        step t = { .s = s, .from = { &s->right }, .place = { i }, .n_rows = 1, .y = two };

        run(w, &t, &(rg_span){ .start = i });
        memcpy(y + i * INNER, two, INNER * sizeof(float));
    }
    rg_free(two);
}

/* One of the results of a channel. */
static double convolved(const setup *s, int t, int c, int which)
{
    const float *w = s->w + (which * INNER + c) * CONV;
    double u = s->bias[which * INNER + c];

    for (int j = 0; j < CONV; j++)
        if (t - (CONV - 1) + j >= 0)
            u += (double)w[j] * s->right.x[(t - (CONV - 1) + j) * INNER + c];
    return u / (1 + exp(-u));
}

static void is_the_formula(void **state)
{
    rg_rng rng = { .seed = test_seed };
    float *y = rg_array(PLACES * INNER, sizeof *y);
    setup s;
    world w;

    (void)state;
    setup_init(&s, &rng);
    world_for(&w, &s, rg_cpu_nth(0), 2, 0);
    row_by_row(&w, &s, y);
    for (int c = 0; c < INNER; c += 7) {
        double h[STATE] = { 0 };

        for (int t = 0; t < PLACES; t++) {
            const float *bc = s.right.bc + t * 2 * STATE;
            double u = convolved(&s, t, c, 0), z = convolved(&s, t, c, 1), dt = log1p(exp(s.right.dt[t * INNER + c]));
            double sum = 0, want;

            for (int i = 0; i < STATE; i++) {
                h[i] = exp(dt * s.a[i * INNER + c]) * h[i] + dt * bc[i] * u;
                sum += bc[STATE + i] * h[i];
            }
            want = (sum + s.d[c] * u) * (z / (1 + exp(-z)));
            assert_near(y + t * INNER + c, &want, 1, 2e-5);
        }
    }
    rg_free(y);
    setup_fini(&s);
    world_end(&w);
}

/* Random steps: some rows, the last of them drafts, of which some first ones are right and accepted. */
static void drafts_never_show(void **state)
{
    rg_rng rng = { .seed = test_seed };
    float *want = rg_array(PLACES * INNER, sizeof *want), *y = rg_array(PLACES * INNER, sizeof *y);
    setup s;

    (void)state;
    setup_init(&s, &rng);
    for (int isa = 0; world_cpu(isa); isa++) {
        world w;

        world_for(&w, &s, world_cpu(isa), 1, 0);
        row_by_row(&w, &s, want);
        world_end(&w);
        for (int round = 0; round < 60; round++) {
            int at = 0, replay = 0;

            world_for(&w, &s, world_cpu(isa), 1 + round % 2, RG_MAX_DRAFT);
            while (at < PLACES) {
                int n = 1 + (int)rg_rng_below(&rng, round % 3 ? 6 : 40);
                int draft = (int)rg_rng_below(&rng, (uint32_t)n + 1), right;
                step t = { .s = &s, .y = y };

                n = n < PLACES - at ? n : PLACES - at;
                n = n < PLACES / 2 ? n : PLACES / 2;
                draft = draft < n ? draft : n;
                right = n - draft + (int)rg_rng_below(&rng, (uint32_t)draft + 1);
                for (int i = 0; i < n; i++) {
                    t.place[i] = at + i;
                    t.from[i] = i < right ? &s.right : &s.wrong;
                }
                t.n_rows = n;
                run(&w, &t, &(rg_span){ .start = at, .n_draft = draft, .n_replay = replay });
                assert_memory_equal(y, want + at * INNER, (size_t)(right * INNER) * sizeof(float));
                replay = right - (n - draft);
                at += right;
            }
            world_end(&w);
        }
    }
    rg_free(want);
    rg_free(y);
    setup_fini(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_formula),
        cmocka_unit_test(drafts_never_show),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("recurrent", tests, NULL, NULL);
}
