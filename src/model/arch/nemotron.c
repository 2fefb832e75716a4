/* nemotron.c -- Nemotron-4 and Minitron (2024): LayerNorm with biases, rope on a part of each head, and an MLP of
 * squared ReLU without a gate.
 *
 * Hugging Face stores the norms' weights as w where 1 + w is meant; GGUF has the one added. */
#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* relu(up_proj h)^2: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = {
    KEYS_GQA(4096, 48, 0, 0), KEY_FFN(24576), KEY_LAYER_NORM_EPS("norm_eps", 1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->layer_norm = true;
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    rg_meta_understand(ckpt, "nemotron.attention.layer_norm_rms_epsilon"); /* GGUF's converter writes it too */
    return finish_heads(c, err) && finish_act(c, ckpt, "hidden_act", RG_RELU2, err) &&
           finish_rope_as(c, ckpt, &(rope_defaults){ .theta = 1e4, .part = 0.5 }, err);
}

/* The format's own converter writes the norm's eps under both names, and says that there is no scaling. */
static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_decoder(c, w, err) &&
           put_gguf_float(c, w, "attention.layer_norm_rms_epsilon", (double)c->norm_eps, err) &&
           (c->ropes[0].type != RG_ROPE_DEFAULT || put_gguf_string(c, w, "rope.scaling.type", "none", err));
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "model.embed_tokens", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },
    { W_FINAL_NORM, "model.norm", "output_norm", { DIM }, .load = load_plus_one },
    { W_FINAL_NORM_BIAS, "model.norm.bias", "output_norm.bias", { DIM } },
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM }, .load = load_plus_one },
    { W_FFN_NORM, "post_attention_layernorm", "ffn_norm", { DIM }, .load = load_plus_one },
    WEIGHTS_PRE_NORM_BIASES, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_UP_DOWN("mlp.up_proj", "mlp.down_proj"), { 0 },
};

const rg_arch rg_arch_nemotron = {
    .hf_name = "NemotronForCausalLM", .hf_type = "nemotron", .gguf_name = "nemotron", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .weights = weights, RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
