/* door.c -- see door.h. */
#include "engine/door.h"

enum {
    MANY_TENANTS = 2, /* times max_waiting: what even shares may come to */
    MANY_STATES = 64, /* times all state */
    FIRST_S = 5,      /* what the door was opened with weighs as much as so many seconds of looking */
    FADE_S = 20,      /* what is so old counts for a third */
};

/* A rate from less than this is none. */
static const double LEAST_S = 1.0;
/* No limit. */
static const double MOST_IDS = 1e18;

static void set_allowed(rg_door *d)
{
    const rg_door_limits *l = &d->limits;
    double most = MOST_IDS;

    if (l->max_wait_s > 0 && d->waited_s >= LEAST_S)
        most = d->taken_ids / d->waited_s * l->max_wait_s;
    atomic_store(&d->allowed_ids, (long long)(most < MOST_IDS ? most : MOST_IDS));
}

void rg_door_init(rg_door *d, const rg_door_limits *limits)
{
    d->limits = *limits;
    d->waited_s = limits->first_ids_s > 0 ? FIRST_S : 0;
    d->taken_ids = limits->first_ids_s * d->waited_s;
    set_allowed(d);
}

int32_t rg_door_most(int32_t max_waiting)
{
    return (MANY_TENANTS + 1) * max_waiting; /* and as many in the background */
}

static uint64_t line_of(uint64_t tenant)
{
    return tenant % RG_DOOR_LINES;
}

bool rg_door_has_room(const rg_door *d, uint64_t tenant, bool background)
{
    int32_t n = atomic_load(&d->n), n_lines;
    long long allowed = atomic_load(&d->allowed_ids), own;

    if (background)
        return atomic_load(&d->n_background) < d->limits.max_waiting;
    if (n && atomic_load(&d->state) >= MANY_STATES * RG_DOOR_ALL_STATE)
        return false;
    if (!n || (n < d->limits.max_waiting && atomic_load(&d->n_ids) < allowed))
        return true;
    own = atomic_load(&d->line[line_of(tenant)]);
    n_lines = atomic_load(&d->n_lines) + (own == 0);
    if (n_lines < 2 || n >= MANY_TENANTS * d->limits.max_waiting)
        return false;
    return own == 0 || own < allowed / n_lines;
}

void rg_door_enter(rg_door *d, const rg_newcomer *who)
{
    atomic_fetch_add(who->background ? &d->n_background : &d->n, 1);
    if (who->background)
        return;
    atomic_fetch_add(&d->n_ids, who->n_ids);
    atomic_fetch_add(&d->state, who->state);
    if (atomic_fetch_add(&d->line[line_of(who->tenant)], who->n_ids) == 0)
        atomic_fetch_add(&d->n_lines, 1);
}

void rg_door_leave(rg_door *d, const rg_newcomer *who)
{
    atomic_fetch_sub(who->background ? &d->n_background : &d->n, 1);
    if (who->background)
        return;
    atomic_fetch_sub(&d->n_ids, who->n_ids);
    atomic_fetch_sub(&d->state, who->state);
    if (atomic_fetch_sub(&d->line[line_of(who->tenant)], who->n_ids) == who->n_ids)
        atomic_fetch_sub(&d->n_lines, 1);
}

void rg_door_begin(rg_door *d, const rg_newcomer *who)
{
    rg_door_leave(d, who);
    d->step_ids += who->background ? 0 : who->n_ids;
}

void rg_door_look(rg_door *d, double step_s, bool some_wait)
{
    double kept = step_s < FADE_S ? 1 - step_s / FADE_S : 0;

    if (some_wait && step_s > 0) {
        d->taken_ids = d->taken_ids * kept + d->step_ids;
        d->waited_s = d->waited_s * kept + step_s;
        set_allowed(d);
    }
    d->step_ids = 0;
}

double rg_door_wait_s(const rg_door *d)
{
    return d->taken_ids > 0 ? (double)atomic_load(&d->n_ids) * d->waited_s / d->taken_ids : 0;
}

double rg_door_taken(const rg_door *d)
{
    double by_n = (double)atomic_load(&d->n) / (double)d->limits.max_waiting;
    double by_ids = (double)atomic_load(&d->n_ids) / ((double)atomic_load(&d->allowed_ids) + 1);
    double by_state = (double)atomic_load(&d->state) / (MANY_STATES * RG_DOOR_ALL_STATE);

    by_n = by_n > by_ids ? by_n : by_ids;
    return by_n > by_state ? by_n : by_state;
}
