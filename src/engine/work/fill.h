/* fill.h -- an answer that a diffusion model fills in (denoise.h), as its request holds it.
 *
 * The model's rows see rows after them, so an evaluation is computed whole, never cut.  Where blocks are the model's
 * own, its rows are drafts of the sequence until their ids are final; else the sequence is a scratch one, and guidance
 * has a second one without the prompt (rg_sample.beside).  Written by the engine's thread between steps; candidates by
 * any thread of a step, each position by one. */
#ifndef RG_ENGINE_WORK_FILL_H
#define RG_ENGINE_WORK_FILL_H

#include <stdatomic.h>

#include "engine/denoise.h"
#include "engine/sequence.h"

/* One mask in one step of a guided answer: its logits with and without the prompt, and how many of the two came. */
typedef struct rg_guided {
    float *logits[2];
    atomic_int n;
} rg_guided;

typedef struct rg_fill {
    rg_denoise d;
    rg_evaluation e;   /* the next one */
    bool done;         /* there is none */
    rg_guided *guided; /* [positions of a block]; unused without guidance */
    float **rows;      /* [positions of a block] logits of masks, kept until all have come: with a grammar a candidate
                           *   depends on those before it; NULL: each is drawn as it comes */
    atomic_int n_missing; /* rows that are still to come in this step */
    rg_top *tops;         /* [d.n][n_logprobs] the best ids beside each candidate; NULL: not asked for */
    int32_t *trace;       /* [most_traced][d.n] the ids after each evaluation; NULL: not kept */
    int32_t most_traced;
    float *soft; /* of a canvas: [its positions][dim] what the model reads of its evaluation before; NULL: none */
    int32_t dim;
    uint64_t seed; /* of noise, */
    int32_t sample, vocab_size; /* whose answer it is, and how many ids there are */
    atomic_int n_traced;
} rg_fill;

static inline bool rg_fill_is_guided(const rg_fill *f)
{
    return f->d.p.cfg_scale > 0;
}

/* True if every evaluation computes a scratch sequence. */
static inline bool rg_fill_is_scratch(const rg_fill *f)
{
    return f->d.sees == RG_SEES_ALL;
}

/* The logits of a mask came, of the sequence with or without the prompt; they stay where they are until the step
 * ends.  Returns those that its candidate is made from, guided where that is wanted; NULL: the other ones are still to
 * come. */
float *rg_fill_take(rg_fill *f, int32_t position, bool without, float *logits, int32_t vocab_size);

/* The id that the next evaluation has at a position, of the sequence with or without the prompt. */
int32_t rg_fill_id(const rg_fill *f, int32_t position, bool without);

/* How sample i of a request is filled in; NULL: it is not. */
const rg_fill *rg_fill_of(const struct rg_request *r, int32_t i);

#endif
