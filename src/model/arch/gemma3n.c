/* gemma3n.c -- Gemma 3n (text, 2025): several streams per row (AltUp, Baykal et al. 2023), of which each layer computes
 * one, having predicted all from it, and corrects the others by what it made of it; a low-rank path beside attention
 * (LAuReL, Menghani et al. 2024); MLPs whose gate keeps its highest values alone; the last layers share K/V; a vector
 * for each layer and token.  Window layers and full ones, each kind with a rope of its own.
 *
 * Norms are plain (w, not 1 + w).  GGUF's form of it is not read. */
#include <math.h>
#include <stdio.h>

#include "model/arch/gemma.h"

typedef struct settings {
    int n_streams, active; /* active: the stream that layers compute */
    int n_shared;          /* layers that have no K/V of their own */
    double coef_clip;      /* bound of the correction's weights; 0: none */
    bool scales_corrected;
    int laurel_rank;
    gemma_per_layer per_layer;
} settings;

enum { W_STREAMS_IN = W_PER_LAYER_NORM + 1, W_STREAMS_OUT };
enum {
    W_ALTUP_NORM = W_GEMMA_OWN, W_ALTUP_ROUTER, W_PREDICT, W_PREDICT_BIAS, W_CORRECT, W_CORRECT_BIAS, W_CORRECTED_SCALE,
    W_LAUREL_LEFT, W_LAUREL_RIGHT, W_LAUREL_NORM,
};

typedef struct layer_settings {
    bool cuts_gate; /* its MLP's gate loses what is below mean + cut * deviation (rg_cut_gate) */
    float cut;
} layer_settings;

/* Streams i to i + n - 1 of x. */
static rg_act *stream(rg_fwd *f, const rg_layer *l, const rg_act *x, int i, int n)
{
    return rg_act_view(f, "stream", x, i * l->c->dim, n * l->c->dim);
}

/* The matrix of each row by which streams are mixed, of a stream x; and what the layer makes of the active stream. */
static rg_act *mixing(rg_fwd *f, const rg_layer *l, const rg_act *x, int matrix, int bias);
static void compute(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *a);

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, n_streams * dim] */
{
    const settings *s = RG_OWN(l->c, settings);
    const int n = s->n_streams, dim = l->c->dim;
    rg_act *all = rg_act_new(f, "altup", (n + 1) * dim); /* predicted streams, then what the layer makes */
    rg_act *active = stream(f, l, x, s->active, 1), *made = stream(f, l, all, n, 1);

    rg_mix(f, stream(f, l, all, 0, n), x, mixing(f, l, active, W_PREDICT, W_PREDICT_BIAS), dim); /* predict all */
    compute(f, l, made, stream(f, l, all, s->active, 1));
    rg_mix(f, x, all, mixing(f, l, made, W_CORRECT, W_CORRECT_BIAS), dim); /* correct all by what was made */

    rg_act *first = rg_act_new(f, "corrected", dim);
    rg_activate(f, first, active, RG_IDENTITY);
    if (l->w[W_CORRECTED_SCALE])
        rg_scale_columns(f, first, l->w[W_CORRECTED_SCALE]);
    rg_act *more = per_layer_part(f, l, first, &s->per_layer); /* of the token's vector for this layer: [rows, dim] */
    for (int i = 1; i < n; i++)
        rg_add_to(f, stream(f, l, x, i, 1), more);
}

static rg_act *mixing(rg_fwd *f, const rg_layer *l, const rg_act *x, int matrix, int bias)
{
    const rg_config *c = l->c;
    rg_act *h = rg_act_new(f, "altup_norm", c->dim);
    rg_act *g = rg_act_new(f, "altup_router", RG_OWN(c, settings)->n_streams);
    rg_act *m = rg_act_new(f, "altup_mix", (int)l->w[matrix]->rows);

    rg_rmsnorm(f, h, x, l->w[W_ALTUP_NORM], c->norm_eps);
    rg_linear(f, g, h, l->w[W_ALTUP_ROUTER], NULL);
    rg_scale_by(f, g, 1.0f / (float)c->dim);
    rg_activate(f, g, g, RG_TANH);
    rg_linear(f, m, g, l->w[matrix], l->w[bias]);
    return m;
}

/* The MLP of h before down_proj, [rows, ffn_dim]. */
static rg_act *sparse_mlp(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const layer_settings *own = RG_LAYER_OWN(l->c, l->index, layer_settings);
    const int cols = (int)l->w[W_UP_PROJ]->rows;

    if (!own->cuts_gate)
        return mlp(f, l, h);
    rg_act *g = rg_act_new(f, "ffn_gate", cols), *u = rg_act_new(f, "ffn", cols);
    rg_linear3(f, (rg_act *const[]){ g, u, NULL }, h,
               (const rg_weight *const[]){ l->w[W_GATE_PROJ], l->w[W_UP_PROJ], NULL }, NULL);
    rg_cut_gate(f, g, g, own->cut);
    rg_act_mul(f, u, g, u, l->c->act);
    return u;
}

static void compute(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *a)
{
    const float eps = l->c->norm_eps;
    rg_act *h = normed(f, l, a, W_ATTN_NORM);
    rg_act *u = linear(f, "laurel", linear(f, "laurel_low", h, l->w[W_LAUREL_LEFT], NULL), l->w[W_LAUREL_RIGHT], NULL);

    qkv p = project(f, l, h);

    rg_rmsnorm(f, u, u, l->w[W_LAUREL_NORM], eps);
    norm_values(f, l, &p); /* RMSNorm of each head of v, without weights; then of q and of k */
    norm_heads(f, l, &p);
    rotate(f, l, &p);
    rg_linear(f, y, attention(f, l, &p), l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], eps);
    rg_add_to(f, y, a);
    rg_add_to(f, y, u);
    rg_add_to(f, y, h);
    rg_scale_by(f, y, 1.0f / __builtin_sqrtf(2.0f)); /* (attention + a + laurel + h) / sqrt(2) */

    rg_act *z = linear(f, "ffn_out", sparse_mlp(f, l, normed(f, l, y, W_FFN_NORM)), l->w[W_DOWN_PROJ], NULL);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], eps);
    rg_add_to(f, y, z);
}

static const rg_key keys[] = {
    KEYS_GQA(32768, 8, 2, 256), KEY_RMS_EPS(1e-6), KEY_TIED(1), KEY_ATTN_BIAS(0), KEY_WINDOW(512),
    { offsetof(rg_config, logit_softcap), KEY_FLOAT, "final_logit_softcapping", NULL, 30, .null = NULL_IS_ZERO },
    { RG_OWN_AT(settings, coef_clip), KEY_DOUBLE, "altup_coef_clip", NULL, 120, .null = NULL_IS_ZERO },
    { RG_OWN_AT(settings, n_shared), KEY_INT, "num_kv_shared_layers", NULL, 15 },
    { RG_OWN_AT(settings, n_streams), KEY_INT, "altup_num_inputs", NULL, 4 },
    { RG_OWN_AT(settings, active), KEY_INT, "altup_active_idx", NULL, 0 },
    { RG_OWN_AT(settings, scales_corrected), KEY_BOOL, "altup_correct_scale", NULL, 1 },
    { RG_OWN_AT(settings, laurel_rank), KEY_INT, "laurel_rank", NULL, 64 },
    { RG_OWN_AT(settings, per_layer.dim), KEY_INT, "hidden_size_per_layer_input", NULL, 256 },
    { RG_OWN_AT(settings, per_layer.vocab), KEY_INT, "vocab_size_per_layer_input", NULL, 262144 },
};

/* ---- the config -------------------------------------------------------------------------------------------------- */

/* "intermediate_size": one for all layers, or a list. */
static bool read_ffn_dims(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int32_t *list;
    int64_t one = 16384;
    size_t n;

    if (rg_meta_type_of(ckpt, "intermediate_size") != RG_META_ARRAY) {
        bool ok = rg_config_int(ckpt, "intermediate_size", 1, INT32_MAX, &one, err) >= 0;
        c->ffn_dim = (int)one;
        return ok;
    }
    if (rg_meta_ints(ckpt, "intermediate_size", &list, &n, err) < 0)
        return false;
    for (size_t i = 0; n == (size_t)c->n_layers && i < n; i++) {
        if (list[i] < 1)
            return rg_fail(err, RG_E_INPUT, "%s: intermediate_size.%zu is %d", rg_checkpoint_path(ckpt), i, list[i]);
        c->layer[i].ffn_dim = list[i] == list[0] ? 0 : list[i];
    }
    if (!require_length(c, ckpt, "intermediate_size", n, err))
        return false;
    c->ffn_dim = list[0];
    return true;
}

/* Where the normal distribution has the share p below it, 0 < p < 1. */
static double normal_quantile(double p)
{
    double low = -40, high = 40;

    for (int i = 0; i < 64; i++) {
        double middle = (low + high) / 2, below = erfc(-middle / sqrt(2.0)) / 2;

        *(below < p ? &low : &high) = middle;
    }
    return (low + high) / 2;
}

/* "activation_sparsity_pattern": of each layer's gate, the share of values that are cut to 0. */
static bool read_sparsity(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    enum { SPARSE_LAYERS = 10 };
    const float *list = NULL;
    size_t n;
    int got = rg_meta_floats(ckpt, "activation_sparsity_pattern", &list, &n, err);

    if (got < 0)
        return false;
    if (got && !require_length(c, ckpt, "activation_sparsity_pattern", n, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        float share = got ? list[i] : c->n_layers > SPARSE_LAYERS && i < SPARSE_LAYERS ? 0.95f : 0.0f;

        if (!(share < 1.0f))
            return rg_fail(err, RG_E_INPUT, "%s: activation_sparsity_pattern.%d is %g, want less than 1",
                           rg_checkpoint_path(ckpt), i, (double)share);
        *RG_LAYER_OWN_EDIT(c, i, layer_settings) =
            (layer_settings){ share > 0.0f, share > 0.0f ? (float)normal_quantile((double)share) : 0.0f };
    }
    return true;
}

/* Settings of the streams, each within what the sizes of weights can be. */
static bool check_streams(const settings *own, const rg_config *c, rg_error *err)
{
    if (own->n_streams < 2 || own->n_streams > 16 || own->active >= own->n_streams)
        return rg_fail(err, RG_E_INPUT,
                       "altup_num_inputs %d, altup_active_idx %d: want 2 to 16 streams, one of them active",
                       own->n_streams, own->active);
    if ((int64_t)c->dim * (own->n_streams + 1) > INT32_MAX / 4 || own->laurel_rank < 1 || own->per_layer.dim < 1 ||
        (int64_t)own->per_layer.dim * c->n_layers > INT32_MAX / 4)
        return rg_fail(err, RG_E_INPUT,
                       "hidden_size %d, laurel_rank %d or hidden_size_per_layer_input %d is 0 or too large", c->dim,
                       own->laurel_rank, own->per_layer.dim);
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const gelu[] = { "gelu_pytorch_tanh", NULL };
    settings *own = RG_OWN_EDIT(c, settings);

    c->attn_scale = 1;
    c->act = RG_GELU_TANH;
    c->embed_scale = __builtin_sqrt((double)c->dim);
    c->o_bias = c->attn_bias;
    c->n_ropes = 2;
    if (!check_streams(own, c, err) || !finish_heads(c, err) || !finish_windows(c, ckpt, 5, 1, err) ||
        !finish_shared_kv(c, own->n_shared, err))
        return false;
    c->ropes[0].dim = c->ropes[1].dim = c->head_dim;
    return read_ffn_dims(c, ckpt, err) && read_sparsity(c, ckpt, err) &&
           require_choice(ckpt, "hidden_activation", gelu, err) &&
           rg_rope_read(&c->ropes[0], ckpt, "full_attention", 1e6, err) &&
           rg_rope_read(&c->ropes[1], ckpt, "sliding_attention", 1e4, err);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* The correction as one matrix over the predicted streams and, last, what the layer made of the active one:
 * x_a = p_a + (1 + g_a) (made - p_active), g being correction_coefs by the router's values.  load_correct gives the
 * part that these multiply, derive_correct the rest. */
static void load_correct(const rg_config *c, const float *src, float *dst, int64_t n)
{
    const settings *own = RG_OWN(c, settings);
    const int streams = own->n_streams;
    const float most = own->coef_clip > 0 ? (float)own->coef_clip : INFINITY;

    for (int64_t i = 0; i < n; i++) {
        int64_t a = i / streams / (streams + 1), b = i / streams % (streams + 1);
        float w = fminf(fmaxf(src[a * streams + i % streams], -most), most);

        dst[i] = b == streams ? w : b == own->active ? -w : 0.0f;
    }
}

static bool derive_correct(const rg_config *c, int layer, const rg_weight *const w[], float *dst, rg_error *err)
{
    const settings *own = RG_OWN(c, settings);
    const int streams = own->n_streams;

    (void)layer, (void)w, (void)err;
    for (int a = 0; a < streams; a++)
        for (int b = 0; b <= streams; b++)
            *dst++ = (float)((b == a) - (b == own->active) + (b == streams));
    return true;
}

/* Streams are predicted as themselves plus a mix of all. */
static bool derive_predict(const rg_config *c, int layer, const rg_weight *const w[], float *dst, rg_error *err)
{
    const int streams = RG_OWN(c, settings)->n_streams;

    (void)layer, (void)w, (void)err;
    for (int i = 0; i < streams * streams; i++)
        dst[i] = i / streams == i % streams ? 1.0f : 0.0f;
    return true;
}

static WHEN(when_always, true)
static WHEN(when_scaled, RG_OWN(c, settings)->scales_corrected)
static SIZE(STREAMS, RG_OWN(c, settings)->n_streams)
static SIZE(OTHERS, STREAMS(c, layer) - 1)
static SIZE(PREDICTIONS, STREAMS(c, layer) * STREAMS(c, layer))
static SIZE(CORRECTIONS, STREAMS(c, layer) * (STREAMS(c, layer) + 1))
static SIZE(LAUREL_RANK, RG_OWN(c, settings)->laurel_rank)
static SIZE(PER_LAYER, RG_OWN(c, settings)->per_layer.dim)
static SIZE(PER_LAYERS, (int64_t)c->n_layers * RG_OWN(c, settings)->per_layer.dim)
static SIZE(PER_LAYER_VOCAB, RG_OWN(c, settings)->per_layer.vocab)

static const rg_weight_spec weights[] = {
    WEIGHTS_DECODER, WEIGHTS_PER_LAYER(when_always, PER_LAYER_VOCAB, PER_LAYERS, PER_LAYER),
    { W_STREAMS_IN, "model.altup_projections.*", NULL, { OTHERS, DIM, DIM } },
    { W_STREAMS_OUT, "model.altup_unembed_projections.*", NULL, { OTHERS, DIM, DIM } },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ALTUP_NORM, "altup.router_norm", NULL, { DIM } },
    { W_ALTUP_ROUTER, "altup.modality_router", NULL, { STREAMS, DIM } },
    { W_PREDICT, "altup.prediction_coefs", NULL, { PREDICTIONS, STREAMS } },
    { W_PREDICT_BIAS, "altup.prediction_coefs.bias", NULL, { PREDICTIONS }, .derive = derive_predict },
    { W_CORRECT, "altup.correction_coefs", NULL, { CORRECTIONS, STREAMS }, .load = load_correct,
      .stored = { STREAMS, STREAMS } },
    { W_CORRECT_BIAS, "altup.correction_coefs.bias", NULL, { CORRECTIONS }, .derive = derive_correct },
    { W_CORRECTED_SCALE, "altup.correct_output_scale", NULL, { DIM }, .when = when_scaled },
    { W_LAUREL_LEFT, "laurel.linear_left", NULL, { LAUREL_RANK, DIM } },
    { W_LAUREL_RIGHT, "laurel.linear_right", NULL, { DIM, LAUREL_RANK } },
    { W_LAUREL_NORM, "laurel.post_laurel_norm", NULL, { DIM } },
    { W_ATTN_NORM, "input_layernorm", NULL, { DIM } },
    WEIGHTS_GQA(GGUF_HALVES),
    { W_Q_NORM, "self_attn.q_norm", NULL, { HEAD_DIM } },
    { W_K_NORM, "self_attn.k_norm", NULL, { HEAD_DIM }, .when = when_own_kv },
    { W_POST_ATTN_NORM, "post_attention_layernorm", NULL, { DIM } },
    { W_FFN_NORM, "pre_feedforward_layernorm", NULL, { DIM } },
    WEIGHTS_MLP,
    { W_POST_FFN_NORM, "post_feedforward_layernorm", NULL, { DIM } },
    WEIGHTS_OF_PER_LAYER(when_always, PER_LAYER), { 0 },
};

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static const float RMS_FLOOR = 1e-5f; /* of mean(y^2), where a stream is given the size of the first */

static int width(const rg_config *c)
{
    return c->dim * RG_OWN(c, settings)->n_streams;
}

static rg_act *shown(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    return stream(f, l, x, RG_OWN(l->c, settings)->active, 1);
}

/* The first stream is the token's embedding, the others are projections of it, of its size. */
static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const settings *own = RG_OWN(l->c, settings);
    rg_act *first = rg_act_new(f, "embedding", l->c->dim);

    rg_embed(f, first, l->w[W_EMBED_TOKENS], (float)l->c->embed_scale);
    embed_per_layer(f, l, first, &own->per_layer);
    int mark = rg_act_mark(f);
    rg_linear_heads(f, stream(f, l, x, 1, own->n_streams - 1), first, l->w[W_STREAMS_IN], 0);
    for (int i = 1; i < own->n_streams; i++)
        rg_match_rms(f, stream(f, l, x, i, 1), first, RMS_FLOOR);
    rg_activate(f, stream(f, l, x, 0, 1), first, RG_IDENTITY);
    rg_act_release(f, mark);
}

/* The mean of the first stream and projections of the others of its size, normed. */
static void norm(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x)
{
    const rg_config *c = l->c;
    const int n = RG_OWN(c, settings)->n_streams;
    rg_act *others = rg_act_rows(f, "unembedded", x->rows, (n - 1) * c->dim);

    rg_linear_heads(f, others, stream(f, l, x, 1, n - 1), l->w[W_STREAMS_OUT], c->dim);
    rg_activate(f, y, stream(f, l, x, 0, 1), RG_IDENTITY);
    for (int i = 0; i < n - 1; i++) {
        rg_match_rms(f, stream(f, l, others, i, 1), stream(f, l, x, 0, 1), RMS_FLOOR);
        rg_add_to(f, y, stream(f, l, others, i, 1));
    }
    rg_scale_by(f, y, 1.0f / (float)n);
    rg_rmsnorm(f, y, y, l->w[W_FINAL_NORM], c->norm_eps);
}

const rg_arch rg_arch_gemma3n = {
    .hf_name = "Gemma3nForCausalLM", .hf_type = "gemma3n_text", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .weights = weights, RG_KIND(layer_weights, keep_kv, block),
    .embed = embed, .norm = norm, .width = width, .shown = shown, .ignored = gemma_ignored,
};
