/* emulated.h -- what tests ask of the emulated driver, beside what CUDA's own can do. */
#ifndef RG_TEST_CUDA_EMULATED_H
#define RG_TEST_CUDA_EMULATED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Since the program began. */
typedef struct emulated_counts {
    uint64_t launches;             /* of kernels, those of graphs too */
    uint64_t graphs;               /* that were launched */
    uint64_t bytes_in, bytes_out;  /* from the host to the device, and back */
    uint64_t waits;                /* of the host for a stream */
    uint64_t allocations;          /* that were made, of the device and of pinned memory */
    uint64_t held, held_bytes;     /* that are there now: how many allocations of the device, and their bytes */
    uint64_t pinned;               /* that are there now, of the host's */
} emulated_counts;

emulated_counts emulated_count(void);
uint64_t emulated_launches(const char *kernel); /* of one kernel, "rgk_norm" */

/* From now on the device's memory is this large (at first 8 GiB). */
void emulated_set_memory(size_t bytes);

/* From now on what is asynchronous happens as late as it may: work of a stream when the host waits for it, copies to
 * shared memory when a thread waits for them; and threads run from the last to the first.  Else all of it at once. */
void emulated_set_late(bool late);

/* What stands for the kernels' machine code. */
extern const unsigned char ridge_emulated_image[16];

#endif
