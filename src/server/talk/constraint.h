/* constraint.h -- what a request says its answer must be. */
#ifndef RG_SERVER_TALK_CONSTRAINT_H
#define RG_SERVER_TALK_CONSTRAINT_H

#include <jansson.h>

#include "server/refusal.h"

/* What the answer must be; name NULL: anything. */
typedef struct rg_constraint {
    const char *name; /* of the field that says so */
    rg_grammar_kind kind;
    char *text; /* its source, owned */
    size_t n;
    bool open_objects; /* a JSON schema that is not strict */
} rg_constraint;

/* response_format and its kin at `v`, called `name` (a literal); one of them at most may constrain the answer. */
bool rg_constraint_read(rg_constraint *c, const json_t *v, const char *name, rg_refusal *e);
void rg_constraint_fini(rg_constraint *c);

#endif
