/* inner.h -- what the parts of HTTP share: http.c (opening and closing), listen.c (the listener), loop.c
 * (threads), conn.c (connections: bytes in), send.c (bytes out) and exchange.c (a request and its
 * answer).
 *
 * A connection belongs to one loop, a thread that sleeps in epoll, and nobody else touches it.  An exchange is shared
 * with whoever answers it.  Locks: an exchange's (its answer) before a loop's (what other threads hand to it). */
#ifndef RG_SERVER_HTTP_INNER_H
#define RG_SERVER_HTTP_INNER_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "server/http/http.h"
#include "server/http/head.h"
#include "server/http/tls.h"

typedef struct rg_conn rg_conn;
typedef struct rg_http_loop rg_http_loop;

struct rg_exchange {
    rg_http *http;
    atomic_int references;
    pthread_mutex_t lock; /* guards what follows up to the next blank line */
    rg_conn *conn;        /* until it completes; NULL: it has none */
    rg_buf out;
    size_t sent; /* of out, if it is a stream */
    int status;
    const char *type;                 /* of the answer; NULL: none yet */
    bool stream, ended, asleep, gone; /* asleep: its connection waits for it */
    bool unsent;                      /* it is counted in http's n_unsent */

    bool woken; /* in its loop's list; under the loop's lock, as these are */
    rg_exchange *next_woken, *prev_woken;

    rg_http_loop *loop;
    rg_head head;
    const char *method, *path;
    rg_buf body, extra; /* extra: name NUL value NUL ... */
    rg_reach reach;
    char id[72];
    rg_exchange_note note;
    void (*done)(void *arg, rg_exchange *x); /* of one without a connection */
    void *done_arg;
};

/* ---- connections (conn.c), on their loop's thread only ---- */

/* PHASE_LEAVING: its answer is sent, and what its client still sends is discarded. */
typedef enum rg_phase {
    PHASE_HANDSHAKE,
    PHASE_IDLE,
    PHASE_HEAD,
    PHASE_BODY,
    PHASE_ANSWER,
    PHASE_LEAVING,
    N_PHASES,
} rg_phase;

struct rg_conn {
    rg_http_loop *loop;
    int fd;
    rg_tls_session *tls; /* NULL: none */
    rg_reach reach;
    rg_phase phase;
    uint64_t since_ns; /* when the phase began; in PHASE_ANSWER, when its client last took something */
    bool left;         /* its client sends no more */
    bool blocked;      /* bytes of the answer wait for room */
    bool last;         /* it ends after this answer */
    bool refused;      /* the answer was there before the body */
    bool watched;      /* by epoll, for these events */
    unsigned events;
    rg_buf in; /* bytes received; those from at on are still to be read */
    size_t at;
    uint64_t body_left; /* of a body that is not chunked */
    rg_chunks chunks;
    rg_exchange *x;                /* from its first byte to the end of its answer */
    rg_buf out;                    /* heads, chunks and short answers on their way */
    size_t out_at, body_at;        /* how much of it is sent, and of a long answer */
    bool head_made, closed_stream; /* of the answer: its head is in out; so is its last chunk */
    rg_conn *next, *prev;          /* in its loop; next: also in the list of those handed over */
};

rg_conn *rg_conn_new(void);                      /* NULL: no memory */
void rg_conn_begin(rg_conn *c, rg_http_loop *l); /* takes it: it may have ended already, as below */
void rg_conn_event(rg_conn *c, unsigned events);
void rg_conn_woken(rg_conn *c); /* there may be more of its answer */
/* End it if its time is over; when to look again, at the latest. */
uint64_t rg_conn_look(rg_conn *c, uint64_t now);
void rg_conn_end(rg_conn *c);
void rg_conn_blocked(rg_conn *c, bool blocked); /* its client took nothing of what was sent, or took some */

/* ---- answers on their way (send.c) ---- */

/* RG_SENT_SOME: go on at once; RG_SENT_WAITS: for room or for more of the answer; RG_SENT_LOST: the client is gone. */
typedef enum rg_sent { RG_SENT_ALL, RG_SENT_SOME, RG_SENT_WAITS, RG_SENT_LOST } rg_sent;

rg_sent rg_send_out(rg_conn *c);    /* what is in c->out */
rg_sent rg_send_answer(rg_conn *c); /* all that there is of the answer */

/* ---- threads (loop.c) ---- */

enum { RG_SCRATCH = 32 << 10 }; /* bytes received at once */

struct rg_http_loop {
    rg_http *http;
    pthread_t thread;
    bool runs;
    int epoll, wake; /* wake: an eventfd; something was handed over */
    rg_conn *conns;
    uint64_t look_ns;     /* when a connection's time may be over; UINT64_MAX: never */
    atomic_int n_conns;   /* of it, those handed over too */
    char *scratch;        /* [RG_SCRATCH] */
    pthread_mutex_t lock; /* guards what follows */
    bool stops;
    rg_conn *fresh;
    rg_exchange *woken;
};

bool rg_http_loops_start(rg_http *h, rg_error *err);
void rg_http_loops_stop(rg_http *h);            /* ends every connection */
void rg_http_loop_give(rg_http *h, rg_conn *c); /* to the loop that has fewest */
void rg_http_loop_wake(rg_exchange *x);         /* under x->lock */
void rg_http_loop_forget(rg_exchange *x);
bool rg_http_loop_watch(rg_http_loop *l, rg_conn *c, unsigned events); /* false: it cannot */
void rg_http_loop_expect(rg_http_loop *l, uint64_t at_ns);             /* look at the connections' times then */

/* ---- the listener (listen.c) ---- */

enum { RG_MAX_LISTENERS = 32 };

typedef struct rg_socket {
    int fd;
    rg_reach reach;
    char path[108]; /* of a Unix socket */
    uint64_t device, inode;
} rg_socket;

typedef struct rg_listener {
    rg_socket socket[RG_MAX_LISTENERS];
    int n;
    int wake; /* an eventfd; something changed, look again */
    pthread_t thread;
    bool runs;
    atomic_bool stops;
    atomic_int n_open; /* connections that have not ended */
} rg_listener;

bool rg_listener_open(rg_http *h, rg_error *err);  /* listen everywhere; sets h->port and h->url */
bool rg_listener_start(rg_http *h, rg_error *err); /* accept, once the loops are there */
void rg_listener_left(rg_http *h);                 /* a connection has ended; any thread */
void rg_listener_stop(rg_http *h);                 /* accept no more; before the loops are stopped */

struct rg_http {
    rg_http_options o;
    rg_listener listener;
    rg_tls *tls;
    rg_http_loop *loops; /* [n_threads] */
    int32_t port;
    char url[320];
    atomic_int n_unsent; /* answers that are complete and not wholly sent */
};

/* ---- exchanges (exchange.c) ---- */

rg_exchange *rg_exchange_begin(rg_conn *c); /* NULL: no memory */
void rg_exchange_name(rg_exchange *x);      /* the client's X-Request-Id if it is harmless, else one of ours */
/* Its connection has done with it, which releases it. */
void rg_exchange_complete(rg_exchange *x);

#endif
