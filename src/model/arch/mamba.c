/* mamba.c -- Mamba (Gu & Dao 2023): a norm, then in_proj, a short causal convolution, and the selective scan.
 *
 * The seam wants A transposed to [d_state, d_inner]; Hugging Face stores its logarithm, GGUF -exp of that. */
#include <math.h>

#include "model/arch/hybrid.h"
#include "model/arch/mamba.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *y = mamba1(f, l, normed(f, l, x, W_ATTN_NORM)); /* [rows, d_inner] */

    rg_linear_add(f, x, y, l->w[W_OUT_PROJ], l->w[W_OUT_BIAS]); /* x += out_proj y */
}

#define own(c) RG_OWN(c, mamba_settings)

SIZE(D_INNER, own(c)->d_inner)
SIZE(D_INNER_2, 2 * (int64_t)own(c)->d_inner)
SIZE(D_STATE, own(c)->d_state)
SIZE(D_CONV, own(c)->d_conv)
SIZE(DT_RANK, own(c)->dt_rank)
SIZE(X_PROJ_DIM, (int64_t)own(c)->dt_rank + 2 * (int64_t)own(c)->d_state)

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, NULL, "context_length", 1048576 },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-5 },
    { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_word_embeddings", NULL, 1 },
    { RG_OWN_AT(mamba_settings, d_state), KEY_INT, "state_size", "ssm.state_size", 16 },
    { RG_OWN_AT(mamba_settings, d_conv), KEY_INT, "conv_kernel", "ssm.conv_kernel", 4 },
    { RG_OWN_AT(mamba_settings, d_inner), KEY_INT, "intermediate_size", "ssm.inner_size", 0 },
    { RG_OWN_AT(mamba_settings, conv_bias), KEY_BOOL, "use_conv_bias", NULL, 1 },
    { RG_OWN_AT(mamba_settings, proj_bias), KEY_BOOL, "use_bias", NULL, 0 },
};

static const char *const harmless[] = {
    "rescale_prenorm_residual", "residual_in_fp32", "time_step_floor", "time_step_init_scheme", "time_step_max",
    "time_step_min", "time_step_scale", "use_associative_scan", "use_mambapy", "fused_add_norm", "rms_norm", "ssm_cfg.",
    "d_model", "n_layer", "pad_vocab_size_multiple", "d_inner", NULL,
};

bool finish_mamba(rg_config *c, const rg_checkpoint *ckpt, const char *expand, const char *rank, rg_error *err)
{
    mamba_settings *s = RG_OWN_EDIT(c, mamba_settings);
    char key[128];
    int64_t times = 2, dt_rank = ((int64_t)c->dim + 15) / 16;

    if (c->from_gguf) {
        if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "ssm.time_step_rank", key), 1, INT32_MAX / 4, &dt_rank, err) < 0)
            return false;
        s->conv_bias = !rg_checkpoint_n_tensors(ckpt) || any_layer_has(c, ckpt, "ssm_conv1d.bias");
    } else {
        bool word = rg_meta_type_of(ckpt, rank) == RG_META_STRING; /* "auto" */
        if (rg_config_int(ckpt, expand, 1, 1024, &times, err) < 0 ||
            (word && !require_choice(ckpt, rank, (const char *const[]){ "auto", NULL }, err)) ||
            (!word && rg_config_int(ckpt, rank, 1, INT32_MAX / 4, &dt_rank, err) < 0) || !require_silu(ckpt, err))
            return false;
    }
    if (!s->d_inner)
        s->d_inner = times * c->dim <= INT32_MAX / 8 ? (int)(times * c->dim) : 0;
    s->dt_rank = (int)dt_rank;
    if (s->d_inner < 1 || s->d_inner > INT32_MAX / 8 || s->d_state < 1 || s->d_state > 4096 || s->d_conv < 1 ||
        s->d_conv > 64)
        return rg_fail(err, RG_E_INPUT, "%s: inner width %d, state size %d, convolution %d: out of range",
                       rg_checkpoint_path(ckpt), s->d_inner, s->d_state, s->d_conv);
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];

    if (c->from_gguf) {
        if (!require_false(ckpt, rg_gguf_key(ckpt, "ssm.dt_b_c_rms", key), err))
            return false;
        c->tie_embeddings = !rg_checkpoint_find(ckpt, "output.weight");
        for (const char *const *k = (const char *const[]){ "feed_forward_length", "attention.head_count", NULL }; *k;
             k++)
            rg_meta_understand(ckpt, rg_gguf_key(ckpt, *k, key));
    }
    return finish_mamba(c, ckpt, "expand", "time_step_rank", err);
}

WHEN(when_conv_bias, own(c)->conv_bias)
WHEN(when_proj_bias, own(c)->proj_bias)

void load_a(const rg_config *c, const float *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i % own(c)->d_state * own(c)->d_inner + i / own(c)->d_state] = src[i];
}

void load_a_log(const rg_config *c, const float *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i % own(c)->d_state * own(c)->d_inner + i / own(c)->d_state] = (float)-exp((double)src[i]);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_int(c, w, "feed_forward_length", 0, err) && put_gguf_int(c, w, "attention.head_count", 0, err) &&
           put_gguf_int(c, w, "ssm.time_step_rank", own(c)->dt_rank, err) &&
           put_gguf_bool(c, w, "ssm.dt_b_c_rms", false, err);
}

static const rg_weight_spec weights[] = {
    WEIGHTS_OUTER("backbone.embeddings", "backbone.norm_f", "lm_head"),
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "norm", "attn_norm", { DIM } },
    WEIGHTS_MAMBA("mixer."), { 0 },
};

/* ---- Mamba's mixer, a part that other families can use ---- */

void mamba_keep(const rg_config *c, rg_keep *out)
{
    const mamba_settings *o = own(c);

    *out = (rg_keep){ .n_buffers = MAMBA_BUFFERS,
                      .buffer = { [MAMBA_TAIL] = rg_conv_tail("conv_tail", o->d_inner, o->d_conv),
                                  [MAMBA_STATE] = rg_scan_state("scan_state", o->d_inner, o->d_state) },
                      .shared_with = -1 };
}

/* dt, B and C, each with its norm, in place. */
static void norm_parts(rg_fwd *f, const rg_layer *l, const rg_act *dbc)
{
    const mamba_settings *o = own(l->c);
    rg_act *dt = rg_act_view(f, "dt_normed", dbc, 0, o->dt_rank);
    rg_act *b = rg_act_view(f, "b", dbc, o->dt_rank, o->d_state);
    rg_act *c = rg_act_view(f, "c", dbc, o->dt_rank + o->d_state, o->d_state);

    rg_rmsnorm(f, dt, dt, l->w[W_DT_NORM], l->c->norm_eps);
    rg_rmsnorm(f, b, b, l->w[W_B_NORM], l->c->norm_eps);
    rg_rmsnorm(f, c, c, l->w[W_C_NORM], l->c->norm_eps);
}

rg_act *mamba1(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const mamba_settings *o = own(l->c);
    rg_act *xz = rg_act_new(f, "in_proj", 2 * o->d_inner);
    rg_act *u = rg_act_new(f, "conv", o->d_inner);
    rg_act *dbc = rg_act_new(f, "x_proj", o->dt_rank + 2 * o->d_state);
    rg_act *dt = rg_act_new(f, "dt", o->d_inner);
    rg_act *y = rg_act_new(f, "scan", o->d_inner);

    rg_linear(f, xz, h, l->w[W_IN_PROJ], l->w[W_IN_BIAS]);
    rg_conv(f, u, rg_act_view(f, "conv_in", xz, 0, o->d_inner), l->w[W_CONV], l->w[W_CONV_BIAS],
            &l->buffer[MAMBA_TAIL], RG_SILU);
    rg_linear(f, dbc, u, l->w[W_X_PROJ], NULL);
    if (l->w[W_DT_NORM])
        norm_parts(f, l, dbc);
    rg_linear(f, dt, rg_act_view(f, "dt_low", dbc, 0, o->dt_rank), l->w[W_DT_PROJ], l->w[W_DT_BIAS]);
    rg_scan(f, y, u, dt, rg_act_view(f, "bc", dbc, o->dt_rank, 2 * o->d_state),
            rg_act_view(f, "z", xz, o->d_inner, o->d_inner), l->w[W_A], l->w[W_D], &l->buffer[MAMBA_STATE]);
    return y;
}

/* ---- the architecture ---- */

static void keep(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    mamba_keep(c, out);
}

const rg_arch rg_arch_mamba = {
    .hf_name = "MambaForCausalLM", .hf_type = "mamba", .gguf_name = "mamba", .hf_prefix = "backbone.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(mamba_settings), .finish = finish, .harmless = harmless, .weights = weights,
    RG_KIND(layer_weights, keep, block), .put_gguf = put_gguf,
};
