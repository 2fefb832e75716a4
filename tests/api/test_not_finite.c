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

/* ---- with whatever else a request can ask for -------------------------------------------------------------------- */

static rg_engine *open_drafting(const char *model, const char *draft, const char *verify)
{
    rg_options o = rg_options_default();
    rg_error err = { 0 };

    o.n_threads = 2;
    o.kv_bytes = (size_t)16 << 20;
    o.draft = draft;
    o.verify = verify;
    rg_engine *e = rg_open(model, &o, &err);
    assert_ok(e, err);
    return e;
}

/* Every drafter, whether or not it reads features, and every way to judge drafts. */
static void drafters_meet_what_is_no_number(void **state)
{
    static const struct {
        const char *golden, *tensor, *draft;
    } cases[] = {
        { "speculation/mtp-qwen", "model.layers.3.self_attn.v_proj.weight", "mtp" },
        { "speculation/mtp-deepseek", "model.layers.1.self_attn.o_proj.weight", "mtp" },
        { "llama", "model.layers.1.mlp.down_proj.weight", "eagle:" RG_TEST_DATA "/speculation/eagle1" },
        { "llama", "model.norm.weight", "eagle:" RG_TEST_DATA "/speculation/eagle3" },
        { "llama", "model.layers.0.self_attn.q_proj.weight", "medusa:" RG_TEST_DATA "/speculation/medusa" },
        { "llama", "model.layers.0.self_attn.q_proj.weight", RG_TEST_DATA "/llama" },
        { "llama", "model.layers.0.self_attn.q_proj.weight", "lookahead" },
        { "llama", "model.layers.0.self_attn.q_proj.weight", "jacobi" },
        { "llama", "model.layers.0.self_attn.q_proj.weight", "suffix" },
        { "llama", "model.layers.0.self_attn.q_proj.weight", "ngram" },
    };
    static const char *const verify[] = { "coupled", "rejection", "typical" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *model =
            damaged_folder("damaged-drafting", cases[i].golden, cases[i].tensor, i % 2 ? INFINITY : NAN);

        for (size_t v = 0; v < RG_LEN(verify); v++) {
            rg_engine *e = open_drafting(model, cases[i].draft, verify[v]);

            ask_all(e);
            rg_close(e);
        }
    }
}

static void ask_for_ids(rg_engine *e, int32_t ids[2][24])
{
    int32_t prompt[N_PROMPT];
    rg_params p = {
        .prompt = prompt, .n_prompt = N_PROMPT, .max_tokens = 24, .n_samples = 2, .sampling = rg_sampling_default()
    };
    rg_error err = { 0 };
    rg_token t;
    int n[2] = { 0 };

    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = 3 + i % 50;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        if (t.id >= 0)
            ids[t.sample][n[t.sample]++] = t.id;
    assert_true(n[0] == 24 && n[1] == 24);
    rg_request_close(r);
    rg_engine_check(e);
}

/* A drafter whose own weights are damaged guesses nothing, and changes no answer. */
static void damaged_drafters_change_no_answer(void **state)
{
    static const struct {
        const char *target, *golden, *tensor, *kind;
    } cases[] = {
        { NULL, "speculation/mtp-qwen", "mtp.fc.weight", "mtp" },
        { "llama", "speculation/eagle1", "fc.weight", "eagle:" },
        { "llama", "speculation/eagle3", "norm.weight", "eagle:" },
        { "llama", "llama", "model.norm.weight", "" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        char folder[512], draft[600], target[512];
        int32_t want[2][24], got[2][24];

        snprintf(folder, sizeof folder, "%s", damaged_folder("damaged-drafter", cases[i].golden, cases[i].tensor, NAN));
        snprintf(draft, sizeof draft, "%s%s", cases[i].kind, cases[i].target ? folder : "");
        snprintf(target, sizeof target, "%s", cases[i].target ? test_data(cases[i].target) : folder);
        rg_engine *plain = open_drafting(target, NULL, NULL), *drafting = open_drafting(target, draft, NULL);
        ask_for_ids(plain, want);
        ask_for_ids(drafting, got);
        assert_memory_equal(want, got, sizeof want);
        rg_close(plain);
        rg_close(drafting);
    }
}

static void every_kind_of_answer_ends(void **state)
{
    int32_t ids[N_PROMPT];
    rg_params p = {
        .prompt = ids, .n_prompt = N_PROMPT, .max_tokens = 8, .n_samples = 2, .sampling = rg_sampling_default()
    };

    (void)state;
    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = 3 + i % 50;
    rg_engine *e = open_damaged("llama", "output_norm.weight", INFINITY, false, "f32");
    p.beam = (rg_beam_params){ .n_beams = 4, .length_penalty = 1 };
    expect_no_answer(e, &p);
    p.beam = (rg_beam_params){ 0 };
    p.n_samples = 5;
    expect_no_answer(e, &p);
    rg_close(e);
    e = open_drafting(damaged_folder("damaged-filled", "llada", "model.transformer.ln_f.weight", NAN), NULL, NULL);
    p.n_samples = 1;
    expect_no_answer(e, &p);
    p.diffusion.cfg_scale = 2;
    expect_no_answer(e, &p);
    rg_close(e);
    e = open_drafting(damaged_folder("damaged-filled", "sdar-b4", "model.norm.weight", INFINITY), NULL, NULL);
    p.diffusion.cfg_scale = 0;
    expect_no_answer(e, &p);
    rg_close(e);
    e = open_damaged("bert", "blk.0.attn_q.weight", NAN, false, "f32");
    for (int pooling = RG_POOLING_NONE + 1; pooling <= RG_POOLING_CLS; pooling++) {
        p = (rg_params){ .prompt = ids,
                         .n_prompt = 20,
                         .n_samples = 1,
                         .embed = (rg_pooling)pooling,
                         .sampling = rg_sampling_default() };
        expect_no_answer(e, &p);
    }
    rg_close(e);
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
        cmocka_unit_test(drafters_meet_what_is_no_number),
        cmocka_unit_test(damaged_drafters_change_no_answer),
        cmocka_unit_test(every_kind_of_answer_ends),
        cmocka_unit_test(the_server_says_so),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
