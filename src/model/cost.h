/* cost.h -- counts times a machine give seconds: the plan's.
 *
 * Of a machine known from its data sheet there are a bandwidth and peaks: an operation takes the longer of its bytes
 * and its arithmetic, the roofline.  Of a machine that was measured (rg_machine_measure in machine.h, and
 * rg_rates_measure in rates.h) there is more, each the measured answer to where the roofline misses:
 *
 *   kernels below their peak     seconds per weight value by the number of rows that meet it, per value of x and of y,
 *                                per format and recipe; per pair of query and key, by how many queries share the keys
 *   weights that stay in cache   bandwidth by the size of what a step goes through; what an operation takes more when
 *                                its bytes come from the last cache, and when from memory, is kept apart ("far"), and
 *                                how many do follows from the bandwidth; and with time, others take the caches
 *   work that is not a product   seconds per value for norms, rotations, activations, scans, ...
 *   fixed costs                  of a step, and of each kind of operation (its barriers)
 *   interruptions                of a thread, for which the others wait: few meet an operation, all its share a step
 *   what others take             the share of its roofs that the machine gives: arithmetic and memory are slowed, each
 *                                by its own, and an operation waits for the slower of the two; what comes from the last
 *                                cache, by its own too
 *
 * Nothing here is fitted to a model: the rates are of the seam's operations on shapes of their own. */
#ifndef RG_MODEL_COST_H
#define RG_MODEL_COST_H

#include "model/model.h"
#include "ops/count/count.h"

enum {
    RG_RATE_ROWS = 17,     /* the numbers of rows in rg_rate_rows */
    RG_RATE_QUERIES = 5,   /* 1, 2, 4, 8, 32 queries that share their keys */
    RG_RATE_SETS = 19,     /* the sizes in rg_rate_sets */
    RG_RATE_NEAR = 2, RG_RATE_CACHE = 5, RG_RATE_FAR = 18, /* those that lie near, in the last cache, and in memory */
    RG_RATE_WINDOWS = 2,   /* the lengths in rg_rate_windows */
    RG_RATE_PAUSES = 5,    /* those in rg_rate_pauses */
};

/* Where a byte comes from that is in no near cache. */
typedef enum rg_source { RG_FROM_CACHE /* the last one, which cores share */, RG_FROM_MEMORY, RG_SOURCES } rg_source;

enum { RG_RATE_FEW = 16, RG_RATE_MANY = 128 };

/* 1 .. 8, where kernels go by ones, then wider apart, up to 512. */
extern const int rg_rate_rows[RG_RATE_ROWS];
/* Bytes of memory gone through: 256 KiB .. 128 MiB; close together where last caches end. */
extern const double rg_rate_sets[RG_RATE_SETS];
/* Seconds: of a step that meets few interruptions, and of one that meets its share. */
extern const double rg_rate_windows[RG_RATE_WINDOWS];
/* Seconds until what a step has gone through is gone through again. */
extern const double rg_rate_pauses[RG_RATE_PAUSES];

/* Products with weights of one format. */
typedef struct rg_linear_rate {
    bool measured;
    double near_s[RG_RATE_ROWS]; /* seconds per weight value when so many rows meet it and it is in a near cache; */
    double far_s[RG_SOURCES][RG_RATE_ROWS]; /* what it takes more from farther; */
    double far_row_s[RG_RATE_ROWS]; /* and per row of weights, as panels begin: from the last cache, where it shows; */
    double far_start_s;          /* and a whole product besides, until its bytes flow from memory */
    double in_s, out_s;          /* seconds per value of x, which is rounded once for all weights, and of y */
} rg_linear_rate;

/* Attention over keys and values of one type, or over latents. */
typedef struct rg_attention_rate {
    bool measured;
    double item_s[RG_RATE_QUERIES];  /* seconds per row and head, whatever it sees, */
    double pair_s[RG_RATE_QUERIES];  /* per pair of query and key, */
    double width_s[RG_RATE_QUERIES]; /* and per pair and column of k and v */
    double far_s[RG_SOURCES][RG_RATE_QUERIES]; /* what a byte of K/V takes more from farther, */
    double start_s[RG_SOURCES];      /* and those of a sequence and kv head besides, until they flow */
    double store_s[RG_SOURCES];      /* what a value put into a block takes more when the block is there */
} rg_attention_rate;

/* What the engine's own operations reach on a machine, with so many threads. */
typedef struct rg_rates {
    bool measured;
    int n_threads;
    double set_bytes_s[RG_RATE_SETS];       /* read bandwidth by the size of what is gone through again and again */
    double taken[RG_RATE_PAUSES];           /* after a pause, the part of what was in a cache that others have taken */
    rg_linear_rate linear[RG_TYPE_COUNT];
    rg_attention_rate attention[RG_TYPE_COUNT], latent[RG_TYPE_COUNT];
    double fixed_s[RG_OP_COUNT];            /* of an operation of this kind, whatever its size */
    /* Per row, which threads take one by one; and per value (see rg_counted.cells) of few rows, which a near cache
     * holds, and of many. */
    double row_s[RG_OP_COUNT], few_s[RG_OP_COUNT], many_s[RG_OP_COUNT];
    /* Of so long a time of work, the part that comes on top by interruptions of a thread, for which the others wait. */
    double lost[RG_RATE_WINDOWS];
    /* A byte of what recurrences carry on, read or written, beyond its rows: near; what it takes more from farther. */
    double carry_near_s[RG_OP_COUNT], carry_far_s[RG_SOURCES][RG_OP_COUNT];
} rg_rates;

/* What a machine gives of its roofs: others on the same host take memory's bandwidth, or that of the last cache, or
 * half a core, for tenths of a second or for minutes; and a host moves its guests' threads, so that these meet later
 * when they are in cores far from each other (no cost goes by that). */
typedef struct rg_share {
    double memory, compute, meeting, cache; /* 0: all */
} rg_share;

/* What a machine can do. */
typedef struct rg_machine {
    double read_bytes_s;              /* from memory, */
    double cache_bytes_s;             /* and from the last cache, rg_rate_sets[RG_RATE_CACHE] again and again */
    double f32_ops_s, bf16_ops_s, int8_ops_s; /* peaks; 0: no recipe has such arithmetic here */
    double op_s;                      /* fixed cost of one op of a step: its barriers */
    double step_s;                    /* fixed cost of a step */
    rg_rates rates;                   /* .measured false: the roofline alone */
    rg_share share;                   /* what costs are of; rates are of all */
} rg_machine;

/* Where the bytes of a step come from that are in no near cache, and what is late when memory gives less: parts of one
 * each. */
typedef struct rg_sources {
    double far[RG_SOURCES], late;
} rg_sources;

/* Seconds of a step. */
typedef struct rg_cost {
    double seconds;   /* in all: what is predicted */
    double limit_s;   /* the roofline: every operation at the longer of its bytes and its arithmetic, no fixed costs; */
    double weights_s, state_s, compute_s; /* of which bound by the bytes of weights, of state, by arithmetic */
    double fixed_s;   /* of steps and operations, within seconds */
    rg_count count;
    rg_sources from;
    int n_ops;
    size_t activation_bytes; /* the arena of the step */
} rg_cost;

/* Seconds of one step over batch.  Counts and prices in one pass; allocates nothing. */
void rg_cost_batch(const rg_model *m, const rg_machine *machine, const rg_batch *batch, bool exact, rg_cost *out);

/* A step of n_seqs like sequences: n_rows rows each, after `start` positions, the last row's logits wanted. */
typedef struct rg_step_shape {
    int n_seqs, n_rows;
    int64_t start;
    bool exact; /* recipe */
} rg_step_shape;

/* The same for a shape.  each (may be NULL) is shown every operation and its seconds.  Allocates only for n_seqs > 1.
 * False: no memory, or more rows than a step can have. */
typedef void rg_cost_each(void *arg, const rg_counted *op, double seconds);
bool rg_cost_shape(const rg_model *m, const rg_machine *machine, const rg_step_shape *shape, rg_cost *out,
                   rg_cost_each *each, void *arg, rg_error *err);

/* A prompt of n positions after `start`, in steps of at most `chunk` rows; sums, but for activation_bytes: the most.
 * Allocates nothing. */
void rg_cost_prompt(const rg_model *m, const rg_machine *machine, const rg_step_shape *shape, int chunk, rg_cost *out);

/* Seconds in which so many bytes come from there, at best; 0: not known. */
double rg_machine_comes_s(const rg_machine *m, rg_source from, double bytes);
/* The longer of near_s of arithmetic and bytes_s of bytes from there takes so much more than with all given. */
double rg_share_delay(const rg_share *s, rg_source from, double near_s, double bytes_s);
/* What a byte takes of a set that is gone through again and again when all is given, where it took byte_s: what comes
 * of it from the last cache and from memory, as the roofs tell, goes by a share each, and what is nearer by none. */
double rg_share_byte(const rg_machine *machine, const rg_share *s, double byte_s);

/* One operation of a step whose bytes come from there. */
double rg_cost_op(const rg_machine *machine, const rg_counted *op, const rg_sources *from, bool exact);
/* n operations as one step; activation_bytes is not known.  Allocates nothing. */
void rg_cost_list(const rg_machine *machine, const rg_counted *ops, int n, bool exact, rg_cost *out);
/* Where the bytes come from of steps that go through so many, and take so long. */
rg_sources rg_cost_sources(const rg_machine *machine, double working_set, double seconds);

/* Count one step of n_seqs sequences of n_rows rows each, after `start` positions, every last row's logits wanted. */
bool rg_cost_count(const rg_model *m, int n_seqs, int n_rows, int64_t start, rg_counter *counter, rg_error *err);

/* The peak that binds products with weights of a type: of int8 or bf16 if that is how a fast step multiplies by them,
 * else of f32. */
double rg_machine_peak(const rg_machine *m, rg_type weights, bool exact);

/* Read bandwidth when so many bytes are gone through again and again, of the measured sizes by interpolation;
 * read_bytes_s where rates were not measured. */
double rg_machine_bandwidth_at(const rg_machine *m, double working_set);

#endif
