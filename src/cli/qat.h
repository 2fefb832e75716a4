/* qat.h -- `ridge shrink qat`: a model trained on the grid on which it will be stored. */
#ifndef RG_CLI_QAT_H
#define RG_CLI_QAT_H

#include "cli/heal.h"
#include "shrink/shrink.h"
#include "train/qat.h"

typedef struct cli_qat {
    /* Flags. */
    const char *scheme, *stages;
    float scale_lr; /* of scales and zeros; 0: the rate of weights */
    int32_t block_steps;
    bool g_group;
    int32_t group;
    /* What was made of them. */
    rg_grid grid;
    bool block, end;
    rg_coding coding;
    bool gguf;   /* the scheme is a type of GGUF */
    double rate; /* the learning rate, if nobody says otherwise: of 8 bits a thirtieth of that of 4 */
} cli_qat;

#define CLI_QAT_OPTIONS(v)                                                                                             \
    { "--scheme", CLI_STRING, &(v).scheme, "NAME", "qat: q4_0, q8_0, int4, int8, int3, int2 or lsq" },                 \
    { "--stages", CLI_STRING, &(v).stages, "LIST",                                                                     \
      "qat: block (a layer at a time), end (the whole model), or block,end (default: end; of int3 and int2 both)" },   \
    { "--scale-lr", CLI_FLOAT, &(v).scale_lr, "RATE", "qat: of scales and zeros (default: that of weights)", 0, 100 }, \
    { "--block-steps", CLI_INT, &(v).block_steps, "N", "qat: updates of each layer in stage block (default: 100)", 1,  \
      1e9 }

/* Check the flags, and make grid and coding of them. */
bool cli_qat_settle(cli_qat *q, rg_error *err) RG_MUST_CHECK;

/* Train the model at `path` on the grid, KL to its own distributions (Gemma's recipe), on h's text; samples [n, ctx]
 * are those of stage block.  write(arg, codes, model) writes the result, `model` being a folder of all weights; it is
 * called twice: for the model rounded before any training, and for the trained one. */
typedef struct cli_qat_run {
    const cli_args *args;
    cli_heal *h;
    const char *path, *work; /* work: a folder that may be made and removed */
    const int32_t *ids;
    int n_samples, ctx;
    bool (*write)(void *arg, const rg_given_codes *codes, const char *model, rg_error *err);
    void *arg;
} cli_qat_run;
bool cli_qat_train(cli_qat *q, const cli_qat_run *run, rg_error *err) RG_MUST_CHECK;

#endif
