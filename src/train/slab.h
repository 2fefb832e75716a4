/* slab.h -- memory that is handed out piece by piece and taken back all at once: values and gradients of one layer. */
#ifndef RG_TRAIN_SLAB_H
#define RG_TRAIN_SLAB_H

#include "base/mem.h"
#include "ops/back/back.h"

enum { RG_SLAB_PIECES = 32 };

typedef struct rg_slab {
    float *piece[RG_SLAB_PIECES];
    size_t floats[RG_SLAB_PIECES], used;
    int at; /* the piece that is being handed out */
} rg_slab;

/* n floats aligned to 64 bytes, not zeroed; NULL: no memory.  Zeros all over is a slab without any. */
float *rg_slab_take(rg_slab *s, size_t n);
/* A matrix, whose rows are a whole number of 64 bytes apart. */
rg_mat rg_slab_mat(rg_slab *s, int rows, int cols);
size_t rg_slab_floats(const rg_slab *s); /* that were handed out, and what is left over between them */
void rg_slab_reset(rg_slab *s);          /* everything is taken back, and stays for reuse */
void rg_slab_fini(rg_slab *s);

#endif
