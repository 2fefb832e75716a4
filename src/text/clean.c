/* clean.c -- see clean.h. */
#include "text/clean.h"

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
    c = rg_utf8_code(s, n);
    return c >= RG_STRAY_BASE ? (int)(c - RG_STRAY_BASE) : -1;
}

bool rg_clean_add(rg_buf *out, const char *s, size_t n)
{
    char stray[4];

    while (n) {
        size_t run = rg_utf8_span(s, n);
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
