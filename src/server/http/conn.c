/* conn.c -- connections: bytes in, requests out of them, and how long a client may take.
 *
 * One request at a time: while it is answered, the next one waits in the kernel.  If a socket were closed while data
 * still comes in, the client would lose an answer that it has not read yet.  So after its last answer a connection says
 * that nothing more follows and reads on for a while, throwing away what comes.
 *
 * When a request is refused at its head, a short body is still read and the connection goes on; otherwise the answer is
 * the last one, and nothing that comes after it is ever taken for a request. */
#define _GNU_SOURCE 1 /* EPOLLRDHUP */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/http/inner.h"

enum {
    MAX_SWALLOW = 16 << 10, /* a refused request's body is read up to here, and its connection goes on */
    LEAVING_S = 2,
    MAX_READS = 16,     /* of RG_SCRATCH bytes, before others have their turn */
    MAX_OUT = 96 << 10, /* bytes of c->out besides headers that repeat the request's */
};

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* When this phase is over; UINT64_MAX: never. */
static uint64_t deadline(const rg_conn *c)
{
    const rg_http_options *o = &c->loop->http->o;
    const double limits[N_PHASES] = { [PHASE_HANDSHAKE] = o->header_s,
                                      [PHASE_IDLE] = o->idle_s,
                                      [PHASE_HEAD] = o->header_s,
                                      [PHASE_BODY] = o->body_s,
                                      [PHASE_ANSWER] = c->blocked ? o->write_s : 0,
                                      [PHASE_LEAVING] = LEAVING_S };
    double s = limits[c->phase];

    return s > 0 && s < 1e9 ? c->since_ns + (uint64_t)(s * 1e9) : UINT64_MAX;
}

static void enter(rg_conn *c, rg_phase phase)
{
    c->phase = phase;
    c->since_ns = rg_now_ns();
    rg_http_loop_expect(c->loop, deadline(c));
}

void rg_conn_blocked(rg_conn *c, bool blocked)
{
    c->blocked = blocked;
    if (c->phase != PHASE_ANSWER)
        return;
    c->since_ns = rg_now_ns();
    if (blocked)
        rg_http_loop_expect(c->loop, deadline(c));
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static void answer(rg_conn *c)
{
    rg_http *h = c->loop->http;

    enter(c, PHASE_ANSWER);
    if (!c->refused)
        h->o.handle(h->o.arg, c->x);
}

static void set_fault(rg_exchange *x, int status, const char *why)
{
    rg_http_fault *f = &x->head.fault;

    f->status = x->note.fault = status;
    if (why != f->why)
        snprintf(f->why, sizeof f->why, "%s", why);
    x->note.why = f->why;
}

/* The body is not to be had: nothing after this can be trusted. */
static void spoil(rg_conn *c, int status, const char *why)
{
    set_fault(c->x, status, why);
    rg_buf_fini(&c->x->body);
    c->last = true;
    answer(c);
}

/* The head is there, or has a fault. */
static void read_head(rg_conn *c)
{
    rg_http *h = c->loop->http;
    rg_exchange *x = c->x;
    const rg_head *head = &x->head;
    bool bodied = head->chunked || head->length;

    x->method = head->method ? head->method : "";
    x->path = head->path ? head->path : "";
    rg_exchange_name(x);
    if (head->fault.status)
        set_fault(x, head->fault.status, head->fault.why);
    else if (head->length > h->o.max_body)
        set_fault(x, 413, "The body is larger than this server takes.");
    c->last = !head->keeps || x->note.fault;
    c->body_left = head->length;
    rg_chunks_init(&c->chunks);
    enter(c, PHASE_BODY);
    h->o.head(h->o.arg, x);
    c->refused = x->type; /* what follows is not looked at */
    if (c->refused && (x->note.fault || (bodied && (head->expects || head->chunked || head->length > MAX_SWALLOW)))) {
        c->last = true;
        answer(c);
    } else if (!bodied) {
        answer(c);
    } else if (head->expects && c->at == c->in.n) {
        rg_buf_str(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
    }
}

static void add_body(rg_conn *c, const char *data, size_t n)
{
    rg_buf *b = &c->x->body;

    if (c->refused || rg_buf_add(b, data, n))
        return;
    if (n > b->cap - b->n)
        spoil(c, 413, "The body is larger than this server takes.");
    else
        spoil(c, 503, "The server has no memory for this body.");
}

/* Give bytes to the body of the request; returns how many were taken. */
static size_t read_body(rg_conn *c, const char *data, size_t n)
{
    const char *body = data;
    size_t n_body;

    if (c->x->head.chunked) {
        n = rg_chunks_feed(&c->chunks, data, n, &body, &n_body);
    } else {
        n_body = n = c->body_left < n ? (size_t)c->body_left : n;
        c->body_left -= n;
    }
    if (n_body)
        add_body(c, body, n_body);
    if (c->phase != PHASE_BODY)
        return n;
    if (c->chunks.fault.status)
        spoil(c, c->chunks.fault.status, c->chunks.fault.why);
    else if (c->chunks.left > c->loop->http->o.max_body)
        spoil(c, 413, "A chunk is larger than this server takes.");
    else if (c->x->head.chunked ? c->chunks.done : !c->body_left)
        answer(c);
    return n;
}

/* Make what there is of bytes into requests, up to one that must be answered.  False: no memory. */
static bool advance(rg_conn *c)
{
    while (c->at < c->in.n && c->phase < PHASE_ANSWER) {
        const char *data = c->in.data + c->at;
        size_t n = c->in.n - c->at;

        if (c->phase == PHASE_BODY) {
            c->at += read_body(c, data, n);
            continue;
        }
        if (!c->x) {
            c->x = rg_exchange_begin(c);
            if (!c->x)
                return false;
            enter(c, PHASE_HEAD);
        }
        c->at += rg_head_feed(&c->x->head, data, n);
        if (c->x->head.done || c->x->head.fault.status)
            read_head(c);
    }
    if (c->at == c->in.n) {
        rg_buf_reset(&c->in);
        c->at = 0;
    }
    return true;
}

/* ---- after an answer --------------------------------------------------------------------------------------------- */

/* Throw away what comes.  False: nothing more will come. */
static bool throw_away(rg_conn *c)
{
    ssize_t n = 1;

    for (int i = 0; i < MAX_READS && n > 0; i++)
        n = recv(c->fd, c->loop->scratch, RG_SCRATCH, MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* The answer is sent. */
static void go_on(rg_conn *c)
{
    rg_exchange_complete(c->x);
    c->x = NULL;
    c->refused = c->head_made = c->closed_stream = c->blocked = false;
    c->body_at = 0;
    rg_buf_fini(&c->out);
    if (c->at == c->in.n)
        rg_buf_fini(&c->in); /* whoever is idle takes no memory */
    c->at = c->in.n ? c->at : 0;
    if (!c->last) {
        enter(c, PHASE_IDLE);
        return;
    }
    if (c->tls)
        rg_tls_end(c->tls);
    shutdown(c->fd, SHUT_WR);
    enter(c, PHASE_LEAVING);
}

/* ---- bytes in ---------------------------------------------------------------------------------------------------- */

/* 1: there are more bytes in c->in; 0: none yet; -1: the connection is over. */
static int receive(rg_conn *c)
{
    char *to = c->loop->scratch;
    ssize_t n;

    do
        n = c->tls ? rg_tls_recv(c->tls, to, RG_SCRATCH) : recv(c->fd, to, RG_SCRATCH, 0);
    while (n < 0 && errno == EINTR);
    if (c->phase == PHASE_HANDSHAKE && rg_tls_shaken(c->tls)) {
        c->blocked = false;
        enter(c, PHASE_IDLE);
    }
    if (n > 0)
        return rg_buf_add(&c->in, to, (size_t)n) ? 1 : -1;
    if (!n || errno != EAGAIN)
        return -1;
    if (c->phase == PHASE_HANDSHAKE)
        c->blocked = rg_tls_wants_write(c->tls);
    return 0;
}

/* Watch for what the connection waits for. */
static void watch(rg_conn *c)
{
    unsigned events = c->left ? 0 : EPOLLRDHUP;

    if (c->phase != PHASE_ANSWER)
        events |= EPOLLIN;
    if (c->blocked)
        events |= EPOLLOUT;
    if (!rg_http_loop_watch(c->loop, c, events))
        rg_conn_end(c);
}

/* Read and answer as far as it goes now.  False: it is over. */
static bool run(rg_conn *c)
{
    for (int n_reads = 0;;) {
        rg_sent sent = RG_SENT_ALL;
        int got;

        if (c->phase == PHASE_LEAVING)
            return throw_away(c);
        if (!advance(c))
            return false;
        if (c->phase == PHASE_ANSWER) {
            sent = rg_send_answer(c);
            if (sent == RG_SENT_ALL)
                go_on(c);
        } else {
            sent = rg_send_out(c); /* 100 (Continue) */
            got = n_reads++ < MAX_READS || (c->tls && rg_tls_pending(c->tls)) ? receive(c) : 0;
            if (got <= 0)
                return got == 0 && sent != RG_SENT_LOST;
        }
        if (sent == RG_SENT_LOST)
            return false;
        if (c->phase == PHASE_ANSWER && sent == RG_SENT_WAITS)
            return true;
    }
}

static void run_and_watch(rg_conn *c)
{
    if (run(c))
        watch(c);
    else
        rg_conn_end(c);
}

void rg_conn_event(rg_conn *c, unsigned events)
{
    if (events & (EPOLLERR | EPOLLHUP)) {
        rg_conn_end(c);
        return;
    }
    c->left |= (events & EPOLLRDHUP) != 0;
    run_and_watch(c);
}

void rg_conn_woken(rg_conn *c)
{
    run_and_watch(c);
}

uint64_t rg_conn_look(rg_conn *c, uint64_t now)
{
    static const char late[] = "The request did not come in time.";
    uint64_t due = deadline(c);

    if (now < due)
        return due;
    if (c->phase == PHASE_HEAD && c->x->head.text.n) {
        set_fault(c->x, 408, late);
        read_head(c);
        run_and_watch(c);
    } else if (c->phase == PHASE_BODY) {
        c->last = true;
        if (c->refused)
            answer(c);
        else
            spoil(c, 408, late);
        run_and_watch(c);
    } else {
        rg_conn_end(c);
    }
    return UINT64_MAX; /* if it is still there, its next phase has told the loop */
}

/* ---- coming and going -------------------------------------------------------------------------------------------- */

rg_conn *rg_conn_new(void)
{
    rg_conn *c = rg_zalloc(sizeof *c);

    if (c)
        c->fd = -1;
    return c;
}

void rg_conn_begin(rg_conn *c, rg_http_loop *l)
{
    const rg_http *h = l->http;

    c->loop = l;
    c->next = l->conns;
    c->prev = NULL;
    if (l->conns)
        l->conns->prev = c;
    l->conns = c;
    rg_buf_init(&c->in, RG_SCRATCH * 2);
    rg_buf_init(&c->out, MAX_OUT + h->o.max_header);
    if (h->tls && !(c->tls = rg_tls_open(h->tls, c->fd))) {
        rg_conn_end(c);
        return;
    }
    enter(c, c->tls ? PHASE_HANDSHAKE : PHASE_IDLE);
    watch(c);
}

void rg_conn_end(rg_conn *c)
{
    rg_http_loop *l = c->loop;
    rg_http *h = l->http;

    if (c->x)
        rg_exchange_complete(c->x);
    if (c->next)
        c->next->prev = c->prev;
    *(c->prev ? &c->prev->next : &l->conns) = c->next;
    rg_tls_close(c->tls);
    close(c->fd);
    rg_buf_fini(&c->in);
    rg_buf_fini(&c->out);
    rg_free(c);
    atomic_fetch_sub(&l->n_conns, 1);
    rg_listener_left(h);
}
