/* test_http.c -- HTTP as nobody should send it.  Whatever comes is answered or the connection is closed, in bounded time,
 * and the next good request is none the wiser. */
#define _GNU_SOURCE 1
#include "server/live.h"

#include <sys/socket.h>

enum { WATCHDOG_S = 60 };

static test_server t;
static int n_cases;

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    o.max_body = 1 << 20;
    test_server_start(&t, &o, 64, 8);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

static void still_well(const char *what)
{
    if (test_web_status(t.port, "/health", NULL) != 200)
        fail_msg("not well after: %.100s", what);
}

/* Send, half-close, and read one answer.  0: closed without one. */
static int send_raw(const char *bytes, size_t n, bool half_close)
{
    int fd = test_web_connect(t.port);

    test_web_send(fd, bytes, n);
    if (half_close)
        shutdown(fd, SHUT_WR);
    test_reply r = test_web_read(fd, WATCHDOG_S);
    int status = r.status;
    if (!status && !r.closed)
        fail_msg("neither answered nor closed: %.200s", bytes);
    test_reply_free(&r);
    close(fd);
    n_cases++;
    return status;
}

#define OK_HEAD "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
#define OK_BODY "{\"prompt\":\"a\",\"max_tokens\":1}" /* 29 bytes */
#define GET_HEAD "GET /health HTTP/1.1\r\nHost: localhost\r\n"

/* Any refusal or a close will do, but no success. */
enum { REFUSED = -1, ANY = -2 };

static const struct {
    const char *bytes;
    int want;
} cases[] = {
    { GET_HEAD "\r\n", 200 },
    { OK_HEAD "Content-Length: 29\r\n\r\n" OK_BODY, 200 },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\n1d\r\n" OK_BODY "\r\n0\r\n\r\n", 200 },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\n1d;ext=1\r\n" OK_BODY "\r\n0\r\nTrailer: x\r\n\r\n", 200 },
    { OK_HEAD "Transfer-Encoding: CHUNKED\r\n\r\n1D\r\n" OK_BODY "\r\n0\r\n\r\n", 200 },
    /* two ways to say where it ends */
    { OK_HEAD "Content-Length: 29\r\nTransfer-Encoding: chunked\r\n\r\n1d\r\n" OK_BODY "\r\n0\r\n\r\n", 400 },
    { OK_HEAD "Transfer-Encoding: chunked\r\nContent-Length: 29\r\n\r\n1d\r\n" OK_BODY "\r\n0\r\n\r\n", 400 },
    { OK_HEAD "Content-Length: 29\r\nContent-Length: 28\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Length: 29\r\nContent-Length: 29\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Length: 29, 29\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Length: -1\r\n\r\n", 400 },
    { OK_HEAD "Content-Length: +29\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Length: 0x1d\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Length: 2 9\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Length:\r\n\r\n", 400 },
    { OK_HEAD "Content-Length: 18446744073709551615\r\n\r\n", 413 },
    { OK_HEAD "Content-Length: 18446744073709551616\r\n\r\n", 413 },
    { OK_HEAD "Content-Length: 99999999999999999999999999\r\n\r\n", 413 },
    { OK_HEAD "Content-Length: 1048577\r\n\r\n", 413 },
    { OK_HEAD "Content-Length: 1048576\r\n\r\n", ANY },
    { OK_HEAD "Transfer-Encoding: gzip\r\n\r\n", 501 },
    { OK_HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501 },
    { OK_HEAD "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
    { OK_HEAD "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501 },
    { OK_HEAD "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400 },
    { OK_HEAD "Content-Encoding: gzip\r\nContent-Length: 29\r\n\r\n" OK_BODY, 415 },
    { OK_HEAD "Content-Encoding: identity\r\nContent-Length: 29\r\n\r\n" OK_BODY, 200 },
    /* chunks */
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", REFUSED },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n", 413 },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\n-1\r\n", 400 },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400 },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\n\r\n", 400 },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\n1d\r\n" OK_BODY "xx0\r\n\r\n", 400 },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
    { OK_HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nab", REFUSED },
    /* request lines */
    { "GET /health HTTP/1.0\r\n\r\n", 200 },
    { "GET /health HTTP/0.9\r\n\r\n", 505 },
    { "GET /health\r\n\r\n", 400 },
    { "GET /health HTTP/2.0\r\n\r\n", 505 },
    { "GET /health HTTP/1.2\r\nHost: localhost\r\n\r\n", 505 },
    { "GET /health HTTP/9.9\r\n\r\n", 505 },
    { "GET /health HTTZ/1.1\r\n\r\n", 400 },
    { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505 },
    { "GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health  HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { " GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200 },
    { "\r\n", REFUSED }, { "\n", REFUSED }, { "GET", REFUSED }, { "GET /", REFUSED }, { "G", REFUSED }, { " ", REFUSED },
    { "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", REFUSED },
    { "GET /health HTTP/1.1\nHost: localhost\n\n", 200 },
    { "get /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405 },
    { "FROB /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 405 },
    { "DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 405 },
    { "PUT /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 405 },
    { "TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405 },
    { "CONNECT example.com:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 200 },
    { "OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 200 },
    { "GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200 },
    { "GET //health HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /health/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /health?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 200 },
    { "GET /health%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /v1/models/..%2f..%2fetc HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /v1/models/%ef%bc%8e%ef%bc%8e HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /v1/models/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /%zz%1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", 404 },
    { "GET /app.css%0d%0aX: y HTTP/1.1\r\nHost: localhost\r\n\r\n", REFUSED },
    /* headers */
    { "GET /health HTTP/1.1\r\n\r\n", 400 },
    { GET_HEAD "Host: evil\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421 },
    { "GET /health HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n", 421 },
    { "GET /health HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", 421 },
    { "GET /health HTTP/1.1\r\nHost:\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n", 200 },
    { "GET /health HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", 200 },
    { GET_HEAD "Origin: https://evil.example\r\n\r\n", 403 },
    { GET_HEAD "Origin: null\r\n\r\n", 403 },
    { GET_HEAD "Origin: http://localhost\r\n\r\n", 200 },
    { GET_HEAD "X\r\n\r\n", 400 },
    { GET_HEAD ": x\r\n\r\n", 400 },
    { GET_HEAD "X : y\r\n\r\n", 400 },
    { GET_HEAD "X: y\r\n z\r\n\r\n", 400 },
    { GET_HEAD " folded: at once\r\n\r\n", 400 },
    { GET_HEAD "X: a\rb\r\n\r\n", 400 },
    { GET_HEAD "X: \x01\x02\x7f\r\n\r\n", 400 },
    { GET_HEAD "X-Request-Id: a\x01\r\n\r\n", 400 },
    { GET_HEAD "Connection: close\r\n\r\n", 200 },
    { GET_HEAD "Connection: upgrade\r\nUpgrade: h2c\r\n\r\n", 200 },
    { GET_HEAD "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", 200 },
    { GET_HEAD "Range: bytes=0-1\r\n\r\n", 200 },
    { GET_HEAD "Expect: something\r\n\r\n", 417 },
    { GET_HEAD "Content-Length: 3\r\n\r\nabc", 200 },
    { OK_HEAD "Expect: 100-continue\r\nContent-Length: 29\r\n\r\n" OK_BODY, ANY },
    { OK_HEAD "Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n", 413 },
    { OK_HEAD "Cookie: a=b; c=\"\r\nContent-Length: 29\r\n\r\n" OK_BODY, ANY },
    { OK_HEAD "X-Request-Timeout: -1\r\nContent-Length: 29\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "X-Request-Timeout: nan\r\nContent-Length: 29\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "X-Request-Timeout: 1e400\r\nContent-Length: 29\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "X-Request-Timeout: 5\r\nContent-Length: 29\r\n\r\n" OK_BODY, 200 },
    /* bodies */
    { OK_HEAD "\r\n", 400 },
    { OK_HEAD "Content-Length: 0\r\n\r\n", 400 },
    { OK_HEAD "Content-Length: 28\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Length: 3\r\n\r\n\xef\xbb\xbf", 400 },
    { OK_HEAD "Content-Length: 2\r\n\r\n\xff\xfe", 400 },
    { OK_HEAD "Content-Length: 1\r\n\r\n\"", 400 },
    { OK_HEAD "Content-Length: 4\r\n\r\nnull", 400 },
    /* what belongs to nobody's protocol */
    { "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 505 },
    { "GET /v1/models%00/x HTTP/1.1\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /v1/files/%2e%2e%2fbatches.db HTTP/1.1\r\nHost: localhost\r\n\r\n", 501 },
    { OK_HEAD "Content-Length : 29\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Length\t: 29\r\n\r\n" OK_BODY, 400 },
    { OK_HEAD "Content-Encoding: deflate\r\nContent-Length: 29\r\n\r\n" OK_BODY, 415 },
    { OK_HEAD "Content-Encoding: br\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 415 },
    { OK_HEAD "Content-Encoding: identity, gzip\r\nContent-Length: 29\r\n\r\n" OK_BODY, 415 },
    { "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: localhost:99999999\r\n\r\n", 400 },
    { "GET /health HTTP/1.1\r\nHost: 127.1.evil\r\n\r\n", 421 },
    { "GET /health HTTP/1.1\r\nHost: 0.0.0.0\r\n\r\n", 200 },
    { "GET /health HTTP/1.1\r\nHost: [::]\r\n\r\n", 200 },
    { "GET /health HTTP/1.1\r\nHost: localhost.\r\n\r\n", 421 },
    { "GET /health HTTP/1.1\r\nHost: localhost@evil\r\n\r\n", 400 },
};

static void odd_requests(void **state)
{
    int n_bad = 0;

    (void)state;
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        const char *b = cases[i].bytes;
        size_t n = strlen(b);
        /* an unfinished body of the right length would be waited for: half-close says that no more will come, where an
         * answer does not hang on it */
        bool cut = cases[i].want == REFUSED || cases[i].want == ANY;
        int status = send_raw(b, n, cut);
        int want = cases[i].want;
        if (want == REFUSED ? status && (status < 300 || status > 599) : want != ANY && status != want)
            print_error("case %zu: %d, not %d: %.200s\n", i, status, want, b), n_bad++;
        still_well(b);
    }
    assert_int_equal(n_bad, 0);
}

/* A good request cut at every byte, then closed or reset. */
static void cut_everywhere(void **state)
{
    static const char good[] = OK_HEAD "Content-Length: 29\r\n\r\n" OK_BODY;
    const struct linger reset = { .l_onoff = 1 };

    (void)state;
    for (size_t n = 0; n < strlen(good); n += 1 + (size_t)(test_scale(3) < 3 ? 5 : 0)) {
        int fd = test_web_connect(t.port);
        test_web_send(fd, good, n);
        if (n % 2)
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        close(fd);
        n_cases++;
    }
    still_well("cuts");
}

static void nul_and_every_byte_in_a_header(void **state)
{
    char b[200];

    (void)state;
    for (int c = 0; c < 256; c += test_scale(10) < 10 ? 17 : 1) {
        int n = snprintf(b, sizeof b, GET_HEAD "X-Odd: a") ;
        b[n++] = (char)c;
        n += snprintf(b + n, sizeof b - (size_t)n, "b\r\n\r\n");
        send_raw(b, (size_t)n, true);
    }
    still_well("bytes");
}

static void floods_are_refused(void **state)
{
    size_t room = (size_t)6 << 20, n = 0;
    char *b = malloc(room);
    int status;

    (void)state;
    assert_non_null(b);
    n = (size_t)sprintf(b, GET_HEAD);
    for (int i = 0; i < 100000; i++)
        n += (size_t)sprintf(b + n, "X-%d: y\r\n", i);
    n += (size_t)sprintf(b + n, "\r\n");
    status = send_raw(b, n, false);
    assert_true(status == 431 || status == 0);
    n = (size_t)sprintf(b, "GET /");
    memset(b + n, 'a', 1 << 20);
    n += 1 << 20;
    n += (size_t)sprintf(b + n, " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    status = send_raw(b, n, false);
    assert_true(status == 414 || status == 431 || status == 0);
    n = (size_t)sprintf(b, GET_HEAD "X: ");
    memset(b + n, 'a', 1 << 20);
    n += 1 << 20;
    n += (size_t)sprintf(b + n, "\r\n\r\n");
    status = send_raw(b, n, false);
    assert_true(status == 431 || status == 0);
    still_well("floods");
    /* a body in very many small chunks: read, and refused once it is too large */
    n = (size_t)sprintf(b, OK_HEAD "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 500000; i++)
        n += (size_t)sprintf(b + n, "6\r\n{     \r\n");
    n += (size_t)sprintf(b + n, "0\r\n\r\n");
    status = send_raw(b, n, false);
    assert_int_equal(status, 413);
    still_well("chunks");
    free(b);
}

static void pipelines_are_answered_in_order(void **state)
{
    enum { N = 1000 };
    char *b = malloc(N * 120);
    size_t n = 0;
    int fd = test_web_connect(t.port);
    char some[65536];
    long got, total = 0;
    size_t answers = 0;

    (void)state;
    assert_non_null(b);
    for (int i = 0; i < N; i++)
        n += (size_t)sprintf(b + n, GET_HEAD "X-Request-Id: n%d\r\n\r\n", i);
    assert_true(test_web_send(fd, b, n));
    char *all = malloc((size_t)1 << 20);
    assert_non_null(all);
    while (answers < N && (got = test_web_some(fd, some, sizeof some, WATCHDOG_S)) > 0 && total + got < 1 << 20) {
        memcpy(all + total, some, (size_t)got);
        total += got;
        all[total] = 0;
        answers = 0;
        for (char *p = all; (p = strstr(p, "HTTP/1.1 200")); p++)
            answers++;
    }
    assert_int_equal(answers, N);
    char *p = all;
    for (int i = 0; i < N; i++) {
        char id[24];
        snprintf(id, sizeof id, "X-Request-Id: n%d\r\n", i);
        p = strstr(p, id);
        assert_non_null(p);
    }
    free(all);
    free(b);
    close(fd);
    n_cases++;
}

/* Until it is told that it was too slow; a byte now and then does not help. */
static void send_slowly(int port, const char *bytes)
{
    int fd = test_web_connect(port);

    assert_true(test_web_send(fd, bytes, strlen(bytes)));
    for (int i = 0; i < 5; i++) {
        test_nap(0.02);
        test_web_send(fd, "x", 1);
    }
    test_reply r = test_web_read(fd, WATCHDOG_S);
    assert_int_equal(r.status, 408);
    assert_true(r.closed);
    assert_non_null(strstr(r.body, "request_timeout"));
    test_reply_free(&r);
    close(fd);
    n_cases++;
}

/* Who has begun a request is told, who has not is closed. */
static void slow_senders_are_closed(void **state)
{
    rg_server_options o = test_server_options();
    test_server slow;
    char byte;

    (void)state;
    o.header_timeout_s = o.body_timeout_s = 0.3;
    o.idle_timeout_s = 0.5;
    test_server_start(&slow, &o, 64, 4);
    send_slowly(slow.port, "GE");
    send_slowly(slow.port, GET_HEAD);
    send_slowly(slow.port, OK_HEAD "Content-Length: 29\r\n\r\n{\"pro");
    send_slowly(slow.port, OK_HEAD "Transfer-Encoding: chunked\r\n\r\nff\r\n{\"pro");
    int silent = test_web_connect(slow.port), blank = test_web_connect(slow.port);
    test_web_send(blank, "\r\n", 2);
    assert_int_equal(test_web_some(silent, &byte, 1, WATCHDOG_S), 0);
    assert_int_equal(test_web_some(blank, &byte, 1, WATCHDOG_S), 0);
    close(silent);
    close(blank);
    test_server_stop(&slow);
}

static void random_bytes(void **state)
{
    rg_rng rng = { test_seed, 0 };
    char b[512];
    static const char good[] = OK_HEAD "Content-Length: 29\r\n\r\n" OK_BODY;

    (void)state;
    for (int i = 0; i < test_scale(200); i++) {
        size_t n = strlen(good);
        memcpy(b, good, n);
        for (uint32_t k = rg_rng_below(&rng, 4); k < 4; k++)
            b[rg_rng_below(&rng, (uint32_t)n)] = (char)rg_rng_below(&rng, 256);
        send_raw(b, n, true);
    }
    still_well("random bytes");
}

static void nothing_is_left(void **state)
{
    (void)state;
    print_message("%d cases\n", n_cases);
    test_server_quiet(&t);
    rg_engine_check(t.engine);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(odd_requests),          cmocka_unit_test(cut_everywhere),
        cmocka_unit_test(nul_and_every_byte_in_a_header), cmocka_unit_test(floods_are_refused),
        cmocka_unit_test(pipelines_are_answered_in_order), cmocka_unit_test(slow_senders_are_closed),
        cmocka_unit_test(random_bytes),          cmocka_unit_test(nothing_is_left),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
