/* settings.h -- how a model is trained, as one record: read from JSON, changed by flags, kept with a checkpoint. */
#ifndef RG_TRAIN_SETTINGS_H
#define RG_TRAIN_SETTINGS_H

#include "base/buf.h"

/* RG_RATE_WSD: warm-up, stable, decay (Hu et al. 2024): the rate stays until the last fifth, and then falls evenly. */
typedef enum rg_rate_shape {
    RG_RATE_COSINE,
    RG_RATE_LINEAR,
    RG_RATE_CONSTANT,
    RG_RATE_WSD,
    RG_RATE_SHAPES
} rg_rate_shape;

/* Of products with weights.  RG_PRECISION_BF16: forward and backward, operands are rounded to bf16; sums and all
 * else stay in f32. */
typedef enum rg_precision {
    RG_PRECISION_F32,
    RG_PRECISION_BF16,
    RG_PRECISIONS
} rg_precision;

typedef struct rg_train_settings {
    int32_t steps, warmup;  /* updates; those in which the rate rises */
    double peak, floor;     /* the highest learning rate, and the share of it at the end */
    rg_rate_shape schedule; /* how it falls in between */
    rg_precision precision;
    double weight_decay, beta1, beta2, eps;
    double clip;                 /* of the global norm; 0: none */
    int32_t micro, rows, length; /* micro-batches of a step, rows of each, ids of a row */
    double init_std;             /* of the weights of a new model */
    uint64_t seed;               /* of new weights, and of the order of documents */
} rg_train_settings;

rg_train_settings rg_train_settings_default(void);
/* Settings by the names of the record; also lr (peak), batch (rows), accumulate (micro), beta and betas (a pair).
 * unknown gets the names of members that are no setting, with commas; it may be NULL.  False and *err: it is no JSON
 * object, or a member has no such value. */
bool rg_train_settings_read(rg_train_settings *s, const char *text, size_t n, rg_buf *unknown,
                            rg_error *err) RG_MUST_CHECK;
/* As JSON, one line. */
void rg_train_settings_write(const rg_train_settings *s, rg_buf *to);
/* False and *err: a setting is out of its range. */
bool rg_train_settings_check(const rg_train_settings *s, rg_error *err) RG_MUST_CHECK;
bool rg_rate_shape_by_name(const char *name, rg_rate_shape *out);
bool rg_precision_by_name(const char *name, rg_precision *out);

/* Of RG_RATE_WSD: the step from which the rate falls.  What was trained until there is the beginning of any longer run,
 * too. */
int64_t rg_train_decay_from(const rg_train_settings *s);
/* The learning rate of step 0, 1, ... */
double rg_train_rate(const rg_train_settings *s, int64_t step);

#endif
