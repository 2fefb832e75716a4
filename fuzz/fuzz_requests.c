/* fuzz_requests.c -- bytes to a server in this process, over a socket: FUZZ_RAW, as they are; else the first byte chooses an
 * endpoint and the rest is the body of a request to it.  An answer has a status that is known, and no 500; the server goes on. */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "server/server.h"

static const char *const paths[] = {
    "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/responses/input_tokens", "/v1/conversations", "/v1/messages",
    "/v1/messages/count_tokens", "/v1/embeddings", "/v1/rerank", "/v1/score", "/tokenize", "/detokenize", "/apply-template",
    "/completion", "/infill", "/embedding", "/props", "/api/chat", "/api/generate", "/api/embed", "/api/show", "/v1/files",
    "/v1/batches", "/v1/messages/batches",
};

static char dir[] = "/tmp/ridge-fuzz-XXXXXX"; /* of batches */
static rg_engine *engine;
static rg_server *server;

static void close_all(void)
{
    char path[600];
    DIR *d;

    rg_server_close(server);
    rg_close(engine);
    d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        remove(path); /* it has no folders but . and .., which stay */
    }
    if (d)
        closedir(d);
    remove(dir);
}

static int open_server(void)
{
    rg_options o = rg_options_default();
    rg_server_options so = rg_server_options_default();
    rg_error err = { 0 };

    o.max_seq_len = 128;
    o.max_seqs = 4;
    o.n_threads = 1;
    o.kv_bytes = (size_t)16 << 20;
    engine = rg_open("models/tales-1m", &o, &err);
    so.port = 0;
    so.max_tokens = 4;
    so.max_body = 1 << 16;
    so.request_timeout_s = 2;
    so.header_timeout_s = so.body_timeout_s = so.idle_timeout_s = 1;
    so.batch_dir = mkdtemp(dir);
    rg_log_set_level(RG_LOG_ERROR - 1);
    server = engine ? rg_server_open(&so, &err) : NULL;
    if (!server) {
        fprintf(stderr, "%s: run fuzzers from the root of the sources\n", err.text);
        exit(1);
    }
    rg_server_ready(server, engine);
    atexit(close_all);
    return atoi(strrchr(rg_server_url(server), ':') + 1);
}

static int dial(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to))
        abort(); /* the server is gone */
    return fd;
}

static void send_all(int fd, const void *data, size_t n)
{
    for (ssize_t k; n && (k = send(fd, data, n, MSG_NOSIGNAL)) > 0; n -= (size_t)k)
        data = (const char *)data + k;
}

/* False: nothing came for 20 s.  libFuzzer's own timer interrupts waits. */
static bool wait_for(struct pollfd *p)
{
    int got;

    do
        got = poll(p, 1, 20000);
    while (got < 0 && errno == EINTR);
    return got == 1;
}

/* A server that has got all that there is ends within its timeouts. */
static void read_answer(int fd)
{
    static const int known[] = { 100, 200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 408, 409, 411, 413, 414, 415, 417, 421, 422,
                                 429, 431, 501, 503, 504, 505 };
    char head[16] = "", buffer[4096];
    size_t n_head = 0;
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int status = 0;
    ssize_t n = 0;

    while (wait_for(&p) && (n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT)) > 0)
        for (ssize_t i = 0; i < n && n_head < sizeof head - 1; i++)
            head[n_head++] = buffer[i];
    if (n > 0 || !(p.revents & (POLLIN | POLLHUP | POLLERR)))
        abort(); /* it waits for ever */
    if (!n_head)
        return;
    if (sscanf(head, "HTTP/1.%*c %d", &status) != 1)
        abort();
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (status == known[i])
            return;
    fprintf(stderr, "status %d\n", status);
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static int port;
    int fd;

    if (!port)
        port = open_server();
    if (n > 1 << 16)
        return 0;
    fd = dial(port);
#ifndef FUZZ_RAW
    char head[256];
    const char *path = paths[n ? data[0] % (sizeof paths / sizeof *paths) : 0];
    snprintf(head, sizeof head, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n\r\n",
             path, strcmp(path, "/v1/files") ? "application/json" : "multipart/form-data; boundary=b", n ? n - 1 : 0);
    send_all(fd, head, strlen(head));
    send_all(fd, data + 1, n ? n - 1 : 0);
#else
    (void)paths;
    send_all(fd, data, n);
#endif
    shutdown(fd, SHUT_WR);
    read_answer(fd);
    close(fd);
    return 0;
}
