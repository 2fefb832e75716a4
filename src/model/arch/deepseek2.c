/* deepseek2.c -- DeepSeek-V2: multi-head latent attention (MLA), and experts beside shared ones after the first layers.
 *
 * Attention is absorbed: what is kept per position is the normalised latent and one rotated key, shared by all heads;
 * q is carried into the latent space by k_b (per head, [kv_lora_rank, nope_dim]) and the result out of it by v_b (per
 * head, [v_dim, kv_lora_rank]).  Hugging Face and older GGUF files store both as one kv_b [heads * (nope + v),
 * rank]. */
#include "model/arch/parts.h"

/* The norms inside the attention keep this eps whatever the config says, as DeepSeek's own code does. */
static const float latent_eps = 1e-6f;

static const rg_key keys[] = {
    { offsetof(rg_config, max_seq_len), KEY_INT, "max_position_embeddings", "context_length", 2048 },
    { offsetof(rg_config, n_heads), KEY_INT, "num_attention_heads", "attention.head_count", 32 },
    { offsetof(rg_config, ffn_dim), KEY_INT, "intermediate_size", "feed_forward_length", 11008 },
    { offsetof(rg_config, norm_eps), KEY_FLOAT, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6 },
    { offsetof(rg_config, tie_embeddings), KEY_BOOL, "tie_word_embeddings", NULL, 0 },
    { offsetof(rg_config, attn_bias), KEY_BOOL, "attention_bias", NULL, 0 },
    { offsetof(rg_config, mlp_bias), KEY_BOOL, "mlp_bias", NULL, 0 },
    { offsetof(rg_config, kv_lora_rank), KEY_INT, "kv_lora_rank", "attention.kv_lora_rank", 512 },
    { offsetof(rg_config, rope_dim), KEY_INT, "qk_rope_head_dim", "rope.dimension_count", 64 },
    { offsetof(rg_config, n_dense_layers), KEY_INT, "first_k_dense_replace", "leading_dense_block_count", 0 },
    { offsetof(rg_config, moe_ffn_dim), KEY_INT, "moe_intermediate_size", "expert_feed_forward_length", 1407 },
    { offsetof(rg_config, routing.n_experts), KEY_INT, "n_routed_experts", "expert_count", 64 },
    { offsetof(rg_config, routing.n_used), KEY_INT, "num_experts_per_tok", "expert_used_count", RG_REQUIRED },
    { offsetof(rg_config, n_shared_experts), KEY_INT, "n_shared_experts", "expert_shared_count", 2 },
    { offsetof(rg_config, routing.scale), KEY_FLOAT, "routed_scaling_factor", "expert_weights_scale", 1 },
    { offsetof(rg_config, routing.n_groups), KEY_INT, "n_group", "expert_group_count", 0 },
    { offsetof(rg_config, routing.n_groups_used), KEY_INT, "topk_group", "expert_group_used_count", 0 },
};

/* transformers computes DeepSeek-V2 without renormalising, whatever norm_topk_prob says. */
static const char *const harmless[] = {
    "norm_topk_prob", "qk_head_dim", "head_dim", "num_key_value_heads", "aux_loss_alpha", "seq_aux", "ep_size",
    "n_shared_head", "rope_interleave", NULL,
};

static bool finish_dims(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];
    int64_t q_rank = c->from_gguf ? 0 : 1536, nope = 128, k_dim = 0, v_dim = 128;

    if (c->from_gguf) {
        if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "attention.q_lora_rank", key), 0, INT32_MAX / 4, &q_rank, err) < 0)
            return false;
        bool pre_split = rg_meta_type_of(ckpt, rg_gguf_key(ckpt, "attention.key_length_mla", key)) != RG_META_NONE;
        const char *k = pre_split ? "attention.key_length_mla" : "attention.key_length";
        const char *v = pre_split ? "attention.value_length_mla" : "attention.value_length";
        if (rg_meta_int(ckpt, rg_gguf_key(ckpt, k, key), 1, INT32_MAX / 4, &k_dim, err) < 0 ||
            rg_meta_int(ckpt, rg_gguf_key(ckpt, v, key), 1, INT32_MAX / 4, &v_dim, err) < 0)
            return false;
        nope = k_dim - c->rope_dim;
        for (const char *const *s = (const char *const[]){ "attention.key_length", "attention.value_length",
                                                            "attention.head_count_kv", NULL }; *s; s++)
            rg_meta_understand(ckpt, rg_gguf_key(ckpt, *s, key));
    } else {
        if (rg_meta_type_of(ckpt, "q_lora_rank") == RG_META_NULL)
            q_rank = 0;
        rg_meta_understand(ckpt, "q_lora_rank");
        if (rg_meta_int(ckpt, "q_lora_rank", 0, INT32_MAX / 4, &q_rank, err) < 0 ||
            rg_meta_int(ckpt, "qk_nope_head_dim", 1, INT32_MAX / 4, &nope, err) < 0 ||
            rg_meta_int(ckpt, "v_head_dim", 1, INT32_MAX / 4, &v_dim, err) < 0)
            return false;
    }
    c->q_lora_rank = (int)q_rank;
    c->nope_dim = (int)nope;
    c->v_dim = (int)v_dim;
    int64_t head = (int64_t)c->kv_lora_rank + c->rope_dim + nope + v_dim; /* < 2^33 */
    int64_t widest = head > INT32_MAX / 4 ? head : c->n_heads * head;
    if (c->n_heads < 1 || nope < 1 || c->kv_lora_rank < 1 || c->rope_dim < 2 || c->rope_dim % 2 ||
        widest > INT32_MAX / 4)
        return rg_fail(err, RG_E_INPUT, "%s: %d heads, latent %d, head sizes %d + %d: out of range",
                       rg_checkpoint_path(ckpt), c->n_heads, c->kv_lora_rank, c->nope_dim, c->rope_dim);
    return true;
}

static bool finish(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    static const char *const methods[] = { "greedy", "group_limited_greedy", NULL };
    static const char *const scores[] = { "softmax", NULL };
    char key[128];
    int method = -1;
    int64_t frequency = 1, gating = 1;
    bool renormalize = false;

    if (!finish_dims(c, ckpt, err) || !rg_config_choice(ckpt, "topk_method", methods, &method, err) ||
        !require_choice(ckpt, "scoring_func", scores, err) ||
        rg_meta_int(ckpt, "moe_layer_freq", 1, 1, &frequency, err) < 0 ||
        !require_choice(ckpt, "hidden_act", (const char *const[]){ "silu", NULL }, err))
        return false;
    if (c->from_gguf && (rg_meta_int(ckpt, rg_gguf_key(ckpt, "expert_gating_func", key), 0, 1, &gating, err) < 0 ||
                         rg_meta_bool(ckpt, rg_gguf_key(ckpt, "expert_weights_norm", key), &renormalize, err) < 0))
        return false;
    if (c->mlp_bias)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: mlp_bias is true, which is not supported", rg_checkpoint_path(ckpt));
    if (!c->from_gguf && method != 1)
        c->routing.n_groups = c->routing.n_groups_used = 0;
    if (c->routing.n_groups <= 1)
        c->routing.n_groups = c->routing.n_groups_used = 0;
    c->routing.softmax_first = true;
    c->routing.renormalize = renormalize;
    c->o_bias = c->attn_bias;
    if (c->from_gguf) {
        c->tie_embeddings = !rg_checkpoint_find(ckpt, "output.weight");
        c->attn_bias = rg_checkpoint_find(ckpt, "blk.0.attn_kv_a_mqa.bias");
        c->o_bias = rg_checkpoint_find(ckpt, "blk.0.attn_output.bias");
    }
    if (!finish_routing(c, err))
        return false;
    c->rope.dim = c->rope_dim;
    c->rope.interleaved = true;
    if (!rg_config_rope(&c->rope, ckpt, NULL, 1e4, err))
        return false;
    double mscale = c->rope.type == RG_ROPE_YARN ? rg_yarn_mscale(c->rope.factor, c->rope.mscale_all_dim) : 1;
    c->attn_scale = mscale * mscale / __builtin_sqrt((double)(c->nope_dim + c->rope_dim));
    return true;
}

static bool when_dense(const rg_config *c, int layer)
{
    return layer < c->n_dense_layers;
}

static bool when_moe(const rg_config *c, int layer)
{
    return layer >= c->n_dense_layers;
}

static bool when_shared(const rg_config *c, int layer)
{
    return layer >= c->n_dense_layers && c->n_shared_experts > 0;
}

static bool when_q_rank(const rg_config *c, int layer)
{
    (void)layer;
    return c->q_lora_rank > 0;
}

static bool when_q_a_bias(const rg_config *c, int layer)
{
    (void)layer;
    return c->q_lora_rank > 0 && c->attn_bias;
}

static bool when_no_q_rank(const rg_config *c, int layer)
{
    (void)layer;
    return c->q_lora_rank == 0;
}

/* From kv_b [heads * (nope + v), rank]: k_b[h] = the transpose of its first nope rows, v_b[h] = its last v rows. */
static void load_k_b(const rg_config *c, const float *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t h = i / ((int64_t)c->kv_lora_rank * c->nope_dim), r = i / c->nope_dim % c->kv_lora_rank,
                d = i % c->nope_dim;
        dst[i] = src[(h * (c->nope_dim + c->v_dim) + d) * c->kv_lora_rank + r];
    }
}

static void load_v_b(const rg_config *c, const float *src, float *dst, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t h = i / ((int64_t)c->v_dim * c->kv_lora_rank), d = i / c->kv_lora_rank % c->v_dim,
                r = i % c->kv_lora_rank;
        dst[i] = src[(h * (c->nope_dim + c->v_dim) + c->nope_dim + d) * c->kv_lora_rank + r];
    }
}

static bool put_gguf(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    /* The first two describe the absorbed form, which has one K/V head; the others the heads themselves. */
    return put_gguf_int(c, w, "attention.head_count_kv", 1, err) &&
           put_gguf_int(c, w, "attention.key_length", (int64_t)c->kv_lora_rank + c->rope_dim, err) &&
           put_gguf_int(c, w, "attention.value_length", c->kv_lora_rank, err) &&
           put_gguf_int(c, w, "attention.key_length_mla", (int64_t)c->nope_dim + c->rope_dim, err) &&
           put_gguf_int(c, w, "attention.value_length_mla", c->v_dim, err) &&
           (!c->q_lora_rank || put_gguf_int(c, w, "attention.q_lora_rank", c->q_lora_rank, err)) &&
           put_gguf_int(c, w, "expert_gating_func", 1, err) && put_gguf_rope(c, w, err);
}

static const rg_weight_spec weights[] = { WEIGHTS_DECODER, { 0 } };

static const rg_weight_spec layer_weights[] = {
    { W_ATTN_NORM, "input_layernorm", "attn_norm", { DIM } },
    { W_Q_PROJ, "self_attn.q_proj", "attn_q", { MLA_Q_DIM, DIM }, SPLIT_ROWS, .when = when_no_q_rank },
    { W_Q_A_PROJ, "self_attn.q_a_proj", "attn_q_a", { Q_RANK, DIM }, .when = when_q_rank },
    { W_Q_A_NORM, "self_attn.q_a_layernorm", "attn_q_a_norm", { Q_RANK }, .when = when_q_rank },
    { W_Q_B_PROJ, "self_attn.q_b_proj", "attn_q_b", { MLA_Q_DIM, Q_RANK }, SPLIT_ROWS, .when = when_q_rank },
    { W_KV_A_PROJ, "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", { KV_A_DIM, DIM } },
    { W_KV_A_NORM, "self_attn.kv_a_layernorm", "attn_kv_a_norm", { KV_RANK } },
    { W_K_B_PROJ, "self_attn.kv_b_proj", "attn_k_b", { N_HEADS, KV_RANK, NOPE_DIM }, SPLIT_ROWS, .load = load_k_b,
      .stored = { MLA_KV_B_DIM, KV_RANK }, .gguf_else = "attn_kv_b" },
    { W_V_B_PROJ, "self_attn.kv_b_proj", "attn_v_b", { N_HEADS, V_DIM, KV_RANK }, SPLIT_ROWS, .load = load_v_b,
      .stored = { MLA_KV_B_DIM, KV_RANK }, .gguf_else = "attn_kv_b" },
    { W_O_PROJ, "self_attn.o_proj", "attn_output", { DIM, MLA_O_DIM }, SPLIT_COLS },
    { W_O_BIAS, "self_attn.o_proj.bias", "attn_output.bias", { DIM }, .when = when_o_bias },
    { W_Q_A_BIAS, "self_attn.q_a_proj.bias", "attn_q_a.bias", { Q_RANK }, .when = when_q_a_bias },
    { W_KV_A_BIAS, "self_attn.kv_a_proj_with_mqa.bias", "attn_kv_a_mqa.bias", { KV_A_DIM }, .when = when_attn_bias },
    { W_FFN_NORM, "post_attention_layernorm", "ffn_norm", { DIM } },
    { W_GATE_PROJ, "mlp.gate_proj", "ffn_gate", { FFN_DIM, DIM }, SPLIT_ROWS, .when = when_dense },
    { W_UP_PROJ, "mlp.up_proj", "ffn_up", { FFN_DIM, DIM }, SPLIT_ROWS, .when = when_dense },
    { W_DOWN_PROJ, "mlp.down_proj", "ffn_down", { DIM, FFN_DIM }, SPLIT_COLS, .when = when_dense },
    { W_ROUTER, "mlp.gate", "ffn_gate_inp", { N_EXPERTS, DIM }, .when = when_moe },
    { W_GATE_EXPERTS, "mlp.experts.*.gate_proj", "ffn_gate_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS,
      .when = when_moe },
    { W_UP_EXPERTS, "mlp.experts.*.up_proj", "ffn_up_exps", { N_EXPERTS, MOE_DIM, DIM }, SPLIT_ROWS, .when = when_moe },
    { W_DOWN_EXPERTS, "mlp.experts.*.down_proj", "ffn_down_exps", { N_EXPERTS, DIM, MOE_DIM }, SPLIT_COLS,
      .when = when_moe },
    { W_SHARED_GATE, "mlp.shared_experts.gate_proj", "ffn_gate_shexp", { SHARED_DIM, DIM }, SPLIT_ROWS,
      .when = when_shared },
    { W_SHARED_UP, "mlp.shared_experts.up_proj", "ffn_up_shexp", { SHARED_DIM, DIM }, SPLIT_ROWS, .when = when_shared },
    { W_SHARED_DOWN, "mlp.shared_experts.down_proj", "ffn_down_shexp", { DIM, SHARED_DIM }, SPLIT_COLS,
      .when = when_shared },
    { 0 },
};

static void keep(const rg_config *c, int layer, rg_keep *out)
{
    (void)layer;
    *out = (rg_keep){ .kind = RG_KEEP_LATENT, .n_heads = 1, .k_dim = c->kv_lora_rank + c->rope_dim,
                      .v_dim = c->kv_lora_rank,
                      .shared_with = -1 };
}

static rg_act *attention(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const rg_config *c = l->c;
    int q_head = c->nope_dim + c->rope_dim, n = c->n_heads;
    rg_act *q = rg_act_new(f, "q", n * q_head), *kv_a = rg_act_new(f, "kv_a", c->kv_lora_rank + c->rope_dim);

    if (l->w[W_Q_A_PROJ]) {
        rg_act *q_a = rg_act_new(f, "q_a", c->q_lora_rank);
        rg_linear(f, q_a, h, l->w[W_Q_A_PROJ], l->w[W_Q_A_BIAS]);
        rg_rmsnorm(f, q_a, q_a, l->w[W_Q_A_NORM], latent_eps);
        rg_linear(f, q, q_a, l->w[W_Q_B_PROJ], NULL);
    } else {
        rg_linear(f, q, h, l->w[W_Q_PROJ], NULL);
    }
    rg_linear(f, kv_a, h, l->w[W_KV_A_PROJ], l->w[W_KV_A_BIAS]);
    rg_act *latent = rg_act_view(f, "kv_latent", kv_a, 0, c->kv_lora_rank);
    rg_act *k_rope = rg_act_view(f, "k_rope", kv_a, c->kv_lora_rank, c->rope_dim);
    rg_rmsnorm(f, latent, latent, l->w[W_KV_A_NORM], latent_eps);
    rg_rotate(f, q, l->rope, q_head, c->nope_dim);
    rg_rotate(f, k_rope, l->rope, c->rope_dim, 0);
    rg_kv_store(f, l->kv, latent, k_rope);

    rg_act *q_latent = rg_act_new(f, "q_latent", n * c->kv_lora_rank),
           *o = rg_act_new(f, "o_latent", n * c->kv_lora_rank);
    rg_act *a = rg_act_new(f, "attn", n * c->v_dim);
    rg_linear_heads(f, q_latent, q, l->w[W_K_B_PROJ], q_head);
    rg_mla_attention(f, o, q_latent, q, l->kv, n, (float)c->attn_scale);
    rg_linear_heads(f, a, o, l->w[W_V_B_PROJ], c->kv_lora_rank);
    return a;
}

static void block(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = rg_act_new(f, "attn_norm", l->c->dim);

    rg_rmsnorm(f, h, x, l->w[W_ATTN_NORM], l->c->norm_eps);
    rg_act *a = attention(f, l, h);
    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);

    rg_act *g = rg_act_new(f, "ffn_norm", l->c->dim);
    rg_rmsnorm(f, g, x, l->w[W_FFN_NORM], l->c->norm_eps);
    if (l->w[W_ROUTER])
        part_experts(f, l, x, g);
    else
        part_mlp(f, l, x, g, true);
}

const rg_arch rg_arch_deepseek2 = {
    .hf_name = "DeepseekV2ForCausalLM", .hf_type = "deepseek_v2", .gguf_name = "deepseek2",
    .hf_prefix = "model.layers.",
    .keys = keys, .n_keys = RG_LEN(keys), .finish = finish, .harmless = harmless,
    .weights = weights, .layer_weights = layer_weights, .keep = keep, .block = block,
    .put_gguf = put_gguf,
};
