/* http.c -- opening and closing what serves HTTP.  Only this room uses sockets. */
#include "server/http/http.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/http/inner.h"

rg_http *rg_http_open(const rg_http_options *o, rg_error *err)
{
    rg_http *h = rg_zalloc(sizeof *h);

    if (!h)
        return rg_fail_memory(err, sizeof *h), NULL;
    h->o = *o;
    h->listener.wake = -1;
    if (o->tls_cert && !(h->tls = rg_tls_new(o->tls_cert, o->tls_key, err)))
        goto fail;
    if (rg_listener_open(h, err) && rg_http_loops_start(h, err) && rg_listener_start(h, err))
        return h;

fail:
    rg_http_close(h);
    return NULL;
}

int32_t rg_http_port(const rg_http *h)
{
    return h->port;
}

const char *rg_http_url(const rg_http *h)
{
    return h->url;
}

void rg_http_flush(rg_http *h, double most_s)
{
    const struct timespec pause = { .tv_nsec = 2000000 };
    uint64_t from = rg_now_ns();

    while (atomic_load(&h->n_unsent) && rg_seconds(from, rg_now_ns()) < most_s)
        nanosleep(&pause, NULL);
}

void rg_http_close(rg_http *h)
{
    if (!h)
        return;
    rg_listener_stop(h);
    rg_http_loops_stop(h);
    if (h->listener.wake >= 0)
        close(h->listener.wake); /* the last connection told it that it left */
    rg_tls_free(h->tls);
    rg_free(h);
}
