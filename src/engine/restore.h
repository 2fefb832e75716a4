/* restore.h -- the prefix index and its files: what it learns is handed to durable.h, and comes back before a prompt
 * looks for its prefix.
 *
 * A restored block takes its place in the index like a computed one, so nothing else knows where it came from.  Not
 * thread-safe: the engine thread calls it, between steps. */
#ifndef RG_ENGINE_RESTORE_H
#define RG_ENGINE_RESTORE_H

#include "engine/durable.h"
#include "engine/sequence.h"

/* From now on the states' cached prefixes are kept in files too.  d is borrowed, and max_len is as it was opened for.
 * Without effect where nothing is shared across requests.  False and *err: no memory. */
bool rg_states_keep(rg_states *s, rg_durable *d, int32_t max_len, rg_error *err);

/* A prompt whose prefix may be in files. */
typedef struct rg_restore_of {
    const int32_t *tokens; /* [n] borrowed until it is over */
    int32_t n;             /* ids whose state may come from a prefix */
    uint64_t salt;         /* as its sequence will have it, */
    rg_block_name scope;   /*   and as files have it */
    void *owner;
} rg_restore_of;

typedef enum rg_restoring {
    RG_RESTORE_NOTHING, /* the index has all of it, or there are no files: it need not wait */
    RG_RESTORE_BEGUN,   /* wait for its owner from rg_states_restored */
    RG_RESTORE_LATER,   /* too many are under way: ask again when one of them is over */
} rg_restoring;
rg_restoring rg_states_restore(rg_states *s, const rg_restore_of *what);

/* Put into the index what has arrived.  Returns the owner of a prompt that waits no longer; NULL: none now. */
void *rg_states_restored(rg_states *s);
/* This owner does not wait any more. */
void rg_states_forsake(rg_states *s, const void *owner);

#endif
