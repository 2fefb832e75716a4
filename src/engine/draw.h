/* draw.h -- one row of logits to the next id of an answer, or to the log-probability of an id of the prompt, on any of
 * a step's threads.
 *
 * For an answer grammar, stop ids and end tokens come first, then the sampler's rules and its draw.  The result depends
 * on the request alone, not on the thread. */
#ifndef RG_ENGINE_DRAW_H
#define RG_ENGINE_DRAW_H

#include "engine/request.h"
#include "engine/sampler.h"
#include "engine/verify.h"
#include "engine/work/fill.h"

typedef struct rg_drawn {
    int32_t id;    /* -1: the logits are not all numbers, and there is none */
    float logprob; /* NAN unless asked for */
    float mu;      /* mirostat's bound after it */
    bool lost;     /* the grammar lost its way before this id: see rg_grammar_lost */
} rg_drawn;

/* For each of the threads a sampler and room for logits.  max_seq_len: ids of a prompt and its answer, at most. */
typedef struct rg_sample_scratch rg_sample_scratch;
rg_sample_scratch *rg_sample_scratch_new(int32_t n_threads, int32_t vocab_size, int32_t max_seq_len, rg_error *err);
/* More room, without which guesses are not judged and no distribution is given. */
bool rg_sample_scratch_judge(rg_sample_scratch *s, rg_error *err);
void rg_sample_scratch_free(rg_sample_scratch *s); /* NULL is fine */

/* A guess of the id that is drawn, which is judged with it unless draws are coupled. */
typedef struct rg_draw_guess {
    int32_t id;
    const float *from;  /* as in rg_draft_tree */
    /* Set under RG_VERIFY_TYPICAL: */
    bool stands;
    double log_p;       /* by the rules of sampling */
    float logprob;      /* as in rg_drawn */
} rg_draw_guess;

/* Which id is drawn. */
typedef struct rg_draw_place {
    const rg_request *request;
    int sample;
    const int32_t *draft; /* [n_draft] ids that are taken to follow the answer so far.  NULL: no row of this step is one
                           *   of a draft of this answer, and the grammar's own state can be used */
    int32_t n_draft;
    bool guess;           /* a drafter draws, or for a probe: no log-probabilities */
    rg_top *top;          /* where the best ids beside it go; NULL: they are not wanted */
    rg_verify verify;
    rg_draw_guess *guesses; /* [n_guesses] of this id, in the order in which they are tried */
    int32_t n_guesses;
    const float *mu;      /* mirostat's bound there; NULL: the one of the answer's next id */
    float *distribution;  /* [vocab_size] where a drafter that draws with noise of its own gets what it draws from;
                           *   NULL: it draws with the answer's */
} rg_draw_place;

/* Before draws with drafts, between steps: make what they need for the answer's grammar, if it has one.  False: no
 * memory. */
bool rg_draw_prepare(rg_sample_scratch *s, const rg_sample *a);
/* How many of the draft's first ids the answer's grammar allows; all, if it has none.  After rg_draw_prepare. */
int32_t rg_draw_allowed(rg_sample_scratch *s, const rg_sample *a, const int32_t *draft, int32_t n_draft);

/* Returns which logits the draw at this place can need.  Reads at's request, sample, draft, n_draft and verify. */
rg_pick rg_draw_pick(const rg_draw_place *at);
/* Draw it by the logits of the row before it, which the rules change.  Called by any thread, each with its own number
 * below n_threads. */
rg_drawn rg_draw(rg_sample_scratch *s, int thread, const rg_draw_place *at, float *logits);

/* Mirostat's bound after an id that is taken there, by the logits that rg_draw left, under the bound mu. */
float rg_draw_next_mu(const rg_sample_scratch *s, const rg_request *r, float mu, const float *logits, int32_t id);

/* Where the candidates for the next id of a search go. */
typedef struct rg_draw_listing {
    rg_top *listed; /* [room] ids and their log-probabilities by the rules up to the biases, best first */
    int32_t room;
    float *raw;     /* [room] the same before the rules; NULL: not wanted */
    rg_top *tops;   /* [n_tops] the likeliest ids before the rules */
    int32_t n_tops;
} rg_draw_listing;

/* List the candidates for the next id of sample i of a request, by the logits of its last row, which are overwritten;
 * their number, 0 where nothing can follow.  Logits that are not all numbers end the request. */
int32_t rg_draw_list(rg_sample_scratch *s, int thread, rg_request *r, int i, const rg_draw_listing *l, float *logits);

/* For a drafter: the k ids that would most likely be drawn there if these were the logits (rg_sample_best), which may
 * be -INFINITY where the drafter knows no id; their number, 0 where a logit is NaN or +INFINITY.  own_noise: whatever
 * the noise of the draw. */
int32_t rg_draw_best(rg_sample_scratch *s, int thread, const rg_draw_place *at, bool own_noise, float *logits,
                     int32_t k, rg_guess *best);

/* A mask of an answer that is filled in, by the logits of its sequence with or without the prompt. */
typedef struct rg_draw_mask {
    rg_request *request;
    int sample;
    rg_fill *fill;
    int32_t position;
    bool without;
} rg_draw_mask;

/* Draw the mask's candidate, or, of the two logits of a guided answer, leave the first for the second.  The mask itself
 * is never drawn.  Logits that are not all numbers end the request. */
void rg_draw_candidate(rg_sample_scratch *s, int thread, const rg_draw_mask *m, float *logits);

/* The log-probability and rank of an id of a prompt by the logits of the row before it, and the k best ids in its
 * place; by any thread, as rg_draw.  False: the logits are not all numbers. */
bool rg_draw_prompt_logprob(rg_sample_scratch *s, int thread, const float *logits, int32_t id, rg_id_logprob *out,
                            int32_t k, rg_top *tops);

#endif
