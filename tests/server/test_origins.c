/* test_origins.c -- who may ask: web pages by their origin, names in Host, and the places where the server listens. */
#define _GNU_SOURCE 1
#include "server/live.h"
#include "support/model.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static rg_engine *engine;

static void start(test_server *t, const rg_server_options *o)
{
    test_server_start_with(t, o, engine);
}

static void stop(test_server *t)
{
    rg_server_close(t->s);
}

/* The answer to these bytes, on a connection of their own. */
static test_reply ask(int port, const char *bytes)
{
    int fd = test_web_connect(port);

    assert_true(test_web_send(fd, bytes, strlen(bytes)));
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
    close(fd);
    return r;
}

static bool header_is(const test_reply *r, const char *name, const char *want)
{
    const char *v = test_reply_header(r, name);

    return want ? v && !strcmp(v, want) : !v;
}

/* ---- pages ------------------------------------------------------------------------------------------------------- */

#define ASKED \
    "authorization,content-type,x-stainless-os,x-stainless-lang,x-stainless-timeout,openai-beta,anthropic-beta," \
    "anthropic-dangerous-direct-browser-access"

/* What a browser sends before a page's request, and that request without a body; allowed: the origin that both answers name;
 * NULL: the page may not ask. */
static void check_page(int port, const char *origin, const char *allowed)
{
    char bytes[1024];

    snprintf(bytes, sizeof bytes,
             "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: %s\r\n"
             "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: " ASKED "\r\n"
             "Access-Control-Request-Private-Network: true\r\n\r\n", origin);
    test_reply r = ask(port, bytes);
    if (r.status != (allowed ? 200 : 403) || !header_is(&r, "Access-Control-Allow-Origin", allowed) ||
        !header_is(&r, "Access-Control-Allow-Headers", allowed ? ASKED : NULL) ||
        !header_is(&r, "Access-Control-Allow-Methods", allowed ? "POST" : NULL) ||
        !header_is(&r, "Access-Control-Allow-Private-Network", allowed ? "true" : NULL) ||
        !strstr(r.head, "Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers"))
        fail_msg("%s: %s", origin, r.head);
    test_reply_free(&r);
    /* a request that browsers send without asking first */
    snprintf(bytes, sizeof bytes, "POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: %s\r\n"
                                  "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", origin);
    r = ask(port, bytes);
    if (r.status != (allowed ? 400 : 403) || !header_is(&r, "Access-Control-Allow-Origin", allowed) ||
        !test_reply_header(&r, "Vary") || (allowed && !test_reply_header(&r, "Access-Control-Expose-Headers")) ||
        (!allowed && !strstr(r.body, "--cors-origin")))
        fail_msg("%s: %s\n%s", origin, r.head, r.body);
    test_reply_free(&r);
}

static void pages_of_this_machine_may_ask(void **state)
{
    static const char *const may[] = { "http://localhost",      "http://localhost:3000", "https://localhost:8443",
                                       "http://127.0.0.1:5173", "http://127.8.9.1",      "http://[::1]:3000",
                                       "http://app.localhost",  "http://a.b.localhost:1234" };
    static const char *const not[] = { "null", "http://evil.example", "http://localhost.evil.example", "http://localhostx",
                                       "http://127.0.0.1.evil.example", "http://evil.example:3000",
                                       "http://localhost@evil.example",
                                       "http://evil.example/localhost", "ftp://localhost", "localhost", "http://",
                                       "http://.localhost.evil", "http://.localhost",
                                       "http://127.evil", "http://evil#.localhost", "http://localhost:3000 http://evil.example",
                                       "" };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    start(&t, &o);
    for (size_t i = 0; i < RG_LEN(may); i++)
        check_page(t.port, may[i], may[i]);
    for (size_t i = 0; i < RG_LEN(not); i++)
        check_page(t.port, not[i], NULL);
    stop(&t);
}

static void named_origins_may_ask(void **state)
{
    static const char *const origins[] = { "https://app.example.org", "https://*.example.net", "app://obsidian.md",
                                           "chrome-extension://*" };
    static const char *const may[] = { "https://app.example.org", "https://a.example.net", "https://a.b.example.net",
                                       "app://obsidian.md", "chrome-extension://abcdef", "http://localhost:3000" };
    static const char *const not[] = { "http://app.example.org", "https://app.example.org:444",
                                       "https://app.example.org.evil",
                                       "https://example.net", "https://a.example.net.evil", "https://evil/.example.net",
                                       "app://obsidian.md.evil", "null" };
    static const char *const all[] = { "https://other.example", "*" };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    o.cors_origins = origins;
    o.n_cors_origins = RG_LEN(origins);
    start(&t, &o);
    for (size_t i = 0; i < RG_LEN(may); i++)
        check_page(t.port, may[i], may[i]);
    for (size_t i = 0; i < RG_LEN(not); i++)
        check_page(t.port, not[i], NULL);
    stop(&t);
    o.cors_origins = all;
    o.n_cors_origins = RG_LEN(all);
    start(&t, &o);
    check_page(t.port, "https://any.example", "*");
    check_page(t.port, "null", "*");
    stop(&t);
}

/* What a page asks for is repeated only if it is a list of names; what it does not ask for, it is not told. */
static void preflights_repeat_names_only(void **state)
{
    static const struct {
        const char *headers, *name, *want;
    } cases[] = {
        { "Access-Control-Request-Headers: a, b\tc ,d\r\n", "Access-Control-Allow-Headers", "a, b\tc ,d" },
        { "Access-Control-Request-Method: PATCH\r\n", "Access-Control-Allow-Methods", "PATCH" },
        { "Access-Control-Request-Method: a b\r\n", "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS" },
        { "", "Access-Control-Allow-Methods", "GET, HEAD, POST, DELETE, OPTIONS" },
        { "", "Access-Control-Max-Age", "600" },
        { "", "Access-Control-Allow-Private-Network", NULL },
        { "Access-Control-Request-Private-Network: false\r\n", "Access-Control-Allow-Private-Network", NULL },
    };
    rg_server_options o = test_server_options();
    char bytes[40000], names[30000];
    test_server t;

    (void)state;
    start(&t, &o);
    for (size_t i = 0; i < RG_LEN(cases); i++) {
        snprintf(bytes, sizeof bytes, "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:1\r\n%s\r\n",
                 cases[i].headers);
        test_reply r = ask(t.port, bytes);
        assert_int_equal(r.status, 200);
        if (!strchr(cases[i].want ? cases[i].want : "", '\t') && !header_is(&r, cases[i].name, cases[i].want))
            fail_msg("%s: %s", cases[i].headers, r.head);
        test_reply_free(&r);
    }
    test_reply r = ask(t.port, "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:1\r\n"
                               "Access-Control-Request-Headers: a, <b>\r\n\r\n");
    assert_non_null(strstr(r.head, "Access-Control-Allow-Headers: Authorization, "));
    assert_null(strstr(r.head, "<b>"));
    test_reply_free(&r);
    for (size_t n = 0; n < sizeof names - 20;) /* as many as fit in a request */
        n += (size_t)sprintf(names + n, "%sx-name-%zu", n ? "," : "", n);
    snprintf(bytes, sizeof bytes, "OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:1\r\n"
                                  "Access-Control-Request-Headers: %s\r\n\r\n", names);
    r = ask(t.port, bytes);
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.head, names));
    test_reply_free(&r);
    stop(&t);
}

/* An error, too, can be read by a page that may ask. */
static void errors_can_be_read(void **state)
{
    static const char *const bytes[] = {
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\nContent-Length: 99999999\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\n\r\n",
        "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost:3000\r\n\r\n",
    };
    static const int want[] = { 413, 401, 401 };
    static const char *const keys[] = { "secret" };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    o.keys = keys;
    o.n_keys = 1;
    start(&t, &o);
    for (size_t i = 0; i < RG_LEN(bytes); i++) {
        test_reply r = ask(t.port, bytes[i]);
        assert_int_equal(r.status, want[i]);
        assert_true(header_is(&r, "Access-Control-Allow-Origin", "http://localhost:3000"));
        test_reply_free(&r);
    }
    stop(&t);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void check_host(int port, const char *host, bool allowed)
{
    char bytes[512];

    snprintf(bytes, sizeof bytes, "GET /version HTTP/1.1\r\nHost: %s\r\n\r\n", host);
    test_reply r = ask(port, bytes);
    if (r.status != (allowed ? 200 : 421) || (!allowed && !strstr(r.body, "--allowed-host")))
        fail_msg("%s: %s\n%s", host, r.head, r.body);
    test_reply_free(&r);
    snprintf(bytes, sizeof bytes, "GET http://%s/version HTTP/1.1\r\nHost: %s\r\n\r\n", host, host);
    r = ask(port, bytes);
    if (r.status != (allowed ? 200 : 421))
        fail_msg("http://%s/: %s", host, r.head);
    test_reply_free(&r);
}

static void names_of_this_machine_are_answered(void **state)
{
    static const char *const may[] = { "localhost", "localhost:1", "LOCALHOST", "127.0.0.1", "127.1.2.3:80", "[::1]", "[::1]:80",
                                       "0.0.0.0", "0.0.0.0:8080", "[::]:80", "app.localhost", "app.localhost:8080",
                                       "a.b.LocalHost" };
    static const char *const not[] = { "llm.example.org", "localhost.evil", "xlocalhost", "127.0.0.1.evil", "127.evil", "192.0.2.1",
                                       "evil.localhost.evil", ".localhost.", "[::2]", "0.0.0.0.evil", "example.org:80" };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    start(&t, &o);
    for (size_t i = 0; i < RG_LEN(may); i++)
        check_host(t.port, may[i], true);
    for (size_t i = 0; i < RG_LEN(not); i++)
        check_host(t.port, not[i], false);
    stop(&t);
}

static void allowed_names_are_answered(void **state)
{
    static const char *const names[] = { "llm.example.org", "*.example.net" }, *const all[] = { "*" };
    static const char *const everywhere[] = { "0.0.0.0" };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    o.allowed_hosts = names;
    o.n_allowed_hosts = 2;
    start(&t, &o);
    check_host(t.port, "llm.example.org", true);
    check_host(t.port, "LLM.example.org:443", true);
    check_host(t.port, "a.example.net", true);
    check_host(t.port, "localhost", true);
    check_host(t.port, "example.net", false);
    check_host(t.port, "example.org", false);
    check_host(t.port, "x.llm.example.org", false);
    check_host(t.port, "a.example.net.evil", false);
    /* its page is then of that origin, whatever Host the proxy makes of it */
    check_page(t.port, "https://llm.example.org", "https://llm.example.org");
    check_page(t.port, "https://other.example.org", NULL);
    stop(&t);
    /* reached from elsewhere, it answers to all names until some are given */
    o.hosts = everywhere;
    o.n_hosts = 1;
    start(&t, &o);
    check_host(t.port, "llm.example.org", true);
    check_host(t.port, "192.0.2.1:80", true);
    check_host(t.port, "other.example.org", false);
    stop(&t);
    o.n_allowed_hosts = 0;
    start(&t, &o);
    check_host(t.port, "other.example.org", true);
    stop(&t);
    o = test_server_options();
    o.allowed_hosts = all;
    o.n_allowed_hosts = 1;
    start(&t, &o);
    check_host(t.port, "anything.example", true);
    check_page(t.port, "https://anything.example", NULL);
    stop(&t);
}

static void senseless_names_are_refused(void **state)
{
    static const char *const hosts[] = { "", "http://x", "a b", "x:80", "*x", "a/b", "*." };
    static const char *const origins[] = { "", "localhost", "http://", "http://x/", "http://x/y", "://x", "http://a,http://b" };
    rg_server_options o = test_server_options();
    rg_error err = { 0 };

    (void)state;
    for (size_t i = 0; i < RG_LEN(hosts); i++) {
        o.allowed_hosts = &hosts[i];
        o.n_allowed_hosts = 1;
        assert_null(rg_server_open(&o, &err));
        assert_non_null(strstr(err.text, "--allowed-host"));
    }
    o = test_server_options();
    for (size_t i = 0; i < RG_LEN(origins); i++) {
        o.cors_origins = &origins[i];
        o.n_cors_origins = 1;
        assert_null(rg_server_open(&o, &err));
        assert_non_null(strstr(err.text, "--cors-origin"));
    }
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* Connect; -1: nobody listens there, or the machine has no such address. */
static int connect_to(const struct sockaddr *a, socklen_t n)
{
    int fd = socket(a->sa_family, SOCK_STREAM, 0);

    if (fd >= 0 && connect(fd, a, n)) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static bool answers(int fd)
{
    static const char get[] = "GET /version HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n";

    assert_true(fd >= 0 && test_web_send(fd, get, strlen(get)));
    test_reply r = test_web_read(fd, TEST_WATCHDOG_S);
    int status = r.status;
    test_reply_free(&r);
    close(fd);
    return status == 200 || status == 421;
}

static int connect_v6(int port)
{
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT };

    return connect_to((struct sockaddr *)&a, sizeof a);
}

static bool has_v6(void)
{
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && !bind(fd, (struct sockaddr *)&a, sizeof a);

    if (fd >= 0)
        close(fd);
    return has;
}

static void both_internets_are_served(void **state)
{
    static const char *const hosts[] = { NULL, "localhost", "::", "::1", "127.0.0.1", "0.0.0.0" };
    static const bool v4[] = { true, true, true, false, true, true }, v6[] = { true, true, true, true, false, false };
    rg_server_options o = test_server_options();
    test_server t;

    (void)state;
    if (!has_v6())
        skip();
    for (size_t i = 0; i < RG_LEN(hosts); i++) {
        o.hosts = &hosts[i];
        o.n_hosts = hosts[i] != NULL;
        start(&t, &o);
        struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)t.port) };
        a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        int fd4 = connect_to((struct sockaddr *)&a, sizeof a), fd6 = connect_v6(t.port);
        if ((fd4 >= 0) != v4[i] || (fd6 >= 0) != v6[i])
            fail_msg("--host %s: %d %d", hosts[i] ? hosts[i] : "(none)", fd4, fd6);
        assert_true(!v4[i] || answers(fd4));
        assert_true(!v6[i] || answers(fd6));
        stop(&t);
    }
}

static struct sockaddr_un unix_at(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };

    assert_true(strlen(path) < sizeof a.sun_path);
    strcpy(a.sun_path, path);
    return a;
}

static void unix_sockets_are_served(void **state)
{
    static const char path[] = "ridge.sock";
    static const char *const hosts[] = { "unix:ridge.sock", "127.0.0.1" };
    rg_server_options o = test_server_options();
    rg_error err = { 0 };
    struct stat st;
    test_server t, second;

    (void)state;
    const char *folder = test_scratch("sockets");
    assert_true(!mkdir(folder, 0700) && !chdir(folder)); /* paths of sockets are short */
    struct sockaddr_un a = unix_at(path);
    o.hosts = hosts;
    o.n_hosts = 2;
    start(&t, &o);
    assert_string_equal(rg_server_url(t.s), hosts[0]);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    for (int i = 0; i < 20; i++)
        assert_true(answers(connect_to((struct sockaddr *)&a, sizeof a)));
    /* one that is in use is left alone */
    o.n_hosts = 1;
    assert_null(rg_server_open(&o, &err));
    assert_non_null(strstr(err.text, path));
    assert_true(answers(connect_to((struct sockaddr *)&a, sizeof a)));
    stop(&t);
    assert_int_equal(lstat(path, &st), -1); /* removed at the end */
    /* what a killed server left is replaced, with the permissions that are asked for now */
    int left = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(left, (struct sockaddr *)&a, sizeof a), 0);
    close(left);
    o.socket_mode = 0660;
    start(&t, &o);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0660);
    assert_true(answers(connect_to((struct sockaddr *)&a, sizeof a)));
    /* another server's socket at the same path is not removed */
    assert_int_equal(unlink(path), 0);
    start(&second, &o);
    stop(&t);
    assert_true(answers(connect_to((struct sockaddr *)&a, sizeof a)));
    stop(&second);
    /* nor is a file that is no socket */
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_null(rg_server_open(&o, &err));
    assert_non_null(strstr(err.text, "no socket"));
    assert_int_equal(stat(path, &st), 0);
    unlink(path);
}

static void senseless_places_are_refused(void **state)
{
    static const char *const hosts[] = { "unix:", "unix:/no/such/folder/x", "no such host", "999.1.1.1" };
    rg_server_options o = test_server_options();
    char longer[300] = "unix:./";
    const char *one = longer;

    (void)state;
    memset(longer + 7, 'x', 200);
    o.n_hosts = 1;
    for (size_t i = 0; i <= RG_LEN(hosts); i++) {
        rg_error err = { 0 };
        o.hosts = i < RG_LEN(hosts) ? &hosts[i] : &one;
        assert_null(rg_server_open(&o, &err));
        assert_true(strlen(err.text) > 10);
    }
}

static int setup(void **state)
{
    (void)state;
    engine = test_engine_open(64, 4, 16, "fast");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rg_close(engine);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_this_machine_may_ask),      cmocka_unit_test(named_origins_may_ask),
        cmocka_unit_test(preflights_repeat_names_only),       cmocka_unit_test(errors_can_be_read),
        cmocka_unit_test(names_of_this_machine_are_answered), cmocka_unit_test(allowed_names_are_answered),
        cmocka_unit_test(senseless_names_are_refused),        cmocka_unit_test(both_internets_are_served),
        cmocka_unit_test(unix_sockets_are_served),            cmocka_unit_test(senseless_places_are_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
