/* embedding.c -- see embedding.h. */
#include "model/embedding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/json.h"
#include "model/config.h"

/* Refuse embeddings for this reason. */
RG_PRINTF(2, 3) static bool refuse(rg_embedding *e, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(e->refusal, sizeof e->refusal, fmt, args);
    va_end(args);
    e->pooling = RG_POOLING_NONE;
    return true;
}

static bool read_gguf(rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    enum { NOT_SAID, SCORES = 4 }; /* of a reranker: says nothing about embeddings */
    static const rg_pooling by_number[] = { RG_POOLING_LAST, RG_POOLING_MEAN, RG_POOLING_CLS, RG_POOLING_LAST,
                                            RG_POOLING_LAST };
    char key[128];
    int64_t number = 0;

    if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "pooling_type", key), INT32_MIN, INT32_MAX, &number, err) < 0)
        return false;
    e->is_said = number != NOT_SAID && number != SCORES;
    if (number < 0 || number >= (int64_t)RG_LEN(by_number))
        return refuse(e, "the checkpoint's pooling type %d is not supported", (int)number);
    e->pooling = by_number[number];
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
        return refuse(e, "the checkpoint's %s cannot be read", name);
    if (err)
        *err = *why;
    return false;
}

static bool is_flagged(const json_t *config, const char *key)
{
    return json_is_true(json_object_get(config, key));
}

/* One flag per kind of pooling; two at once would concatenate the results, which is not supported. */
static bool read_pooling(rg_embedding *e, const json_t *config)
{
    static const struct {
        const char *flag;
        rg_pooling pooling; /* NONE: not supported */
    } ways[] = {
        { "pooling_mode_cls_token", RG_POOLING_CLS },
        { "pooling_mode_mean_tokens", RG_POOLING_MEAN },
        { "pooling_mode_lasttoken", RG_POOLING_LAST },
        { "pooling_mode_max_tokens", RG_POOLING_NONE },
        { "pooling_mode_mean_sqrt_len_tokens", RG_POOLING_NONE },
        { "pooling_mode_weightedmean_tokens", RG_POOLING_NONE },
    };
    int n = 0;

    for (size_t i = 0; i < RG_LEN(ways); i++) {
        if (!is_flagged(config, ways[i].flag))
            continue;
        if (!ways[i].pooling)
            return refuse(e, "the checkpoint's pooling '%s' is not supported", ways[i].flag);
        e->pooling = ways[i].pooling;
        e->is_said = true;
        n++;
    }
    return n == 1 || refuse(e, "the checkpoint's pooling module names %d ways of pooling: want one", n);
}

static bool read_pooling_file(rg_embedding *e, const rg_checkpoint *ckpt, const char *folder, rg_error *err)
{
    rg_error why = { 0 };
    char name[96];
    json_t *config;
    bool ok;

    snprintf(name, sizeof name, "%s%sconfig.json", folder, *folder ? "/" : "");
    config = read_beside(ckpt, name, &why);
    if (!config)
        return why.code ? unreadable(e, name, &why, err) : refuse(e, "the checkpoint has no %s", name);
    ok = read_pooling(e, config);
    json_decref(config);
    return ok;
}

/* The name of a folder within the checkpoint's, and not a way out of it. */
static bool is_folder(const char *s)
{
    return s && strlen(s) < 64 && s[0] != '.' && !strpbrk(s, "/\\");
}

/* Module after module.  After pooling only a normalisation is supported; the reader of an embedding does it. */
static bool read_modules(rg_embedding *e, const rg_checkpoint *ckpt, const json_t *modules, rg_error *err)
{
    for (size_t i = 0; i < json_array_size(modules) && e->pooling; i++) {
        const json_t *m = json_array_get(modules, i);
        const char *type = json_string_value(json_object_get(m, "type")), *dot = type ? strrchr(type, '.') : NULL;
        const char *path = json_string_value(json_object_get(m, "path")), *word = dot ? dot + 1 : type ? type : "?";

        if (!strcmp(word, "Pooling")) {
            if (!is_folder(path))
                return refuse(e, "the checkpoint's modules.json names no folder for the pooling module");
            if (!read_pooling_file(e, ckpt, path, err))
                return false;
        } else if (strcmp(word, "Transformer") != 0 && strcmp(word, "Normalize") != 0 && strcmp(word, "Dropout") != 0) {
            return refuse(e, "the checkpoint's embeddings go through a module '%.40s', which is not supported", word);
        }
    }
    return true;
}

static bool read_folder(rg_embedding *e, const rg_checkpoint *ckpt, rg_error *err)
{
    rg_error why = { 0 };
    json_t *modules = read_beside(ckpt, "modules.json", &why);
    bool ok;

    if (!modules)
        return !why.code || unreadable(e, "modules.json", &why, err);
    ok = read_modules(e, ckpt, modules, err);
    json_decref(modules);
    return ok;
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

/* "matryoshka_dimensions" lists the sizes; "is_matryoshka" alone allows all. */
static bool read_sizes(rg_embedding *e, const rg_checkpoint *ckpt, int dim, rg_error *err)
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
        if (sizes[i] < 1 || sizes[i] > dim || n > RG_MAX_EMBED_SIZES)
            return rg_fail(err, RG_E_INPUT, "%s: matryoshka_dimensions are %zu, one %d: want at most %d, of 1 to %d",
                           rg_checkpoint_path(ckpt), n, (int)sizes[i], RG_MAX_EMBED_SIZES, dim);
        e->sizes[e->n_sizes++] = sizes[i];
    }
    return true;
}

bool rg_embedding_read(rg_embedding *e, const rg_checkpoint *ckpt, int dim, rg_error *err)
{
    *e = (rg_embedding){ .pooling = RG_POOLING_LAST };
    if (rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF)
        return read_gguf(e, ckpt, err);
    return read_folder(e, ckpt, err) && read_sizes(e, ckpt, dim, err);
}
