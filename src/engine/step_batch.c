/* step_batch.c -- see step_batch.h. */
#include "engine/step_batch.h"

#include <string.h>

#include "base/mem.h"

bool rg_step_batch_init(rg_step_batch *l, int32_t max_seqs, int32_t max_rows, int32_t max_logits, bool trees,
                        rg_error *err)
{
    size_t n = (size_t)max_seqs, rows = (size_t)max_rows, logits = (size_t)max_logits;

    *l = (rg_step_batch){ .max_rows = max_rows, .max_logits = max_logits, .max_seqs = max_seqs,
                           .sees = RG_CAUSAL };
    l->spans = rg_array(n, sizeof *l->spans);
    l->hidden = rg_array(n, sizeof *l->hidden);
    l->hidden_of = rg_array(n, sizeof *l->hidden_of);
    l->scores = rg_array(n, sizeof *l->scores);
    l->scores_of = rg_array(n, sizeof *l->scores_of);
    l->first_draw = rg_array(n, sizeof *l->first_draw);
    l->wanted = rg_array(logits, sizeof *l->wanted);
    l->logit_rows = rg_array(logits, sizeof *l->logit_rows);
    l->picks = rg_array(logits, sizeof *l->picks);
    l->token = rg_array(rows, sizeof *l->token);
    l->index = rg_array(rows, sizeof *l->index);
    l->kv_end = rg_array(rows, sizeof *l->kv_end);
    l->slot = rg_array(rows, sizeof *l->slot);
    l->pos = rg_array(rows, sizeof *l->pos);
    l->failed = rg_array(rows, sizeof *l->failed);
    l->given = rg_array(rows, sizeof *l->given);
    l->ancestors = trees ? rg_array(rows, sizeof *l->ancestors) : NULL;
    l->lists = trees ? rg_array(logits, RG_MAX_DRAFT * sizeof *l->lists) : NULL;
    if (l->spans && l->hidden && l->hidden_of && l->scores && l->scores_of && l->first_draw && l->wanted &&
        l->logit_rows && l->picks && l->token && l->index &&
        l->kv_end && l->slot && l->pos && l->failed && l->given && (!trees || (l->ancestors && l->lists)))
        return true;
    return rg_fail_memory(err, n * sizeof *l->spans + rows * sizeof *l->pos + logits * RG_MAX_DRAFT * sizeof *l->lists);
}

bool rg_step_batch_refine(rg_step_batch *l, int32_t canvas, int32_t dim, rg_error *err)
{
    size_t n;

    if (!rg_mul((size_t)l->max_rows, (size_t)dim, &n))
        return rg_fail_memory(err, SIZE_MAX);
    l->canvas = canvas;
    l->soft_dim = dim;
    l->temperatures = rg_array((size_t)l->max_logits, sizeof *l->temperatures);
    l->soft = rg_array(n, sizeof *l->soft);
    return (l->temperatures && l->soft) || rg_fail_memory(err, n * sizeof *l->soft);
}

void rg_step_batch_fini(rg_step_batch *l)
{
    rg_free(l->spans);
    rg_free(l->hidden);
    rg_free(l->hidden_of);
    rg_free(l->scores);
    rg_free(l->scores_of);
    rg_free(l->first_draw);
    rg_free(l->wanted);
    rg_free(l->logit_rows);
    rg_free(l->picks);
    rg_free(l->token);
    rg_free(l->index);
    rg_free(l->kv_end);
    rg_free(l->slot);
    rg_free(l->pos);
    rg_free(l->failed);
    rg_free(l->given);
    rg_free(l->ancestors);
    rg_free(l->lists);
    rg_free(l->temperatures);
    rg_free(l->soft);
}

void rg_step_batch_begin(rg_step_batch *l)
{
    l->n_lists = l->n_soft = 0;
    l->batch = (rg_batch){ .spans = l->spans,
                           .token = l->token,
                           .index = l->index,
                           .pos = (const int32_t(*)[4])l->pos,
                           .kv_end = l->kv_end,
                           .failed = l->failed,
                           .logit_rows = l->logit_rows,
                           .hidden = l->hidden,
                           .scores = l->scores };
}

/* Features of a step's first rows up to n, which are 0 where nothing is read. */
static void extend_soft(rg_step_batch *l, int32_t n)
{
    const size_t dim = (size_t)l->soft_dim;

    if (!dim)
        return; /* the model reads none */
    memset(l->soft + (size_t)l->n_soft * dim, 0, (size_t)(n - l->n_soft) * dim * sizeof *l->soft);
    l->n_soft = n;
    l->batch.features = l->soft;
    l->batch.feature_cols = l->soft_dim;
    l->batch.temperatures = l->temperatures;
}

/* A row at a place in the sequence, whose K/V goes to a slot. */
static int32_t add_row(rg_step_batch *l, int32_t token, int32_t at, int32_t slot)
{
    int32_t row = l->batch.n_rows++;

    RG_ASSERT(row < l->max_rows);
    l->token[row] = token;
    l->index[row] = at;
    l->kv_end[row] = at + 1;
    l->slot[row] = slot;
    l->failed[row] = 0;
    for (int d = 0; d < 4; d++)
        l->pos[row][d] = at;
    if (l->ancestors)
        l->ancestors[row] = NULL;
    if (l->batch.features)
        extend_soft(l, row + 1);
    return row;
}

/* The rows of a tree from a node on; the first node of all would be at position `first`: a node stands as many
 * positions further as its path is long, and is put behind the node before it. */
static void add_tree(rg_step_batch *l, const rg_draft_tree *d, int32_t from, int32_t first)
{
    RG_ASSERT(l->ancestors);
    for (int32_t i = from; i < d->n; i++) {
        RG_ASSERT(l->n_lists < l->max_logits);
        int32_t *list = l->lists + (size_t)l->n_lists++ * RG_MAX_DRAFT, n = rg_draft_path(d, i, list);
        int32_t row = add_row(l, d->id[i], first + n - 1, first + i);

        for (int32_t k = 0; k < n; k++)
            list[k] += first;
        l->ancestors[row] = list;
    }
    l->batch.slot = l->slot;
    l->batch.ancestors = l->ancestors;
}

/* A new span of n_rows rows that are about to be added, the last n_draft of a draft. */
static void begin_span(rg_step_batch *l, const rg_states *s, const rg_seq *q, int32_t n_rows, int32_t n_draft)
{
    rg_span *span = &l->spans[l->batch.n_spans];

    RG_ASSERT(l->batch.n_spans < l->max_seqs);
    rg_seq_span(s, q, n_rows, n_draft, span);
    span->first_row = l->batch.n_rows;
    span->second = 0;
    l->first_draw[l->batch.n_spans++] = -1;
}

void rg_step_batch_add(rg_step_batch *l, const rg_states *s, const rg_seq *q, const int32_t *tokens, int32_t n_rows,
                       const rg_draft_tree *draft)
{
    int32_t n_draft = draft ? draft->n : 0, end = q->length + n_rows;

    begin_span(l, s, q, n_rows + n_draft, n_draft);
    for (int32_t k = q->length; k < end; k++)
        l->kv_end[add_row(l, tokens[k], k, k)] = rg_kv_end(l->sees, k, end);
    if (n_draft && !rg_draft_is_chain(draft)) {
        add_tree(l, draft, 0, end);
        return;
    }
    for (int32_t i = 0; i < n_draft; i++)
        add_row(l, draft->id[i], end + i, end + i);
}

void rg_step_batch_add_nodes(rg_step_batch *l, const rg_states *s, const rg_seq *q, const rg_draft_tree *d,
                             int32_t from)
{
    RG_ASSERT(from < d->n);
    begin_span(l, s, q, d->n - from, d->n - from);
    if (!rg_draft_is_chain(d)) {
        add_tree(l, d, from, q->length);
        return;
    }
    for (int32_t i = from; i < d->n; i++)
        add_row(l, d->id[i], q->length + i, q->length + i);
}

static void want_logits(rg_step_batch *l, int32_t row, int32_t node)
{
    int32_t n = l->batch.n_logits++;

    RG_ASSERT(n < l->max_logits);
    l->wanted[n] = (rg_wanted){ l->batch.n_spans - 1, node };
    l->picks[n] = (rg_pick){ 0 };
    l->logit_rows[n] = row;
    if (l->canvas)
        l->temperatures[n] = 1;
}

/* An evaluation of a canvas.  Its rows stand in the text at the place behind it, so that all of them see the same of
 * it, and are of token type 1. */
static void add_canvas(rg_step_batch *l, const rg_states *s, const rg_fill *f, const rg_seq *q)
{
    const int32_t n = f->e.end - f->e.first, first_row = l->batch.n_rows;
    const float t = rg_denoise_temperature(&f->d);

    begin_span(l, s, q, n, n);
    l->spans[l->batch.n_spans - 1].second = f->e.first;
    for (int32_t k = f->e.first; k < f->e.end; k++) {
        const int32_t row = add_row(l, f->d.ids[k], f->e.first, k);

        l->kv_end[row] = f->e.end;
        for (int d = 0; d < 4; d++)
            l->pos[row][d] = k;
        want_logits(l, row, k);
        l->temperatures[l->batch.n_logits - 1] = t;
    }
    l->batch.slot = l->slot;
    extend_soft(l, l->batch.n_rows);
    if (f->d.step)
        memcpy(l->soft + (size_t)first_row * (size_t)l->soft_dim, f->soft,
               (size_t)n * (size_t)l->soft_dim * sizeof *f->soft);
}

void rg_step_batch_add_fill(rg_step_batch *l, const rg_states *s, const rg_fill *f, const rg_seq *q, bool without)
{
    int32_t n = f->e.end - f->e.first, first_row = l->batch.n_rows;

    if (l->canvas) {
        add_canvas(l, s, f, q);
        return;
    }
    begin_span(l, s, q, n, rg_fill_is_scratch(f) || f->e.keeps ? 0 : n);
    for (int32_t k = f->e.first; k < f->e.end; k++)
        l->kv_end[add_row(l, rg_fill_id(f, k, without), k, k)] = rg_kv_end(l->sees, k, f->d.n);
    for (int32_t k = f->e.from; k < f->e.upto && !f->e.keeps; k++)
        if (f->d.ids[k] == f->d.model.mask_id)
            want_logits(l, first_row + rg_denoise_row(&f->d, k) - f->e.first, k);
}

void rg_step_batch_add_apart(rg_step_batch *l, int32_t n)
{
    if (!n)
        return;
    l->spans[l->batch.n_spans++] = (rg_span){ .n_rows = n, .adapter = -1 };
    for (int32_t i = 0; i < n; i++)
        want_logits(l, add_row(l, 0, 0, 0), RG_AFTER_LAST);
}

/* The rows of a prompt in a span follow each other; an answer's drafts, if it has any, are behind all given rows. */
void rg_step_batch_give(rg_step_batch *l, const rg_given_rows *given, int32_t n, int32_t dim)
{
    const rg_span *span = &l->spans[l->batch.n_spans - 1];
    const int32_t first = l->index[span->first_row];

    if (!n || first >= given[n - 1].at + given[n - 1].n)
        return;
    for (int32_t k = 0; k < span->n_rows; k++) {
        const int32_t row = span->first_row + k;

        if (rg_is_id(l->token[row]))
            continue;
        l->token[row] = RG_GIVEN;
        l->given[row] = rg_given_row(given, n, dim, first + k);
        RG_ASSERT(l->given[row]);
        l->batch.given = l->given;
    }
}

void rg_step_batch_want_prompt(rg_step_batch *l, int32_t first, int32_t n)
{
    for (int32_t k = 0; k < n; k++)
        want_logits(l, l->spans[l->batch.n_spans - 1].first_row + first + k, RG_OF_PROMPT);
}

void rg_step_batch_want_draws(rg_step_batch *l, int32_t n_draft)
{
    l->first_draw[l->batch.n_spans - 1] = l->batch.n_logits;
    for (int32_t node = RG_AFTER_LAST; node < n_draft; node++)
        want_logits(l, l->batch.n_rows - n_draft + node, node);
}

void rg_step_batch_pick(rg_step_batch *l, int32_t node, rg_pick pick)
{
    l->picks[l->first_draw[l->batch.n_spans - 1] + 1 + node] = pick;
    l->batch.picks = l->picks;
}

void rg_step_batch_want_last(rg_step_batch *l)
{
    want_logits(l, l->batch.n_rows - 1, RG_AFTER_LAST);
}

void rg_step_batch_want_hidden(rg_step_batch *l, rg_rows run)
{
    rg_batch *b = &l->batch;

    l->hidden_of[b->n_hidden] = b->n_spans - 1;
    l->hidden[b->n_hidden++] = (rg_rows){ l->spans[b->n_spans - 1].first_row + run.first, run.n };
}

void rg_step_batch_want_label_scores(rg_step_batch *l, rg_rows run)
{
    rg_batch *b = &l->batch;

    l->scores_of[b->n_scores] = b->n_spans - 1;
    l->scores[b->n_scores++] = (rg_rows){ l->spans[b->n_spans - 1].first_row + run.first, run.n };
}

void rg_step_batch_pair(rg_step_batch *l, int32_t second)
{
    l->spans[l->batch.n_spans - 1].second = second;
}

bool rg_step_batch_failed(const rg_step_batch *l, int i)
{
    return memchr(l->failed + l->spans[i].first_row, 1, (size_t)l->spans[i].n_rows);
}
