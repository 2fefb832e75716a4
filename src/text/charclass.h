/* charclass.h -- classes of characters as the published tokenizers mean them, by utf8proc's tables. */
#ifndef RG_TEXT_CHARCLASS_H
#define RG_TEXT_CHARCLASS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool rg_is_other(uint32_t code);      /* control, format and private-use characters */
bool rg_is_mark(uint32_t code);       /* combining, of any kind */
bool rg_is_nonspacing(uint32_t code); /* combining, taking no room */
bool rg_is_punct(uint32_t code);      /* punctuation, and all of ASCII that is neither letter, digit nor space */
int rg_combining_class(uint32_t code); /* by which marks are put in order; 0: no mark */
bool rg_is_numeric(uint32_t code);
bool rg_is_word(uint32_t code); /* a word character as UTS #18 recommends */

/* The bytes of the first grapheme cluster of s[0, n), which is clean and not empty. */
size_t rg_cluster_length(const char *s, size_t n);

/* The script of a character as SentencePiece counts them, where the Japanese ones are one with Han; 0: any. */
int rg_script(uint32_t code);

#endif
