/* lookahead.c -- see lookahead.h. */
#include "engine/draft/lookahead.h"

#include <string.h>

#include "base/mem.h"

enum {
    MAX_ROWS = 120,  /* of the size that the paper gives for models of 7B: 15, 5, 15 */
    WAYS = 8,        /* places where the n-grams of one first id may be */
    LEVELS = RG_LOOKAHEAD_MAX_N - 1,
    MAX_COLUMNS = RG_MAX_DRAFT,
};

extern const rg_draft_kind rg_draft_lookahead;

typedef struct entry { /* the n-grams that begin with one id, in the order in which they came last */
    int32_t id, n;     /* n 0: the entry is free */
    uint32_t used;
} entry;

typedef struct level {
    int32_t n;
    int32_t id[MAX_COLUMNS];
} level;

typedef struct window {
    level levels[LEVELS];
    int32_t n_levels;      /* that are filled; 0: the answer is new */
    int32_t n_ids;         /* of the answer, whose n-grams are in the pool */
    int32_t last_id;       /* the answer's last id when it was asked about */
    int32_t n_last_level;  /* probes of the last level in the draft, which are its last probes; 0: it has none */
    int32_t first_probe;   /* the first of them */
    uint32_t clock;
    entry *entries;        /* [RG_LOOKAHEAD_KEYS] */
    int32_t *ngrams;       /* [RG_LOOKAHEAD_KEYS][guesses][n - 1] */
} window;

typedef struct lookahead {
    rg_drafter d; /* first */
    rg_lookahead_size size;
    window *lanes; /* [n_lanes] */
    int32_t n_lanes;
    entry *entries;
    int32_t *ngrams;
} lookahead;

rg_lookahead_size rg_lookahead_size_for(int32_t max_rows)
{
    rg_lookahead_size s = { .n = max_rows < 15 ? 3 : 5 };
    int32_t each = 1 + (s.n - 2) + (s.n - 1); /* rows of a column and a guess; a column less one */

    s.window = s.guesses = (max_rows + 1) / each;
    if (s.window < 1)
        s.window = 1;
    return s;
}

int32_t rg_lookahead_rows(const rg_lookahead_size *s)
{
    int32_t filling = s->window + s->n - 3, full = s->window - 1 + s->window * (s->n - 2);
    int32_t all = full + s->guesses * (s->n - 1);

    return filling > all ? filling : all;
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

static int32_t *ngrams_of(const lookahead *l, const window *w, const entry *e)
{
    return w->ngrams + (size_t)(e - w->entries) * (size_t)(l->size.guesses * (l->size.n - 1));
}

/* The entry of an id; NULL: there is none. */
static entry *find(const window *w, int32_t id, entry **free_one)
{
    uint32_t place = (uint32_t)id * 2654435769u >> 23; /* RG_LOOKAHEAD_KEYS = 2^9 */
    entry *oldest = NULL;

    for (uint32_t k = 0; k < WAYS; k++) {
        entry *e = &w->entries[(place + k) % RG_LOOKAHEAD_KEYS];

        if (e->n && e->id == id)
            return e;
        if (!oldest || (oldest->n && (!e->n || e->used < oldest->used)))
            oldest = e;
    }
    if (free_one)
        *free_one = oldest;
    return NULL;
}

/* Put an n-gram last among those of its first id; without room, the first is forgotten.  None begins with a given
 * row. */
static void keep(const lookahead *l, window *w, int32_t id, const int32_t *rest)
{
    int32_t size = l->size.n - 1, at;
    size_t bytes = (size_t)size * sizeof *rest;
    entry *e, *other = NULL;
    int32_t *all;

    if (!rg_is_id(id))
        return;
    e = find(w, id, &other);
    if (!e) {
        e = other;
        *e = (entry){ .id = id };
    }
    e->used = ++w->clock;
    all = ngrams_of(l, w, e);
    for (at = 0; at < e->n && memcmp(all + at * size, rest, bytes) != 0; at++)
        ;
    if (at == e->n && e->n == l->size.guesses)
        at = 0;
    if (at < e->n)
        memmove(all + at * size, all + (at + 1) * size, (size_t)(--e->n - at) * bytes);
    memcpy(all + e->n++ * size, rest, bytes);
}

static bool all_ids(const int32_t *ids, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (!rg_is_id(ids[i]))
            return false;
    return true;
}

/* The n-grams of the answer and its prompt that have become complete. */
static void keep_written(const lookahead *l, window *w, const rg_draft_ask *a)
{
    int32_t n = l->size.n, latest = a->n_ids - RG_LOOKAHEAD_KEYS * l->size.guesses;

    for (int32_t end = w->n_ids > latest ? w->n_ids : latest; end < a->n_ids && !l->size.only_window; end++)
        if (end + 1 >= n && all_ids(a->ids + end + 1 - n, n))
            keep(l, w, a->ids[end + 1 - n], a->ids + end + 2 - n);
    w->n_ids = a->n_ids;
}

/* Keep the n-grams that the window's columns make, each with its last id from `newest`. */
static void keep_columns(const lookahead *l, window *w, const int32_t *newest)
{
    for (int32_t c = 0; c < l->size.window; c++) {
        int32_t rest[RG_LOOKAHEAD_MAX_N], n = 0;

        for (int32_t k = 1; k < w->n_levels; k++)
            rest[n++] = w->levels[k].id[c];
        rest[n++] = newest[c];
        keep(l, w, c ? w->levels[0].id[c - 1] : w->last_id, rest);
    }
}

/* ---- the window -------------------------------------------------------------------------------------------------- */

/* The window begins as the prompt, from its start, over and over; where it has given rows, as any id. */
static void fill(const lookahead *l, window *w, const rg_request *r)
{
    level *first = &w->levels[0];

    first->n = l->size.window + l->size.n - 3;
    for (int32_t i = 0; i < first->n; i++) {
        const int32_t id = r->params.prompt[i % r->params.n_prompt];

        first->id[i] = rg_is_id(id) ? id : 0;
    }
    w->n_levels = 1;
}

/* The window's rows as probes.  Column 0 of the first level is the answer's last id; while there is but one level, the
 * columns from 1 on are its own. */
static void add_window(window *w, rg_draft_tree *d)
{
    int32_t node[MAX_COLUMNS + 1] = { -1 };

    for (int32_t i = 0; i < w->levels[0].n; i++)
        node[i + 1] = rg_draft_add_probe(d, node[i], w->levels[0].id[i]);
    w->first_probe = 0;
    for (int32_t k = 1; k < w->n_levels; k++) {
        w->first_probe = d->n;
        for (int32_t c = 0; c < w->levels[k].n; c++)
            node[c] = rg_draft_add_probe(d, node[c], w->levels[k].id[c]);
    }
    w->n_last_level = d->n - w->first_probe;
}

static void drop_first(level *l)
{
    memmove(l->id, l->id + 1, (size_t)--l->n * sizeof *l->id);
}

/* One level more, or, if all are there, the first gives way.  A level has one column less for each one above it, since
 * the answer has come one id further. */
static void advance(const lookahead *l, window *w, const int32_t *newest, int32_t n)
{
    level *next;

    if (w->n_levels < l->size.n - 1) {
        for (int32_t k = 0; k < w->n_levels; k++)
            drop_first(&w->levels[k]);
        newest += w->n_levels > 1;
        n -= w->n_levels > 1;
        next = &w->levels[w->n_levels++];
    } else {
        keep_columns(l, w, newest);
        memmove(w->levels, w->levels + 1, (size_t)(w->n_levels - 1) * sizeof *w->levels);
        drop_first(&w->levels[0]);
        next = &w->levels[w->n_levels - 1];
    }
    next->n = n;
    memcpy(next->id, newest, (size_t)n * sizeof *newest);
}

/* ---- the drafter ------------------------------------------------------------------------------------------------- */

static void begin(rg_drafter *d, int32_t lane)
{
    window *w = &((lookahead *)d)->lanes[lane];

    w->n_levels = w->n_ids = w->n_last_level = 0;
    w->clock = 0;
    memset(w->entries, 0, RG_LOOKAHEAD_KEYS * sizeof *w->entries);
}

/* Rows of the window, and how many ids its longest path has. */
static int32_t window_rows(const window *w, int32_t *depth)
{
    int32_t n = 0;

    *depth = 0;
    for (int32_t k = 0; k < w->n_levels; k++) {
        n += w->levels[k].n;
        *depth = w->levels[k].n + k > *depth ? w->levels[k].n + k : *depth;
    }
    return n;
}

static void propose_one(lookahead *l, const rg_draft_ask *a)
{
    window *w = &l->lanes[a->lane];
    int32_t last = a->ids[a->n_ids - 1], size = l->size.n - 1, depth;
    const int32_t *ngrams;
    const entry *e;

    if (!w->n_levels)
        fill(l, w, a->request);
    keep_written(l, w, a);
    w->last_id = last;
    w->n_last_level = 0;
    if (window_rows(w, &depth) <= a->most && depth <= a->probe_depth)
        add_window(w, a->draft);
    e = find(w, last, NULL);
    ngrams = e ? ngrams_of(l, w, e) : NULL;
    for (int32_t g = 0; e && g < e->n; g++) {
        int32_t node = -1;

        for (int32_t k = 0; k < size && k < a->depth; k++) {
            int32_t id = ngrams[g * size + k], next = rg_draft_find(a->draft, node, id);

            if (next < 0 && a->draft->n == a->most)
                break;
            node = next >= 0 ? next : rg_draft_add(a->draft, node, id);
        }
    }
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        propose_one((lookahead *)d, &asks[i]);
    return true;
}

static void checked(rg_drafter *d, const rg_draft_result *r)
{
    lookahead *l = (lookahead *)d;
    window *w = &l->lanes[r->lane];
    const int32_t *newest = r->drawn + 1 + w->first_probe;

    if (r->draft->n < w->first_probe + w->n_last_level)
        w->n_last_level = 0; /* there was no room for the rows */
    for (int32_t i = 0; i < w->n_last_level; i++)
        if (newest[i] < 0)
            return; /* logits that were no numbers */
    if (w->n_last_level)
        advance(l, w, newest, w->n_last_level);
    w->n_last_level = 0;
}

static int32_t nodes(const rg_drafter *d, int32_t depth)
{
    (void)depth;
    return rg_lookahead_rows(&((const lookahead *)d)->size);
}

static void close_it(rg_drafter *d)
{
    lookahead *l = (lookahead *)d;

    rg_free(l->lanes);
    rg_free(l->entries);
    rg_free(l->ngrams);
    rg_free(l);
}

rg_drafter *rg_lookahead_open(const rg_draft_options *o, const rg_lookahead_size *size, rg_error *err)
{
    size_t n = (size_t)o->n_lanes, keys, each = (size_t)(size->guesses * (size->n - 1)), n_ids;
    lookahead *l = rg_zalloc(sizeof *l);

    RG_ASSERT(size->n >= 3 && size->n <= RG_LOOKAHEAD_MAX_N && rg_lookahead_rows(size) <= RG_MAX_DRAFT);
    if (!l)
        return rg_fail_memory(err, sizeof *l), NULL;
    if (!rg_mul(n, RG_LOOKAHEAD_KEYS, &keys) || !rg_mul(keys, each, &n_ids)) {
        rg_free(l);
        return rg_fail_memory(err, SIZE_MAX), NULL;
    }
    l->d = (rg_drafter){ .kind = &rg_draft_lookahead, .depth = size->n - 1, .propose = propose, .begin = begin,
                         .checked = checked, .nodes = nodes, .close = close_it };
    l->size = *size;
    l->n_lanes = o->n_lanes;
    l->lanes = rg_array(n, sizeof *l->lanes);
    l->entries = rg_array(keys, sizeof *l->entries);
    l->ngrams = rg_array(n_ids, sizeof *l->ngrams);
    if (!l->lanes || !l->entries || !l->ngrams) {
        close_it(&l->d);
        return rg_fail_memory(err, n_ids * sizeof *l->ngrams), NULL;
    }
    for (int32_t i = 0; i < o->n_lanes; i++) {
        l->lanes[i].entries = l->entries + (size_t)i * RG_LOOKAHEAD_KEYS;
        l->lanes[i].ngrams = l->ngrams + (size_t)i * RG_LOOKAHEAD_KEYS * each;
        begin(&l->d, i);
    }
    return &l->d;
}

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    rg_lookahead_size size = rg_lookahead_size_for(o->max_draft);

    return rg_lookahead_open(o, &size, err);
}

const rg_draft_kind rg_draft_lookahead = { .name = "lookahead", .max_draft = MAX_ROWS, .has_branches = true,
                                           .open = open_it };
