/* counted.h -- the reader that counts what a training step does beside its forward pass: operations of the backward,
 * and the bytes that a tape keeps for it (train/tape.h).  It computes nothing. */
#ifndef RG_OPS_BACK_COUNTED_H
#define RG_OPS_BACK_COUNTED_H

#include "ops/back/back.h"
#include "ops/count/count.h"

/* How a training step is cut (train/passes.c): ids of a piece, at least one row; rows whose logits are in memory at
 * once; bytes of the tapes of all layers, above which a layer runs twice. */
enum { RG_PIECE_TOKENS = 1024, RG_PIECE_HEAD_ROWS = 256 };
#define RG_PIECE_TAPE_BYTES 4e9

typedef struct rg_back_count {
    rg_reader reader;    /* first */
    rg_counter counter;  /* of the forward pass */
    double backward_ops; /* two products for each with weights, five for the two of attention */
    double kept_bytes;   /* values that the tape keeps, since rg_back_count_reset */
    double kv_bytes;     /* K and V of all layers, and their gradients */
    double values;       /* that operations made, forward; of attention the pairs too */
    bool cannot;         /* an operation cannot be differentiated: */
    rg_error why;
    int version[RG_MAX_ACTS], saved[RG_MAX_ACTS]; /* saved: the version that is kept; -1: none */
} rg_back_count;

/* A fwd that counts over batch, whose operations run one by one as a tape wants them. */
void rg_back_count_fwd(rg_fwd *f, rg_back_count *c, const rg_batch *batch);
/* Another layer's tape begins. */
void rg_back_count_reset(rg_back_count *c);

#endif
