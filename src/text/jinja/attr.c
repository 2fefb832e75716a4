/* attr.c -- attributes and items: what a name or an index means of each type, and slices. */
#include <string.h>

#include "text/jinja/internal.h"

void jj_attr_of(jj_value name, jj_attr *out)
{
    const char *p = jj_data(name.s);
    size_t n = name.s->n;

    *out = (jj_attr){ .name = name, .hidden = n && *p == '_' };
    if (out->hidden || n > 24)
        return;
    out->method[JJ_METHODS_STR] = jj_find_def(jj_str_methods, p, n);
    out->method[JJ_METHODS_LIST] = jj_find_def(jj_list_methods, p, n);
    out->method[JJ_METHODS_TUPLE] = jj_find_def(jj_tuple_methods, p, n);
    out->method[JJ_METHODS_DICT] = jj_find_def(jj_dict_methods, p, n);
    out->method[JJ_METHODS_CYCLER] = jj_find_def(jj_cycler_methods, p, n);
    out->method[JJ_METHODS_LOOP] = jj_find_def(jj_loop_methods, p, n);
}

static const jj_def *method_of(jj_value v, const jj_attr *a)
{
    switch (v.type) {
    case JJ_STR:
        return a->method[JJ_METHODS_STR];
    case JJ_LIST:
        return a->method[JJ_METHODS_LIST];
    case JJ_TUPLE: case JJ_RANGE:
        return a->method[JJ_METHODS_TUPLE];
    case JJ_DICT:
        return a->method[JJ_METHODS_DICT];
    case JJ_CYCLER:
        return a->method[JJ_METHODS_CYCLER];
    case JJ_LOOP:
        return a->method[JJ_METHODS_LOOP];
    default:
        return NULL;
    }
}

bool jj_own_attr(jj_ctx *c, jj_value v, const jj_attr *a, jj_value *out)
{
    const jj_def *d = method_of(v, a);
    const jj_str *name = a->name.s;
    bool found;

    *out = JJ_NOTHING;
    if (d && !d->fn && !d->any)
        return jj_undefined(c, out, JJ_WHY_UNSAFE, jj_type_name(v), a->name);
    if (d) {
        jj_bound *b = jj_alloc(c, sizeof *b);
        if (!b)
            return false;
        *b = (jj_bound){ v, d };
        *out = (jj_value){ .type = JJ_METHOD, .bound = b };
        return true;
    }
    if (a->hidden && name->n > 4 && !strncmp(jj_data(name), "__", 2))
        return jj_undefined(c, out, JJ_WHY_UNSAFE, jj_type_name(v), a->name);
    if (v.type == JJ_NAMESPACE)
        return jj_dict_get(c, v.dict, a->name, out) >= 0 || !c->failed;
    if (v.type == JJ_LOOP && !a->hidden) {
        if (!jj_loop_attr(c, v.loop, name, out, &found))
            return false;
        if (!found)
            *out = JJ_NOTHING;
    } else if (v.type == JJ_TUPLE && v.sub == JJ_GROUP && v.list->n == 2) {
        if (jj_str_is(name, "grouper") || jj_str_is(name, "list"))
            *out = v.list->item[name->n == 4];
    } else if (v.type == JJ_CYCLER && jj_str_is(name, "current")) {
        *out = v.cycler->items->item[v.cycler->at];
    }
    return true;
}

bool jj_getattr(jj_ctx *c, jj_value v, const jj_attr *a, jj_value *out)
{
    if (v.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, v);
    if (!jj_own_attr(c, v, a, out))
        return false;
    if (out->type != JJ_MISSING)
        return true;
    if (v.type == JJ_DICT) {
        int got = jj_dict_get(c, v.dict, a->name, out);
        if (got)
            return got > 0;
    }
    return jj_undefined(c, out, JJ_WHY_ATTR, jj_type_name(v), a->name);
}

/* ---- items ---- */

static bool char_at(jj_ctx *c, const jj_str *s, int64_t i, jj_value *out)
{
    size_t points = jj_str_points(s), from, to;

    if (!jj_str_ascii(s) && s->points == SIZE_MAX && !jj_charge(c, s->n / 2))
        return false;
    i += i < 0 ? (int64_t)points : 0;
    if (i < 0 || i >= (int64_t)points) {
        *out = JJ_NOTHING;
        return true;
    }
    return jj_str_offset(c, s, (size_t)i, &from) && jj_str_offset(c, s, (size_t)i + 1, &to) &&
           jj_give(out, jj_str_sub(c, s, from, to - from));
}

/* The bounds of a slice over n items, as Python adjusts them.  False: not ints (and no error), or a step of 0. */
static bool slice_bounds(jj_ctx *c, const jj_list *slice, int64_t n, int64_t v[3])
{
    v[2] = 1;
    if (slice->item[2].type != JJ_NONE && !jj_as_index(slice->item[2], &v[2]))
        return false;
    if (!v[2])
        return jj_fail(c, "slice step cannot be zero");
    v[2] = v[2] > n + 1 ? n + 1 : v[2] < -n - 1 ? -n - 1 : v[2]; /* no further than past the end */
    for (int i = 0; i < 2; i++) {
        int64_t lowest = v[2] < 0 ? -1 : 0, highest = v[2] < 0 ? n - 1 : n;
        if (slice->item[i].type == JJ_NONE) {
            v[i] = (i == 0) == (v[2] > 0) ? lowest : highest;
            continue;
        }
        if (!jj_as_index(slice->item[i], &v[i]))
            return false;
        v[i] += v[i] < 0 ? n : 0;
        v[i] = v[i] < lowest ? lowest : v[i] > highest ? highest : v[i];
    }
    return true;
}

static int64_t slice_count(const int64_t v[3])
{
    if (v[2] > 0)
        return v[0] < v[1] ? (v[1] - v[0] - 1) / v[2] + 1 : 0;
    return v[0] > v[1] ? (v[0] - v[1] - 1) / -v[2] + 1 : 0;
}

static bool slice_string(jj_ctx *c, jj_value v, const int64_t s[3], int64_t n, jj_value *out)
{
    size_t from, to;
    jj_buf *b;

    if (s[2] == 1) {
        int64_t end = s[0] < s[1] ? s[1] : s[0];
        return jj_str_offset(c, v.s, (size_t)s[0], &from) && jj_str_offset(c, v.s, (size_t)end, &to) &&
               jj_give(out, jj_str_sub(c, v.s, from, to - from));
    }
    b = jj_buf_new(c, (size_t)n, 0);
    for (int64_t k = 0, i = s[0]; b && k < n; k++, i += s[2])
        if (!jj_charge(c, 8) || !jj_str_offset(c, v.s, (size_t)i, &from) ||
            !jj_str_offset(c, v.s, (size_t)i + 1, &to) || !jj_put_sub(c, b, v.s, from, to - from))
            return false;
    return b && jj_give(out, jj_str_from(c, b));
}

static bool slice(jj_ctx *c, jj_value v, const jj_list *by, jj_value *out)
{
    int64_t s[3], n = v.type == JJ_STR ? (int64_t)jj_str_points(v.s)
                      : v.type == JJ_RANGE ? (int64_t)v.range->n : (int64_t)v.list->n;

    if (v.type == JJ_STR && !jj_str_ascii(v.s) && !jj_charge(c, v.s->n / 4))
        return false;
    if (!slice_bounds(c, by, n, s))
        return jj_fail(c, "slice indices must be integers or None");
    n = slice_count(s);
    if (v.type == JJ_STR) {
        bool ok = slice_string(c, v, s, n, out);
        out->sub = v.sub;
        return ok;
    }
    if (v.type == JJ_RANGE) {
        jj_range *r = jj_alloc(c, sizeof *r), *of = v.range;
        if (!r)
            return false;
        int64_t v3[3];
        if (!rg_mul(s[0], of->step, &v3[0]) || !rg_add(of->start, v3[0], &v3[0]) || !rg_mul(s[1], of->step, &v3[1]) ||
            !rg_add(of->start, v3[1], &v3[1]) || !rg_mul(of->step, s[2], &v3[2]))
            return jj_fail(c, "an integer beyond 64 bits");
        *r = (jj_range){ v3[0], v3[1], v3[2], (size_t)n };
        *out = (jj_value){ .type = JJ_RANGE, .range = r };
        return true;
    }
    if (!jj_new_list(c, out, (jj_type)v.type, (size_t)n, v.foreign) || !jj_step(c, (size_t)n / 8))
        return false;
    for (int64_t k = 0, i = s[0]; k < n; k++, i += s[2])
        out->list->item[out->list->n++] = v.list->item[i];
    return true;
}

/* v[key] where it has one; else *out stays missing. */
static bool own_item(jj_ctx *c, jj_value v, jj_value key, jj_value *out)
{
    int64_t i, n;

    *out = JJ_NOTHING;
    switch (v.type) {
    case JJ_DICT:
        return jj_dict_get(c, v.dict, key, out) >= 0 || !c->failed;
    case JJ_STR:
        if (key.type == JJ_SLICE)
            return slice(c, v, key.list, out);
        return !jj_as_index(key, &i) || char_at(c, v.s, i, out);
    case JJ_LIST: case JJ_TUPLE: case JJ_RANGE:
        if (key.type == JJ_SLICE)
            return slice(c, v, key.list, out);
        if (!jj_as_index(key, &i))
            return true;
        n = v.type == JJ_RANGE ? (int64_t)v.range->n : (int64_t)v.list->n;
        i += i < 0 ? n : 0;
        if (i >= 0 && i < n)
            *out = v.type == JJ_RANGE ? jj_int(v.range->start + i * v.range->step) : v.list->item[i];
        return true;
    default:
        return true;
    }
}

bool jj_getitem(jj_ctx *c, jj_value v, jj_value key, jj_value *out)
{
    jj_attr a;

    if (v.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, v);
    if (key.type == JJ_SLICE && v.type != JJ_STR && v.type != JJ_LIST && v.type != JJ_TUPLE && v.type != JJ_RANGE)
        return jj_fail(c, "'%s' object has no slices", jj_type_name(v));
    if (!own_item(c, v, key, out))
        return false;
    if (out->type != JJ_MISSING)
        return true;
    if (key.type == JJ_STR) {
        jj_attr_of(key, &a);
        if (!jj_own_attr(c, v, &a, out))
            return false;
        if (out->type != JJ_MISSING)
            return true;
    }
    return jj_undefined(c, out, JJ_WHY_ATTR, jj_type_name(v), key);
}

/* A stretch of a dotted path: digits are an index. */
static jj_value part_key(const jj_str *part, jj_value text)
{
    const char *p = jj_data(part);
    int64_t i = 0;

    if (!part->n || part->n > 18)
        return text;
    for (size_t k = 0; k < part->n; k++) {
        if (p[k] < '0' || p[k] > '9')
            return text;
        i = 10 * i + (p[k] - '0');
    }
    return jj_int(i);
}

bool jj_getpath(jj_ctx *c, jj_value item, jj_value path, jj_value *out)
{
    *out = item;
    if (path.type == JJ_MISSING || path.type == JJ_NONE)
        return true;
    if (path.type != JJ_STR)
        return jj_getitem(c, item, path, out);
    if (!jj_charge(c, 32) || !jj_charge(c, path.s->n))
        return false;
    for (size_t at = 0; at <= path.s->n;) {
        size_t dot = jj_str_find(path.s, at, ".", 1);
        size_t end = dot == SIZE_MAX ? path.s->n : dot;
        jj_value part = path;
        if ((end - at != path.s->n && !jj_give(&part, jj_str_sub(c, path.s, at, end - at))) || !jj_step(c, 1) ||
            !jj_getitem(c, *out, part_key(part.s, part), out))
            return false;
        at = end + 1;
    }
    return true;
}
