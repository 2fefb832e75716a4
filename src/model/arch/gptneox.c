/* gptneox.c -- GPT-NeoX (Black et al. 2022) and Pythia: attention and MLP side by side, LayerNorm with biases, rope on
 * a part of each head, q, k and v of a head in one tensor. */
#include "model/arch/parts.h"

enum { PARALLEL, IN_TURN }; /* kinds of layer */

typedef struct settings {
    bool parallel;
} settings;

static void block_parallel(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM), *g = normed(f, l, x, W_FFN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                                         /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);                  /* x += o_proj a */
    rg_linear_add(f, x, mlp(f, l, g), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj gelu(up_proj g) */
}

/* Older models: one half after the other. */
static void block_in_turn(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* gelu(up_proj h): [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", 2048 },
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", 64 },
    KEY_FFN(24576), KEY_LAYER_NORM_EPS("layer_norm_eps", 1e-5), KEY_TIED(0), KEY_ATTN_BIAS(1),
    { RG_OWN_AT(settings, parallel), KEY_BOOL, "use_parallel_residual", "use_parallel_residual", 1 },
};

static const char *const harmless[] = { "classifier_dropout", "is_decoder", "attention_probs_dropout_prob",
                                        "hidden_dropout_prob", NULL };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    finish_optional(c, ckpt);
    c->layer_norm = c->mlp_bias = true;
    if (c->from_gguf)
        c->attn_bias = rg_checkpoint_find(ckpt, "blk.0.attn_qkv.bias");
    c->o_bias = c->attn_bias;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = RG_OWN(c, settings)->parallel ? PARALLEL : IN_TURN;
    return finish_heads(c, err) && finish_act(c, ckpt, "hidden_act", RG_GELU, err) &&
           finish_rope_as(c, ckpt, &(rope_defaults){ .theta = 1e4, .theta_key = "rotary_emb_base", .part = 0.25,
                                                     .part_key = "rotary_pct" }, err);
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "gpt_neox.embed_in", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },
    WEIGHTS_LAYER_NORM(W_FINAL_NORM, "gpt_neox.final_layer_norm", "output_norm"),
    { W_LM_HEAD, "embed_out", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_PRE_NORM_BIASES, WEIGHTS_QKV_GROUPS("attention.query_key_value"),
    WEIGHTS_O("attention.dense"), WEIGHTS_UP_DOWN("mlp.dense_h_to_4h", "mlp.dense_4h_to_h"), { 0 },
};

/* Masks of the attention, which older directories hold. */
static const char *const ignored[] = { ".attention.bias", ".attention.masked_bias", NULL };

static const rg_layer_kind kinds[] = {
    [PARALLEL] = { layer_weights, keep_kv, block_parallel },
    [IN_TURN] = { layer_weights, keep_kv, block_in_turn },
};

const rg_arch rg_arch_gptneox = {
    .hf_name = "GPTNeoXForCausalLM", .hf_type = "gpt_neox", .gguf_name = "gptneox", .hf_prefix = "gpt_neox.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .ignored = ignored,
    .weights = weights, RG_KINDS(kinds), .put_gguf = put_gguf_decoder,
};
