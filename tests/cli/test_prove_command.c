/* test_prove_command.c -- `ridge prove`: all settings come about on a small model, and give the same; what is refused. */
#include <stdio.h>
#include <string.h>

#include "support/command.h"
#include "support/model.h"

#define IDS "3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7,3,5,7," \
            "3,5,7,3,5,7,3,5,7,3,5,7,3,5,7"

static char first[65]; /* the hash of a request alone, seed 1 */

static char model[512]; /* in Q8_0, since its fast recipe differs from exact arithmetic on every processor */

static void quantize(void)
{
    char args[1024];

    snprintf(model, sizeof model, "%s.gguf", test_scratch("proved"));
    snprintf(args, sizeof args, "quantize " RG_TEST_DATA "/gemma3 %s --type q8_0", model);
    assert_int_equal(command_run(args), 0);
}

static void every_setting_comes_about(void **state)
{
    char args[1024];
    json_t *j, *one;

    (void)state;
    quantize();
    snprintf(args, sizeof args, "prove %s --ids " IDS " -n 24 --json", model);
    j = command_json(args);
    const json_t *settings = json_object_get(j, "settings");
    const char *hash[2] = { NULL };
    size_t i;

    assert_true(json_is_true(json_object_get(j, "same")));
    assert_int_equal(json_array_size(settings), 9);
    json_array_foreach(settings, i, one) {
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *sha256 = json_string_value(json_object_get(one, "sha256"));
        const int group = !strncmp(name, "exact", 5);

        if (!json_is_true(json_object_get(one, "same")) || !json_is_true(json_object_get(one, "met")))
            fail_msg("%s: not the same, or it did not come about", name);
        hash[group] = hash[group] ? hash[group] : sha256;
        assert_int_equal(strlen(sha256), 64);
        assert_string_equal(sha256, hash[group]);
        assert_int_equal(json_integer_value(json_object_get(one, "output_tokens")), 24);
    }
    assert_string_not_equal(hash[0], hash[1]); /* two recipes: what is hashed does see the numbers */
    memcpy(first, hash[0], 64);
    json_decref(j);
}

/* Another seed draws other ids; a table is printed as well. */
static void what_is_drawn_counts(void **state)
{
    char args[1024];

    (void)state;
    snprintf(args, sizeof args, "prove %s --ids " IDS " -n 24 --seed 2", model);
    assert_int_equal(command_run(args), 0);
    assert_non_null(strstr(command_out, "preempted              "));
    first[16] = 0;
    assert_int_equal(strlen(first), 16);
    assert_null(strstr(command_out, first));
}

static void what_cannot_be_proved_is_refused(void **state)
{
    (void)state;
    command_refuses("prove " RG_TEST_DATA "/gemma3 --ids 1,2 -p text", 2, "-p and --ids");
    command_refuses("prove " RG_TEST_DATA "/bert --ids 1,2", 1, "encoder");
    command_refuses("prove nowhere", 1, "nowhere");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_setting_comes_about),
        cmocka_unit_test(what_is_drawn_counts),
        cmocka_unit_test(what_cannot_be_proved_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("prove_command", tests, NULL, NULL);
}
