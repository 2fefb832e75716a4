/* draw.c -- see draw.h. */
#include "engine/draw.h"

#include <math.h> /* NAN, INFINITY */
#include <string.h>

#include "base/mem.h"
#include "engine/numeric.h"
#include "engine/sampler.h"

typedef struct thread_scratch {
    rg_sampler *sampler;
    float *raw; /* [vocab_size] logits as they came, for log-probabilities */
} thread_scratch;

struct rg_sample_scratch {
    int32_t n, vocab_size;
    thread_scratch *of; /* [n] */
};

rg_sample_scratch *rg_sample_scratch_new(int32_t n_threads, int32_t vocab_size, rg_error *err)
{
    rg_sample_scratch *s = rg_zalloc(sizeof *s);
    size_t n = (size_t)n_threads, raw_bytes = (size_t)vocab_size * sizeof(float);

    if (!s)
        return rg_fail_memory(err, sizeof *s), NULL;
    s->vocab_size = vocab_size;
    s->of = rg_array(n, sizeof *s->of);
    if (!s->of) {
        rg_fail_memory(err, n * sizeof *s->of);
        goto fail;
    }
    for (; s->n < n_threads; s->n++) {
        thread_scratch *t = &s->of[s->n];

        t->sampler = rg_sampler_new(vocab_size, err);
        if (!t->sampler)
            goto fail;
        t->raw = rg_array((size_t)vocab_size, sizeof(float));
        if (!t->raw) {
            rg_sampler_free(t->sampler);
            rg_fail_memory(err, raw_bytes);
            goto fail;
        }
    }
    return s;

fail:
    rg_sample_scratch_free(s);
    return NULL;
}

void rg_sample_scratch_free(rg_sample_scratch *s)
{
    if (!s)
        return;
    for (int32_t i = 0; i < s->n; i++) {
        rg_sampler_free(s->of[i].sampler);
        rg_free(s->of[i].raw);
    }
    rg_free(s->of);
    rg_free(s);
}

rg_top *rg_next_tops(const rg_request *r, const rg_sample *a)
{
    int32_t k = r->params.sampling.n_logprobs;

    return k > 0 ? a->tops + (size_t)a->n_output * (size_t)k : NULL;
}

rg_drawn rg_draw(rg_sample_scratch *s, int thread, const rg_request *r, int i, float *logits)
{
    const rg_sampling *sampling = &r->params.sampling;
    const rg_sample *a = &r->samples[i];
    rg_history history = { r->params.prompt, a->ids, r->params.n_prompt, a->n_output };
    rg_sample_key key = { .seed = sampling->seed, .sample = i, .position = r->params.n_prompt + a->n_output };
    bool may_end = a->n_output >= sampling->min_tokens;
    int32_t n_eos = sampling->ignore_eos ? 0 : r->n_eos;
    rg_drawn drawn = { .id = -1, .logprob = NAN };
    thread_scratch *own = &s->of[thread];

    if (!rg_all_finite(logits, s->vocab_size))
        return drawn;
    if (sampling->n_logprobs >= 0)
        memcpy(own->raw, logits, (size_t)s->vocab_size * sizeof *logits);
    if (a->grammar)
        rg_grammar_mask(a->grammar, logits, s->vocab_size, r->eos_ids, n_eos, may_end);
    for (int32_t k = 0; k < r->params.n_stop_ids && !may_end; k++)
        logits[r->params.stop_ids[k]] = -INFINITY;
    rg_sample_rules(own->sampler, logits, sampling, &history, r->eos_ids, may_end ? 0 : n_eos);
    drawn.id = rg_sample_draw(own->sampler, logits, sampling, &key);
    if (sampling->n_logprobs >= 0)
        drawn.logprob = rg_logprobs(own->sampler, own->raw, drawn.id, sampling->n_logprobs, rg_next_tops(r, a));
    return drawn;
}

/* From 1: those before id have a greater logit, or the same and a lower id. */
static int32_t rank_of(const float *logits, int32_t n, int32_t id)
{
    float own = logits[id];
    int32_t rank = 1;

    for (int32_t i = 0; i < id; i++)
        rank += logits[i] >= own;
    for (int32_t i = id + 1; i < n; i++)
        rank += logits[i] > own;
    return rank;
}

bool rg_draw_score(rg_sample_scratch *s, int thread, rg_request *r, int32_t position, const float *logits)
{
    int32_t k = r->params.n_prompt_tops, id = r->params.prompt[position];
    rg_top *tops = k ? r->score_tops + (size_t)position * (size_t)k : NULL;
    thread_scratch *own = &s->of[thread];

    if (!rg_all_finite(logits, s->vocab_size))
        return false;
    r->scores[position] = (rg_score){ .logprob = rg_logprobs(own->sampler, logits, id, k, tops),
                                      .rank = rank_of(logits, s->vocab_size, id) };
    return true;
}
