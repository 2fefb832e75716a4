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

/* One matrix (or stack of them) that an op multiplies with. */
typedef struct rg_counted_weight {
    rg_type type;
    double values; /* that are read: of a mixture, those of the experts expected to be used */
} rg_counted_weight;

typedef struct rg_counted { /* one op of the step */
    rg_op_kind kind;
    int layer;
    const char *name;     /* of its first output */
    rg_count count;
    /* What the cost of an operation goes by (measure/cost.h). */
    rg_counted_weight w[3]; /* values 0: none */
    int n_rows;           /* of the activation that it makes */
    double rows;          /* that meet each weight; attention: queries that look at the same keys */
    double ins, outs;     /* products: values that they read and make, of all rows and matrices */
    double angles;        /* rotation: sines and cosines that no operation before it in the step has needed */
    double cells;         /* linear: values that it adds to; attention: pairs of query and key; scan: states advanced;
                           *   others: values made */
    double whole;         /* attention: pairs with all keys of the blocks that a query sees keys of */
    double lines;         /* K/V store: cache lines of keys: a block has one for each column, however many are stored */
    int width;            /* attention: k_dim + v_dim */
    double key_bytes;     /* attention: of a key far before the row */
    double first_bytes;   /* attention: of the first block of keys of each sequence, which no kernel fetched early */
    bool latent;          /* attention over latents, or their store */
    int most_keys;        /* attention: that a row reads, however long its sequence; 0: no such limit */
    rg_type type;         /* of the K/V */
} rg_counted;

enum { RG_COUNTED_ROPES = 8 };

typedef struct rg_counter {
    rg_reader reader;     /* first: the counter is its reader */
    rg_count total, by_kind[RG_OP_COUNT];
    int n_ops;
    const rg_rope *rope[RG_COUNTED_ROPES]; /* whose angles are known, the first n_ropes */
    int n_ropes;
    rg_counted *list;     /* NULL: only totals are kept */
    int list_room;
    void (*each)(void *arg, const rg_counted *op); /* called for every op as it is counted; may be NULL */
    void *arg;
} rg_counter;

/* list may be NULL.  Owned by the caller, who keeps list. */
void rg_counter_init(rg_counter *c, rg_counted *list, int list_room);
/* A fwd that computes nothing, for a counting or measuring run over batch.  Of a batch that is only counted, token, pos
 * and logit_rows may be NULL, and index and kv_end too: every row then sees what stands before it and itself. */
void rg_count_fwd(rg_fwd *f, rg_counter *c, const rg_batch *batch);

#endif
