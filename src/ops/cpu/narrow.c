/* narrow.c -- see narrow.h. */
#include "ops/cpu/narrow.h"

#include <string.h>

#include "base/mem.h"

/* Bits of an f16 that bf16 has no room for: of 11 significant ones it keeps 8, and those below 2^-14 have fewer. */
static inline uint16_t lost_bits(uint16_t h)
{
    const int16_t magnitude = h & 0x7fff;
    const uint16_t lost = magnitude >= 1024 ? 7 : magnitude >= 512 ? 3 : magnitude >= 256 ? 1 : 0;

    return h & lost;
}

/* The bf16 of the same value, without branches, so that compilers do many at once. */
static inline uint16_t to_bf16(uint16_t h)
{
    const uint32_t half = 126u << 23, above_half = half | (h & 0x3ff); /* 0.5 and 0.5 + mantissa * 2^-24, as f32 */
    const uint32_t is_normal = 0u - ((h & 0x7c00) != 0), is_huge = 0u - ((h & 0x7c00) == 0x7c00); /* masks */
    const uint32_t normal = ((uint32_t)(h & 0x7fff) << 13) + (112u << 23) + (112u << 23 & is_huge);
    float a, b;
    uint32_t subnormal;

    memcpy(&a, &above_half, sizeof a);
    memcpy(&b, &half, sizeof b);
    a -= b; /* exact */
    memcpy(&subnormal, &a, sizeof subnormal);
    return (uint16_t)((h & 0x8000) | ((normal & is_normal) | (subnormal & ~is_normal)) >> 16);
}

static size_t n_values(const rg_packed *p)
{
    return (size_t)p->placed.cols * RG_PANEL; /* of a panel */
}

bool rg_packed_fits_bf16(const rg_packed *p)
{
    uint16_t lost = 0;

    if (p->layout != RG_LAYOUT_F16)
        return false;
    for (size_t at = 0; at < p->placed.bytes && !lost; at += p->panel_bytes) {
        const uint16_t *q = (const void *)(p->data + at);

        for (size_t k = 0; k < n_values(p); k++)
            lost = lost | lost_bits(q[k]);
    }
    return !lost;
}

/* Two columns of 16 rows, [column][row], to [row][column]. */
static void narrow_pair(uint16_t q[2 * RG_PANEL])
{
    uint16_t pair[2 * RG_PANEL];

    for (int row = 0; row < RG_PANEL; row++)
        for (int k = 0; k < 2; k++)
            pair[2 * row + k] = to_bf16(q[RG_PANEL * k + row]);
    memcpy(q, pair, sizeof pair);
}

void rg_packed_to_bf16(rg_packed *p)
{
    for (size_t at = 0; at < p->placed.bytes; at += p->panel_bytes) {
        uint16_t *q = (void *)(p->data + at);
        size_t k = 0;

        for (; k + 2 * RG_PANEL <= n_values(p); k += 2 * RG_PANEL)
            narrow_pair(q + k);
        for (; k < n_values(p); k++) /* an odd column stands alone */
            q[k] = to_bf16(q[k]);
    }
    p->placed.type = RG_BF16;
    p->layout = RG_LAYOUT_BF16;
}
