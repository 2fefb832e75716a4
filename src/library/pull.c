/* pull.c -- see pull.h: what files a model has, which are wanted, and where they go.  blob.c fetches one. */
#include "library/pull.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "library/blob.h"
#include "library/fetch.h"
#include "library/internal.h"

enum { LISTING_BYTES = 64 << 20, MOST_FILES = 10000, RETRIES = 6 };

typedef struct pull {
    const rg_pull_options *o;
    const char *given;
    char name[RG_LIBRARY_NAME], revision[128], commit[128]; /* "ORG/NAME" */
    const char *quant;
    char repo[RG_LIBRARY_PATH]; /* HUB/models--ORG--NAME */
    rg_blob *files;             /* the files to fetch */
    int n_files;
    uint64_t total;
} pull;

/* ---- names ---- */

static bool is_word(const char *s, const char *also)
{
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && !strchr(also, *s))
            return false;
    return true;
}

/* A path below a folder, of characters that a terminal and a file system take. */
static bool is_path(const char *s)
{
    char ignored[RG_LIBRARY_PATH];

    for (const char *c = s; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f || *c == '\\')
            return false;
    return strlen(s) < 512 && rg_path_join(ignored, sizeof ignored, "x", s) && !strstr(s, "//");
}

static bool read_name(pull *p, rg_error *err)
{
    const char *slash;
    char *at;

    p->quant = rg_split_quant(p->given, p->name);
    at = strchr(p->name, '@');
    if (at)
        *at++ = 0;
    snprintf(p->revision, sizeof p->revision, "%s", at && *at ? at : "main");
    slash = strchr(p->name, '/');
    if (!slash || slash == p->name || !slash[1] || strchr(slash + 1, '/') || !is_word(p->name, "-_./") ||
        strstr(p->name, "..") || !is_word(p->revision, "-_./") || !is_path(p->revision) || p->name[0] == '.' ||
        slash[1] == '.')
        return rg_fail(err, RG_E_USAGE, "'%.200s' is not ORG/NAME, ORG/NAME:TYPE or ORG/NAME@REVISION", p->given);
    size_t n = (size_t)snprintf(p->repo, sizeof p->repo, "%s/models--%.*s--%s", p->o->hub, (int)(slash - p->name),
                                p->name, slash + 1);
    return n < sizeof p->repo || rg_fail(err, RG_E_INPUT, "%s: the path is too long", p->o->hub);
}

/* A path in a URL. */
static void add_escaped(rg_buf *b, const char *s, bool keep_slashes)
{
    for (; *s; s++)
        if (isalnum((unsigned char)*s) || strchr("-_.~", *s) || (*s == '/' && keep_slashes))
            rg_buf_add(b, s, 1);
        else
            rg_buf_printf(b, "%%%02X", (unsigned char)*s);
}

/* ---- which files ---- */

static bool fail_listing(const pull *p, long status, rg_error *err)
{
    if (status == 401 || status == 403)
        return rg_fail(err, RG_E_IO, "%s: %s answers %ld: there is no such model, or it needs a token (HF_TOKEN) of "
                       "somebody who may read it and has accepted its terms", p->name, p->o->endpoint, status);
    if (status == 404)
        return rg_fail(err, RG_E_IO, "%s: %s answers 404: no model of this name has a revision %s", p->name,
                       p->o->endpoint, p->revision);
    return rg_fail_prefix(err, "%s", p->name);
}

static bool is_stopped(void *arg, uint64_t bytes)
{
    const pull *p = arg;

    (void)bytes;
    return !p->o->stop || !p->o->stop();
}

/* What the hub says of the model.  json_decref it; NULL: failure. */
static json_t *ask(pull *p, rg_error *err)
{
    rg_fetch_options fetch = { .token = p->o->token, .progress = is_stopped, .arg = p, .retries = RETRIES,
                               .pause_s = p->o->pause_s };
    json_error_t why;
    rg_buf url, text;
    json_t *j = NULL;
    long status = 0;

    rg_buf_init(&url, 1 << 16);
    rg_buf_init(&text, LISTING_BYTES);
    rg_buf_printf(&url, "%s/api/models/%s/revision/", p->o->endpoint, p->name);
    add_escaped(&url, p->revision, false);
    rg_buf_str(&url, "?blobs=true");
    if (url.failed)
        rg_fail_memory(err, url.n);
    else if (!rg_fetch_text(url.data, &fetch, &text, &status, err))
        fail_listing(p, status, err);
    else if (!(j = rg_json_load(text.data ? text.data : "", text.n, 0, &why)))
        rg_json_fail(url.data, text.n, &why, RG_E_INPUT, err);
    rg_buf_fini(&text);
    rg_buf_fini(&url);
    return j;
}

/* One file of the listing; false: its name or hash is none. */
static bool read_sibling(const json_t *j, rg_blob *b)
{
    const json_t *lfs = json_object_get(j, "lfs");
    const char *name = json_string_value(json_object_get(j, "rfilename"));
    const char *hash = json_string_value(json_object_get(lfs, "sha256"));
    int64_t size;

    if (!hash)
        hash = json_string_value(json_object_get(lfs, "oid"));
    b->is_sha256 = hash != NULL;
    if (!hash)
        hash = json_string_value(json_object_get(j, "blobId"));
    if (!rg_json_whole(json_object_get(lfs ? lfs : j, "size"), &size) || size < 0)
        return false;
    b->size = (uint64_t)size;
    if (!name || !hash || !is_path(name) || strlen(hash) != (b->is_sha256 ? 64 : 40) ||
        strspn(hash, "0123456789abcdef") != strlen(hash))
        return false;
    snprintf(b->name, sizeof b->name, "%s", name);
    snprintf(b->hash, sizeof b->hash, "%s", hash);
    return true;
}

static bool begins(const char *s, const char *with)
{
    return !strncmp(s, with, strlen(with));
}

/* A file of a model that is opened as a folder. */
static bool is_of_folder(const char *name)
{
    static const char *const ends[] = { ".json", ".safetensors", ".model", ".jinja", ".tiktoken" };
    static const char *const others[] = { "merges.txt", "vocab.txt", "README.md" };
    /* below these the same weights are once more, in other forms */
    static const char *const not_below[] = { "onnx/", "original/", "openvino/", "coreml/", "metal/", "gguf/", "." };

    for (size_t i = 0; i < RG_LEN(not_below); i++)
        if (begins(name, not_below[i]))
            return false;
    for (size_t i = 0; i < RG_LEN(others); i++)
        if (!strcmp(name, others[i]))
            return true;
    for (size_t i = 0; i < RG_LEN(ends); i++)
        if (rg_ends_in(name, ends[i]))
            return !begins(name, "consolidated");
    return begins(name, "LICENSE") || begins(name, "LICENCE");
}

/* The parts of a split file have all in common but the number. */
static bool is_same_model(const char *a, const char *chosen)
{
    const char *part = strstr(chosen, "-00001-of-");
    size_t n = part ? (size_t)(part - chosen) : 0;

    if (!part)
        return !strcmp(a, chosen);
    return !strncmp(a, chosen, n) && strlen(a) == strlen(chosen) && !strcmp(a + n + 6, chosen + n + 6);
}

/* Leave the files that are wanted. */
static bool choose(pull *p, rg_error *err)
{
    bool has_config = false, has_weights = false, by_folder;
    char chosen[sizeof p->files->name] = "";
    rg_names ggufs = { 0 };
    int n = 0, i;

    for (i = 0; i < p->n_files; i++) {
        const char *name = p->files[i].name;
        has_config |= !strcmp(name, "config.json");
        has_weights |= rg_ends_in(name, ".safetensors") && is_of_folder(name);
        if (rg_gguf_is_model(name) && !rg_names_add(&ggufs, name))
            break;
    }
    by_folder = !p->quant && has_config && has_weights;
    if (ggufs.failed) {
        rg_names_fini(&ggufs);
        return rg_fail_memory(err, 0);
    }
    i = by_folder || !ggufs.n ? -1 : rg_choose_gguf(&ggufs, p->quant, p->given, err);
    if (i >= 0)
        snprintf(chosen, sizeof chosen, "%s", ggufs.item[i]);
    bool none = !ggufs.n;
    rg_names_fini(&ggufs);
    if (!by_folder && none)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: it has no GGUF file%s", p->given,
                       p->quant ? "" : ", and no config.json with safetensors");
    if (!by_folder && !*chosen)
        return false;
    for (i = 0; i < p->n_files; i++)
        if (by_folder ? is_of_folder(p->files[i].name) : is_same_model(p->files[i].name, chosen))
            p->files[n++] = p->files[i];
    p->n_files = n;
    for (i = 0; i < n; i++)
        if (!rg_add(p->total, p->files[i].size, &p->total))
            return rg_fail(err, RG_E_INPUT, "%s: files of absurd sizes", p->given);
    return true;
}

static bool list_files(pull *p, rg_error *err)
{
    json_t *j = ask(p, err), *sibling;
    const json_t *siblings = json_object_get(j, "siblings");
    const char *commit = json_string_value(json_object_get(j, "sha"));
    size_t i;

    if (!j)
        return false;
    bool ok = commit && strlen(commit) < sizeof p->commit && *commit && is_word(commit, "") &&
              json_is_array(siblings) && json_array_size(siblings) <= MOST_FILES;
    if (!ok)
        rg_fail(err, RG_E_INPUT, "%s: what %s tells of the model is not as expected", p->name, p->o->endpoint);
    else if (!(p->files = rg_array(json_array_size(siblings), sizeof *p->files)))
        ok = rg_fail_memory(err, json_array_size(siblings));
    if (ok)
        snprintf(p->commit, sizeof p->commit, "%s", commit);
    json_array_foreach(siblings, i, sibling)
        if (ok && read_sibling(sibling, &p->files[p->n_files]))
            p->n_files++;
    json_decref(j);
    return ok && choose(p, err);
}

/* ---- folders ---- */

/* Make every folder on the way to a file. */
static bool make_way(char *path, rg_error *err)
{
    for (char *s = strchr(path + 1, '/'); s; s = strchr(s + 1, '/')) {
        *s = 0;
        bool ok = rg_dir_make(path, err);
        *s = '/';
        if (!ok)
            return false;
    }
    return true;
}

/* Room on the disk for what is still to come, and a little over. */
static bool has_room(const pull *p, uint64_t to_come, rg_error *err)
{
    struct statvfs v;

    if (statvfs(p->o->hub, &v) || (uint64_t)v.f_bavail * v.f_frsize >= to_come)
        return true;
    return rg_fail(err, RG_E_IO, "%s: %.1f GB are to come, and %s has room for %.1f", p->given, (double)to_come / 1e9,
                   p->o->hub, (double)v.f_bavail * (double)v.f_frsize / 1e9);
}

/* snapshots/COMMIT/NAME as a link to the blob. */
static bool link_file(const pull *p, const rg_blob *b, rg_error *err)
{
    char path[RG_LIBRARY_PATH + 700], target[800], new_path[RG_LIBRARY_PATH + 800];
    size_t n = 0;

    snprintf(path, sizeof path, "%s/snapshots/%s/%s", p->repo, p->commit, b->name);
    for (const char *s = b->name; *s; s++)
        if (*s == '/')
            n += (size_t)snprintf(target + n, sizeof target - n, "../");
    snprintf(target + n, sizeof target - n, "../../blobs/%s", b->hash);
    snprintf(new_path, sizeof new_path, "%s.%d", path, (int)getpid());
    if (!make_way(path, err))
        return false;
    unlink(new_path);
    return (!symlink(target, new_path) && !rename(new_path, path)) ||
           rg_fail(err, RG_E_IO, "%s: cannot be made a link: %s", path, strerror(errno));
}

/* The model is there from the moment that refs/REVISION names the commit. */
static bool publish(const pull *p, rg_error *err)
{
    char path[RG_LIBRARY_PATH + 200];

    for (int i = 0; i < p->n_files; i++)
        if (!link_file(p, &p->files[i], err))
            return false;
    snprintf(path, sizeof path, "%s/refs/%s", p->repo, p->revision);
    if (!strcmp(p->revision, p->commit))
        return true;
    return make_way(path, err) && rg_file_put(path, p->commit, strlen(p->commit), err);
}

/* ---- the whole ---- */

static bool fetch_all(pull *p, rg_pulled *out, rg_error *err)
{
    rg_blob_options o = { .pull = p->o, .total = p->total };
    uint64_t to_come = p->total;
    char blobs[RG_LIBRARY_PATH + 16];
    rg_buf url;
    bool ok = true;

    snprintf(blobs, sizeof blobs, "%s/blobs/", p->repo);
    if (!make_way(blobs, err))
        return false;
    for (int i = 0; i < p->n_files; i++)
        to_come -= rg_blob_bytes_there(blobs, &p->files[i]);
    if (!has_room(p, to_come, err))
        return false;
    rg_buf_init(&url, 1 << 16);
    for (int i = 0; ok && i < p->n_files; i++) {
        rg_buf_reset(&url);
        rg_buf_printf(&url, "%s/%s/resolve/%s/", p->o->endpoint, p->name, p->commit);
        add_escaped(&url, p->files[i].name, true);
        ok = url.failed ? rg_fail_memory(err, url.n)
                        : rg_blob_get(&o, url.data, blobs, &p->files[i], &out->n_fetched, err);
        o.before += p->files[i].size;
    }
    rg_buf_fini(&url);
    return ok;
}

bool rg_pull(const char *name, const rg_pull_options *o, rg_pulled *out, rg_error *err)
{
    pull p = { .o = o, .given = name };
    rg_places places = { .hub = o->hub };

    *out = (rg_pulled){ 0 };
    bool ok = read_name(&p, err) && list_files(&p, err) && fetch_all(&p, out, err) && publish(&p, err);
    out->n_files = p.n_files;
    out->bytes = p.total;
    rg_free(p.files);
    return ok && rg_library_find(&places, name, &out->found, err);
}
