/* store_db.h -- what store.c and store_batches.c share: the statements' numbers and nested transactions. */
#ifndef RG_SERVER_BATCH_STORE_DB_H
#define RG_SERVER_BATCH_STORE_DB_H

#include "server/db.h"
#include "server/batch/store.h"

enum rg_store_query {
    ADD_FILE,
    ADD_CHUNK,
    GET_FILE,
    FILES_UP,
    FILES_DOWN,
    FILE_USED,
    REMOVE_FILE,
    REMOVE_CHUNKS,
    REMOVE_LINES,
    GET_CHUNK,
    GET_ANSWER,
    ADD_BATCH,
    GET_BATCH,
    BATCHES_UP,
    BATCHES_DOWN,
    UNENDED,
    START_BATCH,
    FAIL_BATCH,
    CANCEL_BATCH,
    GET_OWNER,
    SUM_ANSWERS,
    FILL_LINES,
    REMOVE_BATCH,
    REMOVE_ANSWERS,
    END_BATCH,
    ADD_LINE,
    NEXT_LINE,
    SET_ANSWER,
    COUNT_ANSWER,
    GET_CLOCK,
    SET_CLOCK,
    MOVE_BATCHES,
    RG_N_QUERIES
};

struct rg_batch_store {
    rg_db *db;
    bool within;            /* a transaction of the caller's */
    uint64_t opened_ns;     /* by the monotonic clock, */
    int64_t opened_wall_ns; /* and by the wall clock */
};

/* A transaction of one function, unless the caller has one open. */
bool rg_store_enter(rg_batch_store *st, rg_error *err) RG_MUST_CHECK;
rg_stored rg_store_leave(rg_batch_store *st, rg_stored how, rg_error *err);

/* How the pages of one kind of thing are read. */
typedef struct rg_lister {
    int rising, falling; /* statements of rows by key: of an owner (1) beyond a key (2), a purpose (3), so many (4) */
    int find;            /* statement of one row by id and owner; its first column is the key */
    void (*see)(const struct rg_lister *l, const rg_batch_store *st, int q); /* a row */
    void (*file)(void *arg, const rg_file_record *f);                        /* of a list of files */
    void (*batch)(void *arg, const rg_batch_record *b);                      /* of a list of batches */
    void *arg;
} rg_lister;
/* One page.  NONE: there is no such thing to go on after. */
rg_stored rg_store_list(rg_batch_store *st, const char *owner, rg_page *page, const rg_lister *l, rg_error *err);

void rg_store_name(char id[RG_ID_ROOM], const char *prefix);
int64_t rg_store_at(int64_t key, int64_t number); /* where a file's chunk or a batch's line stands */
/* A file's row, and its id, key and time; within a transaction. */
bool rg_store_put_file(rg_batch_store *st, const char *owner, rg_file_record *f, rg_error *err) RG_MUST_CHECK;

#endif
