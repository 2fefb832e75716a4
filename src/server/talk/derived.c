/* derived.c -- see derived.h. */
#include "server/talk/derived.h"

#include <string.h>

#include "base/mem.h"
#include "server/talk/inner.h"

enum { MAX_TEXTS = 4096, MAX_MARK = 256 };

struct rg_talk_derived {
    rg_talk talk;
    rg_talk_tags tags;
    char texts[MAX_TEXTS];
    size_t n;
    bool full;
};

typedef struct span {
    const char *s;
    size_t n;
} span;

/* ---- texts ------------------------------------------------------------------------------------------------------- */

/* Its own copy; NULL: nothing but blanks. */
static const char *keep(rg_talk_derived *m, span t)
{
    char *to = m->texts + m->n;
    size_t blanks = 0;

    while (blanks < t.n && rg_is_blank(t.s[blanks]))
        blanks++;
    if (blanks == t.n)
        return NULL;
    if (t.n >= MAX_MARK || m->n + t.n + 1 > MAX_TEXTS) {
        m->full = true;
        return NULL;
    }
    memcpy(to, t.s, t.n);
    to[t.n] = 0;
    m->n += t.n + 1;
    return to;
}

static span between(const char *from, const char *to)
{
    return to > from ? (span){ from, (size_t)(to - from) } : (span){ from, 0 };
}

static size_t common_start(const char *a, const char *b)
{
    size_t n = 0;

    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* What two texts end with alike, from where a mark begins. */
static size_t common_end(span a, span b)
{
    size_t n = 0;

    while (n < a.n && n < b.n && a.s[a.n - 1 - n] == b.s[b.n - 1 - n])
        n++;
    while (n && n < a.n && !strchr("<[{", a.s[a.n - n]))
        n--;
    return n;
}

/* What two texts begin with alike, up to where a mark ends. */
static size_t common_mark(span a, span b)
{
    size_t n = 0;

    while (n < a.n && n < b.n && a.s[n] == b.s[n])
        n++;
    while (n && n < a.n && !strchr(">]}", a.s[n - 1]))
        n--;
    return n;
}

static const char *last_before(const char *s, const char *end, const char *what)
{
    const char *found = NULL;

    for (const char *at = s; (at = strstr(at, what)) && at < end; at++)
        found = at;
    return found;
}

/* ---- reasoning --------------------------------------------------------------------------------------------------- */

/* The mark that ends at this place, without blanks behind it. */
static span mark_before(const char *from, const char *end)
{
    const char *at;

    while (end > from && rg_is_blank(end[-1]))
        end--;
    for (at = end; at > from && end - at < MAX_MARK; at--)
        if (at < end && (*at == '<' || *at == '['))
            break;
    return at > from || *at == '<' || *at == '[' ? between(at, end) : (span){ end, 0 };
}

static void read_thought(rg_talk_derived *m, const rg_talk_samples *s)
{
    const char *thought = s->thought ? strstr(s->thought, RG_PROBE_THOUGHT) : NULL;
    const char *text = thought ? strstr(thought, RG_PROBE_TEXT) : NULL;

    if (!text || !s->text)
        return;
    span open = between(s->thought + common_start(s->thought, s->text), thought),
         close = between(thought + strlen(RG_PROBE_THOUGHT), text);
    const char *opens = keep(m, open), *closes;
    if (!opens || !strchr("<[", opens[strspn(opens, " \n")]))
        opens = keep(m, mark_before(s->thought, thought));
    closes = keep(m, close);
    if (!opens || !closes)
        return;
    m->talk.think[0].open = opens;
    m->talk.think[0].close = closes;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

/* A rendered call: before NAME rest KEY tie 7 joint MORE tie 8 after. */
typedef struct call {
    span before, rest, tie, joint, after;
} call;

/* Where the samples that have a call begin to differ from the one with a text. */
static const char *begin_of(const char *rendered, const char *text)
{
    const char *word = strstr(text, RG_PROBE_TEXT);
    size_t n = common_start(rendered, text), most = word ? (size_t)(word - text) : n;

    return rendered + (n < most ? n : most);
}

/* Where they end, without what stands behind a text, too. */
static const char *end_of(const char *rendered, const char *text)
{
    const char *word = last_before(text, text + strlen(text), RG_PROBE_TEXT),
               *tail = word ? word + strlen(RG_PROBE_TEXT) : "";
    size_t n = strlen(rendered), k = strlen(tail);

    return rendered + (k <= n && !memcmp(rendered + n - k, tail, k) ? n - k : n);
}

static bool find_call(const char *from, const char *end, call *c)
{
    static const size_t n_name = sizeof RG_PROBE_NAME - 1, n_key = sizeof RG_PROBE_KEY - 1,
                        n_more = sizeof RG_PROBE_MORE - 1;
    const char *key = strstr(from, RG_PROBE_KEY), *name = key ? last_before(from, key, RG_PROBE_NAME) : NULL;
    const char *seven = key ? strchr(key, '7') : NULL, *more = seven ? strstr(seven, RG_PROBE_MORE) : NULL;
    const char *eight = more ? strchr(more, '8') : NULL;

    if (!name || !eight || eight >= end)
        return false;
    *c = (call){ between(from, name), between(name + n_name, key), between(key + n_key, seven),
                 between(seven + 1, more), between(eight + 1, end) };
    return c->tie.n < MAX_MARK && c->tie.n == (size_t)(eight - more) - n_more;
}

static bool is_json_key(span tie)
{
    size_t i = 1;

    while (i < tie.n && rg_is_blank(tie.s[i]))
        i++;
    return tie.n > 1 && tie.s[0] == '"' && i < tie.n && tie.s[i] == ':';
}

static size_t skip_blanks(span t, size_t at)
{
    while (at < t.n && rg_is_blank(t.s[at]))
        at++;
    return at;
}

static span from_at(span t, size_t at)
{
    return at < t.n ? (span){ t.s + at, t.n - at } : (span){ t.s + t.n, 0 };
}

/* The last byte c; t.n: there is none. */
static size_t last_byte(span t, char c)
{
    for (size_t i = t.n; i-- > 0;)
        if (t.s[i] == c)
            return i;
    return t.n;
}

/* What stands before the bracket of a list of calls, if there is one. */
static span without_bracket(rg_talk_form *f, span t)
{
    while (t.n && rg_is_blank(t.s[t.n - 1]))
        t.n--;
    if (!t.n || t.s[t.n - 1] != '[')
        return t;
    f->list = true;
    f->joint = ", ";
    return (span){ t.s, t.n - 1 };
}

/* {"name": "NAME", "arguments": {...}}, or {"NAME": {...}}, between marks. */
static bool read_object(rg_talk_derived *m, rg_talk_form *f, const call *c)
{
    size_t brace = last_byte(c->before, '{'), args = last_byte(c->rest, '{'), open = brace, at;

    if (brace == c->before.n || args == c->rest.n)
        return false;
    f->item_open = keep(m, from_at(c->before, brace));
    f->sep = keep(m, (span){ c->rest.s, args });
    f->item_close = "}";
    f->way = f->item_open && strchr(f->item_open, ':') ? RG_CALL_OBJECT : RG_CALL_KEYED;
    f->open = keep(m, without_bracket(f, (span){ c->before.s, open }));
    at = skip_blanks(c->after, 0);
    for (int i = 0; i < 2 + f->list; i++) { /* the arguments' bracket, the object's, the list's */
        if (at < c->after.n && strchr("}]", c->after.s[at]))
            at = skip_blanks(c->after, at + 1);
    }
    f->close = keep(m, from_at(c->after, at));
    return f->open && f->sep;
}

/* The arguments between marks: what they begin and end with, and where the call goes on. */
static bool read_arguments(rg_talk_derived *m, rg_talk_form *f, const call *c, size_t *n_after, span *sep)
{
    bool json = is_json_key(c->tie);
    size_t args = json ? last_byte(c->rest, '{') : c->rest.n, at = skip_blanks(c->after, 0), k;

    if (json && (args == c->rest.n || at == c->after.n || c->after.s[at] != '}'))
        return false;
    f->way = json ? RG_CALL_JSON : RG_CALL_TAGS;
    *n_after = at + 1;
    *sep = (span){ c->rest.s, args };
    if (json)
        return true;
    k = common_end(c->rest, c->joint);
    span close = { c->joint.s, c->joint.n - k };
    *n_after = common_mark(close, c->after);
    *sep = (span){ c->rest.s, c->rest.n - k };
    m->tags = (rg_talk_tags){ .key_open = keep(m, from_at(c->rest, c->rest.n - k)),
                              .key_close = keep(m, c->tie),
                              .close = keep(m, close) };
    if (!m->tags.key_open || !m->tags.key_close || !m->tags.close || !*n_after)
        return false;
    m->tags.lines = c->tie.s[c->tie.n - 1] == '\n' && *m->tags.close == '\n';
    f->tags = &m->tags;
    return true;
}

/* What stands around all calls, and around each, follows from two of them. */
static void split(rg_talk_derived *m, rg_talk_form *f, const call *one, const call *two, size_t n_after)
{
    const char *other = two ? strstr(two->after.s, RG_PROBE_OTHER) : NULL,
               *end = other ? two->after.s + two->after.n : NULL;
    const char *nine = other ? strchr(other, '9') : NULL;
    span before = one->before, after = from_at(one->after, n_after);

    f->item_open = keep(m, before);
    f->item_close = keep(m, after);
    if (!nine || nine >= end || two->after.n <= n_after)
        return;
    span middle = between(two->after.s + n_after, other), behind = between(nine + 1 + n_after, end);
    size_t opens = common_end(before, middle), closes = common_mark(middle, behind);
    if (opens + closes > middle.n || opens >= before.n)
        return;
    const char *outer = keep(m, (span){ before.s, before.n - opens });
    if (!outer)
        return;
    f->open = outer;
    f->item_open = opens ? keep(m, from_at(before, before.n - opens)) : "";
    f->item_close = keep(m, (span){ middle.s, closes });
    f->joint = keep(m, (span){ middle.s + closes, middle.n - opens - closes });
    f->joint = f->joint ? f->joint : "";
    f->close = keep(m, from_at(behind, closes));
}

static bool read_call(rg_talk_derived *m, const rg_talk_samples *s)
{
    rg_talk_form *f = &m->talk.forms[0];
    call one, two;
    bool has_two;
    size_t n_after = 0;
    span sep = { 0 };

    if (!s->text || !s->one || !find_call(begin_of(s->one, s->text), end_of(s->one, s->text), &one))
        return false;
    has_two = s->two && find_call(begin_of(s->two, s->text), end_of(s->two, s->text), &two);
    *f = (rg_talk_form){ .way = RG_CALL_OBJECT };
    if (is_json_key(one.tie) && one.before.n && one.before.s[one.before.n - 1] == '"' && one.rest.n &&
        *one.rest.s == '"' && last_byte(one.before, '{') < one.before.n)
        return read_object(m, f, &one);
    if (one.tie.n == 1 && *one.tie.s == '=' && one.rest.n && *one.rest.s == '(') {
        f->way = RG_CALL_PYTHON;
        f->open = keep(m, without_bracket(f, one.before));
        f->item_open = "";
        f->close = keep(m, from_at(one.after, 1 + (size_t)f->list));
        return f->open;
    }
    if (!read_arguments(m, f, &one, &n_after, &sep))
        return false;
    f->sep = keep(m, sep);
    f->sep = f->sep ? f->sep : sep.n ? "\n" : "";
    split(m, f, &one, has_two ? &two : NULL, n_after);
    return f->item_open && (*f->sep || f->tags);
}

rg_talk_derived *rg_talk_make(const rg_talk_samples *s)
{
    rg_talk_derived *m = rg_zalloc(sizeof *m);

    if (!m)
        return NULL;
    m->talk = *rg_talk_named("template");
    m->talk.call_ends_thought = true;
    read_thought(m, s);
    if (!read_call(m, s) || m->full) {
        rg_free(m);
        return NULL;
    }
    return m;
}

void rg_talk_derived_free(rg_talk_derived *m)
{
    rg_free(m);
}

const rg_talk *rg_talk_derived_of(const rg_talk_derived *m)
{
    return &m->talk;
}
