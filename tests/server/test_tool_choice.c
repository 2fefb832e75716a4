/* test_tool_choice.c -- an answer that has to call a tool calls one, in the way of the model's template, with arguments
 * that its schema allows: the forms of families, then whatever a small model at a high temperature says under each of them. */
#define _GNU_SOURCE 1
#include "base/json.h"
#include "server/live.h"

#include "server/core.h"

static test_server t;

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    test_server_start(&t, &o, 1024, 16);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

/* ---- forms ------------------------------------------------------------------------------------------------------- */

#define PROBE "ridge_probe"
#define OPEN "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>"
#define SEP "<｜tool▁sep｜>"
#define CLOSE "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"

/* How families of templates write a call, and what an answer that is one begins with. */
static const struct {
    const char *family, *rendered, *begins;
} families[] = {
    { "hermes", "<tool_call>{\"name\": \"" PROBE "\"}</tool_call>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"" PROBE
      "\", \"arguments\": {\"ridge_key\": 7}}\n</tool_call><|im_end|>\n",
      "<" },
    { "llama",
      "<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"" PROBE "\", \"parameters\": {\"ridge_key\": "
      "7}}<|eot_id|>",
      "{" },
    { "mistral",
      "[AVAILABLE_TOOLS] [{\"name\": \"" PROBE
      "\"}][/AVAILABLE_TOOLS][INST] Hello[/INST][TOOL_CALLS] [{\"name\": \"" PROBE
      "\", \"arguments\": {\"ridge_key\": 7}, \"id\": \"ridge0001\"}]</s>",
      "[" },
    { "mistral, later", "[INST]Hello[/INST][TOOL_CALLS]" PROBE "[ARGS]{\"ridge_key\": 7}</s>", "[" },
    { "qwen coder",
      "<|im_start|>assistant\n<tool_call>\n<function=" PROBE
      ">\n<parameter=ridge_key>\n7\n</parameter>\n</function>\n</tool_call><|im_end|>",
      "<" },
    { "deepseek", OPEN "function" SEP PROBE "\n```json\n{\"ridge_key\": 7}\n```" CLOSE, "<" },
    { "deepseek, later", OPEN PROBE SEP "{\"ridge_key\": 7}" CLOSE, "<" },
    { "phi",
      "<|assistant|><|tool_call|>[{\"name\": \"" PROBE "\", \"arguments\": {\"ridge_key\": 7}}]<|/tool_call|><|end|>",
      "<" },
    { "function tags", "<function=" PROBE ">{\"ridge_key\": 7}</function><|eom_id|>", "<" },
    { "gemma4", "<|turn>model\n<|tool_call>call:" PROBE "{ridge_key:7}<tool_call|>", "<" },
    { "glm", "<tool_call>" PROBE "\n<arg_key>ridge_key</arg_key>\n<arg_value>7</arg_value>\n</tool_call>", "<" },
    { "minimax", "<minimax:tool_call>\n<invoke name=\"" PROBE "\">", "<" },
    { "kimi",
      "<|tool_calls_section_begin|><|tool_call_begin|>functions." PROBE
      ":0<|tool_call_argument_begin|>{}<|tool_call_end|>",
      "<" },
    { "lfm2", "<|tool_call_start|>[" PROBE "(ridge_key=7)]<|tool_call_end|>", "<" },
    { "pythonic", "<|header_start|>assistant<|header_end|>\n\n[" PROBE "(ridge_key=7)]", "[" },
    { "command",
      "<|START_ACTION|>[{\"tool_call_id\": \"0\", \"tool_name\": \"" PROBE "\", \"parameters\": {}}]<|END_ACTION|>",
      "<" },
    { "apertus", "<|tools_prefix|>[{\"" PROBE "\": {}}]<|tools_suffix|>", "<" },
    { "dsml", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"" PROBE "\">", "<" },
    { "kimi k3",
      "<|open|>message role=\"assistant\"<|sep|><|open|>tools<|sep|><|open|>call tool=\"" PROBE "\" index=\"1\"<|sep|>",
      "<" },
    { "harmony", "<|channel|>commentary to=functions." PROBE " <|constrain|>json<|message|>{}<|call|>", "<" },
    { "functionary", ">>>" PROBE "\n{}", "" },
    { "solar", "<|tool_call:begin|>abc<|tool_call:name|>" PROBE "<|tool_call:args|>{}<|tool_call:end|>", "<" },
    { "no calls", "user: Hello\nassistant: ", "{" },
    { "unknown", "<<CALL " PROBE " ridge_key=7>>", "{" },
};

/* ---- answers ----------------------------------------------------------------------------------------------------- */

#define PARAMETERS "{\"type\":\"object\",\"properties\":{\"town\":{\"$ref\":\"#/$defs/town\"},\"days\":{\"type\":\"integer\"," \
                   "\"minimum\":1,\"maximum\":7},\"id\":{\"type\":\"string\",\"pattern\":\"^[0-9]{3}$\"}," \
                   "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"maxItems\":2}},\"required\":[\"town\",\"id\"]," \
                   "\"$defs\":{\"town\":{\"enum\":[\"Oslo\",\"Rome\"]}}}"
#define TOOLS "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":" PARAMETERS "}}," \
              "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]"
#define ASK "\"messages\":[{\"role\":\"user\",\"content\":\"Is it raining?\"}],\"max_tokens\":700"

static void check_arguments(const char *name, json_t *v, const char *text)
{
    const char *key;
    json_t *member;

    if (!json_is_object(v))
        fail_msg("%s: %s", name, text);
    if (!strcmp(name, "stop")) {
        assert_int_equal(json_object_size(v), 0);
        return;
    }
    assert_string_equal(name, "weather");
    assert_non_null(json_object_get(v, "town"));
    assert_non_null(json_object_get(v, "id"));
    json_object_foreach(v, key, member) {
        const char *s = json_string_value(member);
        bool ok = false;
        if (!strcmp(key, "town"))
            ok = s && (!strcmp(s, "Oslo") || !strcmp(s, "Rome"));
        else if (!strcmp(key, "days"))
            ok = json_is_integer(member) && json_integer_value(member) >= 1 && json_integer_value(member) <= 7;
        else if (!strcmp(key, "id"))
            ok = s && strlen(s) == 3 && strspn(s, "0123456789") == 3;
        else if (!strcmp(key, "tags"))
            ok = json_is_array(member) && json_array_size(member) <= 2;
        if (!ok)
            fail_msg("%s in %s", key, text);
    }
}

static void check_call(const char *name, const char *arguments, const char *only)
{
    json_t *v = json_loads(arguments, JSON_REJECT_DUPLICATES, NULL);

    if (only)
        assert_string_equal(name, only);
    check_arguments(name, v, arguments);
    json_decref(v);
}

/* The tokens ended within the last call. */
static bool was_cut(const json_t *choice)
{
    return !strcmp(json_string_value(json_object_get(choice, "finish_reason")), "length");
}

/* The calls of a chat answer; it has nothing else. */
static int check_chat(const char *more, const char *only, int seed)
{
    char body[4096];
    json_t *r, *choice, *message;
    int n;

    snprintf(body, sizeof body, "{" ASK "," TOOLS ",%s,\"seed\":%d,\"temperature\":1.5}", more, seed);
    r = test_web_json(t.port, "/v1/chat/completions", body, 200);
    choice = json_array_get(json_object_get(r, "choices"), 0);
    message = json_object_get(choice, "message");
    n = (int)json_array_size(json_object_get(message, "tool_calls"));
    if (!n)
        fail_msg("no call in %s", rg_json_dump(r, 0));
    if (!json_is_null(json_object_get(message, "content")))
        fail_msg("%s: text beside calls: %s", t.s->first->use.talk->name, rg_json_dump(r, 0));
    for (int i = 0; i < n - was_cut(choice); i++) {
        json_t *f = json_object_get(json_array_get(json_object_get(message, "tool_calls"), (size_t)i), "function");
        check_call(json_string_value(json_object_get(f, "name")), json_string_value(json_object_get(f, "arguments")), only);
    }
    json_decref(r);
    return n;
}

static void whatever_it_says_is_a_call(void **state)
{
    rg_talk_use own = t.s->first->use;
    bool several = false;

    (void)state;
    for (size_t i = 0; i < RG_LEN(families); i++) {
        rg_talk_learn_from(&t.s->first->use, families[i].rendered);
        for (int seed = 0; seed < 4; seed++) {
            several |= check_chat("\"tool_choice\":\"required\"", NULL, seed) > 1;
            assert_int_equal(check_chat("\"tool_choice\":\"required\",\"parallel_tool_calls\":false", NULL, seed), 1);
            assert_int_equal(check_chat("\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"weather\"}}",
                                        "weather", seed), 1);
        }
    }
    assert_true(several);
    t.s->first->use = own;
    check_chat("\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"required\",\"tools\":["
               "{\"type\":\"function\",\"function\":{\"name\":\"stop\"}}]}}", "stop", 1);
}

static void other_apis_ask_too(void **state)
{
    json_t *r, *item;

    (void)state;
    r = test_web_json(t.port, "/v1/responses", "{\"input\":\"Rain?\",\"max_output_tokens\":700,\"tools\":[{\"type\":\"function\","
                      "\"name\":\"weather\",\"parameters\":" PARAMETERS "}],\"tool_choice\":{\"type\":\"function\",\"name\":"
                      "\"weather\"}}", 200);
    item = json_array_get(json_object_get(r, "output"), 0);
    assert_string_equal(json_string_value(json_object_get(item, "type")), "function_call");
    check_call("weather", json_string_value(json_object_get(item, "arguments")), NULL);
    json_decref(r);
    for (int i = 0; i < 2; i++) {
        r = test_web_json(t.port, "/v1/messages", i ? "{" ASK ",\"tools\":[{\"name\":\"weather\",\"input_schema\":" PARAMETERS
                          "}],\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}}"
                          : "{" ASK ",\"tools\":[{\"name\":\"weather\",\"input_schema\":" PARAMETERS
                          "}],\"tool_choice\":{\"type\":\"tool\",\"name\":\"weather\"}}", 200);
        item = json_array_get(json_object_get(r, "content"), 0);
        assert_string_equal(json_string_value(json_object_get(item, "type")), "tool_use");
        check_arguments("weather", json_object_get(item, "input"), "");
        assert_string_equal(json_string_value(json_object_get(r, "stop_reason")), "tool_use");
        assert_int_equal(json_array_size(json_object_get(r, "content")), 1);
        json_decref(r);
    }
}

static void what_cannot_be_is_named(void **state)
{
    static const struct {
        const char *choice, *tool, *says;
    } cases[] = {
        { "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", NULL, "no 'tools'" },
        { "\"sometimes\"", "{}", "none|auto|required" },
        { "{\"type\":\"function\"}", "{}", "name a tool" },
        { "{\"type\":\"function\",\"function\":{\"name\":\"other\"}}", "{}", "not in 'tools'" },
        { "{\"type\":\"custom\"}", "{}", "custom" },
        { "{\"type\":\"allowed_tools\",\"mode\":\"never\",\"tools\":[]}", "{}", "allowed_tools" },
        { "\"required\"", "{\"properties\":{\"a\":{\"extends\":{}}}}", "'extends'" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        char body[1024], tools[512] = "";
        if (cases[i].tool)
            snprintf(tools, sizeof tools, ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":%s}}]",
                     cases[i].tool);
        snprintf(body, sizeof body, "{" ASK ",\"tool_choice\":%s%s}", cases[i].choice, tools);
        json_t *r = test_web_json(t.port, "/v1/chat/completions", body, 400), *e = json_object_get(r, "error");
        assert_string_equal(json_string_value(json_object_get(e, "param")), "tool_choice");
        if (!strstr(json_string_value(json_object_get(e, "message")), cases[i].says))
            fail_msg("%s: %s", body, json_string_value(json_object_get(e, "message")));
        json_decref(r);
    }
}

/* ---- a call, or an answer of a schema ---------------------------------------------------------------------------- */

#define SCHEMA "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":9}}," \
               "\"required\":[\"x\"],\"additionalProperties\":false}"
#define FORMAT "{\"type\":\"json_schema\",\"schema\":" SCHEMA ",\"name\":\"o\"," \
               "\"json_schema\":{\"name\":\"o\",\"schema\":" SCHEMA "}}"

static void check_schema(const char *text)
{
    json_t *v = json_loads(text ? text : "", JSON_REJECT_DUPLICATES, NULL), *x = json_object_get(v, "x");

    if (json_object_size(v) != 1 || !json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > 9)
        fail_msg("not of the schema: %s", text ? text : "nothing");
    json_decref(v);
}

/* A bias that makes the first id of a text likelier by so much, as a member of a body. */
static void bias_to(const char *text, int by, char to[64])
{
    int32_t *ids;
    size_t n;

    assert_true(rg_encode(t.engine, text, 1, RG_ENCODE_NO_SPECIAL, &ids, &n, NULL) && n == 1);
    snprintf(to, 64, "\"logit_bias\":{\"%d\":%d}", ids[0], by);
    rg_ids_free(ids);
}

/* An answer of chat is calls and nothing else, or JSON of the schema and nothing else.  Returns the calls. */
static int check_either(const char *more)
{
    char body[6000];

    snprintf(body, sizeof body, "{" ASK "," TOOLS ",\"temperature\":1.5,\"response_format\":" FORMAT ",%s}", more);
    json_t *r = test_web_json(t.port, "/v1/chat/completions", body, 200);
    json_t *choice = json_array_get(json_object_get(r, "choices"), 0), *message = json_object_get(choice, "message");
    json_t *calls = json_object_get(message, "tool_calls");
    int n = (int)json_array_size(calls);
    if (!was_cut(choice))
        assert_string_equal(json_string_value(json_object_get(choice, "finish_reason")), n ? "tool_calls" : "stop");
    for (int i = 0; i < n - was_cut(choice); i++) {
        json_t *f = json_object_get(json_array_get(calls, (size_t)i), "function");
        check_call(json_string_value(json_object_get(f, "name")), json_string_value(json_object_get(f, "arguments")), NULL);
    }
    if (n)
        assert_true(json_is_null(json_object_get(message, "content")));
    else
        check_schema(json_string_value(json_object_get(message, "content")));
    json_decref(r);
    return n;
}

static void tools_and_a_schema_give_either(void **state)
{
    rg_talk_use own = t.s->first->use;
    char bias[64], more[128];

    (void)state;
    for (size_t i = 0; i < RG_LEN(families); i++) {
        rg_talk_learn_from(&t.s->first->use, families[i].rendered);
        bool bare = rg_talk_is_bare(&t.s->first->use);
        if (!*families[i].begins)
            continue;
        for (int seed = 0; seed < 3; seed++) {
            bias_to(families[i].begins, 60, bias);
            snprintf(more, sizeof more, "\"seed\":%d,%s", seed, bias);
            if (!check_either(more) && !bare)
                fail_msg("%s: no call", families[i].family);
            snprintf(more, sizeof more, "\"seed\":%d,\"parallel_tool_calls\":false,%s", seed, bias);
            assert_true(check_either(more) <= 1);
            bias_to(families[i].begins, -100, bias);
            snprintf(more, sizeof more, "\"seed\":%d,%s", seed, bias);
            if (!bare)
                assert_int_equal(check_either(more), 0);
        }
    }
    t.s->first->use = own;
}

/* The other APIs, and streams of all three: what comes is a call, or what is not one. */
static void either_comes_in_every_api(void **state)
{
    static const struct {
        const char *path, *body, *call;
    } apis[] = {
        { "/v1/chat/completions", "{" ASK "," TOOLS ",\"response_format\":" FORMAT ",%s%s}", "\"tool_calls\"" },
        { "/v1/responses", "{\"input\":\"Rain?\",\"max_output_tokens\":700,\"tools\":[{\"type\":\"function\",\"name\":\"weather\","
          "\"parameters\":" PARAMETERS "}],\"text\":{\"format\":" FORMAT "},%s%s}", "\"function_call\"" },
        { "/v1/messages", "{" ASK ",\"tools\":[{\"name\":\"weather\",\"input_schema\":" PARAMETERS "}],"
          "\"output_config\":{\"format\":" FORMAT "},%s%s}", "\"tool_use\"" },
    };
    rg_talk_use own = t.s->first->use;
    char body[6000], bias[64];

    (void)state;
    rg_talk_learn_from(&t.s->first->use, families[0].rendered);
    for (size_t i = 0; i < RG_LEN(apis); i++)
        for (int k = 0; k < 4; k++) {
            bool call = k & 1;
            bias_to("<", call ? 60 : -100, bias);
            snprintf(body, sizeof body, apis[i].body, bias, k & 2 ? ",\"stream\":true" : "");
            test_reply r = test_web_ask(t.port, "POST", apis[i].path, NULL, body);
            assert_int_equal(r.status, 200);
            if ((strstr(r.body, apis[i].call) != NULL) != call || strstr(r.body, "tool_call>"))
                fail_msg("%s: %s", body, r.body);
            test_reply_free(&r);
        }
    t.s->first->use = own;
}

/* Cut after each number of ids: a call that is cut is a call, and never text. */
static void a_cut_call_is_no_text(void **state)
{
    rg_talk_use own = t.s->first->use;
    char body[6000], bias[64];

    (void)state;
    rg_talk_learn_from(&t.s->first->use, families[0].rendered);
    bias_to("<", 60, bias);
    for (int n = 1; n < 40; n += 3) {
        snprintf(body, sizeof body, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":%d," TOOLS
                 ",\"response_format\":" FORMAT ",%s}", n, bias);
        json_t *r = test_web_json(t.port, "/v1/chat/completions", body, 200);
        json_t *choice = json_array_get(json_object_get(r, "choices"), 0), *message = json_object_get(choice, "message");
        const char *content = json_string_value(json_object_get(message, "content"));
        if (content && *content)
            fail_msg("after %d ids: %s", n, content);
        json_decref(r);
    }
    t.s->first->use = own;
}

static void nothing_is_left(void **state)
{
    (void)state;
    test_server_quiet(&t);
    rg_engine_check(t.engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_it_says_is_a_call),
        cmocka_unit_test(other_apis_ask_too),
        cmocka_unit_test(what_cannot_be_is_named),
        cmocka_unit_test(tools_and_a_schema_give_either),
        cmocka_unit_test(either_comes_in_every_api),
        cmocka_unit_test(a_cut_call_is_no_text),
        cmocka_unit_test(nothing_is_left),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
