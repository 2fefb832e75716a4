/* string.c -- strings that know where their bytes came from: views of buffers that only grow at their end. */
#define _GNU_SOURCE /* memmem */
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/internal.h"

static bool all_ascii(const char *p, size_t n)
{
    uint64_t word;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&word, p, 8);
        if (word & 0x8080808080808080u)
            return false;
    }
    for (; n; p++, n--)
        if (*p & 0x80)
            return false;
    return true;
}

jj_buf *jj_buf_new(jj_ctx *c, size_t n, size_t more)
{
    size_t room;
    jj_buf *b;

    if (!rg_add(n, more, &room))
        return jj_over_bytes(c), NULL;
    b = jj_alloc_tail(c, sizeof *b, room, 1);
    if (!b)
        return NULL;
    *b = (jj_buf){ .data = (char *)(b + 1), .room = room, .ascii = true, .one.trusted = true, .runs_room = 1 };
    b->run = &b->one;
    return b;
}

static bool grow(jj_ctx *c, jj_buf *b, size_t n)
{
    size_t room;

    if (!rg_add(b->used, n, &room))
        return jj_over_bytes(c);
    if (room <= b->room)
        return true;
    if (!rg_add(room, room / 2 + 32, &room))
        return jj_over_bytes(c);
    char *data = jj_alloc(c, room);
    if (!data)
        return false;
    if (b->used)
        memcpy(data, b->data, b->used);
    b->data = data;
    b->room = room;
    return true;
}

static bool add_run(jj_ctx *c, jj_buf *b, bool trusted)
{
    if (b->n_runs && b->run[b->n_runs - 1].trusted == trusted) {
        b->run[b->n_runs - 1].end = b->used;
        return true;
    }
    if (b->n_runs == b->runs_room) {
        uint32_t room = b->runs_room < 4 ? 8 : 2 * b->runs_room;
        rg_run *run = jj_alloc_tail(c, 0, room, sizeof *run);
        if (!run)
            return false;
        memcpy(run, b->run, b->n_runs * sizeof *run);
        b->run = run;
        b->runs_room = room;
    }
    b->run[b->n_runs++] = (rg_run){ b->used, trusted };
    return true;
}

/* ascii: known to hold nothing else. */
static bool put(jj_ctx *c, jj_buf *b, const char *p, size_t n, bool trusted, bool ascii)
{
    if (!n)
        return true;
    if (n > b->room - b->used && !grow(c, b, n))
        return false;
    memcpy(b->data + b->used, p, n);
    if (b->ascii && !ascii)
        b->ascii = all_ascii(p, n);
    b->used += n;
    return add_run(c, b, trusted);
}

bool jj_put_bytes(jj_ctx *c, jj_buf *b, const char *p, size_t n, bool trusted)
{
    return put(c, b, p, n, trusted, false);
}

bool jj_put_text(jj_ctx *c, jj_buf *b, const char *s, bool trusted)
{
    return jj_put_bytes(c, b, s, strlen(s), trusted);
}

bool jj_put_code(jj_ctx *c, jj_buf *b, uint32_t code, bool trusted)
{
    char out[4];

    if (code < 0x80 && b->used < b->room && b->n_runs && b->run[b->n_runs - 1].trusted == trusted) {
        b->data[b->used++] = (char)code;
        b->run[b->n_runs - 1].end = b->used;
        return true;
    }
    return put(c, b, out, (size_t)rg_utf8_encode(code, out), trusted, code < 0x80);
}

bool jj_put_times(jj_ctx *c, jj_buf *b, const jj_str *s, size_t n)
{
    size_t from = b->used, total, k;

    if (!rg_mul(n, s->n, &total) || total > RG_JINJA_BYTES)
        return jj_over_bytes(c);
    if (!total)
        return true;
    if (!grow(c, b, total) || !jj_put_str(c, b, s))
        return false;
    if (jj_str_uniform(s)) { /* of one provenance: what is there doubles */
        for (size_t have = s->n; have < total; have += k) {
            k = have < total - have ? have : total - have;
            memcpy(b->data + from + have, b->data + from, k);
        }
        b->used = b->run[b->n_runs - 1].end = from + total;
        return true;
    }
    if (!jj_charge_times(c, n, 16))
        return false;
    while (--n)
        if (!jj_put_str(c, b, s))
            return false;
    return true;
}

bool jj_put_fill(jj_ctx *c, jj_buf *b, const jj_str *fill, size_t n)
{
    static const char blanks[] = "                                                                ";

    if (!jj_charge(c, n))
        return false;
    if (fill)
        return jj_put_times(c, b, fill, n);
    if (!grow(c, b, n))
        return false;
    for (size_t k; n; n -= k) {
        k = n < sizeof blanks - 1 ? n : sizeof blanks - 1;
        if (!put(c, b, blanks, k, true, true))
            return false;
    }
    return true;
}

/* The run of b that byte `at` is in. */
static size_t run_of(const jj_buf *b, size_t at)
{
    size_t lo = 0, hi = b->n_runs;

    while (lo + 1 < hi) {
        size_t mid = (lo + hi) / 2;
        if (b->run[mid - 1].end <= at)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

bool jj_next_run(const jj_str *s, size_t *at, size_t *n, bool *trusted)
{
    if (*at >= s->n)
        return false;
    const rg_run *r = &s->b->run[run_of(s->b, s->off + *at)];
    size_t left = r->end - s->off - *at;
    *n = left < s->n - *at ? left : s->n - *at;
    *trusted = r->trusted;
    return true;
}

bool jj_put_sub(jj_ctx *c, jj_buf *b, const jj_str *s, size_t off, size_t n)
{
    jj_str part = { s->b, s->off + off, n, SIZE_MAX };
    bool trusted, ascii = jj_str_ascii(s);
    size_t k;

    if (s->b->n_runs <= 1)
        return put(c, b, jj_data(&part), n, s->b->run->trusted, ascii);
    if (!grow(c, b, n))
        return false;
    for (size_t at = 0; jj_next_run(&part, &at, &k, &trusted); at += k)
        if (!put(c, b, jj_data(&part) + at, k, trusted, ascii))
            return false;
    return true;
}

bool jj_put_str(jj_ctx *c, jj_buf *b, const jj_str *s)
{
    return jj_put_sub(c, b, s, 0, s->n);
}

static jj_str *view(jj_ctx *c, jj_buf *b, size_t off, size_t n)
{
    jj_str *s = jj_alloc(c, sizeof *s);

    if (s)
        *s = (jj_str){ b, off, n, b->ascii ? n : SIZE_MAX };
    return s;
}

jj_str *jj_str_from(jj_ctx *c, jj_buf *b)
{
    return view(c, b, 0, b->used);
}

jj_str *jj_str_borrow(jj_ctx *c, const char *p, size_t n, bool trusted)
{
    jj_buf *b = jj_alloc(c, sizeof *b);

    if (!b)
        return NULL;
    *b = (jj_buf){ .data = (char *)p, .used = n, .room = n, .n_runs = 1, .runs_room = 1, .one = { n, trusted } };
    b->run = &b->one;
    b->ascii = all_ascii(p, n);
    return view(c, b, 0, n);
}

jj_str *jj_str_copy(jj_ctx *c, const char *p, size_t n, bool trusted)
{
    char *data = jj_alloc(c, n);

    if (!data)
        return NULL;
    if (n)
        memcpy(data, p, n);
    return jj_str_borrow(c, data, n, trusted);
}

jj_str *jj_str_sub(jj_ctx *c, const jj_str *s, size_t off, size_t n)
{
    jj_str *sub = view(c, s->b, s->off + off, n);

    if (sub && s->points == s->n)
        sub->points = n;
    return sub;
}

jj_str *jj_str_concat(jj_ctx *c, const jj_str *x, const jj_str *y)
{
    bool at_end = x->off + x->n == x->b->used;
    size_t total;

    if (at_end && x->b->room - x->b->used >= y->n && x->b->room > x->b->used && y->b != x->b) {
        if (!jj_put_str(c, x->b, y))
            return NULL;
        return view(c, x->b, x->off, x->n + y->n);
    }
    if (!rg_add(x->n, y->n, &total))
        return jj_over_bytes(c), NULL;
    /* The longer the left side already was, the likelier it grows on. */
    jj_buf *b = jj_buf_new(c, total, x->n > 64 && at_end ? total / 2 : 0);
    if (!b || !jj_put_str(c, b, x) || !jj_put_str(c, b, y))
        return NULL;
    return jj_str_from(c, b);
}

bool jj_str_is(const jj_str *s, const char *text)
{
    return s->n == strlen(text) && !memcmp(jj_data(s), text, s->n);
}

bool jj_str_equal(const jj_str *a, const jj_str *b)
{
    return a->n == b->n && (!a->n || !memcmp(jj_data(a), jj_data(b), a->n));
}

bool jj_str_uniform(const jj_str *s)
{
    return s->b->n_runs <= 1 || s->b->run[run_of(s->b, s->off)].end >= s->off + s->n;
}

bool jj_str_trust_at(const jj_str *s, size_t at)
{
    return s->b->n_runs == 0 || s->b->run[run_of(s->b, s->off + at)].trusted;
}

bool jj_str_trusted(const jj_str *s)
{
    return jj_str_trust_at(s, 0) && jj_str_uniform(s);
}

static size_t count_points(const char *p, size_t n)
{
    size_t points = n;
    uint64_t word;

    for (; n >= 8; p += 8, n -= 8) { /* all but the bytes 10xxxxxx */
        memcpy(&word, p, 8);
        points -= (size_t)__builtin_popcountll(word >> 7 & ~word >> 6 & 0x0101010101010101u);
    }
    for (; n; p++, n--)
        points -= ((unsigned char)*p & 0xc0) == 0x80;
    return points;
}

bool jj_str_ascii(const jj_str *s)
{
    return s->b->ascii || s->points == s->n;
}

size_t jj_str_char(const jj_str *s, size_t at, uint32_t *code)
{
    int n = rg_utf8_decode(jj_data(s) + at, s->n - at, code);

    return n > 0 ? (size_t)n : 1;
}

/* The stretch of s up to `to` was plain, and what follows is spelled so. */
static bool put_spelling(jj_ctx *c, jj_buf *b, const jj_str *s, size_t from, size_t to, const char *text, size_t n)
{
    return jj_charge(c, 160) && jj_put_sub(c, b, s, from, to - from) &&
           jj_put_bytes(c, b, text, n, jj_str_trust_at(s, to));
}

bool jj_put_spelled(jj_ctx *c, jj_buf *b, const jj_str *s, char quote, jj_spell *spell, int how)
{
    bool trusted = jj_str_trusted(s);
    size_t from = 0, n;
    uint32_t code;
    char out[16];

    if (!jj_charge_times(c, s->n, 4) || !put(c, b, &quote, 1, trusted, true))
        return false;
    for (size_t i = 0; i < s->n; i += n) {
        unsigned char ch = (unsigned char)jj_data(s)[i];
        n = 1;
        if (ch >= ' ' && ch < 127 && ch != '"' && ch != '\'' && ch != '\\')
            continue;
        n = jj_str_char(s, i, &code);
        int k = jj_charge(c, 8) ? spell(code, how, out) : -1;
        if (k < 0 || (k && !put_spelling(c, b, s, from, i, out, (size_t)k)))
            return false;
        from = k ? i + n : from;
    }
    return jj_put_sub(c, b, s, from, s->n - from) && put(c, b, &quote, 1, trusted, true);
}

size_t jj_str_points(const jj_str *s)
{
    if (jj_str_ascii(s))
        return s->n;
    return s->points != SIZE_MAX ? s->points : count_points(jj_data(s), s->n);
}

/* Note where every JJ_MARK-th code point of b begins. */
static bool make_marks(jj_ctx *c, jj_buf *b)
{
    size_t points = 0;
    jj_marks *m = jj_alloc_tail(c, sizeof *m + sizeof *m->at, b->used / JJ_MARK, sizeof *m->at);

    if (!m || !jj_charge(c, b->used))
        return false;
    *m = (jj_marks){ .bytes = b->used };
    for (size_t i = 0; i < b->used; i++)
        if (((unsigned char)b->data[i] & 0xc0) != 0x80 && points++ % JJ_MARK == 0)
            m->at[m->n++] = i;
    b->marks = m;
    return true;
}

/* Byte of the i-th code point at or after byte `from`. */
static size_t skip_points(const char *p, size_t from, size_t n, size_t i)
{
    while (from < n && i) {
        from++;
        while (from < n && ((unsigned char)p[from] & 0xc0) == 0x80)
            from++;
        i--;
    }
    return from;
}

bool jj_str_offset(jj_ctx *c, const jj_str *s, size_t i, size_t *off)
{
    jj_buf *b = s->b;
    size_t end = s->off + s->n;

    if (jj_str_ascii(s) || !i) {
        *off = i;
        return true;
    }
    if (i <= JJ_MARK || s->n <= 4 * JJ_MARK) {
        *off = skip_points(b->data, s->off, end, i) - s->off;
        return jj_charge(c, i / 8);
    }
    if (b->shared) {
        *off = skip_points(b->data, s->off, end, i) - s->off;
        return jj_charge(c, i);
    }
    if ((!b->marks || b->marks->bytes < end) && !make_marks(c, b))
        return false;
    const jj_marks *m = b->marks;
    size_t lo = 0, hi = m->n; /* the last mark at or before s->off */
    while (lo + 1 < hi) {
        size_t mid = (lo + hi) / 2;
        if (m->at[mid] <= s->off)
            lo = mid;
        else
            hi = mid;
    }
    size_t point = lo * JJ_MARK + count_points(b->data + m->at[lo], s->off - m->at[lo]) + i;
    size_t mark = point / JJ_MARK < m->n ? point / JJ_MARK : m->n - 1;
    *off = skip_points(b->data, m->at[mark], end, point - mark * JJ_MARK) - s->off;
    return jj_charge(c, 2 * JJ_MARK); /* half of so many to skip, and the search */
}

bool jj_charge_find(jj_ctx *c, size_t n, size_t n_what)
{
    return jj_charge_times(c, n, n_what <= 32 ? 2 : 24);
}

size_t jj_str_find(const jj_str *s, size_t from, const char *what, size_t n)
{
    if (from > s->n)
        return SIZE_MAX;
    if (!n)
        return from;
    const char *p = memmem(jj_data(s) + from, s->n - from, what, n);
    return p ? (size_t)(p - jj_data(s)) : SIZE_MAX;
}

size_t jj_str_rfind(const jj_str *s, size_t before, const char *what, size_t n)
{
    const char *p = jj_data(s);

    for (size_t i = before >= n ? before - n + 1 : 0; i-- > 0;)
        if (!n || (p[i] == what[0] && p[i + n - 1] == what[n - 1] && !memcmp(p + i, what, n)))
            return i;
    return SIZE_MAX;
}

jj_walk jj_walk_start(const jj_str *s)
{
    return (jj_walk){ .s = s, .run = s->n ? run_of(s->b, s->off) : 0 };
}

/* As jj_walk_next, of any character, and where a run may begin. */
bool jj_walk_on(jj_walk *w)
{
    const jj_str *s = w->s;
    const rg_run *run = s->b->run;

    if (w->at >= s->n)
        return false;
    w->n = rg_utf8_decode(jj_data(s) + w->at, s->n - w->at, &w->code);
    if (w->n <= 0) { /* never: every string is made of whole characters */
        w->n = 1;
        w->code = 0xfffd;
    }
    while (run[w->run].end <= s->off + w->at)
        w->run++;
    w->trusted = run[w->run].trusted;
    w->same = run[w->run].end - s->off;
    return true;
}
