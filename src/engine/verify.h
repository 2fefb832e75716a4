/* verify.h -- which ids of a draft stand, where they are judged by chance: arithmetic on distributions.
 *
 * rejection (Leviathan 2211.17192, Chen 2302.01318; several guesses of one place as in SpecInfer 2305.09781): what is
 * written follows the model's distribution exactly.  typical (Medusa 2401.10774): every guess stands that is likely
 * enough for how certain the model is; texts differ from the model's own.  Both after the rules of sampling.  Reads no
 * logits and draws nothing. */
#ifndef RG_ENGINE_VERIFY_H
#define RG_ENGINE_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

typedef enum rg_verify {
    RG_VERIFY_COUPLED,   /* a guess stands if it is what is drawn anyway */
    RG_VERIFY_REJECTION,
    RG_VERIFY_TYPICAL,
    RG_VERIFY_COUNT,
} rg_verify;

/* False: there is none of this name. */
bool rg_verify_find(const char *name, rg_verify *out);

/* ---- rejection ---- */

/* The chance that id stands, where t [n] is the model's distribution, or what is left of it after rejections, and d [n]
 * is the one that the guess was drawn from; NULL: it was not drawn. */
double rg_verify_chance(const double *t, int32_t id, const double *d);
/* What is left of t after the guess was rejected: max(0, t - d), or t without id, scaled to 1.  False: nothing is left,
 * t is as it was, and the guess could not have been rejected but for rounding. */
bool rg_verify_reject(double *t, int32_t n, int32_t id, const double *d);
/* What a drafter draws from after id, where it draws no id twice.  False: nothing is left. */
bool rg_verify_without(double *d, int32_t n, int32_t id);

/* ---- typical ---- */

typedef struct rg_typical {
    double epsilon, delta; /* an id stands if p(id) > min(epsilon, delta exp(-entropy)) */
} rg_typical;

rg_typical rg_typical_default(void);
double rg_typical_entropy(const double *p, int32_t n);
double rg_typical_threshold(const rg_typical *t, double entropy);

/* The path of nodes that all stand: the longest; of several, the likeliest; of those, the one whose node comes first.
 * Nodes follow their parents (-1: none); log_p: of each node, after its parent.  Writes the path into `path` [n] and
 * returns its length. */
int32_t rg_typical_path(const int32_t *parent, const bool *stands, const double *log_p, int32_t n, int32_t *path);

#endif
