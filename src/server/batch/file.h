/* file.h -- a batch from a file to a file, without a store and without a client: `ridge batch`.
 *
 * The lines of IN are those of OpenAI's batches.  Each answer is one line, added to the end of OUT as soon as it is
 * there, in any order.  Which lines are answered is read from OUT alone, so that a run that was ended at any moment,
 * even by a kill, is gone on with: no line is lost, and none is answered twice.  An incomplete line at the end of OUT
 * is cut off. */
#ifndef RG_SERVER_BATCH_FILE_H
#define RG_SERVER_BATCH_FILE_H

#include "server/server.h"

typedef struct rg_batch_file {
    const char *in, *out;
    bool anew;               /* whatever OUT has is dropped first */
    int32_t n_at_once;       /* lines that are with the engine at the same time; at least 1 */
    bool (*stop)(void *arg); /* asked often: true ends the run early; may be NULL */
    void (*progress)(void *arg, int64_t n_answered, int64_t n_lines); /* after each answer; may be NULL */
    void *arg;
} rg_batch_file;

typedef struct rg_batch_counts {
    int64_t n_lines; /* requests of IN */
    int64_t n_done,
        n_failed; /* of these, answered with status 200 and with an error; n_before of them before this run */
    int64_t n_before;
} rg_batch_counts;

typedef struct rg_batch_run rg_batch_run;

/* Read both files, before a model is opened.  NULL and *err: they cannot be read, OUT is being written, or OUT answers
 * lines that IN does not have. */
rg_batch_run *rg_batch_file_open(const rg_batch_file *o, rg_error *err);
rg_batch_counts rg_batch_file_counts(const rg_batch_run *r);
/* Answer what has no answer yet, by a server that is ready and listens nowhere.  False and *err: OUT cannot be written.
 * True: all is answered, or stop said so. */
bool rg_batch_file_answer(rg_batch_run *r, rg_server *s, rg_error *err);
void rg_batch_file_close(rg_batch_run *r); /* NULL is fine */

#endif
