/* llama4.c -- Llama 4 (Meta 2025): the Llama block, whose layers with a rope see chunks of the text and norm q and k
 * without weights, and whose other layers see all and scale q by the position; experts in every n-th layer, weighed by
 * the sigmoid of their score in front of them, beside a shared one.
 *
 * Published files hold it beside a vision model.  GGUF has no keys for the size of chunks and the scale of q. */
#include <stdio.h>

#include "model/arch/parts.h"

enum { DENSE, EXPERTS }; /* kinds of layer */

typedef struct settings {
    bool scales_q; /* in layers without a rope q *= 1 + beta log(1 + floor((position + 1) / period)) */
    int period;
    float beta;
    bool qk_norm; /* in layers with one q and k are normed without weights */
    int rope_period, expert_period, chunk; /* chunk 0: rows see all */
} settings;

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const settings *s = RG_OWN(l->c, settings);
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    const qkv p = project(f, l, h); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rotate(f, l, &p);
    if (l->rope && s->qk_norm) {
        rg_rmsnorm_plain(f, p.k, p.k, l->c->head_dim, l->c->norm_eps);
        rg_rmsnorm_plain(f, p.q, p.q, l->c->head_dim, l->c->norm_eps);
    }
    if (!l->rope && s->scales_q)
        rg_scale_by_position(f, p.q, s->beta, s->period, 1);
    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */

    h = normed(f, l, x, W_FFN_NORM);
    mlp_or_experts(f, l, x, h);
}

static const rg_key keys[] = {
    KEYS_GQA(131072, 40, 8, 128), KEY_RMS_EPS(1e-5), KEY_TIED(0), KEY_ATTN_BIAS(0),
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size_mlp", NULL, 16384 },
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "intermediate_size", NULL, 8192 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "num_local_experts", NULL, 16 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", NULL, 1 },
    { RG_OWN_AT(settings, qk_norm), KEY_BOOL, "use_qk_norm", NULL, 1 },
    { RG_OWN_AT(settings, beta), KEY_FLOAT, "attn_scale", NULL, 0.1 },
    { RG_OWN_AT(settings, period), KEY_INT, "floor_scale", NULL, 8192 },
    { RG_OWN_AT(settings, rope_period), KEY_INT, "no_rope_layer_interval", NULL, 4 },
    { RG_OWN_AT(settings, expert_period), KEY_INT, "interleave_moe_layer_step", NULL, 1 },
    { RG_OWN_AT(settings, chunk), KEY_INT, "attention_chunk_size", NULL, 8192, .null = NULL_IS_ZERO },
};

static const char *const harmless[] = { "for_llm_compressor", "cache_implementation", NULL };

/* Whether queries are scaled, which files say by true or by a number. */
static bool read_scaled(const rg_checkpoint *ckpt, bool *scaled, rg_error *err)
{
    static const char key[] = "attn_temperature_tuning";
    int64_t n = 1;

    *scaled = true;
    if (rg_meta_type_of(ckpt, key) != RG_META_INT)
        return rg_config_flag(ckpt, key, scaled, err) >= 0;
    if (rg_config_int(ckpt, key, 0, INT32_MAX, &n, err) < 0)
        return false;
    *scaled = n != 0;
    return true;
}

/* A 0 in no_rope_layers means that the layer has no rope; an empty list, that every n-th has none. */
static bool finish_ropes(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    settings *s = RG_OWN_EDIT(c, settings);
    const int period = s->rope_period;
    const int32_t *has_rope = NULL;
    size_t n = 0;

    if (rg_meta_ints(ckpt, "no_rope_layers", &has_rope, &n, err) < 0 || !read_scaled(ckpt, &s->scales_q, err))
        return false;
    if ((n && n != (size_t)c->n_layers) || period < 1)
        return rg_fail(err, RG_E_INPUT, "%s: no_rope_layers has %zu entries for %d layers, and no_rope_layer_interval "
                       "is %d", rg_checkpoint_path(ckpt), n, c->n_layers, period);
    if (s->scales_q && s->period < 1)
        return rg_fail(err, RG_E_INPUT, "%s: floor_scale is %d", rg_checkpoint_path(ckpt), s->period);
    for (int i = 0; i < c->n_layers; i++)
        c->layer[i].rope = (n ? has_rope[i] != 0 : (i + 1) % period != 0) ? 0 : -1;
    return true;
}

/* Chunks in the layers that layer_types names, or in those with a rope. */
static bool finish_chunks(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const types[] = { "chunked_attention", "full_attention", NULL };
    const int chunk = RG_OWN(c, settings)->chunk;
    char key[48];
    int which;

    if (!chunk)
        return true;
    if (c->n_heads > RG_SIGHT_HEADS)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: attention in chunks of %d heads; at most %d are supported",
                       rg_checkpoint_path(ckpt), c->n_heads, RG_SIGHT_HEADS);
    c->n_patterns = 1;
    c->patterns[0] = (rg_patterns){ .n_patterns = 1, .patterns = { { 1, { { RG_TERM_CHUNK, chunk, 1 } } } } };
    for (int i = 0; i < c->n_layers; i++) {
        snprintf(key, sizeof key, "layer_types.%d", i);
        if (!rg_config_choice(ckpt, key, types, &which, err))
            return false;
        c->layer[i].pattern = which == 0 || (which < 0 && c->layer[i].rope >= 0) ? 0 : -1;
    }
    return true;
}

/* Experts in the layers of moe_layers, or in every n-th. */
static bool finish_experts(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int period = RG_OWN(c, settings)->expert_period;
    const int32_t *with = NULL;
    size_t n = 0;
    int got = rg_meta_ints(ckpt, "moe_layers", &with, &n, err);

    if (got < 0)
        return false;
    if (period < 1)
        return rg_fail(err, RG_E_INPUT, "%s: interleave_moe_layer_step is %d", rg_checkpoint_path(ckpt), period);
    for (int i = 0; i < c->n_layers && !got; i++)
        c->layer[i].kind = (i + 1) % period == 0 ? EXPERTS : DENSE;
    for (size_t k = 0; k < n; k++) {
        if (with[k] < 0 || with[k] >= c->n_layers)
            return rg_fail(err, RG_E_INPUT, "%s: moe_layers.%zu is %d; there are %d layers", rg_checkpoint_path(ckpt),
                           k, with[k], c->n_layers);
        c->layer[with[k]].kind = EXPERTS;
    }
    c->routing.score = RG_SCORE_SIGMOID;
    c->routing.scale = 1;
    c->routing.weigh_input = true;
    c->n_shared_experts = 1;
    return finish_routing(c, err);
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->o_bias = c->attn_bias;
    if (!finish_heads(c, err) || !finish_rope(c, ckpt, 5e5, GGUF_PAIRS, err) || !finish_ropes(c, ckpt, err) ||
        !finish_chunks(c, ckpt, err) || !finish_experts(c, ckpt, err) || !require_silu(ckpt, err))
        return false;
    c->ropes[0].interleaved = true;
    return true;
}

static const rg_weight_spec dense_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS),
    WEIGHTS_MLP_OF("feed_forward", "gate_proj", "up_proj", "down_proj"), { 0 },
};

#define GATE_UP(first) .stored = { N_EXPERTS, MOE_DIM_2, DIM }, .first_row = first, .transposed = true

static const rg_weight_spec expert_weights[] = {
    WEIGHTS_PRE_NORMS, WEIGHTS_GQA(GGUF_PAIRS),
    { W_ROUTER, "feed_forward.router", NULL, { N_EXPERTS, DIM } },
    { W_GATE_EXPERTS, "feed_forward.experts.gate_up_proj", NULL, { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,
      GATE_UP(ROW_0) },
    { W_UP_EXPERTS, "feed_forward.experts.gate_up_proj", NULL, { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,
      GATE_UP(MOE_DIM) },
    { W_DOWN_EXPERTS, "feed_forward.experts.down_proj", NULL, { N_EXPERTS, DIM, MOE_DIM }, SPLIT_COLS,
      .transposed = true },
    WEIGHTS_SHARED("feed_forward.shared_expert"), { 0 },
};

static const rg_layer_kind kinds[] = {
    [DENSE] = { dense_weights, keep_kv, block },
    [EXPERTS] = { expert_weights, keep_kv, block },
};

const rg_arch rg_arch_llama4 = {
    .hf_name = "Llama4ForCausalLM", .hf_type = "llama4_text", .hf_type_too = { "llama4" }, .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(settings), .finish = finish, .harmless = harmless, .weights = decoder_weights,
    RG_KINDS(kinds),
};
