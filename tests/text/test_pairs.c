/* test_pairs.c -- pairs of texts as the tokenizers library puts them together: templates, the post-processors of BERT and
 * RoBERTa, and those after one another. */
#include "support/model.h"
#include "support/tokenizer.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/json.h"

static json_t *parse_file(const char *path)
{
    rg_error err = { 0 };
    size_t n = 0;
    char *text = rg_file_slurp(path, 1 << 28, &n, &err);

    assert_ok(text, err);
    json_t *v = rg_json_parse(path, text, n, &err);
    assert_ok(v, err);
    rg_free(text);
    return v;
}

/* The golden tokenizer with another post-processor. */
static rg_tokenizer *open_with(const char *name, const json_t *post, rg_error *err)
{
    char path[256];

    snprintf(path, sizeof path, "tokenizers/%s/tokenizer.json", name);
    json_t *root = parse_file(test_data(path));
    if (!json_is_null(post))
        assert_int_equal(json_object_set(root, "post_processor", (json_t *)(uintptr_t)post), 0);
    const char *to = test_scratch("tokenizer.json");
    assert_int_equal(json_dump_file(root, to, 0), 0);
    json_decref(root);
    return rg_tokenizer_open_path(to, err);
}

static bool same(const rg_ids *ids, const json_t *want)
{
    bool is = ids->n == json_array_size(want);

    for (size_t i = 0; is && i < ids->n; i++)
        is = ids->id[i] == json_integer_value(json_array_get(want, i));
    return is;
}

/* Where the first type 1 stands, behind which all must be; 0: nowhere, or at the start. */
static int32_t second_of(const json_t *types)
{
    int32_t at = -1;

    for (size_t i = 0; i < json_array_size(types); i++) {
        json_int_t type = json_integer_value(json_array_get(types, i));
        if (type && at < 0)
            at = (int32_t)i;
        assert_true(at < 0 || type == 1);
    }
    return at < 0 ? 0 : at;
}

static int check_pair(const rg_tokenizer *t, const json_t *c)
{
    const json_t *a = json_object_get(c, "first"), *b = json_object_get(c, "second");
    const rg_string text[2] = { { json_string_value(a), json_string_length(a) },
                                { json_string_value(b), json_string_length(b) } };
    rg_error err = { 0 };
    rg_ids ids = { 0 }, bare = { 0 };
    int32_t second = -1, ignored;

    assert_ok(rg_tokenizer_encode_pair(t, text, RG_ENCODE_DEFAULT, &ids, &second, &err), err);
    assert_ok(rg_tokenizer_encode_pair(t, text, RG_ENCODE_NO_SPECIAL, &bare, &ignored, &err), err);
    bool ok = same(&ids, json_object_get(c, "ids")) && same(&bare, json_object_get(c, "ids_no_special")) &&
              (second == second_of(json_object_get(c, "types")) || second == (int32_t)ids.n);
    if (!ok)
        printf("  '%s', '%s': %zu ids, the second from %d\n", text[0].data, text[1].data, ids.n, second);
    rg_ids_fini(&ids);
    rg_ids_fini(&bare);
    return !ok;
}

static void pairs_as_published(void **state)
{
    (void)state;
    json_t *all = parse_file(test_data("tokenizers/pairs.json"));
    int wrong = 0, n = 0;

    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *of = json_array_get(all, i), *pairs = json_object_get(of, "pairs");
        const char *name = json_string_value(json_object_get(of, "tokenizer"));
        rg_error err = { 0 };
        rg_tokenizer *t = open_with(name, json_object_get(of, "post_processor"), &err);

        assert_ok(t, err);
        for (size_t k = 0; k < json_array_size(pairs); k++, n++)
            wrong += check_pair(t, json_array_get(pairs, k));
        rg_tokenizer_close(t);
    }
    json_decref(all);
    assert_int_equal(n, 66);
    assert_int_equal(wrong, 0);
}

/* A template for pairs that ridge does not have refuses pairs, and not the tokenizer. */
static void an_odd_template_refuses_pairs_alone(void **state)
{
    (void)state;
    const rg_string text[2] = { { "a", 1 }, { "b", 1 } };
    rg_error err = { 0 };
    rg_ids ids = { 0 };
    int32_t second;
    json_t *post = json_pack("{s:s, s:[{s:{s:s, s:i}}], s:[{s:{s:s, s:i}}], s:{}}", "type", "TemplateProcessing", "single",
                             "Sequence", "id", "A", "type_id", 0, "pair", "Sequence", "id", "B", "type_id", 0,
                             "special_tokens");
    assert_non_null(post);
    rg_tokenizer *t = open_with("wordpiece-bert", post, &err);

    json_decref(post);
    assert_ok(t, err);
    assert_true(rg_tokenizer_encode(t, "a", 1, 0, &ids, &err));
    assert_false(rg_tokenizer_encode_pair(t, text, 0, &ids, &second, &err));
    assert_int_equal(err.code, RG_E_UNSUPPORTED);
    rg_ids_fini(&ids);
    rg_tokenizer_close(t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_as_published),
        cmocka_unit_test(an_odd_template_refuses_pairs_alone),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
