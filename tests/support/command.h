/* command.h -- `ridge ARGS` as users and programs run it: exit statuses, JSON, errors of one line. */
#ifndef RG_TEST_COMMAND_H
#define RG_TEST_COMMAND_H

#include <jansson.h>

#include "support/test.h"

/* What the last one printed; cut where it is longer than a test can want. */
extern char command_out[1 << 22], command_err[4096];

/* Run it through the shell; its exit status. */
int command_run(const char *args);
/* The JSON document that a successful run prints, and nothing else.  json_decref it. */
json_t *command_json(const char *args);
/* A refusal: this status, one line that starts with "ridge: " and names `about`. */
void command_refuses(const char *args, int status, const char *about);

#endif
