/* speed.h -- timing a model's steps: what bench and plan --measure share.  Contexts are synthetic: their state exists
 * but was not computed.  Tokens are random, so that a mixture's rows go to different experts. */
#ifndef RG_CLI_SPEED_H
#define RG_CLI_SPEED_H

#include "cli/tool.h"
#include "measure/cost.h"
#include "ops/watch/timer.h"

enum { SPEED_ROWS = 512, SPEED_SEQS = 1024, SPEED_STEPS = 1 << 20 };

typedef struct speed {
    tool *tool;
    rg_timer *timer; /* of its steps, but for those that only warm up; NULL: none */
    int32_t *ids; /* SPEED_ROWS + SPEED_SEQS random ones */
    rg_seq *seqs[SPEED_SEQS];
    tool_span spans[SPEED_SEQS];
} speed;

bool speed_init(speed *s, tool *t, rg_error *err);
void speed_fini(speed *s);

/* Seconds of a prompt of n after context, in steps of SPEED_ROWS. */
bool speed_prefill(speed *s, int n, int context, double *seconds, rg_error *err);
/* n steps of batch streams after context: seconds in all, and of the usual step (its place may be NULL). */
bool speed_decode(speed *s, int batch, int context, int n, double *seconds, double *step_s, rg_error *err);
/* n steps of one stream after a prompt, both of ids [n_prompt + n], whose state is computed: seconds of the usual step.
 * Where what a step reads depends on values (attention sparsity), a context that was not computed says nothing. */
bool speed_after(speed *s, const int32_t *ids, int n_prompt, int n, double *step_s, rg_error *err);
/* True if a step has room for its rows and logits. */
bool speed_takes(const speed *s, const rg_step_shape *shape);
/* One evaluation of a diffusion model, after one that warms up: rows at the end of sequences of shape->n_seq positions,
 * whose other positions were not computed. */
bool speed_evaluate(speed *s, const rg_step_shape *shape, double *seconds, rg_error *err);
/* n tokens after a prompt of `context`, each from the whole prefix anew, as without a cache. */
bool speed_without_cache(speed *s, int n, int context, double *seconds, rg_error *err);

#endif
