/* tool_kinds.h -- tools that are no plain functions: as what each is offered to a model, and the items of the Responses
 * API that stand for its calls and their results.
 *
 * A model calls functions with JSON.  A tool of another kind is therefore offered as a function: by the name and the
 * schema of its row, or by its own.  A call of it is answered as an item of the row's type, and such an item in a
 * history is read back as the same call.  Knows no conversation. */
#ifndef RG_SERVER_TALK_TOOL_KINDS_H
#define RG_SERVER_TALK_TOOL_KINDS_H

#include "server/talk/constraint.h"
#include "server/json.h"

/* What an item says of the call's arguments. */
typedef enum rg_tool_says {
    RG_SAYS_JSON,   /* all of them, as JSON in a text */
    RG_SAYS_INPUT,  /* the argument "input", a free text */
    RG_SAYS_OBJECT, /* all of them, as an object */
} rg_tool_says;

typedef struct rg_tool_kind {
    const char *tool;           /* its type */
    const char *call, *output;  /* types of items */
    const char *id;             /* what the ids of such items begin with */
    const char *name;           /* by which it is offered; NULL: its own */
    const char *about, *schema; /* its description and its parameters, as JSON; NULL: its own */
    const char *member;         /* of the item, that holds the arguments */
    rg_tool_says says;
    const char *fixed;        /* JSON: what such an object always has, and the model is not asked for; NULL: nothing */
    const char *delta, *done; /* types of the events by which the arguments are streamed; NULL: they come whole */
} rg_tool_kind;

extern const rg_tool_kind rg_tool_kinds[]; /* ends with a tool of NULL; the first is a function */

/* By the type of a tool, of an item for a call, or of an item for its output.  NULL: there is none. */
const rg_tool_kind *rg_tool_kind_of(const char *tool);
const rg_tool_kind *rg_tool_kind_of_call(const char *item);
const rg_tool_kind *rg_tool_kind_of_output(const char *item);

enum { RG_FLAT_NAME = 257 };
/* The name by which a namespace's tool is offered; namespace NULL: its own. */
void rg_tool_flat_name(char out[RG_FLAT_NAME], const char *namespace, const char *name);

/* The arguments that an item for a call says, a text or an object; NULL: it says none, or there is no memory. */
json_t *rg_tool_kind_arguments(const rg_tool_kind *k, const json_t *item);

/* The member of an item that holds these arguments: JSON, or the beginning of it if the call is cut. */
void rg_tool_kind_write(rg_buf *b, const rg_tool_kind *k, const char *arguments, bool cut);

/* The free text within {"input": "..."}, as it comes. */
typedef struct rg_input_scan {
    size_t at; /* bytes of the arguments that were read */
    int state;
    unsigned high; /* the first half of a pair of escapes; 0: none */
} rg_input_scan;

/* Read on in s[0, n), all of the arguments so far, and append to out what they say more. */
void rg_input_read_on(rg_input_scan *scan, const char *s, size_t n, rg_buf *out);

#endif
