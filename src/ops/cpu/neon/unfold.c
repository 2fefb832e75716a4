/* unfold.c -- panels of folded layouts in this folder's vectors. */
#include "ops/cpu/neon/neon.h"

typedef uint32_t words __attribute__((vector_size(16)));

ALWAYS_INLINE words load_octets(const uint8_t *p)
{
    uint32_t v;

    __builtin_memcpy(&v, p, sizeof v);
    return (words)vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(v)))));
}

ALWAYS_INLINE words load_halves(const uint16_t *p)
{
    return (words)vmovl_u16(vld1_u16(p));
}

ALWAYS_INLINE void store_octets(uint8_t *to, words v)
{
    const uint16x4_t halves = vmovn_u32((uint32x4_t)v);

    vst1_lane_u32((uint32_t *)(void *)to, vreinterpret_u32_u8(vmovn_u16(vcombine_u16(halves, halves))), 0);
}

ALWAYS_INLINE words look(const uint32_t *table, words at)
{
    return (words){ table[at[0]], table[at[1]], table[at[2]], table[at[3]] };
}

#include "ops/cpu/unfold_tmpl.h"

void rg_neon_init_unfold(rg_cpu *k)
{
    k->unfold = unfold;
}
