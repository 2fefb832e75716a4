/* gated_delta.c -- see gated_delta.h. */
#include "model/arch/gated_delta.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define own(c) RG_OWN(c, gated_delta_settings)

static int64_t k_cols(const rg_config *c)
{
    return (int64_t)own(c)->k_heads * own(c)->k_dim;
}

static int64_t v_cols(const rg_config *c)
{
    return (int64_t)own(c)->v_heads * own(c)->v_dim;
}

SIZE(DELTA_V, v_cols(c))
SIZE(DELTA_QKV, 2 * k_cols(c) + v_cols(c))
SIZE(DELTA_QKVZ, 2 * k_cols(c) + 2 * v_cols(c))
SIZE(DELTA_V_HEADS, own(c)->v_heads)
SIZE(DELTA_V_HEADS_2, 2 * (int64_t)own(c)->v_heads)
SIZE(DELTA_V_DIM, own(c)->v_dim)
SIZE(DELTA_TAPS, own(c)->taps)
SIZE(Q_DIM_2, 2 * (int64_t)c->n_heads * c->head_dim)

const char *const gated_delta_harmless[] = {
    "rope_parameters.mrope_interleaved", "rope_scaling.mrope_interleaved", "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings", "mamba_ssm_dtype", NULL,
};

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static bool finish_kinds(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const kind_word words[] = {
        { "linear_attention", HYBRID_OTHER }, { "full_attention", HYBRID_ATTENTION }, { 0 },
    };
    gated_delta_settings *s = RG_OWN_EDIT(c, gated_delta_settings);

    if (s->interval < 1)
        return rg_fail(err, RG_E_INPUT, "%s: full_attention_interval is %d", rg_checkpoint_path(ckpt), s->interval);
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = (i + 1) % s->interval ? HYBRID_OTHER : HYBRID_ATTENTION;
    if (c->from_gguf)
        return true;
    if (read_kinds(c, ckpt, "layer_types", words, err) < 0)
        return false;
    for (int n = 1; n <= c->n_layers + 1; n++) {
        bool fits = true;

        for (int i = 0; i < c->n_layers; i++)
            fits = fits && ((i + 1) % n == 0) == (c->layer[i].kind == HYBRID_ATTENTION);
        s->interval = fits ? n : 0;
        if (fits)
            break;
    }
    return true;
}

/* GGUF has the size of all value heads together. */
static bool finish_v_dim(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    gated_delta_settings *s = RG_OWN_EDIT(c, gated_delta_settings);
    int64_t inner = (int64_t)s->v_heads * s->v_dim;
    char key[128];

    if (!c->from_gguf)
        return true;
    if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "ssm.inner_size", key), 1, INT32_MAX / 4, &inner, err) < 0)
        return false;
    if (s->v_heads < 1 || inner % s->v_heads)
        return rg_fail(err, RG_E_INPUT, "%s: %s is %lld for %d heads", rg_checkpoint_path(ckpt), key, (long long)inner,
                       s->v_heads);
    s->v_dim = (int)(inner / s->v_heads);
    return true;
}

/* Sections change nothing for text; they are kept for GGUF, which wants them. */
static bool finish_sections(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const spellings[] = { "rope_scaling.mrope_section", "rope_parameters.mrope_section" };
    char key[128];

    if (c->from_gguf)
        rg_meta_understand(ckpt, rg_gguf_key(ckpt, "rope.dimension_sections", key));
    for (size_t i = 0; i < RG_LEN(spellings) && !c->from_gguf; i++) {
        const int32_t *sections = NULL;
        size_t n = 0;

        if (rg_meta_ints(ckpt, spellings[i], &sections, &n, err) < 0)
            return false;
        for (size_t k = 0; k < n && k < RG_LEN(c->ropes[0].sections); k++)
            c->ropes[0].sections[k] = sections[k];
    }
    return true;
}

bool finish_gated_delta(rg_config *c, const rg_checkpoint *ckpt, bool interleaved, rg_error *err)
{
    const int most = 1 << 14;
    gated_delta_settings *s = RG_OWN_EDIT(c, gated_delta_settings);
    bool gate = true;

    s->interleaved = interleaved;
    finish_optional(c, ckpt);
    c->attn_bias = c->attn_bias || (c->from_gguf && any_layer_has(c, ckpt, "attn_q.bias"));
    if (!finish_v_dim(c, ckpt, err) || !finish_kinds(c, ckpt, err) || !finish_heads(c, err) ||
        !finish_rope_as(c, ckpt, &(rope_defaults){ .theta = 1e4, .part = 0.25, .pairs = GGUF_HALVES }, err) ||
        !finish_sections(c, ckpt, err) || !require_silu(ckpt, err))
        return false;
    if (!c->from_gguf && rg_config_flag(ckpt, "attn_output_gate", &gate, err) < 0)
        return false;
    if (!gate)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: attn_output_gate is false, which is not supported",
                       rg_checkpoint_path(ckpt));
    if (s->k_heads < 1 || s->k_dim < 1 || s->v_dim < 1 || s->v_heads > most || s->k_dim > most || s->v_dim > most ||
        s->taps < 1 || s->taps > 64)
        return rg_fail(err, RG_E_INPUT, "%s: %d key heads of %d, %d value heads of %d, convolution %d: out of range",
                       rg_checkpoint_path(ckpt), s->k_heads, s->k_dim, s->v_heads, s->v_dim, s->taps);
    if (s->v_heads < 1 || s->v_heads % s->k_heads)
        return rg_fail(err, RG_E_INPUT, "%s: %d value heads cannot share %d key heads evenly", rg_checkpoint_path(ckpt),
                       s->v_heads, s->k_heads);
    return true;
}

bool finish_gated_delta_experts(rg_config *c, rg_error *err)
{
    c->n_shared_experts = c->shared_ffn_dim > 0;
    c->routing.scale = 1;
    c->routing.score = RG_SCORE_SOFTMAX;
    c->routing.renormalize = true;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind += HYBRID_EXPERTS;
    return finish_routing(c, err);
}

bool put_gguf_gated_delta(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (!own(c)->interval || c->attn_bias)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no form for %s of this architecture",
                       c->attn_bias ? "biases" : "such a list of layers");
    return put_gguf_int(c, w, "ssm.inner_size", v_cols(c), err) && put_gguf_decoder(c, w, err);
}

bool put_gguf_sections(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    static const int32_t usual[] = { 11, 11, 10, 0 };
    const int *given = c->ropes[0].sections;
    char key[128];

    snprintf(key, sizeof key, "%s.rope.dimension_sections", c->arch->gguf_name);
    return rg_ckpt_put_ints(w, key, given[0] ? given : usual, RG_LEN(usual), err);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Runs of `run` values, one for each value head. */
static void interleave(const rg_config *c, const float *src, float *dst, int64_t run)
{
    const int64_t k_heads = own(c)->k_heads, each = own(c)->v_heads / k_heads;

    for (int64_t k = 0; k < k_heads; k++)
        for (int64_t i = 0; i < each; i++)
            memcpy(dst + (i * k_heads + k) * run, src + (k * each + i) * run, (size_t)run * sizeof *dst);
}

void load_interleaved(const rg_config *c, const float *src, float *dst, int64_t n)
{
    interleave(c, src, dst, n / own(c)->v_heads);
}

void load_interleaved_qkv(const rg_config *c, const float *src, float *dst, int64_t n)
{
    const int64_t cols = n / DELTA_QKV(c, 0), keys = 2 * k_cols(c) * cols;

    memcpy(dst, src, (size_t)keys * sizeof *dst);
    interleave(c, src + keys, dst + keys, own(c)->v_dim * cols);
}

void load_interleaved_rate(const rg_config *c, const float *src, float *dst, int64_t n)
{
    load_interleaved(c, src, dst, n);
    load_minus_exp(c, dst, dst, n);
}

void load_interleaved_columns(const rg_config *c, const float *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i += v_cols(c))
        interleave(c, src + i, dst + i, own(c)->v_dim);
}

/* ---- the part ---------------------------------------------------------------------------------------------------- */

void keep_gated_delta(const rg_config *c, int layer, rg_keep *out)
{
    const gated_delta_settings *o = own(c);
    const int logged = (int)(k_cols(c) + v_cols(c)) + 2 * o->v_heads;

    (void)layer;
    *out = (rg_keep){
        .n_buffers = DELTA_BUFFERS,
        .buffer = { [DELTA_TAIL] = rg_conv_tail("conv_tail", (int)DELTA_QKV(c, layer), o->taps),
                    [DELTA_STATE] = rg_linear_attention_state("delta_state", o->v_heads, o->k_dim, o->v_dim, logged) },
        .shared_with = -1,
    };
}

/* beta (before its sigmoid) and alpha of h, which a layer makes with two matrices or with one. */
static void make_beta_alpha(rg_fwd *f, const rg_layer *l, const rg_act *h, rg_act *out[3])
{
    const int n = own(l->c)->v_heads;

    if (l->w[W_BETA_ALPHA]) {
        rg_act *both = rg_act_new(f, "beta_alpha", 2 * n);
        rg_linear(f, both, h, l->w[W_BETA_ALPHA], NULL);
        out[0] = rg_act_view(f, "beta", both, 0, n);
        out[1] = rg_act_view(f, "alpha", both, n, n);
    } else {
        out[0] = rg_act_new(f, "beta", n);
        out[1] = rg_act_new(f, "alpha", n);
        rg_linear3(f, out, h, (const rg_weight *const[]){ l->w[W_BETA], l->w[W_ALPHA], NULL }, NULL);
    }
}

rg_act *gated_delta(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const gated_delta_settings *o = own(l->c);
    const int keys = (int)k_cols(l->c), values = (int)v_cols(l->c);
    rg_act *in = rg_act_new(f, "qkv", 2 * keys + values), *u = rg_act_new(f, "conv", 2 * keys + values);
    rg_act *z = rg_act_new(f, "z", values), *y = rg_act_new(f, "delta", values);
    rg_act *decay = rg_act_new(f, "decay", o->v_heads), *beta_alpha[3] = { 0 };

    rg_linear3(f, (rg_act *const[]){ in, z, NULL }, h, (const rg_weight *const[]){ l->w[W_QKV], l->w[W_Z], NULL },
               NULL);
    make_beta_alpha(f, l, h, beta_alpha);
    rg_conv(f, u, in, l->w[W_TAPS], NULL, &l->buffer[DELTA_TAIL], RG_SILU);
    rg_act *qk = rg_act_view(f, "qk", u, 0, 2 * keys);
    rg_l2norm(f, qk, qk, o->k_dim, 1e-6f);
    rg_activate(f, beta_alpha[0], beta_alpha[0], RG_SIGMOID);
    rg_decay(f, decay, NULL, beta_alpha[1],
             &(rg_decay_params){ .bias = l->w[W_DT_BIAS], .act = RG_SOFTPLUS, .rate = l->w[W_RATE] });
    rg_linear_attention(f, y,
                        &(rg_linear_attention_params){ .n_heads = o->v_heads, .k_dim = o->k_dim, .v_dim = o->v_dim,
                                                       .interleaved = o->interleaved, .delta = true,
                                                       .scale = 1.0f / sqrtf((float)o->k_dim),
                                                       .q = rg_act_view(f, "q", u, 0, keys),
                                                       .k = rg_act_view(f, "k", u, keys, keys),
                                                       .v = rg_act_view(f, "v", u, 2 * keys, values),
                                                       .decay = decay, .beta = beta_alpha[0] },
                        &l->buffer[DELTA_STATE]);
    rg_rmsnorm(f, y, y, l->w[W_HEAD_NORM], l->c->norm_eps);
    rg_act_mul(f, y, z, y, RG_SILU);
    return y;
}
