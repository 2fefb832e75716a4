/* draw.c -- see draw.h. */
#include "engine/draw.h"

#include <math.h> /* NAN, INFINITY */
#include <string.h>

#include "base/mem.h"
#include "engine/sampler.h"

typedef struct drawer {
    _Alignas(RG_ALIGN) atomic_bool busy;
    rg_sampler *sampler;
    float *raw; /* logits as they came, for log-probabilities */
} drawer;

struct rg_drawers {
    int32_t n, vocab_size;
    drawer *each; /* [n] */
};

rg_drawers *rg_drawers_new(int32_t n_threads, int32_t vocab_size, rg_error *err)
{
    rg_drawers *d = rg_zalloc(sizeof *d);
    size_t n = (size_t)n_threads;

    if (!d)
        return rg_fail_memory(err, sizeof *d), NULL;
    d->vocab_size = vocab_size;
    d->each = rg_array(n, sizeof *d->each);
    if (!d->each) {
        rg_fail_memory(err, n * sizeof *d->each);
        goto fail;
    }
    for (; d->n < n_threads; d->n++) {
        drawer *one = &d->each[d->n];

        one->sampler = rg_sampler_new(vocab_size, err);
        if (!one->sampler)
            goto fail;
        one->raw = rg_array((size_t)vocab_size, sizeof(float));
        if (!one->raw) {
            rg_sampler_free(one->sampler);
            rg_fail_memory(err, (size_t)vocab_size * sizeof(float));
            goto fail;
        }
    }
    return d;

fail:
    rg_drawers_free(d);
    return NULL;
}

void rg_drawers_free(rg_drawers *d)
{
    if (!d)
        return;
    for (int32_t i = 0; i < d->n; i++) {
        rg_sampler_free(d->each[i].sampler);
        rg_free(d->each[i].raw);
    }
    rg_free(d->each);
    rg_free(d);
}

static drawer *take(rg_drawers *d)
{
    for (;;)
        for (int32_t i = 0; i < d->n; i++)
            if (!atomic_exchange_explicit(&d->each[i].busy, true, memory_order_acquire))
                return &d->each[i];
}

static void give_back(drawer *one)
{
    atomic_store_explicit(&one->busy, false, memory_order_release);
}

rg_top *rg_next_tops(const rg_request *r, const rg_sample *a)
{
    int32_t k = r->params.sampling.n_logprobs;

    return k > 0 ? a->tops + (size_t)a->n_output * (size_t)k : NULL;
}

rg_drawn rg_draw(rg_drawers *d, const rg_request *r, int i, float *logits)
{
    const rg_sampling *sampling = &r->params.sampling;
    const rg_sample *a = &r->samples[i];
    rg_history history = { r->params.prompt, a->ids, r->params.n_prompt, a->n_output };
    rg_sample_key key = { .seed = sampling->seed, .sample = i, .position = r->params.n_prompt + a->n_output };
    bool may_end = a->n_output >= sampling->min_tokens;
    int32_t n_eos = sampling->ignore_eos ? 0 : r->n_eos;
    rg_drawn drawn = { .logprob = NAN };
    drawer *one = take(d);

    if (sampling->n_logprobs >= 0)
        memcpy(one->raw, logits, (size_t)d->vocab_size * sizeof *logits);
    if (a->grammar)
        rg_grammar_mask(a->grammar, logits, d->vocab_size, r->eos_ids, n_eos, may_end);
    for (int32_t k = 0; k < r->params.n_stop_ids && !may_end; k++)
        logits[r->params.stop_ids[k]] = -INFINITY;
    rg_sample_rules(one->sampler, logits, sampling, &history, r->eos_ids, may_end ? 0 : n_eos);
    drawn.id = rg_sample_draw(one->sampler, logits, sampling, &key);
    if (sampling->n_logprobs >= 0)
        drawn.logprob = rg_logprobs(one->sampler, one->raw, drawn.id, sampling->n_logprobs, rg_next_tops(r, a));
    give_back(one);
    return drawn;
}

/* From 1: those before id have a greater logit, or the same and a lower id.  NaN is the least. */
static int32_t rank_of(const float *logits, int32_t n, int32_t id)
{
    float own = isnan(logits[id]) ? -INFINITY : logits[id];
    int32_t rank = 1;

    for (int32_t i = 0; i < id; i++)
        rank += logits[i] >= own || (own == -INFINITY && isnan(logits[i]));
    for (int32_t i = id + 1; i < n; i++)
        rank += logits[i] > own;
    return rank;
}

void rg_draw_score(rg_drawers *d, rg_request *r, int32_t position, const float *logits)
{
    int32_t k = r->params.n_prompt_tops, id = r->params.prompt[position];
    rg_top *tops = k ? r->score_tops + (size_t)position * (size_t)k : NULL;
    drawer *one = take(d);

    r->scores[position] = (rg_score){ .logprob = rg_logprobs(one->sampler, logits, id, k, tops),
                                      .rank = rank_of(logits, d->vocab_size, id) };
    give_back(one);
}
