/* answer.h -- splits what a model writes, as it comes, into reasoning, text and tool calls.
 *
 * Models mark these in a handful of ways (tools.c); a mark may be cut anywhere, so text that could still become one is
 * held back.  A call is given out whole, once it is complete; text that looks like a call but is none stays text.  Time
 * is linear in the text.  Knows no HTTP and no tokens. */
#ifndef RG_SERVER_ANSWER_H
#define RG_SERVER_ANSWER_H

#include <jansson.h>

#include "base/buf.h"

enum { RG_CALL_ID = 40 };

typedef struct rg_tool_call {
    char id[RG_CALL_ID];
    char *name;      /* rg_free */
    char *arguments; /* JSON; of a call that is cut, the beginning of it */
    bool cut;        /* the answer ended within it */
} rg_tool_call;

enum { RG_MAX_TOOL_CALLS = 128, RG_ANSWER_CALL_MAX = 1 << 30 };

typedef struct rg_answer {
    rg_buf reasoning, content; /* all of it so far */
    rg_tool_call *call;
    int n_calls, calls_room;
    /* its own */
    rg_buf held;               /* not classified yet */
    size_t scanned;            /* of held, for the end of a call */
    int state;
    const struct rg_tool_mark *mark;
    const json_t *tools;       /* the tools offered; NULL: calls are not looked for */
    bool marked;               /* calls come only between marks: JSON alone is text.  False at first */
    int id_chars;              /* of a call's id, letters and digits alone; 0: as usual.  Set after rg_answer_init */
    bool failed;               /* no memory */
    uint64_t work;             /* bytes read or moved so far: a test counts that it is linear in the text */
} rg_answer;

/* tools (borrowed, in the form of chat completions; may be NULL) outlives the answer.  reasoning_first: the prompt ends
 * within the model's reasoning. */
void rg_answer_init(rg_answer *a, const json_t *tools, bool reasoning_first, size_t cap);
void rg_answer_fini(rg_answer *a);
void rg_answer_feed(rg_answer *a, const char *text, size_t n);
void rg_answer_end(rg_answer *a); /* nothing follows */
bool rg_answer_is_reasoning(const rg_answer *a);
bool rg_answer_is_call(const rg_answer *a); /* a mark has opened a call that is not complete */
/* Append what is held back, if it may be the beginning of a call; false: no memory. */
bool rg_answer_open_call(const rg_answer *a, rg_buf *to);

/* ---- the ways to write calls (tools.c) ---- */

/* Read all calls in text[0, n) and add them to a.  False, and nothing added: some of it is not a call. */
typedef bool rg_tool_reader(rg_answer *a, const char *text, size_t n);

typedef struct rg_tool_mark {
    const char *open, *close; /* close NULL: to the end of the answer */
    rg_tool_reader *read;     /* of what is between, opening mark not included */
} rg_tool_mark;

extern const rg_tool_mark rg_tool_marks[]; /* ends with an open of NULL */
rg_tool_reader rg_tools_bare;              /* an answer that is JSON as a whole, of tools that were offered */

/* Add one call; false: it has no name, there are too many, or (a->failed) there is no memory. */
bool rg_answer_add_call(rg_answer *a, const char *name, size_t n_name, const char *arguments, size_t n_arguments);

/* The length of the object or list at the start of s; 0: there is none, or it does not end. */
size_t rg_tools_bracketed(const char *s, size_t n);

/* The complete arguments <parameter=KEY>VALUE</parameter>, one after another; *s and *n become what follows them.
 * NULL: no memory. */
json_t *rg_tools_read_tags(const json_t *function, const char **s, size_t *n);

/* Closes the beginning of a JSON object: an incomplete value at its end is dropped.  rg_free it; NULL: no memory, or s
 * does not begin an object. */
char *rg_tools_close(const char *s);

#endif
