/* phimoe.c -- Phi-3.5-MoE (2024): LayerNorm with biases, biases everywhere, and two experts chosen one after the other
 * by SparseMixer.  GGUF has no name for that routing. */
#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    experts(f, l, x, h); /* two, chosen one after the other */
}

typedef struct settings {
    bool head_bias;
    int original_max_seq_len; /* of a rope with factors for longer sequences */
} settings;

static const rg_key keys[] = {
    KEYS_GQA(131072, 32, 8, 0), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0), KEY_WINDOW(0),
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "intermediate_size", NULL, 6400 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_local_experts", NULL, 16 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", NULL, 2 },
    { offsetof(rg_config, routing.jitter), KEY_FLOAT, "router_jitter_noise", NULL, 0.01 },
    { RG_OWN_AT(settings, head_bias), KEY_BOOL, "lm_head_bias", NULL, 0 },
    { RG_OWN_AT(settings, original_max_seq_len), KEY_INT, "original_max_position_embeddings", NULL, 0 },
};

static const char *const harmless[] = { "input_jitter_noise", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);
    rg_rope_config *r = &c->ropes[0];

    c->layer_norm = true;
    c->o_bias = c->attn_bias;
    c->routing.score = RG_SCORE_SPARSEMIXER;
    c->routing.scale = 1;
    if (c->routing.n_used != 2)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: num_experts_per_tok is %d, which is not supported (supported: 2)",
                       rg_checkpoint_path(ckpt), c->routing.n_used);
    if (!finish_heads(c, err) || !finish_routing(c, err) || !finish_windows(c, ckpt, 0, 0, err) ||
        !finish_rope(c, ckpt, 1e6, GGUF_HALVES, err) || !require_silu(ckpt, err))
        return false;
    if (r->type == RG_ROPE_LONG && !r->original_max_seq_len)
        r->original_max_seq_len = s->original_max_seq_len;
    s->original_max_seq_len = 0; /* one spelling of two */
    return true;
}

static WHEN(when_head_bias, RG_OWN(c, settings)->head_bias)

static const rg_weight_spec weights[] = {
    WEIGHTS_DECODER, WEIGHT_FINAL_NORM_BIAS,
    { W_LM_HEAD_BIAS, "lm_head.bias", NULL, { VOCAB }, SPLIT_ROWS, .when = when_head_bias },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_PRE_NORM_BIASES, WEIGHTS_GQA(GGUF_HALVES),
    WEIGHTS_EXPERTS("block_sparse_moe", "w1", "w3", "w2"), { 0 },
};

const rg_arch rg_arch_phimoe = {
    .hf_name = "PhimoeForCausalLM", .hf_type = "phimoe", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = weights,
    RG_KIND(layer_weights, keep_kv, block),
};
