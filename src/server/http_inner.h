/* http_inner.h -- what the parts of HTTP share: http.c (requests), http_listen.c (the listener), http_exchange.c
 * (answers) and http_peer.c (connections).
 *
 * A peer is the connection between exchanges: how long it may take is counted there.  Locks: http's (lists) before an
 * exchange's (its answer); the library's own come last. */
#ifndef RG_SERVER_HTTP_INNER_H
#define RG_SERVER_HTTP_INNER_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/http.h"

struct MHD_Connection;
struct MHD_Daemon;
struct sockaddr;

/* PHASE_LEAVING: its answer is sent, and what its client still sends is discarded. */
typedef enum rg_phase { PHASE_IDLE, PHASE_HEADERS, PHASE_BODY, PHASE_ANSWER, PHASE_LEAVING } rg_phase;

typedef struct rg_peer {
    int fd;
    rg_phase phase;
    bool lingers;
    uint64_t since_ns;
    struct rg_peer *next, *prev;
} rg_peer;

struct rg_exchange {
    rg_http *http;
    struct MHD_Connection *c; /* until it completes */
    rg_peer *from;
    atomic_int references;
    pthread_mutex_t lock;     /* guards what follows up to the next blank line */
    rg_buf out;
    size_t sent;              /* of out */
    int status;
    const char *type;         /* of the answer; NULL: none yet */
    bool stream, ended, asleep, gone;

    const char *method, *path;
    rg_buf body, extra;       /* extra: name NUL value NUL ... */
    bool seen, refused, nul_in_path;
    atomic_bool handled;
    char id[72];
    rg_exchange_note note;
    void (*done)(void *arg, rg_exchange *x); /* of one without a connection */
    void *done_arg;
    struct rg_exchange *next, *prev;
};

typedef struct rg_listener {
    int fd, wake;       /* wake: an eventfd; something changed, look again */
    pthread_t thread;
    bool runs;
    atomic_bool stops;
    atomic_int n_open;  /* connections handed to the library that have not ended, */
    atomic_int n_fresh; /* of which so many have not begun */
    int n_looks, n_seen; /* looks in a row at which as many had not begun */
} rg_listener;

struct rg_http {
    rg_http_options o;
    struct MHD_Daemon *daemon;
    rg_listener listener;
    int32_t port;
    bool loopback;
    pthread_mutex_t lock;     /* guards the lists */
    rg_exchange *exchanges;
    rg_peer *peers;
    int n_leaving;
    struct pollfd *fds;       /* [max_connections], of rg_http_look */
    rg_exchange **asked;
    uint64_t looked_ns, swept_ns;
    double look_pause_s;      /* between looks: many connections are looked at less often */
};

/* ---- the listener (http_listen.c) ---- */

/* Listen on address; sets h->port.  *taken: it failed because the port is in use. */
bool rg_listener_open(rg_http *h, const struct sockaddr *address, size_t n_address, bool *taken, rg_error *err);
bool rg_listener_start(rg_http *h, rg_error *err); /* accept, once the daemon is there */
void rg_listener_began(rg_http *h);                /* a connection that was handed over is there; any thread */
void rg_listener_left(rg_http *h);                 /* a connection has ended; any thread */
void rg_listener_stop(rg_http *h);                 /* accept no more; before the daemon is stopped */

/* ---- answers (http_exchange.c) ---- */

enum { RG_MAX_EXTRA = 1024 }; /* bytes of further headers of an answer */

void rg_exchange_wake(rg_exchange *x);   /* under x->lock */
bool rg_exchange_queue(rg_exchange *x);  /* hand the answer, which is there, to the library */
bool rg_exchange_settle(rg_exchange *x); /* answer if the answer is there; else sleep until it is */

/* ---- connections (http_peer.c) ---- */

rg_peer *rg_peer_come(rg_http *h, int fd); /* NULL: no memory */
void rg_peer_go(rg_http *h, rg_peer *p);   /* its socket is about to be closed; NULL is fine, as below */
void rg_peer_set(rg_http *h, rg_peer *p, rg_phase what);
void rg_peer_linger(rg_http *h, rg_peer *p); /* the client may send more than will be read */
void rg_peers_close(rg_http *h);           /* those that linger; no others are left */

#endif
