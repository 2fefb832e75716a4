/* batches.h -- the thread that owns the store: it answers requests for files and batches, and runs lines of batches
 * while other requests leave room.
 *
 * An endpoint reads what it was sent and hands over a task; the thread does one after another, so that no HTTP thread
 * ever waits for a disk.  A line is a request to one of this server's own endpoints, through an exchange without a
 * connection; its answer is committed with its state, and only then is it done.  After a kill at any moment, the server
 * runs the lines without an answer again. */
#ifndef RG_SERVER_BATCH_BATCHES_H
#define RG_SERVER_BATCH_BATCHES_H

#include "server/core.h"
#include "server/json.h"
#include "server/batch/store.h"

/* Open the store in s->server->o.batch_dir and start the thread.  NULL and *err on failure. */
rg_batches *rg_batches_open(rg_server *s, rg_error *err);
/* After the pump has stopped: what was answered is committed, tasks that wait are refused, and so are later ones. */
void rg_batches_stop(rg_batches *b);
void rg_batches_free(rg_batches *b); /* no exchange is left; NULL is fine */

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

typedef struct rg_task rg_task;
struct rg_task {
    rg_task *next;
    rg_served *served;
    rg_exchange *x;
    void (*run)(rg_task *t, rg_batch_store *st); /* on the store's thread: answers */
    const char *owner;
    char id[RG_ID_ROOM]; /* of a file or batch: what the path names, cut if it is too long for any */
    rg_page page;
    const char *name, *purpose, *data; /* of a file that comes in, within the exchange's body */
    size_t n_name, n;
    json_t *body;
    const char *endpoint;
};

/* NULL: x has been answered (no batches here, no memory). */
rg_task *rg_task_new(rg_served *s, rg_exchange *x, void (*run)(rg_task *t, rg_batch_store *st));
void rg_task_give(rg_task *t);
void rg_task_refuse(rg_task *t, const rg_refusal *e); /* instead of giving it */
/* Give it if it was read well, else refuse it for *e. */
void rg_task_end_reading(rg_task *t, bool ok, const rg_refusal *e);
/* The id in the path, which is prefix, the id, and tail.  False: it is another path. */
bool rg_task_read_id(rg_task *t, const char *prefix, const char *tail);
/* limit, after and order of the query. */
bool rg_task_read_page(rg_task *t, int32_t usual, int32_t most, rg_refusal *e);

/* ---- within a task ----------------------------------------------------------------------------------------------- */

/* The route of an endpoint that a batch may name; NULL: it may not. */
const rg_route *rg_batch_route(const char *endpoint);
/* The answer if the store did not return DONE: `unknown` for NONE, else the error for its failure. */
void rg_task_fail(rg_task *t, const rg_batch_store *st, rg_stored got, const rg_refusal *unknown, const rg_error *err);

/* The answer {object: list, data, first_id, last_id, has_more}: open, each object's id before it is written, reply. */
typedef struct rg_listing {
    rg_buf out;
    char first[RG_ID_ROOM], last[RG_ID_ROOM];
} rg_listing;
void rg_listing_open(rg_listing *l);
void rg_listing_add(rg_listing *l, const char *id);
void rg_listing_reply(rg_listing *l, rg_task *t, const rg_batch_store *st, rg_stored got, const rg_error *err);
void rg_batches_send(rg_task *t, const rg_file_record *f);     /* its content, as fast as the client takes it */
int32_t rg_batches_of(const rg_batches *b, const char *owner); /* that have not ended */
/* Stop the batch: its running lines are cancelled. */
rg_stored rg_batches_cancel(rg_task *t, int64_t batch, rg_error *err);

/* ---- the parts (check.c) ----------------------------------------------------------------------------------- */

/* Read the input of b and add its lines, within the caller's transaction.  *errors is what is wrong with it, as JSON;
 * empty: nothing. */
rg_stored rg_batch_check(rg_batch_store *st, const rg_batch_record *b, int64_t *n_lines, rg_buf *errors, rg_error *err);

#endif
