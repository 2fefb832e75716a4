/* feed.h -- where the batches of a training run come from: exact ones from a file, rows that are made, or documents
 * that are read, turned to ids and packed as they are needed.
 *
 * Documents are texts (of .txt files, cut where two empty lines or <|endoftext|> stand; of .jsonl lines with
 * "text", or "prompt" and "completion", of which the completion alone is learnt) or lists of ids (.jsonl lines with
 * "ids"; .safetensors with `ids`, a row being a document).  They come in an order that is shuffled for each pass
 * over them, and only those of the present batch are in memory.  A row holds what follows: documents one behind the
 * other, cut at the row's end; what is left begins the next row. */
#ifndef RG_TRAIN_FEED_H
#define RG_TRAIN_FEED_H

#include "text/tokenizer.h"
#include "train/passes.h"
#include "train/settings.h"

typedef struct rg_feed rg_feed;

/* Where a feed stands, to go on from there. */
typedef struct rg_feed_place {
    int64_t step;  /* of exact batches, and of rows that are made */
    int64_t epoch; /* passes over the documents that are over */
    int64_t next;  /* documents of this pass that were begun */
    int64_t at;    /* ids of the last one that were given out */
} rg_feed_place;

/* Rows that are made as they are asked for. */
typedef struct rg_feed_maker {
    void (*row)(void *arg, int64_t number, int32_t *ids, int32_t *targets); /* [length] of row `number` of the run */
    void *arg;
} rg_feed_maker;

typedef struct rg_feed_options {
    const rg_feed_maker *maker; /* rows come from here, or: */
    const char *batches;      /* a safetensors file of exact batches, or NULL: */
    const char *const *files; /* [n_files] of documents */
    int n_files;
    bool joined;                   /* rows are one text each: documents in them see those before */
    const rg_tokenizer *tokenizer; /* borrowed; NULL: there are ids alone */
    int vocab_size;
} rg_feed_options;

/* settings->micro, rows and length are the exact batches' afterwards.  NULL and *err:
 * a file cannot be read, or has nothing to learn from. */
rg_feed *rg_feed_open(const rg_feed_options *o, rg_train_settings *settings, rg_error *err);
void rg_feed_close(rg_feed *f); /* NULL is fine */
/* The micro-batches of the next step, [micro], valid until the next call. */
bool rg_feed_next(rg_feed *f, const rg_texts **micro, rg_error *err) RG_MUST_CHECK;
/* A batch to judge a run of so many steps by, which it comes to last or never: the exact one behind its last, if there
 * is one (else the first), or documents at the end of the first pass.  The feed stays where it stands. */
bool rg_feed_held(rg_feed *f, int64_t steps, const rg_texts **batch, rg_error *err) RG_MUST_CHECK;
rg_feed_place rg_feed_place_of(const rg_feed *f);
void rg_feed_go_to(rg_feed *f, rg_feed_place to);
int64_t rg_feed_steps(const rg_feed *f);     /* that it has batches for */
int64_t rg_feed_documents(const rg_feed *f); /* 0: exact batches */

#endif
