/* gemma3.c -- Gemma 3 (text): window layers with every sixth global, each kind with a rope of its own; RMSNorm before
 * and after each half, on q and on k; GELU; embeddings times sqrt(dim).
 *
 * Hugging Face stores norms as w where 1 + w is meant; GGUF has the one added.  For the scale of the attention see
 * finish_gemma_scale. */
#include "model/arch/gemma.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    norm_heads(f, l, &p); /* RMSNorm of each head of q and of k */
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

static const rg_key keys[] = { KEYS_GQA(131072, 8, 4, 256), KEYS_GEMMA(0, 0) };

static const char *const harmless[] = { "_sliding_window_pattern", "cache_implementation", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const rg_key row = { 0, KEY_INT, "sliding_window_pattern", "attention.sliding_window_pattern", 6,
                                .null = NULL_IS_MISSING };
    int period;

    if (!rg_config_keys(&period, ckpt, &row, 1, err) || !finish_gemma(c, ckpt, err) ||
        !finish_windows(c, ckpt, period, 1, err))
        return false;
    c->n_ropes = 2;
    c->ropes[0].dim = c->ropes[1].dim = c->head_dim;
    return rg_rope_read(&c->ropes[0], ckpt, "full_attention", 1e6, err) &&
           rg_rope_read(&c->ropes[1], ckpt, "sliding_attention", 1e4, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    int period = period_of_windows(c);

    if (c->window && period < 0)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for layer_types that are not periodic");
    if (c->ropes[1].type != RG_ROPE_DEFAULT)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for the scaling of the window layers' rope");
    return put_gguf_int(c, w, "attention.value_length", c->head_dim, err) && put_gguf_rope(c, w, err) &&
           (!c->window || put_gguf_int(c, w, "attention.sliding_window_pattern", period, err)) &&
           put_gguf_float(c, w, "rope.freq_base_swa", c->ropes[1].theta, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_GEMMA, { 0 } };

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_GEMMA_LAYER,
    { W_Q_NORM, "self_attn.q_norm", "attn_q_norm", { HEAD_DIM }, .load = load_plus_one },
    { W_K_NORM, "self_attn.k_norm", "attn_k_norm", { HEAD_DIM }, .load = load_plus_one },
    { 0 },
};

const rg_arch rg_arch_gemma3 = {
    .hf_name = "Gemma3ForCausalLM", .hf_type = "gemma3_text", .gguf_name = "gemma3", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .harmless = harmless, .weights = weights, RG_KIND(layer_weights, keep_kv, block),
    .halves_window = true, .put_gguf = put_gguf,
};
