/* gguf.c -- the reader of GGUF versions 2 and 3, split files included.
 *
 * The header is walked once, front to back, through a small window of the file; every count is compared with the bytes
 * that are left before anything is made of it.  Tensors must lie as writers lay them: in order, each at the next
 * multiple of the alignment. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "ckpt/internal.h"
#include "ckpt/mistaken.h"

enum { WINDOW = 1 << 16, MIN_ENTRY = 8 + 1 + 4 + 1, MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8, ALIGN_CAP = 1 << 20 };

typedef struct reader {
    rg_checkpoint *c;
    const rg_file *f;
    rg_error *err;
    int file;
    uint64_t at, size;
    uint64_t window_from;
    size_t window_n;
    uint64_t align;
    uint64_t n_entries, n_tensors;
    int64_t split_no, split_count, split_tensors; /* -1: not told */
    char window[WINDOW];
} reader;

/* The next n bytes; false past the end of the file. */
static bool get(reader *r, void *to, size_t n)
{
    char *p = to;

    if (n > r->size - r->at)
        return rg_fail(r->err, RG_E_INPUT, "the file ends at byte %llu, in the middle of its header",
                       (unsigned long long)r->size);
    while (n) {
        size_t have = r->at < r->window_from + r->window_n ? (size_t)(r->window_from + r->window_n - r->at) : 0;
        size_t take = have < n ? have : n;

        if (take) {
            memcpy(p, r->window + (r->at - r->window_from), take);
            p += take;
            n -= take;
            r->at += take;
        } else if (n >= WINDOW) {
            if (!rg_file_read(r->f, r->at, p, n, r->err))
                return false;
            r->at += n;
            n = 0;
        } else {
            r->window_from = r->at;
            r->window_n = r->size - r->at < WINDOW ? (size_t)(r->size - r->at) : WINDOW;
            if (!rg_file_read(r->f, r->at, r->window, r->window_n, r->err))
                return r->window_n = 0, false;
        }
    }
    return true;
}

static bool get_u32(reader *r, uint32_t *v)
{
    uint8_t b[4];

    if (!get(r, b, sizeof b))
        return false;
    *v = (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return true;
}

static bool get_u64(reader *r, uint64_t *v)
{
    uint32_t low, high;

    if (!get_u32(r, &low) || !get_u32(r, &high))
        return false;
    *v = (uint64_t)high << 32 | low;
    return true;
}

/* A length and so many bytes, into the arena. */
static bool get_string(reader *r, rg_string *s, uint64_t cap, const char *what)
{
    uint64_t n;
    char *p;

    if (!get_u64(r, &n))
        return false;
    if (n > cap)
        return rg_fail(r->err, RG_E_INPUT, "%s is %llu bytes long, more than %llu", what, (unsigned long long)n,
                       (unsigned long long)cap);
    if (n > r->size - r->at)
        return rg_fail(r->err, RG_E_INPUT, "%s of %llu bytes at byte %llu reaches past the end of the file", what,
                       (unsigned long long)n, (unsigned long long)r->at);
    p = rg_arena_get(&r->c->arena, (size_t)n + 1, r->err);
    if (!p || !get(r, p, (size_t)n))
        return false;
    p[n] = '\0';
    *s = (rg_string){ p, (size_t)n };
    return true;
}

static bool get_scalar(reader *r, rg_entry *e)
{
    uint8_t b[8];

    if (!get(r, b, (size_t)rg_gguf_type_bytes(e->gguf_type)))
        return false;
    rg_gguf_scalar(e, b);
    if (e->type == RG_META_BOOL && b[0] > 1)
        return rg_fail(r->err, RG_E_INPUT, "a boolean is %d, neither 0 nor 1", b[0]);
    return true;
}

static bool get_strings(reader *r, rg_entry *e)
{
    rg_string *s = rg_arena_get(&r->c->arena, e->n * sizeof *s, r->err);

    if (!s)
        return false;
    e->strings = s;
    for (size_t i = 0; i < e->n; i++)
        if (!get_string(r, &s[i], r->size, "an array's text"))
            return false;
    return true;
}

static bool get_array(reader *r, rg_entry *e)
{
    uint32_t type;
    uint64_t n, each;
    uint8_t *raw;

    if (!get_u32(r, &type) || !get_u64(r, &n))
        return false;
    if (type == GGUF_ARRAY)
        return rg_fail(r->err, RG_E_UNSUPPORTED, "an array of arrays");
    if (type >= GGUF_TYPE_COUNT)
        return rg_fail(r->err, RG_E_INPUT, "an array of the unknown value type %u", type);
    each = type == GGUF_STRING ? 8 : (uint64_t)rg_gguf_type_bytes(type);
    if (n > (r->size - r->at) / each)
        return rg_fail(r->err, RG_E_INPUT, "an array of %llu elements reaches past the end of the file",
                       (unsigned long long)n);
    e->type = RG_META_ARRAY;
    e->gguf_type = (uint8_t)type;
    e->n = (size_t)n;
    if (type == GGUF_STRING)
        return get_strings(r, e);
    raw = rg_arena_get(&r->c->arena, (size_t)(n * each), r->err);
    if (!raw || !get(r, raw, (size_t)(n * each)))
        return false;
    for (size_t i = 0; type == GGUF_BOOL && i < e->n; i++)
        if (raw[i] > 1)
            return rg_fail(r->err, RG_E_INPUT, "boolean %zu of an array is %d, neither 0 nor 1", i, raw[i]);
    e->raw = raw;
    return rg_entry_views(&r->c->arena, e, r->err);
}

static bool get_value(reader *r, rg_entry *e)
{
    uint32_t type;

    if (!get_u32(r, &type))
        return false;
    if (type >= GGUF_TYPE_COUNT)
        return rg_fail(r->err, RG_E_INPUT, "unknown value type %u", type);
    e->gguf_type = (uint8_t)type;
    if (type == GGUF_ARRAY)
        return get_array(r, e);
    if (type != GGUF_STRING)
        return get_scalar(r, e);
    e->type = RG_META_STRING;
    return get_string(r, &e->s, r->size, "a text");
}

/* Keys that control the reading itself; they are valid in any part of a split file. */
static bool steer(reader *r, const rg_entry *e)
{
    bool is_int = e->type == RG_META_INT && !e->beyond && e->i >= 0;

    if (!strcmp(e->key, "general.alignment")) {
        if (e->type != RG_META_INT || e->gguf_type != GGUF_U32 || e->i < 8 || e->i > ALIGN_CAP || (e->i & (e->i - 1)))
            return rg_fail(r->err, RG_E_INPUT, "want a u32, a power of two from 8 to %d", ALIGN_CAP);
        r->align = (uint64_t)e->i;
    } else if (!strcmp(e->key, "split.no") || !strcmp(e->key, "split.count") ||
               !strcmp(e->key, "split.tensors.count")) {
        if (!is_int)
            return rg_fail(r->err, RG_E_INPUT, "want an integer that is not negative");
        *(!strcmp(e->key, "split.no")      ? &r->split_no
          : !strcmp(e->key, "split.count") ? &r->split_count
                                           : &r->split_tensors) = e->i;
    }
    return true;
}

static bool read_entries(reader *r, bool keep)
{
    rg_checkpoint *c = r->c;
    rg_dict *seen = keep ? NULL : rg_dict_new(16); /* of a later part, whose entries are checked and dropped */
    bool ok = keep || seen;
    char text[80];

    if (!ok)
        return rg_fail_memory(r->err, sizeof(void *));
    for (uint64_t i = 0; ok && i < r->n_entries; i++) {
        rg_entry e = { 0 };
        rg_string key;

        if (!get_string(r, &key, RG_KEY_CAP, "a key")) {
            ok = rg_fail_prefix(r->err, "entry %llu of %llu", (unsigned long long)i, (unsigned long long)r->n_entries);
            break;
        }
        e.key = key.data;
        if (!rg_name_valid(key.data, key.n))
            ok = rg_fail(r->err, RG_E_INPUT, "key %llu ('%s') is empty, not UTF-8, or has control characters",
                         (unsigned long long)i, rg_name_text(key.data, key.n, text));
        else if (!get_value(r, &e) || !steer(r, &e))
            ok = rg_fail_prefix(r->err, "key '%s'", rg_name_text(key.data, key.n, text));
        else if (keep)
            ok = rg_ckpt_add_entry(c, &e, key.n, r->err);
        else if (rg_dict_get(seen, key.data, key.n) >= 0)
            ok = rg_fail(r->err, RG_E_INPUT, "key '%s' is there twice", rg_name_text(key.data, key.n, text));
        else
            ok = rg_dict_put(seen, key.data, key.n, 0) || rg_fail_memory(r->err, sizeof(void *));
    }
    rg_dict_free(seen);
    return ok;
}

/* Dimensions stand innermost first. */
static bool get_shape(reader *r, rg_tensor *t)
{
    uint64_t dims[RG_MAX_DIMS], count = 1;
    uint32_t n;

    if (!get_u32(r, &n))
        return false;
    if (n < 1 || n > RG_MAX_DIMS)
        return rg_fail(r->err, RG_E_INPUT, "%u dimensions, want 1 to %d", n, RG_MAX_DIMS);
    for (uint32_t i = 0; i < n; i++) {
        if (!get_u64(r, &dims[i]))
            return false;
        if (dims[i] < 1 || dims[i] > INT64_MAX)
            return rg_fail(r->err, RG_E_INPUT, "dimension %u is %llu", i, (unsigned long long)dims[i]);
        if (!rg_mul(count, dims[i], &count) || count > INT64_MAX / 8)
            return rg_fail(r->err, RG_E_INPUT, "its dimensions multiply to more than 2^60");
    }
    t->n_dims = (int)n;
    for (int i = 0; i < RG_MAX_DIMS; i++)
        t->shape[i] = i < t->n_dims ? (int64_t)dims[t->n_dims - 1 - i] : 1;
    return true;
}

static bool get_tensor(reader *r, rg_tensor *t)
{
    char names[RG_TYPE_NAMES];
    uint32_t id;
    uint64_t row;

    if (!get_shape(r, t) || !get_u32(r, &id))
        return false;
    if (!rg_type_by_gguf(id, &t->type))
        return rg_fail(r->err, RG_E_UNSUPPORTED, "type %u is not one that ridge reads: %s", id,
                       rg_type_names(true, names));
    if (!get_u64(r, &t->offset))
        return false;
    if (!rg_row_bytes(t->type, rg_tensor_cols(t), &row))
        return rg_fail(r->err, RG_E_INPUT, "rows of %lld values are not whole blocks of %s (%d)",
                       (long long)rg_tensor_cols(t), rg_format_of(t->type)->name, rg_format_of(t->type)->block_len);
    if (!rg_mul(row, (uint64_t)rg_tensor_rows(t), &t->bytes))
        return rg_fail(r->err, RG_E_INPUT, "more bytes than 2^64");
    t->file = r->file;
    return true;
}

static bool read_tensors(reader *r)
{
    char text[80];

    for (uint64_t i = 0; i < r->n_tensors; i++) {
        rg_tensor t = { 0 };
        rg_string name;

        if (!get_string(r, &name, RG_NAME_CAP, "a tensor's name"))
            return rg_fail_prefix(r->err, "tensor %llu of %llu", (unsigned long long)i,
                                  (unsigned long long)r->n_tensors);
        if (!rg_name_valid(name.data, name.n))
            return rg_fail(r->err, RG_E_INPUT,
                           "the name of tensor %llu ('%s') is empty, not UTF-8, or has control "
                           "characters",
                           (unsigned long long)i, rg_name_text(name.data, name.n, text));
        t.name = name.data;
        if (!get_tensor(r, &t))
            return rg_fail_prefix(r->err, "tensor '%s'", rg_name_text(name.data, name.n, text));
        if (!rg_ckpt_add_tensor(r->c, &t, r->err))
            return false;
    }
    return true;
}

/* Offsets count from the first aligned byte after the header.  In order and gapless, as they must be, one walk finds
 * every overlap.  No sum wraps: each end is compared with the file's size, below 2^63, before the next is formed. */
static bool place_tensors(reader *r, int first)
{
    size_t data, expected = 0;
    char text[80];

    if (!rg_round_up(r->at, r->align, &data))
        return rg_fail(r->err, RG_E_INPUT, "an alignment of %llu", (unsigned long long)r->align);
    for (int i = first; i < r->c->n_tensors; i++) {
        rg_tensor *t = &r->c->tensors[i];
        const char *name = rg_name_text(t->name, strlen(t->name), text);

        if (t->offset % r->align)
            return rg_fail(r->err, RG_E_INPUT, "tensor '%s': offset %llu is not a multiple of the alignment %llu", name,
                           (unsigned long long)t->offset, (unsigned long long)r->align);
        if (t->offset != expected)
            return rg_fail(r->err, RG_E_INPUT,
                           "tensor '%s': offset %llu, want %llu: tensors overlap, leave a gap or are "
                           "out of order",
                           name, (unsigned long long)t->offset, (unsigned long long)expected);
        if (data > r->size || expected > r->size - data || t->bytes > r->size - data - expected)
            return rg_fail(r->err, RG_E_INPUT, "tensor '%s': %llu bytes at %llu reach past the end of the file (%llu)",
                           name, (unsigned long long)t->bytes, (unsigned long long)(data + expected),
                           (unsigned long long)r->size);
        t->offset = data + expected;
        if (!rg_round_up(expected + t->bytes, r->align, &expected))
            return rg_fail(r->err, RG_E_INPUT, "an alignment of %llu", (unsigned long long)r->align);
    }
    return true;
}

static bool read_counts(reader *r)
{
    char magic[4];
    uint32_t version;

    if (r->size < 24)
        return rg_fail(r->err, RG_E_INPUT, "%llu bytes are too few for a GGUF header", (unsigned long long)r->size);
    if (!get(r, magic, sizeof magic))
        return false;
    if (memcmp(magic, "GGUF", 4))
        return rg_fail(r->err, RG_E_INPUT, "not a GGUF file: it does not start with 'GGUF'");
    if (!get_u32(r, &version) || !get_u64(r, &r->n_tensors) || !get_u64(r, &r->n_entries))
        return false;
    if (version == 0x02000000 || version == 0x03000000)
        return rg_fail(r->err, RG_E_UNSUPPORTED, "a big-endian GGUF file");
    if (version != 2 && version != 3)
        return rg_fail(r->err, RG_E_UNSUPPORTED, "GGUF version %u, want 2 or 3", version);
    if (r->n_entries > (r->size - r->at) / MIN_ENTRY)
        return rg_fail(r->err, RG_E_INPUT, "%llu metadata entries cannot fit in %llu bytes",
                       (unsigned long long)r->n_entries, (unsigned long long)r->size);
    if (r->n_tensors > (r->size - r->at) / MIN_TENSOR)
        return rg_fail(r->err, RG_E_INPUT, "%llu tensors cannot fit in %llu bytes", (unsigned long long)r->n_tensors,
                       (unsigned long long)r->size);
    return true;
}

typedef struct split {
    int64_t no, count, n_tensors;
} split;

/* One file: its metadata if `keep`, and its tensors. */
static bool read_file(rg_checkpoint *c, const char *path, bool keep, split *s, rg_error *err)
{
    int file = rg_ckpt_add_file(c, path, err), first = c->n_tensors;
    reader *r;
    bool ok;

    if (file < 0)
        return false;
    r = rg_alloc(sizeof *r);
    if (!r)
        return rg_fail_memory(err, sizeof *r);
    memset(r, 0, offsetof(reader, window));
    r->c = c;
    r->f = c->files[file];
    r->file = file;
    r->err = err;
    r->size = rg_file_size(r->f);
    r->align = RG_GGUF_ALIGN;
    r->split_no = r->split_count = r->split_tensors = -1;
    ok = read_counts(r) && read_entries(r, keep) && read_tensors(r) && place_tensors(r, first);
    *s = (split){ r->split_no, r->split_count, r->split_tensors };
    rg_free(r);
    if (!ok && err && strncmp(err->text, path, strlen(path)))
        rg_fail_prefix(err, "%s", path);
    if (!ok)
        rg_mistaken_file(path, "GGUF", err);
    return ok;
}

enum { SUFFIX = sizeof "-00001-of-00001.gguf" - 1 };

/* The numbers in "...-00002-of-00005.gguf"; false if path does not end so. */
static bool split_name(const char *path, int *no, int *count)
{
    size_t n = strlen(path);
    int used = 0;
    const char *p = path + n - SUFFIX;

    if (n <= SUFFIX)
        return false;
    for (int i = 1; i < 6; i++)
        if (p[i] < '0' || p[i] > '9' || p[i + 9] < '0' || p[i + 9] > '9')
            return false;
    return sscanf(p, "-%5d-of-%5d.gguf%n", no, count, &used) == 2 && used == SUFFIX;
}

/* All parts of a split file, in order.  What the name says must be what each part says. */
static bool read_parts(rg_checkpoint *c, int count, unsigned flags, rg_error *err)
{
    size_t n = strlen(c->path), room = n + 1;
    char *path = rg_strdup(c->path);
    int64_t total = -1;
    bool ok = path != NULL, whole = true;

    if (!ok)
        return rg_fail_memory(err, room);
    for (int i = 0; ok && i < count; i++) {
        split s;
        snprintf(path + n - SUFFIX, SUFFIX + 1, "-%05d-of-%05d.gguf", i + 1, count);
        if (i && (flags & RG_CKPT_NO_WEIGHTS) && rg_path_look(path) == RG_PATH_NONE) {
            whole = false;
            continue;
        }
        ok = read_file(c, path, i == 0, &s, err);
        if (ok && (s.count != count || s.no != i))
            ok = rg_fail(err, RG_E_INPUT, "%s: split.no is %lld and split.count %lld, want %d and %d as in its name",
                         path, (long long)s.no, (long long)s.count, i, count);
        total = ok && s.n_tensors >= 0 ? s.n_tensors : total;
    }
    if (ok && whole && total >= 0 && total != c->n_tensors)
        ok = rg_fail(err, RG_E_INPUT, "%s: split.tensors.count is %lld, the parts hold %d", c->path, (long long)total,
                     c->n_tensors);
    rg_free(path);
    return ok;
}

bool rg_gguf_read(rg_checkpoint *c, unsigned flags, rg_error *err)
{
    int no, count;
    split s;

    c->kind = RG_CKPT_GGUF;
    if (split_name(c->path, &no, &count)) {
        if (no < 1 || no > count || count > RG_FILES_CAP)
            return rg_fail(err, RG_E_INPUT, "%s: part %d of %d is not possible", c->path, no, count);
        if (count > 1)
            return read_parts(c, count, flags, err);
    }
    if (!read_file(c, c->path, true, &s, err))
        return false;
    if (s.count > 1)
        return rg_fail(err, RG_E_INPUT,
                       "%s: a part of a split file (split.count is %lld), but its name does not end in "
                       "-00001-of-%05lld.gguf",
                       c->path, (long long)s.count, (long long)s.count);
    return true;
}
