/* shop.h -- where operations are timed: a pool, the reader that computes, an arena, and a batch, weights and state of
 * no model.
 *
 * A text is a few lines of seam that every thread runs some hundred times, each of them timed.  Many
 * matrices of some megabytes gone through in turn come from memory, a small one again and again stays in a near cache;
 * sequences likewise.  One thread at a time. */
#ifndef RG_MODEL_SHOP_H
#define RG_MODEL_SHOP_H

#include "model/machine.h"

enum {
    RG_SHOP_ROWS = 512,     /* of a batch, at most */
    RG_SHOP_COLS = 8192,    /* of a mixture's activation, at most */
    RG_SHOP_MATRICES = 24,  /* gone through in turn, at most */
    RG_SHOP_SPANS = 64,     /* sequences gone through in turn, or in a batch, at most */
    RG_SHOP_VECTOR = 64 << 10,
    RG_SHOP_EXPERTS = 8, RG_SHOP_USED = 2,
    RG_SHOP_TURNS = 1000,   /* between two looks, at most */
    RG_SHOP_TIMED = 2048,   /* times remembered, at most: about a hundred for each format and K/V type, */
    RG_SHOP_PASSES = 31,    /* each of so many passes */
    RG_SHOP_WINDOWS = 512,  /* of each length in a pass, at most: the last ones */
    RG_SHOP_CONTEXT = 1024, /* positions of a sequence; its K/V about a megabyte */
};

/* The seconds of everything timed, in the order of the calls, of the last passes: each makes the same ones as the pass
 * before.  What was timed while it was not quiet is forgotten as soon as there is one that was. */
typedef struct rg_seen {
    int n, times[RG_SHOP_TIMED];
    bool quiet[RG_SHOP_TIMED];
    double seconds[RG_SHOP_TIMED][RG_SHOP_PASSES];
} rg_seen;

/* When a thread began and ended a turn, of rg_now_ns. */
typedef struct rg_shop_stamp {
    uint64_t begun, ended;
} rg_shop_stamp;

/* Time lost to interruptions: of windows of some length, the share by which their turns took longer in all than each as
 * long as the usual one. */
typedef struct rg_lost {
    double took_s, usual_s; /* of the window that is open */
    double share[RG_SHOP_WINDOWS];
    int n;
} rg_lost;

typedef struct rg_shop rg_shop;
/* What is timed, for the turn-th time of rg_shop.spread; run by every thread. */
typedef void rg_shop_text(rg_fwd *f, rg_shop *w, int turn);

struct rg_shop {
    /* What the text at work uses. */
    rg_weight weight[RG_SHOP_MATRICES];
    rg_kv kv;
    rg_buffer tail, h; /* of a recurrence, and its shape */
    int d_inner, d_state, taps;
    rg_rope rope;
    rg_routing routing;
    rg_weight norm;
    float *vector;      /* -1, -0.5, -1, ... [RG_SHOP_VECTOR] */
    int n_heads;
    int width;          /* columns of an activation */
    rg_pulse *pulse;    /* of the machine while it times; NULL: none */
    double patience_s;  /* for the rest of this pass, to wait until it is quiet */
    rg_seen *seen;      /* by this pass and those before */
    rg_lost lost[RG_RATE_WINDOWS]; /* in this pass */
    int n_timed;        /* in this pass */
    int spread;         /* matrices or sequences gone through in turn; 0 or 1: the same again and again */
    /* The batch: one span, or one sequence of many in turn. */
    int32_t *index, *kv_end, *table; /* of its rows; blocks of its sequences */
    rg_span spans[RG_SHOP_SPANS];
    rg_batch batches[RG_SHOP_SPANS];
    /* The rest is shop.c's. */
    rg_pool *pool;
    rg_cpu_reader *reader;
    bool exact;
    int n_threads;
    uint8_t *arena;
    size_t arena_bytes;
    rg_fwd *fwd;        /* [n_threads] */
    rg_packed packed[RG_SHOP_MATRICES];
    uint8_t *state;
    size_t state_bytes;
    rg_group_memory group;
    int32_t *ints;
    rg_shop_text *fn;
    int repeats;
    rg_shop_stamp *stamps; /* [n_threads][RG_SHOP_TURNS] */
};

rg_shop *rg_shop_open(const rg_cpu *cpu, int n_threads, bool exact, rg_error *err);
void rg_shop_close(rg_shop *w); /* NULL is fine */

/* `rows` last rows of sequences of RG_SHOP_CONTEXT positions, one sequence in a batch, w->spread of them in turn, each
 * of blocks of block_bytes (0: no state), one block if recurrent.  False: no memory. */
bool rg_shop_batch(rg_shop *w, int rows, size_t block_bytes, bool recurrent, rg_error *err);
/* n stacks of shape[0] matrices, all alike: one row of plausible values, everywhere. */
bool rg_shop_weights(rg_shop *w, rg_type type, int n, const int64_t shape[3], rg_error *err);
/* Seconds of one turn of fn on a machine that gives all of its roofs: the median of turns, of a few tries, and of what
 * they were in this pass and those before.  Of something near; or of what takes near_s near and comes from farther,
 * from where its bytes alone come in bytes_s. */
double rg_shop_seconds(rg_shop *w, rg_shop_text *fn);
double rg_shop_far_seconds(rg_shop *w, rg_shop_text *fn, rg_source from, double near_s, double bytes_s);
/* The same of what was timed elsewhere, while it was quiet or not. */
double rg_shop_usual(rg_shop *w, double seconds, bool quiet);
/* Waits as rg_pulse_wait does; a machine without a pulse is quiet. */
rg_share rg_shop_wait(rg_shop *w, bool memory);
bool rg_shop_quiet(const rg_shop *w, const rg_share *s);
/* Of the windows of this pass of the length rg_rate_windows[i], the usual share lost, in this pass and those before. */
double rg_shop_lost(rg_shop *w, int i);

#endif
