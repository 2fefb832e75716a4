/* Logits of which only those are computed that can be drawn, against all of them: the same bits where there are any, and
 * the same ids drawn, on every instruction set. */
#include "ops/world.h"

#include "engine/sampler.h"
#include "ops/cpu/sketch.h"

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
 * numbers in a few columns; so large that a cap makes many logits equal; all 0. */
enum { NEAR, BETWEEN, NOISE, PEAKS, LARGE, ZERO, N_KINDS };

static void make_row(rg_rng *rng, const float *w, int kind, float *x)
{
    const float *a = w + rg_rng_below(rng, VOCAB) * COLS, *b = w + rg_rng_below(rng, VOCAB) * COLS;

    for (int k = 0; k < COLS; k++) {
        const float noise = rg_rng_normal(rng);

        x[k] = kind == NEAR      ? 12 * a[k] + 0.3f * noise
               : kind == BETWEEN ? 8 * a[k] + 8 * b[k] + 0.1f * noise
               : kind == NOISE   ? noise
               : kind == PEAKS   ? 12 * a[k] + (k % 40 ? 0 : 30 * noise)
               : kind == LARGE   ? 400 * a[k]
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

static int falling(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return (x < y) - (x > y);
}

/* The k largest logits are all there, whichever of them is drawn. */
static void compare_largest(const float *all, const float *some, int k)
{
    static float sorted[VOCAB];

    if (k < 1)
        return;
    memcpy(sorted, all, sizeof sorted);
    qsort(sorted, VOCAB, sizeof *sorted, falling);
    for (int i = 0; i < VOCAB; i++)
        if (all[i] >= sorted[k - 1] && memcmp(&all[i], &some[i], sizeof *all))
            fail_msg("id %d of the %d largest is left out: %.9g", i, k, (double)all[i]);
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
        compare_largest(all + i * VOCAB, some + i * VOCAB, picks[i].k);
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

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* What the sketch has of weight (id, k), the center apart. */
static double sketched(const rg_sketch *s, int id, int k)
{
    const uint8_t *panel = rg_sketch_panel(s, id / RG_PANEL);
    const rg_sketch_head *of_rows = (const void *)panel;
    const int b = k / 32, at = k % 16, lane = id % RG_PANEL;
    const uint8_t codes = rg_sketch_codes_of(panel, s->n_blocks)[b].q[at / 4][lane][at % 4];
    const int code = (k % 32 < 16 ? codes & 15 : codes >> 4) - 8;

    return code * ((double)rg_sketch_scales_of(panel)[b].d[lane] * (double)of_rows->d[lane]);
}

/* The worst row there is for an id: what the sketch misses of it, so that in each block the error is as large as its
 * bound; block 0 is left out at times, since its size hides what is wrong in others. */
static void make_worst(const rg_sketch *s, const rg_packed *w, int id, float *x)
{
    float v[COLS];

    rg_unpack_row(w, 0, id, v);
    for (int k = 0; k < COLS; k++)
        x[k] = (float)(100 * ((double)v[k] - (double)s->center[k] - sketched(s, id, k)));
    if (id % 3 == 0)
        memset(x, 0, 32 * sizeof *x);
}

/* The bounds of all ids, as screen.c has them. */
static void bounds_of(const rg_cpu *cpu, const rg_sketch *s, rg_recipe recipe, const float *x, double *mid, double *off)
{
    static float m[PANELS * RG_PANEL], o[PANELS * RG_PANEL];
    rg_xblock q[COLS / 32];
    float norm[COLS / 32];
    rg_sketch_row row = { .q = q, .norm = norm };

    cpu->quantize(x, COLS, q);
    assert_true(rg_sketch_read_row(s, recipe, x, &row));
    cpu->sketch(&(rg_sketch_product){ .panel = s->data, .panel_bytes = s->panel_bytes, .n_panels = s->n_panels,
                                      .n_blocks = s->n_blocks, .q = q, .norm = norm, .mid = m, .off = o });
    for (int i = 0; i < VOCAB; i++) {
        mid[i] = (double)m[i] + row.shift;
        off[i] = (double)o[i] * (1 + 0x1p-10) + row.slack;
    }
}

/* Every logit lies within its bounds, and of worst rows some lie so near them that less would not do; returns how
 * near, as a share of the bound without what rounding may add. */
static double check_bounds(world *u, const head *h, const rg_sketch *s, const float *x)
{
    static double mid[VOCAB], off[VOCAB];
    static float y[VOCAB];
    const rg_recipe recipe = u->exact ? RG_EXACT : rg_cpu_nth(0)->fast[h->packed.layout];
    const rg_span span = { .n_rows = 1, .start = 1 };
    const int32_t zero = 0;
    const rg_batch b = { .n_rows = 1, .n_spans = 1, .spans = &span, .n_logits = 1, .logit_rows = &zero };
    job j = { .x = x, .n = 1, .w = &h->weight, .shape = { 1, 0 }, .y = y };
    double nearest = 0;

    world_step(u, &b, text, &j);
    bounds_of(rg_cpu_nth(0), s, recipe, x, mid, off);
    for (int i = 0; i < VOCAB; i++) {
        const double apart = fabs((double)y[i] - mid[i]);

        if (!(apart <= off[i]))
            fail_msg("id %d: %.9g, and the bound says %.9g +- %.9g", i, (double)y[i], mid[i], off[i]);
        nearest = fmax(nearest, off[i] > 0 ? apart / off[i] : 0);
    }
    return nearest;
}

static void test_bounds(void **state)
{
    static const rg_type types[] = { RG_Q8_0, RG_F16, RG_BF16, RG_F32 };
    rg_rng rng = { .seed = 4 };
    float *w = make_head(&rng), x[COLS];

    (void)state;
    for (int exact = 0; exact < 2; exact++)
        for (size_t i = 0; i < RG_LEN(types); i++) {
            head h;
            world u;
            double nearest = 0;

            head_init(&h, types[i], w, &rng);
            const rg_reader_sizes sizes = { .max_rows = 1, .max_cols = VOCAB, .head = &h.weight };
            world_init(&u, rg_cpu_nth(0), 2, &sizes);
            u.exact = exact;
            rg_sketch *s = rg_sketch_new(&h.packed, 2);
            assert_non_null(s);
            for (int id = 0; id < VOCAB; id += 17 * TEST_SLOWER) {
                make_worst(s, &h.packed, id, x);
                nearest = fmax(nearest, check_bounds(&u, &h, s, x));
                make_row(&rng, w, id % N_KINDS, x);
                check_bounds(&u, &h, s, x);
            }
            assert_true(nearest > (u.exact || types[i] != RG_Q8_0 ? 0.3 : 0.97));
            rg_sketch_free(s);
            world_fini(&u);
            head_fini(&h);
        }
    rg_free(w);
}

/* Rows of the head that the sketch has exactly but for one value in each block, where half a step is missed; and a row
 * of x whose rounding to int8 loses as much as it can, in the direction that makes all logits larger.  Every 31st row
 * is 0, and so is the mean that is taken off. */
static void test_rounding_of_rows(void **state)
{
    float *w = rg_array((size_t)VOCAB * COLS, sizeof *w), x[COLS];
    rg_rng rng = { .seed = 6 };
    head h;
    world u;

    (void)state;
    assert_non_null(w);
    for (int r = 0; r < VOCAB; r++)
        for (int k = 0; k < COLS; k++)
            w[r * COLS + k] = r % 31 == 0 ? 0 : (k % 32 ? 7.0f : -8.5f) / 64;
    for (int k = 0; k < COLS; k++)
        x[k] = k % 32 ? 0.49f : -127;
    head_init(&h, RG_F32, w, &rng);
    world_init(&u, rg_cpu_nth(0), 1, &(rg_reader_sizes){ .max_rows = 1, .max_cols = VOCAB, .head = &h.weight });
    u.exact = true;
    rg_sketch *s = rg_sketch_new(&h.packed, 1);
    assert_non_null(s);
    check_bounds(&u, &h, s, x);
    rg_sketch_free(s);
    world_fini(&u);
    head_fini(&h);
    rg_free(w);
}

/* A head of families of four rows that are nearly the same, far from each other. */
static float *make_families(rg_rng *rng)
{
    enum { FAMILIES = 250 };
    float *w = random_floats(rng, (size_t)VOCAB * COLS, 0.02f), *base = random_floats(rng, FAMILIES * COLS, 1.0f);

    for (int r = 0; r < VOCAB; r++)
        for (int k = 0; k < COLS; k++)
            w[r * COLS + k] += base[r % FAMILIES * COLS + k];
    rg_free(base);
    return w;
}

static int best_of(const float *y)
{
    int best = 0;

    for (int i = 1; i < VOCAB; i++)
        best = y[i] > y[best] ? i : best;
    return best;
}

/* Rows for which the sketch is as wrong of one id as its bound admits, and of that id's family hardly: often it is the
 * best by its logit and the last by the sketch. */
static void test_bounds_are_reached(void **state)
{
    static float all[VOCAB], some[VOCAB];
    const rg_pick pick = { .k = 1 };
    const rg_span span = { .n_rows = 1, .start = 1 };
    const int32_t zero = 0;
    rg_rng rng = { .seed = 8 };
    float *w = make_families(&rng), x[COLS];
    int n_last = 0;
    head h;
    world u;

    (void)state;
    head_init(&h, RG_F32, w, &rng);
    world_init(&u, rg_cpu_nth(0), 1, &(rg_reader_sizes){ .max_rows = 1, .max_cols = VOCAB, .head = &h.weight });
    u.exact = u.lazy = true;
    rg_cpu_reader_sketch(u.reader, true);
    rg_sketch *s = rg_sketch_new(&h.packed, 1);
    assert_non_null(s);
    for (int id = 1; id < VOCAB; id += 5) {
        rg_batch b = { .n_rows = 1, .n_spans = 1, .spans = &span, .n_logits = 1, .logit_rows = &zero };
        job j = { .x = x, .n = 1, .w = &h.weight, .shape = { 1, 0 }, .y = all };

        for (int k = 0; k < COLS; k++) {
            const double v = (double)w[id * COLS + k];
            x[k] = (float)(2 * v + 30 * (v - (double)s->center[k] - sketched(s, id, k)));
        }
        world_step(&u, &b, text, &j);
        b.picks = &pick;
        j.y = some;
        world_step(&u, &b, text, &j);
        n_last += best_of(all) == id;
        if (best_of(all) != best_of(some))
            fail_msg("row %d: id %d is the best, and %d of all", id, best_of(some), best_of(all));
    }
    const rg_screen_counts c = rg_cpu_screen_counts(u.reader);
    assert_true(n_last > 20 && c.n_computed < c.n_panels / 2);
    rg_sketch_free(s);
    world_fini(&u);
    head_fini(&h);
    rg_free(w);
}

/* Where a cap makes many logits equal, the best of them is the lowest id, whatever it was before. */
static void test_caps(void **state)
{
    static float all[VOCAB], some[VOCAB];
    static const float caps[] = { 2, 30, 300 };
    const rg_pick pick = { .k = 1 };
    const rg_span span = { .n_rows = 1, .start = 1 };
    const int32_t zero = 0;
    rg_rng rng = { .seed = 9 };
    float *w = make_head(&rng), x[COLS];
    head h;
    world u;

    (void)state;
    head_init(&h, RG_Q8_0, w, &rng);
    world_init(&u, world_cpu(0), 1, &(rg_reader_sizes){ .max_rows = 1, .max_cols = VOCAB, .head = &h.weight });
    u.lazy = true;
    rg_cpu_reader_sketch(u.reader, true);
    for (int i = 0; i < 30; i++) {
        rg_batch b = { .n_rows = 1, .n_spans = 1, .spans = &span, .n_logits = 1, .logit_rows = &zero };
        job j = { .x = x, .n = 1, .w = &h.weight, .shape = { 1, caps[i % 3] }, .y = all };

        make_row(&rng, w, i % 2 ? LARGE : NEAR, x);
        world_step(&u, &b, text, &j);
        b.picks = &pick;
        j.y = some;
        world_step(&u, &b, text, &j);
        compare_bits(all, some, -caps[i % 3]);
        compare_largest(all, some, 1);
    }
    const rg_screen_counts c = rg_cpu_screen_counts(u.reader);
    assert_true(c.n_rows == 30 && c.n_computed < c.n_panels);
    world_fini(&u);
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
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_rounding_of_rows),
        cmocka_unit_test(test_bounds_are_reached),
        cmocka_unit_test(test_caps),
        cmocka_unit_test(test_picks),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
