/* error.h -- the three kinds of wrong.
 *
 * Faults of the caller, of a file or of the machine give a false or NULL result and an rg_error (declared in ridge.h).
 * Our own faults are caught by RG_ASSERT, in release too, which prints a report and aborts.  Nothing reachable from
 * file or network bytes may assert. */
#ifndef RG_BASE_ERROR_H
#define RG_BASE_ERROR_H

#include "ridge.h"

#define RG_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define RG_MUST_CHECK __attribute__((warn_unused_result))
#define RG_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Set *err (unless NULL) and return false, so that `return rg_fail(...)` and `return rg_fail(...), NULL` read well. */
bool rg_fail(rg_error *err, rg_code code, const char *fmt, ...) RG_PRINTF(3, 4);
bool rg_fail_memory(rg_error *err, size_t bytes);

/* Put "prefix: " before the message of a failure that came from below. Returns false. */
bool rg_fail_prefix(rg_error *err, const char *fmt, ...) RG_PRINTF(2, 3);

_Noreturn void rg_assert_failed(const char *file, int line, const char *what);
#define RG_ASSERT(cond) ((cond) ? (void)0 : rg_assert_failed(__FILE__, __LINE__, #cond))

/* A callback that writes more of an assertion's report to stderr, after the place; one for each thread; NULL: none. */
void rg_assert_report(void (*report)(void *arg), void *arg);

/* Checked arithmetic for sizes: false on overflow.  Every size of an allocation is computed with these, or by the
 * functions of mem.h that take a count; scripts/sizes finds exceptions. */
#define rg_add(a, b, out) (!__builtin_add_overflow(a, b, out))
#define rg_mul(a, b, out) (!__builtin_mul_overflow(a, b, out))

/* head + n * each */
static inline bool rg_head_and_items(size_t head, size_t n, size_t each, size_t *out)
{
    return rg_mul(n, each, out) && rg_add(head, *out, out);
}

/* The least multiple of `to` that is not below n; to > 0. */
static inline bool rg_round_up(size_t n, size_t to, size_t *out)
{
    size_t rest = n % to;

    return rg_add(n, rest ? to - rest : 0, out);
}

#endif
