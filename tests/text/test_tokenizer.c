/* test_tokenizer.c -- whole tokenizers against what the published libraries make of the same texts. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/json.h"
#include "text/tokenizer.h"

static rg_tokenizer *open_ok(const char *path)
{
    rg_error err = { 0 };
    rg_tokenizer *t = rg_tokenizer_open_path(path, &err);

    assert_ok(t, err);
    return t;
}

static json_t *parse_file(const char *path)
{
    rg_error err = { 0 };
    size_t n = 0;
    char *text = rg_file_slurp(path, 1 << 28, &n, &err);
    json_t *v;

    assert_ok(text, err);
    v = rg_json_parse(path, text, n, &err);
    assert_ok(v, err);
    rg_free(text);
    return v;
}

/* True if the ids of text are those of the list. */
static bool same_ids(const rg_tokenizer *t, const char *text, size_t n, unsigned flags, const json_t *want)
{
    rg_error err = { 0 };
    rg_ids ids = { 0 };
    bool same;

    assert_ok(rg_tokenizer_encode(t, text, n, flags, &ids, &err), err);
    same = ids.n == json_array_size(want);
    for (size_t i = 0; same && i < ids.n; i++)
        same = ids.id[i] == json_integer_value(json_array_get(want, i));
    if (!same) {
        printf("  text %.*s\n  ids ", (int)(n < 200 ? n : 200), text);
        for (size_t i = 0; i < ids.n && i < 60; i++)
            printf(" %d", ids.id[i]);
        printf("\n  want");
        for (size_t i = 0; i < json_array_size(want) && i < 60; i++)
            printf(" %lld", (long long)json_integer_value(json_array_get(want, i)));
        printf("\n");
    }
    rg_ids_fini(&ids);
    return same;
}

static bool same_text(const rg_tokenizer *t, const json_t *list, bool skip_special, const json_t *want)
{
    rg_error err = { 0 };
    size_t n = json_array_size(list), n_text = 0;
    int32_t *ids = rg_array(n + 1, sizeof *ids);
    char *text;
    bool same;

    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    text = rg_tokenizer_decode(t, ids, n, skip_special, &n_text, &err);
    assert_ok(text, err);
    same = n_text == json_string_length(want) && !memcmp(text, json_string_value(want), n_text);
    if (!same)
        printf("  decoded '%s'\n  want    '%s'\n", text, json_string_value(want));
    rg_free(text);
    rg_free(ids);
    return same;
}

static int check_case(const rg_tokenizer *t, const json_t *c)
{
    const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids"),
                 *bare = json_object_get(c, "ids_no_special");
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);

    return !same_ids(t, s, n, RG_ENCODE_DEFAULT, ids) + !same_ids(t, s, n, RG_ENCODE_NO_SPECIAL, bare) +
           !same_text(t, bare, false, json_object_get(c, "decoded")) +
           !same_text(t, ids, true, json_object_get(c, "decoded_skip_special"));
}

static void check_cases(const char *tokenizer, const char *cases, size_t expected)
{
    rg_tokenizer *t = open_ok(tokenizer);
    json_t *list = parse_file(cases);
    int wrong = 0;

    for (size_t i = 0; i < json_array_size(list); i++)
        wrong += check_case(t, json_array_get(list, i));
    printf("%s: %zu cases, %d answers wrong\n", cases, json_array_size(list), wrong);
    assert_int_equal(json_array_size(list), expected);
    assert_int_equal(wrong, 0);
    json_decref(list);
    rg_tokenizer_close(t);
}

#define GOLDEN(name)                                                                                                   \
    static void golden_##name(void **state)                                                                            \
    {                                                                                                                  \
        (void)state;                                                                                                   \
        check_cases(test_data("tokenizers/" FOLDER "/tokenizer.json"), test_data("tokenizers/" FOLDER "/cases.json"),  \
                    171);                                                                                              \
    }
#define FOLDER "bytelevel-gpt2"
GOLDEN(gpt2)
#undef FOLDER
#define FOLDER "bytelevel-llama3"
GOLDEN(llama3)
#undef FOLDER
#define FOLDER "bytelevel-qwen2"
GOLDEN(qwen2)
#undef FOLDER
#define FOLDER "bytelevel-o200k"
GOLDEN(o200k)
#undef FOLDER
#define FOLDER "bytelevel-deepseek"
GOLDEN(deepseek)
#undef FOLDER
#define FOLDER "spm-llama2"
GOLDEN(spm_llama2)
#undef FOLDER
#define FOLDER "metaspace-first"
GOLDEN(metaspace_first)
#undef FOLDER
#define FOLDER "gemma"
GOLDEN(gemma)
#undef FOLDER
#define FOLDER "unigram-t5"
GOLDEN(unigram_t5)
#undef FOLDER
#define FOLDER "wordpiece-bert"
GOLDEN(wordpiece_bert)
#undef FOLDER

/* The shipped models' tokenizer. */
static void tales(void **state)
{
    rg_tokenizer *t;

    (void)state;
    check_cases(RG_SOURCE_DIR "/models/tales-7m", test_data("tokenizers/tales/cases.json"), 171);
    t = open_ok(RG_SOURCE_DIR "/models/tales-7m");
    assert_int_equal(rg_tokenizer_size(t), 4096);
    assert_int_equal(rg_tokenizer_bos(t), 0);
    assert_int_equal(rg_tokenizer_eos(t), 0);
    assert_true(rg_tokenizer_adds_bos(t));
    assert_true(rg_tokenizer_is_special(t, 3));
    assert_false(rg_tokenizer_is_special(t, 4));
    assert_string_equal(rg_tokenizer_kind(t), "byte-level BPE");
    rg_tokenizer_close(t);
}

/* The vocabularies of GGUF with their lists of texts (.inp) and ids (.out); left beside the checkout because of their
 * licences. */
static void gguf_lists(void **state)
{
    static const char *const names[] = { "llama-spm", "phi-3", "gpt-2", "falcon", "mpt", "deepseek-llm" };
    static const char folder[] = RG_SOURCE_DIR "/../shared/data/tokenizers";
    static const char between[] = "\n__ggml_vocab_test__\n";
    int all_wrong = 0;

    (void)state;
    if (rg_path_look(folder) != RG_PATH_DIR) {
        printf("%s is not there: the GGUF vocabularies were not tested\n", folder);
        skip();
    }
    for (size_t i = 0; i < RG_LEN(names); i++) {
        char path[1024];
        rg_error err = { 0 };
        size_t n;
        int cases = 0, wrong = 0;

        snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf", folder, names[i]);
        rg_tokenizer *t = open_ok(path);
        snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.inp", folder, names[i]);
        char *in = rg_file_slurp(path, 1 << 20, &n, &err);
        assert_ok(in, err);
        snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.out", folder, names[i]);
        char *out = rg_file_slurp(path, 1 << 20, &n, &err);
        assert_ok(out, err);
        char *text = in, *line = out;
        while (text && line) {
            char *end = strstr(text, between), *eol = strchr(line, '\n');
            json_t *want = json_array();
            size_t length = end ? (size_t)(end - text) : strlen(text);

            for (char *p = line, *q; p < eol; p = q) {
                long id = strtol(p, &q, 10);
                if (q == p || q > eol)
                    break;
                json_array_append_new(want, json_integer(id));
            }
            wrong += !same_ids(t, text, length, RG_ENCODE_NO_SPECIAL, want);
            json_decref(want);
            cases++;
            text = end ? end + strlen(between) : NULL;
            line = eol ? eol + 1 : NULL;
        }
        printf("%s: %d cases, %d wrong\n", names[i], cases, wrong);
        assert_true(cases > 40);
        all_wrong += wrong;
        rg_free(in);
        rg_free(out);
        rg_tokenizer_close(t);
    }
    assert_int_equal(all_wrong, 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden_gpt2),  cmocka_unit_test(golden_llama3),          cmocka_unit_test(golden_qwen2),
        cmocka_unit_test(golden_o200k), cmocka_unit_test(golden_deepseek),        cmocka_unit_test(golden_spm_llama2),
        cmocka_unit_test(golden_gemma), cmocka_unit_test(golden_metaspace_first), cmocka_unit_test(tales),
        cmocka_unit_test(gguf_lists),   cmocka_unit_test(golden_unigram_t5),      cmocka_unit_test(golden_wordpiece_bert),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
