/* test_thinking_command.c -- `ridge run --thinking-budget` and `ridge chat`'s: after so many tokens the text that ends the
 * reasoning comes, and then the answer goes on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/model.h"

#define RUN "run " RG_SOURCE_DIR "/models/tales-1m -p 'Once upon a time' -n 30 --seed 5 --ignore-eos --json --quiet "

static long long id_at(const json_t *ids, size_t i)
{
    return json_integer_value(json_array_get(ids, i));
}

static void the_end_comes_when_the_budget_is_used_up(void **state)
{
    json_t *text = command_json("tokenize " RG_SOURCE_DIR "/models/tales-1m --no-special -p '</think>' --json");
    const json_t *end = json_object_get(text, "ids");
    json_t *plain = command_json(RUN);

    (void)state;
    for (int budget = 0; budget < 9; budget += 4) {
        char args[512];
        snprintf(args, sizeof args, RUN "--thinking-budget %d", budget);
        json_t *v = command_json(args);
        const json_t *ids = json_object_get(v, "ids");
        assert_int_equal(json_array_size(ids), 30);
        for (int i = 0; i < budget; i++)
            assert_int_equal(id_at(ids, (size_t)i), id_at(json_object_get(plain, "ids"), (size_t)i));
        for (size_t i = 0; i < json_array_size(end); i++)
            assert_int_equal(id_at(ids, (size_t)budget + i), id_at(end, i));
        json_decref(v);
    }
    json_decref(plain);
    json_decref(text);
    command_refuses(RUN "--thinking-budget 3 --thinking-end ''", 2, "--thinking-end");
    command_refuses(RUN "--thinking-budget 3 --beams 2", 1, "beams");
}

/* What `ridge chat` answers to "Once upon a time" with a template that ends so, and these flags.  free() it. */
static char *said(const char *end, const char *flags)
{
    char template[600], lines[600], args[1800], text[200];

    snprintf(template, sizeof template, "%s", test_scratch("thinking.jinja"));
    snprintf(lines, sizeof lines, "%s", test_scratch("lines"));
    snprintf(text, sizeof text, "{%% for m in messages %%}{{ m.content }} {%% endfor %%}%s", end);
    test_write_text(template, text);
    test_write_text(lines, "Once upon a time\n/bye\n");
    snprintf(args, sizeof args, "chat " RG_SOURCE_DIR "/models/tales-1m --chat-template %s --temperature 0 --quiet %s < %s",
             template, flags, lines);
    assert_int_equal(command_run(args), 0);
    command_out[strcspn(command_out, "\n")] = 0;
    return strdup(command_out);
}

/* True if a text begins with another one, and goes on with a third. */
static bool begins(const char *text, const char *with, const char *then)
{
    return !strncmp(text, with, strlen(with)) && !strncmp(text + strlen(with), then, strlen(then));
}

/* A reasoning that the prompt leaves open, or that the answer begins, ends after so many tokens; an answer that does not
 * reason is left alone. */
static void chat_keeps_the_budget(void **state)
{
    static const int budgets[] = { 0, 1, 5 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(budgets); i++) {
        char flags[200];

        snprintf(flags, sizeof flags, "-n %d", budgets[i] ? budgets[i] : 1);
        char *first = said("<think>", flags);
        snprintf(flags, sizeof flags, "-n 30 --thinking-budget %d", budgets[i]);
        char *got = said("<think>", flags);
        if (!begins(got, budgets[i] ? first : "", "</think>") || strlen(got) < strlen(first) + 12)
            fail_msg("budget %d: '%s', without '%s'", budgets[i], got, first);
        free(got);
        free(first);
        snprintf(flags, sizeof flags, "-n 30 --thinking-budget %d --thinking-end 'STOP '", budgets[i]);
        got = said("<think>", flags);
        assert_non_null(strstr(got, "STOP "));
        free(got);
    }
    char *plain = said("", "-n 20"), *closed = said("<think>x</think>", "-n 20");
    char *same = said("", "-n 20 --thinking-budget 2"), *after = said("<think>x</think>", "-n 20 --thinking-budget 2");
    assert_string_equal(same, plain);
    assert_string_equal(after, closed);
    free(same);
    free(after);
    free(closed);
    free(plain);
    /* What the model itself says begins a reasoning, too. */
    plain = said("", "-n 16");
    char *at = strstr(plain, " was"), want[200];
    assert_non_null(at);
    snprintf(want, sizeof want, "%.*s was STOP.", (int)(at - plain), plain);
    same = said("", "-n 16 --thinking-budget 0 --thinking-start ' was' --thinking-end ' STOP.'");
    assert_true(begins(same, want, ""));
    free(same);
    free(plain);
    command_refuses("chat " RG_SOURCE_DIR "/models/tales-1m --thinking-start x --thinking-budget -1 </dev/null", 2,
                    "--thinking-budget");
    command_refuses("chat " RG_SOURCE_DIR "/models/tales-1m --thinking-budget 3 --thinking-end '' </dev/null", 2,
                    "must not be empty");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_comes_when_the_budget_is_used_up),
        cmocka_unit_test(chat_keeps_the_budget),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
