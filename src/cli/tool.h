/* tool.h -- a model opened for the tools that look inside (logits, eval, bench): no request, no scheduler; sequences
 * are driven step by step. */
#ifndef RG_CLI_TOOL_H
#define RG_CLI_TOOL_H

#include "cli/cli.h"
#include "engine/sequence.h"
#include "model/named_recipe.h"
#include "model/sparsity.h"
#include "text/tokenizer.h"

typedef struct tool {
    rg_checkpoint *ckpt;
    rg_model *model;
    rg_model *whole;         /* of whose weights `model` is a smaller self (tool_options.self); NULL: it is its own */
    rg_tokenizer *tokenizer; /* NULL: none */
    rg_runner *runner;
    rg_states *states;
    const rg_backend *backend;
    int n_threads;
    rg_named_recipe recipe;
    int max_rows;
    bool borrows, borrows_model; /* checkpoint and tokenizer, the model, are another tool's (tool_open_exact) */
} tool;

typedef struct tool_options {
    const cli_common *common;
    const char *model;    /* as given; NULL: the default */
    const char *kv_type, *pack_cache;
    const char *sparsity;           /* as --sparsity has it; NULL: none, or */
    const rg_sparsity *thresholds;  /* these, borrowed */
    float attention_sparsity;       /* as rg_runner_options has it */
    const char *self;               /* "METHOD[:N]" (model/self.h): the model's smaller self; NULL: the model */
    const rg_adapter_source *adapter; /* which all sequences may have; NULL: none */
    size_t expert_memory;
    int max_rows, max_seqs, max_seq_len;
    bool random;          /* random weights of declared_type in place of the checkpoint's, which may have none */
    rg_type declared_type;
    bool all_logits; /* of every row, not of one row per sequence */
    int filled_rows; /* max_rows of diffusion models, which are refused where this is 0 and `whole` is not set;
                             then logits of a step's rows, as far as tool_rows_for has it */
    bool whole;      /* the caller computes sequences whole where rows see rows after them, and wants no logits of
                             an encoder, which has none; else such models are refused */
    const rg_reader *(*wrap)(void *arg, const rg_reader *inner);
    void *wrap_arg;
} tool_options;

bool tool_open(tool *t, const tool_options *o, rg_error *err);
/* A second tool over the model of another, which outlives it, in exact arithmetic: with a runner and state of its own,
 * and without o's reader.  Where the other's weights were rounded, over a model of its own, whose are not. */
bool tool_open_exact(tool *t, const tool *of, const tool_options *o, rg_error *err);
/* max_rows lowered so that its logits stay within 64 MiB. */
int tool_rows_for(const rg_config *c, int max_rows);
/* False: no sequence of the model can be n ids long, since positions have embeddings of their own. */
bool tool_reaches(const tool *t, size_t n, rg_error *err);
void tool_close(tool *t);

/* One sequence's part of a step. */
typedef struct tool_span {
    rg_seq *seq;
    const int32_t *ids; /* the rows' tokens */
    int n;
    bool all_logits; /* of every row, else of the last n_logits (0: 1) */
    int n_logits;
    int second; /* as rg_span.second */
} tool_span;

/* Compute spans in one step; row(arg, i, logits) as rg_runner's, i counting wanted rows in order; NULL: nobody looks
 * at the numbers, which may be any.  It is not called for an encoder, whose hidden states a reader of
 * tool_options.wrap can watch.  False: no room for the state, no memory, or a wanted row (of an encoder, any) is
 * NaN or infinite: the message has the first such position, counted from 0. */
bool tool_step(tool *t, const tool_span *spans, int n_spans, void (*row)(void *arg, int i, float *logits), void *arg,
               rg_error *err);

#endif
