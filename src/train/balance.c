/* balance.c -- see balance.h. */
#include "train/balance.h"

#include <string.h>

void rg_routes_begin(rg_routes *r)
{
    r->n = 0;
    rg_slab_reset(&r->room);
}

void rg_routes_fini(rg_routes *r)
{
    rg_slab_fini(&r->room);
}

int rg_routes_add(rg_routes *r, const rg_routing *routing, int rows, int chosen_cols)
{
    if (r->n == RG_BALANCE_ROUTERS || routing->n_experts > RG_BALANCE_EXPERTS ||
        (r->n && r->at[0].routing.n_experts != routing->n_experts))
        return -1;
    r->at[r->n].routing = *routing;
    r->at[r->n].logits = rg_slab_mat(&r->room, rows, routing->n_experts);
    r->at[r->n].chosen = rg_slab_mat(&r->room, rows, chosen_cols);
    return r->at[r->n].logits.at && r->at[r->n].chosen.at ? r->n++ : -1;
}

/* The mean probabilities p [n] of router i are added to, and choices to share. */
static void add_router(const rg_routes *r, int i, double *p, double *share, double *row)
{
    const rg_routing *g = &r->at[i].routing;
    int32_t chosen;

    for (int k = 0; k < r->at[i].logits.rows; k++) {
        rg_back_probabilities(g, rg_mat_row(&r->at[i].logits, k), row);
        for (int e = 0; e < g->n_experts; e++)
            p[e] += row[e];
        for (int u = 0; u < g->n_used; u++) {
            memcpy(&chosen, rg_mat_row(&r->at[i].chosen, k) + u, sizeof chosen);
            share[chosen]++;
        }
    }
}

double rg_balance_loss(const rg_routes *r, double weight, double *share, rg_back_balance *out)
{
    double p[RG_BALANCE_EXPERTS] = { 0 }, row[RG_BALANCE_EXPERTS], n_rows = 0, loss = 0;
    const int n = r->n ? r->at[0].routing.n_experts : 0;

    for (int e = 0; e < n; e++)
        share[e] = 0;
    for (int i = 0; i < r->n; i++) {
        add_router(r, i, p, share, row);
        n_rows += r->at[i].logits.rows;
    }
    for (int e = 0; e < n; e++) {
        share[e] /= n_rows;
        loss += n * share[e] * p[e] / n_rows;
    }
    *out = (rg_back_balance){ .share = share, .by = n ? weight * n / n_rows : 0 };
    return loss;
}
