/* mamba2.c -- Mamba-2 (Dao & Gu 2024): a norm, then its mixer, in every layer. */
#include "model/arch/ssd.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *y = mamba2(f, l, normed(f, l, x, W_ATTN_NORM)); /* [rows, inner width] */

    rg_linear_add(f, x, y, l->w[W_SSD_OUT], l->w[W_SSD_OUT_BIAS]); /* x += out_proj y */
}

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, NULL, "context_length", 1048576 },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "layer_norm_epsilon", "attention.layer_norm_rms_epsilon", 1e-5 },
    KEY_TIED(0), KEY_SSD_HEADS("num_heads", 128), KEY_SSD_STATE("state_size", 128), KEY_SSD_GROUPS("n_groups", 8),
    KEY_SSD_CONV("conv_kernel", 4), KEY_SSD_CONV_BIAS("use_conv_bias"), KEY_SSD_BIAS("use_bias"),
};

/* norm_before_gate: published files say true, and every implementation gates first, as the models were trained.
 * time_step_rank is the number of heads. */
static const char *const harmless[] = {
    SSD_HARMLESS, "norm_before_gate", "time_step_rank", "time_step_init_scheme", "time_step_scale", NULL,
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const ssd_width width = { "head_dim", 64, "intermediate_size", "expand" };
    char key[128];

    if (c->from_gguf) {
        c->tie_embeddings = !rg_checkpoint_find(ckpt, "output.weight");
        rg_meta_understand(ckpt, rg_gguf_key(ckpt, "feed_forward_length", key));
        rg_meta_understand(ckpt, rg_gguf_key(ckpt, "attention.head_count", key));
    }
    return finish_ssd(c, ckpt, &width, err) && require_silu(ckpt, err) && require_true(ckpt, "rms_norm", err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_int(c, w, "feed_forward_length", 0, err) && put_gguf_int(c, w, "attention.head_count", 0, err) &&
           put_gguf_ssd(c, w, err);
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "backbone.embeddings", "token_embd", { VOCAB, DIM }, SPLIT_ROWS,
      .hf_else = "backbone.embedding" },
    { W_FINAL_NORM, "backbone.norm_f", "output_norm", { DIM } },
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "norm", "attn_norm", { DIM } }, WEIGHTS_SSD("mixer."), { 0 },
};

const rg_arch rg_arch_mamba2 = {
    .hf_name = "Mamba2ForCausalLM", .hf_type = "mamba2", .gguf_name = "mamba2", .hf_prefix = "backbone.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(ssd_settings), .finish = finish, .harmless = harmless, .weights = weights,
    RG_KIND(layer_weights, keep_ssd, block), .put_gguf = put_gguf,
};
