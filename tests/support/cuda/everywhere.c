/* everywhere.c -- linked into a test program (-Wl,--wrap), it makes CUDA the only back end that there is: models are placed by it
 * and steps computed by it, whatever instruction set is asked for. */
#include "ops/backend.h"

const rg_backend *rg_cuda_backend(int i);
const rg_backend *__wrap_rg_backend_find(const char *name, rg_error *err);
const rg_backend *__wrap_rg_backend_nth(int i);

const rg_backend *__wrap_rg_backend_find(const char *name, rg_error *err)
{
    const rg_backend *b = rg_cuda_backend(0);

    if (!b)
        rg_fail(err, RG_E_UNSUPPORTED, "no driver of a GPU is found, in place of '%s'", name);
    return b;
}

const rg_backend *__wrap_rg_backend_nth(int i)
{
    return rg_cuda_backend(i);
}
