/* door.h -- who may still join those who wait: so many that each begins soon, and no tenant's flood shuts others out.
 *
 * How many may wait follows from how fast they are taken: by Little's law that is how many run over how long each runs.
 * Past that number a newcomer is refused, unless its tenant has less than its even share of the places; so a tenant
 * who fills the line costs others nothing.  The counts are atomics: a newcomer is told no without touching a lock or
 * waiting for a step.  Background requests stand in a line of their own. */
#ifndef RG_ENGINE_DOOR_H
#define RG_ENGINE_DOOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RG_DOOR_LINES = 1024 };

typedef struct rg_door {
    int32_t max_waiting, max_seqs;
    double max_wait_s;            /* 0: no limit but max_waiting */
    atomic_int n, n_background;   /* who has not begun */
    atomic_int n_lines, line[RG_DOOR_LINES]; /* of them by tenant (two may share a line), and how many lines have any */
    atomic_int allowed;           /* n from which newcomers are refused */
    double run_s;                 /* mean time from first step to last of who finished; 0: nobody has yet */
} rg_door;

void rg_door_init(rg_door *d, int32_t max_waiting, int32_t max_seqs, double max_wait_s);
int32_t rg_door_most(int32_t max_waiting); /* who waits at once, at the very most */

/* Any thread. */
bool rg_door_has_room(const rg_door *d, uint64_t tenant, bool background);
/* One who came in, who begins or is gone. */
void rg_door_enter(rg_door *d, uint64_t tenant, bool background);
void rg_door_leave(rg_door *d, uint64_t tenant, bool background);

/* The engine's thread: somebody finished, having run so long; this is how many run now, and whether those who wait do
 * so because there is no room for more. */
void rg_door_learn(rg_door *d, double seconds);
void rg_door_look(rg_door *d, int32_t n_running, bool full);

#endif
