/* kernel_cases.h -- every entry of a kernel table against ref's, bit for bit: the comparisons, in plain C, so that a
 * program without cmocka (another processor's, under an emulator) can run them too. */
#ifndef RG_TEST_KERNEL_CASES_H
#define RG_TEST_KERNEL_CASES_H

#include "base/rng.h"
#include "ops/cpu/kernels.h"

typedef struct cases {
    const rg_cpu *ref, *k;
    const rg_cpu *below; /* may be NULL: panels that k has from it are not compared again */
    rg_rng rng;
    bool few; /* sizes of panels and numbers of rows: what is emulated takes its time */
} cases;

typedef struct kernel_case {
    const char *name;
    bool (*same)(cases *c); /* true, or prints what differs */
} kernel_case;

extern const kernel_case kernel_cases[]; /* ends with a NULL name */

#endif
