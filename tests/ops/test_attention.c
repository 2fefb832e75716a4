/* test_attention.c -- paged attention against the formula in double, and against itself however its rows are cut. */
#include "support/sight.h"
#include "tree.h"
#include "world.h"

#include "ops/count/count.h"

enum { MAX_BLOCKS = 48 };

/* One sequence of random q, k, v, indexed by place, and its paged state. */
typedef struct sequence {
    rg_kv kv;
    rg_sight sight;
    int n_heads, n; /* n: places */
    float scale, cap;
    bool has_sinks;
    float sink[32]; /* [n_heads] */
    int n_first;    /* keys before it have queries of their own */
    int n_chosen;   /* keys that each row reads, of those that it sees; 0: all */
    float *q, *first_q, *q_rope, *k, *v; /* by place */
    float *chosen;             /* by place, n_chosen places as rg_choose_keys gives them */
    float *kept_k, *kept_v; /* k and v as the state should keep them: of q4, as rows of later blocks read them */
    int32_t table[MAX_BLOCKS], open[MAX_BLOCKS]; /* open: of q4's open blocks */
    float *y; /* by place, filled by steps */
} sequence;

/* A step of some rows of it: place[i] is whose q, k, v row i takes. */
typedef struct step {
    sequence *s;
    const int *place;
    int n_rows;
    float *y;
} step;

static int q_cols(const sequence *s)
{
    return s->n_heads * (s->kv.latent ? s->kv.v_dim : s->kv.k_dim);
}

static int y_cols(const sequence *s)
{
    return s->n_heads * s->kv.v_dim;
}

static int k_cols(const sequence *s)
{
    return s->kv.latent ? s->kv.v_dim : s->kv.n_heads * s->kv.k_dim;
}

static int v_cols(const sequence *s)
{
    return s->kv.latent ? s->kv.k_dim - s->kv.v_dim : s->kv.n_heads * s->kv.v_dim;
}

static rg_act *rows_of(rg_fwd *f, const step *t, const float *from, int cols)
{
    return world_rows(f, from, t->place, t->n_rows, cols);
}

static void text(rg_fwd *f, void *arg)
{
    const step *t = arg;
    sequence *s = t->s;
    const rg_weight sinks = vector(s->sink, s->n_heads);
    const rg_attend_params params = { .n_heads = s->n_heads, .scale = s->scale, .cap = s->cap,
                                      .sinks = s->has_sinks ? &sinks : NULL, .sight = &s->sight,
                                      .first_q = s->n_first ? rows_of(f, t, s->first_q, q_cols(s)) : NULL,
                                      .n_first = s->n_first,
                                      .chosen = s->n_chosen ? rows_of(f, t, s->chosen, s->n_chosen) : NULL };
    rg_act *q = rows_of(f, t, s->q, q_cols(s)), *k = rows_of(f, t, s->k, k_cols(s)),
           *v = rows_of(f, t, s->v, v_cols(s));
    rg_act *y = rg_act_new(f, "y", y_cols(s));

    rg_kv_store(f, &s->kv, k, v);
    if (s->kv.latent)
        rg_mla_attention(f, y, q, rows_of(f, t, s->q_rope, s->n_heads * (s->kv.k_dim - s->kv.v_dim)), &s->kv, &params);
    else
        rg_attention(f, y, q, &s->kv, &params);
    act_out(f, y, t->y);
}

/* One head's n values of a place as kv.h says that they are kept. */
static void keep(rg_type type, const float *x, float *kept, int n)
{
    for (int i = 0; i < n; i++)
        kept[i] = type == RG_F16    ? rg_f16_to_f32(rg_f32_to_f16(x[i]))
                  : type == RG_BF16 ? rg_bf16_to_f32(rg_f32_to_bf16(x[i]))
                                    : x[i];
    for (int first = 0; type == RG_I8 && first < n; first += 32) {
        int end = first + 32 < n ? first + 32 : n, exponent;
        float most = 0, d;

        for (int i = first; i < end; i++)
            most = fmaxf(most, fabsf(x[i]));
        d = frexpf(most / 127, &exponent);
        d = ldexpf(ceilf(d * 256) / 256, exponent); /* 8 bits */
        for (int i = first; i < end; i++)
            kept[i] = d > 0 ? nearbyintf(x[i] * (1 / d)) * d : 0;
    }
}

/* n <= 32 values, `stride` apart, as 4 bits keep them. */
static void keep_4(const float *x, float *kept, int n, int stride)
{
    float lo = x[0], hi = x[0];

    for (int i = 0; i < n; i++) {
        lo = fminf(lo, x[i * stride]);
        hi = fmaxf(hi, x[i * stride]);
    }
    const float d = (hi - lo) / 15, kept_d = rg_f16_to_f32(rg_f32_to_f16(d)), kept_lo = rg_f16_to_f32(rg_f32_to_f16(lo));
    for (int i = 0; i < n; i++)
        kept[i * stride] = (d > 0 ? nearbyintf(fminf((x[i * stride] - lo) / d, 15)) * kept_d : 0) + kept_lo;
}

/* K by channel over 32 places, of those that are whole; V and latents by place over 32 channels of a head. */
static void keep_rows_4(const sequence *s, const float *x, float *kept, int cols, bool by_channel)
{
    int heads = s->kv.latent ? 1 : s->kv.n_heads, n = cols / heads;

    for (int c = 0; by_channel && c < cols; c++)
        for (int i = 0; i + 32 <= s->n; i += 32)
            keep_4(x + i * cols + c, kept + i * cols + c, 32, cols);
    for (int i = 0; !by_channel && i < s->n * heads; i++)
        for (int c = 0; c < n; c += 32)
            keep_4(x + i * n + c, kept + i * n + c, n - c < 32 ? n - c : 32, 1);
}

static float *kept_rows(const sequence *s, const float *x, int cols, bool is_k)
{
    int heads = s->kv.latent ? 1 : s->kv.n_heads, n = cols / heads;
    float *kept = rg_array((size_t)(s->n * cols), sizeof *kept);

    for (int i = 0; i < s->n * heads; i++)
        keep(s->kv.type, x + i * n, kept + i * n, n);
    if (s->kv.type == RG_Q4_1)
        keep_rows_4(s, x, kept, cols, is_k && !s->kv.latent);
    return kept;
}

/* For each place some of the places up to it, itself among them. */
static void choose_some(sequence *s, rg_rng *rng)
{
    for (int i = 0; i < s->n; i++) {
        float *row = s->chosen + (size_t)i * (size_t)s->n_chosen;
        int n = 0;

        for (int32_t j = 0; j <= i && n < s->n_chosen; j++) {
            const bool must = i - j < s->n_chosen - n; /* all of the rest fit */

            if (j == i || (n < s->n_chosen - 1 && (must || rg_rng_below(rng, (uint32_t)(i + 1)) < (uint32_t)s->n_chosen)))
                memcpy(row + n++, &j, sizeof j);
        }
        for (; n < s->n_chosen; n++)
            memcpy(row + n, &(int32_t){ INT32_MAX }, sizeof *row);
    }
}

static bool is_chosen(const sequence *s, int i, int32_t j)
{
    bool yes = !s->n_chosen;

    for (int k = 0; k < s->n_chosen && !yes; k++)
        yes = !memcmp(s->chosen + (size_t)i * (size_t)s->n_chosen + k, &j, sizeof j);
    return yes;
}

static void sequence_init(sequence *s, rg_rng *rng, world *w)
{
    const rg_kv open = rg_kv_open(&s->kv);
    size_t n = (size_t)s->n, block_bytes = s->kv.offset + rg_kv_bytes(&s->kv) + 64, open_bytes = rg_kv_bytes(&open) + 128;

    s->scale = 1.0f / sqrtf((float)s->kv.k_dim);
    for (int h = 0; s->has_sinks && h < s->n_heads; h++) /* beyond every score, below them, and not there at all */
        s->sink[h] = h % 4 == 3 ? 300.0f : h % 4 == 2 ? -INFINITY : h % 4 == 1 ? -200.0f : rg_rng_normal(rng) * 2.0f;
    s->q = random_floats(rng, n * (size_t)q_cols(s), 1.5f);
    s->q_rope = s->kv.latent ? random_floats(rng, n * (size_t)(s->n_heads * v_cols(s)), 1.5f) : NULL;
    s->k = random_floats(rng, n * (size_t)k_cols(s), 1.5f);
    s->v = random_floats(rng, n * (size_t)v_cols(s), 1.5f);
    s->first_q = random_floats(rng, n * (size_t)q_cols(s), 1.5f);
    s->chosen = rg_array(n * (size_t)(s->n_chosen + 1), sizeof *s->chosen);
    choose_some(s, rng);
    s->kept_k = kept_rows(s, s->k, k_cols(s), true);
    s->kept_v = kept_rows(s, s->v, v_cols(s), false);
    s->y = rg_array(n * (size_t)y_cols(s), sizeof *s->y);
    for (int i = 0; i < MAX_BLOCKS; i++)
        s->table[i] = (i * 7 + 3) % MAX_BLOCKS, s->open[i] = (i * 5 + 1) % MAX_BLOCKS;
    w->groups[1] = (rg_group_memory){ .data = rg_alloc(block_bytes * MAX_BLOCKS), .block_bytes = block_bytes };
    memset(w->groups[1].data, 0xff, block_bytes * MAX_BLOCKS); /* NaN, until something is stored */
    s->kv.group = 1;
    w->groups[2] = (rg_group_memory){ .data = rg_alloc(open_bytes * MAX_BLOCKS), .block_bytes = open_bytes };
    memset(w->groups[2].data, 0xff, open_bytes * MAX_BLOCKS);
    s->kv.open_group = 2;
    s->kv.open_offset = 64;
}

static void sequence_fini(sequence *s, world *w)
{
    rg_free(s->q);
    rg_free(s->first_q);
    rg_free(s->chosen);
    rg_free(s->q_rope);
    rg_free(s->k);
    rg_free(s->v);
    rg_free(s->kept_k);
    rg_free(s->kept_v);
    rg_free(s->y);
    rg_free(w->groups[1].data);
    rg_free(w->groups[2].data);
}

/* Places [start, start + n) as one causal span. */
static void run_span(world *w, sequence *s, int start, int n)
{
    int32_t index[2048], end[2048], pos[2048][4] = { 0 };
    int place[2048];
    rg_span span = { .n_rows = n, .start = start, .tables = { NULL, s->table, s->open } };
    rg_batch b = {
        .n_rows = n, .n_spans = 1, .spans = &span, .index = index, .pos = (const int32_t(*)[4])pos, .kv_end = end
    };

    rg_kept kept = { 0 };

    rg_kept_add(&kept, &s->sight);
    for (int i = 0; i < rg_kept_from(&kept, start); i++) /* blocks that no row of the span sees are given back */
        if (!rg_kept_for_good(&kept, i))
            s->table[i] = -1;
    for (int i = 0; i < start / RG_BLOCK; i++)
        s->open[i] = -1;
    for (int i = 0; i < n; i++) {
        place[i] = index[i] = start + i;
        end[i] = start + i + 1;
    }
    world_step(w, &b, text, &(step){ s, place, n, s->y + (size_t)start * (size_t)y_cols(s) });
}

/* Which of two a row reads: q4 has its own block as it was stored. */
static const float *read_of(const sequence *s, int i, int j, const float *x, const float *kept)
{
    return s->kv.type == RG_Q4_1 && i / RG_BLOCK == j / RG_BLOCK ? x : kept;
}

/* What place i should give, in double, from values as the state keeps them. */
static double score(const sequence *s, int i, int j, int h)
{
    const float *queries = j < s->n_first ? s->first_q : s->q;
    int k_dim = s->kv.k_dim, v_dim = s->kv.v_dim, kv_head = h / (s->n_heads / s->kv.n_heads);
    const float *kept_k = read_of(s, i, j, s->k, s->kept_k), *kept_v = read_of(s, i, j, s->v, s->kept_v);
    double sum = 0;

    for (int d = 0; d < k_dim; d++) {
        double q, k;

        if (!s->kv.latent) {
            q = queries[(i * s->n_heads + h) * k_dim + d];
            k = kept_k[(j * s->kv.n_heads + kv_head) * k_dim + d];
        } else if (d < v_dim) {
            q = s->q[(i * s->n_heads + h) * v_dim + d];
            k = kept_k[j * v_dim + d];
        } else {
            q = s->q_rope[(i * s->n_heads + h) * (k_dim - v_dim) + d - v_dim];
            k = kept_v[j * (k_dim - v_dim) + d - v_dim];
        }
        sum += q * k;
    }
    sum *= s->scale;
    return s->cap > 0 ? s->cap * tanh(sum / s->cap) : sum;
}

static bool reads(const sequence *s, int h, int i, int j)
{
    return test_sees(&s->sight, h, i, j) && is_chosen(s, i, j);
}

static void naive(const sequence *s, int i, int h, double *y)
{
    int v_dim = s->kv.v_dim, kv_head = h / (s->n_heads / s->kv.n_heads), v_heads = s->kv.latent ? 1 : s->kv.n_heads;
    double max = -INFINITY, sum = 0;

    for (int d = 0; d < v_dim; d++)
        y[d] = 0;
    for (int j = 0; j <= i; j++)
        max = reads(s, h, i, j) ? fmax(max, score(s, i, j, h)) : max;
    max = s->has_sinks ? fmax(max, (double)s->sink[h]) : max;
    sum = s->has_sinks ? exp((double)s->sink[h] - max) : 0;
    for (int j = 0; j <= i; j++) {
        if (!reads(s, h, i, j))
            continue;
        double p = exp(score(s, i, j, h) - max);
        const float *v = s->kv.latent ? read_of(s, i, j, s->k, s->kept_k) : read_of(s, i, j, s->v, s->kept_v);

        sum += p;
        for (int d = 0; d < v_dim; d++)
            y[d] += p * v[(j * v_heads + (s->kv.latent ? 0 : kv_head)) * v_dim + d];
    }
    for (int d = 0; d < v_dim; d++)
        y[d] /= sum;
}

/* Heads that differ in pattern, within a kv head too; blocks without any key that is seen; a list; all in one. */
static const rg_patterns dilated = {
    .n_patterns = 3,
    .patterns = { { 1, { { RG_TERM_WINDOW, 20, 1 } } }, { 1, { { RG_TERM_WINDOW, 30, 3 } } }, { 0 } },
    .of_head = { 0, 0, 1, 1, 2, 0 },
};
static const rg_patterns strided = {
    .n_patterns = 2,
    .patterns = { { 1, { { RG_TERM_WINDOW, 7, 1 } } }, { 1, { { RG_TERM_STRIDE, 150, 1 } } } },
    .of_head = { 0, 0, 1, 1 },
};
static const rg_patterns merged = {
    .n_patterns = 1,
    .patterns = { { 3, { { RG_TERM_CHUNK, 24, 1 }, { RG_TERM_SUMMARY, 100, 5 }, { RG_TERM_LISTED, 1, 1 } } } },
    .n_listed = 3, .listed = { 2, 70, 199 },
};
static const rg_patterns sinks_and_window = {
    .n_patterns = 1, .patterns = { { 2, { { RG_TERM_FIRST, 4, 1 }, { RG_TERM_WINDOW, 80, 1 } } } },
};

static const sequence shapes[] = {
    { .kv = { .type = RG_F32, .n_heads = 2, .k_dim = 20, .v_dim = 12, .offset = 64 }, .n_heads = 6, .n = 200 },
    { .kv = { .type = RG_BF16, .n_heads = 1, .k_dim = 33, .v_dim = 17 }, .n_heads = 19, .n = 131, .cap = 3.0f },
    { .kv = { .type = RG_I8, .n_heads = 2, .k_dim = 33, .v_dim = 40, .offset = 64 }, .n_heads = 4, .n = 131 },
    { .kv = { .type = RG_I8, .n_heads = 1, .k_dim = 40, .v_dim = 33, .latent = true }, .n_heads = 5, .n = 100 },
    { .kv = { .type = RG_Q4_1, .n_heads = 2, .k_dim = 33, .v_dim = 40, .offset = 64 }, .n_heads = 4, .n = 200 },
    { .kv = { .type = RG_Q4_1, .n_heads = 1, .k_dim = 40, .v_dim = 33, .latent = true }, .n_heads = 5, .n = 150 },
    { .kv = { .type = RG_Q4_1, .n_heads = 2, .k_dim = 12, .v_dim = 10 }, .sight = { .window = 37 }, .n_heads = 6, .n = 300,
      .has_sinks = true, .n_first = 70 },
    { .kv = { .type = RG_Q4_1, .n_heads = 1, .k_dim = 8, .v_dim = 36 }, .n_heads = 3, .n = 1100 },
    { .kv = { .type = RG_Q4_1, .n_heads = 2, .k_dim = 12, .v_dim = 10 }, .n_heads = 4, .n = 150, .n_chosen = 30 },
    { .kv = { .type = RG_F16, .n_heads = 3, .k_dim = 8, .v_dim = 8 }, .sight = { .window = 37 }, .n_heads = 3, .n = 300,
      .has_sinks = true },
    { .kv = { .type = RG_BF16, .n_heads = 1, .k_dim = 24, .v_dim = 16, .latent = true }, .n_heads = 18, .n = 150,
      .has_sinks = true },
    { .kv = { .type = RG_F32, .n_heads = 1, .k_dim = 12, .v_dim = 10 }, .n_heads = 2, .n = 1100 },
    { .kv = { .type = RG_F32, .n_heads = 1, .k_dim = 12, .v_dim = 10 }, .n_heads = 4, .n = 1100, .has_sinks = true },
    { .kv = { .type = RG_F32, .n_heads = 1, .k_dim = 12, .v_dim = 8, .latent = true }, .n_heads = 2, .n = 1100 },
    { .kv = { .type = RG_BF16, .n_heads = 1, .k_dim = 8, .v_dim = 8 }, .sight = { .window = 1030 }, .n_heads = 2, .n = 1200 },
    { .kv = { .type = RG_F32, .n_heads = 2, .k_dim = 12, .v_dim = 10 }, .sight = { .patterns = &dilated }, .n_heads = 6, .n = 400 },
    { .kv = { .type = RG_BF16, .n_heads = 1, .k_dim = 20, .v_dim = 33 }, .sight = { .patterns = &strided },
      .n_heads = 4, .n = 400 },
    { .kv = { .type = RG_I8, .n_heads = 1, .k_dim = 12, .v_dim = 10 }, .sight = { .patterns = &merged }, .n_heads = 2, .n = 400 },
    { .kv = { .type = RG_F32, .n_heads = 1, .k_dim = 12, .v_dim = 8, .latent = true },
      .sight = { .patterns = &sinks_and_window }, .n_heads = 3, .n = 1100 },
    { .kv = { .type = RG_F32, .n_heads = 2, .k_dim = 12, .v_dim = 10 }, .sight = { .patterns = &sinks_and_window },
      .n_heads = 4, .n = 200, .n_first = 4 },
    { .kv = { .type = RG_BF16, .n_heads = 1, .k_dim = 20, .v_dim = 33 }, .n_heads = 5, .n = 131, .n_first = 64,
      .has_sinks = true },
    { .kv = { .type = RG_F32, .n_heads = 1, .k_dim = 8, .v_dim = 8 }, .n_heads = 2, .n = 200, .n_first = 131 },
    { .kv = { .type = RG_BF16, .n_heads = 1, .k_dim = 24, .v_dim = 16, .latent = true }, .n_heads = 5, .n = 150,
      .n_chosen = 9 },
    { .kv = { .type = RG_F32, .n_heads = 2, .k_dim = 12, .v_dim = 10 }, .n_heads = 4, .n = 131, .n_chosen = 30 },
};

static const rg_reader_sizes sizes = {
    .max_rows = 2048, .max_cols = 512, .max_heads = 32, .max_head_dim = 40, .max_keys = 2048
};

static void is_the_formula(void **state)
{
    (void)state;
    for (int isa = 0; world_cpu(isa); isa++)
        for (size_t c = 0; c < RG_LEN(shapes); c++) {
            sequence s = shapes[c];
            rg_rng rng = { .seed = test_seed + c };
            double want[64];
            world w;

            world_init(&w, world_cpu(isa), 2, &sizes);
            sequence_init(&s, &rng, &w);
            run_span(&w, &s, 0, s.n / 2);
            run_span(&w, &s, s.n / 2, s.n - s.n / 2);
            for (int i = 0; i < s.n; i += 1 + i / 20)
                for (int h = 0; h < s.n_heads; h++) {
                    naive(&s, i, h, want);
                    assert_near(s.y + (size_t)(i * s.n_heads + h) * (size_t)s.kv.v_dim, want, (size_t)s.kv.v_dim, 2e-5);
                }
            sequence_fini(&s, &w);
            world_fini(&w);
        }
}

/* Cuts at the edges that matter, then random ones; one thread and two, segments shared out or not.  The definition, which
 * is slow, is spared the single rows. */
static void cuts_never_show(void **state)
{
    enum { SINGLE = 140 }; /* the last rows, beyond an edge of blocks and, of long sequences, of segments */
    static const int edges[] = { 1, 63, 64, 65, 66, 127, 129, 1023, 1024, 1025, 1026 };

    (void)state;
    for (int isa = 0; world_cpu(isa); isa++)
        for (size_t c = 0; c < RG_LEN(shapes); c++)
            for (int kind = world_cpu(isa) == rg_cpu_nth(0) && !test_all(); kind < 3; kind++) {
                sequence s = shapes[c], whole = shapes[c];
                rg_rng rng = { .seed = test_seed + c }, again = rng, cut = { .seed = test_seed + 77 };
                world w, u;
                int at = 0;

                world_init(&w, world_cpu(isa), 1, &sizes);
                world_init(&u, world_cpu(isa), 2, &sizes);
                sequence_init(&whole, &rng, &w);
                sequence_init(&s, &again, &u);
                run_span(&w, &whole, 0, s.n);
                for (size_t e = 0; kind == 1 && e < RG_LEN(edges) && edges[e] < s.n; at = edges[e++])
                    run_span(&u, &s, at, edges[e] - at);
                if (kind == 0 && s.n > SINGLE && !test_all())
                    run_span(&u, &s, 0, at = s.n - SINGLE);
                while (at < s.n) { /* one row at a time; the rest; random cuts */
                    int n = kind == 0 ? 1 : kind == 1 ? s.n - at : 1 + (int)rg_rng_below(&cut, 90);

                    n = n < s.n - at ? n : s.n - at;
                    run_span(&u, &s, at, n);
                    at += n;
                }
                assert_memory_equal(s.y, whole.y, (size_t)(s.n * y_cols(&s)) * sizeof(float));
                sequence_fini(&s, &u);
                sequence_fini(&whole, &w);
                world_fini(&w);
                world_fini(&u);
            }
}

/* A root row and a tree of drafts behind it: every draft gives what it gives at the end of its own chain. */
static void trees_equal_chains(void **state)
{
    (void)state;
    for (int isa = 0; world_cpu(isa); isa++)
        for (size_t c = 0; c < RG_LEN(shapes); c++)
            for (int start = 55; start <= 66; start += test_all() ? 1 : 3) {
                sequence s = shapes[c];
                rg_rng rng = { .seed = test_seed + c };
                const rg_span tables = { .tables = { NULL, s.table, s.open } };
                const size_t cols = (size_t)y_cols(&s);
                float *y = rg_array(TREE_ROWS * cols, sizeof *y), *got = rg_array(TREE_ROWS * cols, sizeof *got);
                tree all, one;
                world w;

                world_init(&w, world_cpu(isa), 2, &sizes);
                sequence_init(&s, &rng, &w);
                run_span(&w, &s, 0, start);
                tree_init(&all, start, &tables);
                world_step(&w, &all.batch, text, &(step){ &s, all.place, all.n, y });
                for (int i = 0; i < TREE_ROWS; i++) {
                    tree_chain(&one, i, start, &tables);
                    world_step(&w, &one.batch, text, &(step){ &s, one.place, one.n, got });
                    assert_memory_equal(y + (size_t)i * cols, got + (size_t)(one.n - 1) * cols, cols * sizeof(float));
                }
                rg_free(got);
                rg_free(y);
                sequence_fini(&s, &w);
                world_fini(&w);
            }
}

/* A bidirectional block: every row sees all of it, and equals a formula over all of it. */
static void blocks_see_their_end(void **state)
{
    sequence s = shapes[0];
    rg_rng rng = { .seed = test_seed };
    int32_t index[50], end[50], pos[50][4] = { 0 };
    int place[50];
    rg_span span = { .n_rows = 50, .tables = { NULL, s.table, s.open } };
    rg_batch b = {
        .n_rows = 50, .n_spans = 1, .spans = &span, .index = index, .kv_end = end, .pos = (const int32_t(*)[4])pos
    };
    double want[64];
    world w;

    (void)state;
    world_init(&w, rg_cpu_nth(0), 2, &sizes);
    sequence_init(&s, &rng, &w);
    for (int i = 0; i < 50; i++) {
        place[i] = index[i] = i;
        end[i] = 50;
    }
    world_step(&w, &b, text, &(step){ &s, place, 50, s.y });
    for (int h = 0; h < s.n_heads; h++) { /* the last row's keys are everybody's: give row 0 its query */
        memcpy(s.q + (size_t)49 * (size_t)q_cols(&s), s.q, (size_t)q_cols(&s) * sizeof(float));
        naive(&s, 49, h, want);
        assert_near(s.y + (size_t)h * (size_t)s.kv.v_dim, want, (size_t)s.kv.v_dim, 2e-5);
    }
    sequence_fini(&s, &w);
    world_fini(&w);
}

/* Over q8: to the bit what f32 gives that holds what q8 keeps, and near what f32 gives that keeps all. */
static void q8_is_f32_rounded(void **state)
{
    (void)state;
    for (size_t c = 0; c < RG_LEN(shapes); c++) {
        sequence s = shapes[c], same = s;
        rg_rng rng = { .seed = test_seed + c }, again = rng;
        double want[64], worst = 0, most = 0;
        world w, u;

        if (s.kv.type != RG_I8)
            continue;
        same.kv.type = RG_F32;
        world_init(&w, rg_backend_find("auto", NULL)->kernels, 1, &sizes);
        world_init(&u, rg_backend_find("auto", NULL)->kernels, 1, &sizes);
        sequence_init(&s, &rng, &w);
        sequence_init(&same, &again, &u);
        memcpy(same.k, s.kept_k, (size_t)(s.n * k_cols(&s)) * sizeof(float));
        memcpy(same.v, s.kept_v, (size_t)(s.n * v_cols(&s)) * sizeof(float));
        run_span(&w, &s, 0, s.n);
        run_span(&u, &same, 0, s.n);
        assert_memory_equal(s.y, same.y, (size_t)(s.n * y_cols(&s)) * sizeof(float));
        memcpy(s.kept_k, s.k, (size_t)(s.n * k_cols(&s)) * sizeof(float));
        memcpy(s.kept_v, s.v, (size_t)(s.n * v_cols(&s)) * sizeof(float));
        for (int i = 0; i < s.n * v_cols(&s); i++)
            most = fmax(most, fabs((double)s.v[i]));
        for (int i = 0; i < s.n * s.n_heads; i++) {
            naive(&s, i / s.n_heads, i % s.n_heads, want);
            for (int d = 0; d < s.kv.v_dim; d++)
                worst = fmax(worst, fabs((double)s.y[i * s.kv.v_dim + d] - want[d]));
        }
        if (!(worst > 0.0005 * most && worst < 0.015 * most))
            print_error("shape %zu: off by %g, of %g\n", c, worst, most), fail();
        sequence_fini(&s, &w);
        sequence_fini(&same, &u);
        world_fini(&w);
        world_fini(&u);
    }
}

/* The bytes of the sinks, beside those of the state. */
static void sinks_are_counted(void **state)
{
    double bytes[2], ops[2];

    (void)state;
    for (int has_sinks = 0; has_sinks < 2; has_sinks++) {
        const sequence shape = shapes[0];
        const rg_weight sinks = vector(shape.sink, shape.n_heads);
        rg_span span = { .n_rows = 3, .start = 70 };
        rg_batch b = { .n_rows = 3, .n_spans = 1, .spans = &span };
        rg_counter counter;
        rg_fwd f;

        rg_counter_init(&counter, NULL, 0);
        rg_count_fwd(&f, &counter, &b);
        rg_attention(&f, rg_act_new(&f, "y", y_cols(&shape)), rg_act_new(&f, "q", q_cols(&shape)), &shape.kv,
                     &(rg_attend_params){ .n_heads = shape.n_heads, .sinks = has_sinks ? &sinks : NULL,
                                          .sight = &rg_sight_all });
        bytes[has_sinks] = counter.total.weight_bytes;
        ops[has_sinks] = counter.total.ops;
    }
    assert_true(bytes[0] == 0 && bytes[1] == 4.0 * shapes[0].n_heads);
    assert_true(ops[0] == ops[1] && ops[0] == 2.0 * (20 + 12) * (71 + 72 + 73) * 6);
}

/* ---- attention sparsity ------------------------------------------------------------------------------------------ */

/* Keys of some places become large, so that scores differ by much: the first ones, as "sinks" are, and a few more. */
static void spread_scores(sequence *s)
{
    for (int j = 0; j < s->n; j++) {
        const float by = j < 3 ? 5.0f : j % 197 == 13 ? 4.0f : 0.2f;

        for (int d = 0; d < k_cols(s); d++)
            s->k[j * k_cols(s) + d] *= by;
    }
}

/* What place i should give if blocks are left out as kernels.h says; counts blocks that are, and sums the weight that
 * is lost. */
static void naive_sparse(const sequence *s, int i, int h, double threshold, double *y, int *n_left_out, double *lost)
{
    const int v_dim = s->kv.v_dim, kv_head = h / (s->n_heads / s->kv.n_heads);
    double in_first = -INFINITY, running = -INFINITY, all = 0, sum = 0, most = -INFINITY;

    memset(y, 0, (size_t)v_dim * sizeof *y);
    for (int j = 0; j <= i; j++)
        most = reads(s, h, i, j) ? fmax(most, score(s, i, j, h)) : most;
    for (int j = 0; j < RG_BLOCK && j <= i; j++)
        in_first = reads(s, h, i, j) ? fmax(in_first, score(s, i, j, h)) : in_first;
    for (int block = 0; block * RG_BLOCK <= i; block++) {
        double best = -INFINITY, weight = 0;
        const int end = (block + 1) * RG_BLOCK < i + 1 ? (block + 1) * RG_BLOCK : i + 1;

        if (block % (RG_SEGMENT / RG_BLOCK) == 0)
            running = block ? in_first : -INFINITY;
        for (int j = block * RG_BLOCK; j < end; j++)
            if (reads(s, h, i, j)) {
                best = fmax(best, score(s, i, j, h));
                weight += exp(score(s, i, j, h) - most);
            }
        all += weight;
        if (best == -INFINITY)
            continue;
        if (best < running + log(threshold)) {
            ++*n_left_out;
            *lost += weight;
            continue;
        }
        running = fmax(running, best);
        sum += weight;
        for (int j = block * RG_BLOCK; j < end; j++)
            for (int d = 0; reads(s, h, i, j) && d < v_dim; d++)
                y[d] += exp(score(s, i, j, h) - most) *
                        (double)s->kept_v[(j * s->kv.n_heads + kv_head) * v_dim + d];
    }
    for (int d = 0; d < v_dim; d++)
        y[d] /= sum;
    *lost /= all;
}

static const sequence sparse_shapes[] = {
    { .kv = { .type = RG_F32, .n_heads = 2, .k_dim = 20, .v_dim = 12, .offset = 64 }, .n_heads = 6, .n = 700 },
    { .kv = { .type = RG_BF16, .n_heads = 1, .k_dim = 32, .v_dim = 32 }, .n_heads = 12, .n = 1500 },
    { .kv = { .type = RG_I8, .n_heads = 2, .k_dim = 32, .v_dim = 40 }, .sight = { .window = 300 }, .n_heads = 4, .n = 700 },
    { .kv = { .type = RG_F16, .n_heads = 1, .k_dim = 16, .v_dim = 16 }, .n_heads = 2, .n = 2040 },
};

/* Cut in any way, by any number of threads; V of blocks that no query reads may be anything. */
static void sparse_is_the_rule(void **state)
{
    const double threshold = 1e-3;

    (void)state;
    for (size_t k = 0; k < RG_LEN(sparse_shapes); k++) {
        rg_rng rng = { .seed = test_seed + k }, again = rng;
        sequence s = sparse_shapes[k], same;
        int n_left_out = 0, n_differ = 0;
        world w, u;

        world_init(&w, world_cpu(0), 1, &sizes);
        world_init(&u, world_cpu(0), 2, &sizes);
        w.attention_sparsity = u.attention_sparsity = (float)threshold;
        sequence_init(&s, &rng, &w);
        spread_scores(&s);
        rg_free(s.kept_k);
        s.kept_k = kept_rows(&s, s.k, k_cols(&s), true);
        same = s;
        sequence_init(&same, &again, &u);
        memcpy(same.k, s.k, (size_t)s.n * (size_t)k_cols(&s) * sizeof *s.k);
        for (int at = 0, n; at < s.n; at += n) {
            n = 1 + (int)rg_rng_below(&rng, at % 2 ? 9 : 500);
            n = n < s.n - at ? n : s.n - at;
            run_span(&w, &s, at, n);
        }
        for (int at = 0, n; at < s.n; at += n) {
            n = at + 300 < s.n ? 300 : at + 5 < s.n ? 5 : 1;
            run_span(&u, &same, at, n);
        }
        assert_memory_equal(s.y, same.y, (size_t)s.n * (size_t)y_cols(&s) * sizeof *s.y);
        for (int i = 0; i < s.n; i += i < s.n - 40 ? 53 : 1)
            for (int h = 0; h < s.n_heads; h++) {
                double want[64], full[64], lost = 0, error = 0, bound = 0, largest = 0;
                int n = 0;

                naive_sparse(&s, i, h, threshold, want, &n, &lost);
                naive(&s, i, h, full);
                n_left_out += n;
                assert_true(lost <= threshold * (double)n * RG_BLOCK); /* as is told */
                for (int j = 0; j < s.n * v_cols(&s); j++)
                    largest = fmax(largest, fabs((double)s.kept_v[j]));
                bound = 2 * lost * largest + 1e-3;
                for (int d = 0; d < s.kv.v_dim; d++) {
                    const double got = (double)s.y[(i * s.n_heads + h) * s.kv.v_dim + d];

                    error = fmax(error, fabs(got - full[d]));
                    n_differ += fabs(got - want[d]) > 1e-3; /* a score may lie at the limit */
                }
                assert_true(error <= bound);
            }
        assert_true(n_left_out > 40);
        assert_true(n_differ <= 4 * s.kv.v_dim);
        sequence_fini(&s, &w);
        sequence_fini(&same, &u);
        world_fini(&w);
        world_fini(&u);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_is_the_rule),
        cmocka_unit_test(is_the_formula),
        cmocka_unit_test(cuts_never_show),
        cmocka_unit_test(trees_equal_chains),
        cmocka_unit_test(blocks_see_their_end),
        cmocka_unit_test(q8_is_f32_rounded),
        cmocka_unit_test(sinks_are_counted),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("attention", tests, NULL, NULL);
}
