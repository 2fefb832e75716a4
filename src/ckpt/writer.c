/* writer.c -- the writing half of checkpoint.h: declare, then data in the order declared.  What the formats differ in
 * is behind writer_kind. */
#include "ckpt/writer.h"

#include <string.h>

#include "base/mem.h"

rg_ckpt_writer *rg_ckpt_writer_new(const writer_kind *kind, rg_error *err)
{
    rg_ckpt_writer *w = rg_zalloc(sizeof *w);

    if (!w)
        return rg_fail_memory(err, sizeof *w), NULL;
    w->kind = kind;
    w->arena.cap = RG_META_CAP;
    rg_buf_init(&w->meta, RG_META_CAP);
    w->keys = rg_dict_new(64);
    w->names = rg_dict_new(64);
    if (!w->keys || !w->names)
        return rg_ckpt_writer_free(w), rg_fail_memory(err, 64), NULL;
    return w;
}

void rg_ckpt_writer_free(rg_ckpt_writer *w)
{
    if (!w)
        return;
    rg_writer_abort(w->out);
    rg_dict_free(w->keys);
    rg_dict_free(w->names);
    rg_free(w->tensors);
    rg_arena_fini(&w->arena);
    rg_buf_fini(&w->meta);
    json_decref(w->config);
    rg_free(w->dir);
    rg_free(w->source);
    rg_free(w);
}

bool rg_ckpt_write_zeros(rg_ckpt_writer *w, uint64_t n, rg_error *err)
{
    static const char zeros[4096];

    for (; n; n -= n < sizeof zeros ? n : sizeof zeros)
        if (!rg_writer_write(w->out, zeros, n < sizeof zeros ? (size_t)n : sizeof zeros, err))
            return false;
    return true;
}

/* Every put calls this: it refuses a key that is there already, and any key after the data has begun. */
static bool put(rg_ckpt_writer *w, rg_entry *e, rg_error *err)
{
    size_t n = strlen(e->key);
    char text[80], *key;

    if (w->started)
        return rg_fail(err, RG_E_USAGE, "key '%s' after the data has begun", rg_name_text(e->key, n, text));
    if (!rg_name_valid(e->key, n) || n > RG_KEY_CAP)
        return rg_fail(err, RG_E_USAGE, "key '%s' is empty, not UTF-8, or too long", rg_name_text(e->key, n, text));
    if (rg_dict_get(w->keys, e->key, n) >= 0)
        return rg_fail(err, RG_E_USAGE, "key '%s' is put twice", rg_name_text(e->key, n, text));
    key = rg_arena_text(&w->arena, e->key, n, err);
    if (!key)
        return false;
    if (!rg_dict_put(w->keys, key, n, 0))
        return rg_fail_memory(err, n);
    return w->kind->put(w, e, err);
}

bool rg_ckpt_put_int(rg_ckpt_writer *w, const char *key, uint32_t gguf_type, int64_t value, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_INT, .gguf_type = (uint8_t)gguf_type, .i = value };
    static const struct {
        int64_t low, high;
    } range[GGUF_TYPE_COUNT] = {
        [GGUF_U8] = { 0, UINT8_MAX },   [GGUF_I8] = { INT8_MIN, INT8_MAX },
        [GGUF_U16] = { 0, UINT16_MAX }, [GGUF_I16] = { INT16_MIN, INT16_MAX },
        [GGUF_U32] = { 0, UINT32_MAX }, [GGUF_I32] = { INT32_MIN, INT32_MAX },
        [GGUF_U64] = { 0, INT64_MAX },  [GGUF_I64] = { INT64_MIN, INT64_MAX },
    };

    if (gguf_type >= GGUF_TYPE_COUNT || !range[gguf_type].high)
        return rg_fail(err, RG_E_USAGE, "key '%s': value type %u is not of integers", key, gguf_type);
    if (value < range[gguf_type].low || value > range[gguf_type].high)
        return rg_fail(err, RG_E_USAGE, "key '%s': %lld does not fit value type %u", key, (long long)value, gguf_type);
    return put(w, &e, err);
}

bool rg_ckpt_put_float(rg_ckpt_writer *w, const char *key, double value, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_FLOAT, .gguf_type = GGUF_F32, .f = value };

    return put(w, &e, err);
}

bool rg_ckpt_put_bool(rg_ckpt_writer *w, const char *key, bool value, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_BOOL, .gguf_type = GGUF_BOOL, .i = value };

    return put(w, &e, err);
}

bool rg_ckpt_put_string(rg_ckpt_writer *w, const char *key, const char *s, size_t n, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_STRING, .gguf_type = GGUF_STRING, .s = { s, n } };

    return put(w, &e, err);
}

bool rg_ckpt_put_strings(rg_ckpt_writer *w, const char *key, const rg_string *s, size_t n, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_ARRAY, .gguf_type = GGUF_STRING, .n = n, .strings = s };

    return put(w, &e, err);
}

bool rg_ckpt_put_floats(rg_ckpt_writer *w, const char *key, const float *v, size_t n, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_ARRAY, .gguf_type = GGUF_F32, .n = n, .raw = v, .floats = v };

    return put(w, &e, err);
}

bool rg_ckpt_put_ints(rg_ckpt_writer *w, const char *key, const int32_t *v, size_t n, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_ARRAY, .gguf_type = GGUF_I32, .n = n, .raw = v, .ints = v };

    return put(w, &e, err);
}

bool rg_ckpt_put_bools(rg_ckpt_writer *w, const char *key, const uint8_t *v, size_t n, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_ARRAY, .gguf_type = GGUF_BOOL, .n = n, .raw = v };

    return put(w, &e, err);
}

bool rg_ckpt_put_bytes(rg_ckpt_writer *w, const char *key, const uint8_t *v, size_t n, rg_error *err)
{
    rg_entry e = { .key = key, .type = RG_META_ARRAY, .gguf_type = GGUF_U8, .n = n, .raw = v };

    return put(w, &e, err);
}

bool rg_ckpt_put_all(rg_ckpt_writer *w, const rg_checkpoint *from, bool (*skip)(const char *key), rg_error *err)
{
    if (w->kind->put_all)
        return w->kind->put_all(w, from, skip, err);
    if (from->kind != RG_CKPT_GGUF)
        return rg_fail(err, RG_E_USAGE, "%s: its metadata is not GGUF's", from->path);
    for (size_t i = 0; i < from->n_entries; i++) {
        rg_entry e = from->entries[i];
        if (!(skip && skip(e.key)) && !put(w, &e, err))
            return false;
    }
    return true;
}

bool rg_ckpt_declare(rg_ckpt_writer *w, const char *name, rg_type type, int n_dims, const int64_t *shape, rg_error *err)
{
    rg_tensor t = { .type = type, .n_dims = n_dims, .offset = w->data_end };
    size_t n = strlen(name);
    uint64_t row, rows = 1;
    char text[80];

    rg_name_text(name, n, text);
    if (w->started || !rg_name_valid(name, n) || n > RG_NAME_CAP || rg_dict_get(w->names, name, n) >= 0)
        return rg_fail(err, RG_E_USAGE, "tensor '%s': not a name, declared twice, or after the data has begun", text);
    if (n_dims < w->kind->min_dims || n_dims > RG_MAX_DIMS)
        return rg_fail(err, RG_E_USAGE, "tensor '%s': %d dimensions", text, n_dims);
    if (!w->kind->takes(type))
        return rg_fail(err, RG_E_UNSUPPORTED, "tensor '%s': the file format has no %s", text, rg_format_of(type)->name);
    for (int i = 0; i < RG_MAX_DIMS; i++) {
        t.shape[i] = i < n_dims ? shape[i] : 1;
        if (t.shape[i] < 1 || (i < n_dims - 1 && !rg_mul(rows, (uint64_t)t.shape[i], &rows)))
            return rg_fail(err, RG_E_USAGE, "tensor '%s': a dimension of %lld", text, (long long)t.shape[i]);
    }
    if (!rg_row_bytes(type, rg_tensor_cols(&t), &row) || !rg_mul(row, rows, &t.bytes) || t.bytes > INT64_MAX / 4 ||
        w->data_end > INT64_MAX / 4)
        return rg_fail(err, RG_E_USAGE, "tensor '%s': rows of %lld are not whole blocks of %s, or too large", text,
                       (long long)rg_tensor_cols(&t), rg_format_of(type)->name);
    if (w->n_tensors == w->tensors_room) {
        size_t room = w->tensors_room ? w->tensors_room * 2 : 64;
        rg_tensor *more = rg_resize_array(w->tensors, room, sizeof *more);
        if (!more)
            return rg_fail_memory(err, room * sizeof *more);
        w->tensors = more;
        w->tensors_room = room;
    }
    t.name = rg_arena_text(&w->arena, name, n, err);
    if (!t.name)
        return false;
    if (!rg_dict_put(w->names, t.name, n, 0))
        return rg_fail_memory(err, n);
    w->tensors[w->n_tensors++] = t;
    return rg_round_up(w->data_end + t.bytes, w->kind->align, &w->data_end) || /* the sum fits: both are below 2^61 */
           rg_fail(err, RG_E_USAGE, "tensor '%s': too large", text);
}

static bool start(rg_ckpt_writer *w, rg_error *err)
{
    if (w->started)
        return true;
    w->started = true;
    return w->kind->header(w, err);
}

bool rg_ckpt_write(rg_ckpt_writer *w, const void *data, size_t n, rg_error *err)
{
    const rg_tensor *t = w->current < w->n_tensors ? &w->tensors[w->current] : NULL;
    size_t whole;

    if (!t || n > t->bytes - w->written)
        return rg_fail(err, RG_E_USAGE, "%zu bytes more than tensor '%s' has", n, t ? t->name : "(none)");
    if (!start(w, err) || !rg_writer_write(w->out, data, n, err))
        return false;
    w->written += n;
    if (w->written < t->bytes)
        return true;
    w->written = 0;
    w->current++;
    return rg_round_up(t->bytes, w->kind->align, &whole) && rg_ckpt_write_zeros(w, whole - t->bytes, err);
}

bool rg_ckpt_commit(rg_ckpt_writer *w, rg_error *err)
{
    bool ok = start(w, err);
    rg_writer *out;

    if (ok && w->current < w->n_tensors)
        ok = rg_fail(err, RG_E_USAGE, "tensor '%s' and %zu more were declared and not written",
                     w->tensors[w->current].name, w->n_tensors - w->current - 1);
    if (ok) {
        out = w->out;
        w->out = NULL;
        ok = rg_writer_commit(out, err);
    }
    ok = ok && (!w->kind->sidecar || w->kind->sidecar(w, err));
    rg_ckpt_writer_free(w);
    return ok;
}

void rg_ckpt_abort(rg_ckpt_writer *w)
{
    rg_ckpt_writer_free(w);
}
