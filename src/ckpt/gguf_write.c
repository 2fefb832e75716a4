/* gguf_write.c -- the writer of GGUF version 3: metadata gathered as it will stand, then tensor infos, then data. */
#include <string.h>

#include "ckpt/writer.h"

static bool add_u32(rg_buf *b, uint32_t v)
{
    uint8_t p[4] = { (uint8_t)v, (uint8_t)(v >> 8), (uint8_t)(v >> 16), (uint8_t)(v >> 24) };

    return rg_buf_add(b, p, sizeof p);
}

static bool add_u64(rg_buf *b, uint64_t v)
{
    return add_u32(b, (uint32_t)v) && add_u32(b, (uint32_t)(v >> 32));
}

static bool add_string(rg_buf *b, const char *s, size_t n)
{
    return add_u64(b, n) && rg_buf_add(b, s, n);
}

/* Numbers lie in files and in memory alike, least byte first. */
static void add_scalar(rg_buf *b, const rg_entry *e)
{
    float single = (float)e->f;

    if (e->gguf_type == GGUF_F32)
        rg_buf_add(b, &single, 4);
    else if (e->gguf_type == GGUF_F64)
        rg_buf_add(b, &e->f, 8);
    else
        rg_buf_add(b, &e->i, (size_t)rg_gguf_type_bytes(e->gguf_type));
}

static bool put_gguf(rg_ckpt_writer *w, const rg_entry *e, rg_error *err)
{
    rg_buf *b = &w->meta;

    if (!strcmp(e->key, "general.alignment"))
        return true; /* our value is the default, so no key is written */
    add_string(b, e->key, strlen(e->key));
    if (e->type == RG_META_ARRAY) {
        add_u32(b, GGUF_ARRAY);
        add_u32(b, e->gguf_type);
        add_u64(b, e->n);
        for (size_t i = 0; e->gguf_type == GGUF_STRING && i < e->n && !b->failed; i++)
            add_string(b, e->strings[i].data, e->strings[i].n);
        if (e->gguf_type != GGUF_STRING && e->n)
            rg_buf_add(b, e->raw, e->n * (size_t)rg_gguf_type_bytes(e->gguf_type));
    } else {
        add_u32(b, e->gguf_type);
        if (e->type == RG_META_STRING)
            add_string(b, e->s.data, e->s.n);
        else
            add_scalar(b, e);
    }
    w->n_meta++;
    return !b->failed ||
           rg_fail(err, RG_E_MEMORY, "key '%s': metadata of more than %d bytes, or no memory", e->key, RG_META_CAP);
}

static bool takes_gguf(rg_type type)
{
    return rg_format_of(type)->gguf_id != RG_NO_GGUF;
}

static bool write_header(rg_ckpt_writer *w, rg_error *err)
{
    rg_buf b;
    bool ok;

    rg_buf_init(&b, RG_META_CAP);
    rg_buf_add(&b, "GGUF", 4);
    add_u32(&b, 3);
    add_u64(&b, w->n_tensors);
    add_u64(&b, w->n_meta);
    ok = !b.failed && rg_writer_write(w->out, b.data, b.n, err) &&
         (!w->meta.n || rg_writer_write(w->out, w->meta.data, w->meta.n, err));
    if (ok)
        rg_buf_reset(&b);
    for (size_t i = 0; ok && i < w->n_tensors; i++) {
        const rg_tensor *t = &w->tensors[i];
        add_string(&b, t->name, strlen(t->name));
        add_u32(&b, (uint32_t)t->n_dims);
        for (int d = t->n_dims - 1; d >= 0; d--)
            add_u64(&b, (uint64_t)t->shape[d]);
        add_u32(&b, rg_format_of(t->type)->gguf_id);
        add_u64(&b, t->offset);
    }
    if (b.failed)
        ok = rg_fail_memory(err, b.n);
    ok = ok && (!b.n || rg_writer_write(w->out, b.data, b.n, err)) &&
         rg_ckpt_write_zeros(w, (RG_GGUF_ALIGN - rg_writer_tell(w->out) % RG_GGUF_ALIGN) % RG_GGUF_ALIGN, err);
    rg_buf_fini(&b);
    return ok;
}

rg_ckpt_writer *rg_gguf_create(const char *path, rg_error *err)
{
    static const writer_kind gguf = {
        .put = put_gguf, .takes = takes_gguf, .header = write_header, .align = RG_GGUF_ALIGN, .min_dims = 1
    };
    rg_ckpt_writer *w = rg_ckpt_writer_new(&gguf, err);

    if (!w)
        return NULL;
    w->out = rg_writer_open(path, err);
    if (!w->out)
        return rg_ckpt_writer_free(w), NULL;
    return w;
}
