/* phi3.c -- Phi-3 (2024): the Llama block, with q, k and v in one tensor, and gate and up in another. */
#include "model/arch/parts.h"

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

typedef struct settings {
    int original_max_seq_len; /* of a rope with factors for longer sequences */
} settings;

static const rg_key keys[] = {
    KEYS_GQA(4096, 32, 0, 0), KEY_FFN(8192), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_WINDOW(0),
    { RG_OWN_AT(settings, original_max_seq_len), KEY_INT, "original_max_position_embeddings",
      "rope.scaling.original_context_length", 4096 },
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    rg_rope_config *r = &c->ropes[0];

    finish_optional(c, ckpt);
    if (!finish_heads(c, err) || !finish_windows(c, ckpt, 0, 0, err) ||
        !finish_rope(c, ckpt, 1e4, GGUF_HALVES, err) || !require_silu(ckpt, err))
        return false;
    /* config.json's key beside the rope counts before that in it. */
    if ((!r->original_max_seq_len || !c->from_gguf) && RG_OWN(c, settings)->original_max_seq_len)
        r->original_max_seq_len = RG_OWN(c, settings)->original_max_seq_len;
    return true;
}

static WHEN(when_long_factors, c->from_gguf && c->ropes[0].type == RG_ROPE_LONG)

/* Other engines need the window's key even if there is no window. */
static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const rg_rope_config *r = &c->ropes[0];

    if (r->type == RG_ROPE_LONG && rg_long_factor(r, 0) != rg_long_factor(r, 1))
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has one key for short_mscale %g and long_mscale %g",
                       rg_long_factor(r, 0), rg_long_factor(r, 1));
    return put_gguf_decoder(c, w, err) && (c->window || put_gguf_int(c, w, "attention.sliding_window", 0, err)) &&
           (r->type != RG_ROPE_LONG || put_gguf_float(c, w, "rope.scaling.attn_factor", rg_long_factor(r, 0), err));
}

static const rg_weight_spec weights[] = {
    WEIGHTS_DECODER,
    { W_ROPE_SHORT, NULL, "rope_factors_short", { ROPE_PAIRS }, .when = when_long_factors },
    { W_ROPE_LONG, NULL, "rope_factors_long", { ROPE_PAIRS }, .when = when_long_factors },
    { 0 },
};

#define QKV .stored = { QKV_DIM, DIM }
#define GATE_UP .stored = { FFN_DIM_2, DIM }

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS,
    { W_Q_PROJ, "self_attn.qkv_proj", "attn_qkv", { Q_DIM, DIM }, SPLIT_ROWS, QKV, .first_row = ROW_0 },
    { W_K_PROJ, "self_attn.qkv_proj", "attn_qkv", { KV_DIM, DIM }, SPLIT_ROWS, QKV, .first_row = ROW_OF_K },
    { W_V_PROJ, "self_attn.qkv_proj", "attn_qkv", { KV_DIM, DIM }, SPLIT_ROWS, QKV, .first_row = ROW_OF_V },
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, Q_DIM }, SPLIT_COLS },
    { W_GATE_PROJ, "mlp.gate_up_proj", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS, GATE_UP, .first_row = ROW_0 },
    { W_UP_PROJ, "mlp.gate_up_proj", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS, GATE_UP, .first_row = FFN_DIM },
    { W_DOWN_PROJ, "mlp.down_proj", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS },
    { 0 },
};

const rg_arch rg_arch_phi3 = {
    .hf_name = "Phi3ForCausalLM", .hf_type = "phi3", .gguf_name = "phi3", .hf_prefix = "model.layers.", RG_KEYS(keys),
    .own_bytes = sizeof(settings), .finish = finish, .weights = weights, RG_KIND(layer_weights, keep_kv, block),
    .put_gguf = put_gguf,
};
