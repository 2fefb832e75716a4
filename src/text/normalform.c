/* normalform.c -- see normalform.h.  The text as code points, each with the place that it came from and its marks:
 * decomposed, its marks put in order, and composed again.  Tables are utf8proc's. */
#include "text/normalform.h"

#include <string.h>

#include <utf8proc.h>

#include "base/mem.h"
#include "text/charclass.h"
#include "text/clean.h"
#include "text/regex.h"

enum {
    MOST = 32,  /* no character decomposes into more than 18 */
    KNOWN = 64, /* characters that are remembered: a text has few different ones */
    FEW = 4,    /* of what they become */
    SHORT = 3, /* of those, whose text is remembered too */
    STILL = 256,
};

typedef struct unit {
    int32_t code;
    uint32_t from; /* of its first byte in the passage */
    uint8_t class, marks;
} unit;

typedef struct units {
    bool compose, compat;
    unit *u;
    size_t n, room;
    struct known {
        int32_t code; /* 0: none yet */
        int n;
        int32_t codes[FEW];
        uint8_t class[FEW];
        bool open;      /* it ends in a mark, and marks that follow may be put before that */
        uint8_t n_text; /* of what it becomes, if nothing else around can change that; or 0 */
        char text[4 * SHORT];
    } known[KNOWN];
    struct still {
        int32_t code; /* 0: none yet */
        bool is;
    } still[STILL];
    struct {
        int32_t a, b, both;
    } pair[KNOWN];
} units;

static bool units_room(units *s, size_t more, rg_error *err)
{
    size_t room = s->room ? s->room : 256;
    unit *u;

    if (s->room - s->n >= more)
        return true;
    while (room - s->n < more)
        room *= 2;
    u = rg_resize_array(s->u, room, sizeof *u);
    if (!u)
        return rg_fail_memory(err, room * sizeof *u);
    s->u = u;
    s->room = room;
    return true;
}

/* What the character at s decomposes into; how many, or -1. */
static int decomposed(const char *s, int length, bool compat, int32_t codes[MOST])
{
    utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0);
    utf8proc_ssize_t got = 1;
    int boundary = 0;

    codes[0] = (int32_t)rg_utf8_code(s, length);
    /* The published libraries' tables do not have the last of these yet. */
    if (codes[0] >= 0x80 && codes[0] != 0x1F16C && rg_clean_stray(s, length) < 0)
        got = utf8proc_decompose_char(codes[0], codes, MOST, options, &boundary);
    return got < 0 || got > MOST ? -1 : (int)got;
}

/* The text of a character's few parts, if the first is no mark, all are in order and nothing will be composed. */
static void spell(const units *s, struct known *k)
{
    bool settled = !s->compose && k->n && k->n <= SHORT && !k->class[0];
    size_t n = 0;

    for (int i = 0; settled && i < k->n; i++) {
        settled = !i || !k->class[i] || k->class[i - 1] <= k->class[i];
        n += (size_t)rg_utf8_encode((uint32_t)k->codes[i], k->text + n);
    }
    k->n_text = settled ? (uint8_t)n : 0;
    k->open = settled && k->class[k->n - 1];
}

/* What the character before p[next] becomes whatever else there is; NULL: that depends, or is not known. */
static const struct known *settled(const units *s, const rg_passage *p, size_t next, size_t end, int32_t code)
{
    const struct known *k = &s->known[code % KNOWN], *after;
    int length;

    if (k->code != code || !k->n_text)
        return NULL;
    if (!k->open || next == end) /* what comes after the part is no mark */
        return k;
    code = (int32_t)rg_clean_char(p->text + next, &length);
    after = &s->known[code % KNOWN];
    return after->code == code && after->n && !after->class[0] ? k : NULL;
}

/* Append what a character becomes, and remember it if that is little. */
static bool add_decomposed(units *s, const rg_passage *p, size_t at, int length, rg_error *err)
{
    int32_t codes[MOST], code = (int32_t)rg_utf8_code(p->text + at, length);
    struct known *known = &s->known[code % KNOWN];
    int got = decomposed(p->text + at, length, s->compat, codes);

    if (got < 0)
        return rg_fail(err, RG_E_INPUT, "a character cannot be normalised");
    if (!units_room(s, (size_t)got, err))
        return false;
    *known = (struct known){ .code = got <= FEW ? code : 0, .n = got };
    for (int k = 0; k < got; k++) {
        int class = codes[k] < 0x300 ? 0 : rg_combining_class((uint32_t)codes[k]);
        s->u[s->n++] = (unit){ codes[k], (uint32_t)at, (uint8_t)class, 0 };
        if (k < FEW) {
            known->codes[k] = codes[k];
            known->class[k] = (uint8_t)class;
        }
    }
    spell(s, known);
    return true;
}

static bool decompose(units *s, const rg_passage *p, rg_extent part, rg_error *err)
{
    for (size_t i = part.from; i < part.to;) {
        int length;
        int32_t code = (int32_t)rg_clean_char(p->text + i, &length);
        const struct known *known = &s->known[code % KNOWN];
        size_t from = s->n;

        if (known->code != code || !code) {
            if (!add_decomposed(s, p, i, length, err))
                return false;
        } else {
            if (!units_room(s, FEW, err))
                return false;
            for (int k = 0; k < known->n; k++)
                s->u[s->n++] = (unit){ known->codes[k], (uint32_t)i, known->class[k], 0 };
        }
        for (int k = 0; p->marks && k < length; k++)
            for (size_t u = from; u < s->n; u++)
                s->u[u].marks |= (uint8_t)p->marks[i + (size_t)k];
        i += (size_t)length;
    }
    return true;
}

/* Marks in a run are put in order of their class, those of one class staying as they are.  By counting: a run may be a
 * megabyte long.  The places that they came from stay in the order of the text, as in the published library. */
static void order_run(unit *u, unit *spare, size_t n)
{
    size_t start[257] = { 0 };

    for (size_t i = 0; i < n; i++)
        start[u[i].class + 1]++;
    for (int k = 0; k < 256; k++)
        start[k + 1] += start[k];
    for (size_t i = 0; i < n; i++) {
        unit *to = &spare[start[u[i].class]++];
        *to = u[i];
        to->from = u[to - spare].from;
    }
    memcpy(u, spare, n * sizeof *u);
}

static bool order_marks(units *s, rg_error *err)
{
    for (size_t i = 0; i < s->n;) {
        size_t from = i;
        bool sorted = true;
        while (i < s->n && s->u[i].class) {
            sorted &= i == from || s->u[i - 1].class <= s->u[i].class;
            i++;
        }
        if (!sorted) {
            if (!units_room(s, i - from, err))
                return false;
            order_run(s->u + from, s->u + s->n, i - from);
        }
        i += i == from;
    }
    return true;
}

/* What a and b, side by side, become together; 0: nothing. */
static int32_t compose(int32_t a, int32_t b)
{
    int32_t two[2] = { a, b };
    bool hangul = (a >= 0x1100 && a < 0x1113) || (a >= 0xAC00 && a < 0xD7A4);

    if (b == 0x11A7) /* the place before the first of the last letters: the tables take it for one that adds nothing */
        return 0;
    if (!hangul && utf8proc_get_property(a)->comb_index == UINT16_MAX)
        return 0;
    if (!hangul && utf8proc_get_property(b)->comb_index == UINT16_MAX)
        return 0;
    return utf8proc_normalize_utf32(two, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE) == 1 ? two[0] : 0;
}

static int32_t composed(units *s, int32_t a, int32_t b)
{
    size_t at = ((size_t)a * 31 + (size_t)b) % KNOWN;

    if (s->pair[at].a != a || s->pair[at].b != b) {
        s->pair[at].a = a;
        s->pair[at].b = b;
        s->pair[at].both = compose(a, b);
    }
    return s->pair[at].both;
}

/* A mark joins the last starter unless one of its own class or a higher stands between. */
static void compose_all(units *s)
{
    size_t n = 0, starter = SIZE_MAX;
    int last = -1; /* class of what stands between the starter and here; -1: nothing */

    for (size_t i = 0; i < s->n; i++) {
        unit u = s->u[i];
        int32_t both = 0;

        if (starter != SIZE_MAX && u.code >= 0x80 && (last < 0 || (u.class && last < u.class)))
            both = composed(s, s->u[starter].code, u.code);
        if (both) {
            s->u[starter].code = both;
            s->u[starter].marks |= u.marks;
            continue;
        }
        if (!u.class) {
            starter = n;
            last = -1;
        } else {
            last = u.class;
        }
        s->u[n++] = u;
    }
    s->n = n;
}

/* Write what the units become. */
static bool put_units(units *s, const rg_passage *p, rg_draft *out, rg_error *err)
{
    if (!order_marks(s, err))
        return false;
    if (s->compose)
        compose_all(s);
    for (size_t i = 0; i < s->n; i++) {
        char utf8[4];
        rg_draft_put(out, utf8, (size_t)rg_utf8_encode((uint32_t)s->u[i].code, utf8), s->u[i].from,
                     s->u[i].marks & RG_FOREIGN);
    }
    return rg_draft_ok(out) || rg_fail_memory(err, p->n);
}

static bool normal_part(units *s, const rg_passage *p, rg_extent part, rg_draft *out, rg_error *err)
{
    size_t from = part.from, next;

    s->n = 0;
    for (size_t i = part.from; i < part.to && !s->compose && !p->marks; i = next) {
        int length;
        int32_t code = (int32_t)rg_clean_char(p->text + i, &length);
        const struct known *k;

        next = i + (size_t)length;
        k = settled(s, p, next, part.to, code);
        if (k && from < i) {
            if (!decompose(s, p, (rg_extent){ from, i }, err) || !put_units(s, p, out, err))
                return false;
            s->n = 0;
            from = i;
            k = settled(s, p, next, part.to, code); /* others may be remembered now */
        }
        if (!k)
            continue;
        rg_draft_put(out, k->text, k->n_text, i, false);
        from = next;
    }
    return decompose(s, p, (rg_extent){ from, part.to }, err) && put_units(s, p, out, err);
}

/* True if a character may change or join the character before it: marks (vowel signs are marks), and the letters of
 * Hangul and Kirat Rai that can be the second of a composed pair. */
static bool joins_left(int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);

    return k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME ||
           (c >= 0x1160 && c < 0x1200) || (c >= 0x16D63 && c < 0x16D6B);
}

/* Sets *is: true if a character stays as it is, and does not join the one before it.  False: no memory. */
static bool find_still(units *s, const rg_passage *p, rg_extent one, bool *is, rg_error *err)
{
    int32_t code = (int32_t)rg_utf8_code(p->text + one.from, (int)(one.to - one.from));

    s->n = 0;
    if (!decompose(s, p, one, err))
        return false;
    *is = s->n && !joins_left(s->u[0].code);
    if (*is && s->compose)
        compose_all(s);
    *is = *is && s->n == 1 && s->u[0].code == code;
    return true;
}

/* A run of characters that stay as they are, or of the others, from *at on: moves that to its end, and *last to where
 * its last character starts. */
static bool skip_run(units *s, const rg_passage *p, bool still, size_t *at, size_t *last, rg_error *err)
{
    while (*at < p->n) {
        int length;
        int32_t code = (int32_t)rg_clean_char(p->text + *at, &length);
        struct still *known = &s->still[code % STILL];
        if (length > 1 && known->code != code) {
            if (!find_still(s, p, (rg_extent){ *at, *at + (size_t)length }, &known->is, err))
                return false;
            known->code = code;
        }
        if ((length == 1 || known->is) != still)
            break;
        *last = *at;
        *at += (size_t)length;
    }
    return true;
}

/* Most characters stay as they are, and do not join the one before.  So each run of other characters is normalised
 * separately, together with the one character before it, which its first marks may join. */
bool rg_normal_form(const rg_passage *p, bool compose, bool compat, rg_draft *out, rg_error *err)
{
    units s = { .compose = compose, .compat = compat };
    bool ok = true;

    for (size_t i = 0; ok && i < p->n;) {
        size_t still = i, from = i, end, last;

        ok = skip_run(&s, p, true, &still, &from, err);
        end = still;
        ok = ok && skip_run(&s, p, false, &end, &last, err);
        if (still == end)
            from = end;
        rg_draft_copy(out, p, i, from);
        ok = ok && (from == end || normal_part(&s, p, (rg_extent){ from, end }, out, err));
        i = end;
    }
    rg_free(s.u);
    return ok && (rg_draft_ok(out) || rg_fail_memory(err, p->n));
}
