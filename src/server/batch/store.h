/* store.h -- files and batches on disk: what was confirmed survives a kill -9; what was not confirmed leaves no trace.
 *
 * One SQLite database.  It holds an uploaded file in chunks.  The output files of a batch are the answers of its lines,
 * read in order: they are never written a second time, and no answer can stand in them twice.  A line's answer
 * and its state change in one transaction.  The texts that clients give (names, custom ids) are values and never part
 * of a path.  Knows nothing of HTTP, JSON or engines.  One thread's at a time. */
#ifndef RG_SERVER_BATCH_STORE_H
#define RG_SERVER_BATCH_STORE_H

#include "base/buf.h"
#include "server/keys.h"

typedef struct rg_batch_store rg_batch_store;

enum { RG_ID_ROOM = 48, RG_MAX_LINES = 1000000 };

typedef enum rg_stored {
    RG_STORE_FAILED = -1, /* *err says why, and nothing was changed */
    RG_STORE_NONE,        /* it does not exist, or belongs to another owner */
    RG_STORE_DONE,
    RG_STORE_IN_USE,
} rg_stored;

/* dir/batches.db, and dir if it is not there.  NULL and *err on failure. */
rg_batch_store *rg_store_open(const char *dir, rg_error *err);
void rg_store_close(rg_batch_store *st);      /* NULL is fine */
bool rg_store_full(const rg_batch_store *st); /* the last failure was for want of room */
/* Release open rows; texts of records become invalid.  An open row keeps the log from being reused. */
void rg_store_rest(rg_batch_store *st);

/* The store's clock, by which batches expire: seconds since 1970 as the wall clock said when the store was opened, and
 * counted by the monotonic clock from then on, so that nobody who sets the wall clock ends a batch.  It stands still
 * while no process has the store open: what a batch had left it still has when it is opened again. */
int64_t rg_store_now(const rg_batch_store *st);
/* Keep what the clock says: after a kill, time passes again from there on. */
rg_stored rg_store_tick(rg_batch_store *st, rg_error *err);

/* Several changes as one.  On failure of any of them: rollback. */
bool rg_store_begin(rg_batch_store *st, rg_error *err) RG_MUST_CHECK;
bool rg_store_commit(rg_batch_store *st, rg_error *err) RG_MUST_CHECK; /* false: undone */
void rg_store_rollback(rg_batch_store *st);

/* What a list shows. */
typedef struct rg_page {
    char after[RG_ID_ROOM]; /* from the one after this; "": from the start */
    const char *purpose;    /* of files; NULL: any.  Of batches: RG_MESSAGES, or NULL for all others */
    int32_t limit;
    bool rising; /* oldest first */
    bool more;   /* out: there are more than the limit */
} rg_page;

/* ---- files ------------------------------------------------------------------------------------------------------- */

typedef struct rg_file_record {
    int64_t key, bytes, created_s;
    int64_t batch; /* whose lines it is; 0: it was sent */
    int32_t part;  /* of them */
    char id[RG_ID_ROOM];
    const char *name, *purpose; /* valid until the next call */
    size_t n_name;
} rg_file_record;

/* Keep data[0, n) under f's name and purpose, and fill in the rest of *f. */
rg_stored rg_store_add_file(rg_batch_store *st, const char *owner, rg_file_record *f, const char *data, size_t n,
                            rg_error *err);
rg_stored rg_store_file(rg_batch_store *st, const char *owner, const char *id, rg_file_record *f, rg_error *err);
/* NONE: no such file to go on after. */
rg_stored rg_store_files(rg_batch_store *st, const char *owner, rg_page *page,
                         void (*see)(void *arg, const rg_file_record *f), void *arg, rg_error *err);
rg_stored rg_store_remove_file(rg_batch_store *st, const char *owner, const char *id, rg_error *err);

/* Append the next part of a file's content, about 256 KiB of it or one answer, to out; *at is 0 at first.  NONE: that
 * was all. */
rg_stored rg_store_read(rg_batch_store *st, const rg_file_record *f, int64_t *at, rg_buf *out, rg_error *err);
/* Append bytes [from, from + n) of a file that was sent. */
rg_stored rg_store_read_range(rg_batch_store *st, int64_t file, int64_t from, int64_t n, rg_buf *out, rg_error *err);

/* ---- batches ----------------------------------------------------------------------------------------------------- */

typedef enum rg_batch_state {
    RG_BATCH_VALIDATING,
    RG_BATCH_IN_PROGRESS,
    RG_BATCH_CANCELLING,
    RG_BATCH_COMPLETED, /* from here on it has ended */
    RG_BATCH_FAILED,
    RG_BATCH_EXPIRED,
    RG_BATCH_CANCELLED,
    RG_N_BATCH_STATES
} rg_batch_state;

typedef struct rg_batch_record {
    int64_t key, input; /* input: the file's key */
    char id[RG_ID_ROOM], owner[RG_OWNER_ROOM], input_id[RG_ID_ROOM];
    char output_id[RG_ID_ROOM], error_id[RG_ID_ROOM]; /* "": none (yet) */
    const char *endpoint, *metadata, *errors;         /* valid until the next call; the last two may be NULL */
    rg_batch_state state;
    int64_t since_s[RG_N_BATCH_STATES]; /* when it came into each state; 0: never */
    int64_t expires_s;                  /* by the store's clock */
    int64_t expires_at_s;               /* by the wall clock */
    int64_t n_lines, n_completed, n_failed;
} rg_batch_record;

/* The endpoint of Anthropic's batches: these have a list and ids of their own, and no files of answers: rg_store_read
 * takes a record of the batch alone.  A line without an answer has one that says so when they end. */
#define RG_MESSAGES "/v1/messages"

/* A batch over b->input_id for b->owner, b->endpoint and b->metadata, which lasts so many seconds.  Fills in the rest
 * of *b.  NONE: the owner has no such file, of this purpose. */
rg_stored rg_store_add_batch(rg_batch_store *st, rg_batch_record *b, const char *purpose, int64_t lasts_s,
                             rg_error *err);
rg_stored rg_store_batch(rg_batch_store *st, const char *owner, const char *id, rg_batch_record *b, rg_error *err);
rg_stored rg_store_batches(rg_batch_store *st, const char *owner, rg_page *page,
                           void (*see)(void *arg, const rg_batch_record *b), void *arg, rg_error *err);
/* A batch that has ended, its input and its answers.  IN_USE: it has not. */
rg_stored rg_store_remove_batch(rg_batch_store *st, const char *owner, const char *id, rg_error *err);
/* The first batch that has not ended, of any owner, whose key is above `after`. */
rg_stored rg_store_unended(rg_batch_store *st, int64_t after, rg_batch_record *b, rg_error *err);

/* validating -> in progress or failed; in progress -> cancelling.  NONE: it is in another state. */
rg_stored rg_store_start_batch(rg_batch_store *st, int64_t batch, int64_t n_lines, rg_error *err);
rg_stored rg_store_fail_batch(rg_batch_store *st, int64_t batch, const char *errors, rg_error *err);
rg_stored rg_store_cancel_batch(rg_batch_store *st, int64_t batch, rg_error *err);
/* It has ended in this state: its answers become its files, and lines without one are dropped. */
rg_stored rg_store_end_batch(rg_batch_store *st, int64_t batch, rg_batch_state state, rg_error *err);

/* ---- lines: of a batch, numbered from 1 -------------------------------------------------------------------------- */

typedef enum rg_line_state { RG_LINE_PENDING, RG_LINE_COMPLETED, RG_LINE_FAILED } rg_line_state;

typedef struct rg_line {
    int64_t number, from, n; /* bytes [from, from + n) of the batch's input */
    const char *custom_id;   /* valid until the next call */
    size_t n_custom_id;
} rg_line;

/* IN_USE: another line of the batch has this custom id. */
rg_stored rg_store_add_line(rg_batch_store *st, int64_t batch, const rg_line *l, rg_error *err);
/* The first line above `after` without an answer. */
rg_stored rg_store_next_line(rg_batch_store *st, int64_t batch, int64_t after, rg_line *l, rg_error *err);
/* The line's answer, and it counts as this.  NONE: it has one already. */
rg_stored rg_store_set_answer(rg_batch_store *st, int64_t batch, int64_t number, rg_line_state state,
                              const char *answer, size_t n, rg_error *err);

#endif
