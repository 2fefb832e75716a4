/* perplexity.h -- how well a model predicts a text, window by window: what eval, shrink and study share. */
#ifndef RG_CLI_PERPLEXITY_H
#define RG_CLI_PERPLEXITY_H

#include "cli/tool.h"

enum { PERPLEXITY_TOPS = 10 };

/* How far distributions of next ids are from those of the reference. */
typedef struct perplexity_distance {
    double kl;   /* sum over ids of p log(p / q), p being the reference's: nats */
    double tops; /* mean |log p - log q| of the reference's PERPLEXITY_TOPS likeliest ids */
    double other_best; /* 1 if another id is the likeliest */
} perplexity_distance;

typedef struct perplexity {
    tool *tool;          /* opened for one sequence of ctx ids and all logits */
    const int32_t *text; /* [n_text] */
    size_t n_text;
    const char *file;    /* its name, for messages */
    int32_t ctx, stride; /* stride 0: windows do not overlap */
    bool quiet;
    const char *kv_type; /* of perplexity_of; NULL: f32 */
    bool (*change)(void *arg, rg_model *m, rg_error *err); /* of perplexity_of; NULL: none */
    void *change_arg;
    /* Gets each row's logits before they are scored, i counting the rows of all windows, the last of each included; on
     * any thread, several at once.  NULL: nobody. */
    void (*row)(void *arg, uint64_t i, const float *logits, int vocab_size);
    void *row_arg;
    /* Another tool of the same model: each row's distribution is compared with that of its row.  NULL: nothing is. */
    tool *reference;
    double nll; /* sums, set by perplexity_run */
    uint64_t n_scored;
    perplexity_distance distance; /* of the rows scored, summed */
} perplexity;

/* Windows hold the BOS, if the tokenizer adds one, and ctx - 1 ids of the text, or ctx of them; every position after
 * the first is scored (with a stride: those that are new), an incomplete last window left out.  Ctrl-C ends it. */
bool perplexity_run(perplexity *s, rg_error *err);

/* Perplexity of ids for the model at a path. */
bool perplexity_of(const char *path, const cli_common *common, perplexity *s, double *ppl, rg_error *err);

#endif
