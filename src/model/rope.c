/* rope.c -- see rope.h.  Settings have three spellings (transformers 5, transformers 4, GGUF), all read here. */
#include "model/rope.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/nulls.h"

static const char *const rope_types[] = { "default",  "linear",       "llama3", "yarn",
                                        "longrope", "proportional", "dynamic", NULL };

/* What GGUF divides the frequency of a pair by that stands still; so both kinds of checkpoint have the same bits. */
static const float STILL = 1e30f;

/* Numbers of a rope's scaling, which stand under one prefix each. */
static const char *const rope_numbers[] = {
    "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast",
    "beta_slow",  "mscale", "mscale_all_dim",  "attention_factor", "original_max_position_embeddings",
    "short_mscale", "long_mscale", NULL,
};

bool rg_rope_has_number(const char *name)
{
    for (int i = 0; rope_numbers[i]; i++)
        if (!strcmp(name, rope_numbers[i]))
            return true;
    return false;
}

/* Numbers under one prefix of config.json: "rope_parameters.", "rope_parameters.full_attention.", "rope_scaling.". */
static bool read_rope_numbers(rg_rope_config *r, const rg_checkpoint *ckpt, const char *prefix, rg_error *err)
{
    const struct {
        const char *name;
        double *to;
    } numbers[] = {
        { "rope_theta", &r->theta },           { "factor", &r->factor },       { "low_freq_factor",
          &r->low_freq_factor },
        { "high_freq_factor", &r->high_freq_factor }, { "beta_fast", &r->beta_fast }, { "beta_slow", &r->beta_slow },
        { "mscale", &r->mscale },              { "mscale_all_dim", &r->mscale_all_dim },
        { "attention_factor", &r->attention_factor },
        { "short_mscale", &r->long_mscale[0] },   { "long_mscale", &r->long_mscale[1] },
    };
    char key[160];
    int64_t original;
    bool truncate = true;

    for (size_t i = 0; i < RG_LEN(numbers); i++) {
        snprintf(key, sizeof key, "%s%s", prefix, numbers[i].name);
        if (rg_config_float(ckpt, key, numbers[i].to, err) < 0)
            return false;
    }
    snprintf(key, sizeof key, "%struncate", prefix);
    if (rg_config_flag(ckpt, key, &truncate, err) < 0)
        return false;
    r->untruncated = !truncate;
    snprintf(key, sizeof key, "%soriginal_max_position_embeddings", prefix);
    int got = rg_config_int(ckpt, key, 1, INT32_MAX, &original, err);
    if (got > 0)
        r->original_max_seq_len = original;
    return got >= 0;
}

/* longrope's factors under a prefix: as many as there are pairs. */
static bool read_long_factors(rg_rope_config *r, const rg_checkpoint *ckpt, const char *prefix, rg_error *err)
{
    static const char *const names[RG_ROPE_VARIANTS] = { "short_factor", "long_factor" };
    char key[160];

    if (r->type != RG_ROPE_LONG)
        return true;
    for (int v = 0; v < RG_ROPE_VARIANTS; v++) {
        size_t n = 0;
        double factor = 0;

        snprintf(key, sizeof key, "%s%s", prefix, names[v]);
        if (rg_meta_length(ckpt, key, &n, err) < 0)
            return false;
        if (n != (size_t)r->dim / 2 || n > RG_MAX_ROPE_PAIRS)
            return rg_fail(err, RG_E_INPUT, "%s: %s has %zu factors for %d pairs of columns (at most %d are supported)",
                           rg_checkpoint_path(ckpt), key, n, r->dim / 2, RG_MAX_ROPE_PAIRS);
        for (size_t i = 0; i < n; i++) {
            snprintf(key, sizeof key, "%s%s.%zu", prefix, names[v], i);
            if (rg_config_float(ckpt, key, &factor, err) < 0)
                return false;
            if (!(factor > 0))
                return rg_fail(err, RG_E_INPUT, "%s: %s is not positive", rg_checkpoint_path(ckpt), key);
            r->factors[v][i] = (float)factor;
        }
    }
    return true;
}

/* True if rope_scaling has a member; an empty object counts as null. */
bool rg_rope_has_scaling(const rg_checkpoint *ckpt)
{
    static const char *const members[] = { "rope_type", "type", "rope_theta", "full_attention", "sliding_attention" };
    char key[64];

    for (size_t i = 0; i < RG_LEN(members); i++) {
        snprintf(key, sizeof key, "rope_scaling.%s", members[i]);
        if (rg_meta_type_of(ckpt, key) != RG_META_NONE)
            return true;
    }
    return false;
}

/* The proportional type: its factor may be missing, its part is of all pairs of the head. */
static bool read_proportional(rg_rope_config *r, const rg_checkpoint *ckpt, const char *prefix, rg_error *err)
{
    char key[160];

    if (r->type != RG_ROPE_PROPORTIONAL)
        return true;
    r->factor = r->factor == 0 ? 1 : r->factor;
    r->part = r->part == 0 ? 1 : r->part;
    snprintf(key, sizeof key, "%spartial_rotary_factor", prefix);
    if (rg_config_float(ckpt, key, &r->part, err) < 0)
        return false;
    if (!(r->part > 0 && r->part <= 1))
        return rg_fail(err, RG_E_INPUT, "%s: %s %g is not in (0, 1]", rg_checkpoint_path(ckpt), key, r->part);
    return true;
}

/* The scaling's type under a prefix, in the newer spelling or the oldest. */
static bool read_rope_type(rg_rope_config *r, const rg_checkpoint *ckpt, const char *prefix, rg_error *err)
{
    static const char *const spellings[] = { "type", "rope_type" };
    char key[160];
    int which;

    for (size_t i = 0; i < RG_LEN(spellings); i++) {
        snprintf(key, sizeof key, "%s%s", prefix, spellings[i]);
        if (!rg_config_choice(ckpt, key, rope_types, &which, err))
            return false;
        if (which >= 0)
            r->type = (rg_rope_type)which;
    }
    return true;
}

/* Numbers beside the objects of the parts say nothing, as in transformers. */
static void understand_beside(const rg_checkpoint *ckpt, const char *object)
{
    char key[160];

    for (int i = 0; rope_numbers[i]; i++) {
        snprintf(key, sizeof key, "%s.%s", object, rope_numbers[i]);
        rg_meta_understand(ckpt, key);
    }
    snprintf(key, sizeof key, "%s.rope_type", object);
    rg_meta_understand(ckpt, key);
}

/* Where both are given, rope_scaling replaces rope_parameters whole, as in transformers; the base may stand in either
 * or beside them. */
static bool read_rope_hf(rg_rope_config *r, const rg_checkpoint *ckpt, const char *part, rg_error *err)
{
    const char *object = rg_rope_has_scaling(ckpt) ? "rope_scaling" : "rope_parameters";
    bool local = part && !strcmp(part, "sliding_attention");
    char prefix[96], key[160];

    rg_meta_understand(ckpt, "rope_scaling"); /* a null says nothing; its members are reported unless they are read */
    snprintf(key, sizeof key, "%s.%s", object, part ? part : "");
    bool by_part = part && rg_meta_type_of(ckpt, key) == RG_META_OBJECT;
    if (by_part)
        understand_beside(ckpt, object);
    snprintf(prefix, sizeof prefix, "%s.%s%s", object, by_part ? part : "", by_part ? "." : "");
    if (!by_part && local && rg_meta_type_of(ckpt, "rope_local_base_freq") != RG_META_NONE)
        return rg_config_float(ckpt, "rope_local_base_freq", &r->theta, err) >= 0; /* scaling is the global layers' */
    if (!by_part && local && !strcmp(object, "rope_scaling"))
        return true;
    return rg_config_float(ckpt, "rope_theta", &r->theta, err) >= 0 && read_rope_numbers(r, ckpt, prefix, err) &&
           read_rope_type(r, ckpt, prefix, err) && read_long_factors(r, ckpt, prefix, err) &&
           read_proportional(r, ckpt, prefix, err);
}

static bool read_rope_gguf(rg_rope_config *r, const rg_checkpoint *ckpt, const char *part, rg_error *err)
{
    static const char *const gguf_types[] = { "none", "linear", "yarn", NULL };
    static const rg_rope_type as[] = { RG_ROPE_DEFAULT, RG_ROPE_LINEAR, RG_ROPE_YARN };
    bool local = part && !strcmp(part, "sliding_attention");
    char key[128];
    double log_multiplier = 0, attn_factor = 0;
    int64_t original;
    int which;

    if (rg_meta_float(ckpt, rg_gguf_key(ckpt, local ? "rope.freq_base_swa" : "rope.freq_base", key), &r->theta, err) <
        0)
        return false;
    if (local)
        return true;
    if (!rg_config_choice(ckpt, rg_gguf_key(ckpt, "rope.scaling.type", key), gguf_types, &which, err) ||
        rg_meta_float(ckpt, rg_gguf_key(ckpt, "rope.scaling.factor", key), &r->factor, err) < 0 ||
        rg_meta_float(ckpt, rg_gguf_key(ckpt, "rope.scaling.yarn_beta_fast", key), &r->beta_fast, err) < 0 ||
        rg_meta_float(ckpt, rg_gguf_key(ckpt, "rope.scaling.yarn_beta_slow", key), &r->beta_slow, err) < 0 ||
        rg_meta_float(ckpt, rg_gguf_key(ckpt, "rope.scaling.yarn_log_multiplier", key), &log_multiplier, err) < 0 ||
        rg_meta_float(ckpt, rg_gguf_key(ckpt, "rope.scaling.attn_factor", key), &attn_factor, err) < 0)
        return false;
    if (r->factor == 0 && rg_meta_float(ckpt, rg_gguf_key(ckpt, "rope.scale_linear", key), &r->factor, err) < 0)
        return false;
    if (which >= 0)
        r->type = as[which];
    else if (r->factor > 0 && r->factor != 1)
        r->type = RG_ROPE_LINEAR; /* a factor alone */
    /* The converter keeps only 0.1 * mscale_all_dim; mscale is the same number in every model published so. */
    if (log_multiplier != 0)
        r->mscale = r->mscale_all_dim = 10 * log_multiplier;
    if (rg_checkpoint_find(ckpt, "rope_factors_long.weight")) {
        r->type = RG_ROPE_LONG;
        r->attention_factor = attn_factor;
        for (int i = 0; i < RG_ROPE_VARIANTS * RG_MAX_ROPE_PAIRS; i++)
            r->factors[i / RG_MAX_ROPE_PAIRS][i % RG_MAX_ROPE_PAIRS] = 1; /* they are in the tensors */
    }
    if (r->type == RG_ROPE_YARN && attn_factor > 0)
        r->attention_factor = attn_factor * rg_yarn_mscale(r->factor, 1);
    if (r->type != RG_ROPE_YARN && r->type != RG_ROPE_LONG && attn_factor != 0 && attn_factor != 1 &&
        rg_checkpoint_n_tensors(ckpt)) /* without, it is not known whether there are factors for longer texts */
        return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is %g for a rope that is not of type yarn: not supported",
                       rg_checkpoint_path(ckpt), rg_gguf_key(ckpt, "rope.scaling.attn_factor", key), attn_factor);
    int got =
        rg_meta_int(ckpt, rg_gguf_key(ckpt, "rope.scaling.original_context_length", key), 1, INT32_MAX, &original, err);
    if (got > 0)
        r->original_max_seq_len = original;
    return got >= 0;
}

static bool check_rope(const rg_rope_config *r, const rg_checkpoint *ckpt, rg_error *err)
{
    const char *path = rg_checkpoint_path(ckpt);

    if (r->dim < 2 || r->dim % 2)
        return rg_fail(err, RG_E_INPUT, "%s: %d columns of a head are rotated: the number must be even, and 2 at least",
                       path, r->dim);
    if (!(r->theta > 0))
        return rg_fail(err, RG_E_INPUT, "%s: rope theta %g is not positive", path, r->theta);
    if (r->type != RG_ROPE_DEFAULT && r->type != RG_ROPE_LONG && !(r->factor > 0))
        return rg_fail(err, RG_E_INPUT, "%s: rope scaling '%s' needs a positive factor, not %g", path,
                       rope_types[r->type], r->factor);
    if (r->type == RG_ROPE_LLAMA3 && !(r->low_freq_factor > 0 && r->high_freq_factor >= r->low_freq_factor))
        return rg_fail(err, RG_E_INPUT, "%s: rope llama3 needs 0 < low_freq_factor <= high_freq_factor, not %g and %g",
                       path, r->low_freq_factor, r->high_freq_factor);
    if (r->type == RG_ROPE_DYNAMIC && (r->factor < 1 || r->dim < 4))
        return rg_fail(err, RG_E_INPUT, "%s: rope 'dynamic' needs a factor of at least 1 and 4 columns, not %g and %d",
                       path, r->factor, r->dim);
    return true;
}

bool rg_rope_read(rg_rope_config *r, const rg_checkpoint *ckpt, const char *part, double theta_default, rg_error *err)
{
    bool gguf = rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF;

    r->theta = theta_default;
    r->beta_fast = 32;
    r->beta_slow = 1;
    if (!(gguf ? read_rope_gguf(r, ckpt, part, err) : read_rope_hf(r, ckpt, part, err)))
        return false;
    return check_rope(r, ckpt, err);
}

double rg_yarn_mscale(double factor, double mscale)
{
    return factor <= 1 ? 1.0 : 0.1 * mscale * log(factor) + 1.0;
}

/* Llama 3.1: long wavelengths are stretched by factor, short ones kept, in between a blend. */
static double llama3_frequency(const rg_rope_config *r, double freq)
{
    double length = (double)r->original_max_seq_len, wave = 2 * M_PI / freq;

    if (wave > length / r->low_freq_factor)
        return freq / r->factor;
    if (wave < length / r->high_freq_factor || r->high_freq_factor == r->low_freq_factor)
        return freq; /* of equal factors there is nothing in between */
    double smooth = (length / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * freq / r->factor + smooth * freq;
}

/* What the i-th frequency of a proportional rope is divided by. */
static float proportional_factor(const rg_rope_config *r, int i)
{
    return i < (int)(r->part * r->dim / 2) ? (float)r->factor : STILL;
}

void rg_rope_factors(const rg_rope_config *r, int variant, float *factors)
{
    for (int i = 0; i < r->dim / 2; i++) {
        double freq = 1.0 / pow(r->theta, 2.0 * i / r->dim);

        factors[i] = r->type == RG_ROPE_LONG           ? r->factors[variant][i]
                     : r->type == RG_ROPE_PROPORTIONAL ? proportional_factor(r, i)
                     : r->type == RG_ROPE_LLAMA3       ? (float)(freq / llama3_frequency(r, freq))
                                                       : 1.0f;
    }
}

/* YaRN (Peng et al. 2023): the pair whose wavelength fits `turns` times into the original context. */
static double yarn_pair(const rg_rope_config *r, double turns)
{
    return r->dim * log((double)r->original_max_seq_len / (turns * 2 * M_PI)) / (2 * log(r->theta));
}

static double yarn_frequency(const rg_rope_config *r, double freq, int pair)
{
    double low = yarn_pair(r, r->beta_fast), high = yarn_pair(r, r->beta_slow);

    low = fmax(r->untruncated ? low : floor(low), 0);
    high = fmin(r->untruncated ? high : ceil(high), r->dim - 1);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax((pair - low) / (high - low), 0), 1);
    return freq / r->factor * ramp + freq * (1 - ramp);
}

double rg_yarn_factor(const rg_rope_config *r)
{
    if (r->attention_factor > 0)
        return r->attention_factor;
    if (r->mscale != 0 && r->mscale_all_dim != 0)
        return rg_yarn_mscale(r->factor, r->mscale) / rg_yarn_mscale(r->factor, r->mscale_all_dim);
    return rg_yarn_mscale(r->factor, 1);
}

int rg_rope_variants(const rg_rope_config *r)
{
    return r->type == RG_ROPE_LONG ? RG_ROPE_VARIANTS : 1;
}

int32_t rg_rope_variant(const rg_rope_config *r, int32_t length)
{
    int32_t beyond = length > r->original_max_seq_len ? length - (int32_t)r->original_max_seq_len : 0;

    return r->type == RG_ROPE_DYNAMIC ? beyond : r->type == RG_ROPE_LONG ? beyond > 0 : 0;
}

double rg_long_factor(const rg_rope_config *r, int variant)
{
    if (r->long_mscale[variant] > 0)
        return r->long_mscale[variant];
    if (r->attention_factor > 0)
        return r->attention_factor;
    return r->factor <= 1 ? 1.0 : sqrt(1 + log(r->factor) / log((double)r->original_max_seq_len));
}

void rg_rope_frequencies(const rg_rope_config *r, int variant, const float *freq_factors, float *inv_freq,
                         float *factor)
{
    for (int i = 0; i < r->dim / 2; i++) {
        double freq = 1.0 / pow(r->theta, 2.0 * i / r->dim);
        if (r->type == RG_ROPE_LINEAR)
            freq /= r->factor;
        else if (r->type == RG_ROPE_LLAMA3)
            freq = llama3_frequency(r, freq);
        else if (r->type == RG_ROPE_YARN)
            freq = yarn_frequency(r, freq, i);
        else if (r->type == RG_ROPE_LONG)
            freq /= (double)r->factors[variant][i];
        else if (r->type == RG_ROPE_PROPORTIONAL)
            freq /= (double)proportional_factor(r, i);
        inv_freq[i] = (float)(freq_factors ? freq / (double)freq_factors[i] : freq);
    }
    *factor = r->type == RG_ROPE_YARN   ? (float)rg_yarn_factor(r)
              : r->type == RG_ROPE_LONG ? (float)rg_long_factor(r, variant)
                                        : 1.0f;
}

/* If the settings do not name the original context, it is the model's own.  longrope's factor is the ratio of the
 * two. */
void rg_rope_complete(rg_rope_config *r, int max_seq_len)
{
    if (!r->original_max_seq_len && r->type >= RG_ROPE_LLAMA3 && r->type != RG_ROPE_PROPORTIONAL)
        r->original_max_seq_len = max_seq_len;
    if (r->type == RG_ROPE_LONG)
        r->factor = (double)max_seq_len / (double)r->original_max_seq_len;
}
