/* block.h -- running a kernel: its blocks one after the other, a block's threads as fibers. */
#ifndef RG_TEST_CUDA_BLOCK_H
#define RG_TEST_CUDA_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    EMULATED_MAX_THREADS = 1024,
    EMULATED_MAX_SHARED = 227 << 10, /* bytes of dynamic shared memory */
    EMULATED_WARP = 32,
};

#if defined(__SANITIZE_ADDRESS__)
#define EMULATED_WITH_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMULATED_WITH_ASAN 1
#endif
#endif

/* Shared memory of a fixed size lies in a section of its own, which is filled before a launch; AddressSanitizer looks
 * after it only where it does not. */
#ifdef EMULATED_WITH_ASAN
#define EMULATED_SHARED static
#else
#define EMULATED_SHARED static __attribute__((section("emulated_shared")))
#endif

/* A kernel, as a table has it. */
typedef struct emulated_kernel {
    const char *name; /* "rgk_norm"; NULL ends the table */
    void (*run)(const void *params);
    size_t params_bytes;
} emulated_kernel;

/* A line of such a table, and before it what it calls: as KERNEL(name, params) of kernels.def. */
#define EMULATED_RUN(name, params)                                                                                     \
    void rgk_##name(const rgk_##params##_params p);                                                                    \
    static void run_##name(const void *given)                                                                          \
    {                                                                                                                  \
        rgk_##name(*(const rgk_##params##_params *)given);                                                             \
    }
#define EMULATED_KERNEL(name, params) { "rgk_" #name, run_##name, sizeof(rgk_##params##_params) },

/* The kernels that this driver has. */
extern const emulated_kernel emulated_kernels[];

typedef struct emulated_launch {
    const emulated_kernel *kernel;
    const void *params;
    int grid[3], threads, shared_bytes; /* within the limits, which the caller checks */
} emulated_launch;

/* Run it.  One at a time. */
void emulated_run(const emulated_launch *l);

/* What happens in the background happens as late as it may, threads go on from the last to the first; else at once, and
 * from the first on.  Nothing that is right depends on it. */
extern bool emulated_is_late;

/* ---- for kernels -------------------------------------------------------------------------------------------------- */

/* The thread that runs. */
typedef struct emulated_place {
    int thread, threads, block[3];
} emulated_place;

extern emulated_place emulated;

typedef enum emulated_call { EMULATED_NONE, EMULATED_SYNC_WARP, EMULATED_SHUFFLE, EMULATED_MMA } emulated_call;

typedef struct emulated_shuffling {
    float given;
    int from;
    float got;
} emulated_shuffling;

typedef struct emulated_multiplying {
    float *c;
    const uint32_t *a, *b;
} emulated_multiplying;

/* Wait for all threads of the block that have not returned; `where` in the source. */
void emulated_sync(const char *where);
/* Wait for the lanes of the warp, which all make this call here, each with an argument of its own. */
void emulated_together(emulated_call call, const char *where, void *argument);
/* 16 bytes; from NULL: zeros. */
void emulated_copy(void *to, const void *from);
void emulated_copy_commit(void);
void emulated_copy_wait(int n);
/* End the program unless ok, and say in which thread that was. */
void emulated_check(bool ok, const char *what);

#endif
