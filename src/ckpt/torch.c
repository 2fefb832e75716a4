/* torch.c -- tensors of a file that torch.save wrote. */
#include "ckpt/torch.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/mistaken.h"

enum { PICKLE_CAP = 1 << 24, NAME_ROOM = 1024 };

/* The name of the folder that all entries are in, with its slash: what stands before "data.pkl". */
static bool find_folder(const rg_zip *z, char folder[NAME_ROOM], rg_error *err)
{
    static const char end[] = "/data.pkl";

    for (int i = 0; i < z->n; i++) {
        const char *name = z->entries[i].name;
        size_t n = strlen(name);

        if (n < sizeof end || n >= NAME_ROOM / 2 || strcmp(name + n - (sizeof end - 1), end) != 0)
            continue;
        snprintf(folder, NAME_ROOM, "%.*s", (int)(n - strlen("data.pkl")), name);
        return true;
    }
    return rg_fail(err, RG_E_INPUT, "the archive has no data.pkl, as torch.save writes");
}

/* The whole of an entry; rg_free it. */
static uint8_t *read_entry(const rg_zip *z, const char *folder, const char *name, size_t most, size_t *n, rg_error *err)
{
    char full[NAME_ROOM];
    const rg_zip_entry *e;
    uint8_t *bytes = NULL;
    uint64_t at;

    snprintf(full, sizeof full, "%s%s", folder, name);
    e = rg_zip_find(z, full);
    if (!e || !e->bytes || e->bytes > most)
        return rg_fail(err, RG_E_INPUT, "the archive has no %s of 1 to %zu bytes", name, most), NULL;
    if (!rg_zip_at(z, e, &at, err))
        return NULL;
    *n = (size_t)e->bytes;
    bytes = rg_alloc(*n);
    if (!bytes)
        return rg_fail_memory(err, *n), NULL;
    if (!rg_file_read(z->file, at, bytes, *n, err))
        return rg_free(bytes), NULL;
    return bytes;
}

static bool check_byte_order(const rg_zip *z, const char *folder, rg_error *err)
{
    char full[NAME_ROOM];
    uint8_t *order;
    size_t n;
    bool ok;

    snprintf(full, sizeof full, "%sbyteorder", folder);
    if (!rg_zip_find(z, full)) /* older files have none, and are of machines like this one */
        return true;
    order = read_entry(z, folder, "byteorder", 16, &n, err);
    ok = order && ((n == 6 && !memcmp(order, "little", 6)) ||
                   rg_fail(err, RG_E_UNSUPPORTED, "its numbers have their highest byte first"));
    rg_free(order);
    return ok;
}

static bool add_tensor(rg_checkpoint *c, int file, const rg_zip *z, const char *folder, const rg_pickled *p,
                       rg_error *err)
{
    const int size = rg_format_of(p->type)->block_bytes;
    rg_tensor t = { .file = file, .type = p->type, .n_dims = p->n_dims };
    char full[NAME_ROOM], text[80];
    const rg_zip_entry *e;
    uint64_t end, count = 1, at;

    if (!rg_name_valid(p->name.data, p->name.n) || p->name.n > RG_NAME_CAP)
        return rg_fail(err, RG_E_INPUT, "the tensor name '%s' is empty, has control characters or is longer than %d",
                       rg_name_text(p->name.data, p->name.n, text), RG_NAME_CAP);
    snprintf(full, sizeof full, "%sdata/%.*s", folder, p->storage.n < 64 ? (int)p->storage.n : 0, p->storage.data);
    e = rg_zip_find(z, full);
    memcpy(t.shape, p->shape, sizeof t.shape);
    for (int i = 0; i < t.n_dims; i++)
        if (!rg_mul(count, (uint64_t)t.shape[i], &count))
            return rg_fail(err, RG_E_INPUT, "tensor '%s' is too large", rg_name_text(p->name.data, p->name.n, text));
    if (!rg_mul(count, (uint64_t)size, &t.bytes) || !rg_mul(p->first, (uint64_t)size, &t.offset) ||
        !rg_add(t.offset, t.bytes, &end) || !e || end > e->bytes)
        return rg_fail(err, RG_E_INPUT, "tensor '%s' does not lie within its values in the archive",
                       rg_name_text(p->name.data, p->name.n, text));
    if (!rg_zip_at(z, e, &at, err))
        return false;
    t.offset += at; /* fits: both lie within the file */
    t.name = rg_arena_text(&c->arena, p->name.data, p->name.n, err);
    return t.name && rg_ckpt_add_tensor(c, &t, err);
}

bool rg_torch_read(rg_checkpoint *c, const char *path, rg_error *err)
{
    int file = rg_ckpt_add_file(c, path, err), n = 0;
    char folder[NAME_ROOM];
    uint8_t *pickle = NULL;
    rg_pickled *tensors = NULL;
    rg_zip z = { 0 };
    size_t n_pickle;
    bool ok;

    if (file < 0)
        return false;
    ok = rg_zip_open(&z, c->files[file], err) && find_folder(&z, folder, err) && check_byte_order(&z, folder, err);
    pickle = ok ? read_entry(&z, folder, "data.pkl", PICKLE_CAP, &n_pickle, err) : NULL;
    tensors = pickle ? rg_pickle_read(pickle, n_pickle, &n, err) : NULL;
    ok = tensors;
    for (int i = 0; ok && i < n; i++)
        ok = add_tensor(c, file, &z, folder, &tensors[i], err);
    rg_free(tensors);
    rg_free(pickle);
    rg_zip_close(&z);
    if (!ok && err && strncmp(err->text, path, strlen(path)))
        rg_fail_prefix(err, "%s", path);
    if (!ok)
        rg_mistaken_file(path, "PK", err);
    return ok;
}
