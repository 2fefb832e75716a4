/* source.h -- from text to form: one function per kind of source, and what their parsers share.
 *
 * Each returns the node of a whole answer; failures are kept in the form.  Clients may send any text: sizes and depths
 * are bounded, and unknown constructs are refused, never skipped. */
#ifndef RG_GRAMMAR_SOURCE_H
#define RG_GRAMMAR_SOURCE_H

#include "grammar/chars.h"
#include "grammar/form.h"

enum {
    RG_SOURCE_BYTES = 4 << 20,
    RG_SOURCE_DEPTH = 200,        /* of groups */
    RG_PATTERN_BYTES = 1 << 15,   /* of a regular expression */
    RG_REPEAT_MIN = 1 << 20,      /* more repetitions than any answer can have */
};

uint32_t rg_gbnf(rg_form *f, const char *text, size_t n);
uint32_t rg_lark(rg_form *f, const char *text, size_t n, rg_writing how);
uint32_t rg_choice(rg_form *f, const char *text, size_t n);
uint32_t rg_any_json(rg_form *f);
/* Any text that ends with this one and has it nowhere before; any text that has it nowhere. */
uint32_t rg_until(rg_form *f, const char *text, size_t n);
uint32_t rg_without(rg_form *f, const char *text, size_t n);
/* A source of this kind.  how: RG_WRITE_JSON within quotes, for regular expressions and Lark. */
uint32_t rg_source(rg_form *f, rg_grammar_kind kind, const char *text, size_t n, rg_writing how);
uint32_t rg_schema(rg_form *f, const char *text, size_t n);

/* whole: the text matches from end to end.  Otherwise something in it does, as a schema's "pattern" asks. */
uint32_t rg_pattern(rg_form *f, const char *text, size_t n, rg_writing how, bool whole);
/* The whole text; fold: letters of ASCII in either case; all: "." is any character, ends of lines too. */
uint32_t rg_pattern_flags(rg_form *f, const char *text, size_t n, rg_writing how, bool fold, bool all);
/* True if an anchor stands elsewhere than at the ends of the expression or of its outermost alternatives.  Then only
 * rg_pattern_marked can say what the pattern is found in: as JSON, with RG_DFA_BEGINS and RG_DFA_ENDED for anchors. */
bool rg_pattern_anchors_within(const char *text, size_t n);
uint32_t rg_pattern_marked(rg_form *f, const char *text, size_t n);

/* ---- groups: alternatives of sequences, nested ---- */
typedef struct rg_group_level {
    rg_list alternatives, items;
} rg_group_level;

typedef struct rg_groups {
    rg_form *f;
    int depth;
    rg_group_level level[RG_SOURCE_DEPTH + 1]; /* the outermost is 0 */
} rg_groups;

void rg_groups_init(rg_groups *g, rg_form *f);
void rg_groups_fini(rg_groups *g);
void rg_groups_open(rg_groups *g);
void rg_groups_bar(rg_groups *g);       /* an alternative ends */
void rg_groups_close(rg_groups *g);     /* becomes an item of the level above */
uint32_t rg_groups_end(rg_groups *g);   /* of the outermost level: its node; it is empty again */
void rg_groups_item(rg_groups *g, uint32_t id);
bool rg_groups_empty(const rg_groups *g); /* no item to repeat */
void rg_groups_repeat(rg_groups *g, uint32_t min, uint32_t max); /* the last item */

/* {m}, {m,}, {m,n} or, if asked for, {,n} at s[*at]: 1 and *at past it; 0: not of this form; -1: failed. */
int rg_braces(rg_form *f, const char *s, size_t n, size_t *at, uint32_t range[2]);

/* Up to `digits` hexadecimal digits at s[*at], exactly so many unless loose; false: they are not there. */
bool rg_hex(const char *s, size_t n, size_t *at, int digits, uint32_t *value);

#endif
