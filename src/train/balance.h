/* balance.h -- the loss by which the experts of a mixture are used alike (Switch Transformers, Fedus et al. 2021;
 * Mixtral): n_experts times the sum over experts of f_e P_e, f_e being the choices of e and P_e its mean probability,
 * both over all rows and all layers with experts.  n_used at perfect balance.  f has no gradient.
 *
 * Probabilities are those of the router over all experts, whatever scores weigh the chosen; of sigmoids, each is
 * divided by their sum. */
#ifndef RG_TRAIN_BALANCE_H
#define RG_TRAIN_BALANCE_H

#include "ops/back/back.h"
#include "train/slab.h"

enum { RG_BALANCE_ROUTERS = 1024, RG_BALANCE_EXPERTS = 4096 };

/* What routers of one pass read, and which experts they chose. */
typedef struct rg_routes {
    rg_slab room;
    int n;
    struct {
        rg_mat logits, chosen; /* [rows, n_experts]; [rows, 2 n_used], the first half being numbers of experts */
        rg_routing routing;
    } at[RG_BALANCE_ROUTERS];
} rg_routes;

/* Forget what was kept. */
void rg_routes_begin(rg_routes *r);
void rg_routes_fini(rg_routes *r);
/* Room for what one router more reads and writes: its place in `at`.  -1: no memory, or its experts are not as many as
 * those of the routers before. */
int rg_routes_add(rg_routes *r, const rg_routing *routing, int rows, int chosen_cols);

/* The loss of what was kept; 0 where no router ran.  *out is what the backward of routers adds to its gradients, weight
 * times the loss being part of what is made small; share [RG_BALANCE_EXPERTS] becomes f, and is borrowed by *out. */
double rg_balance_loss(const rg_routes *r, double weight, double *share, rg_back_balance *out);

#endif
