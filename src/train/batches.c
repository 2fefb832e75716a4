/* batches.c -- see batches.h. */
#include "train/batches.h"

#include <string.h>

#include "base/mem.h"

static bool number_at(const rg_tensor *t, const uint8_t *p, int64_t *v)
{
    switch (t->type) {
    case RG_U8:
    case RG_BOOL:
        *v = *p;
        return true;
    case RG_I8:
        *v = *(const int8_t *)p;
        return true;
    case RG_U16:
        *v = *(const uint16_t *)(const void *)p;
        return true;
    case RG_I16:
        *v = *(const int16_t *)(const void *)p;
        return true;
    case RG_U32:
        *v = *(const uint32_t *)(const void *)p;
        return true;
    case RG_I32:
        *v = *(const int32_t *)(const void *)p;
        return true;
    case RG_I64:
        *v = *(const int64_t *)(const void *)p;
        return true;
    case RG_U64: {
        const uint64_t u = *(const uint64_t *)(const void *)p;

        *v = u > INT64_MAX ? INT64_MAX : (int64_t)u;
        return true;
    }
    default:
        return false;
    }
}

int rg_int_tensor_read(const rg_checkpoint *c, const char *name, rg_int_tensor *out, rg_error *err)
{
    const rg_tensor *t = rg_checkpoint_find(c, name);
    const size_t each = t ? (size_t)rg_format_of(t->type)->block_bytes : 0;
    uint8_t *raw;
    int64_t v;
    bool ok;

    *out = (rg_int_tensor){ 0 };
    if (!t)
        return 0;
    out->n = rg_tensor_count(t);
    out->n_dims = t->n_dims;
    memcpy(out->shape, t->shape, sizeof out->shape);
    raw = rg_alloc(t->bytes);
    out->at = rg_array((size_t)out->n, sizeof *out->at);
    ok = (raw && out->at) || rg_fail_memory(err, t->bytes);
    ok = ok && rg_tensor_read(c, t, 0, raw, t->bytes, err);
    for (int64_t i = 0; ok && i < out->n; i++) {
        if (!number_at(t, raw + (size_t)i * each, &v))
            ok = rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is of type %s: whole numbers are wanted",
                         rg_checkpoint_path(c), name, rg_format_of(t->type)->name);
        else if (v < INT32_MIN || v > INT32_MAX)
            ok = rg_fail(err, RG_E_INPUT, "%s: tensor '%s' has the number %lld, which is beyond 32 bits",
                         rg_checkpoint_path(c), name, (long long)v);
        else
            out->at[i] = (int32_t)v;
    }
    rg_free(raw);
    if (!ok) {
        rg_free(out->at);
        out->at = NULL;
    }
    return ok ? 1 : -1;
}

/* A tensor of the shape of ids; *to stays NULL where there is none. */
static bool read_beside(const rg_checkpoint *c, const char *name, const rg_int_tensor *ids, int32_t **to, rg_error *err)
{
    rg_int_tensor t;
    char has[96], want[96];
    const int got = rg_int_tensor_read(c, name, &t, err);
    bool same = got <= 0 || t.n_dims == ids->n_dims;

    for (int i = 0; got > 0 && same && i < t.n_dims; i++)
        same = t.shape[i] == ids->shape[i];
    *to = t.at;
    if (!same)
        return rg_fail(err, RG_E_INPUT, "%s: '%s' is %s where the ids are %s", rg_checkpoint_path(c), name,
                       rg_shape_text(t.shape, t.n_dims, has), rg_shape_text(ids->shape, ids->n_dims, want));
    return got >= 0;
}

static bool take_ids(rg_exact_batches *b, const rg_checkpoint *c, rg_error *err)
{
    int64_t *const sides[] = { &b->length, &b->rows, &b->micro, &b->steps };
    rg_int_tensor ids;
    int got = rg_int_tensor_read(c, "ids", &ids, err);

    if (!got)
        got = rg_int_tensor_read(c, "input_ids", &ids, err);
    if (!got)
        return rg_fail(err, RG_E_INPUT, "%s: there is no tensor 'ids' or 'input_ids'", rg_checkpoint_path(c));
    if (got < 0)
        return false;
    b->ids = ids.at;
    for (int i = 0; i < 4; i++)
        *sides[i] = i < ids.n_dims ? ids.shape[ids.n_dims - 1 - i] : 1;
    if (!ids.n || b->length > INT32_MAX || b->rows > INT32_MAX || b->micro > INT32_MAX || b->steps > INT32_MAX)
        return rg_fail(err, RG_E_INPUT, "%s: the ids are empty, or too many", rg_checkpoint_path(c));
    return read_beside(c, "document", &ids, &b->document, err) && read_beside(c, "targets", &ids, &b->targets, err);
}

bool rg_exact_batches_read(rg_exact_batches *b, const char *path, rg_error *err)
{
    rg_checkpoint *c;
    bool ok;

    *b = (rg_exact_batches){ 0 };
    c = rg_checkpoint_open_tensors(path, err);
    ok = c && take_ids(b, c, err);
    rg_checkpoint_close(c);
    if (!ok)
        rg_exact_batches_fini(b);
    return ok;
}

void rg_exact_batches_fini(rg_exact_batches *b)
{
    rg_free(b->ids);
    rg_free(b->document);
    rg_free(b->targets);
    *b = (rg_exact_batches){ 0 };
}
