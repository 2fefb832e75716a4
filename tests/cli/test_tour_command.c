/* test_tour_command.c -- `ridge tour`: every step of the lecture, its own figures planned from its formulae, and what
 * this machine does measured. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"
#include "support/profile.h"

#define TALES RG_SOURCE_DIR "/models/tales-1m"

/* A step's text of this name; fails if the step is not there. */
static const char *text_of(const json_t *steps, const char *title, const char *name)
{
    const json_t *one;
    size_t i;

    json_array_foreach(steps, i, one)
        if (!strcmp(json_string_value(json_object_get(one, "title")), title))
            return json_string_value(json_object_get(one, name));
    fail_msg("no step '%s'", title);
    return NULL;
}

static void contains(const json_t *steps, const char *title, const char *name, const char *what)
{
    const char *text = text_of(steps, title, name);

    if (!text || !strstr(text, what))
        fail_msg("%s, %s: '%s' where '%s' is wanted", title, name, text ? text : "nothing", what);
}

/* The figures are the lecture's formulae by hand: 13.015e9 parameters, 0.8389 GB of K/V a sequence, 3.35e12 bytes/s. */
static void steps_are_planned_and_measured(void **state)
{
    static const char table[] = "Latency and throughput on paper", grouped[] = "Fewer K/V heads (MQA, GQA)";
    const char *page = "tour-test.html";
    char command[512];
    snprintf(command, sizeof command, "tour " TALES " --json --html %s", page);
    json_t *j = command_json(command);
    const json_t *steps = json_object_get(j, "steps"), *one;
    size_t i, n_measured = 0;

    (void)state;
    assert_true(json_array_size(steps) >= 20);
    json_array_foreach(steps, i, one) {
        assert_non_null(json_string_value(json_object_get(one, "idea")));
        assert_non_null(json_string_value(json_object_get(one, "lecture")));
        n_measured += json_is_string(json_object_get(one, "measured"));
    }
    assert_true(n_measured >= 9);
    contains(steps, "Arithmetic intensity", "planned", "295");
    contains(steps, table, "planned", "26.9, 79.7, 240.8 GB; 8.02, 23.80, 71.87 ms; 124.7, 2689.5, 3561.8");
    contains(steps, table, "planned", "256 does not fit");
    contains(steps, table, "measured", "64: ");
    contains(steps, grouped, "planned", "22.8, 33.4, 65.6 GB; 6.82, 9.97, 19.59 ms; 146.7, 6416.7, 13068.2");
    contains(steps, "The first token, and copies", "planned", "27.0 ms");
    contains(steps, "Speculative sampling", "planned", "2.77 ids");
    contains(steps, "Selective batching", "measured", "the same bits");
    json_decref(j);
    assert_int_equal(access(page, R_OK), 0);
    unlink(page);
}

static void what_cannot_be_toured_is_refused(void **state)
{
    (void)state;
    test_profile_folder(2); /* a busy machine keeps no profile, and says so */
    command_refuses("tour nowhere", 1, "nowhere");
    command_refuses("tour --batch 3", 2, "--batch");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_planned_and_measured),
        cmocka_unit_test(what_cannot_be_toured_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("tour_command", tests, NULL, NULL);
}
