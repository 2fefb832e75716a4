/* http.c -- the one file that knows libmicrohttpd, and sockets.
 *
 * Its threads sleep in epoll.  A connection whose answer is not there yet is suspended and costs nothing; whoever
 * brings bytes resumes it.  A suspended connection does not notice that its client left, so rg_http_look asks the
 * kernel for all of them at once.  A peer is the connection between exchanges: how long it may take is counted there.
 * Locks: http's (lists) before an exchange's (its answer); the library's own come last. */
#define _GNU_SOURCE 1 /* POLLRDHUP */
#include "server/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"

enum {
    MAX_EXTRA = 1024,      /* bytes of further headers of an answer */
    MAX_SWALLOW = 1 << 20, /* a refused request's body is read up to here, so that its client reads why */
    BLOCK = 16 << 10,      /* of a stream, handed to the library at once */
};

typedef enum phase { PHASE_IDLE, PHASE_HEADERS, PHASE_BODY, PHASE_ANSWER } phase;

typedef struct peer {
    int fd;
    phase phase;
    uint64_t since_ns;
    struct peer *next, *prev;
} peer;

struct rg_exchange {
    rg_http *http;
    struct MHD_Connection *c; /* until it completes */
    peer *from;
    atomic_int references;
    pthread_mutex_t lock;     /* guards what follows up to the next blank line */
    rg_buf out;
    size_t sent;              /* of out */
    int status;
    const char *type;         /* of the answer; NULL: none yet */
    bool stream, ended, asleep, gone;

    const char *method, *path;
    rg_buf body, extra;       /* extra: name NUL value NUL ... */
    bool seen, refused;
    atomic_bool handled;
    char id[72];
    rg_exchange_note note;
    void (*done)(void *arg, rg_exchange *x); /* of one without a connection */
    void *done_arg;
    struct rg_exchange *next, *prev;
};

struct rg_http {
    rg_http_options o;
    struct MHD_Daemon *daemon;
    int32_t port;
    bool loopback;
    pthread_mutex_t lock;     /* guards the lists */
    rg_exchange *exchanges;
    peer *peers;
    struct pollfd *fds;       /* [max_connections], of rg_http_look */
    rg_exchange **asked;
    uint64_t looked_ns, swept_ns;
    double look_pause_s;      /* between looks: many connections are looked at less often */
};

/* ---- peers ------------------------------------------------------------------------------------------------------- */

static void set_phase(rg_http *h, peer *p, phase what)
{
    if (!p)
        return;
    pthread_mutex_lock(&h->lock);
    p->phase = what;
    p->since_ns = rg_now_ns();
    pthread_mutex_unlock(&h->lock);
}

static void on_connection(void *arg, struct MHD_Connection *c, void **context, enum MHD_ConnectionNotificationCode what)
{
    rg_http *h = arg;
    peer *p = *context;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
        p = info ? rg_zalloc(sizeof *p) : NULL;
        *context = p;
        if (!p)
            return;
        p->fd = info->connect_fd;
        p->since_ns = rg_now_ns();
        pthread_mutex_lock(&h->lock);
        p->next = h->peers;
        if (h->peers)
            h->peers->prev = p;
        h->peers = p;
        pthread_mutex_unlock(&h->lock);
    } else if (p) {
        pthread_mutex_lock(&h->lock);
        if (p->next)
            p->next->prev = p->prev;
        *(p->prev ? &p->prev->next : &h->peers) = p->next;
        pthread_mutex_unlock(&h->lock);
        rg_free(p);
    }
}

/* Close what has been slow for too long.  The library finds the socket shut and clears up. */
static void sweep(rg_http *h, uint64_t now)
{
    const double limit[] = { [PHASE_IDLE] = h->o.idle_s, [PHASE_HEADERS] = h->o.header_s, [PHASE_BODY] = h->o.body_s,
                             [PHASE_ANSWER] = 0 };

    for (peer *p = h->peers; p; p = p->next)
        if (limit[p->phase] > 0 && rg_seconds(p->since_ns, now) > limit[p->phase])
            shutdown(p->fd, SHUT_RDWR);
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

void rg_exchange_keep(rg_exchange *x)
{
    atomic_fetch_add(&x->references, 1);
}

void rg_exchange_release(rg_exchange *x)
{
    if (!x || atomic_fetch_sub(&x->references, 1) != 1)
        return;
    if (x->done)
        x->done(x->done_arg, x);
    rg_buf_fini(&x->body);
    rg_buf_fini(&x->extra);
    rg_buf_fini(&x->out);
    pthread_mutex_destroy(&x->lock);
    rg_free(x);
}

/* Under x->lock. */
static void wake(rg_exchange *x)
{
    if (x->asleep && x->c) {
        x->asleep = false;
        MHD_resume_connection(x->c);
    }
}

static void *on_request_line(void *arg, const char *uri, struct MHD_Connection *c)
{
    rg_http *h = arg;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    rg_exchange *x = rg_zalloc(sizeof *x);

    (void)uri;
    if (!x)
        return NULL;
    x->http = h;
    x->from = info ? info->socket_context : NULL;
    atomic_init(&x->references, 1);
    pthread_mutex_init(&x->lock, NULL);
    rg_buf_init(&x->body, h->o.max_body);
    rg_buf_init(&x->extra, MAX_EXTRA);
    rg_buf_init(&x->out, h->o.max_stream);
    x->note = (rg_exchange_note){ .route = -1, .tenant = -1, .since_ns = rg_now_ns() };
    set_phase(h, x->from, PHASE_HEADERS);
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
    set_phase(h, x->from, PHASE_IDLE);
    rg_exchange_release(x);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static void release(void *arg)
{
    rg_exchange_release(arg);
}

/* The library wants up to room bytes of the stream. */
static ssize_t read_stream(void *arg, uint64_t at, char *to, size_t room)
{
    rg_exchange *x = arg;
    ssize_t n = 0;

    (void)at;
    pthread_mutex_lock(&x->lock);
    if (x->out.n > x->sent) {
        n = (ssize_t)(x->out.n - x->sent < room ? x->out.n - x->sent : room);
        memcpy(to, x->out.data + x->sent, (size_t)n);
        x->sent += (size_t)n;
        if (x->sent == x->out.n) {
            rg_buf_reset(&x->out);
            x->sent = 0;
        }
    } else if (x->ended) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else if (x->gone) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else {
        x->asleep = true;
        MHD_suspend_connection(x->c);
    }
    pthread_mutex_unlock(&x->lock);
    return n;
}

/* Hand the answer to the library.  Not under x->lock, which its reader takes under a lock of the library; once there is
 * an answer, what is read here does not change. */
static enum MHD_Result queue_answer(rg_exchange *x)
{
    static char nothing[1];
    struct MHD_Response *r;
    enum MHD_Result ok;

    rg_exchange_keep(x); /* the response's own reference: its bytes are ours */
    r = x->stream ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x, release)
                  : MHD_create_response_from_buffer_with_free_callback_cls(x->out.n, x->out.n ? x->out.data : nothing,
                                                                           release, x);
    if (!r)
        return atomic_fetch_sub(&x->references, 1), MHD_NO;
    for (size_t i = 0; x->extra.n && i < x->extra.n;) {
        const char *name = x->extra.data + i, *value = name + strlen(name) + 1;
        MHD_add_response_header(r, name, value);
        i += (size_t)(value - name) + strlen(value) + 1;
    }
    if (x->type[0])
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, x->type);
    ok = MHD_queue_response(x->c, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return ok;
}

/* Answer if the answer is there; else sleep until it is. */
static enum MHD_Result settle(rg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool answered = x->type, gone = x->gone;
    if (!answered && !gone) {
        x->asleep = true;
        MHD_suspend_connection(x->c);
    }
    pthread_mutex_unlock(&x->lock);
    return answered ? queue_answer(x) : gone ? MHD_NO : MHD_YES;
}

void rg_exchange_set(rg_exchange *x, const char *name, const char *value)
{
    size_t before = x->extra.n;

    for (const char *s = value; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7f)
            return;
    if (!rg_buf_add(&x->extra, name, strlen(name) + 1) || !rg_buf_add(&x->extra, value, strlen(value) + 1)) {
        x->extra.n = before;
        x->extra.failed = false;
    }
}

void rg_exchange_reply(rg_exchange *x, int status, const char *type, rg_buf *body)
{
    pthread_mutex_lock(&x->lock);
    if (!x->type) {
        rg_buf_fini(&x->out);
        x->out = *body;
        *body = (rg_buf){ .cap = body->cap };
        x->status = status;
        x->type = type;
        x->ended = true;
        wake(x);
    }
    pthread_mutex_unlock(&x->lock);
    rg_buf_fini(body);
}

void rg_exchange_stream(rg_exchange *x, const char *type)
{
    pthread_mutex_lock(&x->lock);
    if (!x->type) {
        x->status = MHD_HTTP_OK;
        x->type = type;
        x->stream = true;
        wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

void rg_exchange_write(rg_exchange *x, const char *data, size_t n)
{
    pthread_mutex_lock(&x->lock);
    if (x->sent > (x->out.n >> 1) && x->sent > (size_t)BLOCK) { /* keep what waits, not what went */
        memmove(x->out.data, x->out.data + x->sent, x->out.n - x->sent);
        x->out.n -= x->sent;
        x->sent = 0;
    }
    if (x->stream && !x->ended && !x->gone && n) {
        if (!rg_buf_add(&x->out, data, n))
            x->gone = true; /* no memory to wait in */
        wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

void rg_exchange_end(rg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->ended = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

bool rg_exchange_answered(const rg_exchange *x)
{
    return x->type != NULL;
}

bool rg_exchange_gone(rg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool gone = x->gone;
    pthread_mutex_unlock(&x->lock);
    return gone;
}

size_t rg_exchange_waiting(rg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    size_t n = x->out.n - x->sent;
    pthread_mutex_unlock(&x->lock);
    return n;
}

void rg_exchange_leave(rg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->gone = true;
    wake(x);
    pthread_mutex_unlock(&x->lock);
}

/* ---- without a connection ---------------------------------------------------------------------------------------- */

rg_exchange *rg_exchange_new(const rg_inner_options *o, rg_buf *body)
{
    rg_exchange *x = rg_zalloc(sizeof *x);

    if (!x) {
        rg_buf_fini(body);
        return NULL;
    }
    atomic_init(&x->references, 1);
    pthread_mutex_init(&x->lock, NULL);
    x->body = *body;
    *body = (rg_buf){ .cap = body->cap };
    rg_buf_init(&x->extra, MAX_EXTRA);
    x->method = "POST";
    x->path = "";
    snprintf(x->id, sizeof x->id, "%s", o->id);
    x->note = o->note;
    x->done = o->done;
    x->done_arg = o->arg;
    return x;
}

int rg_exchange_take(rg_exchange *x, rg_buf *body)
{
    if (!x->type || x->stream)
        return 0;
    *body = x->out;
    x->out = (rg_buf){ 0 };
    return x->status;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

const char *rg_exchange_method(const rg_exchange *x)
{
    return x->method;
}

const char *rg_exchange_path(const rg_exchange *x)
{
    return x->path;
}

const char *rg_exchange_header(const rg_exchange *x, const char *name)
{
    return x->c ? MHD_lookup_connection_value(x->c, MHD_HEADER_KIND, name) : NULL;
}

const char *rg_exchange_query(const rg_exchange *x, const char *name)
{
    return x->c ? MHD_lookup_connection_value(x->c, MHD_GET_ARGUMENT_KIND, name) : NULL;
}

const char *rg_exchange_body(const rg_exchange *x, size_t *n)
{
    *n = x->body.n;
    return x->body.data ? x->body.data : "";
}

void rg_exchange_drop_body(rg_exchange *x)
{
    rg_buf_fini(&x->body);
}

bool rg_exchange_local(const rg_exchange *x)
{
    return x->http && x->http->loopback;
}

const char *rg_exchange_id(const rg_exchange *x)
{
    return x->id;
}

rg_exchange_note *rg_exchange_notes(rg_exchange *x)
{
    return &x->note;
}

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
    int n_length, n_transfer, n_host;
    const char *length, *transfer, *encoding, *expect;
} framing;

static enum MHD_Result count_header(void *arg, enum MHD_ValueKind kind, const char *name, const char *value)
{
    framing *f = arg;

    (void)kind;
    value = value ? value : "";
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

/* What is wrong with how the request is sent: two ways to say where it ends are an attack on whoever stands between. */
static int find_fault(const rg_exchange *x, const framing *f, const char *version, uint64_t length)
{
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED;
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
    set_phase(x->http, x->from, PHASE_BODY);
    x->http->o.head(x->http->o.arg, x);
    x->refused = x->type; /* what follows is not looked at */
    if (!x->refused || !(x->note.fault || f.expect || f.transfer || length > MAX_SWALLOW))
        return MHD_YES;
    x->handled = true;
    return queue_answer(x); /* and the connection ends with it if a body is on its way */
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
        set_phase(h, x->from, PHASE_ANSWER);
        if (!x->refused)
            h->o.handle(h->o.arg, x);
    }
    return settle(x);
}

/* ---- the listener ------------------------------------------------------------------------------------------------ */

/* All exchanges that wait for an answer, asked at once whether their client is still there. */
static void look_for_gone(rg_http *h)
{
    nfds_t n = 0;

    for (rg_exchange *x = h->exchanges; x && (int32_t)n < h->o.max_connections; x = x->next)
        if (x->handled && x->from) {
            h->asked[n] = x;
            h->fds[n++] = (struct pollfd){ .fd = x->from->fd, .events = POLLRDHUP };
        }
    if (!n || poll(h->fds, n, 0) <= 0)
        return;
    for (nfds_t i = 0; i < n; i++) {
        rg_exchange *x = h->asked[i];
        if (!(h->fds[i].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)))
            continue;
        pthread_mutex_lock(&x->lock);
        if (!x->ended) {
            x->gone = true;
            wake(x);
        }
        pthread_mutex_unlock(&x->lock);
    }
}

void rg_http_look(rg_http *h)
{
    uint64_t now = rg_now_ns();

    if (rg_seconds(h->looked_ns, now) < h->look_pause_s)
        return;
    h->looked_ns = now;
    pthread_mutex_lock(&h->lock);
    look_for_gone(h);
    if (rg_seconds(h->swept_ns, now) > 0.25) {
        h->swept_ns = now;
        sweep(h, now);
    }
    pthread_mutex_unlock(&h->lock);
    h->look_pause_s = 50 * rg_seconds(now, rg_now_ns());
    h->look_pause_s = h->look_pause_s < 0.004 ? 0.004 : h->look_pause_s < 0.1 ? h->look_pause_s : 0.1;
}

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

static bool start(rg_http *h, const struct sockaddr *address, bool *taken, rg_error *err)
{
    const rg_http_options *o = &h->o;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     (address->sa_family == AF_INET6 ? MHD_USE_IPv6 : 0) | (o->tls_cert ? MHD_USE_TLS : 0);
    struct MHD_OptionItem tls[] = { { MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)o->tls_key },
                                    { MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)o->tls_cert },
                                    { MHD_OPTION_END, 0, NULL } };
    struct MHD_OptionItem pool[] = { { MHD_OPTION_THREAD_POOL_SIZE, o->n_threads, NULL }, { MHD_OPTION_END, 0, NULL } };

    errno = 0;
    h->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, h, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
                                 MHD_OPTION_SOCK_ADDR, address, MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
                                 MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_URI_LOG_CALLBACK,
                                 on_request_line, h, MHD_OPTION_CONNECTION_MEMORY_LIMIT, o->max_header,
                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->max_connections,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)(o->write_s > 0 ? o->write_s + 0.999 : 0),
                                 MHD_OPTION_STRICT_FOR_CLIENT, 1,
                                 MHD_OPTION_ARRAY, o->n_threads > 1 ? pool : pool + 1, MHD_OPTION_ARRAY,
                                 o->tls_cert ? tls : tls + 2, MHD_OPTION_END);
    *taken = !h->daemon && errno == EADDRINUSE;
    if (!h->daemon)
        return rg_fail(err, RG_E_IO, "cannot listen on %s port %d: %s", o->host, (int)o->port,
                       *taken             ? "another program has this port"
                       : errno            ? strerror(errno)
                       : o->tls_cert      ? "check the certificate and its key"
                                          : "refused");
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(h->daemon, MHD_DAEMON_INFO_BIND_PORT);
    h->port = info ? info->port : o->port;
    return true;
}

/* *taken: it failed because somebody has the port. */
static bool start_on(rg_http *h, int32_t at, bool *taken, rg_error *err)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV }, *found = NULL;
    char port[16];

    *taken = false;
    snprintf(port, sizeof port, "%d", (int)at);
    if (getaddrinfo(h->o.host, port, &hints, &found) != 0 || !found)
        return rg_fail(err, RG_E_USAGE, "'%.100s' is no address that can be listened on", h->o.host);
    h->loopback = is_loopback(found->ai_addr);
    bool ok = start(h, found->ai_addr, taken, err);
    freeaddrinfo(found);
    return ok;
}

rg_http *rg_http_open(const rg_http_options *o, rg_error *err)
{
    rg_http *h = rg_zalloc(sizeof *h);
    bool taken;

    if (!h)
        return rg_fail_memory(err, sizeof *h), NULL;
    h->o = *o;
    pthread_mutex_init(&h->lock, NULL);
    h->fds = rg_array((size_t)o->max_connections, sizeof *h->fds);
    h->asked = rg_array((size_t)o->max_connections, sizeof *h->asked);
    if (!h->fds || !h->asked) {
        rg_fail_memory(err, (size_t)o->max_connections * sizeof *h->fds);
        goto fail;
    }
    if (start_on(h, o->port, &taken, err) || (taken && o->any_port && start_on(h, 0, &taken, err)))
        return h;

fail:
    rg_http_close(h);
    return NULL;
}

int32_t rg_http_port(const rg_http *h)
{
    return h->port;
}

void rg_http_close(rg_http *h)
{
    if (!h)
        return;
    pthread_mutex_lock(&h->lock);
    for (rg_exchange *x = h->exchanges; x; x = x->next) {
        pthread_mutex_lock(&x->lock);
        x->gone = true;
        wake(x);
        pthread_mutex_unlock(&x->lock);
    }
    pthread_mutex_unlock(&h->lock);
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    rg_free(h->fds);
    rg_free(h->asked);
    pthread_mutex_destroy(&h->lock);
    rg_free(h);
}
