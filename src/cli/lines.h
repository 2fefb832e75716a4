/* lines.h -- lines that a person types: edited and remembered on a terminal (libedit), plain from a pipe. */
#ifndef RG_CLI_LINES_H
#define RG_CLI_LINES_H

#include "base/buf.h"

typedef struct cli_lines cli_lines;

/* Standard input.  history: the file that keeps lines from one time to the next; NULL: none.  NULL: no memory. */
cli_lines *cli_lines_open(const char *history);
/* Keeps the history, if there was a line; what is typed counts for more than a full disk.  NULL is fine. */
void cli_lines_close(cli_lines *l);

bool cli_lines_on_terminal(const cli_lines *l);

typedef enum cli_line { CLI_LINE_READ, CLI_LINE_END, CLI_LINE_INTERRUPTED } cli_line;

/* The next line into `to`, without its end.  On a terminal the prompt stands before it, on standard error where lines
 * are not edited.  CLI_LINE_INTERRUPTED: Ctrl-C, which is cleared. */
cli_line cli_lines_next(cli_lines *l, const char *prompt, rg_buf *to);
/* A line, or several that belong together, for the history. */
void cli_lines_remember(cli_lines *l, const char *text);

#endif
