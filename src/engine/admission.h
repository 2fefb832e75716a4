/* admission.h -- which requests may still join the queue.  Each of those should begin soon, and a flood from one tenant
 * must not shut out the others.
 *
 * An applicant's wait is estimated as the prompt ids before it divided by the ids per second that lately left the
 * queue.  Only time in which requests waited counts, so an idle hour does not make the queue look slow.  Until that
 * rate is measured, the one given at the start is used.  Past the longest wait (where there is one) an applicant is
 * refused, unless its tenant has less than its even share of the queue; so a tenant that fills the queue does not shut
 * out the others.  Past max_waiting requests, or once the queue may need many times all state, every applicant is
 * refused.  The counts are atomics: an applicant is refused without a lock and without waiting for a step.  Background
 * requests have a queue of their own. */
#ifndef RG_ENGINE_ADMISSION_H
#define RG_ENGINE_ADMISSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RG_ADMISSION_TENANTS = 1024, RG_ADMISSION_ALL_STATE = 1024 };

/* A request as far as admission goes. */
typedef struct rg_applicant {
    uint64_t tenant;
    bool background;
    int32_t n_ids; /* of its prompt */
    int32_t state; /* the most state that it may need, in parts of RG_ADMISSION_ALL_STATE */
} rg_applicant;

typedef struct rg_admission_limits {
    int32_t max_waiting;  /* requests */
    double max_wait_s;    /* 0: no limit */
    double first_ids_s;   /* ids that leave the queue in a second, until that is measured; 0: unknown */
} rg_admission_limits;

typedef struct rg_admission {
    rg_admission_limits limits;
    atomic_int n, n_background;  /* requests that wait to begin; */
    atomic_llong n_ids, state;   /* the ids of their prompts, and their needs of state, without the background's; */
    atomic_llong tenant_ids[RG_ADMISSION_TENANTS]; /* the ids by tenant, hashed (two may share a place), */
    atomic_int n_tenants;        /* and how many places have any */
    atomic_llong allowed_ids;    /* n_ids from which applicants are refused */
    /* The engine's thread alone: ids that left while others waited, and the seconds of that; both decay. */
    double taken_ids, waited_s, step_ids;
} rg_admission;

void rg_admission_init(rg_admission *a, const rg_admission_limits *limits);
int32_t rg_admission_most(int32_t max_waiting); /* most requests that can ever wait at once */

/* Any thread. */
bool rg_admission_has_room(const rg_admission *a, uint64_t tenant, bool background);
/* A request joined the queue, or left it without having begun. */
void rg_admission_join(rg_admission *a, const rg_applicant *who);
void rg_admission_leave(rg_admission *a, const rg_applicant *who);

/* The engine's thread: a request begins in this step; and after a step, its time (0: there was none) and whether
 * requests still wait. */
void rg_admission_begin(rg_admission *a, const rg_applicant *who);
void rg_admission_note_step(rg_admission *a, double step_s, bool some_wait);
/* Seconds until all who wait now have begun; 0: not known. */
double rg_admission_wait_s(const rg_admission *a);
/* Queue fill, 0 to 1: at 1 applicants are refused. */
double rg_admission_fill(const rg_admission *a);

#endif
