/* pack_cache.c -- see pack_cache.h. */
#include "model/pack_cache.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/origin.h"
#include "model/pack_file.h"

enum {
    PACKING = 1, /* raised when weights are packed or loaded otherwise than before */
    PATH_ROOM = 4096,
};

/* How this version packs: two that differ in it read no files of each other. */
static void add_packing(rg_hasher *h)
{
    const uint64_t number = PACKING;

    rg_hasher_add(h, &number, sizeof number);
    rg_hasher_add(h, RG_VERSION, sizeof RG_VERSION);
    for (int type = 0; type < RG_TYPE_COUNT; type++) {
        const rg_format *f = rg_format_of((rg_type)type);
        const uint64_t about[] = { (uint64_t)f->block_len, (uint64_t)f->block_bytes, (uint64_t)f->layout,
                                   (uint64_t)rg_layout_step(f->layout), rg_layout_step_bytes(f->layout) };

        rg_hasher_add(h, f->name, strlen(f->name) + 1);
        rg_hasher_add(h, about, sizeof about);
    }
}

static bool key_of(const rg_checkpoint *ckpt, uint64_t *key, rg_error *err)
{
    uint64_t identity;
    rg_hasher *h;

    if (!rg_checkpoint_identity(ckpt, &identity, err))
        return false;
    h = rg_hasher_new();
    if (!h)
        return rg_fail_memory(err, sizeof *key);
    rg_hasher_add(h, &identity, sizeof identity);
    add_packing(h);
    *key = rg_hasher_value(h);
    rg_hasher_free(h);
    return true;
}

/* DIR/NAME-HASH.pack: the checkpoint's own name, and a hash of where it lies. */
static bool path_of(const char *dir, const rg_checkpoint *ckpt, char out[PATH_ROOM], rg_error *err)
{
    char *full = rg_path_full(rg_checkpoint_path(ckpt), err), name[320];
    const char *last;
    bool ok;

    if (!full)
        return false;
    last = strrchr(full, '/') ? strrchr(full, '/') + 1 : full;
    snprintf(name, sizeof name, "%.200s-%016llx.pack", last, (unsigned long long)rg_xxh64(full, strlen(full), 0));
    ok = rg_path_join(out, PATH_ROOM, dir, name) || rg_fail(err, RG_E_INPUT, "%s/%s: the path is too long", dir, name);
    rg_free(full);
    return ok;
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

    if (rg_spec_is_vector(r->set->spec[i]))
        return read_vector(r, i, err);
    if (!rg_packed_init(p, w->type, w->n_mats, w->rows, w->cols, err))
        return false;
    for (int64_t m = 0; m < w->n_mats; m++)
        if (!rg_pack_file_read(r->file, i, m, p->data + (size_t)m * rg_packed_mat_bytes(p), err))
            return false;
    w->packed = p;
    return true;
}

static rg_weight_work work_of(const rg_model_options *o, const char *what, bool (*each)(void *, int, rg_error *),
                              void *arg)
{
    return (rg_weight_work){ each, arg, o->n_threads > 0 ? o->n_threads : 1, what, o->progress, o->progress_arg };
}

/* False: there is no file that will do; the weights are declared and not bound. */
static bool read_file(rg_weight_set *s, const char *path, uint64_t key, const rg_model_options *o)
{
    rg_error why = { RG_OK, "" };
    rg_pack_file *f;
    bool ok = false;

    if (rg_path_look(path) == RG_PATH_NONE)
        return false;
    f = rg_pack_file_open(path, key, s, &why);
    if (f) {
        rg_weight_work work = work_of(o, "reading packed weights", read_each, &(reading){ s, f });
        ok = rg_weights_each(s, &work, &why);
    }
    rg_pack_file_close(f);
    if (ok)
        rg_weights_count_bytes(s);
    else
        rg_weights_unbind(s);
    if (!ok)
        rg_log(RG_LOG_WARN, "%s; the weights are packed again", why.text);
    return ok;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static bool write_weights(rg_pack_writer *out, const rg_weight_set *s, const rg_model_options *o, rg_error *err)
{
    for (int i = 0; i < s->n; i++) {
        const rg_weight *w = &s->all[i];

        if (o->progress)
            o->progress(o->progress_arg, "writing packed weights", (double)i / s->n);
        if (w->vec && !rg_pack_writer_put(out, i, 0, w->vec, err))
            return false;
        for (int64_t m = 0; !w->vec && m < w->n_mats; m++)
            if (!rg_pack_writer_put(out, i, m, rg_panel_at(w->packed, m, 0), err))
                return false;
    }
    if (o->progress)
        o->progress(o->progress_arg, "writing packed weights", 1);
    return true;
}

static void write_file(const rg_weight_set *s, const char *path, uint64_t key, const rg_model_options *o)
{
    rg_error why = { RG_OK, "" };
    rg_pack_writer *out = rg_pack_writer_open(path, key, s, &why);
    bool ok = out && write_weights(out, s, o, &why);

    if (ok)
        ok = rg_pack_writer_commit(out, &why);
    else
        rg_pack_writer_abort(out);
    if (!ok)
        rg_log(RG_LOG_WARN, "%s; the packed weights are not kept", why.text);
}

bool rg_pack_cache_bind(rg_model *m, const rg_checkpoint *ckpt, const rg_model_options *o, rg_error *err)
{
    char path[PATH_ROOM];
    uint64_t key = 0;

    if (!rg_dir_make(o->pack_cache, err) || !path_of(o->pack_cache, ckpt, path, err) || !key_of(ckpt, &key, err))
        return false;
    if (read_file(&m->weights, path, key, o))
        return true;
    if (!rg_weights_bind(&m->weights, &m->config, ckpt, o->n_threads > 0 ? o->n_threads : 1, o->progress,
                         o->progress_arg, err))
        return false;
    write_file(&m->weights, path, key, o);
    return true;
}
