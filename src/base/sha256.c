/* sha256.c -- see sha256.h. */
#include "base/sha256.h"

#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t v, int by)
{
    return v >> by | v << (32 - by);
}

static void take_block(uint32_t to[8], const uint8_t *p)
{
    uint32_t w[64], a = to[0], b = to[1], c = to[2], d = to[3], e = to[4], f = to[5], g = to[6], h = to[7];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t x = w[i - 15], y = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turn(x, 7) ^ turn(x, 18) ^ x >> 3) + (turn(y, 17) ^ turn(y, 19) ^ y >> 10);
    }
    for (int i = 0; i < 64; i++) {
        uint32_t one = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25), choose = (e & f) ^ (~e & g);
        uint32_t zero = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22), most = (a & b) ^ (a & c) ^ (b & c);
        uint32_t t = h + one + choose + k[i] + w[i];
        h = g, g = f, f = e, e = d + t;
        d = c, c = b, b = a, a = t + zero + most;
    }
    to[0] += a, to[1] += b, to[2] += c, to[3] += d;
    to[4] += e, to[5] += f, to[6] += g, to[7] += h;
}

void rg_sha256_init(rg_sha256_state *s)
{
    *s = (rg_sha256_state){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
                                   0x5be0cd19 } };
}

void rg_sha256_add(rg_sha256_state *s, const void *p, size_t n)
{
    const uint8_t *from = p;

    while (n) {
        size_t at = (size_t)(s->n % 64), take = n < 64 - at ? n : 64 - at;

        if (take == 64) {
            take_block(s->h, from);
        } else {
            memcpy(s->block + at, from, take);
            if (at + take == 64)
                take_block(s->h, s->block);
        }
        s->n += take;
        from += take;
        n -= take;
    }
}

void rg_sha256_end(rg_sha256_state *s, uint8_t out[32])
{
    const uint64_t bits = s->n << 3;
    const uint8_t zeros[64] = { 0 }, one = 0x80;
    uint8_t length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    rg_sha256_add(s, &one, 1);
    rg_sha256_add(s, zeros, (size_t)((120 - s->n % 64) % 64));
    rg_sha256_add(s, length, 8);
    for (int i = 0; i < 32; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void rg_sha256(const void *p, size_t n, uint8_t out[32])
{
    rg_sha256_state s;

    rg_sha256_init(&s);
    rg_sha256_add(&s, p, n);
    rg_sha256_end(&s, out);
}
