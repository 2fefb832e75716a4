/* same.h -- how far a text repeats itself. */
#ifndef RG_TEXT_SAME_H
#define RG_TEXT_SAME_H

#include <string.h>

/* The end of the stretch from `at` on that equals the text from `from` on, within text[0, n). */
static inline size_t rg_same_to(const char *text, size_t n, size_t from, size_t at)
{
    enum { BLOCK = 64 };

    while (at + BLOCK <= n && !memcmp(text + from, text + at, BLOCK)) {
        from += BLOCK;
        at += BLOCK;
    }
    while (at < n && text[from] == text[at]) {
        from++;
        at++;
    }
    return at;
}

#endif
