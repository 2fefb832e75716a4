/* dump.h -- what a model's steps compute on the way, gathered over all of them and written as tensors.
 *
 * The places are found by running the model's code once without computing; after that they come in the same order in
 * every step. */
#ifndef RG_CLI_DUMP_H
#define RG_CLI_DUMP_H

#include "model/model.h"
#include "ops/watch/watch.h"

typedef struct dump_place {
    int layer;        /* -1: outside the layers */
    const char *act;  /* as the model's text calls it */
    bool note;
    int n_numbers, cols;
    int again;        /* how often the layer writes it after this */
    int before;       /* and before */
    float *rows;      /* [n_rows, cols]; NULL: not asked for */
} dump_place;

typedef struct dump {
    rg_watch watch;
    dump_place *places;
    int n, room;
    size_t n_rows;
    bool failed;      /* no memory while learning */
    /* Of the step being computed: */
    int next;         /* the place that is seen next */
    size_t first;
    int n_step;
} dump;

/* For tool_options.wrap; arg is a dump. */
const rg_reader *dump_wrap(void *arg, const rg_reader *inner);
/* Make room for n_rows of hidden.0 .. hidden.L (if hidden), and of the names in watch: comma-separated, "attn",
 * "3.attn" for one layer's, or "all"; NULL: none.  Of an encoder hidden.L is what it gives. */
bool dump_plan(dump *d, const rg_model *m, bool hidden, const char *watch, size_t n_rows, rg_error *err);
/* [n_rows, dim] of hidden.L, if it was asked for. */
const float *dump_last(const dump *d);
/* The next step's first n_step rows are rows [first, first + n_step). */
void dump_step(dump *d, size_t first, int n_step);
bool dump_declare(const dump *d, const rg_model *m, rg_ckpt_writer *w, rg_error *err);
bool dump_write(const dump *d, rg_ckpt_writer *w, rg_error *err);
void dump_fini(dump *d);

#endif
