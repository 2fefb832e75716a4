/* sha256.h -- SHA-256 (FIPS 180-4): names a secret without revealing it.  Not fast. */
#ifndef RG_BASE_SHA256_H
#define RG_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

void rg_sha256(const void *p, size_t n, uint8_t out[32]);

#endif
