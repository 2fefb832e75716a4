/* blocks.c -- one pool's bookkeeping: an array of marks, with two lists threaded through it.
 *
 * The free list is a stack.  The cached list is in the order in which blocks lost their last reference, oldest first; a
 * sequence's blocks are dropped deepest first, so that a cached prefix is evicted from its end. */
#include "engine/blocks.h"

#include "base/mem.h"

enum { NONE = -1 };

typedef struct mark {
    int32_t references;
    int32_t next, prev; /* free list (next only) or cached list */
    bool remembered;
} mark;

struct rg_blocks {
    mark *marks;
    int32_t n, n_free, n_cached;
    int32_t free_head;
    int32_t oldest, newest; /* cached list */
    void (*evicted)(void *arg, int32_t block);
    void *arg;
};

rg_blocks *rg_blocks_new(int32_t n, void (*evicted)(void *arg, int32_t block), void *arg, rg_error *err)
{
    rg_blocks *p;

    if (n < 0)
        return rg_fail(err, RG_E_USAGE, "a pool of %d blocks", (int)n), NULL;
    p = rg_zalloc(sizeof *p);
    if (!p)
        return rg_fail_memory(err, sizeof *p), NULL;
    p->marks = rg_array((size_t)n, sizeof *p->marks);
    if (!p->marks) {
        rg_fail_memory(err, (size_t)n * sizeof *p->marks);
        rg_blocks_free(p);
        return NULL;
    }
    p->n = p->n_free = n;
    p->evicted = evicted;
    p->arg = arg;
    p->oldest = p->newest = NONE;
    p->free_head = n ? 0 : NONE;
    for (int32_t i = 0; i < n; i++)
        p->marks[i] = (mark){ .next = i + 1 < n ? i + 1 : NONE, .prev = NONE };
    return p;
}

void rg_blocks_free(rg_blocks *p)
{
    if (!p)
        return;
    rg_free(p->marks);
    rg_free(p);
}

static mark *mark_of(const rg_blocks *p, int32_t block)
{
    RG_ASSERT(block >= 0 && block < p->n);
    return &p->marks[block];
}

static void free_push(rg_blocks *p, int32_t block)
{
    p->marks[block].next = p->free_head;
    p->free_head = block;
    p->n_free++;
}

static void cached_append(rg_blocks *p, int32_t block)
{
    mark *m = &p->marks[block];

    m->next = NONE;
    m->prev = p->newest;
    if (p->newest == NONE)
        p->oldest = block;
    else
        p->marks[p->newest].next = block;
    p->newest = block;
    p->n_cached++;
}

static void cached_unlink(rg_blocks *p, int32_t block)
{
    mark *m = &p->marks[block];

    if (m->prev == NONE)
        p->oldest = m->next;
    else
        p->marks[m->prev].next = m->next;
    if (m->next == NONE)
        p->newest = m->prev;
    else
        p->marks[m->next].prev = m->prev;
    p->n_cached--;
}

int32_t rg_blocks_take(rg_blocks *p)
{
    int32_t block = p->free_head;
    mark *m;

    if (block != NONE) {
        m = &p->marks[block];
        p->free_head = m->next;
        p->n_free--;
        m->references = 1;
        return block;
    }
    block = p->oldest;
    if (block == NONE)
        return -1;
    m = &p->marks[block];
    cached_unlink(p, block);
    m->remembered = false;
    m->references = 1;
    p->evicted(p->arg, block);
    return block;
}

void rg_blocks_hold(rg_blocks *p, int32_t block)
{
    mark *m = mark_of(p, block);

    RG_ASSERT(m->references > 0 || m->remembered);
    if (m->references == 0)
        cached_unlink(p, block);
    m->references++;
}

void rg_blocks_drop(rg_blocks *p, int32_t block)
{
    mark *m = mark_of(p, block);

    RG_ASSERT(m->references > 0);
    if (--m->references > 0)
        return;
    if (m->remembered)
        cached_append(p, block);
    else
        free_push(p, block);
}

void rg_blocks_remember(rg_blocks *p, int32_t block, bool yes)
{
    mark *m = mark_of(p, block);

    RG_ASSERT(m->remembered != yes && (!yes || m->references > 0));
    m->remembered = yes;
    if (!yes && m->references == 0) {
        cached_unlink(p, block);
        free_push(p, block);
    }
}

int32_t rg_blocks_references(const rg_blocks *p, int32_t block)
{
    return mark_of(p, block)->references;
}

bool rg_blocks_remembered(const rg_blocks *p, int32_t block)
{
    return mark_of(p, block)->remembered;
}

int32_t rg_blocks_available(const rg_blocks *p)
{
    return p->n_free + p->n_cached;
}

int32_t rg_blocks_held(const rg_blocks *p)
{
    return p->n - p->n_free - p->n_cached;
}

void rg_blocks_check(const rg_blocks *p)
{
    int32_t n_held = 0, n_cached = 0, n_listed = 0, last = NONE;

    for (int32_t i = 0; i < p->n; i++) {
        RG_ASSERT(p->marks[i].references >= 0);
        n_held += p->marks[i].references > 0;
        n_cached += p->marks[i].references == 0 && p->marks[i].remembered;
    }
    RG_ASSERT(n_held == rg_blocks_held(p) && n_cached == p->n_cached);
    for (int32_t i = p->free_head; i != NONE; i = p->marks[i].next, n_listed++)
        RG_ASSERT(n_listed < p->n_free && !p->marks[i].references && !p->marks[i].remembered);
    RG_ASSERT(n_listed == p->n_free);
    n_listed = 0;
    for (int32_t i = p->oldest; i != NONE; last = i, i = p->marks[i].next, n_listed++)
        RG_ASSERT(n_listed < p->n_cached && !p->marks[i].references && p->marks[i].remembered &&
                  p->marks[i].prev == last);
    RG_ASSERT(n_listed == p->n_cached && last == p->newest);
}
