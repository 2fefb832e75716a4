/* pack_cache.c -- see pack_cache.h. */
#include "model/pack_cache.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/origin.h"
#include "model/pack_file.h"
#include "quant/paged.h"

enum {
    PACKING = 4, /* raised when weights are packed or loaded otherwise than before */
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
static void add_packing(rg_hasher *h)
{
    const uint64_t number = PACKING;

    rg_hasher_add(h, &number, sizeof number);
    rg_hasher_add(h, RG_VERSION, sizeof RG_VERSION);
    for (int type = 0; type < RG_TYPE_COUNT; type++) {
        const rg_format *f = rg_format_of((rg_type)type);
        rg_packed p = { 0 };

        if (f->layout != RG_LAYOUT_NONE)
            RG_ASSERT(rg_packed_shape(&p, (rg_type)type, 1, 1, f->block_len, NULL));
        const uint64_t about[] = { (uint64_t)f->block_len, (uint64_t)f->block_bytes, (uint64_t)f->layout, p.bytes };
        rg_hasher_add(h, f->name, strlen(f->name) + 1);
        rg_hasher_add(h, about, sizeof about);
    }
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
    add_packing(h);
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

/* DIR/NAME-HASH.pack: the checkpoint's own name, and a hash of where it lies. */
static bool find_path(binding *b, rg_error *err)
{
    char *full = rg_path_full(rg_checkpoint_path(b->ckpt), err), name[320];
    const char *dir = b->o->pack_cache;
    bool ok;

    if (!full)
        return false;
    snprintf(name, sizeof name, "%.200s-%016llx.pack", strrchr(full, '/') + 1,
             (unsigned long long)rg_xxh64(full, strlen(full), 0));
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
        /* The file has it, so it has a shape. */
        RG_ASSERT(rg_weights_shape_packed(&s->packed[i], w, rg_pack_file_type(f, i), w->n_mats, NULL));
        s->packed[i].first_page = n;
        for (int64_t m = 0; m < w->n_mats; m++, n++) {
            b->pages[n].offset = rg_pack_file_place(f, i, m)->offset;
            b->pages[n].hash = rg_pack_file_place(f, i, m)->hash;
        }
    }
    s->paged = rg_paged_new(&o, err);
    if (s->paged)
        rg_pack_file_let_go(f);
    for (int i = 0; s->paged && i < s->n; i++)
        if (rg_weights_is_apart(s, i)) {
            s->packed[i].paged = s->paged;
            s->all[i].packed = &s->packed[i];
        }
    return s->paged;
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
    return vec ? rg_pack_file_read(r->file, i, 0, vec, err) : rg_fail_memory(err, bytes);
}

static bool read_each(void *arg, int i, rg_error *err)
{
    const reading *r = arg;
    rg_weight *w = &r->set->all[i];
    rg_packed *p = &r->set->packed[i];

    if (rg_weights_is_apart(r->set, i))
        return true;
    if (rg_spec_is_vector(r->set->spec[i]))
        return read_vector(r, i, err);
    if (!rg_weights_init_packed(p, w, rg_pack_file_type(r->file, i), w->n_mats, err))
        return false;
    for (int64_t m = 0; m < w->n_mats; m++)
        if (!rg_pack_file_read(r->file, i, m, p->data + (size_t)m * rg_packed_mat_bytes(p), err))
            return false;
    w->packed = p;
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

static bool write_bound(rg_pack_writer *out, const rg_weight_set *s, int i, rg_error *err)
{
    const rg_weight *w = &s->all[i];

    if (w->vec)
        return rg_pack_writer_put(out, i, 0, w->vec, err);
    for (int64_t m = 0; m < w->n_mats; m++)
        if (!rg_pack_writer_put(out, i, m, rg_panel_at(w->packed, m, 0), err))
            return false;
    return true;
}

static bool write_expert(writing *w, int i, int64_t mat, rg_error *err)
{
    rg_packed p;
    bool ok = rg_weights_pack_mat(w->b->set, i, mat, w->b->c, w->b->ckpt, &p, err);

    if (ok) {
        pthread_mutex_lock(&w->lock);
        ok = rg_pack_writer_put(w->out, i, mat, p.data, err);
        pthread_mutex_unlock(&w->lock);
    }
    rg_packed_fini(&p);
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
        if (!list_pages(b, err))
            return false;
        o = paging(b);
        if (!rg_paged_check(&o, err))
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
