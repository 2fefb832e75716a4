/* keys.c -- see keys.h. */
#include "model/arch/keys.h"

#include <stdio.h>

#include "model/arch/checks.h"
#include "model/arch/gguf.h"

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
    if (got && !require_length(c, ckpt, list, n, err))
        return false;
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
