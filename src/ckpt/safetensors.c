/* safetensors.c -- the reader of safetensors files.
 *
 * Eight bytes of length, a JSON object, and the data, which the tensors must cover exactly: no hole, no overlap,
 * nothing behind. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ckpt/internal.h"
#include "ckpt/json.h"
#include "ckpt/mistaken.h"

enum {
    HEADER_CAP = 100 * 1000 * 1000,
    HEADER_TIMES = 13, /* memory of its JSON, as a multiple of its size; with the list of tensors it is RG_JSON_TIMES */
};

/* An integer of at least 0. */
static bool natural(const json_t *v, uint64_t *out)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *out = (uint64_t)json_integer_value(v);
    return true;
}

static bool read_shape(rg_tensor *t, const json_t *shape, rg_error *err)
{
    size_t n = json_array_size(shape);
    uint64_t count = 1, dim;

    if (!json_is_array(shape))
        return rg_fail(err, RG_E_INPUT, "'shape' is not an array");
    if (n > RG_MAX_DIMS)
        return rg_fail(err, RG_E_UNSUPPORTED, "%zu dimensions, ridge reads at most %d", n, RG_MAX_DIMS);
    for (size_t i = 0; i < RG_MAX_DIMS; i++) {
        dim = 1;
        if (i < n && !natural(json_array_get(shape, i), &dim))
            return rg_fail(err, RG_E_INPUT, "dimension %zu is not an integer of at least 0", i);
        if (!rg_mul(count, dim, &count) || count > INT64_MAX / 8)
            return rg_fail(err, RG_E_INPUT, "its dimensions multiply to more than 2^60");
        t->shape[i] = (int64_t)dim;
    }
    t->n_dims = (int)n;
    return true;
}

static bool read_tensor(rg_tensor *t, const json_t *info, uint64_t n_data, rg_error *err)
{
    const char *dtype = json_string_value(json_object_get(info, "dtype"));
    const json_t *offsets = json_object_get(info, "data_offsets");
    uint64_t end;
    char text[80], shape[96], names[RG_TYPE_NAMES];

    if (!json_is_object(info) || !dtype)
        return rg_fail(err, RG_E_INPUT, "not an object with 'dtype', 'shape' and 'data_offsets'");
    if (!strcmp(dtype, "BOOL")) /* a byte each */
        dtype = "U8";
    if (!rg_type_by_safetensors(dtype, &t->type))
        return rg_fail(err, RG_E_UNSUPPORTED, "dtype '%s' is not one that ridge reads: %s",
                       rg_name_text(dtype, strlen(dtype), text), rg_type_names(false, names));
    if (!read_shape(t, json_object_get(info, "shape"), err))
        return false;
    if (json_array_size(offsets) != 2 || !natural(json_array_get(offsets, 0), &t->offset) ||
        !natural(json_array_get(offsets, 1), &end))
        return rg_fail(err, RG_E_INPUT, "'data_offsets' are not two integers of at least 0");
    if (t->offset > end || end > n_data)
        return rg_fail(err, RG_E_INPUT, "data_offsets [%llu, %llu] do not lie within the %llu bytes of data",
                       (unsigned long long)t->offset, (unsigned long long)end, (unsigned long long)n_data);
    t->bytes = end - t->offset;
    /* count <= 2^60 and a block of one value is at most 8 bytes: no overflow. */
    if ((uint64_t)rg_tensor_count(t) * (uint64_t)rg_format_of(t->type)->block_bytes != t->bytes)
        return rg_fail(err, RG_E_INPUT, "shape %s of %s does not make %llu bytes",
                       rg_shape_text(t->shape, t->n_dims, shape), dtype, (unsigned long long)t->bytes);
    return true;
}

static bool check_metadata(const json_t *metadata, rg_error *err)
{
    void *i;

    if (!json_is_object(metadata))
        return rg_fail(err, RG_E_INPUT, "__metadata__ is not an object");
    for (i = json_object_iter((json_t *)metadata); i; i = json_object_iter_next((json_t *)metadata, i))
        if (!json_is_string(json_object_iter_value(i)))
            return rg_fail(err, RG_E_INPUT, "__metadata__ holds something that is not a text");
    return true;
}

static bool read_tensors(rg_checkpoint *c, int file, const json_t *header, uint64_t data, uint64_t n_data,
                         rg_error *err)
{
    char text[80];
    void *i;

    for (i = json_object_iter((json_t *)header); i; i = json_object_iter_next((json_t *)header, i)) {
        const char *name = json_object_iter_key(i);
        size_t n = strlen(name);
        rg_tensor t = { .file = file };

        if (!strcmp(name, "__metadata__")) {
            if (!check_metadata(json_object_iter_value(i), err))
                return false;
            continue;
        }
        if (!rg_name_valid(name, n) || n > RG_NAME_CAP)
            return rg_fail(err, RG_E_INPUT,
                           "the tensor name '%s' is empty, has control characters or is longer than %d",
                           rg_name_text(name, n, text), RG_NAME_CAP);
        if (!read_tensor(&t, json_object_iter_value(i), n_data, err))
            return rg_fail_prefix(err, "tensor '%s'", rg_name_text(name, n, text));
        t.offset += data;
        t.name = rg_arena_text(&c->arena, name, n, err);
        if (!t.name || !rg_ckpt_add_tensor(c, &t, err))
            return false;
    }
    return true;
}

static int by_offset(const void *a, const void *b)
{
    const rg_tensor *s = a, *t = b;

    if (s->offset != t->offset)
        return s->offset < t->offset ? -1 : 1;
    return s->bytes < t->bytes ? -1 : s->bytes > t->bytes; /* an empty tensor comes before the one that starts at the
                                                            *   same byte */
}

/* The data is covered exactly. */
static bool check_cover(const rg_checkpoint *c, int first, uint64_t data, uint64_t end, rg_error *err)
{
    size_t n = (size_t)(c->n_tensors - first);
    rg_tensor *sorted = rg_array(n, sizeof *sorted);
    uint64_t at = data;
    char text[80];
    bool ok = true;

    if (!sorted)
        return rg_fail_memory(err, n * sizeof *sorted);
    if (n)
        memcpy(sorted, c->tensors + first, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_offset);
    for (size_t i = 0; ok && i < n; i++) {
        if (sorted[i].offset != at)
            ok = rg_fail(err, RG_E_INPUT, "tensor '%s' starts at byte %llu, want %llu: %s",
                         rg_name_text(sorted[i].name, strlen(sorted[i].name), text),
                         (unsigned long long)sorted[i].offset, (unsigned long long)at,
                         sorted[i].offset < at ? "it overlaps another" : "there is a hole");
        at = sorted[i].offset + sorted[i].bytes;
    }
    if (ok && at != end)
        ok = rg_fail(err, RG_E_INPUT, "%llu bytes behind the last tensor", (unsigned long long)(end - at));
    rg_free(sorted);
    return ok;
}

/* The header as text, n bytes of it; NULL on failure. */
static char *read_header(const rg_file *f, uint64_t *n, rg_error *err)
{
    uint64_t size = rg_file_size(f);
    uint8_t length[8];
    char *text;

    if (size < sizeof length)
        return rg_fail(err, RG_E_INPUT, "%llu bytes are too few for a safetensors file", (unsigned long long)size),
               NULL;
    if (!rg_file_read(f, 0, length, sizeof length, err))
        return NULL;
    *n = 0;
    for (int i = 7; i >= 0; i--)
        *n = *n << 8 | length[i];
    if (*n < 2 || *n > HEADER_CAP || *n > size - sizeof length)
        return rg_fail(err, RG_E_INPUT, "a header of %llu bytes in a file of %llu (at most %d)", (unsigned long long)*n,
                       (unsigned long long)size, HEADER_CAP),
               NULL;
    text = rg_alloc((size_t)*n);
    if (!text)
        return rg_fail_memory(err, (size_t)*n), NULL;
    if (!rg_file_read(f, sizeof length, text, (size_t)*n, err))
        return rg_free(text), NULL;
    if (text[0] != '{')
        return rg_free(text), rg_fail(err, RG_E_INPUT, "the header does not start with '{'"), NULL;
    return text;
}

bool rg_safetensors_read(rg_checkpoint *c, const char *path, rg_error *err)
{
    int file = rg_ckpt_add_file(c, path, err), first = c->n_tensors;
    json_t *header = NULL;
    uint64_t n, size;
    char *text;
    bool ok;

    if (file < 0)
        return false;
    size = rg_file_size(c->files[file]);
    text = read_header(c->files[file], &n, err);
    ok = text != NULL;
    if (ok) {
        header = rg_json_parse_within("header", text, (size_t)n, rg_json_budget((size_t)n, HEADER_TIMES), err);
        ok = header != NULL;
    }
    rg_free(text);
    ok = ok && read_tensors(c, file, header, 8 + n, size - 8 - n, err) && check_cover(c, first, 8 + n, size, err);
    json_decref(header);
    if (!ok && err && strncmp(err->text, path, strlen(path)))
        rg_fail_prefix(err, "%s", path);
    if (!ok)
        rg_mistaken_file(path, NULL, err);
    return ok;
}
