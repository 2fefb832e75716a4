/* answer.h -- answers that are drawn id after id: what other kinds of work that draw share with them. */
#ifndef RG_ENGINE_WORK_ANSWER_H
#define RG_ENGINE_WORK_ANSWER_H

#include "engine/work/step.h"

/* A request's part; the part of prompt_logprobs.c begins with one. */
typedef struct rg_answer_part {
    int32_t *best;  /* [n_branches] the reader's own: samples, best first, once all have ended; NULL: they are told as
                     *   they come */
    bool is_chosen; /* the reader's own: best is there */
    double *values; /* [n_branches] the reader's own: what the scorer says; NULL: there is none */
    bool has_values;
} rg_answer_part;

/* What answers must be like, however they are written. */
bool rg_answer_check(const rg_params *p, const rg_request_model *m, rg_error *err);
rg_work_shape rg_answer_shape(const rg_params *p, const rg_request_model *m);
/* The array of a part, which is filled in once it is placed. */
void rg_answer_carve(rg_carver *c, rg_answer_part *a, const rg_params *p);

/* Ask for what the i-th span, which was laid out last, needs: logits to draw ids from, and what drafters read. */
void rg_answer_want(rg_work_step *s, int i);
void rg_answer_take_logits(rg_work_step *s, int thread, int i, float *logits);
void rg_answer_take_hidden(rg_work_step *s, int i, const float *rows, size_t stride);
/* Give out the ids of the i-th span, if it ends with any.  True: the answer has ended. */
bool rg_answer_take(rg_work_step *s, int i);

rg_sample *rg_answer_told(rg_request *r, int k);
/* How good the answer that is told as number k is, by the value that it was chosen by; NAN: it was not. */
double rg_answer_score(const rg_request *r, int k);
/* As in rg_work. */
int32_t rg_answer_to_value(rg_request *r);
bool rg_answer_valued(rg_request *r, int32_t i, const int32_t **ids, const float **logprobs, int32_t *n);
void rg_answer_take_values(rg_request *r, const double *values);

#endif
