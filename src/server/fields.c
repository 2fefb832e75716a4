/* fields.c -- see fields.h. */
#include "server/fields.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { MAX_STOPS = 64, MAX_STOP_BYTES = 4096, MAX_STOP_IDS = 1024, MAX_BIAS = 1024, MAX_LOGPROBS = 20 };

/* ---- refusing ---------------------------------------------------------------------------------------------------- */

static void say(rg_refusal *e, int status, const char *code, const char *param, const char *fmt, va_list args)
{
    *e = (rg_refusal){ .status = status, .code = code };
    snprintf(e->param, sizeof e->param, "%s", param ? param : "");
    vsnprintf(e->text, sizeof e->text, fmt, args);
}

bool rg_refuse(rg_refusal *e, int status, const char *code, const char *param, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say(e, status, code, param, fmt, args);
    va_end(args);
    return false;
}

bool rg_refuse_field(rg_refusal *e, const char *param, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    say(e, 400, "invalid_value", param, fmt, args);
    va_end(args);
    return false;
}

bool rg_refuse_memory(rg_refusal *e)
{
    rg_refuse(e, 503, "out_of_memory", NULL, "There is no memory for this request now.");
    e->retry_after_s = 1;
    return false;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef enum kind { INT, LIMIT, NUM, BOOL, STR, WORD, SAME_INT, SAME_NUM, SAME_BOOL, SAME_WORD, ABSENT, ANY, OWN } kind;

typedef struct field {
    const char *name;
    unsigned where;
    kind kind;
    size_t offset;
    double min, max;
    const char *words;
} field;

enum { C = RG_API_COMPLETIONS, H = RG_API_CHAT, R = RG_API_RESPONSES, M = RG_API_MESSAGES,
       E = RG_API_EMBEDDINGS, K = RG_API_RERANK, S = RG_API_SCORE };

static const field fields[] = {
#define FIELD(name, where, kind, member, min, max, words)                                                              \
    { #name, where, kind, offsetof(rg_fields, member), min, max, words },
#include "server/fields.def"
#undef FIELD
};

static const field *find(const char *name, unsigned api)
{
    for (size_t i = 0; i < RG_LEN(fields); i++)
        if (fields[i].where & api && !strcmp(fields[i].name, name))
            return &fields[i];
    return NULL;
}

bool rg_one_of(const char *words, const char *s)
{
    size_t n = strchr(s, '|') ? 0 : strlen(s);

    for (const char *w = words; w; w = strchr(w, '|'), w += w != NULL)
        if (n && !strncmp(w, s, n) && (w[n] == '|' || !w[n]))
            return true;
    return false;
}

static bool read_int(const field *f, const json_t *v, int64_t *to, rg_refusal *e)
{
    if (!json_is_integer(v))
        return rg_refuse_field(e, f->name, "'%s' must be an integer.", f->name);
    json_int_t n = json_integer_value(v);
    if ((double)n < f->min || (double)n > f->max)
        return rg_refuse_field(e, f->name, "'%s' must be between %.0f and %.0f.", f->name, f->min, f->max);
    *to = n;
    return true;
}

/* How many tokens an answer may have: -1 is no limit. */
static bool read_limit(const field *f, const json_t *v, int64_t *to, rg_refusal *e)
{
    if (json_is_integer(v) && json_integer_value(v) == -1)
        return *to = RG_UNLIMITED, true;
    return read_int(f, v, to, e);
}

static bool read_number(const field *f, const json_t *v, double *to, rg_refusal *e)
{
    if (!json_is_number(v))
        return rg_refuse_field(e, f->name, "'%s' must be a number.", f->name);
    double n = json_number_value(v);
    if (!(n >= f->min && n <= f->max))
        return rg_refuse_field(e, f->name, "'%s' must be between %g and %g.", f->name, f->min, f->max);
    *to = n;
    return true;
}

static bool read_text(const field *f, const json_t *v, const char **to, rg_refusal *e)
{
    if (!json_is_string(v))
        return rg_refuse_field(e, f->name, "'%s' must be a string.", f->name);
    size_t n = json_string_length(v);
    if ((double)n < f->min || (double)n > f->max || strlen(json_string_value(v)) != n)
        return rg_refuse_field(e, f->name, "'%s' must have %.0f to %.0f bytes, none of them NUL.", f->name, f->min,
                               f->max);
    *to = json_string_value(v);
    return true;
}

/* A known field that is accepted only with the value that has no effect. */
static bool check_same(const field *f, const json_t *v, rg_refusal *e)
{
    bool type = f->kind == SAME_BOOL ? json_is_boolean(v) : f->kind == SAME_INT ? json_is_integer(v)
                : f->kind == SAME_WORD                                           ? json_is_string(v)
                                                                                 : json_is_number(v);

    if (!type)
        return rg_refuse_field(e, f->name, "'%s' must be %s.", f->name,
                               f->kind == SAME_BOOL  ? "true or false"
                               : f->kind == SAME_INT ? "an integer"
                               : f->kind == SAME_WORD ? "a string"
                                                      : "a number");
    if (f->kind == SAME_WORD ? rg_one_of(f->words, json_string_value(v))
        : f->kind == SAME_BOOL ? json_is_true(v) == (f->min != 0)
                               : json_number_value(v) == f->min)
        return true;
    return rg_refuse(e, 400, "unsupported_value", f->name, "'%s' is not supported with this value.", f->name);
}

static bool read_field(rg_fields *out, const field *f, const json_t *v, rg_refusal *e)
{
    char *to = (char *)out + f->offset;

    if (json_is_null(v))
        return true;
    switch (f->kind) {
    case INT:
        return read_int(f, v, (int64_t *)(void *)to, e);
    case LIMIT:
        return read_limit(f, v, (int64_t *)(void *)to, e);
    case NUM:
        return read_number(f, v, (double *)(void *)to, e);
    case STR:
        return read_text(f, v, (const char **)(void *)to, e);
    case BOOL:
        if (!json_is_boolean(v))
            return rg_refuse_field(e, f->name, "'%s' must be true or false.", f->name);
        *(bool *)to = json_is_true(v);
        return true;
    case WORD:
        if (!json_is_string(v) || !rg_one_of(f->words, json_string_value(v)))
            return rg_refuse_field(e, f->name, "'%s' must be one of %s.", f->name, f->words);
        *(const char **)(void *)to = json_string_value(v);
        return true;
    case ABSENT:
        return rg_refuse(e, 400, "unsupported_parameter", f->name, "'%s' is not supported.", f->name);
    case ANY:
    case OWN:
        return true;
    default:
        return check_same(f, v, e);
    }
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

static bool read_stop(rg_fields *f, const json_t *v, const char *name, rg_refusal *e)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1, total = 0;

    if (!v || json_is_null(v))
        return true;
    if (n > MAX_STOPS)
        return rg_refuse_field(e, name, "'%s' must have at most %d texts.", name, MAX_STOPS);
    f->stop = rg_array(n, sizeof *f->stop);
    if (!f->stop)
        return rg_refuse_memory(e);
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        size_t len = json_string_length(s);
        total += len;
        if (!json_is_string(s))
            return rg_refuse_field(e, name, "'%s' must be a string or a list of strings.", name);
        if (!len || strlen(json_string_value(s)) != len || total > MAX_STOP_BYTES)
            return rg_refuse_field(e, name, "'%s' must have texts of 1 to %d bytes in all, none of them NUL.", name,
                                   MAX_STOP_BYTES);
        f->stop[f->n_stop++] = json_string_value(s);
    }
    return true;
}

bool rg_ids_read(const json_t *list, const char *param, int32_t **ids, size_t *n, rg_refusal *e)
{
    size_t count = json_array_size(list);

    *n = 0;
    *ids = rg_array(count, sizeof **ids);
    if (!*ids)
        return rg_refuse_memory(e);
    for (; *n < count; ++*n) {
        const json_t *v = json_array_get(list, *n);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return rg_refuse_field(e, param, "'%s' must hold token ids: integers of the vocabulary.", param);
        (*ids)[*n] = (int32_t)json_integer_value(v);
    }
    return true;
}

static bool read_stop_ids(rg_fields *f, const json_t *v, rg_refusal *e)
{
    size_t n = 0;

    if (!v || json_is_null(v))
        return true;
    if (!json_is_array(v) || json_array_size(v) > MAX_STOP_IDS)
        return rg_refuse_field(e, "stop_token_ids", "'stop_token_ids' must be a list of at most %d ids.", MAX_STOP_IDS);
    bool ok = rg_ids_read(v, "stop_token_ids", &f->stop_ids, &n, e);
    f->n_stop_ids = (int32_t)n;
    return ok;
}

static bool read_bias(rg_fields *f, json_t *v, rg_refusal *e)
{
    const char *key;
    json_t *value;

    if (!v || json_is_null(v))
        return true;
    if (!json_is_object(v) || json_object_size(v) > MAX_BIAS)
        return rg_refuse_field(e, "logit_bias", "'logit_bias' must be an object of at most %d ids.", MAX_BIAS);
    f->bias = rg_array(json_object_size(v), sizeof *f->bias);
    if (!f->bias)
        return rg_refuse_memory(e);
    json_object_foreach(v, key, value) {
        size_t n = strlen(key);
        double x = json_number_value(value);
        if (!n || n > 10 || strspn(key, "0123456789") != n || strtoll(key, NULL, 10) > INT32_MAX)
            return rg_refuse_field(e, "logit_bias", "'logit_bias' must have token ids as its keys.");
        if (!json_is_number(value) || !(x >= -100 && x <= 100))
            return rg_refuse_field(e, "logit_bias", "'logit_bias' must have numbers between -100 and 100.");
        f->bias[f->n_bias++] =
            (rg_logit_bias){ (int32_t)strtoll(key, NULL, 10), x <= -100 ? -INFINITY : (float)x };
    }
    return true;
}

/* An int in completions, a bool beside top_logprobs in chat. */
static bool read_logprobs(rg_fields *f, const json_t *v, unsigned api, rg_refusal *e)
{
    static const field count = { "logprobs", 0, INT, 0, 0, MAX_LOGPROBS, NULL };
    bool wanted = false;
    int64_t n = f->n_probs > 0 ? f->n_probs : -1;

    f->n_logprobs = -1;
    if (api == RG_API_COMPLETIONS) {
        if (v && !json_is_null(v) && !read_int(&count, v, &n, e))
            return false;
        f->n_logprobs = (int32_t)n;
        return true;
    }
    if (v && !json_is_null(v)) {
        if (!json_is_boolean(v))
            return rg_refuse_field(e, "logprobs", "'logprobs' must be true or false.");
        wanted = json_is_true(v);
    }
    if (f->top_logprobs > 0 && !wanted && api == RG_API_CHAT)
        return rg_refuse_field(e, "top_logprobs", "'top_logprobs' needs 'logprobs' to be true.");
    if (wanted)
        f->n_logprobs = f->top_logprobs == RG_NOT_GIVEN ? 0 : (int32_t)f->top_logprobs;
    return true;
}

/* Log-probabilities of the prompt are shown apart, or in a completion's echo before those of the answer. */
static bool check_prompt_logprobs(rg_fields *f, rg_refusal *e)
{
    int64_t echoed = f->echo ? f->n_logprobs : -1;

    f->n_prompt_tops = (int32_t)(echoed > f->prompt_logprobs ? echoed : f->prompt_logprobs);
    if (f->prompt_logprobs >= 0 && f->stream)
        return rg_refuse(e, 400, "unsupported_value", "prompt_logprobs",
                         "'prompt_logprobs' is not supported with 'stream'.");
    return f->max_tokens != 0 || f->n_prompt_tops >= 0 ||
           rg_refuse_field(e, "max_tokens",
                           "'max_tokens' must be 1 or more, or log-probabilities of the prompt must be asked for.");
}

static bool read_early_stopping(rg_fields *f, const json_t *v, rg_refusal *e)
{
    if (json_is_boolean(v))
        f->early_stopping = json_is_true(v) ? RG_EARLY_STOPPING_TRUE : RG_EARLY_STOPPING_FALSE;
    else if (json_is_string(v) && !strcmp(json_string_value(v), "never"))
        f->early_stopping = RG_EARLY_STOPPING_NEVER;
    else if (v && !json_is_null(v))
        return rg_refuse_field(e, "early_stopping", "'early_stopping' must be true, false or \"never\".");
    return true;
}

/* Answers that are chosen when all have ended cannot be streamed. */
static bool read_search(rg_fields *f, const json_t *body, unsigned api, rg_refusal *e)
{
    const char *name = f->use_beams ? "use_beam_search" : "best_of";

    if (find("early_stopping", api) && api != RG_API_RESPONSES &&
        !read_early_stopping(f, json_object_get(body, "early_stopping"), e))
        return false;
    if (f->best_of != RG_NOT_GIVEN && f->best_of < f->n)
        return rg_refuse_field(e, "best_of", "'best_of' must not be below 'n'.");
    if (f->stream && (f->use_beams || f->best_of > f->n))
        return rg_refuse(e, 400, "unsupported_value", name, "'%s' is not supported with 'stream'.", name);
    if (f->use_beams && f->n_prompt_tops >= 0)
        return rg_refuse(e, 400, "unsupported_value", name,
                         "'%s' is not supported with log-probabilities of the prompt.", name);
    return true;
}

static bool read_stream_options(rg_fields *f, json_t *v, rg_refusal *e)
{
    static const char *const known[] = { "include_usage", "continuous_usage_stats", "include_obfuscation" };
    const char *key;
    json_t *value;

    if (!v || json_is_null(v))
        return true;
    if (!json_is_object(v))
        return rg_refuse_field(e, "stream_options", "'stream_options' must be an object.");
    if (!f->stream)
        return rg_refuse_field(e, "stream_options", "'stream_options' needs 'stream' to be true.");
    json_object_foreach(v, key, value) {
        for (size_t i = 0; i < RG_LEN(known); i++)
            if (!strcmp(key, known[i]) && !json_is_boolean(value) && !json_is_null(value))
                return rg_refuse_field(e, "stream_options", "'stream_options.%s' must be true or false.", known[i]);
    }
    f->include_usage = json_is_true(json_object_get(v, "include_usage"));
    f->pads = json_is_true(json_object_get(v, "include_obfuscation"));
    return true;
}

/* ---- what constrains the output ---------------------------------------------------------------------------------- */

static bool read_constraints(rg_fields *f, const json_t *body, unsigned api, rg_refusal *e)
{
    static const char *const names[] = { "response_format", "structured_outputs", "grammar", "json_schema",
                                         "guided_json", "guided_regex", "guided_choice", "guided_grammar" };

    for (size_t i = 0; i < RG_LEN(names); i++)
        if (find(names[i], api) && !rg_constraint_read(&f->constraint, json_object_get(body, names[i]), names[i], e))
            return false;
    return true;
}

static bool read_small(const json_t *body, unsigned api, rg_refusal *e)
{
    const json_t *m = json_object_get(body, "modalities"), *d = json_object_get(body, "metadata");

    if (api == RG_API_CHAT && m && !json_is_null(m)) {
        const char *only = json_array_size(m) == 1 ? json_string_value(json_array_get(m, 0)) : NULL;
        if (!only || strcmp(only, "text") != 0)
            return rg_refuse(e, 400, "unsupported_value", "modalities", "'modalities' must be [\"text\"].");
    }
    if (api != RG_API_COMPLETIONS && d && !json_is_null(d) && !json_is_object(d))
        return rg_refuse_field(e, "metadata", "'metadata' must be an object.");
    return true;
}

bool rg_fields_read(rg_fields *f, const json_t *body, unsigned api, rg_refusal *e)
{
    const char *key;
    json_t *v;

    *f = (rg_fields){ .steps = RG_NOT_GIVEN, .block_length = RG_NOT_GIVEN, .cfg_scale = (double)NAN,
                      .threshold = (double)NAN, .dimensions = RG_NOT_GIVEN, .max_tokens = RG_NOT_GIVEN,
                      .max_completion_tokens = RG_NOT_GIVEN, .n = 1, .n_logprobs = -1, .prompt_logprobs = -1,
                      .top_k = RG_NOT_GIVEN, .seed = RG_NOT_GIVEN, .top_logprobs = RG_NOT_GIVEN,
                      .temperature = (double)NAN, .top_p = (double)NAN, .min_p = (double)NAN, .typical_p = (double)NAN,
                      .repetition_penalty = (double)NAN, .presence_penalty = (double)NAN,
                      .frequency_penalty = (double)NAN, .parallel_tools = true, .generation_prompt = true,
                      .cache_prompt = true, .best_of = RG_NOT_GIVEN, .length_penalty = 1,
                      .add_special = api == RG_API_COMPLETIONS || api == RG_API_EMBEDDINGS, .include_reasoning = true,
                      .return_documents = true, .use_activation = true };
    json_object_foreach((json_t *)(uintptr_t)body, key, v) {
        const field *known = find(key, api);
        f->n_unknown += !known;
        if (known && !read_field(f, known, v, e))
            return false;
    }
    return read_stop(f, json_object_get(body, api == RG_API_MESSAGES ? "stop_sequences" : "stop"),
                     api == RG_API_MESSAGES ? "stop_sequences" : "stop", e) &&
           read_stop_ids(f, json_object_get(body, "stop_token_ids"), e) &&
           (!find("logit_bias", api) || read_bias(f, json_object_get(body, "logit_bias"), e)) &&
           (!find("logprobs", api) || read_logprobs(f, json_object_get(body, "logprobs"), api, e)) &&
           (!find("stream_options", api) || read_stream_options(f, json_object_get(body, "stream_options"), e)) &&
           check_prompt_logprobs(f, e) && read_search(f, body, api, e) && read_constraints(f, body, api, e) &&
           read_small(body, api, e);
}

void rg_fields_fini(rg_fields *f)
{
    rg_free(f->stop);
    rg_free(f->stop_ids);
    rg_free(f->bias);
    rg_constraint_fini(&f->constraint);
    f->stop = NULL;
    f->stop_ids = NULL;
    f->bias = NULL;
}

static void set_real(float *to, double v)
{
    if (!isnan(v))
        *to = (float)v;
}

rg_beam_params rg_fields_beams(const rg_fields *f)
{
    return (rg_beam_params){ .n_beams = !f->use_beams ? 0 : (int32_t)(f->best_of > f->n ? f->best_of : f->n),
                             .length_penalty = (float)f->length_penalty, .early_stopping = f->early_stopping };
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
    s.seed = f->seed == RG_NOT_GIVEN ? rg_seed() : (uint64_t)f->seed;
    s.min_tokens = (int32_t)f->min_tokens;
    s.ignore_eos = f->ignore_eos;
    s.n_logprobs = f->n_logprobs;
    s.bias = f->bias;
    s.n_bias = f->n_bias;
    return s;
}

rg_diffusion_params rg_fields_diffusion(const rg_fields *f)
{
    rg_diffusion_params p = { 0 };

    if (f->steps != RG_NOT_GIVEN)
        p.steps = (int32_t)f->steps;
    if (f->block_length != RG_NOT_GIVEN)
        p.block = (int32_t)f->block_length;
    set_real(&p.cfg_scale, f->cfg_scale);
    set_real(&p.threshold, f->threshold);
    if (f->remasking)
        p.remasking = (rg_remasking)rg_remasking_find(f->remasking);
    if (f->diffusion_cache)
        p.cache = (rg_diffusion_cache)rg_diffusion_cache_find(f->diffusion_cache);
    return p;
}
