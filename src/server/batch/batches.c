/* batches.c -- see batches.h: tasks, downloads, and the lines that run. */
#include "server/batch/batches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/batch/inner.h"

enum { MAX_TASKS = 256, SEND_AHEAD = 1 << 20 };

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

rg_task *rg_task_new(rg_served *s, rg_exchange *x, void (*run)(rg_task *t, rg_batch_store *st))
{
    rg_refusal e;
    rg_task *t = s->server->batches ? rg_zalloc(sizeof *t) : NULL;

    if (!t) {
        if (s->server->batches)
            rg_refuse_memory(&e);
        else
            rg_refuse(&e, 501, "batches_off", NULL,
                      "This server keeps no files and runs no batches: it was started without --batch-dir.");
        rg_reply_refusal(s, x, &e);
        return NULL;
    }
    t->served = s;
    t->x = x;
    t->run = run;
    t->owner = rg_owner_of(s->server->batches, rg_exchange_notes(x)->tenant);
    rg_exchange_keep(x);
    return t;
}

static void free_task(rg_task *t)
{
    rg_exchange_release(t->x);
    json_decref(t->body);
    rg_free(t);
}

void rg_task_refuse(rg_task *t, const rg_refusal *e)
{
    rg_reply_refusal(t->served, t->x, e);
    free_task(t);
}

void rg_task_give(rg_task *t)
{
    rg_batches *b = t->served->server->batches;
    rg_refusal e = { 0 };

    pthread_mutex_lock(&b->lock);
    if (b->closing) {
        rg_refuse(&e, 503, "shutting_down", NULL, "The server is shutting down.");
        e.retry_after_s = 5;
    } else if (b->n_tasks == MAX_TASKS) {
        rg_refuse(&e, 429, "queue_full", NULL, "Too many requests for files and batches are waiting.");
        e.retry_after_s = 1;
    } else {
        *b->tasks_end = t;
        b->tasks_end = &t->next;
        b->n_tasks++;
        pthread_cond_signal(&b->news);
    }
    pthread_mutex_unlock(&b->lock);
    if (e.status)
        rg_task_refuse(t, &e);
}

void rg_task_end_reading(rg_task *t, bool ok, const rg_refusal *e)
{
    if (ok)
        rg_task_give(t);
    else
        rg_task_refuse(t, e);
}

bool rg_task_read_id(rg_task *t, const char *prefix, const char *tail)
{
    const char *id = rg_exchange_path(t->x) + strlen(prefix);
    size_t n = strcspn(id, "/");

    if (strcmp(id + n, tail) != 0 || n >= sizeof t->id)
        return false;
    memcpy(t->id, id, n);
    t->id[n] = 0;
    return true;
}

bool rg_task_read_page(rg_task *t, int32_t usual, int32_t most, rg_refusal *e)
{
    const char *limit = rg_exchange_query(t->x, "limit"), *order = rg_exchange_query(t->x, "order");
    const char *after = rg_exchange_query(t->x, "after");
    char *end = NULL;
    long n = limit ? strtol(limit, &end, 10) : usual;

    if (limit && (end == limit || *end || n < 1 || n > most))
        return rg_refuse_field(e, "limit", "'limit' must be between 1 and %d.", (int)most);
    if (order && strcmp(order, "asc") != 0 && strcmp(order, "desc") != 0)
        return rg_refuse_field(e, "order", "'order' must be asc or desc.");
    t->page.limit = (int32_t)n;
    t->page.rising = order && !strcmp(order, "asc");
    snprintf(t->page.after, sizeof t->page.after, "%s", after ? after : "");
    return true;
}

void rg_task_fail(rg_task *t, const rg_batch_store *st, rg_stored got, const rg_refusal *unknown, const rg_error *err)
{
    rg_refusal e = *unknown;

    if (got != RG_STORE_NONE) {
        rg_log(RG_LOG_WARN, "serve: files and batches: %s", err->text);
        if (err->code == RG_E_MEMORY)
            rg_refuse_memory(&e);
        else if (rg_store_full(st))
            rg_refuse(&e, 507, "storage_full", NULL, "There is no room left for files and batches on the server.");
        else
            rg_refuse(&e, 500, "storage_failed", NULL, "The server's files and batches failed; its log says why.");
    }
    rg_reply_refusal(t->served, t->x, &e);
}

void rg_listing_open(rg_listing *l)
{
    *l = (rg_listing){ 0 };
    rg_buf_init(&l->out, (size_t)1 << 28);
    rg_out_open(&l->out, NULL, '{');
    rg_out_text(&l->out, "object", "list");
    rg_out_open(&l->out, "data", '[');
}

void rg_listing_add(rg_listing *l, const char *id)
{
    snprintf(l->last, sizeof l->last, "%s", id);
    if (!l->first[0])
        memcpy(l->first, l->last, sizeof l->first);
}

void rg_listing_reply(rg_listing *l, rg_task *t, const rg_batch_store *st, rg_stored got, const rg_error *err)
{
    rg_refusal unknown;

    if (got != RG_STORE_DONE) {
        rg_buf_fini(&l->out);
        rg_refuse_field(&unknown, "after", "There is nothing with the id 'after' to go on from.");
        rg_task_fail(t, st, got, &unknown, err);
        return;
    }
    rg_out_close(&l->out, ']');
    rg_out_text(&l->out, "first_id", l->first[0] ? l->first : NULL);
    rg_out_text(&l->out, "last_id", l->last[0] ? l->last : NULL);
    rg_out_bool(&l->out, "has_more", t->page.more);
    rg_out_close(&l->out, '}');
    rg_reply_json(t->served, t->x, &l->out);
}

static void run_tasks(rg_batches *b)
{
    rg_task *t, *next;

    pthread_mutex_lock(&b->lock);
    t = b->tasks;
    b->tasks = NULL;
    b->tasks_end = &b->tasks;
    b->n_tasks = 0;
    pthread_mutex_unlock(&b->lock);
    for (; t; t = next) {
        next = t->next;
        rg_json_watch();
        t->run(t, b->st);
        rg_store_rest(b->st);
        free_task(t);
    }
}

/* ---- downloads --------------------------------------------------------------------------------------------------- */

struct rg_download {
    struct rg_download *next;
    rg_exchange *x;
    rg_file_record f;
    int64_t at;
    rg_buf piece;
};

void rg_batches_send(rg_task *t, const rg_file_record *f)
{
    rg_batches *b = t->served->server->batches;
    rg_download *d = rg_zalloc(sizeof *d);
    rg_refusal e;

    if (!d) {
        rg_refuse_memory(&e);
        rg_reply_refusal(t->served, t->x, &e);
        return;
    }
    d->x = t->x;
    d->f = *f;
    rg_buf_init(&d->piece, (size_t)1 << 40);
    rg_exchange_keep(d->x);
    rg_exchange_stream(d->x, "application/octet-stream");
    rg_note_answer(t->served, d->x, 200);
    d->next = b->downloads;
    b->downloads = d;
}

/* False: it is over. */
static bool feed(rg_batches *b, rg_download *d)
{
    rg_error err = { 0 };

    while (!rg_exchange_gone(d->x)) {
        if (rg_exchange_waiting(d->x) > SEND_AHEAD)
            return true;
        rg_buf_reset(&d->piece);
        rg_stored got = rg_store_read(b->st, &d->f, &d->at, &d->piece, &err);
        if (got == RG_STORE_DONE) {
            rg_exchange_write(d->x, d->piece.data ? d->piece.data : "", d->piece.n);
        } else if (got == RG_STORE_NONE) {
            rg_exchange_end(d->x);
            return false;
        } else {
            rg_log(RG_LOG_WARN, "serve: a file was not sent to its end: %s", err.text);
            rg_exchange_leave(d->x); /* the client sees that something is missing */
        }
    }
    return false;
}

static void feed_all(rg_batches *b, bool closing)
{
    for (rg_download **at = &b->downloads; *at;) {
        rg_download *d = *at;
        if (closing)
            rg_exchange_leave(d->x);
        if (feed(b, d)) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        rg_buf_fini(&d->piece);
        rg_exchange_release(d->x);
        rg_free(d);
    }
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

static void sleep_until_news(rg_batches *b, double s)
{
    pthread_mutex_lock(&b->lock);
    if (!b->tasks && !b->answered && !b->closing)
        rg_cond_wait(&b->news, &b->lock, s);
    b->answered = false;
    pthread_mutex_unlock(&b->lock);
}

static bool is_closing(rg_batches *b)
{
    pthread_mutex_lock(&b->lock);
    bool closing = b->closing;
    pthread_mutex_unlock(&b->lock);
    return closing;
}

static void *run(void *arg)
{
    rg_batches *b = arg;

    while (!is_closing(b)) {
        run_tasks(b);
        bool wanting = rg_lines_turn(b);
        feed_all(b, false);
        sleep_until_news(b, wanting || b->downloads ? 0.01 : 0.5);
    }
    rg_lines_turn(b);
    run_tasks(b);
    feed_all(b, true);
    return NULL;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

rg_batches *rg_batches_open(rg_server *s, rg_error *err)
{
    rg_batches *b = rg_zalloc(sizeof *b);

    if (!b)
        return rg_fail_memory(err, sizeof *b), NULL;
    b->s = s;
    b->tasks_end = &b->tasks;
    pthread_mutex_init(&b->lock, NULL);
    b->news_made = rg_cond_init(&b->news);
    if (!b->news_made) {
        rg_fail_memory(err, 0);
        goto fail;
    }
    b->st = rg_store_open(s->o.batch_dir, err);
    if (!b->st || !rg_lines_open(b, err))
        goto fail;
    s->batches = b; /* what the thread's tasks find it by */
    b->runs = rg_thread_start(&b->thread, run, b);
    if (b->runs)
        return b;
    s->batches = NULL;
    rg_fail(err, RG_E_IO, "cannot start the thread of files and batches");

fail:
    rg_batches_free(b);
    return NULL;
}

void rg_batches_stop(rg_batches *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    b->closing = true;
    pthread_cond_signal(&b->news);
    pthread_mutex_unlock(&b->lock);
    if (b->runs)
        pthread_join(b->thread, NULL);
    b->runs = false;
}

void rg_batches_free(rg_batches *b)
{
    if (!b)
        return;
    rg_batches_stop(b);
    rg_lines_close(b);
    rg_store_close(b->st);
    if (b->news_made)
        pthread_cond_destroy(&b->news);
    pthread_mutex_destroy(&b->lock);
    rg_free(b);
}
