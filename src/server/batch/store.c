/* store.c -- see store.h: the tables, files and their content.  store_batches.c has batches and lines. */
#include "server/batch/store.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/batch/store_db.h"

enum { CHUNK = 256 << 10, KEY_SHIFT = 20 };

/* A chunk stands at file << 20 | number, a line at batch << 20 | number: one b-tree, in order, and no further index. */
static const char schema[] =
    "CREATE TABLE files(key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    " name BLOB NOT NULL, purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created INTEGER NOT NULL,"
    " batch INTEGER NOT NULL, part INTEGER NOT NULL) STRICT;"
    "CREATE INDEX files_of_owner ON files(owner, key);"
    "CREATE TABLE chunks(at INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT;"
    "CREATE TABLE batches(key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,"
    " input INTEGER NOT NULL, input_id TEXT NOT NULL, endpoint TEXT NOT NULL, metadata TEXT, errors TEXT,"
    " state INTEGER NOT NULL, n_lines INTEGER NOT NULL, n_completed INTEGER NOT NULL, n_failed INTEGER NOT NULL,"
    " expires INTEGER NOT NULL, output_id TEXT NOT NULL, error_id TEXT NOT NULL, validating INTEGER NOT NULL,"
    " in_progress INTEGER NOT NULL, cancelling INTEGER NOT NULL, completed INTEGER NOT NULL, failed INTEGER NOT NULL,"
    " expired INTEGER NOT NULL, cancelled INTEGER NOT NULL) STRICT;"
    "CREATE INDEX batches_of_owner ON batches(owner, key);"
    "CREATE INDEX batches_unended ON batches(key) WHERE state < 3;"
    "CREATE TABLE lines(at INTEGER PRIMARY KEY, state INTEGER NOT NULL, custom_id BLOB NOT NULL,"
    " start INTEGER NOT NULL, n INTEGER NOT NULL, answer BLOB) STRICT;"
    "CREATE UNIQUE INDEX lines_by_name ON lines(at >> 20, custom_id);"
    "CREATE INDEX lines_pending ON lines(at) WHERE state = 0;";
/* One row: what the store's clock said when somebody last had the store open. */
static const char more[] = "CREATE TABLE IF NOT EXISTS clock(key INTEGER PRIMARY KEY, seen INTEGER NOT NULL) STRICT";

#define FILE_COLUMNS "key, bytes, created, batch, part, id, purpose, name"
/* Batches of messages have lists of their own. */
#define OF_MESSAGES "(endpoint = '" RG_MESSAGES "') = (?3 IS '" RG_MESSAGES "')"
#define BATCH_COLUMNS                                                                                                  \
    "key, input, id, owner, input_id, output_id, error_id, endpoint, metadata, errors, state, expires, n_lines,"       \
    " n_completed, n_failed, validating, in_progress, cancelling, completed, failed, expired, cancelled"

static const char *const statements[RG_N_QUERIES] = {
    [ADD_FILE] = "INSERT INTO files(id, owner, name, purpose, bytes, created, batch, part) VALUES(?,?,?,?,?,?,?,?)",
    [ADD_CHUNK] = "INSERT INTO chunks(at, data) VALUES(?,?)",
    [GET_FILE] = "SELECT " FILE_COLUMNS " FROM files WHERE id = ? AND owner = ?",
    [FILES_UP] = "SELECT " FILE_COLUMNS " FROM files WHERE owner = ? AND key > ? AND (?3 IS NULL OR purpose = ?3)"
                 " ORDER BY key LIMIT ?",
    [FILES_DOWN] = "SELECT " FILE_COLUMNS " FROM files WHERE owner = ? AND key < ? AND (?3 IS NULL OR purpose = ?3)"
                   " ORDER BY key DESC LIMIT ?",
    [FILE_USED] = "SELECT 1 FROM batches WHERE state < 3 AND input = ?",
    [REMOVE_FILE] = "DELETE FROM files WHERE key = ?",
    [REMOVE_CHUNKS] = "DELETE FROM chunks WHERE at >= ?1 << 20 AND at < (?1 + 1) << 20",
    [REMOVE_LINES] = "DELETE FROM lines WHERE at >= ?1 << 20 AND at < (?1 + 1) << 20 AND state = ?2",
    [GET_CHUNK] = "SELECT at, data FROM chunks WHERE at >= ? AND at < ? ORDER BY at LIMIT 1",
    [GET_ANSWER] = "SELECT at, answer FROM lines WHERE at >= ? AND at < ? AND (state = ?3 OR (?3 = 0 AND state > 0))"
                   " ORDER BY at LIMIT 1",
    [ADD_BATCH] = "INSERT INTO batches VALUES(NULL,?,?,?,?,?,?,NULL,0,0,0,0,?,'','',?,0,0,0,0,0,0)",
    [GET_BATCH] = "SELECT " BATCH_COLUMNS " FROM batches WHERE id = ? AND owner = ?",
    [BATCHES_UP] =
        "SELECT " BATCH_COLUMNS " FROM batches WHERE owner = ? AND key > ? AND " OF_MESSAGES " ORDER BY key LIMIT ?4",
    [BATCHES_DOWN] = "SELECT " BATCH_COLUMNS " FROM batches WHERE owner = ? AND key < ? AND " OF_MESSAGES
                     " ORDER BY key DESC LIMIT ?4",
    [UNENDED] = "SELECT " BATCH_COLUMNS " FROM batches WHERE state < 3 AND key > ? ORDER BY key LIMIT 1",
    [START_BATCH] = "UPDATE batches SET state = 1, in_progress = ?2, n_lines = ?3 WHERE key = ?1 AND state = 0",
    [FAIL_BATCH] = "UPDATE batches SET state = 4, failed = ?2, errors = ?3 WHERE key = ?1 AND state = 0",
    [CANCEL_BATCH] = "UPDATE batches SET state = 2, cancelling = ?2 WHERE key = ?1 AND state < 2",
    [GET_OWNER] = "SELECT owner, id FROM batches WHERE key = ? AND state < 3",
    [SUM_ANSWERS] = "SELECT count(*), sum(length(answer)) FROM lines WHERE at >= ?1 << 20 AND at < (?1 + 1) << 20"
                    " AND state = ?2",
    [FILL_LINES] = "UPDATE lines SET state = 3, answer = CAST('{\"custom_id\":\"' || CAST(custom_id AS TEXT) ||"
                   " '\",\"result\":{\"type\":\"' || ?2 || '\"}}' || char(10) AS BLOB)"
                   " WHERE at >= ?1 << 20 AND at < (?1 + 1) << 20 AND state = 0",
    [REMOVE_BATCH] = "DELETE FROM batches WHERE key = ?",
    [REMOVE_ANSWERS] = "DELETE FROM lines WHERE at >= ?1 << 20 AND at < (?1 + 1) << 20",
    [END_BATCH] = "UPDATE batches SET state = ?2, output_id = ?4, error_id = ?5,"
                  " completed = iif(?2 = 3, ?3, 0), expired = iif(?2 = 5, ?3, 0), cancelled = iif(?2 = 6, ?3, 0)"
                  " WHERE key = ?1 AND state < 3",
    [ADD_LINE] = "INSERT INTO lines(at, state, custom_id, start, n) VALUES(?,0,?,?,?)",
    [NEXT_LINE] = "SELECT at, start, n, custom_id FROM lines WHERE state = 0 AND at > ? AND at < ? ORDER BY at LIMIT 1",
    [SET_ANSWER] = "UPDATE lines SET state = ?2, answer = ?3 WHERE at = ?1 AND state = 0",
    [COUNT_ANSWER] = "UPDATE batches SET n_completed = n_completed + ?2, n_failed = n_failed + ?3 WHERE key = ?1",
    [GET_CLOCK] = "SELECT seen FROM clock WHERE key = 0",
    [SET_CLOCK] = "INSERT OR REPLACE INTO clock(key, seen) VALUES(0, ?)",
    [MOVE_BATCHES] = "UPDATE batches SET expires = expires + ? WHERE state < 3",
};

static const rg_db_layout layout = {
    .schema = schema, .more = more, .version = 1, .sql = statements, .n_sql = RG_N_QUERIES
};

/* ---- the clock --------------------------------------------------------------------------------------------------- */

int64_t rg_store_now(const rg_batch_store *st)
{
    return (st->opened_wall_ns + (int64_t)(rg_now_ns() - st->opened_ns)) / 1000000000;
}

rg_stored rg_store_tick(rg_batch_store *st, rg_error *err)
{
    return rg_db_query(st->db, SET_CLOCK, err, "i", rg_store_now(st)) && rg_db_run(st->db, SET_CLOCK, NULL, err)
               ? RG_STORE_DONE
               : RG_STORE_FAILED;
}

/* Go on from where the clock was left: batches keep the time that they had left then. */
static bool start_clock(rg_batch_store *st, rg_error *err)
{
    int64_t gap = 0;
    int got;

    st->opened_ns = rg_now_ns();
    st->opened_wall_ns = rg_wall_ns();
    if (!rg_store_begin(st, err))
        return false;
    got = rg_db_query(st->db, GET_CLOCK, err, "") ? rg_db_step(st->db, GET_CLOCK, err) : -1;
    if (got == 1)
        gap = rg_store_now(st) - rg_db_int(st->db, GET_CLOCK, 0);
    rg_db_reset(st->db, GET_CLOCK);
    bool ok = got >= 0;
    if (ok && gap)
        ok = rg_db_query(st->db, MOVE_BATCHES, err, "i", gap) && rg_db_run(st->db, MOVE_BATCHES, NULL, err);
    if (ok && rg_store_tick(st, err) == RG_STORE_DONE)
        return rg_store_commit(st, err);
    rg_store_rollback(st);
    return false;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

rg_batch_store *rg_store_open(const char *dir, rg_error *err)
{
    rg_batch_store *st = rg_zalloc(sizeof *st);
    char path[4096];

    if (!st)
        return rg_fail_memory(err, sizeof *st), NULL;
    if (!rg_dir_make(dir, err))
        goto fail;
    if (!rg_path_join(path, sizeof path, dir, "batches.db")) {
        rg_fail(err, RG_E_USAGE, "the path of the batches' folder is too long");
        goto fail;
    }
    st->db = rg_db_open(path, &layout, err);
    if (st->db && start_clock(st, err))
        return st;

fail:
    rg_db_close(st->db);
    rg_free(st);
    return NULL;
}

void rg_store_close(rg_batch_store *st)
{
    rg_error err = { 0 };

    if (st) {
        (void)rg_store_tick(st, &err); /* a full disk costs nobody more than a few seconds */
        rg_db_close(st->db);
    }
    rg_free(st);
}

bool rg_store_full(const rg_batch_store *st)
{
    return rg_db_full(st->db);
}

void rg_store_rest(rg_batch_store *st)
{
    rg_db_rest(st->db);
}

/* ---- transactions ------------------------------------------------------------------------------------------------ */

bool rg_store_begin(rg_batch_store *st, rg_error *err)
{
    RG_ASSERT(!st->within);
    st->within = rg_db_begin(st->db, err);
    return st->within;
}

bool rg_store_commit(rg_batch_store *st, rg_error *err)
{
    st->within = false;
    return rg_db_commit(st->db, err);
}

void rg_store_rollback(rg_batch_store *st)
{
    st->within = false;
    rg_db_rollback(st->db);
}

bool rg_store_enter(rg_batch_store *st, rg_error *err)
{
    return st->within || rg_db_begin(st->db, err);
}

rg_stored rg_store_leave(rg_batch_store *st, rg_stored how, rg_error *err)
{
    if (st->within) /* the caller's to end */
        return how;
    if (how == RG_STORE_DONE)
        return rg_db_commit(st->db, err) ? how : RG_STORE_FAILED;
    rg_db_rollback(st->db);
    return how;
}

void rg_store_name(char id[RG_ID_ROOM], const char *prefix)
{
    snprintf(id, RG_ID_ROOM, "%s%016llx%016llx", prefix, (unsigned long long)rg_seed(), (unsigned long long)rg_seed());
}

int64_t rg_store_at(int64_t key, int64_t number)
{
    return key << KEY_SHIFT | number;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

static void read_file(rg_db *d, int q, rg_file_record *f)
{
    *f = (rg_file_record){ .key = rg_db_int(d, q, 0),
                           .bytes = rg_db_int(d, q, 1),
                           .created_s = rg_db_int(d, q, 2),
                           .batch = rg_db_int(d, q, 3),
                           .part = (int32_t)rg_db_int(d, q, 4) };
    snprintf(f->id, sizeof f->id, "%s", rg_db_bytes(d, q, 5, NULL));
    f->purpose = rg_db_bytes(d, q, 6, NULL);
    f->name = rg_db_bytes(d, q, 7, &f->n_name);
}

bool rg_store_put_file(rg_batch_store *st, const char *owner, rg_file_record *f, rg_error *err)
{
    rg_store_name(f->id, "file-");
    f->created_s = rg_wall_s();
    if (!rg_db_query(st->db, ADD_FILE, err, "ttbtiiii", f->id, owner, f->name, f->n_name, f->purpose, f->bytes,
                     f->created_s, f->batch, (int64_t)f->part) ||
        !rg_db_run(st->db, ADD_FILE, NULL, err))
        return false;
    f->key = rg_db_last_key(st->db);
    return true;
}

static bool add_chunks(rg_batch_store *st, int64_t file, const char *data, size_t n, rg_error *err)
{
    int64_t number = 0;

    for (size_t i = 0; i < n; i += CHUNK, number++)
        if (!rg_db_query(st->db, ADD_CHUNK, err, "ib", rg_store_at(file, number), data + i,
                         n - i < CHUNK ? n - i : (size_t)CHUNK) ||
            !rg_db_run(st->db, ADD_CHUNK, NULL, err))
            return false;
    return true;
}

rg_stored rg_store_add_file(rg_batch_store *st, const char *owner, rg_file_record *f, const char *data, size_t n,
                            rg_error *err)
{
    f->bytes = (int64_t)n;
    f->batch = 0;
    f->part = 0;
    if (n >> KEY_SHIFT >= CHUNK)
        return rg_fail(err, RG_E_LIMIT, "the file is too large"), RG_STORE_FAILED;
    if (!rg_store_enter(st, err))
        return RG_STORE_FAILED;
    bool ok = rg_store_put_file(st, owner, f, err) && add_chunks(st, f->key, data, n, err);
    return rg_store_leave(st, ok ? RG_STORE_DONE : RG_STORE_FAILED, err);
}

rg_stored rg_store_file(rg_batch_store *st, const char *owner, const char *id, rg_file_record *f, rg_error *err)
{
    int got = rg_db_query(st->db, GET_FILE, err, "tt", id, owner) ? rg_db_step(st->db, GET_FILE, err) : -1;

    if (got == 1)
        read_file(st->db, GET_FILE, f); /* the row and its texts stay valid until the statement's next use */
    return (rg_stored)got;
}

rg_stored rg_store_list(rg_batch_store *st, const char *owner, rg_page *page, const rg_lister *l, rg_error *err)
{
    int q = page->rising ? l->rising : l->falling, got;
    int64_t from = page->rising ? 0 : INT64_MAX;

    page->more = false;
    if (page->after[0]) {
        got = rg_db_query(st->db, l->find, err, "tt", page->after, owner) ? rg_db_step(st->db, l->find, err) : -1;
        if (got != 1)
            return (rg_stored)got;
        from = rg_db_int(st->db, l->find, 0);
        rg_db_reset(st->db, l->find);
    }
    if (!rg_db_query(st->db, q, err, "titi", owner, from, page->purpose, (int64_t)page->limit + 1))
        return RG_STORE_FAILED;
    for (int32_t i = 0; (got = rg_db_step(st->db, q, err)) == 1; i++) {
        if (i == page->limit) {
            page->more = true;
            rg_db_reset(st->db, q);
            break;
        }
        l->see(l, st, q);
    }
    return got < 0 ? RG_STORE_FAILED : RG_STORE_DONE;
}

static void see_file(const rg_lister *l, const rg_batch_store *st, int q)
{
    rg_file_record f;

    read_file(st->db, q, &f);
    l->file(l->arg, &f);
}

rg_stored rg_store_files(rg_batch_store *st, const char *owner, rg_page *page,
                         void (*see)(void *arg, const rg_file_record *f), void *arg, rg_error *err)
{
    rg_lister l = { FILES_UP, FILES_DOWN, GET_FILE, see_file, .file = see, .arg = arg };

    return rg_store_list(st, owner, page, &l, err);
}

static rg_stored remove_file(rg_batch_store *st, const char *owner, const char *id, rg_error *err)
{
    rg_file_record f;
    rg_stored found = rg_store_file(st, owner, id, &f, err);
    int used;

    if (found != RG_STORE_DONE)
        return found;
    rg_db_reset(st->db, GET_FILE);
    used = rg_db_query(st->db, FILE_USED, err, "i", f.key) ? rg_db_step(st->db, FILE_USED, err) : -1;
    if (used < 0)
        return RG_STORE_FAILED;
    rg_db_reset(st->db, FILE_USED);
    if (used)
        return RG_STORE_IN_USE;
    int content = f.batch ? REMOVE_LINES : REMOVE_CHUNKS;
    bool ok = rg_db_query(st->db, REMOVE_FILE, err, "i", f.key) && rg_db_run(st->db, REMOVE_FILE, NULL, err) &&
              (f.batch ? rg_db_query(st->db, content, err, "ii", f.batch, (int64_t)f.part)
                       : rg_db_query(st->db, content, err, "i", f.key)) &&
              rg_db_run(st->db, content, NULL, err);
    return ok ? RG_STORE_DONE : RG_STORE_FAILED;
}

rg_stored rg_store_remove_file(rg_batch_store *st, const char *owner, const char *id, rg_error *err)
{
    if (!rg_store_enter(st, err))
        return RG_STORE_FAILED;
    return rg_store_leave(st, remove_file(st, owner, id, err), err);
}

/* ---- content ----------------------------------------------------------------------------------------------------- */

rg_stored rg_store_read(rg_batch_store *st, const rg_file_record *f, int64_t *at, rg_buf *out, rg_error *err)
{
    int q = f->batch ? GET_ANSWER : GET_CHUNK, got;
    int64_t key = f->batch ? f->batch : f->key, from = *at ? *at : rg_store_at(key, 0), to = rg_store_at(key + 1, 0);
    bool asked = f->batch ? rg_db_query(st->db, q, err, "iii", from, to, (int64_t)f->part)
                          : rg_db_query(st->db, q, err, "ii", from, to);
    const char *p;
    size_t n;

    got = asked ? rg_db_step(st->db, q, err) : -1;
    if (got != 1)
        return (rg_stored)got;
    *at = rg_db_int(st->db, q, 0) + 1;
    p = rg_db_bytes(st->db, q, 1, &n);
    bool ok = !n || (p && rg_buf_add(out, p, n)) || rg_fail_memory(err, n);
    rg_db_reset(st->db, q);
    return ok ? RG_STORE_DONE : RG_STORE_FAILED;
}

rg_stored rg_store_read_range(rg_batch_store *st, int64_t file, int64_t from, int64_t n, rg_buf *out, rg_error *err)
{
    while (n > 0) {
        int64_t at = rg_store_at(file, from / CHUNK), skip = from % CHUNK, take;
        int got = rg_db_query(st->db, GET_CHUNK, err, "ii", at, at + 1) ? rg_db_step(st->db, GET_CHUNK, err) : -1;
        size_t have;
        if (got != 1)
            return (rg_stored)got;
        const char *p = rg_db_bytes(st->db, GET_CHUNK, 1, &have);
        take = (int64_t)have - skip < n ? (int64_t)have - skip : n;
        bool ok = p && take > 0 && rg_buf_add(out, p + skip, (size_t)take);
        rg_db_reset(st->db, GET_CHUNK);
        if (!ok)
            return take > 0 ? (rg_fail_memory(err, (size_t)take), RG_STORE_FAILED) : RG_STORE_NONE;
        from += take;
        n -= take;
    }
    return RG_STORE_DONE;
}
