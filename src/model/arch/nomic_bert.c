/* nomic_bert.c -- Nomic BERT (Nussbaum et al. 2024): BERT with rotated positions, SiLU gates, q, k and v in one tensor,
 * and usually no biases but those of its norms.  config.json has two spellings: that of transformers, and the published
 * files' own, after GPT-2. */
#include "model/arch/encoder.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const qkv p = project(f, l, x); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);

    rg_act *a = attention(f, l, &p); /* over all rows of the sequence: [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    norm_into(f, l, x, x, W_ATTN_NORM); /* x = norm(x + o_proj a) */

    rg_act *g = mlp(f, l, x); /* silu(gate_proj x) * up_proj x: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    norm_into(f, l, x, x, W_FFN_NORM); /* x = norm(x + down_proj g) */
}

typedef struct settings {
    encoder_settings base; /* first */
    bool fc1_bias, fc2_bias;
} settings;

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", 2048,
      { "max_trained_positions", "n_positions" } },
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", 12, { "n_head" } },
    { offsetof(rg_config, head_dim), KEY_INT, "head_dim", NULL, 0 },
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", 3072, { "n_inner" } },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "layer_norm_eps", "attention.layer_norm_epsilon", 1e-12,
      { "layer_norm_epsilon" } },
    { offsetof(rg_config, attn_bias), KEY_BOOL, "qkv_proj_bias", NULL, 0 },
    { RG_OWN_AT(settings, fc1_bias), KEY_BOOL, "mlp_fc1_bias", NULL, 0 },
    { RG_OWN_AT(settings, fc2_bias), KEY_BOOL, "mlp_fc2_bias", NULL, 0 },
    KEY_TYPES(2),
};

static const char *const harmless[] = {
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "tie_word_embeddings", "attn_pdrop",
    "n_positions", "use_flash_attn", "fused_bias_fc", "fused_dropout_add_ln", "use_xentropy", "dense_seq_output",
    "pad_vocab_size_multiple", "reorder_and_upcast_attn", "summary_activation", "summary_first_dropout",
    "summary_proj_to_labels", "summary_type", "summary_use_proj", "last_layer_subset", NULL,
};

/* The published spelling has settings of other models as well; they must have the values that this one has. */
static bool require_nomic(const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const off[] = {
        "causal", "prenorm", "parallel_block", "parallel_block_tied_norm", "rotary_emb_interleaved", "use_rms_norm",
        "scale_attn_by_inverse_layer_idx",
    };
    static const char *const swiglu[] = { "swiglu", NULL };
    double part = 1;

    for (size_t i = 0; i < RG_LEN(off); i++)
        if (!require_false(ckpt, off[i], err))
            return false;
    if (!require_true(ckpt, "scale_attn_weights", err) || rg_config_float(ckpt, "rotary_emb_fraction", &part, err) < 0)
        return false;
    if (part != 1)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: rotary_emb_fraction is %g, which is not supported",
                       rg_checkpoint_path(ckpt), part);
    if (rg_meta_type_of(ckpt, "rotary_emb_scale_base") > RG_META_NULL)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: rotary_emb_scale_base is set, which is not supported",
                       rg_checkpoint_path(ckpt));
    rg_meta_understand(ckpt, "rotary_emb_scale_base");
    rg_meta_understand(ckpt, "rotary_scaling_factor"); /* beyond the trained positions, which no sequence is */
    return require_choice(ckpt, "activation_function", swiglu, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *own = RG_OWN_EDIT(c, settings);
    double theta = 1000;
    int64_t experts = 0;
    char key[128];

    c->layer_norm = true;
    if (c->from_gguf ? rg_meta_int(ckpt, rg_gguf_key(ckpt, "expert_count", key), 0, 0, &experts, err) < 0
                     : rg_config_float(ckpt, "rotary_emb_base", &theta, err) < 0 || !require_nomic(ckpt, err))
        return false;
    if (c->from_gguf) {
        c->attn_bias = rg_checkpoint_find(ckpt, "blk.0.attn_qkv.bias");
        own->fc1_bias = rg_checkpoint_find(ckpt, "blk.0.ffn_up.bias");
        own->fc2_bias = rg_checkpoint_find(ckpt, "blk.0.ffn_down.bias");
    }
    c->o_bias = c->attn_bias && rg_checkpoint_find(ckpt, c->from_gguf ? "blk.0.attn_output.bias"
                                                                      : "encoder.layers.0.attn.out_proj.bias");
    return finish_encoder(c, ckpt, err) && finish_rope(c, ckpt, theta, GGUF_HALVES, err) && require_silu(ckpt, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_int(c, w, "expert_count", 0, err) && put_gguf_encoder(c, w, err) && put_gguf_rope(c, w, err);
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "embeddings.word_embeddings", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },
    { W_EMBED_TYPES, "embeddings.token_type_embeddings", "token_types", { N_TYPES, DIM }, .table = true,
      .when = when_types },
    { W_EMBED_NORM, "emb_ln", "token_embd_norm", { DIM } },
    { W_EMBED_NORM_BIAS, "emb_ln.bias", "token_embd_norm.bias", { DIM } },
    { 0 },
};

static WHEN(when_fc1_bias, RG_OWN(c, settings)->fc1_bias)
static WHEN(when_fc2_bias, RG_OWN(c, settings)->fc2_bias)

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_QKV("attn.Wqkv"), WEIGHTS_O("attn.out_proj"),
    { W_ATTN_NORM, "norm1", "attn_output_norm", { DIM } },
    { W_ATTN_NORM_BIAS, "norm1.bias", "attn_output_norm.bias", { DIM } },
    WEIGHTS_MLP_OF("mlp", "fc12", "fc11", "fc2"),
    { W_GATE_BIAS, "mlp.fc12.bias", "ffn_gate.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_fc1_bias },
    { W_UP_BIAS, "mlp.fc11.bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS, .when = when_fc1_bias },
    { W_DOWN_BIAS, "mlp.fc2.bias", "ffn_down.bias", { DIM }, .when = when_fc2_bias },
    { W_FFN_NORM, "norm2", "layer_output_norm", { DIM } },
    { W_FFN_NORM_BIAS, "norm2.bias", "layer_output_norm.bias", { DIM } },
    { 0 },
};

const rg_arch rg_arch_nomic_bert = {
    .hf_type = "nomic_bert", .gguf_name = "nomic-bert", .hf_prefix = "encoder.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = weights,
    RG_KIND(layer_weights, keep_kv, block), .embed = embed_encoder, .norm = norm_nothing, .is_encoder = true,
    .put_gguf = put_gguf,
};
