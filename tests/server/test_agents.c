/* test_agents.c -- what agents send to the Responses API and what they get: tools of every kind, items of every type, and
 * streams whose events say the same as the whole answer. */
#define _GNU_SOURCE 1
#define ACTOR_FOLDER "agents"
#include "server/actor.h"

#include "base/json.h"
#include "server/core.h"

/* Tools by their names alone: the checkpoint has no room for more. */
#define TEMPLATE                                                                                                       \
    "{%- if tools %}<tools>{%- for t in tools %} {{ t.function.name }}{%- endfor %}</tools>{% endif %}"                \
    "{%- for m in messages %}{{ '\\n' + m.role + ': ' }}{{ m.content }}"                                               \
    "{%- for c in m.tool_calls or [] %}<tool_call>\n{\"name\": \"{{ c.function.name }}\", \"arguments\": "             \
    "{{ c.function.arguments | tojson }}}\n</tool_call>{%- endfor %}{%- endfor %}<|im_start|>assistant\n"

#define CALL(name, arguments) "<tool_call>\n{\"name\": \"" name "\", \"arguments\": " arguments "}\n</tool_call>"

static test_server t;

/* A server whose model says the script to this body; count: the path that counts the ids of the body's prompt. */
static void say_to(const char *count, const char *script, const char *body)
{
    actor a = { TEMPLATE, script, { "<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "</think>" } };

    write_actor(&a, false, 1);
    serve(&t, NULL);
    json_t *v = test_web_json(t.port, count, body, 200);
    int n = (int)json_integer_value(json_object_get(v, "input_tokens"));
    json_decref(v);
    test_server_stop(&t);
    write_actor(&a, false, n - 1);
    serve(&t, NULL);
}

static void say(const char *script, const char *body)
{
    say_to("/v1/responses/input_tokens", script, body);
}

/* Every member of want is in got, and lists are as long. */
static bool has(const json_t *got, const json_t *want)
{
    const char *key;
    json_t *v;

    if (json_is_object(want)) {
        json_object_foreach((json_t *)(uintptr_t)want, key, v)
            if (!has(json_object_get(got, key), v))
                return false;
        return json_is_object(got);
    }
    if (!json_is_array(want))
        return json_equal((json_t *)(uintptr_t)got, (json_t *)(uintptr_t)want);
    if (json_array_size(got) != json_array_size(want))
        return false;
    for (size_t i = 0; i < json_array_size(want); i++)
        if (!has(json_array_get(got, i), json_array_get(want, i)))
            return false;
    return true;
}

static json_t *load(const char *text)
{
    json_t *v = rg_json_load(text, strlen(text), JSON_DECODE_ANY, NULL);

    if (!v)
        fail_msg("not JSON: %s", text);
    return v;
}

static void must_have(const json_t *got, const char *want, const char *why)
{
    json_t *w = load(want);

    if (!has(got, w)) {
        char *s = rg_json_dump(got, JSON_COMPACT | JSON_ENCODE_ANY);
        fail_msg("%s\n  got  %s\n  want %s", why, s, want);
    }
    json_decref(w);
}

/* The ids of a response, which differ from one to the next. */
static void drop_ids(json_t *items)
{
    json_t *item;
    size_t i;

    json_array_foreach(items, i, item) {
        json_object_del(item, "id");
        json_object_del(item, "call_id");
    }
}

/* The items as a client puts them together from a stream: those that were done, after checking that deltas are what
 * they end with, and that every item is opened before and has the number of its place. */
static json_t *read_items(const char *body, json_t **last)
{
    json_t *items = json_array();
    rg_buf text;
    int at = 0;

    rg_buf_init(&text, 1 << 16);
    *last = NULL;
    for (const char *s = body; (s = strstr(s, "\ndata: ")); s += 7) {
        json_t *v = json_loadb(s + 7, strcspn(s + 7, "\n"), 0, NULL), *delta = json_object_get(v, "delta");
        const char *type = json_string_value(json_object_get(v, "type"));
        const json_t *whole = json_object_get(v, "text");
        assert_non_null(type);
        assert_int_equal(json_integer_value(json_object_get(v, "sequence_number")), at++);
        if (json_object_get(v, "output_index"))
            assert_int_equal(json_integer_value(json_object_get(v, "output_index")), json_array_size(items));
        if (!strcmp(type, "response.output_item.added"))
            rg_buf_reset(&text);
        if (delta)
            rg_buf_add(&text, json_string_value(delta), json_string_length(delta));
        whole = whole ? whole : json_object_get(v, "arguments");
        whole = whole ? whole : json_object_get(v, "input");
        if (whole && strstr(type, ".done") && strcmp(json_string_value(whole), text.n ? text.data : "") != 0)
            fail_msg("%s: deltas '%s', whole '%s'", type, text.n ? text.data : "", json_string_value(whole));
        if (!strcmp(type, "response.output_item.done"))
            json_array_append(items, json_object_get(v, "item"));
        if (json_object_get(v, "response")) {
            json_decref(*last);
            *last = json_incref(json_object_get(v, "response"));
        }
        json_decref(v);
    }
    rg_buf_fini(&text);
    return items;
}

/* The model says the script to a request with these members: the answer has these items, whole and streamed.  warns: a
 * part of the warning; NULL: there is none. */
static void answers(const char *script, const char *members, const char *want, const char *warns)
{
    char body[6000];
    json_t *last;

    snprintf(body, sizeof body, "{%s,\"temperature\":0}", members);
    say(script, body);
    test_reply r = test_web_ask(t.port, "POST", "/v1/responses", NULL, body);
    if (r.status != 200)
        fail_msg("%s\n%s", body, r.body);
    const char *warning = test_reply_header(&r, "X-Ridge-Warning");
    if (warns ? !warning || !strstr(warning, warns) : warning != NULL)
        fail_msg("%s\nwarning: %s", body, warning ? warning : "none");
    json_t *v = test_reply_json(&r), *output = json_object_get(v, "output");
    must_have(output, want, body);
    test_reply_free(&r);

    snprintf(body, sizeof body, "{%s,\"temperature\":0,\"stream\":true}", members);
    r = test_web_ask(t.port, "POST", "/v1/responses", NULL, body);
    json_t *items = read_items(r.body, &last);
    must_have(items, want, body);
    if (!json_equal(items, json_object_get(last, "output")))
        fail_msg("%s", r.body);
    drop_ids(items);
    drop_ids(output);
    if (!json_equal(items, output))
        fail_msg("streamed it is not what it is whole: %s", r.body);
    json_decref(items);
    json_decref(last);
    json_decref(v);
    test_reply_free(&r);
    test_server_stop(&t);
}

#define USER "\"input\":[{\"role\":\"user\",\"content\":\"Hi\"}]"

/* ---- tools ------------------------------------------------------------------------------------------------------- */

/* Custom tools of chat completions: calls and their history have the input as a text, whole and streamed. */
static void custom_tools_of_a_chat(void **state)
{
    static const char members[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"call_1\",\"type\":"
        "\"custom\",\"custom\":{\"name\":\"exec\",\"input\":\"ls\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":"
        "\"a\"}],\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"exec\",\"format\":{\"type\":\"grammar\",\"grammar\":{"
        "\"syntax\":\"regex\",\"definition\":\"[+][a-z]+\"}}}},{\"type\":\"function\",\"function\":{\"name\":\"f\"}}],"
        "\"temperature\":0%s}";
    static const char want[] = "[{\"type\":\"custom\",\"custom\":{\"name\":\"exec\",\"input\":\"+ab\"}},"
                               "{\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}}]";
    char body[3000];
    int n = 0;

    (void)state;
    snprintf(body, sizeof body, members, "");
    say_to("/v1/chat/completions/input_tokens", CALL("exec", "{\"input\": \"-ab\"}") CALL("f", "{\"a\": 1}"), body);
    json_t *v = test_web_json(t.port, "/v1/chat/completions", body, 200);
    must_have(json_object_get(json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message"), "tool_calls"),
              want, body);
    json_decref(v);
    snprintf(body, sizeof body, members, ",\"stream\":true");
    test_reply r = test_web_ask(t.port, "POST", "/v1/chat/completions", NULL, body);
    for (const char *s = r.body; (s = strstr(s, "\"type\":\"custom\"")); s++)
        n++;
    assert_int_equal(n, 1);
    assert_non_null(strstr(r.body, "\"custom\":{\"name\":\"exec\",\"input\":\"+ab\"}"));
    assert_null(strstr(r.body, "\"tool_calls\":[]"));
    test_reply_free(&r);
    test_server_stop(&t);
}

static void calls_are_items_of_their_kind(void **state)
{
    static const struct {
        const char *tools, *script, *want;
    } cases[] = {
        { "{\"type\":\"function\",\"name\":\"f\"}", CALL("f", "{\"a\": 1}"),
          "[{\"type\":\"function_call\",\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\",\"status\":\"completed\"}]" },
        { "{\"type\":\"custom\",\"name\":\"exec\",\"description\":\"Runs code.\"}",
          CALL("exec", "{\"input\": \"a \\\"b\\\"\\n\\u00e9\\ud83d\\ude00\\\\\"}"),
          "[{\"type\":\"custom_tool_call\",\"name\":\"exec\",\"input\":\"a \\\"b\\\"\\n\\u00e9\\ud83d\\ude00\\\\\"}]" },
        /* its grammar binds the input, and nothing else */
        { "{\"type\":\"custom\",\"name\":\"exec\",\"format\":{\"type\":\"grammar\",\"syntax\":\"regex\","
          "\"definition\":\"\\\\+[a-z]+\"}}",
          "Ok.\n" CALL("exec", "{\"input\": \"-ab\"}"),
          "[{\"type\":\"message\",\"content\":[{\"text\":\"Ok.\"}]},{\"type\":\"custom_tool_call\",\"input\":\"+ab\"}]" },
        { "{\"type\":\"custom\",\"name\":\"exec\",\"format\":{\"type\":\"grammar\",\"syntax\":\"lark\","
          "\"definition\":\"start: \\\"+\\\" /[a-z]+/ "
          "\\\"\\\\n\\\"\"}},{\"type\":\"function\",\"name\":\"f\"}",
          CALL("f", "{\"a\": [1]}") "\n" CALL("exec", "{\"input\": \"-ab\\n\"}"),
          "[{\"type\":\"function_call\",\"arguments\":\"{\\\"a\\\": [1]}\"},{\"type\":\"custom_tool_call\","
          "\"input\":\"+ab\\n\"}]" },
        { "{\"type\":\"local_shell\"}", CALL("local_shell", "{\"command\": [\"ls\", \"-l\"], \"timeout_ms\": 9}"),
          "[{\"type\":\"local_shell_call\",\"action\":{\"type\":\"exec\",\"command\":[\"ls\",\"-l\"],\"env\":{},"
          "\"timeout_ms\":9}}]" },
        { "{\"type\":\"shell\"}", CALL("shell", "{\"commands\": [\"ls\"]}"),
          "[{\"type\":\"shell_call\",\"action\":{\"commands\":[\"ls\"]}}]" },
        { "{\"type\":\"apply_patch\"}", CALL("apply_patch", "{\"type\": \"delete_file\", \"path\": \"x\"}"),
          "[{\"type\":\"apply_patch_call\",\"operation\":{\"type\":\"delete_file\",\"path\":\"x\"}}]" },
        { "{\"type\":\"tool_search\",\"execution\":\"client\"}", CALL("tool_search", "{\"query\": \"mail\"}"),
          "[{\"type\":\"tool_search_call\",\"execution\":\"client\",\"arguments\":{\"query\":\"mail\"}}]" },
        { "{\"type\":\"namespace\",\"name\":\"mcp__fs\",\"description\":\"Files\",\"tools\":[{\"type\":\"function\","
          "\"name\":\"read\"},{\"type\":\"custom\",\"name\":\"raw\"}]}",
          CALL("mcp__fs__read", "{}") "\n" CALL("mcp__fs__raw", "{\"input\": \"x\"}"),
          "[{\"type\":\"function_call\",\"name\":\"read\",\"namespace\":\"mcp__fs\",\"arguments\":\"{}\"},"
          "{\"type\":\"custom_tool_call\",\"name\":\"raw\",\"namespace\":\"mcp__fs\",\"input\":\"x\"}]" },
        { "{\"type\":\"function\",\"name\":\"shell\"},{\"type\":\"shell\"}",
          CALL("shell_tool", "{\"commands\": []}") "\n" CALL("shell", "{}"),
          "[{\"type\":\"shell_call\"},{\"type\":\"function_call\",\"name\":\"shell\"}]" },
    };
    char members[2000];

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(members, sizeof members, USER ",\"tools\":[%s]", cases[i].tools);
        answers(cases[i].script, members, cases[i].want, NULL);
    }
}

static void a_grammar_that_cannot_bind_is_told(void **state)
{
    (void)state;
    answers(CALL("exec", "{\"input\": \"b\"}"),
            USER ",\"tools\":[{\"type\":\"custom\",\"name\":\"exec\",\"format\":{\"type\":\"grammar\","
              "\"syntax\":\"regex\",\"definition\":\"(?<=a)b\"}}]",
            "[{\"type\":\"custom_tool_call\",\"input\":\"b\"}]", "not enforced");
}

static void tools_of_a_server_are_left_out(void **state)
{
    static const char *const types[] = {
        "web_search", "web_search_preview", "image_generation", "code_interpreter", "file_search", "mcp", "tool_search",
        "computer_use_preview", "what_comes_next_year",
    };
    char members[1000];

    (void)state;
    for (size_t i = 0; i < RG_LEN(types); i++) {
        snprintf(members, sizeof members,
                 USER ",\"tools\":[{\"type\":\"function\",\"name\":\"f\"},{\"type\":\"%s\"}],\"tool_choice\":{\"type\":"
                 "\"%s\"}", types[i], types[i]);
        if (!strcmp(types[i], "tool_search"))
            *strstr(members, ",\"tool_choice") = 0;
        answers("Ok.", members, "[{\"type\":\"message\",\"content\":[{\"text\":\"Ok.\"}]}]", types[i]);
    }
}

/* ---- the order of an answer -------------------------------------------------------------------------------------- */

static void text_after_a_call_is_a_message_of_its_own(void **state)
{
    static const char tools[] = USER ",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]";

    (void)state;
    answers("<think>Hm.</think>One." CALL("f", "{}") "Two." CALL("f", "{\"a\": 2}") "Three.", tools,
            "[{\"type\":\"reasoning\",\"content\":[{\"text\":\"Hm.\"}]},"
            "{\"type\":\"message\",\"content\":[{\"text\":\"One.\"}]},{\"type\":\"function_call\"},"
            "{\"type\":\"message\",\"content\":[{\"text\":\"Two.\"}]},{\"type\":\"function_call\"},"
            "{\"type\":\"message\",\"content\":[{\"text\":\"Three.\"}]}]",
            NULL);
    answers(CALL("f", "{}") CALL("f", "{}") "End.", USER ",\"parallel_tool_calls\":false,\"tools\":[{\"type\":"
            "\"function\",\"name\":\"f\"}]",
            "[{\"type\":\"function_call\"},{\"type\":\"message\",\"content\":[{\"text\":\"End.\"}]}]", NULL);
    answers("<think>Hm.</think>", tools, "[{\"type\":\"reasoning\"},{\"type\":\"message\",\"content\":[{\"text\":\"\"}]}]",
            NULL);
}

/* ---- histories --------------------------------------------------------------------------------------------------- */

/* The prompt of these items is that of these messages. */
static void reads_as(const char *items, const char *messages, const char *warns)
{
    char body[4000];

    snprintf(body, sizeof body, "{\"messages\":%s}", messages);
    json_t *want = test_web_json(t.port, "/apply-template", body, 200);
    snprintf(body, sizeof body, "{\"input\":%s}", items);
    test_reply r = test_web_ask(t.port, "POST", "/v1/responses/input_tokens", NULL, body);
    json_t *got = test_reply_json(&r);
    const char *warning = test_reply_header(&r, "X-Ridge-Warning");
    if (r.status != 200 || json_integer_value(json_object_get(got, "input_tokens")) !=
                               json_integer_value(json_object_get(want, "count")))
        fail_msg("%s\n%s\n%s", items, r.body, json_string_value(json_object_get(want, "prompt")));
    if (warns ? !warning || !strstr(warning, warns) : warning != NULL)
        fail_msg("%s\nwarning: %s", items, warning ? warning : "none");
    json_decref(got);
    json_decref(want);
    test_reply_free(&r);
}

#define ASKED "{\"role\":\"user\",\"content\":\"Hi\"}"
#define CALLED(name, arguments)                                                                                        \
    "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"c\",\"type\":\"function\",\"function\":{"       \
    "\"name\":\"" name "\",\"arguments\":" arguments "}}]}"
#define GAVE(text) "{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"" text "\"}"

static void items_of_every_type_are_read(void **state)
{
    static const struct {
        const char *items, *messages, *warns;
    } cases[] = {
        { "{\"type\":\"custom_tool_call\",\"call_id\":\"c\",\"name\":\"exec\",\"input\":\"a\\nb\"},"
          "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c\",\"output\":\"done\"}",
          CALLED("exec", "{\"input\":\"a\\nb\"}") "," GAVE("done"), NULL },
        { "{\"type\":\"local_shell_call\",\"id\":\"i\",\"call_id\":\"c\",\"status\":\"completed\",\"action\":{\"type\":"
          "\"exec\",\"command\":[\"ls\"],\"env\":{},\"user\":null}},"
          "{\"type\":\"local_shell_call_output\",\"id\":\"c\",\"output\":\"x\"}",
          CALLED("local_shell", "{\"command\":[\"ls\"]}") "," GAVE("x"), NULL },
        { "{\"type\":\"shell_call\",\"call_id\":\"c\",\"action\":{\"commands\":[\"ls\"]}},{\"type\":"
          "\"shell_call_output\",\"call_id\":\"c\",\"output\":[{\"stdout\":\"x\"}]}",
          CALLED("shell", "{\"commands\":[\"ls\"]}") "," GAVE("[{\\\"stdout\\\":\\\"x\\\"}]"), NULL },
        { "{\"type\":\"apply_patch_call\",\"call_id\":\"c\",\"operation\":{\"type\":\"delete_file\",\"path\":\"x\"}},"
          "{\"type\":\"apply_patch_call_output\",\"call_id\":\"c\",\"status\":\"completed\"}",
          CALLED("apply_patch", "{\"type\":\"delete_file\",\"path\":\"x\"}") "," GAVE("completed"), NULL },
        { "{\"type\":\"function_call\",\"call_id\":\"c\",\"namespace\":\"mcp__fs\",\"name\":\"read\",\"arguments\":"
          "\"{}\"},{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":[{\"type\":\"input_text\",\"text\":"
          "\"x\"}]}",
          CALLED("mcp__fs__read", "{}") "," GAVE("x"), NULL },
        { "{\"type\":\"mcp_call\",\"id\":\"c\",\"server_label\":\"fs\",\"name\":\"read\",\"arguments\":\"{}\",\"output\":"
          "\"x\",\"error\":null}",
          CALLED("fs__read", "{}") "," GAVE("x"), NULL },
        { "{\"type\":\"web_search_call\",\"id\":\"w\",\"status\":\"completed\"}," ASKED, ASKED, "web_search_call" },
        { "{\"type\":\"image_generation_call\",\"id\":\"w\",\"result\":\"AA\"}", ASKED "\b", "image_generation_call" },
        { "{\"type\":\"mcp_list_tools\",\"id\":\"w\",\"server_label\":\"l\",\"tools\":[]}", ASKED "\b", "mcp_list_tools" },
        { "{\"type\":\"mcp_approval_request\",\"id\":\"w\"}", ASKED "\b", "mcp_approval_request" },
        { "{\"type\":\"compaction\",\"encrypted_content\":\"w\"}", ASKED "\b", "compaction" },
        { "{\"type\":\"ghost_snapshot\"}", ASKED "\b", "ghost_snapshot" },
        { "{\"type\":\"message\",\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"},{\"type\":"
          "\"input_image\",\"image_url\":\"data:\"}]}",
          "{\"role\":\"user\",\"content\":\"a\\n(One image was left out: this model reads text alone.)\"}", "image" },
    };
    char items[3000], messages[3000];

    (void)state;
    say("Ok.", "{" USER "}");
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        bool alone = strchr(cases[i].messages, '\b'); /* the items say nothing */
        snprintf(items, sizeof items, "[" ASKED ",%s]", cases[i].items);
        snprintf(messages, sizeof messages, "[" ASKED "%s%s]", alone ? "" : ",", alone ? "" : cases[i].messages);
        reads_as(items, messages, cases[i].warns);
    }
    test_server_stop(&t);
}

/* Tools that a search has found, or that come with an item, can be called from then on. */
static void found_tools_can_be_called(void **state)
{
    (void)state;
    answers(CALL("mail", "{}"),
            "\"input\":[" ASKED ",{\"type\":\"tool_search_call\",\"call_id\":\"c\",\"execution\":\"client\",\"arguments\":"
            "{\"query\":\"mail\"}},{\"type\":\"tool_search_output\",\"call_id\":\"c\",\"execution\":\"client\",\"tools\":["
            "{\"type\":\"function\",\"name\":\"mail\"}]}],\"tools\":[{\"type\":\"tool_search\",\"execution\":\"client\"}]",
            "[{\"type\":\"function_call\",\"name\":\"mail\"}]", NULL);
}

/* ---- Claude Code ------------------------------------------------------------------------------------------------- */

/* The prompt of this request of Anthropic's API is that of these messages of chat completions. */
static void messages_read_as(const char *members, const char *messages, const char *warns)
{
    char body[4000];

    snprintf(body, sizeof body, "{\"messages\":%s}", messages);
    json_t *want = test_web_json(t.port, "/apply-template", body, 200);
    snprintf(body, sizeof body, "{\"max_tokens\":9,%s}", members);
    test_reply r = test_web_ask(t.port, "POST", "/v1/messages/count_tokens",
                                "anthropic-version: 2023-06-01\r\nanthropic-beta: a-thing-of-2030,b\r\n", body);
    json_t *got = test_reply_json(&r);
    const char *warning = test_reply_header(&r, "X-Ridge-Warning");
    if (r.status != 200 || json_integer_value(json_object_get(got, "input_tokens")) !=
                               json_integer_value(json_object_get(want, "count")))
        fail_msg("%s\n%s\n%s", members, r.body, json_string_value(json_object_get(want, "prompt")));
    if (warns ? !warning || !strstr(warning, warns) : warning != NULL)
        fail_msg("%s\nwarning: %s", members, warning ? warning : "none");
    json_decref(got);
    json_decref(want);
    test_reply_free(&r);
}

#define SAID(blocks) "\"messages\":[{\"role\":\"user\",\"content\":[" blocks "]}]"
#define AS_TEXT(text) "[{\"role\":\"user\",\"content\":\"" text "\"}]"

static void blocks_of_every_type_are_read(void **state)
{
    static const struct {
        const char *members, *messages, *warns;
    } cases[] = {
        { SAID("{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{\"type\":\"ephemeral\"},\"citations\":[]}"), AS_TEXT("a"),
          NULL },
        { SAID("{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image\",\"source\":{\"type\":\"base64\",\"media_type\":"
               "\"image/png\",\"data\":\"AA\"}}"),
          AS_TEXT("a\\n(One image was left out: this model reads text alone.)"), "image" },
        { SAID("{\"type\":\"document\",\"title\":\"T\",\"source\":{\"type\":\"text\",\"media_type\":\"text/plain\",\"data\":"
               "\"b\"}}"),
          AS_TEXT("Title: T\\nb"), NULL },
        { SAID("{\"type\":\"document\",\"source\":{\"type\":\"content\",\"content\":[{\"type\":\"text\",\"text\":\"b\"}]}}"),
          AS_TEXT("b"), NULL },
        { SAID("{\"type\":\"document\",\"source\":{\"type\":\"base64\",\"media_type\":\"application/pdf\",\"data\":\"AA\"}}"),
          AS_TEXT("(A document was left out: only its text could be read here, and it has none.)"), "document" },
        { SAID("{\"type\":\"search_result\",\"source\":\"u\",\"title\":\"T\",\"content\":[{\"type\":\"text\","
          "\"text\":\"c\"}]}"),
          AS_TEXT("Title: T\\nSource: u\\nc"), NULL },
        { SAID("{\"type\":\"a_block_of_2030\",\"x\":1},{\"type\":\"text\",\"text\":\"a\"}"),
          AS_TEXT("(One part was left out: this model reads text alone.)\\na"), "part" },
        { "\"messages\":[" ASKED ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":"
          "\"\"},{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"f\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":"
          "\"tool_result\",\"tool_use_id\":\"c\",\"content\":[{\"type\":\"tool_reference\",\"tool_name\":\"mail\"}]}]}]",
          "[" ASKED "," CALLED("f", "{}") "," GAVE("Tool: mail") "]", NULL },
        { SAID("{\"type\":\"text\",\"text\":\"a\"}") ",\"mcp_servers\":[{\"type\":\"url\",\"url\":\"u\",\"name\":\"n\"}],"
          "\"context_management\":{\"edits\":[]},\"a_field_of_2030\":{}",
          AS_TEXT("a"), "mcp_servers" },
    };

    (void)state;
    say("Ok.", "{" USER "}");
    for (size_t i = 0; i < RG_LEN(cases); i++)
        messages_read_as(cases[i].members, cases[i].messages, cases[i].warns);
    test_server_stop(&t);
}

static void tools_of_the_client_are_offered(void **state)
{
    static const char body[] =
        "{\"max_tokens\":99,\"messages\":[" ASKED "],\"tools\":[{\"type\":\"bash_20250124\",\"name\":\"bash\"},"
        "{\"type\":\"text_editor_20250728\",\"name\":\"str_replace_based_edit_tool\"},{\"type\":\"memory_20250818\",\"name\":"
        "\"memory\"},{\"type\":\"web_search_20250305\",\"name\":\"web_search\",\"max_uses\":5},{\"type\":"
        "\"computer_20250124\",\"name\":\"computer\",\"display_width_px\":1},{\"name\":\"f\",\"input_schema\":{}}]}";
    static const char *const out[] = { "web_search_20250305", "computer_20250124" };

    (void)state;
    say("Ok.", "{" USER ",\"tools\":[{\"type\":\"function\",\"name\":\"bash\"},{\"type\":\"function\",\"name\":"
               "\"str_replace_based_edit_tool\"},{\"type\":\"function\",\"name\":\"memory\"},{\"type\":\"function\",\"name\":"
               "\"f\"}]}"); /* a prompt of the same length */
    test_reply r = test_web_ask(t.port, "POST", "/v1/messages", NULL, body);
    const char *warning = test_reply_header(&r, "X-Ridge-Warning");
    if (r.status != 200 || !strstr(r.body, "\"Ok.\""))
        fail_msg("%s", r.body);
    for (size_t i = 0; i < RG_LEN(out); i++)
        assert_true(warning && strstr(warning, out[i]));
    assert_null(strstr(warning, "bash"));
    test_reply_free(&r);
    test_server_stop(&t);
}

/* Blocks of an answer stand as the model wrote them, in streams too. */
static void blocks_keep_their_order(void **state)
{
    static const char script[] = "<think>Hm.</think>One." CALL("f", "{\"a\": 1}") "Two.";
    static const char want[] = "[{\"type\":\"thinking\",\"thinking\":\"Hm.\"},{\"type\":\"text\",\"text\":\"One.\"},{\"type\":"
                               "\"tool_use\",\"name\":\"f\",\"input\":{\"a\":1}},{\"type\":\"text\",\"text\":\"Two.\"}]";
    static const char body[] = "{\"max_tokens\":200,\"messages\":[" ASKED "],\"tools\":[{\"name\":\"f\","
      "\"input_schema\":{}}]%s}";
    static const char *const kinds[] = { "thinking", "text", "tool_use", "text" };
    char text[600];
    int at = 0;

    (void)state;
    say(script, "{" USER ",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]}");
    snprintf(text, sizeof text, body, "");
    json_t *v = test_web_json(t.port, "/v1/messages", text, 200);
    must_have(json_object_get(v, "content"), want, "whole");
    json_decref(v);
    snprintf(text, sizeof text, body, ",\"stream\":true");
    test_reply r = test_web_ask(t.port, "POST", "/v1/messages", NULL, text);
    for (const char *s = r.body; (s = strstr(s, "\"content_block\":{\"type\":\"")); s++, at++)
        assert_true(at < 4 && !strncmp(s + 25, kinds[at], strlen(kinds[at])));
    assert_int_equal(at, 4);
    test_reply_free(&r);
    test_server_stop(&t);
}

/* A template that takes what the system says at first alone gets it as a part of the turn where it stands. */
static void what_a_system_says_later_is_folded(void **state)
{
    actor a = { "{%- for m in messages %}{%- if m.role == 'system' and not loop.first %}{{ raise_exception('System first') }}"
                "{%- endif %}[{{ m.role }}: {{ m.content }}]{%- endfor %}", "x", { "</s>" } };
    static const struct {
        const char *messages, *prompt;
    } cases[] = {
        { "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"system\",\"content\":\"s\"}", "[user: a\n\ns]" },
        { "{\"role\":\"system\",\"content\":\"r\"},{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":"
          "\"a\"}", "[system: r\n\ns][user: a]" },
        { "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"system\",\"content\":"
          "\"s\"},{\"role\":\"user\",\"content\":\"c\"}", "[user: a][assistant: b][user: s\n\nc]" },
        { "{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"},{\"role\":\"system\",\"content\":"
          "\"s\"}", "[user: a][assistant: b][user: s]" },
    };
    char body[1000];

    (void)state;
    write_actor(&a, false, 1);
    serve(&t, NULL);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(body, sizeof body, "{\"messages\":[%s]}", cases[i].messages);
        json_t *v = test_web_json(t.port, "/apply-template", body, 200);
        assert_string_equal(test_json_text(v, "prompt"), cases[i].prompt);
        json_t *n = test_web_json(t.port, "/v1/messages/count_tokens", body, 200);
        assert_true(json_equal(json_object_get(n, "input_tokens"), json_object_get(v, "count")));
        json_decref(n);
        json_decref(v);
    }
    test_server_stop(&t);
}

static void models_are_told_in_the_form_of_anthropic(void **state)
{
    static const char version[] = "anthropic-version: 2023-06-01\r\n";

    (void)state;
    say("Ok.", "{" USER "}");
    test_reply r = test_web_ask(t.port, "GET", "/v1/models", version, NULL);
    json_t *v = test_reply_json(&r);
    must_have(v, "{\"data\":[{\"type\":\"model\",\"id\":\"tales\",\"display_name\":\"tales\"}],\"has_more\":false,"
                 "\"first_id\":\"tales\",\"last_id\":\"tales\"}", r.body);
    assert_int_equal(strlen(test_json_text(v, "data.0.created_at")), strlen("2026-01-01T00:00:00Z"));
    json_decref(v);
    test_reply_free(&r);
    r = test_web_ask(t.port, "GET", "/v1/models/tales", version, NULL);
    v = test_reply_json(&r);
    must_have(v, "{\"type\":\"model\",\"id\":\"tales\"}", r.body);
    json_decref(v);
    test_reply_free(&r);
    test_server_stop(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_items_of_their_kind),
        cmocka_unit_test(custom_tools_of_a_chat),
        cmocka_unit_test(a_grammar_that_cannot_bind_is_told),
        cmocka_unit_test(tools_of_a_server_are_left_out),
        cmocka_unit_test(text_after_a_call_is_a_message_of_its_own),
        cmocka_unit_test(items_of_every_type_are_read),
        cmocka_unit_test(found_tools_can_be_called),
        cmocka_unit_test(blocks_of_every_type_are_read),
        cmocka_unit_test(tools_of_the_client_are_offered),
        cmocka_unit_test(blocks_keep_their_order),
        cmocka_unit_test(what_a_system_says_later_is_folded),
        cmocka_unit_test(models_are_told_in_the_form_of_anthropic),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
