/* pack_cache.c -- see pack_cache.h. */
#include "model/pack_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/weight_source.h"
#include "model/pack_file.h"

enum {
    PACKING = 5, /* raised when weights are loaded otherwise than before */
    PATH_ROOM = 4096,
    AT_ONCE = 3, /* matrices of one expert, all of which a step holds */
    READERS = 8, /* threads that read experts */
};

typedef struct binding {
    rg_weight_set *set;
    const rg_config *c;
    const rg_checkpoint *ckpt;
    const rg_model_options *o;
    char path[PATH_ROOM];
    uint64_t key;
    rg_paged_page *pages; /* of experts that are apart */
    int n_pages;
} binding;

static rg_weight_work work_of(const binding *b, const char *what, bool (*each)(void *, int, rg_error *), void *arg)
{
    return (rg_weight_work){ each, arg, b->o->n_threads > 0 ? b->o->n_threads : 1, what, b->o->progress,
                             b->o->progress_arg };
}

/* ---- the file's name and key ------------------------------------------------------------------------------------- */

/* How this version packs: two that differ in it read no files of each other. */
static void add_packing(rg_hasher *h, const rg_weight_set *s)
{
    const uint64_t numbers[] = { PACKING, s->backend->image_version(s->backend), s->round16 };

    rg_hasher_add(h, numbers, sizeof numbers);
    rg_hasher_add(h, RG_VERSION, sizeof RG_VERSION);
}

static bool find_key(binding *b, rg_error *err)
{
    uint64_t identity;
    rg_hasher *h;

    if (!rg_checkpoint_identity(b->ckpt, &identity, err))
        return false;
    h = rg_hasher_new();
    if (!h)
        return rg_fail_memory(err, sizeof identity);
    rg_hasher_add(h, &identity, sizeof identity);
    add_packing(h, b->set);
    b->key = rg_hasher_value(h);
    rg_hasher_free(h);
    return true;
}

/* The folder in which the checkpoint lies, or which it is, instead of `full`. */
static const char *folder_of(char *full)
{
    char *slash = strrchr(full, '/');

    if (rg_path_look(full) != RG_PATH_DIR)
        slash[slash == full] = '\0';
    return full;
}

/* DIR/NAME-HASH.pack: the checkpoint's own name, and a hash of where it lies.  With round16 another file, so that the
 * two do not write over each other. */
static bool find_path(binding *b, rg_error *err)
{
    const char *rounded = b->set->round16 ? "-round16" : "";
    char *full = rg_path_full(rg_checkpoint_path(b->ckpt), err), name[320];
    const char *dir = b->o->pack_cache;
    bool ok;

    if (!full)
        return false;
    snprintf(name, sizeof name, "%.200s-%016llx%s.pack", strrchr(full, '/') + 1,
             (unsigned long long)rg_xxh64(full, strlen(full), 0), rounded);
    if (!dir)
        dir = folder_of(full);
    ok = rg_path_join(b->path, PATH_ROOM, dir, name) ||
         rg_fail(err, RG_E_INPUT, "%s/%s: the path is too long", dir, name);
    rg_free(full);
    return ok;
}

/* ---- experts that stay in the file ------------------------------------------------------------------------------- */

/* Their pages, whose places in the file are not known yet. */
static bool list_pages(binding *b, rg_error *err)
{
    const rg_weight_set *s = b->set;
    size_t n = 0, bytes;

    for (int i = 0; i < s->n; i++)
        n += rg_weights_is_apart(s, i) ? (size_t)s->all[i].n_mats : 0;
    if (!n)
        return rg_fail(err, RG_E_USAGE, "%s: there is memory for experts, and the model has none",
                       rg_checkpoint_path(b->ckpt));
    b->pages = rg_array(n, sizeof *b->pages);
    if (!b->pages)
        return rg_fail_memory(err, n * sizeof *b->pages);
    for (int i = 0; i < s->n; i++) {
        if (!rg_weights_is_apart(s, i))
            continue;
        if (!rg_pack_mat_bytes(s, i, &bytes, err))
            return false;
        for (int64_t m = 0; m < s->all[i].n_mats; m++)
            b->pages[b->n_pages++].bytes = bytes;
    }
    return true;
}

static rg_paged_options paging(const binding *b)
{
    return (rg_paged_options){ .pages = b->pages, .n_pages = b->n_pages, .bytes = b->o->expert_bytes,
                               .at_once = AT_ONCE, .n_readers = READERS };
}

/* Each weight of experts becomes the next pages. */
static bool place_pages(rg_weight_set *s, const rg_pack_file *f, rg_error *err)
{
    int n = 0;

    for (int i = 0; i < s->n; i++) {
        rg_weight *w = &s->all[i];

        if (!rg_weights_is_apart(s, i))
            continue;
        const rg_placing what = rg_weights_placing(w, rg_pack_file_type(f, i), w->n_mats);
        w->placed = s->placed[i] = s->backend->paging->place(s->backend, s->paged, n, &what, err);
        if (!w->placed)
            return false;
        n += (int)w->n_mats;
    }
    return true;
}

/* They are read from the file that is open: by now its name may be another one's, with other places, which a start
 * beside this one has written. */
static bool page_experts(binding *b, rg_pack_file *f, rg_error *err)
{
    rg_weight_set *s = b->set;
    rg_paged_options o = paging(b);
    int n = 0;

    o.file = rg_pack_file_file(f);

    for (int i = 0; i < s->n; i++) {
        const rg_weight *w = &s->all[i];

        if (!rg_weights_is_apart(s, i))
            continue;
        for (int64_t m = 0; m < w->n_mats; m++, n++) {
            b->pages[n].offset = rg_pack_file_place(f, i, m)->offset;
            b->pages[n].hash = rg_pack_file_place(f, i, m)->hash;
        }
    }
    s->paged = s->backend->paging->open(&o, err);
    if (s->paged)
        rg_pack_file_let_go(f);
    return s->paged && place_pages(s, f, err);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

typedef struct reading {
    rg_weight_set *set;
    const rg_pack_file *file;
} reading;

static bool read_vector(const reading *r, int i, rg_error *err)
{
    size_t bytes;

    if (!rg_pack_mat_bytes(r->set, i, &bytes, err))
        return false;
    float *vec = rg_alloc(bytes);
    r->set->all[i].vec = vec;
    if (!vec)
        return rg_fail_memory(err, bytes);
    return rg_pack_file_read(r->file, i, 0, vec, err) && rg_weights_place_vector(r->set, i, err);
}

/* Where a matrix's image stands in the file. */
typedef struct image {
    const rg_pack_file *file;
    int weight;
    int64_t mat;
} image;

static bool read_image(void *arg, void *to, size_t bytes, rg_error *err)
{
    const image *m = arg;

    (void)bytes; /* as many as the file has: image_bytes said so */
    return rg_pack_file_read(m->file, m->weight, m->mat, to, err);
}

static bool read_each(void *arg, int i, rg_error *err)
{
    const reading *r = arg;
    rg_weight *w = &r->set->all[i];
    const rg_backend *b = r->set->backend;

    if (rg_weights_is_apart(r->set, i))
        return true;
    if (rg_spec_is_vector(r->set->spec[i]))
        return read_vector(r, i, err);
    const rg_placing what = rg_weights_placing(w, rg_pack_file_type(r->file, i), w->n_mats);
    rg_placed *p = r->set->placed[i] = b->weight_new(b, &what, err);
    if (!p)
        return false;
    for (int64_t m = 0; m < w->n_mats; m++)
        if (!b->image_load(p, m, read_image, &(image){ r->file, i, m }, err))
            return false;
    w->placed = p;
    return true;
}

/* False: the weights are declared and not bound. */
static bool read_file(binding *b, rg_error *err)
{
    rg_pack_file *f = rg_pack_file_open(b->path, b->key, b->set, err);
    rg_weight_work work = work_of(b, "reading packed weights", read_each, &(reading){ b->set, f });
    bool ok = f && rg_weights_each(b->set, &work, err) && (!b->set->experts_apart || page_experts(b, f, err));

    rg_pack_file_close(f);
    if (ok)
        rg_weights_count_bytes(b->set);
    else
        rg_weights_unbind(b->set);
    return ok;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* What is bound is written; experts that are apart are packed first, one matrix at a time for each thread. */
typedef struct writing {
    const binding *b;
    rg_pack_writer *out;
    pthread_mutex_t lock; /* of out */
} writing;

/* Where a matrix's image goes. */
typedef struct image_to {
    rg_pack_writer *out;
    int weight;
    int64_t mat;
} image_to;

static bool write_image(void *arg, const void *from, size_t bytes, rg_error *err)
{
    const image_to *m = arg;

    (void)bytes; /* likewise */
    return rg_pack_writer_put(m->out, m->weight, m->mat, from, err);
}

static bool write_bound(rg_pack_writer *out, const rg_weight_set *s, int i, rg_error *err)
{
    const rg_weight *w = &s->all[i];

    if (w->vec)
        return rg_pack_writer_put(out, i, 0, w->vec, err);
    for (int64_t m = 0; m < w->n_mats; m++)
        if (!s->backend->image_save(w->placed, m, write_image, &(image_to){ out, i, m }, err))
            return false;
    return true;
}

static bool write_expert(writing *w, int i, int64_t mat, rg_error *err)
{
    rg_placed *p = rg_weights_place_mat(w->b->set, i, mat, w->b->c, w->b->ckpt, err);
    bool ok = p;

    if (ok) {
        pthread_mutex_lock(&w->lock);
        ok = p->owner->image_save(p, 0, write_image, &(image_to){ w->out, i, mat }, err);
        pthread_mutex_unlock(&w->lock);
    }
    rg_placed_free(p);
    return ok;
}

static bool write_each(void *arg, int i, rg_error *err)
{
    writing *w = arg;
    bool ok = true;

    if (!rg_weights_is_apart(w->b->set, i)) {
        pthread_mutex_lock(&w->lock);
        ok = write_bound(w->out, w->b->set, i, err);
        pthread_mutex_unlock(&w->lock);
        return ok;
    }
    for (int64_t m = 0; ok && m < w->b->set->all[i].n_mats; m++)
        ok = write_expert(w, i, m, err);
    return ok;
}

static bool write_file(const binding *b, rg_error *err)
{
    writing w = { .b = b, .out = rg_pack_writer_open(b->path, b->key, b->set, err) };
    rg_weight_work work = work_of(b, "writing packed weights", write_each, &w);
    bool ok;

    if (!w.out)
        return false;
    if (pthread_mutex_init(&w.lock, NULL)) {
        rg_pack_writer_abort(w.out);
        return rg_fail_memory(err, 0);
    }
    ok = rg_weights_each(b->set, &work, err);
    pthread_mutex_destroy(&w.lock);
    if (!ok)
        rg_pack_writer_abort(w.out);
    return ok && rg_pack_writer_commit(w.out, err);
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static bool bind_and_write(binding *b, rg_error *err)
{
    rg_error why = { RG_OK, "" };

    if (!rg_weights_bind(b->set, b->c, b->ckpt, b->o->n_threads > 0 ? b->o->n_threads : 1, b->o->progress,
                         b->o->progress_arg, err))
        return false;
    if (b->set->experts_apart) {
        bool ok = write_file(b, err);
        rg_weights_unbind(b->set);
        return ok && read_file(b, err);
    }
    if (!write_file(b, &why))
        rg_log(RG_LOG_WARN, "%s; the packed weights are not kept", why.text);
    return true;
}

static bool bind(binding *b, rg_error *err)
{
    rg_error why = { RG_OK, "" };
    rg_paged_options o;

    if (b->set->experts_apart) {
        const rg_paging *pages = b->set->backend->paging;

        if (!pages)
            return rg_fail(err, RG_E_UNSUPPORTED, "the back end '%s' cannot keep experts in a file",
                           b->set->backend->name);
        if (!list_pages(b, err))
            return false;
        o = paging(b);
        if (!pages->check(&o, err))
            return false;
    }
    if ((b->o->pack_cache && !rg_dir_make(b->o->pack_cache, err)) || !find_path(b, err) || !find_key(b, err))
        return false;
    if (rg_path_look(b->path) != RG_PATH_NONE) {
        if (read_file(b, &why))
            return true;
        rg_log(RG_LOG_WARN, "%s; the weights are packed again", why.text);
    }
    return bind_and_write(b, err);
}

bool rg_pack_cache_bind(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    binding b = { .set = &m->weights, .c = &m->config, .ckpt = ckpt, .o = o };
    bool ok;

    b.set->experts_apart = o->expert_bytes > 0;
    ok = bind(&b, err);
    rg_free(b.pages);
    return ok;
}
