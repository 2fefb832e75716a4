/* tests.c -- what may stand after `is`. */
#include <math.h>

#include "text/jinja/internal.h"

#define TEST(name) static bool name(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
#define SAYS(what)                                                                                                     \
    do {                                                                                                               \
        (void)c;                                                                                                       \
        (void)arg;                                                                                                     \
        *out = jj_bool(what);                                                                                          \
        return true;                                                                                                   \
    } while (0)

TEST(t_defined) { SAYS(self.type != JJ_UNDEFINED); }
TEST(t_undefined) { SAYS(self.type == JJ_UNDEFINED); }
TEST(t_none) { SAYS(self.type == JJ_NONE); }
TEST(t_boolean) { SAYS(self.type == JJ_BOOL); }
TEST(t_true) { SAYS(self.type == JJ_BOOL && self.b); }
TEST(t_false) { SAYS(self.type == JJ_BOOL && !self.b); }
TEST(t_integer) { SAYS(self.type == JJ_INT); }
TEST(t_float) { SAYS(self.type == JJ_FLOAT); }
TEST(t_number) { SAYS(jj_is_number(self)); }
TEST(t_string) { SAYS(self.type == JJ_STR); }
TEST(t_mapping) { SAYS(self.type == JJ_DICT); }
TEST(t_iterable) { SAYS(jj_iterable(self)); }
TEST(t_sameas) { SAYS(jj_same(self, arg[0])); }
TEST(t_escaped) { SAYS(self.type == JJ_STR && self.sub); }

/* What has a length and items by index, and so a string and a mapping too. */
TEST(t_sequence)
{
    SAYS(self.type == JJ_STR || self.type == JJ_LIST || self.type == JJ_TUPLE || self.type == JJ_DICT ||
         self.type == JJ_RANGE || self.type == JJ_UNDEFINED);
}

TEST(t_callable)
{
    SAYS(self.type == JJ_UNDEFINED || self.type == JJ_MACRO || self.type == JJ_FUNCTION || self.type == JJ_METHOD ||
         self.type == JJ_LOOP || self.type == JJ_JOINER);
}

static bool remainder_is(jj_ctx *c, jj_value self, jj_value by, int64_t want, jj_value *out)
{
    jj_value rest;

    if (!jj_binary(c, JJ_MOD, self, by, &rest))
        return false;
    if (rest.type == JJ_STR)
        return *out = jj_bool(false), true;
    *out = jj_bool(jj_as_double(rest) == (double)want);
    return true;
}

TEST(t_odd)
{
    (void)arg;
    return remainder_is(c, self, jj_int(2), 1, out);
}

TEST(t_even)
{
    (void)arg;
    return remainder_is(c, self, jj_int(2), 0, out);
}

TEST(t_divisibleby) { return remainder_is(c, self, arg[0], 0, out); }

static bool all_of_case(jj_ctx *c, jj_value self, bool want_upper, jj_value *out)
{
    jj_str *s;
    bool any = false, upper, lower, title, other = false;

    if (!jj_to_str(c, self, &s) || !jj_charge_walk(c, s->n))
        return false;
    for (jj_walk w = jj_walk_start(s); jj_walk_next(&w) && !other;) {
        (void)jj_is_cased(w.code, &upper, &lower, &title);
        any |= want_upper ? upper : lower;
        other = title || (want_upper ? lower : upper);
    }
    *out = jj_bool(any && !other);
    return true;
}

TEST(t_lower)
{
    (void)arg;
    return all_of_case(c, self, false, out);
}

TEST(t_upper)
{
    (void)arg;
    return all_of_case(c, self, true, out);
}

static bool compared(jj_ctx *c, jj_cmp op, jj_value a, jj_value b, jj_value *out)
{
    bool is;

    if (!jj_compare(c, op, a, b, &is))
        return false;
    *out = jj_bool(is);
    return true;
}

TEST(t_eq) { return compared(c, JJ_EQ, self, arg[0], out); }
TEST(t_ne) { return compared(c, JJ_NE, self, arg[0], out); }
TEST(t_lt) { return compared(c, JJ_LT, self, arg[0], out); }
TEST(t_le) { return compared(c, JJ_LE, self, arg[0], out); }
TEST(t_gt) { return compared(c, JJ_GT, self, arg[0], out); }
TEST(t_ge) { return compared(c, JJ_GE, self, arg[0], out); }
TEST(t_in) { return compared(c, JJ_IN, self, arg[0], out); }

/* Names are looked for in a dictionary, where not everything can be a key. */
static bool named(jj_ctx *c, jj_value self, const void *found, jj_value *out)
{
    uint64_t hash;

    *out = jj_bool(found);
    return jj_hash(c, self, &hash) || (!c->failed && jj_fail(c, "unhashable type: '%s'", jj_type_name(self)));
}

TEST(t_filter)
{
    (void)arg;
    return named(c, self, self.type == JJ_STR ? jj_find_filter(self.s) : NULL, out);
}

TEST(t_test)
{
    (void)arg;
    return named(c, self, self.type == JJ_STR ? jj_find_test(self.s) : NULL, out);
}

const jj_def jj_tests[] = {
    { "defined", t_defined, "", 0, NULL },
    { "undefined", t_undefined, "", 0, NULL },
    { "none", t_none, "", 0, NULL },
    { "string", t_string, "", 0, NULL },
    { "mapping", t_mapping, "", 0, NULL },
    { "iterable", t_iterable, "", 0, NULL },
    { "sequence", t_sequence, "", 0, NULL },
    { "number", t_number, "", 0, NULL },
    { "integer", t_integer, "", 0, NULL },
    { "float", t_float, "", 0, NULL },
    { "boolean", t_boolean, "", 0, NULL },
    { "true", t_true, "", 0, NULL },
    { "false", t_false, "", 0, NULL },
    { "callable", t_callable, "", 0, NULL },
    { "equalto", t_eq, "other", 1, NULL },
    { "eq", t_eq, "other", 1, NULL },
    { "==", t_eq, "other", 1, NULL },
    { "ne", t_ne, "other", 1, NULL },
    { "!=", t_ne, "other", 1, NULL },
    { "lt", t_lt, "other", 1, NULL },
    { "<", t_lt, "other", 1, NULL },
    { "lessthan", t_lt, "other", 1, NULL },
    { "le", t_le, "other", 1, NULL },
    { "<=", t_le, "other", 1, NULL },
    { "gt", t_gt, "other", 1, NULL },
    { ">", t_gt, "other", 1, NULL },
    { "greaterthan", t_gt, "other", 1, NULL },
    { "ge", t_ge, "other", 1, NULL },
    { ">=", t_ge, "other", 1, NULL },
    { "in", t_in, "seq", 1, NULL },
    { "odd", t_odd, "", 0, NULL },
    { "even", t_even, "", 0, NULL },
    { "divisibleby", t_divisibleby, "num", 1, NULL },
    { "sameas", t_sameas, "other", 1, NULL },
    { "lower", t_lower, "", 0, NULL },
    { "upper", t_upper, "", 0, NULL },
    { "escaped", t_escaped, "", 0, NULL },
    { "filter", t_filter, "", 0, NULL },
    { "test", t_test, "", 0, NULL },
    { NULL },
};
