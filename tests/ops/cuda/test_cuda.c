/* test_cuda.c -- models on a GPU, which the tests' driver emulates (support/cuda/): exactly they give the bits of the
 * definition, quickly the same bits however rows are batched, and what cannot be computed is named. */
#include "model/worlds.h"

#include <dlfcn.h>

enum { LEN = 90, MANY = 70 };

static const rg_backend *cuda(void)
{
    rg_error err = { 0 };
    const rg_backend *b = rg_backend_find("cuda", &err);

    assert_ok(b, err);
    return b;
}

/* What happens in the background happens late from now on, where the driver is the emulated one. */
static void set_late(bool late)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    void (*set)(bool late) = NULL;

    assert_non_null(driver);
    *(void **)(void *)&set = dlsym(driver, "emulated_set_late");
    if (set)
        set(late);
    dlclose(driver);
}

static test_rig_options options(const rg_backend *b, bool exact)
{
    return (test_rig_options){ .backend = b, .n_threads = 1, .exact = exact, .max_rows = LEN, .max_seqs = 3, .max_len = LEN };
}

static void same(const char *what, const test_model *t, const float *got, const float *want)
{
    const int vocab = t->m->config.vocab_size;

    for (int i = 0; i < LEN * vocab; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0)
            fail_msg("%s: logit %d of row %d is %a and not %a", what, i % vocab, i / vocab, (double)got[i],
                     (double)want[i]);
}

/* ---- with other sequences ----------------------------------------------------------------------------------------- */

typedef struct company {
    float *logits; /* of the first feed */
    int vocab, at;
} company;

static void keep_first(void *arg, int feed, int row, float *logits)
{
    const company *c = arg;

    if (!feed)
        memcpy(c->logits + (size_t)(c->at + row) * (size_t)c->vocab, logits, (size_t)c->vocab * sizeof *logits);
}

/* As test_logits, one row, then seven, and so on, beside two sequences of other ids. */
static float *in_company(const test_model *t, const test_rig_options *o)
{
    company c = { .vocab = t->m->config.vocab_size };
    int32_t ids[3][LEN];
    rg_error err = { 0 };
    rg_seq *q[3];
    test_rig rig;

    c.logits = malloc((size_t)LEN * (size_t)c.vocab * sizeof *c.logits);
    test_rig_open(&rig, t, o);
    for (int s = 0; s < 3; s++) {
        q[s] = rg_seq_new(rig.states, LEN, 0, &err);
        assert_ok(q[s], err);
        for (int i = 0; i < LEN; i++)
            ids[s][i] = s ? (i * 53 + s * 17) % 250 : i * 37 % 250;
    }
    for (int n; c.at < LEN; c.at += n) {
        test_feed feeds[3];
        int n_feeds = 0;

        n = LEN - c.at < 7 ? 1 : c.at % 2 ? 7 : 1;
        for (int s = 0; s < 3; s++) {
            const int k = s ? s : n;

            if (q[s]->length + k > LEN)
                continue;
            assert_true(rg_seq_grow(rig.states, q[s], q[s]->length + k));
            feeds[n_feeds++] = (test_feed){ .seq = q[s], .ids = ids[s] + q[s]->length, .n = k };
        }
        test_rig_step(&rig, feeds, n_feeds, keep_first, &c);
        for (int i = 0; i < n_feeds; i++)
            rg_seq_advance(rig.states, feeds[i].seq, feeds[i].n, 0, NULL);
    }
    for (int s = 0; s < 3; s++)
        rg_seq_free(rig.states, q[s]);
    test_rig_close(&rig);
    return c.logits;
}

/* ---- one model ---------------------------------------------------------------------------------------------------- */

static void has_bits_of_the_definition(const char *what, const test_model *on_gpu, const test_model *on_host)
{
    const test_rig_options o = options(cuda(), true), ref = options(rg_backend_find("ref", NULL), true);
    float *want = test_logits(on_host, &ref, MANY, 7), *got;

    for (int late = 0; late < 2; late++) {
        set_late(late);
        got = test_logits(on_gpu, &o, late ? 3 : MANY, late ? 11 : 1);
        same(what, on_gpu, got, want);
        free(got);
    }
    free(want);
}

/* Quickly: within `tolerance` of the definition's exact logits, and the same bits at every cut. */
static void is_the_same_in_any_batch(const char *what, const test_model *on_gpu, const test_model *on_host, float tolerance)
{
    static const int cuts[][2] = { { LEN, 1 }, { 17, 33 }, { 3, 9 } };
    const test_rig_options o = options(cuda(), false), ref = options(rg_backend_find("ref", NULL), true);
    float *exact = test_logits(on_host, &ref, LEN, 1), *alone, *got;

    set_late(false);
    alone = test_logits(on_gpu, &o, 1, 1);
    test_close_to(what, alone, exact, (size_t)LEN * (size_t)on_gpu->m->config.vocab_size, tolerance);
    for (size_t i = 0; i < RG_LEN(cuts); i++) {
        set_late(i % 2);
        got = test_logits(on_gpu, &o, cuts[i][0], cuts[i][1]);
        same(what, on_gpu, got, alone);
        free(got);
    }
    got = in_company(on_gpu, &o);
    same(what, on_gpu, got, alone);
    free(got);
    free(alone);
    free(exact);
}

static void check(const char *path, const char *kv_type, float tolerance)
{
    test_model on_gpu, on_host;
    char what[600];

    snprintf(what, sizeof what, "%s, K/V in %s", path, kv_type);
    test_model_open_on(&on_gpu, path, kv_type, cuda());
    test_model_open(&on_host, path, kv_type);
    has_bits_of_the_definition(what, &on_gpu, &on_host);
    is_the_same_in_any_batch(what, &on_gpu, &on_host, tolerance);
    test_model_close(&on_gpu);
    test_model_close(&on_host);
}

/* ---- models ------------------------------------------------------------------------------------------------------- */

/* What is multiplied in bf16 is off by so much; where experts are chosen, sometimes another one is. */
static const float rounded = 0.03f, chosen = 0.05f;

#define MODEL(test, folder, kv_type, other_kv, tolerance)                                                              \
    static void test(void **state)                                                                                     \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check(test_data(folder), kv_type, tolerance);                                                                  \
        check(world_quantized(folder, 0), other_kv, tolerance);                                                        \
    }
MODEL(llama, "llama", "f32", "bf16", rounded)
MODEL(qwen3, "qwen3", "bf16", "f32", rounded)
MODEL(gemma3, "gemma3", "f16", "q8", rounded)
MODEL(mixtral, "mixtral", "q8", "f16", chosen)
#undef MODEL

static void formats_of_many_bits(void **state)
{
    (void)state;
    check(world_wide(false), "f32", rounded);
    check(world_wide(true), "bf16", chosen);
}

/* The other decoders that it computes: every kind of norm, activation, rope, routing, window, cap and sink has the bits of the
 * definition. */
static void other_models(void **state)
{
    static const char *const names[] = {
        "character-ai", "cla2", "cla2-moe", "cla3", "cohere2", "exaone4", "falcon", "gemma2", "gemma4", "gemma4-moe",
        "glm4-moe", "gpt-neox", "gpt-oss", "gpt-oss-mxfp4", "gpt2", "granite", "hunyuan-dense", "llama3",
        "minimax-m2", "ministral3", "mistral-swa", "nemotron", "olmo2", "olmo3", "opt", "phi-moe", "phi3",
        "phi4-mini", "qwen2", "qwen3-moe", "smollm3", "starcoder",
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        if (!test_all() && i % 8 != 4) /* a few of them gate */
            continue;
        test_model on_gpu, on_host;

        test_model_open_on(&on_gpu, test_data(names[i]), "f32", cuda());
        test_model_open(&on_host, test_data(names[i]), "f32");
        has_bits_of_the_definition(names[i], &on_gpu, &on_host);
        test_model_close(&on_gpu);
        test_model_close(&on_host);
    }
}

/* ---- what it cannot compute --------------------------------------------------------------------------------------- */

static void is_refused(const char *folder, const char *about)
{
    const rg_model_options o = { .kv_type = "f32", .backend = cuda() };
    const rg_runner_options ro = { .backend = cuda(), .n_threads = 1, .max_rows = 16, .max_logits = 16, .max_seqs = 1,
                                   .max_seq_len = 16, .state_bytes = (size_t)16 << 20 };
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data(folder), RG_CKPT_DEFAULT, &err);
    rg_model *m;
    rg_runner *r = NULL;

    assert_ok(c, err);
    m = rg_model_open(c, &o, &err);
    if (m)
        r = rg_model_runner_new(m, &ro, &err);
    assert_null(r);
    if (err.code != RG_E_UNSUPPORTED || !strstr(err.text, about))
        fail_msg("%s is refused with: %s", folder, err.text);
    rg_model_close(m);
    rg_checkpoint_close(c);
}

static void others_are_refused(void **state)
{
    (void)state;
    is_refused("deepseek-v2", "layer 0: attention over latents (MLA) cannot be computed on a GPU yet");
    is_refused("mamba", "layer 0: the operation 'conv' cannot be computed on a GPU yet");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama),   cmocka_unit_test(qwen3),
        cmocka_unit_test(gemma3),  cmocka_unit_test(mixtral),
        cmocka_unit_test(formats_of_many_bits), cmocka_unit_test(other_models),
        cmocka_unit_test(others_are_refused),
    };

    test_init(argc, argv);
    return test_run_part(tests, RG_LEN(tests));
}
