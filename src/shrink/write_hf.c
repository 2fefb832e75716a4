/* write_hf.c -- a Hugging Face directory of what was made: its tensors in the place of the matrices, all others as they
 * are, and quantization_config. */
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "shrink/packing.h"
#include "shrink/targets.h"

enum { NAME_ROOM = 600, COPY = 1 << 22 };

typedef struct writing {
    const rg_targets *p;
    rg_results *r;
    const bool *folded;
    rg_ckpt_writer *w;
    uint64_t bytes;
    rg_error *err;
} writing;

static bool is_of_quantizer(const char *key)
{
    return !strcmp(key, "quantization_config") || !strcmp(key, "compression_config");
}

/* The weight's name without ".weight", and a part's end. */
static const char *part_name(const rg_tensor *t, const char *end, char out[NAME_ROOM])
{
    size_t n = strlen(t->name), cut = strlen(".weight");

    if (n > cut && !strcmp(t->name + n - cut, ".weight"))
        n -= cut;
    rg_put_text(out, t->name, n);
    rg_put_text(out + n, end, strlen(end));
    return out;
}

static bool declare(writing *v, const char *name, rg_type type, int n_dims, const int64_t *shape)
{
    uint64_t n = (uint64_t)rg_format_of(type)->block_bytes;

    for (int i = 0; i < n_dims; i++)
        n *= (uint64_t)shape[i];
    v->bytes += n;
    return rg_ckpt_declare(v->w, name, type, n_dims, shape, v->err);
}

/* The tensor's shape in codes, from what is known of all of them. */
static rg_coded outline(const rg_targets *p, const rg_tensor *t)
{
    const rg_coding *c = &p->o->coding;
    int64_t rows, cols;
    rg_targets_shape(p, t, &rows, &cols);
    const int64_t group = c->group && c->group < cols ? c->group : cols;
    static int32_t some;

    return (rg_coded){ .kind = c->kind,
                       .bits = c->bits,
                       .sym = c->sym,
                       .rows = rows,
                       .cols = cols,
                       .group = group,
                       .n_groups = (cols + group - 1) / group,
                       .block_rows = 1,
                       .group_of = p->o->act_order && !p->o->static_groups && group < cols ? &some : NULL };
}

static bool declare_tensor(writing *v, const rg_tensor *t)
{
    const rg_becomes what = rg_targets_becomes(v->p, t, v->folded);
    rg_code_part parts[RG_MAX_PARTS];
    char name[NAME_ROOM];
    bool ok = true;

    if (what == RG_STAYS)
        return declare(v, t->name, t->type, t->n_dims, t->shape);
    if (what != RG_CODED)
        return declare(v, t->name, RG_F32, t->n_dims, t->shape);
    const rg_coded c = outline(v->p, t);
    const int n = rg_packing_parts(v->p->o->form, &c, parts, v->err);
    for (int i = 0; ok && i < n; i++)
        ok = declare(v, part_name(t, parts[i].end, name), parts[i].type, parts[i].n_dims, parts[i].shape);
    return ok && n >= 0;
}

static bool copy_tensor(writing *v, const rg_tensor *t)
{
    uint8_t *buf = rg_alloc(COPY);
    bool ok = buf || rg_fail_memory(v->err, COPY);

    for (uint64_t at = 0; ok && at < t->bytes; at += COPY) {
        size_t n = t->bytes - at < COPY ? (size_t)(t->bytes - at) : COPY;
        ok = rg_tensor_read(v->p->from, t, at, buf, n, v->err) && rg_ckpt_write(v->w, buf, n, v->err);
    }
    rg_free(buf);
    return ok;
}

static bool write_tensor(writing *v, const rg_tensor *t)
{
    rg_becomes what = rg_targets_becomes(v->p, t, v->folded);
    rg_code_part parts[RG_MAX_PARTS];
    rg_coded coded;
    float *values;
    int n = 0;

    if (what == RG_STAYS)
        return copy_tensor(v, t);
    if (!rg_targets_result(v->p, v->r, t, &what, &coded, &values, v->err))
        return false;
    bool ok = true;
    if (values)
        ok = rg_ckpt_write(v->w, values, (size_t)rg_tensor_count(t) * sizeof *values, v->err);
    else
        ok = (n = rg_packing_parts(v->p->o->form, &coded, parts, v->err)) >= 0;
    for (int i = 0; i < n; i++) {
        ok = ok && rg_ckpt_write(v->w, parts[i].data, parts[i].bytes, v->err);
        rg_free(parts[i].data);
    }
    rg_coded_fini(&coded);
    rg_free(values);
    return ok;
}

/* Names of modules that stay as they are, for programs that take every matrix to be coded unless it is listed. */
static bool put_config(writing *v)
{
    const int n = rg_checkpoint_n_tensors(v->p->from);
    rg_string *kept = rg_array((size_t)n, sizeof *kept);
    size_t n_kept = 0, cut = strlen(".weight");

    if (!kept)
        return rg_fail_memory(v->err, (size_t)n * sizeof *kept);
    for (int i = 0; i < n; i++) {
        const rg_tensor *t = rg_checkpoint_tensor(v->p->from, i);
        size_t length = strlen(t->name);
        if (rg_targets_becomes(v->p, t, v->folded) == RG_STAYS && t->n_dims == 2 && length > cut &&
            !strcmp(t->name + length - cut, ".weight"))
            kept[n_kept++] = (rg_string){ t->name, length - cut };
    }
    bool ok = rg_ckpt_put_all(v->w, v->p->from, is_of_quantizer, v->err) &&
              rg_packing_config(v->p->o, v->w, kept, n_kept, v->err);
    rg_free(kept);
    return ok;
}

static bool check_place(const char *to, rg_error *err)
{
    char path[4096];

    if (rg_path_join(path, sizeof path, to, "model.safetensors.index.json") && rg_path_look(path) != RG_PATH_NONE)
        return rg_fail(err, RG_E_USAGE,
                       "%s: holds a checkpoint in several files, which would stay beside the new one; write to another "
                       "directory",
                       to);
    return true;
}

bool rg_write_hf(const rg_targets *p, rg_results *r, const bool *folded, const char *to, uint64_t *bytes, rg_error *err)
{
    writing v = { .p = p, .r = r, .folded = folded, .err = err };
    const int n = rg_checkpoint_n_tensors(p->from);
    bool ok = check_place(to, err) && (v.w = rg_hf_create(to, err)) != NULL && put_config(&v);

    for (int i = 0; ok && i < n; i++)
        ok = declare_tensor(&v, rg_checkpoint_tensor(p->from, i));
    for (int i = 0; ok && i < n; i++)
        ok = write_tensor(&v, rg_checkpoint_tensor(p->from, i));
    *bytes = v.bytes;
    if (ok)
        return rg_ckpt_commit(v.w, err);
    rg_ckpt_abort(v.w);
    return false;
}
