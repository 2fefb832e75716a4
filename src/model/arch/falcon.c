/* falcon.c -- Falcon (2023): attention and MLP side by side, by one LayerNorm (7B) or one each (40B); q, k and v in one
 * tensor, of one K/V head (7B), of several (40B), or of as many as query heads; exact GELU. */
#include "model/arch/parts.h"

enum { ONE_NORM, NORM_EACH, IN_TURN }; /* kinds of layer */

static void block_parallel(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    rg_act *g = l->w[W_FFN_NORM] ? normed(f, l, x, W_FFN_NORM) : h;
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                                         /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);                  /* x += o_proj a */
    rg_linear_add(f, x, mlp(f, l, g), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj gelu(up_proj g) */
}

/* One half after the other. */
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

typedef struct settings {
    bool grouped, one_kv_head, parallel; /* grouped: K/V heads by number */
    int kv_heads, n_norms;               /* n_norms: in front of halves side by side, 1 or 2 */
    bool has_bias;
} settings;

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", 2048 },
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", 71, { "n_head" } },
    { offsetof(rg_config, n_kv_heads), KEY_INT, NULL, "attention.head_count_kv", 0 },
    { offsetof(rg_config, ffn_dim), KEY_INT, "ffn_hidden_size", "feed_forward_length", 0 },
    KEY_LAYER_NORM_EPS("layer_norm_epsilon", 1e-5), KEY_TIED(1),
    { RG_OWN_AT(settings, grouped), KEY_BOOL, "new_decoder_architecture", NULL, 0 },
    { RG_OWN_AT(settings, one_kv_head), KEY_BOOL, "multi_query", NULL, 1 },
    { RG_OWN_AT(settings, parallel), KEY_BOOL, "parallel_attn", NULL, 1 },
    { RG_OWN_AT(settings, kv_heads), KEY_INT, "num_kv_heads", NULL, 0, { "n_head_kv" } },
    { RG_OWN_AT(settings, n_norms), KEY_INT, "num_ln_in_parallel_attn", NULL, 0 },
    { RG_OWN_AT(settings, has_bias), KEY_BOOL, "bias", NULL, 0 },
};

static const char *const harmless[] = { "apply_residual_connection_post_layernorm", NULL };

/* What GGUF says by its tensors. */
static void finish_gguf(rg_config *c, const rg_checkpoint *ckpt)
{
    settings *s = RG_OWN_EDIT(c, settings);

    s->has_bias = rg_checkpoint_find(ckpt, "blk.0.attn_qkv.bias");
    s->n_norms = rg_checkpoint_find(ckpt, "blk.0.attn_norm_2.weight") ? 2 : 1;
    s->parallel = s->n_norms == 2 || !rg_checkpoint_find(ckpt, "blk.0.ffn_norm.weight");
    s->grouped = true;
    s->kv_heads = c->n_kv_heads;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);

    c->layer_norm = true;
    finish_optional(c, ckpt);
    if (c->from_gguf)
        finish_gguf(c, ckpt);
    if (!s->n_norms)
        s->n_norms = s->grouped ? 2 : 1;
    if (s->n_norms > 2 || (s->n_norms == 2 && !s->grouped))
        return rg_fail(err, RG_E_UNSUPPORTED,
                       "%s: num_ln_in_parallel_attn is %d, which is not supported (supported: 1, and 2 with "
                       "new_decoder_architecture)", rg_checkpoint_path(ckpt), s->n_norms);
    if (!c->ffn_dim)
        c->ffn_dim = 4 * c->dim;
    c->n_kv_heads = s->grouped ? s->kv_heads : s->one_kv_head ? 1 : c->n_heads;
    c->attn_bias = c->o_bias = c->mlp_bias = s->has_bias;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].kind = s->n_norms == 2 ? NORM_EACH : s->parallel ? ONE_NORM : IN_TURN;
    return require_false(ckpt, "alibi", err) && finish_heads(c, err) &&
           finish_act(c, ckpt, "activation", RG_GELU, err) && finish_rope(c, ckpt, 1e4, GGUF_HALVES, err);
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "transformer.word_embeddings", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },
    WEIGHTS_LAYER_NORM(W_FINAL_NORM, "transformer.ln_f", "output_norm"),
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

#define PRODUCTS                                                                                                       \
    WEIGHTS_QKV_GROUPS("self_attention.query_key_value"), WEIGHTS_O("self_attention.dense"),                           \
        WEIGHTS_UP_DOWN("mlp.dense_h_to_4h", "mlp.dense_4h_to_h")

static const rg_weight_spec one_norm[] = {
    WEIGHTS_LAYER_NORM(W_ATTN_NORM, "input_layernorm", "attn_norm"), PRODUCTS, { 0 },
};
static const rg_weight_spec norm_each[] = {
    WEIGHTS_LAYER_NORM(W_ATTN_NORM, "ln_attn", "attn_norm_2"),
    WEIGHTS_LAYER_NORM(W_FFN_NORM, "ln_mlp", "attn_norm"), PRODUCTS, { 0 },
};
static const rg_weight_spec in_turn[] = { WEIGHTS_PRE_NORMS, WEIGHTS_PRE_NORM_BIASES, PRODUCTS, { 0 } };

static const rg_layer_kind kinds[] = {
    [ONE_NORM] = { one_norm, keep_kv, block_parallel },
    [NORM_EACH] = { norm_each, keep_kv, block_parallel },
    [IN_TURN] = { in_turn, keep_kv, block_in_turn },
};

const rg_arch rg_arch_falcon = {
    .hf_name = "FalconForCausalLM", .hf_type = "falcon", .gguf_name = "falcon", .hf_prefix = "transformer.h.",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = weights,
    RG_KINDS(kinds), .put_gguf = put_gguf_decoder,
};
