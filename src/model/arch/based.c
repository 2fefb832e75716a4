/* based.c -- BASED (Arora et al. 2024): three mixers, gated short convolutions, linear attention by a second-order
 * Taylor map, and attention over a window, each followed by a gated MLP.
 *
 * config.json describes a mixer, and two others with lists of the layers that have them; each by the name of its class.
 * Linear attention is y = phi(q) S / (phi(q) z + 1e-12).  phi(k) begins with 1, so that z, too, is a sum of keys times
 * values; products of two maps are at least 1/2, so that 1e-12 changes nothing. */
#include <stdio.h>
#include <string.h>

#include "model/arch/parts.h"

enum { CONV, LINEAR, WINDOW, N_KINDS }; /* kinds of layer */
enum { TAIL = 0, SUMS = 0, KEYS = 1 };  /* buffers */

typedef struct settings {
    int conv_width, n_taps;          /* channels of the convolution */
    bool conv_bias;                  /* of the projections around it */
    int linear_heads, feature_dim;
} settings;

enum { W_CONV_IN = W_OWN, W_CONV_IN_BIAS, W_TAPS, W_CONV_OUT, W_CONV_OUT_BIAS };

#define own(c) RG_OWN(c, settings)

static rg_act *gated_conv(rg_fwd *f, const rg_layer *l, const rg_act *h);
static rg_act *taylor_attention(rg_fwd *f, const rg_layer *l, const qkv *p);

static void block_conv(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = gated_conv(f, l, h); /* silu(conv(u)) * z, [u z] = in_proj h: [rows, conv_width] */
    rg_linear_add(f, x, y, l->w[W_CONV_OUT], l->w[W_CONV_OUT_BIAS]); /* x += out_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj mlp */
}

static void block_linear(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q, k [rows, heads * feature_dim], v [rows, dim] */

    rg_act *y = taylor_attention(f, l, &p);       /* phi(q) S / phi(q) z: [rows, dim] */
    rg_linear_add(f, x, y, l->w[W_O_PROJ], NULL); /* x += out_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj mlp */
}

/* Attention over a window. */
static void block_window(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj mlp */
}

static rg_act *gated_conv(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const int width = own(l->c)->conv_width;
    rg_act *in = linear(f, "in_proj", h, l->w[W_CONV_IN], l->w[W_CONV_IN_BIAS]), *y = rg_act_new(f, "conv", width);

    rg_conv(f, y, rg_act_view(f, "conv_in", in, 0, width), l->w[W_TAPS], NULL, &l->buffer[TAIL], RG_SILU);
    rg_mul_by(f, y, rg_act_view(f, "gate", in, width, width));
    return y;
}

static rg_act *taylor_attention(rg_fwd *f, const rg_layer *l, const qkv *p)
{
    const int dim = l->c->dim, n = own(l->c)->linear_heads, d = own(l->c)->feature_dim, mapped = rg_taylor_cols(d);
    rg_act *phi_q = rg_act_new(f, "phi_q", n * mapped), *phi_k = rg_act_new(f, "phi_k", n * mapped);
    rg_act *y = rg_act_new(f, "attn", dim), *sum = rg_act_new(f, "attn_sum", n);
    rg_linear_attention_params by = {
        .n_heads = n, .k_dim = mapped, .v_dim = dim / n, .scale = 1, .q = phi_q, .k = phi_k, .v = p->v
    };

    rg_taylor(f, phi_q, p->q, d);
    rg_taylor(f, phi_k, p->k, d);
    rg_linear_attention(f, y, &by, &l->buffer[SUMS]);
    by.v = rg_act_view(f, "one", phi_k, 0, 1);
    by.v_dim = 1;
    rg_linear_attention(f, sum, &by, &l->buffer[KEYS]);
    rg_activate(f, sum, sum, RG_INVERSE);
    rg_mul_by(f, y, sum);
    return y;
}

static SIZE(CONV_DIM, own(c)->conv_width)
static SIZE(CONV_DIM_2, 2 * (int64_t)own(c)->conv_width)
static SIZE(N_TAPS, own(c)->n_taps)
static SIZE(FEATURE_DIM, (int64_t)own(c)->linear_heads * own(c)->feature_dim)

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "n_positions", NULL, 2048 },
    { offsetof(rg_config, n_heads), KEY_INT, "n_head", NULL, 12 },
    { offsetof(rg_config, ffn_dim), KEY_INT, "n_inner", NULL, 0 },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "layer_norm_epsilon", NULL, 1e-5 },
    KEY_TIED(1),
};

static const char *const harmless[] = {
    "residual_in_fp32", "fused_dropout_add_ln", "fused_bias_fc", "fused_mlp", "use_flash_attn",
    "pad_vocab_size_multiple", "reorder_and_upcast_attn", "attn_pdrop", "n_ctx", "summary_activation",
    "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "mixer.l_max",
    "alt_mixer.l_max", "alt_mixer_2.l_max", "alt_mixer.parallel_implementation", "alt_mixer.feature_map.",
    "mixer.kernel_sizes", NULL,
};

/* "tied": stored under the embedding's name, the head's, or both. */
static const char *const ignored[] = { "lm_head.weight", NULL };

/* ---- config ------------------------------------------------------------------------------------------------------ */

static const char *key_of(const char *slot, const char *name, char out[64])
{
    snprintf(out, 64, "%s.%s", slot, name);
    return out;
}

static bool read_conv(rg_config *c, const rg_checkpoint *ckpt, const char *slot, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);
    int64_t expand = 4, taps = 3;
    bool bias = true;
    char key[64];

    if (rg_config_int(ckpt, key_of(slot, "expand_proj", key), 2, 64, &expand, err) < 0 ||
        rg_config_int(ckpt, key_of(slot, "kernel_size", key), 1, 64, &taps, err) < 0 ||
        rg_config_flag(ckpt, key_of(slot, "use_bias", key), &bias, err) < 0)
        return false;
    s->conv_width = (int)(expand * c->dim / 2);
    s->n_taps = (int)taps;
    s->conv_bias = bias;
    return true;
}

static bool read_linear(rg_config *c, const rg_checkpoint *ckpt, const char *slot, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);
    int64_t heads = 12, features = 16, mapped;
    char key[64];

    if (rg_config_int(ckpt, key_of(slot, "num_heads", key), 1, 1 << 16, &heads, err) < 0 ||
        rg_config_int(ckpt, key_of(slot, "feature_dim", key), 1, 1024, &features, err) < 0)
        return false;
    mapped = features;
    if (rg_config_int(ckpt, key_of(slot, "feature_map.input_dim", key), features, features, &mapped, err) < 0)
        return false;
    s->linear_heads = (int)heads;
    s->feature_dim = (int)features;
    return c->dim % heads == 0 || rg_fail(err, RG_E_INPUT, "%s: width %d is not a multiple of %s.num_heads, %lld",
                                          rg_checkpoint_path(ckpt), c->dim, slot, (long long)heads);
}

/* window_size w is half to the left of the present one, half to the right of it, where nothing is seen. */
static bool read_window(rg_config *c, const rg_checkpoint *ckpt, const char *slot, rg_error *err)
{
    int64_t heads = c->n_heads, window = 0;
    bool causal = true;
    char key[64];

    if (rg_config_int(ckpt, key_of(slot, "num_heads", key), 1, 1 << 16, &heads, err) < 0 ||
        rg_config_int(ckpt, key_of(slot, "window_size", key), 1, INT32_MAX / 2, &window, err) < 0 ||
        rg_config_flag(ckpt, key_of(slot, "causal", key), &causal, err) < 0)
        return false;
    if (!causal || !window)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is not causal, or has no window_size", rg_checkpoint_path(ckpt),
                       slot);
    c->n_heads = (int)heads;
    c->window = (int)window / 2 + 1;
    return true;
}

/* The kind of a mixer, by the last part of its class's name; -1 and *err. */
static int kind_of(const rg_checkpoint *ckpt, const char *slot, rg_error *err)
{
    static const char *const classes[N_KINDS] = { "BaseConv", "LinearAttention", "SlidingAttention" };
    const char *name = "", *last, *map = "TaylorExp";
    char key[64];

    if (rg_meta_string(ckpt, key_of(slot, "_target_", key), &name, err) < 0 ||
        rg_meta_string(ckpt, key_of(slot, "feature_map._target_", key), &map, err) < 0)
        return -1;
    last = strrchr(map, '.');
    if (strcmp(last ? last + 1 : map, "TaylorExp") != 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is '%.60s', which is not supported", rg_checkpoint_path(ckpt),
                       key, map), -1;
    last = strrchr(name, '.');
    for (int i = 0; i < N_KINDS; i++)
        if (!strcmp(last ? last + 1 : name, classes[i]))
            return i;
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s._target_ is '%.60s', which is not supported",
                   rg_checkpoint_path(ckpt), slot, name), -1;
}

static bool read_slot(rg_config *c, const rg_checkpoint *ckpt, int kind, const char *slot, rg_error *err)
{
    switch (kind) {
    case CONV: return read_conv(c, ckpt, slot, err);
    case LINEAR: return read_linear(c, ckpt, slot, err);
    default: return read_window(c, ckpt, slot, err);
    }
}

/* A mixer that config.json has under `slot`, for the layers of its list (NULL: all). */
static bool finish_slot(rg_config *c, const rg_checkpoint *ckpt, const char *slot, const char *list, rg_error *err)
{
    const int32_t *layers;
    size_t n = 0;
    int kind;

    if (rg_meta_type_of(ckpt, slot) != RG_META_OBJECT && list)
        return true;
    kind = kind_of(ckpt, slot, err);
    if (kind < 0 || !read_slot(c, ckpt, kind, slot, err) || (list && rg_meta_ints(ckpt, list, &layers, &n, err) < 0))
        return false;
    for (int i = 0; !list && i < c->n_layers; i++)
        c->layer[i].kind = kind;
    for (size_t i = 0; i < n; i++) {
        if (layers[i] < 0 || layers[i] >= c->n_layers)
            return rg_fail(err, RG_E_INPUT, "%s: %s names layer %d of %d", rg_checkpoint_path(ckpt), list, layers[i],
                           c->n_layers);
        c->layer[layers[i]].kind = kind;
    }
    return true;
}

/* A list of layers counts over one that comes later here. */
static bool finish_mixers(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    if (!finish_slot(c, ckpt, "mixer", NULL, err) ||
        !finish_slot(c, ckpt, "alt_mixer_2", "alt_mixer_2_layers", err) ||
        !finish_slot(c, ckpt, "alt_mixer", "alt_mixer_layers", err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].window = c->layer[i].kind == WINDOW ? c->window : 0;
    return true;
}

/* Switches that are supported one way only. */
static bool require_usual(const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const off[] = { "mlp_fc1_bias", "mlp_fc2_bias", "qkv_proj_bias", "out_proj_bias",
                                       "scale_attn_by_inverse_layer_idx", "rotary_emb_interleaved", "parallel_block" };
    static const char *const on[] = { "rms_norm", "scale_attn_weights" };
    int64_t positions = 0;
    double fraction = 1;
    bool yes = true;

    for (size_t i = 0; i < RG_LEN(off); i++)
        if (!require_false(ckpt, off[i], err))
            return false;
    for (size_t i = 0; i < RG_LEN(on); i++) {
        if (rg_config_flag(ckpt, on[i], &yes, err) < 0)
            return false;
        if (!yes)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is false, which is not supported", rg_checkpoint_path(ckpt),
                           on[i]);
    }
    if (rg_config_float(ckpt, "rotary_emb_fraction", &fraction, err) < 0 ||
        rg_config_int(ckpt, "max_position_embeddings", 0, 0, &positions, err) < 0)
        return false;
    return fraction == 1 || rg_fail(err, RG_E_UNSUPPORTED, "%s: rotary_emb_fraction is %g, which is not supported",
                                    rg_checkpoint_path(ckpt), fraction);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    int64_t multiple = 1;
    double theta = 1e4;
    size_t padded;

    if (!finish_mixers(c, ckpt, err) || !require_usual(ckpt, err) ||
        !require_choice(ckpt, "activation_function", (const char *const[]){ "swiglu", NULL }, err) ||
        rg_config_int(ckpt, "pad_vocab_size_multiple", 1, INT32_MAX, &multiple, err) < 0 ||
        rg_config_float(ckpt, "rotary_emb_base", &theta, err) < 0)
        return false;
    if (!rg_round_up((size_t)c->vocab_size, (size_t)multiple, &padded) || padded > INT32_MAX)
        return rg_fail(err, RG_E_INPUT, "%s: a vocabulary of %d up to a multiple of %lld is out of range",
                       rg_checkpoint_path(ckpt), c->vocab_size, (long long)multiple);
    c->vocab_size = (int)padded;
    if (!c->ffn_dim)
        c->ffn_dim = c->dim <= INT32_MAX / 16 ? 4 * c->dim : 0;
    if (!finish_heads(c, err))
        return false;
    c->n_ropes = 1;
    c->ropes[0].dim = c->head_dim;
    return rg_rope_read(&c->ropes[0], ckpt, NULL, theta, err);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static WHEN(when_conv_bias, own(c)->conv_bias)

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "transformer.embeddings.word_embeddings", NULL, { VOCAB, DIM }, SPLIT_ROWS,
      .hf_else = "lm_head" },
    { W_FINAL_NORM, "transformer.ln_f", NULL, { DIM } },
    { W_LM_HEAD, "lm_head", NULL, { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

#define FC1 SPLIT_ROWS, .stored = { FFN_DIM_2, DIM }
#define AROUND                                                                                                         \
    { W_ATTN_NORM, "norm1", NULL, { DIM } }, { W_FFN_NORM, "norm2", NULL, { DIM } },                                   \
    { W_UP_PROJ, "mlp.fc1", NULL, { FFN_DIM, DIM }, FC1, .first_row = ROW_0 },                                         \
    { W_GATE_PROJ, "mlp.fc1", NULL, { FFN_DIM, DIM }, FC1, .first_row = FFN_DIM },                                     \
    { W_DOWN_PROJ, "mlp.fc2", NULL, { DIM, FFN_DIM }, SPLIT_COLS }

static const rg_weight_spec conv_weights[] = {
    AROUND,
    { W_CONV_IN, "mixer.in_proj", NULL, { CONV_DIM_2, DIM }, SPLIT_ROWS },
    { W_CONV_IN_BIAS, "mixer.in_proj.bias", NULL, { CONV_DIM_2 }, SPLIT_ROWS, .when = when_conv_bias },
    { W_TAPS, "mixer.conv.conv", NULL, { CONV_DIM, N_TAPS }, SPLIT_ROWS, .table = true },
    { W_CONV_OUT, "mixer.out_proj", NULL, { DIM, CONV_DIM }, SPLIT_COLS },
    { W_CONV_OUT_BIAS, "mixer.out_proj.bias", NULL, { DIM }, .when = when_conv_bias },
    { 0 },
};

static const rg_weight_spec linear_weights[] = {
    AROUND,
    { W_Q_PROJ, "mixer.proj_q", NULL, { FEATURE_DIM, DIM }, SPLIT_ROWS },
    { W_K_PROJ, "mixer.proj_k", NULL, { FEATURE_DIM, DIM }, SPLIT_ROWS },
    { W_V_PROJ, "mixer.proj_v", NULL, { DIM, DIM }, SPLIT_ROWS },
    { W_O_PROJ, "mixer.out_proj", NULL, { DIM, DIM }, SPLIT_COLS },
    { 0 },
};

#define QKV SPLIT_ROWS, .stored = { QKV_DIM, DIM }

static const rg_weight_spec window_weights[] = {
    AROUND,
    { W_Q_PROJ, "mixer.Wqkv", NULL, { Q_DIM, DIM }, QKV, .first_row = ROW_0 },
    { W_K_PROJ, "mixer.Wqkv", NULL, { KV_DIM, DIM }, QKV, .first_row = ROW_OF_K },
    { W_V_PROJ, "mixer.Wqkv", NULL, { KV_DIM, DIM }, QKV, .first_row = ROW_OF_V },
    { W_O_PROJ, "mixer.out_proj", NULL, { DIM, Q_DIM }, SPLIT_COLS },
    { 0 },
};

/* ---- layers ------------------------------------------------------------------------------------------------------ */

static void keep_conv(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    *out = (rg_keep){ .n_buffers = 1, .shared_with = -1,
                      .buffer = { [TAIL] = rg_conv_tail("conv_tail", own(c)->conv_width, own(c)->n_taps) } };
}

static void keep_linear(const rg_config *c, int layer, rg_keep *out)
{
    const int n = own(c)->linear_heads, mapped = rg_taylor_cols(own(c)->feature_dim), logged = n * mapped;

    (void)layer;
    *out = (rg_keep){ .n_buffers = 2, .shared_with = -1,
                      .buffer = { [SUMS] = rg_linear_attention_state("sums", n, mapped, c->dim / n, logged + c->dim),
                                  [KEYS] = rg_linear_attention_state("keys", n, mapped, 1, logged + 1) } };
}

static const rg_layer_kind kinds[N_KINDS] = {
    [CONV] = { conv_weights, keep_conv, block_conv },
    [LINEAR] = { linear_weights, keep_linear, block_linear },
    [WINDOW] = { window_weights, keep_kv, block_window },
};

const rg_arch rg_arch_based = {
    .hf_name = "GPTLMHeadModel", .hf_type = "based", .hf_prefix = "transformer.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .ignored = ignored, .harmless = harmless, .weights = weights,
    .kinds = kinds, .n_kinds = N_KINDS,
};
