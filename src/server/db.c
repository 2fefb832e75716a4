/* db.c -- see db.h. */
#include "server/db.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/mem.h"

struct rg_db {
    sqlite3 *db;
    const rg_db_layout *layout;
    int failed; /* the last failure, extended */
    bool full;  /* the disk was full */
    sqlite3_stmt *statement[];
};

/* ---- memory: ours, with its size in front since SQLite asks for it ----------------------------------------------- */

enum { HEAD = 16 };

static void *take(int n)
{
    char *p = n > 0 ? rg_alloc_tail(HEAD, (size_t)n, 1) : NULL;

    if (!p)
        return NULL;
    memcpy(p, &n, sizeof n);
    return p + HEAD;
}

static void give(void *p)
{
    if (p)
        rg_free((char *)p - HEAD);
}

static int size_of(void *p)
{
    int n = 0;

    if (p)
        memcpy(&n, (char *)p - HEAD, sizeof n);
    return n;
}

static void *resize(void *p, int n)
{
    char *q = rg_resize(p ? (char *)p - HEAD : NULL, (size_t)n + HEAD) /* fits: n is an int */;

    if (!q)
        return NULL;
    memcpy(q, &n, sizeof n);
    return q + HEAD;
}

static int round_up(int n)
{
    return (n + 7) & ~7; /* fits: SQLite asks for less than 2^31 - 256 */
}

static int start(void *arg)
{
    (void)arg;
    return SQLITE_OK;
}

static void stop(void *arg)
{
    (void)arg;
}

static void on_log(void *arg, int code, const char *text)
{
    (void)arg;
    rg_log(RG_LOG_DEBUG, "sqlite: %d: %s", code, text);
}

/* Before main: SQLite takes it only before its first use. */
__attribute__((constructor)) static void allocate_from_base(void)
{
    static const sqlite3_mem_methods ours = { take, give, resize, size_of, round_up, start, stop, NULL };

    sqlite3_config(SQLITE_CONFIG_MALLOC, &ours);
    sqlite3_config(SQLITE_CONFIG_LOG, on_log, NULL);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

/* ---- errors ------------------------------------------------------------------------------------------------------ */

static bool fail(rg_db *d, rg_error *err)
{
    int why = errno; /* SQLite keeps the error of a write that fails in a commit to itself */

    d->failed = d->db ? sqlite3_extended_errcode(d->db) : SQLITE_NOMEM;
    d->full = (d->failed & 0xff) == SQLITE_FULL || (d->failed == SQLITE_IOERR_WRITE && (why == EDQUOT || why == EFBIG));
    if (d->full)
        return rg_fail(err, RG_E_IO, "the database has no room on its disk");
    switch (d->failed & 0xff) {
    case SQLITE_NOMEM:
        return rg_fail(err, RG_E_MEMORY, "the database has no memory");
    case SQLITE_BUSY:
        return rg_fail(err, RG_E_IO, "the database is held by another process");
    default:
        return rg_fail(err, RG_E_IO, "the database failed: %s (%d)", sqlite3_errmsg(d->db), d->failed);
    }
}

bool rg_db_full(const rg_db *d)
{
    return d->full;
}

bool rg_db_unique(const rg_db *d)
{
    return d->failed == SQLITE_CONSTRAINT_UNIQUE;
}

/* ---- statements -------------------------------------------------------------------------------------------------- */

static bool bind(rg_db *d, sqlite3_stmt *s, const char *kinds, va_list args)
{
    int ok = SQLITE_OK;

    for (int i = 1; kinds[i - 1] && ok == SQLITE_OK; i++) {
        if (kinds[i - 1] == 'i') {
            ok = sqlite3_bind_int64(s, i, va_arg(args, int64_t));
        } else if (kinds[i - 1] == 't') {
            ok = sqlite3_bind_text(s, i, va_arg(args, const char *), -1, SQLITE_STATIC);
        } else {
            RG_ASSERT(kinds[i - 1] == 'b');
            const void *p = va_arg(args, const void *);
            size_t n = va_arg(args, size_t);
            ok = sqlite3_bind_blob64(s, i, n ? p : "", n, SQLITE_STATIC);
        }
    }
    return ok == SQLITE_OK || (d->failed = ok, false);
}

bool rg_db_query(rg_db *d, int q, rg_error *err, const char *kinds, ...)
{
    va_list args;
    bool ok;

    if (!d->statement[q] && sqlite3_prepare_v3(d->db, d->layout->sql[q], -1, SQLITE_PREPARE_PERSISTENT,
                                               &d->statement[q], NULL) != SQLITE_OK)
        return fail(d, err);
    rg_db_reset(d, q);
    va_start(args, kinds);
    ok = bind(d, d->statement[q], kinds, args);
    va_end(args);
    return ok || fail(d, err);
}

int rg_db_step(rg_db *d, int q, rg_error *err)
{
    int code;

    errno = 0;
    code = sqlite3_step(d->statement[q]);
    if (code == SQLITE_ROW)
        return 1;
    if (code != SQLITE_DONE)
        fail(d, err);
    rg_db_reset(d, q);
    return code == SQLITE_DONE ? 0 : -1;
}

void rg_db_reset(rg_db *d, int q)
{
    if (!d->statement[q])
        return;
    sqlite3_reset(d->statement[q]);
    sqlite3_clear_bindings(d->statement[q]);
}

void rg_db_rest(rg_db *d)
{
    for (int q = 0; q < d->layout->n_sql; q++)
        rg_db_reset(d, q);
}

int64_t rg_db_int(rg_db *d, int q, int column)
{
    return sqlite3_column_int64(d->statement[q], column);
}

const char *rg_db_bytes(rg_db *d, int q, int column, size_t *n)
{
    bool blob = sqlite3_column_type(d->statement[q], column) == SQLITE_BLOB;
    const char *p = blob ? sqlite3_column_blob(d->statement[q], column)
                         : (const char *)sqlite3_column_text(d->statement[q], column);

    if (n)
        *n = (size_t)sqlite3_column_bytes(d->statement[q], column);
    return p ? p : blob ? "" : NULL;
}

bool rg_db_run(rg_db *d, int q, int64_t *changed, rg_error *err)
{
    int got = rg_db_step(d, q, err);

    RG_ASSERT(got <= 0);
    if (changed)
        *changed = sqlite3_changes64(d->db);
    return got == 0;
}

int64_t rg_db_last_key(rg_db *d)
{
    return sqlite3_last_insert_rowid(d->db);
}

/* ---- transactions ------------------------------------------------------------------------------------------------ */

static bool exec(rg_db *d, const char *sql, rg_error *err)
{
    errno = 0;
    return sqlite3_exec(d->db, sql, NULL, NULL, NULL) == SQLITE_OK || fail(d, err);
}

bool rg_db_begin(rg_db *d, rg_error *err)
{
    return exec(d, "BEGIN IMMEDIATE", err);
}

bool rg_db_commit(rg_db *d, rg_error *err)
{
    if (exec(d, "COMMIT", err))
        return true;
    rg_db_rollback(d);
    return false;
}

void rg_db_rollback(rg_db *d)
{
    rg_db_rest(d);
    if (!sqlite3_get_autocommit(d->db)) /* some failures have undone it already */
        sqlite3_exec(d->db, "ROLLBACK", NULL, NULL, NULL);
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool read_version(rg_db *d, int *version, rg_error *err)
{
    sqlite3_stmt *s = NULL;
    bool ok =
        sqlite3_prepare_v2(d->db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW;

    if (ok)
        *version = sqlite3_column_int(s, 0);
    else
        fail(d, err);
    sqlite3_finalize(s);
    return ok;
}

static bool make_schema(rg_db *d, const char *path, rg_error *err)
{
    char set[64];
    int version = 0;

    if (!read_version(d, &version, err))
        return false;
    if (version && version != d->layout->version)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: its schema is version %d, and this program knows %d", path, version,
                       d->layout->version);
    snprintf(set, sizeof set, "PRAGMA user_version = %d", d->layout->version);
    if (rg_db_begin(d, err) && (version || (exec(d, d->layout->schema, err) && exec(d, set, err))) &&
        exec(d, d->layout->more, err) && rg_db_commit(d, err))
        return true;
    rg_db_rollback(d);
    return false;
}

/* Only the owner may read it: SQLite would let everybody, and gives its log the same rights. */
static void make_private(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd >= 0)
        close(fd);
}

rg_db *rg_db_open(const char *path, const rg_db_layout *layout, rg_error *err)
{
    static const char manners[] = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL;"
                                  "PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 67108864;"
                                  "PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF";
    rg_db *d = rg_zalloc_tail(sizeof *d, (size_t)layout->n_sql, sizeof d->statement[0]);
    rg_error why = { 0 };

    if (!d)
        return rg_fail_memory(err, sizeof *d), NULL;
    d->layout = layout;
    make_private(path);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW;
    if (sqlite3_open_v2(path, &d->db, flags, NULL) != SQLITE_OK)
        fail(d, &why);
    else if (exec(d, manners, &why) && make_schema(d, path, &why))
        return d;
    rg_fail(err, why.code, "%s: %s", path, why.text);
    rg_db_close(d);
    return NULL;
}

void rg_db_close(rg_db *d)
{
    if (!d)
        return;
    for (int q = 0; q < d->layout->n_sql; q++)
        sqlite3_finalize(d->statement[q]);
    sqlite3_close(d->db); /* NULL is fine */
    rg_free(d);
}
