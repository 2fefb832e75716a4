/* fields.c -- see fields.h. */
#include "server/api/field_letters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum {
    MAX_STOPS = 64,
    MAX_STOP_BYTES = 4096,
    MAX_STOP_IDS = 1024,
    MAX_BIAS = 1024,
    MAX_LOGPROBS = 20,
    MAX_SIMULATIONS = 4096,
    MAX_LEAVES = 64,
    MAX_WIDTH = 64,
    USUAL_SIMULATIONS = 64
};

/* ---- the table --------------------------------------------------------------------------------------------------- */

typedef struct field {
    const char *name;
    unsigned where;
    kind kind;
    size_t offset;
    double min, max;
    const char *words;
} field;

static const field fields[] = {
#define FIELD(name, where, kind, member, min, max, words)                                                              \
    { #name, where, kind, offsetof(rg_fields, member), min, max, words },
#include "server/api/fields.def"
#undef FIELD
};

static const field *find(const char *name, unsigned api)
{
    for (size_t i = 0; i < RG_LEN(fields); i++)
        if (fields[i].where & api && !strcmp(fields[i].name, name))
            return &fields[i];
    return NULL;
}

bool rg_metadata_check(const json_t *metadata, rg_refusal *e)
{
    enum { PAIRS = 16, KEY = 64, VALUE = 512 };
    const char *key;
    json_t *value;

    if (!metadata || json_is_null(metadata))
        return true;
    if (!json_is_object(metadata) || json_object_size(metadata) > PAIRS)
        return rg_refuse_field(e, "metadata", "'metadata' must be an object of %d pairs at most.", PAIRS);
    json_object_foreach(
        (json_t *)(uintptr_t)metadata, key,
        value) if (strlen(key) > KEY || !json_is_string(value) ||
                   json_string_length(value) >
                       VALUE) return rg_refuse_field(e, "metadata",
                                                     "'metadata' must have keys of %d bytes and strings of %d at most.",
                                                     KEY, VALUE);
    return true;
}

bool rg_one_of(const char *words, const char *s)
{
    size_t n = strchr(s, '|') ? 0 : strlen(s);

    for (const char *w = words, *bar; w; bar = strchr(w, '|'), w = bar ? bar + 1 : NULL)
        if (n && !strncmp(w, s, n) && (w[n] == '|' || !w[n]))
            return true;
    return false;
}

/* True if the endpoint reads this field by code of its own. */
static bool has_own(const char *name, unsigned api)
{
    const field *f = find(name, api);

    return f && f->kind == OWN;
}

static bool equal(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal((json_t *)(uintptr_t)a, (json_t *)(uintptr_t)b);
}

/* True if v is null, or one of the values with which the field asks for nothing. */
static bool asks_nothing(const field *f, const json_t *v)
{
    bool found = json_is_null(v);

    for (const char *w = f->kind == WORD ? NULL : f->words; w && !found;) {
        size_t n = strcspn(w, "|");
        json_t *idle = rg_json_load(w, n, JSON_DECODE_ANY, NULL);
        found = idle && equal(v, idle);
        json_decref(idle);
        w = w[n] ? w + n + 1 : NULL;
    }
    return found;
}

static bool read_int(const field *f, const json_t *v, int64_t *to, rg_refusal *e)
{
    int64_t n;

    if (!rg_json_whole(v, &n))
        return rg_refuse_field(e, f->name, "'%s' must be an integer.", f->name);
    if ((double)n < f->min || (double)n > f->max)
        return rg_refuse_field(e, f->name, "'%s' must be between %.0f and %.0f.", f->name, f->min, f->max);
    *to = n;
    return true;
}

/* How many tokens an answer may have: -1 is no limit. */
static bool read_limit(const field *f, const json_t *v, int64_t *to, rg_refusal *e)
{
    int64_t n;

    if (rg_json_whole(v, &n) && n == -1)
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

/* A field that is known and not supported, with a value that asks for something.  If nothing but an empty value is
 * accepted, it is the field that is not supported. */
static bool refuse_off(const field *f, rg_refusal *e)
{
    static const char *const empty[] = { "\"\"", "[]", "{}" };
    bool no_value = !f->words;

    for (size_t i = 0; i < RG_LEN(empty) && !no_value; i++)
        no_value = !strncmp(f->words, empty[i], strlen(empty[i]));
    if (no_value)
        return rg_refuse(e, 400, "unsupported_parameter", f->name, "'%s' is not supported.", f->name);
    return rg_refuse(e, 400, "unsupported_value", f->name,
                     "'%s' is not supported with this value, but only with %.120s, which asks for nothing.", f->name,
                     f->words);
}

static bool read_field(rg_fields *out, const field *f, const json_t *v, rg_refusal *e)
{
    char *to = (char *)out + f->offset;

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
    case OFF:
        return refuse_off(f, e);
    default: /* ANY, OWN */
        return true;
    }
}

/* ---- lists ------------------------------------------------------------------------------------------------------- */

/* Add a text, or a list of texts, to the stop texts; one that is there already counts once. */
static bool add_stops(rg_fields *f, const json_t *v, const char *name, rg_refusal *e)
{
    size_t n = json_is_array(v) ? json_array_size(v) : 1, total = 0;
    const char **all;

    if (!v)
        return true;
    if (n > MAX_STOPS)
        return rg_refuse_field(e, name, "'%s' must have at most %d texts.", name, MAX_STOPS);
    all = rg_resize_array(f->stop, (size_t)f->n_stop + n, sizeof *f->stop); /* fits: at most MAX_STOPS for each name */
    if (!all)
        return rg_refuse_memory(e);
    f->stop = all;
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        size_t len = json_string_length(s);
        bool known = false;
        total += len;
        if (!json_is_string(s))
            return rg_refuse_field(e, name, "'%s' must be a string or a list of strings.", name);
        if (!len || strlen(json_string_value(s)) != len || total > MAX_STOP_BYTES)
            return rg_refuse_field(e, name, "'%s' must have texts of 1 to %d bytes in all, none of them NUL.", name,
                                   MAX_STOP_BYTES);
        for (int32_t k = 0; k < f->n_stop && !known; k++)
            known = !strcmp(f->stop[k], json_string_value(s));
        if (!known)
            f->stop[f->n_stop++] = json_string_value(s);
    }
    return true;
}

static bool read_stop(rg_fields *f, const json_t *body, unsigned api, rg_refusal *e)
{
    static const char *const names[] = { "stop", "stop_sequences", "stopping_strings" };

    for (size_t i = 0; i < RG_LEN(names); i++)
        if (has_own(names[i], api) && !add_stops(f, json_object_get(body, names[i]), names[i], e))
            return false;
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
        int64_t id;
        if (!rg_json_whole(json_array_get(list, *n), &id) || id < 0 || id > INT32_MAX)
            return rg_refuse_field(e, param, "'%s' must hold token ids: integers of the vocabulary.", param);
        (*ids)[*n] = (int32_t)id;
    }
    return true;
}

static bool read_stop_ids(rg_fields *f, const json_t *v, rg_refusal *e)
{
    size_t n = 0;

    if (!v)
        return true;
    if (!json_is_array(v) || json_array_size(v) > MAX_STOP_IDS)
        return rg_refuse_field(e, "stop_token_ids", "'stop_token_ids' must be a list of at most %d ids.", MAX_STOP_IDS);
    bool ok = rg_ids_read(v, "stop_token_ids", &f->stop_ids, &n, e);
    f->n_stop_ids = (int32_t)n;
    return ok;
}

/* The bias of one id; false, as other servers have it, bans it. */
static bool add_bias(rg_fields *f, int64_t id, const json_t *value, rg_refusal *e)
{
    double x = json_is_false(value) ? -100 : json_number_value(value);

    if (id < 0 || id > INT32_MAX)
        return rg_refuse_field(e, "logit_bias", "'logit_bias' must have token ids as its keys.");
    if (!(json_is_number(value) || json_is_false(value)) || !(x >= -100 && x <= 100))
        return rg_refuse_field(e, "logit_bias", "'logit_bias' must have numbers between -100 and 100.");
    f->bias[f->n_bias++] = (rg_logit_bias){ (int32_t)id, x <= -100 ? -INFINITY : (float)x };
    return true;
}

/* An object by id, or a list of pairs of id and bias. */
static bool read_bias(rg_fields *f, json_t *v, rg_refusal *e)
{
    size_t n = json_is_array(v) ? json_array_size(v) : json_object_size(v), i;
    const char *key;
    json_t *value;

    if (!v)
        return true;
    if (!(json_is_object(v) || json_is_array(v)) || n > MAX_BIAS)
        return rg_refuse_field(e, "logit_bias", "'logit_bias' must be an object of at most %d ids.", MAX_BIAS);
    f->bias = rg_array(n, sizeof *f->bias);
    if (!f->bias)
        return rg_refuse_memory(e);
    json_object_foreach(v, key, value)
    {
        size_t len = strlen(key);
        bool is_id = len && len <= 10 && strspn(key, "0123456789") == len;
        if (!add_bias(f, is_id ? strtoll(key, NULL, 10) : -1, value, e))
            return false;
    }
    json_array_foreach(v, i, value)
    {
        int64_t id;
        if (json_array_size(value) != 2 || !rg_json_whole(json_array_get(value, 0), &id))
            return rg_refuse_field(e, "logit_bias", "'logit_bias' as a list must hold pairs of a token id and a bias.");
        if (!add_bias(f, id, json_array_get(value, 1), e))
            return false;
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
    if (api == RG_API_COMPLETIONS || api & RG_API_NATIVE) {
        if (v && !read_int(&count, v, &n, e))
            return false;
        f->n_logprobs = (int32_t)n;
        return true;
    }
    if (v) {
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
    else if (v)
        return rg_refuse_field(e, "early_stopping", "'early_stopping' must be true, false or \"never\".");
    return true;
}

/* A whole number of a search, or a real one (to_real). */
typedef struct tree_member {
    const char *name;
    size_t offset;
    double min, max;
    bool is_real;
} tree_member;

static const tree_member tree_members[] = {
    { "simulations", offsetof(rg_search_params, simulations), 1, MAX_SIMULATIONS, false },
    { "leaves", offsetof(rg_search_params, leaves), 1, MAX_LEAVES, false },
    { "width", offsetof(rg_search_params, width), 1, MAX_WIDTH, false },
    { "span", offsetof(rg_search_params, span), 1, RG_SPAN_MAX, false },
    { "rollout", offsetof(rg_search_params, rollout), 0, INT32_MAX, false },
    { "explore", offsetof(rg_search_params, explore), 0, RG_EXPLORE_MAX, true },
    { "length_penalty", offsetof(rg_search_params, length_penalty), RG_LENGTH_PENALTY_MIN, RG_LENGTH_PENALTY_MAX,
      true },
};

static bool read_tree_member(rg_search_params *p, const char *name, const json_t *v, rg_refusal *e)
{
    const tree_member *m = tree_members, *end = tree_members + RG_LEN(tree_members);

    while (m < end && strcmp(m->name, name))
        m++;
    if (m == end)
        return rg_refuse_field(e, "search",
                               "'search.%.40s' is not one of simulations, leaves, width, span, rollout, "
                               "explore, length_penalty.",
                               name);
    if (!json_is_number(v) || (!m->is_real && !json_is_integer(v)) || !(json_number_value(v) >= m->min) ||
        !(json_number_value(v) <= m->max))
        return rg_refuse_field(e, "search", "'search.%s' must be %s between %g and %g.", m->name,
                               m->is_real ? "a number" : "an integer", m->min, m->max);
    if (m->is_real)
        *(float *)(void *)((char *)p + m->offset) = (float)json_number_value(v);
    else
        *(int32_t *)(void *)((char *)p + m->offset) = (int32_t)json_integer_value(v);
    return true;
}

/* "mcts", true, or an object of what it is to be like. */
static bool read_tree(rg_fields *f, const json_t *v, rg_refusal *e)
{
    const json_t *explore = json_object_get(v, "explore");
    const char *name;
    json_t *member;

    if (!v)
        return true;
    if (!json_is_object(v) && !json_is_true(v) && !(json_is_string(v) && !strcmp(json_string_value(v), "mcts")))
        return rg_refuse_field(e, "search", "'search' must be \"mcts\", or an object with simulations, leaves ...");
    f->search.simulations = USUAL_SIMULATIONS;
    json_object_foreach((json_t *)(uintptr_t)v, name,
                        member) if (!read_tree_member(&f->search, name, member, e)) return false;
    if (explore && !(f->search.explore > 0))
        f->search.explore = -1; /* 0 says nothing */
    if (f->use_beams || f->best_of != RG_NOT_GIVEN)
        return rg_refuse_field(e, "search", "'search' does not go together with 'best_of' and 'use_beam_search'.");
    if (f->stream)
        return rg_refuse(e, 400, "unsupported_value", "search", "'search' is not supported with 'stream'.");
    return f->n <= f->search.simulations || rg_refuse_field(e, "n", "'n' must not be above 'search.simulations'.");
}

/* Answers that are chosen when all have ended cannot be streamed. */
static bool read_search(rg_fields *f, const json_t *body, unsigned api, rg_refusal *e)
{
    const char *name = f->use_beams ? "use_beam_search" : "best_of";

    if (has_own("search", api) && !read_tree(f, json_object_get(body, "search"), e))
        return false;
    if (f->scorer && !f->search.simulations && (f->use_beams || f->best_of <= f->n || f->best_of_by))
        return rg_refuse_field(e, "scorer",
                               "'scorer' needs a 'search', or a 'best_of' above 'n' without beams and "
                               "without 'best_of_by'.");
    if (f->scorer_query && !f->scorer)
        return rg_refuse_field(e, "scorer_query", "'scorer_query' needs a 'scorer'.");
    if (has_own("early_stopping", api) && !read_early_stopping(f, json_object_get(body, "early_stopping"), e))
        return false;
    if (f->best_of != RG_NOT_GIVEN && f->best_of < f->n)
        return rg_refuse_field(e, "best_of", "'best_of' must not be below 'n'.");
    if (f->stream && (f->use_beams || f->best_of > f->n))
        return rg_refuse(e, 400, "unsupported_value", name, "'%s' is not supported with 'stream'.", name);
    if (f->best_of_by && !strcmp(f->best_of_by, "majority")) {
        if (f->use_beams || !(f->best_of > f->n))
            return rg_refuse_field(e, "best_of_by", "'best_of_by' majority needs a 'best_of' above 'n', and no beams.");
        f->n_told = f->n;
        f->n = f->best_of;
        f->best_of = RG_NOT_GIVEN;
    }
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

    if (!v)
        return true;
    if (!json_is_object(v))
        return rg_refuse_field(e, "stream_options", "'stream_options' must be an object.");
    if (!f->stream)
        return rg_refuse_field(e, "stream_options", "'stream_options' needs 'stream' to be true.");
    json_object_foreach(v, key, value)
    {
        for (size_t i = 0; i < RG_LEN(known); i++)
            if (!strcmp(key, known[i]) && !json_is_boolean(value) && !json_is_null(value))
                return rg_refuse_field(e, "stream_options", "'stream_options.%s' must be true or false.", known[i]);
    }
    f->include_usage = json_is_true(json_object_get(v, "include_usage"));
    f->usage_always = f->include_usage && json_is_true(json_object_get(v, "continuous_usage_stats"));
    f->pads = json_is_true(json_object_get(v, "include_obfuscation"));
    return true;
}

/* ---- what constrains the output ---------------------------------------------------------------------------------- */

static bool read_constraints(rg_fields *f, const json_t *body, unsigned api, rg_refusal *e)
{
    static const char *const names[] = { "response_format", "format",        "structured_outputs",
                                         "grammar",         "json_schema",   "guided_json",
                                         "guided_regex",    "guided_choice", "guided_grammar",
                                         "regex",           "ebnf",          "grammar_string" };

    for (size_t i = 0; i < RG_LEN(names); i++)
        if (has_own(names[i], api) && !rg_constraint_read(&f->constraint, json_object_get(body, names[i]), names[i], e))
            return false;
    return true;
}

static bool read_small(const json_t *body, unsigned api, rg_refusal *e)
{
    const json_t *m = json_object_get(body, "modalities"), *d = json_object_get(body, "metadata");

    if (has_own("modalities", api) && m) {
        const char *only = json_array_size(m) == 1 ? json_string_value(json_array_get(m, 0)) : NULL;
        if (!only || strcmp(only, "text") != 0)
            return rg_refuse(e, 400, "unsupported_value", "modalities", "'modalities' must be [\"text\"].");
    }
    if (has_own("metadata", api) && d && !json_is_object(d))
        return rg_refuse_field(e, "metadata", "'metadata' must be an object.");
    return true;
}

bool rg_fields_read(rg_fields *f, json_t *body, unsigned api, rg_refusal *e)
{
    const char *key;
    json_t *v;
    void *next;

    *f = (rg_fields){ .steps = RG_NOT_GIVEN,
                      .block_length = RG_NOT_GIVEN,
                      .cfg_scale = (double)NAN,
                      .threshold = (double)NAN,
                      .dimensions = RG_NOT_GIVEN,
                      .max_tokens = RG_NOT_GIVEN,
                      .truncate_tokens = RG_NOT_GIVEN,
                      .thinking_budget = RG_NOT_GIVEN,
                      .max_completion_tokens = RG_NOT_GIVEN,
                      .n = 1,
                      .n_logprobs = -1,
                      .prompt_logprobs = -1,
                      .top_k = RG_NOT_GIVEN,
                      .seed = RG_NOT_GIVEN,
                      .top_logprobs = RG_NOT_GIVEN,
                      .temperature = (double)NAN,
                      .top_p = (double)NAN,
                      .min_p = (double)NAN,
                      .typical_p = (double)NAN,
                      .repetition_penalty = (double)NAN,
                      .presence_penalty = (double)NAN,
                      .frequency_penalty = (double)NAN,
                      .dry_multiplier = (double)NAN,
                      .dry_base = (double)NAN,
                      .xtc_probability = (double)NAN,
                      .xtc_threshold = (double)NAN,
                      .top_n_sigma = (double)NAN,
                      .dynatemp_range = (double)NAN,
                      .dynatemp_exponent = (double)NAN,
                      .mirostat_tau = (double)NAN,
                      .mirostat_eta = (double)NAN,
                      .penalty_last_n = RG_NOT_GIVEN,
                      .dry_allowed_length = RG_NOT_GIVEN,
                      .dry_penalty_last_n = RG_NOT_GIVEN,
                      .mirostat = RG_NOT_GIVEN,
                      .parallel_tools = true,
                      .generation_prompt = true,
                      .cache_prompt = true,
                      .best_of = RG_NOT_GIVEN,
                      .length_penalty = 1,
                      .add_special = (api & (RG_API_COMPLETIONS | RG_API_EMBEDDINGS)) != 0,
                      .include_reasoning = true,
                      .norm = 2,
                      .return_documents = true,
                      .use_activation = true,
                      .store = api == RG_API_RESPONSES };
    json_object_foreach_safe(body, next, key, v)
    {
        const field *known = find(key, api);
        f->n_unknown += !known;
        if (known && asks_nothing(known, v))
            json_object_del(body, key);
        else if (known && !read_field(f, known, v, e))
            return false;
    }
    return read_stop(f, body, api, e) &&
           (!has_own("stop_token_ids", api) || read_stop_ids(f, json_object_get(body, "stop_token_ids"), e)) &&
           (!has_own("logit_bias", api) || read_bias(f, json_object_get(body, "logit_bias"), e)) &&
           (!has_own("dry_sequence_breakers", api) ||
            rg_breakers_read(&f->dry_breakers, json_object_get(body, "dry_sequence_breakers"), e)) &&
           (!has_own("logprobs", api) || read_logprobs(f, json_object_get(body, "logprobs"), api, e)) &&
           (!has_own("stream_options", api) || read_stream_options(f, json_object_get(body, "stream_options"), e)) &&
           check_prompt_logprobs(f, e) && read_search(f, body, api, e) && read_constraints(f, body, api, e) &&
           read_small(body, api, e);
}

void rg_fields_fini(rg_fields *f)
{
    rg_free(f->stop);
    rg_free(f->stop_ids);
    rg_free(f->bias);
    rg_breakers_fini(&f->dry_breakers);
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
                             .length_penalty = (float)f->length_penalty,
                             .early_stopping = f->early_stopping };
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
