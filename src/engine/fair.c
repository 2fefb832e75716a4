/* fair.c -- see fair.h.
 *
 * A tenant enters the ring, in front, with its first request that waits.  Once it has no more it stays until its turn
 * has come round, so that who always asks for one thing at a time is not always new.  Tenants are found by walking the
 * ring, which is as long as there are different ones. */
#include "engine/fair.h"

#include "base/mem.h"

enum {
    QUANTUM = 64,       /* rows that a turn adds */
    FIRST = 512,        /* and that a new tenant begins with */
    FIRST_GUESS = 128,  /* ids of an answer, before any was seen */
    OUTPUT_WEIGHT = 2,
};

typedef struct tenant {
    uint64_t key;
    int64_t deficit; /* rows that it may spend */
    rg_request *head; /* its line, by priority and arrival, linked by line_next; NULL: until its turn comes */
    bool fresh;       /* has not had a turn */
    struct tenant *next, *prev; /* the ring; next alone links those not in use */
} tenant;

struct rg_fair {
    tenant *all, *unused, *turn; /* turn: in the ring, NULL if nobody waits */
    rg_request *returning;       /* preempted ones, by arrival */
    rg_request *background, **background_end; /* for when nobody else waits, by arrival */
    double expected_output;
    int32_t room, n;
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
    return atomic_load_explicit(&r->admitted_ns, memory_order_relaxed) != 0;
}

static int64_t cost_of(const rg_fair *f, const rg_request *r)
{
    double each = f->expected_output < r->params.max_tokens ? f->expected_output : r->params.max_tokens;

    return r->params.n_prompt + (int64_t)(OUTPUT_WEIGHT * each * r->params.n_samples);
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

static void leave(rg_fair *f, tenant *t)
{
    if (f->turn == t)
        f->turn = t->next == t ? NULL : t->next;
    t->prev->next = t->next;
    t->next->prev = t->prev;
    t->next = f->unused;
    f->unused = t;
}

/* There are as many places as requests can wait: if all are taken, some tenant has none. */
static tenant *take_place(rg_fair *f)
{
    tenant *t = f->turn;

    while (!f->unused) {
        tenant *next = t->next;
        if (!t->head)
            leave(f, t);
        t = next;
    }
    t = f->unused;
    f->unused = t->next;
    return t;
}

/* A new tenant has its turn next, after those who are new too. */
static tenant *enter(rg_fair *f, uint64_t key)
{
    tenant *t = take_place(f), *before = f->turn;

    *t = (tenant){ .key = key, .deficit = FIRST, .fresh = true, .next = t, .prev = t };
    if (!before) {
        f->turn = t;
        return t;
    }
    while (before->fresh && before->next != f->turn)
        before = before->next;
    if (before->fresh) /* all of them are */
        before = f->turn;
    else if (before == f->turn)
        f->turn = t;
    t->next = before;
    t->prev = before->prev;
    t->prev->next = t;
    t->next->prev = t;
    return t;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

void rg_fair_add(rg_fair *f, rg_request *r)
{
    rg_request **at = &f->returning;

    RG_ASSERT(f->n < f->room);
    f->n++;
    if (r->params.background) {
        at = has_run(r) ? &f->background : f->background_end;
        while (*at && (*at)->id < r->id)
            at = &(*at)->line_next;
        if (!*at)
            f->background_end = &r->line_next;
    } else if (has_run(r)) {
        while (*at && (*at)->id < r->id)
            at = &(*at)->line_next;
    } else {
        tenant *t = find(f, r->tenant);

        at = &(t ? t : enter(f, r->tenant))->head;
        while (*at && goes_before(*at, r))
            at = &(*at)->line_next;
    }
    r->line_next = *at;
    *at = r;
}

/* Out of its line.  Its tenant, if it has one. */
static tenant *unlink_from_line(rg_fair *f, rg_request *r)
{
    bool behind = r->params.background;
    tenant *t = has_run(r) || behind ? NULL : find(f, r->tenant);
    rg_request **at = t ? &t->head : behind ? &f->background : &f->returning;

    while (*at != r) {
        RG_ASSERT(*at);
        at = &(*at)->line_next;
    }
    *at = r->line_next;
    if (f->background_end == &r->line_next)
        f->background_end = at;
    r->line_next = NULL;
    f->n--;
    return t;
}

void rg_fair_remove(rg_fair *f, rg_request *r)
{
    tenant *t = unlink_from_line(f, r);

    if (t && !t->head)
        t->deficit = 0;
}

rg_request *rg_fair_first(rg_fair *f)
{
    if (f->returning)
        return f->returning;
    while (f->turn) {
        tenant *t = f->turn;
        if (t->head && t->deficit >= cost_of(f, t->head))
            return t->head;
        if (t->head) {
            f->turn = t->next;
            f->turn->deficit += QUANTUM;
        } else if (t->fresh && t->next != t) {
            f->turn = t->next; /* it is the last now */
        } else {
            leave(f, t);
        }
        t->fresh = false;
    }
    return f->background;
}

bool rg_fair_is_new(const rg_fair *f)
{
    return !f->returning && f->turn && f->turn->fresh && f->turn->head && f->turn->deficit >= cost_of(f, f->turn->head);
}

void rg_fair_take(rg_fair *f, rg_request *r)
{
    tenant *t = unlink_from_line(f, r);

    if (!t)
        return;
    t->deficit = t->head ? t->deficit - cost_of(f, r) : 0;
}

void rg_fair_learn(rg_fair *f, int32_t n_output)
{
    f->expected_output += (n_output - f->expected_output) / 16;
}

void rg_fair_check(const rg_fair *f)
{
    const tenant *t = f->turn;
    int32_t n = 0;

    for (const rg_request *r = f->returning; r; r = r->line_next, n++)
        RG_ASSERT(has_run(r) && !r->params.background && (!r->line_next || r->id < r->line_next->id));
    for (const rg_request *r = f->background; r; r = r->line_next, n++)
        RG_ASSERT(r->params.background &&
                  (r->line_next ? r->id < r->line_next->id : f->background_end == &r->line_next));
    if (t)
        do {
            RG_ASSERT(t->next->prev == t && find(f, t->key) == t);
            for (const rg_request *r = t->head; r; r = r->line_next, n++)
                RG_ASSERT(!has_run(r) && r->tenant == t->key && (!r->line_next || goes_before(r, r->line_next)));
        } while ((t = t->next) != f->turn);
    RG_ASSERT(n == f->n);
}
