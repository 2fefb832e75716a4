/* test_linear_attention.c -- linear recurrences with matrix states: the formula, and the same bits however cut, drafted
 * and replayed, for each form that a family of models has. */
#include "world.h"

#include "ops/count/count.h"

enum { PLACES = 70, OPERANDS = 7, MOST_COLS = 512, MOST_Y = 6 * 48, HEADS = 6 };
enum { Q, K, V, DECAY, BETA, A, B };

/* Heads of each operand (0: it is not there), and what else a form says. */
typedef struct recurrence_form {
    const char *name;
    int k_dim, v_dim;
    int heads[OPERANDS];
    bool interleaved, delta, decay_per_head, fixed_decay, skip;
} recurrence_form;

static const recurrence_form forms[] = {
    { "ssd", 5, 40, { 2, 2, 6, 6, 6 }, .decay_per_head = true, .skip = true },
    { "gated delta", 16, 32, { 3, 3, 6, 6, 6 }, .interleaved = true, .delta = true, .decay_per_head = true },
    { "kimi delta", 8, 48, { 6, 6, 6, 6, 6 }, .delta = true },
    { "rwkv", 12, 12, { 6, 6, 6, 6, 0, 6, 6 } },
    { "lightning", 7, 33, { 6, 6, 6 }, .fixed_decay = true },
    { "gla", 9, 16, { 6, 2, 2, 2 } },
    { "sum", 3, 1, { 1, 1, 1 } },
};

/* Random inputs by place: of the sequence, and of the wrong drafts that are tried at it. */
typedef struct setup {
    const recurrence_form *form;
    float *in[2][OPERANDS];
    float fixed[HEADS], skip[HEADS];
    rg_weight w_fixed, w_skip;
    rg_buffer state;
} setup;

typedef struct step {
    const setup *s;
    int wrong[2 * PLACES], place[2 * PLACES]; /* per row */
    int n_rows;
    float *y;
} step;

static int cols_of(const recurrence_form *f, int which)
{
    int each = which == V ? f->v_dim : which == BETA || (which == DECAY && f->decay_per_head) ? 1 : f->k_dim;

    return f->heads[which] * each;
}

static void setup_init(setup *s, const recurrence_form *form, rg_rng *rng)
{
    int logged = 0;

    *s = (setup){ .form = form };
    for (int which = 0; which < OPERANDS; which++) {
        const int n = PLACES * cols_of(form, which);

        logged += which == Q ? 0 : cols_of(form, which);
        for (int i = 0; i < 2 && n; i++) {
            float *x = s->in[i][which] = random_floats(rng, (size_t)n, which == K || which > BETA ? 0.3f : 1.0f);
            for (int k = 0; k < n && (which == DECAY || which == BETA); k++)
                x[k] = 1.0f / (1.0f + expf(-2.0f * x[k]));
        }
    }
    for (int h = 0; h < HEADS; h++) {
        s->fixed[h] = 1.0f - 0.1f * (float)h;
        s->skip[h] = rg_rng_normal(rng);
    }
    s->w_fixed = vector(s->fixed, HEADS);
    s->w_skip = vector(s->skip, HEADS);
    s->state = rg_linear_attention_state("state", HEADS, form->k_dim, form->v_dim, logged);
}

static void setup_fini(setup *s)
{
    for (int which = 0; which < OPERANDS; which++) {
        rg_free(s->in[0][which]);
        rg_free(s->in[1][which]);
    }
}

static void world_for(world *w, setup *s, const rg_cpu *cpu, int n_threads, int max_draft)
{
    static const rg_reader_sizes sizes = { .max_rows = 2 * PLACES, .max_cols = 512, .max_heads = 1, .max_head_dim = 8 };
    size_t bytes;

    world_init(w, cpu, n_threads, &sizes);
    s->state.max_draft = max_draft;
    s->state.draft_offset = s->state.bytes + 64;
    bytes = (s->state.draft_offset + (size_t)max_draft * s->state.draft_bytes + 127) / 64 * 64;
    w->groups[0] = (rg_group_memory){ .data = rg_alloc(3 * bytes), .block_bytes = bytes };
    memset(w->groups[0].data, 0xff, 3 * bytes); /* whatever a slot held before */
}

static void world_end(world *w)
{
    rg_free(w->groups[0].data);
    world_fini(w);
}

static rg_act *rows_of(rg_fwd *f, const step *t, int which)
{
    const int cols = cols_of(t->s->form, which);
    rg_act *a = cols ? rg_act_new(f, "in", cols) : NULL;

    rg_cpu_place(rg_cpu_fwd_of(f));
    for (int i = 0; i < t->n_rows && a && f->thread == 0; i++)
        memcpy(rg_act_row(f, a, i), t->s->in[t->wrong[i]][which] + t->place[i] * cols, (size_t)cols * sizeof(float));
    rg_fwd_barrier(f);
    return a;
}

static void text(rg_fwd *f, void *arg)
{
    const step *t = arg;
    const recurrence_form *form = t->s->form;
    rg_act *in[OPERANDS];

    for (int i = 0; i < OPERANDS; i++)
        in[i] = rows_of(f, t, i);
    rg_act *y = rg_act_new(f, "y", HEADS * form->v_dim);
    rg_linear_attention(f, y,
                        &(rg_linear_attention_params){ .n_heads = HEADS, .k_dim = form->k_dim, .v_dim = form->v_dim,
                                                       .interleaved = form->interleaved, .delta = form->delta,
                                                       .scale = 0.7f, .q = in[Q], .k = in[K], .v = in[V],
                                                       .decay = in[DECAY], .beta = in[BETA], .a = in[A], .b = in[B],
                                                       .fixed_decay = form->fixed_decay ? &t->s->w_fixed : NULL,
                                                       .skip = form->skip ? &t->s->w_skip : NULL },
                        &t->s->state);
    if (t->y)
        act_out(f, y, t->y);
}

/* Two sequences at the same places: the second's outputs must equal the first's. */
static void run(world *w, step *t, const rg_span *like)
{
    const int n = t->n_rows, cols = HEADS * t->s->form->v_dim;

    memcpy(t->place + n, t->place, (size_t)n * sizeof *t->place);
    memcpy(t->wrong + n, t->wrong, (size_t)n * sizeof *t->wrong);
    t->n_rows = 2 * n;
    world_step_twice(w, like, n, text, t);
    t->n_rows = n;
    assert_memory_equal(t->y, t->y + n * cols, (size_t)(n * cols) * sizeof(float));
}

/* The sequence row by row, no drafts. */
static void row_by_row(world *w, const setup *s, float *y)
{
    const int cols = HEADS * s->form->v_dim;
    float *two = rg_array(2 * MOST_Y, sizeof *two);

    for (int i = 0; i < PLACES; i++) {
        step t = { .s = s, .place = { i }, .n_rows = 1, .y = two };

        run(w, &t, &(rg_span){ .start = i });
        memcpy(y + i * cols, two, (size_t)cols * sizeof(float));
    }
    rg_free(two);
}

/* The head's part of an operand at a place; NULL: it is not there. */
static const float *part(const setup *s, int which, int place, int head)
{
    const int cols = cols_of(s->form, which), heads = s->form->heads[which];

    if (!cols)
        return NULL;
    head = s->form->interleaved ? head % heads : head / (HEADS / heads);
    return s->in[0][which] + place * cols + head * (cols / heads);
}

/* One row of one column of one head, in double. */
static double define(const setup *s, int place, int head, int col, double *state)
{
    const float *decay = part(s, DECAY, place, head), *a = part(s, A, place, head), *b = part(s, B, place, head);
    const float *q = part(s, Q, place, head), *k = part(s, K, place, head), *v = part(s, V, place, head) + col;
    const double beta = part(s, BETA, place, head) ? (double)*part(s, BETA, place, head) : 1;
    double old = 0, y = 0, d[32];

    for (int i = 0; i < s->form->k_dim; i++) {
        d[i] = decay ? (double)decay[s->form->decay_per_head ? 0 : i] : s->form->fixed_decay ? (double)s->fixed[head] : 1;
        old += (double)(b ? b[i] : s->form->delta ? k[i] : 0) * (b ? state[i] : d[i] * state[i]);
    }
    for (int i = 0; i < s->form->k_dim; i++) {
        double u = beta * ((double)*v - (s->form->delta ? old : 0));

        state[i] = d[i] * state[i] + (a ? (double)a[i] * old : 0) + (double)k[i] * u;
        y += (double)q[i] * state[i];
    }
    return 0.7 * y + (s->form->skip ? (double)s->skip[head] * (double)*v : 0);
}

static void is_the_formula(void **state)
{
    rg_rng rng = { .seed = test_seed };
    float *y = rg_array(PLACES * MOST_Y, sizeof *y);

    (void)state;
    for (size_t i = 0; i < RG_LEN(forms); i++) {
        const int v_dim = forms[i].v_dim;
        setup s;
        world w;

        setup_init(&s, &forms[i], &rng);
        world_for(&w, &s, rg_cpu_nth(0), 2, 0);
        row_by_row(&w, &s, y);
        for (int c = 0; c < HEADS * v_dim; c++) {
            double h[32] = { 0 };

            for (int t = 0; t < PLACES; t++) {
                double want = define(&s, t, c / v_dim, c % v_dim, h);
                assert_near(y + t * HEADS * v_dim + c, &want, 1, 1e-5);
            }
        }
        setup_fini(&s);
        world_end(&w);
    }
    rg_free(y);
}

/* Random steps from place to place: some rows, the last of them drafts, of which some first ones are right. */
static void random_steps(world *w, const setup *s, rg_rng *rng, uint32_t most, const float *want)
{
    const int cols = HEADS * s->form->v_dim;
    float *y = rg_array(2 * PLACES * MOST_Y, sizeof *y);

    for (int at = 0, replay = 0; at < PLACES;) {
        int n = 1 + (int)rg_rng_below(rng, most), draft, right;
        step t = { .s = s, .y = y };

        n = n < PLACES - at ? n : PLACES - at;
        draft = s->state.max_draft ? (int)rg_rng_below(rng, (uint32_t)n + 1) : 0;
        draft = draft < s->state.max_draft ? draft : s->state.max_draft;
        right = n - draft + (int)rg_rng_below(rng, (uint32_t)draft + 1);
        for (int i = 0; i < n; i++) {
            t.place[i] = at + i;
            t.wrong[i] = i >= right;
        }
        t.n_rows = n;
        run(w, &t, &(rg_span){ .start = at, .n_draft = draft, .n_replay = replay });
        assert_memory_equal(y, want + at * cols, (size_t)(right * cols) * sizeof(float));
        replay = right - (n - draft);
        at += right;
    }
    rg_free(y);
}

static void cuts_and_drafts_never_show(void **state)
{
    rg_rng rng = { .seed = test_seed };
    float *want = rg_array(PLACES * MOST_Y, sizeof *want);

    (void)state;
    for (int isa = 0; world_cpu(isa); isa++)
        for (size_t i = 0; i < RG_LEN(forms); i++) {
            setup s;
            world w;

            setup_init(&s, &forms[i], &rng);
            world_for(&w, &s, world_cpu(isa), 1, 0);
            row_by_row(&w, &s, want);
            world_end(&w);
            for (int round = 0; round < 12; round++) {
                world_for(&w, &s, world_cpu(isa), 1 + round % 2, round % 4 ? RG_MAX_DRAFT : 0);
                random_steps(&w, &s, &rng, round % 3 ? 6 : PLACES, want);
                world_end(&w);
            }
            setup_fini(&s);
        }
    rg_free(want);
}

/* What a step of three rows of two sequences costs. */
static void is_counted(void **state)
{
    static const double ops[RG_LEN(forms)] = { 5, 7, 7, 9, 5, 5, 5 };
    rg_rng rng = { .seed = test_seed };
    rg_span spans[2] = { { .n_rows = 2 }, { .n_rows = 1, .first_row = 2 } };
    rg_batch batch = { .n_rows = 3, .n_spans = 2, .spans = spans };

    (void)state;
    for (size_t i = 0; i < RG_LEN(forms); i++) {
        const double cells = (double)(HEADS * forms[i].k_dim * forms[i].v_dim);
        rg_counter counter;
        setup s;
        rg_cpu_fwd f = { .arena = NULL };

        setup_init(&s, &forms[i], &rng);
        rg_counter_init(&counter, NULL, 0);
        rg_count_fwd(&f.base, &counter, &batch);
        f.base.thread = 1; /* so that there are no rows to fill in */
        text(&f.base, &(step){ .s = &s });
        assert_true(counter.total.ops == 3 * cells * ops[i]);
        assert_true(counter.total.state_bytes == 2 * 2 * cells * 4);
        setup_fini(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_the_formula),
        cmocka_unit_test(cuts_and_drafts_never_show),
        cmocka_unit_test(is_counted),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("linear_attention", tests, NULL, NULL);
}
