/* fair.c -- see fair.h.
 *
 * A tenant's credit is the number of rows given to other tenants since it last got some, at most CREDIT.  When its
 * first request arrives, a tenant with credit enters the ring in front.  A tenant without requests stays in the ring,
 * so that its credit is remembered, until the credit is CREDIT again or its place is needed.  Tenants are found by
 * walking the ring. */
#include "engine/fair.h"

#include <math.h> /* ceil: exact */

#include "base/mem.h"

enum {
    QUANTUM = 64,       /* rows that a turn adds */
    CREDIT = 512,       /* rows that a tenant may be given ahead of the others */
    FIRST_GUESS = 128,  /* ids of an answer, before any was seen */
    OUTPUT_WEIGHT = 2,
};

typedef struct tenant {
    uint64_t key;
    double weight;
    int64_t deficit; /* rows that it may spend */
    int64_t credit, seen; /* burst credit in rows, as it was when all tenants together had been given `seen` */
    bool ahead;       /* it is in front and spends its credit */
    rg_request *head; /* its requests, by priority and arrival, linked by queue_next; NULL: none waits */
    struct tenant *next, *prev; /* the ring; next alone links those not in use */
} tenant;

struct rg_fair {
    tenant *all, *unused, *turn; /* turn: in the ring; NULL: the ring is empty */
    rg_request *returning;       /* preempted ones, by arrival */
    const rg_request *found;     /* by rg_fair_first_of */
    rg_request *background, **background_end; /* taken when no other request waits, by arrival */
    double expected_output;
    int64_t given;    /* rows, to all tenants */
    int32_t room, n, n_waiting_tenants; /* waiting requests; tenants that have any */
};

rg_fair *rg_fair_new(int32_t room, rg_error *err)
{
    rg_fair *f = rg_zalloc(sizeof *f);

    if (!f)
        return rg_fail_memory(err, sizeof *f), NULL;
    f->all = rg_array((size_t)room, sizeof *f->all);
    if (!f->all) {
        rg_fail_memory(err, (size_t)room * sizeof *f->all);
        rg_free(f);
        return NULL;
    }
    for (int32_t i = 0; i < room; i++) {
        f->all[i].next = f->unused;
        f->unused = &f->all[i];
    }
    f->background_end = &f->background;
    f->room = room;
    f->expected_output = FIRST_GUESS;
    return f;
}

void rg_fair_free(rg_fair *f)
{
    if (!f)
        return;
    RG_ASSERT(!f->n);
    rg_free(f->all);
    rg_free(f);
}

static bool has_run(const rg_request *r)
{
    return atomic_load_explicit(&r->counts.admitted_ns, memory_order_relaxed) != 0;
}

static int64_t cost_of(const rg_fair *f, const rg_request *r)
{
    double each = f->expected_output < r->params.max_tokens ? f->expected_output : r->params.max_tokens;

    return r->params.n_prompt + (int64_t)(OUTPUT_WEIGHT * each * r->n_branches);
}

static bool goes_before(const rg_request *a, const rg_request *b)
{
    return a->params.priority != b->params.priority ? a->params.priority < b->params.priority : a->id < b->id;
}

/* ---- the ring ---------------------------------------------------------------------------------------------------- */

static tenant *find(const rg_fair *f, uint64_t key)
{
    tenant *t = f->turn;

    if (!t)
        return NULL;
    do
        if (t->key == key)
            return t;
    while ((t = t->next) != f->turn);
    return NULL;
}

static void unlink_tenant(rg_fair *f, tenant *t)
{
    if (f->turn == t)
        f->turn = t->next == t ? NULL : t->next;
    t->prev->next = t->next;
    t->next->prev = t->prev;
}

static void leave(rg_fair *f, tenant *t)
{
    unlink_tenant(f, t);
    t->next = f->unused;
    f->unused = t;
}

/* There are as many places as requests can wait: if all are taken, some tenant has none. */
static tenant *take_place(rg_fair *f)
{
    for (tenant *t = f->turn, *next; !f->unused; t = next) {
        next = t->next;
        if (!t->head)
            leave(f, t);
    }
    tenant *t = f->unused;
    f->unused = t->next;
    return t;
}

/* To the front of the ring, after the tenants that are ahead already. */
static void put_ahead(rg_fair *f, tenant *t)
{
    tenant *before = f->turn;

    t->ahead = true;
    if (!before) {
        f->turn = t->next = t->prev = t;
        return;
    }
    while (before->ahead && before->next != f->turn)
        before = before->next;
    if (before->ahead) /* all of them are */
        before = f->turn;
    else if (before == f->turn)
        f->turn = t;
    t->next = before;
    t->prev = before->prev;
    t->prev->next = t;
    t->next->prev = t;
}

static int64_t credit_of(const rg_fair *f, const tenant *t)
{
    int64_t credit = t->credit + f->given - t->seen;

    return credit < CREDIT ? credit : CREDIT;
}

/* For a tenant whose queue gets its first request. */
static tenant *begin_queue(rg_fair *f, uint64_t key)
{
    tenant *t = find(f, key);

    if (t && t->head)
        return t;
    if (t) {
        unlink_tenant(f, t);
    } else {
        t = take_place(f);
        *t = (tenant){ .key = key, .credit = CREDIT, .seen = f->given };
    }
    t->deficit = 0;
    put_ahead(f, t);
    f->n_waiting_tenants++;
    return t;
}

/* ---- the queues -------------------------------------------------------------------------------------------------- */

int32_t rg_fair_room(const rg_fair *f)
{
    return f->room - f->n;
}

void rg_fair_add(rg_fair *f, rg_request *r)
{
    rg_request **at = &f->returning;

    RG_ASSERT(f->n < f->room);
    f->n++;
    if (r->params.background) {
        at = has_run(r) ? &f->background : f->background_end;
        while (*at && (*at)->id < r->id)
            at = &(*at)->turn.queue_next;
        if (!*at)
            f->background_end = &r->turn.queue_next;
    } else if (has_run(r)) {
        while (*at && (*at)->id < r->id)
            at = &(*at)->turn.queue_next;
    } else {
        tenant *t = begin_queue(f, r->who.tenant);
        t->weight = r->who.weight;
        at = &t->head;
        while (*at && goes_before(*at, r))
            at = &(*at)->turn.queue_next;
    }
    r->turn.queue_next = *at;
    *at = r;
}

/* Remove a request from its queue.  Returns its tenant if the queue was a tenant's, else NULL. */
static tenant *unlink_from_queue(rg_fair *f, rg_request *r)
{
    bool behind = r->params.background;
    tenant *t = has_run(r) || behind ? NULL : find(f, r->who.tenant);
    rg_request **at = t ? &t->head : behind ? &f->background : &f->returning;

    while (*at != r) {
        RG_ASSERT(*at);
        at = &(*at)->turn.queue_next;
    }
    *at = r->turn.queue_next;
    if (f->background_end == &r->turn.queue_next)
        f->background_end = at;
    r->turn.queue_next = NULL;
    f->n--;
    return t;
}

void rg_fair_remove(rg_fair *f, rg_request *r)
{
    tenant *t = unlink_from_queue(f, r);

    f->n_waiting_tenants -= t && !t->head;
}

/* True if a tenant that is ahead may have its first request taken now. */
static bool goes_ahead(const rg_fair *f, const tenant *t)
{
    return t->head && t->ahead && credit_of(f, t) >= cost_of(f, t->head);
}

/* Who may run now. */
typedef struct chosen {
    bool (*may)(void *arg, const rg_request *r); /* NULL: everybody */
    void *arg;
} chosen;

static bool is_open(const tenant *t, const chosen *c)
{
    return t->head && (!c->may || c->may(c->arg, t->head));
}

static bool some_open(const rg_fair *f, const chosen *c)
{
    const tenant *t = f->turn;

    do
        if (is_open(t, c))
            return true;
    while ((t = t->next) != f->turn);
    return false;
}

/* Give the turn to the next tenant that has requests and may run; there is one. */
static void pass_turn(rg_fair *f, const chosen *c)
{
    do {
        tenant *t = f->turn;
        t->ahead &= t->head && !is_open(t, c);
        f->turn = t->next;
        if (!t->head && credit_of(f, t) == CREDIT)
            leave(f, t);
    } while (!is_open(f->turn, c));
}

static rg_request *first_in_turn(rg_fair *f, const chosen *c)
{
    if (!f->n_waiting_tenants || !some_open(f, c))
        return NULL;
    if (!is_open(f->turn, c))
        pass_turn(f, c);
    while (!goes_ahead(f, f->turn) && f->turn->deficit < cost_of(f, f->turn->head)) {
        pass_turn(f, c);
        f->turn->deficit += (int64_t)ceil(QUANTUM * f->turn->weight);
    }
    return f->turn->head;
}

rg_request *rg_fair_first_of(rg_fair *f, bool (*may)(void *arg, const rg_request *r), void *arg)
{
    const chosen c = { may, arg };
    rg_request *r = f->returning;

    while (r && may && !may(arg, r))
        r = r->turn.queue_next;
    if (!r)
        r = first_in_turn(f, &c);
    if (!r && !f->returning && !f->n_waiting_tenants)
        r = f->background;
    f->found = r;
    return r;
}

rg_request *rg_fair_first(rg_fair *f)
{
    return rg_fair_first_of(f, NULL, NULL);
}

bool rg_fair_is_ahead(const rg_fair *f)
{
    return f->n_waiting_tenants && f->found && f->turn->head == f->found && goes_ahead(f, f->turn);
}

void rg_fair_take(rg_fair *f, rg_request *r)
{
    int64_t cost = cost_of(f, r);
    tenant *t = unlink_from_queue(f, r);

    if (!t)
        return;
    if (!t->ahead || credit_of(f, t) < cost)
        t->deficit -= cost;
    t->credit = credit_of(f, t) - cost;
    f->given += cost;
    t->seen = f->given;
    if (!t->head)
        f->n_waiting_tenants--;
}

void rg_fair_learn(rg_fair *f, int32_t n_output)
{
    f->expected_output += (n_output - f->expected_output) / 16;
}

void rg_fair_check(const rg_fair *f)
{
    const tenant *t = f->turn;
    int32_t n = 0, n_waiting_tenants = 0;

    for (const rg_request *r = f->returning; r; r = r->turn.queue_next, n++)
        RG_ASSERT(has_run(r) && !r->params.background && (!r->turn.queue_next || r->id < r->turn.queue_next->id));
    for (const rg_request *r = f->background; r; r = r->turn.queue_next, n++)
        RG_ASSERT(r->params.background &&
                  (r->turn.queue_next ? r->id < r->turn.queue_next->id : f->background_end == &r->turn.queue_next));
    if (t)
        do {
            RG_ASSERT(t->next->prev == t && find(f, t->key) == t && credit_of(f, t) <= CREDIT);
            n_waiting_tenants += t->head != NULL;
            for (const rg_request *r = t->head; r; r = r->turn.queue_next, n++)
                RG_ASSERT(!has_run(r) && r->who.tenant == t->key &&
                          (!r->turn.queue_next || goes_before(r, r->turn.queue_next)));
        } while ((t = t->next) != f->turn);
    RG_ASSERT(n == f->n && n_waiting_tenants == f->n_waiting_tenants);
}
