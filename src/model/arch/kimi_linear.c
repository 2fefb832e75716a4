/* kimi_linear.c -- Kimi Linear (Moonshot AI, 2025): Kimi delta attention in most layers, latent attention without
 * positions in the others; an MLP in the first layers, experts beside a shared one in the rest.
 *
 * Kimi delta attention is the gated delta rule with a decay for each element of a key; q, k and v pass short
 * convolutions of their own, decay and output gate come through matrices of low rank. */
#include <math.h>
#include <stdio.h>

#include "model/arch/hybrid.h"
#include "model/arch/mla.h"

typedef struct kimi_settings {
    mla_settings mla; /* first */
    int heads, dim, taps; /* of delta attention */
} kimi_settings;

enum {
    W_Q_TAPS = W_MLA_END, W_K_TAPS, W_V_TAPS, W_DECAY_A, W_DECAY_B, W_GATE_A, W_GATE_B, W_BETA, W_DT_BIAS, W_RATE,
    W_HEAD_NORM,
};

#define own(c) RG_OWN(c, kimi_settings)

enum { Q_TAIL, K_TAIL, V_TAIL, STATE, BUFFERS };

static rg_act *delta_attention(rg_fwd *f, const rg_layer *l, const rg_act *h);

static void block_delta(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = delta_attention(f, l, h);         /* [rows, linear heads * head_dim] */
    rg_linear_add(f, x, y, l->w[W_O_PROJ], NULL); /* x += o_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static void block_latent(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *a = latent_attention(f, l, h);                  /* without positions: [rows, n_heads * v_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

/* b (a h), through the rank of a. */
static rg_act *low_rank(rg_fwd *f, const char *name, const rg_act *h, const rg_weight *a, const rg_weight *b)
{
    return linear(f, name, linear(f, "low", h, a, NULL), b, NULL);
}

/* Before o_proj, of the normed input h. */
static rg_act *delta_attention(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    static const char *const names[] = { "q_conv", "k_conv", "v_conv" };
    const kimi_settings *o = own(l->c);
    const int all = o->heads * o->dim;
    const qkv p = project(f, l, h);
    rg_act *const in[] = { p.q, p.k, p.v }, *u[3], *y = rg_act_new(f, "delta", all);

    for (int i = 0; i < 3; i++) {
        u[i] = rg_act_new(f, names[i], all);
        rg_conv(f, u[i], in[i], l->w[W_Q_TAPS + i], NULL, &l->buffer[Q_TAIL + i], RG_SILU);
    }
    rg_l2norm(f, u[0], u[0], o->dim, 1e-6f);
    rg_l2norm(f, u[1], u[1], o->dim, 1e-6f);
    rg_act *decay = low_rank(f, "decay", h, l->w[W_DECAY_A], l->w[W_DECAY_B]);
    rg_act *beta = linear(f, "beta", h, l->w[W_BETA], NULL);
    rg_decay(f, decay, NULL, decay,
             &(rg_decay_params){ .bias = l->w[W_DT_BIAS], .act = RG_SOFTPLUS, .rate = l->w[W_RATE] });
    rg_activate(f, beta, beta, RG_SIGMOID);
    rg_linear_attention(f, y,
                        &(rg_linear_attention_params){ .n_heads = o->heads,
                                                       .k_dim = o->dim,
                                                       .v_dim = o->dim,
                                                       .scale = 1.0f / sqrtf((float)o->dim),
                                                       .delta = true,
                                                       .q = u[0],
                                                       .k = u[1],
                                                       .v = u[2],
                                                       .decay = decay,
                                                       .beta = beta },
                        &l->buffer[STATE]);
    rg_rmsnorm(f, y, y, l->w[W_HEAD_NORM], l->c->norm_eps);
    rg_act_mul(f, y, low_rank(f, "gate", h, l->w[W_GATE_A], l->w[W_GATE_B]), y, RG_SIGMOID);
    return y;
}

static SIZE(KDA_DIM, (int64_t)own(c)->heads * own(c)->dim)
static SIZE(KDA_HEADS, own(c)->heads)
static SIZE(KDA_HEAD, own(c)->dim)
static SIZE(KDA_TAPS, own(c)->taps)

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", 1048576,
      { "model_max_length" } },
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", 32 },
    KEYS_MLA_HEADS(0),
    { RG_OWN_AT(kimi_settings, mla.kv_lora_rank), KEY_INT, "kv_lora_rank", "attention.kv_lora_rank", 512 },
    { RG_OWN_AT(kimi_settings, mla.rope_dim), KEY_INT, "qk_rope_head_dim", "rope.dimension_count", 64 },
    KEY_FFN(9216), KEY_RMS_EPS(1e-5), KEY_TIED(0),
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", "attention.value_length", 0 },
    { offsetof(rg_config, n_dense_layers), KEY_INT, "first_k_dense_replace", "leading_dense_block_count", 0 },
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", 1024 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_experts", "expert_count", 256 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_token", "expert_used_count", 8,
      { "num_experts_per_tok" } },
    { offsetof(rg_config, n_shared_experts), KEY_INT, "num_shared_experts", "expert_shared_count", 1 },
    { offsetof(rg_config, routing.scale), KEY_FLOAT, "routed_scaling_factor", "expert_weights_scale", 1 },
    { offsetof(rg_config, routing.n_groups), KEY_INT, "num_expert_group", "expert_group_count", 0 },
    { offsetof(rg_config, routing.n_groups_used), KEY_INT, "topk_group", NULL, 1 },
    { offsetof(rg_config, routing.renormalize), KEY_BOOL, "moe_renormalize", NULL, 1 },
    { RG_OWN_AT(kimi_settings, taps), KEY_INT, "linear_conv_kernel_dim", "ssm.conv_kernel", 4,
      { "linear_attn_config.short_conv_kernel_size" } },
    { RG_OWN_AT(kimi_settings, dim), KEY_INT, "linear_head_dim", "kda.head_dim", 128,
      { "linear_attn_config.head_dim" } },
    { RG_OWN_AT(kimi_settings, heads), KEY_INT, "linear_num_heads", NULL, 0, { "linear_attn_config.num_heads" } },
};

static const char *const harmless[] = {
    "qk_head_dim", "rope_theta", "rope_scaling", "rope_parameters.",
    "num_nextn_predict_layers", "use_grouped_topk", NULL,
};

/* ---- settings ---------------------------------------------------------------------------------------------------- */

/* config.json's list of layers, counted from 1, that are of a kind; absent: none is. */
static bool read_numbers(rg_config *c, const rg_checkpoint *ckpt, const char *key, int kind, rg_error *err)
{
    const int32_t *layers = NULL;
    size_t n = 0;

    if (rg_meta_ints(ckpt, key, &layers, &n, err) < 0)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (layers[i] < 1 || layers[i] > c->n_layers)
            return rg_fail(err, RG_E_INPUT, "%s: %s names layer %d of %d", rg_checkpoint_path(ckpt), key, layers[i],
                           c->n_layers);
        c->layer[layers[i] - 1].kind = kind;
    }
    return true;
}

/* Which layers attend. */
static bool finish_kinds(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const kind_word words[] = {
        { "linear_attention", HYBRID_OTHER }, { "full_attention", HYBRID_ATTENTION }, { 0 },
    };
    int got;

    if (c->from_gguf) {
        bool ok = read_gguf_kv_heads(c, ckpt, err);
        c->n_kv_heads = 0; /* of the absorbed form */
        return ok;
    }
    got = read_kinds(c, ckpt, "layer_types", words, err);
    return got > 0 ||
           (!got && read_numbers(c, ckpt, "linear_attn_config.kda_layers", HYBRID_OTHER, err) &&
            read_numbers(c, ckpt, "linear_attn_config.full_attn_layers", HYBRID_ATTENTION, err));
}

/* Which layers have experts: as a list says, or every moe_layer_freq-th after the first n_dense_layers. */
static bool finish_experts(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const words[] = { "dense", "sparse", NULL };
    char key[48];
    int64_t frequency = 1;
    size_t n = 0;
    int listed = c->from_gguf ? 0 : rg_meta_length(ckpt, "mlp_layer_types", &n, err), first = -1, which;

    if (listed < 0 || (!c->from_gguf && rg_config_int(ckpt, "moe_layer_freq", 1, INT32_MAX, &frequency, err) < 0))
        return false;
    if (listed && !require_length(c, ckpt, "mlp_layer_types", n, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        bool sparse = i >= c->n_dense_layers && i % frequency == 0;

        snprintf(key, sizeof key, "mlp_layer_types.%d", i);
        if (listed && !rg_config_choice(ckpt, key, words, &which, err))
            return false;
        sparse = listed ? which == 1 : sparse;
        first = sparse && first < 0 ? i : first;
        c->layer[i].kind += sparse ? HYBRID_EXPERTS : 0;
    }
    c->n_dense_layers = first < 0 ? c->n_layers : first;
    return true;
}

static bool finish_scores(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];
    int64_t used = c->routing.n_groups_used, score = 2;

    if (c->from_gguf &&
        (rg_meta_int(ckpt, rg_gguf_key(ckpt, "expert_group_used_count", key), 0, 1024, &used, err) < 0 ||
         rg_meta_int(ckpt, rg_gguf_key(ckpt, "expert_gating_func", key), 2, 2, &score, err) < 0))
        return false;
    if (!require_choice(ckpt, "moe_router_activation_func", (const char *const[]){ "sigmoid", NULL }, err))
        return false;
    c->routing.n_groups = c->routing.n_groups > 1 ? c->routing.n_groups : 0;
    c->routing.n_groups_used = c->routing.n_groups ? (int)used : 0;
    c->routing.groups_by_two = c->routing.n_groups > 0;
    c->routing.score = RG_SCORE_SIGMOID;
    c->routing.sum_eps = 1e-20f;
    return c->n_dense_layers == c->n_layers || finish_routing(c, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int most = 1 << 14;
    kimi_settings *s = RG_OWN_EDIT(c, kimi_settings);
    bool no_rope = true;

    if (!finish_mla(c, ckpt, err) || !finish_kinds(c, ckpt, err) || !finish_experts(c, ckpt, err) ||
        !finish_scores(c, ckpt, err) || !require_silu(ckpt, err) || !require_false(ckpt, "attention_bias", err))
        return false;
    if (!c->from_gguf && rg_config_flag(ckpt, "mla_use_nope", &no_rope, err) < 0)
        return false;
    if (!no_rope)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: mla_use_nope is false, which is not supported",
                       rg_checkpoint_path(ckpt));
    c->tie_embeddings = c->from_gguf ? !rg_checkpoint_find(ckpt, "output.weight") : c->tie_embeddings;
    c->attn_scale = 1.0 / __builtin_sqrt((double)(s->mla.nope_dim + s->mla.rope_dim));
    s->heads = s->heads ? s->heads : c->n_heads;
    if (s->heads < 1 || s->heads > most || s->dim < 1 || s->dim > most || s->taps < 1 || s->taps > 64)
        return rg_fail(err, RG_E_INPUT, "%s: %d heads of %d, convolution %d: out of range", rg_checkpoint_path(ckpt),
                       s->heads, s->dim, s->taps);
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const mla_settings *m = &own(c)->mla;
    bool leading = true;

    for (int i = 0; i < c->n_layers; i++)
        leading = leading && (c->layer[i].kind >= HYBRID_EXPERTS) == (i >= c->n_dense_layers);
    const char *what = !leading                    ? "dense layers behind others"
                       : own(c)->heads != c->n_heads ? "the number of heads of delta attention"
                       : !c->routing.renormalize     ? "moe_renormalize: false"
                                                     : NULL;
    if (what)
        return no_gguf_key(err, what);
    return put_gguf_kv_heads(c, w, err) && put_gguf_int(c, w, "expert_gating_func", 2, err) &&
           put_gguf_int(c, w, "expert_group_used_count", c->routing.n_groups ? c->routing.n_groups_used : 1, err) &&
           put_gguf_int(c, w, "attention.key_length", (int64_t)m->kv_lora_rank + m->rope_dim, err) &&
           put_gguf_int(c, w, "attention.key_length_mla", (int64_t)m->nope_dim + m->rope_dim, err) &&
           put_gguf_int(c, w, "attention.value_length_mla", m->v_dim, err);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

#define TAPS(role, hf, gguf_name)                                                                                      \
    { role, "self_attn." hf, gguf_name, { KDA_DIM, KDA_TAPS }, SPLIT_ROWS, .table = true,                              \
      .gguf_shape = { ONE, KDA_DIM, ONE, KDA_TAPS } }
#define DELTA                                                                                                          \
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { KDA_DIM, DIM }, SPLIT_ROWS },                                          \
    { W_K_PROJ, "self_attn.k_proj", "attn_k", { KDA_DIM, DIM }, SPLIT_ROWS },                                          \
    { W_V_PROJ, "self_attn.v_proj", "attn_v", { KDA_DIM, DIM }, SPLIT_ROWS },                                          \
    TAPS(W_Q_TAPS, "q_conv1d", "ssm_conv1d_q"),                                                                        \
    TAPS(W_K_TAPS, "k_conv1d", "ssm_conv1d_k"),                                                                        \
    TAPS(W_V_TAPS, "v_conv1d", "ssm_conv1d_v"),                                                                        \
    { W_DECAY_A, "self_attn.f_a_proj", "ssm_f_a", { KDA_HEAD, DIM } },                                                 \
    { W_DECAY_B, "self_attn.f_b_proj", "ssm_f_b", { KDA_DIM, KDA_HEAD }, SPLIT_ROWS },                                 \
    { W_GATE_A, "self_attn.g_a_proj", "ssm_g_a", { KDA_HEAD, DIM } },                                                  \
    { W_GATE_B, "self_attn.g_b_proj", "ssm_g_b", { KDA_DIM, KDA_HEAD }, SPLIT_ROWS },                                  \
    { W_BETA, "self_attn.b_proj", "ssm_beta", { KDA_HEADS, DIM }, SPLIT_ROWS },                                        \
    { W_DT_BIAS, "self_attn.dt_bias", "ssm_dt.bias", { KDA_DIM }, SPLIT_ROWS },                                        \
    { W_RATE, "self_attn.A_log", "ssm_a", { KDA_HEADS }, SPLIT_ROWS, .load = load_minus_exp, .bare = true,             \
      .gguf_shape = { ONE, ONE, KDA_HEADS, ONE } },                                                                    \
    { W_HEAD_NORM, "self_attn.o_norm", "ssm_norm", { KDA_HEAD } },                                                     \
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, KDA_DIM }, SPLIT_COLS }
#define EXPERTS                                                                                                        \
    WEIGHTS_EXPERTS("block_sparse_moe", "w1", "w3", "w2"),                                                             \
    { W_CHOICE_BIAS, "block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias", { N_EXPERTS } },             \
    WEIGHTS_SHARED("block_sparse_moe.shared_experts")

static const rg_weight_spec delta_mlp[] = { WEIGHTS_PRE_NORMS, DELTA, WEIGHTS_MLP, { 0 } };
static const rg_weight_spec delta_experts[] = { WEIGHTS_PRE_NORMS, DELTA, EXPERTS, { 0 } };
static const rg_weight_spec attention_mlp[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, WEIGHTS_MLP, { 0 } };
static const rg_weight_spec attention_experts[] = { WEIGHTS_PRE_NORMS, WEIGHTS_MLA, EXPERTS, { 0 } };

/* ---- state ------------------------------------------------------------------------------------------------------- */

static void keep_delta(const rg_config *c, int layer, rg_keep *out)
{
    const kimi_settings *o = own(c);
    const int all = o->heads * o->dim;

    (void)layer;
    *out = (rg_keep){
        .n_buffers = BUFFERS,
        .buffer = { [Q_TAIL] = rg_conv_tail("q_tail", all, o->taps),
                    [K_TAIL] = rg_conv_tail("k_tail", all, o->taps),
                    [V_TAIL] = rg_conv_tail("v_tail", all, o->taps),
                    [STATE] = rg_linear_attention_state("delta_state", o->heads, o->dim, o->dim, 3 * all + o->heads) },
        .shared_with = -1,
    };
}

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { delta_mlp, keep_delta, block_delta },
    [HYBRID_ATTENTION] = { attention_mlp, keep_latent, block_latent },
    [HYBRID_OTHER + HYBRID_EXPERTS] = { delta_experts, keep_delta, block_delta },
    [HYBRID_ATTENTION + HYBRID_EXPERTS] = { attention_experts, keep_latent, block_latent },
};

const rg_arch rg_arch_kimi_linear = {
    .hf_name = "KimiLinearForCausalLM", .hf_type = "kimi_linear", .gguf_name = "kimi-linear",
    .hf_prefix = "model.layers.", RG_KEYS(keys), .own_bytes = sizeof(kimi_settings), .finish = finish,
    .harmless = harmless, .weights = decoder_weights, RG_KINDS(kinds), .put_gguf = put_gguf,
};
