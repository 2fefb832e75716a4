/* smollm3.c -- SmolLM3 (2025): the Llama block, with every fourth layer (or those that no_rope_layers names) without
 * positions. */
#include <stdio.h>

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

enum { GGUF_PERIOD = 4 }; /* of the layers without a rope: GGUF has no key for it */

static const rg_key keys[] = {
    KEYS_GQA(32768, 16, 4, 0), KEY_FFN(11008), KEY_RMS_EPS(1e-6), KEY_TIED(1), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, window), KEY_INT, "sliding_window", NULL, 0 },
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
};

/* A 0 in no_rope_layers means that the layer has no rope. */
static bool finish_ropes(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int32_t *has_rope = NULL;
    int64_t period = GGUF_PERIOD;
    size_t n = 0;

    if (!c->from_gguf && (rg_meta_ints(ckpt, "no_rope_layers", &has_rope, &n, err) < 0 ||
                          rg_config_int(ckpt, "no_rope_layer_interval", 1, INT32_MAX, &period, err) < 0))
        return false;
    if (has_rope && !require_length(c, ckpt, "no_rope_layers", n, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].rope = (has_rope ? has_rope[i] != 0 : (i + 1) % period != 0) ? 0 : -1;
    return true;
}

/* Windows, where they are used, are those of layer_types; without it those of the layers that have no rope. */
static bool finish_windowed(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const rg_key row = { 0, KEY_BOOL, "use_sliding_window", NULL, 0 };
    bool used;

    if (c->from_gguf)
        return true;
    if (!rg_config_keys(&used, ckpt, &row, 1, err))
        return false;
    c->window = used ? c->window : 0;
    if (!finish_windows(c, ckpt, 0, 0, err) || !finish_ropes(c, ckpt, err))
        return false;
    for (int i = 0; i < c->n_layers && rg_meta_type_of(ckpt, "layer_types") != RG_META_ARRAY; i++)
        c->layer[i].window = c->layer[i].rope < 0 ? c->window : 0;
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    finish_optional(c, ckpt);
    return finish_heads(c, err) && finish_windowed(c, ckpt, err) && finish_ropes(c, ckpt, err) &&
           finish_rope(c, ckpt, 2e6, GGUF_PAIRS, err) && require_silu(ckpt, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    for (int i = 0; i < c->n_layers; i++)
        if ((c->layer[i].rope < 0) != ((i + 1) % GGUF_PERIOD == 0) || c->layer[i].window)
            return no_gguf_key(err, c->layer[i].window ? "windows" : "no_rope_layers other than every fourth");
    return put_gguf_rope(c, w, err) && put_gguf_int(c, w, "rope.dimension_count", c->ropes[0].dim, err);
}

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS), WEIGHTS_MLP, WEIGHTS_MLP_BIASES, { 0 },
};

const rg_arch rg_arch_smollm3 = {
    .hf_name = "SmolLM3ForCausalLM", .hf_type = "smollm3", .gguf_name = "smollm3", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .finish = finish, .weights = decoder_weights_and_freqs, RG_KIND(layer_weights, keep_kv, block),
    .put_gguf = put_gguf,
};
