/* nemotron_h.c -- Nemotron-H (NVIDIA 2025): layers of Mamba-2, of attention without positions, and MLPs of squared ReLU
 * without a gate, each with a norm of its own.
 *
 * config.json says by words, or by letters, which layer is which; GGUF by the numbers of K/V heads and the widths of
 * MLPs of all layers. */
#include "model/arch/nemotron_h.h"

#include <stdio.h>
#include <string.h>

/* A layer is one of these three. */
static void block_mamba(rg_fwd *f, const rg_layer *l, rg_act *x) /* x [rows, dim] */
{
    rg_act *y = mamba2(f, l, normed(f, l, x, W_ATTN_NORM)); /* [rows, inner width] */

    rg_linear_add(f, x, y, l->w[W_SSD_OUT], l->w[W_SSD_OUT_BIAS]); /* x += out_proj y */
}

static void block_attention(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const qkv p = project(
        f, l, normed(f, l, x, W_ATTN_NORM)); /* q [rows, n_heads * head_dim]; k and v [rows, n_kv_heads * head_dim] */

    rg_act *a = attention(f, l, &p);                        /* [rows, n_heads * head_dim] */
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]); /* x += o_proj a */
}

static void block_mlp(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *g = mlp(f, l, normed(f, l, x, W_ATTN_NORM)); /* relu(up_proj h)^2: [rows, ffn_dim] */

    rg_linear_add(f, x, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]); /* x += down_proj g */
}

static const rg_key keys[] = { KEYS_NEMOTRON_H };

/* Settings of experts, which no layer has. */
static const char *const harmless[] = {
    NEMOTRON_H_HARMLESS, "moe_intermediate_size", "moe_latent_size", "moe_shared_expert_intermediate_size",
    "moe_shared_expert_overlap", "n_group", "n_routed_experts", "n_shared_experts", "norm_topk_prob",
    "num_experts_per_tok", "routed_scaling_factor", "topk_group", NULL,
};

/* ---- settings ---------------------------------------------------------------------------------------------------- */

static const char pattern_key[] = "hybrid_override_pattern", words_key[] = "layers_block_type";

bool nemotron_h_has_experts(const rg_checkpoint *ckpt)
{
    const rg_string *words;
    const char *letters;
    size_t n;

    if (rg_meta_strings(ckpt, words_key, &words, &n, NULL) == 1) {
        for (size_t i = 0; i < n; i++)
            if (words[i].n == 3 && !memcmp(words[i].data, "moe", 3))
                return true;
        return false;
    }
    return rg_meta_string(ckpt, pattern_key, &letters, NULL) == 1 && strchr(letters, 'E');
}

/* The letters of all layers. */
static bool read_letters(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char all[] = "M*-E"; /* by the number of their kind */
    const char *letters = NULL;

    if (rg_meta_string(ckpt, pattern_key, &letters, err) < 0)
        return false;
    if (!letters || strlen(letters) != (size_t)c->n_layers)
        return rg_fail(err, RG_E_INPUT, "%s: %s has %zu entries for %d layers", rg_checkpoint_path(ckpt), pattern_key,
                       letters ? strlen(letters) : 0, c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        const char *at = strchr(all, letters[i]);

        if (!at)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s has the letter '%c', which is not supported (supported: %s)",
                           rg_checkpoint_path(ckpt), pattern_key,
                           letters[i] < 32 || letters[i] > 126 ? '?' : letters[i], all);
        c->layer[i].kind = (int)(at - all);
    }
    return true;
}

/* Widths of MLPs: one for all, or one for each of these layers. */
static bool read_widths(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int32_t *widths = NULL;
    int64_t one = 21504;
    size_t n = 0, n_mlps = 0;
    bool list = rg_meta_type_of(ckpt, "intermediate_size") == RG_META_ARRAY;

    if (list ? rg_meta_ints(ckpt, "intermediate_size", &widths, &n, err) < 0
             : rg_config_int(ckpt, "intermediate_size", 1, INT32_MAX / 4, &one, err) < 0)
        return false;
    for (int i = 0; i < c->n_layers; i++)
        n_mlps += c->layer[i].kind == NEMOTRON_MLP;
    if (list && n != 1 && n != n_mlps)
        return rg_fail(err, RG_E_INPUT, "%s: intermediate_size has %zu entries for %zu MLPs", rg_checkpoint_path(ckpt),
                       n, n_mlps);
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer[i].kind == NEMOTRON_MLP)
            c->layer[i].ffn_dim = !list ? (int)one : n == 1 ? *widths : *widths++;
    return true;
}

/* GGUF's widths of the second halves of all layers; those without one keep their kind. */
static bool read_gguf_widths(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    const int32_t *widths = NULL;
    size_t n = 0;
    char key[128];

    if (rg_meta_ints(ckpt, rg_gguf_key(ckpt, "feed_forward_length", key), &widths, &n, err) < 0)
        return false;
    if (!require_length(c, ckpt, key, n, err))
        return false;
    for (int i = 0; i < c->n_layers; i++) {
        if (!widths[i])
            continue;
        c->layer[i].kind = layer_has(ckpt, i, "ffn_gate_inp.weight") ? NEMOTRON_EXPERTS : NEMOTRON_MLP;
        c->layer[i].ffn_dim = c->layer[i].kind == NEMOTRON_MLP ? widths[i] : 0;
    }
    return true;
}

/* The config's width is that of the first MLP; a layer has one of its own where it differs. */
static bool settle_widths(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    for (int i = 0; i < c->n_layers; i++) {
        int *own = &c->layer[i].ffn_dim;

        if (c->layer[i].kind == NEMOTRON_MLP && (*own < 1 || *own > INT32_MAX / 4))
            return rg_fail(err, RG_E_INPUT, "%s: an MLP of width %d in layer %d", rg_checkpoint_path(ckpt), *own, i);
        if (*own && !c->ffn_dim)
            c->ffn_dim = *own;
        *own = *own == c->ffn_dim ? 0 : *own;
    }
    return true;
}

/* Nothing is rotated, but GGUF has the rows of q and k in the order of rotated pairs all the same. */
static bool finish_attention(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];

    c->o_bias = c->attn_bias;
    if (!finish_heads(c, err) || !require_value_length(c, ckpt, err) ||
        !require_number(ckpt, "sliding_window", 0, err) ||
        !require_false(ckpt, rg_gguf_key(ckpt, "rope.scaling.finetuned", key), err))
        return false;
    c->ropes[0].dim = c->head_dim;
    return true;
}

static bool finish_kinds(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const kind_word words[] = {
        { "mamba", HYBRID_OTHER }, { "linear_attention", HYBRID_OTHER }, { "attention", HYBRID_ATTENTION },
        { "full_attention", HYBRID_ATTENTION }, { "mlp", NEMOTRON_MLP }, { "moe", NEMOTRON_EXPERTS }, { 0 },
    };

    if (c->from_gguf)
        return read_gguf_kv_heads(c, ckpt, err) && read_gguf_widths(c, ckpt, err);
    int got = read_kinds(c, ckpt, words_key, words, err);
    if (got > 0)
        rg_meta_understand(ckpt, pattern_key);
    return got >= 0 && (got || read_letters(c, ckpt, err)) && read_widths(c, ckpt, err);
}

bool finish_nemotron_h(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const ssd_width width = { "mamba_head_dim", 64, NULL, NULL };
    char key[128];

    finish_optional(c, ckpt);
    if (c->from_gguf) {
        c->attn_bias = any_layer_has(c, ckpt, "attn_q.bias");
        c->mlp_bias = any_layer_has(c, ckpt, "ffn_up.bias");
        rg_meta_understand(ckpt, rg_gguf_key(ckpt, "attention.layer_norm_epsilon", key));
        rg_meta_understand(ckpt, rg_gguf_key(ckpt, "rope.dimension_count", key));
    }
    return finish_kinds(c, ckpt, err) && settle_widths(c, ckpt, err) && finish_attention(c, ckpt, err) &&
           finish_ssd(c, ckpt, &width, err) &&
           finish_act(c, ckpt, "mlp_hidden_act", RG_RELU2, err) &&
           require_choice(ckpt, "mamba_hidden_act", (const char *const[]){ "silu", NULL }, err) &&
           (RG_OWN(c, ssd_settings)->in_bias || require_false(ckpt, "mamba_proj_bias", err));
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    if (!finish_nemotron_h(c, ckpt, err))
        return false;
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer[i].kind == NEMOTRON_EXPERTS)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: layer %d has experts, which this architecture has not",
                           rg_checkpoint_path(ckpt), i);
    return true;
}

bool put_gguf_nemotron_h(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    int32_t widths[RG_MAX_LAYERS];
    char key[128];

    for (int i = 0; i < c->n_layers; i++)
        widths[i] = c->layer[i].kind == NEMOTRON_MLP       ? (int32_t)FFN_DIM(c, i)
                    : c->layer[i].kind == NEMOTRON_EXPERTS ? c->moe_ffn_dim
                                                           : 0;
    if (c->act != RG_RELU2)
        return no_gguf_key(err, "mlp_hidden_act");
    snprintf(key, sizeof key, "%s.feed_forward_length", c->arch->gguf_name);
    return rg_ckpt_put_ints(w, key, widths, (size_t)c->n_layers, err) && put_gguf_kv_heads(c, w, err) &&
           put_gguf_float(c, w, "attention.layer_norm_epsilon", (double)c->norm_eps, err) &&
           put_gguf_int(c, w, "attention.value_length", c->head_dim, err) &&
           put_gguf_int(c, w, "rope.dimension_count", c->head_dim, err) &&
           put_gguf_bool(c, w, "rope.scaling.finetuned", false, err) && put_gguf_ssd(c, w, err);
}

/* ---- weights and blocks ------------------------------------------------------------------------------------------ */

static const rg_weight_spec weights[] = { WEIGHTS_NEMOTRON_H, { 0 } };

const rg_weight_spec nemotron_h_mamba[] = { WEIGHT_NEMOTRON_H_NORM, WEIGHTS_SSD("mixer."), { 0 } };

const rg_weight_spec nemotron_h_attention[] = {
    WEIGHT_NEMOTRON_H_NORM,
    WEIGHTS_GQA_OF(GGUF_PAIRS, "mixer.q_proj", "mixer.k_proj", "mixer.v_proj", "mixer.o_proj"),
    { 0 },
};

const rg_weight_spec nemotron_h_mlp[] = {
    WEIGHT_NEMOTRON_H_NORM, WEIGHTS_UP_DOWN("mixer.up_proj", "mixer.down_proj"), { 0 },
};

static const rg_layer_kind kinds[] = {
    [HYBRID_OTHER] = { nemotron_h_mamba, keep_ssd, block_mamba },
    [HYBRID_ATTENTION] = { nemotron_h_attention, keep_kv, block_attention },
    [NEMOTRON_MLP] = { nemotron_h_mlp, keep_nothing, block_mlp },
};

const rg_arch rg_arch_nemotron_h = {
    .hf_name = "NemotronHForCausalLM", .hf_type = "nemotron_h", .gguf_name = "nemotron_h",
    .hf_prefix = "backbone.layers.", .layer_list = "layers_block_type", RG_KEYS(keys),
    .own_bytes = sizeof(ssd_settings), .finish = finish, .harmless = harmless, .weights = weights, RG_KINDS(kinds),
    .put_gguf = put_gguf_nemotron_h,
};
