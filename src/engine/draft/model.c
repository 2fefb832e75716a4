/* model.c -- a smaller model of the same vocabulary drafts (Leviathan et al. 2023; Chen et al. 2023).
 *
 * It has sequences of its own, one for each lane, which follow the answers: what it computed for drafts that turned out
 * right is kept, the rest is forgotten.  A call first computes the ids that it has not seen yet, and then one id of
 * each draft in every step.  It draws as the model will, with the same rules and the same noise: where the two models
 * agree about an id's place in the race, they draw the same id. */
#include <string.h>

#include "base/mem.h"
#include "engine/draft/draft.h"
#include "engine/member.h"

enum { DEPTH = 5 };

extern const rg_draft_kind rg_draft_model;

typedef struct follower { /* of one lane */
    rg_seq *seq;
    uint64_t asked;            /* the call that asked for it last */
    int32_t n_fed;             /* ids of the draft whose rows seq has as drafts */
    int32_t fed[RG_MAX_DRAFT];
    float mu;                  /* mirostat's bound after the draft so far, as this model sees it */
} follower;

typedef struct small_model {
    rg_drafter d; /* first */
    rg_member member;
    int32_t vocab_size; /* of the model that is drafted for */
    int32_t n_lanes;
    bool fixed;         /* as in rg_draft_options */
    uint64_t n_calls;
    follower *lanes;    /* [n_lanes] */
    /* A call: */
    const rg_draft_ask *asks; /* [n_asks] */
    int32_t n_asks, n_caught; /* n_caught: answers that fit into their share of a step */
    bool is_drafting;         /* all have had their first step */
    const rg_draft_ask **drafting; /* [n_lanes] n_drafting that go on */
    int32_t n_drafting;
    /* A step: */
    const rg_draft_ask **at; /* [n_lanes] whose span is which */
    int32_t *drawn;          /* [n_lanes] by span */
    float *wide;             /* [n_threads][vocab_size] logits, where the two sizes differ; NULL */
    float *from;             /* [n_lanes][depth][vocab_size] what drafts were drawn from; NULL: drawn with the answer's
                              *   noise */
} small_model;

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* Logits of as many ids as the other model has: padding beyond the vocabulary differs between sizes of a model.  An id
 * that this one lacks is as good as impossible, but finite: numbers that are not end a draw. */
static float *widen(small_model *m, int thread, float *logits)
{
    int32_t own = m->member.runner->vocab_size, n = m->vocab_size;
    float *to;

    if (!m->wide || own >= n)
        return logits;
    to = m->wide + (size_t)thread * (size_t)n;
    memcpy(to, logits, (size_t)own * sizeof *logits);
    for (int32_t i = own; i < n; i++)
        to[i] = -1e30f;
    return to;
}

/* What the next id of a draft is drawn from; NULL: it is not asked for. */
static float *from_of(const small_model *m, const rg_draft_ask *a)
{
    size_t place = (size_t)a->lane * (size_t)m->d.depth + (size_t)a->draft->n;

    return m->from && a->draft->n < m->d.depth ? m->from + place * (size_t)m->vocab_size : NULL;
}

static void draw(void *arg, int thread, int i, float *logits)
{
    small_model *m = arg;
    int32_t span = m->member.rows.wanted[i].span;
    const rg_draft_ask *a = m->at[span];
    follower *f = &m->lanes[a->lane];
    rg_draw_place place = { .request = a->request, .sample = a->sample, .draft = a->draft->id, .n_draft = a->draft->n,
                            .mu = a->draft->n ? &f->mu : NULL, .guess = true, .distribution = from_of(m, a) };
    const rg_drawn drawn = rg_draw(m->member.scratch, thread, &place, widen(m, thread, logits));

    m->drawn[span] = drawn.id;
    f->mu = drawn.mu;
}

/* ---- following --------------------------------------------------------------------------------------------------- */

/* Keep the state of the drafted ids that the answer has come to. */
static void settle(small_model *m, const rg_draft_ask *a)
{
    follower *f = &m->lanes[a->lane];
    rg_seq *q = f->seq;
    int32_t n = 0;

    while (n < f->n_fed && q->committed + n < a->n_ids && f->fed[n] == a->ids[q->committed + n])
        n++;
    if (q->length > q->committed)
        rg_seq_commit(m->member.states, q, n, NULL, a->ids);
    f->n_fed = 0;
    if (q->length)
        return;
    q->rope = a->request->who.rope;
    q->salt = rg_draft_scope(a->request);
    rg_seq_match(m->member.states, q, a->ids, a->n_ids, NULL);
}

static bool is_recurrent(const small_model *m)
{
    return rg_states_keep_chains(m->member.states);
}

static void forget(rg_drafter *d, int32_t lane)
{
    small_model *m = (small_model *)d;

    rg_seq_release(m->member.states, m->lanes[lane].seq, NULL);
    m->lanes[lane].n_fed = 0;
}

/* Room for the state of n positions, if need be by forgetting an answer that is not asked for. */
static bool grow(small_model *m, rg_seq *q, int32_t n)
{
    int32_t other = 0;

    while (!rg_seq_grow(m->member.states, q, n)) {
        while (other < m->n_lanes && (m->lanes[other].asked == m->n_calls || !m->lanes[other].seq->length))
            other++;
        if (!m->fixed || other == m->n_lanes)
            return false;
        forget(&m->d, other);
    }
    return true;
}

/* A span of rows that are certain; *left: rows that the step may still have.  True: the answer's last id is among
 * them. */
static bool add_certain(small_model *m, const rg_draft_ask *a, int32_t *left)
{
    rg_seq *q = m->lanes[a->lane].seq;
    int32_t n = a->n_ids - q->length, most = n < *left ? n : *left;
    bool all = most == n;

    if (most < 1)
        return false;
    if (!grow(m, q, q->length + most)) {
        forget(&m->d, a->lane); /* others need the room; it begins anew when it can */
        return false;
    }
    *left -= most;
    m->at[m->member.rows.batch.n_spans] = a;
    rg_step_batch_add(&m->member.rows, m->member.states, q, a->ids, most, NULL);
    if (all)
        rg_step_batch_want_last(&m->member.rows);
    return all;
}

/* A span of the draft's last id; a recurrent state cannot go back, and so takes the whole draft again. */
static bool add_drafted(small_model *m, const rg_draft_ask *a)
{
    follower *f = &m->lanes[a->lane];
    rg_draft_tree last = { .n = 1, .id = { a->draft->id[a->draft->n - 1] }, .parent = { -1 } };
    const rg_draft_tree *rows = is_recurrent(m) ? a->draft : &last;

    if (is_recurrent(m))
        rg_seq_rollback(m->member.states, f->seq, f->seq->committed);
    if (!grow(m, f->seq, f->seq->length + rows->n))
        return false;
    m->at[m->member.rows.batch.n_spans] = a;
    rg_step_batch_add(&m->member.rows, m->member.states, f->seq, a->ids, 0, rows);
    rg_step_batch_want_last(&m->member.rows);
    f->fed[f->n_fed++] = a->draft->id[a->draft->n - 1];
    return true;
}

static int32_t unread(const rg_drafter *d, int32_t lane, int32_t n_ids)
{
    return n_ids - ((const small_model *)d)->lanes[lane].seq->committed;
}

static bool takes(const small_model *m, const rg_draft_ask *a)
{
    return a->n_ids + a->depth <= m->member.runner->max_seq_len &&
           rg_draw_prepare(m->member.scratch, &a->request->samples[a->sample]);
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    small_model *m = (small_model *)d;

    m->n_calls++;
    m->asks = asks;
    m->n_asks = n;
    m->n_caught = m->fixed ? 0 : n;
    m->is_drafting = false;
    for (int32_t i = 0; i < n; i++) {
        m->lanes[asks[i].lane].asked = m->n_calls;
        if (takes(m, &asks[i]))
            settle(m, &asks[i]);
    }
    return true;
}

/* Rows of an answer that has more than its share of a step, so that it need not wait for the answers beside it.  False:
 * no answer has, or there is no room for their state. */
static bool lay_out_excess(small_model *m)
{
    const int32_t share = m->member.rows.max_rows / m->n_lanes;

    for (; m->n_caught < m->n_asks; m->n_caught++) {
        const rg_draft_ask *a = &m->asks[m->n_caught];
        int32_t n = a->n_ids - m->lanes[a->lane].seq->length - share;
        int32_t left = n < m->member.rows.max_rows ? n : m->member.rows.max_rows;

        if (n <= 0 || !takes(m, a))
            continue;
        (void)add_certain(m, a, &left);
        if (m->member.rows.batch.n_spans)
            return true;
    }
    return false;
}

/* First the rows that answers lack, then one id more of each draft in every step. */
static bool lay_out(rg_drafter *d, rg_sink *sink)
{
    small_model *m = (small_model *)d;
    int32_t left = m->member.rows.max_rows;

    *sink = (rg_sink){ .logits = draw, .arg = m };
    rg_step_batch_begin(&m->member.rows);
    if (lay_out_excess(m))
        return true;
    for (int32_t i = 0; i < m->n_drafting && m->is_drafting; i++)
        add_drafted(m, m->drafting[i]);
    for (int32_t i = 0; i < m->n_asks && !m->is_drafting; i++)
        if (takes(m, &m->asks[i]))
            (void)add_certain(m, &m->asks[i], &left);
    m->n_drafting = 0;
    m->is_drafting = true;
    return m->member.rows.batch.n_spans > 0;
}

/* The draft gets the id that was drawn for it.  True: it may have more. */
static bool add_drawn(const small_model *m, const rg_draft_ask *a, int32_t span)
{
    int32_t id = m->drawn[span], node;
    const float *from;

    if (id < 0 || a->draft->n == a->depth)
        return false;
    from = from_of(m, a);
    node = rg_draft_add(a->draft, a->draft->n - 1, id);
    a->draft->from[node] = from;
    return a->draft->n < a->depth;
}

/* Rows that are certain are kept for good, and drafts get their ids. */
static void take(rg_drafter *d)
{
    small_model *m = (small_model *)d;
    const rg_step_batch *rows = &m->member.rows;

    for (int i = 0; i < rows->batch.n_spans; i++) {
        const rg_span *span = &rows->spans[i];
        const rg_draft_ask *a = m->at[i];

        rg_seq_advance(m->member.states, m->lanes[a->lane].seq, span->n_rows, span->n_draft, a->ids);
    }
    for (int32_t i = 0; i < rows->batch.n_logits; i++) {
        int32_t span = rows->wanted[i].span;

        if (add_drawn(m, m->at[span], span))
            m->drafting[m->n_drafting++] = m->at[span];
    }
}

/* Others may find what is known of this answer's ids. */
static void end(rg_drafter *d, int32_t lane, const int32_t *ids, int32_t n_ids, uint64_t scope)
{
    small_model *m = (small_model *)d;
    follower *f = &m->lanes[lane];

    (void)scope;
    rg_seq_rollback(m->member.states, f->seq, f->seq->committed);
    rg_seq_release(m->member.states, f->seq, f->seq->committed <= n_ids ? ids : NULL);
    f->n_fed = 0;
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void close_it(rg_drafter *d)
{
    small_model *m = (small_model *)d;

    for (int32_t i = 0; m->lanes && m->member.states && i < m->n_lanes; i++)
        rg_seq_free(m->member.states, m->lanes[i].seq);
    rg_free(m->lanes);
    rg_member_fini(&m->member);
    rg_free(m->at);
    rg_free(m->drafting);
    rg_free(m->drawn);
    rg_free(m->wide);
    rg_free(m->from);
    rg_free(m);
}

static bool build(small_model *m, const rg_draft_options *o, rg_error *err)
{
    const rg_runner *r = o->runner;
    size_t n = (size_t)o->n_lanes, n_wide = 0, n_from = 0;

    if (r->vocab_size < o->vocab_size && !rg_mul((size_t)r->n_threads, (size_t)o->vocab_size, &n_wide))
        return rg_fail_memory(err, SIZE_MAX);
    if (o->own_noise && (!rg_mul(n, (size_t)o->max_draft, &n_from) ||
                         !rg_mul(n_from, (size_t)o->vocab_size, &n_from)))
        return rg_fail_memory(err, SIZE_MAX);
    m->lanes = rg_array(n, sizeof *m->lanes);
    m->at = rg_array(n, sizeof *m->at);
    m->drafting = rg_array(n, sizeof *m->drafting);
    m->drawn = rg_array(n, sizeof *m->drawn);
    m->wide = n_wide ? rg_array(n_wide, sizeof *m->wide) : NULL;
    m->from = n_from ? rg_array(n_from, sizeof *m->from) : NULL;
    if (!m->lanes || !m->at || !m->drafting || !m->drawn || (n_wide && !m->wide) || (n_from && !m->from))
        return rg_fail_memory(err, n * sizeof *m->lanes + n_from * sizeof *m->from);
    memset(m->lanes, 0, n * sizeof *m->lanes);
    if (!rg_member_init(&m->member, o->runner, &(rg_member_options){ .max_seqs = o->n_lanes,
                                                                    .vocab_size = o->vocab_size,
                                                                    .max_seq_len = o->max_seq_len, .use_prefixes = true,
                                                                    .judge = o->own_noise }, err))
        return false;
    for (size_t i = 0; i < n; i++) {
        m->lanes[i].seq = rg_seq_new(m->member.states, r->max_seq_len, 0, err);
        if (!m->lanes[i].seq)
            return false;
    }
    return true;
}

static rg_drafter *open_it(const rg_draft_options *o, rg_error *err)
{
    small_model *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    RG_ASSERT(o->runner && o->runner->max_logits >= o->n_lanes && o->runner->max_rows >= o->n_lanes);
    m->d = (rg_drafter){ .kind = &rg_draft_model, .depth = o->max_draft, .propose = propose, .begin = forget,
                         .member = &m->member, .lay_out = lay_out, .take = take, .end = end, .unread = unread,
                         .close = close_it };
    m->vocab_size = o->vocab_size;
    m->n_lanes = o->n_lanes;
    m->fixed = o->fixed;
    if (build(m, o, err))
        return &m->d;
    close_it(&m->d);
    return NULL;
}

const rg_draft_kind rg_draft_model = { .name = "model", .max_draft = DEPTH, .has_model = true, .open = open_it };
