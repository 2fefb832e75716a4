/* fields_sampling.c -- the fields that say how tokens are chosen, as the engine has them. */
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "server/api/fields.h"

enum { MAX_BREAKER_BYTES = 4096 };

static const char BREAKERS[] = "dry_sequence_breakers";

/* ---- sequence breakers ------------------------------------------------------------------------------------------- */

static bool keep_breakers(rg_breaker_list *b, const json_t *v, rg_refusal *e)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1, total = 0;

    if (n > RG_DRY_BREAKERS_MAX)
        return rg_refuse_field(e, BREAKERS, "'%s' must have at most %d texts.", BREAKERS, RG_DRY_BREAKERS_MAX);
    b->text = rg_array(n, sizeof *b->text);
    if (!b->text)
        return rg_refuse_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        size_t len = json_string_length(s);

        total += len;
        if (!json_is_string(s))
            return rg_refuse_field(e, BREAKERS, "'%s' must be a list of strings.", BREAKERS);
        if (strlen(json_string_value(s)) != len || total > MAX_BREAKER_BYTES)
            return rg_refuse_field(e, BREAKERS, "'%s' must have texts of at most %d bytes in all, none of them NUL.",
                                   BREAKERS, MAX_BREAKER_BYTES);
        b->text[b->n++] = json_string_value(s);
    }
    return true;
}

/* The list that a text is, with its brackets or without; NULL: it is none.  Blanks alone are a text. */
static json_t *list_within(const char *text, size_t n)
{
    size_t blanks = strspn(text, " \t\r\n");
    rg_buf b;
    json_t *list = NULL;

    if (blanks == n || n > MAX_BREAKER_BYTES)
        return NULL;
    rg_buf_init(&b, MAX_BREAKER_BYTES + 3);
    bool ok = text[blanks] == '[' ? rg_buf_add(&b, text, n)
                                  : rg_buf_str(&b, "[") && rg_buf_add(&b, text, n) && rg_buf_str(&b, "]");
    if (ok)
        list = rg_json_load(b.data, b.n, 0, NULL);
    rg_buf_fini(&b);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_string(json_array_get(list, i))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

bool rg_breakers_read(rg_breaker_list *b, const json_t *v, rg_refusal *e)
{
    if (!v)
        return true;
    if (json_is_string(v))
        b->parsed = list_within(json_string_value(v), json_string_length(v));
    return keep_breakers(b, b->parsed ? b->parsed : v, e);
}

void rg_breakers_fini(rg_breaker_list *b)
{
    rg_free(b->text);
    json_decref(b->parsed);
    *b = (rg_breaker_list){ 0 };
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void set_real(float *to, double v)
{
    if (!isnan(v))
        *to = (float)v;
}

static void set_int(int32_t *to, int64_t v)
{
    if (v != RG_NOT_GIVEN)
        *to = (int32_t)v;
}

rg_sampling rg_fields_sampling(const rg_fields *f, const rg_sampling *defaults)
{
    rg_sampling s = *defaults;

    s.no_repeat_ngram = (int32_t)f->no_repeat_ngram;
    set_real(&s.temperature, f->temperature);
    set_real(&s.top_p, f->top_p == 0 ? RG_TOP_P_MIN : f->top_p);
    set_real(&s.min_p, f->min_p);
    set_real(&s.typical_p, f->typical_p == 0 ? RG_TYPICAL_P_MIN : f->typical_p);
    set_real(&s.repetition_penalty, f->repetition_penalty);
    set_real(&s.presence_penalty, f->presence_penalty);
    set_real(&s.frequency_penalty, f->frequency_penalty);
    if (f->top_k != RG_NOT_GIVEN)
        s.top_k = f->top_k < 0 ? 0 : (int32_t)f->top_k; /* -1 too means all */
    set_real(&s.dry_multiplier, f->dry_multiplier);
    set_real(&s.dry_base, f->dry_base < RG_DRY_BASE_MIN ? (double)rg_sampling_default().dry_base : f->dry_base);
    set_real(&s.xtc_probability, f->xtc_probability);
    set_real(&s.xtc_threshold, f->xtc_threshold);
    set_real(&s.top_n_sigma, f->top_n_sigma);
    set_real(&s.dynatemp_range, f->dynatemp_range);
    set_real(&s.dynatemp_exponent, f->dynatemp_exponent);
    set_real(&s.mirostat_tau, f->mirostat_tau);
    set_real(&s.mirostat_eta, f->mirostat_eta);
    set_int(&s.dry_allowed_length, f->dry_allowed_length);
    set_int(&s.dry_penalty_last_n, f->dry_penalty_last_n);
    set_int(&s.mirostat, f->mirostat);
    if (f->dry_breakers.text) {
        s.dry_breakers = f->dry_breakers.text;
        s.n_dry_breakers = f->dry_breakers.n;
    }
    set_int(&s.penalty_last_n, f->penalty_last_n);
    if (f->penalty_last_n == 0) { /* of no ids, where 0 to the engine is the usual ones */
        s.repetition_penalty = 1;
        s.presence_penalty = s.frequency_penalty = 0;
    }
    s.seed = f->seed == RG_NOT_GIVEN ? rg_seed() : (uint64_t)f->seed;
    s.min_tokens = (int32_t)f->min_tokens;
    s.ignore_eos = f->ignore_eos;
    s.n_logprobs = f->n_logprobs;
    s.logprobs_drawn = f->post_sampling;
    s.bias = f->bias;
    s.n_bias = f->n_bias;
    return s;
}
