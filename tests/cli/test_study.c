/* test_study.c -- `ridge study`: rows for each model, context and batch; what is measured and what is counted; the file that
 * it goes on from.  What is known of this
 * machine is made up, for one thread (support/profile.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"
#include "support/model.h"
#include "support/profile.h"

#define GOLDEN RG_TEST_DATA "/"
#define RECALL "study recall " GOLDEN "mamba " GOLDEN "qwen2/config.json --context 64,128 --batch 1,2 --decode 1 --threads 1 "

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
                             "sdar-b4/config.json --context 64 --batch 1 --decode 1 --memory 1000 --threads 1 --json");
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
                                "--threads 1 --csv %s", csv);
    assert_int_equal(command_run(args), 0);
    assert_int_equal(n_lines(csv), 2);
    /* The row of the file stays what it is, though it would be measured now, and one is added. */
    snprintf(args, sizeof args, "study recall " GOLDEN "qwen2/config.json --context 64,128 --batch 1 --decode 1 --resume "
                                "--threads 1 --csv %s --svg %s.svg --json", csv, csv);
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
        snprintf(args, sizeof args, "study kv tales-1m --ctx 200 --length 96 --pairs 4 --examples 2 --threads 1 --resume --json "
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
    json_t *j = command_json("study kv " GOLDEN "qwen2 --length 96 --pairs 4 --examples 2 --threads 1 --json");
    for (size_t i = 0; i < RG_LEN(types); i++) {
        json_t *r = json_array_get(rows_of(j), i);
        assert_true(json_is_null(json_object_get(r, "ppl")) && json_is_number(json_object_get(r, "recall")));
    }
    json_decref(j);
}

static const char *short_text(void)
{
    const char *path = test_scratch("text");

    test_write_text(path, "Once upon a time there was a little girl who liked to read books by the fire in the evening, "
                          "and her brother, who did not like books, went to the garden to play with the dog.  One day "
                          "the dog was gone.  They looked for it in the house and in the street, and at last they "
                          "found it under the bed, where it was asleep, and they were happy.");
    return path;
}

static void check_sparsity(json_t *rows)
{
    for (size_t i = 0; i < 3; i++) {
        json_t *r = json_array_get(rows, i);
        assert_string_equal(text(r, "allocation"), i == 2 ? "greedy" : "uniform");
        assert_true(i ? fabs(number(r, "realized") - 0.4) < 0.1 : number(r, "realized") == 0);
    }
    assert_true(number(json_array_get(rows, 0), "ppl") != number(json_array_get(rows, 2), "ppl"));
}

/* Lines of a text, each without its last `less` columns; into line, which is returned, NULL at the end. */
static char *next_line(const char **text, int less, char line[512])
{
    const char *end = strchr(*text, '\n');

    if (!end)
        return NULL;
    snprintf(line, 512, "%.*s", (int)(end - *text), *text);
    for (*text = end + 1; less > 0; less--)
        *strrchr(line, ',') = 0;
    return line;
}

static void assert_same_lines(const char *a, const char *b, int less)
{
    char x[512], y[512];

    while (*a && *b)
        assert_string_equal(next_line(&a, less, x), next_line(&b, less, y));
    assert_true(!*a && !*b);
}

/* Each study, interrupted after some rows, becomes what a whole run is; and the rows that the file had are not made again:
 * they are kept though they say what no model would.  Speed apart, which is measured: the last column of sparsity. */
static void every_study_goes_on(void **state)
{
    static const struct {
        const char *args;
        int n, kept;      /* rows */
        int less, result; /* last columns that are measured; column of a result, from the end */
        void (*check)(json_t *rows);
    } studies[] = {
        { "kbit tales-1m --ctx 32 --perplexity %s", 19, 7, 0, 1 },
        { "kv tales-1m --ctx 64 --length 64 --pairs 4 --examples 2 --perplexity %s", 4, 3, 0, 2 },
        { "sparsity tales-1m --ctx 64 --samples 2 --percent 0,40 --perplexity %s", 3, 2, 1, 2, check_sparsity },
        { "recall " GOLDEN "mamba " GOLDEN "qwen2/config.json --context 64,128 --batch 1,2 --memory 1000 --length 64 "
          "--pairs 4 --examples 4", 8, 3, 0, 4 },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(studies); i++) {
        char csv[256], args[1024], study[400], start[4096], want[8192];

        snprintf(csv, sizeof csv, "%s", test_scratch("goes-on.csv"));
        unlink(csv);
        snprintf(study, sizeof study, studies[i].args, short_text());
        snprintf(args, sizeof args, "study %s --threads 1 --csv %s --quiet", study, csv);
        assert_int_equal(command_run(args), 0);
        assert_int_equal(n_lines(csv), 1 + studies[i].n);
        /* The first rows, with a result of the last of them made 5. */
        char *whole = test_read_text(csv), *cut = whole;
        for (int k = 0; k < 1 + studies[i].kept; k++)
            cut = strchr(cut, '\n') + 1;
        char *result = cut;
        for (int k = 0; k < studies[i].result; k++)
            while (*--result != ',') {}
        const char *rest = result + 1 + strcspn(result + 1, ",\n");
        snprintf(start, sizeof start, "%.*s,5%.*s", (int)(result - whole), whole, (int)(cut - rest), rest);
        snprintf(want, sizeof want, "%s%s", start, cut);
        test_write_text(csv, start);
        snprintf(args, sizeof args, "study %s --threads 1 --csv %s --resume --json", study, csv);
        json_t *j = command_json(args);
        assert_int_equal(number(j, "kept"), studies[i].kept);
        assert_int_equal(json_array_size(rows_of(j)), studies[i].n);
        if (studies[i].check)
            studies[i].check(rows_of(j));
        json_decref(j);
        char *now = test_read_text(csv);
        assert_true(!strncmp(now, start, strlen(start)));
        assert_same_lines(now, want, studies[i].less);
        free(whole);
        free(now);
    }
}

/* Rows are of the text that was scored, whatever it is called: of another one, they are made anew beside the old ones. */
static void another_text_makes_other_rows(void **state)
{
    static const struct {
        const char *args;
        int n;
    } studies[] = { { "kbit tales-1m --ctx 32", 19 },
                    { "kv tales-1m --ctx 64 --length 64 --pairs 4 --examples 2", 4 },
                    { "sparsity tales-1m --ctx 64 --samples 2 --percent 0", 1 } };

    (void)state;
    for (size_t i = 0; i < RG_LEN(studies); i++) {
        char csv[256], args[1024];
        const char *path = short_text();

        snprintf(csv, sizeof csv, "%s", test_scratch("texts.csv"));
        unlink(csv);
        snprintf(args, sizeof args, "study %s --perplexity %s --csv %s --resume --json", studies[i].args, path, csv);
        for (int run = 0; run < 3; run++) {
            json_t *j = command_json(args);

            assert_int_equal(number(j, "kept"), run == 1 ? studies[i].n : 0);
            assert_int_equal(n_lines(csv), 1 + (run == 2 ? 2 : 1) * studies[i].n);
            json_decref(j);
            if (run == 1)
                test_write_text(path, "One day a bird came to the window and sang.  The children heard it and ran out "
                                      "to see it, but it was high up in the old tree, and they went in to eat.  In the "
                                      "evening it sang once more, and their mother said that it would come again.  So it did, on "
                                      "the next day and on the day after, until the leaves fell and the wind was cold.");
        }
    }
}

static void refusals(void **state)
{
    (void)state;
    command_refuses("study nothing", 2, "nothing");
    command_refuses("study kv", 2, "at least one MODEL");
    command_refuses("study kv tales-1m --resume", 2, "--csv");
    command_refuses("study kv tales-1m --length 9999", 2, "too small");
    command_refuses("study recall", 2, "bench/shapes/recall");
    command_refuses("study recall " GOLDEN "qwen2 --threads 1 --resume", 2, "--csv");
    command_refuses("study recall " GOLDEN "qwen2/config.json --type q9", 2, "q9");
    command_refuses("study recall " GOLDEN "bert --threads 1", 1, "encoder");
    command_refuses("study recall " GOLDEN "qwen2 --threads 1 --pairs 40", 2, "40 pairs");
    command_refuses("study recall " GOLDEN "qwen2/config.json --threads 1 --resume --csv " GOLDEN "qwen2/config.json", 1,
                    "config.json");
}

/* What is counted: of every row, each key that it sees once for each head; smaller thresholds have less below them, and a
 * block that is left out has all its weights below. */
static void softmax(void **state)
{
    static const char *const at[] = { "1e-4", "1e-3", "1e-2" };
    static const double keys[] = { 32.5, 128.5 }; /* the mean of 1 to 64, and of 65 to 192 */

    (void)state;
    json_t *j = command_json("study sparsity tales-1m --softmax --ctx 192 --windows 2 --every 1 --json");
    assert_int_equal(json_array_size(rows_of(j)), 3 * 2); /* all layers and two of them, two runs of positions */
    for (size_t i = 0; i < 6; i++) {
        json_t *r = json_array_get(rows_of(j), i);

        assert_true(number(r, "from") == (i % 2 ? 64 : 0) && number(r, "keys") == keys[i % 2]);
        for (int t = 0; t < 3; t++) {
            char below[16], blocks[16], lost[16];
            double next = 1;

            snprintf(below, sizeof below, "below_%s", at[t]);
            snprintf(blocks, sizeof blocks, "blocks_%s", at[t]);
            snprintf(lost, sizeof lost, "lost_%s", at[t]);
            if (t < 2) {
                char other[16];
                snprintf(other, sizeof other, "below_%s", at[t + 1]);
                next = number(r, other);
            }
            assert_true(number(r, below) >= 0 && number(r, below) <= next && number(r, blocks) <= number(r, below));
            assert_true(number(r, lost) <= number(r, blocks) * 3 * 64 * strtod(at[t], NULL));
            assert_true(i % 2 || number(r, blocks) == 0); /* the only block that there is */
        }
    }
    /* All layers are as many rows of each. */
    for (int k = 0; k < 2; k++) {
        json_t *all = json_array_get(rows_of(j), (size_t)k);
        double sum = number(json_array_get(rows_of(j), (size_t)k + 2), "below_1e-2") +
                     number(json_array_get(rows_of(j), (size_t)k + 4), "below_1e-2");
        assert_true(fabs(number(all, "below_1e-2") - sum / 2) < 1e-5 && sum > 0.1);
    }
    json_decref(j);
}

/* True if a has no more of all three than b, and less of one. */
static bool beats(json_t *a, json_t *b)
{
    static const char *const of[] = { "kl", "bytes", "token_ms" };
    bool better = false;

    for (int i = 0; i < 3; i++) {
        if (number(a, of[i]) > number(b, of[i]))
            return false;
        better = better || number(a, of[i]) < number(b, of[i]);
    }
    return better;
}

static bool is_named(json_t *front, const char *name)
{
    for (size_t i = 0; i < json_array_size(front); i++)
        if (!strcmp(json_string_value(json_array_get(front, i)), name))
            return true;
    return false;
}

/* Each alone, and those that go together; what loses nothing has a KL of 0; the front is one; fewer bits are fewer bytes. */
static void shortcuts(void **state)
{
    int n_alone = 0, n_lossless = 0;
    double weights = 0, kv = 0;

    (void)state;
    json_t *j = command_json("study shortcuts tales-1m --windows 2 --ctx 64 --length 96 --heal-steps 2 --threads 1 --json");
    json_t *rows = rows_of(j), *front = json_object_get(j, "front");
    assert_int_equal(json_array_size(rows), 31);
    assert_true(json_array_size(front) > 0);
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *r = json_array_get(rows, i);
        const char *name = text(r, "shortcuts");
        bool beaten = false;

        n_alone += !strstr(name, " + ");
        if (!json_is_number(json_object_get(r, "kl"))) { /* of two layers the middle is none */
            assert_string_equal(name, "a layer skipped");
            assert_non_null(strstr(text(r, "why_not"), "2 layers"));
            assert_false(is_named(front, name));
            continue;
        }
        assert_string_equal(text(r, "why_not"), "");
        for (size_t k = 0; k < json_array_size(rows) && !beaten; k++)
            beaten = json_is_number(json_object_get(json_array_get(rows, k), "kl")) && beats(json_array_get(rows, k), r);
        assert_true(is_named(front, name) == !beaten);
        assert_true(json_is_true(json_object_get(r, "front")) == !beaten);
        assert_true(number(r, "bytes") == number(r, "weight_bytes") + number(r, "kv_bytes") && number(r, "token_ms") > 0);
        if (i == 0) {
            assert_string_equal(name, "as it is");
            weights = number(r, "weight_bytes");
            kv = number(r, "kv_bytes");
        }
        if (!strcmp(name, "as it is") || !strncmp(name, "draft ", 6)) {
            n_lossless++;
            assert_true(number(r, "kl") == 0);
        }
        if (strstr(name, "weights") || strstr(name, "healed"))
            assert_true(number(r, "kl") > 0 && number(r, "weight_bytes") < weights);
        if (!strcmp(name, "K/V q8"))
            assert_true(number(r, "kl") > 0 && number(r, "kv_bytes") < 0.6 * kv && number(r, "weight_bytes") == weights);
    }
    command_refuses("study shortcuts tales-1m --windows 100000 --threads 1", 1, "lower --windows");
    assert_int_equal(n_alone, 13);
    assert_int_equal(n_lossless, 3);
    json_decref(j);
}

/* One column in a hundred, at least one of each matrix, takes 16 bits, whichever way it is chosen; those with the largest
 * inputs are worth it. */
static void salient(void **state)
{
    static const char *const kept[] = { "none", "any", "weights", "inputs" };

    char args[1024], *whole = test_read_text(RG_SOURCE_DIR "/models/calibration.txt");
    const char *path = test_scratch("salient.txt");

    (void)state;
    whole[20000] = 0;
    test_write_text(path, whole);
    free(whole);
    snprintf(args, sizeof args, "study salient tales-1m --ctx 128 --threads 1 --bits 3 --keep 2 --text %s --json", path);
    json_t *j = command_json(args);
    assert_int_equal(json_array_size(rows_of(j)), 5);
    json_t *row[5];
    for (size_t i = 0; i < 5; i++)
        row[i] = json_array_get(rows_of(j), i);
    assert_string_equal(text(row[0], "kept"), "stored");
    for (size_t i = 0; i < 4; i++) {
        assert_string_equal(text(row[i + 1], "kept"), kept[i]);
        assert_true(number(row[i + 1], "ppl") > number(row[0], "ppl"));
        assert_true(number(row[i + 1], "total_bits") < number(row[0], "total_bits"));
    }
    assert_true(number(row[1], "total_bits") < number(row[2], "total_bits"));
    assert_true(number(row[2], "total_bits") == number(row[3], "total_bits"));
    assert_true(number(row[2], "total_bits") == number(row[4], "total_bits"));
    assert_true(number(row[4], "ppl") < number(row[1], "ppl") && number(row[4], "ppl") < number(row[2], "ppl"));
    json_decref(j);
}

/* Rows are those that the model takes, known before any is measured: masks take thresholds, canvases do not, and steps are of
 * the answer, a block or a canvas.  What was asked for and is not taken is refused in one line, before any row. */
static void diffusion(void **state)
{
#define FILLED " --answer 32 --prompt 8 --prompts 2 --threads 1 "
    static const struct {
        const char *model;
        size_t n_thresholds, n_steps;
        double steps[3], one; /* one: evaluations by one id each; 0: not looked at */
    } models[] = {
        { "llada", 6, 3, { 16, 8, 4 }, 32 },
        { "sdar-b4", 6, 2, { 2, 1 }, 0 },
        { "diffusion-gemma", 0, 3, { 8, 4, 2 }, 32 },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(models); i++) {
        char args[256];

        snprintf(args, sizeof args, "study diffusion " GOLDEN "%s" FILLED "--json", models[i].model);
        json_t *j = command_json(args);
        const size_t n_thresholds = models[i].n_thresholds;
        assert_int_equal(json_array_size(rows_of(j)), 1 + n_thresholds + models[i].n_steps);
        json_t *one = json_array_get(rows_of(j), 0);
        assert_string_equal(text(one, "rule"), "one");
        assert_true(number(one, "same") == 1 && (models[i].one == 0 || number(one, "evaluations") == models[i].one));
        for (size_t k = 0; k < models[i].n_steps; k++) {
            json_t *r = json_array_get(rows_of(j), 1 + n_thresholds + k);
            assert_string_equal(text(r, "rule"), "steps");
            assert_true(number(r, "value") == models[i].steps[k]);
            assert_true(number(r, "evaluations") < number(one, "evaluations"));
        }
        json_decref(j);
    }
    command_refuses("study diffusion " GOLDEN "llada " GOLDEN "diffusion-gemma --thresholds 90" FILLED, 1,
                    "diffusion-gemma: threshold");
    assert_string_equal(command_out, "");
    command_refuses("study diffusion " GOLDEN "llada " GOLDEN "diffusion-gemma --block 8" FILLED, 1, "canvases of 16");
    assert_string_equal(command_out, "");
    command_refuses("study diffusion " GOLDEN "llada " GOLDEN "qwen2" FILLED, 2, "not a diffusion model");
    assert_string_equal(command_out, "");
#undef FILLED
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(recall), cmocka_unit_test(counted), cmocka_unit_test(resume),
                                        cmocka_unit_test(kv_types), cmocka_unit_test(softmax), cmocka_unit_test(shortcuts),
                                        cmocka_unit_test(salient), cmocka_unit_test(diffusion),
                                        cmocka_unit_test(every_study_goes_on),
                                        cmocka_unit_test(another_text_makes_other_rows),
                                        cmocka_unit_test(refusals) };

    test_init(argc, argv);
    test_profile_folder(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
