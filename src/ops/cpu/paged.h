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
#ifndef RG_OPS_CPU_PAGED_H
#define RG_OPS_CPU_PAGED_H

#include "ops/placed.h"

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

rg_paged_stats rg_paged_count(rg_paged *p);

#endif
