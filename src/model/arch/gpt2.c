/* gpt2.c -- GPT-2 (Radford et al. 2019): learned positions, LayerNorm with biases, an MLP without a gate.
 *
 * Hugging Face stores the layers' matrices as [in, out], GGUF as [out, in]. */
#include "model/arch/gpt2.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h);  /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* gelu(up_proj h): [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

const char *const gpt2_harmless[] = {
    "attn_pdrop", "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type",
    "summary_use_proj", "reorder_and_upcast_attn", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
    "gradient_checkpointing", "n_ctx", NULL,
};

SIZE(POSITIONS, c->n_positions)

bool finish_gpt2(rg_config *c, const rg_checkpoint *ckpt, rg_activation activation, rg_error *err)
{
    bool scaled = true;

    finish_optional(c, ckpt);
    c->layer_norm = c->attn_bias = c->o_bias = c->mlp_bias = true;
    c->n_positions = c->max_seq_len;
    if (!c->ffn_dim)
        c->ffn_dim = 4 * c->dim;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].rope = -1;
    if (rg_config_flag(ckpt, "scale_attn_weights", &scaled, err) < 0)
        return false;
    if (!scaled)
        c->attn_scale = 1;
    return require_false(ckpt, "scale_attn_by_inverse_layer_idx", err) &&
           require_false(ckpt, "add_cross_attention", err) && finish_heads(c, err) &&
           finish_act(c, ckpt, "activation_function", activation, err);
}

void embed_gpt2(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_embed(f, x, l->w[W_EMBED_TOKENS], 1);
    rg_embed_positions(f, x, l->w[W_EMBED_POSITIONS], 0);
}

bool put_gguf_gpt2(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    (void)w;
    if (c->attn_scale == 1 && c->head_dim != 1)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for scale_attn_weights: false");
    return true;
}

static const rg_key keys[] = { KEYS_GPT2 };

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    return finish_gpt2(c, ckpt, RG_GELU_TANH, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_GPT2, { 0 } };

#define QKV(first) SPLIT_ROWS, .stored = { QKV_DIM, DIM }, .first_row = first, .transposed = true
#define QKV_BIAS(first) SPLIT_ROWS, .stored = { QKV_DIM }, .first_row = first

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_LAYER_NORM(W_ATTN_NORM, "ln_1", "attn_norm"),
    { W_Q_PROJ, "attn.c_attn", "attn_qkv", { Q_DIM, DIM }, QKV(ROW_0) },
    { W_K_PROJ, "attn.c_attn", "attn_qkv", { KV_DIM, DIM }, QKV(ROW_OF_K) },
    { W_V_PROJ, "attn.c_attn", "attn_qkv", { KV_DIM, DIM }, QKV(ROW_OF_V) },
    { W_Q_BIAS, "attn.c_attn.bias", "attn_qkv.bias", { Q_DIM }, QKV_BIAS(ROW_0) },
    { W_K_BIAS, "attn.c_attn.bias", "attn_qkv.bias", { KV_DIM }, QKV_BIAS(ROW_OF_K) },
    { W_V_BIAS, "attn.c_attn.bias", "attn_qkv.bias", { KV_DIM }, QKV_BIAS(ROW_OF_V) },
    { W_O_PROJ, "attn.c_proj", "attn_output", { DIM, Q_DIM }, SPLIT_COLS, .transposed = true },
    { W_O_BIAS, "attn.c_proj.bias", "attn_output.bias", { DIM } },
    WEIGHTS_LAYER_NORM(W_FFN_NORM, "ln_2", "ffn_norm"),
    { W_UP_PROJ, "mlp.c_fc", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS, .transposed = true },
    { W_UP_BIAS, "mlp.c_fc.bias", "ffn_up.bias", { FFN_DIM }, SPLIT_ROWS },
    { W_DOWN_PROJ, "mlp.c_proj", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS, .transposed = true },
    { W_DOWN_BIAS, "mlp.c_proj.bias", "ffn_down.bias", { DIM } },
    { 0 },
};

/* Masks of the attention, which older directories hold. */
static const char *const ignored[] = { ".attn.bias", ".attn.masked_bias", NULL };

const rg_arch rg_arch_gpt2 = {
    .hf_name = "GPT2LMHeadModel", .hf_type = "gpt2", .gguf_name = "gpt2", .hf_prefix = "transformer.h.", RG_KEYS(keys),
    .finish = finish, .harmless = gpt2_harmless, .ignored = ignored, .weights = weights,
    RG_KIND(layer_weights, keep_kv, block), .embed = embed_gpt2, .put_gguf = put_gguf_gpt2,
};
