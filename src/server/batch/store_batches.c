/* store_batches.c -- see store.h: batches, their states, and the answers of their lines. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "server/batch/store_db.h"

static void copy_text(rg_db *d, int q, int column, char *to, size_t room)
{
    const char *s = rg_db_bytes(d, q, column, NULL);

    snprintf(to, room, "%s", s ? s : "");
}

/* How far the wall clock is ahead of the store's. */
static int64_t wall_ahead_s(const rg_batch_store *st)
{
    int64_t ns = rg_wall_ns() - st->opened_wall_ns - (int64_t)(rg_now_ns() - st->opened_ns);

    return (ns + (ns < 0 ? -500000000 : 500000000)) / 1000000000;
}

static void read_batch(const rg_batch_store *st, int q, rg_batch_record *b)
{
    rg_db *d = st->db;

    *b = (rg_batch_record){ .key = rg_db_int(d, q, 0),
                            .input = rg_db_int(d, q, 1),
                            .state = (rg_batch_state)rg_db_int(d, q, 10),
                            .expires_s = rg_db_int(d, q, 11),
                            .n_lines = rg_db_int(d, q, 12),
                            .n_completed = rg_db_int(d, q, 13),
                            .n_failed = rg_db_int(d, q, 14) };
    copy_text(d, q, 2, b->id, sizeof b->id);
    copy_text(d, q, 3, b->owner, sizeof b->owner);
    copy_text(d, q, 4, b->input_id, sizeof b->input_id);
    copy_text(d, q, 5, b->output_id, sizeof b->output_id);
    copy_text(d, q, 6, b->error_id, sizeof b->error_id);
    b->endpoint = rg_db_bytes(d, q, 7, NULL);
    b->metadata = rg_db_bytes(d, q, 8, NULL);
    b->errors = rg_db_bytes(d, q, 9, NULL);
    for (int i = 0; i < RG_N_BATCH_STATES; i++)
        b->since_s[i] = rg_db_int(d, q, 15 + i);
    b->expires_at_s = b->expires_s + (b->state < RG_BATCH_COMPLETED ? wall_ahead_s(st) : 0);
}

static rg_stored add_batch(rg_batch_store *st, rg_batch_record *b, const char *purpose, int64_t lasts_s, rg_error *err)
{
    int64_t now = rg_wall_s();
    rg_file_record f;
    rg_stored found = rg_store_file(st, b->owner, b->input_id, &f, err);
    bool fits = found == RG_STORE_DONE && !f.batch && !strcmp(f.purpose, purpose);

    rg_db_reset(st->db, GET_FILE);
    if (found == RG_STORE_FAILED || !fits)
        return found == RG_STORE_FAILED ? found : RG_STORE_NONE;
    rg_store_name(b->id, strcmp(b->endpoint, RG_MESSAGES) != 0 ? "batch_" : "msgbatch_");
    b->input = f.key;
    b->state = RG_BATCH_VALIDATING;
    b->since_s[RG_BATCH_VALIDATING] = now;
    b->expires_s = rg_store_now(st) + lasts_s;
    b->expires_at_s = b->expires_s + wall_ahead_s(st);
    if (!rg_db_query(st->db, ADD_BATCH, err,
                     "ttittt"
                     "ii",
                     b->id, b->owner, b->input, b->input_id, b->endpoint, b->metadata, b->expires_s, now) ||
        !rg_db_run(st->db, ADD_BATCH, NULL, err))
        return RG_STORE_FAILED;
    b->key = rg_db_last_key(st->db);
    return rg_store_tick(st, err);
}

rg_stored rg_store_add_batch(rg_batch_store *st, rg_batch_record *b, const char *purpose, int64_t lasts_s,
                             rg_error *err)
{
    if (!rg_store_enter(st, err))
        return RG_STORE_FAILED;
    return rg_store_leave(st, add_batch(st, b, purpose, lasts_s, err), err);
}

rg_stored rg_store_batch(rg_batch_store *st, const char *owner, const char *id, rg_batch_record *b, rg_error *err)
{
    int got = rg_db_query(st->db, GET_BATCH, err, "tt", id, owner) ? rg_db_step(st->db, GET_BATCH, err) : -1;

    if (got == 1)
        read_batch(st, GET_BATCH, b);
    return (rg_stored)got;
}

static void see_batch(const rg_lister *l, const rg_batch_store *st, int q)
{
    rg_batch_record b;

    read_batch(st, q, &b);
    l->batch(l->arg, &b);
}

rg_stored rg_store_batches(rg_batch_store *st, const char *owner, rg_page *page,
                           void (*see)(void *arg, const rg_batch_record *b), void *arg, rg_error *err)
{
    rg_lister l = { BATCHES_UP, BATCHES_DOWN, GET_BATCH, see_batch, .batch = see, .arg = arg };

    return rg_store_list(st, owner, page, &l, err);
}

rg_stored rg_store_unended(rg_batch_store *st, int64_t after, rg_batch_record *b, rg_error *err)
{
    int got = rg_db_query(st->db, UNENDED, err, "i", after) ? rg_db_step(st->db, UNENDED, err) : -1;

    if (got == 1)
        read_batch(st, UNENDED, b);
    return (rg_stored)got;
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* Statement q, which has its parameters, changes one row or none. */
static rg_stored change_one(rg_batch_store *st, int q, rg_error *err)
{
    int64_t changed;

    if (!rg_db_run(st->db, q, &changed, err))
        return RG_STORE_FAILED;
    return changed ? RG_STORE_DONE : RG_STORE_NONE;
}

rg_stored rg_store_start_batch(rg_batch_store *st, int64_t batch, int64_t n_lines, rg_error *err)
{
    return rg_db_query(st->db, START_BATCH, err, "iii", batch, rg_wall_s(), n_lines) ? change_one(st, START_BATCH, err)
                                                                                     : RG_STORE_FAILED;
}

rg_stored rg_store_fail_batch(rg_batch_store *st, int64_t batch, const char *errors, rg_error *err)
{
    return rg_db_query(st->db, FAIL_BATCH, err, "iit", batch, rg_wall_s(), errors) ? change_one(st, FAIL_BATCH, err)
                                                                                   : RG_STORE_FAILED;
}

rg_stored rg_store_cancel_batch(rg_batch_store *st, int64_t batch, rg_error *err)
{
    return rg_db_query(st->db, CANCEL_BATCH, err, "ii", batch, rg_wall_s()) ? change_one(st, CANCEL_BATCH, err)
                                                                            : RG_STORE_FAILED;
}

/* The answers of one kind as a file of the batch's owner; id stays "" if there are none. */
static bool put_answers(rg_batch_store *st, const char *owner, const char *name, int64_t batch, rg_line_state part,
                        char id[RG_ID_ROOM], rg_error *err)
{
    rg_file_record f = {
        .batch = batch, .part = (int32_t)part, .name = name, .n_name = strlen(name), .purpose = "batch_output"
    };
    bool ok =
        rg_db_query(st->db, SUM_ANSWERS, err, "ii", batch, (int64_t)part) && rg_db_step(st->db, SUM_ANSWERS, err) == 1;

    if (!ok)
        return false;
    bool any = rg_db_int(st->db, SUM_ANSWERS, 0) > 0;
    f.bytes = rg_db_int(st->db, SUM_ANSWERS, 1);
    rg_db_reset(st->db, SUM_ANSWERS);
    if (any && !rg_store_put_file(st, owner, &f, err))
        return false;
    memcpy(id, f.id, RG_ID_ROOM);
    return true;
}

/* The answers of each kind as a file, and lines without any are dropped. */
static bool make_files(rg_batch_store *st, int64_t batch, const char *owner, const char *id, char output[RG_ID_ROOM],
                       char error[RG_ID_ROOM], rg_error *err)
{
    char name[RG_ID_ROOM + 32];

    snprintf(name, sizeof name, "%s_output.jsonl", id);
    if (!put_answers(st, owner, name, batch, RG_LINE_COMPLETED, output, err))
        return false;
    snprintf(name, sizeof name, "%s_error.jsonl", id);
    return put_answers(st, owner, name, batch, RG_LINE_FAILED, error, err) &&
           rg_db_query(st->db, REMOVE_LINES, err, "ii", batch, (int64_t)RG_LINE_PENDING) &&
           rg_db_run(st->db, REMOVE_LINES, NULL, err);
}

static rg_stored end_batch(rg_batch_store *st, int64_t batch, rg_batch_state state, rg_error *err)
{
    char owner[RG_OWNER_ROOM], id[RG_ID_ROOM], output[RG_ID_ROOM] = "", error[RG_ID_ROOM] = "";
    int got = rg_db_query(st->db, GET_OWNER, err, "i", batch) ? rg_db_step(st->db, GET_OWNER, err) : -1;
    bool ok;

    if (got != 1)
        return (rg_stored)got;
    copy_text(st->db, GET_OWNER, 0, owner, sizeof owner);
    copy_text(st->db, GET_OWNER, 1, id, sizeof id);
    rg_db_reset(st->db, GET_OWNER);
    if (!strncmp(id, "msgbatch_", 9))
        ok = rg_db_query(st->db, FILL_LINES, err, "it", batch, state == RG_BATCH_EXPIRED ? "expired" : "canceled") &&
             rg_db_run(st->db, FILL_LINES, NULL, err);
    else
        ok = make_files(st, batch, owner, id, output, error, err);
    if (!ok || !rg_db_query(st->db, END_BATCH, err, "iiitt", batch, (int64_t)state, rg_wall_s(), output, error))
        return RG_STORE_FAILED;
    return change_one(st, END_BATCH, err);
}

static bool run_for(rg_batch_store *st, int q, int64_t key, rg_error *err)
{
    return rg_db_query(st->db, q, err, "i", key) && rg_db_run(st->db, q, NULL, err);
}

static rg_stored remove_batch(rg_batch_store *st, const char *owner, const char *id, rg_error *err)
{
    rg_batch_record b;
    rg_stored got = rg_store_batch(st, owner, id, &b, err);

    if (got != RG_STORE_DONE)
        return got;
    rg_db_reset(st->db, GET_BATCH);
    if (b.state < RG_BATCH_COMPLETED)
        return RG_STORE_IN_USE;
    return run_for(st, REMOVE_ANSWERS, b.key, err) && run_for(st, REMOVE_CHUNKS, b.input, err) &&
                   run_for(st, REMOVE_FILE, b.input, err) && run_for(st, REMOVE_BATCH, b.key, err)
               ? RG_STORE_DONE
               : RG_STORE_FAILED;
}

rg_stored rg_store_remove_batch(rg_batch_store *st, const char *owner, const char *id, rg_error *err)
{
    if (!rg_store_enter(st, err))
        return RG_STORE_FAILED;
    return rg_store_leave(st, remove_batch(st, owner, id, err), err);
}

rg_stored rg_store_end_batch(rg_batch_store *st, int64_t batch, rg_batch_state state, rg_error *err)
{
    if (!rg_store_enter(st, err))
        return RG_STORE_FAILED;
    return rg_store_leave(st, end_batch(st, batch, state, err), err);
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

rg_stored rg_store_add_line(rg_batch_store *st, int64_t batch, const rg_line *l, rg_error *err)
{
    if (!rg_db_query(st->db, ADD_LINE, err, "ibii", rg_store_at(batch, l->number), l->custom_id, l->n_custom_id,
                     l->from, l->n))
        return RG_STORE_FAILED;
    if (rg_db_run(st->db, ADD_LINE, NULL, err))
        return RG_STORE_DONE;
    return rg_db_unique(st->db) ? RG_STORE_IN_USE : RG_STORE_FAILED;
}

rg_stored rg_store_next_line(rg_batch_store *st, int64_t batch, int64_t after, rg_line *l, rg_error *err)
{
    bool asked = rg_db_query(st->db, NEXT_LINE, err, "ii", rg_store_at(batch, after), rg_store_at(batch + 1, 0));
    int got = asked ? rg_db_step(st->db, NEXT_LINE, err) : -1;

    if (got == 1) {
        *l = (rg_line){ .number = rg_db_int(st->db, NEXT_LINE, 0) - rg_store_at(batch, 0),
                        .from = rg_db_int(st->db, NEXT_LINE, 1),
                        .n = rg_db_int(st->db, NEXT_LINE, 2) };
        l->custom_id = rg_db_bytes(st->db, NEXT_LINE, 3, &l->n_custom_id);
    }
    return (rg_stored)got;
}

static rg_stored set_answer(rg_batch_store *st, int64_t at, rg_line_state state, const char *answer, size_t n,
                            rg_error *err)
{
    rg_stored set;

    if (!rg_db_query(st->db, SET_ANSWER, err, "iib", at, (int64_t)state, answer, n))
        return RG_STORE_FAILED;
    set = change_one(st, SET_ANSWER, err);
    if (set != RG_STORE_DONE)
        return set;
    if (!rg_db_query(st->db, COUNT_ANSWER, err, "iii", at >> 20, (int64_t)(state == RG_LINE_COMPLETED),
                     (int64_t)(state == RG_LINE_FAILED)))
        return RG_STORE_FAILED;
    return change_one(st, COUNT_ANSWER, err);
}

rg_stored rg_store_set_answer(rg_batch_store *st, int64_t batch, int64_t number, rg_line_state state,
                              const char *answer, size_t n, rg_error *err)
{
    if (!rg_store_enter(st, err))
        return RG_STORE_FAILED;
    return rg_store_leave(st, set_answer(st, rg_store_at(batch, number), state, answer, n, err), err);
}
