/* globals.c -- the functions that every template may call. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "text/jinja/internal.h"

enum {
    MAX_RANGE = 100000, /* as the sandbox has it */
    MAX_REASON = 350,   /* bytes of raise_exception's words */
};

static bool g_range(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    int64_t v[3] = { 0, 0, 1 };
    jj_range *r = jj_alloc(c, sizeof *r);

    (void)self;
    if (!r)
        return false;
    if (a->n_kw || !a->n || a->n > 3)
        return jj_fail(c, "range() takes one to three numbers");
    for (size_t i = 0; i < a->n; i++)
        if (!jj_arg_int(c, a->pos[i], "range()", &v[a->n == 1 ? 1 : i]))
            return false;
    if (!v[2])
        return jj_fail(c, "range(): a step of zero");
    *r = (jj_range){ .start = v[0], .stop = v[1], .step = v[2] };
    __int128 width = v[2] > 0 ? (__int128)v[1] - v[0] : (__int128)v[0] - v[1], step = v[2] > 0 ? v[2] : -(__int128)v[2];
    if (width > 0 && (width + step - 1) / step > MAX_RANGE)
        return jj_fail(c, "range() of more than %d numbers", MAX_RANGE);
    r->n = width > 0 ? (size_t)((width + step - 1) / step) : 0;
    *out = (jj_value){ .type = JJ_RANGE, .range = r };
    return true;
}

/* dict(mapping or pairs, key=value...); into: an empty one. */
static bool fill_dict(jj_ctx *c, const jj_args *a, jj_value into)
{
    jj_value source = a->n ? a->pos[0] : JJ_NOTHING, pair;

    if (a->n > 1)
        return jj_fail(c, "dict() takes at most one mapping, and has %zu", a->n);
    if (source.type == JJ_DICT) {
        source.type = JJ_VIEW;
        source.sub = JJ_ITEMS;
    }
    jj_iter *it = a->n ? jj_iterate(c, source) : NULL;
    if (a->n && !it)
        return false;
    while (it) {
        if (!jj_step(c, 1) || !jj_next(c, it, &pair))
            return false;
        if (pair.type == JJ_MISSING)
            break;
        if ((pair.type != JJ_TUPLE && pair.type != JJ_LIST) || pair.list->n != 2)
            return jj_fail(c, "dict(): an item is not a pair");
        if (!jj_dict_put(c, into.dict, pair.list->item[0], pair.list->item[1]))
            return false;
    }
    for (size_t i = 0; i < a->n_kw; i++)
        if (!jj_dict_put(c, into.dict, a->kw_name[i], a->kw[i]))
            return false;
    return true;
}

static bool g_dict(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    (void)self;
    return jj_new_dict(c, out, false) && fill_dict(c, a, *out);
}

static bool g_namespace(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    if (!g_dict(c, self, a, out))
        return false;
    out->type = JJ_NAMESPACE;
    return true;
}

static bool g_cycler(jj_ctx *c, jj_value self, const jj_args *a, jj_value *out)
{
    jj_cycler *y = jj_alloc(c, sizeof *y);
    jj_value items;

    (void)self;
    if (!y || !jj_new_list(c, &items, JJ_LIST, a->n, false))
        return false;
    if (!a->n || a->n_kw)
        return jj_fail(c, "cycler(): at least one item has to be provided");
    for (size_t i = 0; i < a->n; i++)
        if (!jj_list_add(c, items.list, a->pos[i]))
            return false;
    *y = (jj_cycler){ items.list, 0 };
    *out = (jj_value){ .type = JJ_CYCLER, .cycler = y };
    return true;
}

static bool g_joiner(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_cycler *y = jj_alloc(c, sizeof *y);
    jj_value list, sep = arg[0];

    (void)self;
    if (!y || (sep.type == JJ_MISSING && !jj_text(c, &sep, ", ")) || !jj_new_list(c, &list, JJ_LIST, 1, false) ||
        !jj_list_add(c, list.list, sep))
        return false;
    *y = (jj_cycler){ list.list, 0 };
    *out = (jj_value){ .type = JJ_JOINER, .cycler = y };
    return true;
}

static bool g_raise(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_str *s;

    (void)self;
    (void)out;
    if (!jj_to_str(c, arg[0], &s))
        return false;
    size_t n = s->n < MAX_REASON ? s->n : MAX_REASON;
    while (n < s->n && n && (jj_data(s)[n] & 0xc0) == 0x80) /* within a character */
        n--;
    return jj_fail(c, "%.*s", (int)n, jj_data(s));
}

static bool g_strftime_now(jj_ctx *c, jj_value self, const jj_value *arg, jj_value *out)
{
    jj_str *format = NULL;

    (void)self;
    return jj_arg_str(c, arg[0], "strftime_now", &format) && jj_strftime(c, format, out);
}

/* Days since 1970 as a date, in the proleptic Gregorian calendar. */
static void civil(int64_t days, struct tm *t)
{
    int64_t z = days + 719468, era = (z >= 0 ? z : z - 146096) / 146097, doe = z - era * 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365, doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    int64_t mp = (5 * doy + 2) / 153, month = mp < 10 ? mp + 3 : mp - 9, year = yoe + era * 400 + (month <= 2);
    bool leap = (year % 4 == 0 && year % 100) || year % 400 == 0;
    static const int before[] = { 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334 };

    t->tm_mday = (int)(doy - (153 * mp + 2) / 5 + 1);
    t->tm_mon = (int)month - 1;
    t->tm_year = (int)(year - 1900);
    t->tm_wday = (int)(((days % 7) + 11) % 7);
    t->tm_yday = before[month - 1] + t->tm_mday - 1 + (leap && month > 2);
}

static void local_time(int64_t now_s, struct tm *t)
{
    int64_t days = now_s / 86400, s = now_s % 86400;

    if (s < 0) {
        s += 86400;
        days--;
    }
    *t = (struct tm){ .tm_hour = (int)(s / 3600), .tm_min = (int)(s / 60 % 60), .tm_sec = (int)(s % 60) };
    civil(days, t);
}

bool jj_strftime(jj_ctx *c, const jj_str *format, jj_value *out)
{
    static const char allowed[] = "aAbBcdHIjmMpSUwWxXyYZzGuVehDFTRnt%klPCgsr";
    jj_buf *b = jj_buf_new(c, 64, 0);
    const char *p = jj_data(format);
    struct tm t;

    if (c->now_s > (int64_t)1 << 40 || c->now_s < -((int64_t)1 << 40))
        return jj_fail(c, "strftime_now: a time that no calendar has");
    local_time(c->now_s, &t);
    for (size_t at = 0; b && at < format->n;) {
        size_t to = jj_str_find(format, at, "%", 1);
        char spec[4] = "%", text[128];
        size_t n = 1;
        if (!jj_step(c, 16))
            return false;
        if (to == SIZE_MAX || to + 1 >= format->n)
            return jj_put_sub(c, b, format, at, format->n - at) && jj_give(out, jj_str_from(c, b));
        if (!jj_put_sub(c, b, format, at, to - at))
            return false;
        if (p[to + 1] == '-' && to + 2 < format->n)
            spec[n++] = p[++to];
        spec[n++] = p[to + 1];
        spec[n] = 0;
        at = to + 2;
        if (spec[n - 1] == 'f')
            snprintf(text, sizeof text, "000000");
        else if (spec[n - 1] == 'Z' || spec[n - 1] == 'z')
            text[0] = 0; /* the time has no zone */
        else if (!strchr(allowed, spec[n - 1]) || !spec[n - 1])
            return jj_fail(c, "strftime_now: a format that is not known");
        else
            text[strftime(text, sizeof text, spec, &t)] = 0;
        if (!jj_put_text(c, b, text, true))
            return false;
    }
    return b && jj_give(out, jj_str_from(c, b));
}

const jj_def jj_globals[] = {
    { .name = "range", .any = g_range },
    { .name = "dict", .any = g_dict },
    { .name = "namespace", .any = g_namespace },
    { .name = "cycler", .any = g_cycler },
    { "joiner", g_joiner, "sep", 0, NULL },
    { "raise_exception", g_raise, "message", 1, NULL },
    { "strftime_now", g_strftime_now, "format", 1, NULL },
    { NULL },
};
