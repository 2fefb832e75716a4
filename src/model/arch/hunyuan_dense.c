/* hunyuan_dense.c -- Hunyuan dense (Tencent 2025): the Llama block with RMSNorm on every head of q and k, behind the
 * rotation.  Rope of type "dynamic" with an alpha means one base for all lengths, theta * alpha^(d / (d - 2)). */
#include <math.h>
#include <string.h>

#include "model/arch/hunyuan.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    norm_heads(f, l, &p);            /* RMSNorm of each head of q and of k, behind the rotation */
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* silu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = {
    KEYS_GQA(2048, 32, 0, 0), KEY_FFN(11008), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
};

static const char *const harmless[] = { HUNYUAN_HARMLESS, "norm_type", NULL };

/* As a float, since GGUF stores it so. */
bool finish_hunyuan_base(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    rg_rope_config *r = &c->ropes[0];
    const char *key = rg_rope_has_scaling(ckpt) ? "rope_scaling.alpha" : "rope_parameters.alpha";
    double alpha = 0;

    if (c->from_gguf || rg_config_float(ckpt, key, &alpha, err) < 0)
        return c->from_gguf;
    if (r->type != RG_ROPE_DYNAMIC || alpha == 0)
        return true;
    if (!(alpha > 0))
        return rg_fail(err, RG_E_INPUT, "%s: %s %g is not positive", rg_checkpoint_path(ckpt), key, alpha);
    r->theta = (double)(float)(r->theta * pow(alpha, (double)r->dim / (r->dim - 2)));
    r->type = RG_ROPE_DEFAULT;
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) && finish_hunyuan_base(c, ckpt, err) &&
           require_silu(ckpt, err) && require_true(ckpt, "use_qk_norm", err) && require_false(ckpt, "use_cla", err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    bool plain = c->ropes[0].type == RG_ROPE_DEFAULT; /* other engines want these three then, too */

    return put_gguf_int(c, w, "attention.value_length", c->head_dim, err) && put_gguf_rope(c, w, err) &&
           put_gguf_no_scaling(c, w, err) && (!plain || (put_gguf_float(c, w, "rope.scaling.factor", 1, err) &&
           put_gguf_int(c, w, "rope.scaling.original_context_length", c->max_seq_len, err)));
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES),
    { W_Q_NORM, "self_attn.query_layernorm", "attn_q_norm", { HEAD_DIM } },
    { W_K_NORM, "self_attn.key_layernorm", "attn_k_norm", { HEAD_DIM } },
    WEIGHTS_MLP, WEIGHTS_MLP_BIASES, { 0 },
};

const rg_arch rg_arch_hunyuan_dense = {
    .hf_name = "HunYuanDenseV1ForCausalLM", .hf_type = "hunyuan_v1_dense", .gguf_name = "hunyuan-dense",
    .hf_prefix = "model.layers.", RG_KEYS(keys), .finish = finish, .harmless = harmless,
    .weights = decoder_weights_and_freqs, RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
