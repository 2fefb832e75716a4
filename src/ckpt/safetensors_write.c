/* safetensors_write.c -- the writer of a Hugging Face directory: model.safetensors, config.json, and copies of what
 * else the source has.
 *
 * What is put becomes a key of config.json, dots leading into objects; put_all starts from the source's config.json,
 * and later puts replace keys of it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "ckpt/json.h"
#include "ckpt/writer.h"

#define TEMPLATES "additional_chat_templates"

enum { PATH_ROOM = 4096, JSON_CAP = 1 << 26 };

/* Files of a model that stay valid when its weights change. */
static const char *const side_files[] = {
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "tokenizer.model",
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
};

/* The files that are copied of each folder that modules.json names. */
static const char *const module_files[] = { "config.json", "model.safetensors", "pytorch_model.bin" };

static json_t *json_of_scalar(const rg_entry *e)
{
    switch (e->type) {
    case RG_META_BOOL:
        return json_boolean(e->i);
    case RG_META_INT:
        return json_integer(e->i);
    case RG_META_FLOAT:
        return json_real(e->f);
    case RG_META_STRING:
        return json_stringn(e->s.data, e->s.n);
    default:
        return json_null();
    }
}

static json_t *json_of(const rg_entry *e)
{
    json_t *array;

    if (e->type != RG_META_ARRAY)
        return json_of_scalar(e);
    array = json_array();
    for (size_t i = 0; array && i < e->n; i++) {
        json_t *v = e->strings  ? json_stringn(e->strings[i].data, e->strings[i].n)
                    : e->ints   ? json_integer(e->ints[i])
                    : e->floats ? json_real((double)e->floats[i])
                                : NULL;
        if (json_array_append_new(array, v)) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

/* True if JSON can say it: its texts are UTF-8, its numbers finite. */
static bool fits_json(const rg_entry *e)
{
    bool fits = e->type != RG_META_STRING || rg_utf8_valid(e->s.data, e->s.n);

    for (size_t i = 0; e->type == RG_META_ARRAY && fits && i < e->n; i++)
        fits = e->strings ? rg_utf8_valid(e->strings[i].data, e->strings[i].n) : !e->floats || isfinite(e->floats[i]);
    return fits;
}

/* The object that e's last part goes into, made where it is missing; *last is that part.  NULL and *err: there is no
 * memory, or something else lies where an object is needed. */
static json_t *object_for(json_t *root, const rg_entry *e, const char **last, rg_error *err)
{
    const char *dot, *key = e->key;

    for (; (dot = strchr(key, '.')); key = dot + 1) {
        size_t n = (size_t)(dot - key);
        json_t *next = json_object_getn(root, key, n);
        if (!next && json_object_setn_new(root, key, n, json_object()) == 0)
            next = json_object_getn(root, key, n);
        if (!next)
            return rg_fail_memory(err, n), NULL;
        if (!json_is_object(next))
            return rg_fail(err, RG_E_INPUT, "key '%s': it is under a key that is no object", e->key), NULL;
        root = next;
    }
    *last = key;
    return root;
}

static bool put_hf(rg_ckpt_writer *w, const rg_entry *e, rg_error *err)
{
    const char *last;
    json_t *object;

    if (e->type == RG_META_FLOAT && !isfinite(e->f))
        return rg_fail(err, RG_E_USAGE, "key '%s': JSON has no %g", e->key, e->f);
    if (!fits_json(e) || !rg_utf8_valid(e->key, strlen(e->key)))
        return rg_fail(err, RG_E_INPUT, "key '%s': JSON has no text that is not UTF-8, and no infinity or NaN", e->key);
    if (!w->config && !(w->config = json_object()))
        return rg_fail_memory(err, sizeof *w);
    if (!(object = object_for(w->config, e, &last, err)))
        return false;
    return json_object_set_new(object, last, json_of(e)) == 0 || rg_fail_memory(err, strlen(last));
}

/* A config may lie under another name than a folder's. */
static bool is_config(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot && !strcmp(dot, ".json") && rg_path_look(path) == RG_PATH_FILE;
}

static bool put_all_hf(rg_ckpt_writer *w, const rg_checkpoint *from, bool (*skip)(const char *key), rg_error *err)
{
    size_t n;
    char *text;
    void *next;

    if (from->kind != RG_CKPT_HF)
        return rg_fail(err, RG_E_USAGE, "%s: has no config.json to start from", from->path);
    if (w->config || w->source)
        return rg_fail(err, RG_E_USAGE, "put_all must come first, and once");
    w->source = rg_strdup(from->dir);
    if (!w->source)
        return rg_fail_memory(err, 64);
    text = is_config(from->path) ? rg_file_slurp(from->path, RG_SIDE_CAP, &n, err)
                                 : rg_checkpoint_side_file(from, "config.json", &n, err);
    if (!text)
        return (!err || err->code == RG_OK) && rg_fail(err, RG_E_INPUT, "%s: no config.json", from->path);
    w->config = rg_json_parse("config.json", text, n, err);
    rg_free(text);
    if (!w->config)
        return false;
    for (void *i = json_object_iter(w->config); skip && i; i = next) {
        next = json_object_iter_next(w->config, i);
        if (skip(json_object_iter_key(i)))
            json_object_del(w->config, json_object_iter_key(i));
    }
    return true;
}

static bool takes_safetensors(rg_type type)
{
    return rg_format_of(type)->safetensors != NULL;
}

static bool describe(json_t *header, const rg_tensor *t)
{
    json_t *shape = json_array(), *info;
    bool ok = shape != NULL;

    for (int i = 0; ok && i < t->n_dims; i++)
        ok = json_array_append_new(shape, json_integer(t->shape[i])) == 0;
    if (!ok) {
        json_decref(shape);
        return false;
    }
    info = json_pack("{s:s, s:o, s:[I, I]}", "dtype", rg_format_of(t->type)->safetensors, "shape", shape,
                     "data_offsets", (json_int_t)t->offset, (json_int_t)(t->offset + t->bytes));
    return info && json_object_set_new(header, t->name, info) == 0;
}

/* The JSON is filled up with spaces to a multiple of 8, so that the data starts aligned. */
static bool write_header(rg_ckpt_writer *w, rg_error *err)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    uint8_t length[8];
    char *text = NULL;
    size_t n, n_pad;
    bool ok = header != NULL;

    for (size_t i = 0; ok && i < w->n_tensors; i++)
        ok = describe(header, &w->tensors[i]);
    if (ok)
        text = rg_json_dump(header, JSON_COMPACT);
    json_decref(header);
    if (!text)
        return rg_fail_memory(err, w->n_tensors * 128);
    n = strlen(text);
    n_pad = (8 - n % 8) % 8;
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)(n + n_pad) >> 8 * i);
    ok = rg_writer_write(w->out, length, sizeof length, err) && rg_writer_write(w->out, text, n, err) &&
         rg_writer_write(w->out, "        ", n_pad, err);
    rg_free(text);
    return ok;
}

/* The parser put strings in place of Infinity and NaN: write them as Python reads them. */
static void restore_not_finite(char *text)
{
    static const struct {
        const char *mark, *name;
    } marks[] = {
        { "\"\\u0001+\"", "Infinity " },
        { "\"\\u0001-\"", "-Infinity" },
        { "\"\\u0001?\"", "NaN      " },
    };
    for (size_t i = 0; i < RG_LEN(marks); i++)
        for (char *p = text; (p = strstr(p, marks[i].mark)); p++)
            memcpy(p, marks[i].name, strlen(marks[i].mark));
}

/* Copy a file of the source, if it is there. */
static bool copy_file(const rg_ckpt_writer *w, const char *name, rg_error *err)
{
    char path[PATH_ROOM], *text;
    size_t n;

    if (!rg_path_join(path, sizeof path, w->source, name) || rg_path_look(path) != RG_PATH_FILE)
        return true;
    text = rg_file_slurp(path, RG_SIDE_CAP, &n, err);
    bool ok = text && rg_file_put_in(w->dir, name, text, n, err);
    rg_free(text);
    return ok;
}

/* A walk through the source's folder of templates. */
typedef struct copying {
    const rg_ckpt_writer *w;
    rg_error *err;
    bool failed;
} copying;

static bool copy_template(void *arg, const char *name)
{
    copying *c = arg;
    char inner[PATH_ROOM];

    if (!rg_path_join(inner, sizeof inner, TEMPLATES, name))
        c->failed = !rg_fail(c->err, RG_E_INPUT, "%s: the name is too long", name);
    else
        c->failed = !copy_file(c->w, inner, c->err);
    return !c->failed;
}

/* Chat templates besides the first, which lie in a folder of their own. */
static bool copy_templates(rg_ckpt_writer *w, rg_error *err)
{
    char from[PATH_ROOM], to[PATH_ROOM];

    if (!rg_path_join(from, sizeof from, w->source, TEMPLATES) || rg_path_look(from) != RG_PATH_DIR)
        return true;
    if (!rg_path_join(to, sizeof to, w->dir, TEMPLATES))
        return rg_fail(err, RG_E_INPUT, "%s: the path is too long", w->dir);
    copying c = { .w = w, .err = err };
    return rg_dir_make(to, err) && rg_dir_list(from, copy_template, &c, err) && !c.failed;
}

/* Copy one of sentence-transformers' modules. */
static bool copy_module(const rg_ckpt_writer *w, const char *folder, rg_error *err)
{
    char path[PATH_ROOM];
    bool ok = true;

    if (!folder || !*folder || *folder == '.' || strlen(folder) > 64 || strpbrk(folder, "/\\") ||
        !rg_path_join(path, sizeof path, w->source, folder) || rg_path_look(path) != RG_PATH_DIR)
        return true;
    if (!rg_path_join(path, sizeof path, w->dir, folder))
        return rg_fail(err, RG_E_INPUT, "%s: the path is too long", w->dir);
    ok = rg_path_look(path) == RG_PATH_DIR || rg_dir_make(path, err);
    for (size_t i = 0; ok && i < RG_LEN(module_files); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, module_files[i]);
        ok = copy_file(w, path, err);
    }
    return ok;
}

static bool copy_modules(const rg_ckpt_writer *w, rg_error *err)
{
    char path[PATH_ROOM];
    size_t n;
    bool ok = true;

    if (!rg_path_join(path, sizeof path, w->source, "modules.json") || rg_path_look(path) != RG_PATH_FILE)
        return true;
    char *text = rg_file_slurp(path, RG_SIDE_CAP, &n, err);
    json_t *modules = text ? rg_json_parse("modules.json", text, n, NULL) : NULL; /* malformed: copied as it is */

    ok = text;
    rg_free(text);
    for (size_t i = 0; ok && i < json_array_size(modules); i++)
        ok = copy_module(w, json_string_value(json_object_get(json_array_get(modules, i), "path")), err);
    json_decref(modules);
    return ok;
}

static bool write_sidecar(rg_ckpt_writer *w, rg_error *err)
{
    char *text;
    bool ok = true;

    for (size_t i = 0; w->source && ok && i < RG_LEN(side_files); i++)
        ok = copy_file(w, side_files[i], err);
    ok = ok && (!w->source || (copy_templates(w, err) && copy_modules(w, err)));
    if (!ok || !w->config)
        return ok;
    text = rg_json_dump(w->config, JSON_INDENT(2));
    if (!text)
        return rg_fail_memory(err, 4096);
    restore_not_finite(text);
    ok = rg_file_put_in(w->dir, "config.json", text, strlen(text), err);
    rg_free(text);
    return ok;
}

rg_ckpt_writer *rg_hf_create(const char *directory, rg_error *err)
{
    static const writer_kind hf = { .put = put_hf,
                                    .put_all = put_all_hf,
                                    .takes = takes_safetensors,
                                    .header = write_header,
                                    .sidecar = write_sidecar,
                                    .align = 1 };
    rg_ckpt_writer *w = rg_ckpt_writer_new(&hf, err);
    char path[PATH_ROOM];

    if (!w)
        return NULL;
    w->dir = rg_strdup(directory);
    if (!w->dir) {
        rg_fail_memory(err, strlen(directory));
        goto fail;
    }
    if (!rg_path_join(path, sizeof path, directory, "model.safetensors")) {
        rg_fail(err, RG_E_USAGE, "%s: the path is too long", directory);
        goto fail;
    }
    if (!rg_dir_make(directory, err))
        goto fail;
    w->out = rg_writer_open(path, err);
    if (!w->out)
        goto fail;
    return w;

fail:
    rg_ckpt_writer_free(w);
    return NULL;
}

static bool no_metadata(rg_ckpt_writer *w, const rg_entry *e, rg_error *err)
{
    (void)w;
    (void)e;
    return rg_fail(err, RG_E_USAGE, "a lone safetensors file holds tensors only");
}

static bool no_sidecar(rg_ckpt_writer *w, rg_error *err)
{
    (void)w;
    (void)err;
    return true;
}

rg_ckpt_writer *rg_safetensors_create(const char *path, rg_error *err)
{
    static const writer_kind lone = {
        .put = no_metadata, .takes = takes_safetensors, .header = write_header, .sidecar = no_sidecar, .align = 1
    };
    rg_ckpt_writer *w = rg_ckpt_writer_new(&lone, err);

    if (!w)
        return NULL;
    w->out = rg_writer_open(path, err);
    if (w->out)
        return w;
    rg_ckpt_writer_free(w);
    return NULL;
}
