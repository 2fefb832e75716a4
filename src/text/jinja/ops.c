/* ops.c -- the operators: arithmetic as Python's, but ints of 64 bits; text and lists joined and repeated. */
#include <math.h>
#include <string.h>

#include "text/jinja/internal.h"

static const char *const signs[] = { "+", "-", "*", "/", "//", "%", "**" };

static bool too_big(jj_ctx *c)
{
    return jj_fail(c, "an integer beyond 64 bits");
}

static bool int_power(jj_ctx *c, int64_t base, int64_t exponent, int64_t *out)
{
    *out = 1;
    while (exponent) {
        if ((exponent & 1) && !rg_mul(*out, base, out))
            return too_big(c);
        exponent >>= 1;
        if (exponent && !rg_mul(base, base, &base))
            return too_big(c);
    }
    return true;
}

static bool int_divide(jj_ctx *c, jj_op op, int64_t a, int64_t b, jj_value *out)
{
    if (!b)
        return jj_fail(c, op == JJ_MOD ? "integer modulo by zero" : "division by zero");
    if (op == JJ_DIV) {
        *out = jj_float((double)((long double)a / (long double)b));
        return true;
    }
    if (b == -1) { /* the one quotient that may not fit */
        if (op == JJ_MOD)
            *out = jj_int(0);
        else if (!rg_mul(a, b, &out->i))
            return too_big(c);
        else
            *out = jj_int(out->i);
        return true;
    }
    int64_t q = a / b, r = a % b;
    if (r && (r < 0) != (b < 0)) {
        q--;
        r += b;
    }
    *out = jj_int(op == JJ_MOD ? r : q);
    return true;
}

static bool ints(jj_ctx *c, jj_op op, int64_t a, int64_t b, jj_value *out)
{
    int64_t v = 0;
    bool fits = true;

    switch (op) {
    case JJ_ADD:
        fits = rg_add(a, b, &v);
        break;
    case JJ_SUB:
        fits = !__builtin_sub_overflow(a, b, &v);
        break;
    case JJ_MUL:
        fits = rg_mul(a, b, &v);
        break;
    case JJ_POW:
        if (b < 0) {
            if (!a)
                return jj_fail(c, "zero to a negative power");
            *out = jj_float(pow((double)a, (double)b));
            return true;
        }
        if (!int_power(c, a, b, &v))
            return false;
        break;
    default:
        return int_divide(c, op, a, b, out);
    }
    if (!fits)
        return too_big(c);
    *out = jj_int(v);
    return true;
}

static bool floats(jj_ctx *c, jj_op op, double a, double b, jj_value *out)
{
    double r;

    if ((op == JJ_DIV || op == JJ_FLOORDIV || op == JJ_MOD) && b == 0)
        return jj_fail(c, "float division by zero");
    switch (op) {
    case JJ_ADD:
        r = a + b;
        break;
    case JJ_SUB:
        r = a - b;
        break;
    case JJ_MUL:
        r = a * b;
        break;
    case JJ_DIV:
        r = a / b;
        break;
    case JJ_POW:
        r = pow(a, b);
        if (isnan(r) && !isnan(a) && !isnan(b))
            return jj_fail(c, "a power that is no real number");
        if (isinf(r) && isfinite(a) && isfinite(b))
            return jj_fail(c, "a power that is too large");
        break;
    default:
        r = fmod(a, b);
        if (r != 0 && (r < 0) != (b < 0))
            r += b;
        if (op == JJ_FLOORDIV)
            r = floor((a - r) / b + 0.25); /* whole but for rounding */
        else if (r == 0)
            r = copysign(0, b);
        break;
    }
    *out = jj_float(r);
    return true;
}

static bool repeat(jj_ctx *c, jj_value v, int64_t n, jj_value *out)
{
    size_t unit = v.type == JJ_STR ? v.s->n : v.list->n * sizeof(jj_value), total;
    jj_buf *b;

    n = n < 0 ? 0 : n;
    if (!jj_step(c, 1))
        return false;
    if (!rg_mul(unit, (size_t)n, &total) || total > RG_JINJA_BYTES)
        return jj_over_bytes(c);
    if (v.type == JJ_STR) {
        b = jj_buf_new(c, total, 0);
        return b && jj_put_times(c, b, v.s, (size_t)n) && jj_give(out, jj_str_from(c, b)) && (out->sub = v.sub, true);
    }
    if (!jj_new_list(c, out, (jj_type)v.type, v.list->n * (size_t)n, v.foreign))
        return false;
    for (int64_t i = 0; unit && i < n; i++)
        jj_list_copy(out->list, v.list);
    return true;
}

/* A safe string, joined with one that is not, escapes it. */
static bool add_strings(jj_ctx *c, jj_value a, jj_value b, jj_value *out)
{
    bool markup = a.sub || b.sub;

    if (markup && !a.sub && !jj_escape_html(c, a.s, &a))
        return false;
    if (markup && !b.sub && !jj_escape_html(c, b.s, &b))
        return false;
    if (!jj_give(out, jj_str_concat(c, a.s, b.s)))
        return false;
    out->sub = markup ? JJ_MARKUP : 0;
    return true;
}

static bool add_lists(jj_ctx *c, jj_value a, jj_value b, jj_value *out)
{
    if (!jj_new_list(c, out, (jj_type)a.type, a.list->n + b.list->n, a.foreign && b.foreign))
        return false;
    jj_list_copy(out->list, a.list);
    jj_list_copy(out->list, b.list);
    return true;
}

static bool repeats(jj_value v)
{
    return v.type == JJ_STR || v.type == JJ_LIST || v.type == JJ_TUPLE;
}

bool jj_binary(jj_ctx *c, jj_op op, jj_value a, jj_value b, jj_value *out)
{
    int64_t i, j;
    bool foreign = a.foreign || b.foreign;

    if (jj_is_number(a) && jj_is_number(b)) {
        bool ok = jj_as_index(a, &i) && jj_as_index(b, &j) ? ints(c, op, i, j, out)
                                                           : floats(c, op, jj_as_double(a), jj_as_double(b), out);
        out->foreign = foreign;
        return ok;
    }
    if (op == JJ_MOD && a.type == JJ_STR)
        return jj_format_percent(c, a.s, b, out);
    if (a.type == JJ_UNDEFINED || b.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, a.type == JJ_UNDEFINED ? a : b);
    if (op == JJ_ADD && a.type == JJ_STR && b.type == JJ_STR)
        return add_strings(c, a, b, out);
    if (op == JJ_ADD && a.type == b.type && repeats(a))
        return add_lists(c, a, b, out);
    if (op == JJ_ADD && a.type == JJ_STR)
        return jj_fail(c, "can only concatenate str (not \"%s\") to str", jj_type_name(b));
    if (op == JJ_MUL && repeats(a) && jj_as_index(b, &i))
        return repeat(c, a, i, out);
    if (op == JJ_MUL && repeats(b) && jj_as_index(a, &i))
        return repeat(c, b, i, out);
    return jj_fail(c, "unsupported operand types for %s: '%s' and '%s'", signs[op], jj_type_name(a), jj_type_name(b));
}

bool jj_negate(jj_ctx *c, jj_value a, bool minus, jj_value *out)
{
    int64_t i;

    if (a.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, a);
    if (!jj_is_number(a))
        return jj_fail(c, "bad operand type for unary %c: '%s'", minus ? '-' : '+', jj_type_name(a));
    if (a.type == JJ_FLOAT)
        *out = jj_float(minus ? -a.f : a.f);
    else if (jj_as_index(a, &i) && minus && __builtin_sub_overflow((int64_t)0, i, &i))
        return too_big(c);
    else
        *out = jj_int(i);
    out->foreign = a.foreign;
    return true;
}

bool jj_join_all(jj_ctx *c, const jj_value *v, size_t n, jj_value *out)
{
    size_t total = 0;
    jj_buf *b;

    if (n == 2 && v[0].type == JJ_STR) { /* may grow in place */
        jj_str *right;
        return jj_to_str(c, v[1], &right) && jj_give(out, jj_str_concat(c, v[0].s, right));
    }
    for (size_t i = 0; i < n; i++)
        if (!rg_add(total, v[i].type == JJ_STR ? v[i].s->n : 16, &total))
            return jj_over_bytes(c);
    if (v[0].type == JJ_STR && v[0].s->n > total / 2) { /* likewise */
        jj_str *left = v[0].s, *right;
        for (size_t i = 1; i < n; i++)
            if (!jj_to_str(c, v[i], &right) || !(left = jj_str_concat(c, left, right)))
                return false;
        return jj_give(out, left);
    }
    b = jj_buf_new(c, total, 0);
    for (size_t i = 0; b && i < n; i++)
        if (!jj_print(c, b, v[i]))
            return false;
    return b && jj_give(out, jj_str_from(c, b));
}
