/* divergence.h -- how far a student's distributions of the next id are from its teacher's, and the gradient by the
 * student's logits.
 *
 * p is the teacher's and q the student's softmax of logits / T.  A loss is a sum over positions, times T^2 (Hinton et
 * al. 2015), so that gradients keep their size whatever T is. */
#ifndef RG_TRAIN_DIVERGENCE_H
#define RG_TRAIN_DIVERGENCE_H

#include "ops/back/back.h"

typedef enum rg_divergence_kind {
    RG_FORWARD_KL, /* sum of p (ln p - ln q) */
    RG_REVERSE_KL, /* sum of q (ln q - ln p) */
    RG_TOP_K_KL,   /* forward, of the teacher's k best ids and of one outcome for all others together */
    RG_SAMPLED_KL, /* cross-entropy with ids that were drawn from p (Anshumann et al. 2025); T is 1 */
    RG_DIVERGENCES
} rg_divergence_kind;

typedef struct rg_divergence {
    rg_divergence_kind kind;
    double temperature;
    int k; /* of RG_TOP_K_KL */
} rg_divergence;

bool rg_divergence_by_name(const char *name, rg_divergence_kind *out); /* forward, reverse, topk, sampled */

/* Rows of both models' logits.  Of different numbers of columns the first ones, that both have, count.  loss [rows]
 * gets the loss of each; student becomes `scale` times its gradient, teacher is overwritten.  used [rows] may be NULL:
 * where it is 0, there is neither loss nor gradient.  Not RG_SAMPLED_KL. */
typedef struct rg_divergence_rows {
    rg_mat *student, *teacher;
    const uint8_t *used;
    double scale;
    double *loss;
} rg_divergence_rows;
void rg_divergence_of(const rg_divergence *d, rg_back_lane *lane, const rg_divergence_rows *r);

/* Ids that were drawn for one position, each once, and how often. */
typedef struct rg_draws {
    const int32_t *id, *count;
    int n;
} rg_draws;

/* n ids from softmax(logits), in rising order of ids.  Draw i takes the (i + 1)-th output of splitmix64 of example
 * `number` of the seed.  logits [cols] become unnormalised probabilities; id and count have room for n.  Returned: how
 * many different ones there are. */
int rg_draw_ids(const rg_backend *backend, float *logits, int cols, int n, uint64_t seed, uint64_t number, int32_t *id,
                int32_t *count);
/* As rg_divergence_of, of RG_SAMPLED_KL: draws [rows] in place of the teacher's logits. */
void rg_sampled_of(rg_back_lane *lane, const rg_draws *draws, const rg_divergence_rows *r);

#endif
