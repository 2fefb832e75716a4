/* device.h -- what kernels are written in: the part of CUDA that they use, under names of their own.
 *
 * Kernels are plain C: a compiler of CUDA makes machine code for a GPU of them, and a compiler of C makes functions of
 * them that an emulator calls (tests/support/cuda/), whose header RGK_EMULATED names; it gives the same names.  A
 * kernel is RGK_KERNEL(name, params) with one parameter, a struct of params.h.  Every multiply-add that is meant to be
 * one is written as rgk_fma; the compiler is told to make no others (--fmad=false), so that results have the bits of
 * the reference. */
#ifndef RG_OPS_CUDA_KERNELS_DEVICE_H
#define RG_OPS_CUDA_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/cuda/params.h"

enum { RGK_WARP = 32 };

typedef struct rgk_u4 {
    uint32_t v[4];
} rgk_u4;

#ifdef __cplusplus
#define RGK_STATIC_ASSERT(what) static_assert(what, #what)
#else
#define RGK_STATIC_ASSERT(what) _Static_assert(what, #what)
#endif

#ifdef RGK_EMULATED
#include RGK_EMULATED
#else

#define RGK_DEVICE static __device__ __forceinline__
#define RGK_KERNEL(name, params) extern "C" __global__ void rgk_##name(const __grid_constant__ rgk_##params##_params p)
/* The same of a kernel whose blocks have so many threads, at least so many of them in a multiprocessor. */
#define RGK_KERNEL_OF(name, params, threads, blocks)                                                                   \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        rgk_##name(const __grid_constant__ rgk_##params##_params p)
#define RGK_SHARED __shared__
/* Shared memory whose size the launch says, as bytes aligned to 16. */
#define RGK_DYNAMIC extern __shared__ __align__(16) unsigned char rgk_dynamic[]

/* Place of this thread in its block and of the block in its grid; threads of a block stand in one row. */
#define RGK_THREAD ((int)threadIdx.x)
#define RGK_THREADS ((int)blockDim.x)
#define RGK_BLOCK_X ((int)blockIdx.x)
#define RGK_BLOCK_Y ((int)blockIdx.y)
#define RGK_BLOCK_Z ((int)blockIdx.z)
#define RGK_TEXT(x) #x
#define RGK_UNROLL _Pragma("unroll")
#define RGK_UNROLL_BY(n) _Pragma(RGK_TEXT(unroll n))

/* All threads of the block, or of the warp, come here before one goes on; what they wrote is seen. */
RGK_DEVICE void rgk_sync(void)
{
    __syncthreads();
}

RGK_DEVICE void rgk_sync_warp(void)
{
    __syncwarp();
}

/* The value that a lane of this warp gives; all lanes call it together. */
RGK_DEVICE float rgk_shuffle(float v, int lane)
{
    return __shfl_sync(0xffffffffu, v, lane);
}

RGK_DEVICE float rgk_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}

/* 16 bytes that are read once, past the near cache; 16 bytes that others read too. */
RGK_DEVICE rgk_u4 rgk_load_once(const void *from)
{
    rgk_u4 r;

    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r.v[0]), "=r"(r.v[1]), "=r"(r.v[2]), "=r"(r.v[3])
                 : "l"(from));
    return r;
}

RGK_DEVICE rgk_u4 rgk_load(const void *from)
{
    const uint4 u = *(const uint4 *)from;
    rgk_u4 r;

    r.v[0] = u.x;
    r.v[1] = u.y;
    r.v[2] = u.z;
    r.v[3] = u.w;
    return r;
}

/* Copy 16 bytes from global to shared memory in the background, or zeros where `there` is false.  A commit closes a
 * group of copies; wait returns when all groups but the latest n (a constant) are there for this thread. */
RGK_DEVICE void rgk_copy(void *shared, const void *from, bool there)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(shared);

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(at), "l"(from), "r"(there ? 16 : 0)
                 : "memory");
}

RGK_DEVICE void rgk_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" : : : "memory");
}

#define rgk_copy_wait(n) asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory")

/* c += a b for a of 16 rows and 16 columns, b of 16 rows and 8 columns, of bf16, and c of f32, by all lanes of a warp
 * (mma.sync.m16n8k16).  Lane 4 g + t holds of a the rows g and g + 8: a[0], a[1]: columns 2 t, 2 t + 1 of these, a[2],
 * a[3]: columns 2 t + 8, 2 t + 9; of b column g: b[0]: rows 2 t, 2 t + 1, b[1]: rows 2 t + 8, 2 t + 9; of c columns
 * 2 t, 2 t + 1 of row g (c[0], c[1]) and of row g + 8 (c[2], c[3]). */
RGK_DEVICE void rgk_mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Two bf16 a and b in one word: a + b of each, where that is exact. */
RGK_DEVICE uint32_t rgk_add_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t r;

    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(0x3f803f80u), "r"(b));
    return r;
}

/* Two values rounded to bf16, to nearest, ties to even, in one word. */
RGK_DEVICE uint32_t rgk_round_bf16x2(float low, float high)
{
    uint32_t r;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}

/* Bytes of (low, high) as the four nibbles of `which` name them, the lowest first. */
RGK_DEVICE uint32_t rgk_bytes(uint32_t low, uint32_t high, uint32_t which)
{
    return __byte_perm(low, high, which);
}

/* The bits of ops/math.h and base/noise.h on the device. */
#define __builtin_fmaf __fmaf_rn
#define __builtin_fma __fma_rn
#define __builtin_sqrtf __fsqrt_rn
#define __builtin_fabsf fabsf
#define __builtin_memcpy memcpy
#define __builtin_clz __clz
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define inline __device__ __forceinline__
#include "base/noise.h"
#include "ops/math.h"
#undef inline
#endif

#endif
