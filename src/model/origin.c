/* origin.c -- see origin.h. */
#include "model/origin.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

int rg_spec_dims(const rg_weight_spec *spec)
{
    int n = 0;

    while (n < 3 && spec->shape[n])
        n++;
    return n;
}

bool rg_spec_is_vector(const rg_weight_spec *spec)
{
    return spec->table || rg_spec_dims(spec) == 1;
}

rg_origin rg_origin_of(const rg_weight_spec *spec, const rg_config *c, const rg_checkpoint *ckpt, int layer)
{
    rg_origin s = { spec, c, ckpt, layer, .name = c->from_gguf ? spec->gguf : spec->hf };

    s.load = c->from_gguf ? spec->load_gguf : spec->load;
    s.first_row = spec->first_row ? spec->first_row(c, layer) : 0;
    s.experts = !c->from_gguf && s.name && strchr(s.name, '*');
    return s;
}

/* The tensor's name with its prefix, the expert's number in place of '*'. */
static void full_name(const rg_origin *s, const char *name, int expert, char out[RG_WEIGHT_NAME])
{
    char number[16] = "";
    const char *star = strchr(name, '*');
    int n = 0;

    if (s->layer >= 0)
        n = snprintf(out, RG_WEIGHT_NAME, "%s%d.", s->c->from_gguf ? "blk." : s->c->arch->hf_prefix, s->layer);
    if (star)
        snprintf(number, sizeof number, "%d", expert);
    snprintf(out + n, (size_t)(RG_WEIGHT_NAME - n), "%.*s%s%s", star ? (int)(star - name) : (int)strlen(name), name,
             number, star ? star + 1 : "");
}

static const rg_tensor *find(const rg_origin *s, const char *name, int expert, char out[RG_WEIGHT_NAME])
{
    char with[RG_WEIGHT_NAME + 8];

    full_name(s, name, expert, out);
    if (!s->ckpt)
        return NULL;
    snprintf(with, sizeof with, "%s.weight", out);
    const rg_tensor *t = rg_checkpoint_find(s->ckpt, with);
    return t ? t : rg_checkpoint_find(s->ckpt, out);
}

const rg_tensor *rg_origin_find(rg_origin *s, int expert, char out[RG_WEIGHT_NAME])
{
    const rg_tensor *t = s->name ? find(s, s->name, expert, out) : NULL;
    char other[RG_WEIGHT_NAME];

    if (!t && s->c->from_gguf && s->spec->gguf_else && s->ckpt) {
        t = find(s, s->spec->gguf_else, expert, other);
        if (t) {
            s->name = s->spec->gguf_else;
            s->load = s->spec->load;
            memcpy(out, other, RG_WEIGHT_NAME);
        }
    }
    return t;
}

/* A tensor must have the values of [mats, rows, cols]; dimensions of one may be left out or put in (conv1d's [n, 1,
 * k]). */
static bool check_shape(const rg_origin *s, const rg_tensor *t, const int64_t *want, int n_want, rg_error *err)
{
    char have_text[96], want_text[96];
    int j = 0;
    bool same = true;

    for (int i = 0; i < t->n_dims; i++) {
        while (j < n_want && want[j] == 1 && t->shape[i] != 1)
            j++;
        if (t->shape[i] == 1 && (j >= n_want || want[j] != 1))
            continue;
        same = same && j < n_want && t->shape[i] == want[j];
        j++;
    }
    while (j < n_want && want[j] == 1)
        j++;
    if (same && j == n_want)
        return true;
    return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is %s where the config says %s", rg_checkpoint_path(s->ckpt),
                   t->name, rg_shape_text(t->shape, t->n_dims, have_text), rg_shape_text(want, n_want, want_text));
}

bool rg_origin_check(const rg_origin *s, const rg_tensor *t, rg_error *err)
{
    const rg_weight_spec *spec = s->spec;
    int64_t want[3];
    int n = 0;

    if (spec->first_row || (s->load && spec->stored[0])) {
        for (; n < 2 && spec->stored[n]; n++)
            want[n] = spec->stored[n](s->c, s->layer);
    } else {
        for (int i = s->experts ? 1 : 0; i < rg_spec_dims(spec); i++)
            want[n++] = spec->shape[i](s->c, s->layer);
    }
    return check_shape(s, t, want, n, err);
}

/* A whole tensor in f32; the caller frees it. */
static float *read_f32(const rg_origin *s, const rg_tensor *t, rg_error *err)
{
    const rg_format *fmt = rg_format_of(t->type);
    int64_t n = rg_tensor_count(t);
    void *raw = rg_alloc(t->bytes);
    float *out = rg_array((size_t)n, sizeof *out);

    if (!raw || !out) {
        rg_fail_memory(err, t->bytes + (size_t)n * sizeof *out);
        goto fail;
    }
    if (!rg_tensor_read(s->ckpt, t, 0, raw, t->bytes, err))
        goto fail;
    fmt->decode(raw, n / fmt->block_len, out);
    rg_free(raw);
    return out;

fail:
    rg_free(raw);
    rg_free(out);
    return NULL;
}

float *rg_origin_values(const rg_origin *s, const rg_tensor *t, rg_load_fn *load, int64_t n, rg_error *err)
{
    float *src = read_f32(s, t, err);
    int64_t cols = rg_spec_dims(s->spec) > 1 ? n / s->spec->shape[0](s->c, s->layer) : 1;

    if (src && s->first_row)
        memmove(src, src + s->first_row * cols, (size_t)n * sizeof *src);
    if (!src || !load)
        return src;
    float *dst = rg_array((size_t)n, sizeof *dst);
    if (dst)
        load(s->c, src, dst, n);
    else
        rg_fail_memory(err, (size_t)n * sizeof *dst);
    rg_free(src);
    return dst;
}
