/* http.c -- requests as they come in, and the library's threads.  Only the http*.c files use libmicrohttpd and sockets.
 *
 * Its threads sleep in epoll.  When a request is refused at its headers, a short body is still read; a request with a
 * long one is answered at once, and what comes of the body is thrown away (http_peer.c). */
#define _GNU_SOURCE 1
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/http_inner.h"

enum { MAX_SWALLOW = 16 << 10 }; /* a refused request's body is read up to here, and its connection goes on */

/* ---- coming and going -------------------------------------------------------------------------------------------- */

static void on_connection(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what)
{
    const union MHD_ConnectionInfo *info;

    if (what != MHD_CONNECTION_NOTIFY_STARTED) {
        rg_peer_go(arg, *context);
        rg_listener_left(arg);
        return;
    }
    rg_listener_began(arg);
    info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    *context = info ? rg_peer_come(arg, info->connect_fd) : NULL;
}

static void *on_request_line(void *arg, const char *uri, struct MHD_Connection *c)
{
    rg_http *h = arg;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    rg_exchange *x = rg_zalloc(sizeof *x);

    if (!x)
        return NULL;
    x->nul_in_path = strstr(uri, "%00"); /* decoded, the path would end there */
    x->http = h;
    x->from = info ? info->socket_context : NULL;
    atomic_init(&x->references, 1);
    pthread_mutex_init(&x->lock, NULL);
    rg_buf_init(&x->body, h->o.max_body);
    rg_buf_init(&x->extra, RG_MAX_EXTRA);
    rg_buf_init(&x->out, h->o.max_stream);
    x->note = (rg_exchange_note){ .route = -1, .tenant = -1, .since_ns = rg_now_ns() };
    rg_peer_set(h, x->from, PHASE_HEADERS);
    pthread_mutex_lock(&h->lock);
    x->next = h->exchanges;
    if (h->exchanges)
        h->exchanges->prev = x;
    h->exchanges = x;
    pthread_mutex_unlock(&h->lock);
    return x;
}

static void on_completed(void *arg, struct MHD_Connection *c, void **context, enum MHD_RequestTerminationCode why)
{
    rg_http *h = arg;
    rg_exchange *x = *context;

    (void)c, (void)why;
    if (!x)
        return;
    *context = NULL;
    pthread_mutex_lock(&h->lock);
    if (x->next)
        x->next->prev = x->prev;
    *(x->prev ? &x->prev->next : &h->exchanges) = x->next;
    pthread_mutex_unlock(&h->lock);
    pthread_mutex_lock(&x->lock);
    x->gone = true;
    x->asleep = false;
    x->c = NULL;
    pthread_mutex_unlock(&x->lock);
    rg_peer_set(h, x->from, PHASE_IDLE);
    rg_exchange_release(x);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* The client's X-Request-Id if it is harmless, else one of ours. */
static void name_exchange(rg_exchange *x)
{
    static const char harmless[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    const char *given = rg_exchange_header(x, "X-Request-Id");
    size_t n = given ? strnlen(given, sizeof x->id) : 0;

    if (n && n < 65 && strspn(given, harmless) == n)
        memcpy(x->id, given, n + 1);
    else
        snprintf(x->id, sizeof x->id, "req-%016llx%08x", (unsigned long long)rg_seed(), (unsigned)rg_now_ns());
}

typedef struct framing {
    int n_length, n_transfer, n_host, n_odd;
    const char *length, *transfer, *encoding, *expect;
} framing;

static enum MHD_Result count_header(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    framing *f = arg;

    (void)kind;
    value = value ? value : "";
    f->n_odd += name[strcspn(name, " \t")] || strchr(value, '\r'); /* other software may read a different header */
    if (!strcasecmp(name, "Content-Length"))
        f->n_length++, f->length = value;
    else if (!strcasecmp(name, "Transfer-Encoding"))
        f->n_transfer++, f->transfer = value;
    else if (!strcasecmp(name, "Content-Encoding"))
        f->encoding = value;
    else if (!strcasecmp(name, "Expect"))
        f->expect = value;
    else if (!strcasecmp(name, "Host"))
        f->n_host++;
    return MHD_YES;
}

/* The fault in how the request is sent; 0: none.  Two different lengths are refused: a proxy in between may use the
 * other one (request smuggling). */
static int find_fault(const rg_exchange *x, const framing *f, const char *version, uint64_t length)
{
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED;
    if (x->nul_in_path || f->n_odd)
        return MHD_HTTP_BAD_REQUEST;
    if (f->n_length > 1 || f->n_transfer > 1 || (f->n_length && f->n_transfer) || f->n_host > 1)
        return MHD_HTTP_BAD_REQUEST;
    if (f->length && (!*f->length || strspn(f->length, "0123456789") != strlen(f->length)))
        return MHD_HTTP_BAD_REQUEST;
    if (f->transfer && strcasecmp(f->transfer, "chunked") != 0)
        return MHD_HTTP_NOT_IMPLEMENTED;
    if (f->encoding && *f->encoding && strcasecmp(f->encoding, "identity") != 0)
        return MHD_HTTP_UNSUPPORTED_MEDIA_TYPE;
    return length > x->http->o.max_body ? MHD_HTTP_CONTENT_TOO_LARGE : 0;
}

/* The headers are there. */
static enum MHD_Result begin(rg_exchange *x, const char *version)
{
    framing f = { 0 };
    uint64_t length = 0;

    name_exchange(x);
    MHD_get_connection_values(x->c, MHD_HEADER_KIND, count_header, &f);
    if (f.length)
        length = strlen(f.length) < 19 ? strtoull(f.length, NULL, 10) : UINT64_MAX;
    x->note.fault = find_fault(x, &f, version, length);
    rg_peer_set(x->http, x->from, PHASE_BODY);
    x->http->o.head(x->http->o.arg, x);
    x->refused = x->type; /* what follows is not looked at */
    if (!x->refused || !(x->note.fault || f.expect || f.transfer || length > MAX_SWALLOW))
        return MHD_YES;
    x->handled = true;
    rg_peer_linger(x->http, x->from);
    return rg_exchange_queue(x) ? MHD_YES : MHD_NO; /* and the connection ends with it if a body is on its way */
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *c, const char *path, const char *method,
                                  const char *version, const char *data, size_t *n, void **context)
{
    rg_http *h = arg;
    rg_exchange *x = *context;

    if (!x)
        return MHD_NO; /* no memory for it */
    if (!x->seen) {
        x->seen = true;
        x->c = c;
        x->path = path;
        x->method = method;
        return begin(x, version);
    }
    if (*n) {
        if (!x->refused && !x->note.fault && !rg_buf_add(&x->body, data, *n)) {
            x->note.fault = MHD_HTTP_CONTENT_TOO_LARGE;
            rg_buf_fini(&x->body);
        }
        *n = 0;
        return MHD_YES;
    }
    if (!x->handled) {
        x->handled = true;
        rg_peer_set(h, x->from, PHASE_ANSWER);
        if (!x->refused)
            h->o.handle(h->o.arg, x);
    }
    return rg_exchange_settle(x) ? MHD_YES : MHD_NO;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void on_log(void *arg, const char *fmt, va_list args)
{
    char line[300];

    (void)arg;
    vsnprintf(line, sizeof line, fmt, args);
    rg_log(RG_LOG_DEBUG, "http: %s", line);
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

/* Older versions must not be used any more (RFC 8996). */
static const char TLS_VERSIONS[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

/* The library's own limit on connections is out of reach: rg_listener keeps ours, and who comes then waits. */
static bool start(rg_http *h, rg_error *err)
{
    const rg_http_options *o = &h->o;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_SUSPEND_RESUME |
                     MHD_USE_ERROR_LOG | (o->tls_cert ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = { { MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)o->tls_key },
                                    { MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)o->tls_cert },
                                    { MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_VERSIONS },
                                    { MHD_OPTION_END, 0, NULL } };
    struct MHD_OptionItem pool[] = { { MHD_OPTION_THREAD_POOL_SIZE, o->n_threads, NULL }, { MHD_OPTION_END, 0, NULL } };

    errno = 0;
    h->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
                                 MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
                                 MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_URI_LOG_CALLBACK,
                                 on_request_line, h, MHD_OPTION_CONNECTION_MEMORY_LIMIT, o->max_header,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)INT_MAX,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(o->write_s > 0 ? o->write_s + 0.999 : 0),
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1,
                                 MHD_OPTION_ARRAY, o->n_threads > 1 ? pool : pool + 1, MHD_OPTION_ARRAY,
                                 o->tls_cert ? tls : tls + 3, MHD_OPTION_END);
    if (!h->daemon)
        return rg_fail(err, RG_E_IO, "cannot listen on %s port %d: %s", o->host, (int)o->port,
                       errno         ? strerror(errno)
                       : o->tls_cert ? "check the certificate and its key"
                                     : "refused");
    return true;
}

/* *taken: it failed because the port is in use. */
static bool listen_at(rg_http *h, int32_t at, bool *taken, rg_error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *found = NULL;
    char port[16];

    *taken = false;
    snprintf(port, sizeof port, "%d", (int)at);
    if (getaddrinfo(h->o.host, port, &hints, &found) != 0 || !found)
        return rg_fail(err, RG_E_USAGE, "'%.100s' is no address that can be listened on", h->o.host);
    h->loopback = is_loopback(found->ai_addr);
    bool ok = rg_listener_open(h, found->ai_addr, found->ai_addrlen, taken, err);
    freeaddrinfo(found);
    return ok;
}

static bool listen_somewhere(rg_http *h, rg_error *err)
{
    bool taken;

    return listen_at(h, h->o.port, &taken, err) || (taken && h->o.any_port && listen_at(h, 0, &taken, err));
}

rg_http *rg_http_open(const rg_http_options *o, rg_error *err)
{
    rg_http *h = rg_zalloc(sizeof *h);

    if (!h)
        return rg_fail_memory(err, sizeof *h), NULL;
    h->o = *o;
    h->listener.fd = h->listener.wake = -1;
    pthread_mutex_init(&h->lock, NULL);
    h->fds = rg_array((size_t)o->max_connections, sizeof *h->fds);
    h->asked = rg_array((size_t)o->max_connections, sizeof *h->asked);
    if (!h->fds || !h->asked) {
        rg_fail_memory(err, (size_t)o->max_connections * sizeof *h->fds);
        goto fail;
    }
    if (listen_somewhere(h, err) && start(h, err) && rg_listener_start(h, err))
        return h;

fail:
    rg_http_close(h);
    return NULL;
}

int32_t rg_http_port(const rg_http *h)
{
    return h->port;
}

/* True if a complete answer is not wholly sent yet. */
static bool some_unsent(rg_http *h)
{
    bool any = false;

    pthread_mutex_lock(&h->lock);
    for (rg_exchange *x = h->exchanges; x && !any; x = x->next) {
        pthread_mutex_lock(&x->lock);
        any = x->handled && x->ended && !x->gone;
        pthread_mutex_unlock(&x->lock);
    }
    pthread_mutex_unlock(&h->lock);
    return any;
}

void rg_http_flush(rg_http *h, double most_s)
{
    const struct timespec pause = { .tv_nsec = 2000000 };
    uint64_t from = rg_now_ns();

    while (some_unsent(h) && rg_seconds(from, rg_now_ns()) < most_s)
        nanosleep(&pause, NULL);
}

void rg_http_close(rg_http *h)
{
    if (!h)
        return;
    rg_listener_stop(h);
    pthread_mutex_lock(&h->lock);
    for (rg_exchange *x = h->exchanges; x; x = x->next) {
        pthread_mutex_lock(&x->lock);
        x->gone = true;
        rg_exchange_wake(x);
        pthread_mutex_unlock(&x->lock);
    }
    pthread_mutex_unlock(&h->lock);
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    rg_peers_close(h);
    if (h->listener.wake >= 0)
        close(h->listener.wake);
    rg_free(h->fds);
    rg_free(h->asked);
    pthread_mutex_destroy(&h->lock);
    rg_free(h);
}
