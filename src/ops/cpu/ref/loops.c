/* loops.c -- the loops of loops_tmpl.h in plain C, for any processor. */
#include "ops/cpu/ref/init.h"
#include "ops/cpu/runs.h"

typedef float vec;
enum { WIDTH = 1 };

ALWAYS_INLINE vec splat(float x)
{
    return x;
}

ALWAYS_INLINE vec fused(vec a, vec b, vec c)
{
    return __builtin_fmaf(a, b, c);
}

ALWAYS_INLINE vec load_f32(const float *p)
{
    return *p;
}

ALWAYS_INLINE void store_f32(float *p, vec v)
{
    *p = v;
}

#include "ops/cpu/loops_tmpl.h"

void rg_cpu_loops_ref(rg_cpu *k)
{
    k->loops = &loops;
}
