/* test_runner.c -- what a runner refuses in a step. */
#include "support/model.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_rows_are_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("runner", tests, NULL, NULL);
}
