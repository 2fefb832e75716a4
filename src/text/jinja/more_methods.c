/* more_methods.c -- methods of strings about case, class and width, and the methods of everything else. */
#include <string.h>

#include "text/jinja/internal.h"

#define METHOD(name) bool name(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)

static bool recased(jj_ctx *c, jj_value self, jj_case how, jj_value *out)
{
    jj_str *s;

    if (!jj_recase(c, self.s, how, &s) || !jj_give(out, s))
        return false;
    out->sub = self.sub;
    return true;
}

METHOD(jj_m_upper) { return (void)arg, recased(c, self, JJ_UPPER, out); }
METHOD(jj_m_lower) { return (void)arg, recased(c, self, JJ_LOWER, out); }
METHOD(jj_m_title) { return (void)arg, recased(c, self, JJ_TITLE, out); }
METHOD(jj_m_capitalize) { return (void)arg, recased(c, self, JJ_CAPITALIZE, out); }
METHOD(jj_m_swapcase) { return (void)arg, recased(c, self, JJ_SWAP, out); }
METHOD(jj_m_casefold) { return (void)arg, recased(c, self, JJ_FOLD, out); }

static bool padded(jj_ctx *c, jj_value self, const jj_value *arg, char align, jj_value *out)
{
    int64_t width = 0;
    jj_str *fill = NULL;

    if (!jj_arg_int(c, arg[0], "a width", &width) || !jj_arg_str(c, arg[1], "the fill character", &fill))
        return false;
    if (fill && jj_str_points(fill) != 1)
        return jj_fail(c, "the fill character must be exactly one character long");
    if (!jj_pad(c, self.s, width, fill, align, out))
        return false;
    out->sub = self.sub;
    return true;
}

METHOD(jj_m_center) { return padded(c, self, arg, '^', out); }
METHOD(jj_m_ljust) { return padded(c, self, arg, '<', out); }
METHOD(jj_m_rjust) { return padded(c, self, arg, '>', out); }

METHOD(jj_m_zfill)
{
    int64_t width = 0;
    const jj_str *s = self.s;
    bool sign = s->n && (jj_data(s)[0] == '-' || jj_data(s)[0] == '+');
    jj_value zero;
    jj_buf *b;

    if (!jj_arg_int(c, arg[0], "zfill: a width", &width) || !jj_text(c, &zero, "0") || !(b = jj_buf_new(c, s->n, 16)))
        return false;
    int64_t pad = width - (int64_t)jj_str_points(s);
    return jj_put_sub(c, b, s, 0, sign) && jj_put_fill(c, b, zero.s, pad > 0 ? (size_t)pad : 0) &&
           jj_put_sub(c, b, s, sign, s->n - sign) && jj_give(out, jj_str_from(c, b));
}

METHOD(jj_m_expandtabs)
{
    int64_t size = 8, column = 0;
    jj_buf *b = jj_buf_new(c, self.s->n, 16);

    if (!b || !jj_arg_int(c, arg[0], "expandtabs: a size", &size) || !jj_charge_walk(c, self.s->n))
        return false;
    for (jj_walk w = jj_walk_start(self.s); jj_walk_next(&w);) {
        if (w.code != '\t') {
            if (!jj_put_code(c, b, w.code, w.trusted))
                return false;
            column = w.code == '\n' || w.code == '\r' ? 0 : column + 1;
        } else if (size > 0) {
            int64_t n = size - column % size;
            if (!jj_put_fill(c, b, NULL, (size_t)n))
                return false;
            column += n;
        }
    }
    return jj_give(out, jj_str_from(c, b));
}

static bool all_are(jj_ctx *c, jj_value self, jj_class k, jj_value *out)
{
    bool all = self.s->n > 0 || k == JJ_PRINTABLE;

    if (!jj_charge_walk(c, self.s->n))
        return false;
    for (jj_walk w = jj_walk_start(self.s); all && jj_walk_next(&w);)
        all = jj_is(k, w.code);
    *out = jj_bool(all);
    return true;
}

METHOD(jj_m_isalpha) { return (void)arg, all_are(c, self, JJ_ALPHA, out); }
METHOD(jj_m_isalnum) { return (void)arg, all_are(c, self, JJ_ALNUM, out); }
METHOD(jj_m_isdigit) { return (void)arg, all_are(c, self, JJ_DIGIT, out); }
METHOD(jj_m_isdecimal) { return (void)arg, all_are(c, self, JJ_DECIMAL, out); }
METHOD(jj_m_isnumeric) { return (void)arg, all_are(c, self, JJ_NUMERIC, out); }
METHOD(jj_m_isspace) { return (void)arg, all_are(c, self, JJ_SPACE, out); }
METHOD(jj_m_isprintable) { return (void)arg, all_are(c, self, JJ_PRINTABLE, out); }

METHOD(jj_m_isascii)
{
    (void)arg;
    *out = jj_bool(jj_str_points(self.s) == self.s->n);
    return jj_charge(c, self.s->n);
}

static bool by_test(jj_ctx *c, jj_value self, const char *test, jj_value *out)
{
    return jj_call_def(c, jj_find_def(jj_tests, test, 5), self, &(jj_args){ 0 }, out);
}

METHOD(jj_m_isupper) { return (void)arg, by_test(c, self, "upper", out); }
METHOD(jj_m_islower) { return (void)arg, by_test(c, self, "lower", out); }

METHOD(jj_m_istitle)
{
    bool is = true, any = false, before = false, upper, lower, title;

    (void)arg;
    if (!jj_charge_walk(c, self.s->n))
        return false;
    for (jj_walk w = jj_walk_start(self.s); is && jj_walk_next(&w);) {
        bool cased = jj_is_cased(w.code, &upper, &lower, &title);
        is = !(upper || title ? before : lower && !before);
        any |= cased;
        before = cased;
    }
    *out = jj_bool(is && any);
    return true;
}

METHOD(jj_m_isidentifier)
{
    bool is = self.s->n > 0;

    (void)arg;
    if (!jj_charge_walk(c, self.s->n))
        return false;
    for (jj_walk w = jj_walk_start(self.s); is && jj_walk_next(&w);)
        is = w.code == '_' || jj_is(w.at ? JJ_ALNUM : JJ_ALPHA, w.code);
    *out = jj_bool(is);
    return true;
}

/* ---- lists and tuples ---- */

/* How often the value is in a list, a tuple or a range, and where first; -1: nowhere. */
static bool seek(jj_ctx *c, jj_value self, jj_value value, int64_t *first, int64_t *n)
{
    jj_iter *it = jj_iterate(c, self);
    jj_value item;
    bool same;

    *first = -1;
    *n = 0;
    for (int64_t i = 0; it; i++) {
        if (!jj_step(c, 1) || !jj_next(c, it, &item))
            return false;
        if (item.type == JJ_MISSING)
            return true;
        if (!jj_equal(c, item, value, &same))
            return false;
        *first = same && *first < 0 ? i : *first;
        *n += same;
    }
    return false;
}

static METHOD(l_index)
{
    int64_t first, n;

    if (!seek(c, self, arg[0], &first, &n))
        return false;
    *out = jj_int(first);
    return n || jj_fail(c, "index(): the value is not there");
}

static METHOD(l_count)
{
    int64_t first, n;

    if (!seek(c, self, arg[0], &first, &n))
        return false;
    *out = jj_int(n);
    return true;
}

static METHOD(l_copy)
{
    (void)arg;
    return jj_to_list(c, self, out);
}

const jj_def jj_list_methods[] = {
    { "index", l_index, "value", 1, NULL },
    { "count", l_count, "value", 1, NULL },
    { "copy", l_copy, "", 0, NULL },
    { .name = "append" }, { .name = "clear" }, { .name = "pop" }, { .name = "reverse" }, { .name = "insert" },
    { .name = "sort" }, { .name = "extend" }, { .name = "remove" },
    { NULL },
};

const jj_def jj_tuple_methods[] = {
    { "index", l_index, "value", 1, NULL },
    { "count", l_count, "value", 1, NULL },
    { NULL },
};

/* ---- dictionaries ---- */

static METHOD(d_get)
{
    int got = jj_dict_get(c, self.dict, arg[0], out);

    if (got < 0)
        return !c->failed && jj_fail(c, "unhashable type: '%s'", jj_type_name(arg[0]));
    if (!got)
        *out = arg[1].type == JJ_MISSING ? JJ_NULL : arg[1];
    return true;
}

static bool give_view(jj_value self, int kind, jj_value *out)
{
    *out = (jj_value){ .type = JJ_VIEW, .sub = (uint8_t)kind, .foreign = self.foreign, .dict = self.dict };
    return true;
}

static METHOD(d_keys) { return (void)arg, (void)c, give_view(self, JJ_KEYS, out); }
static METHOD(d_values) { return (void)arg, (void)c, give_view(self, JJ_VALUES, out); }
static METHOD(d_items) { return (void)arg, (void)c, give_view(self, JJ_ITEMS, out); }

static METHOD(d_copy)
{
    (void)arg;
    if (!jj_new_dict(c, out, self.foreign))
        return false;
    for (size_t i = 0; i < self.dict->n; i++)
        if (!jj_dict_put(c, out->dict, self.dict->entry[i].key, self.dict->entry[i].value))
            return false;
    return true;
}

const jj_def jj_dict_methods[] = {
    { "get", d_get, "key default", 1, NULL },
    { "items", d_items, "", 0, NULL },
    { "keys", d_keys, "", 0, NULL },
    { "values", d_values, "", 0, NULL },
    { "copy", d_copy, "", 0, NULL },
    { .name = "clear" }, { .name = "pop" }, { .name = "popitem" }, { .name = "setdefault" }, { .name = "update" },
    { NULL },
};

/* ---- cyclers ---- */

static METHOD(y_next)
{
    jj_cycler *y = self.cycler;

    (void)arg;
    (void)c;
    *out = y->items->item[y->at];
    y->at = (y->at + 1) % y->items->n;
    return true;
}

static METHOD(y_reset)
{
    (void)arg;
    (void)c;
    self.cycler->at = 0;
    *out = JJ_NULL;
    return true;
}

const jj_def jj_cycler_methods[] = {
    { "next", y_next, "", 0, NULL },
    { "reset", y_reset, "", 0, NULL },
    { NULL },
};
