/* rank_calls.c -- see rank_calls.h.
 *
 * A message is a stream of bytes in rank 0's slot, read as it was written: a short first piece, which holds all of a
 * small step, then longer ones. */
#include "model/rank_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

enum {
    FIRST_PIECE = 4096,
    PIECE = 65536,
    MOST = 64, /* models, and runners, at a time */
    MOST_TOLD = 1 << 24, /* bytes of what opens a model */
    TRIES = 3, /* groups that are started, one after the other, in place of one that was lost */
};

typedef enum verb { VERB_OPEN, VERB_CLOSE, VERB_RUNNER, VERB_RUNNER_FREE, VERB_STEP, VERB_STORE, VERB_END } verb;

/* What another rank answers. */
typedef struct answer {
    bool ok;
    rg_error err;
} answer;

typedef struct wire {
    rg_link *link;
    uint8_t *at;
    size_t used, room; /* of the piece */
} wire;

/* A model, or a runner, that the other ranks have: what they were told to make it, for those who take their places. */
typedef struct remote {
    bool is_used, is_made; /* is_made: by all ranks */
    rg_buf told;
} remote;

struct rg_ranks {
    rg_link *link;
    pthread_mutex_t lock;
    wire wire;
    bool by_mpi;
    atomic_uint group;                      /* counts the groups of processes that were lost */
    remote model[MOST + 1], runner[MOST + 1]; /* by number, from 1 on */
    remote *making;                           /* what rg_ranks_answer is about */
};

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static void put(wire *w, const void *p, size_t n)
{
    for (size_t done = 0, some; done < n; done += some) {
        some = n - done < w->room - w->used ? n - done : w->room - w->used;
        memcpy(w->at + w->used, (const uint8_t *)p + done, some);
        w->used += some;
        if (w->used < w->room)
            continue;
        rg_link_exchange(w->link, RG_LINK_FROM_ZERO, w->room);
        *w = (wire){ .link = w->link, .at = rg_link_slot(w->link), .room = PIECE };
    }
}

static void put_int(wire *w, int32_t n)
{
    put(w, &n, sizeof n);
}

static void add_int(rg_buf *b, int32_t n)
{
    rg_buf_add(b, &n, sizeof n);
}

/* A string, or NULL. */
static void add_text(rg_buf *b, const char *s)
{
    add_int(b, s ? (int32_t)strlen(s) : -1);
    rg_buf_add(b, s ? s : "", s ? strlen(s) : 0);
}

static void begin(rg_ranks *r, verb v, int number)
{
    r->wire = (wire){ .link = r->link, .at = rg_link_slot(r->link), .room = FIRST_PIECE };
    put_int(&r->wire, v);
    put_int(&r->wire, number);
}

static void end(rg_ranks *r)
{
    if (r->wire.used || r->wire.room == FIRST_PIECE)
        rg_link_exchange(r->link, RG_LINK_FROM_ZERO, r->wire.room);
}

static void get(wire *w, void *p, size_t n)
{
    for (size_t done = 0, some; done < n; done += some) {
        if (w->used == w->room) {
            const size_t room = w->room ? PIECE : FIRST_PIECE;

            rg_link_exchange(w->link, RG_LINK_FROM_ZERO, room);
            *w = (wire){ .link = w->link, .at = (uint8_t *)(uintptr_t)rg_link_of(w->link, 0), .room = room };
        }
        some = n - done < w->room - w->used ? n - done : w->room - w->used;
        memcpy((uint8_t *)p + done, w->at + w->used, some);
        w->used += some;
    }
}

static int32_t get_int(wire *w)
{
    int32_t n;

    get(w, &n, sizeof n);
    return n;
}

static void *need(void *p)
{
    RG_ASSERT(p); /* no memory: rank 0 sees that this rank has ended */
    return p;
}

/* rg_free it. */
static void *get_new(wire *w, size_t n)
{
    void *p = need(rg_alloc_tail(1, n, 1));

    get(w, p, n);
    ((uint8_t *)p)[n] = 0;
    return p;
}

static char *get_text(wire *w)
{
    const int32_t n = get_int(w);

    return n < 0 ? NULL : get_new(w, (size_t)n);
}

/* ---- a batch ----------------------------------------------------------------------------------------------------- */

/* Arrays that a batch may have, a number for each row or wanted row. */
typedef struct array {
    const void **at; /* its member */
    size_t bytes;
} array;

enum { ARRAYS = 10 };

static void arrays_of(rg_batch *b, array a[ARRAYS])
{
    const size_t rows = (size_t)b->n_rows, four = sizeof(int32_t);
    const array all[ARRAYS] = {
        { (const void **)&b->token, rows * four },
        { (const void **)&b->index, rows * four },
        { (const void **)&b->pos, rows * sizeof *b->pos },
        { (const void **)&b->kv_end, rows * four },
        { (const void **)&b->slot, rows * four },
        { (const void **)&b->logit_rows, (size_t)b->n_logits * four },
        { (const void **)&b->temperatures, (size_t)b->n_logits * sizeof *b->temperatures },
        { (const void **)&b->hidden, (size_t)b->n_hidden * sizeof *b->hidden },
        { (const void **)&b->scores, (size_t)b->n_scores * sizeof *b->scores },
        { (const void **)&b->features, rows * (size_t)b->feature_cols * sizeof *b->features },
    };

    memcpy(a, all, sizeof all);
}

/* Entries of a span's table: blocks up to the last place that its rows are put in or see. */
static int32_t entries_of(const rg_batch *b, const rg_span *s, const rg_group *group, int g)
{
    int32_t n = s->start + s->n_rows;

    if (!s->tables[g] || group->per == RG_PER_SEQUENCE)
        return s->tables[g] ? 1 : 0;
    for (int32_t row = s->first_row; row < s->first_row + s->n_rows; row++) {
        const int32_t end = b->slot && b->slot[row] >= b->kv_end[row] ? b->slot[row] + 1 : b->kv_end[row];

        n = end > n ? end : n;
    }
    return (n + RG_BLOCK - 1) / RG_BLOCK;
}

/* The number of slots in the list of a tree's row; 0: it has none. */
static int32_t n_ancestors(const rg_batch *b, const rg_span *s, int32_t row)
{
    return b->ancestors[row] ? b->index[row] - (s->start + s->n_rows - s->n_draft) + 1 : 0;
}

static void put_batch(wire *w, const rg_state_spec *spec, const rg_batch *b, int given_cols)
{
    rg_batch copy = *b;
    array a[ARRAYS];

    put(w, &copy, sizeof copy);
    arrays_of(&copy, a);
    for (int i = 0; i < ARRAYS; i++)
        put(w, *a[i].at, *a[i].at ? a[i].bytes : 0);
    for (int i = 0; i < b->n_spans; i++) {
        const rg_span *s = &b->spans[i];

        put(w, s, sizeof *s);
        for (int g = 0; g < spec->n_groups; g++) {
            const int32_t n = entries_of(b, s, &spec->group[g], g);

            put_int(w, n);
            put(w, s->tables[g], (size_t)n * sizeof(int32_t));
        }
        for (int32_t row = s->first_row; b->ancestors && row < s->first_row + s->n_rows; row++) {
            const int32_t n = n_ancestors(b, s, row);

            put_int(w, n);
            put(w, b->ancestors[row], (size_t)n * sizeof(int32_t));
        }
    }
    for (int32_t row = 0; b->given && row < b->n_rows; row++)
        if (b->token[row] == -1)
            put(w, b->given[row], (size_t)given_cols * sizeof(float));
}

/* A batch that was told, and the pieces of memory that hold it. */
typedef struct told {
    rg_batch batch;
    void **pieces;
    size_t n, room;
} told;

static void *hold(told *t, void *p)
{
    if (t->n == t->room) {
        t->room = 2 * t->room + 64;
        t->pieces = need(rg_resize_array(t->pieces, t->room, sizeof *t->pieces));
    }
    return t->pieces[t->n++] = p;
}

static void let_go(told *t)
{
    for (size_t i = 0; i < t->n; i++)
        rg_free(t->pieces[i]);
    t->n = 0;
}

static void *get_held(told *t, wire *w, size_t bytes)
{
    return hold(t, get_new(w, bytes));
}

static void *new_held(told *t, size_t n, size_t each)
{
    return hold(t, need(rg_array(n ? n : 1, each)));
}

static void get_batch(told *t, wire *w, const rg_state_spec *spec, int given_cols)
{
    rg_batch *b = &t->batch;
    array a[ARRAYS];

    get(w, b, sizeof *b);
    arrays_of(b, a);
    for (int i = 0; i < ARRAYS; i++)
        *a[i].at = *a[i].at ? get_held(t, w, a[i].bytes) : NULL;
    rg_span *spans = new_held(t, (size_t)b->n_spans, sizeof *spans);
    const int32_t **ancestors = b->ancestors ? new_held(t, (size_t)b->n_rows, sizeof *ancestors) : NULL;
    for (int i = 0; i < b->n_spans; i++) {
        get(w, &spans[i], sizeof spans[i]);
        for (int g = 0; g < spec->n_groups; g++) {
            const int32_t n = get_int(w);

            spans[i].tables[g] = n ? get_held(t, w, (size_t)n * sizeof n) : NULL;
        }
        for (int32_t row = spans[i].first_row; ancestors && row < spans[i].first_row + spans[i].n_rows; row++) {
            const int32_t n = get_int(w);

            ancestors[row] = n ? get_held(t, w, (size_t)n * sizeof n) : NULL;
        }
    }
    const float **given = b->given ? new_held(t, (size_t)b->n_rows, sizeof *given) : NULL;
    for (int32_t row = 0; given && row < b->n_rows; row++)
        given[row] = b->token[row] == -1 ? get_held(t, w, (size_t)given_cols * sizeof(float)) : NULL;
    b->spans = spans;
    b->ancestors = ancestors;
    b->given = given;
    b->failed = b->failed ? new_held(t, (size_t)b->n_rows, 1) : NULL;
}

/* ---- rank 0 ------------------------------------------------------------------------------------------------------ */

rg_link *rg_ranks_link(rg_ranks *r)
{
    return r->link;
}

/* A node reads 128 MB in some 1 to 2 ms, and the two exchanges of each of 30 layers take some 0.3 ms. */
static const uint64_t LEAST_NODE_BYTES = (uint64_t)128 << 20;

int rg_ranks_best(uint64_t weight_bytes)
{
    enum { LEAST_CORES = 2 };
    const int n = rg_nodes();
    bool pays = n > 1 && n <= RG_MAX_RANKS && rg_node_cores() >= LEAST_CORES && rg_cores() / n >= LEAST_CORES;

    return pays && weight_bytes / (uint64_t)n >= LEAST_NODE_BYTES ? n : 1;
}

int rg_ranks_threads(const rg_ranks *r)
{
    const int n = rg_cores() / (r ? r->link->n_here : 1);

    return n > 1 ? n : 1;
}

void rg_ranks_lock(rg_ranks *r)
{
    pthread_mutex_lock(&r->lock);
}

void rg_ranks_unlock(rg_ranks *r)
{
    pthread_mutex_unlock(&r->lock);
}

/* ---- models and runners of the other ranks: opened, opened again after a restart, closed ---- */

static bool read_answers(const rg_ranks *r, rg_error *err)
{
    bool ok = true;

    (void)rg_link_slot(r->link);
    rg_link_exchange(r->link, RG_LINK_TO_ZERO, sizeof(answer));
    if (rg_link_is_lost(r->link))
        return rg_fail(err, RG_E_IO, "a rank has ended before it had its part of the model");
    for (int rank = 1; rank < r->link->n; rank++) {
        const answer *a = rg_link_of(r->link, rank);

        if (ok && !a->ok) {
            if (err)
                *err = a->err;
            (void)rg_fail_prefix(err, "rank %d", rank);
        }
        ok = ok && a->ok;
    }
    return ok;
}

static void tell_remote(rg_ranks *r, const remote *m)
{
    r->wire = (wire){ .link = r->link, .at = rg_link_slot(r->link), .room = FIRST_PIECE };
    put(&r->wire, m->told.data, m->told.n);
    end(r);
}

static bool make_again(rg_ranks *r, const remote *all, rg_error *err)
{
    for (int i = 1; i <= MOST; i++) {
        if (!all[i].is_made)
            continue;
        tell_remote(r, &all[i]);
        if (!read_answers(r, err))
            return false;
    }
    return true;
}

/* Under the lock: after this the link is not lost. */
static void restart(rg_ranks *r)
{
    rg_error err = { 0 };

    for (int i = 0; i < TRIES; i++) {
        atomic_fetch_add(&r->group, 1);
        if (rg_link_restart(r->link, &err) && make_again(r, r->model, &err) && make_again(r, r->runner, &err))
            return;
        if (!rg_link_is_lost(r->link))
            break;
    }
    rg_link_give_up(r->link, err.text);
}

/* Begin to make something, which has a number then; NULL and *err: too many are there. */
static remote *new_remote(remote *all, verb v, rg_error *err)
{
    for (int i = 1; i <= MOST; i++) {
        remote *m = &all[i];

        if (m->is_used)
            continue;
        m->is_used = true;
        rg_buf_init(&m->told, MOST_TOLD);
        add_int(&m->told, v);
        add_int(&m->told, i);
        return m;
    }
    return rg_fail(err, RG_E_LIMIT, "ranks have %d models at most at a time", MOST), NULL;
}

static void drop_remote(remote *m)
{
    rg_buf_fini(&m->told);
    *m = (remote){ 0 };
}

/* Locked: tell what was put down.  Stays locked until rg_ranks_answer, or false and *err. */
static bool finish_remote(rg_ranks *r, remote *m, rg_error *err)
{
    if (m->told.failed) {
        drop_remote(m);
        rg_ranks_unlock(r);
        return rg_fail_memory(err, MOST_TOLD);
    }
    r->making = m;
    tell_remote(r, m);
    return true;
}

/* Under the lock, to make something. */
static remote *begin_remote(rg_ranks *r, remote *all, verb v, rg_error *err)
{
    rg_ranks_lock(r);
    if (rg_link_is_lost(r->link))
        restart(r);
    remote *m = new_remote(all, v, err);
    if (!m)
        rg_ranks_unlock(r);
    return m;
}

static void close_remote(rg_ranks *r, remote *m, verb v, int number)
{
    rg_ranks_lock(r);
    if (!rg_link_is_lost(r->link)) {
        begin(r, v, number);
        end(r);
    }
    drop_remote(m);
    rg_ranks_unlock(r);
}

bool rg_ranks_answer(rg_ranks *r, rg_error *err)
{
    const bool ok = read_answers(r, err);

    r->making->is_made = ok;
    r->making = NULL;
    rg_ranks_unlock(r);
    return ok;
}

bool rg_ranks_open(rg_ranks *r, rg_model *m, const rg_model_options *o, rg_error *err)
{
    if (!o->path)
        return rg_fail(err, RG_E_UNSUPPORTED, "a model on ranks is opened from a file, by each of them");
    remote *opening = begin_remote(r, r->model, VERB_OPEN, err);
    if (!opening)
        return false;
    rg_buf *b = &opening->told;
    add_text(b, o->path);
    add_text(b, o->kv_type);
    add_text(b, o->backend ? o->backend->name : "ref");
    add_int(b, o->max_draft);
    add_int(b, o->n_threads);
    add_int(b, o->random_weights);
    add_int(b, (int32_t)o->declared_type);
    add_int(b, o->round16);
    add_int(b, o->n_adapters);
    for (int i = 0; i < o->n_adapters; i++) {
        add_text(b, o->adapters[i].name);
        add_text(b, o->adapters[i].path);
    }
    if (!finish_remote(r, opening, err))
        return false;
    m->ranks = r;
    m->number = (int)(opening - r->model);
    return true;
}

void rg_ranks_close(rg_ranks *r, const rg_model *m)
{
    close_remote(r, &r->model[m->number], VERB_CLOSE, m->number);
}

bool rg_ranks_runner(rg_ranks *r, const rg_model *m, const rg_runner_options *o, const rg_runner_sizes *sizes,
                     rg_rank_runner *out, rg_error *err)
{
    remote *making = begin_remote(r, r->runner, VERB_RUNNER, err);

    if (!making)
        return false;
    add_int(&making->told, m->number);
    add_text(&making->told, o->backend->name);
    rg_buf_add(&making->told, o, sizeof *o);
    rg_buf_add(&making->told, sizes, sizeof *sizes);
    if (!finish_remote(r, making, err))
        return false;
    *out = (rg_rank_runner){ .number = (int)(making - r->runner), .group = atomic_load(&r->group) };
    return true;
}

void rg_ranks_runner_free(rg_ranks *r, const rg_rank_runner *of)
{
    close_remote(r, &r->runner[of->number], VERB_RUNNER_FREE, of->number);
}

/* ---- what runners do ---- */

bool rg_ranks_keep(const rg_ranks *r, const rg_rank_runner *of)
{
    return of->group == atomic_load(&r->group) && !rg_link_is_lost(r->link);
}

void rg_ranks_renew(rg_ranks *r, rg_rank_runner *of)
{
    rg_ranks_lock(r);
    if (rg_link_is_lost(r->link))
        restart(r);
    of->group = atomic_load(&r->group);
    rg_ranks_unlock(r);
}

void rg_ranks_step(rg_ranks *r, const rg_rank_runner *of, const rg_state_spec *spec, const rg_batch *batch,
                   int given_cols)
{
    begin(r, VERB_STEP, of->number);
    put_batch(&r->wire, spec, batch, given_cols);
    end(r);
}

/* The parts that the ranks have of a block: to rank 0, in pieces. */
static void take_parts(rg_link *link, uint8_t *to, size_t part)
{
    for (size_t done = 0, some; done < part; done += some) {
        some = part - done < RG_LINK_SLOT ? part - done : RG_LINK_SLOT;
        (void)rg_link_slot(link);
        rg_link_exchange(link, RG_LINK_TO_ZERO, some);
        for (int rank = 1; rank < link->n; rank++)
            memcpy(to + (size_t)rank * part + done, rg_link_of(link, rank), some);
    }
}

static void tell_store(rg_ranks *r, int runner, const rg_state_spec *spec, const rg_store_call *c)
{
    const size_t whole = spec->group[c->group].block_bytes;

    begin(r, VERB_STORE, runner);
    put(&r->wire, c, sizeof *c);
    if (c->verb == RG_STORE_LOAD)
        put(&r->wire, c->load, whole);
    for (int g = 0; c->verb == RG_STORE_CLOSE && g < spec->n_groups; g++)
        put_int(&r->wire, c->tables[g] && spec->group[g].per == RG_PER_POSITION ? c->tables[g][c->block] : -1);
    end(r);
    if (c->verb == RG_STORE_SAVE)
        take_parts(r->link, c->save, whole / (size_t)r->link->n);
}

bool rg_ranks_store(rg_ranks *r, const rg_rank_runner *of, const rg_state_spec *spec, const rg_store_call *c)
{
    rg_ranks_lock(r);
    if (rg_ranks_keep(r, of))
        tell_store(r, of->number, spec, c);
    const bool kept = rg_ranks_keep(r, of);
    rg_ranks_unlock(r);
    return kept;
}

/* ---- the other ranks --------------------------------------------------------------------------------------------- */

typedef struct follower {
    rg_link *link;
    wire wire;
    told told;
    struct {
        rg_checkpoint *ckpt;
        rg_model *model;
    } model[MOST + 1];
    struct {
        rg_runner *runner;
        rg_model *model;
    } runner[MOST + 1];
} follower;

static void reply(follower *f, const answer *a)
{
    memcpy(rg_link_slot(f->link), a, sizeof *a);
    rg_link_exchange(f->link, RG_LINK_TO_ZERO, sizeof *a);
}

static void follow_open(follower *f, int number)
{
    wire *w = &f->wire;
    answer a = { .ok = true };
    char *path = get_text(w), *kv_type = get_text(w), *backend = get_text(w);
    rg_model_options o = { .kv_type = kv_type, .link = f->link };

    o.max_draft = get_int(w);
    o.n_threads = get_int(w);
    o.random_weights = get_int(w);
    o.declared_type = (rg_type)get_int(w);
    o.round16 = get_int(w);
    o.n_adapters = get_int(w);
    rg_adapter_source *adapters = need(rg_array((size_t)(o.n_adapters ? o.n_adapters : 1), sizeof *adapters));
    for (int i = 0; i < o.n_adapters; i++) {
        adapters[i].name = get_text(w);
        adapters[i].path = get_text(w);
    }
    o.adapters = adapters;
    o.backend = rg_backend_find(backend, &a.err);
    rg_checkpoint *ckpt =
        o.backend ? rg_checkpoint_open(path, o.random_weights ? RG_CKPT_NO_WEIGHTS : RG_CKPT_DEFAULT, &a.err) : NULL;
    f->model[number].ckpt = ckpt;
    f->model[number].model = ckpt ? rg_model_open(ckpt, &o, &a.err) : NULL;
    a.ok = f->model[number].model;
    for (int i = 0; i < o.n_adapters; i++) {
        rg_free((void *)(uintptr_t)adapters[i].name);
        rg_free((void *)(uintptr_t)adapters[i].path);
    }
    rg_free(adapters);
    rg_free(path);
    rg_free(kv_type);
    rg_free(backend);
    reply(f, &a);
}

static void follow_close(follower *f, int number)
{
    rg_model_close(f->model[number].model);
    rg_checkpoint_close(f->model[number].ckpt);
    f->model[number].model = NULL;
    f->model[number].ckpt = NULL;
}

static void follow_runner(follower *f, int number)
{
    wire *w = &f->wire;
    rg_model *m = f->model[get_int(w)].model;
    char *backend = get_text(w);
    rg_runner_options o;
    rg_runner_sizes sizes;
    answer a = { .ok = true };

    get(w, &o, sizeof o);
    get(w, &sizes, sizeof sizes);
    o.backend = rg_backend_find(backend, &a.err);
    o.pool = NULL;
    o.wrap = NULL;
    o.n_nodes = 0;
    f->runner[number].runner = o.backend ? rg_model_runner_follow(m, &o, &sizes, &a.err) : NULL;
    f->runner[number].model = m;
    a.ok = f->runner[number].runner;
    rg_free(backend);
    reply(f, &a);
}

static void follow_step(follower *f, int number)
{
    rg_runner *r = f->runner[number].runner;

    get_batch(&f->told, &f->wire, r->spec, f->runner[number].model->config.dim);
    r->step(r, &f->told.batch, NULL);
    let_go(&f->told);
}

static void give_part(follower *f, const rg_store *s, const rg_store_call *c, size_t part)
{
    uint8_t *block = need(rg_alloc_tail(0, part, 1));

    RG_ASSERT(rg_store_save(s, c->group, c->block, block)); /* nobody is told of it */
    for (size_t done = 0, some; done < part; done += some) {
        some = part - done < RG_LINK_SLOT ? part - done : RG_LINK_SLOT;
        memcpy(rg_link_slot(f->link), block + done, some);
        rg_link_exchange(f->link, RG_LINK_TO_ZERO, some);
    }
    rg_free(block);
}

static void follow_close_block(follower *f, rg_store *s, const rg_state_spec *spec, const rg_store_call *c)
{
    const int32_t *tables[RG_MAX_GROUPS] = { 0 };
    int32_t *entries[RG_MAX_GROUPS] = { 0 };
    size_t n;

    RG_ASSERT(rg_add((size_t)c->block, (size_t)1, &n));
    for (int g = 0; g < spec->n_groups; g++) {
        tables[g] = entries[g] = need(rg_array(n, sizeof **entries));
        entries[g][c->block] = get_int(&f->wire);
    }
    rg_store_close_block(s, tables, c->block);
    for (int g = 0; g < spec->n_groups; g++)
        rg_free(entries[g]);
}

static void follow_store(follower *f, int number)
{
    rg_runner *r = f->runner[number].runner;
    rg_store_call c;

    get(&f->wire, &c, sizeof c);
    const size_t whole = r->spec->group[c.group].block_bytes, part = whole / (size_t)f->link->n;
    uint8_t *block = c.verb == RG_STORE_LOAD ? get_new(&f->wire, whole) : NULL;

    switch (c.verb) {
    case RG_STORE_COPY:
        rg_store_copy(r->store, c.group, c.block, c.to_block);
        break;
    case RG_STORE_SAVE:
        give_part(f, r->store, &c, part);
        break;
    case RG_STORE_LOAD:
        rg_store_load(r->store, c.group, c.block, block + (size_t)f->link->rank * part);
        break;
    case RG_STORE_FILL:
        rg_store_fill(r->store, c.group, c.block, c.to);
        break;
    case RG_STORE_MOVE:
        rg_store_move(r->store, c.group, c.block, c.from, c.to_block, c.to);
        break;
    case RG_STORE_CLOSE:
        follow_close_block(f, r->store, r->spec, &c);
        break;
    }
    rg_free(block);
}

static void follow_runner_free(follower *f, int number)
{
    rg_model_runner_free(f->runner[number].runner);
    f->runner[number].runner = NULL;
}

/* What this rank is told, until rank 0 says that it is over. */
static void follow(rg_link *link, void *arg)
{
    static void (*const verbs[])(follower * f, int number) = {
        [VERB_OPEN] = follow_open,     [VERB_CLOSE] = follow_close,
        [VERB_RUNNER] = follow_runner, [VERB_RUNNER_FREE] = follow_runner_free,
        [VERB_STEP] = follow_step,     [VERB_STORE] = follow_store,
    };
    follower *f = need(rg_zalloc(sizeof *f));

    (void)arg;
    f->link = link;
    for (;;) {
        f->wire = (wire){ .link = link };
        const int32_t v = get_int(&f->wire), number = get_int(&f->wire);

        if (v == VERB_END)
            break;
        RG_ASSERT(v >= 0 && v < VERB_END && number > 0 && number <= MOST);
        verbs[v](f, number);
    }
    rg_free(f->told.pieces);
    rg_free(f);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

rg_ranks *rg_ranks_start(int32_t n, rg_error *err)
{
    rg_ranks *r = rg_zalloc(sizeof *r);

    if (!r)
        return rg_fail_memory(err, sizeof *r), NULL;
    r->link = rg_link_fork(n, follow, NULL, err);
    if (!r->link || pthread_mutex_init(&r->lock, NULL)) {
        rg_free(r);
        return NULL;
    }
    return r;
}

bool rg_ranks_join(rg_ranks **r, int host_ranks, uint64_t delay_ns, rg_error *err)
{
    rg_link *link = rg_link_mpi(host_ranks, err);

    *r = NULL;
    if (!link)
        return false;
    link->delay_ns = link->rank ? 0 : delay_ns; /* the others wait for it */
    if (link->rank) {
        follow(link, NULL);
        rg_link_mpi_close(link);
        return true;
    }
    *r = rg_zalloc(sizeof **r);
    if (!*r || pthread_mutex_init(&(*r)->lock, NULL))
        return rg_fail_memory(err, sizeof **r);
    (*r)->link = link;
    (*r)->by_mpi = true;
    return true;
}

void rg_ranks_stop(rg_ranks *r)
{
    if (!r)
        return;
    if (!rg_link_is_lost(r->link)) {
        begin(r, VERB_END, 0);
        end(r);
    }
    if (r->by_mpi)
        rg_link_mpi_close(r->link);
    else
        rg_link_close(r->link);
    pthread_mutex_destroy(&r->lock);
    rg_free(r);
}
