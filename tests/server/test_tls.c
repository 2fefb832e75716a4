/* test_tls.c -- the server behind TLS: the certificate that it was given, whole answers and streams, versions that are not
 * to be used any more, clients that do not speak it, and those that leave in the middle. */
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <sys/socket.h>

#include "server/live.h"

static test_server t;
static char cert[8192], key[8192];

/* ---- a certificate of this minute -------------------------------------------------------------------------------- */

static void make_certificate(void)
{
    gnutls_x509_privkey_t k;
    gnutls_x509_crt_t c;
    size_t n_cert = sizeof cert - 1, n_key = sizeof key - 1;

    assert_int_equal(gnutls_x509_privkey_init(&k), 0);
    assert_int_equal(gnutls_x509_privkey_generate(k, GNUTLS_PK_ECDSA, GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1), 0), 0);
    assert_int_equal(gnutls_x509_crt_init(&c), 0);
    assert_int_equal(gnutls_x509_crt_set_version(c, 3), 0);
    assert_int_equal(gnutls_x509_crt_set_serial(c, "\1", 1), 0);
    assert_int_equal(gnutls_x509_crt_set_activation_time(c, time(NULL) - 60), 0);
    assert_int_equal(gnutls_x509_crt_set_expiration_time(c, time(NULL) + 3600), 0);
    assert_int_equal(gnutls_x509_crt_set_subject_alt_name(c, GNUTLS_SAN_DNSNAME, "localhost", 9, 0), 0);
    assert_int_equal(gnutls_x509_crt_set_key(c, k), 0);
    assert_int_equal(gnutls_x509_crt_sign2(c, c, k, GNUTLS_DIG_SHA256, 0), 0);
    assert_int_equal(gnutls_x509_crt_export(c, GNUTLS_X509_FMT_PEM, cert, &n_cert), 0);
    assert_int_equal(gnutls_x509_privkey_export(k, GNUTLS_X509_FMT_PEM, key, &n_key), 0);
    gnutls_x509_crt_deinit(c);
    gnutls_x509_privkey_deinit(k);
}

static int setup(void **state)
{
    rg_server_options o = test_server_options();

    (void)state;
    make_certificate();
    o.tls_cert = cert;
    o.tls_key = key;
    test_server_start(&t, &o, 1024, 8);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_server_stop(&t);
    return 0;
}

/* ---- a client ---------------------------------------------------------------------------------------------------- */

typedef struct client {
    int fd;
    gnutls_session_t session;
    gnutls_certificate_credentials_t trusts;
} client;

/* Connected, and its handshake done, which trusts this certificate alone.  False: it was not. */
static bool join(client *c, const char *versions)
{
    const gnutls_datum_t pem = { (unsigned char *)cert, (unsigned)strlen(cert) };

    c->fd = test_web_connect(t.port);
    gnutls_certificate_allocate_credentials(&c->trusts);
    assert_int_equal(gnutls_certificate_set_x509_trust_mem(c->trusts, &pem, GNUTLS_X509_FMT_PEM), 1);
    assert_int_equal(gnutls_init(&c->session, GNUTLS_CLIENT | GNUTLS_NO_SIGNAL), 0);
    assert_int_equal(gnutls_priority_set_direct(c->session, versions, NULL), 0);
    gnutls_credentials_set(c->session, GNUTLS_CRD_CERTIFICATE, c->trusts);
    gnutls_session_set_verify_cert(c->session, "localhost", 0);
    gnutls_transport_set_int(c->session, c->fd);
    gnutls_handshake_set_timeout(c->session, 10000);
    return gnutls_handshake(c->session) == 0;
}

static void leave(client *c)
{
    close(c->fd);
    gnutls_deinit(c->session);
    gnutls_certificate_free_credentials(c->trusts);
}

static void say(client *c, const char *path, const char *body)
{
    char all[1024];
    int n = snprintf(all, sizeof all, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                     body ? "POST" : "GET", path, body ? strlen(body) : 0, body ? body : "");

    assert_int_equal(gnutls_record_send(c->session, all, (size_t)n), n);
}

/* All that comes until the other side has done; to be freed. */
static char *hear(client *c)
{
    size_t n = 0, room = 1 << 22;
    char *all = malloc(room);
    ssize_t k;

    assert_non_null(all);
    while (n < room - 1 && ((k = gnutls_record_recv(c->session, all + n, room - 1 - n)) > 0 || k == GNUTLS_E_AGAIN))
        n += k > 0 ? (size_t)k : 0;
    all[n] = 0;
    return all;
}

/* ---- */

static void answers_come_through(void **state)
{
    static const char *const versions[] = { "NORMAL", "NORMAL:-VERS-ALL:+VERS-TLS1.2" };
    client c;
    char *s;

    (void)state;
    for (size_t i = 0; i < RG_LEN(versions); i++) {
        assert_true(join(&c, versions[i]));
        say(&c, "/health", NULL);
        s = hear(&c);
        assert_memory_equal(s, "HTTP/1.1 200", 12);
        free(s);
        leave(&c);
        assert_true(join(&c, versions[i]));
        say(&c, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":150,\"ignore_eos\":true,\"n\":2,\"stream\":true}");
        s = hear(&c); /* more than a record or a socket holds */
        assert_memory_equal(s, "HTTP/1.1 200", 12);
        assert_non_null(strstr(s, "data: [DONE]\n\n"));
        free(s);
        leave(&c);
    }
}

static void old_versions_are_not_spoken(void **state)
{
    static const char *const versions[] = { "LEGACY:%COMPAT:-VERS-ALL:+VERS-TLS1.1:+SIGN-ALL",
                                            "LEGACY:%COMPAT:-VERS-ALL:+VERS-TLS1.0:+SIGN-ALL" };
    client c;

    (void)state;
    for (size_t i = 0; i < RG_LEN(versions); i++) {
        assert_false(join(&c, versions[i]));
        leave(&c);
    }
}

/* Whoever speaks something else is closed, and nobody else notices. */
static void others_are_closed(void **state)
{
    static const char *const words[] = { "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                                         "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "\x80\x2e\x01", "\r\n" };
    client c;

    (void)state;
    for (size_t i = 0; i < RG_LEN(words); i++) {
        char some[64];
        int fd = test_web_connect(t.port);
        long k;
        test_web_send(fd, words[i], strlen(words[i]));
        shutdown(fd, SHUT_WR);
        while ((k = test_web_some(fd, some, sizeof some, 60)) > 0)
            assert_true(strncmp(some, "HTTP", 4) != 0);
        assert_int_equal(k, 0);
        close(fd);
    }
    assert_true(join(&c, "NORMAL"));
    leave(&c);
}

static void who_leaves_is_cancelled(void **state)
{
    client c;
    char some[64];
    uint64_t before = rg_engine_stats(t.engine).n_output;

    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_true(join(&c, "NORMAL"));
        say(&c, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1000,\"ignore_eos\":true,\"n\":8,\"stream\":true}");
        if (i % 2)
            assert_true(gnutls_record_recv(c.session, some, sizeof some) > 0);
        leave(&c);
    }
    test_server_quiet(&t);
    rg_engine_check(t.engine);
    assert_true(rg_engine_stats(t.engine).n_output - before < 6 * 8 * 1000 / 2);
}

static void a_wrong_certificate_is_refused(void **state)
{
    rg_server_options o = test_server_options();
    rg_error err = { 0 };

    (void)state;
    o.tls_cert = "no certificate";
    o.tls_key = key;
    assert_null(rg_server_open(&o, &err));
    assert_non_null(strstr(err.text, "certificate"));
    o.tls_cert = o.tls_key = cert;
    assert_null(rg_server_open(&o, &err));
    assert_non_null(strstr(err.text, "certificate"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_come_through),    cmocka_unit_test(old_versions_are_not_spoken),
        cmocka_unit_test(others_are_closed),       cmocka_unit_test(who_leaves_is_cancelled),
        cmocka_unit_test(a_wrong_certificate_is_refused),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, setup, teardown);
}
