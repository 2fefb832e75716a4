/* number.c -- decimal numbers between bounds.
 *
 * Bounds are texts; what is written is compared with them digit by digit.  A reader will round to a double, which must
 * not move a number across its bound: near one, a number has at most as many digits as a double tells apart. */
#include <stdio.h>

#include "grammar/json.h"

enum {
    DIGITS = 15,
    LONG = 40,       /* of the whole part of a number without a bound */
    MOST_WHOLE = 18, /* of an integer without a bound: every reader's integers of 64 bits hold them */
};

static uint32_t digit(rg_form *f, int from, int to)
{
    return from > to ? RG_NEVER : rg_form_range(f, (unsigned)('0' + from), (unsigned)('0' + to));
}

static uint32_t digits(rg_form *f, uint32_t min, uint32_t max)
{
    return rg_form_rep(f, digit(f, 0, 9), min, max);
}

/* ---- whole numbers: texts of digits without leading zeros -------------------------------------------------------- */

/* Numbers of n digits from low to high.  Either bound may be NULL. */
static uint32_t same_length(rg_form *f, const char *low, const char *high, uint32_t n)
{
    int a, b;
    uint32_t inner;

    if (!n || (!low && !high))
        return digits(f, n, n);
    a = low ? low[0] - '0' : 0;
    b = high ? high[0] - '0' : 9;
    if (a == b)
        return RG_SEQ(f, digit(f, a, a), same_length(f, low ? low + 1 : NULL, high ? high + 1 : NULL, n - 1));
    inner = RG_SEQ(f, digit(f, a + (low != NULL), b - (high != NULL)), digits(f, n - 1, n - 1));
    return RG_ALT(f, inner, low ? RG_SEQ(f, digit(f, a, a), same_length(f, low + 1, NULL, n - 1)) : RG_NEVER,
                  high ? RG_SEQ(f, digit(f, b, b), same_length(f, NULL, high + 1, n - 1)) : RG_NEVER);
}

/* From low to high; high NULL: to the largest with `most` digits, or with LONG if low has more. */
static uint32_t whole(rg_form *f, const char *low, const char *high, uint32_t most)
{
    static const char smallest[] = "1000000000000000000000000000000000000000";
    uint32_t n = (uint32_t)strlen(low), m = high ? (uint32_t)strlen(high) : (n > most ? LONG : most) + 1;
    uint32_t longer = RG_NEVER;

    if (high && (n > m || (n == m && strcmp(low, high) > 0)))
        return RG_NEVER;
    if (n == m)
        return same_length(f, low, high, n);
    if (m > n + 1)
        longer = RG_SEQ(f, digit(f, 1, 9), digits(f, n, m - 2));
    return RG_ALT(f, same_length(f, low, NULL, n), longer, high ? same_length(f, smallest, high, m) : RG_NEVER);
}

/* A bound split into its parts: sign, whole digits, fraction without zeros at its end. */
typedef struct decimal {
    bool is, negative, exclusive;
    char whole[24], fraction[24];
} decimal;

static decimal split(rg_json_bound b)
{
    decimal d = { .is = b.text != NULL, .exclusive = b.exclusive };
    const char *s = b.text, *dot;
    size_t n;

    if (!s)
        return d;
    d.negative = *s == '-';
    s += d.negative;
    dot = strchr(s, '.');
    n = dot ? (size_t)(dot - s) : strlen(s);
    memcpy(d.whole, s, n < 23 ? n : 23);
    if (dot) {
        n = strlen(dot + 1);
        while (n && dot[n] == '0')
            n--;
        memcpy(d.fraction, dot + 1, n < 23 ? n : 23);
    }
    if (!strcmp(d.whole, "0") && !d.fraction[0])
        d.negative = false;
    return d;
}

/* The next whole number of the same sign, away from zero (up) or towards it; there is one. */
static void next_whole(char *s, bool up)
{
    size_t n = strlen(s), i = n;

    while (i-- > 0) {
        if (s[i] != (up ? '9' : '0')) {
            s[i] = (char)(s[i] + (up ? 1 : -1));
            break;
        }
        s[i] = up ? '0' : '9';
    }
    if (up && s[0] == '0') {
        memmove(s + 1, s, n + 1);
        s[0] = '1';
    } else if (!up && s[0] == '0' && n > 1) {
        memmove(s, s + 1, n);
    }
}

static bool is_zero(const decimal *d)
{
    return !strcmp(d->whole, "0") && !d->fraction[0];
}

/* Whole magnitudes between two bounds.  There may be no higher bound. */
static uint32_t magnitudes(rg_form *f, decimal low, decimal high)
{
    if (low.is && (low.exclusive || low.fraction[0]))
        next_whole(low.whole, true);
    if (high.is && high.exclusive && !high.fraction[0]) {
        if (!strcmp(high.whole, "0"))
            return RG_NEVER;
        next_whole(high.whole, false);
    }
    return whole(f, low.is ? low.whole : "0", high.is ? high.whole : NULL, MOST_WHOLE);
}

static const decimal zero = { .is = true, .whole = "0" }, above_zero = { .is = true, .whole = "0", .exclusive = true };

uint32_t rg_json_integer(rg_form *f, rg_json_bound min, rg_json_bound max)
{
    decimal low = split(min), high = split(max);
    uint32_t plus = RG_NEVER, minus = RG_NEVER;

    if (!high.is || !high.negative)
        plus = magnitudes(f, low.is && !low.negative ? low : zero, high);
    if (!low.is || low.negative)
        minus = magnitudes(f, high.is && high.negative ? high : above_zero, low);
    return RG_ALT(f, plus, RG_SEQ(f, rg_form_str(f, "-"), minus));
}

/* ---- fractions: after the point; `left`: digits that there may still be ------------------------------------------ */

static uint32_t not_all_zero(rg_form *f, uint32_t left)
{
    uint32_t zeros = rg_form_rep(f, digit(f, 0, 0), 0, left ? left - 1 : 0);

    return left ? RG_SEQ(f, zeros, digit(f, 1, 9), digits(f, 0, left - 1)) : RG_NEVER;
}

static uint32_t above(rg_form *f, const char *low, bool exclusive, uint32_t left)
{
    int a = low[0] - '0';

    if (!low[0])
        return exclusive ? not_all_zero(f, left) : digits(f, 0, left);
    if (!left)
        return RG_NEVER;
    return RG_ALT(f, RG_SEQ(f, digit(f, a + 1, 9), digits(f, 0, left - 1)),
                  RG_SEQ(f, digit(f, a, a), above(f, low + 1, exclusive, left - 1)));
}

static uint32_t below(rg_form *f, const char *high, bool exclusive, uint32_t left)
{
    int b = high[0] - '0';

    if (!high[0])
        return exclusive ? RG_NEVER : rg_form_rep(f, digit(f, 0, 0), 0, left);
    if (!left)
        return RG_EMPTY;
    return rg_form_opt(f, RG_ALT(f, RG_SEQ(f, digit(f, 0, b - 1), digits(f, 0, left - 1)),
                                 RG_SEQ(f, digit(f, b, b), below(f, high + 1, exclusive, left - 1))));
}

/* The digits so far are those of both bounds. */
static uint32_t between(rg_form *f, const decimal *low, const decimal *high, size_t at, uint32_t left)
{
    size_t n = strlen(low->fraction), m = strlen(high->fraction);
    int a = at < n ? low->fraction[at] - '0' : 0, b = at < m ? high->fraction[at] - '0' : 0;
    uint32_t made;

    if (at >= m)
        return at >= n && !low->exclusive ? below(f, "", high->exclusive, left) : RG_NEVER;
    if (at >= n && !low->exclusive)
        return below(f, high->fraction + at, high->exclusive, left);
    if (!left || a > b)
        return RG_NEVER;
    if (a == b)
        return RG_SEQ(f, digit(f, a, a), between(f, low, high, at + 1, left - 1));
    made = above(f, at < n ? low->fraction + at + 1 : "", low->exclusive, left - 1);
    return RG_ALT(f, RG_SEQ(f, digit(f, a, a), made), RG_SEQ(f, digit(f, a + 1, b - 1), digits(f, 0, left - 1)),
                  RG_SEQ(f, digit(f, b, b), below(f, high->fraction + at + 1, high->exclusive, left - 1)));
}

/* A point and one or more of these digits; or nothing, if that is allowed. */
static uint32_t point(rg_form *f, uint32_t after, bool may_be_none)
{
    uint32_t made = RG_SEQ(f, rg_form_str(f, "."), after);

    return may_be_none ? rg_form_opt(f, made) : made;
}

static uint32_t room_after(const char *whole_part)
{
    size_t n = strlen(whole_part);

    return n < DIGITS ? (uint32_t)(DIGITS - n) : 0;
}

/* Behind the whole part of the lower bound, of the higher one, of both. */
static uint32_t behind_low(rg_form *f, const decimal *low)
{
    uint32_t left = room_after(low->whole);

    if (!low->fraction[0] && !low->exclusive)
        return left ? point(f, digits(f, 1, left), true) : RG_EMPTY;
    return point(f, above(f, low->fraction, low->exclusive, left), false);
}

static uint32_t behind_high(rg_form *f, const decimal *high)
{
    uint32_t left = room_after(high->whole);
    int b = high->fraction[0] - '0';

    if (!high->fraction[0])
        return high->exclusive ? RG_NEVER : left ? point(f, rg_form_rep(f, digit(f, 0, 0), 1, left), true) : RG_EMPTY;
    if (!left)
        return RG_EMPTY;
    return point(f, RG_ALT(f, RG_SEQ(f, digit(f, 0, b - 1), digits(f, 0, left - 1)),
                           RG_SEQ(f, digit(f, b, b), below(f, high->fraction + 1, high->exclusive, left - 1))), true);
}

static uint32_t behind_both(rg_form *f, const decimal *low, const decimal *high)
{
    uint32_t left = room_after(low->whole);

    if (!low->fraction[0] && !low->exclusive)
        return behind_high(f, high);
    if (!strcmp(low->fraction, high->fraction) && (low->exclusive || high->exclusive))
        return RG_NEVER;
    return left ? point(f, between(f, low, high, 0, left), false) : RG_NEVER;
}

/* Whole parts from low to high, each with as many digits behind the point as make DIGITS in all: a reader that rounds
 * them does not come to a bound. */
static uint32_t between_wholes(rg_form *f, const char *low, const char *high)
{
    size_t from = strlen(low), to = strlen(high);
    uint32_t made = RG_NEVER;

    for (size_t n = from; n <= to; n++) {
        char least[DIGITS + 8], most[DIGITS + 8];
        uint32_t left;

        if (n + 1 > sizeof least)
            break;
        snprintf(least, sizeof least, "1%0*d", (int)n - 1, 0);
        least[n] = 0;
        memset(most, '9', n);
        most[n] = 0;
        left = room_after(least);
        made = RG_ALT(f, made, RG_SEQ(f, whole(f, n == from ? low : least, n == to ? high : most, LONG),
                                      left ? point(f, digits(f, 1, left), true) : RG_EMPTY));
    }
    return made;
}

/* Magnitudes, with fractions, between a lower bound and a higher one that may not be. */
static uint32_t fractions(rg_form *f, decimal low, decimal high)
{
    uint32_t at_low, at_high = RG_NEVER, inner;
    decimal from = low, to = high;
    int order;

    if (high.is) {
        size_t n = strlen(low.whole), m = strlen(high.whole);
        order = n == m ? strcmp(low.whole, high.whole) : n < m ? -1 : 1;
        if (order > 0)
            return RG_NEVER;
        if (order == 0)
            return RG_SEQ(f, rg_form_str(f, low.whole), behind_both(f, &low, &high));
        next_whole(to.whole, false);
        at_high = RG_SEQ(f, rg_form_str(f, high.whole), behind_high(f, &high));
    }
    next_whole(from.whole, true);
    inner = high.is ? between_wholes(f, from.whole, to.whole)
                    : RG_SEQ(f, whole(f, from.whole, NULL, LONG), point(f, digits(f, 1, DIGITS), true));
    at_low = RG_SEQ(f, rg_form_str(f, low.whole), behind_low(f, &low));
    return RG_ALT(f, at_low, inner, at_high);
}

static uint32_t any_number(rg_form *f)
{
    rg_set e = { 0 }, sign = { 0 };
    uint32_t exponent;

    rg_set_add(&e, 'e', 'e');
    rg_set_add(&e, 'E', 'E');
    rg_set_add(&sign, '+', '+');
    rg_set_add(&sign, '-', '-');
    exponent = RG_SEQ(f, rg_form_set(f, &e), rg_form_opt(f, rg_form_set(f, &sign)), digits(f, 1, 3));
    return RG_SEQ(f, rg_form_opt(f, rg_form_str(f, "-")), whole(f, "0", NULL, LONG), point(f, digits(f, 1, LONG), true),
                  rg_form_opt(f, exponent));
}

uint32_t rg_json_number(rg_form *f, rg_json_bound min, rg_json_bound max)
{
    decimal low = split(min), high = split(max);
    uint32_t plus = RG_NEVER, minus = RG_NEVER;

    if (!low.is && !high.is)
        return any_number(f);
    if (!high.is || !high.negative)
        plus = fractions(f, low.is && !low.negative ? low : zero, high);
    if (!low.is || low.negative) {
        bool strict = high.is && is_zero(&high) && high.exclusive;
        minus = fractions(f, high.is && high.negative ? high : strict ? above_zero : zero, low);
    }
    return RG_ALT(f, plus, RG_SEQ(f, rg_form_str(f, "-"), minus));
}
