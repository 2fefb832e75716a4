/* hosted.c -- see hosted.h. */
#include "api/hosted.h"

bool rg_hosted_open(rg_hosted *h, rg_host *given, int n_threads, rg_error *err)
{
    if (!given)
        h->own = rg_host_new(n_threads, 0, err);
    h->host = given ? given : h->own;
    return h->host;
}

void rg_hosted_close(rg_hosted *h)
{
    if (h->host)
        rg_host_give(h->host, h->taken);
    rg_host_free(h->own);
    *h = (rg_hosted){ 0 };
}

bool rg_hosted_take(rg_hosted *h, uint64_t bytes, const char *what, rg_error *err)
{
    if (!rg_host_take(h->host, bytes, what, err))
        return false;
    h->taken += bytes;
    return true;
}

bool rg_hosted_take_file(rg_hosted *h, const rg_checkpoint *ckpt, rg_error *err)
{
    uint64_t bytes = 0;

    for (int i = 0; i < rg_checkpoint_n_tensors(ckpt); i++) {
        const rg_tensor *t = rg_checkpoint_tensor(ckpt, i);

        bytes += t->file == RG_FILE_COMPOSED ? 0 : t->bytes; /* made of others, which count */
    }
    return rg_hosted_take(h, bytes, rg_checkpoint_path(ckpt), err);
}

bool rg_hosted_take_instead(rg_hosted *h, uint64_t bytes, const char *what, rg_error *err)
{
    rg_host_give(h->host, h->taken);
    h->taken = 0;
    return rg_hosted_take(h, bytes, what, err);
}

/* ---- the public side --------------------------------------------------------------------------------------------- */

rg_host *rg_host_open(const rg_host_options *options, rg_error *err)
{
    const rg_host_options o = options ? *options : (rg_host_options){ 0 };

    if (o.n_threads < 0)
        return rg_fail(err, RG_E_USAGE, "n_threads is %d: want 0 or more", (int)o.n_threads), NULL;
    return rg_host_new(o.n_threads ? o.n_threads : rg_cores(), o.memory_bytes, err);
}

void rg_host_close(rg_host *host)
{
    rg_host_free(host);
}
