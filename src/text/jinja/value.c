/* value.c -- what values are: truth, equality, order, membership and length as Python has them. */
#include <math.h>
#include <string.h>

#include "text/jinja/internal.h"

bool jj_text(jj_ctx *c, jj_value *out, const char *s)
{
    return jj_give(out, jj_str_borrow(c, s, strlen(s), true));
}

bool jj_new_list(jj_ctx *c, jj_value *out, jj_type type, size_t room, bool foreign)
{
    jj_list *l = jj_alloc(c, sizeof *l);

    if (!l)
        return false;
    *l = (jj_list){ .room = room, .item = room ? jj_alloc_tail(c, 0, room, sizeof(jj_value)) : NULL };
    *out = (jj_value){ .type = (uint8_t)type, .foreign = foreign, .list = l };
    return !room || l->item;
}

bool jj_list_add(jj_ctx *c, jj_list *l, jj_value v)
{
    if (l->n == l->room) {
        size_t room = l->room ? 2 * l->room : 8;
        jj_value *item = jj_alloc_tail(c, 0, room, sizeof *item);
        if (!item)
            return false;
        if (l->n)
            memcpy(item, l->item, l->n * sizeof *item);
        l->item = item;
        l->room = room;
    }
    l->item[l->n++] = v;
    return true;
}

void jj_list_copy(jj_list *to, const jj_list *from)
{
    if (from->n)
        memcpy(to->item + to->n, from->item, from->n * sizeof *from->item);
    to->n += from->n;
}

bool jj_new_tuple2(jj_ctx *c, jj_value *out, jj_value a, jj_value b, bool foreign)
{
    return jj_new_list(c, out, JJ_TUPLE, 2, foreign) && jj_list_add(c, out->list, a) && jj_list_add(c, out->list, b);
}

bool jj_undefined(jj_ctx *c, jj_value *out, jj_why why, const char *of, jj_value name)
{
    jj_undef *u = jj_alloc(c, sizeof *u);
    jj_value *copy = jj_alloc(c, sizeof *copy);

    if (!u || !copy)
        return false;
    *copy = name;
    *u = (jj_undef){ why, of, copy };
    *out = (jj_value){ .type = JJ_UNDEFINED, .undef = u };
    return true;
}

bool jj_fail_undefined(jj_ctx *c, jj_value v)
{
    jj_buf *b = jj_buf_new(c, 64, 0);

    if (!b || (v.undef->name->type != JJ_MISSING && !jj_repr(c, b, *v.undef->name)))
        return false;
    int n = b->used < 100 ? (int)b->used : 100;
    switch (v.undef->why) {
    case JJ_WHY_NAME:
        return jj_fail(c, "%.*s is undefined", n, b->data);
    case JJ_WHY_ATTR:
        return jj_fail(c, "'%s' has no attribute or element %.*s", v.undef->of, n, b->data);
    case JJ_WHY_UNSAFE:
        return jj_fail(c, "access to attribute %.*s of '%s' is not allowed", n, b->data, v.undef->of);
    default:
        return jj_fail(c, "%s", v.undef->of);
    }
}

const char *jj_type_name(jj_value v)
{
    static const char *const names[] = {
        "missing", "Undefined", "NoneType", "bool", "int", "float", "str", "list", "tuple", "dict", "dict_view",
        "range", "slice", "generator", "Namespace", "Macro", "function", "method", "LoopContext", "Cycler", "Joiner",
    };

    return names[v.type];
}

bool jj_truth(jj_value v)
{
    switch (v.type) {
    case JJ_MISSING: case JJ_UNDEFINED: case JJ_NONE:
        return false;
    case JJ_BOOL:
        return v.b;
    case JJ_INT:
        return v.i != 0;
    case JJ_FLOAT:
        return v.f != 0;
    case JJ_STR:
        return v.s->n > 0;
    case JJ_LIST: case JJ_TUPLE:
        return v.list->n > 0;
    case JJ_DICT: case JJ_VIEW:
        return v.dict->n > 0;
    case JJ_RANGE:
        return v.range->n > 0;
    default:
        return true;
    }
}

bool jj_is_number(jj_value v)
{
    return v.type == JJ_BOOL || v.type == JJ_INT || v.type == JJ_FLOAT;
}

double jj_as_double(jj_value v)
{
    return v.type == JJ_FLOAT ? v.f : v.type == JJ_INT ? (double)v.i : v.b;
}

bool jj_as_index(jj_value v, int64_t *i)
{
    if (v.type != JJ_INT && v.type != JJ_BOOL)
        return false;
    *i = v.type == JJ_INT ? v.i : v.b;
    return true;
}

/* -1, 0, 1; 2: not comparable (NaN). */
static int order_numbers(jj_value a, jj_value b)
{
    int64_t i, j;

    if (jj_as_index(a, &i) && jj_as_index(b, &j))
        return (i > j) - (i < j);
    double x = jj_as_double(a), y = jj_as_double(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static bool equal_lists(jj_ctx *c, const jj_list *a, const jj_list *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++)
        if (!jj_step(c, 1) || !jj_equal(c, a->item[i], b->item[i], out))
            return false;
    return true;
}

static bool equal_dicts(jj_ctx *c, const jj_dict *a, const jj_dict *b, bool *out)
{
    jj_value other;

    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        int got = jj_dict_get(c, b, a->entry[i].key, &other);
        *out = got > 0;
        if (!jj_step(c, 1) || (*out && !jj_equal(c, a->entry[i].value, other, out)))
            return false;
    }
    return true;
}

bool jj_same(jj_value a, jj_value b)
{
    if (a.type != b.type)
        return false;
    switch (a.type) {
    case JJ_NONE:
        return true;
    case JJ_BOOL:
        return a.b == b.b;
    case JJ_INT:
        return a.i == b.i && a.i >= -5 && a.i <= 256; /* CPython's own small ones */
    case JJ_STR:
        return a.s == b.s || (a.s->n <= 1 && jj_str_equal(a.s, b.s));
    case JJ_FLOAT:
        return a.f == b.f;
    default:
        return a.list == b.list;
    }
}

static bool equal_inside(jj_ctx *c, jj_value a, jj_value b, bool *out)
{
    switch (a.type) {
    case JJ_STR:
        *out = jj_str_equal(a.s, b.s);
        return a.s->n != b.s->n || jj_charge(c, a.s->n / 4);
    case JJ_LIST: case JJ_TUPLE:
        return a.list == b.list ? (*out = true) : equal_lists(c, a.list, b.list, out);
    case JJ_DICT:
        return equal_dicts(c, a.dict, b.dict, out);
    case JJ_RANGE:
        *out = a.range->n == b.range->n && (!a.range->n || (a.range->start == b.range->start &&
                                                            (a.range->n == 1 || a.range->step == b.range->step)));
        return true;
    case JJ_UNDEFINED: case JJ_NONE:
        *out = true;
        return true;
    default:
        *out = jj_same(a, b);
        return true;
    }
}

bool jj_equal(jj_ctx *c, jj_value a, jj_value b, bool *out)
{
    if (jj_is_number(a) && jj_is_number(b)) {
        *out = order_numbers(a, b) == 0;
        return true;
    }
    *out = false;
    if (a.type != b.type)
        return true;
    if (!jj_enter(c))
        return false;
    bool ok = equal_inside(c, a, b, out);
    jj_leave(c);
    return ok;
}

static int order_strings(const jj_str *a, const jj_str *b)
{
    size_t n = a->n < b->n ? a->n : b->n;
    int d = n ? memcmp(jj_data(a), jj_data(b), n) : 0; /* UTF-8 keeps the order of code points */

    return d ? (d > 0) - (d < 0) : (a->n > b->n) - (a->n < b->n);
}

static bool order(jj_ctx *c, jj_value a, jj_value b, int *out);

static bool order_lists(jj_ctx *c, const jj_list *a, const jj_list *b, int *out)
{
    for (size_t i = 0; i < a->n && i < b->n; i++) {
        bool same;
        if (!jj_step(c, 1) || !jj_equal(c, a->item[i], b->item[i], &same))
            return false;
        if (!same)
            return order(c, a->item[i], b->item[i], out);
    }
    *out = (a->n > b->n) - (a->n < b->n);
    return true;
}

static bool order(jj_ctx *c, jj_value a, jj_value b, int *out)
{
    if (jj_is_number(a) && jj_is_number(b)) {
        *out = order_numbers(a, b);
        return true;
    }
    if (a.type == JJ_STR && b.type == JJ_STR) {
        *out = order_strings(a.s, b.s);
        return jj_charge(c, (a.s->n < b.s->n ? a.s->n : b.s->n) / 4);
    }
    if (a.type == JJ_UNDEFINED || b.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, a.type == JJ_UNDEFINED ? a : b);
    if (a.type == b.type && (a.type == JJ_LIST || a.type == JJ_TUPLE)) {
        if (!jj_enter(c))
            return false;
        bool ok = order_lists(c, a.list, b.list, out);
        jj_leave(c);
        return ok;
    }
    return jj_fail(c, "'%s' and '%s' have no order", jj_type_name(a), jj_type_name(b));
}

bool jj_contains(jj_ctx *c, jj_value item, jj_value in, bool *out)
{
    jj_value v;

    *out = false;
    if (in.type == JJ_STR) {
        if (item.type != JJ_STR)
            return jj_fail(c, "'in <string>' requires a string as left operand, not %s", jj_type_name(item));
        if (!jj_charge_find(c, in.s->n, item.s->n))
            return false;
        *out = jj_str_find(in.s, 0, jj_data(item.s), item.s->n) != SIZE_MAX;
        return true;
    }
    if (in.type == JJ_DICT || (in.type == JJ_VIEW && in.sub == JJ_KEYS)) {
        int got = jj_dict_get(c, in.dict, item, &v);
        *out = got > 0;
        return !c->failed && (got >= 0 || jj_fail(c, "unhashable type: '%s'", jj_type_name(item)));
    }
    if (!jj_iterable(in))
        return jj_fail(c, "argument of type '%s' is not iterable", jj_type_name(in));
    jj_iter *it = jj_iterate(c, in);
    while (it && !*out) {
        if (!jj_next(c, it, &v))
            return false;
        if (v.type == JJ_MISSING)
            return true;
        if (!jj_step(c, 1) || !jj_equal(c, v, item, out))
            return false;
    }
    return it;
}

bool jj_compare(jj_ctx *c, jj_cmp op, jj_value a, jj_value b, bool *out)
{
    int sign = 0;

    switch (op) {
    case JJ_EQ:
        return jj_equal(c, a, b, out);
    case JJ_NE:
        return jj_equal(c, a, b, out) && (*out = !*out, true);
    case JJ_IN:
        return jj_contains(c, a, b, out);
    case JJ_NOT_IN:
        return jj_contains(c, a, b, out) && (*out = !*out, true);
    default:
        break;
    }
    if (!order(c, a, b, &sign))
        return false;
    if (sign == 2)
        *out = false;
    else
        *out = op == JJ_LT ? sign < 0 : op == JJ_LE ? sign <= 0 : op == JJ_GT ? sign > 0 : sign >= 0;
    return true;
}

bool jj_length(jj_ctx *c, jj_value v, jj_value *out)
{
    switch (v.type) {
    case JJ_UNDEFINED:
        *out = jj_int(0);
        return true;
    case JJ_STR:
        *out = jj_int((int64_t)jj_str_points(v.s));
        out->foreign = !jj_str_trusted(v.s);
        return jj_str_ascii(v.s) || jj_charge(c, v.s->n);
    case JJ_LIST: case JJ_TUPLE:
        *out = jj_int((int64_t)v.list->n);
        return true;
    case JJ_DICT: case JJ_VIEW:
        *out = jj_int((int64_t)v.dict->n);
        return true;
    case JJ_RANGE:
        *out = jj_int((int64_t)v.range->n);
        return true;
    case JJ_LOOP: {
        bool found;
        jj_value name;
        return jj_text(c, &name, "length") && jj_loop_attr(c, v.loop, name.s, out, &found);
    }
    default:
        return jj_fail(c, "object of type '%s' has no len()", jj_type_name(v));
    }
}
