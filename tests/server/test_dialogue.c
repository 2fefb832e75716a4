/* test_dialogue.c -- what an answer goes on from (a message that is continued, what was thought before) and what it is
 * bound to (a schema after the reasoning, a call that is cut).
 *
 * Two servers: the shipped model, and the same weights with a template that opens the model's reasoning. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <sys/stat.h>

#include "server/core.h"

static const char thinking_template[] =
    "{{- bos_token -}}{%- for m in messages -%}<|{{ 'assistant' if m.role == 'assistant' else 'user' }}|>"
    "{%- if m.reasoning_content -%}<think>{{ m.reasoning_content }}</think>{%- endif -%}{{ m.content }}"
    "{%- for c in m.tool_calls or [] -%}<tool_call>{{ {'name': c.function.name, 'arguments': c.function.arguments} | "
    "tojson }}</tool_call>{%- endfor -%}<|end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|><think>\n{%- endif -%}";

static test_server plain, thinks;
static char folder[600];

static void write_thinking_model(void)
{
    static const char *const files[] = { "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                                         "tokenizer_config.json" };
    char path[700], from[700];

    snprintf(folder, sizeof folder, "%s/thinking_model", RG_BUILD_DIR);
    mkdir(folder, 0777);
    for (size_t i = 0; i < RG_LEN(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        snprintf(from, sizeof from, "%s/models/tales-1m/%s", RG_SOURCE_DIR, files[i]);
        unlink(path);
        assert_int_equal(symlink(from, path), 0);
    }
    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(thinking_template, 1, sizeof thinking_template - 1, f), sizeof thinking_template - 1);
    fclose(f);
}

static int setup(void **state)
{
    rg_server_options o = test_server_options();
    rg_options e = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    test_server_start(&plain, &o, 512, 16);
    write_thinking_model();
    e.recipe = "fast";
    e.max_seq_len = 512;
    e.n_threads = 1;
    e.kv_bytes = (size_t)64 << 20;
    rg_engine *engine = rg_open(folder, &e, &err);
    assert_ok(engine, err);
    test_server_start_with(&thinks, &o, engine);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&plain);
    test_server_stop(&thinks);
    return 0;
}

static long long int_at(const json_t *v, const char *path)
{
    if (!json_is_integer(test_json_at(v, path)))
        fail_msg("no integer at %s in %s", path, json_dumps(v, 0));
    return json_integer_value(test_json_at(v, path));
}

static json_t *ask(const test_server *t, const char *path, const char *body)
{
    return test_web_json(t->port, path, body, 200);
}

static void refused(const test_server *t, const char *path, const char *body, const char *says)
{
    json_t *v = test_web_json(t->port, path, body, 400);

    if (!strstr(test_json_text(v, "error.message"), says))
        fail_msg("%s: %s", body, test_json_text(v, "error.message"));
    json_decref(v);
}

/* ---- a message that is continued --------------------------------------------------------------------------------- */

#define ASKS "{\"role\":\"user\",\"content\":\"Tell me a story.\"}"
#define BEGINS "{\"role\":\"assistant\",\"content\":\"Once upon a time there was\"}"
#define OPEN "<|endoftext|><|user|>Tell me a story.<|end|><|assistant|>Once upon a time there was"

static void expect_prompt(const test_server *t, const char *body, const char *want)
{
    json_t *v = ask(t, "/apply-template", body);

    assert_string_equal(test_json_text(v, "prompt"), want);
    json_decref(v);
}

static void a_last_message_is_continued(void **state)
{
    static const char raw[] = "{\"prompt\":\"" OPEN "\",\"add_special_tokens\":false,\"max_tokens\":12,\"temperature\":0}";
    json_t *want = ask(&plain, "/v1/completions", raw);
    json_t *chat = ask(&plain, "/v1/chat/completions", "{\"messages\":[" ASKS "," BEGINS "],\"continue_final_message\":"
                       "true,\"add_generation_prompt\":false,\"max_tokens\":12,\"temperature\":0}");
    json_t *message = ask(&plain, "/v1/messages", "{\"messages\":[" ASKS "," BEGINS "],\"max_tokens\":12,"
                          "\"temperature\":0}");
    json_t *count = ask(&plain, "/v1/messages/count_tokens", "{\"messages\":[" ASKS "," BEGINS "]}");

    (void)state;
    expect_prompt(&plain, "{\"messages\":[" ASKS "," BEGINS "],\"continue_final_message\":true}", OPEN);
    assert_string_equal(test_json_text(chat, "choices.0.message.content"), test_json_text(want, "choices.0.text"));
    assert_string_equal(test_json_text(message, "content.0.text"), test_json_text(want, "choices.0.text"));
    assert_int_equal(int_at(chat, "usage.prompt_tokens"), int_at(want, "usage.prompt_tokens"));
    assert_int_equal(int_at(count, "input_tokens"), int_at(want, "usage.prompt_tokens"));
    json_decref(want);
    json_decref(chat);
    json_decref(message);
    json_decref(count);
}

/* Not asked to, chat closes it and begins another, as vLLM does; where a template trims, blanks at the end go. */
static void continuing_has_rules(void **state)
{
    (void)state;
    expect_prompt(&plain, "{\"messages\":[" ASKS "," BEGINS "]}", OPEN "<|end|><|assistant|>");
    expect_prompt(&plain, "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":\"Once upon a time there was \\n\"}"
                  "],\"continue_final_message\":true}", OPEN);
    expect_prompt(&thinks, "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":\"<|end|> \"}],"
                  "\"continue_final_message\":true}", "<|endoftext|><|user|>Tell me a story.<|end|><|assistant|><|end|> ");
    refused(&plain, "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}",
            "template does not take");
    refused(&plain, "/v1/chat/completions", "{\"messages\":[" ASKS "],\"continue_final_message\":true}", "last message");
    refused(&plain, "/v1/chat/completions", "{\"messages\":[" ASKS "," BEGINS "],\"continue_final_message\":true,"
            "\"add_generation_prompt\":true}", "cannot both");
    refused(&plain, "/v1/chat/completions", "{\"messages\":[" ASKS "," BEGINS "],\"continue_final_message\":1}",
            "true or false");
    refused(&plain, "/v1/messages", "{\"messages\":[" ASKS "," BEGINS "],\"max_tokens\":9,\"tools\":[{\"name\":\"f\","
            "\"input_schema\":{}}],\"tool_choice\":{\"type\":\"any\"}}", "goes on");
}

static void reasoning_can_be_continued(void **state)
{
    json_t *v = ask(&thinks, "/v1/chat/completions", "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":"
                    "\"<think>The story is\"}],\"continue_final_message\":true,\"max_tokens\":6,\"temperature\":0}");

    (void)state;
    assert_true(strlen(test_json_text(v, "choices.0.message.reasoning_content")) > 3);
    assert_string_equal(test_json_text(v, "choices.0.message.content"), "");
    json_decref(v);
}

/* ---- what was thought before ------------------------------------------------------------------------------------- */

#define ARGUMENTS "{\\\"town\\\":\\\"Oslo\\\"}"
#define CHAT_HISTORY \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Rain?\"},{\"role\":\"assistant\",\"content\":\"Let me see.\"," \
    "\"reasoning_content\":\"They want the weather.\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":" \
    "{\"name\":\"weather\",\"arguments\":\"" ARGUMENTS "\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":" \
    "\"wet\"}]}"
#define THOUGHT "<|assistant|><think>They want the weather.</think>Let me see.<tool_call>"

static void thoughts_of_earlier_turns_are_kept(void **state)
{
    json_t *want = ask(&thinks, "/apply-template", CHAT_HISTORY);
    json_t *message = ask(&thinks, "/v1/messages/count_tokens",
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"Rain?\"},{\"role\":\"assistant\",\"content\":["
                          "{\"type\":\"thinking\",\"thinking\":\"They want the weather.\",\"signature\":\"\"},"
                          "{\"type\":\"redacted_thinking\",\"data\":\"xyz\"},{\"type\":\"text\",\"text\":\"Let me see.\"},"
                          "{\"type\":\"tool_use\",\"id\":\"c1\",\"name\":\"weather\",\"input\":{\"town\":\"Oslo\"}}]},"
                          "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"c1\",\"content\":"
                          "\"wet\"}]}]}");
    json_t *response = ask(&thinks, "/v1/responses",
                           "{\"max_output_tokens\":1,\"input\":[{\"role\":\"user\",\"content\":\"Rain?\"},{\"type\":"
                           "\"reasoning\",\"id\":\"r1\",\"summary\":[],\"content\":[{\"type\":\"reasoning_text\",\"text\":"
                           "\"They want the weather.\"}]},{\"role\":\"assistant\",\"content\":\"Let me see.\"},{\"type\":"
                           "\"function_call\",\"call_id\":\"c1\",\"name\":\"weather\",\"arguments\":\"" ARGUMENTS "\"},"
                           "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"wet\"}]}");

    (void)state;
    if (!strstr(test_json_text(want, "prompt"), THOUGHT))
        fail_msg("%s", test_json_text(want, "prompt"));
    assert_int_equal(int_at(message, "input_tokens"), int_at(want, "count"));
    assert_int_equal(int_at(response, "usage.input_tokens"), int_at(want, "count"));
    json_decref(want);
    json_decref(message);
    json_decref(response);
}

/* A summary stands for reasoning whose text is not given, a call goes with the reasoning before it, and what cannot be
 * read (encrypted_content) is left out. */
static void reasoning_items_find_their_message(void **state)
{
    static const struct {
        const char *items, *messages;
    } cases[] = {
        { "{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}]},{\"type\":\"function_call\","
          "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"}",
          "{\"role\":\"assistant\",\"content\":\"\",\"reasoning\":\"hm\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\","
          "\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}" },
        { "{\"type\":\"reasoning\",\"summary\":[],\"encrypted_content\":\"x\"},{\"role\":\"assistant\",\"content\":\"yes\"}",
          "{\"role\":\"assistant\",\"content\":\"yes\"}" },
        { "{\"role\":\"assistant\",\"content\":\"a\"},{\"type\":\"reasoning\",\"summary\":[{\"type\":\"summary_text\","
          "\"text\":\"hm\"}]},{\"role\":\"assistant\",\"content\":\"b\"}",
          "{\"role\":\"assistant\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\",\"reasoning_content\":\"hm\"}" },
    };
    char body[1000];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(body, sizeof body, "{\"messages\":[" ASKS ",%s," ASKS "]}", cases[i].messages);
        json_t *want = ask(&thinks, "/apply-template", body);
        snprintf(body, sizeof body, "{\"max_output_tokens\":1,\"input\":[" ASKS ",%s," ASKS "]}", cases[i].items);
        json_t *v = ask(&thinks, "/v1/responses", body);
        if (int_at(v, "usage.input_tokens") != int_at(want, "count"))
            fail_msg("case %zu: %lld ids, not %lld: %s", i, int_at(v, "usage.input_tokens"), int_at(want, "count"),
                     test_json_text(want, "prompt"));
        json_decref(v);
        json_decref(want);
    }
}

/* ---- what an answer must be -------------------------------------------------------------------------------------- */

/* The reasoning is what it is without a schema: no digit of it is forced. */
static void a_schema_leaves_the_reasoning_free(void **state)
{
#define FREE "\"messages\":[" ASKS "],\"max_tokens\":24,\"temperature\":0"
    static const char *const bound[] = {
        "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"integer\"}}}",
        "\"structured_outputs\":{\"regex\":\"[0-9]{3}\"}", "\"guided_choice\":[\"yes\",\"no\"]",
        "\"response_format\":{\"type\":\"json_object\"}", "\"grammar\":\"root ::= [0-9]+\"",
    };
    json_t *want = ask(&thinks, "/v1/chat/completions", "{" FREE "}");
    char body[600];

    (void)state;
    assert_true(strlen(test_json_text(want, "choices.0.message.reasoning_content")) > 10);
    for (size_t i = 0; i < RG_LEN(bound); i++) {
        snprintf(body, sizeof body, "{" FREE ",%s}", bound[i]);
        json_t *v = ask(&thinks, "/v1/chat/completions", body);
        assert_string_equal(test_json_text(v, "choices.0.message.reasoning_content"),
                            test_json_text(want, "choices.0.message.reasoning_content"));
        json_decref(v);
    }
    json_decref(want);
    json_t *v = ask(&thinks, "/v1/chat/completions", /* the reasoning is over here, so the answer is bound at once */
                    "{\"messages\":[" ASKS ",{\"role\":\"assistant\",\"content\":\"<think>hm</think>\"}],\"max_tokens\":24,"
                    "\"continue_final_message\":true,\"structured_outputs\":{\"regex\":\"[0-9]{3}\"}}");
    const char *text = test_json_text(v, "choices.0.message.content");
    assert_true(strlen(text) == 3 && strspn(text, "0123456789") == 3);
    json_decref(v);
}

static void every_name_for_a_schema_binds(void **state)
{
#define SCHEMA "{\"enum\":[\"red\",\"blue\"]}"
    static const struct {
        const char *path, *body, *answer;
    } cases[] = {
        { "/v1/chat/completions", "{\"messages\":[" ASKS "],\"response_format\":{\"type\":\"json_object\",\"schema\":" SCHEMA
          "}}", "choices.0.message.content" },
        { "/v1/completions", "{\"prompt\":\"x\",\"response_format\":{\"type\":\"json_object\",\"schema\":" SCHEMA "}}",
          "choices.0.text" },
        { "/v1/messages", "{\"messages\":[" ASKS "],\"max_tokens\":30,\"output_config\":{\"effort\":\"low\",\"format\":"
          "{\"type\":\"json_schema\",\"schema\":" SCHEMA "}}}", "content.0.text" },
        { "/v1/messages", "{\"messages\":[" ASKS "],\"max_tokens\":30,\"output_format\":{\"type\":\"json_schema\","
          "\"schema\":" SCHEMA "}}", "content.0.text" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        json_t *v = ask(&plain, cases[i].path, cases[i].body);
        const char *text = test_json_text(v, cases[i].answer);
        if (strcmp(text, "\"red\"") != 0 && strcmp(text, "\"blue\"") != 0)
            fail_msg("case %zu: %s", i, text);
        json_decref(v);
    }
    refused(&plain, "/v1/messages", "{\"messages\":[" ASKS "],\"max_tokens\":9,\"output_config\":{\"format\":{\"type\":"
            "\"json_schema\"}}}", "no schema");
    refused(&plain, "/v1/messages", "{\"messages\":[" ASKS "],\"max_tokens\":9,\"output_config\":{\"effort\":\"huge\"}}",
            "effort");
    refused(&plain, "/v1/chat/completions", "{\"messages\":[" ASKS "],\"response_format\":{\"type\":\"json_object\","
            "\"schema\":[1]}}", "no schema");
}

/* A grammar that has more ways to go on than are followed ends the request with an error, in a stream too. */
static void a_lost_way_is_an_error(void **state)
{
    char body[8000] = "{\"messages\":[" ASKS "],\"grammar\":\"root ::= \\\"b\\\" ", *end = body + strlen(body);

    (void)state;
    for (int i = 0; i < 1000; i++)
        end = stpcpy(end, "a? ");
    strcpy(end, "\\\"x\\\"\\na ::= \\\"a\\\"\",\"max_tokens\":40}");
    json_t *v = test_web_json(plain.port, "/v1/chat/completions", body, 400);
    assert_string_equal(test_json_text(v, "error.code"), "grammar_limit");
    json_decref(v);
    strcpy(strrchr(body, '}'), ",\"stream\":true}");
    test_reply r = test_web_ask(plain.port, "POST", "/v1/chat/completions", NULL, body);
    assert_non_null(strstr(r.body, "\"code\":\"grammar_limit\""));
    assert_null(strstr(r.body, "\"finish_reason\":\"stop\""));
    test_reply_free(&r);
}

static void no_limit_is_a_limit_too(void **state)
{
    static const struct {
        const char *path, *body, *total;
    } cases[] = {
        { "/v1/chat/completions", "{\"messages\":[" ASKS "],\"max_tokens\":-1,\"ignore_eos\":true}", "usage.total_tokens" },
        { "/v1/chat/completions", "{\"messages\":[" ASKS "],\"max_completion_tokens\":-1,\"ignore_eos\":true}",
          "usage.total_tokens" },
        { "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":-1,\"ignore_eos\":true}", "usage.total_tokens" },
        { "/v1/completions", "{\"prompt\":\"x\",\"n_predict\":-1,\"ignore_eos\":true}", "usage.total_tokens" },
        { "/v1/responses", "{\"input\":\"x\",\"max_output_tokens\":-1,\"ignore_eos\":true}", "usage.total_tokens" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        json_t *v = ask(&plain, cases[i].path, cases[i].body);
        assert_int_equal(int_at(v, cases[i].total), 512); /* the context is the end */
        json_decref(v);
    }
    refused(&plain, "/v1/completions", "{\"prompt\":\"x\",\"max_tokens\":-2}", "max_tokens");
    refused(&plain, "/v1/chat/completions", "{\"messages\":[" ASKS "],\"max_completion_tokens\":0}", "max_completion_tokens");
    refused(&plain, "/v1/messages", "{\"messages\":[" ASKS "],\"max_tokens\":-1}", "max_tokens");
}

/* ---- a call that is cut ------------------------------------------------------------------------------------------ */

#define TOOL "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\"," \
             "\"properties\":{\"town\":{\"enum\":[\"Oslo\",\"Rome\"]},\"why\":{\"type\":\"string\",\"minLength\":200}}," \
             "\"required\":[\"town\",\"why\"]}}}],\"tool_choice\":\"required\""

/* Ways that templates write calls, as they show them of the tool ridge_probe. */
static const char *const forms[] = {
    "user: Hello", /* shows none: a bare JSON object */
    "<tool_call>\n{\"name\": \"ridge_probe\", \"arguments\": {\"ridge_key\": 7}}\n</tool_call><|im_end|>\n",
    "[INST]Hello[/INST][TOOL_CALLS]ridge_probe[ARGS]{\"ridge_key\": 7}</s>",
    "<tool_call>\n<function=ridge_probe>\n<parameter=ridge_key>\n7\n</parameter>\n</function>\n</tool_call><|im_end|>",
};

static void check_cut_chat(int max_tokens)
{
    char body[1200];

    snprintf(body, sizeof body, "{\"messages\":[" ASKS "]," TOOL ",\"max_tokens\":%d,\"seed\":%d}", max_tokens, max_tokens);
    json_t *v = ask(&plain, "/v1/chat/completions", body);
    const char *arguments = test_json_text(v, "choices.0.message.tool_calls.0.function.arguments");
    if (!json_is_null(test_json_at(v, "choices.0.message.content")))
        fail_msg("after %d ids: %s", max_tokens, test_json_text(v, "choices.0.message.content"));
    assert_string_equal(test_json_text(v, "choices.0.message.tool_calls.0.function.name"), "weather");
    assert_string_equal(test_json_text(v, "choices.0.finish_reason"), "length");
    if (*arguments && *arguments != '{')
        fail_msg("%s", arguments);
    json_decref(v);
}

static void a_cut_call_is_a_call(void **state)
{
    rg_talk_use own = plain.s->first->use;

    (void)state;
    for (size_t i = 0; i < RG_LEN(forms); i++) {
        rg_talk_learn_from(&plain.s->first->use, forms[i]);
        for (int n = 1; n < 60; n += 3)
            check_cut_chat(n);
    }
    rg_talk_learn_from(&plain.s->first->use, forms[1]);
    json_t *v = ask(&plain, "/v1/messages", "{\"messages\":[" ASKS "],\"max_tokens\":60,\"tool_choice\":{\"type\":\"any\"},"
                    "\"tools\":[{\"name\":\"weather\",\"input_schema\":{\"type\":\"object\",\"properties\":{\"town\":{\"enum\":"
                    "[\"Oslo\"]},\"why\":{\"type\":\"string\",\"minLength\":400}},\"required\":[\"town\",\"why\"]}}]}");
    assert_string_equal(test_json_text(v, "stop_reason"), "max_tokens");
    assert_string_equal(test_json_text(v, "content.0.type"), "tool_use");
    assert_true(json_is_object(test_json_at(v, "content.0.input")));
    json_decref(v);
    v = ask(&plain, "/v1/responses", "{\"input\":\"x\",\"max_output_tokens\":30,\"tool_choice\":\"required\",\"tools\":["
            "{\"type\":\"function\",\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{\"why\":{\"type\":"
            "\"string\",\"minLength\":400}},\"required\":[\"why\"]}}]}");
    assert_string_equal(test_json_text(v, "status"), "incomplete");
    assert_string_equal(test_json_text(v, "output.0.type"), "function_call");
    assert_string_equal(test_json_text(v, "output.0.status"), "incomplete");
    json_decref(v);
    plain.s->first->use = own;
}

/* ---- what clients send beside ------------------------------------------------------------------------------------ */

/* A line that tells the client's own billing changes every time: the prompt does not have it. */
static void no_billing_line_reaches_the_prompt(void **state)
{
    static const char *const systems[] = {
        "\"Be kind.\"",
        "\"x-anthropic-billing-header: cc_version=2.1.0; cch=1a2b3;\\nBe kind.\"",
        "[{\"type\":\"text\",\"text\":\"x-anthropic-billing-header: cc_version=2.1.0; cch=00000;\"},"
        "{\"type\":\"text\",\"text\":\"Be kind.\"}]",
    };
    int64_t n[RG_LEN(systems)];

    (void)state;
    for (size_t i = 0; i < RG_LEN(systems); i++) {
        char body[600];
        snprintf(body, sizeof body, "{\"system\":%s,\"messages\":[" ASKS "]}", systems[i]);
        json_t *v = ask(&plain, "/v1/messages/count_tokens", body);
        n[i] = json_integer_value(test_json_at(v, "input_tokens"));
        json_decref(v);
    }
    assert_true(n[0] > 0);
    assert_int_equal(n[1], n[0]);
    assert_int_equal(n[2], n[0]);
}

/* A call that is asked for where there are no tools is asked for in vain; every chunk tells the usage if it is to. */
static void what_cannot_matter_is_taken(void **state)
{
    (void)state;
    json_decref(ask(&plain, "/v1/chat/completions", "{\"messages\":[" ASKS "],\"max_tokens\":3,\"tool_choice\":\"required\"}"));
    json_decref(ask(&plain, "/v1/chat/completions",
                    "{\"messages\":[" ASKS "],\"max_tokens\":3,\"tools\":[],\"tool_choice\":\"required\"}"));
    test_reply r = test_web_ask(plain.port, "POST", "/v1/chat/completions", NULL,
                                "{\"messages\":[" ASKS "],\"max_tokens\":3,\"stream\":true,"
                                "\"stream_options\":{\"include_usage\":true,\"continuous_usage_stats\":true}}");
    assert_int_equal(r.status, 200);
    assert_null(strstr(r.body, "\"usage\":null"));
    assert_non_null(strstr(r.body, "\"completion_tokens\":3"));
    test_reply_free(&r);
}

/* llama-server's timings: in whole answers, at the end of a stream, and in every chunk if they are asked for. */
static void answers_have_timings(void **state)
{
    static const char *const bodies[] = { "{\"messages\":[" ASKS "],\"max_tokens\":3%s}", "{\"prompt\":[1,2],\"max_tokens\":3%s}" };
    static const char *const paths[] = { "/v1/chat/completions", "/v1/completions" };
    static const char *const streams[] = { ",\"stream\":true", ",\"stream\":true,\"stream_options\":{\"include_usage\":true}" };
    char body[400];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        snprintf(body, sizeof body, bodies[i], "");
        json_t *v = ask(&plain, paths[i], body);
        assert_int_equal(int_at(v, "timings.predicted_n"), 3);
        assert_true(int_at(v, "timings.prompt_n") + int_at(v, "timings.cache_n") == int_at(v, "usage.prompt_tokens"));
        json_decref(v);
        for (size_t k = 0; k < RG_LEN(streams); k++) {
            snprintf(body, sizeof body, bodies[i], streams[k]);
            test_reply r = test_web_ask(plain.port, "POST", paths[i], NULL, body);
            const char *at = strstr(r.body, "\"timings\":");
            assert_true(at && strstr(at, "\"predicted_n\":3"));
            test_reply_free(&r);
        }
        snprintf(body, sizeof body, bodies[i], ",\"stream\":true,\"timings_per_token\":true");
        test_reply r = test_web_ask(plain.port, "POST", paths[i], NULL, body);
        int chunks = 0, timed = 0;
        for (const char *s = r.body; (s = strstr(s, "data: {")); s++)
            chunks++;
        for (const char *s = r.body; (s = strstr(s, "\"timings\":")); s++)
            timed++;
        assert_true(timed > 0 && timed >= chunks - 1); /* the one before the first token has none */
        test_reply_free(&r);
    }
}

static void nothing_is_left(void **state)
{
    (void)state;
    test_server_quiet(&plain);
    test_server_quiet(&thinks);
    rg_engine_check(plain.engine);
    rg_engine_check(thinks.engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_last_message_is_continued),        cmocka_unit_test(continuing_has_rules),
        cmocka_unit_test(reasoning_can_be_continued),         cmocka_unit_test(thoughts_of_earlier_turns_are_kept),
        cmocka_unit_test(reasoning_items_find_their_message), cmocka_unit_test(a_schema_leaves_the_reasoning_free),
        cmocka_unit_test(every_name_for_a_schema_binds),      cmocka_unit_test(no_limit_is_a_limit_too),
        cmocka_unit_test(a_cut_call_is_a_call),               cmocka_unit_test(a_lost_way_is_an_error),
        cmocka_unit_test(no_billing_line_reaches_the_prompt), cmocka_unit_test(what_cannot_matter_is_taken),
        cmocka_unit_test(answers_have_timings),               cmocka_unit_test(nothing_is_left),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
