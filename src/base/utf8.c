/* utf8.c -- see utf8.h. */
#include "base/utf8.h"

#include <string.h>

/* How many of the n > 0 bytes at s could begin a character: *need is the length that it would have.  0: none does. */
static int prefix(const char *text, size_t n, int *need)
{
    const unsigned char *s = (const unsigned char *)text;
    unsigned char low, high;
    int have;

    *need = 1;
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xC2 || s[0] > 0xF4)
        return 0;
    *need = s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;  /* no overlong forms */
    high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF; /* no surrogates, nothing above U+10FFFF */
    if (n < 2 || s[1] < low || s[1] > high)
        return 1;
    for (have = 2; have < *need && (size_t)have < n && (s[have] & 0xC0) == 0x80; have++)
        ;
    return have;
}

uint32_t rg_utf8_code(const char *text, int n)
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7FU >> n);

    for (int i = 1; i < n; i++)
        c = c << 6 | (s[i] & 63);
    return c;
}

int rg_utf8_decode(const char *s, size_t n, uint32_t *code)
{
    int need;

    if (prefix(s, n, &need) != need)
        return 0;
    *code = rg_utf8_code(s, need);
    return need;
}

int rg_utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

size_t rg_utf8_span(const char *s, size_t n)
{
    size_t i = 0;
    int need;

    while (i < n) {
        if (!((unsigned char)s[i] & 0x80)) {
            i++;
            continue;
        }
        if (prefix(s + i, n - i, &need) != need)
            break;
        i += (size_t)need;
    }
    return i;
}

bool rg_utf8_valid(const char *s, size_t n)
{
    return rg_utf8_span(s, n) == n;
}

size_t rg_utf8_copy(const char *from, size_t n, bool last, char *to, size_t *used)
{
    size_t at = 0, out = 0;

    while (at < n) {
        int need, have = prefix(from + at, n - at, &need);
        bool whole = have == need;
        size_t some = have ? (size_t)have : 1, added = whole ? some : 3;

        if (!last && have && !whole && some == n - at)
            break;
        memcpy(to + out, whole ? from + at : "\xEF\xBF\xBD", added);
        out += added;
        at += some;
    }
    *used = at;
    return out;
}

bool rg_utf8_lossy(rg_buf *out, const char *s, size_t n)
{
    char room[3 * 256];

    while (n) {
        size_t some = n < 256 ? n : 256, used, written = rg_utf8_copy(s, some, some == n, room, &used);

        if (!rg_buf_add(out, room, written))
            return false;
        s += used;
        n -= used;
    }
    return true;
}
