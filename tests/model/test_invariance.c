/* The promise: a row's logits do not depend on what else is in the batch, how the prompt was cut, whether its prefix was
 * cached, its state swapped, shared, recomputed or drafted, nor on threads or instruction set.
 *
 * Some texts share prefixes.  Each is computed alone, one row per step: the baseline.  Then sequences live at random
 * (cuts, drafts, trees of drafts, forks, swaps, releases, snapshots), several to a step, and every row whose history is
 * the beginning of a text must have that text's logits, bit for bit.  Rows of other histories are noise: computed,
 * rolled back, and to leave no trace.
 *
 * What gates: of every architecture, with K/V in f32, the edges and one sequence on every instruction set, three sequences
 * where the architecture has a way of its own (OWN and FAR in goldens.def), and those also with weights in integer formats.
 * With RIDGE_TEST_ALL every architecture has, with 1 and with 2 threads,
 *
 *     K/V f32, bf16 and q4, texts of 200 ids: 16 sequences on every instruction set (on the definition, which is slow, 2)
 *     K/V bf16 and q4, texts of 2,300 ids: 1 sequence on every instruction set but the definition
 *
 * and the ones with a way of their own the same with weights in integer formats.  That takes one core a quarter of an hour,
 * so CTest runs it in parts (--part). */
#include "worlds.h"

#include <stdatomic.h>

enum { MAX_TEXTS = 5, MAX_LEN = 2300, MAX_LIVES = 6, MARGIN = RG_MAX_DRAFT + 1, NOISE = -1 };

typedef struct text {
    int32_t *ids;
    float *want; /* [n, vocab] */
} text;

/* A model, and what its texts are to give. */
typedef struct world {
    const char *name;
    test_model model;
    bool exact, llm_int8, chains_only; /* a recurrence has no trees */
    float attention_sparsity;
    int vocab, len, max_rows, n_texts;
    text texts[MAX_TEXTS];
    int cuts[24], n_cuts;    /* places where steps are made to end: edges of blocks, segments, windows */
} world;

/* One sequence that is on its way through a text. */
typedef struct life {
    rg_seq *q;
    int text, end;
    bool publishes;
} life;

/* What a life does in a step. */
typedef struct plan {
    life *l;
    int n, n_sure;                        /* rows, and those of them that are no drafts */
    bool tree;
    int32_t ids[512], parent[RG_MAX_DRAFT];
    int text[512], at[512];               /* of each row: which text it is the beginning of (or NOISE), its position */
    bool unwanted[512];
} plan;

typedef struct run {
    const world *w;
    test_rig rig;
    rg_rng g;
    const char *isa;
    int n_threads;
    bool slow;                            /* shorter lives */
    life lives[MAX_LIVES];
    int n_started, n_done, n_wanted;      /* lives: begun, come to their end, to come to it */
    plan *plans;                          /* [MAX_LIVES] of the step */
    atomic_int bad_feed, bad_row;         /* of the first row that differed; -1 */
    atomic_long n_rows;
} run;

static long n_rows_compared, n_ways, n_trees, n_chains, n_forks, n_swaps, n_matched, n_ends, n_refused;

static int below(run *r, int n)
{
    return (int)rg_rng_below(&r->g, (uint32_t)n);
}

static int min_of(int a, int b)
{
    return a < b ? a : b;
}

/* How many ids two texts begin with in common. */
static int common(const world *w, int a, int b)
{
    int n = 0;

    while (n < w->len && w->texts[a].ids[n] == w->texts[b].ids[n])
        n++;
    return n;
}

/* A text that begins with the first n ids of text t; t itself may be it. */
static int text_like(run *r, int t, int n)
{
    int u = below(r, r->w->n_texts);

    return common(r->w, t, u) >= n ? u : t;
}

/* ---- planning a step --------------------------------------------------------------------------------------------- */

static int next_cut(const world *w, int p)
{
    int best = w->len;

    for (int i = 0; i < w->n_cuts; i++)
        if (w->cuts[i] > p && w->cuts[i] < best)
            best = w->cuts[i];
    return best;
}

static int choose_rows(run *r, int p, int room)
{
    int n;

    switch (below(r, 5)) {
    case 0: n = 1; break;
    case 1: n = 2 + below(r, 7); break;
    case 2: n = 9 + below(r, 62); break;
    case 3: n = (below(r, 2) ? next_cut(r->w, p) : p / RG_BLOCK * RG_BLOCK + RG_BLOCK) - p; break;
    default: n = room; break;
    }
    return min_of(n, min_of(room, r->w->len - p));
}

static void put_row(run *r, plan *p, int row, int t, int at)
{
    bool noise = t == NOISE || at >= r->w->len;

    p->text[row] = noise ? NOISE : t;
    p->at[row] = at;
    p->ids[row] = noise ? below(r, r->w->vocab) : r->w->texts[t].ids[at];
    p->unwanted[row] = noise;
}

/* Drafts one after the other: of a text with the same beginning, and from some place on noise. */
static void plan_chain(run *r, plan *p, int first, int n)
{
    int t = text_like(r, p->l->text, first), good = below(r, 3) ? n : below(r, n + 1);

    for (int i = 0; i < n; i++)
        put_row(r, p, p->n_sure + i, i < good ? t : NOISE, first + i);
    n_chains++;
}

static void plan_tree(run *r, plan *p, int first, int n)
{
    int depth[RG_MAX_DRAFT];

    for (int i = 0; i < n; i++) {
        int up = i && below(r, 3) ? i - 1 - below(r, min_of(i, 3)) : below(r, i + 1) - 1;
        int t = up < 0 ? p->l->text : p->text[p->n_sure + up];

        p->parent[i] = up;
        depth[i] = up < 0 ? 0 : depth[up] + 1;
        if (t != NOISE)
            t = below(r, 4) ? text_like(r, t, first + depth[i]) : NOISE;
        put_row(r, p, p->n_sure + i, t, first + depth[i]);
    }
    p->tree = true;
    n_trees++;
}

/* What it came to can be found again, if it lets others know. */
static void give_up(run *r, life *l)
{
    rg_seq_release(r->rig.states, l->q, l->publishes ? r->w->texts[l->text].ids : NULL);
}

/* room: rows that the step still takes.  False: nothing to do, or no memory for it. */
static bool plan_life(run *r, plan *p, life *l, int room)
{
    int at = l->q->committed, n_draft = 0;

    *p = (plan){ .l = l };
    p->n_sure = choose_rows(r, at, room);
    if (below(r, 5) < 2) {
        n_draft = below(r, 6) ? 1 + below(r, 8) : 1 + below(r, RG_MAX_DRAFT);
        if (below(r, 4) == 0 || p->n_sure > room - 8)
            p->n_sure = min_of(p->n_sure, below(r, 3));
        n_draft = min_of(n_draft, room - p->n_sure);
    }
    p->n = p->n_sure + n_draft;
    if (!p->n)
        return false;
    if (!rg_seq_grow(r->rig.states, l->q, at + p->n)) {
        n_refused++;
        give_up(r, l);
        return false;
    }
    for (int i = 0; i < p->n_sure; i++)
        put_row(r, p, i, l->text, at + i);
    if (n_draft && !r->w->chains_only && below(r, 2))
        plan_tree(r, p, at + p->n_sure, n_draft);
    else if (n_draft)
        plan_chain(r, p, at + p->n_sure, n_draft);
    if (below(r, 8) == 0) /* as a prompt is: only the last row's logits */
        for (int i = 0; i + 1 < p->n; i++)
            p->unwanted[i] = true;
    return true;
}

/* ---- after a step ------------------------------------------------------------------------------------------------ */

static void check_row(void *arg, int feed, int row, float *logits)
{
    run *r = arg;
    const plan *p = &r->plans[feed];
    size_t vocab = (size_t)r->w->vocab;
    int none = -1;

    if (memcmp(logits, r->w->texts[p->text[row]].want + (size_t)p->at[row] * vocab, vocab * sizeof *logits) &&
        atomic_compare_exchange_strong(&r->bad_feed, &none, feed))
        atomic_store(&r->bad_row, row);
    atomic_fetch_add(&r->n_rows, 1);
}

/* Accept some of the drafts: the path to a node, or the first few of a chain, preferring to end at a cut. */
static void resolve(run *r, plan *p)
{
    rg_states *s = r->rig.states;
    life *l = p->l;
    int n_draft = p->n - p->n_sure, pick = below(r, n_draft + 1) - 1, n = 0;
    int32_t slots[RG_MAX_DRAFT];

    for (int i = 0; i < n_draft && below(r, 2); i++)
        if (p->at[p->n_sure + i] + 1 == next_cut(r->w, p->at[p->n_sure + i]))
            pick = i;
    while (pick >= 0 && p->text[p->n_sure + pick] == NOISE)
        pick = p->tree ? p->parent[pick] : pick - 1;
    if (pick >= 0)
        l->text = p->text[p->n_sure + pick];
    for (int i = pick; i >= 0; i = p->tree ? p->parent[i] : i - 1)
        n++;
    for (int i = pick, k = n; i >= 0; i = p->tree ? p->parent[i] : i - 1)
        slots[--k] = l->q->committed + i;
    if (!p->tree && below(r, 3) == 0) /* said in two words */
        rg_seq_rollback(s, l->q, l->q->committed + n + below(r, n_draft - n + 1));
    if (n || below(r, 2))
        rg_seq_commit(s, l->q, n, p->tree ? slots : NULL, l->publishes ? r->w->texts[l->text].ids : NULL);
    else
        rg_seq_rollback(s, l->q, l->q->committed);
}

static void fork_life(run *r, const life *from)
{
    rg_error err = { 0 };

    for (int i = 0; i < MAX_LIVES; i++) {
        life *l = &r->lives[i];
        if (l->q || r->n_started > r->n_wanted + r->n_wanted / 2)
            continue;
        l->q = rg_seq_new(r->rig.states, r->w->len + MARGIN, 0, &err);
        assert_ok(l->q, err);
        assert_true(rg_seq_fork(r->rig.states, from->q, l->q));
        l->text = text_like(r, from->text, from->q->committed);
        l->publishes = from->publishes;
        l->end = from->end;
        r->n_started++;
        n_forks++;
        return;
    }
}

/* Compute the plans in one step, and see that no row differed. */
static void compute(run *r, int n_plans)
{
    test_feed feeds[MAX_LIVES];
    int feed;

    for (int i = 0; i < n_plans; i++) {
        const plan *p = &r->plans[i];
        feeds[i] = (test_feed){ .seq = p->l->q, .ids = p->ids, .n = p->n, .n_draft = p->n - p->n_sure,
                                .parent = p->tree ? p->parent : NULL, .unwanted = p->unwanted };
    }
    atomic_store(&r->bad_feed, -1);
    test_rig_step(&r->rig, feeds, n_plans, check_row, r);
    feed = atomic_load(&r->bad_feed);
    if (feed >= 0) {
        const plan *p = &r->plans[feed];
        int row = atomic_load(&r->bad_row);
        print_error("%s, %s, %s, %d threads, seed %llu: row %d of %d (%d drafts%s) at position %d differs\n", r->w->name,
                    r->w->exact ? "exact" : "fast", r->isa, r->n_threads, (unsigned long long)test_seed, row, p->n,
                    p->n - p->n_sure, p->tree ? ", a tree" : "", p->at[row]);
        fail();
    }
}

static void after_step(run *r, int n_plans)
{
    for (int i = 0; i < n_plans; i++) {
        plan *p = &r->plans[i];
        life *l = p->l;
        const int32_t *ids = l->publishes ? r->w->texts[l->text].ids : NULL;
        rg_seq_advance(r->rig.states, l->q, p->n, p->n - p->n_sure, ids);
        if (below(r, 15) == 0) /* with drafts pending */
            fork_life(r, l);
        if (p->n > p->n_sure)
            resolve(r, p);
        if (l->publishes)
            rg_seq_snapshot(r->rig.states, l->q, r->w->texts[l->text].ids);
        if (l->q->committed >= l->end) {
            give_up(r, l);
            rg_seq_free(r->rig.states, l->q);
            l->q = NULL;
            r->n_done++;
        }
    }
}

/* ---- between steps ----------------------------------------------------------------------------------------------- */

static void begin(run *r, life *l)
{
    int p = rg_seq_match(r->rig.states, l->q, r->w->texts[l->text].ids, r->w->len, NULL);

    assert_true(p < r->w->len);
    n_matched += p > 0;
    n_ends += p % RG_BLOCK > 0;
}

/* Where a life ends: as a rule with its text. */
static int choose_end(run *r)
{
    if (r->slow)
        return min_of(r->w->len, RG_BLOCK + 3 + below(r, 30));
    return below(r, 4) ? r->w->len : 1 + below(r, r->w->len);
}

static void start_life(run *r, life *l)
{
    rg_error err = { 0 };

    l->text = below(r, r->w->n_texts);
    l->publishes = below(r, 4);
    l->end = choose_end(r);
    l->q = rg_seq_new(r->rig.states, r->w->len + MARGIN, r->w->chains_only ? 0 : (uint64_t)below(r, 3), &err);
    assert_ok(l->q, err);
    r->n_started++;
    begin(r, l);
}

static void disturb(run *r, life *l)
{
    rg_states *s = r->rig.states;

    if (l->q->swapped) {
        if (below(r, 3) == 0 && !rg_seq_swap_in(s, l->q)) {
            n_refused++;
            give_up(r, l);
        }
    } else if (below(r, 30) == 0) {
        assert_true(rg_seq_swap_out(s, l->q));
        n_swaps++;
    } else if (below(r, 40) == 0) {
        give_up(r, l);
    }
    if (!l->q->swapped && !l->q->committed && below(r, 2)) {
        give_up(r, l); /* it may have drafted */
        begin(r, l);
    }
    if (!l->q->swapped && below(r, 20) == 0)
        fork_life(r, l);
}

/* One step of a random choice of lives. */
static void live_on(run *r, int n_at_once)
{
    int n = 0, room = r->w->max_rows;

    for (int i = 0; i < MAX_LIVES; i++) {
        life *l = &r->lives[i];
        if (!l->q && i < n_at_once && r->n_started < r->n_wanted)
            start_life(r, l);
        else if (l->q)
            disturb(r, l);
    }
    for (int k = 0, from = below(r, MAX_LIVES); k < MAX_LIVES; k++) {
        life *l = &r->lives[(from + k) % MAX_LIVES];
        plan *p = &r->plans[n];
        if (!l->q || l->q->swapped || below(r, 3) == 0 || !plan_life(r, p, l, below(r, 3) ? room : min_of(room, 12)))
            continue;
        n++;
        room -= p->n;
    }
    if (!n)
        return;
    compute(r, n);
    after_step(r, n);
}

/* ---- to every edge, in order ------------------------------------------------------------------------------------- */

/* n_sure rows of the first text, then n_good drafts of it and n_noise of nothing; the good ones are kept.  As a tree,
 * each draft of the text has a branch of noise before it. */
static void walk(run *r, int n_sure, int n_good, int n_noise, bool tree)
{
    plan *p = r->plans;
    life *l = &r->lives[0];
    int at = l->q->committed, row = 0;
    int32_t slots[RG_MAX_DRAFT];

    *p = (plan){ .l = l, .n_sure = n_sure, .tree = tree };
    for (; row < n_sure; row++)
        put_row(r, p, row, 0, at + row);
    for (int i = 0; i < n_good; i++) {
        int up = i ? slots[i - 1] - at - n_sure : -1;
        if (tree) {
            p->parent[row - n_sure] = up;
            put_row(r, p, row++, NOISE, at + n_sure + i);
        }
        p->parent[row - n_sure] = up;
        slots[i] = at + row;
        put_row(r, p, row++, 0, at + n_sure + i);
    }
    for (int i = 0; i < n_noise; i++) {
        p->parent[row - n_sure] = row - n_sure - 1;
        put_row(r, p, row, NOISE, at + row);
        row++;
    }
    p->n = row;
    assert_true(rg_seq_grow(r->rig.states, l->q, at + row));
    compute(r, 1);
    rg_seq_advance(r->rig.states, l->q, row, row - n_sure, NULL);
    if (row > n_sure)
        rg_seq_commit(r->rig.states, l->q, n_good, tree ? slots : NULL, NULL);
}

static int by_place(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* Steps end just before each edge; drafts cross it and are rolled back to it; once more from it; and so on to the next. */
static void edges(run *r, bool tree)
{
    rg_error err = { 0 };
    life *l = &r->lives[0];
    int cuts[RG_LEN(r->w->cuts)];

    memcpy(cuts, r->w->cuts, sizeof cuts);
    qsort(cuts, (size_t)r->w->n_cuts, sizeof cuts[0], by_place);
    l->q = rg_seq_new(r->rig.states, r->w->len + MARGIN, 0, &err);
    assert_ok(l->q, err);
    for (int i = 0; i < r->w->n_cuts; i++) {
        int left;
        while ((left = cuts[i] - l->q->committed) > 3)
            walk(r, min_of(left - 3, r->w->max_rows), 0, 0, false);
        if (left > 0)
            walk(r, 1, left - 1, 5, tree);
        assert_true(l->q->committed >= cuts[i]);
        walk(r, 0, 0, 4, false);
    }
    walk(r, 1, 6, 3, tree);
    rg_seq_free(r->rig.states, l->q);
    l->q = NULL;
    n_ways++;
}

/* Trees whose accepted path begins three positions before the end of each block and goes on behind it. */
static void crossings(run *r)
{
    rg_error err = { 0 };
    life *l = &r->lives[0];

    l->q = rg_seq_new(r->rig.states, r->w->len + MARGIN, 0, &err);
    assert_ok(l->q, err);
    for (int end = RG_BLOCK; end + 9 < r->w->len; end += RG_BLOCK) {
        while (end - l->q->committed > 3)
            walk(r, min_of(end - 3 - l->q->committed, r->w->max_rows), 0, 0, false);
        walk(r, 1, 6, 3, true);
        assert_true(l->q->committed > end);
        walk(r, 5, 0, 0, false);
    }
    rg_seq_free(r->rig.states, l->q);
    l->q = NULL;
    n_ways++;
}

/* Memory for fewer sequences than will live, so that blocks are evicted and taken dirty: of the groups that grow, what
 * two and a half need; of the others, what the runner wants at least. */
static size_t tight_memory(const world *w)
{
    const rg_state_spec *s = &w->model.m->state;
    size_t bytes = 0, grows = (size_t)(w->len + MARGIN) * 5 / 2 / RG_BLOCK + 3;

    for (int g = 0; g < s->n_groups; g++) {
        size_t each = (size_t)rg_kept_blocks(&s->group[g].kept, w->len, w->max_rows) + 2;
        bool fixed = !rg_group_grows(&s->group[g]);
        bytes += (s->group[g].block_bytes + RG_BLOCK_BOOKKEEPING) * (fixed ? 2 * each + 2 : grows);
    }
    return bytes + (size_t)(w->len + MARGIN + RG_BLOCK) * 4 * sizeof(int32_t); /* ids or tables of four sequences */
}

static void ways(const world *w, const rg_backend *backend, int n_threads, int n)
{
    run *r = calloc(1, sizeof *r);

    *r = (run){ .w = w,
                .isa = backend->name,
                .n_threads = n_threads,
                .n_wanted = n,
                .slow = test_is_slow(backend),
                .plans = calloc(MAX_LIVES, sizeof(plan)),
                .g = { .seed = test_seed * 1000003 + (uint64_t)n_threads * 31 + (uint64_t)backend->name[3] +
                               strlen(backend->name) } };
    test_rig_open(&r->rig, &w->model, &(test_rig_options){ .backend = backend, .n_threads = n_threads, .exact = w->exact,
                  .llm_int8 = w->llm_int8, .attention_sparsity = w->attention_sparsity,
                  .max_rows = w->max_rows, .max_seqs = w->chains_only ? 4 : 1, .max_len = w->len + MARGIN, .prefixes = true,
                  .state_bytes = tight_memory(w) });
    if (!r->slow || n_threads == 2)
        edges(r, !w->chains_only);
    if (!r->slow && !w->chains_only)
        edges(r, false);
    if (w->model.m->kv_type == RG_Q4_1 && !w->chains_only)
        crossings(r);
    for (long step = 0; r->n_done < n; step++) {
        assert_true(step < 1000000);
        live_on(r, 1 + below(r, MAX_LIVES - 1));
        if (step % 16 == 0)
            rg_states_check(r->rig.states);
    }
    n_ways += r->n_done;
    n_rows_compared += r->n_rows;
    for (int i = 0; i < MAX_LIVES; i++)
        rg_seq_free(r->rig.states, r->lives[i].q);
    rg_states_check(r->rig.states);
    test_rig_close(&r->rig);
    free(r->plans);
    free(r);
}

/* ---- worlds ------------------------------------------------------------------------------------------------------ */

static void take_row(void *arg, int feed, int row, float *logits)
{
    const world *w = ((void **)arg)[0];
    float *to = ((void **)arg)[1];

    (void)feed, (void)row;
    memcpy(to, logits, (size_t)w->vocab * sizeof *to);
}

/* Alone, one row per step, one thread. */
static void baseline(world *w, text *t)
{
    test_rig rig;
    rg_error err = { 0 };

    test_rig_open(&rig, &w->model, &(test_rig_options){ .backend = rg_backend_find("auto", NULL), .n_threads = 1, .exact = w->exact,
                                                        .llm_int8 = w->llm_int8,
                                                        .attention_sparsity = w->attention_sparsity,
                                                        .max_rows = 1, .max_seqs = 1, .max_len = w->len });
    rg_seq *q = rg_seq_new(rig.states, w->len, 0, &err);
    assert_ok(q, err);
    t->want = malloc((size_t)w->len * (size_t)w->vocab * sizeof *t->want);
    for (int i = 0; i < w->len; i++) {
        void *arg[2] = { w, t->want + (size_t)i * (size_t)w->vocab };
        assert_true(rg_seq_grow(rig.states, q, i + 1));
        test_rig_step(&rig, &(test_feed){ .seq = q, .ids = &t->ids[i], .n = 1 }, 1, take_row, arg);
        rg_seq_advance(rig.states, q, 1, 0, NULL);
    }
    rg_seq_free(rig.states, q);
    test_rig_close(&rig);
}

static void add_cut(world *w, int p)
{
    if (p > 0 && p < w->len && w->n_cuts < (int)RG_LEN(w->cuts))
        w->cuts[w->n_cuts++] = p;
}

static void make_cuts(world *w)
{
    static const int edges[] = { 64, 1024, 2048, 128 };
    const rg_state_spec *s = &w->model.m->state;

    for (size_t i = 0; i < RG_LEN(edges); i++)
        for (int d = -1; d <= 1; d++)
            add_cut(w, edges[i] + d);
    for (int g = 0; g < s->n_groups; g++)
        for (int d = -1; d <= 1 && s->group[g].kept.window; d++) {
            add_cut(w, s->group[g].kept.window + d);
            add_cut(w, 64 + s->group[g].kept.window + d); /* where the window lets go of the first block */
        }
}

/* Text k leaves another at a place of its own, often near a cut. */
static void make_texts(world *w, rg_rng *g)
{
    for (int k = 0; k < w->n_texts; k++) {
        text *t = &w->texts[k];
        int same = 0;

        t->ids = malloc((size_t)w->len * sizeof *t->ids);
        for (int i = 0; i < w->len; i++)
            t->ids[i] = (int32_t)rg_rng_below(g, (uint32_t)w->vocab);
        if (k && rg_rng_below(g, 2))
            same = (int)rg_rng_below(g, (uint32_t)w->len);
        else if (k)
            same = w->cuts[rg_rng_below(g, (uint32_t)w->n_cuts)];
        if (k)
            memcpy(t->ids, w->texts[rg_rng_below(g, (uint32_t)k)].ids, (size_t)same * sizeof *t->ids);
        baseline(w, t);
    }
}

enum { SHORT = 200, LONG = MAX_LEN, N_SHORT = 16, N_LONG = 1, N_GATE = 3, N_PARTS = 1 };

/* On the best instruction set two threads gate, since the baseline has one; on the others short texts: of models that are
 * made of others' parts with one thread, which is soon done. */
static bool gates(int nth_backend, int n_threads, int len, int n)
{
    if (test_all())
        return true;
    if (!test_backend(nth_backend + 1))
        return n_threads == 2;
    return len < LONG && n_threads == (n > N_PARTS ? 2 : 1);
}

/* How long texts of n ids can be: where positions are a learned table, drafts behind a text's end need room in it, too. */
static int room_for(const rg_model *m, int n)
{
    for (int i = 0; i < m->weights.n; i++)
        if (m->weights.spec[i]->role == W_EMBED_POSITIONS)
            return min_of(n, (int)m->weights.all[i].rows - MARGIN);
    return n;
}

/* path: of a model; kv: its K/V type.  len: of the texts.  n: ways on each fast instruction set and number of threads. */
static void world_of(const char *name, const char *path, const char *kv, bool exact, int len, int n)
{
    world w = { .name = name, .exact = exact, .llm_int8 = !strcmp(name, "llm.int8"),
                .attention_sparsity = strcmp(name, "attention-sparsity") ? 0.0f : 0.9f,
                .len = len, .max_rows = len > 400 ? 300 : 96,
                .n_texts = len > 400 ? 2 : n > N_PARTS ? MAX_TEXTS : 3 };
    rg_rng g = { .seed = test_seed };

    if (len > 400 && test_is_slow(rg_backend_find("auto", NULL))) /* no way would be tried */
        return;
    test_model_open(&w.model, path, kv);
    w.len = room_for(w.model.m, len);
    if (w.len < len / 2) {
        test_model_close(&w.model);
        return;
    }
    w.vocab = w.model.m->config.vocab_size;
    for (int i = 0; i < w.model.m->state.n_groups; i++)
        w.chains_only |= w.model.m->state.group[i].per == RG_PER_SEQUENCE;
    make_cuts(&w);
    make_texts(&w, &g);
    for (int i = 0; test_backend(i); i++)
        for (int threads = 1; threads <= 2; threads++) {
            if (!gates(i, threads, len, n))
                continue;
            if (!test_is_slow(test_backend(i)))
                ways(&w, test_backend(i), threads, test_scale(n));
            else if (len < 400 && test_scale(2) > 1) /* none where cases are saved */
                ways(&w, test_backend(i), threads,
                     test_scale(!test_backend(i + 1) ? (test_all() ? 1 : 4) * n : w.vocab < 100 || !test_all() ? 1 : 2));
        }
    for (int i = 0; i < w.n_texts; i++) {
        free(w.texts[i].ids);
        free(w.texts[i].want);
    }
    test_model_close(&w.model);
}

static int n_short(void)
{
    return test_all() ? N_SHORT : N_GATE;
}

/* gate: ways where not all are tried. */
static void golden_world(const char *name, const char *path, int gate)
{
    world_of(name, path, "f32", true, SHORT, test_all() ? N_SHORT : gate);
    if (!test_all())
        return;
    world_of(name, path, "bf16", true, SHORT, N_SHORT);
    world_of(name, path, "bf16", true, LONG, N_LONG);
    world_of(name, path, "q4", true, SHORT, N_SHORT);
    world_of(name, path, "q4", true, LONG, N_LONG);
}

static void fast_world(const char *name, const char *path, bool far)
{
    world_of(name, path, "q8", false, SHORT, n_short());
    if ((far && TEST_SLOWER == 1) || test_all())
        world_of(name, path, "q8", false, LONG, N_LONG);
    if (test_all())
        world_of(name, path, "f32", false, SHORT, N_SHORT);
}

/* An architecture in which places far apart are kept or read in a way of its own: all of its worlds; */
static void world_FAR(const char *name)
{
    golden_world(name, test_data(name), N_GATE);
    fast_world(name, world_quantized(name, 0), true);
}

/* one with another way of its own; */
static void world_OWN(const char *name)
{
    golden_world(name, test_data(name), N_GATE);
    fast_world(name, world_quantized(name, 0), false);
}

/* and one whose blocks are made of the same parts as others'. */
static void world_PARTS(const char *name)
{
    golden_world(name, test_data(name), N_PARTS);
}

#define GOLDEN(test, folder, worlds)                                                                                             \
    static void test(void **state)                                                                                               \
    {                                                                                                                            \
        (void)state;                                                                                                             \
        world_##worlds(folder);                                                                                                  \
    }
#define WHOLE(test, folder)
#define ENCODER(test, folder)
#include "goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER

static void f16_keys(void **state)
{
    (void)state;
    world_of("llama", test_data("llama"), "f16", true, SHORT, n_short());
}

/* Blocks that are read in one form by their own rows and in another by later ones. */
static void q4_keys(void **state)
{
    (void)state;
    world_of("gemma3", test_data("gemma3"), "q4", true, SHORT, n_short());
}

static void gemma3_window_100(void **state)
{
    (void)state;
    golden_world("gemma3-100", test_variant("gemma3-100", "gemma3", "config.json", "\"sliding_window\": 12",
                                            "\"sliding_window\": 100"), N_PARTS);
    if (test_all())
        fast_world("gemma3-100", world_quantized("gemma3", 100), true);
}

static int n_wide(bool exact)
{
    return test_all() ? N_SHORT / 2 : exact ? N_PARTS : N_PARTS + 1;
}

static void wide_k_formats(void **state)
{
    (void)state;
    world_of("wide", world_wide(false), "f32", false, SHORT, n_wide(false));
    world_of("wide", world_wide(false), "bf16", true, SHORT, n_wide(true));
}

static void wide_experts(void **state)
{
    (void)state;
    world_of("wide-moe", world_wide(true), "bf16", false, SHORT, n_wide(false));
    world_of("wide-moe", world_wide(true), "f32", true, SHORT, n_wide(true));
}

/* Columns in another order: the rows that GPTQ left so, and experts' rows. */
static void act_order(void **state)
{
    const char *experts = world_act_order("mixtral");

    (void)state;
    world_of("act-order", test_data("quantized/gptq-4bit-g32-act"), "f32", false, SHORT, n_wide(false));
    world_of("act-order-moe", experts, "f32", false, SHORT, n_wide(false));
    world_of("act-order-mla", world_act_order("deepseek-v2"), "f32", false, SHORT, n_wide(false));
    if (test_all())
        world_of("act-order-moe", experts, "f32", true, SHORT, n_wide(true));
}

/* Outliers of rows, of experts' rows too. */
static void llm_int8(void **state)
{
    (void)state;
    world_of("llm.int8", world_wide(true), "f32", false, SHORT, n_wide(true));
}

/* Of random models, whose weights are nearly alike, a threshold of 0.9 leaves out many blocks; of a long text by what the
 * first block has, in segments. */
static void attention_sparsity(void **state)
{
    (void)state;
    world_of("attention-sparsity", test_data("llama"), "bf16", true, SHORT, n_wide(true));
    world_of("attention-sparsity", test_data("gemma3"), "q8", true, SHORT, n_wide(true));
    world_of("attention-sparsity", test_data("deepseek-v2"), "q4", true, SHORT, n_wide(true));
    world_of("attention-sparsity", test_data("llama"), "f32", true, LONG, N_PARTS);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define GOLDEN(test, folder, worlds) cmocka_unit_test(test),
#define WHOLE(test, folder)
#define ENCODER(test, folder)
#include "goldens.def"
#undef GOLDEN
#undef WHOLE
#undef ENCODER
        cmocka_unit_test(f16_keys),
        cmocka_unit_test(q4_keys),
        cmocka_unit_test(gemma3_window_100),
        cmocka_unit_test(wide_k_formats),
        cmocka_unit_test(wide_experts),
        cmocka_unit_test(act_order),
        cmocka_unit_test(llm_int8),
        cmocka_unit_test(attention_sparsity),
    };

    test_init(argc, argv);
    int status = test_run_part(tests, RG_LEN(tests));
    printf("%ld ways, %ld rows equal; %ld trees, %ld chains, %ld forks, %ld swaps, %ld prefixes found, %ld of them within "
           "a block, %ld times no room\n",
           n_ways, n_rows_compared, n_trees, n_chains, n_forks, n_swaps, n_matched, n_ends, n_refused);
    return status;
}
