/* web.c -- see web.h. */
#define _GNU_SOURCE 1
#include "support/web.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

int test_web_connect_slow(int port, int window)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    assert_true(fd >= 0);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (window)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &window, sizeof window);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

int test_web_connect(int port)
{
    return test_web_connect_slow(port, 0);
}

bool test_web_send(int fd, const void *data, size_t n)
{
    for (const char *p = data; n;) {
        ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
        if (k <= 0)
            return false;
        p += k, n -= (size_t)k;
    }
    return true;
}

long test_web_some(int fd, char *to, size_t n, double timeout_s)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    if (poll(&p, 1, (int)(timeout_s * 1e3) + 1) <= 0)
        return -1;
    ssize_t k = recv(fd, to, n, 0);
    return k < 0 ? 0 : k;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

typedef struct raw {
    char *data;
    size_t n, room;
    bool closed;
} raw;

static bool more(raw *r, int fd, uint64_t until)
{
    char some[16384];
    double left = rg_seconds(rg_now_ns(), until);
    long n = rg_now_ns() < until ? test_web_some(fd, some, sizeof some, left) : -1;

    r->closed = n == 0;
    if (n <= 0)
        return false;
    if (r->n + (size_t)n + 1 > r->room) {
        r->room = 2 * (r->n + (size_t)n) + 1024;
        r->data = realloc(r->data, r->room);
        assert_non_null(r->data);
    }
    memcpy(r->data + r->n, some, (size_t)n);
    r->n += (size_t)n;
    r->data[r->n] = 0;
    return true;
}

/* Where the chunked body from `at` on ends; 0: not yet.  Its bytes without the framing are put at `to`. */
static size_t dechunk(const raw *r, size_t at, char *to, size_t *n)
{
    for (*n = 0;;) {
        char *line = r->n > at ? memmem(r->data + at, r->n - at, "\r\n", 2) : NULL;
        if (!line)
            return 0;
        size_t size = strtoul(r->data + at, NULL, 16), from = (size_t)(line + 2 - r->data);
        if (r->n < from + size + 2)
            return 0;
        memcpy(to + *n, r->data + from, size);
        *n += size;
        at = from + size + 2;
        if (!size)
            return at;
    }
}

const char *test_reply_header(const test_reply *r, const char *name)
{
    static _Thread_local char value[1024];
    size_t n = strlen(name);

    for (const char *p = r->head; p && (p = strstr(p, "\r\n")); ) {
        p += 2;
        if (!strncasecmp(p, name, n) && p[n] == ':') {
            p += n + 1;
            p += strspn(p, " ");
            snprintf(value, sizeof value, "%.*s", (int)strcspn(p, "\r\n"), p);
            return value;
        }
    }
    return NULL;
}

test_reply test_web_read(int fd, double timeout_s)
{
    uint64_t until = rg_now_ns() + (uint64_t)(timeout_s * 1e9);
    raw r = { 0 };
    test_reply out = { 0 };
    char *end = NULL;

    while (!(end = r.n ? memmem(r.data, r.n, "\r\n\r\n", 4) : NULL))
        if (!more(&r, fd, until)) {
            out.closed = r.closed;
            free(r.data);
            return out;
        }
    size_t at = (size_t)(end + 4 - r.data);
    out.head = strndup(r.data, at);
    out.status = atoi(r.data + strcspn(r.data, " "));
    const char *length = test_reply_header(&out, "Content-Length");
    size_t n = length ? strtoul(length, NULL, 10) : 0;
    bool chunked = test_reply_header(&out, "Transfer-Encoding") != NULL, none = out.status == 100 || out.status == 204;
    out.body = NULL;
    while (!none) {
        out.body = realloc(out.body, r.n + 1);
        assert_non_null(out.body);
        if (chunked ? dechunk(&r, at, out.body, &out.n_body) != 0 : length && r.n >= at + n)
            break;
        if (!more(&r, fd, until))
            break;
    }
    if (!chunked && !none) {
        out.n_body = length && r.n - at > n ? n : r.n - at;
        memcpy(out.body, r.data + at, out.n_body);
    }
    if (!out.body)
        out.body = calloc(1, 1);
    out.body[out.n_body] = 0;
    const char *connection = test_reply_header(&out, "Connection");
    out.closed = r.closed || (connection && !strcasecmp(connection, "close"));
    free(r.data);
    return out;
}

void test_reply_free(test_reply *r)
{
    free(r->head);
    free(r->body);
    *r = (test_reply){ 0 };
}

json_t *test_reply_json(const test_reply *r)
{
    json_error_t why;
    json_t *v = json_loadb(r->body, r->n_body, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);

    if (!v)
        fail_msg("no JSON (%s): %.300s", why.text, r->body);
    return v;
}

test_reply test_web_ask(int port, const char *method, const char *path, const char *headers, const char *body)
{
    int fd = test_web_connect(port);
    size_t n = body ? strlen(body) : 0;
    char *all = malloc(n + 4096);
    test_reply r;

    assert_non_null(all);
    int k = snprintf(all, 4096, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path, headers ? headers : "");
    k += body ? snprintf(all + k, 64, "Content-Length: %zu\r\n", n) : 0;
    k += snprintf(all + k, 8, "\r\n");
    memcpy(all + k, body ? body : "", n);
    test_web_send(fd, all, (size_t)k + n);
    free(all);
    r = test_web_read(fd, 60);
    close(fd);
    return r;
}

json_t *test_web_json(int port, const char *path, const char *body, int want)
{
    test_reply r = test_web_ask(port, body ? "POST" : "GET", path, NULL, body);

    if (r.status != want)
        fail_msg("%s %.200s: %d, not %d: %.300s", path, body ? body : "", r.status, want, r.body ? r.body : "(closed)");
    json_t *v = test_reply_json(&r);
    test_reply_free(&r);
    return v;
}

int test_web_status(int port, const char *path, const char *body)
{
    test_reply r = test_web_ask(port, body ? "POST" : "GET", path, NULL, body);
    int status = r.status;

    test_reply_free(&r);
    return status;
}

const json_t *test_json_at(const json_t *v, const char *path)
{
    char part[64];

    while (v && *path) {
        size_t n = strcspn(path, ".");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        v = json_is_array(v) ? json_array_get(v, (size_t)atoi(part)) : json_object_get(v, part);
        path += n + (path[n] == '.');
    }
    return v;
}

const char *test_json_text(const json_t *v, const char *path)
{
    const char *s = json_string_value(test_json_at(v, path));

    if (!s)
        fail_msg("no text at %s in %s", path, json_dumps(v, 0));
    return s;
}
