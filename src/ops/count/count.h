/* count.h -- the reader that counts: operations and bytes of every op, without computing anything.
 *
 * Bytes are what must cross the memory bus at least once per step: weights as stored in the checkpoint, embedding rows
 * that are touched, the experts that are expected to be used (E (1 - (1 - k / E)^n) of E for n rows), K/V and state.
 * Operations are multiplications and additions of matrix products, attention and scans; elementwise work is left
 * out. */
#ifndef RG_OPS_COUNT_COUNT_H
#define RG_OPS_COUNT_COUNT_H

#include "ops/ops.h"

typedef struct rg_count {
    double ops;           /* multiplications and additions */
    double weight_bytes;
    double state_bytes;   /* read and written: K/V, latents, recurrent */
} rg_count;

typedef struct rg_counted { /* one op of the step */
    rg_op_kind kind;
    int layer;
    const char *name;     /* of its first output */
    bool integer;         /* its weights have a fast integer recipe */
    rg_count count;
} rg_counted;

typedef struct rg_counter {
    rg_reader reader;     /* first: the counter is its reader */
    rg_count total, by_kind[RG_OP_COUNT];
    int n_ops;
    rg_counted *list;     /* NULL: only totals are kept */
    int list_room;
} rg_counter;

/* list may be NULL.  Owned by the caller, who keeps list. */
void rg_counter_init(rg_counter *c, rg_counted *list, int list_room);
/* A fwd that computes nothing, for a counting or measuring run over batch. */
void rg_count_fwd(rg_fwd *f, rg_counter *c, const rg_batch *batch);

#endif
