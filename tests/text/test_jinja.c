/* Chat templates: every case of the golden file, origins through every construct, budgets and hostile templates, a small
 * stack, and every allocation failing once. */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "ckpt/json.h"
#include "text/jinja.h"

enum { OUT_CAP = 1 << 26, MOST_BYTES = 64 << 20, MOST_AT_ONCE = 8, WATCHDOG_S = 60 };

static json_t *read_json(const char *name)
{
    rg_error err = { 0 };
    size_t n;
    char *text = rg_file_slurp(test_data(name), 1 << 22, &n, &err);

    assert_ok(text, err);
    json_t *v = rg_json_parse(name, text, n, &err);
    assert_ok(v, err);
    rg_free(text);
    return v;
}

/* Parse and render; out is filled on success, *cost (may be NULL) if it came to a render. */
static bool render_counted(const char *source, size_t n, const json_t *trusted, const json_t *foreign, rg_text *out,
                           rg_jinja_cost *cost, rg_error *err)
{
    rg_jinja_input input = { .trusted = trusted, .foreign = foreign, .now_s = 1752580800, .cost = cost }; /* 2025-07-15 12:00 */
    rg_jinja *j = rg_jinja_parse(source, n, err);
    bool ok = j && rg_jinja_render(j, &input, out, err);

    rg_jinja_free(j);
    return ok;
}

static bool render(const char *source, size_t n, const json_t *trusted, const json_t *foreign, rg_text *out, rg_error *err)
{
    return render_counted(source, n, trusted, foreign, out, NULL, err);
}

/* One case of a golden: the text that is wanted, or, where there is none, an error of the template. */
static bool as_wanted(const json_t *one, const json_t *variables)
{
    const json_t *t = json_object_get(one, "template"), *want = json_object_get(one, "expected");
    rg_error err = { 0 };
    rg_text out;

    rg_text_init(&out, OUT_CAP);
    bool ok = render(json_string_value(t), json_string_length(t), NULL, variables, &out, &err);
    bool good = want ? ok && out.bytes.n == json_string_length(want) &&
                           !memcmp(out.bytes.n ? out.bytes.data : "", json_string_value(want), out.bytes.n)
                     : !ok && err.code != RG_E_MEMORY && strstr(err.text, "line ");
    if (!good)
        print_error("%s\n  wanted %s\n  got    %s\n", json_string_value(t), want ? json_string_value(want) : "an error",
                    ok ? (out.bytes.n ? out.bytes.data : "") : err.text);
    rg_text_fini(&out);
    return good;
}

static void golden(void **state)
{
    json_t *cases = read_json("templates.json");
    size_t n_bad = 0;

    (void)state;
    assert_true(json_array_size(cases) >= 123);
    for (size_t i = 0; i < json_array_size(cases); i++)
        n_bad += !as_wanted(json_array_get(cases, i), json_object_get(json_array_get(cases, i), "variables"));
    json_decref(cases);
    assert_int_equal(n_bad, 0);
}

/* Every filter, method, format and statement, as jinja2 has it. */
static void constructs(void **state)
{
    json_t *all = read_json("template-constructs.json"), *cases = json_object_get(all, "cases");
    size_t n_bad = 0;

    (void)state;
    assert_true(json_array_size(cases) > 500);
    for (size_t i = 0; i < json_array_size(cases); i++)
        n_bad += !as_wanted(json_array_get(cases, i), json_object_get(all, "variables"));
    json_decref(all);
    assert_int_equal(n_bad, 0);
}

/* The text with its foreign stretches between « and ». */
static void mark(const rg_text *t, rg_buf *out)
{
    size_t at = 0;

    rg_buf_init(out, OUT_CAP);
    rg_buf_reset(out);
    for (size_t i = 0; i < t->n_runs; i++) {
        assert_true(t->run[i].end > at);
        assert_true(!i || t->run[i].trusted != t->run[i - 1].trusted);
        rg_buf_str(out, t->run[i].trusted ? "" : "«");
        rg_buf_add(out, t->bytes.data + at, t->run[i].end - at);
        rg_buf_str(out, t->run[i].trusted ? "" : "»");
        at = t->run[i].end;
    }
    assert_int_equal(at, t->bytes.n);
    rg_buf_add(out, "", 0);
}

static void origins(void **state)
{
    json_t *all = read_json("template-origins.json"), *cases = json_object_get(all, "cases");
    size_t n_bad = 0;

    (void)state;
    assert_true(json_array_size(cases) > 40);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *t = json_object_get(one, "template");
        rg_error err = { 0 };
        rg_text out;
        rg_buf got;
        rg_text_init(&out, OUT_CAP);
        assert_ok(render(json_string_value(t), json_string_length(t), json_object_get(all, "trusted"),
                         json_object_get(all, "foreign"), &out, &err), err);
        mark(&out, &got);
        if (strcmp(got.data, json_string_value(json_object_get(one, "expected"))) && ++n_bad)
            print_error("%s\n  wanted %s\n  got    %s\n", json_string_value(t),
                        json_string_value(json_object_get(one, "expected")), got.data);
        rg_buf_fini(&got);
        rg_text_fini(&out);
    }
    json_decref(all);
    assert_int_equal(n_bad, 0);
}

/* ---- hostile ones ---- */

static json_t *hostile_variables(void)
{
    static const char text[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"abc def\"}], \"l\": [1, 2, 3], \"s\": \"abc\","
        " \"d\": {\"a\": {\"b\": 1}}, \"z\": null}";
    rg_error err = { 0 };
    json_t *v = rg_json_parse("variables", text, strlen(text), &err);

    assert_ok(v, err);
    return v;
}

/* What has been allocated at most; in the way of nothing. */
static bool watch(void *arg, size_t bytes)
{
    size_t *peak = arg, now = rg_mem_count().live_bytes + bytes;

    *peak = now > *peak ? now : *peak;
    return true;
}

/* Refused within its budgets of steps, bytes and memory, twice alike, at the same cost, with nothing left over or added to
 * what was there.  What does work that it is not charged for runs into the watchdog: the loops are without end. */
static void refuse(const char *name, const char *source, size_t n)
{
    json_t *v = hostile_variables();
    rg_error err[2] = { 0 };
    rg_jinja_cost cost[2] = { 0 };

    for (int i = 0; i < 2; i++) {
        size_t live = rg_mem_count().n_live;
        rg_error *e = &err[i];
        rg_text out;
        rg_text_init(&out, OUT_CAP);
        assert_true(rg_text_add(&out, "before", 6, true));
        size_t before = rg_mem_count().live_bytes, peak = 0;
        rg_mem_set_gate(watch, &peak);
        alarm(WATCHDOG_S);
        bool ok = render_counted(source, n, NULL, v, &out, &cost[i], e);
        alarm(0);
        rg_mem_set_gate(NULL, NULL);
        if (peak > before + MOST_BYTES)
            fail_msg("%s: took %zu bytes of memory", name, peak - before);
        if (cost[i].steps > RG_JINJA_STEPS + MOST_AT_ONCE || cost[i].bytes > RG_JINJA_BYTES + RG_JINJA_BYTES)
            fail_msg("%s: %zu steps, %zu bytes", name, cost[i].steps, cost[i].bytes);
        if (ok || !e->text[0] || (e->code != RG_E_INPUT && e->code != RG_E_LIMIT)) {
            print_error("%s: %s, code %d, '%s'\n", name, ok ? "rendered" : "refused", e->code, e->text);
            fail();
        }
        assert_int_equal(out.bytes.n, 6);
        assert_int_equal(out.n_runs, 1);
        rg_text_fini(&out);
        assert_int_equal(rg_mem_count().n_live, live);
    }
    assert_string_equal(err[0].text, err[1].text);
    assert_int_equal(cost[0].steps, cost[1].steps);
    assert_int_equal(cost[0].bytes, cost[1].bytes);
    json_decref(v);
}

/* What is built in, asked for ever: each use must be charged what it costs. */
#define FOR_EVER(what) "{% for a in range(99999) %}{% for b in range(99999) %}{% set y = " what " %}{% endfor %}{% endfor %}"
#define ASCII "{% set x = 'ab ' * 40000 %}"
#define WIDE "{% set x = 'é,\n' * 40000 %}"

static const struct { const char *name, *source; } hostile[] = {
    { "title", ASCII FOR_EVER("x | title") },
    { "swapcase", ASCII FOR_EVER("x.swapcase()") },
    { "upper", WIDE FOR_EVER("x | upper") },
    { "is lower", ASCII FOR_EVER("x is lower") },
    { "isprintable", WIDE FOR_EVER("x.isprintable()") },
    { "expandtabs for ever", ASCII FOR_EVER("x.expandtabs()") },
    { "wordcount", ASCII FOR_EVER("x | wordcount") },
    { "striptags", ASCII FOR_EVER("x | striptags") },
    { "reverse", ASCII FOR_EVER("x | reverse") },
    { "urlencode", WIDE FOR_EVER("x | urlencode") },
    { "escape", WIDE FOR_EVER("x | escape") },
    { "tojson", WIDE FOR_EVER("x | tojson") },
    { "splitlines", WIDE FOR_EVER("x.splitlines()") },
    { "startswith", WIDE FOR_EVER("x.startswith(x)") },
    { "last", WIDE FOR_EVER("x | last") },
    { "length", WIDE FOR_EVER("x | length") },
    { "unique", ASCII FOR_EVER("x | unique") },
    { "groupby", ASCII FOR_EVER("x | groupby(x)") },
    { "join by attribute", ASCII FOR_EVER("x | join('a', 'bc')") },
    { "int", ASCII FOR_EVER("x | int") },
    { "str.format", ASCII FOR_EVER("x.format()") },
    { "strftime_now", FOR_EVER("strftime_now('%Y')") },
    { "floats", FOR_EVER("12.34 | tojson") },
    { "text of a mapping", FOR_EVER("d | string | upper") },
    { "split at wide blanks of many origins",
      "{% set x = (s ~ '\xe3\x80\x80') * 40000 %}" FOR_EVER("x.split()") },
    { "a billion numbers", "{% for i in range(1000000000) %}x{% endfor %}" },
    { "a list of a billion", "{{ range(10 ** 9) | list }}" },
    { "nested loops", "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" },
    { "nested loops that write", "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}" },
    { "three nested loops", "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{{ c }}{% endfor %}"
                            "{% endfor %}{% endfor %}" },
    { "'a' * 1e9", "{{ 'a' * 1000000000 }}" },
    { "'a' * 2^62", "{{ 'a' * 4611686018427387904 }}" },
    { "'' * 2^62 in a loop", "{% for a in range(99999) %}{% for b in range(99999) %}{{ '' * 4611686018427387904 }}{% endfor %}"
                             "{% endfor %}" },
    { "[0] * 1e9", "{{ [0] * 1000000000 }}" },
    { "lists doubled", "{% set ns = namespace(x=[0]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}" },
    { "text doubled in a loop", "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
                                "{{ ns.x }}" },
    { "text tenfold by join", "{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = [ns.x] * 10 | join %}"
                              "{% set ns.x = ns.x | join(ns.x | string) %}{% endfor %}" },
    { "replace that grows", "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x | replace('a', 'aaaa') %}"
                            "{% endfor %}" },
    { "replace of nothing", "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x | replace('', ns.x) %}"
                            "{% endfor %}" },
    { "a recursive macro", "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}" },
    { "two recursive macros", "{% macro f() %}{{ g() }}{% endmacro %}{% macro g() %}{{ f() }}{% endmacro %}{{ f() }}" },
    { "a macro that calls itself twice", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
                                        "{% endmacro %}{{ f(99) }}" },
    { "a default that calls its macro", "{% macro f(a=f()) %}{% endmacro %}{{ f() }}" },
    { "a caller that calls", "{% macro f() %}{{ caller() }}{% endmacro %}{% macro g() %}{% call f() %}{{ g() }}{% endcall %}"
                             "{% endmacro %}{{ g() }}" },
    { "a recursive loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}" },
    { "an if that calls", "{% macro f() %}{% for x in [1] if f() %}{% endfor %}{% endmacro %}{{ f() }}" },
    { "a picky loop for ever", "{% for a in range(99999) if range(99999) | sum > 0 %}{% endfor %}" },
    { "undefined.a", "{{ nope.a }}" },
    { "undefined chain", "{{ nope.a.b.c.d }}" },
    { "none chain", "{{ z.a.b }}" },
    { "deep missing chain", "{{ d.a.b.c.d.e }}" },
    { "messages of nowhere", "{{ messages[99].content.x }}" },
    { "undefined called", "{{ nope() }}" },
    { "undefined as filter argument", "{{ s.split(nope.x) }}" },
    { "undefined arithmetic", "{{ nope + 1 }}" },
    { "filters for ever", "{% set ns = namespace(x=l) %}{% for i in range(9999) %}{% set ns.x = ns.x | map('string') %}{% endfor %}"
                          "{{ ns.x | list }}" },
    { "map of map", "{{ [[[[1]]]] | map('map', 'map', 'map', 'list') | map('nosuch') | list }}" },
    { "sort in a loop", "{% for i in range(99999) %}{% set x = range(99999) | sort %}{% endfor %}" },
    { "batches of a billion", "{{ l | batch(1000000000, 0) | list }}" },
    { "slices of a billion", "{{ l | slice(1000000000) | list }}" },
    { "center", "{{ 'a' | center(1000000000) }}" },
    { "ljust", "{{ 'a'.ljust(4611686018427387904) }}" },
    { "zfill", "{{ 'a'.zfill(1000000000) }}" },
    { "indent", "{{ 'a\\nb' | indent(1000000000) }}" },
    { "indent that grows", "{% set ns = namespace(x='a\\nb\\n') %}{% for i in range(99999) %}{% set ns.x = ns.x | indent(99) %}"
                           "{% endfor %}" },
    { "a wide %", "{{ '%999999999d' % 1 }}" },
    { "a precise %", "{{ '%.999999999f' % 1.5 }}" },
    { "a wide format", "{{ '{:999999999}'.format(1) }}" },
    { "format in a loop", "{% for i in range(99999) %}{{ '{:9999}'.format(1) }}{% endfor %}" },
    { "expandtabs", "{{ '\\t\\t'.expandtabs(1000000000) }}" },
    { "tojson indent", "{{ [[1]] | tojson(indent=1000000000) }}" },
    { "tojson in a loop", "{% for i in range(99999) %}{% set x = range(9999) | list | tojson %}{% endfor %}" },
    { "nested lists", "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}" },
    { "nested lists to JSON", "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}"
                              "{{ ns.x | tojson }}" },
    { "nested lists compared", "{% set a = namespace(x=[]) %}{% set b = namespace(x=[]) %}{% for i in range(9999) %}"
                               "{% set a.x = [a.x] %}{% set b.x = [b.x] %}{% endfor %}{{ a.x == b.x }}{{ a.x < b.x }}" },
    { "a namespace in itself", "{% set ns = namespace() %}{% set ns.ns = ns %}{{ ns }}" },
    { "nested tuples as a key", "{% set ns = namespace(x=()) %}{% for i in range(9999) %}{% set ns.x = (ns.x,) %}{% endfor %}"
                                "{{ {ns.x: 1} }}" },
    { "wide tree", "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}" },
    { "wide tree compared", "{% set a = namespace(x=[1]) %}{% set b = namespace(x=[1]) %}{% for i in range(60) %}"
                            "{% set a.x = [a.x, a.x] %}{% set b.x = [b.x, b.x] %}{% endfor %}{{ a.x == b.x }}" },
    { "integers that grow", "{% set ns = namespace(n=2) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}" },
    { "a power", "{{ 10 ** 100 }}" },
    { "an integer of 100 digits", "{{ 1000000000000000000000000000000000000000000000000000000000000000000000 }}" },
    { "count of everything", "{% for i in range(99999) %}{% set x = ('a' * 999999).count('aa') %}{% endfor %}" },
    { "split of everything", "{% for i in range(99999) %}{% set x = ('a ' * 99999).split() %}{% endfor %}" },
    { "find of what nearly is", "{% set a = 'a' * 1000000 %}{% for i in range(999) %}{{ (a ~ 'b') in (a ~ a) }}{% endfor %}" },
    { "rfind of what nearly is", "{% set a = 'a' * 100000 %}{% for i in range(999) %}{{ (a ~ a).rfind('b' ~ a) }}{% endfor %}" },
    { "strip with many characters",
      "{% set a = 'é' * 99999 %}{% for i in range(9999) %}{{ a.strip('x' * 9999 ~ 'é') }}{% endfor %}" },
    { "capture in capture", "{% macro f() %}{% set x %}{{ f() }}{{ f() }}{% endset %}{{ x }}{% endmacro %}{{ f() }}" },
    { "unpack of a million", "{% for a, b in [range(99999), range(99999)] %}{% endfor %}" },
    { "raise_exception", "{{ raise_exception('no ' ~ messages[0].role ~ ' today') }}" },
    { "append", "{{ l.append(1) }}" },
    { "a class", "{{ ''.__class__.__mro__ }}" },
    { "globals of a macro", "{% macro f() %}{% endmacro %}{{ f.__globals__.x }}" },
    { "a test named with NULs", "{{ l | select('eq\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00') | list }}" },
    { "a filter named with NULs", "{{ l | map('upper\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00') | list }}" },
    { "include", "{% include '/etc/passwd' %}" },
    { "import", "{% import 'os' as os %}" },
    { "extends", "{% extends 'x' %}" },
};

/* What goes through a text is charged for every byte of it, so that a refusal comes soon: at least so many per byte. */
static void walks_are_charged(void **state)
{
    static const struct { const char *expression; double least; } cases[] = {
        { "x | title", 2 },         { "x.swapcase()", 2 },    { "x | upper", 1 },     { "x is lower", 1 },
        { "x.isprintable()", 1 },   { "x.expandtabs()", 1 },  { "x | wordcount", 1 }, { "x | striptags", 1 },
        { "x | reverse", 1 },       { "x | urlencode", 1 },   { "x | escape", 1 },    { "x | tojson", 1 },
        { "x.splitlines()", 1 },    { "x.split()", 1 },       { "x.count('zz')", 1 }, { "'zz' in x", 1 },
        { "x | replace('z', '')", 1 }, { "x | wordwrap(20)", 1 }, { "x.rfind('zz')", 1 }, { "x.center(200000)", 1 },
    };
    enum { N = 120000 };
    char *text = rg_alloc(N);
    json_t *v = hostile_variables();
    rg_error err = { 0 };

    (void)state;
    for (size_t i = 0; i < N; i++)
        text[i] = "ab "[i % 3];
    json_object_set_new(v, "x", json_stringn(text, N));
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_jinja_cost cost = { 0 };
        char source[100];
        rg_text out;
        int n = snprintf(source, sizeof source, "{%% set y = %s %%}", cases[i].expression);
        rg_text_init(&out, OUT_CAP);
        assert_ok(render_counted(source, (size_t)n, NULL, v, &out, &cost, &err), err);
        if ((double)cost.bytes < cases[i].least * N)
            fail_msg("%s: charged %zu bytes for %d", cases[i].expression, cost.bytes, N);
        rg_text_fini(&out);
    }
    json_decref(v);
    rg_free(text);
}

static void hostile_templates(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(hostile); i++)
        refuse(hostile[i].name, hostile[i].source, strlen(hostile[i].source));
    assert_true(RG_LEN(hostile) >= 60);
}

/* piece as often as a source may hold it, between before and after. */
static void refuse_many(const char *name, const char *before, const char *piece, const char *after)
{
    size_t k = strlen(piece), a = strlen(before), b = strlen(after), n = (RG_JINJA_SOURCE_BYTES - a - b) / k;
    char *source = rg_alloc(a + n * k + b + 1);

    memcpy(source, before, a);
    for (size_t i = 0; i < n; i++)
        memcpy(source + a + i * k, piece, k);
    memcpy(source + a + n * k, after, b + 1);
    refuse(name, source, a + n * k + b);
    rg_free(source);
}

static void hostile_sizes(void **state)
{
    (void)state;
    refuse_many("many parentheses", "{{ ", "(", "1");
    refuse_many("many brackets", "{{ ", "[", "1");
    refuse_many("many braces", "{{ ", "{1:", "1");
    refuse_many("many ifs", "", "{% if 1 %}", "");
    refuse_many("many fors", "", "{% for x in l %}", "");
    refuse_many("many macros", "", "{% macro f() %}", "");
    refuse_many("many minuses", "{{ ", "-", "nope }}");
    refuse_many("many elses", "{{ ", "0 if 0 else ", "nope.x }}");
    refuse_many("many inline ifs", "{{ 1", " if 0", "}}");
    refuse_many("calls in calls", "{{ ", "f(", "}}");
    refuse_many("filters in filters", "{{ s", "|replace(s", "}}");
    refuse_many("tests in tests", "{{ 1", " is eq(1", "}}");
    refuse_many("powers of powers", "{{ nope", " ** 2 or 2 and not 3 == 4 + 5 ~ 6 * (7", " }}");
    refuse_many("x = x ~ x", "{% set x = 'ab' %}", "{% set x = x ~ x %}", "{{ x }}");
    refuse_many("nots", "{{ ", "not ", "nope.x }}");
    refuse_many("many variables", "", "{{ nope }}", "{{ nope.x }}");
    refuse_many("a long chain", "{{ 1", " + 1", " + nope }}");
    refuse_many("a long concatenation", "{{ 1", " ~ 1", " ~ nope.x }}");
    refuse_many("a long comparison", "{{ 1", " <= 1", " <= nope.x }}");
    refuse_many("a long comment", "{#", " #", "");
    refuse_many("raw without end", "{% raw %}", "{% end", "");
    refuse_many("a long string", "{{ '", "\\\\", "");
    refuse_many("keywords", "{{ f(", "a=1,", ")}}");
    refuse_many("parameters", "{% macro f(", "a,", ")%}");

    static char longest[RG_JINJA_SOURCE_BYTES + 1];
    rg_error err = { 0 };
    rg_text out;
    memset(longest, 'a', sizeof longest);
    refuse("too long", longest, sizeof longest);
    rg_text_init(&out, OUT_CAP);
    assert_ok(render(longest, RG_JINJA_SOURCE_BYTES, NULL, NULL, &out, &err), err);
    assert_int_equal(out.bytes.n, RG_JINJA_SOURCE_BYTES);
    rg_text_fini(&out);
}

/* ---- what is deep but allowed, on a small stack ---- */

static void *deep(void *arg)
{
    static char source[1 << 16];
    const char *const before[] = { "{{ ", "{{ ", "{{ " }, *const piece[] = { "(", "[1 + ", "(0 or 1 and not 2 == 3 + 4 ~ 5 * " };
    const char *const close[] = { ")", "]", ")" };
    const int counts[] = { 190, 190, 40 };
    bool *all = arg;
    json_t *v = hostile_variables();

    for (size_t i = 0; i < RG_LEN(before); i++) {
        rg_error err = { 0 };
        rg_text out;
        size_t n = (size_t)snprintf(source, sizeof source, "%s", before[i]);
        for (int k = 0; k < counts[i]; k++)
            n += (size_t)snprintf(source + n, sizeof source - n, "%s", piece[i]);
        n += (size_t)snprintf(source + n, sizeof source - n, "%s", i == 1 ? "1" : "7");
        for (int k = 0; k < counts[i]; k++)
            n += (size_t)snprintf(source + n, sizeof source - n, "%s", close[i]);
        n += (size_t)snprintf(source + n, sizeof source - n, " }}");
        rg_text_init(&out, OUT_CAP);
        bool ok = render(source, n, NULL, NULL, &out, &err);
        bool good = ok || strstr(err.text, "unsupported operand"); /* 1 + [...] */
        if (!good)
            print_error("deep %zu: %s\n", i, err.text);
        *all &= good;
        rg_text_fini(&out);
    }
    for (size_t i = 0; i < RG_LEN(hostile); i++) {
        rg_text out;
        rg_error err;
        rg_text_init(&out, OUT_CAP);
        *all &= !render(hostile[i].source, strlen(hostile[i].source), NULL, v, &out, &err);
        rg_text_fini(&out);
    }
    json_decref(v);
    return NULL;
}

static void small_stack(void **state)
{
    pthread_t thread;
    pthread_attr_t attr;
    bool all = true;

    (void)state;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, (size_t)(TEST_SLOWER > 1 ? 4096 : 256) << 10), 0);
    assert_int_equal(pthread_create(&thread, &attr, deep, &all), 0);
    pthread_join(thread, NULL);
    assert_true(all);
}

/* ---- memory ---- */

static bool allow(void *arg, size_t bytes)
{
    long *left = arg;

    (void)bytes;
    return (*left)-- != 0;
}

static void every_allocation(void **state)
{
    static const char source[] =
        "{% macro f(a, b='x') %}{{ a }}{{ b }}{{ caller() if caller else '' }}{% endmacro %}"
        "{% set ns = namespace(n=0) %}{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content | upper | tojson }}"
        "{% set ns.n = ns.n + 1 %}{% endfor %}{% call f(s) %}{{ d }}{% endcall %}{{ '%s' % s }}{{ l | sort | join(',') }}"
        "{% set big %}{% for i in range(3000) %}{{ s ~ i }}{% endfor %}{% endset %}{{ big | length }}";
    json_t *v = hostile_variables();
    rg_mem_stats before = rg_mem_count();
    long n_failed = 0;

    (void)state;
    for (long at = 0;; at++) {
        rg_text out;
        rg_error err = { 0 };
        long left = at;
        rg_text_init(&out, OUT_CAP);
        rg_mem_set_gate(allow, &left);
        bool ok = render(source, strlen(source), NULL, v, &out, &err);
        rg_mem_set_gate(NULL, NULL);
        if (!ok)
            assert_int_equal(err.code, RG_E_MEMORY);
        rg_text_fini(&out);
        assert_int_equal(rg_mem_count().n_live, before.n_live);
        if (ok)
            break;
        n_failed++;
    }
    assert_true(n_failed > 20);
    json_decref(v);
}

static void error_lines(void **state)
{
    static const struct { const char *source, *text; } cases[] = {
        { "a\nb\n{{ nope.x }}", "line 3: 'nope' is undefined" },
        { "a\r\n\r\n{% if %}", "line 3: expected an expression" },
        { "{% set x = 1 %}\n{% for i in [1] %}\n{{ raise_exception('my words') }}{% endfor %}", "line 3: my words" },
        { "\n\n{{ 'a' | nosuch }}", "line 3: there is no filter 'nosuch'" },
        { "\n{% if true %}\n", "'elif'" },
    };

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        rg_error err = { 0 };
        rg_text out;
        rg_text_init(&out, OUT_CAP);
        assert_false(render(cases[i].source, strlen(cases[i].source), NULL, NULL, &out, &err));
        if (!strstr(err.text, cases[i].text))
            print_error("%s\n  says %s\n  not  %s\n", cases[i].source, err.text, cases[i].text);
        assert_non_null(strstr(err.text, cases[i].text));
        rg_text_fini(&out);
    }
}

static void the_clock(void **state)
{
    static const char source[] = "{{ strftime_now('%d %b %Y %H:%M:%S %A %j') }}";
    rg_error err = { 0 };
    rg_text out;

    (void)state;
    rg_text_init(&out, OUT_CAP);
    assert_ok(render(source, strlen(source), NULL, NULL, &out, &err), err);
    assert_string_equal(out.bytes.data, "15 Jul 2025 12:00:00 Tuesday 196");
    rg_text_fini(&out);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(golden),        cmocka_unit_test(constructs),    cmocka_unit_test(origins),
        cmocka_unit_test(hostile_templates), cmocka_unit_test(hostile_sizes), cmocka_unit_test(small_stack),
        cmocka_unit_test(every_allocation), cmocka_unit_test(error_lines), cmocka_unit_test(the_clock),
        cmocka_unit_test(walks_are_charged),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
