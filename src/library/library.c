/* library.c -- see library.h: folders of models, and all places in turn. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "library/internal.h"

const char *rg_place_name(rg_place p)
{
    static const char *const names[] = { "path", "models", "hugging face", "ollama", "llama.cpp" };

    return names[p];
}

/* ---- a folder ---- */

static bool has(const char *folder, const char *name)
{
    char path[RG_LIBRARY_PATH];

    return rg_path_join(path, sizeof path, folder, name) && rg_path_look(path) == RG_PATH_FILE;
}

static bool is_weights(const char *name)
{
    return rg_ends_in(name, ".safetensors") || (!strncmp(name, "pytorch_model", 13) && rg_ends_in(name, ".bin"));
}

bool rg_is_model_folder(const char *folder)
{
    rg_names v;
    bool found = false;

    if (!has(folder, "config.json"))
        return false;
    rg_names_of(&v, folder);
    for (int i = 0; i < v.n && !found; i++)
        found = is_weights(v.item[i]);
    rg_names_fini(&v);
    return found;
}

static void add_ggufs(const char *folder, const char *below, rg_names *files)
{
    char path[RG_LIBRARY_PATH], one[RG_LIBRARY_PATH];
    rg_names v;

    if (!rg_path_join(path, sizeof path, folder, *below ? below : "."))
        return;
    rg_names_of(&v, path);
    for (int i = 0; i < v.n; i++)
        if (rg_gguf_is_model(v.item[i]) &&
            (size_t)snprintf(one, sizeof one, "%s%s%s", below, *below ? "/" : "", v.item[i]) < sizeof one)
            rg_names_add(files, one);
    rg_names_fini(&v);
}

void rg_ggufs_in(const char *folder, rg_names *files)
{
    char path[RG_LIBRARY_PATH];
    rg_names v;

    *files = (rg_names){ 0 };
    add_ggufs(folder, "", files);
    rg_names_of(&v, folder);
    for (int i = 0; i < v.n; i++)
        if (v.item[i][0] != '.' && rg_path_join(path, sizeof path, folder, v.item[i]) &&
            rg_path_look(path) == RG_PATH_DIR)
            add_ggufs(folder, v.item[i], files);
    rg_names_fini(&v);
}

static uint64_t size_of(const char *path)
{
    rg_file *f = rg_file_open(path, NULL);
    uint64_t n = f ? rg_file_size(f) : 0;

    rg_file_close(f);
    return n;
}

/* Files of a folder whose names begin so and end so. */
static uint64_t size_of_all(const char *folder, const char *begin, size_t n_begin, const char *end)
{
    char path[RG_LIBRARY_PATH];
    uint64_t sum = 0;
    rg_names v;

    rg_names_of(&v, folder);
    for (int i = 0; i < v.n; i++)
        if (!strncmp(v.item[i], begin, n_begin) && rg_ends_in(v.item[i], end) &&
            rg_path_join(path, sizeof path, folder, v.item[i]))
            sum += size_of(path);
    rg_names_fini(&v);
    return sum;
}

uint64_t rg_bytes_of(const char *path)
{
    static const char first[] = "-00001-of-";
    const char *slash = strrchr(path, '/'), *part = strstr(slash ? slash : path, first);
    char folder[RG_LIBRARY_PATH];
    uint64_t n;

    if (rg_path_look(path) == RG_PATH_DIR)
        return (n = size_of_all(path, "", 0, ".safetensors")) ? n : size_of_all(path, "pytorch_model", 13, ".bin");
    if (!part || !slash)
        return size_of(path);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return size_of_all(folder, slash + 1, (size_t)(part - slash - 1), part + strlen("-00001"));
}

bool rg_model_in(const char *folder, const char *quant, const char *who, rg_library_model *out, rg_error *err)
{
    rg_names files;
    int i;
    bool ok = true;

    snprintf(out->path, sizeof out->path, "%s", folder);
    if (!quant && rg_is_model_folder(folder))
        return true;
    rg_ggufs_in(folder, &files);
    if (files.failed) {
        ok = rg_fail_memory(err, 0);
    } else if (quant || files.n) {
        i = rg_choose_gguf(&files, quant, who, err);
        ok = i >= 0 && (rg_path_join(out->path, sizeof out->path, folder, files.item[i]) ||
                        rg_fail(err, RG_E_INPUT, "%s: the path is too long", who));
    }
    rg_names_fini(&files);
    return ok; /* with neither, whoever opens it says what the folder is */
}

const char *rg_split_quant(const char *given, char name[RG_LIBRARY_NAME])
{
    const char *slash = strrchr(given, '/'), *colon = strrchr(slash ? slash : given, ':');
    size_t n = colon ? (size_t)(colon - given) : strlen(given);

    snprintf(name, RG_LIBRARY_NAME, "%.*s", n < RG_LIBRARY_NAME ? (int)n : RG_LIBRARY_NAME - 1, given);
    return colon && colon[1] ? colon + 1 : NULL;
}

/* ---- finding ---- */

static int find_path(const char *given, const char *name, const char *quant, rg_library_model *out, rg_error *err)
{
    if (rg_path_look(given) != RG_PATH_NONE) {
        if ((size_t)snprintf(out->path, sizeof out->path, "%s", given) >= sizeof out->path)
            return rg_fail(err, RG_E_INPUT, "%.200s...: the path is too long", given), -1;
        return 1;
    }
    if (!quant || rg_path_look(name) != RG_PATH_DIR)
        return 0;
    return rg_model_in(name, quant, name, out, err) ? 1 : -1;
}

static int find_below(const char *models, const char *name, const char *quant, rg_library_model *out, rg_error *err)
{
    char path[RG_LIBRARY_PATH];

    if (!models || !rg_path_join(path, sizeof path, models, name) || rg_path_look(path) == RG_PATH_NONE)
        return 0;
    if (rg_path_look(path) == RG_PATH_FILE)
        return quant ? 0 : (snprintf(out->path, sizeof out->path, "%s", path), 1);
    return rg_model_in(path, quant, name, out, err) ? 1 : -1;
}

/* ORG/NAME's files in llama-server's cache are ORG_NAME_FILE. */
static int find_in_llama_cache(const char *cache, const char *given, const char *quant, rg_library_model *out,
                               rg_error *err)
{
    char prefix[RG_LIBRARY_NAME + 1];
    int n = snprintf(prefix, sizeof prefix, "%s_", given), at;
    rg_names all, files = { 0 };

    if (!cache || n >= (int)sizeof prefix)
        return 0;
    for (char *s = prefix; (s = strchr(s, '/'));)
        *s = '_';
    rg_names_of(&all, cache);
    for (int i = 0; i < all.n; i++)
        if (rg_gguf_is_model(all.item[i]) &&
            (strchr(given, '/') ? !strncmp(all.item[i], prefix, (size_t)n) : !strcmp(all.item[i], given)))
            rg_names_add(&files, all.item[i]);
    at = files.n ? rg_choose_gguf(&files, quant, given, err) : 0;
    if (files.n && at >= 0 && !rg_path_join(out->path, sizeof out->path, cache, files.item[at]))
        at = rg_fail(err, RG_E_INPUT, "%s: the path is too long", given) - 1;
    n = files.n;
    rg_names_fini(&files);
    rg_names_fini(&all);
    return at < 0 ? -1 : n > 0;
}

static bool took(rg_library_model *out, rg_place place, const char *name)
{
    out->place = place;
    snprintf(out->name, sizeof out->name, "%.*s", RG_LIBRARY_NAME - 1, name);
    out->bytes = rg_bytes_of(out->path);
    return true;
}

bool rg_library_find(const rg_places *places, const char *given, rg_library_model *out, rg_error *err)
{
    char name[RG_LIBRARY_NAME];
    const char *quant = rg_split_quant(given, name);
    rg_error first = { 0 }; /* a place has the name, but not that file: another may have it */
    int got[5];

    for (int p = 0; p < (int)RG_LEN(got); p++) {
        rg_error why = { 0 };

        got[p] = p == RG_PLACE_PATH     ? find_path(given, name, quant, out, &why)
                 : p == RG_PLACE_MODELS ? find_below(places->models, name, quant, out, &why)
                 : p == RG_PLACE_HUB    ? rg_hub_find(places->hub, given, out, &why)
                 : p == RG_PLACE_OLLAMA ? rg_ollama_find(places->ollama, given, out, &why)
                                        : find_in_llama_cache(places->llama_cache, name, quant, out, &why);
        if (got[p] > 0)
            return took(out, (rg_place)p, given);
        if (got[p] < 0 && first.code == RG_OK)
            first = why;
    }
    if (first.code != RG_OK)
        return err ? (*err = first, false) : false;
    return rg_fail(err, RG_E_IO, "%s: no such file or folder, here or under the models folder (%s)%s", given,
                   places->models ? places->models : "none was found",
                   strchr(given, '/') && given[0] != '/' && given[0] != '.'
                       ? ", nor in the caches of other programs; `ridge pull` fetches models" : "");
}

/* ---- listing ---- */

typedef struct telling {
    rg_library_visitor *visit;
    void *arg;
    rg_library_model f;
} telling;

static bool tell(telling *t, rg_place place, const char *path, const char *name)
{
    t->f.place = place;
    if (path != t->f.path)
        snprintf(t->f.path, sizeof t->f.path, "%s", path);
    snprintf(t->f.name, sizeof t->f.name, "%.*s", RG_LIBRARY_NAME - 1, name);
    t->f.bytes = rg_bytes_of(t->f.path);
    return t->visit(t->arg, &t->f);
}

/* The models at folder/below: a GGUF file; a folder that is a model, and the GGUF files in it; what is one level
 * further down. */
static bool each_at(telling *t, const char *folder, const char *below, int depth)
{
    char path[RG_LIBRARY_PATH], one[RG_LIBRARY_PATH];
    bool go = true, is_model;
    rg_names v;

    if (!rg_path_join(path, sizeof path, folder, below))
        return true;
    if (rg_path_look(path) == RG_PATH_FILE)
        return !rg_gguf_is_model(below) || tell(t, RG_PLACE_MODELS, path, below);
    is_model = rg_is_model_folder(path);
    if (is_model)
        go = tell(t, RG_PLACE_MODELS, path, below);
    rg_names_of(&v, path);
    for (int i = 0; i < v.n && go; i++) {
        snprintf(one, sizeof one, "%.2000s/%.2000s", below, v.item[i]);
        if (rg_gguf_is_model(v.item[i]) || (depth < 1 && !is_model && v.item[i][0] != '.'))
            go = each_at(t, folder, one, depth + 1);
    }
    rg_names_fini(&v);
    return go;
}

static bool each_in(telling *t, const char *folder)
{
    bool go = true;
    rg_names v;

    rg_names_of(&v, folder);
    for (int i = 0; i < v.n && go; i++)
        go = v.item[i][0] == '.' || each_at(t, folder, v.item[i], 0);
    rg_names_fini(&v);
    return go;
}

void rg_library_each_in(const char *folder, rg_library_visitor *visit, void *arg)
{
    telling t = { .visit = visit, .arg = arg };

    each_in(&t, folder);
}

static bool each_in_llama_cache(telling *t, const char *cache)
{
    char path[RG_LIBRARY_PATH];
    bool go = true;
    rg_names v;

    rg_names_of(&v, cache);
    for (int i = 0; i < v.n && go; i++)
        if (rg_gguf_is_model(v.item[i]) && rg_path_join(path, sizeof path, cache, v.item[i]))
            go = tell(t, RG_PLACE_LLAMA_CACHE, path, v.item[i]);
    rg_names_fini(&v);
    return go;
}

void rg_library_each(const rg_places *places, rg_library_visitor *visit, void *arg)
{
    telling t = { .visit = visit, .arg = arg };

    if ((!places->models || each_in(&t, places->models)) && (!places->hub || rg_hub_each(places->hub, visit, arg)) &&
        (!places->ollama || rg_ollama_each(places->ollama, visit, arg)) && places->llama_cache)
        each_in_llama_cache(&t, places->llama_cache);
}
