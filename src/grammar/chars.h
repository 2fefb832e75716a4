/* chars.h -- sets of characters, and the bytes that write them: as UTF-8, or within a string of JSON.
 *
 * A set is ranges of code points; surrogates are no characters.  Relies on form.h. */
#ifndef RG_GRAMMAR_CHARS_H
#define RG_GRAMMAR_CHARS_H

#include "base/buf.h"
#include "grammar/form.h"

typedef struct rg_range {
    uint32_t from, to; /* both included */
} rg_range;

typedef struct rg_chars {
    rg_range *range;
    uint32_t n, room;
} rg_chars;

typedef enum rg_writing {
    RG_WRITE_UTF8,
    RG_WRITE_JSON, /* within quotes: escaped where it must be, in the short way */
} rg_writing;

void rg_chars_fini(rg_chars *c);
void rg_chars_add(rg_form *f, rg_chars *c, uint32_t from, uint32_t to);
void rg_chars_invert(rg_form *f, rg_chars *c);
bool rg_chars_class(rg_form *f, rg_chars *c, uint32_t letter); /* d D w W s S, as ECMA-262 says; false: none of them */

uint32_t rg_chars_node(rg_form *f, rg_chars *c, rg_writing how); /* one character of the set */
uint32_t rg_chars_text(rg_form *f, const uint32_t *code, uint32_t n, rg_writing how); /* these, one after the other */
uint32_t rg_chars_any(rg_form *f, rg_writing how);
uint32_t rg_chars_string_char(rg_form *f); /* one character of a string of JSON, however it is escaped */

/* "s" as JSON in the one way that keys have: the short escapes, and \u00xx for other control characters. */
bool rg_chars_quote(rg_buf *b, const char *s, size_t n);

#endif
