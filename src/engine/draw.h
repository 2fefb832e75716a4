/* draw.h -- one row of logits to the next id of an answer, or to the score of an id of the prompt, on any of a step's
 * threads.
 *
 * For an answer grammar, stop ids and end tokens come first, then the sampler's rules and its draw.  The result depends
 * on the request alone, not on the thread. */
#ifndef RG_ENGINE_DRAW_H
#define RG_ENGINE_DRAW_H

#include "engine/request.h"

typedef struct rg_drawn {
    int32_t id;    /* -1: the logits are not all numbers, and there is none */
    float logprob; /* NAN unless asked for */
} rg_drawn;

/* For each of the threads a sampler and room for logits. */
typedef struct rg_sample_scratch rg_sample_scratch;
rg_sample_scratch *rg_sample_scratch_new(int32_t n_threads, int32_t vocab_size, rg_error *err);
void rg_sample_scratch_free(rg_sample_scratch *s); /* NULL is fine */

/* The next id of sample i.  Called by any thread, each with its own number below n_threads.  logits are overwritten.
 * The best ids beside it are put where rg_next_tops says. */
rg_drawn rg_draw(rg_sample_scratch *s, int thread, const rg_request *r, int i, float *logits);
rg_top *rg_next_tops(const rg_request *r, const rg_sample *a); /* NULL: none are wanted */

/* Score the id at this position of the prompt by the logits of the row before it; by any thread, as rg_draw.  False:
 * the logits are not all numbers. */
bool rg_draw_score(rg_sample_scratch *s, int thread, rg_request *r, int32_t position, const float *logits);

#endif
