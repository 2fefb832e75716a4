/* durable.c -- see durable.h.
 *
 * One lock guards the buffers' lists, the seeks' phases and the counts; it is held for a few instructions at a time,
 * never while a file is touched.  The thread looks for new seeks first, then reads for the first seek that found
 * something, one block at a time, and writes when nobody waits for it. */
#include "engine/durable.h"

#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/thread.h"

enum {
    LEAST_BUFFERS = 6,
    MOST_BUFFERS = 512,
    BUFFER_BYTES = 64 << 20, /* of all, unless these are too few */
    KEPT_OF_10 = 9,          /* what trimming leaves of the most bytes */
    COUNTED_ANEW = 16,       /* the folder is, after writing this part of the most bytes */
};

typedef struct buffer {
    struct buffer *next;
    rg_block_place at; /* of one that is put */
    rg_seek *seek;     /* of one that has arrived, */
    int32_t number;    /*   with the number of its block in the prompt */
    int group;
    uint8_t *bytes;
} buffer;

typedef struct queue {
    buffer *first, **end;
} queue;

typedef enum phase { SEEK_FREE, SEEK_FILLED, SEEK_LOOKS, SEEK_READS, SEEK_OVER } phase;

typedef struct seek {
    rg_seek pub; /* first */
    phase phase;
    bool given_up;
    uint64_t order;    /* of its start */
    uint16_t *present; /* [max_blocks] bit g: known, or in a file: the thread's own, as are these: */
    int32_t n_found;   /* blocks of the prompt after which it can start */
    int32_t at;        /* the next block to be read, */
    int group;         /*   and its group */
} seek;

struct rg_durable {
    rg_state_spec spec; /* its arrays are borrowed, and not read */
    rg_block_name identity;
    char *folder;
    uint64_t most_bytes, unlisted_bytes; /* written since the folder was listed: the thread's own, as are these: */
    bool listed, said_damaged, said_failed;
    pthread_t thread;
    bool started;
    buffer *buffers;
    int n_buffers;
    size_t buffer_bytes;
    uint8_t *memory;
    rg_block_name *names;
    uint16_t *flags;
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t wake; /* the thread */
    bool lock_made, wake_made, ready_lock_made, closing;
    queue free, put, arrived;
    seek seeks[RG_SEEKS];
    uint64_t n_started;
    rg_durable_counts counts;
    /* Under a lock of its own, since a call takes its time. */
    pthread_mutex_t ready_lock;
    void (*ready)(void *arg);
    void *ready_arg;
};

/* ---- queues ------------------------------------------------------------------------------------------------------ */

static void push(queue *q, buffer *b)
{
    b->next = NULL;
    *q->end = b;
    q->end = &b->next;
}

static buffer *pop(queue *q)
{
    buffer *b = q->first;

    if (!b)
        return NULL;
    q->first = b->next;
    if (!q->first)
        q->end = &q->first;
    return b;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static rg_block_name name_of(const rg_block_name *a, const void *b, size_t n)
{
    uint8_t full[32];
    rg_sha256_state s;
    rg_block_name name;

    rg_sha256_init(&s);
    rg_sha256_add(&s, a->hash, sizeof a->hash);
    rg_sha256_add(&s, b, n);
    rg_sha256_end(&s, full);
    memcpy(name.hash, full, sizeof name.hash);
    return name;
}

void rg_durable_rename(rg_durable *d, const rg_block_name *identity)
{
    d->identity = *identity;
}

rg_block_name rg_durable_root(const rg_durable *d, const rg_block_name *scope)
{
    return name_of(&d->identity, scope->hash, sizeof scope->hash);
}

rg_block_name rg_durable_after(const rg_block_name *before, const int32_t tokens[RG_BLOCK])
{
    return name_of(before, tokens, RG_BLOCK * sizeof *tokens);
}

/* ---- seeks: the thread's part ------------------------------------------------------------------------------------ */

/* The most blocks after which the prompt can start, by what is present. */
static int32_t longest(const rg_durable *d, const seek *k)
{
    rg_path_blocks blocks = { 0 };
    int32_t best = 0;

    for (int32_t i = 0; i < k->pub.n; i++) {
        rg_path_blocks_add(&blocks, &d->spec, i, k->present[i]);
        if (rg_path_blocks_usable(&blocks, &d->spec, i + 1, k->present[i]))
            best = i + 1;
    }
    return best;
}

/* Which files there are.  Past a block that every start behind it needs, nothing is of use. */
static void look(const rg_durable *d, seek *k)
{
    for (int32_t i = 0; i < k->pub.n; i++) {
        k->present[i] = k->pub.has[i];
        for (int g = 0; g < d->spec.n_groups; g++) {
            const rg_block_place at = { .name = k->pub.names[i], .group = g };

            if (!(k->present[i] >> g & 1) && rg_block_file_exists(d->folder, &at))
                k->present[i] |= (uint16_t)(1u << g);
            if (!(k->present[i] >> g & 1) && rg_group_grows(&d->spec.group[g]))
                k->pub.n = i;
        }
    }
    k->n_found = longest(d, k);
    k->at = 0;
    k->group = 0;
}

/* Go on to the next block that is needed and not known.  False: there is none. */
static bool find_next(const rg_durable *d, seek *k)
{
    for (; k->at < k->n_found; k->at++, k->group = 0)
        for (; k->group < d->spec.n_groups; k->group++)
            if (!(k->pub.has[k->at] >> k->group & 1) && rg_path_needs(&d->spec, k->group, k->at, k->n_found))
                return true;
    return false;
}

static void tell_damaged(rg_durable *d)
{
    if (!d->said_damaged)
        rg_log(RG_LOG_WARN,
               "%s: a file of a cached prefix is damaged; it is removed, and the prefix is computed anew "
               "(further ones are only counted)",
               d->folder);
    d->said_damaged = true;
}

/* Read the seek's next block into b.  False: it is not there after all, and the prompt starts earlier. */
static bool read_next(rg_durable *d, seek *k, buffer *b, bool *damaged)
{
    const rg_block_place at = { .name = k->pub.names[k->at], .group = k->group, .depth = k->at };
    rg_block_read r = rg_block_file_read(d->folder, &at, b->bytes, d->spec.group[k->group].block_bytes);
    const uint16_t bit = (uint16_t)(1u << k->group);

    *damaged = r == RG_BLOCK_DAMAGED;
    if (*damaged)
        tell_damaged(d);
    if (r != RG_BLOCK_READ) {
        k->present[k->at] &= (uint16_t)~bit;
        k->n_found = longest(d, k);
        k->at = 0;
        k->group = 0;
        return false;
    }
    b->seek = &k->pub;
    b->number = k->at;
    b->group = k->group++;
    k->pub.has[b->number] |= bit;
    return true;
}

/* ---- writing: the thread's part ---------------------------------------------------------------------------------- */

/* Count the folder anew when this process has written much since, for others may write there too. */
static uint64_t keep_small(rg_durable *d, uint64_t folder_bytes)
{
    if (d->listed && folder_bytes <= d->most_bytes && d->unlisted_bytes < d->most_bytes / COUNTED_ANEW)
        return folder_bytes;
    d->listed = true;
    d->unlisted_bytes = 0;
    return rg_block_folder_trim(d->folder, d->most_bytes, d->most_bytes / 10 * KEPT_OF_10);
}

static void write_block(rg_durable *d, const buffer *b)
{
    const size_t bytes = d->spec.group[b->at.group].block_bytes;
    uint64_t written, folder_bytes = d->counts.folder_bytes; /* only this thread changes it */
    rg_error err = { 0 };
    bool ok;

    if (!d->listed)
        folder_bytes = keep_small(d, 0);
    ok = rg_block_file_write(d->folder, &b->at, b->bytes, bytes, &written, &err);
    if (!ok && !d->said_failed)
        rg_log(RG_LOG_WARN,
               "a cached prefix is not kept in a file, and serving goes on without (further ones are only "
               "counted): %s",
               err.text);
    d->said_failed |= !ok;
    d->unlisted_bytes += written;
    folder_bytes = keep_small(d, folder_bytes + written);
    pthread_mutex_lock(&d->lock);
    d->counts.n_failed += !ok;
    d->counts.written_bytes += written;
    d->counts.folder_bytes = folder_bytes;
    pthread_mutex_unlock(&d->lock);
}

/* ---- the thread -------------------------------------------------------------------------------------------------- */

/* The seek in this phase that was started first; NULL: none. */
static seek *first_in(rg_durable *d, phase p)
{
    seek *first = NULL;

    for (int i = 0; i < RG_SEEKS; i++) {
        seek *k = &d->seeks[i];

        if (k->phase == p && (!first || k->order < first->order))
            first = k;
    }
    return first;
}

static void call_ready(rg_durable *d)
{
    pthread_mutex_lock(&d->ready_lock);
    if (d->ready)
        d->ready(d->ready_arg);
    pthread_mutex_unlock(&d->ready_lock);
}

/* Each of these is called with the lock held, lets go of it for its work, and has it again. */

static void do_look(rg_durable *d, seek *k)
{
    pthread_mutex_unlock(&d->lock);
    look(d, k);
    pthread_mutex_lock(&d->lock);
    bool found = k->n_found > k->pub.n_known;
    d->counts.n_found += found;
    d->counts.n_missed += !found;
    k->phase = found ? SEEK_READS : SEEK_OVER;
    if (found)
        return;
    pthread_mutex_unlock(&d->lock);
    call_ready(d);
    pthread_mutex_lock(&d->lock);
}

static void do_read(rg_durable *d, seek *k, buffer *b)
{
    bool more = !k->given_up, read = false, damaged = false;

    pthread_mutex_unlock(&d->lock);
    more = more && k->n_found > k->pub.n_known && find_next(d, k);
    if (more)
        read = read_next(d, k, b, &damaged);
    pthread_mutex_lock(&d->lock);
    d->counts.n_damaged += damaged;
    d->counts.read_bytes += read ? d->spec.group[b->group].block_bytes : 0;
    push(read ? &d->arrived : &d->free, b);
    k->phase = more ? k->phase : SEEK_OVER;
    if (more && d->free.first)
        return; /* the engine is called when there is a good deal, or all, to load */
    pthread_mutex_unlock(&d->lock);
    call_ready(d);
    pthread_mutex_lock(&d->lock);
}

static void do_write(rg_durable *d, buffer *b)
{
    pthread_mutex_unlock(&d->lock);
    write_block(d, b);
    pthread_mutex_lock(&d->lock);
    push(&d->free, b);
}

static void *run(void *arg)
{
    rg_durable *d = arg;
    seek *k;
    buffer *b;

    pthread_mutex_lock(&d->lock);
    for (;;) {
        if (!d->closing && (k = first_in(d, SEEK_LOOKS)))
            do_look(d, k);
        else if (!d->closing && (k = first_in(d, SEEK_READS)) && (b = pop(&d->free)))
            do_read(d, k, b);
        else if ((b = pop(&d->put)))
            do_write(d, b);
        else if (d->closing)
            break;
        else
            pthread_cond_wait(&d->wake, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

/* ---- the engine's part ------------------------------------------------------------------------------------------- */

void rg_durable_on_ready(rg_durable *d, void (*ready)(void *arg), void *arg)
{
    pthread_mutex_lock(&d->ready_lock);
    d->ready = ready;
    d->ready_arg = arg;
    pthread_mutex_unlock(&d->ready_lock);
}

rg_durable_counts rg_durable_count(rg_durable *d)
{
    pthread_mutex_lock(&d->lock);
    rg_durable_counts c = d->counts;
    pthread_mutex_unlock(&d->lock);
    return c;
}

/* The buffer that begins with these bytes. */
static buffer *buffer_of(const rg_durable *d, const void *bytes)
{
    return &d->buffers[(size_t)((const uint8_t *)bytes - d->memory) / d->buffer_bytes];
}

void *rg_durable_room(rg_durable *d)
{
    pthread_mutex_lock(&d->lock);
    buffer *b = pop(&d->free);
    pthread_mutex_unlock(&d->lock);
    return b ? b->bytes : NULL;
}

void rg_durable_drop_room(rg_durable *d, void *bytes)
{
    pthread_mutex_lock(&d->lock);
    push(&d->free, buffer_of(d, bytes));
    pthread_mutex_unlock(&d->lock);
}

/* What was said to the thread. */
static void unlock_and_wake(rg_durable *d)
{
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
}

void rg_durable_put(rg_durable *d, void *bytes, const rg_block_place *at)
{
    buffer *b = buffer_of(d, bytes);

    b->at = *at;
    pthread_mutex_lock(&d->lock);
    push(&d->put, b);
    unlock_and_wake(d);
}

rg_seek *rg_durable_seek(rg_durable *d)
{
    seek *k;

    pthread_mutex_lock(&d->lock);
    k = first_in(d, SEEK_FREE);
    if (k)
        k->phase = SEEK_FILLED;
    pthread_mutex_unlock(&d->lock);
    return k ? &k->pub : NULL;
}

void rg_durable_start(rg_durable *d, rg_seek *pub)
{
    seek *k = (seek *)pub;

    k->given_up = false;
    pthread_mutex_lock(&d->lock);
    k->order = ++d->n_started;
    k->phase = SEEK_LOOKS;
    unlock_and_wake(d);
}

void rg_durable_give_up(rg_durable *d, rg_seek *pub)
{
    pthread_mutex_lock(&d->lock);
    ((seek *)pub)->given_up = true;
    unlock_and_wake(d);
}

bool rg_durable_next(rg_durable *d, rg_arrival *a)
{
    bool some = true;

    pthread_mutex_lock(&d->lock);
    const buffer *b = pop(&d->arrived);
    seek *over = b ? NULL : first_in(d, SEEK_OVER);
    if (b)
        *a = (rg_arrival){ .seek = b->seek, .block = b->bytes, .group = b->group, .at = b->number };
    else if (over)
        *a = (rg_arrival){ .seek = &over->pub };
    else
        some = false;
    pthread_mutex_unlock(&d->lock);
    return some;
}

void rg_durable_give_back(rg_durable *d, const rg_arrival *a)
{
    pthread_mutex_lock(&d->lock);
    if (a->block)
        push(&d->free, buffer_of(d, a->block));
    else
        ((seek *)a->seek)->phase = SEEK_FREE;
    unlock_and_wake(d);
}

/* ---- open and close ---------------------------------------------------------------------------------------------- */

static size_t largest_block(const rg_state_spec *spec)
{
    size_t most = RG_ALIGN;

    for (int g = 0; g < spec->n_groups; g++)
        most = spec->group[g].block_bytes > most ? spec->group[g].block_bytes : most;
    return most; /* a multiple of RG_ALIGN, as all blocks are */
}

static int buffers_for(const rg_state_spec *spec)
{
    const size_t n = BUFFER_BYTES / largest_block(spec);

    return n < LEAST_BUFFERS ? LEAST_BUFFERS : n > MOST_BUFFERS ? MOST_BUFFERS : (int)n;
}

uint64_t rg_durable_buffer_bytes(const rg_state_spec *spec)
{
    return (uint64_t)buffers_for(spec) * largest_block(spec);
}

static bool make_buffers(rg_durable *d, rg_error *err)
{
    d->n_buffers = buffers_for(&d->spec);
    d->buffer_bytes = largest_block(&d->spec);
    d->buffers = rg_array((size_t)d->n_buffers, sizeof *d->buffers);
    d->memory = rg_alloc_tail(0, (size_t)d->n_buffers, d->buffer_bytes);
    if (!d->buffers || !d->memory)
        return rg_fail_memory(err, (size_t)d->n_buffers * d->buffer_bytes);
    queue *all[] = { &d->free, &d->put, &d->arrived };
    for (size_t i = 0; i < RG_LEN(all); i++)
        all[i]->end = &all[i]->first;
    for (int i = 0; i < d->n_buffers; i++) {
        d->buffers[i].bytes = d->memory + (size_t)i * d->buffer_bytes;
        push(&d->free, &d->buffers[i]);
    }
    return true;
}

static bool make_seeks(rg_durable *d, int32_t max_blocks, rg_error *err)
{
    const size_t n = (size_t)max_blocks;

    d->names = rg_array(n, RG_SEEKS * sizeof *d->names);
    d->flags = rg_array(n, 2 * RG_SEEKS * sizeof *d->flags);
    if (!d->names || !d->flags)
        return rg_fail_memory(err, n * RG_SEEKS * sizeof *d->names);
    for (size_t i = 0; i < RG_SEEKS; i++) {
        d->seeks[i].pub.names = d->names + i * n;
        d->seeks[i].pub.has = d->flags + 2 * i * n;
        d->seeks[i].present = d->flags + (2 * i + 1) * n;
    }
    return true;
}

static bool make_locks(rg_durable *d, rg_error *err)
{
    d->lock_made = !pthread_mutex_init(&d->lock, NULL);
    d->ready_lock_made = !pthread_mutex_init(&d->ready_lock, NULL);
    d->wake_made = !pthread_cond_init(&d->wake, NULL);
    return (d->lock_made && d->ready_lock_made && d->wake_made) || rg_fail_memory(err, 0);
}

static bool check_size(const rg_durable_options *o, rg_error *err)
{
    const uint64_t least = 16 * (uint64_t)largest_block(o->spec);

    return o->most_bytes >= least ||
           rg_fail(err, RG_E_LIMIT,
                   "%llu bytes for cached prefixes in %s are too few: %d positions of this model take up "
                   "to %zu bytes; give %llu or more",
                   (unsigned long long)o->most_bytes, o->folder, RG_BLOCK, largest_block(o->spec),
                   (unsigned long long)least);
}

rg_durable *rg_durable_open(const rg_durable_options *o, rg_error *err)
{
    rg_durable *d;

    if (!check_size(o, err) || !rg_block_folder_open(o->folder, err))
        return NULL;
    d = rg_zalloc(sizeof *d);
    if (!d)
        return rg_fail_memory(err, sizeof *d), NULL;
    d->spec = *o->spec;
    d->identity = o->identity;
    d->most_bytes = o->most_bytes;
    d->folder = rg_strdup(o->folder);
    if (!d->folder)
        rg_fail_memory(err, strlen(o->folder));
    if (d->folder && make_buffers(d, err) && make_seeks(d, o->max_blocks, err) && make_locks(d, err) &&
        !(d->started = rg_thread_start(&d->thread, run, d)))
        rg_fail(err, RG_E_IO, "cannot start a thread for cached prefixes");
    if (d->started)
        return d;
    rg_durable_close(d);
    return NULL;
}

void rg_durable_close(rg_durable *d)
{
    if (!d)
        return;
    if (d->started) {
        pthread_mutex_lock(&d->lock);
        d->closing = true;
        unlock_and_wake(d);
        pthread_join(d->thread, NULL);
    }
    if (d->wake_made)
        pthread_cond_destroy(&d->wake);
    if (d->ready_lock_made)
        pthread_mutex_destroy(&d->ready_lock);
    if (d->lock_made)
        pthread_mutex_destroy(&d->lock);
    rg_free(d->names);
    rg_free(d->flags);
    rg_free(d->buffers);
    rg_free(d->memory);
    rg_free(d->folder);
    rg_free(d);
}
