/* failing.h -- a job that is tried with each of its operations failing once in turn: its first, its second, and so on.
 *
 * Operations are allocations (by the gate of base/mem.h) or system calls: those of support/system_calls.c, which stand in
 * for the C library's in a program that is linked with TEST_WRAPPED (tests/CMakeLists.txt).  Whatever fails, the job says
 * why, leaks neither memory nor a descriptor, and leaves no file but whole ones; the same job after it works. */
#ifndef RG_TEST_FAILING_H
#define RG_TEST_FAILING_H

#include "support/model.h"

typedef enum test_operations { TEST_ALLOCATIONS, TEST_SYSTEM_CALLS, TEST_N_OPERATIONS } test_operations;

/* From now on the n-th operation of any thread fails, 0: the next; n < 0: none does. */
void test_arm(test_operations kind, long n);
/* No more.  How many operations there were; *failed (may be NULL): whether one of them was made to fail. */
long test_disarm(bool *failed);

/* A call of the C library that may fail: false and errno when it is to. */
bool test_system_call_allowed(int code);

typedef struct test_job {
    const char *name;
    /* All of it, from opening to closing.  False and *err: it failed. */
    bool (*run)(void *arg, const char *folder, rg_error *err);
    void *arg;
    int most; /* of the operations that fail, spread over all; `make test-all` has each fail */
} test_job;

/* Try it with each operation of a kind failing, in a scratch folder that is empty at first. */
void test_each_fails(const test_job *job, test_operations kind);

#endif
