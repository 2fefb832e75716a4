/* test_eval_tasks.c -- `ridge eval --tasks`: choices, continuations and generated answers: right answers
 * are counted as lm-eval counts them, with its standard error, and wrong lines are told. */
#define _GNU_SOURCE 1
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "support/command.h"
#include "support/model.h"

#include "base/mem.h"

#define MODEL RG_SOURCE_DIR "/models/tales-1m"

static const char *write_tasks(const char *text)
{
    const char *path = test_scratch("test_eval_tasks.jsonl");
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* The task of this name among the results of these lines. */
static json_t *result(const char *lines, const char *name)
{
    char args[512];
    size_t i;
    json_t *task, *found = NULL;

    snprintf(args, sizeof args, "eval " MODEL " --tasks %s --json --quiet --threads 1", write_tasks(lines));
    json_t *v = command_json(args);
    json_array_foreach(json_object_get(v, "tasks"), i, task)
        if (!strcmp(json_string_value(json_object_get(task, "task")), name))
            found = json_incref(task);
    json_decref(v);
    assert_non_null(found);
    return found;
}

static double at(const json_t *v, const char *key)
{
    const json_t *x = json_object_get(v, key);

    if (!json_is_number(x))
        fail_msg("no %s", key);
    return json_number_value(x);
}

#define CHOICE(a, b, gold)                                                                                             \
    "{\"task\":\"t\",\"context\":\"Once upon a\",\"choices\":[\"" a "\",\"" b "\"],\"gold\":" gold "}\n"

static void choices_are_counted(void **state)
{
    (void)state;
    json_t *t = result(CHOICE(" time", " zebra", "0") CHOICE(" zebra", " time", "1") CHOICE(" time", " xylophone", "1")
                       "\n" CHOICE(" time", " qqq", "0") "{\"task\":\"other\",\"context\":\"The\",\"choices\":[\" x\"],"
                       "\"gold\":0}", "t");
    assert_int_equal((int)at(t, "n"), 4);
    assert_float_equal(at(t, "acc"), 0.75, 1e-12);
    assert_float_equal(at(t, "acc_stderr"), sqrt(0.25 * 0.75 / 3), 1e-12); /* of a sample of 4 */
    assert_null(json_object_get(t, "exact_match"));
    json_decref(t);
    t = result("{\"context\":\"Once upon a\",\"continuation\":\" time\"}\n", "tasks");
    assert_float_equal(at(t, "acc"), 1, 0);
    assert_true(at(t, "perplexity") > 1 && at(t, "perplexity") < 2);
    json_decref(t);
}

/* By character another one may win than by the sum. */
static void lengths_count(void **state)
{
    (void)state;
    json_t *t = result("{\"task\":\"t\",\"context\":\"Once upon a\",\"choices\":[\" time\",\" time, there was a\"],\"gold\":1,"
                       "\"lengths\":[1,1000]}\n", "t");
    assert_float_equal(at(t, "acc"), 0, 0);
    assert_float_equal(at(t, "acc_norm"), 1, 0);
    json_decref(t);
}

static void generated_answers_are_compared(void **state)
{
    json_t *v = command_json("run " MODEL " -p 'Once upon a time' -n 12 --temperature 0 --recipe exact --kv-type f32 "
                             "--draft none --json --quiet");
    char line[1024], *said = json_dumps(json_object_get(v, "text"), JSON_ENCODE_ANY);
    json_t *t;

    (void)state;
    snprintf(line, sizeof line, "{\"task\":\"g\",\"context\":\"Once upon a time\",\"answers\":[\"no\",%s],\"max_tokens\":12}\n"
             "{\"task\":\"g\",\"context\":\"Once upon a time\",\"answers\":[\"no\"],\"max_tokens\":12}\n", said);
    rg_free_small(said);
    t = result(line, "g");
    assert_float_equal(at(t, "exact_match"), 0.5, 0);
    json_decref(t);
    t = result("{\"task\":\"g\",\"context\":\"Once upon a time\",\"answers\":[\"THERE WAS\"],\"until\":[\" a \"],\"strip\":true,"
               "\"ignore_case\":true,\"ignore_punctuation\":true}\n", "g");
    assert_float_equal(at(t, "exact_match"), 1, 0);
    json_decref(t);
    json_decref(v);
}

static void wrong_lines_are_told(void **state)
{
    static const struct {
        const char *line, *about;
    } wrong[] = { { "x\n", "line 1: it is not an object" },
                  { "\n{\"context\":\"a\"}\n", "line 2: want a text 'context'" },
                  { "{\"context\":\"a\",\"choices\":[\"b\"],\"gold\":1}", "'gold'" },
                  { "{\"context\":\"a\",\"choices\":[],\"gold\":0}", "'choices'" },
                  { "{\"context\":\"a\",\"answers\":[\"b\"],\"until\":[3]}", "'until'" },
                  { "\n", "no question" } };
    char args[512];

    (void)state;
    for (size_t i = 0; i < RG_LEN(wrong); i++) {
        snprintf(args, sizeof args, "eval " MODEL " --tasks %s --quiet", write_tasks(wrong[i].line));
        command_refuses(args, 1, wrong[i].about);
    }
    command_refuses("eval " MODEL, 2, "--tasks");
    command_refuses("eval " MODEL " --tasks /nowhere.jsonl", 1, "nowhere");
    unlink(test_scratch("test_eval_tasks.jsonl"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_are_counted),
        cmocka_unit_test(lengths_count),
        cmocka_unit_test(generated_answers_are_compared),
        cmocka_unit_test(wrong_lines_are_told),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
