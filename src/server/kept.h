/* kept.h -- texts that clients come back to by an id: responses and conversations.
 *
 * They are in memory, within a budget of bytes, each for a time after it was last kept or read.  With a folder they are
 * also in a SQLite database and stay until they are removed: a thread of its own writes them, so that whoever keeps one
 * waits for no disk, and what memory has let go is read from there.  A text belongs to the owner that kept it; nobody
 * else finds it.  Any thread. */
#ifndef RG_SERVER_KEPT_H
#define RG_SERVER_KEPT_H

#include "base/error.h"

typedef struct rg_kept_texts rg_kept_texts;

enum { RG_KEPT_ID = 96 }; /* bytes of an id with its end; longer ones are never found */

typedef struct rg_kept_options {
    const char *dir;  /* of the database; NULL: memory alone */
    size_t max_bytes; /* of texts in memory; those that are not on the disk yet may pass it */
    double lasts_s;   /* in memory */
} rg_kept_options;

/* NULL and *err: the database cannot be opened, or no memory. */
rg_kept_texts *rg_kept_open(const rg_kept_options *o, rg_error *err);
void rg_kept_close(rg_kept_texts *k); /* what was kept is on the disk afterwards; NULL is fine */

/* Memory that is missing here counts as that of a JSON value: rg_json_lost tells "there is none" from "no memory". */

/* Keep text[0, n) under this id, in place of what was there.  False: no memory, or the id is too long. */
bool rg_kept_put(rg_kept_texts *k, const char *owner, const char *id, const char *text, size_t n);
/* A copy, to be rg_free'd, which ends with a NUL not counted in *n; NULL: there is none. */
char *rg_kept_get(rg_kept_texts *k, const char *owner, const char *id, size_t *n);
/* False: there was none, or no memory to note that it is gone. */
bool rg_kept_remove(rg_kept_texts *k, const char *owner, const char *id);

/* One at a time reads a text and keeps a changed one in its place. */
void rg_kept_hold(rg_kept_texts *k);
void rg_kept_release(rg_kept_texts *k);

size_t rg_kept_bytes(rg_kept_texts *k); /* of texts in memory */

#endif
