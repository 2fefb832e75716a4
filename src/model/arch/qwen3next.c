/* qwen3next.c -- Qwen3-Next (2025): gated DeltaNet in most layers, attention with a gate in every fourth; after each
 * routed experts and a shared one, which has a gate, or on some layers an MLP.
 *
 * A Hugging Face directory has q, k, v and z of the DeltaNet in one matrix, beta and alpha in another, both grouped by
 * key head; GGUF has q, k and v one below the other, z apart, and the second matrix as it is. */
#include <string.h>

#include "model/arch/gated_delta.h"
#include "model/arch/mtp.h"
#include "model/arch/qwen.h"

static void block_delta(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *y = gated_delta(f, l, h);                /* [rows, value heads * v_dim] */
    rg_linear_add(f, x, y, l->w[W_DELTA_OUT], NULL); /* x += out_proj y */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p);
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p), *gate = linear(f, "gate", h, l->w[W_ATTN_GATE], l->w[W_ATTN_GATE_BIAS]);
    rg_act_mul(f, a, gate, a, RG_SIGMOID);                  /* a *= sigmoid(gate h): [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static const rg_key keys[] = {
    KEYS_GATED_DELTA(16, 2, 32768), KEYS_GATED_DELTA_EXPERTS(512, 10), KEY_FFN(5632),
    { offsetof(rg_config, routing.renormalize), KEY_BOOL, "norm_topk_prob", NULL, 1 },
};

/* An MLP instead of experts on the layers that config.json names, or where GGUF has no router. */
static bool finish_dense(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    bool sparse[RG_MAX_LAYERS];

    if (!read_sparse_layers(c, ckpt, sparse, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        if (c->from_gguf && rg_checkpoint_n_tensors(ckpt))
            sparse[i] = layer_has(ckpt, i, "ffn_gate_inp.weight");
        c->layer[i].kind -= sparse[i] ? 0 : HYBRID_EXPERTS;
        c->n_dense_layers += !sparse[i];
    }
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const bool renormalize = c->routing.renormalize;

    if (!finish_gated_delta(c, ckpt, false, err) || !finish_gated_delta_experts(c, err))
        return false;
    c->routing.renormalize = renormalize;
    return finish_dense(c, ckpt, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (!c->routing.renormalize)
        return no_gguf_key(err, "norm_topk_prob: false");
    return put_gguf_gated_delta(c, w, err);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* Take q, k and v, or z, of all groups out of rows that are grouped by key head; a group is [q, k, v ..., z ...]. */
static void ungroup(const rg_config *c, const float *src, float *dst, int64_t cols, bool z)
{
    const gated_delta_settings *o = RG_OWN(c, gated_delta_settings);
    const int64_t q = o->k_dim * cols, v = (int64_t)(o->v_heads / o->k_heads) * o->v_dim * cols;
    const int64_t all = o->k_heads * q;

    for (int64_t h = 0; h < o->k_heads; h++, src += 2 * q + 2 * v) {
        if (z) {
            memcpy(dst + h * v, src + 2 * q + v, (size_t)v * sizeof *dst);
            continue;
        }
        memcpy(dst + h * q, src, (size_t)q * sizeof *dst);
        memcpy(dst + all + h * q, src + q, (size_t)q * sizeof *dst);
        memcpy(dst + 2 * all + h * v, src + 2 * q, (size_t)v * sizeof *dst);
    }
}

static void load_qkv(const rg_config *c, const float *src, float *dst, int64_t n)
{
    ungroup(c, src, dst, n / DELTA_QKV(c, 0), false);
}

static void load_z(const rg_config *c, const float *src, float *dst, int64_t n)
{
    ungroup(c, src, dst, n / DELTA_V(c, 0), true);
}

/* Rows of beta and alpha, grouped by key head: all of beta first. */
static void load_beta_alpha(const rg_config *c, const float *src, float *dst, int64_t n)
{
    const gated_delta_settings *o = RG_OWN(c, gated_delta_settings);
    const int64_t run = n / 2 / o->k_heads;

    for (int64_t h = 0; h < o->k_heads; h++) {
        memcpy(dst + h * run, src + 2 * h * run, (size_t)run * sizeof *dst);
        memcpy(dst + n / 2 + h * run, src + (2 * h + 1) * run, (size_t)run * sizeof *dst);
    }
}

static const rg_weight_spec weights[] = { WEIGHTS_GATED_DELTA_OUTER, { 0 } };

#define DELTA                                                                                                          \
    { W_QKV, "linear_attn.in_proj_qkvz", "attn_qkv", { DELTA_QKV, DIM }, SPLIT_ROWS, .load = load_qkv,                 \
      .stored = { DELTA_QKVZ, DIM }, .gguf_else = "ssm_in" },                                                          \
    { W_Z, "linear_attn.in_proj_qkvz", "attn_gate", { DELTA_V, DIM }, SPLIT_ROWS, .load = load_z,                      \
      .stored = { DELTA_QKVZ, DIM }, .gguf_else = "ssm_in" },                                                          \
    { W_BETA_ALPHA, "linear_attn.in_proj_ba", "ssm_ba", { DELTA_V_HEADS_2, DIM }, SPLIT_ROWS,                          \
      .load = load_beta_alpha, .load_gguf = load_beta_alpha, .stored = { DELTA_V_HEADS_2, DIM },                       \
      .to_gguf = load_flat },                                                                                       \
    { W_TAPS, "linear_attn.conv1d", "ssm_conv1d", { DELTA_QKV, DELTA_TAPS }, SPLIT_ROWS, .table = true },              \
    { W_DT_BIAS, "linear_attn.dt_bias", "ssm_dt.bias", { DELTA_V_HEADS }, SPLIT_ROWS },                                \
    { W_RATE, "linear_attn.A_log", "ssm_a", { DELTA_V_HEADS }, SPLIT_ROWS, .load = load_minus_exp, .bare = true },     \
    { W_HEAD_NORM, "linear_attn.norm", "ssm_norm", { DELTA_V_DIM } },                                                  \
    { W_DELTA_OUT, "linear_attn.out_proj", "ssm_out", { DIM, DELTA_V }, SPLIT_COLS }
#define EXPERTS WEIGHTS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"), WEIGHTS_GATED_DELTA_SHARED

static const rg_weight_spec delta_mlp[] = { WEIGHTS_GATED_DELTA_NORMS, DELTA, WEIGHTS_MLP, { 0 } };
static const rg_weight_spec delta_experts[] = { WEIGHTS_GATED_DELTA_NORMS, DELTA, EXPERTS, { 0 } };
static const rg_weight_spec attention_mlp[] = {
    WEIGHTS_GATED_DELTA_NORMS, WEIGHTS_GATED_ATTENTION, WEIGHTS_MLP, { 0 },
};
static const rg_weight_spec attention_experts[] = {
    WEIGHTS_GATED_DELTA_NORMS, WEIGHTS_GATED_ATTENTION, EXPERTS, { 0 },
};

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { delta_mlp, keep_gated_delta, block_delta },
    [HYBRID_ATTENTION] = { attention_mlp, keep_kv, block_attention },
    [HYBRID_OTHER + HYBRID_EXPERTS] = { delta_experts, keep_gated_delta, block_delta },
    [HYBRID_ATTENTION + HYBRID_EXPERTS] = { attention_experts, keep_kv, block_attention },
};

static const rg_weight_spec mtp_weights[] = { WEIGHTS_QWEN_MTP, { 0 } };

static bool finish_mtp(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return finish_qwen_mtp(c, ckpt, HYBRID_ATTENTION + HYBRID_EXPERTS, err);
}

static const rg_arch mtp = {
    .hf_name = "Qwen3NextMTP", MTP_QWEN, .finish = finish_mtp, .weights = mtp_weights, RG_KINDS(kinds),
};

const rg_arch rg_arch_qwen3next = {
    .hf_name = "Qwen3NextForCausalLM", .hf_type = "qwen3_next", .gguf_name = "qwen3next", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(gated_delta_settings), .finish = finish, .harmless = gated_delta_harmless,
    .weights = weights, RG_KINDS(kinds), .put_gguf = put_gguf, .mtp = &mtp,
};
