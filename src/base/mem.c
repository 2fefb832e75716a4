/* mem.c -- the allocator: posix_memalign with a header that remembers the size, and counts kept by atomics.
 *
 * The header is one cache line before the block, so that blocks stay aligned to RG_ALIGN.  Regions come from mmap and
 * are counted and gated alike. */
#include "base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct header {
    size_t bytes;
    uint64_t mark; /* catches a free of foreign memory, or a second free */
} header;

static const uint64_t MARK_LIVE = 0x7269646765206f6bu, MARK_DEAD = 0x6465616462656566u;

static atomic_size_t n_live, live_bytes;
static _Atomic uint64_t n_allocs;
static _Thread_local int forbidden;
static _Atomic(void *) gate_arg;
static bool (*_Atomic gate)(void *arg, size_t bytes);

/* Memory reserved for the calling thread. */
static _Thread_local struct reserve {
    char *at; /* NULL: nothing */
    size_t bytes, taken, most;
    size_t budget, held; /* of small allocations since */
    bool refused, over;
} reserve;

/* Memory from the reserve, in place of a refused allocation; it has no header and is never freed by itself. */
static void *from_reserve(size_t bytes)
{
    size_t whole;

    if (!reserve.at)
        return NULL;
    reserve.refused = true;
    if (bytes > reserve.most || !rg_round_up(bytes, RG_ALIGN, &whole) || whole > reserve.bytes - reserve.taken)
        return NULL;
    reserve.taken += whole;
    return reserve.at + reserve.taken - whole;
}

static bool in_reserve(const void *p)
{
    return reserve.at && (const char *)p >= reserve.at && (const char *)p < reserve.at + reserve.bytes;
}

/* True if `bytes` may be allocated now. */
static bool allowed(size_t bytes)
{
    bool (*ask)(void *arg, size_t bytes) = atomic_load(&gate);

#ifdef RG_DEBUG
    RG_ASSERT(forbidden == 0 && "no allocation within a step");
#endif
    return !ask || ask(atomic_load(&gate_arg), bytes);
}

static void count_new(size_t bytes)
{
    atomic_fetch_add_explicit(&n_live, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&live_bytes, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&n_allocs, 1, memory_order_relaxed);
}

static void count_free(size_t bytes)
{
    atomic_fetch_sub_explicit(&n_live, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&live_bytes, bytes, memory_order_relaxed);
}

static header *header_of(void *p)
{
    header *h = (header *)((char *)p - RG_ALIGN);

    RG_ASSERT(h->mark == MARK_LIVE);
    return h;
}

void *rg_alloc(size_t bytes)
{
    size_t total;
    void *base;
    header *h;

    /* what has no bytes has room for one, so that its address lies within its own memory: leak checkers look there */
    if (!rg_add(bytes ? bytes : 1, (size_t)RG_ALIGN, &total) || total > (size_t)PTRDIFF_MAX)
        return NULL;
    if (!allowed(bytes) || posix_memalign(&base, RG_ALIGN, total))
        return from_reserve(bytes);
    h = base;
    h->bytes = bytes;
    h->mark = MARK_LIVE;
    count_new(bytes);
    return (char *)base + RG_ALIGN;
}

void *rg_zalloc(size_t bytes)
{
    void *p = rg_alloc(bytes);

    if (p)
        memset(p, 0, bytes);
    return p;
}

void *rg_array(size_t n, size_t bytes)
{
    size_t total;

    return rg_mul(n, bytes, &total) ? rg_zalloc(total) : NULL;
}

void *rg_alloc_tail(size_t head, size_t n, size_t each)
{
    size_t total;

    return rg_head_and_items(head, n, each, &total) ? rg_alloc(total) : NULL;
}

void *rg_zalloc_tail(size_t head, size_t n, size_t each)
{
    size_t total;

    return rg_head_and_items(head, n, each, &total) ? rg_zalloc(total) : NULL;
}

void *rg_resize_array(void *p, size_t n, size_t each)
{
    size_t total;

    return rg_mul(n, each, &total) ? rg_resize(p, total) : NULL;
}

void *rg_resize(void *p, size_t bytes)
{
    size_t had;
    void *q;

    if (!p)
        return rg_alloc(bytes);
    had = header_of(p)->bytes;
    q = rg_alloc(bytes);
    if (!q)
        return NULL;
    memcpy(q, p, had < bytes ? had : bytes);
    rg_free(p);
    return q;
}

char *rg_strdup(const char *s)
{
    return rg_strndup(s, strlen(s));
}

char *rg_put_text(char *p, const char *s, size_t n)
{
    if (!p)
        return NULL;
    if (n)
        memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

char *rg_strndup(const char *s, size_t n)
{
    size_t bytes;

    return rg_add(n, (size_t)1, &bytes) ? rg_put_text(rg_alloc(bytes), s, n) : NULL;
}

void rg_free(void *p)
{
    header *h;

    if (!p || in_reserve(p))
        return;
    h = header_of(p);
    h->mark = MARK_DEAD;
    count_free(h->bytes);
#ifdef RG_DEBUG
    memset(p, 0xdd, h->bytes);
#endif
    free(h);
}

/* ---- small allocations: a size and two bytes of mark in front ---- */

enum { SMALL_HEAD = 8, SMALL_MARK = 0x6a73 };

static const uint64_t SMALL_MOST = (uint64_t)1 << 48;

/* Memory that malloc uses for them: multiples of 16 bytes, with malloc's own header. */
static bool small_cost(size_t bytes, size_t *cost)
{
    return bytes < SMALL_MOST && rg_round_up(bytes + SMALL_HEAD + sizeof(size_t), 16, cost);
}

static bool within_budget(size_t cost)
{
    if (!reserve.at || cost <= reserve.budget - reserve.held)
        return true;
    reserve.over = true;
    return false;
}

void *rg_alloc_small(size_t bytes)
{
    size_t cost;
    uint64_t *head;

    if (!small_cost(bytes, &cost))
        return NULL;
    if (!within_budget(cost) || !allowed(cost) || !(head = malloc(bytes + SMALL_HEAD))) /* fits: bytes < 2^48 */
        return from_reserve(bytes);
    *head = bytes << 16 | SMALL_MARK;
    count_new(cost);
    reserve.held += reserve.at ? cost : 0;
    return head + 1;
}

void rg_free_small(void *p)
{
    uint64_t *head = p;
    size_t cost;

    if (!p || in_reserve(p))
        return;
    head--;
    RG_ASSERT((*head & 0xffff) == SMALL_MARK && small_cost(*head >> 16, &cost));
    *head = 0;
    count_free(cost);
    reserve.held -= cost < reserve.held ? cost : reserve.held;
    free(head);
}

bool rg_mem_reserve(size_t bytes, size_t most, size_t budget)
{
    RG_ASSERT(!reserve.at);
    void *p = rg_alloc(bytes);

    if (p)
        reserve = (struct reserve){ .at = p, .bytes = bytes, .most = most, .budget = budget };
    return p;
}

bool rg_mem_refused(void)
{
    return reserve.refused;
}

bool rg_mem_over_budget(void)
{
    return reserve.over;
}

void rg_mem_unreserve(void)
{
    void *p = reserve.at;

    reserve = (struct reserve){ 0 };
    rg_free(p);
}

void *rg_region_new(size_t bytes)
{
    void *p;

    if (bytes > (size_t)PTRDIFF_MAX || !allowed(bytes))
        return NULL;
    p = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (bytes >= (size_t)2 << 20)
        (void)madvise(p, bytes, MADV_HUGEPAGE); /* only advice: it fails where huge pages are off */
#endif
    count_new(bytes);
    return p;
}

void rg_region_free(void *p, size_t bytes)
{
    if (!p)
        return;
    count_free(bytes);
    RG_ASSERT(munmap(p, bytes ? bytes : 1) == 0);
}

/* ---- regions that share huge pages: side by side in blocks ------------------------------------------------------- */

/* Larger ones are regions of their own, whose ends lie in small pages: up to 2 MB at each. */
enum { BLOCK_BYTES = 128 << 20, SHARED_MOST = 32 << 20 };

/* At the start of a block, whose address is a multiple of BLOCK_BYTES. */
typedef struct block {
    size_t used; /* from the start on, this head included */
    int n_regions;
} block;

static pthread_mutex_t blocks_lock = PTHREAD_MUTEX_INITIALIZER;
static block *filling; /* the block that the next regions lie in; NULL: a new one */

/* Address space for a block; pages are taken as they are written. */
static block *block_new(size_t head)
{
    uint8_t *p = mmap(NULL, 2 * (size_t)BLOCK_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return NULL;
    size_t before = -(uintptr_t)p % BLOCK_BYTES;
    if (before)
        RG_ASSERT(munmap(p, before) == 0);
    RG_ASSERT(munmap(p + before + BLOCK_BYTES, BLOCK_BYTES - before) == 0);
    block *b = (block *)(void *)(p + before);
#ifdef MADV_HUGEPAGE
    (void)madvise(b, BLOCK_BYTES, MADV_HUGEPAGE);
#endif
    *b = (block){ .used = head };
    return b;
}

void *rg_shared_region_new(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *p = NULL;

    if (bytes > SHARED_MOST)
        return rg_region_new(bytes);
    if (!allowed(bytes))
        return NULL;
    size_t whole = (bytes / page + 1) * page;
    pthread_mutex_lock(&blocks_lock);
    if (!filling || whole > BLOCK_BYTES - filling->used)
        filling = block_new(page);
    if (filling) {
        p = (uint8_t *)filling + filling->used;
        filling->used += whole;
        filling->n_regions++;
        count_new(bytes);
    }
    pthread_mutex_unlock(&blocks_lock);
    return p;
}

void rg_shared_region_free(void *p, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes / page + 1) * page;

    if (!p || bytes > SHARED_MOST) {
        rg_region_free(p, bytes);
        return;
    }
    count_free(bytes);
    pthread_mutex_lock(&blocks_lock);
    block *b = (block *)(void *)((uint8_t *)p - (uintptr_t)p % BLOCK_BYTES);
    if (--b->n_regions == 0) {
        filling = filling == b ? NULL : filling;
        RG_ASSERT(munmap(b, BLOCK_BYTES) == 0);
    } else {
        RG_ASSERT(madvise(p, whole, MADV_DONTNEED) == 0); /* its pages are zero again */
        if ((uint8_t *)p + whole == (uint8_t *)b + b->used)
            b->used -= whole;
    }
    pthread_mutex_unlock(&blocks_lock);
}

/* ---- for tests --------------------------------------------------------------------------------------------------- */

void rg_mem_set_gate(bool (*allow)(void *arg, size_t bytes), void *arg)
{
    atomic_store(&gate, NULL);
    atomic_store(&gate_arg, arg);
    atomic_store(&gate, allow);
}

rg_mem_stats rg_mem_count(void)
{
    return (rg_mem_stats){ .n_live = atomic_load(&n_live),
                           .live_bytes = atomic_load(&live_bytes),
                           .n_allocs = atomic_load(&n_allocs) };
}

void rg_mem_forbid(void)
{
    forbidden++;
}

void rg_mem_permit(void)
{
    forbidden--;
}
