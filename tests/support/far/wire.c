/* wire.c -- see wire.h. */
#include "support/far/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void *far_room(far_wire *w, size_t n)
{
    if (w->n + n > w->room) {
        w->room = 2 * (w->n + n) + 256;
        w->data = realloc(w->data, w->room);
        RG_ASSERT(w->data);
    }
    w->n += n;
    w->bytes[w->kind] += n;
    return w->data + w->n - n;
}

void far_put(far_wire *w, const void *p, size_t n)
{
    void *to = far_room(w, n);

    if (n)
        memcpy(to, p, n);
}

void *far_get_in_place(far_wire *w, size_t n)
{
    RG_ASSERT(w->n - w->at >= n);
    w->at += n;
    w->bytes[w->kind] += n;
    return w->data + w->at - n;
}

void far_get(far_wire *w, void *p, size_t n)
{
    const void *from = far_get_in_place(w, n);

    if (n)
        memcpy(p, from, n);
}

void far_reset(far_wire *w)
{
    w->n = w->at = 0;
    w->kind = FAR_COMMANDS;
    memset(w->bytes, 0, sizeof w->bytes);
}

void far_fini(far_wire *w)
{
    free(w->data);
    *w = (far_wire){ 0 };
}

typedef struct header {
    uint64_t bytes;
    uint32_t verb, unused;
} header;

static bool write_all(int fd, const void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = send(fd, (const uint8_t *)p + done, n - done, MSG_NOSIGNAL);

        if (k < 0 && errno != EINTR)
            return false;
        done += k > 0 ? (size_t)k : 0;
    }
    return true;
}

static bool read_all(int fd, void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t k = read(fd, (uint8_t *)p + done, n - done);

        if (k == 0 || (k < 0 && errno != EINTR))
            return false;
        done += k > 0 ? (size_t)k : 0;
    }
    return true;
}

bool far_send(int fd, uint32_t verb, const far_wire *w)
{
    const header h = { w->n, verb, 0 };

    return write_all(fd, &h, sizeof h) && write_all(fd, w->data, w->n);
}

bool far_receive(int fd, uint32_t *verb, far_wire *w)
{
    header h;

    far_reset(w);
    if (!read_all(fd, &h, sizeof h))
        return false;
    *verb = h.verb;
    bool ok = read_all(fd, far_room(w, h.bytes), h.bytes);
    memset(w->bytes, 0, sizeof w->bytes);
    return ok;
}
