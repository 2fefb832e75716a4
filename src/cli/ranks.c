/* ranks.c -- the processes of --ranks. */
#include "cli/cli.h"
#include "model/rank_calls.h"

static rg_ranks *started;
static bool by_mpi; /* and this is rank 0 */

bool cli_ranks_join(bool *follows, int host_ranks, int delay_us, rg_error *err)
{
    by_mpi = rg_ranks_join(&started, host_ranks, (uint64_t)delay_us * 1000, err);
    *follows = by_mpi && !started;
    return by_mpi;
}

void cli_ranks_stop(void)
{
    rg_ranks_stop(started);
    started = NULL;
}

bool cli_ranks_start(cli_common *c, rg_error *err)
{
    if (by_mpi && c->ranks && c->ranks != rg_ranks_link(started)->n)
        return rg_fail(err, RG_E_USAGE, "--ranks %d: mpirun has started %d; leave it out", (int)c->ranks,
                       rg_ranks_link(started)->n);
    if (c->ranks > 1 && !started)
        started = rg_ranks_start(c->ranks, err);
    if (c->ranks > 1 && !started)
        return false;
    if (started && c->threads < 1)
        c->threads = rg_ranks_threads(started);
    return true;
}

int cli_ranks_best(uint64_t weight_bytes)
{
    return rg_ranks_best(weight_bytes);
}

rg_ranks *cli_ranks(void)
{
    return started;
}
