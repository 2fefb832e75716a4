/* suffix.c -- see suffix.h; and the drafter: over the answer and its prompt, and over finished answers of its scope. */
#include "engine/draft/suffix.h"

#include <string.h>

#include "base/mem.h"
#include "engine/draft/draft.h"

/* ---- an index ---------------------------------------------------------------------------------------------------- */

enum { END = -1 };

struct rg_suffix_index {
    uint32_t mask;       /* places - 1 */
    uint32_t n;          /* ids added so far */
    int32_t *id;         /* [places], as are scope and before */
    uint64_t *scope;
    uint32_t *before[2]; /* 1 + the latest place with the same id; with the same two ids; 0: there is none */
    uint32_t *head[2];   /* [places] 1 + the latest place, by hash */
};

rg_suffix_index *rg_suffix_index_new(int32_t n, rg_error *err)
{
    rg_suffix_index *x = rg_zalloc(sizeof *x);
    size_t places = 64;

    if (!x)
        return rg_fail_memory(err, sizeof *x), NULL;
    while (places < (size_t)n)
        places *= 2;
    x->mask = (uint32_t)places - 1;
    x->id = rg_array(places, sizeof *x->id);
    x->scope = rg_array(places, sizeof *x->scope);
    for (int k = 0; k < 2; k++) {
        x->before[k] = rg_array(places, sizeof **x->before);
        x->head[k] = rg_array(places, sizeof **x->head);
    }
    if (!x->id || !x->scope || !x->before[0] || !x->before[1] || !x->head[0] || !x->head[1]) {
        rg_suffix_index_free(x);
        return rg_fail_memory(err, places * sizeof *x->scope), NULL;
    }
    rg_suffix_index_clear(x);
    return x;
}

void rg_suffix_index_free(rg_suffix_index *x)
{
    if (!x)
        return;
    rg_free(x->id);
    rg_free(x->scope);
    for (int k = 0; k < 2; k++) {
        rg_free(x->before[k]);
        rg_free(x->head[k]);
    }
    rg_free(x);
}

void rg_suffix_index_clear(rg_suffix_index *x)
{
    x->n = 0;
    for (int k = 0; k < 2; k++)
        memset(x->head[k], 0, ((size_t)x->mask + 1) * sizeof **x->head);
}

static uint32_t hash(const rg_suffix_index *x, uint64_t scope, int32_t id, int32_t id_before)
{
    uint64_t h = (scope ^ (uint32_t)id) * 0x9e3779b97f4a7c15u;

    h = (h ^ (h >> 29) ^ (uint32_t)id_before) * 0xbf58476d1ce4e5b9u;
    return (uint32_t)(h >> 32) & x->mask;
}

/* True if the place is still in the ring. */
static bool is_there(const rg_suffix_index *x, uint32_t place)
{
    return place < x->n && x->n - place <= x->mask + 1;
}

/* The id at a place; END if there is none. */
static int32_t id_at(const rg_suffix_index *x, uint32_t place)
{
    return is_there(x, place) ? x->id[place & x->mask] : END;
}

void rg_suffix_index_add(rg_suffix_index *x, int32_t id, uint64_t scope)
{
    uint32_t place = x->n;
    int32_t before = place ? x->id[(place - 1) & x->mask] : END;

    if (!rg_is_id(id))
        id = END;
    if (place > UINT32_MAX - 2) { /* numbers of places have run out */
        rg_suffix_index_clear(x);
        rg_suffix_index_add(x, id, scope);
        return;
    }
    x->id[place & x->mask] = id;
    x->scope[place & x->mask] = scope;
    for (int k = 0; k < 2 && id != END; k++) {
        uint32_t *head = &x->head[k][hash(x, scope, id, k ? before : END)];

        x->before[k][place & x->mask] = *head;
        *head = place + 1;
    }
    x->n++;
}

/* How many of the last ids of ids[0, n) stand at a place and before it. */
static int32_t agreeing(const rg_suffix_index *x, uint32_t place, const int32_t *ids, int32_t n, int32_t most)
{
    int32_t k = 0;

    while (k < most && k < n && (uint32_t)k <= place && rg_is_id(ids[n - 1 - k]) &&
           id_at(x, place - (uint32_t)k) == ids[n - 1 - k])
        k++;
    return k;
}

/* The chain of single ids gives the places that agree in one id alone; the other one all that agree in more. */
int32_t rg_suffix_find(const rg_suffix_index *x, uint64_t scope, const int32_t *ids, int32_t n, int32_t max_length,
                       rg_suffix_match *out, int32_t room)
{
    int32_t n_out = 0;

    for (int k = 0; k < 2 && n > k; k++) {
        uint32_t link = x->head[k][hash(x, scope, ids[n - 1], k ? ids[n - 2] : END)], last = UINT32_MAX;

        for (int looks = 0; link && looks < RG_SUFFIX_LOOKS && n_out < room; looks++) {
            uint32_t place = link - 1;
            int32_t length;

            if (!is_there(x, place) || place >= last)
                break; /* the ring has come round */
            last = place;
            link = x->before[k][place & x->mask];
            if (x->scope[place & x->mask] != scope || place + 1 == x->n)
                continue;
            length = agreeing(x, place, ids, n, max_length);
            if (k ? length > 1 : length == 1 || (length && max_length == 1))
                out[n_out++] = (rg_suffix_match){ x, place + 1, length };
        }
    }
    return n_out;
}

/* ---- a draft ----------------------------------------------------------------------------------------------------- */

static int32_t id_after(const rg_suffix_match *m, int32_t offset)
{
    return id_at(m->index, m->next + (uint32_t)offset);
}

/* By what follows them, up to `depth` ids. */
static bool is_before(const rg_suffix_match *a, const rg_suffix_match *b, int32_t depth)
{
    for (int32_t k = 0; k < depth; k++) {
        int32_t x = id_after(a, k), y = id_after(b, k);

        if (x != y)
            return x < y;
        if (x == END)
            return false;
    }
    return false;
}

/* Shell's sort: nothing is allocated. */
static void sort(rg_suffix_match *m, int32_t n, int32_t depth)
{
    for (int32_t gap = n / 2; gap > 0; gap /= 2)
        for (int32_t i = gap; i < n; i++) {
            rg_suffix_match x = m[i];
            int32_t k = i;

            for (; k >= gap && is_before(&x, &m[k - gap], depth); k -= gap)
                m[k] = m[k - gap];
            m[k] = x;
        }
}

/* A node of the tree of what follows: those of the sorted matches that share their next `depth` ids. */
typedef struct spot {
    int32_t first, n, depth, node; /* node: of the draft; -1: none yet */
    float probability;
} spot;

typedef struct growth {
    const rg_suffix_match *m;
    const rg_suffix_limits *limits;
    rg_suffix_draft *draft;
    spot open[2 * RG_SUFFIX_MATCHES]; /* whose ids may yet be drafted */
    int32_t n_open;
    int32_t depth; /* of a path, at most */
} growth;

/* The spots behind one: each id that follows.  A chain has the most frequent alone, of several the lowest. */
static void open_children(growth *g, const spot *s)
{
    spot best = { 0 };

    for (int32_t i = s->first, end; s->depth < g->depth && i < s->first + s->n; i = end) {
        int32_t id = id_after(&g->m[i], s->depth);
        spot child = { .first = i, .depth = s->depth + 1, .node = s->node };

        for (end = i + 1; end < s->first + s->n && id_after(&g->m[end], s->depth) == id; end++)
            ;
        child.n = end - i;
        child.probability = s->probability * (float)child.n / (float)s->n;
        if (id == END || child.probability < g->limits->min_probability)
            continue;
        if (!g->limits->chain && g->n_open < (int32_t)RG_LEN(g->open))
            g->open[g->n_open++] = child;
        else if (child.n > best.n)
            best = child;
    }
    if (g->limits->chain && best.n)
        g->open[g->n_open++] = best;
}

/* The likeliest of the open spots; of several, the one opened first. */
static spot take_likeliest(growth *g)
{
    int32_t at = 0;
    spot s;

    for (int32_t i = 1; i < g->n_open; i++)
        if (g->open[i].probability > g->open[at].probability)
            at = i;
    s = g->open[at];
    memmove(&g->open[at], &g->open[at + 1], (size_t)(--g->n_open - at) * sizeof s);
    return s;
}

/* The draft of matches [0, n), which all agree in `length` ids. */
static void grow(const rg_suffix_match *m, int32_t n, int32_t length, const rg_suffix_limits *limits,
                 rg_suffix_draft *draft)
{
    int32_t most = (int32_t)((float)length * limits->factor + limits->offset + 1e-6f);
    growth g = { .m = m, .limits = limits, .draft = draft, .depth = limits->max_length - length };

    most = most < limits->most ? most : limits->most;
    draft->n = 0;
    draft->score = 0;
    draft->length = length;
    open_children(&g, &(spot){ .n = n, .node = -1, .probability = 1 });
    while (g.n_open && draft->n < most) {
        spot s = take_likeliest(&g);

        draft->id[draft->n] = id_after(&m[s.first], s.depth - 1);
        draft->parent[draft->n] = s.node;
        draft->probability[draft->n] = s.probability;
        draft->score += s.probability;
        s.node = draft->n++;
        open_children(&g, &s);
    }
}

void rg_suffix_draft_best(rg_suffix_match *matches, int32_t n, const rg_suffix_limits *limits, rg_suffix_draft *best)
{
    rg_suffix_match agree[RG_SUFFIX_MATCHES];
    rg_suffix_draft draft;
    int32_t n_agree;

    best->n = 0;
    best->score = 0;
    best->length = 0;
    RG_ASSERT(n <= RG_SUFFIX_MATCHES && limits->most <= RG_MAX_DRAFT);
    sort(matches, n, limits->most);
    for (int32_t length = 1;; length++) {
        n_agree = 0;
        for (int32_t i = 0; i < n; i++)
            if (matches[i].length >= length)
                agree[n_agree++] = matches[i];
        if (!n_agree)
            return;
        grow(agree, n_agree, length, limits, &draft);
        if (draft.score >= best->score)
            *best = draft;
    }
}

/* ---- the drafter ------------------------------------------------------------------------------------------------- */

enum {
    MAX_DRAFT = 16,
    MAX_LENGTH = 64,       /* of match and draft */
    LANE_IDS = 1 << 13,    /* of an answer and its prompt, the latest */
    KEPT_IDS = 1 << 17,    /* of finished answers */
};

static const float MIN_PROBABILITY = 0.1f;

extern const rg_draft_kind rg_draft_suffix;

typedef struct own_text {
    rg_suffix_index *index;
    int32_t n; /* ids that are in the index */
} own_text;

typedef struct suffix {
    rg_drafter d;             /* first */
    rg_suffix_index *finished;
    own_text *lanes;          /* [n_lanes] */
    int32_t n_lanes;
    rg_suffix_match matches[RG_SUFFIX_MATCHES];
} suffix;

static void begin(rg_drafter *d, int32_t lane)
{
    suffix *s = (suffix *)d;

    rg_suffix_index_clear(s->lanes[lane].index);
    s->lanes[lane].n = 0;
}

static void propose_one(suffix *s, const rg_draft_ask *a)
{
    own_text *l = &s->lanes[a->lane];
    uint64_t scope = rg_draft_scope(a->request);
    rg_suffix_limits limits = { .max_length = MAX_LENGTH, .most = a->most, .factor = 1,
                                .min_probability = MIN_PROBABILITY, .chain = a->chain };
    rg_suffix_draft draft;
    int32_t n;

    if (a->n_ids - l->n > LANE_IDS)
        l->n = a->n_ids - LANE_IDS;
    for (; l->n < a->n_ids; l->n++)
        rg_suffix_index_add(l->index, a->ids[l->n], 0);
    n = rg_suffix_find(l->index, 0, a->ids, a->n_ids, MAX_LENGTH, s->matches, RG_SUFFIX_MATCHES / 2);
    n += rg_suffix_find(s->finished, scope, a->ids, a->n_ids, MAX_LENGTH, s->matches + n, RG_SUFFIX_MATCHES / 2);
    rg_suffix_draft_best(s->matches, n, &limits, &draft);
    for (int32_t i = 0; i < draft.n; i++)
        rg_draft_add(a->draft, draft.parent[i], draft.id[i]);
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        propose_one((suffix *)d, &asks[i]);
    return true;
}

static void end(rg_drafter *d, int32_t lane, const int32_t *ids, int32_t n_ids, uint64_t scope)
{
    suffix *s = (suffix *)d;

    for (int32_t i = n_ids > KEPT_IDS / 4 ? n_ids - KEPT_IDS / 4 : 0; i < n_ids; i++)
        rg_suffix_index_add(s->finished, ids[i], scope);
    rg_suffix_index_add(s->finished, END, scope);
    begin(d, lane);
}

static void close_it(rg_drafter *d)
{
    suffix *s = (suffix *)d;

    for (int32_t i = 0; s->lanes && i < s->n_lanes; i++)
        rg_suffix_index_free(s->lanes[i].index);
    rg_suffix_index_free(s->finished);
    rg_free(s->lanes);
    rg_free(s);
}

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    suffix *s = rg_zalloc(sizeof *s);
    int32_t lane_ids = o->max_seq_len < LANE_IDS ? o->max_seq_len : LANE_IDS;

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->d = (rg_drafter){ .kind = &rg_draft_suffix, .depth = o->max_draft, .propose = propose, .begin = begin,
                         .end = end, .close = close_it };
    s->n_lanes = o->n_lanes;
    s->lanes = rg_array((size_t)o->n_lanes, sizeof *s->lanes);
    if (!s->lanes) {
        rg_fail_memory(err, (size_t)o->n_lanes * sizeof *s->lanes);
        goto fail;
    }
    memset(s->lanes, 0, (size_t)o->n_lanes * sizeof *s->lanes);
    s->finished = rg_suffix_index_new(KEPT_IDS, err);
    if (!s->finished)
        goto fail;
    for (int32_t i = 0; i < o->n_lanes; i++) {
        s->lanes[i].index = rg_suffix_index_new(lane_ids, err);
        if (!s->lanes[i].index)
            goto fail;
    }
    return &s->d;

fail:
    close_it(&s->d);
    return NULL;
}

const rg_draft_kind rg_draft_suffix = { .name = "suffix", .max_draft = MAX_DRAFT, .open = open_it };
