/* inner.h -- what the parts of the reader share; see answer.h. */
#ifndef RG_SERVER_TALK_INNER_H
#define RG_SERVER_TALK_INNER_H

#include <string.h>

#include "base/mem.h"
#include "server/talk/answer.h"

enum { RG_MARK_NO = -1, RG_MARK_MAYBE = -2 };

/* The states of the automaton.  Those from RG_S_ITEM on are within calls. */
enum {
    RG_S_START, /* only blanks so far */
    RG_S_WORDS,
    RG_S_THINK,
    RG_S_HEAD, /* of a message */
    RG_S_ITEM, /* before a call */
    RG_S_NAME,
    RG_S_ID,     /* between the name and what ends the call's head */
    RG_S_REST,   /* attributes after the name */
    RG_S_OBJECT, /* in a JSON object that is a call */
    RG_S_ARGS,   /* before the arguments */
    RG_S_JSON,   /* arguments, as JSON */
    RG_S_TAGS,
    RG_S_VALUE, /* of a tag */
    RG_S_LITERAL,
    RG_S_CODE,
    RG_S_TAIL, /* behind the arguments */
    RG_N_STATES
};

static inline bool rg_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static inline const char *rg_rest(const rg_answer *a)
{
    return a->held.data + a->at;
}

static inline size_t rg_n_rest(const rg_answer *a)
{
    return a->held.n - a->at;
}

/* Does s[0, n) begin with the mark, whose blanks are any blanks?  The bytes that it takes, RG_MARK_NO, or, unless
 * nothing follows, RG_MARK_MAYBE: more text decides.  Blanks around the mark do not count. */
int rg_mark_match(const char *mark, const char *s, size_t n, bool last);
/* The answer ends within this mark, which begins at its next byte. */
bool rg_mark_is_cut(const rg_answer *a, const char *mark);
bool rg_mark_is_blank(const char *mark); /* nothing but blanks */

/* Move on over the next n bytes. */
void rg_skip(rg_answer *a, size_t n);
void rg_skip_blanks(rg_answer *a);
void rg_put(rg_answer *a, rg_buf *to, const char *s, size_t n);
/* Text of the answer: reasoning, or content. */
void rg_put_part(rg_answer *a, rg_part_kind kind, const char *s, size_t n);
/* A part more, which begins here. */
void rg_add_part(rg_answer *a, rg_part_kind kind, size_t from);
/* Text as the inside of a JSON text. */
void rg_put_escaped(rg_answer *a, rg_buf *to, const char *s, size_t n);

/* What was held back since a->keep is no call.  Returns true. */
bool rg_no_call(rg_answer *a);
/* The calls between these marks are over. */
bool rg_calls_over(rg_answer *a);

/* The call has a name: it is there from now on.  False: it is not one, or there is no memory. */
bool rg_commit(rg_answer *a, const char *name, size_t n, const char *id, size_t n_id);
rg_tool_call *rg_call_now(rg_answer *a);                                        /* the last one */
const json_t *rg_tool_offered(const json_t *tools, const char *name, size_t n); /* its function; NULL: it is not */

size_t rg_json_scan_feed(rg_json_scan *j, const char *s, size_t n, bool *done);

/* A turn of the automaton in one state: false waits for more text. */
typedef bool rg_turn(rg_answer *a);
rg_turn rg_turn_item, rg_turn_name, rg_turn_id, rg_turn_rest, rg_turn_object, rg_turn_args, rg_turn_json, rg_turn_tags,
    rg_turn_value, rg_turn_literal, rg_turn_code, rg_turn_tail;

void rg_end_code(rg_answer *a); /* source code is whole */
/* An argument that is made of tags (rg_talk_tags.nested), and what it is as JSON.  key: of the argument. */
void rg_put_elements(rg_answer *a, const json_t *function, const char *key, const char *s, size_t n);

/* Read what may be no whole value; *used bytes of s[0, n). */
void rg_loose_begin(rg_loose *l, const char *quote, const json_t *names, bool python);
size_t rg_loose_feed(rg_answer *a, rg_loose *l, const char *s, size_t n, rg_buf *out);

/* What a tool's schema lets an argument be. */
enum {
    RG_IS_TEXT = 1,
    RG_IS_WHOLE = 2,
    RG_IS_NUMBER = 4,
    RG_IS_BOOL = 8,
    RG_IS_NULL = 16,
    RG_IS_OBJECT = 32,
    RG_IS_LIST = 64,
    RG_IS_ANY = 127,
    RG_IS_BOUND = 128 /* a text with a rule for it */
};
unsigned rg_property_types(const json_t *root, const json_t *schema);
unsigned rg_argument_types(const json_t *function, const char *key, size_t n);

#endif
