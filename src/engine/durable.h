/* durable.h -- cached prefixes that outlive the process: blocks of state in files, and the thread that reads and writes
 * them.
 *
 * A block's name in files (rg_block_name) is a hash of all that determines its bits: what the engine computes with
 * (`identity`: checkpoint, arithmetic, type of K/V, shape of the state), whose prefix it is (`scope`: tenant, salt,
 * adapter, variant of ropes), and every id from the first to the block's last.  So a block of another model, of another
 * tenant or of other arithmetic is never found, because it has another name.
 *
 * The engine's thread touches no file.  It copies a block into a buffer and hands that over (rg_durable_put), and asks
 * for the blocks of a prompt before the prompt is scheduled (rg_durable_seek); they arrive one by one
 * (rg_durable_next), and `ready` is called when there are some.  There are few buffers: while all are in use, nothing
 * is put, and reading waits.
 *
 * What cannot be read counts as not there; what cannot be written is left out.  Both are said once and counted.  Knows
 * no index, no request and no model (restore.h brings these together). */
#ifndef RG_ENGINE_DURABLE_H
#define RG_ENGINE_DURABLE_H

#include "engine/durable_file.h"

typedef struct rg_durable rg_durable;

typedef struct rg_durable_options {
    const char *folder;        /* made if there is none; several processes may share it */
    uint64_t most_bytes;       /* of all files in it, other processes' too */
    const rg_state_spec *spec; /* borrowed */
    rg_block_name identity;
    int32_t max_blocks; /* of a sequence */
} rg_durable_options;

/* Starts the thread.  NULL and *err: the folder cannot be written to, most_bytes is too little for a few blocks, or
 * there is no memory. */
rg_durable *rg_durable_open(const rg_durable_options *o, rg_error *err);
void rg_durable_close(rg_durable *d); /* writes what was put, and ends the thread; NULL is fine */

/* Memory of the buffers for this state. */
uint64_t rg_durable_buffer_bytes(const rg_state_spec *spec);

/* From now on the thread calls ready(arg) when something has arrived; NULL: nobody, and no call is under way when this
 * returns. */
void rg_durable_on_ready(rg_durable *d, void (*ready)(void *arg), void *arg);

typedef struct rg_durable_counts { /* since it was opened */
    uint64_t n_found, n_missed;    /* seeks that found more than was known, and that found nothing */
    uint64_t read_bytes, written_bytes;
    uint64_t n_damaged, n_failed; /* files that were not what was written; blocks that could not be written */
    uint64_t folder_bytes;        /* of all files, as far as this process knows; 0 until it first wrote */
} rg_durable_counts;
rg_durable_counts rg_durable_count(rg_durable *d); /* any thread */

/* ---- names: the engine's thread ---- */

/* The weights are others now. */
void rg_durable_rename(rg_durable *d, const rg_block_name *identity);
/* What the first block of a prompt comes after. */
rg_block_name rg_durable_root(const rg_durable *d, const rg_block_name *scope);
/* The name of the block of these ids after another block, or after the root. */
rg_block_name rg_durable_after(const rg_block_name *before, const int32_t tokens[RG_BLOCK]);

/* ---- writing: the engine's thread ---- */

/* A buffer for a block, to be filled and put, or dropped; NULL: all are in use. */
void *rg_durable_room(rg_durable *d);
void rg_durable_drop_room(rg_durable *d, void *buffer);
void rg_durable_put(rg_durable *d, void *buffer, const rg_block_place *at);

/* ---- reading: the engine's thread ---- */

enum { RG_SEEKS = 8 }; /* at once */

/* A prompt whose blocks are looked for. */
typedef struct rg_seek {
    void *owner;          /* the caller's own */
    int32_t n;            /* full blocks of the prompt that may be used */
    int32_t n_known;      /* of them, those after which it can start already */
    rg_block_name *names; /* [max_blocks] n of them */
    uint16_t *has;        /* [max_blocks] bit g: the block of group g needs no file */
} rg_seek;

/* A free seek, to be filled in and started; NULL: RG_SEEKS are under way. */
rg_seek *rg_durable_seek(rg_durable *d);
void rg_durable_start(rg_durable *d, rg_seek *k);
/* What still arrives for it is of no use: it is over soon. */
void rg_durable_give_up(rg_durable *d, rg_seek *k);

typedef struct rg_arrival {
    rg_seek *seek;
    const void *block; /* its bytes; NULL: the seek is over, and all that it found has arrived */
    int group;
    int32_t at; /* the number of its block in the prompt; they rise, but where a file was damaged they begin anew */
} rg_arrival;

/* The next arrival.  False: nothing now.  To be given back before the next call: a block's buffer, or the seek. */
bool rg_durable_next(rg_durable *d, rg_arrival *a);
void rg_durable_give_back(rg_durable *d, const rg_arrival *a);

#endif
