/* s4.c -- language models of S4 (Gu et al. 2022a) and S4D (2022b) layers: x += GLU(W gelu(y) + b), y a state space of
 * its own for every channel over x, or over its norm; else the norm comes last.  No norm before the head.
 *
 * The keys are those of no library.  Names of weights: of the standalone s4d.py for `mode` s4d, of S4Block for dplr. */
#include "model/arch/s4.h"

#include <stdio.h>

enum { DIAGONAL, FULL }; /* kinds of layer */

#define own(c) RG_OWN(c, s4_settings)

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const int dim = l->c->dim;
    const bool prenorm = own(l->c)->prenorm;
    rg_act *z = prenorm ? rg_act_new(f, "norm", dim) : x, *y = rg_act_new(f, "state_space", dim);

    if (prenorm)
        rg_layernorm(f, z, x, l->w[W_S4_NORM], l->w[W_S4_NORM_BIAS], l->c->norm_eps);
    rg_state_space(f, y, z, l->w[W_S4_MODES], l->w[W_S4_D], &l->buffer[0]); /* each channel by itself: [rows, dim] */
    rg_activate(f, y, y, RG_GELU);
    rg_act *glu = linear(f, "glu", y, l->w[W_S4_GLU], l->w[W_S4_GLU_BIAS]); /* [rows, 2 dim] */
    rg_act *half = rg_act_view(f, "glu_value", glu, 0, dim);
    rg_act_mul(f, half, rg_act_view(f, "glu_gate", glu, dim, dim), half, RG_SIGMOID);
    rg_add_to(f, x, half); /* x += value * sigmoid(gate) */
    if (!prenorm)
        rg_layernorm(f, x, x, l->w[W_S4_NORM], l->w[W_S4_NORM_BIAS], l->c->norm_eps);
}

static SIZE(D_STATE_HALF, own(c)->d_state / 2)
static SIZE(N_SSM, own(c)->n_ssm)
static SIZE(SSM_STATE_2, (int64_t)own(c)->n_ssm * own(c)->d_state)
static SIZE(CHANNEL_STATE_2, (int64_t)c->dim * own(c)->d_state)
static SIZE(MODE_ROWS, (int64_t)(own(c)->d_state / 2) * (own(c)->full ? RG_FULL_MODE_ROWS : RG_MODE_ROWS))
static SIZE(GLU_DIM, 2 * (int64_t)c->dim)
static SIZE(TWO, 2)

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, NULL, NULL, 1048576 },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "layer_norm_eps", NULL, 1e-5 },
    { RG_OWN_AT(s4_settings, d_state), KEY_INT, "d_state", NULL, 64 },
    { RG_OWN_AT(s4_settings, n_ssm), KEY_INT, "n_ssm", NULL, 1 },
    { RG_OWN_AT(s4_settings, l_kernel), KEY_INT, "l_kernel", NULL, 0 },
    { RG_OWN_AT(s4_settings, prenorm), KEY_BOOL, "prenorm", NULL, 0 },
};

static const char *const harmless[] = { "init", "init_noise", "dt_min", "dt_max", NULL };
static const char *const ignored[] = { ".kernel.l_kernel", NULL }; /* read by finish_length */

static bool finish_mode(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    s4_settings *s = RG_OWN_EDIT(c, s4_settings);
    int mode, rule;

    if (!rg_config_choice(ckpt, "mode", (const char *const[]){ "s4d", "dplr", NULL }, &mode, err) ||
        !rg_config_choice(ckpt, "disc", (const char *const[]){ "zoh", "bilinear", NULL }, &rule, err) ||
        !require_choice(ckpt, "activation", (const char *const[]){ "gelu", NULL }, err) ||
        !require_choice(ckpt, "final_act", (const char *const[]){ "glu", NULL }, err))
        return false;
    s->full = mode != 0;
    s->bilinear = rule < 0 ? s->full : rule == 1;
    if (s->full && !s->bilinear)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: disc is 'zoh', which is not supported with mode 'dplr'",
                       rg_checkpoint_path(ckpt));
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = s->full ? FULL : DIAGONAL;
    return true;
}

/* Every layer stores, beside its weights, the length by which its C was multiplied. */
static bool finish_length(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char name[64];

    for (int i = 0; own(c)->full && i < c->n_layers; i++) {
        snprintf(name, sizeof name, "s4_layers.%d.layer.kernel.l_kernel", i);
        const rg_tensor *t = rg_checkpoint_find(ckpt, name);
        int64_t length = own(c)->l_kernel;

        if (!t)
            continue;
        if (t->type != RG_I64 || rg_tensor_count(t) != 1)
            return rg_fail(err, RG_E_INPUT, "%s: tensor '%s' is not one i64", rg_checkpoint_path(ckpt), name);
        if (!rg_tensor_read(ckpt, t, 0, &length, sizeof length, err))
            return false;
        if (length != own(c)->l_kernel)
            return rg_fail(err, RG_E_INPUT, "%s: l_kernel is %d in the config and %lld in layer %d",
                           rg_checkpoint_path(ckpt), own(c)->l_kernel, (long long)length, i);
    }
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const s4_settings *s = own(c);

    if (!finish_mode(c, ckpt, err) || !finish_length(c, ckpt, err))
        return false;
    if (s->d_state < 2 || s->d_state % 2 || s->d_state > 8192 || c->dim > INT32_MAX / 8192 || s->n_ssm < 1 ||
        c->dim % s->n_ssm)
        return rg_fail(err, RG_E_INPUT, "%s: %d channels with states of %d, %d of them different: out of range",
                       rg_checkpoint_path(ckpt), c->dim, s->d_state, s->n_ssm);
    return true;
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "encoder", NULL, { VOCAB, DIM }, SPLIT_ROWS },
    { W_LM_HEAD, "decoder", NULL, { VOCAB, DIM }, SPLIT_ROWS },
    { W_S4_HEAD_BIAS, "decoder.bias", NULL, { VOCAB }, SPLIT_ROWS },
    { 0 },
};

/* What both kinds have, after their own. */
#define AROUND                                                                                                         \
    { W_S4_NORM, "/norms.#", NULL, { DIM } }, { W_S4_NORM_BIAS, "/norms.#.bias", NULL, { DIM } },                      \
    { W_S4_GLU, "output_linear.0", NULL, { GLU_DIM, DIM }, SPLIT_ROWS },                                               \
    { W_S4_GLU_BIAS, "output_linear.0.bias", NULL, { GLU_DIM }, SPLIT_ROWS },                                          \
    { W_S4_MODES, "modes", NULL, { MODE_ROWS, DIM }, .table = true, .derive = s4_modes }

static const rg_weight_spec diagonal_weights[] = {
    { W_S4_LOG_DT, "kernel.log_dt", NULL, { DIM } },
    { W_S4_A_REAL, "kernel.log_A_real", NULL, { DIM, D_STATE_HALF }, .table = true },
    { W_S4_A_IMAG, "kernel.A_imag", NULL, { DIM, D_STATE_HALF }, .table = true },
    { W_S4_C, "kernel.C", NULL, { CHANNEL_STATE_2 }, .load = load_flat,
      .stored = { DIM, D_STATE_HALF, TWO } },
    { W_S4_D, "D", NULL, { DIM } },
    AROUND, { 0 },
};

static const rg_weight_spec full_weights[] = {
    { W_S4_LOG_DT, "layer.kernel.inv_dt", NULL, { DIM } },
    { W_S4_A_REAL, "layer.kernel.A_real", NULL, { N_SSM, D_STATE_HALF }, .table = true },
    { W_S4_A_IMAG, "layer.kernel.A_imag", NULL, { N_SSM, D_STATE_HALF }, .table = true },
    { W_S4_B, "layer.kernel.B", NULL, { SSM_STATE_2 }, .load = load_flat,
      .stored = { N_SSM, D_STATE_HALF, TWO } },
    { W_S4_P, "layer.kernel.P", NULL, { SSM_STATE_2 }, .load = load_flat,
      .stored = { N_SSM, D_STATE_HALF, TWO } },
    { W_S4_C, "layer.kernel.C", NULL, { CHANNEL_STATE_2 }, .load = load_flat,
      .stored = { DIM, D_STATE_HALF, TWO } },
    { W_S4_D, "layer.D", NULL, { DIM } },
    AROUND, { 0 },
};

static void keep(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    *out = (rg_keep){ .n_buffers = 1, .shared_with = -1,
                      .buffer = { rg_state_space_state("modes", c->dim, own(c)->d_state / 2) } };
}

/* There is none. */
static void norm(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x)
{
    (void)f, (void)l;
    RG_ASSERT(y == x);
}

static void head(rg_fwd *f, const rg_layer *l, rg_act *logits, const rg_act *h)
{
    rg_linear(f, logits, h, l->w[W_LM_HEAD], l->w[W_S4_HEAD_BIAS]);
}

static const rg_layer_kind kinds[] = { [DIAGONAL] = { diagonal_weights, keep, block },
                                       [FULL] = { full_weights, keep, block } };

const rg_arch rg_arch_s4 = {
    .hf_name = "S4ForCausalLM", .hf_type = "s4_lm", .hf_prefix = "s4_layers.", RG_KEYS(keys),
    .own_bytes = sizeof(s4_settings), .finish = finish, .weights = weights, RG_KINDS(kinds), .norm = norm, .head = head,
    .ignored = ignored, .harmless = harmless,
};
