/* falcon_h1.c -- Falcon-H1 (TII 2025): in each layer Mamba-2 and attention side by side, both of the same norm, then an
 * MLP; with multipliers everywhere.
 *
 * GGUF has no keys for the multipliers, but the products in its weights. */
#include <string.h>

#include "model/arch/ssd.h"

typedef struct settings {
    ssd_settings ssd; /* first */
    float embedding, head, attn_in, attn_out, key, ssd_in, ssd_out, gate, down;
} settings;

#define own(c) RG_OWN(c, settings)

/* h times a factor. */
static rg_act *times(rg_fwd *f, rg_act *h, float factor)
{
    if (factor == 1.0f)
        return h;
    rg_act *y = rg_act_new(f, "scaled", h->cols);

    rg_activate(f, y, h, RG_IDENTITY);
    rg_scale_by(f, y, factor);
    return y;
}

static rg_act *gated_mlp(rg_fwd *f, const rg_layer *l, const rg_act *h); /* gate_proj times a factor */

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const settings *s = own(l->c);
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = mamba2(f, l, times(f, h, s->ssd_in)); /* [rows, inner width] */
    const qkv p = project(
        f, l, times(f, h, s->attn_in)); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                                        /* [rows, n_heads * head_dim] */
    add_scaled(f, x, y, l->w[W_SSD_OUT], l->w[W_SSD_OUT_BIAS], s->ssd_out); /* x += ssd_out out_proj y */
    add_scaled(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS], s->attn_out);       /* x += attn_out o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    add_scaled(f, x, gated_mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS], s->down);
}

static rg_act *gated_mlp(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    rg_act *gate = rg_act_new(f, "gate", l->c->ffn_dim), *up = rg_act_new(f, "up", l->c->ffn_dim);

    rg_linear3(f, (rg_act *const[]){ gate, up, NULL }, h,
               (const rg_weight *const[]){ l->w[W_GATE_PROJ], l->w[W_UP_PROJ], NULL },
               (const rg_weight *const[]){ l->w[W_GATE_BIAS], l->w[W_UP_BIAS], NULL });
    if (own(l->c)->gate != 1.0f)
        rg_scale_by(f, gate, own(l->c)->gate);
    rg_act_mul(f, up, gate, up, RG_SILU);
    return up;
}

#define KEY_TIMES(field, name) { RG_OWN_AT(settings, field), KEY_FLOAT, name, NULL, 1 }

static const rg_key keys[] = {
    KEYS_GQA(8192, 32, 8, 0), KEY_FFN(14336), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
    KEY_SSD_HEADS("mamba_n_heads", 128), KEY_SSD_STATE("mamba_d_state", 256), KEY_SSD_GROUPS("mamba_n_groups", 1),
    KEY_SSD_CONV("mamba_d_conv", 4), KEY_SSD_CONV_BIAS("mamba_conv_bias"), KEY_SSD_BIAS("mamba_proj_bias"),
    { RG_OWN_AT(settings, ssd.norm_before_gate), KEY_BOOL, "mamba_norm_before_gate", NULL, 1 },
    KEY_TIMES(embedding, "embedding_multiplier"), KEY_TIMES(head, "lm_head_multiplier"),
    KEY_TIMES(attn_in, "attention_in_multiplier"), KEY_TIMES(attn_out, "attention_out_multiplier"),
    KEY_TIMES(key, "key_multiplier"), KEY_TIMES(ssd_in, "ssm_in_multiplier"), KEY_TIMES(ssd_out, "ssm_out_multiplier"),
};

static const char *const harmless[] = { SSD_HARMLESS, "mamba_use_mlp", "attn_layer_indices", NULL };

/* n factors in a list, where there is one. */
static bool read_factors(const rg_checkpoint *ckpt, const char *key, float *out, size_t n, rg_error *err)
{
    const float *given = NULL;
    size_t n_given = 0;

    if (rg_meta_floats(ckpt, key, &given, &n_given, err) < 0)
        return false;
    if (given && n_given != n)
        return rg_fail(err, RG_E_INPUT, "%s: %s has %zu entries and not %zu", rg_checkpoint_path(ckpt), key, n_given,
                       n);
    if (given)
        memcpy(out, given, n * sizeof *out);
    return true;
}

static bool finish_mixer(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const ssd_width width = { "mamba_d_head", 0, "mamba_d_ssm", "mamba_expand" };
    ssd_settings *s = &RG_OWN_EDIT(c, settings)->ssd;
    bool norm = false, out_bias = s->in_bias;

    if (!finish_ssd(c, ckpt, &width, err))
        return false;
    if (c->from_gguf) {
        norm = any_layer_has(c, ckpt, "ssm_norm.weight");
    } else if (rg_config_flag(ckpt, "mamba_rms_norm", &norm, err) < 0 ||
               rg_config_flag(ckpt, "projectors_bias", &out_bias, err) < 0 ||
               !read_factors(ckpt, "ssm_multipliers", s->times, SSD_PARTS, err)) {
        return false;
    }
    s->norm = norm;
    s->norm_before_gate = s->norm_before_gate && norm && !c->from_gguf;
    s->out_bias = out_bias;
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);
    float mlp[2] = { 1, 1 };

    finish_optional(c, ckpt);
    c->o_bias = c->attn_bias;
    if ((!c->from_gguf && !read_factors(ckpt, "mlp_multipliers", mlp, 2, err)) || !finish_heads(c, err) ||
        !finish_rope(c, ckpt, 1e5, GGUF_HALVES, err) || !finish_mixer(c, ckpt, err) || !require_silu(ckpt, err))
        return false;
    s->gate = mlp[0];
    s->down = mlp[1];
    c->attn_scale *= (double)s->key;
    c->embed_scale = (double)s->embedding;
    c->logit_scale = s->head;
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const settings *s = own(c);
    const char *what = c->attn_bias || c->mlp_bias                      ? "biases"
                       : c->tie_embeddings && s->embedding != s->head ? "a tied head with a multiplier of its own"
                                                                        : NULL;

    if (what)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no form for %s of this architecture", what);
    return put_gguf_int(c, w, "attention.value_length", c->head_dim, err) && put_gguf_rope(c, w, err) &&
           put_gguf_ssd(c, w, err);
}

/* ---- weights: for GGUF, times their multipliers ------------------------------------------------------------------ */

#define TIMES(name, formula)                                                                                           \
    static void name(const rg_config *c, const float *src, float *dst, int64_t n)                                      \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            dst[i] = src[i] * formula;                                                                               \
    }
TIMES(times_embedding, own(c)->embedding)
TIMES(times_head, own(c)->head)
TIMES(times_attn_in, own(c)->attn_in)
TIMES(times_key, own(c)->key * own(c)->attn_in)
TIMES(times_attn_out, own(c)->attn_out)
TIMES(times_ssd_out, own(c)->ssd_out)
TIMES(times_gate, own(c)->gate)
TIMES(times_down, own(c)->down)

static void times_ssd_in(const rg_config *c, const float *src, float *dst, int64_t n)
{
    const int64_t inner = SSD_INNER(c, 0), groups = (SSD_CHANNELS(c, 0) - inner) / 2;
    const int64_t rows[SSD_PARTS] = { inner, inner, groups, groups, SSD_HEADS(c, 0) }, cols = n / SSD_IN(c, 0);

    for (int64_t part = 0, at = 0, end = 0; part < SSD_PARTS; part++)
        for (end += rows[part] * cols; at < end; at++)
            dst[at] = src[at] * own(c)->ssd_in * own(c)->ssd.times[part];
}

#define FOLDED(role, hf, gguf_name, rows, cols, split, times)                                                          \
    { role, hf, gguf_name, { rows, cols }, split, .stored = { rows, cols }, .to_gguf = times }

static const rg_weight_spec weights[] = {
    FOLDED(W_EMBED_TOKENS, "model.embed_tokens", "token_embd", VOCAB, DIM, SPLIT_ROWS, times_embedding),
    { W_FINAL_NORM, "model.final_layernorm", "output_norm", { DIM } },
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .stored = { VOCAB, DIM }, .to_gguf = times_head,
      .when = when_untied },
    WEIGHT_ROPE_FREQS, { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },
    { W_FFN_NORM, "pre_ff_layernorm", "ffn_norm", { DIM }, .bare = true },
    FOLDED(W_Q_PROJ, "self_attn.q_proj", "attn_q", Q_DIM, DIM, SPLIT_ROWS, times_attn_in),
    FOLDED(W_K_PROJ, "self_attn.k_proj", "attn_k", KV_DIM, DIM, SPLIT_ROWS, times_key),
    FOLDED(W_V_PROJ, "self_attn.v_proj", "attn_v", KV_DIM, DIM, SPLIT_ROWS, times_attn_in),
    FOLDED(W_O_PROJ, "self_attn.o_proj", "attn_output", DIM, Q_DIM, SPLIT_COLS, times_attn_out),
    { W_Q_BIAS, "self_attn.q_proj.bias", "attn_q.bias", { Q_DIM }, SPLIT_ROWS, .when = when_attn_bias },
    { W_K_BIAS, "self_attn.k_proj.bias", "attn_k.bias", { KV_DIM }, SPLIT_ROWS, .when = when_attn_bias },
    { W_V_BIAS, "self_attn.v_proj.bias", "attn_v.bias", { KV_DIM }, SPLIT_ROWS, .when = when_attn_bias },
    { W_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", { DIM }, .when = when_o_bias },
    FOLDED(W_SSD_IN, "mamba.in_proj", "ssm_in", SSD_IN, DIM, SPLIT_ROWS, times_ssd_in),
    FOLDED(W_SSD_OUT, "mamba.out_proj", "ssm_out", DIM, SSD_INNER, SPLIT_COLS, times_ssd_out),
    WEIGHTS_SSD_INSIDE("mamba."),
    FOLDED(W_GATE_PROJ, "feed_forward.gate_proj", "ffn_gate", FFN_DIM, DIM, SPLIT_ROWS, times_gate),
    { W_UP_PROJ, "feed_forward.up_proj", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS },
    FOLDED(W_DOWN_PROJ, "feed_forward.down_proj", "ffn_down", DIM, FFN_DIM, SPLIT_COLS, times_down),
    { W_GATE_BIAS, "feed_forward.gate_proj.bias", "ffn_gate.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_mlp_bias },
    { W_UP_BIAS, "feed_forward.up_proj.bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_mlp_bias },
    { W_DOWN_BIAS, "feed_forward.down_proj.bias", "ffn_down.bias", { DIM }, .when = when_mlp_bias },
    { 0 },
};

/* K/V as well as what the mixer keeps. */
static void keep(const rg_config *c, int layer, rg_keep *out)
{
    rg_keep kv;

    keep_kv(c, layer, &kv);
    keep_ssd(c, layer, out);
    out->kv = kv.kv;
    out->sight = kv.sight;
}

const rg_arch rg_arch_falcon_h1 = {
    .hf_name = "FalconH1ForCausalLM", .hf_type = "falcon_h1", .gguf_name = "falcon-h1", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = weights,
    RG_KIND(layer_weights, keep, block), .put_gguf = put_gguf,
};
