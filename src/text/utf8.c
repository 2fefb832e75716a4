/* utf8.c -- see utf8.h. */
#include "text/utf8.h"

#include <string.h>

static bool is_tail(unsigned char c)
{
    return (c & 0xC0) == 0x80;
}

/* The first bytes at s that could begin a character: *need is the length that it would have. */
static int prefix(const unsigned char *s, size_t n, int *need)
{
    unsigned char low = 0x80, high = 0xBF;
    int have = 1;

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
    for (have = 2; have < *need && (size_t)have < n && is_tail(s[have]); have++)
        ;
    return have;
}

int rg_utf8_decode(const char *text, size_t n, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    int need;

    if (prefix(s, n, &need) != need)
        return 0;
    *code = rg_clean_code(text, need);
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

/* Where the first thing that is no character stands; n if there is none. */
static size_t first_stray(const char *s, size_t n)
{
    size_t i = 0;
    int need;

    while (i < n) {
        if (!((unsigned char)s[i] & 0x80)) {
            i++;
            continue;
        }
        if (prefix((const unsigned char *)s + i, n - i, &need) != need)
            break;
        i += (size_t)need;
    }
    return i;
}

bool rg_utf8_valid(const char *s, size_t n)
{
    return first_stray(s, n) == n;
}

int rg_clean_length(const char *s)
{
    unsigned char c = (unsigned char)s[0];

    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

uint32_t rg_clean_code(const char *text, int n)
{
    const unsigned char *s = (const unsigned char *)text;
    uint32_t c = n == 1 ? s[0] : s[0] & (0x7FU >> n);

    for (int i = 1; i < n; i++)
        c = c << 6 | (s[i] & 63);
    return c;
}

bool rg_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
           c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

int rg_clean_stray(const char *s, int n)
{
    uint32_t c;

    if (n != 3 || (unsigned char)s[0] != 0xED)
        return -1;
    c = rg_clean_code(s, n);
    return c >= RG_STRAY_BASE ? (int)(c - RG_STRAY_BASE) : -1;
}

bool rg_clean_add(rg_buf *out, const char *s, size_t n)
{
    char stray[4];

    while (n) {
        size_t run = first_stray(s, n);
        if (!rg_buf_add(out, s, run))
            return false;
        if (run == n)
            break;
        if (!rg_buf_add(out, stray, (size_t)rg_utf8_encode(RG_STRAY_BASE + (unsigned char)s[run], stray)))
            return false;
        s += run + 1;
        n -= run + 1;
    }
    return true;
}

bool rg_clean_bytes(rg_buf *out, const char *s, size_t n)
{
    size_t from = 0;

    for (size_t i = 0; i < n;) {
        int length = rg_clean_length(s + i), stray = rg_clean_stray(s + i, length);
        if (stray >= 0) {
            char byte = (char)stray;
            if (!rg_buf_add(out, s + from, i - from) || !rg_buf_add(out, &byte, 1))
                return false;
            from = i + (size_t)length;
        }
        i += (size_t)length;
    }
    return rg_buf_add(out, s + from, n - from);
}

bool rg_utf8_lossy(rg_buf *out, const char *s, size_t n)
{
    while (n) {
        size_t run = first_stray(s, n);
        int need, have;

        if (!rg_buf_add(out, s, run))
            return false;
        s += run;
        n -= run;
        if (!n)
            break;
        have = prefix((const unsigned char *)s, n, &need);
        if (!rg_buf_add(out, "\xEF\xBF\xBD", 3))
            return false;
        s += have ? have : 1;
        n -= have ? (size_t)have : 1;
    }
    return true;
}
