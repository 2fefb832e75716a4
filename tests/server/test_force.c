/* test_force.c -- what binds an answer as a family writes it: reasoning is free, the schema binds the text after it,
 * calls are the family's own, and a custom tool's input follows its grammar. */
#include "grammar/words.h"
#include "server/talk/answer.h"
#include "server/talk/force.h"

#include <jansson.h>

#define TOOLS                                                                                                          \
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"  \
    "\"town\":{\"type\":\"string\"},\"near\":{\"type\":\"array\",\"items\":{\"type\":\"object\",\"properties\":{"      \
    "\"km\":{\"type\":\"integer\"}}}}},\"required\":[\"town\"]}}},"                                                    \
    "{\"type\":\"function\",\"function\":{\"name\":\"edit\",\"parameters\":{\"type\":\"object\",\"properties\":{"      \
    "\"input\":{\"type\":\"string\"}},\"required\":[\"input\"]}}}]"
#define KINDS                                                                                                          \
    "{\"edit\":{\"kind\":1,\"format\":{\"syntax\":\"lark\",\"definition\":\"start: \\\"+\\\" /[a-z]+/ "                \
    "\\\"\\\\n\\\"\"}}}"
#define SCHEMA                                                                                                         \
    "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"required\":[\"x\"],"                         \
    "\"additionalProperties\":false}"

enum { LEAD, CALLS, MAY };

#define A  "<|channel|>analysis<|message|>"
#define F  "<|channel|>final<|message|>"
#define N  "<|end|><|start|>assistant"
#define H  "<|channel|>commentary to=functions."
#define HR " <|constrain|>json<|message|>"
#define M3 "]<]minimax[>["

static const struct {
    const char *family;
    int what;
    rg_talk_start start;
    int think;
    bool thinks;
    const char *yes[7], *no[7];
} cases[] = {
    /* a schema binds what follows the reasoning */
    { "hermes",
      LEAD,
      RG_START_PLAIN,
      0,
      true,
      { "{\"x\":1}", "<think>a </b> {</think>{\"x\":1}", "<think>\nso\n</think>\n\n{\"x\":1}" },
      { "so {\"x\":1}", "<think>{\"x\":1}", "<think>a</think>so", "<think>a</think>b</think>{\"x\":1}" } },
    { "hermes",
      LEAD,
      RG_START_THINKING,
      0,
      true,
      { "so\n</think>\n\n{\"x\":1}", "</think>{\"x\":1}" },
      { "{\"x\":1}", "so</think>so" } },
    { "mistral", LEAD, RG_START_THINKING, 1, true, { "so</think>{\"x\":1}" }, { "so[/THINK]{\"x\":1}" } },
    { "k2_horizon",
      LEAD,
      RG_START_PLAIN,
      0,
      true,
      { "<ifm|think_fast>a</ifm|think_fast>{\"x\":1}", "{\"x\":1}" },
      { "<ifm|think_fast>a</ifm|think>{\"x\":1}" } },
    { "kimi_vl", LEAD, RG_START_PLAIN, 0, true, { "◁think▷é◁/think▷{\"x\":1}" }, { "◁think▷é{\"x\":1}" } },
    { "harmony",
      LEAD,
      RG_START_PLAIN,
      0,
      true,
      { F "{\"x\":1}", A "Hm. {" N F "{\"x\":1}", A "a" N A "b" N F "{\"x\":2}" },
      { "{\"x\":1}", A "{\"x\":1}", F "so" } },
    { "harmony", LEAD, RG_START_THINKING, 0, true, { "so" N F "{\"x\":1}" }, { "so<|end|>{\"x\":1}" } },
    { "functionary_v32", LEAD, RG_START_HEAD, 0, false, { "all\n{\"x\":1}" }, { "{\"x\":1}", ">>>all\n{\"x\":1}" } },
    { "inkling",
      LEAD,
      RG_START_HEAD,
      0,
      true,
      { "<|content_text|>{\"x\":1}", "<|content_thinking|>a<|end_message|><|message_model|><|content_text|>{\"x\":1}" },
      { "{\"x\":1}" } },
    { "muse",
      LEAD,
      RG_START_PLAIN,
      0,
      true,
      { " to=user<|message|>{\"x\":1}", " to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>{\"x\":1}" },
      { "{\"x\":1}" } },
    { "command_r7b",
      LEAD,
      RG_START_PLAIN,
      0,
      true,
      { "<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>{\"x\":1}<|END_RESPONSE|>", "{\"x\":1}" },
      { "<|START_RESPONSE|>so" } },
    /* calls, after reasoning, several of them */
    { "harmony",
      CALLS,
      RG_START_PLAIN,
      0,
      true,
      { H "weather" HR "{\"town\":\"O\"}",
        A "a" N H "weather" HR "{\"town\":\"O\"}" N H "weather" HR "{\"town\":\"P\"}" },
      { A "a", F "so", H "weather" HR "{}" } },
    { "hermes",
      CALLS,
      RG_START_THINKING,
      0,
      true,
      { "a</think>\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\":\"O\"}}\n</tool_call>" },
      { "a</think>so", "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"town\":\"O\"}}\n</tool_call>" } },
    { "muse",
      CALLS,
      RG_START_PLAIN,
      0,
      true,
      { " to=weather<|message|><atem:function_calls>\n<atem:invoke name=\"weather\">\n<atem:parameter "
        "name=\"town\">a</b></atem:parameter>\n"
        "</atem:invoke>\n</atem:function_calls>" },
      { " to=user<|message|>so" } },
    { "inkling",
      CALLS,
      RG_START_HEAD,
      0,
      true,
      { "<|content_invoke_tool_json|>{\"name\": \"weather\", \"args\": {\"town\":\"O\"}}" },
      { "<|content_text|>so" } },
    { "functionary_v32",
      CALLS,
      RG_START_HEAD,
      0,
      false,
      { "weather\n{\"town\":\"O\"}", "weather\n{\"town\":\"O\"}>>>weather\n{\"town\":\"P\"}" },
      { "all\nso" } },
    { "minimax_m3",
      CALLS,
      RG_START_PLAIN,
      0,
      false,
      { M3 "<tool_call>\n" M3 "<invoke name=\"weather\">" M3 "<town>a</town>" M3 "</town>" M3 "<near>" M3 "<item>" M3
           "<km>3" M3 "</km>" M3 "</item>" M3 "</near>" M3 "</invoke>\n" M3 "</tool_call>" },
      { M3 "<tool_call>\n" M3 "<invoke name=\"weather\">" M3 "</invoke>\n" M3 "</tool_call>",
        M3 "<tool_call>\n" M3 "<invoke name=\"weather\">" M3 "<town>a" M3 "</town>" M3 "<near>" M3 "<item>" M3
           "<km>x" M3 "</km>" M3 "</item>" M3 "</near>" M3 "</invoke>\n" M3 "</tool_call>" } },
    { "minicpm5",
      CALLS,
      RG_START_PLAIN,
      0,
      false,
      { "<function name=\"weather\"><param name=\"town\"><![CDATA[a</param>b]]></param></function>",
        "<function name=\"weather\"><param name=\"town\">a < b</param></function>" },
      { "<function name=\"weather\"></function>" } },
    { "mirothinker",
      CALLS,
      RG_START_PLAIN,
      0,
      false,
      { "<use_mcp_tool>\n<server_name>tools</server_name>\n<tool_name>weather</"
        "tool_name>\n<arguments>\n{\"town\":\"O\"}\n</arguments>\n"
        "</use_mcp_tool>" },
      { "<use_mcp_tool>\n<tool_name>weather</tool_name>" } },
    { "gemma4",
      CALLS,
      RG_START_PLAIN,
      0,
      false,
      { "<|tool_call>call:weather{town:<|\"|>a <b \"c\"<|\"|>}<tool_call|>" },
      { "<|tool_call>call:weather{}<tool_call|>" } },
    /* the input of a custom tool */
    { "hermes",
      CALLS,
      RG_START_PLAIN,
      0,
      false,
      { "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"input\":\"+ab\\n\"}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"input\": \"+ab\\n\"}}\n</tool_call>" },
      { "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"input\":\"+ab\"}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"input\":\"-ab\\n\"}}\n</tool_call>",
        "<tool_call>\n{\"name\": \"edit\", \"arguments\": {}}\n</tool_call>" } },
    { "qwen3_coder",
      CALLS,
      RG_START_PLAIN,
      0,
      false,
      { "<tool_call>\n<function=edit>\n<parameter=input>\n+ab\n\n</parameter>\n</function>\n</tool_call>" },
      { "<tool_call>\n<function=edit>\n<parameter=input>\nab\n\n</parameter>\n</function>\n</tool_call>" } },
    { "deepseek_dsml",
      CALLS,
      RG_START_PLAIN,
      0,
      false,
      { "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"edit\">\n<｜DSML｜parameter name=\"input\" "
        "string=\"true\">+ab\n</｜DSML｜parameter>\n"
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>" },
      { 0 } },
    { "gemma4",
      CALLS,
      RG_START_PLAIN,
      0,
      false,
      { "<|tool_call>call:edit{input:<|\"|>+ab\n<|\"|>}<tool_call|>" },
      { "<|tool_call>call:edit{input:<|\"|>ab\n<|\"|>}<tool_call|>" } },
    { "pythonic", CALLS, RG_START_PLAIN, 0, false, { "[edit(input=\"+ab\\n\")]" }, { "[edit(input=\"ab\\n\")]" } },
    /* where the model chooses, its text is free, and calls are bound once they begin */
    { "hermes",
      MAY,
      RG_START_PLAIN,
      0,
      true,
      { "", "I think <b> so.", "<think>a</think>Yes.",
        "Let me.\n<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"input\":\"+ab\\n\"}}\n</tool_call>",
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"any\":[1]}}\n</tool_call>\n<tool_call>\n{\"name\": "
        "\"edit\", \"arguments\": "
        "{\"input\":\"+ab\\n\"}}\n</tool_call> and so" },
      { "Let me.\n<tool_call>\n{\"name\": \"edit\", \"arguments\": {\"input\":\"ab\"}}\n</tool_call>",
        "<tool_call>\n" } },
    { "harmony",
      MAY,
      RG_START_PLAIN,
      0,
      true,
      { A "Hm." N F "So.", A "Hm." N H "edit" HR "{\"input\":\"+ab\\n\"}",
        A "Hm." N " to=functions.edit<|channel|>commentary json<|message|>{\"input\":\"+a\\n\"}" },
      { H "edit" HR "{\"input\":\"ab\"}" } },
    { "glm",
      MAY,
      RG_START_PLAIN,
      0,
      true,
      { "Ok.<tool_call>weather\n<arg_key>town</arg_key>\n<arg_value>O</arg_value>\n</tool_call>",
        "<tool_call>edit\n<arg_key>input</arg_key>\n<arg_value>+ab\n</arg_value>\n</tool_call>" },
      { "<tool_call>edit\n<arg_key>input</arg_key>\n<arg_value>ab</arg_value>\n</tool_call>" } },
    { "deepseek_v31",
      MAY,
      RG_START_PLAIN,
      0,
      true,
      { "Ja. ｜", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>{\"input\":\"+a\\n\"}<"
                  "｜tool▁call▁end｜><｜tool▁calls▁end｜>" },
      { "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>edit<｜tool▁sep｜>{\"input\":\"\"}<｜tool▁call▁end｜><"
        "｜tool▁calls▁end｜>" } },
    { "minicpm5",
      MAY,
      RG_START_PLAIN,
      0,
      true,
      { "Ok.", "<function name=\"edit\"><param name=\"input\">+ab\n</param></function>" },
      { "<function name=\"edit\"><param name=\"input\">ab\n</param></function>" } },
};

static void make_rules(size_t i, const json_t *tools, const json_t *kinds, rg_constraint *c)
{
    const rg_talk *talk = rg_talk_named(cases[i].family);
    rg_refusal e = { 0 };
    bool ok;

    if (cases[i].what == LEAD) {
        rg_constraint schema = { "response_format", RG_GRAMMAR_JSON_SCHEMA, (char *)(uintptr_t)SCHEMA, strlen(SCHEMA),
                                 false };
        ok = rg_force_lead(talk, cases[i].start, cases[i].think, cases[i].thinks, &schema, c, &e);
    } else {
        rg_call_rules r = { .talk = talk,
                            .form = &talk->forms[0],
                            .tools = tools,
                            .kinds = kinds,
                            .many = true,
                            .may = cases[i].what == MAY,
                            .start = cases[i].start,
                            .think = cases[i].think,
                            .thinks = cases[i].thinks };
        ok = rg_force_calls(&r, c, &e);
    }
    if (!ok || !c->text)
        fail_msg("%s: no grammar", cases[i].family);
}

static void answers_are_bound_where_they_should_be(void **state)
{
    json_t *tools = json_loads(TOOLS, 0, NULL), *kinds = json_loads(KINDS, 0, NULL);
    words w = bytes_and(256, NULL, 0);
    int wrong = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_constraint c = { 0 };
        rg_error err = { 0 };
        make_rules(i, tools, kinds, &c);
        rg_grammar *g = rg_grammar_compile(w.v, &SOURCE(c.kind, c.text, c.n), &err);
        if (!g)
            fail_msg("%s: %s\n%s", cases[i].family, err.text, c.text);
        for (int k = 0; k < 7 && cases[i].yes[k]; k++)
            if (!accepts(g, cases[i].yes[k])) {
                print_message("%s (%zu) refuses %s\n", cases[i].family, i, cases[i].yes[k]);
                wrong++;
            }
        for (int k = 0; k < 7 && cases[i].no[k]; k++)
            if (accepts(g, cases[i].no[k])) {
                print_message("%s (%zu) takes %s\n", cases[i].family, i, cases[i].no[k]);
                wrong++;
            }
        rg_grammar_close(g);
        rg_constraint_fini(&c);
    }
    assert_int_equal(wrong, 0);
    free_words(&w);
    json_decref(tools);
    json_decref(kinds);
}

/* Every form of every family can be forced, and what is forced is read back as a call. */
static void every_form_makes_a_grammar(void **state)
{
    json_t *tools = json_loads(TOOLS, 0, NULL), *kinds = json_loads(KINDS, 0, NULL);
    words w = bytes_and(256, NULL, 0);

    (void)state;
    for (const rg_talk *t = rg_talks; t->name; t++)
        for (int f = 0; f < RG_TALK_FORMS; f++)
            for (int may = 0; may < 2; may++) {
                rg_constraint c = { 0 };
                rg_refusal e = { 0 };
                rg_error err = { 0 };
                rg_call_rules r = { .talk = t,
                                    .form = &t->forms[f],
                                    .tools = tools,
                                    .kinds = kinds,
                                    .many = true,
                                    .may = may,
                                    .thinks = true };
                if ((!rg_talk_has_form(r.form) && f) || r.form->way == RG_CALL_CODE)
                    continue;
                assert_true(rg_force_calls(&r, &c, &e));
                rg_grammar *g = c.text ? rg_grammar_compile(w.v, &SOURCE(c.kind, c.text, c.n), &err) : NULL;
                if (!g && (c.text || !may))
                    fail_msg("%s, form %d: %s\n%s", t->name, f, err.text, c.text ? c.text : "");
                rg_grammar_close(g);
                rg_constraint_fini(&c);
            }
    free_words(&w);
    json_decref(tools);
    json_decref(kinds);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_bound_where_they_should_be),
        cmocka_unit_test(every_form_makes_a_grammar),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
