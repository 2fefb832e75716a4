/* head.h -- reading HTTP/1.1 requests: heads and chunked bodies, as bytes come, without sockets.
 *
 * It is strict (RFC 9112): whatever two programs could read in two ways is refused and never repaired, so that a proxy
 * in front and this server always agree where a request ends.  Lines end with CR LF; the lines of a head may all
 * end with LF alone, but never some with one and some with the other.  No line is folded.  A body has one length,
 * said once. Each byte is looked at a bounded number of times.  A fault is a status and one sentence; after a fault
 * no further byte of the connection can be trusted. */
#ifndef RG_SERVER_HTTP_HEAD_H
#define RG_SERVER_HTTP_HEAD_H

#include "base/buf.h"

enum { RG_MAX_FIELDS = 256 }; /* header fields of one request; more: 431 */

typedef struct rg_http_fault {
    int status;    /* 0: none */
    char why[120]; /* a sentence for the client, without the client's own bytes */
} rg_http_fault;

typedef struct rg_head {
    rg_buf text; /* the bytes of the head; the texts below lie in it, each ends with a NUL */
    size_t line; /* where its last, unfinished line begins */
    bool begun, done;
    bool bare;     /* its lines end with LF alone, as the first one does */
    size_t target; /* where the request line's target begins in text */
    int32_t n_fields;
    struct {
        uint32_t name, value; /* where they begin in text */
    } field[RG_MAX_FIELDS];
    rg_http_fault fault;

    /* Once done without a fault: */
    const char *method, *path;    /* path: percent-decoded, without the query */
    const char *host;             /* Host, or the target's authority where HTTP/1.0 has no Host; NULL: none */
    const char *args, *args_end;  /* name NUL value NUL ..., decoded, of name=value in the query */
    int minor;                    /* of HTTP/1.minor */
    bool chunked, keeps, expects; /* keeps: the connection may go on; expects: 100 (Continue) */
    uint64_t length;              /* of a body that is not chunked; UINT64_MAX: more than can be counted */
} rg_head;

void rg_head_init(rg_head *h, size_t most); /* a head of at most so many bytes */
void rg_head_fini(rg_head *h);
/* Take bytes up to the end of the head, and return how many.  Afterwards it is done, has a fault, or all were taken. */
size_t rg_head_feed(rg_head *h, const char *data, size_t n);
const char *rg_head_field(const rg_head *h, const char *name); /* once done; in any case of letters; NULL: none */
const char *rg_head_arg(const rg_head *h, const char *name);   /* once done; NULL: none */

typedef struct rg_chunks {
    int state;
    uint64_t left; /* bytes of the chunk that have not come */
    int n_digits;
    size_t n_extension, n_trailer; /* bytes of all of them so far */
    char name[20];                 /* beginning of the trailer field's name */
    size_t n_name;
    bool done;
    rg_http_fault fault;
} rg_chunks;

void rg_chunks_init(rg_chunks *k);
/* Take bytes up to the next ones of the body, or to its end, and return how many; *body, *n_body: which of them are
 * bytes of the body, perhaps none. */
size_t rg_chunks_feed(rg_chunks *k, const char *data, size_t n, const char **body, size_t *n_body);

/* True if s[0, n) is a host, with or without a port, as a Host header has it. */
bool rg_is_authority(const char *s, size_t n);
/* Bytes of s[0, n), which is an authority, that are its host. */
size_t rg_host_length(const char *s, size_t n);
bool rg_is_token(const char *s, size_t n); /* one or more characters that names of headers are made of */

#endif
