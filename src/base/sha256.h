/* sha256.h -- SHA-256 (FIPS 180-4): names a secret without revealing it, and files by what they hold. */
#ifndef RG_BASE_SHA256_H
#define RG_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

void rg_sha256(const void *p, size_t n, uint8_t out[32]);

/* The hash of bytes that come in parts. */
typedef struct rg_sha256_state {
    uint32_t h[8];
    uint8_t block[64];
    uint64_t n; /* bytes so far */
} rg_sha256_state;

void rg_sha256_init(rg_sha256_state *s);
void rg_sha256_add(rg_sha256_state *s, const void *p, size_t n);
void rg_sha256_end(rg_sha256_state *s, uint8_t out[32]);

#endif
