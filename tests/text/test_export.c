/* Tests of exporting: a tokenizer.json that goes over to GGUF's keys encodes as before; what cannot go over is said. */
#define _GNU_SOURCE /* memmem */
#include "support/test.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "text/export.h"
#include "text/tokenizer.h"

static void put_file(const char *path, const char *text, size_t n)
{
    rg_error err;
    rg_writer *w = rg_writer_open(path, &err);

    assert_ok(w, err);
    assert_ok(rg_writer_write(w, text, n, &err), err);
    assert_ok(rg_writer_commit(w, &err), err);
}

/* A golden's tokenizer.json beside an empty config, and the GGUF file made of it. */
static void export_golden(const char *name, int eos, rg_checkpoint **from, rg_checkpoint **to, char warning[RG_EXPORT_WARNING])
{
    char path[600], source[128], config[64] = "{}";
    rg_error err;
    size_t n;
    int32_t bos = -1;
    const int64_t one = 1;

    snprintf(source, sizeof source, "tokenizers/%s/tokenizer.json", name);
    char *text = rg_file_slurp(test_data(source), 1 << 26, &n, &err);
    assert_ok(text, err);
    snprintf(path, sizeof path, "%s/export_cases", RG_BUILD_DIR);
    assert_ok(rg_dir_make(path, &err), err);
    snprintf(path, sizeof path, "%s/export_cases/tokenizer.json", RG_BUILD_DIR);
    put_file(path, text, n);
    rg_free(text);
    snprintf(path, sizeof path, "%s/export_cases/config.json", RG_BUILD_DIR);
    if (eos >= 0) /* as the config of a model says, and a conversion copies */
        snprintf(config, sizeof config, "{\"eos_token_id\": %d}", eos);
    put_file(path, config, strlen(config));
    *from = rg_checkpoint_open(path, RG_CKPT_NO_WEIGHTS, &err);
    assert_ok(*from, err);
    rg_tokenizer *t = rg_tokenizer_open(*from, &err);
    assert_ok(t, err);
    snprintf(path, sizeof path, "%s/export_cases/t.gguf", RG_BUILD_DIR);
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    assert_ok(w, err);
    assert_ok(rg_tokenizer_export(w, *from, rg_tokenizer_size(t) + 2, &bos, warning, &err), err); /* two that it leaves out */
    assert_true(bos < 0 || rg_ckpt_put_int(w, "tokenizer.ggml.bos_token_id", 4, bos, &err));
    assert_ok(rg_ckpt_declare(w, "x", RG_F32, 1, &one, &err), err);
    assert_ok(rg_ckpt_write(w, "\0\0\0", 4, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
    *to = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(*to, err);
    rg_tokenizer_close(t);
}

/* means: which cases GGUF means the same by; NULL: all. */
static int count_differing(const char *name, const rg_checkpoint *from, const rg_checkpoint *to,
                           bool (*means)(const char *text, size_t n))
{
    char source[128];
    int n = 0;
    rg_error err;
    rg_tokenizer *a = rg_tokenizer_open(from, &err), *b = a ? rg_tokenizer_open(to, &err) : NULL;

    assert_ok(a && b, err);
    snprintf(source, sizeof source, "tokenizers/%s/cases.json", name);
    json_t *cases = json_load_file(test_data(source), JSON_ALLOW_NUL, NULL);
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *s = json_object_get(json_array_get(cases, i), "text");
        rg_ids x = { 0 }, y = { 0 };
        if (means && !means(json_string_value(s), json_string_length(s)))
            continue;
        assert_ok(rg_tokenizer_encode(a, json_string_value(s), json_string_length(s), 0, &x, &err), err);
        assert_ok(rg_tokenizer_encode(b, json_string_value(s), json_string_length(s), 0, &y, &err), err);
        n += x.n != y.n || (x.n && memcmp(x.id, y.id, x.n * sizeof *x.id));
        rg_ids_fini(&x);
        rg_ids_fini(&y);
    }
    json_decref(cases);
    rg_tokenizer_close(a);
    rg_tokenizer_close(b);
    return n;
}

static void byte_level_goes_over(void **state)
{
    static const struct {
        const char *name, *pre;
    } kinds[] = {
        { "bytelevel-gpt2", "gpt-2" },
        { "bytelevel-llama3", "llama-bpe" },
        { "bytelevel-o200k", "gpt-4o" },
        { "bytelevel-deepseek", "deepseek-coder" },
    };
    char warning[RG_EXPORT_WARNING];
    rg_checkpoint *from, *to;

    (void)state;
    for (size_t i = 0; i < RG_LEN(kinds); i++) {
        const char *pre = "";
        export_golden(kinds[i].name, -1, &from, &to, warning);
        assert_string_equal(warning, "");
        assert_int_equal(rg_meta_string(to, "tokenizer.ggml.pre", &pre, NULL), 1);
        assert_string_equal(pre, kinds[i].pre);
        assert_int_equal(count_differing(kinds[i].name, from, to, NULL), 0);
        rg_checkpoint_close(from);
        rg_checkpoint_close(to);
    }
}

static void what_is_lost_is_said(void **state)
{
    /* The last two have merges that no scores would do: pieces that could join and never do. */
    static const struct {
        const char *name, *model, *says;
    } kinds[] = {
        { "bytelevel-qwen2", "gpt2", "NFC" },
        { "gemma", "none", "merge" },
        { "spm-llama2", "none", "merge" },
    };
    char warning[RG_EXPORT_WARNING];
    rg_checkpoint *from, *to;

    (void)state;
    for (size_t i = 0; i < RG_LEN(kinds); i++) {
        const char *model = "";
        export_golden(kinds[i].name, -1, &from, &to, warning);
        assert_int_equal(rg_meta_string(to, "tokenizer.ggml.model", &model, NULL), 1);
        assert_string_equal(model, kinds[i].model);
        assert_non_null(strstr(warning, kinds[i].says));
        rg_checkpoint_close(from);
        rg_checkpoint_close(to);
    }
}

/* U+2581 is no character of its own in these files. */
static bool no_mark(const char *text, size_t n)
{
    return !memmem(text, n, "\xe2\x96\x81", 3);
}

/* What the golden's normalizers leave alone. */
static bool plain(const char *text, size_t n)
{
    bool is = !n || text[n - 1] != ' ';

    for (size_t i = 0; i < n; i++)
        is &= text[i] >= ' ' && text[i] < 127;
    return is;
}

static void words_go_over(void **state)
{
    char warning[RG_EXPORT_WARNING];
    rg_checkpoint *from, *to;

    (void)state;
    export_golden("wordpiece-bert", -1, &from, &to, warning);
    assert_string_equal(warning, "");
    assert_int_equal(count_differing("wordpiece-bert", from, to, no_mark), 0);
    rg_checkpoint_close(from);
    rg_checkpoint_close(to);

    export_golden("unigram-t5", 2, &from, &to, warning);
    assert_non_null(strstr(warning, "normalizers"));
    assert_int_equal(count_differing("unigram-t5", from, to, plain), 0);
    rg_checkpoint_close(from);
    rg_checkpoint_close(to);
}

static bool is_merges(const char *key)
{
    return !strcmp(key, "tokenizer.ggml.merges");
}

/* A file that has lost them would cut every text into bytes. */
static void a_file_without_merges_is_refused(void **state)
{
    char warning[RG_EXPORT_WARNING], path[600];
    rg_checkpoint *from, *to;
    const int64_t one = 1;
    rg_error err = { 0 };

    (void)state;
    export_golden("bytelevel-gpt2", -1, &from, &to, warning);
    snprintf(path, sizeof path, "%s/export_cases/no_merges.gguf", RG_BUILD_DIR);
    rg_ckpt_writer *w = rg_gguf_create(path, &err);
    assert_ok(w, err);
    assert_ok(rg_ckpt_put_all(w, to, is_merges, &err), err);
    assert_ok(rg_ckpt_declare(w, "x", RG_F32, 1, &one, &err), err);
    assert_ok(rg_ckpt_write(w, "\0\0\0", 4, &err), err);
    assert_ok(rg_ckpt_commit(w, &err), err);
    rg_checkpoint_close(from);
    rg_checkpoint_close(to);
    to = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(to, err);
    assert_null(rg_tokenizer_open(to, &err));
    assert_non_null(strstr(err.text, "tokenizer.ggml.merges: there are no merges"));
    rg_checkpoint_close(to);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_goes_over),
        cmocka_unit_test(what_is_lost_is_said),
        cmocka_unit_test(a_file_without_merges_is_refused),
        cmocka_unit_test(words_go_over),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
