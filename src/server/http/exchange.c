/* exchange.c -- exchanges: a request's data, and its answer on the way to its connection. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/http/inner.h"

enum {
    KEEP_SENT = 16 << 10, /* bytes of a stream that were sent and may stay in its memory */
    MAX_EXTRA = 4096,     /* of further headers of an answer, besides what repeats headers of the request */
};

/* ---- coming and going -------------------------------------------------------------------------------------------- */

rg_exchange *rg_exchange_begin(rg_conn *c)
{
    rg_http *h = c->loop->http;
    rg_exchange *x = rg_zalloc(sizeof *x);

    if (!x)
        return NULL;
    x->http = h;
    x->conn = c;
    x->loop = c->loop;
    x->reach = c->reach;
    x->method = x->path = "";
    x->note = (rg_exchange_note){ .route = -1, .tenant = -1, .since_ns = rg_now_ns() };
    atomic_init(&x->references, 1);
    pthread_mutex_init(&x->lock, NULL);
    rg_head_init(&x->head, h->o.max_header);
    rg_buf_init(&x->body, h->o.max_body);
    rg_buf_init(&x->extra, MAX_EXTRA + h->o.max_header);
    rg_buf_init(&x->out, h->o.max_stream);
    return x;
}

void rg_exchange_name(rg_exchange *x)
{
    static const char harmless[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.";
    const char *given = rg_exchange_header(x, "X-Request-Id");
    size_t n = given ? strnlen(given, sizeof x->id) : 0;

    if (n && n < 65 && strspn(given, harmless) == n)
        memcpy(x->id, given, n + 1);
    else
        snprintf(x->id, sizeof x->id, "req-%016llx%08x", (unsigned long long)rg_seed(), (unsigned)rg_now_ns());
}

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
    rg_head_fini(&x->head);
    rg_buf_fini(&x->body);
    rg_buf_fini(&x->extra);
    rg_buf_fini(&x->out);
    pthread_mutex_destroy(&x->lock);
    rg_free(x);
}

void rg_exchange_complete(rg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->conn = NULL;
    x->gone = true;
    x->asleep = false;
    if (x->unsent)
        atomic_fetch_sub(&x->http->n_unsent, 1);
    x->unsent = false;
    pthread_mutex_unlock(&x->lock);
    rg_http_loop_forget(x);
    rg_exchange_release(x);
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Under x->lock: its answer has grown, or it is over. */
static void wake(rg_exchange *x)
{
    if (x->ended && x->conn && !x->unsent) {
        x->unsent = true;
        atomic_fetch_add(&x->http->n_unsent, 1);
    }
    if (x->asleep && x->conn) {
        x->asleep = false;
        rg_http_loop_wake(x);
    }
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
        x->status = 200;
        x->type = type;
        x->stream = true;
        wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

void rg_exchange_write(rg_exchange *x, const char *data, size_t n)
{
    pthread_mutex_lock(&x->lock);
    if (x->sent > (x->out.n >> 1) && x->sent > (size_t)KEEP_SENT) { /* drop the bytes that were sent */
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
    rg_exchange *x = rg_zalloc(sizeof *x); /* no fields in its head */

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
    return rg_head_field(&x->head, name);
}

const char *rg_exchange_host(const rg_exchange *x)
{
    return x->head.host;
}

const char *rg_exchange_query(const rg_exchange *x, const char *name)
{
    return rg_head_arg(&x->head, name);
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

rg_reach rg_exchange_reach(const rg_exchange *x)
{
    return x->reach;
}

const char *rg_exchange_id(const rg_exchange *x)
{
    return x->id;
}

rg_exchange_note *rg_exchange_notes(rg_exchange *x)
{
    return &x->note;
}
