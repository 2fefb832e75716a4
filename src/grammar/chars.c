/* chars.c -- see chars.h. */
#include "grammar/chars.h"

#include <stdlib.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { LAST = 0x10ffff, MOST_RANGES = 1 << 16 };

void rg_chars_fini(rg_chars *c)
{
    rg_free(c->range);
    *c = (rg_chars){ 0 };
}

void rg_chars_add(rg_form *f, rg_chars *c, uint32_t from, uint32_t to)
{
    if (f->failed || from > to || from > LAST)
        return;
    if (c->n == c->room) {
        uint32_t room = c->room ? 2 * c->room : 16;
        rg_range *range = room <= MOST_RANGES ? rg_resize_array(c->range, room, sizeof *range) : NULL;
        if (!range) {
            rg_form_fail(f, room <= MOST_RANGES ? RG_E_MEMORY : RG_E_LIMIT, "a set of more than %u ranges", c->room);
            return;
        }
        c->range = range;
        c->room = room;
    }
    c->range[c->n++] = (rg_range){ from, to > LAST ? LAST : to };
}

static int by_from(const void *a, const void *b)
{
    const rg_range *x = a, *y = b;

    return (x->from > y->from) - (x->from < y->from);
}

static void sort(rg_chars *c)
{
    uint32_t n = 0;

    if (!c->n)
        return;
    qsort(c->range, c->n, sizeof *c->range, by_from);
    for (uint32_t i = 1; i < c->n; i++) {
        rg_range *last = &c->range[n], r = c->range[i];
        if (r.from <= last->to + 1)
            last->to = r.to > last->to ? r.to : last->to;
        else
            c->range[++n] = r;
    }
    c->n = n + 1;
}

void rg_chars_invert(rg_form *f, rg_chars *c)
{
    rg_chars out = { 0 };
    uint32_t next = 0;

    sort(c);
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->range[i].from > next)
            rg_chars_add(f, &out, next, c->range[i].from - 1);
        next = c->range[i].to + 1;
    }
    rg_chars_add(f, &out, next, LAST);
    rg_chars_fini(c);
    *c = out;
}

static const rg_range digits[] = { { '0', '9' } };
static const rg_range word[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
static const rg_range space[] = { { 9, 13 }, { ' ', ' ' }, { 0xa0, 0xa0 }, { 0x1680, 0x1680 }, { 0x2000, 0x200a },
                                  { 0x2028, 0x2029 }, { 0x202f, 0x202f }, { 0x205f, 0x205f }, { 0x3000, 0x3000 },
                                  { 0xfeff, 0xfeff } };

bool rg_chars_class(rg_form *f, rg_chars *c, uint32_t letter)
{
    bool not = letter < 'a';
    rg_chars one = { 0 };
    const rg_range *r;
    size_t n;

    switch (letter | 32) {
    case 'd': r = digits, n = RG_LEN(digits); break;
    case 'w': r = word, n = RG_LEN(word); break;
    case 's': r = space, n = RG_LEN(space); break;
    default: return false;
    }
    for (size_t i = 0; i < n; i++)
        rg_chars_add(f, &one, r[i].from, r[i].to);
    if (not)
        rg_chars_invert(f, &one);
    for (uint32_t i = 0; i < one.n; i++)
        rg_chars_add(f, c, one.range[i].from, one.range[i].to);
    rg_chars_fini(&one);
    return true;
}

/* ---- into bytes -------------------------------------------------------------------------------------------------- */

/* Characters of one length whose bytes are each any of a range. */
typedef struct row {
    unsigned char from[4], to[4];
    int n;
} row;

typedef struct rows {
    row *row;
    uint32_t n, room;
} rows;

static void add_row(rg_form *f, rows *r, uint32_t from, uint32_t to)
{
    row *one;

    if (r->n == r->room) {
        uint32_t room = r->room ? 2 * r->room : 32;
        row *p = rg_resize_array(r->row, room, sizeof *p);
        if (!p) {
            rg_form_fail(f, RG_E_MEMORY, "out of memory for a set of characters");
            return;
        }
        r->row = p;
        r->room = room;
    }
    one = &r->row[r->n++];
    one->n = rg_utf8_encode(from, (char *)one->from);
    rg_utf8_encode(to, (char *)one->to);
}

/* Cut [from, to] into pieces.  In each piece the first bytes are fixed, one byte has a range, and the bytes after it
 * have their full range. */
static void add_range(rg_form *f, rows *r, uint32_t from, uint32_t to)
{
    static const uint32_t ends[] = { 0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, LAST };

    while (from <= to && !f->failed) {
        uint32_t end = to;
        for (size_t i = 0; i < RG_LEN(ends); i++)
            if (from <= ends[i]) {
                end = end < ends[i] ? end : ends[i];
                break;
            }
        for (uint32_t low = 63; from >= 0x80 && low < 1 << 18; low = low << 6 | 63) {
            if ((from & ~low) == (end & ~low))
                break; /* they differ in the bytes below alone */
            if (from & low) { /* up to where those begin anew */
                end = from | low;
                break;
            }
            if ((end & low) != low) { /* down to where they were complete */
                end = (end & ~low) - 1;
            }
        }
        if (from < 0xd800 || from > 0xdfff)
            add_row(f, r, from, end);
        from = end + 1;
    }
}

/* The rows [0, n), which agree on their bytes before `at`. */
static uint32_t rows_node(rg_form *f, const row *r, uint32_t n, int at)
{
    rg_list l = { 0 };
    uint32_t made;

    for (uint32_t i = 0; i < n && !f->failed;) {
        uint32_t k = i + 1;
        rg_set set = { 0 };

        rg_set_add(&set, r[i].from[at], r[i].to[at]);
        if (r[i].n == at + 1) {
            for (; k < n && r[k].n == at + 1; k++) /* all the last bytes are one set */
                rg_set_add(&set, r[k].from[at], r[k].to[at]);
            rg_list_add(f, &l, rg_form_set(f, &set));
        } else {
            while (k < n && r[k].n == r[i].n && r[k].from[at] == r[i].from[at] && r[k].to[at] == r[i].to[at])
                k++;
            rg_list_add(f, &l, RG_SEQ(f, rg_form_set(f, &set), rows_node(f, r + i, k - i, at + 1)));
        }
        i = k;
    }
    made = rg_form_alt(f, l.id, l.n);
    rg_list_fini(&l);
    return made;
}

static uint32_t utf8_node(rg_form *f, const rg_chars *c)
{
    rows r = { 0 };
    uint32_t made;

    for (uint32_t i = 0; i < c->n; i++)
        add_range(f, &r, c->range[i].from, c->range[i].to);
    made = f->failed ? RG_NEVER : rows_node(f, r.row, r.n, 0);
    rg_free(r.row);
    return made;
}

static size_t escape(uint32_t code, char out[7])
{
    static const char hex[] = "0123456789abcdef", from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    const char *p = code && code < 0x80 ? strchr(from, (int)code) : NULL;

    if (p) {
        out[0] = '\\';
        out[1] = to[p - from];
        return 2;
    }
    if (code >= 0x20)
        return (size_t)rg_utf8_encode(code, out);
    memcpy(out, "\\u00", 4);
    out[4] = hex[code >> 4];
    out[5] = hex[code & 15];
    return 6;
}

bool rg_chars_quote(rg_buf *b, const char *s, size_t n)
{
    bool ok = rg_buf_add(b, "\"", 1);

    for (size_t i = 0; ok && i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        char out[7];
        if (c >= 0x80)
            ok = rg_buf_add(b, s + i, 1);
        else
            ok = rg_buf_add(b, out, escape(c, out));
    }
    return ok && rg_buf_add(b, "\"", 1);
}

static bool must_escape(uint32_t code)
{
    return code < 0x20 || code == '"' || code == '\\';
}

static uint32_t json_node(rg_form *f, const rg_chars *c)
{
    rg_chars plain = { 0 };
    rg_literal words[34];
    char text[34][7];
    uint32_t n = 0, made;

    for (uint32_t i = 0; i < c->n; i++) {
        rg_range r = c->range[i];
        for (; r.from <= r.to && r.from <= '\\'; r.from++) {
            if (!must_escape(r.from)) {
                rg_chars_add(f, &plain, r.from, r.from);
            } else {
                words[n] = (rg_literal){ text[n], escape(r.from, text[n]) };
                n++;
            }
        }
        rg_chars_add(f, &plain, r.from, r.to);
    }
    sort(&plain);
    made = utf8_node(f, &plain);
    if (n)
        made = RG_ALT(f, made, rg_form_words(f, words, n));
    rg_chars_fini(&plain);
    return made;
}

uint32_t rg_chars_node(rg_form *f, rg_chars *c, rg_writing how)
{
    sort(c);
    if (f->failed)
        return RG_NEVER;
    if (c->n == 1 && c->range[0].from == c->range[0].to)
        return rg_chars_text(f, &c->range[0].from, 1, how);
    return how == RG_WRITE_UTF8 ? utf8_node(f, c) : json_node(f, c);
}

uint32_t rg_chars_text(rg_form *f, const uint32_t *code, uint32_t n, rg_writing how)
{
    rg_list l = { 0 };
    uint32_t made;

    for (uint32_t i = 0; i < n; i++) {
        char out[7];
        size_t bytes = how == RG_WRITE_JSON ? escape(code[i], out) : (size_t)rg_utf8_encode(code[i], out);
        bool surrogate = code[i] >= 0xd800 && code[i] <= 0xdfff;

        rg_list_add(f, &l, surrogate || code[i] > LAST ? RG_NEVER : rg_form_lit(f, out, bytes));
    }
    made = rg_form_seq(f, l.id, l.n);
    rg_list_fini(&l);
    return made;
}

uint32_t rg_chars_any(rg_form *f, rg_writing how)
{
    rg_chars c = { 0 };
    uint32_t made;

    rg_chars_add(f, &c, 0, LAST);
    made = rg_chars_node(f, &c, how);
    rg_chars_fini(&c);
    if (!f->failed && how == RG_WRITE_JSON)
        f->node[made].any_char = true;
    return made;
}

/* A set from a text of pairs "azAZ09". */
static uint32_t pairs(rg_form *f, const char *s)
{
    rg_set set = { 0 };

    for (; *s; s += 2)
        rg_set_add(&set, (unsigned char)s[0], (unsigned char)s[1]);
    return rg_form_set(f, &set);
}

uint32_t rg_chars_string_char(rg_form *f)
{
    rg_chars plain = { 0 };
    uint32_t hex = pairs(f, "09afAF"), hex2 = RG_SEQ(f, hex, hex), surrogate, code, escaped, made;

    rg_chars_add(f, &plain, ' ', '!');
    rg_chars_add(f, &plain, '#', '[');
    rg_chars_add(f, &plain, ']', LAST);
    surrogate = RG_SEQ(f, pairs(f, "ddDD"), pairs(f, "89abAB"), hex2, rg_form_str(f, "\\u"), pairs(f, "ddDD"),
                       pairs(f, "cfCF"), hex2);
    code = RG_ALT(f, RG_SEQ(f, pairs(f, "09acefACEF"), hex, hex2), RG_SEQ(f, pairs(f, "ddDD"), pairs(f, "07"), hex2),
                  surrogate);
    escaped = RG_ALT(f, pairs(f, "\"\"\\\\//bbffnnrrtt"), RG_SEQ(f, rg_form_str(f, "u"), code));
    made = RG_ALT(f, rg_chars_node(f, &plain, RG_WRITE_UTF8), RG_SEQ(f, rg_form_str(f, "\\"), escaped));
    if (!f->failed)
        f->node[made].any_char = true;
    rg_chars_fini(&plain);
    return made;
}
