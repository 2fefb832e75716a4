/* embedding.c -- hidden states into an embedding, as they are computed.
 *
 * Every way takes the prompt's rows by their positions, each once and in rising order, and adds in double: the result
 * is the same however the prompt was cut.  After a preemption the rows may come again, from position 0 on, or, where
 * only the last is wanted, from some later one. */
#include "engine/work/embedding.h"

#include <math.h>

#include "engine/numeric.h"
#include "engine/work/step.h"

typedef struct embedding_part {
    int32_t dim;
    rg_pooling poolings[RG_MAX_POOLINGS];
    int n_poolings;
    float *pooled;           /* [n_poolings][dim], once finished */
    double *sum;             /* [n_poolings][dim] of the rows pooled so far */
    int32_t n_pooled;
    const rg_embedding *made_by; /* the reader's own, as the next: what becomes of the pooled states, */
    const rg_dense *dense;
    float *scratch;          /*   room for it (NULL: nothing does), */
    const float *made;       /*   and what was made; NULL: not yet */
} embedding_part;

/* ---- at the door ------------------------------------------------------------------------------------------------- */

static bool takes(const rg_params *p, const rg_request_model *m)
{
    (void)m;
    return p->embed;
}

/* Pool as the checkpoint says, with what it has behind the pooling. */
static bool by_model(const rg_params *p, const rg_request_model *m)
{
    return p->embed == RG_POOLING_MODEL && m->embedding && m->embedding->n_poolings;
}

static bool check(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (!rg_prompt_work_check(p, m, err))
        return false;
    if (p->pool_from < 0 || p->pool_from >= p->n_prompt)
        return rg_fail(err, RG_E_INPUT, "positions are pooled from %d on, of %d ids", (int)p->pool_from,
                       (int)p->n_prompt);
    return by_model(p, m) || (p->embed >= RG_POOLING_LAST && p->embed <= RG_POOLING_WEIGHTED_MEAN) ||
           rg_fail(err, RG_E_INPUT, "%d is no way to make an embedding", (int)p->embed);
}

static void carve(rg_carver *c, rg_request *r, const rg_params *p, const rg_request_model *m)
{
    const int n = by_model(p, m) ? m->embedding->n_poolings : 1;
    const size_t n_scratch = by_model(p, m) ? rg_dense_room(m->embedding) : 0;
    embedding_part *e = rg_carve(c, 1, sizeof *e);
    float *pooled = rg_carve_table(c, (size_t)m->dim, (size_t)n, sizeof *pooled);
    float *scratch = rg_carve(c, n_scratch, sizeof *scratch);
    double *sum = rg_carve_table(c, (size_t)m->dim, (size_t)n, sizeof *sum);

    if (!c->base)
        return;
    *e = (embedding_part){ .dim = m->dim, .n_poolings = n, .pooled = pooled, .sum = sum, .made_by = m->embedding,
                           .dense = m->dense, .scratch = n_scratch ? scratch : NULL };
    for (int i = 0; i < n; i++)
        e->poolings[i] = by_model(p, m) ? m->embedding->poolings[i] : p->embed;
    r->part = e;
    r->is_scratch = r->sees_ahead = m->whole;
}

/* ---- pooling ----------------------------------------------------------------------------------------------------- */

static bool has_only(const embedding_part *e, rg_pooling how)
{
    return e->n_poolings == 1 && e->poolings[0] == how;
}

/* The rows of a span (n prompt rows from position start) whose hidden states are wanted, counted from the span's
 * first. */
static rg_rows rows_to_pool(const rg_request *r, int32_t start, int32_t n)
{
    const embedding_part *e = r->part;
    const int32_t from = r->params.pool_from;
    bool ends = start + n == r->params.n_prompt, begins = start <= from && from < start + n;

    if (has_only(e, RG_POOLING_LAST))
        return (rg_rows){ n - 1, ends };
    if (has_only(e, RG_POOLING_CLS))
        return (rg_rows){ begins ? from - start : 0, begins };
    return (rg_rows){ 0, n };
}

/* Add one row to the sum of one way of pooling; k rows were added before it. */
static void take_row(rg_pooling how, double *sum, int32_t dim, int32_t position, int32_t k, const float *row)
{
    const double weight = how == RG_POOLING_WEIGHTED_MEAN ? (double)position + 1 : 1;

    if (how == RG_POOLING_LAST || !k) {
        for (int32_t i = 0; i < dim; i++)
            sum[i] = weight * (double)row[i];
    } else if (how == RG_POOLING_MAX) {
        for (int32_t i = 0; i < dim; i++)
            sum[i] = (double)row[i] > sum[i] || isnan(row[i]) ? (double)row[i] : sum[i];
    } else if (how != RG_POOLING_CLS) {
        for (int32_t i = 0; i < dim; i++)
            sum[i] += weight * (double)row[i];
    }
}

void rg_embedding_pool(rg_request *r, int32_t start, int32_t n, const float *rows, size_t stride)
{
    embedding_part *e = r->part;
    const bool one = has_only(e, RG_POOLING_LAST) || has_only(e, RG_POOLING_CLS);

    if (!one) {
        e->n_pooled = start ? e->n_pooled : 0;
        RG_ASSERT(e->n_pooled == start);
        e->n_pooled += n;
    }
    for (int32_t k = 0; k < n; k++, rows += stride) {
        const int32_t number = one ? 0 : start + k - r->params.pool_from;

        for (int i = 0; number >= 0 && i < e->n_poolings; i++)
            take_row(e->poolings[i], e->sum + (size_t)i * (size_t)e->dim, e->dim, start + k, number, rows);
    }
}

/* What a sum over the rows from `from` up to n is divided by. */
static double divisor(rg_pooling how, int32_t from, int32_t n)
{
    const double count = (double)(n - from);

    switch (how) {
    case RG_POOLING_MEAN: return count;
    case RG_POOLING_SQRT_MEAN: return sqrt(count);
    case RG_POOLING_WEIGHTED_MEAN: return count * ((double)from + 1 + (double)n) / 2;
    default: return 1;
    }
}

void rg_embedding_finish(rg_request *r)
{
    const embedding_part *e = r->part;
    const int32_t n = e->n_poolings * e->dim;

    for (int32_t i = 0; i < n; i++)
        e->pooled[i] =
            (float)(e->sum[i] / divisor(e->poolings[i / e->dim], r->params.pool_from, r->params.n_prompt));
    rg_request_end(r, 0, rg_all_finite(e->pooled, n) ? RG_FINISH_STOP : RG_FINISH_NOT_FINITE);
}

/* ---- in steps ---------------------------------------------------------------------------------------------------- */

/* Pooling over all rows or the first needs these rows computed. */
static int32_t cacheable(const rg_request *r, int i)
{
    return has_only(r->part, RG_POOLING_LAST) ? rg_rowwise_cacheable(r, i) : 0;
}

static void want(rg_work_step *s, int i)
{
    const rg_planned *p = &s->plan[i];
    rg_rows run = rows_to_pool(p->request, p->request->samples[p->sample].seq->length, p->n_rows);

    rg_work_add_rows(s, i);
    if (run.n)
        rg_step_batch_want_hidden(&s->member->rows, run);
}

static void take_hidden(rg_work_step *s, int i, const float *rows, size_t stride)
{
    const rg_rows *run = &s->member->rows.hidden[i];

    rg_embedding_pool(rg_work_request(s, s->member->rows.hidden_of[i]), s->member->rows.index[run->first], run->n, rows,
                      stride);
}

static bool take(rg_work_step *s, int i)
{
    if (s->plan[i].ends)
        rg_embedding_finish(rg_work_request(s, i));
    return s->plan[i].ends;
}

static bool commit(rg_work_step *s, int i)
{
    return rg_work_commit_rows(s, i, take);
}

/* ---- the reader's side ------------------------------------------------------------------------------------------- */

const float *rg_embedding_pooled(const rg_request *r, int32_t *n)
{
    const embedding_part *e = r->part;

    if (r->work != &rg_work_embedding || atomic_load(&r->samples[0].finish) != RG_FINISH_STOP)
        return NULL;
    *n = e->n_poolings * e->dim;
    return e->pooled;
}

const float *rg_embedding_result(const rg_request *r, int32_t *n)
{
    const float *pooled = rg_embedding_pooled(r, n);
    embedding_part *e = r->part;

    if (!pooled || !e->scratch)
        return pooled;
    if (!e->made)
        e->made = rg_dense_apply(e->dense, e->made_by, e->pooled, e->scratch);
    *n = e->made_by->dim;
    return e->made;
}

const rg_work rg_work_embedding = {
    .name = "embedding", .ends_with_prompt = true,
    .takes = takes, .check = check, .shape = rg_prompt_work_shape, .carve = carve,
    .most = rg_rowwise_most, .fits = rg_prompt_work_fits,
    .is_open = rg_rowwise_is_open, .target = rg_rowwise_target, .room = rg_prompt_work_room,
    .cacheable = cacheable, .waits_to_fork = rg_rowwise_waits_to_fork, .rows = rg_prompt_work_rows,
    .n_left = rg_rowwise_n_left,
    .want = want, .take_hidden = take_hidden, .commit = commit,
};
