/* score.c -- log-probabilities of a prompt's own ids, as its rows are computed.
 *
 * Each position is scored once, in rising order, whichever sample computes it.  After a preemption known scores are not
 * computed again, so the reader may read them while the prompt is recomputed.  draw.c computes them. */
#include "engine/request.h"

static int32_t min_of(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

rg_rows rg_request_rows_to_score(const rg_request *r, int32_t start, int32_t n)
{
    int32_t end = min_of(start + n, r->params.n_prompt - 1); /* the prompt's last row scores nothing of it */
    int32_t first = r->n_scoring - 1 > start ? r->n_scoring - 1 : start;

    return r->scores && first < end ? (rg_rows){ first - start, end - first } : (rg_rows){ 0 };
}

void rg_request_begin_scores(rg_request *r, int32_t start, int32_t n)
{
    rg_rows rows = rg_request_rows_to_score(r, start, n);

    RG_ASSERT(!rows.n || start + rows.first == r->n_scoring - 1);
    r->n_scoring += rows.n;
}

void rg_request_publish_scores(rg_request *r)
{
    atomic_store(&r->n_scored, r->n_scoring);
}

bool rg_request_score(const rg_request *r, int32_t position, rg_prompt_logprob *out)
{
    int32_t k = r->params.n_prompt_tops;

    if (!r->scores || position < 1 || position >= atomic_load(&r->n_scored))
        return false;
    *out = (rg_prompt_logprob){ .id = r->params.prompt[position], .logprob = r->scores[position].logprob,
                                .rank = r->scores[position].rank, .n_top = k,
                                .top = k ? r->score_tops + (size_t)position * (size_t)k : NULL };
    return true;
}
