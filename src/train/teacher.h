/* teacher.h -- a model that another one learns from: its logits and the outputs of its layers, computed by the engine
 * itself as texts of the student's batches ask for them.
 *
 * It is any model that can be opened, with its weights as they are stored; its logits are those of inference, caps and
 * multipliers included.  What it gave of some rows stays until other rows are asked for. */
#ifndef RG_TRAIN_TEACHER_H
#define RG_TRAIN_TEACHER_H

#include "train/passes.h"

typedef struct rg_teacher rg_teacher;

/* The checkpoint and what is in the options are borrowed.  NULL and *err: it cannot be opened, or predicts no ids. */
rg_teacher *rg_teacher_open(const rg_checkpoint *from, const rg_backend *backend, const rg_passes_options *o,
                            rg_error *err);
void rg_teacher_close(rg_teacher *t); /* NULL is fine */
/* A number that tells it from others: of its tensors' names, and how their values begin. */
uint64_t rg_teacher_number(const rg_teacher *t);
const rg_config *rg_teacher_config(const rg_teacher *t);

/* Another batch begins: what is known of the last one is forgotten. */
void rg_teacher_begin(rg_teacher *t, const rg_texts *texts);
/* Logits of n positions of the batch from number `first` on, [n, vocab_size]; *out is valid until the next call. */
bool rg_teacher_logits(rg_teacher *t, int64_t first, int n, rg_mat *out, rg_error *err) RG_MUST_CHECK;
/* What a layer gave at those positions, [n, dim]. */
bool rg_teacher_output(rg_teacher *t, int layer, int64_t first, int n, rg_mat *out, rg_error *err) RG_MUST_CHECK;

#endif
