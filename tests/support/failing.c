/* failing.c -- see failing.h. */
#define _GNU_SOURCE
#include "support/failing.h"

#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"

/* ---- the countdown ------------------------------------------------------------------------------------------------ */

static atomic_long left, asked;
static atomic_bool failed_one, counts_calls;

static bool allow(void)
{
    atomic_fetch_add(&asked, 1);
    if (atomic_fetch_sub(&left, 1) != 0)
        return true;
    atomic_store(&failed_one, true);
    return false;
}

static bool allow_bytes(void *arg, size_t bytes)
{
    (void)arg, (void)bytes;
    return allow();
}

bool test_system_call_allowed(int code)
{
    if (!atomic_load(&counts_calls) || allow())
        return true;
    errno = code;
    return false;
}

void test_arm(test_operations kind, long n)
{
    atomic_store(&left, n);
    atomic_store(&asked, 0);
    atomic_store(&failed_one, false);
    if (kind == TEST_ALLOCATIONS)
        rg_mem_set_gate(allow_bytes, NULL);
    else
        atomic_store(&counts_calls, true);
}

long test_disarm(bool *failed)
{
    rg_mem_set_gate(NULL, NULL);
    atomic_store(&counts_calls, false);
    if (failed)
        *failed = atomic_load(&failed_one);
    return atomic_load(&asked);
}

/* ---- what lies in a folder ---------------------------------------------------------------------------------------- */

enum { MOST_FILES = 64, MOST_BYTES = 64 << 20 };

typedef struct files {
    struct {
        char path[512];
        uint64_t hash;
    } at[MOST_FILES];
    int n;
} files;

static files *listed; /* nftw has no argument */

static int list_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    rg_error err = { 0 };
    size_t n;

    (void)st, (void)at;
    if (kind != FTW_F || strstr(path, ".work")) /* a run that was stopped goes on from there */
        return 0;
    char *data = rg_file_slurp(path, MOST_BYTES, &n, &err);
    assert_ok(data, err);
    assert_true(listed->n < MOST_FILES);
    snprintf(listed->at[listed->n].path, sizeof listed->at[0].path, "%s", path);
    listed->at[listed->n++].hash = rg_hash(data, n, 1);
    rg_free(data);
    return 0;
}

static void list_files(const char *folder, files *f)
{
    f->n = 0;
    listed = f;
    nftw(folder, list_one, 16, FTW_PHYS);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind;
    return at->level ? remove(path) : 0;
}

static void clear_folder(const char *folder)
{
    nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Each file is one that the whole job writes, with the same bytes. */
static void assert_whole(const test_job *job, long n, const files *got, const files *want)
{
    for (int i = 0; i < got->n; i++) {
        int k = 0;
        while (k < want->n && strcmp(got->at[i].path, want->at[k].path))
            k++;
        if (k == want->n)
            fail_msg("%s: operation %ld failed and left %s", job->name, n, got->at[i].path);
        if (got->at[i].hash != want->at[k].hash)
            fail_msg("%s: operation %ld failed, and %s is not what it should be", job->name, n, got->at[i].path);
    }
}

static int count_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* ---- each in turn ------------------------------------------------------------------------------------------------- */

typedef struct level {
    size_t n_live, live_bytes;
    int n_descriptors;
} level;

static level level_now(void)
{
    const rg_mem_stats m = rg_mem_count();

    return (level){ m.n_live, m.live_bytes, count_descriptors() };
}

static void assert_level(const test_job *job, long n, const level *want)
{
    const level got = level_now();

    if (got.n_live != want->n_live || got.live_bytes != want->live_bytes || got.n_descriptors != want->n_descriptors)
        fail_msg("%s: operation %ld failed, and %zd allocations of %zd bytes and %d descriptors are left", job->name, n,
                 (ssize_t)(got.n_live - want->n_live), (ssize_t)(got.live_bytes - want->live_bytes),
                 got.n_descriptors - want->n_descriptors);
}

static void assert_told(const test_job *job, test_operations kind, long n, const rg_error *err)
{
    const bool fits = err->code == RG_E_MEMORY || (kind == TEST_SYSTEM_CALLS && err->code == RG_E_IO);

    if (!err->text[0] || !fits)
        fail_msg("%s: %s %ld failed, and the error is %d, '%s'", job->name,
                 kind == TEST_ALLOCATIONS ? "allocation" : "system call", n, err->code, err->text);
}

void test_each_fails(const test_job *job, test_operations kind)
{
    static files want, got;
    const char *folder = test_scratch("failing");
    rg_error err = { 0 };
    long n_failed = 0, n_tried = 0;

    assert_ok(rg_dir_make(folder, &err), err);
    for (int i = 0; i < 2; i++) { /* what is made once is made by the first */
        clear_folder(folder);
        test_arm(kind, -1);
        assert_ok(job->run(job->arg, folder, &err), err);
        test_disarm(NULL);
    }
    list_files(folder, &want);
    const level before = level_now();
    clear_folder(folder);
    test_arm(kind, -1);
    assert_ok(job->run(job->arg, folder, &err), err);
    const long n_all = test_disarm(NULL), most = test_scale(job->most);
    const long stride = test_all() || n_all <= most ? 1 : (n_all + most - 1) / most;

    for (long n = stride > 1 ? (long)(test_seed % (uint64_t)stride) : 0;; n += stride) {
        bool failed;

        clear_folder(folder);
        err = (rg_error){ 0 };
        test_arm(kind, n);
        const bool ok = job->run(job->arg, folder, &err);
        test_disarm(&failed);
        assert_level(job, n, &before);
        list_files(folder, &got);
        assert_whole(job, n, &got, &want);
        if (!failed)
            break;
        n_tried++;
        if (!ok) {
            n_failed++;
            assert_told(job, kind, n, &err);
        } else if (got.n != want.n) {
            fail_msg("%s: operation %ld failed, nobody was told, and %d of %d files are there", job->name, n, got.n,
                     want.n);
        }
        if (n_tried % 8 && !test_all())
            continue;
        err = (rg_error){ 0 };
        assert_ok(job->run(job->arg, folder, &err), err);
        list_files(folder, &got);
        assert_whole(job, n, &got, &want);
        assert_int_equal(got.n, want.n);
        assert_level(job, n, &before);
    }
    clear_folder(folder);
    print_message("%s: %ld of %ld %s failed, %ld were told\n", job->name, n_tried, n_all,
                  kind == TEST_ALLOCATIONS ? "allocations" : "system calls", n_failed);
    assert_true(n_failed > 0 && n_failed * 4 > n_tried * (kind == TEST_ALLOCATIONS));
}
