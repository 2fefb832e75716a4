/* qwen3moe.c -- Qwen3 mixture of experts (2025): the Qwen3 block with routed experts in place of the MLP, on all layers
 * or on some; experts are chosen by a softmax over all, whose chosen part may be made to sum to one. */
#include "model/arch/qwen.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p); /* RMSNorm of each head of q and of k */
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

enum { DENSE, EXPERTS }; /* kinds of layer */

static const rg_key keys[] = {
    KEYS_GQA(32768, 32, 4, 0), KEY_FFN(6144), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", 768 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_experts", "expert_count", 128,
      { "num_local_experts" } },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", 8 },
    { offsetof(rg_config, routing.renormalize), KEY_BOOL, "norm_topk_prob", NULL, 0 },
};

static bool finish_kinds(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    bool sparse[RG_MAX_LAYERS];

    if (!read_sparse_layers(c, ckpt, sparse, err))
        return false;
    c->n_dense_layers = 0;
    for (int i = 0; i < c->n_layers; i++) {
        c->layer[i].kind = sparse[i] ? EXPERTS : DENSE;
        c->n_dense_layers += !sparse[i];
    }
    return c->n_dense_layers == c->n_layers || finish_routing(c, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    c->routing.scale = 1;
    c->routing.score = RG_SCORE_SOFTMAX;
    c->routing.renormalize |= c->from_gguf;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_kinds(c, ckpt, err) && finish_qwen_windows(c, ckpt, 0, err) &&
           finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (c->n_dense_layers || !c->routing.renormalize)
        return no_gguf_key(err, c->n_dense_layers ? "layers without experts" : "norm_topk_prob: false");
    return put_gguf_qwen(c, w, err);
}

#define WEIGHTS_ATTENTION WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_QK_NORM(HEAD_DIM, HEAD_DIM)

static const rg_weight_spec dense_weights[] = { WEIGHTS_ATTENTION, WEIGHTS_MLP, { 0 } };

static const rg_weight_spec expert_weights[] = {
    WEIGHTS_ATTENTION, WEIGHTS_EXPERTS("mlp", "gate_proj", "up_proj", "down_proj"), { 0 },
};

static const rg_layer_kind kinds[] = {
    [DENSE] = { dense_weights, keep_kv, block },
    [EXPERTS] = { expert_weights, keep_kv, block },
};

const rg_arch rg_arch_qwen3moe = {
    .hf_name = "Qwen3MoeForCausalLM", .hf_type = "qwen3_moe", .gguf_name = "qwen3moe", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .weights = decoder_weights, RG_KINDS(kinds), .put_gguf = put_gguf,
};
