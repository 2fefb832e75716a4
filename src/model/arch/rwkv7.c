/* rwkv7.c -- RWKV-7 (Peng et al. 2025) as flash-linear-attention has it: a linear recurrence that forgets by element of
 * the key and removes what it holds under a key of its own, and a feed-forward part; both read each row mixed with the
 * one before.
 *
 * The mixing, x + (x of the row before - x) * mu, is a convolution of two taps, mu and 1 - mu; the six inputs of the
 * recurrence are six results of one.  Layers above the first mix their v with that of the first. */
#include <math.h>
#include <string.h>

#include "model/arch/parts.h"
#include "model/arch/rwkv7.h"

typedef struct rwkv_settings {
    int v_dim; /* of a head */
    int decay_rank, a_rank, v_rank, gate_rank;
    double hidden_ratio;
    bool pre_norm, norm_bias;
} rwkv_settings;

enum {
    W_PRE_NORM = W_OWN, W_PRE_NORM_BIAS, W_MU, W_MIX, W_FFN_MIX,
    W_DECAY_A, W_DECAY_B, W_DECAY_BIAS, W_A_A, W_A_B, W_A_BIAS, W_V_A, W_V_B, W_V_LOW_BIAS, W_GATE_A, W_GATE_B,
    W_KEY_SCALE, W_KEY_RATE, W_BONUS, W_HEAD_NORM, W_HEAD_NORM_BIAS,
    W_UNUSED_A, W_UNUSED_B, W_UNUSED_BIAS, /* of the first layer, which GGUF wants */
};

enum { MIX_R, MIX_W, MIX_K, MIX_V, MIX_A, MIX_G, MIXES, TAPS = 2 };

#define own(c) RG_OWN(c, rwkv_settings)

enum { ATTN_TAIL, FFN_TAIL, STATE, BUFFERS };

static rg_act *recurrence(rg_fwd *f, const rg_layer *l, const rg_act *mixed);

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    if (l->w[W_PRE_NORM]) /* of the first layer */
        norm_into(f, l, x, x, W_PRE_NORM);
    rg_act *h = normed(f, l, x, W_ATTN_NORM), *mixed = rg_act_new(f, "mixed", MIXES * l->c->dim);
    /* with the row before: [rows, 6 dim] */
    rg_conv(f, mixed, h, l->w[W_MIX], NULL, &l->buffer[ATTN_TAIL], RG_IDENTITY);
    rg_act *y = recurrence(f, l, mixed);          /* [rows, heads * v_dim] */
    rg_linear_add(f, x, y, l->w[W_O_PROJ], NULL); /* x += o_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *in = rg_act_new(f, "ffn_in", l->c->dim);
    rg_conv(f, in, h, l->w[W_FFN_MIX], NULL, &l->buffer[FFN_TAIL], RG_IDENTITY);
    rg_act *u = linear(f, "ffn", in, l->w[W_UP_PROJ], NULL);
    rg_activate(f, u, u, RG_RELU2);                  /* relu(key in)^2: [rows, ffn_dim] */
    rg_linear_add(f, x, u, l->w[W_DOWN_PROJ], NULL); /* x += value u */
}

static SIZE(MIXED, MIXES * (int64_t)c->dim)
static SIZE(TWO, TAPS)
static SIZE(SIX, MIXES)
static SIZE(VALUES, (int64_t)c->n_heads * own(c)->v_dim)
static SIZE(DECAY_RANK, own(c)->decay_rank)
static SIZE(A_RANK, own(c)->a_rank)
static SIZE(V_RANK, own(c)->v_rank)
static SIZE(GATE_RANK, own(c)->gate_rank)

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", 1048576 },
    { offsetof(rg_config, n_heads), KEY_INT, "num_heads", NULL, 0 },
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", "wkv.head_size", 64 },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "norm_eps", "attention.layer_norm_epsilon", 1e-5 },
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", 0 },
    KEY_TIED(0),
    { RG_OWN_AT(rwkv_settings, v_dim), KEY_INT, "value_dim", NULL, 0, .least = 1, .most = INT32_MAX / 4 },
    { RG_OWN_AT(rwkv_settings, hidden_ratio), KEY_DOUBLE, "hidden_ratio", NULL, 4 },
    { RG_OWN_AT(rwkv_settings, decay_rank), KEY_INT, "decay_low_rank_dim", "attention.decay_lora_rank", 64 },
    { RG_OWN_AT(rwkv_settings, a_rank), KEY_INT, "a_low_rank_dim", "attention.iclr_lora_rank", 64 },
    { RG_OWN_AT(rwkv_settings, v_rank), KEY_INT, "v_low_rank_dim", "attention.value_residual_mix_lora_rank", 16 },
    { RG_OWN_AT(rwkv_settings, gate_rank), KEY_INT, "gate_low_rank_dim", "attention.gate_lora_rank", 128 },
    { RG_OWN_AT(rwkv_settings, pre_norm), KEY_BOOL, "norm_first", NULL, 1 },
    { RG_OWN_AT(rwkv_settings, norm_bias), KEY_BOOL, "norm_bias", NULL, 1 },
};

static const char *const harmless[] = {
    "attn_mode", "fuse_norm", "fuse_cross_entropy", "fuse_linear_cross_entropy", "use_l2warp", NULL,
};

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const rwkv_settings *s = own(c);
    const char *what = !s->pre_norm             ? "norm_first: false"
                       : !s->norm_bias          ? "norm_bias: false"
                       : s->v_dim != c->head_dim ? "value_dim"
                       : c->tie_embeddings      ? "tie_word_embeddings"
                                                : NULL;

    if (what)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no form for %s of this architecture", what);
    return put_gguf_int(c, w, "attention.head_count", 0, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const acts[] = { "sqrelu", NULL };
    rwkv_settings *s = RG_OWN_EDIT(c, rwkv_settings);

    if (rg_meta_type_of(ckpt, "attn") == RG_META_OBJECT)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: attn names layers of another kind, which is not supported",
                       rg_checkpoint_path(ckpt));
    rg_meta_understand(ckpt, "attn");
    if (c->from_gguf)
        rg_meta_understand(ckpt, "rwkv7.attention.head_count");
    if (!require_choice(ckpt, "hidden_act", acts, err))
        return false;
    if (!c->n_heads && c->head_dim)
        c->n_heads = c->dim / c->head_dim;
    const int values = s->v_dim ? s->v_dim : c->dim; /* of all heads, by config.json */
    if (c->n_heads < 1 || (int64_t)c->n_heads * c->head_dim != c->dim || values % c->n_heads || values < c->n_heads)
        return rg_fail(err, RG_E_INPUT, "%s: %d heads of %d, values of %d, width %d: they do not fit",
                       rg_checkpoint_path(ckpt), c->n_heads, c->head_dim, values, c->dim);
    if (s->decay_rank < 1 || s->a_rank < 1 || s->v_rank < 1 || s->gate_rank < 1)
        return rg_fail(err, RG_E_INPUT, "%s: ranks %d, %d, %d, %d: out of range", rg_checkpoint_path(ckpt),
                       s->decay_rank, s->a_rank, s->v_rank, s->gate_rank);
    s->v_dim = values / c->n_heads;
    if (!c->ffn_dim && s->hidden_ratio > 0 && s->hidden_ratio * c->dim < INT32_MAX / 4)
        c->ffn_dim = (int)(ceil(s->hidden_ratio * c->dim / 32) * 32);
    c->layer_norm = true;
    return c->ffn_dim > 0 || rg_fail(err, RG_E_INPUT, "%s: hidden_ratio is %g", rg_checkpoint_path(ckpt),
                                     s->hidden_ratio);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static WHEN(when_pre_norm, own(c)->pre_norm && layer == 0)
static WHEN(when_pre_norm_bias, own(c)->norm_bias && when_pre_norm(c, layer))
static WHEN(when_norm_bias, own(c)->norm_bias)
static WHEN(when_above_first, layer > 0)

/* GGUF wants of the first layer what only those above it have; its own converter takes a copy of something else. */
static WHEN(when_unused, !c->from_gguf && layer == 0)

static const char *const ignored[] = { "blk.0.time_mix_v0.weight", "blk.0.time_mix_v1.weight",
                                       "blk.0.time_mix_v2.weight", NULL };

/* Taps for each column: of the row before, and of the row itself. */
static void load_mix(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n / TAPS; i++) {
        dst[TAPS * i] = src[i];
        dst[TAPS * i + 1] = 1.0f - src[i];
    }
}

bool derive_mix(const rg_config *c, int layer, const rg_weight *const w[], float *dst, rg_error *err)
{
    const size_t dim = (size_t)c->dim;

    (void)layer;
    (void)err;
    for (size_t i = 0; i < MIXES; i++)
        load_mix(c, w[W_MU]->vec + i * dim, dst + i * TAPS * dim, TAPS * (int64_t)dim);
    return true;
}

/* A weight is the first tap, and 1 minus it the second. */
bool derive_mix_back(const rg_config *c, int layer, const rg_weight *const w[], const float *d_dst, float *const d_w[],
                     rg_error *err)
{
    (void)layer, (void)w, (void)err;
    for (size_t i = 0; d_w[W_MU] && i < MIXES * (size_t)c->dim; i++)
        d_w[W_MU][i] += d_dst[TAPS * i] - d_dst[TAPS * i + 1];
    return true;
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "model.embeddings", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },
    { W_FINAL_NORM, "model.norm", "output_norm", { DIM } },
    { W_FINAL_NORM_BIAS, "model.norm.bias", "output_norm.bias", { DIM }, .when = when_norm_bias },
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_PRE_NORM, "pre_norm", "/token_embd_norm", { DIM }, .when = when_pre_norm },
    { W_PRE_NORM_BIAS, "pre_norm.bias", "/token_embd_norm.bias", { DIM }, .when = when_pre_norm_bias },
    { W_ATTN_NORM, "attn_norm", "attn_norm", { DIM } },
    { W_ATTN_NORM_BIAS, "attn_norm.bias", "attn_norm.bias", { DIM }, .when = when_norm_bias },
    { W_MU, "attn.x_*", "time_mix_lerp_fused", { SIX, ONE, DIM }, .table = true, .letters = "rwkvag",
      .gguf_shape = { SIX, ONE, ONE, DIM } },
    { W_MIX, "attn.mix", "attn.mix", { MIXED, TWO }, .table = true, .derive = derive_mix },
    { W_Q_PROJ, "attn.r_proj", "time_mix_receptance", { DIM, DIM }, SPLIT_ROWS },
    { W_K_PROJ, "attn.k_proj", "time_mix_key", { DIM, DIM }, SPLIT_ROWS },
    { W_V_PROJ, "attn.v_proj", "time_mix_value", { VALUES, DIM }, SPLIT_ROWS },
    { W_DECAY_A, "attn.w_lora.lora.0", "time_mix_w1", { DECAY_RANK, DIM } },
    { W_DECAY_B, "attn.w_lora.lora.2", "time_mix_w2", { DIM, DECAY_RANK }, SPLIT_ROWS },
    { W_DECAY_BIAS, "attn.w_lora.lora.2.bias", "time_mix_w0", { DIM }, SPLIT_ROWS },
    { W_A_A, "attn.a_lora.lora.0", "time_mix_a1", { A_RANK, DIM } },
    { W_A_B, "attn.a_lora.lora.2", "time_mix_a2", { DIM, A_RANK }, SPLIT_ROWS },
    { W_A_BIAS, "attn.a_lora.lora.2.bias", "time_mix_a0", { DIM }, SPLIT_ROWS },
    { W_V_A, "attn.v_lora.lora.0", "time_mix_v1", { V_RANK, DIM }, .when = when_above_first },
    { W_V_B, "attn.v_lora.lora.2", "time_mix_v2", { VALUES, V_RANK }, SPLIT_ROWS, .when = when_above_first },
    { W_V_LOW_BIAS, "attn.v_lora.lora.2.bias", "time_mix_v0", { VALUES }, SPLIT_ROWS, .when = when_above_first },
    { W_GATE_A, "attn.g_lora.lora.0", "time_mix_g1", { GATE_RANK, DIM } },
    { W_GATE_B, "attn.g_lora.lora.2", "time_mix_g2", { VALUES, GATE_RANK }, SPLIT_ROWS },
    { W_KEY_SCALE, "attn.k_k", "time_mix_k_k", { DIM }, SPLIT_ROWS },
    { W_KEY_RATE, "attn.k_a", "time_mix_k_a", { DIM }, SPLIT_ROWS, .load = load_negated,
      .load_gguf = load_negated, .to_gguf = load_flat, .stored = { DIM } },
    { W_BONUS, "attn.r_k", "time_mix_r_k", { N_HEADS, ONE, HEAD_DIM }, SPLIT_ROWS, .load_gguf = load_flat,
      .stored = { DIM }, .gguf_shape = { DIM } },
    { W_HEAD_NORM, "attn.g_norm", "time_mix_ln", { VALUES } },
    { W_HEAD_NORM_BIAS, "attn.g_norm.bias", "time_mix_ln.bias", { VALUES } },
    { W_O_PROJ, "attn.o_proj", "time_mix_output", { DIM, VALUES }, SPLIT_COLS },
    { W_FFN_NORM, "ffn_norm", "attn_norm_2", { DIM } },
    { W_FFN_NORM_BIAS, "ffn_norm.bias", "attn_norm_2.bias", { DIM }, .when = when_norm_bias },
    { W_FFN_MIX, "ffn.x_k", "channel_mix_lerp_k", { DIM, TWO }, .table = true, .load = load_mix, .load_gguf = load_mix,
      .stored = { DIM }, .to_gguf = load_flat, .gguf_shape = { ONE, ONE, DIM } },
    { W_UP_PROJ, "ffn.key", "channel_mix_key", { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_UNUSED_A, "attn.a_lora.lora.0", "time_mix_v1", { A_RANK, DIM }, .when = when_unused },
    { W_UNUSED_B, "attn.a_lora.lora.2", "time_mix_v2", { DIM, A_RANK }, .when = when_unused },
    { W_UNUSED_BIAS, "attn.a_lora.lora.2.bias", "time_mix_v0", { DIM }, .when = when_unused },
    { W_DOWN_PROJ, "ffn.value", "channel_mix_value", { DIM, FFN_DIM }, SPLIT_COLS },
    { 0 },
};

/* ---- state, and the recurrence ----------------------------------------------------------------------------------- */

static void keep(const rg_config *c, int layer, rg_keep *out)
{
    const int logged = 4 * c->dim + (int)VALUES(c, layer); /* k, decay, a, b; v */

    *out = (rg_keep){
        .n_buffers = BUFFERS,
        .buffer = { [ATTN_TAIL] = rg_conv_tail("attn_tail", c->dim, TAPS),
                    [FFN_TAIL] = rg_conv_tail("ffn_tail", c->dim, TAPS),
                    [STATE] = rg_linear_attention_state("wkv_state", c->n_heads, c->head_dim, own(c)->v_dim, logged) },
        .shared_with = -1,
    };
}

static rg_act *copy(rg_fwd *f, const char *name, const rg_act *x)
{
    rg_act *y = rg_act_new(f, name, x->cols);

    rg_activate(f, y, x, RG_IDENTITY);
    return y;
}

/* b act(a x), through the rank of a, plus a bias. */
static rg_act *low_rank(rg_fwd *f, const char *name, const rg_act *x, const rg_weight *const w[3], rg_activation act)
{
    rg_act *low = rg_act_new(f, "low", (int)w[0]->rows), *y = rg_act_new(f, name, (int)w[1]->rows);

    rg_linear(f, low, x, w[0], NULL);
    if (act != RG_IDENTITY)
        rg_activate(f, low, low, act);
    rg_linear(f, y, low, w[1], w[2]);
    return y;
}

/* v of the first layer is kept for those above, where v += (v of the first - v) * s = v (1 - s) + first s, and 1 -
 * sigmoid(z) is sigmoid(-z). */
static void mix_values(rg_fwd *f, const rg_layer *l, rg_act *v, const rg_act *x)
{
    rg_act *first = rg_act_find(f, "v_first");

    if (!l->w[W_V_A]) {
        rg_activate(f, first, v, RG_IDENTITY);
        return;
    }
    rg_act *z = low_rank(f, "v_mix", x, (const rg_weight *const[]){ l->w[W_V_A], l->w[W_V_B], l->w[W_V_LOW_BIAS] },
                         RG_IDENTITY);
    rg_act *part = rg_act_new(f, "v_part", v->cols);
    rg_act_mul(f, part, z, first, RG_SIGMOID);
    rg_scale_by(f, z, -1.0f);
    rg_act_mul(f, v, z, v, RG_SIGMOID);
    rg_add_to(f, v, part);
}

/* From k and the logit z of its rate: kk = k * k_k, of length 1 in each head; a = -kk * sigmoid(z); and k *= 1 +
 * (sigmoid(z) - 1) * k_a. */
static void make_keys(rg_fwd *f, const rg_layer *l, rg_act *k, rg_act *z, rg_act *out[2])
{
    rg_act *kk = copy(f, "kk", k), *a = rg_act_new(f, "a", k->cols), *less = copy(f, "k_less", k);

    rg_scale_columns(f, kk, l->w[W_KEY_SCALE]);
    rg_l2norm(f, kk, kk, l->c->head_dim, 1e-6f);
    rg_act_mul(f, a, z, kk, RG_SIGMOID);
    rg_scale_by(f, a, -1.0f);
    rg_scale_columns(f, less, l->w[W_KEY_RATE]); /* -k_a */
    rg_scale_by(f, z, -1.0f);
    rg_act_mul(f, less, z, less, RG_SIGMOID);
    rg_add_to(f, k, less);
    out[0] = a;
    out[1] = kk;
}

/* Before o_proj, of the mixed inputs. */
static rg_act *recurrence(rg_fwd *f, const rg_layer *l, const rg_act *mixed)
{
    static const char *const names[MIXES] = { "x_r", "x_w", "x_k", "x_v", "x_a", "x_g" };
    const rg_config *c = l->c;
    const rg_weight *const *w = l->w;
    const int values = (int)VALUES(c, l->index);
    rg_act *x[MIXES], *r = rg_act_new(f, "r", c->dim), *k = rg_act_new(f, "k", c->dim);
    rg_act *v = rg_act_new(f, "v", values), *y = rg_act_new(f, "wkv", values), *ab[2];
    rg_act *share = rg_act_new(f, "bonus_share", c->n_heads), *bonus = rg_act_new(f, "bonus", c->dim);

    for (int i = 0; i < MIXES; i++)
        x[i] = rg_act_view(f, names[i], mixed, i * c->dim, c->dim);
    rg_linear(f, r, x[MIX_R], w[W_Q_PROJ], NULL);
    rg_linear(f, k, x[MIX_K], w[W_K_PROJ], NULL);
    rg_linear(f, v, x[MIX_V], w[W_V_PROJ], NULL);
    mix_values(f, l, v, x[MIX_V]);
    rg_act *decay = low_rank(f, "decay", x[MIX_W],
                             (const rg_weight *const[]){ w[W_DECAY_A], w[W_DECAY_B], w[W_DECAY_BIAS] }, RG_TANH);
    rg_decay(f, decay, NULL, decay, &(rg_decay_params){ .act = RG_SIGMOID, .fixed_rate = -0.60653066f }); /* -e^-1/2 */
    rg_act *z = low_rank(f, "rate", x[MIX_A], (const rg_weight *const[]){ w[W_A_A], w[W_A_B], w[W_A_BIAS] },
                         RG_IDENTITY);
    make_keys(f, l, k, z, ab);
    rg_linear_attention(f, y,
                        &(rg_linear_attention_params){ .n_heads = c->n_heads, .k_dim = c->head_dim,
                                                       .v_dim = own(c)->v_dim, .scale = 1.0f, .q = r, .k = k, .v = v,
                                                       .decay = decay, .a = ab[0], .b = ab[1] },
                        &l->buffer[STATE]);
    rg_layernorm_runs(f, y, y, w[W_HEAD_NORM], w[W_HEAD_NORM_BIAS], own(c)->v_dim,
                      (float)c->head_dim * c->norm_eps);
    rg_act_mul(f, bonus, r, k, RG_IDENTITY);
    rg_linear_heads(f, share, bonus, w[W_BONUS], c->head_dim);
    rg_mul_by(f, v, share);
    rg_add_to(f, y, v);
    rg_act *gate = low_rank(f, "gate", x[MIX_G], (const rg_weight *const[]){ w[W_GATE_A], w[W_GATE_B], NULL },
                            RG_SIGMOID);
    rg_mul_by(f, y, gate);
    return y;
}

/* A place for v of the first layer, which the others read. */
static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_embed(f, x, l->w[W_EMBED_TOKENS], 1.0f);
    rg_act_new(f, "v_first", (int)VALUES(l->c, 0));
}

const rg_arch rg_arch_rwkv7 = {
    .hf_name = "RWKV7ForCausalLM", .hf_type = "rwkv7", .gguf_name = "rwkv7", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(rwkv_settings), .finish = finish, .embed = embed, .ignored = ignored,
    .harmless = harmless, .weights = weights, RG_KIND(layer_weights, keep, block), .put_gguf = put_gguf,
};
