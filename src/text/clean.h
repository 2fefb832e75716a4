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
int rg_clean_length(const char *s);

bool rg_is_space(uint32_t code); /* Unicode's White_Space */

/* The byte that a clean character of n bytes stands for, or -1. */
int rg_clean_stray(const char *s, int n);

bool rg_clean_add(rg_buf *out, const char *s, size_t n);   /* any bytes -> clean */
bool rg_clean_bytes(rg_buf *out, const char *s, size_t n); /* clean -> the bytes they were */

#endif
