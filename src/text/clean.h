/* clean.h -- characters of text that may not be UTF-8.
 *
 * Inside this floor text is "clean": valid UTF-8, in which a byte that was not part of any character stands as the code
 * point U+DC00 + byte, written in three bytes.  Surrogates cannot occur in UTF-8, so nothing is ambiguous, regular
 * expressions and tables see one character of no class, and where text becomes bytes again the byte comes back. */
#ifndef RG_TEXT_CLEAN_H
#define RG_TEXT_CLEAN_H

#include "base/utf8.h"

enum { RG_STRAY_BASE = 0xDC00 };

/* Length of the clean character at s; s is clean and not empty; its code is rg_utf8_code's. */
static inline int rg_clean_length(const char *s)
{
    unsigned char c = (unsigned char)s[0];

    return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

/* Its code, and its length too. */
static inline uint32_t rg_clean_char(const char *text, int *length)
{
    const unsigned char *s = (const unsigned char *)text;

    *length = rg_clean_length(text);
    return *length == 1   ? s[0]
           : *length == 2 ? (uint32_t)(s[0] & 31) << 6 | (s[1] & 63)
           : *length == 3 ? (uint32_t)(s[0] & 15) << 12 | (uint32_t)(s[1] & 63) << 6 | (s[2] & 63)
                          : rg_utf8_code(text, 4);
}

bool rg_is_space(uint32_t code); /* Unicode's White_Space */

/* The byte that a clean character of n bytes stands for, or -1. */
int rg_clean_stray(const char *s, int n);

bool rg_clean_add(rg_buf *out, const char *s, size_t n);   /* any bytes -> clean */
bool rg_clean_bytes(rg_buf *out, const char *s, size_t n); /* clean -> the bytes they were */

#endif
