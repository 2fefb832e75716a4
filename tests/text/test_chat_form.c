/* Tests of what a template is asked (chat_form.h), by templates of published kinds, and of conversations that are brought
 * into its form. */
#include "support/test.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "text/chat_form.h"

enum { OUT_CAP = 1 << 20 };

#define CALLS "{%- for c in m.tool_calls or [] %}"
#define END   "{%- endfor %}"

static rg_jinja *parse(const char *template)
{
    rg_error err = { 0 };
    rg_jinja *j = rg_jinja_parse(template, strlen(template), &err);

    assert_ok(j, err);
    return j;
}

static rg_chat_form form_of(const rg_jinja *j)
{
    rg_error err = { 0 };
    rg_chat_form f;

    assert_ok(rg_chat_form_learn(&f, j, NULL, &err), err);
    return f;
}

/* What a template makes of messages in its own form; to be freed.  NULL: it refuses. */
static char *rendered(const char *template, const char *messages)
{
    rg_jinja *j = parse(template);
    rg_chat_form f = form_of(j);
    rg_error err = { 0 };
    rg_text out;
    json_t *given = json_loads(messages, 0, NULL), *before = json_deep_copy(given);
    json_t *vars = json_object();
    char *text = NULL;

    assert_non_null(given);
    json_t *fitted = rg_chat_form_fit(&f, given, &err);
    assert_ok(fitted, err);
    assert_true(json_equal(given, before)); /* what was given is not changed */
    json_object_set_new(vars, "messages", fitted);
    rg_text_init(&out, OUT_CAP);
    rg_jinja_input input = { .foreign = vars };
    if (rg_jinja_render(j, &input, &out, &err))
        text = rg_strdup(out.bytes.n ? out.bytes.data : "");
    rg_text_fini(&out);
    json_decref(vars);
    json_decref(given);
    json_decref(before);
    rg_jinja_free(j);
    return text;
}

static void gives(const char *template, const char *messages, const char *want)
{
    char *text = rendered(template, messages);

    if (!text || strcmp(text, want) != 0)
        fail_msg("%s\n%s\n%s, and not %s", template, messages, text ? text : "refused", want);
    rg_free(text);
}

#define SAY(content) "[{\"role\": \"user\", \"content\": " content "}]"
#define TEXT(s)      "{\"type\": \"text\", \"text\": \"" s "\"}"

static void content_is_text_or_parts(void **state)
{
    static const char strings[] = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
    static const char trimmed[] = "{% for m in messages %}{{ m.content | trim }}{% endfor %}";
    static const char parts[] = "{% for m in messages %}<{{ m.role }}>{% for p in m.content %}{% if p.type == 'text' %}"
                                "{{ p.text }}{% endif %}{% endfor %}{% endfor %}";
    static const char first[] = "{% for m in messages %}{{ m['content'][0]['text'] }}{% endfor %}";
    static const char strict[] = "{% for m in messages %}{% if m.content is string %}{{ raise_exception('parts!') }}"
                                 "{% endif %}{{ m.content[0].text }}{% endfor %}";
    static const char both[] = "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in "
                               "m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}";
    static const char mixed[] = /* the user's as parts, the system's as text */
        "{% for m in messages %}{% if m.role == 'user' %}{% for p in m.content %}{{ p.text }}{% endfor %}{% else %}"
        "{{ m.content }}{% endif %};{% endfor %}";

    (void)state;
    gives(strings, SAY("\"Hello\""), "<user>Hello");
    gives(strings, SAY("[" TEXT("Hello") ", " TEXT("again") "]"), "<user>Hello\nagain");
    gives(strings, SAY("[\"Hello\"]"), "<user>Hello");
    gives(trimmed, SAY("[" TEXT("Hello") "]"), "Hello");
    gives(parts, SAY("\"Hello\""), "<user>Hello");
    gives(parts, SAY("\"\""), "<user>");
    gives(parts, SAY("[" TEXT("Hello") ", " TEXT("again") "]"), "<user>Helloagain");
    gives(first, SAY("\"Hello\""), "Hello");
    gives(strict, SAY("\"Hello\""), "Hello");
    gives(both, SAY("\"Hello\""), "Hello");
    gives(both, SAY("[" TEXT("Hello") "]"), "[Hello]");
    gives(mixed, "[{\"role\": \"system\", \"content\": [" TEXT("Be") "]}, {\"role\": \"user\", \"content\": \"Hi\"}]", "Be;Hi;");
    /* a part that is no text is the template's to take */
    gives(strings, SAY("[{\"type\": \"image\"}]"), "<user>[{'type': 'image'}]");
    gives(strings, SAY("null"), "<user>None");
}

#define CALL(arguments) "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": "\
                        "[{\"id\": \"c\", \"type\": \"function\", \"function\": {\"name\": \"f\"" arguments "}}]}]"
#define WITH(arguments) CALL(", \"arguments\": " arguments)

static void arguments_are_text_or_object(void **state)
{
    static const char dumped[] = "{% for m in messages %}" CALLS "{{ c.function.arguments | tojson }}" END "{% endfor %}";
    static const char shown[] = "{% for m in messages %}" CALLS "{{ c.function.arguments }}" END "{% endfor %}";
    static const char joined[] = "{% for m in messages %}" CALLS "{{ '>' + c.function.arguments }}" END "{% endfor %}";
    static const char listed[] = "{% for m in messages %}" CALLS "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }};"
                                 "{% endfor %}" END "{% endfor %}";
    static const char either[] = "{% for m in messages %}" CALLS "{% set a = c.function.arguments %}{{ a if a is string else "
                                 "a | tojson }}" END "{% endfor %}";
    static const char *const objects[] = { dumped, either };
    static const char *const nothing[] = { CALL(""), WITH("null"), WITH("\"\""), WITH("\"null\""), WITH("\"{}\""), WITH("{}") };

    (void)state;
    for (size_t i = 0; i < RG_LEN(objects); i++) {
        gives(objects[i], WITH("{\"a\": 1}"), "{\"a\": 1}");
        gives(objects[i], WITH("\"{\\\"a\\\": 1}\""), "{\"a\": 1}");
        for (size_t k = 0; k < RG_LEN(nothing); k++)
            gives(objects[i], nothing[k], "{}");
    }
    gives(shown, WITH("\"{\\\"a\\\":1}\""), "{\"a\":1}"); /* as it came */
    gives(shown, WITH("{\"a\": [1, \"b\"]}"), "{\"a\": [1, \"b\"]}");
    gives(joined, WITH("{\"a\": 1}"), ">{\"a\": 1}");
    for (size_t k = 0; k < RG_LEN(nothing); k++) {
        gives(shown, nothing[k], "{}");
        gives(joined, nothing[k], ">{}");
        gives(listed, nothing[k], "");
    }
    gives(listed, WITH("\"{\\\"a\\\": 1, \\\"b\\\": 2}\""), "a=1;b=2;");
    gives(dumped, WITH("\"not JSON\""), "\"not JSON\"");
}

/* Mistral's: ids of nine letters and digits, of calls and of results. */
static const char nine[] =
    "{% for m in messages %}" CALLS "{% if c.id is not defined or c.id | length != 9 %}{{ raise_exception('nine!') }}{% endif %}"
    "({{ c.id }})" END "{% if m.role == 'tool' %}{% if m.tool_call_id is not defined or m.tool_call_id | length != 9 %}"
    "{{ raise_exception('nine!') }}{% endif %}[{{ m.tool_call_id }}]{% endif %}{% endfor %}";

#define TWO(first, second)                                                                                            \
    "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"\", " \
    "\"tool_calls\": [{\"type\": \"function\"" first ", \"function\": {\"name\": \"f\", " \
    "\"arguments\": {}}}, {\"type\": \"function\"" second \
    ", \"function\": {\"name\": \"f\", \"arguments\": {}}}]}"
#define RESULT(id) ", {\"role\": \"tool\", \"content\": \"y\"" id "}"
#define ID(s)      ", \"id\": \"" s "\""
#define OF(s)      ", \"tool_call_id\": \"" s "\""

/* "(A)(B)[C][D]": the calls differ, and the results are those of the calls in this order. */
static void answers(const char *messages, bool turned)
{
    char *s = rendered(nine, messages);

    if (!s || strlen(s) != 44 || !strncmp(s + 1, s + 12, 9) || strncmp(s + (turned ? 12 : 1), s + 23, 9) != 0 ||
        strncmp(s + (turned ? 1 : 12), s + 34, 9) != 0)
        fail_msg("%s: %s", messages, s ? s : "refused");
    rg_free(s);
}

static void ids_have_the_form_that_is_demanded(void **state)
{
    static const char any[] = "{% for m in messages %}" CALLS "({{ c.id }})" END "{% if m.tool_call_id %}[{{ m.tool_call_id }}]"
                              "{% endif %}{% endfor %}";

    (void)state;
    answers(TWO(ID("call_abcdefghijklmnopqrstuvwx"), ID("toolu_01")) RESULT(OF("call_abcdefghijklmnopqrstuvwx"))
            RESULT(OF("toolu_01")) "]", false);
    answers(TWO(ID("a"), ID("b")) RESULT(OF("b")) RESULT(OF("a")) "]", true);
    answers(TWO(ID("call_-001"), ID("")) RESULT(OF("call_-001")) RESULT(OF("")) "]", false); /* nine, but no letter */
    answers(TWO("", "") RESULT("") RESULT("") "]", false); /* results come in the calls' order */
    answers(TWO(ID("x"), ", \"id\": null") RESULT(OF("x")) RESULT("") "]", false);
    gives(nine, TWO(ID("abcdefghi"), ID("ABC123xyz")) RESULT(OF("ABC123xyz")) RESULT(OF("abcdefghi")) "]",
          "(abcdefghi)(ABC123xyz)[ABC123xyz][abcdefghi]"); /* as they came */
    gives(any, TWO(ID("call_1"), "") RESULT(OF("call_1")) "]", "(call_1)()[call_1]");
    /* the same id becomes the same one in any conversation, so that a prefix of it stays one */
    char *a = rendered(nine, TWO(ID("call_1"), ID("call_2")) "]"), *b = rendered(nine, TWO(ID("call_0"), ID("call_1")) "]");
    assert_true(a && b && !strncmp(a + 1, b + 12, 9));
    rg_free(a);
    rg_free(b);
}

/* A template that refuses all that it is asked leaves conversations as they are. */
static void a_template_that_refuses_everything(void **state)
{
    rg_jinja *j = parse("{{ raise_exception('no') }}");
    rg_chat_form f = form_of(j), none = { .id_chars = 0 };

    (void)state;
    assert_memory_equal(&f, &none, sizeof f);
    rg_jinja_free(j);
}

static bool deny(void *arg, size_t bytes)
{
    long *left = arg;

    (void)bytes;
    return (*left)-- != 0;
}

static void every_allocation(void **state)
{
    json_t *messages = json_loads(TWO(ID("call_1"), "") RESULT("") RESULT(OF("x")) "]", 0, NULL);
    rg_jinja *j = parse(nine);
    rg_chat_form f = form_of(j), again;
    long n_failed = 0;

    (void)state;
    for (int what = 0; what < 2; what++)
        for (long at = 0;; at++) {
            rg_error err = { 0 };
            size_t live = rg_mem_count().n_live;
            long left = at;
            rg_mem_set_gate(deny, &left);
            json_t *list = what ? rg_chat_form_fit(&f, messages, &err) : NULL;
            bool ok = what ? list != NULL : rg_chat_form_learn(&again, j, NULL, &err);
            rg_mem_set_gate(NULL, NULL);
            json_decref(list);
            assert_int_equal(rg_mem_count().n_live, live);
            if (left >= 0)
                break;
            if (!ok)
                assert_int_equal(err.code, RG_E_MEMORY);
            else
                assert_memory_equal(&again, &f, sizeof f); /* a spare allocation, which was not needed */
            n_failed += !ok;
        }
    assert_true(n_failed > 50);
    json_decref(messages);
    rg_jinja_free(j);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_is_text_or_parts),
        cmocka_unit_test(arguments_are_text_or_object),
        cmocka_unit_test(ids_have_the_form_that_is_demanded),
        cmocka_unit_test(a_template_that_refuses_everything),
        cmocka_unit_test(every_allocation),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
