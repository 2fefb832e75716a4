/* listen.c -- the listener: where to listen, and a thread that accepts connections and hands them to the loops.
 *
 * While as many are connected as may be, whoever comes waits in the kernel's queue until one leaves; while no file can
 * be opened, or there is no memory, until a later attempt, ten a second. */
#define _GNU_SOURCE 1 /* accept4 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/http/inner.h"

enum { REST_MS = 100 }; /* after an attempt that failed for want of a file or of memory */

/* What one --host means.  `also` is listened on besides where the machine has it; if it cannot be had for another
 * reason, then `must` says whether that is an error. */
static const struct place {
    const char *host, *first, *also;
    bool must;
} places[] = {
    { NULL, "127.0.0.1", "::1", false }, /* no --host */
    { "localhost", "127.0.0.1", "::1", false },
    { "::", "::", "0.0.0.0", true },
};

typedef enum outcome { LISTENS, TAKEN, LACKING, FAILED } outcome; /* LACKING: the machine has no such address */

/* ---- TCP --------------------------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static outcome add_socket(rg_listener *l, const rg_socket *s)
{
    l->socket[l->n++] = *s;
    return LISTENS;
}

/* Close fd, which may be -1, and tell why. */
static outcome give_up(int fd, const char *host, int port, rg_error *err)
{
    int why = errno;

    if (fd >= 0)
        close(fd);
    rg_fail(err, RG_E_IO, "cannot listen on %.100s port %d: %s", host, port,
            why == EADDRINUSE ? "another program has this port" : strerror(why));
    return why == EADDRINUSE ? TAKEN : why == EAFNOSUPPORT || why == EADDRNOTAVAIL ? LACKING : FAILED;
}

/* Listen on one address; *port: 0 becomes the one that was picked. */
static outcome listen_tcp(rg_listener *l, const char *host, int32_t *port, rg_error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *found = NULL;
    const int on = 1;
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } own = { .any = { 0 } };
    socklen_t n = sizeof own;
    char text[16];

    snprintf(text, sizeof text, "%d", (int)*port);
    if (getaddrinfo(host, text, &hints, &found) != 0 || !found)
        return rg_fail(err, RG_E_USAGE, "'%.100s' is no address that can be listened on", host), FAILED;
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    rg_socket s = { .fd = fd, .reach = is_loopback(found->ai_addr) ? RG_REACH_MACHINE : RG_REACH_NETWORK };
    bool ok = fd >= 0 && !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) &&
              (found->ai_family != AF_INET6 || !setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on)) &&
              !bind(fd, found->ai_addr, found->ai_addrlen) && !listen(fd, SOMAXCONN) && !getsockname(fd, &own.any, &n);
    freeaddrinfo(found);
    if (!ok)
        return give_up(fd, host, *port, err);
    *port = ntohs(own.any.sa_family == AF_INET6 ? own.v6.sin6_port : own.v4.sin_port);
    return add_socket(l, &s);
}

/* ---- Unix sockets ------------------------------------------------------------------------------------------------ */

/* Remove what a server that has ended left at this path.  False: something else is there. */
static bool remove_stale(const struct sockaddr_un *a, rg_error *err)
{
    struct stat st;
    int fd = -1;

    if (lstat(a->sun_path, &st))
        return errno == ENOENT || rg_fail(err, RG_E_IO, "cannot listen on %s: %s", a->sun_path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return rg_fail(err, RG_E_IO, "cannot listen on %s: a file that is no socket is there", a->sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    bool stale = fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    if (!stale)
        return rg_fail(err, RG_E_IO, "cannot listen on %s: another program has this socket", a->sun_path);
    return !unlink(a->sun_path) ||
           rg_fail(err, RG_E_IO, "cannot listen on %s: an old socket is there: %s", a->sun_path, strerror(errno));
}

/* The folder of a path, opened and locked against other servers that start there now; -1: it cannot be. */
static int lock_folder(const char *path)
{
    char folder[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *slash = strrchr(path, '/');
    int fd;

    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)flock(fd, LOCK_EX); /* where there are no locks, it does without */
    return fd;
}

/* Permissions are set before the path is there, so that nobody else can connect in between. */
static outcome listen_unix(rg_http *h, const char *path, rg_error *err)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    rg_socket s = { .fd = -1, .reach = RG_REACH_SOCKET };
    struct stat st;
    int folder = -1;

    if (!*path || strlen(path) >= sizeof a.sun_path) {
        rg_fail(err, RG_E_USAGE, "--host unix:PATH: a path of 1 to %zu bytes is needed", sizeof a.sun_path - 1);
        return FAILED;
    }
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    snprintf(s.path, sizeof s.path, "%s", path);
    folder = lock_folder(path);
    if (!remove_stale(&a, err))
        goto fail;
    s.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s.fd < 0 || fchmod(s.fd, (mode_t)h->o.socket_mode) || bind(s.fd, (const struct sockaddr *)&a, sizeof a) ||
        listen(s.fd, SOMAXCONN) || chmod(path, (mode_t)h->o.socket_mode) || stat(path, &st)) {
        rg_fail(err, RG_E_IO, "cannot listen on %s: %s", path, strerror(errno));
        goto fail;
    }
    s.device = st.st_dev;
    s.inode = st.st_ino;
    if (folder >= 0)
        close(folder);
    return add_socket(&h->listener, &s);

fail:
    if (s.fd >= 0)
        close(s.fd);
    if (folder >= 0)
        close(folder);
    return FAILED;
}

/* Remove the socket's path, unless another server has put its own there. */
static void close_socket(rg_socket *s)
{
    struct stat st;

    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    if (*s->path && !lstat(s->path, &st) && st.st_dev == s->device && st.st_ino == s->inode)
        unlink(s->path);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static void close_sockets(rg_listener *l, int from)
{
    while (l->n > from)
        close_socket(&l->socket[--l->n]);
}

/* Listen where `host` says; NULL: by default. */
static outcome listen_at(rg_http *h, const char *host, rg_error *err)
{
    struct place p = { host, host, NULL, false };
    int before = h->listener.n;
    int32_t port = h->port;
    rg_error second = { 0 };

    if (host && !strncmp(host, "unix:", 5))
        return listen_unix(h, host + 5, err);
    for (size_t i = 0; i < RG_LEN(places); i++)
        if (host && places[i].host ? !strcmp(host, places[i].host) : host == places[i].host)
            p = places[i];
    outcome first = listen_tcp(&h->listener, p.first, &port, err);
    if (first == LACKING && p.also)
        return listen_tcp(&h->listener, p.also, &h->port, err);
    if (first == LISTENS && p.also) {
        outcome also = listen_tcp(&h->listener, p.also, &port, &second);
        if (also != LISTENS && also != LACKING && p.must) {
            close_sockets(&h->listener, before);
            *err = second;
            return also;
        }
        if (also == TAKEN && h->port) /* not where the port was picked */
            rg_log(RG_LOG_WARN, "http: %s; %s is served", second.text, p.first);
    }
    if (first == LISTENS)
        h->port = port;
    return first;
}

static void name_place(rg_http *h)
{
    const rg_socket *s = &h->listener.socket[0];
    const char *host = h->o.n_hosts ? h->o.hosts[0] : places[0].first;
    bool bracket = strchr(host, ':') != NULL;

    if (s->reach == RG_REACH_SOCKET)
        snprintf(h->url, sizeof h->url, "unix:%s", s->path);
    else
        snprintf(h->url, sizeof h->url, "http%s://%s%.200s%s:%d", h->o.tls_cert ? "s" : "", bracket ? "[" : "", host,
                 bracket ? "]" : "", (int)h->port);
}

static outcome listen_everywhere(rg_http *h, rg_error *err)
{
    outcome all = LISTENS;

    if (!h->o.n_hosts)
        all = listen_at(h, NULL, err);
    for (int32_t i = 0; i < h->o.n_hosts && all == LISTENS; i++) {
        if (h->listener.n + 2 > RG_MAX_LISTENERS)
            return rg_fail(err, RG_E_LIMIT, "--host: more than %d places", RG_MAX_LISTENERS / 2), FAILED;
        all = listen_at(h, h->o.hosts[i], err);
    }
    if (all != LISTENS)
        close_sockets(&h->listener, 0);
    return all;
}

bool rg_listener_open(rg_http *h, rg_error *err)
{
    h->port = h->o.port;
    outcome all = listen_everywhere(h, err);
    if (all == TAKEN && h->o.any_port) {
        h->port = 0;
        all = listen_everywhere(h, err);
    }
    if (all != LISTENS)
        return false;
    name_place(h);
    return true;
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* Accept one connection, if one is there.  False: there was no file or no memory for it. */
static bool accept_one(rg_http *h, const rg_socket *s)
{
    const int on = 1;
    rg_conn *c = rg_conn_new();

    if (!c) {
        errno = ENOMEM;
        return false;
    }
    c->fd = accept4(s->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (c->fd < 0) {
        int why = errno;
        rg_free(c);
        errno = why;
        return why == ECONNABORTED || why == EPROTO || why == EAGAIN || why == EINTR; /* its client left */
    }
    if (s->reach != RG_REACH_SOCKET)
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->reach = s->reach;
    atomic_fetch_add(&h->listener.n_open, 1);
    rg_http_loop_give(h, c);
    return true;
}

static void *run(void *arg)
{
    rg_http *h = arg;
    rg_listener *l = &h->listener;
    bool rests = false, said = false;
    eventfd_t n;

    while (!atomic_load(&l->stops)) {
        struct pollfd p[1 + RG_MAX_LISTENERS] = { { .fd = l->wake, .events = POLLIN } };
        bool full = atomic_load(&l->n_open) >= h->o.max_connections;

        for (int i = 0; i < l->n; i++)
            p[1 + i] = (struct pollfd){ .fd = l->socket[i].fd, .events = POLLIN };
        poll(p, full || rests ? 1 : 1 + (nfds_t)l->n, rests ? REST_MS : -1);
        rests = false;
        if (p[0].revents)
            eventfd_read(l->wake, &n);
        for (int i = 0; i < l->n && !rests; i++) {
            if (!p[1 + i].revents || atomic_load(&l->n_open) >= h->o.max_connections)
                continue;
            rests = !accept_one(h, &l->socket[i]);
            if (rests && !said)
                rg_log(RG_LOG_WARN, "http: new connections wait: %s", strerror(errno));
            said = rests;
        }
    }
    return NULL;
}

bool rg_listener_start(rg_http *h, rg_error *err)
{
    rg_listener *l = &h->listener;

    l->wake = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (l->wake < 0)
        return rg_fail(err, RG_E_IO, "cannot listen: %s", strerror(errno));
    l->runs = rg_thread_start(&l->thread, run, h);
    return l->runs || rg_fail(err, RG_E_IO, "cannot listen: there is no thread for it");
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
    l->runs = false;
    close_sockets(l, 0);
}
