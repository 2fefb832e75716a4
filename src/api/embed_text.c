/* embed_text.c -- see embed_text.h. */
#include "api/embed_text.h"

#include <jansson.h>
#include <string.h>
#include <utf8proc.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "ckpt/json.h"

/* A JSON object beside the checkpoint.  NULL: there is none, or (*why) it cannot be read. */
static json_t *read_beside(const rg_checkpoint *ckpt, const char *name, rg_error *why)
{
    size_t n = 0;
    char *text = rg_checkpoint_side_file(ckpt, name, &n, why);
    json_t *v = text ? rg_json_parse(name, text, n, why) : NULL;

    rg_free(text);
    return v;
}

/* True unless the file could not be read: then embeddings are refused, or there is no memory (*err). */
static bool is_fine(rg_embedding *e, const char *name, const rg_error *why, rg_error *err)
{
    if (why->code == RG_OK)
        return true;
    if (why->code == RG_E_MEMORY)
        return rg_fail(err, RG_E_MEMORY, "%s", why->text);
    return rg_embedding_refuse(e, "the checkpoint's %s cannot be read", name);
}

/* The settings of the module that runs the model, by the names of all its versions. */
static bool read_transformer(rg_embed_text *t, rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const names[] = {
        "sentence_bert_config.json",      "sentence_roberta_config.json", "sentence_distilbert_config.json",
        "sentence_camembert_config.json", "sentence_albert_config.json",  "sentence_xlm-roberta_config.json",
        "sentence_xlnet_config.json",
    };
    json_t *config = NULL;

    for (size_t i = 0; !config && i < RG_LEN(names); i++) {
        rg_error why = { 0 };

        config = read_beside(ckpt, names[i], &why);
        if (!is_fine(e, names[i], &why, err))
            return false;
    }
    const json_int_t n = json_integer_value(json_object_get(config, "max_seq_length"));
    t->max_ids = n > 0 && n < INT32_MAX ? (int32_t)n : 0;
    t->lower = json_is_true(json_object_get(config, "do_lower_case"));
    json_decref(config);
    return true;
}

static bool take_prompts(rg_embed_text *t, json_t *prompts, rg_error *err)
{
    const size_t n = json_object_size(prompts);

    t->prompts = rg_array(n, sizeof *t->prompts);
    if (!t->prompts)
        return rg_fail_memory(err, n * sizeof *t->prompts);
    for (void *i = json_object_iter(prompts); i; i = json_object_iter_next(prompts, i)) {
        const char *text = json_string_value(json_object_iter_value(i));
        rg_embed_prompt *p = &t->prompts[t->n_prompts];

        if (!text)
            continue;
        t->n_prompts++;
        p->name = rg_strdup(json_object_iter_key(i));
        p->text = rg_strdup(text);
        if (!p->name || !p->text)
            return rg_fail_memory(err, strlen(text));
    }
    return true;
}

static int find_prompt(const rg_embed_text *t, const char *name)
{
    for (int i = 0; i < t->n_prompts; i++)
        if (!strcmp(t->prompts[i].name, name))
            return i;
    return -1;
}

static bool read_prompts(rg_embed_text *t, rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char name[] = "config_sentence_transformers.json";
    rg_error why = { 0 };
    json_t *config = read_beside(ckpt, name, &why);
    const char *chosen = json_string_value(json_object_get(config, "default_prompt_name"));
    bool ok = is_fine(e, name, &why, err) && take_prompts(t, json_object_get(config, "prompts"), err);

    if (ok && chosen && (t->chosen = find_prompt(t, chosen)) < 0)
        rg_embedding_refuse(e, "the checkpoint's default_prompt_name '%.40s' is not one of its prompts", chosen);
    json_decref(config);
    return ok;
}

bool rg_embed_text_open(rg_embed_text *t, rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    const char *side = "right";

    *t = (rg_embed_text){ .chosen = -1, .skips_prompt = e->skips_prompt };
    if (rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF)
        return true;
    if (rg_meta_type_of(ckpt, "tokenizer_config.truncation_side") == RG_META_STRING &&
        rg_meta_string(ckpt, "tokenizer_config.truncation_side", &side, err) < 0)
        return false;
    t->keep_end = !strcmp(side, "left");
    return read_transformer(t, e, ckpt, err) && read_prompts(t, e, ckpt, err);
}

void rg_embed_text_close(rg_embed_text *t)
{
    for (int i = 0; i < t->n_prompts; i++) {
        rg_free(t->prompts[i].name);
        rg_free(t->prompts[i].text);
    }
    rg_free(t->prompts);
    *t = (rg_embed_text){ 0 };
}

int32_t rg_embed_text_limit(const rg_embed_text *t, int32_t context)
{
    return t->max_ids && t->max_ids < context ? t->max_ids : context;
}

rg_cut rg_embed_text_cut(const rg_embed_text *t, const rg_text_options *o)
{
    const int32_t most = o->max_ids ? o->max_ids : t->max_ids;

    return (rg_cut){ .most = most > 0 ? (size_t)most : 0, .keep_end = o->keep_end || t->keep_end };
}

/* s in lower case, character by character; what is no character stays. */
static bool add_lower(rg_buf *b, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t code;
        char out[4];
        const int used = rg_utf8_decode(s + i, n - i, &code);
        const int n_out = used ? rg_utf8_encode((uint32_t)utf8proc_tolower((utf8proc_int32_t)code), out) : 0;

        if (!(used ? rg_buf_add(b, out, (size_t)n_out) : rg_buf_add(b, s + i, 1)))
            return false;
        i += used ? (size_t)used : 1;
    }
    return true;
}

/* Ids of the prompt alone, without the special token behind them. */
static bool count_prompt(const rg_tokenizer *tokenizer, rg_string prompt, unsigned flags, int32_t *n, rg_error *err)
{
    rg_ids ids = { 0 };
    bool ok = rg_tokenizer_encode(tokenizer, prompt.data, prompt.n, flags, &ids, err);

    *n = (int32_t)ids.n - (ids.n && rg_tokenizer_is_special(tokenizer, ids.id[ids.n - 1]));
    rg_ids_fini(&ids);
    return ok;
}

bool rg_embed_text_encode(const rg_embed_text *t, const rg_tokenizer *tokenizer, rg_string text,
                          const rg_text_options *o, rg_text_ids *out, rg_error *err)
{
    const int which = o->prompt ? find_prompt(t, o->prompt) : t->chosen;
    const char *prompt = which >= 0 ? t->prompts[which].text : "";
    const rg_cut cut = rg_embed_text_cut(t, o);
    rg_ids ids = { 0 };
    int32_t from = 0;
    rg_buf whole;

    if (o->prompt && *o->prompt && which < 0)
        return rg_fail(err, RG_E_INPUT, "'%.60s' is not the name of a prompt of this model", o->prompt);
    rg_buf_init(&whole, SIZE_MAX / 2);
    bool ok = (t->lower ? add_lower(&whole, prompt, strlen(prompt)) && add_lower(&whole, text.data, text.n)
                        : rg_buf_add(&whole, prompt, strlen(prompt)) && rg_buf_add(&whole, text.data, text.n)) ||
              rg_fail_memory(err, text.n);
    const size_t n_prompt = strlen(prompt);

    ok = ok && rg_tokenizer_encode(tokenizer, whole.data ? whole.data : "", whole.n, o->flags, &ids, err) &&
         (!t->skips_prompt || !n_prompt ||
          count_prompt(tokenizer, (rg_string){ prompt, n_prompt }, o->flags, &from, err));
    rg_buf_fini(&whole);
    if (!ok) {
        rg_ids_fini(&ids);
        return false;
    }
    ids.n = rg_tokenizer_cut(tokenizer, ids.id, ids.n, &cut);
    from = (size_t)from < ids.n ? from : ids.n ? (int32_t)ids.n - 1 : 0;
    *out = (rg_text_ids){ .ids = ids.id, .n = ids.n, .pool_from = from };
    return true;
}
