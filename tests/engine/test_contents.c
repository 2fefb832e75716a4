/* Tests of the numbers of given rows: equal contents have equal ones, different contents never, whatever the table forgets,
 * and when all numbers were used. */
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/contents.h"

enum { N = 40, DIM = 2 };

/* A content of n rows at a place. */
static rg_given_rows content(uint64_t name, int32_t at, int32_t n)
{
    rg_given_rows g = { .at = at, .n = n };

    memcpy(g.hash, &name, sizeof name);
    memcpy(g.hash + 8, "12345678", 8);
    return g;
}

static rg_contents contents_of(int64_t room)
{
    rg_contents c;
    rg_error err;

    assert_ok(rg_contents_init(&c, room, &err), err);
    return c;
}

static void equal_contents_have_equal_numbers(void **state)
{
    rg_contents c = contents_of(100);
    int32_t a[N] = { 0 }, b[N] = { 0 };
    const rg_given_rows two[] = { content(7, 2, 5), content(8, 10, 6) };
    const rg_given_rows others[] = { content(8, 0, 6), content(7, 20, 5), content(7, 30, 4) };

    (void)state;
    assert_int_equal(rg_contents_number(&c, two, 2, a), 0);
    assert_int_equal(rg_contents_number(&c, others, 3, b), 0);
    for (int i = 0; i < N; i++) {
        const bool of_two = (i >= 2 && i < 7) || (i >= 10 && i < 16);

        assert_true(of_two ? a[i] < RG_GIVEN && !rg_is_id(a[i]) : a[i] == 0);
        for (int k = 0; k < i && of_two; k++)
            assert_true(a[k] != a[i]);
    }
    assert_memory_equal(b, a + 10, 6 * sizeof *a);
    assert_memory_equal(b + 20, a + 2, 5 * sizeof *a);
    for (int i = 30; i < 34; i++) /* fewer rows are another content */
        for (int k = 0; k < N; k++)
            assert_true(b[i] != a[k]);
    rg_contents_fini(&c);
}

/* Contents that come in any order, more than there is room for: a number stands for one row of one content for ever. */
static void numbers_are_never_those_of_another_content(void **state)
{
    enum { NAMES = 60, ROUNDS = 3000, MOST = NAMES * ROUNDS };
    rg_contents c = contents_of(16);
    int32_t *owner = calloc(MOST, sizeof *owner), prompt[8];
    rg_rng g = { .seed = test_seed };
    int n_kept = 0, latest[NAMES] = { 0 };

    (void)state;
    assert_non_null(owner);
    for (int round = 0; round < ROUNDS; round++) {
        const int32_t name = (int32_t)rg_rng_below(&g, NAMES), n = 1 + name % 7;
        const rg_given_rows one = content((uint64_t)name, 0, n);

        assert_int_equal(rg_contents_number(&c, &one, 1, prompt), 0);
        for (int32_t k = 0; k < n; k++) {
            int32_t *of = &owner[-prompt[k]];

            assert_true(-prompt[k] < MOST && (*of == 0 || *of == 1 + name * 8 + k));
            *of = 1 + name * 8 + k;
        }
        n_kept += latest[name] == prompt[0];
        latest[name] = prompt[0];
    }
    assert_true(n_kept > ROUNDS / 10 && n_kept < ROUNDS - NAMES);
    free(owner);
    rg_contents_fini(&c);
}

static void a_new_era_has_another_salt(void **state)
{
    rg_contents c = contents_of(16);
    const rg_given_rows some[] = { content(1, 0, 10), content(2, 10, 10) }, one = content(1, 0, 10);
    int32_t a[20], b[20];

    (void)state;
    c.next = INT32_MIN + 35;
    assert_int_equal(rg_contents_number(&c, some, 2, a), 0);
    assert_int_equal(a[0], INT32_MIN + 35);
    assert_int_equal(rg_contents_number(&c, &one, 1, b), 0);
    assert_memory_equal(a, b, 10 * sizeof *a);

    const rg_given_rows more[] = { content(3, 0, 8), content(1, 8, 10) };
    const uint64_t salt = rg_contents_number(&c, more, 2, b);

    assert_true(salt != 0 && c.era == 1);
    assert_int_equal(b[0], RG_GIVEN - 1);
    assert_memory_not_equal(b + 8, a, 10 * sizeof *a);
    assert_true(rg_contents_number(&c, &one, 1, a) == salt);
    assert_memory_equal(a, b + 8, 10 * sizeof *a);
    rg_contents_fini(&c);
}

static void rows_are_found_by_their_position(void **state)
{
    static float rows[9 * DIM];
    rg_given_rows given[] = { content(1, 2, 3), content(2, 5, 1), content(3, 9, 5) };

    (void)state;
    given[0].rows = rows;
    given[1].rows = rows + 3 * DIM;
    given[2].rows = rows + 4 * DIM;
    for (int32_t at = 0; at < 20; at++) {
        const int32_t k = at >= 2 && at < 6 ? at - 2 : at >= 9 && at < 14 ? at - 5 : -1;

        assert_true(rg_given_row(given, 3, DIM, at) == (k < 0 ? NULL : rows + k * DIM));
    }
    assert_null(rg_given_row(NULL, 0, DIM, 0));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_contents_have_equal_numbers),
        cmocka_unit_test(numbers_are_never_those_of_another_content),
        cmocka_unit_test(a_new_era_has_another_salt),
        cmocka_unit_test(rows_are_found_by_their_position),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
