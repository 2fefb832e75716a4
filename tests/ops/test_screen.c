/* Logits of which only those are computed that can be drawn, against all of them: the same bits where there are any, and
 * the same ids drawn, on every instruction set. */
#include "ops/world.h"

#include "engine/sampler.h"

enum { VOCAB = 1003, COLS = 96, MOST = 4, PANELS = (VOCAB + 15) / 16 };

typedef struct job {
    const float *x;
    int n;
    const rg_weight *w, *bias;
    rg_head_shape shape;
    float *y;
} job;

static void text(rg_fwd *f, void *arg)
{
    const job *j = arg;
    rg_act *x = act_of(f, "x", j->x, j->n, COLS), *y = rg_act_rows(f, "y", j->n, VOCAB);

    rg_linear_head(f, y, x, j->w, j->bias, j->shape);
    if (j->shape.scale != 1)
        rg_scale_by(f, y, j->shape.scale);
    if (j->shape.cap > 0)
        rg_softcap(f, y, j->shape.cap);
    rg_fwd_barrier(f);
    act_out(f, y, j->y);
}

/* Rows of the head that are of different lengths, some of them twice (equal logits), one of zeros. */
static float *make_head(rg_rng *rng)
{
    float *w = random_floats(rng, (size_t)VOCAB * COLS, 1.0f);

    for (int r = 0; r < VOCAB; r++)
        for (int k = 0; k < COLS; k++)
            w[r * COLS + k] *= 0.1f + (r % 7 == 0 ? 0.05f : 0);
    for (int r = 40; r < VOCAB; r += 97)
        memcpy(w + (r - 33) * COLS, w + r * COLS, COLS * sizeof *w);
    memset(w + 500 * COLS, 0, COLS * sizeof *w);
    return w;
}

/* Kinds of rows: as those of a trained model, near some row of the head; near the mean of two; of no direction; of huge
 * numbers in a few columns; all 0. */
enum { NEAR, BETWEEN, NOISE, PEAKS, ZERO, N_KINDS };

static void make_row(rg_rng *rng, const float *w, int kind, float *x)
{
    const float *a = w + rg_rng_below(rng, VOCAB) * COLS, *b = w + rg_rng_below(rng, VOCAB) * COLS;

    for (int k = 0; k < COLS; k++) {
        const float noise = rg_rng_normal(rng);

        x[k] = kind == NEAR      ? 12 * a[k] + 0.3f * noise
               : kind == BETWEEN ? 8 * a[k] + 8 * b[k] + 0.1f * noise
               : kind == NOISE   ? noise
               : kind == PEAKS   ? 12 * a[k] + (k % 40 ? 0 : 30 * noise)
                                 : 0;
    }
}

typedef struct head {
    rg_packed packed;
    rg_weight weight, bias;
    float *bias_values;
} head;

static void head_init(head *h, rg_type type, const float *w, rg_rng *rng)
{
    const rg_format *f = rg_format_of(type);
    rg_error err;

    memset(h, 0, sizeof *h);
    assert_ok(rg_packed_init(&h->packed, type, 1, VOCAB, COLS, &err), err);
    for (int r = 0; r < VOCAB; r++) {
        uint8_t row[COLS * 4];

        f->encode(w + r * COLS, COLS / f->block_len, row);
        rg_pack_row(&h->packed, 0, r, row);
    }
    h->bias_values = random_floats(rng, VOCAB, 1.0f);
    h->weight = (rg_weight){
        .name = "head", .type = type, .n_mats = 1, .rows = VOCAB, .cols = COLS, .placed = &h->packed.placed
    };
    h->bias =
        (rg_weight){ .name = "bias", .type = RG_F32, .n_mats = 1, .rows = 1, .cols = VOCAB, .vec = h->bias_values };
}

static void head_fini(head *h)
{
    rg_packed_fini(&h->packed);
    rg_free(h->bias_values);
}

/* ---- against all logits ------------------------------------------------------------------------------------------ */

static void compare_bits(const float *all, const float *some, float left_out)
{
    for (int i = 0; i < VOCAB; i++)
        if (memcmp(&all[i], &some[i], sizeof *all) && memcmp(&some[i], &left_out, sizeof left_out))
            fail_msg("id %d: %.9g, and %.9g of all", i, (double)some[i], (double)all[i]);
}

/* The id that is drawn of logits, by all rules. */
static int32_t draw(rg_sampler *s, const float *logits, const rg_sampling *p, const rg_sample_place *at)
{
    static float y[VOCAB];

    memcpy(y, logits, sizeof y);
    rg_sample_rules(s, y, p, at);
    return rg_sample_draw(s, y, p, &at->key);
}

static const rg_sampling *sampling_of(int i)
{
    static rg_sampling p;
    static const float temperatures[] = { 0.02f, 0.5f, 1, 1.7f, 40 };

    p = (rg_sampling){ .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1 };
    if (i == 0)
        return &p;
    p.temperature = temperatures[i % 5];
    if (i % 3 == 0) {
        p.top_k = (int[]){ 1, 2, 40, 128 }[i / 3 % 4];
        p.top_p = i % 2 ? 0.9f : 1;
        p.min_p = i % 4 == 1 ? 0.05f : 0;
        p.xtc_probability = i % 5 == 0 ? 0.7f : 0;
        p.xtc_threshold = 0.1f;
    }
    return &p;
}
enum { N_SAMPLINGS = 16 };

typedef struct tried {
    rg_sampler *sampler;
    uint64_t n_drawn;
} tried;

/* All rows at once, each drawn from in another way. */
static void try_rows(world *u, job *j, int from, tried *t)
{
    static float all[MOST * VOCAB], some[MOST * VOCAB];
    rg_pick picks[MOST];
    int32_t logit_rows[MOST] = { 0, 1, 2, 3 };
    rg_span span = { .n_rows = j->n, .start = 64 + from };
    rg_batch b = { .n_rows = j->n, .n_spans = 1, .spans = &span, .n_logits = j->n, .logit_rows = logit_rows };
    const float left_out = j->shape.cap > 0 ? -j->shape.cap : RG_LEFT_OUT * j->shape.scale;

    j->y = all;
    world_step(u, &b, text, j);
    for (int i = 0; i < j->n; i++)
        picks[i] = rg_sample_pick(sampling_of((from + i) % N_SAMPLINGS),
                                  &(rg_sample_key){ .seed = 7 + (uint64_t)from, .sample = i, .position = from });
    b.picks = picks;
    j->y = some;
    world_step(u, &b, text, j);
    for (int i = 0; i < j->n; i++) {
        const rg_sampling *p = sampling_of((from + i) % N_SAMPLINGS);
        const rg_sample_place at = { .key = { .seed = 7 + (uint64_t)from, .sample = i, .position = from } };

        compare_bits(all + i * VOCAB, some + i * VOCAB, left_out);
        const int32_t want = draw(t->sampler, all + i * VOCAB, p, &at),
                      got = draw(t->sampler, some + i * VOCAB, p, &at);
        if (want != got)
            fail_msg("row %d of %d, way %d: id %d is drawn, and %d of all", i, j->n, (from + i) % N_SAMPLINGS, got,
                     want);
        t->n_drawn++;
    }
}

static void try_head(const rg_cpu *cpu, head *h, const float *w, bool exact, tried *t)
{
    static const rg_head_shape shapes[] = { { 1, 0 }, { 0.5f, 0 }, { 3, 0 }, { 1, 30 }, { 1, 2 } };
    const rg_reader_sizes sizes = { .max_rows = MOST, .max_cols = VOCAB, .head = &h->weight };
    const int n_rounds = 60 / TEST_SLOWER;
    rg_rng rng = { .seed = 3 };
    float x[MOST * COLS];
    world u;

    world_init(&u, cpu, 2, &sizes);
    u.exact = exact;
    u.lazy = true;
    rg_cpu_reader_sketch(u.reader, true);
    for (int round = 0; round < n_rounds; round++) {
        job j = { .x = x,
                  .n = 1 + round % MOST,
                  .w = &h->weight,
                  .bias = round % 3 ? NULL : &h->bias,
                  .shape = shapes[round / 2 % 5] };

        for (int i = 0; i < j.n; i++)
            make_row(&rng, w, (int)rg_rng_below(&rng, N_KINDS), x + i * COLS);
        try_rows(&u, &j, round * MOST, t);
    }
    const rg_screen_counts c = rg_cpu_screen_counts(u.reader);
    assert_true(c.n_rows > 0 && c.n_panels == c.n_rows * PANELS);
    assert_true(c.n_computed < c.n_panels);
    world_fini(&u);
}

static void test_all_ways(void **state)
{
    static const rg_type types[] = { RG_Q8_0, RG_F16, RG_BF16, RG_F32 };
    rg_rng rng = { .seed = 1 };
    float *w = make_head(&rng);
    rg_error err;
    tried t = { .sampler = rg_sampler_new(VOCAB, 8, &err) };

    (void)state;
    assert_ok(t.sampler, err);
    for (size_t i = 0; i < RG_LEN(types); i++) {
        head h;

        head_init(&h, types[i], w, &rng);
        for (int isa = 0; world_cpu(isa); isa++) {
            try_head(world_cpu(isa), &h, w, false, &t);
            try_head(world_cpu(isa), &h, w, true, &t);
        }
        head_fini(&h);
    }
    rg_sampler_free(t.sampler);
    rg_free(w);
}

/* ---- how it is made ---------------------------------------------------------------------------------------------- */

typedef struct opening {
    rg_lane_options o;
    int n_opened;
} opening;

static void open_lane(void *arg, int thread)
{
    const rg_backend *b = rg_backend_find("auto", NULL);
    opening *t = arg;
    rg_error err;

    if (thread)
        return;
    rg_lane *l = b->open(b, &t->o, &err);
    t->n_opened += l != NULL;
    b->close(l);
}

/* The pool belongs to the steps of all models of a host, and one of them may run while another model is opened. */
static void test_made_beside_steps(void **state)
{
    rg_rng rng = { .seed = 4 };
    float *w = make_head(&rng);
    rg_error err;
    head h;

    (void)state;
    head_init(&h, RG_F32, w, &rng);
    rg_pool *pool = rg_pool_new(2, &err);
    assert_ok(pool, err);
    opening t = { .o = { .pool = pool, .activation_bytes = 4096, .sizes = { .n_threads = 2, .max_rows = 1, .max_cols = VOCAB,
                                                                            .head = &h.weight } } };
    rg_pool_run(pool, 2, open_lane, &t);
    assert_int_equal(t.n_opened, 1);
    rg_pool_free(pool);
    head_fini(&h);
    rg_free(w);
}

/* ---- what is left out -------------------------------------------------------------------------------------------- */

/* Panels that were computed for n rows of a kind, with the best id wanted of each. */
static uint64_t computed(head *h, const float *w, int kind, int n)
{
    const rg_reader_sizes sizes = { .max_rows = 1, .max_cols = VOCAB, .head = &h->weight };
    const rg_pick pick = { .k = 1 };
    const int32_t zero = 0;
    float x[COLS], y[VOCAB];
    rg_rng rng = { .seed = 5 };
    world u;

    world_init(&u, world_cpu(0), 2, &sizes);
    u.lazy = true;
    rg_cpu_reader_sketch(u.reader, true);
    for (int i = 0; i < n; i++) {
        const rg_span span = { .n_rows = 1, .start = 1 };
        const rg_batch b = {
            .n_rows = 1, .n_spans = 1, .spans = &span, .n_logits = 1, .logit_rows = &zero, .picks = &pick
        };
        job j = { .x = x, .n = 1, .w = &h->weight, .shape = { 1, 0 }, .y = y };

        make_row(&rng, w, kind, x);
        if (kind == N_KINDS)
            x[i % COLS] = i % 2 ? NAN : INFINITY;
        world_step(&u, &b, text, &j);
    }
    const rg_screen_counts c = rg_cpu_screen_counts(u.reader);
    world_fini(&u);
    assert_int_equal(c.n_rows, n);
    return c.n_computed;
}

static void test_how_many(void **state)
{
    rg_rng rng = { .seed = 2 };
    float *w = make_head(&rng);
    head h;

    (void)state;
    head_init(&h, RG_Q8_0, w, &rng);
    assert_true(computed(&h, w, NEAR, 20) < 20 * 4); /* the row itself, and its twin */
    assert_int_equal(computed(&h, w, ZERO, 3), 3 * PANELS);
    assert_int_equal(computed(&h, w, N_KINDS, 4), 4 * PANELS); /* not finite: all, so that it is noticed */
    for (int k = 0; k < COLS; k++) /* a weight that is not finite: its panel always, and no other because of it */
        w[(size_t)(16 * 3) * COLS + (size_t)k] = NAN;
    head_fini(&h);
    head_init(&h, RG_F32, w, &rng);
    uint64_t n = computed(&h, w, NEAR, 20);
    assert_true(n >= 20 && n < 20 * 5);
    head_fini(&h);
    rg_free(w);
}

/* Which ways of drawing want all logits. */
static void test_picks(void **state)
{
    const rg_sample_key key = { 0 };
    rg_sampling p = *sampling_of(0);

    (void)state;
    assert_int_equal(rg_sample_pick(&p, &key).k, 1);
    p.temperature = 0.7f;
    assert_int_equal(rg_sample_pick(&p, &key).k, 1);
    assert_true(rg_sample_pick(&p, &key).temperature == 0.7f);
    p.top_p = 0.9f;
    assert_int_equal(rg_sample_pick(&p, &key).k, 0);
    p.top_k = 40;
    assert_int_equal(rg_sample_pick(&p, &key).k, 40);
    p.n_logprobs = 0;
    assert_int_equal(rg_sample_pick(&p, &key).k, 0);
    p.n_logprobs = -1;
    p.frequency_penalty = 0.1f;
    assert_int_equal(rg_sample_pick(&p, &key).k, 0);
    p.frequency_penalty = 0;
    p.dynatemp_range = 0.5f;
    assert_int_equal(rg_sample_pick(&p, &key).k, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ways),
        cmocka_unit_test(test_made_beside_steps),
        cmocka_unit_test(test_how_many),
        cmocka_unit_test(test_picks),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
