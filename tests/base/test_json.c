/* Tests of parsing JSON with every allocation refused in turn, once and from then on: an error that says so, nothing
 * leaked, and nothing read past a token's end (which AddressSanitizer would see). */
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

typedef struct gate {
    long n_asked, from;
    bool for_good;
} gate;

static bool allow(void *arg, size_t bytes)
{
    gate *g = arg;

    (void)bytes;
    g->n_asked++;
    return g->for_good ? g->n_asked <= g->from : g->n_asked != g->from + 1;
}

/* Tokens that get longer, so that jansson's buffer grows in the middle of strings, keys, numbers and at their ends. */
static void write_document(rg_buf *b)
{
    rg_buf_str(b, "{\"a\": [1, -2.5, true, null, {\"\": []}], \"long\": [");
    for (int n = 1; n < 3000; n = n * 3 / 2 + 1) {
        rg_buf_str(b, "\"");
        for (int i = 0; i < n; i++)
            rg_buf_str(b, i % 7 ? "x" : "\\u00e9");
        rg_buf_str(b, "\", ");
    }
    rg_buf_str(b, "0.");
    for (int i = 0; i < 4500; i++)
        rg_buf_str(b, "3");
    rg_buf_str(b, "], \"k");
    for (int i = 0; i < 12000; i++)
        rg_buf_str(b, "k");
    rg_buf_str(b, "\": {\"x\": 1}}");
}

static void every_allocation(void **state)
{
    rg_buf b;
    json_error_t why;

    (void)state;
    rg_buf_init(&b, 1 << 20);
    write_document(&b);
    assert_false(b.failed);
    json_t *want = rg_json_load(b.data, b.n, JSON_REJECT_DUPLICATES, &why), *got;
    assert_non_null(want);
    size_t live = rg_mem_count().n_live;
    for (int for_good = 0; for_good < 2; for_good++) {
        long n = 0;
        for (;; n++) {
            gate g = { .from = n, .for_good = for_good };
            rg_mem_set_gate(allow, &g);
            got = rg_json_load(b.data, b.n, JSON_REJECT_DUPLICATES, &why);
            rg_mem_set_gate(NULL, NULL);
            if (g.n_asked <= n)
                break;
            assert_null(got);
            assert_int_equal(json_error_code(&why), json_error_out_of_memory);
            assert_int_equal(rg_mem_count().n_live, live);
        }
        assert_true(n > 40);
        assert_true(json_equal(want, got));
        json_decref(got);
    }
    json_decref(want);
    rg_buf_fini(&b);
}

/* What is wrong with a text is said as jansson says it, whatever the pieces it is handed over in. */
static void errors_are_the_texts(void **state)
{
    static const char *const cases[] = {
        "{\"a\": 1, \"a\": 2}", "[1,\n2,\nx]", "[\"unfinished", "[\"unfinished\\", "[1] 2", "", "[1\"x\"]", "\"",
    };
    json_error_t why, whole;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        assert_null(json_loadb(cases[i], strlen(cases[i]), JSON_REJECT_DUPLICATES, &whole));
        assert_null(rg_json_load(cases[i], strlen(cases[i]), JSON_REJECT_DUPLICATES, &why));
        assert_int_equal(json_error_code(&why), json_error_code(&whole));
        assert_int_equal(why.line, whole.line);
        assert_string_equal(why.text, whole.text);
    }
}

/* What is allocated at most. */
static bool note_peak(void *arg, size_t bytes)
{
    size_t *peak = arg, now = rg_mem_count().live_bytes + bytes;

    *peak = now > *peak ? now : *peak;
    return true;
}

/* A document of n bytes: open, piece (%zu: a number that counts) as often as there is room, close. */
static char *write_many(const char *open, const char *piece, const char *end, size_t n, size_t *used)
{
    char *text = rg_alloc(n + 200);
    size_t at = (size_t)sprintf(text, "%s", open);

    for (size_t i = 0; at < n; i++)
        at += (size_t)sprintf(text + at, piece, i);
    *used = at + (size_t)sprintf(text + at, "%s", end);
    return text;
}

/* However little stands for however much, it is refused before it takes more than 16 times the text and 16 MB. */
static void memory_is_within_its_budget(void **state)
{
    static const struct { const char *open, *piece, *end; int fits; } cases[] = {
        { "[", "{},", "1]", -1 },
        { "[", "[],", "1]", -1 },
        { "[", "0,", "1]", -1 },
        { "[", "\"\",", "1]", -1 },
        { "[", "[[[[[[]]]]]],", "1]", -1 },
        { "{", "\"%zx\":0,", "\"z\":0}", 0 },
        { "{", "\"%zx\":{},", "\"z\":0}", -1 },
        { "[", "{\"a\":{\"b\":{\"c\":{}}}},", "1]", -1 },
        { "[", "[", "]", -1 },
        { "{\"a\":", "{\"a\":", "}", -1 },
        { "[\"", "long text, ", "\"]", 1 },
        { "[", "\"a text of some length that people would write in a list\", ", "1]", 1 },
        { "[", "{\"role\": \"user\", \"content\": \"What is the capital of the country number %zu?\"},", "1]", 1 },
        { "[", "31415, ", "1]", 1 },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        size_t n, peak = 0;
        json_error_t why;
        char *text = write_many(cases[i].open, cases[i].piece, cases[i].end, (size_t)(TEST_SLOWER > 1 ? 2 : 6) << 20, &n);
        size_t before = rg_mem_count().live_bytes;
        rg_mem_set_gate(note_peak, &peak);
        json_t *v = rg_json_load(text, n, JSON_REJECT_DUPLICATES, &why);
        rg_mem_set_gate(NULL, NULL);
        if (peak - before + n > RG_JSON_TIMES * n + RG_JSON_SPARE)
            fail_msg("%s: %zu bytes for %zu", cases[i].piece, peak - before, n);
        if (cases[i].fits && (cases[i].fits > 0) != !!v) /* 0: either */
            fail_msg("%s: %s", cases[i].piece, v ? "parsed" : why.text);
        json_decref(v);
        assert_int_equal(rg_mem_count().live_bytes, before);
        rg_free(text);
    }
}

/* Depth and values are refused before a byte is allocated for them; brackets and commas within strings do not count. */
static void limits_are_checked_first(void **state)
{
    static const struct { const char *text, *why; } cases[] = {
        { "[[[1]]]", NULL },
        { "[[[[1]]]]", "it is nested more than 3 deep" },
        { "{\"a\":{\"b\":[{}]}}", "it is nested more than 3 deep" },
        { "[[[]]]", NULL },
        { "[1, 2, 3, 4, 5]", NULL },
        { "[1, 2, 3, 4, 5, 6]", "it has more than 6 values" },
        { "[{}, 0, {\"a\": 1, \"b\": 2}]", "it has more than 6 values" },
        { "[\"[[[[,,,,,,,,\", \"\\\"[[[[,,,,,,\\\\\"]", NULL },
        { "[[[[", "it is nested more than 3 deep" },
    };
    const rg_json_limits limits = { .bytes = 1 << 20, .depth = 3, .values = 6 };
    json_error_t why;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        gate g = { .from = 1 << 20 };
        rg_mem_set_gate(allow, &g);
        json_t *v = rg_json_load_within(cases[i].text, strlen(cases[i].text), 0, &limits, &why);
        rg_mem_set_gate(NULL, NULL);
        if (!v != !!cases[i].why)
            fail_msg("%s: %s", cases[i].text, v ? "parsed" : why.text);
        if (cases[i].why) {
            assert_true(rg_json_over_limit(&why));
            assert_string_equal(why.text, cases[i].why);
            assert_int_equal(g.n_asked, 0);
        }
        json_decref(v);
    }
    assert_null(rg_json_load_within("[1]", 3, 0, &(rg_json_limits){ .bytes = 1000 }, &why));
    assert_true(rg_json_over_limit(&why));
    assert_null(rg_json_load("[x]", 3, 0, &why));
    assert_false(rg_json_over_limit(&why));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation),
        cmocka_unit_test(errors_are_the_texts),
        cmocka_unit_test(memory_is_within_its_budget),
        cmocka_unit_test(limits_are_checked_first),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
