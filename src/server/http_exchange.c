/* http_exchange.c -- exchanges: a request's data, and its answer on the way to the library.
 *
 * A connection that waits for its answer is suspended and costs nothing; the thread that writes bytes resumes it. */
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "server/http_inner.h"

enum { BLOCK = 16 << 10 }; /* of a stream, handed to the library at once */

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

void rg_exchange_wake(rg_exchange *x)
{
    if (x->asleep && x->c) {
        x->asleep = false;
        MHD_resume_connection(x->c);
    }
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

/* Not under x->lock, which its reader takes under a lock of the library; once there is
 * an answer, what is read here does not change. */
bool rg_exchange_queue(rg_exchange *x)
{
    static char nothing[1];
    struct MHD_Response *r;
    enum MHD_Result ok;

    rg_exchange_keep(x); /* the response's own reference: its bytes are ours */
    r = x->stream ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, x, release)
                  : MHD_create_response_from_buffer_with_free_callback_cls(x->out.n, x->out.n ? x->out.data : nothing,
                                                                           release, x);
    if (!r)
        return atomic_fetch_sub(&x->references, 1), false;
    for (size_t i = 0; x->extra.n && i < x->extra.n;) {
        const char *name = x->extra.data + i, *value = name + strlen(name) + 1;
        MHD_add_response_header(r, name, value);
        i += (size_t)(value - name) + strlen(value) + 1;
    }
    if (x->type[0])
        MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, x->type);
    ok = MHD_queue_response(x->c, (unsigned)x->status, r);
    MHD_destroy_response(r);
    return ok == MHD_YES;
}

bool rg_exchange_settle(rg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    bool answered = x->type, gone = x->gone;
    if (!answered && !gone) {
        x->asleep = true;
        MHD_suspend_connection(x->c);
    }
    pthread_mutex_unlock(&x->lock);
    return answered ? rg_exchange_queue(x) : !gone;
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
        rg_exchange_wake(x);
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
        rg_exchange_wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

void rg_exchange_write(rg_exchange *x, const char *data, size_t n)
{
    pthread_mutex_lock(&x->lock);
    if (x->sent > (x->out.n >> 1) && x->sent > (size_t)BLOCK) { /* drop the bytes that were sent */
        memmove(x->out.data, x->out.data + x->sent, x->out.n - x->sent);
        x->out.n -= x->sent;
        x->sent = 0;
    }
    if (x->stream && !x->ended && !x->gone && n) {
        if (!rg_buf_add(&x->out, data, n))
            x->gone = true; /* no memory to wait in */
        rg_exchange_wake(x);
    }
    pthread_mutex_unlock(&x->lock);
}

void rg_exchange_end(rg_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->ended = true;
    rg_exchange_wake(x);
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
    rg_exchange_wake(x);
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
    rg_buf_init(&x->extra, RG_MAX_EXTRA);
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

