/* syscalls.h -- the system calls that a server makes once it is open; all others are refused. */
#ifndef RG_CLI_SYSCALLS_H
#define RG_CLI_SYSCALLS_H

#include "base/error.h"

/* From now on all threads may make only these; others fail with EPERM, as do starting a program, mapping memory as
 * executable, and making a process.  no_new_privs is set already. */
bool cli_filter_syscalls(rg_error *err);

#endif
