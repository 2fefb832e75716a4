/* test_schemas.c -- JSON schemas, keyword by keyword: which values they allow.  Every row was also put to the jsonschema
 * package for Python. */
#include "grammar/words.h"

typedef struct schema_case {
    bool open; /* rg_grammar_source.open_objects */
    const char *schema, *yes[6], *no[6];
} schema_case;

static const schema_case cases[] = {
    { false, "{\"type\":\"integer\"}",
      { "0", "999999999999999999", "-999999999999999999" },
      { "01" } },
    { false, "{\"type\":\"integer\",\"minimum\":3,\"maximum\":9223372036854775807}",
      { "3", "9223372036854775807" },
      { "2", "9223372036854775808" } },
    { false, "{\"oneOf\":[{\"type\":\"number\"},{\"type\":\"integer\"}]}",
      { "0.5", "-2.25" },
      { "1", "0", "\"a\"" } },
    { false, "{\"oneOf\":[{\"const\":2},{\"type\":\"integer\"},{\"type\":\"string\"}]}",
      { "3", "-1", "\"x\"" },
      { "2", "null" } },
    { false, "{\"oneOf\":[{\"type\":\"integer\",\"minimum\":2},{\"type\":\"integer\",\"maximum\":5}]}",
      { "1", "6" },
      { "2", "3", "5" } },
    { false, "{\"oneOf\":[{\"oneOf\":[{\"const\":-11},{\"type\":[\"null\",\"number\"]},{\"enum\":[\"9\",4.5]}]}]}",
      { "null", "3", "\"9\"" },
      { "-11", "4.5" } },
    { true, "{\"type\":\"object\",\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}",
      { "{\"a\":1}", "{\"b\":1,\"c\":2}" },
      { "{}", "{\"a\":1,\"b\":2}" } },
    { true, "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"additionalProperties\":false},{\"ty"
      "pe\":\"object\",\"properties\":{\"b\":{\"type\":\"integer\"}},\"additionalProperties\":false}]}",
      { "{\"a\":1}", "{\"b\":2}" },
      { "{}", "{\"c\":1}", "{\"a\":1,\"b\":1}" } },
    { false, "{\"oneOf\":[{\"type\":\"string\",\"pattern\":\"^a\"},{\"type\":\"string\",\"pattern\":\"b$\"}]}",
      { "\"ax\"", "\"xb\"" },
      { "\"ab\"", "\"x\"" } },
    { false, "{\"oneOf\":[{\"type\":\"string\",\"maxLength\":3},{\"type\":\"string\",\"minLength\":2}]}",
      { "\"a\"", "\"abcd\"" },
      { "\"ab\"", "\"abc\"" } },
    { false, "{\"oneOf\":[{\"type\":\"string\",\"format\":\"ipv4\"},{\"type\":\"string\",\"format\":\"ipv6\"}]}",
      { "\"1.2.3.4\"", "\"::1\"" },
      { "\"x\"" } },
    { false, "{\"oneOf\":[{\"enum\":[\"a\",1,null]},{\"enum\":[\"b\",1]}]}",
      { "\"a\"", "\"b\"", "null" },
      { "1" } },
    { true, "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":[\"x\"]},\"v\":{\"type\":\"integer\"}}},{\"type\":"
      "\"object\",\"properties\":{\"k\":{\"enum\":[\"y\"]}}}]}",
      { "{\"k\":\"x\",\"v\":1}", "{\"k\":\"y\",\"v\":\"s\"}", "{\"v\":\"s\"}" },
      { "{\"k\":\"z\"}", "{}", "{\"k\":\"x\",\"v\":\"s\"}" } },
    { false, "{\"not\":{\"type\":[\"string\",\"integer\"]}}",
      { "0.5", "null", "[1]" },
      { "\"a\"", "1" } },
    { false, "{\"type\":\"integer\",\"not\":{\"const\":3}}",
      { "2", "4", "33", "-3" },
      { "3" } },
    { false, "{\"type\":\"number\",\"not\":{\"enum\":[0,1.5]}}",
      { "0.1", "1.25", "15" },
      { "0", "1.5" } },
    { false, "{\"type\":\"string\",\"not\":{\"enum\":[\"a\",\"ab\"]}}",
      { "\"\"", "\"b\"", "\"abc\"" },
      { "\"a\"", "\"ab\"" } },
    { false, "{\"type\":\"string\",\"not\":{\"pattern\":\"^x\"}}",
      { "\"ax\"", "\"\"" },
      { "\"x\"", "\"xa\"" } },
    { false, "{\"type\":\"string\",\"not\":{\"minLength\":2}}",
      { "\"\"", "\"a\"" },
      { "\"ab\"" } },
    { false, "{\"type\":[\"boolean\",\"null\"],\"not\":{\"const\":true}}",
      { "false", "null" },
      { "true" } },
    { true, "{\"type\":\"object\",\"not\":{\"required\":[\"a\"]}}",
      { "{}", "{\"b\":1}" },
      { "{\"a\":1}", "{\"b\":1,\"a\":2}" } },
    { true, "{\"type\":\"object\",\"not\":{\"required\":[\"a\",\"b\"]}}",
      { "{}", "{\"a\":1}", "{\"b\":1}" },
      { "{\"a\":1,\"b\":2}" } },
    { true, "{\"type\":\"object\",\"not\":{\"properties\":{\"a\":{\"type\":\"string\"}}}}",
      { "{\"a\":1}", "{\"a\":1,\"b\":2}" },
      { "{}", "{\"a\":\"x\"}", "{\"b\":1}" } },
    { false, "{\"not\":{\"anyOf\":[{\"type\":\"string\"},{\"minimum\":5}]}}",
      { "4", "-1.5" },
      { "\"a\"", "5", "null" } },
    { false, "{\"not\":{\"allOf\":[{\"type\":\"integer\"},{\"minimum\":5}]}}",
      { "4", "\"a\"", "5.5" },
      { "5", "6" } },
    { false, "{\"not\":{\"not\":{\"type\":\"integer\",\"minimum\":1}}}",
      { "1", "2" },
      { "0", "\"a\"" } },
    { false, "{\"type\":\"array\",\"not\":{\"minItems\":2}}",
      { "[]", "[1]" },
      { "[1,2]" } },
    { true, "{\"not\":{\"$ref\":\"#/$defs/a\"},\"$defs\":{\"a\":{\"type\":\"object\",\"required\":[\"x\"]}}}",
      { "{}", "1", "{\"y\":2}" },
      { "{\"x\":1}" } },
    { true, "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"string\"},\"v\":true},\"required\":[\"k\"],\"if\":{\"properti"
      "es\":{\"k\":{\"const\":\"n\"}}},\"then\":{\"properties\":{\"v\":{\"type\":\"integer\"}},\"required\":[\"v\"]},\"else"
      "\":{\"properties\":{\"v\":{\"type\":\"string\"}}}}",
      { "{\"k\":\"n\",\"v\":1}", "{\"k\":\"s\",\"v\":\"x\"}", "{\"k\":\"s\"}" },
      { "{\"k\":\"n\"}", "{\"k\":\"n\",\"v\":\"x\"}", "{\"k\":\"s\",\"v\":1}" } },
    { false, "{\"type\":\"integer\",\"if\":{\"minimum\":10},\"then\":{\"maximum\":20},\"else\":{\"maximum\":5}}",
      { "10", "20", "5", "-1" },
      { "6", "9", "21" } },
    { false, "{\"if\":{\"type\":\"string\"},\"then\":{\"maxLength\":2},\"type\":[\"string\",\"null\"]}",
      { "\"ab\"", "null" },
      { "\"abc\"" } },
    { false, "{\"then\":{\"const\":1},\"type\":\"integer\"}",
      { "1", "2" },
      { "\"a\"" } },
    { true, "{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"],\"b\":[\"c\"]}}",
      { "{}", "{\"c\":1}", "{\"b\":1,\"c\":1}", "{\"a\":1,\"b\":2,\"c\":3}" },
      { "{\"a\":1}", "{\"a\":1,\"b\":1}", "{\"b\":2}" } },
    { true, "{\"type\":\"object\",\"dependencies\":{\"a\":[\"b\"],\"c\":{\"properties\":{\"d\":{\"type\":\"integer\"}},\"required"
      "\":[\"d\"]}}}",
      { "{}", "{\"a\":1,\"b\":2}", "{\"c\":1,\"d\":2}" },
      { "{\"a\":1}", "{\"c\":1}", "{\"c\":1,\"d\":\"x\"}" } },
    { true, "{\"type\":\"object\",\"dependentSchemas\":{\"a\":{\"properties\":{\"b\":{\"const\":1}}}}}",
      { "{\"b\":2}", "{\"a\":0,\"b\":1}", "{\"a\":0}" },
      { "{\"a\":0,\"b\":2}" } },
    { false, "{\"type\":\"object\",\"properties\":{\"a\":true,\"b\":true},\"additionalProperties\":false,\"maxProperties\":1,\"dep"
      "endentRequired\":{\"a\":[\"b\"]}}",
      { "{}", "{\"b\":1}" },
      { "{\"a\":1}", "{\"a\":1,\"b\":1}" } },
    { true, "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}}}",
      { "{}", "{\"x\":1}", "{\"y\":\"s\",\"x2\":3}" },
      { "{\"x\":\"s\"}", "{\"xa\":null}" } },
    { false, "{\"type\":\"object\",\"patternProperties\":{\"^x\":{\"type\":\"integer\"}},\"additionalProperties\":{\"type\":\"stri"
      "ng\"}}",
      { "{\"x\":1,\"y\":\"s\"}" },
      { "{\"x\":\"s\"}", "{\"y\":1}" } },
    { false, "{\"type\":\"object\",\"patternProperties\":{\"^a\":{\"type\":\"integer\"},\"z$\":{\"minimum\":5}},\"additionalProper"
      "ties\":false}",
      { "{\"a\":1}", "{\"z\":7}", "{\"az\":5}", "{\"z\":\"s\"}" },
      { "{\"az\":4}", "{\"az\":\"s\"}", "{\"b\":1}" } },
    { false, "{\"type\":\"object\",\"properties\":{\"x1\":{\"maximum\":3},\"y\":{\"type\":\"null\"}},\"patternProperties\":{\"^x\""
      ":{\"type\":\"integer\"}},\"additionalProperties\":false}",
      { "{\"x1\":3,\"y\":null}", "{\"x2\":9}" },
      { "{\"x1\":4}", "{\"x1\":\"s\"}", "{\"y\":1}", "{\"z\":1}" } },
    { false, "{\"type\":\"object\",\"patternProperties\":{\"\":{\"type\":\"integer\"}},\"minProperties\":1}",
      { "{\"a\":1}" },
      { "{}", "{\"a\":\"s\"}" } },
    { false, "{\"type\":\"object\",\"patternProperties\":{\"^(a$|b)\":{\"type\":\"integer\"}},\"additionalProperties\":false}",
      { "{\"a\":1}", "{\"bc\":1}" },
      { "{\"ab\":1}" } },
    { true, "{\"type\":\"object\",\"propertyNames\":{\"$ref\":\"#/$defs/n\"},\"$defs\":{\"n\":{\"enum\":[\"a\",\"b\"]}}}",
      { "{}", "{\"a\":1,\"b\":2}" },
      { "{\"c\":1}" } },
    { true, "{\"type\":\"object\",\"properties\":{\"ab\":{\"type\":\"integer\"}},\"propertyNames\":{\"pattern\":\"^a\"}}",
      { "{\"ab\":1}", "{\"ac\":\"s\"}" },
      { "{\"ab\":\"s\"}", "{\"b\":1}" } },
    { false, "{\"$id\":\"http://x/root.json\",\"type\":\"array\",\"items\":{\"$ref\":\"item.json\"},\"$defs\":{\"i\":{\"$id\":\"it"
      "em.json\",\"type\":\"integer\"}}}",
      { "[]", "[1]" },
      { "[\"a\"]" } },
    { false, "{\"$id\":\"http://x/root.json\",\"type\":\"array\",\"items\":{\"$ref\":\"http://x/root.json#/$defs/i\"},\"$defs\":{"
      "\"i\":{\"type\":\"integer\"}}}",
      { "[1]" },
      { "[\"a\"]" } },
    { false, "{\"type\":\"array\",\"items\":{\"$ref\":\"#n\"},\"$defs\":{\"i\":{\"$anchor\":\"n\",\"type\":\"integer\"}}}",
      { "[1]" },
      { "[\"a\"]" } },
    { false, "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"$id\":\"http://x/a\",\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/b"
      "\"},\"$defs\":{\"b\":{\"type\":\"integer\"}}},\"b\":{\"type\":\"string\"}}}",
      { "[1]" },
      { "[\"a\"]" } },
    { true, "{\"type\":\"object\",\"properties\":{\"a\":{\"$id\":\"/properties/a\",\"type\":\"integer\"}},\"required\":[\"a\"]}",
      { "{\"a\":1}" },
      { "{\"a\":\"s\"}" } },
    { false, "{\"enum\":[[1],[1,2],{\"a\":1},{\"a\":\"x\"}],\"minItems\":2,\"properties\":{\"a\":{\"type\":\"integer\"}}}",
      { "[1,2]", "{\"a\":1}" },
      { "[1]", "{\"a\":\"x\"}" } },
    { false, "{\"const\":null}",
      { "null" },
      { "0", "\"null\"" } },
    { false, "{\"type\":\"object\",\"properties\":{\"a\":{\"const\":null}},\"required\":[\"a\"]}",
      { "{\"a\":null}" },
      { "{\"a\":1}" } },
    { false, "{\"type\":\"string\",\"pattern\":\"(^a|b$)\"}",
      { "\"ax\"", "\"xb\"" },
      { "\"xa\"", "\"bx\"" } },
    { false, "{\"type\":\"string\",\"pattern\":\"^(a|b$)\"}",
      { "\"ax\"", "\"b\"" },
      { "\"bx\"", "\"xb\"" } },
    { false, "{\"type\":\"string\",\"pattern\":\"a|^$\"}",
      { "\"\"", "\"xa\"" },
      { "\"b\"" } },
    { false, "{\"type\":\"string\",\"pattern\":\"[a-c-_]{1,255}\",\"maxLength\":3}",
      { "\"xa\"", "\"_\"" },
      { "\"xyz\"", "\"abcd\"" } },
    { false, "{\"type\":\"string\",\"pattern\":\"^a\\u0000?b$\"}",
      { "\"ab\"" },
      { "\"a\"" } },
    { false, "{\"type\":\"number\",\"minimum\":0,\"maximum\":999999999999999}",
      { "0.25", "12.5" },
      { "-1" } },
    { false, "{\"type\":\"integer\",\"minimum\":0,\"maximum\":9223372036854776000}",
      { "0", "123456789012345678" },
      { "-1" } },
    { false, "{\"type\":\"number\",\"maximum\":1.7e+308}",
      { "1000.0" },
      { "\"a\"" } },
    { false, "{\"$schema\":\"http://json-schema.org/draft-04/schema#\",\"id\":\"http://x/y\",\"type\":\"integer\",\"minimum\":1,\""
      "exclusiveMinimum\":true}",
      { "2" },
      { "1" } },
};

static rg_grammar *compile_open(const words *w, const char *schema, bool open)
{
    rg_error err;
    rg_grammar_source source = { .kind = S, .text = schema, .n = strlen(schema), .open_objects = open };
    rg_grammar *g = rg_grammar_compile(w->v, &source, &err);

    if (!g)
        print_error("%s\n", schema);
    assert_ok(g, err);
    return g;
}

static void keywords(void **state)
{
    words w = all_bytes();

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_grammar *g = compile_open(&w, cases[i].schema, cases[i].open);
        for (size_t k = 0; k < RG_LEN(cases[i].yes) && cases[i].yes[k]; k++)
            if (!accepts(g, cases[i].yes[k]))
                fail_msg("%s refuses %s", cases[i].schema, cases[i].yes[k]);
        for (size_t k = 0; k < RG_LEN(cases[i].no) && cases[i].no[k]; k++)
            if (accepts(g, cases[i].no[k]))
                fail_msg("%s accepts %s", cases[i].schema, cases[i].no[k]);
        rg_grammar_unref(g);
    }
    free_words(&w);
}

/* An integer without a bound stays within 64 bits, though the schema allows any: a model that goes on writing digits
 * would never end it, and readers could not read it. */
static void unbound_integers_end(void **state)
{
    static const char *const schemas[] = { "{\"type\":\"integer\"}", "{\"type\":\"integer\",\"minimum\":-5}",
                                           "{\"type\":\"integer\",\"exclusiveMaximum\":7000000000000000000}" };
    static const char *const more[] = { "1000000000000000000", "1000000000000000000", "-1000000000000000000" };
    words w = all_bytes();

    (void)state;
    for (size_t i = 0; i < RG_LEN(schemas); i++) {
        rg_grammar *g = compile_open(&w, schemas[i], false);
        assert_false(accepts(g, more[i]));
        rg_grammar_unref(g);
    }
    free_words(&w);
}

/* What closes an object that says nothing of other properties, and what leaves it open. */
static void closed_and_open(void **state)
{
    static const struct {
        const char *schema, *other;
        bool closed, open; /* whether `other` is allowed */
    } said[] = {
        { "{\"properties\":{\"a\":{}},\"type\":\"object\"}", "{\"b\":1}", false, true },
        { "{\"properties\":{\"a\":{}},\"type\":\"object\",\"additionalProperties\":true}", "{\"b\":1}", true, true },
        { "{\"properties\":{\"a\":{}},\"type\":\"object\",\"additionalProperties\":false}", "{\"b\":1}", false, false },
        { "{\"type\":\"object\"}", "{\"b\":1}", true, true },
        { "{\"type\":\"object\",\"required\":[\"b\"]}", "{\"b\":1,\"c\":2}", true, true },
        { "{\"type\":\"object\",\"patternProperties\":{\"^a\":{}}}", "{\"b\":1}", false, true },
        { "{\"type\":\"object\",\"patternProperties\":{\"^a\":{}}}", "{\"ab\":1}", true, true },
        { "{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}}],\"type\":\"object\"}", "{\"b\":1}", true, true },
        { "{\"allOf\":[{\"properties\":{\"a\":{}}},{\"properties\":{\"b\":{}}}],\"type\":\"object\"}", "{\"c\":1}", false, true },
        { "{\"type\":\"array\",\"items\":{\"properties\":{\"a\":{}},\"type\":\"object\"}}", "[{\"b\":1}]", false, true },
    };
    words w = all_bytes();

    (void)state;
    for (size_t i = 0; i < RG_LEN(said); i++)
        for (int open = 0; open < 2; open++) {
            rg_grammar *g = compile_open(&w, said[i].schema, open);
            if (accepts(g, said[i].other) != (open ? said[i].open : said[i].closed))
                fail_msg("%s: %s", said[i].schema, said[i].other);
            rg_grammar_unref(g);
        }
    free_words(&w);
}

/* Fewer values than there are, and none that is wrong; what would leave none is refused, and the keyword named. */
static void opposites_that_are_not_known(void **state)
{
    static const struct {
        const char *schema, *says;
    } refused[] = {
        { "{\"type\":\"integer\",\"not\":{\"multipleOf\":3}}", "'not' of a schema with 'multipleOf'" },
        { "{\"type\":\"array\",\"not\":{\"items\":{\"type\":\"null\"}}}", "'not' of a schema with 'items'" },
        { "{\"type\":\"string\",\"not\":{\"format\":\"date\"}}", "'not' of a schema with 'format'" },
        { "{\"not\":{\"extends\":{}}}", "'extends'" },
        { "{\"contains\":{\"format\":\"date\"},\"maxContains\":1}", "'maxContains': what does not satisfy 'format'" },
        { "{\"anyOf\":[{\"required\":[\"a\"]}],\"unevaluatedProperties\":false}", "'unevaluatedProperties'" },
        { "{\"oneOf\":[{\"type\":\"string\"},{\"format\":\"date\"}]}", "the opposite of 'format'" },
    };
    words w = all_bytes();
    rg_error err;

    (void)state;
    for (size_t i = 0; i < RG_LEN(refused); i++) {
        const char *s = refused[i].schema;
        assert_null(rg_grammar_compile(w.v, &SOURCE(S, s, strlen(s)), &err));
        if (!strstr(err.text, refused[i].says))
            fail_msg("%s: %s", s, err.text);
    }
    free_words(&w);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keywords),
        cmocka_unit_test(unbound_integers_end),
        cmocka_unit_test(closed_and_open),
        cmocka_unit_test(opposites_that_are_not_known),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
