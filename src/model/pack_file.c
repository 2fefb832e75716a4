/* pack_file.c -- see pack_file.h.  The directory is written last, since it has the checksums. */
#include "model/pack_file.h"

#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "model/weight_source.h"

static const char magic[8] = "RGPACK1";

/* A weight in the directory. */
typedef struct entry {
    char name[RG_WEIGHT_NAME];
    uint64_t type, n_mats, rows, cols, mat_bytes;
} entry;

typedef struct trailer {
    uint64_t key, n_weights, n_mats, directory, directory_hash;
    uint64_t hash; /* of what stands before */
    char magic[8];
} trailer;

/* What the directory of these weights has to be but for places. */
typedef struct directory {
    int n;
    entry *entries;
    size_t *first;         /* [n] place of matrix 0 */
    size_t n_places;
    rg_pack_place *places; /* offset 0: none yet */
} directory;

struct rg_pack_file {
    rg_file *file;
    directory d;
};

struct rg_pack_writer {
    rg_writer *out;
    directory d;
    uint64_t key;
};

bool rg_pack_mat_bytes(const rg_weight_set *s, int i, size_t *bytes, rg_error *err)
{
    const rg_weight *w = &s->all[i];

    if (rg_spec_is_vector(s->spec[i])) {
        *bytes = (size_t)(w->n_mats * w->rows * w->cols) * sizeof(float); /* fits: declared, so below 2^48 values */
        return true;
    }
    const rg_placing what = rg_weights_placing(w, rg_weights_given_type(s, i), w->n_mats);
    return s->backend->image_bytes(s->backend, &what, bytes, err);
}

/* ---- the directory ----------------------------------------------------------------------------------------------- */

static void directory_fini(directory *d)
{
    rg_free(d->entries);
    rg_free(d->first);
    rg_free(d->places);
    *d = (directory){ 0 };
}

static bool directory_of(directory *d, const rg_weight_set *s, rg_error *err)
{
    *d = (directory){ .n = s->n, .entries = rg_array((size_t)s->n, sizeof *d->entries),
                      .first = rg_array((size_t)s->n, sizeof *d->first) };
    if (!d->entries || !d->first)
        return rg_fail_memory(err, (size_t)s->n * sizeof *d->entries);
    for (int i = 0; i < s->n; i++) {
        const rg_weight *w = &s->all[i];
        entry *e = &d->entries[i];
        size_t bytes;

        if (!rg_pack_mat_bytes(s, i, &bytes, err))
            return false;
        strncpy(e->name, w->name, sizeof e->name - 1);
        e->type = (uint64_t)rg_weights_placed_type(s, i);
        e->n_mats = (uint64_t)w->n_mats;
        e->rows = (uint64_t)w->rows;
        e->cols = (uint64_t)w->cols;
        e->mat_bytes = bytes;
        d->first[i] = d->n_places;
        d->n_places += (size_t)(rg_spec_is_vector(s->spec[i]) ? 1 : w->n_mats);
    }
    d->places = rg_array(d->n_places, sizeof *d->places);
    return d->places || rg_fail_memory(err, d->n_places * sizeof *d->places);
}

static rg_pack_place *place_of(const directory *d, int i, int64_t mat)
{
    RG_ASSERT(i >= 0 && i < d->n && mat >= 0);
    RG_ASSERT(d->first[i] + (size_t)mat < (i + 1 < d->n ? d->first[i + 1] : d->n_places));
    return &d->places[d->first[i] + (size_t)mat];
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool damaged(const rg_pack_file *f, rg_error *err)
{
    return rg_fail(err, RG_E_INPUT, "%s: the file is damaged", rg_file_path(f->file));
}

/* The file ends with a trailer of ours, for this key. */
static bool read_trailer(const rg_pack_file *f, uint64_t key, trailer *t, rg_error *err)
{
    uint64_t size = rg_file_size(f->file);

    if (size < RG_PACK_PAGE + sizeof *t)
        return damaged(f, err);
    if (!rg_file_read(f->file, size - sizeof *t, t, sizeof *t, err))
        return false;
    if (memcmp(t->magic, magic, sizeof magic) || t->hash != rg_hash(t, offsetof(trailer, hash), 0))
        return damaged(f, err);
    return t->key == key || rg_fail(err, RG_E_INPUT, "%s: it was made from other weights, or by another version",
                                    rg_file_path(f->file));
}

/* The matrices named lie within the file, each at a page's start. */
static bool places_are_inside(const rg_pack_file *f, uint64_t end)
{
    const directory *d = &f->d;

    for (int i = 0; i < d->n; i++) {
        size_t next = i + 1 < d->n ? d->first[i + 1] : d->n_places;

        for (size_t k = d->first[i]; k < next; k++)
            if (d->places[k].offset % RG_PACK_PAGE || d->places[k].offset > end ||
                d->entries[i].mat_bytes > end - d->places[k].offset)
                return false;
    }
    return true;
}

/* F16 may be there as BF16, of the same size: that is what it is packed as. */
static void take_types(const directory *want, const entry *have)
{
    for (int i = 0; i < want->n; i++)
        if (want->entries[i].type == RG_F16 && have[i].type == RG_BF16)
            want->entries[i].type = RG_BF16;
}

static bool read_directory(rg_pack_file *f, const trailer *t, rg_error *err)
{
    const directory *want = &f->d;
    size_t n_entries = (size_t)want->n * sizeof(entry), n_places = want->n_places * sizeof(rg_pack_place);
    uint64_t size = rg_file_size(f->file) - sizeof *t;
    char *have;
    bool ok;

    if (t->n_weights != (uint64_t)want->n || t->n_mats != want->n_places || t->directory > size ||
        size - t->directory != n_entries + n_places)
        return damaged(f, err);
    have = rg_alloc_tail(n_entries, want->n_places, sizeof(rg_pack_place));
    if (!have)
        return rg_fail_memory(err, n_entries + n_places);
    ok = rg_file_read(f->file, t->directory, have, n_entries + n_places, err);
    if (ok)
        take_types(want, (const entry *)(const void *)have);
    ok = ok && ((rg_hash(have, n_entries + n_places, 0) == t->directory_hash &&
                 !memcmp(have, want->entries, n_entries)) ||
                damaged(f, err));
    if (ok)
        memcpy(want->places, have + n_entries, n_places);
    rg_free(have);
    return ok && (places_are_inside(f, t->directory) || damaged(f, err));
}

rg_pack_file *rg_pack_file_open(const char *path, uint64_t key, const rg_weight_set *s, rg_error *err)
{
    rg_pack_file *f = rg_zalloc(sizeof *f);
    trailer t;

    if (!f)
        return rg_fail_memory(err, sizeof *f), NULL;
    f->file = rg_file_open(path, err);
    if (f->file && directory_of(&f->d, s, err) && read_trailer(f, key, &t, err) && read_directory(f, &t, err))
        return f;
    rg_pack_file_close(f);
    return NULL;
}

void rg_pack_file_close(rg_pack_file *f)
{
    if (!f)
        return;
    rg_file_close(f->file);
    directory_fini(&f->d);
    rg_free(f);
}

rg_file *rg_pack_file_file(rg_pack_file *f)
{
    return f->file;
}

void rg_pack_file_let_go(rg_pack_file *f)
{
    f->file = NULL;
}

rg_type rg_pack_file_type(const rg_pack_file *f, int i)
{
    return (rg_type)f->d.entries[i].type;
}

const rg_pack_place *rg_pack_file_place(const rg_pack_file *f, int i, int64_t mat)
{
    return place_of(&f->d, i, mat);
}

bool rg_pack_file_read(const rg_pack_file *f, int i, int64_t mat, void *to, rg_error *err)
{
    const rg_pack_place *place = place_of(&f->d, i, mat);
    uint64_t at = place->offset, h = 0;
    char *p = to;

    for (size_t n = f->d.entries[i].mat_bytes, piece; n; n -= piece, p += piece, at += piece) {
        piece = n < RG_HASH_PIECE ? n : RG_HASH_PIECE;
        if (!rg_file_read(f->file, at, p, piece, err))
            return false;
        h = rg_hash(p, piece, h);
    }
    return h == place->hash || damaged(f, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Zeros up to the next page. */
static bool fill_page(rg_pack_writer *w, rg_error *err)
{
    static const char zeros[RG_PACK_PAGE];
    size_t over = (size_t)(rg_writer_tell(w->out) % RG_PACK_PAGE);

    return !over || rg_writer_write(w->out, zeros, RG_PACK_PAGE - over, err);
}

rg_pack_writer *rg_pack_writer_open(const char *path, uint64_t key, const rg_weight_set *s, rg_error *err)
{
    rg_pack_writer *w = rg_zalloc(sizeof *w);

    if (!w)
        return rg_fail_memory(err, sizeof *w), NULL;
    w->key = key;
    if (directory_of(&w->d, s, err))
        w->out = rg_writer_open(path, err);
    if (w->out && rg_writer_write(w->out, magic, sizeof magic, err) && fill_page(w, err))
        return w;
    rg_pack_writer_abort(w);
    return NULL;
}

bool rg_pack_writer_put(rg_pack_writer *w, int i, int64_t mat, const void *data, rg_error *err)
{
    rg_pack_place *place = place_of(&w->d, i, mat);
    size_t bytes = w->d.entries[i].mat_bytes;

    RG_ASSERT(!place->offset);
    *place = (rg_pack_place){ rg_writer_tell(w->out), rg_hash_pieces(data, bytes) };
    return rg_writer_write(w->out, data, bytes, err) && fill_page(w, err);
}

static bool write_end(rg_pack_writer *w, rg_error *err)
{
    const directory *d = &w->d;
    size_t n_entries = (size_t)d->n * sizeof *d->entries, n_places = d->n_places * sizeof *d->places;
    trailer t = { .key = w->key, .n_weights = (uint64_t)d->n, .n_mats = d->n_places,
                  .directory = rg_writer_tell(w->out) };
    char *both = rg_alloc_tail(n_entries, d->n_places, sizeof *d->places);
    bool ok;

    if (!both)
        return rg_fail_memory(err, n_entries + n_places);
    memcpy(both, d->entries, n_entries);
    memcpy(both + n_entries, d->places, n_places);
    t.directory_hash = rg_hash(both, n_entries + n_places, 0);
    t.hash = rg_hash(&t, offsetof(trailer, hash), 0);
    memcpy(t.magic, magic, sizeof magic);
    ok = rg_writer_write(w->out, both, n_entries + n_places, err) && rg_writer_write(w->out, &t, sizeof t, err);
    rg_free(both);
    return ok;
}

bool rg_pack_writer_commit(rg_pack_writer *w, rg_error *err)
{
    bool ok;

    for (size_t k = 0; k < w->d.n_places; k++)
        RG_ASSERT(w->d.places[k].offset);
    ok = write_end(w, err);
    if (ok) {
        ok = rg_writer_commit(w->out, err);
        w->out = NULL;
    }
    rg_pack_writer_abort(w);
    return ok;
}

void rg_pack_writer_abort(rg_pack_writer *w)
{
    if (!w)
        return;
    rg_writer_abort(w->out);
    directory_fini(&w->d);
    rg_free(w);
}
