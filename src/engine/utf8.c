/* utf8.c -- see utf8.h.  The table is that of well-formed byte sequences in the Unicode standard (3.9, D92). */
#include "engine/utf8.h"

#include <string.h>

/* Bytes of the character that starts with `lead`, and the range of its second byte; 0: none starts so. */
static int shape_of(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = 0x80;
    *high = 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    if (lead < 0xe0)
        return 2;
    if (lead < 0xf0) {
        *low = lead == 0xe0 ? 0xa0 : 0x80;
        *high = lead == 0xed ? 0x9f : 0xbf;
        return 3;
    }
    *low = lead == 0xf0 ? 0x90 : 0x80;
    *high = lead == 0xf4 ? 0x8f : 0xbf;
    return 4;
}

/* Bytes of the character at p, n > 0 of them there.  *whole: they are one; else they are the longest start of one
 * (at least 1 byte), and *open: all n bytes are, so that more could complete it. */
static size_t measure(const char *p, size_t n, bool *whole, bool *open)
{
    unsigned char low, high;
    int want = shape_of((unsigned char)p[0], &low, &high);
    size_t have = 1;

    *whole = *open = false;
    if (!want)
        return 1;
    for (; have < (size_t)want; have++) {
        unsigned char c;

        if (have == n) {
            *open = true;
            return have;
        }
        c = (unsigned char)p[have];
        if (c < low || c > high)
            return have;
        low = 0x80;
        high = 0xbf;
    }
    *whole = true;
    return have;
}

size_t rg_utf8_copy(const char *from, size_t n, bool last, char *to, size_t *used)
{
    size_t at = 0, out = 0;

    while (at < n) {
        bool whole, open;
        size_t have = measure(from + at, n - at, &whole, &open);

        if (open && !last)
            break;
        memcpy(to + out, whole ? from + at : "\xef\xbf\xbd", whole ? have : 3);
        out += whole ? have : 3;
        at += have;
    }
    *used = at;
    return out;
}
