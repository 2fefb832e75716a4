/* test_no_weights.c -- experts on disk through the API and over HTTP: the same answers as with all in memory; where the
 * disk fails, the requests concerned end with an error, the others do not notice, and later all is as before. */
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "server/live.h"
#include "support/model.h"

enum { N_TOKENS = 3, N_PROMPT = 70, N_VOCAB = 320 }; /* of the prompt: more than a block */

static rg_engine *open_engine(size_t expert_bytes)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };
    char path[600];

    o.n_threads = 2;
    o.kv_bytes = (size_t)16 << 20;
    o.pack_cache = expert_bytes ? test_scratch("cache") : NULL;
    o.expert_bytes = expert_bytes;
    snprintf(path, sizeof path, "%s", test_data("qwen3-moe"));
    rg_engine *e = rg_open(path, &o, &err);
    assert_ok(e, err);
    return e;
}

static rg_request *ask(rg_engine *e, const int32_t *ids, int n)
{
    rg_params p = { .prompt = ids, .n_prompt = n, .max_tokens = N_TOKENS, .n_samples = 1, .sampling = rg_sampling_default() };
    rg_error err = { 0 };

    p.sampling.temperature = 0;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    return r;
}

/* Its ids, and how it ended. */
static rg_finish answer(rg_request *r, int32_t out[N_TOKENS])
{
    rg_finish finish = RG_RUNNING;
    rg_token t;
    int n = 0;

    memset(out, 0xff, N_TOKENS * sizeof *out);
    while (rg_next(r, &t)) {
        if (t.id >= 0)
            out[n++] = t.id;
        finish = t.finish;
    }
    rg_request_close(r);
    return finish;
}

static bool no_reads(void *arg, const char *operation)
{
    (void)arg;
    return strcmp(operation, "read") != 0;
}

/* The first id that, as a prompt, needs experts that are not in memory. */
static int32_t first_that_fails(rg_engine *e)
{
    int32_t ids[N_TOKENS];

    for (int32_t id = 0; id < N_VOCAB; id++)
        if (answer(ask(e, &id, 1), ids) == RG_FINISH_NO_WEIGHTS)
            return id;
    fail_msg("no request needs another expert");
    return -1;
}

static void a_failing_disk_ends_the_requests_concerned(void **state)
{
    rg_engine *resident = open_engine(0), *paged = open_engine(1 << 20);
    int32_t a = 5, b, of_a[N_TOKENS], of_b[N_TOKENS], have[N_TOKENS];

    (void)state;
    assert_int_equal(answer(ask(resident, &a, 1), of_a), RG_FINISH_LENGTH);
    assert_int_equal(answer(ask(paged, &a, 1), have), RG_FINISH_LENGTH);
    assert_memory_equal(have, of_a, sizeof of_a);
    rg_file_set_gate(no_reads, NULL);
    b = first_that_fails(paged);
    for (int turn = 0; turn < 20; turn++) { /* side by side, in any order */
        rg_request *first = ask(paged, turn % 2 ? &b : &a, 1), *second = ask(paged, turn % 2 ? &a : &b, 1);

        assert_int_equal(answer(turn % 2 ? second : first, have), RG_FINISH_LENGTH);
        assert_memory_equal(have, of_a, sizeof of_a);
        assert_int_equal(answer(turn % 2 ? first : second, have), RG_FINISH_NO_WEIGHTS);
        rg_engine_check(paged);
    }
    assert_true(rg_engine_stats(paged).n_experts_failed > 0);
    rg_file_set_gate(NULL, NULL);
    assert_int_equal(answer(ask(resident, &b, 1), of_b), RG_FINISH_LENGTH);
    assert_int_equal(answer(ask(paged, &b, 1), have), RG_FINISH_LENGTH);
    assert_memory_equal(have, of_b, sizeof of_b);
    rg_close(paged);
    rg_close(resident);
}

/* A prompt of more than a block fails in its first step: nothing of it is found in the prefix cache afterwards. */
static void nothing_of_a_failed_step_is_cached(void **state)
{
    rg_engine *resident = open_engine(0), *paged = open_engine(1 << 20);
    int32_t prompt[N_PROMPT], want[N_TOKENS], have[N_TOKENS];

    (void)state;
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (3 + 17 * i) % N_VOCAB;
    assert_int_equal(answer(ask(resident, prompt, N_PROMPT), want), RG_FINISH_LENGTH);
    rg_file_set_gate(no_reads, NULL);
    for (int i = 0; i < 2; i++)
        assert_int_equal(answer(ask(paged, prompt, N_PROMPT), have), RG_FINISH_NO_WEIGHTS);
    rg_file_set_gate(NULL, NULL);
    assert_int_equal(rg_engine_stats(paged).n_cached_rows, 0);
    assert_int_equal(answer(ask(paged, prompt, N_PROMPT), have), RG_FINISH_LENGTH);
    assert_memory_equal(have, want, sizeof want);
    assert_int_equal(answer(ask(paged, prompt, N_PROMPT), have), RG_FINISH_LENGTH);
    assert_memory_equal(have, want, sizeof want);
    assert_true(rg_engine_stats(paged).n_cached_rows > 0);
    rg_close(paged);
    rg_close(resident);
}

static void the_server_says_so(void **state)
{
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    test_server_start_with(&t, &o, open_engine(1 << 20));
    rg_file_set_gate(no_reads, NULL);
    test_completion_fails(t.port, "weights_unread");
    rg_file_set_gate(NULL, NULL);
    test_reply r = test_web_ask(t.port, "POST", "/v1/completions", NULL, "{\"prompt\":[1,2,3],\"max_tokens\":4}");
    assert_int_equal(r.status, 200);
    test_reply_free(&r);
    test_server_stop(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failing_disk_ends_the_requests_concerned),
        cmocka_unit_test(nothing_of_a_failed_step_is_cached),
        cmocka_unit_test(the_server_says_so),
    };

    test_init(argc, argv);
    rg_log_set_level(RG_LOG_ERROR - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
