/* gpt_oss.c -- gpt-oss (OpenAI 2025): biases everywhere, a learned score per head that takes part in the softmax
 * (sinks), a window on every other layer, YaRN, and experts of clamped SwiGLU, chosen by logit, weighted by a softmax
 * over the chosen.  Hugging Face has the experts' matrices transposed, gate and up by turns; GGUF has each by
 * itself. */
#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    experts(f, l, x, h); /* the best by router h, weighed by a softmax over these */
}

static const rg_key keys[] = {
    KEYS_GQA(131072, 64, 8, 64), KEY_FFN(2880), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(1), KEY_WINDOW(128),
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "intermediate_size", "expert_feed_forward_length", 2880 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_local_experts", "expert_count", 128 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", 4,
      { "experts_per_token" } },
};

static const char *const harmless[] = { "initial_context_length", "experts_per_token", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->act = RG_SWIGLU_CLAMPED;
    c->o_bias = c->attn_bias;
    c->routing.score = RG_SCORE_CHOSEN;
    c->routing.scale = 1;
    finish_optional(c, ckpt);
    if (!finish_heads(c, err) || !finish_routing(c, err) || !finish_windows(c, ckpt, 2, 0, err) ||
        !finish_rope(c, ckpt, 1.5e5, GGUF_HALVES, err) || !require_silu(ckpt, err) ||
        !require_number(ckpt, "swiglu_alpha", 1.702, err) || !require_number(ckpt, "swiglu_limit", 7, err))
        return false;
    if (c->from_gguf) /* which has no key for it; OpenAI's own files never round */
        c->ropes[0].untruncated = c->ropes[0].type == RG_ROPE_YARN;
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    rg_config plain = *c;

    if (period_of_windows(c) != 2)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for layer_types other than every other one");
    if (c->ropes[0].type == RG_ROPE_YARN && !c->ropes[0].untruncated)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF of this architecture means truncate: false of its rope");
    plain.ropes[0].untruncated = false;
    return put_gguf_decoder(&plain, w, err);
}

/* Values by turns with others: those with even numbers, and those with odd ones. */
static void load_even(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[2 * i];
}

static void load_odd(const rg_config *c, const float *src, float *dst, int64_t n)
{
    load_even(c, src + 1, dst, n);
}

#define BY_TURNS(row)                                                                                                  \
    .stored = { N_EXPERTS, MOE_DIM_2, DIM }, .first_row = row, .row_step = 2, .split_in_gguf = true, .transposed = true
#define BIASES_BY_TURNS(load_half) .stored = { N_EXPERTS, MOE_DIM_2 }, .load = load_half, .table = true

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },
    { W_FFN_NORM, "post_attention_layernorm", "post_attention_norm", { DIM } },
    WEIGHTS_GQA(GGUF_HALVES),
    { W_SINKS, "self_attn.sinks", "attn_sinks", { N_HEADS } },
    { W_ROUTER, "mlp.router", "ffn_gate_inp", { N_EXPERTS, DIM } },
    { W_ROUTER_BIAS, "mlp.router.bias", "ffn_gate_inp.bias", { N_EXPERTS } },
    { W_GATE_EXPERTS, "mlp.experts.gate_up_proj", "ffn_gate_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,
      BY_TURNS(ROW_0) },
    { W_UP_EXPERTS, "mlp.experts.gate_up_proj", "ffn_up_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,
      BY_TURNS(ROW_1) },
    { W_DOWN_EXPERTS, "mlp.experts.down_proj", "ffn_down_exps", { N_EXPERTS, DIM, MOE_DIM }, SPLIT_COLS,
      .transposed = true },
    { W_GATE_EXPERTS_BIAS, "mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", { N_EXPERTS, MOE_DIM }, SPLIT_ROWS,
      BIASES_BY_TURNS(load_even) },
    { W_UP_EXPERTS_BIAS, "mlp.experts.gate_up_proj_bias", "ffn_up_exps.bias", { N_EXPERTS, MOE_DIM }, SPLIT_ROWS,
      BIASES_BY_TURNS(load_odd) },
    { W_DOWN_EXPERTS_BIAS, "mlp.experts.down_proj_bias", "ffn_down_exps.bias", { N_EXPERTS, DIM }, .table = true },
    { 0 },
};

const rg_arch rg_arch_gpt_oss = {
    .hf_name = "GptOssForCausalLM", .hf_type = "gpt_oss", .gguf_name = "gpt-oss", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .harmless = harmless, .weights = decoder_weights,
    RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
