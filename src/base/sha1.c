/* sha1.c -- see sha1.h. */
#include "base/sha1.h"

#include <string.h>

static uint32_t turn(uint32_t v, int by)
{
    return v << by | v >> (32 - by);
}

static void take_block(uint32_t to[5], const uint8_t *p)
{
    static const uint32_t k[4] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
    uint32_t w[80], a = to[0], b = to[1], c = to[2], d = to[3], e = to[4];

    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 80; i++)
        w[i] = turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    for (int i = 0; i < 80; i++) {
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i >= 40 && i < 60 ? (b & c) | (b & d) | (c & d) : b ^ c ^ d;
        uint32_t t = turn(a, 5) + f + e + k[i / 20] + w[i];
        e = d, d = c, c = turn(b, 30), b = a, a = t;
    }
    to[0] += a, to[1] += b, to[2] += c, to[3] += d, to[4] += e;
}

void rg_sha1_init(rg_sha1_state *s)
{
    *s = (rg_sha1_state){ .h = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 } };
}

void rg_sha1_add(rg_sha1_state *s, const void *p, size_t n)
{
    const uint8_t *from = p;

    while (n) {
        size_t at = (size_t)(s->n % 64), take = n < 64 - at ? n : 64 - at;

        memcpy(s->block + at, from, take);
        if (at + take == 64)
            take_block(s->h, s->block);
        s->n += take;
        from += take;
        n -= take;
    }
}

void rg_sha1_end(rg_sha1_state *s, uint8_t out[20])
{
    const uint64_t bits = s->n << 3;
    const uint8_t zeros[64] = { 0 }, one = 0x80;
    uint8_t length[8];

    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    rg_sha1_add(s, &one, 1);
    rg_sha1_add(s, zeros, (size_t)((120 - s->n % 64) % 64));
    rg_sha1_add(s, length, 8);
    for (int i = 0; i < 20; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}
