/* gguf.c -- see gguf.h. */
#include "model/arch/gguf.h"

#include <stdio.h>
#include <string.h>

enum { GGUF_TYPE_U32 = 4 };

/* expert_gating_func: GGUF's numbers. */
static const int gatings[] = { [RG_SCORE_SOFTMAX] = 1, [RG_SCORE_SIGMOID] = 2, [RG_SCORE_CHOSEN] = 3,
                               [RG_SCORE_SPARSEMIXER] = 0 };

bool require_value_length(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];
    int64_t v;

    return rg_meta_int(ckpt, rg_gguf_key(ckpt, "attention.value_length", key), c->head_dim, c->head_dim, &v, err) >= 0;
}

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

bool put_gguf_gating(const rg_config *c, rg_ckpt_writer *w, rg_error *err)
{
    return put_gguf_int(c, w, "expert_gating_func", gatings[c->routing.score], err);
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

bool no_gguf_key(rg_error *err, const char *what)
{
    return rg_fail(err, RG_E_UNSUPPORTED, "GGUF has no key for %s of this architecture", what);
}
