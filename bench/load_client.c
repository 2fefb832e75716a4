/* load_client.c -- one client's connection: as little HTTP/1.1 as completions need, without blocking.
 *
 * A request is sent at once where the socket takes it; epoll is asked about writing only if it does not. */
#define _GNU_SOURCE 1
#include "load.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static int epoll_fd;
static struct sockaddr_in address;

bool client_open(int epoll)
{
    epoll_fd = epoll;
    address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)o.port) };
    return epoll_fd >= 0 && inet_pton(AF_INET, o.host, &address.sin_addr) == 1;
}

static void watch(client *c, uint32_t events, int what)
{
    struct epoll_event e = { .events = events, .data.ptr = c };

    epoll_ctl(epoll_fd, what, c->fd, &e);
}

bool client_dial(client *c)
{
    int on = 1;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return false;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address) != 0 && errno != EINPROGRESS) {
        close(c->fd);
        c->fd = -1;
        return false;
    }
    c->fresh = true;
    watch(c, EPOLLOUT | EPOLLIN, EPOLL_CTL_ADD);
    return true;
}

void client_hang_up(client *c, bool reset)
{
    const struct linger now = { .l_onoff = 1 };

    if (c->fd < 0)
        return;
    if (reset)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close(c->fd);
    c->fd = -1;
}

void client_listen(client *c)
{
    watch(c, EPOLLIN, EPOLL_CTL_MOD);
    c->fresh = false;
}

/* The server had closed the connection that was kept: the request goes over a new one, as HTTP's clients do. */
static void again(client *c)
{
    client_hang_up(c, false);
    c->sent = 0;
    c->kept = false;
    c->stage = SENDING;
    if (!client_dial(c))
        client_done(c, false);
}

void client_send(client *c)
{
    ssize_t n = send(c->fd, c->out + c->sent, c->n_out - c->sent, MSG_NOSIGNAL);

    if (n < 0 && errno != EAGAIN && errno != EINPROGRESS && errno != ENOTCONN) {
        if (c->kept)
            again(c);
        else
            client_done(c, false);
        return;
    }
    c->sent += n > 0 ? (size_t)n : 0;
    if (c->sent == c->n_out) {
        c->stage = HEAD;
        if (c->fresh)
            client_listen(c);
    } else if (!c->fresh) {
        watch(c, EPOLLOUT | EPOLLIN, EPOLL_CTL_MOD);
        c->fresh = true;
    }
}

/* ---- what comes -------------------------------------------------------------------------------------------------------- */

/* Body bytes: count events that carry text (those of usage and the end do not), keep the tail. */
static void take_body(client *c, const char *s, size_t n)
{
    static const char mark[] = "\"text\":\"", other[] = "\"content\":\""; /* llama-server's own endpoint says content */
    static const char *is = mark;
    size_t keep = n < sizeof c->tail / 2 ? n : sizeof c->tail / 2;

    if (!strcmp(o.path, "/completion"))
        is = other;
    for (size_t i = 0; o.stream && i < n; i++) {
        c->match = s[i] == is[c->match] ? c->match + 1 : s[i] == is[0];
        if (!is[c->match]) {
            c->match = 0;
            client_event(c);
            if (c->stage == IDLE)
                return; /* it had enough */
        }
    }
    if (c->n_tail + keep > sizeof c->tail - 1) {
        size_t left = sizeof c->tail - 1 - keep;
        memmove(c->tail, c->tail + c->n_tail - left, left);
        c->n_tail = left;
    }
    memcpy(c->tail + c->n_tail, s + n - keep, keep);
    c->n_tail += keep;
    c->tail[c->n_tail] = 0;
}

/* Chunk framing, byte by byte where it must be.  True: the body is over. */
static bool take_chunks(client *c, const char *s, size_t n)
{
    for (size_t i = 0; i < n && c->stage == BODY;) {
        if (c->size_done && c->left > 0) {
            size_t k = n - i < (size_t)c->left ? n - i : (size_t)c->left;
            take_body(c, s + i, k);
            c->left -= (long)k;
            i += k;
            continue;
        }
        char b = s[i++];
        if (c->size_done) { /* the line end after a chunk */
            if (b == '\n')
                c->size_done = false, c->left = 0, c->n_head = 0;
        } else if (b == '\n') {
            if (!c->n_head)
                continue;
            c->left = strtol(c->head, NULL, 16);
            if (!c->left)
                return true; /* the empty line that follows is read with the next answer's head */
            c->size_done = true;
        } else if (b != '\r' && c->n_head < sizeof c->head - 1) {
            c->head[c->n_head++] = b;
            c->head[c->n_head] = 0;
        }
    }
    return false;
}

static bool take_head(client *c)
{
    char *length = strcasestr(c->head, "\r\ncontent-length:");

    c->status = atoi(c->head + 9);
    c->chunked = strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL;
    c->closes |= strcasestr(c->head, "\r\nconnection: close") != NULL;
    c->left = length ? atol(length + 17) : c->chunked ? 0 : -1;
    c->size_done = false;
    c->n_head = 0;
    c->stage = BODY;
    return !c->chunked && c->left == 0;
}

/* True: the answer is complete. */
static bool take(client *c, const char *s, size_t n)
{
    while (n && c->stage == HEAD) {
        if (c->n_head || (*s != '\r' && *s != '\n')) {
            if (c->n_head >= sizeof c->head - 1)
                return false;
            c->head[c->n_head++] = *s;
            c->head[c->n_head] = 0;
        }
        s++, n--;
        if (c->n_head > 3 && !memcmp(c->head + c->n_head - 4, "\r\n\r\n", 4) && take_head(c))
            return true;
    }
    if (!n || c->stage != BODY)
        return false;
    if (c->chunked)
        return take_chunks(c, s, n);
    take_body(c, s, n);
    if (c->left > 0)
        c->left -= (long)n < c->left ? (long)n : c->left;
    return c->left == 0;
}

void client_read(client *c)
{
    static char some[65536];
    ssize_t n;

    do {
        n = recv(c->fd, some, sizeof some, 0);
        if (n <= 0)
            break;
        if (c->stage == IDLE)
            continue;
        if (c->stage == SENDING)
            c->stage = HEAD, c->closes = true; /* answered before it was all sent */
        if (take(c, some, (size_t)n)) {
            client_done(c, true);
            return;
        }
    } while (n == (ssize_t)sizeof some && c->fd >= 0);
    if (c->fd >= 0 && (n == 0 || (n < 0 && errno != EAGAIN))) {
        if (c->stage == IDLE)
            client_hang_up(c, false);
        else if (c->kept && !c->n_head && c->stage <= HEAD && !c->closes)
            again(c);
        else
            client_done(c, n == 0 && c->stage == BODY && c->left < 0);
    }
}
