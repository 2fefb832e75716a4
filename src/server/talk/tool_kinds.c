/* tool_kinds.c -- see tool_kinds.h. */
#include "server/talk/tool_kinds.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "server/talk/answer.h"

#define EVENT "response."

const rg_tool_kind rg_tool_kinds[] = {
    { .tool = "function",
      .call = "function_call",
      .output = "function_call_output",
      .id = "fc",
      .member = "arguments",
      .says = RG_SAYS_JSON,
      .delta = EVENT "function_call_arguments.delta",
      .done = EVENT "function_call_arguments.done" },
    { .tool = "custom",
      .call = "custom_tool_call",
      .output = "custom_tool_call_output",
      .id = "ctc",
      .member = "input",
      .says = RG_SAYS_INPUT,
      .delta = EVENT "custom_tool_call_input.delta",
      .done = EVENT "custom_tool_call_input.done",
      .schema = "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":[\"input\"]}" },
    { .tool = "local_shell",
      .call = "local_shell_call",
      .output = "local_shell_call_output",
      .id = "lsh",
      .name = "local_shell",
      .member = "action",
      .says = RG_SAYS_OBJECT,
      .fixed = "{\"type\":\"exec\",\"env\":{}}",
      .about = "Runs a command on the user's machine and returns what it prints.",
      .schema = "{\"type\":\"object\",\"properties\":{\"command\":{\"type\":\"array\",\"items\":{\"type\":\"string\"},"
                "\"description\":\"The program and its arguments\"},\"working_directory\":{\"type\":\"string\"},"
                "\"timeout_ms\":{\"type\":\"integer\"}},\"required\":[\"command\"]}" },
    { .tool = "shell",
      .call = "shell_call",
      .output = "shell_call_output",
      .id = "sh",
      .name = "shell",
      .member = "action",
      .says = RG_SAYS_OBJECT,
      .about = "Runs commands of a shell and returns what they print.",
      .schema = "{\"type\":\"object\",\"properties\":{\"commands\":{\"type\":\"array\",\"items\":{\"type\":"
                "\"string\"}},\"timeout_ms\":{\"type\":\"integer\"},\"max_output_length\":{\"type\":\"integer\"}},"
                "\"required\":[\"commands\"]}" },
    { .tool = "apply_patch",
      .call = "apply_patch_call",
      .output = "apply_patch_call_output",
      .id = "apc",
      .name = "apply_patch",
      .member = "operation",
      .says = RG_SAYS_OBJECT,
      .about = "Creates, updates or deletes one file. The diff has lines that begin with a blank, + or -, after a line "
               "that begins with @@.",
      .schema = "{\"type\":\"object\",\"properties\":{\"type\":{\"enum\":[\"create_file\",\"update_file\","
                "\"delete_file\"]},\"path\":{\"type\":\"string\"},\"diff\":{\"type\":\"string\"}},"
                "\"required\":[\"type\",\"path\"]}" },
    { .tool = "tool_search",
      .call = "tool_search_call",
      .output = "tool_search_output",
      .id = "tsc",
      .name = "tool_search",
      .member = "arguments",
      .says = RG_SAYS_OBJECT,
      .about = "Searches for tools. Those that are found can be called afterwards.",
      .schema = "{\"type\":\"object\",\"properties\":{\"query\":{\"type\":\"string\"}},\"required\":[\"query\"]}" },
    { 0 },
};

static bool is(const char *a, const char *b)
{
    return a && b && !strcmp(a, b);
}

const rg_tool_kind *rg_tool_kind_of(const char *tool)
{
    for (const rg_tool_kind *k = rg_tool_kinds; k->tool; k++)
        if (is(k->tool, tool))
            return k;
    return NULL;
}

const rg_tool_kind *rg_tool_kind_of_call(const char *item)
{
    for (const rg_tool_kind *k = rg_tool_kinds; k->tool; k++)
        if (is(k->call, item))
            return k;
    return NULL;
}

const rg_tool_kind *rg_tool_kind_of_output(const char *item)
{
    for (const rg_tool_kind *k = rg_tool_kinds; k->tool; k++)
        if (is(k->output, item))
            return k;
    return NULL;
}

void rg_tool_flat_name(char out[RG_FLAT_NAME], const char *namespace, const char *name)
{
    size_t n = namespace ? strlen(namespace) : 0;
    bool ends = n > 1 && !strcmp(namespace + n - 2, "__");

    snprintf(out, RG_FLAT_NAME, "%s%s%s", n ? namespace : "", n && !ends ? "__" : "", name);
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

/* The object that an item has, without what is fixed and what is null. */
static json_t *asked_for(const rg_tool_kind *k, const json_t *given)
{
    json_t *out = json_copy((json_t *)(uintptr_t)given), *v;
    json_t *fixed = k->fixed ? rg_json_load(k->fixed, strlen(k->fixed), 0, NULL) : NULL;
    const char *key;
    void *next;

    json_object_foreach_safe(out, next, key, v) if (json_is_null(v) || (json_object_get(fixed, key) &&
                                                                        json_equal(json_object_get(fixed, key), v)))
        json_object_del(out, key);
    json_decref(fixed);
    return out;
}

json_t *rg_tool_kind_arguments(const rg_tool_kind *k, const json_t *item)
{
    json_t *given = json_object_get(item, k->member);

    switch (k->says) {
    case RG_SAYS_INPUT:
        return json_is_string(given) ? json_pack("{s:O}", "input", given) : NULL;
    case RG_SAYS_OBJECT:
        return json_is_object(given) ? asked_for(k, given) : json_is_string(given) ? json_incref(given) : NULL;
    default:
        return json_is_null(given) || !given ? json_object() : json_incref(given);
    }
}

/* The arguments and what is fixed as one object; a call that is cut as far as it goes. */
static json_t *whole_object(const rg_tool_kind *k, const char *arguments, bool cut)
{
    char *closed = cut ? rg_arguments_close(arguments) : NULL;
    const char *text = closed ? closed : arguments;
    json_t *given = rg_json_load(text, strlen(text), JSON_ALLOW_NUL, NULL);
    json_t *out = k->fixed ? rg_json_load(k->fixed, strlen(k->fixed), 0, NULL) : json_object();

    if (json_is_object(given))
        json_object_update(out, given);
    json_decref(given);
    rg_free(closed);
    return out;
}

void rg_tool_kind_write(rg_buf *b, const rg_tool_kind *k, const char *arguments, bool cut)
{
    rg_input_scan scan = { 0 };
    json_t *object = NULL;
    rg_buf input;

    switch (k->says) {
    case RG_SAYS_INPUT:
        rg_buf_init(&input, b->cap);
        rg_input_read_on(&scan, arguments, strlen(arguments), &input);
        if (scan.state) /* it is in the form that was asked for */
            rg_out_string(b, k->member, input.data ? input.data : "", input.n);
        else
            rg_out_text(b, k->member, arguments);
        rg_buf_fini(&input);
        break;
    case RG_SAYS_OBJECT:
        object = whole_object(k, arguments, cut);
        rg_out_value(b, k->member, object);
        json_decref(object);
        break;
    default:
        rg_out_text(b, k->member, arguments);
    }
}

/* ---- a free text within JSON ------------------------------------------------------------------------------------- */

enum { BEFORE, WITHIN, BEHIND };

static size_t blanks(const char *s, size_t n, size_t at)
{
    while (at < n && strchr(" \n\t\r", s[at]) && s[at])
        at++;
    return at;
}

/* The bytes of {"input":" with any blanks between; 0: they are not all there. */
static size_t opening(const char *s, size_t n)
{
    static const char *const parts[] = { "{", "\"input\"", ":", "\"" };
    size_t at = 0;

    for (size_t i = 0; i < RG_LEN(parts); i++) {
        size_t k = strlen(parts[i]);
        at = blanks(s, n, at);
        if (n - at < k || memcmp(s + at, parts[i], k) != 0)
            return 0;
        at += k;
    }
    return at;
}

static void put_character(rg_buf *out, unsigned c)
{
    char utf8[4];

    rg_buf_add(out, utf8, rg_utf8_encode(c, utf8));
}

/* The escape of four hexadecimal digits at s; pairs become one character. */
static void take_unicode(rg_input_scan *scan, const char *s, rg_buf *out)
{
    unsigned c = 0;

    for (int i = 0; i < 4; i++) {
        char h = s[i];
        c = 16 * c + (unsigned)(h <= '9' ? h - '0' : (h | 32) - 'a' + 10);
    }
    bool low = c >= 0xdc00 && c < 0xe000, high = c >= 0xd800 && c < 0xdc00;
    if (scan->high && low)
        put_character(out, 0x10000 + ((scan->high - 0xd800) << 10) + (c - 0xdc00));
    else if (!high)
        put_character(out, low ? 0xfffd : c);
    scan->high = high ? c : 0;
}

/* The bytes of the escape at s[0, n), which begins with a backslash; 0: it is not whole. */
static size_t take_escape(rg_input_scan *scan, const char *s, size_t n, rg_buf *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *p;

    if (n < 2 || (s[1] == 'u' && n < 6))
        return 0;
    if (s[1] == 'u') {
        take_unicode(scan, s + 2, out);
        return 6;
    }
    p = strchr(from, s[1]);
    rg_buf_add(out, p ? &to[p - from] : &s[1], 1);
    return 2;
}

void rg_input_read_on(rg_input_scan *scan, const char *s, size_t n, rg_buf *out)
{
    if (scan->state == BEFORE) {
        scan->at = opening(s, n);
        scan->state = scan->at ? WITHIN : BEFORE;
    }
    while (scan->state == WITHIN && scan->at < n) {
        size_t plain = scan->at, used;

        while (plain < n && s[plain] != '"' && s[plain] != '\\')
            plain++;
        rg_buf_add(out, s + scan->at, plain - scan->at);
        scan->at = plain;
        if (plain == n)
            break;
        used = s[plain] == '"' ? 1 : take_escape(scan, s + plain, n - plain, out);
        scan->state = s[plain] == '"' ? BEHIND : WITHIN;
        scan->at += used;
        if (!used)
            break;
    }
}
