/* answer.h -- splits what a model writes, as it comes, into reasoning, text and calls of tools.
 *
 * A finite automaton over the text, by the description of the model's family (talk.h).  A mark may be cut anywhere, so
 * text that could still become one is held back.  A call is there as soon as its name is certain, and its arguments
 * grow as they come; text that looks like a call but has no name stays text.  What has been given out is never taken
 * back.  Time is linear in the text.  Knows no HTTP and no tokens. */
#ifndef RG_SERVER_TALK_ANSWER_H
#define RG_SERVER_TALK_ANSWER_H

#include <jansson.h>

#include "base/buf.h"
#include "server/talk/talk.h"

enum { RG_CALL_NAME = 256, RG_CALL_ID = RG_CALL_NAME + 48, RG_MAX_TOOL_CALLS = 128, RG_CALL_DEPTH = 64 };

typedef struct rg_tool_call {
    char id[RG_CALL_ID];
    char name[RG_CALL_NAME + 1];
    rg_buf arguments; /* JSON, so far; of a call that is cut, the beginning of it */
    bool done;        /* the arguments are whole */
    bool cut;         /* the answer ended within it */
} rg_tool_call;

/* What an answer is made of, in the order in which it came. */
typedef enum rg_part_kind { RG_PART_REASONING, RG_PART_TEXT, RG_PART_CALL } rg_part_kind;

typedef struct rg_talk_part {
    rg_part_kind kind;
    size_t from, n; /* bytes [from, from + n) of the reasoning or the content; of a call: its number, and 0 */
    size_t token;   /* the answer's token with which it began */
} rg_talk_part;

/* Where an answer begins: the prompt may have opened its reasoning, or the head of its message. */
typedef enum rg_talk_start { RG_START_PLAIN, RG_START_THINKING, RG_START_HEAD } rg_talk_start;

/* A value of JSON, byte by byte. */
typedef struct rg_json_scan {
    int depth;
    bool begun, inside, escaped, scalar;
} rg_json_scan;

/* Values as Python writes them, or with special quotes, on the way to JSON. */
typedef struct rg_loose {
    const char *quote;   /* around texts; NULL: ' or ", as in Python */
    const json_t *names; /* the properties of the tool, for arguments without a name */
    rg_buf word;         /* of a name or a number that goes on */
    char stack[RG_CALL_DEPTH];
    int depth, n_values, n_hex;
    char in; /* the quote of the text that is open; 0: none */
    bool escaped, value, done;
    unsigned code, hex_left;
} rg_loose;

typedef struct rg_answer {
    rg_buf reasoning, content; /* all of it so far */
    rg_tool_call *call;
    int n_calls, calls_room;
    rg_talk_part *part; /* [n_parts]; only the last one grows */
    size_t n_parts, parts_room;
    size_t token; /* how many tokens were read before this one: the caller counts them */
    /* Set after rg_answer_init. */
    bool marked;     /* calls come only between marks: JSON alone is text */
    bool calls_only; /* what may be the beginning of a call when the answer ends is no text */
    int id_chars;    /* of a call's id, letters and digits alone; 0: as usual */
    int n_earlier;   /* calls of the conversation so far, for families that number them */
    bool failed;     /* no memory */
    uint64_t work;   /* bytes read or moved so far: a test counts that it is linear in the text */
    /* Its own. */
    const rg_talk *talk;
    const json_t *tools; /* NULL: calls are not looked for */
    rg_buf held;
    size_t at, keep, scanned; /* held[at ..) is not classified; held[keep .. at) may be text yet; looked at up to */
    size_t mark;              /* the mark that may begin a call is at held[mark] */
    int state;
    bool last, drop_blanks, in_message, in_text, in_thought, bare_head, list, committed, streams, reasoned;
    unsigned forms; /* a bit for each form that a call may have */
    const rg_talk_form *form;
    const char *think_open; /* of the reasoning that is open; NULL: the prompt opened it */
    int phase, nest, role, calls_before;
    rg_buf key, value, name; /* of what is being read; JSON without its quotes */
    rg_json_scan scan;
    rg_loose literal;
    bool first[256]; /* bytes that marks begin with */
} rg_answer;

/* tools (borrowed, in the form of chat completions; may be NULL) and talk outlive the answer. */
void rg_answer_init(rg_answer *a, const rg_talk *talk, const json_t *tools, rg_talk_start start, size_t cap);
void rg_answer_fini(rg_answer *a);
void rg_answer_feed(rg_answer *a, const char *text, size_t n);
void rg_answer_end(rg_answer *a, const char *text, size_t n); /* the last text: nothing follows */
bool rg_answer_is_reasoning(const rg_answer *a);

/* Closes the beginning of a JSON object: an incomplete value at its end is dropped.  rg_free it; NULL: no memory, or s
 * does not begin an object. */
char *rg_arguments_close(const char *s);

#endif
