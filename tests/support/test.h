/* test.h -- what every test includes: cmocka in its required order, and a few helpers.
 *
 * RG_TEST_DATA is tests/golden.  --seed N and --isa NAME on a test's command line reach it through test_seed and
 * test_isa, --part K/N test_run_part; any other argument is cmocka's name filter. */
#ifndef RG_TEST_H
#define RG_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error.h"
#include "base/rng.h"

/* Parse the command line; call first in main. */
void test_init(int argc, char **argv);

extern uint64_t test_seed;      /* default 1 */
extern const char *test_isa;    /* NULL: every instruction set that this machine has */

/* Run them, or with --part K/N every N-th from the K-th on, so that parts can run side by side.  How many failed. */
int test_run_part(const struct CMUnitTest *tests, size_t n);

/* How many cases to run where n are usual: RIDGE_TEST_SCALE in the environment says 10 for a tenth, -20 for twenty times
 * as many.  At least one. */
int test_scale(int n);

/* Is this `make test-all` (RIDGE_TEST_ALL in the environment)?  Then every architecture, spelling and K/V type is tried on
 * every instruction set; else a part that gates. */
bool test_all(void);

/* Fail with err's text unless ok. */
#define assert_ok(ok, err) test_assert_ok(!!(ok), #ok, &(err), __FILE__, __LINE__)
void test_assert_ok(bool ok, const char *what, const rg_error *err, const char *file, int line);

/* RG_TEST_DATA "/" name; valid until the next call on this thread (four are kept). */
const char *test_data(const char *name);

/* A file of less than 1 MB as text; free() it. */
char *test_read_text(const char *path);
void test_write_text(const char *path, const char *text);

/* n bytes whose end is followed by an unmapped page, so that a read past the end faults.  Freed with test_guard_free. */
void *test_guard_new(size_t n);
void test_guard_free(void *p);

/* How much slower than the one that people use this build may be: where a test looks at the clock. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(RG_DEBUG)
enum { TEST_SLOWER = 40 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
enum { TEST_SLOWER = 40 };
#else
enum { TEST_SLOWER = 1 };
#endif
#else
enum { TEST_SLOWER = 1 };
#endif

#endif
