/* test_fields.c -- every field with every kind of value: answered or refused by name, the same twice, and the next good
 * request unaffected. */
#define _GNU_SOURCE 1 /* stpcpy */
#include "base/json.h"
#include "server/live.h"

static test_server t;
static int n_asked;

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    test_server_start(&t, &o, 64, 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

typedef struct api {
    const char *path, *must; /* what a good request has */
    const char *own;         /* fields that `must` has already */
} api;

static const api apis[] = {
    { "/v1/completions", "\"prompt\":\"a\"", "prompt" },
    { "/v1/chat/completions", "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]", "messages" },
    { "/v1/responses", "\"input\":\"a\"", "input" },
    { "/v1/messages", "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]", "messages" },
    { "/v1/embeddings", "\"input\":\"a\"", "input" },
};

static const char *const values[] = {
    "null",
    "-9223372036854775808",
    "-1",
    "0",
    "1",
    "2",
    "64",
    "2147483647",
    "2147483648",
    "9007199254740993",
    "9223372036854775807",
    "1.5",
    "-0.0",
    "1e308",
    "\"1\"",
    "\"\"",
    "\"x\"",
    "[]",
    "{}",
    "[null]",
    "[1]",
    "[\"a\"]",
    "true",
    "false",
    "{\"a\":1}",
    "[[1]]",
    "{\"type\":\"text\"}",
    "[{}]",
};

/* These no JSON parser of ours lets through. */
static const char *const no_values[] = { "1e400", "9223372036854775808", "NaN",  "-Infinity", "01",
                                         "'a'",   "\"\\ud800\"",         "[1,]", "" };

/* The refusal at r: OpenAI's shape with a message, or Anthropic's. */
static json_t *check_refusal(const test_reply *r, const char *what)
{
    json_t *v = test_reply_json(r), *e = json_object_get(v, "error");

    if (!json_is_string(json_object_get(e, "message")) || !json_is_string(json_object_get(e, "type")) ||
        !json_is_string(json_object_get(v, "request_id")))
        fail_msg("%s: no error in shape: %s", what, r->body);
    return v;
}

static void ask(const api *a, const char *field, const char *value, bool is_json, int times)
{
    char body[4096];
    int status[2] = { 0 };

    snprintf(body, sizeof body, "{%s%s%s\"%s\":%s}", strstr(a->own, field) && !strcmp(a->own, field) ? "" : a->must,
             strcmp(a->own, field) ? "," : "",
             strstr("max_tokens max_completion_tokens max_output_tokens n_predict", field) ? ""
             : !strcmp(a->path, "/v1/responses")                                           ? "\"max_output_tokens\":1,"
                                                                                           : "\"max_tokens\":1,",
             field, value);
    for (int i = 0; i < times; i++) {
        test_reply r = test_web_ask(t.port, "POST", a->path, NULL, body);
        status[i] = r.status;
        n_asked++;
        if (r.status != 200 && r.status != 400 && !(r.status == 404 && !strcmp(field, "model")))
            fail_msg("%s %s: %d %s", a->path, body, r.status, r.body ? r.body : "(closed)");
        if (r.status != 200) {
            json_t *v = check_refusal(&r, body);
            const char *param = json_string_value(json_object_get(json_object_get(v, "error"), "param"));
            if (is_json && strcmp(a->path, "/v1/messages") != 0 &&
                (!param || strncmp(param, field, strlen(field)) != 0))
                fail_msg("%s %s: refused by the name of %s", a->path, body, param ? param : "nothing");
            json_decref(v);
        } else if (!is_json) {
            fail_msg("%s %s: taken", a->path, body);
        }
        test_reply_free(&r);
    }
    if (times > 1)
        assert_int_equal(status[0], status[1]);
}

static void every_field_with_every_value(void **state)
{
    static const struct {
        const char *name;
        unsigned where;
    } fields[] = {
#define C                                                 1
#define H                                                 2
#define R                                                 4
#define M                                                 8
#define E                                                 16
#define K                                                 32
#define S                                                 64
#define O                                                 128
#define L                                                 256
#define FIELD(name, where, kind, member, min, max, words) { #name, where },
#include "server/api/fields.def"
#undef FIELD
    };

    (void)state;
    for (size_t f = 0; f < RG_LEN(fields); f++)
        for (size_t a = 0; a < RG_LEN(apis); a++)
            for (size_t v = 0; v < RG_LEN(values); v++)
                if (fields[f].where >> a & 1 && !(v % 7 && test_scale(10) < 2))
                    ask(&apis[a], fields[f].name, values[v], true, v % 5 ? 1 : 2);
    for (size_t a = 0; a < RG_LEN(apis); a++)
        for (size_t v = 0; v < RG_LEN(no_values); v++)
            ask(&apis[a], "temperature", no_values[v], false, 2);
    print_message("%d requests\n", n_asked);
    assert_true(n_asked > (test_scale(10) < 2 ? 200 : 2000));
}

/* Refused, by this name. */
static void refused(const char *path, const char *body, const char *param)
{
    json_t *v = test_web_json(t.port, path, body, 400);
    const char *is = json_string_value(json_object_get(json_object_get(v, "error"), "param"));

    if (param && (!is || strcmp(is, param) != 0))
        fail_msg("%.200s: refused by the name of %s, not %s", body, is ? is : "nothing", param);
    json_decref(v);
}

static void lists_are_checked(void **state)
{
    static const char *const bodies[][2] = {
        { "\"stop\":[\"\"]", "stop" },
        { "\"stop\":[1]", "stop" },
        { "\"stop\":\"a\\u0000b\"", "stop" },
        { "\"stop_token_ids\":[4096]", "stop_token_ids" },
        { "\"logit_bias\":{\"4096\":1}", "logit_bias" },
        { "\"structured_outputs\":{\"regex\":\"a\",\"choice\":[\"b\"]}", "structured_outputs" },
        { "\"stop_token_ids\":[-1]", "stop_token_ids" },
        { "\"stop_token_ids\":[9007199254740993]", "stop_token_ids" },
        { "\"logit_bias\":{\"x\":1}", "logit_bias" },
        { "\"logit_bias\":{\"1\":101}", "logit_bias" },
        { "\"logit_bias\":{\"1\":\"1\"}", "logit_bias" },
        { "\"logit_bias\":{\"-1\":1}", "logit_bias" },
        { "\"response_format\":{\"type\":\"xml\"}", "response_format" },
        { "\"stream_options\":{}", "stream_options" },
        { "\"n\":129", "n" },
        { "\"temperature\":-0.1", "temperature" },
        { "\"top_p\":1.1", "top_p" },
        { "\"presence_penalty\":2.5", "presence_penalty" },
        { "\"n\":3,\"best_of\":2", "best_of" },
        { "\"stream\":true,\"best_of\":2", "best_of" },
        { "\"best_of\":129", "best_of" },
        { "\"early_stopping\":\"soon\"", "early_stopping" },
        { "\"length_penalty\":11", "length_penalty" },
        { "\"use_beam_search\":true,\"prompt_logprobs\":0", "use_beam_search" },
        { "\"use_beam_search\":1", "use_beam_search" },
        { "\"suffix\":\"x\"", "suffix" },
        { "\"stream\":true,\"use_beam_search\":true", "use_beam_search" },
        { "\"stream\":true,\"prompt_logprobs\":0", "prompt_logprobs" },
        { "\"prompt_logprobs\":21", "prompt_logprobs" },
        { "\"prompt_logprobs\":-1", "prompt_logprobs" },
    };
    char body[1000];

    (void)state;
    for (size_t i = 0; i < RG_LEN(bodies); i++) {
        snprintf(body, sizeof body, "{\"prompt\":\"a\",\"max_tokens\":1,%s}", bodies[i][0]);
        refused("/v1/completions", body, bodies[i][1]);
    }
    refused("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":0}", "max_tokens"); /* for want of anything to give */
    refused("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":0,\"logprobs\":1}", "max_tokens");
    refused("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":0,\"echo\":true}", "max_tokens");
    refused("/v1/completions", "{\"prompt\":[]}", "prompt");
    refused("/v1/completions", "{\"prompt\":\"\",\"add_special_tokens\":false}", "prompt");
    refused("/v1/completions", "{\"prompt\":[-1]}", "prompt");
    refused("/v1/completions", "{\"prompt\":[4096]}", "prompt");
    refused("/v1/completions", "{\"prompt\":[9007199254740993]}", "prompt");
    refused("/v1/completions", "{\"prompt\":[1.5]}", "prompt");
    refused("/v1/completions", "{\"prompt\":[1,\"a\"]}", "prompt");
    refused("/v1/completions", "{\"prompt\":[\"a\",[1]]}", "prompt");
    refused("/v1/completions", "{\"prompt\":\"a\",\"prompt\":\"b\"}", NULL);
    refused("/v1/completions", "[1]", NULL);
    refused("/v1/completions", "{}", "prompt");
    refused("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content");
    refused("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}",
            "messages[0].content");
    refused("/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{}]}",
            "tools[0].type");
    refused("/v1/chat/completions",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"verbosity\":\"low|medium\"}", "verbosity");
    refused("/v1/responses", "{\"input\":\"a\",\"previous_response_id\":\"x\"}", "previous_response_id");
    refused("/v1/responses", "{\"input\":\"a\",\"text\":{\"verbosity\":\"terse\"}}", "text.verbosity");
    refused("/v1/responses", "{\"input\":\"a\",\"reasoning\":{\"effort\":\"most\"}}", "reasoning.effort");
    refused("/v1/responses", "{\"input\":\"a\",\"include\":[\"file_search_call.results\"]}", "include");
    refused("/v1/responses", "{\"input\":\"a\",\"top_logprobs\":2}", "top_logprobs");
    refused("/v1/responses", "{\"input\":[{\"role\":\"king\",\"content\":\"a\"}]}", "input[0].role");
}

/* Every value of fields.def that asks for nothing is accepted, and null; another value of a field that is not supported
 * is refused by its name. */
static void what_asks_for_nothing_is_accepted(void **state)
{
    enum { INT, LIMIT, NUM, BOOL, STR, WORD, OFF, ANY, OWN };
    static const struct {
        const char *name;
        unsigned where;
        int kind;
        const char *words;
    } fields[] = {
#define FIELD(name, where, kind, member, min, max, words) { #name, where, kind, words },
#include "server/api/fields.def"
#undef FIELD
    };
    int n_idle = 0, n_off = 0;
    char body[1000];

    (void)state;
    for (size_t f = 0; f < RG_LEN(fields); f++)
        for (size_t a = 0; a < RG_LEN(apis); a++) {
            bool here = fields[f].where >> a & 1 && strcmp(fields[f].name, apis[a].own) != 0;
            for (const char *w = fields[f].kind == WORD || !here ? NULL : fields[f].words; w && *w;) {
                size_t n = strcspn(w, "|");
                snprintf(body, sizeof body, "{%s,\"max_tokens\":1,\"%s\":%.*s}", apis[a].must, fields[f].name, (int)n,
                         w);
                if (test_web_status(t.port, apis[a].path, body) != 200)
                    fail_msg("%s %s: refused", apis[a].path, body);
                w += n + (w[n] == '|');
                n_idle++;
            }
            if (!here || fields[f].kind != OFF)
                continue;
            snprintf(body, sizeof body, "{%s,\"max_tokens\":1,\"%s\":[\"ridge\"]}", apis[a].must, fields[f].name);
            refused(apis[a].path, body, strcmp(apis[a].path, "/v1/messages") ? fields[f].name : NULL);
            snprintf(body, sizeof body, "{%s,\"max_tokens\":1,\"%s\":null}", apis[a].must, fields[f].name);
            assert_int_equal(test_web_status(t.port, apis[a].path, body), 200);
            n_off++;
        }
    assert_true(n_idle > 200 && n_off > 200);
}

/* 5.0 and 1e1 are integers wherever one is taken; 1.5 is none. */
static void whole_numbers_may_have_a_point(void **state)
{
    static const char *const bodies[] = {
        "\"max_tokens\":2.0",
        "\"max_tokens\":1e0,\"n\":2.0,\"seed\":7.0",
        "\"max_tokens\":1,\"logprobs\":1.0",
        "\"max_tokens\":1,\"top_k\":-1.0",
        "\"max_tokens\":-1.0,\"stop_token_ids\":[1.0]",
        "\"n_predict\":1.0",
        "\"max_tokens\":1,\"logit_bias\":[[5.0,1]]",
        "\"max_tokens\":1,\"seed\":-1.0",
    };
    char body[200];

    (void)state;
    for (size_t i = 0; i < RG_LEN(bodies); i++) {
        snprintf(body, sizeof body, "{\"prompt\":[3.0,4],%s}", bodies[i]);
        json_decref(test_web_json(t.port, "/v1/completions", body, 200));
    }
    refused("/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1.5}", "max_tokens");
    refused("/v1/completions", "{\"prompt\":\"a\",\"stop_token_ids\":[1.5]}", "stop_token_ids");
    json_decref(test_web_json(t.port, "/v1/messages",
                              "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":1.0,"
                              "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024.0}}",
                              200));
}

/* The text of a completion of 12 ids, and what the last part of its body asks for. */
static void answer_of(const char *more, char *to, size_t room)
{
    char body[300];
    json_t *v;

    snprintf(body, sizeof body, "{\"prompt\":\"Once\",\"max_tokens\":12,\"ignore_eos\":true%s}", more);
    v = test_web_json(t.port, "/v1/completions", body, 200);
    snprintf(to, room, "%s",
             json_string_value(json_object_get(json_array_get(json_object_get(v, "choices"), 0), "text")));
    json_decref(v);
}

/* -1 draws a seed; names that other servers have for a parameter set it. */
static void seeds_and_other_names_count(void **state)
{
    char first[1000], next[1000];
    bool differ = false;

    (void)state;
    answer_of(",\"temperature\":3,\"seed\":-1", first, sizeof first);
    for (int i = 0; i < 8 && !differ; i++) {
        answer_of(",\"temperature\":3,\"seed\":-1", next, sizeof next);
        differ = strcmp(first, next) != 0;
    }
    assert_true(differ);
    answer_of(",\"temperature\":3,\"seed\":7", first, sizeof first);
    answer_of(",\"temperature\":3,\"sampler_seed\":7", next, sizeof next);
    assert_string_equal(first, next);
    answer_of(",\"temperature\":0,\"stop\":\" \"", first, sizeof first);
    answer_of(",\"temperature\":0,\"stopping_strings\":[\" \"]", next, sizeof next);
    assert_string_equal(first, next);
    answer_of(",\"regex\":\"[0-9]{3}\"", next, sizeof next);
    assert_int_equal(strspn(next, "0123456789"), 3);
    answer_of(",\"logit_bias\":[[70,100]]", first, sizeof first);
    answer_of(",\"logit_bias\":{\"70\":100}", next, sizeof next);
    assert_string_equal(first, next);
}

static char *repeat(const char *head, const char *what, int n, const char *tail)
{
    size_t k = strlen(what);
    char *s = malloc(strlen(head) + k * (size_t)n + strlen(tail) + 1), *p = s;

    assert_non_null(s);
    p = stpcpy(p, head);
    for (int i = 0; i < n; i++, p += k)
        memcpy(p, what, k);
    strcpy(p, tail);
    return s;
}

/* Prompts around the context's end; depth, width and size. */
static void sizes_are_bounded(void **state)
{
    static const struct {
        const char *head, *what, *tail;
        int n, status;
    } cases[] = {
        { "{\"max_tokens\":1,\"prompt\":[1", ",1", "]}", 61, 200 },
        { "{\"max_tokens\":1,\"prompt\":[1", ",1", "]}", 62, 200 },
        { "{\"max_tokens\":1,\"prompt\":[1", ",1", "]}", 63, 400 },
        { "{\"max_tokens\":1,\"prompt\":[1", ",1", "]}", 64, 400 },
        { "{\"max_tokens\":0,\"prompt_logprobs\":20,\"prompt\":[1", ",1", "]}", 63, 200 },
        { "{\"max_tokens\":0,\"prompt_logprobs\":20,\"prompt\":[1", ",1", "]}", 64, 400 },
        { "{\"prompt\":\"", "aaaaaaaaaaaaaaaa", "\"}", 60000, 400 },
        { "{\"prompt\":", "[", "]}", 100000, 400 },
        { "", "{\"a\":", "1", 100000, 400 },
        { "{\"prompt\":[0", ",0", "]}", 3000000, 400 },
        { "{\"prompt\":[0", ",0", "]}", 1500000, 400 },
        { "{\"max_tokens\":1,\"prompt\":\"a\"", ",\"x\":1", "}", 2, 400 },
        { "{\"prompt\":\"a\",\"stop\":[\"a\"", ",\"a\"", "]}", 100000, 400 },
        { "{\"prompt\":\"a\",\"stop\":\"", "aaaaaaaaaa", "\"}", 100000, 400 },
        { "{\"prompt\":[\"a\"", ",\"a\"", "],\"max_tokens\":1}", 3000, 400 },
        { "{\"prompt\":\"a\",\"tools\":[1", ",1", "]}", 1000, 200 },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        char *body = repeat(cases[i].head, cases[i].what, cases[i].n, cases[i].tail);
        int status = test_web_status(t.port, "/v1/completions", body);
        if (status != cases[i].status)
            fail_msg("case %zu (%.40s): %d, not %d", i, body, status, cases[i].status);
        free(body);
    }
    /* no limit and no end: the context is one */
    json_t *v = test_web_json(t.port, "/v1/chat/completions",
                              "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"ignore_eos\":true}", 200);
    json_t *u = json_object_get(v, "usage");
    assert_int_equal(json_integer_value(json_object_get(u, "total_tokens")), 64);
    json_decref(v);
    json_t *many = json_object();
    for (int i = 0; i < 100000; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        json_object_set_new(many, key, json_integer(i));
    }
    json_object_set_new(many, "prompt", json_string("a"));
    json_object_set_new(many, "max_tokens", json_integer(1));
    char *body = rg_json_dump(many, JSON_COMPACT);
    assert_int_equal(test_web_status(t.port, "/v1/completions", body), 200); /* fields that nobody knows */
    rg_free(body);
    json_decref(many);
}

/* Lists that are longer than anybody needs are refused by name. */
static void long_lists_are_named(void **state)
{
    json_t *v = json_object(), *bias = json_object();

    (void)state;
    for (int i = 0; i < 100000; i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", i);
        json_object_set_new(bias, key, json_integer(i % 100));
    }
    json_object_set_new(v, "prompt", json_string("a"));
    json_object_set_new(v, "logit_bias", bias);
    char *body = rg_json_dump(v, JSON_COMPACT);
    refused("/v1/completions", body, "logit_bias");
    rg_free(body);
    json_decref(v);
    static const char tool[] = ",{\"type\":\"function\",\"function\":{\"name\":\"f\"}}";
    char *tools = repeat("{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[1", tool, 100000, "]}");
    refused("/v1/chat/completions", tools, "tools");
    free(tools);
    char *ids = repeat("{\"prompt\":[1", ",1", 64, "]}");
    v = test_web_json(t.port, "/v1/completions", ids, 400);
    assert_string_equal(json_string_value(json_object_get(json_object_get(v, "error"), "code")),
                        "context_length_exceeded");
    json_decref(v);
    free(ids);
}

static void nothing_is_left(void **state)
{
    (void)state;
    test_server_quiet(&t);
    rg_engine_check(t.engine);
    json_decref(test_web_json(t.port, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2}", 200));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_with_every_value),
        cmocka_unit_test(lists_are_checked),
        cmocka_unit_test(what_asks_for_nothing_is_accepted),
        cmocka_unit_test(whole_numbers_may_have_a_point),
        cmocka_unit_test(seeds_and_other_names_count),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(long_lists_are_named),
        cmocka_unit_test(nothing_is_left),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
