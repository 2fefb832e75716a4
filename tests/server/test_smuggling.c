/* test_smuggling.c -- requests that two programs could read in two ways.  A proxy in front might find another end of the
 * request than the server does, and then a part of one client's request would be taken for the next one's.  Each shape here is
 * answered once, with a refusal, the connection is closed, and what follows on it is never taken for a request. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <sys/socket.h>

static test_server t;

static int setup(void **state)
{
    static const char *const keys[] = { "secret" };
    rg_server_options o = test_server_options();

    (void)state;
    o.max_body = 1 << 20;
    o.keys = keys;
    o.n_keys = 1;
    test_server_start(&t, &o, 64, 4);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

#define KEY     "Authorization: Bearer secret\r\n"
#define POST    "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" KEY
#define GET     "GET /health HTTP/1.1\r\nHost: localhost\r\n"
#define BODY    "{\"prompt\":\"a\",\"max_tokens\":1}" /* 29 bytes */
#define CHUNKED "Transfer-Encoding: chunked\r\n"
#define CHUNKS  "1d\r\n" BODY "\r\n0\r\n\r\n"
/* What must never be answered after a refusal. */
#define SECOND "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"

/* All that the server sends until it closes. */
static char *ask_raw(const char *bytes, size_t n)
{
    size_t have = 0, room = 1 << 16;
    char *all = malloc(room);
    int fd = test_web_connect(t.port);
    long k;

    assert_non_null(all);
    test_web_send(fd, bytes, n);
    while (have < room - 1 && (k = test_web_some(fd, all + have, room - 1 - have, TEST_WATCHDOG_S)) > 0)
        have += (size_t)k;
    all[have] = 0;
    if (k)
        fail_msg("not closed after: %.300s", bytes);
    close(fd);
    return all;
}

static int count(const char *s, const char *what)
{
    int n = 0;

    for (; (s = strstr(s, what)); s++)
        n++;
    return n;
}

/* These bytes have one answer, of this status, and the connection is closed. */
static bool is_refused(const char *bytes, size_t n, int want)
{
    char *all = ask_raw(bytes, n), status[16];
    snprintf(status, sizeof status, "HTTP/1.1 %d ", want);
    bool ok = !strncmp(all, status, strlen(status)) && count(all, "HTTP/1.") == 1 && strstr(all, "Connection: close") &&
              strstr(all, "\"error\"");
    if (!ok)
        print_error("want %d and a close: %.300s\n  got: %.300s\n", want, bytes, all);
    free(all);
    return ok;
}

static const struct {
    const char *bytes;
    int want;
} shapes[] = {
    /* two lengths */
    { POST "Content-Length: 29\r\nContent-Length: 29\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\r\nContent-Length: 0\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 0\r\nContent-Length: 29\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\r\ncontent-length: 29\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\r\n" CHUNKED "\r\n" CHUNKS, 400 },
    { POST CHUNKED "Content-Length: 4\r\n\r\n" CHUNKS, 400 },
    { POST "Content-Length: 0\r\n" CHUNKED "\r\n" CHUNKS, 400 },
    /* lengths that are none */
    { POST "Content-Length: +5\r\n\r\n" BODY, 400 },
    { POST "Content-Length: -5\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 5, 5\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 5 5\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 0x1d\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 1d\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29.0\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 1e1\r\n\r\n" BODY, 400 },
    { POST "Content-Length: \"29\"\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29;\r\n\r\n" BODY, 400 },
    { POST "Content-Length: \v29\r\n\r\n" BODY, 400 },
    { POST "Content-Length: \xc2\xb2\r\n\r\n" BODY, 400 },
    { POST "Content-Length: \r\n\r\n" BODY, 400 },
    { POST "Content-Length:\r\n 29\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 2\r\n 9\r\n\r\n" BODY, 400 },
    { POST "Content-Length\r\n\r\n" BODY, 400 },
    { POST "Content-Length : 29\r\n\r\n" BODY, 400 },
    { POST "Content-Length\t: 29\r\n\r\n" BODY, 400 },
    { POST " Content-Length: 29\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 18446744073709551616\r\n\r\n" BODY, 413 },
    { POST "Content-Length: 18446744073709551645\r\n\r\n" BODY, 413 }, /* 29 + 2^64 */
    { POST "Content-Length: 99999999999999999999999999999999999999\r\n\r\n" BODY, 413 },
    { POST "Content-Length: 9223372036854775808\r\n\r\n" BODY, 413 },
    /* transfer encodings */
    { POST "Transfer-Encoding: xchunked\r\n\r\n" CHUNKS, 501 },
    { POST "Transfer-Encoding: chunkedx\r\n\r\n" CHUNKS, 501 },
    { POST "Transfer-Encoding: identity\r\n\r\n" CHUNKS, 501 },
    { POST "Transfer-Encoding: gzip, chunked\r\n\r\n" CHUNKS, 501 },
    { POST "Transfer-Encoding: chunked, identity\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: identity, chunked\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: chunked, chunked\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: chunked, gzip\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: chunked,\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: ,chunked\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: chunked;q=1\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: \"chunked\"\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: \x0b" "chunked\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: chunked\x0c\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: ch\xc5\xbfnked\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding:\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding : chunked\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding\t: chunked\r\n\r\n" CHUNKS, 400 },
    { POST " " CHUNKED "\r\n" CHUNKS, 400 },
    { POST "\t" CHUNKED "\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding:\r\n chunked\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: chun\r\n ked\r\n\r\n" CHUNKS, 400 },
    { POST "X: y\r\n " CHUNKED "\r\n" CHUNKS, 400 },
    { POST CHUNKED CHUNKED "\r\n" CHUNKS, 400 },
    { POST CHUNKED "Transfer-Encoding: identity\r\n\r\n" CHUNKS, 400 },
    { POST "Transfer-Encoding: identity\r\n" CHUNKED "\r\n" CHUNKS, 400 },
    { POST "Content-Length: 29\r\nTransfer-Encoding:\r\n chunked\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\r\nTransfer-Encoding:\r\n\tchunked\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\r\nTransfer-Encoding : chunked\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\r\n" "X: y\rTransfer-Encoding: chunked\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\r\n" "X: y\nTransfer-Encoding: chunked\r\n\r\n" BODY, 400 },
    { "POST /v1/completions HTTP/1.0\r\nHost: localhost\r\n" KEY CHUNKED "\r\n" CHUNKS, 400 },
    { "POST /v1/completions HTTP/1.0\r\nConnection: keep-alive\r\n" KEY CHUNKED "\r\n" CHUNKS, 400 },
    /* chunks */
    { POST CHUNKED "\r\n1d\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "xx0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1c\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\n\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\n\rX", 400 },
    { POST CHUNKED "\r\n0x1d\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n+1d\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n-1d\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n 1d\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d \r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\t;x\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1 d\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1_d\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n;x\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n10000000000000001d\r\n" BODY "\r\n0\r\n\r\n", 413 },
    { POST CHUNKED "\r\n1000000000000001d\r\n" BODY "\r\n0\r\n\r\n", 413 },
    { POST CHUNKED "\r\nfffffffffffffffe\r\n" BODY "\r\n0\r\n\r\n", 413 },
    { POST CHUNKED "\r\n1d;a\nb\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d;a=\"x\n\"\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d;a\rb\r\n" BODY "\r\n0\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d;a=\x01\r\n" BODY "\r\n0\r\n\r\n", 400 },
    /* trailers */
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nContent-Length: 5\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\ntransfer-encoding: chunked\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nHost: evil\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nAuthorization: Bearer x\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nX: y\r\n z\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nX : y\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nX\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\n: y\r\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nX: y\n\r\n", 400 },
    { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nGET / HTTP/1.1\r\n\r\n", 400 },
    /* lines */
    { "POST /v1/completions HTTP/1.1\nHost: localhost\nAuthorization: Bearer secret\nContent-Length: 29\r\n\n" BODY, 400 },
    { "POST /v1/completions HTTP/1.1\nHost: localhost\r\n" KEY "Content-Length: 29\r\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\n\r\n" BODY, 400 },
    { POST "Content-Length: 29\r\n\n" BODY, 400 },
    { POST "Content-Length: 29\r\r\n\r\n" BODY, 400 },
    { POST "X: a\rContent-Length: 29\r\n\r\n", 400 },
    { "\n" GET "\r\n", 400 },
    { GET " \r\n\r\n", 400 },
    { GET "\t\r\n\r\n", 400 },
    { GET ": y\r\n\r\n", 400 },
    { GET "X\r\n\r\n", 400 },
    { GET "X Y: z\r\n\r\n", 400 },
    { GET "X\x01: z\r\n\r\n", 400 },
    { GET "X(: z\r\n\r\n", 400 },
    { GET "X\xc3\xa9: z\r\n\r\n", 400 },
    { GET "X: \x7f\r\n\r\n", 400 },
    /* the request line */
    { "GET /health HTTP/0.9\r\n\r\n", 505 },
    { "GET /health\r\n\r\n", 400 },
    { "GET /health \r\n\r\n", 400 },
    { "GET\t/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health\tHTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /he alth HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health HTTP/1.1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health HTTP/1.1 \r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health HTTP/1.1x\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health HTTP/01.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health HTTP/1.+1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health http/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505 },
    { "G\x01T /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET: /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health#x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "\x16\x03\x01\x02\x00\x01", 400 },
    /* whom it is for */
    { "GET /health HTTP/1.1\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost:\r\n\r\n", 400 },
    { GET "Host: localhost\r\n\r\n", 400 },
    { GET "Host: evil.example\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: local host\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: localhost, evil\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: evil@localhost\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: localhost/x\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: localhost:80:80\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: localhost:x\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: localhost:65536\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: [::1\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: [localhost]\r\n\r\n", 400 },
    { "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET http://localhost/health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 400 },
    { "GET http://localhost:81/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET http://localhost@evil/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET http:///health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET http://localhost/health HTTP/1.1\r\n\r\n", 400 },
    { "GET ftp://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "CONNECT localhost:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    /* what counts once, and expectations */
    { POST KEY "Content-Length: 29\r\n\r\n" BODY, 400 },
    { POST "Authorization: Bearer other\r\nContent-Length: 29\r\n\r\n" BODY, 400 },
    { POST "x-api-key: a\r\nX-Api-Key: b\r\nContent-Length: 29\r\n\r\n" BODY, 400 },
    { GET "Origin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n", 400 },
    { POST "Expect: 200-ok\r\nContent-Length: 29\r\n\r\n" BODY, 417 },
    { POST "Expect: 100-continue, x\r\nContent-Length: 29\r\n\r\n" BODY, 417 },
    { POST "Expect:\r\nContent-Length: 29\r\n\r\n" BODY, 417 },
    { POST "Expect: 100-continue\r\nContent-Length: +29\r\n\r\n" BODY, 400 },
    { POST "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n" BODY, 413 },
    { POST "Content-Encoding: gzip\r\nContent-Length: 29\r\n\r\n" BODY, 415 },
};

static void shapes_are_refused_once(void **state)
{
    uint64_t before = rg_engine_stats(t.engine).n_output;
    int n_bad = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(shapes); i++) {
        char all[1024];
        int n = snprintf(all, sizeof all, "%s%s", shapes[i].bytes, SECOND);
        n_bad += !is_refused(all, (size_t)n, shapes[i].want);
    }
    assert_int_equal(n_bad, 0);
    test_server_quiet(&t);
    assert_int_equal(rg_engine_stats(t.engine).n_output, before); /* and none of them ran */
}

/* A NUL anywhere: some programs would stop reading there. */
static void nul_ends_nothing(void **state)
{
    static const struct {
        const char *before, *after;
    } cases[] = {
        { "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret",
          "x\r\nContent-Length: 29\r\n\r\n" BODY },
        { "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret",
          "\r\nContent-Length: 29\r\n\r\n" BODY },
        { "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: secret", "\r\nContent-Length: 29\r\n\r\n" BODY },
        { POST "Content-Length: 29", "0\r\n\r\n" BODY },
        { POST "Content-Length", ": 29\r\n\r\n" BODY },
        { POST "Transfer-Encoding: chunked", "\r\n\r\n" CHUNKS },
        { POST "Transfer-Encoding", "X: chunked\r\n\r\n" CHUNKS },
        { POST CHUNKED "\r\n1d", "\r\n" BODY "\r\n0\r\n\r\n" },
        { POST CHUNKED "\r\n1d;a=", "\r\n" BODY "\r\n0\r\n\r\n" },
        { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nX: ", "\r\n\r\n" },
        { "GET /health", " HTTP/1.1\r\nHost: localhost\r\n\r\n" },
        { "GET", " /health HTTP/1.1\r\nHost: localhost\r\n\r\n" },
        { "GET /health HTTP/1.1", "\r\nHost: localhost\r\n\r\n" },
        { "GET /health HTTP/1.1\r\nHost: localhost", "evil\r\n\r\n" },
        { GET "X: y", "\r\n\r\n" },
        { GET, "\r\n\r\n" },
    };
    int n_bad = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        char all[1024];
        int n = snprintf(all, sizeof all, "%s", cases[i].before);
        all[n++] = 0;
        n += snprintf(all + n, sizeof all - (size_t)n, "%s%s", cases[i].after, SECOND);
        n_bad += !is_refused(all, (size_t)n, 400);
    }
    assert_int_equal(n_bad, 0);
}

/* Too large for any reason: told so, once, and freed. */
static void too_large_is_told(void **state)
{
    static const struct {
        const char *before, *each;
        int times;
        const char *after;
        int want;
    } cases[] = {
        { "GET /health?x=1", "&a=1", 7000, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", 200 },
        { "GET /health?x=1", "&name=value", 7000, " HTTP/1.1\r\nHost: localhost\r\n\r\n", 414 },
        { "GET /", "a", 100000, " HTTP/1.1\r\nHost: localhost\r\n\r\n", 414 },
        { "", "A", 100000, " / HTTP/1.1\r\nHost: localhost\r\n\r\n", 414 },
        { GET, "X: y\r\n", 257, "\r\n", 431 },
        { GET, "X: y\r\n", 100000, "\r\n", 431 },
        { GET "X: ", "y", 100000, "\r\n\r\n", 431 },
        { GET, "X", 100000, ": y\r\n\r\n", 431 },
        { POST CHUNKED "\r\n1d;", "x", 100000, "\r\n" BODY "\r\n0\r\n\r\n", 400 },
        { POST CHUNKED "\r\n", "1;aaaaaaaaaa\r\n \r\n", 2000, "0\r\n\r\n", 400 },
        { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\n", "X: yyyyyyyyyyyyyyyy\r\n", 5000, "\r\n", 431 },
        { POST CHUNKED "\r\n1d\r\n" BODY "\r\n0\r\nX: ", "y", 100000, "\r\n\r\n", 431 },
        { POST CHUNKED "\r\n", "0", 100000, "\r\n\r\n", 413 },
    };
    char *all = malloc((size_t)4 << 20);
    size_t live = rg_mem_count().n_live;
    int n_bad = 0;

    (void)state;
    assert_non_null(all);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        size_t n = (size_t)sprintf(all, "%s", cases[i].before);
        for (int k = 0; k < cases[i].times; k++)
            n += (size_t)sprintf(all + n, "%s", cases[i].each);
        n += (size_t)sprintf(all + n, "%s%s", cases[i].after, cases[i].want == 200 ? "" : SECOND);
        if (cases[i].want != 200) {
            n_bad += !is_refused(all, n, cases[i].want);
            continue;
        }
        char *got = ask_raw(all, n);
        assert_memory_equal(got, "HTTP/1.1 200", 12);
        free(got);
    }
    assert_int_equal(n_bad, 0);
    free(all);
    TEST_UNTIL(rg_mem_count().n_live <= live);
}

/* What is well formed, however unusual, is answered, and what follows is the next request. */
static const char *const fine[] = {
    GET "\r\n",
    "\r\n\r\n" GET "\r\n",
    GET "X:\r\n\r\n",
    GET "X: a\tb \r\n\r\n",
    GET "X: \xc3\xa9\r\n\r\n",
    GET "Content-Length: 3\r\n\r\nabc",
    GET CHUNKED "\r\n3\r\nabc\r\n0\r\n\r\n",
    POST "Content-Length: 29\r\n\r\n" BODY,
    POST "Content-Length:\t 29 \r\n\r\n" BODY,
    POST "Content-Length: 029\r\n\r\n" BODY,
    POST CHUNKED "\r\n" CHUNKS,
    POST "transfer-ENCODING:CHUNKED\r\n\r\n" CHUNKS,
    POST CHUNKED "\r\n01D\r\n" BODY "\r\n000\r\n\r\n",
    POST CHUNKED "\r\n1d;a;b=c;d=\"e;f\"\r\n" BODY "\r\n0;x\r\nX: y\r\nZ:\r\n\r\n",
    POST CHUNKED "\r\n1\r\n{\r\n1b\r\n\"prompt\":\"a\",\"max_tokens\":1\r\n1\r\n}\r\n0\r\n\r\n",
    POST "Connection: keep-alive, x\r\nContent-Length: 29\r\n\r\n" BODY,
    "GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET HTTP://LOCALHOST:80/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET https://localhost/health HTTP/1.1\r\nHost: localhost:443\r\n\r\n",
    "GET http://127.0.0.1:9/health?x=%41+b HTTP/1.1\r\nHost: 127.0.0.1:9\r\n\r\n",
    "GET http://localhost/health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "GET /health HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n",
    "OPTIONS http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n",
};

static void good_ones_are_answered(void **state)
{
    (void)state;
    for (size_t i = 0; i < RG_LEN(fine); i++) {
        char bytes[1024];
        snprintf(bytes, sizeof bytes, "%s%s", fine[i], "GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        char *all = ask_raw(bytes, strlen(bytes));
        if (count(all, "HTTP/1.1 20") != 2 || !strstr(all, "\"version\""))
            fail_msg("%s\n  got: %s", bytes, all);
        free(all);
    }
}

/* Every way to cut a request into two packets gives the same. */
static void packets_do_not_matter(void **state)
{
    static const char *const bytes[] = { POST CHUNKED "\r\n1d;a=b\r\n" BODY "\r\n0\r\nX: y\r\n\r\n" SECOND,
                                         POST "Content-Length: 29\r\nTransfer-Encoding:\r\n chunked\r\n\r\n" BODY SECOND };

    (void)state;
    for (int i = 0; i < 2; i++)
        for (size_t cut = 1; cut < strlen(bytes[i]); cut += test_scale(10) < 10 ? 9 : 1) {
            int fd = test_web_connect(t.port);
            test_web_send(fd, bytes[i], cut);
            test_nap(0.0003);
            test_web_send(fd, bytes[i] + cut, strlen(bytes[i]) - cut);
            test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
            assert_int_equal(r.status, i ? 400 : 200);
            test_reply_free(&r);
            close(fd);
        }
}

static void expectations_are_met(void **state)
{
    static const char head[] = POST "Expect: 100-continue\r\nContent-Length: 29\r\n\r\n";
    char some[64];
    int fd = test_web_connect(t.port);

    (void)state;
    assert_true(test_web_send(fd, head, strlen(head)));
    long n = test_web_some(fd, some, sizeof some, TEST_WATCHDOG_S);
    assert_int_equal(n, 25);
    assert_memory_equal(some, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    assert_true(test_web_send(fd, BODY, 29));
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
    assert_int_equal(r.status, 200);
    test_reply_free(&r);
    close(fd);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_refused_once), cmocka_unit_test(nul_ends_nothing),
        cmocka_unit_test(too_large_is_told),       cmocka_unit_test(good_ones_are_answered),
        cmocka_unit_test(packets_do_not_matter),   cmocka_unit_test(expectations_are_met),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
