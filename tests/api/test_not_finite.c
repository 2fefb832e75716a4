/* test_not_finite.c -- a weight that is NaN or infinite: no text comes of it, and the request ends with an error, through
 * the API and over HTTP, whatever the operation that meets it first. */
#include <math.h>

#include "server/live.h"
#include "support/damaged.h"

enum { N_PROMPT = 70 }; /* more than a block */

static rg_engine *open_damaged(const char *golden, const char *tensor, float bad, bool q8, const char *kv_type)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.n_threads = 1;
    o.kv_bytes = (size_t)16 << 20;
    o.kv_type = kv_type;
    rg_engine *e = rg_open(damaged_model(golden, tensor, bad, q8), &o, &err);
    assert_ok(e, err);
    return e;
}

/* Every sample ends so, and none has an id. */
static void expect_no_answer(rg_engine *e, const rg_params *p)
{
    rg_error err = { 0 };
    rg_request *r = rg_submit(e, p, &err);
    rg_token t;
    int n_ended = 0;

    assert_ok(r, err);
    while (rg_next(r, &t)) {
        assert_int_equal(t.id, -1);
        assert_int_equal(t.finish, RG_FINISH_NOT_FINITE);
        assert_string_equal(t.text, "");
        n_ended++;
    }
    assert_int_equal(n_ended, p->n_samples);
    rg_request_close(r);
    rg_engine_check(e);
}

static void ask_all(rg_engine *e)
{
    int32_t ids[N_PROMPT];

    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = 3 + i % 50;
    for (int n = 1; n <= N_PROMPT; n += N_PROMPT - 1)
        for (int n_samples = 1; n_samples <= 3; n_samples += 2) {
            rg_params p = { .prompt = ids, .n_prompt = n, .max_tokens = 4, .n_samples = n_samples,
                            .sampling = rg_sampling_default() };
            expect_no_answer(e, &p);
            p.sampling.temperature = 0;
            p.sampling.n_logprobs = 2;
            p.prompt_logprobs = n > 1;
            expect_no_answer(e, &p);
        }
    if (rg_engine_info(e).embed_refusal)
        return;
    expect_no_answer(e, &(rg_params){ .prompt = ids, .n_prompt = N_PROMPT, .n_samples = 1, .embed = RG_POOLING_MEAN,
                                      .sampling = rg_sampling_default() });
}

static void no_text_comes_of_what_is_no_number(void **state)
{
    static const struct {
        const char *golden, *tensor;
        bool nan_alone; /* an infinity may have a finite effect: a decay of 0, an expert that is never chosen */
    } cases[] = {
        { "llama", "blk.0.attn_q.weight" }, { "llama", "blk.1.attn_k.weight" }, { "llama", "blk.1.attn_v.weight" },
        { "llama", "blk.0.attn_output.weight" }, { "llama", "blk.1.attn_norm.weight" }, { "llama", "blk.0.ffn_gate.weight" },
        { "llama", "blk.1.ffn_down.weight" }, { "llama", "output_norm.weight" }, { "gemma3", "blk.0.attn_q.weight" },
        { "gemma3", "blk.2.attn_k.weight" }, { "gemma3", "blk.0.ffn_norm.weight" },
        { "mixtral", "blk.0.attn_q.weight" }, { "mixtral", "blk.0.ffn_gate_inp.weight", true },
        { "deepseek-v2", "blk.1.attn_kv_a_mqa.weight" }, { "mamba", "blk.0.ssm_in.weight" }, { "mamba", "blk.1.ssm_a", true },
    };
    static const char *const kv_types[] = { "f32", "bf16", "q8" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++)
        for (int k = 0; k < (cases[i].nan_alone ? 2 : 4); k++) {
            rg_engine *e = open_damaged(cases[i].golden, cases[i].tensor, k < 2 ? NAN : INFINITY, k % 2,
                                        kv_types[(i + (size_t)k) % 3]);
            ask_all(e);
            rg_close(e);
        }
}

static void the_server_says_so(void **state)
{
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    test_server_start_with(&t, &o, open_damaged("llama", "blk.0.attn_q.weight", NAN, false, "bf16"));
    test_completion_fails(t.port, "not_finite");
    test_server_stop(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_comes_of_what_is_no_number),
        cmocka_unit_test(the_server_says_so),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
