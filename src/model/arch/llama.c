/* llama.c -- Llama (Touvron et al. 2023): RMSNorm, rotary positions, grouped-query attention, SwiGLU.
 *
 * GGUF files of this family hold q and k with the pairs of the rotation side by side, Hugging Face directories with the
 * halves apart; the rotation follows the file.  config.json may say for each layer which keys its rows see, and whose
 * K/V they read (sights.h). */
#include "model/arch/sights.h"

enum { IN_TEXT, IN_CACHE }; /* kinds of layer: what positions are places in (sights.h) */

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* silu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

/* A layer whose positions are places in a cache of its first keys and the newest. */
static void block_in_cache(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h);

    rg_act *a = attention_in_cache(f, l, &p);
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);

    h = normed(f, l, x, W_FFN_NORM);
    rg_linear_add(f, x, mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
}

static const rg_key keys[] = {
    KEYS_GQA(2048, RG_REQUIRED, 0, 0), KEY_FFN(RG_REQUIRED), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_rope(c, ckpt, 1e4, GGUF_PAIRS, err) && require_silu(ckpt, err) &&
           require_false(ckpt, "rope_interleaved", err) &&
           (c->from_gguf || (finish_sights(c, ckpt, IN_CACHE, err) && finish_kv_layers(c, ckpt, err)));
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return require_plain_sights(c, err) && put_gguf_decoder(c, w, err);
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS), WEIGHTS_MLP, WEIGHTS_MLP_BIASES, { 0 },
};

static const rg_layer_kind kinds[] = {
    [IN_TEXT] = { layer_weights, keep_kv, block },
    [IN_CACHE] = { layer_weights, keep_kv, block_in_cache },
};

extern const rg_arch rg_arch_llama_mla;

const rg_arch rg_arch_llama = {
    .hf_name = "LlamaForCausalLM", .hf_type = "llama", .gguf_name = "llama", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .weights = decoder_weights_and_freqs, RG_KINDS(kinds), .put_gguf = put_gguf,
    .latents = &rg_arch_llama_mla,
};
