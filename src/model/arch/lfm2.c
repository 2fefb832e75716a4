/* lfm2.c -- LFM2 (Liquid AI, 2025): layers of attention with normed q and k among layers of short gated convolutions,
 * C * conv(B * x), where B, C and x are projections of one input.  Each is followed by an MLP, whose width the config
 * gives before it is reduced and rounded up. */
#include "model/arch/lfm2.h"

static void block_conv(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = short_conv(f, l, h); /* C * conv(B * u), [B C u] = in_proj h: [rows, dim] */
    rg_linear_add(f, x, y, l->w[W_CONV_OUT], l->w[W_CONV_OUT_BIAS]); /* x += out_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p); /* RMSNorm of each head of q and of k */
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
}

SIZE(DIM_3, 3 * (int64_t)c->dim)
SIZE(N_TAPS, RG_OWN(c, lfm2_settings)->n_taps)

static const rg_key keys[] = {
    KEYS_LFM2,
    { offsetof(rg_config, ffn_dim), KEY_INT, "block_ff_dim", "feed_forward_length", 12288, { "intermediate_size" } },
};

const char *const lfm2_harmless[] = {
    "block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
    "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "use_pos_enc", "theta",
    "intermediate_size", "tie_word_embeddings", "full_attn_idxs", NULL,
};

WHEN(when_short_conv_bias, RG_OWN(c, lfm2_settings)->conv_bias)

/* By config.json's layer_types, or by the numbers of the layers of attention; with neither, all are. */
static bool finish_kinds(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const kind_word words[] = { { "conv", HYBRID_OTHER }, { "full_attention", HYBRID_ATTENTION }, { 0 } };
    const int32_t *attends;
    size_t n;
    int got = read_kinds(c, ckpt, "layer_types", words, err);

    if (got)
        return got > 0;
    got = rg_meta_ints(ckpt, "full_attn_idxs", &attends, &n, err);
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = got > 0 ? HYBRID_OTHER : HYBRID_ATTENTION;
    for (size_t i = 0; got > 0 && i < n; i++) {
        if (attends[i] < 0 || attends[i] >= c->n_layers)
            return rg_fail(err, RG_E_INPUT, "%s: full_attn_idxs names layer %d of %d", rg_checkpoint_path(ckpt),
                           attends[i], c->n_layers);
        c->layer[attends[i]].kind = HYBRID_ATTENTION;
    }
    return got >= 0;
}

bool finish_lfm2(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const lfm2_settings *s = RG_OWN(c, lfm2_settings);
    double theta = 1e6;

    finish_optional(c, ckpt);
    if (!(c->from_gguf ? read_gguf_kv_heads(c, ckpt, err) : finish_kinds(c, ckpt, err)) ||
        (!c->from_gguf && rg_config_float(ckpt, "theta", &theta, err) < 0))
        return false;
    if (s->n_taps < 1 || s->n_taps > 64 || c->dim > INT32_MAX / 16)
        return rg_fail(err, RG_E_INPUT, "%s: convolutions of %d taps over %d channels: out of range",
                       rg_checkpoint_path(ckpt), s->n_taps, c->dim);
    return finish_heads(c, err) && finish_rope(c, ckpt, theta, GGUF_HALVES, err) && require_silu(ckpt, err);
}

/* config.json's width of the MLP stands for two matrices: two thirds of it, times a factor, up to a multiple. */
static bool finish_width(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    struct rounding {
        bool adjust;
        int multiple;
        double times;
    } r;
    static const rg_key rows[] = {
        { offsetof(struct rounding, adjust), KEY_BOOL, "block_auto_adjust_ff_dim", NULL, 1 },
        { offsetof(struct rounding, multiple), KEY_INT, "block_multiple_of", NULL, 256, .least = 1 },
        { offsetof(struct rounding, times), KEY_DOUBLE, "block_ffn_dim_multiplier", NULL, 1 },
    };
    size_t whole;

    if (c->from_gguf)
        return true;
    if (!rg_config_keys(&r, ckpt, rows, RG_LEN(rows), err))
        return false;
    if (!r.adjust)
        return true;
    double width = r.times * (double)(2 * (int64_t)c->ffn_dim / 3);
    if (!(width >= 1 && width <= INT32_MAX / 4) || !rg_round_up((size_t)width, (size_t)r.multiple, &whole) ||
        whole > INT32_MAX / 4)
        return rg_fail(err, RG_E_INPUT, "%s: an MLP of width %g, up to a multiple of %lld, is out of range",
                       rg_checkpoint_path(ckpt), width, (long long)r.multiple);
    c->ffn_dim = (int)whole;
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return finish_lfm2(c, ckpt, err) && finish_width(c, ckpt, err);
}

bool put_gguf_lfm2(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_kv_heads(c, w, err) && put_gguf_decoder(c, w, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_LFM2, { 0 } };

#define MLP WEIGHTS_MLP_OF("feed_forward", "w1", "w3", "w2")

static const rg_weight_spec conv_weights[] = { WEIGHTS_LFM2_NORMS, WEIGHTS_LFM2_CONV, MLP, { 0 } };
static const rg_weight_spec attention_weights[] = { WEIGHTS_LFM2_NORMS, WEIGHTS_LFM2_ATTENTION, MLP, { 0 } };

void keep_short_conv(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    *out = (rg_keep){ .n_buffers = 1, .shared_with = -1,
                      .buffer = { rg_conv_tail("conv_tail", c->dim, RG_OWN(c, lfm2_settings)->n_taps) } };
}

rg_act *short_conv(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const int dim = l->c->dim;
    rg_act *bcx = linear(f, "in_proj", h, l->w[W_CONV_IN], l->w[W_CONV_IN_BIAS]), *y = rg_act_new(f, "conv", dim);
    rg_act *in = rg_act_view(f, "conv_in", bcx, 2 * dim, dim);

    rg_mul_by(f, in, rg_act_view(f, "b", bcx, 0, dim));
    rg_conv(f, y, in, l->w[W_CONV_TAPS], l->w[W_CONV_TAPS_BIAS], &l->buffer[0], RG_IDENTITY);
    rg_mul_by(f, y, rg_act_view(f, "c", bcx, dim, dim));
    return y;
}

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { conv_weights, keep_short_conv, block_conv },
    [HYBRID_ATTENTION] = { attention_weights, keep_kv, block_attention },
};

const rg_arch rg_arch_lfm2 = {
    .hf_name = "Lfm2ForCausalLM", .hf_type = "lfm2", .gguf_name = "lfm2", .hf_prefix = "model.layers.",
    .layer_list = "layer_types", RG_KEYS(keys), .own_bytes = sizeof(lfm2_settings), .finish = finish,
    .harmless = lfm2_harmless, .weights = weights, RG_KINDS(kinds), .put_gguf = put_gguf_lfm2,
};
