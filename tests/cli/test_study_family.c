/* test_study_family.c -- `ridge study family`: members of equal parameters, a run that goes on with the same bits after a kill
 * and to more tokens, recall, the lecture's sentences.  Everything is tiny: a vocabulary of 400, a few steps. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "support/command.h"
#include "support/model.h"

#define DATA RG_SOURCE_DIR "/models/calibration.txt"

static char tokenizer[512], held[512], options[2400]; /* options: of all, but for the folder */

static int prepare(void **state)
{
    char args[1400], *text = test_read_text(DATA);

    (void)state;
    snprintf(tokenizer, sizeof tokenizer, "%s", test_scratch("family-tokenizer.json"));
    snprintf(held, sizeof held, "%s", test_scratch("family-held.txt"));
    snprintf(args, sizeof args, "tokenizer train " DATA " -o %s --size 400", tokenizer);
    assert_int_equal(command_run(args), 0);
    text[9000] = 0;
    test_write_text(held, text);
    free(text);
    snprintf(options, sizeof options,
             "--series text --parameters 560000 --tokenizer %s --data " DATA " --held %s --threads 1 --json", tokenizer,
             held);
    return 0;
}

/* `ridge study family -o DIR ...`; json_decref it. */
static json_t *study(const char *dir, const char *more)
{
    char args[4096];

    snprintf(args, sizeof args, "study family -o %s %s %s", dir, options, more);
    return command_json(args);
}

static json_t *row_of(json_t *v, size_t i)
{
    return json_array_get(json_object_get(v, "rows"), i);
}

static double number(const json_t *row, const char *key)
{
    return json_number_value(json_object_get(row, key));
}

static const char *text(const json_t *row, const char *key)
{
    return json_string_value(json_object_get(row, key));
}

/* A folder that is not there yet. */
static const char *folder(const char *name)
{
    static char path[4][256], rest[300];
    static int k;
    rg_error err = { 0 };

    (void)err;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s", test_scratch(name));
    snprintf(rest, sizeof rest, "rm -rf '%s'", path[k]);
    assert_int_equal(system(rest), 0);
    return path[k];
}

/* All members train, on as many tokens and with as many parameters; what they keep tells them apart. */
static void all_members_are_of_one_size(void **state)
{
    static const char *const names[] = { "mha",
                                         "gqa",
                                         "mqa",
                                         "mla",
                                         "cla2",
                                         "cla3",
                                         "window",
                                         "window-global",
                                         "sinks",
                                         "s4d",
                                         "mamba",
                                         "mamba2",
                                         "gated-delta",
                                         "based",
                                         "lightning",
                                         "lightning-full",
                                         "jamba",
                                         "masked-diffusion",
                                         "block-diffusion" };
    double bytes[RG_LEN(names)], fixed[RG_LEN(names)];

    (void)state;
    json_t *v = study(folder("family-all"), "--tokens 4096");
    assert_int_equal(json_array_size(json_object_get(v, "rows")), RG_LEN(names));
    for (size_t i = 0; i < RG_LEN(names); i++) {
        const json_t *r = row_of(v, i);

        assert_string_equal(text(r, "model"), names[i]);
        if (!(fabs(number(r, "parameters") - 560000) <= 0.02 * 560000))
            fail_msg("%s has %.0f parameters", names[i], number(r, "parameters"));
        assert_true(number(r, "tokens") == 4096);
        if (!(number(r, "bits_per_byte") > 2 && number(r, "bits_per_byte") < 8))
            fail_msg("%s: %.4f bits per byte", names[i], number(r, "bits_per_byte"));
        bytes[i] = number(r, "state_bytes_per_position");
        fixed[i] = number(r, "state_bytes_per_sequence");
    }
    /* mha, gqa, mqa: 4, 2, 1 heads of six layers; cla2 and cla3 share those of gqa. */
    assert_true(bytes[0] == 2 * bytes[1] && bytes[1] == 2 * bytes[2] && bytes[4] * 2 == bytes[1] &&
                bytes[5] * 3 == bytes[1]);
    assert_true(bytes[3] == 4 * 6 * 40); /* f32: 32 numbers and 8 that are rotated, of six layers */
    for (size_t i = 9; i < 15; i++)      /* recurrences keep as much after any text */
        assert_true(bytes[i] == 0 && fixed[i] > 0);
    assert_true(bytes[15] * 6 == bytes[1] && bytes[16] * 6 == bytes[1] && bytes[7] * 6 == bytes[1]);
    /* Each sentence of this series; nothing is claimed of models that have read so little. */
    const json_t *claims = json_object_get(v, "claims");
    size_t i;
    json_t *c;
    assert_true(json_array_size(claims) == 21);
    json_array_foreach(claims, i, c)
        if (!strstr(text(c, "sentence"), " faster")) /* that is measured, whatever was learnt */
            assert_string_equal(text(c, "verdict"), "not enough tokens to say");
    json_decref(v);
}

static void same_bits(const char *dir, const char *with, const char *member)
{
    char args[1400];

    snprintf(args, sizeof args, "cmp %s/%s/model.safetensors %s/%s/model.safetensors", dir, member, with, member);
    assert_int_equal(system(args), 0);
}

/* Killed again and again, or stopped after fewer tokens, a run comes to the bits of one that was not. */
static void goes_on_where_it_stood(void **state)
{
    static const char more[] = "--members mha,masked-diffusion --save 1 --tokens 16384";
    char dir[256], killed[256], longer[256], saved[400], args[4096];
    struct timespec nap = { 0, 20000000 };

    (void)state;
    snprintf(dir, sizeof dir, "%s", folder("family-whole"));
    snprintf(killed, sizeof killed, "%s", folder("family-killed"));
    snprintf(longer, sizeof longer, "%s", folder("family-longer"));
    json_t *whole = study(dir, more);
    snprintf(saved, sizeof saved, "%s/mha/checkpoint.safetensors", killed);
    snprintf(args, sizeof args, "exec %s/ridge study family -o %s %s %s >/dev/null", RG_BUILD_DIR, killed, options,
             more);
    for (int k = 0; k < 2; k++) {
        const pid_t pid = fork();
        int status;

        if (!pid) {
            execl("/bin/sh", "sh", "-c", args, (char *)NULL);
            _exit(127);
        }
        while (rg_path_look(saved) == RG_PATH_NONE)
            nanosleep(&nap, NULL);
        nanosleep(&nap, NULL);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    json_t *after = study(killed, more);
    json_decref(study(longer, "--members mha,masked-diffusion --tokens 8192"));
    json_t *on = study(longer, more);
    for (size_t i = 0; i < 2; i++) {
        assert_true(number(row_of(after, i), "bits_per_byte") == number(row_of(whole, i), "bits_per_byte"));
        assert_true(number(row_of(on, i), "bits_per_byte") == number(row_of(whole, i), "bits_per_byte"));
        assert_true(number(row_of(on, i), "tokens") == 16384);
        same_bits(dir, killed, i ? "masked-diffusion" : "mha");
        same_bits(dir, longer, i ? "masked-diffusion" : "mha");
    }
    /* What is done is not done again: the speed of training is that of the run before. */
    json_t *again = study(dir, more);
    assert_true(number(row_of(again, 0), "train_tokens_s") == number(row_of(whole, 0), "train_tokens_s"));
    /* Another seed is another study. */
    snprintf(args, sizeof args, "study family -o %s %s %s --seed 3", dir, options, more);
    command_refuses(args, 1, "other settings");
    json_decref(again);
    json_decref(on);
    json_decref(after);
    json_decref(whole);
}

/* Two widths of the same are two rows; each is the best of its learning rates. */
static void asks_for_recall(void **state)
{
    char args[1024], csv[300], svg[300];
    size_t i;
    json_t *c;
    bool found = false;

    (void)state;
    snprintf(csv, sizeof csv, "%s", test_scratch("family.csv"));
    snprintf(svg, sizeof svg, "%s", test_scratch("family.svg"));
    snprintf(args, sizeof args,
             "study family -o %s --series recall --members mha,conv-linear --recall-steps 3 --threads 1 --json --csv "
             "%s --svg %s",
             folder("family-recall"), csv, svg);
    json_t *v = command_json(args);
    assert_int_equal(json_array_size(json_object_get(v, "rows")), 6);
    for (size_t r = 0; r < 6; r++) {
        const double recall = number(row_of(v, r), "recall");

        assert_true(recall >= 0 && recall < 0.2);
        assert_true(number(row_of(v, r), "tokens") == 3 * 32 * 48);
        assert_true(json_is_null(json_object_get(row_of(v, r), "bits_per_byte")));
    }
    assert_true(number(row_of(v, 1), "width") == 64 &&
                number(row_of(v, 1), "state_bytes_per_position") == 2 * 2 * 64 * 4);
    json_array_foreach(json_object_get(v, "claims"), i, c) if (!strcmp(text(c, "sentence"), "Attention recalls."))
    {
        assert_string_equal(text(c, "verdict"), "not enough tokens to say");
        found = true;
    }
    assert_true(found);
    json_decref(v);
    char *rows = test_read_text(csv), *picture = test_read_text(svg);
    assert_non_null(strstr(rows, "conv-linear,recall,32,16,"));
    assert_non_null(strstr(picture, "Associative recall"));
    free(rows);
    free(picture);
}

static void refuses(void **state)
{
    (void)state;
    command_refuses("study family", 2, "-o DIR");
    command_refuses("study family -o /tmp --members mha,nothing", 2, "'nothing' is no member");
    command_refuses("study family -o /tmp --series words", 2, "'words'");
    command_refuses("study family -o /tmp --data x.txt", 2, "--held");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_members_are_of_one_size),
        cmocka_unit_test(goes_on_where_it_stood),
        cmocka_unit_test(asks_for_recall),
        cmocka_unit_test(refuses),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, prepare, NULL);
}
