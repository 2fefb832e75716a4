/* olmo2.c -- OLMo 2 (2024): no norm in front of attention and MLP but one behind each, before it is added; RMSNorm over
 * the whole rows of q and k. */
#include "model/arch/parts.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const qkv p = project(f, l, x); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p); /* RMSNorm of the whole rows of q and of k */
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_act *y = linear(f, "attn_out", a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], l->c->norm_eps);
    rg_add_to(f, x, y); /* x += norm(o_proj a) */

    rg_act *g = mlp(f, l, x); /* silu(gate_proj x) * up_proj x: [rows, ffn_dim] */
    rg_act *z = linear(f, "ffn_out", g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], l->c->norm_eps);
    rg_add_to(f, x, z); /* x += norm(down_proj g) */
}

static const rg_key keys[] = {
    KEYS_GQA(2048, 32, 0, 0), KEY_FFN(11008), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0),
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_QK_NORM(Q_DIM, KV_DIM), WEIGHTS_MLP, WEIGHTS_POST_NORMS, { 0 },
};

const rg_arch rg_arch_olmo2 = {
    .hf_name = "Olmo2ForCausalLM", .hf_type = "olmo2", .gguf_name = "olmo2", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .weights = decoder_weights, RG_KIND(layer_weights, keep_kv, block),
    .put_gguf = put_gguf_decoder,
};
