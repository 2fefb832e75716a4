/* recast.c -- see recast.h.  Which tensors hold K and V is said by the roles and sizes in an architecture's table. */
#include "shrink/recast.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/arch.h"
#include "model/model.h"
#include "model/weight_source.h"

typedef struct recasting {
    const rg_checkpoint *from;
    const rg_config *c;
    const rg_weight_set *set;
    rg_recast_options o; /* n_kv_heads and share filled in */
    rg_ckpt_writer *w;
    uint64_t bytes;
} recasting;

static bool check(const recasting *k, rg_error *err)
{
    const rg_config *c = k->c;
    const rg_recast_options *o = &k->o;

    if (rg_checkpoint_kind(k->from) != RG_CKPT_HF)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: only a Hugging Face directory is made another",
                       rg_checkpoint_path(k->from));
    if (c->n_kv_heads < 1 || o->n_kv_heads < 1 || c->n_kv_heads % o->n_kv_heads)
        return rg_fail(err, RG_E_USAGE, "%d K/V heads cannot be made of the %d that each layer has: they must divide",
                       o->n_kv_heads, c->n_kv_heads);
    if (o->share < 1 || o->share > c->n_layers)
        return rg_fail(err, RG_E_USAGE, "%d layers cannot share their K/V: there are %d", o->share, c->n_layers);
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer[i].kv_layer >= 0 && o->share > 1)
            return rg_fail(err, RG_E_UNSUPPORTED, "layer %d shares its K/V already", i);
    return true;
}

/* Layer that a layer's K/V comes from. */
static int source_of(const recasting *k, int layer)
{
    return layer - layer % k->o.share;
}

static bool is_of_kv(const rg_weight_spec *spec)
{
    return spec->role == W_K_PROJ || spec->role == W_V_PROJ || spec->role == W_K_BIAS || spec->role == W_V_BIAS;
}

/* Rows of the tensor that are averaged to one: heads of a group lie `head_dim` rows apart. */
static int heads_to_one(const recasting *k, int i)
{
    return k->set->layer[i] >= 0 && k->set->spec[i]->shape[0] == KV_DIM ? k->c->n_kv_heads / k->o.n_kv_heads : 1;
}

/* Each value of the new tensor is the mean of the values at its place in all heads of its group. */
static bool write_means(recasting *k, const rg_tensor *t, int n, rg_error *err)
{
    const rg_format *f = rg_format_of(t->type);
    const int64_t all = rg_tensor_count(t), width = all / k->c->n_kv_heads; /* values of a head */
    const size_t size = (size_t)f->block_bytes;
    float *values = rg_array((size_t)all, sizeof *values);
    uint8_t *raw = rg_alloc(t->bytes);
    bool ok = (values && raw) || rg_fail_memory(err, t->bytes);

    ok = ok && rg_tensor_read(k->from, t, 0, raw, t->bytes, err);
    if (ok)
        f->decode(raw, all, values);
    for (int64_t h = 0; ok && h < k->o.n_kv_heads; h++)
        for (int64_t i = 0; i < width; i++) {
            double sum = 0;

            for (int64_t m = 0; m < n; m++)
                sum += (double)values[(h * n + m) * width + i];
            values[h * width + i] = (float)(sum / n);
        }
    if (ok)
        f->encode(values, all / n, raw);
    ok = ok && rg_ckpt_write(k->w, raw, (size_t)(all / n) * size, err);
    rg_free(values);
    rg_free(raw);
    return ok;
}

static bool write_as_it_is(recasting *k, const rg_tensor *t, rg_error *err)
{
    uint8_t *raw = rg_alloc(t->bytes);
    const bool ok = (raw || rg_fail_memory(err, t->bytes)) && rg_tensor_read(k->from, t, 0, raw, t->bytes, err) &&
                    rg_ckpt_write(k->w, raw, t->bytes, err);

    rg_free(raw);
    return ok;
}

static bool put_weight(recasting *k, int i, bool data, rg_error *err)
{
    const rg_weight_spec *spec = k->set->spec[i];
    const int layer = k->set->layer[i], n = heads_to_one(k, i);
    rg_weight_source s = rg_weight_source_of(spec, k->c, k->from, layer);
    char name[RG_WEIGHT_NAME];
    const rg_tensor *t = rg_weight_source_find(&s, 0, name);
    int64_t shape[RG_MAX_DIMS];

    if (layer >= 0 && is_of_kv(spec) && source_of(k, layer) != layer)
        return true; /* another layer's are read */
    if (!t || s.load || s.part || s.transposed || t->file == RG_FILE_COMPOSED || rg_format_of(t->type)->block_len != 1)
        return rg_fail(err, RG_E_UNSUPPORTED, "'%s' is stored in a form that is not changed", k->set->all[i].name);
    if (data)
        return n > 1 ? write_means(k, t, n, err) : write_as_it_is(k, t, err);
    memcpy(shape, t->shape, sizeof shape);
    shape[0] /= n;
    k->bytes += t->bytes / (uint64_t)n;
    return rg_ckpt_declare(k->w, t->name, t->type, t->n_dims, shape, err);
}

/* Layer that sees all, beside layers with a window. */
static bool sees_all(const recasting *k, int layer)
{
    return k->o.full_every > 0 && layer % k->o.full_every == k->o.full_every - 1;
}

static bool put_config(recasting *k, rg_error *err)
{
    static const rg_string full = { "full_attention", 14 }, sliding = { "sliding_attention", 17 };
    const int n = k->c->n_layers;
    int32_t source[RG_MAX_LAYERS];
    rg_string types[RG_MAX_LAYERS];

    for (int i = 0; i < n; i++) {
        source[i] = source_of(k, i);
        types[i] = sees_all(k, i) ? full : sliding;
    }
    return rg_ckpt_put_all(k->w, k->from, NULL, err) &&
           rg_ckpt_put_int(k->w, "num_key_value_heads", 11, k->o.n_kv_heads, err) &&
           rg_ckpt_put_int(k->w, "head_dim", 11, k->c->head_dim, err) &&
           (k->o.share == 1 || rg_ckpt_put_ints(k->w, "kv_source_layers", source, (size_t)n, err)) &&
           (!k->o.window || (rg_ckpt_put_int(k->w, "sliding_window", 11, k->o.window, err) &&
                             rg_ckpt_put_strings(k->w, "layer_types", types, (size_t)n, err)));
}

/* The family reads what config.json says now. */
static bool check_written(const recasting *k, const char *to, rg_error *err)
{
    rg_checkpoint *made = rg_checkpoint_open(to, RG_CKPT_NO_WEIGHTS, err);
    rg_config *c = made ? rg_zalloc(sizeof *c) : NULL;
    bool ok = c && rg_config_read(c, made, err), same = ok;

    for (int i = 0; same && i < c->n_layers; i++)
        same = c->n_kv_heads == k->o.n_kv_heads &&
               (k->o.share == 1 || c->layer[i].kv_layer == (source_of(k, i) < i ? source_of(k, i) : -1)) &&
               (!k->o.window || c->layer[i].window == (sees_all(k, i) ? 0 : k->o.window));
    if (ok && !same)
        ok = rg_fail(err, RG_E_UNSUPPORTED,
                     "models of this family have no K/V of other layers, or no windows that are "
                     "chosen");
    rg_free(c);
    rg_checkpoint_close(made);
    return ok;
}

bool rg_recast(const rg_checkpoint *from, const rg_config *c, const rg_recast_options *o, const char *to,
               uint64_t *bytes, rg_error *err)
{
    rg_weight_set set = { 0 };
    recasting k = { .from = from, .c = c, .set = &set, .o = *o };

    k.o.n_kv_heads = o->n_kv_heads ? o->n_kv_heads : c->n_kv_heads;
    k.o.share = o->share ? o->share : 1;
    bool ok = check(&k, err) && rg_weights_declare(&set, c, from, RG_F32, err) &&
              (k.w = rg_hf_create(to, err)) != NULL && put_config(&k, err);
    for (int data = 0; data < 2; data++)
        for (int i = 0; ok && i < set.n; i++)
            ok = put_weight(&k, i, data, err);
    *bytes = k.bytes;
    if (ok)
        ok = rg_ckpt_commit(k.w, err) && check_written(&k, to, err);
    else
        rg_ckpt_abort(k.w);
    rg_weights_fini(&set);
    return ok;
}
