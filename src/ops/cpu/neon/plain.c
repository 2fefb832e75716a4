/* plain.c -- the fast recipe without a dot product instruction: products to int16, added in pairs, and pairs of
 * pairs. */
#include "ops/cpu/neon/neon.h"

#define TARGET

/* A product is at most 128 * 127 and two of them are added in int32: nothing wraps. */
ALWAYS_INLINE int32x4_t add_dot(int32x4_t sum, int8x16_t w, int8x16_t x)
{
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);

    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
}

#include "ops/cpu/neon/fast.h"

void rg_neon_init_fast_plain(rg_cpu *k)
{
    fill_fast(k);
    k->sketch = sketch;
}
