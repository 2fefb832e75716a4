/* adapters.h -- the LoRA adapters of an open model: low-rank matrices that the rows of some sequences add to its own.
 *
 * Each weight gets a table of deltas (ops.h), one for each adapter.  An adapter of either kind (adapter_file.h) goes
 * with a model of either kind: the rows of B are put in the order in which the weight's rows are, whether the
 * checkpoint holds it in part of a tensor, transposed, or with the rotated rows side by side.  Immutable once open. */
#ifndef RG_MODEL_ADAPTERS_H
#define RG_MODEL_ADAPTERS_H

#include "model/weights.h"

enum { RG_MAX_ADAPTERS = 64, RG_MAX_RANK = 1 << 16 };

typedef struct rg_adapter_source {
    const char *name, *path; /* name: unique, not empty */
} rg_adapter_source;

typedef struct rg_adapter {
    char *name;
    int n_weights; /* that it changes */
    int64_t max_rank;
    uint64_t bytes; /* of its matrices, placed */
} rg_adapter;

typedef struct rg_adapters {
    rg_adapter *all;
    int n;
    rg_delta *deltas;   /* [weights][n], as the weights have them */
    rg_placed **placed; /* the matrices, n_placed of them */
    int n_placed;
    int max_rank; /* of all */
    uint64_t bytes;
} rg_adapters;

/* Read n adapters for bound weights, which get their deltas.  False and *err: one cannot be used with this model. */
bool rg_adapters_open(rg_adapters *a, rg_weight_set *weights, const rg_config *c, const rg_adapter_source *from, int n,
                      rg_error *err) RG_MUST_CHECK;
void rg_adapters_close(rg_adapters *a); /* half-opened too; the weights are not used any more */
/* The number of the adapter of this name; -1: there is none. */
int rg_adapters_find(const rg_adapters *a, const char *name);

#endif
