/* fair.h -- whose turn it is among those who wait: fair between tenants, however much one of them asks for.
 *
 * Deficit round robin (Shreedhar and Varghese, 1996), in which who asks for little goes first (as sparse flows do in
 * FQ-CoDel, RFC 8290), up to so many rows ahead of the others.  Tenants who wait stand in a ring; each turn adds a
 * quantum to what a tenant may spend, and a request is taken when its predicted cost is covered.  Costs are rows: the
 * prompt's, and twice the ids that are expected to come, since a row of decoding has no others beside it to share the
 * weights with.  Within a tenant the lowest priority value goes first, then the first to arrive.  Who was preempted has
 * paid already and comes back before everybody else.  Background requests stand in a line of their own, behind all
 * tenants, and come back to it.  The engine thread's alone; allocates nothing after rg_fair_new. */
#ifndef RG_ENGINE_FAIR_H
#define RG_ENGINE_FAIR_H

#include "engine/request.h"

typedef struct rg_fair rg_fair;

rg_fair *rg_fair_new(int32_t room, rg_error *err); /* requests that wait at once, at most */
void rg_fair_free(rg_fair *f);                     /* NULL is fine; nobody may be waiting */

void rg_fair_add(rg_fair *f, rg_request *r);
void rg_fair_remove(rg_fair *f, rg_request *r); /* gone, uncharged */
/* Whose turn it is; the same one until it is taken or the line changes.  NULL: nobody waits. */
rg_request *rg_fair_first(rg_fair *f);
/* Is it that of a tenant who goes before its turn, having been given less than others? */
bool rg_fair_is_ahead(const rg_fair *f);
void rg_fair_take(rg_fair *f, rg_request *r); /* runs from now on: its tenant pays */

/* A request has generated so many ids: what the next ones are expected to. */
void rg_fair_learn(rg_fair *f, int32_t n_output);

void rg_fair_check(const rg_fair *f); /* asserts that ring, lines and counts agree */

#endif
