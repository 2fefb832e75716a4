/* test_shipped_family.c -- the trained models of models/family: each one opens and predicts text as it did when it was
 * shipped, and that of recall recalls.  They were made by `ridge study family` (docs/PLAN.md). */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "support/command.h"

#define FAMILY RG_SOURCE_DIR "/models/family"

enum { MOST = 20 * 1000 * 1000 }; /* bytes of all of them together */

static long bytes_in(const char *folder)
{
    DIR *d = opendir(folder);
    char path[1024];
    struct stat st;
    long sum = 0;

    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e; e = readdir(d)) {
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        assert_int_equal(stat(path, &st), 0);
        sum += S_ISDIR(st.st_mode) ? bytes_in(path) : (long)st.st_size;
    }
    closedir(d);
    return sum;
}

static void they_are_small(void **state)
{
    (void)state;
    assert_in_range(bytes_in(FAMILY), 1, MOST);
}

/* Bits per byte of the shipped text, 4,000 bytes of it.  Chance is 12 bits of 4,096 ids: 3.06 bits of these bytes. */
static void they_predict_text(void **state)
{
    static const struct {
        const char *name;
        double bits; /* of the weights as they are shipped */
    } all[] = {
        { "mha", 2.049 }, { "gqa", 2.033 }, { "mqa", 2.035 }, { "mla", 2.041 }, { "cla2", 2.039 },
        { "mamba", 1.862 }, { "mamba2", 1.970 }, { "based", 2.021 }, { "jamba", 2.013 },
        { "window-global", 2.035 }, { "gated-delta", 1.969 }, { "lightning-full", 1.905 },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(all); i++) {
        char args[512];

        snprintf(args, sizeof args, "eval %s/%s --perplexity %s/models/calibration.txt --first-bytes 4000 --ctx 256 "
                                    "--threads 1 --json", FAMILY, all[i].name, RG_SOURCE_DIR);
        json_t *j = command_json(args);
        const double bits = json_number_value(json_object_get(j, "bits_per_byte"));
        if (!(bits > all[i].bits - 0.02 && bits < all[i].bits + 0.02))
            fail_msg("%s: %.4f bits per byte", all[i].name, bits);
        json_decref(j);
    }
}

/* Diffusion models have no next id to score: they answer, and the same each time. */
static void diffusion_answers(void **state)
{
    static const char *const names[] = { "masked-diffusion", "block-diffusion" };

    (void)state;
    for (size_t i = 0; i < RG_LEN(names); i++) {
        char args[512], first[4096];

        snprintf(args, sizeof args, "run %s/%s -p 'Once upon a time' -n 16 --steps 4 --temperature 0 --threads 1 --quiet",
                 FAMILY, names[i]);
        assert_int_equal(command_run(args), 0);
        assert_true(strlen(command_out) > 4 && strlen(command_out) < sizeof first);
        snprintf(first, sizeof first, "%s", command_out);
        assert_int_equal(command_run(args), 0);
        assert_string_equal(command_out, first);
    }
}

/* What has been learnt is there in every type of K/V. */
static void they_recall(void **state)
{
    json_t *j = command_json("study kv " FAMILY "/recall-mha --length 48 --pairs 8 --examples 64 --threads 1 --json"), *row;
    size_t i;

    (void)state;
    assert_int_equal(json_array_size(json_object_get(j, "rows")), 4);
    json_array_foreach(json_object_get(j, "rows"), i, row)
        assert_true(json_number_value(json_object_get(row, "recall")) > 0.97);
    json_decref(j);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_small),
        cmocka_unit_test(they_predict_text),
        cmocka_unit_test(diffusion_answers),
        cmocka_unit_test(they_recall),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
