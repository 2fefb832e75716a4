/* profile.h -- the profile of this machine for the commands that use one: it is read from the user's cache folder, or
 * measured and kept there. */
#ifndef RG_CLI_PROFILE_H
#define RG_CLI_PROFILE_H

#include "cli/cli.h"
#include "measure/profile.h"
#include "plan/machines.h"

/* anew: measure even if there is a profile.  A profile that cannot be saved is used all the same.  Unless --quiet,
 * standard error says so; the profile of a busy machine is such a one. */
bool cli_profile(rg_profile *out, const cli_common *common, const rg_backend *backend, int n_threads, bool anew,
                 rg_error *err);

/* This machine as one to plan for, from its profile; both, and its title, are borrowed by `out`. */
enum { CLI_HERE_ROOM = 96 };
bool cli_machine_here(rg_plan_machine *out, rg_profile *profile, char title[CLI_HERE_ROOM], const cli_common *common,
                      bool anew, rg_error *err);

#endif
