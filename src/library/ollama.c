/* ollama.c -- Ollama's folder: manifests/HOST/USER/NAME/TAG is JSON that lists layers by their digests, and the layer
 * with the weights is a GGUF file, blobs/sha256-DIGEST. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "library/internal.h"

enum { MANIFEST_BYTES = 1 << 20 };

static const char host[] = "registry.ollama.ai", library[] = "library";

/* The file of the layer that holds the model. */
static bool blob_of(const char *ollama, const char *manifest, char out[RG_LIBRARY_PATH], rg_error *err)
{
    static const char kind[] = "application/vnd.ollama.image.model", sha[] = "sha256:";
    char blobs[RG_LIBRARY_PATH], file[256];
    const char *digest = NULL;
    json_error_t why;
    json_t *layer;
    size_t n, i;
    char *text = rg_file_slurp(manifest, MANIFEST_BYTES, &n, err);
    json_t *j = text ? rg_json_load(text, n, 0, &why) : NULL;

    rg_free(text);
    if (!text)
        return false;
    json_array_foreach(json_object_get(j, "layers"), i, layer) {
        const char *type = json_string_value(json_object_get(layer, "mediaType"));
        const char *d = json_string_value(json_object_get(layer, "digest"));

        if (type && d && !digest && !strcmp(type, kind) && !strncmp(d, sha, strlen(sha)))
            digest = d + strlen(sha);
    }
    if (digest)
        snprintf(file, sizeof file, "sha256-%.200s", digest);
    bool found = digest && rg_path_join(blobs, sizeof blobs, ollama, "blobs") &&
                 rg_path_join(out, RG_LIBRARY_PATH, blobs, file);
    json_decref(j);
    if (!found)
        return rg_fail(err, RG_E_INPUT, "%s: a manifest of Ollama without the digest of a model", manifest);
    return rg_path_look(out) == RG_PATH_FILE ||
           rg_fail(err, RG_E_IO, "%s: the file is missing that %s names", out, manifest);
}

int rg_ollama_find(const char *ollama, const char *given, rg_library_model *out, rg_error *err)
{
    char name[RG_LIBRARY_NAME], manifests[RG_LIBRARY_PATH], below[3 * RG_LIBRARY_NAME], path[RG_LIBRARY_PATH];
    const char *tag = rg_split_quant(given, name), *first = strchr(name, '/');
    int n_slashes = 0;

    for (const char *s = name; *s; s++)
        n_slashes += *s == '/';
    if (!ollama || !*name || n_slashes > 2 || (first && (first == name || !first[1])))
        return 0;
    snprintf(below, sizeof below, "%s%s%s%s%s/%s", n_slashes < 2 ? host : "", n_slashes < 2 ? "/" : "",
             n_slashes < 1 ? library : "", n_slashes < 1 ? "/" : "", name, tag ? tag : "latest");
    if (!rg_path_join(manifests, sizeof manifests, ollama, "manifests") ||
        !rg_path_join(path, sizeof path, manifests, below) || rg_path_look(path) != RG_PATH_FILE)
        return 0;
    return blob_of(ollama, path, out->path, err) ? 1 : -1;
}

/* ---- all of them ---- */

enum { LEVELS = 4 }; /* host, user, name, tag */

typedef struct walk {
    const char *ollama;
    char word[LEVELS][256];
    rg_library_model f;
    rg_library_visitor *visit;
    void *arg;
} walk;

static bool tell(walk *w, const char *manifest)
{
    bool is_ours = !strcmp(w->word[0], host);

    if (!blob_of(w->ollama, manifest, w->f.path, NULL))
        return true;
    snprintf(w->f.name, sizeof w->f.name, "%.120s%s%.120s%s%.120s:%.120s", is_ours ? "" : w->word[0],
             is_ours ? "" : "/", is_ours && !strcmp(w->word[1], library) ? "" : w->word[1],
             is_ours && !strcmp(w->word[1], library) ? "" : "/", w->word[2], w->word[3]);
    w->f.place = RG_PLACE_OLLAMA;
    w->f.bytes = rg_bytes_of(w->f.path);
    return w->visit(w->arg, &w->f);
}

static bool walk_down(walk *w, const char *folder, int level)
{
    char path[RG_LIBRARY_PATH];
    bool go = true;
    rg_names v;

    rg_names_of(&v, folder);
    for (int i = 0; i < v.n && go; i++) {
        snprintf(w->word[level], sizeof w->word[level], "%s", v.item[i]);
        if (v.item[i][0] == '.' || !rg_path_join(path, sizeof path, folder, v.item[i]))
            continue;
        if (level + 1 < LEVELS)
            go = walk_down(w, path, level + 1);
        else if (rg_path_look(path) == RG_PATH_FILE)
            go = tell(w, path);
    }
    rg_names_fini(&v);
    return go;
}

bool rg_ollama_each(const char *ollama, rg_library_visitor *visit, void *arg)
{
    walk w = { .ollama = ollama, .visit = visit, .arg = arg };
    char manifests[RG_LIBRARY_PATH];

    return !rg_path_join(manifests, sizeof manifests, ollama, "manifests") || walk_down(&w, manifests, 0);
}
