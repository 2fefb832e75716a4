/* admission.c -- see admission.h. */
#include "engine/admission.h"

enum {
    MANY_TENANTS = 2, /* times max_waiting: most requests that wait where several tenants have even shares */
    MANY_STATES = 64, /* times all state: the most that waiting requests together may need later */
    FIRST_S = 5,      /* the first rate counts as so many seconds of measurement */
    FADE_S = 20,      /* a measurement of this age has a third of the weight of a new one */
};

/* A rate measured over less time than this is not used. */
static const double LEAST_S = 1.0;
/* No limit. */
static const double MOST_IDS = 1e18;

static void set_allowed(rg_admission *a)
{
    const rg_admission_limits *l = &a->limits;
    double most = MOST_IDS;

    if (l->max_wait_s > 0 && a->waited_s >= LEAST_S)
        most = a->taken_ids / a->waited_s * l->max_wait_s;
    atomic_store(&a->allowed_ids, (long long)(most < MOST_IDS ? most : MOST_IDS));
}

void rg_admission_init(rg_admission *a, const rg_admission_limits *limits)
{
    a->limits = *limits;
    a->waited_s = limits->first_ids_s > 0 ? FIRST_S : 0;
    a->taken_ids = limits->first_ids_s * a->waited_s;
    set_allowed(a);
}

int32_t rg_admission_most(int32_t max_waiting)
{
    return (MANY_TENANTS + 1) * max_waiting; /* and as many in the background */
}

static uint64_t place_of(uint64_t tenant)
{
    return tenant % RG_ADMISSION_TENANTS;
}

bool rg_admission_has_room(const rg_admission *a, uint64_t tenant, bool background)
{
    int32_t n = atomic_load(&a->n), n_tenants;
    long long allowed = atomic_load(&a->allowed_ids), n_ids = atomic_load(&a->n_ids), own;

    if (background)
        return atomic_load(&a->n_background) < a->limits.max_waiting;
    if (n && atomic_load(&a->state) >= MANY_STATES * RG_ADMISSION_ALL_STATE)
        return false;
    if (!n || (n < a->limits.max_waiting && n_ids < allowed))
        return true;
    own = atomic_load(&a->tenant_ids[place_of(tenant)]);
    n_tenants = atomic_load(&a->n_tenants) + (own == 0);
    if (n_tenants < 2 || n >= MANY_TENANTS * a->limits.max_waiting)
        return false;
    return own == 0 || own < (n_ids < allowed ? n_ids : allowed) / n_tenants;
}

void rg_admission_join(rg_admission *a, const rg_applicant *who)
{
    atomic_fetch_add(who->background ? &a->n_background : &a->n, 1);
    if (who->background)
        return;
    atomic_fetch_add(&a->n_ids, who->n_ids);
    atomic_fetch_add(&a->state, who->state);
    if (atomic_fetch_add(&a->tenant_ids[place_of(who->tenant)], who->n_ids) == 0)
        atomic_fetch_add(&a->n_tenants, 1);
}

void rg_admission_leave(rg_admission *a, const rg_applicant *who)
{
    atomic_fetch_sub(who->background ? &a->n_background : &a->n, 1);
    if (who->background)
        return;
    atomic_fetch_sub(&a->n_ids, who->n_ids);
    atomic_fetch_sub(&a->state, who->state);
    if (atomic_fetch_sub(&a->tenant_ids[place_of(who->tenant)], who->n_ids) == who->n_ids)
        atomic_fetch_sub(&a->n_tenants, 1);
}

void rg_admission_begin(rg_admission *a, const rg_applicant *who)
{
    rg_admission_leave(a, who);
    a->step_ids += who->background ? 0 : who->n_ids;
}

void rg_admission_note_step(rg_admission *a, double step_s, bool some_wait)
{
    double kept = step_s < FADE_S ? 1 - step_s / FADE_S : 0;

    if (some_wait && step_s > 0) {
        a->taken_ids = a->taken_ids * kept + a->step_ids;
        a->waited_s = a->waited_s * kept + step_s;
        set_allowed(a);
    }
    a->step_ids = 0;
}

double rg_admission_wait_s(const rg_admission *a)
{
    return a->taken_ids > 0 ? (double)atomic_load(&a->n_ids) * a->waited_s / a->taken_ids : 0;
}

double rg_admission_fill(const rg_admission *a)
{
    double by_n = (double)atomic_load(&a->n) / (double)a->limits.max_waiting;
    double by_ids = (double)atomic_load(&a->n_ids) / ((double)atomic_load(&a->allowed_ids) + 1);
    double by_state = (double)atomic_load(&a->state) / (MANY_STATES * RG_ADMISSION_ALL_STATE);

    by_n = by_n > by_ids ? by_n : by_ids;
    return by_n > by_state ? by_n : by_state;
}
