/* word_filters.c -- filters on words, tags and addresses: the rarer ones on text. */
#include <stdio.h>
#include <string.h>

#include "text/jinja/internal.h"

static bool text_of(jj_ctx *c, jj_value v, const char *what, jj_str **out)
{
    if (v.type == JJ_STR)
        return *out = v.s, true;
    return v.type == JJ_UNDEFINED ? jj_fail_undefined(c, v)
                                  : jj_fail(c, "%s: a %s where text is wanted", what, jj_type_name(v));
}

bool jj_f_wordcount(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_str *s;
    int64_t n = 0;
    bool inside = false;

    (void)arg;
    if (!jj_to_str(c, self, &s) || !jj_charge_walk(c, s->n))
        return false;
    for (jj_walk w = jj_walk_start(s); jj_walk_next(&w);) {
        bool word = w.code == '_' || jj_is(JJ_ALNUM, w.code);
        n += word && !inside;
        inside = word;
    }
    *out = jj_int(n);
    out->foreign = !jj_str_trusted(s);
    return true;
}

/* One line cut into stretches that may stand alone: blanks, and words up to a hyphen or a blank. */
static size_t chunk_end(const jj_str *s, size_t at, size_t end, bool hyphens)
{
    const char *p = jj_data(s);
    bool blank = p[at] == ' ' || p[at] == '\t';
    size_t i = at;

    while (i < end && (p[i] == ' ' || p[i] == '\t') == blank) {
        i++;
        bool hyphen = !blank && hyphens && p[i - 1] == '-' && i - at > 2 && i + 1 < end;
        if (hyphen && p[i] != '-' && p[i] != ' ' && p[i + 1] != ' ')
            break;
    }
    return i;
}

typedef struct wrap {
    jj_ctx *c;
    const jj_str *s, *by;
    jj_buf *out;
    size_t width;
    bool hyphens, cut_words;
} wrap;

static bool put_line(wrap *w, size_t from, size_t to, bool trim, bool *first)
{
    const char *p = jj_data(w->s);

    while (trim && to > from && (p[to - 1] == ' ' || p[to - 1] == '\t'))
        to--;
    if (to == from)
        return true;
    if (!*first && !jj_put_str(w->c, w->out, w->by))
        return false;
    *first = false;
    return jj_put_sub(w->c, w->out, w->s, from, to - from);
}

static size_t points_of(const wrap *w, size_t from, size_t to)
{
    jj_str part = { w->s->b, w->s->off + from, to - from, SIZE_MAX };

    return jj_str_points(&part);
}

/* [at, to) is the rest of the word that is looked at, of n characters: it is measured once, however often it is cut. */
static bool wrap_line(wrap *w, size_t at, size_t end)
{
    size_t from = at, used = 0, to = at, n = 0;
    bool first = true;

    while (at < end) {
        if (at == to) {
            to = chunk_end(w->s, at, end, w->hyphens);
            n = points_of(w, at, to);
        }
        const char *p = jj_data(w->s);
        bool trim = true;
        if (!jj_step(w->c, 1))
            return false;
        if (used == 0 && !first && (p[at] == ' ' || p[at] == '\t')) { /* a new line starts with no blanks */
            from = at = to;
            continue;
        }
        if (used + n <= w->width) {
            used += n;
            at = to;
            continue;
        }
        if (n > w->width && w->cut_words) {
            jj_str rest = { w->s->b, w->s->off + at, to - at, SIZE_MAX };
            size_t off, room = w->width - used ? w->width - used : 0;
            if (!jj_str_offset(w->c, &rest, room, &off))
                return false;
            at += off;
            n -= room;
            trim = room > 0; /* as Python's textwrap: no part of the word follows the blank, which so is not the last */
        } else if (n > w->width && !used) {
            at = to;
        }
        if (!put_line(w, from, at, trim, &first))
            return false;
        from = at;
        used = 0;
    }
    return put_line(w, from, end, true, &first);
}

bool jj_f_wordwrap(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    wrap w = { .c = c, .hyphens = arg[3].type == JJ_MISSING || jj_truth(arg[3]),
               .cut_words = arg[1].type == JJ_MISSING || jj_truth(arg[1]) };
    int64_t width = 79;
    jj_str *s = NULL;
    jj_value newline;
    size_t end, next, at = 0;

    if (!text_of(c, self, "wordwrap", &s) || !jj_arg_int(c, arg[0], "wordwrap: width", &width) ||
        !jj_text(c, &newline, "\n") ||
        (arg[2].type != JJ_NONE && !jj_arg_str(c, arg[2], "wordwrap: wrapstring", &newline.s)))
        return false;
    if (width <= 0)
        return jj_fail(c, "wordwrap: a width of %lld", (long long)width);
    w.width = (size_t)width;
    w.s = s;
    w.by = newline.s;
    w.out = jj_buf_new(c, s->n, 16);
    if (!w.out || !jj_charge_times(c, s->n, 2))
        return false;
    for (bool start = true; jj_next_line(s, &at, &end, &next); at = next, start = false)
        if ((!start && !jj_put_str(c, w.out, w.by)) || !wrap_line(&w, at, end))
            return false;
    return jj_give(out, jj_str_from(c, w.out));
}

static bool is_unreserved(unsigned char ch)
{
    return (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') ||
           ch == '_' || ch == '.' || ch == '-' || ch == '~';
}

static bool put_quoted(jj_ctx *c, jj_buf *b, jj_value v, bool query)
{
    jj_str *s;
    static const char digits[] = "0123456789ABCDEF";

    if (!jj_to_str(c, v, &s) || !jj_charge_times(c, s->n, 3 * JJ_WALK))
        return false;
    for (size_t i = 0; i < s->n; i++) {
        unsigned char ch = (unsigned char)jj_data(s)[i];
        bool trusted = jj_str_trust_at(s, i), plain = is_unreserved(ch) || (ch == '/' && !query);
        if (plain || (query && ch == ' ')) {
            if (!jj_put_code(c, b, plain ? ch : '+', trusted))
                return false;
        } else if (!jj_put_bytes(c, b, (char[]){ '%', digits[ch >> 4], digits[ch & 15] }, 3, trusted)) {
            return false;
        }
    }
    return true;
}

bool jj_f_urlencode(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_buf *b = jj_buf_new(c, 64, 0);
    jj_value pairs = self, pair;
    jj_iter *it;

    (void)arg;
    if (!b)
        return false;
    if (self.type == JJ_STR || !jj_iterable(self))
        return put_quoted(c, b, self, false) && jj_give(out, jj_str_from(c, b));
    if (self.type == JJ_DICT)
        pairs = (jj_value){ .type = JJ_VIEW, .sub = JJ_ITEMS, .dict = self.dict };
    it = jj_iterate(c, pairs);
    for (bool first = true; it; first = false) {
        if (!jj_step(c, 1) || !jj_next(c, it, &pair))
            return false;
        if (pair.type == JJ_MISSING)
            return jj_give(out, jj_str_from(c, b));
        if ((pair.type != JJ_TUPLE && pair.type != JJ_LIST) || pair.list->n != 2)
            return jj_fail(c, "urlencode: an item is not a pair");
        if ((!first && !jj_put_text(c, b, "&", true)) || !put_quoted(c, b, pair.list->item[0], true) ||
            !jj_put_text(c, b, "=", true) || !put_quoted(c, b, pair.list->item[1], true))
            return false;
    }
    return false;
}

static bool put_escaped(jj_ctx *c, jj_buf *b, jj_value v)
{
    jj_str *s;
    jj_value e = v;

    if (!jj_to_str(c, v, &s) || (!(v.type == JJ_STR && v.sub) && !jj_escape_html(c, s, &e)))
        return false;
    return jj_put_str(c, b, e.s);
}

bool jj_f_xmlattr(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_buf *b = jj_buf_new(c, 64, 0);
    bool space = arg[0].type == JJ_MISSING || jj_truth(arg[0]);

    if (!b || self.type != JJ_DICT)
        return jj_fail(c, "xmlattr: a %s where a mapping is wanted", jj_type_name(self));
    for (size_t i = 0; i < self.dict->n; i++) {
        const jj_entry *e = &self.dict->entry[i];
        if (e->value.type == JJ_NONE || e->value.type == JJ_UNDEFINED)
            continue;
        if (e->key.type != JJ_STR)
            return jj_fail(c, "xmlattr: a name that is no text");
        for (size_t k = 0; k < e->key.s->n; k++) {
            char ch = jj_data(e->key.s)[k];
            if (!ch || strchr(" \t\n\r\f\v/>=", ch))
                return jj_fail(c, "xmlattr: a name with a character that ends it");
        }
        if (((b->used || space) && !jj_put_text(c, b, " ", true)) || !put_escaped(c, b, e->key) ||
            !jj_put_text(c, b, "=\"", true) || !put_escaped(c, b, e->value) || !jj_put_text(c, b, "\"", true))
            return false;
    }
    return jj_give(out, jj_str_from(c, b));
}

/* Read an entity that escape() makes, or one of a few more.  0: there is none at p. */
static size_t entity(const char *p, size_t n, char *to)
{
    static const struct { const char *name; char is; } known[] = {
        { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&#39;", '\'' }, { "&#34;", '"' }, { "&quot;", '"' },
        { "&apos;", '\'' },
    };

    for (size_t i = 0; i < RG_LEN(known); i++) {
        size_t k = strlen(known[i].name);
        if (k <= n && !memcmp(p, known[i].name, k))
            return *to = known[i].is, k;
    }
    return 0;
}

/* Without what stands between open and close, each time. */
static bool cut_out(jj_ctx *c, jj_str **s, const char *open, const char *close)
{
    jj_buf *b = jj_buf_new(c, (*s)->n, 0);
    size_t at = 0;

    while (b) {
        size_t from = jj_str_find(*s, at, open, strlen(open));
        size_t to = from == SIZE_MAX ? SIZE_MAX : jj_str_find(*s, from, close, strlen(close));
        if (to == SIZE_MAX)
            break;
        if (!jj_charge(c, 96) || !jj_put_sub(c, b, *s, at, from - at))
            return false;
        at = to + strlen(close);
    }
    return b && jj_put_sub(c, b, *s, at, (*s)->n - at) && (*s = jj_str_from(c, b));
}

bool jj_f_striptags(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_str *s;
    jj_buf *b;
    bool gap = false;
    char plain;

    (void)arg;
    if (!jj_step(c, 4) || !jj_to_str(c, self, &s) || !cut_out(c, &s, "<!--", "-->") || !cut_out(c, &s, "<", ">") ||
        !(b = jj_buf_new(c, s->n, 0)) || !jj_charge_times(c, s->n, 4 * JJ_WALK))
        return false;
    for (jj_walk w = jj_walk_start(s); jj_walk_next(&w);) {
        if (jj_is(JJ_SPACE, w.code)) {
            gap = b->used > 0;
            continue;
        }
        size_t k = w.code == '&' ? entity(jj_data(s) + w.at, s->n - w.at, &plain) : 0;
        if (gap && !jj_put_bytes(c, b, " ", 1, w.trusted))
            return false;
        gap = false;
        if (!(k ? jj_put_bytes(c, b, &plain, 1, w.trusted) : jj_put_sub(c, b, s, w.at, (size_t)w.n)))
            return false;
        w.n = k ? (int)k : w.n;
    }
    if (!jj_give(out, jj_str_from(c, b)))
        return false;
    out->sub = JJ_MARKUP;
    return true;
}

static bool sorted(jj_ctx *c, jj_value v, jj_value *out)
{
    jj_value keys, values;
    size_t n = v.type == JJ_DICT ? v.dict->n : v.type == JJ_LIST || v.type == JJ_TUPLE ? v.list->n : 0;

    *out = v;
    if (v.type != JJ_DICT && v.type != JJ_LIST && v.type != JJ_TUPLE)
        return true;
    jj_type type = v.type == JJ_DICT ? JJ_LIST : (jj_type)v.type;
    if (!jj_enter(c) || !jj_new_list(c, &keys, JJ_LIST, n, false) || !jj_new_list(c, &values, type, n, v.foreign))
        return false;
    for (size_t i = 0; i < n; i++) {
        jj_value item;
        if (!jj_step(c, 1) || !sorted(c, v.type == JJ_DICT ? v.dict->entry[i].value : v.list->item[i], &item) ||
            !jj_list_add(c, values.list, item) ||
            (v.type == JJ_DICT && !jj_list_add(c, keys.list, v.dict->entry[i].key)))
            return false;
    }
    jj_leave(c);
    if (v.type != JJ_DICT)
        return *out = values, true;
    if (!jj_sort(c, values.list, keys.list, false, n) || !jj_new_dict(c, out, v.foreign))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!jj_dict_put(c, out->dict, keys.list->item[i], values.list->item[i]))
            return false;
    return true;
}

/* What fits on one line, which Python's pprint does not break. */
bool jj_f_pprint(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_buf *b = jj_buf_new(c, 80, 0);
    jj_value v;

    (void)arg;
    if (!b || !sorted(c, self, &v) || !jj_repr(c, b, v))
        return false;
    if (b->used > 80)
        return jj_fail(c, "pprint: more than a line is not supported");
    return jj_give(out, jj_str_from(c, b));
}
