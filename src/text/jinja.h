/* jinja.h -- chat templates: the Jinja2 that published checkpoints use, in the environment that transformers renders
 * them in (trim_blocks, lstrip_blocks, loop controls, a sandbox, its own tojson, raise_exception and strftime_now).
 *
 * A template is an untrusted program: it is parsed without recursion, it reaches only the values it is given,
 * attributes that start with an underscore do not exist, and every render has a budget of steps, bytes and depth.
 * Strings carry their provenance (provenance.h) through every filter, method, slice, join and format.  A parsed
 * template is immutable and may be rendered by several threads at once.  Knows no tokenizer. */
#ifndef RG_TEXT_JINJA_H
#define RG_TEXT_JINJA_H

#include <jansson.h>

#include "text/provenance.h"

typedef struct rg_jinja rg_jinja;

/* Caps of a template and of one render.  A render that meets one is refused. */
enum {
    RG_JINJA_SOURCE_BYTES = 1 << 18,
    RG_JINJA_DEPTH = 200, /* of nested brackets and blocks in the source; of calls while rendering */
    RG_JINJA_STEPS = 3 << 17,
    RG_JINJA_BYTES = 20 << 20, /* of the output, and of all strings made on the way */
};

/* NULL and *err, which names the line, if it cannot be understood. */
rg_jinja *rg_jinja_parse(const char *source, size_t n, rg_error *err);
void rg_jinja_free(rg_jinja *j); /* NULL is fine */

/* What a render used of its budgets; if it was refused, its last demand is counted too. */
typedef struct rg_jinja_cost {
    size_t bytes, steps;
} rg_jinja_cost;

/* What a render is given; borrowed for the call. */
typedef struct rg_jinja_input {
    const json_t *trusted; /* object: the checkpoint's variables; may be NULL */
    const json_t *foreign; /* object: messages, tools, extra variables, in which only messages[i].role is trusted */
    int64_t now_s;         /* seconds since 1970, local time, for strftime_now */
    rg_jinja_cost *cost;   /* filled at the end; NULL: nobody asks */
} rg_jinja_input;

/* Append the rendered text to out.  False and *err: an error of the template (raise_exception's own words included), a
 * budget, or no memory. */
bool rg_jinja_render(const rg_jinja *j, const rg_jinja_input *input, rg_text *out, rg_error *err) RG_MUST_CHECK;

#endif
