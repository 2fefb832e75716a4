/* buf.c -- a growable byte buffer with a cap: room doubles, and a failure sticks. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

void rg_buf_init(rg_buf *b, size_t cap)
{
    *b = (rg_buf){ .cap = cap };
}

void rg_buf_fini(rg_buf *b)
{
    rg_free(b->data);
    *b = (rg_buf){ .cap = b->cap };
}

void rg_buf_reset(rg_buf *b)
{
    b->n = 0;
    b->failed = b->over = false;
    if (b->data)
        b->data[0] = '\0';
}

/* Room for n more bytes and the NUL.  n > cap - b->n is a failure, so n + b->n cannot wrap. */
static bool make_room(rg_buf *b, size_t n)
{
    size_t want, room = b->room ? b->room : 64;
    char *data;

    if (b->failed)
        return false;
    if (n > b->cap - b->n || b->cap > (size_t)PTRDIFF_MAX)
        return b->failed = b->over = true, false;
    want = b->n + n + 1;
    if (b->data && want <= b->room)
        return true;
    while (room < want)
        room *= 2;
    if (room > b->cap)
        room = b->cap + 1;
    data = rg_resize(b->data, room);
    if (!data)
        return b->failed = true, false;
    b->data = data;
    b->room = room;
    return true;
}

bool rg_buf_add(rg_buf *b, const void *p, size_t n)
{
    if (!make_room(b, n))
        return false;
    if (n)
        memcpy(b->data + b->n, p, n);
    b->n += n;
    b->data[b->n] = '\0';
    return true;
}

bool rg_buf_str(rg_buf *b, const char *s)
{
    return rg_buf_add(b, s, strlen(s));
}

bool rg_buf_printf(rg_buf *b, const char *fmt, ...)
{
    va_list args;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        return b->failed = true, false;
    if (!make_room(b, (size_t)n))
        return false;
    va_start(args, fmt);
    vsnprintf(b->data + b->n, (size_t)n + 1, fmt, args);
    va_end(args);
    b->n += (size_t)n;
    return true;
}
