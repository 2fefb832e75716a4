/* cohere2.c -- Command R7B and A (Cohere 2024): attention and MLP side by side behind one LayerNorm without a bias;
 * a window and a rope on three of four layers, neither on the fourth; logits times a scale.  The pairs of the rotation
 * stand side by side in both kinds of file. */
#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ],
                  l->w[W_DOWN_BIAS]); /* x += down_proj (silu(gate_proj h) * up_proj h) */
}

static const rg_key keys[] = {
    KEYS_GQA(8192, 64, 0, 0), KEY_FFN(22528), KEY_TIED(1), KEY_ATTN_BIAS(0), KEY_WINDOW(4096),
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-5 },
    { offsetof(rg_config, logit_scale), KEY_FLOAT, "logit_scale", "logit_scale", 0.0625 },
};

static const char *const harmless[] = {
    "cache_implementation", "use_parallel_embedding", "use_embedding_sharing", "order_of_interleaved_layers", NULL,
};

/* Settings of the published files that only ever have one value. */
static bool require_settings(const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const gptj[] = { "rope_gptj", NULL };

    return require_silu(ckpt, err) && require_false(ckpt, "use_qk_norm", err) &&
           require_true(ckpt, "use_parallel_block", err) && require_true(ckpt, "use_gated_activation", err) &&
           require_choice(ckpt, "position_embedding_type", gptj, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const rg_key row = { 0, KEY_INT, "layer_switch", NULL, 4, { "sliding_window_pattern" }, NULL_IS_MISSING,
                                .least = 1 };
    int period;

    c->layer_norm = true;
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    if (!rg_config_keys(&period, ckpt, &row, 1, err) ||
        (!c->from_gguf && !require_number(ckpt, "rotary_pct", 1, err)) || !finish_heads(c, err) ||
        !finish_windows(c, ckpt, period, 0, err) || !finish_rope(c, ckpt, 1e4, GGUF_PAIRS, err) ||
        !require_settings(ckpt, err))
        return false;
    c->ropes[0].interleaved = true;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].rope = c->layer[i].window ? 0 : -1;
    return true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (period_of_windows(c) != 4)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for layer_types other than every fourth global");
    return put_gguf_decoder(c, w, err) && put_gguf_no_scaling(c, w, err);
}

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } }, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_MLP, { 0 },
};

const rg_arch rg_arch_cohere2 = {
    .hf_name = "Cohere2ForCausalLM", .hf_type = "cohere2", .gguf_name = "cohere2", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .harmless = harmless, .weights = decoder_weights,
    RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
