/* charclass.c -- see charclass.h. */
#include "text/charclass.h"

#include <utf8proc.h>

#include "text/clean.h"

static utf8proc_category_t category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

typedef enum class { OTHER, NONSPACING, MARK, PUNCT, COMBINING } class;

static const struct {
    class which;
    uint32_t first, last;
    bool is;
} exceptions[] = {
#define CLASS(which, first, last, is) { which, first, last, is },
#include "text/charclass.def"
#undef CLASS
};

/* Whether a character is of a class; `now`: whether it is by today's tables. */
static bool of_class(class which, uint32_t c, bool now)
{
    size_t from = 0, to = sizeof exceptions / sizeof *exceptions;

    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (exceptions[mid].which < which || (exceptions[mid].which == which && exceptions[mid].last < c))
            from = mid + 1;
        else
            to = mid;
    }
    if (from == sizeof exceptions / sizeof *exceptions || exceptions[from].which != which || exceptions[from].first > c)
        return now;
    return exceptions[from].is;
}

bool rg_is_other(uint32_t c)
{
    utf8proc_category_t k = category(c);

    return of_class(OTHER, c, k == UTF8PROC_CATEGORY_CC || k == UTF8PROC_CATEGORY_CF || k == UTF8PROC_CATEGORY_CO);
}

bool rg_is_mark(uint32_t c)
{
    utf8proc_category_t k = category(c);

    return c >= 0x300 &&
           of_class(MARK, c,
                    k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME);
}

bool rg_is_nonspacing(uint32_t c)
{
    return c >= 0x300 && of_class(NONSPACING, c, category(c) == UTF8PROC_CATEGORY_MN);
}

bool rg_is_punct(uint32_t c)
{
    utf8proc_category_t k;

    if (c < 0x80)
        return c > 32 && c < 127 && !((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'));
    k = category(c);
    return of_class(PUNCT, c, k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO);
}

int rg_combining_class(uint32_t c)
{
    int k = utf8proc_get_property((utf8proc_int32_t)c)->combining_class;

    return k && of_class(COMBINING, c, true) ? k : 0;
}

bool rg_is_numeric(uint32_t c)
{
    utf8proc_category_t k;

    if (c < 0x80)
        return c >= '0' && c <= '9';
    k = category(c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

/* The ranges are letters among the symbols. */
bool rg_is_word(uint32_t c)
{
    utf8proc_category_t k = category(c);

    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC || c == 0x200C ||
           c == 0x200D || (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
           (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

size_t rg_cluster_length(const char *s, size_t n)
{
    size_t at = (size_t)rg_clean_length(s);
    utf8proc_int32_t last = (utf8proc_int32_t)rg_utf8_code(s, (int)at), state = 0;

    while (at < n) {
        int length = rg_clean_length(s + at);
        utf8proc_int32_t next = (utf8proc_int32_t)rg_utf8_code(s + at, length);
        if (utf8proc_grapheme_break_stateful(last, next, &state))
            break;
        last = next;
        at += (size_t)length;
    }
    return at;
}

static const struct {
    uint32_t first, last;
    int script;
} scripts[] = {
#define SCRIPT(first, last, number) { first, last, number },
#include "text/scripts.def"
#undef SCRIPT
};

int rg_script(uint32_t c)
{
    size_t from = 0, to = sizeof scripts / sizeof *scripts;

    while (from < to) {
        size_t mid = from + (to - from) / 2;
        if (c > scripts[mid].last)
            from = mid + 1;
        else
            to = mid;
    }
    return from < sizeof scripts / sizeof *scripts && c >= scripts[from].first ? scripts[from].script : 0;
}
