/* test_store.c -- the store of files and batches: killed, out of room and out of memory at every point it has. */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/mem.h"
#include "server/batch/store.h"
#include "support/test.h"

/* ---- a file system that fails when it is told to, and that can be photographed ------------------------------------- */

typedef struct shim_file {
    sqlite3_file base;
    sqlite3_file *real;
} shim_file;

static struct shim {
    sqlite3_vfs vfs, *real;
    int n_writes, n_syncs;           /* so far */
    int fail_write, fail_sync, code; /* from the n-th on; 0: never */
    void (*before_write)(const void *p, int n, sqlite3_int64 at, const char *path);
    char path[1024]; /* of the file being written to */
} shim;

static int real_of(sqlite3_file *f, sqlite3_file **real)
{
    *real = ((shim_file *)(void *)f)->real;
    return SQLITE_OK;
}

#define REAL(f) (real_of(f, &real), real)

static int shim_close(sqlite3_file *f)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xClose(real);
}

static int shim_read(sqlite3_file *f, void *p, int n, sqlite3_int64 at)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xRead(real, p, n, at);
}

static int shim_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    sqlite3_file *real;

    shim.n_writes++;
    if (shim.fail_write && shim.n_writes >= shim.fail_write) {
        if (n > 1) /* the disk takes a part of it */
            REAL(f)->pMethods->xWrite(REAL(f), p, n / 2, at);
        return shim.code;
    }
    if (shim.before_write)
        shim.before_write(p, n, at, NULL);
    return REAL(f)->pMethods->xWrite(real, p, n, at);
}

static int shim_truncate(sqlite3_file *f, sqlite3_int64 n)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xTruncate(real, n);
}

static int shim_sync(sqlite3_file *f, int flags)
{
    sqlite3_file *real;

    shim.n_syncs++;
    if (shim.fail_sync && shim.n_syncs >= shim.fail_sync)
        return SQLITE_IOERR_FSYNC;
    (void)flags, (void)f, (void)real; /* nobody pulls the plug here: what was written stays */
    return SQLITE_OK;
}

static int shim_size(sqlite3_file *f, sqlite3_int64 *n)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xFileSize(real, n);
}

static int shim_lock(sqlite3_file *f, int how)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xLock(real, how);
}

static int shim_unlock(sqlite3_file *f, int how)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xUnlock(real, how);
}

static int shim_reserved(sqlite3_file *f, int *out)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xCheckReservedLock(real, out);
}

static int shim_control(sqlite3_file *f, int what, void *arg)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xFileControl(real, what, arg);
}

static int shim_sector(sqlite3_file *f)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xSectorSize(real);
}

static int shim_traits(sqlite3_file *f)
{
    sqlite3_file *real;
    return REAL(f)->pMethods->xDeviceCharacteristics(real);
}

static int shim_open(sqlite3_vfs *v, const char *name, sqlite3_file *f, int flags, int *out)
{
    static const sqlite3_io_methods methods = {
        1,         shim_close,  shim_read,     shim_write,   shim_truncate, shim_sync,  shim_size,
        shim_lock, shim_unlock, shim_reserved, shim_control, shim_sector,   shim_traits
    };
    shim_file *s = (shim_file *)(void *)f;

    (void)v;
    s->real = (sqlite3_file *)(void *)(s + 1);
    int code = shim.real->xOpen(shim.real, name, s->real, flags, out);
    f->pMethods = s->real->pMethods ? &methods : NULL;
    return code;
}

static void shim_install(void)
{
    shim.real = sqlite3_vfs_find(NULL);
    shim.vfs = *shim.real;
    shim.vfs.zName = "shim";
    shim.vfs.xOpen = shim_open;
    shim.vfs.szOsFile = (int)sizeof(shim_file) + shim.real->szOsFile;
    assert_int_equal(sqlite3_vfs_register(&shim.vfs, 1), SQLITE_OK);
}

static void shim_calm(void)
{
    shim.fail_write = shim.fail_sync = shim.n_writes = shim.n_syncs = 0;
    shim.before_write = NULL;
}

/* ---- folders ----------------------------------------------------------------------------------------------------- */

static char *new_folder(void)
{
    static char path[64];

    snprintf(path, sizeof path, "/tmp/ridge-store-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

static void copy_file(const char *from, const char *to)
{
    static char block[1 << 16];
    FILE *in = fopen(from, "rb"), *out = in ? fopen(to, "wb") : NULL;
    size_t n;

    if (!in) {
        unlink(to);
        return;
    }
    assert_non_null(out);
    while ((n = fread(block, 1, sizeof block, in)) > 0)
        assert_int_equal(fwrite(block, 1, n, out), n);
    fclose(in);
    fclose(out);
}

static void remove_folder(const char *dir)
{
    static const char *const names[] = { "batches.db", "batches.db-wal", "batches.db-shm", "batches.db-journal" };
    char path[128];

    for (size_t i = 0; i < RG_LEN(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

static rg_batch_store *open_store(const char *dir)
{
    rg_error err = { 0 };
    rg_batch_store *st = rg_store_open(dir, &err);

    assert_ok(st, err);
    return st;
}

/* ---- a story: things that are done to a store, one transaction each ------------------------------------------------- */

static const char input[] = "one\ntwo two\nthree\nfour\nfive\n";

typedef struct story {
    rg_batch_store *st;
    char small[RG_ID_ROOM], large[RG_ID_ROOM];
    rg_batch_record batch[4];
} story;

static rg_stored add_small(story *s, rg_error *err)
{
    rg_file_record f = { .name = "../../etc/\0passwd", .n_name = 17, .purpose = "batch" };
    rg_stored got = rg_store_add_file(s->st, "me", &f, input, strlen(input), err);

    if (got == RG_STORE_DONE)
        memcpy(s->small, f.id, sizeof f.id);
    return got;
}

static rg_stored add_large(story *s, rg_error *err)
{
    static char data[700001];
    rg_file_record f = { .name = "large", .n_name = 5, .purpose = "batch" };

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 31 >> 3);
    rg_stored got = rg_store_add_file(s->st, "me", &f, data, sizeof data, err);
    if (got == RG_STORE_DONE)
        memcpy(s->large, f.id, sizeof f.id);
    return got;
}

static rg_stored add_batch(story *s, int i, rg_error *err)
{
    rg_batch_record b = { .owner = "me", .endpoint = "/v1/completions", .metadata = "{\"a\":\"b\"}" };

    memcpy(b.input_id, s->small, sizeof b.input_id);
    rg_stored got = rg_store_add_batch(s->st, &b, "batch", 1000, err);
    if (got == RG_STORE_DONE)
        s->batch[i] = b;
    return got;
}

static rg_stored start_batch(story *s, int i, rg_error *err)
{
    int64_t from = 0;

    if (!rg_store_begin(s->st, err))
        return RG_STORE_FAILED;
    for (int k = 0; k < 5; k++) {
        char id[] = { 'l', (char)('0' + k), 0 };
        rg_line l = {
            .number = k + 1, .from = from, .n = strcspn(input + from, "\n"), .custom_id = id, .n_custom_id = 2
        };
        from += l.n + 1;
        if (rg_store_add_line(s->st, s->batch[i].key, &l, err) != RG_STORE_DONE) {
            rg_store_rollback(s->st);
            return RG_STORE_FAILED;
        }
    }
    if (rg_store_start_batch(s->st, s->batch[i].key, 5, err) != RG_STORE_DONE) {
        rg_store_rollback(s->st);
        return RG_STORE_FAILED;
    }
    return rg_store_commit(s->st, err) ? RG_STORE_DONE : RG_STORE_FAILED;
}

static rg_stored answer(story *s, int i, int number, rg_error *err)
{
    char text[64];

    snprintf(text, sizeof text, "answer %d of %d\n", number, i);
    return rg_store_set_answer(s->st, s->batch[i].key, number, number == 3 ? RG_LINE_FAILED : RG_LINE_COMPLETED, text,
                               strlen(text), err);
}

static rg_stored remove_output(story *s, rg_error *err)
{
    rg_batch_record b;
    rg_stored got = rg_store_batch(s->st, "me", s->batch[0].id, &b, err);

    rg_store_rest(s->st);
    return got == RG_STORE_DONE ? rg_store_remove_file(s->st, "me", b.output_id, err) : got;
}

enum { N_STEPS = 21 };

static rg_stored step(story *s, int i, rg_error *err)
{
    switch (i) {
    case 0:
        return add_small(s, err);
    case 1:
        return add_large(s, err);
    case 2:
        return add_batch(s, 0, err);
    case 3:
        return start_batch(s, 0, err);
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        return answer(s, 0, i - 3, err);
    case 9:
        return rg_store_end_batch(s->st, s->batch[0].key, RG_BATCH_COMPLETED, err);
    case 10:
        return add_batch(s, 1, err);
    case 11:
        return rg_store_fail_batch(s->st, s->batch[1].key, "{}", err);
    case 12:
        return add_batch(s, 2, err);
    case 13:
        return start_batch(s, 2, err);
    case 14:
        return answer(s, 2, 4, err);
    case 15:
        return rg_store_cancel_batch(s->st, s->batch[2].key, err);
    case 16:
        return rg_store_end_batch(s->st, s->batch[2].key, RG_BATCH_CANCELLED, err);
    case 17:
        return remove_output(s, err);
    case 18:
        return rg_store_remove_file(s->st, "me", s->large, err);
    case 19:
        return add_batch(s, 3, err);
    default:
        return start_batch(s, 3, err);
    }
}

/* ---- all that a store says, as one number -------------------------------------------------------------------------- */

typedef struct digest {
    rg_batch_store *st;
    rg_buf text;
    rg_file_record files[32];
    rg_batch_record batches[32];
    int n_files, n_batches;
} digest;

static void see_file(void *arg, const rg_file_record *f)
{
    digest *d = arg;

    rg_buf_printf(&d->text, "F %s %lld %s %d ", f->id, (long long)f->bytes, f->purpose, (int)f->part);
    rg_buf_add(&d->text, f->name, f->n_name);
    d->files[d->n_files++] = *f;
}

static void see_batch(void *arg, const rg_batch_record *b)
{
    digest *d = arg;

    rg_buf_printf(&d->text, "B %s %d %s %s %s %s %s %lld %lld %lld", b->id, (int)b->state, b->endpoint,
                  b->metadata ? b->metadata : "-", b->errors ? b->errors : "-", b->output_id, b->error_id,
                  (long long)b->n_lines, (long long)b->n_completed, (long long)b->n_failed);
    d->batches[d->n_batches++] = *b;
}

static uint64_t look(rg_batch_store *st)
{
    digest d = { .st = st };
    rg_page page = { .limit = 32, .rising = true };
    rg_error err = { 0 };

    rg_buf_init(&d.text, 1 << 26);
    assert_ok(rg_store_files(st, "me", &page, see_file, &d, &err) == RG_STORE_DONE, err);
    assert_ok(rg_store_batches(st, "me", &page, see_batch, &d, &err) == RG_STORE_DONE, err);
    for (int i = 0; i < d.n_files; i++) {
        int64_t at = 0;
        size_t before = d.text.n;
        rg_stored got;
        while ((got = rg_store_read(st, &d.files[i], &at, &d.text, &err)) == RG_STORE_DONE)
            ;
        assert_ok(got == RG_STORE_NONE, err);
        assert_int_equal(d.text.n - before, d.files[i].bytes); /* a file is whole */
    }
    for (int i = 0; i < d.n_batches; i++) {
        int64_t n = 0;
        rg_line l = { 0 };
        while (rg_store_next_line(st, d.batches[i].key, l.number, &l, &err) == RG_STORE_DONE) {
            rg_buf_printf(&d.text, "L %lld %.*s", (long long)l.number, (int)l.n_custom_id, l.custom_id);
            n++;
        }
        const rg_batch_record *b = &d.batches[i];
        if (b->state == RG_BATCH_IN_PROGRESS) /* what is not answered is pending */
            assert_int_equal(n + b->n_completed + b->n_failed, b->n_lines);
    }
    rg_store_rest(st);
    assert_false(d.text.failed);
    uint64_t hash = rg_hash(d.text.data ? d.text.data : "", d.text.n, 0);
    rg_buf_fini(&d.text);
    return hash;
}

/* ---- killed ------------------------------------------------------------------------------------------------------ */

enum { MAX_SHOTS = 400 };

static struct camera {
    const char *dir;
    char shots[64];
    int n_shots, n_seen, n_done;
    int done[MAX_SHOTS]; /* steps that had been confirmed by then */
} camera;

/* What a kill before this write would leave. */
static void shoot(const void *p, int n, sqlite3_int64 at, const char *path)
{
    char from[128], to[128];

    (void)p, (void)n, (void)at, (void)path;
    if (camera.n_seen++ >= 120 && camera.n_seen % 23)
        return;
    assert_true(camera.n_shots < MAX_SHOTS);
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/batches.db%s", camera.dir, i ? "-wal" : "");
        snprintf(to, sizeof to, "%s/%d%s", camera.shots, camera.n_shots, i ? "-wal" : "");
        copy_file(from, to);
    }
    camera.done[camera.n_shots++] = camera.n_done;
}

static void a_kill_at_any_write_leaves_whole_steps(void **state)
{
    static uint64_t after[N_STEPS + 1];
    char dir[64], again[64], from[128], to[128];
    story s = { 0 };
    rg_error err = { 0 };

    (void)state;
    strcpy(dir, new_folder());
    strcpy(again, new_folder());
    strcpy(camera.shots, new_folder());
    s.st = open_store(dir);
    after[0] = look(s.st);
    camera.dir = dir;
    shim_calm();
    shim.before_write = shoot;
    for (int i = 0; i < N_STEPS; i++) {
        assert_ok(step(&s, i, &err) == RG_STORE_DONE, err);
        camera.n_done = i + 1;
        shim.before_write = NULL;
        after[i + 1] = look(s.st);
        shim.before_write = shoot;
    }
    rg_store_close(s.st); /* photographed too */
    shim_calm();
    assert_true(camera.n_shots > 60);
    for (int i = 0; i < camera.n_shots; i++) {
        for (int k = 0; k < 2; k++) {
            snprintf(from, sizeof from, "%s/%d%s", camera.shots, i, k ? "-wal" : "");
            snprintf(to, sizeof to, "%s/batches.db%s", again, k ? "-wal" : "");
            copy_file(from, to);
            unlink(from);
        }
        rg_batch_store *st = open_store(again);
        uint64_t got = look(st);
        int done = camera.done[i];
        if (got != after[done] && (done == N_STEPS || got != after[done + 1]))
            fail_msg("shot %d, after step %d: neither what was nor what was to be", i, done);
        rg_store_close(st);
    }
    rmdir(camera.shots);
    remove_folder(again);
    remove_folder(dir);
}

/* ---- failing ----------------------------------------------------------------------------------------------------- */

static int allocations_left;

static bool allow(void *arg, size_t bytes)
{
    (void)arg, (void)bytes;
    return allocations_left < 0 || allocations_left-- > 0;
}

typedef enum trouble { FULL, BROKEN, UNSYNCED, NO_MEMORY, N_TROUBLES } trouble;

static void arm(trouble t, int n)
{
    shim_calm();
    if (t == FULL || t == BROKEN) {
        shim.fail_write = n;
        shim.code = t == FULL ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    } else if (t == UNSYNCED) {
        shim.fail_sync = n;
    } else {
        allocations_left = n - 1;
        rg_mem_set_gate(allow, NULL);
    }
}

static void disarm(void)
{
    shim_calm();
    rg_mem_set_gate(NULL, NULL);
    allocations_left = -1;
}

/* Every step is tried with its first, second, third ... operation failing, until it gets through: a failure is told,
 * changes nothing, and is forgotten once there is room again. */
static void every_failure_changes_nothing(void **state)
{
    char dir[64];

    (void)state;
    for (int t = 0; t < N_TROUBLES; t++) {
        story s = { 0 };
        int n_failures = 0;
        strcpy(dir, new_folder());
        s.st = open_store(dir);
        for (int i = 0; i < N_STEPS; i++) {
            uint64_t before = look(s.st);
            for (int n = 1;; n++) {
                rg_error err = { 0 };
                assert_true(n < 2000);
                arm((trouble)t, n);
                rg_stored got = step(&s, i, &err);
                bool full = rg_store_full(s.st);
                disarm();
                if (got == RG_STORE_DONE)
                    break;
                if (got != RG_STORE_FAILED)
                    fail_msg("trouble %d, step %d, operation %d: %d", t, i, n, (int)got);
                assert_true(err.text[0]);
                if (t == FULL)
                    assert_true(full);
                if (t == NO_MEMORY)
                    assert_int_equal(err.code, RG_E_MEMORY);
                n_failures++;
                if (n % 8 == 1)
                    assert_true(look(s.st) == before);
                n += t != UNSYNCED && n > 40 ? n / 3 : 0; /* of a long step, ever fewer */
            }
        }
        assert_true(n_failures > N_STEPS / 2);
        uint64_t last = look(s.st);
        rg_store_close(s.st);
        s.st = open_store(dir);
        assert_true(look(s.st) == last);
        rg_store_close(s.st);
        remove_folder(dir);
    }
}

static void opening_without_memory_fails_cleanly(void **state)
{
    char dir[64];

    (void)state;
    strcpy(dir, new_folder());
    rg_store_close(open_store(dir)); /* what SQLite makes once is there */
    rg_mem_stats before = rg_mem_count();
    for (int n = 1;; n++) {
        rg_error err = { 0 };
        arm(NO_MEMORY, n);
        rg_batch_store *st = rg_store_open(dir, &err);
        disarm();
        if (st) {
            rg_store_close(st);
            break;
        }
        assert_int_equal(err.code, RG_E_MEMORY);
        assert_int_equal(rg_mem_count().n_live, before.n_live);
        assert_true(n < 5000);
    }
    assert_int_equal(rg_mem_count().n_live, before.n_live);
    remove_folder(dir);
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

static void an_answer_is_set_once(void **state)
{
    char dir[64];
    story s = { 0 };
    rg_error err = { 0 };
    rg_batch_record b;

    (void)state;
    strcpy(dir, new_folder());
    s.st = open_store(dir);
    for (int i = 0; i < 5; i++)
        assert_ok(step(&s, i, &err) == RG_STORE_DONE, err);
    assert_int_equal(answer(&s, 0, 1, &err), RG_STORE_NONE); /* it has one */
    rg_line twice = { .number = 9, .custom_id = "l2", .n_custom_id = 2 };
    assert_int_equal(rg_store_add_line(s.st, s.batch[0].key, &twice, &err), RG_STORE_IN_USE);
    assert_int_equal(rg_store_batch(s.st, "me", s.batch[0].id, &b, &err), RG_STORE_DONE);
    assert_int_equal(b.n_completed, 1);
    assert_int_equal(rg_store_remove_file(s.st, "me", s.small, &err), RG_STORE_IN_USE);
    assert_int_equal(rg_store_remove_file(s.st, "you", s.small, &err), RG_STORE_NONE);
    assert_int_equal(rg_store_batch(s.st, "you", s.batch[0].id, &b, &err), RG_STORE_NONE);
    assert_null(rg_store_open(dir, &err)); /* it is held */
    assert_non_null(strstr(err.text, "held by another"));
    rg_store_close(s.st);
    remove_folder(dir);
}

static void a_range_crosses_chunks(void **state)
{
    char dir[64];
    story s = { 0 };
    rg_error err = { 0 };
    rg_file_record f;
    rg_buf all, some;
    int64_t at = 0;

    (void)state;
    strcpy(dir, new_folder());
    s.st = open_store(dir);
    assert_ok(add_large(&s, &err) == RG_STORE_DONE, err);
    assert_int_equal(rg_store_file(s.st, "me", s.large, &f, &err), RG_STORE_DONE);
    rg_buf_init(&all, 1 << 20);
    rg_buf_init(&some, 1 << 20);
    while (rg_store_read(s.st, &f, &at, &all, &err) == RG_STORE_DONE)
        ;
    assert_int_equal(all.n, 700001);
    static const int64_t cuts[][2] = { { 0, 1 }, { 262143, 1 }, { 262143, 2 }, { 262144, 262144 }, { 1, 700000 } };
    for (size_t i = 0; i < RG_LEN(cuts); i++) {
        rg_buf_reset(&some);
        assert_int_equal(rg_store_read_range(s.st, f.key, cuts[i][0], cuts[i][1], &some, &err), RG_STORE_DONE);
        assert_int_equal(some.n, cuts[i][1]);
        assert_memory_equal(some.data, all.data + cuts[i][0], some.n);
    }
    assert_int_equal(rg_store_read_range(s.st, f.key, 700000, 2, &some, &err), RG_STORE_NONE);
    rg_buf_fini(&all);
    rg_buf_fini(&some);
    rg_store_close(s.st);
    remove_folder(dir);
}

static void what_is_no_database_is_refused(void **state)
{
    char dir[64], path[128];
    rg_error err = { 0 };

    (void)state;
    strcpy(dir, new_folder());
    snprintf(path, sizeof path, "%s/batches.db", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    for (int i = 0; i < 5000; i++)
        fputc(i * 7, f);
    fclose(f);
    assert_null(rg_store_open(dir, &err));
    assert_non_null(strstr(err.text, "batches.db"));
    remove_folder(dir);
    assert_null(rg_store_open("/proc/nothing/here", &err));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kill_at_any_write_leaves_whole_steps),
        cmocka_unit_test(every_failure_changes_nothing),
        cmocka_unit_test(opening_without_memory_fails_cleanly),
        cmocka_unit_test(an_answer_is_set_once),
        cmocka_unit_test(a_range_crosses_chunks),
        cmocka_unit_test(what_is_no_database_is_refused),
    };

    test_init(argc, argv);
    shim_install();
    allocations_left = -1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
