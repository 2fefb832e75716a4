/* embedding.c -- see embedding.h. */
#include "model/embedding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/json.h"
#include "model/config.h"

bool rg_embedding_refuse(rg_embedding *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(e->refusal, sizeof e->refusal, fmt, args);
    va_end(args);
    e->n_poolings = e->n_steps = 0;
    return true;
}

/* One way of pooling, said by the checkpoint. */
static void say(rg_embedding *e, rg_pooling how)
{
    e->poolings[0] = how;
    e->n_poolings = 1;
    e->is_said = true;
}

static bool read_gguf(rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    enum { SCORES = 4 }; /* of a reranker: says nothing about embeddings */
    static const rg_pooling by_number[] = { RG_POOLING_NONE, RG_POOLING_MEAN, RG_POOLING_CLS, RG_POOLING_LAST };
    char key[128];
    int64_t number = 0;

    if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "pooling_type", key), INT32_MIN, INT32_MAX, &number, err) < 0)
        return false;
    if (!number || number == SCORES)
        return true;
    if (number < 0 || number >= (int64_t)RG_LEN(by_number))
        return rg_embedding_refuse(e, "the checkpoint's pooling type %d is not supported", (int)number);
    say(e, by_number[number]);
    return true;
}

/* ---- modules of sentence-transformers ---------------------------------------------------------------------------- */

/* A JSON file beside the checkpoint.  NULL: there is none, or (*err) it cannot be read. */
static json_t *read_beside(const rg_checkpoint *ckpt, const char *name, rg_error *err)
{
    size_t n = 0;
    char *text = rg_checkpoint_side_file(ckpt, name, &n, err);
    json_t *v = text ? rg_json_parse(name, text, n, err) : NULL;

    rg_free(text);
    return v;
}

/* Only want of memory is a failure; a malformed file only refuses embeddings. */
static bool unreadable(rg_embedding *e, const char *name, const rg_error *why, rg_error *err)
{
    if (why->code != RG_E_MEMORY)
        return rg_embedding_refuse(e, "the checkpoint's %s cannot be read", name);
    if (err)
        *err = *why;
    return false;
}

static bool is_flagged(const json_t *config, const char *key)
{
    return json_is_true(json_object_get(config, key));
}

/* In the order in which flags of older files put their results. */
static const struct {
    const char *name, *flag;
    rg_pooling pooling;
} ways[RG_MAX_POOLINGS] = {
    { "cls", "pooling_mode_cls_token", RG_POOLING_CLS },
    { "max", "pooling_mode_max_tokens", RG_POOLING_MAX },
    { "mean", "pooling_mode_mean_tokens", RG_POOLING_MEAN },
    { "mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", RG_POOLING_SQRT_MEAN },
    { "weightedmean", "pooling_mode_weightedmean_tokens", RG_POOLING_WEIGHTED_MEAN },
    { "lasttoken", "pooling_mode_lasttoken", RG_POOLING_LAST },
};

static bool add_way(rg_embedding *e, const json_t *word)
{
    const char *name = json_string_value(word);

    for (size_t i = 0; name && i < RG_LEN(ways); i++) {
        if (strcmp(name, ways[i].name) != 0)
            continue;
        if (e->n_poolings == RG_MAX_POOLINGS)
            return rg_embedding_refuse(e, "the checkpoint's pooling module names more than %d ways of pooling",
                                       RG_MAX_POOLINGS);
        e->poolings[e->n_poolings++] = ways[i].pooling;
        return true;
    }
    return rg_embedding_refuse(e, "the checkpoint's pooling '%.40s' is not supported", name ? name : "(no text)");
}

/* "pooling_mode" is a word or a list of them; older files have a flag for each way instead.  Where neither says
 * anything the mean is meant. */
static bool read_pooling(rg_embedding *e, const json_t *config)
{
    const json_t *mode = json_object_get(config, "pooling_mode"), *prompt = json_object_get(config, "include_prompt");

    e->is_said = true;
    e->n_poolings = 0;
    e->skips_prompt = json_is_false(prompt);
    if (json_is_string(mode))
        return add_way(e, mode);
    for (size_t i = 0; json_is_array(mode) && i < json_array_size(mode) && !e->refusal[0]; i++)
        add_way(e, json_array_get(mode, i));
    for (size_t i = 0; !mode && i < RG_LEN(ways); i++)
        if (is_flagged(config, ways[i].flag))
            e->poolings[e->n_poolings++] = ways[i].pooling;
    if (!e->n_poolings && !e->refusal[0])
        e->poolings[e->n_poolings++] = RG_POOLING_MEAN;
    return true;
}

static bool read_dense(rg_embedding *e, const json_t *config, const char *folder)
{
    static const struct {
        const char *word;
        rg_activation act;
    } acts[] = { { "Identity", RG_IDENTITY }, { "Tanh", RG_TANH }, { "ReLU", RG_RELU },
                 { "GELU", RG_GELU },         { "SiLU", RG_SILU }, { "Sigmoid", RG_SIGMOID } };
    const char *act = json_string_value(json_object_get(config, "activation_function"));
    const char *dot = act ? strrchr(act, '.') : NULL, *word = dot ? dot + 1 : act ? act : "Tanh";
    const char *input = json_string_value(json_object_get(config, "module_input_name"));
    const json_int_t in = json_integer_value(json_object_get(config, "in_features"));
    const json_int_t out = json_integer_value(json_object_get(config, "out_features"));
    rg_embed_step *s = &e->steps[e->n_steps];

    if (input && strcmp(input, "sentence_embedding") != 0)
        return rg_embedding_refuse(e, "the checkpoint's Dense module reads '%.40s', which is not supported", input);
    if (in != e->dim || out < 1 || out > 1 << 20)
        return rg_embedding_refuse(e,
                                   "the checkpoint's Dense module has in_features %lld and out_features %lld, and "
                                   "gets %d numbers",
                                   (long long)in, (long long)out, e->dim);
    for (size_t i = 0; i < RG_LEN(acts); i++) {
        if (strcmp(acts[i].word, word) != 0)
            continue;
        *s = (rg_embed_step){ .is_dense = true,
                              .in = (int)in,
                              .out = (int)out,
                              .act = acts[i].act,
                              .bias = !json_is_false(json_object_get(config, "bias")) };
        snprintf(s->folder, sizeof s->folder, "%s", folder);
        e->n_steps++;
        e->dim = (int)out;
        return true;
    }
    return rg_embedding_refuse(e, "the checkpoint's Dense module has the activation '%.60s', which is not supported",
                               word);
}

/* The name of a folder within the checkpoint's, and not a way out of it. */
static bool is_folder(const char *s)
{
    return s && strlen(s) < RG_FOLDER_NAME && s[0] != '.' && !strpbrk(s, "/\\");
}

/* A module by its config.json.  dim: numbers of a hidden state. */
static bool read_configured(rg_embedding *e, const rg_checkpoint *ckpt, const char *word, const char *folder, int dim,
                            rg_error *err)
{
    rg_error why = { 0 };
    char name[RG_FOLDER_NAME + 16];
    json_t *config;

    if (!is_folder(folder))
        return rg_embedding_refuse(e, "the checkpoint's modules.json names no folder for the module '%.40s'", word);
    snprintf(name, sizeof name, "%s%sconfig.json", folder, *folder ? "/" : "");
    config = read_beside(ckpt, name, &why);
    if (!config)
        return why.code ? unreadable(e, name, &why, err) : rg_embedding_refuse(e, "the checkpoint has no %s", name);
    if (!strcmp(word, "Pooling")) {
        read_pooling(e, config);
        e->dim = e->n_poolings * dim;
    } else {
        read_dense(e, config, folder);
    }
    json_decref(config);
    return true;
}

/* Module after module: the transformer, the pooling, and what comes behind it. */
static bool read_modules(rg_embedding *e, const rg_checkpoint *ckpt, const json_t *modules, int dim, rg_error *err)
{
    bool pooled = false;

    for (size_t i = 0; i < json_array_size(modules) && !e->refusal[0]; i++) {
        const json_t *m = json_array_get(modules, i);
        const char *type = json_string_value(json_object_get(m, "type")), *dot = type ? strrchr(type, '.') : NULL;
        const char *path = json_string_value(json_object_get(m, "path")), *word = dot ? dot + 1 : type ? type : "?";
        const bool is_pooling = !strcmp(word, "Pooling"), is_dense = !strcmp(word, "Dense");

        if (!strcmp(word, "Dropout") || (!i && !strcmp(word, "Transformer")))
            continue;
        if (e->n_steps == RG_MAX_EMBED_STEPS)
            return rg_embedding_refuse(e, "the checkpoint's modules.json has too many modules");
        if (is_pooling == pooled || !(is_pooling || is_dense || !strcmp(word, "Normalize")))
            return rg_embedding_refuse(e,
                                       "the checkpoint's embeddings go through a module '%.40s'%s, which is not "
                                       "supported",
                                       word, pooled || is_pooling ? "" : " in front of the pooling");
        if (is_pooling || is_dense) {
            if (!read_configured(e, ckpt, word, path, dim, err))
                return false;
        } else {
            e->steps[e->n_steps++] = (rg_embed_step){ .is_dense = false };
        }
        pooled = true;
    }
    return true;
}

static bool read_folder(rg_embedding *e, const rg_checkpoint *ckpt, int dim, rg_error *err)
{
    rg_error why = { 0 };
    json_t *modules = read_beside(ckpt, "modules.json", &why);
    bool ok;

    if (!modules)
        return !why.code || unreadable(e, "modules.json", &why, err);
    ok = read_modules(e, ckpt, modules, dim, err);
    json_decref(modules);
    return ok;
}

/* "pooling" in config.json, of classes that pool by themselves; modules.json comes before it. */
static bool read_key(rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const words[] = { "avg", "mean", "cls", "last", "max", NULL };
    static const rg_pooling hows[] = { RG_POOLING_MEAN, RG_POOLING_MEAN, RG_POOLING_CLS, RG_POOLING_LAST,
                                       RG_POOLING_MAX };
    const char *word = NULL;

    if (rg_meta_type_of(ckpt, "pooling") != RG_META_STRING)
        return true;
    if (rg_meta_string(ckpt, "pooling", &word, err) < 0)
        return false;
    for (size_t i = 0; !e->is_said && !e->refusal[0] && words[i]; i++)
        if (!strcmp(word, words[i]))
            say(e, hows[i]);
    if (!e->is_said && !e->refusal[0])
        return rg_embedding_refuse(e, "the checkpoint's pooling '%.40s' is not supported", word);
    return true;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* "matryoshka_dimensions" lists the sizes; "is_matryoshka" alone allows all. */
static bool read_sizes(rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    bool any = false;
    const int32_t *sizes = NULL;
    size_t n = 0;
    int got = rg_meta_ints(ckpt, "matryoshka_dimensions", &sizes, &n, err);

    if (got < 0 || rg_meta_bool(ckpt, "is_matryoshka", &any, err) < 0)
        return false;
    if (!got)
        e->n_sizes = any ? RG_ANY_SIZE : 0;
    for (size_t i = 0; i < n; i++) {
        if (sizes[i] < 1 || sizes[i] > e->dim || n > RG_MAX_EMBED_SIZES)
            return rg_fail(err, RG_E_INPUT, "%s: matryoshka_dimensions are %zu, one %d: want at most %d, of 1 to %d",
                           rg_checkpoint_path(ckpt), n, (int)sizes[i], RG_MAX_EMBED_SIZES, e->dim);
        e->sizes[e->n_sizes++] = sizes[i];
    }
    return true;
}

bool rg_embedding_read(rg_embedding *e, const rg_checkpoint *ckpt, int dim, bool both_ways, rg_error *err)
{
    *e = (rg_embedding){ .poolings = { both_ways ? RG_POOLING_MEAN : RG_POOLING_LAST }, .n_poolings = 1, .dim = dim };
    if (rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF)
        return read_gguf(e, ckpt, err);
    if (!read_folder(e, ckpt, dim, err) || !read_key(e, ckpt, err))
        return false;
    if (e->refusal[0])
        e->dim = dim;
    return read_sizes(e, ckpt, err);
}
