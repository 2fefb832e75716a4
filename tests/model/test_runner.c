/* test_runner.c -- what a runner refuses in a step, and how many threads compute it. */
#include "support/model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "model/runner.h"

static void no_logits(void *arg, int thread, int i, float *logits)
{
    (void)arg;
    (void)thread;
    (void)i;
    (void)logits;
}

/* In a child, whose message nobody needs: a step of one row, with embedding rows or without. */
static bool step_aborts(rg_runner *r, rg_states *states, rg_seq *seq, const float *embeds)
{
    pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        const int32_t token = embeds ? -1 : 7, index = 0, kv_end = 1, pos[1][4] = { { 0 } }, row = 0;
        rg_span span = { .first_row = 0 };
        rg_sink sink = { .logits = no_logits };

        if (!freopen("/dev/null", "w", stderr))
            _exit(1);
        if (!rg_seq_grow(states, seq, 1))
            _exit(2);
        rg_seq_span(states, seq, 1, 0, &span);
        rg_batch b = { .n_rows = 1, .n_spans = 1, .spans = &span, .token = &token, .embeds = embeds, .index = &index,
                       .kv_end = &kv_end, .pos = pos, .n_logits = 1, .logit_rows = &row };
        r->step(r, &b, &sink);
        _exit(0);
    }
    assert_true(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status))
        assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* Blocks of state are shared by their tokens, and token -1 does not say what a row's embedding was. */
static void embedding_rows_are_refused(void **state)
{
    static const float embeds[4096];
    test_rig rig;
    test_model t;

    (void)state;
    test_model_open(&t, test_data("llama/model.gguf"), "f32");
    test_rig_open(&rig, &t, &(test_rig_options){ .backend = rg_backend_nth(0), .n_threads = 1, .max_rows = 8, .max_seqs = 1,
                                                 .max_len = 32 });
    rg_seq *seq = rg_seq_new(rig.states, 32, 0, NULL);
    assert_non_null(seq);
    assert_false(step_aborts(rig.runner, rig.states, seq, NULL));
    assert_true(step_aborts(rig.runner, rig.states, seq, embeds));
    rg_seq_free(rig.states, seq);
    test_rig_close(&rig);
    test_model_close(&t);
}

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
        cmocka_unit_test(embedding_rows_are_refused),
        cmocka_unit_test(threads_and_nodes_change_no_bit),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("runner", tests, NULL, NULL);
}
