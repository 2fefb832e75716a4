/* sampling.c -- see sampling.h. */
#include "cli/sampling.h"

#include <stdlib.h>
#include <string.h>

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

/* A breaker as it was typed: \n, \t, \r, \\, \' and \" are one character. */
static bool unescape(const char *s, char *out, size_t room)
{
    static const char names[] = "ntr\\'\"", means[] = "\n\t\r\\'\"";

    for (size_t n = 0;; s++, n++) {
        const char *name = *s == '\\' && s[1] ? strchr(names, s[1]) : NULL;

        if (n == room)
            return false;
        s += name != NULL;
        out[n] = name ? means[name - names] : *s;
        if (!*s)
            return true;
    }
}

/* "none" takes away those before it, and the usual ones. */
static bool read_breakers(cli_sampling *v, rg_error *err)
{
    int n = 0;

    for (int i = 0; i < v->breaker_text.n; i++) {
        const char *text = v->breaker_text.item[i];

        if (!strcmp(text, "none")) {
            n = 0;
            continue;
        }
        if (!unescape(text, v->breaker_room[n], sizeof v->breaker_room[n]))
            return rg_fail(err, RG_E_USAGE, "--dry-sequence-breaker takes a text of at most %d bytes, not '%.40s...'",
                           (int)sizeof v->breaker_room[n] - 1, text);
        v->breakers[n] = v->breaker_room[n];
        n++;
    }
    if (v->breaker_text.n) {
        v->s.dry_breakers = v->breakers;
        v->s.n_dry_breakers = n;
    }
    return true;
}

/* DRY, XTC, the temperature's range, mirostat, and what penalties look at. */
static void settle_more(cli_sampling *v, const rg_sampling *d)
{
    rg_sampling *s = &v->s;

    s->dry_multiplier = v->dry ? s->dry_multiplier : d->dry_multiplier;
    s->dry_base = v->dry_base ? s->dry_base : d->dry_base;
    s->dry_allowed_length = v->dry_allowed ? s->dry_allowed_length : d->dry_allowed_length;
    s->dry_penalty_last_n = v->dry_last_n ? s->dry_penalty_last_n : d->dry_penalty_last_n;
    s->xtc_probability = v->xtc ? s->xtc_probability : d->xtc_probability;
    s->xtc_threshold = v->xtc_threshold ? s->xtc_threshold : d->xtc_threshold;
    s->top_n_sigma = v->n_sigma ? s->top_n_sigma : d->top_n_sigma;
    s->dynatemp_range = v->dynatemp ? s->dynatemp_range : d->dynatemp_range;
    s->dynatemp_exponent = v->dynatemp_exponent ? s->dynatemp_exponent : d->dynatemp_exponent;
    s->mirostat = v->mirostat ? s->mirostat : d->mirostat;
    s->mirostat_tau = v->mirostat_tau ? s->mirostat_tau : d->mirostat_tau;
    s->mirostat_eta = v->mirostat_eta ? s->mirostat_eta : d->mirostat_eta;
    if (v->last_n && !s->penalty_last_n) { /* of no ids, where 0 to the engine is the usual ones */
        s->repetition_penalty = 1;
        s->presence_penalty = s->frequency_penalty = 0;
    }
    s->penalty_last_n = v->last_n ? s->penalty_last_n : d->penalty_last_n;
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
    settle_more(v, d);
    if (!v->seed)
        s->seed = rg_seed() >> 12; /* short enough to be typed, and exact in JSON readers that know only doubles */
    return read_breakers(v, err) && parse_bias(v, err);
}
