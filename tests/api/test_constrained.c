/* test_constrained.c -- answers that must be something: grammars from ridge.h to the last token. */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "support/test.h"

enum { SEEDS = 12, ROOM = 1 << 14 };

static rg_engine *engine;

static int open_engine(void **state)
{
    rg_error err;

    (void)state;
    engine = rg_open(RG_SOURCE_DIR "/models/tales-1m", NULL, &err);
    assert_ok(engine, err);
    return 0;
}

static int close_engine(void **state)
{
    (void)state;
    rg_close(engine);
    return 0;
}

static rg_grammar *compile(rg_grammar_kind kind, const char *text)
{
    rg_error err;
    rg_grammar *g = rg_grammar_new(engine, &(rg_grammar_source){ kind, text, strlen(text), NULL }, &err);

    assert_ok(g, err);
    return g;
}

/* One answer, its text to out[ROOM]. */
static rg_finish answer(rg_grammar *g, uint64_t seed, int32_t max_tokens, char *out)
{
    rg_params p = { .max_tokens = max_tokens, .n_samples = 1, .sampling = rg_sampling_default(), .grammar = g };
    rg_finish finish = RG_RUNNING;
    rg_request *r;
    rg_token t;
    rg_error err;
    int32_t *ids;
    size_t n_ids, n = 0;

    assert_ok(rg_encode(engine, "Once upon a time", 16, 0, &ids, &n_ids, &err), err);
    p.prompt = ids;
    p.n_prompt = (int32_t)n_ids;
    p.sampling.seed = seed;
    r = rg_submit(engine, &p, &err);
    assert_ok(r, err);
    while (rg_next(r, &t)) {
        assert_true(n + t.n_text < ROOM);
        memcpy(out + n, t.text, t.n_text);
        n += t.n_text;
        finish = t.finish ? t.finish : finish;
    }
    out[n] = 0;
    rg_request_close(r);
    rg_ids_free(ids);
    return finish;
}

static void one_of_the_choices(void **state)
{
    static const char *const choices[] = { "yes", "no", "maybe so", "\u4f60\u597d" };
    rg_grammar *g = compile(RG_GRAMMAR_CHOICE, "[\"yes\", \"no\", \"maybe so\", \"\u4f60\u597d\"]");
    int seen = 0;
    char out[ROOM];

    (void)state;
    for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
        int which = -1;

        assert_int_equal(answer(g, seed, 40, out), RG_FINISH_STOP);
        for (int i = 0; i < 4; i++)
            which = strcmp(out, choices[i]) ? which : i;
        assert_true(which >= 0);
        seen |= 1 << which;
    }
    assert_true(seen & (seen - 1)); /* not always the same */
    rg_grammar_close(g);
}

static void what_the_expression_says(void **state)
{
    rg_grammar *g = compile(RG_GRAMMAR_REGEX, "(cat|dog)s? [0-9]{3}-[0-9]{4}");
    char out[ROOM], animal[8], rest;
    int a, b;

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_int_equal(answer(g, seed, 60, out), RG_FINISH_STOP);
        assert_int_equal(sscanf(out, "%7[a-z] %3d-%4d%c", animal, &a, &b, &rest), 3);
        assert_true(!strncmp(animal, "cat", 3) || !strncmp(animal, "dog", 3));
    }
    rg_grammar_close(g);
}

/* The grammar is referred to until the request is gone, and may be closed at once. */
static void what_the_schema_says(void **state)
{
    static const char schema[] =
        "{\"type\": \"object\", \"additionalProperties\": false, \"required\": [\"name\", \"age\"], \"properties\": {"
        "\"name\": {\"enum\": [\"Tim\", \"Lily\"]}, \"age\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 12},"
        "\"friends\": {\"type\": \"array\", \"maxItems\": 2, \"items\": {\"type\": \"boolean\"}}}}";
    int n_whole = 0;
    char out[ROOM];

    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        rg_grammar *g = compile(RG_GRAMMAR_JSON_SCHEMA, schema);
        rg_finish finish = answer(g, seed, 300, out);
        json_t *j = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
        const char *name = json_string_value(json_object_get(j, "name"));
        json_int_t age = json_integer_value(json_object_get(j, "age"));

        rg_grammar_close(g);
        if (finish == RG_FINISH_LENGTH) /* cut short */
            continue;
        n_whole++;
        assert_non_null(j);
        assert_true(name && (!strcmp(name, "Tim") || !strcmp(name, "Lily")));
        assert_in_range(age, 1, 12);
        assert_true(json_object_size(j) == 2 || json_is_array(json_object_get(j, "friends")));
        json_decref(j);
    }
    assert_true(n_whole > SEEDS / 2);
}

static void what_cannot_be_is_refused_by_name(void **state)
{
    static const struct { rg_grammar_kind kind; const char *text, *named; } cases[] = {
        { RG_GRAMMAR_JSON_SCHEMA, "{\"type\": \"array\", \"extends\": {}}", "extends" },
        { RG_GRAMMAR_JSON_SCHEMA, "{\"$ref\": \"http://example.org/x\"}", "$ref" },
        { RG_GRAMMAR_JSON_SCHEMA, "{\"type\": \"number\"", "JSON" },
        { RG_GRAMMAR_REGEX, "(a", "" },
        { RG_GRAMMAR_REGEX, "a(?=b)b", "" },
        { RG_GRAMMAR_GBNF, "root ::= nothing", "nothing" },
        { RG_GRAMMAR_CHOICE, "[]", "" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_error err = { 0 };

        assert_null(rg_grammar_new(engine, &(rg_grammar_source){ cases[i].kind, cases[i].text, strlen(cases[i].text), NULL },
                                   &err));
        assert_true(err.code != RG_OK && strstr(err.text, cases[i].named));
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_the_choices),
        cmocka_unit_test(what_the_expression_says),
        cmocka_unit_test(what_the_schema_says),
        cmocka_unit_test(what_cannot_be_is_refused_by_name),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests_name("constrained", tests, open_engine, close_engine);
}
