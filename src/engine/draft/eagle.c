/* eagle.c -- drafters that go on from the model's features with a layer of their own: EAGLE, EAGLE-2 and EAGLE-3 (Li et
 * al. 2024, 2025), and modules for further tokens (mtp.c).
 *
 * A row of the network is a feature of the model and the id after it.  The rows that the model has computed are
 * computed here once, right after its step, and kept; a draft goes on from the last of them, each of its rows with what
 * the network made of the row before in place of a feature, and nothing of it is kept.  Drafts are EAGLE-2's trees, or
 * chains.
 *
 * What is approximate, and costs accepted ids alone: rows without features (a prompt's cached beginning, an answer that
 * was swapped out) do not exist here, so that a sequence begins at the first row that was seen, and begins anew behind
 * a gap; likewise where it would become longer than the network's context. */
#include "engine/draft/eagle.h"

#include <string.h>

#include "base/mem.h"
#include "engine/draft/dynamic_tree.h"
#include "engine/member.h"

enum { NODES = 12, CHAIN_NODES = 5 }; /* drafts of at most CHAIN_NODES are chains */

extern const rg_draft_kind rg_draft_eagle;

typedef struct lane {
    rg_seq *seq;
    int32_t base;                  /* the answer's position where the sequence begins */
    int32_t n_best;                /* what may follow the last row; 0: not known */
    rg_guess best[RG_TREE_WIDTH];
    float *hidden;                 /* [dim] what the network made of it */
    int32_t done;                  /* of the rows seen last, those that are through */
} lane;

/* A draft that is being made. */
typedef struct making {
    const rg_draft_ask *ask;
    rg_dynamic_tree tree;
    rg_draft_tree rows;            /* the nodes that were opened */
    int32_t row_of[RG_TREE_NODES]; /* of a node of the tree, its row; -1: it was never open */
    rg_guess best[RG_TREE_WIDTH][RG_TREE_WIDTH]; /* of the rows of this level */
    int32_t n_best[RG_TREE_WIDTH];
    float *hidden;                 /* [RG_MAX_DRAFT][dim] of all rows */
} making;

typedef struct eagle {
    rg_drafter d; /* first */
    rg_member member;
    const int32_t *target_ids;     /* as in rg_model; borrowed */
    int32_t vocab_size;            /* of the model that is drafted for */
    int32_t dim, cols, width, n_lanes;
    int32_t max_seq_len;           /* of an answer */
    int32_t context;               /* positions of a sequence, at most; drafts find room behind them */
    bool own_noise;
    lane *lanes;                   /* [n_lanes] */
    float *features;               /* [max_rows][cols] */
    float *wide;                   /* [n_threads][vocab_size] logits, where the network has ids of its own; NULL */
    /* While rows that the target computed are read: */
    const rg_draft_seen *seen;     /* [n_seen] that may have rows to compute */
    int32_t n_seen;
    const rg_draft_seen **at;      /* [n_lanes] whose span is which */
    /* While drafts are made: */
    const rg_draft_ask *asks;      /* [n_asks] answers; the drafts of the first n_begun were begun */
    int32_t n_asks, n_begun;
    int32_t n_making, max_making;
    making *making;                /* [max_making] n_making, all at the same depth */
    int32_t depth;
} eagle;

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* Logits of the model's ids. */
static float *widen(const eagle *e, int thread, float *logits)
{
    const int32_t own = e->member.runner->vocab_size;
    float *to;

    if (!e->wide)
        return logits;
    to = e->wide + (size_t)thread * (size_t)e->vocab_size;
    for (int32_t i = 0; i < e->vocab_size; i++)
        to[i] = -__builtin_inff();
    for (int32_t i = 0; i < own; i++)
        to[e->target_ids ? e->target_ids[i] : i] = logits[i];
    return to;
}

static int32_t guess(const eagle *e, int thread, const rg_draw_place *place, float *logits, rg_guess *best)
{
    return rg_draw_best(e->member.scratch, thread, place, e->own_noise, widen(e, thread, logits), e->width, best);
}

/* The rows that are laid out begin with features, `cols` of each. */
static bool is_laid_out(eagle *e, int32_t cols)
{
    e->member.rows.batch.features = e->features;
    e->member.rows.batch.feature_cols = cols;
    return e->member.rows.batch.n_spans > 0;
}

/* ---- rows of the model ------------------------------------------------------------------------------------------- */

static void forget(rg_drafter *d, int32_t n)
{
    lane *l = &((eagle *)d)->lanes[n];

    rg_seq_release(((eagle *)d)->member.states, l->seq, NULL);
    l->n_best = 0;
}

static void end(rg_drafter *d, int32_t n, const int32_t *ids, int32_t n_ids, uint64_t scope)
{
    (void)ids, (void)n_ids, (void)scope;
    forget(d, n);
}

static void seen_logits(void *arg, int thread, int i, float *logits)
{
    eagle *e = arg;
    const rg_draft_seen *s = e->at[e->member.rows.wanted[i].span];
    rg_draw_place place = { .request = s->request, .sample = s->sample, .guess = true };
    lane *l = &e->lanes[s->lane];

    l->n_best = guess(e, thread, &place, logits, l->best);
}

static void seen_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    eagle *e = arg;

    (void)thread, (void)stride;
    memcpy(e->lanes[e->at[e->member.rows.hidden_of[i]]->lane].hidden, rows, (size_t)e->dim * sizeof *rows);
}

/* Where the features of the k-th row seen are. */
static const float *features_of(const eagle *e, const rg_draft_seen *s, int32_t k)
{
    return rg_tap_row(e->d.tap, s->first_row + (k < s->n_rows ? k : s->n_rows + s->path[k - s->n_rows]));
}

/* Begin anew if there is a gap before the rows, or no room behind them; leave out those that are known. */
static void join(eagle *e, const rg_draft_seen *s)
{
    lane *l = &e->lanes[s->lane];
    int32_t n = s->n_rows + s->n_path, next = l->base + l->seq->length;

    if (!l->seq->length || s->start > next || s->start + n < next) {
        rg_seq_release(e->member.states, l->seq, NULL);
        l->base = next = s->start;
    }
    if (s->start + n - l->base > e->context) { /* keep what fits of the latest half of a context */
        int32_t from = s->start + n - e->context / 2;

        rg_seq_release(e->member.states, l->seq, NULL);
        l->base = next = from > s->start ? from : s->start;
    }
    l->done = next - s->start;
    l->n_best = l->done < n ? 0 : l->n_best;
}

/* A span of rows that were seen, at most `left` of them.  Their number. */
static int32_t add_seen(eagle *e, const rg_draft_seen *s, int32_t left)
{
    lane *l = &e->lanes[s->lane];
    int32_t n = s->n_rows + s->n_path - l->done, first = e->member.rows.batch.n_rows;
    bool all = n <= left;

    n = all ? n : left;
    if (n < 1)
        return 0;
    if (!rg_seq_grow(e->member.states, l->seq, l->seq->length + n)) {
        forget(&e->d, s->lane); /* others need the room; it begins anew when it can */
        l->done = s->n_rows + s->n_path;
        return 0;
    }
    for (int32_t k = 0; k < n; k++)
        memcpy(e->features + (size_t)(first + k) * (size_t)e->cols, features_of(e, s, l->done + k),
               (size_t)e->cols * sizeof *e->features);
    e->at[e->member.rows.batch.n_spans] = s;
    rg_step_batch_add(&e->member.rows, e->member.states, l->seq, s->ids + l->base + 1, n, NULL);
    if (all && s->ends && rg_draw_prepare(e->member.scratch, &s->request->samples[s->sample])) {
        rg_step_batch_want_last(&e->member.rows);
        rg_step_batch_want_hidden(&e->member.rows, (rg_rows){ n - 1, 1 });
    }
    l->done += n;
    return n;
}

static void seen(rg_drafter *d, const rg_draft_seen *all, int32_t n)
{
    eagle *e = (eagle *)d;

    e->seen = all;
    e->n_seen = n;
    for (int32_t i = 0; i < n; i++)
        join(e, &all[i]);
}

static bool lay_out_seen(eagle *e)
{
    int32_t left = e->member.rows.max_rows;

    for (int32_t i = 0; i < e->n_seen; i++)
        left -= add_seen(e, &e->seen[i], left);
    return is_laid_out(e, e->cols);
}

static void take_seen(eagle *e)
{
    for (int i = 0; i < e->member.rows.batch.n_spans; i++)
        rg_seq_advance(e->member.states, e->lanes[e->at[i]->lane].seq, e->member.rows.spans[i].n_rows, 0, NULL);
}

/* ---- drafts ------------------------------------------------------------------------------------------------------ */

/* The draft that a wanted row of this level belongs to; *open: the number of its open node. */
static making *making_of(eagle *e, int32_t row, int32_t *open)
{
    int32_t k = 0;

    while (row >= e->member.rows.spans[k].first_row + e->member.rows.spans[k].n_rows)
        k++;
    *open = row - e->member.rows.spans[k].first_row;
    for (making *m = e->making;; m++) /* the k-th that has a span */
        if (m->tree.n_open && k-- == 0)
            return m;
}

static void draft_logits(void *arg, int thread, int i, float *logits)
{
    eagle *e = arg;
    int32_t open, path[RG_MAX_DRAFT];
    making *m = making_of(e, e->member.rows.logit_rows[i], &open);
    const int32_t row = m->row_of[m->tree.open[open]];
    rg_draw_place place = { .request = m->ask->request, .sample = m->ask->sample, .draft = path,
                            .n_draft = rg_draft_path(&m->rows, row, path), .guess = true };

    for (int32_t k = 0; k < place.n_draft; k++)
        path[k] = m->rows.id[path[k]];
    m->n_best[open] = guess(e, thread, &place, logits, m->best[open]);
}

static void draft_hidden(void *arg, int thread, int i, const float *rows, size_t stride)
{
    eagle *e = arg;
    int32_t open;
    making *m = making_of(e, e->member.rows.hidden[i].first, &open);

    (void)thread;
    for (int32_t k = 0; k < e->member.rows.hidden[i].n; k++)
        memcpy(m->hidden + (size_t)m->row_of[m->tree.open[k]] * (size_t)e->dim, rows + (size_t)k * stride,
               (size_t)e->dim * sizeof *rows);
}

/* The open nodes of a draft, as rows.  Where there is no room for them the draft is as it is. */
static void add_open(eagle *e, making *m)
{
    const lane *l = &e->lanes[m->ask->lane];
    const int32_t from = m->rows.n, first = e->member.rows.batch.n_rows;

    const int32_t upto = l->seq->length + from + m->tree.n_open;

    if (upto > e->member.runner->max_seq_len || !rg_seq_grow(e->member.states, l->seq, upto)) {
        m->tree.n_open = 0;
        return;
    }
    for (int32_t k = 0; k < m->tree.n_open; k++) {
        const int32_t node = m->tree.open[k], parent = m->tree.parent[node];
        const int32_t before = parent >= 0 ? m->row_of[parent] : -1;

        m->row_of[node] = rg_draft_add(&m->rows, before, m->tree.id[node]);
        memcpy(e->features + (size_t)(first + k) * (size_t)e->dim,
               before >= 0 ? m->hidden + (size_t)before * (size_t)e->dim : l->hidden,
               (size_t)e->dim * sizeof *e->features);
    }
    rg_step_batch_add_nodes(&e->member.rows, e->member.states, l->seq, &m->rows, from);
    rg_step_batch_want_prompt(&e->member.rows, 0, m->tree.n_open);
    rg_step_batch_want_hidden(&e->member.rows, (rg_rows){ 0, m->tree.n_open });
}

/* One level more of every draft that is not deep enough.  False: none is. */
static bool lay_out_level(eagle *e)
{
    for (int32_t i = 0; i < e->n_making; i++) {
        making *m = &e->making[i];

        if (m->ask->depth <= e->depth || m->rows.n + m->tree.n_open > RG_MAX_DRAFT)
            m->tree.n_open = 0;
        if (m->tree.n_open)
            add_open(e, m);
    }
    return is_laid_out(e, e->dim);
}

static void take_level(eagle *e)
{
    e->depth++;
    for (int32_t i = 0; i < e->n_making; i++) {
        making *m = &e->making[i];
        const int32_t n_open = m->tree.n_open;

        for (int32_t k = 0; k < n_open; k++)
            rg_dynamic_tree_follow(&m->tree, k, m->best[k], m->n_best[k]);
        if (n_open)
            rg_dynamic_tree_open(&m->tree);
    }
}

static void begin_draft(eagle *e, const rg_draft_ask *a)
{
    const lane *l = &e->lanes[a->lane];
    making *m = &e->making[e->n_making];
    int32_t width = a->chain || a->most <= CHAIN_NODES ? 1 : e->width;

    if (!l->n_best || l->base + l->seq->length != a->n_ids - 1)
        return;
    e->n_making++;
    m->ask = a;
    m->rows.n = 0;
    rg_dynamic_tree_begin(&m->tree, width < a->most ? width : a->most, l->best, l->n_best);
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    eagle *e = (eagle *)d;

    e->asks = asks;
    e->n_asks = n;
    e->n_begun = 0;
    return true;
}

/* The next drafts, as many as are made at once.  False: there are none left. */
static bool begin_drafts(eagle *e)
{
    e->depth = 1;
    while (e->n_begun < e->n_asks && e->n_making < e->max_making)
        begin_draft(e, &e->asks[e->n_begun++]);
    return e->n_making > 0;
}

static void end_drafts(eagle *e)
{
    for (int32_t k = 0; k < e->n_making; k++)
        rg_dynamic_tree_draft(&e->making[k].tree, e->making[k].ask->most, e->making[k].ask->draft, NULL);
    e->n_making = 0;
}

/* Rows that were seen come first: drafts go on from them. */
static bool lay_out(rg_drafter *d, rg_sink *sink)
{
    eagle *e = (eagle *)d;

    rg_step_batch_begin(&e->member.rows);
    *sink = (rg_sink){ .logits = seen_logits, .hidden = seen_hidden, .arg = e };
    if (lay_out_seen(e))
        return true;
    e->n_seen = 0;
    *sink = (rg_sink){ .logits = draft_logits, .hidden = draft_hidden, .arg = e };
    while (e->n_making || begin_drafts(e)) {
        if (lay_out_level(e))
            return true;
        end_drafts(e);
    }
    e->n_asks = e->n_begun = 0;
    return false;
}

static void take(rg_drafter *d)
{
    eagle *e = (eagle *)d;

    if (e->n_seen)
        take_seen(e);
    else
        take_level(e);
}

static int32_t nodes(const rg_drafter *d, int32_t depth)
{
    const eagle *e = (const eagle *)d;
    int32_t n = e->width == 1 ? depth : depth * e->width;

    return n < e->d.kind->max_draft || e->width == 1 ? n : e->d.kind->max_draft;
}

/* One step with the rows of the model, which gives the first level, and one for every other. */
static double cost_s(const rg_drafter *d, int32_t n, int32_t depth)
{
    const eagle *e = (const eagle *)d;

    return e->member.mean_s * ((n + e->max_making - 1) / e->max_making) * depth;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static void close_it(rg_drafter *d)
{
    eagle *e = (eagle *)d;

    for (int32_t i = 0; e->lanes && i < e->n_lanes; i++) {
        if (e->member.states)
            rg_seq_free(e->member.states, e->lanes[i].seq);
        rg_free(e->lanes[i].hidden);
    }
    for (int32_t i = 0; e->making && i < e->max_making; i++)
        rg_free(e->making[i].hidden);
    rg_free(e->lanes);
    rg_free(e->making);
    rg_member_fini(&e->member);
    rg_free(e->features);
    rg_free(e->wide);
    rg_free(e->at);
    rg_free(e);
}

static bool build_lanes(eagle *e, rg_error *err)
{
    const size_t lanes = (size_t)e->n_lanes, n_making = (size_t)e->max_making;

    e->lanes = rg_array(lanes, sizeof *e->lanes);
    if (e->lanes)
        memset(e->lanes, 0, lanes * sizeof *e->lanes);
    e->making = rg_array(n_making, sizeof *e->making);
    if (e->making)
        memset(e->making, 0, n_making * sizeof *e->making);
    e->at = rg_array(lanes, sizeof *e->at);
    if (!e->lanes || !e->making || !e->at)
        return rg_fail_memory(err, lanes * sizeof *e->lanes + n_making * sizeof *e->making);
    for (size_t i = 0; i < lanes; i++) {
        e->lanes[i].hidden = rg_array((size_t)e->dim, sizeof(float));
        e->lanes[i].seq = rg_seq_new(e->member.states, e->member.runner->max_seq_len, 0, err);
        if (!e->lanes[i].seq)
            return false;
        if (!e->lanes[i].hidden)
            return rg_fail_memory(err, (size_t)e->dim * sizeof(float));
    }
    for (size_t i = 0; i < n_making; i++) {
        e->making[i].hidden = rg_array((size_t)e->dim, RG_MAX_DRAFT * sizeof(float));
        if (!e->making[i].hidden)
            return rg_fail_memory(err, (size_t)e->dim * RG_MAX_DRAFT * sizeof(float));
    }
    return true;
}

static bool build(eagle *e, rg_error *err)
{
    const rg_runner *r = e->member.runner;
    size_t n_features, n_wide = 0;

    if (!rg_mul((size_t)r->max_rows, (size_t)e->cols, &n_features) ||
        !rg_mul((size_t)r->n_threads, (size_t)e->vocab_size, &n_wide))
        return rg_fail_memory(err, SIZE_MAX);
    e->features = rg_array(n_features, sizeof *e->features);
    if (r->vocab_size < e->vocab_size || e->target_ids)
        e->wide = rg_array(n_wide, sizeof *e->wide);
    else
        n_wide = 0;
    if (!e->features || (n_wide && !e->wide))
        return rg_fail_memory(err, (n_features + n_wide) * sizeof *e->features);
    return rg_member_init(&e->member, e->member.runner, &(rg_member_options){ .max_seqs = e->n_lanes,
                                                                             .vocab_size = e->vocab_size,
                                                                             .max_seq_len = e->max_seq_len,
                                                                             .trees = true }, err) &&
           build_lanes(e, err);
}

rg_drafter *rg_eagle_open(const rg_draft_kind *kind, const rg_draft_options *o, rg_error *err)
{
    eagle *e = rg_zalloc(sizeof *e);
    int32_t width = o->max_draft <= CHAIN_NODES ? 1 : (o->max_draft + 1) / 4;

    if (!e)
        return rg_fail_memory(err, sizeof *e), NULL;
    e->member.runner = o->runner;
    e->target_ids = o->target_ids;
    e->vocab_size = o->vocab_size;
    e->dim = o->runner->dim;
    e->cols = rg_tap_cols(o->tap);
    e->width = width < RG_TREE_WIDTH ? width : RG_TREE_WIDTH;
    e->n_lanes = o->n_lanes;
    e->max_seq_len = o->max_seq_len;
    e->context = o->runner->max_seq_len - RG_MAX_DRAFT;
    e->context = e->context > o->runner->max_seq_len / 2 ? e->context : o->runner->max_seq_len / 2;
    e->max_making = o->runner->max_logits / e->width;
    e->max_making = e->max_making < o->n_lanes ? e->max_making : o->n_lanes;
    e->own_noise = o->own_noise;
    e->d = (rg_drafter){ .kind = kind, .depth = o->max_draft < RG_TREE_DEPTH ? o->max_draft : RG_TREE_DEPTH,
                         .tap = o->tap, .member = &e->member, .propose = propose, .lay_out = lay_out, .take = take,
                         .begin = forget, .seen = seen, .end = end,
                         .cost_s = cost_s, .nodes = nodes, .close = close_it };
    RG_ASSERT(e->max_making >= 1 && o->runner->max_logits >= o->n_lanes && o->runner->vocab_size <= o->vocab_size);
    if (build(e, err))
        return &e->d;
    close_it(&e->d);
    return NULL;
}

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    return rg_eagle_open(&rg_draft_eagle, o, err);
}

const rg_draft_kind rg_draft_eagle = { .name = "eagle", .max_draft = NODES, .has_network = true, .has_path = true,
                                       .open = open_it };
