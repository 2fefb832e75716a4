/* ssd.c -- see ssd.h.
 *
 * A head's state is linear attention's: S = exp(A dt) S + dt B x^T, y = C . S + D x, with B for keys, C for queries, x
 * for values, and dt and A one number for a head. */
#include "model/arch/ssd.h"

#include <float.h>
#include <string.h>

#define own(c) RG_OWN(c, ssd_settings)

static int64_t inner_of(const ssd_settings *s)
{
    return (int64_t)s->n_heads * s->head_dim;
}

static int64_t groups_of(const ssd_settings *s)
{
    return (int64_t)s->n_groups * s->d_state;
}

SIZE(SSD_INNER, inner_of(own(c)))
SIZE(SSD_CHANNELS, inner_of(own(c)) + 2 * groups_of(own(c)))
SIZE(SSD_IN, 2 * inner_of(own(c)) + 2 * groups_of(own(c)) + own(c)->n_heads)
SIZE(SSD_TAPS, own(c)->d_conv)
SIZE(SSD_HEADS, own(c)->n_heads)
SIZE(SSD_GROUPS, own(c)->n_groups)
SIZE(SSD_GROUP_DIM, inner_of(own(c)) / own(c)->n_groups)

WHEN(when_ssd_conv_bias, own(c)->conv_bias)
WHEN(when_ssd_in_bias, own(c)->in_bias)
WHEN(when_ssd_out_bias, own(c)->out_bias)
WHEN(when_ssd_norm, own(c)->norm)

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static bool check(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const ssd_settings *s = own(c);
    const int most = 1 << 14;

    if (s->n_heads < 1 || s->head_dim < 1 || s->d_state < 1 || s->n_groups < 1 || s->d_conv < 1 || s->n_heads > most ||
        s->head_dim > most || s->d_state > most || s->n_groups > s->n_heads || s->d_conv > 64)
        return rg_fail(err, RG_E_INPUT,
                       "%s: %d states of %d x %d in %d groups, convolution %d: out of range", rg_checkpoint_path(ckpt),
                       s->n_heads, s->d_state, s->head_dim, s->n_groups, s->d_conv);
    if (s->n_heads % s->n_groups)
        return rg_fail(err, RG_E_INPUT, "%s: %d heads cannot share %d groups evenly", rg_checkpoint_path(ckpt),
                       s->n_heads, s->n_groups);
    return true;
}

/* A head's columns by the key, or from the width; both must fit together. */
static bool read_width(rg_config *c, const rg_checkpoint *ckpt, const ssd_width *k, rg_error *err)
{
    ssd_settings *s = RG_OWN_EDIT(c, ssd_settings);
    bool word = rg_meta_type_of(ckpt, k->head_dim) == RG_META_STRING;
    struct { int dim, inner, times; } w;
    const rg_key rows[] = {
        { 0, KEY_INT, word ? NULL : k->head_dim, NULL, k->head_dim_fallback, .least = 1 },
        { sizeof(int), KEY_INT, k->inner, NULL, 0, .least = 1 },
        { 2 * sizeof(int), KEY_INT, k->expand, NULL, 2, .least = 1, .most = 1024 },
    };

    if ((word && !require_choice(ckpt, k->head_dim, (const char *const[]){ "auto", NULL }, err)) ||
        !rg_config_keys(&w, ckpt, rows, RG_LEN(rows), err))
        return false;
    int64_t dim = w.dim, inner = w.inner;
    if (!inner && k->expand)
        inner = (int64_t)w.times * c->dim;
    dim = word || !dim ? inner / (s->n_heads ? s->n_heads : 1) : dim;
    if (inner && inner != dim * s->n_heads)
        return rg_fail(err, RG_E_INPUT, "%s: an inner width of %lld is not that of %d heads of %lld",
                       rg_checkpoint_path(ckpt), (long long)inner, s->n_heads, (long long)dim);
    s->head_dim = (int)dim;
    return true;
}

/* "time_step_limit": the least and the most of dt, which may be infinite. */
static bool read_bounds(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    ssd_settings *s = RG_OWN_EDIT(c, ssd_settings);
    const float *bounds = NULL;
    size_t n = 0;

    if (rg_meta_floats(ckpt, "time_step_limit", &bounds, &n, err) < 0)
        return false;
    if (!bounds)
        return true;
    if (n != 2 || !(bounds[0] >= 0 && bounds[1] > 0 && bounds[0] <= bounds[1]))
        return rg_fail(err, RG_E_INPUT, "%s: time_step_limit is no pair of a least and a greatest value",
                       rg_checkpoint_path(ckpt));
    if (bounds[0] > 0 || bounds[1] <= FLT_MAX) {
        s->dt_min = bounds[0];
        s->dt_max = bounds[1] <= FLT_MAX ? bounds[1] : FLT_MAX;
    }
    return true;
}

static bool read_gguf_width(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    ssd_settings *s = RG_OWN_EDIT(c, ssd_settings);
    int64_t inner = 0;
    char key[128];

    if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "ssm.inner_size", key), 1, INT32_MAX, &inner, err) < 0)
        return false;
    if (s->n_heads < 1 || inner % s->n_heads)
        return rg_fail(err, RG_E_INPUT, "%s: %s is %lld for %d heads", rg_checkpoint_path(ckpt), key, (long long)inner,
                       s->n_heads);
    s->head_dim = (int)(inner / s->n_heads);
    s->conv_bias = !rg_checkpoint_n_tensors(ckpt) || any_layer_has(c, ckpt, "ssm_conv1d.bias");
    return true;
}

bool finish_ssd(rg_config *c, const rg_checkpoint *ckpt, const ssd_width *width, rg_error *err)
{
    ssd_settings *s = RG_OWN_EDIT(c, ssd_settings);

    if (!(c->from_gguf ? read_gguf_width(c, ckpt, err) : read_width(c, ckpt, width, err) && read_bounds(c, ckpt, err)))
        return false;
    s->out_bias = s->in_bias;
    s->norm = true;
    for (int i = 0; i < SSD_PARTS; i++)
        s->times[i] = 1;
    return check(c, ckpt, err);
}

bool put_gguf_ssd(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const ssd_settings *s = own(c);

    if (s->dt_max > 0 || (s->norm && s->norm_before_gate))
        return no_gguf_key(err, s->dt_max > 0 ? "time_step_limit" : "a norm before the gate");
    return put_gguf_int(c, w, "ssm.inner_size", inner_of(s), err);
}

/* ---- the part ---------------------------------------------------------------------------------------------------- */

void keep_ssd(const rg_config *c, int layer, rg_keep *out)
{
    const ssd_settings *o = own(c);
    const int logged = (int)SSD_CHANNELS(c, layer) - (int)groups_of(o) + 2 * o->n_heads; /* B, x, decays and dt */

    *out = (rg_keep){
        .n_buffers = SSD_BUFFERS,
        .buffer = { [SSD_TAIL] = rg_conv_tail("conv_tail", (int)SSD_CHANNELS(c, layer), o->d_conv),
                    [SSD_STATE] = rg_linear_attention_state("ssd_state", o->n_heads, o->d_state, o->head_dim, logged) },
        .shared_with = -1,
    };
}

/* Views of what in_proj made, each times its factor. */
static void take_apart(rg_fwd *f, const ssd_settings *o, const rg_act *in, rg_act *part[SSD_PARTS])
{
    static const char *const names[SSD_PARTS] = { "z", "x", "b", "c", "dt_raw" };
    const int inner = (int)inner_of(o), groups = (int)groups_of(o);
    const int cols[SSD_PARTS] = { inner, inner, groups, groups, o->n_heads };

    for (int i = 0, first = 0; i < SSD_PARTS; first += cols[i++]) {
        part[i] = rg_act_view(f, names[i], in, first, cols[i]);
        if (o->times[i] != 1.0f)
            rg_scale_by(f, part[i], o->times[i]);
    }
}

/* y *= silu(z), and the norm of each group. */
static void gate_and_norm(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *z)
{
    const ssd_settings *o = own(l->c);
    const int group = (int)SSD_GROUP_DIM(l->c, l->index);

    if (!o->norm_before_gate)
        rg_act_mul(f, y, z, y, RG_SILU);
    if (o->norm)
        rg_rmsnorm_runs(f, y, y, l->w[W_SSD_NORM], group, l->c->norm_eps);
    if (o->norm_before_gate)
        rg_act_mul(f, y, z, y, RG_SILU);
}

rg_act *mamba2(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const ssd_settings *o = own(l->c);
    const int inner = (int)inner_of(o), groups = (int)groups_of(o), channels = inner + 2 * groups;
    rg_act *in = rg_act_new(f, "in_proj", inner + channels + o->n_heads), *u = rg_act_new(f, "conv", channels);
    rg_act *dt = rg_act_new(f, "dt", o->n_heads), *decay = rg_act_new(f, "decay", o->n_heads);
    rg_act *y = rg_act_new(f, "ssd", inner), *part[SSD_PARTS];

    rg_linear(f, in, h, l->w[W_SSD_IN], l->w[W_SSD_IN_BIAS]);
    take_apart(f, o, in, part);
    rg_conv(f, u, rg_act_view(f, "conv_in", in, inner, channels), l->w[W_SSD_CONV], l->w[W_SSD_CONV_BIAS],
            &l->buffer[SSD_TAIL], RG_SILU);
    rg_decay(f, decay, dt, part[SSD_DT],
             &(rg_decay_params){ .bias = l->w[W_SSD_DT_BIAS], .act = RG_SOFTPLUS, .min = o->dt_min, .max = o->dt_max,
                                 .rate = l->w[W_SSD_RATE] });
    rg_linear_attention(f, y,
                        &(rg_linear_attention_params){ .n_heads = o->n_heads, .k_dim = o->d_state,
                                                       .v_dim = o->head_dim, .scale = 1,
                                                       .q = rg_act_view(f, "q", u, inner + groups, groups),
                                                       .k = rg_act_view(f, "k", u, inner, groups),
                                                       .v = rg_act_view(f, "v", u, 0, inner), .decay = decay,
                                                       .beta = dt, .skip = l->w[W_SSD_SKIP] },
                        &l->buffer[SSD_STATE]);
    gate_and_norm(f, l, y, part[SSD_Z]);
    return y;
}
