/* kept.c -- see kept.h: a table of texts by id, in the order of their age; the thread that writes them to the disk. */
#include "server/kept.h"

#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/db.h"
#include "server/keys.h"

enum { BUCKETS = 1 << 12 };

typedef struct entry entry;
struct entry {
    entry *same;          /* the next of its bucket */
    entry *older, *newer; /* in the order in which they were kept or read */
    char id[RG_KEPT_ID], owner[RG_OWNER_ROOM];
    char *text; /* NULL: it was removed, and the database does not know it yet */
    size_t n;
    uint64_t version; /* counts what was kept under the id */
    uint64_t used_ns;
    bool unwritten;
};

struct rg_kept_texts {
    rg_kept_options o;
    pthread_mutex_t lock; /* of the table */
    pthread_cond_t news;
    bool news_made, runs, closing;
    pthread_t thread;
    entry *bucket[BUCKETS];
    entry *oldest, *newest;
    size_t bytes, n_unwritten;
    uint64_t version;
    pthread_mutex_t change;  /* rg_kept_hold */
    pthread_mutex_t db_lock; /* of the database, taken before the table's where both are */
    rg_db *db;
};

/* ---- the table, under its lock ----------------------------------------------------------------------------------- */

static entry **bucket_of(rg_kept_texts *k, const char *id)
{
    return &k->bucket[rg_hash(id, strlen(id), 0) % BUCKETS];
}

static entry *find(rg_kept_texts *k, const char *owner, const char *id)
{
    entry *e = *bucket_of(k, id);

    while (e && (strcmp(e->id, id) != 0 || strcmp(e->owner, owner) != 0))
        e = e->same;
    return e;
}

static void unlink_age(rg_kept_texts *k, entry *e)
{
    if (e->older)
        e->older->newer = e->newer;
    else
        k->oldest = e->newer;
    if (e->newer)
        e->newer->older = e->older;
    else
        k->newest = e->older;
}

static void link_newest(rg_kept_texts *k, entry *e)
{
    e->used_ns = rg_now_ns();
    e->older = k->newest;
    e->newer = NULL;
    if (k->newest)
        k->newest->newer = e;
    else
        k->oldest = e;
    k->newest = e;
}

static void drop(rg_kept_texts *k, entry *e)
{
    entry **at = bucket_of(k, e->id);

    while (*at != e)
        at = &(*at)->same;
    *at = e->same;
    unlink_age(k, e);
    k->bytes -= e->n;
    rg_free(e->text);
    rg_free(e);
}

/* Let go of what is too old, or too much. */
static void make_room(rg_kept_texts *k)
{
    uint64_t now = rg_now_ns();

    for (entry *e = k->oldest, *next; e; e = next) {
        next = e->newer;
        if (rg_seconds(e->used_ns, now) <= k->o.lasts_s && k->bytes <= k->o.max_bytes)
            return;
        if (!e->unwritten)
            drop(k, e);
    }
}

/* Put a text, which is taken, or NULL for a removal.  The entry; NULL: no memory. */
static entry *set(rg_kept_texts *k, const char *owner, const char *id, char *text, size_t n)
{
    entry *e = find(k, owner, id);

    if (!e) {
        e = rg_zalloc(sizeof *e);
        if (!e)
            return NULL;
        memcpy(e->id, id, strlen(id) + 1);
        memcpy(e->owner, owner, strlen(owner) + 1);
        e->same = *bucket_of(k, id);
        *bucket_of(k, id) = e;
    } else {
        unlink_age(k, e);
        rg_free(e->text);
        k->bytes -= e->n;
    }
    link_newest(k, e);
    e->text = text;
    e->n = n;
    k->bytes += n;
    e->version = ++k->version;
    return e;
}

static void must_write(rg_kept_texts *k, entry *e)
{
    if (!k->db)
        return;
    k->n_unwritten += !e->unwritten;
    e->unwritten = true;
    pthread_cond_signal(&k->news);
}

/* ---- the database ------------------------------------------------------------------------------------------------ */

enum { PUT, GET, REMOVE, N_STATEMENTS };

static const char *const statements[N_STATEMENTS] = {
    [PUT] = "INSERT OR REPLACE INTO kept(id, owner, since, text) VALUES(?,?,?,?)",
    [GET] = "SELECT text FROM kept WHERE id = ? AND owner = ?",
    [REMOVE] = "DELETE FROM kept WHERE id = ? AND owner = ?",
};

static const rg_db_layout layout = {
    .schema = "CREATE TABLE kept(id TEXT NOT NULL, owner TEXT NOT NULL, since INTEGER NOT NULL, text BLOB NOT NULL,"
              " PRIMARY KEY(id, owner)) STRICT, WITHOUT ROWID;",
    .version = 1,
    .sql = statements,
    .n_sql = N_STATEMENTS
};

/* Under the database's lock. */
static bool write_one(rg_kept_texts *k, const entry *e)
{
    rg_error err = { 0 };
    bool ok = e->text ? rg_db_query(k->db, PUT, &err, "ttib", e->id, e->owner, rg_wall_s(), e->text, e->n) &&
                            rg_db_run(k->db, PUT, NULL, &err)
                      : rg_db_query(k->db, REMOVE, &err, "tt", e->id, e->owner) && rg_db_run(k->db, REMOVE, NULL, &err);

    if (!ok)
        rg_log(RG_LOG_WARN, "serve: a response was not stored: %s", err.text);
    return ok;
}

static entry *first_unwritten(const rg_kept_texts *k)
{
    entry *e = k->oldest;

    while (e && !e->unwritten)
        e = e->newer;
    return e;
}

/* A copy of the next entry to be written, to be freed; NULL: there is none, or no memory for it now. */
static entry *take_unwritten(rg_kept_texts *k)
{
    entry *e, *copy = NULL;

    pthread_mutex_lock(&k->lock);
    e = first_unwritten(k);
    copy = e ? rg_zalloc(sizeof *copy) : NULL;
    if (copy) {
        *copy = *e;
        copy->text = e->text ? rg_strndup(e->text, e->n) : NULL;
        if (e->text && !copy->text) {
            rg_free(copy);
            copy = NULL;
        }
    }
    pthread_mutex_unlock(&k->lock);
    return copy;
}

static void note_written(rg_kept_texts *k, const entry *copy)
{
    entry *e;

    pthread_mutex_lock(&k->lock);
    e = find(k, copy->owner, copy->id);
    if (e && e->version == copy->version) {
        e->unwritten = false;
        k->n_unwritten--;
        if (!e->text)
            drop(k, e);
    }
    make_room(k);
    pthread_mutex_unlock(&k->lock);
}

/* Write what is to be written.  False: something could not be, and is tried again later. */
static bool write_all(rg_kept_texts *k)
{
    entry *e;
    bool ok = true;

    while (ok && (e = take_unwritten(k))) {
        pthread_mutex_lock(&k->db_lock);
        ok = write_one(k, e);
        pthread_mutex_unlock(&k->db_lock);
        if (ok)
            note_written(k, e);
        rg_free(e->text);
        rg_free(e);
    }
    return ok;
}

static void *run(void *arg)
{
    rg_kept_texts *k = arg;
    bool closing = false, ok = true;

    while (!closing) {
        pthread_mutex_lock(&k->lock);
        if (!k->closing && (!k->n_unwritten || !ok))
            rg_cond_wait(&k->news, &k->lock, ok ? 60 : 1);
        closing = k->closing;
        pthread_mutex_unlock(&k->lock);
        ok = write_all(k);
    }
    return NULL;
}

/* What memory no longer has. */
static char *read_from_disk(rg_kept_texts *k, const char *owner, const char *id, size_t *n)
{
    rg_error err = { 0 };
    char *text = NULL;
    int got;

    pthread_mutex_lock(&k->db_lock);
    got = rg_db_query(k->db, GET, &err, "tt", id, owner) ? rg_db_step(k->db, GET, &err) : -1;
    if (got == 1) {
        const char *s = rg_db_bytes(k->db, GET, 0, n);
        text = rg_strndup(s, *n);
        if (!text)
            rg_json_lose();
        rg_db_reset(k->db, GET);
    } else if (got < 0) {
        rg_log(RG_LOG_WARN, "serve: a response was not read: %s", err.text);
    }
    pthread_mutex_unlock(&k->db_lock);
    return text;
}

/* ---- from outside ------------------------------------------------------------------------------------------------ */

static bool can_be(const char *owner, const char *id)
{
    return strlen(id) < RG_KEPT_ID && strlen(owner) < RG_OWNER_ROOM;
}

bool rg_kept_put(rg_kept_texts *k, const char *owner, const char *id, const char *text, size_t n)
{
    char *copy = can_be(owner, id) ? rg_strndup(text, n) : NULL;
    entry *e;

    if (!copy) {
        if (can_be(owner, id))
            rg_json_lose();
        return false;
    }
    pthread_mutex_lock(&k->lock);
    e = set(k, owner, id, copy, n);
    if (e)
        must_write(k, e);
    make_room(k);
    pthread_mutex_unlock(&k->lock);
    if (!e) {
        rg_free(copy);
        rg_json_lose();
    }
    return e;
}

char *rg_kept_get(rg_kept_texts *k, const char *owner, const char *id, size_t *n)
{
    char *text = NULL;
    bool removed = false;
    entry *e;

    if (!can_be(owner, id))
        return NULL;
    pthread_mutex_lock(&k->lock);
    make_room(k);
    e = find(k, owner, id);
    if (e && e->text) {
        text = rg_strndup(e->text, e->n);
        if (!text)
            rg_json_lose();
        *n = e->n;
        unlink_age(k, e);
        link_newest(k, e);
    }
    removed = e && !e->text;
    pthread_mutex_unlock(&k->lock);
    return text || removed || !k->db ? text : read_from_disk(k, owner, id, n);
}

bool rg_kept_remove(rg_kept_texts *k, const char *owner, const char *id)
{
    size_t n;
    char *text = rg_kept_get(k, owner, id, &n);
    const bool there = text;
    entry *e;

    rg_free(text);
    if (!there)
        return false;
    pthread_mutex_lock(&k->lock);
    e = k->db ? set(k, owner, id, NULL, 0) : find(k, owner, id);
    if (e && k->db)
        must_write(k, e);
    else if (e)
        drop(k, e);
    pthread_mutex_unlock(&k->lock);
    if (!e && k->db)
        rg_json_lose();
    return e || !k->db;
}

void rg_kept_hold(rg_kept_texts *k)
{
    pthread_mutex_lock(&k->change);
}

void rg_kept_release(rg_kept_texts *k)
{
    pthread_mutex_unlock(&k->change);
}

size_t rg_kept_bytes(rg_kept_texts *k)
{
    pthread_mutex_lock(&k->lock);
    size_t n = k->bytes;
    pthread_mutex_unlock(&k->lock);
    return n;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static bool open_db(rg_kept_texts *k, rg_error *err)
{
    char path[4096];

    if (!rg_dir_make(k->o.dir, err))
        return false;
    if (!rg_path_join(path, sizeof path, k->o.dir, "responses.db"))
        return rg_fail(err, RG_E_USAGE, "the path of --store is too long");
    k->db = rg_db_open(path, &layout, err);
    if (!k->db)
        return false;
    k->runs = rg_thread_start(&k->thread, run, k);
    return k->runs || rg_fail(err, RG_E_IO, "cannot start the thread that stores responses");
}

rg_kept_texts *rg_kept_open(const rg_kept_options *o, rg_error *err)
{
    rg_kept_texts *k = rg_zalloc(sizeof *k);

    if (!k)
        return rg_fail_memory(err, sizeof *k), NULL;
    k->o = *o;
    pthread_mutex_init(&k->lock, NULL);
    pthread_mutex_init(&k->db_lock, NULL);
    pthread_mutex_init(&k->change, NULL);
    k->news_made = rg_cond_init(&k->news);
    if (!k->news_made)
        rg_fail_memory(err, 0);
    else if (!o->dir || open_db(k, err))
        return k;
    rg_kept_close(k);
    return NULL;
}

void rg_kept_close(rg_kept_texts *k)
{
    if (!k)
        return;
    if (k->runs) {
        pthread_mutex_lock(&k->lock);
        k->closing = true;
        pthread_cond_signal(&k->news);
        pthread_mutex_unlock(&k->lock);
        pthread_join(k->thread, NULL);
    }
    rg_db_close(k->db);
    for (entry *e = k->oldest, *next; e; e = next) {
        next = e->newer;
        rg_free(e->text);
        rg_free(e);
    }
    if (k->news_made)
        pthread_cond_destroy(&k->news);
    pthread_mutex_destroy(&k->lock);
    pthread_mutex_destroy(&k->db_lock);
    pthread_mutex_destroy(&k->change);
    rg_free(k);
}
