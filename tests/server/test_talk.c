/* test_talk.c -- what models of every family say comes apart alike, wherever it is cut: reasoning, text, calls. */
#define _GNU_SOURCE 1
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "server/talk/answer.h"
#include "server/talk/learn.h"

static const char tools_json[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{\"properties\":{\"town\":{\"type\":"
    "\"string\"},\"days\":{\"type\":\"integer\"},\"near\":{\"type\":\"array\"},\"dry\":{\"type\":\"boolean\"}}}}},"
    "{\"type\":\"function\",\"function\":{\"name\":\"time\"}},{\"type\":\"function\",\"function\":{\"name\":\"python\"}"
    "},"
    "{\"type\":\"function\",\"function\":{\"name\":\"say\",\"parameters\":{\"properties\":{\"words\":{\"type\":"
    "\"string\"}}}}}]";

/* family, text -> "R(reasoning)C(content)T(name:arguments)..." */
typedef struct said {
    const char *family, *text, *want;
    rg_talk_start start;
    bool no_tools;
} said;

#define WEATHER     "C()T(weather:{\"town\":\"Oslo\",\"days\":3})"
#define BOTH        "C()T(weather:{\"town\":\"Oslo\"})T(time:{})"
#define DS          "<｜tool▁calls▁begin｜>"
#define DSB         "<｜tool▁call▁begin｜>"
#define DSS         "<｜tool▁sep｜>"
#define DSE         "<｜tool▁call▁end｜>"
#define DSZ         "<｜tool▁calls▁end｜>"
#define DSML        "｜DSML｜"
#define M3          "]<]minimax[>["
#define PLAMO(name) "<|plamo:" name ":plamo|>"

static const said cases[] = {
#include "server/talk_cases.def"
};

static void show(const rg_answer *a, rg_buf *out)
{
    rg_buf_reset(out);
    if (a->reasoning.n)
        rg_buf_printf(out, "R(%s)", a->reasoning.data);
    rg_buf_printf(out, "C(%s)", a->content.n ? a->content.data : "");
    for (int i = 0; i < a->n_calls; i++)
        rg_buf_printf(out, "T(%s:%s)%s", a->call[i].name, a->call[i].arguments.n ? a->call[i].arguments.data : "",
                      a->call[i].cut ? "cut" : "");
}

/* What is told apart, into got; the work that it took. */
static uint64_t feed_in_pieces(const said *c, const char *text, size_t first, size_t each, const json_t *tools,
                               rg_buf *got)
{
    const rg_talk *talk = rg_talk_named(c->family);
    size_t n = strlen(text), i = first < n ? first : n;
    rg_answer a;

    assert_non_null(talk);
    rg_answer_init(&a, talk, c->no_tools ? NULL : tools, c->start, 1 << 24);
    rg_answer_feed(&a, text, i);
    for (; i < n; i += each)
        rg_answer_feed(&a, text + i, n - i < each ? n - i : each);
    rg_answer_end(&a, NULL, 0);
    assert_false(a.failed);
    show(&a, got);
    uint64_t work = a.work;
    rg_answer_fini(&a);
    return work;
}

static void cut_anywhere_it_is_the_same(void **state)
{
    json_t *tools = json_loads(tools_json, 0, NULL);
    int wrong = 0;
    rg_buf got;

    (void)state;
    rg_buf_init(&got, 1 << 20);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        size_t n = strlen(cases[i].text);
        bool same = true;
        for (size_t first = 0; same && first <= n; first++)
            for (size_t each = 1; same && each <= n + 1; each += each < 4 ? 1 : n) {
                feed_in_pieces(&cases[i], cases[i].text, first, each, tools, &got);
                same = !strcmp(got.data, cases[i].want);
                if (!same)
                    print_message("%s, case %zu cut at %zu by %zu:\n  %s\n  got  %s\n  want %s\n", cases[i].family, i,
                                  first, each, cases[i].text, got.data, cases[i].want);
            }
        wrong += !same;
    }
    assert_int_equal(wrong, 0);
    rg_buf_fini(&got);
    json_decref(tools);
}

static bool is_beginning(const char *of, size_t n_of, const char *s, size_t n)
{
    return n <= n_of && !memcmp(of, s, n);
}

/* What has been given out stays, and an answer that is cut gives the beginning of what the whole one gives. */
static void what_is_given_out_stays(void **state)
{
    json_t *tools = json_loads(tools_json, 0, NULL);

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const rg_talk *talk = rg_talk_named(cases[i].family);
        rg_answer whole, a;
        size_t n = strlen(cases[i].text);
        rg_answer_init(&whole, talk, cases[i].no_tools ? NULL : tools, cases[i].start, 1 << 20);
        rg_answer_init(&a, talk, cases[i].no_tools ? NULL : tools, cases[i].start, 1 << 20);
        rg_answer_feed(&whole, cases[i].text, n);
        rg_answer_end(&whole, NULL, 0);
        for (size_t k = 0; k < n; k++) {
            rg_answer_feed(&a, cases[i].text + k, 1);
            if (!is_beginning(whole.content.data ? whole.content.data : "", whole.content.n,
                              a.content.data ? a.content.data : "", a.content.n) ||
                !is_beginning(whole.reasoning.data ? whole.reasoning.data : "", whole.reasoning.n,
                              a.reasoning.data ? a.reasoning.data : "", a.reasoning.n))
                fail_msg("%s, case %zu after %zu bytes: %s", cases[i].family, i, k + 1, cases[i].text);
            for (int j = 0; j < a.n_calls; j++)
                if (j >= whole.n_calls || strcmp(a.call[j].name, whole.call[j].name) ||
                    !is_beginning(whole.call[j].arguments.n ? whole.call[j].arguments.data : "",
                                  whole.call[j].arguments.n, a.call[j].arguments.n ? a.call[j].arguments.data : "",
                                  a.call[j].arguments.n))
                    fail_msg("%s, case %zu, call %d after %zu bytes", cases[i].family, i, j, k + 1);
        }
        rg_answer_fini(&a);
        rg_answer_fini(&whole);
    }
    json_decref(tools);
}

/* Arguments do not wait for the end of the call, however a family writes them. */
static void arguments_come_as_they_are_written(void **state)
{
    static const char *const fast[] = { "mistral", "hermes",  "harmony",  "gemma4", "qwen3_coder",
                                        "glm",     "kimi_k2", "pythonic", "apertus" };
    json_t *tools = json_loads(tools_json, 0, NULL);

    (void)state;
    for (size_t f = 0; f < RG_LEN(fast); f++) {
        int most = 0;
        for (size_t i = 0; i < RG_LEN(cases); i++) {
            rg_answer a;
            int steps = 0;
            size_t before = 0;
            if (strcmp(cases[i].family, fast[f]) != 0)
                continue;
            rg_answer_init(&a, rg_talk_named(fast[f]), tools, cases[i].start, 1 << 20);
            for (const char *s = cases[i].text; *s; s++) {
                rg_answer_feed(&a, s, 1);
                size_t n = a.n_calls ? a.call[0].arguments.n : 0;
                steps += n > before && !a.call[0].done;
                before = n;
            }
            most = steps > most ? steps : most;
            rg_answer_fini(&a);
        }
        if (most < 5)
            fail_msg("%s: arguments came in %d steps", fast[f], most);
    }
    json_decref(tools);
}

/* An answer that is cut anywhere: text that was there is there, and no call is invented. */
static void a_cut_answer_loses_nothing(void **state)
{
    json_t *tools = json_loads(tools_json, 0, NULL);
    rg_buf got;

    (void)state;
    rg_buf_init(&got, 1 << 20);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const rg_talk *talk = rg_talk_named(cases[i].family);
        for (size_t n = 1; n < strlen(cases[i].text); n++) {
            rg_answer a, whole;
            rg_answer_init(&a, talk, cases[i].no_tools ? NULL : tools, cases[i].start, 1 << 20);
            rg_answer_init(&whole, talk, cases[i].no_tools ? NULL : tools, cases[i].start, 1 << 20);
            rg_answer_feed(&whole, cases[i].text, n);
            rg_answer_feed(&a, cases[i].text, n);
            rg_answer_end(&a, NULL, 0);
            assert_true(a.content.n >= whole.content.n && a.reasoning.n >= whole.reasoning.n);
            assert_true(a.n_calls >= whole.n_calls);
            for (int k = 0; k < a.n_calls; k++) {
                json_t *v = a.call[k].cut ? json_null() : json_loads(a.call[k].arguments.data, 0, NULL);
                if (!v)
                    fail_msg("%s, case %zu cut at %zu: %s", cases[i].family, i, n, a.call[k].arguments.data);
                json_decref(v);
            }
            rg_answer_fini(&a);
            rg_answer_fini(&whole);
        }
    }
    rg_buf_fini(&got);
    json_decref(tools);
}

/* The work is linear in the text, whatever is written: many of each, byte by byte, for each family. */
static void hostile_texts_take_linear_work(void **state)
{
    static const char *const units[] = { " ",
                                         "<",
                                         "<tool_call>",
                                         "</think>",
                                         "<think>",
                                         "{",
                                         "[",
                                         "[TOOL_CALLS]",
                                         "\n<",
                                         "<function=",
                                         "{\"name\":\"time\"}",
                                         "<tool_call>{",
                                         "｜",
                                         "<|channel|>",
                                         "<arg_key>",
                                         "<tool_call>{\"arguments\":{",
                                         "<function=say><parameter=",
                                         "call:",
                                         "a(" };
    json_t *tools = json_loads(tools_json, 0, NULL);
    rg_buf got;

    (void)state;
    rg_buf_init(&got, 1 << 24);
    for (const rg_talk *t = rg_talks; t->name; t++)
        for (size_t i = 0; i < RG_LEN(units); i++) {
            size_t n = (size_t)test_scale(1 << 13), k = strlen(units[i]);
            said c = { .family = t->name };
            uint64_t work[2];
            for (int twice = 0; twice < 2; twice++) {
                size_t m = n << twice;
                char *s = malloc(m + k + 1);
                assert_non_null(s);
                for (size_t j = 0; j < m; j += k)
                    memcpy(s + j, units[i], k);
                s[m - m % k] = 0;
                work[twice] = feed_in_pieces(&c, s, 0, 1, tools, &got);
                free(s);
            }
            if (work[1] > 3 * work[0] + 4096)
                fail_msg("%s, many of %s: %llu, %llu for twice as many", t->name, units[i], (unsigned long long)work[0],
                         (unsigned long long)work[1]);
        }
    rg_buf_fini(&got);
    json_decref(tools);
}

/* ---- which family ------------------------------------------------------------------------------------------------ */

static const struct {
    const char *rendered, *family, *open, *item_open;
} shown[] = {
    { "<tool_call>\n{\"name\": \"ridge_probe\", \"arguments\": {\"ridge_key\": 7}}\n</tool_call>", "hermes",
      "<tool_call>\n", "{\"name\": \"" },
    { "<tool_call>\n<function=ridge_probe>\n<parameter=ridge_key>\n7\n</parameter>\n</function>\n</tool_call>",
      "qwen3_coder", "<tool_call>\n", "<function=" },
    { "<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": \"ridge_probe\", \"parameters\": {}}", "llama3_json",
      NULL, "{\"name\": \"" },
    { "[INST]x[/INST][TOOL_CALLS] [{\"name\": \"ridge_probe\", \"arguments\": {}}]", "mistral", "[TOOL_CALLS]",
      "{\"name\": \"" },
    { "[INST]x[/INST][TOOL_CALLS]ridge_probe[ARGS]{}", "mistral", "[TOOL_CALLS]", "" },
    { DS DSB "function" DSS "ridge_probe\n```json\n{}\n```" DSE DSZ, "deepseek_v3", DS, DSB "function" DSS },
    { DS DSB "ridge_probe" DSS "{}" DSE DSZ, "deepseek_v31", DS, DSB },
    { "<|start|>assistant<|channel|>commentary to=functions.ridge_probe <|constrain|>json<|message|>{}<|call|>",
      "harmony", NULL, NULL },
    { "<|turn>model\n<|tool_call>call:ridge_probe{ridge_key:7}<tool_call|>", "gemma4", "<|tool_call>", "call:" },
    { "<tool_call>ridge_probe\n<arg_key>ridge_key</arg_key>\n<arg_value>7</arg_value>\n</tool_call>", "glm",
      "<tool_call>", "" },
    { "user: Hello\nassistant: ", "generic", NULL, "{\"name\": \"" },
};

static void templates_show_their_family(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(shown); i++) {
        rg_talk_use use;
        rg_talk_learn_from(&use, shown[i].rendered);
        if (strcmp(use.talk->name, shown[i].family))
            fail_msg("%s: %s", shown[i].rendered, use.talk->name);
        if (shown[i].open)
            assert_string_equal(use.form->open, shown[i].open);
        if (shown[i].item_open)
            assert_string_equal(use.form->item_open, shown[i].item_open);
    }
}

/* ---- marks that no family has ------------------------------------------------------------------------------------ */

#define HEAD_OF "user: Hello\n<bot>"
#define TAIL_OF "<end>\n"

/* What is rendered of an answer: a text, a thought before it, one call, two; and what the model then says. */
static const struct {
    const char *thought, *one, *two, *said, *want, *open, *item_open;
} others[] = {
    /* tags, with marks that end in a name of the checkpoint's own */
    { "<think:x>ridge_thought</think:x>ridge_text",
      "<calls:x>\n<call:x>ridge_probe<sep:x>\n<key:x>ridge_key</key:x>\n<val:x>7</val:x>\n<key:x>ridge_more</"
      "key:x>\n<val:x>8</val:x>\n"
      "</call:x>\n</calls:x>",
      "<calls:x>\n<call:x>ridge_probe<sep:x>\n<key:x>ridge_key</key:x>\n<val:x>7</val:x>\n<key:x>ridge_more</"
      "key:x>\n<val:x>8</val:x>\n"
      "</call:x>\n<call:x>ridge_other<sep:x>\n<key:x>ridge_key</key:x>\n<val:x>9</val:x>\n</call:x>\n</calls:x>",
      "<think:x>Hm.</think:x>Ok.<calls:x>\n<call:x>weather<sep:x>\n<key:x>town</key:x>\n<val:x>Oslo</"
      "val:x>\n<key:x>days</key:x>\n<val:x>3"
      "</val:x>\n</call:x>\n<call:x>time<sep:x>\n</call:x>\n</calls:x>",
      "R(Hm.)C(Ok.)T(weather:{\"town\":\"Oslo\",\"days\":3})T(time:{})", "<calls:x>\n", "<call:x>" },
    /* an object between marks, and the same again for each call */
    { "[why]ridge_thought[/why]\n\nridge_text",
      "[do]{\"name\": \"ridge_probe\", \"arguments\": {\"ridge_key\": 7, \"ridge_more\": 8}}[/do]",
      "[do]{\"name\": \"ridge_probe\", \"arguments\": {\"ridge_key\": 7, \"ridge_more\": 8}}[/do][do]{\"name\": "
      "\"ridge_other\", "
      "\"arguments\": {\"ridge_key\": 9}}[/do]",
      "[why]Hm.[/why]\n\nOk.[do]{\"name\": \"weather\", \"arguments\": {\"town\": \"Oslo\"}}[/do][do]{\"name\": "
      "\"time\", \"arguments\": {}}[/do]",
      "R(Hm.)C(Ok.)T(weather:{\"town\": \"Oslo\"})T(time:{})", "[do]", "{\"name\": \"" },
    /* a list of objects */
    { NULL, "<use>[{\"name\": \"ridge_probe\", \"parameters\": {\"ridge_key\": 7, \"ridge_more\": 8}}]</use>",
      "<use>[{\"name\": \"ridge_probe\", \"parameters\": {\"ridge_key\": 7, \"ridge_more\": 8}}, {\"name\": "
      "\"ridge_other\", "
      "\"parameters\": {\"ridge_key\": 9}}]</use>",
      "<use>[{\"name\": \"weather\", \"parameters\": {\"town\":\"Oslo\"}}, {\"name\": \"time\", \"parameters\": "
      "{}}]</use>",
      BOTH, "<use>", "{\"name\": \"" },
    /* a name, then JSON; without a mark around all calls */
    { NULL, "<|fn|>ridge_probe<|args|>{\"ridge_key\": 7, \"ridge_more\": 8}<|/fn|>",
      "<|fn|>ridge_probe<|args|>{\"ridge_key\": 7, \"ridge_more\": 8}<|/fn|><|fn|>ridge_other<|args|>{\"ridge_key\": "
      "9}<|/fn|>",
      "<|fn|>weather<|args|>{\"town\":\"Oslo\"}<|/fn|><|fn|>time<|args|>{}<|/fn|>", BOTH, NULL, "<|fn|>" },
    /* as Python writes it */
    { NULL, "<py>[ridge_probe(ridge_key=7, ridge_more=8)]</py>",
      "<py>[ridge_probe(ridge_key=7, ridge_more=8), ridge_other(ridge_key=9)]</py>",
      "<py>[weather(town=\"Oslo\"), time()]</py>", BOTH, "<py>", "" },
    /* attributes, on lines of their own */
    { NULL,
      "<run tool=\"ridge_probe\">\n<with key=\"ridge_key\">\n7\n</with>\n<with key=\"ridge_more\">\n8\n</with>\n</run>",
      NULL,
      "Ok.\n<run tool=\"weather\">\n<with key=\"town\">\nOslo\n</with>\n<with key=\"days\">\n3\n</with>\n</run>\n<run "
      "tool=\"time\">\n</run>",
      "C(Ok.)T(weather:{\"town\":\"Oslo\",\"days\":3})T(time:{})", NULL, "<run tool=\"" },
};

static char *around(const char *text)
{
    char *s = NULL;

    return text && asprintf(&s, HEAD_OF "%s" TAIL_OF, text) > 0 ? s : NULL;
}

static void marks_of_no_family_are_read_off_the_template(void **state)
{
    json_t *tools = json_loads(tools_json, 0, NULL);
    rg_buf got;

    (void)state;
    rg_buf_init(&got, 1 << 20);
    for (size_t i = 0; i < RG_LEN(others); i++) {
        char *s[] = { around("ridge_text"), around(others[i].thought), around(others[i].one), around(others[i].two) };
        rg_talk_derived *m = rg_talk_make(&(rg_talk_samples){ s[0], s[1], s[2], s[3] });
        if (!m)
            fail_msg("nothing was read off %s", others[i].one);
        const rg_talk_form *f = &rg_talk_derived_of(m)->forms[0];
        assert_string_equal(f->open ? f->open : "-", others[i].open ? others[i].open : "-");
        assert_string_equal(f->item_open, others[i].item_open);
        for (size_t each = 1; each < 4; each++) {
            rg_answer a;
            size_t n = strlen(others[i].said);
            rg_answer_init(&a, rg_talk_derived_of(m), tools, RG_START_PLAIN, 1 << 20);
            for (size_t k = 0; k < n; k += each)
                rg_answer_feed(&a, others[i].said + k, n - k < each ? n - k : each);
            rg_answer_end(&a, NULL, 0);
            show(&a, &got);
            if (strcmp(got.data, others[i].want))
                fail_msg("%s\n  got  %s\n  want %s", others[i].said, got.data, others[i].want);
            rg_answer_fini(&a);
        }
        rg_talk_derived_free(m);
        for (size_t k = 0; k < RG_LEN(s); k++)
            free(s[k]);
    }
    assert_null(rg_talk_make(&(rg_talk_samples){ .text = HEAD_OF "ridge_text" TAIL_OF, .one = HEAD_OF TAIL_OF }));
    rg_buf_fini(&got);
    json_decref(tools);
}

static void every_family_is_whole(void **state)
{
    (void)state;
    for (const rg_talk *t = rg_talks; t->name; t++) {
        size_t n = 0;
        assert_ptr_equal(rg_talk_named(t->name), t);
        for (size_t i = 0; i < RG_LEN(cases); i++)
            n += rg_talk_named(cases[i].family) == t;
        if (!n)
            fail_msg("%s: no case", t->name);
    }
    assert_null(rg_talk_named("nobody's"));
    assert_ptr_equal(rg_talk_named("gpt-oss"), rg_talk_named("harmony"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_anywhere_it_is_the_same),
        cmocka_unit_test(what_is_given_out_stays),
        cmocka_unit_test(a_cut_answer_loses_nothing),
        cmocka_unit_test(arguments_come_as_they_are_written),
        cmocka_unit_test(hostile_texts_take_linear_work),
        cmocka_unit_test(templates_show_their_family),
        cmocka_unit_test(every_family_is_whole),
        cmocka_unit_test(marks_of_no_family_are_read_off_the_template),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
