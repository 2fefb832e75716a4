/* hub.c -- the cache of the Hugging Face libraries: models--ORG--NAME with blobs/, refs/REVISION, which holds a commit,
 * and snapshots/COMMIT, whose files are links to blobs. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "library/internal.h"

enum { COMMIT_ROOM = 128 };

/* The commit of a revision; false: there is none. */
static bool read_ref(const char *repo, const char *revision, char commit[COMMIT_ROOM])
{
    char refs[RG_LIBRARY_PATH], path[RG_LIBRARY_PATH];
    size_t n;

    if (!rg_path_join(refs, sizeof refs, repo, "refs") || !rg_path_join(path, sizeof path, refs, revision) ||
        rg_path_look(path) != RG_PATH_FILE)
        return false;
    char *text = rg_file_slurp(path, COMMIT_ROOM - 1, &n, NULL);
    if (text)
        snprintf(commit, COMMIT_ROOM, "%.*s", (int)strcspn(text, " \r\n"), text);
    rg_free(text);
    return text && *commit;
}

/* snapshots/COMMIT of a revision: of refs/REVISION, of the commit itself, or of the only one there is. */
static bool find_snapshot(const char *repo, const char *revision, char out[RG_LIBRARY_PATH])
{
    char snapshots[RG_LIBRARY_PATH], commit[COMMIT_ROOM];
    rg_names v;
    bool found;

    if (!rg_path_join(snapshots, sizeof snapshots, repo, "snapshots"))
        return false;
    if (read_ref(repo, revision ? revision : "main", commit) &&
        rg_path_join(out, RG_LIBRARY_PATH, snapshots, commit) && rg_path_look(out) == RG_PATH_DIR)
        return true;
    if (revision)
        return rg_path_join(out, RG_LIBRARY_PATH, snapshots, revision) && rg_path_look(out) == RG_PATH_DIR;
    rg_names_of(&v, snapshots);
    found = v.n == 1 && rg_path_join(out, RG_LIBRARY_PATH, snapshots, v.item[0]);
    rg_names_fini(&v);
    return found;
}

/* "models--ORG--NAME" of "ORG/NAME". */
static bool folder_of(const char *name, char folder[RG_LIBRARY_NAME + 16])
{
    const char *slash = strchr(name, '/');

    if (!slash || slash == name || !slash[1] || strchr(slash + 1, '/'))
        return false;
    snprintf(folder, RG_LIBRARY_NAME + 16, "models--%.*s--%s", (int)(slash - name), name, slash + 1);
    return true;
}

int rg_hub_find(const char *hub, const char *given, rg_library_model *out, rg_error *err)
{
    char name[RG_LIBRARY_NAME], folder[RG_LIBRARY_NAME + 16], repo[RG_LIBRARY_PATH], snapshot[RG_LIBRARY_PATH];
    const char *quant = rg_split_quant(given, name);
    char *at = strchr(name, '@');

    if (at)
        *at++ = 0;
    if (!hub || !folder_of(name, folder) || !rg_path_join(repo, sizeof repo, hub, folder) ||
        rg_path_look(repo) != RG_PATH_DIR || !find_snapshot(repo, at, snapshot))
        return 0;
    return rg_model_in(snapshot, quant, given, out, err) ? 1 : -1;
}

/* "ORG/NAME" of "models--ORG--NAME". */
static bool name_of(const char *folder, char name[RG_LIBRARY_NAME])
{
    static const char models[] = "models--";
    const char *org = folder + strlen(models), *dashes;

    if (strncmp(folder, models, strlen(models)) != 0 || !(dashes = strstr(org, "--")))
        return false;
    return (size_t)snprintf(name, RG_LIBRARY_NAME, "%.*s/%s", (int)(dashes - org), org, dashes + 2) < RG_LIBRARY_NAME;
}

static bool each_of(const char *name, const char *snapshot, rg_library_model *f, rg_library_visitor *visit, void *arg)
{
    bool go = true, alone = !rg_is_model_folder(snapshot);
    rg_names files;
    char quant[32];

    f->place = RG_PLACE_HUB;
    if (!alone) {
        snprintf(f->path, sizeof f->path, "%s", snapshot);
        snprintf(f->name, sizeof f->name, "%s", name);
        f->bytes = rg_bytes_of(f->path);
        go = visit(arg, f);
    }
    rg_ggufs_in(snapshot, &files);
    for (int i = 0; i < files.n && go; i++) {
        if (!rg_path_join(f->path, sizeof f->path, snapshot, files.item[i]))
            continue;
        rg_gguf_quant(files.item[i], quant);
        snprintf(f->name, sizeof f->name, "%.300s:%.200s", name, *quant ? quant : files.item[i]);
        f->bytes = rg_bytes_of(f->path);
        go = visit(arg, f);
    }
    rg_names_fini(&files);
    return go;
}

bool rg_hub_each(const char *hub, rg_library_visitor *visit, void *arg)
{
    char repo[RG_LIBRARY_PATH], snapshot[RG_LIBRARY_PATH], name[RG_LIBRARY_NAME];
    bool go = true;
    rg_library_model f;
    rg_names v;

    rg_names_of(&v, hub);
    for (int i = 0; i < v.n && go; i++)
        if (name_of(v.item[i], name) && rg_path_join(repo, sizeof repo, hub, v.item[i]) &&
            find_snapshot(repo, NULL, snapshot))
            go = each_of(name, snapshot, &f, visit, arg);
    rg_names_fini(&v);
    return go;
}
