/* gemma3.c -- Gemma 3 (text): window layers with every sixth global, each kind with a rope of its own; RMSNorm before
 * and after each half, on q and on k; GELU; embeddings times sqrt(dim).
 *
 * Hugging Face stores norms as w where 1 + w is meant; GGUF has the one added.  GGUF does not say
 * query_pre_attn_scalar: 1 / sqrt(head_dim) is what its published files mean, unless "attention.scale" is there. */
#include <stdio.h>

#include "model/arch/parts.h"

static const rg_key keys[] = {
    KEYS_GQA(131072, 8, 4, 256),
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", 9216 },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6 },
    { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_word_embeddings", NULL, 1 },
    { offsetof(rg_config, attn_bias), KEY_BOOL, "attention_bias", NULL, 0 },
    { offsetof(rg_config, window), KEY_INT, "sliding_window", "attention.sliding_window", 4096 },
    { offsetof(rg_config, window_period), KEY_INT, "sliding_window_pattern", "attention.sliding_window_pattern", 6 },
    { offsetof(rg_config, attn_softcap), KEY_FLOAT, "attn_logit_softcapping", "attn_logit_softcapping", 0 },
    { offsetof(rg_config, logit_softcap), KEY_FLOAT, "final_logit_softcapping", "final_logit_softcapping", 0 },
    { offsetof(rg_config, attn_scale), KEY_DOUBLE, NULL, "attention.scale", 0 },
};

static const char *const harmless[] = { "_sliding_window_pattern", "cache_implementation", NULL };

static bool is_periodic(const rg_config *c, int period)
{
    for (int i = 0; i < c->n_layers; i++)
        if (c->layer_global[i] != (period > 0 && (i + 1) % period == 0))
            return false;
    return true;
}

/* The period that layer_types has, if it has one: a config that lists them need not say it. */
static void find_period(rg_config *c)
{
    for (int period = 1; period <= c->n_layers + 1 && !is_periodic(c, c->window_period); period++)
        if (is_periodic(c, period))
            c->window_period = period;
}

/* "layer_types" where it is given, else every window_period-th. */
static bool read_layer_types(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const types[] = { "sliding_attention", "full_attention", NULL };
    char key[48];
    size_t n;
    int got = rg_meta_length(ckpt, "layer_types", &n, err), which;

    if (got < 0)
        return false;
    if (got && n != (size_t)c->n_layers)
        return rg_fail(err, RG_E_INPUT, "%s: layer_types has %zu entries for %d layers", rg_checkpoint_path(ckpt), n,
                       c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        c->layer_global[i] = c->window_period > 0 && (i + 1) % c->window_period == 0;
        if (!got)
            continue;
        snprintf(key, sizeof key, "layer_types.%d", i);
        if (!rg_config_choice(ckpt, key, types, &which, err))
            return false;
        c->layer_global[i] = which == 1;
    }
    find_period(c);
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    double scalar = 256;

    c->act = RG_GELU_TANH;
    c->embed_scale = __builtin_sqrt((double)c->dim);
    c->o_bias = c->attn_bias;
    if (!c->from_gguf) {
        if (rg_meta_float(ckpt, "query_pre_attn_scalar", &scalar, err) < 0)
            return false;
        if (!(scalar > 0))
            return rg_fail(err, RG_E_INPUT, "%s: query_pre_attn_scalar %g is not positive", rg_checkpoint_path(ckpt),
                           scalar);
        c->attn_scale = 1.0 / __builtin_sqrt(scalar);
    } else {
        c->tie_embeddings = !rg_checkpoint_find(ckpt, "output.weight");
        c->attn_bias = c->o_bias = rg_checkpoint_find(ckpt, "blk.0.attn_q.bias");
        /* The 27B's files leave it out too, and mean query_pre_attn_scalar = dim / n_heads; as readers do, it is known
         * by its 62 layers. */
        if (c->attn_scale == 0 && c->n_layers == 62 && c->n_heads)
            c->attn_scale = 1.0 / __builtin_sqrt((double)c->dim / c->n_heads);
    }
    if (!read_layer_types(c, ckpt, err) || !finish_heads(c, err) ||
        !require_false(ckpt, "use_bidirectional_attention", err) ||
        !require_choice(ckpt, "hidden_activation", (const char *const[]){ "gelu_pytorch_tanh", NULL }, err) ||
        !require_choice(ckpt, "hidden_act", (const char *const[]){ "gelu_pytorch_tanh", NULL }, err))
        return false;
    if (c->from_gguf && !require_value_length(c, ckpt, err))
        return false;
    c->rope.dim = c->rope_local.dim = c->head_dim;
    return rg_config_rope(&c->rope, ckpt, "full_attention", 1e6, err) &&
           rg_config_rope(&c->rope_local, ckpt, "sliding_attention", 1e4, err);
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    if (c->window && !is_periodic(c, c->window_period))
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for layer_types that are not periodic");
    if (c->rope_local.type != RG_ROPE_DEFAULT)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for the scaling of the window layers' rope");
    return put_gguf_int(c, w, "attention.value_length", c->head_dim, err) && put_gguf_rope(c, w, err) &&
           put_gguf_float(c, w, "rope.freq_base_swa", c->rope_local.theta, err);
}

static const rg_weight_spec weights[] = {
    { W_EMBED_TOKENS, "model.embed_tokens", "token_embd", { VOCAB, DIM }, SPLIT_ROWS },
    { W_FINAL_NORM, "model.norm", "output_norm", { DIM }, .load = load_plus_one },
    { W_LM_HEAD, "lm_head", "output", { VOCAB, DIM }, SPLIT_ROWS, .when = when_untied },
    { 0 },
};

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM }, .load = load_plus_one },
    WEIGHTS_GQA(GGUF_HALVES),
    { W_Q_NORM, "self_attn.q_norm", "attn_q_norm", { HEAD_DIM }, .load = load_plus_one },
    { W_K_NORM, "self_attn.k_norm", "attn_k_norm", { HEAD_DIM }, .load = load_plus_one },
    { W_POST_ATTN_NORM, "post_attention_layernorm", "post_attention_norm", { DIM }, .load = load_plus_one },
    { W_FFN_NORM, "pre_feedforward_layernorm", "ffn_norm", { DIM }, .load = load_plus_one },
    { W_GATE_PROJ, "mlp.gate_proj", "ffn_gate", { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_UP_PROJ, "mlp.up_proj", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS },
    { W_DOWN_PROJ, "mlp.down_proj", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS },
    { W_POST_FFN_NORM, "post_feedforward_layernorm", "post_ffw_norm", { DIM }, .load = load_plus_one },
    { 0 },
};

static void block(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const rg_config *c = l->c;
    rg_act *h = rg_act_new(f, "attn_norm", c->dim);
    rg_act *y = rg_act_new(f, "attn_out", c->dim);

    rg_rmsnorm(f, h, x, l->w[W_ATTN_NORM], c->norm_eps);
    rg_act *a = part_attention(f, l, h);
    rg_linear(f, y, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], c->norm_eps);
    rg_add_to(f, x, y);

    rg_act *g = rg_act_new(f, "ffn_norm", c->dim);
    rg_act *z = rg_act_new(f, "ffn_out", c->dim);
    rg_rmsnorm(f, g, x, l->w[W_FFN_NORM], c->norm_eps);
    part_mlp(f, l, z, g, false);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], c->norm_eps);
    rg_add_to(f, x, z);
}

const rg_arch rg_arch_gemma3 = {
    .hf_name = "Gemma3ForCausalLM", .hf_type = "gemma3_text", .gguf_name = "gemma3", .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish, .harmless = harmless,
    .weights = weights, .layer_weights = layer_weights, .keep = keep_kv, .block = block,
    .put_gguf = put_gguf,
};
