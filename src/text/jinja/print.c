/* print.c -- values as text, as Python's str() and repr() have it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

/* The shortest digits that read back as the same number, in Python's layout. */
int jj_float_text(double f, char out[40])
{
    char digits[40], sci[40];
    int precision = fabs(f) < 3e-308 ? 0 : 14, n = 0; /* up to 15 digits are exact, but of the least numbers */

    if (!isfinite(f))
        return snprintf(out, 40, "%s", isnan(f) ? "nan" : f > 0 ? "inf" : "-inf");
    do
        snprintf(sci, sizeof sci, "%.*e", precision, f);
    while (strtod(sci, NULL) != f && ++precision < 17);
    char *e = strchr(sci, 'e');
    int exponent = atoi(e + 1), k = 0;
    for (const char *p = sci; p < e; p++)
        if (*p >= '0' && *p <= '9')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    if (signbit(f))
        out[k++] = '-';
    if (exponent < -4 || exponent >= 16) {
        out[k++] = digits[0];
        if (n > 1)
            out[k++] = '.';
        memcpy(out + k, digits + 1, (size_t)n - 1);
        return k + n - 1 + snprintf(out + k + n - 1, 10, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
    }
    if (exponent < 0) {
        k += snprintf(out + k, 20, "0.%.*s", -exponent - 1, "0000");
        memcpy(out + k, digits, (size_t)n);
        k += n;
    } else {
        for (int i = 0; i <= exponent || i < n; i++) {
            if (i == exponent + 1)
                out[k++] = '.';
            out[k++] = i < n ? digits[i] : '0';
        }
        if (n <= exponent + 1)
            k += snprintf(out + k, 3, ".0");
    }
    out[k] = 0;
    return k;
}

static bool put_number(jj_ctx *c, jj_buf *b, jj_value v)
{
    char text[40], *end = text + sizeof text, *p = end;

    if (v.type == JJ_FLOAT)
        return jj_step(c, 40) && jj_put_bytes(c, b, text, (size_t)jj_float_text(v.f, text), !v.foreign);
    for (uint64_t u = v.i < 0 ? 0 - (uint64_t)v.i : (uint64_t)v.i; u || p == end; u /= 10)
        *--p = (char)('0' + u % 10);
    if (v.i < 0)
        *--p = '-';
    return jj_put_bytes(c, b, p, (size_t)(end - p), !v.foreign);
}

/* One character of a string's repr, other than as it is; 0: as it is. */
static int escape(uint32_t code, int quote, char out[16])
{
    static const char plain[] = "\n\r\t", letter[] = "nrt";
    const char *p;

    if (code == (uint32_t)quote || code == '\\')
        return snprintf(out, 16, "\\%c", (char)code);
    if (code && code < 128 && (p = strchr(plain, (int)code)))
        return snprintf(out, 16, "\\%c", letter[p - plain]);
    if (jj_is(JJ_PRINTABLE, code))
        return 0;
    return snprintf(out, 16, code < 256 ? "\\x%02x" : code < 65536 ? "\\u%04x" : "\\U%08x", code);
}

static bool put_repr(jj_ctx *c, jj_buf *b, const jj_str *s)
{
    const char *p = jj_data(s);
    bool twice = s->n && memchr(p, '\'', s->n) && !memchr(p, '"', s->n);

    return jj_put_spelled(c, b, s, twice ? '"' : '\'', escape, twice ? '"' : '\'');
}

static bool put_items(jj_ctx *c, jj_buf *b, jj_value v, const char *open, const char *close)
{
    const jj_list *l = v.list;

    if (!jj_put_text(c, b, open, !v.foreign))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!jj_step(c, 3) || (i && !jj_put_text(c, b, ", ", !v.foreign)) || !jj_repr(c, b, l->item[i]))
            return false;
    return jj_put_text(c, b, v.type == JJ_TUPLE && l->n == 1 ? ",)" : close, !v.foreign);
}

static bool put_entry(jj_ctx *c, jj_buf *b, const jj_entry *e, jj_value v)
{
    bool trusted = !v.foreign;

    if (v.type == JJ_VIEW && v.sub == JJ_ITEMS)
        return jj_put_text(c, b, "(", trusted) && jj_repr(c, b, e->key) && jj_put_text(c, b, ", ", trusted) &&
               jj_repr(c, b, e->value) && jj_put_text(c, b, ")", trusted);
    if (v.type == JJ_VIEW)
        return jj_repr(c, b, v.sub == JJ_KEYS ? e->key : e->value);
    return jj_repr(c, b, e->key) && jj_put_text(c, b, ": ", trusted) && jj_repr(c, b, e->value);
}

static bool put_dict(jj_ctx *c, jj_buf *b, jj_value v, const char *open, const char *close)
{
    if (!jj_put_text(c, b, open, !v.foreign))
        return false;
    for (size_t i = 0; i < v.dict->n; i++)
        if (!jj_step(c, 4) || (i && !jj_put_text(c, b, ", ", !v.foreign)) || !put_entry(c, b, &v.dict->entry[i], v))
            return false;
    return jj_put_text(c, b, close, !v.foreign);
}

static bool put_range(jj_ctx *c, jj_buf *b, const jj_range *r)
{
    char text[100];
    int n = snprintf(text, sizeof text, "range(%lld, %lld", (long long)r->start, (long long)r->stop);

    n += r->step == 1 ? snprintf(text + n, 30, ")") : snprintf(text + n, 30, ", %lld)", (long long)r->step);
    return jj_put_bytes(c, b, text, (size_t)n, true);
}

static bool repr_inside(jj_ctx *c, jj_buf *b, jj_value v)
{
    static const char *const views[] = { "dict_keys([", "dict_values([", "dict_items([" };

    switch (v.type) {
    case JJ_UNDEFINED: case JJ_MISSING:
        return jj_put_text(c, b, "Undefined", true);
    case JJ_STR:
        return !v.sub ? put_repr(c, b, v.s)
                      : jj_put_text(c, b, "Markup(", true) && put_repr(c, b, v.s) && jj_put_text(c, b, ")", true);
    case JJ_LIST:
        return put_items(c, b, v, "[", "]");
    case JJ_TUPLE:
        return put_items(c, b, v, "(", ")");
    case JJ_SLICE:
        return put_items(c, b, v, "slice(", ")");
    case JJ_DICT:
        return put_dict(c, b, v, "{", "}");
    case JJ_VIEW:
        return put_dict(c, b, v, views[v.sub], "])");
    case JJ_NAMESPACE:
        return put_dict(c, b, v, "<Namespace {", "}>");
    case JJ_RANGE:
        return put_range(c, b, v.range);
    default:
        return jj_print(c, b, v);
    }
}

bool jj_repr(jj_ctx *c, jj_buf *b, jj_value v)
{
    if (!jj_enter(c))
        return false;
    bool ok = repr_inside(c, b, v);
    jj_leave(c);
    return ok;
}

bool jj_print(jj_ctx *c, jj_buf *b, jj_value v)
{
    switch (v.type) {
    case JJ_MISSING: case JJ_UNDEFINED:
        return true;
    case JJ_NONE:
        return jj_put_text(c, b, "None", !v.foreign);
    case JJ_BOOL:
        return jj_put_text(c, b, v.b ? "True" : "False", !v.foreign);
    case JJ_INT: case JJ_FLOAT:
        return put_number(c, b, v);
    case JJ_STR:
        return jj_put_str(c, b, v.s);
    case JJ_ITER: case JJ_MACRO: case JJ_FUNCTION: case JJ_METHOD: case JJ_LOOP: case JJ_CYCLER: case JJ_JOINER:
        return jj_put_text(c, b, "<", true) && jj_put_text(c, b, jj_type_name(v), true) && jj_put_text(c, b, ">", true);
    default:
        return jj_repr(c, b, v);
    }
}

bool jj_to_str(jj_ctx *c, jj_value v, jj_str **out)
{
    jj_buf *b;

    if (v.type == JJ_STR) {
        *out = v.s;
        return true;
    }
    b = jj_buf_new(c, 32, 0);
    return b && jj_print(c, b, v) && (*out = jj_str_from(c, b));
}
