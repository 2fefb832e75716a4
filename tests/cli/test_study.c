/* test_study.c -- `ridge study`: rows for each model, context and batch; what is measured and what is counted; the file that
 * it goes on from.  What is known of this machine is made up (support/profile.h). */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"
#include "support/profile.h"

#define GOLDEN RG_TEST_DATA "/"
#define RECALL "study recall " GOLDEN "mamba " GOLDEN "qwen2/config.json --context 64,128 --batch 1,2 --decode 1 --threads 2 "

static json_t *rows_of(json_t *j)
{
    return json_object_get(j, "rows");
}

static const char *text(json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

static double number(json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static void recall(void **state)
{
    (void)state;
    json_t *j = command_json(RECALL "--length 64 --pairs 4 --examples 4 --json");
    assert_int_equal(json_array_size(rows_of(j)), 8);
    for (size_t i = 0; i < 8; i++) {
        json_t *r = json_array_get(rows_of(j), i);

        assert_string_equal(text(r, "model"), i < 4 ? "mamba" : "qwen2");
        assert_true(number(r, "context") == (i / 2 % 2 ? 128 : 64) && number(r, "batch") == (i % 2 ? 2 : 1));
        assert_true(json_is_true(json_object_get(r, "measured")) && number(r, "tok_s") > 0);
        /* A recurrent state is as large after any context; K/V is not, and both are the numbers of the model. */
        if (i < 4)
            assert_true(number(r, "state_bytes_per_position") == 0 &&
                        number(r, "state_bytes") == number(r, "state_bytes_per_sequence"));
        else
            assert_true(number(r, "state_bytes") ==
                        number(r, "state_bytes_per_position") * number(r, "context"));
        /* Asked was the one that has weights. */
        json_t *accuracy = json_object_get(r, "accuracy");
        assert_true(i < 4 ? json_is_number(accuracy) && json_number_value(accuracy) <= 1 : json_is_null(accuracy));
    }
    json_decref(j);
}

/* What has no room, and what sees the whole text, is counted. */
static void counted(void **state)
{
    (void)state;
    json_t *j = command_json("study recall " GOLDEN "qwen2/config.json " GOLDEN "llada/config.json " GOLDEN
                             "sdar-b4/config.json --context 64 --batch 1 --decode 1 --memory 1000 --json");
    assert_int_equal(json_array_size(rows_of(j)), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *r = json_array_get(rows_of(j), i);
        assert_true(json_is_false(json_object_get(r, "measured")) && number(r, "step_ms") > 0);
    }
    json_decref(j);
}

static int n_lines(const char *path)
{
    FILE *f = fopen(path, "r");
    int n = 0;

    assert_non_null(f);
    for (int c; (c = fgetc(f)) != EOF;)
        n += c == '\n';
    fclose(f);
    return n;
}

static void resume(void **state)
{
    char csv[] = "/tmp/ridge-study-XXXXXX", args[512];
    int fd = mkstemp(csv);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    snprintf(args, sizeof args, "study recall " GOLDEN "qwen2/config.json --context 64 --batch 1 --decode 1 --memory 1000 "
                                "--csv %s", csv);
    assert_int_equal(command_run(args), 0);
    assert_int_equal(n_lines(csv), 2);
    /* The row of the file stays what it is, though it would be measured now, and one is added. */
    snprintf(args, sizeof args, "study recall " GOLDEN "qwen2/config.json --context 64,128 --batch 1 --decode 1 --resume "
                                "--csv %s --svg %s.svg --json", csv, csv);
    json_t *j = command_json(args);
    assert_int_equal(json_array_size(rows_of(j)), 2);
    assert_true(json_is_false(json_object_get(json_array_get(rows_of(j), 0), "measured")));
    assert_true(json_is_true(json_object_get(json_array_get(rows_of(j), 1), "measured")));
    assert_int_equal(n_lines(csv), 3);
    json_decref(j);
    snprintf(args, sizeof args, "%s.svg", csv);
    assert_true(n_lines(args) > 20);
    unlink(args);
    unlink(csv);
}

/* Each type of K/V keeps fewer bytes; rows that the file has are kept. */
static void kv_types(void **state)
{
    static const char *const types[] = { "f32", "bf16", "q8", "q4" };
    char csv[] = "/tmp/ridge-study-kv-XXXXXX", args[512];
    int fd = mkstemp(csv);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    unlink(csv);
    for (int again = 0; again < 2; again++) {
        snprintf(args, sizeof args, "study kv tales-1m --ctx 200 --length 96 --pairs 4 --examples 2 --resume --json "
                                    "--perplexity %s/README.md --csv %s --svg %s.svg", RG_SOURCE_DIR, csv, csv);
        json_t *j = command_json(args);
        double before = 1e9, ppl[RG_LEN(types)];
        assert_int_equal(number(j, "kept"), again ? 4 : 0);
        assert_int_equal(json_array_size(rows_of(j)), 4);
        for (size_t i = 0; i < RG_LEN(types); i++) {
            json_t *r = json_array_get(rows_of(j), i);
            assert_string_equal(text(r, "kv_type"), types[i]);
            assert_true(number(r, "state_bytes_per_position") < before);
            before = number(r, "state_bytes_per_position");
            /* The open block of q4, of 64 positions of f32, is there once; the others have nothing of the kind. */
            assert_true(number(r, "state_bytes_per_sequence") == (i == 3 ? 64.0 * 4 * 2 * 2 * 2 * 32 : 0));
            assert_true(number(r, "recall") >= 0 && number(r, "recall") <= 1);
            ppl[i] = number(r, "ppl");
        }
        assert_true(ppl[1] != ppl[0] && ppl[2] != ppl[0] && ppl[3] != ppl[0]);
        assert_true(ppl[3] < 1.05 * ppl[0] && ppl[3] > 0.95 * ppl[0] && before == 0.625 * 2 * 2 * 2 * 32);
        json_decref(j);
        assert_int_equal(n_lines(csv), 5);
    }
    snprintf(args, sizeof args, "%s.svg", csv);
    assert_true(n_lines(args) > 20);
    unlink(args);
    unlink(csv);
    /* Without a tokenizer there is no text to score, and recall is asked all the same. */
    json_t *j = command_json("study kv " GOLDEN "qwen2 --length 96 --pairs 4 --examples 2 --json");
    for (size_t i = 0; i < RG_LEN(types); i++) {
        json_t *r = json_array_get(rows_of(j), i);
        assert_true(json_is_null(json_object_get(r, "ppl")) && json_is_number(json_object_get(r, "recall")));
    }
    json_decref(j);
}

/* Line `nth` of a file, without its last `less` columns. */
static void line_of(const char *path, int nth, int less, char out[512])
{
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    for (int i = 0; i <= nth; i++)
        assert_non_null(fgets(out, 512, f));
    fclose(f);
    for (; less > 0; less--)
        *strrchr(out, ',') = 0;
}

/* An interrupted run goes on where it stopped, and its file becomes what a whole run's is; speed apart, which is
 * measured. */
static void sparsity_goes_on(void **state)
{
    static const char command[] = "study sparsity tales-1m --ctx 64 --samples 2 --perplexity %s/README.md --csv %s %s";
    char csv[] = "/tmp/ridge-study-sparsity-XXXXXX", args[512], whole[80], first[512], a[512], b[512];
    int fd = mkstemp(csv);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    unlink(csv);
    snprintf(whole, sizeof whole, "%s.whole", csv);
    snprintf(args, sizeof args, command, RG_SOURCE_DIR, whole, "--percent 0,50 --quiet");
    assert_int_equal(command_run(args), 0);
    snprintf(args, sizeof args, command, RG_SOURCE_DIR, csv, "--percent 0 --quiet");
    assert_int_equal(command_run(args), 0);
    line_of(csv, 1, 0, first);
    snprintf(args, sizeof args, command, RG_SOURCE_DIR, csv, "--percent 0,50 --resume --json");
    json_t *j = command_json(args);
    assert_int_equal(number(j, "kept"), 1);
    assert_int_equal(json_array_size(rows_of(j)), 3);
    for (size_t i = 0; i < 3; i++) {
        json_t *r = json_array_get(rows_of(j), i);
        assert_string_equal(text(r, "allocation"), i == 2 ? "greedy" : "uniform");
        assert_true(i ? fabs(number(r, "realized") - 0.5) < 0.1 : number(r, "realized") == 0);
    }
    assert_true(number(json_array_get(rows_of(j), 1), "ppl") != number(json_array_get(rows_of(j), 2), "ppl"));
    json_decref(j);
    line_of(csv, 1, 0, a);
    assert_string_equal(a, first);
    assert_true(n_lines(csv) == 4 && n_lines(whole) == 4);
    for (int i = 0; i < 4; i++) {
        line_of(csv, i, 1, a);
        line_of(whole, i, 1, b);
        assert_string_equal(a, b);
    }
    unlink(whole);
    unlink(csv);
}

static void refusals(void **state)
{
    (void)state;
    command_refuses("study nothing", 2, "nothing");
    command_refuses("study kv", 2, "at least one MODEL");
    command_refuses("study kv tales-1m --resume", 2, "--csv");
    command_refuses("study kv tales-1m --length 9999", 2, "too small");
    command_refuses("study recall", 2, "bench/shapes/recall");
    command_refuses("study recall " GOLDEN "qwen2 --resume", 2, "--csv");
    command_refuses("study recall " GOLDEN "qwen2/config.json --type q9", 2, "q9");
    command_refuses("study recall " GOLDEN "bert", 1, "encoder");
    command_refuses("study recall " GOLDEN "qwen2 --pairs 40", 2, "40 pairs");
    command_refuses("study recall " GOLDEN "qwen2/config.json --resume --csv " GOLDEN "qwen2/config.json", 1, "config.json");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(recall), cmocka_unit_test(counted), cmocka_unit_test(resume),
                                        cmocka_unit_test(kv_types), cmocka_unit_test(sparsity_goes_on),
                                        cmocka_unit_test(refusals) };

    test_init(argc, argv);
    test_profile_folder(2);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
