/* profile.c -- see profile.h. */
#include "cli/profile.h"

#include <stdio.h>

static void show(void *quiet, double done)
{
    cli_progress(quiet, "measuring this machine", done);
}

static bool measure(rg_profile *out, const cli_common *common, const rg_backend *backend, int n_threads, rg_error *err)
{
    rg_error why = { 0 };
    void *quiet = common->quiet || common->json ? out : NULL;

    if (!rg_profile_measure(out, backend, n_threads, RG_PROFILE_MOST_S, show, quiet, err))
        return false;
    if (cli_profile_folder && !rg_profile_save(out, cli_profile_folder, backend, &why) && !common->quiet)
        fprintf(stderr, "ridge: the profile of this machine is not kept: %s\n", why.text);
    return true;
}

bool cli_profile(rg_profile *out, const cli_common *common, const rg_backend *backend, int n_threads, bool anew,
                 rg_error *err)
{
    bool have = !anew && cli_profile_folder && rg_profile_load(out, cli_profile_folder, backend, n_threads);

    return have || measure(out, common, backend, n_threads, err);
}
