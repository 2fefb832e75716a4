/* mixtral.c -- Mixtral (Jiang et al. 2024): the Llama block with its MLP replaced by routed experts, the best two of
 * eight by router logit, weighted by a softmax over the chosen.  GGUF calls it "llama" with an expert count. */
#include "model/arch/parts.h"

static const rg_key keys[] = {
    KEYS_GQA(131072, RG_REQUIRED, 8, 0),
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", RG_REQUIRED },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-5 },
    { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_word_embeddings", NULL, 0 },
    { offsetof(rg_config, window), KEY_INT, "sliding_window", "attention.sliding_window", 0 },
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
    return finish_heads(c, err) && finish_routing(c, err) && finish_llama(c, ckpt, c->from_gguf ? 1e4 : 1e6, err) &&
           require_choice(ckpt, "hidden_act", (const char *const[]){ "silu", NULL }, err);
}

static const rg_weight_spec weights[] = {
    WEIGHTS_DECODER,
    { W_ROPE_FREQS, NULL, "rope_freqs", { ROPE_PAIRS }, .when = when_rope_factors },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },
    WEIGHTS_GQA(GGUF_PAIRS),
    { W_FFN_NORM, "post_attention_layernorm", "ffn_norm", { DIM } },
    { W_ROUTER, "block_sparse_moe.gate", "ffn_gate_inp", { N_EXPERTS, DIM } },
    { W_GATE_EXPERTS, "block_sparse_moe.experts.*.w1", "ffn_gate_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS },
    { W_UP_EXPERTS, "block_sparse_moe.experts.*.w3", "ffn_up_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS },
    { W_DOWN_EXPERTS, "block_sparse_moe.experts.*.w2", "ffn_down_exps", { N_EXPERTS, DIM, MOE_DIM }, SPLIT_COLS },
    { 0 },
};

static void block(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = rg_act_new(f, "attn_norm", l->c->dim);

    rg_rmsnorm(f, h, x, l->w[W_ATTN_NORM], l->c->norm_eps);
    rg_act *a = part_attention(f, l, h);
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);

    rg_act *g = rg_act_new(f, "ffn_norm", l->c->dim);
    rg_rmsnorm(f, g, x, l->w[W_FFN_NORM], l->c->norm_eps);
    part_experts(f, l, x, g);
}

const rg_arch rg_arch_mixtral = {
    .hf_name = "MixtralForCausalLM", .hf_type = "mixtral", .gguf_name = "llama", .claims = claims,
    .hf_prefix = "model.layers.", .keys = keys, .n_keys = RG_LEN(keys), .finish = finish,
    .weights = weights, .layer_weights = layer_weights, .keep = keep_kv, .block = block,
    .put_gguf = put_gguf_llama,
};
