/* config.c -- reading the facts of a model from a checkpoint's metadata.
 *
 * The keys that all architectures share, and the helpers that architectures use for their own.  Rope settings have
 * three spellings (transformers 5, transformers 4, GGUF), all read here. */
#include "model/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/arch.h"

/* Keys of config.json that do not change what is computed. */
static const char *const harmless[] = {
    "architectures", "model_type", "attention_dropout", "dtype", "torch_dtype", "initializer_range", "use_cache",
    "transformers_version", "pad_token_id", "bos_token_id", "eos_token_id", "output_router_logits",
        "router_aux_loss_coef",
    "router_jitter_noise", "pretraining_tp", "_name_or_path", "auto_map", "quantization_config.", "output_attentions",
    "output_hidden_states", "return_dict", "id2label.", "label2id.", "chunk_size_feed_forward", "is_encoder_decoder",
    "tokenizer_class", "unsloth_version", "task_specific_params", "hidden_dropout", "resid_pdrop", "embd_pdrop", NULL,
};

static const rg_key common_keys[] = {
    { offsetof(rg_config, n_layers), KEY_INT, "num_hidden_layers", "block_count", RG_REQUIRED },
    { offsetof(rg_config, dim), KEY_INT, "hidden_size", "embedding_length", RG_REQUIRED },
};

const char *rg_gguf_key(const rg_checkpoint *ckpt, const char *suffix, char out[128])
{
    const char *name = "";

    if (rg_meta_string(ckpt, "general.architecture", &name, NULL) != 1)
        name = "";
    snprintf(out, 128, "%s.%s", name, suffix);
    return out;
}

const rg_key *rg_config_common_keys(size_t *n)
{
    *n = RG_LEN(common_keys);
    return common_keys;
}

static bool read_key(rg_config *c, const rg_checkpoint *ckpt, const rg_key *key, rg_error *err)
{
    char full[128];
    const char *name = c->from_gguf ? key->gguf : key->hf;
    char *at = (char *)c + key->at;
    int64_t whole = 0;
    double real = 0;
    bool yes = false;
    int got = 0;

    if (name && c->from_gguf)
        name = rg_gguf_key(ckpt, name, full);
    else if (key->hf_too && rg_meta_type_of(ckpt, name) == RG_META_NONE)
        name = key->hf_too;
    if (name && key->kind == KEY_INT)
        got = rg_meta_int(ckpt, name, 0, INT32_MAX, &whole, err);
    else if (name && key->kind == KEY_BOOL)
        got = rg_meta_bool(ckpt, name, &yes, err);
    else if (name)
        got = rg_meta_float(ckpt, name, &real, err);
    if (got < 0)
        return false;
    if (!got) {
        if (isnan(key->fallback))
            return rg_fail(err, RG_E_INPUT, "%s: key '%s' is missing", rg_checkpoint_path(ckpt), name ? name : key->hf);
        whole = (int64_t)key->fallback;
        real = key->fallback;
        yes = key->fallback != 0;
    }
    switch (key->kind) {
    case KEY_INT: *(int *)(void *)at = (int)whole; break;
    case KEY_FLOAT: *(float *)(void *)at = (float)real; break;
    case KEY_DOUBLE: *(double *)(void *)at = real; break;
    case KEY_BOOL: *(bool *)(void *)at = yes; break;
    }
    return true;
}

bool rg_config_keys(rg_config *c, const rg_checkpoint *ckpt, const rg_key *keys, size_t n, rg_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (!read_key(c, ckpt, &keys[i], err))
            return false;
    return true;
}

/* The value at a key's place, as a number. */
static double value_at(const rg_config *c, const rg_key *key)
{
    const void *at = (const char *)c + key->at;

    switch (key->kind) {
    case KEY_INT:
        return *(const int *)at;
    case KEY_FLOAT:
        return (double)*(const float *)at;
    case KEY_DOUBLE:
        return *(const double *)at;
    case KEY_BOOL:
        return *(const bool *)at;
    }
    return 0;
}

double rg_config_value(const rg_config *c, const char *name)
{
    for (size_t i = 0; i < c->arch->n_keys; i++) {
        const rg_key *key = &c->arch->keys[i];

        if ((key->hf && !strcmp(key->hf, name)) || (key->gguf && !strcmp(key->gguf, name)))
            return value_at(c, key);
    }
    return NAN;
}

bool rg_config_choice(const rg_checkpoint *ckpt, const char *key, const char *const *choices, int *which, rg_error *err)
{
    const char *s = NULL;
    int got = rg_meta_string(ckpt, key, &s, err);

    *which = -1;
    if (got <= 0)
        return got == 0;
    for (int i = 0; choices[i]; i++) {
        if (!strcmp(s, choices[i])) {
            *which = i;
            return true;
        }
    }
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: %s is '%.40s', which is not supported (supported: '%s')",
                   rg_checkpoint_path(ckpt), key, s, choices[0]);
}

/* ---- rope ---- */

static const char *const rope_types[] = { "default", "linear", "llama3", "yarn", "longrope", NULL };

/* Numbers of a rope's scaling, which stand under one prefix each. */
static const char *const rope_numbers[] = {
    "rope_theta", "factor", "low_freq_factor", "high_freq_factor", "beta_fast",
    "beta_slow",  "mscale", "mscale_all_dim",  "attention_factor", "original_max_position_embeddings",
    NULL,
};

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
    };
    char key[160];
    int64_t original;
    bool truncate = true;

    for (size_t i = 0; i < RG_LEN(numbers); i++) {
        snprintf(key, sizeof key, "%s%s", prefix, numbers[i].name);
        if (rg_meta_float(ckpt, key, numbers[i].to, err) < 0)
            return false;
    }
    snprintf(key, sizeof key, "%struncate", prefix);
    if (rg_meta_bool(ckpt, key, &truncate, err) < 0)
        return false;
    r->untruncated = !truncate;
    snprintf(key, sizeof key, "%soriginal_max_position_embeddings", prefix);
    int got = rg_meta_int(ckpt, key, 1, INT32_MAX, &original, err);
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
            if (rg_meta_float(ckpt, key, &factor, err) < 0)
                return false;
            if (!(factor > 0))
                return rg_fail(err, RG_E_INPUT, "%s: %s is not positive", rg_checkpoint_path(ckpt), key);
            r->factors[v][i] = (float)factor;
        }
    }
    return true;
}

/* True if rope_scaling has a member; an empty object counts as null. */
static bool has_rope_scaling(const rg_checkpoint *ckpt)
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

/* Where both are given, rope_scaling replaces rope_parameters whole, as in transformers; the base may stand in either
 * or beside them. */
static bool read_rope_hf(rg_rope_config *r, const rg_checkpoint *ckpt, const char *part, rg_error *err)
{
    const char *object = has_rope_scaling(ckpt) ? "rope_scaling" : "rope_parameters";
    bool local = part && !strcmp(part, "sliding_attention");
    char prefix[96], key[160];

    rg_meta_understand(ckpt, "rope_scaling"); /* a null says nothing; its members are reported unless they are read */
    snprintf(key, sizeof key, "%s.%s", object, part ? part : "");
    bool by_part = part && rg_meta_type_of(ckpt, key) == RG_META_OBJECT;
    snprintf(prefix, sizeof prefix, "%s.%s%s", object, by_part ? part : "", by_part ? "." : "");
    if (!by_part && local && rg_meta_type_of(ckpt, "rope_local_base_freq") != RG_META_NONE)
        return rg_meta_float(ckpt, "rope_local_base_freq", &r->theta, err) >= 0; /* scaling is the global layers' */
    if (!by_part && local && !strcmp(object, "rope_scaling"))
        return true;
    return rg_meta_float(ckpt, "rope_theta", &r->theta, err) >= 0 && read_rope_numbers(r, ckpt, prefix, err) &&
           read_rope_type(r, ckpt, prefix, err) && read_long_factors(r, ckpt, prefix, err);
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
    if (which >= 0)
        r->type = as[which];
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
    if (r->type == RG_ROPE_LLAMA3 && !(r->low_freq_factor > 0 && r->high_freq_factor > r->low_freq_factor))
        return rg_fail(err, RG_E_INPUT, "%s: rope llama3 needs 0 < low_freq_factor < high_freq_factor, not %g and %g",
                       path, r->low_freq_factor, r->high_freq_factor);
    return true;
}

bool rg_config_rope(rg_rope_config *r, const rg_checkpoint *ckpt, const char *part, double theta_default, rg_error *err)
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
    if (wave < length / r->high_freq_factor)
        return freq;
    double smooth = (length / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
    return (1 - smooth) * freq / r->factor + smooth * freq;
}

void rg_rope_factors(const rg_rope_config *r, int variant, float *factors)
{
    for (int i = 0; i < r->dim / 2; i++) {
        double freq = 1.0 / pow(r->theta, 2.0 * i / r->dim);
        double by = r->type == RG_ROPE_LLAMA3 ? freq / llama3_frequency(r, freq) : 1;

        factors[i] = r->type == RG_ROPE_LONG ? r->factors[variant][i] : (float)by;
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

int32_t rg_rope_long_from(const rg_config *c)
{
    for (int i = 0; i < c->n_ropes; i++)
        if (c->ropes[i].type == RG_ROPE_LONG)
            return (int32_t)c->ropes[i].original_max_seq_len + 1;
    return 0;
}

double rg_long_factor(const rg_rope_config *r)
{
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
        inv_freq[i] = (float)(freq_factors ? freq / (double)freq_factors[i] : freq);
    }
    *factor = r->type == RG_ROPE_YARN   ? (float)rg_yarn_factor(r)
              : r->type == RG_ROPE_LONG ? (float)rg_long_factor(r)
                                        : 1.0f;
}

/* ---- ends and sampling ---- */

/* One more id that ends a sequence; beyond RG_MAX_EOS they are left out. */
static bool add_eos(rg_config *c, const rg_checkpoint *ckpt, int64_t id, rg_error *err)
{
    if (id < 0 || id == UINT32_MAX) /* none: GGUF writes -1 without a sign */
        return true;
    if (id >= c->vocab_size)
        return rg_fail(err, RG_E_INPUT, "%s: the id %lld that ends a sequence is beyond the vocabulary of %d",
                       rg_checkpoint_path(ckpt), (long long)id, c->vocab_size);
    if (c->n_eos < RG_MAX_EOS)
        c->eos_ids[c->n_eos++] = (int32_t)id;
    return true;
}

static bool read_eos(rg_config *c, const rg_checkpoint *ckpt, const char *key, rg_error *err)
{
    const int32_t *ids;
    int64_t one;
    size_t n;

    if (rg_meta_type_of(ckpt, key) == RG_META_ARRAY) {
        bool ok = rg_meta_ints(ckpt, key, &ids, &n, err) >= 0;
        for (size_t i = 0; ok && i < n; i++)
            ok = add_eos(c, ckpt, ids[i], err);
        return ok;
    }
    int got = rg_meta_int(ckpt, key, -1, UINT32_MAX, &one, err);
    return got > 0 ? add_eos(c, ckpt, one, err) : got == 0;
}

static bool read_ends(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    int64_t bos = -1;

    if (c->from_gguf) {
        if (rg_meta_int(ckpt, "tokenizer.ggml.bos_token_id", 0, UINT32_MAX, &bos, err) < 0 ||
            !read_eos(c, ckpt, "tokenizer.ggml.eos_token_id", err) ||
            !read_eos(c, ckpt, "tokenizer.ggml.eot_token_id", err))
            return false;
    } else {
        if (rg_meta_type_of(ckpt, "bos_token_id") == RG_META_INT &&
            rg_meta_int(ckpt, "bos_token_id", -1, UINT32_MAX, &bos, err) < 0)
            return false;
        const char *key = rg_meta_type_of(ckpt, "generation.eos_token_id") != RG_META_NONE ? "generation.eos_token_id"
                                                                                           : "eos_token_id";
        if (!read_eos(c, ckpt, key, err))
            return false;
    }
    if (bos == UINT32_MAX)
        bos = -1;
    if (bos >= c->vocab_size)
        return rg_fail(err, RG_E_INPUT, "%s: the id %lld at which sequences begin is beyond the vocabulary of %d",
                       rg_checkpoint_path(ckpt), (long long)bos, c->vocab_size);
    c->bos_id = (int32_t)bos;
    return true;
}

static bool read_sampling(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    double temperature = 1, top_p = 1, min_p = 0, typical_p = 1, repetition = 1;
    int64_t top_k = 0;
    bool sample = true;

    c->sampling =
        (rg_sampling){ .temperature = 1, .top_p = 1, .typical_p = 1, .repetition_penalty = 1, .n_logprobs = -1 };
    if (rg_meta_float(ckpt, "generation.temperature", &temperature, err) < 0 ||
        rg_meta_float(ckpt, "generation.top_p", &top_p, err) < 0 ||
        rg_meta_float(ckpt, "generation.min_p", &min_p, err) < 0 ||
        rg_meta_float(ckpt, "generation.typical_p", &typical_p, err) < 0 ||
        rg_meta_float(ckpt, "generation.repetition_penalty", &repetition, err) < 0 ||
        rg_meta_int(ckpt, "generation.top_k", 0, INT32_MAX, &top_k, err) < 0 ||
        rg_meta_bool(ckpt, "generation.do_sample", &sample, err) < 0)
        return false;
    c->sampling.temperature = sample ? (float)temperature : 1.0f;
    c->sampling.top_p = (float)top_p;
    c->sampling.min_p = (float)min_p;
    c->sampling.typical_p = (float)typical_p;
    c->sampling.repetition_penalty = (float)repetition;
    c->sampling.top_k = (int32_t)top_k;
    rg_meta_understand(ckpt, "generation.");
    rg_meta_understand(ckpt, "tokenizer_config.");
    rg_meta_understand(ckpt, "tokenizer.");
    rg_meta_understand(ckpt, "general.");
    rg_meta_understand(ckpt, "split.");
    return true;
}

/* GGUF may leave vocab_size to the token list or to the embedding's shape. */
static bool read_vocab(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    char key[128];
    int64_t n = 0;
    size_t n_tokens;
    int got =
        rg_meta_int(ckpt, c->from_gguf ? rg_gguf_key(ckpt, "vocab_size", key) : "vocab_size", 1, INT32_MAX, &n, err);
    const rg_tensor *embed = rg_checkpoint_find(ckpt, "token_embd.weight");

    if (got < 0)
        return false;
    if (!got && c->from_gguf && embed)
        n = rg_tensor_rows(embed);
    else if (!got && c->from_gguf && rg_meta_length(ckpt, "tokenizer.ggml.tokens", &n_tokens, NULL) > 0)
        n = (int64_t)n_tokens;
    if (n < 1 || n > INT32_MAX)
        return rg_fail(err, RG_E_INPUT, "%s: vocab_size is missing", rg_checkpoint_path(ckpt));
    c->vocab_size = (int)n;
    return true;
}

/* If the settings do not name the original context, it is the model's own.  longrope's factor is the ratio of the
 * two. */
static void complete_rope(rg_rope_config *r, int max_seq_len)
{
    if (!r->original_max_seq_len && r->type >= RG_ROPE_LLAMA3)
        r->original_max_seq_len = max_seq_len;
    if (r->type == RG_ROPE_LONG)
        r->factor = (double)max_seq_len / (double)r->original_max_seq_len;
}

/* Weights that a method of its own has packed are not those that the table of weights names. */
static bool require_plain_weights(const rg_checkpoint *ckpt, rg_error *err)
{
    const char *method = NULL;

    if (!rg_checkpoint_n_tensors(ckpt) || rg_meta_string(ckpt, "quantization_config.quant_method", &method, NULL) != 1)
        return true;
    return rg_fail(err, RG_E_UNSUPPORTED,
                   "%s: quantization_config.quant_method is '%.40s', which is not supported: take the model in plain "
                   "weights, or as GGUF",
                   rg_checkpoint_path(ckpt), method);
}

/* ---- what was not read ---- */

typedef struct stray {
    const rg_config *c;
    bool scaling_wins; /* rope_scaling stands in for rope_parameters */
    char key[160];     /* the first known key in a place where it is not read; "": none */
} stray;

static bool is_known(const rg_config *c, const char *name)
{
    for (int i = 0; rope_numbers[i]; i++)
        if (!strcmp(name, rope_numbers[i]))
            return true;
    for (size_t i = 0; i < RG_LEN(common_keys); i++)
        if (!strcmp(name, common_keys[i].hf))
            return true;
    for (size_t i = 0; i < c->arch->n_keys; i++)
        if (c->arch->keys[i].hf && !strcmp(name, c->arch->keys[i].hf))
            return true;
    return false;
}

static void find_stray(void *arg, const char *key, rg_meta_type type, bool understood)
{
    stray *s = arg;
    const char *name = strrchr(key, '.');

    if (understood || type == RG_META_NULL || !name || s->key[0] || !is_known(s->c, name + 1))
        return;
    if (!(s->scaling_wins && !strncmp(key, "rope_parameters.", 16)))
        snprintf(s->key, sizeof s->key, "%s", key);
}

/* A setting that this model uses, in an object that is not read, would be ignored silently. */
static bool require_no_stray(const rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    stray s = { .c = c, .scaling_wins = has_rope_scaling(ckpt) };

    if (c->from_gguf)
        return true;
    rg_meta_each(ckpt, find_stray, &s);
    if (!s.key[0])
        return true;
    return rg_fail(err, RG_E_UNSUPPORTED, "%s: the key '%s' stands where this architecture does not read it",
                   rg_checkpoint_path(ckpt), s.key);
}

bool rg_config_read(rg_config *c, const rg_checkpoint *ckpt, rg_error *err)
{
    memset(c, 0, sizeof *c);
    c->from_gguf = rg_checkpoint_kind(ckpt) == RG_CKPT_GGUF;
    c->embed_scale = 1;
    for (int i = 0; i < RG_MAX_LAYERS; i++)
        c->layer[i].kv_layer = -1;
    c->arch = rg_arch_find(ckpt, err);
    if (!c->arch || !require_plain_weights(ckpt, err))
        return false;
    RG_ASSERT(c->arch->own_bytes <= sizeof c->own);
    if (!rg_config_keys(c, ckpt, common_keys, RG_LEN(common_keys), err) || !read_vocab(c, ckpt, err))
        return false;
    if (c->n_layers < 1 || c->n_layers > RG_MAX_LAYERS || c->dim < 1)
        return rg_fail(err, RG_E_INPUT,
                       "%s: %d layers of width %d: ridge takes 1 to %d layers and a width of at least 1",
                       rg_checkpoint_path(ckpt), c->n_layers, c->dim, RG_MAX_LAYERS);
    if (!rg_config_keys(c, ckpt, c->arch->keys, c->arch->n_keys, err) || !c->arch->finish(c, ckpt, err) ||
        !read_ends(c, ckpt, err) || !read_sampling(c, ckpt, err) ||
        !rg_embedding_read(&c->embedding, ckpt, c->dim, err))
        return false;
    for (int i = 0; i < c->n_ropes; i++)
        complete_rope(&c->ropes[i], c->max_seq_len);
    for (int i = 0; harmless[i]; i++)
        rg_meta_understand(ckpt, harmless[i]);
    for (int i = 0; c->arch->harmless && c->arch->harmless[i]; i++)
        rg_meta_understand(ckpt, c->arch->harmless[i]);
    if (!require_no_stray(c, ckpt, err))
        return false;
    if (!(c->norm_eps > 0 && c->norm_eps < 1))
        return rg_fail(err, RG_E_INPUT, "%s: the norm's eps %g is not between 0 and 1", rg_checkpoint_path(ckpt),
                       (double)c->norm_eps);
    if (c->max_seq_len < 1)
        return rg_fail(err, RG_E_INPUT, "%s: the context length is 0", rg_checkpoint_path(ckpt));
    return true;
}
