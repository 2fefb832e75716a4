/* embed.c -- hidden states into an embedding, as they are computed; and the scores of a model's head.
 *
 * Every way takes the prompt's rows by their positions, each once and in rising order, and adds in double: the result
 * is the same however the prompt was cut.  After a preemption the rows may come again, from position 0 on, or, where
 * only the last is wanted, from some later one. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "engine/numeric.h"
#include "engine/request.h"

static bool has_only(const rg_request *r, rg_pooling how)
{
    return r->n_poolings == 1 && r->poolings[0] == how;
}

rg_rows rg_request_rows_to_pool(const rg_request *r, int32_t start, int32_t n)
{
    const int32_t from = r->params.pool_from;
    bool ends = start + n == r->params.n_prompt, begins = start <= from && from < start + n;

    if (has_only(r, RG_POOLING_LAST))
        return (rg_rows){ n - 1, ends };
    if (has_only(r, RG_POOLING_CLS))
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

void rg_request_pool(rg_request *r, int32_t start, int32_t n, const float *rows, size_t stride)
{
    const bool one = has_only(r, RG_POOLING_LAST) || has_only(r, RG_POOLING_CLS);

    if (!one) {
        r->n_pooled = start ? r->n_pooled : 0;
        RG_ASSERT(r->n_pooled == start);
        r->n_pooled += n;
    }
    for (int32_t k = 0; k < n; k++, rows += stride) {
        const int32_t number = one ? 0 : start + k - r->params.pool_from;

        for (int i = 0; number >= 0 && i < r->n_poolings; i++)
            take_row(r->poolings[i], r->pool_sum + (size_t)i * (size_t)r->dim, r->dim, start + k, number, rows);
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

void rg_request_embedded(rg_request *r)
{
    const int32_t n = r->n_poolings * r->dim;

    for (int32_t i = 0; i < n; i++)
        r->embedding[i] =
            (float)(r->pool_sum[i] / divisor(r->poolings[i / r->dim], r->params.pool_from, r->params.n_prompt));
    rg_request_end(r, 0, rg_all_finite(r->embedding, n) ? RG_FINISH_STOP : RG_FINISH_NOT_FINITE);
}

rg_rows rg_request_rows_for_head(const rg_request *r)
{
    return (rg_rows){ 0, r->score_pooling == RG_POOLING_MEAN ? r->params.n_prompt : 1 };
}

void rg_request_take_labels(rg_request *r, const float *scores)
{
    memcpy(r->labels, scores, (size_t)r->n_labels * sizeof *scores);
}

void rg_request_scored(rg_request *r)
{
    rg_request_end(r, 0, rg_all_finite(r->labels, r->n_labels) ? RG_FINISH_STOP : RG_FINISH_NOT_FINITE);
}
