/* profile.c -- see profile.h. */
#include "cli/profile.h"

#include <stdio.h>
#include <unistd.h>

#include "base/pool.h"
#include "cli/speed.h"

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

static double memory_here(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (double)pages * (double)page : 0;
}

bool cli_machine_here(rg_plan_machine *out, rg_profile *profile, char title[CLI_HERE_ROOM], const cli_common *common,
                      bool anew, rg_error *err)
{
    const rg_backend *backend = rg_backend_find(common->isa, err);
    int n = common->threads ? common->threads : rg_cores();

    if (!backend || !cli_profile(profile, common, backend, n, anew, err))
        return false;
    snprintf(title, CLI_HERE_ROOM, "this machine (%s, %d thread%s)", backend->name, n, n > 1 ? "s" : "");
    *out = (rg_plan_machine){ .name = "here", .title = title, .memory_bytes = memory_here(), .chips = 1,
                              .chunk = SPEED_ROWS, .m = { profile->roofs, &profile->rates } };
    return true;
}
