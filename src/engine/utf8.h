/* utf8.h -- bytes to whole characters: what is not UTF-8 becomes U+FFFD, one per maximal broken part, as Unicode
 * recommends.  The result of a text does not depend on where it was cut. */
#ifndef RG_ENGINE_UTF8_H
#define RG_ENGINE_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/* Copy whole characters of from[0, n) to `to` (room for 3 n bytes); `last`: nothing follows, so a character that is not
 * complete is broken.  Returns the bytes written; *used: bytes of `from` that are done with; the up to 3 others may
 * become a character yet. */
size_t rg_utf8_copy(const char *from, size_t n, bool last, char *to, size_t *used);

#endif
