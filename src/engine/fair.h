/* fair.h -- the queue of waiting requests: fair between tenants, however many requests one of them sends.
 *
 * Deficit round robin (Shreedhar and Varghese, 1996).  Tenants with waiting requests form a ring; each turn adds a
 * quantum, times its weight, to a tenant's deficit counter, and its request is taken when the counter covers the
 * request's predicted cost. A tenant that asked for little has burst credit, up to a fixed number of rows, and may
 * spend it before its turn (as sparse flows do in FQ-CoDel, RFC 8290).  Costs are rows: the prompt's, and twice the
 * ids that are expected to come, since a decode row has no neighbours to share the reading of the weights with.
 * Within a tenant the lowest priority value goes first, then the first to arrive.  Preempted requests have paid
 * already and are taken before all others. Background requests have a queue of their own, behind all tenants, and
 * return to it when preempted.  The engine thread's alone; allocates nothing after rg_fair_new. */
#ifndef RG_ENGINE_FAIR_H
#define RG_ENGINE_FAIR_H

#include "engine/request.h"

typedef struct rg_fair rg_fair;

rg_fair *rg_fair_new(int32_t room, rg_error *err); /* room: for so many waiting requests */
void rg_fair_free(rg_fair *f);                     /* NULL is fine; the queue must be empty */

int32_t rg_fair_room(const rg_fair *f); /* for so many more */
void rg_fair_add(rg_fair *f, rg_request *r);
void rg_fair_remove(rg_fair *f, rg_request *r); /* leaves without having run; its tenant pays nothing */
/* The head of the queue; the same one until it is taken or the queue changes.  NULL: the queue is empty. */
rg_request *rg_fair_first(rg_fair *f);
/* The first request that may run now.  Only the head of each tenant's queue is asked about; a tenant whose head may not
 * run is passed over and keeps its place.  NULL: no head may run, or only background requests may while others wait. */
rg_request *rg_fair_first_of(rg_fair *f, bool (*may)(void *arg, const rg_request *r), void *arg);
/* True if the request found last is spending its tenant's burst credit. */
bool rg_fair_is_ahead(const rg_fair *f);
void rg_fair_take(rg_fair *f, rg_request *r); /* it runs from now on: its tenant pays */

/* A request generated so many ids: later requests are expected to generate about as many. */
void rg_fair_learn(rg_fair *f, int32_t n_output);

void rg_fair_check(const rg_fair *f); /* asserts that ring, queues and counts agree */

#endif
