/* everywhere.c -- linked into a test program (-Wl,--wrap), it makes the far back end the only one that there is: models
 * are placed by it and steps computed by it, whatever instruction set is asked for. */
#include "support/far/far.h"

const rg_backend *__real_rg_backend_find(const char *name, rg_error *err);
const rg_backend *__wrap_rg_backend_find(const char *name, rg_error *err);
const rg_backend *__wrap_rg_backend_nth(int i);

const rg_backend *__wrap_rg_backend_find(const char *name, rg_error *err)
{
    return __real_rg_backend_find(name, err) ? far_backend() : NULL;
}

const rg_backend *__wrap_rg_backend_nth(int i)
{
    return i == 0 ? far_backend() : NULL;
}
