/* rounds.c -- see rounds.h. */
#include "measure/rounds.h"

#include <string.h>

#include "base/clock.h"
#include "base/quantile.h"

void rg_rounds_begin(rg_rounds *r)
{
    RG_ASSERT(r->n_rounds < RG_ROUNDS);
    r->n_rounds++;
    r->n_times = 0;
}

bool rg_rounds_late(const rg_rounds *r)
{
    return r->until_ns && r->n_rounds > 1 && rg_now_ns() > r->until_ns;
}

/* The times that it did not get to have those of the rounds before. */
void rg_rounds_give_up(rg_rounds *r)
{
    RG_ASSERT(r->n_rounds > 1);
    r->n_rounds--;
}

/* The rounds of one time so far, sorted. */
static void sorted(const rg_rounds *r, int i, double out[RG_ROUNDS])
{
    memcpy(out, r->time[i], (size_t)r->n_rounds * sizeof *out);
    rg_quantile(out, r->n_rounds, 0);
}

double rg_rounds_median(rg_rounds *r, double seconds)
{
    double v[RG_ROUNDS];

    if (r->n_times == RG_ROUNDS_TIMES)
        return seconds;
    r->time[r->n_times][r->n_rounds - 1] = seconds;
    sorted(r, r->n_times++, v);
    return rg_quantile(v, r->n_rounds, 0.5);
}

double rg_rounds_spread(const rg_rounds *r)
{
    double spread[RG_ROUNDS_TIMES], v[RG_ROUNDS];
    int n = 0;

    for (int i = 0; i < r->n_times && r->n_rounds >= 3; i++) {
        sorted(r, i, v);
        double median = rg_quantile(v, r->n_rounds, 0.5);
        if (median > 0)
            spread[n++] = (v[r->n_rounds - 2] - v[1]) / median;
    }
    return n ? rg_quantile(spread, n, 0.5) : 0;
}
