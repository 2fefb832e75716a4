/* test_answer.c -- reasoning, words and calls of tools told apart, wherever the text is cut. */
#define _GNU_SOURCE 1
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/answer.h"

static const char tools_json[] = "[{\"type\":\"function\",\"function\":{\"name\":\"weather\"}},"
                                 "{\"type\":\"function\",\"function\":{\"name\":\"time\"}},"
                                 "{\"type\":\"function\",\"function\":{\"name\":\"say\",\"parameters\":{\"properties\":{"
                                 "\"words\":{\"type\":\"string\"}}}}}]";

/* text -> "R(reasoning)C(content)T(name:arguments)..." */
static const struct {
    const char *text, *want;
    bool tools, inside;
} cases[] = {
    { "Hello.", "C(Hello.)", false, false },
    { "  Hello. ", "C(  Hello. )", false, false },
    { "<think>\nhm, so\n</think>\n\nYes.", "R(hm, so)C(Yes.)", false, false },
    { "hm, so\n</think>\n\nYes.", "R(hm, so)C(Yes.)", false, true },
    { "never ends", "R(never ends)C()", false, true },
    { "<think></think>Yes.", "C(Yes.)", false, false },
    { "a <think> b </think>", "C(a <think> b </think>)", false, false },
    { "<thin", "C(<thin)", false, false },
    { "<", "C(<)", true, false },
    { "<tool_call>{}</tool_call>", "C(<tool_call>{}</tool_call>)", false, false },
    { "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\": \"Oslo\"}}\n</tool_call>",
      "C()T(weather:{\"town\":\"Oslo\"})", true, false },
    { "Let me see.\n<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>\n<tool_call>{\"name\":\"time\","
      "\"arguments\":{\"z\":1}}</tool_call>", "C(Let me see.)T(weather:{})T(time:{\"z\":1})", true, false },
    { "<think>why</think><tool_call>{\"name\":\"time\"}</tool_call>", "R(why)C()T(time:{})", true, false },
    { "<tool_call>no json</tool_call> after", "C(<tool_call>no json</tool_call> after)", true, false },
    { "<tool_call>{\"name\":\"time\",\"arguments\":{}}", "C()T(time:{})", true, false },
    { "<tool_call>{\"name\":\"ti", "C(<tool_call>{\"name\":\"ti)", true, false },
    { "<tool_call>\n<function=weather>\n<parameter=town>\nOslo\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n"
      "</tool_call>", "C()T(weather:{\"town\":\"Oslo\",\"days\":3})", true, false },
    { "<function=say>\n<parameter=words>\n12\n</parameter>\n<parameter=more>\n12\n</parameter>\n</function>",
      "C()T(say:{\"words\":\"12\",\"more\":12})", true, false },
    { "<function=say><parameter=words>\"a\\n\"</parameter></function>", "C()T(say:{\"words\":\"a\\n\"})", true, false },
    { "<function=weather>{\"town\": \"Oslo\"}</function>", "C()T(weather:{\"town\": \"Oslo\"})", true, false },
    { "{\"name\": \"weather\", \"parameters\": {\"town\": \"Oslo\"}}", "C()T(weather:{\"town\":\"Oslo\"})", true, false },
    { "{\"name\": \"nobody\", \"parameters\": {}}", "C({\"name\": \"nobody\", \"parameters\": {}})", true, false },
    { "{\"name\": \"weather\", \"parameters\": {}}; {\"name\": \"time\", \"parameters\": {}}",
      "C()T(weather:{})T(time:{})", true, false },
    { "[{\"name\":\"time\",\"arguments\":\"{}\"}]", "C()T(time:{})", true, false },
    { "{\"a\": 1}", "C({\"a\": 1})", true, false },
    { "[1, 2]", "C([1, 2])", true, false },
    { "[Taken as it is", "C([Taken as it is)", true, false },
    { "<|python_tag|>{\"name\":\"time\",\"parameters\":{}}", "C()T(time:{})", true, false },
    { "[TOOL_CALLS] [{\"name\": \"time\", \"arguments\": {\"a\": [1]}}]", "C()T(time:{\"a\":[1]})", true, false },
    { "[TOOL_CALLS]time{\"a\": 1}[TOOL_CALLS]weather[ARGS]{}", "C()T(time:{\"a\": 1})T(weather:{})", true, false },
    { "[TOOL_CALLS]time", "C([TOOL_CALLS]time)", true, false },
    { "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function"
      "<｜tool▁sep｜>time\n```json\n{\"a\":1}\n```<｜tool▁call▁end｜>"
      "<｜tool▁calls▁end｜>", "C()T(time:{\"a\":1})", true, false },
    { "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>time"
      "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁call▁begin｜>weather"
      "<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", "C()T(time:{})T(weather:{})", true, false },
};

static void show(const rg_answer *a, rg_buf *out)
{
    rg_buf_reset(out);
    if (a->reasoning.n)
        rg_buf_printf(out, "R(%s)", a->reasoning.data);
    rg_buf_printf(out, "C(%s)", a->content.n ? a->content.data : "");
    for (int i = 0; i < a->n_calls; i++)
        rg_buf_printf(out, "T(%s:%s)", a->call[i].name, a->call[i].arguments);
}

/* What is told apart, into got; the work that it took. */
static uint64_t feed_in_pieces(const char *text, size_t first, size_t each, const json_t *tools, bool inside,
                               rg_buf *got)
{
    size_t n = strlen(text), i = first < n ? first : n;
    rg_answer a;

    rg_answer_init(&a, tools, inside, 1 << 24);
    rg_answer_feed(&a, text, i);
    for (; i < n; i += each)
        rg_answer_feed(&a, text + i, n - i < each ? n - i : each);
    rg_answer_end(&a);
    assert_false(a.failed);
    show(&a, got);
    uint64_t work = a.work;
    rg_answer_fini(&a);
    return work;
}

static void cut_anywhere_it_is_the_same(void **state)
{
    json_t *tools = json_loads(tools_json, 0, NULL);
    rg_buf got;

    (void)state;
    rg_buf_init(&got, 1 << 20);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        size_t n = strlen(cases[i].text);
        for (size_t first = 0; first <= n; first++)
            for (size_t each = 1; each <= n + 1; each += each < 4 ? 1 : n) {
                feed_in_pieces(cases[i].text, first, each, cases[i].tools ? tools : NULL, cases[i].inside, &got);
                if (strcmp(got.data, cases[i].want) != 0)
                    fail_msg("case %zu cut at %zu by %zu:\n  %s\n  %s", i, first, each, got.data, cases[i].want);
            }
    }
    rg_buf_fini(&got);
    json_decref(tools);
}

/* What has been given out stays: what a stream has sent cannot be taken back. */
static void content_only_grows(void **state)
{
    json_t *tools = json_loads(tools_json, 0, NULL);

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_answer a;
        char before[1024] = "";
        rg_answer_init(&a, cases[i].tools ? tools : NULL, cases[i].inside, 1 << 20);
        for (const char *p = cases[i].text; *p; p++) {
            rg_answer_feed(&a, p, 1);
            assert_true(a.content.n >= strlen(before));
            assert_memory_equal(a.content.data ? a.content.data : "", before, strlen(before));
            snprintf(before, sizeof before, "%s", a.content.n ? a.content.data : "");
        }
        rg_answer_fini(&a);
    }
    json_decref(tools);
}

/* The work is linear in the text, whatever is written: many of each, byte by byte. */
static void hostile_texts_take_linear_work(void **state)
{
    static const char *const units[] = { " ", "<", "<tool_call>", "</think>", "<think>", "{", "[", "[TOOL_CALLS]", "\n<",
                                         "<function=", "{\"name\":\"time\"}", "<tool_call>{", "｜" };
    json_t *tools = json_loads(tools_json, 0, NULL);
    rg_buf got;

    (void)state;
    rg_buf_init(&got, 1 << 24);
    for (size_t i = 0; i < RG_LEN(units); i++) {
        size_t n = (size_t)test_scale(1 << 18), k = strlen(units[i]);
        char *s = malloc(n + k + 1);
        assert_non_null(s);
        for (size_t j = 0; j < n; j += k)
            memcpy(s + j, units[i], k);
        s[n] = 0;
        uint64_t work = feed_in_pieces(s, 0, 1, tools, i % 2, &got);
        if (work > 1000 * n) /* at most some blanks and a mark are looked at again, for each way to mark a call */
            fail_msg("'%s': %.0f bytes of work for each", units[i], (double)work / (double)n);
        free(s);
    }
    rg_buf_fini(&got);
    json_decref(tools);
}

/* The beginning of an object, closed where all of its values are whole. */
static void cut_objects_are_closed(void **state)
{
    static const char *const cut[][2] = {
        { "{", "{}" }, { "{\"a", "{}" }, { "{\"a\"", "{}" }, { "{\"a\":", "{}" }, { "{\"a\":1", "{}" },
        { "{\"a\":1,", "{\"a\":1}" },
        { "{\"a\":\"x", "{}" }, { "{\"a\":\"x\\", "{}" }, { "{\"a\":\"x\"", "{\"a\":\"x\"}" },
        { "{\"a\":[1,2", "{\"a\":[1]}" }, { "{\"a\":[\"x\", {\"b\": tru", "{\"a\":[\"x\", {}]}" },
        { "{\"a\":{\"b\":2}", "{\"a\":{\"b\":2}}" }, { "{\"a\":\"}{,\", \"b\": [", "{\"a\":\"}{,\", \"b\": []}" },
        { "{\"a\":1}", "{\"a\":1}" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cut); i++) {
        char *s = rg_tools_close(cut[i][0]);
        assert_non_null(s);
        assert_string_equal(s, cut[i][1]);
        rg_free(s);
    }
    assert_null(rg_tools_close(""));
    assert_null(rg_tools_close("[1"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_objects_are_closed),
        cmocka_unit_test(cut_anywhere_it_is_the_same),
        cmocka_unit_test(content_only_grows),
        cmocka_unit_test(hostile_texts_take_linear_work),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
