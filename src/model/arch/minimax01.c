/* minimax01.c -- MiniMax-01 (2025): lightning attention, which is linear attention with a fixed decay for each head, in
 * most layers, softmax attention in the others; experts after each.
 *
 * Norms stand on the residual stream: what they make is both what a part reads and what its result is added to. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch/hybrid.h"

typedef struct minimax_settings {
    float full_alpha, full_beta, linear_alpha, linear_beta, mlp_alpha, mlp_beta;
    int rotary_dim; /* 0: the whole head */
} minimax_settings;

enum { W_LINEAR_GATE = W_OWN, W_LINEAR_NORM, W_DECAY };

#define own(c) RG_OWN(c, minimax_settings)

/* x = its norm, of which it returns a copy; x is then multiplied by alpha / beta, so that beta times what is added to
 * it makes alpha * norm + beta * part. */
static rg_act *begin(rg_fwd *f, const rg_layer *l, rg_act *x, int norm, float factor)
{
    rg_act *h = rg_act_new(f, "normed", l->c->dim);

    rg_rmsnorm(f, h, x, l->w[norm], l->c->norm_eps);
    rg_activate(f, x, h, RG_IDENTITY);
    if (factor != 1.0f)
        rg_scale_by(f, x, factor);
    return h;
}

static void end(rg_fwd *f, rg_act *x, float beta)
{
    if (beta != 1.0f)
        rg_scale_by(f, x, beta);
}

static rg_act *lightning_attention(rg_fwd *f, const rg_layer *l, const rg_act *h);

static void block_linear(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const minimax_settings *s = own(l->c);
    rg_act *h = begin(f, l, x, W_ATTN_NORM, s->linear_alpha / s->linear_beta); /* x = alpha / beta * norm(x) */
    rg_act *y = lightning_attention(f, l, h);                                  /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, y, l->w[W_O_PROJ], NULL);                              /* x += out_proj y */
    end(f, x, s->linear_beta);

    h = begin(f, l, x, W_FFN_NORM, s->mlp_alpha / s->mlp_beta);
    experts(f, l, x, h);
    end(f, x, s->mlp_beta);
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const minimax_settings *s = own(l->c);
    rg_act *h = begin(f, l, x, W_ATTN_NORM, s->full_alpha / s->full_beta);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);              /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], NULL); /* x += o_proj a */
    end(f, x, s->full_beta);

    h = begin(f, l, x, W_FFN_NORM, s->mlp_alpha / s->mlp_beta);
    experts(f, l, x, h);
    end(f, x, s->mlp_beta);
}

/* Before out_proj, of the normed input h. */
static rg_act *lightning_attention(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const rg_config *c = l->c;
    const qkv p = project(f, l, h);
    rg_act *y = rg_act_new(f, "linear_attn", c->n_heads * c->head_dim);

    rg_activate(f, p.q, p.q, RG_SILU);
    rg_activate(f, p.k, p.k, RG_SILU);
    rg_activate(f, p.v, p.v, RG_SILU);
    rg_linear_attention(f, y,
                        &(rg_linear_attention_params){ .n_heads = c->n_heads,
                                                       .k_dim = c->head_dim,
                                                       .v_dim = c->head_dim,
                                                       .scale = 1.0f,
                                                       .q = p.q,
                                                       .k = p.k,
                                                       .v = p.v,
                                                       .fixed_decay = l->w[W_DECAY] },
                        &l->buffer[0]);
    rg_rmsnorm(f, y, y, l->w[W_LINEAR_NORM], 1e-6f); /* whatever the config says, as in MiniMax's own code */
    rg_act_mul(f, y, linear(f, "gate", h, l->w[W_LINEAR_GATE], NULL), y, RG_SIGMOID);
    return y;
}

static SIZE(Q_DIM_3, 3 * (int64_t)c->n_heads * c->head_dim)
static SIZE(HEAD_DIM_2, 2 * (int64_t)c->head_dim)

#define KEY_FACTOR(field, name, old)                                                                                   \
    { RG_OWN_AT(minimax_settings, field), KEY_FLOAT, name, NULL, 1, { old } }

static const rg_key keys[] = {
    KEYS_GQA(32768, 32, 8, 0), KEY_FFN(14336), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_WINDOW(0),
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_local_experts", "expert_count", 8 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", 2 },
    KEY_FACTOR(full_alpha, "full_attn_alpha_factor", "layernorm_full_attention_alpha"),
    KEY_FACTOR(full_beta, "full_attn_beta_factor", "layernorm_full_attention_beta"),
    KEY_FACTOR(linear_alpha, "linear_attn_alpha_factor", "layernorm_linear_attention_alpha"),
    KEY_FACTOR(linear_beta, "linear_attn_beta_factor", "layernorm_linear_attention_beta"),
    KEY_FACTOR(mlp_alpha, "mlp_alpha_factor", "layernorm_mlp_alpha"),
    KEY_FACTOR(mlp_beta, "mlp_beta_factor", "layernorm_mlp_beta"),
    { RG_OWN_AT(minimax_settings, rotary_dim), KEY_INT, "rotary_dim", NULL, 0 },
};

static const char *const harmless[] = { "block_size", NULL };

/* Tables of one way to compute decays, which follow from the number of the head and of the layer. */
static const char *const ignored[] = { ".slope_rate", ".query_decay", ".key_decay", ".diagonal_decay", NULL };

/* config.json's older list: 1 for layers that attend. */
static bool read_types(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int32_t *types = NULL;
    size_t n = 0;

    if (rg_meta_ints(ckpt, "attn_type_list", &types, &n, err) < 0)
        return false;
    if (types && !require_length(c, ckpt, "attn_type_list", n, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = (types ? types[i] == 1 : i % 2 == 0) ? HYBRID_ATTENTION : HYBRID_OTHER;
    return true;
}

static const char recurrent_key[] = "attention.recurrent_layers";

/* GGUF's list of the layers of linear attention, or every so many-th one attends; and its one alpha. */
static bool read_gguf(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    minimax_settings *s = RG_OWN_EDIT(c, minimax_settings);
    double alpha = 1;
    int64_t interval = 8;
    char key[128], name[160];
    size_t n = 0;
    int listed = rg_meta_length(ckpt, rg_gguf_key(ckpt, recurrent_key, key), &n, err);

    if (listed < 0)
        return false;
    if (listed && !require_length(c, ckpt, key, n, err))
        return false;
    if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "full_attention_interval", name), 1, INT32_MAX, &interval, err) < 0)
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        bool linear = (i + 1) % interval != 0;

        snprintf(name, sizeof name, "%s.%d", key, i);
        if (listed && rg_config_flag(ckpt, name, &linear, err) < 0)
            return false;
        c->layer[i].kind = linear ? HYBRID_OTHER : HYBRID_ATTENTION;
    }
    if (rg_meta_float(ckpt, rg_gguf_key(ckpt, "residual_scale", key), &alpha, err) < 0)
        return false;
    s->full_alpha = s->linear_alpha = s->mlp_alpha = (float)alpha;
    finish_optional(c, ckpt);
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const minimax_settings *s = own(c);
    uint8_t linear[RG_MAX_LAYERS];
    char key[128];
    const char *what = c->window ? "sliding_window"
                       : s->full_alpha != s->linear_alpha || s->full_alpha != s->mlp_alpha ? "alpha factors that differ"
                       : s->full_beta != 1 || s->linear_beta != 1 || s->mlp_beta != 1     ? "beta factors"
                                                                                            : NULL;

    if (what)
        return no_gguf_key(err, what);
    for (int i = 0; i < c->n_layers; i++)
        linear[i] = c->layer[i].kind == HYBRID_OTHER;
    snprintf(key, sizeof key, "%s.%s", c->arch->gguf_name, recurrent_key);
    return rg_ckpt_put_bools(w, key, linear, (size_t)c->n_layers, err) &&
           put_gguf_float(c, w, "residual_scale", (double)s->full_alpha, err) && put_gguf_decoder(c, w, err);
}

/* The published class rotates rotary_dim columns of each head; transformers' own class of this model, whose name is
 * another, rotates whole heads whatever that says. */
static bool finish_rotation(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    rope_defaults rope = { .theta = 1e6, .part = 1, .pairs = GGUF_HALVES };
    const int dim = own(c)->rotary_dim;
    const char *name = NULL, *type = NULL;

    if (!c->from_gguf && (rg_meta_string(ckpt, "architectures.0", &name, err) < 0 ||
                          rg_meta_string(ckpt, "model_type", &type, err) < 0))
        return false;
    bool published = name ? strncmp(name, "MiniMaxFor", 10) != 0 && strncmp(name, "MiniMaxModel", 12) != 0
                          : type && strcmp(type, "minimax") != 0;
    if (dim > c->head_dim)
        return rg_fail(err, RG_E_INPUT, "%s: rotary_dim %d is more than head_dim %d", rg_checkpoint_path(ckpt), dim,
                       c->head_dim);
    if (dim && dim < c->head_dim && published)
        rope.part = (dim + 0.5) / c->head_dim;
    else if (dim && dim < c->head_dim)
        c->not_followed[0] = "rotary_dim";
    RG_OWN_EDIT(c, minimax_settings)->rotary_dim = 0; /* the rope has it */
    return finish_rope_as(c, ckpt, &rope, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const kind_word words[] = {
        { "linear_attention", HYBRID_OTHER }, { "full_attention", HYBRID_ATTENTION }, { 0 },
    };
    const minimax_settings *s = own(c);
    int got = c->from_gguf ? read_gguf(c, ckpt, err) ? 1 : -1 : read_kinds(c, ckpt, "layer_types", words, err);

    if (got < 0 || (!got && !read_types(c, ckpt, err)) || !finish_heads(c, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].window = c->layer[i].kind == HYBRID_ATTENTION ? c->window : 0;
    c->moe_ffn_dim = c->ffn_dim;
    c->routing.scale = 1;
    if (s->full_beta == 0.0f || s->linear_beta == 0.0f || s->mlp_beta == 0.0f)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: a beta factor is 0, which is not supported",
                       rg_checkpoint_path(ckpt));
    return finish_routing(c, err) && require_silu(ckpt, err) && finish_rotation(c, ckpt, err);
}

/* Head h of layer l forgets by exp(-2^(-8 (h + 1) / n_heads) * (1 - l / (n_layers - 1) + 1e-5)). */
static bool derive_decay(const rg_config *c, int layer, const rg_weight *const w[], float *dst, rg_error *err)
{
    double depth = 1 - layer / (c->n_layers - 1 + 1e-5) + 1e-5;

    (void)w;
    (void)err;
    for (int h = 0; h < c->n_heads; h++)
        dst[h] = (float)exp(-exp2(-8.0 * (h + 1) / c->n_heads) * depth);
    return true;
}

#define EXPERTS WEIGHTS_EXPERTS("block_sparse_moe", "w1", "w3", "w2")
/* q, k and v of a head take turns in one tensor. */
#define QKV(role, first)                                                                                               \
    { role, "self_attn.qkv_proj", "attn_qkv", { Q_DIM, DIM }, SPLIT_ROWS, .stored = { Q_DIM_3, DIM },                  \
      .first_row = first, .row_step = 3, .row_run = HEAD_DIM }

static const rg_weight_spec linear_weights[] = {
    WEIGHTS_PRE_NORMS, QKV(W_Q_PROJ, ROW_0), QKV(W_K_PROJ, HEAD_DIM), QKV(W_V_PROJ, HEAD_DIM_2),
    { W_LINEAR_GATE, "self_attn.output_gate", "attn_gate", { Q_DIM, DIM }, SPLIT_ROWS },
    { W_LINEAR_NORM, "self_attn.norm", "attn_norm_2", { Q_DIM } },
    { W_DECAY, "decay", "decay", { N_HEADS }, SPLIT_ROWS, .derive = derive_decay },
    { W_O_PROJ, "self_attn.out_proj", "attn_output", { DIM, Q_DIM }, SPLIT_COLS },
    EXPERTS, { 0 },
};

static const rg_weight_spec attention_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES), EXPERTS, { 0 } };

static void keep_linear(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    *out = (rg_keep){ .n_buffers = 1,
                      .buffer = { rg_linear_attention_state("linear_state", c->n_heads, c->head_dim, c->head_dim,
                                                            2 * c->n_heads * c->head_dim) },
                      .shared_with = -1 };
}

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { linear_weights, keep_linear, block_linear },
    [HYBRID_ATTENTION] = { attention_weights, keep_kv, block_attention },
};

const rg_arch rg_arch_minimax01 = {
    .hf_name = "MiniMaxForCausalLM", .hf_name_too = { "MiniMaxText01ForCausalLM", "MiniMaxM1ForCausalLM" },
    .hf_type = "minimax", .gguf_name = "minimax-01", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(minimax_settings), .finish = finish, .hf_type_too = { "minimax_text_01", "minimax_m1" },
    .ignored = ignored, .harmless = harmless, .weights = decoder_weights, RG_KINDS(kinds), .put_gguf = put_gguf,
};
