/* str_methods.c -- methods of strings that cut, join, look for and replace. */
#include <string.h>

#include "text/jinja/internal.h"

#define METHOD(name) bool name(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)

/* As a string of the same kind as self. */
static bool give(jj_value self, jj_str *s, jj_value *out)
{
    if (!jj_give(out, s))
        return false;
    out->sub = self.sub;
    return true;
}

static bool strip(jj_ctx *c, jj_value self, jj_value chars, bool left, bool right, jj_value *out)
{
    jj_str *s, *of = NULL;

    return (chars.type == JJ_NONE || jj_arg_str(c, chars, "strip: chars", &of)) &&
           jj_strip(c, self.s, of, left, right, &s) && give(self, s, out);
}

METHOD(jj_m_strip) { return strip(c, self, arg[0], true, true, out); }
METHOD(jj_m_lstrip) { return strip(c, self, arg[0], true, false, out); }
METHOD(jj_m_rstrip) { return strip(c, self, arg[0], false, true, out); }

static bool add_part(jj_ctx *c, jj_value self, size_t from, size_t to, jj_value *list)
{
    jj_value part;

    return jj_charge(c, 48) && give(self, jj_str_sub(c, self.s, from, to - from), &part) &&
           jj_list_add(c, list->list, part);
}

static bool is_space_at(const jj_str *s, size_t at, size_t *n)
{
    uint32_t code = (unsigned char)jj_data(s)[at];

    *n = 1;
    if (code < 128)
        return code == ' ' || code - 9 < 5 || code - 28 < 4;
    *n = jj_str_char(s, at, &code);
    return jj_is(JJ_SPACE, code);
}

static bool split_blank(jj_ctx *c, jj_value self, int64_t most, jj_value *out)
{
    const jj_str *s = self.s;
    size_t at = 0, n, from;

    while (at < s->n) {
        while (at < s->n && is_space_at(s, at, &n))
            at += n;
        if (at == s->n)
            break;
        from = at;
        if (most >= 0 && (int64_t)out->list->n == most)
            return add_part(c, self, from, s->n, out);
        while (at < s->n && !is_space_at(s, at, &n))
            at += n;
        if (!add_part(c, self, from, at, out))
            return false;
    }
    return true;
}

METHOD(jj_m_split)
{
    const jj_str *s = self.s;
    jj_str *by = NULL;
    int64_t most = -1;
    size_t at = 0, hit;

    if ((arg[0].type != JJ_NONE && !jj_arg_str(c, arg[0], "split: separator", &by)) ||
        !jj_arg_int(c, arg[1], "split: maxsplit", &most) ||
        !jj_new_list(c, out, JJ_LIST, 0, !jj_str_trusted(s)) ||
        !(by ? jj_charge_find(c, s->n, by->n) : jj_charge_times(c, s->n, 3)))
        return false;
    if (!by)
        return split_blank(c, self, most, out);
    if (!by->n)
        return jj_fail(c, "split: empty separator");
    while (most < 0 || (int64_t)out->list->n < most) {
        hit = jj_str_find(s, at, jj_data(by), by->n);
        if (hit == SIZE_MAX)
            break;
        if (!add_part(c, self, at, hit, out))
            return false;
        at = hit + by->n;
    }
    return add_part(c, self, at, s->n, out);
}

static size_t char_before(const jj_str *s, size_t at)
{
    do
        at--;
    while (at && ((unsigned char)jj_data(s)[at] & 0xc0) == 0x80);
    return at;
}

static bool rsplit_blank(jj_ctx *c, jj_value self, int64_t most, jj_value *out)
{
    const jj_str *s = self.s;
    size_t at = s->n, to, n;

    while (at > 0) {
        while (at > 0 && is_space_at(s, char_before(s, at), &n))
            at -= n;
        if (!at)
            break;
        to = at;
        if (most >= 0 && (int64_t)out->list->n == most)
            return add_part(c, self, 0, to, out);
        while (at > 0 && !is_space_at(s, char_before(s, at), &n))
            at -= n;
        if (!add_part(c, self, at, to, out))
            return false;
    }
    return true;
}

METHOD(jj_m_rsplit)
{
    const jj_str *s = self.s;
    jj_str *by = NULL;
    int64_t most = -1;
    size_t end = s->n, hit;

    if ((arg[0].type != JJ_NONE && !jj_arg_str(c, arg[0], "rsplit: separator", &by)) ||
        !jj_arg_int(c, arg[1], "rsplit: maxsplit", &most) ||
        !jj_new_list(c, out, JJ_LIST, 0, !jj_str_trusted(s)) ||
        !jj_charge_times(c, s->n, 3))
        return false;
    if (by && !by->n)
        return jj_fail(c, "rsplit: empty separator");
    if (!by && !rsplit_blank(c, self, most, out))
        return false;
    while (by && (most < 0 || (int64_t)out->list->n < most)) {
        hit = jj_str_rfind(s, end, jj_data(by), by->n);
        if (hit == SIZE_MAX)
            break;
        if (!add_part(c, self, hit + by->n, end, out))
            return false;
        end = hit;
    }
    if (by && !add_part(c, self, 0, end, out))
        return false;
    for (size_t i = 0, k = out->list->n; i + 1 < k; i++, k--) {
        jj_value t = out->list->item[i];
        out->list->item[i] = out->list->item[k - 1];
        out->list->item[k - 1] = t;
    }
    return true;
}

METHOD(jj_m_splitlines)
{
    bool keep = jj_truth(arg[0]);
    size_t end, next;

    if (!jj_new_list(c, out, JJ_LIST, 0, !jj_str_trusted(self.s)) || !jj_charge_times(c, self.s->n, 4))
        return false;
    for (size_t at = 0; jj_next_line(self.s, &at, &end, &next); at = next)
        if (!add_part(c, self, at, keep ? next : end, out))
            return false;
    return true;
}

static bool partition(jj_ctx *c, jj_value self, jj_value sep, bool last, jj_value *out)
{
    jj_str *by = NULL;
    const jj_str *s = self.s;
    size_t at;

    if (!jj_arg_str(c, sep, "partition: separator", &by) || !jj_new_list(c, out, JJ_TUPLE, 3, !jj_str_trusted(s)) ||
        !jj_charge_find(c, s->n, by->n))
        return false;
    if (!by->n)
        return jj_fail(c, "partition: empty separator");
    at = last ? jj_str_rfind(s, s->n, jj_data(by), by->n) : jj_str_find(s, 0, jj_data(by), by->n);
    if (at == SIZE_MAX) {
        size_t cut = last ? 0 : s->n;
        return (!last || (add_part(c, self, 0, 0, out) && add_part(c, self, 0, 0, out))) &&
               add_part(c, self, 0, s->n, out) &&
               (last || (add_part(c, self, cut, cut, out) && add_part(c, self, cut, cut, out)));
    }
    return add_part(c, self, 0, at, out) && add_part(c, self, at, at + by->n, out) &&
           add_part(c, self, at + by->n, s->n, out);
}

METHOD(jj_m_partition) { return partition(c, self, arg[0], false, out); }
METHOD(jj_m_rpartition) { return partition(c, self, arg[0], true, out); }

METHOD(jj_m_join)
{
    jj_iter *it = jj_iterate(c, arg[0]);
    jj_buf *b = it ? jj_buf_new(c, 64, 0) : NULL;
    jj_value item;

    for (size_t i = 0; b; i++) {
        if (!jj_step(c, 1) || !jj_next(c, it, &item))
            return false;
        if (item.type == JJ_MISSING)
            return give(self, jj_str_from(c, b), out);
        if (item.type != JJ_STR)
            return jj_fail(c, "sequence item %zu: expected str instance, %s found", i, jj_type_name(item));
        if (self.sub && !item.sub && !jj_escape_html(c, item.s, &item))
            return false;
        if ((i && !jj_put_str(c, b, self.s)) || !jj_put_str(c, b, item.s))
            return false;
    }
    return false;
}

METHOD(jj_m_replace)
{
    jj_str *from = NULL, *to = NULL;
    int64_t count = -1;

    if (!jj_arg_str(c, arg[0], "replace: old", &from) || !jj_arg_str(c, arg[1], "replace: new", &to) ||
        !jj_arg_int(c, arg[2], "replace: count", &count) || !jj_replace(c, self.s, from, to, count, out))
        return false;
    out->sub = self.sub;
    return true;
}

/* The stretch [start, end) of self that find and its like look at; empty ones that lie past the end find nothing. */
static bool stretch(jj_ctx *c, jj_value self, const jj_value *arg, jj_str **out, int64_t *start, bool *past)
{
    int64_t n = (int64_t)jj_str_points(self.s), v[2] = { 0, n };
    size_t from, to;

    if (!jj_str_ascii(self.s) && !jj_charge(c, self.s->n))
        return false;
    for (int i = 0; i < 2; i++) {
        if (arg[1 + i].type != JJ_NONE && !jj_arg_int(c, arg[1 + i], "a position", &v[i]))
            return false;
        v[i] += v[i] < 0 ? n : 0;
        v[i] = v[i] < 0 ? 0 : v[i];
    }
    v[1] = v[1] > n ? n : v[1];
    *past = v[0] > v[1];
    *start = v[0];
    v[0] = *past ? v[1] : v[0];
    return jj_str_offset(c, self.s, (size_t)v[0], &from) && jj_str_offset(c, self.s, (size_t)v[1], &to) &&
           (*out = jj_str_sub(c, self.s, from, to - from));
}

static bool look(jj_ctx *c, jj_value self, const jj_value *arg, bool last, bool must, jj_value *out)
{
    jj_str *part, *what = NULL;
    int64_t start;
    bool past;
    size_t at = SIZE_MAX;

    if (!jj_arg_str(c, arg[0], "what is looked for", &what) || !stretch(c, self, arg, &part, &start, &past) ||
        !jj_charge_find(c, part->n, last ? SIZE_MAX : what->n))
        return false;
    if (!past)
        at = last ? jj_str_rfind(part, part->n, jj_data(what), what->n) : jj_str_find(part, 0, jj_data(what), what->n);
    if (at == SIZE_MAX && must)
        return jj_fail(c, "substring not found");
    if (at == SIZE_MAX) {
        *out = jj_int(-1);
    } else {
        jj_str before = { part->b, part->off, at, SIZE_MAX };
        *out = jj_int(start + (int64_t)jj_str_points(&before));
    }
    out->foreign = !jj_str_trusted(self.s);
    return true;
}

METHOD(jj_m_find) { return look(c, self, arg, false, false, out); }
METHOD(jj_m_rfind) { return look(c, self, arg, true, false, out); }
METHOD(jj_m_index) { return look(c, self, arg, false, true, out); }
METHOD(jj_m_rindex) { return look(c, self, arg, true, true, out); }

METHOD(jj_m_count)
{
    jj_str *part, *what = NULL;
    int64_t start, n = 0;
    bool past;

    if (!jj_arg_str(c, arg[0], "what is counted", &what) || !stretch(c, self, arg, &part, &start, &past) ||
        !jj_charge_find(c, part->n, what->n))
        return false;
    if (!what->n)
        n = past ? 0 : (int64_t)jj_str_points(part) + 1;
    for (size_t at = 0; what->n && !past; n++) {
        at = jj_str_find(part, at, jj_data(what), what->n);
        if (at == SIZE_MAX)
            break;
        at += what->n;
        if (!jj_charge(c, 128))
            return false;
    }
    *out = jj_int(n);
    out->foreign = !jj_str_trusted(self.s);
    return true;
}

static bool has_affix(jj_ctx *c, const jj_str *s, const jj_str *affix, bool suffix)
{
    return affix->n <= s->n && jj_charge(c, affix->n / 2) &&
           !memcmp(jj_data(s) + (suffix ? s->n - affix->n : 0), jj_data(affix), affix->n);
}

static bool affixed(jj_ctx *c, jj_value self, const jj_value *arg, bool suffix, jj_value *out)
{
    jj_str *part, *affix = NULL;
    int64_t start;
    bool past, is = false;

    if (!stretch(c, self, arg, &part, &start, &past))
        return false;
    if (arg[0].type == JJ_TUPLE) {
        for (size_t i = 0; i < arg[0].list->n && !is; i++) {
            if (!jj_step(c, 1) || !jj_arg_str(c, arg[0].list->item[i], "startswith or endswith: a part", &affix))
                return false;
            is = has_affix(c, part, affix, suffix);
        }
    } else if (!jj_arg_str(c, arg[0], "startswith or endswith: the argument", &affix)) {
        return false;
    } else {
        is = has_affix(c, part, affix, suffix);
    }
    *out = jj_bool(is && !past);
    return !c->failed;
}

METHOD(jj_m_startswith) { return affixed(c, self, arg, false, out); }
METHOD(jj_m_endswith) { return affixed(c, self, arg, true, out); }

METHOD(jj_m_removeprefix)
{
    jj_str *affix = NULL;

    if (!jj_arg_str(c, arg[0], "removeprefix: the prefix", &affix))
        return false;
    size_t cut = has_affix(c, self.s, affix, false) ? affix->n : 0;
    return !c->failed && give(self, jj_str_sub(c, self.s, cut, self.s->n - cut), out);
}

METHOD(jj_m_removesuffix)
{
    jj_str *affix = NULL;

    if (!jj_arg_str(c, arg[0], "removesuffix: the suffix", &affix))
        return false;
    size_t cut = has_affix(c, self.s, affix, true) ? affix->n : 0;
    return !c->failed && give(self, jj_str_sub(c, self.s, 0, self.s->n - cut), out);
}

bool jj_m_format(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    return jj_format_braces(c, self.s, a, out);
}

METHOD(jj_m_format_map)
{
    jj_args a = { 0 };
    jj_value *names;

    if (arg[0].type != JJ_DICT)
        return jj_fail(c, "format_map: a %s where a mapping is wanted", jj_type_name(arg[0]));
    a.n_kw = arg[0].dict->n;
    names = jj_array(c, a.n_kw, 2 * sizeof *names);
    if (!names)
        return false;
    for (size_t i = 0; i < a.n_kw; i++) {
        if (arg[0].dict->entry[i].key.type != JJ_STR)
            return jj_fail(c, "format_map: a key that is no text");
        names[i] = arg[0].dict->entry[i].key;
        names[a.n_kw + i] = arg[0].dict->entry[i].value;
    }
    a.kw_name = names;
    a.kw = names + a.n_kw;
    return jj_format_braces(c, self.s, &a, out);
}
