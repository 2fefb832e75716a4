/* format.c -- text with values put into it: s % args, and s.format(...), each piece with its own provenance. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/internal.h"

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 300 };

/* How one value is to be written. */
typedef struct spec {
    jj_str *fill; /* NULL: blank */
    char align;   /* < > = ^, or 0: as the type has it */
    char sign;    /* + - or blank */
    bool alt, zero, percent; /* percent: of the % operator */
    char group;   /* , or _, or 0 */
    int width, precision; /* -1: none */
    char type;
} spec;

/* Put body with its padding; digits: of it, `head` bytes are sign and prefix. */
static bool put_padded(jj_ctx *c, jj_buf *b, const spec *s, const jj_str *body, size_t head, char align)
{
    size_t points = jj_str_points(body), pad = s->width > (int)points ? (size_t)s->width - points : 0, left = 0;

    align = s->align ? s->align : align;
    if (align == '>' || align == '=')
        left = pad;
    else if (align == '^')
        left = pad / 2;
    if (align == '=' && !jj_put_sub(c, b, body, 0, head))
        return false;
    head = align == '=' ? head : 0;
    return jj_put_fill(c, b, s->fill, left) && jj_put_sub(c, b, body, head, body->n - head) &&
           jj_put_fill(c, b, s->fill, pad - left);
}

/* Digits in groups from the right. */
static int group_digits(const char *from, int n, int size, char mark, char *out)
{
    int k = 0;

    for (int i = 0; i < n; i++) {
        if (i && (n - i) % size == 0)
            out[k++] = mark;
        out[k++] = from[i];
    }
    return k;
}

static int int_digits(uint64_t u, char type, char *out)
{
    static const char lower[] = "0123456789abcdef", upper[] = "0123456789ABCDEF";
    int base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10, n = 0;
    char back[64];

    do {
        back[n++] = (type == 'X' ? upper : lower)[u % (unsigned)base];
        u /= (unsigned)base;
    } while (u);
    for (int i = 0; i < n; i++)
        out[i] = back[n - 1 - i];
    return n;
}

static bool put_int(jj_ctx *c, jj_buf *b, const spec *s, int64_t v, bool foreign)
{
    char digits[70], text[512];
    int n = int_digits(v < 0 ? 0 - (uint64_t)v : (uint64_t)v, s->type, digits), head = 0, k;

    if (v < 0 || s->sign == '+' || s->sign == ' ')
        text[head++] = v < 0 ? '-' : s->sign;
    if (s->alt && strchr("xXob", s->type)) {
        text[head++] = '0';
        text[head++] = s->type;
    }
    k = head;
    for (int i = n; s->percent && i < s->precision && k < 400; i++)
        text[k++] = '0';
    if (s->group)
        k += group_digits(digits, n, strchr("xXob", s->type) ? 4 : 3, s->group, text + k);
    else {
        memcpy(text + k, digits, (size_t)n);
        k += n;
    }
    jj_str *body = jj_str_copy(c, text, (size_t)k, !foreign);
    return body && put_padded(c, b, s, body, (size_t)head, '>');
}

static bool put_float(jj_ctx *c, jj_buf *b, const spec *s, double v, bool foreign)
{
    char text[1024], form[16], out[1400];
    char type = s->type ? s->type : 'g';
    int n, head, k, precision = s->precision < 0 ? 6 : s->precision;

    if (type == '%') {
        v *= 100;
        type = 'f';
    }
    if (!s->type && s->precision < 0 && !s->percent) {
        n = jj_float_text(fabs(v), text);
    } else {
        snprintf(form, sizeof form, "%%%s.*%c", s->alt ? "#" : "", type == 'n' ? 'g' : type);
        n = snprintf(text, sizeof text, form, precision, fabs(v));
        if (!s->type && isfinite(v) && !memchr(text, '.', (size_t)n) && !memchr(text, 'e', (size_t)n)) {
            memcpy(text + n, ".0", 2); /* format(3.0, '.3') keeps its point */
            n += 2;
        }
    }
    head = 0;
    if (signbit(v) || s->sign == '+' || s->sign == ' ')
        out[head++] = signbit(v) ? '-' : s->sign;
    int whole = 0;
    while (whole < n && text[whole] >= '0' && text[whole] <= '9')
        whole++;
    k = head;
    if (s->group)
        k += group_digits(text, whole, 3, s->group, out + k);
    else {
        memcpy(out + k, text, (size_t)whole);
        k += whole;
    }
    memcpy(out + k, text + whole, (size_t)(n - whole));
    k += n - whole;
    if (s->type == '%')
        out[k++] = '%';
    jj_str *body = jj_str_copy(c, out, (size_t)k, !foreign);
    return body && put_padded(c, b, s, body, (size_t)head, '>');
}

static bool put_string(jj_ctx *c, jj_buf *b, const spec *s, const jj_str *v, char align)
{
    size_t n = v->n;
    jj_str *cut;

    if (s->precision >= 0 && (size_t)s->precision < jj_str_points(v) && !jj_str_offset(c, v, (size_t)s->precision, &n))
        return false;
    cut = jj_str_sub(c, v, 0, n);
    return cut && put_padded(c, b, s, cut, 0, align);
}

/* ---- the % operator ---- */

typedef struct percent {
    jj_ctx *c;
    const jj_str *s;
    size_t at;
    jj_value args;
    size_t next;
    bool mapped;
} percent;

static bool next_arg(percent *p, jj_value *out)
{
    if (p->args.type == JJ_TUPLE) {
        if (p->next >= p->args.list->n)
            return jj_fail(p->c, "not enough arguments for format string");
        *out = p->args.list->item[p->next++];
        return true;
    }
    if (p->next++)
        return jj_fail(p->c, "not enough arguments for format string");
    *out = p->args;
    return true;
}

static char peek(const percent *p)
{
    return p->at < p->s->n ? jj_data(p->s)[p->at] : 0;
}

static bool percent_key(percent *p, jj_value *out, bool *keyed)
{
    size_t end;
    jj_value key;

    *keyed = peek(p) == '(';
    if (!*keyed)
        return true;
    end = jj_str_find(p->s, p->at, ")", 1);
    if (end == SIZE_MAX)
        return jj_fail(p->c, "incomplete format key");
    if (p->args.type != JJ_DICT)
        return jj_fail(p->c, "format requires a mapping");
    if (!jj_give(&key, jj_str_sub(p->c, p->s, p->at + 1, end - p->at - 1)))
        return false;
    p->at = end + 1;
    p->mapped = true;
    int got = jj_dict_get(p->c, p->args.dict, key, out);
    return got > 0 || (!p->c->failed && jj_fail(p->c, "the format names a key that is not there"));
}

static bool percent_number(percent *p, int *out)
{
    jj_value v;
    int64_t n = 0;

    if (peek(p) == '*') {
        p->at++;
        if (!next_arg(p, &v) || !jj_arg_int(p->c, v, "a width", &n))
            return false;
    }
    while (peek(p) >= '0' && peek(p) <= '9' && n <= MAX_WIDTH)
        n = 10 * n + (jj_data(p->s)[p->at++] - '0');
    if (n > MAX_WIDTH || n < -MAX_WIDTH)
        return jj_fail(p->c, "a format wider than %d", MAX_WIDTH);
    *out = (int)n;
    return true;
}

static bool percent_put(percent *p, jj_buf *b, spec *s, jj_value v)
{
    jj_ctx *c = p->c;
    jj_str *text = NULL;
    int64_t i;

    if (strchr("diuxXo", s->type)) {
        if (v.type == JJ_FLOAT && strchr("diu", s->type) && fabs(v.f) < 9.2e18)
            v = (jj_value){ .type = JJ_INT, .i = (int64_t)v.f, .foreign = v.foreign };
        if (v.type == JJ_UNDEFINED)
            return jj_fail_undefined(c, v);
        if (!jj_as_index(v, &i))
            return jj_fail(c, "%%%c format: a real number is required, not %s", s->type, jj_type_name(v));
        s->type = strchr("iu", s->type) ? 'd' : s->type;
        s->align = s->align ? s->align : s->zero ? '=' : 0;
        return put_int(c, b, s, i, v.foreign);
    }
    if (strchr("eEfFgG", s->type)) {
        if (v.type == JJ_UNDEFINED)
            return jj_fail_undefined(c, v);
        if (!jj_is_number(v))
            return jj_fail(c, "must be real number, not %s", jj_type_name(v));
        s->align = s->align ? s->align : s->zero ? '=' : 0;
        return put_float(c, b, s, jj_as_double(v), v.foreign);
    }
    s->fill = NULL;
    if (s->type == 'c' && jj_as_index(v, &i)) {
        jj_buf *one = jj_buf_new(c, 4, 0);
        if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
            return jj_fail(c, "%%c: no such character");
        if (!one || !jj_put_code(c, one, (uint32_t)i, !v.foreign))
            return false;
        text = jj_str_from(c, one);
    } else if (s->type == 's') {
        if (!jj_to_str(c, v, &text))
            return false;
    } else if (s->type == 'r' || s->type == 'a') {
        jj_buf *r = jj_buf_new(c, 32, 0);
        if (!r || !jj_repr(c, r, v))
            return false;
        text = jj_str_from(c, r);
    } else if (s->type == 'c' && v.type == JJ_STR && jj_str_points(v.s) == 1) {
        text = v.s;
    } else {
        return jj_fail(c, "unsupported format character '%c'", s->type);
    }
    return text && put_string(c, b, s, text, '>');
}

/* After a percent sign. */
static bool percent_one(percent *p, jj_buf *b)
{
    spec s = { .percent = true, .precision = -1 };
    size_t start = p->at - 1;
    jj_value v = JJ_NULL, zero;
    bool keyed;

    if (!percent_key(p, &v, &keyed))
        return false;
    for (; peek(p) && strchr("#0- +", peek(p)); p->at++) {
        char f = peek(p);
        s.alt |= f == '#';
        s.zero |= f == '0';
        s.align = f == '-' ? '<' : s.align;
        s.sign = f == '+' || (f == ' ' && !s.sign) ? f : s.sign;
    }
    if (!percent_number(p, &s.width))
        return false;
    if (s.width < 0) {
        s.align = '<';
        s.width = -s.width;
    }
    if (peek(p) == '.') {
        p->at++;
        if (!percent_number(p, &s.precision))
            return false;
        s.precision = s.precision < 0 ? 0 : s.precision;
    }
    while (peek(p) && strchr("hlL", peek(p)))
        p->at++;
    s.type = peek(p);
    if (!s.type)
        return jj_fail(p->c, "incomplete format");
    p->at++;
    if (s.type == '%')
        return jj_put_sub(p->c, b, p->s, start, 1);
    if (s.precision > MAX_PRECISION && strchr("diuxXoeEfFgG", s.type))
        return jj_fail(p->c, "a format more precise than %d", MAX_PRECISION);
    if (s.zero && s.align != '<' && (!jj_text(p->c, &zero, "0") || !(s.fill = zero.s)))
        return false;
    return (keyed || next_arg(p, &v)) && percent_put(p, b, &s, v);
}

bool jj_format_percent(jj_ctx *c, const jj_str *s, jj_value args, jj_value *out)
{
    percent p = { .c = c, .s = s, .args = args };
    jj_buf *b = jj_buf_new(c, s->n, 16);

    while (b) {
        size_t to = jj_str_find(s, p.at, "%", 1);
        if (!jj_put_sub(c, b, s, p.at, (to == SIZE_MAX ? s->n : to) - p.at))
            return false;
        if (to == SIZE_MAX)
            break;
        p.at = to + 1;
        if (!jj_step(c, 4) || !percent_one(&p, b))
            return false;
    }
    /* What has items by key may be left unread, as Python has it. */
    bool keyed = args.type == JJ_DICT || args.type == JJ_LIST || args.type == JJ_RANGE || args.type == JJ_UNDEFINED;
    if (b && !p.mapped && (args.type == JJ_TUPLE ? p.next < args.list->n : !keyed && !p.next))
        return jj_fail(c, "not all arguments converted during string formatting");
    return b && jj_give(out, jj_str_from(c, b));
}

/* ---- str.format ---- */

typedef struct braces {
    jj_ctx *c;
    const jj_args *args;
    size_t next;
    bool automatic, manual;
} braces;

static bool find_keyword(braces *f, const jj_str *name, jj_value *out)
{
    for (size_t i = 0; i < f->args->n_kw; i++)
        if (jj_str_equal(f->args->kw_name[i].s, name)) {
            *out = f->args->kw[i];
            return true;
        }
    return jj_fail(f->c, "the format names an argument that is not given");
}

static bool positional(braces *f, const jj_str *name, jj_value *out)
{
    size_t at = 0;

    if (!name->n) {
        at = f->next++;
        f->automatic = true;
    } else {
        f->manual = true;
        for (size_t i = 0; i < name->n && at < (1u << 24); i++)
            at = 10 * at + (size_t)(jj_data(name)[i] - '0');
    }
    if (f->automatic && f->manual)
        return jj_fail(f->c, "cannot switch between automatic field numbering and manual field specification");
    if (at >= f->args->n)
        return jj_fail(f->c, "replacement index %zu is out of range", at);
    *out = f->args->pos[at];
    return true;
}

static bool is_digits(const jj_str *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (jj_data(s)[i] < '0' || jj_data(s)[i] > '9')
            return false;
    return true;
}

/* name.attr[item]... */
static bool field_value(braces *f, const jj_str *field, jj_value *out)
{
    const char *p = jj_data(field);
    size_t at = 0, end;
    jj_str *name;
    jj_value key;
    jj_attr attr;

    while (at < field->n && p[at] != '.' && p[at] != '[')
        at++;
    name = jj_str_sub(f->c, field, 0, at);
    if (!name || !(is_digits(name) ? positional(f, name, out) : find_keyword(f, name, out)))
        return false;
    while (at < field->n) {
        bool item = p[at] == '[';
        end = ++at;
        while (end < field->n && (item ? p[end] != ']' : p[end] != '.' && p[end] != '['))
            end++;
        if (end == at || (item && end == field->n))
            return jj_fail(f->c, "a format field that is not closed or empty");
        if (!jj_give(&key, jj_str_sub(f->c, field, at, end - at)))
            return false;
        at = end + item;
        if (item && is_digits(key.s) && key.s->n < 18) {
            int64_t i = 0;
            for (size_t k = 0; k < key.s->n; k++)
                i = 10 * i + (jj_data(key.s)[k] - '0');
            key = jj_int(i);
        }
        jj_value of = *out;
        if (!item)
            jj_attr_of(key, &attr);
        if (!(item ? jj_getitem(f->c, of, key, out) : jj_getattr(f->c, of, &attr, out)))
            return false;
    }
    return true;
}

static bool is_align(char ch)
{
    return ch == '<' || ch == '>' || ch == '=' || ch == '^';
}

static bool read_number(jj_ctx *c, const jj_str *s, size_t *at, int most, int *out)
{
    const char *p = jj_data(s);

    for (*out = 0; *at < s->n && p[*at] >= '0' && p[*at] <= '9'; ++*at) {
        *out = 10 * *out + (p[*at] - '0');
        if (*out > most)
            return jj_fail(c, "a format wider than %d", most);
    }
    return true;
}

static bool read_spec(jj_ctx *c, const jj_str *s, spec *out)
{
    const char *p = jj_data(s);
    size_t at = 0, first = 0;
    jj_value zero;

    *out = (spec){ .precision = -1 };
    if (s->n && !jj_str_offset(c, s, 1, &first))
        return false;
    if (s->n > first && first && is_align(p[first])) {
        out->fill = jj_str_sub(c, s, 0, first);
        out->align = p[first];
        at = first + 1;
    } else if (s->n && is_align(p[0])) {
        out->align = p[at++];
    }
    if (at < s->n && strchr("+- ", p[at]))
        out->sign = p[at++];
    if (at < s->n && p[at] == '#')
        out->alt = at++ < s->n;
    if (at < s->n && p[at] == '0' && !out->fill) {
        if (!jj_text(c, &zero, "0"))
            return false;
        out->fill = zero.s;
        out->zero = !out->align;
    }
    if (!read_number(c, s, &at, MAX_WIDTH, &out->width))
        return false;
    if (at < s->n && (p[at] == ',' || p[at] == '_'))
        out->group = p[at++];
    if (at < s->n && p[at] == '.') {
        at++;
        if (!read_number(c, s, &at, MAX_WIDTH, &out->precision))
            return false;
    }
    if (at < s->n)
        out->type = p[at++];
    return at == s->n || jj_fail(c, "invalid format specifier");
}

static bool put_field(jj_ctx *c, jj_buf *b, jj_value v, const jj_str *text_spec)
{
    spec s;
    jj_str *text;
    int64_t i;

    if (!read_spec(c, text_spec, &s))
        return false;
    if (v.type == JJ_STR && (!s.type || s.type == 's')) {
        s.align = s.align ? s.align : s.zero ? '<' : 0;
        return put_string(c, b, &s, v.s, '<');
    }
    if (!text_spec->n)
        return jj_to_str(c, v, &text) && jj_put_str(c, b, text);
    if (!jj_is_number(v))
        return jj_fail(c, "a format that does not suit '%s'", jj_type_name(v));
    if (s.precision > MAX_PRECISION)
        return jj_fail(c, "a format more precise than %d", MAX_PRECISION);
    s.align = s.align ? s.align : s.zero ? '=' : 0;
    if (jj_as_index(v, &i) && (!s.type || strchr("dxXobn", s.type))) {
        if (s.precision >= 0)
            return jj_fail(c, "precision is not allowed in an integer's format");
        s.type = !s.type || s.type == 'n' ? 'd' : s.type;
        return put_int(c, b, &s, i, v.foreign);
    }
    if (s.type == 'c' && jj_as_index(v, &i)) {
        jj_buf *one = jj_buf_new(c, 4, 0);
        if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
            return jj_fail(c, "%%c: no such character");
        return one && jj_put_code(c, one, (uint32_t)i, !v.foreign) && (text = jj_str_from(c, one)) &&
               put_padded(c, b, &s, text, 0, '<');
    }
    if (s.type && !strchr("eEfFgGn%", s.type))
        return jj_fail(c, "unknown format code '%c' for '%s'", s.type, jj_type_name(v));
    return put_float(c, b, &s, jj_as_double(v), v.foreign);
}

/* The spec of a field, in which fields may stand. */
static bool expand_spec(braces *f, const jj_str *s, jj_str **out)
{
    jj_buf *b = jj_buf_new(f->c, s->n, 8);
    size_t at = 0;

    while (b) {
        size_t open = jj_str_find(s, at, "{", 1), close;
        jj_value v;
        jj_str *text, *field;
        if (!jj_put_sub(f->c, b, s, at, (open == SIZE_MAX ? s->n : open) - at))
            return false;
        if (open == SIZE_MAX)
            return (*out = jj_str_from(f->c, b));
        close = jj_str_find(s, open, "}", 1);
        if (close == SIZE_MAX)
            return jj_fail(f->c, "a format field that is not closed");
        field = jj_str_sub(f->c, s, open + 1, close - open - 1);
        if (!field || !field_value(f, field, &v) || !jj_to_str(f->c, v, &text) || !jj_put_str(f->c, b, text))
            return false;
        at = close + 1;
    }
    return false;
}

/* What stands between a pair of braces. */
static bool one_field(braces *f, jj_buf *b, const jj_str *inner)
{
    const char *p = jj_data(inner);
    size_t end = 0, spec_at;
    char conversion = 0;
    jj_value v;
    jj_str *field, *raw, *text;

    for (int depth = 0; end < inner->n && (depth || (p[end] != '!' && p[end] != ':')); end++)
        depth += p[end] == '[' ? 1 : p[end] == ']' ? -1 : 0;
    spec_at = end;
    if (end < inner->n && p[end] == '!') {
        conversion = end + 1 < inner->n ? p[end + 1] : 0;
        spec_at = end + 2;
        if (!conversion || !strchr("rsa", conversion) || (spec_at < inner->n && p[spec_at] != ':'))
            return jj_fail(f->c, "unknown conversion in a format field");
    }
    spec_at += spec_at < inner->n;
    field = jj_str_sub(f->c, inner, 0, end);
    raw = jj_str_sub(f->c, inner, spec_at, inner->n - spec_at);
    if (!field || !raw || !field_value(f, field, &v))
        return false;
    if (conversion == 's' && (!jj_to_str(f->c, v, &text) || !jj_give(&v, text)))
        return false;
    if (conversion && conversion != 's') {
        jj_buf *r = jj_buf_new(f->c, 32, 0);
        if (!r || !jj_repr(f->c, r, v) || !jj_give(&v, jj_str_from(f->c, r)))
            return false;
    }
    return expand_spec(f, raw, &raw) && put_field(f->c, b, v, raw);
}

bool jj_format_braces(jj_ctx *c, const jj_str *s, const jj_args *a, jj_value *out)
{
    braces f = { .c = c, .args = a };
    jj_buf *b = jj_buf_new(c, s->n, 16);
    const char *p = jj_data(s);
    size_t from = 0, at = 0;

    if (!jj_charge_times(c, s->n, 2))
        return false;
    while (b && at < s->n) {
        if (p[at] != '{' && p[at] != '}') {
            at++;
            continue;
        }
        bool twice = at + 1 < s->n && p[at + 1] == p[at];
        if (!jj_put_sub(c, b, s, from, at + twice - from))
            return false;
        from = at = at + 1 + twice;
        if (twice)
            continue;
        if (p[at - 1] == '}')
            return jj_fail(c, "single '}' in a format string");
        for (int depth = 1; at < s->n; at++) {
            depth += p[at] == '{' ? 1 : p[at] == '}' ? -1 : 0;
            if (!depth)
                break;
        }
        if (at >= s->n)
            return jj_fail(c, "a format field that is not closed");
        jj_str *inner = jj_str_sub(c, s, from, at - from);
        if (!inner || !jj_step(c, 4) || !one_field(&f, b, inner))
            return false;
        from = ++at;
    }
    return b && jj_put_sub(c, b, s, from, s->n - from) && jj_give(out, jj_str_from(c, b));
}
