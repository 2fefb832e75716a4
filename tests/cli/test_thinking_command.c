/* test_thinking_command.c -- `ridge run --thinking-budget`: after so many tokens the text that ends the reasoning comes,
 * and then the answer goes on. */
#include "support/command.h"

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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_end_comes_when_the_budget_is_used_up),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
