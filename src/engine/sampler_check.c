/* sampler_check.c -- sampling parameters that are refused. */
#include "engine/sampler.h"

static bool check_range(const char *name, float x, double low, double high, rg_error *err)
{
    if (x >= (float)low && x <= (float)high) /* false for NaN */
        return true;
    return rg_fail(err, RG_E_INPUT, "%s is %g: want a number in [%g, %g]", name, (double)x, low, high);
}

static bool check_last_n(const char *name, int32_t n, rg_error *err)
{
    return n >= -1 || rg_fail(err, RG_E_INPUT, "%s is %d: want -1 (all ids) or more", name, (int)n);
}

bool rg_sampling_check(const rg_sampling *p, int32_t vocab_size, rg_error *err)
{
    const float most = 1e6f;

#define CHECK(member, LIMIT) check_range(#member, p->member, RG_##LIMIT##_MIN, RG_##LIMIT##_MAX, err)
    if (!CHECK(temperature, TEMPERATURE) || !CHECK(top_p, TOP_P) || !CHECK(min_p, MIN_P) ||
        !CHECK(typical_p, TYPICAL_P) || !CHECK(repetition_penalty, REPETITION_PENALTY) ||
        !CHECK(presence_penalty, PRESENCE_PENALTY) || !CHECK(frequency_penalty, FREQUENCY_PENALTY) ||
        !CHECK(dry_multiplier, DRY_MULTIPLIER) || (p->dry_multiplier > 0 && !CHECK(dry_base, DRY_BASE)) ||
        !CHECK(xtc_probability, XTC_PROBABILITY) || !CHECK(xtc_threshold, XTC_THRESHOLD) ||
        !CHECK(top_n_sigma, TOP_N_SIGMA) || !CHECK(dynatemp_range, DYNATEMP_RANGE) ||
        !CHECK(dynatemp_exponent, DYNATEMP_EXPONENT) || !CHECK(mirostat_tau, MIROSTAT_TAU) ||
        !CHECK(mirostat_eta, MIROSTAT_ETA))
        return false;
#undef CHECK
    if (p->top_k < 0)
        return rg_fail(err, RG_E_INPUT, "top_k is %d: want 0 (no limit) or more", (int)p->top_k);
    if (p->min_tokens < 0)
        return rg_fail(err, RG_E_INPUT, "min_tokens is %d: want 0 or more", (int)p->min_tokens);
    if (p->no_repeat_ngram < 0)
        return rg_fail(err, RG_E_INPUT, "no_repeat_ngram is %d: want 0 (off) or more", (int)p->no_repeat_ngram);
    if (!check_last_n("penalty_last_n", p->penalty_last_n, err) ||
        !check_last_n("dry_penalty_last_n", p->dry_penalty_last_n, err))
        return false;
    if (p->dry_allowed_length < 0)
        return rg_fail(err, RG_E_INPUT, "dry_allowed_length is %d: want 0 or more", (int)p->dry_allowed_length);
    if (p->mirostat < 0 || p->mirostat > RG_MIROSTAT_MAX)
        return rg_fail(err, RG_E_INPUT, "mirostat is %d: want 0 (off), 1 or 2", (int)p->mirostat);
    if (p->n_logprobs < -1 || p->n_logprobs > vocab_size)
        return rg_fail(err, RG_E_INPUT, "n_logprobs is %d: want -1 (none) to %d", (int)p->n_logprobs, (int)vocab_size);
    if (p->n_bias < 0 || (p->n_bias && !p->bias))
        return rg_fail(err, RG_E_INPUT, "n_bias is %d, with no list of biases", (int)p->n_bias);
    for (int32_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || p->bias[i].id >= vocab_size)
            return rg_fail(err, RG_E_INPUT, "a logit bias is for id %d, and the vocabulary has %d", (int)p->bias[i].id,
                           (int)vocab_size);
        if (!(p->bias[i].bias <= most))
            return rg_fail(err, RG_E_INPUT, "the logit bias of id %d is not a number up to %g", (int)p->bias[i].id,
                           (double)most);
    }
    return true;
}

