/* sampling.c -- see sampling.h. */
#include "cli/sampling.h"

#include <stdlib.h>

#include "base/rng.h"

static bool parse_bias(cli_sampling *v, rg_error *err)
{
    for (int i = 0; i < v->bias_text.n; i++) {
        char *end;
        const char *s = v->bias_text.item[i];
        long id = strtol(s, &end, 10);
        if (end == s || *end != '=' || id < 0 || id > INT32_MAX)
            return rg_fail(err, RG_E_USAGE, "--logit-bias takes ID=BIAS, not '%.40s'", s);
        s = end + 1;
        v->bias[i] = (rg_logit_bias){ .id = (int32_t)id, .bias = strtof(s, &end) };
        if (end == s || *end)
            return rg_fail(err, RG_E_USAGE, "--logit-bias takes ID=BIAS, not '%.40s'", v->bias_text.item[i]);
    }
    v->s.bias = v->bias;
    v->s.n_bias = v->bias_text.n;
    return true;
}

bool cli_sampling_finish(cli_sampling *v, const rg_sampling *d, rg_error *err)
{
    rg_sampling *s = &v->s;

    s->temperature = v->temperature ? s->temperature : d->temperature;
    s->top_k = v->top_k ? s->top_k : d->top_k;
    s->top_p = v->top_p ? s->top_p : d->top_p;
    s->min_p = v->min_p ? s->min_p : d->min_p;
    s->typical_p = v->typical_p ? s->typical_p : d->typical_p;
    s->repetition_penalty = v->repetition ? s->repetition_penalty : d->repetition_penalty;
    s->presence_penalty = v->presence ? s->presence_penalty : d->presence_penalty;
    s->frequency_penalty = v->frequency ? s->frequency_penalty : d->frequency_penalty;
    s->n_logprobs = d->n_logprobs;
    if (!v->seed)
        s->seed = rg_seed() >> 12; /* short enough to be typed, and exact in JSON readers that know only doubles */
    return parse_bias(v, err);
}
