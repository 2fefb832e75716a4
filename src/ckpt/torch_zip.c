/* torch_zip.c -- the directory of a zip archive whose entries are stored as they are. */
#include "ckpt/torch.h"

#include <string.h>

#include "base/mem.h"

enum {
    END_BYTES = 22, ENTRY_BYTES = 46, HEADER_BYTES = 30, /* of the records, without what follows them */
    MOST_COMMENT = 65535, MOST_DIRECTORY = 1 << 24,
};

static uint64_t number(const uint8_t *p, int bytes)
{
    uint64_t n = 0;

    while (bytes--)
        n = n << 8 | p[bytes];
    return n;
}

/* The record at the archive's end: how many entries, and where their directory is. */
static bool find_end(const rg_file *f, uint8_t end[END_BYTES], rg_error *err)
{
    const uint64_t size = rg_file_size(f);
    const size_t n = size < END_BYTES + MOST_COMMENT ? (size_t)size : END_BYTES + MOST_COMMENT;
    uint8_t *tail = rg_alloc(n ? n : 1);
    bool found = false;

    if (!tail)
        return rg_fail_memory(err, n);
    if (!rg_file_read(f, size - n, tail, n, err)) {
        rg_free(tail);
        return false;
    }
    for (size_t i = n < END_BYTES ? 0 : n - END_BYTES + 1; i-- > 0 && !found;)
        if (number(tail + i, 4) == 0x06054b50 && number(tail + i + 20, 2) == n - i - END_BYTES) {
            memcpy(end, tail + i, END_BYTES);
            found = true;
        }
    rg_free(tail);
    return found || rg_fail(err, RG_E_UNSUPPORTED, "it is no zip archive, as torch.save writes since version 1.6");
}

/* One record of the directory at p, `left` bytes long at most; its whole length, or 0. */
static size_t read_entry(rg_zip *z, const uint8_t *p, size_t left, char **text, rg_error *err)
{
    rg_zip_entry *e = &z->entries[z->n];
    size_t n_name, whole;

    if (left < ENTRY_BYTES || number(p, 4) != 0x02014b50)
        return rg_fail(err, RG_E_INPUT, "entry %d of the archive's directory is damaged", z->n), 0;
    n_name = (size_t)number(p + 28, 2);
    whole = ENTRY_BYTES + n_name + (size_t)number(p + 30, 2) + (size_t)number(p + 32, 2);
    if (whole > left || !n_name)
        return rg_fail(err, RG_E_INPUT, "entry %d of the archive's directory is cut short", z->n), 0;
    e->name = *text;
    memcpy(*text, p + ENTRY_BYTES, n_name);
    (*text)[n_name] = 0;
    *text += n_name + 1;
    e->bytes = number(p + 24, 4);
    e->header = number(p + 42, 4);
    if (number(p + 10, 2) || number(p + 20, 4) != e->bytes)
        return rg_fail(err, RG_E_UNSUPPORTED, "entry %d of the archive is packed", z->n), 0;
    if (e->bytes == UINT32_MAX || e->header == UINT32_MAX)
        return rg_fail(err, RG_E_UNSUPPORTED, "entry %d of the archive lies beyond 4 GB", z->n), 0;
    if (rg_dict_get(z->by_name, e->name, n_name) >= 0)
        return rg_fail(err, RG_E_INPUT, "entry %d of the archive has the name of another", z->n), 0;
    if (!rg_dict_put(z->by_name, e->name, n_name, z->n))
        return rg_fail_memory(err, 64), 0;
    z->n++;
    return whole;
}

static bool read_directory(rg_zip *z, const uint8_t *directory, size_t bytes, int n, rg_error *err)
{
    char *text = z->text;

    for (size_t at = 0, step; z->n < n; at += step) {
        step = read_entry(z, directory + at, bytes - at, &text, err);
        if (!step)
            return false;
    }
    return true;
}

bool rg_zip_open(rg_zip *z, const rg_file *file, rg_error *err)
{
    const uint64_t size = rg_file_size(file);
    uint8_t end[END_BYTES], *directory;
    uint64_t bytes, at;
    int n;
    bool ok;

    *z = (rg_zip){ .file = file };
    if (!find_end(file, end, err))
        return false;
    n = (int)number(end + 10, 2);
    bytes = number(end + 12, 4);
    at = number(end + 16, 4);
    if (!n || !bytes)
        return rg_fail(err, RG_E_INPUT, "the archive is empty");
    if (bytes > MOST_DIRECTORY || at > size || bytes > size - at)
        return rg_fail(err, RG_E_UNSUPPORTED, "a directory of %llu bytes at byte %llu of %llu, which is not read",
                       (unsigned long long)bytes, (unsigned long long)at, (unsigned long long)size);
    directory = rg_alloc((size_t)bytes);
    z->entries = rg_array((size_t)n, sizeof *z->entries);
    z->text = rg_alloc((size_t)bytes); /* each record is longer than its name and a NUL */
    z->by_name = rg_dict_new((size_t)n);
    ok = directory && z->entries && z->text && z->by_name;
    if (!ok)
        rg_fail_memory(err, (size_t)bytes);
    ok = ok && rg_file_read(file, at, directory, (size_t)bytes, err) &&
         read_directory(z, directory, (size_t)bytes, n, err);
    rg_free(directory);
    if (!ok)
        rg_zip_close(z);
    return ok;
}

void rg_zip_close(rg_zip *z)
{
    rg_free(z->entries);
    rg_free(z->text);
    rg_dict_free(z->by_name);
    *z = (rg_zip){ 0 };
}

const rg_zip_entry *rg_zip_find(const rg_zip *z, const char *name)
{
    int i = rg_dict_get(z->by_name, name, strlen(name));

    return i >= 0 ? &z->entries[i] : NULL;
}

bool rg_zip_at(const rg_zip *z, const rg_zip_entry *e, uint64_t *at, rg_error *err)
{
    const uint64_t size = rg_file_size(z->file);
    uint8_t header[HEADER_BYTES];

    if (e->header > size || size - e->header < HEADER_BYTES)
        return rg_fail(err, RG_E_INPUT, "an entry of the archive begins at byte %llu of %llu",
                       (unsigned long long)e->header, (unsigned long long)size);
    if (!rg_file_read(z->file, e->header, header, sizeof header, err))
        return false;
    *at = e->header + HEADER_BYTES + number(header + 26, 2) + number(header + 28, 2);
    if (number(header, 4) != 0x04034b50 || *at > size || e->bytes > size - *at)
        return rg_fail(err, RG_E_INPUT, "an entry of the archive at byte %llu is damaged",
                       (unsigned long long)e->header);
    return true;
}
