/* literal.c -- arguments as Python writes them, or with special quotes and bare keys, on the way to JSON, byte by byte.
 *
 * Words that are no number, no truth value and no null become texts.  A text's escapes are Python's; between special
 * quotes there are none. */
#include <stdio.h>

#include "base/json.h"
#include "base/utf8.h"
#include "server/talk/inner.h"

enum { SPECIAL = 1 }; /* l->in of a text between special quotes */

void rg_loose_begin(rg_loose *l, const char *quote, const json_t *names, bool python)
{
    rg_buf word = l->word;

    rg_buf_reset(&word);
    *l = (rg_loose){ .quote = quote, .names = names, .word = word };
    if (python)
        l->stack[l->depth++] = ')';
}

/* The word as JSON: a number, a truth value or null as it is, else a text. */
static void give_word(rg_answer *a, rg_loose *l, rg_buf *out, bool key)
{
    static const struct {
        const char *python, *json;
    } same[] = { { "True", "true" }, { "False", "false" }, { "None", "null" } };
    const char *s = l->word.data;
    size_t n = l->word.n;

    while (n && rg_is_blank(s[n - 1]))
        n--;
    if (!n)
        return;
    for (size_t i = 0; !key && i < RG_LEN(same); i++)
        if (strlen(same[i].python) == n && !memcmp(s, same[i].python, n)) {
            rg_put(a, out, same[i].json, strlen(same[i].json));
            rg_buf_reset(&l->word);
            return;
        }
    json_t *v = key ? NULL : rg_json_load(s, n, JSON_DECODE_ANY, NULL);
    rg_put(a, out, "\"", !v);
    if (v)
        rg_put(a, out, s, n);
    else
        rg_put_escaped(a, out, s, n);
    rg_put(a, out, "\"", !v);
    json_decref(v);
    rg_buf_reset(&l->word);
}

/* An argument without a name gets that of its place. */
static void name_value(rg_answer *a, rg_loose *l, rg_buf *out)
{
    const char *key;
    json_t *v;
    int i = 0;

    if (l->value || l->depth != 1 || l->stack[0] != ')')
        return;
    json_object_foreach((json_t *)(uintptr_t)l->names, key, v) if (i++ == l->n_values) break;
    char usual[32];
    snprintf(usual, sizeof usual, "arg%d", l->n_values);
    key = i == l->n_values + 1 ? key : usual;
    rg_put(a, out, "\"", 1);
    rg_put_escaped(a, out, key, strlen(key));
    rg_put(a, out, "\":", 2);
    l->value = true;
}

static void open_bracket(rg_answer *a, rg_loose *l, char c, rg_buf *out)
{
    name_value(a, l, out);
    if (l->depth == RG_CALL_DEPTH)
        return;
    l->stack[l->depth++] = c == '{' ? '}' : c == '[' ? ']' : 't';
    rg_put(a, out, c == '{' ? "{" : "[", 1);
}

static void close_bracket(rg_answer *a, rg_loose *l, rg_buf *out)
{
    char c = l->depth ? l->stack[--l->depth] : '}';

    rg_put(a, out, c == '}' || c == ')' ? "}" : "]", 1);
    l->done = !l->depth;
}

static void punctuation(rg_answer *a, rg_loose *l, char c, rg_buf *out)
{
    bool names = c == ':' || c == '=';

    if (names || l->word.n) {
        if (!names)
            name_value(a, l, out);
        give_word(a, l, out, names);
    }
    if (names) {
        rg_put(a, out, ":", 1);
        l->value |= l->depth == 1;
    } else if (c == ',') {
        rg_put(a, out, ",", 1);
        if (l->depth == 1) {
            l->value = false;
            l->n_values++;
        }
    } else if (c == '{' || c == '[' || c == '(') {
        open_bracket(a, l, c, out);
    } else {
        close_bracket(a, l, out);
    }
}

static void give_code(rg_answer *a, rg_loose *l, rg_buf *out)
{
    char s[16];

    if (l->code < 0x10000)
        snprintf(s, sizeof s, "\\u%04x", l->code);
    else
        snprintf(s, sizeof s, "\\u%04x\\u%04x", 0xd800 + ((l->code - 0x10000) >> 10 & 0x3ff),
                 0xdc00 + (l->code & 0x3ff));
    rg_put(a, out, s, strlen(s));
}

static void escape(rg_answer *a, rg_loose *l, char c, rg_buf *out)
{
    static const char from[] = "nrtbfav0", to[] = "\n\r\t\b\f\a\v";
    const char *at = strchr(from, c);

    l->escaped = false;
    if (c == 'x' || c == 'u' || c == 'U') {
        l->hex_left = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        l->code = 0;
    } else if (c == '0') {
        rg_put(a, out, "\\u0000", 6);
    } else if (at) {
        rg_put_escaped(a, out, to + (at - from), 1);
    } else if (c != '\n') {
        if (c != '\\' && c != '"' && c != '\'' && c != '/')
            rg_put_escaped(a, out, "\\", 1);
        rg_put_escaped(a, out, &c, 1);
    }
}

static void in_text(rg_answer *a, rg_loose *l, char c, rg_buf *out)
{
    if (l->hex_left) {
        const char *digits = "0123456789abcdefABCDEF", *at = c ? strchr(digits, c) : NULL;
        unsigned d = at ? (unsigned)(at - digits) : 0;
        l->code = l->code * 16 + (d > 15 ? d - 6 : d);
        if (!--l->hex_left)
            give_code(a, l, out);
    } else if (l->escaped) {
        escape(a, l, c, out);
    } else if (c == '\\') {
        l->escaped = true;
    } else if (c == l->in) {
        rg_put(a, out, "\"", 1);
        l->in = 0;
    } else {
        rg_put_escaped(a, out, &c, 1);
    }
}

/* A byte outside of texts. */
static void outside(rg_answer *a, rg_loose *l, char c, rg_buf *out)
{
    if (strchr("{}[](),:=", c) && c) {
        punctuation(a, l, c, out);
    } else if ((c == '"' || c == '\'') && !l->word.n) {
        name_value(a, l, out);
        rg_put(a, out, "\"", 1);
        l->in = c;
    } else if (!rg_is_blank(c) || l->word.n) {
        rg_put(a, &l->word, &c, 1);
    }
}

/* A text in Python's quotes at the place of a name is one if ':' or '=' follows; at the top it is the value. */
size_t rg_loose_feed(rg_answer *a, rg_loose *l, const char *s, size_t n, rg_buf *out)
{
    size_t i = 0;

    while (i < n && !l->done) {
        int k = l->quote && (!l->in || l->in == SPECIAL) ? rg_mark_match(l->quote, s + i, n - i, a->last) : RG_MARK_NO;
        if (k == RG_MARK_MAYBE)
            break;
        if (k > 0) {
            if (!l->in)
                name_value(a, l, out);
            rg_put(a, out, "\"", 1);
            l->in = l->in ? 0 : SPECIAL;
            i += (size_t)k;
        } else if (l->in == SPECIAL) {
            rg_put_escaped(a, out, s + i++, 1);
        } else if (l->in) {
            in_text(a, l, s[i++], out);
        } else {
            outside(a, l, s[i++], out);
        }
    }
    return i;
}
