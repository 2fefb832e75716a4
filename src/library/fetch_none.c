/* fetch_none.c -- fetch.h where libcurl is not installed. */
#include "library/fetch.h"

bool rg_fetch_is_there(void)
{
    return false;
}

static bool refuse(rg_error *err)
{
    return rg_fail(err, RG_E_UNSUPPORTED, "this ridge was built without libcurl and fetches nothing: install libcurl's "
                   "development files and build again, or fetch the model with another program");
}

bool rg_fetch_text(const char *url, const rg_fetch_options *o, rg_buf *to, long *status, rg_error *err)
{
    (void)url, (void)o, (void)to;
    *status = 0;
    return refuse(err);
}

bool rg_fetch_file(const char *url, const rg_fetch_options *o, int fd, uint64_t have, uint64_t size, long *status,
                   rg_error *err)
{
    (void)url, (void)o, (void)fd, (void)have, (void)size;
    *status = 0;
    return refuse(err);
}
