/* rates.h -- what the engine's own operations reach on a machine, with so many threads.
 *
 * Every rate is measured through the seam (ops/ops.h): operations on shapes that belong to no model, run by the reader
 * that computes.  So a rate holds whatever the kernels behind the seam become.  cost.h turns rates into seconds. */
#ifndef RG_MEASURE_RATES_H
#define RG_MEASURE_RATES_H

#include "measure/rounds.h"
#include "ops/backend.h"

enum {
    RG_RATE_SETS = 10,
    RG_RATE_ROWS = 12,
    RG_RATE_OUTS = 3,
    RG_RATE_QUERIES = 5,
};

/* Where weights or K/V lie: near a core, in the cache that cores share, in memory. */
typedef enum rg_rate_place { RG_NEAR, RG_IN_CACHE, RG_FAR, RG_RATE_PLACES } rg_rate_place;

extern const int rg_rate_place_set[RG_RATE_PLACES]; /* which of rg_rate_sets is as large as what lies there */

extern const double rg_rate_sets[RG_RATE_SETS];    /* bytes: 256 KiB .. 128 MiB */
extern const int rg_rate_rows[RG_RATE_ROWS];       /* 1 .. 128; one by one up to 8, as kernels treat these unevenly */
extern const int rg_rate_outs[RG_RATE_OUTS];       /* rows, 4 .. 64 */
extern const int rg_rate_queries[RG_RATE_QUERIES]; /* 1 .. 32 */

/* Products with weights of one packed layout. */
typedef struct rg_product_rate {
    double value_s[RG_RATE_PLACES][RG_RATE_ROWS]; /* per weight value when so many rows meet it, all rows together */
    double out_s[RG_RATE_OUTS]; /* beside that, per value that is made: to begin and end its sum; by rows */
    double in_s;                /* per value that is read: to round it, where the recipe rounds */
} rg_product_rate;

/* Attention when so many queries share the keys: seconds per pair of query and key, and beside that per column of key
 * and value.  K/V in the shared cache takes as long as near K/V: kernels fetch the next block early enough. */
typedef struct rg_attention_rate {
    double pair_s[RG_RATE_QUERIES], column_s[RG_RATE_QUERIES];         /* of near K/V */
    double far_pair_s[RG_RATE_QUERIES], far_column_s[RG_RATE_QUERIES]; /* of K/V in memory */
} rg_attention_rate;

typedef struct rg_rates {
    double set_bytes_s[RG_RATE_SETS];                /* bandwidth of a buffer that is read again and again */
    rg_product_rate product[2][RG_LAYOUT_COUNT];     /* by recipe (fast, exact) and layout */
    rg_attention_rate attention[2][RG_TYPE_COUNT];   /* of K/V and of latents, by the type that they are kept in */
    double first_byte_s[RG_RATE_PLACES];             /* more for each byte of a sequence's first block of K/V */
    double line_s[RG_RATE_PLACES];                   /* to store a key, for each cache line that it touches */
    double step_s;                                   /* fixed cost of a step, */
    double fixed_s[RG_OP_COUNT];                     /* and of an operation of one row, */
    double shared_s[RG_OP_COUNT];                    /* or of several, whose threads wait for each other; */
    double angle_s;                                  /* what a sine and a cosine of a rotation take */
    double cell_s[RG_OP_COUNT];                      /* what it takes per value that it makes (rg_counted.cells) */
} rg_rates;

/* v, measured at the n points `at`, at x between them; beyond them the first or the last value. */
double rg_rate_between(const double *v, const int *at, int n, double x);

/* Bytes per second of reading a working set of so many bytes again and again. */
double rg_rates_bandwidth(const rg_rates *r, double working_set);
/* A working set was read at bytes_s: raise what was measured of sizes around it, and of smaller ones, to that. */
void rg_rates_raise_bandwidth(rg_rates *r, double working_set, double bytes_s);

/* The types in which K/V is kept: the i-th; RG_TYPE_COUNT past the end. */
rg_type rg_rate_kv_type(int i);

/* One round of measuring everything; out gets the medians of this round and those before.  False: no memory. */
bool rg_rates_measure(rg_rates *out, rg_rounds *rounds, const rg_backend *backend, int n_threads,
                      rg_error *err) RG_MUST_CHECK;

#endif
