/* work.h -- what a request wants is its work, and each kind of work is a record: how a request of this kind is checked,
 * what it holds, which rows its samples compute next, what is wanted of those, and what becomes of it.
 *
 * Scheduler, loop and mailbox call the record and know no kind.  To write a kind: one file here with one rg_work, and
 * one line in works.def.  Its part of the request is carved from the request's own allocation and stands in r->part.
 *
 * Most kinds go on row by row: a sample has its prompt, then as many ids as it wrote, and needs the state of all of
 * them but the last to compute the next.  What these share stands below as rg_rowwise_*.
 *
 * Threads: `take_logits`, `take_hidden` and `take_scores` are called on all of a step's threads, each for rows of its
 * own; `takes`, `check`, `shape` and `carve` in the thread that asks; `told` in the reader's, `usage` in any; all
 * others in the engine's.  From `most` on nothing allocates, and nothing fails but `fits`. */
#ifndef RG_ENGINE_WORK_WORK_H
#define RG_ENGINE_WORK_WORK_H

#include "base/carver.h"
#include "engine/request.h"
#include "engine/states.h"

typedef struct rg_work_step rg_work_step; /* work/step.h */

/* What a request is made of. */
typedef struct rg_work_shape {
    size_t row;          /* ids of one sample, its prompt included */
    int32_t n_branches;  /* samples that are written */
    int32_t n_ending;    /* samples that end; the request ends with the last of them */
    int32_t max_draft;   /* nodes of a draft; 0: it is not drafted for */
} rg_work_shape;

/* Positions that need state, and how many sequences share how much of that. */
typedef struct rg_work_room {
    int32_t n_positions;
    rg_forks forks;
} rg_work_room;

/* What a sample computes next: rows [first, end) of its sequence. */
typedef struct rg_work_rows {
    int32_t first, end;
    int32_t block;   /* they may be cut behind a multiple of this; 0: they are never cut, and then: */
    int32_t upto;    /*   positions that need state, */
    int32_t logits;  /*   logits that are wanted, of both sequences if it has two, */
    bool is_prompt;  /*   and whether these rows count as a prompt's */
} rg_work_rows;

/* Where a request is to run. */
typedef struct rg_work_place {
    const rg_states *states;
    int32_t max_seqs, max_rows; /* sequences at once; rows of a step */
} rg_work_place;

struct rg_work {
    const char *name;
    bool ends_with_prompt; /* its requests give no ids: one sample, which ends once its prompt is computed */
    bool together;         /* the samples of a request hold sequences all together or not at all */

    /* ---- at the door ---- */

    bool (*takes)(const rg_params *p, const rg_request_model *m); /* are these parameters of this kind? */
    /* False and *err: what does not go.  The prompt was checked. */
    bool (*check)(const rg_params *p, const rg_request_model *m, rg_error *err);
    rg_work_shape (*shape)(const rg_params *p, const rg_request_model *m);
    /* Carve the request's part, and fill it in when it is placed (c->base): then all that requests have in common is
     * there.  While only counting, r is NULL.  NULL: it has none. */
    void (*carve)(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m);
    /* The most state that the request may come to need. */
    rg_work_room (*most)(const rg_request *r);
    /* False and *err: it can never run there.  share: what `most` takes of all state.  NULL: it can. */
    bool (*fits)(const rg_request *r, const rg_work_place *host, double share, rg_error *err);

    /* ---- who runs ---- */

    /* True if sample i computes rows, now or once it has state: it has not ended, and waits for no other sample. */
    bool (*is_open)(const rg_request *r, int i);
    /* Positions that need state before sample i gives its next id, or whatever it gives. */
    int32_t (*target)(const rg_request *r, int i);
    /* What there must be room for before sample i begins. */
    rg_work_room (*room)(const rg_request *r, int i);
    /* The leading ids of sample i whose state may come from a cached prefix. */
    int32_t (*cacheable)(const rg_request *r, int i);
    /* True if sample i does not compute what another sample computes, but will fork from it. */
    bool (*waits_to_fork)(const rg_request *r, int i);
    rg_work_rows (*rows)(const rg_request *r, int i); /* it has state, and is open */
    int32_t (*n_left)(const rg_request *r, int i);    /* rows that sample i lacks before it gives something */
    /* Which of n rows of a prompt, from a position on, need logits, besides the last one; counted from the first of the
     * n.  NULL: none do. */
    rg_rows (*read)(const rg_request *r, int32_t start, int32_t n);
    /* For work whose samples hold state together: first names the sample that computes what all have in common; fork
     * forks the others from it, once its state is there.  Both NULL otherwise. */
    int (*first)(const rg_request *r);
    void (*fork)(rg_states *states, rg_request *r);

    /* ---- a step ---- */

    /* Lay out the rows of the i-th span, and say what is wanted of them. */
    void (*want)(rg_work_step *s, int i);
    /* What was wanted came: the logits of the i-th wanted row, which may be overwritten; the hidden states of the i-th
     * wanted run; the scores of the i-th run by the model's head.  NULL: they are never wanted. */
    void (*take_logits)(rg_work_step *s, int thread, int i, float *logits);
    void (*take_soft)(rg_work_step *s, int i, const float *soft); /* of the i-th wanted row (rg_sink.soft) */
    void (*take_hidden)(rg_work_step *s, int i, const float *rows, size_t stride);
    void (*take_scores)(rg_work_step *s, int i, const float *scores);
    /* The step is over: the i-th span's rows are kept, and what they gave is given out.  True: its sample has ended,
     * and its state is to be given back. */
    bool (*commit)(rg_work_step *s, int i);
    /* Or it gave nothing, since all state is gone (rg_runner.keeps_state), and what `want` noted is undone.  NULL: it
     * notes nothing. */
    void (*undo)(rg_request *r);
    /* After `commit`, once for each span: samples that gave back their state may go on with other ids.  NULL: none
     * do. */
    void (*settle)(rg_request *r);

    /* ---- ends ---- */

    /* The state of sample i is given back; of samples that hold it together, of all (i is 0).  NULL: nothing else
     * changes. */
    void (*lose)(rg_request *r, int i);
    /* The request ends as it stands, because of `why`: what there is of it is given out.  NULL: it was given out. */
    void (*stop)(rg_request *r, rg_finish why);

    /* ---- values, by the reader; only of requests whose answers it values (rg_request.is_valued) ---- */

    /* How many answers, or beginnings of some, are to be valued now, before anything more is told. */
    int32_t (*to_value)(rg_request *r);
    /* The i-th of them: its ids [*n] and their log-probabilities (NULL: not kept).  False: it needs no value. */
    bool (*valued)(rg_request *r, int32_t i, const int32_t **ids, const float **logprobs, int32_t *n);
    void (*take_values)(rg_request *r, const double *values); /* all of them */
    /* True if the request waits for them, and leaves the scheduler until then (rg_loop_return).  NULL: never. */
    bool (*is_held)(const rg_request *r);

    rg_sample *(*told)(rg_request *r, int k); /* as rg_request_told; NULL: they are told as they are numbered */
    void (*usage)(const rg_request *r, rg_usage *u); /* what it counts itself; NULL: nothing */
    void (*agree)(const rg_request *r, int i); /* asserts what holds between steps of a sample with state; NULL */
};

/* The kind of a request with these parameters. */
const rg_work *rg_work_of(const rg_params *p, const rg_request_model *m);
#define WORK(name) extern const rg_work rg_work_##name;
#include "engine/work/works.def"
#undef WORK

/* False and *err: the request needs more state than there is. */
bool rg_work_no_room(const rg_request *r, rg_error *err);

static inline rg_rows rg_work_read(const rg_request *r, int32_t start, int32_t n)
{
    return r->work->read ? r->work->read(r, start, n) : (rg_rows){ 0 };
}

/* ---- what kinds share that go on row by row (work.c) ---- */

rg_work_room rg_rowwise_most(const rg_request *r);
bool rg_rowwise_is_open(const rg_request *r, int i);
int32_t rg_rowwise_target(const rg_request *r, int i);
rg_work_room rg_rowwise_room(const rg_request *r, int i);
int32_t rg_rowwise_cacheable(const rg_request *r, int i);
bool rg_rowwise_waits_to_fork(const rg_request *r, int i);
rg_work_rows rg_rowwise_rows(const rg_request *r, int i);
int32_t rg_rowwise_n_left(const rg_request *r, int i);

/* ---- what kinds share that end with their prompt; a model may compute it whole (work.c) ---- */

bool rg_prompt_work_check(const rg_params *p, const rg_request_model *m, rg_error *err);
rg_work_shape rg_prompt_work_shape(const rg_params *p, const rg_request_model *m);
bool rg_prompt_work_fits(const rg_request *r, const rg_work_place *host, double share, rg_error *err);
rg_work_room rg_prompt_work_room(const rg_request *r, int i);
rg_work_rows rg_prompt_work_rows(const rg_request *r, int i);

#endif
