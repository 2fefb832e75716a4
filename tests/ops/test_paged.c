/* test_paged.c -- matrices read on demand: what is there and what is read is counted; who makes room; what cannot be
 * read or is damaged is said and tried again; many threads hold and release at once. */
#include "support/model.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "ops/cpu/paged.h"

enum { N = 12, BYTES = 5000, ROOM = 2 * RG_PAGE_ALIGN }; /* pages, of so many bytes, which take so many */

typedef struct pages {
    char path[512];
    rg_paged_page page[N];
    uint8_t data[N][BYTES];
} pages;

/* A file of N pages of random bytes. */
static void make(pages *p, const char *name)
{
    static const uint8_t zeros[ROOM];
    rg_rng random = { .seed = test_seed };
    rg_error err = { 0 };

    snprintf(p->path, sizeof p->path, "%s", test_scratch(name));
    rg_writer *w = rg_writer_open(p->path, &err);
    assert_ok(w, err);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < BYTES; k++)
            p->data[i][k] = (uint8_t)rg_rng_u64(&random);
        p->page[i] = (rg_paged_page){ (uint64_t)(i * ROOM), rg_hash_pieces(p->data[i], BYTES), BYTES };
        assert_ok(rg_writer_write(w, p->data[i], BYTES, &err), err);
        assert_ok(rg_writer_write(w, zeros, ROOM - BYTES, &err), err);
    }
    assert_ok(rg_writer_commit(w, &err), err);
}

static rg_paged_options options(const pages *p, int n_places)
{
    return (rg_paged_options){ .path = p->path, .pages = p->page, .n_pages = N, .bytes = (size_t)n_places * ROOM + 100,
                               .at_once = 3, .n_readers = 2 };
}

static rg_paged *open_paged(const pages *p, int n_places)
{
    rg_paged_options o = options(p, n_places);
    rg_error err = { 0 };
    rg_paged *g = rg_paged_new(&o, &err);

    assert_ok(g, err);
    assert_int_equal(rg_paged_count(g).bytes, (size_t)n_places * ROOM);
    return g;
}

static void use(rg_paged *g, const pages *p, int i, int uses)
{
    const uint8_t *data;

    assert_true(rg_paged_ask(g, i, uses));
    data = rg_paged_wait(g, i);
    assert_non_null(data);
    assert_memory_equal(data, p->data[i], BYTES);
    rg_paged_release(g, i);
}

static void reads_are_counted(void **state)
{
    pages p;

    (void)state;
    make(&p, "counted");
    rg_paged *g = open_paged(&p, 4);
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 4; i++) {
            assert_int_equal(rg_paged_has(g, i), turn > 0);
            use(g, &p, i, 1);
            assert_true(rg_paged_has(g, i));
        }
    rg_paged_stats s = rg_paged_count(g);
    assert_int_equal(s.n_asked, 12);
    assert_int_equal(s.n_read, 4);
    assert_int_equal(s.read_bytes, 4 * BYTES);
    assert_int_equal(s.n_failed, 0);
    use(g, &p, 4, 1); /* makes room: the least recently used of those used alike */
    assert_false(rg_paged_has(g, 0));
    for (int i = 1; i <= 4; i++)
        assert_true(rg_paged_has(g, i));
    rg_paged_free(g);
}

/* A page that was used often stays longer than those used once; in time it goes too. */
static void frequent_use_counts(void **state)
{
    pages p;
    int n = 0;

    (void)state;
    make(&p, "frequent");
    rg_paged *g = open_paged(&p, 3);
    use(g, &p, 0, 8);
    for (int i = 1; i < N; i++)
        use(g, &p, i, 1);
    assert_true(rg_paged_has(g, 0));
    for (; rg_paged_has(g, 0) && n < 10000; n++)
        use(g, &p, 1 + n % (N - 1), 1);
    assert_in_range(n, N, 9999);
    rg_paged_free(g);
}

static void what_is_held_stays(void **state)
{
    pages p;

    (void)state;
    make(&p, "held");
    rg_paged *g = open_paged(&p, 3);
    for (int i = 0; i < 3; i++)
        assert_true(rg_paged_ask(g, i, 1));
    assert_false(rg_paged_ask(g, 3, 1));
    assert_true(rg_paged_ask(g, 2, 1)); /* twice */
    const uint8_t *first = rg_paged_wait(g, 0);
    assert_memory_equal(first, p.data[0], BYTES);
    assert_non_null(rg_paged_wait(g, 2));
    rg_paged_release(g, 2);
    assert_false(rg_paged_ask(g, 3, 1));
    rg_paged_release(g, 2);
    use(g, &p, 3, 1);
    assert_ptr_equal(rg_paged_wait(g, 0), first);
    assert_memory_equal(first, p.data[0], BYTES);
    assert_false(rg_paged_has(g, 2));
    rg_paged_release(g, 0);
    rg_paged_release(g, 1);
    rg_paged_free(g); /* whatever is still being read */
}

static void memory_is_shared_out_by_size(void **state)
{
    pages p;
    rg_error err = { 0 };

    (void)state;
    make(&p, "sizes");
    for (int i = 0; i < N; i += 4) /* three of N are small */
        p.page[i] = (rg_paged_page){ p.page[i].offset, rg_hash_pieces(p.data[i], 100), 100 };
    rg_paged_options o = options(&p, 3);
    assert_false(rg_paged_check(&o, &err)); /* the small ones need their share: three places too */
    assert_int_equal(err.code, RG_E_LIMIT);
    assert_null(rg_paged_new(&o, &err));
    o.bytes += 3 * RG_PAGE_ALIGN;
    assert_ok(rg_paged_check(&o, &err), err);
    rg_paged *g = rg_paged_new(&o, &err);
    assert_ok(g, err);
    assert_true(rg_paged_count(g).bytes <= o.bytes);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < N; i++) {
            assert_true(rg_paged_ask(g, i, 1));
            assert_memory_equal(rg_paged_wait(g, i), p.data[i], p.page[i].bytes);
            rg_paged_release(g, i);
        }
    assert_int_equal(rg_paged_count(g).n_read, 2 * N - 3); /* small ones were read once */
    rg_paged_free(g);
    o.bytes = (size_t)1 << 40; /* no more is taken than there is to read */
    g = rg_paged_new(&o, &err);
    assert_ok(g, err);
    assert_int_equal(rg_paged_count(g).bytes, (N - 3) * ROOM + 3 * RG_PAGE_ALIGN);
    rg_paged_free(g);
}

/* ---- guesses ----------------------------------------------------------------------------------------------------- */

static void guess(rg_paged *g, const pages *p, int i)
{
    assert_true(rg_paged_ask_ahead(g, i));
    assert_memory_equal(rg_paged_wait(g, i), p->data[i], BYTES);
}

/* A guess leaves others their room; a wrong one is counted and is the first to go, a right one is a use like others. */
static void guesses_stand_back(void **state)
{
    pages p;

    (void)state;
    make(&p, "guesses");
    rg_paged *g = open_paged(&p, 9);
    for (int i = 0; i < 9; i++)
        use(g, &p, i, 1);
    guess(g, &p, 9); /* instead of 0 */
    rg_paged_release(g, 9);
    assert_int_equal(rg_paged_count(g).n_unused, 1);
    use(g, &p, 10, 1);
    assert_false(rg_paged_has(g, 9));
    for (int i = 1; i < 9; i++)
        assert_true(rg_paged_has(g, i));
    guess(g, &p, 11);
    assert_true(rg_paged_ask(g, 11, 1));
    rg_paged_release(g, 11);
    rg_paged_release(g, 11);
    assert_int_equal(rg_paged_count(g).n_unused, 1);
    assert_int_equal(rg_paged_count(g).n_asked, 11);
    assert_int_equal(rg_paged_count(g).n_read, 12);
    for (int i = 0; i < 5; i++)
        guess(g, &p, i);
    assert_false(rg_paged_ask_ahead(g, 5)); /* half are left */
    rg_paged_free(g);
    g = open_paged(&p, 5);
    for (int i = 0; i < 2; i++)
        guess(g, &p, i);
    assert_false(rg_paged_ask_ahead(g, 2));
    for (int i = 3; i < 6; i++)
        assert_true(rg_paged_ask(g, i, 1)); /* as many as are asked for at once */
    assert_false(rg_paged_ask(g, 6, 1));
    rg_paged_free(g);
}

static atomic_bool is_open;

static bool when_open(void *arg, const char *operation)
{
    (void)arg;
    while (!strcmp(operation, "read") && !atomic_load(&is_open))
        sched_yield();
    return true;
}

/* A guess that is given up while all readers are busy costs no read. */
static void guesses_given_up_are_not_read(void **state)
{
    pages p;

    (void)state;
    make(&p, "given up");
    rg_paged *g = open_paged(&p, 10);
    atomic_store(&is_open, false);
    rg_file_set_gate(when_open, NULL);
    for (int i = 0; i < 2; i++)
        assert_true(rg_paged_ask(g, i, 1)); /* one for each reader */
    assert_true(rg_paged_ask_ahead(g, 2));
    assert_true(rg_paged_ask_ahead(g, 3));
    rg_paged_release(g, 2);
    rg_paged_release(g, 3);
    assert_true(rg_paged_ask(g, 3, 1)); /* after all */
    assert_true(rg_paged_ask(g, 4, 1));
    atomic_store(&is_open, true);
    for (int i = 0; i < 5; i++)
        if (i != 2) {
            assert_memory_equal(rg_paged_wait(g, i), p.data[i], BYTES);
            rg_paged_release(g, i);
        }
    rg_file_set_gate(NULL, NULL);
    assert_false(rg_paged_has(g, 2));
    assert_int_equal(rg_paged_count(g).n_read, 4);
    assert_int_equal(rg_paged_count(g).n_unused, 0);
    use(g, &p, 2, 1);
    rg_paged_free(g);
}

/* ---- what fails -------------------------------------------------------------------------------------------------- */

static bool no_reads(void *arg, const char *operation)
{
    (void)arg;
    return strcmp(operation, "read") != 0;
}

static void a_failed_read_is_tried_again(void **state)
{
    pages p;

    (void)state;
    make(&p, "failed");
    rg_paged *g = open_paged(&p, 3);
    use(g, &p, 0, 1);
    rg_file_set_gate(no_reads, NULL);
    for (int i = 1; i < N; i++) {
        assert_true(rg_paged_ask(g, i, 1));
        assert_null(rg_paged_wait(g, i));
        rg_paged_release(g, i);
    }
    use(g, &p, 0, 1); /* it is there */
    rg_file_set_gate(NULL, NULL);
    for (int i = 0; i < N; i++)
        use(g, &p, i, 1);
    assert_int_equal(rg_paged_count(g).n_failed, N - 1);
    rg_paged_free(g);
}

static void damage_is_found(void **state)
{
    pages p;

    (void)state;
    make(&p, "damage");
    FILE *f = fopen(p.path, "r+b");
    assert_non_null(f);
    fseek(f, 2 * ROOM + BYTES - 1, SEEK_SET);
    fputc(p.data[2][BYTES - 1] ^ 1, f);
    fclose(f);
    rg_paged *g = open_paged(&p, 4);
    for (int i = 0; i < N; i++) {
        assert_true(rg_paged_ask(g, i, 1));
        assert_int_equal(!rg_paged_wait(g, i), i == 2);
        rg_paged_release(g, i);
    }
    assert_int_equal(truncate(p.path, 5 * ROOM), 0); /* and what is no longer there */
    assert_true(rg_paged_ask(g, 7, 1));
    assert_null(rg_paged_wait(g, 7));
    rg_paged_release(g, 7);
    use(g, &p, 4, 1);
    rg_paged_free(g);
}

static bool allow_some(void *arg, size_t bytes)
{
    (void)bytes;
    return --*(int *)arg >= 0;
}

static void opening_fails_cleanly(void **state)
{
    pages p;
    rg_error err = { 0 };
    rg_mem_stats before;

    (void)state;
    make(&p, "opening");
    before = rg_mem_count();
    rg_paged_options o = options(&p, 3);
    for (int n = 0;; n++) {
        int left = n;

        rg_mem_set_gate(allow_some, &left);
        rg_paged *g = rg_paged_new(&o, &err);
        rg_mem_set_gate(NULL, NULL);
        rg_paged_free(g);
        assert_int_equal(rg_mem_count().n_live, before.n_live);
        if (g)
            break;
        assert_int_equal(err.code, RG_E_MEMORY);
    }
    o.path = "/nonexistent";
    assert_null(rg_paged_new(&o, &err));
    assert_int_equal(err.code, RG_E_IO);
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

typedef struct user {
    rg_paged *g;
    const pages *p;
    uint64_t seed;
    int n_wrong;
} user;

static void *use_many(void *arg)
{
    user *u = arg;
    rg_rng random = { .seed = u->seed };

    for (int n = 0; n < 2000; n++) {
        int i = (int)rg_rng_below(&random, N);

        if (!(n % 2 ? rg_paged_ask_ahead(u->g, i) : rg_paged_ask(u->g, i, 1 + n % 3)))
            continue;
        if (rg_rng_below(&random, 4)) { /* else it is given up */
            const uint8_t *data = rg_paged_wait(u->g, i);
            u->n_wrong += !data || memcmp(data, u->p->data[i], BYTES) != 0;
        }
        rg_paged_release(u->g, i);
    }
    return NULL;
}

static void many_threads_hold_at_once(void **state)
{
    enum { THREADS = 4 };
    pages p;
    user users[THREADS];
    pthread_t ids[THREADS];

    (void)state;
    make(&p, "threads");
    rg_paged *g = open_paged(&p, 5);
    for (int i = 0; i < THREADS; i++) {
        users[i] = (user){ g, &p, test_seed + (uint64_t)i, 0 };
        assert_int_equal(pthread_create(&ids[i], NULL, use_many, &users[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(ids[i], NULL);
        assert_int_equal(users[i].n_wrong, 0);
    }
    rg_paged_free(g);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_are_counted),
        cmocka_unit_test(frequent_use_counts),
        cmocka_unit_test(what_is_held_stays),
        cmocka_unit_test(memory_is_shared_out_by_size),
        cmocka_unit_test(guesses_stand_back),
        cmocka_unit_test(guesses_given_up_are_not_read),
        cmocka_unit_test(a_failed_read_is_tried_again),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(opening_fails_cleanly),
        cmocka_unit_test(many_threads_hold_at_once),
    };

    test_init(argc, argv);
    rg_log_set_level(RG_LOG_ERROR - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
