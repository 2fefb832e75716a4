/* options.h -- one option: finding it by its name, and setting it from a text, wherever that comes from. */
#ifndef RG_CLI_OPTIONS_H
#define RG_CLI_OPTIONS_H

#include "cli/cli.h"

/* Options that every subcommand takes; ends with a NULL name. */
extern const cli_option cli_common_options[];
/* What they hold: reset it for a command, and read it. */
void cli_common_reset(const cli_command *command);
cli_common cli_common_now(void);
/* --config; NULL: not given. */
const char *cli_config_given(void);

/* The option of that name, n bytes; NULL: the command has none. */
const cli_option *cli_option_find(const cli_args *a, const char *name, size_t n);
/* Call visit with each, the command's own first. */
void cli_option_each(const cli_option *own, cli_option_visitor *visit, void *arg);

/* A value, and where it came from. */
typedef struct cli_given {
    const char *where; /* for messages: the command, a line of a file, a variable */
    const char *value; /* NULL: a flag alone */
    cli_source source;
    bool again; /* one more value of a list in a file */
    bool same;  /* must not differ from one that was given before */
} cli_given;

/* Set it, unless it was set by a source that goes before this one.  False: the value is wrong, or the second one in the
 * same place of a file. */
bool cli_option_set(cli_args *a, const cli_option *o, const cli_given *g, rg_error *err);

/* What a flag alone says for NULL, or true, false, 1, 0, on, off, yes, no in any case; false: s is none of them. */
bool cli_parse_flag(const char *s, bool *out);

/* Say that an option of another program changes nothing, unless --quiet. */
void cli_tell_ignored(const char *name, const char *why);

/* True if the command's first argument is a model; true if it may be left out. */
bool cli_takes_model(const cli_command *c);
bool cli_model_is_optional(const cli_command *c);

#endif
