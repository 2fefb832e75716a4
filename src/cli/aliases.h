/* aliases.h -- what people type who know other engines, as data: which option of ours an option of theirs is, or why
 * nothing has to be said here.
 *
 * A command's own options come first, so a name that ridge uses itself never means another program's. */
#ifndef RG_CLI_ALIASES_H
#define RG_CLI_ALIASES_H

#include <stddef.h>

typedef enum cli_alias_kind {
    CLI_ALIAS_OPTION,  /* our option `to` */
    CLI_ALIAS_SAME,    /* likewise; two of these that disagree are an error, because ours is one setting */
    CLI_ALIAS_MODEL,   /* its value is MODEL */
    CLI_ALIAS_NOTHING, /* taken, and nothing changes: `why` is told */
    CLI_ALIAS_REFUSED, /* cannot be done: `why` says what can */
} cli_alias_kind;

/* What follows an option that is not ours.  A switch has a value only if the next word is on, off, auto, 0 or 1. */
typedef enum cli_alias_value { CLI_ALIAS_ALONE, CLI_ALIAS_VALUE, CLI_ALIAS_SWITCH } cli_alias_value;

typedef struct cli_alias {
    const char *name;
    cli_alias_kind kind;
    const char *to;        /* of OPTION and SAME */
    const char *why;       /* of NOTHING and REFUSED, as the end of a sentence */
    cli_alias_value value; /* of NOTHING */
    const char *command;   /* only for this one; NULL: for all */
} cli_alias;

/* The entry for the n bytes at name in a command; NULL: none. */
const cli_alias *cli_alias_find(const char *command, const char *name, size_t n);
/* Entry i, for whoever lists them; NULL: i is past the last. */
const cli_alias *cli_alias_nth(int i);

#endif
