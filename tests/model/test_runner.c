/* test_runner.c -- how many threads compute a step. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "model/runner.h"

enum { PROMPT = 40, MORE = 4 };

typedef struct taken {
    float *logits;
    int vocab, first; /* the step's first row */
} taken;

static void take_row(void *arg, int feed, int row, float *logits)
{
    taken *t = arg;

    (void)feed;
    memcpy(t->logits + (size_t)(t->first + row) * (size_t)t->vocab, logits, (size_t)t->vocab * sizeof *logits);
}

/* Logits of a prompt and of the rows that follow one by one; the caller frees them. */
static float *logits_with(const test_model *m, int n_threads, int n_nodes)
{
    taken t = { .vocab = m->m->config.vocab_size };
    int32_t ids[PROMPT + MORE];
    test_rig rig;

    for (int i = 0; i < PROMPT + MORE; i++)
        ids[i] = 1 + i * 7919 % (t.vocab - 1);
    t.logits = calloc((size_t)(PROMPT + MORE) * (size_t)t.vocab, sizeof *t.logits);
    assert_non_null(t.logits);
    test_rig_open(&rig, m, &(test_rig_options){ .backend = rg_backend_find("auto", NULL), .n_threads = n_threads,
                                                .max_rows = PROMPT, .max_seqs = 1, .max_len = 64, .n_nodes = n_nodes });
    rg_seq *seq = rg_seq_new(rig.states, 64, 0, NULL);
    assert_non_null(seq);
    uint64_t before = rg_mem_count().n_allocs;
    for (int n = PROMPT; t.first < PROMPT + MORE; t.first += n, n = 1) {
        assert_true(rg_seq_grow(rig.states, seq, t.first + n));
        test_rig_step(&rig, &(test_feed){ .seq = seq, .ids = ids + t.first, .n = n }, 1, take_row, &t);
        rg_seq_advance(rig.states, seq, n, 0, NULL);
    }
    assert_int_equal(rg_mem_count().n_allocs, before); /* no step allocates */
    rg_seq_free(rig.states, seq);
    test_rig_close(&rig);
    return t.logits;
}

/* Also where there are more threads than cores, and each reads the copy of the weights that its node would have. */
static void threads_and_nodes_change_no_bit(void **state)
{
    static const int others[][2] = { { 2, 0 }, { 16, 0 }, { 16, 2 }, { 9, 4 } };
    test_model m;

    (void)state;
    test_model_open(&m, RG_SOURCE_DIR "/models/tales-7m", NULL);
    const size_t bytes = (size_t)(PROMPT + MORE) * (size_t)m.m->config.vocab_size * sizeof(float);
    float *one = logits_with(&m, 1, 0);
    for (size_t i = 0; i < RG_LEN(others); i++) {
        float *other = logits_with(&m, others[i][0], others[i][1]);
        assert_memory_equal(one, other, bytes);
        free(other);
    }
    free(one);
    test_model_close(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_and_nodes_change_no_bit),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("runner", tests, NULL, NULL);
}
