/* mem.h -- the one allocator.
 *
 * All memory of ridge, and of the libraries that let us say so, comes from here, so that a test can count it, or make
 * the N-th allocation fail.  Thread-safe.  Sizes of zero give a valid pointer. */
#ifndef RG_BASE_MEM_H
#define RG_BASE_MEM_H

#include "base/error.h"

enum { RG_ALIGN = 64 }; /* of every allocation: a cache line and a vector */

/* NULL when there is no memory.  Freed with rg_free, whatever made it. */
void *rg_alloc(size_t bytes);
void *rg_zalloc(size_t bytes);
void *rg_array(size_t n, size_t bytes);  /* n * bytes, checked, zeroed */
void *rg_alloc_tail(size_t head, size_t n, size_t each);  /* head + n * each bytes, checked */
void *rg_zalloc_tail(size_t head, size_t n, size_t each); /* the same, zeroed */
void *rg_resize(void *p, size_t bytes);  /* p unchanged and NULL on failure */
void *rg_resize_array(void *p, size_t n, size_t each); /* the same, to n * each bytes, checked */
char *rg_strdup(const char *s);
char *rg_strndup(const char *s, size_t n);
/* Put s[0, n) and a NUL at p; p, which may be NULL. */
char *rg_put_text(char *p, const char *s, size_t n);
void rg_free(void *p);                   /* NULL is fine */

/* A large region straight from the kernel: zeroed, page-aligned, huge pages where possible, given back whole. */
void *rg_region_new(size_t bytes);
void rg_region_free(void *p, size_t bytes);
/* Like a region, but all up to 32 MB lie side by side and share huge pages.  For what is kept about as long as the
 * others, as the weights of a model are: a freed one gives its pages back, but its addresses only together with those
 * of its neighbours.  rg_region_to_node takes it too. */
void *rg_shared_region_new(size_t bytes);
void rg_shared_region_free(void *p, size_t bytes); /* NULL is fine; the same number of bytes */
/* Put the pages of a region, those that are there and those to come, on a NUMA node, 0 .. rg_nodes() - 1.  Only advice:
 * it changes nothing where the system refuses or there is one node. */
void rg_region_to_node(void *p, size_t bytes, int node);

/* For a library that makes very many small allocations: aligned to 8, with 8 bytes in front instead of RG_ALIGN.  Freed
 * with rg_free_small and nothing else. */
void *rg_alloc_small(size_t bytes);
void rg_free_small(void *p); /* NULL is fine */

/* For a library that breaks if an allocation fails halfway.  Reserves `bytes`: from now on an allocation of the calling
 * thread that would fail comes from the reserve, at most `most` in one piece.  rg_mem_refused is true once that has
 * happened; then the caller frees what was made, before rg_mem_unreserve, and reports out of memory.  rg_alloc_small
 * also fails (and so uses the reserve) where the thread would hold more than `budget` bytes at once.  False: no memory
 * to reserve. */
bool rg_mem_reserve(size_t bytes, size_t most, size_t budget) RG_MUST_CHECK;
bool rg_mem_refused(void);
bool rg_mem_over_budget(void); /* and the reason was the budget */
void rg_mem_unreserve(void);

/* Bytes that this process can still take: what the machine has available, within the cgroup's limit.  0: not known. */
uint64_t rg_memory_free(void);

/* For tests.  `allow` is called before each allocation (NULL: always yes). */
void rg_mem_set_gate(bool (*allow)(void *arg, size_t bytes), void *arg);

typedef struct rg_mem_stats {
    size_t n_live;     /* allocations not yet freed */
    size_t live_bytes;
    uint64_t n_allocs; /* ever, all threads */
} rg_mem_stats;

rg_mem_stats rg_mem_count(void);

/* Between these, an allocation by the calling thread asserts in debug builds: a step allocates nothing. */
void rg_mem_forbid(void);
void rg_mem_permit(void);

#endif
