/* ministral3.c -- Ministral 3 (2025): the Llama block, whose queries grow with the position beyond the context that
 * YaRN stretched: q *= 1 + beta log(1 + floor(position / original context)). */
#include "model/arch/parts.h"

typedef struct settings {
    float beta; /* 0: queries do not grow */
    int period;
} settings;

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const settings *s = RG_OWN(l->c, settings);
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    if (s->period)
        rg_scale_by_position(f, p.q, s->beta, s->period, 0);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *g = mlp(f, l, h);                                     /* silu(gate_proj h) * up_proj h: [rows, ffn_dim] */
    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = {
    KEYS_GQA(262144, 32, 8, 128), KEY_FFN(14336), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_WINDOW(0),
    { RG_OWN_AT(settings, beta), KEY_FLOAT, "rope_parameters.llama_4_scaling_beta", "attention.temperature_scale", 0,
      { "rope_scaling.llama_4_scaling_beta" } },
};

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);

    finish_optional(c, ckpt);
    if (!finish_heads(c, err) || !finish_windows(c, ckpt, 0, 0, err) ||
        !finish_rope(c, ckpt, 1e6, GGUF_PAIRS, err) || !require_silu(ckpt, err))
        return false;
    s->period = s->beta != 0 ? (int)c->ropes[0].original_max_seq_len : 0;
    return s->beta == 0 || s->period > 0 ||
           rg_fail(err, RG_E_INPUT, "%s: llama_4_scaling_beta %g needs original_max_position_embeddings",
                   rg_checkpoint_path(ckpt), (double)s->beta);
}

/* Here GGUF's yarn_log_multiplier is mscale_all_dim itself. */
static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (c->window)
        return no_gguf_key(err, "windows");
    return put_gguf_int(c, w, "attention.value_length", c->head_dim, err) &&
           put_gguf_int(c, w, "rope.dimension_count", c->ropes[0].dim, err) && put_gguf_rope_by(c, w, 1, err);
}

static const rg_weight_spec layer_weights[] = { WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS), WEIGHTS_MLP, { 0 } };
const rg_arch rg_arch_ministral3 = {
    .hf_name = "Ministral3ForCausalLM", .hf_type = "ministral3", .gguf_name = "mistral3", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .weights = decoder_weights_and_freqs,
    RG_KIND(layer_weights, keep_kv, block), .put_gguf = put_gguf,
};
