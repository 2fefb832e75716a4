/* work.c -- the table of kinds, and what several of them share. */
#include "engine/work/work.h"

static const rg_work *const kinds[] = {
#define WORK(name) &rg_work_##name,
#include "engine/work/works.def"
#undef WORK
};

const rg_work *rg_work_of(const rg_params *p, const rg_request_model *m)
{
    size_t k = 0;

    while (k + 1 < RG_LEN(kinds) && !kinds[k]->takes(p, m))
        k++;
    return kinds[k]; /* the last takes what is left */
}

bool rg_work_no_room(const rg_request *r, rg_error *err)
{
    return rg_fail(err, RG_E_LIMIT, "%d prompt ids and %d to come need more state than the engine was opened with",
                   (int)r->params.n_prompt, (int)r->params.max_tokens);
}

/* ---- row by row -------------------------------------------------------------------------------------------------- */

/* The last id drawn needs no state. */
rg_work_room rg_rowwise_most(const rg_request *r)
{
    return (rg_work_room){ r->params.n_prompt + r->params.max_tokens - rg_request_draws(r),
                           { .n = 1, .shared = r->params.n_prompt - 1 } };
}

bool rg_rowwise_is_open(const rg_request *r, int i)
{
    return rg_sample_is_live(&r->samples[i]);
}

int32_t rg_rowwise_target(const rg_request *r, int i)
{
    return r->params.n_prompt + r->samples[i].n_output;
}

/* Up to the next id and a block beyond: the request would else be preempted at once. */
rg_work_room rg_rowwise_room(const rg_request *r, int i)
{
    int32_t most = r->params.n_prompt + r->params.max_tokens, upto = rg_rowwise_target(r, i) + RG_BLOCK;

    return (rg_work_room){ upto < most ? upto : most, { 0 } };
}

int32_t rg_rowwise_cacheable(const rg_request *r, int i)
{
    return rg_rowwise_target(r, i);
}

/* The first computes the prompt. */
bool rg_rowwise_waits_to_fork(const rg_request *r, int i)
{
    if (!rg_sample_is_unstarted(&r->samples[i]))
        return false;
    for (int j = 0; j < i; j++) {
        const rg_sample *a = &r->samples[j];

        if (rg_sample_is_live(a) && a->seq && !a->n_output && a->seq->committed < r->params.n_prompt)
            return true;
    }
    return false;
}

static bool has_unstarted(const rg_request *r, int after)
{
    for (int i = after + 1; i < r->n_branches; i++)
        if (rg_sample_is_unstarted(&r->samples[i]))
            return true;
    return false;
}

/* Up to the next id, or to where other samples fork: before the prompt's last position, which each computes itself. */
rg_work_rows rg_rowwise_rows(const rg_request *r, int i)
{
    const int32_t at = r->samples[i].seq->length, fork_at = r->params.n_prompt - 1;
    int32_t end = at < fork_at && has_unstarted(r, i) ? fork_at : rg_rowwise_target(r, i);

    return (rg_work_rows){ .first = at, .end = end, .block = 1 };
}

/* A sample that will fork from another, and has no state yet, has one row left. */
int32_t rg_rowwise_n_left(const rg_request *r, int i)
{
    const rg_sample *a = &r->samples[i];

    return i && !a->seq ? 1 : rg_rowwise_target(r, i) - (a->seq ? a->seq->length : 0);
}

/* ---- a prompt, and no more --------------------------------------------------------------------------------------- */

bool rg_prompt_work_check(const rg_params *p, const rg_request_model *m, rg_error *err)
{
    if (m->whole && p->n_prompt > m->max_rows)
        return rg_fail(err, RG_E_LIMIT, "the prompt has %d ids, which this model computes in one step, and a step has "
                       "room for %d rows (--batch-rows)", (int)p->n_prompt, (int)m->max_rows);
    if (p->second < 0 || p->second > p->n_prompt)
        return rg_fail(err, RG_E_INPUT, "the second text begins at %d of %d ids", (int)p->second, (int)p->n_prompt);
    return true;
}

rg_work_shape rg_prompt_work_shape(const rg_params *p, const rg_request_model *m)
{
    (void)m;
    return (rg_work_shape){ .row = (size_t)p->n_prompt, .n_branches = 1, .n_ending = 1 };
}

bool rg_prompt_work_fits(const rg_request *r, const rg_work_place *host, double share, rg_error *err)
{
    (void)share;
    return !r->is_scratch || r->params.n_prompt <= rg_states_most_scratch(host->states, host->max_rows) ||
           rg_work_no_room(r, err);
}

rg_work_room rg_prompt_work_room(const rg_request *r, int i)
{
    return r->is_scratch ? (rg_work_room){ r->params.n_prompt, { 0 } } : rg_rowwise_room(r, i);
}

rg_work_rows rg_prompt_work_rows(const rg_request *r, int i)
{
    const int32_t n = r->params.n_prompt;

    return r->is_scratch ? (rg_work_rows){ .end = n, .upto = n, .logits = 1, .is_prompt = true }
                         : rg_rowwise_rows(r, i);
}
