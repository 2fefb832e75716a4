/* tojson.c -- values to JSON as Python's json.dumps writes it, and JSON to values. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "ckpt/json.h"
#include "text/jinja/internal.h"

typedef struct dump {
    jj_ctx *c;
    jj_buf *b;
    jj_str *indent; /* NULL: on one line */
    jj_str *comma, *colon;
    bool ascii, sort;
    int level;
} dump;

static int escape(uint32_t code, int ascii, char out[16])
{
    static const char plain[] = "\"\\\n\r\t\b\f", letter[] = "\"\\nrtbf";
    const char *p;

    if (code && code < 128 && (p = strchr(plain, (int)code)))
        return snprintf(out, 16, "\\%c", letter[p - plain]);
    if (code >= 65536 && ascii)
        return snprintf(out, 16, "\\u%04x\\u%04x", 0xd800 + ((code - 65536) >> 10), 0xdc00 + ((code - 65536) & 0x3ff));
    if (code < ' ' || (ascii && code > '~'))
        return snprintf(out, 16, "\\u%04x", code);
    return 0;
}

static bool put_string(dump *d, const jj_str *s)
{
    return jj_put_spelled(d->c, d->b, s, '"', escape, d->ascii);
}

static bool put_scalar(dump *d, jj_value v)
{
    switch (v.type) {
    case JJ_NONE:
        return jj_put_text(d->c, d->b, "null", !v.foreign);
    case JJ_BOOL:
        return jj_put_text(d->c, d->b, v.b ? "true" : "false", !v.foreign);
    case JJ_FLOAT:
        if (!isfinite(v.f))
            return jj_put_text(d->c, d->b, isnan(v.f) ? "NaN" : v.f > 0 ? "Infinity" : "-Infinity", !v.foreign);
        /* fall through */
    case JJ_INT:
        return jj_print(d->c, d->b, v);
    default:
        return jj_fail(d->c, "tojson: object of type %s is not JSON serializable", jj_type_name(v));
    }
}

static bool put_break(dump *d, bool foreign)
{
    if (!d->indent)
        return true;
    if (!jj_put_text(d->c, d->b, "\n", !foreign))
        return false;
    for (int i = 0; i < d->level; i++)
        if (!jj_put_str(d->c, d->b, d->indent))
            return false;
    return true;
}

/* A separator as it was given, but for foreign containers. */
static bool put_separator(dump *d, const jj_str *s, bool foreign)
{
    return foreign ? jj_put_bytes(d->c, d->b, jj_data(s), s->n, false) : jj_put_str(d->c, d->b, s);
}

static bool put_key(dump *d, jj_value key)
{
    if (key.type == JJ_STR)
        return put_string(d, key.s);
    if (key.type != JJ_NONE && !jj_is_number(key))
        return jj_fail(d->c, "tojson: keys must be str, int, float, bool or None, not %s", jj_type_name(key));
    return jj_put_text(d->c, d->b, "\"", !key.foreign) && put_scalar(d, key) &&
           jj_put_text(d->c, d->b, "\"", !key.foreign);
}

static bool put(dump *d, jj_value v);

static bool put_members(dump *d, const jj_value *key, const jj_value *value, size_t n, jj_value v)
{
    bool list = v.type != JJ_DICT;

    if (!jj_put_text(d->c, d->b, list ? "[" : "{", !v.foreign))
        return false;
    d->level++;
    for (size_t i = 0; i < n; i++) {
        if (!jj_step(d->c, 2) || (i && !put_separator(d, d->comma, v.foreign)) || !put_break(d, v.foreign))
            return false;
        if (!list && (!put_key(d, key[i]) || !put_separator(d, d->colon, v.foreign)))
            return false;
        if (!put(d, value[i]))
            return false;
    }
    d->level--;
    return (!n || put_break(d, v.foreign)) && jj_put_text(d->c, d->b, list ? "]" : "}", !v.foreign);
}

static bool put_dict(dump *d, jj_value v)
{
    jj_value keys, values;
    size_t n = v.dict->n;

    if (!jj_new_list(d->c, &keys, JJ_LIST, n, false) || !jj_new_list(d->c, &values, JJ_LIST, n, false))
        return false;
    for (size_t i = 0; i < n; i++) {
        keys.list->item[i] = v.dict->entry[i].key;
        values.list->item[i] = v.dict->entry[i].value;
    }
    if (d->sort) {
        keys.list->n = n;
        if (!jj_sort(d->c, values.list, keys.list, false, n))
            return false;
    }
    return put_members(d, keys.list->item, values.list->item, n, v);
}

static bool put(dump *d, jj_value v)
{
    bool ok;

    if (v.type == JJ_STR)
        return put_string(d, v.s);
    if (v.type != JJ_LIST && v.type != JJ_TUPLE && v.type != JJ_DICT)
        return put_scalar(d, v);
    if (!jj_enter(d->c))
        return false;
    ok = v.type == JJ_DICT ? put_dict(d, v) : put_members(d, NULL, v.list->item, v.list->n, v);
    jj_leave(d->c);
    return ok;
}

/* indent: a number of blanks or a string. */
static bool read_indent(dump *d, jj_value v)
{
    int64_t n;
    jj_buf *b;

    if (v.type == JJ_MISSING || v.type == JJ_NONE)
        return true;
    if (v.type == JJ_STR)
        return d->indent = v.s, true;
    if (!jj_as_index(v, &n))
        return jj_fail(d->c, "tojson: indent is neither a number nor a string");
    b = jj_buf_new(d->c, 16, 0);
    return b && jj_put_fill(d->c, b, NULL, n > 0 ? (size_t)n : 0) && (d->indent = jj_str_from(d->c, b));
}

/* tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False) */
bool jj_tojson(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    dump d = { .c = c, .ascii = jj_truth(arg[0]), .sort = jj_truth(arg[3]), .b = jj_buf_new(c, 128, 0) };
    jj_value comma, colon;

    if (!d.b || !read_indent(&d, arg[1]) || !jj_text(c, &comma, d.indent ? "," : ", ") || !jj_text(c, &colon, ": "))
        return false;
    if (arg[2].type == JJ_TUPLE || arg[2].type == JJ_LIST) {
        if (arg[2].list->n != 2 || arg[2].list->item[0].type != JJ_STR || arg[2].list->item[1].type != JJ_STR)
            return jj_fail(c, "tojson: separators are not two strings");
        comma = arg[2].list->item[0];
        colon = arg[2].list->item[1];
    } else if (arg[2].type != JJ_MISSING && arg[2].type != JJ_NONE) {
        return jj_fail(c, "tojson: separators are not two strings");
    }
    d.comma = comma.s;
    d.colon = colon.s;
    return put(&d, self) && jj_give(out, jj_str_from(c, d.b));
}

/* ---- from JSON ---- */

static bool from_string(jj_ctx *c, const char *p, size_t n, bool trusted, jj_value *out)
{
    if (!rg_utf8_valid(p, n))
        return jj_fail(c, "a variable holds a string that is not UTF-8");
    return jj_give(out, jj_str_borrow(c, p, n, trusted));
}

static bool from_object(jj_ctx *c, const json_t *v, bool trusted, jj_value *out)
{
    const char *key;
    json_t *member;
    jj_value k, m;

    if (!jj_new_dict(c, out, !trusted))
        return false;
    json_object_foreach((json_t *)v, key, member) {
        if (!from_string(c, key, strlen(key), trusted, &k) || !jj_from_json(c, member, trusted, &m) ||
            !jj_dict_put(c, out->dict, k, m))
            return false;
    }
    return true;
}

static bool from_json(jj_ctx *c, const json_t *v, bool trusted, jj_value *out)
{
    double f;
    jj_value item;

    *out = (jj_value){ .type = JJ_NONE };
    if (json_is_string(v) && rg_json_not_finite(v, &f))
        *out = jj_float(f);
    else if (json_is_string(v))
        return from_string(c, json_string_value(v), json_string_length(v), trusted, out);
    else if (json_is_boolean(v))
        *out = jj_bool(json_is_true(v));
    else if (json_is_integer(v))
        *out = jj_int(json_integer_value(v));
    else if (json_is_real(v))
        *out = jj_float(json_real_value(v));
    else if (json_is_object(v))
        return from_object(c, v, trusted, out);
    else if (json_is_array(v)) {
        if (!jj_new_list(c, out, JJ_LIST, json_array_size(v), !trusted))
            return false;
        for (size_t i = 0; i < json_array_size(v); i++)
            if (!jj_from_json(c, json_array_get(v, i), trusted, &item) || !jj_list_add(c, out->list, item))
                return false;
        return true;
    }
    out->foreign = !trusted;
    return true;
}

bool jj_from_json(jj_ctx *c, const json_t *v, bool trusted, jj_value *out)
{
    if (!jj_enter(c))
        return false;
    bool ok = from_json(c, v, trusted, out);
    jj_leave(c);
    return ok;
}

bool jj_from_foreign(jj_ctx *c, const json_t *root, jj_value *out)
{
    jj_value name, messages, role;

    if (!jj_from_json(c, root, false, out) || !jj_text(c, &name, "messages"))
        return false;
    if (out->type != JJ_DICT || jj_dict_get(c, out->dict, name, &messages) <= 0 || messages.type != JJ_LIST)
        return !c->failed;
    if (!jj_text(c, &name, "role"))
        return false;
    for (size_t i = 0; i < messages.list->n; i++) {
        jj_value m = messages.list->item[i];
        if (m.type != JJ_DICT || jj_dict_get(c, m.dict, name, &role) <= 0 || role.type != JJ_STR)
            continue;
        if (!jj_give(&role, jj_str_borrow(c, jj_data(role.s), role.s->n, true)) || !jj_dict_put(c, m.dict, name, role))
            return false;
    }
    return !c->failed;
}
