/* test_pydantic.c -- the schemas that Pydantic 2 writes for each kind of field, and which values they allow. */
#include "grammar/words.h"

static const struct {
    const char *schema, *yes[3], *no[3];
} cases[] = {
    { "{\"type\":\"integer\"}",
      { "1" }, { "\"a\"", "1.5" } },
    { "{\"type\":\"number\"}",
      { "1.5" }, { "\"a\"" } },
    { "{\"type\":\"string\"}",
      { "\"a\"" }, { "1" } },
    { "{\"type\":\"boolean\"}",
      { "true" }, { "1" } },
    { "{\"type\":\"null\"}",
      { "null" }, { "0" } },
    { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"null\"}]}",
      { "1", "null" }, { "\"a\"" } },
    { "{\"anyOf\":[{\"type\":\"integer\"},{\"type\":\"string\"}]}",
      { "1", "\"a\"" }, { "null" } },
    { "{\"items\":{},\"type\":\"array\"}",
      { "[1]" }, { "{}" } },
    { "{\"items\":{\"type\":\"integer\"},\"type\":\"array\"}",
      { "[1,2]" }, { "[\"a\"]" } },
    { "{\"additionalProperties\":true,\"type\":\"object\"}",
      { "{\"a\":1}" }, { "[]" } },
    { "{\"additionalProperties\":{\"type\":\"integer\"},\"type\":\"object\"}",
      { "{\"a\":1}" }, { "{\"a\":\"b\"}" } },
    { "{\"maxItems\":2,\"minItems\":2,\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"type\":\"array\""
      "}",
      { "[1,\"a\"]" }, { "[\"a\",1]", "[1]" } },
    { "{\"items\":{\"type\":\"integer\"},\"type\":\"array\"}",
      { "[]", "[1,2]" }, { "[\"a\"]" } },
    { "{\"items\":{\"type\":\"integer\"},\"type\":\"array\",\"uniqueItems\":true}",
      { "[1,2]" }, { "[1,1]" } },
    { "{\"items\":{\"type\":\"string\"},\"type\":\"array\",\"uniqueItems\":true}",
      { "[\"a\"]" }, { "[\"a\",\"a\"]" } },
    { "{\"enum\":[\"a\",\"b\"],\"type\":\"string\"}",
      { "\"a\"" }, { "\"c\"" } },
    { "{\"enum\":[1,\"b\",null]}",
      { "1", "null" }, { "2" } },
    { "{\"enum\":[\"x\",\"y\"],\"title\":\"C\",\"type\":\"string\"}",
      { "\"x\"" }, { "\"a\"" } },
    { "{\"enum\":[1,2],\"title\":\"N\",\"type\":\"integer\"}",
      { "1" }, { "3" } },
    { "{\"exclusiveMinimum\":0,\"type\":\"integer\"}",
      { "1" }, { "0" } },
    { "{\"maximum\":5,\"minimum\":0,\"type\":\"integer\"}",
      { "0", "5" }, { "6" } },
    { "{\"exclusiveMaximum\":3,\"type\":\"integer\"}",
      { "2" }, { "3" } },
    { "{\"exclusiveMaximum\":1,\"exclusiveMinimum\":0,\"type\":\"number\"}",
      { "0.5" }, { "1", "0" } },
    { "{\"multipleOf\":3,\"type\":\"integer\"}",
      { "3", "6" }, { "4" } },
    { "{\"multipleOf\":0.5,\"type\":\"number\"}",
      { "1.5" }, { "1.25" } },
    { "{\"minLength\":1,\"type\":\"string\"}",
      { "\"a\"" }, { "\"\"" } },
    { "{\"maxLength\":2,\"type\":\"string\"}",
      { "\"ab\"" }, { "\"abc\"" } },
    { "{\"pattern\":\"^[a-z]+$\",\"type\":\"string\"}",
      { "\"ab\"" }, { "\"A\"" } },
    { "{\"pattern\":\"^\\\\d{3}-\\\\d{4}$\",\"type\":\"string\"}",
      { "\"123-4567\"" }, { "\"1234\"" } },
    { "{\"maxLength\":3,\"minLength\":2,\"pattern\":\"^a\",\"type\":\"string\"}",
      { "\"ab\"" }, { "\"b\"", "\"a\"" } },
    { "{\"items\":{\"type\":\"integer\"},\"maxItems\":2,\"minItems\":1,\"type\":\"array\"}",
      { "[1]" }, { "[]", "[1,2,3]" } },
    { "{\"additionalProperties\":{\"type\":\"integer\"},\"minProperties\":1,\"type\":\"object\"}",
      { "{\"a\":1}" }, { "{}" } },
    { "{\"exclusiveMinimum\":0,\"type\":\"integer\"}",
      { "1" }, { "0" } },
    { "{\"exclusiveMaximum\":0,\"type\":\"integer\"}",
      { "-1" }, { "0" } },
    { "{\"minimum\":0,\"type\":\"integer\"}",
      { "0" }, { "-1" } },
    { "{\"maximum\":0,\"type\":\"integer\"}",
      { "0" }, { "1" } },
    { "{\"exclusiveMinimum\":0,\"type\":\"number\"}",
      { "0.5" }, { "-1.5" } },
    { "{\"type\":\"integer\"}",
      { "1" }, { "\"1\"" } },
    { "{\"type\":\"string\"}",
      { "\"a\"" }, { "1" } },
    { "{\"type\":\"boolean\"}",
      { "true" }, { "\"a\"" } },
    { "{\"type\":\"number\"}",
      { "1.5" }, { "\"a\"" } },
    { "{\"format\":\"date\",\"type\":\"string\"}",
      { "\"2024-01-31\"" }, { "\"2024-01-32\"" } },
    { "{\"format\":\"date-time\",\"type\":\"string\"}",
      { "\"2024-01-31T10:00:00Z\"" }, { "\"x\"" } },
    { "{\"format\":\"time\",\"type\":\"string\"}",
      { "\"10:00:00Z\"" }, { "\"25:00:00Z\"" } },
    { "{\"format\":\"duration\",\"type\":\"string\"}",
      { "\"P1D\"" }, { "\"x\"" } },
    { "{\"format\":\"uuid\",\"type\":\"string\"}",
      { "\"123e4567-e89b-12d3-a456-426614174000\"" }, { "\"x\"" } },
    { "{\"format\":\"uuid4\",\"type\":\"string\"}",
      { "\"123e4567-e89b-42d3-a456-426614174000\"" }, { "\"x\"" } },
    { "{\"format\":\"uri\",\"minLength\":1,\"type\":\"string\"}",
      { "\"https://a.b/c\"" }, { "\"x\"" } },
    { "{\"format\":\"uri\",\"maxLength\":2083,\"minLength\":1,\"type\":\"string\"}",
      { "\"https://a.b/c\"" }, { "\"x\"" } },
    { "{\"format\":\"ipv4\",\"type\":\"string\"}",
      { "\"1.2.3.4\"" }, { "\"1.2.3\"" } },
    { "{\"format\":\"ipv6\",\"type\":\"string\"}",
      { "\"::1\"" }, { "\"x\"" } },
    { "{\"format\":\"path\",\"type\":\"string\"}",
      { "\"a/b\"" }, { "1" } },
    { "{\"format\":\"binary\",\"type\":\"string\"}",
      { "\"ab\"" }, { "1" } },
    { "{\"format\":\"password\",\"type\":\"string\",\"writeOnly\":true}",
      { "\"a\"" }, { "1" } },
    { "{\"format\":\"base64\",\"type\":\"string\"}",
      { "\"YWI=\"" }, { "1" } },
    { "{\"contentMediaType\":\"application/json\",\"contentSchema\":{},\"type\":\"string\"}",
      { "\"1\"" }, { "1" } },
    { "{}",
      { "1", "{\"a\":[]}" }, { NULL } },
    { "{\"properties\":{\"i\":{\"title\":\"I\",\"type\":\"integer\"},\"s\":{\"default\":\"d\",\"title\":\"S\",\"type\":"
      "\"string\"}},\"required\":[\"i\"],\"title\":\"M\",\"type\":\"object\"}",
      { "{\"i\":1}", "{\"i\":1,\"s\":\"a\"}" }, { "{\"s\":\"a\"}", "{\"i\":\"a\"}" } },
    { "{\"additionalProperties\":false,\"properties\":{\"i\":{\"title\":\"I\",\"type\":\"integer\"}},\"required\":[\"i"
      "\"],\"title\":\"F\",\"type\":\"object\"}",
      { "{\"i\":1}" }, { "{\"i\":1,\"x\":1}" } },
    { "{\"additionalProperties\":true,\"properties\":{\"i\":{\"title\":\"I\",\"type\":\"integer\"}},\"required\":[\"i\""
      "],\"title\":\"X\",\"type\":\"object\"}",
      { "{\"i\":1,\"z\":2}" }, { "{\"z\":2}" } },
    { "{\"$defs\":{\"T\":{\"properties\":{\"v\":{\"title\":\"V\",\"type\":\"integer\"},\"n\":{\"anyOf\":[{\"$ref\":\"#/"
      "$defs/T\"},{\"type\":\"null\"}],\"default\":null}},\"required\":[\"v\"],\"title\":\"T\",\"type\":\"object\"}},\""
      "$ref\":\"#/$defs/T\"}",
      { "{\"v\":1,\"n\":{\"v\":2}}", "{\"v\":1,\"n\":null}" }, { "{\"n\":null}" } },
    { "{\"$defs\":{\"Cat\":{\"properties\":{\"k\":{\"const\":\"cat\",\"title\":\"K\",\"type\":\"string\"},\"m\":{\"titl"
      "e\":\"M\",\"type\":\"integer\"}},\"required\":[\"k\",\"m\"],\"title\":\"Cat\",\"type\":\"object\"},\"Dog\":{\"pr"
      "operties\":{\"k\":{\"const\":\"dog\",\"title\":\"K\",\"type\":\"string\"},\"b\":{\"title\":\"B\",\"type\":\"stri"
      "ng\"}},\"required\":[\"k\",\"b\"],\"title\":\"Dog\",\"type\":\"object\"}},\"anyOf\":[{\"$ref\":\"#/$defs/Cat\"},"
      "{\"$ref\":\"#/$defs/Dog\"}]}",
      { "{\"k\":\"cat\",\"m\":1}" }, { "{\"k\":\"cat\",\"b\":\"x\"}" } },
    { "{\"$defs\":{\"Cat\":{\"properties\":{\"k\":{\"const\":\"cat\",\"title\":\"K\",\"type\":\"string\"},\"m\":{\"titl"
      "e\":\"M\",\"type\":\"integer\"}},\"required\":[\"k\",\"m\"],\"title\":\"Cat\",\"type\":\"object\"},\"Dog\":{\"pr"
      "operties\":{\"k\":{\"const\":\"dog\",\"title\":\"K\",\"type\":\"string\"},\"b\":{\"title\":\"B\",\"type\":\"stri"
      "ng\"}},\"required\":[\"k\",\"b\"],\"title\":\"Dog\",\"type\":\"object\"}},\"discriminator\":{\"mapping\":{\"cat"
      "\":\"#/$defs/Cat\",\"dog\":\"#/$defs/Dog\"},\"propertyName\":\"k\"},\"oneOf\":[{\"$ref\":\"#/$defs/Cat\"},{\"$re"
      "f\":\"#/$defs/Dog\"}]}",
      { "{\"k\":\"dog\",\"b\":\"x\"}" }, { "{\"k\":\"dog\",\"m\":1}" } },
    { "{\"properties\":{\"i\":{\"title\":\"I\",\"type\":\"integer\"},\"s\":{\"default\":\"x\",\"title\":\"S\",\"type\":"
      "\"string\"}},\"required\":[\"i\"],\"title\":\"D\",\"type\":\"object\"}",
      { "{\"i\":1}" }, { "{}" } },
    { "{\"properties\":{\"a\":{\"title\":\"A\",\"type\":\"integer\"},\"b\":{\"title\":\"B\",\"type\":\"string\"}},\"req"
      "uired\":[\"a\"],\"title\":\"TD\",\"type\":\"object\"}",
      { "{\"a\":1}" }, { "{\"b\":\"x\"}" } },
    { "{\"maxItems\":2,\"minItems\":2,\"prefixItems\":[{\"title\":\"A\",\"type\":\"integer\"},{\"title\":\"B\",\"type\""
      ":\"string\"}],\"type\":\"array\"}",
      { "[1,\"a\"]" }, { "[\"a\",1]" } },
    { "{\"$defs\":{\"M\":{\"properties\":{\"i\":{\"title\":\"I\",\"type\":\"integer\"},\"s\":{\"default\":\"d\",\"title"
      "\":\"S\",\"type\":\"string\"}},\"required\":[\"i\"],\"title\":\"M\",\"type\":\"object\"}},\"items\":{\"$ref\":\""
      "#/$defs/M\"},\"type\":\"array\"}",
      { "[{\"i\":1}]" }, { "[{}]" } },
    { "{\"$defs\":{\"M\":{\"properties\":{\"i\":{\"title\":\"I\",\"type\":\"integer\"},\"s\":{\"default\":\"d\",\"title"
      "\":\"S\",\"type\":\"string\"}},\"required\":[\"i\"],\"title\":\"M\",\"type\":\"object\"}},\"additionalProperties"
      "\":{\"items\":{\"$ref\":\"#/$defs/M\"},\"type\":\"array\"},\"type\":\"object\"}",
      { "{\"a\":[{\"i\":1}]}" }, { "{\"a\":{}}" } },
    { "{\"anyOf\":[{\"type\":\"number\"},{\"pattern\":\"^(?!^[-+.]*$)[+-]?0*\\\\d*\\\\.?\\\\d*$\",\"type\":\"string\"}]"
      "}",
      { "1.5", "\"1.5\"" }, { "\"x\"" } },
};

static void kinds_of_fields(void **state)
{
    words w = all_bytes();

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_grammar *g = compile(&w, S, cases[i].schema);
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

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_of_fields),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
