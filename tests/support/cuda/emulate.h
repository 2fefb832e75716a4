/* emulate.h -- kernels as functions that this machine runs: device.h includes it where RGK_EMULATED is defined.
 *
 * A block's threads are fibers of one thread of the host (block.c), which go on, one after the other, up to the next
 * place where they wait.  Each name of device.h means the same here; what a GPU would not do as it is meant (a barrier
 * that some threads do not reach, lanes that differ in what they call together, addresses that are not aligned) ends
 * the program with the names of kernel, block and thread.
 *
 * One more primitive is one more function here, built on emulated_sync (all threads of the block), emulated_together
 * (the lanes of a warp; the last to come computes for all) or on neither. */
#ifndef RG_TEST_CUDA_EMULATE_H
#define RG_TEST_CUDA_EMULATE_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "support/cuda/block.h"

#define RGK_DEVICE static inline __attribute__((unused))
#define RGK_KERNEL(name, params)                                                                                       \
    void rgk_##name(const rgk_##params##_params p);                                                                    \
    void rgk_##name(const rgk_##params##_params p)
/* With a block of no more than `most` threads. */
#define RGK_KERNEL_OF(name, params, most, blocks)                                                                      \
    void rgk_##name(const rgk_##params##_params p);                                                                    \
    static void emulated_##name(const rgk_##params##_params p);                                                        \
    void rgk_##name(const rgk_##params##_params p)                                                                     \
    {                                                                                                                  \
        emulated_check(RGK_THREADS <= (most), "the block has more threads than the kernel is made for");               \
        emulated_##name(p);                                                                                            \
    }                                                                                                                  \
    static void emulated_##name(const rgk_##params##_params p)
#define RGK_SHARED  EMULATED_SHARED
#define RGK_DYNAMIC extern unsigned char rgk_dynamic[]

#define RGK_THREAD  (emulated.thread)
#define RGK_THREADS (emulated.threads)
#define RGK_BLOCK_X (emulated.block[0])
#define RGK_BLOCK_Y (emulated.block[1])
#define RGK_BLOCK_Z (emulated.block[2])
#define RGK_UNROLL
#define RGK_UNROLL_BY(n)

#define EMULATED_TEXT_(n) #n
#define EMULATED_TEXT(n)  EMULATED_TEXT_(n)
#define EMULATED_HERE     __FILE__ ":" EMULATED_TEXT(__LINE__)

/* ---- waiting ------------------------------------------------------------------------------------------------------ */

#define rgk_sync()      emulated_sync(EMULATED_HERE)
#define rgk_sync_warp() emulated_together(EMULATED_SYNC_WARP, EMULATED_HERE, NULL)

#define rgk_shuffle(v, lane) emulated_shuffle(v, lane, EMULATED_HERE)

RGK_DEVICE float emulated_shuffle(float v, int lane, const char *where)
{
    emulated_shuffling s = { v, lane, 0.0f };

    emulated_together(EMULATED_SHUFFLE, where, &s);
    return s.got;
}

/* Products of bf16 are exact; they are added to c in rising order of the column of a, each sum rounded to f32.  That is
 * this emulator's definition: the order and the rounding of a GPU's tensor cores are its own, so bits may differ. */
#define rgk_mma(c, a, b) emulated_mma(c, a, b, EMULATED_HERE)

RGK_DEVICE void emulated_mma(float c[4], const uint32_t a[4], const uint32_t b[2], const char *where)
{
    emulated_multiplying m = { c, a, b };

    emulated_together(EMULATED_MMA, where, &m);
}

/* ---- memory ------------------------------------------------------------------------------------------------------- */

RGK_DEVICE rgk_u4 rgk_load(const void *from)
{
    rgk_u4 r;

    emulated_check((uintptr_t)from % 16 == 0, "16 bytes are loaded from an address that is no multiple of 16");
    memcpy(&r, from, sizeof r);
    return r;
}

RGK_DEVICE rgk_u4 rgk_load_once(const void *from)
{
    return rgk_load(from);
}

/* At once, or, where what happens in the background happens late (emulated.h), in the wait that lasts for it. */
RGK_DEVICE void rgk_copy(void *shared, const void *from, bool there)
{
    emulated_check((uintptr_t)from % 16 == 0 && (uintptr_t)shared % 16 == 0,
                   "16 bytes are copied from or to an address that is no multiple of 16");
    emulated_copy(shared, there ? from : NULL);
}

RGK_DEVICE void rgk_copy_commit(void)
{
    emulated_copy_commit();
}

RGK_DEVICE void rgk_copy_wait(int n)
{
    emulated_copy_wait(n);
}

/* ---- arithmetic --------------------------------------------------------------------------------------------------- */

RGK_DEVICE float rgk_fma(float a, float b, float c)
{
    return fmaf(a, b, c);
}

/* The sum of the upper halves of a and b as such a half; NaN as the GPU has it. */
RGK_DEVICE uint32_t emulated_add_bf16(uint32_t a, uint32_t b)
{
    float x, y, sum;
    uint32_t bits;

    a &= 0xffff0000u;
    b &= 0xffff0000u;
    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    sum = x + y;
    if (isnan(sum))
        return 0x7fff0000u;
    memcpy(&bits, &sum, sizeof bits);
    emulated_check(isinf(sum) || (!(bits & 0xffffu) && sum - x == y && sum - y == x), "a sum of two bf16 is not exact");
    return bits;
}

RGK_DEVICE uint32_t rgk_add_bf16x2(uint32_t a, uint32_t b)
{
    return emulated_add_bf16(a, b) | emulated_add_bf16(a << 16, b << 16) >> 16;
}

/* To nearest, ties to even; the device's NaN. */
RGK_DEVICE uint32_t rgk_round_bf16(float x)
{
    union { float f; uint32_t u; } bits = { x };

    return x != x ? 0x7fff : (bits.u + 0x7fff + (bits.u >> 16 & 1)) >> 16;
}

RGK_DEVICE uint32_t rgk_round_bf16x2(float low, float high)
{
    return rgk_round_bf16(low) | rgk_round_bf16(high) << 16;
}

RGK_DEVICE uint32_t rgk_bytes(uint32_t low, uint32_t high, uint32_t which)
{
    const uint64_t both = (uint64_t)high << 32 | low;
    uint32_t r = 0;

    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(both >> 8 * (which >> 4 * i & 7) & 255) << 8 * i;
    return r;
}

#include "base/noise.h"
#include "ops/math.h"

#endif
