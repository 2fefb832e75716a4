/* text_filters.c -- filters on text: titles, replacing, padding, cutting, indenting.  Some others are methods of
 * strings (builtins.def). */
#include <string.h>

#include "text/jinja/internal.h"

bool jj_soft(jj_ctx *c, jj_value v, jj_value *out)
{
    jj_str *s;

    *out = v;
    return v.type == JJ_STR || (jj_to_str(c, v, &s) && jj_give(out, s));
}

bool jj_f_string(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    (void)c;
    (void)arg;
    *out = self;
    return true;
}

static bool starts_word(uint32_t code)
{
    return code == '-' || code == '(' || code == '{' || code == '[' || code == '<' || jj_is(JJ_SPACE, code);
}

bool jj_f_title(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_buf *b;
    size_t from = 0, head = 0; /* the word's start, and the end of its first character */
    bool inside = false;

    (void)arg;
    if (!jj_soft(c, self, &self) || !(b = jj_buf_new(c, self.s->n, 8)) || !jj_charge_times(c, self.s->n, 6 * JJ_WALK))
        return false;
    for (jj_walk w = jj_walk_start(self.s); jj_walk_next(&w);) {
        bool breaks = starts_word(w.code);
        if (breaks == !inside && w.at)
            continue;
        if (inside || !w.at) {
            if (w.at && (!jj_put_recased(c, b, self.s, from, head - from, JJ_UPPER) ||
                         !jj_put_recased(c, b, self.s, head, w.at - head, JJ_LOWER)))
                return false;
        } else if (!jj_put_sub(c, b, self.s, from, w.at - from)) {
            return false;
        }
        inside = !breaks;
        from = w.at;
        head = w.at + (size_t)w.n;
    }
    if (inside && (!jj_put_recased(c, b, self.s, from, head - from, JJ_UPPER) ||
                   !jj_put_recased(c, b, self.s, head, self.s->n - head, JJ_LOWER)))
        return false;
    if (!inside && !jj_put_sub(c, b, self.s, from, self.s->n - from))
        return false;
    return jj_give(out, jj_str_from(c, b));
}

bool jj_f_safe(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    (void)arg;
    if (!jj_soft(c, self, out))
        return false;
    out->sub = JJ_MARKUP;
    return true;
}

bool jj_escape_html(jj_ctx *c, const jj_str *s, jj_value *out)
{
    static const char *const to[128] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['\''] = "&#39;", ['"'] = "&#34;",
    };
    jj_buf *b = jj_charge_times(c, s->n, 2) ? jj_buf_new(c, s->n, 16) : NULL;
    size_t from = 0;

    for (size_t i = 0; b && i < s->n; i++) {
        unsigned char ch = (unsigned char)jj_data(s)[i];
        if (ch > '>' || !to[ch])
            continue;
        if (!jj_charge(c, 64) || !jj_put_sub(c, b, s, from, i - from) ||
            !jj_put_text(c, b, to[ch], jj_str_trust_at(s, i)))
            return false;
        from = i + 1;
    }
    if (!b || !jj_put_sub(c, b, s, from, s->n - from) || !jj_give(out, jj_str_from(c, b)))
        return false;
    out->sub = JJ_MARKUP;
    return true;
}

bool jj_f_forceescape(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    (void)arg;
    return jj_soft(c, self, &self) && jj_escape_html(c, self.s, out);
}

bool jj_f_escape(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    if (self.type == JJ_STR && self.sub)
        return *out = self, true;
    return jj_f_forceescape(c, self, arg, out);
}

bool jj_replace(jj_ctx *c, const jj_str *s, const jj_str *from, const jj_str *to, int64_t count, jj_value *out)
{
    jj_buf *b = jj_buf_new(c, s->n, 0);
    size_t at = 0, step;
    uint32_t code;

    if (!b || !jj_charge_find(c, s->n, from->n))
        return false;
    for (int64_t i = 0; count < 0 || i < count; i++) {
        size_t hit = jj_str_find(s, at, jj_data(from), from->n);
        if (!from->n && i) { /* between all characters */
            if (at >= s->n)
                break;
            step = jj_str_char(s, at, &code);
            if (!jj_put_sub(c, b, s, at, step))
                return false;
            hit = at += step;
        }
        if (hit == SIZE_MAX)
            break;
        if (!jj_charge(c, 96) || !jj_put_sub(c, b, s, at, hit - at) || !jj_put_str(c, b, to))
            return false;
        at = hit + from->n;
    }
    return jj_put_sub(c, b, s, at, s->n - at) && jj_give(out, jj_str_from(c, b));
}

bool jj_f_replace(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_str *s, *from, *to;
    int64_t count = -1;

    return jj_to_str(c, self, &s) && jj_to_str(c, arg[0], &from) && jj_to_str(c, arg[1], &to) &&
           (arg[2].type == JJ_NONE || jj_arg_int(c, arg[2], "replace: count", &count)) &&
           jj_replace(c, s, from, to, count, out);
}

bool jj_pad(jj_ctx *c, const jj_str *s, int64_t width, const jj_str *fill, char align, jj_value *out)
{
    int64_t pad = width - (int64_t)jj_str_points(s), left = 0;
    jj_buf *b;

    pad = pad < 0 ? 0 : pad;
    if (align == '>')
        left = pad;
    else if (align == '^')
        left = pad / 2 + (pad & width & 1); /* as str.center() */
    b = jj_charge(c, s->n / 4) ? jj_buf_new(c, s->n, 0) : NULL;
    return b && jj_put_fill(c, b, fill, (size_t)left) && jj_put_str(c, b, s) &&
           jj_put_fill(c, b, fill, (size_t)(pad - left)) && jj_give(out, jj_str_from(c, b));
}

bool jj_f_center(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    int64_t width = 80;

    return jj_soft(c, self, &self) && jj_arg_int(c, arg[0], "center: width", &width) &&
           jj_pad(c, self.s, width, NULL, '^', out);
}

bool jj_f_truncate(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    int64_t length = 255, leeway = 5, n, n_all;
    jj_value dots;
    jj_str *end, *s = NULL;
    size_t cut;

    if (!jj_text(c, &dots, "...") || !jj_arg_str(c, arg[2], "truncate: end", &dots.s) ||
        !jj_arg_int(c, arg[0], "truncate: length", &length) ||
        (arg[3].type != JJ_NONE && !jj_arg_int(c, arg[3], "truncate: leeway", &leeway)))
        return false;
    end = dots.s;
    n = (int64_t)jj_str_points(end);
    if (length < n || leeway < 0)
        return jj_fail(c, "truncate: a length below that of its end, or a negative leeway");
    if (!jj_length(c, self, out))
        return false;
    n_all = out->i;
    *out = self;
    if (n_all - length <= leeway)
        return true;
    if (self.type != JJ_STR)
        return jj_fail(c, "truncate: a %s where text is wanted", jj_type_name(self));
    if (!jj_str_offset(c, self.s, (size_t)(length - n), &cut))
        return false;
    if (!jj_truth(arg[1])) {
        size_t blank = jj_str_rfind(self.s, cut, " ", 1);
        cut = blank == SIZE_MAX ? cut : blank;
    }
    s = jj_str_sub(c, self.s, 0, cut);
    return s && jj_give(out, jj_str_concat(c, s, end));
}

bool jj_next_line(const jj_str *s, size_t *at, size_t *end, size_t *next)
{
    const char *p = jj_data(s);

    if (*at >= s->n)
        return false;
    for (*end = *at; *end < s->n; ++*end) {
        unsigned char ch = (unsigned char)p[*end];
        if (ch > 30 && ch != 0xc2 && ch != 0xe2)
            continue;
        if (ch == '\r' || ch == '\n') {
            *next = *end + 1 + (ch == '\r' && *end + 1 < s->n && p[*end + 1] == '\n');
            return true;
        }
        if ((ch >= 11 && ch <= 12) || (ch >= 28 && ch <= 30)) {
            *next = *end + 1;
            return true;
        }
        if (ch == 0xc2 && (unsigned char)p[*end + 1] == 0x85) {
            *next = *end + 2;
            return true;
        }
        if (ch == 0xe2 && (unsigned char)p[*end + 1] == 0x80 && ((unsigned char)p[*end + 2] & 0xfe) == 0xa8) {
            *next = *end + 3;
            return true;
        }
    }
    *next = s->n;
    return true;
}

bool jj_f_indent(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    int64_t width = 4;
    jj_str *by = NULL;
    jj_buf *b, *blanks;
    bool first = jj_truth(arg[1]), blank = jj_truth(arg[2]), start = true;
    size_t end, next, last = 0;

    if (self.type == JJ_UNDEFINED)
        return jj_fail_undefined(c, self);
    if (self.type != JJ_STR)
        return jj_fail(c, "indent: a %s where text is wanted", jj_type_name(self));
    if (arg[0].type == JJ_STR)
        by = arg[0].s;
    else if (!jj_arg_int(c, arg[0], "indent: width", &width) || !(blanks = jj_buf_new(c, 16, 0)) ||
             !jj_put_fill(c, blanks, NULL, width > 0 ? (size_t)width : 0) || !(by = jj_str_from(c, blanks)))
        return false;
    b = jj_buf_new(c, self.s->n, 64);
    if (!b || !jj_charge_times(c, self.s->n, 4) || (first && !jj_put_str(c, b, by)))
        return false;
    for (size_t at = 0; jj_next_line(self.s, &at, &end, &next); at = next, start = false) {
        if (!start && (!jj_charge(c, 256) || !jj_put_bytes(c, b, "\n", 1, jj_str_trust_at(self.s, last)) ||
                       ((blank || end > at) && !jj_put_str(c, b, by))))
            return false;
        if (!jj_put_sub(c, b, self.s, at, end - at))
            return false;
        last = end;
    }
    /* A line break at the very end opens one more line, an empty one. */
    if (last < self.s->n && jj_data(self.s)[self.s->n - 1] != '\r' &&
        (!jj_put_bytes(c, b, "\n", 1, jj_str_trust_at(self.s, last)) || (blank && !jj_put_str(c, b, by))))
        return false;
    if (!jj_give(out, jj_str_from(c, b)))
        return false;
    out->sub = self.sub;
    return true;
}

bool jj_f_format(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    jj_value args;

    if (a->n && a->n_kw)
        return jj_fail(c, "can't handle positional and keyword arguments at the same time");
    if (!jj_soft(c, self, &self))
        return false;
    if (a->n_kw) {
        if (!jj_new_dict(c, &args, false))
            return false;
        for (size_t i = 0; i < a->n_kw; i++)
            if (!jj_dict_put(c, args.dict, a->kw_name[i], a->kw[i]))
                return false;
        return jj_format_percent(c, self.s, args, out);
    }
    if (!jj_new_list(c, &args, JJ_TUPLE, a->n, false))
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!jj_list_add(c, args.list, a->pos[i]))
            return false;
    return jj_format_percent(c, self.s, args, out);
}
