/* experts.c -- see experts.h. */
#include "model/arch/experts.h"

#include "model/arch/layer_parts.h"

#define WEIGHTS_OF_EXPERTS(l) (l)->w[W_GATE_EXPERTS], (l)->w[W_UP_EXPERTS], (l)->w[W_DOWN_EXPERTS]

/* Guess the experts of the next layer that has some by what its router makes of the present x, and have them read:
 * layers add little to x (Eliseev & Mazur 2023). */
static void fetch_next(rg_fwd *f, const rg_layer *l, const rg_act *x)
{
    const rg_config *c = l->c;
    const rg_layer *next = l + 1, *end = l + (c->n_layers - l->index);
    int mark = rg_act_mark(f);

    while (next < end && !(next->w[W_ROUTER] && next->w[W_FFN_NORM]))
        next++;
    if (next == end || x->cols != c->dim)
        return;
    rg_act *h = rg_act_new(f, "guess_norm", c->dim), *logits = rg_act_new(f, "guess_router", c->routing.n_experts);
    rg_act *route = rg_act_new(f, "guess_route", 2 * c->routing.n_used);

    f->guessing = true;
    norm_into(f, next, h, x, W_FFN_NORM);
    rg_linear(f, logits, h, next->w[W_ROUTER], next->w[W_ROUTER_BIAS]);
    rg_route(f, route, logits, &c->routing, next->w[W_CHOICE_BIAS], next->w[W_EXPERT_SCALE]);
    rg_fetch(f, route, &c->routing, &(rg_experts){ WEIGHTS_OF_EXPERTS(next) });
    f->guessing = false;
    rg_act_release(f, mark);
}

void routed_experts(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *h, const rg_act *logits)
{
    const rg_routing *routing = &l->c->routing;
    const rg_placed *placed = l->w[W_UP_EXPERTS]->placed;
    rg_act *route = rg_act_new(f, "route", 2 * routing->n_used);

    rg_route(f, route, logits, routing, l->w[W_CHOICE_BIAS], l->w[W_EXPERT_SCALE]);
    if (placed && placed->is_paged) { /* they lie in a file */
        rg_fetch(f, route, routing, &(rg_experts){ WEIGHTS_OF_EXPERTS(l) });
        fetch_next(f, l, x);
    }
    rg_moe(f, x, h, route, routing,
           &(rg_experts){ WEIGHTS_OF_EXPERTS(l), l->w[W_GATE_EXPERTS_BIAS], l->w[W_UP_EXPERTS_BIAS],
                          l->w[W_DOWN_EXPERTS_BIAS], l->c->act });
}

rg_act *shared_experts(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    rg_act *g = mlp_of(f, "shared", h, (const rg_weight *const[]){ l->w[W_SHARED_GATE], l->w[W_SHARED_UP] },
                       (const rg_weight *const[]){ NULL, NULL }, l->c->act);

    if (l->w[W_SHARED_ROUTER]) {
        rg_act *share = linear(f, "shared_gate", h, l->w[W_SHARED_ROUTER], NULL);

        rg_activate(f, share, share, RG_SIGMOID);
        rg_mul_by(f, g, share);
    }
    return g;
}

void experts(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *h)
{
    routed_experts(f, l, x, h, linear(f, "router", h, l->w[W_ROUTER], l->w[W_ROUTER_BIAS]));
    if (l->w[W_SHARED_UP])
        rg_linear_add(f, x, shared_experts(f, l, h), l->w[W_SHARED_DOWN], NULL);
}
