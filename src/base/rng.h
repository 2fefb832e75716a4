/* rng.h -- the one source of randomness: a counter generator, so that a draw depends on its key and nothing else. */
#ifndef RG_BASE_RNG_H
#define RG_BASE_RNG_H

#include "base/noise.h" /* rg_philox */

/* A stream for tests and tools: seeded, reproducible, not for tokens. */
typedef struct rg_rng {
    uint64_t seed, count;
} rg_rng;

uint64_t rg_rng_u64(rg_rng *r);
uint32_t rg_rng_below(rg_rng *r, uint32_t n); /* 0 .. n - 1, unbiased; n > 0 */
float rg_rng_unit(rg_rng *r);                 /* [0, 1) in steps of 2^-24 */
float rg_rng_normal(rg_rng *r);

/* The next of splitmix64's results (Steele, Lea & Flood 2014): the same everywhere, for what other programs have to
 * reproduce.  And the state from which example number e of a seed is drawn. */
uint64_t rg_splitmix64(uint64_t *x);
uint64_t rg_splitmix64_example(uint64_t seed, uint64_t e);

/* A seed from the operating system, or from the test's stand-in. */
uint64_t rg_seed(void);
void rg_seed_set(uint64_t (*draw)(void *arg), void *arg);

#endif
