/* db.h -- SQLite with memory from base/mem, statements by number, and errors as sentences.
 *
 * Write-ahead log and synchronous=FULL: what was committed is on the disk, and a kill at any moment leaves whole
 * transactions.  The file is locked: a second process that opens it is refused.  Used by one thread at a time. */
#ifndef RG_SERVER_DB_H
#define RG_SERVER_DB_H

#include "base/error.h"

typedef struct rg_db rg_db;

typedef struct rg_db_layout {
    const char *schema;     /* makes an empty database */
    const char *more;       /* added to any where it lacks; older programs of the same version do not mind it */
    int version;            /* of the schema; another one in the file is refused */
    const char *const *sql; /* the statements, by number */
    int n_sql;
} rg_db_layout;

/* The layout outlives the database.  NULL and *err on failure. */
rg_db *rg_db_open(const char *path, const rg_db_layout *layout, rg_error *err);
void rg_db_close(rg_db *d);      /* what was not committed is undone; NULL is fine */
bool rg_db_full(const rg_db *d); /* the last failure was a full disk */

/* Begin statement q anew with its parameters: a letter of `kinds` and then its value for each: i int64_t, t text (NULL:
 * null), b bytes (pointer, size_t).  Bytes and texts stay the caller's until the statement has been reset. */
bool rg_db_query(rg_db *d, int q, rg_error *err, const char *kinds, ...) RG_MUST_CHECK;
/* 1: a row; 0: no more (and it is reset); -1: failed (and it is reset). */
int rg_db_step(rg_db *d, int q, rg_error *err) RG_MUST_CHECK;
void rg_db_reset(rg_db *d, int q);
void rg_db_rest(rg_db *d); /* all of them */
/* Values of the present row.  They are valid until the next step or reset. */
int64_t rg_db_int(rg_db *d, int q, int column);
const char *rg_db_bytes(rg_db *d, int q, int column, size_t *n); /* ends with a NUL if it is text; null: NULL */

/* A statement that gives no rows; *changed (may be NULL): how many rows it touched. */
bool rg_db_run(rg_db *d, int q, int64_t *changed, rg_error *err) RG_MUST_CHECK;
int64_t rg_db_last_key(rg_db *d);
bool rg_db_unique(const rg_db *d); /* the last failure: a value that must be unique was there */

bool rg_db_begin(rg_db *d, rg_error *err) RG_MUST_CHECK;
bool rg_db_commit(rg_db *d, rg_error *err) RG_MUST_CHECK; /* false: undone */
void rg_db_rollback(rg_db *d);

#endif
