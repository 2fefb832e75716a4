/* starcoder.c -- StarCoder (GPTBigCode, 2023): GPT-2 with one K/V head for all query heads, or one for each. */
#include "model/arch/gpt2.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h);  /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* gelu(up_proj h): [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = {
    KEYS_GPT2,
    { offsetof(rg_config, n_kv_heads), KEY_INT, NULL, "attention.head_count_kv", 0 },
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    bool one = true;

    if (rg_config_flag(ckpt, "multi_query", &one, err) < 0)
        return false;
    if (!c->from_gguf)
        c->n_kv_heads = one ? 1 : c->n_heads;
    rg_meta_understand(ckpt, "num_key_value_heads"); /* it follows from multi_query */
    return finish_gpt2(c, ckpt, RG_GELU_TANH, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_GPT2, { 0 } };

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_LAYER_NORM(W_ATTN_NORM, "ln_1", "attn_norm"), WEIGHTS_QKV_GROUPS("attn.c_attn"), WEIGHTS_O("attn.c_proj"),
    WEIGHTS_LAYER_NORM(W_FFN_NORM, "ln_2", "ffn_norm"), WEIGHTS_UP_DOWN("mlp.c_fc", "mlp.c_proj"), { 0 },
};

const rg_arch rg_arch_starcoder = {
    .hf_name = "GPTBigCodeForCausalLM", .hf_type = "gpt_bigcode", .gguf_name = "starcoder",
    .hf_prefix = "transformer.h.", RG_KEYS(keys), .finish = finish, .harmless = gpt2_harmless, .weights = weights,
    RG_KIND(layer_weights, keep_kv, block), .embed = embed_gpt2, .put_gguf = put_gguf_gpt2,
};
