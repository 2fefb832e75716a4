/* embed.c -- hidden states into an embedding, as they are computed; and the scores of a model's head.
 *
 * Every way takes the prompt's rows by their positions, each once and in rising order, and adds in double: the result
 * is the same however the prompt was cut.  After a preemption the rows may come again, from position 0 on (mean, first)
 * or from some later one (last). */
#include <string.h>

#include "base/mem.h"
#include "engine/numeric.h"
#include "engine/request.h"

rg_rows rg_request_rows_to_pool(const rg_request *r, int32_t start, int32_t n)
{
    bool ends = start + n == r->params.n_prompt;

    switch (r->params.embed) {
    case RG_POOLING_LAST:
        return (rg_rows){ n - 1, ends };
    case RG_POOLING_CLS:
        return (rg_rows){ 0, start == 0 };
    default:
        return (rg_rows){ 0, n };
    }
}

static void add_rows(rg_request *r, int32_t start, int32_t n, const float *rows, size_t stride)
{
    if (!start) {
        memset(r->pool_sum, 0, (size_t)r->dim * sizeof *r->pool_sum);
        r->n_pooled = 0;
    }
    RG_ASSERT(r->n_pooled == start);
    for (int32_t k = 0; k < n; k++, rows += stride)
        for (int32_t i = 0; i < r->dim; i++)
            r->pool_sum[i] += (double)rows[i];
    r->n_pooled += n;
}

void rg_request_pool(rg_request *r, int32_t start, int32_t n, const float *rows, size_t stride)
{
    if (r->params.embed == RG_POOLING_MEAN)
        add_rows(r, start, n, rows, stride);
    else
        memcpy(r->embedding, rows, (size_t)r->dim * sizeof *rows);
}

void rg_request_embedded(rg_request *r)
{
    for (int32_t i = 0; r->params.embed == RG_POOLING_MEAN && i < r->dim; i++)
        r->embedding[i] = (float)(r->pool_sum[i] / r->params.n_prompt);
    rg_request_end(r, 0, rg_all_finite(r->embedding, r->dim) ? RG_FINISH_STOP : RG_FINISH_NOT_FINITE);
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
