/* number_filters.c -- filters that make or change numbers. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/internal.h"

/* Text of a number without white space around it and single underscores between digits; false: it is no number. */
static bool number_text(jj_ctx *c, const jj_str *s, char out[400], bool *fits)
{
    jj_str *t;
    size_t n = 0;

    *fits = false;
    if (!jj_strip(c, s, NULL, true, true, &t))
        return false;
    const char *p = jj_data(t);
    for (size_t i = 0; i < t->n; i++) {
        if (n >= 399 || !(jj_is(JJ_ALNUM, (unsigned char)p[i]) || strchr("+-._", p[i])) || !p[i])
            return true;
        if (p[i] == '_' && (!i || i + 1 == t->n || !strchr("0123456789abcdefABCDEF", p[i - 1]) ||
                            !strchr("0123456789abcdefABCDEF", p[i + 1])))
            return true;
        if (p[i] != '_')
            out[n++] = p[i];
    }
    out[n] = 0;
    *fits = n > 0;
    return true;
}

static bool parse_float(const char *p, double *out)
{
    char *end;
    const char *digits = p + (*p == '-' || *p == '+');

    if (!strncasecmp(digits, "0x", 2) || !strncasecmp(digits, "nan(", 4))
        return false;
    *out = strtod(p, &end);
    return end != p && !*end && *p != ' ';
}

/* Python's int(text, base): base 0 looks at a prefix. */
static bool parse_int(jj_ctx *c, const char *p, int base, int64_t *out, bool *is)
{
    char *end;
    const char *digits = p + (*p == '-' || *p == '+');
    char kind = digits[0] == '0' ? (char)(digits[1] | 32) : 0, text[400];
    int prefix = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;

    snprintf(text, sizeof text, "%s", p);
    if (prefix && (base == 0 || base == prefix)) {
        snprintf(text, sizeof text, "%s%s", *p == '-' ? "-" : "", digits + 2);
        base = prefix;
    }
    base = base ? base : 10;
    errno = 0;
    long long v = strtoll(text, &end, base);
    *is = end != text && !*end && !strchr(" \t\n+-", text[*text == '-' || *text == '+']);
    if (*is && errno == ERANGE)
        return jj_fail(c, "int: an integer beyond 64 bits");
    *out = v;
    return true;
}

static bool float_to_int(jj_ctx *c, double f, jj_value *out)
{
    if (!isfinite(f))
        return jj_fail(c, "int: not an integer: %s", isnan(f) ? "NaN" : "infinite");
    if (fabs(f) >= 9223372036854775808.0)
        return jj_fail(c, "int: an integer beyond 64 bits");
    *out = jj_int((int64_t)f);
    return true;
}

bool jj_f_int(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_value otherwise = arg[0].type == JJ_MISSING ? jj_int(0) : arg[0];
    int64_t base = 10, i;
    char text[400];
    bool is;
    double f;

    if (self.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, self);
    if (!jj_arg_int(c, arg[1], "int: base", &base))
        return false;
    if (self.type == JJ_STR) {
        if (!number_text(c, self.s, text, &is))
            return false;
        *out = otherwise;
        if (!is || base < 0 || base > 36 || base == 1)
            return true;
        if (!parse_int(c, text, (int)base, &i, &is))
            return false;
        if (is)
            *out = jj_int(i);
        else if (parse_float(text, &f) && isfinite(f) && !float_to_int(c, f, out))
            return false;
        out->foreign = !jj_str_trusted(self.s);
        return true;
    }
    *out = otherwise;
    if (jj_as_index(self, &i))
        *out = jj_int(i);
    else if (self.type == JJ_FLOAT && !isnan(self.f) && !float_to_int(c, self.f, out))
        return false;
    out->foreign |= self.foreign;
    return true;
}

bool jj_f_float(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    char text[400];
    bool is = false;
    double f;

    if (self.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, self);
    *out = arg[0].type == JJ_MISSING ? jj_float(0) : arg[0];
    if (jj_is_number(self)) {
        *out = jj_float(jj_as_double(self));
        out->foreign = self.foreign;
        return true;
    }
    if (self.type != JJ_STR)
        return true;
    if (!number_text(c, self.s, text, &is))
        return false;
    if (is && parse_float(text, &f)) {
        *out = jj_float(f);
        out->foreign = !jj_str_trusted(self.s);
    }
    return true;
}

bool jj_f_abs(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    (void)arg;
    if (self.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, self);
    if (!jj_is_number(self))
        return jj_fail(c, "bad operand type for abs(): '%s'", jj_type_name(self));
    return jj_negate(c, self, self.type == JJ_FLOAT ? signbit(self.f) : jj_as_double(self) < 0, out);
}

/* Half to even, exactly, by the decimal expansion of the number itself. */
static double round_to(double f, int64_t precision)
{
    char text[800];

    if (!isfinite(f) || precision > 330)
        return f;
    if (precision < 0) {
        double unit = pow(10, (double)-precision);
        return precision < -330 ? 0 * f : rint(f / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)precision, f);
    return strtod(text, NULL);
}

bool jj_f_round(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    int64_t precision = 0, i;
    bool common = arg[1].type == JJ_MISSING || (arg[1].type == JJ_STR && jj_str_is(arg[1].s, "common"));
    bool ceiling = arg[1].type == JJ_STR && jj_str_is(arg[1].s, "ceil");

    if (!common && !ceiling && !(arg[1].type == JJ_STR && jj_str_is(arg[1].s, "floor")))
        return jj_fail(c, "method must be common, ceil or floor");
    if (self.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, self);
    if (!jj_is_number(self))
        return jj_fail(c, "type %s has no round", jj_type_name(self));
    if (!jj_step(c, 4) || !jj_arg_int(c, arg[0], "round: precision", &precision))
        return false;
    if (common && jj_as_index(self, &i) && precision >= 0) {
        *out = jj_int(i);
    } else if (common) {
        double f = round_to(jj_as_double(self), precision);
        *out = self.type == JJ_FLOAT ? jj_float(f) : jj_int((int64_t)f);
    } else {
        if (precision > 300 || precision < -300)
            return jj_fail(c, "round: a precision of %lld", (long long)precision);
        double unit = pow(10, (double)precision), f = jj_as_double(self) * unit;
        *out = jj_float((ceiling ? ceil(f) : floor(f)) / unit);
    }
    out->foreign = self.foreign;
    return true;
}

bool jj_f_filesizeformat(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    static const char *const units[][2] = { { "kB", "KiB" }, { "MB", "MiB" }, { "GB", "GiB" }, { "TB", "TiB" },
                                            { "PB", "PiB" }, { "EB", "EiB" }, { "ZB", "ZiB" }, { "YB", "YiB" } };
    bool binary = jj_truth(arg[0]);
    double base = binary ? 1024 : 1000, unit = base;
    char text[400];
    jj_value f;

    if (!jj_step(c, 2) || !jj_f_float(c, self, (jj_value[]){ { .type = JJ_NONE } }, &f))
        return false;
    if (f.type != JJ_FLOAT)
        return jj_fail(c, "filesizeformat: a %s where a number is wanted", jj_type_name(self));
    if (f.f == 1) {
        snprintf(text, sizeof text, "1 Byte");
    } else if (f.f < base) {
        snprintf(text, sizeof text, "%.0f Bytes", trunc(f.f));
    } else {
        size_t i = 0;
        for (; i < RG_LEN(units) - 1 && f.f >= unit * base; i++)
            unit *= base;
        snprintf(text, sizeof text, "%.1f %s", f.f / unit, units[i][binary]);
    }
    return jj_give(out, jj_str_copy(c, text, strlen(text), !f.foreign));
}
