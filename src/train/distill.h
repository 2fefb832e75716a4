/* distill.h -- a student learns from a teacher's distributions (Hinton et al. 2015), and from outputs of its layers.
 *
 * The loss is the mean over all positions of a step, or over those that have a target.  With the outputs of layers it
 * is L + alpha H: H is the mean squared error of what layers give, over positions, channels and layers, through a
 * learned map where widths differ (Minitron, Muralidharan et al. 2024), and alpha = L / H is a number in each step. */
#ifndef RG_TRAIN_DISTILL_H
#define RG_TRAIN_DISTILL_H

#include "train/divergence.h"
#include "train/objective.h"
#include "train/samples.h"
#include "train/teacher.h"

typedef struct rg_distill_options {
    rg_divergence loss;
    int draws;          /* of RG_SAMPLED_KL: ids of a position */
    bool targets_alone; /* positions without a target do not count */
    bool outputs;       /* layers' outputs count too: of each of the student's the teacher's at the same depth */
    rg_samples *store;  /* where drawn ids are looked for, and kept; borrowed; NULL: nowhere */
    uint64_t seed;      /* of draws and of the map */
} rg_distill_options;

typedef struct rg_distill rg_distill;
/* teacher and student are borrowed.  NULL and *err: the two do not fit together, or no memory. */
rg_distill *rg_distill_new(rg_teacher *teacher, const rg_masters *student, const rg_distill_options *o, rg_error *err);
void rg_distill_free(rg_distill *d); /* NULL is fine */
rg_objective rg_distill_objective(rg_distill *d);

/* Squared errors of a student's rows to a teacher's, times `scale`, added to *sum; the gradient, times `by`, is added
 * to grad and d_map, or, where grad is NULL, to neither.  map [teacher's columns, student's columns]; NULL: columns are
 * the same. */
typedef struct rg_output_loss {
    const rg_mat *student, *teacher;
    const float *map;
    float *d_map;
    rg_mat *grad;
    double scale, by;
} rg_output_loss;
void rg_output_loss_add(rg_back_lane *lane, const rg_output_loss *l, double *sum);

#endif
