/* http.h -- HTTP/1.1 as exchanges, replies and streams; sockets are hidden.
 *
 * An exchange is one request and its answer.  `head` sees it when its headers are there and may answer at once;
 * `handle` sees it once, with its whole body, on one of the HTTP threads.  A handler that cannot answer there keeps the
 * exchange (rg_exchange_keep) and answers later from any one thread; the connection sleeps until then.  Bytes written
 * to a stream wait in the exchange's own memory for a slow client.  A request that was sent wrongly reaches `head`, or
 * `handle` if its body is wrong, with the fault in its notes; whoever is called must answer it.  Only the files of this
 * files know sockets. */
#ifndef RG_SERVER_HTTP_HTTP_H
#define RG_SERVER_HTTP_HTTP_H

#include "base/buf.h"

typedef struct rg_http rg_http;
typedef struct rg_exchange rg_exchange;

/* Who can connect to where an exchange came in: who may use a Unix socket, this machine, or others too. */
typedef enum rg_reach { RG_REACH_SOCKET, RG_REACH_MACHINE, RG_REACH_NETWORK } rg_reach;

typedef struct rg_http_options {
    /* Addresses, names, or unix:PATH; none: this machine alone, by IPv4 and, where there is one, by IPv6. */
    const char *const *hosts;
    int32_t n_hosts;
    int32_t port;        /* 0 picks one */
    bool any_port;       /* if that one is taken, another */
    int32_t socket_mode; /* permissions of Unix sockets */
    const char *tls_cert, *tls_key;
    size_t max_body, max_header, max_stream; /* max_stream: bytes that may wait for one client */
    int32_t max_connections, n_threads;
    double idle_s, header_s, body_s, write_s; /* how long a client may take; 0: for ever */
    void (*head)(void *arg, rg_exchange *x);
    void (*handle)(void *arg, rg_exchange *x);
    void *arg;
} rg_http_options;

/* Exchanges may come in before it returns. */
rg_http *rg_http_open(const rg_http_options *o, rg_error *err);
int32_t rg_http_port(const rg_http *h);
const char *rg_http_url(const rg_http *h); /* of the first place where it listens */
/* Wait until complete answers have reached their clients, or so many seconds. */
void rg_http_flush(rg_http *h, double most_s);
void rg_http_close(rg_http *h); /* every kept exchange has been ended; NULL is fine */

/* ---- the request; in head and handle only ---- */
const char *rg_exchange_method(const rg_exchange *x);
const char *rg_exchange_path(const rg_exchange *x);
const char *rg_exchange_header(const rg_exchange *x, const char *name); /* NULL: none */
const char *rg_exchange_query(const rg_exchange *x, const char *name);  /* of ?name=value; NULL: none */
const char *rg_exchange_body(const rg_exchange *x, size_t *n);          /* ends with a NUL not counted in *n */
void rg_exchange_drop_body(rg_exchange *x);                             /* its memory, once parsed */
const char *rg_exchange_host(const rg_exchange *x);                     /* that it was sent to; NULL: none was named */
rg_reach rg_exchange_reach(const rg_exchange *x);
const char *rg_exchange_id(const rg_exchange *x); /* X-Request-Id: the client's, or made up */

/* What the code above keeps with an exchange. */
typedef struct rg_exchange_note {
    int route;       /* index into the routes; -1: none */
    int tenant;      /* of the key; -1: none */
    int fault;       /* status for a request that was sent wrongly; 0: fine.  It may be set after `head` */
    const char *why; /* of the fault: a sentence for the client, as long as the exchange is there */
    bool background; /* a line of a batch: it runs only when no other request waits, */
    bool in_turn;    /*   but one in its turn among them, where others wait without end */
    uint64_t seed;   /* of a background exchange that names none */
    uint64_t since_ns;
} rg_exchange_note;
rg_exchange_note *rg_exchange_notes(rg_exchange *x);

/* ---- the answer ---- */
/* Add a header before the reply, both texts copied.  Values with control characters are left out. */
void rg_exchange_set(rg_exchange *x, const char *name, const char *value);
/* The whole answer; takes body's memory (body becomes empty).  A second answer is ignored. */
void rg_exchange_reply(rg_exchange *x, int status, const char *type, rg_buf *body);
/* A stream of bytes of this type (a literal), and its end. */
void rg_exchange_stream(rg_exchange *x, const char *type);
void rg_exchange_write(rg_exchange *x, const char *data, size_t n);
void rg_exchange_end(rg_exchange *x);
bool rg_exchange_gone(rg_exchange *x); /* its client left, or is too slow */

size_t rg_exchange_waiting(rg_exchange *x); /* bytes of its stream that its client has not taken */
void rg_exchange_leave(rg_exchange *x);     /* treat its client as gone */

void rg_exchange_keep(rg_exchange *x);
void rg_exchange_release(rg_exchange *x); /* NULL is fine */

/* ---- an exchange without a connection: what the server asks of its own endpoints ---- */
typedef struct rg_inner_options {
    const char *id;
    rg_exchange_note note;
    /* Called when the last reference is released, on that thread: then its answer can be taken, if there is one. */
    void (*done)(void *arg, rg_exchange *x);
    void *arg;
} rg_inner_options;

/* A POST of body, which is taken.  For an endpoint, and then to be released.  NULL: no memory (and body is freed). */
rg_exchange *rg_exchange_new(const rg_inner_options *o, rg_buf *body);
int rg_exchange_take(rg_exchange *x, rg_buf *body); /* in done: status and body, which is the caller's; 0: no answer */

#endif
