/* passes_inside.h -- what the two ways of going over a batch share (passes.c, chain.c): a piece of it, its steps. */
#ifndef RG_TRAIN_PASSES_INSIDE_H
#define RG_TRAIN_PASSES_INSIDE_H

#include "ops/back/counted.h"
#include "train/passes.h"

enum { HEAD_ROWS = RG_PIECE_HEAD_ROWS, MAX_CARRIED = 8 };

/* What is alive between layers. */
typedef struct carried {
    const char *name;
    int cols;
    rg_mat grad; /* [rows of a piece] */
} carried;

typedef enum part { EMBED, LAYER, HEAD } part;

/* A part of the text, for a step. */
typedef struct job {
    rg_passes *p;
    part part;
    int layer;
    int first, n; /* HEAD: rows */
    bool keep;    /* what comes out is wanted */
    rg_tape *tape;
    bool taped;           /* it is on, and will be walked back */
    const rg_mat *to;     /* HEAD: where logits go, or */
    const rg_mat *hidden; /* what they are made of; NULL: one of the two is not wanted */
} job;

struct rg_passes {
    rg_masters *m;
    const rg_model *model;
    const rg_backend *backend;
    rg_pool *pool;
    int n_threads, max_tokens;
    double max_bytes;
    rg_back_lane back;
    rg_tape *tape;
    rg_tape **layers; /* [n_layers + 1] tapes of layers, and of the embedding, kept until they are walked; NULL: layers
                           *   run again */
    double bytes_per_row; /* of the largest layer's tape; 0: not known yet */
    /* Sized for the largest piece so far. */
    rg_lane *lane;
    rg_store *store;
    int lane_rows, lane_length, lane_spans;
    int64_t store_blocks, store_slots;
    carried carry[MAX_CARRIED];
    int n_carried;
    rg_slab rows;  /* of a piece: */
    rg_mat *at;    /* [n_layers + 1][n_carried] what enters each layer, and the head */
    rg_mat logits; /* [HEAD_ROWS, vocab] */
    rg_slab logits_slab;
    double nll[HEAD_ROWS];
    rg_routes *routes; /* of a run with a balance loss; NULL before the first */
    double *share;     /* [RG_BALANCE_EXPERTS] of the same */
    /* The piece. */
    const rg_passes_run *run;
    int64_t first; /* number of its first position in the batch */
    rg_batch batch;
    rg_span *spans;
    int32_t *ints; /* [3 * rows]: index, kv_end, slot */
    int32_t *tables;
    int32_t *lists;          /* of slots, of texts that are there twice; */
    const int32_t **list_of; /*   [rows] and whose they are */
    int64_t n_lists;
    int32_t (*pos)[4];
    int n_room, n_table_room;
    int head_first;
    int n_steps; /* that a text's rows are continued by, the first included (chain.c) */
};

int rg_passes_at_once(const rg_passes *p, const rg_texts *t); /* rows of a piece */
/* The piece of at_once rows, or those that are left, from `row` on. */
bool rg_passes_piece(rg_passes *p, const rg_texts *t, int row, int at_once, rg_error *err) RG_MUST_CHECK;
/* What enters a layer, or (n_layers) the head: activation i of those that are carried. */
rg_mat *rg_passes_carried(const rg_passes *p, int layer, int i);
void rg_passes_step(rg_passes *p, const job *j);
/* Logits, loss and, unless the run is forward_only, gradients of a block of rows from `first` on; the loss to *sum. */
bool rg_passes_head(rg_passes *p, int first, double *sum, rg_error *err) RG_MUST_CHECK;

#endif
