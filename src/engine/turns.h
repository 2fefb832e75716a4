/* turns.h -- which of several members computes its next step.
 *
 * First comes the member that serves the tenant who was served least, for its weight, by all members together
 * (shares.h): nobody gets more of the machine by asking several models.  Of members that serve the same tenant the one
 * with the first deadline comes first, and then the one that has had least time itself.  Members with requests of the
 * background alone come last.  Arithmetic on given numbers; reads no clock. */
#ifndef RG_ENGINE_TURNS_H
#define RG_ENGINE_TURNS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct rg_turn_claim {
    bool wants;           /* it has something to compute */
    double served;        /* as rg_scheduler_least_served */
    uint64_t deadline_ns; /* of its requests, the first; UINT64_MAX: none has one */
    double had_s;         /* seconds that the member had: turns.c counts them, */
    bool wanted;          /*   and remembers who wanted some last time */
} rg_turn_claim;

/* Whose turn it is; -1: nobody wants any.  One that did not want any for a while has had as much as the others: it does
 * not catch up. */
int rg_turns_next(rg_turn_claim *const claims[], int n);
void rg_turns_took(rg_turn_claim *claim, double took_s);

#endif
