/* olmo3.c -- OLMo 3 (2025): the block of OLMo 2, with a window on three of four layers.  Scaling of rope is that of the
 * layers without a window; the others rotate by the plain one.  GGUF calls it "olmo2" with a window. */
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
    KEYS_GQA(2048, 32, 0, 0), KEY_FFN(11008), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0), KEY_WINDOW(4096),
};

static bool claims(const rg_checkpoint *ckpt)
{
    int64_t n = 0;

    return rg_meta_int(ckpt, "olmo2.attention.sliding_window", 0, INT32_MAX, &n, NULL) == 1 && n > 0;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const char *local = "rope_parameters.sliding_attention";

    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    if (!finish_heads(c, err) || !finish_windows(c, ckpt, 4, 1, err) || !require_silu(ckpt, err))
        return false;
    c->n_ropes = 2;
    c->ropes[0].dim = c->ropes[1].dim = c->head_dim;
    if (!rg_rope_read(&c->ropes[0], ckpt, "full_attention", 1e4, err))
        return false;
    c->ropes[1].theta = c->ropes[0].theta;
    return !c->from_gguf && rg_meta_type_of(ckpt, local) == RG_META_OBJECT
               ? rg_rope_read(&c->ropes[1], ckpt, "sliding_attention", c->ropes[0].theta, err)
               : true;
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (c->ropes[1].type != RG_ROPE_DEFAULT || c->ropes[1].theta != c->ropes[0].theta)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for another rope of the window layers of this "
                       "architecture");
    return put_gguf_decoder(c, w, err) && put_gguf_windows(c, w, err);
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_QK_NORM(Q_DIM, KV_DIM), WEIGHTS_MLP, WEIGHTS_POST_NORMS, { 0 },
};

const rg_arch rg_arch_olmo3 = {
    .hf_name = "Olmo3ForCausalLM", .hf_type = "olmo3", .gguf_name = "olmo2", .claims = claims,
    .hf_prefix = "model.layers.", RG_KEYS(keys), .finish = finish, .weights = decoder_weights,
    RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
