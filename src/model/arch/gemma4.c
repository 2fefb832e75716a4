/* gemma4.c -- Gemma 4 (text): window layers and full ones with head sizes and K/V heads of their own; q and k normed by
 * weights, v without, and the scores not scaled; full layers rotate a part of the pairs, spread over the head, and may
 * take v from the key projection; the last layers may share K/V and have a wider MLP; a vector for each layer and
 * token; a factor on what leaves a layer.  With experts these run beside the MLP, on the residual, each of the two with
 * norms of its own.
 *
 * Norms are plain (w, not 1 + w), in GGUF as well. */
#include <stdio.h>
#include <string.h>

#include "model/arch/gemma4.h"

static void block(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    const gemma_per_layer *vectors = &RG_OWN(l->c, gemma4_settings)->per_layer;
    rg_act *h = normed(f, l, x, W_ATTN_NORM);
    qkv p = project(f, l, h); /* [rows, heads * head_dim], both as the layer has them */

    norm_values(f, l, &p); /* RMSNorm of each head of v, without weights; then of q and of k */
    norm_heads(f, l, &p);
    rotate(f, l, &p);
    rg_act *a = attention(f, l, &p); /* [rows, n_heads * head_dim] */
    rg_act *y = linear(f, "attn_out", a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], l->c->norm_eps);
    rg_add_to(f, x, y); /* x += norm(o_proj a) */

    h = normed(f, l, x, W_FFN_NORM);
    rg_act *z = linear(f, "ffn_out", mlp(f, l, h), l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    if (l->w[W_ROUTER])
        gemma4_experts(f, l, z, x);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], l->c->norm_eps);
    rg_add_to(f, x, z); /* x += norm(norm(mlp) + norm(experts)) */

    if (vectors->dim)
        rg_add_to(f, x, per_layer_part(f, l, x, vectors)); /* of the token's vector for this layer */
    rg_scale_columns(f, x, l->w[W_SCALAR]);
}

/* z = norm(z) + the experts of x, normed before and behind. */
void gemma4_experts(rg_fwd *f, const rg_layer *l, rg_act *z, const rg_act *x)
{
    const rg_config *c = l->c;
    rg_act *h = rg_act_new(f, "router_norm", c->dim), *y = rg_act_new(f, "experts_out", c->dim);
    rg_act *logits = rg_act_new(f, "router", c->routing.n_experts);
    rg_act *route = rg_act_new(f, "route", 2 * c->routing.n_used);

    rg_rmsnorm(f, h, x, l->w[W_ROUTER_NORM], c->norm_eps);
    rg_scale_by(f, h, 1.0f / __builtin_sqrtf((float)c->dim));
    rg_linear(f, logits, h, l->w[W_ROUTER], NULL);
    rg_route(f, route, logits, &c->routing, NULL, l->w[W_EXPERT_SCALE]);
    rg_rmsnorm(f, h, x, l->w[W_EXPERTS_NORM], c->norm_eps);
    rg_moe(f, y, h, route, &c->routing,
           &(rg_experts){ .gate = l->w[W_GATE_EXPERTS],
                          .up = l->w[W_UP_EXPERTS],
                          .down = l->w[W_DOWN_EXPERTS],
                          .act = c->act,
                          .alone = true });
    rg_rmsnorm(f, y, y, l->w[W_POST_EXPERTS_NORM], c->norm_eps);
    rg_rmsnorm(f, z, z, l->w[W_MLP_NORM], c->norm_eps);
    rg_add_to(f, z, y);
}

static const rg_key keys[] = { KEYS_GEMMA4(256, 0, 0, 0) };

/* ---- the config -------------------------------------------------------------------------------------------------- */

static bool is_full(const rg_config *c, int layer)
{
    return c->layer[layer].rope == 0;
}

static int head_dim_of(const rg_config *c, int layer)
{
    return is_full(c, layer) ? RG_OWN(c, gemma4_settings)->global_head_dim : c->head_dim;
}

static int kv_heads_of(const rg_config *c, int layer)
{
    return is_full(c, layer) ? RG_OWN(c, gemma4_settings)->global_kv_heads : c->n_kv_heads;
}

/* What an entry of "per_layer_config" says in place of the settings for all; every full layer must say the same. */
static bool read_layer_settings(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    gemma4_settings *own = RG_OWN_EDIT(c, gemma4_settings);
    bool first = true;
    char key[64];

    rg_meta_understand(ckpt, "global_head_dim"); /* says nothing beside it */
    for (int i = 0; i < c->n_layers; i++) {
        int64_t dim = c->head_dim, heads = c->n_kv_heads;

        if (!is_full(c, i))
            continue;
        snprintf(key, sizeof key, "per_layer_config.%d.head_dim", i);
        if (rg_config_int(ckpt, key, 1, INT32_MAX, &dim, err) < 0)
            return false;
        snprintf(key, sizeof key, "per_layer_config.%d.num_key_value_heads", i);
        if (rg_config_int(ckpt, key, 1, INT32_MAX, &heads, err) < 0)
            return false;
        if (!first && (dim != own->global_head_dim || heads != own->global_kv_heads))
            return rg_fail(err, RG_E_UNSUPPORTED,
                           "%s: per_layer_config.%d says %lld K/V heads of %lld where another full layer has %d of %d",
                           rg_checkpoint_path(ckpt), i, (long long)heads, (long long)dim, own->global_kv_heads,
                           own->global_head_dim);
        own->global_head_dim = (int)dim;
        own->global_kv_heads = (int)heads;
        first = false;
    }
    return true;
}

/* Layers that have no K/V of their own. */
static const rg_key shared_row = { 0, KEY_INT, "num_kv_shared_layers", "attention.shared_kv_layers", 0 };

static bool finish_hf(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const rg_key double_wide_row = { 0, KEY_BOOL, "use_double_wide_mlp", NULL, 0 };
    gemma4_settings *own = RG_OWN_EDIT(c, gemma4_settings);
    bool double_wide;
    int n_shared;

    if (!rg_config_keys(&double_wide, ckpt, &double_wide_row, 1, err) ||
        !rg_config_keys(&n_shared, ckpt, &shared_row, 1, err) || !finish_windows(c, ckpt, 6, 1, err))
        return false;
    c->layer[c->n_layers - 1].window = c->layer[c->n_layers - 1].rope = 0; /* whatever layer_types says */
    if (own->has_experts && c->routing.n_experts < 1)
        return rg_fail(err, RG_E_INPUT, "%s: the layers have experts, but there is no num_experts",
                       rg_checkpoint_path(ckpt));
    if (!own->has_experts)
        c->routing.n_experts = c->routing.n_used = c->moe_ffn_dim = 0;
    if (!own->k_is_v || !own->global_kv_heads)
        own->global_kv_heads = c->n_kv_heads;
    if (rg_meta_type_of(ckpt, "per_layer_config") == RG_META_OBJECT && !read_layer_settings(c, ckpt, err))
        return false;
    if (rg_meta_type_of(ckpt, "rope_parameters") != RG_META_OBJECT) {
        c->ropes[0].type = RG_ROPE_PROPORTIONAL;
        c->ropes[0].part = 0.25;
    }
    if (!finish_shared_kv(c, n_shared, err))
        return false;
    if (c->ffn_dim > INT32_MAX / 4)
        return rg_fail(err, RG_E_INPUT, "%s: intermediate_size %d is too large", rg_checkpoint_path(ckpt), c->ffn_dim);
    for (int i = 0; double_wide && i < c->n_layers; i++)
        c->layer[i].ffn_dim = when_own_kv(c, i) ? 0 : 2 * c->ffn_dim;
    return true;
}

/* The number for layer i at a GGUF key, which holds one for each or one for all. */
static bool read_for_layer(const rg_config *c, const rg_checkpoint *ckpt, const char *suffix, int i, int *out,
                           rg_error *err)
{
    const int32_t *list;
    int64_t one;
    size_t n;
    char key[128];

    rg_gguf_key(ckpt, suffix, key);
    if (rg_meta_type_of(ckpt, key) == RG_META_ARRAY) {
        if (rg_meta_ints(ckpt, key, &list, &n, err) < 0)
            return false;
        if (n != (size_t)c->n_layers || list[i] < 0)
            return rg_fail(err, RG_E_INPUT, "%s: %s has %zu entries for %d layers, or one below 0",
                           rg_checkpoint_path(ckpt), key, n, c->n_layers);
        *out = list[i];
        return true;
    }
    int got = rg_config_int(ckpt, key, 0, INT32_MAX, &one, err);
    if (!got)
        rg_fail(err, RG_E_INPUT, "%s: key '%s' is missing", rg_checkpoint_path(ckpt), key);
    *out = got > 0 ? (int)one : 0;
    return got > 0;
}

/* GGUF's lists with an entry for each layer: which have a window, K/V heads, the MLP's width. */
static bool read_gguf_layers(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    gemma4_settings *own = RG_OWN_EDIT(c, gemma4_settings);

    c->n_kv_heads = own->global_kv_heads = 0;
    for (int i = 0; i < c->n_layers; i++) {
        int local, heads, ffn;

        if (!read_for_layer(c, ckpt, "attention.sliding_window_pattern", i, &local, err) ||
            !read_for_layer(c, ckpt, "attention.head_count_kv", i, &heads, err) ||
            !read_for_layer(c, ckpt, "feed_forward_length", i, &ffn, err))
            return false;
        int *same = local ? &c->n_kv_heads : &own->global_kv_heads;
        if (heads < 1 || (*same && *same != heads))
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: attention.head_count_kv: layer %d has %d K/V heads, one of its "
                           "type before it %d, which is not supported", rg_checkpoint_path(ckpt), i, heads, *same);
        *same = heads;
        c->layer[i].window = local ? c->window : 0;
        c->layer[i].rope = local != 0;
        c->ffn_dim = i ? c->ffn_dim : ffn;
        c->layer[i].ffn_dim = ffn == c->ffn_dim ? 0 : ffn;
    }
    return true;
}

static bool finish_gguf(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    gemma4_settings *own = RG_OWN_EDIT(c, gemma4_settings);
    const rg_tensor *table = rg_checkpoint_find(ckpt, "per_layer_token_embd.weight");
    int n_shared;
    char key[128];

    finish_optional(c, ckpt);
    if (!read_gguf_layers(c, ckpt, err) || !rg_config_keys(&n_shared, ckpt, &shared_row, 1, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        snprintf(key, sizeof key, "blk.%d.attn_v.weight", i);
        own->k_is_v = own->k_is_v || (is_full(c, i) && i < c->n_layers - n_shared && !rg_checkpoint_find(ckpt, key));
    }
    own->per_layer.dim = table ? own->per_layer.dim : 0;
    own->per_layer.vocab = table ? (int)rg_tensor_rows(table) : 0;
    return finish_shared_kv(c, n_shared, err);
}

/* GGUF says each length of a head twice, and how many of its columns are rotated. */
static bool require_lengths(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int full = RG_OWN(c, gemma4_settings)->global_head_dim;
    const struct {
        const char *suffix;
        int want;
    } lengths[] = {
        { "attention.value_length", full }, { "attention.value_length_swa", c->head_dim },
        { "rope.dimension_count", full },   { "rope.dimension_count_swa", c->head_dim },
    };
    char key[128];
    int64_t v;

    for (size_t i = 0; c->from_gguf && i < RG_LEN(lengths); i++)
        if (rg_meta_int(ckpt, rg_gguf_key(ckpt, lengths[i].suffix, key), lengths[i].want, lengths[i].want, &v, err) < 0)
            return false;
    return true;
}

bool finish_gemma4(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const gelu[] = { "gelu_pytorch_tanh", NULL };
    gemma4_settings *own = RG_OWN_EDIT(c, gemma4_settings);
    rg_config full;

    c->attn_scale = 1;
    c->act = RG_GELU_TANH;
    c->embed_scale = __builtin_sqrt((double)c->dim);
    c->o_bias = c->attn_bias;
    if (!(c->from_gguf ? finish_gguf(c, ckpt, err) : finish_hf(c, ckpt, err)))
        return false;
    full = *c; /* the heads of the full layers, for the same checks */
    full.head_dim = own->global_head_dim;
    full.n_kv_heads = own->global_kv_heads ? own->global_kv_heads : c->n_kv_heads;
    if (!finish_heads(c, err) || !finish_heads(&full, err) || !require_lengths(c, ckpt, err))
        return false;
    own->global_head_dim = full.head_dim;
    own->global_kv_heads = full.n_kv_heads;
    if (!own->per_layer.dim)
        own->per_layer.vocab = 0;
    if ((int64_t)own->per_layer.dim * c->n_layers > INT32_MAX / 4)
        return rg_fail(err, RG_E_INPUT, "%s: hidden_size_per_layer_input %d is too large", rg_checkpoint_path(ckpt),
                       own->per_layer.dim);
    own->has_experts = c->routing.n_experts > 0;
    c->routing.score = RG_SCORE_SOFTMAX;
    c->routing.renormalize = true;
    c->routing.scale = 1;
    c->n_ropes = 2;
    c->ropes[0].dim = own->global_head_dim;
    c->ropes[1].dim = c->head_dim;
    return (!c->routing.n_experts || finish_routing(c, err)) &&
           require_choice(ckpt, "hidden_activation", gelu, err) &&
           rg_rope_read(&c->ropes[0], ckpt, "full_attention", 1e6, err) &&
           rg_rope_read(&c->ropes[1], ckpt, "sliding_attention", 1e4, err);
}

/* ---- GGUF -------------------------------------------------------------------------------------------------------- */

/* A number for each layer, or one where all are alike. */
static bool put_for_layers(const rg_config *c, rg_ckpt_writer *w, const char *suffix,
                           int (*of)(const rg_config *c, int i), rg_error *err)
{
    int32_t list[RG_MAX_LAYERS];
    bool alike = true;
    char key[128];

    for (int i = 0; i < c->n_layers; i++) {
        list[i] = of(c, i);
        alike = alike && list[i] == list[0];
    }
    if (alike)
        return put_gguf_int(c, w, suffix, list[0], err);
    snprintf(key, sizeof key, "%s.%s", c->arch->gguf_name, suffix);
    return rg_ckpt_put_ints(w, key, list, (size_t)c->n_layers, err);
}

static int ffn_dim_of(const rg_config *c, int layer)
{
    return (int)FFN_DIM(c, layer);
}

static bool put_pattern(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    uint8_t local[RG_MAX_LAYERS];
    char key[128];

    for (int i = 0; i < c->n_layers; i++)
        local[i] = !is_full(c, i);
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", c->arch->gguf_name);
    return rg_ckpt_put_bools(w, key, local, (size_t)c->n_layers, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    const int full = RG_OWN(c, gemma4_settings)->global_head_dim;
    int n_shared = 0;

    for (int i = 0; i < c->n_layers; i++)
        n_shared += !when_own_kv(c, i);
    if (c->ropes[0].type != RG_ROPE_DEFAULT && c->ropes[0].type != RG_ROPE_PROPORTIONAL)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for the scaling of this rope");
    if (c->ropes[1].type != RG_ROPE_DEFAULT)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for the scaling of the window layers' rope");
    return put_pattern(c, w, err) && put_for_layers(c, w, "attention.head_count_kv", kv_heads_of, err) &&
           put_for_layers(c, w, "feed_forward_length", ffn_dim_of, err) &&
           put_gguf_int(c, w, "attention.shared_kv_layers", n_shared, err) &&
           put_gguf_int(c, w, "attention.value_length", full, err) &&
           put_gguf_int(c, w, "attention.value_length_swa", c->head_dim, err) &&
           put_gguf_int(c, w, "rope.dimension_count", full, err) &&
           put_gguf_int(c, w, "rope.dimension_count_swa", c->head_dim, err) &&
           put_gguf_float(c, w, "rope.freq_base", c->ropes[0].theta, err) &&
           put_gguf_float(c, w, "rope.freq_base_swa", c->ropes[1].theta, err);
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

static WHEN(when_per_layer, RG_OWN(c, gemma4_settings)->per_layer.dim > 0)
WHEN(when_gemma4_experts, c->routing.n_experts > 0)
WHEN(when_gemma4_v, when_own_kv(c, layer) && !(RG_OWN(c, gemma4_settings)->k_is_v && is_full(c, layer)))
WHEN(when_gemma4_v_bias, c->attn_bias && when_gemma4_v(c, layer))
SIZE(GEMMA4_HEAD, head_dim_of(c, layer))
SIZE(GEMMA4_Q, (int64_t)c->n_heads * head_dim_of(c, layer))
SIZE(GEMMA4_KV, (int64_t)kv_heads_of(c, layer) * head_dim_of(c, layer))
static SIZE(PER_LAYER, RG_OWN(c, gemma4_settings)->per_layer.dim)
static SIZE(PER_LAYERS, (int64_t)c->n_layers * RG_OWN(c, gemma4_settings)->per_layer.dim)
static SIZE(PER_LAYER_VOCAB, RG_OWN(c, gemma4_settings)->per_layer.vocab)

static const rg_weight_spec weights[] = {
    WEIGHTS_DECODER, WEIGHT_ROPE_FREQS, WEIGHTS_PER_LAYER(when_per_layer, PER_LAYER_VOCAB, PER_LAYERS, PER_LAYER),
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    WEIGHTS_GEMMA4_LAYER,
    WEIGHTS_OF_PER_LAYER(when_per_layer, PER_LAYER),
    { W_SCALAR, "layer_scalar", "layer_output_scale", { ONE } },
    { 0 },
};

/* ---- the text ---------------------------------------------------------------------------------------------------- */

void keep_gemma4(const rg_config *c, int layer, rg_keep *out)
{
    *out = (rg_keep){ .sight = rg_config_sight(c, layer), .shared_with = c->layer[layer].kv_layer };
    if (out->shared_with < 0)
        out->kv = (rg_kv){ .n_heads = kv_heads_of(c, layer), .k_dim = head_dim_of(c, layer),
                           .v_dim = head_dim_of(c, layer) };
}

static void embed(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const gemma_per_layer *p = &RG_OWN(l->c, gemma4_settings)->per_layer;

    rg_embed(f, x, l->w[W_EMBED_TOKENS], (float)l->c->embed_scale);
    if (p->dim)
        embed_per_layer(f, l, x, p);
}

const rg_arch rg_arch_gemma4 = {
    .hf_name = "Gemma4ForCausalLM", .hf_type = "gemma4_text", .gguf_name = "gemma4", .hf_prefix = "model.layers.",
    RG_KEYS(keys), .own_bytes = sizeof(gemma4_settings), .finish = finish_gemma4, .weights = weights,
    RG_KIND(layer_weights, keep_gemma4, block), .halves_window = true, .embed = embed, .put_gguf = put_gguf,
    .ignored = gemma_ignored,
};
