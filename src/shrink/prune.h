/* prune.h -- Minitron (Muralidharan et al. 2024): how much heads, neurons, channels and layers matter, by forward
 * passes alone, and a model cut down to those that matter most, in depth and width. */
#ifndef RG_SHRINK_PRUNE_H
#define RG_SHRINK_PRUNE_H

#include "shrink/stage.h"

/* Means of magnitudes over the rows of a sample, then the root of the sum of squares over samples. */
typedef struct rg_importance {
    int n_layers, n_heads, n_neurons, n_channels;
    double *head;    /* [n_layers, n_heads] norm of a head's output */
    double *neuron;  /* [n_layers, n_neurons] |input| of the last matrix of the MLP */
    double *channel; /* [n_channels] |output| of norms, summed over those in front of attention and MLP of all layers */
    double *layer;   /* [n_layers] 1 - cosine of its input and output, the mean over rows */
} rg_importance;

/* Runs the whole model, layer by layer; the stage stands before the first one.  False: also of a model whose layers are
 * not attention and an MLP. */
bool rg_importance_measure(rg_importance *to, rg_stage *s, rg_error *err) RG_MUST_CHECK;
void rg_importance_fini(rg_importance *i);

/* How much of a model stays; 0: all. */
typedef struct rg_prune_options {
    int n_layers, n_channels, n_neurons, n_heads;
} rg_prune_options;

/* The n highest of v, by number, rising.  Of groups of `each` values, n / (all / each) of every group (each 0: of all
 * together). */
void rg_keep_highest(const double *v, int all, int n, int each, int32_t *kept);

/* Write the model with what matters most as a Hugging Face directory of its family.  *bytes: of all tensors. */
bool rg_prune(const rg_checkpoint *from, const rg_config *c, const rg_importance *i, const rg_prune_options *o,
              const char *to, uint64_t *bytes, rg_error *err) RG_MUST_CHECK;

#endif
