/* paged.h -- packed matrices that lie in a file and are read when they are wanted, into a cache of fixed size.
 *
 * A page is one matrix; pages of one size share a part of the cache.  Whoever multiplies asks for pages, waits for
 * each, and releases it; until then it stays where it is.  Pages are read by threads of the cache, several at once,
 * past the system's own cache where the file system can do that, and checked.  The page that makes room is the one with
 * the lowest score: each use adds to a page's score, and all scores halve while pages are used HALF_LIFE times as often
 * as there are pages; so it is the least recently used one, weighed by how often it was used.
 *
 * Nothing is allocated after rg_paged_new.  Any thread may call; one step at a time holds pages, so that what others
 * hold never leaves it without room. */
#ifndef RG_QUANT_PAGED_H
#define RG_QUANT_PAGED_H

#include "base/file.h"

enum { RG_PAGE_ALIGN = 4096 }; /* of pages in their file, which ends no sooner than the last page filled up to that */

typedef struct rg_paged_page {
    uint64_t offset, hash; /* hash: rg_hash_pieces */
    size_t bytes;
} rg_paged_page;

typedef struct rg_paged_options {
    rg_file *file;        /* open, and read past the system's cache from now on; the pages' own, if they are made.
                           *   NULL: */
    const char *path;     /*   the one of this name is opened */
    const rg_paged_page *pages; /* copied */
    int n_pages;
    size_t bytes;         /* memory for pages at most */
    int at_once;          /* pages of each size that are held at once at least; fewer fit: refused */
    int n_readers;        /* threads that read */
} rg_paged_options;

typedef struct rg_paged rg_paged;

/* False and *err: the memory is too little (it says what is needed).  Of the pages only sizes are looked at. */
bool rg_paged_check(const rg_paged_options *o, rg_error *err) RG_MUST_CHECK;
/* NULL and *err: likewise, or the file cannot be opened, or there is no memory. */
rg_paged *rg_paged_new(const rg_paged_options *o, rg_error *err);
void rg_paged_free(rg_paged *p); /* NULL is fine */

/* True if a page is there: asking for it reads nothing. */
bool rg_paged_has(rg_paged *p, int page);
/* Hold a page, `uses` being added to its score; it is read unless it is there.  False: all room is held. */
bool rg_paged_ask(rg_paged *p, int page, int uses);
/* Hold a page that will probably be asked for, which is read unless it is there: a guess, which adds nothing to its
 * score.  False: at_once places of its size, or half of them, would not be left to pages that are asked for. */
bool rg_paged_ask_ahead(rg_paged *p, int page);
/* True if a page that is held can be waited for without waiting. */
bool rg_paged_is_ready(rg_paged *p, int page);
/* The bytes of a page that is held, valid until it is released.  NULL: it could not be read, or is damaged. */
const uint8_t *rg_paged_wait(rg_paged *p, int page);
/* A page whose reading has begun is read to the end; one that nobody holds before that is not read. */
void rg_paged_release(rg_paged *p, int page);

typedef struct rg_paged_stats {
    uint64_t n_asked, n_read, n_failed; /* pages held, read, and not read for a fault */
    uint64_t n_unused;                  /* of those read, released without having been asked for: wrong guesses */
    uint64_t read_bytes;
    size_t bytes; /* memory of the cache */
} rg_paged_stats;

rg_paged_stats rg_paged_count(rg_paged *p);

#endif
