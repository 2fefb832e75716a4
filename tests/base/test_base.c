/* Tests of errors, memory, buffers, files, the generator, the hashes and the dictionary. */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"

static char dir[256];

static const char *in_dir(const char *name)
{
    static char path[4][512];
    static int turn;
    char *out = path[turn++ % 4];

    snprintf(out, sizeof path[0], "%s/%s", dir, name);
    return out;
}

static void errors_name_and_prefix(void **state)
{
    rg_error err;
    char deep[sizeof err.text + 100];

    (void)state;
    assert_false(rg_fail(&err, RG_E_INPUT, "bad %d", 7));
    assert_false(rg_fail_prefix(&err, "file %s", "x"));
    assert_string_equal(err.text, "file x: bad 7");
    assert_int_equal(err.code, RG_E_INPUT);
    memset(deep, 'p', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    rg_fail_prefix(&err, "%s", deep);
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_false(rg_fail(NULL, RG_E_IO, "nobody asked"));
    assert_false(rg_fail_prefix(NULL, "nobody asked"));
}

static void sizes_are_checked(void **state)
{
    size_t out = 0;
    void *p = rg_resize_array(NULL, 3, 8);

    (void)state;
    for (size_t n = 0; n < 40; n++) {
        assert_true(rg_round_up(n, 8, &out));
        assert_true(out >= n && out < n + 8 && out % 8 == 0);
    }
    assert_true(rg_round_up(SIZE_MAX - 7, 8, &out) && out == SIZE_MAX - 7);
    assert_false(rg_round_up(SIZE_MAX - 6, 8, &out));
    assert_false(rg_round_up(SIZE_MAX, 8, &out));
    assert_true(rg_head_and_items(5, 3, 4, &out) && out == 17);
    assert_false(rg_head_and_items(1, SIZE_MAX / 4 + 1, 4, &out));
    assert_false(rg_head_and_items(SIZE_MAX - 3, 1, 4, &out));
    assert_null(rg_array(SIZE_MAX / 4 + 2, 4));
    assert_null(rg_alloc_tail(1, SIZE_MAX / 4 + 1, 4));
    assert_null(rg_zalloc_tail(64, SIZE_MAX - 63, 1));
    assert_non_null(p);
    assert_null(rg_resize_array(p, SIZE_MAX / 8 + 2, 8)); /* and p is as it was */
    rg_free(p);
}

static bool refuse(void *arg, size_t bytes)
{
    (void)bytes;
    return (*(int *)arg)-- != 0;
}

static void memory_is_aligned_counted_and_gated(void **state)
{
    rg_mem_stats before = rg_mem_count(), now;
    int left = 1;
    char *a, *b, *s, *r;

    (void)state;
    a = rg_alloc(0);
    b = rg_array(3, 5);
    assert_non_null(a);
    assert_int_equal((uintptr_t)a % RG_ALIGN, 0);
    assert_int_equal((uintptr_t)b % RG_ALIGN, 0);
    for (int i = 0; i < 15; i++)
        assert_int_equal(b[i], 0);
    memcpy(b, "hello", 6);
    b = rg_resize(b, 4000);
    assert_string_equal(b, "hello");
    now = rg_mem_count();
    assert_int_equal(now.n_live - before.n_live, 2);
    assert_int_equal(now.live_bytes - before.live_bytes, 4000);
    assert_null(rg_array(SIZE_MAX / 2, 3));
    assert_null(rg_alloc(SIZE_MAX));
    rg_mem_set_gate(refuse, &left);
    s = rg_strdup("kept");
    assert_string_equal(s, "kept");
    assert_null(rg_resize(s, 100));
    left = 0;
    assert_null(rg_region_new(4096));
    rg_mem_set_gate(NULL, NULL);
    assert_string_equal(s, "kept");
    r = rg_region_new((size_t)3 << 20);
    assert_int_equal(r[((size_t)3 << 20) - 1], 0);
    assert_int_equal(rg_mem_count().n_live - before.n_live, 4);
    rg_region_free(r, (size_t)3 << 20);
    rg_free(a);
    rg_free(b);
    rg_free(s);
    rg_free(NULL);
    assert_int_equal(rg_mem_count().n_live, before.n_live);
    assert_int_equal(rg_mem_count().live_bytes, before.live_bytes);
}

static const size_t region_bytes[] = { 100, 0, 4096, 70000, 1 << 20, 3000000, (32 << 20) + 1, 5 << 20, 1, 32 << 20 };

/* Pieces are zero and do not overlap, whatever was freed before; the memory of a freed one is zero again. */
static void small_regions_share_pages(void **state)
{
    enum { N = 60 };
    rg_mem_stats before = rg_mem_count();
    rg_rng rng = { .seed = 7 };
    uint8_t *p[N] = { NULL };
    int left = 0;

    (void)state;
    uint8_t *a = rg_shared_region_new(5000), *b = rg_shared_region_new(5000);
    assert_true(b - a >= 5000 && b - a <= 5000 + 65536);
    assert_int_equal(rg_mem_count().live_bytes - before.live_bytes, 10000);
    for (int i = 0; i < 20 * N; i++) {
        int k = (int)rg_rng_below(&rng, N);
        size_t n = region_bytes[k % RG_LEN(region_bytes)];
        if (p[k]) {
            for (size_t at = 0; at < n; at += 4000)
                assert_int_equal(p[k][at], k + 1);
            assert_true(!n || p[k][n - 1] == k + 1);
            rg_shared_region_free(p[k], n);
            p[k] = NULL;
            continue;
        }
        p[k] = rg_shared_region_new(n);
        assert_true(p[k] && (uintptr_t)p[k] % RG_ALIGN == 0);
        for (size_t at = 0; at < n; at += 4000)
            assert_int_equal(p[k][at], 0);
        assert_true(!n || p[k][n - 1] == 0);
        for (size_t at = 0; at < n; at += 4000)
            p[k][at] = (uint8_t)(k + 1);
        if (n)
            p[k][n - 1] = (uint8_t)(k + 1);
    }
    rg_mem_set_gate(refuse, &left);
    assert_null(rg_shared_region_new(100));
    left = 0;
    assert_null(rg_shared_region_new(33 << 20));
    rg_mem_set_gate(NULL, NULL);
    for (int k = 0; k < N; k++)
        rg_shared_region_free(p[k], region_bytes[k % RG_LEN(region_bytes)]);
    rg_shared_region_free(a, 5000);
    rg_shared_region_free(b, 5000);
    assert_int_equal(rg_mem_count().n_live, before.n_live);
    assert_int_equal(rg_mem_count().live_bytes, before.live_bytes);
}

static void buffer_stops_at_its_cap(void **state)
{
    rg_buf b;

    (void)state;
    rg_buf_init(&b, 100);
    for (int i = 0; i < 10; i++)
        assert_true(rg_buf_printf(&b, "%09d.", i));
    assert_int_equal(b.n, 100);
    assert_false(rg_buf_str(&b, "x"));
    assert_true(b.failed);
    assert_false(rg_buf_add(&b, "", 0));
    assert_int_equal(strlen(b.data), 100);
    rg_buf_reset(&b);
    assert_true(rg_buf_str(&b, "again"));
    assert_string_equal(b.data, "again");
    assert_false(rg_buf_add(&b, "", SIZE_MAX));
    rg_buf_fini(&b);
}

static void files_are_read_exactly(void **state)
{
    rg_error err;
    rg_file *f;
    char got[8];
    size_t n;
    char *text;
    FILE *out = fopen(in_dir("ten"), "w");

    (void)state;
    fputs("0123456789", out);
    fclose(out);
    f = rg_file_open(in_dir("ten"), &err);
    assert_ok(f, err);
    assert_int_equal(rg_file_size(f), 10);
    assert_ok(rg_file_read(f, 4, got, 6, &err), err);
    assert_memory_equal(got, "456789", 6);
    assert_false(rg_file_read(f, 5, got, 6, &err));
    assert_int_equal(err.code, RG_E_IO);
    assert_false(rg_file_read(f, UINT64_MAX, got, 6, &err));
    rg_file_close(f);
    text = rg_file_slurp(in_dir("ten"), 10, &n, &err);
    assert_ok(text, err);
    assert_string_equal(text, "0123456789");
    rg_free(text);
    assert_null(rg_file_slurp(in_dir("ten"), 9, &n, &err));
    text = rg_file_slurp("/proc/self/status", 1 << 20, &n, &err);
    assert_ok(text && n > 0, err);
    rg_free(text);
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    assert_null(rg_file_open(in_dir("fifo"), &err));
    assert_null(rg_file_open(dir, &err));
    assert_null(rg_file_open("/dev/zero", &err));
    assert_null(rg_file_open(in_dir("none"), &err));
    assert_int_equal(rg_path_look(dir), RG_PATH_DIR);
    assert_int_equal(rg_path_look(in_dir("fifo")), RG_PATH_OTHER);
    assert_int_equal(rg_path_look(in_dir("none")), RG_PATH_NONE);
}

/* Reads past the system's cache are of the file that was opened, whatever has its name by then. */
static void a_file_stays_the_one_that_was_opened(void **state)
{
    static const char *const names[] = { "first", "second" };
    char path[2][600];
    rg_error err = { 0 };
    char *page = rg_alloc(RG_DIRECT); /* aligned or not: both kinds of reads */

    (void)state;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s", in_dir(names[i]));
        rg_writer *w = rg_writer_open(path[i], &err);
        assert_ok(w, err);
        for (int k = 0; k < 2 * RG_DIRECT; k++)
            assert_true(rg_writer_write(w, i ? "2" : "1", 1, &err));
        assert_ok(rg_writer_commit(w, &err), err);
    }
    rg_file *f = rg_file_open(path[0], &err);
    assert_ok(f, err);
    assert_int_equal(rename(path[1], path[0]), 0);
    rg_file_go_direct(f);
    for (uint64_t at = 0; at <= RG_DIRECT; at += RG_DIRECT / 2) {
        assert_ok(rg_file_read(f, at, page, RG_DIRECT, &err), err);
        for (int k = 0; k < RG_DIRECT; k++)
            assert_int_equal(page[k], '1');
    }
    rg_file_close(f);
    assert_true(rg_path_remove(path[0]));
    rg_free(page);
}

static void paths_stay_inside(void **state)
{
    static const char *const bad[] = { "", "/etc/passwd", "..", "../x", "a/../b", "a/.." };
    char out[16];

    (void)state;
    for (size_t i = 0; i < RG_LEN(bad); i++)
        assert_false(rg_path_join(out, sizeof out, "d", bad[i]));
    assert_true(rg_path_join(out, sizeof out, "d", "..x"));
    assert_string_equal(out, "d/..x");
    assert_true(rg_path_join(out, sizeof out, "d/", "a/b"));
    assert_string_equal(out, "d/a/b");
    assert_false(rg_path_join(out, sizeof out, "d", "0123456789abcdef"));
}

static bool refuse_operation(void *arg, const char *operation)
{
    return strcmp(arg, operation) != 0;
}

static void writers_are_whole_or_absent(void **state)
{
    static char *const operations[] = { "open", "write", "sync", "rename" };
    size_t n_live = rg_mem_count().n_live, n;
    static char big[200000];
    rg_error err;
    rg_writer *w;
    char *text;

    (void)state;
    memset(big, 'b', sizeof big);
    for (size_t i = 0; i < RG_LEN(operations); i++) {
        bool ok;
        rg_file_set_gate(refuse_operation, operations[i]);
        w = rg_writer_open(in_dir("out"), &err);
        ok = w && rg_writer_write(w, "x", 1, &err) && rg_writer_write(w, big, sizeof big, &err);
        if (!ok)
            rg_writer_abort(w);
        else
            assert_false(rg_writer_commit(w, &err));
        rg_file_set_gate(NULL, NULL);
        assert_int_equal(err.code, RG_E_IO);
        assert_int_equal(rg_path_look(in_dir("out")), RG_PATH_NONE);
    }
    w = rg_writer_open(in_dir("out"), &err);
    assert_ok(w, err);
    assert_ok(rg_writer_write(w, "x", 1, &err), err);
    assert_ok(rg_writer_write(w, big, sizeof big, &err), err);
    assert_int_equal(rg_writer_tell(w), sizeof big + 1);
    assert_ok(rg_writer_commit(w, &err), err);
    text = rg_file_slurp(in_dir("out"), sizeof big + 1, &n, &err);
    assert_ok(text && n == sizeof big + 1 && text[0] == 'x' && text[n - 1] == 'b', err);
    rg_free(text);
    assert_null(rg_writer_open(dir, &err));
    assert_int_equal(rg_mem_count().n_live, n_live);
}

/* Known answers published with the paper's code (Random123's kat_vectors). */
static void philox_gives_its_known_answers(void **state)
{
    static const uint32_t in[3][6] = {
        { 0 },
        { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
        { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0 },
    };
    static const uint32_t want[3][4] = {
        { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 },
        { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd },
        { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 },
    };
    uint32_t out[4];

    (void)state;
    for (int i = 0; i < 3; i++) {
        rg_philox(in[i], in[i] + 4, out);
        assert_memory_equal(out, want[i], sizeof out);
    }
}

static void streams_are_reproducible_and_even(void **state)
{
    rg_rng a = { .seed = 5 }, b = { .seed = 5 };
    int count[7] = { 0 };
    double sum = 0, squares = 0;

    (void)state;
    for (int i = 0; i < 70000; i++) {
        float u;
        assert_int_equal(rg_rng_u64(&a), rg_rng_u64(&b));
        count[rg_rng_below(&a, 7)]++;
        u = rg_rng_unit(&a);
        assert_true(u >= 0.0f && u < 1.0f);
        b = a;
    }
    for (int i = 0; i < 7; i++)
        assert_in_range(count[i], 9500, 10500);
    for (int i = 0; i < 40000; i++) {
        double x = (double)rg_rng_normal(&a);
        sum += x;
        squares += x * x;
    }
    assert_true(sum / 40000 < 0.03 && sum / 40000 > -0.03);
    assert_true(squares / 40000 < 1.05 && squares / 40000 > 0.95);
}

static void hashes_give_their_known_answers(void **state)
{
    rg_hasher *h = rg_hasher_new();

    (void)state;
    assert_int_equal(rg_xxh64("", 0, 0), 0xef46db3751d8e999u);
    assert_int_equal(rg_xxh64("a", 1, 0), 0xd24ec4f1a98c6e5bu);
    assert_int_equal(rg_hash("", 0, 0), 0x2d06800538d394c2u);
    rg_hasher_add(h, "ab", 2);
    rg_hasher_add(h, NULL, 0);
    rg_hasher_add(h, "c", 1);
    assert_int_equal(rg_hasher_value(h), rg_xxh64("abc", 3, 0));
    rg_hasher_free(h);
}

static void dictionary_finds_what_was_put(void **state)
{
    enum { N = 5000 };
    static char keys[N][8];
    rg_dict *d = rg_dict_new(0);

    (void)state;
    for (int i = 0; i < N; i++) {
        snprintf(keys[i], sizeof keys[i], "k%d", i);
        assert_true(rg_dict_put(d, keys[i], strlen(keys[i]), i));
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(rg_dict_get(d, keys[i], strlen(keys[i])), i);
    assert_int_equal(rg_dict_get(d, "k", 1), -1);
    assert_int_equal(rg_dict_get(d, "", 0), -1);
    assert_true(rg_dict_put(d, "", 0, 9));
    assert_int_equal(rg_dict_get(d, "", 0), 9);
    assert_true(rg_dict_put(d, "k7", 2, 1));
    assert_int_equal(rg_dict_get(d, "k7", 2), 1);
    rg_dict_free(d);
}

static uint64_t fixed(void *arg)
{
    return *(uint64_t *)arg;
}

static void seams_replace_the_clock_and_the_seed(void **state)
{
    uint64_t value = 42000000000u, t = rg_now_ns();

    (void)state;
    assert_true(rg_now_ns() >= t);
    rg_clock_set(fixed, &value);
    rg_seed_set(fixed, &value);
    assert_int_equal(rg_now_ns(), value);
    assert_int_equal(rg_wall_s(), 42);
    assert_int_equal(rg_seed(), value);
    rg_clock_set(NULL, NULL);
    rg_seed_set(NULL, NULL);
    assert_true(rg_seed() != rg_seed());
    assert_true(rg_seconds(1000000000u, 3000000000u) == 2.0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_and_prefix),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(memory_is_aligned_counted_and_gated),
        cmocka_unit_test(small_regions_share_pages),
        cmocka_unit_test(buffer_stops_at_its_cap),
        cmocka_unit_test(files_are_read_exactly),
        cmocka_unit_test(a_file_stays_the_one_that_was_opened),
        cmocka_unit_test(paths_stay_inside),
        cmocka_unit_test(writers_are_whole_or_absent),
        cmocka_unit_test(philox_gives_its_known_answers),
        cmocka_unit_test(streams_are_reproducible_and_even),
        cmocka_unit_test(hashes_give_their_known_answers),
        cmocka_unit_test(dictionary_finds_what_was_put),
        cmocka_unit_test(seams_replace_the_clock_and_the_seed),
    };
    int failed;

    test_init(argc, argv);
    snprintf(dir, sizeof dir, "/tmp/ridge-base-XXXXXX");
    if (!mkdtemp(dir))
        return 1;
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(in_dir("ten"));
    unlink(in_dir("fifo"));
    unlink(in_dir("out"));
    /* A directory that is not empty holds a temporary file that a writer forgot. */
    return failed || rmdir(dir) ? 1 : 0;
}
