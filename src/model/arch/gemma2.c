/* gemma2.c -- Gemma 2 (2024): every other layer has a window; RMSNorm before and after each half; scores and logits
 * capped; GELU; embeddings times sqrt(dim). */
#include "model/arch/gemma.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_act *y = linear(f, "attn_out", a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], l->c->norm_eps);
    rg_add_to(f, x, y); /* x += norm(o_proj a) */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h); /* gelu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    rg_act *z = linear(f, "ffn_out", g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], l->c->norm_eps);
    rg_add_to(f, x, z); /* x += norm(down_proj g) */
}

static const rg_key keys[] = { KEYS_GQA(8192, 8, 4, 256), KEYS_GEMMA(50, 30) };

static const char *const harmless[] = { "cache_implementation", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return finish_gemma(c, ckpt, err) && finish_windows(c, ckpt, 2, 0, err) &&
           finish_rope(c, ckpt, 1e4, GGUF_HALVES, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (c->window && period_of_windows(c) != 2)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for layer_types other than every other one");
    return put_gguf_decoder(c, w, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_GEMMA, { 0 } };
static const rg_weight_spec layer_weights[] = { WEIGHTS_GEMMA_LAYER, { 0 } };
const rg_arch rg_arch_gemma2 = {
    .hf_name = "Gemma2ForCausalLM", .hf_type = "gemma2", .gguf_name = "gemma2", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .harmless = harmless, .weights = weights, RG_KIND(layer_weights, keep_kv, block),
    .put_gguf = put_gguf,
};
