/* sha1.h -- SHA-1 (FIPS 180-4): names files as git does.  It protects nothing: files that somebody made to have the
 * same hash are known. */
#ifndef RG_BASE_SHA1_H
#define RG_BASE_SHA1_H

#include <stddef.h>
#include <stdint.h>

typedef struct rg_sha1_state {
    uint32_t h[5];
    uint8_t block[64];
    uint64_t n; /* bytes so far */
} rg_sha1_state;

void rg_sha1_init(rg_sha1_state *s);
void rg_sha1_add(rg_sha1_state *s, const void *p, size_t n);
void rg_sha1_end(rg_sha1_state *s, uint8_t out[20]);

#endif
