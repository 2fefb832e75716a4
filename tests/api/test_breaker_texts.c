/* test_breaker_texts.c -- DRY's sequence breakers of a tokenizer are those that llama.cpp finds.
 *
 * dry-breakers.json: what its llama_sampler_init_dry (build 11434) made of texts, given the texts of this vocabulary's
 * ids and the ids of the texts' ends.  A breaker is a list: the head and its tail. */
#include <jansson.h>
#include <string.h>

#include "api/breaker_texts.h"
#include "base/mem.h"
#include "support/test.h"

#define TALES RG_SOURCE_DIR "/models/tales-1m"

static bool is_row(const json_t *row, const rg_breakers *b, const rg_breaker *one)
{
    const int32_t *tail = rg_breakers_tail(b, one);
    bool same = (size_t)one->n_tail + 1 == json_array_size(row);

    for (int32_t i = 0; i < one->n_tail && same; i++)
        same = tail[i] == json_integer_value(json_array_get(row, (size_t)i + 1));
    return same;
}

/* True if the golden breakers of this head are those found, each once or more. */
static bool head_is(const rg_breakers *b, const json_t *rows, int32_t head)
{
    const rg_breaker *of;
    size_t n = rg_breakers_of(b, head, &of), i;
    const json_t *row;
    bool known[64] = { 0 };

    assert_true(n <= RG_LEN(known));
    json_array_foreach(rows, i, row) {
        bool found = json_integer_value(json_array_get(row, 0)) != head;

        for (size_t k = 0; k < n && json_integer_value(json_array_get(row, 0)) == head; k++)
            if (is_row(row, b, &of[k]))
                found = known[k] = true;
        if (!found)
            return false;
    }
    for (size_t k = 0; k < n; k++)
        if (!known[k] || (k && of[k].n_tail > of[k - 1].n_tail))
            return false;
    return true;
}

static void breakers_are_those_of_llama_cpp(void **state)
{
    json_error_t why;
    json_t *cases = json_load_file(test_data("dry-breakers.json"), 0, &why), *c;
    rg_error err;
    rg_tokenizer *t = rg_tokenizer_open_path(TALES, &err);
    rg_breaker_texts *texts = t ? rg_breaker_texts_new(t, &err) : NULL;
    size_t i;

    (void)state;
    assert_ok(texts, err);
    assert_int_equal(json_array_size(cases), 4);
    json_array_foreach(cases, i, c) {
        const json_t *list = json_object_get(c, "texts"), *rows = json_object_get(c, "breakers");
        const char *wanted[8];
        int32_t n = (int32_t)json_array_size(list);

        for (int32_t k = 0; k < n; k++)
            wanted[k] = json_string_value(json_array_get(list, (size_t)k));
        rg_breakers *b = rg_breaker_texts_get(texts, i ? wanted : NULL, n, &err); /* the first are the usual ones */
        assert_ok(b, err);
        for (int32_t id = 0; id < rg_tokenizer_size(t); id++)
            if (!head_is(b, rows, id))
                fail_msg("the breakers that begin in id %d, of list %d", (int)id, (int)i);
        rg_breakers *again = rg_breaker_texts_get(texts, wanted, n, &err);
        assert_ptr_equal(again, b);
        rg_breakers_unref(again);
        rg_breakers_unref(b);
    }
    rg_breaker_texts_free(texts);
    rg_tokenizer_close(t);
    json_decref(cases);
}

/* More lists than are kept, empty ones, and texts that are nowhere. */
static void any_list_is_taken(void **state)
{
    rg_error err;
    rg_tokenizer *t = rg_tokenizer_open_path(TALES, &err);
    rg_breaker_texts *texts = t ? rg_breaker_texts_new(t, &err) : NULL;
    rg_breakers *kept, *b;
    const rg_breaker *of;

    (void)state;
    assert_ok(texts, err);
    kept = rg_breaker_texts_get(texts, (const char *const[]){ "\n" }, 1, &err);
    assert_ok(kept, err);
    for (int i = 0; i < 40; i++) {
        char text[] = "a\xff\xc3x";
        const char *list[] = { text, "", "zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz" };

        text[0] = (char)('A' + i);
        b = rg_breaker_texts_get(texts, list, i % 4, &err);
        assert_ok(b, err);
        rg_breakers_unref(b);
    }
    b = rg_breaker_texts_get(texts, (const char *const[]){ "" }, 1, &err);
    assert_ok(b, err);
    for (int32_t id = 0; id < rg_tokenizer_size(t); id++)
        assert_int_equal(rg_breakers_of(b, id, &of), 0);
    rg_breakers_unref(b);
    rg_breakers_unref(kept); /* a set that is kept no more lives as long as its last reference */
    rg_breaker_texts_free(texts);
    rg_tokenizer_close(t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(breakers_are_those_of_llama_cpp),
        cmocka_unit_test(any_list_is_taken),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
