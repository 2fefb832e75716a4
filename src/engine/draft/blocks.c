/* blocks.c -- a model that fills in blocks by diffusion (SDAR, BD3-LM) drafts: a block of guesses in one evaluation.
 *
 * It has sequences of its own, one for each lane, which follow the answers by whole blocks.  A call computes the blocks
 * that are complete by now, and behind them the block that the next id stands in, whose unknown positions are masks:
 * what it gives for these is the draft.  That block's rows are forgotten again, since its ids are not known yet.
 * Guesses are drawn from the left, with the rules and the noise of the answer, as if those before were its ids. */
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "engine/draft/draft.h"
#include "engine/member.h"

extern const rg_draft_kind rg_draft_blocks;

typedef struct follower { /* of one lane */
    rg_seq *seq;
    uint64_t asked;       /* the call that asked for it last */
    int32_t n_final;      /* of its rows in this step, those of complete blocks */
    int32_t first_wanted; /* where its first mask stands among the rows whose logits the step gives */
    int32_t n_masks;      /* its masks in this step */
    atomic_int n_missing; /* those whose logits have not come yet */
} follower;

typedef struct block_model {
    rg_drafter d; /* first */
    rg_member member;
    int32_t vocab_size; /* of the model that is drafted for */
    int32_t n_lanes, block, mask_id;
    uint64_t n_calls;
    follower *lanes;          /* [n_lanes] */
    const rg_draft_ask *asks; /* [n_asks] */
    int32_t n_asks;
    bool is_laid_out;         /* the one step of this call */
    const rg_draft_ask **at;  /* [n_lanes] whose span is which */
    float **rows;             /* [max_logits] where the logits of each wanted row lie, once they have come */
    float *wide;              /* [n_threads][vocab_size] */
    int32_t *ids;             /* [max_seq_len + block] of an answer, and masks behind it */
} block_model;

/* ---- guesses ----------------------------------------------------------------------------------------------------- */

/* Logits of as many ids as the other model has.  The mask, and an id that this model lacks, are as good as impossible,
 * but finite: numbers that are not end a draw. */
static float *widen(block_model *m, int thread, const float *logits)
{
    const float never = -1e30f;
    const int32_t own = m->member.runner->vocab_size, n = m->vocab_size;
    float *to = m->wide + (size_t)thread * (size_t)n;

    memcpy(to, logits, (size_t)(own < n ? own : n) * sizeof *to);
    for (int32_t i = own; i < n; i++)
        to[i] = never;
    if (m->mask_id < n)
        to[m->mask_id] = never;
    return to;
}

/* The logits of all masks of an answer have come: its draft, from the left. */
static void draw_all(block_model *m, int thread, const rg_draft_ask *a)
{
    const follower *f = &m->lanes[a->lane];
    float mu = 0;

    for (int32_t k = 0; k < f->n_masks && a->draft->n < a->depth; k++) {
        const rg_draw_place place = { .request = a->request, .sample = a->sample, .draft = a->draft->id,
                                      .n_draft = a->draft->n, .mu = k ? &mu : NULL, .guess = true };
        const rg_drawn drawn =
            rg_draw(m->member.scratch, thread, &place, widen(m, thread, m->rows[f->first_wanted + k]));

        if (drawn.id < 0 || rg_draft_add(a->draft, a->draft->n - 1, drawn.id) < 0)
            return;
        mu = drawn.mu;
    }
}

static void take_logits(void *arg, int thread, int i, float *logits)
{
    block_model *m = arg;
    const rg_draft_ask *a = m->at[m->member.rows.wanted[i].span];

    m->rows[i] = logits;
    if (atomic_fetch_sub(&m->lanes[a->lane].n_missing, 1) == 1)
        draw_all(m, thread, a);
}

/* ---- following --------------------------------------------------------------------------------------------------- */

static void forget(rg_drafter *d, int32_t lane)
{
    block_model *m = (block_model *)d;

    rg_seq_release(m->member.states, m->lanes[lane].seq, NULL);
}

/* Where the block that the next id stands in begins. */
static int32_t block_start(const block_model *m, int32_t n_ids)
{
    return n_ids / m->block * m->block;
}

static int32_t unread(const rg_drafter *d, int32_t lane, int32_t n_ids)
{
    const block_model *m = (const block_model *)d;

    return block_start(m, n_ids) - m->lanes[lane].seq->committed;
}

/* Given rows are none of its own. */
static bool takes(const block_model *m, const rg_draft_ask *a)
{
    return !a->request->params.n_given && block_start(m, a->n_ids) + m->block <= m->member.runner->max_seq_len &&
           rg_draw_prepare(m->member.scratch, &a->request->samples[a->sample]);
}

static bool propose(rg_drafter *d, const rg_draft_ask *asks, int32_t n)
{
    block_model *m = (block_model *)d;

    m->n_calls++;
    m->asks = asks;
    m->n_asks = n;
    m->is_laid_out = false;
    for (int32_t i = 0; i < n; i++) {
        rg_seq *q = m->lanes[asks[i].lane].seq;

        m->lanes[asks[i].lane].asked = m->n_calls;
        if (q->length || !takes(m, &asks[i]))
            continue;
        q->rope = asks[i].request->who.rope;
        q->salt = rg_draft_scope(asks[i].request);
        rg_seq_match(m->member.states, q, asks[i].ids, block_start(m, asks[i].n_ids), NULL);
    }
    return true;
}

/* Returns the first `end` ids of an answer: its own ids, then masks. */
static const int32_t *masked(block_model *m, const rg_draft_ask *a, int32_t end)
{
    const int32_t known = a->n_ids < end ? a->n_ids : end;

    memcpy(m->ids, a->ids, (size_t)known * sizeof *m->ids);
    for (int32_t i = known; i < end; i++)
        m->ids[i] = m->mask_id;
    return m->ids;
}

/* A span of an answer: complete blocks, as many as there is room for, and then, if there is room for all of it, the
 * block with masks.  *left: rows that the step may still have. */
static void add_rows(block_model *m, const rg_draft_ask *a, int32_t *left)
{
    follower *f = &m->lanes[a->lane];
    rg_seq *q = f->seq;
    const int32_t start = block_start(m, a->n_ids), all = start + m->block - q->length;
    const int32_t n = all <= *left ? all : *left / m->block * m->block;

    if (n < 1)
        return;
    if (!rg_seq_grow(m->member.states, q, q->length + n)) {
        forget(&m->d, a->lane); /* others need the room; it begins anew when it can */
        return;
    }
    *left -= n;
    f->n_final = n == all ? start - q->length : n;
    f->n_masks = n == all ? start + m->block - a->n_ids : 0;
    f->first_wanted = m->member.rows.batch.n_logits;
    atomic_store(&f->n_missing, f->n_masks);
    m->at[m->member.rows.batch.n_spans] = a;
    rg_step_batch_add(&m->member.rows, m->member.states, q, masked(m, a, q->length + n), n, NULL);
    m->member.rows.spans[m->member.rows.batch.n_spans - 1].n_draft = n - f->n_final;
    rg_step_batch_want_prompt(&m->member.rows, n - f->n_masks, f->n_masks);
}

/* One step for each call. */
static bool lay_out(rg_drafter *d, rg_sink *sink)
{
    block_model *m = (block_model *)d;
    int32_t left = m->member.rows.max_rows;

    *sink = (rg_sink){ .logits = take_logits, .arg = m };
    rg_step_batch_begin(&m->member.rows);
    for (int32_t i = 0; i < m->n_asks && !m->is_laid_out; i++)
        if (takes(m, &m->asks[i]))
            add_rows(m, &m->asks[i], &left);
    m->is_laid_out = true;
    return m->member.rows.batch.n_spans > 0;
}

/* Rows of complete blocks are kept, those of the block with masks are forgotten. */
static void take(rg_drafter *d)
{
    block_model *m = (block_model *)d;
    const rg_step_batch *rows = &m->member.rows;

    for (int i = 0; i < rows->batch.n_spans; i++) {
        const follower *f = &m->lanes[m->at[i]->lane];
        const int32_t n = rows->spans[i].n_rows;

        rg_seq_advance(m->member.states, f->seq, n, n - f->n_final, m->at[i]->ids);
        rg_seq_rollback(m->member.states, f->seq, f->seq->committed);
    }
}

/* Others may find what is known of this answer's ids. */
static void end(rg_drafter *d, int32_t lane, const int32_t *ids, int32_t n_ids, uint64_t scope)
{
    block_model *m = (block_model *)d;
    rg_seq *q = m->lanes[lane].seq;

    (void)scope;
    rg_seq_release(m->member.states, q, q->committed <= n_ids ? ids : NULL);
}

/* ---- opening and closing ----------------------------------------------------------------------------------------- */

static void close_it(rg_drafter *d)
{
    block_model *m = (block_model *)d;

    for (int32_t i = 0; m->lanes && m->member.states && i < m->n_lanes; i++)
        rg_seq_free(m->member.states, m->lanes[i].seq);
    rg_free(m->lanes);
    rg_member_fini(&m->member);
    rg_free(m->at);
    rg_free(m->rows);
    rg_free(m->wide);
    rg_free(m->ids);
    rg_free(m);
}

static bool build(block_model *m, const rg_draft_options *o, rg_error *err)
{
    const rg_runner *r = o->runner;
    const size_t n = (size_t)o->n_lanes;
    size_t n_wide, n_ids;

    if (!rg_mul((size_t)r->n_threads, (size_t)o->vocab_size, &n_wide) ||
        !rg_add((size_t)r->max_seq_len, (size_t)m->block, &n_ids))
        return rg_fail_memory(err, SIZE_MAX);
    m->lanes = rg_array(n, sizeof *m->lanes);
    m->at = rg_array(n, sizeof *m->at);
    m->rows = rg_array((size_t)r->max_logits, sizeof *m->rows);
    m->wide = rg_array(n_wide, sizeof *m->wide);
    m->ids = rg_array(n_ids, sizeof *m->ids);
    if (!m->lanes || !m->at || !m->rows || !m->wide || !m->ids)
        return rg_fail_memory(err, n_wide * sizeof *m->wide);
    memset(m->lanes, 0, n * sizeof *m->lanes);
    if (!rg_member_init(&m->member, o->runner, &(rg_member_options){ .max_seqs = o->n_lanes,
                                                                    .vocab_size = o->vocab_size,
                                                                    .max_seq_len = o->max_seq_len,
                                                                    .use_prefixes = true }, err))
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
    block_model *m = rg_zalloc(sizeof *m);

    if (!m)
        return rg_fail_memory(err, sizeof *m), NULL;
    RG_ASSERT(o->runner && o->runner->sees > 1 && o->runner->diffusion.mask_id >= 0 && !o->own_noise && !o->fixed);
    RG_ASSERT(o->runner->max_logits >= o->n_lanes * o->runner->sees &&
              o->runner->max_rows >= o->n_lanes * o->runner->sees);
    m->d = (rg_drafter){ .kind = &rg_draft_blocks, .depth = o->max_draft, .propose = propose, .begin = forget,
                         .member = &m->member, .lay_out = lay_out, .take = take, .end = end, .unread = unread,
                         .close = close_it };
    m->vocab_size = o->vocab_size;
    m->n_lanes = o->n_lanes;
    m->block = o->runner->sees;
    m->mask_id = o->runner->diffusion.mask_id;
    if (build(m, o, err))
        return &m->d;
    close_it(&m->d);
    return NULL;
}

const rg_draft_kind rg_draft_blocks = { .name = "blocks", .max_draft = 16, .has_model = true, .open = open_it };
