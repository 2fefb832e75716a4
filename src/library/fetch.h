/* fetch.h -- bytes over HTTP: a text whole, a file that may go on where it stopped. */
#ifndef RG_LIBRARY_FETCH_H
#define RG_LIBRARY_FETCH_H

#include "base/buf.h"

typedef struct rg_fetch_options {
    const char *token; /* sent to the first host and to no other that it redirects to; NULL: none */
    /* Called now and then with the bytes so far, those of earlier times included; false: stop.  May be NULL. */
    bool (*progress)(void *arg, uint64_t bytes);
    void *arg;
    int retries;    /* after a connection that broke, or a status of 429 or 5xx */
    double pause_s; /* before the first of them; then twice as long each time */
} rg_fetch_options;

/* False where ridge was built without libcurl: then each call fails and says so. */
bool rg_fetch_is_there(void);

/* The text at a URL, into an initialised buffer, up to its cap.  *status: of HTTP, 0 if none came; it is an error
 * unless 200. */
bool rg_fetch_text(const char *url, const rg_fetch_options *o, rg_buf *to, long *status, rg_error *err) RG_MUST_CHECK;

/* The file at a URL into fd, which holds its first bytes already: `have` of them are kept if the server gives the rest,
 * else it begins anew.  size: what it must have in the end. */
bool rg_fetch_file(const char *url, const rg_fetch_options *o, int fd, uint64_t have, uint64_t size, long *status,
                   rg_error *err) RG_MUST_CHECK;

#endif
