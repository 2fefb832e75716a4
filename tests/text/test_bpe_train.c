/* Vocabularies by BPE against the tokenizers library's of the same text, and what ridge's own tokenizer makes of them. */
#include "support/cases.h"
#include "support/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "text/bpe_train.h"
#include "text/tokenizer.h"

static const char *const special[] = { "<|endoftext|>" };

/* The vocabulary of a text that is given in pieces, as a file. */
static const char *train(const char *text, size_t n, int size, int *got)
{
    const char *path = test_scratch("tokenizer.json");
    rg_error err = { 0 };
    rg_bpe_training *t = rg_bpe_training_new(&err);
    rg_buf json;

    assert_ok(t, err);
    assert_ok(rg_bpe_training_add(t, text, n, &err), err);
    rg_buf_init(&json, 1 << 26);
    assert_ok(rg_bpe_training_end(t, size, special, 1, &json, got, &err), err);
    rg_bpe_training_free(t);
    test_write_text(path, json.data);
    rg_buf_fini(&json);
    return path;
}

/* golden/tokenizers/merges-of-calibration.json: BpeTrainer of tokenizers 0.22 on models/calibration.txt, 700 ids. */
static void merges_as_the_library(void **state)
{
    json_t *want = cases_load("tokenizers/merges-of-calibration.json"), *made;
    rg_error err = { 0 };
    size_t n;
    int got;
    char *text = rg_file_slurp(RG_SOURCE_DIR "/models/calibration.txt", 1 << 24, &n, &err);

    (void)state;
    assert_ok(text, err);
    made = json_load_file(train(text, n, 700, &got), 0, NULL);
    assert_int_equal(got, 700);
    assert_true(json_equal(json_object_get(json_object_get(made, "model"), "merges"), want));
    json_decref(made);
    json_decref(want);
    rg_free(text);
}

static void makes_a_tokenizer_that_reads_its_text_back(void **state)
{
    static const char text[] = "low lower lowest low low \xc3\xa9t\xc3\xa9 12345\n\n  newer newest\n";
    rg_error err = { 0 };
    rg_ids ids = { 0 };
    size_t n;
    int got;
    rg_tokenizer *t = rg_tokenizer_open_path(train(text, sizeof text - 1, 300, &got), &err);

    (void)state;
    assert_ok(t, err);
    assert_true(got < 300); /* every word is one piece before */
    assert_int_equal(rg_tokenizer_size(t), got);
    assert_ok(rg_tokenizer_encode(t, text, sizeof text - 1, RG_ENCODE_PLAIN, &ids, &err), err);
    assert_int_equal(ids.id[0], 0);
    char *back = rg_tokenizer_decode(t, ids.id, ids.n, true, &n, &err);
    assert_ok(back, err);
    assert_int_equal(n, sizeof text - 1);
    assert_memory_equal(back, text, n);
    rg_free(back);
    rg_ids_fini(&ids);
    rg_tokenizer_close(t);
}

static void refuses_a_size_without_room_for_bytes(void **state)
{
    rg_error err = { 0 };
    rg_bpe_training *t = rg_bpe_training_new(&err);
    rg_buf json;
    int got;

    (void)state;
    assert_ok(t, err);
    rg_buf_init(&json, 1 << 20);
    assert_false(rg_bpe_training_end(t, 256, special, 1, &json, &got, &err));
    assert_non_null(strstr(err.text, "256"));
    rg_buf_fini(&json);
    rg_bpe_training_free(t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_as_the_library),
        cmocka_unit_test(makes_a_tokenizer_that_reads_its_text_back),
        cmocka_unit_test(refuses_a_size_without_room_for_bytes),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
