/* tls.c -- see tls.h. */
#include "server/http/tls.h"

#include <errno.h>
#include <gnutls/gnutls.h>
#include <string.h>

#include "base/mem.h"

/* Older versions must not be used any more (RFC 8996). */
static const char VERSIONS[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

struct rg_tls {
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
};

struct rg_tls_session {
    gnutls_session_t g;
    bool shaken;
    size_t unsent; /* bytes that were taken, encrypted, and not wholly sent */
};

rg_tls *rg_tls_new(const char *cert, const char *key, rg_error *err)
{
    const gnutls_datum_t c = { (unsigned char *)(uintptr_t)cert, (unsigned)strlen(cert) };
    const gnutls_datum_t k = { (unsigned char *)(uintptr_t)key, (unsigned)strlen(key) };
    rg_tls *t = rg_zalloc(sizeof *t);
    int rc;

    if (!t)
        return rg_fail_memory(err, sizeof *t), NULL;
    rc = gnutls_certificate_allocate_credentials(&t->credentials);
    if (rc >= 0)
        rc = gnutls_certificate_set_x509_key_mem(t->credentials, &c, &k, GNUTLS_X509_FMT_PEM);
    if (rc >= 0)
        rc = gnutls_priority_init(&t->priorities, VERSIONS, NULL);
    if (rc >= 0)
        return t;
    rg_fail(err, RG_E_INPUT, "the certificate and its key cannot be used: %s", gnutls_strerror(rc));
    rg_tls_free(t);
    return NULL;
}

void rg_tls_free(rg_tls *t)
{
    if (!t)
        return;
    if (t->credentials)
        gnutls_certificate_free_credentials(t->credentials);
    if (t->priorities)
        gnutls_priority_deinit(t->priorities);
    rg_free(t);
}

rg_tls_session *rg_tls_open(const rg_tls *t, int fd)
{
    rg_tls_session *s = rg_zalloc(sizeof *s);

    if (!s || gnutls_init(&s->g, GNUTLS_SERVER | GNUTLS_NONBLOCK | GNUTLS_NO_SIGNAL) < 0) {
        rg_free(s);
        return NULL;
    }
    if (gnutls_priority_set(s->g, t->priorities) < 0 ||
        gnutls_credentials_set(s->g, GNUTLS_CRD_CERTIFICATE, t->credentials) < 0) {
        rg_tls_close(s);
        return NULL;
    }
    gnutls_transport_set_int(s->g, fd);
    return s;
}

void rg_tls_close(rg_tls_session *s)
{
    if (s)
        gnutls_deinit(s->g);
    rg_free(s);
}

/* A result of the library as one of a system call. */
static ssize_t result(ssize_t rc)
{
    if (rc >= 0)
        return rc;
    errno = rc == GNUTLS_E_AGAIN || rc == GNUTLS_E_INTERRUPTED ? EAGAIN : EPROTO;
    return -1;
}

/* True once done; else errno. */
static bool shake(rg_tls_session *s)
{
    int rc = 0;

    if (s->shaken)
        return true;
    do
        rc = gnutls_handshake(s->g);
    while (rc < 0 && rc != GNUTLS_E_AGAIN && rc != GNUTLS_E_INTERRUPTED && !gnutls_error_is_fatal(rc));
    s->shaken = !rc;
    return result(rc) >= 0;
}

ssize_t rg_tls_recv(rg_tls_session *s, void *to, size_t room)
{
    ssize_t n;

    if (!shake(s))
        return -1;
    do
        n = gnutls_record_recv(s->g, to, room);
    while (n == GNUTLS_E_WARNING_ALERT_RECEIVED);
    return result(n); /* a client that asks for a new handshake is closed: TLS 1.3 has none */
}

ssize_t rg_tls_send(rg_tls_session *s, const void *data, size_t n)
{
    ssize_t sent;

    if (!shake(s))
        return -1;
    if (!s->unsent) {
        sent = gnutls_record_send(s->g, data, n);
        if (sent == GNUTLS_E_AGAIN || sent == GNUTLS_E_INTERRUPTED)
            s->unsent = n;
    } else { /* the library has the bytes */
        sent = gnutls_record_send(s->g, NULL, 0);
        if (sent >= 0)
            s->unsent = 0;
    }
    return result(sent);
}

bool rg_tls_shaken(const rg_tls_session *s)
{
    return s->shaken;
}

bool rg_tls_pending(const rg_tls_session *s)
{
    return s->shaken && gnutls_record_check_pending(s->g) > 0;
}

bool rg_tls_wants_write(const rg_tls_session *s)
{
    return gnutls_record_get_direction(s->g) == 1;
}

void rg_tls_end(rg_tls_session *s)
{
    if (s->shaken)
        gnutls_bye(s->g, GNUTLS_SHUT_WR);
}
