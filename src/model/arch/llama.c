/* llama.c -- Llama (Touvron et al. 2023): RMSNorm, rotary positions, grouped-query attention, SwiGLU.
 *
 * GGUF files of this family hold q and k with the pairs of the rotation side by side, Hugging Face directories with the
 * halves apart; the rotation follows the file. */
#include "model/arch/parts.h"

static const rg_key keys[] = {
    KEYS_GQA(2048, RG_REQUIRED, 0, 0),
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", RG_REQUIRED },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6 },
    { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_word_embeddings", NULL, 0 },
    { offsetof(rg_config, attn_bias), KEY_BOOL, "attention_bias", NULL, 0 },
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    return finish_heads(c, err) && finish_llama(c, ckpt, 1e4, err) &&
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
    { W_GATE_PROJ, "mlp.gate_proj", "ffn_gate", { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_UP_PROJ, "mlp.up_proj", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_DOWN_PROJ, "mlp.down_proj", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS },
    { W_GATE_BIAS, "mlp.gate_proj.bias", "ffn_gate.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_mlp_bias },
    { W_UP_BIAS, "mlp.up_proj.bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_mlp_bias },
    { W_DOWN_BIAS, "mlp.down_proj.bias", "ffn_down.bias", { DIM }, .when = when_mlp_bias },
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
    part_mlp(f, l, x, g, true);
}

const rg_arch rg_arch_llama = {
    .hf_name = "LlamaForCausalLM", .hf_type = "llama", .gguf_name = "llama", .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish,
    .weights = weights, .layer_weights = layer_weights, .keep = keep_kv, .block = block,
    .put_gguf = put_gguf_llama,
};
