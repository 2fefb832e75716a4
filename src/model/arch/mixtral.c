/* mixtral.c -- Mixtral (Jiang et al. 2024): the Llama block with its MLP replaced by routed experts, the best two of
 * eight by router logit, weighted by a softmax over the chosen.  GGUF calls it "llama" with an expert count. */
#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    experts(f, l, x, h); /* x += the best two of eight MLPs of h, weighed by a softmax over their logits */
}

static const rg_key keys[] = {
    KEYS_GQA(131072, RG_REQUIRED, 8, 0), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_WINDOW(0),
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", RG_REQUIRED },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_local_experts", "expert_count", 8 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", 2 },
};

static bool claims(const rg_checkpoint *ckpt)
{
    int64_t n = 0;

    return rg_meta_int(ckpt, "llama.expert_count", 0, INT32_MAX, &n, NULL) == 1 && n > 0;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->routing.scale = 1;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_routing(c, err) && finish_windows(c, ckpt, 0, 0, err) &&
           finish_rope(c, ckpt, c->from_gguf ? 1e4 : 1e6, GGUF_PAIRS, err) && require_silu(ckpt, err);
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS), WEIGHTS_EXPERTS("block_sparse_moe", "w1", "w3", "w2"), { 0 },
};

const rg_arch rg_arch_mixtral = {
    .hf_name = "MixtralForCausalLM", .hf_type = "mixtral", .gguf_name = "llama", .claims = claims,
    .hf_prefix = "model.layers.", RG_KEYS(keys), .finish = finish, .weights = decoder_weights_and_freqs,
    RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf_decoder,
};
