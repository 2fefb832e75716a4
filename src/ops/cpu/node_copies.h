/* node_copies.h -- packed weights once on every NUMA node, so that each thread reads those of its own.
 *
 * It is a reader around the one that computes: an operation is handed on with the weights of the node that the thread
 * stands on.  Thread i of n stands on node i * n_nodes / n, which is where rg_pool_pin puts it if nodes are of one
 * size; elsewhere the sums are the same and reading is slower.  Experts that stay in a file have no copies. */
#ifndef RG_OPS_CPU_NODE_COPIES_H
#define RG_OPS_CPU_NODE_COPIES_H

#include "ops/ops.h"

typedef struct rg_node_copies rg_node_copies;

/* Move n weights, which are borrowed, to the first node, and copy them to the others.  NULL and *err: no memory. */
rg_node_copies *rg_node_copies_new(const rg_weight *all, int n, int n_nodes, rg_error *err);
void rg_node_copies_free(rg_node_copies *c); /* NULL is fine */

const rg_reader *rg_node_copies_wrap(rg_node_copies *c, const rg_reader *inner);

#endif
