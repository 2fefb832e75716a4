/* send.c -- an answer on its way: its head, a body of known length or a stream in chunks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/clock.h"
#include "server/http/inner.h"

enum { SHORT = 16 << 10 }; /* a body that is sent together with its head */

static const struct reason {
    int status;
    const char *text;
} reasons[] = {
    { 200, "OK" },
    { 204, "No Content" },
    { 400, "Bad Request" },
    { 401, "Unauthorized" },
    { 403, "Forbidden" },
    { 404, "Not Found" },
    { 405, "Method Not Allowed" },
    { 408, "Request Timeout" },
    { 409, "Conflict" },
    { 413, "Content Too Large" },
    { 414, "URI Too Long" },
    { 415, "Unsupported Media Type" },
    { 417, "Expectation Failed" },
    { 421, "Misdirected Request" },
    { 422, "Unprocessable Content" },
    { 429, "Too Many Requests" },
    { 431, "Request Header Fields Too Large" },
    { 500, "Internal Server Error" },
    { 501, "Not Implemented" },
    { 503, "Service Unavailable" },
    { 504, "Gateway Timeout" },
    { 505, "HTTP Version Not Supported" },
    { 507, "Insufficient Storage" },
};

/* ---- the head ---------------------------------------------------------------------------------------------------- */

/* "Sun, 06 Nov 1994 08:49:37 GMT": in English, whatever the locale is. */
static void write_date(rg_buf *b)
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t now = (time_t)rg_wall_s();
    struct tm t;

    if (gmtime_r(&now, &t))
        rg_buf_printf(b, "Date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n", days + 3 * t.tm_wday, t.tm_mday,
                      months + 3 * t.tm_mon, t.tm_year + 1900, t.tm_hour, t.tm_min, t.tm_sec);
}

static void write_head(rg_conn *c, rg_buf *b)
{
    const rg_exchange *x = c->x;
    const char *text = "Unknown";

    for (size_t i = 0; i < RG_LEN(reasons); i++)
        if (reasons[i].status == x->status)
            text = reasons[i].text;
    c->last |= x->stream && !x->head.minor; /* HTTP/1.0 has no chunks: the end of the connection ends the stream */
    rg_buf_printf(b, "HTTP/1.1 %d %s\r\n", x->status, text);
    write_date(b);
    for (size_t i = 0; i < x->extra.n;) {
        const char *name = x->extra.data + i, *value = name + strlen(name) + 1;
        rg_buf_printf(b, "%s: %s\r\n", name, value);
        i += (size_t)(value - name) + strlen(value) + 1;
    }
    if (x->type[0])
        rg_buf_printf(b, "Content-Type: %s\r\n", x->type);
    if (c->last)
        rg_buf_str(b, "Connection: close\r\n");
    else if (!x->head.minor)
        rg_buf_str(b, "Connection: Keep-Alive\r\n");
    if (!x->stream && x->status != 204)
        rg_buf_printf(b, "Content-Length: %zu\r\n", x->out.n);
    else if (x->stream && x->head.minor)
        rg_buf_str(b, "Transfer-Encoding: chunked\r\n");
    rg_buf_str(b, "\r\n");
}

/* ---- bytes out --------------------------------------------------------------------------------------------------- */

static ssize_t put(rg_conn *c, const char *data, size_t n)
{
    ssize_t k;

    do
        k = c->tls ? rg_tls_send(c->tls, data, n) : send(c->fd, data, n, MSG_NOSIGNAL);
    while (k < 0 && errno == EINTR);
    return k;
}

/* Send data[*at, n). */
static rg_sent send_rest(rg_conn *c, const char *data, size_t n, size_t *at)
{
    while (*at < n) {
        ssize_t k = put(c, data + *at, n - *at);
        if (k < 0 && errno != EAGAIN)
            return RG_SENT_LOST;
        if (k >= 0 || !c->blocked)
            rg_conn_blocked(c, k < 0);
        if (k < 0)
            return RG_SENT_WAITS;
        *at += (size_t)k;
    }
    return RG_SENT_ALL;
}

rg_sent rg_send_out(rg_conn *c)
{
    rg_sent s = send_rest(c, c->out.data, c->out.n, &c->out_at);

    if (s != RG_SENT_ALL)
        return s;
    rg_buf_reset(&c->out);
    c->out_at = 0;
    return s;
}

/* Under x->lock: the next bytes of the stream to c->out. */
static rg_sent next_piece(rg_conn *c)
{
    rg_exchange *x = c->x;
    size_t n = x->out.n - x->sent;
    bool chunked = x->head.minor;

    if (n) {
        n = n < SHORT ? n : SHORT;
        if (chunked)
            rg_buf_printf(&c->out, "%zx\r\n", n);
        rg_buf_add(&c->out, x->out.data + x->sent, n);
        if (chunked)
            rg_buf_str(&c->out, "\r\n");
        x->sent += n;
        if (x->sent == x->out.n) {
            rg_buf_reset(&x->out);
            x->sent = 0;
        }
        return RG_SENT_SOME;
    }
    if (x->ended && (!chunked || c->closed_stream))
        return RG_SENT_ALL;
    if (x->ended) {
        rg_buf_str(&c->out, "0\r\n\r\n");
        c->closed_stream = true;
        return RG_SENT_SOME;
    }
    if (x->gone)
        return RG_SENT_LOST;
    x->asleep = true;
    return RG_SENT_WAITS;
}

/* Under x->lock: what is to be sent next. */
static rg_sent fill(rg_conn *c)
{
    rg_exchange *x = c->x;
    bool no_body = !strcmp(x->method, "HEAD") || x->status == 204;

    if (!x->type && x->gone)
        return RG_SENT_LOST;
    if (!x->type) {
        x->asleep = true;
        return RG_SENT_WAITS;
    }
    if (!c->head_made) {
        c->head_made = true;
        write_head(c, &c->out);
        if (no_body || x->stream)
            c->body_at = no_body ? x->out.n : 0;
        else if (x->out.n <= SHORT)
            c->body_at = rg_buf_add(&c->out, x->out.data, x->out.n) ? x->out.n : 0;
        return RG_SENT_SOME;
    }
    return x->stream && !no_body ? next_piece(c) : RG_SENT_ALL;
}

rg_sent rg_send_answer(rg_conn *c)
{
    rg_exchange *x = c->x;

    for (;;) {
        rg_sent s = rg_send_out(c);
        if (s == RG_SENT_ALL && c->head_made && !x->stream)
            s = send_rest(c, x->out.data, x->out.n, &c->body_at); /* a whole answer does not change any more */
        if (s != RG_SENT_ALL)
            return s;
        pthread_mutex_lock(&x->lock);
        s = c->left && !x->ended ? RG_SENT_LOST : fill(c); /* nobody would read the rest */
        pthread_mutex_unlock(&x->lock);
        if (c->out.failed)
            return RG_SENT_LOST; /* no memory */
        if (s != RG_SENT_SOME)
            return s;
    }
}
