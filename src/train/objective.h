/* objective.h -- what a training run makes small: a loss of a batch, and what is trained beside the model. */
#ifndef RG_TRAIN_OBJECTIVE_H
#define RG_TRAIN_OBJECTIVE_H

#include "train/adamw.h"
#include "train/passes.h"

typedef struct rg_objective {
    void *arg;
    const char *tag; /* what it is, in words: a run goes on only with the same; NULL: cross-entropy */
    /* Positions of a batch that its loss is a sum over: a step's sum is divided by those of all its micro-batches. */
    int64_t (*count)(void *arg, const rg_texts *t);
    /* Before the gradients of a step, whose micro-batches these are; NULL: nothing is to be done. */
    bool (*begin)(void *arg, rg_passes *p, const rg_texts *micro, int n, double scale, rg_error *err);
    /* Loss of a micro-batch, times scale, and, unless forward_only, the gradients. */
    bool (*compute)(void *arg, rg_passes *p, const rg_texts *t, double scale, bool forward_only, double *loss,
                    rg_error *err);
    /* Tensors of its own that are trained too; NULL: none.  Their gradients are its affair. */
    bool (*add_to)(void *arg, rg_adamw *a, rg_error *err);
} rg_objective;

/* Cross-entropy with the targets. */
extern const rg_objective rg_next_ids;

/* The same plus `weight` times the loss by which a mixture's experts are used alike (balance.h), of each micro-batch by
 * its share of the step's targets.  *b is made, and outlives the objective. */
typedef struct rg_balanced {
    double weight;
    char tag[64];
} rg_balanced;
rg_objective rg_balanced_next_ids(rg_balanced *b, double weight);

#endif
