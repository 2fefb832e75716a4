/* denoise.h -- how a diffusion model fills in an answer: what the next evaluation of the model computes, and which ids
 * it commits.
 *
 * An answer begins as masks.  Each evaluation gives every mask that it looks at a candidate id and a confidence; some
 * candidates are committed and never change again.  Four published loops are one here:
 *     LLaDA (Nie et al. 2025): the answer is cut into blocks; a block's masks are shared out evenly over its steps;
 *     Dream (2025): one block; of m masks floor(m (1 - t' / t)) are committed as t falls from 1 to 0.001;
 *     SDAR (2025), BD3-LM (Arriola et al. 2025): blocks of the model itself, counted from the first position, whose
 *         finished ones are computed once more and then kept;
 *     DiffusionGemma (2026): canvases of the model, counted from the prompt's end, that begin as noise.  An evaluation
 *         draws every id anew, keeps the surest of them and makes noise of the others; what is kept at last are the
 *         likeliest ids of the last evaluation.
 * Thresholds and the two approximate caches are Fast-dLLM's (Wu et al. 2025).  Pure arithmetic: no clock, no model, no
 * request.  Ties go to the lowest position and the lowest id. */
#ifndef RG_ENGINE_DENOISE_H
#define RG_ENGINE_DENOISE_H

#include "base/error.h"
#include "model/diffusion.h"

/* A mask's candidate. */
typedef struct rg_candidate {
    int32_t id; /* -1: this evaluation gave none */
    float confidence; /* of a canvas: less the entropy of what it is drawn from */
    float logprob; /* of the id when its candidate was drawn last; NAN: not asked for */
    int32_t best, before; /* of a canvas: the likeliest id, and that of the evaluation before; -1: there was none */
} rg_candidate;

/* Gives the noise that a position of a canvas has after n evaluations of the answer: any id of the vocabulary. */
typedef int32_t rg_denoise_noise(void *arg, int32_t n_evaluations, int32_t position);

/* One evaluation: rows [first, end) of the sequence are computed; candidates are wanted of the masks in [from, upto).
 * keeps: its rows are final, and may be committed to the sequence's state; then no candidates are wanted. */
typedef struct rg_evaluation {
    int32_t first, end, from, upto;
    bool keeps;
} rg_evaluation;

/* An answer on its way. */
typedef struct rg_denoise {
    rg_diffusion_params p;
    rg_diffusion model;
    int32_t sees;  /* as rg_runner.sees */
    bool in_order; /* ids are committed from the left alone: a grammar says what may follow */
    int32_t n_prompt;
    int32_t n;                /* positions in all; the model's blocks may make it more than was asked for */
    int32_t from, upto;       /* the block being filled in */
    int32_t step, n_at_start; /* evaluations of this block so far; masks that it began with */
    int32_t *ids;             /* [n], borrowed: the prompt, then masks and committed ids */
    rg_candidate *candidates; /* [n], borrowed */
    int32_t n_evaluations;
    /* For a canvas: where noise comes from; evaluations in a row that changed no likeliest id; whether it is done. */
    rg_denoise_noise *noise;
    void *noise_arg;
    int32_t n_same;
    bool done;
} rg_denoise;

/* Positions of a block, where blocks are the model's own; 0: they are not. */
int32_t rg_denoise_own_block(const rg_diffusion *model, int32_t sees);
/* Positions of prompt and answer of at least n_tokens: the model's blocks are filled in whole. */
int32_t rg_denoise_length(int32_t n_prompt, int32_t n_tokens, const rg_diffusion *model, int32_t sees);
/* Fill in what was left out: steps and threshold as the checkpoint's generation_config names them, or else Fast-dLLM's
 * threshold, by which an evaluation finishes several ids where the model is sure. */
void rg_denoise_settle(rg_diffusion_params *p, const rg_diffusion *model, int32_t sees);
/* False and *err: settings that this model does not take, by name. */
bool rg_denoise_check(const rg_diffusion_params *p, const rg_diffusion *model, int32_t sees, rg_error *err)
    RG_MUST_CHECK;

/* An answer to the prompt ids[0, n_prompt), which fills ids and candidates up to n.  Parameters are checked. */
typedef struct rg_denoise_start {
    const rg_diffusion_params *params;
    const rg_diffusion *model;
    int32_t sees, n_prompt, n; /* n: rg_denoise_length */
    bool in_order;
    int32_t *ids;
    rg_candidate *candidates;
    rg_denoise_noise *noise; /* of a model with canvases */
    void *noise_arg;
} rg_denoise_start;
void rg_denoise_init(rg_denoise *d, const rg_denoise_start *s);
/* False: the answer is complete.  Candidates are reset. */
bool rg_denoise_next(rg_denoise *d, rg_evaluation *e);
/* Begin the block again, from its masks. */
void rg_denoise_restart(rg_denoise *d);
/* The row whose logits belong to a position. */
static inline int32_t rg_denoise_row(const rg_denoise *d, int32_t position)
{
    return d->model.shifted && position > 0 ? position - 1 : position;
}
/* True if an evaluation wants the candidate of a position: it is a mask, or one of a canvas. */
static inline bool rg_denoise_wants(const rg_denoise *d, int32_t position)
{
    return d->model.canvas.length || d->ids[position] == d->model.mask_id;
}
/* For a canvas: the temperature, by which the next evaluation's logits are divided. */
float rg_denoise_temperature(const rg_denoise *d);
/* The first mask of an evaluation's block; e->upto: there is none. */
int32_t rg_denoise_first_mask(const rg_denoise *d, const rg_evaluation *e);
/* Where ids are committed in order: false once n candidates from the left, the last one with this confidence, are all
 * that the evaluation commits. */
bool rg_denoise_goes_on(const rg_denoise *d, const rg_evaluation *e, int32_t n, float confidence);
/* After an evaluation whose candidates are there: commit some.  Returns how many ids of the answer are final from its
 * start on, so that they can be given out. */
int32_t rg_denoise_commit(rg_denoise *d, const rg_evaluation *e);

/* The confidence in an id, from finite logits [n]: its probability; the sum of p ln(p + 1e-10); or the largest
 * probability less the second. */
float rg_confidence(const float *logits, int32_t n, int32_t id, rg_remasking remasking);
/* The entropy of softmax(logits), in nats, of finite logits [n]. */
float rg_entropy(const float *logits, int32_t n);
/* Classifier-free guidance (Nie et al. 2025): logits = without + (scale + 1) (logits - without). */
void rg_guide(float *logits, const float *without, int32_t n, float scale);

#endif
