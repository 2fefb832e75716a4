/* constraint.h -- the flags that say what an answer must be. */
#ifndef RG_CLI_CONSTRAINT_H
#define RG_CLI_CONSTRAINT_H

#include "cli/cli.h"

typedef struct cli_constraint {
    const char *file;
    bool open_objects;
} cli_constraint;

#define CLI_CONSTRAINT_OPTIONS(v)                                                                                      \
    { "--grammar", CLI_STRING, &(v).file, "FILE",                                                                      \
      "what the answer must be: FILE.gbnf, .lark, .json (a JSON schema) or .regex" },                                  \
    { "--open-objects", CLI_FLAG, &(v).open_objects, NULL,                                                             \
      "a schema's objects may have properties that it does not list" }

/* The grammar of --grammar, which the caller closes; *out NULL: none was given.  False and *err: it cannot be read. */
bool cli_constraint_open(const cli_constraint *v, const rg_engine *e, rg_grammar **out, rg_error *err);

#endif
