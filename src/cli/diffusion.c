/* diffusion.c -- see diffusion.h. */
#include "cli/diffusion.h"

bool cli_diffusion_finish(cli_diffusion *v, rg_error *err)
{
    int order = v->remasking ? rg_remasking_find(v->remasking) : RG_REMASKING_DEFAULT;
    int cache = v->cache ? rg_diffusion_cache_find(v->cache) : RG_CACHE_NONE;

    if (order < 0)
        return rg_fail(err, RG_E_USAGE, "remasking '%.20s' is not one of low_confidence, entropy, margin, sequential, "
                       "dynamic", v->remasking);
    if (cache < 0)
        return rg_fail(err, RG_E_USAGE, "diffusion-cache '%.20s' is not one of none, prefix, dual", v->cache);
    v->p.remasking = (rg_remasking)order;
    v->p.cache = (rg_diffusion_cache)cache;
    return true;
}
