/* test_embed_command.c -- `ridge embed`: the goldens of every encoder, pairs by their texts and by their ids, what is refused;
 * and what the other commands say of an encoder. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/model.h"

#define GOLDEN RG_TEST_DATA

enum { SHORT = 21 };

static rg_checkpoint *open_golden(const char *name)
{
    char path[96];
    rg_error err = { 0 };

    snprintf(path, sizeof path, "%s/golden.safetensors", name);
    rg_checkpoint *g = rg_checkpoint_open(test_data(path), RG_CKPT_DEFAULT, &err);
    assert_ok(g, err);
    return g;
}

static const char *list_of(const int32_t *ids, size_t n)
{
    static char text[1024];
    size_t used = 0;

    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%d", i ? "," : "", ids[i]);
    return text;
}

static void near_to(const char *what, const json_t *got, const float *want, size_t n)
{
    double most = 0, off = 0;

    assert_int_equal(json_array_size(got), n);
    for (size_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)want[i]));
        off = fmax(off, fabs(json_number_value(json_array_get(got, i)) - (double)want[i]));
    }
    if (!(off <= 1e-4 * most))
        fail_msg("%s: off by %g of %g", what, off, most);
}

static void golden(const char *name, bool has_head)
{
    static const struct {
        const char *key, *pool;
        bool is_short;
    } cases[] = { { "pooled.cls", "cls", false }, { "pooled.mean", "mean", false }, { "short.pooled.cls", "cls", true },
                  { "short.pooled.mean", "mean", true } };
    rg_checkpoint *g = open_golden(name);
    size_t n_ids, n;
    int32_t *ids = test_ints(g, "input_ids", &n_ids);
    char args[1400];

    for (size_t i = 0; i < RG_LEN(cases); i++) {
        size_t n_given = cases[i].is_short ? SHORT : n_ids;
        float *want = test_floats(g, cases[i].key, &n), *score = test_floats(g, "score", NULL);

        snprintf(args, sizeof args, "embed " GOLDEN "/%s --ids %s --pool %s --json --quiet", name, list_of(ids, n_given),
                 cases[i].pool);
        json_t *j = command_json(args), *got = json_object_get(j, "score");
        near_to(cases[i].key, json_object_get(j, "embedding"), want, n);
        assert_int_equal(json_integer_value(json_object_get(j, "tokens")), n_given);
        assert_true(!got == (!has_head || cases[i].is_short));
        if (got && fabs(json_number_value(got) - (double)score[0]) > 1e-4 * fabs((double)score[0]))
            fail_msg("%s: score %g, not %g", name, json_number_value(got), (double)score[0]);
        json_decref(j);
        free(want);
        free(score);
    }
    free(ids);
    rg_checkpoint_close(g);
}

static void goldens(void **state)
{
    (void)state;
    golden("bert", false);
    golden("bert-rerank", true);
    golden("xlm-roberta", true);
    golden("modernbert", true);
    golden("nomic-bert", false);
}

/* True if two commands print the same at a key. */
static void same_at(const char *key, const char *args, const char *other)
{
    json_t *a = command_json(args), *b = command_json(other);

    assert_non_null(json_object_get(a, key));
    assert_true(json_equal(json_object_get(a, key), json_object_get(b, key)));
    assert_true(json_equal(json_object_get(a, "tokens"), json_object_get(b, "tokens")));
    json_decref(a);
    json_decref(b);
}

static void texts_and_pairs(void **state)
{
    (void)state;
    char dir[400], file[400], args[1000], other[1000];

    snprintf(dir, sizeof dir, "%s", test_with_letters("letters", "bert-rerank"));
    snprintf(args, sizeof args, "embed %s -p 'what is a fox?' --json --quiet", dir);
    snprintf(other, sizeof other, "embed %s --ids 1,66,67,4,64,58,2 --pool mean --json --quiet", dir);
    same_at("embedding", args, other);
    snprintf(file, sizeof file, "%s", test_scratch("fox"));
    FILE *f = fopen(file, "w");
    fputs("what is a fox?\n", f);
    fclose(f);
    snprintf(args, sizeof args, "embed %s -f %s --json --quiet", dir, file);
    same_at("embedding", args, other);
    snprintf(args, sizeof args, "embed %s -p 'what is a fox?' --pair 'A red dog' --json --quiet", dir);
    snprintf(other, sizeof other, "embed %s --ids 1,66,67,4,64,58,2,4,68,65,2 --json --quiet", dir);
    same_at("score", args, other);
    json_t *j = command_json(args);
    assert_null(json_object_get(j, "embedding"));
    json_decref(j);
    snprintf(args, sizeof args, "embed %s -p fox --normalize --json --quiet", dir);
    j = command_json(args);
    double sum = 0;
    for (size_t i = 0; i < 64; i++)
        sum += pow(json_number_value(json_array_get(json_object_get(j, "embedding"), i)), 2);
    assert_true(fabs(sum - 1) < 1e-6);
    json_decref(j);
    snprintf(args, sizeof args, "embed %s -p fox --pair dog", dir);
    assert_int_equal(command_run(args), 0);
    assert_non_null(strstr(command_out, "score "));
    j = command_json("embed tales-1m -p 'Once upon a time' --json --quiet"); /* a decoder: its last id's */
    assert_true(json_array_size(json_object_get(j, "embedding")) > 0);
    json_decref(j);
}

static void prompts_and_cuts(void **state)
{
    (void)state;
    char dir[400], args[1000], other[1000];

    snprintf(dir, sizeof dir, "%s", test_with_letters("prompted", "bert"));
    snprintf(other, sizeof other, "%s/config_sentence_transformers.json", dir);
    test_write_text(other, "{\"prompts\": {\"query\": \"what is \"}, \"default_prompt_name\": null}");
    snprintf(args, sizeof args, "embed %s -p 'a fox?' --prompt query --json --quiet", dir);
    snprintf(other, sizeof other, "embed %s --ids 1,66,67,4,64,58,2 --pool mean --json --quiet", dir);
    same_at("embedding", args, other);
    snprintf(args, sizeof args, "embed %s -p a --prompt passage", dir);
    command_refuses(args, 2, "query");
    snprintf(args, sizeof args, "embed %s --ids 1,2 --truncate", dir);
    command_refuses(args, 2, "--truncate");
    snprintf(args, sizeof args, "embed %s --batch-rows 5 -p 'a b c d e f'", dir);
    command_refuses(args, 1, "--batch-rows");
    strcat(args, " --truncate --json --quiet");
    snprintf(other, sizeof other, "embed %s -p 'a b c' --json --quiet", dir);
    same_at("embedding", args, other);
}

static void refusals(void **state)
{
    (void)state;
    char dir[400], args[600];

    snprintf(dir, sizeof dir, "%s", test_with_letters("bare", "bert"));
    command_refuses("embed", 2, "MODEL");
    command_refuses("embed " GOLDEN "/bert", 2, "-p");
    command_refuses("embed " GOLDEN "/bert -p a --ids 1", 2, "-p");
    command_refuses("embed " GOLDEN "/bert --ids 1,2 --pool max", 2, "'max'");
    command_refuses("embed " GOLDEN "/bert --ids 1,2 --pair b", 2, "--pair");
    command_refuses("embed " GOLDEN "/bert -p a", 1, "tokenizer");
    command_refuses("embed " GOLDEN "/bert --ids 1,5000", 1, "5000");
    command_refuses("embed " GOLDEN "/bert --ids 1,2,3 --batch-rows 2", 1, "--batch-rows");
    command_refuses("embed " GOLDEN "/bert --ids 1,2,3 --draft ngram", 1, "encoder");
    snprintf(args, sizeof args, "embed %s -p a --pair b", dir);
    command_refuses(args, 1, "head");
    command_refuses("run " GOLDEN "/bert-rerank --ids 1,2", 1, "scores pairs");
    command_refuses("run " GOLDEN "/bert --ids 1,2", 1, "embeddings");
    command_refuses("chat " GOLDEN "/nomic-bert", 1, "embeddings");
    command_refuses("eval " GOLDEN "/bert --perplexity " GOLDEN "/bert/config.json", 1, "encoder");
}

/* `logits` writes hidden states, of a pair with both types, and no logits. */
static void hidden_states_are_written(void **state)
{
    (void)state;
    rg_checkpoint *g = open_golden("bert");
    size_t n_ids, n, n_got;
    int32_t *ids = test_ints(g, "input_ids", &n_ids);
    float *want = test_floats(g, "hidden.3", &n);
    char path[400], args[1800];
    rg_error err = { 0 };

    assert_non_null(want);
    snprintf(path, sizeof path, "%s", test_scratch("hidden.safetensors"));
    snprintf(args, sizeof args, "logits " GOLDEN "/bert --ids %s -o %s --json --quiet", list_of(ids, n_ids), path);
    json_t *j = command_json(args);
    assert_int_equal(json_integer_value(json_object_get(j, "rows")), n_ids);
    assert_null(json_object_get(j, "vocab"));
    json_decref(j);
    rg_checkpoint *c = rg_checkpoint_open(path, RG_CKPT_DEFAULT, &err);
    assert_ok(c, err);
    assert_null(rg_checkpoint_find(c, "logits"));
    assert_non_null(rg_checkpoint_find(c, "hidden.0"));
    float *got = test_floats(c, "hidden.3", &n_got);
    assert_non_null(got);
    assert_int_equal(n_got, n);
    for (size_t i = 0; i < n; i++)
        assert_true(fabs((double)(got[i] - want[i])) < 4e-4);
    free(got);
    free(want);
    free(ids);
    rg_checkpoint_close(c);
    rg_checkpoint_close(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),
        cmocka_unit_test(texts_and_pairs),
        cmocka_unit_test(prompts_and_cuts),
        cmocka_unit_test(refusals),
        cmocka_unit_test(hidden_states_are_written),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
