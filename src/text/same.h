/* same.h -- text that says the same again and again: how far it does. */
#ifndef RG_TEXT_SAME_H
#define RG_TEXT_SAME_H

#include <string.h>

/* Up to where text[0, n) goes on from `at` as it did from `from`. */
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
