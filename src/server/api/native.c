/* native.c -- see native.h. */
#include "server/api/native.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "server/api/mixed.h"

/* ---- bodies ------------------------------------------------------------------------------------------------------ */

/* Add pairs of id and bias for every id of a text. */
static bool add_text_bias(const rg_served *s, json_t *to, const char *text, json_t *bias, rg_refusal *e)
{
    rg_mixed ids;

    rg_mixed_init(&ids);
    bool ok = rg_mixed_text(&ids, s, text, strlen(text), RG_ENCODE_NO_SPECIAL, e);
    const int32_t *id = (const int32_t *)(const void *)ids.ids.data;
    for (size_t i = 0; ok && i < rg_mixed_n(&ids); i++)
        ok = json_array_append_new(to, json_pack("[i, O]", (int)id[i], bias)) == 0 || rg_refuse_memory(e);
    rg_mixed_fini(&ids);
    return ok;
}

static bool is_id(const char *key)
{
    size_t n = strlen(key);

    return n && n <= 10 && strspn(key, "0123456789") == n;
}

/* logit_bias may name texts in place of ids: every id of such a text has the bias. */
static bool adapt_bias(rg_call *c, rg_refusal *e)
{
    json_t *v = json_object_get(c->body, "logit_bias"), *out = json_array(), *entry, *pair;
    const char *key;
    size_t i;
    bool ok = out != NULL;

    if (json_is_object(v))
        json_object_foreach(v, key, entry)
        {
            ok = ok && (is_id(key) ? json_array_append_new(out, json_pack("[I, O]", strtoll(key, NULL, 10), entry)) == 0
                                   : add_text_bias(c->served, out, key, entry, e));
        }
    else
        json_array_foreach(v, i, pair)
        {
            const json_t *name = json_array_get(pair, 0);
            bool is_text = json_array_size(pair) == 2 && json_is_string(name);
            ok = ok && (is_text ? add_text_bias(c->served, out, json_string_value(name), json_array_get(pair, 1), e)
                                : json_array_append(out, pair) == 0);
        }
    if (ok && (json_is_object(v) || json_is_array(v)))
        ok = json_object_set(c->body, "logit_bias", out) == 0;
    json_decref(out);
    return ok || (e->status ? false : rg_refuse_memory(e));
}

bool rg_native_adapt(rg_call *c, rg_refusal *e)
{
    const json_t *n = json_object_get(c->body, "n_predict");
    int64_t limit;

    if (n && rg_json_whole(n, &limit) && limit < -1)
        json_object_set_new(c->body, "n_predict", json_integer(-1));
    return adapt_bias(c, e);
}

/* ---- samplers and adapters --------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    char letter;
} samplers[] = {
    { "penalties", 'e' },   { "dry", 'd' },    { "top_n_sigma", 's' }, { "top_k", 'k' },
    { "typ_p", 'y' },       { "top_p", 'p' },  { "min_p", 'm' },       { "xtc", 'x' },
    { "temperature", 't' }, { "infill", 'i' }, { "adaptive_p", 'a' },
};

static bool list_sampler(bool listed[RG_LEN(samplers)], const char *name, char letter)
{
    for (size_t i = 0; i < RG_LEN(samplers); i++)
        if (name ? !strcmp(name, samplers[i].name) || (!strcmp(name, "typical_p") && samplers[i].letter == 'y')
                 : letter == samplers[i].letter)
            return listed[i] = true;
    return false;
}

/* Samplers that the list leaves out are off; the order is always the engine's. */
static bool read_samplers(rg_call *c, rg_refusal *e)
{
    const json_t *v = json_object_get(c->body, "samplers");
    bool listed[RG_LEN(samplers)] = { false }, ok = true;
    rg_fields *f = &c->f;

    if (!v || json_is_null(v))
        return true;
    if (!json_is_string(v) && !json_is_array(v))
        return rg_refuse_field(e, "samplers", "'samplers' must be a list of names, or a string of letters.");
    for (const char *s = json_string_value(v); s && *s && ok; s++)
        ok = list_sampler(listed, NULL, *s);
    for (size_t i = 0; i < json_array_size(v) && ok; i++)
        ok = json_is_string(json_array_get(v, i)) && list_sampler(listed, json_string_value(json_array_get(v, i)), 0);
    if (!ok)
        return rg_refuse_field(e, "samplers",
                               "'samplers' names one that is not known: they are penalties, dry, "
                               "top_n_sigma, top_k, typ_p, top_p, min_p, xtc and temperature.");
    const struct {
        double *to, off;
        int at; /* in the list above */
    } off[] = { { &f->repetition_penalty, 1, 0 },
                { &f->presence_penalty, 0, 0 },
                { &f->frequency_penalty, 0, 0 },
                { &f->dry_multiplier, 0, 1 },
                { &f->top_n_sigma, 0, 2 },
                { &f->typical_p, 1, 4 },
                { &f->top_p, 1, 5 },
                { &f->min_p, 0, 6 },
                { &f->xtc_probability, 0, 7 },
                { &f->temperature, 1, 8 },
                { &f->dynatemp_range, 0, 8 } };
    for (size_t i = 0; i < RG_LEN(off); i++)
        if (!listed[off[i].at])
            *off[i].to = off[i].off;
    if (!listed[3])
        f->top_k = 0;
    return true;
}

/* lora: [{id, scale}], where one adapter at most is not 0, and has all of its weight. */
static bool read_lora(rg_call *c, rg_refusal *e)
{
    const json_t *list = json_object_get(c->body, "lora");

    if (!list)
        return true;
    if (!json_is_array(list))
        return rg_refuse_field(e, "lora", "'lora' must be a list of objects with 'id' and 'scale'.");
    const char *chosen = NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *scale = json_object_get(one, "scale");
        int64_t id;

        if (!rg_json_whole(json_object_get(one, "id"), &id) || id < 0 || id >= c->served->info.n_adapters ||
            !json_is_number(scale))
            return rg_refuse_field(e, "lora",
                                   "'lora' must hold objects with the 'id' of an adapter and a 'scale': "
                                   "there are %d adapters.",
                                   (int)c->served->info.n_adapters);
        double x = json_number_value(scale);
        if (x != 0 && (x != 1 || chosen))
            return rg_refuse(e, 400, "unsupported_value", "lora",
                             "'lora' may give one adapter a scale of 1, and all others 0.");
        if (x == 1)
            chosen = rg_engine_adapter(c->served->engine, (int32_t)id);
    }
    c->adapter = chosen;
    return true;
}

bool rg_native_read(rg_call *c, rg_refusal *e)
{
    if (c->f.n_logprobs > c->served->info.vocab_size)
        c->f.n_logprobs = c->served->info.vocab_size;
    if (c->f.n_logprobs == 0)
        c->f.n_logprobs = -1;
    return read_samplers(c, e) && read_lora(c, e);
}

/* ---- prompts ----------------------------------------------------------------------------------------------------- */

static bool refuse_media(const char *field, rg_refusal *e)
{
    return rg_refuse(e, 400, "unsupported_value", field,
                     "'%s' has something else than text: this model takes text alone.", field);
}

/* {content: [{type: text, text}]}: the texts one after the other. */
static bool add_content(rg_call *c, const json_t *content, rg_refusal *e)
{
    const char *field = c->shape->input;
    rg_buf all;
    bool ok = json_is_array(content) || rg_refuse_field(e, field, "'%s.content' must be a list of parts.", field);

    rg_buf_init(&all, (size_t)1 << 27);
    for (size_t i = 0; ok && i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));

        ok = type && !strcmp(type, "text") && json_is_string(text)
                 ? rg_buf_add(&all, json_string_value(text), json_string_length(text)) || rg_refuse_memory(e)
                 : refuse_media(field, e);
    }
    ok = ok && rg_call_add_text(c, all.data ? all.data : "", all.n, e);
    rg_buf_fini(&all);
    return ok;
}

static bool add_object(rg_call *c, const json_t *v, rg_refusal *e)
{
    const json_t *text = json_object_get(v, "prompt_string"), *media = json_object_get(v, "multimodal_data");

    if (json_object_get(v, "content"))
        return add_content(c, json_object_get(v, "content"), e);
    if (media && !json_is_null(media) && (!json_is_array(media) || json_array_size(media)))
        return refuse_media(c->shape->input, e);
    if (!json_is_string(text))
        return rg_refuse_field(e, c->shape->input, "'%s' must have a 'prompt_string'.", c->shape->input);
    return rg_call_add_text(c, json_string_value(text), json_string_length(text), e);
}

static bool add_mixed(rg_call *c, const json_t *list, rg_refusal *e)
{
    rg_mixed ids;

    rg_mixed_init(&ids);
    bool ok = rg_mixed_list(&ids, c->served, list, c->shape->input, c->f.add_special, e) && rg_mixed_take(&ids, c, e);
    rg_mixed_fini(&ids);
    return ok;
}

static bool add_one(rg_call *c, const json_t *v, rg_refusal *e)
{
    const char *field = c->shape->input;

    if (json_is_string(v))
        return rg_call_add_text(c, json_string_value(v), json_string_length(v), e);
    if (json_is_array(v))
        return add_mixed(c, v, e);
    if (json_is_object(v))
        return add_object(c, v, e);
    return rg_refuse_field(e, field, "'%s' must be a text, token ids, a list of both, or a list of prompts.", field);
}

bool rg_native_prompts(rg_call *c, bool *is_list, rg_refusal *e)
{
    const json_t *v = json_object_get(c->body, c->shape->input);
    bool ok = true, has_id = false;

    for (size_t i = 0; i < json_array_size(v) && !has_id; i++)
        has_id = json_is_number(json_array_get(v, i));
    *is_list = json_is_array(v) && !has_id;
    if (!*is_list)
        return add_one(c, v, e);
    if (!json_array_size(v))
        return rg_refuse_field(e, c->shape->input, "'%s' is empty: it needs one prompt at least.", c->shape->input);
    for (size_t i = 0; ok && i < json_array_size(v); i++)
        ok = add_one(c, json_array_get(v, i), e);
    return ok;
}

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static void write_bias(rg_buf *b, const rg_served *s, const rg_call *c)
{
    rg_out_open(b, "logit_bias", '[');
    for (int32_t i = 0; c && i < c->f.n_bias; i++) {
        rg_out_open(b, NULL, '{');
        rg_out_real(b, "bias", (double)c->f.bias[i].bias);
        rg_out_int(b, "token", c->f.bias[i].id);
        rg_out_close(b, '}');
    }
    for (int32_t i = 0; c && c->f.ignore_eos && i < s->info.n_eos; i++) {
        rg_out_open(b, NULL, '{');
        rg_out_null(b, "bias"); /* -infinity */
        rg_out_int(b, "token", s->info.eos_ids[i]);
        rg_out_close(b, '}');
    }
    rg_out_close(b, ']');
}

static void write_lists(rg_buf *b, const rg_served *s, const rg_call *c)
{
    static const char *const breakers[] = { "\n", ":", "\"", "*" };
    const bool own = c && c->f.dry_breakers.text;

    rg_out_open(b, "dry_sequence_breakers", '[');
    for (int32_t i = 0; i < (own ? c->f.dry_breakers.n : (int32_t)RG_LEN(breakers)); i++)
        rg_out_text(b, NULL, own ? c->f.dry_breakers.text[i] : breakers[i]);
    rg_out_close(b, ']');
    rg_out_open(b, "stop", '[');
    for (int32_t i = 0; c && i < c->f.n_stop; i++)
        rg_out_text(b, NULL, c->f.stop[i]);
    rg_out_close(b, ']');
    write_bias(b, s, c);
    rg_out_open(b, "samplers", '[');
    for (size_t i = 0; i + 2 < RG_LEN(samplers); i++)
        rg_out_text(b, NULL, samplers[i].name);
    rg_out_close(b, ']');
    rg_out_open(b, "lora", '[');
    rg_out_close(b, ']');
}

void rg_native_settings(rg_buf *b, const char *key, const rg_served *s, const rg_call *c)
{
    const rg_sampling *p = c ? &c->sampling : &s->info.sampling;
    int64_t asked = !c ? (s->server->o.max_tokens ? s->server->o.max_tokens : -1)
                    : c->f.max_completion_tokens == RG_UNLIMITED ? -1
                    : c->f.max_completion_tokens != RG_NOT_GIVEN ? c->f.max_completion_tokens
                    : c->f.max_tokens != RG_NOT_GIVEN            ? c->f.max_tokens
                                                                 : -1;
    const struct {
        const char *name;
        double v;
    } reals[] = {
        { "temperature", (double)p->temperature },
        { "dynatemp_range", (double)p->dynatemp_range },
        { "dynatemp_exponent", (double)p->dynatemp_exponent },
        { "top_p", (double)p->top_p },
        { "min_p", (double)p->min_p },
        { "top_n_sigma", (double)p->top_n_sigma },
        { "xtc_probability", (double)p->xtc_probability },
        { "xtc_threshold", (double)p->xtc_threshold },
        { "typical_p", (double)p->typical_p },
        { "repeat_penalty", (double)p->repetition_penalty },
        { "presence_penalty", (double)p->presence_penalty },
        { "frequency_penalty", (double)p->frequency_penalty },
        { "dry_multiplier", (double)p->dry_multiplier },
        { "dry_base", (double)p->dry_base },
        { "mirostat_tau", (double)p->mirostat_tau },
        { "mirostat_eta", (double)p->mirostat_eta },
        { "adaptive_target", -1 },
        { "adaptive_decay", 0.9 },
    };
    const struct {
        const char *name;
        int64_t v;
    } ints[] = {
        { "top_k", p->top_k },
        { "repeat_last_n", p->penalty_last_n },
        { "dry_allowed_length", p->dry_allowed_length },
        { "dry_penalty_last_n", p->dry_penalty_last_n },
        { "mirostat", p->mirostat },
        { "n_keep", 0 },
        { "n_discard", 0 },
        { "min_keep", 0 },
        { "n_probs", p->n_logprobs > 0 ? p->n_logprobs : 0 },
    };

    rg_out_open(b, key, '{');
    rg_out_int(b, "n_predict", asked);
    rg_out_int(b, "max_tokens", asked);
    rg_out_u64(b, "seed", p->seed);
    for (size_t i = 0; i < RG_LEN(reals); i++)
        rg_out_real(b, reals[i].name, reals[i].v);
    for (size_t i = 0; i < RG_LEN(ints); i++)
        rg_out_int(b, ints[i].name, ints[i].v);
    rg_out_bool(b, "ignore_eos", c && c->f.ignore_eos);
    rg_out_bool(b, "stream", c && c->f.stream);
    rg_out_bool(b, "timings_per_token", c && c->f.timings_always);
    rg_out_bool(b, "post_sampling_probs", c && c->f.post_sampling);
    rg_out_text(b, "grammar",
                c && c->f.constraint.name && c->f.constraint.kind == RG_GRAMMAR_GBNF ? c->f.constraint.text : "");
    rg_out_bool(b, "grammar_lazy", false);
    write_lists(b, s, c);
    rg_out_close(b, '}');
}
