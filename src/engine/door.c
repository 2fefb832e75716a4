/* door.c -- see door.h. */
#include "engine/door.h"

enum {
    FEW = 4,          /* may wait however slow it goes */
    MANY_TENANTS = 2, /* times max_waiting: what even shares may come to */
};

void rg_door_init(rg_door *d, int32_t max_waiting, int32_t max_seqs, double max_wait_s)
{
    d->max_waiting = max_waiting;
    d->max_seqs = max_seqs;
    d->max_wait_s = max_wait_s;
    rg_door_look(d, 0, false);
}

int32_t rg_door_most(int32_t max_waiting)
{
    return (MANY_TENANTS + 1) * max_waiting; /* and as many in the background */
}

static atomic_int *line_of(rg_door *d, uint64_t tenant)
{
    return &d->line[tenant % RG_DOOR_LINES];
}

bool rg_door_has_room(const rg_door *d, uint64_t tenant, bool background)
{
    int32_t n = atomic_load(&d->n), allowed = atomic_load(&d->allowed), own, n_lines;

    if (background)
        return atomic_load(&d->n_background) < d->max_waiting;
    if (n < allowed)
        return true;
    own = atomic_load(&d->line[tenant % RG_DOOR_LINES]);
    n_lines = atomic_load(&d->n_lines) + (own == 0);
    if (n_lines < 2 || n >= MANY_TENANTS * d->max_waiting)
        return false;
    return own == 0 || own < allowed / n_lines;
}

void rg_door_enter(rg_door *d, uint64_t tenant, bool background)
{
    atomic_fetch_add(background ? &d->n_background : &d->n, 1);
    if (!background && atomic_fetch_add(line_of(d, tenant), 1) == 0)
        atomic_fetch_add(&d->n_lines, 1);
}

void rg_door_leave(rg_door *d, uint64_t tenant, bool background)
{
    atomic_fetch_sub(background ? &d->n_background : &d->n, 1);
    if (!background && atomic_fetch_sub(line_of(d, tenant), 1) == 1)
        atomic_fetch_sub(&d->n_lines, 1);
}

void rg_door_learn(rg_door *d, double seconds)
{
    d->run_s = d->run_s > 0 ? d->run_s + (seconds - d->run_s) / 16 : seconds;
}

void rg_door_look(rg_door *d, int32_t n_running, bool full)
{
    /* Until no more can run, all places may come to be taken. */
    int32_t places = full || n_running > d->max_seqs ? n_running : d->max_seqs;
    double may_wait = d->run_s > 0 ? places / d->run_s * d->max_wait_s : d->max_seqs;

    may_wait = (may_wait > FEW ? may_wait : FEW) + places - n_running;
    if (d->max_wait_s <= 0 || may_wait > d->max_waiting)
        may_wait = d->max_waiting;
    atomic_store(&d->allowed, (int32_t)may_wait);
}
