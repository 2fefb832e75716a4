/* paged.c -- see paged.h.
 *
 * All states stand under one lock; a page's bytes are written by its reader alone, between BEING_READ and THERE. */
#include "ops/cpu/paged.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"

enum { HALF_LIFE = 4, MAX_SIZES = 16, NOWHERE = -1 };

typedef enum page_state { ABSENT, WANTED, BEING_READ, THERE, FAILED, DROPPED } page_state;

typedef struct page {
    rg_paged_page in_file;
    double score;   /* log2 of it, plus the time of its last use in half-lives: what orders pages at any time */
    int size;       /* which of the sizes */
    int place;      /* of its size's; NOWHERE */
    int n_held;
    page_state state;
    bool guessed;   /* read or to be read, and nobody has asked for it since */
} page;

/* Pages of one size, and the places that they share. */
typedef struct size_class {
    size_t bytes;  /* of a place */
    int n_pages, n_places, at_once;
    int n_busy;    /* places whose rank is INFINITY */
    int *page_of;  /* [n_places]; NOWHERE: free */
    double *rank;  /* [n_places] the score of its page; -INFINITY: free; INFINITY: it is held, or not read yet */
    uint8_t *data;
} size_class;

struct rg_paged {
    rg_file *file;
    page *pages;
    int n_pages;
    size_class sizes[MAX_SIZES];
    int n_sizes;
    int n_places;
    int *places;            /* [n_places] what page_of points into; and rank */
    double *ranks;
    uint8_t *region;
    size_t region_bytes;
    int *queue;             /* [n_pages] pages that are WANTED, a ring */
    int first_queued, n_queued;
    double clock;           /* uses so far, in half-lives */
    rg_paged_stats stats;
    bool closing, complained;
    pthread_mutex_t lock;
    pthread_cond_t wanted, arrived;
    bool lock_made, wanted_made, arrived_made;
    pthread_t *readers;
    int n_readers;
};

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static bool add_page(rg_paged *p, int i, const rg_paged_page *from, rg_error *err)
{
    size_t bytes;
    int k = 0;

    if (!rg_round_up(from->bytes, RG_PAGE_ALIGN, &bytes) || !bytes)
        return rg_fail(err, RG_E_INPUT, "a page of %zu bytes", from->bytes);
    while (k < p->n_sizes && p->sizes[k].bytes != bytes)
        k++;
    if (k == MAX_SIZES)
        return rg_fail(err, RG_E_UNSUPPORTED, "experts of more than %d sizes", MAX_SIZES);
    p->n_sizes += k == p->n_sizes;
    p->sizes[k].bytes = bytes;
    p->sizes[k].n_pages++;
    p->pages[i] = (page){ .in_file = *from, .size = k, .place = NOWHERE, .score = -INFINITY };
    return true;
}

static int least_of(const size_class *s, const rg_paged_options *o)
{
    return s->n_pages < o->at_once ? s->n_pages : o->at_once;
}

/* Share the memory out by what there is of each size, to each as many pages as are held at once. */
static bool share_out(rg_paged *p, const rg_paged_options *o, rg_error *err)
{
    double all = 0, share;
    size_t needed = 0;

    for (int k = 0; k < p->n_sizes; k++)
        all += (double)p->sizes[k].bytes * p->sizes[k].n_pages;
    share = fmin((double)o->bytes / all, 1);
    for (int k = 0; k < p->n_sizes; k++) {
        size_class *s = &p->sizes[k];

        s->at_once = o->at_once;
        s->n_places = (int)fmax(share * s->n_pages, least_of(s, o));
        needed += s->bytes * (size_t)least_of(s, o); /* fits: pages lie in a file */
        p->region_bytes += s->bytes * (size_t)s->n_places;
        p->n_places += s->n_places;
    }
    for (int k = 0; k < p->n_sizes; k++) /* what a rare size needs beyond its share, the others give */
        for (size_class *s = &p->sizes[k]; s->n_places > least_of(s, o) && p->region_bytes > o->bytes; p->n_places--) {
            s->n_places--;
            p->region_bytes -= s->bytes;
        }
    return p->region_bytes <= o->bytes ||
           rg_fail(err, RG_E_LIMIT, "%zu bytes for experts are too few: up to %d matrices of a size are held at once, "
                   "which are %zu bytes", o->bytes, o->at_once, needed);
}

static bool make_pages(rg_paged *p, const rg_paged_options *o, rg_error *err)
{
    p->pages = rg_array((size_t)o->n_pages, sizeof *p->pages);
    if (!p->pages)
        return rg_fail_memory(err, (size_t)o->n_pages * sizeof *p->pages);
    for (; p->n_pages < o->n_pages; p->n_pages++)
        if (!add_page(p, p->n_pages, &o->pages[p->n_pages], err))
            return false;
    return share_out(p, o, err);
}

bool rg_paged_check(const rg_paged_options *o, rg_error *err)
{
    rg_paged p = { 0 };
    bool ok = make_pages(&p, o, err);

    rg_free(p.pages);
    return ok;
}

static bool make_room(rg_paged *p, const rg_paged_options *o, rg_error *err)
{
    p->places = rg_array((size_t)p->n_places, sizeof *p->places);
    p->ranks = rg_array((size_t)p->n_places, sizeof *p->ranks);
    p->queue = rg_array((size_t)p->n_pages, sizeof *p->queue);
    p->readers = rg_array((size_t)o->n_readers, sizeof *p->readers);
    p->region = rg_region_new(p->region_bytes);
    return (p->places && p->ranks && p->queue && p->readers && p->region) || rg_fail_memory(err, p->region_bytes);
}

static void lay_out(rg_paged *p)
{
    uint8_t *at = p->region;
    int *places = p->places;
    double *ranks = p->ranks;

    for (int k = 0; k < p->n_sizes; k++) {
        size_class *s = &p->sizes[k];

        s->data = at;
        s->page_of = places;
        s->rank = ranks;
        for (int i = 0; i < s->n_places; i++) {
            s->page_of[i] = NOWHERE;
            s->rank[i] = -INFINITY;
        }
        at += s->bytes * (size_t)s->n_places;
        places += s->n_places;
        ranks += s->n_places;
    }
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

/* A place for a page: a free one, or that of the page with the lowest score that nobody holds. */
static int find_place(rg_paged *p, const size_class *s)
{
    int best = 0;

    for (int i = 1; i < s->n_places; i++)
        best = s->rank[i] < s->rank[best] ? i : best;
    if (s->rank[best] == INFINITY)
        return NOWHERE;
    if (s->page_of[best] != NOWHERE) {
        p->pages[s->page_of[best]].state = ABSENT;
        p->pages[s->page_of[best]].place = NOWHERE;
    }
    return best;
}

/* Whether its place may be taken has changed. */
static void rank_page(rg_paged *p, page *g)
{
    size_class *s = &p->sizes[g->size];
    double *rank = &s->rank[g->place];

    s->n_busy -= *rank == INFINITY;
    *rank = !g->n_held && g->state == THERE ? g->score : INFINITY;
    if (!g->n_held && (g->state == FAILED || g->state == DROPPED)) { /* the next one to ask tries again */
        *rank = -INFINITY;
        s->page_of[g->place] = NOWHERE;
        g->place = NOWHERE;
        g->state = ABSENT;
    }
    s->n_busy += *rank == INFINITY;
}

/* score: log2(2^score + uses 2^now) */
static void note_uses(rg_paged *p, page *g, int uses)
{
    double added = log2(uses) + p->clock, more = fmax(g->score, added), less = fmin(g->score, added);

    g->score = more + log2(1 + exp2(less - more));
    p->clock += (double)uses / HALF_LIFE / p->n_pages;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static uint8_t *data_of(const rg_paged *p, const page *g)
{
    const size_class *s = &p->sizes[g->size];

    return s->data + (size_t)g->place * s->bytes;
}

/* Without the lock: the page is BEING_READ, and nobody else touches its place. */
static bool read_page(rg_paged *p, const page *g)
{
    rg_error why = { RG_OK, "" };
    uint8_t *to = data_of(p, g);
    bool ok = rg_file_read(p->file, g->in_file.offset, to, p->sizes[g->size].bytes, &why), complain;

    if (ok && rg_hash_pieces(to, g->in_file.bytes) != g->in_file.hash)
        ok = rg_fail(&why, RG_E_INPUT, "%s: the file is damaged at byte %llu", rg_file_path(p->file),
                     (unsigned long long)g->in_file.offset);
    if (ok)
        return true;
    pthread_mutex_lock(&p->lock);
    complain = !p->complained;
    p->complained = true;
    pthread_mutex_unlock(&p->lock);
    if (complain) /* once: a disk that fails would fill the log */
        rg_log(RG_LOG_ERROR, "%s; requests that need it end with an error", why.text);
    return false;
}

/* Called where a page was read or released. */
static void note_unused(rg_paged *p, page *g)
{
    if (g->guessed && !g->n_held && g->state == THERE) {
        p->stats.n_unused++;
        g->guessed = false;
    }
}

static void *reader(void *arg)
{
    rg_paged *p = arg;

    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->n_queued && !p->closing)
            pthread_cond_wait(&p->wanted, &p->lock);
        if (p->closing)
            break;
        page *g = &p->pages[p->queue[p->first_queued]];
        p->first_queued = (p->first_queued + 1) % p->n_pages;
        p->n_queued--;
        if (!g->n_held) { /* a wrong guess */
            g->state = DROPPED;
            rank_page(p, g);
            continue;
        }
        g->state = BEING_READ;
        pthread_mutex_unlock(&p->lock);
        bool ok = read_page(p, g);
        pthread_mutex_lock(&p->lock);
        g->state = ok ? THERE : FAILED;
        p->stats.n_read += ok;
        p->stats.n_failed += !ok;
        p->stats.read_bytes += ok ? g->in_file.bytes : 0;
        note_unused(p, g);
        rank_page(p, g);
        pthread_cond_broadcast(&p->arrived);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* ---- holding ----------------------------------------------------------------------------------------------------- */

/* With the lock: hold a page, which is put in the queue if it is absent.  False: there is no place for it. */
static bool hold(rg_paged *p, page *g)
{
    if (g->state == ABSENT) {
        size_class *s = &p->sizes[g->size];
        int place = find_place(p, s);

        if (place == NOWHERE)
            return false;
        g->place = place;
        s->page_of[place] = (int)(g - p->pages);
        g->state = WANTED;
        p->queue[(p->first_queued + p->n_queued++) % p->n_pages] = (int)(g - p->pages);
        pthread_cond_signal(&p->wanted);
    }
    g->n_held++;
    rank_page(p, g);
    return true;
}

bool rg_paged_ask(rg_paged *p, int i, int uses)
{
    page *g = &p->pages[i];

    RG_ASSERT(i >= 0 && i < p->n_pages && uses > 0);
    pthread_mutex_lock(&p->lock);
    bool ok = hold(p, g);
    if (ok) {
        g->guessed = false;
        note_uses(p, g, uses);
        p->stats.n_asked++;
    }
    pthread_mutex_unlock(&p->lock);
    return ok;
}

bool rg_paged_ask_ahead(rg_paged *p, int i)
{
    page *g = &p->pages[i];
    const size_class *s = &p->sizes[g->size];

    RG_ASSERT(i >= 0 && i < p->n_pages);
    pthread_mutex_lock(&p->lock);
    bool absent = g->state == ABSENT, ok = s->n_places - s->n_busy > s->at_once && 2 * s->n_busy < s->n_places;
    ok = ok && hold(p, g);
    if (ok && absent)
        g->guessed = true;
    pthread_mutex_unlock(&p->lock);
    return ok;
}

static bool is_settled(const page *g)
{
    return g->state == THERE || g->state == FAILED;
}

bool rg_paged_has(rg_paged *p, int i)
{
    pthread_mutex_lock(&p->lock);
    bool there = p->pages[i].state == THERE;
    pthread_mutex_unlock(&p->lock);
    return there;
}

bool rg_paged_is_ready(rg_paged *p, int i)
{
    pthread_mutex_lock(&p->lock);
    bool ready = is_settled(&p->pages[i]);
    pthread_mutex_unlock(&p->lock);
    return ready;
}

const uint8_t *rg_paged_wait(rg_paged *p, int i)
{
    const page *g = &p->pages[i];

    pthread_mutex_lock(&p->lock);
    RG_ASSERT(g->n_held);
    while (!is_settled(g))
        pthread_cond_wait(&p->arrived, &p->lock);
    const uint8_t *data = g->state == THERE ? data_of(p, g) : NULL;
    pthread_mutex_unlock(&p->lock);
    return data;
}

void rg_paged_release(rg_paged *p, int i)
{
    page *g = &p->pages[i];

    pthread_mutex_lock(&p->lock);
    RG_ASSERT(g->n_held);
    g->n_held--;
    note_unused(p, g);
    rank_page(p, g);
    pthread_mutex_unlock(&p->lock);
}

rg_paged_stats rg_paged_count(rg_paged *p)
{
    pthread_mutex_lock(&p->lock);
    rg_paged_stats stats = p->stats;
    pthread_mutex_unlock(&p->lock);
    return stats;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static bool start(rg_paged *p, int n_readers, rg_error *err)
{
    p->lock_made = !pthread_mutex_init(&p->lock, NULL);
    p->wanted_made = !pthread_cond_init(&p->wanted, NULL);
    p->arrived_made = !pthread_cond_init(&p->arrived, NULL);
    if (!p->lock_made || !p->wanted_made || !p->arrived_made)
        return rg_fail_memory(err, 0);
    for (; p->n_readers < n_readers; p->n_readers++)
        if (!rg_thread_start(&p->readers[p->n_readers], reader, p))
            return rg_fail(err, RG_E_IO, "cannot start a thread that reads experts");
    return true;
}

rg_paged *rg_paged_new(const rg_paged_options *o, rg_error *err)
{
    rg_paged *p = rg_zalloc(sizeof *p);

    if (!p)
        return rg_fail_memory(err, sizeof *p), NULL;
    if (make_pages(p, o, err) && make_room(p, o, err)) {
        lay_out(p);
        p->stats.bytes = p->region_bytes;
        p->file = o->file ? o->file : rg_file_open_direct(o->path, err);
    }
    if (p->file && o->file)
        rg_file_go_direct(o->file);
    if (p->file && start(p, o->n_readers, err))
        return p;
    if (p->file == o->file)
        p->file = NULL; /* still the caller's */
    rg_paged_free(p);
    return NULL;
}

void rg_paged_free(rg_paged *p)
{
    if (!p)
        return;
    if (p->n_readers) {
        pthread_mutex_lock(&p->lock);
        p->closing = true;
        pthread_cond_broadcast(&p->wanted);
        pthread_mutex_unlock(&p->lock);
    }
    for (int i = 0; i < p->n_readers; i++)
        pthread_join(p->readers[i], NULL);
    if (p->arrived_made)
        pthread_cond_destroy(&p->arrived);
    if (p->wanted_made)
        pthread_cond_destroy(&p->wanted);
    if (p->lock_made)
        pthread_mutex_destroy(&p->lock);
    rg_file_close(p->file);
    rg_region_free(p->region, p->region_bytes);
    rg_free(p->places);
    rg_free(p->ranks);
    rg_free(p->readers);
    rg_free(p->queue);
    rg_free(p->pages);
    rg_free(p);
}
