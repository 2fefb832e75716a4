/* buf.h -- a growable byte buffer that is born with a cap. */
#ifndef RG_BASE_BUF_H
#define RG_BASE_BUF_H

#include "base/error.h"

typedef struct rg_string { const char *data; size_t n; } rg_string; /* bytes that somebody else keeps */

typedef struct rg_buf {
    char *data; /* n bytes, then a NUL that is not counted */
    size_t n, room, cap;
    bool failed; /* an append did not fit or there was no memory; later appends do nothing */
    bool over;   /* it did not fit */
} rg_buf;

void rg_buf_init(rg_buf *b, size_t cap); /* allocates nothing */
void rg_buf_fini(rg_buf *b);
void rg_buf_reset(rg_buf *b); /* empty, keeps its memory, forgets a failure */

/* False, and b->failed, when over the cap or out of memory; what was there stays. */
bool rg_buf_add(rg_buf *b, const void *p, size_t n);
bool rg_buf_str(rg_buf *b, const char *s);
bool rg_buf_printf(rg_buf *b, const char *fmt, ...) RG_PRINTF(2, 3);

#endif
