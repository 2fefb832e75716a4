/* test_templates.c -- chat templates of published kinds over the shipped model: their reasons, ids of calls, parts, and one
 * that cannot be parsed. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <sys/stat.h>

#include "base/buf.h"

static char folder[600];

static void write_file(const char *name, const char *text)
{
    char path[700];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
    if (text)
        test_write_text(path, text);
}

/* The shipped model with another template. */
static void write_model(const char *template)
{
    static const char *const files[] = { "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
                                         "tokenizer_config.json" };
    char path[700], from[700];

    snprintf(folder, sizeof folder, "%s/template_model", RG_BUILD_DIR);
    mkdir(folder, 0777);
    for (size_t i = 0; i < RG_LEN(files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        snprintf(from, sizeof from, "%s/models/tales-1m/%s", RG_SOURCE_DIR, files[i]);
        unlink(path);
        assert_int_equal(symlink(from, path), 0);
    }
    write_file("chat_template.jinja", template);
}

/* choose: of the model's templates, or a file; NULL: the model's choice. */
static void serve(test_server *t, const char *template, const char *choose)
{
    rg_server_options o = test_server_options();
    rg_options e = rg_options_default();
    rg_error err = { 0 };

    write_model(template);
    e.max_seq_len = 512;
    e.n_threads = 1;
    e.kv_bytes = (size_t)16 << 20;
    e.chat_template = choose;
    rg_engine *engine = rg_open(folder, &e, &err);
    assert_ok(engine, err);
    test_server_start_with(t, &o, engine);
}

static void the_reason_reaches_the_client(void **state)
{
    static const char template[] =
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system role,\\n\\u001b[31mplease\\u009b') }}{% endif %}"
        "{{ messages[0].content }}";
    test_server t;

    (void)state;
    serve(&t, template, NULL);
    json_t *v = test_web_json(t.port, "/v1/chat/completions", "{\"max_tokens\": 1, \"messages\": [{\"role\": \"system\", "
                              "\"content\": \"a\"}, {\"role\": \"user\", \"content\": \"b\"}]}", 400);
    const char *message = test_json_text(v, "error.message");
    if (!strstr(message, "line 1: no system role,  [31mplease  "))
        fail_msg("%s", message);
    json_decref(v);
    test_server_stop(&t);
}

/* A reason that holds the client's own text stays short. */
static void a_long_reason_is_cut(void **state)
{
    char body[4096];
    test_server t;
    rg_buf long_text;

    (void)state;
    serve(&t, "{{ raise_exception('not ' ~ messages[0].content) }}", NULL);
    rg_buf_init(&long_text, 4096);
    for (int i = 0; i < 1000; i++)
        rg_buf_str(&long_text, "\xc3\xa4");
    snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"%s\"}]}", long_text.data);
    json_t *v = test_web_json(t.port, "/apply-template", body, 400);
    assert_true(strlen(test_json_text(v, "error.message")) < 500);
    json_decref(v);
    rg_buf_fini(&long_text);
    test_server_stop(&t);
}

#define TOOLS "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"add\", \"parameters\": {\"type\": \"object\", " \
              "\"properties\": {\"a\": {\"type\": \"boolean\"}}, \"required\": [\"a\"], \"additionalProperties\": false}}}]"

/* The prompt of a second turn that answers this call. */
static json_t *second_turn(const test_server *t, const char *call_id)
{
    json_t *body = json_loads("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], " TOOLS "}", 0, NULL);
    json_t *messages = json_object_get(body, "messages");

    json_array_append_new(messages, json_pack("{s:s, s:n, s:[{s:s, s:s, s:{s:s, s:s}}]}", "role", "assistant", "content",
                                              "tool_calls", "id", call_id, "type", "function", "function", "name", "add",
                                              "arguments", "{\"a\":true}"));
    json_array_append_new(messages, json_pack("{s:s, s:s, s:s}", "role", "tool", "tool_call_id", call_id, "content", "7"));
    char *text = json_dumps(body, 0);
    json_t *v = test_web_json(t->port, "/apply-template", text, 200);
    json_decref(body);
    rg_free_small(text);
    return v;
}

static void ids_of_calls_have_nine_characters(void **state)
{
    static const char template[] =
        "@{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('nine!') }}"
        "{% endif %}({{ c.id }}){% endfor %}{% if m.role == 'tool' %}{% if m.tool_call_id | length != 9 %}"
        "{{ raise_exception('nine!') }}{% endif %}[{{ m.tool_call_id }}]{% endif %}{% endfor %}";
    static const char *const foreign[] = { "call_0123456789abcdefghijklmn", "toolu_1", "x" };
    char want[64];
    test_server t;

    (void)state;
    serve(&t, template, NULL);
    json_t *v = test_web_json(t.port, "/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
                              "\"tool_choice\": \"required\", \"max_tokens\": 60, " TOOLS "}", 200);
    const char *id = test_json_text(v, "choices.0.message.tool_calls.0.id");
    assert_int_equal(strlen(id), 9);
    assert_int_equal(strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789"), 9);
    json_t *next = second_turn(&t, id);
    snprintf(want, sizeof want, "@(%s)[%s]", id, id);
    assert_string_equal(test_json_text(next, "prompt"), want);
    json_decref(next);
    json_decref(v);
    for (size_t i = 0; i < RG_LEN(foreign); i++) {
        v = second_turn(&t, foreign[i]);
        const char *s = test_json_text(v, "prompt");
        assert_true(strlen(s) == 23 && !strncmp(s + 2, s + 13, 9));
        json_decref(v);
    }
    test_server_stop(&t);
}

/* Of other templates ids are the usual ones, and stay as they are. */
static void other_ids_stay(void **state)
{
    static const char template[] = "@{% for m in messages %}{% for c in m.tool_calls or [] %}({{ c.id }}){% endfor %}"
                                   "{% if m.role == 'tool' %}[{{ m.tool_call_id }}]{% endif %}{% endfor %}";
    test_server t;

    (void)state;
    serve(&t, template, NULL);
    json_t *v = test_web_json(t.port, "/v1/chat/completions", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
                              "\"tool_choice\": \"required\", \"max_tokens\": 60, " TOOLS "}", 200);
    const char *id = test_json_text(v, "choices.0.message.tool_calls.0.id");
    assert_true(strlen(id) == 29 && !strncmp(id, "call_", 5));
    json_decref(v);
    v = second_turn(&t, "toolu_1");
    assert_string_equal(test_json_text(v, "prompt"), "@(toolu_1)[toolu_1]");
    json_decref(v);
    test_server_stop(&t);
}

static void parts_reach_a_template_of_parts(void **state)
{
    static const char template[] = "{%- for m in messages %}<{{ m.role }}>{%- for p in m.content %}{%- if p.type == 'text' %}"
                                   "{{ p.text }}{%- endif %}{%- endfor %}{%- endfor %}";
    test_server t;

    (void)state;
    serve(&t, template, NULL);
    json_t *v = test_web_json(t.port, "/apply-template", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}", 200);
    assert_string_equal(test_json_text(v, "prompt"), "<user>Hello");
    json_decref(v);
    v = test_web_json(t.port, "/apply-template", "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", "
                      "\"text\": \"Hello\"}, {\"type\": \"text\", \"text\": \"again\"}]}]}", 200);
    const char *s = test_json_text(v, "prompt");
    assert_true(strstr(s, "Hello") && strstr(s, "again") && !strstr(strstr(s, "Hello") + 1, "Hello"));
    json_decref(v);
    test_server_stop(&t);
}

/* Arguments as clients of all kinds send them. */
static void arguments_may_be_missing(void **state)
{
    static const char template[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}"
                                   "{% endfor %}{% endfor %}";
    static const struct { const char *given, *want; } cases[] = {
        { "", "{}" }, { ", \"arguments\": null", "{}" }, { ", \"arguments\": \"\"", "{}" }, { ", \"arguments\": \"null\"", "{}" },
        { ", \"arguments\": {\"a\": 1}", "{\"a\": 1}" }, { ", \"arguments\": \"{\\\"a\\\":1}\"", "{\"a\": 1}" },
    };
    char body[600];
    test_server t;

    (void)state;
    serve(&t, template, NULL);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", "
                 "\"tool_calls\": [{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"f\"%s}}]}]}", cases[i].given);
        json_t *v = test_web_json(t.port, "/apply-template", body, 200);
        assert_string_equal(test_json_text(v, "prompt"), cases[i].want);
        json_decref(v);
    }
    test_server_stop(&t);
}

static void a_template_that_does_not_parse_ends_chat_only(void **state)
{
    static const char chat[] = "{\"max_tokens\": 1, \"messages\": [{\"role\": \"user\", \"content\": \"b\"}]}";
    test_server t;

    (void)state;
    serve(&t, "{% for m in messages %}{{ m.content }}{% endfor %}\n{% frobnicate %}", NULL);
    assert_int_equal(test_web_status(t.port, "/v1/completions", "{\"prompt\": \"Once\", \"max_tokens\": 1}"), 200);
    assert_int_equal(test_web_status(t.port, "/v1/embeddings", "{\"input\": \"Once\"}"), 200);
    json_t *v = test_web_json(t.port, "/v1/chat/completions", chat, 400);
    const char *message = test_json_text(v, "error.message");
    if (!strstr(message, "chat_template.jinja") || !strstr(message, "line 2"))
        fail_msg("%s", message);
    json_decref(v);
    test_server_stop(&t);
    write_file("other.jinja", "other: {{ messages[0].content }}");
    char other[700];
    snprintf(other, sizeof other, "%s/other.jinja", folder);
    serve(&t, "{% frobnicate %}", other);
    v = test_web_json(t.port, "/apply-template", chat, 200);
    assert_string_equal(test_json_text(v, "prompt"), "other: b");
    json_decref(v);
    test_server_stop(&t);
}

/* What is chosen and cannot be used is an error at once. */
static void a_choice_that_is_none(void **state)
{
    rg_options e = rg_options_default();
    rg_error err = { 0 };

    (void)state;
    write_model("ours");
    write_file("broken.jinja", "{% frobnicate %}");
    e.n_threads = 1;
    e.kv_bytes = (size_t)16 << 20;
    e.chat_template = "no_such";
    assert_null(rg_open(folder, &e, &err));
    assert_non_null(strstr(err.text, "'no_such'"));
    char path[700];
    snprintf(path, sizeof path, "%s/broken.jinja", folder);
    e.chat_template = path;
    assert_null(rg_open(folder, &e, &err));
    assert_non_null(strstr(err.text, "broken.jinja: chat template, line 1"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_reason_reaches_the_client),
        cmocka_unit_test(a_long_reason_is_cut),
        cmocka_unit_test(ids_of_calls_have_nine_characters),
        cmocka_unit_test(other_ids_stay),
        cmocka_unit_test(parts_reach_a_template_of_parts),
        cmocka_unit_test(arguments_may_be_missing),
        cmocka_unit_test(a_template_that_does_not_parse_ends_chat_only),
        cmocka_unit_test(a_choice_that_is_none),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
