/* far.h -- a back end whose memory the host cannot read: `ref` in a process of its own.
 *
 * Weights, state and activations lie in the process; verbs go to it over a socket.  The text of a step runs here and its
 * operations cross as records; submit returns as soon as they are sent, wait collects the rows that are wanted.  What
 * above ops/backend.h reads a back end's memory, or forgets a verb, does not get ref's bits here, or crashes. */
#ifndef RG_TEST_FAR_H
#define RG_TEST_FAR_H

#include "ops/backend.h"

/* What a byte that crosses is part of. */
typedef enum far_kind {
    FAR_COMMANDS, /* verbs, sizes, records of operations */
    FAR_IDS,      /* ids, places, spans, and which rows are wanted */
    FAR_TABLES,   /* numbers of blocks */
    FAR_FEATURES, /* what networks that draft read beside ids, and rows that are given in place of ids */
    FAR_WEIGHTS,  /* values, images and orders, both ways */
    FAR_STATE,    /* blocks, both ways */
    FAR_VALUES,   /* of activations, fetched or put */
    FAR_ROWS,     /* logits, hidden states and scores that are wanted */
    FAR_KINDS
} far_kind;

/* The back end; its process starts with the first call and ends with this one. */
const rg_backend *far_backend(void);
int far_process(void);

/* Bytes that have crossed so far, [FAR_KINDS], either way.  Between steps. */
void far_count(uint64_t bytes[FAR_KINDS]);
/* Steps that crossed, and operations of each kind, [RG_OP_COUNT]. */
uint64_t far_count_steps(void);
void far_count_ops(uint64_t n[RG_OP_COUNT]);

#endif
