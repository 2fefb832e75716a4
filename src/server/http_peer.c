/* http_peer.c -- connections as sockets: clients that left, that are too slow, or that still send a body that is not
 * read.
 *
 * A suspended connection does not notice that its client left, so rg_http_look asks the kernel about all of them at
 * once.  If a socket is closed while data still comes in, the client loses an answer that it has not read yet.  So the
 * connection of a request that was answered early is kept open for a while after the library has released it. */
#define _GNU_SOURCE 1 /* POLLRDHUP */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "server/http_inner.h"

enum { MAX_LEAVING = 256, LEAVING_S = 2, WASTE = 16 << 10, MAX_WASTE = 64 }; /* WASTE: bytes read at once, so often */

void rg_peer_set(rg_http *h, rg_peer *p, rg_phase what)
{
    if (!p)
        return;
    pthread_mutex_lock(&h->lock);
    p->phase = what;
    p->since_ns = rg_now_ns();
    pthread_mutex_unlock(&h->lock);
}

void rg_peer_linger(rg_http *h, rg_peer *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&h->lock);
    p->lingers = true;
    pthread_mutex_unlock(&h->lock);
}

rg_peer *rg_peer_come(rg_http *h, int fd)
{
    rg_peer *p = rg_zalloc(sizeof *p);

    if (!p)
        return NULL;
    p->fd = fd;
    p->since_ns = rg_now_ns();
    pthread_mutex_lock(&h->lock);
    p->next = h->peers;
    if (h->peers)
        h->peers->prev = p;
    h->peers = p;
    pthread_mutex_unlock(&h->lock);
    return p;
}

/* Under the lock. */
static void forget(rg_http *h, rg_peer *p)
{
    if (p->next)
        p->next->prev = p->prev;
    *(p->prev ? &p->prev->next : &h->peers) = p->next;
    rg_free(p);
}

void rg_peer_go(rg_http *h, rg_peer *p)
{
    int fd = -1;

    if (!p)
        return;
    pthread_mutex_lock(&h->lock);
    if (p->lingers && h->n_leaving < MAX_LEAVING)
        fd = fcntl(p->fd, F_DUPFD_CLOEXEC, 0); /* the library has said that no more will be sent, and closes its own */
    if (fd < 0) {
        forget(h, p);
    } else {
        p->fd = fd;
        p->phase = PHASE_LEAVING;
        p->since_ns = rg_now_ns();
        h->n_leaving++;
    }
    pthread_mutex_unlock(&h->lock);
}

/* False: nothing more will come. */
static bool throw_away(const rg_peer *p)
{
    char waste[WASTE];
    ssize_t n = 1;

    for (int i = 0; i < MAX_WASTE && n > 0; i++)
        n = recv(p->fd, waste, sizeof waste, MSG_DONTWAIT);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

/* Under the lock. */
static void look_at_leaving(rg_http *h, uint64_t now)
{
    for (rg_peer *p = h->peers, *next; p && h->n_leaving; p = next) {
        next = p->next;
        if (p->phase != PHASE_LEAVING || (throw_away(p) && rg_seconds(p->since_ns, now) < LEAVING_S))
            continue;
        close(p->fd);
        forget(h, p);
        h->n_leaving--;
    }
}

void rg_peers_close(rg_http *h)
{
    while (h->peers) {
        close(h->peers->fd);
        forget(h, h->peers);
    }
}

/* Shut down connections that have been slow for too long.  The library finds the socket shut and frees them. */
static void sweep(rg_http *h, uint64_t now)
{
    const double limit[] = { [PHASE_IDLE] = h->o.idle_s, [PHASE_HEADERS] = h->o.header_s, [PHASE_BODY] = h->o.body_s,
                             [PHASE_ANSWER] = 0, [PHASE_LEAVING] = 0 };

    for (rg_peer *p = h->peers; p; p = p->next)
        if (limit[p->phase] > 0 && rg_seconds(p->since_ns, now) > limit[p->phase])
            shutdown(p->fd, SHUT_RDWR);
}

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
            rg_exchange_wake(x);
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
    look_at_leaving(h, now);
    if (rg_seconds(h->swept_ns, now) > 0.25) {
        h->swept_ns = now;
        sweep(h, now);
    }
    pthread_mutex_unlock(&h->lock);
    h->look_pause_s = 50 * rg_seconds(now, rg_now_ns());
    h->look_pause_s = h->look_pause_s < 0.004 ? 0.004 : h->look_pause_s < 0.1 ? h->look_pause_s : 0.1;
}

