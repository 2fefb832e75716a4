/* llada.c -- LLaDA (2025): a diffusion model with the layers of Llama, whose rows all see each other.
 *
 * Settings of OLMo's code that it was written in (block_type, alibi, layer norms of other kinds) are refused unless
 * they say what LLaDA is.  GGUF holds q and k with the pairs of the rotation side by side. */
#include "model/arch/diffusion.h"

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

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_sequence_length", "context_length", 4096 },
    { offsetof(rg_config, n_heads), KEY_INT, "n_heads", "attention.head_count", RG_REQUIRED },
    { offsetof(rg_config, n_kv_heads), KEY_INT, "n_kv_heads", "attention.head_count_kv", 0 },
    { offsetof(rg_config, head_dim), KEY_INT, NULL, "attention.key_length", 0 },
    { offsetof(rg_config, ffn_dim), KEY_INT, "mlp_hidden_size", "feed_forward_length", RG_REQUIRED },
    { offsetof(rg_config, attn_bias), KEY_BOOL, "include_qkv_bias", NULL, 0 },
    { offsetof(rg_config, tie_embeddings), KEY_BOOL, "weight_tying", NULL, 0 },
    KEY_RMS_EPS(1e-5),
};

static const char *const harmless[] = {
    "mlp_ratio", "rope_full_precision", "precision", "flash_attention", "attention_dropout", "embedding_dropout",
    "residual_dropout", "init_cutoff_factor", "init_device", "init_fn", "init_std", "alibi_bias_max", NULL,
};

static bool require_llama_block(const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const refused[] = {
        "alibi", "attention_layer_norm", "bias_for_layer_norm", "include_bias", "input_emb_norm",
        "multi_query_attention", "scale_logits", NULL,
    };
    static const char *const block[] = { "llama", NULL }, *const norm[] = { "rms", NULL };
    static const char *const act[] = { "silu", NULL };

    for (int i = 0; refused[i]; i++)
        if (!require_false(ckpt, refused[i], err))
            return false;
    return require_choice(ckpt, "block_type", block, err) && require_choice(ckpt, "layer_norm_type", norm, err) &&
           require_choice(ckpt, "activation_type", act, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    bool yes = true;

    if (rg_config_flag(ckpt, "rope", &yes, err) < 0 ||
        (yes && rg_config_flag(ckpt, "layer_norm_with_affine", &yes, err) < 0))
        return false;
    if (!yes)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: rope or layer_norm_with_affine is false, which is not supported",
                       rg_checkpoint_path(ckpt));
    c->sees = RG_SEES_ALL;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_diffusion(c, ckpt, err) && require_llama_block(ckpt, err) &&
           require_number(ckpt, "embedding_size", c->vocab_size, err) &&
           finish_rope(c, ckpt, 1e4, GGUF_PAIRS, err);
}

static const rg_weight_spec weights[] = {
    WEIGHTS_OUTER("model.transformer.wte", "model.transformer.ln_f", "model.transformer.ff_out"),
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "attn_norm", "attn_norm", { DIM } },
    WEIGHTS_GQA_OF(GGUF_PAIRS, "q_proj", "k_proj", "v_proj", "attn_out"),
    { W_FFN_NORM, "ff_norm", "ffn_norm", { DIM } },
    { W_GATE_PROJ, "ff_proj", "ffn_gate", { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_UP_PROJ, "up_proj", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_DOWN_PROJ, "ff_out", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS },
    { 0 },
};

const rg_arch rg_arch_llada = {
    .hf_name = "LLaDAModelLM", .hf_type = "llada", .gguf_name = "llada", .hf_prefix = "model.transformer.blocks.",
    RG_KEYS(keys), .finish = finish, .harmless = harmless, .weights = weights, RG_KIND(layer_weights, keep_kv, block),
    .put_gguf = put_gguf_diffusion,
};
