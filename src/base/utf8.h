/* utf8.h -- UTF-8 as the Unicode standard defines it: one table of well-formed sequences (3.9, D92), and U+FFFD for
 * each maximal ill-formed part.  The result for a text does not depend on where it was cut. */
#ifndef RG_BASE_UTF8_H
#define RG_BASE_UTF8_H

#include "base/buf.h"

/* The character at s, n > 0 bytes left: its length 1..4 and its code; 0 if no character starts here. */
int rg_utf8_decode(const char *s, size_t n, uint32_t *code);
int rg_utf8_encode(uint32_t code, char out[4]);

/* The code of a character whose n bytes are known to be one; surrogates come out as themselves. */
uint32_t rg_utf8_code(const char *s, int n);

/* Offset of the first byte that does not begin a character; n if there is none. */
size_t rg_utf8_span(const char *s, size_t n);
bool rg_utf8_valid(const char *s, size_t n);

/* Copy whole characters of from[0, n) to `to` (room for 3 n bytes), with U+FFFD for ill-formed parts; `last`: nothing
 * follows, so an incomplete character is ill-formed.  Returns the bytes written; *used: bytes of `from` that were
 * consumed.  The at most 3 others may still become a character. */
size_t rg_utf8_copy(const char *from, size_t n, bool last, char *to, size_t *used);
bool rg_utf8_lossy(rg_buf *out, const char *s, size_t n); /* all of s, at once */

#endif
