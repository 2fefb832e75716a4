/* multipart.h -- multipart/form-data (RFC 7578), read in place: every part is a piece of the body. */
#ifndef RG_SERVER_HTTP_MULTIPART_H
#define RG_SERVER_HTTP_MULTIPART_H

#include "base/error.h"

typedef struct rg_part {
    const char *name, *filename, *data; /* filename NULL: a plain field */
    size_t n_name, n_filename, n;
} rg_part;

enum { RG_MULTIPART_MOST = 32 };

/* The parts of body[0, n), which is of this Content-Type; quoted names are unescaped within body.  How many, or -1: it
 * is not well-formed, or has more. */
int rg_multipart_read(const char *content_type, char *body, size_t n, rg_part part[RG_MULTIPART_MOST]);
/* The first part of that name; NULL: none. */
const rg_part *rg_multipart_find(const rg_part *part, int n, const char *name);

#endif
