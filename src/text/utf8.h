/* utf8.h -- characters of text that may not be UTF-8.
 *
 * Inside this floor text is "clean": valid UTF-8, in which a byte that was not part of any character stands as the code
 * point U+DC00 + byte, written in three bytes.  Surrogates cannot occur in UTF-8, so nothing is ambiguous, regular
 * expressions and tables see one character of no class, and where text becomes bytes again the byte comes back. */
#ifndef RG_TEXT_UTF8_H
#define RG_TEXT_UTF8_H

#include "base/buf.h"

enum { RG_STRAY_BASE = 0xDC00 };

/* The character at s, n > 0 bytes left: its length 1..4 and its code; 0 if no character starts here. */
int rg_utf8_decode(const char *s, size_t n, uint32_t *code);
int rg_utf8_encode(uint32_t code, char out[4]);

bool rg_utf8_valid(const char *s, size_t n);

/* Length of the clean character at s; s[0, n) is clean and not empty. */
int rg_clean_length(const char *s);
uint32_t rg_clean_code(const char *s, int n);

bool rg_is_space(uint32_t code); /* Unicode's White_Space */

/* The byte that a clean character of n bytes stands for, or -1. */
int rg_clean_stray(const char *s, int n);

bool rg_clean_add(rg_buf *out, const char *s, size_t n);   /* any bytes -> clean */
bool rg_clean_bytes(rg_buf *out, const char *s, size_t n); /* clean -> the bytes they were */

/* Any bytes -> UTF-8, each maximal part of no character becoming U+FFFD (Unicode 15, section 3.9). */
bool rg_utf8_lossy(rg_buf *out, const char *s, size_t n);

#endif
