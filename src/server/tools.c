/* tools.c -- the common ways in which models write calls of tools.
 *
 * JSON objects with a name and arguments, one or many, between marks of a model family; the XML of Qwen3-Coder and
 * Llama; the header and fence of DeepSeek.  A text counts as calls only if all of it is calls. */
#define _GNU_SOURCE 1 /* memmem */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/answer.h"
#include "server/json.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void trim(const char **s, size_t *n)
{
    while (*n && is_space(**s))
        ++*s, --*n;
    while (*n && is_space((*s)[*n - 1]))
        --*n;
}

static const char *find(const char *s, size_t n, const char *what)
{
    return n ? memmem(s, n, what, strlen(what)) : NULL;
}

/* A new id in the form that the chat template demands, or in the usual one. */
static void make_id(char id[RG_CALL_ID], int id_chars)
{
    static const char digits[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    int at = id_chars ? 0 : snprintf(id, RG_CALL_ID, "call_"), end = id_chars ? id_chars : at + 24;
    uint64_t r = rg_seed();

    for (int i = 0; at < end && at + 1 < RG_CALL_ID; at++, i++) {
        r = i % 12 ? r / 36 : rg_seed();
        id[at] = digits[r % 36];
    }
    id[at] = 0;
}

bool rg_answer_add_call(rg_answer *a, const char *name, size_t n_name, const char *arguments, size_t n_arguments)
{
    rg_tool_call *c;

    trim(&name, &n_name);
    if (!n_name || n_name > 256 || a->n_calls >= RG_MAX_TOOL_CALLS)
        return false;
    if (a->n_calls == a->calls_room) {
        int room = a->calls_room ? 2 * a->calls_room : 4;
        c = rg_resize_array(a->call, (size_t)room, sizeof *c);
        if (!c)
            return a->failed = true, false;
        a->call = c;
        a->calls_room = room;
    }
    c = &a->call[a->n_calls];
    *c = (rg_tool_call){ 0 };
    c->name = rg_strndup(name, n_name);
    c->arguments = rg_strndup(arguments, n_arguments);
    if (!c->name || !c->arguments) {
        rg_free(c->name);
        rg_free(c->arguments);
        return a->failed = true, false;
    }
    make_id(c->id, a->id_chars);
    a->n_calls++;
    return true;
}

/* Remove the calls that a reader added before it found that the text has no calls. */
static bool undo(rg_answer *a, int n_before)
{
    while (a->n_calls > n_before) {
        a->n_calls--;
        rg_free(a->call[a->n_calls].name);
        rg_free(a->call[a->n_calls].arguments);
    }
    return false;
}

static bool add_json_call(rg_answer *a, const json_t *v)
{
    static const char *const keys[] = { "arguments", "parameters", "input", "args" };
    const json_t *inner = json_object_get(v, "function"), *arguments = NULL;

    if (json_is_object(inner))
        v = inner;
    const json_t *name = json_object_get(v, "name");
    if (!json_is_string(name))
        return false;
    for (size_t i = 0; i < RG_LEN(keys) && !arguments; i++)
        arguments = json_object_get(v, keys[i]);
    if (json_is_string(arguments)) /* JSON in a string */
        return rg_answer_add_call(a, json_string_value(name), json_string_length(name), json_string_value(arguments),
                        json_string_length(arguments));
    if (arguments && !json_is_object(arguments) && !json_is_null(arguments))
        return false;
    char *s = json_is_object(arguments) ? rg_body_dump(arguments) : rg_strdup("{}");
    bool ok = s && rg_answer_add_call(a, json_string_value(name), json_string_length(name), s, strlen(s));
    rg_free(s);
    return ok;
}

size_t rg_tools_bracketed(const char *s, size_t n)
{
    size_t depth = 0;

    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"') {
            for (i++; i < n && s[i] != '"'; i++)
                i += s[i] == '\\';
        } else if (s[i] == '[' || s[i] == '{') {
            depth++;
        } else if ((s[i] == ']' || s[i] == '}') && depth && !--depth) {
            return i + 1;
        }
        if (!depth)
            return 0;
    }
    return 0;
}

/* The object or list that s starts with, whatever follows; used: its bytes. */
static json_t *parse(const char *s, size_t n, size_t *used)
{
    *used = rg_tools_bracketed(s, n);
    return *used ? rg_json_load(s, *used, JSON_ALLOW_NUL, NULL) : NULL;
}

/* Objects or lists of them, one after another, commas, semicolons and blanks between. */
static bool read_json(rg_answer *a, const char *s, size_t n)
{
    int before = a->n_calls;

    for (trim(&s, &n); n;) {
        size_t used;
        json_t *v = parse(s, n, &used);
        bool ok = v;
        if (json_is_array(v)) {
            for (size_t i = 0; ok && i < json_array_size(v); i++)
                ok = add_json_call(a, json_array_get(v, i));
        } else {
            ok = ok && add_json_call(a, v);
        }
        json_decref(v);
        if (!ok)
            return undo(a, before);
        s += used, n -= used;
        while (n && (is_space(*s) || *s == ';' || *s == ','))
            s++, n--;
    }
    return a->n_calls > before;
}

/* The function of this name among those that are offered; NULL: it is not. */
static const json_t *offered(const json_t *tools, const char *name, size_t n)
{
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *f = json_object_get(json_array_get(tools, i), "function"), *v = json_object_get(f, "name");
        if (json_is_string(v) && json_string_length(v) == n && !memcmp(json_string_value(v), name, n))
            return f;
    }
    return NULL;
}

bool rg_tools_bare(rg_answer *a, const char *s, size_t n)
{
    int before = a->n_calls;

    if (!read_json(a, s, n))
        return false;
    for (int i = before; i < a->n_calls; i++)
        if (!offered(a->tools, a->call[i].name, strlen(a->call[i].name)))
            return undo(a, before);
    return true;
}

/* What stands in a tag: JSON, or words, which is what an argument that is declared to be a text is unless quoted. */
static json_t *read_value(const json_t *function, const char *key, size_t n_key, const char *s, size_t n)
{
    const json_t *properties = json_object_get(json_object_get(function, "parameters"), "properties");
    const char *type = json_string_value(json_object_get(json_object_getn(properties, key, n_key), "type"));
    json_t *v = rg_json_load(s, n, JSON_DECODE_ANY, NULL);

    if (v && (json_is_string(v) || !type || strcmp(type, "string") != 0))
        return v;
    json_decref(v);
    return json_stringn(s, n);
}

json_t *rg_tools_read_tags(const json_t *function, const char **s, size_t *n)
{
    static const char open[] = "<parameter=", close[] = "</parameter>";
    json_t *arguments = json_object();

    for (trim(s, n); arguments && *n;) {
        const char *key = *s + strlen(open), *key_end, *value, *end;
        if (*n <= strlen(open) || memcmp(*s, open, strlen(open)) != 0)
            break;
        key_end = memchr(key, '>', (size_t)(*s + *n - key));
        end = key_end ? find(key_end, (size_t)(*s + *n - key_end), close) : NULL;
        if (!end)
            break;
        value = key_end + 1;
        size_t n_value = (size_t)(end - value), n_key = (size_t)(key_end - key);
        trim(&value, &n_value);
        if (json_object_setn_new(arguments, key, n_key, read_value(function, key, n_key, value, n_value)) != 0)
            break;
        *n -= (size_t)(end + strlen(close) - *s);
        *s = end + strlen(close);
        trim(s, n);
    }
    return arguments;
}

/* NAME>{json}, or NAME> and then <parameter=KEY>VALUE</parameter> for each. */
static bool read_xml_one(rg_answer *a, const char *s, size_t n)
{
    const char *gt = n ? memchr(s, '>', n) : NULL;
    size_t n_name = gt ? (size_t)(gt - s) : 0, left = n - n_name - 1;
    const char *body = s + n_name + 1;

    if (!gt)
        return false;
    trim(&body, &left);
    if (left && *body == '{')
        return rg_answer_add_call(a, s, n_name, body, left);
    json_t *arguments = rg_tools_read_tags(offered(a->tools, s, n_name), &body, &left);
    char *json = arguments && !left ? rg_body_dump(arguments) : NULL;
    bool ok = json && rg_answer_add_call(a, s, n_name, json, strlen(json));
    rg_free(json);
    json_decref(arguments);
    return ok;
}

/* What stands between <tool_call> and </tool_call>. */
static bool read_hermes(rg_answer *a, const char *s, size_t n)
{
    static const char open[] = "<function=", close[] = "</function>";

    trim(&s, &n);
    if (n < strlen(open) || memcmp(s, open, strlen(open)) != 0)
        return read_json(a, s, n);
    s += strlen(open), n -= strlen(open);
    const char *end = find(s, n, close);
    return end && read_xml_one(a, s, (size_t)(end - s));
}

/* Mistral: a JSON list, or NAME{json} or NAME[ARGS]{json} one after another. */
static bool read_mistral(rg_answer *a, const char *s, size_t n)
{
    static const char again[] = "[TOOL_CALLS]", args[] = "[ARGS]";
    int before = a->n_calls;

    trim(&s, &n);
    if (n && (*s == '[' || *s == '{'))
        return read_json(a, s, n);
    while (n) {
        const char *brace = memchr(s, '{', n);
        size_t n_name = brace ? (size_t)(brace - s) : 0, used = 0;
        json_t *v = brace ? parse(brace, n - n_name, &used) : NULL;
        const char *mark = find(s, n_name, args);
        bool ok = v && rg_answer_add_call(a, s, mark ? (size_t)(mark - s) : n_name, brace, used);
        json_decref(v);
        if (!ok)
            return undo(a, before);
        s = brace + used, n -= n_name + used;
        trim(&s, &n);
        if (n >= strlen(again) && !memcmp(s, again, strlen(again)))
            s += strlen(again), n -= strlen(again);
    }
    return a->n_calls > before;
}

/* DeepSeek: <call begin>TYPE<sep>NAME\n```json\n{...}\n```<call end>, or NAME<sep>{...}. */
static bool read_deepseek(rg_answer *a, const char *s, size_t n)
{
    static const char open[] = "<｜tool▁call▁begin｜>", sep[] = "<｜tool▁sep｜>";
    static const char close[] = "<｜tool▁call▁end｜>";
    int before = a->n_calls;

    for (trim(&s, &n); n; trim(&s, &n)) {
        const char *end = find(s, n, close), *mid = end ? find(s, (size_t)(end - s), sep) : NULL;
        if (!mid || n < strlen(open) || memcmp(s, open, strlen(open)) != 0)
            return undo(a, before);
        const char *name = s + strlen(open), *rest = mid + strlen(sep), *brace;
        size_t n_name = (size_t)(mid - name), used;
        if (!(brace = memchr(rest, '{', (size_t)(end - rest))))
            return undo(a, before);
        if (find(rest, (size_t)(brace - rest), "```")) {
            name = rest;
            n_name = (size_t)(find(rest, (size_t)(brace - rest), "```") - rest);
        }
        json_t *v = parse(brace, (size_t)(end - brace), &used);
        bool ok = v && rg_answer_add_call(a, name, n_name, brace, used);
        json_decref(v);
        if (!ok)
            return undo(a, before);
        n -= (size_t)(end + strlen(close) - s);
        s = end + strlen(close);
    }
    return a->n_calls > before;
}

const rg_tool_mark rg_tool_marks[] = {
    { "<tool_call>", "</tool_call>", read_hermes },
    { "<tool_calls>", "</tool_calls>", read_json },
    { "<|tool_call|>", "<|/tool_call|>", read_json },
    { "<function=", "</function>", read_xml_one },
    { "<function_call>", "</function_call>", read_json },
    { "[TOOL_CALLS]", NULL, read_mistral },
    { "<|python_tag|>", NULL, read_json },
    { "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", read_deepseek },
    { NULL, NULL, NULL },
};

/* ---- a JSON object that is cut ----------------------------------------------------------------------------------- */

enum { DEPTH = 64 };

/* How much of s is kept, and the brackets that are then open, the innermost last. */
typedef struct cut_at {
    size_t n;
    int depth;
} cut_at;

/* The last place of s where all values are whole; brackets: the closers of what is open there. */
static cut_at find_cut(const char *s, char brackets[DEPTH])
{
    cut_at best = { 0 };
    int depth = 0;
    char before = 0; /* the last byte that is part of no string, number or blank */

    for (size_t i = 0; s[i]; i++) {
        bool whole = false;
        if (s[i] == '"') {
            for (i++; s[i] && s[i] != '"'; i++)
                i += s[i] == '\\' && s[i + 1];
            if (!s[i])
                break;
            whole = before == ':' || (depth && brackets[depth - 1] == ']');
        } else if (s[i] == '{' || s[i] == '[') {
            if (depth == DEPTH)
                break;
            brackets[depth++] = s[i] == '{' ? '}' : ']';
            whole = true;
        } else if ((s[i] == '}' || s[i] == ']') && depth) {
            depth--;
            whole = true;
        }
        if (whole || s[i] == ',')
            best = (cut_at){ i + (s[i] != ','), depth };
        if (strchr("{}[]:,", s[i]))
            before = s[i];
    }
    return best;
}

char *rg_tools_close(const char *s)
{
    char brackets[DEPTH], *out;
    cut_at at;

    if (*s != '{')
        return NULL;
    at = find_cut(s, brackets);
    out = rg_alloc_tail(at.n, (size_t)at.depth + 1, 1); /* fits: at most DEPTH */
    if (!out)
        return NULL;
    memcpy(out, s, at.n);
    for (int i = 0; i < at.depth; i++)
        out[at.n + (size_t)i] = brackets[at.depth - 1 - i];
    out[at.n + (size_t)at.depth] = 0;
    return out;
}
