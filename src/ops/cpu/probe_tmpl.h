/* probe_tmpl.h -- the most that an instruction set can do: chains of multiply-adds in registers, and a read of memory.
 *
 * Included where vec is known and CHAINS (enough of them to hide an instruction's latency) is defined.  PEAK(name,
 * lanes) makes peak_name from product_name, one multiply-add of that many lanes; a folder's probe.c makes its stream
 * with STREAM. */
#ifndef RG_OPS_CPU_PROBE_TMPL_H
#define RG_OPS_CPU_PROBE_TMPL_H

/* One multiply-add into a sum; the instruction defines what the bits mean.  It is volatile asm, so that the compiler
 * neither folds nor drops it. */
typedef vec product(vec sum);

/* About n multiply-adds, `lanes` of them to an instruction; returns how many. */
ALWAYS_INLINE double peak(double n, int lanes, product *one)
{
    const int64_t rounds = (int64_t)(n / (lanes * CHAINS)) + 1;
    vec c[CHAINS];

#pragma GCC unroll 16
    for (int i = 0; i < CHAINS; i++)
        c[i] = (vec){ 0 };
    for (int64_t r = 0; r < rounds; r++)
#pragma GCC unroll 16
        for (int i = 0; i < CHAINS; i++)
            c[i] = one(c[i]);
    return (double)rounds * lanes * CHAINS;
}

#define PEAK(name, lanes)                                                                                              \
    static double peak_##name(double n)                                                                                \
    {                                                                                                                  \
        return peak(n, (int)(lanes), product_##name);                                                                  \
    }

/* n bytes as vectors of 64-bit words into four sums, `at_once` bytes to a round (a power of 2); `ahead`: prefetch,
 * where the hardware's own stops at each page. */
ALWAYS_INLINE uint64_t read_words(const void *p, size_t n, size_t at_once, bool ahead)
{
    typedef uint64_t words __attribute__((vector_size(sizeof(vec))));
    const uint8_t *from = p;
    words s[4] = { 0 }, v;
    uint64_t sum = 0;
    size_t i = 0;

    for (; i + at_once <= n; i += at_once)
#pragma GCC unroll 16
        for (size_t k = 0; k < at_once / sizeof v; k++) {
            if (ahead && k * sizeof v % 64 == 0)
                __builtin_prefetch(from + i + 4096 + k * sizeof v);
            __builtin_memcpy(&v, from + i + k * sizeof v, sizeof v);
            s[k % 4] += v;
        }
    for (; i < n; i++)
        sum += from[i];
    s[0] = (s[0] + s[1]) + (s[2] + s[3]);
    for (size_t k = 0; k < sizeof v / sizeof sum; k++)
        sum += s[0][k];
    return sum;
}

#define STREAM(at_once, ahead)                                                                                         \
    static uint64_t stream(const void *p, size_t n)                                                                    \
    {                                                                                                                  \
        return read_words(p, n, at_once, ahead);                                                                       \
    }

#endif
