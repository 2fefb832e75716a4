/* machines.h -- what machines can do: known ones from machines.def, which names the sources.  For this machine the
 * caller provides the roofs, or a whole profile (measure/profile.h). */
#ifndef RG_PLAN_MACHINES_H
#define RG_PLAN_MACHINES_H

#include "measure/cost.h"

typedef struct rg_plan_machine {
    const char *name, *title;
    bool accelerator;      /* its arithmetic is bf16 whatever the weights are; else as this engine does it */
    rg_machine m;          /* of all its chips together */
    double memory_bytes;
    double link_bytes_s;   /* between chips, one way; 0: none */
    int chips;
    int chunk;             /* rows of a step of prefill; 0: a prompt is one step */
} rg_plan_machine;

/* The known machine of this name, or false and *err lists them.  "here" is not among them. */
bool rg_plan_machine_find(rg_plan_machine *out, const char *name, rg_error *err) RG_MUST_CHECK;
/* The i-th known machine's name; NULL past the end. */
const char *rg_plan_machine_nth(int i);
/* n chips as one: everything times n but the link.  Rates belong to one machine and do not apply to several. */
void rg_plan_machine_chips(rg_plan_machine *p, int n);

#endif
