/* tls.h -- TLS 1.2 and 1.3 over sockets that do not block, by GnuTLS.
 *
 * Only tls.c knows the library.  A session belongs to one thread. */
#ifndef RG_SERVER_HTTP_TLS_H
#define RG_SERVER_HTTP_TLS_H

#include <sys/types.h>

#include "base/error.h"

typedef struct rg_tls rg_tls;                 /* a certificate and its key */
typedef struct rg_tls_session rg_tls_session; /* one connection */

rg_tls *rg_tls_new(const char *cert, const char *key, rg_error *err); /* PEM texts */
void rg_tls_free(rg_tls *t);                                          /* no session is left; NULL is fine */

rg_tls_session *rg_tls_open(const rg_tls *t, int fd); /* NULL: no memory */
void rg_tls_close(rg_tls_session *s);                 /* NULL is fine */

/* As recv and send.  They shake hands first.  -1 with errno EAGAIN: later; any other errno: the connection is lost. */
ssize_t rg_tls_recv(rg_tls_session *s, void *to, size_t room);
ssize_t rg_tls_send(rg_tls_session *s, const void *data, size_t n);
bool rg_tls_shaken(const rg_tls_session *s);  /* the handshake is done */
bool rg_tls_pending(const rg_tls_session *s); /* bytes have come that recv has not given: the socket will not tell */
bool rg_tls_wants_write(const rg_tls_session *s); /* what was told EAGAIN waits for room to write */
void rg_tls_end(rg_tls_session *s);               /* tell the client that nothing more will be sent */

#endif
