/* Tests of how a checkpoint asks to be sampled from: GGUF's general.sampling.*, generation_config.json, and the way from
 * one to the other. */
#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "model/convert.h"
#include "model/notes.h"

#define KEY "general.sampling."

typedef struct put {
    const char *key;
    double value;
    bool whole;
} put;

/* golden llama's GGUF file with these keys more. */
static rg_checkpoint *with_keys(const put *keys, size_t n)
{
    const char *path = test_scratch("sampled.gguf");
    rg_error err = { 0 };
    rg_checkpoint *c = rg_checkpoint_open(test_data("llama/model.gguf"), RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    rg_ckpt_writer *w = rg_gguf_create(path, &err);

    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, c, NULL, &err), err);
    for (size_t i = 0; i < n; i++)
        assert_ok(keys[i].whole ? rg_ckpt_put_int(w, keys[i].key, 5, (int64_t)keys[i].value, &err)
                                : rg_ckpt_put_float(w, keys[i].key, keys[i].value, &err), err);
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        assert_ok(rg_ckpt_declare(w, t->name, t->type, t->n_dims, t->shape, &err), err);
    }
    for (int i = 0; i < rg_checkpoint_n_tensors(c); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(c, i);
        void *raw = malloc(t->bytes);
        assert_ok(rg_tensor_read(c, t, 0, raw, t->bytes, &err), err);
        assert_ok(rg_ckpt_write(w, raw, t->bytes, &err), err);
        free(raw);
    }
    rg_checkpoint_close(c);
    assert_ok(rg_ckpt_commit(w, &err), err);
    c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    return c;
}

static void are(const rg_sampling *s, const rg_sampling *want)
{
    for (int i = 0; i < RG_N_SAMPLING_KEYS; i++)
        assert_memory_equal((const char *)s + rg_sampling_keys[i].at, (const char *)want + rg_sampling_keys[i].at,
                            sizeof(float));
}

static void keys_of_gguf_are_followed(void **state)
{
    static const put keys[] = {
        { KEY "temp", 0.5, false },           { KEY "top_k", 64, true },           { KEY "top_p", 0.75, false },
        { KEY "min_p", 0.25, false },         { KEY "penalty_repeat", 1.5, false }, { KEY "penalty_last_n", 64, true },
        { KEY "xtc_probability", 0.5, false }, { KEY "xtc_threshold", 0.25, false }, { KEY "mirostat", 2, true },
        { KEY "mirostat_tau", 4, false },     { KEY "mirostat_eta", 0.5, false },
    };
    static const put none[] = { { KEY "top_k", -1, true }, { KEY "penalty_repeat", 1.5, false },
                                { KEY "penalty_last_n", 0, true } };
    rg_config *config = malloc(sizeof *config);
    rg_sampling want = RG_SAMPLING_NEUTRAL;
    rg_error err = { 0 };

    (void)state;
    rg_checkpoint *c = with_keys(none, RG_LEN(none));
    assert_ok(rg_config_read(config, c, &err), err);
    are(&config->sampling, &want); /* no limit, and a penalty of the last 0 ids */
    rg_checkpoint_close(c);
    c = with_keys(keys, RG_LEN(keys));
    assert_ok(rg_config_read(config, c, &err), err);
    want.temperature = want.xtc_probability = want.mirostat_eta = 0.5f;
    want.top_p = 0.75f;
    want.min_p = want.xtc_threshold = 0.25f;
    want.repetition_penalty = 1.5f;
    want.top_k = want.penalty_last_n = 64;
    want.mirostat = 2;
    want.mirostat_tau = 4;
    are(&config->sampling, &want);
    rg_checkpoint_close(c);
    free(config);
}

/* What is not followed is named. */
static void other_keys_are_named(void **state)
{
    static const put odd[] = { { KEY "odd_one", 3, true }, { KEY "temp", 0.5, false } };
    rg_config *config = malloc(sizeof *config);
    rg_error err = { 0 };

    (void)state;
    for (size_t n = 0; n <= 1; n++) {
        rg_checkpoint *c = with_keys(odd + 1 - n, 1);
        assert_ok(rg_config_read(config, c, &err), err);
        char *notes = rg_notes(config, c, &err);
        assert_ok(notes, err);
        assert_true(!strstr(notes, KEY) == !n && !strstr(notes, "odd_one") == !n);
        rg_free(notes);
        rg_checkpoint_close(c);
    }
    free(config);
}

static void they_go_over_to_gguf(void **state)
{
    static const char *const files[] = { "config.json", "model.safetensors" };
    char folder[600], path[700], to[600];
    rg_config *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    rg_convert_report report;
    rg_error err = { 0 };

    (void)state;
    snprintf(folder, sizeof folder, "%s", test_scratch("sampled"));
    mkdir(folder, 0777);
    for (size_t i = 0; i < RG_LEN(files); i++) {
        size_t n;
        snprintf(path, sizeof path, "llama/%s", files[i]);
        char *text = rg_file_slurp(test_data(path), 1 << 24, &n, &err);
        assert_ok(text, err);
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        rg_writer *w = rg_writer_open(path, &err);
        assert_ok(w && rg_writer_write(w, text, n, &err) && rg_writer_commit(w, &err), err);
        rg_free(text);
    }
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    test_write_text(path, "{\"do_sample\": true, \"temperature\": 0.25, \"top_k\": 20, \"top_p\": 0.5, \"min_p\": 0.125, "
                          "\"typical_p\": 0.75, \"repetition_penalty\": 1.25}");
    rg_checkpoint *from = rg_checkpoint_open(folder, RG_CKPT_DEFAULT, &err);
    assert_ok(from, err);
    assert_ok(rg_config_read(a, from, &err), err);
    snprintf(to, sizeof to, "%s", test_scratch("sampled_over.gguf"));
    assert_ok(rg_convert(&report, from, to, &(rg_convert_options){ .type = RG_F32, .n_threads = 1 }, &err), err);
    rg_convert_report_fini(&report);
    rg_checkpoint_close(from);
    from = rg_checkpoint_open(to, RG_CKPT_DEFAULT, &err);
    assert_ok(from, err);
    assert_ok(rg_config_read(b, from, &err), err);
    assert_true(a->sampling.temperature == 0.25f && a->sampling.typical_p == 0.75f);
    are(&b->sampling, &a->sampling);
    rg_checkpoint_close(from);
    free(a);
    free(b);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_of_gguf_are_followed),
        cmocka_unit_test(other_keys_are_named),
        cmocka_unit_test(they_go_over_to_gguf),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
