/* rng.c -- a stream drawn from Philox4x32-10, and the operating system's seed. */
#include "base/rng.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/random.h>

#include "base/clock.h"

uint64_t rg_rng_u64(rg_rng *r)
{
    uint32_t counter[4] = { (uint32_t)r->count, (uint32_t)(r->count >> 32), 0, 0 };
    uint32_t key[2] = { (uint32_t)r->seed, (uint32_t)(r->seed >> 32) }, out[4];

    r->count++;
    rg_philox(counter, key, out);
    return (uint64_t)out[1] << 32 | out[0];
}

/* Lemire's multiplication; results that would make some numbers too frequent are drawn again. */
uint32_t rg_rng_below(rg_rng *r, uint32_t n)
{
    uint32_t reject = (uint32_t)(0u - n) % n;
    uint64_t m;

    do
        m = (rg_rng_u64(r) >> 32) * n;
    while ((uint32_t)m < reject);
    return (uint32_t)(m >> 32);
}

float rg_rng_unit(rg_rng *r)
{
    return (float)(rg_rng_u64(r) >> 40) * 0x1p-24f;
}

/* Box and Muller: one of the two numbers. */
float rg_rng_normal(rg_rng *r)
{
    double u = ((double)(rg_rng_u64(r) >> 11) + 1.0) * 0x1p-53; /* (0, 1]: its logarithm is finite */
    double v = (double)(rg_rng_u64(r) >> 11) * 0x1p-53;

    return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
}

uint64_t rg_splitmix64(uint64_t *x)
{
    uint64_t z = *x += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t rg_splitmix64_example(uint64_t seed, uint64_t e)
{
    return rg_splitmix64(&seed) + e * 0xD1342543DE82EF95u;
}

static uint64_t (*_Atomic stand_in)(void *arg);
static _Atomic(void *) stand_in_arg;

uint64_t rg_seed(void)
{
    static _Atomic uint64_t n_drawn;
    uint64_t (*draw)(void *arg) = atomic_load_explicit(&stand_in, memory_order_acquire);
    uint64_t seed;

    if (draw)
        return draw(atomic_load_explicit(&stand_in_arg, memory_order_relaxed));
    if (getrandom(&seed, sizeof seed, 0) == (ssize_t)sizeof seed)
        return seed;
    /* The entropy call is not allowed here: the clock and a counter make seeds differ, which is all that is
     * promised. */
    return (rg_now_ns() ^ (uint64_t)rg_wall_s() << 32) + 0x9e3779b97f4a7c15u * (1 + atomic_fetch_add(&n_drawn, 1));
}

void rg_seed_set(uint64_t (*draw)(void *arg), void *arg)
{
    atomic_store(&stand_in, NULL);
    atomic_store(&stand_in_arg, arg);
    atomic_store(&stand_in, draw);
}
