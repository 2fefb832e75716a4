/* test_talk_live.c -- models that say a script, under templates of several families, with marks as special tokens and as
 * plain bytes: every API gives the same parts, whole and streamed, and a call that is asked for comes in the family's marks. */
#define _GNU_SOURCE 1
#include "server/actor.h"

#include "base/json.h"
#include "server/core.h"

/* ---- the same of every API ----------------------------------------------------------------------------------------- */

#define SCHEMA "{\"type\":\"object\",\"properties\":{\"town\":{\"type\":\"string\"},\"days\":{\"type\":\"integer\"}}}"
#define ASK    "[{\"role\":\"user\",\"content\":\"Hi\"}]"

static const char *const bodies[3] = {
    "{\"messages\":" ASK ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":" SCHEMA "}}],"
    "\"temperature\":0,\"max_tokens\":500%s}",
    "{\"input\":" ASK ",\"tools\":[{\"type\":\"function\",\"name\":\"weather\",\"parameters\":" SCHEMA "}],\"temperature\":0,"
    "\"max_output_tokens\":500%s}",
    "{\"messages\":" ASK ",\"tools\":[{\"name\":\"weather\",\"input_schema\":" SCHEMA "}],\"temperature\":0,\"max_tokens\":500%s}",
};
static const char *const paths[3] = { "/v1/chat/completions", "/v1/responses", "/v1/messages" };

typedef struct parts {
    rg_buf reasoning, content, name, arguments;
} parts;

static void add(rg_buf *b, const json_t *v)
{
    if (json_is_string(v))
        rg_buf_add(b, json_string_value(v), json_string_length(v));
}

/* What a chunk or event of a stream adds, of any API. */
static void take_event(parts *p, const json_t *v)
{
    const char *type = json_string_value(json_object_get(v, "type"));
    json_t *delta = json_object_get(v, "delta"), *choice = json_array_get(json_object_get(v, "choices"), 0);
    json_t *block = json_object_get(v, "content_block"), *item = json_object_get(v, "item");

    if (choice) {
        json_t *d = json_object_get(choice, "delta"),
               *f = json_object_get(json_array_get(json_object_get(d, "tool_calls"), 0), "function");
        add(&p->reasoning, json_object_get(d, "reasoning_content"));
        add(&p->content, json_object_get(d, "content"));
        add(&p->name, json_object_get(f, "name"));
        add(&p->arguments, json_object_get(f, "arguments"));
    } else if (type && json_is_object(delta)) {
        add(&p->reasoning, json_object_get(delta, "thinking"));
        add(&p->content, json_object_get(delta, "text"));
        add(&p->arguments, json_object_get(delta, "partial_json"));
    } else if (type && json_is_string(delta)) {
        add(strstr(type, "reasoning") ? &p->reasoning : strstr(type, "arguments") ? &p->arguments : &p->content, delta);
    }
    if (block)
        add(&p->name, json_object_get(block, "name"));
    if (type && item && !strcmp(type, "response.output_item.added"))
        add(&p->name, json_object_get(item, "name"));
}

static void take_stream(parts *p, const char *body, int *n_arguments)
{
    for (const char *s = body; (s = strstr(s, "data: ")); s += 6) {
        json_t *v = json_loadb(s + 6, strcspn(s + 6, "\n"), 0, NULL);
        size_t before = p->arguments.n;
        take_event(p, v);
        *n_arguments += p->arguments.n > before;
        json_decref(v);
    }
}

static void take_whole(parts *p, int api, json_t *v)
{
    json_t *m = json_object_get(json_array_get(json_object_get(v, "choices"), 0), "message"), *item;
    json_t *f = json_object_get(json_array_get(json_object_get(m, "tool_calls"), 0), "function");
    size_t i;

    add(&p->reasoning, json_object_get(m, "reasoning_content"));
    add(&p->content, json_object_get(m, "content"));
    add(&p->name, json_object_get(f, "name"));
    add(&p->arguments, json_object_get(f, "arguments"));
    json_array_foreach(json_object_get(v, api == 1 ? "output" : "content"), i, item)
    {
        const char *type = json_string_value(json_object_get(item, "type"));
        json_t *part = json_array_get(json_object_get(item, "content"), 0), *input = json_object_get(item, "input");
        char *text = input ? rg_json_dump(input, JSON_COMPACT) : NULL;
        add(&p->reasoning, json_object_get(item, "thinking"));
        add(&p->content, json_object_get(item, "text"));
        add(type && !strcmp(type, "reasoning") ? &p->reasoning : &p->content, json_object_get(part, "text"));
        add(&p->name, json_object_get(item, "name"));
        add(&p->arguments, json_object_get(item, "arguments"));
        if (text)
            rg_buf_str(&p->arguments, text);
        rg_free(text);
    }
}

static const char *show(parts *p, char out[2000])
{
    json_t *v = p->arguments.n ? json_loads(p->arguments.data, 0, NULL) : NULL;
    char *s = v ? rg_json_dump(v, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

    snprintf(out, 2000, "R(%s)C(%s)T(%s:%s)", p->reasoning.n ? p->reasoning.data : "", p->content.n ? p->content.data : "",
             p->name.n ? p->name.data : "",
             s                ? s
             : p->arguments.n ? p->arguments.data
                              : "");
    rg_free(s);
    json_decref(v);
    rg_buf_fini(&p->reasoning);
    rg_buf_fini(&p->content);
    rg_buf_fini(&p->name);
    rg_buf_fini(&p->arguments);
    return out;
}

static parts new_parts(void)
{
    parts p;

    rg_buf_init(&p.reasoning, 1 << 16);
    rg_buf_init(&p.content, 1 << 16);
    rg_buf_init(&p.name, 1 << 16);
    rg_buf_init(&p.arguments, 1 << 16);
    return p;
}

static void ask(const test_server *t, int api, const char *more, const char *want)
{
    char body[2000], got[2000];
    bool stream = strstr(more, "stream");
    int n_arguments = 0;
    parts p = new_parts();

    snprintf(body, sizeof body, bodies[api], more);
    test_reply r = test_web_ask(t->port, "POST", paths[api], NULL, body);
    if (r.status != 200)
        fail_msg("%s: %s", paths[api], r.body);
    if (stream) {
        take_stream(&p, r.body, &n_arguments);
    } else {
        json_t *v = json_loads(r.body, 0, NULL);
        take_whole(&p, api, v);
        json_decref(v);
    }
    if (stream && strstr(want, "Oslo"))
        assert_true(n_arguments > 0);
    if (strcmp(show(&p, got), want) != 0)
        fail_msg("%s%s (%s)\n  got  %s\n  want %s\n%s", paths[api], more, t->s->first->use.talk->name, got, want, r.body);
    test_reply_free(&r);
}

/* ---- families ------------------------------------------------------------------------------------------------------ */

#define LOOP(call, prompt)                                                                                                         \
    "{%- if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}{%- for m in messages %}{{ '\\n' + m.role + ': ' }}{{ "          \
    "m.content }}"                                                                                                                 \
    "{%- for c in m.tool_calls or [] %}" call "{%- endfor %}{%- endfor %}" prompt
#define NAME   "{{ c.function.name }}"
#define OBJECT "{{ c.function.arguments | tojson }}"
#define WANT   "R(Hm.)C(Ok.)T(weather:{\"days\":3,\"town\":\"Oslo\"})"
#define ARGS   "{\"town\": \"Oslo\", \"days\": 3}"

static const struct {
    const char *family;
    actor a;
    const char *want;
    const char *forced; /* what comes where a call is asked for and the script is said; NULL: the script has text before it */
} families[] = {
    { "harmony",
      { LOOP("<|start|>assistant<|channel|>commentary to=functions." NAME "<|message|>" OBJECT "<|call|>", "<|start|>assistant"),
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json"
        "<|message|>" ARGS,
        { "<|call|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|constrain|>" } },
      "R(Hm.)C()T(weather:{\"days\":3,\"town\":\"Oslo\"})",
      "R(Hm.)C()T(weather:{\"days\":3,\"town\":\"Oslo\"})" },
    { "harmony",
      { LOOP("", "<|start|>assistant"),
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final"
        "<|message|>It is sunny.",
        { "<|return|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>" } },
      "R(Hm.)C(It is sunny.)T(:)",
      NULL },
    { "gemma4",
      { LOOP("<|tool_call>call:" NAME "{}<tool_call|>", "<|turn>model\n"),
        "<|channel>thought\nHm.\n<channel|>Ok.<|tool_call>call:weather{town:<|\"|>Oslo<|\"|>,days:3}<tool_call|>",
        { "<turn|>", "<|turn>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>" } },
      WANT,
      NULL },
    { "gemma4",
      { LOOP("<|tool_call>call:" NAME "{}<tool_call|>", "<|turn>model\n"),
        "<|tool_call>call:weather{town:<|\"|>Oslo<|\"|>,days:3}<tool_call|>",
        { "<turn|>", "<|turn>", "<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>", "<|\"|>" } },
      "R()C()T(weather:{\"days\":3,\"town\":\"Oslo\"})",
      "R()C()T(weather:{\"days\":3,\"town\":\"Oslo\"})" },
    { "mistral",
      { LOOP("[TOOL_CALLS]" NAME "[ARGS]" OBJECT, "[/INST]"),
        "[THINK]Hm.[/THINK]Ok.[TOOL_CALLS]weather[ARGS]" ARGS,
        { "</s>", "[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]", "[/INST]" } },
      WANT,
      NULL },
    { "hermes",
      { LOOP("<tool_call>\n{\"name\": \"" NAME "\", \"arguments\": " OBJECT "}\n</tool_call>", "<|im_start|>assistant\n"),
        "<think>\nHm.\n</think>\n\nOk.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": " ARGS "}\n</tool_call>",
        { "<|im_end|>", "<|im_start|>", "<tool_call>", "</tool_call>", "<think>", "</think>" } },
      WANT,
      NULL },
    { "qwen3_coder",
      { LOOP("<tool_call>\n<function=" NAME ">\n</function>\n</tool_call>", "<|im_start|>assistant\n"),
        "<think>Hm.</think>Ok.\n<tool_call>\n<function=weather>\n<parameter=town>\nOslo\n</parameter>\n<parameter=days>\n3\n</"
        "parameter>\n"
        "</function>\n</tool_call>",
        { "<|im_end|>", "<|im_start|>", "<think>", "</think>" } },
      WANT,
      NULL },
    { "deepseek_v31",
      { LOOP("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>" NAME "<｜tool▁sep｜>" OBJECT "<｜tool▁call▁end｜>"
             "<｜tool▁calls▁end｜>",
             "<｜Assistant｜><think>"),
        "Hm.</think>Ok.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" ARGS
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        { "<｜end｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
          "<｜tool▁calls▁end｜>", "<think>", "</think>" } },
      WANT,
      NULL },
    { "kimi_k2",
      { LOOP("<|tool_calls_section_begin|><|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>" OBJECT
             "<|tool_call_end|><|tool_calls_section_end|>",
             "<|im_assistant|>"),
        "<think>Hm.</think>Ok.<|tool_calls_section_begin|>"
        "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>" ARGS "<|tool_call_end|><|tool_calls_section_end|>",
        { "<|im_end|>", "<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
          "<|tool_calls_section_end|>" } },
      WANT,
      NULL },
};

static int prompt_of(const char *tool_format)
{
    char body[2000];
    test_server t;

    serve(&t, tool_format);
    snprintf(body, sizeof body, bodies[0], "");
    json_t *v = test_web_json(t.port, "/apply-template", body, 200);
    int n = (int)json_integer_value(json_object_get(v, "count"));
    json_decref(v);
    test_server_stop(&t);
    return n;
}

static void every_api_gives_the_same_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(families); i++)
        for (int bytes = 0; bytes < 2; bytes++) {
            const actor *a = &families[i].a;
            test_server t;
            write_actor(a, bytes, 1);
            write_actor(a, bytes, prompt_of(NULL) - 1);
            serve(&t, bytes ? families[i].family : NULL);
            assert_string_equal(t.s->first->use.talk->name, families[i].family);
            for (int api = 0; api < 3; api++) {
                ask(&t, api, "", families[i].want);
                ask(&t, api, ",\"stream\":true", families[i].want);
            }
            if (families[i].forced)
                ask(&t, 0, ",\"tool_choice\":\"required\"", families[i].forced);
            test_server_stop(&t);
        }
}

/* ---- history ------------------------------------------------------------------------------------------------------- */

#define PAST                                                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":"      \
    "\"call_a\","                                                                                                                  \
    "\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":\"{}\"}},{\"id\":\"call_b\",\"type\":\"function\","    \
    "\"function\":{"                                                                                                               \
    "\"name\":\"time\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_b\",\"content\":\"8\"},{\"role\":"      \
    "\"tool\","                                                                                                                    \
    "\"tool_call_id\":\"call_a\",\"content\":\"dry\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\"}}]}"

static void check_prompt(const char *template, const char *tool_format, const char *const *has, bool warned)
{
    const actor a = { template, "x", { "</s>" } };
    test_server t;

    write_actor(&a, false, 1);
    serve(&t, tool_format);
    test_reply r = test_web_ask(t.port, "POST", "/apply-template", NULL, PAST);
    assert_int_equal(r.status, 200);
    json_t *v = json_loads(r.body, 0, NULL);
    const char *prompt = json_string_value(json_object_get(v, "prompt"));
    for (; *has; has++)
        if (!strstr(prompt, *has))
            fail_msg("no %s in: %s", *has, prompt);
    assert_int_equal(test_reply_header(&r, "X-Ridge-Warning") != NULL, warned);
    json_decref(v);
    test_reply_free(&r);
    test_server_stop(&t);
}

static void histories_have_what_templates_want(void **state)
{
    static const char kimi[] =
        "{{ tools }}{% for m in messages %}{{ m.role }} {{ m.content }}{% if m.tool_call_id %}({{ m.tool_call_id }}){% "
        "endif %}{% for c in m.tool_calls or [] %}<|tool_call_begin|>{{ c.id }}<|tool_call_argument_begin|>{{ c.function.arguments "
        "| tojson }}"
        "{% endfor %}{% endfor %}";
    static const char plain[] = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    static const char *const numbered[] = { "<|tool_call_begin|>functions.weather:0<", "<|tool_call_begin|>functions.time:1<",
                                            "tool 8(functions.time:1)", "tool dry(functions.weather:0)", NULL };
    static const char *const told[] = {
        "<tools>\n{\"name\":\"weather\"}\n</tools>", "\"arguments\": {...}}\n</tool_call>\n\nHi",
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\"",
        "user: <tool_response>\n8\n</tool_response>\n<tool_response>\ndry\n</tool_response>", NULL
    };

    (void)state;
    check_prompt(kimi, NULL, numbered, false);
    check_prompt(plain, NULL, told, true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_api_gives_the_same_parts),
        cmocka_unit_test(histories_have_what_templates_want),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
