/* unicode.c -- characters as Python's str sees them: classes, cases, line breaks; by utf8proc, and a table of the
 * characters that become several. */
#include <string.h>
#include <utf8proc.h>

#include "text/jinja/internal.h"

static const struct special {
    uint32_t code, upper[3], title[3];
} specials[] = {
#include "text/jinja/case.def"
};

bool jj_is_break(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 || code == 0x2028 || code == 0x2029;
}

static bool is_space(uint32_t code)
{
    if (code < 128)
        return code == ' ' || (code >= 9 && code <= 13) || (code >= 28 && code <= 31);
    return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

/* Digits that are no decimals: superscripts, circled ones and their like. */
static bool is_other_digit(uint32_t code)
{
    static const uint32_t ranges[][2] = {
        { 0xb2, 0xb3 }, { 0xb9, 0xb9 }, { 0x1369, 0x1371 }, { 0x19da, 0x19da }, { 0x2070, 0x2070 }, { 0x2074, 0x2079 },
        { 0x2080, 0x2089 }, { 0x2460, 0x2468 }, { 0x2474, 0x247c }, { 0x2488, 0x2490 }, { 0x24ea, 0x24ea },
        { 0x24f5, 0x24fd }, { 0x24ff, 0x24ff }, { 0x2776, 0x277e }, { 0x2780, 0x2788 }, { 0x278a, 0x2792 },
        { 0x10a40, 0x10a43 }, { 0x10e60, 0x10e68 }, { 0x11052, 0x1105a }, { 0x1f100, 0x1f10a },
    };

    for (size_t i = 0; i < RG_LEN(ranges); i++)
        if (code >= ranges[i][0] && code <= ranges[i][1])
            return true;
    return false;
}

static inline bool is_ascii(jj_class k, uint32_t code)
{
    bool digit = code - '0' < 10, letter = (code | 32) - 'a' < 26;

    switch (k) {
    case JJ_ALPHA:
        return letter;
    case JJ_ALNUM:
        return letter || digit;
    case JJ_PRINTABLE:
        return code >= ' ' && code < 127;
    default:
        return digit;
    }
}

bool jj_is(jj_class k, uint32_t code)
{
    utf8proc_category_t cat;

    if (k == JJ_SPACE)
        return is_space(code);
    if (code < 128)
        return is_ascii(k, code);
    cat = utf8proc_category((utf8proc_int32_t)code);
    switch (k) {
    case JJ_ALPHA:
        return cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO;
    case JJ_ALNUM:
        return (cat >= UTF8PROC_CATEGORY_LU && cat <= UTF8PROC_CATEGORY_LO) ||
               (cat >= UTF8PROC_CATEGORY_ND && cat <= UTF8PROC_CATEGORY_NO);
    case JJ_DECIMAL:
        return cat == UTF8PROC_CATEGORY_ND;
    case JJ_DIGIT:
        return cat == UTF8PROC_CATEGORY_ND || is_other_digit(code);
    case JJ_NUMERIC:
        return cat >= UTF8PROC_CATEGORY_ND && cat <= UTF8PROC_CATEGORY_NO;
    default: /* printable */
        return code == ' ' ||
               (cat != UTF8PROC_CATEGORY_CN && (cat < UTF8PROC_CATEGORY_ZS || cat > UTF8PROC_CATEGORY_CO));
    }
}

bool jj_is_cased(uint32_t code, bool *upper, bool *lower, bool *title)
{
    utf8proc_category_t cat;

    if (code < 128) {
        *upper = code - 'A' < 26;
        *lower = code - 'a' < 26;
        *title = false;
        return *upper || *lower;
    }
    cat = utf8proc_category((utf8proc_int32_t)code);
    *upper = cat == UTF8PROC_CATEGORY_LU || (code >= 0x2160 && code <= 0x216f) || (code >= 0x24b6 && code <= 0x24cf) ||
             (code >= 0x1f130 && code <= 0x1f149) || (code >= 0x1f150 && code <= 0x1f169) ||
             (code >= 0x1f170 && code <= 0x1f189);
    *title = cat == UTF8PROC_CATEGORY_LT;
    *lower = cat == UTF8PROC_CATEGORY_LL || code == 0xaa || code == 0xba || (code >= 0x2b0 && code <= 0x2b8) ||
             (code >= 0x2c0 && code <= 0x2c1) || (code >= 0x2e0 && code <= 0x2e4) || code == 0x345 || code == 0x37a ||
             (code >= 0x1d2c && code <= 0x1d6a) || code == 0x1d78 || (code >= 0x1d9b && code <= 0x1dbf) ||
             code == 0x2071 || code == 0x207f || (code >= 0x2090 && code <= 0x209c) ||
             (code >= 0x2170 && code <= 0x217f) ||
             (code >= 0x24d0 && code <= 0x24e9);
    return *upper || *lower || *title;
}

static const struct special *find_special(uint32_t code)
{
    size_t lo = 0, hi = RG_LEN(specials);

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (specials[mid].code == code)
            return &specials[mid];
        if (specials[mid].code < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* How the characters around w's decide: a sigma that ends a word. */
static bool ends_word(jj_walk w, bool after_cased)
{
    bool u, l, t;

    return after_cased && !(jj_walk_next(&w) && jj_is_cased(w.code, &u, &l, &t));
}

static bool put_case(jj_ctx *c, jj_buf *b, const jj_walk *w, jj_case how, bool after_cased)
{
    utf8proc_int32_t code = (utf8proc_int32_t)w->code;
    const struct special *s = how != JJ_LOWER && w->code >= 128 ? find_special(w->code) : NULL;

    if (code < 128) {
        bool raise = how == JJ_UPPER || how == JJ_TITLE, letter = (w->code | 32) - 'a' < 26;
        return jj_put_code(c, b, !letter ? w->code : raise ? w->code & ~32u : w->code | 32, w->trusted);
    }
    if (s) { /* folding is the lower case of the several */
        const uint32_t *to = how == JJ_TITLE ? s->title : s->upper;
        for (int i = 0; i < 3 && to[i]; i++) {
            uint32_t one = how == JJ_FOLD ? (uint32_t)utf8proc_tolower((utf8proc_int32_t)to[i]) : to[i];
            if (!jj_put_code(c, b, one, w->trusted))
                return false;
        }
        return true;
    }
    if ((how == JJ_LOWER || how == JJ_FOLD) && w->code == 0x130)
        return jj_put_code(c, b, 'i', w->trusted) && jj_put_code(c, b, 0x307, w->trusted);
    if (how == JJ_LOWER && w->code == 0x3a3 && ends_word(*w, after_cased))
        return jj_put_code(c, b, 0x3c2, w->trusted);
    if (how == JJ_FOLD && w->code == 0x3c2)
        return jj_put_code(c, b, 0x3c3, w->trusted);
    code = how == JJ_UPPER ? utf8proc_toupper(code) : how == JJ_TITLE ? utf8proc_totitle(code) : utf8proc_tolower(code);
    return jj_put_code(c, b, (uint32_t)code, w->trusted);
}

static bool put_ascii(jj_ctx *c, jj_buf *b, const jj_str *s, jj_case how)
{
    const unsigned char first = how == JJ_UPPER ? 'a' : 'A';
    char out[256];
    bool trusted;

    for (size_t at = 0, n; jj_next_run(s, &at, &n, &trusted); at += n) {
        const char *p = jj_data(s) + at;
        n = n < sizeof out ? n : sizeof out;
        for (size_t i = 0; i < n; i++) /* the other case is 32 away */
            out[i] = (char)(p[i] ^ ((unsigned char)((unsigned char)p[i] - first) < 26 ? 32 : 0));
        if (!jj_put_bytes(c, b, out, n, trusted))
            return false;
    }
    return true;
}

bool jj_put_recased(jj_ctx *c, jj_buf *b, const jj_str *s, size_t off, size_t n, jj_case how)
{
    jj_str part = { s->b, s->off + off, n, SIZE_MAX };
    bool first = true, after_cased = false, u, l, t;

    if (jj_str_ascii(s) && (how == JJ_UPPER || how == JJ_LOWER || how == JJ_FOLD))
        return jj_charge_times(c, n, 2) && put_ascii(c, b, &part, how);
    if (!jj_charge_times(c, n, 2 * JJ_WALK) || !(jj_str_ascii(s) || jj_charge_times(c, n, 2 * JJ_WALK)))
        return false;
    for (jj_walk w = jj_walk_start(&part); jj_walk_next(&w); first = false) {
        jj_case now = how;
        bool cased = jj_is_cased(w.code, &u, &l, &t);
        if (how == JJ_TITLE)
            now = after_cased ? JJ_LOWER : JJ_TITLE;
        else if (how == JJ_CAPITALIZE)
            now = first ? JJ_TITLE : JJ_LOWER;
        else if (how == JJ_SWAP)
            now = u ? JJ_LOWER : l ? JJ_UPPER : JJ_FOLD;
        if (how == JJ_SWAP && now == JJ_FOLD) {
            if (!jj_put_code(c, b, w.code, w.trusted))
                return false;
        } else if (!put_case(c, b, &w, now, after_cased)) {
            return false;
        }
        after_cased = cased;
    }
    return true;
}

/* Small letters, digits and the like alone. */
static bool is_lower(const jj_str *s)
{
    const char *p = jj_data(s);
    size_t i = 0;

    while (i < s->n && (p[i] < 'A' || p[i] > 'Z'))
        i++;
    return i == s->n && jj_str_ascii(s);
}

bool jj_recase(jj_ctx *c, const jj_str *s, jj_case how, jj_str **out)
{
    jj_buf *b;

    if ((how == JJ_LOWER || how == JJ_FOLD) && is_lower(s))
        return jj_charge(c, s->n) && (*out = jj_str_sub(c, s, 0, s->n));
    b = jj_buf_new(c, s->n, 8);

    return b && jj_put_recased(c, b, s, 0, s->n, how) && (*out = jj_str_from(c, b));
}

/* ---- strip ---- */

static bool in_chars(uint32_t code, const char *p, int n, const jj_str *chars)
{
    if (!chars)
        return is_space(code);
    if (n == 1)
        return chars->n && memchr(jj_data(chars), *p, chars->n);
    return chars->n >= (size_t)n && jj_str_find(chars, 0, p, (size_t)n) != SIZE_MAX;
}

bool jj_strip(jj_ctx *c, const jj_str *s, const jj_str *chars, bool left, bool right, jj_str **out)
{
    const char *p = jj_data(s);
    size_t from = 0, to = s->n, cost = chars ? 16 + 4 * chars->n : 8;
    uint32_t code;
    utf8proc_int32_t got;

    while (left && from < to) {
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)p + from, (utf8proc_ssize_t)(to - from), &got);
        code = (uint32_t)got;
        if (!jj_charge(c, cost))
            return false;
        if (n <= 0 || !in_chars(code, p + from, (int)n, chars))
            break;
        from += (size_t)n;
    }
    while (right && to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)p[at] & 0xc0) == 0x80)
            at--;
        if (utf8proc_iterate((const utf8proc_uint8_t *)p + at, (utf8proc_ssize_t)(to - at), &got) <= 0)
            break;
        code = (uint32_t)got;
        if (!jj_charge(c, cost))
            return false;
        if (!in_chars(code, p + at, (int)(to - at), chars))
            break;
        to = at;
    }
    return (*out = jj_str_sub(c, s, from, to - from));
}
