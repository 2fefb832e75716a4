/* test_model_names.c -- adapters over HTTP: the list of models, an answer under an adapter's name, and other names. */
#define _GNU_SOURCE 1
#include "server/live.h"

static test_server t;

static const rg_adapter_option adapters[] = {
    { "first", RG_TEST_DATA "/adapters/llama" },
    { "second", RG_TEST_DATA "/adapters/llama-gguf/adapter.gguf" },
};

static int setup(void **state)
{
    rg_server_options o = test_server_options();
    rg_options e = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    o.model = "base";
    e.n_threads = 1;
    e.kv_bytes = (size_t)64 << 20;
    e.max_seq_len = 256;
    e.adapters = adapters;
    e.n_adapters = RG_LEN(adapters);
    rg_engine *engine = rg_open(RG_TEST_DATA "/llama", &e, &err);
    assert_ok(engine, err);
    test_server_start_with(&t, &o, engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

static void check_model(const json_t *m, const char *id, const char *parent)
{
    const json_t *p = json_object_get(m, "parent");

    assert_string_equal(json_string_value(json_object_get(m, "id")), id);
    assert_true(parent ? json_is_string(p) && !strcmp(json_string_value(p), parent) : !p);
}

static void models_are_listed(void **state)
{
    json_t *all = test_web_json(t.port, "/v1/models", NULL, 200), *list = json_object_get(all, "data"), *one;

    (void)state;
    assert_int_equal(json_array_size(list), 3);
    check_model(json_array_get(list, 0), "base", NULL);
    check_model(json_array_get(list, 1), "first", "base");
    check_model(json_array_get(list, 2), "second", "base");
    json_decref(all);
    one = test_web_json(t.port, "/v1/models/second", NULL, 200);
    check_model(one, "second", "base");
    json_decref(one);
    one = test_web_json(t.port, "/v1/models/third", NULL, 404);
    assert_non_null(strstr(test_json_text(one, "error.message"), "'base', 'first', 'second'"));
    json_decref(one);
}

/* Log-probabilities of an answer under this name, to be freed. */
static json_t *ask(const char *name, const char *model)
{
    char body[256];

    snprintf(body, sizeof body, "{%s%s%s\"prompt\":[1,2,3],\"max_tokens\":8,\"temperature\":0,\"logprobs\":0}",
             name ? "\"model\":\"" : "", name ? name : "", name ? "\"," : "");
    json_t *v = test_web_json(t.port, "/v1/completions", body, 200);
    json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
    json_t *found = json_object_get(json_object_get(choice, "logprobs"), "token_logprobs");

    assert_string_equal(json_string_value(json_object_get(v, "model")), model);
    assert_int_equal(json_array_size(found), 8);
    json_incref(found);
    json_decref(v);
    return found;
}

static void answers_are_by_name(void **state)
{
    json_t *base = ask("base", "base"), *first = ask("first", "first"), *second = ask("second", "second");
    json_t *unnamed = ask(NULL, "base"), *again = ask("first", "first");

    (void)state;
    assert_true(json_equal(base, unnamed) && json_equal(first, again));
    assert_false(json_equal(base, first) || json_equal(base, second) || json_equal(first, second));
    json_decref(base);
    json_decref(first);
    json_decref(second);
    json_decref(unnamed);
    json_decref(again);
    json_t *v = test_web_json(t.port, "/v1/completions", "{\"model\":\"third\",\"prompt\":[1]}", 404);
    assert_non_null(strstr(test_json_text(v, "error.message"), "'base', 'first', 'second'"));
    assert_string_equal(json_string_value(json_object_get(json_object_get(v, "error"), "code")), "model_not_found");
    json_decref(v);
}

/* A model that is alone answers under every name, unless names are strict; the answer tells its own name. */
static void any_name_is_taken_where_one_model_is(void **state)
{
    static const char *const aliases[] = { "gpt-4o", "org/other" };
    static const char *const names[] = { "tales", "default", "gpt-4o", "org/other", "" };

    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        rg_server_options o = test_server_options();
        test_server s;
        char body[200];
        o.strict_model = strict;
        o.aliases = aliases;
        o.n_aliases = RG_LEN(aliases);
        test_server_start(&s, &o, 64, 4);
        for (size_t i = 0; i < RG_LEN(names); i++) {
            snprintf(body, sizeof body, "{\"model\":\"%s\",\"prompt\":[1],\"max_tokens\":1}", names[i]);
            json_t *v = test_web_json(s.port, "/v1/completions", body, 200);
            assert_string_equal(test_json_text(v, "model"), "tales");
            json_decref(v);
        }
        json_t *v = test_web_json(s.port, "/v1/completions", "{\"model\":\"claude\",\"prompt\":[1],\"max_tokens\":1}",
                                  strict ? 404 : 200);
        if (strict)
            assert_non_null(strstr(test_json_text(v, "error.message"), "'tales'"));
        else
            assert_string_equal(test_json_text(v, "model"), "tales");
        json_decref(v);
        json_decref(test_web_json(s.port, "/v1/models/gpt-4o", NULL, 200));
        json_decref(test_web_json(s.port, "/v1/models/claude", NULL, 404));
        test_server_stop(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_listed),
        cmocka_unit_test(answers_are_by_name),
        cmocka_unit_test(any_name_is_taken_where_one_model_is),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
