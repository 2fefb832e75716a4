/* test_search.c -- `ridge run --search mcts`: with enough simulations the best of all answers of its width is found, and
 * what it found is the best it saw; its paths share their state.  `ridge run --beams`: what it prints and refuses. */
#include <math.h>
#include <string.h>

#include "support/command.h"

enum { WIDTH = 3, LENGTH = 4, N_PROMPT = 3 };

typedef struct best {
    int32_t ids[N_PROMPT + LENGTH];
    double score;
} best;

/* All answers of the width by single requests: the likeliest ids after each path. */
static void enumerate(rg_engine *e, int32_t *ids, int32_t n, double score, best *out)
{
    rg_params p = { .prompt = ids, .n_prompt = N_PROMPT + n, .max_tokens = 1, .n_samples = 1, .sampling = rg_sampling_default() };
    rg_top top[WIDTH];
    rg_error err;
    rg_token t;

    if (n == LENGTH) {
        if (score > out->score) {
            memcpy(out->ids, ids, sizeof out->ids);
            out->score = score;
        }
        return;
    }
    p.sampling.n_logprobs = WIDTH;
    p.sampling.ignore_eos = true;
    rg_request *r = rg_submit(e, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t))
        if (t.id >= 0)
            memcpy(top, t.top, sizeof top);
    rg_request_close(r);
    for (int k = 0; k < WIDTH; k++) {
        ids[N_PROMPT + n] = top[k].id;
        enumerate(e, ids, n + 1, score + (double)top[k].logprob, out);
    }
}

static void enough_simulations_find_the_best(void **state)
{
    rg_options o = rg_options_default();
    rg_error err;
    char args[1000];

    (void)state;
    o.n_threads = 1;
    o.recipe = "exact";
    o.kv_type = "f32";
    o.kv_bytes = (size_t)32 << 20;
    rg_engine *e = rg_open(test_data("llama"), &o, &err);
    assert_ok(e, err);
    for (int32_t i = 0; i < 3; i++) {
        int32_t ids[N_PROMPT + LENGTH] = { 10 + i, 20 + i, 30 + 2 * i };
        best want = { .score = -INFINITY };

        enumerate(e, ids, 0, 0, &want);
        snprintf(args, sizeof args, "run %s --ids %d,%d,%d -n %d --search mcts --simulations 1000 --width %d --ignore-eos --json "
                 "--recipe exact --kv-type f32 --threads 1", test_data("llama"), ids[0], ids[1], ids[2], LENGTH, WIDTH);
        json_t *r = command_json(args), *choice = json_array_get(json_object_get(r, "choices"), 0);
        const json_t *search = json_object_get(r, "search");
        for (int32_t k = 0; k < LENGTH; k++)
            assert_int_equal(json_integer_value(json_array_get(json_object_get(choice, "ids"), (size_t)k)), want.ids[N_PROMPT + k]);
        assert_true(fabs(json_number_value(json_object_get(choice, "score")) - want.score) < 1e-5);
        /* Each answer was seen once. */
        assert_int_equal(json_integer_value(json_object_get(search, "simulations")), 81);
        assert_int_equal(json_integer_value(json_object_get(search, "nodes")), 1 + 3 + 9 + 27 + 81);
        json_decref(r);
    }
    rg_close(e);
}

static void paths_share_their_prompt(void **state)
{
    char args[2000];
    int n = snprintf(args, sizeof args, "run %s --ids 1", test_data("llama"));

    (void)state;
    for (int i = 1; i < 100; i++)
        n += snprintf(args + n, sizeof args - (size_t)n, ",%d", i * 7 % 320);
    snprintf(args + n, sizeof args - (size_t)n, " -n 20 --search mcts --simulations 30 --width 2 --eos-id 5 --eos-id 6 --json");
    json_t *r = command_json(args);
    const json_t *search = json_object_get(r, "search");
    long long all = json_integer_value(json_object_get(search, "prompt_positions"));
    assert_int_equal(json_integer_value(json_object_get(search, "simulations")), 30);
    /* Paths of less than 64 ids more: the prompt's whole block is there once, and each path has one that is not full. */
    long long blocks = json_integer_value(json_object_get(search, "blocks"));
    long long copies = json_integer_value(json_object_get(search, "blocks_unshared"));
    assert_true(copies >= 28 * 2 && blocks * 2 <= copies + 4);
    assert_true(all >= 28 * 100 && json_integer_value(json_object_get(search, "cached_positions")) > all * 9 / 10);
    /* No simulation came to the end of an answer; the best path is followed there. */
    assert_true(json_array_size(json_object_get(json_array_get(json_object_get(r, "choices"), 0), "ids")) > 0);
    json_decref(r);
}

static void beams_are_printed_and_refused(void **state)
{
    char args[1000];
    const char *m = test_data("llama");

    (void)state;
    snprintf(args, sizeof args, "run %s --ids 1,2,3 -n 6 --beams 3 --n 2 --early-stopping never --json", m);
    json_t *r = command_json(args);
    const json_t *choices = json_object_get(r, "choices"), *search = json_object_get(r, "search");
    assert_int_equal(json_array_size(choices), 2);
    assert_true(json_number_value(json_object_get(json_array_get(choices, 0), "score")) >=
                json_number_value(json_object_get(json_array_get(choices, 1), "score")));
    assert_int_equal(json_integer_value(json_object_get(search, "beams")), 3);
    assert_true(json_integer_value(json_object_get(search, "blocks")) <=
                json_integer_value(json_object_get(search, "blocks_unshared")));
    json_decref(r);

    static const char *const refused[][2] = {
        { "--length-penalty 2", "length-penalty" }, { "--beams 2 --early-stopping soon", "early-stopping" },
        { "--simulations 3", "--simulations" }, { "--search dfs", "search" }, { "--span 2", "--span" },
        { "--search mcts --beams 2", "--beams" }, { "--eos-id x", "--eos-id" },
        { "--scorer x", "--scorer" },
        { "--best-of 2 --scorer-query x", "--scorer-query" }, { "--vote-after x", "--vote" },
        { "--vote --beams 2", "--vote" }, { "--leaves 2", "--leaves" },
    };
    for (size_t i = 0; i < RG_LEN(refused); i++) {
        snprintf(args, sizeof args, "run %s --ids 1,2,3 -n 6 %s", m, refused[i][0]);
        command_refuses(args, 2, refused[i][1]);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(enough_simulations_find_the_best),
        cmocka_unit_test(paths_share_their_prompt),
        cmocka_unit_test(beams_are_printed_and_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
