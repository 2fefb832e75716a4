/* sdar.c -- SDAR (2025): diffusion by blocks with the layers of Qwen3.  A row sees all rows up to the end of its own
 * block, so that finished blocks are kept as they are. */
#include "model/arch/diffusion.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p); /* RMSNorm of each head of q and of k */
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* silu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = {
    KEYS_GQA(32768, RG_REQUIRED, 0, 128), KEY_FFN(RG_REQUIRED), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, sees), KEY_INT, "block_size", NULL, 4 },
};

static const char *const harmless[] = { "sliding_window", "max_window_layers", "fuse_cross_entropy", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    if (c->sees < 1 || c->sees > c->max_seq_len)
        return rg_fail(err, RG_E_INPUT, "%s: block_size is %d: want 1 to the context of %d positions",
                       rg_checkpoint_path(ckpt), c->sees, c->max_seq_len);
    c->o_bias = c->attn_bias;
    return finish_heads(c, err) && finish_diffusion(c, ckpt, err) && require_false(ckpt, "use_sliding_window", err) &&
           finish_rope(c, ckpt, 1e6, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_HALVES), WEIGHTS_QK_NORM(HEAD_DIM, HEAD_DIM), WEIGHTS_MLP, { 0 },
};

const rg_arch rg_arch_sdar = {
    .hf_name = "SDARForCausalLM", .hf_type = "sdar", .hf_prefix = "model.layers.", RG_KEYS(keys), .finish = finish,
    .harmless = harmless, .weights = decoder_weights, RG_KIND(layer_weights, keep_kv, block),
};
