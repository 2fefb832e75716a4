/* postprocess.c -- see postprocess.h. */
#include "text/postprocess.h"

#include <string.h>

bool rg_around_before(rg_around *a, int32_t id, rg_error *err)
{
    if (a->n_before == RG_AROUND_CAP)
        return rg_fail(err, RG_E_UNSUPPORTED, "more than %d ids before a text", RG_AROUND_CAP);
    memmove(a->before + 1, a->before, (size_t)a->n_before++ * sizeof *a->before);
    a->before[0] = id;
    return true;
}

bool rg_around_after(rg_around *a, int32_t id, rg_error *err)
{
    if (a->n_after == RG_AROUND_CAP)
        return rg_fail(err, RG_E_UNSUPPORTED, "more than %d ids after a text", RG_AROUND_CAP);
    a->after[a->n_after++] = id;
    return true;
}
