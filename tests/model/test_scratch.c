/* test_scratch.c -- scratch sequences of real models: a step over [0, n) in place has the bits of a fresh sequence's,
 * whatever was computed there before, causal and with every row seeing all n. */
#include "support/model.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_ROWS = 150, N = 140, SHORTER = 70, CHANGED = 9 };

typedef struct job {
    test_model model;
    test_rig rig;
    int vocab;
    bool both_ways, sees_later; /* every row is told to see all; rows see some that stand after them */
    float *got; /* [N][vocab] */
} job;

static void take_row(void *arg, int feed, int row, float *logits)
{
    const job *j = arg;

    (void)feed;
    memcpy(j->got + (size_t)row * (size_t)j->vocab, logits, (size_t)j->vocab * sizeof *logits);
}

static rg_seq *sequence(job *j)
{
    rg_error err;
    rg_seq *q = rg_seq_new(j->rig.states, MAX_ROWS, 0, &err);

    assert_ok(q, err);
    return q;
}

static void step(job *j, rg_seq *q, const int32_t *ids, int n, float *to)
{
    assert_true(rg_seq_grow(j->rig.states, q, n));
    j->got = to;
    test_rig_step(&j->rig, &(test_feed){ .seq = q, .ids = ids, .n = n, .both_ways = j->both_ways }, 1, take_row, j);
    rg_seq_advance(j->rig.states, q, n, 0, ids);
    rg_states_check(j->rig.states);
}

/* By a fresh ordinary sequence. */
static void fresh(job *j, const int32_t *ids, int n, float *to)
{
    rg_seq *q = sequence(j);

    step(j, q, ids, n, to);
    rg_seq_free(j->rig.states, q);
}

static bool same(const job *j, const float *a, const float *b, int n)
{
    return !memcmp(a, b, (size_t)n * (size_t)j->vocab * sizeof *a);
}

/* Of n rows, those that see none after them. */
static int whole_blocks(const job *j, int n)
{
    return j->sees_later ? n : n - n % j->rig.runner->sees;
}

static void compare(job *j)
{
    size_t bytes = (size_t)N * (size_t)j->vocab * sizeof(float);
    float *want = malloc(bytes), *shorter = malloc(bytes), *got = malloc(bytes);
    int32_t ids[N], other[N];
    rg_rng g = { .seed = test_seed };
    rg_seq *q = sequence(j);

    assert_true(want && shorter && got);
    for (int i = 0; i < N; i++) {
        ids[i] = (int32_t)rg_rng_below(&g, (uint32_t)j->vocab);
        other[i] = i < N - CHANGED ? ids[i] : (ids[i] + 1) % j->vocab;
    }
    fresh(j, ids, N, want);
    fresh(j, ids, SHORTER, shorter);
    assert_int_equal(same(j, want, shorter, whole_blocks(j, SHORTER)), !j->sees_later); /* who sees all n sees more of more */
    rg_seq_scratch(q);
    step(j, q, other, N, got);
    assert_false(same(j, want, got, N));
    assert_int_equal(same(j, want, got, whole_blocks(j, N - CHANGED)), !j->sees_later);
    step(j, q, ids, N, got);
    assert_true(same(j, want, got, N));
    step(j, q, ids, SHORTER, got); /* over what a longer step left */
    assert_true(same(j, shorter, got, SHORTER));
    step(j, q, ids, N, got);
    assert_true(same(j, want, got, N));
    rg_seq_free(j->rig.states, q);
    free(want);
    free(shorter);
    free(got);
}

/* kv: the type of K/V; NULL: f32 with one thread, bf16 with two. */
static void check_as(const char *name, bool both_ways, const char *kv)
{
    for (int i = 0; test_backend(i); i++)
        for (int threads = 1; threads <= 2; threads++) {
            if (test_backend(i + 1) && (TEST_SLOWER > 1 || (threads > 1 && !test_all())))
                continue; /* of checked code the best instruction set alone; what is slower, by one thread */
            job j = { .both_ways = both_ways };

            test_model_open(&j.model, test_data(name), kv ? kv : threads == 1 ? "f32" : "bf16");
            j.vocab = j.model.m->config.vocab_size;
            j.sees_later = both_ways || j.model.m->config.sees == RG_SEES_ALL;
            test_rig_open(&j.rig, &j.model, &(test_rig_options){ .backend = test_backend(i), .n_threads = threads,
                                                                 .max_rows = MAX_ROWS, .max_seqs = 3, .max_len = MAX_ROWS,
                                                                 .prefixes = true });
            assert_int_equal(rg_states_most_scratch(j.rig.states, MAX_ROWS), MAX_ROWS);
            compare(&j);
            test_rig_close(&j.rig);
            test_model_close(&j.model);
        }
}

static void check(const char *name, bool both_ways)
{
    check_as(name, both_ways, NULL);
}

static void rows_that_see_what_stands_before_them(void **state)
{
    (void)state;
    check("llama", false);
    check("gemma3", false);
    check("deepseek-v2", false);
    check("mamba", false);
    check_as("llama", false, "q4");
    check_as("sdar-b8", false, "q4");
}

static void rows_that_see_everything(void **state)
{
    (void)state;
    check("llama", true);
    check("gemma3", true);
    check("deepseek-v2", true);
}

static void rows_that_see_what_their_model_says(void **state)
{
    (void)state;
#define GOLDEN(test, folder, worlds)
#define WHOLE(test, folder) check(folder, false);
#define ENCODER(test, folder)
#include "goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_that_see_what_stands_before_them),
        cmocka_unit_test(rows_that_see_everything),
        cmocka_unit_test(rows_that_see_what_their_model_says),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
