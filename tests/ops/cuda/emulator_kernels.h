/* emulator_kernels.h -- small kernels on which the emulator is tried, and what they are launched with. */
#ifndef RG_TEST_EMULATOR_KERNELS_H
#define RG_TEST_EMULATOR_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#define EMULATOR_KERNELS(KERNEL)                                                                                       \
    KERNEL(places, places)                                                                                             \
    KERNEL(sums, sums)                                                                                                 \
    KERNEL(turned, turned)                                                                                             \
    KERNEL(product, product)                                                                                           \
    KERNEL(pipeline, pipeline)                                                                                         \
    KERNEL(words, words)                                                                                               \
    KERNEL(shared, shared)                                                                                             \
    KERNEL(wrong, wrong)

/* y[block, thread] = where this is */
typedef struct rgk_places_params {
    int32_t (*y)[5];
} rgk_places_params;

/* y[block] = the sum of x[block * threads, + threads); with a barrier for each halving, the second half of the threads
 * returns before the first one.  dynamic: a float for each thread */
typedef struct rgk_sums_params {
    const float *x;
    float *y;
} rgk_sums_params;

/* y[thread] = x[thread] of the lane `by` further in the same warp */
typedef struct rgk_turned_params {
    const float *x;
    float *y;
    int32_t by;
} rgk_turned_params;

/* c [16, 8] += a [16, 16] b [16, 8], a warp; a and b in bf16, rows one after the other */
typedef struct rgk_product_params {
    const uint16_t *a, *b;
    float *c;
} rgk_product_params;

/* y = the sum of n rows of x, of four words for each thread, which come through copies in the background; the last row
 * is not there and counts as zeros */
typedef struct rgk_pipeline_params {
    const uint32_t *x;
    uint32_t *y;
    int32_t n;
    bool waits; /* false: a fault */
} rgk_pipeline_params;

/* a + b of two bf16 in a word; bytes */
typedef struct rgk_words_params {
    const uint32_t *a, *b;
    uint32_t *sum, *bytes;
    uint32_t which;
} rgk_words_params;

/* y = what shared memory holds when a kernel begins: of a fixed size, then dynamic */
typedef struct rgk_shared_params {
    uint32_t *y;
} rgk_shared_params;

typedef enum rgk_wrong_kind {
    RGK_ONE_RETURNS_NOT,   /* thread 3 waits for its warp, the others for the block */
    RGK_TWO_BARRIERS,      /* threads wait for the block in two places */
    RGK_LANES_DIFFER,      /* one lane shuffles, the others wait */
    RGK_LANE_IS_MISSING,   /* a lane returns before the others shuffle */
    RGK_NO_SUCH_LANE,
    RGK_SKEW_LOAD,         /* an address that is no multiple of 16 */
    RGK_INEXACT,           /* bf16 whose sum is none */
    RGK_PAST_SHARED,       /* writes past the end of dynamic memory */
    RGK_PAST_DEVICE,       /* writes past the end of y */
} rgk_wrong_kind;

typedef struct rgk_wrong_params {
    float *y;
    int32_t kind, n; /* of y */
} rgk_wrong_params;

#endif
