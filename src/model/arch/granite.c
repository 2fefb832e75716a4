/* granite.c -- Granite 3 (IBM 2024): the Llama block with multipliers of the embedding, of q . k (instead of 1 /
 * sqrt(head_dim)), of what each half of a layer adds, and a divisor of the logits. */
#include "model/arch/parts.h"

typedef struct settings {
    float attention, embedding, residual, logits;
} settings;

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const float r = RG_OWN(l->c, settings)->residual;
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    add_scaled(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS], r); /* x += r o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* silu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    add_scaled(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS], r); /* x += r down_proj g */
}

static const rg_key keys[] = {
    KEYS_GQA(2048, 32, 0, 0), KEY_FFN(11008), KEY_RMS_EPS(1e-6), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
    { RG_OWN_AT(settings, attention), KEY_FLOAT, "attention_multiplier", "attention.scale", 1 },
    { RG_OWN_AT(settings, embedding), KEY_FLOAT, "embedding_multiplier", "embedding_scale", 1 },
    { RG_OWN_AT(settings, residual), KEY_FLOAT, "residual_multiplier", "residual_scale", 1 },
    { RG_OWN_AT(settings, logits), KEY_FLOAT, "logits_scaling", "logit_scale", 1 },
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const settings *s = RG_OWN(c, settings);

    if (s->attention == 0 || s->logits == 0)
        return rg_fail(err, RG_E_INPUT, "%s: attention_multiplier %g, logits_scaling %g: neither may be 0",
                       rg_checkpoint_path(ckpt), (double)s->attention, (double)s->logits);
    c->attn_scale = (double)s->attention;
    c->embed_scale = (double)s->embedding;
    c->logit_scale = 1.0f / s->logits;
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_rope(c, ckpt, 1e4, GGUF_PAIRS, err) && require_silu(ckpt, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_rope(c, w, err) && put_gguf_int(c, w, "rope.dimension_count", c->ropes[0].dim, err);
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS), WEIGHTS_MLP, WEIGHTS_MLP_BIASES, { 0 },
};

const rg_arch rg_arch_granite = {
    .hf_name = "GraniteForCausalLM", .hf_type = "granite", .gguf_name = "granite", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .weights = decoder_weights_and_freqs,
    RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
