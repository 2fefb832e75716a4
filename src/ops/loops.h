/* loops.h -- loops in the host's memory that ops/back runs by the million, which a back end has for its instruction
 * set.
 *
 * They go over RG_LOOP_LANES channels side by side, [rows][RG_LOOP_LANES] and aligned to 64 bytes; lanes without a
 * channel hold zeros.  Every back end gives the same bits. */
#ifndef RG_OPS_LOOPS_H
#define RG_OPS_LOOPS_H

#include <stdbool.h>
#include <stddef.h>

enum { RG_LOOP_LANES = 16 };

/* Rows of one text through a convolution: z = bias + the sum over j of w_j x[row + j], x and dx beginning taps - 1 rows
 * before the first one. */
typedef struct rg_loop_conv {
    int n_rows, taps;
    const float *w, *bias; /* [taps], one row */
    const float *x, *g;    /* g: the gradient of z */
    float *z, *dx;         /* dx is added to */
    float *dw, *db;        /* [taps], one row, written: sums over these rows */
} rg_loop_conv;

/* Rows of one text through Mamba's scan: h = exp(dt a) h' + dt x B, y = C . h + d x, and g s(z) the gradient of y. */
typedef struct rg_loop_scan {
    int n_rows, n_states;
    const float *a, *d;     /* [n_states], one row */
    const float *x, *dt;    /* [n_rows] */
    const float *bc;        /* of the first row B, then C, [n_states] each, of all channels; rows ld apart */
    size_t ld;
    float *decay, *h;       /* [n_rows][n_states]: exp(dt a) and h; h[-1] is that before the first row */
    const float *g;         /* [n_rows]: the gradient of y */
    float *lambda;          /* [n_states]: of the last row's h, but for what y gives; becomes that of h[-1] */
    float *da, *dd;         /* [n_states], one row, written: sums over these rows */
    float *y, *dx, *ddt;    /* [n_rows], written */
    float *dbc;             /* [n_rows][2 n_states] side by side, written: sums over the channels */
} rg_loop_scan;

/* One row through a recurrence with a matrix state (ops/back/recurrence.c has the formulae).  The lanes are columns of
 * the state, n of them, filled up with zeros to whole RG_LOOP_LANES. */
typedef struct rg_loop_recur {
    int n_rows, n;           /* of the state */
    bool delta;
    bool each;               /* decay has a value for each row of the state, else one for all */
    float scale, beta;
    const float *q, *k, *decay, *a, *b; /* [n_rows]; a and b NULL: there are none */
    const float *x, *dy;     /* [n] */
    const float *before;     /* [n_rows][n]: the state before this row, */
    float *after;            /*   and behind it */
    float *u, *r;            /* [n]: what the row puts in, and b . before */
    float *g;                /* [n_rows][n]: the gradient of `after`; becomes that of `before` */
    float *du, *dr;          /* [n], written */
    float *dq, *dk, *da, *db; /* [n_rows], added to; da and db NULL: there are none */
    float *ddecay;           /* [n_rows], written: gradients of each row's decay; NULL: not wanted */
} rg_loop_recur;

typedef struct rg_loops {
    void (*conv)(const rg_loop_conv *p);      /* z */
    void (*conv_back)(const rg_loop_conv *p); /* dx, dw, db */
    void (*scan)(const rg_loop_scan *p);      /* decay and h */
    void (*scan_back)(const rg_loop_scan *p); /* the rest */
    void (*recur)(const rg_loop_recur *p);      /* u, r and after */
    void (*recur_back)(const rg_loop_recur *p); /* the rest */
} rg_loops;

#endif
