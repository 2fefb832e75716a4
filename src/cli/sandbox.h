/* sandbox.h -- giving up what a server does not need once it is open: other files (Landlock), other system calls
 * (seccomp), another user's rights.  Linux only; where the kernel lacks one of them, that is an error. */
#ifndef RG_CLI_SANDBOX_H
#define RG_CLI_SANDBOX_H

#include "base/error.h"

enum { CLI_MOST_PLACES = 256 };

/* Files and folders that stay within reach.  Borrowed paths; NULL and what is not there are passed over. */
typedef struct cli_places_left {
    struct {
        const char *path;
        bool write; /* and make, rename, remove below it */
    } at[CLI_MOST_PLACES];
    int n; /* above CLI_MOST_PLACES: too many, which cli_sandbox_enter refuses */
} cli_places_left;

void cli_leave_place(cli_places_left *p, const char *path, bool write);

/* Threads of this process, those there are and those to come, reach the places and no other file, open no connection,
 * listen nowhere else, run no program, make no memory executable, and see no other process.  It cannot be undone. */
bool cli_sandbox_enter(const cli_places_left *p, rg_error *err);

/* Become this user (a name or a number), with its groups; only binding low ports is kept until cli_user_settle.  An
 * error unless started as root. */
bool cli_user_become(const char *user, rg_error *err);
/* All threads give that up, too. */
bool cli_user_settle(rg_error *err);

#endif
