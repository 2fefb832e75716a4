/* test_profile.c -- the profile of this machine: what is measured is there, what was kept is found again and nothing
 * else, and a failure leaves nothing behind. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/model.h"
#include "support/profile.h"
#include "support/test.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "measure/op_bench.h"

static const rg_backend *backend(void)
{
    rg_error err = { 0 };
    const rg_backend *found = rg_backend_find("auto", &err);

    assert_ok(found, err);
    return found;
}

static int n_files(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    if (d)
        closedir(d);
    return n;
}

/* ---- what is kept ---- */

static void what_is_kept_is_found(void **state)
{
    const char *folder = test_profile_folder(2);
    rg_profile want, got;
    rg_error err = { 0 };

    (void)state;
    test_profile(&want, 2);
    want.rates.step_s = 0.1 / 3; /* to the last bit */
    assert_ok(rg_profile_save(&want, folder, backend(), &err), err);
    assert_true(rg_profile_load(&got, folder, backend(), 2));
    assert_memory_equal(&got, &want, sizeof got);
    got.busy = true; /* what was measured beside other work is not kept, and replaces nothing */
    got.rates.step_s = 1;
    assert_false(rg_profile_save(&got, folder, backend(), &err));
    assert_non_null(strstr(err.text, "busy"));
    assert_true(rg_profile_load(&got, folder, backend(), 2));
    assert_memory_equal(&got, &want, sizeof got);
    assert_int_equal(n_files(folder), 1);
    assert_false(rg_profile_load(&got, folder, backend(), 1));
    assert_false(rg_profile_load(&got, folder, rg_backend_nth(0), 2));
    assert_false(rg_profile_load(&got, "/nonexistent", backend(), 2));
    test_profile(&want, 1); /* several have room beside each other */
    assert_ok(rg_profile_save(&want, folder, backend(), &err), err);
    assert_int_equal(n_files(folder), 2);
    assert_true(rg_profile_load(&got, folder, backend(), 1) && rg_profile_load(&got, folder, backend(), 2));
}

static char path[512], *text;
static size_t n_text;

static void write_text(const char *with, size_t n)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(with, 1, n, f), n);
    fclose(f);
}

/* Put `with` in the place of the first `what`; whether the file is then a profile. */
static bool loads_with(const char *folder, const char *what, const char *with)
{
    char *at = strstr(text, what), *changed = calloc(1, n_text + 64);
    rg_profile got;

    assert_non_null(at);
    int n = sprintf(changed, "%.*s%s%s", (int)(at - text), text, with, at + strlen(what));
    write_text(changed, (size_t)n);
    free(changed);
    return rg_profile_load(&got, folder, backend(), 2);
}

static void other_files_are_refused(void **state)
{
    const char *folder = test_profile_folder(2);
    rg_profile got;
    rg_error err = { 0 };

    (void)state;
    assert_true(rg_profile_path(path, sizeof path, folder, backend(), 2));
    text = rg_file_slurp(path, 1 << 20, &n_text, &err);
    assert_ok(text, err);
    assert_true(loads_with(folder, "roof.read_bytes_s 20000000000\n", "roof.read_bytes_s 30000000000\n"));
    assert_false(loads_with(folder, "ridge ", "ridge 9"));
    assert_false(loads_with(folder, "processor ", "processor Another "));
    assert_false(loads_with(folder, "threads 2", "threads 3"));
    assert_false(loads_with(folder, "instructions ", "instructions x"));
    assert_false(loads_with(folder, "step_s ", "step_s -"));
    assert_false(loads_with(folder, "step_s ", "step_s nan "));
    assert_false(loads_with(folder, "step_s ", "step_s inf "));
    assert_false(loads_with(folder, "step_s ", "step_s 1 "));
    assert_false(loads_with(folder, "op.rmsnorm.", "op.another."));
    assert_false(loads_with(folder, "end\n", "end\nmore\n"));
    assert_false(loads_with(folder, "roof.read_bytes_s 20000000000\n", "roof.read_bytes_s 0\n"));
    for (size_t n = 0; n < n_text; n += n_text - n > 40 ? 37 : 1) { /* cut short anywhere */
        write_text(text, n);
        assert_false(rg_profile_load(&got, folder, backend(), 2));
    }
    write_text(text, n_text);
    assert_true(rg_profile_load(&got, folder, backend(), 2));
    rg_free(text);
}

static bool allow_some(void *arg, const char *operation)
{
    int *left = arg;

    (void)operation;
    return (*left)-- > 0;
}

/* Or, where only the last step fails, after the file got its name, the whole of it. */
static void a_failing_save_leaves_nothing(void **state)
{
    char folder[512];
    rg_profile p, got;
    rg_error err = { 0 };
    bool saved = false;
    int n_none = 0;

    (void)state;
    snprintf(folder, sizeof folder, "%s/ridge", test_scratch("profiles"));
    test_profile(&p, 2);
    for (int n = 0; !saved; n++) {
        int left = n;
        assert_in_range(n, 0, 20);
        rg_file_set_gate(allow_some, &left);
        saved = rg_profile_save(&p, folder, backend(), &err);
        rg_file_set_gate(NULL, NULL);
        assert_true(saved ? n_files(folder) == 1 : err.code == RG_E_IO);
        assert_int_equal(n_files(folder), rg_profile_load(&got, folder, backend(), 2));
        n_none += n_files(folder) == 0;
    }
    assert_true(n_none >= 4); /* folders, opening, writing, syncing */
}

/* ---- rounds ---- */

static void the_median_of_the_rounds_counts(void **state)
{
    static const double took[RG_ROUNDS][2] = { { 3, 10 }, { 4, 10 }, { 9, 11 }, { 1, 90 }, { 4, 12 } };
    static const double want[RG_ROUNDS][2] = { { 3, 10 }, { 3.5, 10 }, { 4, 10 }, { 3.5, 10.5 }, { 4, 11 } };
    static rg_rounds r;

    (void)state;
    for (int round = 0; round < RG_ROUNDS; round++) {
        rg_rounds_begin(&r);
        assert_true(rg_rounds_spread(&r) == 0);
        for (int i = 0; i < 2; i++)
            assert_true(rg_rounds_median(&r, took[round][i]) == want[round][i]);
    }
    /* Of 1 3 4 4 9 from 3 to 4, of 4; of 10 10 11 12 90 from 10 to 12, of 11. */
    assert_true(fabs(rg_rounds_spread(&r) - (1 / 4.0 + 2 / 11.0) / 2) < 1e-12);
    for (int i = 2; i < RG_ROUNDS_TIMES; i++)
        rg_rounds_median(&r, 5);
    assert_true(rg_rounds_median(&r, 7) == 7); /* there is no more room */
}

static uint64_t a_second(void *arg)
{
    (void)arg;
    return 1000000000;
}

/* The first round is never late; a later one, once it is given up, leaves what the rounds before it said. */
static void a_late_round_is_given_up(void **state)
{
    static rg_rounds r;

    (void)state;
    rg_clock_set(a_second, NULL);
    r.until_ns = 999999999;
    rg_rounds_begin(&r);
    assert_false(rg_rounds_late(&r));
    rg_rounds_median(&r, 1);
    rg_rounds_begin(&r);
    assert_true(rg_rounds_late(&r));
    r.until_ns = 1000000000;
    assert_false(rg_rounds_late(&r));
    r.until_ns = 0; /* no end */
    assert_false(rg_rounds_late(&r));
    assert_true(rg_rounds_median(&r, 3) == 2);
    rg_rounds_give_up(&r);
    rg_rounds_begin(&r);
    assert_true(rg_rounds_median(&r, 5) == 3); /* of 1 and 5 */
    rg_clock_set(NULL, NULL);
}

/* ---- measuring ---- */

static struct {
    uint64_t now_ns;
    int n_turns;
    uintptr_t last;
    int n_moved;
} played;

static uint64_t clock_of_test(void *arg)
{
    (void)arg;
    return played.now_ns;
}

/* Takes ten microseconds; every fifth time, a thousand. */
static void play(rg_fwd *f, const rg_op_bench *b)
{
    if (!rg_reader_computes(f)) /* its size is asked for */
        return;
    const bool states = b->n_blocks > b->batch_blocks;
    const uintptr_t read = states ? (uintptr_t)b->table[0] + 1 : (uintptr_t)b->weight.placed;

    played.n_moved += read && read != played.last;
    played.last = read;
    played.now_ns += ++played.n_turns % 5 ? 10000 : 1000000;
}

/* What interrupts some turns is no part of what a turn takes; matrices and states that are spread are taken in turn. */
static void a_turn_is_timed_undisturbed(void **state)
{
    rg_error err = { 0 };
    rg_op_bench *b = rg_op_bench_open(backend(), 1, &err);

    (void)state;
    assert_ok(b, err);
    rg_op_bench_batch(b, 1, 1);
    assert_ok(rg_op_bench_weights(b, RG_Q8_0, 64, 256, &err), err);
    rg_clock_set(clock_of_test, NULL);
    assert_true(fabs(rg_op_bench_seconds(b, play) - 1e-5) < 1e-12);
    assert_int_equal(played.n_moved, 1);
    assert_ok(rg_op_bench_spread(b, 1 << 20, &err), err);
    played.n_moved = played.n_turns = 0;
    rg_op_bench_seconds(b, play);
    assert_int_equal(played.n_moved, played.n_turns);
    played.n_moved = played.n_turns = 0;
    rg_op_bench_among_others(b, play); /* 16 to a turn */
    assert_true(played.n_turns > 0);
    assert_int_equal(16 * played.n_moved, played.n_turns);
    assert_ok(rg_op_bench_weights(b, RG_Q8_0, 64, 256, &err), err);
    assert_ok(rg_op_bench_streams(b, 4, 1, 4096, &err), err);
    assert_ok(rg_op_bench_spread_state(b, 1 << 20, &err), err);
    played.n_moved = played.n_turns = 0;
    rg_op_bench_seconds(b, play);
    assert_int_equal(played.n_moved, played.n_turns);
    rg_clock_set(NULL, NULL);
    rg_op_bench_close(b);
}

static bool allow_allocations(void *arg, size_t bytes)
{
    int *left = arg;

    (void)bytes;
    return (*left)-- > 0;
}

static void failures_leave_nothing(void **state)
{
    static rg_rates rates;
    static rg_rounds rounds;
    rg_roofs roofs;
    rg_error err = { 0 };
    const rg_backend *c = backend();

    (void)state;
    for (int n = 0; n < 16; n++) { /* those before the first measurement, of roofs and of rates */
        int left = n / 2;
        rg_mem_stats before = rg_mem_count();
        rg_mem_set_gate(allow_allocations, &left);
        bool ok = n % 2 ? rg_roofs_probe(&roofs, c, 1, 0, &err) : rg_rates_measure(&rates, &rounds, c, 1, &err);
        rg_mem_set_gate(NULL, NULL);
        assert_true(!ok || n % 2);
        assert_true(ok || err.code == RG_E_MEMORY);
        assert_int_equal(rg_mem_count().n_live, before.n_live);
    }
}

static int n_told;
static double told;

static void tell(void *arg, double done)
{
    (void)arg;
    assert_true(done >= told && done <= 1);
    told = done;
    n_told++;
}

/* Every rate is there.  How large it is, no test can say: only that what takes no time was not measured. */
static void everything_is_measured(void **state)
{
    static rg_profile p;
    rg_error err = { 0 };

    (void)state;
    if (TEST_SLOWER > 1)
        skip(); /* checked kernels take minutes */
    /* Without any time there is the first round alone; with enough all of them. */
    assert_ok(rg_profile_measure(&p, backend(), 1, test_all() ? 1e6 : 0, tell, NULL, &err), err);
    assert_true(n_told == (test_all() ? RG_ROUNDS : 1) + 1 && told == 1 && (test_all() || p.busy));
    assert_true(p.roofs.n_threads == 1 && p.roofs.read_bytes_s > 0 && p.roofs.f32_ops_s > 0 && p.rates.step_s > 0);
    for (int i = 0; i < RG_RATE_SETS; i++)
        assert_true(p.rates.set_bytes_s[i] > 0 && p.rates.set_bytes_s[i] <= p.rates.set_bytes_s[i ? i - 1 : 0]);
    for (int exact = 0; exact < 2; exact++)
        for (int l = RG_LAYOUT_NONE + 1; l < RG_LAYOUT_COUNT; l++)
            for (int place = 0; place < RG_RATE_PLACES; place++)
                for (int i = 0; i < RG_RATE_ROWS; i++)
                    assert_true(p.rates.product[exact][l].value_s[place][i] > 0);
    for (int i = 0; rg_rate_kv_type(i / 2) < RG_TYPE_COUNT; i++)
        for (int n = 0; n < RG_RATE_QUERIES; n++) {
            const rg_attention_rate *a = &p.rates.attention[i % 2][rg_rate_kv_type(i / 2)];
            assert_true(a->pair_s[n] + 128 * a->column_s[n] > 0 && a->far_pair_s[n] + 128 * a->far_column_s[n] > 0);
        }
    for (int k = 0; k < RG_OP_COUNT; k++)
        assert_true(p.rates.fixed_s[k] > 0 && p.rates.cell_s[k] >= 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_kept_is_found),       cmocka_unit_test(other_files_are_refused),
        cmocka_unit_test(a_failing_save_leaves_nothing), cmocka_unit_test(the_median_of_the_rounds_counts),
        cmocka_unit_test(a_late_round_is_given_up),
        cmocka_unit_test(a_turn_is_timed_undisturbed), cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(everything_is_measured),
    };

    test_init(argc, argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
