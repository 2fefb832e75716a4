/* parts.c -- see parts.h. */
#include "model/arch/parts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GGUF_TYPE_U32 = 4 };

bool when_untied(const rg_config *c, int layer)
{
    (void)layer;
    return !c->tie_embeddings;
}

bool when_attn_bias(const rg_config *c, int layer)
{
    (void)layer;
    return c->attn_bias;
}

bool when_own_kv(const rg_config *c, int layer)
{
    return c->layer[layer].kv_layer < 0;
}

bool when_own_kv_bias(const rg_config *c, int layer)
{
    return c->attn_bias && when_own_kv(c, layer);
}

bool when_o_bias(const rg_config *c, int layer)
{
    (void)layer;
    return c->o_bias;
}

bool when_mlp_bias(const rg_config *c, int layer)
{
    (void)layer;
    return c->mlp_bias;
}

bool when_rope_factors(const rg_config *c, int layer)
{
    (void)layer;
    return c->rope_factors;
}

bool when_shared(const rg_config *c, int layer)
{
    (void)layer;
    return c->n_shared_experts > 0;
}

void load_plus_one(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        dst[i] = src[i] + 1.0f;
}

/* Of each K/V head's rows (its query heads, key and value), `count` heads from the `first` on. */
static void rows_of_groups(const rg_config *c, const float *src, float *dst, int64_t n, const int64_t heads[2])
{
    int64_t first = heads[0], count = heads[1], all = c->n_heads / c->n_kv_heads + 2;
    int64_t head = n / (c->n_kv_heads * count); /* values of one head */

    for (int64_t g = 0; g < c->n_kv_heads; g++)
        memcpy(dst + g * count * head, src + (g * all + first) * head, (size_t)(count * head) * sizeof *dst);
}

void load_q_of_groups(const rg_config *c, const float *src, float *dst, int64_t n)
{
    rows_of_groups(c, src, dst, n, (const int64_t[]){ 0, c->n_heads / c->n_kv_heads });
}

void load_k_of_groups(const rg_config *c, const float *src, float *dst, int64_t n)
{
    rows_of_groups(c, src, dst, n, (const int64_t[]){ c->n_heads / c->n_kv_heads, 1 });
}

void load_v_of_groups(const rg_config *c, const float *src, float *dst, int64_t n)
{
    rows_of_groups(c, src, dst, n, (const int64_t[]){ c->n_heads / c->n_kv_heads + 1, 1 });
}

void groups_to_gguf(const rg_config *c, const float *src, float *dst, int64_t n)
{
    int64_t row = n / QKV_DIM(c, 0), of_q = Q_DIM(c, 0) * row, of_k = KV_DIM(c, 0) * row;

    load_q_of_groups(c, src, dst, of_q);
    load_k_of_groups(c, src, dst + of_q, of_k);
    load_v_of_groups(c, src, dst + of_q + of_k, of_k);
}

void load_minus_exp(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    for (int64_t i = 0; i < n; i++)
        dst[i] = (float)-exp((double)src[i]);
}

void load_flat(const rg_config *c, const float *src, float *dst, int64_t n)
{
    (void)c;
    memcpy(dst, src, (size_t)n * sizeof *dst);
}

void keep_kv(const rg_config *c, int layer, rg_keep *out)
{
    *out = (rg_keep){ .sight = rg_config_sight(c, layer), .shared_with = c->layer[layer].kv_layer };
    if (out->shared_with < 0)
        out->kv = (rg_kv){ .n_heads = c->n_kv_heads, .k_dim = c->head_dim, .v_dim = c->head_dim };
}

bool finish_heads(rg_config *c, rg_error *err)
{
    if (c->n_heads < 1)
        return rg_fail(err, RG_E_INPUT, "the number of attention heads is 0");
    if (!c->n_kv_heads)
        c->n_kv_heads = c->n_heads;
    if (c->n_heads % c->n_kv_heads)
        return rg_fail(err, RG_E_INPUT, "%d attention heads cannot share %d K/V heads evenly", c->n_heads,
                       c->n_kv_heads);
    if (!c->head_dim) {
        if (c->dim % c->n_heads)
            return rg_fail(err, RG_E_INPUT, "width %d is not a multiple of %d heads, and head_dim is not given", c->dim,
                           c->n_heads);
        c->head_dim = c->dim / c->n_heads;
    }
    if ((int64_t)c->head_dim * c->n_heads > INT32_MAX / 4)
        return rg_fail(err, RG_E_INPUT, "%d heads of %d are too large", c->n_heads, c->head_dim);
    if (c->attn_scale == 0)
        c->attn_scale = 1.0 / __builtin_sqrt((double)c->head_dim);
    return true;
}

bool require_value_length(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];
    int64_t v;

    return rg_meta_int(ckpt, rg_gguf_key(ckpt, "attention.value_length", key), c->head_dim, c->head_dim, &v, err) >= 0;
}

static bool is_periodic(const rg_config *c, int period)
{
    for (int i = 0; i < c->n_layers; i++)
        if (!c->layer[i].window != (period > 0 && (i + 1) % period == 0))
            return false;
    return true;
}

int period_of_windows(const rg_config *c)
{
    for (int period = 0; period <= c->n_layers + 1; period++)
        if (is_periodic(c, period))
            return period;
    return -1;
}

/* Element i of the list of windows: false for a layer that has one. */
static bool read_global(const rg_config *c, const rg_checkpoint *ckpt, const char *list, int i, bool *global,
                        rg_error *err)
{
    static const char *const types[] = { "sliding_attention", "full_attention", NULL };
    char key[144];
    int which = -1;
    bool local = false;

    snprintf(key, sizeof key, "%s.%d", list, i);
    if (c->from_gguf ? rg_config_flag(ckpt, key, &local, err) < 0 : !rg_config_choice(ckpt, key, types, &which, err))
        return false;
    *global = c->from_gguf ? !local : which == 1;
    return true;
}

bool finish_windows(rg_config *c, const rg_checkpoint *ckpt, int period, int local, rg_error *err)
{
    char key[128];
    size_t n;
    const char *list = c->from_gguf ? rg_gguf_key(ckpt, "attention.sliding_window_pattern", key) : "layer_types";
    bool listed = !c->from_gguf || rg_meta_type_of(ckpt, list) == RG_META_ARRAY; /* in GGUF it may be a period */
    int got = listed ? rg_meta_length(ckpt, list, &n, err) : 0;

    if (got < 0)
        return false;
    if (got && n != (size_t)c->n_layers)
        return rg_fail(err, RG_E_INPUT, "%s: %s has %zu entries for %d layers", rg_checkpoint_path(ckpt), list, n,
                       c->n_layers);
    for (int i = 0; i < c->n_layers; i++) {
        bool global = period > 0 && (i + 1) % period == 0;

        if (got && !read_global(c, ckpt, list, i, &global, err))
            return false;
        c->layer[i].window = global ? 0 : c->window;
        c->layer[i].rope = global ? 0 : local;
    }
    return true;
}

void finish_optional(rg_config *c, const rg_checkpoint *ckpt)
{
    if (!c->from_gguf)
        return;
    c->tie_embeddings = !rg_checkpoint_find(ckpt, "output.weight");
    c->attn_bias = rg_checkpoint_find(ckpt, "blk.0.attn_q.bias");
    c->o_bias = rg_checkpoint_find(ckpt, "blk.0.attn_output.bias");
    c->mlp_bias = rg_checkpoint_find(ckpt, "blk.0.ffn_up.bias");
    c->rope_factors = rg_checkpoint_find(ckpt, "rope_freqs.weight");
}

/* The number that config.json has at the last of n keys that it has (NULL: no key); *value stays if it has none. */
static bool last_number(const rg_checkpoint *ckpt, const char *const *keys, size_t n, double *value, rg_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i] && rg_config_float(ckpt, keys[i], value, err) < 0)
            return false;
    return true;
}

bool finish_rope_as(rg_config *c, const rg_checkpoint *ckpt, const rope_defaults *d, rg_error *err)
{
    const char *const parts[] = { d->part_key, "partial_rotary_factor", "rope_parameters.partial_rotary_factor" };
    char key[128];
    int64_t dim = c->head_dim;
    bool whole = !d->part_key && rg_config_is_null(ckpt, "partial_rotary_factor");
    double part = whole ? 1 : d->part, theta = d->theta;

    if (c->from_gguf) {
        if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "rope.dimension_count", key), 2, c->head_dim, &dim, err) < 0 ||
            !require_value_length(c, ckpt, err))
            return false;
        part = 1;
    } else if (!last_number(ckpt, parts, RG_LEN(parts), &part, err) ||
               !last_number(ckpt, &d->theta_key, 1, &theta, err)) {
        return false;
    }
    if (!(part > 0 && part <= 1))
        return rg_fail(err, RG_E_INPUT, "%s: partial_rotary_factor %g is not in (0, 1]", rg_checkpoint_path(ckpt),
                       part);
    c->n_ropes = 1;
    c->ropes[0].dim = (int)((double)dim * part);
    c->ropes[0].interleaved = c->from_gguf && d->pairs;
    if (!rg_rope_read(&c->ropes[0], ckpt, NULL, theta, err))
        return false;
    if (c->ropes[0].type == RG_ROPE_PROPORTIONAL) /* the part is of pairs that are spread over the whole head */
        c->ropes[0].dim = (int)dim;
    return true;
}

bool finish_rope(rg_config *c, const rg_checkpoint *ckpt, double theta_default, bool pairs, rg_error *err)
{
    return finish_rope_as(c, ckpt, &(rope_defaults){ .theta = theta_default, .part = 1, .pairs = pairs }, err);
}

bool finish_routing(const rg_config *c, rg_error *err)
{
    const rg_routing *r = &c->routing;

    if (r->n_experts < 1 || r->n_used < 1 || r->n_used > r->n_experts || r->n_experts > 1024)
        return rg_fail(err, RG_E_INPUT, "%d experts of which %d are used: out of range", r->n_experts, r->n_used);
    if (r->n_groups && (r->n_experts % r->n_groups || r->n_groups_used < 1 || r->n_groups_used > r->n_groups ||
                        r->n_used > r->n_experts / r->n_groups * r->n_groups_used))
        return rg_fail(err, RG_E_INPUT, "%d experts in %d groups of which %d are used: out of range", r->n_experts,
                       r->n_groups, r->n_groups_used);
    if (r->n_groups && r->groups_by_two && r->n_experts / r->n_groups < 2)
        return rg_fail(err, RG_E_INPUT, "%d experts in %d groups: a group is ranked by its best two", r->n_experts,
                       r->n_groups);
    return true;
}

/* expert_gating_func: GGUF's numbers. */
static const int gatings[] = { [RG_SCORE_SOFTMAX] = 1, [RG_SCORE_SIGMOID] = 2, [RG_SCORE_CHOSEN] = 3,
                               [RG_SCORE_SPARSEMIXER] = 0 };

bool require_gating(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    int64_t want = gatings[c->routing.score], got = want;
    char key[128];

    if (!c->from_gguf)
        return true;
    if (rg_meta_int(ckpt, rg_gguf_key(ckpt, "expert_gating_func", key), 0, INT32_MAX, &got, err) < 0)
        return false;
    return got == want || rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is %lld, which is not supported (supported: %lld)",
                                  rg_checkpoint_path(ckpt), key, (long long)got, (long long)want);
}

bool finish_noaux(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    c->routing.score = RG_SCORE_SIGMOID;
    c->routing.groups_by_two = true;
    return require_gating(c, ckpt, err) && finish_routing(c, err);
}

bool finish_nextn(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    int64_t n = 0;
    char key[128];

    if (c->from_gguf &&
        rg_meta_int(ckpt, rg_gguf_key(ckpt, "nextn_predict_layers", key), 0, c->n_layers - 1, &n, err) < 0)
        return false;
    c->n_layers -= (int)n;
    return true;
}

bool require_choice(const rg_checkpoint *ckpt, const char *key, const char *const *names, rg_error *err)
{
    int which;

    return rg_config_choice(ckpt, key, names, &which, err);
}

bool finish_act(rg_config *c, const rg_checkpoint *ckpt, const char *key, rg_activation fallback, rg_error *err)
{
    static const char *const names[] = { "gelu", "gelu_new", "gelu_pytorch_tanh", "gelu_fast", "relu", "relu2", "silu",
                                         "swish", NULL };
    static const rg_activation acts[] = { RG_GELU, RG_GELU_TANH, RG_GELU_TANH, RG_GELU_TANH, RG_RELU, RG_RELU2, RG_SILU,
                                          RG_SILU };
    int which = -1;

    if (!c->from_gguf && !rg_config_choice(ckpt, key, names, &which, err))
        return false;
    c->act = which < 0 ? fallback : acts[which];
    return true;
}

bool require_silu(const rg_checkpoint *ckpt, rg_error *err)
{
    return require_choice(ckpt, "hidden_act", (const char *const[]){ "silu", NULL }, err);
}

static bool require_bool(const rg_checkpoint *ckpt, const char *key, bool want, rg_error *err)
{
    bool is = want;

    if (rg_config_flag(ckpt, key, &is, err) < 0)
        return false;
    if (is != want)
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is %s, which is not supported", rg_checkpoint_path(ckpt), key,
                       is ? "true" : "false");
    return true;
}

bool require_false(const rg_checkpoint *ckpt, const char *key, rg_error *err)
{
    return require_bool(ckpt, key, false, err);
}

bool require_true(const rg_checkpoint *ckpt, const char *key, rg_error *err)
{
    return require_bool(ckpt, key, true, err);
}

bool require_number(const rg_checkpoint *ckpt, const char *key, double want, rg_error *err)
{
    double is = want;

    if (rg_config_float(ckpt, key, &is, err) < 0)
        return false;
    return is == want || rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is %g, which is not supported (supported: %g)",
                                 rg_checkpoint_path(ckpt), key, is, want);
}

bool require_numbers(const rg_checkpoint *ckpt, const char *key, int32_t want, rg_error *err)
{
    const int32_t *is = NULL;
    size_t n = 0;

    if (rg_meta_ints(ckpt, key, &is, &n, err) < 0)
        return false;
    for (size_t i = 0; i < n; i++)
        if (is[i] != want)
            return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s.%zu is %d, which is not supported (supported: %d)",
                           rg_checkpoint_path(ckpt), key, i, is[i], want);
    return true;
}

bool put_gguf_gating(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_int(c, w, "expert_gating_func", gatings[c->routing.score], err);
}

bool put_gguf_int(const rg_config *c, rg_ckpt_writer *w, const char *suffix, int64_t value, rg_error *err)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", c->arch->gguf_name, suffix);
    return rg_ckpt_put_int(w, key, GGUF_TYPE_U32, value, err);
}

bool put_gguf_string(const rg_config *c, rg_ckpt_writer *w, const char *suffix, const char *value, rg_error *err)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", c->arch->gguf_name, suffix);
    return rg_ckpt_put_string(w, key, value, strlen(value), err);
}

bool put_gguf_float(const rg_config *c, rg_ckpt_writer *w, const char *suffix, double value, rg_error *err)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", c->arch->gguf_name, suffix);
    return rg_ckpt_put_float(w, key, value, err);
}

bool put_gguf_bool(const rg_config *c, rg_ckpt_writer *w, const char *suffix, bool value, rg_error *err)
{
    char key[128];

    snprintf(key, sizeof key, "%s.%s", c->arch->gguf_name, suffix);
    return rg_ckpt_put_bool(w, key, value, err);
}

bool put_gguf_windows(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    uint8_t local[RG_MAX_LAYERS];
    char key[128];

    for (int i = 0; i < c->n_layers; i++)
        local[i] = c->layer[i].window > 0;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", c->arch->gguf_name);
    return rg_ckpt_put_bools(w, key, local, (size_t)c->n_layers, err);
}

static bool put_gguf_yarn(const rg_config *c, rg_ckpt_writer *w, double log_unit, rg_error *err)
{
    const rg_rope_config *r = &c->ropes[0];
    if (r->untruncated)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for truncate: false of a rope of type yarn");
    /* The factor on cos and sin that a reader computes if it sees the other keys only. */
    double factor = rg_yarn_factor(r), assumed = r->mscale_all_dim != 0 ? 1 : rg_yarn_mscale(r->factor, 1);

    return put_gguf_float(c, w, "rope.scaling.yarn_beta_fast", r->beta_fast, err) &&
           put_gguf_float(c, w, "rope.scaling.yarn_beta_slow", r->beta_slow, err) &&
           (factor == assumed ||
            put_gguf_float(c, w, "rope.scaling.attn_factor", factor / rg_yarn_mscale(r->factor, 1), err)) &&
           (r->mscale_all_dim == 0 ||
            put_gguf_float(c, w, "rope.scaling.yarn_log_multiplier", log_unit * r->mscale_all_dim, err));
}

bool put_gguf_no_scaling(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return c->ropes[0].type != RG_ROPE_DEFAULT || put_gguf_string(c, w, "rope.scaling.type", "none", err);
}

bool put_gguf_rope_by(const rg_config *c, rg_ckpt_writer *w, double log_unit, rg_error *err)
{
    const rg_rope_config *r = &c->ropes[0];

    if (r->type == RG_ROPE_DYNAMIC)
        return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for a rope of type dynamic");
    if (!put_gguf_float(c, w, "rope.freq_base", r->theta, err))
        return false;
    if (r->type != RG_ROPE_LINEAR && r->type != RG_ROPE_YARN)
        return true; /* llama3's scaling is a tensor of factors */
    return put_gguf_string(c, w, "rope.scaling.type", r->type == RG_ROPE_LINEAR ? "linear" : "yarn", err) &&
           put_gguf_float(c, w, "rope.scaling.factor", r->factor, err) &&
           (!r->original_max_seq_len ||
            put_gguf_int(c, w, "rope.scaling.original_context_length", r->original_max_seq_len, err)) &&
           (r->type != RG_ROPE_YARN || put_gguf_yarn(c, w, log_unit, err));
}

bool put_gguf_rope(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_rope_by(c, w, 0.1, err);
}

bool put_gguf_decoder(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_int(c, w, "attention.value_length", c->head_dim, err) &&
           put_gguf_int(c, w, "rope.dimension_count", c->ropes[0].dim, err) && put_gguf_rope(c, w, err);
}

void part_add(rg_fwd *f, const rg_layer *l, rg_act *x, const rg_act *a, const rg_weight *w, const rg_weight *b)
{
    if (l->c->residual_scale == 1.0f) {
        rg_linear_add(f, x, a, w, b);
        return;
    }
    rg_act *y = rg_act_new(f, "added", x->cols);

    rg_linear(f, y, a, w, b);
    rg_scale_by(f, y, l->c->residual_scale);
    rg_add_to(f, x, y);
}

/* RMSNorm of each head, or of whole rows where the weight is so long; without a weight, of each head if all layers that
 * have a rope do so. */
static void norm_heads(rg_fwd *f, const rg_layer *l, rg_act *q, const rg_weight *norm)
{
    if (norm)
        rg_rmsnorm(f, q, q, norm, l->c->norm_eps);
    else if (l->c->plain_qk_norm && l->rope)
        rg_rmsnorm_plain(f, q, q, l->c->head_dim, l->c->norm_eps);
}

/* q or k, normalised and rotated, by a position up to `last` (0: by any). */
static void norm_and_rotate(rg_fwd *f, const rg_layer *l, rg_act *q, const rg_weight *norm, int last)
{
    const rg_config *c = l->c;

    if (!c->norm_after_rope)
        norm_heads(f, l, q, norm);
    if (l->rope && last)
        rg_rotate_until(f, q, l->rope, c->head_dim, 0, last);
    else if (l->rope)
        rg_rotate(f, q, l->rope, c->head_dim, 0);
    if (c->norm_after_rope)
        norm_heads(f, l, q, norm);
}

/* k and v where the layer has its own, and q, as they come from the projections. */
static void make_qkv(rg_fwd *f, const rg_layer *l, rg_act *q, const rg_act *h)
{
    const rg_config *c = l->c;

    if (!when_own_kv(c, l->index)) {
        rg_linear(f, q, h, l->w[W_Q_PROJ], l->w[W_Q_BIAS]);
        return;
    }
    rg_act *k = rg_act_new(f, "k", c->n_kv_heads * c->head_dim), *v = rg_act_new(f, "v", c->n_kv_heads * c->head_dim);

    rg_linear3(f, (rg_act *const[]){ q, k, v }, h,
               (const rg_weight *const[]){ l->w[W_Q_PROJ], l->w[W_K_PROJ], l->w[W_V_PROJ] },
               (const rg_weight *const[]){ l->w[W_Q_BIAS], l->w[W_K_BIAS], l->w[W_V_BIAS] });
    norm_and_rotate(f, l, k, l->w[W_K_NORM], 0);
    rg_kv_store(f, l->kv, k, v);
}

rg_act *part_attention(rg_fwd *f, const rg_layer *l, const rg_act *h)
{
    const rg_config *c = l->c;
    const rg_layer_config *own = &c->layer[l->index];
    rg_act *q = rg_act_new(f, "q", c->n_heads * c->head_dim), *first_q = NULL;
    rg_act *a = rg_act_new(f, "attn", c->n_heads * c->head_dim);

    make_qkv(f, l, q, h);
    if (own->cache_first && l->rope) {
        first_q = rg_act_new(f, "first_q", q->cols);
        rg_activate(f, first_q, q, RG_IDENTITY);
        norm_and_rotate(f, l, first_q, l->w[W_Q_NORM], own->cache_last);
    }
    norm_and_rotate(f, l, q, l->w[W_Q_NORM], 0);
    if (c->q_period && own->scales_q)
        rg_scale_by_position(f, q, c->q_beta, c->q_period, c->q_offset);
    rg_attention(f, a, q, l->kv,
                 &(rg_attend_params){ .n_heads = c->n_heads, .scale = (float)c->attn_scale, .cap = c->attn_softcap,
                                      .sight = l->sight, .sinks = l->w[W_SINKS], .first_q = first_q,
                                      .n_first = first_q ? own->cache_first : 0 });
    return a;
}

void part_norm(rg_fwd *f, const rg_layer *l, rg_act *y, const rg_act *x, int weight, int bias)
{
    if (!l->c->layer_norm)
        rg_rmsnorm(f, y, x, l->w[weight], l->c->norm_eps);
    else if (l->w[weight])
        rg_layernorm(f, y, x, l->w[weight], l->w[bias], l->c->norm_eps);
    else
        rg_layernorm_plain(f, y, x, x->cols, l->c->norm_eps);
}

/* g = act(gate h) * up h, or act(up h) where there is no gate. */
static void hidden_mlp(rg_fwd *f, rg_act *g, const rg_act *h, const rg_weight *const w[2], const rg_weight *const b[2],
                       rg_activation act)
{
    if (w[0]) {
        rg_gated(f, g, h, w[0], w[1], b[0], b[1], act);
        return;
    }
    rg_linear(f, g, h, w[1], b[1]);
    rg_activate(f, g, g, act);
}

void part_mlp(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h, bool add)
{
    rg_act *g = rg_act_new(f, "ffn", (int)l->w[W_UP_PROJ]->rows);

    hidden_mlp(f, g, h, (const rg_weight *const[]){ l->w[W_GATE_PROJ], l->w[W_UP_PROJ] },
               (const rg_weight *const[]){ l->w[W_GATE_BIAS], l->w[W_UP_BIAS] }, l->c->act);
    if (add)
        part_add(f, l, out, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
    else
        rg_linear(f, out, g, l->w[W_DOWN_PROJ], l->w[W_DOWN_BIAS]);
}

#define WEIGHTS_OF_EXPERTS(l) (l)->w[W_GATE_EXPERTS], (l)->w[W_UP_EXPERTS], (l)->w[W_DOWN_EXPERTS]

static bool lie_in_file(const rg_layer *l)
{
    return l->w[W_UP_EXPERTS]->placed && l->w[W_UP_EXPERTS]->placed->is_paged;
}

/* Guess the experts of the next layer that has some by what its router makes of the present x, and have them read:
 * layers add little to x (Eliseev & Mazur 2023). */
static void fetch_next(rg_fwd *f, const rg_layer *l, const rg_act *x)
{
    const rg_config *c = l->c;
    const rg_layer *next = l + 1, *end = l + (c->n_layers - l->index);
    int mark = rg_act_mark(f);

    while (next < end && !(next->w[W_ROUTER] && next->w[W_FFN_NORM]))
        next++;
    if (next == end || x->cols != c->dim)
        return;
    rg_act *h = rg_act_new(f, "guess_norm", c->dim), *logits = rg_act_new(f, "guess_router", c->routing.n_experts);
    rg_act *route = rg_act_new(f, "guess_route", 2 * c->routing.n_used);

    f->guessing = true;
    part_norm(f, next, h, x, W_FFN_NORM, W_FFN_NORM_BIAS);
    rg_linear(f, logits, h, next->w[W_ROUTER], next->w[W_ROUTER_BIAS]);
    rg_route(f, route, logits, &c->routing, next->w[W_CHOICE_BIAS], next->w[W_EXPERT_SCALE]);
    rg_fetch(f, route, &c->routing, &(rg_experts){ WEIGHTS_OF_EXPERTS(next) });
    f->guessing = false;
    rg_act_release(f, mark);
}

void part_routed(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h, const rg_act *logits)
{
    const rg_config *c = l->c;
    rg_routing routing = c->routing;
    rg_act *route = rg_act_new(f, "route", 2 * routing.n_used);

    routing.scale *= c->residual_scale;
    rg_route(f, route, logits, &routing, l->w[W_CHOICE_BIAS], l->w[W_EXPERT_SCALE]);
    if (lie_in_file(l)) {
        rg_fetch(f, route, &routing, &(rg_experts){ WEIGHTS_OF_EXPERTS(l) });
        fetch_next(f, l, out);
    }
    rg_moe(f, out, h, route, &routing,
           &(rg_experts){ WEIGHTS_OF_EXPERTS(l), l->w[W_GATE_EXPERTS_BIAS], l->w[W_UP_EXPERTS_BIAS],
                          l->w[W_DOWN_EXPERTS_BIAS], c->act });
}

void part_shared_experts(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h)
{
    rg_act *g = rg_act_new(f, "shared", (int)l->w[W_SHARED_UP]->rows);

    hidden_mlp(f, g, h, (const rg_weight *const[]){ l->w[W_SHARED_GATE], l->w[W_SHARED_UP] },
               (const rg_weight *const[]){ NULL, NULL }, l->c->act);
    if (l->w[W_SHARED_ROUTER]) {
        rg_act *share = rg_act_new(f, "shared_gate", 1);
        rg_linear(f, share, h, l->w[W_SHARED_ROUTER], NULL);
        rg_activate(f, share, share, RG_SIGMOID);
        rg_mul_by(f, g, share);
    }
    part_add(f, l, out, g, l->w[W_SHARED_DOWN], NULL);
}

void part_experts(rg_fwd *f, const rg_layer *l, rg_act *out, const rg_act *h)
{
    rg_act *logits = rg_act_new(f, "router", l->c->routing.n_experts);

    rg_linear(f, logits, h, l->w[W_ROUTER], l->w[W_ROUTER_BIAS]);
    part_routed(f, l, out, h, logits);
    if (l->w[W_SHARED_UP])
        part_shared_experts(f, l, out, h);
}

void part_second_half(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *g = rg_act_new(f, "ffn_norm", l->c->dim);
    part_norm(f, l, g, x, W_FFN_NORM, W_FFN_NORM_BIAS);
    if (l->w[W_ROUTER])
        part_experts(f, l, x, g);
    else
        part_mlp(f, l, x, g, true);
}

void block_pre_norm(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = rg_act_new(f, "attn_norm", l->c->dim);

    part_norm(f, l, h, x, W_ATTN_NORM, W_ATTN_NORM_BIAS);
    rg_act *a = part_attention(f, l, h);
    part_add(f, l, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    part_second_half(f, l, x);
}

void block_post_norm(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *a = part_attention(f, l, x);

    rg_linear_add(f, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    part_norm(f, l, x, x, W_ATTN_NORM, W_ATTN_NORM_BIAS);
    part_mlp(f, l, x, x, true);
    part_norm(f, l, x, x, W_FFN_NORM, W_FFN_NORM_BIAS);
}

void block_parallel(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    rg_act *h = rg_act_new(f, "attn_norm", l->c->dim), *g = h;

    part_norm(f, l, h, x, W_ATTN_NORM, W_ATTN_NORM_BIAS);
    if (l->w[W_FFN_NORM]) {
        g = rg_act_new(f, "ffn_norm", l->c->dim);
        part_norm(f, l, g, x, W_FFN_NORM, W_FFN_NORM_BIAS);
    }
    rg_act *a = part_attention(f, l, h);
    part_add(f, l, x, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    part_mlp(f, l, x, g, true);
}

void block_post_norms(rg_fwd *f, const rg_layer *l, rg_act *x)
{
    const rg_config *c = l->c;
    rg_act *y = rg_act_new(f, "attn_out", c->dim), *z = rg_act_new(f, "ffn_out", c->dim);
    rg_act *a = part_attention(f, l, x);

    rg_linear(f, y, a, l->w[W_O_PROJ], l->w[W_O_BIAS]);
    rg_rmsnorm(f, y, y, l->w[W_POST_ATTN_NORM], c->norm_eps);
    rg_add_to(f, x, y);
    part_mlp(f, l, z, x, false);
    rg_rmsnorm(f, z, z, l->w[W_POST_FFN_NORM], c->norm_eps);
    rg_add_to(f, x, z);
}

void block_both_norms(rg_fwd *f, const rg_layer *l, rg_act *x)
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
