/* models.c -- see models.h. */
#include "server/models.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "server/json.h"

/* How often models are looked at that nobody asks for, and how long one that waits for memory lets others answer on
 * before those take no more. */
static const double look_s = 0.2, patience_s = 2;

typedef struct rg_waiter {
    rg_exchange *x;
    struct rg_waiter *next;
} rg_waiter;

/* What a server has as one of several models; under the lock. */
struct rg_model_slot {
    char *path;
    uint64_t stored_bytes; /* of its files, */
    int64_t modified_s;    /*   and the latest time of them */
    rg_model_facts facts;  /* if known */
    bool known;
    bool is_open, leaves; /* leaves: it takes nothing new, and is closed as soon as it answers nothing */
    int n_users;          /* who hold it, beside the calls of its pump */
    double keep_s;
    uint64_t used_ns; /* when it last did something */
    rg_waiter *waiting, **end;
    int n_waiting;
    uint64_t since; /* the number of its first waiter */
};

struct rg_models {
    rg_server_models o;
    rg_server *server;
    rg_served **all; /* [n], the first is server->first */
    int n, room;
    pthread_mutex_t lock;
    pthread_cond_t news; /* somebody waits, or a model has nothing to do */
    bool news_made, closing, runs;
    pthread_t thread;
    uint64_t n_waiters; /* so far */
};

rg_models *rg_models_new(rg_server *server, const rg_server_models *o, rg_error *err)
{
    rg_models *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    m->o = *o;
    m->server = server;
    pthread_mutex_init(&m->lock, NULL);
    m->news_made = rg_cond_init(&m->news);
    m->room = 1;
    m->all = rg_array(1, sizeof(rg_served *));
    if (m->all && m->news_made)
        return m;
    rg_models_free(m);
    return rg_fail_memory(err, 0), NULL;
}

static bool grow(rg_models *m, rg_error *err)
{
    const int room = 2 * m->room;

    if (m->n < m->room)
        return true;
    rg_served **all = rg_array((size_t)room, sizeof(rg_served *));
    if (!all)
        return rg_fail_memory(err, (size_t)room * sizeof(rg_served *));
    memcpy(all, m->all, (size_t)m->n * sizeof(rg_served *));
    rg_free(m->all);
    m->all = all;
    m->room = room;
    return true;
}

static void look_at_file(struct rg_model_slot *slot, const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return;
    slot->stored_bytes += (uint64_t)st.st_size;
    slot->modified_s = st.st_mtime > slot->modified_s ? st.st_mtime : slot->modified_s;
}

static bool look_within(void *arg, const char *name)
{
    struct rg_model_slot *slot = arg;
    char path[2048];

    if (rg_path_join(path, sizeof path, slot->path, name))
        look_at_file(slot, path);
    return true;
}

static void look_at_files(struct rg_model_slot *slot)
{
    rg_error err;

    if (rg_path_look(slot->path) != RG_PATH_DIR)
        look_at_file(slot, slot->path);
    else if (!rg_dir_list(slot->path, look_within, slot, &err))
        slot->stored_bytes = 0; /* it will be refused when it is opened */
}

uint64_t rg_models_stored(const rg_served *s, int64_t *modified_s)
{
    *modified_s = s->slot->modified_s;
    return s->slot->stored_bytes;
}

const rg_model_facts *rg_models_facts(const rg_served *s)
{
    return s->slot->known ? &s->slot->facts : NULL;
}

int64_t rg_models_expire_s(rg_served *s)
{
    int64_t at = 0;

    pthread_mutex_lock(&s->server->models->lock);
    double left = s->slot->keep_s - rg_seconds(s->slot->used_ns, rg_now_ns());
    if (s->slot->keep_s >= 0)
        at = rg_wall_s() + (left > 0 ? (int64_t)left : 0);
    pthread_mutex_unlock(&s->server->models->lock);
    return at;
}

bool rg_models_add(rg_models *m, const char *name, const char *path, rg_error *err)
{
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->all[i]->name, name))
            return rg_fail(err, RG_E_USAGE, "two models are called '%.200s': %.500s and %.500s", name,
                           m->all[i]->slot->path, path);
    struct rg_model_slot *slot = rg_zalloc(sizeof *slot);
    char *copy = rg_strdup(path);
    rg_served *s = m->n ? rg_served_new(m->server, name, err) : m->server->first;

    if (!slot || !copy || !s || !grow(m, err)) {
        rg_free(slot);
        rg_free(copy);
        return s ? rg_fail_memory(err, sizeof *slot) : false;
    }
    *slot = (struct rg_model_slot){ .path = copy, .keep_s = m->o.keep_alive_s, .end = &slot->waiting };
    look_at_files(slot);
    slot->known = m->o.look && m->o.look(m->o.arg, path, &slot->facts);
    s->slot = slot;
    m->all[m->n++] = s;
    return true;
}

rg_served *rg_models_nth(rg_models *m, int i)
{
    return i < m->n ? m->all[i] : NULL;
}

rg_served *rg_models_find(rg_server *s, const char *name)
{
    rg_served *each;

    for (int i = 0; (each = rg_server_nth(s, i)); i++)
        if (rg_is_model(each, name) && (!i || strcmp(name, "default") != 0))
            return each;
    return NULL;
}

rg_served *rg_models_told(rg_served *s, rg_exchange *x, rg_refusal *e)
{
    const char *name = rg_exchange_query(x, "model");

    if (!s->server->models || !name || !*name)
        return rg_check_model(s, name, e) ? s : NULL;
    rg_served *named = rg_models_find(s->server, name);
    if (!named)
        rg_refuse_model(s, e);
    return named;
}

/* ---- exchanges --------------------------------------------------------------------------------------------------- */

/* The model that an exchange asks for, in to: "model", or as Ollama's older clients say, "name".  False: none. */
static bool name_asked(rg_exchange *x, char *to, size_t room)
{
    size_t n;
    const char *body = rg_exchange_body(x, &n), *query = rg_exchange_query(x, "model");

    if (rg_json_member(body, n, "model", to, room) || rg_json_member(body, n, "name", to, room))
        return *to;
    return query && snprintf(to, room, "%s", query) > 0;
}

static rg_served *find(rg_models *m, rg_exchange *x)
{
    char name[512];

    return name_asked(x, name, sizeof name) ? rg_models_find(m->server, name) : m->all[0];
}

static void refuse_unknown(rg_models *m, rg_exchange *x)
{
    rg_refusal e = { 0 };

    rg_refuse_model(m->all[0], &e);
    rg_reply_refusal(m->all[0], x, &e);
}

/* Under the lock: it waits behind others. */
static bool wait_for(rg_models *m, struct rg_model_slot *slot, rg_exchange *x)
{
    rg_waiter *w = rg_zalloc(sizeof *w);

    if (!w)
        return false;
    w->x = x;
    rg_exchange_keep(x);
    if (!slot->waiting)
        slot->since = m->n_waiters;
    m->n_waiters++;
    *slot->end = w;
    slot->end = &w->next;
    slot->n_waiting++;
    pthread_cond_signal(&m->news);
    return true;
}

/* used: an exchange was answered, so that the time until it is closed begins anew. */
static void release(rg_served *s, bool used)
{
    rg_models *m = s->server->models;

    pthread_mutex_lock(&m->lock);
    if (used)
        s->slot->used_ns = rg_now_ns();
    if (!--s->slot->n_users)
        pthread_cond_signal(&m->news);
    pthread_mutex_unlock(&m->lock);
}

void rg_models_answer(rg_models *m, rg_exchange *x)
{
    rg_served *s = find(m, x);
    rg_refusal e = { 0 };
    bool waits = false, refused = false;

    if (!s) {
        refuse_unknown(m, x);
        return;
    }
    pthread_mutex_lock(&m->lock);
    if (m->closing)
        refused = !rg_refuse(&e, 503, "shutting_down", NULL, "The server is shutting down.");
    else if (s->slot->is_open && !s->slot->leaves)
        s->slot->n_users++;
    else if (!(waits = wait_for(m, s->slot, x)))
        refused = !rg_refuse_memory(&e);
    pthread_mutex_unlock(&m->lock);
    if (refused)
        rg_reply_refusal(s, x, &e);
    else if (!waits) {
        rg_endpoint_answer(s, x);
        release(s, true);
    }
}

rg_served *rg_server_nth(rg_server *s, int i)
{
    return s->models ? rg_models_nth(s->models, i) : i ? NULL : s->first;
}

bool rg_served_hold(rg_served *s)
{
    bool held;

    if (!s->server->models)
        return atomic_load(&s->engine) != NULL;
    pthread_mutex_lock(&s->server->models->lock);
    held = s->slot->is_open;
    s->slot->n_users += held;
    pthread_mutex_unlock(&s->server->models->lock);
    return held;
}

void rg_served_release(rg_served *s)
{
    if (s->server->models)
        release(s, false);
}

bool rg_models_is_wanted(rg_served *s)
{
    bool is;

    pthread_mutex_lock(&s->server->models->lock);
    is = s->slot->waiting;
    pthread_mutex_unlock(&s->server->models->lock);
    return is;
}

void rg_models_keep(rg_served *s, double seconds)
{
    rg_models *m = s->server->models;

    pthread_mutex_lock(&m->lock);
    s->slot->keep_s = seconds;
    pthread_cond_signal(&m->news);
    pthread_mutex_unlock(&m->lock);
}

int rg_models_in_flight(rg_models *m)
{
    int n = 0;

    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < m->n; i++)
        n += atomic_load(&m->all[i]->n_in_flight) + m->all[i]->slot->n_waiting;
    pthread_mutex_unlock(&m->lock);
    return n;
}

/* ---- closing models ---------------------------------------------------------------------------------------------- */

static bool is_idle(const rg_served *s)
{
    return s->slot->is_open && !s->slot->n_users && !atomic_load(&s->n_in_flight);
}

/* Under the lock, which is let go meanwhile: an idle model is closed. */
static void close_model(rg_models *m, rg_served *s)
{
    s->slot->is_open = false;
    pthread_mutex_unlock(&m->lock);
    rg_log(RG_LOG_INFO, "serve: closing '%s'", s->name);
    rg_served_close(s);
    pthread_mutex_lock(&m->lock);
    s->slot->leaves = false;
}

/* Models that were used longest ago go first. */
static rg_served *oldest(const rg_models *m, bool idle)
{
    rg_served *s = NULL;

    for (int i = 0; i < m->n; i++)
        if ((idle ? is_idle(m->all[i]) : m->all[i]->slot->is_open) &&
            (!s || m->all[i]->slot->used_ns < s->slot->used_ns))
            s = m->all[i];
    return s;
}

static bool has_expired(const struct rg_model_slot *slot, uint64_t now)
{
    return slot->keep_s >= 0 && rg_seconds(slot->used_ns, now) >= slot->keep_s;
}

/* Under the lock: models that nobody has asked for long enough, and those that are to leave. */
static void close_unused(rg_models *m)
{
    const uint64_t now = rg_now_ns();

    for (int i = 0; i < m->n; i++) {
        rg_served *s = m->all[i];

        if (s->slot->is_open && !is_idle(s))
            s->slot->used_ns = now;
        else if (is_idle(s) && (s->slot->leaves || has_expired(s->slot, now)))
            close_model(m, s);
    }
}

/* ---- opening models ---------------------------------------------------------------------------------------------- */

/* Under the lock: those who waited, and are not waiting any more. */
static rg_waiter *take_waiting(struct rg_model_slot *slot)
{
    rg_waiter *w = slot->waiting;

    slot->waiting = NULL;
    slot->end = &slot->waiting;
    slot->n_waiting = 0;
    return w;
}

/* e NULL: they are answered. */
static void answer_all(rg_served *s, rg_waiter *w, const rg_refusal *e)
{
    for (rg_waiter *next; w; w = next) {
        next = w->next;
        if (e)
            rg_reply_refusal(s, w->x, e);
        else
            rg_endpoint_answer(s, w->x);
        rg_exchange_release(w->x);
        rg_free(w);
    }
}

static bool all_gone(const struct rg_model_slot *slot)
{
    for (const rg_waiter *w = slot->waiting; w; w = w->next)
        if (!rg_exchange_gone(w->x))
            return false;
    return true;
}

/* Under the lock: another model gives up its memory: one that is idle, or after some patience one that answers, which
 * then takes nothing new.  False: none has any. */
static bool make_room(rg_models *m, uint64_t since_ns)
{
    rg_served *idle = oldest(m, true), *busy = oldest(m, false);

    if (idle) {
        close_model(m, idle);
        return true;
    }
    if (!busy)
        return false;
    if (rg_seconds(since_ns, rg_now_ns()) > patience_s)
        busy->slot->leaves = true;
    rg_cond_wait(&m->news, &m->lock, look_s);
    close_unused(m);
    return true;
}

/* Under the lock, which is let go while the model is opened. */
static void open_model(rg_models *m, rg_served *s)
{
    const uint64_t since = rg_now_ns();
    rg_engine *engine = NULL;
    rg_error err = { 0 };
    rg_refusal e = { 0 };
    rg_waiter *w;

    while (!m->closing && !engine && !all_gone(s->slot)) {
        pthread_mutex_unlock(&m->lock);
        engine = m->o.open(m->o.arg, s->slot->path, s, &err);
        if (engine && !rg_served_open(s, engine, &err)) {
            rg_close(engine);
            engine = NULL;
        }
        pthread_mutex_lock(&m->lock);
        if (!engine && (err.code != RG_E_LIMIT || !make_room(m, since)))
            break;
    }
    w = take_waiting(s->slot);
    s->slot->is_open = engine;
    s->slot->n_users += engine != NULL;
    s->slot->used_ns = rg_now_ns();
    pthread_mutex_unlock(&m->lock);
    rg_json_watch(); /* values that were lost before the model was open do not concern those who wait */
    if (!engine) {
        rg_log(RG_LOG_WARN, "serve: '%s' cannot be opened: %s", s->name, err.text);
        rg_refuse(&e, err.code == RG_E_LIMIT ? 503 : 500, "model_not_loaded", "model",
                  "The model '%.200s' cannot be loaded%s.", s->name,
                  err.code == RG_E_LIMIT ? ": there is too little memory for it" : "");
    }
    answer_all(s, w, engine ? NULL : &e);
    pthread_mutex_lock(&m->lock);
    s->slot->n_users -= engine != NULL;
}

/* The model for which somebody has waited longest; NULL: nobody waits. */
static rg_served *first_wanted(const rg_models *m)
{
    rg_served *first = NULL;

    for (int i = 0; i < m->n; i++)
        if (m->all[i]->slot->waiting && !m->all[i]->slot->is_open &&
            (!first || m->all[i]->slot->since < first->slot->since))
            first = m->all[i];
    return first;
}

static void *run(void *arg)
{
    rg_models *m = arg;

    pthread_mutex_lock(&m->lock);
    while (!m->closing) {
        rg_served *s = first_wanted(m);

        if (s)
            open_model(m, s);
        else
            rg_cond_wait(&m->news, &m->lock, look_s);
        close_unused(m);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

bool rg_models_start(rg_models *m, rg_error *err)
{
    m->runs = rg_thread_start(&m->thread, run, m);
    return m->runs || rg_fail(err, RG_E_IO, "cannot start the thread that opens models");
}

void rg_models_stop(rg_models *m)
{
    rg_refusal e = { 0 };

    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->closing = true;
    pthread_cond_signal(&m->news);
    pthread_mutex_unlock(&m->lock);
    if (m->runs)
        pthread_join(m->thread, NULL);
    m->runs = false;
    rg_refuse(&e, 503, "shutting_down", NULL, "The server is shutting down.");
    for (int i = 0; i < m->n; i++)
        answer_all(m->all[i], take_waiting(m->all[i]->slot), &e);
}

void rg_models_free(rg_models *m)
{
    if (!m)
        return;
    for (int i = 0; i < m->n; i++) {
        if (m->all[i]->slot->is_open)
            rg_served_close(m->all[i]);
        rg_free(m->all[i]->slot->path);
        rg_free(m->all[i]->slot);
        m->all[i]->slot = NULL;
        if (i)
            rg_served_free(m->all[i]);
    }
    if (m->news_made)
        pthread_cond_destroy(&m->news);
    pthread_mutex_destroy(&m->lock);
    rg_free(m->all);
    rg_free(m);
}
