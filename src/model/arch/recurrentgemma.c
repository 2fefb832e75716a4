/* recurrentgemma.c -- RecurrentGemma (De et al. 2024, "Griffin"): layers of attention over a window among layers of a
 * gated linear recurrence (the RG-LRU) behind a short convolution; each is followed by a gated MLP.  Norms are stored
 * as w where 1 + w is meant; embeddings times sqrt(dim), rounded to bf16. */
#include <math.h>
#include <stdio.h>

#include "model/arch/hybrid.h"

typedef struct settings {
    int width, n_taps, ffn_dim_2; /* of the recurrence; of its convolution; twice the MLP's */
} settings;

enum {
    W_X_PROJ = W_OWN, W_X_BIAS, W_Y_PROJ, W_Y_BIAS, W_TAPS, W_TAPS_BIAS, W_R_GATE, W_R_BIAS, W_I_GATE, W_I_BIAS, W_RATE,
    W_OUT_PROJ, W_OUT_BIAS
};

enum { TAIL, STATE }; /* buffers */

#define own(c) RG_OWN(c, settings)

static rg_act *recurrence(rg_fwd *f, const rg_layer *l, const rg_act *h);

static void block_recurrent(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = recurrence(f, l, h);                            /* [rows, lru_width] */
    rg_linear_add(f, x, y, l->w[W_OUT_PROJ], l->w[W_OUT_BIAS]); /* x += linear_out y */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj mlp */
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj mlp */
}

/* gelu(linear_y h) * RG-LRU(conv(linear_x h)); gates of the recurrence are products by block, one for each head. */
static rg_act *recurrence(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const int width = own(l->c)->width, head = width / l->c->n_heads;
    rg_act *in = rg_act_new(f, "linear_x", width), *gate = rg_act_new(f, "linear_y", width);
    rg_act *u = rg_act_new(f, "conv", width), *y = rg_act_new(f, "lru", width);
    rg_act *r = rg_act_new(f, "recurrent_gate", width), *i = rg_act_new(f, "input_gate", width);

    rg_linear3(f, (rg_act *const[]){ in, gate, NULL }, h,
               (const rg_weight *const[]){ l->w[W_X_PROJ], l->w[W_Y_PROJ], NULL },
               (const rg_weight *const[]){ l->w[W_X_BIAS], l->w[W_Y_BIAS], NULL });
    rg_conv(f, u, in, l->w[W_TAPS], l->w[W_TAPS_BIAS], &l->buffer[TAIL], RG_IDENTITY);
    rg_linear_heads(f, r, u, l->w[W_R_GATE], head);
    rg_linear_heads(f, i, u, l->w[W_I_GATE], head);
    rg_lru(f, y, u, r, i, l->w[W_RATE], (const rg_weight *const[]){ l->w[W_R_BIAS], l->w[W_I_BIAS] },
           &l->buffer[STATE]);
    rg_act_mul(f, y, gate, y, l->c->act);
    return y;
}

static SIZE(LRU_DIM, own(c)->width)
static SIZE(LRU_BLOCK, own(c)->width / c->n_heads)
static SIZE(N_TAPS, own(c)->n_taps)

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, NULL, NULL, 1048576 },
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", NULL, 10 },
    { offsetof(rg_config, n_kv_heads), KEY_INT, "num_key_value_heads", NULL, 0 },
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", NULL, 0 },
    { offsetof(rg_config, window), KEY_INT, "attention_window_size", NULL, 2048, .null = NULL_IS_ZERO },
    { offsetof(rg_config, logit_softcap), KEY_FLOAT, "logits_soft_cap", NULL, 30, .null = NULL_IS_ZERO },
    KEY_RMS_EPS(1e-6), KEY_TIED(1), KEY_ATTN_BIAS(0),
    { RG_OWN_AT(settings, ffn_dim_2), KEY_INT, "intermediate_size", NULL, 7680 },
    { RG_OWN_AT(settings, width), KEY_INT, "lru_width", NULL, 0 },
    { RG_OWN_AT(settings, n_taps), KEY_INT, "conv1d_width", NULL, 4 },
};

static const char *const harmless[] = {
    "w_init_variance_scale", "final_w_init_variance_scale", "_block_types", "embeddings_scale_by_sqrt_dim", NULL,
};

/* config.json's block_types, over and over. */
static bool finish_kinds(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const names[] = { "recurrent", "attention", NULL };
    char key[48];
    size_t n = 0;
    int got = rg_meta_length(ckpt, "block_types", &n, err), which;

    if (got < 0)
        return false;
    if (got && !n)
        return rg_fail(err, RG_E_INPUT, "%s: block_types is empty", rg_checkpoint_path(ckpt));
    for (int i = 0; i < c->n_layers; i++) {
        which = i % 3 == 2;
        snprintf(key, sizeof key, "block_types.%d", n ? i % (int)n : 0);
        if (got && !rg_config_choice(ckpt, key, names, &which, err))
            return false;
        c->layer[i].kind = which == 1 ? HYBRID_ATTENTION : HYBRID_OTHER;
        c->layer[i].window = which == 1 ? c->window : 0;
    }
    return true;
}

/* sqrt(dim) to eight bits. */
static double scale_of(int dim)
{
    int exponent;
    double m = frexp(sqrt((double)dim), &exponent);

    return ldexp(nearbyint(ldexp(m, 8)), exponent - 8);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);

    s->width = s->width ? s->width : c->dim;
    c->ffn_dim = s->ffn_dim_2 / 2;
    c->mlp_bias = c->o_bias = true;
    c->embed_scale = scale_of(c->dim);
    if (!finish_kinds(c, ckpt, err) || !finish_heads(c, err) ||
        !finish_rope_as(c, ckpt, &(rope_defaults){ .theta = 1e4, .part = 0.5 }, err) ||
        !finish_act(c, ckpt, "hidden_activation", RG_GELU_TANH, err))
        return false;
    if (s->width % c->n_heads || s->n_taps < 1 || s->n_taps > 64 || s->width > INT32_MAX / 64)
        return rg_fail(err, RG_E_INPUT, "%s: a recurrence of width %d in %d heads, convolution %d: out of range",
                       rg_checkpoint_path(ckpt), s->width, c->n_heads, s->n_taps);
    return true;
}

/* rate = -8 softplus(x). */
static void load_rate(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)(-8 * (src[i] > 0 ? (double)src[i] + log1p(exp(-(double)src[i])) : log1p(exp((double)src[i]))));
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "model.embed_tokens", NULL, { VOCAB, DIM }, SPLIT_ROWS },
    { W_FINAL_NORM, "model.final_norm", NULL, { DIM }, .load = load_plus_one },
    { W_LM_HEAD, "lm_head", NULL, { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

#define AROUND                                                                                                         \
    { W_ATTN_NORM, "temporal_pre_norm", NULL, { DIM }, .load = load_plus_one },                                        \
    { W_FFN_NORM, "channel_pre_norm", NULL, { DIM }, .load = load_plus_one },                                          \
    { W_GATE_PROJ, "mlp_block.gate_proj", NULL, { FFN_DIM, DIM }, SPLIT_ROWS },                                        \
    { W_UP_PROJ, "mlp_block.up_proj", NULL, { FFN_DIM, DIM }, SPLIT_ROWS },                                            \
    { W_DOWN_PROJ, "mlp_block.down_proj", NULL, { DIM, FFN_DIM }, SPLIT_COLS },                                        \
    { W_GATE_BIAS, "mlp_block.gate_proj.bias", NULL, { FFN_DIM }, SPLIT_ROWS },                                        \
    { W_UP_BIAS, "mlp_block.up_proj.bias", NULL, { FFN_DIM }, SPLIT_ROWS },                                            \
    { W_DOWN_BIAS, "mlp_block.down_proj.bias", NULL, { DIM } }
/* One block of a gate's matrix, stored [in, out], for each head. */
#define GATE(weight, bias, name)                                                                                       \
    { weight, "temporal_block.rg_lru." name "_weight", NULL, { N_HEADS, LRU_BLOCK, LRU_BLOCK }, .transposed = true },  \
    { bias, "temporal_block.rg_lru." name "_bias", NULL, { LRU_DIM }, .load = load_flat,                               \
      .stored = { N_HEADS, LRU_BLOCK } }

static const rg_weight_spec recurrent_weights[] = {
    AROUND,
    { W_X_PROJ, "temporal_block.linear_x", NULL, { LRU_DIM, DIM }, SPLIT_ROWS },
    { W_X_BIAS, "temporal_block.linear_x.bias", NULL, { LRU_DIM }, SPLIT_ROWS },
    { W_Y_PROJ, "temporal_block.linear_y", NULL, { LRU_DIM, DIM }, SPLIT_ROWS },
    { W_Y_BIAS, "temporal_block.linear_y.bias", NULL, { LRU_DIM }, SPLIT_ROWS },
    { W_TAPS, "temporal_block.conv_1d", NULL, { LRU_DIM, N_TAPS }, SPLIT_ROWS, .table = true },
    { W_TAPS_BIAS, "temporal_block.conv_1d.bias", NULL, { LRU_DIM }, SPLIT_ROWS },
    GATE(W_R_GATE, W_R_BIAS, "recurrent_gate"), GATE(W_I_GATE, W_I_BIAS, "input_gate"),
    { W_RATE, "temporal_block.rg_lru.recurrent_param", NULL, { LRU_DIM }, SPLIT_ROWS, .load = load_rate },
    { W_OUT_PROJ, "temporal_block.linear_out", NULL, { DIM, LRU_DIM }, SPLIT_COLS },
    { W_OUT_BIAS, "temporal_block.linear_out.bias", NULL, { DIM } },
    { 0 },
};

static const rg_weight_spec attention_weights[] = {
    AROUND,
    WEIGHTS_GQA_OF(GGUF_HALVES, "temporal_block.q_proj", "temporal_block.k_proj", "temporal_block.v_proj",
                   "temporal_block.o_proj"),
    { 0 },
};

static void keep_recurrent(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    *out = (rg_keep){ .n_buffers = 2, .shared_with = -1,
                      .buffer = { [TAIL] = rg_conv_tail("conv_tail", own(c)->width, own(c)->n_taps),
                                  [STATE] = rg_lru_state("lru", own(c)->width) } };
}

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { recurrent_weights, keep_recurrent, block_recurrent },
    [HYBRID_ATTENTION] = { attention_weights, keep_kv, block_attention },
};

const rg_arch rg_arch_recurrentgemma = {
    .hf_name = "RecurrentGemmaForCausalLM", .hf_type = "recurrent_gemma", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = weights, RG_KINDS(kinds),
};
