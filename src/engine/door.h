/* door.h -- who may still join those who wait: so many that each begins soon, and no tenant's flood shuts others out.
 *
 * How long a newcomer would wait is the prompts' ids before it over the ids that lately left the line in a second; only
 * time in which somebody waited counts, so an idle hour does not make the line look slow.  Until that is known the rate
 * is what it was opened with.  Past the longest wait a newcomer is refused, unless its tenant has less than its even
 * share of the line; so a tenant who fills it costs others nothing.  Nobody is let in past a number of requests, or
 * once the state that they may come to need is so many times all there is.  The counts are atomics: a newcomer is told
 * no without touching a lock or waiting for a step.  Background requests stand in a line of their own.
 */
#ifndef RG_ENGINE_DOOR_H
#define RG_ENGINE_DOOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RG_DOOR_LINES = 1024, RG_DOOR_ALL_STATE = 1024 };

/* Who asks. */
typedef struct rg_newcomer {
    uint64_t tenant;
    bool background;
    int32_t n_ids; /* of its prompt */
    int32_t state; /* what it may come to need of the state, in parts: all is RG_DOOR_ALL_STATE */
} rg_newcomer;

typedef struct rg_door_limits {
    int32_t max_waiting;  /* requests */
    double max_wait_s;    /* 0: no limit */
    double first_ids_s;   /* ids that leave the line in a second, as long as nothing was seen; 0: unknown */
} rg_door_limits;

typedef struct rg_door {
    rg_door_limits limits;
    atomic_int n, n_background;  /* who has not begun, */
    atomic_llong n_ids, state;   /* and their prompts' ids, and needs of state, without the background's; */
    atomic_llong line[RG_DOOR_LINES]; /* of them by tenant (two may share a line), */
    atomic_int n_lines;          /* and how many lines have any */
    atomic_llong allowed_ids;    /* n_ids from which newcomers are refused */
    /* The engine's thread alone: ids that left while others waited on, in how many seconds; both fade. */
    double taken_ids, waited_s, step_ids;
} rg_door;

void rg_door_init(rg_door *d, const rg_door_limits *limits);
int32_t rg_door_most(int32_t max_waiting); /* who waits at once, at the very most */

/* Any thread. */
bool rg_door_has_room(const rg_door *d, uint64_t tenant, bool background);
/* One who came in, or is gone before it began. */
void rg_door_enter(rg_door *d, const rg_newcomer *who);
void rg_door_leave(rg_door *d, const rg_newcomer *who);

/* The engine's thread: one begins in this step; the step is over, it took so long, and some wait on or none. */
void rg_door_begin(rg_door *d, const rg_newcomer *who);
void rg_door_look(rg_door *d, double step_s, bool some_wait);
/* Seconds until those who wait now have begun; 0: nobody can say. */
double rg_door_wait_s(const rg_door *d);
/* How much of the line is taken: at 1 newcomers are refused. */
double rg_door_taken(const rg_door *d);

#endif
