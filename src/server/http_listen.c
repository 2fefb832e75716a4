/* http_listen.c -- the listener: a thread that accepts connections and hands them to the library.
 *
 * The library could accept them itself, but each of its threads that has no connection tries again at once when no file
 * can be opened, and a thread that has some stops accepting until one of its own ends.  Here whoever comes waits in the
 * kernel's queue: while as many are connected as may be, until one leaves; while no file can be opened, until a later
 * attempt, ten a second.
 *
 * One of the library's threads makes the connection, later.  If it has no memory, it closes the socket and tells
 * nobody.  So, while as many are connected as may be, those that have not begun for a second are counted as gone. */
#define _GNU_SOURCE 1 /* accept4 */
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "server/http_inner.h"

enum {
    REST_MS = 100,    /* after an attempt that failed for want of a file or of memory; and between looks */
    LOST_LOOKS = 10,  /* at connections that have not begun, until they are given up */
};

static bool refuse(rg_http *h, const char *why, rg_error *err)
{
    if (h->listener.fd >= 0)
        close(h->listener.fd);
    h->listener.fd = -1;
    return rg_fail(err, RG_E_IO, "cannot listen on %s port %d: %s", h->o.host, (int)h->o.port, why);
}

bool rg_listener_open(rg_http *h, const struct sockaddr *address, size_t n_address, bool *taken, rg_error *err)
{
    const int on = 1;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own = { .any = { 0 } };
    socklen_t n = sizeof own;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    *taken = false;
    h->listener.fd = fd;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        (address->sa_family == AF_INET6 && setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on)))
        return refuse(h, strerror(errno), err);
    if (bind(fd, address, (socklen_t)n_address) || listen(fd, SOMAXCONN)) {
        *taken = errno == EADDRINUSE;
        return refuse(h, *taken ? "another program has this port" : strerror(errno), err);
    }
    if (getsockname(fd, &own.any, &n))
        return refuse(h, strerror(errno), err);
    h->port = ntohs(own.any.sa_family == AF_INET6 ? own.v6.sin6_port : own.v4.sin_port);
    return true;
}

/* Accept one connection, if one is there.  False: there was no file or no memory for it. */
static bool accept_one(rg_http *h)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    int fd = accept4(h->listener.fd, (struct sockaddr *)&from, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd < 0) /* the first four: its client left */
        return errno == ECONNABORTED || errno == EPROTO || errno == EAGAIN || errno == EINTR;
    atomic_fetch_add(&h->listener.n_open, 1); /* before its beginning and its end can be told */
    atomic_fetch_add(&h->listener.n_fresh, 1);
    if (MHD_add_connection(h->daemon, fd, (struct sockaddr *)&from, n) == MHD_YES)
        return true;
    atomic_fetch_sub(&h->listener.n_fresh, 1); /* the library has closed it */
    atomic_fetch_sub(&h->listener.n_open, 1);
    return false;
}

/* A look at those that have not begun, REST_MS after the last one. */
static void give_up_lost(rg_listener *l)
{
    int n = atomic_load(&l->n_fresh);

    l->n_looks = n == l->n_seen ? l->n_looks + 1 : 0;
    l->n_seen = n;
    if (n > 0 && l->n_looks >= LOST_LOOKS && atomic_compare_exchange_strong(&l->n_fresh, &n, 0)) {
        atomic_fetch_sub(&l->n_open, n);
        rg_log(RG_LOG_WARN, "http: %d connections were lost, probably for want of memory", n);
    }
}

static void *run(void *arg)
{
    rg_http *h = arg;
    rg_listener *l = &h->listener;
    bool rests = false, said = false;
    eventfd_t n;

    while (!atomic_load(&l->stops)) {
        struct pollfd p[] = { { .fd = l->wake, .events = POLLIN }, { .fd = l->fd, .events = POLLIN } };
        bool full = atomic_load(&l->n_open) >= h->o.max_connections;

        bool looks = full && atomic_load(&l->n_fresh) > 0;

        if (!poll(p, full || rests ? 1 : 2, rests || looks ? REST_MS : -1) && looks)
            give_up_lost(l);
        rests = false;
        if (p[0].revents)
            eventfd_read(l->wake, &n);
        if (!p[1].revents)
            continue;
        rests = !accept_one(h);
        if (rests && !said)
            rg_log(RG_LOG_WARN, "http: new connections wait: %s", strerror(errno));
        said = rests;
    }
    return NULL;
}

bool rg_listener_start(rg_http *h, rg_error *err)
{
    rg_listener *l = &h->listener;

    l->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (l->wake < 0)
        return refuse(h, strerror(errno), err);
    l->runs = !pthread_create(&l->thread, NULL, run, h);
    return l->runs || refuse(h, "no thread for it", err);
}

/* One that was given up may begin after all: it is counted again. */
void rg_listener_began(rg_http *h)
{
    if (atomic_fetch_sub(&h->listener.n_fresh, 1) > 0)
        return;
    atomic_fetch_add(&h->listener.n_fresh, 1);
    atomic_fetch_add(&h->listener.n_open, 1);
}

void rg_listener_left(rg_http *h)
{
    if (atomic_fetch_sub(&h->listener.n_open, 1) == h->o.max_connections)
        eventfd_write(h->listener.wake, 1);
}

void rg_listener_stop(rg_http *h)
{
    rg_listener *l = &h->listener;

    if (l->runs) {
        atomic_store(&l->stops, true);
        eventfd_write(l->wake, 1);
        pthread_join(l->thread, NULL);
    }
    if (l->fd >= 0)
        close(l->fd);
    l->runs = false;
    l->fd = -1;
}
